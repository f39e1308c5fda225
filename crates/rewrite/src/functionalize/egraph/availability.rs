//! Availability analysis: from which statement on each term can be computed, and which terms are
//! available later than another term of their class.
//!
//! **Problem.** Some terms are tied to a position in the program. A term whose view or arguments
//! mention a data-dependent symbol (`u0`), or whose operands have it as a size, can be computed
//! only after the statement that binds the symbol. A *serial* call (an effect, a random number, a
//! runtime check; `serial != 0`) runs at its own statement. An e-graph knows no positions, so
//! extraction may choose a late term for a value that the program needs early. For example, all
//! empty tensors of one type are equal: the empty input of the call that `u0` is bound from may be
//! in one class with an empty view whose offset mentions `u0`. If extraction chose that view, the
//! call would depend on its own result.
//!
//! **Algorithm.** Earliest availability by Dijkstra's algorithm over the e-graph (Knuth's
//! generalization, as in [`extract_tree`](super::extract_tree), with `max` in place of the sum). A
//! term is available at the maximum of its own statement and of the availability of its operand
//! classes; a class is available as early as its earliest term. A term is *unavailable* if it is
//! available later than its class, or if its operand classes have no finite terms. Extraction never
//! chooses unavailable terms.
//!
//! **Invariant.** Every class keeps at least one available term if the program computes it at all,
//! so the restriction loses no value.
//!
//! **Cost.** O(n log n) for n operand edges. Programs without data-dependent symbols and without
//! serial calls are skipped.

use super::lang::{Data, Term};
use super::worklist::Worklist;
use crate::functionalize::lift::memory_ssa::LiftedStmt;
use crate::functionalize::value_graph::{CallArg, CallId, Interner, Kind, SpecId};
use egg::{Id, Language};
use maquette_ir::fault_injection::{Fault, fault_injected};
use maquette_ir::sym::{Expr, SymbolId};
use rustc_hash::FxHashMap;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// For each data-dependent symbol, the statement that binds it. Symbols of input sizes have no
/// entry, since they are known from the start.
#[derive(Debug, Default)]
pub(super) struct Availability(FxHashMap<SymbolId, u32>);

impl Availability {
    /// Collects the binds of a program.
    pub fn of(stmts: &[LiftedStmt]) -> Availability {
        let bind = |stmt: &LiftedStmt| {
            if let LiftedStmt::Bind { symbol, statement, .. } = stmt {
                Some((*symbol, *statement))
            } else {
                None
            }
        };
        Availability(stmts.iter().filter_map(bind).collect())
    }

    /// The statement that binds the last of a view's symbols; 0 if the view has only input symbols.
    pub fn of_view(&self, interner: &Interner, spec: SpecId) -> u32 {
        let spec = &interner.specs[spec.index()];
        let numbers =
            [spec.offset()].into_iter().chain(spec.dims().iter().flat_map(|d| [d.size, d.stride]));
        self.of_all(interner, numbers)
    }

    /// The statement that binds the last of the symbols in a call's arguments and operand layouts.
    pub fn of_call(&self, interner: &Interner, call: CallId) -> u32 {
        let t = &interner.calls[call.index()];
        let mut exprs: Vec<Expr> =
            t.layouts.iter().flatten().flat_map(|l| l.iter().copied()).collect();
        t.args.iter().chain(t.kwargs.iter().map(|(_, s)| s)).for_each(|s| collect(s, &mut exprs));
        self.of_all(interner, exprs.into_iter())
    }

    /// The statement that binds the last of the symbols in a value's type: only then may the value
    /// be used.
    pub fn of_value(&self, interner: &Interner, data: Data) -> u32 {
        match data {
            Data::Value(Kind::Tensor(meta)) => {
                self.of_all(interner, interner.metas[meta.index()].sizes.iter().copied())
            }
            Data::Value(Kind::Int(e)) => self.of_all(interner, [e].into_iter()),
            Data::Value(_) | Data::Tuple(_) => 0,
        }
    }

    /// The statement that binds the last of the symbols in these expressions.
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

    /// For each term: whether it becomes available later than another term of its class. Empty if
    /// every term is available at any time.
    pub fn unavailable(&self, worklist: &Worklist<'_>) -> Vec<bool> {
        let (nodes, interner) = (worklist.egraph.nodes(), &worklist.egraph.analysis.interner);
        let serial = |t: &Term| {
            if let Term::Call(call, _) = t { interner.calls[call.index()].serial } else { 0 }
        };
        if self.0.is_empty() && nodes.iter().all(|t| serial(t) == 0) {
            return Vec::new();
        }
        let class = |id: Id| usize::from(worklist.find(id));
        // The time at which each term can be computed: raised to the maximum over its operand
        // classes, as these settle.
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
            let usable = time.max(self.of_value(interner, worklist.data(Id::from(settled))));
            for &user in &users[settled] {
                let user = user as usize;
                waits[user] -= 1;
                times[user] = times[user].max(usable);
                if waits[user] == 0 {
                    heap.push(Reverse((times[user], user as u32)));
                }
            }
        }
        (0..nodes.len()).map(|i| waits[i] > 0 || times[i] > known[class(Id::from(i))]).collect()
    }
}

/// Appends every integer expression in an argument.
fn collect(call_arg: &CallArg, exprs: &mut Vec<Expr>) {
    match call_arg {
        CallArg::Int(e) => exprs.push(*e),
        CallArg::List(l) => l.iter().for_each(|s| collect(s, exprs)),
        _ => {}
    }
}
