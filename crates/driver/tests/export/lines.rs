//! An error of a run names the program's source line in every mode, after any passes.

use super::*;
use maquette_interp::{ExecutionMode, Interpreter};
use maquette_ops::library::Facts;
use maquette_ops::{Error, FakeCtx, Op, Result, Value, args, custom_op};
use maquette_rewrite::{Level, Options, functionalize, plan};
use maquette_trace::TraceOptions;
use std::sync::LazyLock;

/// Fails for negative elements.
static ROOT: LazyLock<Op> = LazyLock::new(|| {
    let op = custom_op("lines::root")
        .arg_names(["x"])
        .kernel(|x: &Tensor| -> Result<Tensor> {
            match x.to_vec::<f32>()?.iter().all(|v| *v >= 0.0) {
                true => Ok(x.sqrt()),
                false => Err(Error::msg("the root of a negative number")),
            }
        })
        .register()
        .unwrap();
    op.register_fake(|_: &FakeCtx, x: &Tensor| -> Result<Tensor> {
        Ok(x.new_empty(x.sizes(), x.dtype()))
    })
    .unwrap();
    op
});

fn forward(x: Tensor) -> Result<Tensor> {
    let y = x.mul(&x);
    y.sub_(1.0);
    let is_long = x.size(0).ge(2).guard()?; // the guard
    if is_long {
        y.slice(0, 0..1).relu_();
    }
    y.nonzero().size(0).le(2).check("at most two are not zero")?; // the assertion
    let root = ROOT.call(args![&y])?[0].tensor()?.clone(); // the call
    x.add_(1.0);
    Ok(root)
}

struct Model;

impl Module for Model {
    type In = Tensor;
    type Out = Result<Tensor>;
    fn forward(&self, x: Tensor) -> Result<Tensor> {
        forward(x)
    }
    fn visit(&self, _: Visitor<'_>) {}
}

fn line(mark: &str) -> String {
    let at = include_str!("lines.rs").lines().position(|l| l.ends_with(&format!("// {mark}")));
    format!("lines.rs:{}", at.unwrap() + 1)
}

#[test]
fn every_mode_names_the_line_of_the_program() {
    let sample = || Tensor::from([1.0f32, 2.0, 3.0]);
    let t = TraceOptions::symbolic().names(["x"]).trace(forward, sample()).unwrap();
    let program = maquette_driver::ExportOptions::symbolic().export(&Model, sample()).unwrap();
    let forms: Vec<_> = [Level::LiftOnly, Level::Exact]
        .map(|level| functionalize(t.graph(), &Facts, &Options::new().level(level)).unwrap())
        .into_iter()
        .map(|f| (plan(&f, &Facts).unwrap(), f))
        .collect();
    let failing = [
        ("the guard", vec![1.0f32]),
        ("the assertion", vec![2.0, 3.0, 4.0]),
        ("the call", vec![0.0, 0.5, 1.0]),
    ];
    for (mark, x) in failing {
        let run = |mode: ExecutionMode<'_>| {
            Interpreter::new(mode).run(&[Value::from(Tensor::from(x.clone()))]).unwrap_err()
        };
        let mut errors = vec![
            t.run(Tensor::from(x.clone())).unwrap_err(),
            program.call(Tensor::from(x.clone())).unwrap_err(),
            run(t.graph().into()),
        ];
        for (plan, functional) in &forms {
            errors.push(run(functional.into()));
            errors.push(run((functional, plan).into()));
        }
        for e in errors {
            assert!(e.to_string().contains(&line(mark)), "{mark}: {e}");
        }
    }
    let locs: Vec<String> = program
        .guards()
        .iter()
        .chain(&program.assertions())
        .filter_map(|c| c.loc.map(|l| l.to_string()))
        .collect();
    assert!(locs[0].contains(&line("the guard")), "{locs:?}");
    assert!(locs.last().unwrap().contains(&line("the assertion")), "{locs:?}");
}
