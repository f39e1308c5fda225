//! When symbols that depend on data are bound and calls with a place of their own are made, and
//! which terms ask for them later than need be.
//!
//! A value may be equal to one that needs such a symbol, or is left by such a call, though it
//! itself does not: all empty tensors of one type are equal. Were it computed from that, it would
//! be available too late for what the symbol is bound from, or for a call that comes before.

use super::lang::Term;
use super::worklist::Worklist;
use crate::functionalize::lift::memory_ssa::LiftedStmt;
use crate::functionalize::value_graph::{CallArg, CallId, Interner, SpecId};
use egg::{Id, Language};
use maquette_ir::fault_injection::{Fault, fault_injected};
use maquette_ir::sym::{Expr, SymbolId};
use rustc_hash::FxHashMap;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The statements that bind symbols.
#[derive(Debug, Default)]
pub(super) struct Availability(FxHashMap<SymbolId, u32>);

impl Availability {
    pub fn of(stmts: &[LiftedStmt]) -> Availability {
        let bind = |stmt: &LiftedStmt| {
            if let LiftedStmt::Bind { symbol, at, .. } = stmt { Some((*symbol, *at)) } else { None }
        };
        Availability(stmts.iter().filter_map(bind).collect())
    }

    /// The statement after which every symbol of a view is bound.
    pub fn of_view(&self, interner: &Interner, spec: SpecId) -> u32 {
        let spec = &interner.specs[spec.index()];
        let numbers =
            [spec.offset()].into_iter().chain(spec.dims().iter().flat_map(|d| [d.size, d.stride]));
        self.of_all(interner, numbers)
    }

    /// The statement after which every symbol is bound that a call is given.
    pub fn of_call(&self, interner: &Interner, call: CallId) -> u32 {
        let t = &interner.calls[call.index()];
        let mut exprs: Vec<Expr> =
            t.layouts.iter().flatten().flat_map(|l| l.iter().copied()).collect();
        t.args.iter().chain(t.kwargs.iter().map(|(_, s)| s)).for_each(|s| collect(s, &mut exprs));
        self.of_all(interner, exprs.into_iter())
    }

    fn of_all(&self, interner: &Interner, exprs: impl Iterator<Item = Expr>) -> u32 {
        if self.0.is_empty() || fault_injected(Fault::ScheduleAsSoonAsReady) {
            return 0;
        }
        exprs
            .flat_map(|e| interner.symbols.free_symbols(e))
            .filter_map(|s| self.0.get(&s))
            .copied()
            .max()
            .unwrap_or(0)
    }

    /// By term: whether it becomes available later than another term of its class.
    pub fn unavailable(&self, s: &Worklist<'_>) -> Vec<bool> {
        let (nodes, interner) = (s.g.nodes(), &s.g.analysis.interner);
        let serial = |t: &Term| {
            if let Term::Call(call, _) = t { interner.calls[call.index()].serial } else { 0 }
        };
        if self.0.is_empty() && nodes.iter().all(|t| serial(t) == 0) {
            return Vec::new();
        }
        let class = |id: Id| usize::from(s.find(id));
        // when each term can be computed; a class can be when its first term can
        let mut times: Vec<u32> = nodes
            .iter()
            .map(|t| match t {
                Term::View(spec, _) | Term::Scatter(spec, _) => self.of_view(interner, *spec),
                Term::Call(call, _) if fault_injected(Fault::AvailableAtAnyTime) => {
                    self.of_call(interner, *call)
                }
                Term::Call(call, _) => {
                    self.of_call(interner, *call).max(serial(t).saturating_sub(1))
                }
                Term::Input(_) | Term::Const(_) | Term::Proj(..) => 0,
            })
            .collect();
        let mut users: Vec<Vec<u32>> = vec![Vec::new(); nodes.len()];
        for (i, t) in nodes.iter().enumerate() {
            t.children().iter().for_each(|c| users[class(*c)].push(i as u32));
        }
        let mut waits: Vec<usize> = nodes.iter().map(|t| t.children().len()).collect();
        let mut heap: BinaryHeap<Reverse<(u32, u32)>> = (0..nodes.len())
            .filter(|&i| waits[i] == 0)
            .map(|i| Reverse((times[i], i as u32)))
            .collect();
        let mut known = vec![u32::MAX; nodes.len()];
        while let Some(Reverse((time, at))) = heap.pop() {
            let settled = class(Id::from(at as usize));
            if known[settled] != u32::MAX {
                continue;
            }
            known[settled] = time;
            for &user in &users[settled] {
                let user = user as usize;
                waits[user] -= 1;
                times[user] = times[user].max(time);
                if waits[user] == 0 {
                    heap.push(Reverse((times[user], user as u32)));
                }
            }
        }
        (0..nodes.len()).map(|i| waits[i] > 0 || times[i] > known[class(Id::from(i))]).collect()
    }
}

fn collect(call_arg: &CallArg, exprs: &mut Vec<Expr>) {
    match call_arg {
        CallArg::Int(e) => exprs.push(*e),
        CallArg::List(l) => l.iter().for_each(|s| collect(s, exprs)),
        _ => {}
    }
}
