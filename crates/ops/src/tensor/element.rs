//! Rust types that are tensor elements.

use half::{bf16, f16};

/// A Rust type that tensor elements can be read and written as. Its dtype is
/// [`DTYPE`](maquette_kernels::Element::DTYPE). The trait is sealed.
pub trait Element: maquette_kernels::Element {}

// no blanket impl over `maquette_kernels::Element`: with a closed list the compiler knows that
// arrays of elements are not elements, which `From<[[T; N]; M]>` needs
macro_rules! elements {
    ($($t:ty),*) => { $(impl Element for $t {})* };
}
elements!(bool, u8, i8, i16, i32, i64, f16, bf16, f32, f64);

/// Evaluates an expression with a type name bound to the Rust type of a dtype: `typed!(t.dtype(), T
/// => t.to_vec::<T>().map(drop))`.
#[macro_export]
macro_rules! typed {
    ($dtype:expr, $T:ident => $body:expr) => {{
        use $crate::__private::DType as D;
        match $dtype {
            D::Bool => $crate::typed!(@ bool, $T, $body),
            D::U8 => $crate::typed!(@ u8, $T, $body),
            D::I8 => $crate::typed!(@ i8, $T, $body),
            D::I16 => $crate::typed!(@ i16, $T, $body),
            D::I32 => $crate::typed!(@ i32, $T, $body),
            D::I64 => $crate::typed!(@ i64, $T, $body),
            D::F16 => $crate::typed!(@ $crate::__private::f16, $T, $body),
            D::BF16 => $crate::typed!(@ $crate::__private::bf16, $T, $body),
            D::F32 => $crate::typed!(@ f32, $T, $body),
            D::F64 => $crate::typed!(@ f64, $T, $body),
        }
    }};
    (@ $t:ty, $T:ident, $body:expr) => {{
        type $T = $t;
        $body
    }};
}
