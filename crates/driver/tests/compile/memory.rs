//! Inputs that are written, and inputs that share memory.

use super::*;
use crate::common::results;
use maquette_ops::args;
use maquette_ops::func::value_and_grad;

fn updates((x, y): (Tensor, Tensor)) -> (Tensor, Tensor) {
    x.add_(1.0);
    let z = &y * 2.0;
    x.mul_(&z);
    (z, x.slice(0, 1..))
}

#[test]
fn written_inputs_apart_and_together() {
    let f = compile(updates);
    let apart = || (arange(4), arange(4));
    let same_tensor = || {
        let x = arange(4);
        (x.clone(), x)
    };
    let overlapping = || {
        let all = arange(6);
        (all.slice(0, 0..4), all.slice(0, 2..6))
    };
    let halves = || {
        let all = arange(8);
        (all.slice(0, 0..4), all.slice(0, 4..8))
    };
    same(updates, &f, apart);
    same(updates, &f, same_tensor);
    assert_eq!(f.compilations(), 2);
    for _ in 0..2 {
        same(updates, &f, overlapping);
        same(updates, &f, halves);
        same(updates, &f, apart);
        same(updates, &f, same_tensor);
    }
    assert_eq!(f.compilations(), 2);
}

#[test]
fn inputs_that_are_only_read_may_share() {
    let f = compile(|(x, y): (Tensor, Tensor)| x.relu() + y);
    let x = arange(4);
    f.call((x.clone(), x.clone())).unwrap();
    f.call((x, arange(4))).unwrap();
    assert_eq!(f.compilations(), 1);
}

#[test]
fn an_input_that_is_a_captured_tensor() {
    let buffer = arange(4);
    let eager = |x: Tensor| {
        x.add_(1.0);
        &buffer * 2.0
    };
    let f = compile(eager);
    assert_eq!(f.call(arange(4)).unwrap().to_vec::<f32>().unwrap(), [-6.0, -4.0, -2.0, 0.0]);
    assert_eq!(f.call(buffer.clone()).unwrap().to_vec::<f32>().unwrap(), [-4.0, -2.0, 0.0, 2.0]);
    assert_eq!(f.call(arange(4)).unwrap().to_vec::<f32>().unwrap(), [-4.0, -2.0, 0.0, 2.0]);
    assert_eq!(f.compilations(), 2);
    let f = compile(|x: Tensor| {
        buffer.mul_(0.0);
        x + 1.0
    });
    assert_eq!(f.call(arange(4)).unwrap().to_vec::<f32>().unwrap(), [-2.0, -1.0, 0.0, 1.0]);
    assert_eq!(f.call(buffer.clone()).unwrap().to_vec::<f32>().unwrap(), [1.0; 4]);
    assert_eq!(f.compilations(), 2);
}

#[test]
fn captured_tensors_that_share_memory() {
    let all = arange(6);
    let (head, tail) = (all.slice(0, 0..4), all.slice(0, 2..6));
    let f = compile(|x: Tensor| {
        head.add_(&x);
        &tail * 1.0
    });
    let ones = || Tensor::ones([4], DType::F32);
    assert_eq!(f.call(ones()).unwrap().to_vec::<f32>().unwrap(), [0.0, 1.0, 1.0, 2.0]);
    assert_eq!(f.call(ones()).unwrap().to_vec::<f32>().unwrap(), [1.0, 2.0, 1.0, 2.0]);
    assert_eq!(f.compilations(), 1);
}

#[test]
fn outputs_view_inputs() {
    let eager = |x: Tensor| (x.t(), x.slice(0, 1..), x);
    let f = compile(eager);
    for n in [2, 3, 4] {
        same(eager, &f, || rows(n));
    }
}

#[test]
fn inputs_may_begin_anywhere() {
    let eager = |x: Tensor| x.slice(0, 1..) * 2.0;
    let f = compile(eager);
    for start in [0, 1, 2] {
        same(eager, &f, || arange(9).slice(0, start..start + 4));
    }
    assert_eq!(f.compilations(), 1);
}

/// The gradient of a slice is written into memory of the run by its offset there.
#[test]
fn gradients_of_slices_serve_inputs_that_begin_anywhere() {
    let eager = value_and_grad(|x: Tensor| (x.slice(1, 0..2) * x.slice(1, 2..4)).sum());
    let f = compile(&eager);
    let data = arange(160).reshape([40, 4]);
    let floats = |t: &Tensor| t.to_vec::<f32>().unwrap();
    for i in 0..10 {
        let batch = || data.slice(0, 4 * i..4 * i + 4);
        let ((value, gradient), (expected, expected_gradient)) =
            (f.call(batch()).unwrap(), eager(batch()).unwrap());
        assert_eq!(floats(&value), floats(&expected));
        assert_eq!(floats(&gradient), floats(&expected_gradient));
    }
    assert_eq!(f.compilations(), 1);
}

/// Inputs share memory in one call and none in the next.
#[test]
fn a_function_that_asks_whether_inputs_share_memory() {
    let ask = |(x, y): (Tensor, Tensor)| match x.shares_storage(&y) {
        true => &x + 1.0,
        false => &x - 1.0,
    };
    let inputs = (arange(4), arange(4));
    insta::assert_snapshot!(text(&err(compile(ask).call(inputs.clone()))), @r"
    whether two tensors from outside of a trace share memory may differ from run to run, so the traced function cannot ask; ask outside of it
      at memory.rs:LINE
    ");
    let captured = arange(4);
    let other = captured.clone();
    let outside = move |x: Tensor| if x.may_overlap(&other) { &x + 1.0 } else { x };
    assert!(compile(outside).call(captured).is_err());
    let same_handle = |(x, y): (Tensor, Tensor)| if x.is_same(&y) { x } else { y };
    assert!(compile(same_handle).call(inputs).is_err());
}

/// What a function makes shares the memory of what it is made from, in every call.
#[test]
fn a_function_that_asks_whether_its_own_tensors_share_memory() {
    let captured = arange(4);
    let eager = move |x: Tensor| {
        let (view, copy, part) = (x.slice(0, 1..), x.clone_tensor(), captured.slice(0, 1..));
        let asked = [
            view.shares_storage(&x),
            view.may_overlap(&x.slice(0, 0..1)),
            copy.shares_storage(&x),
            copy.is_same(&x),
            x.is_same(&x.clone()),
            x.is_same(&view),
            part.shares_storage(&captured),
            captured.shares_storage(&part),
            part.shares_storage(&copy),
        ];
        let weights = asked.iter().zip(0..).map(|(yes, i)| f64::from(*yes) * f64::from(1 << i));
        x * weights.sum::<f64>()
    };
    let f = compile(&eager);
    same(&eager, &f, || arange(4));
}

#[test]
fn a_program_that_names_offsets() {
    let eager = |x: Tensor| x.as_strided([2i64], [1i64], Some(3.into())) * 2.0;
    let f = compile(eager);
    for start in [0, 1, 2, 0, 1] {
        same(eager, &f, || arange(9).slice(0, start..start + 4));
    }
    assert_eq!(f.compilations(), 3);
    let parts: [fn(&Tensor) -> Tensor; 2] =
        [|x| x.chunk(2, 0).unwrap()[1].clone(), |x| x.unsqueeze(0).unbind(0).unwrap()[0].clone()];
    for part in parts {
        let eager = |x: Tensor| part(&x).as_strided([2i64], [1i64], Some(3.into())) * 2.0;
        let f = compile(eager);
        for start in [0, 1, 2] {
            same(eager, &f, || arange(9).slice(0, start..start + 4));
        }
    }
    let eager = |x: Tensor| {
        let (sizes, strides) = (Value::from_dims([2i64]), Value::from_dims([1i64]));
        results("aten::as_strided_copy", args![&x, sizes, strides, 3i64])[0].clone()
    };
    let f = compile(eager);
    for start in [0, 1, 2, 0, 1] {
        same(eager, &f, || arange(9).slice(0, start..start + 4));
    }
    assert_eq!(f.compilations(), 3);
}

#[test]
fn a_failed_call_names_the_line_of_the_function() {
    let f = compile(|(x, i): (Tensor, Tensor)| x.index_select(0, &i));
    let at = |i: i64| Tensor::from([i]);
    assert_eq!(f.call((arange(3), at(2))).unwrap().to_vec::<f32>().unwrap(), [-1.0]);
    let e = err(f.call((arange(3), at(7))));
    let eager = arange(3).index_select(0, &at(7)).ok().unwrap_err().clone();
    assert_eq!(e.kind().to_string(), eager.kind().to_string());
    assert!(e.loc().is_some_and(|loc| loc.file.ends_with("memory.rs")), "{e}");
}

/// An operand with channels last decides the layout of a result, unless it has no elements.
#[test]
fn an_empty_operand_decides_no_layout() {
    let images = |n: i64| arange(12 * n).reshape([2, 2, n, 3]).permute([0, 3, 1, 2]);
    let cat = |(x, y): (Tensor, Tensor)| Tensor::cat(&[x, y], 3).reshape([-1i64]).fill_(9.0);
    let pad = |(x, _): (Tensor, Tensor)| {
        let padded = results("aten::constant_pad_nd", args![&x, [1i64, 1, 1, 1], 0.0]);
        (padded[0].clone(), padded[0].reshape([-1i64]).fill_(9.0))
    };
    let convolution = |(x, _): (Tensor, Tensor)| {
        let weight = arange(24).reshape([4, 3, 1, 2]);
        let (one, none) = ([1i64, 1], Value::None);
        let numbers = args![&x, &weight, none, one, [1i64, 2], one, false, [0i64, 0], 1i64];
        results("aten::convolution", numbers)[0].clone()
    };
    let inputs = |n: i64| move || (images(n), images(4));
    let (f, g) = (CompileOptions::symbolic().compile(cat), CompileOptions::symbolic().compile(pad));
    let h = CompileOptions::symbolic().compile(convolution);
    for n in [3, 0, 5, 0] {
        same(cat, &f, inputs(n));
        same(pad, &g, inputs(n));
        same(convolution, &h, inputs(n));
    }
}

#[test]
fn masked_indices_of_an_empty_tensor() {
    let eager = |(x, mask): (Tensor, Tensor)| {
        let (i, j) = (Tensor::from([[1i64], [0], [0]]), Tensor::from([[1i64, 0, 0]]));
        results("aten::_unsafe_masked_index", args![&x, &mask, vec![i, j], 1.0])[0].clone()
    };
    let f = CompileOptions::symbolic().compile(eager);
    for n in [2, 0, 3] {
        same(eager, &f, || (arange(n * n).reshape([n, n]), arange(9).reshape([3, 3]).gt(0.0)));
    }
}
