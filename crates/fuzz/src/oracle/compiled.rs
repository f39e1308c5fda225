//! The modes that run programs compiled.

use super::library;
use super::mode::{FunctionalMode, Mode, PreparedProgram, RunResult, check_functional};
use super::outcome::with_fixed_seed;
use super::planned::check_plan_for;
use super::program::TestProgram;
use super::subject::{PlannedStage, Subject};
use maquette_invoke::SourceInfo;
use maquette_ir::functional_program::ExternalTensor;
use maquette_ir::program_form::{PlannedProgram, ProgramForm};
use maquette_ops::{Error, Result, StorageCloner, Tensor, Value};
use maquette_pipeline::{Pass, PassOptions, compile_planned};
use maquette_rewrite::Rematerialization;
use maquette_runtime::Executable;

/// The program decomposed, functionalized, planned and compiled. It runs twice on the same layouts,
/// the first time on copies of the inputs: so the run that counts takes the instance and the memory
/// of another. The plan of a program with concatenations is checked, too, and that of one in which
/// values are computed again: only compiled programs have them.
pub struct CompiledMode {
    pub(super) of: FunctionalMode,
    /// Whether as much as possible is computed again in place of being kept.
    pub(super) recomputes: bool,
}

impl Mode for CompiledMode {
    fn name(&self) -> &'static str {
        self.of.name
    }

    fn prepare(&self, program: &Subject<'_>, sample: &[Tensor]) -> Result<PreparedProgram> {
        let PlannedStage { program: functional, plan, .. } =
            program.planned(self.of.form, sample)?;
        let writes_consts =
            functional.mutations.iter().any(|m| matches!(m.target, ExternalTensor::Const(_)));
        let mut options = PassOptions::new().until(Pass::Concats);
        if self.recomputes {
            options = options.rematerialize(Rematerialization::least().expensive(true));
        }
        let before = plan.graph;
        let ProgramForm::Planned(planned) = compile_planned(functional, plan, &options)?.program
        else {
            return Err(Error::msg("the program has lost its plan"));
        };
        check_functional(&planned.program)?;
        let PlannedProgram { program, plan, .. } = *planned;
        let changed = (plan.graph != before).then(|| (program.clone(), plan.clone()));
        let executable =
            Executable::new(compile_planned(program, plan, &PassOptions::new())?.program)?;
        maquette_ops::ensure!(executable.is_compiled(), "the program does not run compiled");
        Ok(Box::new(move |inputs| {
            let source_info = SourceInfo::of_caller();
            if !writes_consts {
                let mut cloner = StorageCloner::default();
                let copies = inputs.iter().map(|t| Ok(Value::Tensor(cloner.clone_of(t)?)));
                let copies = copies.collect::<Result<Vec<Value>>>()?;
                let before = library::take_log();
                // The run that counts fails in the same way.
                let _ = with_fixed_seed(|| executable.run(&copies, &source_info));
                library::take_log();
                library::restore_log(before);
            }
            let inputs: Vec<Value> = inputs.iter().map(Value::from).collect();
            // a run refuses the sizes that guards exclude, and with them the plan
            let results = executable.run(&inputs, &source_info)?;
            if let Some((program, plan)) = &changed {
                check_plan_for(program, plan, &inputs)?;
            }
            Ok(RunResult::from(results))
        }))
    }

    fn serves_all_sizes(&self, program: &TestProgram) -> bool {
        self.of.serves_all_sizes(program)
    }

    fn is_symbolic(&self, program: &TestProgram) -> bool {
        self.of.is_symbolic(program)
    }
}
