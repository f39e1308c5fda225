//! Errors of fake execution, tracing and running graphs.

use crate::tensor::TraceTag;
use maquette_ir::Device;
use maquette_ir::graph::Redefined;
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

/// A run whose inputs or values contradict the trace.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// An input's metadata differs from the traced input's.
    #[error("input `{input}`: {what} must be {expected}, found \
        {found}{}", .why.as_deref().map(|w| format!(" ({w})")).unwrap_or_default())]
    Input {
        /// The input's name.
        input: String,
        /// `size 1`, `dtype`…
        what: String,
        /// From the trace.
        expected: String,
        /// The actual value.
        found: String,
        /// The reason for the requirement, if known.
        why: Option<String>,
    },
    /// An input or a captured tensor of a graph that is run requires a gradient.
    #[error(
        "{tensor} requires a gradient, and a run of a graph computes none: its results would not \
            require one; run it in `no_grad`, or trace or compile the function with its gradient, \
            `value_and_grad(f)`"
    )]
    RequiresGrad {
        /// The input, or the captured tensor.
        tensor: String,
    },
    /// A graph is run inside `autocast`, which its operators were traced without.
    #[error(
        "a graph is run inside `autocast`, and its operators compute in the precision of the \
            trace; call `autocast` in the function that is traced, or run the graph in \
            `without_autocast`"
    )]
    Autocast,
    /// A tensor that a run was given for an output takes part in differentiation.
    #[error(
        "the tensor for output `{output}` requires a gradient, which cannot follow the write; pass \
            one that does not, or call in `no_grad`"
    )]
    OutputRequiresGrad {
        /// The output.
        output: String,
    },
    /// `as_strided` with an explicit offset, on an input that does not begin at the start of its
    /// storage.
    #[error(
        "as_strided counts storage_offset from the start of the storage, but this input begins \
            elsewhere in its storage; pass a tensor with storage offset 0 (`x.clone_tensor()`), or \
            omit the argument"
    )]
    AbsoluteOffset,
    /// Two inputs share memory, and the program writes one of them.
    #[error(
        "inputs `{written}` and `{other}` share memory, and the program writes to `{written}`; the \
            trace assumes that they do not share memory: pass a copy of one"
    )]
    SharedInputs {
        /// The input that is written.
        written: String,
        /// The other.
        other: String,
    },
    /// A kernel called a program that mutates its own state, inside a call of the same program.
    #[error(
        "program `{program}` mutates its own state, so its calls run one after another; this \
            call comes from a kernel inside another call of the program, and would wait for \
            itself. Export another program for the kernel, or call the program after the outer call"
    )]
    CallInCall {
        /// The program's name.
        program: String,
    },
    /// Two inputs have memory of their own, but the graph was functionalized for inputs that share
    /// memory.
    #[error(
        "inputs `{first}` and `{second}` do not share memory, but the graph was functionalized for \
            inputs that do; pass views of one tensor, or leave the inputs out of `sharing`"
    )]
    SeparateInputs {
        /// One input.
        first: String,
        /// The other.
        second: String,
    },
    /// Two inputs share memory otherwise than the graph was functionalized for.
    #[error(
        "input `{second}` begins {found} elements behind input `{first}`, but the graph was \
            functionalized for inputs of which it begins {expected} behind; pass views at this \
            distance"
    )]
    SharedOffsets {
        /// One input.
        first: String,
        /// The other.
        second: String,
        /// The distance of their first elements by their types, in elements.
        expected: i128,
        /// The actual one.
        found: i128,
    },
    /// No runtime executes programs on the device.
    #[error("programs cannot be compiled for {device}; they can be compiled for: cpu")]
    NoRuntime {
        /// The device.
        device: Device,
    },
    /// The buffer plan was made for another graph.
    #[error(
        "the plan belongs to another graph than `{graph}`; make it with `plan` from the functional \
            graph that runs"
    )]
    OtherPlan {
        /// The name of the graph that was to run.
        graph: String,
    },
    /// A registration overrides an operator that a functional graph does not call, because its
    /// results became views of values.
    #[error(
        "`{graph}` was functionalized when nothing overrode {op}, and does not call it; call \
            `functionalize` again, or compile the program again"
    )]
    OverriddenView {
        /// The name of the graph.
        graph: String,
        /// The operator.
        op: String,
    },
    /// A registration overrides the operator by which a graph copies the data that a program
    /// creates.
    #[error(
        "a registration overrides {op}, by which a graph copies the data that its program creates; \
            the program itself does not call the operator. Remove the registration, or pass the \
            data as an input"
    )]
    OverriddenData {
        /// The operator.
        op: &'static str,
    },
    /// A buffer plan writes memory of the caller that the program does not mutate.
    #[error(
        "step {step} of the plan writes memory of {tensor}, which `{graph}` does not mutate; make \
            the plan with `plan` from the functional graph that runs"
    )]
    PlanWrites {
        /// The name of the graph.
        graph: String,
        /// The position of the step.
        step: usize,
        /// The input or constant.
        tensor: String,
    },
    /// The metadata of a tensor that a run was given for an output differs from the output's.
    #[error("output `{output}`: {what} must be {expected}, found {found}")]
    Output {
        /// The output: its path in the tree of outputs, or its number.
        output: String,
        /// `size 1`, `dtype`…
        what: String,
        /// The program's.
        expected: String,
        /// The actual value.
        found: String,
    },
    /// A tensor that a run was given for an output shares memory.
    #[error(
        "the tensor for output `{output}` shares memory with {other}; an output needs memory of \
            its own"
    )]
    OutputOverlap {
        /// The output.
        output: String,
        /// What else is in that memory.
        other: String,
    },
    /// A run was given tensors for the outputs of a program that returns something else.
    #[error(
        "output `{output}` {what}, so it cannot be written into a given tensor; use the call that \
            returns it"
    )]
    OutputNotGiven {
        /// The output.
        output: String,
        /// Why.
        what: &'static str,
    },
    /// The number of tensors for outputs is wrong.
    #[error("the program has {expected} outputs, found {found} tensors for them")]
    OutputCount {
        /// The program's.
        expected: usize,
        /// The actual value.
        found: usize,
    },
    /// The tree structure of the given outputs differs from that of the program's.
    #[error(
        "the given output{} must be {expected}, found {found}",
        if .output.is_empty() { String::new() } else { format!(" `{output}`") }
    )]
    OutputStructure {
        /// The path of the part that differs; empty for the whole output.
        output: String,
        /// The structure of the program's outputs.
        expected: String,
        /// The actual value.
        found: String,
    },
    /// The number of inputs is wrong.
    #[error("the graph takes {expected} inputs, found {found}")]
    InputCount {
        /// From the trace.
        expected: usize,
        /// The actual value.
        found: usize,
    },
    /// The tree structure of the inputs differs from the traced one.
    #[error(
        "the input{} must be {expected}, found {found}; trace again for inputs of another structure",
        if .input.is_empty() { String::new() } else { format!(" `{input}`") }
    )]
    InputStructure {
        /// The path of the part that differs; empty for the whole input.
        input: String,
        /// The structure in the trace.
        expected: String,
        /// The actual value.
        found: String,
    },
    /// An operator has another schema than when the graph was made.
    #[error(transparent)]
    Redefined(#[from] Redefined),
    /// A constant has no contents, because the graph was read from text.
    #[error(
        "the constant `{name}` has no contents: graph text stores only the digest of a constant"
    )]
    Constant {
        /// Its name.
        name: String,
    },
    /// A value is used before its definition. A verified graph has no such use.
    #[error("the value `{value}` is used before it is defined")]
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
        /// The source line that evaluated the condition.
        loc: String,
    },
    /// A deferred assertion failed.
    #[error("assertion failed: {}`{cond}` does not hold: \
        {values}", .message.as_deref().map(|m| format!("{m}: ")).unwrap_or_default())]
    Assertion {
        /// The condition.
        cond: String,
        /// The user's message.
        message: Option<String>,
        /// The symbols' values.
        values: String,
    },
    /// A data-dependent size is outside its declared range.
    #[error("the data-dependent size {symbol} is {value}, outside its declared range {range}")]
    Range {
        /// The symbol.
        symbol: String,
        /// The value in the real output.
        value: i64,
        /// The declared range.
        range: String,
    },
}
