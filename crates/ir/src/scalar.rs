//! Scalars: PyTorch's `Scalar`, a number of any category.

use crate::{Category, DType};
use std::fmt;

/// A number of one of three categories. Equality is bitwise: `-0.0` and `0.0` differ, and a NaN
/// equals a NaN of the same bits.
#[derive(Clone, Copy, Debug)]
pub enum Scalar {
    /// `true` or `false`.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// A floating-point number.
    Float(f64),
}

impl Scalar {
    /// The promotion category.
    pub const fn category(self) -> Category {
        match self {
            Scalar::Bool(_) => Category::Bool,
            Scalar::Int(_) => Category::Int,
            Scalar::Float(_) => Category::Float,
        }
    }

    /// The dtype of a 0-d tensor with this value: `bool`, `i64`, or the default float dtype `f32`.
    pub const fn dtype(self) -> DType {
        match self {
            Scalar::Bool(_) => DType::Bool,
            Scalar::Int(_) => DType::I64,
            Scalar::Float(_) => DType::F32,
        }
    }

    /// The value as `f64`; integers beyond 2^53 round.
    pub fn to_f64(self) -> f64 {
        match self {
            Scalar::Bool(b) => f64::from(u8::from(b)),
            Scalar::Int(i) => i as f64,
            Scalar::Float(x) => x,
        }
    }

    /// The value as `i64`; floats truncate and saturate, NaN is 0.
    pub fn to_i64(self) -> i64 {
        match self {
            Scalar::Bool(b) => i64::from(b),
            Scalar::Int(i) => i,
            Scalar::Float(x) => x as i64,
        }
    }

    /// Whether the value fits a dtype, by the rule of PyTorch's checked conversions
    /// (`c10::overflows`). Fractions are truncated and floats rounded. A negative integer fits `u8`
    /// if its absolute value does, because it wraps. Infinities and NaN fit every float dtype.
    /// Every value fits `bool`.
    pub fn fits(self, d: DType) -> bool {
        match (self, d.int_range(), d.largest_float()) {
            (Scalar::Int(i), Some((0, most)), _) => i.unsigned_abs() <= most.unsigned_abs(),
            (Scalar::Int(i), Some((least, most)), _) => (least..=most).contains(&i),
            (Scalar::Float(x), Some((least, most)), _) => {
                x >= least as f64 && x < most as f64 + 1.0
            }
            (Scalar::Int(i), _, Some(largest)) => (i as f64).abs() <= largest,
            (Scalar::Float(x), _, Some(largest)) => !x.is_finite() || x.abs() <= largest,
            _ => true,
        }
    }

    /// Whether the value is nonzero; true for NaN.
    pub fn to_bool(self) -> bool {
        match self {
            Scalar::Bool(b) => b,
            Scalar::Int(i) => i != 0,
            Scalar::Float(x) => x != 0.0,
        }
    }

    /// The category and bits that define equality.
    fn key(self) -> (Category, u64) {
        let bits = match self {
            Scalar::Bool(b) => u64::from(b),
            Scalar::Int(i) => i as u64,
            Scalar::Float(x) => x.to_bits(),
        };
        (self.category(), bits)
    }
}

impl PartialEq for Scalar {
    fn eq(&self, other: &Scalar) -> bool {
        self.key() == other.key()
    }
}
impl Eq for Scalar {}
impl std::hash::Hash for Scalar {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.key().hash(state);
    }
}

impl fmt::Display for Scalar {
    /// The text parses back to the same category and bits: `true`, `3`, `3.0`, `inf`, `nan`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Scalar::Bool(b) => write!(f, "{b}"),
            Scalar::Int(i) => write!(f, "{i}"),
            Scalar::Float(x) if x.is_nan() && x.to_bits() != f64::NAN.to_bits() => {
                write!(f, "nan:{:016x}", x.to_bits())
            }
            Scalar::Float(x) if x.is_nan() => f.write_str("nan"),
            Scalar::Float(x) => write!(f, "{x:?}"),
        }
    }
}

macro_rules! from {
    ($($t:ty => $v:ident),*) => { $(impl From<$t> for Scalar {
        fn from(x: $t) -> Scalar {
            Scalar::$v(x.into())
        }
    })* };
}
from!(bool => Bool, i32 => Int, i64 => Int, u8 => Int, u32 => Int, f32 => Float, f64 => Float);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fits_agrees_with_checked_conversions() {
        let cases: &[(DType, &[Scalar], &[Scalar])] = &[
            (
                DType::U8,
                &[Scalar::Int(255), Scalar::Int(-255), Scalar::Float(255.5), Scalar::Bool(true)],
                &[
                    Scalar::Int(256),
                    Scalar::Int(-256),
                    Scalar::Float(-0.5),
                    Scalar::Float(256.0),
                    Scalar::Float(f64::NAN),
                ],
            ),
            (
                DType::I8,
                &[Scalar::Int(-128), Scalar::Float(127.9)],
                &[Scalar::Int(128), Scalar::Float(-128.5)],
            ),
            (
                DType::I64,
                &[Scalar::Int(i64::MIN), Scalar::Float(i64::MIN as f64)],
                &[Scalar::Float(9.3e18), Scalar::Float(f64::INFINITY)],
            ),
            (
                DType::F16,
                &[
                    Scalar::Float(65504.0),
                    Scalar::Float(f64::NEG_INFINITY),
                    Scalar::Float(f64::NAN),
                ],
                &[Scalar::Float(-1e9), Scalar::Int(65505)],
            ),
            (DType::F32, &[Scalar::Float(f64::from(f32::MAX))], &[Scalar::Float(1e39)]),
            (DType::F64, &[Scalar::Float(1e300)], &[]),
            (DType::Bool, &[Scalar::Int(300), Scalar::Float(f64::NAN)], &[]),
        ];
        for &(d, fit, unfit) in cases {
            for x in fit {
                assert!(x.fits(d), "{x} fits {d}");
            }
            for x in unfit {
                assert!(!x.fits(d), "{x} is out of range for {d}");
            }
        }
    }
}
