//! Outputs that the caller of a program gives, as trees.

use maquette_ops::tree::TreeSpec;
use maquette_ops::{Result, RunError, Tensor, Value};

/// A tree of outputs: its structure, and its leaves.
pub(crate) type Given<'a> = (&'a TreeSpec, &'a [Value]);

/// The tensors of given outputs, for a program whose outputs have the structure `expected`.
///
/// # Errors
/// The structures differ, or a leaf is no tensor.
pub(crate) fn tensors(expected: &TreeSpec, (found, leaves): Given<'_>) -> Result<Vec<Tensor>> {
    if let Some((output, expected, found)) = expected.difference(found) {
        return Err(RunError::OutputStructure { output, expected, found }.into());
    }
    let mut paths = None;
    let tensor = |(i, leaf): (usize, &Value)| match leaf {
        Value::Tensor(t) => Ok(t.clone()),
        _ => {
            let paths = paths.get_or_insert_with(|| expected.leaf_paths());
            let path = paths.get(i).filter(|path| !path.is_empty());
            let output = path.cloned().unwrap_or_else(|| i.to_string());
            Err(RunError::OutputNotGiven { output, what: "is not a tensor" }.into())
        }
    };
    leaves.iter().enumerate().map(tensor).collect()
}

/// Checks that given outputs share no memory with each other or with inputs.
///
/// # Errors
/// Two do.
pub(crate) fn check_apart(given: &[Value], inputs: &[Value]) -> Result<()> {
    let overlap = |a: &Value, b: &Value| a.tensors().any(|a| b.tensors().any(|b| a.may_overlap(b)));
    for (leaf, output) in given.iter().enumerate() {
        let refuse = |other: String| -> Result<()> {
            Err(RunError::OutputOverlap { output: leaf.to_string(), other }.into())
        };
        if let Some(other) = given.iter().take(leaf).position(|other| overlap(output, other)) {
            return refuse(format!("the one for output `{other}`"));
        }
        if let Some(other) = inputs.iter().position(|other| overlap(output, other)) {
            return refuse(format!("input {other}"));
        }
    }
    Ok(())
}

/// Copies results that an eager call has returned.
///
/// # Errors
/// As [`tensors`]. A tensor has other sizes than the result, or another dtype, or shares memory
/// with it.
pub(crate) fn copy_into((spec, results): &(TreeSpec, Vec<Value>), given: Given<'_>) -> Result<()> {
    let given = tensors(spec, given)?;
    let refuse = |leaf: usize, what: &str, expected: String, found: String| -> Result<()> {
        let (output, what) = (leaf.to_string(), what.to_owned());
        Err(RunError::Output { output, what, expected, found }.into())
    };
    for (leaf, (to, result)) in given.iter().zip(results).enumerate() {
        let Value::Tensor(from) = result else {
            let output = leaf.to_string();
            return Err(RunError::OutputNotGiven { output, what: "is not a tensor" }.into());
        };
        let (from, to) = (from.ok()?, to.ok()?);
        if from.dtype() != to.dtype() {
            refuse(leaf, "the dtype", from.dtype().to_string(), to.dtype().to_string())?;
        }
        let numbers = |t: &Tensor| t.sizes().iter().map(|n| n.as_i64()).collect::<Vec<_>>();
        if numbers(from) != numbers(to) {
            let text = |t: &Tensor| format!("{:?}", t.sizes());
            refuse(leaf, "the sizes", text(from), text(to))?;
        }
    }
    for (to, result) in given.iter().zip(results) {
        for from in result.tensors() {
            to.copy_(from).ok()?;
        }
    }
    Ok(())
}
