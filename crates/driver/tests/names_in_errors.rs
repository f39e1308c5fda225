//! An error of a program names the operator that the program called, and the line of the call: not
//! the functional variant of an operator that mutates, nor a part of a composite.

use maquette_driver::{ExportOptions, compile};
use maquette_interp::Interpreter;
use maquette_invoke::SourceInfo;
use maquette_ops::func::value_and_grad;
use maquette_ops::library::Facts;
use maquette_ops::module::{Module, Slot};
use maquette_ops::{Error, Result, Tensor, Value};
use maquette_pipeline::{PassOptions, compile_planned, decompose};
use maquette_rewrite::{Options, functionalize, plan};
use maquette_runtime::Executable;
use maquette_trace::trace;

type Pair = (Tensor, Tensor);

/// A program of two tensors, for export.
struct Fails<F>(F);

impl<F: Fn(Pair) -> Result<Tensor>> Module for Fails<F> {
    type In = Pair;
    type Out = Result<Tensor>;

    fn forward(&self, inputs: Pair) -> Result<Tensor> {
        (self.0)(inputs)
    }

    fn visit(&self, _: &mut dyn FnMut(&str, Slot, &Tensor)) {}
}

/// The operator and the line.
#[track_caller]
fn named(title: &str, e: Error) -> (String, String) {
    let op = e.op().unwrap_or_else(|| panic!("{title}: no operator in {e}")).to_owned();
    (op, e.loc().unwrap().to_string())
}

/// Compares the errors of every executor with the eager one, and returns the operator that it
/// names. `fails` are inputs of the program with which it fails, `fits` others.
#[track_caller]
fn name(
    f: impl Fn(Pair) -> Result<Tensor> + Clone + 'static,
    fits: &dyn Fn() -> Pair,
    fails: &dyn Fn() -> Pair,
) -> String {
    let eager = named("eager", f(fails()).unwrap_err());
    let traced = trace(f.clone(), fits()).unwrap();
    let inputs = || [Value::from(fails().0), Value::from(fails().1)];
    let mut errors = vec![("traced", traced.run(fails()).unwrap_err())];
    for (title, graph) in [
        ("as called", traced.graph().clone()),
        ("decomposed", decompose(traced.graph()).unwrap().graph),
    ] {
        errors.push((title, Interpreter::new(&graph).run(&inputs()).unwrap_err()));
        let functional = functionalize(&graph, &Facts, &Options::new()).unwrap();
        errors.push((title, Interpreter::new(&functional).run(&inputs()).unwrap_err()));
        let plan = plan(&functional, &Facts).unwrap();
        errors.push((title, Interpreter::new((&functional, &plan)).run(&inputs()).unwrap_err()));
        let passes = PassOptions::new().decompose(false);
        let planned = compile_planned(functional, plan, &passes).unwrap().program;
        let executable = Executable::new(planned).unwrap();
        let run = || executable.run(&inputs(), &SourceInfo::of_caller()).unwrap_err();
        errors.extend([(title, run()), (title, run())]);
        let chosen = maquette_pipeline::compile(&graph, &passes).unwrap().program;
        let executable = Executable::new(chosen).unwrap();
        let e = executable.run(&inputs(), &SourceInfo::of_caller()).unwrap_err();
        errors.push((title, e));
    }
    let compiled = compile(f.clone());
    compiled.call(fits()).unwrap();
    errors.push(("compiled", compiled.call(fails()).unwrap_err()));
    let program = ExportOptions::new().export(&Fails(f), fits()).unwrap();
    errors.push(("exported", program.call(fails()).unwrap_err()));
    let program = program.compile(maquette_ir::Device::Cpu).unwrap();
    errors.push(("exported and compiled", program.call(fails()).unwrap_err()));
    for (title, e) in errors {
        let text = e.to_string();
        assert_eq!(named(title, e), eager, "{title}: {text}");
    }
    eager.0
}

fn ints<const N: usize>(values: [i64; N]) -> Tensor {
    Tensor::from(values)
}

#[test]
fn an_operator_that_mutates_keeps_its_name() {
    let index = |at: i64| (Tensor::from([1.0f32, 2.0]), ints([at]));
    let found =
        name(|(x, index)| x.scatter_value_(0, &index, 5.0).ok().cloned(), &|| index(1), &|| {
            index(7)
        });
    assert_eq!(found, "aten::scatter_.value");
    let found = name(
        |(x, index)| {
            let y = &x * 2.0;
            y.slice(0, 0..1).index_add_(0, &index, &x.slice(0, 0..1)).ok()?;
            Ok(y)
        },
        &|| index(0),
        &|| index(1),
    );
    assert_eq!(found, "aten::index_add_");
}

#[test]
fn operators_of_one_kernel_keep_their_names() {
    let by = |n: i64| (ints([7, 8]), ints([2, n]));
    let programs: [fn(Pair) -> Result<Tensor>; 4] = [
        |(x, y)| x.floor_divide_(&y).ok().cloned(),
        |(x, y)| Ok(((x + 1).floor_divide_(&y) + 1).ok()?.clone()),
        |(x, y)| Ok(((x * 3).slice(0, 1..2).floor_divide_(y.slice(0, 1..2)) + 1).ok()?.clone()),
        |(x, y)| Ok(((x * 3).floor_divide(&y) - 1).ok()?.clone()),
    ];
    let names = programs.map(|f| name(f, &|| by(1), &|| by(0)));
    let in_place = "aten::floor_divide_.Tensor";
    assert_eq!(names, [in_place, in_place, in_place, "aten::floor_divide"]);
}

#[test]
fn a_composite_gives_its_name_to_its_parts() {
    let matrix = |x: f64| (Tensor::from([[x, 0.0], [0.0, 1.0]]), ints([0]));
    let cholesky = |(x, _): Pair| x.linalg_cholesky(false).ok().cloned();
    assert_eq!(name(cholesky, &|| matrix(1.0), &|| matrix(-1.0)), "aten::linalg_cholesky");
    let labels = |label: i64| (Tensor::from([[0.5f32, 0.25]]), ints([label]));
    let loss = |(x, labels): Pair| {
        x.nll_loss(&labels, None, maquette_ops::Reduction::Mean, -100).ok().cloned()
    };
    assert_eq!(name(loss, &|| labels(1), &|| labels(5)), "aten::nll_loss");
    // Under gradients, a trace records the parts.
    let of = move |labels: Tensor| {
        move |x: Tensor| loss((x, labels.clone())).unwrap_or_else(Tensor::poison)
    };
    let gradient = move |(x, labels): Pair| Ok(value_and_grad(of(labels))(x)?.1);
    assert_eq!(name(gradient, &|| labels(1), &|| labels(5)), "aten::nll_loss");
}

#[test]
fn the_poison_of_an_input_names_the_call() {
    let f = compile(|(x, y): Pair| x.floor_divide_(&y).ok().cloned());
    f.call((ints([7, 8]), ints([1, 1]))).unwrap();
    let x = ints([7, 8]);
    f.call((x.clone(), ints([1, 0]))).unwrap_err();
    assert_eq!(x.ok().unwrap_err().op(), Some("aten::floor_divide_.Tensor"));
    x.fill_(1).ok().unwrap();
    assert_eq!(f.call((x, ints([1, 1]))).unwrap().to_vec::<i64>().unwrap(), [1, 1]);
}
