//! A program while it is checked, with the stages of its compilation that modes have in common.
//!
//! Most modes run a trace after some passes, and a pass costs far more than a run. So each stage is
//! made once for the inputs of a run, and a mode takes a clone. A stage depends on the layouts of
//! the inputs alone. The exception is a trace with constants: a run may write them, so that each
//! mode makes its own. A stage that fails is made again by the next mode, which fails in the same
//! way.

use super::mode::check_functional;
use super::program::TestProgram;
use maquette_check::values::FlatValues;
use maquette_ir::Device;
use maquette_ir::buffer_plan::BufferPlan;
use maquette_ir::graph::Graph;
use maquette_ir::program_form::ProgramForm;
use maquette_ops::internals::MetaInternals;
use maquette_ops::library::Facts;
use maquette_ops::{Concrete, Error, Result, Tensor};
use maquette_pipeline::{Compilation, Pass, PassOptions, WhyUnplanned, compile_observed};
use maquette_rewrite::{FunctionalGraph, Level, Options, plan};
use maquette_trace::{Dim, TraceOptions};
use std::cell::RefCell;
use std::ops::{ControlFlow, Deref};

/// The functional forms of a program that modes run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Form {
    /// How far it is rewritten.
    pub(super) level: Level,
    /// Whether sizes are symbols: those of inputs that share memory stay numbers.
    pub(super) symbolic: bool,
    /// Whether composites are decomposed first.
    pub(super) decomposed: bool,
}

/// A functional program in planned memory.
#[derive(Clone)]
pub(super) struct PlannedStage {
    pub(super) program: FunctionalGraph,
    pub(super) plan: BufferPlan,
    /// Whether the plan is proven to keep to the copies of the eager program. Where none is known
    /// to, the program is planned all the same.
    pub(super) is_proven: bool,
}

/// Where each input of a run is, and its layout.
type Layouts = Vec<(Device, Option<Concrete>)>;

/// What was made, each for a key.
struct Made<K, V>(RefCell<Vec<(K, V)>>);

impl<K: PartialEq, V: Clone> Made<K, V> {
    fn new() -> Made<K, V> {
        Made(RefCell::new(Vec::new()))
    }

    /// The value of a key, made by `make` unless it is known and `may_keep` allowed to keep it.
    fn get(
        &self,
        key: K,
        may_keep: impl FnOnce(&V) -> bool,
        make: impl FnOnce() -> Result<V>,
    ) -> Result<V> {
        if let Some((_, known)) = self.0.borrow().iter().find(|(other, _)| *other == key) {
            return Ok(known.clone());
        }
        let value = make()?;
        if may_keep(&value) {
            self.0.borrow_mut().push((key, value.clone()));
        }
        Ok(value)
    }
}

/// A program while it is checked.
pub struct Subject<'p> {
    program: &'p TestProgram,
    /// Each trace, with numbers or symbols for sizes.
    traces: Made<(bool, Layouts), Graph>,
    functional: Made<(Form, Layouts), Compilation>,
    planned: Made<(Form, Layouts), PlannedStage>,
}

impl Deref for Subject<'_> {
    type Target = TestProgram;

    fn deref(&self) -> &TestProgram {
        self.program
    }
}

impl<'p> Subject<'p> {
    /// Of a program of which no stage is made.
    pub fn new(program: &'p TestProgram) -> Subject<'p> {
        Subject { program, traces: Made::new(), functional: Made::new(), planned: Made::new() }
    }

    /// The functional form of the program, for inputs as `sample`.
    ///
    /// # Errors
    /// The program has no trace or no functional form.
    pub(super) fn functional(&self, form: Form, sample: &[Tensor]) -> Result<FunctionalGraph> {
        functional_of(&self.functionalized(form, sample)?).cloned()
    }

    /// The program in planned memory, for inputs as `sample`.
    ///
    /// # Errors
    /// As [`Subject::functional`]; the planner refuses the program.
    pub(super) fn planned(&self, form: Form, sample: &[Tensor]) -> Result<PlannedStage> {
        self.planned.get((form, layouts(sample)), has_no_consts_in_plan, || {
            let functionalized = self.functionalized(form, sample)?;
            let functional = functional_of(&functionalized)?.clone();
            let options = self.options(form).until(Pass::SelectPlan);
            let selected = functionalized.resume(&options, &mut verified)?;
            refused(&selected)?;
            let (program, plan, is_proven) = match selected.program {
                ProgramForm::Planned(planned) => (planned.program, planned.plan, true),
                _ => {
                    let plan = plan(&functional, &Facts).map_err(Error::other)?;
                    (functional, plan, false)
                }
            };
            check_functional(&program)?;
            Ok(PlannedStage { program, plan, is_proven })
        })
    }

    /// The options under which passes treat a trace.
    fn options(&self, form: Form) -> PassOptions<'static> {
        let functional = Options::new().level(form.level).sharing(self.shared());
        PassOptions::new().decompose(form.decomposed).functionalize(functional)
    }

    /// The trace after the passes up to functionalization.
    fn functionalized(&self, form: Form, sample: &[Tensor]) -> Result<Compilation> {
        self.functional.get((form, layouts(sample)), has_no_consts, || {
            let traced = self.traced(form.symbolic, sample)?;
            let options = self.options(form).until(Pass::Functionalize);
            let compilation = compile_observed(&traced, &options, &mut verified)?;
            refused(&compilation)?;
            check_functional(functional_of(&compilation)?)?;
            Ok(compilation)
        })
    }

    fn traced(&self, symbolic: bool, sample: &[Tensor]) -> Result<Graph> {
        let has_no_consts = |graph: &Graph| graph.consts().is_empty();
        self.traces.get((symbolic, layouts(sample)), has_no_consts, || {
            let shared = self.shared();
            let alone = |i: &usize| symbolic && !shared.iter().flatten().any(|j| j == i);
            let inputs = sample.iter().enumerate().filter(|(i, _)| alone(i));
            let dims = inputs.flat_map(|(i, t)| (0..t.dim()).map(move |d| (i, d)));
            let options = dims.enumerate().fold(TraceOptions::new(), |options, (n, (i, d))| {
                options.dynamic(i, d, Dim::new(format!("s{n}")))
            });
            let code = |inputs: Vec<Tensor>| self.call(&inputs).map(FlatValues);
            let options = options.keep_offsets(!shared.is_empty() || self.names_storage_offsets());
            Ok(options.trace(code, sample.to_vec())?.graph().clone())
        })
    }
}

fn layouts(sample: &[Tensor]) -> Layouts {
    sample.iter().map(|t| (t.device(), t.meta().concrete())).collect()
}

fn has_no_consts(compilation: &Compilation) -> bool {
    compilation.program.graph().consts().is_empty()
}

fn has_no_consts_in_plan(stage: &PlannedStage) -> bool {
    stage.program.graph.consts().is_empty()
}

/// Verifies the graph after each pass.
fn verified(_: Pass, program: &ProgramForm) -> Result<ControlFlow<()>> {
    program.graph().verify()?;
    Ok(ControlFlow::Continue(()))
}

/// The error of a program that a pass refused.
fn refused(compilation: &Compilation) -> Result<()> {
    match &compilation.why_unplanned {
        Some(WhyUnplanned::Refused(e)) => Err(Error::other(e.clone())),
        Some(WhyUnplanned::Copies) | None => Ok(()),
    }
}

fn functional_of(compilation: &Compilation) -> Result<&FunctionalGraph> {
    match &compilation.program {
        ProgramForm::Functional(functional) => Ok(functional),
        _ => Err(Error::msg("the program is not functional")),
    }
}
