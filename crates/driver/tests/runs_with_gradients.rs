//! A run of a graph records no derivatives and casts nothing: it is refused where the program would
//! do either.

mod common;

use common::{Over, arange, over};
use maquette_driver::{ExportOptions, compile};
use maquette_interp::Interpreter;
use maquette_invoke::SourceInfo;
use maquette_ir::graph::Graph;
use maquette_ir::{DType, Device};
use maquette_ops::autograd::{AutogradCtx, custom_vjp, enable_grad, no_grad};
use maquette_ops::library::Facts;
use maquette_ops::module::Slot;
use maquette_ops::{
    CompileError, Error, ErrorKind, Result, RunError, Tensor, Value, args, autocast, custom_op,
    without_autocast,
};
use maquette_pipeline::{Pass, PassOptions};
use maquette_rewrite::{ExecutionMode, FunctionalGraph, Level, Options, functionalize, plan};
use maquette_runtime::Executable;
use maquette_trace::{TraceOptions, trace};
use std::borrow::Cow;

type Program = fn(Tensor) -> Tensor;

fn straight_through(x: Tensor) -> Tensor {
    let forward = |_: &mut AutogradCtx, x: &[Tensor]| Ok(vec![x[0].round()]);
    let backward = |_: &AutogradCtx, grads: &[Tensor]| Ok(vec![Some(grads[0].clone())]);
    custom_vjp(&[x], forward, backward)
        .map_or_else(Tensor::poison, |outputs| outputs.into_iter().next().unwrap())
}

/// An operator whose derivative reads its operand.
fn saving(x: Tensor) -> Tensor {
    maquette_ops::call("runs_with_gradients::square", args![&x])
        .map_or_else(Tensor::poison, |outputs| outputs[0].tensor().unwrap().clone())
}

fn register() {
    let op = custom_op("runs_with_gradients::square")
        .schema("(Tensor x) -> Tensor")
        .kernel(|x: &Tensor| -> Result<Tensor> {
            let squares = x.to_vec::<f64>()?.into_iter().map(|v| v * v).collect();
            Ok(Tensor::from_vec(squares, x.sizes_i64()?))
        })
        .register();
    let Ok(op) = op else { return };
    op.register_fake(|_: &maquette_ops::FakeCtx, x: &Tensor| -> Result<Tensor> {
        Ok(x.new_empty(x.sizes(), x.dtype()))
    })
    .unwrap();
    op.register_autograd_with(
        |ctx, args, _| {
            ctx.save(args[0].tensor()?);
            Ok(())
        },
        |ctx, grads| Ok(vec![Some(&grads[0] * &(ctx.saved(0)? * 2.0))]),
    )
    .unwrap();
}

/// Programs whose gradient is not that of their graph, or whose graph has none.
const PROGRAMS: &[(&str, Program)] = &[
    ("no_grad", |x| &x + &no_grad(|| &x * 2.0)),
    ("detach", |x| &x + &x.detach()),
    ("difference", |x| (&x - &x.detach()) * 5.0 + &x),
    ("write", |x| {
        let y = &x * 1.0;
        y.detach().mul_(5.0);
        y
    }),
    ("custom_vjp", straight_through),
    ("input", |x| x.mul_(3.0).clone()),
    ("square", |x| &x * &x),
    ("sin", |x| x.sin()),
    ("saving", saving),
];

fn x() -> Tensor {
    Tensor::from([0.75f64, -2.0])
}

/// With a history: a leaf may not be written.
fn with_history() -> Tensor {
    x().requires_grad_() * 1.0
}

/// A way to run a program on an input.
type Run = Box<dyn Fn(Tensor) -> Result<Tensor>>;

fn first(results: &[Value]) -> Result<Tensor> {
    results[0].tensor().cloned()
}

/// Every executor of a program.
fn executors(f: Program) -> Vec<(&'static str, Run)> {
    let traced = TraceOptions::new().names(["x"]).trace(f, x()).unwrap();
    let text: Graph = traced.graph().to_string().parse().unwrap();
    let graph = traced.graph().clone();
    let functional = |level| functionalize(&graph, &Facts, &Options::new().level(level)).unwrap();
    let [lifted, exact] = [Level::LiftOnly, Level::Exact].map(functional);
    let buffers = plan(&exact, &Facts).unwrap();
    let passes = |last: Pass| {
        let options = PassOptions::new().decompose(false).until(last);
        maquette_pipeline::compile(&graph, &options).unwrap().program
    };
    let module = || over(Vec::new(), move |_, x| vec![f(x[0].clone())]);
    let program = || ExportOptions::new().names(["x"]).export(&module(), vec![x()]).unwrap();
    let compiled = program().compile(Device::Cpu).unwrap();
    let [into, program] = [program(), program()];
    let into = into.compile(Device::Cpu).unwrap();
    let original = |graph: &Graph| ExecutionMode::Original(Cow::Owned(graph.clone()));
    let values = |f: &FunctionalGraph| ExecutionMode::Functional(Cow::Owned(f.clone()));
    let planned = ExecutionMode::Buffered(Cow::Owned(exact.clone()), Cow::Owned(buffers));
    let interpret = |mode: ExecutionMode<'static>| -> Run {
        Box::new(move |x| first(&Interpreter::new(&mode).run(&[x.into()])?.results))
    };
    let execute = |executable: Result<Executable>| -> Run {
        let executable = executable.unwrap();
        Box::new(move |x| first(&executable.run(&[x.into()], &SourceInfo::of_caller())?))
    };
    vec![
        ("Traced::run", Box::new(move |x| traced.run(x))),
        ("text", interpret(original(&text))),
        ("original", interpret(original(&graph))),
        ("lifted", interpret(values(&lifted))),
        ("functional", interpret(values(&exact))),
        ("planned", interpret(planned)),
        ("executable", execute(Executable::new(passes(Pass::Fuse)))),
        ("unfused", execute(Executable::new(passes(Pass::SelectPlan)))),
        ("unplanned", execute(Executable::new(original(&graph)))),
        ("functional executable", execute(Executable::new(values(&exact)))),
        ("Program::call", Box::new(move |x| Ok(program.call(vec![x])?.remove(0)))),
        ("CompiledProgram::call", Box::new(move |x| Ok(compiled.call(vec![x])?.remove(0)))),
        (
            "CompiledProgram::call_into",
            Box::new(move |x| {
                let y = Tensor::zeros([2], DType::F64);
                into.call_into(vec![x], &vec![y.clone()])?;
                Ok(y)
            }),
        ),
        ("compile", Box::new(move |x| compile(f).call(x))),
    ]
}

fn values(t: &Tensor) -> Vec<f64> {
    t.to_vec().unwrap()
}

fn is_of_gradient(e: &Error) -> bool {
    match e.kind() {
        ErrorKind::Run(RunError::RequiresGrad { tensor }) => tensor.starts_with("input `"),
        ErrorKind::Compile(CompileError::RequiresGrad { .. }) => true,
        _ => false,
    }
}

#[test]
fn an_input_that_requires_a_gradient_is_refused_by_every_executor() {
    register();
    for (name, f) in PROGRAMS {
        let expected = no_grad(|| values(&f(x())));
        for (executor, run) in executors(*f) {
            let given = with_history();
            let e = run(given.clone()).err();
            let e = e.unwrap_or_else(|| panic!("{name}: {executor} runs"));
            assert!(is_of_gradient(&e), "{name}, {executor}: {e}");
            // refused before anything is written
            assert_eq!(values(&given.detach()), values(&x()), "{name}, {executor}");
            assert!(given.requires_grad(), "{name}, {executor}");
            let y = no_grad(|| run(with_history())).unwrap();
            assert_eq!(values(&y.detach()), expected, "{name}, {executor}");
            assert_eq!(values(&run(x()).unwrap()), expected, "{name}, {executor}");
        }
    }
}

#[test]
fn a_run_inside_autocast_is_refused_by_every_executor() {
    register();
    let (_, f) = PROGRAMS[6];
    for (executor, run) in executors(f) {
        let e = autocast(DType::BF16, || run(x())).err();
        let e = e.unwrap_or_else(|| panic!("{executor} runs"));
        let is_of_autocast = matches!(
            e.kind(),
            ErrorKind::Run(RunError::Autocast) | ErrorKind::Compile(CompileError::Autocast)
        );
        assert!(is_of_autocast, "{executor}: {e}");
        let y = autocast(DType::BF16, || without_autocast(|| run(x()))).unwrap();
        assert_eq!(values(&y), values(&f(x())), "{executor}");
    }
}

/// An error without its line.
fn text(e: &Error) -> String {
    e.kind().to_string()
}

#[test]
fn the_errors_name_the_tensor_and_the_remedy() {
    let traced = TraceOptions::new().names(["image"]).trace(|x: Tensor| x.relu(), x()).unwrap();
    insta::assert_snapshot!(text(&traced.run(with_history()).unwrap_err()), @"input `image` requires a gradient, and a run of a graph computes none: its results would not require one; run it in `no_grad`, or trace or compile the function with its gradient, `value_and_grad(f)`");
    insta::assert_snapshot!(text(&autocast(DType::BF16, || traced.run(x())).unwrap_err()), @"a graph is run inside `autocast`, and its operators compute in the precision of the trace; call `autocast` in the function that is traced, or run the graph in `without_autocast`");
    let w = x().requires_grad_();
    let v = w.clone();
    let captures = trace(move |x: Tensor| x * &v, x()).unwrap();
    insta::assert_snapshot!(text(&captures.run(x()).unwrap_err()), @"the captured tensor f64[2] (`c0` of the graph) requires a gradient, and a run of a graph computes none: its results would not require one; run it in `no_grad`, or trace or compile the function with its gradient, `value_and_grad(f)`");
    assert_eq!(values(&no_grad(|| captures.run(x())).unwrap()), [0.5625, 4.0]);
    let again = no_grad(|| enable_grad(|| captures.run(x())));
    assert!(again.is_err());
}

/// The tensors of a module that a trace takes as inputs.
#[test]
fn a_parameter_that_requires_a_gradient() {
    let w = arange(2).requires_grad_();
    let state = [("weight".to_owned(), w.clone())];
    let traced =
        TraceOptions::new().trace_with_state(|x: Tensor| &x * &w, &state, arange(2)).unwrap();
    insta::assert_snapshot!(text(&traced.run(arange(2)).unwrap_err()), @"input `weight` requires a gradient, and a run of a graph computes none: its results would not require one; run it in `no_grad`, or trace or compile the function with its gradient, `value_and_grad(f)`");
    assert_eq!(no_grad(|| traced.run(arange(2))).unwrap().to_vec::<f32>().unwrap(), [9.0, 4.0]);
    // an exported program has copies of its own, which require none
    let module: Over<_> =
        over(vec![("weight", Slot::Parameter, w)], |state, x| vec![&x[0] * &state[0]]);
    let program = ExportOptions::new().export(&module, vec![arange(2)]).unwrap();
    let y = program.call(vec![arange(2)]).unwrap().remove(0);
    assert_eq!((y.requires_grad(), y.to_vec::<f32>().unwrap()), (false, vec![9.0, 4.0]));
}
