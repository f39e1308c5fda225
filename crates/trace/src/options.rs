//! How to trace: which sizes are symbols, and what things are called.

use crate::dim::Dim;
use crate::inputs::{TraceInputs, guarded_integers};
use crate::traced::{Traced, TracedProgram};
use crate::tracer::TraceSession;
use maquette_ir::Loc;
use maquette_ops::{Result, Tensor, Tree, tree};

/// Traces `f` with every size a plain number. Equal to `TraceOptions::new().trace(f, inputs)`.
///
/// # Errors
/// As [`TraceOptions::trace`].
#[track_caller]
pub fn trace<I: Tree, O: Tree>(f: impl FnOnce(I) -> O, inputs: I) -> Result<Traced<I, O::Output>> {
    TraceOptions::new().trace(f, inputs)
}

/// Options of a trace. Inputs are counted as the leaves of the input tree, in order: the second
/// tensor of a tuple is input 1.
#[derive(Clone, Debug, Default)]
pub struct TraceOptions {
    pub(crate) name: Option<String>,
    pub(crate) symbolic: bool,
    pub(crate) duck: bool,
    pub(crate) keep_offsets: bool,
    pub(crate) real: bool,
    pub(crate) names: Option<Vec<String>>,
    pub(crate) dims: Vec<(usize, usize, Dim)>,
}

impl TraceOptions {
    /// Every size is the sample's number.
    pub fn new() -> TraceOptions {
        TraceOptions::default()
    }

    /// Every size of every input tensor, and every [`SymInt`](maquette_ir::sym::SymInt) among the
    /// inputs, is a symbol in `[0, oo)`: `s0`, `s1`… No size is special, 0 and 1 included, unless
    /// the program branches on it.
    pub fn symbolic() -> TraceOptions {
        TraceOptions { symbolic: true, ..TraceOptions::default() }
    }

    /// Makes dimension `dim` of input `input` a symbol with this name and range.
    pub fn dynamic(mut self, input: usize, dim: usize, symbol: Dim) -> TraceOptions {
        self.dims.push((input, dim, symbol));
        self
    }

    /// Names for the inputs, one each. By default an input is named by its path in the input tree
    /// (`layers_0_weight`), or `in0`, `in1`…
    pub fn names<S: Into<String>>(mut self, names: impl IntoIterator<Item = S>) -> TraceOptions {
        self.names = Some(names.into_iter().map(Into::into).collect());
        self
    }

    /// The dimensions that [`TraceOptions::dynamic`] was told of: input, dimension, and the symbol.
    pub fn dynamic_dims(&self) -> &[(usize, usize, Dim)] {
        &self.dims
    }

    /// The graph's name, `graph` by default.
    pub fn name(mut self, name: impl Into<String>) -> TraceOptions {
        self.name = Some(name.into());
        self
    }

    /// Whether sizes that are equal in the sample share a symbol. Off by default.
    pub fn duck_shaping(mut self, on: bool) -> TraceOptions {
        self.duck = on;
        self
    }

    /// Whether inputs begin where the samples begin in their storages, and the graph refuses
    /// others: what a program needs that names a place in a storage, as `as_strided` with an offset
    /// does. Off by default: an input may begin anywhere.
    pub fn keep_offsets(mut self, on: bool) -> TraceOptions {
        self.keep_offsets = on;
        self
    }

    /// Whether every call is also made on copies of the samples, which then need data. Off by
    /// default. With it
    /// - a branch on data-dependent sizes is decided as the samples decide it, and asserted in the
    ///   graph with its line: a run on data that decides it otherwise is refused;
    /// - an operator without a fake kernel gets outputs of the rank and dtype that its kernel
    ///   returned, in sizes that depend on data;
    /// - each fake kernel is checked against its kernel while tracing.
    ///
    /// Kernels run, and so do their effects; samples, captured tensors and random numbers stay as
    /// they are.
    pub fn propagate_real(mut self, on: bool) -> TraceOptions {
        self.real = on;
        self
    }

    /// Runs `f` once on fake tensors for `inputs` and returns the graph of the operators that it
    /// called. The data of `inputs` is neither read nor written.
    ///
    /// `f` may return a [`Result`], or a tree with results in it. An error ends the trace; the
    /// traced program returns the tree without them ([`Tree::Output`]), so that
    /// [`Traced::run`] gives one `Result`:
    ///
    /// ```
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
    /// # Errors
    /// The options do not fit the inputs; or the first error of any operation in `f`, even if
    /// nothing came of its result.
    #[track_caller]
    pub fn trace<I: Tree, O: Tree>(
        &self,
        f: impl FnOnce(I) -> O,
        inputs: I,
    ) -> Result<Traced<I, O::Output>> {
        self.record(f, None, inputs, Loc::caller())
    }

    /// Traces `f`. With `state`, tensors of the program's own are inputs.
    pub(crate) fn record<I: Tree, O: Tree>(
        &self,
        f: impl FnOnce(I) -> O,
        state: Option<&[(String, Tensor)]>,
        inputs: I,
        loc: Loc,
    ) -> Result<Traced<I, O::Output>> {
        let (in_spec, leaves) = tree::flatten(&inputs)?;
        // an `i64` and a `SymInt` flatten alike; the one that asks for its number while the tree is
        // rebuilt stays a number
        let fixed = if self.symbolic {
            guarded_integers(&leaves, |values| I::unflatten(&in_spec, values).map(drop))
        } else {
            Vec::new()
        };
        let trace_inputs = TraceInputs { options: self, leaves: &leaves, fixed: &fixed, state };
        let session = TraceSession::begin(&trace_inputs).map_err(|e| e.at(loc))?;
        let input = I::unflatten(&in_spec, &mut session.leaves().iter().cloned())?;
        let output = session.run(|| f(input));
        let program: TracedProgram = session.finish(in_spec, tree::flatten(&output))?;
        Ok(Traced::new(program))
    }
}
