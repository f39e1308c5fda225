//! Outputs that the caller of a program gives, as trees.

use maquette_ir::Loc;
use maquette_ops::autograd::is_grad_enabled;
use maquette_ops::internals::TensorInternals;
use maquette_ops::tree::TreeSpec;
use maquette_ops::{
    Access, Result, RunBorrow, RunError, RunInput, RunTensor, Tensor, Value, any_may_overlap, mode,
};
use std::sync::Arc;

/// A tree of outputs: its structure, and its leaves.
pub(crate) type Given<'a> = (&'a TreeSpec, &'a [Value]);

/// The tensors of given outputs, for a program whose outputs have the structure `expected`.
///
/// # Errors
/// The structures differ, or a leaf is not a tensor.
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

/// Whether tensors of two leaves share memory.
fn overlap(a: &Value, b: &Value) -> bool {
    a.tensors().any(|a| b.tensors().any(|b| a.has_storage_of(b) && a.may_overlap(b)))
}

/// Checks given outputs before an eager call: they share no memory with each other or with inputs,
/// and take no part in differentiation, unless a trace records the writes.
///
/// # Errors
/// One does.
pub(crate) fn check(given: &[Value], inputs: &[Value]) -> Result<()> {
    let records = is_grad_enabled() && !mode::is_active();
    for (leaf, output) in given.iter().enumerate() {
        if records && output.tensors().any(Tensor::requires_grad) {
            return Err(RunError::OutputRequiresGrad { output: leaf.to_string() }.into());
        }
    }
    let of_inputs = inputs.iter().flat_map(Value::tensors);
    if !any_may_overlap(given.iter().flat_map(Value::tensors), of_inputs) {
        return Ok(());
    }
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

/// Borrows given outputs while the function itself runs: it cannot read a captured tensor that one
/// of them would overwrite. A trace runs no function on their contents.
///
/// # Errors
/// Someone else has borrowed one.
pub(crate) fn reserve(given: &[Value], loc: Loc) -> Result<RunBorrow> {
    let mut borrow = RunBorrow::default();
    if mode::is_active() {
        return Ok(borrow);
    }
    let mut handles: Vec<Tensor> = given.iter().flat_map(Value::tensors).cloned().collect();
    let of = |(output, tensor)| {
        let name: Arc<str> = usize::to_string(&output).into();
        let input = RunInput { role: "output", name, loc };
        RunTensor { tensor, access: Access::Write, input: Arc::new(input) }
    };
    borrow.take(&mut handles.iter_mut().enumerate().map(of).collect::<Vec<_>>())?;
    Ok(borrow)
}

/// Copies results that an eager call has returned.
///
/// # Errors
/// As [`tensors`]. A tensor has other sizes than the result, or another dtype, or shares memory
/// with any result: the results view a captured tensor there. Nothing was copied then.
pub(crate) fn copy_into((spec, results): &(TreeSpec, Vec<Value>), given: Given<'_>) -> Result<()> {
    let leaves = given.1;
    let given = tensors(spec, given)?;
    // Given tensors share no memory with one another, as [`check`] has found.
    let is_any = any_may_overlap(given.iter(), results.iter().flat_map(Value::tensors));
    let shares = |to: &Value| results.iter().any(|result| overlap(to, result));
    if let Some(leaf) = is_any.then(|| leaves.iter().position(shares)).flatten() {
        let other = "a captured tensor, which a result views".to_owned();
        return Err(RunError::OutputOverlap { output: leaf.to_string(), other }.into());
    }
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
            mode::with_builtin_kernels(|| to.copy_(from).ok().map(drop))?;
        }
    }
    Ok(())
}
