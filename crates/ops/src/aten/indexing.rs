//! Advanced indexing: lists of positions and masks, one for each indexed dimension, and the operators whose sizes depend on a mask.

use super::dims::{fresh, fresh_like, known_equal, require_same_dtype};
use super::host::{self, Num, data, fill_with, typed, with_data};
use super::lower::{Class, Compute, Lowering, Metas};
use super::{table, views};
use crate::error::{Error, Result};
use crate::fake::FakeCtx;
use crate::meta::{Dims, Meta};
use crate::shape::require_same;
use crate::tensor::{Tensor, dims_text};
use crate::value::{Outputs, Value};
use maquette_ir::DType;
use maquette_ir::sym::SymInt;
use maquette_ir::typing::{broadcast, contiguous_strides, elementwise_strides};
use maquette_kernels::KernelError;
use smallvec::smallvec;

pub(crate) fn is_mask(t: &Tensor) -> bool {
    matches!(t.dtype(), DType::Bool | DType::U8)
}

/// How many elements of a mask are set: a fresh data-dependent size, bounded by the mask's own where that is known.
pub(crate) fn fake_count(cx: &FakeCtx, numel: SymInt) -> Result<SymInt> {
    match numel.as_i64() {
        Some(n) => cx.new_dynamic_size_in(0, n),
        None => cx.new_dynamic_size(),
    }
}

/// Positions of the set elements, row-major, each as one number a dimension.
fn set_positions(mask: &Tensor) -> Result<Vec<Vec<i64>>> {
    let sizes = host::sizes(mask)?;
    let mut out = vec![Vec::new(); sizes.len()];
    let flags: Vec<bool> = flags(mask)?;
    let mut next = flags.iter();
    host::each_index(&sizes, |index| {
        if next.next() == Some(&true) {
            out.iter_mut().zip(index).for_each(|(o, &i)| o.push(i as i64));
        }
    });
    Ok(out)
}

/// Which elements are not zero, row-major.
fn flags(mask: &Tensor) -> Result<Vec<bool>> {
    typed!(mask.dtype(), T => Ok(mask.read::<T>()?.iter().map(|x| Num::truth(*x)).collect()))
}

/// The positions that one dimension is indexed with.
struct Index {
    sizes: Dims,
    strides: Dims,
    /// The positions in row-major order; none of fake tensors.
    at: Vec<i64>,
}

/// The indices, one entry a dimension of the indexed tensor. `count` gives the number of set elements of a mask.
fn per_dimension(x: &Tensor, list: &Value, count: &dyn Fn(&Tensor) -> Result<SymInt>) -> Result<Vec<Option<Index>>> {
    let mut out: Vec<Option<Index>> = Vec::new();
    let real = !x.is_fake();
    for (i, v) in list.list()?.iter().enumerate() {
        let Some(t) = v.opt_tensor()? else {
            out.push(None);
            continue;
        };
        let d = out.len();
        let used = if is_mask(t) { t.dim() } else { 1 };
        if d + used > x.dim() || used == 0 {
            return Err(Error::value(format!("`indices[{i}]` {}{} indexes dimension {d} of sizes {}", t.dtype(), dims_text(t.sizes()), dims_text(x.sizes()))));
        }
        if is_mask(t) {
            require_same(&x.sizes()[d..d + used], t.sizes(), || format!("the mask `indices[{i}]` must have"))?;
            let columns = if real { set_positions(t)? } else { vec![Vec::new(); used] };
            let n = if real { SymInt::from(columns[0].len()) } else { count(t)? };
            out.extend(columns.into_iter().map(|at| Some(Index { sizes: smallvec![n], strides: smallvec![1.into()], at })));
        } else {
            super::dims::require_index(&format!("indices[{i}]"), t)?;
            let at = if real { host::indices(t)? } else { Vec::new() };
            out.push(Some(Index { sizes: t.sizes().into(), strides: t.strides().into(), at }));
        }
    }
    out.resize_with(x.dim(), || None);
    Ok(out)
}

/// The result of indexing: its metadata, and where it reads.
struct Gathered {
    meta: Meta,
    /// The sizes that the indices broadcast to.
    batch: Dims,
    /// How many unindexed dimensions come before them.
    lead: usize,
}

fn gathered(x: &Tensor, index: &[Option<Index>]) -> Result<Gathered> {
    let indexed: Vec<usize> = (0..index.len()).filter(|&d| index[d].is_some()).collect();
    let shapes: Vec<&[SymInt]> = index.iter().flatten().map(|i| i.sizes.as_slice()).collect();
    let batch = broadcast(&shapes).map_err(|_| {
        let texts: Vec<String> = shapes.iter().map(|s| dims_text(s)).collect();
        Error::value(format!("`indices` must broadcast together, found sizes {}", texts.join(", ")))
    })?;
    // indices in neighbouring dimensions stay in their place; others go first
    let adjacent = indexed.windows(2).all(|w| w[1] == w[0] + 1);
    let lead = if adjacent { indexed.first().copied().unwrap_or(0) } else { 0 };
    let rest: Vec<usize> = (0..x.dim()).filter(|d| !indexed.contains(d)).collect();
    let around = |of: &dyn Fn(usize) -> SymInt, middle: &[SymInt]| -> Dims {
        rest[..lead].iter().map(|&d| of(d)).chain(middle.iter().copied()).chain(rest[lead..].iter().map(|&d| of(d))).collect()
    };
    let sizes = around(&|d| x.sizes()[d], &batch);
    let zeros: Dims = smallvec![SymInt::from(0); batch.len()];
    // TensorIterator's operands: the tensor with stride 0 where it is indexed, and the indices with stride 0 elsewhere
    let mut layouts = vec![around(&|d| x.strides()[d], &zeros)];
    for i in index.iter().flatten() {
        let m = Meta { strides: i.strides.clone(), ..Meta::contiguous(i.sizes.clone(), DType::I64) };
        layouts.push(around(&|_| 0.into(), &views::expand(&m, &batch)?.strides));
    }
    let operands: Vec<(&[SymInt], &[SymInt])> = layouts.iter().map(|s| (sizes.as_slice(), s.as_slice())).collect();
    let strides = elementwise_strides(&sizes, &operands)?;
    Ok(Gathered { meta: Meta { strides, ..fresh(x, sizes, x.dtype()) }, batch, lead })
}

/// The row-major position in `x` of each element of the result, in the result's row-major order.
fn positions(x: &Tensor, index: &[Option<Index>], g: &Gathered) -> Result<Vec<usize>> {
    let sizes = host::sizes(x)?;
    let strides: Vec<usize> = contiguous_strides(x.sizes()).iter().map(|s| s.as_i64().unwrap_or(0) as usize).collect();
    let batch: Vec<usize> = g.batch.iter().map(|n| n.as_i64().unwrap_or(0) as usize).collect();
    let mut at = vec![0usize; batch.iter().product()];
    for (d, i) in index.iter().enumerate().filter_map(|(d, i)| Some((d, i.as_ref()?))) {
        let own: Vec<usize> = i.sizes.iter().map(|n| n.as_i64().unwrap_or(0) as usize).collect();
        let lead = batch.len() - own.len();
        let n = sizes[d] as i64;
        let mut k = 0;
        let mut failed = None;
        host::each_index(&batch, |b| {
            let flat = own.iter().zip(&b[lead..]).fold(0, |flat, (&n, &j)| flat * n + if n == 1 { 0 } else { j });
            let p = i.at[flat];
            if (-n..n).contains(&p) {
                at[k] += (if p < 0 { p + n } else { p }) as usize * strides[d];
            } else {
                failed.get_or_insert(KernelError::IndexOutOfRange { index: p, size: n, dim: d });
            }
            k += 1;
        });
        if let Some(e) = failed {
            return Err(e.into());
        }
    }
    let rest: Vec<usize> = (0..x.dim()).filter(|&d| index[d].is_none()).collect();
    let offsets = |dims: &[usize]| {
        let mut out = Vec::new();
        host::each_index(&dims.iter().map(|&d| sizes[d]).collect::<Vec<_>>(), |i| out.push(i.iter().zip(dims).map(|(&i, &d)| i * strides[d]).sum::<usize>()));
        out
    };
    let (before, after) = (offsets(&rest[..g.lead]), offsets(&rest[g.lead..]));
    let mut out = Vec::with_capacity(before.len() * at.len() * after.len());
    for p in &before {
        for b in &at {
            out.extend(after.iter().map(|q| p + b + q));
        }
    }
    Ok(out)
}

fn no_count(_mask: &Tensor) -> Result<SymInt> {
    Ok(0.into())
}

fn index(x: &Tensor, list: &Value) -> Result<Outputs> {
    let index = per_dimension(x, list, &no_count)?;
    let g = gathered(x, &index)?;
    let at = positions(x, &index, &g)?;
    let out = Tensor::allocate(g.meta)?;
    typed!(x.dtype(), T => with_data::<T, _>(x, |x| fill_with::<T>(&out, |o| {
        o.iter_mut().zip(&at).for_each(|(o, &p)| *o = x[p]);
        Ok(())
    })))??;
    Ok(smallvec![Value::Tensor(out)])
}

fn index_put_meta(args: &[Value]) -> Result<Metas> {
    let (x, values) = (args[0].tensor()?, args[2].tensor()?);
    require_same_dtype(("self", x), ("values", values))?;
    if !args[1].tensors().any(is_mask) {
        let g = gathered(x, &per_dimension(x, &args[1], &no_count)?)?;
        put_values(values, &g)?;
    }
    Ok(smallvec![fresh_like(x, x.dtype())?])
}

fn put_values(values: &Tensor, g: &Gathered) -> Result<Meta> {
    views::expand(values.meta(), &g.meta.sizes).map_err(|_| {
        let (expected, found) = (dims_text(&g.meta.sizes), dims_text(values.sizes()));
        Error::value(format!("argument `values` must expand to the indexed sizes {expected}, found sizes {found}"))
    })
}

fn index_put(args: &[Value], out: &Tensor) -> Result<()> {
    let (x, values, accumulate) = (args[0].tensor()?, args[2].tensor()?, args[3].bool()?);
    let index = per_dimension(x, &args[1], &no_count)?;
    let g = gathered(x, &index)?;
    let at = positions(x, &index, &g)?;
    let values = values.view_of(put_values(values, &g)?)?;
    typed!(x.dtype(), T => {
        let (from, values) = (data::<T>(x)?, data::<T>(&values)?);
        fill_with::<T>(out, |o| {
            o.copy_from_slice(&from);
            if accumulate {
                let mut sums: Vec<_> = from.iter().map(|x| Num::load(*x)).collect();
                for (&p, v) in at.iter().zip(values) {
                    sums[p] = sums[p] + Num::load(v);
                }
                at.iter().for_each(|&p| o[p] = Num::store(sums[p]));
            } else {
                at.iter().zip(values).for_each(|(&p, v)| o[p] = v);
            }
            Ok(())
        })
    })
}

fn nonzero_meta(x: &Tensor, n: SymInt) -> Meta {
    let m = fresh(x, smallvec![n, x.dim().into()], DType::I64);
    Meta { strides: smallvec![1.into(), n], ..m }
}

fn nonzero(x: &Tensor) -> Result<Outputs> {
    if x.dim() == 0 {
        let n = flags(x)?.into_iter().filter(|f| *f).count();
        return Ok(smallvec![Value::Tensor(Tensor::allocate(nonzero_meta(x, n.into()))?)]);
    }
    let columns = set_positions(x)?;
    let n = columns[0].len();
    let out = Tensor::allocate(nonzero_meta(x, n.into()))?;
    fill_with::<i64>(&out, |o| {
        for (d, column) in columns.iter().enumerate() {
            o.iter_mut().skip(d).step_by(columns.len()).zip(column).for_each(|(o, &i)| *o = i);
        }
        Ok(())
    })?;
    Ok(smallvec![Value::Tensor(out)])
}

/// A mask and the tensor it selects from, expanded to their common sizes.
fn masked<'a>(args: &'a [Value]) -> Result<(Tensor, Tensor)> {
    let (x, mask): (&'a Tensor, &'a Tensor) = (args[0].tensor()?, args[1].tensor()?);
    if !is_mask(mask) {
        return Err(Error::value(format!("argument `mask` must have dtype bool, found {}{}", mask.dtype(), dims_text(mask.sizes()))));
    }
    let sizes = broadcast(&[x.sizes(), mask.sizes()])?;
    Ok((x.view_of(views::expand(x.meta(), &sizes)?)?, mask.view_of(views::expand(mask.meta(), &sizes)?)?))
}

fn masked_select(args: &[Value]) -> Result<Outputs> {
    let (x, mask) = masked(args)?;
    let flags = flags(&mask)?;
    typed!(x.dtype(), T => {
        let kept: Vec<T> = data::<T>(&x)?.into_iter().zip(flags).filter_map(|(v, f)| f.then_some(v)).collect();
        let n = kept.len() as i64;
        Ok(smallvec![Value::Tensor(Tensor::adopt(kept, [n])?)])
    })
}

fn masked_scatter(args: &[Value], out: &Tensor) -> Result<()> {
    let (x, mask) = masked(args)?;
    let flags = flags(&mask)?;
    typed!(x.dtype(), T => {
        let (from, source) = (data::<T>(&x)?, data::<T>(args[2].tensor()?)?);
        let needed = flags.iter().filter(|f| **f).count();
        if source.len() < needed {
            return Err(Error::value(format!("argument `source` must hold at least the {needed} elements that `mask` selects, found {}", source.len())));
        }
        fill_with::<T>(out, |o| {
            let mut source = source.into_iter();
            for ((o, x), f) in o.iter_mut().zip(from).zip(flags) {
                *o = if f { source.next().unwrap_or(x) } else { x };
            }
            Ok(())
        })
    })
}

table! {
    /// See the module.
    pub(super) static TABLE = {
        "aten::index.Tensor(Tensor self, Tensor?[] indices) -> Tensor" => Lowering::Dynamic {
            fake: |cx, a| {
                let x = a[0].tensor()?;
                let g = gathered(x, &per_dimension(x, &a[1], &|mask| fake_count(cx, mask.numel()))?)?;
                Ok(smallvec![Value::Tensor(Tensor::fake_of(g.meta))])
            },
            run: |a| index(a[0].tensor()?, &a[1]),
        },
        "aten::index_put(Tensor self, Tensor?[] indices, Tensor values, bool accumulate=False) -> Tensor" =>
            Lowering::Compute(Compute { class: Class::Scatter, metas: |_, a| index_put_meta(a), run: |a, out| index_put(a, &out[0]) }),
        "aten::index_put_(Tensor(a!) self, Tensor?[] indices, Tensor values, bool accumulate=False) -> Tensor(a!)" => Lowering::InPlace("aten::index_put"),
        "aten::nonzero(Tensor self) -> Tensor" => Lowering::Dynamic {
            fake: |cx, a| {
                let x = a[0].tensor()?;
                Ok(smallvec![Value::Tensor(Tensor::fake_of(nonzero_meta(x, fake_count(cx, x.numel())?)))])
            },
            run: |a| nonzero(a[0].tensor()?),
        },
        "aten::masked_select(Tensor self, Tensor mask) -> Tensor" => Lowering::Dynamic {
            fake: |cx, a| {
                let (x, _) = masked(a)?;
                Ok(smallvec![Value::Tensor(Tensor::fake_of(fresh(&x, smallvec![fake_count(cx, x.numel())?], x.dtype())))])
            },
            run: masked_select,
        },
        "aten::masked_scatter(Tensor self, Tensor mask, Tensor source) -> Tensor" => Lowering::Compute(Compute {
            class: Class::Scatter,
            metas: |_, a| {
                let (x, _) = masked(a)?;
                require_same_dtype(("self", &x), ("source", a[2].tensor()?))?;
                let same = x.dim() == a[0].tensor()?.dim() && x.sizes().iter().zip(a[0].tensor()?.sizes()).all(|(&m, &n)| known_equal(m, n));
                Ok(smallvec![if same { fresh_like(a[0].tensor()?, x.dtype())? } else { fresh(&x, x.sizes().into(), x.dtype()) }])
            },
            run: |a, out| masked_scatter(a, &out[0]),
        }),
        "aten::masked_scatter_(Tensor(a!) self, Tensor mask, Tensor source) -> Tensor(a!)" => Lowering::InPlace("aten::masked_scatter"),
    }
}
