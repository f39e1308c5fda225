//! Derivatives of writes at positions that tensors hold.

use crate::grad::rule;
use maquette_ops::operator::Saved::{Input, Output};
use maquette_ops::operator::{Backward, Derivative};
use maquette_ops::{Error, Tensor};

pub(crate) const SCATTER: Derivative = rule!([Input(2)], |b| {
    let dim = b.arg(1).int_i64()?;
    b.set(0, || b.grad().scatter_value(dim, &b.input(2), 0.0))?;
    match b.tensors(3) {
        0 => Ok(()),
        _ => b.set(3, || placed(b, b.grad().gather(dim, &b.input(2)))),
    }
});

pub(crate) const SCATTER_ADD: Derivative = rule!([Input(2)], |b| {
    let dim = b.arg(1).int_i64()?;
    b.set(0, || b.grad())?;
    b.set(3, || placed(b, b.grad().gather(dim, &b.input(2))))
});

/// A gradient of the part of the source that the positions cover, with the source's sizes.
fn placed(b: &Backward<'_>, grad: Tensor) -> Tensor {
    let Ok(sizes) = b.sizes(3) else { return grad };
    let pads: Vec<maquette_ir::sym::SymInt> = sizes
        .iter()
        .zip(grad.sizes())
        .rev()
        .flat_map(|(all, part)| [0.into(), *all - *part])
        .collect();
    if pads.iter().all(|p| p.as_i64() == Some(0)) {
        return grad;
    }
    let pads = maquette_ops::Value::from_dims(pads);
    maquette_ops::operator::aten!("constant_pad_nd", b.loc(); grad, pads, 0)
}

/// Source: `scatter_reduce_backward` of PyTorch.
pub(crate) const SCATTER_REDUCE: Derivative =
    rule!([Input(0), Input(2), Input(3), Output(0)], |b| {
        let (dim, include) = (b.arg(1).int_i64()?, b.arg(5).bool()?);
        let (x, at, src, out, grad) = (b.input(0), b.input(2), b.input(3), b.output(0), b.grad());
        let src = narrowed(&src, &at);
        let (of_self, of_src) = match b.arg(4).str()? {
            "sum" => (grad.clone(), grad.gather(dim, &at)),
            "mean" => {
                let count = if include { x.ones_like() } else { x.zeros_like() };
                let count = count.scatter_add(dim, &at, &src.ones_like());
                let count = count.masked_fill(&count.eq(0.0), 1.0);
                (&grad / &count, grad.gather(dim, &at) / count.gather(dim, &at))
            }
            "amax" | "amin" => {
                let is_self = x.eq(&out).to_dtype(x.dtype());
                let is_src = src.eq(out.gather(dim, &at)).to_dtype(x.dtype());
                let count = match include {
                    true => is_self.clone(),
                    false => is_self.zeros_like(),
                };
                let count = count.scatter_add(dim, &at, &is_src);
                let share = &grad / count.masked_fill(&count.eq(0.0), 1.0);
                (is_self * &share, is_src * share.gather(dim, &at))
            }
            "prod" => of_product(&x, dim, &at, &src, &out, &grad, include),
            other => {
                return Err(Error::value(format!("the reduction {other:?} has no derivative")));
            }
        };
        b.set(0, || match include {
            true => of_self,
            false => of_self.scatter_value(dim, &at, 0.0),
        })?;
        b.set(3, || placed(b, of_src))
    });

/// The part of a source that the positions cover.
fn narrowed(src: &Tensor, at: &Tensor) -> Tensor {
    (0..at.dim() as i64).fold(src.clone(), |src, d| src.narrow(d, 0, at.size(d)))
}

/// The gradients of a product. A single zero is the only factor with a gradient.
fn of_product(
    x: &Tensor,
    dim: i64,
    at: &Tensor,
    src: &Tensor,
    out: &Tensor,
    grad: &Tensor,
    include: bool,
) -> (Tensor, Tensor) {
    let zero = x.eq(0.0);
    let masked_self = x.masked_fill(&zero, 1.0);
    let of_others = masked_self.scatter_reduce(dim, at, src, "prod", include);
    let of_self = grad * of_others / masked_self;
    let src_zero = src.eq(0.0);
    let zeros = x.zeros_like().scatter_add(dim, at, &src_zero.to_dtype(x.dtype()));
    let single = src_zero.logical_and(zeros.gather(dim, at).eq(1.0));
    let masked_src = src.masked_fill(&single, 1.0);
    let of_rest = x.scatter_reduce(dim, at, &masked_src, "prod", include);
    let of_zero = (grad * of_rest).gather(dim, at);
    let of_other = (grad * out).gather(dim, at) / src.masked_fill(&src_zero, 1.0);
    (of_self, single.where_(of_zero, of_other))
}
