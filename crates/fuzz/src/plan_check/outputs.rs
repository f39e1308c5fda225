//! What a plan leaves at the end: its outputs, and the memory from outside.

use super::elements::positions;
use super::{Checker, PlanResult};
use maquette_ir::buffer_plan::{Buffer, BufferId};
use maquette_ir::functional_ops::FunctionalOp;
use maquette_ir::functional_program::{ExternalTensor, Output};
use maquette_ir::graph::{Arg, ValueId};
use maquette_ir::sym::Expr;
use std::collections::HashMap;

impl Checker<'_> {
    pub(super) fn check_outputs(&mut self) -> PlanResult {
        for node in self.graph.nodes() {
            let only_moves = matches!(
                self.decode(node)?,
                FunctionalOp::View { .. }
                    | FunctionalOp::Scatter { .. }
                    | FunctionalOp::Strided { .. }
                    | FunctionalOp::Barrier { .. }
                    | FunctionalOp::Empty
            );
            if !only_moves && !self.done.contains(&node) {
                return Err(format!("{} never runs", self.graph.op_name(node)));
            }
        }
        let mut leaves = Vec::new();
        fn flatten<'o>(o: &'o Output, leaves: &mut Vec<&'o Output>) {
            match o {
                Output::List(l) => l.iter().for_each(|o| flatten(o, leaves)),
                o => leaves.push(o),
            }
        }
        self.program.outputs.iter().for_each(|o| flatten(o, &mut leaves));
        if leaves.len() != self.plan.outputs.len() {
            return Err("an output has no region".into());
        }
        let mut owners: HashMap<BufferId, Option<usize>> = HashMap::new();
        for (output, place) in leaves.into_iter().zip(&self.plan.outputs) {
            let (result, memory) = match output {
                Output::Result { result, .. } => (*result, None),
                Output::Shared { result, memory, .. } => (*result, Some(*memory)),
                Output::Alias { .. } | Output::List(_) => continue,
            };
            let (Some(Arg::Value(v)), Some(place)) = (self.graph.outputs().get(result), place)
            else {
                continue;
            };
            self.expect_contents(*v, place, "an output")?;
            if matches!(
                self.plan.buffers[place.buffer.index()],
                Buffer::Input(_) | Buffer::Const(_)
            ) {
                return Err("P4: an output is in an external buffer".into());
            }
            if owners
                .insert(place.buffer, memory)
                .is_some_and(|other| other.is_none() || other != memory)
            {
                return Err("P4: two outputs share a buffer".into());
            }
        }
        self.check_mutations()
    }

    /// What was written back is there, and nothing else has changed.
    fn check_mutations(&mut self) -> PlanResult {
        let mut expected = self.initial_memory.clone();
        for m in &self.program.mutations {
            let b = match m.target {
                ExternalTensor::Input(i) => i,
                ExternalTensor::SharedMemory(i) => {
                    self.graph.inputs().len() - self.program.memories.len() + i
                }
                ExternalTensor::Const(i) => self.graph.inputs().len() + i,
            };
            let Some(Arg::Value(v)) = self.graph.outputs().get(m.result) else {
                return Err("the source of a write-back is not a value".into());
            };
            let at = match m.layout {
                Some(place) => {
                    let numbers =
                        self.list(self.program.layout(place).ok_or("a layout is not a list")?)?;
                    let (sizes, strides) = numbers[1..].split_at((numbers.len() - 1) / 2);
                    positions(numbers[0], sizes, strides)
                }
                None => {
                    let externals: Vec<ValueId> = self
                        .graph
                        .inputs()
                        .iter()
                        .copied()
                        .chain(self.graph.consts().iter().map(|c| c.value()))
                        .collect();
                    let t = externals
                        .get(b)
                        .and_then(|v| self.graph.tensor_type(*v))
                        .ok_or("no such input")?;
                    let numbers = |l: &[Expr]| {
                        l.iter()
                            .map(|e| self.eval(self.graph.symbols(), *e))
                            .collect::<PlanResult<Vec<i64>>>()
                    };
                    positions(0, &numbers(&t.sizes)?, &numbers(&t.strides)?)
                }
            };
            expected[b].extend(at.into_iter().zip(self.element_ids(*v)?.iter().copied()));
        }
        for (b, expected) in
            expected.iter().enumerate().take(self.graph.inputs().len() + self.graph.consts().len())
        {
            if self.memory[b] != *expected {
                return Err(format!(
                    "P1: the final contents of buffer {b} differ from those of the program"
                ));
            }
        }
        Ok(())
    }
}
