//! Results of a call against the types that the graph declares.

use crate::bindings::Bindings;
use crate::copies::{copy_for_write, copy_with_strides};
use crate::metadata_check::LayoutPromise;
use maquette_ir::graph::{Graph, NodeId, Res, ValueId};
use maquette_ir::sym::SymInt;
use maquette_ops::internals::TensorInternals;
use maquette_ops::{Error, FakeError, Outputs, Result, Tensor, Value};
use smallvec::SmallVec;

/// A result whose type has symbols that are not bound yet. A kernel may return a data-dependent
/// size before the `bind` statement that names it.
pub struct PendingCheck {
    /// The node that gave it.
    pub node: NodeId,
    /// Which of its outputs.
    pub output: usize,
    /// The value that the graph declares.
    pub v: ValueId,
    /// The result.
    pub value: Value,
    /// The part of the layout that its type promises.
    pub promise: LayoutPromise,
}

/// How the results of one call are checked and stored.
#[derive(Clone, Copy)]
pub struct ResultRules<'a> {
    /// The number of results that the operator returned. The results after them are mutated
    /// arguments.
    pub returned: usize,
    /// The part of the layout that the types of returned results promise.
    pub promise: LayoutPromise,
    /// Arguments of the call. A returned result that views one of them is copied.
    pub copied: &'a [Value],
}

impl ResultRules<'_> {
    /// The part of the layout that the type of an output promises.
    pub fn promise_of(&self, output: usize) -> LayoutPromise {
        match output < self.returned {
            true => self.promise,
            false => LayoutPromise::Nothing,
        }
    }

    /// The value to store for an output: itself, or a copy. The copy has the strides of the type of
    /// `v` if all of them are known.
    ///
    /// # Errors
    /// Memory runs out.
    pub fn stored(
        &self,
        graph: &Graph,
        bindings: &Bindings<'_>,
        output: usize,
        v: ValueId,
        value: Value,
    ) -> Result<Value> {
        let t = match value {
            Value::Tensor(t) if output < self.returned && views_any(&t, self.copied) => t,
            other => return Ok(other),
        };
        let declared = graph.tensor_type(v).and_then(|ty| {
            let strides = ty.strides.iter().map(|&e| Some(bindings.eval(e).ok()?.into()));
            strides.collect::<Option<SmallVec<[SymInt; 4]>>>()
        });
        Ok(Value::Tensor(match declared.filter(|strides| strides.len() == t.dim()) {
            Some(strides) => copy_with_strides(&t, &strides)?,
            None => copy_for_write(&t)?,
        }))
    }
}

/// Whether a tensor shares storage with one of the arguments.
fn views_any(t: &Tensor, arguments: &[Value]) -> bool {
    arguments.iter().flat_map(Value::tensors).any(|u| u.has_storage_of(t))
}

/// Calls `each` with every value that a node declares, and what the operator returned for it: the
/// index of the output, the declared value, the returned value.
///
/// # Errors
/// The number or kinds of the outputs differ from the graph's declarations; the error of `each`.
pub fn match_results(
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
            (Res::List(range), other) => {
                let (expected, found) = (range.len().to_string(), other.kind().to_string());
                return Err(differs(output, "the length of the list", expected, found));
            }
            (Res::Absent, other) => {
                return Err(differs(output, "it", "nothing".into(), other.kind().to_string()));
            }
            (Res::Value(v), other) => {
                let expected = graph.display_type(graph.value_type(v)).to_string();
                return Err(differs(output, "it", expected, other.kind().to_string()));
            }
        }
    }
    Ok(())
}
