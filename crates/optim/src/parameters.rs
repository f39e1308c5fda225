//! The parameters of a step: the tensors of two trees, in pairs, and checks of them.

use crate::error::OptimError;
use maquette_ir::sym::check_sizes_equal;
use maquette_ops::internals::TensorInternals;
use maquette_ops::tree::{flatten, flatten_values};
use maquette_ops::{Result, Tensor, Tree, Value};

/// What a step updates for one parameter.
#[derive(Clone, Debug)]
pub struct Parameter {
    /// The parameter, which the step writes.
    pub value: Tensor,
    /// Its gradient.
    pub gradient: Tensor,
    /// The moments, in the order in which the algorithm names them. The step writes them.
    pub moments: Vec<Tensor>,
}

/// The tensors of a tree. Numbers are no parameters.
///
/// # Errors
/// A tensor is poisoned or no float, or there is none.
pub(crate) fn tensors(tree: &impl Tree) -> Result<Vec<Tensor>> {
    let (_, values) = flatten_values(tree)?;
    let tensors = only_tensors(values);
    match tensors.iter().position(|t| !t.dtype().is_float()) {
        Some(i) => Err(OptimError::NotFloat {
            name: names(tree)?.swap_remove(i),
            tensor: tensors[i].meta().to_string(),
        }
        .into()),
        None if tensors.is_empty() => Err(OptimError::NoParameters.into()),
        None => Ok(tensors),
    }
}

/// The paths of the tensors of a tree. They take longer to make than the tensors.
pub(crate) fn names(tree: &impl Tree) -> Result<Vec<String>> {
    let (_, leaves) = flatten(tree)?;
    let is_tensor = |v: &Value| matches!(v, Value::Tensor(_));
    Ok(leaves.into_iter().filter(|l| is_tensor(&l.value)).map(|l| l.path).collect())
}

pub(crate) fn only_tensors(values: Vec<Value>) -> Vec<Tensor> {
    let tensor = |v| if let Value::Tensor(t) = v { Some(t) } else { None };
    values.into_iter().filter_map(tensor).collect()
}

/// Checks that no tensor is there twice.
pub(crate) fn check_distinct(tensors: &[Tensor], name: &dyn Fn(usize) -> String) -> Result<()> {
    for (i, t) in tensors.iter().enumerate() {
        if let Some(j) = tensors[..i].iter().position(|u| u.is_same_handle(t)) {
            return Err(OptimError::Twice { first: name(j), second: name(i) }.into());
        }
    }
    Ok(())
}

/// The tensors of the parameters and of their gradients.
///
/// # Errors
/// The trees differ in structure, or a gradient from its parameter in sizes.
pub(crate) fn pairs<P: Tree, G: Tree>(params: &P, grads: &G) -> Result<Vec<(Tensor, Tensor)>> {
    let values = tensors(params)?;
    let (spec, gradients) = flatten_values(grads)?;
    let (expected, _) = flatten_values(params)?;
    if let Some((path, expected, found)) = expected.difference(&spec) {
        return Err(OptimError::Structure { path, expected, found }.into());
    }
    let gradients = only_tensors(gradients);
    if gradients.len() != values.len() {
        let count = |n: usize| format!("{n} tensors");
        let (expected, found) = (count(values.len()), count(gradients.len()));
        return Err(OptimError::Structure { path: String::new(), expected, found }.into());
    }
    let pairs: Vec<(Tensor, Tensor)> = values.into_iter().zip(gradients).collect();
    check_sizes(&pairs, &|i| Ok(names(params)?.swap_remove(i)))?;
    Ok(pairs)
}

/// Checks that gradients have the sizes of their parameters. A trace records what it cannot decide
/// as an assertion.
pub(crate) fn check_sizes(
    pairs: &[(Tensor, Tensor)],
    name: &dyn Fn(usize) -> Result<String>,
) -> Result<()> {
    for (i, (value, gradient)) in pairs.iter().enumerate() {
        let claim = "a gradient has the sizes of its parameter";
        let fits = gradient.dtype().is_float()
            && check_sizes_equal(value.sizes(), gradient.sizes(), claim)?;
        if !fits {
            return Err(OptimError::Gradient {
                name: name(i)?,
                parameter: value.meta().to_string(),
                gradient: gradient.meta().to_string(),
            }
            .into());
        }
    }
    Ok(())
}
