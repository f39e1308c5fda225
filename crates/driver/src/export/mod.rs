//! Export: turns a module into a self-contained [`Program`].
//!
//! The module is traced with its parameters and buffers as inputs, and the graph is functionalized.
//! A [`Signature`] describes each input and result of the functional graph, for example "the new
//! value of this buffer". The program owns copies of all tensors that it needs.

mod call_lock;
mod caller;
mod compiled;
pub(crate) mod constraints;
mod program;
mod signature;
mod signature_text;
mod state;

pub use compiled::CompiledProgram;
pub use constraints::RangeConstraint;
pub use program::{Condition, Program};
pub use signature::{InputKind, InputSpec, OutputKind, OutputSpec, Signature};
pub use signature_text::SignatureSyntax;

use maquette_invoke::Captured;
use maquette_ir::Loc;
use maquette_ir::program_form::ProgramForm;
use maquette_ops::internals::enter;
use maquette_ops::library::generation;
use maquette_ops::{Error, ErrorKind, Module, Result, StorageCloner, Tree};
use maquette_pipeline::{Compilation, Pass, PassOptions, WhyUnplanned, compile_observed};
use maquette_rewrite::{FunctionalizeError, Options};
use maquette_trace::{Dim, TraceOptions};
use state::ModuleTensors;
use std::ops::ControlFlow;
use std::sync::Arc;

/// Options of an export, which are those of a trace. Inputs are numbered as the leaves of the input
/// tree, in order. Parameters and buffers do not count.
#[derive(Clone, Debug, Default)]
pub struct ExportOptions {
    trace: TraceOptions,
    decompose: bool,
}

impl From<TraceOptions> for ExportOptions {
    fn from(trace: TraceOptions) -> ExportOptions {
        ExportOptions { trace, decompose: false }
    }
}

impl ExportOptions {
    /// Options of a static export: every size is the sample's.
    pub fn new() -> ExportOptions {
        ExportOptions::default()
    }

    /// As [`TraceOptions::symbolic`]: every size of the inputs is a symbol. The program may
    /// restrict the sizes: the conditions on which it branches become guards.
    pub fn symbolic() -> ExportOptions {
        TraceOptions::symbolic().into()
    }

    /// As [`TraceOptions::dynamic`]. The export fails if the program is not valid for every size in
    /// the declared range.
    pub fn dynamic(self, input: usize, dim: usize, symbol: Dim) -> ExportOptions {
        ExportOptions { trace: self.trace.dynamic(input, dim, symbol), ..self }
    }

    /// As [`TraceOptions::names`].
    pub fn names<S: Into<String>>(self, names: impl IntoIterator<Item = S>) -> ExportOptions {
        ExportOptions { trace: self.trace.names(names), ..self }
    }

    /// As [`TraceOptions::name`].
    pub fn name(self, name: impl Into<String>) -> ExportOptions {
        ExportOptions { trace: self.trace.name(name), ..self }
    }

    /// Replaces composites such as `aten::linear` by the operators that they call, as
    /// [`decompose()`](maquette_pipeline::decompose()) does. Off by default. A composite stays if
    /// the declared sizes do not decide what it does.
    pub fn decompose(self, on: bool) -> ExportOptions {
        ExportOptions { decompose: on, ..self }
    }

    /// Traces `module.forward` on fake tensors in place of `inputs`. Returns the program, with
    /// copies of the current contents of the module's parameters, buffers and captured tensors.
    ///
    /// # Errors
    /// As [`TraceOptions::trace`]. Also if two tensors of the module have the same name, a tensor
    /// has no contents, the program restricts a dimension that was declared dynamic
    /// ([`ExportError::Constraints`](maquette_ops::ExportError)), or it cannot be functionalized.
    #[track_caller]
    pub fn export<M: Module + ?Sized>(
        &self,
        module: &M,
        inputs: M::In,
    ) -> Result<Program<M::In, <M::Out as Tree>::Output>> {
        let loc = Loc::caller();
        let module_tensors = ModuleTensors::of(module).map_err(|e| e.at(loc))?;
        let forward = |x| {
            let _entered = enter(module);
            module.forward(x)
        };
        let mut traced =
            self.trace.trace_with_state(forward, &module_tensors.inputs(), inputs)?.into_program();
        constraints::check(&traced, self.trace.dynamic_dims())
            .map_err(|e| Error::from(e).at(loc))?;
        let shared = state::mutated_alias_groups(&traced.state);
        let mut cloner = StorageCloner::default();
        traced.graph = traced.graph.with_sources(|c| match c.source_as::<Captured>() {
            Some(captured) => Ok(Arc::new(Captured(cloner.clone_of(&captured.0)?)) as Arc<_>),
            None => Ok::<_, Error>(c.source().clone()),
        })?;
        let since = generation();
        let options = Options::new().sharing(shared.clone());
        let options = functional_only(options).decompose(self.decompose);
        let mut decomposed = None;
        let compilation = compile_observed(&traced.graph, &options, &mut |pass, program| {
            if pass == Pass::Decompose {
                decomposed = Some(program.graph().clone());
            }
            Ok(ControlFlow::Continue(()))
        });
        let functional = match compilation.map_err(|e| e.at(loc))? {
            Compilation { program: ProgramForm::Functional(functional), .. } => functional,
            Compilation { why_unplanned, .. } => {
                return Err(no_functional_form(why_unplanned, loc));
            }
        };
        traced.graph = decomposed.unwrap_or(traced.graph);
        let state =
            traced.state.iter().map(|s| cloner.clone_of(&s.tensor)).collect::<Result<Vec<_>>>()?;
        Ok(Program::new(&traced, functional, since, &module_tensors, state, shared))
    }
}

/// Options of the passes under which a program is made functional and keeps its composites.
fn functional_only(options: Options) -> PassOptions<'static> {
    PassOptions::new().decompose(false).functionalize(options).until(Pass::Functionalize)
}

/// The error of a program that stays as it was traced.
fn no_functional_form(why: Option<WhyUnplanned>, loc: Loc) -> Error {
    match why {
        Some(WhyUnplanned::Refused(e)) => functionalize_error(e, loc),
        Some(WhyUnplanned::Copies) | None => Error::msg("the program is not functional").at(loc),
    }
}

/// The error of a program that cannot be functionalized, at the program's line if it is known.
fn functionalize_error(e: FunctionalizeError, export: Loc) -> Error {
    let (loc, statement) = (e.loc().unwrap_or(export), e.statement);
    let error = Error::from(ErrorKind::Other(Box::new(FunctionalizeError::from(e.kind)))).at(loc);
    match statement {
        Some(s) => error.in_scope(s.scope.as_deref()).in_statement(s.index, s.window.trim_end()),
        None => error,
    }
}
