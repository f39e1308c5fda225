//! Errors of optimizers.

use maquette_ops::{Error, ErrorKind};

/// What an optimizer refuses.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OptimError {
    /// An option of an algorithm has a value outside of its range.
    #[error("{algorithm}: `{option}` must be {range}; found {value}")]
    OutOfRange {
        /// The algorithm.
        algorithm: &'static str,
        /// The option.
        option: &'static str,
        /// The values that it may have.
        range: &'static str,
        /// Its value.
        value: f64,
    },
    /// Options that do not go together.
    #[error("{algorithm}: {problem}")]
    Options {
        /// The algorithm.
        algorithm: &'static str,
        /// Why they do not.
        problem: &'static str,
    },
    /// Another schedule takes over during a warm-up.
    #[error(
        "`then` ends the first schedule after {steps} steps, but its warm-up takes {least}; a \
            shorter warm-up, or a later `then`, reaches the full rate"
    )]
    WarmupCut {
        /// The steps of the warm-up.
        least: u64,
        /// The steps of the first schedule.
        steps: u64,
    },
    /// There is nothing to optimize.
    #[error("there are no parameters: the tree holds no tensor")]
    NoParameters,
    /// A parameter that is not a float.
    #[error(
        "the parameter{} is {tensor}: only floats are optimized; leave it out of the parameters",
        named(name)
    )]
    NotFloat {
        /// Its name; empty for the only one.
        name: String,
        /// The tensor.
        tensor: String,
    },
    /// Two parameters are one tensor.
    #[error(
        "the parameters `{first}` and `{second}` are one tensor, which a step would update twice; \
            give it once"
    )]
    Twice {
        /// The name of the first.
        first: String,
        /// The name of the second.
        second: String,
    },
    /// The gradients are another tree than the parameters.
    #[error(
        "the gradients do not have the structure of the parameters{}: expected {expected}, found \
            {found}", if path.is_empty() { String::new() } else { format!(" at `{path}`") }
    )]
    Structure {
        /// The part in which they differ; empty for the whole.
        path: String,
        /// The part of the parameters.
        expected: String,
        /// The part of the gradients.
        found: String,
    },
    /// A gradient with other sizes than its parameter.
    #[error(
        "the gradient of the parameter{} is {gradient}, and the parameter is {parameter}",
        named(name)
    )]
    Gradient {
        /// The parameter's name.
        name: String,
        /// The parameter.
        parameter: String,
        /// The gradient.
        gradient: String,
    },
    /// A leaf to which no sweep has added a gradient.
    #[error(
        "the parameter{} has no gradient; call `backward` on a loss that depends on it, or leave it \
            out of the parameters",
        named(name)
    )]
    MissingGradient {
        /// The parameter's name.
        name: String,
    },
    /// A parameter without a gradient of its own.
    #[error(
        "the parameter{} is no leaf that requires a gradient; call `requires_grad_()` on it first",
        named(name)
    )]
    NotLeaf {
        /// The parameter's name.
        name: String,
    },
    /// A state of other parameters, or of another algorithm.
    #[error(
        "{algorithm}: the state is not of this algorithm and these parameters: {problem}; make the \
            state of these parameters with `init(&parameters)`"
    )]
    State {
        /// The algorithm.
        algorithm: &'static str,
        /// What differs.
        problem: String,
    },
    /// Names for the tensors of a state that are not as many as its parameters.
    #[error("the state is of {parameters} parameters; found {names} names")]
    Names {
        /// The number of parameters.
        parameters: usize,
        /// The number of names.
        names: usize,
    },
    /// A saved tensor that does not fit.
    #[error("the saved `{name}` is {found}; expected {expected}")]
    Saved {
        /// Its name.
        name: String,
        /// What the state has.
        expected: String,
        /// What was saved.
        found: String,
    },
}

fn named(name: &str) -> String {
    if name.is_empty() { String::new() } else { format!(" `{name}`") }
}

impl From<OptimError> for Error {
    fn from(e: OptimError) -> Error {
        Error::from(ErrorKind::Other(Box::new(e)))
    }
}
