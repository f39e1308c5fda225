//! The database of assumed facts, and their consequences.
//!
//! [`SymTable::assume`] processes a worklist. Each condition is simplified and proved first: a
//! condition that is already known adds nothing, and a condition that is known to be false is a
//! contradiction. A new fact has these effects:
//!
//! - `p == 0` that can be solved for a symbol becomes a substitution. The facts about the symbol
//!   return to the worklist, now about its replacement.
//! - `x % d == r` becomes a [`Congruence`] of `x`.
//! - `p <= 0` is stored for the prover and indexed by its atoms.
//! - The ranges of the atoms of `p` are narrowed by bounds propagation, as in interval constraint
//!   solvers: `p <= 0` bounds each atom by the least values of the other terms. A narrowed range
//!   revisits the inequalities that contain its atom, until a fixed point or [`BUDGET`]
//!   refinements.
//!
//! Propagation over inconsistent inequalities with unbounded ranges need not terminate, hence the
//! budget. Facts are added and never retracted.

use super::boolean::BoolNode;
use super::bounds::Congruence;
use super::models::Models;
use super::poly::{Poly, Term};
use super::range::{Interval, floor_div};
use super::table::{Memo, Node};
use super::{BoolExpr, BoolId, Expr, ExprId, Range, Rel, SymError, SymTable, SymbolId, SymbolKind};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// All assumed facts of a table, and caches of answers derived from them.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Facts {
    /// Narrowed ranges of atoms.
    pub ranges: FxHashMap<ExprId, Range>,
    /// Congruences of atoms, and of sums without their constant.
    pub congruences: FxHashMap<ExprId, Congruence>,
    /// Truth values of whole conditions.
    pub conds: FxHashMap<BoolId, bool>,
    /// Substitutions of symbols. A replacement contains no substituted symbol.
    pub subst: FxHashMap<SymbolId, Expr>,
    /// The polynomials `p` of the facts `p <= 0`.
    le: Vec<Poly>,
    /// The indices in `le` of the polynomials that contain an atom.
    le_by_atom: FxHashMap<ExprId, Vec<u32>>,
    /// Assumed conditions by free symbol. They are assumed again when the symbol is substituted.
    by_symbol: FxHashMap<SymbolId, Vec<BoolExpr>>,
    /// For each symbol, the substituted symbols whose replacement contains it.
    used_by: FxHashMap<SymbolId, Vec<SymbolId>>,
    /// The version of the facts: the number of conditions processed. Cached answers carry it.
    count: u32,
    /// Answers of proofs by `BoolId`, each with the value of `count` for which it was found.
    proved: Memo<Vec<(u32, Option<bool>)>>,
    /// Simplified expressions by `ExprId`, each with the number of substitutions for which it is
    /// valid.
    simplified: Memo<Vec<(u32, Expr)>>,
    /// Models of the facts.
    pub models: Memo<Models>,
}

impl Facts {
    /// The polynomials `p` of facts `p <= 0` that contain an atom, the newest fact first.
    pub fn constraints_on(&self, atom: ExprId) -> impl Iterator<Item = &Poly> {
        let indices = self.le_by_atom.get(&atom).map_or(&[][..], Vec::as_slice);
        indices.iter().rev().filter_map(|&i| self.le.get(i as usize))
    }

    /// The version of the facts, which a new fact changes.
    pub fn version(&self) -> u32 {
        self.count
    }

    /// The cached answer of a proof. A proof holds with more facts, too; that there is none holds
    /// until a fact is added.
    pub fn cached_answer(&self, id: BoolId) -> Option<Option<bool>> {
        let known = self.proved.0.get(id.0 as usize);
        known
            .filter(|(count, answer)| answer.is_some() || *count == self.count)
            .map(|known| known.1)
    }

    /// Caches the answer of a proof.
    pub fn cache_answer(&mut self, id: BoolId, answer: Option<bool>) {
        set_at(&mut self.proved.0, id.0, (self.count, answer), (u32::MAX, None));
    }
}

/// Stores a value at an index; grows the vector with `filler` as needed.
fn set_at<T: Clone>(all: &mut Vec<T>, index: u32, value: T, filler: T) {
    let index = index as usize;
    if all.len() <= index {
        all.resize(index + 1, filler);
    }
    all[index] = value;
}

/// The error of a fact that contradicts the others.
struct Conflict;

/// The most range refinements that one inequality may cause.
const BUDGET: u32 = 256;

impl SymTable {
    /// Adds a fact.
    ///
    /// An equality becomes a substitution if it determines any symbol by a number or by an
    /// expression of backed symbols, or an unbacked symbol by another symbol. Other equalities
    /// between data, such as `u1 + u2 == 10`, are stored as two inequalities.
    ///
    /// # Errors
    /// [`SymError::Contradiction`] if the fact contradicts the known facts. Consequences derived
    /// before the contradiction was found may remain.
    pub fn assume(&mut self, b: BoolExpr) -> Result<(), SymError> {
        let mut queue = vec![b];
        while let Some(next) = queue.pop() {
            let next = self.simplify_bool(next);
            let result = match self.prove(next) {
                Some(true) => continue,
                Some(false) => Err(Conflict),
                None => self.record(next, &mut queue),
            };
            // Invalidates cached answers without a proof, also after a conflict, which may have
            // left consequences.
            self.facts.count += 1;
            if result.is_err() {
                return Err(self.contradiction(b));
            }
        }
        Ok(())
    }

    /// The error of a fact that contradicts the known facts about its symbols.
    fn contradiction(&self, fact: BoolExpr) -> SymError {
        let symbols = self.free_symbols_bool(fact);
        let known: Vec<String> = symbols
            .iter()
            .take(8)
            .map(|&symbol| match self.facts.subst.get(&symbol) {
                Some(&e) => format!("{} == {}", self.name(symbol), self.display(e)),
                None => format!("{} in {}", self.name(symbol), self.proven_range(symbol)),
            })
            .collect();
        let known =
            if known.is_empty() { "the condition is constant".into() } else { known.join(", ") };
        SymError::Contradiction {
            fact: self.display_bool(fact).to_string().into(),
            known: known.into(),
        }
    }

    /// The expression with all substitutions applied.
    pub fn simplify(&mut self, e: Expr) -> Expr {
        let Expr::Id(id) = e else { return e };
        if self.facts.subst.is_empty() {
            return e;
        }
        let count = self.facts.subst.len() as u32;
        if let Some(&(at, s)) = self.facts.simplified.0.get(id.0 as usize)
            && at == count
        {
            return s;
        }
        let s = match self.mentions(e, &|s| self.facts.subst.contains_key(&s)) {
            // On overflow the expression stays unsubstituted, which is still correct.
            true => self.rebuild(None, e, &|t: &mut SymTable, s| Ok(t.substituted(s))).unwrap_or(e),
            false => e,
        };
        set_at(&mut self.facts.simplified.0, id.0, (count, s), (u32::MAX, Expr::Int(0)));
        s
    }

    /// The condition with all substitutions applied.
    pub fn simplify_bool(&mut self, b: BoolExpr) -> BoolExpr {
        if self.facts.subst.is_empty() {
            return b;
        }
        if !self.mentions_bool(b, &|s| self.facts.subst.contains_key(&s)) {
            return b;
        }
        self.rebuild_bool(None, b, &|t: &mut SymTable, s| Ok(t.substituted(s))).unwrap_or(b)
    }

    /// The replacement of a symbol, or the symbol itself.
    fn substituted(&mut self, s: SymbolId) -> Expr {
        match self.facts.subst.get(&s) {
            Some(&e) => e,
            None => self.expr(s),
        }
    }

    /// Records a condition that is neither proved nor refuted; its consequences join the worklist.
    fn record(&mut self, cond: BoolExpr, queue: &mut Vec<BoolExpr>) -> Result<(), Conflict> {
        let BoolExpr::Id(id) = cond else { return Ok(()) };
        let node = self.bool_node(id).clone();
        if let BoolNode::And(parts) = node {
            queue.extend(parts.into_iter().map(BoolExpr::Id));
            return Ok(());
        }
        for symbol in self.free_symbols_bool(cond) {
            self.facts.by_symbol.entry(symbol).or_default().push(cond);
        }
        self.facts.conds.insert(id, true);
        if let BoolExpr::Id(opposite) = self.not(cond) {
            self.facts.conds.insert(opposite, false);
        }
        let BoolNode::Rel(op, x, y) = node else { return Ok(()) };
        let Some(difference) = self.difference(x, y) else { return Ok(()) };
        let Some(minus) = difference.clone().scale(-1) else { return Ok(()) };
        match op {
            Rel::Lt => self.add_negative(difference, queue),
            Rel::Ne if self.nonpositive(&difference) => self.add_negative(difference, queue),
            Rel::Ne if self.nonpositive(&minus) => self.add_negative(minus, queue),
            Rel::Eq => {
                if self.substitute(&difference, queue) {
                    return Ok(());
                }
                self.add_congruence(&difference);
                self.add_nonpositive(difference, queue)?;
                self.add_nonpositive(minus, queue)
            }
            Rel::Le => self.add_nonpositive(difference, queue),
            _ => Ok(()),
        }
    }

    /// Adds `p < 0`, which is `p + 1 <= 0` over integers.
    fn add_negative(&mut self, p: Poly, queue: &mut Vec<BoolExpr>) -> Result<(), Conflict> {
        match p.constant.checked_add(1) {
            Some(constant) => self.add_nonpositive(Poly { constant, ..p }, queue),
            None => Ok(()),
        }
    }

    /// Adds `p <= 0`: stores the polynomial, unless a range can express it, and propagates bounds.
    fn add_nonpositive(&mut self, p: Poly, queue: &mut Vec<BoolExpr>) -> Result<(), Conflict> {
        let mut budget = BUDGET;
        let mut todo = vec![p.clone()];
        let linear_atom = matches!(p.terms.as_slice(), [t] if t.mono.len() == 1);
        if !linear_atom {
            let index = self.facts.le.len() as u32;
            let mut atoms: SmallVec<[ExprId; 8]> =
                p.terms.iter().flat_map(|t| t.mono.iter().copied()).collect();
            atoms.sort_unstable();
            atoms.dedup();
            for f in atoms {
                self.facts.le_by_atom.entry(f).or_default().push(index);
            }
            self.facts.le.push(p);
        }
        while let Some(p) = todo.pop() {
            if self.least(&p) > 0 {
                return Err(Conflict);
            }
            for (i, t) in p.terms.iter().enumerate() {
                let &[atom] = t.mono.as_slice() else { continue };
                let Some(range) = self.implied_range(&p, i, t) else { continue };
                if self.tighten(atom, range, queue)? {
                    todo.extend(self.consequences(atom));
                    todo.extend(self.facts.constraints_on(atom).take(budget as usize).cloned());
                    budget = budget.saturating_sub(1);
                    if budget == 0 {
                        return Ok(());
                    }
                }
            }
        }
        Ok(())
    }

    /// The range of the atom of term `i` that follows from `p <= 0` and the ranges of the other
    /// terms.
    fn implied_range(&self, p: &Poly, i: usize, term: &Term) -> Option<Range> {
        let mut others = p.clone();
        others.terms.remove(i);
        let least = self.least(&others);
        if least == i128::MIN {
            return None;
        }
        // The inequality is coeff * atom <= -least.
        let most = least.checked_neg()?;
        let range = match term.coeff > 0 {
            true => Interval { hi: floor_div(most, term.coeff.into())?, ..Interval::ALL },
            false => Interval {
                lo: floor_div(most, -i128::from(term.coeff))?.checked_neg()?,
                ..Interval::ALL
            },
        };
        Some(range.into())
    }

    /// Narrows the range of an atom; `true` if the range changed. A symbol with a single value left
    /// is substituted by it.
    fn tighten(
        &mut self,
        atom: ExprId,
        range: Range,
        queue: &mut Vec<BoolExpr>,
    ) -> Result<bool, Conflict> {
        let old = self.bounds(Expr::Id(atom));
        let new = old.intersect(range);
        if new.is_empty() {
            return Err(Conflict);
        }
        if new == old {
            return Ok(false);
        }
        self.facts.ranges.insert(atom, new);
        if let (Some(n), &Node::Symbol(s)) = (new.single(), self.node(atom)) {
            self.replace_symbol(s, atom, Expr::Int(n), queue);
        }
        Ok(true)
    }

    /// The constraints `p <= 0` on the operands of a division, minimum or maximum that follow from
    /// the range of the atom: `x // d <= n` gives `x <= d * n + d - 1`.
    fn consequences(&self, atom: ExprId) -> Vec<Poly> {
        let range = self.bounds(Expr::Id(atom));
        let below = |e: Expr, n: i64| self.add_scaled(&self.poly(e), -1, &Poly::constant(n));
        let above = |e: Expr, n: i64| self.add_scaled(&Poly::constant(n), -1, &self.poly(e));
        let (lo, hi) =
            (Some(range.lo).filter(|&n| n != i64::MIN), Some(range.hi).filter(|&n| n != i64::MAX));
        match self.node(atom) {
            Node::FloorDiv(x, Expr::Int(d)) if *d > 0 => {
                let hi = hi
                    .and_then(|n| n.checked_mul(*d)?.checked_add(d - 1))
                    .and_then(|n| below(*x, n));
                let lo = lo.and_then(|n| n.checked_mul(*d)).and_then(|n| above(*x, n));
                hi.into_iter().chain(lo).collect()
            }
            Node::Min(args) => args.iter().filter_map(|&a| above(a, lo?)).collect(),
            Node::Max(args) => args.iter().filter_map(|&a| below(a, hi?)).collect(),
            _ => Vec::new(),
        }
    }

    /// Records the congruence of a fact `x % d == r`: of `x` without its constant if it is a sum,
    /// and of the atom itself if `x` is a multiple of one atom with an invertible coefficient.
    fn add_congruence(&mut self, p: &Poly) {
        let [Term { coeff: coeff @ (1 | -1), mono }] = p.terms.as_slice() else { return };
        let &[atom] = mono.as_slice() else { return };
        let &Node::Mod(x, Expr::Int(d)) = self.node(atom) else { return };
        let value = -i128::from(p.constant) * i128::from(*coeff);
        let mut base = self.poly(x);
        let rem = value - i128::from(base.constant);
        base.constant = 0;
        let single = match base.terms.as_slice() {
            [Term { coeff, mono }] if mono.len() == 1 => {
                self.inverse(*coeff, d).map(|k| (mono[0], rem * k))
            }
            _ => None,
        };
        let known = match single {
            Some((atom, rem)) => Some((Expr::Id(atom), rem)),
            None => self.intern_poly(base).ok().map(|e| (e, rem)),
        };
        if let Some((Expr::Id(id), rem)) = known {
            let new = Congruence::new(d.into(), rem);
            let old = self.facts.congruences.entry(id).or_insert(new);
            *old = old.and(new);
        }
    }

    /// The inverse of a coefficient modulo `d`, if an inverse below 64 exists.
    fn inverse(&self, coeff: i64, d: i64) -> Option<i128> {
        match coeff {
            1 => Some(1),
            -1 => Some(-1),
            _ => (2..d.min(64))
                .map(i128::from)
                .find(|k| (k * i128::from(coeff)).rem_euclid(d.into()) == 1),
        }
    }

    /// Turns `p == 0` into a substitution if [`SymTable::assume`] allows one; `true` if it did.
    /// Unbacked symbols are preferred, then later symbols, so that data are expressed by input
    /// sizes.
    fn substitute(&mut self, p: &Poly, queue: &mut Vec<BoolExpr>) -> bool {
        let candidate = |t: &Term| match (t.coeff, t.mono.as_slice()) {
            (1 | -1, &[atom]) => match self.node(atom) {
                Node::Symbol(s) => Some((self.kind(*s), *s, t.coeff, atom)),
                _ => None,
            },
            _ => None,
        };
        let mut candidates: Vec<_> = p.terms.iter().filter_map(candidate).collect();
        candidates.sort_by_key(|&(kind, s, ..)| std::cmp::Reverse((kind, s)));
        for (kind, s, coeff, atom) in candidates {
            let Some(rest) =
                self.add_scaled(p, -coeff, &Poly::atom(atom)).and_then(|r| r.scale(-coeff))
            else {
                continue;
            };
            let Ok(rest) = self.intern_poly(rest) else { continue };
            let free = self.free_symbols(rest);
            let unbacked = free.iter().any(|&r| self.kind(r) == SymbolKind::Unbacked);
            let symbol = matches!(rest, Expr::Id(id) if matches!(self.node(id), Node::Symbol(_)));
            if free.contains(&s) || (unbacked && !(symbol && kind == SymbolKind::Unbacked)) {
                continue;
            }
            self.replace_symbol(s, atom, rest, queue);
            return true;
        }
        false
    }

    /// Substitutes a symbol: updates the replacements that contain it, and puts its facts on the
    /// worklist.
    fn replace_symbol(&mut self, s: SymbolId, atom: ExprId, by: Expr, queue: &mut Vec<BoolExpr>) {
        let range = self.bounds(Expr::Id(atom));
        let congruence = self.facts.congruences.get(&atom).copied();
        self.facts.subst.insert(s, by);
        for user in self.facts.used_by.remove(&s).unwrap_or_default() {
            if let Some(&e) = self.facts.subst.get(&user) {
                let e = self.simplify(e);
                self.record_use(user, e);
                self.facts.subst.insert(user, e);
            }
        }
        self.record_use(s, by);
        // The range and congruence of the symbol now hold for its replacement.
        if range.lo != i64::MIN {
            queue.push(self.rel(Rel::Ge, by, Expr::Int(range.lo)));
        }
        if range.hi != i64::MAX {
            queue.push(self.rel(Rel::Le, by, Expr::Int(range.hi)));
        }
        if let Some(c) = congruence
            && let (Ok(m), Ok(r)) = (i64::try_from(c.modulus), i64::try_from(c.rem))
            && let Ok(e) = self.modulo(by, Expr::Int(m))
        {
            queue.push(self.rel(Rel::Eq, e, Expr::Int(r)));
        }
        queue.extend(self.facts.by_symbol.remove(&s).unwrap_or_default());
    }

    /// Indexes the symbols of a replacement in `used_by`.
    fn record_use(&mut self, user: SymbolId, e: Expr) {
        for symbol in self.free_symbols(e) {
            self.facts.used_by.entry(symbol).or_default().push(user);
        }
    }
}
