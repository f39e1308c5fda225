//! Derivatives of reads at positions that tensors hold.

use crate::grad::parts::parts;
use crate::grad::{give, rule};
use maquette_ops::operator::Saved::{Input, InputFor};
use maquette_ops::operator::{Backward, Derivative, aten};
use maquette_ops::{Result, Tensor, Value};

/// Zeros with the sizes of the first operand.
fn zeros(b: &Backward<'_>) -> Result<Tensor> {
    let x = b.meta(0)?;
    Ok(b.grad().detach().new_zeros(&x.sizes, x.dtype))
}

pub(crate) const INDEX_SELECT: Derivative = rule!([Input(2)], |b| {
    let (zeros, dim) = (zeros(b)?, b.arg(1).int_i64()?);
    if zeros.dim() == 0 {
        return b.set(0, || b.grad().sum());
    }
    b.set(0, || zeros.index_add(dim, &b.input(2), &b.grad()))
});

pub(crate) const GATHER: Derivative = rule!([Input(2)], |b| {
    let (zeros, dim) = (zeros(b)?, b.arg(1).int_i64()?);
    b.set(0, || zeros.scatter_add(dim, &b.input(2), &b.grad()))
});

pub(crate) const TAKE: Derivative = rule!([Input(1)], |b| {
    let zeros = zeros(b)?;
    b.set(0, || aten!("put", b.loc(); zeros, b.input(1), b.grad(), true))
});

pub(crate) const INDEX: Derivative = rule!([Input(1)], |b| {
    let (zeros, indices) = (zeros(b)?, b.argument(1)?);
    b.set(0, || aten!("index_put", b.loc(); zeros, indices, b.grad(), true))
});

pub(crate) const INDEX_PUT: Derivative = rule!([Input(1)], |b| {
    let (accumulate, indices) = (b.arg(3).bool()?, b.argument(1)?);
    b.set(0, || {
        if accumulate {
            return b.grad();
        }
        let zero = b.grad().detach().new_zeros([0i64; 0], b.grad().dtype());
        aten!("index_put", b.loc(); b.grad(), indices.clone(), zero, false)
    })?;
    b.set(2, || aten!("index.Tensor", b.loc(); b.grad(), indices))
});

pub(crate) const PUT: Derivative = rule!([Input(1)], |b| {
    let accumulate = b.arg(3).bool()?;
    b.set(0, || {
        if accumulate {
            return b.grad();
        }
        let zeros = b.input(1).to_dtype(b.grad().dtype()).zeros_like();
        aten!("put", b.loc(); b.grad(), b.input(1), zeros, false)
    })?;
    let sizes = b.sizes(2).unwrap_or_default();
    b.set(2, || b.grad().take(&b.input(1)).reshape(sizes))
});

/// The rows of the weight. The row of the padding gets no gradient.
pub(crate) const EMBEDDING: Derivative = rule!([Input(1)], |b| {
    let (rows, indices) = (b.sizes(0)?[0], b.input(1));
    let (padding, by_frequency) = (b.arg(2).clone(), b.arg(3).clone());
    b.set(0, || {
        aten!("embedding_dense_backward", b.loc(); b.grad(), indices, rows, padding, by_frequency)
    })
});

/// The rows that were added; 0 for those that were left out.
pub(crate) const EMBEDDING_BACKWARD: Derivative = rule!([Input(1)], |b| {
    let (indices, rows, padding) = (b.input(1), b.arg(2).int()?, b.arg(3).clone());
    let sizes = b.sizes(0)?;
    if rows.as_i64() == Some(0) {
        return b.set(0, || b.grad().new_zeros(sizes, b.grad().dtype()));
    }
    let at = indices.reshape([-1i64]);
    let is_none = at.lt(0).logical_or(at.ge(rows));
    let is_none = is_none.logical_or(at.eq(padding.int()?)).unsqueeze(-1);
    let near = at.masked_fill(&is_none.squeeze_dim(-1), 0);
    let mut grad = b.grad().index_select(0, &near);
    if b.arg(4).bool()? {
        let one = b.grad().detach().new_ones([at.numel(), 1.into()], grad.dtype());
        let counts = aten!("embedding_dense_backward", b.loc(); one, &at, rows, padding, false);
        grad /= counts.index_select(0, &near);
    }
    b.set(0, || grad.masked_fill(&is_none, 0.0).reshape(sizes))
});

pub(crate) const MASKED_SELECT: Derivative = rule!([Input(1)], |b| {
    let zeros = zeros(b)?;
    let mask = b.input(1);
    b.set(0, || {
        // the mask and the operand are broadcast to each other
        let sizes = (&zeros + mask.to_dtype(zeros.dtype())).sizes().to_vec();
        aten!("masked_scatter", b.loc(); zeros.expand(&sizes).contiguous(), mask, b.grad())
    })
});

/// The elements of the source in order, where the mask is true.
pub(crate) const MASKED_SCATTER: Derivative = parts!(|a| {
    let (x, mask, source) = (a[0].tensor()?, a[1].tensor()?, a[2].tensor()?);
    let sizes = (x + mask.to_dtype(x.dtype())).sizes().to_vec();
    let (x, mask) = (x.expand(&sizes), mask.expand(&sizes));
    if source.numel().as_i64() == Some(0) {
        return Ok(vec![x.clone()]);
    }
    let count = mask.reshape([-1i64]).to_dtype(maquette_ir::DType::I64).cumsum(0) - 1;
    let at = count.clamp_min(0).reshape(mask.sizes());
    Ok(vec![mask.where_(source.take(&at), &x)])
});

pub(crate) const REPEAT_INTERLEAVE: Derivative = rule!([InputFor(1, 0)], |b| {
    let x = b.meta(0)?;
    let dim = b.arg(2).opt(Value::int_i64)?;
    let repeats = b.input(1);
    let n = dim.map_or(Ok(x.numel()), |d| {
        maquette_ops::operator::wrap_dim(d, x.rank()).map(|d| x.sizes[d])
    })?;
    let all = repeats.detach().new_ones([n], maquette_ir::DType::I64).cumsum(0) - 1;
    let repeats = repeats.expand([n]);
    let at = aten!("repeat_interleave.self_Tensor", b.loc(); all, repeats, 0);
    let zeros = zeros(b)?;
    b.set(0, || match dim {
        Some(d) => zeros.index_add(d, &at, &b.grad()),
        None => zeros.reshape([-1i64]).index_add(0, &at, &b.grad()).reshape(&x.sizes),
    })
});

/// Sums, means and maxima of bags of rows of the weight.
pub(crate) const EMBEDDING_BAG: Derivative = rule!(
    [Input(0), Input(1), Input(2), Input(6), maquette_ops::operator::Saved::Output(3)],
    |b| {
        let maxima = b.output(3);
        crate::grad::parts::differentiate(b, &|a| bags(a, &maxima).map(|bags| vec![bags]))
    }
);

fn bags(a: &[Value], maxima: &Tensor) -> Result<Tensor> {
    let (weight, at, offsets) = (a[0].tensor()?, a[1].tensor()?, a[2].tensor()?);
    let (mode, padding) = (a[4].int_i64()?, a[8].int_i64()?);
    let n = at.numel();
    let count = offsets.numel() - i64::from(a[7].bool()?);
    // entries before the first bag are in none
    if count.as_i64() == Some(0) {
        return Ok(weight.narrow(0, 0, 0));
    }
    let offsets = offsets.narrow(0, 0, count);
    let place = at.detach().new_ones([n], at.dtype()).cumsum(0) - 1;
    // the bag of an entry is the last that begins at it or before
    let bag = place.unsqueeze(1).ge(offsets.unsqueeze(0)).to_dtype(maquette_ir::DType::I64);
    let bag = bag.sum_dim([1i64], false) - 1;
    let counts = match padding {
        p if p >= 0 => at.ne(p),
        _ => at.ge(0),
    };
    if mode == 2 {
        let any = weight.detach().new_zeros([count], weight.dtype());
        let any = any.index_add(0, &bag, &counts.to_dtype(weight.dtype())).gt(0.0);
        return Ok(
            weight.gather(0, &maxima.clamp_min(0)) * any.unsqueeze(-1).to_dtype(weight.dtype())
        );
    }
    let rows = weight.index_select(0, at);
    let rows = match a[6].opt_tensor()? {
        Some(weights) => rows * weights.unsqueeze(-1),
        None => rows,
    };
    let rows = rows * counts.unsqueeze(-1).to_dtype(weight.dtype());
    let sums = weight.detach().new_zeros([count, weight.size(1)], weight.dtype());
    let sums = sums.index_add(0, &bag, &rows);
    if mode == 0 {
        return Ok(sums);
    }
    let size = weight.detach().new_zeros([count], weight.dtype());
    let size = size.index_add(0, &bag, &counts.to_dtype(weight.dtype())).clamp_min(1.0);
    Ok(sums / size.unsqueeze(-1))
}

pub(crate) const INDEX_FILL: Derivative = rule!([Input(2)], |b| {
    let dim = b.arg(1).int_i64()?;
    b.set(0, || b.grad().index_fill(dim, &b.input(2), 0.0))?;
    // An element that is filled twice counts once. The elements that stay are left out rather than
    // subtracted, since their gradients may be infinite.
    b.set(3, || {
        let filled = b.grad().detach().zeros_like().index_fill(dim, &b.input(2), 1.0).gt(0.0);
        filled.where_(b.grad(), 0.0).sum()
    })
});

pub(crate) fn expand_index(index: &Tensor, dim: i64, like: &Tensor) -> Result<Tensor> {
    let d = maquette_ops::operator::wrap_dim(dim, like.dim())?;
    let mut sizes = vec![1i64; like.dim()];
    sizes[d] = -1;
    Ok(index.reshape(&sizes).expand(like.sizes()))
}

pub(crate) const INDEX_ADD: Derivative = rule!([Input(2)], |b| {
    let dim = b.arg(1).int_i64()?;
    b.set(0, || b.grad())?;
    let grad = || Ok(b.grad().index_select(dim, &b.input(2)) * b.arg(4).scalar()?);
    give(b, 3, grad())
});

pub(crate) const INDEX_COPY: Derivative = rule!([Input(2)], |b| {
    let dim = b.arg(1).int_i64()?;
    b.set(0, || b.grad().index_fill(dim, &b.input(2), 0.0))?;
    b.set(3, || b.grad().index_select(dim, &b.input(2)))
});

/// As a reduction at positions of all dimensions.
pub(crate) const INDEX_REDUCE: Derivative = parts!(|a| {
    let (x, index, source) = (a[0].tensor()?, a[2].tensor()?, a[3].tensor()?);
    let dim = a[1].int_i64()?;
    let flat = |t: &Tensor| if t.dim() == 0 { t.reshape([1i64]) } else { t.clone() };
    let (sizes, x, source) = (x.sizes(), flat(x), flat(source));
    let at = expand_index(index, dim, &source)?;
    Ok(vec![x.scatter_reduce(dim, &at, &source, a[4].str()?, a[5].bool()?).reshape(sizes)])
});
