//! The ways to run a program. A pass is added to the oracle as one more [`Mode`].

use super::compiled::CompiledMode;
use super::exported::{ExportedMode, ThreadsMode};
use super::gradients::{Backward, FiniteDifferences};
use super::model;
use super::planned::PlannedMode;
use super::program::{Family, TestProgram};
use super::statements;
use super::subject::{Form, Subject};
use maquette_check::values::FlatValues;
use maquette_interp::Interpreter;
use maquette_ir::Device;
use maquette_ir::copy_cost::Traffic;
use maquette_ir::graph::Graph;
use maquette_ops::{Error, Result, Tensor, Value, call_writes};
use maquette_rewrite::{FunctionalGraph, Level};
use maquette_trace::TraceOptions;

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
    fn prepare(&self, program: &Subject<'_>, sample: &[Tensor]) -> Result<PreparedProgram>;

    /// Whether one preparation serves every size that a program with symbols is run at.
    fn serves_all_sizes(&self, _program: &TestProgram) -> bool {
        false
    }

    /// Whether its outputs have the layouts of those of the eager program, and share memory as they
    /// do.
    fn shares_as_eager(&self) -> bool {
        true
    }

    /// Whether its NaNs have the bits of those of the eager program. An operator may run another
    /// kernel than in the eager program: in place, or not.
    fn keeps_nans(&self, program: &TestProgram) -> bool {
        program.only_moves()
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
    const EXACT: Form = Form { level: Level::Exact, symbolic: false, decomposed: false };
    const LIFT_ONLY: Form = Form { level: Level::LiftOnly, ..EXACT };
    const OF_SYMBOLS: Form = Form { symbolic: true, ..EXACT };
    const DECOMPOSED: Form = Form { decomposed: true, ..OF_SYMBOLS };
    const COMPILED: Form = Form { decomposed: true, ..EXACT };
    const fn functional(name: &'static str, form: Form) -> FunctionalMode {
        FunctionalMode { name, form }
    }
    const fn planned(name: &'static str, form: Form) -> PlannedMode {
        PlannedMode { of: functional(name, form) }
    }
    const fn compiled(name: &'static str, form: Form) -> CompiledMode {
        CompiledMode { of: functional(name, form), recomputes: false }
    }
    const RECOMPUTED: CompiledMode =
        CompiledMode { recomputes: true, ..compiled("recomputed", DECOMPOSED) };
    vec![
        &Eager,
        &Traced,
        &Text,
        &Symbolic,
        &const { functional("lifted", LIFT_ONLY) },
        &const { functional("functional", EXACT) },
        &const { functional("functional-symbolic", OF_SYMBOLS) },
        &const { functional("decomposed", DECOMPOSED) },
        &const { planned("planned-lifted", LIFT_ONLY) },
        &const { planned("planned", EXACT) },
        &const { planned("planned-symbolic", OF_SYMBOLS) },
        &const { compiled("compiled", COMPILED) },
        &const { compiled("compiled-symbolic", DECOMPOSED) },
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

    fn prepare(&self, program: &Subject<'_>, _sample: &[Tensor]) -> Result<PreparedProgram> {
        if program.family == Family::Gradients {
            let program = TestProgram::clone(program);
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

    fn prepare(&self, program: &Subject<'_>, sample: &[Tensor]) -> Result<PreparedProgram> {
        traced(&TraceOptions::new(), program, sample)
    }
}

/// As [`Traced`], with every size of every input a symbol.
pub struct Symbolic;

impl Mode for Symbolic {
    fn name(&self) -> &'static str {
        "symbolic"
    }

    fn prepare(&self, program: &Subject<'_>, sample: &[Tensor]) -> Result<PreparedProgram> {
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

    fn prepare(&self, program: &Subject<'_>, _sample: &[Tensor]) -> Result<PreparedProgram> {
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
    pub(super) form: Form,
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

    fn prepare(&self, program: &Subject<'_>, sample: &[Tensor]) -> Result<PreparedProgram> {
        let functional = program.functional(self.form, sample)?;
        Ok(Box::new(move |inputs| {
            let inputs: Vec<Value> = inputs.iter().map(Value::from).collect();
            Ok(Interpreter::new(&functional).run(&inputs)?.results.into())
        }))
    }

    fn serves_all_sizes(&self, program: &TestProgram) -> bool {
        self.form.symbolic && program.shared().is_empty()
    }

    fn is_symbolic(&self, _program: &TestProgram) -> bool {
        self.form.symbolic
    }
}
