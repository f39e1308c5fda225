//! Effects: what an operator does besides its outputs and mutations, and what that means to whoever reorders a graph.

use super::op::{Effect, Op};
use super::slots::Owner;
use super::tags::Tag;
use crate::aten::Lowering;
use crate::error::Result;
use crate::meta::Meta;
use crate::tensor::Tensor;
use crate::value::{Args, Value};
use maquette_ir::DType;
use maquette_ir::Loc;
use maquette_ir::graph::{ArgEffect, ArgKind, MemoryFacts, OpFacts, Placement};

impl Op {
    /// Declares the operator's effect, or with `None` that it has none. Graphs traced before keep what they recorded.
    ///
    /// # Errors
    /// There is no such operator, or without an effect it would have no purpose: it returns nothing and mutates nothing.
    #[track_caller]
    pub fn register_effect(&self, effect: impl Into<Option<Effect>>) -> Result<()> {
        let loc = Loc::caller();
        self.require("effect").map_err(|e| e.at(loc))?;
        self.add_effect(effect.into(), Owner::FOREVER, loc)
    }

    /// Whether it draws from a device's random numbers, which each call advances: program order decides who gets which.
    pub fn is_random(&self) -> bool {
        self.tags().contains(Tag::NondeterministicSeeded)
    }

    /// Whether a call whose results nobody needs may be left out, and two calls on equal arguments be one: it mutates nothing, has no effect,
    /// and draws no random numbers.
    pub fn is_pure(&self) -> bool {
        self.state().is_ok_and(|s| s.facts.mutated.is_empty() && s.effect.is_none() && !s.facts.tags.contains(Tag::NondeterministicSeeded))
    }
}

/// What registered operators do to memory, by name: the facts for [`Graph::dependence`](maquette_ir::graph::Graph::dependence). An operator that
/// is not registered may do anything.
#[derive(Clone, Copy, Debug, Default)]
pub struct Facts;

impl MemoryFacts for Facts {
    fn arg_index(&self, op: &str, name: &str) -> Option<usize> {
        Op::find(op).ok()?.schema().ok()?.arg_index(name)
    }

    fn arg_effect(&self, op: &str, arg: usize) -> ArgEffect {
        match Op::find(op) {
            Ok(op) if !op.mutates(arg) => ArgEffect::Read,
            _ => ArgEffect::Write,
        }
    }

    fn result_aliases(&self, op: &str, result: usize) -> Option<usize> {
        Op::find(op).ok()?.return_alias(result)
    }

    fn ordered(&self, op: &str) -> bool {
        Op::find(op).map_or(true, |op| op.effect().is_some())
    }

    fn opaque(&self, op: &str) -> bool {
        let Ok(state) = Op::find(op).and_then(|op| op.state()) else { return true };
        match (state.builtin.map(|def| &def.lowering), state.overridden) {
            (Some(Lowering::InPlace(name)), false) => self.opaque(name),
            // sums of products are taken in an order that depends on how operands lie
            (Some(Lowering::Compute(c)), false) => c.class.sums_by_layout(),
            (Some(Lowering::Composite(_) | Lowering::Undeclared { .. }) | None, _) | (_, true) => true,
            (Some(Lowering::Pointwise(_) | Lowering::View(_) | Lowering::Dynamic { .. }), false) => false,
        }
    }

    fn random(&self, op: &str) -> bool {
        Op::find(op).map_or(true, |op| op.is_random())
    }
}

impl OpFacts for Facts {
    fn twin(&self, op: &str) -> Option<&str> {
        let state = Op::find(op).ok()?.state().ok()?;
        match (&state.builtin?.lowering, state.overridden) {
            (Lowering::InPlace(name), false) => Some(name),
            _ => None,
        }
    }

    fn placement(&self, op: &str) -> Placement {
        Op::find(op).and_then(|op| op.state()).map_or(Placement::Own, |state| crate::into::placement(&state))
    }

    fn keeps_elements(&self, op: &str) -> bool {
        const KEEP: [&str; 11] = [
            "aten::clone",
            "aten::contiguous",
            "aten::_to_copy",
            "aten::to.dtype",
            "aten::to.device",
            "aten::to.other",
            "aten::reshape",
            "aten::reshape_as",
            "aten::view_copy",
            "aten::flatten.using_ints",
            "aten::ravel",
        ];
        KEEP.contains(&op) && Op::find(op).and_then(|op| op.state()).is_ok_and(|s| s.builtin.is_some() && !s.overridden)
    }

    fn result_dtype(&self, op: &str, args: &[ArgKind<'_>], kwargs: &[(&str, ArgKind<'_>)]) -> Option<DType> {
        let op = Op::find(op).ok()?;
        let state = op.state().ok()?;
        let def = state.builtin.filter(|_| !state.overridden)?;
        let Lowering::Pointwise(p) = &def.lowering else { return None };
        let mut values: Args = args.iter().map(stand_in).collect();
        for (i, decl) in state.schema.args.iter().enumerate().skip(args.len()) {
            values.push(match kwargs.iter().find(|(name, _)| *name == decl.name) {
                Some((_, kind)) => stand_in(kind),
                None => op.default_value(i)?,
            });
        }
        Some(p.plan(def, &state, &values, None).ok()?.written)
    }
}

/// A value that promotes as an argument does.
fn stand_in(kind: &ArgKind<'_>) -> Value {
    match *kind {
        ArgKind::Tensor { dtype, zero_dim: true } => Value::Tensor(Tensor::fake_of(Meta::contiguous([0i64; 0], dtype))),
        ArgKind::Tensor { dtype, zero_dim: false } => Value::Tensor(Tensor::fake_of(Meta::contiguous([1i64], dtype))),
        ArgKind::None => Value::None,
        ArgKind::Int(i) => Value::from(i.unwrap_or(1)),
        ArgKind::Float(x) => Value::Float(x),
        ArgKind::Bool(b) => Value::Bool(b),
        ArgKind::Str(s) => Value::Str(s.into()),
        ArgKind::DType(d) => Value::DType(d),
    }
}
