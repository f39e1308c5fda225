//! `max_unpool2d`, `max_unpool3d` and the gradient of `max_pool2d`: elements are scattered to the
//! positions from which a pool took them.

use super::pooling::{max_sliding, pooled_meta};
use super::{compute, is_empty, numbers, require_full, rounding};
use maquette_ir::DType;
use maquette_ops::operator::dims::{
    fresh, require, require_float, require_rank, require_same_dtype,
};
use maquette_ops::operator::lowering::{Class, How, Metas, Strides};
use maquette_ops::operator::require_same;
use maquette_ops::operator::{dims_text, host, table};
use maquette_ops::{Dims, Error, Result, Tensor, Value};
use smallvec::smallvec;

#[track_caller]
fn require_positions(indices: &Tensor, like: &Tensor) -> Result<()> {
    if indices.dtype() != DType::I64 {
        return Err(Error::value(format!(
            "argument `indices` must hold i64, found {}{}",
            indices.dtype(),
            dims_text(indices.sizes())
        )));
    }
    require_same(like.sizes(), indices.sizes(), || "argument `indices` must have".into())
}

/// The metadata of unpooling, after a check of indices and output sizes.
#[track_caller]
fn unpooled_meta(args: &[Value], space: usize) -> Result<Metas> {
    let (x, to) = (args[0].tensor()?, args[2].ints()?);
    require_float("self", x)?;
    require_rank("self", x, space + 1..=space + 2)?;
    require_positions(args[1].tensor()?, x)?;
    require_full("self", x, 1)?;
    if to.len() != space {
        return Err(Error::value(format!(
            "`output_size` must hold {space} numbers, found {}",
            dims_text(to)
        )));
    }
    for &n in to {
        require(n.ge(0), || {
            format!("`output_size` must not be negative, found {}", dims_text(to))
        })?;
    }
    let sizes: Dims = x.sizes()[..x.dim() - space].iter().chain(to).copied().collect();
    if space == 3 {
        // PyTorch checks stride and padding, and does not use them otherwise.
        numbers::<3>("stride", &args[3], 1)?;
        numbers::<3>("padding", &args[4], i64::MIN)?;
        return Ok(smallvec![fresh(x, sizes, x.dtype())]);
    }
    Ok(smallvec![pooled_meta(x, sizes, x.dtype())?])
}

/// Writes every element of `x` to its position in its plane of `out`, which is zero elsewhere.
/// `put` combines it with the element at the position.
fn scatter_by_index(
    x: &Tensor,
    indices: &Tensor,
    out: &Tensor,
    space: usize,
    put: impl Fn(&mut f64, f64),
) -> Result<()> {
    if is_empty(out) && is_empty(x) {
        return Ok(());
    }
    let plane = |t: &Tensor| -> Result<usize> {
        Ok(host::count(&host::sizes(t)?.split_off(t.dim() - space)))
    };
    let (small, large) = (plane(x)?, plane(out)?);
    let (elements, positions) = (host::reals(x)?, host::data::<i64>(indices)?);
    let mut result = host::filled(0.0, out.numel().as_i64().unwrap_or(0) as usize)?;
    for (i, (x, at)) in elements.into_iter().zip(positions).enumerate() {
        let target = usize::try_from(at)
            .ok()
            .filter(|at| *at < large)
            .and_then(|at| result.get_mut(i / small.max(1) * large + at));
        let target = target.ok_or_else(|| {
            Error::value(format!(
                "argument `indices` holds {at}, which is not a position in a plane of sizes {}",
                dims_text(out.sizes())
            ))
        })?;
        put(target, x);
    }
    host::store_reals(out, &result)
}

fn unpool(args: &[Value], out: &Tensor, space: usize) -> Result<()> {
    scatter_by_index(args[0].tensor()?, args[1].tensor()?, out, space, |there, x| *there = x)
}

#[track_caller]
fn backward_meta(args: &[Value]) -> Result<Metas> {
    let (grad, x) = (args[0].tensor()?, args[1].tensor()?);
    require_float("self", x)?;
    require_same_dtype(("grad_output", grad), ("self", x))?;
    let pooled = max_sliding(&args[1..], 2)?.output(x)?;
    require_same(&pooled.sizes, grad.sizes(), || "argument `grad_output` must have".into())?;
    require_positions(args[7].tensor()?, grad)?;
    Ok(smallvec![pooled_meta(x, x.sizes().into(), x.dtype())?])
}

table! {
    /// Unpooling.
    static TABLE = {
        "aten::max_unpool2d(Tensor self, Tensor indices, \
            SymInt[2] output_size) -> Tensor" => {
            role: General,
            lowering: compute(
                Class::Scatter,
                Strides::RowMajor,
                |_, a| unpooled_meta(a, 2),
                How::Host(|a, out| unpool(a, &out[0], 2)),
            ),
            vjp: crate::grad::MAX_UNPOOL2D,
        },
        "aten::max_unpool3d(Tensor self, Tensor indices, SymInt[3] output_size, \
            int[3] stride, int[3] padding) -> Tensor" => {
            role: General,
            lowering: compute(
                Class::Scatter,
                Strides::RowMajor,
                |_, a| unpooled_meta(a, 3),
                How::Host(|a, out| unpool(a, &out[0], 3)),
            ),
            vjp: crate::grad::MAX_UNPOOL3D,
        },
        "aten::max_pool2d_with_indices_backward(Tensor grad_output, Tensor self, \
            int[2] kernel_size, int[2] stride, int[2] padding, int[2] dilation, bool ceil_mode, \
            Tensor indices) -> Tensor" => {
            role: General,
            lowering: compute(
                Class::Scatter,
                Strides::RowMajor,
                |_, a| backward_meta(a),
                How::Host(|a, out| {
                    let round = rounding(out[0].dtype());
                    scatter_by_index(a[0].tensor()?, a[7].tensor()?, &out[0], 2, |there, x| {
                        *there = round(*there + x)
                    })
                }),
            ),
            vjp: crate::grad::MAX_POOL2D_BACKWARD,
        },
    }
}
