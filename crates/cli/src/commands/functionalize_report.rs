//! `maquette functionalize --explain`: describes the results of a functional graph, the rules that
//! applied, and the buffer plan.

use maquette::Graph;
use maquette::ir::buffer_plan::BufferPlan;
use maquette::ir::graph::{Arg, ValueId};
use maquette::rewrite::{self, ExecutionMode, ExternalTensor, FunctionalGraph, Output};
use std::fmt::Write;

/// The results: one sentence for each tensor that the program writes, and for each output.
pub fn results(f: &FunctionalGraph) -> String {
    let names = Names { f };
    let mut text = String::new();
    for m in &f.mutations {
        let target = names.external(m.target);
        let result = names.result(m.result);
        let _ = write!(text, "{target} is overwritten with {result}");
        if let Some(layout) = m.layout {
            let _ = write!(text, ", at {}", names.layout(layout));
        }
        if m.preceding_effects > 0 {
            let n = m.preceding_effects;
            let _ = write!(text, "; {n} assertions and effects precede its first write");
        }
        text.push('\n');
    }
    for (i, output) in f.outputs.iter().enumerate() {
        names.output(&i.to_string(), output, &mut text);
    }
    text
}

/// The rules that added equalities, in the order of the rule table.
pub fn rules(f: &FunctionalGraph, lift_only: bool) -> String {
    let mut text = String::new();
    for (name, n) in &f.stats.rules {
        let equation =
            rewrite::rules().find(|(rule, _)| rule == name).map_or("", |(_, equation)| equation);
        let _ = writeln!(text, "{n} x {name}: {equation}");
    }
    let ended = if lift_only { "lifting only" } else { f.stats.stopped };
    text + &format!("stop reason: {ended}\n")
}

/// The chosen execution mode, and the copies of its plan. If the lifted program was chosen, the
/// plan is not that of the printed graph.
pub fn execution(f: &FunctionalGraph, plan: &BufferPlan, mode: &ExecutionMode) -> String {
    match mode {
        ExecutionMode::Buffered(chosen, _) if chosen.graph == f.graph => {
            format!("{}execution: this plan\n", planned(f, plan))
        }
        ExecutionMode::Buffered(chosen, plan) => {
            format!(
                "execution: the plan of the lifted program:\n{}\n{}",
                chosen.graph,
                planned(chosen, plan)
            )
        }
        ExecutionMode::Original(_) | ExecutionMode::Functional(_) => {
            format!("{}execution: the original program\n", planned(f, plan))
        }
    }
}

fn planned(f: &FunctionalGraph, plan: &BufferPlan) -> String {
    let (most, least) = (f.copies_at_most_text(plan), f.copies_at_least_text());
    let copies = format!("copied elements: the plan at most {most}; ");
    format!("{}{copies}the original program at least {least}\n", plan.display(&f.graph))
}

/// The names of a functional graph's parts in these sentences.
struct Names<'f> {
    f: &'f FunctionalGraph,
}

impl Names<'_> {
    fn graph(&self) -> &Graph {
        &self.f.graph
    }

    fn value(&self, value: Option<ValueId>) -> String {
        value.map_or_else(|| "?".into(), |v| format!("%{}", self.graph().value_name(v)))
    }

    fn external(&self, tensor: ExternalTensor) -> String {
        let input = |i: usize| self.value(self.graph().inputs().get(i).copied());
        match tensor {
            ExternalTensor::Input(i) => format!("input {}", input(i)),
            ExternalTensor::Const(i) => {
                let value = self.graph().consts().get(i).map(|c| c.value());
                format!("constant {}", self.value(value))
            }
            ExternalTensor::SharedMemory(i) => {
                let inputs = self.f.memories.get(i).map(|m| m.inputs.as_slice());
                let inputs: Vec<String> =
                    inputs.unwrap_or_default().iter().map(|i| input(*i)).collect();
                format!("the memory shared by {}", inputs.join(" and "))
            }
        }
    }

    fn result(&self, at: usize) -> String {
        self.graph()
            .outputs()
            .get(at)
            .map_or_else(|| "?".into(), |arg| self.graph().display_arg(*arg).to_string())
    }

    /// The text of a result that is a layout: offset, sizes and strides.
    fn layout(&self, at: usize) -> String {
        let Some(Arg::List(list)) = self.graph().outputs().get(at) else { return "?".into() };
        let numbers: Vec<String> = self
            .graph()
            .list(*list)
            .iter()
            .map(|arg| self.graph().display_arg(*arg).to_string())
            .collect();
        let Some((offset, rest)) = numbers.split_first() else { return "?".into() };
        let (sizes, strides) = rest.split_at(rest.len() / 2);
        let (sizes, strides) = (sizes.join(", "), strides.join(", "));
        format!("offset {offset}, sizes [{sizes}], strides [{strides}]")
    }

    fn output(&self, number: &str, output: &Output, text: &mut String) {
        let _ = match output {
            Output::Result { result, layout: None } => {
                writeln!(text, "output {number} is {}", self.result(*result))
            }
            Output::Result { result, layout: Some(layout) } => {
                let (result, layout) = (self.result(*result), self.layout(*layout));
                writeln!(text, "output {number} is {result}, with {layout}")
            }
            Output::Alias { of, layout: None } => {
                writeln!(text, "output {number} is {}", self.external(*of))
            }
            Output::Alias { of, layout: Some(layout) } => {
                let (of, layout) = (self.external(*of), self.layout(*layout));
                writeln!(text, "output {number} is a view of {of}: {layout}")
            }
            Output::Shared { memory, result, storage_layout, layout } => {
                let (layout, storage) = (self.layout(*layout), self.layout(*storage_layout));
                let result = self.result(*result);
                let memory = format!("shared memory {memory}, which holds {result} at {storage}");
                writeln!(text, "output {number} is a view of {memory}: {layout}")
            }
            Output::List(items) => {
                let _ = writeln!(text, "output {number} is a list of {}", items.len());
                for (i, item) in items.iter().enumerate() {
                    self.output(&format!("{number}.{i}"), item, text);
                }
                Ok(())
            }
        };
    }
}
