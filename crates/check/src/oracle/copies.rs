//! How many elements are copied: by the eager program, call by call, and by what is compared with it.
//!
//! What an operator computes is no copy, nor is a conversion. What eager execution copies on the side counts: operands that lie in what a call
//! mutates, and results that are computed apart and then moved to where they belong.

use maquette_ir::graph::{ArgEffect, MemoryFacts, OpFacts, Placement};
use maquette_ops::library::Facts;
use maquette_ops::{Args, Op, Outputs, Result, Tensor, Value};
use maquette_trace::Traffic;
use std::collections::HashSet;
use std::fmt::{Display, Formatter};

/// Elements written in the programs of a campaign, by modes that count them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Copies {
    /// By the eager programs.
    pub eager: Traffic,
    /// By the modes.
    pub planned: Traffic,
    /// In so many programs a mode copied more.
    pub more: u64,
    /// In so many of these it wrote more, too: the copies do not stand for something that the eager program computes.
    pub worse: u64,
}

impl Copies {
    pub(super) fn of(eager: Traffic, planned: Traffic) -> Copies {
        let more = planned.copied > eager.copied;
        let worse = more && written(planned) > written(eager);
        Copies { eager, planned, more: more.into(), worse: worse.into() }
    }

    pub(super) fn add(&mut self, other: Copies) {
        for (all, one) in [(&mut self.eager, other.eager), (&mut self.planned, other.planned)] {
            all.copied += one.copied;
            all.computed += one.computed;
        }
        self.more += other.more;
        self.worse += other.worse;
    }
}

fn written(t: Traffic) -> u64 {
    t.copied + t.computed
}

impl Display for Copies {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        let Copies { eager, planned, more, worse } = self;
        writeln!(
            f,
            "elements copied: {} eagerly, {} as planned; written: {} and {}",
            eager.copied,
            planned.copied,
            written(*eager),
            written(*planned)
        )?;
        writeln!(f, "copied more than eagerly in {more} programs, and wrote more in {worse} of them")
    }
}

/// Calls an operator, and adds the elements that the call writes.
pub(super) fn counted(op: Op, args: Args, traffic: &mut Traffic) -> Result<Outputs> {
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
    let (given, keeps): (Vec<Tensor>, bool) = (args.iter().flat_map(Value::tensors).cloned().collect(), Facts.keeps_elements(name));
    let outputs = op.call(args)?;
    let new = outputs.iter().flat_map(Value::tensors).filter(|t| !given.iter().any(|g| g.shares_storage(t)));
    for t in new {
        let copies = keeps && given.first().is_some_and(|g| g.dtype() == t.dtype());
        *if copies { &mut here } else { &mut traffic.computed } += elements(t);
    }
    traffic.computed += if moves { 0 } else { written.iter().map(elements).sum() };
    traffic.copied += here;
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
