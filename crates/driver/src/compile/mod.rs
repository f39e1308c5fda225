//! Compilation at the call: [`compile`] gives a function that traces itself when it is called, and
//! keeps the programs with the guards under which they are valid.
//!
//! A call takes these steps:
//!
//! 1. `call_inputs` flattens the inputs into leaves, and numbers: sizes, strides and integers.
//! 2. `cache` looks for a program whose `guards` hold, the last one first. If there is one, its
//!    `executor` runs it.
//! 3. Otherwise the stance and the recompile limit decide whether to compile. `dynamic` decides
//!    which sizes become symbols, `program` traces and prepares the program, and `cache` adds it.
//!
//! As with `torch.compile(fullgraph=True)`, a function is one graph or an error.

mod accepted;
mod cache;
mod call_inputs;
mod compiled;
mod dynamic;
mod evaluate;
mod executor;
mod explain;
mod failure;
mod guards;
mod program;
mod sharing;

pub use compiled::Compiled;
pub use explain::{Explanation, ProgramExplanation};

use maquette_ops::operator::{HostFallback, with_host_fallback};
use maquette_ops::{Tree, with_num_threads};
use maquette_pipeline::FastMath;
use maquette_rewrite::Rematerialization;
use maquette_trace::{Dim, TraceOptions};

/// Compiles a function when it is called: `CompileOptions::new().compile(f)`.
///
/// The first call traces the function with the sizes of its inputs. A later call with other sizes
/// compiles once more, with these sizes as symbols, and further sizes compile nothing:
///
/// ```
/// use maquette_driver::compile;
/// use maquette_ops::Tensor;
///
/// let f = compile(|x: Tensor| (x * 2.0).relu());
/// for n in [4, 5, 6, 1, 0, 7] {
///     let y = f.call(Tensor::from_vec(vec![1.0f32; n], [n]))?;
///     assert_eq!(y.to_vec::<f32>()?, vec![2.0; n]);
/// }
/// assert_eq!(f.compilations(), 2);
/// # Ok::<(), maquette_ops::Error>(())
/// ```
///
/// The function must be a function of its inputs and of tensors that it captures. A captured tensor
/// is used by reference, so each call sees its contents. Anything else that the function captures,
/// such as a number in a `Cell`, is read while tracing, and only then.
pub fn compile<I: Tree, O: Tree, F: Fn(I) -> O>(f: F) -> Compiled<I, O, F> {
    CompileOptions::new().compile(f)
}

/// How a compiled function treats a call that no program fits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Stance {
    /// Compile.
    #[default]
    Compile,
    /// Call the function itself, always. Programs are kept, and not used.
    ForceEager,
    /// Call the function itself, and compile nothing.
    EagerOnRecompile,
    /// Compile the first call. Later ones fail with the guard that does not hold.
    FailOnRecompile,
    /// Call the function itself the first time, and compile from the second call on. Sizes that
    /// differ between the first two calls are symbols in the first program.
    EagerThenCompile,
}

impl Stance {
    pub(crate) const ALL: [Stance; 5] = [
        Stance::Compile,
        Stance::ForceEager,
        Stance::EagerOnRecompile,
        Stance::FailOnRecompile,
        Stance::EagerThenCompile,
    ];
}

/// Options of a compilation. Inputs are numbered as the leaves of the input tree, in order.
#[derive(Clone, Debug)]
pub struct CompileOptions {
    trace: TraceOptions,
    name: Option<String>,
    symbolic: bool,
    fixed: Vec<(usize, usize)>,
    unbacked: Vec<(usize, usize)>,
    limit: usize,
    num_threads: usize,
    host_fallback: Option<HostFallback>,
    stance: Stance,
    rematerialize: Option<Rematerialization>,
    fast_math: FastMath,
}

impl Default for CompileOptions {
    fn default() -> CompileOptions {
        CompileOptions {
            trace: TraceOptions::new(),
            name: None,
            symbolic: false,
            fixed: Vec::new(),
            unbacked: Vec::new(),
            limit: 8,
            num_threads: usize::MAX,
            host_fallback: None,
            stance: Stance::Compile,
            rematerialize: None,
            fast_math: FastMath::new(),
        }
    }
}

impl CompileOptions {
    /// Options under which sizes become symbols when they change.
    pub fn new() -> CompileOptions {
        CompileOptions::default()
    }

    /// Every size and every [`SymInt`](maquette_ir::sym::SymInt) is a symbol from the first call
    /// on, as with PyTorch's `dynamic=True`, except sizes that are marked otherwise. A size of
    /// which the program requires one number is a number.
    pub fn symbolic() -> CompileOptions {
        CompileOptions { symbolic: true, ..CompileOptions::default() }
    }

    /// Dimension `dim` of input `input` is a symbol with this name from the first call on, as with
    /// PyTorch's `mark_dynamic`. Compilation fails if the program requires one size, or restricts a
    /// range that `symbol` declares; a call fails if its size is outside of that range.
    pub fn dynamic(self, input: usize, dim: usize, symbol: Dim) -> CompileOptions {
        CompileOptions { trace: self.trace.dynamic(input, dim, symbol), ..self }
    }

    /// Dimension `dim` of input `input` is never a symbol, as with PyTorch's `mark_static`: each of
    /// its sizes compiles a program.
    pub fn static_(mut self, input: usize, dim: usize) -> CompileOptions {
        self.fixed.push((input, dim));
        self
    }

    /// Dimension `dim` of input `input` is a symbol on which the program must not branch, as with
    /// PyTorch's `mark_unbacked`. So no size of it compiles again. A branch is an error that names
    /// its line; operators check what they need of the size when they run.
    pub fn unbacked(mut self, input: usize, dim: usize) -> CompileOptions {
        self.unbacked.push((input, dim));
        CompileOptions { trace: self.trace.unbacked(input, dim), ..self }
    }

    /// The number of programs that the function may have at a time; 8 by default. A call that would
    /// need one more fails.
    pub fn recompile_limit(self, n: usize) -> CompileOptions {
        CompileOptions { limit: n, ..self }
    }

    /// The most threads that a call may use, its own included; 0 is 1. By default a call may use
    /// all threads of the pool. [`with_num_threads`](maquette_ops::with_num_threads) limits one
    /// call, and the least of all limits holds. Results do not depend on it, in bits.
    pub fn num_threads(self, n: usize) -> CompileOptions {
        CompileOptions { num_threads: n, ..self }
    }

    /// Whether operators without a kernel for the device of their operands may run on the host
    /// during a call. By default the rule of the thread or of the process holds.
    pub fn host_fallback(self, rule: HostFallback) -> CompileOptions {
        CompileOptions { host_fallback: Some(rule), ..self }
    }

    /// Runs a call under the limits that hold for its thread.
    fn limited<R>(&self, call: impl FnOnce() -> R) -> R {
        with_num_threads(self.num_threads, || match self.host_fallback {
            Some(rule) => with_host_fallback(rule, call),
            None => call(),
        })
    }

    /// How calls are treated that no program fits.
    pub fn stance(self, stance: Stance) -> CompileOptions {
        CompileOptions { stance, ..self }
    }

    /// Computes values again in place of keeping them, to need less memory: in a step of training,
    /// values of the forward pass that the backward pass reads. Results keep their bits. As
    /// PyTorch's min-cut partitioner with an `activation_memory_budget`, for any function.
    ///
    /// Kept are results of random operators, of operators with effects, of custom operators that
    /// are not tagged [`Pointwise`](maquette_ops::library::Tag::Pointwise), and of products,
    /// convolutions and attention unless the options allow them. The memory is that of a call with
    /// the sizes for which the program was compiled. [`Compiled::explain`] says how much it is, and
    /// whether it keeps to the bound.
    pub fn rematerialize(self, options: Rematerialization) -> CompileOptions {
        CompileOptions { rematerialize: Some(options), ..self }
    }

    /// Allows rewrites that change bits of results, by rounding; none by default. A gradient that
    /// the function computes reads the weights of an attention again, which then stays as it is.
    ///
    /// ```
    /// use maquette_driver::{CompileOptions, FastMath};
    /// use maquette_ir::DType;
    /// use maquette_ops::Tensor;
    ///
    /// let attend = |(q, k, v): (Tensor, Tensor, Tensor)| {
    ///     (q.matmul(&k.transpose(-2, -1)) / 8.0).softmax(-1).matmul(&v)
    /// };
    /// let f = CompileOptions::new().fast_math(FastMath::new().attention(true)).compile(attend);
    /// let x = Tensor::ones([2, 5, 64], DType::F32);
    /// let y = f.call((x.clone(), x.clone(), x))?;
    /// assert!((y.to_vec::<f32>()?[0] - 1.0).abs() < 1e-6);
    /// let program = &f.explain().programs[0];
    /// assert_eq!(program.attention.as_ref().map(|found| found.recognized.len()), Some(1));
    /// # Ok::<(), maquette_ops::Error>(())
    /// ```
    pub fn fast_math(self, flags: FastMath) -> CompileOptions {
        CompileOptions { fast_math: flags, ..self }
    }

    /// The name of the function, for messages and graphs; `graph` by default.
    pub fn name(self, name: impl Into<String>) -> CompileOptions {
        let name = name.into();
        CompileOptions { trace: self.trace.name(name.clone()), name: Some(name), ..self }
    }

    /// As [`TraceOptions::names`].
    pub fn names<S: Into<String>>(self, names: impl IntoIterator<Item = S>) -> CompileOptions {
        CompileOptions { trace: self.trace.names(names), ..self }
    }

    /// Compiles a function when it is called; see [`compile`].
    pub fn compile<I: Tree, O: Tree, F: Fn(I) -> O>(self, f: F) -> Compiled<I, O, F> {
        Compiled::new(f, self)
    }
}
