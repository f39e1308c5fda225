//! What builtin operators compute, as data: the door through which operators become kernels.
//!
//! A call has the coercion, the promotion and the choice of a nest that eager execution has. What
//! comes out names no device.

use crate::dispatch::coerce_args::coerce_args;
use crate::dispatch::value::{Args, Value};
use crate::fake::FakeCtx;
use crate::library::{Op, OpState};
use crate::mode;
use crate::operator::execute::PointwiseCall;
use crate::operator::loops::PlacedNest;
use crate::operator::lowering::How;
use crate::operator::{Lowering, OpDef};
use crate::tensor::Tensor;
use crate::tensor::meta::Meta;
use maquette_ir::fused::NoFusionReason;
use maquette_ir::loops::{ComposedTensor, Extent, Extents, LoopNest};
use maquette_ir::scalar_expr::ScalarExpr;
use maquette_ir::{Loc, Scalar};
use smallvec::SmallVec;
use std::sync::Arc;

/// What a call of a builtin operator computes.
pub struct LoweredCall {
    /// The arguments after coercion.
    pub args: Args,
    /// The computation.
    pub body: LoweredBody,
    /// The results: fake row-major tensors.
    pub results: Vec<Tensor>,
}

/// The computation of a builtin operator.
pub enum LoweredBody {
    /// An expression for each element of the only result. Operands are broadcast.
    Elements {
        /// The expression. An input is an element of the operand in its place.
        expr: Arc<ScalarExpr>,
        /// The operands, which are arguments.
        operands: SmallVec<[Tensor; 4]>,
    },
    /// A loop nest.
    Nest(LoweredNest),
}

/// The loop nest of a call.
pub struct LoweredNest(Box<PlacedNest>);

impl LoweredNest {
    /// The nest.
    pub fn nest(&self) -> &Arc<LoopNest> {
        self.0.nest()
    }

    /// The operands: arguments, and views of them.
    pub fn operands(&self) -> &[Tensor] {
        &self.0.operands
    }

    /// The numbers of a launch.
    pub fn numbers(&self) -> &[Scalar] {
        &self.0.numbers
    }

    /// Whether the nest writes a view of the only result, which has other sizes.
    pub fn writes_view(&self) -> bool {
        self.0.writes_view()
    }

    /// The extents that the symbols of the nest stand for, from those of its operands and results.
    /// `None` if a symbol stands for nothing.
    pub fn symbol_extents(
        &self,
        operands: &[ComposedTensor],
        results: &[Extents],
    ) -> Option<SmallVec<[Extent; 8]>> {
        self.0.symbol_extents(operands, results)
    }
}

impl Op {
    /// What a call with arguments of these kinds and layouts computes. Tensors are fake, with plain
    /// sizes.
    ///
    /// # Errors
    /// The reason why the operator is not computed with others: nothing but its kernel knows what it
    /// computes, or the call would fail.
    #[track_caller]
    pub fn lowered(self, mut args: Args) -> Result<LoweredCall, NoFusionReason> {
        crate::library::ask_registrations(Loc::caller());
        let state = self.state().map_err(|_| NoFusionReason::Opaque)?;
        let def = state.plain_builtin().ok_or(match state.builtin {
            Some(_) => NoFusionReason::Overridden,
            None => NoFusionReason::Opaque,
        })?;
        mode::without_modes(|| {
            coerce_args(&state, &mut args).map_err(|_| NoFusionReason::Opaque)?;
            let (body, results) = self.lowered_coerced(def, &state, &args)?;
            Ok(LoweredCall { args, body, results })
        })
    }

    fn lowered_coerced(
        self,
        def: &OpDef,
        state: &OpState,
        args: &[Value],
    ) -> Result<(LoweredBody, Vec<Tensor>), NoFusionReason> {
        match &def.lowering {
            Lowering::Pointwise(p) => {
                let call = p.call(def, state, args, None).map_err(|_| NoFusionReason::Opaque)?;
                let PointwiseCall { compiled, operands, meta } = call;
                let result = Meta::contiguous(meta.sizes, meta.dtype).on(meta.device);
                let operands = operands.into_iter().cloned().collect();
                let body = LoweredBody::Elements { expr: compiled.expr.clone(), operands };
                Ok((body, vec![Tensor::fake_of(result)]))
            }
            Lowering::View(_) => Err(NoFusionReason::NotAffine),
            Lowering::Compute(c) => {
                let build = match c.how {
                    How::Loops(build) => build,
                    // Fresh memory is zero without a kernel; other kernels take nothing up.
                    How::Zeros | How::Nothing | How::Kernel(_) => {
                        return Err(NoFusionReason::LosesSpecialisation);
                    }
                    How::Host(_) => return Err(NoFusionReason::Opaque),
                };
                let results = self.fake_results(def, state, args).ok_or(NoFusionReason::Opaque)?;
                let nest = PlacedNest::of(def, build, args, &results).ok().flatten();
                let nest = nest.ok_or(NoFusionReason::Opaque)?;
                Ok((LoweredBody::Nest(LoweredNest(Box::new(nest))), results))
            }
            _ => Err(NoFusionReason::Opaque),
        }
    }

    /// Fake row-major tensors of the results of a call.
    fn fake_results(self, def: &OpDef, state: &OpState, args: &[Value]) -> Option<Vec<Tensor>> {
        let results = FakeCtx::eager(self, |cx| def.fake(cx, state, args)).ok()?;
        let row_major = |value: Value| match value {
            Value::Tensor(t) => {
                let sizes = t.meta().sizes.clone();
                Some(Tensor::fake_of(Meta::contiguous(sizes, t.dtype()).on(t.device())))
            }
            _ => None,
        };
        results.into_iter().map(row_major).collect()
    }
}
