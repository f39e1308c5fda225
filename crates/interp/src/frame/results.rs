//! Checks the results of a call against the graph's declarations, and stores them.

use super::Frame;
use maquette_ir::graph::{Graph, NodeId, Res, ValueId};
use maquette_ops::{Error, FakeError, Outputs, Result, Value};

impl Frame<'_> {
    /// Stores a node's results.
    ///
    /// # Errors
    /// The number, kinds or metadata of the results differ from the graph's declarations.
    pub(crate) fn set_results(&mut self, node: NodeId, outputs: Outputs) -> Result<()> {
        let graph = self.graph;
        match_results(graph, node, outputs, &mut |output, v, value| {
            self.set_result(node, output, v, value)
        })
    }

    fn set_result(&mut self, node: NodeId, output: usize, v: ValueId, value: Value) -> Result<()> {
        if !self.bindings.check_result(v, output, &value)? {
            self.pending_checks.push((node, output, v, value.clone()));
        }
        self.set(v, value);
        Ok(())
    }
}

/// Calls `each` with every value that a node declares, and what the operator returned for it: the
/// index of the output, the declared value, the returned value.
///
/// # Errors
/// The number or kinds of the outputs differ from the graph's declarations; the error of `each`.
pub(crate) fn match_results(
    graph: &Graph,
    node: NodeId,
    outputs: Outputs,
    each: &mut dyn FnMut(usize, ValueId, Value) -> Result<()>,
) -> Result<()> {
    let results = graph.results(node);
    let differs = |output: usize, what: &str, expected: String, found: String| {
        Error::from(FakeError::Mismatch { output, what: what.into(), expected, found })
    };
    if results.len() != outputs.len() {
        let (expected, found) = (results.len().to_string(), outputs.len().to_string());
        return Err(differs(0, "the number of outputs", expected, found));
    }
    for (output, (&result, value)) in results.iter().zip(outputs).enumerate() {
        let found = value.kind();
        match (result, value) {
            (Res::Absent, Value::None) => {}
            (Res::Value(v), value)
                if !matches!(value, Value::None | Value::List(_) | Value::Ints(_)) =>
            {
                each(output, v, value)?;
            }
            (Res::List(range), Value::List(l)) if l.len() == range.len() => {
                range.iter().zip(l).try_for_each(|(v, value)| each(output, v, value))?;
            }
            (Res::List(range), Value::Ints(l)) if l.len() == range.len() => {
                range.iter().zip(l).try_for_each(|(v, i)| each(output, v, Value::Int(i)))?;
            }
            (Res::List(range), Value::List(l)) => {
                let (expected, found) = (range.len().to_string(), l.len().to_string());
                return Err(differs(output, "the length of the list", expected, found));
            }
            (Res::List(range), _) => {
                let (expected, found) = (range.len().to_string(), found.to_string());
                return Err(differs(output, "the length of the list", expected, found));
            }
            (Res::Absent, _) => {
                return Err(differs(output, "it", "nothing".into(), found.to_string()));
            }
            (Res::Value(v), _) => {
                let expected = graph.display_type(graph.value_type(v)).to_string();
                return Err(differs(output, "it", expected, found.to_string()));
            }
        }
    }
    Ok(())
}
