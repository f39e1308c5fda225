//! The reference interpreter: [`Interpreter`] runs graphs operator by operator.

/// Runs a graph, a functional graph, or a functional graph in the memory of a buffer plan.
///
/// ```
/// use maquette::interp::Interpreter;
/// use maquette::prelude::*;
///
/// // Graphs come from a trace, or from text.
/// let graph: Graph = "graph double(%x: f32[2]) -> (f32[2])
/// {
///   %mul: f32[2] = aten::mul.Tensor(%x, 2.0)
///   return %mul
/// }"
/// .parse()?;
/// graph.verify()?;
/// let x = Tensor::from([1.0f32, 2.0]);
/// let run = Interpreter::new(&graph).run(&[Value::from(&x)])?;
/// assert_eq!(run.results[0].tensor()?.to_vec::<f32>()?, [2.0, 4.0]);
/// # Ok::<(), Error>(())
/// ```
pub use maquette_interp::Interpreter;
pub use maquette_interp::*;
pub use maquette_invoke::*;
