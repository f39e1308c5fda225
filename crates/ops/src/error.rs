//! Errors: one enum a stage, one carrier that adds the operator, the caller's line and a window of the graph.

use crate::value::ValueKind;
use maquette_ir::schema::SchemaError;
use maquette_ir::sym::SymError;
use maquette_ir::typing::TypingError;
use maquette_ir::{DType, Device, DeviceKind, Loc};
use maquette_kernels::KernelError;
use smallvec::SmallVec;
use std::fmt;
use std::sync::Arc;

/// The result of anything that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error with its context. Cheap to clone: a poisoned tensor carries one.
#[derive(Clone)]
pub struct Error(Arc<Report>);

#[derive(Clone)]
struct Report {
    kind: Arc<ErrorKind>,
    /// The operator and the line that called it, innermost first: a kernel may call others.
    calls: SmallVec<[(Arc<str>, Loc); 1]>,
    /// The line that made the error, where it is user code.
    raised: Option<Loc>,
    window: Option<Arc<str>>,
}

/// What went wrong, by stage.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A schema string or a signature that has no schema.
    #[error(transparent)]
    Schema(#[from] SchemaError),
    /// A registration was refused.
    #[error(transparent)]
    Register(#[from] RegisterError),
    /// A call was refused, or a kernel broke its contract.
    #[error(transparent)]
    Call(#[from] CallError),
    /// Reading or writing a tensor's data was refused.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// Sizes, strides or dtypes that do not fit together.
    #[error(transparent)]
    Typing(#[from] TypingError),
    /// A kernel of a builtin operator refused its operands.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// A fake kernel is missing or broke its contract.
    #[error(transparent)]
    Fake(#[from] FakeError),
    /// A traced tensor was misused.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// A symbolic integer: a guard, an assertion, arithmetic.
    #[error(transparent)]
    Guard(#[from] SymError),
    /// A graph did not run as it was traced.
    #[error(transparent)]
    Run(#[from] RunError),
    /// A graph breaks an invariant.
    #[error(transparent)]
    Verify(#[from] maquette_ir::graph::VerifyError),
    /// A graph's text does not parse.
    #[error(transparent)]
    Parse(#[from] maquette_ir::graph::ParseError),
    /// An argument's value an operator cannot take.
    #[error("{0}")]
    Value(String),
    /// Raised by a kernel, a fake kernel or model code.
    #[error("{0}")]
    Message(String),
    /// Raised by a kernel, a fake kernel or model code.
    #[error("{0}")]
    Other(#[source] Box<dyn std::error::Error + Send + Sync>),
}

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

/// Why a call was refused, or how a kernel broke its contract.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// No such operator.
    #[error("there is no operator `{name}`{}; if a crate defines it, that crate must be linked: write `use {crate_hint} as _;`", did_you_mean(.similar))]
    Unknown {
        /// As asked for.
        name: String,
        /// Close names that exist.
        similar: Vec<String>,
        /// The namespace, perhaps the crate's name.
        crate_hint: String,
    },
    /// More arguments than the schema has.
    #[error("takes at most {expected} arguments, {found} were given; its schema is {schema}")]
    TooMany {
        /// At most.
        expected: usize,
        /// Given.
        found: usize,
        /// Schema.
        schema: String,
    },
    /// An argument without a default was not given.
    #[error("argument {index} `{arg}` ({expected}) is missing; its schema is {schema}")]
    Missing {
        /// Its name.
        arg: String,
        /// Its position.
        index: usize,
        /// Its type.
        expected: String,
        /// Schema.
        schema: String,
    },
    /// An argument of another type.
    #[error("argument {index} `{arg}` is declared as {expected}, found {found}; its schema is {schema}")]
    Type {
        /// Its name.
        arg: String,
        /// Its position.
        index: usize,
        /// Its type.
        expected: String,
        /// What was given.
        found: String,
        /// Schema.
        schema: String,
    },
    /// No kernel for the device.
    #[error("no kernel for {device}; it has kernels for: {}", if .available.is_empty() { "no device".to_owned() } else { .available.join(", ") })]
    NoKernel {
        /// The device of its operands.
        device: DeviceKind,
        /// Devices it has kernels for.
        available: Vec<String>,
    },
    /// Operands on two devices.
    #[error("arguments are on two devices: `{first_arg}` on {first}, `{second_arg}` on {second}")]
    MixedDevices {
        /// An argument.
        first_arg: String,
        /// Its device.
        first: Device,
        /// Another.
        second_arg: String,
        /// Its device.
        second: Device,
    },
    /// The kernel returned more or fewer values than declared.
    #[error("its kernel returned {found} values, the schema declares {expected}: {schema}")]
    ReturnCount {
        /// Declared.
        expected: usize,
        /// Returned.
        found: usize,
        /// Schema.
        schema: String,
    },
    /// The kernel returned another type.
    #[error("its kernel returned {found} as output {index}, the schema declares {expected}")]
    ReturnType {
        /// Which output.
        index: usize,
        /// Declared.
        expected: String,
        /// Returned.
        found: ValueKind,
    },
    /// The kernel returned a tensor on another device.
    #[error("its kernel returned output {index} on {found}, its arguments are on {expected}")]
    ReturnDevice {
        /// Which output.
        index: usize,
        /// The operands' device.
        expected: Device,
        /// The output's.
        found: Device,
    },
    /// An output shares memory with an argument or another output.
    #[error(
        "output {output} shares memory with {other}; an output may not alias an argument or another output unless the schema says so. \
         Return a copy (`x.clone_tensor()`), or do not return it"
    )]
    OutputAliases {
        /// Which output.
        output: usize,
        /// ``argument `x` `` or `output 1`.
        other: String,
    },
    /// The kernel replaced a `&mut Tensor` instead of writing into it.
    #[error("its kernel replaced the mutable argument {index} by another tensor; write into it instead, as in `x.copy_(…)`")]
    ReplacedArgument {
        /// Its position.
        index: usize,
    },
    /// An in-place operator must return its argument itself.
    #[error("output {output} must be argument `{arg}` itself, as the schema declares")]
    NotTheArgument {
        /// Which output.
        output: usize,
        /// Which argument.
        arg: String,
    },
}

fn did_you_mean(similar: &[String]) -> String {
    if similar.is_empty() { String::new() } else { format!(" (similar: {})", similar.join(", ")) }
}

/// Why reading or writing data was refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AccessError {
    /// Somebody holds an overlapping region.
    #[error("cannot {wanted} `{arg}`: {holder} {held} an overlapping region of the same storage")]
    Conflict {
        /// `read` or `write`.
        wanted: &'static str,
        /// What for.
        arg: String,
        /// Who holds it.
        holder: String,
        /// `reads` or `writes`.
        held: &'static str,
    },
    /// The schema does not mark the argument as mutated.
    #[error(
        "{holder} is read-only in this call, and the kernel writes to it; take it as `&mut Tensor` (`Tensor(a!)` in the schema) to mutate it"
    )]
    UndeclaredWrite {
        /// Which argument of which operator.
        holder: String,
    },
    /// A handle that a kernel kept after its call.
    #[error("this handle was lent to a kernel for one call, which is over; a kernel may not keep its arguments")]
    Stale,
    /// A handle used beyond the region it was lent for.
    #[error("the view leaves the region of {holder} that was lent to this kernel")]
    OutsideLoan {
        /// Which argument of which operator.
        holder: String,
    },
    /// Two mutated arguments meet.
    #[error("the mutated arguments `{first}` and `{second}` overlap in memory; the result would depend on the order of writes")]
    MutatedOverlap {
        /// An argument.
        first: String,
        /// Another.
        second: String,
    },
    /// A mutated argument meets itself.
    #[error(
        "the mutated argument `{arg}` overlaps itself (sizes {sizes:?}, strides {strides:?}); write to a copy (`{arg}.contiguous()`) instead"
    )]
    SelfOverlap {
        /// Which.
        arg: String,
        /// Its sizes.
        sizes: Vec<i64>,
        /// Its strides.
        strides: Vec<i64>,
    },
    /// Another element type.
    #[error("the tensor holds {found}, not {expected}")]
    DType {
        /// Asked for.
        expected: DType,
        /// Held.
        found: DType,
    },
    /// More or fewer elements.
    #[error("expected a tensor of one element, found sizes {sizes}")]
    NotOne {
        /// Its sizes.
        sizes: String,
    },
    /// There is no host memory to read.
    #[error("the tensor is on {0}; copy it to the host first: `.to_device(Device::Cpu)`")]
    Device(Device),
    /// A fake tensor has no data.
    #[error(
        "cannot read or write the data of a fake tensor: it has sizes, strides and a dtype, but no contents. In a fake kernel, compute the \
         output's metadata from the inputs' metadata only"
    )]
    Fake,
    /// Data outside the trace, which a graph would freeze as it happens to be.
    #[error(
        "a tensor's data was {0} while tracing; what the program does with it would happen once, in the trace, and not in the graph. Do it \
         before the trace, keep it in operators, or put it into a custom operator"
    )]
    WhileTracing(&'static str),
    /// A traced tensor has no data yet.
    #[error(
        "cannot read the data of a traced tensor: its values are not known while tracing. Keep the computation in operators, or put it \
         into a custom operator"
    )]
    Traced,
    /// The layout reaches outside the storage.
    #[error("sizes {sizes}, strides {strides} and offset {offset} reach outside a storage of {bytes} bytes")]
    OutOfBounds {
        /// Sizes.
        sizes: String,
        /// Strides.
        strides: String,
        /// Offset.
        offset: String,
        /// The storage's length.
        bytes: usize,
    },
    /// A shape that does not fit the data.
    #[error("{found} elements do not fill sizes {sizes}")]
    Shape {
        /// Asked for.
        sizes: String,
        /// Given.
        found: usize,
    },
    /// The memory cannot be had.
    #[error("cannot allocate a tensor of sizes {sizes} and dtype {dtype}")]
    Allocation {
        /// Asked for.
        sizes: String,
        /// Asked for.
        dtype: DType,
    },
}

/// How a fake kernel is missing or broke its contract.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FakeError {
    /// None registered.
    #[error(
        "has no fake kernel, which tracing needs to know its outputs' sizes and dtypes; register one with `#[register_fake({function})]` \
         or `op.register_fake(…)`"
    )]
    Missing {
        /// The operator's bare name.
        function: String,
    },
    /// `new_dynamic_size` without a trace.
    #[error(
        "makes a data-dependent size, which only a trace can hold; call it on real tensors, or inside `trace`, not on fake tensors by themselves"
    )]
    NoTrace,
    /// A bad bound of `new_dynamic_size_in`.
    #[error("new_dynamic_size_in({min}, {max}): the bounds must be 0 <= min <= max")]
    Bounds {
        /// Lower.
        min: i64,
        /// Upper.
        max: i64,
    },
    /// A fresh symbol that no output has.
    #[error("its fake kernel made the size {symbol} but returned no output with it; call new_dynamic_size only for sizes of outputs")]
    Unreturned {
        /// The symbol.
        symbol: String,
    },
    /// The fake kernel returned a real or traced tensor.
    #[error("its fake kernel returned a tensor with data as output {index}; make outputs with `x.new_empty(sizes, dtype)`")]
    NotFake {
        /// Which output.
        index: usize,
    },
    /// A data-dependent symbol that no output shows by itself.
    #[error(
        "its fake kernel returned sizes that depend on {symbol}, but none that is {symbol} itself, so a run could not know it; return an \
         output with {symbol} as a size, or make a data-dependent size for the whole expression"
    )]
    Unbindable {
        /// The symbol.
        symbol: String,
    },
    /// Promised metadata the real output does not have.
    #[error("output {output}: its fake kernel promises {what} to be {expected}, its kernel returned {found}. Fix the fake kernel")]
    Mismatch {
        /// Which output.
        output: usize,
        /// `size 1`, `stride 0`, `dtype`…
        what: String,
        /// From the fake kernel.
        expected: String,
        /// Of the real output.
        found: String,
    },
}

/// How a traced tensor was misused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// After its trace.
    #[error("a tensor of the trace `{trace}` was used after the trace ended; return it from the traced function instead of storing it")]
    Ended {
        /// The trace's name.
        trace: Arc<str>,
    },
    /// On another thread.
    #[error("a tensor of the trace `{trace}` was used on another thread; a trace belongs to the thread that made it")]
    OtherThread {
        /// The trace's name.
        trace: Arc<str>,
    },
    /// In another trace.
    #[error("a tensor of the trace `{trace}` was used in another trace, `{current}`; pass it as an input of that trace instead")]
    OtherTrace {
        /// Where it belongs.
        trace: Arc<str>,
        /// Where it was used.
        current: Arc<str>,
    },
    /// Inputs that cannot be traced.
    #[error("{0}")]
    Input(String),
    /// A traced tensor as the input of another trace, or of a run.
    #[error("input {input} is a tensor of the running trace `{trace}`, which has no data; pass a real tensor")]
    Nested {
        /// Which input.
        input: usize,
        /// Where it belongs.
        trace: Arc<str>,
    },
    /// A fake tensor that the trace did not make.
    #[error(
        "the trace `{trace}` uses a fake tensor {tensor} that was made outside of it; a graph can refer to real tensors only, so pass it as \
         an input"
    )]
    Fake {
        /// The trace.
        trace: Arc<str>,
        /// The tensor's metadata.
        tensor: String,
    },
    /// A result whose value the program would compute with.
    #[error("output {output} is {kind}, a value that is not known while tracing; return it as a 0-d tensor")]
    Untraceable {
        /// Which output.
        output: usize,
        /// What the fake kernel returned.
        kind: String,
    },
    /// An assertion about a size that no result has.
    #[error("`{cond}` was asserted, but no result has the data-dependent size it is about")]
    Unbound {
        /// The condition.
        cond: String,
    },
    /// What was recorded is not a graph.
    #[error(transparent)]
    Graph(maquette_ir::graph::BuildError),
    /// The tracer broke a rule of its own.
    #[error("{0}; this is a defect of the tracer")]
    Internal(&'static str),
}

/// How a run differed from the trace.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// An input's metadata.
    #[error("input `{input}`: {what} must be {expected}, found {found}{}", .why.as_deref().map(|w| format!(" ({w})")).unwrap_or_default())]
    Input {
        /// The input's name.
        input: String,
        /// `size 1`, `dtype`…
        what: String,
        /// From the trace.
        expected: String,
        /// Given.
        found: String,
        /// Why the trace asks for it.
        why: Option<String>,
    },
    /// More or fewer inputs.
    #[error("the graph takes {expected} inputs, {found} were given")]
    InputCount {
        /// From the trace.
        expected: usize,
        /// Given.
        found: usize,
    },
    /// Inputs of another shape than the traced ones.
    #[error("the inputs are nested differently from the traced ones: an option is absent or present, or a list has another length")]
    InputStructure,
    /// A constant without contents.
    #[error("the constant `{name}` is known by its digest only: a graph read from text has no contents")]
    Constant {
        /// Its name.
        name: String,
    },
    /// A value that nothing has computed; not in a verified graph.
    #[error("the value `{value}` is used, but nothing before it defines it")]
    Undefined {
        /// Its name.
        value: String,
    },
    /// A guard of the trace does not hold for these inputs.
    #[error("the guard `{guard}` does not hold: {values}. The traced program branched on it at {loc}; trace again for such inputs")]
    Guard {
        /// The condition.
        guard: String,
        /// The symbols' values.
        values: String,
        /// Where the program asked.
        loc: String,
    },
    /// A deferred assertion failed.
    #[error("assertion failed: {}`{cond}` does not hold: {values}", .message.as_deref().map(|m| format!("{m}: ")).unwrap_or_default())]
    Assertion {
        /// The condition.
        cond: String,
        /// The user's words.
        message: Option<String>,
        /// The symbols' values.
        values: String,
    },
    /// A data-dependent size left its declared range.
    #[error("the data-dependent size {symbol} is {value}, outside its declared range {range}")]
    Range {
        /// The symbol.
        symbol: String,
        /// From the real output.
        value: i64,
        /// Declared.
        range: String,
    },
}

impl Error {
    /// An error of a kernel, a fake kernel or model code.
    #[track_caller]
    pub fn msg(message: impl fmt::Display) -> Error {
        Error::from(ErrorKind::Message(message.to_string())).at(Loc::caller())
    }

    /// Wraps any error.
    #[track_caller]
    pub fn other(e: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
        Error::from(ErrorKind::Other(e.into())).at(Loc::caller())
    }

    /// An argument's value an operator cannot take.
    pub fn value(message: impl fmt::Display) -> Error {
        Error::from(ErrorKind::Value(message.to_string()))
    }

    /// What went wrong, by stage.
    pub fn kind(&self) -> &ErrorKind {
        &self.0.kind
    }

    /// The operator that failed, where one was called.
    pub fn op(&self) -> Option<&str> {
        self.0.calls.first().map(|(op, _)| &**op)
    }

    /// The line to look at: the caller's, or where the error was raised.
    pub fn loc(&self) -> Option<Loc> {
        self.0.calls.first().map(|(_, loc)| *loc).or(self.0.raised)
    }

    /// The few lines of graph around the failing node.
    pub fn window(&self) -> Option<&str> {
        self.0.window.as_deref()
    }

    /// The same error raised at this line, unless it names one already.
    pub fn at(self, loc: Loc) -> Error {
        self.edit(|r| {
            r.raised.get_or_insert(loc);
        })
    }

    /// The same error in a call of this operator. Calls nest: a kernel may call others.
    pub fn in_call(self, op: &Arc<str>, loc: Loc) -> Error {
        self.edit(|r| r.calls.push((op.clone(), loc)))
    }

    /// The same error with a window of the graph, unless it has one already.
    pub fn with_window(self, window: impl Into<Arc<str>>) -> Error {
        self.edit(|r| {
            r.window.get_or_insert_with(|| window.into());
        })
    }

    fn edit(mut self, f: impl FnOnce(&mut Report)) -> Error {
        f(Arc::make_mut(&mut self.0));
        self
    }

    /// Whether both are the same occurrence: the kind is shared, not merely equal.
    pub fn is_same(&self, other: &Error) -> bool {
        Arc::ptr_eq(&self.0.kind, &other.0.kind)
    }
}

impl<E: Into<ErrorKind>> From<E> for Error {
    fn from(e: E) -> Error {
        let kind = e.into();
        // a poisoned SymInt carries the error of the tensor it came from: the first cause stays visible
        if let ErrorKind::Guard(g) = &kind
            && let Some(e) = g.poison_cause().and_then(|cause| cause.downcast_ref::<Error>())
        {
            return e.clone();
        }
        Error(Arc::new(Report { kind: Arc::new(kind), calls: SmallVec::new(), raised: None, window: None }))
    }
}

impl From<ndarray::ShapeError> for ErrorKind {
    fn from(e: ndarray::ShapeError) -> ErrorKind {
        ErrorKind::Other(Box::new(e))
    }
}

impl From<std::io::Error> for ErrorKind {
    fn from(e: std::io::Error) -> ErrorKind {
        ErrorKind::Other(Box::new(e))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(op) = self.op() {
            write!(f, "{op}: ")?;
        }
        write!(f, "{}", self.0.kind)?;
        match (self.0.raised, self.0.calls.first()) {
            (Some(raised), Some((_, called))) if raised != *called => write!(f, "\n  raised at {raised}\n  called at {called}")?,
            (_, Some(&(_, loc))) | (Some(loc), None) => write!(f, "\n  at {loc}")?,
            (None, None) => {}
        }
        for (op, loc) in self.0.calls.iter().skip(1) {
            write!(f, "\n  in {op}, called at {loc}")?;
        }
        if let Some(window) = self.window() {
            write!(f, "\n{window}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    /// As `Display`, so that `fn main() -> Result<()>` prints what a person can read.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        std::error::Error::source(&*self.0.kind)
    }
}

/// Returns an [`Error`] with a formatted message from the surrounding function.
#[macro_export]
macro_rules! bail {
    ($($arg:tt)*) => { return ::std::result::Result::Err($crate::Error::msg(::std::format!($($arg)*))) };
}

/// Returns an [`Error`] from the surrounding function unless the condition holds; the message defaults to the condition.
#[macro_export]
macro_rules! ensure {
    ($cond:expr $(,)?) => { $crate::ensure!($cond, "expected `{}`", ::std::stringify!($cond)) };
    ($cond:expr, $($arg:tt)*) => { if !$cond { $crate::bail!($($arg)*); } };
}
