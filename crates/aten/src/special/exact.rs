//! Functions with exact results: `gcd` and `lcm` of integers, and `nextafter`, `frexp` and `ldexp`
//! on the bits of floats.

use super::elementwise::round_to;
use maquette_ir::DType;

/// The function that wraps into an integer dtype.
fn wrap(dtype: DType) -> fn(i64) -> i64 {
    match dtype {
        DType::U8 => |x| i64::from(x as u8),
        DType::I8 => |x| i64::from(x as i8),
        DType::I16 => |x| i64::from(x as i16),
        DType::I32 => |x| i64::from(x as i32),
        _ => |x| x,
    }
}

/// The greatest common divisor by Euclid's algorithm. Absolute values wrap, so the minimum of the
/// dtype stays negative.
pub(super) fn gcd(dtype: DType, a: i64, b: i64) -> i64 {
    let wrap = wrap(dtype);
    let (mut a, mut b) = (wrap(a.wrapping_abs()), wrap(b.wrapping_abs()));
    while a != 0 {
        (a, b) = (b.wrapping_rem(a), a);
    }
    b
}

/// The least common multiple; 0 if an operand is 0. Products wrap.
pub(super) fn lcm(dtype: DType, a: i64, b: i64) -> i64 {
    let g = gcd(dtype, a, b);
    if g == 0 {
        return 0;
    }
    // As in C, products of narrower integers are computed in i32.
    let product = a.wrapping_div(g).wrapping_mul(b);
    let product = if dtype == DType::I64 { product } else { wrap(DType::I32)(product) };
    product.wrapping_abs()
}

/// The next number of the dtype after `x` in the direction of `y`; `y` if they are equal.
pub(super) fn next_after(dtype: DType, x: f64, y: f64) -> f64 {
    if x.is_nan() || y.is_nan() {
        return f64::NAN;
    }
    if x == y {
        return y;
    }
    let up = y > x;
    match dtype {
        DType::F16 => half::f16::from_bits(step(half::f16::from_f64(x).to_bits(), up)).to_f64(),
        DType::BF16 => half::bf16::from_bits(step(half::bf16::from_f64(x).to_bits(), up)).to_f64(),
        DType::F32 if up => f64::from((x as f32).next_up()),
        DType::F32 => f64::from((x as f32).next_down()),
        _ if up => x.next_up(),
        _ => x.next_down(),
    }
}

/// The neighbour of a 16-bit float, given as bits. The float is not NaN, and not the last in that
/// direction.
fn step(bits: u16, up: bool) -> u16 {
    const SIGN: u16 = 0x8000;
    let negative = bits & SIGN != 0;
    if bits & !SIGN == 0 {
        if up { 1 } else { SIGN | 1 }
    } else if negative == up {
        bits.wrapping_sub(1)
    } else {
        bits.wrapping_add(1)
    }
}

/// The mantissa in [1/2, 1) and the exponent. Numbers without a mantissa, such as 0, are returned
/// with exponent 0.
pub(super) fn frexp(x: f64) -> (f64, f64) {
    if !x.is_finite() {
        return (x, 0.0);
    }
    let (mantissa, exponent) = libm::frexp(x);
    (mantissa, f64::from(exponent))
}

/// `x 2^n`. It is exact for an integer exponent; for a float exponent, the power is first rounded
/// to the exponent's dtype.
pub(super) fn ldexp(exponent: DType, x: f64, n: f64) -> f64 {
    if exponent.is_float() {
        x * round_to(exponent)(libm::exp2(n))
    } else {
        libm::scalbn(x, n.clamp(-1e5, 1e5) as i32)
    }
}
