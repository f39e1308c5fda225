//! Variances and vector norms by [`reduce`](crate::reduce()).

use super::{Special, same};
use crate::error::Result;
use crate::isa::Isa;
use crate::reduce::{ReduceOp, mean_by_f64, reduce_on};
use crate::view::{View, ViewMut};
use maquette_ir::loops::fold::Fold;
use maquette_ir::loops::named::{self, Correction, Reduced};
use maquette_ir::loops::{Axes, LaunchScalar, LoopBuilder, LoopNest, StageKind, StageOutput};
use maquette_ir::scalar_expr::{BinaryOp, Op};
use maquette_ir::sym::SymTable;
use maquette_ir::{DType, Scalar};
use smallvec::SmallVec;
use std::sync::Arc;

/// The operand, axes and output of a nest whose first stage folds one operand.
struct Parts {
    x: DType,
    rank: usize,
    dims: SmallVec<[usize; 4]>,
    keep: bool,
    out: DType,
}

impl Parts {
    fn of(nest: &LoopNest) -> Option<(Parts, &Fold)> {
        let ([x], [result, ..], [first, ..]) = (nest.operands(), nest.results(), nest.stages())
        else {
            return None;
        };
        let StageKind::Reduce { along, fold, .. } = &first.kind else { return None };
        let (rank, out) = (x.sizes.len(), nest.dtype(*result)?);
        let dims: SmallVec<[usize; 4]> =
            along.iter().map(|a| a.index()).filter(|d| *d < rank).collect();
        let keep = !dims.is_empty() && first.axes().len() == rank;
        let is_float = x.dtype.is_float() && out.is_float();
        is_float.then_some((Parts { x: x.dtype, rank, dims, keep, out }, fold))
    }

    /// Whether a nest is the one that `build` appends.
    fn matches<const N: usize>(
        &self,
        nest: &LoopNest,
        build: impl FnOnce(
            &mut LoopBuilder,
            Reduced<'_>,
        ) -> Result<[StageOutput; N], maquette_ir::loops::LoopError>,
    ) -> bool {
        let mut template = LoopBuilder::new(SymTable::new());
        let input = template.input(self.x, self.rank);
        let along: Axes = self.dims.iter().map(|d| input.axes[*d]).collect();
        let of = Reduced { x: &input, along: &along, keep: self.keep, out: self.out };
        let Ok(results) = build(&mut template, of) else { return false };
        template.finish(&results).is_ok_and(|template| same(nest, &template))
    }
}

#[derive(Debug)]
struct Variance {
    /// The correction; `None` if a launch gives it.
    correction: Option<i64>,
    root: bool,
    dims: SmallVec<[usize; 4]>,
}

pub(super) fn variance(nest: &LoopNest) -> Option<Arc<dyn Special>> {
    let (parts, Fold::Sum) = Parts::of(nest)? else { return None };
    let is_given = nest.scalars().contains(&LaunchScalar::Number(DType::F64));
    let corrections = if is_given { &[None][..] } else { &[Some(1), Some(0)] };
    let cases =
        [false, true].into_iter().flat_map(|root| corrections.iter().map(move |c| (root, c)));
    cases.into_iter().find_map(|(root, &correction)| {
        let template = |nest: &mut LoopBuilder| match correction {
            Some(number) => Correction::Fixed(number),
            None => Correction::Number(nest.number(DType::F64)),
        };
        let is_it = match nest.results().len() {
            1 => parts.matches(nest, |nest, of| {
                let correction = template(nest);
                named::variance(nest, of, correction, root).map(|[variance, _]| [variance])
            }),
            _ => parts.matches(nest, |nest, of| {
                let correction = template(nest);
                named::variance_and_mean(nest, of, correction, root)
            }),
        };
        let dims = parts.dims.clone();
        is_it.then(|| Arc::new(Variance { correction, root, dims }) as Arc<dyn Special>)
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
    let (parts, fold) = Parts::of(nest)?;
    // The kernel does not round the elements to a narrow output's dtype.
    if nest.results().len() != 1 || parts.x != parts.out && parts.out.accumulator() != parts.out {
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
        let is_it =
            parts.matches(nest, |nest, of| named::vector_norm(nest, of, p).map(|norm| [norm]));
        let dims = parts.dims.clone();
        is_it.then(|| Arc::new(Norm { p, dims }) as Arc<dyn Special>)
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
