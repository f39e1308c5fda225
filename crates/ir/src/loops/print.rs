//! The text form of loop nests, which [`super::parse`] reads back.
//!
//! Operands are `a0`, `a1`, …, launch scalars `c0`, axes `i0`, stages `t0`, registers `r0`. Output
//! 1 of a stage is `t0:1`. Sizes in indices stand in parentheses, so that no symbol is taken for
//! an axis or a register. Facts about symbols beyond their ranges are not part of the text.

use super::fold::{Fold, Order};
use super::{
    Affine, AxisId, Combine, Index, LaunchScalar, LoopNest, Source, Stage, StageKind, StageOutput,
};
use crate::graph::print::write_symbol;
use crate::scalar_expr::{Bounds, Op, Read, Reg, ScalarExpr};
use crate::sym::Expr;
use std::fmt::{self, Display, Formatter};

impl Display for LoopNest {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("loops (")?;
        separated(f, self.operands.iter().enumerate(), |f, (i, operand)| {
            write!(f, "a{i}: {}", operand.dtype)?;
            f.write_str("[")?;
            separated(f, &operand.sizes, |f, e| write!(f, "{}", self.symbols.display(*e)))?;
            f.write_str("]")
        })?;
        f.write_str(") -> (")?;
        separated(f, &self.results, |f, result| output(f, *result))?;
        f.write_str(")\n")?;
        let symbols: Vec<_> = self.symbols.symbols().collect();
        if !symbols.is_empty() {
            f.write_str("  where ")?;
            separated(f, &symbols, |f, s| write_symbol(f, &self.symbols, *s))?;
            f.write_str("\n")?;
        }
        if !self.scalars.is_empty() {
            f.write_str("  launch ")?;
            separated(f, self.scalars.iter().enumerate(), |f, (i, scalar)| match scalar {
                LaunchScalar::Size(e) => write!(f, "c{i} = {}", self.symbols.display(*e)),
                LaunchScalar::Number(dtype) => write!(f, "c{i}: {dtype}"),
            })?;
            f.write_str("\n")?;
        }
        if !self.axes.is_empty() {
            f.write_str("  axes ")?;
            separated(f, self.axes.iter().enumerate(), |f, (i, e)| {
                write!(f, "i{i} < {}", self.symbols.display(*e))
            })?;
            f.write_str("\n")?;
        }
        for message in &self.messages {
            writeln!(f, "  message {message:?}")?;
        }
        f.write_str("{\n")?;
        for (i, stage) in self.stages.iter().enumerate() {
            self.fmt_stage(f, i, stage)?;
        }
        f.write_str("}\n")
    }
}

impl LoopNest {
    fn fmt_stage(&self, f: &mut Formatter<'_>, i: usize, stage: &Stage) -> fmt::Result {
        write!(f, "  t{i}")?;
        if !matches!(stage.kind, StageKind::Scatter { .. }) {
            axes(f, &stage.axes())?;
        }
        f.write_str(" = ")?;
        let over = |f: &mut Formatter<'_>| {
            f.write_str(" over ")?;
            axes(f, &stage.over)
        };
        let mut custom = None;
        let mut fold_name = |f: &mut Formatter<'_>, fold| match fold {
            Fold::Of { identity, combine } => {
                custom = Some(combine.clone());
                f.write_str("(")?;
                separated(f, identity, |f, x| write!(f, "{x}"))?;
                f.write_str(")")
            }
            fold => f.write_str(fold.name().unwrap_or_default()),
        };
        match &stage.kind {
            StageKind::Map => f.write_str("map")?,
            StageKind::Reduce { fold, order, .. } => {
                f.write_str("reduce ")?;
                fold_name(f, fold.clone())?;
                f.write_str(match order {
                    Order::Lanes => " lanes",
                    Order::Sequential => " sequential",
                })?;
                over(f)?;
            }
            StageKind::Scan { along, fold, order } => {
                f.write_str("scan ")?;
                fold_name(f, fold.clone())?;
                write!(f, " {} along i{}", order.name(), along.0)?;
            }
            StageKind::Contract { .. } => {
                f.write_str("contract")?;
                over(f)?;
            }
            StageKind::Sort { along, keep, descending } => {
                let direction = if *descending { "descending" } else { "ascending" };
                write!(f, "sort {direction} i{} to i{}", along.0, keep.0)?;
            }
            StageKind::Scatter { into, combine } => {
                let name = match combine {
                    Combine::Replace => "replace",
                    Combine::Op(op) => op.name(),
                };
                write!(f, "scatter {name} into ")?;
                source(f, *into)?;
                over(f)?;
            }
        }
        f.write_str(" {\n")?;
        self.fmt_body(f, &stage.expr, Some(stage))?;
        if let Some(combine) = custom {
            f.write_str("  } combine {\n")?;
            self.fmt_body(f, &combine, None)?;
        }
        f.write_str("  }\n")
    }

    /// Writes the instructions of a stage, or of the operation of a fold.
    fn fmt_body(
        &self,
        f: &mut Formatter<'_>,
        expr: &ScalarExpr,
        stage: Option<&Stage>,
    ) -> fmt::Result {
        for (i, instr) in expr.instrs().iter().enumerate() {
            write!(f, "    r{i}: {} = ", instr.dtype)?;
            match (instr.op, stage) {
                (Op::Input(k), Some(stage)) => {
                    f.write_str("load ")?;
                    self.fmt_load(f, stage, k, &[])?;
                }
                (Op::Input(k), None) => write!(f, "input {k}")?,
                (Op::Read(read), Some(stage)) => self.fmt_read(f, stage, &read)?,
                (Op::Coord(axis), _) => write!(f, "coord i{axis}")?,
                (Op::Launch(k), _) => write!(f, "launch c{k}")?,
                (Op::Assert(r, message), _) => write!(f, "assert {r} message {message}")?,
                (op, _) => {
                    op.fmt_name(f)?;
                    op.fmt_operands(f)?;
                }
            }
            f.write_str("\n")?;
        }
        f.write_str("    ")?;
        expr.fmt_outputs(f)?;
        f.write_str("\n")
    }

    fn fmt_read(&self, f: &mut Formatter<'_>, stage: &Stage, read: &Read) -> fmt::Result {
        f.write_str("read ")?;
        self.fmt_load(f, stage, read.input, read.at.regs())?;
        match read.bounds {
            Bounds::Inside => f.write_str(" inside")?,
            Bounds::Wraps => f.write_str(" wraps")?,
            Bounds::Fails => f.write_str(" fails")?,
            Bounds::Clamps => f.write_str(" clamps")?,
            Bounds::Else(r) => write!(f, " else {r}")?,
        }
        match read.when {
            Some(r) => write!(f, " when {r}"),
            None => Ok(()),
        }
    }

    fn fmt_load(
        &self,
        f: &mut Formatter<'_>,
        stage: &Stage,
        input: u32,
        computed: &[Reg],
    ) -> fmt::Result {
        let Some(load) = stage.loads.get(input as usize) else { return f.write_str("?") };
        source(f, load.from)?;
        f.write_str("[")?;
        let mut computed = computed.iter();
        separated(f, load.at.indices(), |f, index| match index {
            Index::Affine(affine) => self.fmt_affine(f, affine),
            Index::Computed => match computed.next() {
                Some(r) => write!(f, "{r}"),
                None => f.write_str("?"),
            },
        })?;
        f.write_str("]")
    }

    /// Writes `2 * i0 + i1 + (s0 - 1)`.
    fn fmt_affine(&self, f: &mut Formatter<'_>, affine: &Affine) -> fmt::Result {
        let size = |f: &mut Formatter<'_>, e: Expr| match e {
            Expr::Int(n) => write!(f, "{n}"),
            e => write!(f, "({})", self.symbols.display(e)),
        };
        separated_by(f, " + ", &affine.terms, |f, (axis, stride)| {
            if *stride != Expr::Int(1) {
                size(f, *stride)?;
                f.write_str(" * ")?;
            }
            write!(f, "i{}", axis.0)
        })?;
        match (affine.terms.is_empty(), affine.start) {
            (false, Expr::Int(0)) => Ok(()),
            (true, start) => size(f, start),
            (false, start) => {
                f.write_str(" + ")?;
                size(f, start)
            }
        }
    }
}

fn output(f: &mut Formatter<'_>, of: StageOutput) -> fmt::Result {
    match of.output {
        0 => write!(f, "t{}", of.stage.0),
        output => write!(f, "t{}:{output}", of.stage.0),
    }
}

fn source(f: &mut Formatter<'_>, from: Source) -> fmt::Result {
    match from {
        Source::Operand(operand) => write!(f, "a{}", operand.0),
        Source::Stage(of) => output(f, of),
    }
}

fn axes(f: &mut Formatter<'_>, axes: &[AxisId]) -> fmt::Result {
    f.write_str("[")?;
    separated(f, axes, |f, axis| write!(f, "i{}", axis.0))?;
    f.write_str("]")
}

fn separated<T>(
    f: &mut Formatter<'_>,
    items: impl IntoIterator<Item = T>,
    item: impl FnMut(&mut Formatter<'_>, T) -> fmt::Result,
) -> fmt::Result {
    separated_by(f, ", ", items, item)
}

fn separated_by<T>(
    f: &mut Formatter<'_>,
    separator: &str,
    items: impl IntoIterator<Item = T>,
    mut item: impl FnMut(&mut Formatter<'_>, T) -> fmt::Result,
) -> fmt::Result {
    for (i, one) in items.into_iter().enumerate() {
        f.write_str(if i > 0 { separator } else { "" })?;
        item(f, one)?;
    }
    Ok(())
}
