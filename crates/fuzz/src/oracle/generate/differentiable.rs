//! Statements of programs that are differentiated. Writes go to copies, results and views of these.

use super::super::program_builder::{BuilderArg, BuilderStmt, ProgramBuilder};
use super::super::shrink::drop_stmt;
use super::{Generator, LiveTensor};
use crate::oracle::library;
use maquette_ir::DType;
use maquette_ir::graph::Arg;
use maquette_ops::{AutogradError, ErrorKind, Op, Result};

const NONE: BuilderArg = BuilderArg::Plain(Arg::None);

impl Generator<'_> {
    pub(super) fn differentiable_statement(&mut self) -> bool {
        match self.rng.below(100) {
            0..24 => self.view(),
            24..48 => self.write(),
            48..58 => self.pure(),
            58..74 => self.smooth(),
            74..82 => self.reduced(),
            82..95 => self.differentiable_custom(),
            95..97 => self.custom(),
            _ => self.pattern(),
        }
    }

    /// A float that requires a gradient; recent ones are more likely.
    fn differentiable(&mut self) -> Option<LiveTensor> {
        self.pick(|l| l.tensor.requires_grad() && l.dtype() == DType::F64)
    }

    /// A smooth function of each element.
    fn smooth(&mut self) -> bool {
        let Some(t) = self.differentiable() else { return false };
        let name = self.rng.one(&[
            "sin",
            "cos",
            "tanh",
            "sigmoid",
            "exp",
            "silu",
            "gelu",
            "softplus",
            "erf",
            "square",
            "expm1",
            "log1p",
            "atan",
            "logsigmoid",
            "mish",
            "elu",
            "leaky_relu",
            "neg",
            "abs",
        ]);
        let name = match name {
            Some("logsigmoid") => "log_sigmoid",
            Some(name) => name,
            None => return false,
        };
        self.emit(&format!("aten::{name}"), vec![t.arg()]).is_some()
    }

    /// A reduction, a norm, or a product.
    fn reduced(&mut self) -> bool {
        let Some(t) = self.differentiable() else { return false };
        let Some((d, dim)) = self.dim(&t) else { return false };
        let keep = BuilderArg::from(self.rng.chance(50));
        let dims = || BuilderArg::List(vec![dim.clone()]);
        let emitted = match self.rng.below(12) {
            0 => self.emit("aten::softmax.int", vec![t.arg(), dim]),
            1 => self.emit("aten::log_softmax.int", vec![t.arg(), dim]),
            2 => self.emit("aten::logsumexp", vec![t.arg(), dims(), keep]),
            3 => self.emit("aten::prod.dim_int", vec![t.arg(), dim, keep]),
            4 => self.emit("aten::var.dim", vec![t.arg(), dims(), true.into(), keep]),
            5 => self.emit("aten::cumprod", vec![t.arg(), dim]),
            6 => self.emit("aten::mean", vec![t.arg()]),
            7 => self.norm(&t),
            8 => {
                let n = t.sizes().last().copied().unwrap_or(1);
                let n = self.int(n);
                let args = vec![t.arg(), BuilderArg::List(vec![n]), NONE, NONE, 0.125.into()];
                self.emit("aten::layer_norm", args)
            }
            9 => self.roll(&t, d),
            _ => self.reduction(&t),
        };
        emitted.is_some()
    }

    fn roll(&mut self, t: &LiveTensor, d: usize) -> Option<Vec<LiveTensor>> {
        let shift = self.rng.between(-2, 2);
        let (shifts, dims) = (vec![shift.into()], vec![(d as i64).into()]);
        self.emit("aten::roll", vec![t.arg(), BuilderArg::List(shifts), BuilderArg::List(dims)])
    }

    /// One of the oracle's operators with a derivative.
    fn differentiable_custom(&mut self) -> bool {
        let Some(x) = self.differentiable() else { return false };
        let Some(y) = self.pick(|l| l.dtype() == DType::F64) else { return false };
        let emitted = match self.rng.below(8) {
            0 => self.emit("oracle::mix", vec![x.arg(), y.arg()]),
            1 => self.emit("oracle::both", vec![x.arg(), y.arg()]),
            2 => self.emit("oracle::both", vec![x.arg()]),
            3 => self.emit("oracle::copies", vec![BuilderArg::List(vec![x.arg(), y.arg()])]),
            4 if x.sizes().first().is_some_and(|n| *n > 0) => {
                self.emit("oracle::tail", vec![x.arg()])
            }
            5 => {
                let tag = self.rng.between(0, 99);
                self.emit("oracle::tell", vec![x.arg(), tag.into()])
            }
            6 => self.emit("oracle::squash", vec![x.arg()]),
            _ => self.emit("oracle::wave", vec![x.arg()]),
        };
        emitted.is_some()
    }

    /// Drops writes to tensors that a derivative reads: eager execution refuses their gradients,
    /// so that nothing would be compared. One program in thirty keeps them.
    pub(super) fn drop_refused_writes(&mut self) {
        if self.rng.chance(3) {
            return;
        }
        while let Some(builder) = without_a_write(&self.builder) {
            self.builder = builder;
        }
    }
}

/// The program without one of the writes for which its gradient is refused; `None` if it is not
/// refused.
fn without_a_write(builder: &ProgramBuilder) -> Option<ProgramBuilder> {
    let refused = |builder: &ProgramBuilder| {
        let run = || -> Result<()> {
            let program = builder.untyped()?;
            program.call(&builder.run_inputs()?.inputs).map(drop)
        };
        let result = run();
        library::take_log();
        let is_of_write =
            |e: &ErrorKind| matches!(e, ErrorKind::Autograd(AutogradError::SavedWasWritten { .. }));
        result.is_err_and(|e| is_of_write(e.kind()))
    };
    if !refused(builder) {
        return None;
    }
    let writes = |s: &BuilderStmt| match s {
        BuilderStmt::Call(call) => Op::find(&call.op).is_ok_and(|op| op.is_mutable()),
        BuilderStmt::Bind(..) => false,
    };
    let without = |i: usize| {
        let mut shorter = builder.clone();
        drop_stmt(&mut shorter, i);
        shorter
    };
    let written = (0..builder.stmts.len()).rev().filter(|i| writes(&builder.stmts[*i]));
    let candidates: Vec<ProgramBuilder> = written.map(without).collect();
    let accepted = candidates.iter().find(|b| !refused(b));
    accepted.or(candidates.first()).cloned()
}
