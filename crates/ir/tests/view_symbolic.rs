//! Property tests of views with symbolic sizes: every answer holds for all values of the symbols,
//! including zero and one.

use maquette_ir::sym::{BoolExpr, Expr, Range, Rel, SymTable, SymbolId, SymbolKind};
use maquette_ir::view::{Dim, TriBool, ViewOp, ViewSpec};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use std::collections::BTreeMap;

/// A random operation before its parameters are made valid: a kind and three choices.
type Pick = (u8, u8, u8, u8);

#[derive(Clone, Debug)]
struct Program {
    base: Vec<u8>,
    left: Vec<Pick>,
    right: Vec<Pick>,
    /// Whether the bounds of slices are assumed facts, as guards of a graph provide them.
    facts: bool,
    range: usize,
}

const RANGES: [[Range; 3]; 3] = [
    [Range::SIZE, Range::SIZE, Range::SIZE],
    [Range::new(2, i64::MAX), Range::new(1, i64::MAX), Range::SIZE],
    [Range::new(0, 4), Range::new(1, 3), Range::new(2, 2)],
];

fn programs() -> impl Strategy<Value = Program> {
    let ops = || prop::collection::vec((0u8..10, any::<u8>(), any::<u8>(), any::<u8>()), 0..5);
    (prop::collection::vec(0u8..10, 1..4), ops(), ops(), any::<bool>(), 0..RANGES.len())
        .prop_map(|(base, left, right, facts, range)| Program { base, left, right, facts, range })
}

/// The symbols of a program and the facts about them.
struct World {
    t: SymTable,
    symbols: [SymbolId; 3],
    /// The assumed facts.
    facts: Vec<BoolExpr>,
    assume: bool,
}

impl World {
    fn new(range: usize, assume: bool) -> World {
        let mut t = SymTable::new();
        let symbols = [0, 1, 2]
            .map(|i| t.symbol(&format!("s{i}"), SymbolKind::Backed, RANGES[range][i]).unwrap());
        World { t, symbols, facts: Vec::new(), assume }
    }

    fn symbol(&mut self, i: u8) -> Expr {
        self.t.expr(self.symbols[usize::from(i) % 3])
    }

    fn size(&mut self, pick: u8) -> Expr {
        let s = self.symbol(pick);
        match pick % 10 {
            0..=3 => s,
            4 => self.t.mul(s, Expr::Int(2)).unwrap(),
            5 => self.t.add(s, Expr::Int(2)).unwrap(),
            6 => Expr::Int(1),
            n => Expr::Int(i64::from(n) - 5),
        }
    }

    fn index(&mut self, pick: u8) -> Expr {
        let s = self.symbol(pick);
        match pick % 7 {
            0 | 1 => Expr::Int(0),
            2 => Expr::Int(1),
            3 | 4 => s,
            5 => self.t.add(s, Expr::Int(1)).unwrap(),
            _ => Expr::Int(2),
        }
    }

    fn at_most(&mut self, a: Expr, b: Expr) {
        let fact = self.t.rel(Rel::Le, a, b);
        let before = self.t.clone();
        match self.assume.then(|| self.t.assume(fact)) {
            Some(Ok(())) => self.facts.push(fact),
            // After a contradiction the table may hold consequences of the rejected fact.
            Some(Err(_)) => self.t = before,
            None => {}
        }
    }

    /// Applies one operation; the view is unchanged if the operation does not apply.
    fn step(&mut self, spec: &ViewSpec, (kind, a, b, c): Pick) -> Option<ViewSpec> {
        let sizes: Vec<Expr> = spec.sizes().collect();
        let dim = usize::from(a) % sizes.len().max(1);
        let size = sizes.get(dim).copied().unwrap_or(Expr::Int(1));
        let t = &mut self.t;
        let op = match kind {
            _ if sizes.is_empty() || kind == 0 && sizes.len() < 4 => {
                ViewOp::Unsqueeze(dim.min(sizes.len()))
            }
            1 => {
                let index = self.index(b);
                let next = self.t.add(index, Expr::Int(1)).ok()?;
                self.at_most(next, size);
                ViewOp::Select { dim, index }
            }
            2 | 3 => {
                let (start, length) = (self.index(b), self.index(c));
                let end = if kind == 2 { self.t.add(start, length).ok()? } else { size };
                self.at_most(end, size);
                self.at_most(start, end);
                ViewOp::Slice { dim, start, end, step: Expr::Int(1 + i64::from(c % 3 / 2)) }
            }
            4 => {
                let mut order: Vec<usize> = (0..sizes.len()).collect();
                order.swap(dim, usize::from(b) % sizes.len());
                ViewOp::Permute(order.into())
            }
            5 if dim + 1 < sizes.len() => {
                let both = t.mul(size, sizes[dim + 1]).ok()?;
                ViewOp::Reshape([&sizes[..dim], &[both], &sizes[dim + 2..]].concat().into())
            }
            6 if sizes.len() < 4 => {
                let half = t.floor_div(size, Expr::Int(2)).ok()?;
                ViewOp::Reshape(
                    [&sizes[..dim], &[half, Expr::Int(2)], &sizes[dim + 1..]].concat().into(),
                )
            }
            7 => {
                let n = self.size(b);
                ViewOp::Expand(
                    sizes.iter().map(|&s| if s == Expr::Int(1) { n } else { s }).collect(),
                )
            }
            8 if dim + 1 < sizes.len() => return self.diagonal(spec, dim),
            9 if sizes.len() < 4 => {
                return self.unfold(spec, dim, i64::from(b % 3) + 1, i64::from(c % 3) + 1);
            }
            _ => return Some(spec.clone()),
        };
        Some(spec.apply(&op, &mut self.t).unwrap_or_else(|| spec.clone()))
    }

    fn diagonal(&mut self, spec: &ViewSpec, dim: usize) -> Option<ViewSpec> {
        let mut dims = spec.dims().to_vec();
        let (a, b) = (dims.remove(dim), dims[dim]);
        dims[dim].size = self.t.min(a.size, b.size).ok()?;
        dims[dim].stride = self.t.add(a.stride, b.stride).ok()?;
        self.strided(spec.offset(), &dims)
    }

    fn unfold(&mut self, spec: &ViewSpec, dim: usize, window: i64, step: i64) -> Option<ViewSpec> {
        let mut dims = spec.dims().to_vec();
        let d = dims[dim];
        self.at_most(Expr::Int(window), d.size);
        let rest = self.t.add(d.size, Expr::Int(-window)).ok()?;
        let count = self.t.floor_div(rest, Expr::Int(step)).ok()?;
        dims[dim].size = self.t.add(count, Expr::Int(1)).ok()?;
        dims[dim].stride = self.t.mul(d.stride, Expr::Int(step)).ok()?;
        dims.push(Dim { size: Expr::Int(window), stride: d.stride });
        self.strided(spec.offset(), &dims)
    }

    fn strided(&mut self, offset: Expr, dims: &[Dim]) -> Option<ViewSpec> {
        let (sizes, strides): (Vec<Expr>, Vec<Expr>) =
            dims.iter().map(|d| (d.size, d.stride)).unzip();
        ViewSpec::strided(offset, &sizes, &strides, &mut self.t).ok()
    }

    fn value(&self, symbol: SymbolId, values: &[i64; 3]) -> Option<i64> {
        self.symbols.iter().position(|&s| s == symbol).map(|i| values[i])
    }

    /// The tried assignments that ranges and facts allow.
    fn cases(&self, range: usize) -> Vec<[i64; 3]> {
        let all = (0..125).map(|i| [i / 25, i / 5 % 5, i % 5]);
        let allowed = |v: &[i64; 3]| {
            RANGES[range].iter().zip(v).all(|(r, &n)| r.contains(n))
                && self.facts.iter().all(|&f| self.t.eval_bool(f, &|s| self.value(s, v)).unwrap())
        };
        all.filter(allowed).collect()
    }
}

/// Sizes and positions of a view under an assignment; `None` if a number is negative or there are
/// too many positions.
fn at(spec: &ViewSpec, w: &World, v: &[i64; 3]) -> Option<(Vec<i64>, Vec<i64>)> {
    let value = |e: Expr| w.t.eval(e, &|s| w.value(s, v)).ok().filter(|&n| n >= 0);
    let mut positions = vec![value(spec.offset())?];
    let mut sizes = Vec::new();
    for d in spec.dims() {
        let (size, stride) = (value(d.size)?, value(d.stride)?);
        sizes.push(size);
        positions =
            positions.iter().flat_map(|&p| (0..size).map(move |i| p + i * stride)).collect();
        if positions.len() > 2000 {
            return None;
        }
    }
    Some((sizes, positions))
}

/// Two views of one base, and their positions under each assignment.
struct Pair {
    w: World,
    base: Expr,
    a: ViewSpec,
    b: ViewSpec,
    cases: Vec<Case>,
}

struct Case {
    base: i64,
    a: (Vec<i64>, Vec<i64>),
    b: (Vec<i64>, Vec<i64>),
    values: [i64; 3],
}

fn pair(p: &Program) -> Option<Pair> {
    let mut w = World::new(p.range, p.facts);
    let sizes: Vec<Expr> = p.base.iter().map(|&n| w.size(n)).collect();
    let whole = ViewSpec::contiguous(&sizes, &mut w.t).ok()?;
    let base = whole.numel(&mut w.t)?;
    let a = p.left.iter().try_fold(whole.clone(), |spec, &pick| w.step(&spec, pick))?;
    let b = p.right.iter().try_fold(whole, |spec, &pick| w.step(&spec, pick))?;
    let case = |values: [i64; 3]| {
        let base = w.t.eval(base, &|s| w.value(s, &values)).ok()?;
        Some(Case { base, a: at(&a, &w, &values)?, b: at(&b, &w, &values)?, values })
    };
    let cases = w.cases(p.range).into_iter().filter_map(case).collect();
    Some(Pair { w, base, a, b, cases })
}

/// A query, its answer, and the truth under each assignment.
type Answer = (&'static str, TriBool, Vec<bool>);

fn all_in(positions: &[i64], set: &[i64]) -> bool {
    positions.iter().all(|p| set.contains(p))
}

fn is_injective(positions: &[i64]) -> bool {
    let mut sorted = positions.to_vec();
    sorted.sort_unstable();
    sorted.windows(2).all(|pair| pair[0] != pair[1])
}

fn answers(p: &mut Pair) -> Vec<Answer> {
    let truth = |f: &dyn Fn(&Case) -> bool| p.cases.iter().map(f).collect::<Vec<bool>>();
    let bijective = |c: &Case| {
        c.a.1.len() as i64 == c.base && is_injective(&c.a.1) && c.a.1.iter().all(|&i| i < c.base)
    };
    let t = &mut p.w.t;
    vec![
        ("disjoint", p.a.disjoint(&p.b, t), truth(&|c| !c.a.1.iter().any(|i| c.b.1.contains(i)))),
        ("contained", p.a.contained_in(&p.b, t), truth(&|c| all_in(&c.a.1, &c.b.1))),
        ("same", p.a.same(&p.b, t), truth(&|c| c.a.1 == c.b.1)),
        ("injective", p.a.injective(t), truth(&|c| is_injective(&c.a.1))),
        ("full", p.a.is_full(p.base, t), truth(&|c| c.a.1.iter().copied().eq(0..c.base))),
        ("is_permutation", p.a.is_permutation(p.base, t), truth(&bijective)),
        ("empty", p.a.is_empty(t), truth(&|c| c.a.1.is_empty())),
    ]
}

fn text(p: &Pair) -> String {
    let dims = |spec: &ViewSpec| {
        let dims: Vec<String> = spec
            .dims()
            .iter()
            .map(|d| format!("({}, {})", p.w.t.display(d.size), p.w.t.display(d.stride)))
            .collect();
        format!("{} + {}", p.w.t.display(spec.offset()), dims.join(" "))
    };
    let facts: Vec<String> = p.w.facts.iter().map(|&f| p.w.t.display_bool(f).to_string()).collect();
    format!("a = {}, b = {}, where {}", dims(&p.a), dims(&p.b), facts.join(", "))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn answers_hold_for_all_assignments(program in programs()) {
        let Some(mut p) = pair(&program) else { return Ok(()) };
        for (query, answer, truth) in answers(&mut p) {
            for (case, truth) in p.cases.iter().zip(truth) {
                let refuted = answer == TriBool::from(!truth);
                let location = || format!("at {:?}: {}", case.values, text(&p));
                prop_assert!(!refuted, "{query}: {answer:?} is wrong {}", location());
            }
        }
    }

    #[test]
    fn returned_views_are_correct_for_all_assignments(program in programs()) {
        let Some(mut p) = pair(&program) else { return Ok(()) };
        let canonical = p.a.canonical(&mut p.w.t);
        let relative = p.a.relative(&p.b, &mut p.w.t);
        let inverse = p.a.inverse(p.base, &mut p.w.t);
        // `b` reinterpreted as a view of the flat order of `a`.
        let composed = p.a.compose(&p.b, &mut p.w.t);
        for c in &p.cases {
            let location = || format!("at {:?}: {}", c.values, text(&p));
            let view = |spec: &Option<ViewSpec>| {
                spec.as_ref().map(|spec| at(spec, &p.w, &c.values))
            };
            // The base positions of `inner`, a list of positions in the flat order of `outer`.
            let through = |outer: &[i64], inner: &[i64]| -> Option<Vec<i64>> {
                inner.iter().map(|&i| outer.get(i as usize).copied()).collect()
            };
            let canonical = at(&canonical, &p.w, &c.values).map(|(_, positions)| positions);
            prop_assert_eq!(canonical, Some(c.a.1.clone()), "canonical {}", location());
            if let Some(relative) = view(&relative) {
                let Some((sizes, flat_positions)) = relative else {
                    return Err(TestCaseError::fail(format!("relative {}", location())));
                };
                prop_assert_eq!(&sizes, &c.a.0, "relative {}", location());
                let found = through(&c.b.1, &flat_positions);
                prop_assert_eq!(found, Some(c.a.1.clone()), "relative {}", location());
            }
            if let Some(Some((_, flat_positions))) = view(&inverse) {
                let found = through(&c.a.1, &flat_positions);
                prop_assert_eq!(found, Some((0..c.base).collect()), "inverse {}", location());
            }
            let wanted = through(&c.a.1, &c.b.1);
            if let (Some(Some((sizes, found))), Some(wanted)) = (view(&composed), wanted) {
                prop_assert_eq!(&sizes, &c.b.0, "composition {}", location());
                prop_assert_eq!(found, wanted, "composition {}", location());
            }
        }
    }

    #[test]
    fn chains_produce_their_view(program in programs()) {
        let Some(mut p) = pair(&program) else { return Ok(()) };
        let sizes: Vec<Expr> = program.base.iter().map(|&n| p.w.size(n)).collect();
        let chain = p.a.chain(&sizes, &mut p.w.t).unwrap();
        let whole = ViewSpec::contiguous(&sizes, &mut p.w.t).unwrap();
        let apply = |spec: ViewSpec, op| spec.apply(op, &mut p.w.t);
        let Some(result) = chain.0.iter().try_fold(whole, apply) else { return Ok(()) };
        for c in p.cases.iter().filter(|c| c.a.1.iter().all(|&i| i < c.base)) {
            prop_assert_eq!(at(&result, &p.w, &c.values), Some(c.a.clone()), "{} at {:?}: \
                {}", chain.display(&p.w.t), c.values, text(&p));
        }
    }
}

/// The same programs in every run.
fn fixed(count: usize) -> impl Iterator<Item = Program> {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    (0..count).map(move |_| programs().new_tree(&mut runner).unwrap().current())
}

#[test]
fn reflexive_queries_are_decided() {
    for program in fixed(600) {
        // Facts assumed after a spec was built may give the same size another canonical form.
        let Some(mut p) = pair(&Program { facts: false, ..program }) else { continue };
        let (a, t) = (&p.a, &mut p.w.t);
        let sizes: Vec<Expr> = a.sizes().collect();
        let own = ViewSpec::contiguous(&sizes, t).unwrap();
        let answers = (
            a.same(a, t),
            a.contained_in(a, t),
            !a.is_empty(t).is_no() || a.disjoint(a, t).is_no(),
        );
        let relative = a.relative(a, t).map(|r| r.same(&own, t));
        let composed = a.compose(&own, t).map(|c| c.same(a, t));
        assert_eq!(
            (answers, relative, composed),
            ((TriBool::Yes, TriBool::Yes, true), Some(TriBool::Yes), Some(TriBool::Yes)),
            "{}",
            text(&p)
        );
    }
}

/// The share of undecided queries among those with the same truth under all tried assignments. (The
/// truth may differ under assignments that are not tried.)
#[test]
fn few_queries_are_undecided() {
    let (mut decided, mut missing) = (BTreeMap::new(), BTreeMap::new());
    for program in fixed(600) {
        let Some(mut p) = pair(&program) else { continue };
        for (query, answer, truth) in answers(&mut p) {
            if truth.len() > 4 && truth.windows(2).all(|pair| pair[0] == pair[1]) {
                let counts = if answer == TriBool::Unknown { &mut missing } else { &mut decided };
                *counts.entry(query).or_insert(0) += 1;
            }
        }
    }
    let sum = |counts: &BTreeMap<&str, u32>| counts.values().sum::<u32>();
    assert!(sum(&missing) * 20 <= sum(&decided), "decided {decided:?}, missing {missing:?}");
}
