//! The oracle: random programs agree in every mode, programs that once failed do not, and modes
//! that are wrong are found out.

#[path = "oracle/answers.rs"]
mod answers;
#[path = "oracle/wrong_modes.rs"]
mod wrong_modes;

use maquette_fuzz::oracle::{
    BROKEN_PROMISE, Eager, Family, Fuzzer, HANDLED_WRITE, Mode, STATE, Seeds, Subject, TestProgram,
    TextReport, UNKNOWN_VIEW, Verdict, WRITTEN_GRADIENT, WriteCount, check, generate::generate,
    gradient_modes, modes, register,
};
use maquette_interp::{Interpreter, check_calls};
use maquette_ir::DType;
use maquette_ir::graph::Graph;
use maquette_ops::library::Facts;
use maquette_ops::{FakeCtx, Result, Tensor, Value, call, custom_op};
use maquette_rewrite::{Level, Options, functionalize, plan};
use std::collections::BTreeSet;
use std::path::Path;

fn fuzzer(programs: u64) -> Fuzzer {
    let (modes, family) = (modes(), Family::Programs);
    Fuzzer { programs, seed: 1, statements: 12, modes, threads: 2, stats: true, family }
}

#[test]
fn random_programs_agree() {
    let report = fuzzer(1000).run(&|_| {});
    let failures: Vec<String> = report
        .failures
        .iter()
        .map(|f| {
            format!(
                "{}: {}\n{}",
                f.mode,
                f.what,
                f.program.as_ref().map(ToString::to_string).unwrap_or_default()
            )
        })
        .collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    let of_views: u64 =
        [UNKNOWN_VIEW, BROKEN_PROMISE].iter().map(|w| report.stats.refusals(w)).sum();
    let of_answers: u64 = [STATE, HANDLED_WRITE].iter().map(|w| report.stats.refusals(w)).sum();
    // one in forty is the bar for custom views, one in fifty for statements that traces refuse, and
    // one in a hundred for all others
    assert!(of_views * 40 <= report.programs, "{report}: {}", report.stats);
    assert!(of_answers * 50 <= report.programs, "{report}: {}", report.stats);
    let others = report.refused - of_views - of_answers;
    assert!(others * 100 <= report.programs, "{report}: {}", report.stats);
}

#[test]
fn gradients_of_random_programs_agree() {
    let (modes, family) = (gradient_modes(), Family::Gradients);
    let report = Fuzzer { modes, family, ..fuzzer(300) }.run(&|f| {
        eprintln!(
            "{}: {}\n{}",
            f.mode,
            f.what,
            f.program.as_ref().map(ToString::to_string).unwrap_or_default()
        );
    });
    assert!(report.failures.is_empty(), "{report}");
    // kinks, and writes to what derivatives read
    assert!(report.refused * 10 <= report.programs, "{report}: {}", report.stats);
}

#[test]
fn plans_copy_no_more_than_the_program_does() {
    // a run that copies more is a mismatch
    for (name, one_in) in [("planned-lifted", 500), ("planned", 500), ("planned-symbolic", 20)] {
        let modes = modes().into_iter().filter(|m| m.name() == name).collect();
        let report = Fuzzer { modes, ..fuzzer(1000) }.run(&|_| {});
        assert!(report.failures.is_empty(), "{report}");
        let copies = report.copies;
        // plans of what is only lifted copy what the program copies
        let saves = copies.planned.copied < copies.eager.copied || name == "planned-lifted";
        assert!(copies.eager.copied > 25_000 && saves, "{name}: {copies}");
        assert!(copies.original * one_in < copies.runs, "{name}: {copies}");
        assert!(copies.original > 0 || name != "planned-symbolic", "{name}: {copies}");
    }
}

#[test]
fn mutated_inputs_are_known_statically() {
    register().unwrap();
    let mut known = 0;
    for index in 0..600 {
        let Ok(program) = generate(5, index, 12).map(|made| made.program) else { continue };
        // sizes that are symbols are guessed, and the types of these programs do not say where
        // inputs begin in memory that they share
        if program.graph.symbols().symbols().next().is_some() || !program.shared().is_empty() {
            continue;
        }
        // eager execution makes other calls than the graph has
        let is_statement = |name: &str| ["oracle::asks", "oracle::attempts_"].contains(&name);
        if program.graph.nodes().any(|n| is_statement(program.graph.op_name(n))) {
            continue;
        }
        let given = program.run_inputs(&program.sizes[0]).unwrap();
        let Ok(ran) = Eager
            .prepare(&Subject::new(&program), &given.inputs)
            .and_then(|run| run(&given.inputs))
        else {
            continue;
        };
        let options = Options::new().level(Level::LiftOnly);
        let Ok(f) = functionalize(&program.graph, &Facts, &options) else { continue };
        let WriteCount::Counted(ran) = ran.written else { panic!("eager programs are counted") };
        assert_eq!(f.eager.estimate, ran.traffic, "{program}");
        known += 1;
    }
    assert!(known > 100, "{known}");
}

#[test]
fn assertions_keep_their_places_among_effects() {
    register().unwrap();
    let program: TestProgram = "#! memory 0: f32 = 1.0 2.0
#! input in0: memory 0 offset 0
graph program(%in0: f32[4]) -> ()
  where u0 in [0, oo)
{
  %hits: i64[u0] = oracle::hits(%in0)
  bind u0 = size(%hits, 0)
  oracle::log_(%in0, 1) effect
  assert u0 <= 2 \"at most two\"
  oracle::log(%in0, 2) effect
  return ()
}"
    .parse()
    .unwrap();
    for level in [Level::LiftOnly, Level::Exact] {
        let text = functionalize(&program.graph, &Facts, &Options::new().level(level))
            .unwrap()
            .graph
            .to_string();
        let place = |what: &str| text.find(what).unwrap_or_else(|| panic!("{what}: {text}"));
        assert!(
            place("oracle::log_") < place("assert") && place("assert") < place("oracle::log(%"),
            "{text}"
        );
    }
}

#[test]
fn a_plan_of_a_program_that_always_fails_is_one() {
    register().unwrap();
    let program: TestProgram = "#! memory 0: f32 = 1.0 2.0
#! input in0: memory 0 offset 0
graph program(%in0: f32[8]) -> (f32[8])
  where u0 in [0, 8]
{
  %hits: i64[u0] = oracle::hits(%in0)
  bind u0 = size(%hits, 0)
  assert u0 <= 4 \"at most four\"
  %narrow: f32[u0 - 5] = aten::narrow(%in0, 0, 0, u0 - 5)
  %zero_: f32[u0 - 5] = aten::zero_(%narrow)
  return %in0
}"
    .parse()
    .unwrap();
    let f = functionalize(&program.graph, &Facts, &Options::new().level(Level::LiftOnly)).unwrap();
    let plan = plan(&f, &Facts).unwrap();
    let x = Value::from(&Tensor::ones([8], DType::F32));
    let failed = Interpreter::new((&f, &plan)).run(&[x]).unwrap_err();
    assert!(failed.to_string().contains("at most four"), "{failed}");
}

#[test]
fn the_programs_of_a_seed_are_always_the_same() {
    let text = |index| {
        generate(9, index, 12)
            .map(|made| made.program.to_string())
            .unwrap_or_else(|e| e.to_string())
    };
    for index in 0..20 {
        let first = text(index);
        assert_eq!(first, text(index));
        assert_eq!(
            first.parse::<TestProgram>().map(|p| p.to_string()).unwrap_or_else(|e| e.to_string()),
            first
        );
    }
    assert_eq!(
        fuzzer(20).run(&|_| {}).stats,
        Fuzzer { threads: 1, ..fuzzer(20) }.run(&|_| {}).stats,
        "whatever the number of threads"
    );
}

#[test]
fn programs_that_once_failed_agree() {
    register().unwrap();
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/programs");
    let files: BTreeSet<_> =
        std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(files.len() > 15);
    for path in files {
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let program: TestProgram = std::fs::read_to_string(&path)
            .unwrap()
            .parse()
            .unwrap_or_else(|e| panic!("{name}: {e}"));
        let expected = match name.as_str() {
            n if n.starts_with("write_to_an_expan") || n.starts_with("mutated_arguments_that") => {
                Verdict::Refused("refused by eager too")
            }
            n if n.starts_with("as_strided_beyond") || n == "place_of_an_empty_diagonal" => {
                Verdict::Refused("a view of elements that its tensor does not have")
            }
            n if n.starts_with("windows_that_are_written") => {
                Verdict::Refused("a write to an input of symbolic sizes whose elements overlap")
            }
            "arguments_that_overlap_under_an_assumption_that_fails"
            | "consequences_of_a_failed_assumption"
            | "a_size_from_data_that_has_to_be_1" => {
                Verdict::Refused("an assumption about a data-dependent size that does not hold")
            }
            "only_a_call_that_nothing_uses_fails" => {
                Verdict::Refused("only a call that nothing uses fails")
            }
            "a_slope_below_the_rounding_of_a_value" => {
                Verdict::Refused("a value is too large, or not finite")
            }
            "a_refused_write_leaves_the_storage" => Verdict::Refused(HANDLED_WRITE),
            "where_an_input_begins_decides" | "writes_of_inputs_that_share_memory" => {
                Verdict::Refused(STATE)
            }
            "a_derivative_that_writes_a_shared_gradient" => Verdict::Refused(WRITTEN_GRADIENT),
            "chunks_of_an_empty_dimension" => {
                Verdict::Refused("a decision on a data-dependent size")
            }
            _ => Verdict::Agree,
        };
        let modes = match program.family {
            Family::Programs => modes(),
            Family::Gradients => gradient_modes(),
        };
        assert_eq!(check(&program, &modes).unwrap(), expected, "{name}");
        let again: TestProgram = program.to_string().parse().unwrap();
        assert_eq!(again, program, "{name}: a program's text is the program");
    }
}

/// The graph texts of the repository's tests.
fn seeds() -> Seeds {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let folders = [
        "tests/programs",
        "tests/snapshots",
        "crates/rewrite/filetests",
        "crates/driver/tests/snapshots",
    ];
    Seeds::read(&folders.map(|folder| root.join(folder))).unwrap()
}

#[test]
fn mutated_graph_texts_run_as_they_say_or_are_errors() {
    register().unwrap();
    let seeds = seeds();
    assert!(seeds.len() > 150, "{}", seeds.len());
    let mut report = TextReport::default();
    for index in 0..800 {
        seeds.check(1, index, &mut report, &|_| {});
    }
    let failures: Vec<String> =
        report.failures.iter().map(|f| format!("{}: {}\n{}", f.index, f.what, f.text)).collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    // mutated texts come through every stage
    assert!(report.ran * 20 > report.texts && report.checked < report.verified, "{report}");
}

#[test]
fn every_graph_of_the_tests_has_calls_that_the_operators_accept() {
    register().unwrap();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let filetests =
        ["functionalize", "rules", "bufferize"].map(|f| format!("crates/rewrite/filetests/{f}"));
    let others = ["tests/programs", "tests/snapshots", "crates/driver/tests/snapshots"];
    let folders = filetests.iter().map(String::as_str).chain(others);
    let seeds = Seeds::read(&folders.map(|f| root.join(f)).collect::<Vec<_>>()).unwrap();
    let refused: Vec<String> = seeds
        .texts()
        .filter_map(|text| {
            let graph: Graph = text.parse().unwrap();
            let refused = check_calls(&graph).err()?;
            // of `write_that_no_variant_can_make.mqt`, which eager execution refuses as well
            let intended = refused.to_string().contains("cannot be written into a tensor of dtype");
            (graph.verify().is_ok() && !intended).then(|| format!("{refused}\n{text}"))
        })
        .collect();
    assert!(refused.is_empty(), "{}", refused.join("\n"));
}

#[test]
fn bad_programs_are_errors() {
    let graph = "graph p(%x: f32[s0]) -> ()\n  where s0 in [0, oo)\n{\n  return ()\n}\n";
    for (lines, expected) in [
        ("", "a program with symbols needs a line `#! sizes s0 = 3, …`"),
        ("#! sizes s0\n", "line 1: expected `s0 = 3`, found `sizes s0`"),
        ("#! memory 1: f32 = 1.0\n", "line 1: expected memory 0, found `memory 1: f32 = 1.0`"),
        ("#! memory 0: f15 = 1.0\n", "line 1: expected a dtype, found `memory 0: f15 = 1.0`"),
        ("#! memory 0: i64 = 1.5\n", "line 1: expected values of i64, found `memory 0: i64 = 1.5`"),
        ("#! input x: memory 4 offset 0\n#! sizes s0 = 1\n", "input x needs a memory of dtype f32"),
        (
            "#! moreover\n",
            "line 1: expected `memory`, `input`, `sizes` or `gradients`, found `moreover`",
        ),
    ] {
        let e = format!("{lines}{graph}").parse::<TestProgram>().unwrap_err();
        assert_eq!(e.kind().to_string(), expected);
    }
}

/// Between a trace and its run, an operator becomes one that mutates its argument.
#[test]
fn an_operator_that_is_redefined_after_the_trace_is_refused_by_every_mode() {
    let define = |schema: &str| custom_op("redefined::f").schema(schema).replace();
    let pure = || {
        let kernel = |x: &Tensor| -> Result<Tensor> { Ok(x.clone_tensor()) };
        let op = define("(Tensor x) -> Tensor").kernel(kernel).register().unwrap();
        let fake =
            |_: &FakeCtx, x: &Tensor| -> Result<Tensor> { Ok(x.new_empty(x.sizes(), x.dtype())) };
        op.register_fake(fake).unwrap();
    };
    let mutating = || {
        let kernel = |x: &mut Tensor| -> Result<Tensor> { Ok(x.add_(1.0).clone_tensor()) };
        define("(Tensor(a!) x) -> Tensor").kernel(kernel).register().unwrap();
    };
    let refused = |e: String, what: &str| {
        let shows = |schema: &str| e.contains(&format!("`redefined::f{schema}`"));
        assert!(shows("(Tensor x) -> Tensor") && shows("(Tensor(a!) x) -> Tensor"), "{what}: {e}");
    };
    let text = "graph program(%x: f32[2]) -> (f32[2])\n{\n  \
        %y: f32[2] = redefined::f(%x)\n  return %y\n}\n";
    let program: TestProgram = text.parse().unwrap();
    let inputs = || [Tensor::from([1.0f32, 2.0])];
    for mode in modes() {
        pure();
        let prepared = mode.prepare(&Subject::new(&program), &inputs()).unwrap();
        prepared(&inputs()).unwrap();
        mutating();
        match (mode.name(), prepared(&inputs())) {
            // these call operators by name, as the program does: nothing was decided before
            ("eager" | "text", found) => assert!(found.is_ok()),
            (name, found) => refused(found.unwrap_err().to_string(), name),
        }
        pure();
        prepared(&inputs()).unwrap();
    }
    let model = |x: Tensor| -> Result<Tensor> {
        call("redefined::f", maquette_ops::args![&x])?[0].tensor().cloned()
    };
    let traced = maquette_trace::trace(model, inputs()[0].clone()).unwrap();
    let functional = functionalize(traced.graph(), &Facts, &Options::new()).unwrap();
    mutating();
    let e = functionalize(traced.graph(), &Facts, &Options::new()).unwrap_err();
    refused(e.to_string(), "functionalize");
    refused(plan(&functional, &Facts).unwrap_err().to_string(), "plan");
}

#[test]
fn every_feature_occurs() {
    let report = Fuzzer { modes: Vec::new(), ..fuzzer(6000) }.run(&|_| {});
    assert_eq!(report.stats.missing(), Vec::<&str>::new());
}
