//! How many elements calls write: what is copied on the side of a call is seen nowhere else.

use crate::library::{Facts, Op};
use crate::loans::meet;
use crate::tensor::Tensor;
use crate::value::Value;
use maquette_ir::graph::{ArgEffect, MemoryFacts, OpFacts, Placement};
use std::ops::AddAssign;

/// How many elements were written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// By copies: operators that only copy, operands that are read from a copy since they lie in what a call mutates, and results that are computed
    /// apart and then moved to where they belong. Conversions are no copies.
    pub copied: u64,
    /// By operators that compute.
    pub computed: u64,
}

impl AddAssign for Traffic {
    fn add_assign(&mut self, other: Traffic) {
        self.copied += other.copied;
        self.computed += other.computed;
    }
}

impl Traffic {
    /// Of copies and computations.
    pub const fn written(self) -> u64 {
        self.copied + self.computed
    }

    /// Of an eager call: its arguments, as they were given, and its results.
    pub fn of_call(op: Op, args: &[Value], results: &[Value]) -> Traffic {
        let name = op.name();
        let having = |effect: ArgEffect| {
            let of = args.iter().enumerate().filter(move |(i, _)| Facts.arg_effect(name, *i) == effect);
            of.flat_map(|(_, v)| v.tensors())
        };
        let twin = Facts.twin(name).map(|twin| Facts.placement(twin));
        let elementwise = twin == Some(Placement::Elementwise);
        let moved = having(ArgEffect::Read).filter(|t| {
            let in_the_way = |u: &Tensor| !(elementwise && t.meta().concrete() == u.meta().concrete()) && meet(t, u);
            having(ArgEffect::Write).any(|u| t.shares_storage(u) && in_the_way(u))
        });
        let written: u64 = having(ArgEffect::Write).map(elements).sum();
        let by_way = twin.is_some() && !elementwise;
        let only_moves = name == "aten::copy_" && having(ArgEffect::Read).all(|t| having(ArgEffect::Write).all(|u| t.dtype() == u.dtype()));
        let mut traffic = Traffic {
            copied: moved.map(elements).sum::<u64>() + if by_way || only_moves { written } else { 0 },
            computed: if only_moves { 0 } else { written },
        };
        let given = || args.iter().flat_map(Value::tensors);
        for t in results.iter().flat_map(Value::tensors).filter(|t| !given().any(|g| g.shares_storage(t))) {
            let copies = Facts.keeps_elements(name) && given().next().is_some_and(|g| g.dtype() == t.dtype());
            *if copies { &mut traffic.copied } else { &mut traffic.computed } += elements(t);
        }
        traffic
    }
}

/// How many elements a tensor has, if that is a plain number.
fn elements(t: &Tensor) -> u64 {
    t.numel().as_i64().and_then(|n| u64::try_from(n).ok()).unwrap_or(0)
}
