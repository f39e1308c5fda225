//! Variances and vector norms by [`reduce`](crate::reduce()).

use super::Special;
use super::template::{Folded, found};
use crate::error::Result;
use crate::isa::Isa;
use crate::reduce::{ReduceOp, mean_by_f64, reduce_on};
use crate::view::{View, ViewMut};
use maquette_ir::loops::fold::Fold;
use maquette_ir::loops::named::{self, Correction};
use maquette_ir::loops::{LaunchScalar, LoopBuilder, LoopNest};
use maquette_ir::scalar_expr::{BinaryOp, Op};
use maquette_ir::{DType, Scalar};
use smallvec::SmallVec;
use std::sync::Arc;

/// The parameters of a nest that folds floats to floats, and the fold.
fn floats(nest: &LoopNest) -> Option<(Folded, &Fold)> {
    Folded::of(nest).filter(|(folded, _)| folded.x.is_float() && folded.out.is_float())
}

#[derive(Debug)]
struct Variance {
    /// The correction; `None` if a launch gives it.
    correction: Option<i64>,
    root: bool,
    dims: SmallVec<[usize; 4]>,
}

pub(super) fn variance(nest: &LoopNest) -> Option<Arc<dyn Special>> {
    let (folded, Fold::Sum) = floats(nest)? else { return None };
    let is_given = nest.scalars().contains(&LaunchScalar::Number(DType::F64));
    let corrections = if is_given { &[None][..] } else { &[Some(1), Some(0)] };
    let cases =
        [false, true].into_iter().flat_map(|root| corrections.iter().map(move |c| (root, c)));
    cases.into_iter().find_map(|(root, &correction)| {
        let template = |nest: &mut LoopBuilder| match correction {
            Some(number) => Correction::Fixed(number),
            None => Correction::Number(nest.number(DType::F64)),
        };
        let matches = match nest.results().len() {
            1 => folded.is_nest(nest, |nest, of| {
                let correction = template(nest);
                named::variance(nest, of, correction, root).map(|[variance, _]| [variance])
            }),
            _ => folded.is_nest(nest, |nest, of| {
                let correction = template(nest);
                named::variance_and_mean(nest, of, correction, root)
            }),
        };
        found(matches, Variance { correction, root, dims: folded.dims.clone() })
    })
}

impl Special for Variance {
    fn run(
        &self,
        isa: Isa,
        operands: &[View<'_>],
        numbers: &[Scalar],
        results: &mut [ViewMut<'_>],
    ) -> Result<bool> {
        let ([x], [out, means @ ..]) = (operands, results) else { return Ok(false) };
        let given = self.correction.map(Scalar::Int).or(numbers.first().copied());
        let Some(correction) = given.map(Scalar::to_f64) else { return Ok(false) };
        let op = match self.root {
            true => ReduceOp::Std { correction },
            false => ReduceOp::Var { correction },
        };
        reduce_on(isa, op, x, &self.dims, out)?;
        means.iter_mut().try_for_each(|mean| mean_by_f64(isa, x, &self.dims, mean))?;
        Ok(true)
    }
}

#[derive(Debug)]
struct Norm {
    p: f64,
    dims: SmallVec<[usize; 4]>,
}

pub(super) fn norm(nest: &LoopNest) -> Option<Arc<dyn Special>> {
    let (folded, fold) = floats(nest)?;
    // The kernel does not round the elements to a narrow output's dtype.
    if nest.results().len() != 1 || folded.x != folded.out && folded.out.accumulator() != folded.out
    {
        return None;
    }
    let exponent = || {
        let expr = &nest.stages().first()?.expr;
        expr.instrs().iter().find_map(|instr| match instr.op {
            Op::Binary(BinaryOp::Pow, _, p) => match expr.instrs().get(p.index())?.op {
                Op::Const(p) => Some(p.to_f64()),
                _ => None,
            },
            _ => None,
        })
    };
    let orders: SmallVec<[f64; 4]> = match fold {
        Fold::Max => [f64::INFINITY].into_iter().collect(),
        Fold::Min => [f64::NEG_INFINITY].into_iter().collect(),
        Fold::Sum => [2.0, 1.0, 0.0].into_iter().chain(exponent()).collect(),
        _ => return None,
    };
    orders.into_iter().find_map(|p| {
        let matches =
            folded.is_nest(nest, |nest, of| named::vector_norm(nest, of, p).map(|norm| [norm]));
        found(matches, Norm { p, dims: folded.dims.clone() })
    })
}

impl Special for Norm {
    fn run(
        &self,
        isa: Isa,
        operands: &[View<'_>],
        _: &[Scalar],
        results: &mut [ViewMut<'_>],
    ) -> Result<bool> {
        let ([x], [out]) = (operands, results) else { return Ok(false) };
        // The kernel takes the magnitude of one element, whose power could overflow.
        let is_power = self.p.is_finite() && self.p != 0.0 && self.p != 1.0;
        let sizes = || self.dims.iter().filter_map(|d| x.sizes().get(*d));
        if is_power && sizes().all(|size| *size == 1) {
            return Ok(false);
        }
        reduce_on(isa, ReduceOp::Norm(self.p), x, &self.dims, out)?;
        Ok(true)
    }
}
