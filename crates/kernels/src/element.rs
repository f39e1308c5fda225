//! Element types as Rust types, the classes in which they are computed, and the single dispatch
//! from [`DType`] to a Rust type.

use half::{bf16, f16};
use maquette_ir::{DType, Scalar};

/// A type in which elements are computed: `f32` (for `f16`, `bf16` and `f32`), `f64`, `i64` (for
/// all integers) or `bool`. Kernels are compiled per class, not per dtype.
pub trait Class: Element<Class = Self> + PartialOrd {
    /// Casts to `f32`.
    fn to_f32(self) -> f32;
    /// Casts to `f64`.
    fn to_f64(self) -> f64;
    /// Casts to `i64`, truncating; values outside its range become `i64::MIN`.
    fn to_i64(self) -> i64;
    /// `self != 0`.
    fn to_bool(self) -> bool;
    /// Casts from any class.
    fn cast<C: Class>(x: C) -> Self;
    /// The value, with every NaN replaced by the same NaN, so that bits do not depend on which
    /// operand's NaN a processor keeps.
    #[inline(always)]
    fn one_nan(self) -> Self {
        if self.partial_cmp(&self).is_none() { Self::cast(f64::NAN) } else { self }
    }
}

mod sealed {
    pub trait Sealed {}
}

/// The Rust type of the elements of one [`DType`]. Sealed, because memory is read as these types on
/// the evidence of a dtype alone.
pub trait Element:
    sealed::Sealed + Copy + Default + PartialEq + std::fmt::Debug + Send + Sync + 'static
{
    /// Its dtype.
    const DTYPE: DType;
    /// The class in which the type is computed.
    type Class: Class;
    /// Exact conversion to the class.
    fn load(self) -> Self::Class;
    /// Rounding (floats) or wrapping (integers) conversion from the class.
    fn store(x: Self::Class) -> Self;
}

/// Converts between any two element types, by the rules of a cast.
#[inline(always)]
pub(crate) fn cast<A: Element, B: Element>(x: A) -> B {
    B::store(B::Class::cast(x.load()))
}

/// A scalar as an element, by the rules of a cast.
pub(crate) fn from_scalar<T: Element>(x: Scalar) -> T {
    match x {
        Scalar::Bool(b) => cast(b),
        Scalar::Int(i) => cast(i),
        Scalar::Float(f) => cast(f),
    }
}

const LIMIT: f64 = 9_223_372_036_854_775_808.0;

macro_rules! class {
    ($t:ident, $to:ident, $x:ident => $f32:expr, $f64:expr, $i64:expr, $bool:expr) => {
        impl Class for $t {
            #[inline(always)]
            fn to_f32(self) -> f32 {
                let $x = self;
                $f32
            }
            #[inline(always)]
            fn to_f64(self) -> f64 {
                let $x = self;
                $f64
            }
            #[inline(always)]
            fn to_i64(self) -> i64 {
                let $x = self;
                $i64
            }
            #[inline(always)]
            fn to_bool(self) -> bool {
                let $x = self;
                $bool
            }
            #[inline(always)]
            fn cast<C: Class>(x: C) -> Self {
                x.$to()
            }
        }
    };
}
class!(
    f32, to_f32, x => x, f64::from(x),
    if (-LIMIT as f32..LIMIT as f32).contains(&x) { x as i64 } else { i64::MIN }, x != 0.0
);
class!(
    f64, to_f64, x => x as f32, x,
    if (-LIMIT..LIMIT).contains(&x) { x as i64 } else { i64::MIN }, x != 0.0
);
class!(i64, to_i64, x => x as f32, x as f64, x, x != 0);
class!(bool, to_bool, x => f32::from(u8::from(x)), f64::from(u8::from(x)), i64::from(x), x);

macro_rules! element {
    ($($t:ty, $d:ident, $c:ty, $x:ident => $load:expr, $store:expr;)*) => {
        $(impl sealed::Sealed for $t {}
        impl Element for $t {
            const DTYPE: DType = DType::$d;
            type Class = $c;
            #[inline(always)]
            fn load(self) -> $c {
                let $x = self;
                $load
            }
            #[inline(always)]
            fn store($x: $c) -> Self {
                $store
            }
        })*
    };
}
element! {
    bool, Bool, bool, x => x, x;
    u8, U8, i64, x => i64::from(x), x as u8;
    i8, I8, i64, x => i64::from(x), x as i8;
    i16, I16, i64, x => i64::from(x), x as i16;
    i32, I32, i64, x => i64::from(x), x as i32;
    i64, I64, i64, x => x, x;
    f16, F16, f32, x => x.to_f32(), f16::from_f32(x);
    bf16, BF16, f32, x => f32::from_bits(u32::from(x.to_bits()) << 16),
        bf16::from_bits(bf16_bits(x));
    f32, F32, f32, x => x, x;
    f64, F64, f64, x => x, x;
}

/// Rounds to nearest even, without a branch, so that loops vectorise. A NaN stays a quiet NaN.
#[inline(always)]
fn bf16_bits(x: f32) -> u16 {
    let bits = x.to_bits();
    let rounded = bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) >> 16;
    (if x.is_nan() { (bits >> 16) | 0x40 } else { rounded }) as u16
}

/// Runs `$body` with `$T` the element type of `$dtype`.
macro_rules! dispatch {
    ($dtype:expr, $T:ident => $body:expr) => {{
        use maquette_ir::DType as D;
        match $dtype {
            D::Bool => $crate::element::dispatch!(@ bool, $T, $body),
            D::U8 => $crate::element::dispatch!(@ u8, $T, $body),
            D::I8 => $crate::element::dispatch!(@ i8, $T, $body),
            D::I16 => $crate::element::dispatch!(@ i16, $T, $body),
            D::I32 => $crate::element::dispatch!(@ i32, $T, $body),
            D::I64 => $crate::element::dispatch!(@ i64, $T, $body),
            D::F16 => $crate::element::dispatch!(@ half::f16, $T, $body),
            D::BF16 => $crate::element::dispatch!(@ half::bf16, $T, $body),
            D::F32 => $crate::element::dispatch!(@ f32, $T, $body),
            D::F64 => $crate::element::dispatch!(@ f64, $T, $body),
        }
    }};
    (float $kernel:expr, $operand:expr, $dtype:expr, $T:ident => $body:expr) => {{
        use maquette_ir::DType as D;
        match $dtype {
            D::F16 => $crate::element::dispatch!(@ half::f16, $T, $body),
            D::BF16 => $crate::element::dispatch!(@ half::bf16, $T, $body),
            D::F32 => $crate::element::dispatch!(@ f32, $T, $body),
            D::F64 => $crate::element::dispatch!(@ f64, $T, $body),
            found => Err($crate::error::KernelError::DType {
                kernel: $kernel, operand: $operand, expected: "a float".into(), found
            }),
        }
    }};
    // Selects a type by size alone, for kernels that move elements without interpreting them.
    (size $dtype:expr, $T:ident => $body:expr) => {
        match $dtype.size() {
            1 => $crate::element::dispatch!(@ u8, $T, $body),
            2 => $crate::element::dispatch!(@ i16, $T, $body),
            4 => $crate::element::dispatch!(@ i32, $T, $body),
            _ => $crate::element::dispatch!(@ i64, $T, $body),
        }
    };
    (@ $t:ty, $T:ident, $body:expr) => {{
        type $T = $t;
        $body
    }};
}
pub(crate) use dispatch;
