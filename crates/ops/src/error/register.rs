//! Errors of registering operators, kernels and libraries.

use maquette_ir::Loc;

/// A registration that was refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RegisterError {
    /// The operator is already defined.
    #[error("the operator {op} is already defined at {first}")]
    Duplicate {
        /// The operator.
        op: String,
        /// The source line of the definition.
        first: Loc,
    },
    /// The operator is builtin.
    #[error(
        "the operator {op} is builtin; it cannot be defined or replaced, but a library of kernels \
            may override what it runs: \
         `Library::new(\"aten\", Kind::Impl)?.impl_(…)`"
    )]
    Builtin {
        /// The operator.
        op: String,
    },
    /// The operator already has a registration of this kind.
    #[error(
        "the operator {op} already has a {what}, registered at {first}; another `Library` may \
            override it"
    )]
    DuplicateKernel {
        /// The operator.
        op: String,
        /// Which registration: `cpu kernel`, `fake kernel`…
        what: String,
        /// The source line of the registration.
        first: Loc,
    },
    /// The operator returns nothing, mutates nothing and has no effect, so dead-code elimination
    /// would remove every call.
    #[error(
        "the operator {op} returns nothing, mutates nothing and has no effect, so every call of \
            it could be removed; return something, \
         take a `&mut Tensor` (`Tensor(a!)`), or declare an effect with `effect(Effect::Ordered)`"
    )]
    NoPurpose {
        /// The operator.
        op: String,
    },
    /// The operator has no tensor argument to dispatch on.
    #[error(
        "the operator {op} takes no tensor, so kernels for specific devices need an argument \
            `device` of type Device that selects one; its schema is {schema}"
    )]
    NoDispatchArgument {
        /// The operator.
        op: String,
        /// The operator's schema.
        schema: String,
    },
    /// The kernel's Rust signature and the schema disagree.
    #[error(
        "the operator {op}: its {what}'s signature gives the schema\n  {inferred}\nbut it is \
            declared as\n  {declared}\n{detail}"
    )]
    SchemaMismatch {
        /// The operator.
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
    /// An option or a tag is invalid or contradicts the schema.
    #[error("the operator {op}: {detail}")]
    Invalid {
        /// The operator.
        op: String,
        /// The reason.
        detail: String,
    },
    /// A registration for an operator that does not exist.
    #[error("cannot register a {what} for {op}: there is no such operator; define it first")]
    Missing {
        /// The operator.
        op: String,
        /// Which registration.
        what: String,
    },
    /// The text is not a dispatch key.
    #[error("unknown device type `{found}`; a kernel is for one of cpu, cuda, meta, xla, mps, \
        ipu, xpu, or `default` for all others{}", key_hint(.found))]
    Key {
        /// The rejected text.
        found: String,
    },
    /// The text is not a valid namespace name.
    #[error(
        "`{namespace}` is not a valid namespace; use letters, digits and `_`, not starting with a \
            digit"
    )]
    NotANamespace {
        /// The rejected text.
        namespace: String,
    },
    /// The namespace is reserved.
    #[error("the namespace `{namespace}` is reserved; choose another name")]
    Reserved {
        /// Its name.
        namespace: String,
    },
    /// Another library already defines the namespace.
    #[error(
        "the namespace `{namespace}` is already defined {first}; only one library may define a \
            namespace. Add operators to it with `Kind::Fragment`, or kernels with `Kind::Impl`"
    )]
    Namespace {
        /// Its name.
        namespace: String,
        /// The definer: a source line, or the builtin operators.
        first: String,
    },
    /// A library registered something outside its namespace, or defined an operator although its
    /// kind only adds kernels.
    #[error("the library of `{namespace}` made at {made}: {detail}")]
    Library {
        /// Its namespace.
        namespace: String,
        /// The source line of the registration.
        made: Loc,
        /// The reason.
        detail: String,
    },
    /// The operator has no kernel for the dispatch key.
    #[error("the operator {op} has no {what}; it has: \
        {}", if .registered.is_empty() { "nothing".to_owned() } else { .registered.join(", ") })]
    NoKernel {
        /// The operator.
        op: String,
        /// Which: `cpu kernel`.
        what: String,
        /// The existing registrations.
        registered: Vec<String>,
    },
}

/// Advice for a PyTorch dispatch key that is not a device.
fn key_hint(found: &str) -> &'static str {
    if found.to_ascii_lowercase().starts_with("autograd") {
        "; a gradient formula is not a kernel: register it with `register_autograd`"
    } else {
        ""
    }
}
