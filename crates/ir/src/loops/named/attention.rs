//! Scaled dot-product attention: `softmax(q kᵀ scale + mask) v`.
//!
//! A score is the sum of two products: of the first five eighths of the width, and of the rest. Two
//! chains round less than one, and an exponential has the error of a score in all its digits. The
//! weights are exponentials; their sums are applied to the product with the values, to which +0 is
//! added first, so that hidden keys change no sign of a zero. All is computed in the accumulator's
//! dtype, and the result is cast once.

use super::Input;
use crate::DType;
use crate::loops::fold::{Fold, Order};
use crate::loops::{
    Affine, Axes, AxisId, Index, IndexMap, LoopBuilder, LoopError, ScalarId, StageBuilder, StageId,
    StageKind, StageOutput,
};
use crate::scalar_expr::{BinaryOp, Bounds, CmpOp, Reg, UnaryOp};
use crate::sym::{Expr, SymError};

/// An attention of `query[…, N, E]`, `key[…, L, E]` and `value[…, L, D]`.
#[derive(Clone, Copy, Debug)]
pub struct Attention<'a> {
    /// The queries.
    pub query: &'a Input,
    /// The keys.
    pub key: &'a Input,
    /// The values.
    pub value: &'a Input,
    /// Broadcast to `[…, N, L]`: a bool mask selects the keys that a query sees, a float mask is
    /// added to the scores.
    pub mask: Option<&'a Input>,
    /// The axes of the output's leading dimensions, to which those of the operands are broadcast.
    pub batch: &'a [AxisId],
    /// Whether query `i` sees only keys `0..=i`. The keys after as many as there are queries are
    /// not read.
    pub causal: bool,
    /// The factor of the scores.
    pub scale: Scale,
    /// Whether a head of keys and values, the last leading dimension, serves several heads in turn.
    pub grouped: bool,
    /// Whether the weights are rounded to the output's dtype before they are multiplied.
    pub round: bool,
    /// Whether a query that sees no key yields NaN, as by a softmax, in place of 0.
    pub plain_softmax: bool,
    /// The dtype of the output.
    pub out: DType,
}

/// The factor of an attention's scores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Without width every score is 0, and has no factor.
    None,
    /// A number of the accumulator's dtype.
    Number(ScalarId),
    /// `1 / sqrt(E)`, computed in `f64`.
    Width,
}

/// The outputs of an attention.
#[derive(Clone, Copy, Debug)]
pub struct Attended {
    /// `[…, N, D]`.
    pub output: StageOutput,
    /// The greatest score of each query, or 0 if it sees no key and the softmax is not plain, and
    /// the sum of the weights, or 1.
    rows: StageId,
}

/// The axes of the stages.
struct Rows {
    /// Leading dimensions and queries.
    rows: Axes,
    /// Also keys.
    scores: Axes,
    query: AxisId,
    key: AxisId,
}

/// Appends the stages of an attention.
///
/// # Errors
/// An operand has fewer than two dimensions, or the output is not a float.
pub fn attention(nest: &mut LoopBuilder, of: &Attention<'_>) -> Result<Attended, LoopError> {
    let [(query, width), (keys, _), (_, value)] =
        [last_axes(of.query)?, last_axes(of.key)?, last_axes(of.value)?];
    let key = match of.causal {
        false => keys,
        true => {
            let [n, l] = [query, keys].map(|axis| nest.nest().extent(axis));
            let seen = sized(nest.symbols_mut().min(n, l))?;
            nest.axis(seen)
        }
    };
    let rows: Axes = of.batch.iter().copied().chain([query]).collect();
    let scores = rows.iter().copied().chain([key]).collect();
    let axes = Rows { rows, scores, query, key };
    let scores = self::scores(nest, of, &axes, width)?;
    let wide = of.out.accumulator();
    let Rows { rows, scores: over, .. } = &axes;
    let max = nest.reduce(over, &[key], Fold::Max, Order::Lanes, |s| s.load(scores, &over[..]))?;
    let shift = |s: &mut StageBuilder<'_>| -> Result<Reg, LoopError> {
        let max = s.load(max, &rows[..])?;
        if of.plain_softmax {
            return Ok(max);
        }
        let least = s.expr.constant(f64::NEG_INFINITY, wide);
        let (sees_none, zero) =
            (s.expr.compare(CmpOp::Eq, max, least)?, s.expr.constant(0.0, wide));
        Ok(s.expr.select(sees_none, zero, max)?)
    };
    let weights = nest.map(over, |s| {
        let (score, shift) = (s.load(scores, &over[..])?, shift(s)?);
        let shifted = s.expr.binary(BinaryOp::Sub, score, shift)?;
        Ok(s.expr.unary(UnaryOp::Exp, shifted)?)
    })?;
    let sum = nest.reduce(over, &[key], Fold::Sum, Order::Lanes, |s| s.load(weights, &over[..]))?;
    let of_rows = nest.stage(rows, StageKind::Map, |s| {
        let (shift, sum) = (shift(s)?, s.load(sum, &rows[..])?);
        let (zero, one) = (s.expr.constant(0.0, wide), s.expr.constant(1.0, wide));
        let is_zero = s.expr.compare(CmpOp::Eq, sum, zero)?;
        Ok(vec![shift, s.expr.select(is_zero, one, sum)?])
    })?;
    let along: Axes = [key].into_iter().collect();
    let over_values: Axes = rows.iter().copied().chain([value, key]).collect();
    let (lead, ratio) = leading(nest, of, of.value)?;
    let products = nest.stage(&over_values, StageKind::Contract { along }, |s| {
        let weight = s.load(weights, &over[..])?;
        let weight = if of.round { s.expr.cast(weight, of.out)? } else { weight };
        let weight = s.expr.cast(weight, wide)?;
        let value = s.of_head(of.value, of, lead, ratio, [key.into(), value.into()])?;
        Ok(vec![weight, s.expr.cast(value, wide)?])
    })?;
    let out: Axes = rows.iter().copied().chain([value]).collect();
    let output = nest.map(&out, |s| {
        let (product, zero) = (s.load(products, &out[..])?, s.expr.constant(0.0, wide));
        let product = s.expr.binary(BinaryOp::Add, product, zero)?;
        let sum = s.load(StageOutput { stage: of_rows, output: 1 }, &rows[..])?;
        let factor = s.expr.unary(UnaryOp::Reciprocal, sum)?;
        let y = s.expr.binary(BinaryOp::Mul, product, factor)?;
        Ok(s.expr.cast(y, of.out)?)
    })?;
    Ok(Attended { output: output.into(), rows: of_rows })
}

/// Appends the logarithms of the sums of exponentials of an attention's scores, `[…, N]`.
///
/// # Errors
/// The output is not a float.
pub fn logarithms(
    nest: &mut LoopBuilder,
    of: &Attended,
    out: DType,
) -> Result<StageOutput, LoopError> {
    let rows = nest.nest().stage(of.rows).map(|stage| stage.over.clone()).unwrap_or_default();
    let logarithms = nest.map(&rows, |s| {
        let shift = s.load(of.rows, &rows[..])?;
        let sum = s.load(StageOutput { stage: of.rows, output: 1 }, &rows[..])?;
        let log = s.expr.unary(UnaryOp::Log, sum)?;
        let y = s.expr.binary(BinaryOp::Add, shift, log)?;
        Ok(s.expr.cast(y, out)?)
    })?;
    Ok(logarithms.into())
}

/// The scores with factor and masks.
fn scores(
    nest: &mut LoopBuilder,
    of: &Attention<'_>,
    axes: &Rows,
    width: AxisId,
) -> Result<StageId, LoopError> {
    let (wide, width) = (of.out.accumulator(), nest.nest().extent(width));
    let symbols = nest.symbols_mut();
    let middle = symbols.mul(width, Expr::Int(5)).and_then(|n| symbols.add(n, Expr::Int(7)));
    let middle = sized(middle.and_then(|n| symbols.floor_div(n, Expr::Int(8))))?;
    let rest = sized(symbols.sub(width, middle))?;
    let (at_query, _) = leading(nest, &Attention { grouped: false, ..*of }, of.query)?;
    let (at_key, ratio) = leading(nest, of, of.key)?;
    let mut part = |start: Expr, extent: Expr| {
        let of_width = nest.axis(extent);
        let at_width = Affine { start, ..Affine::from(of_width) };
        let over: Axes = axes.scores.iter().copied().chain([of_width]).collect();
        let along: Axes = [of_width].into_iter().collect();
        nest.stage(&over, StageKind::Contract { along }, |s| {
            let last = [axes.query.into(), at_width.clone().into()];
            let map = at_query.iter().cloned().chain(last).collect::<IndexMap>();
            let query = s.load(of.query.id, map)?;
            let query = s.expr.cast(query, wide)?;
            let last = [axes.key.into(), at_width.into()];
            let key = s.of_head(of.key, of, at_key.clone(), ratio, last)?;
            Ok(vec![query, s.expr.cast(key, wide)?])
        })
    };
    let (first, second) = (part(Expr::Int(0), middle)?, part(middle, rest)?);
    let mask = match of.mask {
        Some(mask) => Some((mask, nest.broadcast_to(mask, &axes.scores)?)),
        None => None,
    };
    let width = (of.scale == Scale::Width).then(|| nest.size(width));
    nest.map(&axes.scores, |s| {
        let (first, second) = (s.load(first, &axes.scores[..])?, s.load(second, &axes.scores[..])?);
        let mut score = s.expr.binary(BinaryOp::Add, second, first)?;
        let scale = match (of.scale, width) {
            (Scale::Number(number), _) => Some(s.launch(number)?),
            (_, Some(width)) => {
                let width = s.launch(width)?;
                let width = s.expr.cast(width, DType::F64)?;
                let root = s.expr.unary(UnaryOp::Sqrt, width)?;
                let scale = s.expr.unary(UnaryOp::Reciprocal, root)?;
                Some(s.expr.cast(scale, wide)?)
            }
            _ => None,
        };
        if let Some(scale) = scale {
            score = s.expr.binary(BinaryOp::Mul, score, scale)?;
        }
        let least = s.expr.constant(f64::NEG_INFINITY, wide);
        if let Some((mask, at)) = mask {
            let x = s.load(mask.id, at)?;
            score = if mask.dtype == DType::Bool {
                s.expr.select(x, score, least)?
            } else {
                let x = s.expr.cast(x, wide)?;
                s.expr.binary(BinaryOp::Add, score, x)?
            };
        }
        if of.causal {
            let (key, query) = (s.coord(axes.key), s.coord(axes.query));
            let sees = s.expr.compare(CmpOp::Le, key, query)?;
            score = s.expr.select(sees, score, least)?;
        }
        Ok(score)
    })
}

/// The axes of an operand's last two dimensions.
fn last_axes(x: &Input) -> Result<(AxisId, AxisId), LoopError> {
    match x.axes[..] {
        [.., a, b] => Ok((a, b)),
        _ => Err(LoopError::new("an operand of an attention has fewer than two dimensions")),
    }
}

/// Where the leading dimensions of an operand are read; of a grouped one, the head is computed by
/// the number of heads that one serves.
fn leading(
    nest: &mut LoopBuilder,
    of: &Attention<'_>,
    x: &Input,
) -> Result<(Vec<Index>, Option<ScalarId>), LoopError> {
    let lead = x.axes.len().saturating_sub(2);
    let too_many = || LoopError::new("an operand of an attention does not expand to the output");
    let batch = &of.batch[of.batch.len().checked_sub(lead).ok_or_else(too_many)?..];
    let mut at = Vec::with_capacity(lead + 2);
    for (dim, axis) in x.axes.iter().zip(batch) {
        at.push(Index::from(nest.broadcast(*dim, *axis)?));
    }
    if !of.grouped {
        return Ok((at, None));
    }
    let (Some(last), Some(heads)) = (at.last_mut(), batch.last()) else {
        return Err(LoopError::new("an operand of a grouped attention has no heads"));
    };
    *last = Index::Computed;
    let [all, own] = [*heads, x.axes[lead - 1]].map(|axis| nest.nest().extent(axis));
    let ratio = sized(nest.symbols_mut().floor_div(all, own))?;
    Ok((at, Some(nest.size(ratio))))
}

fn sized(size: Result<Expr, SymError>) -> Result<Expr, LoopError> {
    size.map_err(|e| LoopError::new(e.to_string()))
}

impl StageBuilder<'_> {
    /// The element of keys or values at a head.
    fn of_head(
        &mut self,
        x: &Input,
        of: &Attention<'_>,
        lead: Vec<Index>,
        ratio: Option<ScalarId>,
        last: [Index; 2],
    ) -> Result<Reg, LoopError> {
        let map: IndexMap = lead.into_iter().chain(last).collect();
        let (Some(ratio), Some(heads)) = (ratio, of.batch.last()) else {
            return self.load(x.id, map);
        };
        let (head, ratio) = (self.coord(*heads), self.launch(ratio)?);
        let head = self.expr.binary(BinaryOp::FloorDiv, head, ratio)?;
        self.read(x.id, map, &[head], Bounds::Fails, None)
    }
}
