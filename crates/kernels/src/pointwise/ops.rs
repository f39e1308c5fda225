//! The scalar operations, each defined once for every class that has it, and the loops that apply
//! them to blocks.

use crate::isa::{Isa, Simd};
use crate::math::Float;
use std::marker::PhantomData;

/// A unary operation. A second, scalar pass replaces the vectorised result by `slow`'s for elements
/// where `special` holds.
pub(crate) trait Op1<A, R> {
    const HAS_SLOW: bool = false;
    fn f(a: A) -> R;
    #[inline(always)]
    fn special(_: A) -> bool {
        false
    }
    fn slow(a: A) -> R {
        Self::f(a)
    }
}

/// A binary operation.
pub(crate) trait Op2<A, R> {
    fn f(a: A, b: A) -> R;
}

struct Map1<'a, A, R, O>(&'a [A], &'a mut [R], PhantomData<O>);
struct Map2<'a, A, R, O>(&'a [A], &'a [A], &'a mut [R], PhantomData<O>);
struct Choose<'a, A>(&'a [bool], &'a [A], &'a [A], &'a mut [A]);

impl<A: Copy, R, O: Op1<A, R>> Simd for Map1<'_, A, R, O> {
    type Out = ();
    #[inline(always)]
    fn run(self) {
        for (o, a) in self.1.iter_mut().zip(self.0) {
            *o = O::f(*a);
        }
    }
}

impl<A: Copy, R, O: Op2<A, R>> Simd for Map2<'_, A, R, O> {
    type Out = ();
    #[inline(always)]
    fn run(self) {
        for (o, (a, b)) in self.2.iter_mut().zip(self.0.iter().zip(self.1)) {
            *o = O::f(*a, *b);
        }
    }
}

impl<A: Copy> Simd for Choose<'_, A> {
    type Out = ();
    #[inline(always)]
    fn run(self) {
        for (o, (c, (a, b))) in self.3.iter_mut().zip(self.0.iter().zip(self.1.iter().zip(self.2)))
        {
            *o = if *c { *a } else { *b };
        }
    }
}

pub(crate) fn map1<A: Copy, R, O: Op1<A, R>>(isa: Isa, a: &[A], out: &mut [R]) {
    isa.dispatch(Map1::<A, R, O>(a, out, PhantomData));
    if O::HAS_SLOW {
        for (o, a) in out.iter_mut().zip(a) {
            if O::special(*a) {
                *o = O::slow(*a);
            }
        }
    }
}

pub(crate) fn map2<A: Copy, R, O: Op2<A, R>>(isa: Isa, a: &[A], b: &[A], out: &mut [R]) {
    isa.dispatch(Map2::<A, R, O>(a, b, out, PhantomData));
}

/// `a[i] = a[i] op b[i]`.
pub(crate) struct InPlaceOp<'a, A, O>(pub &'a mut [A], pub &'a [A], pub PhantomData<O>);

impl<A: Copy, O: Op2<A, A>> Simd for InPlaceOp<'_, A, O> {
    type Out = ();
    #[inline(always)]
    fn run(self) {
        for (a, b) in self.0.iter_mut().zip(self.1) {
            *a = O::f(*a, *b);
        }
    }
}

pub(crate) fn choose<A: Copy>(isa: Isa, c: &[bool], a: &[A], b: &[A], out: &mut [A]) {
    isa.dispatch(Choose(c, a, b, out));
}

/// Declares operations as types: `Name: [generics] Op1 A -> R => |x| …`.
macro_rules! op {
    ($($name:ident {
        $([$($g:tt)*] $tr:ident<$a:ty, $r:ty> |$x:ident $(, $y:ident)?| $body:expr;)+
    })*) => {
        $(pub(crate) struct $name;
        $(impl<$($g)*> $tr<$a, $r> for $name {
            #[inline(always)]
            fn f($x: $a $(, $y: $a)?) -> $r { $body }
        })+)*
    };
}

/// Whether the remainder has the wrong sign for a floored division.
#[inline(always)]
fn off<T: Float>(r: T, b: T) -> bool {
    (r != T::ZERO) & ((b < T::ZERO) != (r < T::ZERO))
}

#[inline(always)]
fn floor_div<T: Float>(a: T, b: T) -> T {
    let r = a % b;
    let q = (a - r) / b;
    let q = if off(r, b) { q - T::ONE } else { q };
    let floor = q.floor();
    let nearest = if q - floor > T::from_f64(0.5) { floor + T::ONE } else { floor };
    let value = if q == T::ZERO { T::ZERO.copysign(a / b) } else { nearest };
    if b == T::ZERO { a / b } else { value }
}

#[inline(always)]
fn off_int(r: i64, b: i64) -> bool {
    (r != 0) & ((r < 0) != (b < 0))
}

/// Wrapping division. Division by zero yields 0; a separate step reports it.
#[inline(always)]
fn div_int(a: i64, b: i64) -> i64 {
    if b == 0 { 0 } else { a.wrapping_div(b) }
}

#[inline(always)]
fn rem_int(a: i64, b: i64) -> i64 {
    if b == 0 { 0 } else { a.wrapping_rem(b) }
}

fn pow_int(base: i64, exp: i64) -> i64 {
    match (base, exp) {
        (1, _) => 1,
        (-1, e) => 1 - 2 * (e & 1),
        (_, ..=-1) => 0,
        _ => {
            let (mut base, mut exp, mut acc) = (base, exp, 1i64);
            while exp > 0 {
                acc = if exp & 1 == 1 { acc.wrapping_mul(base) } else { acc };
                base = base.wrapping_mul(base);
                exp >>= 1;
            }
            acc
        }
    }
}

op! {
    Neg { [T: Float] Op1<T, T> |x| -x; [] Op1<i64, i64> |x| x.wrapping_neg(); }
    Abs { [T: Float] Op1<T, T> |x| x.abs(); [] Op1<i64, i64> |x| x.wrapping_abs(); }
    Sign {
        [T: Float] Op1<T, T> |x|
            if x > T::ZERO { T::ONE } else if x < T::ZERO { -T::ONE } else { T::ZERO };
        [] Op1<i64, i64> |x| x.signum();
    }
    Not { [] Op1<bool, bool> |x| !x; [] Op1<i64, i64> |x| !x; }
    Floor { [T: Float] Op1<T, T> |x| x.floor(); }
    Ceil { [T: Float] Op1<T, T> |x| x.ceil(); }
    Round { [T: Float] Op1<T, T> |x| x.round_even(); }
    Trunc { [T: Float] Op1<T, T> |x| x.trunc(); }
    Sqrt { [T: Float] Op1<T, T> |x| x.sqrt(); }
    Rsqrt { [T: Float] Op1<T, T> |x| T::ONE / x.sqrt(); }
    Reciprocal { [T: Float] Op1<T, T> |x| T::ONE / x; }
    Exp { [T: Float] Op1<T, T> |x| x.exp(); }
    Exp2 { [T: Float] Op1<T, T> |x| x.exp2(); }
    Expm1 { [T: Float] Op1<T, T> |x| x.expm1(); }
    Log { [T: Float] Op1<T, T> |x| x.log(); }
    Log2 { [T: Float] Op1<T, T> |x| x.log2(); }
    Log10 { [T: Float] Op1<T, T> |x| x.log10(); }
    Log1p { [T: Float] Op1<T, T> |x| x.log1p(); }
    Tan { [T: Float] Op1<T, T> |x| x.tan(); }
    Asin { [T: Float] Op1<T, T> |x| x.asin(); }
    Acos { [T: Float] Op1<T, T> |x| x.acos(); }
    Atan { [T: Float] Op1<T, T> |x| x.atan(); }
    Sinh { [T: Float] Op1<T, T> |x| x.sinh(); }
    Cosh { [T: Float] Op1<T, T> |x| x.cosh(); }
    Tanh { [T: Float] Op1<T, T> |x| x.tanh(); }
    Asinh { [T: Float] Op1<T, T> |x| x.asinh(); }
    Acosh { [T: Float] Op1<T, T> |x| x.acosh(); }
    Atanh { [T: Float] Op1<T, T> |x| x.atanh(); }
    Erf { [T: Float] Op1<T, T> |x| x.erf(); }
    Erfc { [T: Float] Op1<T, T> |x| x.erfc(); }
    Sigmoid { [T: Float] Op1<T, T> |x| x.sigmoid(); }
    IsNan { [T: Float] Op1<T, bool> |x| x.nan(); }
    IsInf { [T: Float] Op1<T, bool> |x| x.abs() == T::INFINITY; }
    Add {
        [T: Float] Op2<T, T> |a, b| a + b;
        [] Op2<i64, i64> |a, b| a.wrapping_add(b);
        [] Op2<bool, bool> |a, b| a | b;
    }
    Sub { [T: Float] Op2<T, T> |a, b| a - b; [] Op2<i64, i64> |a, b| a.wrapping_sub(b); }
    Mul {
        [T: Float] Op2<T, T> |a, b| a * b;
        [] Op2<i64, i64> |a, b| a.wrapping_mul(b);
        [] Op2<bool, bool> |a, b| a & b;
    }
    Div { [T: Float] Op2<T, T> |a, b| a / b; }
    FloorDiv {
        [T: Float] Op2<T, T> |a, b| floor_div(a, b);
        [] Op2<i64, i64> |a, b| div_int(a, b).wrapping_sub(i64::from(off_int(rem_int(a, b), b)));
    }
    TruncDiv { [T: Float] Op2<T, T> |a, b| (a / b).trunc(); [] Op2<i64, i64> |a, b| div_int(a, b); }
    Fmod { [T: Float] Op2<T, T> |a, b| a % b; [] Op2<i64, i64> |a, b| rem_int(a, b); }
    Remainder {
        [T: Float] Op2<T, T> |a, b| { let r = a % b; if off(r, b) { r + b } else { r } };
        [] Op2<i64, i64> |a, b| {
            let r = rem_int(a, b);
            if off_int(r, b) { r.wrapping_add(b) } else { r }
        };
    }
    Pow { [T: Float] Op2<T, T> |a, b| a.pow(b); [] Op2<i64, i64> |a, b| pow_int(a, b); }
    // A comparison with a NaN gives `b`.
    Min {
        [T: Float] Op2<T, T> |a, b| {
            let least = if a < b { a } else { b };
            if a.nan() { a } else { least }
        };
        [] Op2<i64, i64> |a, b| a.min(b);
        [] Op2<bool, bool> |a, b| a & b;
    }
    Max {
        [T: Float] Op2<T, T> |a, b| {
            let greatest = if a > b { a } else { b };
            if a.nan() { a } else { greatest }
        };
        [] Op2<i64, i64> |a, b| a.max(b);
        [] Op2<bool, bool> |a, b| a | b;
    }
    Atan2 { [T: Float] Op2<T, T> |a, b| a.atan2(b); }
    Hypot { [T: Float] Op2<T, T> |a, b| a.hypot(b); }
    Copysign { [T: Float] Op2<T, T> |a, b| a.copysign(b); }
    And { [] Op2<i64, i64> |a, b| a & b; [] Op2<bool, bool> |a, b| a & b; }
    Or { [] Op2<i64, i64> |a, b| a | b; [] Op2<bool, bool> |a, b| a | b; }
    Xor { [] Op2<i64, i64> |a, b| a ^ b; [] Op2<bool, bool> |a, b| a ^ b; }
    Eq { [T: PartialOrd] Op2<T, bool> |a, b| a == b; }
    Ne { [T: PartialOrd] Op2<T, bool> |a, b| a != b; }
    Lt { [T: PartialOrd] Op2<T, bool> |a, b| a < b; }
    Le { [T: PartialOrd] Op2<T, bool> |a, b| a <= b; }
    Gt { [T: PartialOrd] Op2<T, bool> |a, b| a > b; }
    Ge { [T: PartialOrd] Op2<T, bool> |a, b| a >= b; }
}

/// Left shift of an integer type of `BITS` bits; counts out of range yield 0. [`Shr`] is the
/// arithmetic right shift, whose counts out of range yield the sign.
pub(crate) struct Shl<const BITS: i64>;
pub(crate) struct Shr<const BITS: i64>;

impl<const BITS: i64> Op2<i64, i64> for Shl<BITS> {
    #[inline(always)]
    fn f(a: i64, b: i64) -> i64 {
        if (b >= 0) & (b < BITS) { a.wrapping_shl(b as u32) } else { 0 }
    }
}

impl<const BITS: i64> Op2<i64, i64> for Shr<BITS> {
    #[inline(always)]
    fn f(a: i64, b: i64) -> i64 {
        a >> if (b >= 0) & (b < BITS) { b } else { 63 }
    }
}

macro_rules! trig {
    ($name:ident, $f:ident, $slow:ident) => {
        pub(crate) struct $name;
        impl<T: Float> Op1<T, T> for $name {
            const HAS_SLOW: bool = true;
            #[inline(always)]
            fn f(x: T) -> T {
                x.$f()
            }
            #[inline(always)]
            fn special(x: T) -> bool {
                x.trig_is_slow()
            }
            fn slow(x: T) -> T {
                x.$slow()
            }
        }
    };
}
trig!(Sin, sin_fast, sin_slow);
trig!(Cos, cos_fast, cos_slow);
