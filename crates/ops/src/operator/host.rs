//! Host kernels of rare operators are plain loops over vectors of elements. This module has their
//! helpers: reading a tensor of any dtype, writing results, and fallible allocation.

use crate::dispatch::cpu_exec;
use crate::error::{AccessError, Result};
use crate::tensor::Tensor;
use crate::tensor::element::Element;
use maquette_ir::{DType, Scalar};
use maquette_kernels::{Class, Element as _};

pub use crate::typed;

/// A tensor of numbers of the host on the device of another tensor, for a composite.
pub fn on_device_of(like: &Tensor, t: Tensor) -> Tensor {
    if t.device() == like.device() { t } else { t.to_device(like.device()) }
}

/// The elements in row-major order, copied.
pub fn data<T: Element>(t: &Tensor) -> Result<Vec<T>> {
    let x = t.read::<T>()?;
    collect(x.len(), x.iter().copied())
}

/// Collects at most `n` elements.
///
/// # Errors
/// There is no memory for `n` elements: an argument may give any length, and an expanded tensor may
/// have more elements than memory.
pub fn collect<T: Element>(n: usize, values: impl IntoIterator<Item = T>) -> Result<Vec<T>> {
    gather(n, T::DTYPE, values)
}

/// The index table `[f(0), …, f(n - 1)]`. Fails as [`collect`].
pub fn table(n: usize, f: impl Fn(usize) -> usize) -> Result<Vec<usize>> {
    gather(n, DType::I64, (0..n).map(f))
}

/// Collects at most `n` values that are computed from elements of a dtype. Fails as [`collect`]: a
/// batch may have more empty matrices than fit into memory.
pub fn gather<T>(n: usize, dtype: DType, values: impl IntoIterator<Item = T>) -> Result<Vec<T>> {
    let mut out = Vec::new();
    out.try_reserve_exact(n)
        .map_err(|_| AccessError::Allocation { sizes: format!("[{n}]"), dtype })?;
    out.extend(values.into_iter().take(n));
    Ok(out)
}

/// `n` copies of a number. Fails as [`collect`].
pub fn filled<T: Element>(value: T, n: usize) -> Result<Vec<T>> {
    collect(n, std::iter::repeat_n(value, n))
}

/// Passes the elements of a fresh output to `f` in row-major order, for any strides of the output.
pub fn fill_with<T: Element>(out: &Tensor, f: impl FnOnce(&mut [T])) -> Result<()> {
    let mut out = out.clone();
    let mut guard = out.write::<T>()?;
    if let Some(s) = guard.as_slice_mut() {
        f(s);
        return Ok(());
    }
    let mut flat = collect(guard.len(), guard.iter().copied())?;
    f(&mut flat);
    guard.iter_mut().zip(flat).for_each(|(o, x)| *o = x);
    Ok(())
}

/// The elements of a tensor of any dtype in row-major order, as `f64`. Integers beyond 2^53 are
/// rounded.
pub fn reals(t: &Tensor) -> Result<Vec<f64>> {
    typed!(t.dtype(), T => {
        let x = t.read::<T>()?;
        collect(x.len(), x.iter().map(|x| x.load().to_f64()))
    })
}

/// Fills a fresh output with values in row-major order. Each value is rounded once to the dtype.
pub fn store_reals(out: &Tensor, values: &[f64]) -> Result<()> {
    typed!(out.dtype(), T => fill_with::<T>(out, |o| {
        o.iter_mut().zip(values).for_each(|(o, x)| *o = T::store(Class::cast(*x)));
    }))
}

/// The sizes as plain integers.
pub fn sizes(t: &Tensor) -> Result<Vec<usize>> {
    Ok(t.sizes_i64()?.into_iter().map(|n| n.max(0) as usize).collect())
}

/// The number of elements of a tensor with these sizes. The product saturates.
pub fn count(sizes: &[usize]) -> usize {
    if sizes.contains(&0) { 0 } else { sizes.iter().fold(1, |n, s| n.saturating_mul(*s)) }
}

/// Fills a tensor with a number.
pub fn fill(out: &Tensor, value: Scalar) -> Result<()> {
    Ok(maquette_kernels::fill(&mut cpu_exec::output(out)?, value)?)
}

/// `out[i, j, …] = x[tables[0][i], tables[1][j], …]`, as in nearest-neighbour resampling.
pub fn separable(x: &Tensor, out: &Tensor, tables: &[Vec<usize>]) -> Result<()> {
    typed!(x.dtype(), T => {
        let x = x.read::<T>()?;
        fill_with::<T>(out, |o| {
            let mut index = vec![0usize; tables.len()];
            let mut at: Vec<usize> = tables.iter().filter_map(|t| t.first().copied()).collect();
            for o in o {
                if let Some(&v) = x.get(at.as_slice()) {
                    *o = v;
                }
                for d in (0..tables.len()).rev() {
                    index[d] = (index[d] + 1) % tables[d].len();
                    at[d] = tables[d][index[d]];
                    if index[d] != 0 {
                        break;
                    }
                }
            }
        })
    })
}
