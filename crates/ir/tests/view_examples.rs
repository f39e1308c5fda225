//! Views as models create them: key-value caches, attention heads and fused projections, with
//! constant and with symbolic sizes.

use maquette_ir::sym::{Expr, Range, SymTable, SymbolKind};
use maquette_ir::view::{TriBool, ViewError, ViewOp, ViewSpec};

/// A symbol table with sizes `s0`, `s1` and `s2`, which may be zero, and `d`, which is positive.
struct World(SymTable);

impl World {
    fn new() -> World {
        let mut t = SymTable::new();
        for name in ["s0", "s1", "s2"] {
            t.symbol(name, SymbolKind::Backed, Range::SIZE).unwrap();
        }
        t.symbol("d", SymbolKind::Backed, Range::new(1, i64::MAX)).unwrap();
        World(t)
    }

    fn e(&mut self, text: &str) -> Expr {
        self.0.parse_expr(text).unwrap()
    }

    fn list<const N: usize>(&mut self, texts: [&str; N]) -> [Expr; N] {
        texts.map(|text| self.e(text))
    }

    fn assume(&mut self, text: &str) {
        let fact = self.0.parse_bool(text).unwrap();
        self.0.assume(fact).unwrap();
    }

    fn whole<const N: usize>(&mut self, sizes: [&str; N]) -> ViewSpec {
        let sizes = self.list(sizes);
        ViewSpec::contiguous(&sizes, &mut self.0).unwrap()
    }

    fn strided<const N: usize>(
        &mut self,
        offset: &str,
        sizes: [&str; N],
        strides: [&str; N],
    ) -> ViewSpec {
        let (offset, sizes, strides) = (self.e(offset), self.list(sizes), self.list(strides));
        ViewSpec::strided(offset, &sizes, &strides, &mut self.0).unwrap()
    }

    fn slice(&mut self, spec: &ViewSpec, dim: usize, start: &str, end: &str) -> ViewSpec {
        let (start, end) = (self.e(start), self.e(end));
        spec.apply(&ViewOp::Slice { dim, start, end, step: Expr::Int(1) }, &mut self.0).unwrap()
    }

    fn select(&mut self, spec: &ViewSpec, dim: usize, index: &str) -> ViewSpec {
        let index = self.e(index);
        spec.apply(&ViewOp::Select { dim, index }, &mut self.0).unwrap()
    }

    fn permute(&mut self, spec: &ViewSpec, order: &[usize]) -> ViewSpec {
        spec.apply(&ViewOp::Permute(order.into()), &mut self.0).unwrap()
    }

    fn reshape<const N: usize>(&mut self, spec: &ViewSpec, sizes: [&str; N]) -> Option<ViewSpec> {
        let sizes = self.list(sizes);
        spec.apply(&ViewOp::Reshape(sizes.as_slice().into()), &mut self.0)
    }

    fn chain<const N: usize>(&mut self, spec: &ViewSpec, base: [&str; N]) -> String {
        let base = self.list(base);
        let chain = spec.chain(&base, &mut self.0).unwrap();
        chain.display(&self.0).to_string()
    }

    fn text(&self, spec: &ViewSpec) -> String {
        let dims: Vec<String> = spec
            .dims()
            .iter()
            .map(|d| format!("({}, {})", self.0.display(d.size), self.0.display(d.stride)))
            .collect();
        format!("{} + {}", self.0.display(spec.offset()), dims.join(" "))
    }
}

#[test]
fn a_cache_write_is_disjoint_from_the_filled_part() {
    let mut w = World::new();
    // A decoder's cache with 128 positions, s0 of which are filled.
    w.assume("s0 + 1 <= 128");
    for head in ["64", "d"] {
        let cache = w.whole(["s2", "128", head]);
        let (new, old) = (w.slice(&cache, 1, "s0", "s0 + 1"), w.slice(&cache, 1, "0", "s0"));
        assert_eq!(new.disjoint(&old, &mut w.0), TriBool::Yes, "{head}");
        assert_eq!(old.disjoint(&new, &mut w.0), TriBool::Yes, "{head}");
        // Without facts about s1, neither query has an answer.
        let other = w.slice(&cache, 1, "0", "s1");
        assert_eq!(new.disjoint(&other, &mut w.0), TriBool::Unknown, "{head}");
        assert_eq!(new.contained_in(&other, &mut w.0), TriBool::Unknown, "{head}");
        // The next step reads the new position.
        let next = w.slice(&cache, 1, "0", "s0 + 1");
        assert_eq!(new.contained_in(&next, &mut w.0), TriBool::Yes, "{head}");
        assert_eq!(old.contained_in(&next, &mut w.0), TriBool::Yes, "{head}");
        let within = new.relative(&next, &mut w.0).unwrap();
        assert_eq!(
            next.compose(&within, &mut w.0).unwrap().same(&new, &mut w.0),
            TriBool::Yes,
            "{head}"
        );
    }
}

#[test]
fn a_cache_of_symbolic_length() {
    let mut w = World::new();
    w.assume("s0 + 1 <= s1");
    let cache = w.whole(["s2", "s1", "d"]);
    let (new, old) = (w.slice(&cache, 1, "s0", "s0 + 1"), w.slice(&cache, 1, "0", "s0"));
    assert_eq!(new.disjoint(&old, &mut w.0), TriBool::Yes);
    assert_eq!(new.injective(&mut w.0), TriBool::Yes);
    assert_eq!(cache.is_permutation(cache.numel(&mut w.0).unwrap(), &mut w.0), TriBool::Yes);
    assert_eq!(new.contained_in(&cache, &mut w.0), TriBool::Yes);
    let relative = new.relative(&cache, &mut w.0).unwrap();
    assert_eq!(w.text(&relative), "d * s0 + (s2, d * s1) (1, 0) (d, 1)");
}

#[test]
fn columns_are_disjoint_for_all_rows() {
    let mut w = World::new();
    let matrix = w.whole(["s2", "s1", "96"]);
    let rows = [w.slice(&matrix, 1, "0", "s0"), w.slice(&matrix, 1, "s0", "s1")];
    for rows in rows {
        let (q, k) = (w.slice(&rows, 2, "0", "32"), w.slice(&matrix, 2, "32", "64"));
        assert_eq!(q.disjoint(&k, &mut w.0), TriBool::Yes);
    }
    let (even, odd) = (w.strided("0", ["s0"], ["2"]), w.strided("1", ["s1"], ["2"]));
    assert_eq!(even.disjoint(&odd, &mut w.0), TriBool::Yes);
    let far = w.strided("2 * s2 + 1", ["s1", "s2"], ["4 * d", "6"]);
    assert_eq!(even.disjoint(&far, &mut w.0), TriBool::Yes);
}

#[test]
fn splitting_heads_is_a_permutation_with_an_inverse() {
    let mut w = World::new();
    let x = w.whole(["s0", "s1", "96"]);
    let heads = w.reshape(&x, ["s0", "s1", "6", "16"]).unwrap();
    let heads = w.permute(&heads, &[0, 2, 1, 3]);
    assert_eq!(w.text(&heads), "0 + (s0, 96 * s1) (6, 16) (s1, 96) (16, 1)");
    // The flat order of heads differs from that of rows.
    assert!(w.reshape(&heads, ["s0", "6 * s1", "16"]).is_none());
    let numel = w.e("96 * s0 * s1");
    assert_eq!(heads.is_permutation(numel, &mut w.0), TriBool::Yes);
    let inverse = heads.inverse(numel, &mut w.0).unwrap();
    assert_eq!(w.text(&inverse), "0 + (s0, 96 * s1) (s1, 16) (6, 16 * s1) (16, 1)");
    let back = heads.compose(&inverse, &mut w.0).unwrap();
    assert_eq!(back.is_full(numel, &mut w.0), TriBool::Yes);
    assert_eq!(w.chain(&heads, ["s0", "s1", "6", "16"]), "permute [0, 2, 1, 3]");
}

#[test]
fn slices_are_relative_to_slices() {
    let mut w = World::new();
    let x = w.whole(["s0", "96"]);
    let part = w.slice(&x, 1, "32", "64");
    let head = w.slice(&x, 1, "40", "48");
    let within = head.relative(&part, &mut w.0).unwrap();
    assert_eq!(w.text(&within), "8 + (s0, 32) (8, 1)");
    assert_eq!(part.relative(&head, &mut w.0), None);
    assert_eq!(
        part.contained_in(&head, &mut w.0),
        TriBool::Unknown,
        "both are empty if s0 is zero"
    );
    // The rows of the transposed matrix are the columns of the matrix.
    let t = w.permute(&x, &[1, 0]);
    let column = w.select(&x, 1, "5");
    let row = column.relative(&t, &mut w.0).unwrap();
    assert_eq!(w.text(&row), "5 * s0 + (s0, 1)");
    // The diagonal of a square takes every (n + 1)-th element.
    let square = w.whole(["s0", "s0"]);
    let diagonal = w.strided("0", ["s0"], ["s0 + 1"]);
    assert_eq!(diagonal.contained_in(&square, &mut w.0), TriBool::Yes);
    let flipped = w.permute(&square, &[1, 0]);
    let same = diagonal.relative(&flipped, &mut w.0).map(|r| w.text(&r));
    assert_eq!(same.as_deref(), Some("0 + (s0, s0 + 1)"));
}

#[test]
fn strides_of_empty_tensors_do_not_matter() {
    let mut w = World::new();
    // PyTorch's strides count a size of zero as one.
    let torch = w.strided("0", ["s0", "s1", "s2"], ["max(s1, 1) * max(s2, 1)", "max(s2, 1)", "1"]);
    let ours = w.whole(["s0", "s1", "s2"]);
    assert_eq!(torch, ours);
    let empty = w.strided("7", ["s0", "0"], ["3", "s1"]);
    assert_eq!(empty.disjoint(&ours, &mut w.0), TriBool::Yes);
    assert_eq!(empty.contained_in(&ours, &mut w.0), TriBool::Yes);
    let nothing = w.whole(["0"]);
    assert_eq!(empty.same(&nothing, &mut w.0), TriBool::Yes);
    // rows of it, at an offset that counts a size of zero as one: only if there is an element
    let rows = w.strided(
        "min(1, s0) * max(s1, 1) * max(s2, 1)",
        ["s0 - min(1, s0)", "s1", "s2"],
        ["s1 * s2", "s2", "1"],
    );
    assert_eq!(rows.contained_in(&ours, &mut w.0), TriBool::Unknown);
    assert!(rows.contained_in_unless_empty(&ours, &w.0));
    let beyond = w.strided("max(s1, 1) * max(s2, 1)", ["s0", "s1", "s2"], ["s1 * s2", "s2", "1"]);
    assert!(!beyond.contained_in_unless_empty(&ours, &w.0));
    // A view is disjoint from itself only if it is empty.
    assert_eq!(ours.disjoint(&ours, &mut w.0), TriBool::Unknown);
    w.assume("s0 > 0 and s1 > 0 and s2 > 0");
    assert_eq!(ours.disjoint(&ours, &mut w.0), TriBool::No);
}

#[test]
fn halves_are_disjoint_for_all_sizes() {
    let mut w = World::new();
    // PyTorch's offset counts a size of zero as one. If a size is zero, both halves are empty.
    let keys = w.strided("0", ["s0", "s1"], ["max(s1, 1)", "1"]);
    let values = w.strided("max(s0, 1) * max(s1, 1)", ["s0", "s1"], ["max(s1, 1)", "1"]);
    assert_eq!(keys.disjoint(&values, &mut w.0), TriBool::Yes);
    let meets = w.strided("max(s0, 1) * max(s1, 1) - 1", ["s0", "s1"], ["max(s1, 1)", "1"]);
    assert_eq!(keys.disjoint(&meets, &mut w.0), TriBool::Unknown, "disjoint if empty");
    // A stride is recognised if facts give its size another name.
    w.assume("s1 == d + 1");
    let renamed = w.strided("0", ["s0", "d + 1"], ["max(s1, 1)", "1"]);
    let rows = w.whole(["s0", "d + 1"]);
    assert_eq!(renamed, rows);
}

#[test]
fn expanded_and_overlapping_views_are_not_injective() {
    let mut w = World::new();
    let stretched = w.strided("0", ["4", "d"], ["0", "1"]);
    assert_eq!(stretched.injective(&mut w.0), TriBool::No);
    let maybe = w.strided("0", ["s0", "d"], ["0", "1"]);
    assert_eq!(maybe.injective(&mut w.0), TriBool::Unknown, "injective for one row");
    let windows = w.strided("0", ["d + 1", "3"], ["2", "1"]);
    assert_eq!(windows.injective(&mut w.0), TriBool::No);
    let adjacent = w.strided("0", ["s0", "3"], ["3", "1"]);
    assert_eq!(adjacent.injective(&mut w.0), TriBool::Yes);
    let all = w.whole(["2 * d + 3"]);
    assert_eq!(windows.contained_in(&all, &mut w.0), TriBool::Yes);
    assert_eq!(all.contained_in(&windows, &mut w.0), TriBool::Yes);
}

#[test]
fn chains_have_names() {
    let mut w = World::new();
    let x = w.whole(["4", "6", "8"]);
    let part = w.select(&x, 0, "0");
    let part = w.slice(&part, 1, "2", "5");
    let part = w.permute(&part, &[1, 0]);
    let mut lines = vec![w.chain(&part, ["4", "6", "8"])];
    let stepped = x
        .apply(
            &ViewOp::Slice { dim: 1, start: Expr::Int(1), end: Expr::Int(6), step: Expr::Int(2) },
            &mut w.0,
        )
        .unwrap();
    lines.push(w.chain(&stepped, ["4", "6", "8"]));
    lines.push(w.chain(&x, ["4", "6", "8"]));
    lines.push(w.chain(&x, ["192"]));
    let stretch = w.strided("24", ["3", "8"], ["8", "1"]);
    lines.push(w.chain(&stretch, ["192"]));
    lines.push(w.chain(&stretch, ["8", "3", "8"]));
    let row = w.strided("8", ["5", "8"], ["0", "1"]);
    lines.push(w.chain(&row, ["4", "8"]));
    let diagonal = w.strided("0", ["4"], ["9"]);
    lines.push(w.chain(&diagonal, ["4", "8"]));
    let cache = w.whole(["s1", "s2", "d"]);
    let new = w.slice(&cache, 1, "s0", "s0 + 1");
    lines.push(w.chain(&new, ["s1", "s2", "d"]));
    let unknown = w.strided("s0", ["s1"], ["s2"]);
    lines.push(w.chain(&unknown, ["d"]));
    insta::assert_snapshot!(lines.join("\n"));
}

#[test]
fn bad_numbers_are_errors() {
    let t = &mut SymTable::new();
    let mut errors = Vec::new();
    let ints = |n: &[i64]| n.iter().map(|&n| Expr::Int(n)).collect::<Vec<_>>();
    for (offset, sizes, strides) in [
        (0, vec![2, 3], vec![1]),
        (-1, vec![2], vec![1]),
        (0, vec![-2], vec![1]),
        (0, vec![2], vec![-1]),
        (i64::MAX, vec![2], vec![1]),
        (0, vec![1 << 40, 1 << 40], vec![0, 0]),
        (0, vec![3], vec![i64::MAX]),
    ] {
        let error: ViewError =
            ViewSpec::strided(Expr::Int(offset), &ints(&sizes), &ints(&strides), t).unwrap_err();
        errors.push(error.to_string());
    }
    insta::assert_snapshot!(errors.join("\n"));
    // An empty view may have any strides.
    assert!(ViewSpec::strided(Expr::Int(0), &ints(&[0, 3]), &ints(&[5, i64::MAX]), t).is_ok());
}

/// A digit carries, and the carry moves the position as far as a step without a carry does.
#[test]
fn composition_is_strided_despite_a_carry() {
    let mut w = World::new();
    let (view, inner) =
        (w.strided("0", ["2", "2", "2"], ["6", "4", "1"]), w.strided("0", ["3"], ["3"]));
    let found = view.compose(&inner, &mut w.0).unwrap();
    assert_eq!(w.text(&found), "0 + (3, 5)");
    assert_eq!(found.relative(&view, &mut w.0), Some(inner));
}

#[test]
fn large_views_are_decided() {
    let t = &mut SymTable::new();
    let view = |offset: i64, dims: &[(i64, i64)], t: &mut SymTable| {
        let (sizes, strides): (Vec<Expr>, Vec<Expr>) =
            dims.iter().map(|&(n, s)| (Expr::Int(n), Expr::Int(s))).unzip();
        ViewSpec::strided(Expr::Int(offset), &sizes, &strides, t).unwrap()
    };
    let huge = i64::MAX / 4;
    let (a, b) = (view(0, &[(2, huge)], t), view(1, &[(3, huge)], t));
    assert_eq!(a.disjoint(&b, t), TriBool::Yes);
    assert_eq!(a.disjoint(&a, t), TriBool::No);
    assert_eq!(a.contained_in(&b, t), TriBool::No);
    let (even, odd) = (view(0, &[(huge, 2)], t), view(1, &[(huge, 2)], t));
    assert_eq!(even.disjoint(&odd, t), TriBool::Yes);
    // Too large for enumeration: batches of a large activation.
    let x = view(0, &[(32, 1 << 20), (1024, 1024), (512, 1)], t);
    let y = view(512, &[(32, 1 << 20), (1024, 1024), (512, 1)], t);
    assert_eq!(x.disjoint(&y, t), TriBool::Yes);
    assert_eq!(x.injective(t), TriBool::Yes);
    assert_eq!(view(0, &[(1024, 1), (1024, 1023)], t).injective(t), TriBool::No);
    assert_eq!(
        view(0, &[(1024, 1), (1024, 1024)], t).is_permutation(Expr::Int(1 << 20), t),
        TriBool::Yes
    );
}
