//! Reductions of one operand.

use super::template::Folded;
use crate::DType;
use crate::loops::fold::Fold;
use crate::loops::named::{self, Correction, Reduction};
use crate::loops::{LaunchScalar, LoopBuilder, LoopNest};
use crate::scalar_expr::{BinaryOp, Op};
use smallvec::SmallVec;

/// A reduction over dimensions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reduce {
    /// What is computed.
    pub reduction: Reduction,
    /// The dimensions of the operand.
    pub dims: SmallVec<[usize; 4]>,
}

pub(super) fn reduce(nest: &LoopNest) -> Option<Reduce> {
    let (folded, fold) = Folded::of(nest)?;
    // A sum or a product of bools is `any` or `all`.
    let is_other = |op: &Reduction| {
        folded.out == DType::Bool && matches!(op, Reduction::Sum | Reduction::Prod)
    };
    let reductions = Reduction::ALL.into_iter().filter(|op| op.fold() == *fold && !is_other(op));
    reductions.into_iter().find_map(|reduction| {
        let matches = folded.is_nest(nest, |nest, of| Ok([named::reduce(nest, reduction, of)?]));
        matches.then(|| Reduce { reduction, dims: folded.dims.clone() })
    })
}

/// Two extremes of one operand, in its dtype.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Extremes {
    /// An extreme along a dimension, and its index.
    Indexed {
        /// Whether the extreme is the greatest.
        max: bool,
        /// The dimension.
        dim: usize,
    },
    /// The minimum and the maximum over dimensions.
    Both(SmallVec<[usize; 4]>),
}

pub(super) fn extremes(nest: &LoopNest) -> Option<Extremes> {
    let (folded, fold) = Folded::of(nest)?;
    if folded.out != folded.x {
        return None;
    }
    match (fold, &folded.dims[..]) {
        (Fold::ArgMin | Fold::ArgMax, &[dim]) => {
            let max = *fold == Fold::ArgMax;
            let matches = folded.is_nest(nest, |nest, of| named::extreme(nest, max, of));
            matches.then_some(Extremes::Indexed { max, dim })
        }
        (Fold::Min, _) => {
            let matches = folded.is_nest(nest, |nest, of| {
                let min = named::reduce(nest, Reduction::Min, of)?;
                Ok([min, named::reduce(nest, Reduction::Max, of)?])
            });
            matches.then_some(Extremes::Both(folded.dims))
        }
        _ => None,
    }
}

/// Variances over dimensions. A second result has the means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variance {
    /// The correction; `None` if it is the number of a launch.
    pub correction: Option<i64>,
    /// Whether the results are the roots.
    pub root: bool,
    /// The dimensions of the operand.
    pub dims: SmallVec<[usize; 4]>,
}

pub(super) fn variance(nest: &LoopNest) -> Option<Variance> {
    let (folded, Fold::Sum) = Folded::floats(nest)? else { return None };
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
        matches.then(|| Variance { correction, root, dims: folded.dims.clone() })
    })
}

/// Vector norms over dimensions.
#[derive(Clone, Debug, PartialEq)]
pub struct Norm {
    /// The order of the norm.
    pub p: f64,
    /// The dimensions of the operand.
    pub dims: SmallVec<[usize; 4]>,
}

pub(super) fn norm(nest: &LoopNest) -> Option<Norm> {
    let (folded, fold) = Folded::floats(nest)?;
    if nest.results().len() != 1 {
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
        matches.then(|| Norm { p, dims: folded.dims.clone() })
    })
}
