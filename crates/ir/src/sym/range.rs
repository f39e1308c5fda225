//! Integer ranges, and interval arithmetic on them.

use std::fmt;
use std::str::FromStr;

/// All integers from `lo` to `hi`, both included. `i64::MIN` and `i64::MAX` stand for minus and
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
    /// What a size can be: `[0, oo)`.
    pub const SIZE: Range = Range { lo: 0, hi: i64::MAX };

    /// From `lo` to `hi`, both included.
    pub const fn new(lo: i64, hi: i64) -> Range {
        Range { lo, hi }
    }

    /// One value only.
    pub const fn point(n: i64) -> Range {
        Range { lo: n, hi: n }
    }

    /// Contains no value.
    pub const fn is_empty(self) -> bool {
        self.lo > self.hi
    }

    /// The value, if there is only one.
    pub const fn single(self) -> Option<i64> {
        if self.lo == self.hi { Some(self.lo) } else { None }
    }

    /// Whether `n` is in it.
    pub const fn contains(self, n: i64) -> bool {
        self.lo <= n && n <= self.hi
    }

    /// What is in both; possibly empty.
    pub fn intersect(self, o: Range) -> Range {
        Range { lo: self.lo.max(o.lo), hi: self.hi.min(o.hi) }
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

/// The text is not a range.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected a range such as `[0, oo)` or `[1, 64]`, found `{0}`")]
pub struct ParseRangeError(String);

impl FromStr for Range {
    type Err = ParseRangeError;

    /// The inverse of `Display`.
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

/// Floor division; `None` if the divisor is zero or the quotient does not fit.
pub(super) fn floor_div(a: i128, b: i128) -> Option<i128> {
    let q = a.checked_div(b)?;
    Some(if a % b != 0 && (a < 0) != (b < 0) { q - 1 } else { q })
}

/// The remainder of floor division, with the divisor's sign; `None` if the divisor is zero.
pub(super) fn floor_mod(a: i128, b: i128) -> Option<i128> {
    let r = a.checked_rem(b)?;
    Some(if r != 0 && (r < 0) != (b < 0) { r + b } else { r })
}

const NEG: i128 = i128::MIN;
const POS: i128 = i128::MAX;

/// An interval wide enough that arithmetic on 64-bit bounds does not wrap; `i128::MIN` and `MAX`
/// are infinite.
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
    /// Outwards: what does not fit becomes infinite.
    fn from(i: Interval) -> Range {
        let clamp = |x: i128| i64::try_from(x).unwrap_or(if x < 0 { i64::MIN } else { i64::MAX });
        Range { lo: clamp(i.lo), hi: clamp(i.hi) }
    }
}

fn scale(a: i128, b: i128) -> i128 {
    // Zero times infinity is zero: the bound is a limit of finite products.
    if a == 0 || b == 0 { 0 } else { a.saturating_mul(b) }
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

    pub fn add(self, o: Interval) -> Interval {
        let lo = if self.lo == NEG || o.lo == NEG { NEG } else { self.lo.saturating_add(o.lo) };
        let hi = if self.hi == POS || o.hi == POS { POS } else { self.hi.saturating_add(o.hi) };
        Interval { lo, hi }
    }

    pub fn mul(self, o: Interval) -> Interval {
        let c = [
            scale(self.lo, o.lo),
            scale(self.lo, o.hi),
            scale(self.hi, o.lo),
            scale(self.hi, o.hi),
        ];
        c.iter().fold(Interval { lo: c[0], hi: c[0] }, |i, &x| Interval {
            lo: i.lo.min(x),
            hi: i.hi.max(x),
        })
    }

    pub fn intersect(self, o: Interval) -> Interval {
        Interval { lo: self.lo.max(o.lo), hi: self.hi.min(o.hi) }
    }

    fn union(self, o: Interval) -> Interval {
        Interval { lo: self.lo.min(o.lo), hi: self.hi.max(o.hi) }
    }

    pub fn min(self, o: Interval) -> Interval {
        Interval { lo: self.lo.min(o.lo), hi: self.hi.min(o.hi) }
    }

    pub fn max(self, o: Interval) -> Interval {
        Interval { lo: self.lo.max(o.lo), hi: self.hi.max(o.hi) }
    }

    /// Applies `f`, defined for positive divisors, to the positive and to the negative divisors;
    /// zero divisors give nothing.
    fn by_sign(
        self,
        o: Interval,
        f: fn(Interval, Interval) -> Interval,
        flip: fn(Interval) -> Interval,
    ) -> Interval {
        let pos = (o.hi >= 1).then(|| f(self, Interval { lo: o.lo.max(1), hi: o.hi }));
        let neg = (o.lo <= -1)
            .then(|| flip(f(self.neg(), Interval { lo: o.lo, hi: o.hi.min(-1) }.neg())));
        match (pos, neg) {
            (Some(p), Some(n)) => p.union(n),
            (Some(i), None) | (None, Some(i)) => i,
            (None, None) => Interval::ALL,
        }
    }

    pub fn floor_div(self, o: Interval) -> Interval {
        fn positive(a: Interval, b: Interval) -> Interval {
            let div = |x: i128, y: i128| match (x, y) {
                (NEG | POS, _) => x,
                (_, POS) => -i128::from(x < 0),
                _ => floor_div(x, y).unwrap_or(x),
            };
            let lo = div(a.lo, if a.lo >= 0 { b.hi } else { b.lo });
            let hi = div(a.hi, if a.hi >= 0 { b.lo } else { b.hi });
            // Both infinite: the quotient may be as small as zero.
            Interval { lo: if a.lo == POS { 0 } else { lo }, hi: if a.hi == NEG { -1 } else { hi } }
        }
        self.by_sign(o, positive, |i| i)
    }

    pub fn modulo(self, o: Interval) -> Interval {
        fn positive(a: Interval, b: Interval) -> Interval {
            if a.lo >= 0 && a.hi < b.lo {
                return a;
            }
            let hi = if b.hi == POS { POS } else { b.hi - 1 };
            Interval { lo: 0, hi: if a.lo >= 0 { hi.min(a.hi) } else { hi } }
        }
        self.by_sign(o, positive, Interval::neg)
    }
}
