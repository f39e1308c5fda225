//! Modes that are wrong on purpose: each is found out, and a program that finds it is made small.

use super::fuzzer;
use maquette_fuzz::oracle::{
    Fuzzer, Mode, PreparedProgram, Subject, TestProgram, Verdict, check, generate::generate, model,
    register,
};
use maquette_ops::internals::MetaInternals;
use maquette_ops::{Args, Op, Outputs, Result, Tensor, Value, call};

/// Makes the calls of a program in a way of its own; what it is given besides is for the end of the
/// program.
type Wrong = fn(Op, Args, &mut Vec<(Op, Args)>) -> Result<Outputs>;

struct Broken(&'static str, Wrong);

impl Mode for Broken {
    fn name(&self) -> &'static str {
        self.0
    }

    fn prepare(&self, program: &Subject<'_>, _sample: &[Tensor]) -> Result<PreparedProgram> {
        let (graph, wrong) = (program.graph.clone(), self.1);
        Ok(Box::new(move |inputs| {
            let mut later = Vec::new();
            let outputs =
                model::run(&graph, inputs, &mut |_, op, args| wrong(op, args, &mut later))?;
            later.into_iter().try_for_each(|(op, args)| op.call(args).map(drop))?;
            Ok(outputs.into())
        }))
    }
}

fn copies(v: &Value) -> Result<Value> {
    v.map_tensors(&mut |t| Ok(t.clone_tensor()))
}

fn is_view(op: Op) -> bool {
    op.lowering().is_some_and(|l| l == "view")
}

const BROKEN: &[Broken] = &[
    Broken("drops a write", |op, args, _| match op.name() {
        "aten::fill_.Scalar" => Ok(args.into_iter().take(1).collect()),
        _ => op.call(args),
    }),
    Broken("copies where it should alias", |op, args, _| {
        let outputs = op.call(args)?;
        if is_view(op) { outputs.iter().map(copies).collect() } else { Ok(outputs) }
    }),
    Broken("aliases where it should copy", |op, args, _| match op.name() {
        "aten::clone" => Ok(args.into_iter().take(1).collect()),
        _ => op.call(args),
    }),
    Broken("puts an effect off", |op, args, later| match op.name() {
        "oracle::log" => {
            later.push((op, args));
            Ok(Outputs::new())
        }
        _ => op.call(args),
    }),
    Broken("does an effect twice", |op, args, _| {
        if op.name() == "oracle::tell" {
            op.call(args.clone())?;
        }
        op.call(args)
    }),
    Broken("loses -0.0", |op, args, _| {
        let outputs = op.call(args)?;
        let plus = |v: &Value| {
            v.map_tensors(&mut |t| {
                if t.dtype() == maquette_ir::DType::F32 {
                    (t + 0.0).ok().cloned()
                } else {
                    Ok(t.clone())
                }
            })
        };
        if op.lowering().is_some_and(|l| l == "pointwise") {
            outputs.iter().map(plus).collect()
        } else {
            Ok(outputs)
        }
    }),
    Broken("returns what it mutated as it was", |op, args, _| {
        let outputs = op.call(args)?;
        if op.is_mutable() && op.is_builtin() {
            outputs.iter().map(copies).collect()
        } else {
            Ok(outputs)
        }
    }),
    Broken("reads after it has written", |op, args, _| {
        if let ("oracle::scan_", [Value::Tensor(prev), Value::Tensor(out)]) =
            (op.name(), args.as_slice())
            && prev.sizes_i64()? == out.sizes_i64()?
        {
            let rows = out.size(0).as_i64().unwrap_or(0);
            for i in 0..rows {
                op.call(maquette_ops::args![prev.narrow(0, i, 1), out.narrow(0, i, 1)])?;
            }
            return Ok(Outputs::new());
        }
        op.call(args)
    }),
    Broken("writes more than the view", |op, args, _| {
        if let ("aten::zero_", Some(Value::Tensor(t))) = (op.name(), args.first())
            && let Some((end, width)) =
                t.meta().concrete().and_then(|c| Some((c.span()?.1, c.width)))
        {
            let beyond = call("aten::as_strided", maquette_ops::args![t, [1], [1], end / width]);
            if let Ok(beyond) = beyond {
                op.call(beyond.into_iter().collect())?;
            }
        }
        op.call(args)
    }),
    Broken("draws random numbers twice", |op, args, _| {
        if op.is_random() && !op.is_mutable() {
            op.call(args.clone())?;
        }
        op.call(args)
    }),
    Broken("gives strides of its own", |op, args, _| {
        let outputs = op.call(args)?;
        let plain = |v: &Value| v.map_tensors(&mut |t| t.contiguous().ok().cloned());
        if op.lowering().is_some_and(|l| l == "pointwise") {
            outputs.iter().map(plain).collect()
        } else {
            Ok(outputs)
        }
    }),
    Broken("panics", |op, args, _| match op.name() {
        "aten::sort" => panic!("sorting is hard"),
        _ => op.call(args),
    }),
];

/// None may take more programs than this to be found out; most take fewer than fifty.
const ENOUGH: u64 = 600;

#[test]
fn wrong_modes_are_detected() {
    for broken in BROKEN {
        let found = (0..ENOUGH).find(|&index| {
            let program = generate(1, index, 12).unwrap().program;
            matches!(check(&program, &[broken]).unwrap(), Verdict::Mismatch { .. })
        });
        assert!(found.is_some(), "the mode `{}` was not detected in {ENOUGH} programs", broken.0);
        eprintln!("{}: program {}", broken.0, found.unwrap_or_default());
    }
}

#[test]
fn a_mode_that_runs_programs_that_eager_refuses_is_a_mismatch() {
    let runs = Broken("runs what is refused", |op, args, _| match op.call(args.clone()) {
        Err(_) => Ok(args.into_iter().take(op.schema()?.returns.len()).collect()),
        outputs => outputs,
    });
    register().unwrap();
    let program: TestProgram =
        include_str!("../../../../tests/programs/write_to_an_expanded_tensor.txt").parse().unwrap();
    let Verdict::Mismatch { what, .. } = check(&program, &[&runs]).unwrap() else {
        panic!("the mode was not detected")
    };
    assert!(
        what.starts_with(
            "runs, but eager fails: aten::add_.Scalar: the mutated argument \
        `self` overlaps itself"
        ),
        "{what}"
    );
}

/// Questions and refused writes are rare: these modes are shown a program.
#[test]
fn modes_that_answer_or_write_wrongly_are_detected() {
    let answers = Broken("answers a question once and for all", |op, args, _| match op.name() {
        "oracle::asks" => call("aten::mul.Scalar", maquette_ops::args![args[0].tensor()?, 2]),
        _ => op.call(args),
    });
    let writes = Broken("keeps a part of a refused write", |op, args, _| {
        if let ("oracle::attempts_", Some(Value::Tensor(t))) = (op.name(), args.first()) {
            t.zero_().ok()?;
        }
        op.call(args)
    });
    register().unwrap();
    let programs = [
        include_str!("../../../../tests/programs/where_an_input_begins_decides.txt"),
        include_str!("../../../../tests/programs/a_refused_write_leaves_the_storage.txt"),
    ];
    for (mode, text) in [answers, writes].iter().zip(programs) {
        let verdict = check(&text.parse().unwrap(), &[mode]).unwrap();
        assert!(matches!(verdict, Verdict::Mismatch { .. }), "{}: {verdict:?}", mode.0);
    }
}

#[test]
fn a_failing_program_is_made_small() {
    static LOSES: Broken = Broken("drops a write", BROKEN[0].1);
    let report = Fuzzer { programs: 60, modes: vec![&LOSES], ..fuzzer(60) }.run(&|_| {});
    assert!(!report.failures.is_empty());
    for failure in report.failures {
        let program = failure.program.unwrap();
        let statements = program.graph.body().len();
        assert!(statements <= 2, "{statements} statements are left:\n{program}");
        let text = program.to_string();
        assert_eq!(text.parse::<TestProgram>().unwrap().to_string(), text);
    }
}
