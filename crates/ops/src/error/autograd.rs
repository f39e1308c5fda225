//! Errors of differentiation.

use maquette_ir::{DType, Loc};

/// A gradient that cannot be computed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AutogradError {
    /// A sweep began with a tensor that depends on nothing with a gradient.
    #[error(
        "{tensor} does not require a gradient: it depends on no tensor that does, or was computed \
            in `no_grad`"
    )]
    RootWithoutGrad {
        /// The tensor.
        tensor: String,
    },
    /// The gradient with respect to a tensor that requires none.
    #[error("{tensor} does not require a gradient; call `requires_grad_()` before it is used")]
    InputWithoutGrad {
        /// The tensor.
        tensor: String,
    },
    /// A sweep began with several elements and no gradient of them.
    #[error(
        "{tensor} is no scalar, and a sweep begins with one number: reduce it first, as in \
            `y.sum().backward()`, or give the gradient of each element with `backward_with`, or \
            with `vjp` for a function"
    )]
    NotScalar {
        /// The tensor.
        tensor: String,
    },
    /// The gradient with which a sweep begins has other sizes than the tensor.
    #[error("the gradient {grad} does not have the sizes of {tensor}")]
    RootGrad {
        /// The tensor.
        tensor: String,
        /// The gradient.
        grad: String,
    },
    /// A hook returned a gradient of other sizes or of another dtype.
    #[error("a hook returned {found} in place of the gradient {expected}")]
    GradOfHook {
        /// The gradient that the hook was called with.
        expected: String,
        /// What it returned.
        found: String,
    },
    /// A sweep through a node that an earlier sweep has freed.
    #[error(
        "the call of {op} at {called} was differentiated before, and what it saved is freed; keep \
            it in the first sweep, `autograd::backward(&[y], &[], BackwardOptions {{ retain_graph: \
            true, create_graph: false }})`, or sweep once from the sum of the values"
    )]
    Freed {
        /// The operator.
        op: String,
        /// The line of its call.
        called: Loc,
    },
    /// A tensor that a derivative reads was written after the call.
    #[error(
        "the derivative of {op}, called at {called}, reads {tensor}, which was written{} since; \
            write to a copy of it (`clone_tensor`)", written.map_or(String::new(), |l| format!(" at {l}"))
    )]
    SavedWasWritten {
        /// The operator.
        op: String,
        /// The tensor.
        tensor: String,
        /// The line of the call.
        called: Loc,
        /// The line of the last write.
        written: Option<Loc>,
    },
    /// A derivative or a hook writes a gradient that it was given, in a trace.
    #[error(
        "{to} writes a gradient that it was given, {tensor}{}: others may be given the same \
            tensor; write to a copy of it (`clone_tensor`)",
        written.map_or(String::new(), |l| format!(" at {l}"))
    )]
    GivenWritten {
        /// What writes it.
        to: String,
        /// The gradient.
        tensor: String,
        /// The line of the write.
        written: Option<Loc>,
    },
    /// The second derivative of a rule that reads an intermediate.
    #[error(
        "{op} can be differentiated once, but no further: its derivative reads {tensor}, which was \
            computed for it and saved, and whose own derivative is not known; save inputs and \
            outputs, and compute the tensor from these in the derivative, or, if it is a constant, \
            make it before the call"
    )]
    OnceDifferentiable {
        /// The operator.
        op: String,
        /// The saved tensor.
        tensor: String,
    },
    /// A write through an array to a tensor with a history.
    #[error(
        "`write` gives access to {tensor}, which is a recorded result: its gradient cannot follow \
            what is written through an array; write with operators, write to a copy \
            (`clone_tensor().detach()`), or call `write` in `no_grad`"
    )]
    WriteByArray {
        /// The tensor.
        tensor: String,
    },
    /// A gradient depends on the result of a builtin operator that has no derivative.
    #[error("{op} has no derivative ({why}), and a gradient depends on its result")]
    Refused {
        /// The operator.
        op: String,
        /// Why it has none.
        why: &'static str,
    },
    /// An operator without a rule.
    #[error(
        "{op} has no derivative, and a gradient depends on its result; register one, or cut the \
            dependence with `detach`:\n  #[register_autograd({})]\n  fn backward(ctx: \
            &AutogradCtx, grads: &[Tensor]) -> Result<Vec<Option<Tensor>>>\nwith \
            `setup_context = f` to save what it reads, or without macros `Op::register_autograd`",
        op.rsplit("::").next().unwrap_or(op)
    )]
    NoRule {
        /// The operator.
        op: String,
    },
    /// A mutating operator over tensors that require gradients.
    #[error(
        "{op} mutates its arguments, and a tensor among them requires a gradient: the gradient \
            cannot follow the write; define an operator that returns the new values, with a \
            derivative, or call it in `no_grad` on a detached tensor"
    )]
    MutatingOperator {
        /// The operator.
        op: String,
    },
    /// A write to a leaf.
    #[error(
        "a {}leaf that requires a gradient is written: the values that the gradient belongs to \
            would be lost; write to a copy (`clone_tensor`), or in `no_grad`",
        if *view { "view of a " } else { "" }
    )]
    WriteToLeaf {
        /// Whether the write goes through a view.
        view: bool,
    },
    /// A differentiated function that writes an input.
    #[error(
        "the function writes its input {tensor}, which is part of another differentiation: the \
            values that the gradient belongs to would be lost; write to a copy (`clone_tensor`)"
    )]
    WriteToInput {
        /// The input.
        tensor: String,
    },
    /// A write through a view that was made in `no_grad`.
    #[error(
        "the view was made in `no_grad`, or of such a view, and is written with gradients: the \
            gradient of the tensor that it views cannot follow the write; make the view outside \
            `no_grad`, or detach it, or write in `no_grad`"
    )]
    WriteToViewWithoutGrad,
    /// A write to an output of a closure with a derivative of its own, which is a view.
    #[error(
        "the tensor is an output of `custom_vjp` and shares memory with an input or another \
            tensor, so the derivative of the closure cannot follow a write to it; write to a copy \
            (`clone_tensor`)"
    )]
    WriteToCustomView,
    /// An output of a closure with a derivative of its own is a view, and its base was written.
    #[error(
        "the tensor is an output of `custom_vjp` and shares memory with a tensor that was written \
            since, which the derivative of the closure cannot follow; return a copy \
            (`clone_tensor`) from the closure"
    )]
    CustomViewWritten,
    /// A sweep in a trace that would collect a gradient in a leaf outside of it.
    #[error(
        "a trace cannot collect a gradient in the leaf {tensor} outside of it, made at {made}: a \
            run of the graph would not; trace a function that returns its gradients, as \
            `value_and_grad` makes one"
    )]
    LeafOutsideTrace {
        /// The leaf.
        tensor: String,
        /// The line that made it a leaf.
        made: Loc,
    },
    /// A trace writes a tensor from outside of it, and records the derivative of the write.
    #[error(
        "the tensor {tensor} from outside of the trace is written with gradients, and a run would \
            not pass them on; write detached values, or write in `no_grad`"
    )]
    WriteOutsideTrace {
        /// The tensor.
        tensor: String,
    },
    /// A trace reads or changes what a tensor from outside of it keeps for sweeps.
    #[error(
        "a trace cannot {what} the tensor {tensor} from outside of it: it would once, while \
            tracing, and a run of the graph would not; pass gradients as inputs and results, or \
            call this outside of the function"
    )]
    StateOutsideTrace {
        /// The tensor.
        tensor: String,
        /// What it does: `read the gradient of`…
        what: &'static str,
    },
    /// A traced program uses an input whose memory it has written with gradients through another.
    #[error(
        "{tensor} shares memory with another input of this call, through which the program has \
            written it with gradients, and a trace does not pass gradients from one input to \
            another; pass a copy of one (`clone_tensor`), or use the input that was written"
    )]
    SharedHistory {
        /// The tensor.
        tensor: String,
    },
    /// A dtype without gradients.
    #[error("only floats have gradients, found {dtype}")]
    NotFloat {
        /// The dtype.
        dtype: DType,
    },
    /// A checkpointed function that writes an input.
    #[error(
        "a checkpointed function writes an input, so it cannot be computed again; write to a copy \
            of it (`clone_tensor`)"
    )]
    CheckpointWrites,
    /// The second run of a checkpointed function differs from the first.
    #[error(
        "the checkpoint at {called} does not compute the same again: the first run saved \
            {expected}, the second {found}; a checkpointed function must depend on its inputs and \
            on constant tensors alone"
    )]
    Recomputed {
        /// The line of the checkpoint.
        called: Loc,
        /// What the first run saved.
        expected: String,
        /// What the second run saved.
        found: String,
    },
    /// A tensor that a custom derivative keeps as a value.
    #[error(
        "`save_value` keeps a tensor with its history, which would keep itself alive; keep a \
            tensor with `save`"
    )]
    TensorAsValue,
    /// A gradient of an argument that is not a tensor.
    #[error(
        "the derivative of {op}, made at {made}, gives a gradient for {argument}, which is no tensor"
    )]
    GradOfNoTensor {
        /// The operator.
        op: String,
        /// The line of the derivative.
        made: Loc,
        /// The argument, as ``argument `x` ``.
        argument: String,
    },
    /// A gradient that does not fit its argument.
    #[error(
        "the derivative of {op}, made at {made}, gives the gradient {found} for {argument}, which \
            is {expected}; a gradient has the sizes, the dtype and the device of its argument"
    )]
    GradOfArgument {
        /// The operator.
        op: String,
        /// The line of the derivative.
        made: Loc,
        /// The argument, as ``argument `x` ``.
        argument: String,
        /// The gradient.
        found: String,
        /// The argument.
        expected: String,
    },
    /// A derivative was registered for an operator that cannot have one.
    #[error(
        "{op} writes its arguments, so no gradient can be registered for it; register one for an \
            operator that returns the new values instead of {schema}"
    )]
    NotFunctional {
        /// The operator.
        op: String,
        /// Its schema.
        schema: String,
    },
    /// A rule gave a wrong number of gradients.
    #[error(
        "the derivative of {op}, made at {made}, gives {found} gradients for {expected} arguments"
    )]
    Count {
        /// The operator.
        op: String,
        /// The line of the derivative.
        made: Loc,
        /// The number of arguments.
        expected: usize,
        /// The number of gradients.
        found: usize,
    },
}
