//! Errors of operator calls: refused calls, and kernels that break their contract.

use crate::dispatch::value::ValueKind;
use maquette_ir::{DType, Device, DeviceKind};

/// A refused call, or a kernel that broke its contract.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// The operator is not registered.
    #[error(
        "there is no operator `{name}`{}{}",
        did_you_mean(.similar),
        undefined(.registered).unwrap_or_else(|| link_hint(.crate_hint))
    )]
    Unknown {
        /// The requested name.
        name: String,
        /// Registrations for this name, although no definition exists.
        registered: Vec<String>,
        /// Registered operators with similar names.
        similar: Vec<String>,
        /// The operator's namespace, which may be the name of a crate that is not linked.
        crate_hint: String,
    },
    /// A PyTorch operator that the builtin table does not have.
    #[error("PyTorch's operator `{name}` is not supported: {why}")]
    Unsupported {
        /// The requested name.
        name: String,
        /// The reason.
        why: &'static str,
    },
    /// Autocast to a dtype that is not a lower precision.
    #[error("autocast computes in bf16 or f16, found {dtype}")]
    Autocast {
        /// The dtype.
        dtype: DType,
    },
    /// The call has more arguments than the schema.
    #[error("takes at most {expected} arguments, found {found}; its schema is {schema}")]
    TooMany {
        /// The number of arguments in the schema.
        expected: usize,
        /// The actual value.
        found: usize,
        /// The operator's schema.
        schema: String,
    },
    /// A required argument is missing.
    #[error("argument {index} `{arg}` ({expected}) is missing; its schema is {schema}")]
    Missing {
        /// Its name.
        arg: String,
        /// Its position.
        index: usize,
        /// Its type.
        expected: String,
        /// The operator's schema.
        schema: String,
    },
    /// An argument has the wrong type.
    #[error(
        "argument {index} `{arg}` is declared as {expected}, found {found}; its schema is {schema}"
    )]
    Type {
        /// Its name.
        arg: String,
        /// Its position.
        index: usize,
        /// Its type.
        expected: String,
        /// The kind of the value in the call.
        found: String,
        /// The operator's schema.
        schema: String,
    },
    /// The schema has no argument of this name.
    #[error("has no argument `{keyword}`{}; its schema is {schema}", did_you_mean(.similar))]
    UnknownKeyword {
        /// The keyword in the call.
        keyword: String,
        /// A similar argument name.
        similar: Vec<String>,
        /// The operator's schema.
        schema: String,
    },
    /// An argument occurs both by position and by keyword, or twice by keyword.
    #[error("argument {index} `{arg}` is given twice, {how}; its schema is {schema}")]
    GivenTwice {
        /// Its name.
        arg: String,
        /// Its position.
        index: usize,
        /// Text: by position and by keyword, or twice by keyword.
        how: &'static str,
        /// The operator's schema.
        schema: String,
    },
    /// No overload accepts the arguments.
    #[error("no overload of `{name}` takes these \
        arguments:{}", .tried.iter().map(|t| format!("\n  {t}")).collect::<String>())]
    NoOverload {
        /// The name without an overload.
        name: String,
        /// Each overload with the reason it was rejected.
        tried: Vec<String>,
    },
    /// A kernel handle was used after its registration ended.
    #[error(
        "the {what} registered at {registered} no longer exists: the library that registered it \
            was dropped, or the operator was replaced"
    )]
    Gone {
        /// The kind of registration, such as `cpu kernel`.
        what: String,
        /// Where it was registered.
        registered: maquette_ir::Loc,
    },
    /// An argument of an `out=` operator requires a gradient; these operators have no derivative.
    #[error(
        "argument `{arg}` requires grad, but an operator that writes its results into given \
            tensors has no derivative; call the functional operator"
    )]
    OutRequiresGrad {
        /// Its name.
        arg: String,
    },
    /// The operator has no kernel for the device.
    #[error("no kernel for {device}; it has kernels for: \
        {}", if .available.is_empty() { "no device".to_owned() } else { .available.join(", ") })]
    NoKernel {
        /// The device of its operands.
        device: DeviceKind,
        /// The devices for which the operator has kernels.
        available: Vec<String>,
    },
    /// The operator has no kernel for the device, and may not run on the host instead.
    #[error(
        "`{op}` has no kernel for {device}, and calls must not fall back to the host here; move the \
            operands to the host, or allow it: `set_host_fallback(HostFallback::Allow)`"
    )]
    HostFallback {
        /// The device of its operands.
        device: DeviceKind,
        /// The operator.
        op: String,
    },
    /// The operands are on different devices.
    #[error(
        "arguments are on different devices: `{first_arg}` on {first}, `{second_arg}` on {second}; \
            copy one to the other's device, as in `{second_arg}.to_device({})`", .first.source_text()
    )]
    MixedDevices {
        /// An argument.
        first_arg: String,
        /// Its device.
        first: Device,
        /// The second argument.
        second_arg: String,
        /// Its device.
        second: Device,
    },
    /// The kernel returned the wrong number of values.
    #[error("its kernel returned {found} values, but the schema declares {expected}: {schema}")]
    ReturnCount {
        /// Declared.
        expected: usize,
        /// Returned.
        found: usize,
        /// The operator's schema.
        schema: String,
    },
    /// The kernel returned a value of the wrong type.
    #[error("its kernel returned {found} as output {index}, but the schema declares {expected}")]
    ReturnType {
        /// The index of the output.
        index: usize,
        /// Declared.
        expected: String,
        /// Returned.
        found: ValueKind,
    },
    /// The kernel returned a tensor on another device.
    #[error("its kernel returned output {index} on {found}, but its arguments are on {expected}")]
    ReturnDevice {
        /// The index of the output.
        index: usize,
        /// The operands' device.
        expected: Device,
        /// The device of the output.
        found: Device,
    },
    /// An output shares memory with an argument or another output.
    #[error(
        "output {output} shares memory with {other}; an output may not alias an argument or \
            another output unless the schema says so. \
         Return a copy (`x.clone_tensor()`), or do not return it"
    )]
    OutputAliases {
        /// The index of the output.
        output: usize,
        /// ``argument `x` `` or `output 1`.
        other: String,
    },
    /// The kernel replaced a `&mut Tensor` instead of writing into it.
    #[error(
        "its kernel replaced {}, which it mutates, by another tensor; write into the argument \
            instead, as in `{}.copy_(…)`",
        .name.as_ref().map_or_else(|| format!("argument {index}"), |name| format!("`{name}`")),
        .name.as_deref().unwrap_or("x")
    )]
    ReplacedArgument {
        /// Its position.
        index: usize,
        /// Its name in the schema, once the call adds it.
        name: Option<String>,
    },
    /// The kernel returned memory that something else holds too.
    #[error(
        "output {output} is memory that something besides this call keeps: a static, a cache, or \
            a value that the kernel captured. An output must be new: return a copy \
            (`y.clone_tensor()`), or drop every other handle to it first"
    )]
    KeptOutput {
        /// The index of the output.
        output: usize,
    },
    /// The kernel panicked.
    #[error(
        "its {kernel} panicked{}: {message}. Return an error from it instead",
        .line.as_deref().map(|l| format!(" at {l}")).unwrap_or_default()
    )]
    Panicked {
        /// `kernel` or `fake kernel`.
        kernel: &'static str,
        /// The message of the panic.
        message: String,
        /// The line of the panic, where the library's panic hook saw it.
        line: Option<String>,
    },
    /// A list is nested too deeply.
    #[error("an argument is a list nested more than {most} deep; pass a flatter list")]
    ListDepth {
        /// The limit.
        most: usize,
    },
    /// An in-place operator did not return its mutated argument.
    #[error(
        "output {output} must be argument `{arg}` itself, or a view of it, as the schema declares"
    )]
    NotTheArgument {
        /// The index of the output.
        output: usize,
        /// The argument.
        arg: String,
    },
}

/// The part of the message that lists registrations for an undefined operator.
fn undefined(registered: &[String]) -> Option<String> {
    let list = registered.join(", ");
    (!registered.is_empty()).then(|| format!("; it has registrations, but no definition: {list}"))
}

/// The hint to link the crate that may define a missing custom operator. Builtin operators are
/// always linked.
fn link_hint(namespace: &str) -> String {
    match namespace {
        "aten" => String::new(),
        other => {
            format!("; if a crate defines it, that crate must be linked: write `use {other} as _;`")
        }
    }
}

fn did_you_mean(similar: &[String]) -> String {
    if similar.is_empty() { String::new() } else { format!(" (similar: {})", similar.join(", ")) }
}
