//! Special functions. Functions that need loops, series or tables are written for plain numbers and
//! applied elementwise (`elementwise`). Functions with short formulas are pointwise operators.

mod alias;
mod bessel;
pub(crate) mod derivative;
mod elementwise;
mod erf;
mod exact;
mod gamma;
mod incomplete;
mod polynomial;
mod scan;

use elementwise::{Takes, meta, metas, round_to, values};
use maquette_ir::DType;
use maquette_ops::operator::Derivative;
use maquette_ops::operator::dims::done;
use maquette_ops::operator::lowering::{Class, Compute, How, Lowering, Metas, Strides};
use maquette_ops::operator::{host, table};
use maquette_ops::{Error, Meta, Outputs, Result, Tensor, Value, args};
use smallvec::smallvec;

const fn scalar(
    metas: fn(&maquette_ops::FakeCtx, &[Value]) -> Result<Metas>,
    run: fn(&[Value], &[Tensor]) -> Result<()>,
) -> Lowering {
    Lowering::Compute(Compute {
        class: Class::Scalar,
        strides: Strides::FromOperands,
        metas,
        how: How::Host(run),
    })
}

/// A function of one or two numbers, with the dtypes that it accepts. A function of two integers
/// computes in their dtype.
macro_rules! each {
    (Integers, |$d:ident, $x:ident, $y:ident| $f:expr) => {
        scalar(
            |_, a| metas(a, Takes::Integers),
            |a, o| {
                let $d = Takes::Integers.dtype(a)?;
                elementwise::integers(&a[0], &a[1], o, &|$x, $y| $f)
            },
        )
    };
    ($takes:ident, |$x:ident| $f:expr) => {
        scalar(|_, a| metas(a, Takes::$takes), |a, o| elementwise::unary(&a[0], o, &|$x| $f))
    };
    ($takes:ident, |$x:ident, $y:ident| $f:expr) => {
        scalar(
            |_, a| metas(a, Takes::$takes),
            |a, o| elementwise::binary(&a[0], &a[1], o, &|$x, $y| $f),
        )
    };
    ($takes:ident, |$d:ident, $x:ident, $y:ident| $f:expr) => {
        scalar(
            |_, a| metas(a, Takes::$takes),
            |a, o| {
                let $d = Takes::$takes.dtype(a)?;
                elementwise::binary(&a[0], &a[1], o, &|$x, $y| $f)
            },
        )
    };
}

/// The metadata of `polygamma`. The arguments are `n, self`.
fn polygamma_metas(args: &[Value]) -> Result<Metas> {
    match args[0].int()?.as_i64() {
        Some(n) if n < 0 => Err(Error::value(format!(
            "`n`, the order of the derivative, must not be negative, found {n}"
        ))),
        _ => metas(&args[1..], Takes::Numbers),
    }
}

fn polygamma(args: &[Value], outs: &[Tensor]) -> Result<()> {
    let (n, narrow) = (args[0].int_i64()?, Takes::Numbers.dtype(&args[1..])? != DType::F64);
    elementwise::unary(&args[1], outs, &|x| gamma::polygamma(n, x, narrow))
}

/// `polygamma_`. The arguments are `self, n`, in another order than those of `polygamma`.
fn polygamma_in_place(a: &[Value]) -> Result<Outputs> {
    let (target, n) = (a[0].tensor()?, a[1].int()?);
    if !target.dtype().is_float() {
        return Err(Error::value(format!(
            "the result is a float, which cannot be written into a tensor of dtype {}",
            target.dtype()
        )));
    }
    let derivative = maquette_ops::call("aten::polygamma", args![n, target])?[0].clone();
    maquette_ops::call("aten::copy_", smallvec![a[0].clone(), derivative])
}

/// The metadata of `mvlgamma`. The result is row-major, since PyTorch computes a sum over an added
/// dimension.
fn mvlgamma_metas(args: &[Value]) -> Result<Metas> {
    let (x, p) = (args[0].tensor()?, args[1].int()?);
    // The computation takes `p` terms for every element.
    const MOST: i64 = 1 << 24;
    if p.as_i64().is_some_and(|p| !(1..=MOST).contains(&p)) {
        return Err(Error::value(format!(
            "`p`, the number of dimensions, must be at least 1 and at most {MOST}, found {p}"
        )));
    }
    if x.dtype() == DType::Bool {
        return Err(Error::value("`self` must hold numbers, found bool"));
    }
    Ok(smallvec![Meta::contiguous(x.sizes(), Takes::Numbers.dtype(&args[..1])?).on(x.device())])
}

fn mvlgamma(args: &[Value], outs: &[Tensor]) -> Result<()> {
    let (p, round) = (args[1].int_i64()?, round_to(Takes::Numbers.dtype(&args[..1])?));
    elementwise::unary(&args[0], outs, &|x| gamma::mvlgamma(x, p, round))
}

fn frexp_metas(args: &[Value]) -> Result<Metas> {
    let mantissa = meta(args, Takes::Floats.dtype(args)?)?;
    let exponent = mantissa.clone().with_dtype(DType::I32);
    Ok(smallvec![mantissa, exponent])
}

fn frexp(args: &[Value], outs: &[Tensor]) -> Result<()> {
    let (mantissas, exponents): (Vec<f64>, Vec<f64>) =
        host::reals(args[0].tensor()?)?.into_iter().map(exact::frexp).unzip();
    host::store_reals(&outs[0], &mantissas)?;
    host::store_reals(&outs[1], &exponents)
}

fn ldexp(args: &[Value], outs: &[Tensor]) -> Result<()> {
    let out = &outs[0];
    let exponent = match &args[1] {
        Value::Tensor(t) => t.dtype(),
        Value::Float(_) => DType::F64,
        _ => DType::I64,
    };
    let (x, n) = (values(&args[0], out.dtype(), out)?, values(&args[1], exponent, out)?);
    let y: Vec<f64> = x.into_iter().zip(n).map(|(x, n)| exact::ldexp(exponent, x, n)).collect();
    host::store_reals(out, &y)
}

fn as_f64(v: &Value) -> Result<Value> {
    Ok(match v {
        Value::Tensor(t) => maquette_ops::call("aten::to.dtype", args![t, DType::F64])?[0].clone(),
        number => Value::Float(number.scalar()?.to_f64()),
    })
}

/// `float_power`: a power in `f64`, for all operands.
fn float_power(op: &str, args: &[Value]) -> Result<Outputs> {
    maquette_ops::call(op, smallvec![as_f64(&args[0])?, as_f64(&args[1])?])
}

fn float_power_in_place(op: &str, args: &[Value]) -> Result<Outputs> {
    let base = args[0].tensor()?;
    if base.dtype() != DType::F64 {
        return Err(Error::value(format!(
            "`self` must be f64, which the result is, found {}",
            base.dtype()
        )));
    }
    done(
        maquette_ops::call(op, smallvec![args[0].clone(), as_f64(&args[1])?])?[0].tensor()?.clone(),
    )
}

table! {
    /// Functions of one or two numbers.
    static TABLE = {
        "aten::lgamma(Tensor self) -> Tensor" => {
            role: General,
            lowering: each!(Numbers, |x| gamma::lgamma(x)),
            vjp: crate::grad::LGAMMA,
        },
        "aten::lgamma_(Tensor(a!) self) -> Tensor(a!)" => {
            role: General,
            lowering: Lowering::InPlace("aten::lgamma"),
        },
        "aten::digamma(Tensor self) -> Tensor" => {
            role: General,
            lowering: each!(Numbers, |x| gamma::digamma(x)),
            vjp: crate::grad::DIGAMMA,
        },
        "aten::digamma_(Tensor(a!) self) -> Tensor(a!)" => {
            role: General,
            lowering: Lowering::InPlace("aten::digamma"),
        },
        "aten::polygamma(int n, Tensor self) -> Tensor" => {
            role: General,
            lowering: scalar(|_, a| polygamma_metas(a), polygamma),
            vjp: crate::grad::POLYGAMMA,
        },
        "aten::polygamma_(Tensor(a!) self, int n) -> Tensor(a!)" => {
            role: General,
            lowering: Lowering::Composite(polygamma_in_place),
            vjp: crate::grad::POLYGAMMA_IN_PLACE,
        },
        "aten::mvlgamma(Tensor self, int p) -> Tensor" => {
            role: General,
            lowering: scalar(|_, a| mvlgamma_metas(a), mvlgamma),
            vjp: crate::grad::MVLGAMMA,
        },
        "aten::mvlgamma_(Tensor(a!) self, int p) -> Tensor(a!)" => {
            role: General,
            lowering: Lowering::InPlace("aten::mvlgamma"),
        },
        "aten::igamma(Tensor self, Tensor other) -> Tensor" => {
            role: General,
            lowering: each!(Floats, |a, x| incomplete::lower(a, x)),
            vjp: crate::grad::IGAMMA,
        },
        "aten::igamma_(Tensor(a!) self, Tensor other) -> Tensor(a!)" => {
            role: General,
            lowering: Lowering::InPlace("aten::igamma"),
        },
        "aten::igammac(Tensor self, Tensor other) -> Tensor" => {
            role: General,
            lowering: each!(Floats, |a, x| incomplete::upper(a, x)),
            vjp: crate::grad::IGAMMAC,
        },
        "aten::igammac_(Tensor(a!) self, Tensor other) -> Tensor(a!)" => {
            role: General,
            lowering: Lowering::InPlace("aten::igammac"),
        },
        "aten::special_zeta(Tensor self, Tensor other) -> Tensor" => {
            role: General,
            lowering: each!(Wide, |x, q| gamma::zeta(x, q)),
            vjp: crate::grad::ZETA,
        },
        "aten::special_zeta.self_scalar(Scalar self, Tensor other) -> Tensor" => {
            role: General,
            lowering: each!(Wide, |x, q| gamma::zeta(x, q)),
            vjp: crate::grad::ZETA,
        },
        "aten::special_zeta.other_scalar(Tensor self, Scalar other) -> Tensor" => {
            role: General,
            lowering: each!(Wide, |x, q| gamma::zeta(x, q)),
            vjp: Derivative::Refused("PyTorch has none"),
        },
        "aten::erfinv(Tensor self) -> Tensor" => {
            role: General,
            lowering: each!(Numbers, |x| erf::erfinv(x)),
            vjp: crate::grad::ERFINV,
        },
        "aten::erfinv_(Tensor(a!) self) -> Tensor(a!)" => {
            role: General,
            lowering: Lowering::InPlace("aten::erfinv"),
        },
        "aten::special_erfcx(Tensor self) -> Tensor" => {
            role: General,
            lowering: each!(Wide, |x| erf::erfcx(x)),
            vjp: crate::grad::ERFCX,
        },
        "aten::special_ndtri(Tensor self) -> Tensor" => {
            role: General,
            lowering: each!(Wide, |x| erf::ndtri(x)),
            vjp: crate::grad::NDTRI,
        },
        "aten::special_log_ndtr(Tensor self) -> Tensor" => {
            role: General,
            lowering: each!(Wide, |x| erf::log_ndtr(x)),
            vjp: crate::grad::LOG_NDTR,
        },
        "aten::i0(Tensor self) -> Tensor" => {
            role: General,
            lowering: each!(Numbers, |x| bessel::i(0, x)),
            vjp: crate::grad::I0,
        },
        "aten::i0_(Tensor(a!) self) -> Tensor(a!)" => {
            role: General,
            lowering: Lowering::InPlace("aten::i0"),
        },
        "aten::special_i0e(Tensor self) -> Tensor" => {
            role: General,
            lowering: each!(Numbers, |x| bessel::scaled_i(0, x)),
            vjp: crate::grad::I0E,
        },
        "aten::special_i1(Tensor self) -> Tensor" => {
            role: General,
            lowering: each!(Numbers, |x| bessel::i(1, x)),
            vjp: crate::grad::I1,
        },
        "aten::special_i1e(Tensor self) -> Tensor" => {
            role: General,
            lowering: each!(Numbers, |x| bessel::scaled_i(1, x)),
            vjp: crate::grad::I1E,
        },
        "aten::special_modified_bessel_i0(Tensor self) -> Tensor" => {
            role: General,
            lowering: each!(Wide, |x| bessel::i(0, x)),
            vjp: crate::grad::MODIFIED_I0,
        },
        "aten::special_modified_bessel_i1(Tensor self) -> Tensor" => {
            role: General,
            lowering: each!(Wide, |x| bessel::i(1, x)),
            vjp: crate::grad::MODIFIED_I1,
        },
        "aten::special_modified_bessel_k0(Tensor self) -> Tensor" => {
            role: General,
            lowering: each!(Wide, |x| bessel::k(0, x)),
            vjp: crate::grad::MODIFIED_K0,
        },
        "aten::special_modified_bessel_k1(Tensor self) -> Tensor" => {
            role: General,
            lowering: each!(Wide, |x| bessel::k(1, x)),
            vjp: crate::grad::MODIFIED_K1,
        },
        "aten::special_scaled_modified_bessel_k0(Tensor x) -> Tensor" => {
            role: General,
            lowering: each!(Wide, |x| bessel::scaled_k(0, x)),
            vjp: crate::grad::SCALED_K0,
        },
        "aten::special_scaled_modified_bessel_k1(Tensor x) -> Tensor" => {
            role: General,
            lowering: each!(Wide, |x| bessel::scaled_k(1, x)),
            vjp: crate::grad::SCALED_K1,
        },
        "aten::special_bessel_j0(Tensor self) -> Tensor" => {
            role: General,
            lowering: each!(Wide, |x| bessel::finite(libm::j0, x)),
            vjp: crate::grad::BESSEL_J0,
        },
        "aten::special_bessel_j1(Tensor self) -> Tensor" => {
            role: General,
            lowering: each!(Wide, |x| bessel::finite(libm::j1, x)),
            vjp: crate::grad::BESSEL_J1,
        },
        "aten::special_bessel_y0(Tensor self) -> Tensor" => {
            role: General,
            lowering: each!(Wide, |x| bessel::finite(libm::y0, x)),
            vjp: crate::grad::BESSEL_Y0,
        },
        "aten::special_bessel_y1(Tensor self) -> Tensor" => {
            role: General,
            lowering: each!(Wide, |x| bessel::finite(libm::y1, x)),
            vjp: crate::grad::BESSEL_Y1,
        },
        "aten::special_spherical_bessel_j0(Tensor x) -> Tensor" => {
            role: General,
            lowering: each!(Wide, |x| bessel::spherical_j0(x)),
            vjp: Derivative::Refused("PyTorch has none"),
        },
        "aten::special_airy_ai(Tensor x) -> Tensor" => {
            role: General,
            lowering: each!(Wide, |x| bessel::airy_ai(x)),
            vjp: Derivative::Refused("PyTorch has none"),
        },
        "aten::gcd(Tensor self, Tensor other) -> Tensor" => {
            role: General,
            lowering: each!(Integers, |dtype, a, b| exact::gcd(dtype, a, b)),
            vjp: Derivative::None("the result is no float"),
        },
        "aten::gcd_(Tensor(a!) self, Tensor other) -> Tensor(a!)" => {
            role: General,
            lowering: Lowering::InPlace("aten::gcd"),
        },
        "aten::lcm(Tensor self, Tensor other) -> Tensor" => {
            role: General,
            lowering: each!(Integers, |dtype, a, b| exact::lcm(dtype, a, b)),
            vjp: Derivative::None("the result is no float"),
        },
        "aten::lcm_(Tensor(a!) self, Tensor other) -> Tensor(a!)" => {
            role: General,
            lowering: Lowering::InPlace("aten::lcm"),
        },
        "aten::nextafter(Tensor self, Tensor other) -> Tensor" => {
            role: General,
            lowering: each!(Floats, |dtype, x, y| exact::next_after(dtype, x, y)),
            vjp: crate::grad::IDENTITY,
        },
        "aten::nextafter_(Tensor(a!) self, Tensor other) -> Tensor(a!)" => {
            role: General,
            lowering: Lowering::InPlace("aten::nextafter"),
        },
        "aten::frexp.Tensor(Tensor self) -> (Tensor mantissa, Tensor exponent)" => {
            role: General,
            lowering: scalar(|_, a| frexp_metas(a), frexp),
            vjp: crate::grad::FREXP,
        },
        "aten::ldexp.Tensor(Tensor self, Tensor other) -> Tensor" => {
            role: General,
            lowering: scalar(|_, a| metas(a, Takes::Numbers), ldexp),
            vjp: crate::grad::LDEXP,
        },
        "aten::ldexp_(Tensor(a!) self, Tensor other) -> Tensor(a!)" => {
            role: General,
            lowering: Lowering::InPlace("aten::ldexp.Tensor"),
        },
        "aten::float_power.Tensor_Tensor(Tensor self, Tensor exponent) -> Tensor" => {
            role: General,
            lowering: Lowering::Composite(|a| float_power("aten::pow.Tensor_Tensor", a)),
        },
        "aten::float_power.Tensor_Scalar(Tensor self, Scalar exponent) -> Tensor" => {
            role: General,
            lowering: Lowering::Composite(|a| float_power("aten::pow.Tensor_Scalar", a)),
        },
        "aten::float_power.Scalar(Scalar self, Tensor exponent) -> Tensor" => {
            role: General,
            lowering: Lowering::Composite(|a| float_power("aten::pow.Scalar", a)),
        },
        "aten::float_power_.Tensor(Tensor(a!) self, Tensor exponent) -> Tensor(a!)" => {
            role: General,
            lowering: Lowering::Composite(|a| float_power_in_place("aten::pow_.Tensor", a)),
        },
        "aten::float_power_.Scalar(Tensor(a!) self, Scalar exponent) -> Tensor(a!)" => {
            role: General,
            lowering: Lowering::Composite(|a| float_power_in_place("aten::pow_.Scalar", a)),
        },
    }
}

/// The overloads of each polynomial: the point and the degree are tensors, or one of them is a
/// number.
macro_rules! polynomials {
    ($($name:literal $p:path;)*) => {
        table! {
            /// Orthogonal polynomials.
            static POLYNOMIALS = { $(
                concat!("aten::special_", $name, "(Tensor x, Tensor n) -> Tensor") => {
                    role: General,
                    lowering: each!(Wide, |dtype, x, n| polynomial::at(dtype, x, n, $p, $p)),
                    vjp: Derivative::Refused("PyTorch has none"),
                },
                concat!(
                    "aten::special_", $name, ".x_scalar(Scalar x, Tensor n) -> Tensor"
                ) => {
                    role: General,
                    lowering: each!(Wide, |dtype, x, n| polynomial::at(dtype, x, n, $p, $p)),
                    vjp: Derivative::Refused("PyTorch has none"),
                },
                concat!(
                    "aten::special_", $name, ".n_scalar(Tensor x, Scalar n) -> Tensor"
                ) => {
                    role: General,
                    lowering: each!(Wide, |dtype, x, n| polynomial::at(dtype, x, n, $p, $p)),
                    vjp: Derivative::Refused("PyTorch has none"),
                },
            )* }
        }
    };
}

polynomials! {
    "chebyshev_polynomial_t" polynomial::chebyshev_t;
    "chebyshev_polynomial_u" polynomial::chebyshev_u;
    "chebyshev_polynomial_v" polynomial::chebyshev_v;
    "chebyshev_polynomial_w" polynomial::chebyshev_w;
    "shifted_chebyshev_polynomial_t" polynomial::shifted_chebyshev_t;
    "shifted_chebyshev_polynomial_u" polynomial::shifted_chebyshev_u;
    "shifted_chebyshev_polynomial_v" polynomial::shifted_chebyshev_v;
    "shifted_chebyshev_polynomial_w" polynomial::shifted_chebyshev_w;
    "hermite_polynomial_h" polynomial::hermite_h;
    "hermite_polynomial_he" polynomial::hermite_he;
    "laguerre_polynomial_l" polynomial::laguerre_l;
    "legendre_polynomial_p" polynomial::legendre_p;
}
