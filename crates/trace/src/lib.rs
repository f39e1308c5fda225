//! Tracing: runs a program once on fake tensors, and records its operator calls as a graph.
//!
//! ```
//! # use maquette_aten as _;
//! use maquette_ops::Tensor;
//! use maquette_trace::{Dim, TraceOptions};
//!
//! let x = Tensor::from_vec(vec![1.0f32, -2.0, 3.0], [3]);
//! let options = TraceOptions::new().dynamic(0, 0, Dim::new("batch")).names(["x"]);
//! let traced = options.trace(|x: Tensor| (x * 2.0).relu(), x)?;
//! assert_eq!(
//!     traced.to_string(),
//!     "graph graph(%x: f32[batch]) -> (f32[batch])
//!   where batch in [0, oo)
//! {
//!   %mul: f32[batch] = aten::mul.Tensor(%x, 2.0)
//!   %relu: f32[batch] = aten::relu(%mul)
//!   return %relu
//! }"
//! );
//! assert_eq!(traced.run(Tensor::from_vec(vec![1.0f32, -1.0], [2]))?.to_vec::<f32>()?, [2.0, 0.0]);
//! # Ok::<(), maquette_ops::Error>(())
//! ```
//!
//! Tracing reads and writes no tensor data: the sample inputs only give metadata. An existing
//! tensor that the program uses becomes a constant, which refers to the tensor's storage. Sizes are
//! numbers or symbols; see [`TraceOptions`].
//!
//! **Architecture invariant:** this crate executes no graph and knows no pass: [`Traced::run`]
//! calls the interpreter of `maquette-interp`, and a pass that replaces composites by the calls
//! that they make records these with a [`CompositeRecorder`].
#![deny(unsafe_code)]
#![warn(missing_docs)]

mod composites;
mod consts;
mod dim;
mod inputs;
mod memories;
mod op_record;
mod options;
mod real_propagation;
mod record;
mod state;
mod traced;
mod tracer;

pub use composites::CompositeRecorder;
pub use dim::Dim;
pub use inputs::LeafKind;
pub use options::{TraceOptions, trace};
pub use state::State;
pub use traced::{Interface, Traced, TracedProgram};

#[cfg(feature = "check")]
#[doc(hidden)]
pub use insta;

/// Compares the text of a graph, or of anything else that displays, with its snapshot, as
/// `insta::assert_snapshot!` does.
///
/// The snapshot is a file beside the test, named by the test or by the name that is given; with
/// `@"…"` it is in the code. Its header shows the expression as it is written in the test.
#[cfg(feature = "check")]
#[macro_export]
macro_rules! assert_graph_snapshot {
    ($name:literal, $graph:expr $(,)?) => {
        $crate::insta::assert_snapshot!($name, $graph)
    };
    ($graph:expr, @$snapshot:literal $(,)?) => {
        $crate::insta::assert_snapshot!($graph, @$snapshot)
    };
    ($graph:expr $(,)?) => {
        $crate::insta::assert_snapshot!($graph)
    };
}
