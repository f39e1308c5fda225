//! Products: of matrices, by subscripts, of recurrent layers and of attention.

pub(crate) mod attention;
pub mod attention_parts;
pub(crate) mod derivative;
pub(crate) mod einsum;
pub(crate) mod layers;
pub(crate) mod matmul;
pub(crate) mod matrix;
pub(crate) mod others;
pub(crate) mod rnn;
