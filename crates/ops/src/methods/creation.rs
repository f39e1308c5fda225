//! Creation of tensors: by sizes, from numbers, and from random numbers.

use super::aten;
use super::calls::calls;
use crate::dispatch::value::Value;
use crate::tensor::Tensor;
use crate::tensor::meta::IntoDims;
use maquette_ir::sym::SymInt;
use maquette_ir::{DType, Device, Loc, Scalar};

calls! {
    /// An uninitialised tensor of these sizes and dtype on this tensor's device.
    fn new_empty(size: impl IntoDims, dtype: DType) = "new_empty", Value::from_dims(size), dtype;
    /// As [`Tensor::new_empty`], with these strides.
    fn new_empty_strided(size: impl IntoDims, stride: impl IntoDims, dtype: DType) =
        "new_empty_strided", Value::from_dims(size), Value::from_dims(stride), dtype;
    /// Zeros of these sizes and dtype on this tensor's device.
    fn new_zeros(size: impl IntoDims, dtype: DType) = "new_zeros", Value::from_dims(size), dtype;
    /// Ones of these sizes and dtype on this tensor's device.
    fn new_ones(size: impl IntoDims, dtype: DType) = "new_ones", Value::from_dims(size), dtype;
    /// `fill_value` in these sizes and dtype on this tensor's device.
    fn new_full(size: impl IntoDims, fill_value: impl Into<Scalar>, dtype: DType) =
        "new_full", Value::from_dims(size), fill_value.into(), dtype;
    /// An uninitialised tensor of this tensor's sizes, dtype and memory order.
    fn empty_like() = "empty_like";
    /// Zeros of this tensor's sizes, dtype and memory order.
    fn zeros_like() = "zeros_like";
    /// Ones of this tensor's sizes, dtype and memory order.
    fn ones_like() = "ones_like";
    /// `fill_value` in this tensor's sizes, dtype and memory order.
    fn full_like(fill_value: impl Into<Scalar>) = "full_like", fill_value.into();
    /// Uniform in [0, 1), of this tensor's sizes, dtype and memory order.
    fn rand_like() = "rand_like";
    /// Normal with mean 0 and deviation 1, of this tensor's sizes, dtype and memory order.
    fn randn_like() = "randn_like";
    /// Integers from `low` up to but not `high`, of this tensor's sizes, dtype and memory order.
    fn randint_like(low: impl Into<SymInt>, high: impl Into<SymInt>) =
        "randint_like.low_dtype", low.into(), high.into();
    /// Draws 0 or 1 for each element, which is the probability of 1.
    fn bernoulli() = "bernoulli";
    /// Fills this tensor with uniform random numbers in `[from, to)`.
    fn uniform_(from: f64, to: f64) = "uniform_", from, to;
    /// Fills this tensor with normal random numbers.
    fn normal_(mean: f64, std: f64) = "normal_", mean, std;
    /// Fills this tensor with 0 and 1. The probability of 1 is `p`.
    fn bernoulli_(p: f64) = "bernoulli_.float", p;
    /// If `train`, sets each element to 0 with probability `p` and divides the others by `1 - p`.
    /// Otherwise a copy.
    fn dropout(p: f64, train: bool) = "dropout", p, train;
}

/// Declares constructors: the arguments of the operator before its options, then the dtype.
macro_rules! constructors {
    ($(
        $(#[$doc:meta])*
        fn $name:ident($($arg:ident : $ty:ty),* $(,)?) = $op:literal, $($value:expr),*;
    )*) => {
        impl Tensor {
            $(
                $(#[$doc])*
                #[doc = concat!("\n\nOn the host. PyTorch: \
                    `aten::", $op, "`. Poisoned where a size is symbolic outside a trace: in a \
                        fake kernel use `x.new_empty(…)`.")]
                #[track_caller]
                pub fn $name($($arg: $ty),*) -> Tensor {
                    aten!($op, Loc::caller(); $($value),*)
                }
            )*
        }
    };
}

constructors! {
    /// An uninitialised tensor of these sizes.
    fn empty(size: impl IntoDims, dtype: DType) =
        "empty.memory_format", Value::from_dims(size), dtype;
    /// An uninitialised tensor of these sizes and strides.
    fn empty_strided(size: impl IntoDims, stride: impl IntoDims, dtype: DType) =
        "empty_strided", Value::from_dims(size), Value::from_dims(stride), dtype;
    /// Zeros.
    fn zeros(size: impl IntoDims, dtype: DType) = "zeros", Value::from_dims(size), dtype;
    /// Ones.
    fn ones(size: impl IntoDims, dtype: DType) = "ones", Value::from_dims(size), dtype;
    /// `fill_value` everywhere.
    fn full(size: impl IntoDims, fill_value: impl Into<Scalar>, dtype: DType) =
        "full", Value::from_dims(size), fill_value.into(), dtype;
    /// The integers from 0 to `end - 1`, as `i64`.
    fn arange(end: impl Into<SymInt>) = "arange", end.into();
    /// The numbers from `start` in steps of `step`, up to but excluding `end`. The dtype is `i64`
    /// if all three are integers, else `f32`.
    fn arange_step(start: impl Into<Scalar>, end: impl Into<Scalar>, step: impl Into<Scalar>) =
        "arange.start_step", start.into(), end.into(), step.into();
    /// `steps` evenly spaced numbers, both ends included, as `f32`.
    fn linspace(start: impl Into<Scalar>, end: impl Into<Scalar>, steps: impl Into<SymInt>) =
        "linspace", start.into(), end.into(), steps.into();
    /// The identity matrix.
    fn eye(n: impl Into<SymInt>, dtype: DType) = "eye", n.into(), dtype;
    /// Uniform in [0, 1).
    fn rand(size: impl IntoDims, dtype: DType) = "rand", Value::from_dims(size), dtype;
    /// Normal with mean 0 and deviation 1.
    fn randn(size: impl IntoDims, dtype: DType) = "randn", Value::from_dims(size), dtype;
    /// Integers from `low` up to but not `high`, as `i64`.
    fn randint(low: impl Into<SymInt>, high: impl Into<SymInt>, size: impl IntoDims) =
        "randint.low", low.into(), high.into(), Value::from_dims(size);
}

impl Tensor {
    /// An uninitialised tensor of these sizes and dtype on a device.
    ///
    /// PyTorch: `aten::empty.memory_format`.
    #[track_caller]
    pub fn empty_on(size: impl IntoDims, dtype: DType, device: Device) -> Tensor {
        aten!("empty.memory_format", Loc::caller(); Value::from_dims(size), dtype, (), device)
    }
}
