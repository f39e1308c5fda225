//! How many elements calls write: what is copied on the side of a call is seen nowhere else.

use crate::dispatch::call_borrows::{is_same_view, tensors_may_overlap};
use crate::dispatch::value::Value;
use crate::library::{Facts, Op};
use crate::tensor::Tensor;
use maquette_ir::copy_cost::{Traffic, WriteModel};
use maquette_ir::graph::{ArgEffect, MemoryFacts};

/// What an eager call writes: of its arguments, as they were given, and its results.
pub fn call_writes(op: Op, args: &[Value], results: &[Value]) -> Traffic {
    let (name, write_model) = (op.name(), WriteModel::of(op.name(), &Facts));
    let having = |effect: ArgEffect| {
        let of = args.iter().enumerate().filter(move |(i, _)| Facts.arg_effect(name, *i) == effect);
        of.flat_map(|(_, v)| v.tensors())
    };
    let mut traffic = Traffic::default();
    for t in having(ArgEffect::Read).filter(|_| write_model.copies_operands()) {
        let needs_copy = |u: &Tensor| {
            write_model.needs_operand_copy(|| is_same_view(t, u), || tensors_may_overlap(t, u))
        };
        if having(ArgEffect::Write).any(|u| t.has_storage_of(u) && needs_copy(u)) {
            traffic += Traffic::copy(concrete_numel(t));
        }
    }
    let from = having(ArgEffect::Read).next().map(Tensor::dtype);
    for t in having(ArgEffect::Write) {
        traffic += write_model.per_element(true, from != Some(t.dtype())).times(concrete_numel(t));
    }
    let given = || args.iter().flat_map(Value::tensors);
    for t in
        results.iter().flat_map(Value::tensors).filter(|t| !given().any(|g| g.has_storage_of(t)))
    {
        traffic += write_model.per_element(false, from != Some(t.dtype())).times(concrete_numel(t));
    }
    traffic
}

/// What a copy writes. `to_is_injective` says whether no two elements of the target share their
/// place.
pub fn copy_writes(from: &Tensor, to: &Tensor, to_is_injective: bool) -> Traffic {
    let overlaps = from.has_storage_of(to) && tensors_may_overlap(from, to);
    let times = Traffic::writes_per_copied_element(overlaps, to_is_injective);
    Traffic::copy(concrete_numel(from)).times(times)
}

/// What is copied to have a tensor row-major, as the kernel of `ir::view` takes it.
pub fn contiguous_copy_writes(t: &Tensor) -> Traffic {
    Traffic::copy(if t.meta().is_row_major() { 0 } else { concrete_numel(t) })
}

/// How many elements a tensor has, if that is a plain number.
pub fn concrete_numel(t: &Tensor) -> u64 {
    t.numel().as_i64().and_then(|n| u64::try_from(n).ok()).unwrap_or(0)
}
