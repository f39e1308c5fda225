//! What goes wrong between a trace and its runs.

use std::sync::Arc;

/// How a fake kernel is missing or broke its contract.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FakeError {
    /// None registered.
    #[error(
        "has no fake kernel, which tracing needs to know its outputs' sizes and dtypes; register \
            one with `#[register_fake({function})]` \
         or `op.register_fake(…)`, such as\n    {example}"
    )]
    Missing {
        /// The operator's bare name.
        function: String,
        /// A fake kernel of its types.
        example: String,
    },
    /// No recorded call fits.
    #[error(
        "its fake kernel was made from recorded calls, and none was like ({given}); recorded were \
            {}. Record such a call too", list(.recorded)
    )]
    MissingProfile {
        /// The call's arguments.
        given: String,
        /// The recorded ones.
        recorded: Vec<String>,
    },
    /// A symbolic bound of `new_dynamic_size_in`.
    #[error(
        "new_dynamic_size_in({min}, {max}): the bounds must be plain numbers; make the size with \
            new_dynamic_size and assert the rest, as in \
         `n.le({max}).check(\"…\")?`"
    )]
    SymbolicBounds {
        /// Lower.
        min: String,
        /// Upper.
        max: String,
    },
    /// A tensor with data among fake ones.
    #[error(
        "argument `{arg}` has data and the others have none; compute an output's metadata from \
            metadata only (`x.sizes()`, `x.new_empty(…)`), \
         or make the argument fake too"
    )]
    RealOperand {
        /// Which.
        arg: String,
    },
    /// The real kernel of another operator, called by a fake kernel.
    #[error(
        "a fake kernel calls it on real data, which would run its kernel; call it on the fake \
            kernel's own arguments, or not at all"
    )]
    RealKernel,
    /// What the fake kernel returned is not what the schema declares.
    #[error("{0}")]
    Contract(String),
    /// `new_dynamic_size` without a trace.
    #[error(
        "makes a data-dependent size, which only a trace can hold; call it on real tensors, or \
            inside `trace`, not on fake tensors by themselves"
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
    #[error(
        "its fake kernel made the size {symbol} but returned no output with it; call \
            new_dynamic_size only for sizes of outputs"
    )]
    Unreturned {
        /// The symbol.
        symbol: String,
    },
    /// The fake kernel returned a real or traced tensor.
    #[error(
        "its fake kernel returned a tensor with data as output {index}; make outputs with \
            `x.new_empty(sizes, dtype)`"
    )]
    NotFake {
        /// Which output.
        index: usize,
    },
    /// A data-dependent symbol that no output shows by itself.
    #[error(
        "its fake kernel returned sizes that depend on {symbol}, but none that is {symbol} \
            itself, so a run could not know it; return an \
         output with {symbol} as a size, or make a data-dependent size for the whole expression"
    )]
    Unbindable {
        /// The symbol.
        symbol: String,
    },
    /// Promised metadata the real output does not have.
    #[error(
        "output {output}: its fake kernel promises {what} to be {expected}, its kernel returned \
            {found}. Fix the fake kernel"
    )]
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

fn list(items: &[String]) -> String {
    let items: Vec<String> = items.iter().map(|i| format!("({i})")).collect();
    items.join(", ")
}

/// How a traced tensor was misused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// After its trace.
    #[error(
        "a tensor of the trace `{trace}` was used after the trace ended; return it from the \
            traced function instead of storing it"
    )]
    Ended {
        /// The trace's name.
        trace: Arc<str>,
    },
    /// On another thread.
    #[error(
        "a tensor of the trace `{trace}` was used on another thread; a trace belongs to the \
            thread that made it"
    )]
    OtherThread {
        /// The trace's name.
        trace: Arc<str>,
    },
    /// In another trace.
    #[error(
        "a tensor of the trace `{trace}` was used in another trace, `{current}`; pass it as an \
            input of that trace instead"
    )]
    OtherTrace {
        /// Where it belongs.
        trace: Arc<str>,
        /// Where it was used.
        current: Arc<str>,
    },
    /// A graph run inside a trace.
    #[error(
        "a graph was run while tracing another; its operators would run once, in the trace. Call \
            the function it was traced from instead"
    )]
    Run,
    /// Inputs that cannot be traced.
    #[error("{0}")]
    Input(String),
    /// A traced tensor as the input of another trace, or of a run.
    #[error(
        "input {input} is a tensor of the running trace `{trace}`, which has no data; pass a real \
            tensor"
    )]
    Nested {
        /// Which input.
        input: usize,
        /// Where it belongs.
        trace: Arc<str>,
    },
    /// A fake tensor that the trace did not make.
    #[error(
        "the trace `{trace}` uses a fake tensor {tensor} that was made outside of it; a graph can \
            refer to real tensors only, so pass it as \
         an input"
    )]
    Fake {
        /// The trace.
        trace: Arc<str>,
        /// The tensor's metadata.
        tensor: String,
    },
    /// A result whose value the program would compute with.
    #[error(
        "output {output} is {kind}, a value that is not known while tracing; return it as a 0-d \
            tensor"
    )]
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
    #[error("input `{input}`: {what} must be {expected}, found \
        {found}{}", .why.as_deref().map(|w| format!(" ({w})")).unwrap_or_default())]
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
    /// `as_strided` with an offset of its own, on a part of a storage.
    #[error(
        "as_strided counts its storage_offset from the start of the storage, and this input \
            begins elsewhere in its storage; pass a tensor \
         that begins at the start (`x.clone_tensor()`), or leave the offset out"
    )]
    AbsoluteOffset,
    /// Inputs that see one memory, which the program writes.
    #[error(
        "inputs `{written}` and `{other}` share memory, and the program writes to `{written}`; it \
            is for inputs apart: pass a copy of one"
    )]
    SharedInputs {
        /// The input that is written.
        written: String,
        /// The other.
        other: String,
    },
    /// More or fewer inputs.
    #[error("the graph takes {expected} inputs, {found} were given")]
    InputCount {
        /// From the trace.
        expected: usize,
        /// Given.
        found: usize,
    },
    /// Inputs of another structure than the traced ones.
    #[error(
        "the input{} must be {expected}, found {found}; a program is traced for inputs of one \
            structure, trace again for another",
        if .input.is_empty() { String::new() } else { format!(" `{input}`") }
    )]
    InputStructure {
        /// Which part of the inputs; empty if all of them.
        input: String,
        /// In the trace.
        expected: String,
        /// Given.
        found: String,
    },
    /// A constant without contents.
    #[error(
        "the constant `{name}` is known by its digest only: a graph read from text has no contents"
    )]
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
    #[error(
        "the guard `{guard}` does not hold: {values}. The traced program branched on it at {loc}; \
            trace again for such inputs"
    )]
    Guard {
        /// The condition.
        guard: String,
        /// The symbols' values.
        values: String,
        /// Where the program asked.
        loc: String,
    },
    /// A deferred assertion failed.
    #[error("assertion failed: {}`{cond}` does not hold: \
        {values}", .message.as_deref().map(|m| format!("{m}: ")).unwrap_or_default())]
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
