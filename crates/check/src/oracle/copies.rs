//! How many elements are copied: by the eager program, call by call, and by what is compared with it.
//!
//! What an operator computes is no copy, nor is a conversion. What eager execution copies on the side counts: operands that lie in what a call
//! mutates, and results that are computed apart and then moved to where they belong.

use maquette_ir::graph::{ArgEffect, MemoryFacts, OpFacts, Placement};
use maquette_ops::library::Facts;
use maquette_ops::{Args, Op, Outputs, Result, Tensor, Value};
use std::collections::HashSet;
use std::fmt::{Display, Formatter};

/// Elements copied in the programs of a campaign, by modes that count them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Copies {
    /// By the eager programs.
    pub eager: u64,
    /// By the modes.
    pub planned: u64,
    /// In so many programs a mode copied more.
    pub more: u64,
}

impl Copies {
    pub(super) fn add(&mut self, other: Copies) {
        self.eager += other.eager;
        self.planned += other.planned;
        self.more += other.more;
    }
}

impl Display for Copies {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        let Copies { eager, planned, more } = self;
        writeln!(f, "elements copied: {eager} eagerly, {planned} as planned; more than eagerly in {more} programs")
    }
}

/// Calls an operator, and adds the elements that the call copies.
pub(super) fn counted(op: Op, args: Args, copied: &mut u64) -> Result<Outputs> {
    let name = op.name();
    let by_effect = |effect: ArgEffect| {
        let of = args.iter().enumerate().filter(move |(i, _)| Facts.arg_effect(name, *i) == effect);
        of.flat_map(|(_, v)| v.tensors())
    };
    let twin = Facts.twin(name).map(|twin| Facts.placement(twin));
    let written: Vec<Tensor> = by_effect(ArgEffect::Write).cloned().collect();
    let moved = by_effect(ArgEffect::Read).filter(|t| {
        let same = |u: &Tensor| twin == Some(Placement::Elementwise) && places(t) == places(u);
        written.iter().any(|u| t.shares_storage(u) && !same(u) && meet(t, u))
    });
    let mut here: u64 = moved.map(elements).sum();
    let by_way = twin.is_some_and(|p| p != Placement::Elementwise);
    let moves = name == "aten::copy_" && by_effect(ArgEffect::Read).all(|t| written.iter().all(|u| t.dtype() == u.dtype()));
    if by_way || moves {
        here += written.iter().map(elements).sum::<u64>();
    }
    let base = args.first().and_then(|v| v.tensor().ok()).cloned();
    let outputs = op.call(args)?;
    if Facts.keeps_elements(name) {
        let kept = |t: &&Tensor| base.as_ref().is_some_and(|b| b.dtype() == t.dtype() && !b.shares_storage(t));
        here += outputs.iter().flat_map(Value::tensors).filter(kept).map(elements).sum::<u64>();
    }
    *copied += here;
    Ok(outputs)
}

fn elements(t: &Tensor) -> u64 {
    t.numel().as_i64().and_then(|n| u64::try_from(n).ok()).unwrap_or(0)
}

/// Where each element lies, in bytes.
fn places(t: &Tensor) -> Vec<i64> {
    let Some(c) = t.meta().concrete() else { return Vec::new() };
    let steps = c.sizes.iter().zip(&c.strides);
    let places = steps.fold(vec![c.offset], |all, (n, s)| all.iter().flat_map(|at| (0..*n).map(move |i| at + i * s)).collect());
    places.into_iter().map(|at| at * c.width).collect()
}

/// Whether two tensors of one storage share a byte.
fn meet(t: &Tensor, u: &Tensor) -> bool {
    let bytes = |t: &Tensor| places(t).into_iter().flat_map(|at| at..at + t.dtype().size() as i64).collect::<HashSet<i64>>();
    !bytes(t).is_disjoint(&bytes(u))
}
