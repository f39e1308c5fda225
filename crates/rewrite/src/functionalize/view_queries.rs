//! Cached queries of the view algebra on interned views.
//!
//! [`maquette_ir::view`] decides whether two strided views overlap, composes and inverts them. Such
//! a query may search or solve a Diophantine equation, and a program asks the same few queries over
//! and over; so this module keeps the answers by the views' indices.
//!
//! **Invariant.** An answer other than `Unknown` (or `None`) holds for every value of the symbols,
//! so it stays valid when facts are added. An `Unknown` is recomputed once more facts are known
//! ([`Interner::assume`] and the like count them).
//!
//! **Two views** are given as views of the same base, unless a query says otherwise. `a` *relative
//! to* `b` is a view of the value that `b` yields; *composition* is its inverse: `compose(b,
//! relative(a, b)) = a`.

use crate::functionalize::value_graph::{Interner, MetaId, SpecId};
use maquette_ir::fault_injection::{Fault, fault_injected};
use maquette_ir::sym::{BoolExpr, Expr, Rel, SymTable};
use maquette_ir::view::{Dim, TriBool, ViewSpec};
use rustc_hash::FxHashMap;
use smallvec::{SmallVec, smallvec};

/// A query: about one view, two views, or a view and a value's metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Query {
    Disjoint(SpecId, SpecId),
    ContainedIn(SpecId, SpecId),
    Relative(SpecId, SpecId),
    Located(SpecId, SpecId),
    Compose(SpecId, SpecId),
    Injective(SpecId),
    Whole(SpecId, MetaId),
    All(MetaId),
    Inverse(SpecId, MetaId),
}

/// The answer to a query.
#[derive(Clone, Copy, Debug)]
enum Answer {
    TriBool(TriBool),
    Spec(Option<SpecId>),
}

/// The cache of answers, and the facts that are assumed about views.
#[derive(Clone, Debug, Default)]
pub(crate) struct QueryCache {
    /// Answers, each with the number of facts that were known when it was computed.
    answers: FxHashMap<Query, (Answer, u32)>,
    /// The number of facts assumed so far.
    facts: u32,
    /// Pairs of views of one base that are assumed disjoint.
    disjoint_pairs: Vec<(SpecId, SpecId)>,
    /// For each view: the pairs (outer, inner) that it was composed from.
    composed: FxHashMap<SpecId, SmallVec<[(SpecId, SpecId); 1]>>,
    /// Views whose layouts are assumed to be injective.
    injective_views: Vec<SpecId>,
    /// The metadata of views of values.
    viewed: FxHashMap<(SpecId, MetaId), MetaId>,
    /// For each view: its span, once computed.
    spans: Vec<Option<(Span, bool)>>,
}

/// The first element and the one after the last, as constants; `None` for symbolic or empty views.
pub(crate) type Span = Option<(i64, i64)>;

impl Interner {
    /// The cached answer to a yes-no query. Facts cannot refute a `Yes` or `No`, only decide an
    /// `Unknown`.
    fn tri(&mut self, q: Query, compute: impl FnOnce(&mut Interner) -> TriBool) -> TriBool {
        let facts = self.queries.facts;
        if let Some((Answer::TriBool(t), then)) = self.queries.answers.get(&q)
            && (*t != TriBool::Unknown || *then == facts)
        {
            return *t;
        }
        let t = compute(self);
        self.queries.answers.insert(q, (Answer::TriBool(t), facts));
        t
    }

    /// The cached answer to a query for a view. Facts can only turn `None` into a view.
    fn derived(
        &mut self,
        q: Query,
        compute: impl FnOnce(&mut Interner) -> Option<ViewSpec>,
    ) -> Option<SpecId> {
        let facts = self.queries.facts;
        if let Some((Answer::Spec(s), then)) = self.queries.answers.get(&q)
            && (s.is_some() || *then == facts)
        {
            return *s;
        }
        let s = compute(self).map(|s| self.spec(s));
        self.queries.answers.insert(q, (Answer::Spec(s), facts));
        s
    }

    /// The metadata of a view of a value.
    pub fn viewed(&mut self, spec: SpecId, of: MetaId) -> MetaId {
        if let Some(meta) = self.queries.viewed.get(&(spec, of)) {
            return *meta;
        }
        let sizes = self.specs[spec.index()].sizes().collect();
        let meta = self.resized(of, sizes);
        self.queries.viewed.insert((spec, of), meta);
        meta
    }

    /// Two views and the symbol table, borrowed separately.
    pub fn pair(&mut self, a: SpecId, b: SpecId) -> (&ViewSpec, &ViewSpec, &mut SymTable) {
        (&self.specs[a.index()], &self.specs[b.index()], &mut self.symbols)
    }

    /// Whether two expressions are provably equal.
    pub fn equal(&mut self, a: Expr, b: Expr) -> bool {
        let same = self.symbols.rel(Rel::Eq, a, b);
        self.symbols.prove(same) == Some(true)
    }

    /// Whether two views provably have equal sizes and strides; with `begin`, also equal offsets.
    pub fn same_layout(&mut self, a: SpecId, b: SpecId, begin: bool) -> bool {
        let (a, b, symbols) = self.pair(a, b);
        let (x, y) = (a.offset(), b.offset());
        let alike = a.same_layout(b, symbols);
        alike && (!begin || self.equal(x, y))
    }

    /// Whether two nonempty views provably differ: they are not the same elements in the same
    /// order.
    pub fn differ(&mut self, a: SpecId, b: SpecId) -> bool {
        let (a, b, symbols) = self.pair(a, b);
        let mut unequal = |x: Expr, y: Expr| {
            let equal = symbols.rel(Rel::Eq, x, y);
            symbols.prove(equal) == Some(false)
        };
        let begins_alike = !unequal(a.offset(), b.offset());
        let several = |a: &ViewSpec, i: usize| a.dims()[i].size.as_i64().is_some_and(|n| n > 1);
        a.dims().len() != b.dims().len()
            || !begins_alike
            || a.dims().iter().zip(b.dims()).any(|(x, y)| unequal(x.size, y.size))
            || (0..a.dims().len())
                .any(|i| several(a, i) && unequal(a.dims()[i].stride, b.dims()[i].stride))
    }

    /// Both views with known equalities substituted, or `None` if that changes neither. Queries
    /// that match expressions by form may then succeed.
    fn simpler(&mut self, a: SpecId, b: SpecId) -> Option<(ViewSpec, ViewSpec)> {
        let (a, b, symbols) = self.pair(a, b);
        let (x, y) = (a.simplified(symbols)?, b.simplified(symbols)?);
        (x != *a || y != *b).then_some((x, y))
    }

    /// Whether two views share no element.
    pub fn disjoint(&mut self, a_id: SpecId, b_id: SpecId) -> TriBool {
        self.tri(Query::Disjoint(a_id, b_id), |s| {
            let proven = s.proven_disjoint(a_id, b_id);
            proven.or_else(|| {
                if s.disjoint_in_common_base(a_id, b_id) { TriBool::Yes } else { TriBool::Unknown }
            })
        })
    }

    /// Whether two views are disjoint by the view algebra, or by assumption.
    fn proven_disjoint(&mut self, a_id: SpecId, b_id: SpecId) -> TriBool {
        let (a, b, symbols) = self.pair(a_id, b_id);
        let proven = a.disjoint(b, symbols).or_else(|| match self.simpler(a_id, b_id) {
            Some((a, b)) => a.disjoint(&b, &mut self.symbols),
            None => TriBool::Unknown,
        });
        proven.or_else(|| {
            if self.assumed_disjoint(a_id, b_id) { TriBool::Yes } else { TriBool::Unknown }
        })
    }

    /// Whether two views lie inside the two views of an assumed disjoint pair.
    fn assumed_disjoint(&mut self, a: SpecId, b: SpecId) -> bool {
        (0..self.queries.disjoint_pairs.len()).any(|i| {
            let (x, y) = self.queries.disjoint_pairs[i];
            let mut within = |a, b| {
                self.contained_in(a, x) == TriBool::Yes && self.contained_in(b, y) == TriBool::Yes
            };
            within(a, b) || within(b, a)
        })
    }

    /// Whether both views are composed from one injective outer view, with inner views that share
    /// no element. Then they are disjoint, even if the composed forms are too complex to compare.
    fn disjoint_in_common_base(&mut self, a: SpecId, b: SpecId) -> bool {
        let of = |s: &Interner, a: SpecId| s.queries.composed.get(&a).cloned().unwrap_or_default();
        let (of_a, of_b) = (of(self, a), of(self, b));
        of_a.iter().any(|&(outer, x)| {
            let mut in_one = of_b.iter().filter(|(o, _)| *o == outer);
            self.injective(outer) == TriBool::Yes
                && in_one.any(|&(_, y)| self.proven_disjoint(x, y) == TriBool::Yes)
        })
    }

    /// Assumes that a condition holds.
    pub fn assume(&mut self, cond: BoolExpr) {
        if self.symbols.prove(cond) != Some(true) {
            // a condition that contradicts known facts never holds; the code after it is dead
            let _ = self.symbols.assume(cond);
            self.queries.facts += 1;
        }
    }

    /// Assumes that two views of one base share no element.
    pub fn assume_disjoint(&mut self, a: SpecId, b: SpecId) {
        self.queries.disjoint_pairs.push((a, b));
        self.queries.facts += 1;
    }

    /// Whether every element of `a` is an element of `b`.
    pub fn contained_in(&mut self, a: SpecId, b: SpecId) -> TriBool {
        self.tri(Query::ContainedIn(a, b), |s| {
            let (a, b, symbols) = s.pair(a, b);
            a.contained_in(b, symbols)
        })
    }

    /// Whether every element of `a` is provably an element of `b`, where only an element of `a`
    /// matters. A copy of the symbols is made if the first attempt does not decide.
    pub fn provably_contained_in(&mut self, a: SpecId, b: SpecId) -> bool {
        let contained = self.contained_in(a, b);
        let (a, b, symbols) = self.pair(a, b);
        contained == TriBool::Unknown && a.contained_in_unless_empty(b, symbols)
            || contained.is_yes()
    }

    /// `a` as a view of the value that `b` yields, if `a` lies inside `b`.
    pub fn relative(&mut self, a: SpecId, b: SpecId) -> Option<SpecId> {
        self.derived(Query::Relative(a, b), |s| {
            let (a, b, symbols) = s.pair(a, b);
            a.relative(b, symbols)
        })
    }

    /// A region of memory as a view of the value in the region `whole`.
    ///
    /// If `whole` is row-major, possibly with a constant gap between elements, no proof that the
    /// region lies inside is needed: operators only return views of elements that their tensor has,
    /// and `lift` adds runtime checks for `as_strided` and custom operators.
    pub fn located(&mut self, region: SpecId, whole: SpecId) -> Option<SpecId> {
        self.derived(Query::Located(region, whole), |s| {
            let (region, whole, symbols) = s.pair(region, whole);
            region.relative(whole, symbols).or_else(|| {
                let sizes: SmallVec<[Expr; 4]> = region.sizes().collect();
                if whole.is_empty(symbols) == TriBool::Yes
                    && region.is_empty(symbols) != TriBool::No
                {
                    let zero_strides: SmallVec<[Expr; 4]> =
                        SmallVec::from_elem(Expr::Int(0), sizes.len());
                    return ViewSpec::strided(Expr::Int(0), &sizes, &zero_strides, symbols).ok();
                }
                let gap = if fault_injected(Fault::GapsNotCounted) {
                    row_gap(whole, symbols).map(|_| 1)?
                } else {
                    row_gap(whole, symbols)?
                };
                if region.contained_in(whole, symbols) == TriBool::No {
                    return None;
                }
                let offset = symbols.sub(region.offset(), whole.offset()).ok()?;
                let offset = exact_quotient(offset, gap, symbols)?;
                let mut stride = |d: &Dim| match d.size {
                    Expr::Int(1) => Some(Expr::Int(0)),
                    n => exact_quotient(d.stride, gap, symbols)
                        .or_else(|| is_short(n, symbols).then_some(Expr::Int(0))),
                };
                let strides: SmallVec<[Expr; 4]> =
                    region.dims().iter().map(&mut stride).collect::<Option<_>>()?;
                ViewSpec::strided(offset, &sizes, &strides, symbols).ok()
            })
        })
    }

    /// The view `inner` of the view `outer`.
    pub fn compose(&mut self, outer: SpecId, inner: SpecId) -> Option<SpecId> {
        let query = Query::Compose(outer, inner);
        let recorded = matches!(self.queries.answers.get(&query), Some((Answer::Spec(Some(_)), _)));
        let composed = self.derived(query, |s| {
            let (of, view, symbols) = s.pair(outer, inner);
            of.compose(view, symbols).or_else(|| {
                let (outer, inner) = s.simpler(outer, inner)?;
                outer.compose(&inner, &mut s.symbols)
            })
        });
        if let Some(composed) = composed.filter(|_| !recorded) {
            self.queries.composed.entry(composed).or_default().push((outer, inner));
        }
        composed
    }

    /// The first element of a view and the one after its last, and whether the view contains every
    /// element in between exactly once.
    pub fn span(&mut self, a: SpecId) -> (Span, bool) {
        if let Some(Some(known)) = self.queries.spans.get(a.index()) {
            return *known;
        }
        let answer = match span(&self.specs[a.index()]) {
            Some((span, numel)) => {
                (Some(span), numel == span.1 - span.0 && self.injective(a) == TriBool::Yes)
            }
            None => (None, false),
        };
        self.queries.spans.resize(self.specs.len(), None);
        self.queries.spans[a.index()] = Some(answer);
        answer
    }

    /// The number of elements of a view, if it is a constant.
    pub fn count(&mut self, a: SpecId) -> Option<i64> {
        self.specs[a.index()].numel(&mut self.symbols)?.as_i64()
    }

    /// The number of elements of a value, if it is a constant.
    pub fn count_of(&mut self, of: MetaId) -> Option<i64> {
        self.numel(of)?.as_i64()
    }

    /// A view in the sizes of `a` that repeats the first element of a value.
    pub fn repeated(&mut self, a: SpecId) -> Option<SpecId> {
        let sizes: SmallVec<[Expr; 4]> = self.specs[a.index()].sizes().collect();
        let strides: SmallVec<[Expr; 4]> = SmallVec::from_elem(Expr::Int(0), sizes.len());
        let spec = ViewSpec::strided(Expr::Int(0), &sizes, &strides, &mut self.symbols).ok()?;
        Some(self.spec(spec))
    }

    /// Whether the view names no element twice.
    pub fn injective(&mut self, a: SpecId) -> TriBool {
        self.tri(Query::Injective(a), |s| {
            let proven = s.specs[a.index()].injective(&mut s.symbols);
            proven.or_else(|| if s.assumed_injective(a) { TriBool::Yes } else { TriBool::Unknown })
        })
    }

    /// Whether a view has the layout of one that is assumed injective.
    fn assumed_injective(&mut self, a: SpecId) -> bool {
        (0..self.queries.injective_views.len()).any(|i| {
            let (a, like, symbols) = self.pair(a, self.queries.injective_views[i]);
            a.same_layout(like, symbols)
        })
    }

    /// Assumes that views with these sizes and strides name no element twice.
    pub fn assume_injective(&mut self, like: SpecId) {
        self.queries.injective_views.push(like);
        self.queries.facts += 1;
    }

    /// The view of all elements of a value in row-major order, in the value's own sizes.
    pub fn all(&mut self, of: MetaId) -> Option<SpecId> {
        self.derived(Query::All(of), |s| {
            ViewSpec::contiguous(&s.metas[of.index()].sizes, &mut s.symbols).ok()
        })
    }

    /// The number of elements of a value.
    fn numel(&mut self, of: MetaId) -> Option<Expr> {
        let all = self.all(of)?;
        self.specs[all.index()].numel(&mut self.symbols)
    }

    /// Whether a view names every element of a value, in order.
    pub fn is_whole(&mut self, a: SpecId, of: MetaId) -> bool {
        if self.all(of) == Some(a) {
            return true;
        }
        if fault_injected(Fault::WholeInAnyOrder) {
            return self.specs[a.index()].numel(&mut self.symbols) == self.numel(of);
        }
        let whole = self.tri(Query::Whole(a, of), |s| match s.numel(of) {
            Some(n) => s.specs[a.index()].is_full(n, &mut s.symbols),
            None => TriBool::Unknown,
        });
        whole == TriBool::Yes
    }

    /// The inverse of a view that names every element of a value exactly once: the value's elements
    /// in order, as a view of the view.
    pub fn inverse(&mut self, a: SpecId, of: MetaId) -> Option<SpecId> {
        self.derived(Query::Inverse(a, of), |s| {
            let (n, all) = (s.numel(of)?, s.all(of)?);
            let (a, all, symbols) = s.pair(a, all);
            if a.is_permutation(n, symbols) != TriBool::Yes {
                return None;
            }
            a.inverse(n, symbols)?.compose(all, symbols)
        })
    }
}

/// The span of a view with constant numbers, and its number of elements; `None` if it is empty.
fn span(spec: &ViewSpec) -> Option<((i64, i64), i64)> {
    let number = |e: Expr| if let Expr::Int(n) = e { Some(n) } else { None };
    let start = number(spec.offset())?;
    let (mut last, mut numel) = (start, 1i64);
    for d in spec.dims() {
        let (size, stride) = (number(d.size)?, number(d.stride)?);
        last = last.checked_add(size.checked_sub(1)?.checked_mul(stride)?)?;
        numel = numel.checked_mul(size)?;
    }
    let end = last.checked_add(1)?;
    (numel > 0).then_some(((start, end), numel))
}

/// Whether a dimension provably has at most one index, so that its stride is never used.
fn is_short(size: Expr, symbols: &mut SymTable) -> bool {
    let short = symbols.rel(Rel::Le, size, Expr::Int(1));
    symbols.prove(short) == Some(true)
}

/// Which dimensions have strides that matter. The candidates, in order: all dimensions except those
/// of size 1; if the symbols tell more, only those that may have more than one index.
pub(crate) fn long_dims(
    sizes: &[Expr],
    symbols: &mut SymTable,
) -> SmallVec<[SmallVec<[bool; 4]>; 2]> {
    let unequal_to_one: SmallVec<[bool; 4]> = sizes.iter().map(|n| *n != Expr::Int(1)).collect();
    let proven_long: SmallVec<[bool; 4]> = sizes.iter().map(|n| !is_short(*n, symbols)).collect();
    if unequal_to_one == proven_long {
        smallvec![unequal_to_one]
    } else {
        smallvec![unequal_to_one, proven_long]
    }
}

/// The distance between consecutive elements, if a view lists them in row-major order at a constant
/// distance.
fn row_gap(view: &ViewSpec, symbols: &mut SymTable) -> Option<i64> {
    let sizes: SmallVec<[Expr; 4]> = view.sizes().collect();
    long_dims(&sizes, symbols).iter().find_map(|long| row_gap_of(view, long, symbols))
}

/// The same as `row_gap`, where only the strides of the dimensions in `long` matter.
pub(crate) fn row_gap_of(view: &ViewSpec, long: &[bool], symbols: &mut SymTable) -> Option<i64> {
    let sizes: SmallVec<[Expr; 4]> = view.sizes().collect();
    let row = ViewSpec::contiguous(&sizes, symbols).ok()?;
    let innermost = long.iter().rposition(|long| *long).map(|d| view.dims()[d]);
    let gap = innermost.map_or(Some(1), |d| d.stride.as_i64()).filter(|gap| *gap > 0)?;
    let mut fits = |long: bool, a: &Dim, b: &Dim| {
        !long || symbols.mul(a.stride, Expr::Int(gap)).is_ok_and(|stride| stride == b.stride)
    };
    row.dims()
        .iter()
        .zip(view.dims())
        .zip(long)
        .all(|((a, b), long)| fits(*long, a, b))
        .then_some(gap)
}

/// The quotient of an expression and a number, if the division is provably exact.
fn exact_quotient(e: Expr, by: i64, symbols: &mut SymTable) -> Option<Expr> {
    let by = Expr::Int(by);
    let quotient = symbols.floor_div(e, by).ok()?;
    symbols.mul(quotient, by).is_ok_and(|product| product == e).then_some(quotient)
}
