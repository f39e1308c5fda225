//! Elementwise mathematics and logic.

use super::calls::calls;
use super::{Operand, aten, methods};
use crate::dispatch::value::Value;
use crate::tensor::Tensor;
use maquette_ir::{Loc, Scalar};

methods! {
    /// The magnitude of each element.
    fn abs() = "abs";
    /// As [`Tensor::abs`], in place.
    fn abs_() = "abs_";
    /// Each element's negative; not of bools.
    fn neg() = "neg";
    /// As [`Tensor::neg`], in place.
    fn neg_() = "neg_";
    /// -1, 0 or 1 by the sign of each element.
    fn sign() = "sign";
    /// As [`Tensor::sign`], in place.
    fn sign_() = "sign_";
    /// As `sign`.
    fn sgn() = "sgn";
    /// As [`Tensor::sgn`], in place.
    fn sgn_() = "sgn_";
    /// The greatest whole number not above each element.
    fn floor() = "floor";
    /// As [`Tensor::floor`], in place.
    fn floor_() = "floor_";
    /// The least whole number not below each element.
    fn ceil() = "ceil";
    /// As [`Tensor::ceil`], in place.
    fn ceil_() = "ceil_";
    /// The nearest whole number, halves to even.
    fn round() = "round";
    /// As [`Tensor::round`], in place.
    fn round_() = "round_";
    /// The whole part of each element, toward zero.
    fn trunc() = "trunc";
    /// As [`Tensor::trunc`], in place.
    fn trunc_() = "trunc_";
    /// The part after the point, with the element's sign.
    fn frac() = "frac";
    /// As [`Tensor::frac`], in place.
    fn frac_() = "frac_";
    /// Each element times itself.
    fn square() = "square";
    /// As [`Tensor::square`], in place.
    fn square_() = "square_";
    /// The square root.
    fn sqrt() = "sqrt";
    /// As [`Tensor::sqrt`], in place.
    fn sqrt_() = "sqrt_";
    /// One over the square root.
    fn rsqrt() = "rsqrt";
    /// As [`Tensor::rsqrt`], in place.
    fn rsqrt_() = "rsqrt_";
    /// One over each element.
    fn reciprocal() = "reciprocal";
    /// As [`Tensor::reciprocal`], in place.
    fn reciprocal_() = "reciprocal_";
    /// e to the power of each element.
    fn exp() = "exp";
    /// As [`Tensor::exp`], in place.
    fn exp_() = "exp_";
    /// 2 to the power of each element.
    fn exp2() = "exp2";
    /// As [`Tensor::exp2`], in place.
    fn exp2_() = "exp2_";
    /// `exp(x) - 1`, exact near 0.
    fn expm1() = "expm1";
    /// As [`Tensor::expm1`], in place.
    fn expm1_() = "expm1_";
    /// The natural logarithm.
    fn log() = "log";
    /// As [`Tensor::log`], in place.
    fn log_() = "log_";
    /// The logarithm to base 2.
    fn log2() = "log2";
    /// As [`Tensor::log2`], in place.
    fn log2_() = "log2_";
    /// The logarithm to base 10.
    fn log10() = "log10";
    /// As [`Tensor::log10`], in place.
    fn log10_() = "log10_";
    /// `log(1 + x)`, exact near 0.
    fn log1p() = "log1p";
    /// As [`Tensor::log1p`], in place.
    fn log1p_() = "log1p_";
    /// The sine, of radians.
    fn sin() = "sin";
    /// As [`Tensor::sin`], in place.
    fn sin_() = "sin_";
    /// The cosine, of radians.
    fn cos() = "cos";
    /// As [`Tensor::cos`], in place.
    fn cos_() = "cos_";
    /// The tangent, of radians.
    fn tan() = "tan";
    /// As [`Tensor::tan`], in place.
    fn tan_() = "tan_";
    /// The arc sine, in radians.
    fn asin() = "asin";
    /// As [`Tensor::asin`], in place.
    fn asin_() = "asin_";
    /// The arc cosine, in radians.
    fn acos() = "acos";
    /// As [`Tensor::acos`], in place.
    fn acos_() = "acos_";
    /// The arc tangent, in radians.
    fn atan() = "atan";
    /// As [`Tensor::atan`], in place.
    fn atan_() = "atan_";
    /// The hyperbolic sine.
    fn sinh() = "sinh";
    /// As [`Tensor::sinh`], in place.
    fn sinh_() = "sinh_";
    /// The hyperbolic cosine.
    fn cosh() = "cosh";
    /// As [`Tensor::cosh`], in place.
    fn cosh_() = "cosh_";
    /// The hyperbolic tangent.
    fn tanh() = "tanh";
    /// As [`Tensor::tanh`], in place.
    fn tanh_() = "tanh_";
    /// The inverse hyperbolic sine.
    fn asinh() = "asinh";
    /// As [`Tensor::asinh`], in place.
    fn asinh_() = "asinh_";
    /// The inverse hyperbolic cosine.
    fn acosh() = "acosh";
    /// As [`Tensor::acosh`], in place.
    fn acosh_() = "acosh_";
    /// The inverse hyperbolic tangent.
    fn atanh() = "atanh";
    /// As [`Tensor::atanh`], in place.
    fn atanh_() = "atanh_";
    /// The error function.
    fn erf() = "erf";
    /// As [`Tensor::erf`], in place.
    fn erf_() = "erf_";
    /// One minus the error function.
    fn erfc() = "erfc";
    /// As [`Tensor::erfc`], in place.
    fn erfc_() = "erfc_";
    /// `1 / (1 + exp(-x))`.
    fn sigmoid() = "sigmoid";
    /// As [`Tensor::sigmoid`], in place.
    fn sigmoid_() = "sigmoid_";
    /// `sin(pi x) / (pi x)`, 1 at 0.
    fn sinc() = "sinc";
    /// As [`Tensor::sinc`], in place.
    fn sinc_() = "sinc_";
    /// Degrees as radians.
    fn deg2rad() = "deg2rad";
    /// As [`Tensor::deg2rad`], in place.
    fn deg2rad_() = "deg2rad_";
    /// Radians as degrees.
    fn rad2deg() = "rad2deg";
    /// As [`Tensor::rad2deg`], in place.
    fn rad2deg_() = "rad2deg_";
    /// Whether each element is zero.
    fn logical_not() = "logical_not";
    /// As [`Tensor::logical_not`], in place.
    fn logical_not_() = "logical_not_";
    /// Each bit turned; of bools, the opposite.
    fn bitwise_not() = "bitwise_not";
    /// As [`Tensor::bitwise_not`], in place.
    fn bitwise_not_() = "bitwise_not_";
    /// `max(x, 0)`; NaN stays.
    fn relu() = "relu";
    /// As [`Tensor::relu`], in place.
    fn relu_() = "relu_";
    /// `min(max(x, 0), 6)`.
    fn relu6() = "relu6";
    /// As [`Tensor::relu6`], in place.
    fn relu6_() = "relu6_";
    /// `x sigmoid(x)`.
    fn silu() = "silu";
    /// As [`Tensor::silu`], in place.
    fn silu_() = "silu_";
    /// `x tanh(log(1 + exp(x)))`.
    fn mish() = "mish";
    /// As [`Tensor::mish`], in place.
    fn mish_() = "mish_";
    /// The scaled exponential linear unit, with its fixed constants.
    fn selu() = "selu";
    /// As [`Tensor::selu`], in place.
    fn selu_() = "selu_";
    /// `min(max(x + 3, 0), 6) / 6`.
    fn hardsigmoid() = "hardsigmoid";
    /// As [`Tensor::hardsigmoid`], in place.
    fn hardsigmoid_() = "hardsigmoid_";
    /// `x min(max(x + 3, 0), 6) / 6`.
    fn hardswish() = "hardswish";
    /// As [`Tensor::hardswish`], in place.
    fn hardswish_() = "hardswish_";
    /// Which elements are NaN.
    fn isnan() = "isnan";
    /// Which elements are infinite.
    fn isinf() = "isinf";
    /// Which elements are neither infinite nor NaN.
    fn isfinite() = "isfinite";
    /// Which elements have their sign bit set, -0.0 included.
    fn signbit() = "signbit";
    /// `log(sigmoid(x))`, without overflow.
    fn log_sigmoid() = "log_sigmoid";
    /// `x Phi(x)`, Phi the distribution function of the normal distribution.
    fn gelu() = "gelu";
    /// Every element set to 0.
    fn zero_() = "zero_";
}

calls! {
    /// The sum.
    fn add(other: impl Into<Operand>) = "add.Tensor", other.into();
    /// As [`Tensor::add`], in place.
    fn add_(other: impl Into<Operand>) = "add_.Tensor", other.into();
    /// The difference; not of bools.
    fn sub(other: impl Into<Operand>) = "sub.Tensor", other.into();
    /// As [`Tensor::sub`], in place.
    fn sub_(other: impl Into<Operand>) = "sub_.Tensor", other.into();
    /// The product.
    fn mul(other: impl Into<Operand>) = "mul.Tensor", other.into();
    /// As [`Tensor::mul`], in place.
    fn mul_(other: impl Into<Operand>) = "mul_.Tensor", other.into();
    /// The quotient; of integers, a float.
    fn div(other: impl Into<Operand>) = "div.Tensor", other.into();
    /// As [`Tensor::div`], in place.
    fn div_(other: impl Into<Operand>) = "div_.Tensor", other.into();
    /// The quotient toward negative infinity.
    fn floor_divide(other: impl Into<Operand>) = "floor_divide", other.into();
    /// As [`Tensor::floor_divide`], in place.
    fn floor_divide_(other: impl Into<Operand>) = "floor_divide_.Tensor", other.into();
    /// The remainder with the divisor's sign.
    fn remainder(other: impl Into<Operand>) = "remainder.Tensor", other.into();
    /// As [`Tensor::remainder`], in place.
    fn remainder_(other: impl Into<Operand>) = "remainder_.Tensor", other.into();
    /// The remainder with the dividend's sign.
    fn fmod(other: impl Into<Operand>) = "fmod.Tensor", other.into();
    /// As [`Tensor::fmod`], in place.
    fn fmod_(other: impl Into<Operand>) = "fmod_.Tensor", other.into();
    /// Where equal.
    fn eq(other: impl Into<Operand>) = "eq.Tensor", other.into();
    /// As [`Tensor::eq`], in place.
    fn eq_(other: impl Into<Operand>) = "eq_.Tensor", other.into();
    /// Where not equal.
    fn ne(other: impl Into<Operand>) = "ne.Tensor", other.into();
    /// As [`Tensor::ne`], in place.
    fn ne_(other: impl Into<Operand>) = "ne_.Tensor", other.into();
    /// Where less.
    fn lt(other: impl Into<Operand>) = "lt.Tensor", other.into();
    /// As [`Tensor::lt`], in place.
    fn lt_(other: impl Into<Operand>) = "lt_.Tensor", other.into();
    /// Where less or equal.
    fn le(other: impl Into<Operand>) = "le.Tensor", other.into();
    /// As [`Tensor::le`], in place.
    fn le_(other: impl Into<Operand>) = "le_.Tensor", other.into();
    /// Where greater.
    fn gt(other: impl Into<Operand>) = "gt.Tensor", other.into();
    /// As [`Tensor::gt`], in place.
    fn gt_(other: impl Into<Operand>) = "gt_.Tensor", other.into();
    /// Where greater or equal.
    fn ge(other: impl Into<Operand>) = "ge.Tensor", other.into();
    /// As [`Tensor::ge`], in place.
    fn ge_(other: impl Into<Operand>) = "ge_.Tensor", other.into();
    /// Bits set in both.
    fn bitwise_and(other: impl Into<Operand>) = "bitwise_and.Tensor", other.into();
    /// As [`Tensor::bitwise_and`], in place.
    fn bitwise_and_(other: impl Into<Operand>) = "bitwise_and_.Tensor", other.into();
    /// Bits set in either.
    fn bitwise_or(other: impl Into<Operand>) = "bitwise_or.Tensor", other.into();
    /// As [`Tensor::bitwise_or`], in place.
    fn bitwise_or_(other: impl Into<Operand>) = "bitwise_or_.Tensor", other.into();
    /// Bits set in one of the two.
    fn bitwise_xor(other: impl Into<Operand>) = "bitwise_xor.Tensor", other.into();
    /// As [`Tensor::bitwise_xor`], in place.
    fn bitwise_xor_(other: impl Into<Operand>) = "bitwise_xor_.Tensor", other.into();
    /// Bits moved up.
    fn bitwise_left_shift(other: impl Into<Operand>) = "bitwise_left_shift.Tensor", other.into();
    /// As [`Tensor::bitwise_left_shift`], in place.
    fn bitwise_left_shift_(other: impl Into<Operand>) = "bitwise_left_shift_.Tensor", other.into();
    /// Bits moved down, with the sign.
    fn bitwise_right_shift(other: impl Into<Operand>) = "bitwise_right_shift.Tensor", other.into();
    /// As [`Tensor::bitwise_right_shift`], in place.
    fn bitwise_right_shift_(other: impl Into<Operand>) =
        "bitwise_right_shift_.Tensor", other.into();
    /// Where both are nonzero.
    fn logical_and(other: impl Into<Operand>) = "logical_and", other.into();
    /// As [`Tensor::logical_and`], in place.
    fn logical_and_(other: impl Into<Operand>) = "logical_and_", other.into();
    /// Where either is nonzero.
    fn logical_or(other: impl Into<Operand>) = "logical_or", other.into();
    /// As [`Tensor::logical_or`], in place.
    fn logical_or_(other: impl Into<Operand>) = "logical_or_", other.into();
    /// Where one of the two is nonzero.
    fn logical_xor(other: impl Into<Operand>) = "logical_xor", other.into();
    /// As [`Tensor::logical_xor`], in place.
    fn logical_xor_(other: impl Into<Operand>) = "logical_xor_", other.into();
    /// The larger; NaN where either is.
    fn maximum(other: impl Into<Operand>) = "maximum", other.into();
    /// The smaller; NaN where either is.
    fn minimum(other: impl Into<Operand>) = "minimum", other.into();
    /// The larger; a number rather than NaN.
    fn fmax(other: impl Into<Operand>) = "fmax", other.into();
    /// The smaller; a number rather than NaN.
    fn fmin(other: impl Into<Operand>) = "fmin", other.into();
    /// The angle of the point (`other`, `self`), in radians.
    fn atan2(other: impl Into<Operand>) = "atan2", other.into();
    /// As [`Tensor::atan2`], in place.
    fn atan2_(other: impl Into<Operand>) = "atan2_", other.into();
    /// The length of the hypotenuse.
    fn hypot(other: impl Into<Operand>) = "hypot", other.into();
    /// As [`Tensor::hypot`], in place.
    fn hypot_(other: impl Into<Operand>) = "hypot_", other.into();
    /// The magnitude with the other's sign.
    fn copysign(other: impl Into<Operand>) = "copysign.Tensor", other.into();
    /// As [`Tensor::copysign`], in place.
    fn copysign_(other: impl Into<Operand>) = "copysign_.Tensor", other.into();
    /// `self log(other)`, 0 where `self` is 0.
    fn xlogy(other: impl Into<Operand>) = "xlogy.Tensor", other.into();
    /// As [`Tensor::xlogy`], in place.
    fn xlogy_(other: impl Into<Operand>) = "xlogy_.Tensor", other.into();
    /// `log(exp(self) + exp(other))`, without overflow.
    fn logaddexp(other: impl Into<Operand>) = "logaddexp", other.into();
    /// The step function; `other` at 0.
    fn heaviside(other: impl Into<Operand>) = "heaviside", other.into();
    /// As [`Tensor::heaviside`], in place.
    fn heaviside_(other: impl Into<Operand>) = "heaviside_", other.into();
    /// `other - self`.
    fn rsub(other: impl Into<Operand>) = "rsub.Tensor", other.into();
    /// `self + alpha other`.
    fn add_alpha(other: impl Into<Operand>, alpha: impl Into<Scalar>) =
        "add.Tensor", other.into(), alpha.into();
    /// As [`Tensor::add_alpha`], in place.
    fn add_alpha_(other: impl Into<Operand>, alpha: impl Into<Scalar>) =
        "add_.Tensor", other.into(), alpha.into();
    /// `self - alpha other`.
    fn sub_alpha(other: impl Into<Operand>, alpha: impl Into<Scalar>) =
        "sub.Tensor", other.into(), alpha.into();
    /// As [`Tensor::sub_alpha`], in place.
    fn sub_alpha_(other: impl Into<Operand>, alpha: impl Into<Scalar>) =
        "sub_.Tensor", other.into(), alpha.into();
    /// The quotient rounded by `"trunc"` or `"floor"`.
    fn div_mode(other: impl Into<Operand>, rounding_mode: &str) =
        "div.Tensor_mode", other.into(), rounding_mode;
    /// As [`Tensor::div_mode`], in place.
    fn div_mode_(other: impl Into<Operand>, rounding_mode: &str) =
        "div_.Tensor_mode", other.into(), rounding_mode;
    /// To `decimals` places after the point; before it where negative.
    fn round_decimals(decimals: i64) = "round.decimals", decimals;
    /// `log(x / (1 - x))`, of `x` brought into `[eps, 1 - eps]` where `eps` is given.
    fn logit(eps: Option<f64>) = "logit", eps;
    /// NaN and the infinities as these numbers; `None` gives 0 and the dtype's largest.
    fn nan_to_num(nan: Option<f64>, posinf: Option<f64>, neginf: Option<f64>) =
        "nan_to_num", nan, posinf, neginf;
    /// `x Phi(x)`; `approximate` is `"none"` or `"tanh"`.
    fn gelu_approximate(approximate: &str) = "gelu", approximate;
    /// `x` above 0, `alpha (exp(x) - 1)` below.
    fn elu(alpha: impl Into<Scalar>) = "elu", alpha.into();
    /// As [`Tensor::elu`], in place.
    fn elu_(alpha: impl Into<Scalar>) = "elu_", alpha.into();
    /// `x` above 0, `negative_slope x` below.
    fn leaky_relu(negative_slope: impl Into<Scalar>) = "leaky_relu", negative_slope.into();
    /// As [`Tensor::leaky_relu`], in place.
    fn leaky_relu_(negative_slope: impl Into<Scalar>) = "leaky_relu_", negative_slope.into();
    /// `log(1 + exp(beta x)) / beta`; `x` itself where `beta x` is above `threshold`.
    fn softplus(beta: impl Into<Scalar>, threshold: impl Into<Scalar>) =
        "softplus", beta.into(), threshold.into();
    /// `x` brought into `[min_val, max_val]`.
    fn hardtanh(min_val: impl Into<Scalar>, max_val: impl Into<Scalar>) =
        "hardtanh", min_val.into(), max_val.into();
    /// `x` above `threshold`, else `value`.
    fn threshold(threshold: impl Into<Scalar>, value: impl Into<Scalar>) =
        "threshold", threshold.into(), value.into();
    /// Not below `min`.
    fn clamp_min(min: impl Into<Operand>) = "clamp_min.Tensor", min.into();
    /// As [`Tensor::clamp_min`], in place.
    fn clamp_min_(min: impl Into<Operand>) = "clamp_min_.Tensor", min.into();
    /// Not above `max`.
    fn clamp_max(max: impl Into<Operand>) = "clamp_max.Tensor", max.into();
    /// As [`Tensor::clamp_max`], in place.
    fn clamp_max_(max: impl Into<Operand>) = "clamp_max_.Tensor", max.into();
    /// Between `min` and `max`.
    fn clamp(min: impl Into<Scalar>, max: impl Into<Scalar>) = "clamp", min.into(), max.into();
    /// As [`Tensor::clamp`], in place.
    fn clamp_(min: impl Into<Scalar>, max: impl Into<Scalar>) = "clamp_", min.into(), max.into();
    /// `value` where `mask` holds, `self` elsewhere.
    fn masked_fill(mask: &Tensor, value: impl Into<Scalar>) =
        "masked_fill.Scalar", mask, value.into();
    /// As [`Tensor::masked_fill`], in place.
    fn masked_fill_(mask: &Tensor, value: impl Into<Scalar>) =
        "masked_fill_.Scalar", mask, value.into();
    /// The point at `weight` of the way from `self` to `end`.
    fn lerp(end: &Tensor, weight: impl Into<Scalar>) = "lerp.Scalar", end, weight.into();
    /// As [`Tensor::lerp`], in place.
    fn lerp_(end: &Tensor, weight: impl Into<Scalar>) = "lerp_.Scalar", end, weight.into();
    /// `self + value tensor1 tensor2`.
    fn addcmul(tensor1: &Tensor, tensor2: &Tensor, value: impl Into<Scalar>) =
        "addcmul", tensor1, tensor2, value.into();
    /// As [`Tensor::addcmul`], in place.
    fn addcmul_(tensor1: &Tensor, tensor2: &Tensor, value: impl Into<Scalar>) =
        "addcmul_", tensor1, tensor2, value.into();
    /// `self + value tensor1 / tensor2`.
    fn addcdiv(tensor1: &Tensor, tensor2: &Tensor, value: impl Into<Scalar>) =
        "addcdiv", tensor1, tensor2, value.into();
    /// As [`Tensor::addcdiv`], in place.
    fn addcdiv_(tensor1: &Tensor, tensor2: &Tensor, value: impl Into<Scalar>) =
        "addcdiv_", tensor1, tensor2, value.into();
    /// Every element set to `value`.
    fn fill_(value: impl Into<Scalar>) = "fill_.Scalar", value.into();
}

impl Tensor {
    /// Each element to the power of `exponent`, a number or a tensor.
    ///
    /// PyTorch: `aten::pow.Tensor_Scalar` or `aten::pow.Tensor_Tensor`.
    #[track_caller]
    pub fn pow(&self, exponent: impl Into<Operand>) -> Tensor {
        match exponent.into().0 {
            Value::Tensor(e) => aten!("pow.Tensor_Tensor", Loc::caller(); self, e),
            e => aten!("pow.Tensor_Scalar", Loc::caller(); self, e),
        }
    }

    /// As [`Tensor::pow`], in place.
    #[track_caller]
    pub fn pow_(&self, exponent: impl Into<Operand>) -> Tensor {
        match exponent.into().0 {
            Value::Tensor(e) => aten!("pow_.Tensor", Loc::caller(); self, e),
            e => aten!("pow_.Scalar", Loc::caller(); self, e),
        }
    }

    /// `a` where this condition holds, `b` elsewhere.
    ///
    /// PyTorch: `aten::where.self`.
    #[track_caller]
    pub fn where_(&self, a: impl Into<Operand>, b: impl Into<Operand>) -> Tensor {
        let loc = Loc::caller();
        match (a.into().0, b.into().0) {
            (Value::Tensor(a), Value::Tensor(b)) => aten!("where.self", loc; self, a, b),
            (Value::Tensor(a), b) => aten!("where.ScalarOther", loc; self, a, b),
            (a, Value::Tensor(b)) => aten!("where.ScalarSelf", loc; self, a, b),
            (a, b) => aten!("where.Scalar", loc; self, a, b),
        }
    }
}
