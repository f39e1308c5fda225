//! Advanced indexing as in NumPy (`index`, `index_put`), and the operators whose sizes depend on a
//! mask (`nonzero`, `masked_select`, `masked_scatter`).
//!
//! A mask among the indices is replaced by the positions of its set elements, one index tensor for
//! each of its dimensions. The index tensors broadcast together. Their dimensions replace the first
//! indexed dimension if the indexed dimensions are adjacent, and lead the result otherwise.

use crate::shape::views;
use maquette_ir::DType;
use maquette_ir::sym::SymInt;
use maquette_ir::typing::{broadcast, elementwise_strides};
use maquette_kernels as kernels;
use maquette_ops::operator::Derivative;
use maquette_ops::operator::cpu_exec::{self, input, output};
use maquette_ops::operator::dims::{
    fresh, fresh_like, is_one, require_index, require_mask, require_same_dtype,
};
use maquette_ops::operator::lowering::{Class, Compute, How, Lowering, Metas, Strides};
use maquette_ops::operator::require_same;
use maquette_ops::operator::{dims_text, table};
use maquette_ops::{Dims, Error, FakeCtx, Meta, Outputs, Result, Tensor, Value};
use smallvec::{SmallVec, smallvec};

fn is_mask(t: &Tensor) -> bool {
    matches!(t.dtype(), DType::Bool | DType::U8)
}

/// A data-dependent size for the number of set elements of a mask. The upper bound is that of
/// `numel`, if it has one.
fn fake_count(cx: &FakeCtx, numel: SymInt) -> Result<SymInt> {
    cx.new_dynamic_size_in(0, numel.range().hi.max(0))
}

/// The number of positions of each mask among the indices of a fake call. The index tensors
/// broadcast together, so the masks have as many set elements as the last dimension of the others
/// has elements; a mask of one set element also fits. The kernel compares the counts. Only if the
/// others are of size 1 or none does the result have a size of its own.
fn fake_mask_count(cx: &FakeCtx, list: &Value) -> Result<SymInt> {
    let (masks, others): (Vec<&Tensor>, Vec<&Tensor>) = list.tensors().partition(|t| is_mask(t));
    let sizes: Vec<&[SymInt]> = others.iter().map(|t| t.sizes()).collect();
    let broadcast = broadcast(&sizes).unwrap_or_default();
    if let Some(&n) = broadcast.last()
        && !is_one(n)?
    {
        return Ok(n);
    }
    let most = masks.iter().map(|mask| mask.numel().range().hi).max().unwrap_or(0);
    cx.new_dynamic_size_in(0, most.max(0))
}

/// The metadata of `nonzero`: PyTorch stores the n × rank matrix column by column.
fn nonzero_meta(x: &Tensor, n: SymInt) -> Meta {
    let m = fresh(x, smallvec![n, x.dim().into()], DType::I64);
    m.with_strides(smallvec![1.into(), n.max(1)])
}

fn nonzero(x: &Tensor) -> Result<Tensor> {
    let n = kernels::count_nonzero(&input(x)?);
    let out = Tensor::allocate(nonzero_meta(x, n.into()))?;
    kernels::nonzero(&input(x)?, &mut output(&out)?)?;
    Ok(out)
}

/// Computes the positions of a mask's set elements, for real or for fake masks.
type Positions<'a> = &'a dyn Fn(&Tensor) -> Result<Tensor>;

/// Replaces each 0-d mask by a mask of size 1, and inserts a dimension of size 1 for it into the
/// indexed tensor.
fn with_scalar_masks(x: &Tensor, list: &Value) -> Result<(Tensor, Value)> {
    let (mut x, mut out, mut d) = (x.clone(), Vec::new(), 0);
    for v in list.list()? {
        out.push(match v.opt_tensor()? {
            Some(mask) if is_mask(mask) && mask.dim() == 0 => {
                let dim = d.min(x.dim()) as i64;
                x = x.view_of(views::unsqueeze(x.meta(), dim)?)?;
                d += 1;
                Value::Tensor(mask.view_of(views::unsqueeze(mask.meta(), 0)?)?)
            }
            t => {
                d += t.map_or(1, |t| if is_mask(t) { t.dim() } else { 1 });
                v.clone()
            }
        });
    }
    Ok((x, Value::List(out.into())))
}

/// The index tensor of each dimension. Masks are converted to positions.
fn per_dimension(
    x: &Tensor,
    list: &Value,
    positions: Positions<'_>,
) -> Result<Vec<Option<Tensor>>> {
    let mut out: Vec<Option<Tensor>> = Vec::new();
    for (i, v) in list.list()?.iter().enumerate() {
        let Some(t) = v.opt_tensor()? else {
            out.push(None);
            continue;
        };
        let d = out.len();
        let used = if is_mask(t) { t.dim() } else { 1 };
        if d + used > x.dim() {
            let (index, of) = (dims_text(t.sizes()), dims_text(x.sizes()));
            return Err(Error::value(format!(
                "`indices[{i}]` {}{index} cannot index from dimension {d} of sizes {of}",
                t.dtype()
            )));
        }
        if is_mask(t) {
            require_same(&x.sizes()[d..d + used], t.sizes(), || {
                format!("the mask `indices[{i}]` must have")
            })?;
            let all = positions(t)?;
            for column in 0..used {
                out.push(Some(all.view_of(views::select(all.meta(), 1, column.into())?)?));
            }
        } else {
            require_index(&format!("indices[{i}]"), t)?;
            out.push(Some(t.clone()));
        }
    }
    if out.len() > x.dim() {
        return Err(Error::value(format!(
            "`indices` has {} entries for a tensor of sizes {}",
            out.len(),
            dims_text(x.sizes())
        )));
    }
    if out.iter().all(Option::is_none) {
        return Err(Error::value("`indices` must hold at least one tensor"));
    }
    out.resize_with(x.dim(), || None);
    Ok(out)
}

/// The metadata of the result, and the index tensors after broadcasting.
struct Indexed {
    meta: Meta,
    indices: Vec<Option<Tensor>>,
}

/// Broadcasts the index tensors, and computes the metadata of the result.
fn indexed(x: &Tensor, mut indices: Vec<Option<Tensor>>) -> Result<Indexed> {
    let dims: SmallVec<[usize; 6]> = (0..indices.len()).filter(|&d| indices[d].is_some()).collect();
    let shapes: Vec<&[SymInt]> = indices.iter().flatten().map(Tensor::sizes).collect();
    let batch = broadcast(&shapes).map_err(|_| {
        let texts: Vec<String> = shapes.iter().map(|s| dims_text(s)).collect();
        Error::value(format!("`indices` must broadcast together, found sizes {}", texts.join(", ")))
    })?;
    let some = batch.iter().all(|n| n.as_i64().is_some_and(|n| n != 0));
    if let Some(d) = dims.iter().find(|d| some && x.sizes()[**d].as_i64() == Some(0)) {
        return Err(Error::value(format!(
            "`indices[{d}]` is out of range for dimension {d} of sizes {}, which is empty",
            dims_text(x.sizes())
        )));
    }
    // Adjacent indexed dimensions are replaced in place. Otherwise the indices' dimensions come
    // first, as in NumPy.
    let adjacent = dims.windows(2).all(|w| w[1] == w[0] + 1);
    let lead = if adjacent { dims.first().copied().unwrap_or(0) } else { 0 };
    let rest: SmallVec<[usize; 6]> = (0..x.dim()).filter(|d| !dims.contains(d)).collect();
    let around = |of: &dyn Fn(usize) -> SymInt, middle: &[SymInt]| -> Dims {
        rest[..lead]
            .iter()
            .map(|&d| of(d))
            .chain(middle.iter().copied())
            .chain(rest[lead..].iter().map(|&d| of(d)))
            .collect()
    };
    let sizes = around(&|d| x.sizes()[d], &batch);
    let zeros: Dims = smallvec![SymInt::from(0); batch.len()];
    // PyTorch derives the strides from its `TensorIterator`: the tensor has stride 0 in the indexed
    // dimensions, and each index tensor has stride 0 in the others.
    let mut layouts = vec![around(&|d| x.strides()[d], &zeros)];
    for i in indices.iter_mut().flatten() {
        *i = i.view_of(views::expand(i.meta(), &batch)?)?;
        layouts.push(around(&|_| 0.into(), i.strides()));
    }
    let operands: Vec<(&[SymInt], &[SymInt])> =
        layouts.iter().map(|s| (sizes.as_slice(), s.as_slice())).collect();
    let strides = elementwise_strides(&sizes, &operands)?;
    Ok(Indexed { meta: fresh(x, sizes, x.dtype()).with_strides(strides), indices })
}

fn index_views(indices: &[Option<Tensor>]) -> Result<Vec<Option<kernels::View<'_>>>> {
    indices.iter().map(|i| i.as_ref().map(input).transpose()).collect()
}

fn index(args: &[Value]) -> Result<Outputs> {
    let (x, list) = with_scalar_masks(args[0].tensor()?, &args[1])?;
    let i = indexed(&x, per_dimension(&x, &list, &nonzero)?)?;
    let out = Tensor::allocate(i.meta)?;
    if out.numel().as_i64() != Some(0) {
        kernels::index(&input(&x)?, &index_views(&i.indices)?, &mut output(&out)?)?;
    }
    Ok(smallvec![Value::Tensor(out)])
}

fn put_values(values: &Tensor, sizes: &[SymInt]) -> Result<Meta> {
    views::expand(values.meta(), sizes).map_err(|_| {
        let (expected, found) = (dims_text(sizes), dims_text(values.sizes()));
        Error::value(format!(
            "argument `values` must expand to the indexed sizes {expected}, found sizes {found}"
        ))
    })
}

fn index_put_meta(args: &[Value]) -> Result<Metas> {
    let (x, values) = (args[0].tensor()?, args[2].tensor()?);
    require_same_dtype(("self", x), ("values", values))?;
    // The number of values for a mask depends on data, so the kernel checks it.
    if !args[1].tensors().any(is_mask) {
        put_values(values, &indexed(x, per_dimension(x, &args[1], &nonzero)?)?.meta.sizes)?;
    }
    Ok(smallvec![fresh_like(x, x.dtype())?])
}

fn index_put(args: &[Value], out: &Tensor) -> Result<()> {
    let (x, values) = (args[0].tensor()?, args[2].tensor()?);
    // `with_scalar_masks` may add a dimension to the output; `x` does not have it.
    let (target, list) = with_scalar_masks(out, &args[1])?;
    let i = indexed(&target, per_dimension(&target, &list, &nonzero)?)?;
    let values = values.view_of(put_values(values, &i.meta.sizes)?)?;
    cpu_exec::copy(x, out)?;
    if values.numel().as_i64() == Some(0) {
        return Ok(());
    }
    Ok(kernels::index_put(
        &mut output(&target)?,
        &index_views(&i.indices)?,
        &input(&values)?,
        args[3].bool()?,
    )?)
}

/// A tensor and its mask, expanded to their common sizes.
fn masked(args: &[Value]) -> Result<(Tensor, Tensor)> {
    let (x, mask) = (args[0].tensor()?, args[1].tensor()?);
    require_mask("mask", mask, None)?;
    let sizes = broadcast(&[x.sizes(), mask.sizes()])?;
    Ok((
        x.view_of(views::expand(x.meta(), &sizes)?)?,
        mask.view_of(views::expand(mask.meta(), &sizes)?)?,
    ))
}

fn masked_select(args: &[Value]) -> Result<Outputs> {
    let (x, mask) = masked(args)?;
    let n = kernels::count_nonzero(&input(&mask)?);
    let out = Tensor::allocate(fresh(&x, smallvec![n.into()], x.dtype()))?;
    kernels::masked_select(&input(&x)?, &input(&mask)?, &mut output(&out)?)?;
    Ok(smallvec![Value::Tensor(out)])
}

fn masked_scatter_meta(args: &[Value]) -> Result<Metas> {
    let (x, _) = masked(args)?;
    require_same_dtype(("self", &x), ("source", args[2].tensor()?))?;
    Ok(smallvec![fresh(&x, x.sizes().into(), x.dtype())])
}

table! {
    /// Advanced indexing and masks.
    static TABLE = {
        "aten::index.Tensor(Tensor self, Tensor?[] indices) -> Tensor" => {
            role: TakesHostIndices,
            lowering: Lowering::Dynamic {
                observes_strides: true,
                fake: |cx, a| {
                    let (x, list) = with_scalar_masks(a[0].tensor()?, &a[1])?;
                    let count = match list.tensors().any(is_mask) {
                        true => fake_mask_count(cx, &list)?,
                        false => 0.into(),
                    };
                    let positions =
                        |mask: &Tensor| Ok(Tensor::fake_of(nonzero_meta(mask, count)));
                    Ok(smallvec![Value::Tensor(Tensor::fake_of(
                        indexed(&x, per_dimension(&x, &list, &positions)?)?.meta
                    ))])
                },
                run: index,
            },
            vjp: crate::grad::INDEX,
        },
        "aten::index_put(Tensor self, Tensor?[] indices, Tensor values, \
            bool accumulate=False) -> Tensor" => {
            role: TakesHostIndices,
            lowering: Lowering::Compute(Compute {
                class: Class::Scatter,
                strides: Strides::RowMajor,
                metas: |_, a| index_put_meta(a),
                how: How::Host(|a, out| index_put(a, &out[0])),
            }),
            vjp: crate::grad::INDEX_PUT,
        },
        "aten::index_put_(Tensor(a!) self, Tensor?[] indices, Tensor values, \
            bool accumulate=False) -> Tensor(a!)" => {
            role: General,
            lowering: Lowering::InPlace("aten::index_put"),
        },
        "aten::nonzero(Tensor self) -> Tensor" => {
            role: General,
            lowering: Lowering::Dynamic {
                observes_strides: false,
                fake: |cx, a| {
                    let x = a[0].tensor()?;
                    Ok(smallvec![Value::Tensor(Tensor::fake_of(nonzero_meta(
                        x,
                        fake_count(cx, x.numel())?
                    )))])
                },
                run: |a| Ok(smallvec![Value::Tensor(nonzero(a[0].tensor()?)?)]),
            },
            vjp: Derivative::None("the result is no float"),
        },
        "aten::masked_select(Tensor self, Tensor mask) -> Tensor" => {
            role: General,
            lowering: Lowering::Dynamic {
                observes_strides: false,
                fake: |cx, a| {
                    let (x, _) = masked(a)?;
                    Ok(smallvec![Value::Tensor(Tensor::fake_of(fresh(
                        &x,
                        smallvec![fake_count(cx, x.numel())?],
                        x.dtype()
                    )))])
                },
                run: masked_select,
            },
            vjp: crate::grad::MASKED_SELECT,
        },
        "aten::masked_scatter(Tensor self, Tensor mask, Tensor source) -> Tensor" => {
            role: General,
            lowering: Lowering::Compute(Compute {
                class: Class::Scatter,
                strides: Strides::RowMajor,
                metas: |_, a| masked_scatter_meta(a),
                how: How::Host(|a, out| {
                    let (x, mask) = masked(a)?;
                    cpu_exec::copy(&x, &out[0])?;
                    Ok(kernels::masked_scatter(
                        &mut output(&out[0])?,
                        &input(&mask)?,
                        &input(a[2].tensor()?)?,
                    )?)
                }),
            }),
            vjp: crate::grad::MASKED_SCATTER,
        },
        "aten::masked_scatter_(Tensor(a!) self, Tensor mask, \
            Tensor source) -> Tensor(a!)" => {
            role: General,
            lowering: Lowering::InPlace("aten::masked_scatter"),
        },
    }
}
