//! Tensors from sizes, numbers and chance.

use super::aten;
use super::calls::calls;
use crate::dispatch::value::Value;
use crate::tensor::Tensor;
use crate::tensor::meta::IntoDims;
use maquette_ir::sym::SymInt;
use maquette_ir::{DType, Device, Loc, Scalar};

calls! {
    /// Of these sizes and dtype on this tensor's device, the contents unspecified.
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
    /// Of this tensor's sizes, dtype and memory order, the contents unspecified.
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
    /// 1 with the probability that each element is, else 0.
    fn bernoulli() = "bernoulli";
    /// Filled with uniform numbers in `[from, to)`.
    fn uniform_(from: f64, to: f64) = "uniform_", from, to;
    /// Filled with normal numbers.
    fn normal_(mean: f64, std: f64) = "normal_", mean, std;
    /// Filled with 1, with probability `p`, and 0.
    fn bernoulli_(p: f64) = "bernoulli_.float", p;
    /// While training, each element 0 with probability `p`, and the others divided by `1 - p`; else
    /// a copy.
    fn dropout(p: f64, train: bool) = "dropout", p, train;
}

/// Constructors: the operator's arguments before its options, and the dtype.
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
    /// Of these sizes, the contents unspecified.
    fn empty(size: impl IntoDims, dtype: DType) =
        "empty.memory_format", Value::from_dims(size), dtype;
    /// Of these sizes and strides, the contents unspecified.
    fn empty_strided(size: impl IntoDims, stride: impl IntoDims, dtype: DType) =
        "empty_strided", Value::from_dims(size), Value::from_dims(stride), dtype;
    /// Zeros.
    fn zeros(size: impl IntoDims, dtype: DType) = "zeros", Value::from_dims(size), dtype;
    /// Ones.
    fn ones(size: impl IntoDims, dtype: DType) = "ones", Value::from_dims(size), dtype;
    /// `fill_value` everywhere.
    fn full(size: impl IntoDims, fill_value: impl Into<Scalar>, dtype: DType) =
        "full", Value::from_dims(size), fill_value.into(), dtype;
    /// The integers from 0 up to but not `end`, as `i64`.
    fn arange(end: impl Into<SymInt>) = "arange", end.into();
    /// From `start` in steps of `step` up to but not `end`; `i64` where all are integers, else
    /// `f32`.
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
    /// Of these sizes and dtype on a device, the contents unspecified.
    ///
    /// PyTorch: `aten::empty.memory_format`.
    #[track_caller]
    pub fn empty_on(size: impl IntoDims, dtype: DType, device: Device) -> Tensor {
        aten!("empty.memory_format", Loc::caller(); Value::from_dims(size), dtype, (), device)
    }
}
