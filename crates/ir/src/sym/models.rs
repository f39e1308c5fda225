//! Models of the assumed facts: values of all symbols for which every fact holds.
//!
//! A proof holds in every model, so a goal that is false in one model has no proof. The prover asks
//! the models first, at the goal and at each step of a search, and then searches only where a proof
//! is still possible. A search that fails visits everything within its budget, and most questions
//! of passes have no proof: evaluating a polynomial costs far less.
//!
//! Models are found by trial: small numbers and distinct primes within the ranges of the symbols,
//! at most [`ATTEMPTS`] assignments for each set of facts, each dropped at its first false fact. A
//! model is kept until a new fact is false in it. Without a model, the prover searches as before.
//! A new fact costs a look at all others, so tables of more than [`MOST`] symbols or facts have no
//! models: a program with thousands of sizes from data must not take quadratic time.
//!
//! This is the use of counterexamples in counterexample-guided abstraction refinement (Clarke et
//! al. 2000) and of samples in decision procedures: a model can refute, and never proves.

use super::poly::Poly;
use super::{BoolExpr, BoolId, Expr, Range, SymTable, SymbolId};

/// The most models that are kept.
const MODELS: usize = 4;
/// The most assignments that are tried after the facts have changed.
const ATTEMPTS: usize = 24;
/// The most symbols, and the most facts, for which there are models.
const MOST: usize = 128;
/// What symbols are assigned, counted from their least value.
const STEPS: [i64; 16] = [7, 11, 5, 13, 3, 17, 2, 19, 23, 29, 31, 37, 41, 1, 43, 64];

/// The models of the facts of a table.
#[derive(Clone, Debug, Default)]
pub(super) struct Models {
    /// The values of the symbols, in the order of their declaration.
    all: Vec<Vec<i64>>,
    /// The number of facts and of symbols for which the models were found.
    of: Option<(u32, usize)>,
}

impl SymTable {
    /// Finds models of the present facts, unless they are known.
    pub(super) fn find_models(&mut self) {
        let of = Some((self.facts.version(), self.symbols().count()));
        if self.facts.models.0.of == of {
            return;
        }
        if self.symbols().count().max(self.facts.conds.len()) > MOST {
            self.facts.models.0 = Models { all: Vec::new(), of };
            return;
        }
        let symbols: Vec<SymbolId> = self.symbols().collect();
        let mut all = std::mem::take(&mut self.facts.models.0.all);
        all.retain(|model| model.len() == symbols.len() && self.is_model(model));
        let ranges: Vec<Range> = symbols.iter().map(|&s| self.proven_range(s)).collect();
        for attempt in 0..ATTEMPTS {
            if all.len() == MODELS {
                break;
            }
            if let Some(model) = self.assignment(&symbols, &ranges, attempt)
                && !all.contains(&model)
                && self.is_model(&model)
            {
                all.push(model);
            }
        }
        self.facts.models.0 = Models { all, of };
    }

    /// Values for all symbols. Symbols with a substitution get the value of their replacement.
    fn assignment(
        &self,
        symbols: &[SymbolId],
        ranges: &[Range],
        attempt: usize,
    ) -> Option<Vec<i64>> {
        let chosen = |at: usize| {
            let step = match attempt {
                0 => STEPS[at % STEPS.len()],
                1 => 0,
                2 => 1,
                _ => STEPS[(at * (attempt | 1) + attempt) % STEPS.len()],
            };
            let Range { lo, hi } = ranges[at];
            let least = if lo == i64::MIN { hi.min(0) } else { lo };
            least.saturating_add(step).min(hi)
        };
        let free: Vec<i64> = (0..symbols.len()).map(chosen).collect();
        let value = |s: SymbolId| free.get(s.index()).copied();
        let of = |&s: &SymbolId| match self.facts.subst.get(&s) {
            Some(&e) => self.eval(e, &value).ok(),
            None => value(s),
        };
        symbols.iter().map(of).collect()
    }

    /// Whether all facts hold for these values.
    fn is_model(&self, model: &[i64]) -> bool {
        let value = |s: SymbolId| model.get(s.index()).copied();
        let is_in_range = |s: SymbolId| value(s).is_some_and(|n| self.range(s).contains(n));
        let holds = |(&id, &truth): (&BoolId, &bool)| {
            self.eval_bool(BoolExpr::Id(id), &value).is_ok_and(|found| found == truth)
        };
        let is_replaced = |(&s, &e): (&SymbolId, &Expr)| self.eval(e, &value).ok() == value(s);
        self.symbols().all(is_in_range)
            && self.facts.subst.iter().all(is_replaced)
            && self.facts.conds.iter().all(holds)
    }

    /// Whether `d <= 0` is false in a model, so that there is no proof of it.
    pub(super) fn is_refuted(&self, d: &Poly) -> bool {
        let Models { all, of } = &self.facts.models.0;
        let is_present = of.is_some_and(|(version, _)| version == self.facts.version());
        is_present
            && all.iter().any(|model| {
                let value = |s: SymbolId| model.get(s.index()).copied();
                self.eval_poly(d, &value).is_ok_and(|n| n.is_some_and(|n| n > 0))
            })
    }
}

#[cfg(test)]
mod tests {
    use crate::sym::{Expr, Range, Rel, SymTable, SymbolKind};

    fn table() -> (SymTable, [Expr; 3]) {
        let mut t = SymTable::new();
        let sizes = Range { lo: 0, hi: i64::MAX };
        let symbols = ["s0", "s1", "s2"].map(|name| {
            let symbol = t.symbol(name, SymbolKind::Backed, sizes).unwrap();
            t.expr(symbol)
        });
        (t, symbols)
    }

    fn is_refuted(t: &mut SymTable, x: Expr, y: Expr) -> bool {
        t.find_models();
        let difference = t.difference(x, y).unwrap();
        t.is_refuted(&difference)
    }

    #[test]
    fn what_is_false_in_a_model_is_refuted_until_a_fact_excludes_the_model() {
        let (mut t, [a, b, c]) = table();
        assert!(is_refuted(&mut t, a, b) && is_refuted(&mut t, b, a));
        let fact = t.rel(Rel::Le, a, b);
        t.assume(fact).unwrap();
        assert!(!is_refuted(&mut t, a, b) && is_refuted(&mut t, b, a));
        let fact = t.rel(Rel::Lt, b, c);
        t.assume(fact).unwrap();
        assert!(!is_refuted(&mut t, a, c) && is_refuted(&mut t, c, a));
        let conclusion = t.rel(Rel::Lt, a, c);
        assert_eq!(t.prove(conclusion), Some(true));
    }

    #[test]
    fn replaced_symbols_have_the_value_of_their_replacement() {
        let (mut t, [a, b, c]) = table();
        let sum = t.add(b, c).unwrap();
        let fact = t.rel(Rel::Eq, a, sum);
        t.assume(fact).unwrap();
        assert!(!is_refuted(&mut t, b, a) && is_refuted(&mut t, a, b));
    }

    #[test]
    fn many_symbols_have_no_models() {
        let (mut t, [a, b, _]) = table();
        assert!(is_refuted(&mut t, a, b));
        for i in 0..super::MOST {
            t.symbol(&format!("u{i}"), SymbolKind::Unbacked, Range::ALL).unwrap();
        }
        assert!(!is_refuted(&mut t, a, b));
    }

    #[test]
    fn facts_without_a_model_refute_nothing() {
        let (mut t, [a, b, _]) = table();
        let product = t.mul(a, b).unwrap();
        let fact = t.rel(Rel::Eq, product, Expr::Int(1_000_003));
        t.assume(fact).unwrap();
        assert!(!is_refuted(&mut t, a, b) && !is_refuted(&mut t, b, a));
    }
}
