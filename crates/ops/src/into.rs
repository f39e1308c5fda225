//! Calls whose result is written where the caller says: what plans of functional graphs are made of.

use crate::aten::{Lowering, OpDef};
use crate::device::device_of;
use crate::eager;
use crate::error::{CallError, Error, ErrorKind, Result};
use crate::fake::FakeCtx;
use crate::fit::fit;
use crate::library::{Op, OpState};
use crate::loans::{keep_apart, lend_with};
use crate::meta::Meta;
use crate::mode;
use crate::tensor::Tensor;
use crate::value::{Args, Value};
use maquette_ir::Loc;
use maquette_ir::graph::Placement;
use maquette_ir::schema::Type;

impl Op {
    /// As [`Op::call_at`], for an operator whose only result is one tensor, which is written into `out`, of the result's sizes and dtype.
    /// Operands that overlap `out` are read as they were before. Returns whether the kernel wrote there; else its result was copied.
    ///
    /// # Errors
    /// As [`Op::call`]; the result has other sizes or another dtype than `out`, or is no tensor.
    pub fn call_into(self, mut args: Args, out: &Tensor, loc: Loc) -> Result<bool> {
        let call = || -> Result<bool> {
            let state = self.state()?;
            if let Some(def) = state.builtin.filter(|_| !state.overridden) {
                fit(&state, &mut args)?;
                if let Some(done) = mode::on_behalf_of(loc, || def.run_into(self, &state, &mut args, out))? {
                    return Ok(done);
                }
            }
            match self.call_at(std::mem::take(&mut args), loc)?.as_slice() {
                [Value::Tensor(t)] => {
                    same_type(t.meta(), out)?;
                    out.copy_(t).ok()?;
                    Ok(false)
                }
                other => Err(CallError::ReturnCount { expected: 1, found: other.len(), schema: state.schema.to_string() }.into()),
            }
        };
        mode::without_modes(call).map_err(|e| e.in_call(self.shared_name(), loc))
    }
}

/// Where an operator can write its result.
pub(crate) fn placement(state: &OpState) -> Placement {
    let one = matches!(state.schema.returns.as_slice(), [r] if matches!(r.ty, Type::Tensor));
    match state.builtin.filter(|_| one && !state.overridden).map(|def| &def.lowering) {
        Some(Lowering::Pointwise(_)) => Placement::Elementwise,
        Some(Lowering::Compute(c)) if c.class.writes_anywhere() => Placement::Anywhere,
        Some(Lowering::Compute(_)) => Placement::Dense,
        _ => Placement::Allocates,
    }
}

fn same_type(found: &Meta, out: &Tensor) -> Result<()> {
    crate::shape::require_same(out.sizes(), &found.sizes, || "a result is written into a tensor of".to_owned())?;
    if found.dtype != out.dtype() || found.device != out.device() {
        let (a, b) = (found.dtype, out.dtype());
        return Err(Error::value(format!("a result of dtype {a} cannot be written into a tensor of dtype {b} on {}", out.device())));
    }
    Ok(())
}

impl OpDef {
    /// Writes the only result into `out`; `None` if it cannot.
    fn run_into(&self, op: Op, state: &OpState, args: &mut Args, out: &Tensor) -> Result<Option<bool>> {
        let pointwise = matches!(self.lowering, Lowering::Pointwise(_));
        let fresh = match &self.lowering {
            Lowering::Pointwise(_) => false,
            Lowering::Compute(c) => {
                let metas = FakeCtx::eager(op, |cx| (c.metas)(cx, args))?;
                let [meta] = metas.as_slice() else { return Ok(None) };
                same_type(meta, out)?;
                let steps = |m: &Meta| -> Vec<Option<i64>> {
                    let along = m.sizes.iter().zip(&m.strides).filter(|(n, _)| n.as_i64() != Some(1));
                    along.map(|(_, s)| s.as_i64()).collect()
                };
                if !c.class.writes_anywhere() && steps(meta) != steps(out.meta()) {
                    return Ok(None);
                }
                !c.class.fills()
            }
            _ => return Ok(None),
        };
        device_of(state, args)?;
        keep_apart(state, args, out, pointwise)?;
        let lent = lend_with(op, state, args, Some(out))?;
        let (args, target) = (lent.args(), lent.out().unwrap_or(out));
        let written = match &self.lowering {
            Lowering::Pointwise(p) => {
                let call = p.call(self, state, args, Some(target.meta()))?;
                eager::pointwise(&call.plan, &call.operands, target)
            }
            Lowering::Compute(c) => {
                if fresh {
                    eager::fill(target, 0i64)?;
                }
                (c.run)(args, std::slice::from_ref(target))
            }
            _ => return Ok(None),
        };
        written.inspect_err(|e| {
            // other errors are found before anything is written
            if matches!(e.kind(), ErrorKind::Kernel(_)) {
                out.poison_storage(e);
            }
        })?;
        drop(lent);
        out.bump_version();
        Ok(Some(true))
    }
}
