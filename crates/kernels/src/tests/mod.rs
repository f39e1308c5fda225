//! The kernels against plain loops, one file per kernel class.

mod attention;
mod conv;
mod copy;
mod gemm;
mod gemm_epilogue;
mod pooling;
mod product_errors;
mod random;
mod rows;
mod same_bits;
mod scan_sort;

use crate::{Element, View, ViewMut, Window};

/// `n` deterministic values between -2.5 and 2.5, multiples of 1/8.
fn values(n: usize) -> Vec<f64> {
    (0..n).map(|i| ((i * 7919 + 13) % 41) as f64 / 8.0 - 2.5).collect()
}

/// A contiguous view of a slice.
fn view<'a, T: Element>(x: &'a [T], sizes: &[i64]) -> View<'a> {
    View::from_slice_sized(x, sizes).expect("fits")
}

/// A contiguous writable view of a slice.
fn view_mut<'a, T: Element>(x: &'a mut [T], sizes: &[i64]) -> ViewMut<'a> {
    ViewMut::from_slice_sized(x, sizes).expect("fits")
}

/// A window with the same stride, padding and dilation in every dimension.
fn window(kernel: &[i64], stride: i64, padding: i64, dilation: i64) -> Window {
    let n = kernel.len();
    Window {
        kernel: kernel.to_vec(),
        stride: vec![stride; n],
        padding: vec![padding; n],
        dilation: vec![dilation; n],
        ceil_mode: false,
    }
}
