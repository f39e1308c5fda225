//! Custom operators that return views: every run compares the view that the kernel returns with the
//! promise of the fake kernel.

use maquette_driver::{ExportOptions, compile};
use maquette_interp::Interpreter;
use maquette_invoke::SourceInfo;
use maquette_ir::buffer_plan::BufferPlan;
use maquette_ir::program_form::ProgramForm;
use maquette_ir::{DType, Device};
use maquette_ops::library::Facts;
use maquette_ops::module::{Module, Slot};
use maquette_ops::{FakeCtx, Op, Result, Tensor, Value, args, custom_op};
use maquette_pipeline::{PassOptions, compile_planned};
use maquette_rewrite::{ExecutionMode, FunctionalGraph, Options, functionalize, plan};
use maquette_runtime::Executable;
use maquette_trace::TraceOptions;

#[path = "common/rows.rs"]
mod rows;
use rows::rows;

type Visitor<'a> = &'a mut dyn FnMut(&str, Slot, &Tensor);
type Function = Box<dyn Fn(Tensor) -> Result<Tensor>>;

struct Stateless(Function);

impl Module for Stateless {
    type In = Tensor;
    type Out = Result<Tensor>;

    fn forward(&self, x: Tensor) -> Result<Tensor> {
        (self.0)(x)
    }

    fn visit(&self, _: Visitor<'_>) {}
}

fn call(op: Op, x: &Tensor) -> Result<Tensor> {
    Ok(op.call(args![x])?[0].tensor()?.clone())
}

fn input() -> Tensor {
    Tensor::from([1.0f32, 2.0, 3.0, 4.0, 5.0])
}

/// The elements of a result, and of the input after a write to the result.
fn observed(run: impl FnOnce(Tensor) -> Result<Tensor>) -> Result<(Vec<f32>, Vec<f32>)> {
    let x = input();
    let y = run(x.clone())?;
    let before = y.to_vec()?;
    y.add_(100.0).ok()?;
    Ok((before, x.to_vec()?))
}

/// The elements of a view, and those of the input after a write to the view.
type Elements = (Vec<f32>, Vec<f32>);

/// A planned program as the last pass leaves it.
fn passes(functional: FunctionalGraph, plan: BufferPlan) -> ProgramForm {
    compile_planned(functional, plan, &PassOptions::new()).unwrap().program
}

/// What each way to run a program returns.
fn all(f: impl Fn() -> Function) -> Vec<(&'static str, Result<Elements>)> {
    let traced = TraceOptions::new().trace(f(), input()).unwrap();
    let functional = functionalize(traced.graph(), &Facts, &Options::new()).unwrap();
    let plan = plan(&functional, &Facts).unwrap();
    let interpreted = |mode: ExecutionMode<'_>| {
        observed(|x| {
            let run = Interpreter::new(mode).run(&[Value::from(&x)])?;
            Ok(run.results[0].tensor()?.clone())
        })
    };
    let executed = |program: ProgramForm| {
        observed(|x| {
            let executable = Executable::new(program)?;
            let results = executable.run(&[Value::from(&x)], &SourceInfo::of_caller())?;
            Ok(results[0].tensor()?.clone())
        })
    };
    let program = ExportOptions::new().export(&Stateless(f()), input()).unwrap();
    let compiled = program.compile(Device::Cpu).unwrap();
    let function = compile(f());
    vec![
        ("compiled", observed(|x| function.call(x))),
        ("compiled again", observed(|x| function.call(x))),
        ("exported", observed(|x| program.call(x))),
        ("a compiled program", observed(|x| compiled.call(x))),
        ("original", interpreted(ExecutionMode::from(traced.graph()))),
        ("functional", interpreted(ExecutionMode::from(&functional))),
        ("planned", interpreted(ExecutionMode::from((&functional, &plan)))),
        ("an unplanned executable", executed(ExecutionMode::from(&functional).into())),
        ("executable", executed(passes(functional, plan))),
    ]
}

/// Programs that read, write and return what `op` returns.
fn programs(op: Op) -> Vec<Box<dyn Fn() -> Function>> {
    vec![
        Box::new(move || Box::new(move |x| Ok(call(op, &x)? * 2.0))),
        Box::new(move || {
            Box::new(move |x| {
                call(op, &x)?.mul_(10.0);
                Ok(x + 1.0)
            })
        }),
        Box::new(move || {
            Box::new(move |x| {
                x.mul_(3.0);
                let y = call(op, &x)?;
                x.add_(1.0);
                Ok(y)
            })
        }),
        Box::new(move || {
            Box::new(move |x| {
                let y = x.slice(0, 1..);
                call(op, &y)?.neg_();
                Ok(y)
            })
        }),
    ]
}

#[test]
fn kept_promises() {
    for program in programs(rows("promised::kept", 1..3, 1..3)) {
        let expected = observed(|x| program()(x)).unwrap();
        for (form, found) in all(&program) {
            assert_eq!(found.unwrap(), expected, "{form}");
        }
    }
}

#[test]
fn broken_promises() {
    for program in programs(rows("promised::broken", 2..4, 0..2)) {
        observed(|x| program()(x)).unwrap();
        for (form, found) in all(&program) {
            let e = found.expect_err(form).to_string();
            let has_text =
                ["promised::broken", "offset", "promised_views.rs:"].map(|s| e.contains(s));
            assert_eq!(has_text, [true; 3], "{form}: {e}");
        }
    }
}

/// A promise that is broken for a result which nothing uses is broken.
#[test]
fn a_broken_promise_of_an_unused_view() {
    let op = rows("promised::unused", 2..4, 0..2);
    let f = move || -> Function {
        Box::new(move |x| {
            call(op, &x)?;
            Ok(x + 1.0)
        })
    };
    for (form, found) in all(f) {
        assert!(found.is_err(), "{form}");
    }
}

/// A view of elements around its operand is compared in memory, as it was traced.
#[test]
fn a_view_that_exceeds_its_operand() {
    let whole = |x: &Tensor| -> Result<Tensor> {
        Ok(x.as_strided([5i64], [1i64], Some(0.into())).ok()?.clone())
    };
    let op = custom_op("promised::whole")
        .schema("(Tensor(a) x) -> Tensor(a)")
        .kernel(whole)
        .register()
        .unwrap();
    op.register_fake(move |_: &FakeCtx, x: &Tensor| -> Result<Tensor> { whole(x) }).unwrap();
    let f = move |x: Tensor| -> Result<Tensor> {
        call(op, &x.slice(0, 2..4))?.mul_(10.0);
        Ok(x)
    };
    let expected = observed(f).unwrap();
    let function = compile(f);
    assert_eq!(observed(|x| function.call(x)).unwrap(), expected);
    let e = ExportOptions::new().export(&Stateless(Box::new(f)), input()).unwrap_err().to_string();
    assert!(e.contains("promised::whole") && e.contains("may exceed the tensor"), "{e}");
}

/// The rows of a matrix of any size are proved to lie in it, so that the program has values alone.
#[test]
fn rows_of_any_matrix() {
    let op = rows("promised::of_any_matrix", 1..i64::MAX, 1..i64::MAX);
    let f = move |x: Tensor| -> Result<Tensor> {
        let y = x * 2.0;
        call(op, &y)?.mul_(10.0);
        Ok(y)
    };
    let x = Tensor::from([[1.0f32, 2.0], [3.0, 4.0], [5.0, 6.0]]);
    let traced = TraceOptions::symbolic().trace(f, x.clone()).unwrap();
    let functional = functionalize(traced.graph(), &Facts, &Options::new()).unwrap();
    for input in [x, Tensor::ones([0i64, 0], DType::F32), Tensor::ones([1i64, 3], DType::F32)] {
        let run = Interpreter::new(ExecutionMode::from(&functional));
        let found = run.run(&[Value::from(&input)]).unwrap().results;
        let expected = f(input).unwrap().to_vec::<f32>().unwrap();
        assert_eq!(found[0].tensor().unwrap().to_vec::<f32>().unwrap(), expected);
    }
}

/// The view is of one tensor in a list, which only the kernel knows.
#[test]
fn a_view_of_one_of_several_tensors() {
    let op = custom_op("promised::last")
        .schema("(Tensor(a)[] xs) -> Tensor(a)")
        .kernel(|xs: &[Tensor]| -> Result<Tensor> { Ok(xs[xs.len() - 1].slice(0, 0..1)) })
        .register()
        .unwrap();
    op.register_fake(|_: &FakeCtx, xs: &[Tensor]| -> Result<Tensor> {
        Ok(xs[xs.len() - 1].slice(0, 0..1))
    })
    .unwrap();
    let f = move |x: Tensor| -> Result<Tensor> {
        let other = &x + 1.0;
        let view = op.call(args![vec![x.clone(), other.clone()]])?[0].tensor()?.clone();
        view.mul_(10.0);
        Ok(x + other)
    };
    let expected = observed(f).unwrap();
    let function = compile(f);
    assert_eq!(observed(|x| function.call(x)).unwrap(), expected);
}
