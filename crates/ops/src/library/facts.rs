//! What passes are told of operators.

use super::op::Op;
use crate::aten::Lowering;
use crate::dispatch::value::{Args, Value};
use crate::fake::FakeCtx;
use crate::tensor::Tensor;
use crate::tensor::meta::Meta;
use maquette_ir::DType;
use maquette_ir::functional_ops;
use maquette_ir::graph::{ArgEffect, ArgKind, ArithOp, MemoryFacts, OpFacts, Placement};
use smallvec::SmallVec;

/// What registered operators do to memory, by name: the facts for
/// [`Graph::dependence`](maquette_ir::graph::Graph::dependence). An operator that is not registered
/// may do anything.
#[derive(Clone, Copy, Debug, Default)]
pub struct Facts;

impl MemoryFacts for Facts {
    fn arg_index(&self, op: &str, name: &str) -> Option<usize> {
        Op::find(op).ok()?.schema().ok()?.arg_index(name)
    }

    fn arg_name(&self, op: &str, arg: usize) -> Option<String> {
        Some(Op::find(op).ok()?.schema().ok()?.args.get(arg)?.name.clone())
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

    fn has_effect(&self, op: &str) -> bool {
        Op::find(op).map_or(true, |op| op.effect().is_some())
    }

    fn observes_strides(&self, op: &str) -> bool {
        // their results follow from how their operands lie, where others of their classes are
        // row-major
        const FOLLOW: [&str; 3] = [
            "aten::binary_cross_entropy",
            "aten::_embedding_bag",
            "aten::_embedding_bag_forward_only",
        ];
        // the other way round
        const ROWS: [&str; 6] = [
            "aten::topk",
            "aten::native_layer_norm",
            "aten::nonzero",
            "aten::masked_select",
            "aten::bincount",
            "aten::one_hot",
        ];
        let Ok(state) = Op::find(op).and_then(|op| op.state()) else { return true };
        match (state.builtin.map(|def| &def.lowering), state.overridden) {
            (Some(_), false) if ROWS.contains(&op) => false,
            (Some(Lowering::InPlace(name)), false) => self.observes_strides(name),
            (Some(Lowering::Compute(c)), false) => {
                // what is written where it is wanted lies there
                let placed = crate::dispatch::call_into::placement(&state) == Placement::Anywhere;
                c.class.order_depends_on_layout()
                    || c.class.preserves_strides() && !placed
                    || FOLLOW.contains(&op)
            }
            // some read strides, or find sizes
            (
                Some(
                    Lowering::Dynamic { .. }
                    | Lowering::Composite(_)
                    | Lowering::RandomComposite(_)
                    | Lowering::HiddenMutation { .. },
                )
                | None,
                _,
            )
            | (_, true) => true,
            (Some(Lowering::Pointwise(_) | Lowering::View(_)), false) => false,
        }
    }

    fn uses_rng(&self, op: &str) -> bool {
        Op::find(op).map_or(true, |op| op.is_random())
    }

    fn is_custom(&self, op: &str) -> bool {
        // the functional dialect's own operators are in no registry
        !maquette_ir::functional_ops::is_functional_op(op)
            && Op::find(op).map_or(true, |op| !op.is_builtin())
    }
}

impl OpFacts for Facts {
    fn functional_variant(&self, op: &str) -> Option<&str> {
        let state = Op::find(op).ok()?.state().ok()?;
        match (&state.builtin?.lowering, state.overridden) {
            (Lowering::InPlace(name), false) => Some(name),
            _ => None,
        }
    }

    fn placement(&self, op: &str) -> Placement {
        Op::find(op)
            .and_then(|op| op.state())
            .map_or(Placement::Allocates, |state| crate::dispatch::call_into::placement(&state))
    }

    fn preserves_elements(&self, op: &str) -> bool {
        const KEEP: [&str; 13] = [
            "aten::clone",
            "aten::contiguous",
            "aten::_to_copy",
            "aten::to.dtype",
            "aten::to.device",
            "aten::to.dtype_layout",
            "aten::to.other",
            "aten::type_as",
            "aten::reshape",
            "aten::reshape_as",
            "aten::view_copy",
            "aten::flatten.using_ints",
            "aten::ravel",
        ];
        KEEP.contains(&op) && is_plain_builtin(op)
    }

    fn absolute_offset_arg(&self, op: &str) -> Option<usize> {
        (op == "aten::as_strided").then_some(3)
    }

    fn view_may_exceed_base(&self, op: &str) -> bool {
        op == "aten::as_strided" || !Op::find(op).is_ok_and(|op| op.is_builtin())
    }

    fn copied_operand(&self, op: &str) -> Option<usize> {
        (op == "aten::copy").then_some(1)
    }

    fn conversion(&self) -> Option<&str> {
        Some("aten::_to_copy")
    }

    fn observes_storage(&self, op: &str) -> bool {
        const SEE: [&str; 3] =
            ["aten::as_strided_scatter", "aten::as_strided_copy", "aten::sym_storage_offset"];
        SEE.contains(&op)
    }

    fn is_metadata_query(&self, op: &str) -> bool {
        const DESCRIBE: [&str; 3] =
            ["aten::sym_size.int", "aten::sym_stride.int", "aten::sym_numel"];
        DESCRIBE.contains(&op) && is_plain_builtin(op)
    }

    fn copies_operands(&self, op: &str) -> bool {
        let state = Op::find(op).and_then(|op| op.state());
        let composite = |l: Option<&Lowering>| {
            matches!(l, Some(Lowering::Composite(_) | Lowering::RandomComposite(_)))
        };
        !state.is_ok_and(|s| !s.overridden && composite(s.builtin.map(|def| &def.lowering)))
    }

    fn is_data_movement(&self, op: &str) -> bool {
        self.preserves_elements(op)
            || matches!(op, "aten::copy_" | functional_ops::VIEW) && is_plain_builtin(op)
    }

    fn ignores_contents(&self, op: &str) -> bool {
        const IGNORE: [&str; 6] = [
            "aten::fill.Scalar",
            "aten::fill.Tensor",
            "aten::zero",
            "aten::zeros_like",
            "aten::ones_like",
            "aten::full_like",
        ];
        IGNORE.contains(&op) && is_plain_builtin(op)
    }

    fn result_dtype(
        &self,
        op: &str,
        args: &[ArgKind<'_>],
        kwargs: &[(&str, ArgKind<'_>)],
    ) -> Option<DType> {
        let op = Op::find(op).ok()?;
        let state = op.state().ok()?;
        let def = state.builtin.filter(|_| !state.overridden)?;
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
        let scale = kwargs
            .iter()
            .find(|(name, _)| *name == "alpha")
            .map(|(_, kind)| kind)
            .or_else(|| args.get(2));
        let plain =
            scale.is_none_or(|s| matches!(s, ArgKind::Int(Some(1))) || *s == ArgKind::Float(1.0));
        let arith = match op {
            "aten::add.Tensor" | "aten::add.Scalar" if plain => ArithOp::Add,
            "aten::sub.Tensor" | "aten::sub.Scalar" if plain => ArithOp::Sub,
            "aten::mul.Tensor" | "aten::mul.Scalar" => ArithOp::Mul,
            "aten::div.Tensor" | "aten::div.Scalar" => ArithOp::Div,
            "aten::maximum" | "aten::max.other" => ArithOp::Max,
            "aten::minimum" | "aten::min.other" => ArithOp::Min,
            "aten::bitwise_and.Tensor" => ArithOp::And,
            "aten::bitwise_or.Tensor" => ArithOp::Or,
            "aten::neg" => ArithOp::Neg,
            "aten::abs" => ArithOp::Abs,
            "aten::relu" => ArithOp::Relu,
            "aten::bitwise_not" => ArithOp::Not,
            _ => return None,
        };
        is_plain_builtin(op).then_some(arith)
    }
}

/// A builtin operator that no registration has replaced.
fn is_plain_builtin(op: &str) -> bool {
    Op::find(op).and_then(|op| op.state()).is_ok_and(|s| s.builtin.is_some() && !s.overridden)
}

/// A value of which results' dtypes are those of an argument.
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
