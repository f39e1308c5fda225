//! Order statistics of lines: `median`, `nanmedian`, `mode`, `kthvalue`. Medians and k-th values
//! use quickselect, linear on average; modes sort.

use super::{Keys, Lines, refuse_bool, store_integers, take};
use crate::reduce::{picked, reduced};
use maquette_ir::{DType, Scalar};
use maquette_ops::operator::dims::{done, require};
use maquette_ops::operator::lowering::{Class, Compute, How, Lowering, Metas, Strides};
use maquette_ops::operator::wrap_dim;
use maquette_ops::operator::{host, table};
use maquette_ops::{Error, FakeCtx, Result, Tensor, Value};
use smallvec::smallvec;

const fn sorted(
    metas: fn(&FakeCtx, &[Value]) -> Result<Metas>,
    run: fn(&[Value], &[Tensor]) -> Result<()>,
) -> Lowering {
    Lowering::Compute(Compute {
        class: Class::Sort,
        strides: Strides::FromOperands,
        metas,
        how: How::Host(run),
    })
}

/// The metadata of values and indices over the dimension in argument `dim`. Argument `dim + 1` is
/// `keepdim`.
fn metas(args: &[Value], dim: usize) -> Result<Metas> {
    let x = args[0].tensor()?;
    let d = wrap_dim(args[dim].int_i64()?, x.dim())?;
    let dims = if x.dim() == 0 { &[][..] } else { &[d] };
    let values = picked(x, dims, args[dim + 1].bool()?, x.dtype())?;
    Ok(smallvec![values.clone(), values.with_dtype(DType::I64)])
}

/// Fills values and indices with the element that `choose` selects from the keys of each line.
fn choose_along(
    args: &[Value],
    dim: usize,
    outs: &[Tensor],
    choose: impl Fn(&Keys, &[i64]) -> Option<usize>,
) -> Result<()> {
    let x = args[0].tensor()?;
    if outs[0].numel().as_i64() == Some(0) {
        return Ok(()); // lines may still be long
    }
    let (lines, keys) = (Lines::of(x, wrap_dim(args[dim].int_i64()?, x.dim())?)?, Keys::of(x)?);
    let (mut at, mut indices) = (Vec::with_capacity(lines.count), Vec::with_capacity(lines.count));
    let mut line = vec![0; lines.len];
    for l in 0..lines.count {
        line.iter_mut().enumerate().for_each(|(i, k)| *k = keys.all[lines.at(l, i)]);
        let i = choose(&keys, &line)
            .ok_or_else(|| Error::value("cannot select from a dimension without elements"))?;
        at.push(lines.at(l, i));
        indices.push(i as i64);
    }
    take(x, &at, &outs[0])?;
    store_integers(&outs[1], &indices)
}

/// The position of the `k`-th smallest key, from 0. Equal keys are ordered by position.
fn kth(line: &[i64], k: usize) -> Option<usize> {
    let mut order: Vec<usize> = (0..line.len()).collect();
    (k < order.len()).then(|| *order.select_nth_unstable_by_key(k, |&i| (line[i], i)).1)
}

/// The position of the lower median. It is the first NaN, if there is one and `skip` is false. With
/// `skip`, NaN counts only if there are no numbers.
fn median(keys: &Keys, line: &[i64], skip: bool) -> Option<usize> {
    let is_nan = |k: &i64| keys.is_nan(*k);
    if !skip && let Some(i) = line.iter().position(is_nan) {
        return Some(i);
    }
    // NaN is above all numbers in the order of keys.
    let numbers = line.iter().filter(|k| !is_nan(k)).count();
    kth(line, numbers.saturating_sub(1) / 2)
}

/// The last position of the most frequent element, or of the smallest of several. NaN equals
/// nothing, so each NaN counts once.
fn mode(keys: &Keys, line: &[i64]) -> Option<usize> {
    let mut order: Vec<usize> = (0..line.len()).collect();
    order.sort_unstable_by_key(|&i| (line[i], i));
    let mut best: Option<&[usize]> = None;
    for run in order.chunk_by(|&a, &b| line[a] == line[b] && !keys.is_nan(line[a])) {
        if best.is_none_or(|b| run.len() > b.len()) {
            best = Some(run);
        }
    }
    best?.last().copied()
}

fn median_metas(args: &[Value]) -> Result<Metas> {
    refuse_bool("self", &args[0])?;
    metas(args, 1)
}

fn median_of_all_meta(args: &[Value]) -> Result<Metas> {
    let x = args[0].tensor()?;
    refuse_bool("self", &args[0])?;
    Ok(smallvec![reduced(x, &(0..x.dim()).collect::<Vec<_>>(), false, x.dtype())])
}

/// The median of all elements. That of no elements is NaN. For integers, PyTorch converts NaN as
/// x86 does: to the minimum of i32 or i64, which narrower integers truncate to 0.
fn median_of_all(args: &[Value], out: &Tensor, skip: bool) -> Result<()> {
    let x = args[0].tensor()?;
    let keys = Keys::of(x)?;
    match median(&keys, &keys.all, skip) {
        Some(i) => take(x, &[i], out),
        None if out.dtype() == DType::I32 => host::fill(out, Scalar::Int(i32::MIN.into())),
        None => host::store_reals(out, &[f64::NAN]),
    }
}

fn kthvalue_metas(args: &[Value]) -> Result<Metas> {
    let (x, k) = (args[0].tensor()?, args[1].int()?);
    refuse_bool("self", &args[0])?;
    let d = wrap_dim(args[2].int_i64()?, x.dim())?;
    let out = metas(args, 2)?;
    let n = x.sizes().get(d).copied().unwrap_or(1.into());
    for within in [k.ge(1), k.le(n)] {
        require(within, || {
            format!("`k` must be from 1 to the size {n} of dimension {d}, found {k}")
        })?;
    }
    Ok(out)
}

table! {
    /// Order statistics.
    static TABLE = {
        "aten::median(Tensor self) -> Tensor" => {
            role: General,
            lowering: sorted(|_, a| median_of_all_meta(a), |a, o| median_of_all(a, &o[0], false)),
            vjp: crate::grad::PICK_ALL,
        },
        "aten::nanmedian(Tensor self) -> Tensor" => {
            role: General,
            lowering: sorted(|_, a| median_of_all_meta(a), |a, o| median_of_all(a, &o[0], true)),
            vjp: crate::grad::PICK_ALL,
        },
        "aten::median.dim(Tensor self, int dim, \
            bool keepdim=False) -> (Tensor values, Tensor indices)" => {
            role: General,
            lowering: sorted(
                |_, a| median_metas(a),
                |a, o| choose_along(a, 1, o, |keys, line| median(keys, line, false)),
            ),
            vjp: crate::grad::PICK,
        },
        "aten::nanmedian.dim(Tensor self, int dim, \
            bool keepdim=False) -> (Tensor values, Tensor indices)" => {
            role: General,
            lowering: sorted(
                |_, a| median_metas(a),
                |a, o| choose_along(a, 1, o, |keys, line| median(keys, line, true)),
            ),
            vjp: crate::grad::PICK,
        },
        "aten::mode(Tensor self, int dim=-1, \
            bool keepdim=False) -> (Tensor values, Tensor indices)" => {
            role: General,
            lowering: sorted(|_, a| metas(a, 1), |a, o| choose_along(a, 1, o, mode)),
            vjp: crate::grad::PICK,
        },
        "aten::kthvalue(Tensor self, SymInt k, int dim=-1, \
            bool keepdim=False) -> (Tensor values, Tensor indices)" => {
            role: General,
            lowering: sorted(
                |_, a| kthvalue_metas(a),
                |a, o| {
                    let k = usize::try_from(a[1].int_i64()? - 1)
                        .map_err(|_| Error::value("`k` must be at least 1"))?;
                    choose_along(a, 2, o, |_, line| kth(line, k))
                },
            ),
            vjp: crate::grad::PICK_KTH,
        },
        "aten::msort(Tensor self) -> Tensor" => {
            role: General,
            lowering: Lowering::Composite(|a| done(a[0].tensor()?.sort(0, false).0)),
        },
    }
}
