//! Typed access for the kernels written here: element types with the type they accumulate in, and flat data.

use crate::element::Element;
use crate::error::Result;
use crate::tensor::Tensor;
use half::{bf16, f16};
use maquette_ir::Scalar;
use std::num::Wrapping;
use std::ops::{Add, Mul};

/// An element with the arithmetic it is accumulated in: `f32` for half precision, wrapping `i64` for integers and bools.
pub(crate) trait Num: Element {
    /// The accumulator.
    type Acc: Copy + Default + PartialOrd + Add<Output = Self::Acc> + Mul<Output = Self::Acc> + Send + Sync;
    fn load(self) -> Self::Acc;
    fn store(x: Self::Acc) -> Self;
    /// A number, converted as a cast does.
    fn number(s: Scalar) -> Self;
    /// The quotient by a positive number, rounded down for integers.
    fn divide(sum: Self::Acc, by: i64) -> Self;
    /// Whether it is not zero.
    fn truth(self) -> bool;
    fn is_nan(self) -> bool {
        false
    }
    /// As a double.
    fn to_f64(self) -> f64;
    fn lowest() -> Self;
    fn highest() -> Self;
}

macro_rules! float {
    ($($t:ty, $acc:ty, $from:expr, $to:expr, $number:expr;)*) => { $(impl Num for $t {
        type Acc = $acc;
        fn load(self) -> $acc { $from(self) }
        fn store(x: $acc) -> $t { $to(x) }
        fn number(s: Scalar) -> $t { $number(s.to_f64()) }
        fn divide(sum: $acc, by: i64) -> $t { $to(sum / by as $acc) }
        fn truth(self) -> bool { $from(self) != 0.0 }
        fn is_nan(self) -> bool { <$t>::is_nan(self) }
        fn to_f64(self) -> f64 { $from(self).into() }
        fn lowest() -> $t { <$t>::NEG_INFINITY }
        fn highest() -> $t { <$t>::INFINITY }
    })* };
}
float!(
    f16, f32, f16::to_f32, f16::from_f32, f16::from_f64;
    bf16, f32, bf16::to_f32, bf16::from_f32, bf16::from_f64;
    f32, f32, std::convert::identity, std::convert::identity, |x| x as f32;
    f64, f64, std::convert::identity, std::convert::identity, std::convert::identity;
);

macro_rules! integer {
    ($($t:ty),*) => { $(impl Num for $t {
        type Acc = Wrapping<i64>;
        fn load(self) -> Wrapping<i64> { Wrapping(i64::from(self)) }
        fn store(x: Wrapping<i64>) -> $t { x.0 as $t }
        fn number(s: Scalar) -> $t { s.to_i64() as $t }
        fn divide(sum: Wrapping<i64>, by: i64) -> $t { sum.0.checked_div_euclid(by).unwrap_or(0) as $t }
        fn truth(self) -> bool { self != 0 }
        fn to_f64(self) -> f64 { self as f64 }
        fn lowest() -> $t { <$t>::MIN }
        fn highest() -> $t { <$t>::MAX }
    })* };
}
integer!(u8, i8, i16, i32, i64);

impl Num for bool {
    type Acc = Wrapping<i64>;
    fn load(self) -> Wrapping<i64> {
        Wrapping(self.into())
    }
    fn store(x: Wrapping<i64>) -> bool {
        x.0 != 0
    }
    fn number(s: Scalar) -> bool {
        s.to_bool()
    }
    fn divide(sum: Wrapping<i64>, _by: i64) -> bool {
        sum.0 != 0
    }
    fn truth(self) -> bool {
        self
    }
    fn to_f64(self) -> f64 {
        f64::from(u8::from(self))
    }
    fn lowest() -> bool {
        false
    }
    fn highest() -> bool {
        true
    }
}

/// Runs the body with `$t` as the Rust type of a dtype.
macro_rules! typed {
    ($dtype:expr, $t:ident => $body:expr) => {{
        use maquette_ir::DType as D;
        macro_rules! with { ($r:ty) => {{ type $t = $r; $body }}; }
        match $dtype {
            D::Bool => with!(bool),
            D::U8 => with!(u8),
            D::I8 => with!(i8),
            D::I16 => with!(i16),
            D::I32 => with!(i32),
            D::I64 => with!(i64),
            D::F16 => with!(half::f16),
            D::BF16 => with!(half::bf16),
            D::F32 => with!(f32),
            D::F64 => with!(f64),
        }
    }};
}
pub(crate) use typed;

/// As [`typed!`], for floating dtypes; others are an error that names the argument.
macro_rules! typed_float {
    ($arg:literal, $tensor:expr, $t:ident => $body:expr) => {{
        use maquette_ir::DType as D;
        macro_rules! with { ($r:ty) => {{ type $t = $r; $body }}; }
        match $tensor.dtype() {
            D::F16 => with!(half::f16),
            D::BF16 => with!(half::bf16),
            D::F32 => with!(f32),
            D::F64 => with!(f64),
            found => Err($crate::error::Error::value(format!(concat!("argument `", $arg, "` must have a floating dtype, found {}"), found))),
        }
    }};
}
pub(crate) use typed_float;

/// The elements in row-major order, borrowed where they are stored so.
pub(crate) fn with_data<T: Element, R>(t: &Tensor, f: impl FnOnce(&[T]) -> R) -> Result<R> {
    let guard = t.read::<T>()?;
    Ok(match guard.as_slice() {
        Some(s) => f(s),
        None => f(&guard.iter().copied().collect::<Vec<T>>()),
    })
}

/// The elements in row-major order, copied.
pub(crate) fn data<T: Element>(t: &Tensor) -> Result<Vec<T>> {
    Ok(t.read::<T>()?.iter().copied().collect())
}

/// An index tensor's elements in row-major order.
pub(crate) fn indices(t: &Tensor) -> Result<Vec<i64>> {
    match t.dtype() {
        maquette_ir::DType::I32 => Ok(t.read::<i32>()?.iter().map(|&i| i.into()).collect()),
        _ => data::<i64>(t),
    }
}

/// Hands a fresh output's elements in row-major order to `f`, whatever its strides.
pub(crate) fn fill_with<T: Element>(out: &Tensor, f: impl FnOnce(&mut [T]) -> Result<()>) -> Result<()> {
    let mut out = out.clone();
    let mut guard = out.write::<T>()?;
    if let Some(s) = guard.as_slice_mut() {
        return f(s);
    }
    let mut flat = vec![T::default(); guard.len()];
    f(&mut flat)?;
    guard.iter_mut().zip(flat).for_each(|(o, x)| *o = x);
    Ok(())
}

/// Plain sizes.
pub(crate) fn sizes(t: &Tensor) -> Result<Vec<usize>> {
    Ok(t.sizes_i64()?.into_iter().map(|n| n.max(0) as usize).collect())
}

/// Calls `f` with each index of a box of these sizes, in row-major order.
pub(crate) fn each_index(sizes: &[usize], mut f: impl FnMut(&[usize])) {
    let mut index = vec![0usize; sizes.len()];
    for _ in 0..sizes.iter().product::<usize>() {
        f(&index);
        for d in (0..sizes.len()).rev() {
            index[d] += 1;
            if index[d] < sizes[d] {
                break;
            }
            index[d] = 0;
        }
    }
}

/// Fills with a number.
pub(crate) fn fill(out: &Tensor, value: Scalar) -> Result<()> {
    typed!(out.dtype(), T => fill_with::<T>(out, |o| { o.fill(T::number(value)); Ok(()) }))
}

/// `out[i, j, …] = x[tables[0][i], tables[1][j], …]`: what flips, rolls, paddings, selections and nearest resampling are.
pub(crate) fn separable(x: &Tensor, out: &Tensor, tables: &[Vec<usize>]) -> Result<()> {
    typed!(x.dtype(), T => {
        let x = x.read::<T>()?;
        fill_with::<T>(out, |o| {
            let mut at = vec![0usize; tables.len()];
            let sizes: Vec<usize> = tables.iter().map(Vec::len).collect();
            let mut o = o.iter_mut();
            each_index(&sizes, |index| {
                at.iter_mut().zip(index).zip(tables).for_each(|((a, &i), t)| *a = t[i]);
                if let (Some(o), Some(&v)) = (o.next(), x.get(at.as_slice())) {
                    *o = v;
                }
            });
            Ok(())
        })
    })
}
