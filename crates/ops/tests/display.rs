//! Tensors as text. The texts are those of PyTorch, but for the names of dtypes.

use maquette_aten as _;
use maquette_ir::{DType, Device};
use maquette_ops::{Error, Meta, Tensor};
use std::fmt::Write;

/// What prints, and its text.
fn book(cases: impl IntoIterator<Item = (&'static str, Tensor)>) -> String {
    cases.into_iter().fold(String::new(), |mut book, (name, tensor)| {
        writeln!(book, "{name}\n{tensor}\n").unwrap();
        book
    })
}

fn floats(values: &[f32]) -> Tensor {
    Tensor::from(values.to_vec())
}

#[test]
fn numbers() {
    insta::assert_snapshot!(book([
        ("integers", Tensor::from([1i64, -100])),
        ("booleans", Tensor::from([true, false])),
        ("floats that are integers", floats(&[1.0, -20.0])),
        ("zeros", floats(&[0.0, -0.0])),
        ("floats", floats(&[0.5, -2.25, 10.0])),
        ("ties round to even", floats(&[2.5, 0.03125, 0.00625])),
        ("a range above 1000", floats(&[1.0, 2000.0])),
        ("large", floats(&[1.0e9])),
        ("small", floats(&[0.00005, 0.00015])),
        ("three digits of exponent", Tensor::from([1.0e300, 1.5])),
        ("not finite", floats(&[0.5, f32::NAN, f32::INFINITY, f32::NEG_INFINITY])),
        ("integers, not finite", floats(&[f32::NAN, 1.0, f32::NEG_INFINITY])),
        ("other dtypes", Tensor::from([1.5f32, 2.0]).to_dtype(DType::F16)),
        ("a small integer", Tensor::from([1u8, 255])),
    ]));
}

#[test]
fn shapes() {
    let count = |sizes: &[i64]| Tensor::arange(sizes.iter().product::<i64>()).reshape(sizes);
    insta::assert_snapshot!(book([
        ("no dimension", Tensor::scalar(3.25f32)),
        ("no dimension, a boolean", Tensor::scalar(true)),
        ("lines of 80 characters", count(&[30])),
        ("a matrix", count(&[2, 3])),
        ("three dimensions", count(&[2, 2, 2])),
        ("a summary", count(&[1001])),
        ("a summary of rows", count(&[1000, 3])),
        ("a summary of rows and columns", count(&[100, 100])),
        ("short dimensions are whole", count(&[2, 2, 300])),
        ("strides", count(&[2, 3]).t()),
        ("an expanded tensor is not read as a whole", Tensor::scalar(1.5f64).expand([1i64 << 40])),
        ("empty", floats(&[])),
        ("empty, with sizes", Tensor::zeros([2, 0], DType::F32)),
        ("empty, of another dtype", Tensor::zeros([0], DType::I64)),
        ("a line that is too long for the dtype", Tensor::from([1234567i32; 8])),
    ]));
}

#[test]
fn without_contents() {
    let meta = |sizes: &[i64]| Meta::contiguous(sizes, DType::I32);
    insta::assert_snapshot!(book([
        ("fake", Tensor::fake([2, 3], DType::F32)),
        ("fake integers", Tensor::fake([3], DType::I64)),
        ("on no device", Tensor::fake_of(meta(&[2]).on(Device::Meta))),
        ("requires gradient", Tensor::fake([0; 0], DType::F32).requires_grad_(),),
    ]));
    let poisoned = Tensor::poison(Error::msg("the disk is full"));
    assert!(poisoned.to_string().starts_with("tensor(poisoned: the disk is full"), "{poisoned}");
}

#[test]
fn debug_is_one_line() {
    let y = Tensor::arange(1000).reshape([10, 100]);
    assert_eq!(format!("{y:?}"), "Tensor(i64[10, 100], [0, 1, 2, 3, 4, 5, 6, 7] … 1000 in all)");
    assert_eq!(format!("{:?}", Tensor::fake([2], DType::F32)), "Tensor(f32[2], fake)");
}
