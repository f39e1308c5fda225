//! CPU executors of the kernel classes, over raw strided buffers.
//!
//! Every executor is a safe function over [`View`]s. Creating a view from raw parts is the only
//! unsafe step for callers. Executors do not panic: operands that do not fit together are a
//! [`KernelError`].
//!
//! Results have the same bits with any number of threads and on every instruction set.
//!
//! **Architecture invariant:** this crate knows no tensor, graph or operator.
#![deny(unsafe_op_in_unsafe_fn)]
#![warn(missing_docs)]

mod attention;
mod conv;
mod copy;
mod driver;
mod element;
mod error;
mod gemm;
mod index;
mod isa;
mod layer_norm;
mod layout;
mod load_store;
mod loops;
mod math;
mod pages;
mod peak_loops;
mod pointwise;
mod pooling;
mod random;
mod reduce;
mod row_loops;
mod scan;
mod scratch;
mod softmax;
mod sort;
#[cfg(test)]
mod tests;
mod thread_pool;
mod view;
mod window;

pub use attention::{Attention, attention, attention_backward};
pub use conv::{conv, conv_transpose};
pub use copy::{copy, fill};
pub use driver::{host_backend, host_memory, host_queue};
pub use element::{Class, Element};
pub use error::KernelError;
pub use gemm::{Activation, Epilogue, PackedMatrix, batched_gemm, gemm, packed_product, product};
pub use index::{
    ScatterOp, Source, count_nonzero, embedding_backward, gather, index, index_put, masked_scatter,
    masked_select, nonzero, scatter,
};
pub use isa::Isa;
pub use layer_norm::{LayerNorm, LayerNormBackward, layer_norm, layer_norm_backward};
pub use loops::{KernelFunctions, LoopKernel, without_specialisations};
pub use peak_loops::{multiply_adds_f32, multiply_adds_f64, read_words};
pub use pointwise::{ContiguousKernel, pointwise, pointwise_on};
pub use pooling::{adaptive_avg_pool, avg_pool, max_pool};
pub use random::{Philox, normal, philox4x32, randint, uniform};
pub use reduce::{ReduceOp, argminmax, minmax_with_index, reduce, reduce_on};
pub use scan::{ScanOp, cumulative_extreme, scan};
pub use softmax::{log_softmax, softmax};
pub use sort::{sort, topk};
pub use thread_pool::{num_threads, occupying_a_core, with_num_threads};
pub use view::{Dims, View, ViewMut};
pub use window::Window;
