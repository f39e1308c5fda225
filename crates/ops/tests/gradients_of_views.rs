//! Gradients of views whose elements share memory, and writes through views of leaves that are
//! views themselves.

use maquette_aten as _;
use maquette_ops::Tensor;
use maquette_ops::autograd::{BackwardOptions, grad, no_grad};

fn leaf<const N: usize>(x: [f64; N]) -> Tensor {
    Tensor::from(x).requires_grad_()
}

fn values(t: &Tensor) -> Vec<f64> {
    t.to_vec::<f64>().unwrap()
}

fn gradient(t: &Tensor) -> Vec<f64> {
    values(&t.grad().expect("a sweep has reached the leaf"))
}

/// The first and the second gradient of a sum, both with weights of 1.
fn two_gradients(f: impl Fn(&Tensor) -> Tensor, x: &Tensor) -> [Vec<f64>; 2] {
    let options = BackwardOptions { create_graph: true, ..Default::default() };
    let of = |y: Tensor| {
        grad(&[y.sum()], std::slice::from_ref(x), &[], options).unwrap().remove(0).unwrap()
    };
    let first = of(f(x));
    let found = values(&first.contiguous());
    [found, values(&of(first).contiguous())]
}

#[test]
fn a_repetition_that_is_older_than_a_write_of_its_base() {
    let x = leaf([1.0, 2.0]);
    let y = &x * 2.0;
    let wide = y.expand([3i64, 2]);
    y.mul_(3.0).ok().unwrap();
    wide.sum().backward().unwrap();
    assert_eq!(gradient(&x), [18.0, 18.0]);
    // 3 (3 x^2)^2 = 27 x^4
    let quartic = |x: &Tensor| {
        let y = x * x;
        let wide = y.expand([3i64, 2]);
        y.mul_(3.0).ok().unwrap();
        &wide * &wide
    };
    assert_eq!(two_gradients(quartic, &x), [vec![108.0, 864.0], vec![324.0, 1296.0]]);
}

/// The gradients of several views of one base are added up, in any order.
#[test]
fn windows_that_are_older_than_a_write_of_their_base() {
    for windows_first in [true, false] {
        let x = leaf([1.0, 2.0, 3.0, 4.0]);
        let y = &x * 2.0;
        let (windows, part) = (y.unfold(0, 2, 1), y.slice(0, 1..3));
        y.mul_(3.0).ok().unwrap();
        let sum = match windows_first {
            true => windows.sum() + part.sum() * 10.0 + y.sum(),
            false => y.sum() + part.sum() * 10.0 + windows.sum(),
        };
        sum.backward().unwrap();
        assert_eq!(gradient(&x), [12.0, 78.0, 78.0, 12.0], "{windows_first}");
    }
}

#[test]
fn parts_of_windows() {
    let swept = |f: &dyn Fn(&Tensor) -> Tensor| {
        let x = leaf([1.0, 2.0, 3.0, 4.0]);
        f(&x).sum().backward().unwrap();
        gradient(&x)
    };
    assert_eq!(swept(&|x| x.unfold(0, 2, 1).select(1, 0)), [1.0, 1.0, 1.0, 0.0]);
    assert_eq!(swept(&|x| x.unfold(0, 2, 1).slice(0, 1..2)), [0.0, 1.0, 1.0, 0.0]);
    assert_eq!(swept(&|x| x.unfold(0, 3, 1).slice(1, 0..2)), [1.0, 2.0, 1.0, 0.0]);
    let chunks = |x: &Tensor| {
        let chunks = x.unfold(0, 2, 1).chunk(3, 0).unwrap();
        &chunks[1] + &chunks[2] * 10.0
    };
    assert_eq!(swept(&chunks), [0.0, 1.0, 11.0, 10.0]);
    let squares = |x: &Tensor| {
        let first = x.unfold(0, 2, 1).select(1, 0);
        &first * &first
    };
    let found = two_gradients(squares, &leaf([1.0, 2.0, 3.0, 4.0]));
    assert_eq!(found, [vec![2.0, 4.0, 6.0, 0.0], vec![2.0, 2.0, 2.0, 0.0]]);
}

/// An element of the view is each of the elements of the operand that are in its place.
#[test]
fn a_strided_view_of_a_repetition() {
    let x = leaf([1.0, 2.0]);
    let y = x.expand([2i64, 2]).as_strided([2i64], [1i64], None);
    (&y * Tensor::from([1.0, 10.0])).sum().backward().unwrap();
    assert_eq!(gradient(&x), [1.0, 10.0]);
    let square = |x: &Tensor| {
        let y = x.expand([2i64, 2]).as_strided([3i64, 2], [0i64, 1], None);
        &y * &y
    };
    assert_eq!(two_gradients(square, &x), [vec![6.0, 12.0], vec![6.0, 6.0]]);
}

#[test]
fn a_view_of_a_leaf_that_is_a_view_is_not_written() {
    let refusal = |t: Tensor| t.mul_(2.0).ok().unwrap_err().to_string();
    let of_view = "view of a leaf that requires a gradient is written";
    let leaf_in_memory = || Tensor::from([1.0f64, 2.0, 3.0]).slice(0, 0..2).requires_grad_();
    let e = refusal(leaf_in_memory().slice(0, 0..1));
    assert!(e.contains(of_view), "{e}");
    let e = refusal(leaf_in_memory().view([2, 1]).slice(0, 1..2));
    assert!(e.contains(of_view), "{e}");
    assert!(refusal(leaf_in_memory()).contains("leaf that requires a gradient is written"));
    // what an initialiser does, and other elements and handles
    let x = Tensor::from([1.0f64, 2.0, 3.0]);
    let v = x.slice(0, 0..2).requires_grad_();
    no_grad(|| v.slice(0, 0..1).mul_(5.0).ok().map(drop)).unwrap();
    v.detach().mul_(2.0).ok().unwrap();
    x.slice(0, 2..3).mul_(2.0).ok().unwrap();
    assert_eq!(values(&x), [10.0, 4.0, 6.0]);
    (&v * 3.0).sum().backward().unwrap();
    assert_eq!(gradient(&v), [3.0, 3.0]);
    // a leaf in the memory of a result
    let w = leaf([1.0, 2.0, 3.0]);
    let y = &w * 1.0;
    let v = no_grad(|| y.slice(0, 0..2)).requires_grad_();
    let e = refusal(v.slice(0, 0..1));
    assert!(e.contains("made in `no_grad`"), "{e}");
    // a view of a result is no leaf, and is written with its history
    let y = &w * 1.0;
    let view = y.slice(0, 0..2).requires_grad_();
    view.slice(0, 0..1).mul_(2.0).ok().unwrap();
    y.sum().backward().unwrap();
    assert_eq!(gradient(&w), [2.0, 1.0, 1.0]);
}
