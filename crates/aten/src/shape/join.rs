//! Concatenation and repetition: `cat`, `stack`, `repeat`, `tile`.

use super::structure::tensors;
use super::views;
use crate::create::copies::copy_of;
use maquette_ir::sym::SymInt;
use maquette_ir::typing::promote;
use maquette_ops::operator::dims::{
    done, fresh, in_channels_last, is_channels_last, is_zero, require,
};
use maquette_ops::operator::loops::{NestCx, NestResults};
use maquette_ops::operator::lowering::{Class, Compute, How, Lowering, Metas, Strides};
use maquette_ops::operator::{cpu_exec, dims_text, table};
use maquette_ops::operator::{require_equal, require_same, wrap_dim};
use maquette_ops::{Dims, Error, FakeCtx, Meta, Result, Tensor, Value};
use smallvec::smallvec;

pub(crate) const fn compute(
    class: Class,
    strides: Strides,
    metas: fn(&FakeCtx, &[Value]) -> Result<Metas>,
    how: How,
) -> Lowering {
    Lowering::Compute(Compute { class, strides, metas, how })
}

/// Whether a tensor is empty and 1-d. For compatibility, PyTorch's `cat` ignores such tensors.
fn is_placeholder(t: &Tensor) -> bool {
    t.dim() == 1 && t.sizes()[0].as_i64() == Some(0)
}

/// The metadata of a concatenation. It is channels-last if all parts are.
#[track_caller]
fn cat_meta(parts: &[&Tensor], dim: i64) -> Result<Meta> {
    let dtype = promote(
        parts
            .iter()
            .map(|t| maquette_ops::operator::lowering::operand(&Value::Tensor((*t).clone()))),
    );
    // a 1-d part of symbolic size is a placeholder if the ranks leave no other possibility
    let may_be_placeholder =
        |t: &Tensor| is_placeholder(t) || t.dim() == 1 && t.sizes()[0].as_i64().is_none();
    let certain = parts.iter().find(|t| !may_be_placeholder(t));
    let Some(first) = certain.or_else(|| parts.iter().find(|t| !is_placeholder(t))) else {
        return Ok(fresh(parts[0], parts[0].sizes().into(), dtype));
    };
    // Placeholders alone have no dimension for `dim` to name.
    if certain.is_none() && wrap_dim(dim, 1).is_err() {
        let mut are_empty = true;
        for t in parts {
            are_empty = are_empty && is_zero(t.sizes()[0])?;
        }
        if are_empty {
            return Ok(fresh(parts[0], smallvec![0.into()], dtype));
        }
    }
    if first.dim() == 0 {
        return Err(Error::value(
            "argument `tensors` holds a 0-d tensor, which cannot be concatenated",
        ));
    }
    let d = wrap_dim(dim, first.dim())?;
    let mut sizes: Dims = first.sizes().into();
    let mut channels_last = true;
    sizes[d] = 0.into();
    for (i, t) in parts.iter().enumerate().filter(|(_, t)| !is_placeholder(t)) {
        let misfit = || {
            let (expected, found) = (dims_text(first.sizes()), dims_text(t.sizes()));
            format!(
                "`tensors[{i}]` must have sizes {expected} except in dimension {dim}, found sizes \
                    {found}"
            )
        };
        let mismatch = || Error::value(misfit());
        if t.dim() != sizes.len() && may_be_placeholder(t) {
            require(t.sizes()[0].eq(0), misfit)?;
            continue;
        }
        if t.dim() != sizes.len() {
            return Err(mismatch());
        }
        for k in (0..sizes.len()).filter(|&k| k != d) {
            require_equal(sizes[k], t.sizes()[k], &mismatch)?;
        }
        sizes[d] += t.sizes()[d];
        channels_last = channels_last && is_channels_last(t.meta())?;
    }
    let m = fresh(first, sizes, dtype);
    Ok(if channels_last { in_channels_last(m) } else { m })
}

fn cat(args: &[Value], out: &Tensor) -> Result<()> {
    let parts = tensors("tensors", &args[0])?;
    let mut start = SymInt::from(0);
    for t in parts.into_iter().filter(|t| !is_placeholder(t)) {
        let dim = wrap_dim(args[1].int_i64()?, t.dim())?;
        let length = t.sizes()[dim];
        cpu_exec::copy(t, &out.view_of(views::narrow(out.meta(), dim as i64, start, length)?)?)?;
        start += length;
    }
    Ok(())
}

fn stack(parts: &[&Tensor], dim: i64) -> Result<Tensor> {
    let dim = wrap_dim(dim, parts[0].dim() + 1)? as i64;
    for (i, t) in parts.iter().enumerate() {
        require_same(parts[0].sizes(), t.sizes(), || format!("`tensors[{i}]` must have"))?;
    }
    Ok(Tensor::cat(&parts.iter().map(|t| t.unsqueeze(dim)).collect::<Vec<_>>(), dim))
}

fn repeat_meta(x: &Tensor, repeats: &[SymInt]) -> Result<Meta> {
    let lead = repeats.len().checked_sub(x.dim()).ok_or_else(|| {
        Error::value(format!(
            "`repeats` must have at least {} entries, one per dimension, found {}",
            x.dim(),
            dims_text(repeats)
        ))
    })?;
    for r in repeats {
        require(r.ge(0), || {
            format!("`repeats` must not be negative, found {}", dims_text(repeats))
        })?;
    }
    let sizes = repeats
        .iter()
        .enumerate()
        .map(|(d, &r)| d.checked_sub(lead).map_or(r, |d| r * x.sizes()[d]))
        .collect();
    Ok(fresh(x, sizes, x.dtype()))
}

/// A view of `t` with two dimensions for each repeat: the repeat, and the dimension of argument 0
/// to which it belongs, if there is one. `strides` gives those of both.
fn with_repeats(
    args: &[Value],
    t: &Tensor,
    strides: impl Fn(usize, Option<usize>) -> [SymInt; 2],
) -> Result<Tensor> {
    let (x, repeats) = (args[0].tensor()?, args[1].ints()?);
    let lead = repeats.len().saturating_sub(x.dim());
    let mut m = t.meta().with_dims(Dims::new(), Dims::new());
    for (d, &times) in repeats.iter().enumerate() {
        let of = d.checked_sub(lead);
        let [outer, inner] = strides(d, of);
        m.sizes.push(times);
        m.strides.push(outer);
        if let Some(of) = of {
            m.sizes.push(x.sizes()[of]);
            m.strides.push(inner);
        }
    }
    t.view_of(m)
}

/// A repetition is a copy of a view with strides of 0 into a view of the result.
fn repeat(cx: &mut NestCx<'_>) -> Result<NestResults> {
    cx.view_result(|a, out| {
        let x = a[0].tensor()?;
        with_repeats(a, out, |d, of| {
            let stride = out.strides()[d];
            [of.map_or(stride, |d| stride * x.sizes()[d]), stride]
        })
    });
    copy_of(cx, |a| {
        let x = a[0].tensor()?;
        with_repeats(a, x, |_, of| [0.into(), of.map_or(0.into(), |d| x.strides()[d])])
    })
}

table! {
    /// Concatenation and repetition.
    static TABLE = {
        "aten::cat(Tensor[] tensors, int dim=0) -> Tensor" => {
            role: Concatenates,
            lowering: compute(
                Class::Copy,
                Strides::FromOperands,
                |_, a| Ok(smallvec![cat_meta(&tensors("tensors", &a[0])?, a[1].int_i64()?)?]),
                How::Host(|a, out| cat(a, &out[0])),
            ),
            vjp: crate::grad::CAT,
        },
        "aten::stack(Tensor[] tensors, int dim=0) -> Tensor" => {
            role: General,
            lowering: Lowering::Composite(
                |a| done(stack(&tensors("tensors", &a[0])?, a[1].int_i64()?)?),
            ),
        },
        "aten::repeat(Tensor self, SymInt[] repeats) -> Tensor" => {
            role: General,
            lowering: compute(
                Class::Gather,
                Strides::RowMajor,
                |_, a| Ok(smallvec![repeat_meta(a[0].tensor()?, a[1].ints()?)?]),
                How::Loops(repeat),
            ),
            vjp: crate::grad::REARRANGED,
        },
        "aten::tile(Tensor self, SymInt[] dims) -> Tensor" => {
            role: General,
            lowering: Lowering::Composite(|a| {
                let (x, dims) = (a[0].tensor()?, a[1].ints()?);
                let mut repeats: Dims =
                    smallvec![SymInt::from(1); x.dim().saturating_sub(dims.len())];
                repeats.extend_from_slice(dims);
                done(x.repeat(repeats))
            }),
        },
    }
}
