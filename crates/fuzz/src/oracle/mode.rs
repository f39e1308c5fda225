//! The ways to run a program. A pass is added to the oracle as one more [`Mode`].

use super::compiled::CompiledMode;
use super::exported::{ExportedMode, ThreadsMode};
use super::gradients::{Backward, FiniteDifferences};
use super::model;
use super::planned::PlannedMode;
use super::program::{Family, TestProgram};
use super::statements;
use maquette_check::values::FlatValues;
use maquette_interp::Interpreter;
use maquette_ir::Device;
use maquette_ir::copy_cost::Traffic;
use maquette_ir::graph::Graph;
use maquette_ir::program_form::ProgramForm;
use maquette_ops::{Error, Result, Tensor, Value, call_writes};
use maquette_pipeline::{Pass, PassOptions, WhyUnplanned, compile_observed};
use maquette_rewrite::{FunctionalGraph, Level, Options};
use maquette_trace::{Dim, TraceOptions};
use std::ops::ControlFlow;

/// A program made ready by a mode, to be run on inputs.
pub type PreparedProgram = Box<dyn Fn(&[Tensor]) -> Result<RunResult>>;

/// What a run gives.
#[derive(Debug)]
pub struct RunResult {
    /// What the program returns.
    pub outputs: Vec<Value>,
    /// How many elements were written.
    pub written: WriteCount,
}

/// How many elements a run wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteCount {
    /// The mode does not count.
    Uncounted,
    /// So many.
    Counted(CountedWrites),
    /// Not compared: no plan is known to copy no more than eagerly, so a user's program would run
    /// as it is.
    Unproven,
}

/// What a run wrote, and what was known of it beforehand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CountedWrites {
    /// What it wrote.
    pub traffic: Traffic,
    /// How many elements it copies at most; `None` where sizes that are found in data decide that.
    pub at_most: Option<u64>,
    /// How many the eager program copies at least, likewise.
    pub eager_at_least: Option<u64>,
}

impl From<Vec<Value>> for RunResult {
    fn from(outputs: Vec<Value>) -> RunResult {
        RunResult { outputs, written: WriteCount::Uncounted }
    }
}

/// A way to run a program, which must do what the eager program does.
pub trait Mode: Sync {
    /// As the option `--mode` names it.
    fn name(&self) -> &'static str;

    /// Makes a program ready. `sample` are the inputs of the run to come, or where one preparation
    /// serves all sizes, of the first.
    ///
    /// # Errors
    /// The mode refuses the program: eager must refuse it too, or the reason be
    /// [documented](super::documented_refusal).
    fn prepare(&self, program: &TestProgram, sample: &[Tensor]) -> Result<PreparedProgram>;

    /// Whether one preparation serves every size that a program with symbols is run at.
    fn serves_all_sizes(&self, _program: &TestProgram) -> bool {
        false
    }

    /// Whether its outputs have the layouts of those of the eager program, and share memory as they
    /// do.
    fn shares_as_eager(&self) -> bool {
        true
    }

    /// Whether its NaNs have the bits of those of the eager program.
    fn keeps_nans(&self, _program: &TestProgram) -> bool {
        true
    }

    /// The device on which it runs the program.
    fn device(&self) -> Device {
        Device::Cpu
    }

    /// Whether sizes of inputs are symbols to it.
    fn is_symbolic(&self, program: &TestProgram) -> bool {
        self.serves_all_sizes(program)
    }
}

/// Every mode, the eager one first.
pub fn modes() -> Vec<&'static dyn Mode> {
    const FUNCTIONAL: FunctionalMode = FunctionalMode {
        name: "functional",
        level: Level::Exact,
        symbolic: false,
        decomposed: false,
    };
    const LIFTED: FunctionalMode =
        FunctionalMode { name: "lifted", level: Level::LiftOnly, ..FUNCTIONAL };
    const FUNCTIONAL_SYMBOLIC: FunctionalMode =
        FunctionalMode { name: "functional-symbolic", symbolic: true, ..FUNCTIONAL };
    const DECOMPOSED: FunctionalMode =
        FunctionalMode { name: "decomposed", decomposed: true, ..FUNCTIONAL_SYMBOLIC };
    const PLANNED_LIFTED: PlannedMode =
        PlannedMode { of: FunctionalMode { name: "planned-lifted", ..LIFTED } };
    const PLANNED: PlannedMode =
        PlannedMode { of: FunctionalMode { name: "planned", ..FUNCTIONAL } };
    const PLANNED_SYMBOLIC: PlannedMode =
        PlannedMode { of: FunctionalMode { name: "planned-symbolic", ..FUNCTIONAL_SYMBOLIC } };
    const COMPILED: CompiledMode = CompiledMode {
        of: FunctionalMode { name: "compiled", decomposed: true, ..FUNCTIONAL },
        recomputes: false,
    };
    const COMPILED_SYMBOLIC: CompiledMode = CompiledMode {
        of: FunctionalMode { name: "compiled-symbolic", ..DECOMPOSED },
        recomputes: false,
    };
    const RECOMPUTED: CompiledMode =
        CompiledMode { of: FunctionalMode { name: "recomputed", ..DECOMPOSED }, recomputes: true };
    vec![
        &Eager,
        &Traced,
        &Text,
        &Symbolic,
        &LIFTED,
        &FUNCTIONAL,
        &FUNCTIONAL_SYMBOLIC,
        &DECOMPOSED,
        &PLANNED_LIFTED,
        &PLANNED,
        &PLANNED_SYMBOLIC,
        &COMPILED,
        &COMPILED_SYMBOLIC,
        &RECOMPUTED,
        &ExportedMode,
        &ThreadsMode,
    ]
}

/// The modes that run gradients: two of their own, and those of [`modes`] that run a trace.
pub fn gradient_modes() -> Vec<&'static dyn Mode> {
    const TRACES: &[&str] = &[
        "eager",
        "traced",
        "symbolic",
        "functional",
        "functional-symbolic",
        "decomposed",
        "planned",
        "planned-symbolic",
        "compiled",
        "compiled-symbolic",
        "recomputed",
    ];
    let mut all: Vec<&'static dyn Mode> = vec![&Backward, &FiniteDifferences];
    all.extend(modes().into_iter().filter(|m| TRACES.contains(&m.name())));
    all
}

/// Statement by statement, by the dispatcher, on real tensors with real aliasing: what every other
/// mode is compared with. As a mode it says whether a program does the same twice.
pub struct Eager;

impl Mode for Eager {
    fn name(&self) -> &'static str {
        "eager"
    }

    fn prepare(&self, program: &TestProgram, _sample: &[Tensor]) -> Result<PreparedProgram> {
        if program.family == Family::Gradients {
            let program = program.clone();
            return Ok(Box::new(move |inputs| Ok(program.call(inputs)?.into())));
        }
        let graph = program.graph.clone();
        Ok(Box::new(move |inputs| {
            let mut traffic = Traffic::default();
            let outputs = model::run(&graph, inputs, &mut |_, op, args| {
                statements::run(op, args, &mut |op, args, loc| {
                    let given = args.clone();
                    let results = op.call_at(args, loc)?;
                    traffic += call_writes(op, &given, &results);
                    Ok(results)
                })
            })?;
            Ok(RunResult {
                outputs,
                written: WriteCount::Counted(CountedWrites { traffic, ..CountedWrites::default() }),
            })
        }))
    }
}

/// The program as model code, traced with its sizes as plain numbers; the trace run by the
/// reference interpreter.
pub struct Traced;

impl Mode for Traced {
    fn name(&self) -> &'static str {
        "traced"
    }

    fn prepare(&self, program: &TestProgram, sample: &[Tensor]) -> Result<PreparedProgram> {
        traced(&TraceOptions::new(), program, sample)
    }
}

/// As [`Traced`], with every size of every input a symbol.
pub struct Symbolic;

impl Mode for Symbolic {
    fn name(&self) -> &'static str {
        "symbolic"
    }

    fn prepare(&self, program: &TestProgram, sample: &[Tensor]) -> Result<PreparedProgram> {
        traced(&TraceOptions::symbolic(), program, sample)
    }

    fn serves_all_sizes(&self, _program: &TestProgram) -> bool {
        true
    }
}

fn traced(
    options: &TraceOptions,
    program: &TestProgram,
    sample: &[Tensor],
) -> Result<PreparedProgram> {
    let code = |inputs: Vec<Tensor>| program.call(&inputs).map(FlatValues);
    let traced = options
        .clone()
        .keep_offsets(program.names_storage_offsets())
        .trace(code, sample.to_vec())?;
    Ok(Box::new(move |inputs| Ok(traced.run(inputs.to_vec())?.0.into())))
}

/// The graph itself, printed, parsed, verified and run by the reference interpreter.
pub struct Text;

impl Mode for Text {
    fn name(&self) -> &'static str {
        "text"
    }

    fn prepare(&self, program: &TestProgram, _sample: &[Tensor]) -> Result<PreparedProgram> {
        let text = program.graph.to_string();
        let graph: Graph = text.parse()?;
        if graph != program.graph || graph.to_string() != text {
            return Err(Error::msg(format!("the text parses to another graph:\n{graph}")));
        }
        graph.verify()?;
        Ok(Box::new(move |inputs| {
            let inputs: Vec<Value> = inputs.iter().map(Value::from).collect();
            Ok(Interpreter::new(&graph).run(&inputs)?.results.into())
        }))
    }

    fn serves_all_sizes(&self, _program: &TestProgram) -> bool {
        true
    }
}

/// The traced program made functional; its graph run by the reference interpreter, its results
/// handed back as the program leaves them.
pub struct FunctionalMode {
    pub(super) name: &'static str,
    pub(super) level: Level,
    /// Whether sizes are symbols: those of inputs that share memory stay numbers.
    pub(super) symbolic: bool,
    /// Whether composites are decomposed first.
    pub(super) decomposed: bool,
}

impl FunctionalMode {
    fn options(&self, shared: &[Vec<usize>], sample: &[Tensor]) -> TraceOptions {
        let alone = |i: &usize| self.symbolic && !shared.iter().flatten().any(|j| j == i);
        let dims =
            (0..sample.len()).filter(alone).flat_map(|i| (0..sample[i].dim()).map(move |d| (i, d)));
        dims.enumerate().fold(TraceOptions::new(), |options, (n, (i, d))| {
            options.dynamic(i, d, Dim::new(format!("s{n}")))
        })
    }

    /// The trace, and the options under which passes treat it.
    pub(super) fn traced(
        &self,
        program: &TestProgram,
        sample: &[Tensor],
    ) -> Result<(Graph, PassOptions<'static>)> {
        let shared = program.shared();
        let code = |inputs: Vec<Tensor>| program.call(&inputs).map(FlatValues);
        let options = self
            .options(&shared, sample)
            .keep_offsets(!shared.is_empty() || program.names_storage_offsets());
        let traced = options.trace(code, sample.to_vec())?;
        let functional = Options::new().level(self.level).sharing(shared);
        let passes = PassOptions::new().decompose(self.decomposed).functionalize(functional);
        Ok((traced.graph().clone(), passes))
    }
}

/// A traced program after a pass. The graph after each pass is verified.
pub(super) fn after(last: Pass, traced: &Graph, options: &PassOptions<'_>) -> Result<ProgramForm> {
    let options = options.clone().until(last);
    let compilation = compile_observed(traced, &options, &mut |_, program| {
        program.graph().verify()?;
        Ok(ControlFlow::Continue(()))
    })?;
    match compilation.why_unplanned {
        Some(WhyUnplanned::Refused(e)) => Err(Error::other(e)),
        Some(WhyUnplanned::Copies) | None => Ok(compilation.program),
    }
}

/// The functional form of a traced program.
pub(super) fn functional(traced: &Graph, options: &PassOptions<'_>) -> Result<FunctionalGraph> {
    match after(Pass::Functionalize, traced, options)? {
        ProgramForm::Functional(functional) => {
            check_functional(&functional)?;
            Ok(functional)
        }
        _ => Err(Error::msg("the program is not functional")),
    }
}

/// Whether a functional program is a graph, and rules came to an end.
pub(super) fn check_functional(functional: &FunctionalGraph) -> Result<()> {
    functional.graph.verify()?;
    let stats = &functional.stats;
    if stats.rounds == 0 && !stats.stopped.is_empty() {
        // the lifted program is right all the same, but rules should not come to this
        return Err(Error::msg(format!("rewriting failed: {}", stats.stopped)));
    }
    Ok(())
}

impl Mode for FunctionalMode {
    fn name(&self) -> &'static str {
        self.name
    }

    fn prepare(&self, program: &TestProgram, sample: &[Tensor]) -> Result<PreparedProgram> {
        let (graph, options) = self.traced(program, sample)?;
        let functional = functional(&graph, &options)?;
        Ok(Box::new(move |inputs| {
            let inputs: Vec<Value> = inputs.iter().map(Value::from).collect();
            Ok(Interpreter::new(&functional).run(&inputs)?.results.into())
        }))
    }

    fn serves_all_sizes(&self, program: &TestProgram) -> bool {
        self.symbolic && program.shared().is_empty()
    }

    fn is_symbolic(&self, _program: &TestProgram) -> bool {
        self.symbolic
    }
}
