//! Checks the results of a call against the graph's declarations, and stores them.

use super::Frame;
use maquette_ir::graph::{NodeId, Res, ValueId};
use maquette_ops::{Error, FakeError, Outputs, Result, Value};

impl Frame<'_> {
    /// Stores a node's results.
    ///
    /// # Errors
    /// The number, kinds or metadata of the results differ from the graph's declarations.
    pub(crate) fn set_results(&mut self, node: NodeId, outputs: Outputs) -> Result<()> {
        let results = self.graph.results(node);
        let differs = |output: usize, what: &str, expected: String, found: String| {
            Error::from(FakeError::Mismatch { output, what: what.into(), expected, found })
        };
        if results.len() != outputs.len() {
            return Err(differs(
                0,
                "the number of outputs",
                results.len().to_string(),
                outputs.len().to_string(),
            ));
        }
        for (output, (&result, value)) in results.iter().zip(outputs).enumerate() {
            let found = value.kind();
            match (result, value) {
                (Res::Absent, Value::None) => {}
                (Res::Value(v), value)
                    if !matches!(value, Value::None | Value::List(_) | Value::Ints(_)) =>
                {
                    self.set_result(node, output, v, value)?;
                }
                (Res::List(range), Value::List(l)) if l.len() == range.len() => {
                    range
                        .iter()
                        .zip(l)
                        .try_for_each(|(v, value)| self.set_result(node, output, v, value))?;
                }
                (Res::List(range), Value::Ints(l)) if l.len() == range.len() => {
                    range
                        .iter()
                        .zip(l)
                        .try_for_each(|(v, i)| self.set_result(node, output, v, Value::Int(i)))?;
                }
                (Res::List(range), Value::List(l)) => {
                    return Err(differs(
                        output,
                        "the length of the list",
                        range.len().to_string(),
                        l.len().to_string(),
                    ));
                }
                (Res::List(range), _) => {
                    return Err(differs(
                        output,
                        "the length of the list",
                        range.len().to_string(),
                        found.to_string(),
                    ));
                }
                (Res::Absent, _) => {
                    return Err(differs(output, "it", "nothing".into(), found.to_string()));
                }
                (Res::Value(v), _) => {
                    let expected = self.graph.display_type(self.graph.value_type(v)).to_string();
                    return Err(differs(output, "it", expected, found.to_string()));
                }
            }
        }
        Ok(())
    }

    fn set_result(&mut self, node: NodeId, output: usize, v: ValueId, value: Value) -> Result<()> {
        if !self.bindings.check_result(v, output, &value)? {
            self.pending_checks.push((node, output, v, value.clone()));
        }
        self.set(v, value);
        Ok(())
    }
}
