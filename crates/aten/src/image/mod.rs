//! Operators on the spatial dimensions of images and volumes: resampling, grid sampling, padding,
//! patches, pooling over regions, unpooling, and rearrangement of pixels and channels.

pub(crate) mod convolution;
pub(crate) mod derivative;
mod grid;
mod pad;
mod patches;
pub(crate) mod pooling;
mod rearrange;
pub(crate) mod regions;
mod resample;
mod taps;
mod unpool;

use maquette_ir::DType;
use maquette_ops::operator::dims::require;
use maquette_ops::operator::lowering::{Class, Compute, How, Lowering, Metas, Strides};
use maquette_ops::operator::{dims_text, host};
use maquette_ops::{Error, FakeCtx, Result, Tensor, Value};

const fn compute(
    class: Class,
    strides: Strides,
    metas: fn(&FakeCtx, &[Value]) -> Result<Metas>,
    how: How,
) -> Lowering {
    Lowering::Compute(Compute { class, strides, metas, how })
}

/// Requires a tensor argument to have no empty dimension from dimension `from` on.
#[track_caller]
fn require_full(arg: &str, t: &Tensor, from: usize) -> Result<()> {
    for &n in t.sizes().iter().skip(from) {
        require(n.gt(0), || {
            format!(
                "argument `{arg}` must have no empty dimension{}, found sizes {}",
                if from > 0 { " but the batch" } else { "" },
                dims_text(t.sizes())
            )
        })?;
    }
    Ok(())
}

/// A list of exactly `N` integers that are at least `least`.
#[track_caller]
fn numbers<const N: usize>(arg: &str, v: &Value, least: i64) -> Result<[i64; N]> {
    let list = v.ints_i64()?;
    match <[i64; N]>::try_from(list.as_slice()) {
        Ok(n) if n.iter().all(|i| *i >= least) => Ok(n),
        _ => Err(Error::value(format!(
            "`{arg}` must hold {N} numbers of at least {least}, found {list:?}"
        ))),
    }
}

/// Whether a tensor has no elements.
fn is_empty(t: &Tensor) -> bool {
    t.numel().as_i64() == Some(0)
}

/// The function that rounds to a dtype. For integers and f64 it is the identity.
fn rounding(d: DType) -> fn(f64) -> f64 {
    match d {
        DType::F16 => |x| f64::from(half::f16::from_f64(x)),
        DType::BF16 => |x| f64::from(half::bf16::from_f64(x)),
        DType::F32 => taps::single,
        _ => |x| x,
    }
}

/// Calls `f` with every index of `sizes` in row-major order.
fn each_index(sizes: &[usize], mut f: impl FnMut(&[usize])) {
    let mut index = vec![0; sizes.len()];
    for _ in 0..host::count(sizes) {
        f(&index);
        for (i, n) in index.iter_mut().zip(sizes).rev() {
            *i += 1;
            if *i < *n {
                break;
            }
            *i = 0;
        }
    }
}
