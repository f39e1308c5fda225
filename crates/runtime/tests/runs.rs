//! A compiled program has the results, mutations, aliases and errors of the reference interpreter.

mod common;
#[path = "runs/custom.rs"]
mod custom;
#[path = "runs/sizes.rs"]
mod sizes;

use common::{fused, planned, try_fused};
use maquette_aten as _;
use maquette_interp::Interpreter;
use maquette_invoke::SourceInfo;
use maquette_ir::buffer_plan::{Buffer, BufferId, ResultDest, Step};
use maquette_ir::graph::Graph;
use maquette_ops::library::Facts;
use maquette_ops::{Error, Result, Tensor, Value};
use maquette_rewrite::{ExecutionMode, Options, functionalize, plan};
use maquette_runtime::{Executable, LayoutStamp};
use std::borrow::Cow;

/// The executable that all passes make of a graph, and the functional form of the graph in planned
/// memory.
fn compiled(text: &str) -> (Executable, ExecutionMode<'static>) {
    let mode = planned(text);
    let executable = fused(&mode);
    assert!(executable.is_compiled());
    (executable, mode)
}

#[track_caller]
fn run(executable: &Executable, inputs: &[Value]) -> Result<Vec<Value>> {
    executable.run(inputs, &SourceInfo::of_caller())
}

fn values(t: &Tensor) -> Vec<f32> {
    t.to_vec().unwrap()
}

/// The errors of a run of the executable and of the interpreter, which are equal but for the line
/// of the run.
fn errors(text: &str, inputs: impl Fn() -> Vec<Value>) -> String {
    let (executable, mode) = compiled(text);
    let source_info = SourceInfo::of_caller();
    let text = |e: Error| e.to_string();
    let reference = Interpreter::new(&mode).with_source_info(source_info).run(&inputs()).map(drop);
    let reference = reference.map_err(text).unwrap_err();
    // The second run takes the instance of the first.
    for _ in 0..2 {
        let found = executable.run(&inputs(), &source_info).map(drop).map_err(text).unwrap_err();
        assert_eq!(found, reference);
    }
    reference
}

#[test]
fn a_run_writes_inputs_and_returns_their_aliases() {
    let (executable, _) = compiled(
        "graph g(%x: f32[4]) -> (f32[2] offset 1, f32[4]) {
            %head: f32[2] = aten::slice.Tensor(%x, 0, 0, 2, 1)
            %written: f32[2] = aten::mul_.Scalar(%head, 10.0)
            %tail: f32[2] offset 1 = aten::slice.Tensor(%x, 0, 1, 3, 1)
            %sum: f32[4] = aten::add.Tensor(%x, %x)
            return %tail, %sum
        }",
    );
    let mut sums: Vec<Tensor> = Vec::new();
    for _ in 0..3 {
        let x = Tensor::from([1.0f32, 2.0, 3.0, 4.0]);
        let version = x.storage().unwrap().version();
        let results = run(&executable, &[Value::from(&x)]).unwrap();
        let [Value::Tensor(tail), Value::Tensor(sum)] = results.as_slice() else {
            panic!("{results:?}")
        };
        assert_eq!(values(&x), [10.0, 20.0, 3.0, 4.0]);
        assert_eq!((values(tail), values(sum)), (vec![20.0, 3.0], vec![20.0, 40.0, 6.0, 8.0]));
        assert!(tail.shares_storage(&x) && !sum.shares_storage(&x));
        assert!(x.storage().unwrap().version() > version);
        // Results of earlier runs stay as they are.
        sums.push(sum.clone());
        assert!(sums.iter().all(|s| values(s) == [20.0, 40.0, 6.0, 8.0]));
        // The results are the caller's.
        tail.add_(1.0);
        sums.last().unwrap().copy_(sum).ok().unwrap();
    }
}

#[test]
fn a_plan_writes_only_what_its_program_mutates() {
    let text = "graph g(%x: f32[4], %y: f32[4]) -> (f32[4]) {
        %z: f32[4] = aten::add.Tensor(%x, %y)
        return %z
    }";
    let graph: Graph = text.parse().unwrap();
    let functional = functionalize(&graph, &Facts, &Options::new()).unwrap();
    let mut plan = plan(&functional, &Facts).unwrap();
    let input = plan.buffers.iter().position(|b| *b == Buffer::Input(1)).unwrap();
    for step in &mut plan.steps {
        if let Step::Node { results, .. } = step
            && let [(_, ResultDest::Into(view))] = results.as_mut_slice()
        {
            view.buffer = BufferId(input as u32);
        }
    }
    let mode = ExecutionMode::Buffered(Cow::Owned(functional), Cow::Owned(plan));
    for executable in [try_fused(mode.clone()), Executable::new(mode)] {
        insta::allow_duplicates! {
            insta::assert_snapshot!(executable.err().unwrap(), @"step 0 of the plan writes memory of `%y`, which `g` does not mutate; make the plan with `plan` from the functional graph that runs");
        }
    }
}

#[test]
fn a_view_of_an_input_may_begin_anywhere_in_its_storage() {
    let (executable, _) = compiled(
        "graph g(%x: f32[2]) -> (f32[2]) {
            %a: f32[2] = aten::mul.Scalar(%x, 2.0)
            %b: f32[2] = aten::add_.Tensor(%x, %a)
            return %a
        }",
    );
    let all = Tensor::from([1.0f32, 2.0, 3.0, 4.0]);
    for start in [0, 2] {
        let part = all.slice(0, start..start + 2);
        run(&executable, &[Value::from(&part)]).unwrap();
    }
    assert_eq!(values(&all), [3.0, 6.0, 9.0, 12.0]);
}

#[test]
fn several_threads_run_one_executable() {
    let (executable, _) = compiled(
        "graph g(%x: f32[64]) -> (f32[64]) {
            %a: f32[64] = aten::exp(%x)
            %b: f32[64] = aten::softmax.int(%a, 0)
            %c: f32[64] = aten::mul.Tensor(%b, %a)
            return %c
        }",
    );
    let input = |k: i64| Tensor::full([64], k as f64 / 8.0, maquette_ir::DType::F32);
    let expected: Vec<Vec<f32>> = (0..8)
        .map(|k| values(run(&executable, &[Value::from(input(k))]).unwrap()[0].tensor().unwrap()))
        .collect();
    std::thread::scope(|scope| {
        for k in 0..8 {
            let (executable, expected) = (&executable, &expected);
            scope.spawn(move || {
                for _ in 0..100 {
                    let results = run(executable, &[Value::from(input(k))]).unwrap();
                    assert_eq!(values(results[0].tensor().unwrap()), expected[k as usize]);
                }
            });
        }
    });
}

#[test]
fn errors_are_those_of_the_interpreter() {
    let x = || Value::from(Tensor::from([1.0f32, 2.0]));
    let index = |i: i64| Value::from(Tensor::from([i]));
    let program = "graph g(%x: f32[2], %i: i64[1]) -> (f32[1]) {
        %y: f32[2] = aten::relu(%x)
        %z: f32[1] = aten::gather(%y, 0, %i)
        return %z
    }";
    insta::assert_snapshot!(errors(program, || vec![x(), index(2)]), @r"
    aten::gather: index 2 is out of bounds for dimension 0 with size 2
      at crates/runtime/tests/runs.rs:43
      %relu: f32[2] = aten::relu(%x)
    > %gather: f32[1] = aten::gather(%relu, 0, %i)
    ");
    insta::assert_snapshot!(errors(program, || vec![x()]), @r"
    the graph takes 2 inputs, found 1
      at crates/runtime/tests/runs.rs:43
    ");
    insta::assert_snapshot!(
        errors(program, || vec![Value::from(Tensor::from([1.0f32])), index(0)]),
        @r"
        input `x`: size 0 must be 2, found 1 (the trace is specialized to this value; make the dimension dynamic to vary it)
          at crates/runtime/tests/runs.rs:43
        "
    );
    insta::assert_snapshot!(errors(program, || vec![x(), Value::from(1i64)]), @r"
    input `i`: the kind must be a tensor, found the integer 1
      at crates/runtime/tests/runs.rs:43
    ");
    let division = "graph g(%x: i64[1]) -> (i64[1]) {
        %y: i64[1] = aten::floor_divide.Scalar(%x, 0)
        return %y
    }";
    insta::assert_snapshot!(errors(division, || vec![index(2)]), @r"
    aten::floor_divide.Scalar: integer division by zero
      at crates/runtime/tests/runs.rs:43
    > %floor_divide: i64[1] = aten::floor_divide.Scalar(%x, 0)
    ");
    let explained = "graph g(%x: f32[2], %t: i64[]) -> (f32[]) {
        %y: f32[2] = aten::relu(%x)
        %z: f32[] = aten::multi_margin_loss(%y, %t)
        return %z
    }";
    let class = || Value::from(Tensor::scalar(7i64));
    insta::assert_snapshot!(errors(explained, || vec![x(), class()]), @r"
    aten::multi_margin_loss: `target` holds the class 7, but `self` has 2 classes
      at crates/runtime/tests/runs.rs:43
      %relu: f32[2] = aten::relu(%x)
    > %multi_margin_loss: f32[] = aten::multi_margin_loss(%relu, %t)
    ");
    let missing = "graph g(%x: f32[2]) -> (f32[2]) {
        %y: f32[2] = nobody::knows(%x)
        return %y
    }";
    insta::assert_snapshot!(errors(missing, || vec![x()]), @r#"
    there is no operator `nobody::knows`; if a crate defines it, that crate must be linked: write `use nobody as _;`
      at crates/runtime/tests/runs.rs:43
    > %call: f32[2], %call_1: f32[2] = ir::call("nobody::knows", %x)
    "#);
}

#[test]
fn a_failed_run_poisons_the_input_that_it_wrote_in_part() {
    let (executable, _) = compiled(
        "graph g(%x: i64[2], %y: i64[2]) -> (i64[2]) {
            %z: i64[2] = aten::floor_divide_.Tensor(%x, %y)
            return %z
        }",
    );
    let (x, y) = (Tensor::from([1i64, 2]), Tensor::from([1i64, 0]));
    let e = run(&executable, &[Value::from(&x), Value::from(&y)]).unwrap_err();
    assert!(e.to_string().contains("division by zero"), "{e}");
    let eager = Tensor::from([1i64, 2]);
    let _ = eager.floor_divide_(&y).ok().map(drop);
    let poison = |t: &Tensor| t.ok().map(drop).unwrap_err().kind().to_string();
    assert_eq!(poison(&x), poison(&eager));
    // The executable is as before.
    let (x, y) = (Tensor::from([4i64, 2]), Tensor::from([2i64, 1]));
    run(&executable, &[Value::from(&x), Value::from(&y)]).unwrap();
    assert_eq!(x.to_vec::<i64>().unwrap(), [2, 2]);
}
