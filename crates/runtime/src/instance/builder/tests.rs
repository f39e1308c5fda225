//! Which steps become launches.

use crate::Executable;
use crate::instance::Step;
use maquette_aten as _;
use maquette_interp::{ExecutionMode, Interpreter};
use maquette_invoke::SourceInfo;
use maquette_ir::graph::Graph;
use maquette_ops::library::Facts;
use maquette_ops::{Tensor, Value};
use maquette_rewrite::{Options, functionalize, plan};
use std::borrow::Cow;

fn compiled(text: &str) -> (Executable, ExecutionMode<'static>) {
    let graph: Graph = text.parse().unwrap();
    let functional = functionalize(&graph, &Facts, &Options::new()).unwrap();
    let plan = plan(&functional, &Facts).unwrap();
    let mode = ExecutionMode::Buffered(Cow::Owned(functional), Cow::Owned(plan));
    (Executable::new(mode.clone()).unwrap(), mode)
}

/// The kinds of the steps of a program's first segment: `L` for a launch, `C` for a call. Three
/// runs must have the results of the interpreter, bit for bit.
fn steps(text: &str, inputs: &[Value]) -> String {
    let (executable, mode) = compiled(text);
    let reference = Interpreter::new(&mode).run(inputs).unwrap().results;
    for _ in 0..3 {
        let results = executable.run(inputs, &SourceInfo::of_caller()).unwrap();
        assert_eq!(results.len(), reference.len());
        for (found, expected) in results.iter().zip(&reference) {
            let (found, expected) = (found.tensor().unwrap(), expected.tensor().unwrap());
            assert_eq!(found.meta().to_string(), expected.meta().to_string());
            let bytes = |t: &Tensor| format!("{:?}", t.to_vec::<f64>().unwrap());
            let double = |t: &Tensor| t.to_dtype(maquette_ir::DType::F64);
            assert_eq!(bytes(&double(found)), bytes(&double(expected)));
        }
    }
    let instance = executable.planned().and_then(|planned| planned.last_instance()).unwrap();
    let kind = |step: &Step| match step {
        Step::Launch(_) => 'L',
        Step::Region(_) => 'R',
        Step::Call(_) => 'C',
        Step::Copy { .. } => 'K',
        Step::Adopt { .. } => 'A',
        Step::Release(_) => 'F',
        Step::Fail(_) => 'X',
    };
    instance.first.steps.iter().map(kind).collect()
}

fn input(sizes: &[i64]) -> Tensor {
    let n: i64 = sizes.iter().product();
    let values: Vec<f32> = (0..n).map(|i| ((i * 37) % 23) as f32 / 7.0 - 1.0).collect();
    Tensor::from_vec(values, sizes.to_vec())
}

#[test]
fn several_results_of_one_nest_are_one_launch() {
    let layer_norm = "graph g(%x: f32[4, 6], %w: f32[6], %b: f32[6]) -> (f32[4, 6], f32[4, 1]) {
        %y: f32[4, 6], %m: f32[4, 1], %r: f32[4, 1] = \
        aten::native_layer_norm(%x, [6], %w, %b, 1e-5)
        %z: f32[4, 6] = aten::mul.Tensor(%y, %r)
        return %z, %m
    }";
    let values = [Value::from(input(&[4, 6])), input(&[6]).into(), input(&[6]).into()];
    assert_eq!(steps(layer_norm, &values), "LL");
}

#[test]
fn results_of_a_launch_may_be_outputs_views_and_unused() {
    let max = "graph g(%x: f32[4, 6]) -> (f32[4], i64[2] offset 1) {
        %values: f32[4], %indices: i64[4] = aten::max.dim(%x, 1)
        %part: i64[2] offset 1 = aten::slice.Tensor(%indices, 0, 1, 3, 1)
        return %values, %part
    }";
    assert_eq!(steps(max, &[Value::from(input(&[4, 6]))]), "L");
    let unused = "graph g(%x: f32[4, 6]) -> (f32[4]) {
        %values: f32[4], %indices: i64[4] = aten::max.dim(%x, 1)
        %y: f32[4] = aten::exp(%values)
        return %y
    }";
    assert_eq!(steps(unused, &[Value::from(input(&[4, 6]))]), "LL");
}

#[test]
fn operators_without_a_nest_are_calls() {
    let sort = "graph g(%x: f32[6]) -> (f32[6]) {
        %values: f32[6], %indices: i64[6] = aten::sort(%x)
        %y: f32[6] = aten::exp(%values)
        return %y
    }";
    assert_eq!(steps(sort, &[Value::from(input(&[6]))]), "CFAL");
}

#[test]
fn results_whose_strides_follow_the_operands_are_launched_if_they_are_as_declared() {
    let norm = "graph g(%x: f32[2, 4, 3]) -> (f32[2, 4, 3], f32[2, 2]) {
        %y: f32[2, 4, 3], %m: f32[2, 2], %r: f32[2, 2] = \
        aten::native_group_norm(%x, None, None, 2, 4, 3, 2, 1e-5)
        return %y, %r
    }";
    assert_eq!(steps(norm, &[Value::from(input(&[2, 4, 3]))]), "L");
}

#[test]
fn an_arena_that_is_much_larger_than_its_runs_need_is_replaced() {
    let (executable, _) = compiled(
        "graph g(%x: f32[n]) -> (f32[n]) where n in [0, oo) {
            %a: f32[n] = aten::exp(%x)
            %b: f32[n] = aten::cos(%a)
            %c: f32[n] = aten::mul.Tensor(%b, %a)
            return %c
        }",
    );
    let kept = |n: i64| {
        executable.run(&[input(&[n]).into()], &SourceInfo::of_caller()).unwrap();
        executable.planned().unwrap().kept_bytes()
    };
    let large = kept(4096);
    assert!((0..15).all(|_| kept(64) == large));
    assert!(kept(2048 + 512) == large, "a run that needs more than half begins the count again");
    assert!((0..15).all(|_| kept(64) == large));
    let small = kept(64);
    assert!(small * 8 < large, "{small} {large}");
    assert_eq!(kept(64), small);
}
