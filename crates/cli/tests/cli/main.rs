//! The command, as the README tells people to use it.

mod rewriting;

use std::io::Write;
use std::process::{Command, Output, Stdio};
use std::sync::LazyLock;

fn maquette(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_maquette")).args(args).output().unwrap()
}

fn maquette_reading(args: &[&str], input: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_maquette"))
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[test]
fn the_demo_is_as_accurate_as_pytorch_at_every_batch_size() {
    let out = maquette(&[]);
    let shown = text(&out.stdout);
    assert!(out.status.success(), "{}", text(&out.stderr));
    assert!(!shown.contains('\u{1b}'), "no escape codes in a pipe");
    let rows: Vec<&str> = shown.lines().filter(|l| l.ends_with(" ms")).collect();
    assert_eq!(rows.len(), 5, "{shown}");
    assert!(rows.iter().all(|r| r.contains("0.9889") && r.contains("353")), "{rows:?}");
    // the time of compiled calls, and of eager ones
    assert!(rows.iter().all(|r| r.matches(" ms").count() == 2), "{rows:?}");
    assert!(shown.contains("compiled once"), "{shown}");
    let (_, difference) = shown.split_once("PyTorch's logits: ").unwrap();
    let difference: f64 = difference.split_whitespace().next().unwrap().parse().unwrap();
    assert!(difference <= 1e-4, "{difference}");
}

#[test]
fn a_graph_goes_through_text_and_back() {
    let graph = maquette(&["demo", "--graph-only"]);
    insta::assert_snapshot!("demo_graph", text(&graph.stdout));
    let again = maquette_reading(&["graph", "-"], text(&graph.stdout));
    assert_eq!(text(&again.stdout), text(&graph.stdout));
    let dot = maquette_reading(&["graph", "--dot", "-"], text(&graph.stdout));
    assert!(text(&dot.stdout).starts_with("digraph"));
}

#[test]
fn operators_are_listed() {
    let out = maquette(&["ops", "demo"]);
    assert!(text(&out.stdout).contains("demo::normalize(Tensor images) -> Tensor"));
    assert!(text(&out.stdout).ends_with("2 operators\n"));
}

/// A graph that binds a symbol twice. The tab is one column.
const BOUND_TWICE: &str = "graph g(%x: i64[3]) -> ()\n  where u0 in [0, oo)\n{
  %a: i64[u0] = t::f(%x)\n  bind u0 = size(%a, 0)\n\tbind u0 = size(%a, 0)\n  return ()\n}";

#[test]
fn errors_are_short() {
    for (args, input, expected) in [
        (&["graph", "/no/such/file"][..], "", "cannot read /no/such/file"),
        (&["graph", "-"], "graph g(%x", "<stdin>:1:8: "),
        (&["graph", "-"], BOUND_TWICE, "error: <stdin>:6:2: invalid graph `g` (G9): "),
        (&["functionalize", "-"], BOUND_TWICE, "error: <stdin>:6:2: invalid graph `g` (G9): "),
        // no statement is at fault
        (
            &["graph", "-"],
            "graph g(%x: f32[2 * n]) -> ()\n  where n in [1, 9]\n{\n  return ()\n}",
            "error: <stdin>: invalid graph `g` (G7): ",
        ),
        (&["ops", "nowhere"], "", "no operator has a name that starts with `nowhere`"),
        (&["ops", "relu"], "", "starts with `relu`; did you mean `aten::relu`?"),
        (&["ops", "aten::reluu"], "", "starts with `aten::reluu`; did you mean `aten::relu`?"),
        (&["demo", "--confidence", "7"], "", "expected a number from 0 to 1"),
    ] {
        let out = maquette_reading(args, input);
        assert!(!out.status.success());
        assert!(text(&out.stderr).contains(expected), "{}", text(&out.stderr));
        assert!(
            !text(&out.stderr).contains(".rs:"),
            "a line of our own code helps nobody: {}",
            text(&out.stderr)
        );
    }
}

#[test]
fn calls_are_checked_against_the_operators() {
    let errors_of = |call: &str, ty: &str| {
        let program = format!(
            "graph g(%x: f32[4, 3], %n: i64[3]) -> ({ty})\n{{\n  %a: {ty} = {call}\n  return \
                %a\n}}\n"
        );
        let runs =
            ["graph", "functionalize"].map(|command| maquette_reading(&[command, "-"], &program));
        let errors = runs.each_ref().map(|out| text(&out.stderr).to_owned());
        assert_eq!(runs[0].status.success(), runs[1].status.success(), "{errors:?}");
        assert!(!errors.concat().contains(".rs:"), "{errors:?}");
        errors
    };
    for (call, ty, expected) in [
        ("aten::select.int(%x, 0, 7)", "f32[3]", "aten::select.int: index 7 is out of range"),
        (
            "aten::select.int(%x, 0, 1)",
            "f32[3]",
            "aten::select.int: the graph declares result 0 with offset 0, but the operator returns 3",
        ),
        (
            "aten::relu(%x)",
            "i64[4, 3]",
            "aten::relu: the graph declares result 0 with dtype i64, but the operator returns f32",
        ),
        ("aten::relu(%x, %x)", "f32[4, 3]", "aten::relu: takes at most 1 arguments, found 2"),
        (
            "aten::rellu(%x)",
            "f32[4, 3]",
            "error: <stdin>:3:3: there is no operator `aten::rellu` (similar: aten::relu",
        ),
        ("aten::add_.Tensor(%n, %x)", "i64[3]", "aten::add_.Tensor: "),
        ("aten::mul_.Tensor(%n, 0.5)", "i64[3]", "cannot be written into a tensor of dtype i64"),
    ] {
        for error in errors_of(call, ty) {
            assert!(
                error.starts_with("error: <stdin>:3:3: ")
                    && error.contains(expected)
                    && error.contains(&format!("> %a: {ty} = {call}")),
                "{error}"
            );
        }
    }
    assert_eq!(errors_of("aten::select.int(%x, 0, 1)", "f32[3] offset 3"), ["", ""]);
    // a check allocates nothing
    let many = "f32[1125899906842624]";
    let program = format!(
        "graph g() -> ()\n{{\n  %o: {many} = aten::ones([1125899906842624])\n  %a: i64[1] = \
            aten::relu(%o)\n  return ()\n}}\n"
    );
    let out = maquette_reading(&["graph", "-"], &program);
    assert!(
        text(&out.stderr).contains(
            "<stdin>:4:3: aten::relu: the graph declares result 0 with dtype i64, but \
                the operator returns f32"
        ),
        "{}",
        text(&out.stderr)
    );
    // what is functional already calls operators of no registry
    let lifted = "graph g(%x: f32[2], %y: f32[2]) -> \
        (f32[2])\n{\n  %a: f32[2] = ir::call(\"aten::add_.Tensor\", %x, %y)\n  return %a\n}\n";
    assert_eq!(text(&maquette_reading(&["functionalize", "-"], lifted).stderr), "");
    // another library's operators are not known here
    let note =
        "note: operator `mylib::f` is not registered; it is assumed to write to all its tensors\n";
    assert_eq!(errors_of("mylib::f(%x)", "f32[2]"), ["", note]);
}

#[test]
fn calls_are_checked_when_sizes_are_symbols() {
    let errors_of = |statements: &str| {
        let program = format!(
            "graph g(%x: f32[n, 3], %y: f32[m, 3], %k: int(k)) -> ()\n  where k in [0, 9], m in \
                [0, oo), n in [0, oo), unbacked u0 in [0, oo)\n{{\n  {statements}\n  return \
                ()\n}}\n"
        );
        text(&maquette_reading(&["graph", "-"], &program).stderr).to_owned()
    };
    for (statement, expected) in [
        (
            "%a: f32[n, 3] = aten::reluu(%x)",
            "4:3: there is no operator `aten::reluu` (similar: aten::relu",
        ),
        ("%a: f32[n, 3] = ir::vieww(%x)", "4:3: there is no operator `ir::vieww`"),
        ("%a: f32[n, 3] = aten::relu(%x, %x)", "aten::relu: takes at most 1 arguments, found 2"),
        (
            "%a: f32[n, 3] = aten::relu(\"x\")",
            "aten::relu: argument 0 `self` is declared as Tensor",
        ),
        ("%a: f32[n, 3] = aten::relu()", "aten::relu: argument 0 `self` (Tensor) is missing"),
        (
            "%a: f32[n, 3] = aten::add.Tensor(%x, %x, alhpa=2)",
            "aten::add.Tensor: has no argument `alhpa` (similar: alpha)",
        ),
        (
            "%a: f32[n, 3] = aten::relu(%x, self=%x)",
            "aten::relu: argument 0 `self` is given twice, by position and by keyword",
        ),
        (
            "%a: i64[n, 3] = aten::relu(%x)",
            "aten::relu: the graph declares result 0 with dtype i64, but the operator returns f32",
        ),
        (
            "%a: f32[n] = aten::relu(%x)",
            "aten::relu: the graph declares result 0 with rank 1, but the operator returns 2",
        ),
        // whether `n` is 1 is open, the dtype is not
        (
            "%a: i64[3] = aten::squeeze(%x)",
            "aten::squeeze: the graph declares result 0 with dtype i64, but the operator \
                returns f32",
        ),
        (
            "%a: f32[n + 1, 3] = aten::relu(%x)",
            "aten::relu: the graph declares result 0 with size 0 n + 1, but the operator returns n",
        ),
        (
            "%a: int(k) = aten::relu(%x)",
            "aten::relu: the graph declares result 0 with the type int(k), but the operator \
                returns a tensor",
        ),
        // whether n == m is open, but not what is returned if it is
        (
            "%a: i64[n, 3] = aten::add.Tensor(%x, %y)",
            "aten::add.Tensor: the graph declares result 0 with dtype i64, but the operator returns f32",
        ),
        (
            "%a: f32[n] = aten::add.Tensor(%x, %y)",
            "aten::add.Tensor: the graph declares result 0 with rank 1, but the operator returns 2",
        ),
        // behind an operator that is not known, and behind sizes that depend on data
        (
            "%a: f32[n] = mylib::f(%x)\n  %b: i64[n] = aten::relu(%a)",
            "5:3: aten::relu: the graph declares result 0 with dtype i64, but the operator returns f32",
        ),
        (
            "%a: i64[u0, 2] = aten::nonzero(%x)\n  bind u0 = size(%a, 0)\n  %b: f32[u0, 2] = \
                aten::neg(%a)",
            "6:3: aten::neg: the graph declares result 0 with dtype f32, but the operator returns i64",
        ),
        ("%a: f32[] = mylib::f(%k)\n  %b: f32[k] = aten::matmul(%x, %a)", "5:3: aten::matmul: "),
    ] {
        let error = errors_of(statement);
        assert!(error.starts_with("error: <stdin>:"), "{statement}: {error}");
        assert!(error.contains(expected), "{statement}: {error}");
    }
    for statement in [
        "%a: f32[n, 3] = aten::add.Tensor(%x, %y)",
        "%a: f32[m, 3] = aten::add.Tensor(%x, %y)",
        // equal if m == n
        "%a: f32[m, 3] = aten::relu(%x)",
        // right if n == 1
        "%a: f32[3] = aten::squeeze(%x)",
        "%a: f32[k] = aten::ones([k])",
    ] {
        assert_eq!(errors_of(statement), "", "{statement}");
    }
}

#[test]
fn output_ends_with_a_newline() {
    let graph = maquette(&["demo", "--graph-only"]);
    let dot = ["graph", "--dot", "-"];
    for args in [&["graph", "-"][..], &dot, &["decompose", "-"], &["functionalize", "-"]] {
        let out = maquette_reading(args, text(&graph.stdout));
        let shown = text(&out.stdout);
        assert!(shown.ends_with("}\n") && !shown.ends_with("\n\n"), "{args:?}: {shown}");
        assert!(!shown.contains('\u{1b}'), "no escape codes in a pipe");
    }
    assert!(text(&graph.stdout).ends_with("}\n"));
}

/// Every way to make the command print. The files are written once, as tests run beside each other.
static PRINTING: LazyLock<Vec<Vec<String>>> = LazyLock::new(|| {
    const RECORDED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/aten");
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (graph, names) = (folder.join("printed.txt"), folder.join("printed-ops.txt"));
    let program = "graph g(%x: f32[4]) -> (f32[4])
{
  %y: f32[4] = aten::mul_.Tensor(%x, 10.0)
  return %y
}";
    std::fs::write(&graph, program).unwrap();
    std::fs::write(&names, "relu.default").unwrap();
    let (graph, names) = (graph.to_str().unwrap(), names.to_str().unwrap());
    [
        &["--help"][..],
        &["--version"],
        &["conform", "--help"],
        &["demo"],
        &["demo", "--graph-only"],
        &["graph", graph],
        &["graph", graph, "--dot"],
        &["decompose", graph],
        &["functionalize", graph],
        &["functionalize", graph, "--explain"],
        &["bench", graph],
        &["explain", graph],
        &["devices"],
        &["ops"],
        &["ops", "aten::add"],
        &["conform", RECORDED, "--ops", names],
        &["completions", "bash"],
        &["completions", "zsh"],
    ]
    .map(|args| args.iter().map(|&arg| arg.to_owned()).collect())
    .into()
});

#[test]
fn a_reader_that_went_away_is_no_error() {
    for args in &*PRINTING {
        let mut child = Command::new(env!("CARGO_BIN_EXE_maquette"))
            .args(args)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let out = child.wait_with_output().unwrap();
        assert!(out.status.success() && out.stderr.is_empty(), "{args:?}: {}", text(&out.stderr));
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_device_is_an_error_and_no_panic() {
    for args in &*PRINTING {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let out =
            Command::new(env!("CARGO_BIN_EXE_maquette")).args(args).stdout(full).output().unwrap();
        let told = text(&out.stderr);
        assert_eq!(out.status.code(), Some(1), "{args:?}: {told}");
        assert!(told.starts_with("error: cannot write to standard output: "), "{args:?}: {told}");
    }
}

#[test]
fn shells_complete_the_subcommands() {
    for shell in ["bash", "zsh", "fish"] {
        let out = maquette(&["completions", shell]);
        assert!(out.status.success() && text(&out.stdout).contains("functionalize"), "{shell}");
    }
}
