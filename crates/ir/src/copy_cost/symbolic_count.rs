//! Copy costs with symbolic sizes.
//!
//! A [`SymbolicCount`] is a sum of products of sizes. A plan's count is an upper bound of its
//! copies, and the eager program's count is a lower bound. [`SymbolicCount::at_most`] compares
//! them: it cancels the terms that both sums have, and asks the prover about the rest. `false`
//! means "not proved".
//!
//! Some copies happen only if two views overlap, which may depend on symbols. Such a copy is a term
//! with an [`OverlapCondition`]. It cancels against a term with the same condition. For the
//! remaining ones, the upper bound assumes an overlap, and the lower bound assumes none.

use super::{Traffic, WriteModel};
use crate::sym::{BoolExpr, Expr, Rel, SymError, SymTable, SymbolId};
use crate::view::ViewSpec;
use indexmap::IndexMap;
use rustc_hash::FxBuildHasher;
use smallvec::SmallVec;

/// The value of a symbolic size in an estimate.
const SYMBOLIC: u64 = 64;

/// The prover compares at most this many products. Above the limit, the comparison gives up.
const MAX_PRODUCTS: usize = 64;

/// An estimate of the number of elements of a tensor. A symbolic size counts as 64.
pub fn approximate_numel(sizes: &[Expr]) -> u64 {
    sizes
        .iter()
        .map(|n| n.as_i64().map_or(SYMBOLIC, |n| u64::try_from(n).unwrap_or(0)))
        .fold(1, u64::saturating_mul)
}

/// The cost of calls whose sizes may be symbolic.
#[derive(Clone, Debug, Default)]
pub struct CopyCost {
    /// An estimate, in which a symbolic size counts as 64.
    pub estimate: Traffic,
    /// A bound on the elements copied by every run that completes: a lower bound for the original
    /// program, an upper bound for a plan.
    pub copied: SymbolicCount,
}

impl CopyCost {
    /// Adds the traffic of a tensor of these sizes, with `per_element` for each element.
    pub fn add(&mut self, sizes: &[Expr], per_element: Traffic) {
        self.add_estimate(sizes, per_element);
        self.copied.add(sizes, per_element.copied);
    }

    /// Adds to the estimate only. The bound must not count a copy that is likely but not certain,
    /// for a lower bound, or not the worst case, for an upper bound.
    pub fn add_estimate(&mut self, sizes: &[Expr], per_element: Traffic) {
        self.estimate += per_element.times(approximate_numel(sizes));
    }
}

/// A number of elements: a sum of products of nonnegative sizes. Coefficients saturate.
#[derive(Clone, Debug, Default)]
pub struct SymbolicCount {
    constant: u64,
    /// The coefficient of each product of symbolic sizes. The factors are sorted, so that equal
    /// products have equal keys.
    products: IndexMap<SmallVec<[Expr; 4]>, u64, FxBuildHasher>,
    /// The coefficient of each conditional copy, which counts the elements of the read view.
    overlaps: IndexMap<OverlapCondition, u64, FxBuildHasher>,
}

/// The direction of a bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Bound {
    /// A lower bound.
    AtLeast,
    /// An upper bound.
    AtMost,
}

/// The condition that a read and a written view of one storage share elements, in which case a call
/// copies the read one. The condition depends on symbols. If two programs have equal conditions,
/// both copy or neither does.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OverlapCondition {
    /// The read view, moved to offset 0.
    read: ViewSpec,
    /// The written view, moved to offset 0.
    written: ViewSpec,
    /// The offset of the written view minus that of the read view.
    distance: Expr,
    /// Views of the same elements in the same order need no copy: the operator is elementwise.
    unless_same: bool,
}

impl OverlapCondition {
    /// The condition for two views of one storage; `None` if an expression exceeds the
    /// limits of the table.
    pub fn of(
        read: &ViewSpec,
        written: &ViewSpec,
        write_model: WriteModel,
        symbols: &mut SymTable,
    ) -> Option<OverlapCondition> {
        let distance = symbols.sub(written.offset(), read.offset()).ok()?;
        let mut at_zero = |v: &ViewSpec| rebased(v, symbols, &|_, e| Some(e));
        Some(OverlapCondition {
            read: at_zero(read)?,
            written: at_zero(written)?,
            distance,
            unless_same: write_model.elementwise,
        })
    }
}

/// The view moved to offset 0, with `number` applied to every size and stride.
fn rebased(
    v: &ViewSpec,
    symbols: &mut SymTable,
    number: &dyn Fn(&mut SymTable, Expr) -> Option<Expr>,
) -> Option<ViewSpec> {
    let sizes: SmallVec<[Expr; 4]> =
        v.dims().iter().map(|d| number(symbols, d.size)).collect::<Option<_>>()?;
    let strides: SmallVec<[Expr; 4]> =
        v.dims().iter().map(|d| number(symbols, d.stride)).collect::<Option<_>>()?;
    ViewSpec::strided(Expr::Int(0), &sizes, &strides, symbols).ok()
}

impl SymbolicCount {
    /// Adds the elements of `times` tensors of these sizes.
    pub fn add(&mut self, sizes: &[Expr], times: u64) {
        if times == 0 {
            return;
        }
        let numbers =
            sizes.iter().filter_map(|n| n.as_i64()).map(|n| u64::try_from(n).unwrap_or(0));
        let times = numbers.fold(times, u64::saturating_mul);
        if times == 0 {
            return;
        }
        let mut symbols: SmallVec<[Expr; 4]> =
            sizes.iter().copied().filter(|n| n.as_i64().is_none()).collect();
        symbols.sort_unstable();
        let sum = if symbols.is_empty() {
            &mut self.constant
        } else {
            self.products.entry(symbols).or_default()
        };
        *sum = sum.saturating_add(times);
    }

    /// Adds `times` copies of the condition's read view, which are made if the condition holds.
    pub fn add_if(&mut self, condition: OverlapCondition, times: u64) {
        let sum = self.overlaps.entry(condition).or_default();
        *sum = sum.saturating_add(times);
    }

    /// Adds a count whose sizes are of the same table.
    pub fn append(&mut self, other: &SymbolicCount) {
        self.constant = self.constant.saturating_add(other.constant);
        other.products.iter().for_each(|(sizes, times)| self.add(sizes, *times));
        other.overlaps.iter().for_each(|(condition, times)| self.add_if(condition.clone(), *times));
    }

    /// The number, if it depends on no symbol.
    pub fn as_constant(&self) -> Option<u64> {
        (self.products.is_empty() && self.overlaps.is_empty()).then_some(self.constant)
    }

    /// The bound for given values of the symbols; `None` if a symbol of the count has no value. A
    /// lower bound assumes that conditional copies are not made, an upper bound that all are.
    pub fn eval(
        &self,
        symbols: &SymTable,
        value: &dyn Fn(SymbolId) -> Option<i64>,
        bound: Bound,
    ) -> Option<u64> {
        let conditional = self.overlaps.iter().filter(|_| bound == Bound::AtMost);
        let conditional =
            conditional.map(|(m, times)| (m.read.sizes().collect::<SmallVec<[Expr; 4]>>(), *times));
        let mut sum = self.constant;
        for (sizes, times) in
            self.products.iter().map(|(sizes, times)| (sizes.clone(), *times)).chain(conditional)
        {
            let sizes = sizes
                .iter()
                .map(|n| symbols.eval(*n, value).ok())
                .collect::<Option<SmallVec<[i64; 4]>>>()?;
            let numbers = sizes.into_iter().map(|n| u64::try_from(n).unwrap_or(0));
            sum = sum.saturating_add(numbers.fold(times, u64::saturating_mul));
        }
        Some(sum)
    }

    /// The count in another table, `symbols`, simplified by the facts known there. Its sizes are of
    /// the table `from`. A lower bound omits terms that have no counterpart in `symbols`; an upper
    /// bound with such a term is `None`.
    pub fn import(
        &self,
        symbols: &mut SymTable,
        from: &SymTable,
        bound: Bound,
    ) -> Option<SymbolicCount> {
        let number = |symbols: &mut SymTable, e: Expr| {
            symbols.import(from, e).ok().map(|e| symbols.simplify(e))
        };
        let mut imported = SymbolicCount { constant: self.constant, ..SymbolicCount::default() };
        let mut unconditional: Vec<(SmallVec<[Expr; 4]>, u64)> =
            self.products.iter().map(|(sizes, times)| (sizes.clone(), *times)).collect();
        for (m, times) in &self.overlaps {
            let (read, written) =
                (rebased(&m.read, symbols, &number), rebased(&m.written, symbols, &number));
            match (read, written, number(symbols, m.distance)) {
                (Some(read), Some(written), Some(distance)) => {
                    imported.add_if(OverlapCondition { read, written, distance, ..*m }, *times)
                }
                _ if bound == Bound::AtMost => {
                    unconditional.push((m.read.sizes().collect(), *times))
                }
                _ => {}
            }
        }
        for (sizes, times) in unconditional {
            match sizes.iter().map(|n| number(symbols, *n)).collect::<Option<SmallVec<[Expr; 4]>>>()
            {
                Some(sizes) => imported.add(&sizes, times),
                None if bound == Bound::AtLeast => {}
                None => return None,
            }
        }
        Some(imported)
    }

    /// Removes the terms that both counts have, except the constants.
    fn cancel(&mut self, other: &mut SymbolicCount) {
        fn cancel_terms<K: std::hash::Hash + Eq>(
            left: &mut IndexMap<K, u64, FxBuildHasher>,
            right: &mut IndexMap<K, u64, FxBuildHasher>,
        ) {
            for (key, left_times) in left.iter_mut() {
                if let Some(right_times) = right.get_mut(key) {
                    let common = (*left_times).min(*right_times);
                    *left_times -= common;
                    *right_times -= common;
                }
            }
            [left, right].into_iter().for_each(|side| side.retain(|_, times| *times > 0));
        }
        cancel_terms(&mut self.products, &mut other.products);
        cancel_terms(&mut self.overlaps, &mut other.overlaps);
    }

    /// The sum of the constant and the products as an expression. `symbols` is the table of the
    /// sizes.
    fn sum(&self, symbols: &mut SymTable) -> Result<Expr, SymError> {
        let number = |n: u64| {
            i64::try_from(n).map(Expr::Int).map_err(|_| SymError::Overflow(n.to_string().into()))
        };
        let mut sum = number(self.constant)?;
        for (product, times) in &self.products {
            let mut term = number(*times)?;
            for size in product {
                term = symbols.mul(term, *size)?;
            }
            sum = symbols.add(sum, term)?;
        }
        Ok(sum)
    }

    /// The count as text. `symbols` is the table of the sizes.
    pub fn to_text(&self, symbols: &SymTable) -> String {
        let size = |n: &Expr| match symbols.display(*n).to_string() {
            sum if sum.contains(' ') => format!("({sum})"),
            one => one,
        };
        let mut terms: Vec<String> = Vec::new();
        for (product, times) in &self.products {
            let times = (*times > 1).then(|| times.to_string());
            terms.push(
                times.into_iter().chain(product.iter().map(size)).collect::<Vec<_>>().join(" * "),
            );
        }
        for (condition, times) in &self.overlaps {
            let sizes: Vec<String> = condition.read.sizes().map(|n| size(&n)).collect();
            let product =
                std::iter::once(times.to_string()).chain(sizes).collect::<Vec<_>>().join(" * ");
            terms.push(format!("{product} if it overlaps the written region"));
        }
        if self.constant > 0 || terms.is_empty() {
            terms.push(self.constant.to_string());
        }
        terms.join(" + ")
    }

    /// True if `self <= other` is provable in `symbols`, the table of both.
    pub fn at_most(&self, other: &SymbolicCount, symbols: &mut SymTable) -> bool {
        let (mut more, mut rest) = (self.clone(), other.clone());
        more.cancel(&mut rest);
        // In the worst case, this program makes its conditional copies and the other makes none.
        for (condition, times) in std::mem::take(&mut more.overlaps) {
            let sizes: SmallVec<[Expr; 4]> = condition.read.sizes().collect();
            more.add(&sizes, times);
        }
        more.cancel(&mut rest);
        if more.products.is_empty() && more.constant <= rest.constant {
            return true;
        }
        if more.products.is_empty() && rest.products.is_empty()
            || more.products.len() + rest.products.len() > MAX_PRODUCTS
        {
            return false;
        }
        let (Ok(more), Ok(rest)) = (more.sum(symbols), rest.sum(symbols)) else { return false };
        let at_most: BoolExpr = symbols.rel(Rel::Le, more, rest);
        symbols.prove(at_most) == Some(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sym::{Range, SymbolKind};

    #[test]
    fn counts_are_compared_by_proof() {
        let mut symbols = SymTable::new();
        let mut symbol = |name| {
            let s = symbols.symbol(name, SymbolKind::Backed, Range::SIZE).unwrap();
            symbols.expr(s)
        };
        let (a, b) = (symbol("a"), symbol("b"));
        let count = |parts: &[(&[Expr], u64)]| {
            let mut count = SymbolicCount::default();
            parts.iter().for_each(|(sizes, times)| count.add(sizes, *times));
            count
        };
        let mut at_most = |x: &SymbolicCount, y: &SymbolicCount| x.at_most(y, &mut symbols);
        let three = Expr::Int(3);
        let (rows, twice) = (count(&[(&[a, three], 1)]), count(&[(&[three, a], 2)]));
        assert!(at_most(&rows, &twice) && !at_most(&twice, &rows));
        assert!(at_most(&count(&[(&[a, b], 1)]), &count(&[(&[b, a], 1), (&[], 1)])));
        // Two independent symbols cannot be compared.
        assert!(!at_most(&count(&[(&[a], 1)]), &count(&[(&[b], 1)])));
        // 2a <= a + ab does not hold for b = 0.
        assert!(!at_most(&count(&[(&[a], 2)]), &count(&[(&[a], 1), (&[a, b], 1)])));
        assert!(at_most(&count(&[(&[], 4)]), &count(&[(&[Expr::Int(2), Expr::Int(2)], 1)])));
        assert!(!at_most(&count(&[(&[], 5)]), &count(&[(&[Expr::Int(4)], 1)])));
        assert!(at_most(&count(&[(&[Expr::Int(0), a], 7)]), &SymbolicCount::default()));
        assert!(!at_most(
            &count(&[(&[], u64::MAX), (&[a], 1)]),
            &count(&[(&[], 1), (&[a], 1), (&[b], 1)])
        ));
    }

    #[test]
    fn comparison_and_import_use_assumed_facts() {
        let mut symbols = SymTable::new();
        let u = symbols.symbol("u0", SymbolKind::Unbacked, Range::SIZE).unwrap();
        let u = symbols.expr(u);
        let theirs = symbols.clone();
        let is_nine = symbols.rel(Rel::Eq, u, Expr::Int(9));
        symbols.assume(is_nine).unwrap();
        let (mut ours, mut other) = (SymbolicCount::default(), SymbolicCount::default());
        ours.add(&[Expr::Int(18)], 1);
        other.add(&[Expr::Int(2), u], 1);
        let other = other.import(&mut symbols, &theirs, Bound::AtLeast).unwrap();
        assert!(ours.at_most(&other, &mut symbols));
        ours.add(&[], 1);
        assert!(!ours.at_most(&other, &mut symbols));
        // A symbol that the table lacks is omitted from a lower bound; there is no upper bound.
        let (mut empty, mut unknown) = (SymTable::new(), SymbolicCount::default());
        unknown.add(&[u], 1);
        assert_eq!(
            unknown.import(&mut empty, &theirs, Bound::AtLeast).unwrap().as_constant(),
            Some(0)
        );
        assert!(unknown.import(&mut empty, &theirs, Bound::AtMost).is_none());
    }
}
