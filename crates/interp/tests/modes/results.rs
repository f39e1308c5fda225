//! Checks and copies of results, in every mode.

use super::*;
use maquette_ops::{FakeCtx, FakeError, Result, custom_op};

/// `copy` marks a call that returned a new tensor in the trace.
#[test]
fn a_result_marked_as_copy_is_one_in_every_mode() {
    let forms = Forms::of(graph(
        "graph g(%x: f32[2]) -> (f32[2]) {
            %y: f32[2] = aten::to.dtype(%x, f32) copy
            %z: f32[2] = aten::add_.Scalar(%y, 1.0)
            return %y
        }",
    ));
    for mode in forms.modes() {
        let x = Tensor::from([1.0f32, 2.0]);
        let results = Interpreter::new(&mode).run(&[Value::from(&x)]).unwrap().results;
        let y = results[0].tensor().unwrap();
        assert_eq!((values(&x), values(y)), (vec![1.0, 2.0], vec![2.0, 3.0]));
        assert!(!y.shares_storage(&x));
    }
}

/// For other sizes, the operator returns its argument.
#[test]
fn a_result_marked_as_copy_has_the_declared_strides() {
    let forms = Forms::of(graph(
        "graph g(%x: f32[n, 2]) -> (f32[2, n] strides [max(1, n), 1]) where n in [0, oo) {
            %t: f32[2, n] strides [1, 2] = aten::t(%x)
            %y: f32[2, n] strides [max(1, n), 1] = aten::contiguous(%t) copy
            return %y
        }",
    ));
    for mode in forms.modes() {
        for n in [0i64, 1, 3] {
            let x = Tensor::from_vec(vec![1.0f32; 2 * n as usize], [n, 2]);
            let results = Interpreter::new(&mode).run(&[Value::from(&x)]).unwrap().results;
            let y = results[0].tensor().unwrap();
            assert!(!y.shares_storage(&x), "n = {n}");
            // the strides of empty tensors and of dimensions of size 1 address no element
            let strides: Vec<_> = y.strides().iter().map(|s| s.as_i64()).collect();
            assert!(n <= 1 || strides == [Some(n), Some(1)], "n = {n}: {strides:?}");
        }
    }
}

/// The kernel returns columns, and its fake kernel promised rows.
#[test]
fn wrong_strides_of_a_fake_kernel_are_refused_in_every_mode() {
    let op = custom_op("results::columns")
        .arg_names(["x"])
        .kernel(|x: &Tensor| -> Result<Tensor> { Ok((&x.t().contiguous() + 1.0).t()) })
        .register()
        .unwrap();
    op.register_fake(|_: &FakeCtx, x: &Tensor| -> Result<Tensor> {
        Ok(x.new_empty(x.sizes(), x.dtype()))
    })
    .unwrap();
    let forms = Forms::of(graph(
        "graph g(%x: f32[2, 3]) -> (f32[2, 3]) {
            %y: f32[2, 3] = results::columns(%x)
            return %y
        }",
    ));
    for mode in forms.modes() {
        let x = Tensor::from_vec(vec![1.0f32; 6], [2, 3]);
        let e = Interpreter::new(&mode).run(&[Value::from(x)]).unwrap_err();
        let is_stride = matches!(
            e.kind(),
            ErrorKind::Fake(FakeError::Mismatch { what, .. }) if what == "stride 0"
        );
        assert!(is_stride, "{e}");
    }
}
