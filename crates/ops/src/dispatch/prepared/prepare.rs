//! The preparation of calls: what a call finds out before its kernel runs.

use super::operand::PlacedOperand;
use super::{BoundKernel, Operands, PreparedCall, Results};
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
use maquette_device::Computation;
use maquette_ir::schema::Type;
use maquette_ir::{Device, Loc};
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
    /// memory of the layouts of `outs`, in order. Tensors are fake, on one device, with plain sizes
    /// and a storage of their own each.
    ///
    /// `None` if calls have to go through the dispatcher: the operator is custom, overridden, or
    /// computed by a function on tensors; the device has no kernel; or the call would fail.
    #[track_caller]
    pub fn prepare(self, mut args: Args, outs: &[Tensor]) -> Option<PreparedCall> {
        let state = self.state().ok()?;
        let def = state.plain_builtin()?;
        let device = outs.first()?.device();
        if !self.can_prepare()
            || outs.len() != state.schema.returns.len()
            || args.iter().flat_map(Value::tensors).chain(outs).any(|t| t.device() != device)
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
        let results = [result].into_iter().collect();
        let computation = Computation::Elements(compiled.expr.clone());
        self.of_computation(out.device(), computation, (operands, results), false)
    }

    /// The call of a computation without symbols and numbers.
    fn of_computation(
        self,
        device: Device,
        computation: Computation,
        (operands, results): (Operands, Results),
        own_strides: bool,
    ) -> Option<PreparedCall> {
        let kernel = match results.iter().all(PlacedOperand::is_empty) {
            true => None,
            false => Some(BoundKernel::plain(device, computation, (&operands, &results))?),
        };
        Some(PreparedCall::new(self, device, kernel, (operands, results), own_strides))
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
        let device = outs.first()?.device();
        let build = match compute.how {
            How::Host(_) | How::Kernel(_) => return None,
            How::Loops(build) if !results.iter().all(PlacedOperand::is_empty) => build,
            How::Zeros | How::Nothing | How::Loops(_) => {
                let on = (SmallVec::new(), results);
                return self.of_computation(device, Computation::Zeros, on, own_strides);
            }
        };
        let nest = PlacedNest::of(def, build, args, outs).ok()??;
        let tensors: SmallVec<[&Tensor; 4]> = args.iter().flat_map(Value::tensors).collect();
        let operand = |t: &Tensor| -> Option<PlacedOperand> {
            PlacedOperand::of(tensors.iter().position(|u| u.has_storage_of(t))?, t)
        };
        let operands: Operands = nest.operands.iter().map(operand).collect::<Option<_>>()?;
        let result = |t: &Tensor| -> Option<PlacedOperand> {
            PlacedOperand::of(outs.iter().position(|u| u.has_storage_of(t))?, t)
        };
        let results: Results = nest.results.iter().map(result).collect::<Option<_>>()?;
        let computation = Computation::Nest(nest.nest().clone());
        let (kernel, explain) = (nest.kernel_on(device)?, nest.explain());
        let (symbols, numbers) = (nest.symbols, nest.numbers);
        let on = (&operands[..], &results[..]);
        let mut kernel = BoundKernel::new(computation, kernel, (symbols, numbers), on)?;
        kernel.explain = explain;
        let kernel = Some(kernel);
        Some(PreparedCall::new(self, device, kernel, (operands, results), own_strides))
    }
}
