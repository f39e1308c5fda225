//! Rust types that are tensor elements.

use half::{bf16, f16};

/// A Rust type that a tensor element can be read or written as. Its dtype is [`DTYPE`](maquette_kernels::Element::DTYPE); the set is
/// closed.
pub trait Element: maquette_kernels::Element {}

// not for every `T: maquette_kernels::Element`: with a list of types, an array of elements is known not to be one
macro_rules! elements {
    ($($t:ty),*) => { $(impl Element for $t {})* };
}
elements!(bool, u8, i8, i16, i32, i64, f16, bf16, f32, f64);
