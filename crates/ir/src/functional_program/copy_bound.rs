//! Whether a plan copies more than the original program does.
//!
//! Both sides are sums of products of sizes ([`SymbolicCount`]). Constants are compared at once;
//! symbolic sums are imported into one table and compared by proof, term by term. An answer that
//! cannot be proved is `false`, and the program then runs as it was traced.

use super::FunctionalGraph;
use crate::buffer_plan::BufferPlan;
use crate::copy_cost::{Bound, SymbolicCount};
use crate::fault_injection::{Fault, fault_injected};
use crate::sym::SymTable;

impl FunctionalGraph {
    /// How many elements a plan of this program copies at most; `None` if that depends on a symbol.
    pub fn copies_at_most(&self, plan: &BufferPlan) -> Option<u64> {
        Some(plan.cost.copied.as_constant()?.saturating_add(self.relayout_bound.as_constant()?))
    }

    /// The same for given values of the symbols, by name; `None` if the count depends on a symbol
    /// without a value.
    pub fn copies_at_most_in(
        &self,
        plan: &BufferPlan,
        value: &dyn Fn(&str) -> Option<i64>,
    ) -> Option<u64> {
        let (planned, relayout_bound) = (&plan.cost.copied, &self.relayout_bound);
        let planned =
            planned.eval(&plan.symbols, &|s| value(plan.symbols.name(s)), Bound::AtMost)?;
        Some(planned.saturating_add(relayout_bound.eval(
            &self.symbols,
            &|s| value(self.symbols.name(s)),
            Bound::AtMost,
        )?))
    }

    /// How many elements the original program copies at least, for given values of the symbols.
    pub fn copies_at_least_in(&self, value: &dyn Fn(&str) -> Option<i64>) -> Option<u64> {
        self.eager.copied.eval(&self.symbols, &|s| value(self.symbols.name(s)), Bound::AtLeast)
    }

    /// How many elements a plan of this program copies at most, as an expression in symbols.
    pub fn copies_at_most_text(&self, plan: &BufferPlan) -> String {
        match (self.relayout_bound.as_constant(), plan.cost.copied.to_text(&plan.symbols)) {
            (Some(0), planned) => planned,
            (_, planned) => format!("{planned} + {}", self.relayout_bound.to_text(&self.symbols)),
        }
    }

    /// How many elements the original program copies at least, as an expression in symbols.
    pub fn copies_at_least_text(&self) -> String {
        self.eager.copied.to_text(&self.symbols)
    }

    /// Whether a plan of this program provably copies no more elements than the original program,
    /// in every run that ends without an error.
    pub fn within_eager_copies(&self, plan: &BufferPlan) -> bool {
        if fault_injected(Fault::AnyPlanIsCheapEnough) {
            return true;
        }
        let (planned, relayout_bound, eager) =
            (&plan.cost.copied, &self.relayout_bound, &self.eager.copied);
        if let (Some(most), Some(least)) = (self.copies_at_most(plan), eager.as_constant()) {
            return most <= least;
        }
        // a run that ends has passed every assertion, so the facts of the plan's table hold
        let mut symbols = plan.symbols.clone();
        let at_most = |count: &SymbolicCount, of: &SymTable, symbols: &mut SymTable| {
            count.import(symbols, of, Bound::AtMost)
        };
        let Some(mut most) = at_most(planned, &plan.symbols, &mut symbols) else { return false };
        let Some(relayout_bound) = at_most(relayout_bound, &self.symbols, &mut symbols) else {
            return false;
        };
        most.append(&relayout_bound);
        eager
            .import(&mut symbols, &self.symbols, Bound::AtLeast)
            .is_some_and(|least| most.at_most(&least, &mut symbols))
    }
}
