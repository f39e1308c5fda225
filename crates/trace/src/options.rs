//! Options of a trace: which sizes are symbols, and how inputs and the graph are named.

use crate::dim::Dim;
use crate::inputs::{TraceInputs, guarded_integers, part_label};
use crate::traced::{Traced, TracedProgram};
use crate::tracer::TraceSession;
use maquette_ir::Loc;
use maquette_ops::{Result, Tensor, Tree, mode, tree};

/// Traces `f` with static sizes: `TraceOptions::new().trace(f, inputs)`.
///
/// # Errors
/// As [`TraceOptions::trace`].
#[track_caller]
pub fn trace<I: Tree, O: Tree>(f: impl FnOnce(I) -> O, inputs: I) -> Result<Traced<I, O::Output>> {
    TraceOptions::new().trace(f, inputs)
}

/// Options of a trace. Inputs are the leaves of the input tree, in order: the second tensor of a
/// tuple is input 1.
#[derive(Clone, Debug, Default)]
pub struct TraceOptions {
    pub(crate) name: Option<String>,
    pub(crate) symbolic: bool,
    pub(crate) duck: bool,
    pub(crate) keep_offsets: bool,
    pub(crate) guarded: bool,
    pub(crate) real: bool,
    pub(crate) names: Option<Vec<String>>,
    pub(crate) dims: Vec<(usize, usize, Dim)>,
    pub(crate) undecided: Vec<(usize, usize)>,
    pub(crate) integers: Vec<usize>,
}

impl TraceOptions {
    /// Static sizes: every size is the sample's number.
    pub fn new() -> TraceOptions {
        TraceOptions::default()
    }

    /// Symbolic sizes: every size of every input tensor is a symbol in `[0, oo)` (`s0`, `s1`…), and
    /// so is every [`SymInt`](maquette_ir::sym::SymInt) among the inputs, without a range. No size
    /// is specialized, 0 and 1 included, unless the program branches on it.
    pub fn symbolic() -> TraceOptions {
        TraceOptions { symbolic: true, ..TraceOptions::default() }
    }

    /// Makes dimension `dim` of input `input` a symbol with this name and range.
    pub fn dynamic(mut self, input: usize, dim: usize, symbol: Dim) -> TraceOptions {
        self.dims.push((input, dim, symbol));
        self
    }

    /// Makes dimension `dim` of input `input` a symbol on which the program must not decide: a
    /// branch on the size is refused with its line, as one on data is, so the graph has no guard on
    /// it. Operators assert what they need of the size, and a run checks it. As PyTorch's
    /// `mark_unbacked`.
    pub fn unbacked(mut self, input: usize, dim: usize) -> TraceOptions {
        self.undecided.push((input, dim));
        self
    }

    /// Makes input `input` a symbol, if it is an integer and the input type holds a
    /// [`SymInt`](maquette_ir::sym::SymInt). An `i64` stays a constant of the graph.
    pub fn dynamic_integer(mut self, input: usize) -> TraceOptions {
        self.integers.push(input);
        self
    }

    /// The names of the inputs, one for each. By default an input is named after its path in the
    /// input tree (`layers_0_weight`), or `in0`, `in1`….
    pub fn names<S: Into<String>>(mut self, names: impl IntoIterator<Item = S>) -> TraceOptions {
        self.names = Some(names.into_iter().map(Into::into).collect());
        self
    }

    /// The dimensions declared with [`TraceOptions::dynamic`]: input, dimension and symbol.
    pub fn dynamic_dims(&self) -> &[(usize, usize, Dim)] {
        &self.dims
    }

    /// The name of the graph; `graph` by default.
    pub fn name(mut self, name: impl Into<String>) -> TraceOptions {
        self.name = Some(name.into());
        self
    }

    /// Duck shaping: sizes that are equal in the sample share a symbol. Off by default.
    pub fn duck_shaping(mut self, on: bool) -> TraceOptions {
        self.duck = on;
        self
    }

    /// Specializes the storage offsets of inputs to the samples': the graph then refuses inputs
    /// that begin elsewhere in their storage. A program needs this if it uses absolute offsets, as
    /// `as_strided` with an offset does. Off by default: an input may begin anywhere.
    pub fn keep_offsets(mut self, on: bool) -> TraceOptions {
        self.keep_offsets = on;
        self
    }

    /// Promises that the caller runs the graph only where calls record derivatives as in the trace,
    /// no input requires a gradient, and inputs begin at the kept offsets. The program may then ask
    /// for these. For compilers.
    #[doc(hidden)]
    pub fn guarded(mut self, on: bool) -> TraceOptions {
        self.guarded = on;
        self
    }

    /// Also makes every call on copies of the samples, which then need data. Off by default. It has
    /// three effects:
    /// - A branch on data-dependent sizes takes the direction that the samples give. The graph
    ///   asserts that direction with the branch's line, so a run on data that decides otherwise is
    ///   refused.
    /// - An operator without a fake kernel gets outputs with the rank and dtype that its kernel
    ///   returned, and with data-dependent sizes.
    /// - Each fake kernel is checked against its kernel while tracing.
    ///
    /// Kernels run, and so do their effects. Samples, captured tensors and the state of random
    /// numbers do not change.
    pub fn propagate_real(mut self, on: bool) -> TraceOptions {
        self.real = on;
        self
    }

    /// Runs `f` once on fake tensors that have the metadata of `inputs`, and returns the graph of
    /// its calls. The data of `inputs` is neither read nor written.
    ///
    /// `f` may return a [`Result`], or a tree with results in it. An error ends the trace; the
    /// traced program returns the tree without them ([`Tree::Output`]), so that
    /// [`Traced::run`] gives one `Result`:
    ///
    /// ```
    /// # use maquette_aten as _;
    /// use maquette_ops::{Result, Tensor};
    /// use maquette_trace::TraceOptions;
    ///
    /// let x = Tensor::from([1.0f32, 2.0]);
    /// let f = |x: Tensor| -> Result<Tensor> { (x * 2.0).ok().cloned() };
    /// let y: Tensor = TraceOptions::symbolic().trace(f, x.clone())?.run(x)?;
    /// assert_eq!(y.to_vec::<f32>()?, [2.0, 4.0]);
    /// # Ok::<(), maquette_ops::Error>(())
    /// ```
    ///
    /// The graph does what `f` does, so `f` cannot act on an error of the trace. An operation is a
    /// call of an operator, an access to data (`read`, `item`, `to_vec`, …), or a decision
    /// (`guard`, `guard_int`, `check`). The first error of any operation is the error of the trace,
    /// even if `f` discards it, as in `x.item::<f32>().unwrap_or(0.0)`. The same holds for a fake
    /// kernel. A query decides nothing and may have no answer: `statically_known`, `hint`, `range`,
    /// `as_i64`, `poisoned`, `Display`.
    ///
    /// A trace belongs to the thread that made it. Until it ends, no other thread can use its
    /// tensors, or read or write a real tensor that it has captured: such a use would take place,
    /// and the graph would not hold it. The use is an error, and the error of the trace. Any other
    /// real tensor is usable everywhere, the samples among them. Work that another thread started
    /// before the trace captured the tensor goes on; what becomes of its results is up to the
    /// caller.
    ///
    /// # Errors
    /// The options do not fit the inputs; or the first error of any operation in `f`, even if its
    /// result is unused.
    #[track_caller]
    pub fn trace<I: Tree, O: Tree>(
        &self,
        f: impl FnOnce(I) -> O,
        inputs: I,
    ) -> Result<Traced<I, O::Output>> {
        self.record(f, None, inputs, Loc::caller()).map_err(mode::failed)
    }

    /// As [`TraceOptions::trace`], for a caller that traces on behalf of the line `loc`.
    ///
    /// # Errors
    /// As [`TraceOptions::trace`].
    pub fn trace_at<I: Tree, O: Tree>(
        &self,
        f: impl FnOnce(I) -> O,
        inputs: I,
        loc: Loc,
    ) -> Result<Traced<I, O::Output>> {
        self.record(f, None, inputs, loc).map_err(mode::failed)
    }

    /// The name of input `index` for messages, where `path` is the
    /// [path of its leaf](maquette_ops::tree::Leaf::path): the given name, or else the path, with
    /// `in` before a position. A function of one tensor has the input `in0`.
    pub fn label(&self, index: usize, path: &str) -> String {
        let given = self.names.as_ref().and_then(|names| names.get(index)).cloned();
        given.unwrap_or_else(|| part_label(if path.is_empty() { "0" } else { path }))
    }

    /// Traces `f`; with `state`, the program's own tensors are inputs.
    pub(crate) fn record<I: Tree, O: Tree>(
        &self,
        f: impl FnOnce(I) -> O,
        state: Option<&[(String, Tensor)]>,
        inputs: I,
        loc: Loc,
    ) -> Result<Traced<I, O::Output>> {
        let (in_spec, leaves) = tree::flatten(&inputs)?;
        // An `i64` and a `SymInt` flatten to the same leaf. An integer whose number is read while
        // the tree is rebuilt belongs to an `i64`, and is specialized.
        let fixed = if self.symbolic || !self.integers.is_empty() {
            guarded_integers(&leaves, |values| I::unflatten(&in_spec, values).map(drop))
        } else {
            Vec::new()
        };
        let trace_inputs =
            TraceInputs { options: self, leaves: &leaves, fixed: &fixed, state, loc };
        let session = TraceSession::begin(&trace_inputs).map_err(|e| e.at(loc))?;
        let input = I::unflatten(&in_spec, &mut session.leaves().iter().cloned())?;
        let output = session.run(|| f(input));
        let program: TracedProgram = session.finish(in_spec, tree::flatten(&output))?;
        Ok(Traced::new(program))
    }
}
