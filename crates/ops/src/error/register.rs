//! Why registrations are refused.

use maquette_ir::Loc;

/// Why a registration was refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RegisterError {
    /// The operator is defined and alive.
    #[error("the operator {op} is defined already, at {first}")]
    Duplicate {
        /// Operator.
        op: String,
        /// Where it was defined.
        first: Loc,
    },
    /// The same registration exists.
    #[error("the operator {op} has a {what} already, registered at {first}")]
    DuplicateKernel {
        /// Operator.
        op: String,
        /// Which registration: `cpu kernel`, `fake kernel`…
        what: String,
        /// Where it was made.
        first: Loc,
    },
    /// Nothing would ever show that the operator ran.
    #[error(
        "the operator {op} returns nothing, mutates nothing and has no effect, so every call of it could be removed; return something, \
         take a `&mut Tensor` (`Tensor(a!)`), or declare an effect with `effect(Effect::Ordered)`"
    )]
    NoPurpose {
        /// Operator.
        op: String,
    },
    /// Without tensors there is nothing to dispatch on.
    #[error(
        "the operator {op} takes no tensor, so kernels for single devices need an argument `device` of type Device to be chosen by; its \
         schema is {schema}"
    )]
    NoDispatchArgument {
        /// Operator.
        op: String,
        /// Its schema.
        schema: String,
    },
    /// The kernel's Rust signature and the schema disagree.
    #[error("the operator {op}: its kernel's signature gives the schema\n  {inferred}\nbut it is declared as\n  {declared}\n{detail}")]
    SchemaMismatch {
        /// Operator.
        op: String,
        /// From the signature.
        inferred: String,
        /// As declared.
        declared: String,
        /// Which argument differs.
        detail: String,
    },
    /// A tag that contradicts the schema, an option that cannot be.
    #[error("the operator {op}: {detail}")]
    Invalid {
        /// Operator.
        op: String,
        /// Why.
        detail: String,
    },
    /// The operator to add to does not exist.
    #[error("cannot register a {what} for {op}: there is no such operator; define it first")]
    Missing {
        /// Operator.
        op: String,
        /// Which registration.
        what: String,
    },
}
