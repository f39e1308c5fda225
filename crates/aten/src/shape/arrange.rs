//! Composites of views, copies and concatenation: `hstack` and its relatives, `atleast_1d`,
//! `broadcast_tensors`, `sum_to_size`, `take_along_dim`, `repeat_interleave`.

use super::structure::{list, tensors};
use maquette_ir::sym::SymInt;
use maquette_ir::typing::broadcast;
use maquette_ir::{Loc, MemoryFormat};
use maquette_ops::operator::Derivative;
use maquette_ops::operator::dims::{
    done, fresh, is_one, known_equal, require, require_index, require_rank,
};
use maquette_ops::operator::lowering::Lowering;
use maquette_ops::operator::{aten, dims_text, host, table};
use maquette_ops::operator::{require_equal, wrap_dim};
use maquette_ops::{Dims, Error, FakeCtx, Meta, Outputs, Result, Tensor, Value};
use smallvec::smallvec;

/// A view with at least `rank` dimensions, up to 3. New dimensions are inserted as NumPy does.
fn at_least(x: &Tensor, rank: usize) -> Tensor {
    match (x.dim(), rank) {
        (0, _) => x.reshape(vec![1i64; rank]),
        (1, 2) => x.unsqueeze(0),
        (1, 3) => x.unsqueeze(0).unsqueeze(-1),
        (2, 3) => x.unsqueeze(-1),
        _ => x.clone(),
    }
}

/// A copy, because the schemas of these operators declare fresh results.
fn own(x: &Tensor) -> Tensor {
    x.clone_as(MemoryFormat::Preserve)
}

/// Concatenates tensors with at least `rank` dimensions along `dim`.
fn stacked(args: &[Value], rank: usize, dim: i64) -> Result<Outputs> {
    done(Tensor::cat(
        &tensors("tensors", &args[0])?.into_iter().map(|t| at_least(t, rank)).collect::<Vec<_>>(),
        dim,
    ))
}

fn hstack(args: &[Value]) -> Result<Outputs> {
    let along = i64::from(tensors("tensors", &args[0])?[0].dim() > 1);
    stacked(args, 1, along)
}

fn column_stack(args: &[Value]) -> Result<Outputs> {
    let columns = tensors("tensors", &args[0])?
        .into_iter()
        .map(|t| if t.dim() <= 1 { t.reshape([t.numel(), 1.into()]) } else { t.clone() });
    done(Tensor::cat(&columns.collect::<Vec<_>>(), 1))
}

fn broadcast_tensors(args: &[Value]) -> Result<Outputs> {
    let parts: Vec<&Tensor> = args[0].list()?.iter().map(Value::tensor).collect::<Result<_>>()?;
    let sizes = broadcast(&parts.iter().map(|t| t.sizes()).collect::<Vec<_>>())?;
    list(parts.into_iter().map(|t| own(t).expand(sizes.clone())).collect())
}

/// Sums over the dimensions that a broadcast from `size` to the sizes of `x` would repeat.
#[track_caller]
fn sum_to_size(x: &Tensor, size: &[SymInt]) -> Result<Outputs> {
    let misfit = || {
        Error::value(format!(
            "sizes {} do not broadcast to the sizes {} of `self`",
            dims_text(size),
            dims_text(x.sizes())
        ))
    };
    let lead = x.dim().checked_sub(size.len()).ok_or_else(misfit)?;
    let mut dims: Vec<i64> = (0..lead as i64).collect();
    for (d, (&n, &to)) in x.sizes()[lead..].iter().zip(size).enumerate() {
        if known_equal(n, to) {
            continue;
        }
        if is_one(to)? {
            // A sum may change dtype and strides, so a dimension of size 1 is not summed. A
            // data-dependent size is always summed.
            if n.eq(1).is_data_dependent() || !is_one(n)? {
                dims.push((lead + d) as i64);
            }
        } else {
            require_equal(n, to, &misfit)?;
        }
    }
    // A sum to a 0-d tensor promotes integers, as `sum` over all dimensions does.
    if size.is_empty() {
        return done(x.sum());
    }
    done(if dims.is_empty() { own(x) } else { x.sum_dim(dims, true).view(size) })
}

/// `self, indices, dim`: gathers along `dim` after broadcasting the other dimensions; indices are
/// taken modulo the size. Without `dim`, gathers from the flattened tensor, where indices must be
/// in range.
#[track_caller]
fn take_along_dim(args: &[Value]) -> Result<Outputs> {
    let (x, index) = (args[0].tensor()?, args[1].tensor()?);
    let Some(dim) = args[2].opt(Value::int_i64)? else {
        return done(x.reshape([-1i64]).gather(0, &index.reshape([-1i64])));
    };
    require_rank("indices", index, x.dim()..=x.dim())?;
    let d = wrap_dim(dim, x.dim())?;
    let without = |t: &Tensor| -> Dims {
        t.sizes().iter().enumerate().map(|(i, &n)| if i == d { 1.into() } else { n }).collect()
    };
    let common = broadcast(&[&without(x), &without(index)])?;
    let wide = |t: &Tensor| {
        let mut sizes = common.clone();
        sizes.iter_mut().skip(d).take(1).zip(t.sizes().get(d)).for_each(|(s, &n)| *s = n);
        t.expand(sizes)
    };
    let length = x.sizes().get(d).copied().unwrap_or(1.into());
    done(wide(x).gather(d as i64, &wide(index).remainder(length)))
}

/// `self, repeats, dim`: repeats each element. Without `dim`, repeats the elements of the flattened
/// tensor.
#[track_caller]
fn repeat_each(args: &[Value]) -> Result<Outputs> {
    let (x, repeats) = (args[0].tensor()?, args[1].int()?);
    require(repeats.ge(0), || format!("`repeats` must not be negative, found {repeats}"))?;
    let (x, dim) = match args[2].opt(Value::int_i64)? {
        Some(dim) if x.dim() > 0 => (x.clone(), wrap_dim(dim, x.dim())?),
        _ => (x.reshape([-1i64]).ok()?.clone(), 0),
    };
    if let Some(size) = args[3].opt(Value::int)? {
        let total = x.sizes()[dim] * repeats;
        require_equal(size, total, &|| {
            Error::value(format!("`output_size` must be {total}, found {size}"))
        })?;
    }
    let mut sizes: Dims = x.sizes().into();
    sizes.insert(dim + 1, repeats);
    let mut merged: Dims = x.sizes().into();
    merged[dim] *= repeats;
    done(x.unsqueeze(dim as i64 + 1).expand(sizes).clone_as(MemoryFormat::Contiguous).view(merged))
}

/// The size of the result: the caller's, or a data-dependent one.
fn repeated_size(cx: &FakeCtx, output_size: &Value) -> Result<SymInt> {
    output_size.opt(Value::int)?.map_or_else(|| cx.new_dynamic_size(), Ok)
}

/// The index `i`, `repeats[i]` times, for every `i`. A single count applies to all `n` indices.
fn repeated_indices(repeats: &Tensor, n: Option<SymInt>, output_size: &Value) -> Result<Tensor> {
    let counts = host::data::<i64>(&maquette_ops::operator::cpu_exec::cast(
        repeats,
        maquette_ir::DType::I64,
    )?)?;
    let n = n.and_then(|n| n.as_i64()).map_or(counts.len(), |n| n.max(0) as usize);
    let mut out: Vec<i64> = Vec::new();
    for (i, &count) in counts.iter().cycle().take(if counts.is_empty() { 0 } else { n }).enumerate()
    {
        let count = usize::try_from(count)
            .map_err(|_| Error::value(format!("`repeats` must not be negative, found {count}")))?;
        out.try_reserve(count)
            .map_err(|_| Error::value(format!("`repeats` {count} exceeds the available memory")))?;
        out.extend(std::iter::repeat_n(i as i64, count));
    }
    if let Some(size) = output_size.opt(Value::int_i64)?.filter(|s| *s != out.len() as i64) {
        return Err(Error::value(format!(
            "`output_size` must be {}, the sum of `repeats`, found {size}",
            out.len()
        )));
    }
    let n = out.len();
    Tensor::adopt(out, [n as i64])
}

/// The tensor and the dimension to repeat along. Without `dim`, the tensor is flattened.
fn repeated_along(args: &[Value]) -> Result<(Tensor, usize)> {
    let (x, repeats) = (args[0].tensor()?, args[1].tensor()?);
    require_index("repeats", repeats)?;
    require_rank("repeats", repeats, 0..=1)?;
    let (x, d) = match args[2].opt(Value::int_i64)? {
        Some(dim) => (x.clone(), wrap_dim(dim, x.dim())?),
        None => (x.reshape([-1i64]).ok()?.clone(), 0),
    };
    let n = x.sizes().get(d).copied().unwrap_or(1.into());
    if !is_one(repeats.numel())? {
        let of = dims_text(repeats.sizes());
        require_equal(repeats.numel(), n, &|| {
            Error::value(format!(
                "`repeats` {of} must hold one number, or one for each of {n} elements"
            ))
        })?;
    }
    Ok((if x.dim() == 0 { x.reshape([1i64]).ok()?.clone() } else { x }, d))
}

fn repeat_by_tensor_fake(cx: &FakeCtx, args: &[Value]) -> Result<Outputs> {
    let (x, d) = repeated_along(args)?;
    let mut sizes: Dims = x.sizes().into();
    sizes[d] = repeated_size(cx, &args[3])?;
    Ok(smallvec![Value::Tensor(Tensor::fake_of(fresh(&x, sizes, x.dtype())))])
}

fn repeat_by_tensor(args: &[Value]) -> Result<Outputs> {
    let (x, d) = repeated_along(args)?;
    let index = repeated_indices(args[1].tensor()?, Some(x.sizes()[d]), &args[3])?;
    done(x.index_select(d as i64, &index))
}

table! {
    /// Stacks, broadcasts and repetitions.
    static TABLE = {
        "aten::atleast_1d(Tensor self) -> Tensor" => {
            role: General,
            lowering: Lowering::Composite(|a| done(at_least(&own(a[0].tensor()?), 1))),
        },
        "aten::atleast_2d(Tensor self) -> Tensor" => {
            role: General,
            lowering: Lowering::Composite(|a| done(at_least(&own(a[0].tensor()?), 2))),
        },
        "aten::atleast_3d(Tensor self) -> Tensor" => {
            role: General,
            lowering: Lowering::Composite(|a| done(at_least(&own(a[0].tensor()?), 3))),
        },
        "aten::atleast_1d.Sequence(Tensor[] tensors) -> Tensor[]" => {
            role: General,
            lowering: Lowering::Composite(
                |a| list(a[0].tensors().map(|t| at_least(&own(t), 1)).collect()),
            ),
        },
        "aten::atleast_2d.Sequence(Tensor[] tensors) -> Tensor[]" => {
            role: General,
            lowering: Lowering::Composite(
                |a| list(a[0].tensors().map(|t| at_least(&own(t), 2)).collect()),
            ),
        },
        "aten::atleast_3d.Sequence(Tensor[] tensors) -> Tensor[]" => {
            role: General,
            lowering: Lowering::Composite(
                |a| list(a[0].tensors().map(|t| at_least(&own(t), 3)).collect()),
            ),
        },
        "aten::hstack(Tensor[] tensors) -> Tensor" => {
            role: General,
            lowering: Lowering::Composite(hstack),
        },
        "aten::vstack(Tensor[] tensors) -> Tensor" => {
            role: General,
            lowering: Lowering::Composite(|a| stacked(a, 2, 0)),
        },
        "aten::row_stack(Tensor[] tensors) -> Tensor" => {
            role: General,
            lowering: Lowering::Composite(|a| stacked(a, 2, 0)),
        },
        "aten::dstack(Tensor[] tensors) -> Tensor" => {
            role: General,
            lowering: Lowering::Composite(|a| stacked(a, 3, 2)),
        },
        "aten::column_stack(Tensor[] tensors) -> Tensor" => {
            role: General,
            lowering: Lowering::Composite(column_stack),
        },
        "aten::broadcast_tensors(Tensor[] tensors) -> Tensor[]" => {
            role: General,
            lowering: Lowering::Composite(broadcast_tensors),
        },
        "aten::ravel(Tensor(a) self) -> Tensor(a)" => {
            role: PreservesElements,
            lowering: Lowering::Composite(|a| {
                done(aten!("contiguous", Loc::caller(); a[0].tensor()?).view([-1i64]))
            }),
        },
        "aten::fliplr(Tensor self) -> Tensor" => {
            role: General,
            lowering: Lowering::Composite(|a| {
                require_rank("self", a[0].tensor()?, 2..=64)?;
                done(a[0].tensor()?.flip(1i64))
            }),
        },
        "aten::flipud(Tensor self) -> Tensor" => {
            role: General,
            lowering: Lowering::Composite(|a| {
                require_rank("self", a[0].tensor()?, 1..=64)?;
                done(a[0].tensor()?.flip(0i64))
            }),
        },
        "aten::nonzero_numpy(Tensor self) -> Tensor[]" => {
            role: General,
            lowering: Lowering::UnannotatedComposite {
                when: |_| Ok(true),
                body: |a| {
                    let x = a[0].tensor()?;
                    let x = if x.dim() == 0 { x.unsqueeze(0) } else { x.clone() };
                    list(x.nonzero().unbind(1)?)
                },
            },
        },
        "aten::sum_to_size(Tensor self, SymInt[] size) -> Tensor" => {
            role: General,
            lowering: Lowering::Composite(|a| sum_to_size(a[0].tensor()?, a[1].ints()?)),
        },
        "aten::take_along_dim(Tensor self, Tensor indices, int? dim=None) -> Tensor" => {
            role: General,
            lowering: Lowering::Composite(take_along_dim),
        },
        "aten::repeat_interleave.self_int(Tensor self, SymInt repeats, int? dim=None, *, \
            SymInt? output_size=None) -> Tensor" => {
            role: General,
            lowering: Lowering::Composite(repeat_each),
        },
        "aten::repeat_interleave.self_Tensor(Tensor self, Tensor repeats, int? dim=None, \
            *, SymInt? output_size=None) -> Tensor" => {
            role: General,
            lowering: Lowering::Dynamic {
                observes_strides: true,
                fake: repeat_by_tensor_fake,
                run: repeat_by_tensor,
            },
            vjp: crate::grad::REPEAT_INTERLEAVE,
        },
        "aten::repeat_interleave.Tensor(Tensor repeats, *, \
            SymInt? output_size=None) -> Tensor" => {
            role: General,
            lowering: Lowering::Dynamic {
                observes_strides: true,
                fake: |cx, a| {
                    let repeats = a[0].tensor()?;
                    require_index("repeats", repeats)?;
                    require_rank("repeats", repeats, 1..=1)?;
                    let m = Meta::contiguous([repeated_size(cx, &a[1])?], repeats.dtype())
                        .on(repeats.device());
                    Ok(smallvec![Value::Tensor(Tensor::fake_of(m))])
                },
                run: |a| {
                    let repeats = a[0].tensor()?;
                    require_index("repeats", repeats)?;
                    require_rank("repeats", repeats, 1..=1)?;
                    done(repeated_indices(repeats, None, &a[1])?.to_dtype(repeats.dtype()))
                },
            },
            vjp: Derivative::None("the result is no float"),
        },
    }
}
