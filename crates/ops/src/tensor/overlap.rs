//! Do two strided regions share a byte? Does one meet itself? `false` only where it is certain.

use crate::dispatch::mode::{self, Question};
use crate::tensor::Tensor;
use crate::tensor::meta::Concrete;
use maquette_ir::Loc;
use maquette_ir::fault_injection::{Fault, fault_injected};
use maquette_ir::sym::{Expr, SymTable};
use maquette_ir::view::{StridedPositions, TriBool, ViewSpec};
use smallvec::SmallVec;

/// Regions up to this many elements are compared element by element where arithmetic does not
/// decide.
const ENUMERATE: i64 = 4096;

/// Whether two regions of one storage may share a byte.
pub fn may_overlap(a: &Concrete, b: &Concrete) -> bool {
    let (Some(sa), Some(sb)) = (a.span(), b.span()) else { return !(is_empty(a) || is_empty(b)) };
    if sa.1 <= sb.0 || sb.1 <= sa.0 {
        return false;
    }
    if a.offset * a.width == b.offset * b.width {
        // Both have the byte at which they begin.
        return true;
    }
    if a.width == b.width && (lattices_disjoint(a, b) || boxes_disjoint(a, b)) {
        return false;
    }
    match (a.numel(), b.numel()) {
        (Some(na), Some(nb)) if na <= ENUMERATE && nb <= ENUMERATE => share_a_byte(a, b),
        _ => {
            a.width != b.width
                || !proven_disjoint(a, b)
                || fault_injected(Fault::RunsKnowLessThanPlans)
        }
    }
}

/// As the view algebra has it, which plans are made with: what they know to be apart is not copied
/// in the run.
fn proven_disjoint(a: &Concrete, b: &Concrete) -> bool {
    let (start, mut symbols) = (a.offset.min(b.offset), SymTable::new());
    let views = (view(a, start, &mut symbols), view(b, start, &mut symbols));
    matches!(views, (Some(a), Some(b)) if a.disjoint(&b, &mut symbols) == TriBool::Yes)
}

fn view(c: &Concrete, start: i64, symbols: &mut SymTable) -> Option<ViewSpec> {
    let [sizes, strides] = [&c.sizes, &c.strides]
        .map(|l| l.iter().copied().map(Expr::Int).collect::<SmallVec<[Expr; 6]>>());
    ViewSpec::strided(Expr::Int(c.offset - start), &sizes, &strides, symbols).ok()
}

/// Whether an element of a region may lie, in part at least, in a half-open range of the storage's
/// bytes.
pub(crate) fn overlaps_byte_range(a: &Concrete, range: (i64, i64)) -> bool {
    let Some(span) = a.span() else { return !is_empty(a) };
    if span.1 <= range.0 || range.1 <= span.0 {
        return false;
    }
    match (first_from(a, range.0.div_euclid(a.width)), a.numel()) {
        (Some(first), _) => first.is_some_and(|e| e * a.width < range.1),
        (None, Some(n)) if n <= ENUMERATE => {
            bytes(a).iter().any(|b| (range.0..range.1).contains(b))
        }
        _ => true,
    }
}

/// The first element at or after `at`, if there is any; `None` where dimensions interleave, so
/// that elements are in no simple order.
fn first_from(a: &Concrete, at: i64) -> Option<Option<i64>> {
    let steps = a.sizes.iter().zip(&a.strides).filter(|(n, s)| **n > 1 && **s != 0);
    let mut dims: SmallVec<[(i64, i64); 6]> = steps.map(|(&n, &s)| (s, n)).collect();
    dims.sort_unstable_by(|x, y| y.cmp(x));
    if dims.last().is_some_and(|(s, _)| *s < 0) {
        return None;
    }
    // of the dimensions that are left
    let mut reach: i64 = dims.iter().map(|(s, n)| s * (n - 1)).sum();
    let mut element = a.offset;
    for (s, n) in dims {
        reach -= s * (n - 1);
        if s <= reach {
            return None;
        }
        let missing = at.saturating_sub(element).saturating_sub(reach);
        let steps = if missing > 0 { (missing - 1) / s + 1 } else { 0 };
        if steps >= n {
            return Some(None);
        }
        element += steps * s;
    }
    Some(Some(element))
}

/// Whether every byte of `inner` is one of `outer`; `true` only where it is certain.
pub fn contains(outer: &Concrete, inner: &Concrete) -> bool {
    if is_empty(inner) || outer == inner {
        return true;
    }
    if outer.width == inner.width
        && let Some(frame) = common_frame(outer, inner)
        && let (Some(o), Some(i)) = (coordinates(outer, &frame), coordinates(inner, &frame))
        && o.iter().zip(&i).all(|(o, i)| o.0 <= i.0 && i.1 <= o.1)
    {
        return true;
    }
    match (outer.numel(), inner.numel()) {
        (Some(no), Some(ni)) if no <= ENUMERATE && ni <= ENUMERATE => {
            let bytes = bytes(outer);
            self::bytes(inner).iter().all(|b| bytes.binary_search(b).is_ok())
        }
        _ => false,
    }
}

/// Whether two index tuples of one region may name the same element, as in expanded or overlapping
/// `as_strided` tensors.
pub fn may_self_overlap(a: &Concrete) -> bool {
    if is_empty(a) || is_nested(a) {
        return false;
    }
    match a.numel() {
        Some(n) if n <= ENUMERATE => {
            let mut seen: Vec<i64> = elements(a).collect();
            seen.sort_unstable();
            seen.windows(2).any(|w| w[0] == w[1])
        }
        _ => {
            let mut symbols = SymTable::new();
            !view(a, a.offset, &mut symbols)
                .is_some_and(|v| v.injective(&mut symbols) == TriBool::Yes)
        }
    }
}

/// Whether each dimension steps over everything that those of smaller strides reach: then no two
/// elements meet, and an array view knows.
pub fn is_nested(a: &Concrete) -> bool {
    let mut dims: SmallVec<[(i64, i64); 6]> = a
        .sizes
        .iter()
        .zip(&a.strides)
        .filter(|(n, _)| **n > 1)
        .map(|(&n, &s)| (s.saturating_abs(), n))
        .collect();
    dims.sort_unstable();
    let mut reach = 0i64; // the farthest element reached by the dimensions seen so far
    dims.iter().all(|&(s, n)| {
        let clear = s > reach;
        reach = reach.saturating_add(s.saturating_mul(n - 1));
        clear
    })
}

impl Tensor {
    /// Whether two tensors may share a byte of memory; `false` only where it is certain. A trace
    /// fails where [`Tensor::shares_storage`] does.
    #[track_caller]
    pub fn may_overlap(&self, other: &Tensor) -> bool {
        let loc = Loc::caller();
        let layouts = || self.known_layout(loc).zip(other.known_layout(loc));
        self.shares_storage(other) && layouts().is_none_or(|(a, b)| may_overlap(&a, &b))
    }

    /// Whether two elements of the tensor may share memory, as in an expanded tensor; `false` only
    /// where it is certain. A trace fails if sizes or strides are symbols.
    #[track_caller]
    pub fn may_overlap_itself(&self) -> bool {
        self.known_layout(Loc::caller()).is_none_or(|layout| may_self_overlap(&layout))
    }

    /// The layout in numbers; a trace fails where there are none.
    fn known_layout(&self, loc: Loc) -> Option<Concrete> {
        let layout = self.meta().concrete();
        if layout.is_none() {
            let what = format!("whether elements of {} overlap", self.meta());
            // A trace gets the error, which the callers cannot return.
            let _reported = mode::ask(Question::Surroundings, &what, loc);
        }
        layout
    }
}

fn is_empty(a: &Concrete) -> bool {
    a.sizes.contains(&0)
}

fn gcd(a: i64, b: i64) -> i64 {
    if b == 0 { a.saturating_abs() } else { gcd(b, a.wrapping_rem(b)) }
}

/// Every element of both lies on `offset + k·g`; different residues never meet (even and odd
/// columns).
fn lattices_disjoint(a: &Concrete, b: &Concrete) -> bool {
    let steps = |c: &Concrete| {
        c.sizes.iter().zip(&c.strides).filter(|(n, _)| **n > 1).fold(0, |g, (_, &s)| gcd(g, s))
    };
    let g = gcd(steps(a), steps(b));
    g != 0 && a.offset.wrapping_sub(b.offset).wrapping_rem(g) != 0
}

/// Both regions as boxes over the union of their strides; disjoint where some coordinate's
/// intervals are (left and right halves).
fn boxes_disjoint(a: &Concrete, b: &Concrete) -> bool {
    let Some(frame) = common_frame(a, b) else { return false };
    let (Some(ba), Some(bb)) = (coordinates(a, &frame), coordinates(b, &frame)) else {
        return false;
    };
    ba.iter().zip(&bb).any(|(x, y)| x.1 < y.0 || y.1 < x.0)
}

/// The strides of both, falling; `None` where one is not positive.
fn common_frame(a: &Concrete, b: &Concrete) -> Option<SmallVec<[i64; 8]>> {
    let mut frame: SmallVec<[i64; 8]> = [a, b]
        .iter()
        .flat_map(|c| c.sizes.iter().zip(&c.strides).filter(|(n, _)| **n > 1).map(|(_, &s)| s))
        .collect();
    frame.sort_unstable_by(|x, y| y.cmp(x));
    frame.dedup();
    frame.iter().all(|&s| s > 0).then_some(frame)
}

type Intervals = SmallVec<[(i64, i64); 8]>;

/// The interval of each coordinate in a mixed-radix frame of falling strides; `None` where a
/// coordinate carries into the next, so that coordinates are not unique.
fn coordinates(c: &Concrete, frame: &[i64]) -> Option<Intervals> {
    let mut rest = c.offset;
    let mut out = Intervals::new();
    for (i, &stride) in frame.iter().enumerate() {
        let start = rest / stride;
        rest %= stride;
        let extent: i64 = c
            .sizes
            .iter()
            .zip(&c.strides)
            .filter(|(n, s)| **n > 1 && **s == stride)
            .fold(0, |sum: i64, (n, _)| sum.saturating_add(n - 1));
        if i > 0
            && start.saturating_add(extent).saturating_add(1).saturating_mul(stride) > frame[i - 1]
        {
            return None;
        }
        out.push((start, start.saturating_add(extent)));
    }
    out.push((rest, rest));
    Some(out)
}

fn elements(c: &Concrete) -> StridedPositions<'_> {
    StridedPositions::new(c.offset, &c.sizes, &c.strides)
}

/// The bytes of a region, in order.
fn bytes(c: &Concrete) -> Vec<i64> {
    let mut v: Vec<i64> = elements(c)
        .flat_map(|e| (0..c.width).map(move |b| e.wrapping_mul(c.width).wrapping_add(b)))
        .collect();
    v.sort_unstable();
    v
}

fn share_a_byte(a: &Concrete, b: &Concrete) -> bool {
    let (x, y) = (bytes(a), bytes(b));
    let (mut i, mut j) = (0, 0);
    while i < x.len() && j < y.len() {
        match x[i].cmp(&y[j]) {
            std::cmp::Ordering::Less => i += 1,
            std::cmp::Ordering::Greater => j += 1,
            std::cmp::Ordering::Equal => return true,
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region(sizes: &[i64], strides: &[i64], offset: i64) -> Concrete {
        Concrete { sizes: sizes.into(), strides: strides.into(), offset, width: 4 }
    }

    #[test]
    fn halves_columns_and_rows() {
        // a 1000×8 matrix: too large to enumerate
        let left = region(&[1000, 4], &[8, 1], 0);
        let right = region(&[1000, 4], &[8, 1], 4);
        let even = region(&[1000, 4], &[8, 2], 0);
        let odd = region(&[1000, 4], &[8, 2], 1);
        let column3 = region(&[1000], &[8], 3);
        assert!(!may_overlap(&left, &right));
        assert!(!may_overlap(&even, &odd));
        assert!(may_overlap(&left, &even));
        assert!(may_overlap(&left, &column3));
        assert!(!may_overlap(&right, &column3));
        assert!(!may_overlap(&region(&[8], &[1], 0), &region(&[8], &[1], 8)));
        assert!(!may_overlap(&region(&[0], &[1], 0), &left));
        // residues 0 and 3 of 7, and 5 and 1: told by the algebra alone, wherever they begin
        for start in [0, 2, 4] {
            let (a, b) =
                (region(&[2100, 2], &[7, 3], start), region(&[2100, 2], &[7, 3], start + 5));
            assert!(
                !may_overlap(&a, &b) && may_overlap(&a, &region(&[2100, 2], &[7, 3], start + 4))
            );
        }
    }

    #[test]
    fn containment() {
        let matrix = region(&[1000, 8], &[8, 1], 0);
        let left = region(&[1000, 4], &[8, 1], 0);
        let column = region(&[2], &[2], 0);
        assert!(contains(&left, &region(&[4], &[1], 8)), "a row of the left half");
        assert!(
            contains(&matrix, &left) && contains(&left, &region(&[4, 1000], &[1, 8], 0)),
            "transposed"
        );
        assert!(!contains(&left, &region(&[5], &[1], 0)) && !contains(&left, &matrix));
        assert!(
            !contains(&column, &region(&[1], &[1], 1)),
            "inside the span, between the elements"
        );
    }

    #[test]
    fn self_overlap() {
        assert!(may_self_overlap(&region(&[3, 4], &[0, 1], 0)));
        assert!(may_self_overlap(&region(&[4, 3], &[2, 1], 0)));
        assert!(!may_self_overlap(&region(&[4, 2], &[2, 1], 0)));
        assert!(!may_self_overlap(&region(&[1, 4], &[0, 1], 0)));
        let interleaved = region(&[3, 2], &[2, 3], 0);
        assert!(!may_self_overlap(&interleaved) && !is_nested(&interleaved));
    }

    #[test]
    fn a_range_of_bytes_is_touched_where_a_solid_region_overlaps() {
        let mut seed = 7u64;
        let mut next = |n: u64| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            ((seed >> 33) % n) as i64
        };
        for _ in 0..20_000 {
            let a = region(
                &[1 + next(4), 1 + next(4), 1 + next(3)],
                &[next(9), next(4), next(30)],
                next(12),
            );
            let (start, length) = (next(160), 1 + next(24));
            let solid = Concrete {
                sizes: [length].as_slice().into(),
                strides: [1].as_slice().into(),
                offset: start,
                width: 1,
            };
            assert_eq!(
                overlaps_byte_range(&a, (start, start + length)),
                share_a_byte(&a, &solid),
                "{a:?} {start} {length}"
            );
        }
        let columns = region(&[1_000_000, 4], &[8, 1], 0);
        assert!(
            !overlaps_byte_range(&columns, (32 * 4000 + 16, 32 * 4000 + 32)),
            "between two rows"
        );
        assert!(overlaps_byte_range(&columns, (32 * 4000 + 15, 32 * 4000 + 32)));
        assert!(!overlaps_byte_range(&region(&[0], &[1], 0), (0, 8)));
    }

    /// The arithmetic answers must agree with enumeration: a `false` is a proof.
    #[test]
    fn arithmetic_agrees_with_enumeration() {
        let mut seed = 1u64;
        let mut next = |n: u64| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            ((seed >> 33) % n) as i64
        };
        let mut proved = 0;
        for _ in 0..20_000 {
            let mut make = || region(&[1 + next(4), 1 + next(4)], &[next(7), next(4)], next(12));
            let (a, b) = (make(), make());
            let truth = share_a_byte(&a, &b);
            if lattices_disjoint(&a, &b) || boxes_disjoint(&a, &b) {
                assert!(!truth, "{a:?} {b:?}");
                proved += 1;
            }
            assert_eq!(may_overlap(&a, &b), truth);
        }
        assert!(proved > 1000);
    }
}
