//! Errors in units in the last place (ULP).
//!
//! The error of a result is its distance from the exact value, divided by the ULP of the exact
//! value: the spacing of the dtype's numbers in the binade of the exact value, or of the subnormal
//! numbers below the smallest normal one. A correctly rounded result has an error of at most 0.5.
//!
//! Infinite results, and exact values beyond the largest finite number, count as the power of two
//! after that number. A NaN in only one of the two, or a zero of the wrong sign, has no distance;
//! such a result is *wrong*.

use half::{bf16, f16};
use maquette_kernels::Element;

/// A floating-point dtype that can be measured.
pub trait Format: Element {
    /// The bits of the significand, including the leading one.
    const PRECISION: i32;
    /// The exponent of the smallest normal number.
    const MIN_EXP: i32;
    /// The exponent of the largest finite number.
    const MAX_EXP: i32;
    /// The number of bits in a pattern.
    const BITS: u32;
    /// The number with this bit pattern.
    fn from_pattern(bits: u64) -> Self;
    /// The bit pattern.
    fn pattern(self) -> u64;
    /// The exact value in `f64`.
    fn wide(self) -> f64;
    /// The nearest number to an `f64`.
    fn narrow(x: f64) -> Self;
}

macro_rules! format {
    (
        $t:ident, $bits:ident, $narrow:expr,
        precision $p:literal, exponents $lo:literal $hi:literal
    ) => {
        impl Format for $t {
            const PRECISION: i32 = $p;
            const MIN_EXP: i32 = $lo;
            const MAX_EXP: i32 = $hi;
            const BITS: u32 = $bits::BITS;
            #[inline]
            fn from_pattern(bits: u64) -> Self {
                $t::from_bits(bits as $bits)
            }
            #[inline]
            fn pattern(self) -> u64 {
                u64::from(self.to_bits())
            }
            #[inline]
            fn wide(self) -> f64 {
                self.into()
            }
            #[inline]
            fn narrow(x: f64) -> Self {
                $narrow(x)
            }
        }
    };
}

format!(f16, u16, f16::from_f64, precision 11, exponents -14 15);
format!(bf16, u16, bf16::from_f64, precision 8, exponents -126 127);
format!(f32, u32, |x| x as f32, precision 24, exponents -126 127);
format!(f64, u64, |x| x, precision 53, exponents -1022 1023);

/// 2^n, for a normal result.
#[inline]
fn pow2(n: i32) -> f64 {
    f64::from_bits(((n + 1023) as u64) << 52)
}

/// The error of `got` in ULP of a dtype narrower than `f64`; `None` if it is wrong.
#[inline]
pub fn error<T: Format>(got: T, exact: f64) -> Option<f64> {
    let got = got.wide();
    if exact.is_nan()
        || got.is_nan()
        || (got == 0.0 && got.is_sign_negative() != exact.is_sign_negative())
    {
        let both = exact.is_nan() && got.is_nan();
        return both.then_some(0.0);
    }
    let limit = pow2(T::MAX_EXP + 1);
    let (got, exact) = (got.clamp(-limit, limit), exact.clamp(-limit, limit));
    let exponent = ((exact.to_bits() >> 52) & 0x7ff) as i32 - 1023;
    let exponent = exponent.clamp(T::MIN_EXP, T::MAX_EXP);
    Some((got - exact).abs() * pow2(T::PRECISION - 1 - exponent))
}

/// The maximum and the mean of many errors.
#[derive(Clone, Debug, Default)]
pub struct Errors {
    /// The number of results.
    pub count: u64,
    /// The largest error.
    pub max: f64,
    /// The bit patterns of its arguments.
    pub at: [u64; 2],
    /// The sum of the errors.
    pub sum: f64,
    /// The number of wrong results.
    pub wrong: u64,
    /// The bit patterns of the first arguments with a wrong result.
    pub wrong_at: Option<[u64; 2]>,
    /// The number of results that differ on another instruction set.
    pub differ: u64,
    /// The bit patterns of the first such arguments.
    pub differ_at: Option<[u64; 2]>,
}

impl Errors {
    /// Adds a result.
    #[inline]
    pub fn add(&mut self, at: [u64; 2], error: Option<f64>) {
        self.count += 1;
        match error {
            None => {
                self.wrong += 1;
                self.wrong_at.get_or_insert(at);
            }
            Some(e) => {
                self.sum += e;
                if e > self.max {
                    (self.max, self.at) = (e, at);
                }
            }
        }
    }

    /// Adds a result that differs between instruction sets.
    pub fn add_difference(&mut self, at: [u64; 2]) {
        self.differ += 1;
        self.differ_at.get_or_insert(at);
    }

    /// Adds the errors of another thread.
    pub fn merge(&mut self, other: &Errors) {
        self.count += other.count;
        self.sum += other.sum;
        self.wrong += other.wrong;
        self.differ += other.differ;
        self.wrong_at = self.wrong_at.or(other.wrong_at);
        self.differ_at = self.differ_at.or(other.differ_at);
        if (other.max, other.at) > (self.max, self.at) {
            (self.max, self.at) = (other.max, other.at);
        }
    }

    /// The mean error of the results that are not wrong.
    pub fn mean(&self) -> f64 {
        self.sum / (self.count - self.wrong).max(1) as f64
    }
}
