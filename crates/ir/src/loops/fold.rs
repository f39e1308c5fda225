//! Folds, and the orders in which they combine values.
//!
//! A fold is a monoid on one register, or on a few: an identity, and an operation that combines two
//! states. [`Order`] says which states are combined with which.
//!
//! # Lanes
//!
//! [`Order::Lanes`] vectorises, divides among threads, and depends on the number of values alone:
//!
//! 1. The values are divided into chunks of [`Lanes::chunk`]. Each chunk has [`Lanes::lanes`]
//!    states, which begin as the identity. Value `i` of the chunk is combined into state
//!    `i % lanes`, in increasing `i`.
//! 2. Chunks are combined state by state as in pairwise summation (Higham, "The accuracy of
//!    floating point summation", 1993): a binary counter of chunks, in which two partial results of
//!    `2^w` chunks become one of `2^(w + 1)`; in the end the rest is combined from the last to the
//!    first.
//! 3. The states are combined as a binary tree, the upper half onto the lower half.
//!
//! No values give the identity.
//!
//! # Contractions
//!
//! The sum of products of [`StageKind::Contract`](super::StageKind::Contract) vectorises over its
//! results, so each sum is a chain:
//!
//! 1. The products are divided into segments of [`SEGMENT`](super::SEGMENT). The sum of a segment
//!    is one chain of fused multiply-adds from +0, each rounded once.
//! 2. [`GROUP`](super::GROUP) segments make a group. Its sum is that of its first segment, to which
//!    the others are added in order.
//! 3. The sum is that of the first group, to which the others are added in order. The sum of no
//!    products is +0.
//!
//! Integers wrap, so their order does not matter.
//!
//! # Moments
//!
//! [`Fold::Moments`] is the corrected two-pass algorithm (Chan, Golub and LeVeque, "Algorithms for
//! computing the sample variance", 1983), with sums in [`Order::Lanes`]:
//!
//! 1. `near` is the sum of the values divided by their number `n`. If it is infinite, it is the sum
//!    of the values that are divided by `n` first.
//! 2. `sum` and `squares` are the sums of `x - near` and of its square. `lost = sum / n` is the
//!    rounding error of `near`. The mean is `near + lost`, or `near` if `lost` is not finite.
//! 3. The sum of squared deviations is `squares - sum * lost`. If `squares` is not finite, or
//!    `sum * lost` is not less than infinity, it is the sum of `(x - mean)^2` instead. A negative
//!    one is 0.

use super::array::Array;
use crate::scalar_expr::{BinaryOp, EvalError, Functions, ScalarExpr, binary};
use crate::{DType, Scalar};
use smallvec::{SmallVec, smallvec};

/// What a fold computes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Fold {
    /// The sum; of bool, whether any holds.
    Sum,
    /// The product; of bool, whether all hold.
    Prod,
    /// The least value, or NaN if there is one.
    Min,
    /// The greatest value, or NaN if there is one.
    Max,
    /// The least value and its index among the folded values: of the first of equal ones. NaN is
    /// less than every number.
    ArgMin,
    /// The greatest value and its index: of the first of equal ones. NaN is greater than every
    /// number.
    ArgMax,
    /// The mean of floats, and the sum of their squared deviations from it.
    Moments,
    /// A fold of the expression's outputs, which are the states.
    Of {
        /// The state that changes none.
        identity: Vec<Scalar>,
        /// From the registers of two states to those of one.
        combine: Box<ScalarExpr>,
    },
}

/// The order in which a fold combines values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Order {
    /// By lanes and chunks; see the [module documentation](self#lanes).
    Lanes,
    /// From the identity, one value after another.
    Sequential,
}

/// The constants of [`Order::Lanes`]. The order of a sum is part of a program's meaning, not of a
/// device, so every device has the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Lanes {
    /// The states of a chunk, a power of two.
    pub lanes: usize,
    /// The values of a chunk.
    pub chunk: usize,
}

impl Lanes {
    /// The constants of every nest.
    pub const ORDER: Lanes = Lanes { lanes: 32, chunk: 2048 };
}

impl Fold {
    /// The name in text; `None` for [`Fold::Of`].
    pub const fn name(&self) -> Option<&'static str> {
        Some(match self {
            Fold::Sum => "sum",
            Fold::Prod => "prod",
            Fold::Min => "min",
            Fold::Max => "max",
            Fold::ArgMin => "argmin",
            Fold::ArgMax => "argmax",
            Fold::Moments => "moments",
            Fold::Of { .. } => return None,
        })
    }

    /// The folds that have a name.
    pub(super) const NAMED: [Fold; 7] =
        [Fold::Sum, Fold::Prod, Fold::Min, Fold::Max, Fold::ArgMin, Fold::ArgMax, Fold::Moments];

    /// The dtypes of the results of folding values of these dtypes.
    pub(super) fn output_dtypes(
        &self,
        values: impl Iterator<Item = DType>,
    ) -> SmallVec<[DType; 2]> {
        match self {
            Fold::ArgMin | Fold::ArgMax => values.take(1).chain([DType::I64]).collect(),
            Fold::Moments => values.take(1).flat_map(|dtype| [dtype, dtype]).collect(),
            _ => values.collect(),
        }
    }

    /// The operation of a fold that combines two values of one register; `None` for the others.
    pub const fn binary_op(&self) -> Option<BinaryOp> {
        match self {
            Fold::Sum => Some(BinaryOp::Add),
            Fold::Prod => Some(BinaryOp::Mul),
            Fold::Min => Some(BinaryOp::Min),
            Fold::Max => Some(BinaryOp::Max),
            _ => None,
        }
    }
}

/// The state of one register that changes no other: for [`Fold::Min`] and [`Fold::Max`] the
/// extreme of the dtype.
pub fn identity(fold: &Fold, dtype: DType) -> Scalar {
    let least = matches!(fold, Fold::Max | Fold::ArgMax);
    match (fold, dtype) {
        (Fold::Sum, DType::Bool) => Scalar::Bool(false),
        (Fold::Prod, DType::Bool) => Scalar::Bool(true),
        (Fold::Sum, d) if d.is_float() => Scalar::Float(0.0),
        (Fold::Prod, d) if d.is_float() => Scalar::Float(1.0),
        (Fold::Sum, _) => Scalar::Int(0),
        (Fold::Prod, _) => Scalar::Int(1),
        (_, DType::Bool) => Scalar::Bool(!least),
        (_, d) => match d.int_range() {
            Some((min, max)) => Scalar::Int(if least { min } else { max }),
            None => Scalar::Float(if least { f64::NEG_INFINITY } else { f64::INFINITY }),
        },
    }
}

/// A state of a fold: its registers.
pub type State = SmallVec<[Scalar; 2]>;

/// A fold as the reference evaluator computes it, one value at a time.
pub struct ReferenceFold<'a> {
    /// The fold.
    pub fold: &'a Fold,
    /// The order.
    pub order: Order,
    /// The constants of [`Order::Lanes`].
    pub lanes: Lanes,
    /// The dtypes of the folded registers, of which there is at least one.
    pub dtypes: SmallVec<[DType; 2]>,
    /// The elementary functions of [`Fold::Of`].
    pub functions: &'a dyn Functions,
}

impl ReferenceFold<'_> {
    /// Folds values, each a list of registers of the dtypes.
    ///
    /// # Errors
    /// An integer is divided by zero.
    pub fn fold(&self, values: &[State]) -> Result<State, EvalError> {
        let state = match self.fold {
            Fold::Moments => {
                let values: Vec<Scalar> = values.iter().map(|v| v[0]).collect();
                self.moments(&values)?
            }
            Fold::ArgMin | Fold::ArgMax => {
                let numbered = values.iter().zip(0..).map(|(v, i)| smallvec![v[0], Scalar::Int(i)]);
                self.combined(numbered.collect())?
            }
            _ => self.combined(values.to_vec())?,
        };
        Ok(state.into_iter().map(Array::one_nan).collect())
    }

    /// The state of no values.
    pub fn identity(&self) -> State {
        match self.fold {
            Fold::Of { identity, .. } => identity.iter().copied().collect(),
            Fold::ArgMin | Fold::ArgMax => {
                smallvec![identity(self.fold, self.dtypes[0]), Scalar::Int(0)]
            }
            fold => smallvec![identity(fold, self.dtypes[0])],
        }
    }

    /// Combines two states.
    ///
    /// # Errors
    /// An integer is divided by zero.
    pub fn combine(&self, a: &State, b: &State) -> Result<State, EvalError> {
        match self.fold {
            Fold::Of { combine, .. } => {
                let both: Vec<Scalar> = a.iter().chain(b).copied().collect();
                Ok(combine.eval_with(&both, self.functions)?.into())
            }
            Fold::ArgMin | Fold::ArgMax => Ok(self.extreme(a, b)),
            fold => {
                let op = fold.binary_op().unwrap_or(BinaryOp::Add);
                Ok(smallvec![binary(op, a[0], b[0], self.dtypes[0], self.functions)?])
            }
        }
    }

    /// The extreme of two values with their indices.
    fn extreme(&self, a: &State, b: &State) -> State {
        let is_nan = |s: &State| matches!(s[0], Scalar::Float(x) if x.is_nan());
        let (mut a, mut b) = (a, b);
        if a[1].to_i64() > b[1].to_i64() {
            std::mem::swap(&mut a, &mut b);
        }
        // of equal values, and of two NaNs, the first
        let replaces = match (is_nan(a), is_nan(b)) {
            (true, _) => false,
            (false, true) => true,
            _ => {
                let order = compare(b[0], a[0]);
                order == if *self.fold == Fold::ArgMax { Some(Greater) } else { Some(Less) }
            }
        };
        if replaces { b.clone() } else { a.clone() }
    }

    fn combined(&self, values: Vec<State>) -> Result<State, EvalError> {
        match self.order {
            Order::Sequential => {
                values.iter().try_fold(self.identity(), |state, value| self.combine(&state, value))
            }
            Order::Lanes => self.by_lanes(&values),
        }
    }

    /// See the [module documentation](self#lanes).
    fn by_lanes(&self, values: &[State]) -> Result<State, EvalError> {
        let merge = |a: &[State], b: &[State]| -> Result<Vec<State>, EvalError> {
            a.iter().zip(b).map(|(a, b)| self.combine(a, b)).collect()
        };
        // partial results of 2^weight chunks, with strictly decreasing weights
        let mut counter: Vec<(u32, Vec<State>)> = Vec::new();
        for chunk in values.chunks(self.lanes.chunk) {
            let mut states = vec![self.identity(); self.lanes.lanes];
            for (i, value) in chunk.iter().enumerate() {
                let state = &mut states[i % self.lanes.lanes];
                *state = self.combine(state, value)?;
            }
            let mut weight = 0;
            while let Some((_, left)) = counter.pop_if(|(w, _)| *w == weight) {
                states = merge(&left, &states)?;
                weight += 1;
            }
            counter.push((weight, states));
        }
        let Some((_, mut states)) = counter.pop() else { return Ok(self.identity()) };
        while let Some((_, left)) = counter.pop() {
            states = merge(&left, &states)?;
        }
        while states.len() > 1 {
            let upper = states.split_off(states.len() / 2);
            states = merge(&states, &upper)?;
        }
        Ok(states.pop().unwrap_or_else(|| self.identity()))
    }

    /// See the [module documentation](self#moments).
    fn moments(&self, values: &[Scalar]) -> Result<State, EvalError> {
        let dtype = self.dtypes[0];
        let op = |op, a: Scalar, b: Scalar| binary(op, a, b, dtype, self.functions);
        let sums = ReferenceFold { fold: &Fold::Sum, dtypes: self.dtypes.clone(), ..*self };
        let sum = |values: &mut dyn Iterator<Item = Result<Scalar, EvalError>>| {
            let values: Result<Vec<State>, EvalError> =
                values.map(|v| v.map(|v| smallvec![v])).collect();
            sums.by_lanes(&values?).map(|s| s[0])
        };
        let is_finite = |x: Scalar| x.to_f64().is_finite();
        let n = crate::scalar_expr::cast_scalar(Scalar::Int(values.len() as i64), dtype);
        let mut near = op(BinaryOp::Div, sum(&mut values.iter().map(|&x| Ok(x)))?, n)?;
        if near.to_f64().is_infinite() {
            near = sum(&mut values.iter().map(|&x| op(BinaryOp::Div, x, n)))?;
        }
        let square = |x: Scalar, from: Scalar| {
            let d = op(BinaryOp::Sub, x, from)?;
            op(BinaryOp::Mul, d, d)
        };
        let deviations = sum(&mut values.iter().map(|&x| op(BinaryOp::Sub, x, near)))?;
        let squares = sum(&mut values.iter().map(|&x| square(x, near)))?;
        let lost = op(BinaryOp::Div, deviations, n)?;
        let mean = if is_finite(lost) { op(BinaryOp::Add, near, lost)? } else { near };
        let excess = op(BinaryOp::Mul, deviations, lost)?;
        let is_small = |x: Scalar| x.to_f64() < f64::INFINITY;
        let squares = if is_small(excess) && is_small(squares) {
            op(BinaryOp::Sub, squares, excess)?
        } else {
            sum(&mut values.iter().map(|&x| square(x, mean)))?
        };
        let squares = if squares.to_f64() < 0.0 { Scalar::Float(0.0) } else { squares };
        Ok(smallvec![mean, squares])
    }
}

use std::cmp::Ordering::{self, Greater, Less};

/// The order of two numbers of one category; `None` if one is NaN.
fn compare(a: Scalar, b: Scalar) -> Option<Ordering> {
    match (a, b) {
        (Scalar::Float(a), Scalar::Float(b)) => a.partial_cmp(&b),
        (a, b) => Some(a.to_i64().cmp(&b.to_i64())),
    }
}
