//! Instances for each layout of the inputs, and segments for each size that depends on data.

use super::*;

#[test]
fn each_layout_has_its_instance() {
    let (executable, _) = compiled(
        "graph g(%x: f32[n, m] strides [s, t]) -> (f32[n]) where n in [0, oo), m in [0, oo), \
         s in [0, oo), t in [0, oo) {
            %y: f32[n, m] strides [s, t] = aten::mul.Scalar(%x, 2.0)
            %z: f32[n] = aten::sum.dim_IntList(%y, [1])
            return %z
        }",
    );
    // Twice, so that instances are found again.
    for _ in 0..2 {
        for (n, m) in [(2, 3), (3, 2), (1, 1), (0, 2), (2, 0), (40, 50)] {
            let x = Tensor::arange(n * m).to_dtype(maquette_ir::DType::F32).reshape([n, m]);
            let doubled = |x: &Tensor| values(&(x * 2.0).sum_dim([1], false));
            let expected = doubled(&x);
            let results = run(&executable, &[Value::from(&x)]).unwrap();
            assert_eq!(values(results[0].tensor().unwrap()), expected);
        }
    }
}

/// A caller that has compared the layouts names them, by a stamp. Calls follow one another without
/// a stamp, with the stamp of the last call, and with an earlier one.
#[test]
fn runs_with_stamps_have_the_results_of_runs_without() {
    let texts = [
        "graph g(%x: f32[n]) -> (f32[n]) where n in [0, oo) {
            %y: f32[n] = aten::mul.Scalar(%x, 2.0)
            %z: f32[n] = aten::exp(%y)
            return %z
        }",
        "graph g(%x: f32[n]) -> (f32[n]) where n in [0, oo) {
            %y: f32[n] = aten::softmax.int(%x, 0)
            %z: f32[n] = aten::mul.Scalar(%y, 2.0)
            return %z
        }",
    ];
    for text in texts {
        let [executable, other] = [compiled(text).0, compiled(text).0];
        let stamps = [None, Some(1), Some(1), Some(2), Some(1), Some(3), None, Some(3), Some(3)];
        for (n, stamp) in [2i64, 2, 2, 3, 2, 2, 2, 2, 2].into_iter().zip(stamps) {
            let x = Tensor::full([n], 0.5, maquette_ir::DType::F32);
            let stamp = stamp.map(LayoutStamp);
            let results =
                executable.run_stamped(&[Value::from(&x)], stamp, &SourceInfo::of_caller());
            let results = results.unwrap();
            let expected = run(&other, &[Value::from(&x)]).unwrap();
            assert_eq!(
                values(results[0].tensor().unwrap()),
                values(expected[0].tensor().unwrap()),
                "{n} elements, {stamp:?}"
            );
        }
        let failed = Tensor::zeros([3], maquette_ir::DType::F32).reshape([2]);
        let inputs = [Value::from(&failed)];
        let told = |result: Result<Vec<Value>>| {
            result.map(drop).unwrap_err().to_string().lines().next().map(str::to_owned)
        };
        let source_info = SourceInfo::of_caller();
        assert_eq!(
            told(executable.run_stamped(&inputs, Some(LayoutStamp(3)), &source_info)),
            told(run(&other, &inputs))
        );
    }
}

/// A registration ends what a stamp stands for: a kernel may be another one.
#[test]
fn a_registration_between_two_runs_of_one_stamp_counts() {
    let op = maquette_ops::custom_op("runtime::stamped")
        .arg_names(["x"])
        .kernel(|x: &Tensor| -> Result<Tensor> { Ok(x * 2.0) })
        .register()
        .unwrap();
    let fake = |_: &maquette_ops::FakeCtx, x: &Tensor| -> Result<Tensor> {
        Ok(x.new_empty(x.sizes(), x.dtype()))
    };
    op.register_fake(fake).unwrap();
    let (executable, _) = compiled(
        "graph g(%x: f32[n]) -> (f32[n]) where n in [0, oo) {
            %y: f32[n] = runtime::stamped(%x)
            return %y
        }",
    );
    let x = Tensor::from([1.0f32, 2.0]);
    let stamped = || {
        let stamp = Some(LayoutStamp(7));
        let source_info = SourceInfo::of_caller();
        let results = executable.run_stamped(&[Value::from(&x)], stamp, &source_info).unwrap();
        values(results[0].tensor().unwrap())
    };
    assert_eq!([stamped(), stamped()], [[2.0, 4.0], [2.0, 4.0]]);
    let kernel = |x: &Tensor| -> Result<Tensor> { Ok(x * 3.0) };
    op.register_kernel("cpu", kernel).unwrap();
    assert_eq!([stamped(), stamped()], [[3.0, 6.0], [3.0, 6.0]]);
}

/// A stamp for other layouts is a defect of the caller, of which debug builds tell.
#[cfg(debug_assertions)]
#[test]
#[should_panic = "calls with one stamp have inputs of other layouts"]
fn a_stamp_of_other_layouts_is_told() {
    let (executable, _) = compiled(
        "graph g(%x: f32[n]) -> (f32[n]) where n in [0, oo) {
            %y: f32[n] = aten::exp(%x)
            return %y
        }",
    );
    for n in [2i64, 3] {
        let x = Tensor::zeros([n], maquette_ir::DType::F32);
        let stamp = Some(LayoutStamp(1));
        let _ = executable.run_stamped(&[Value::from(&x)], stamp, &SourceInfo::of_caller());
    }
}

#[test]
fn more_layouts_than_are_kept() {
    let (executable, _) = compiled(
        "graph g(%x: f32[n]) -> (f32[n]) where n in [0, oo) {
            %y: f32[n] = aten::mul.Scalar(%x, 2.0)
            %z: f32[n] = aten::exp(%y)
            return %z
        }",
    );
    for n in (0..200).chain(0..200) {
        let x = Tensor::zeros([n], maquette_ir::DType::F32);
        let results = run(&executable, &[Value::from(&x)]).unwrap();
        assert_eq!(values(results[0].tensor().unwrap()), vec![1.0; n as usize]);
    }
}

/// Doubles the positions of nonzero elements, and adds up as many numbers as there are.
const POSITIONS: &str = "graph g(%x: f32[4]) -> (i64[u0, 1], i64[]) where u0 in [0, oo) {
    %found: i64[u0, 1] = aten::nonzero(%x)
    bind u0 = size(%found, 0)
    assert u0 <= 3 \"too many\"
    %doubled: i64[u0, 1] = aten::mul.Scalar(%found, 2)
    %count: i64[u0] = aten::arange(u0, dtype=i64)
    %sum: i64[] = aten::sum(%count)
    return %doubled, %sum
}";

#[test]
fn sizes_from_data_are_bound_in_each_run() {
    let (executable, mode) = compiled(POSITIONS);
    let inputs = [
        ([0.0f32, 1.0, 0.0, 1.0], vec![2i64, 6], 1i64),
        ([0.0; 4], vec![], 0),
        ([1.0, 1.0, 1.0, 0.0], vec![0, 2, 4], 3),
        ([1.0, 0.0, 0.0, 0.0], vec![0], 0),
    ];
    for (x, doubled, sum) in inputs.iter().chain(&inputs) {
        let x = [Value::from(Tensor::from(*x))];
        let found = run(&executable, &x).unwrap();
        let reference = Interpreter::new(&mode).run(&x).unwrap().results;
        for results in [found, reference] {
            assert_eq!(&results[0].tensor().unwrap().to_vec::<i64>().unwrap(), doubled);
            assert_eq!(results[1].tensor().unwrap().item::<i64>().unwrap(), *sum);
        }
    }
}

#[test]
fn an_assertion_on_a_size_from_data_names_its_message() {
    let all = || vec![Value::from(Tensor::from([1.0f32; 4]))];
    insta::assert_snapshot!(errors(POSITIONS, all), @r#"
    assertion failed: too many: `u0 <= 3` does not hold: u0 = 4
      at crates/runtime/tests/runs.rs:43
      %nonzero: i64[u0, 1] = aten::nonzero(%x)
      bind u0 = size(%nonzero, 0)
    > assert u0 <= 3 "too many"
      %mul: i64[u0, 1] = aten::mul.Scalar(%nonzero, 2)
      %arange: i64[u0] = aten::arange(u0, dtype=i64)
    "#);
}

#[test]
fn numbers_from_data_are_arguments() {
    let (executable, _) = compiled(
        "graph g(%x: i64[], %y: f32[2]) -> (f32[2]) where u0 in [-9, 9] {
            %n: int(u0) = aten::item(%x)
            bind u0 = %n
            %z: f32[2] = aten::mul.Scalar(%y, u0)
            return %z
        }",
    );
    for n in [2i64, 3, 2, -1] {
        let inputs = [Value::from(Tensor::scalar(n)), Value::from(Tensor::from([1.0f32, 2.0]))];
        let results = run(&executable, &inputs).unwrap();
        assert_eq!(values(results[0].tensor().unwrap()), [n as f32, 2.0 * n as f32]);
    }
}

#[test]
fn a_failing_assertion_comes_before_memory_of_later_steps() {
    let program = "graph g(%x: f32[1], %n: int(s0)) -> (f32[s0, 1125899906842624]) \
        where s0 in [0, oo) {
        %a: f32[1] = aten::add.Scalar(%x, 1.0)
        assert s0 <= 4 \"too many\"
        %t: f32[s0, 1125899906842624] strides [0, 0] = aten::expand(%a, [s0, 1125899906842624])
        %b: f32[s0, 1125899906842624] = aten::add.Scalar(%t, 1.0)
        %c: f32[s0, 1125899906842624] = aten::exp(%b)
        return %c
    }";
    let inputs = || vec![Value::from(Tensor::from([1.0f32])), Value::from(1000i64)];
    insta::assert_snapshot!(errors(program, inputs), @r#"
    assertion failed: too many: `s0 <= 4` does not hold: s0 = 1000
      at crates/runtime/tests/runs.rs:43
    > assert s0 <= 4 "too many"
      %add: f32[1] = aten::add.Scalar(%x, 1.0)
      %view: f32[s0, 1125899906842624] = ir::view(%add, [s0, 1125899906842624], [0, 0], 0)
    "#);
}

/// The bytes from the first element of a view to its last are beyond `i64`, or beyond the memory.
#[test]
fn views_beyond_their_memory_are_refused() {
    let int = |n: i64| Value::from(n);
    let programs = [
        (
            "graph g(%x: u8[5], %n: int(n), %m: int(m)) -> (u8[n])
               where n in [0, oo), m in [0, oo)
             {
               %v: u8[n] = ir::view(%x, [n], [m], 0)
               %y: u8[n] = aten::bitwise_not(%v)
               return %y
             }",
            vec![Tensor::from([1u8; 5]).into(), int(5), int(1 << 62)],
        ),
        (
            "graph g(%x: u8[5], %n: int(n), %m: int(m)) -> (u8[5])
               where n in [0, oo), m in [0, oo)
             {
               %s: u8[n] = aten::zeros([n], dtype=u8)
               %v: u8[5] = ir::scatter(%x, %s, [n], [m], 0)
               return %v
             }",
            vec![Tensor::from([1u8; 5]).into(), int(5), int(1 << 62)],
        ),
        (
            "graph g(%y: f32[2, 3], %n: int(n)) -> (f32[2, 3])
               where n in [0, oo)
             {
               %z: f32[2, 3] = ir::scatter(%y, %y, [2, 3], [3, n // 2], 1)
               return %z
             }",
            vec![Tensor::ones([2, 3], maquette_ir::DType::F32).into(), int(i64::MAX)],
        ),
        (
            "graph g(%x: f32[5], %n: int(n)) -> (f32[])
               where n in [0, oo)
             {
               %t: f32[5] = aten::relu(%x)
               %v: f32[] = ir::view(%t, [], [], n)
               %y: f32[] = aten::neg(%v)
               return %y
             }",
            vec![Tensor::ones([5], maquette_ir::DType::F32).into(), int(i64::MAX)],
        ),
        (
            "graph g(%n: int(n)) -> (f32[n, 3])
               where n in [0, oo)
             {
               %y: f32[n, 3] = aten::zeros([n, 3])
               return %y
             }",
            vec![int(i64::MAX)],
        ),
    ];
    for (text, inputs) in programs {
        let (executable, mode) = compiled(text);
        for _ in 0..2 {
            assert!(run(&executable, &inputs).is_err(), "{text}");
            assert!(Interpreter::new(&mode).run(&inputs).is_err(), "{text}");
        }
    }
}
