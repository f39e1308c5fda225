//! Scans along an axis: cumulative sums, products and extremes.

use super::Input;
use crate::DType;
use crate::loops::fold::{Fold, identity};
use crate::loops::scan::ScanOrder;
use crate::loops::{AxisId, Index, IndexMap, LoopBuilder, LoopError, StageKind, StageOutput};
use crate::scalar_expr::{BinaryOp, CmpOp, ExprBuilder, Reg, UnaryOp};
use crate::sym::Expr;
use smallvec::SmallVec;

/// The results of folding the elements up to each, as `cumsum` and `cumprod`. Elements are cast to
/// the dtype of the output; sums and products are `f64` or `i64`, and cast once. An axis that is
/// not among those of `x` makes each element a line.
///
/// # Errors
/// The fold is not a sum or a product.
pub fn scan(
    nest: &mut LoopBuilder,
    x: &Input,
    along: AxisId,
    fold: Fold,
    out: DType,
) -> Result<StageOutput, LoopError> {
    let wide = if out.is_float() { DType::F64 } else { DType::I64 };
    if !matches!(fold, Fold::Sum | Fold::Prod) {
        return Err(LoopError::new("a cumulative fold is a sum or a product"));
    }
    let lines = Lines::new(x, along);
    let order = ScanOrder::of(&fold, wide);
    let sums = nest.stage(&lines.over, StageKind::Scan { along, fold, order }, |s| {
        let element = s.element(x, out)?;
        Ok(vec![s.expr.cast(element, wide)?])
    })?;
    let result = nest.map(&x.axes, |s| {
        let sum = s.load(sums, lines.at())?;
        Ok(s.expr.cast(sum, out)?)
    })?;
    Ok(result.into())
}

/// The greatest element up to each, or the least, and its position, as `cummax` and `cummin`. Of
/// equal elements the last one counts, and after a NaN the result is the last NaN.
///
/// # Errors
/// The operand does not exist.
pub fn cumulative_extreme(
    nest: &mut LoopBuilder,
    x: &Input,
    along: AxisId,
    max: bool,
) -> Result<[StageOutput; 2], LoopError> {
    let lines = Lines::new(x, along);
    let mut combine = ExprBuilder::new();
    let [value, at, next, position] =
        [x.dtype, DType::I64, x.dtype, DType::I64].map(|dtype| combine.input(dtype));
    let follows = combine.compare(if max { CmpOp::Ge } else { CmpOp::Le }, next, value)?;
    let mut is_nan = |x: Reg| combine.compare(CmpOp::Ne, x, x);
    let (value_is_nan, next_is_nan) = (is_nan(value)?, is_nan(next)?);
    let is_number = combine.unary(UnaryOp::Not, value_is_nan)?;
    let follows = combine.binary(BinaryOp::And, is_number, follows)?;
    let follows = combine.binary(BinaryOp::Or, next_is_nan, follows)?;
    let (value, at) =
        (combine.select(follows, next, value)?, combine.select(follows, position, at)?);
    let extreme = identity(if max { &Fold::Max } else { &Fold::Min }, x.dtype);
    let fold = Fold::Of {
        identity: vec![extreme, 0.into()],
        combine: Box::new(combine.finish(&[value, at])?),
    };
    let kind = StageKind::Scan { along, fold, order: ScanOrder::Exact };
    let extremes =
        nest.stage(&lines.over, kind, |s| Ok(vec![s.element(x, x.dtype)?, s.coord(along)]))?;
    let result = |output| StageOutput { stage: extremes, output };
    if x.axes.contains(&along) {
        return Ok([result(0), result(1)]);
    }
    let both = nest.stage(&x.axes, StageKind::Map, |s| {
        Ok(vec![s.load(result(0), lines.at())?, s.load(result(1), lines.at())?])
    })?;
    Ok([both.into(), StageOutput { stage: both, output: 1 }])
}

/// The lines along an axis.
struct Lines<'a> {
    x: &'a Input,
    over: SmallVec<[AxisId; 4]>,
}

impl Lines<'_> {
    fn new(x: &Input, along: AxisId) -> Lines<'_> {
        let own = (!x.axes.contains(&along)).then_some(along);
        Lines { x, over: x.axes.iter().copied().chain(own).collect() }
    }

    /// Where the result of an element is.
    fn at(&self) -> IndexMap {
        let axes = self.x.axes.iter().map(|axis| Index::from(*axis));
        axes.chain((self.over.len() > self.x.axes.len()).then(|| Expr::Int(0).into())).collect()
    }
}
