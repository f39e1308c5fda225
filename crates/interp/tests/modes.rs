//! Every mode gives the same results, writes the same inputs and returns the same aliases.

#[path = "modes/results.rs"]
mod results;
#[path = "modes/sharing.rs"]
mod sharing;

use maquette_interp::{Execution, ExecutionMode, Interpreter, Traffic};
use maquette_ir::buffer_plan::BufferPlan;
use maquette_ir::graph::Graph;
use maquette_ops::library::Facts;
use maquette_ops::{ErrorKind, RunError, Tensor, Value};
use maquette_rewrite::{FunctionalGraph, Options, functionalize, plan};

/// Writes a part of its input, and returns another part of it and a new tensor.
fn program() -> Graph {
    "graph g(%x: f32[4]) -> (f32[2] offset 1, f32[4]) {
        %head: f32[2] = aten::slice.Tensor(%x, 0, 0, 2, 1)
        %written: f32[2] = aten::mul_.Scalar(%head, 10.0)
        %tail: f32[2] offset 1 = aten::slice.Tensor(%x, 0, 1, 3, 1)
        %sum: f32[4] = aten::add.Tensor(%x, %x)
        return %tail, %sum
    }"
    .parse()
    .unwrap()
}

fn values(t: &Tensor) -> Vec<f32> {
    t.to_vec().unwrap()
}

fn run<'a>(mode: impl Into<ExecutionMode<'a>>) -> Option<Traffic> {
    let x = Tensor::from([1.0f32, 2.0, 3.0, 4.0]);
    let Execution { results, traffic } = Interpreter::new(mode).run(&[Value::from(&x)]).unwrap();
    let [Value::Tensor(tail), Value::Tensor(sum)] = results.as_slice() else {
        panic!("{results:?}")
    };
    assert_eq!(values(&x), [10.0, 20.0, 3.0, 4.0]);
    assert_eq!((values(tail), values(sum)), (vec![20.0, 3.0], vec![20.0, 40.0, 6.0, 8.0]));
    assert!(tail.shares_storage(&x) && !sum.shares_storage(&x));
    traffic
}

fn graph(text: &str) -> Graph {
    text.parse().unwrap()
}

/// A graph, its functional form and its plan.
struct Forms {
    graph: Graph,
    functional: FunctionalGraph,
    plan: BufferPlan,
}

impl Forms {
    fn of(graph: Graph) -> Forms {
        let functional = functionalize(&graph, &Facts, &Options::new()).unwrap();
        let plan = plan(&functional, &Facts).unwrap();
        Forms { graph, functional, plan }
    }

    fn modes(&self) -> [ExecutionMode<'_>; 3] {
        [(&self.graph).into(), (&self.functional).into(), (&self.functional, &self.plan).into()]
    }
}

#[test]
fn all_modes_agree() {
    let graph = program();
    let functional = functionalize(&graph, &Facts, &Options::new()).unwrap();
    let plan = plan(&functional, &Facts).unwrap();
    assert_eq!(run(&graph), None);
    assert_eq!(run(&functional), None);
    assert_eq!(run((&functional, &plan)).map(|t| t.copied), Some(0));
    // an owned mode is lent
    let mode = ExecutionMode::from((&functional, &plan));
    assert!(run(&mode).is_some() && run(&mode).is_some());
}

#[test]
fn a_plan_of_another_graph_is_refused() {
    let graph = program();
    let functional = functionalize(&graph, &Facts, &Options::new()).unwrap();
    let other: Graph = "graph g(%x: f32[4]) -> (f32[4]) {
        %y: f32[4] = aten::relu(%x)
        return %y
    }"
    .parse()
    .unwrap();
    let other = functionalize(&other, &Facts, &Options::new()).unwrap();
    let plan = plan(&functional, &Facts).unwrap();
    let x = Value::from(Tensor::from([1.0f32, 2.0, 3.0, 4.0]));
    let e = Interpreter::new((&other, &plan)).run(&[x]).unwrap_err();
    assert!(e.to_string().contains("the plan belongs to another graph"), "{e}");
}

#[test]
fn inputs_are_checked_in_every_mode() {
    let graph = program();
    let functional = functionalize(&graph, &Facts, &Options::new()).unwrap();
    let plan = plan(&functional, &Facts).unwrap();
    let x = [Value::from(Tensor::from([1.0f32, 2.0]))];
    let modes: [ExecutionMode<'_>; 3] =
        [(&graph).into(), (&functional).into(), (&functional, &plan).into()];
    for mode in &modes {
        let e = Interpreter::new(mode).run(&x).unwrap_err();
        assert!(matches!(e.kind(), ErrorKind::Run(RunError::Input { .. })), "{e}");
    }
}
