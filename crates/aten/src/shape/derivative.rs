//! Derivatives of views and rearrangements: the gradient in the places of the operand.

use super::views::wrap_dims;
use crate::grad::parts::rearranged;
use crate::grad::{give, rule};
use maquette_ir::fault_injection::{Fault, fault_injected};
use maquette_ir::sym::SymInt;
use maquette_ops::internals::MetaInternals;
use maquette_ops::operator::Saved::InputFor;
use maquette_ops::operator::repeats;
use maquette_ops::operator::{Backward, Derivative, aten};
use maquette_ops::operator::{Placed, positions, span};
use maquette_ops::{Args, Result, Tensor, Value};

/// Views with all elements of the operand in row-major order.
pub(crate) const RESHAPED: Derivative =
    rule!([], |b| give(b, 0, b.sizes(0).map(|sizes| b.grad().reshape(sizes))));

/// Views that repeat elements: the sum over the repetitions, which every gradient undergoes.
pub(crate) const EXPANDED: Derivative = rule!([], |b| b.set(0, || b.grad()));

/// The gradient of an operand whose own elements share memory: the call, again, of zeros whose
/// elements do not.
fn of_apart(b: &Backward<'_>) -> Result<Tensor> {
    let x = b.meta(0)?;
    let all = b.grad().detach().new_zeros(&x.sizes, x.dtype);
    let mut args = Args::new();
    args.push(Value::Tensor(all.clone()));
    args.extend((1..b.arguments()).map(|i| b.arg(i).clone()));
    let parts = b.op().call_at(args, b.loc())?;
    for (i, part) in parts.iter().flat_map(Value::tensors).enumerate() {
        if b.has_grad(i) {
            part.copy_(&b.grad_of(i)).ok()?;
        }
    }
    Ok(all)
}

/// Views of distinct elements at any places of the operand.
pub(crate) const PLACED: Derivative = rule!([], |b| {
    let x = b.meta(0)?;
    if repeats(&x.sizes, &x.strides) {
        return give(b, 0, of_apart(b));
    }
    for i in (0..b.results()).filter(|i| b.has_grad(*i)) {
        let place = Placed::new(b.meta(0)?, b.result_meta(i)?);
        b.add(|sum| place.add_to(sum, &b.grad_of(i)))?;
    }
    Ok(())
});

/// Operators that move elements, also the same one to several places.
pub(crate) const REARRANGED: Derivative =
    rule!([InputFor(1, 0), InputFor(2, 0)], |b| rearranged(b));

/// Views of any places of the storage, where elements may be the same.
pub(crate) const STRIDED: Derivative = rule!([], |b| {
    let place = Placed::new(b.meta(0)?, b.result_meta(0)?);
    b.set(0, || place.by_positions(&b.grad()))
});

pub(crate) const TRANSPOSED: Derivative = rule!([], |b| {
    let (d, e) = (b.arg(1).int_i64()?, b.arg(2).int_i64()?);
    b.set(0, || b.grad().transpose(d, e))
});

pub(crate) const T: Derivative = rule!([], |b| b.set(0, || b.grad().t()));

fn inverse(b: &Backward<'_>) -> Result<Tensor> {
    let dims = b.arg(1).ints_i64()?;
    let dims = wrap_dims(&dims, dims.len())?;
    let mut inverse = vec![0i64; dims.len()];
    for (to, &from) in dims.iter().enumerate() {
        let (at, d) =
            if fault_injected(Fault::PermutationNotInverted) { (to, from) } else { (from, to) };
        inverse[at] = d as i64;
    }
    Ok(b.grad().permute(&inverse))
}

pub(crate) const PERMUTED: Derivative = rule!([], |b| give(b, 0, inverse(b)));

pub(crate) const FLIP: Derivative = rule!([], |b| {
    let dims = b.arg(1).ints_i64()?;
    b.set(0, || b.grad().flip(dims.as_slice()))
});

pub(crate) const ROLL: Derivative = rule!([], |b| {
    let back: Vec<SymInt> = b.arg(1).ints()?.iter().map(|s| -*s).collect();
    let dims = b.arg(2).clone();
    b.set(
        0,
        || maquette_ops::operator::aten!("roll", b.loc(); b.grad(), Value::from_dims(back), dims),
    )
});

/// Negative padding of the gradient; what the operand lost has none.
pub(crate) const PAD: Derivative = rule!([], |b| {
    let back: Vec<SymInt> = b.arg(1).ints()?.iter().map(|s| -*s).collect();
    b.set(0, || aten!("constant_pad_nd", b.loc(); b.grad(), Value::from_dims(back), 0))
});

pub(crate) const TRIL: Derivative = rule!([], |b| {
    let diagonal = b.arg(1).clone();
    b.set(0, || maquette_ops::operator::aten!("tril", b.loc(); b.grad(), diagonal))
});

pub(crate) const TRIU: Derivative = rule!([], |b| {
    let diagonal = b.arg(1).clone();
    b.set(0, || maquette_ops::operator::aten!("triu", b.loc(); b.grad(), diagonal))
});

pub(crate) const CAT: Derivative = rule!([], |b| {
    let dim = b.arg(1).int_i64()?;
    let (mut start, n) = (SymInt::from(0), b.tensors(0));
    for i in 0..n {
        let sizes = &b.meta_at(0, i)?.sizes;
        // an empty list of elements is skipped, whatever the others' sizes are
        if sizes.len() == 1 && b.result_meta(0)?.rank() != 1 {
            b.set_at(0, i, || b.grad().new_zeros(sizes, b.grad().dtype()))?;
            continue;
        }
        let d = maquette_ops::operator::wrap_dim(dim, sizes.len())?;
        b.set_at(0, i, || b.grad().narrow(d as i64, start, sizes[d]))?;
        start += sizes[d];
    }
    Ok(())
});

/// Writes `src` to a view of a copy of `self`; `with` has the operator's other arguments.
fn view_scatter(b: &Backward<'_>, view: &str) -> Result<()> {
    let rest = || (2..b.arguments()).map(|i| b.arg(i).clone());
    let call = |name: &str, first: Vec<Value>| -> Result<Tensor> {
        let args = first.into_iter().chain(rest()).collect();
        let out = maquette_ops::Op::find(name)?.call_at(args, b.loc())?;
        out.first()
            .map_or_else(|| Err(maquette_ops::Error::value("a view has a result")), Value::tensor)
            .cloned()
    };
    if b.needs(0) {
        let src = b.meta(1)?;
        let zeros = b.grad().detach().new_zeros(&src.sizes, src.dtype);
        let grad = call(b.op().name(), vec![Value::Tensor(b.grad()), Value::Tensor(zeros)]);
        give(b, 0, grad)?;
    }
    match b.needs(1) {
        true => give(b, 1, call(view, vec![Value::Tensor(b.grad())])),
        false => Ok(()),
    }
}

pub(crate) const SELECT_SCATTER: Derivative = rule!([], |b| view_scatter(b, "aten::select.int"));

pub(crate) const SLICE_SCATTER: Derivative = rule!([], |b| view_scatter(b, "aten::slice.Tensor"));

pub(crate) const DIAGONAL_SCATTER: Derivative = rule!([], |b| view_scatter(b, "aten::diagonal"));

/// The places are those of the operand's storage, whatever layout the gradient has. The result has
/// no element at a place that is not the operand's.
pub(crate) const STRIDED_SCATTER: Derivative = rule!([], |b| {
    let (x, grad) = (b.meta(0)?, b.grad());
    let (sizes, strides) = (b.arg(2).ints()?.to_vec(), b.arg(3).ints()?.to_vec());
    let offset = b.arg(4).opt(Value::int)?.unwrap_or(x.offset());
    if x.numel().as_i64() == Some(0) || sizes.iter().any(|n| n.as_i64() == Some(0)) {
        b.set(1, || grad.new_zeros(&sizes[..], grad.dtype()))?;
        return b.set(0, || grad);
    }
    let least = x.offset().min(offset);
    let end = |offset: SymInt, sizes: &[SymInt], strides: &[SymInt]| {
        offset - least + span(sizes, strides)
    };
    let all = end(x.offset(), &x.sizes, &x.strides).max(end(offset, &sizes, &strides));
    let own = positions(&grad, all, &x.sizes, &x.strides, x.offset() - least);
    let written = positions(&grad, all, &sizes, &strides, offset - least);
    b.set(0, || {
        let kept = grad.detach().new_ones([all], grad.dtype()).index_fill(0, &written, 0.0);
        kept.index_select(0, &own).reshape(&x.sizes).gt(0.0).where_(&grad, 0.0)
    })?;
    b.set(1, || {
        let zeros = grad.detach().new_zeros([all], grad.dtype());
        let storage = zeros.index_copy(0, &own, &grad.reshape([-1i64]));
        storage.index_select(0, &written).reshape(&sizes[..])
    })
});
