//! Integer ranges, and the interval arithmetic that computes them: each operation returns an
//! interval that contains the result for all operand values in the given intervals.

use std::fmt;
use std::str::FromStr;

/// All integers from `lo` to `hi`, both included. `i64::MIN` and `i64::MAX` represent minus and
/// plus infinity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Range {
    /// The least value.
    pub lo: i64,
    /// The greatest value.
    pub hi: i64,
}

impl Range {
    /// Every integer.
    pub const ALL: Range = Range { lo: i64::MIN, hi: i64::MAX };
    /// The values of a size: `[0, oo)`.
    pub const SIZE: Range = Range { lo: 0, hi: i64::MAX };

    /// From `lo` to `hi`, both included.
    pub const fn new(lo: i64, hi: i64) -> Range {
        Range { lo, hi }
    }

    /// The range that contains only `n`.
    pub const fn point(n: i64) -> Range {
        Range { lo: n, hi: n }
    }

    /// Whether the range contains no value.
    pub const fn is_empty(self) -> bool {
        self.lo > self.hi
    }

    /// The only value, if the range contains exactly one.
    pub const fn single(self) -> Option<i64> {
        if self.lo == self.hi { Some(self.lo) } else { None }
    }

    /// Whether the range contains `n`.
    pub const fn contains(self, n: i64) -> bool {
        self.lo <= n && n <= self.hi
    }

    /// The intersection; possibly empty.
    pub fn intersect(self, other: Range) -> Range {
        Range { lo: self.lo.max(other.lo), hi: self.hi.min(other.hi) }
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.lo {
            i64::MIN => f.write_str("(-oo, ")?,
            lo => write!(f, "[{lo}, ")?,
        }
        match self.hi {
            i64::MAX => f.write_str("oo)"),
            hi => write!(f, "{hi}]"),
        }
    }
}

/// The error of a text that is not a range.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected a range such as `[0, oo)` or `[1, 64]`, found `{0}`")]
pub struct ParseRangeError(String);

impl FromStr for Range {
    type Err = ParseRangeError;

    /// Parses the text that `Display` writes.
    fn from_str(s: &str) -> Result<Range, ParseRangeError> {
        let parse = || {
            let (lo, hi) = s.trim().split_once(',')?;
            let lo = match lo.trim() {
                "(-oo" => i64::MIN,
                t => t.strip_prefix('[')?.trim().parse().ok()?,
            };
            let hi = match hi.trim() {
                "oo)" => i64::MAX,
                t => t.strip_suffix(']')?.trim().parse().ok()?,
            };
            Some(Range { lo, hi })
        };
        parse().ok_or_else(|| ParseRangeError(s.chars().take(60).collect()))
    }
}

/// Floor division; `None` if the divisor is zero or the quotient overflows.
pub(super) fn floor_div(a: i128, b: i128) -> Option<i128> {
    let quotient = a.checked_div(b)?;
    Some(if a % b != 0 && (a < 0) != (b < 0) { quotient - 1 } else { quotient })
}

/// The remainder of floor division, with the divisor's sign; `None` if the divisor is zero.
pub(super) fn floor_mod(a: i128, b: i128) -> Option<i128> {
    let remainder = a.checked_rem(b)?;
    Some(if remainder != 0 && (remainder < 0) != (b < 0) { remainder + b } else { remainder })
}

const NEG: i128 = i128::MIN;
const POS: i128 = i128::MAX;

/// An interval with 128-bit bounds, so that arithmetic on 64-bit bounds does not wrap. `i128::MIN`
/// and `i128::MAX` are infinite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Interval {
    pub lo: i128,
    pub hi: i128,
}

impl From<Range> for Interval {
    fn from(r: Range) -> Interval {
        Interval {
            lo: if r.lo == i64::MIN { NEG } else { r.lo.into() },
            hi: if r.hi == i64::MAX { POS } else { r.hi.into() },
        }
    }
}

impl From<Interval> for Range {
    /// Rounds outwards: a bound beyond 64 bits becomes infinite.
    fn from(i: Interval) -> Range {
        let clamp = |x: i128| i64::try_from(x).unwrap_or(if x < 0 { i64::MIN } else { i64::MAX });
        Range { lo: clamp(i.lo), hi: clamp(i.hi) }
    }
}

/// The product of two bounds. Zero times infinity is zero, because the infinite bound is a limit of
/// finite values. Most bounds have 64 bits, and the product of two of those does not overflow.
fn scale(a: i128, b: i128) -> i128 {
    match (i64::try_from(a), i64::try_from(b)) {
        (Ok(a), Ok(b)) => i128::from(a) * i128::from(b),
        _ if a == 0 || b == 0 => 0,
        _ => a.saturating_mul(b),
    }
}

impl Interval {
    pub const ALL: Interval = Interval { lo: NEG, hi: POS };

    pub fn point(n: i64) -> Interval {
        Interval { lo: n.into(), hi: n.into() }
    }

    pub fn neg(self) -> Interval {
        let flip = |x: i128| x.checked_neg().unwrap_or(POS);
        let lo = if self.hi == POS { NEG } else { flip(self.hi) };
        let hi = if self.lo == NEG { POS } else { flip(self.lo) };
        Interval { lo, hi }
    }

    pub fn add(self, other: Interval) -> Interval {
        let lo =
            if self.lo == NEG || other.lo == NEG { NEG } else { self.lo.saturating_add(other.lo) };
        let hi =
            if self.hi == POS || other.hi == POS { POS } else { self.hi.saturating_add(other.hi) };
        Interval { lo, hi }
    }

    /// The product: its bounds are products of bounds; of intervals without negative numbers, as
    /// those of most sizes, the products of the lower and of the upper bounds.
    pub fn mul(self, other: Interval) -> Interval {
        if self.lo >= 0 && other.lo >= 0 {
            return Interval { lo: scale(self.lo, other.lo), hi: scale(self.hi, other.hi) };
        }
        let corners = [
            scale(self.lo, other.lo),
            scale(self.lo, other.hi),
            scale(self.hi, other.lo),
            scale(self.hi, other.hi),
        ];
        corners.iter().fold(Interval { lo: corners[0], hi: corners[0] }, |i, &x| Interval {
            lo: i.lo.min(x),
            hi: i.hi.max(x),
        })
    }

    /// The product of a coefficient and factors, of which equal ones are adjacent. An even power is
    /// not negative, which plain products would miss.
    pub fn of_product<F: Copy + PartialEq>(
        coeff: i64,
        factors: &[F],
        of: impl Fn(F) -> Interval,
    ) -> Interval {
        let mut product = Interval::point(coeff);
        for power in factors.chunk_by(|x, y| x == y) {
            let base = of(power[0]);
            let mut powers = power[1..].iter().fold(base, |powers, _| powers.mul(base));
            if power.len() % 2 == 0 {
                powers.lo = powers.lo.max(0);
            }
            product = product.mul(powers);
        }
        product
    }

    /// Whether both bounds are finite.
    pub fn is_finite(self) -> bool {
        self.lo != NEG && self.hi != POS
    }

    pub fn intersect(self, other: Interval) -> Interval {
        Interval { lo: self.lo.max(other.lo), hi: self.hi.min(other.hi) }
    }

    /// The smallest interval that contains both.
    fn union(self, other: Interval) -> Interval {
        Interval { lo: self.lo.min(other.lo), hi: self.hi.max(other.hi) }
    }

    pub fn min(self, other: Interval) -> Interval {
        Interval { lo: self.lo.min(other.lo), hi: self.hi.min(other.hi) }
    }

    pub fn max(self, other: Interval) -> Interval {
        Interval { lo: self.lo.max(other.lo), hi: self.hi.max(other.hi) }
    }

    /// Applies `f`, which is defined for positive divisors, to the positive part and to the negated
    /// negative part of the divisor, and unites the results. `flip` maps a result back from the
    /// negated operands. A divisor of zero contributes no value, since evaluation then fails.
    fn by_sign(
        self,
        other: Interval,
        f: fn(Interval, Interval) -> Interval,
        flip: fn(Interval) -> Interval,
    ) -> Interval {
        let pos = (other.hi >= 1).then(|| f(self, Interval { lo: other.lo.max(1), hi: other.hi }));
        let neg = (other.lo <= -1)
            .then(|| flip(f(self.neg(), Interval { lo: other.lo, hi: other.hi.min(-1) }.neg())));
        match (pos, neg) {
            (Some(p), Some(n)) => p.union(n),
            (Some(i), None) | (None, Some(i)) => i,
            (None, None) => Interval::ALL,
        }
    }

    pub fn floor_div(self, other: Interval) -> Interval {
        fn positive(a: Interval, b: Interval) -> Interval {
            let div = |x: i128, y: i128| match (x, y) {
                (NEG | POS, _) => x,
                (_, POS) => -i128::from(x < 0),
                _ => floor_div(x, y).unwrap_or(x),
            };
            let lo = div(a.lo, if a.lo >= 0 { b.hi } else { b.lo });
            let hi = div(a.hi, if a.hi >= 0 { b.lo } else { b.hi });
            // The near bound of the dividend is infinite and the divisor may be as well, so the
            // quotient may be as small as 0 or as large as -1.
            Interval { lo: if a.lo == POS { 0 } else { lo }, hi: if a.hi == NEG { -1 } else { hi } }
        }
        self.by_sign(other, positive, |i| i)
    }

    pub fn modulo(self, other: Interval) -> Interval {
        fn positive(a: Interval, b: Interval) -> Interval {
            if a.lo >= 0 && a.hi < b.lo {
                return a;
            }
            let hi = if b.hi == POS { POS } else { b.hi - 1 };
            Interval { lo: 0, hi: if a.lo >= 0 { hi.min(a.hi) } else { hi } }
        }
        self.by_sign(other, positive, Interval::neg)
    }
}
