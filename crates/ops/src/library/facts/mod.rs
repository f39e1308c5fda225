//! The implementation of [`OpFacts`] for registered operators: the facts on which passes rely.
//!
//! A fact of a builtin operator follows from its lowering or from its [`Role`] in the table. A
//! custom operator, or a builtin one that a registration overrides, gets the conservative answer
//! that holds for any operator. Four facts describe the contract of an operator, not its kernel,
//! so an override does not change them.

use super::Op;
use super::registry::find_defined;
use super::state::StateGuard;
use super::tags::Tag;
use crate::dispatch::value::{Args, Value};
use crate::fake::FakeCtx;
use crate::operator::{Lowering, OpDef, Role, Strides};
use crate::tensor::Tensor;
use crate::tensor::meta::Meta;
use maquette_ir::graph::{
    ArgEffect, ArgKind, ArithOp, ImageRole, MemoryFacts, OpFacts, Placement, Recomputation,
    ViewSource,
};
use maquette_ir::schema::Schema;
use maquette_ir::{DType, Effect};
use smallvec::SmallVec;
use std::sync::Arc;

/// The poolings that are as fast with channels last as with planes.
const IMAGE_POOLS: [&str; 2] = ["aten::max_pool2d", "aten::_adaptive_avg_pool2d"];

/// The operator that converts a tensor to a dtype.
const CONVERSION: &str = "aten::_to_copy";

/// The facts of registered operators, by name; for example for
/// [`Graph::dependence`](maquette_ir::graph::Graph::dependence). An unregistered operator gets the
/// conservative answers.
#[derive(Clone, Copy, Debug, Default)]
pub struct Facts;

impl MemoryFacts for Facts {
    fn arg_index(&self, op: &str, name: &str) -> Option<usize> {
        find_defined(op)?.schema().ok()?.arg_index(name)
    }

    fn arg_name(&self, op: &str, arg: usize) -> Option<String> {
        Some(find_defined(op)?.schema().ok()?.args.get(arg)?.name.clone())
    }

    fn arg_effect(&self, op: &str, arg: usize) -> ArgEffect {
        match find_defined(op) {
            Some(op) if !op.mutates(arg) => ArgEffect::Read,
            _ => ArgEffect::Write,
        }
    }

    fn result_aliases(&self, op: &str, result: usize) -> Option<usize> {
        find_defined(op)?.return_alias(result)
    }

    fn chooses_views(&self, op: &str) -> bool {
        find_defined(op).is_some_and(Op::chooses_views)
    }

    fn effect(&self, op: &str) -> Option<Effect> {
        find_defined(op).map_or(Some(Effect::Ordered), |op| op.effect())
    }

    fn observes_strides(&self, op: &str) -> bool {
        let Some(state) = state(op) else { return true };
        let Some(def) = state.plain_builtin() else { return true };
        match &def.lowering {
            Lowering::Pointwise(_) | Lowering::View(_) => false,
            Lowering::InPlace(name) => self.observes_strides(name),
            Lowering::Compute(c) => {
                // The caller chooses the strides of a result that it places.
                let placed = crate::dispatch::call_into::placement(&state) == Placement::Anywhere;
                c.class.observes_strides() || c.strides == Strides::FromOperands && !placed
            }
            Lowering::Dynamic { observes_strides, .. } => *observes_strides,
            // These call other operators, any of which may observe strides.
            Lowering::Composite(_)
            | Lowering::RandomComposite(_)
            | Lowering::UnannotatedComposite { .. } => true,
        }
    }

    fn uses_rng(&self, op: &str) -> bool {
        find_defined(op).is_none_or(|op| op.is_random())
    }

    fn is_custom(&self, op: &str) -> bool {
        // The operators of functional graphs (`ir::…`) are not in the registry.
        !maquette_ir::functional_ops::is_functional_op(op)
            && find_defined(op).is_none_or(|op| !op.is_builtin())
    }
}

impl OpFacts for Facts {
    fn functional_variant(&self, op: &str) -> Option<&str> {
        match &plain_builtin(op)?.lowering {
            Lowering::InPlace(name) => Some(name),
            Lowering::Pointwise(_)
            | Lowering::Compute(_)
            | Lowering::View(_)
            | Lowering::Dynamic { .. }
            | Lowering::Composite(_)
            | Lowering::RandomComposite(_)
            | Lowering::UnannotatedComposite { .. } => None,
        }
    }

    fn custom_schema(&self, op: &str) -> Option<Arc<Schema>> {
        find_defined(op).filter(|op| !op.is_builtin())?.schema().ok()
    }

    fn placement(&self, op: &str) -> Placement {
        state(op)
            .map_or(Placement::Allocates, |state| crate::dispatch::call_into::placement(&state))
    }

    fn image_role(&self, op: &str) -> ImageRole {
        match plain_builtin(op).map(|def| &def.lowering) {
            Some(Lowering::Pointwise(_)) => ImageRole::Keeps,
            // Their kernels have vectors of channels; those of other poolings walk over planes.
            Some(Lowering::Compute(_)) if IMAGE_POOLS.contains(&op) => ImageRole::Keeps,
            _ => ImageRole::Other,
        }
    }

    fn recomputation(&self, op: &str) -> Recomputation {
        let Some(op) = find_defined(op) else { return Recomputation::Never };
        let Ok(state) = op.state() else { return Recomputation::Never };
        let tags = state.facts.tags;
        if !op.is_pure() || tags.contains(Tag::NondeterministicBitwise) {
            return Recomputation::Never;
        }
        match state.plain_builtin().map(|def| &def.lowering) {
            // A custom operator says so by its tag.
            None if tags.contains(Tag::Pointwise) && !op.is_builtin() => Recomputation::Cheap,
            Some(Lowering::Pointwise(_)) => Recomputation::Cheap,
            Some(Lowering::Compute(c)) => c.class.recomputation(),
            None
            | Some(
                Lowering::View(_)
                | Lowering::InPlace(_)
                | Lowering::Dynamic { .. }
                | Lowering::Composite(_)
                | Lowering::RandomComposite(_)
                | Lowering::UnannotatedComposite { .. },
            ) => Recomputation::Never,
        }
    }

    fn preserves_elements(&self, op: &str) -> bool {
        plain_builtin(op).is_some_and(|def| def.role.preserves_elements())
    }

    fn concatenates(&self, op: &str) -> bool {
        plain_builtin(op).is_some_and(|def| def.role == Role::Concatenates)
    }

    // The next four facts describe the contract of the operator, not its kernel, so that they hold
    // for an overridden operator too.
    fn absolute_offset_arg(&self, op: &str) -> Option<usize> {
        builtin(op)?.role.absolute_offset_arg()
    }

    fn view_may_exceed_base(&self, op: &str) -> bool {
        builtin(op).is_none_or(|def| def.role.absolute_offset_arg().is_some())
    }

    fn view_source(&self, op: &str) -> ViewSource {
        find_defined(op).map_or(ViewSource::Kernel, Op::view_source)
    }

    fn copied_operand(&self, op: &str) -> Option<usize> {
        builtin(op)?.role.copied_operand()
    }

    fn observes_storage(&self, op: &str) -> bool {
        builtin(op).is_some_and(|def| def.role == Role::ObservesStorage)
    }

    fn conversion(&self) -> Option<&str> {
        plain_builtin(CONVERSION).map(|_| CONVERSION)
    }

    fn is_metadata_query(&self, op: &str) -> bool {
        plain_builtin(op).is_some_and(|def| def.role == Role::MetadataQuery)
    }

    fn copies_operands(&self, op: &str) -> bool {
        plain_builtin(op).is_none_or(|def| match def.lowering {
            Lowering::Composite(_) | Lowering::RandomComposite(_) => false,
            Lowering::Pointwise(_)
            | Lowering::Compute(_)
            | Lowering::View(_)
            | Lowering::InPlace(_)
            | Lowering::Dynamic { .. }
            | Lowering::UnannotatedComposite { .. } => true,
        })
    }

    fn is_data_movement(&self, op: &str) -> bool {
        plain_builtin(op).is_some_and(|def| def.role.is_data_movement())
    }

    fn ignores_contents(&self, op: &str) -> bool {
        plain_builtin(op).is_some_and(|def| def.role == Role::IgnoresContents)
    }

    fn result_dtype(
        &self,
        op: &str,
        args: &[ArgKind<'_>],
        kwargs: &[(&str, ArgKind<'_>)],
    ) -> Option<DType> {
        let op = find_defined(op)?;
        let state = op.state().ok()?;
        let def = state.plain_builtin()?;
        let mut values: Args = args.iter().map(placeholder_value).collect();
        for (i, decl) in state.schema.args.iter().enumerate().skip(args.len()) {
            values.push(match kwargs.iter().find(|(name, _)| *name == decl.name) {
                Some((_, kind)) => placeholder_value(kind),
                None => op.default_value(i)?,
            });
        }
        match &def.lowering {
            Lowering::Pointwise(p) => Some(p.compile(def, &state, &values, None).ok()?.out_dtype),
            Lowering::Compute(_) => {
                let out = FakeCtx::eager(op, |cx| def.fake(cx, &state, &values)).ok()?;
                let [Value::Tensor(out)] = out.as_slice() else { return None };
                let sizes = |t: &Tensor| {
                    t.sizes().iter().map(|n| n.as_i64()).collect::<Option<SmallVec<[i64; 4]>>>()
                };
                (sizes(out)? == sizes(values.first()?.tensor().ok()?)?).then(|| out.dtype())
            }
            _ => None,
        }
    }

    fn arith_op(
        &self,
        op: &str,
        args: &[ArgKind<'_>],
        kwargs: &[(&str, ArgKind<'_>)],
    ) -> Option<ArithOp> {
        let alpha = kwargs.iter().find(|(name, _)| *name == "alpha").map(|(_, kind)| kind);
        let scaled = alpha
            .or_else(|| args.get(2))
            .is_some_and(|s| !matches!(s, ArgKind::Int(Some(1))) && *s != ArgKind::Float(1.0));
        plain_builtin(op)?.role.arith_op(scaled)
    }
}

/// The state of a defined operator.
fn state(op: &str) -> Option<StateGuard> {
    find_defined(op)?.state().ok()
}

/// The table entry of a builtin operator, overridden or not.
fn builtin(op: &str) -> Option<&'static OpDef> {
    state(op)?.builtin
}

/// The table entry of a builtin operator that no registration overrides.
fn plain_builtin(op: &str) -> Option<&'static OpDef> {
    state(op)?.plain_builtin()
}

/// A stand-in for an argument that has the same influence on result dtypes.
fn placeholder_value(kind: &ArgKind<'_>) -> Value {
    match kind {
        ArgKind::Tensor { dtype, sizes } => {
            Value::Tensor(Tensor::fake_of(Meta::contiguous(*sizes, *dtype)))
        }
        ArgKind::None => Value::None,
        ArgKind::Int(i) => Value::from(i.unwrap_or(1)),
        ArgKind::Float(x) => Value::Float(*x),
        ArgKind::Bool(b) => Value::Bool(*b),
        ArgKind::Str(s) => Value::Str((*s).into()),
        ArgKind::DType(d) => Value::DType(*d),
        ArgKind::List(l) if !l.is_empty() && l.iter().all(|k| matches!(k, ArgKind::Int(_))) => {
            Value::Ints(
                l.iter()
                    .map(|k| if let ArgKind::Int(i) = k { i.unwrap_or(1).into() } else { 1.into() })
                    .collect(),
            )
        }
        ArgKind::List(l) => Value::List(l.iter().map(placeholder_value).collect()),
    }
}
