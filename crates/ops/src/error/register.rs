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
    /// The operator is builtin.
    #[error(
        "the operator {op} is builtin; it cannot be defined or replaced, but a library of kernels \
            may override what it runs: \
         `Library::new(\"aten\", Kind::Impl)?.impl_(…)`"
    )]
    Builtin {
        /// Operator.
        op: String,
    },
    /// The same registration exists.
    #[error(
        "the operator {op} has a {what} already, registered at {first}; a `Library` of its own \
            may override that"
    )]
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
        "the operator {op} returns nothing, mutates nothing and has no effect, so every call of \
            it could be removed; return something, \
         take a `&mut Tensor` (`Tensor(a!)`), or declare an effect with `effect(Effect::Ordered)`"
    )]
    NoPurpose {
        /// Operator.
        op: String,
    },
    /// Without tensors there is nothing to dispatch on.
    #[error(
        "the operator {op} takes no tensor, so kernels for single devices need an argument \
            `device` of type Device to be chosen by; its \
         schema is {schema}"
    )]
    NoDispatchArgument {
        /// Operator.
        op: String,
        /// Its schema.
        schema: String,
    },
    /// The kernel's Rust signature and the schema disagree.
    #[error(
        "the operator {op}: its {what}'s signature gives the schema\n  {inferred}\nbut it is \
            declared as\n  {declared}\n{detail}"
    )]
    SchemaMismatch {
        /// Operator.
        op: String,
        /// `kernel`, `cpu kernel`, `fake kernel`.
        what: String,
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
    /// Text that names no dispatch key.
    #[error("unknown device type `{found}`; a kernel is for one of cpu, cuda, meta, xla, mps, \
        ipu, xpu, or `default` for all others{}", key_hint(.found))]
    Key {
        /// As given.
        found: String,
    },
    /// Text that is no name of a namespace.
    #[error(
        "`{namespace}` is not a name for a namespace; use letters, digits and `_`, and no digit \
            first"
    )]
    NotANamespace {
        /// As given.
        namespace: String,
    },
    /// A namespace that nobody can have.
    #[error("the namespace `{namespace}` is reserved; choose another name")]
    Reserved {
        /// Its name.
        namespace: String,
    },
    /// Two libraries define one namespace.
    #[error(
        "the namespace `{namespace}` is defined already, {first}; one library defines a \
            namespace. Add operators to it with `Kind::Fragment`, \
         or kernels with `Kind::Impl`"
    )]
    Namespace {
        /// Its name.
        namespace: String,
        /// By whom: a line, or the builtin operators.
        first: String,
    },
    /// A library's registration in another namespace, or a definition in one that only adds
    /// kernels.
    #[error("the library of `{namespace}` made at {made}: {detail}")]
    Library {
        /// Its namespace.
        namespace: String,
        /// Where it was made.
        made: Loc,
        /// Why.
        detail: String,
    },
    /// There is no kernel under the key.
    #[error("the operator {op} has no {what}; it has: \
        {}", if .registered.is_empty() { "nothing".to_owned() } else { .registered.join(", ") })]
    NoKernel {
        /// Operator.
        op: String,
        /// Which: `cpu kernel`.
        what: String,
        /// What there is.
        registered: Vec<String>,
    },
}

/// What to do about a key of PyTorch's that is not a device.
fn key_hint(found: &str) -> &'static str {
    if found.to_ascii_lowercase().starts_with("autograd") {
        "; a gradient formula is no kernel here: register it with `register_autograd`"
    } else {
        ""
    }
}
