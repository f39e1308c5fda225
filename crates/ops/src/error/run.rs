//! Errors of runs of graphs.

use maquette_ir::Device;
use maquette_ir::graph::Redefined;

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
