//! Graphs compiled without a function or a module, and maps of their memory.

/// A program that the [passes](crate::pipeline) have made, ready to run on the CPU.
///
/// ```
/// use maquette::interp::SourceInfo;
/// use maquette::prelude::*;
/// use maquette::pipeline::{PassOptions, compile};
/// use maquette::runtime::Executable;
///
/// let graph: Graph = "graph double(%x: f32[2]) -> (f32[2])
/// {
///   %mul: f32[2] = aten::mul.Tensor(%x, 2.0)
///   return %mul
/// }"
/// .parse()?;
/// let executable = Executable::new(compile(&graph, &PassOptions::new())?.program)?;
/// let x = Tensor::from([1.0f32, 2.0]);
/// let results = executable.run(&[Value::from(&x)], &SourceInfo::of_caller())?;
/// assert_eq!(results[0].tensor()?.to_vec::<f32>()?, [2.0, 4.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub use maquette_runtime::Executable;
pub use maquette_runtime::memory_map::*;
