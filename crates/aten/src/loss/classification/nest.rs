//! The loop nests of losses that read the score of a label. They compute in `f64`, and add in the
//! order of the elements.

use super::{class_dim, labels};
use crate::loss::{Reduces, sum_of};
use maquette_ir::DType;
use maquette_ir::loops::fold::{Fold, Order};
use maquette_ir::loops::{
    Axes, AxisId, Index, IndexMap, LoopError, OperandId, StageKind, StageOutput,
};
use maquette_ir::scalar_expr::{BinaryOp, Bounds, CmpOp, Reg, UnaryOp};
use maquette_ir::sym::Expr;
use maquette_ops::Reduction;
use maquette_ops::operator::loops::{NestCx, NestResults};
use maquette_ops::{Error, Result, Value};
use smallvec::smallvec;

/// The negative log-likelihood of each label, reduced, in `f64`. The mean divides by the total
/// weight.
pub(crate) fn nll(cx: &mut NestCx<'_>) -> Result<NestResults> {
    cx.explain(not_a_class);
    let (x, target, weight) = (cx.input(0)?, cx.input(1)?, cx.optional_input(2)?);
    let (reduction, wide) = (cx.by_integers(|a| Reduction::of(&a[3]))?, DType::F64);
    let ignored = cx.number(4, DType::I64)?;
    let classes = usize::from(x.axes.len() > 1);
    let mut axes = x.axes.clone();
    axes.remove(classes);
    // A single example may have its label as a vector of size 1.
    let target_at: IndexMap = match x.axes.len() {
        1 => target.axes.iter().map(|_| Index::from(Expr::Int(0))).collect(),
        _ => axes[..].into(),
    };
    let mut score_at: IndexMap = axes[..].into();
    score_at.0.insert(classes, Index::Computed);
    // The loss of each label, and its weight.
    let losses = cx.nest.stage(&axes, StageKind::Map, |s| {
        let label = s.load(target.id, target_at)?;
        let (label, ignored) = (s.expr.cast(label, DType::I64)?, s.launch(ignored)?);
        let counts = s.expr.compare(CmpOp::Ne, label, ignored)?;
        let score = s.read(x.id, score_at, &[label], Bounds::Fails, Some(counts))?;
        let score = s.expr.cast(score, wide)?;
        let (zero, one) = (s.expr.constant(0.0, wide), s.expr.constant(1.0, wide));
        let weight = match &weight {
            Some(weight) => {
                let at: IndexMap = [Index::Computed].into_iter().collect();
                let weight = s.read(weight.id, at, &[label], Bounds::Fails, Some(counts))?;
                s.expr.cast(weight, wide)?
            }
            None => one,
        };
        let factor = s.expr.unary(UnaryOp::Neg, weight)?;
        let loss = s.expr.binary(BinaryOp::Mul, factor, score)?;
        [loss, weight].into_iter().map(|x| Ok(s.expr.select(counts, x, zero)?)).collect()
    })?;
    let total = sum_of(cx, StageOutput { stage: losses, output: 1 }, &axes)?;
    let loss = reduction.append(cx, losses.into(), &axes, Some(total))?;
    // PyTorch reports no total weight for a batch that is not reduced.
    let is_reported = reduction != Reduction::None || x.axes.len() == 1;
    let total = cx.nest.map(&[], |s| match is_reported {
        true => {
            let total = s.load(total, [])?;
            Ok(s.expr.cast(total, x.dtype)?)
        }
        false => Ok(s.expr.constant(0.0, x.dtype)),
    })?;
    Ok(smallvec![loss, total.into()])
}

/// The error of a call with a label that is not a class. The argument 4 of `nll_loss` is the label
/// that is ignored.
fn not_a_class(args: &[Value]) -> Result<Error> {
    let (x, target) = (args[0].tensor()?, args[1].tensor()?);
    let classes = x.sizes_i64()?.get(class_dim(x)).copied().unwrap_or(1);
    let ignored = args.get(4).and_then(|v| v.int_i64().ok());
    let is_class = |t: &i64| Some(*t) == ignored || (0..classes).contains(t);
    let found = labels(target)?.into_iter().find(|t| !is_class(t)).unwrap_or(classes);
    Ok(Error::value(format!("`target` holds the class {found}, but `self` has {classes} classes")))
}

/// The mean violation of a margin between the class of each row and the others, to the power of p,
/// in `f64`.
pub(crate) fn multi_margin(cx: &mut NestCx<'_>) -> Result<NestResults> {
    cx.explain(not_a_class);
    let (p, wide) = (cx.scalar(2)?.to_f64(), DType::F64);
    let (x, target, weight) = (cx.input(0)?, cx.input(1)?, cx.optional_input(4)?);
    let (reduction, margin) = (cx.by_integers(|a| Reduction::of(&a[5]))?, cx.number(3, wide)?);
    let (class, rows): (AxisId, Axes) = match x.axes[..] {
        [] => (cx.nest.unit_axis(), smallvec![cx.nest.unit_axis()]),
        [class] => (class, smallvec![cx.nest.unit_axis()]),
        [row, class, ..] => (class, smallvec![row]),
    };
    let target_at: IndexMap = target.axes.iter().map(|_| Index::from(rows[0])).collect();
    let message = cx.nest.message("`target` holds a number that is not a class");
    let classes = cx.nest.nest().extent(class);
    let classes = cx.nest.size(classes);
    // The class of each row with its score and weight.
    let own = cx.nest.stage(&rows, StageKind::Map, |s| {
        let (label, zero) = (s.load(target.id, target_at)?, s.expr.constant(0, DType::I64));
        let classes = s.launch(classes)?;
        let from = s.expr.compare(CmpOp::Ge, label, zero)?;
        let to = s.expr.compare(CmpOp::Lt, label, classes)?;
        let is_class = s.expr.binary(BinaryOp::And, from, to)?;
        s.expr.assert(is_class, message)?;
        let mut at: IndexMap = x.axes.iter().map(|axis| Index::from(*axis)).collect();
        let mut read = |from: OperandId, at: IndexMap| -> Result<Reg, LoopError> {
            let positions: &[Reg] = if at.is_affine() { &[] } else { &[label] };
            let value = match positions {
                [] => s.load(from, at)?,
                _ => s.read(from, at, positions, Bounds::Clamps, Some(is_class))?,
            };
            Ok(s.expr.cast(value, wide)?)
        };
        if let Some(last) = at.0.last_mut() {
            *last = Index::Computed;
        }
        let score = read(x.id, at)?;
        let weight = match &weight {
            Some(weight) => read(weight.id, weight.axes.iter().map(|_| Index::Computed).collect())?,
            None => s.expr.constant(1.0, wide),
        };
        Ok(vec![label, score, weight])
    })?;
    let over = [rows[0], class];
    let of_row = |output| StageOutput { stage: own, output };
    let sum = cx.nest.reduce(&over, &[class], Fold::Sum, Order::Sequential, |s| {
        let [label, score, weight] = [
            s.load(of_row(0), [rows[0]])?,
            s.load(of_row(1), [rows[0]])?,
            s.load(of_row(2), [rows[0]])?,
        ];
        let (value, margin) = (s.element(&x, wide)?, s.launch(margin)?);
        let short = s.expr.binary(BinaryOp::Sub, margin, score)?;
        let violation = s.expr.binary(BinaryOp::Add, short, value)?;
        // As in PyTorch, the maximum ignores NaN, so that NaN counts as no violation.
        let zero = s.expr.constant(0.0, wide);
        let (coord, is_more) = (s.coord(class), s.expr.compare(CmpOp::Gt, violation, zero)?);
        let is_other = s.expr.compare(CmpOp::Ne, coord, label)?;
        let mut violation = s.expr.select(is_more, violation, zero)?;
        if p == 2.0 {
            violation = s.expr.binary(BinaryOp::Mul, violation, violation)?;
        }
        let weighted = s.expr.binary(BinaryOp::Mul, violation, weight)?;
        Ok(s.expr.select(is_other, weighted, zero)?)
    })?;
    // A single row has no dimension, unless its label has one.
    let axes: Axes = match x.axes.len() {
        0 | 1 if target.axes.is_empty() => Axes::new(),
        _ => rows.clone(),
    };
    let losses = cx.nest.map(&axes, |s| {
        let at: IndexMap = match axes.is_empty() {
            true => [Index::from(Expr::Int(0))].into_iter().collect(),
            false => rows[..].into(),
        };
        let (sum, classes) = (s.load(sum, at)?, s.launch(classes)?);
        let classes = s.expr.cast(classes, wide)?;
        Ok(s.expr.binary(BinaryOp::Div, sum, classes)?)
    })?;
    Ok(smallvec![reduction.append(cx, losses.into(), &axes, None)?])
}
