//! Element types.

use std::fmt;
use std::str::FromStr;

/// The element type of a tensor. Graph text uses Rust-like names (`f32`, `i64`);
/// [`DType::torch_name`] gives PyTorch's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum DType {
    /// One byte, 0 or 1.
    Bool,
    /// Unsigned 8-bit integer.
    U8,
    /// Signed 8-bit integer.
    I8,
    /// Signed 16-bit integer.
    I16,
    /// Signed 32-bit integer.
    I32,
    /// Signed 64-bit integer.
    I64,
    /// IEEE 754 half precision.
    F16,
    /// bfloat16: the upper half of an `f32`.
    BF16,
    /// IEEE 754 single precision.
    F32,
    /// IEEE 754 double precision.
    F64,
}

/// The categories of PyTorch's type promotion, in increasing order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Category {
    /// `bool`.
    Bool,
    /// Signed and unsigned integers.
    Int,
    /// Floating point.
    Float,
}

/// Each dtype with its short name and PyTorch's name, in declaration order.
const NAMES: [(DType, &str, &str); 10] = [
    (DType::Bool, "bool", "torch.bool"),
    (DType::U8, "u8", "torch.uint8"),
    (DType::I8, "i8", "torch.int8"),
    (DType::I16, "i16", "torch.int16"),
    (DType::I32, "i32", "torch.int32"),
    (DType::I64, "i64", "torch.int64"),
    (DType::F16, "f16", "torch.float16"),
    (DType::BF16, "bf16", "torch.bfloat16"),
    (DType::F32, "f32", "torch.float32"),
    (DType::F64, "f64", "torch.float64"),
];

impl DType {
    /// Every dtype, in declaration order.
    pub const ALL: [DType; 10] = [
        DType::Bool,
        DType::U8,
        DType::I8,
        DType::I16,
        DType::I32,
        DType::I64,
        DType::F16,
        DType::BF16,
        DType::F32,
        DType::F64,
    ];

    /// Bytes per element.
    pub const fn size(self) -> usize {
        match self {
            DType::Bool | DType::U8 | DType::I8 => 1,
            DType::I16 | DType::F16 | DType::BF16 => 2,
            DType::I32 | DType::F32 => 4,
            DType::I64 | DType::F64 => 8,
        }
    }

    /// The promotion category.
    pub const fn category(self) -> Category {
        match self {
            DType::Bool => Category::Bool,
            DType::U8 | DType::I8 | DType::I16 | DType::I32 | DType::I64 => Category::Int,
            DType::F16 | DType::BF16 | DType::F32 | DType::F64 => Category::Float,
        }
    }

    /// Whether this is `f16`, `bf16`, `f32` or `f64`.
    pub const fn is_float(self) -> bool {
        matches!(self.category(), Category::Float)
    }

    /// Whether this is an integer dtype; `bool` is not.
    pub const fn is_int(self) -> bool {
        matches!(self.category(), Category::Int)
    }

    /// The dtype in which kernels compute with elements of this dtype: `f32` for narrow floats,
    /// `i64` for all integers, otherwise the dtype itself.
    pub const fn accumulator(self) -> DType {
        match self.category() {
            Category::Bool => DType::Bool,
            Category::Int => DType::I64,
            Category::Float if matches!(self, DType::F64) => DType::F64,
            Category::Float => DType::F32,
        }
    }

    /// The least and the greatest value of an integer dtype.
    pub const fn int_range(self) -> Option<(i64, i64)> {
        match self {
            DType::U8 => Some((0, u8::MAX as i64)),
            DType::I8 => Some((i8::MIN as i64, i8::MAX as i64)),
            DType::I16 => Some((i16::MIN as i64, i16::MAX as i64)),
            DType::I32 => Some((i32::MIN as i64, i32::MAX as i64)),
            DType::I64 => Some((i64::MIN, i64::MAX)),
            _ => None,
        }
    }

    /// The largest finite value of a floating-point dtype.
    pub const fn largest_float(self) -> Option<f64> {
        match self {
            DType::F16 => Some(half::f16::MAX.to_f64_const()),
            DType::BF16 => Some(half::bf16::MAX.to_f64_const()),
            DType::F32 => Some(f32::MAX as f64),
            DType::F64 => Some(f64::MAX),
            _ => None,
        }
    }

    /// Whether every value of `other` is exactly representable in this dtype, so that a conversion
    /// to it and back is lossless.
    pub const fn holds(self, other: DType) -> bool {
        use DType::{BF16, Bool, F16, F32, F64, I8, I16, I32, I64, U8};
        match (self, other) {
            (_, Bool) | (I16 | I32 | I64 | F16 | BF16 | F32 | F64, U8 | I8) => true,
            (I32 | I64 | F32 | F64, I16) | (I64 | F64, I32) => true,
            (F32 | F64, F16 | BF16) | (F64, F32) => true,
            (wide, narrow) => wide as u8 == narrow as u8,
        }
    }

    /// The short name that graph text uses: `f32`.
    pub const fn name(self) -> &'static str {
        NAMES[self as usize].1
    }

    /// PyTorch's name: `torch.float32`.
    pub const fn torch_name(self) -> &'static str {
        NAMES[self as usize].2
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The error of a text that names no dtype.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown dtype `{0}`; expected one of bool, u8, i8, i16, i32, i64, f16, bf16, f32, f64")]
pub struct ParseDTypeError(pub String);

impl FromStr for DType {
    type Err = ParseDTypeError;

    /// Accepts `f32`, `torch.float32`, `float32`, and PyTorch's old names (`float`, `double`,
    /// `half`, `long`, `int`, `short`).
    fn from_str(s: &str) -> Result<Self, Self::Err> {
        let bare = s.strip_prefix("torch.").unwrap_or(s);
        if let Some(&(d, ..)) =
            NAMES.iter().find(|(_, short, torch)| *short == s || torch[6..] == *bare)
        {
            return Ok(d);
        }
        match bare {
            "float" => Ok(DType::F32),
            "double" => Ok(DType::F64),
            "half" => Ok(DType::F16),
            "long" => Ok(DType::I64),
            "int" => Ok(DType::I32),
            "short" => Ok(DType::I16),
            _ => Err(ParseDTypeError(s.to_owned())),
        }
    }
}
