//! The preparation of calls: what a call finds out before its kernel runs.

use super::operand::{PlacedOperand, views, views_mut};
use super::{Kernel, Operands, PreparedCall, Results};
use crate::dispatch::call_into::has_strides_of;
use crate::dispatch::coerce_args::coerce_args;
use crate::dispatch::value::{Args, Value};
use crate::library::{Op, OpState};
use crate::mode;
use crate::operator::execute::PointwiseCall;
use crate::operator::loops::PlacedNest;
use crate::operator::lowering::How;
use crate::operator::{Compute, Lowering, OpDef, Pointwise};
use crate::tensor::Tensor;
use maquette_ir::schema::Type;
use maquette_ir::{Device, Loc};
use maquette_kernels::DenseFill;
use smallvec::SmallVec;

impl Op {
    /// Whether [`Op::prepare`] can succeed: the operator is builtin and not overridden, all its
    /// results are tensors of its own, and it is not computed by a function on tensors.
    #[track_caller]
    pub fn can_prepare(self) -> bool {
        crate::library::ask_registrations(Loc::caller());
        self.state().is_ok_and(|state| {
            state.schema.returns.iter().all(|r| matches!(r.ty, Type::Tensor))
                && state.plain_builtin().is_some_and(|def| match &def.lowering {
                    Lowering::Pointwise(_) => true,
                    Lowering::Compute(c) => !matches!(c.how, How::Host(_)),
                    _ => false,
                })
        })
    }

    /// Prepares calls with arguments of these kinds and layouts, whose results are written into
    /// memory of the layouts of `outs`, in order. Tensors are fake, on the CPU, with plain sizes
    /// and a storage of their own each.
    ///
    /// `None` if calls have to go through the dispatcher: the operator is custom, overridden, or
    /// computed by a function on tensors; or the call would fail.
    #[track_caller]
    pub fn prepare(self, mut args: Args, outs: &[Tensor]) -> Option<PreparedCall> {
        let state = self.state().ok()?;
        let def = state.plain_builtin()?;
        let on_host = |t: &Tensor| t.device() == Device::Cpu;
        if !self.can_prepare()
            || outs.len() != state.schema.returns.len()
            || !args.iter().flat_map(Value::tensors).chain(outs).all(on_host)
        {
            return None;
        }
        mode::without_modes(|| {
            coerce_args(&state, &mut args).ok()?;
            match (&def.lowering, outs) {
                (Lowering::Pointwise(p), [out]) => {
                    self.prepare_pointwise(def, &state, p, &args, out)
                }
                (Lowering::Compute(c), outs) => self.prepare_compute(def, c, &args, outs),
                _ => None,
            }
        })
    }

    fn prepare_pointwise(
        self,
        def: &OpDef,
        state: &OpState,
        lowering: &Pointwise,
        args: &[Value],
        out: &Tensor,
    ) -> Option<PreparedCall> {
        let PointwiseCall { compiled, operands, .. } =
            lowering.call(def, state, args, Some(out.meta())).ok()?;
        let tensors: SmallVec<[&Tensor; 4]> = args.iter().flat_map(Value::tensors).collect();
        let result = PlacedOperand::of(0, out)?;
        let operand = |t: &&Tensor| -> Option<PlacedOperand> {
            let at = tensors.iter().position(|u| u.is_same_handle(t))?;
            PlacedOperand::of(at, t)?.expanded(&result.layout.sizes)
        };
        let operands: Operands = operands.iter().map(operand).collect::<Option<_>>()?;
        let kernel = match result.layout.is_empty() {
            true => Kernel::Nothing,
            false => {
                Kernel::pointwise(&compiled.expr, &operands, std::slice::from_ref(&result), &[])?
            }
        };
        let results = [result].into_iter().collect();
        Some(PreparedCall { op: self, kernel, operands, results, own_strides: false })
    }

    fn prepare_compute(
        self,
        def: &OpDef,
        compute: &Compute,
        args: &[Value],
        outs: &[Tensor],
    ) -> Option<PreparedCall> {
        let own_strides = has_strides_of(self, compute, args, outs).ok()?;
        if !own_strides && !compute.supports_strided_output() {
            return None;
        }
        let places = outs.iter().enumerate().map(|(i, out)| PlacedOperand::of(i, out));
        let results = places.collect::<Option<Results>>()?;
        let without_operands = |kernel: Kernel, results: Results| PreparedCall {
            op: self,
            kernel,
            operands: SmallVec::new(),
            results,
            own_strides,
        };
        match compute.how {
            How::Host(_) | How::Kernel(_) => None,
            _ if results.iter().all(|r| r.layout.is_empty()) => {
                Some(without_operands(Kernel::Nothing, results))
            }
            How::Zeros | How::Nothing => {
                let plans = results.iter().map(|r| DenseFill::of(&r.layout.view_mut())).collect();
                Some(without_operands(Kernel::Zeros(plans), results))
            }
            How::Loops(build) => {
                let nest = PlacedNest::of(def, build, args, outs).ok()??;
                let tensors: SmallVec<[&Tensor; 4]> =
                    args.iter().flat_map(Value::tensors).collect();
                let operand = |t: &Tensor| -> Option<PlacedOperand> {
                    PlacedOperand::of(tensors.iter().position(|u| u.has_storage_of(t))?, t)
                };
                let operands: Operands =
                    nest.operands.iter().map(operand).collect::<Option<_>>()?;
                let result = |t: &Tensor| -> Option<PlacedOperand> {
                    PlacedOperand::of(outs.iter().position(|u| u.has_storage_of(t))?, t)
                };
                let results: Results = nest.results.iter().map(result).collect::<Option<_>>()?;
                let mut launch = nest.launch;
                launch.plan(&views(&operands), &views_mut(&results)).ok()?;
                let kernel = Kernel::Nest(Box::new(launch));
                Some(PreparedCall { op: self, kernel, operands, results, own_strides })
            }
        }
    }
}
