//! The documented error bounds of the elementary functions. The binary `ulp` and CI fail if a
//! function exceeds its bound.

use maquette_ir::DType;

/// The maximum error of a function, in ULP of the dtype.
#[derive(Clone, Copy, Debug)]
pub struct Bound {
    /// The name of the function in the scalar language.
    pub name: &'static str,
    /// The bound for `f32`, over all arguments.
    pub f32: f64,
    /// The bound for `f64`, over the sampled arguments.
    pub f64: f64,
}

impl Bound {
    /// The bound for a dtype. `f16` and `bf16` compute in `f32` and round once, and one ULP of
    /// theirs is 2^13 or 2^16 ULP of `f32`.
    pub fn of(&self, dtype: DType) -> f64 {
        match dtype {
            DType::F64 => self.f64,
            DType::F32 => self.f32,
            DType::F16 => 0.5 + self.f32 / 8192.0,
            _ => 0.5 + self.f32 / 65536.0,
        }
    }
}

/// The bound of a function; `None` if it has none.
pub fn bound(name: &str) -> Option<&'static Bound> {
    BOUNDS.iter().find(|b| b.name == name)
}

const fn ulp(name: &'static str, f32: f64, f64: f64) -> Bound {
    Bound { name, f32, f64 }
}

/// The bounds of all functions.
pub const BOUNDS: &[Bound] = &[
    ulp("exp", 0.92, 1.0),
    ulp("exp2", 0.51, 1.0),
    ulp("expm1", 0.51, 1.0),
    ulp("log", 0.9, 1.0),
    ulp("log2", 0.51, 1.0),
    ulp("log10", 0.51, 1.0),
    ulp("log1p", 0.51, 1.0),
    ulp("sin", 0.54, 1.0),
    ulp("cos", 0.54, 1.0),
    ulp("tan", 0.51, 1.0),
    ulp("asin", 0.51, 1.0),
    ulp("acos", 0.51, 1.0),
    ulp("atan", 0.51, 1.0),
    ulp("sinh", 0.51, 2.5),
    ulp("cosh", 0.51, 2.0),
    ulp("tanh", 1.25, 2.5),
    ulp("asinh", 0.51, 2.0),
    ulp("acosh", 0.51, 2.5),
    ulp("atanh", 0.51, 2.0),
    ulp("erf", 1.2, 1.0),
    ulp("erfc", 0.51, 3.0),
    ulp("sigmoid", 2.5, 2.5),
    ulp("sqrt", 0.5, 0.5),
    ulp("rsqrt", 1.5, 1.5),
    ulp("reciprocal", 0.5, 0.5),
    ulp("pow", 0.51, 1.0),
    ulp("atan2", 0.51, 2.0),
    ulp("hypot", 0.51, 1.0),
    ulp("fmod", 0.0, 0.0),
    ulp("remainder", 0.51, 0.51),
];
