//! A call as a program of the oracle: eagerly, traced, and in every mode.

use super::RandomCall;
use crate::oracle::{
    Comparison, Eager, InputLocation, MemoryInit, Mode, Outcome, Subject, TestProgram, Verdict,
    check, documented_refusal, is_internal,
};
use maquette_check::opcheck::sample::{Operand, concrete, operands, replace, untraceable};
use maquette_check::values::{FlatValues, catch_panics, flatten, whole_storage};
use maquette_ir::graph::Graph;
use maquette_ir::{DType, Scalar};
use maquette_ops::{Args, Error, Op, Result, Tensor, Value};
use maquette_trace::TraceOptions;

/// The most elements of an argument, its storage included, and of a result.
const MOST: i64 = 1 << 12;

/// What became of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallVerdict {
    /// The call says nothing: it is too large, or its results are no values of a graph.
    Left,
    /// As of a program.
    Checked(Verdict),
}

/// The results of a call as a graph returns them: lists flattened, absent ones left out.
fn results(op: Op, args: Args) -> Result<Vec<Value>> {
    Ok(flatten(&op.call(args)?).into_iter().filter(|v| !v.is_none()).collect())
}

/// Whether a tensor is small enough to be compared element by element.
fn is_small(t: &Tensor) -> bool {
    t.numel().as_i64().is_some_and(|n| n <= MOST)
}

/// Whether a result is a tensor with memory of its own.
fn is_fresh(result: &Value, inputs: &[Tensor]) -> bool {
    result.tensors().any(|t| !inputs.iter().any(|input| input.shares_storage(t)))
}

/// Adds how often each fresh result was written, which a program may ask.
fn with_versions(mut results: Vec<Value>, fresh: &[bool]) -> Vec<Value> {
    let of_fresh = results.iter().zip(fresh).filter(|(_, is_fresh)| **is_fresh);
    let tensors = of_fresh.flat_map(|(v, _)| v.tensors());
    let versions: Vec<Value> = tensors.map(|t| (t.version() as i64).into()).collect();
    results.extend(versions);
    results
}

/// The elements of a flat tensor, at least one.
fn scalars(t: &Tensor) -> Result<Vec<Scalar>> {
    let mut scalars: Vec<Scalar> = match t.dtype() {
        DType::Bool => t.to_vec::<bool>()?.into_iter().map(Scalar::Bool).collect(),
        float if float.is_float() => {
            t.to_dtype(DType::F64).to_vec::<f64>()?.into_iter().map(Scalar::Float).collect()
        }
        _ => t.to_dtype(DType::I64).to_vec::<i64>()?.into_iter().map(Scalar::Int).collect(),
    };
    if scalars.is_empty() {
        scalars.push(Scalar::Int(0));
    }
    Ok(scalars)
}

/// The memories that tensors view, and where each begins; `None` if two of them have one memory as
/// two dtypes, which a program has not.
fn memories(inputs: &[Operand]) -> Result<Option<(Vec<MemoryInit>, Vec<InputLocation>)>> {
    let (mut memories, mut locations) = (Vec::new(), Vec::new());
    let mut storages: Vec<&Tensor> = Vec::new();
    for Operand { tensor: t, .. } in inputs {
        let memory = match storages.iter().position(|s| s.shares_storage(t)) {
            Some(at) if storages[at].dtype() != t.dtype() => return Ok(None),
            Some(at) => at,
            None => {
                let values = scalars(&whole_storage(t)?)?;
                memories.push(MemoryInit { dtype: t.dtype(), values });
                storages.push(t);
                storages.len() - 1
            }
        };
        locations.push(InputLocation { memory, offset: concrete(t)?.offset });
    }
    Ok(Some((memories, locations)))
}

/// The graph of a trace on such inputs, which keep their places in their storages.
fn traced(inputs: &[Operand], program: impl Fn(&[Tensor]) -> Result<Vec<Value>>) -> Result<Graph> {
    let given = FlatValues(inputs.iter().map(|o| Value::Tensor(o.tensor.clone())).collect());
    let program = |values: FlatValues| {
        let tensors: Vec<Tensor> = values.0.iter().flat_map(Value::tensors).cloned().collect();
        program(&tensors).map(FlatValues)
    };
    Ok(TraceOptions::new().keep_offsets(true).trace(program, given)?.graph().clone())
}

fn mismatch(what: String) -> CallVerdict {
    CallVerdict::Checked(Verdict::Mismatch { mode: "traced", what })
}

impl RandomCall {
    /// Compares the eager call with its trace, and the trace in each mode with its eager run.
    ///
    /// # Errors
    /// The arguments cannot be copied.
    pub fn check(&self, modes: &[&dyn Mode]) -> Result<CallVerdict> {
        catch_panics("the call", || self.check_once(modes))
    }

    /// The program that the call is, if it has a trace.
    ///
    /// # Errors
    /// The call has no trace, or its arguments cannot be copied.
    pub fn program(&self) -> Result<TestProgram> {
        let schema = self.op.schema()?;
        let operands = operands(&schema, &self.args);
        let no_program = || Error::value("one memory has two dtypes");
        let (memories, locations) = memories(&operands)?.ok_or_else(no_program)?;
        let graph = traced(&operands, |t| results(self.op, replace(&operands, &self.args, t)?))?;
        Ok(TestProgram::new(graph, memories, locations))
    }

    fn check_once(&self, modes: &[&dyn Mode]) -> Result<CallVerdict> {
        let schema = self.op.schema()?;
        let operands = operands(&schema, &self.args);
        let is_small_storage = |t: &Tensor| {
            t.storage().is_ok_and(|s| s.len() as i64 <= MOST * t.dtype().size() as i64)
        };
        let are_small = operands.iter().all(|o| is_small(&o.tensor) && is_small_storage(&o.tensor));
        if !are_small || untraceable(&schema).is_some() {
            return Ok(CallVerdict::Left);
        }
        let Some((memories, locations)) = memories(&operands)? else {
            return Ok(CallVerdict::Left);
        };
        let call = |inputs: &[Tensor]| results(self.op, replace(&operands, &self.args, inputs)?);
        // A program that takes the inputs and does nothing.
        let idle = TestProgram::new(traced(&operands, |_| Ok(Vec::new()))?, memories, locations);
        let mut is_large = false;
        let mut fresh = Vec::new();
        let expected = Outcome::of(&idle.run_inputs(&Vec::new())?, |inputs| {
            let results = call(inputs)?;
            is_large = results.iter().flat_map(Value::tensors).any(|t| !is_small(t));
            fresh = results.iter().map(|v| is_fresh(v, inputs)).collect();
            match is_large {
                true => Ok(Vec::new().into()),
                false => Ok(with_versions(results, &fresh).into()),
            }
        });
        let call = |inputs: &[Tensor]| Ok(with_versions(call(inputs)?, &fresh));
        if is_large {
            return Ok(CallVerdict::Left);
        }
        let graph = match (&expected, traced(&operands, call)) {
            (Err(e), _) if is_internal(e) => return Ok(mismatch(format!("eager fails: {e}"))),
            (_, Err(e)) if is_internal(&e) => return Ok(mismatch(format!("fails: {e}"))),
            (Err(_), Err(_)) => {
                return Ok(CallVerdict::Checked(Verdict::Refused("refused by eager too")));
            }
            (Ok(_), Err(e)) => {
                return Ok(match documented_refusal(&idle, &e, false) {
                    Some(why) => CallVerdict::Checked(Verdict::Refused(why)),
                    None => mismatch(format!("fails, but eager runs: {e}")),
                });
            }
            (_, Ok(graph)) => graph,
        };
        let program = TestProgram { graph, ..idle };
        let found = Outcome::of(&program.run_inputs(&Vec::new())?, |inputs| {
            Eager.prepare(&Subject::new(&program), inputs)?(inputs)
        });
        match (&expected, &found) {
            (Ok(e), Ok(f)) => {
                if let Err(what) = e.difference(f, Comparison::ALL) {
                    return Ok(mismatch(format!("by its trace, {what}")));
                }
            }
            (Err(_), Err(_)) => {}
            (Ok(_), Err(e)) => return Ok(mismatch(format!("by its trace, the call fails: {e}"))),
            (Err(e), Ok(_)) => {
                return Ok(mismatch(format!("by its trace, the call runs, but eager fails: {e}")));
            }
        }
        check(&program, modes).map(CallVerdict::Checked)
    }
}
