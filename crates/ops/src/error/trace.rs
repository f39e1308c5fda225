//! Errors of fake execution and of traces.

use crate::tensor::TraceTag;
use std::sync::Arc;

/// A fake kernel that is missing or broke its contract.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FakeError {
    /// The operator has no fake kernel.
    #[error(
        "has no fake kernel, which tracing needs to know its outputs' sizes and dtypes; register \
            one with `#[register_fake({function})]` \
         or `op.register_fake(…)`, such as\n    {example}"
    )]
    Missing {
        /// The operator's bare name.
        function: String,
        /// An example fake kernel with the operator's types.
        example: String,
    },
    /// No recorded profile matches the call.
    #[error(
        "its fake kernel was made from recorded calls, and none matches ({given}); the recorded \
            calls are {}. Record such a call too", list(.recorded)
    )]
    MissingProfile {
        /// The profile of the call's arguments.
        given: String,
        /// The recorded argument profiles.
        recorded: Vec<String>,
    },
    /// A bound of `new_dynamic_size_in` is symbolic.
    #[error(
        "new_dynamic_size_in({min}, {max}): the bounds must be constants; make the size with \
            new_dynamic_size and assert the bounds, as in `n.le({max}).check(\"…\")?`"
    )]
    SymbolicBounds {
        /// The lower bound.
        min: String,
        /// The upper bound.
        max: String,
    },
    /// An operand has data although others are fake.
    #[error(
        "argument `{arg}` has data, but the other arguments have none; compute an output's \
            metadata from metadata only (`x.sizes()`, `x.new_empty(…)`), or make the argument fake \
            too"
    )]
    RealOperand {
        /// The argument.
        arg: String,
    },
    /// A fake kernel called another operator on real data.
    #[error(
        "a fake kernel calls it on tensors with data, which would run its kernel; call it only on \
            the fake kernel's arguments"
    )]
    RealKernel,
    /// The fake kernel's outputs do not match the schema.
    #[error("{0}")]
    Contract(String),
    /// A data-dependent size was requested outside a trace.
    #[error(
        "returns a data-dependent size, which needs a trace; call it on tensors with data, or \
            inside `trace`"
    )]
    NoTrace,
    /// The bounds of `new_dynamic_size_in` are not `0 <= min <= max`.
    #[error("new_dynamic_size_in({min}, {max}): the bounds must be 0 <= min <= max")]
    Bounds {
        /// The lower bound.
        min: i64,
        /// The upper bound.
        max: i64,
    },
    /// The fake kernel created a symbol that occurs in no output.
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
        /// The index of the output.
        index: usize,
    },
    /// A data-dependent symbol occurs only inside expressions, so a run cannot determine its value.
    #[error(
        "its fake kernel returned sizes that depend on {symbol}, but no size is {symbol} itself, \
            so a run cannot determine it; return an output with {symbol} as a size, or make a \
            data-dependent size for the whole expression"
    )]
    Unbindable {
        /// The symbol.
        symbol: String,
    },
    /// The real output's metadata differs from that of the fake output.
    #[error(
        "output {output}: its fake kernel promises {what} to be {expected}, but its kernel \
            returned {found}. Fix the fake kernel"
    )]
    Mismatch {
        /// The index of the output.
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

/// A misuse of a traced tensor.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// A traced tensor was used after its trace ended.
    #[error(
        "a tensor of the trace `{trace}` was used after the trace ended; return it from the \
            traced function instead of storing it"
    )]
    Ended {
        /// The trace's name.
        trace: Arc<str>,
    },
    /// A traced tensor was used on another thread than its trace's.
    #[error(
        "a tensor of the trace `{}` was used on another thread; a trace belongs to the \
            thread that made it", .trace.name
    )]
    OtherThread {
        /// The trace.
        trace: Arc<TraceTag>,
    },
    /// A traced tensor was used in another trace.
    #[error(
        "a tensor of the trace `{trace}` was used in another trace, `{current}`; pass it as an \
            input of that trace instead"
    )]
    OtherTrace {
        /// Where it belongs.
        trace: Arc<str>,
        /// The trace that used the tensor.
        current: Arc<str>,
    },
    /// A graph was run during a trace.
    #[error(
        "a graph was run while tracing another; its operators would run once, during the trace. \
            Call the function from which it was traced instead"
    )]
    Run,
    /// The random generators were set during a trace.
    #[error(
        "the random generators were set while tracing, and a run of the graph would not set them; \
            set them outside of the function"
    )]
    Seed,
    /// The state of the random generators was read during a trace.
    #[error(
        "the state of the random generators was read while tracing, and a run of the graph would \
            use that of the trace; read it outside of the function"
    )]
    ReadSeed,
    /// A private random sequence began during a trace.
    #[error(
        "a private random sequence was used while tracing, and a run of the graph would draw from \
            the generators of the devices; use `random::apart` outside of the function"
    )]
    Apart,
    /// The traced function enabled derivatives inside of `no_grad`.
    #[error(
        "`enable_grad` was called while tracing inside of `no_grad`, and an input requires a \
            gradient: a run of the graph would record no derivatives; give `x.detach()`, or call \
            the function without compiling it"
    )]
    EnableGrad,
    /// An output requires a gradient, and no input or captured tensor does that the run could
    /// refuse.
    #[error(
        "output `{output}` requires a gradient, and a run of the graph records no derivatives; \
            return its `detach()`"
    )]
    OutputRequiresGrad {
        /// The output: its path in the tree of outputs, or its number.
        output: String,
    },
    /// Whether two tensors from outside of the trace share memory was asked.
    #[error(
        "whether two tensors from outside of a trace share memory may differ from run to run, so \
            the traced function cannot ask; ask outside of it"
    )]
    Sharing,
    /// The program asked for something that may differ from run to run.
    #[error(
        "{what} may differ from run to run, so a traced function cannot ask for it; ask outside of \
            the function, and let it use the answer"
    )]
    State {
        /// What it asked for.
        what: String,
    },
    /// As [`TraceError::State`], for what a trace may know that keeps offsets.
    #[error(transparent)]
    Offset(Box<TraceError>),
    /// A tensor was made while the trace ran, and not by it.
    #[error(
        "the trace `{trace}` uses the tensor {tensor}, which another thread made while the trace \
            ran: a run of the graph would not make it again; make it before the trace"
    )]
    MadeDuringTrace {
        /// The trace.
        trace: Arc<str>,
        /// The tensor's metadata.
        tensor: String,
    },
    /// The inputs cannot be traced.
    #[error("{0}")]
    Input(String),
    /// An input of a trace or a run is itself a traced tensor.
    #[error(
        "input {input} is a tensor of the running trace `{trace}`, which has no data; pass a \
            tensor with data"
    )]
    Nested {
        /// The index of the input.
        input: usize,
        /// Where it belongs.
        trace: Arc<str>,
    },
    /// The trace uses a fake tensor from outside.
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
    /// An operator returned a value that a trace cannot represent.
    #[error(
        "output {output} is {kind}, a value that is not known while tracing; return it as a 0-d \
            tensor"
    )]
    Untraceable {
        /// The index of the output.
        output: usize,
        /// The kind of value that the fake kernel returned.
        kind: String,
    },
    /// An assertion concerns a data-dependent size that no result has.
    #[error("`{cond}` was asserted, but no result has the data-dependent size in this condition")]
    Unbound {
        /// The condition.
        cond: String,
    },
    /// The recorded nodes do not form a valid graph.
    #[error(transparent)]
    Graph(maquette_ir::graph::BuildError),
    /// An internal invariant of the tracer does not hold.
    #[error("internal error of the tracer: {0}")]
    Internal(&'static str),
}
