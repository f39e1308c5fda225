//! Calls whose result is written where the caller says. Plans use them.

use crate::dispatch::call_borrows::{borrow_args_and_out, copy_overlapping_reads};
use crate::dispatch::coerce_args::coerce_args;
use crate::dispatch::cpu_exec;
use crate::dispatch::device::device_of;
use crate::dispatch::value::{Args, Value};
use crate::error::{CallError, Error, ErrorKind, Result};
use crate::fake::FakeCtx;
use crate::library::{Op, OpState};
use crate::mode;
use crate::operator::{Compute, Lowering, OpDef, host_fallback};
use crate::tensor::Tensor;
use crate::tensor::meta::Meta;
use maquette_ir::Loc;
use maquette_ir::graph::Placement;
use maquette_ir::schema::Type;
use smallvec::SmallVec;

impl Op {
    /// As [`Op::call_at`], for an operator whose only result is one tensor, which is written into
    /// `out`, of the result's sizes and dtype. Operands that overlap `out` are read as they were
    /// before. Returns whether the kernel wrote there; else its result was copied.
    ///
    /// # Errors
    /// As [`Op::call`]; a trace runs, and `out` is from outside; the result has other sizes or
    /// another dtype than `out`, or is not a tensor.
    pub fn call_into(self, mut args: Args, out: &Tensor, loc: Loc) -> Result<bool> {
        let what = "what a call writes into a tensor from outside of the trace";
        mode::ask(mode::Question::State(out), what, loc)?;
        let call = || -> Result<bool> {
            let state = self.state()?;
            if let Some(def) = state.plain_builtin() {
                coerce_args(&state, &mut args)?;
                if let Some(done) =
                    mode::on_behalf_of(loc, || def.run_into(self, &state, &mut args, out))?
                {
                    return Ok(done);
                }
            }
            match self.call_at(std::mem::take(&mut args), loc)?.as_slice() {
                [Value::Tensor(t)] => {
                    same_type(t.meta(), out)?;
                    mode::with_builtin_kernels(|| out.copy_(t).ok().map(drop))?;
                    Ok(false)
                }
                other => Err(CallError::ReturnCount {
                    expected: 1,
                    found: other.len(),
                    schema: state.schema.to_string(),
                }
                .into()),
            }
        };
        mode::without_modes(call).map_err(|e| e.in_call(self.shared_name(), loc))
    }
}

/// Where an operator can write its result.
pub(crate) fn placement(state: &OpState) -> Placement {
    let one = matches!(state.schema.returns.as_slice(), [r] if matches!(r.ty, Type::Tensor));
    let Some(def) = state.plain_builtin().filter(|_| one) else { return Placement::Allocates };
    match &def.lowering {
        Lowering::Pointwise(_) => Placement::Elementwise,
        Lowering::Compute(c) if c.supports_strided_output() => Placement::Anywhere,
        Lowering::Compute(_) => Placement::Dense,
        Lowering::View(_)
        | Lowering::InPlace(_)
        | Lowering::Dynamic { .. }
        | Lowering::Composite(_)
        | Lowering::RandomComposite(_)
        | Lowering::UnannotatedComposite { .. } => Placement::Allocates,
    }
}

/// Whether a computation writes its only result into memory of the layout of `out`.
///
/// # Errors
/// The arguments do not fit the operator; the result has other sizes or another dtype than `out`.
fn writes_into(op: Op, c: &Compute, args: &[Value], out: &Tensor) -> Result<bool> {
    let has_strides = has_strides_of(op, c, args, std::slice::from_ref(out))?;
    Ok(has_strides || c.supports_strided_output())
}

/// Whether a computation makes results of the strides of `outs`.
///
/// # Errors
/// The arguments do not fit the operator; it has another number of results, or a result has other
/// sizes or another dtype than its tensor of `outs`.
pub(crate) fn has_strides_of(op: Op, c: &Compute, args: &[Value], outs: &[Tensor]) -> Result<bool> {
    let metas = FakeCtx::eager(op, |cx| (c.metas)(cx, args))?;
    if metas.len() != outs.len() {
        return Err(Error::value("an operator has another number of results"));
    }
    let steps = |m: &Meta| -> SmallVec<[Option<i64>; 6]> {
        let along = m.sizes.iter().zip(&m.strides).filter(|(n, _)| n.as_i64() != Some(1));
        along.map(|(_, s)| s.as_i64()).collect()
    };
    let mut same = true;
    for (meta, out) in metas.iter().zip(outs) {
        same_type(meta, out)?;
        same &= steps(meta) == steps(out.meta());
    }
    Ok(same)
}

fn same_type(found: &Meta, out: &Tensor) -> Result<()> {
    crate::tensor::shape::require_same(out.sizes(), &found.sizes, || {
        "a result is written into a tensor of".to_owned()
    })?;
    if found.dtype != out.dtype() || found.device != out.device() {
        let (a, b) = (found.dtype, out.dtype());
        return Err(Error::value(format!(
            "a result of dtype {a} cannot be written into a tensor of dtype {b} on {}",
            out.device()
        )));
    }
    Ok(())
}

impl OpDef {
    /// Writes the only result into `out`; `None` if it cannot.
    fn run_into(
        &self,
        op: Op,
        state: &OpState,
        args: &mut Args,
        out: &Tensor,
    ) -> Result<Option<bool>> {
        if !out.is_on_host() || host_fallback::is_elsewhere(args) {
            return Ok(None);
        }
        let pointwise = matches!(self.lowering, Lowering::Pointwise(_));
        let fresh = match &self.lowering {
            Lowering::Pointwise(_) => false,
            Lowering::Compute(c) => {
                if !writes_into(op, c, args, out)? {
                    return Ok(None);
                }
                !c.overwrites_output()
            }
            _ => return Ok(None),
        };
        device_of(state, args)?;
        copy_overlapping_reads(state, args, out, pointwise)?;
        let borrowed = borrow_args_and_out(op, state, args, out)?;
        let (args, target) = (borrowed.args(), borrowed.out().unwrap_or(out));
        let written = match &self.lowering {
            Lowering::Pointwise(p) => {
                let call = p.call(self, state, args, Some(target.meta()))?;
                cpu_exec::pointwise(&call.compiled, &call.operands, target)
            }
            Lowering::Compute(c) => {
                if fresh {
                    cpu_exec::fill(target, 0i64)?;
                }
                c.run(self, args, std::slice::from_ref(target))
            }
            _ => return Ok(None),
        };
        written.inspect_err(|e| {
            // other errors are found before anything is written
            if matches!(e.kind(), ErrorKind::Kernel(_)) {
                out.poison_storage(e);
            }
        })?;
        // Whoever borrows the memory next sees the new version.
        out.bump_version();
        drop(borrowed);
        Ok(Some(true))
    }
}
