//! The modes that run programs in planned memory.

use super::mode::{CountedWrites, FunctionalMode, Mode, PreparedProgram, RunResult, WriteCount};
use super::program::TestProgram;
use super::subject::{PlannedStage, Subject};
use crate::plan_check::check_plan;
use maquette_interp::{Execution, Interpreter};
use maquette_invoke::input_symbols;
use maquette_ir::buffer_plan::BufferPlan;
use maquette_ir::graph::{Graph, Stmt};
use maquette_ops::library::Facts;
use maquette_ops::{Error, Result, Tensor, Value};
use maquette_rewrite::FunctionalGraph;

/// The program made functional, in the memory that a plan gives; the plan is checked on the names
/// of elements first.
pub struct PlannedMode {
    pub(super) of: FunctionalMode,
}

/// Checks that a plan's text parses back to a plan of the same text.
fn check_plan_text(graph: &Graph, plan: &BufferPlan) -> Result<()> {
    let text = plan.display(graph).to_string();
    let parsed = BufferPlan::parse(&text, graph)
        .map_err(|e| Error::msg(format!("the plan's text does not parse: {e}\n{graph}\n{text}")))?;
    let again = parsed.display(graph).to_string();
    maquette_ops::ensure!(
        again == text,
        "the plan's text parses to another plan:\n{text}\n{again}"
    );
    Ok(())
}

/// Checks a plan on the names of elements, for the sizes of inputs.
pub(super) fn check_plan_for(
    program: &FunctionalGraph,
    plan: &BufferPlan,
    inputs: &[Value],
) -> Result<()> {
    let graph = &program.graph;
    // sizes that depend on data are known in the run alone
    if graph.body().iter().any(|s| matches!(s, Stmt::Bind { .. })) {
        return Ok(());
    }
    let symbols = input_symbols(graph, inputs)?;
    let value = |name: &str| symbols.iter().find(|(n, _)| n == name).map(|(_, value)| *value);
    check_plan(program, plan, &Facts, &|s| value(graph.symbols().name(s)))
        .map_err(|e| Error::msg(format!("invalid plan: {e}\n{}\n{graph}", plan.display(graph))))
}

impl Mode for PlannedMode {
    fn name(&self) -> &'static str {
        self.of.name
    }

    fn prepare(&self, program: &Subject<'_>, sample: &[Tensor]) -> Result<PreparedProgram> {
        let PlannedStage { program: functional, plan, is_proven } =
            program.planned(self.of.form, sample)?;
        check_plan_text(&functional.graph, &plan)?;
        Ok(Box::new(move |inputs| {
            let inputs: Vec<Value> = inputs.iter().map(Value::from).collect();
            let symbols = input_symbols(&functional.graph, &inputs)?;
            let value =
                |name: &str| symbols.iter().find(|(n, _)| n == name).map(|(_, value)| *value);
            let Execution { results: outputs, traffic } =
                Interpreter::new((&functional, &plan)).run(&inputs)?;
            let traffic = traffic.ok_or_else(|| Error::msg("the run counted no writes"))?;
            check_plan_for(&functional, &plan, &inputs)?;
            let (at_most, eager_at_least) = (
                functional.copies_at_most_in(&plan, &value),
                functional.copies_at_least_in(&value),
            );
            let counted = CountedWrites { traffic, at_most, eager_at_least };
            Ok(RunResult {
                outputs,
                written: if is_proven {
                    WriteCount::Counted(counted)
                } else {
                    WriteCount::Unproven
                },
            })
        }))
    }

    fn serves_all_sizes(&self, program: &TestProgram) -> bool {
        self.of.serves_all_sizes(program)
    }

    fn is_symbolic(&self, program: &TestProgram) -> bool {
        self.of.is_symbolic(program)
    }
}
