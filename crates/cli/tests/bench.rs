//! `maquette bench`, `maquette explain` and `maquette devices`.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A folder of its own for a test, with a graph.
struct Folder(PathBuf);

const PROGRAM: &str = "graph block(%w: f32[8, 32], %x: f32[n, 8], %order: i64[4]) -> (f32[4, 32])
  where n in [2, 64]
{
  %up: f32[n, 32] = aten::mm(%x, %w)
  %gelu: f32[n, 32] = aten::gelu(%up)
  %softmax: f32[n, 32] = aten::softmax.int(%gelu, -1)
  %rows: f32[4, 32] = aten::index_select(%softmax, 0, %order)
  return %rows
}
";

impl Folder {
    fn new(name: &str) -> Folder {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("bench-{name}"));
        if folder.exists() {
            std::fs::remove_dir_all(&folder).unwrap();
        }
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("block.txt"), PROGRAM).unwrap();
        Folder(folder)
    }

    fn maquette(&self, args: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_maquette"));
        command.env("MAQUETTE_CACHE_DIR", self.0.join("cache")).env("MAQUETTE_NUM_THREADS", "2");
        command.args(args).current_dir(&self.0).output().unwrap()
    }

    /// What a command prints that succeeds.
    #[track_caller]
    fn shown(&self, args: &[&str]) -> String {
        let out = self.maquette(args);
        assert!(out.status.success(), "{args:?}: {}", String::from_utf8_lossy(&out.stderr));
        let shown = String::from_utf8(out.stdout).unwrap();
        assert!(!shown.contains('\u{1b}'), "no escape codes in a pipe");
        shown
    }
}

/// The lines without what differs from run to run: times, shares, rates and bars.
fn without_times(table: &str) -> String {
    let is_measured = |word: &&str| {
        let number = word.parse::<f64>().is_ok() || ["%", "ns", "µs", "ms", "s"].contains(word);
        number || word.starts_with(['█', '▏', '▎', '▍', '▌', '▋', '▊', '▉'])
    };
    let mut lines: Vec<String> = Vec::new();
    for (i, line) in table.lines().enumerate() {
        let words = line.split_whitespace().skip_while(|word| i >= 3 && is_measured(word));
        lines.push(words.collect::<Vec<_>>().join(" "));
    }
    if let Some(rows) = lines.get_mut(3..) {
        rows.sort();
    }
    lines.join("\n")
}

#[test]
fn bench_prints_a_table_of_kernels() {
    let folder = Folder::new("table");
    let args = ["bench", "block.txt", "--size", "n=16", "--repeat", "3"];
    let table = folder.shown(&args);
    insta::with_settings!({filters => vec![
        (r"[0-9.]+ (ns|µs|ms)", "[time]"),
    ]}, {
        insta::assert_snapshot!(without_times(&table), @r"
        `block` on 2 threads: [time] a run (median of 3, least [time]), 3 kernels
        peaks: not known; `maquette devices --measure` measures them
        time share GB/s GFLOP/s of peak kernel
        (between kernels)
        _softmax [16, 32] block.txt:6
        index_select [4, 32] block.txt:7
        mm + gelu [16, 32] block.txt:4, 5
        ");
    });
    assert!(table.lines().all(|line| line.chars().count() <= 100), "{table}");
    let lines = folder.shown(&[&args[..], &["--by", "line"]].concat());
    assert!(lines.contains("block.txt:4, 5"), "{lines}");
    let operators = folder.shown(&[&args[..], &["--by", "operator", "--parameters", "1"]].concat());
    assert!(operators.contains("mm + gelu"), "{operators}");
}

#[test]
fn bench_takes_a_number_of_threads() {
    let folder = Folder::new("threads");
    for threads in ["1", "3"] {
        let args = ["bench", "block.txt", "--size", "n=16", "--threads", threads];
        let table = folder.shown(&args);
        let plural = if threads == "1" { "" } else { "s" };
        assert!(table.starts_with(&format!("`block` on {threads} thread{plural}: ")), "{table}");
    }
    let failed = folder.maquette(&["bench", "block.txt", "--threads", "1"]);
    assert_eq!(failed.status.code(), Some(1));
}

#[test]
fn bench_writes_a_trace() {
    let folder = Folder::new("trace");
    folder.shown(&["bench", "block.txt", "--size", "n=16", "--trace", "out.json"]);
    let trace = std::fs::read_to_string(folder.0.join("out.json")).unwrap();
    assert!(trace.contains("\"traceEvents\"") && trace.contains("\"mm + gelu\""), "{trace}");
    assert!(trace.contains("block.txt:4"), "{trace}");
}

#[test]
fn explain_prints_the_graph_after_a_pass() {
    let folder = Folder::new("after");
    // Sizes need no values.
    let after = |pass: &str| folder.shown(&["explain", "block.txt", "--after", pass]);
    assert_eq!(after("fast-math"), PROGRAM);
    assert_eq!(
        after("decompose"),
        PROGRAM.replace("aten::softmax.int(%gelu, -1)", "aten::_softmax(%gelu, -1, false)")
    );
    insta::assert_snapshot!(after("fuse"), @r#"
    graph block(%w: f32[8, 32], %x: f32[n, 8], %order: i64[4]) -> (f32[4, 32])
      where n in [2, 64]
    {
      %gelu: f32[n, 32] = ir::fused("product", 0, [%x, %w], [])
      %_softmax: f32[n, 32] = aten::_softmax(%gelu, -1, false)
      %index_select: f32[4, 32] = aten::index_select(%_softmax, 0, %order)
      return %index_select
    }
    "#);
    assert_eq!(after("functionalize"), after("select-plan"), "the program mutates nothing");
}

#[test]
fn explain_lists_the_passes_if_a_name_is_wrong() {
    let folder = Folder::new("passes");
    let failed = folder.maquette(&["explain", "block.txt", "--after", "fusion"]);
    assert_eq!(failed.status.code(), Some(2));
    insta::assert_snapshot!(String::from_utf8(failed.stderr).unwrap(), @r"
    error: invalid value 'fusion' for '--after <PASS>'
      [possible values: fast-math, decompose, functionalize, select-plan, rematerialize, concats, fuse]

      tip: a similar value exists: 'fuse'

    For more information, try '--help'.
    ");
}

#[test]
fn explain_says_why_a_program_stays_as_it_is() {
    let folder = Folder::new("stays");
    let text = "graph g(%x: f32[1] strides [0], %y: f32[4] strides [0]) -> () {
        %z: f32[4] strides [0] = aten::add_.Tensor(%y, %x)
        return ()
    }";
    std::fs::write(folder.0.join("stays.txt"), text).unwrap();
    let out = folder.maquette(&["explain", "stays.txt", "--after", "fuse"]);
    assert!(out.status.success());
    let note = String::from_utf8(out.stderr).unwrap();
    let start = "note: the program stays as it is: stays.txt:2: aten::add_.Tensor writes to a tensor \
        that overlaps itself";
    assert!(note.starts_with(start) && note.lines().count() == 1, "{note}");
    assert!(String::from_utf8(out.stdout).unwrap().contains("aten::add_.Tensor"));
}

#[test]
fn explain_says_how_a_program_runs() {
    let folder = Folder::new("explain");
    let args = ["explain", "block.txt", "--size", "n=16", "--svg", "out.svg"];
    insta::assert_snapshot!(folder.shown(&args), @r"
    3 kernels of `block`
       0  mm + gelu     block.txt:4, 5
       1  _softmax      block.txt:6
       2  index_select  block.txt:7

    not fused
      gelu → _softmax: the kernel of one of them is faster alone  block.txt:5, 6
      _softmax → index_select: they have no rows in common  block.txt:6, 7

    memory
    arena of 4096 bytes; 4096 are in use at one time, 4096 without sharing
      input                      1024 bytes  kernels 0–2       w
      input                       512 bytes  kernels 0–2       x
      input                        32 bytes  kernels 0–2       order
      arena + 0                  2048 bytes  kernels 0–1       gelu
      arena + 2048               2048 bytes  kernels 1–2       _softmax
      output                      512 bytes  kernels 2         index_select
    ");
    let svg = std::fs::read_to_string(folder.0.join("out.svg")).unwrap();
    assert!(svg.starts_with("<svg ") && svg.contains("block: memory of 3 kernels"), "{svg}");
}

#[test]
fn unknown_operators_are_refused() {
    let folder = Folder::new("unknown");
    let program = "graph g(%x: f32[4], %y: f32[4]) -> (f32[4])\n{\n  \
        %a: f32[4] = nowhere::op(%x)\n  return %a\n}\n";
    std::fs::write(folder.0.join("g.txt"), program).unwrap();
    let out = folder.maquette(&["bench", "g.txt"]);
    let told = String::from_utf8(out.stderr).unwrap();
    assert!(!out.status.success() && told.contains("nowhere::op"), "{told}");
}

#[test]
fn what_cannot_be_run_is_refused() {
    let folder = Folder::new("refused");
    let constant = "graph g(%x: f32[4]) -> (f32[4])\n  const %c: f32[4] = \
        sha256:0011223344556677\n{\n  %y: f32[4] = aten::add.Tensor(%x, %c)\n  return %y\n}\n";
    std::fs::write(folder.0.join("constant.txt"), constant).unwrap();
    for (args, expected) in [
        (
            &["block.txt"][..],
            "error: block.txt: `n` in [2, 64] has no value; give it one with `--size n=…`",
        ),
        (&["block.txt", "--size", "n=65"], "error: block.txt: `n` is in [2, 64]; found 65"),
        (
            &["block.txt", "--size", "m=3"],
            "error: block.txt: the graph has no symbol `m`; it has n",
        ),
        (
            &["block.txt", "--size", "n"],
            "expected a symbol of the graph and its value, such as `n=128`",
        ),
        (&["none.txt"], "error: cannot read none.txt"),
        (&["constant.txt"], "constant `c` are not in the file; make it an input"),
    ] {
        for command in ["bench", "explain"] {
            let out = folder.maquette(&[&[command][..], args].concat());
            let told = String::from_utf8(out.stderr).unwrap();
            assert!(!out.status.success() && told.contains(expected), "{command} {args:?}: {told}");
            assert!(!told.contains(".rs:"), "{told}");
        }
    }
    let out =
        folder.maquette(&["bench", "block.txt", "--size", "n=4", "--trace", "no/such/folder"]);
    let told = String::from_utf8(out.stderr).unwrap();
    assert!(told.contains("error: cannot write no/such/folder"), "{told}");
}

#[test]
fn peaks_are_measured_on_request_and_kept() {
    let folder = Folder::new("devices");
    let before = folder.shown(&["devices"]);
    assert!(
        before.starts_with("cpu: ") && before.contains("kernels use 2 threads and "),
        "{before}"
    );
    assert!(before.ends_with("peaks: not known; `maquette devices --measure` measures them\n"));
    assert!(!folder.0.join("cache").exists(), "nothing is written unasked");
    let measured = folder.shown(&["devices", "--measure"]);
    assert!(measured.contains("multiply-adds in f32") && measured.contains("copies in 1 MiB"));
    assert_eq!(folder.shown(&["devices"]), measured);
    let table = folder.shown(&["bench", "block.txt", "--size", "n=16", "--repeat", "2"]);
    let peaks = table.lines().nth(1).unwrap_or_default();
    assert!(peaks.starts_with("peaks: ") && peaks.contains(" GFLOP/s in f32, "), "{table}");
}

/// The graph of a page, and the picture that it shows.
#[test]
fn the_picture_in_the_guide_is_that_of_its_graph() {
    let folder = Folder::new("guide");
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let page = std::fs::read_to_string(docs.join("profile.md")).unwrap();
    let (_, graph) = page.split_once("```text\ngraph block").unwrap();
    let (graph, _) = graph.split_once("```").unwrap();
    std::fs::write(folder.0.join("graph.txt"), format!("graph block{graph}")).unwrap();
    let command = ["explain", "graph.txt", "--size", "n=256", "--svg", "memory.svg"];
    folder.shown(&command);
    let drawn = std::fs::read_to_string(folder.0.join("memory.svg")).unwrap();
    let shown = std::fs::read_to_string(docs.join("pictures/memory.svg")).unwrap();
    assert!(drawn == shown, "`maquette {}` draws another picture", command.join(" "));
}
