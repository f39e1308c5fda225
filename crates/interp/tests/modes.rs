//! Every mode gives the same results, writes the same inputs and returns the same aliases.

#[path = "modes/results.rs"]
mod results;
#[path = "modes/sharing.rs"]
mod sharing;

use maquette_aten as _;
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
fn a_plan_of_a_graph_that_differs_in_one_number_is_refused() {
    let made = |text: String| {
        let graph: Graph = text.parse().unwrap();
        functionalize(&graph, &Facts, &Options::new()).unwrap()
    };
    let of = |start: i64| {
        made(format!(
            "graph g(%x: f32[4]) -> (f32[2] offset {start}) {{
                %part: f32[2] offset {start} = aten::slice.Tensor(%x, 0, {start}, {}, 1)
                %written: f32[2] offset {start} = aten::mul_.Scalar(%part, 10.0)
                return %part
            }}",
            start + 2
        ))
    };
    let (first, second) = (of(0), of(2));
    let plan = plan(&first, &Facts).unwrap();
    let x = Tensor::from([1.0f32, 2.0, 3.0, 4.0]);
    let e = Interpreter::new((&second, &plan)).run(&[Value::from(&x)]).unwrap_err();
    assert!(e.to_string().contains("the plan belongs to another graph"), "{e}");
    assert_eq!(values(&x), [1.0, 2.0, 3.0, 4.0]);
    Interpreter::new((&first, &plan)).run(&[Value::from(&x)]).unwrap();
    // a number in symbols
    let of = |size: &str| {
        let text = format!(
            "graph g(%x: f32[n, {size}]) -> (f32[{size}])\n  where n in [1, oo)\n{{
                %part: f32[{size}] = aten::select.int(%x, 0, 0)\n  return %part\n}}"
        );
        made(text)
    };
    let (first, second) = (of("2 * n"), of("3 * n"));
    assert_ne!(first.graph.digest(), second.graph.digest());
    assert_eq!(first.graph.digest(), first.graph.clone().digest());
}

/// Two inputs, one of which is written.
fn two_inputs() -> Graph {
    "graph g(%x: f32[2], %y: f32[2]) -> (f32[2]) {
        %sum: f32[2] = aten::add_.Tensor(%x, %y)
        return %sum
    }"
    .parse()
    .unwrap()
}

/// The error in each mode.
fn errors(graph: &Graph, options: &Options, inputs: &[Value]) -> Vec<String> {
    let functional = functionalize(graph, &Facts, options).unwrap();
    let plan = plan(&functional, &Facts).unwrap();
    let modes: [ExecutionMode<'_>; 2] = [(&functional).into(), (&functional, &plan).into()];
    modes
        .iter()
        .map(|mode| Interpreter::new(mode).run(inputs).unwrap_err().kind().to_string())
        .collect()
}

#[test]
fn a_poisoned_input_gives_its_own_error() {
    let poisoned = Tensor::from([1.0f32, 2.0]) + Tensor::from([1.0f32, 2.0, 3.0]);
    let own = poisoned.ok().unwrap_err().kind().to_string();
    let y = Tensor::from([1.0f32, 2.0]);
    for inputs in [[&poisoned, &y], [&y, &poisoned]] {
        let inputs = inputs.map(Value::from);
        for e in errors(&two_inputs(), &Options::new(), &inputs) {
            assert_eq!(e, own);
        }
    }
}

#[test]
fn a_number_given_for_a_tensor_names_the_input() {
    let inputs = [Value::from(Tensor::from([1.0f32, 2.0])), Value::Float(2.0)];
    for e in errors(&two_inputs(), &Options::new(), &inputs) {
        assert_eq!(e, "input `y`: the kind must be a tensor, found the float 2.0");
    }
}

#[test]
fn a_number_given_for_a_mutated_tensor_names_the_input() {
    let inputs = [Value::Float(2.0), Value::from(Tensor::from([1.0f32, 2.0]))];
    for e in errors(&two_inputs(), &Options::new(), &inputs) {
        assert_eq!(e, "input `x`: the kind must be a tensor, found the float 2.0");
    }
}

#[test]
fn inputs_that_ought_to_share_memory_and_do_not_are_named() {
    let inputs = [[1.0f32, 2.0], [3.0, 4.0]].map(|x| Value::from(Tensor::from(x)));
    for e in errors(&two_inputs(), &Options::new().sharing([vec![0, 1]]), &inputs) {
        assert!(e.starts_with("inputs `x` and `y` do not share memory, but "), "{e}");
    }
}

#[test]
fn inputs_that_share_memory_at_another_distance_are_named() {
    let storage = Tensor::from([1.0f32, 2.0, 3.0, 4.0]);
    let inputs = [0, 2].map(|at| Value::from(storage.slice(0, at..at + 2)));
    for e in errors(&two_inputs(), &Options::new().sharing([vec![0, 1]]), &inputs) {
        assert!(e.starts_with("input `y` begins 2 elements behind input `x`, but "), "{e}");
    }
}

/// The memory that inputs share is found by one that has elements.
#[test]
fn an_empty_input_of_shared_memory_may_begin_anywhere() {
    let graph: Graph = "graph g(%x: f32[0], %y: f32[4] offset 2) -> (f32[4] offset 2) {
        %w: f32[4] offset 2 = aten::mul_.Scalar(%y, 2.0)
        return %y
    }"
    .parse()
    .unwrap();
    let functional = functionalize(&graph, &Facts, &Options::new().sharing([vec![0, 1]])).unwrap();
    let buffers = plan(&functional, &Facts).unwrap();
    let storage = || Tensor::from_vec((0..8).map(|i| i as f32).collect(), [8]);
    for buffered in [false, true] {
        let storage = storage();
        let inputs = [storage.slice(0, 5..5), storage.slice(0, 2..6)].map(Value::from);
        let run = match buffered {
            true => Interpreter::new((&functional, &buffers)).run(&inputs),
            false => Interpreter::new(&functional).run(&inputs),
        };
        run.unwrap();
        assert_eq!(values(&storage), [0.0, 1.0, 4.0, 6.0, 8.0, 10.0, 6.0, 7.0]);
    }
}

#[test]
fn a_wrong_rank_shows_both_types() {
    let x = [Value::from(Tensor::from([[1.0f32, 2.0]]))];
    let e = Interpreter::new(&program()).run(&x).unwrap_err();
    assert_eq!(e.kind().to_string(), "input `x`: the type must be f32[4], found f32[1, 2]");
}

#[test]
fn keywords_are_checked_in_a_run() {
    let graph: Graph = "graph g(%x: f32[2]) -> (f32[2]) {
        %y: f32[2] = aten::add.Tensor(%x, %x, alhpa=2)
        return %y
    }"
    .parse()
    .unwrap();
    let e = Interpreter::new(&graph).run(&[Value::from(Tensor::from([1.0f32, 2.0]))]).unwrap_err();
    assert!(e.to_string().contains("has no argument `alhpa` (similar: alpha)"), "{e}");
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

#[test]
fn a_tensor_without_elements_may_be_declared_with_any_layout() {
    let forms = Forms::of(graph(
        "graph g(%x: f32[n]) -> (f32[n - 2] strides [-n] offset -n, bool, f32[n - 2] strides [-n])
          where n in [0, oo)
        {
            %v: f32[n - 2] strides [-n] offset -n = aten::slice.Tensor(%x, 0, 2)
            %written: f32[n - 2] strides [-n] offset -n = aten::mul_.Scalar(%v, 10.0)
            %neg: f32[n - 2] strides [-n] = aten::neg(%v)
            %equal: bool = aten::equal(%neg, %v)
            return %v, %equal, %neg
        }",
    ));
    for mode in forms.modes() {
        let x = Value::from(Tensor::from([1.0f32, 2.0]));
        let results = Interpreter::new(mode).run(&[x]).unwrap().results;
        let [Value::Tensor(v), Value::Bool(true), Value::Tensor(neg)] = results.as_slice() else {
            panic!("{results:?}")
        };
        assert_eq!((values(v), values(neg)), (vec![], vec![]));
    }
}
