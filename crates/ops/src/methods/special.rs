//! Special functions. Integers and bools are computed as `f32` unless a method says otherwise.

use super::calls::{calls, tuple_calls};
use super::{Operand, aten, methods};
use crate::dispatch::value::Value;
use crate::tensor::Tensor;
use maquette_ir::Loc;

methods! {
    /// `log |gamma(x)|`; infinite at 0 and the negative whole numbers.
    fn lgamma() = "lgamma";
    /// As [`Tensor::lgamma`], in place.
    fn lgamma_() = "lgamma_";
    /// The derivative of [`Tensor::lgamma`].
    fn digamma() = "digamma";
    /// As [`Tensor::digamma`], in place.
    fn digamma_() = "digamma_";
    /// The logarithm of the gamma function of `p` dimensions; `p` is at least 1.
    fn mvlgamma(p: i64) = "mvlgamma";
    /// As [`Tensor::mvlgamma`], in place.
    fn mvlgamma_(p: i64) = "mvlgamma_";
    /// As [`Tensor::polygamma`], in place.
    fn polygamma_(n: i64) = "polygamma_";
    /// The inverse of the error function; infinite at -1 and 1, NaN beyond.
    fn erfinv() = "erfinv";
    /// As [`Tensor::erfinv`], in place.
    fn erfinv_() = "erfinv_";
    /// The modified Bessel function of the first kind of order 0.
    fn i0() = "i0";
    /// As [`Tensor::i0`], in place.
    fn i0_() = "i0_";
    /// 0 for positive numbers, pi for negative ones.
    fn angle() = "angle";
    /// `log(sum(exp(x)))` of the elements so far along a dimension; of floats.
    fn logcumsumexp(dim: i64) = "logcumsumexp";
    /// `exp(x^2) erfc(x)`; not of f16 or bf16.
    fn special_erfcx() = "special_erfcx";
    /// `-x log(x)`, 0 at 0 and negative infinity below.
    fn special_entr() = "special_entr";
    /// The normal distribution function.
    fn special_ndtr() = "special_ndtr";
    /// The logarithm of [`Tensor::special_ndtr`]; not of f16 or bf16.
    fn special_log_ndtr() = "special_log_ndtr";
    /// The inverse of [`Tensor::special_ndtr`]; NaN outside [0, 1]; not of f16 or bf16.
    fn special_ndtri() = "special_ndtri";
    /// `exp(-|x|)` times [`Tensor::i0`].
    fn special_i0e() = "special_i0e";
    /// The modified Bessel function of the first kind of order 1.
    fn special_i1() = "special_i1";
    /// `exp(-|x|)` times [`Tensor::special_i1`].
    fn special_i1e() = "special_i1e";
    /// The modified Bessel function of the first kind of order 0; not of f16 or bf16.
    fn special_modified_bessel_i0() = "special_modified_bessel_i0";
    /// The modified Bessel function of the first kind of order 1; not of f16 or bf16.
    fn special_modified_bessel_i1() = "special_modified_bessel_i1";
    /// The modified Bessel function of the second kind of order 0; not of f16 or bf16.
    fn special_modified_bessel_k0() = "special_modified_bessel_k0";
    /// The modified Bessel function of the second kind of order 1; not of f16 or bf16.
    fn special_modified_bessel_k1() = "special_modified_bessel_k1";
    /// `exp(x)` times [`Tensor::special_modified_bessel_k0`].
    fn special_scaled_modified_bessel_k0() = "special_scaled_modified_bessel_k0";
    /// `exp(x)` times [`Tensor::special_modified_bessel_k1`].
    fn special_scaled_modified_bessel_k1() = "special_scaled_modified_bessel_k1";
    /// The Bessel function of the first kind of order 0; not of f16 or bf16.
    fn special_bessel_j0() = "special_bessel_j0";
    /// The Bessel function of the first kind of order 1; not of f16 or bf16.
    fn special_bessel_j1() = "special_bessel_j1";
    /// The Bessel function of the second kind of order 0; not of f16 or bf16.
    fn special_bessel_y0() = "special_bessel_y0";
    /// The Bessel function of the second kind of order 1; not of f16 or bf16.
    fn special_bessel_y1() = "special_bessel_y1";
    /// `sin(x) / x`; not of f16 or bf16.
    fn special_spherical_bessel_j0() = "special_spherical_bessel_j0";
    /// Airy's function of the first kind; not of f16 or bf16.
    fn special_airy_ai() = "special_airy_ai";
}

calls! {
    /// The regularised lower incomplete gamma function of order `self`; of floats.
    fn igamma(other: impl Into<Operand>) = "igamma", other.into();
    /// As [`Tensor::igamma`], in place.
    fn igamma_(other: impl Into<Operand>) = "igamma_", other.into();
    /// The regularised upper incomplete gamma function of order `self`; of floats.
    fn igammac(other: impl Into<Operand>) = "igammac", other.into();
    /// As [`Tensor::igammac`], in place.
    fn igammac_(other: impl Into<Operand>) = "igammac_", other.into();
    /// The greatest common divisor; of integers.
    fn gcd(other: impl Into<Operand>) = "gcd", other.into();
    /// As [`Tensor::gcd`], in place.
    fn gcd_(other: impl Into<Operand>) = "gcd_", other.into();
    /// The least common multiple; of integers.
    fn lcm(other: impl Into<Operand>) = "lcm", other.into();
    /// As [`Tensor::lcm`], in place.
    fn lcm_(other: impl Into<Operand>) = "lcm_", other.into();
    /// The next float of the dtype in the direction of `other`.
    fn nextafter(other: impl Into<Operand>) = "nextafter", other.into();
    /// As [`Tensor::nextafter`], in place.
    fn nextafter_(other: impl Into<Operand>) = "nextafter_", other.into();
    /// `self` times 2 to the power of `other`.
    fn ldexp(other: &Tensor) = "ldexp.Tensor", other;
    /// As [`Tensor::ldexp`], in place.
    fn ldexp_(other: &Tensor) = "ldexp_", other;
    /// `self log(1 + other)`, 0 where `self` is 0.
    fn special_xlog1py(other: impl Into<Operand>) = "special_xlog1py", other.into();
    /// Hurwitz's zeta function of exponent `self`, from `other` on; not of f16 or bf16.
    fn special_zeta(other: impl Into<Operand>) = "special_zeta", other.into();
    /// The Chebyshev polynomial of the first kind of degree `n`.
    fn special_chebyshev_polynomial_t(n: impl Into<Operand>) =
        "special_chebyshev_polynomial_t", n.into();
    /// The Chebyshev polynomial of the second kind of degree `n`.
    fn special_chebyshev_polynomial_u(n: impl Into<Operand>) =
        "special_chebyshev_polynomial_u", n.into();
    /// The Chebyshev polynomial of the third kind of degree `n`.
    fn special_chebyshev_polynomial_v(n: impl Into<Operand>) =
        "special_chebyshev_polynomial_v", n.into();
    /// The Chebyshev polynomial of the fourth kind of degree `n`.
    fn special_chebyshev_polynomial_w(n: impl Into<Operand>) =
        "special_chebyshev_polynomial_w", n.into();
    /// As [`Tensor::special_chebyshev_polynomial_t`], at `2x - 1`.
    fn special_shifted_chebyshev_polynomial_t(n: impl Into<Operand>) =
        "special_shifted_chebyshev_polynomial_t", n.into();
    /// As [`Tensor::special_chebyshev_polynomial_u`], at `2x - 1`.
    fn special_shifted_chebyshev_polynomial_u(n: impl Into<Operand>) =
        "special_shifted_chebyshev_polynomial_u", n.into();
    /// As [`Tensor::special_chebyshev_polynomial_v`], at `2x - 1`.
    fn special_shifted_chebyshev_polynomial_v(n: impl Into<Operand>) =
        "special_shifted_chebyshev_polynomial_v", n.into();
    /// As [`Tensor::special_chebyshev_polynomial_w`], at `2x - 1`.
    fn special_shifted_chebyshev_polynomial_w(n: impl Into<Operand>) =
        "special_shifted_chebyshev_polynomial_w", n.into();
    /// The physicists' Hermite polynomial of degree `n`.
    fn special_hermite_polynomial_h(n: impl Into<Operand>) =
        "special_hermite_polynomial_h", n.into();
    /// The probabilists' Hermite polynomial of degree `n`.
    fn special_hermite_polynomial_he(n: impl Into<Operand>) =
        "special_hermite_polynomial_he", n.into();
    /// The Laguerre polynomial of degree `n`.
    fn special_laguerre_polynomial_l(n: impl Into<Operand>) =
        "special_laguerre_polynomial_l", n.into();
    /// The Legendre polynomial of degree `n`.
    fn special_legendre_polynomial_p(n: impl Into<Operand>) =
        "special_legendre_polynomial_p", n.into();
}

tuple_calls! {
    /// Mantissas in [1/2, 1) and `i32` exponents. Floats.
    fn frexp() -> (Tensor, Tensor) = "frexp.Tensor";
}

impl Tensor {
    /// The `n`-th derivative of [`Tensor::digamma`]; `n` is not negative.
    ///
    /// PyTorch: `aten::polygamma`.
    #[track_caller]
    pub fn polygamma(&self, n: i64) -> Tensor {
        aten!("polygamma", Loc::caller(); n, self)
    }

    /// To the power of `exponent`, a number or a tensor; computed in `f64`.
    ///
    /// PyTorch: `aten::float_power.Tensor_Scalar` or `aten::float_power.Tensor_Tensor`.
    #[track_caller]
    pub fn float_power(&self, exponent: impl Into<Operand>) -> Tensor {
        match exponent.into().0 {
            Value::Tensor(e) => aten!("float_power.Tensor_Tensor", Loc::caller(); self, e),
            e => aten!("float_power.Tensor_Scalar", Loc::caller(); self, e),
        }
    }
}
