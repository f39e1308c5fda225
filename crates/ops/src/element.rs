//! Rust types that are tensor elements.

use half::{bf16, f16};
use maquette_ir::DType;

mod sealed {
    pub trait Sealed {}
}

/// A Rust type that a tensor element can be read or written as. Sealed: the dtypes are fixed.
pub trait Element: sealed::Sealed + Copy + Send + Sync + Default + PartialEq + std::fmt::Debug + 'static {
    /// The dtype of this type.
    const DTYPE: DType;
}

macro_rules! element {
    ($($t:ty => $d:ident),* $(,)?) => {
        $(impl sealed::Sealed for $t {}
        impl Element for $t { const DTYPE: DType = DType::$d; })*
    };
}
element!(bool => Bool, u8 => U8, i8 => I8, i16 => I16, i32 => I32, i64 => I64, f16 => F16, bf16 => BF16, f32 => F32, f64 => F64);
