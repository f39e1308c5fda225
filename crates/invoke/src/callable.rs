//! Operators as a graph calls them.

use maquette_ir::graph::{Graph, MemoryFacts, OpFacts, StrId};
use maquette_ops::library::Facts;
use maquette_ops::{Op, Result, RunError};

/// An operator that a graph calls.
#[derive(Clone, Copy)]
pub struct Callable {
    /// The operator.
    pub op: Op,
    /// Whether its results may depend on the strides of its operands.
    pub observes_strides: bool,
    /// The argument that is an offset from the start of the storage, if there is one.
    pub absolute_offset_arg: Option<usize>,
    /// Whether only the kernel knows the elements of its views: those of the types are of the
    /// builtin operator that a registration overrides.
    pub chooses_views: bool,
}

impl Callable {
    /// An operator by its name in the graph, if it still has the schema of the graph.
    ///
    /// # Errors
    /// There is no such operator, or it has another schema.
    pub fn find(graph: &Graph, id: StrId) -> Result<Callable> {
        let name = graph.str(id);
        let op = Op::find(name)?;
        if graph.bound_schema(id).is_some() {
            graph.require_bound_schema(id, &*op.schema()?).map_err(RunError::from)?;
        }
        Ok(Callable {
            op,
            observes_strides: Facts.observes_strides(name),
            absolute_offset_arg: Facts.absolute_offset_arg(name),
            chooses_views: op.chooses_views(),
        })
    }
}
