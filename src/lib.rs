//! Maquette traces Rust model code into graphs, rewrites the graphs, and runs them. Kernels of any
//! origin take part as *custom operators* that no pass looks into. Maquette is for Rust what
//! `torch.library`, `make_fx`, `torch.export`, `torch.compile` and `torch.func` are for PyTorch.
//!
//! A graph does what the eager program does, mutation and aliasing included, or it is refused with
//! an error that names the line.
//!
//! # A program, from operator to run
//!
//! ```
//! use maquette::interp::Interpreter;
//! use maquette::prelude::*;
//! use maquette::rewrite::{Options, functionalize};
//!
//! // A custom operator. Its signature gives the schema: doc::sine(Tensor x) -> Tensor
//! #[custom_op("doc::sine")]
//! fn sine(x: &Tensor) -> Result<Tensor> {
//!     let x = x.read::<f32>()?; // an ndarray view, borrowed from the tensor
//!     Ok(Tensor::from(x.mapv(f32::sin)))
//! }
//!
//! // The fake kernel tells the tracer the sizes and dtype of the output.
//! #[register_fake(sine)]
//! fn sine_fake(_cx: &FakeCtx, x: &Tensor) -> Result<Tensor> {
//!     Ok(x.new_empty(x.sizes(), x.dtype()))
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // The model updates `total` in place.
//! let model = |(x, total): (Tensor, Tensor)| {
//!     let y = sine(&x);
//!     total.add_(y.sum());
//!     y + 1.0
//! };
//!
//! // Tracing runs the model once on metadata. Its graph has the operators as they were called.
//! let sample = (Tensor::zeros([2], DType::F32), Tensor::zeros([1], DType::F32));
//! let traced = TraceOptions::new()
//!     .dynamic(0, 0, Dim::new("n").min(1))
//!     .names(["x", "total"])
//!     .trace(model, sample)?;
//! assert_eq!(
//!     traced.graph().to_string(),
//!     "graph graph(%x: f32[n], %total: f32[1]) -> (f32[n])
//!   where n in [1, oo)
//! {
//!   %sine: f32[n] = doc::sine(%x)
//!   %sum: f32[] = aten::sum(%sine)
//!   %add_: f32[1] = aten::add_.Tensor(%total, %sum)
//!   %add: f32[n] = aten::add.Tensor(%sine, 1.0)
//!   return %add
//! }"
//! );
//!
//! // One trace serves every size.
//! let (x, total) = (Tensor::zeros([5], DType::F32), Tensor::ones([1], DType::F32));
//! let y = traced.run((x.clone(), total.clone()))?;
//! assert_eq!(y.to_vec::<f32>()?, [1.0; 5]);
//!
//! // Without mutation: the new total is the first result.
//! let functional = functionalize(traced.graph(), &library::Facts, &Options::new())?;
//! assert_eq!(
//!     functional.graph.to_string(),
//!     "graph graph(%x: f32[n], %total: f32[1]) -> (f32[1], f32[n])
//!   where n in [1, oo)
//! {
//!   %sine: f32[n] = doc::sine(%x)
//!   %sum: f32[] = aten::sum(%sine)
//!   %add: f32[1] = aten::add.Tensor(%total, %sum)
//!   %add_1: f32[n] = aten::add.Tensor(%sine, 1.0)
//!   return %add, %add_1
//! }"
//! );
//!
//! // The interpreter writes the result back, so a caller sees no difference.
//! let run = Interpreter::new(&functional).run(&[Value::from(&x), Value::from(&total)])?;
//! assert_eq!(run.results[0].tensor()?.to_vec::<f32>()?, [1.0; 5]);
//! # Ok(())
//! # }
//! ```
//!
//! # What is where
//!
//! | to | look at |
//! |---|---|
//! | compute eagerly | [`Tensor`], whose methods are named after the ATen operators |
//! | define an operator | [`macro@custom_op`], or [`library::custom_op`] without macros |
//! | register a kernel for it | [`macro@register_kernel`], [`macro@register_fake`], [`Op`] |
//! | give it a derivative | [`macro@register_autograd`], [`AutogradRule`] |
//! | add to another library's namespace, or override it | [`library::Library`] |
//! | check an operator against its contract | `library::opcheck` (feature `check`) |
//! | trace a function | [`trace()`], [`TraceOptions`], [`Traced`] |
//! | compile a function at its calls | [`compile()`], [`CompileOptions`] |
//! | see what each kernel of a compiled program costs | [`profile`] |
//! | replace composites by their parts | [`decompose()`] |
//! | keep a graph as a snapshot | `assert_graph_snapshot!` (feature `check`) |
//! | export a module with its tensors | [`ExportOptions`], [`Program`], [`macro@Module`] |
//! | make a graph functional, plan its memory | [`rewrite`] |
//! | run all passes on a graph | [`pipeline`] |
//! | run a graph | [`interp::Interpreter`], compiled [`runtime::Executable`] |
//! | read, print, build, verify a graph | [`Graph`], and the module [`ir::graph`] |
//! | compute with symbolic sizes | [`SymInt`], [`SymBool`] |
//! | train | [`value_and_grad`], [`optim`] |
//! | read and write checkpoints | [`io`] |
//!
//! # Guides
//!
//! - [Custom operators](guide::custom_operators): define, check and register operators.
//! - [Branching](guide::branching): programs that depend on sizes and on data.
//! - [Errors](guide::errors): tensors that carry errors.
//! - [Compilation](guide::compile): functions that compile themselves when they are called.
//! - [Devices](guide::devices): where tensors are, and operators without a kernel there.
//! - [Export](guide::export): modules as programs of their own.
//! - [Functionalization](guide::functionalization): graphs without mutation, and buffer plans.
//! - [Profiles](guide::profile): the time of each kernel, its work, and the machine's peaks.
//! - [Training](guide::training): gradients, optimizers, and a step of training as one graph.
//! - [Snapshots](guide::snapshots): graphs as texts that a test compares.
//!
//! # Features
//!
//! `check` adds `assert_graph_snapshot!`, `library::opcheck`, `opcheck_suite!` and the module
//! `check`. It is off by default, and is for tests.
#![deny(unsafe_code)]
#![warn(missing_docs)]

pub mod interp;
pub mod io;
pub mod library;
pub mod pipeline;
pub mod profile;
pub mod rewrite;
pub mod runtime;

/// A program compiled for a device.
///
/// ```
/// use maquette::prelude::*;
///
/// #[derive(Module)]
/// #[module(Tensor -> Tensor)]
/// struct Gate;
///
/// impl Gate {
///     fn forward(&self, x: Tensor) -> Tensor {
///         x.sigmoid() * x
///     }
/// }
///
/// let x = Tensor::from([0.0f32, 1.0]);
/// let program = ExportOptions::new().export(&Gate, x.clone())?;
/// let compiled = program.compile(Device::Cpu)?;
/// let (y, expected) = (compiled.call(x.clone())?, program.call(x)?);
/// assert_eq!(y.to_vec::<f32>()?, expected.to_vec::<f32>()?);
/// # Ok::<(), Error>(())
/// ```
pub use maquette_driver::CompiledProgram;
/// The options of an export. [`ExportOptions::export`] turns a module into a [`Program`].
///
/// ```
/// use maquette::prelude::*;
///
/// #[derive(Module)]
/// #[module(Tensor -> Tensor)]
/// struct Scale {
///     factor: Tensor,
/// }
///
/// impl Scale {
///     fn forward(&self, x: Tensor) -> Tensor {
///         x * &self.factor
///     }
/// }
///
/// let module = Scale { factor: Tensor::from([3.0f32]) };
/// let program = ExportOptions::new()
///     .name("scale")
///     .names(["x"])
///     .dynamic(0, 0, Dim::new("n").min(1).max(64))
///     .export(&module, Tensor::ones([2], DType::F32))?;
/// assert_eq!(program.call(Tensor::ones([4], DType::F32))?.to_vec::<f32>()?, [3.0; 4]);
/// # Ok::<(), Error>(())
/// ```
pub use maquette_driver::ExportOptions;
/// What [`Compiled::freeze`] and [`CompiledProgram::freeze`] have frozen.
pub use maquette_driver::FreezeReport;
/// An exported module: a functional graph, copies of the module's tensors, and a signature.
///
/// ```
/// use maquette::prelude::*;
///
/// #[derive(Module)]
/// #[module(Tensor -> Tensor)]
/// struct Counter {
///     #[buffer]
///     seen: Tensor,
/// }
///
/// impl Counter {
///     fn forward(&self, x: Tensor) -> Tensor {
///         self.seen.add_(1.0);
///         x + &self.seen
///     }
/// }
///
/// let counter = Counter { seen: Tensor::zeros([1], DType::F32) };
/// let x = Tensor::ones([1], DType::F32);
/// let program = ExportOptions::new().names(["x"]).export(&counter, x.clone())?;
///
/// // The program has a buffer of its own, which a call updates.
/// assert_eq!(program.call(x.clone())?.to_vec::<f32>()?, [2.0]);
/// assert_eq!(program.call(x)?.to_vec::<f32>()?, [3.0]);
/// assert_eq!(counter.seen.to_vec::<f32>()?, [0.0]);
/// assert!(program.to_string().starts_with("inputs\n  buffer seen: %b_seen\n  input x: %x\n"));
/// # Ok::<(), Error>(())
/// ```
pub use maquette_driver::Program;
/// Compiles a function when it is called.
///
/// ```
/// use maquette::prelude::*;
///
/// let f = compile(|x: Tensor| x.relu() * 2.0);
/// assert_eq!(f.call(Tensor::from([-1.0f32, 2.0]))?.to_vec::<f32>()?, [0.0, 4.0]);
/// println!("{}", f.explain());
/// # Ok::<(), Error>(())
/// ```
pub use maquette_driver::compile;
pub use maquette_driver::{
    AttentionExplanation, CompileOptions, Compiled, Explanation, FastMath, NoAttentionReason,
    ProgramExplanation, RecomputeExplanation, Stance,
};
pub use maquette_driver::{
    Condition, InputKind, InputSpec, OutputKind, OutputSpec, RangeConstraint, Signature,
    SignatureSyntax,
};
pub use maquette_interp::check_calls;

pub use maquette_ir as ir;
pub use maquette_ir::graph::Graph;
pub use maquette_ir::sym::{SymBool, SymInt};
pub use maquette_ir::{DType, Device, DeviceKind, Layout, Loc, MemoryFormat, Scalar};
pub use maquette_macros::{
    Module, Tree, custom_op, register_autograd, register_fake, register_kernel, scoped,
};
pub use maquette_ops as ops;
/// Lower precision where it is safe.
///
/// ```
/// use maquette::prelude::*;
/// use maquette::autocast;
///
/// let model = |(x, w): (Tensor, Tensor)| autocast(DType::BF16, || x.matmul(&w).relu());
/// let inputs = (Tensor::ones([2, 3], DType::F32), Tensor::ones([3, 4], DType::F32));
/// assert_eq!(compile(model).call(inputs)?.dtype(), DType::BF16);
/// # Ok::<(), Error>(())
/// ```
pub use maquette_ops::autocast;
pub use maquette_ops::autograd::{self, AutogradCtx, AutogradRule, custom_vjp, no_grad};
/// Gradients of functions.
///
/// ```
/// use maquette::prelude::*;
/// use maquette::value_and_grad;
///
/// let loss = |(x, w): (Tensor, Tensor)| (&x * &w).relu().sum();
/// let inputs = (Tensor::from([1.0f32, 2.0]), Tensor::from([3.0f32, -4.0]));
/// let (value, (_, dw)) = compile(value_and_grad(loss)).call(inputs)?;
/// assert_eq!(value.item::<f32>()?, 3.0);
/// assert_eq!(dw.to_vec::<f32>()?, [1.0, 0.0]);
/// # Ok::<(), Error>(())
/// ```
pub use maquette_ops::func::value_and_grad;
pub use maquette_ops::func::{self, grad, vjp};
pub use maquette_ops::module::{Module, Slot};
pub use maquette_ops::tree::Tree;
pub use maquette_ops::{
    Effect, Element, Error, ErrorKind, FakeCtx, IntoDims, Op, Reduction, Resource, Result, Tensor,
    Value, args, bail, ensure, fake, kwargs, named_scope, num_threads, with_default_device,
    with_num_threads,
};
pub use maquette_ops::{autocast_dtype, without_autocast};
pub use maquette_optim as optim;
pub use maquette_pipeline::{Decompose, Decomposed, KeptComposite, KeptReason, decompose};
/// A graph, or anything else that displays, is compared with its snapshot.
///
/// ```
/// use maquette::prelude::*;
///
/// let x = Tensor::zeros([2, 4], DType::F32);
/// let traced = TraceOptions::symbolic().names(["x"]).trace(|x: Tensor| x.relu(), x)?;
/// assert_graph_snapshot!(traced.graph(), @"
/// graph graph(%x: f32[s0, s1]) -> (f32[s0, s1])
///   where s0 in [0, oo), s1 in [0, oo)
/// {
///   %relu: f32[s0, s1] = aten::relu(%x)
///   return %relu
/// }
/// ");
/// # Ok::<(), Error>(())
/// ```
#[cfg(feature = "check")]
pub use maquette_trace::assert_graph_snapshot;
/// Traces a function with the sizes of the sample.
///
/// ```
/// use maquette::prelude::*;
///
/// let x = Tensor::from([-1.0f32, 2.0]);
/// let traced = trace(|x: Tensor| x.relu() * 2.0, x.clone())?;
/// println!("{}", traced.graph());
/// assert_eq!(traced.run(x)?.to_vec::<f32>()?, [0.0, 4.0]);
/// # Ok::<(), Error>(())
/// ```
pub use maquette_trace::trace;
pub use maquette_trace::{Dim, TraceOptions, Traced};
pub use {half, ndarray};
#[cfg(feature = "check")]
pub use {maquette_check as check, maquette_check::opcheck_suite};

/// What most programs use.
pub mod prelude {
    #[cfg(feature = "check")]
    pub use crate::assert_graph_snapshot;
    pub use crate::{
        AutogradCtx, CompileOptions, DType, Decompose, Device, DeviceKind, Dim, Effect, Error,
        ExportOptions, FakeCtx, Graph, IntoDims, Layout, MemoryFormat, Module, Op, Program,
        Resource, Result, Scalar, Slot, Stance, SymBool, SymInt, Tensor, TraceOptions, Traced,
        Tree, Value, args, bail, compile, custom_op, ensure, kwargs, library, ops,
        register_autograd, register_fake, register_kernel, scoped, trace,
    };
}

/// What the macros' output names. Not for use by hand.
#[doc(hidden)]
pub mod __private {
    pub use maquette_ir::sym::SymInt;
    pub use maquette_ops::internals::enter;
    pub use maquette_ops::library::wrapper::{
        CustomOperator, LazyOp, Written, boxed, integer, integers, keep_nothing, register_autograd,
        register_fake, register_kernel, tensors, values,
    };
    pub use maquette_ops::library::{Stage, StaticRegistration, Tag};
    pub use maquette_ops::module::{
        Module, PartId, Slot as ModuleSlot, State as ModuleState, Visitor as ModuleVisitor,
        visit_tensors, walk_part,
    };
    pub use maquette_ops::tree::{Leaves, TreeSpec, wrong_shape};
    /// The one name is for glob imports.
    pub mod no_operator {
        pub use maquette_ops::library::wrapper::__maquette_operator;
    }
    pub use maquette_ops::{
        Args, Effect, IntoDims, Op, Resource, Result, Tensor, Tree, Value, custom_op, inventory,
    };
}

/// The guides. Their snippets are doc tests, with the lines that `snippets!` adds.
pub mod guide {
    // These pages link to others by their address, as a file name would lead nowhere from here.
    #[cfg_attr(not(doctest), doc = include_str!("../docs/custom-operators.md"))]
    #[cfg_attr(doctest, doc = maquette_macros::snippets!("docs/custom-operators.md"))]
    pub mod custom_operators {}
    #[cfg_attr(not(doctest), doc = include_str!("../docs/branching.md"))]
    #[cfg_attr(doctest, doc = maquette_macros::snippets!("docs/branching.md"))]
    pub mod branching {}
    #[cfg_attr(not(doctest), doc = include_str!("../docs/errors.md"))]
    #[cfg_attr(doctest, doc = maquette_macros::snippets!("docs/errors.md"))]
    pub mod errors {}
    #[cfg_attr(not(doctest), doc = include_str!("../docs/compile.md"))]
    #[cfg_attr(doctest, doc = maquette_macros::snippets!("docs/compile.md"))]
    pub mod compile {}
    #[cfg_attr(not(doctest), doc = include_str!("../docs/devices.md"))]
    #[cfg_attr(doctest, doc = maquette_macros::snippets!("docs/devices.md"))]
    pub mod devices {}
    #[cfg_attr(not(doctest), doc = include_str!("../docs/export.md"))]
    #[cfg_attr(doctest, doc = maquette_macros::snippets!("docs/export.md"))]
    pub mod export {}
    #[cfg_attr(not(doctest), doc = include_str!("../docs/functionalization.md"))]
    #[cfg_attr(doctest, doc = maquette_macros::snippets!("docs/functionalization.md"))]
    pub mod functionalization {}
    #[cfg_attr(not(doctest), doc = include_str!("../docs/profile.md"))]
    #[cfg_attr(doctest, doc = maquette_macros::snippets!("docs/profile.md"))]
    pub mod profile {}
    #[cfg_attr(not(doctest), doc = include_str!("../docs/training.md"))]
    #[cfg_attr(doctest, doc = maquette_macros::snippets!("docs/training.md"))]
    pub mod training {}
    #[expect(clippy::test_attr_in_doctest, reason = "`tests/snapshot_guide.rs` runs the test")]
    #[cfg_attr(not(doctest), doc = include_str!("../docs/snapshots.md"))]
    #[cfg_attr(doctest, doc = maquette_macros::snippets!("docs/snapshots.md"))]
    pub mod snapshots {}
}

#[cfg(doctest)]
#[doc = maquette_macros::snippets!("README.md")]
struct Readme;
