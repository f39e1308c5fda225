//! The positions of elements in memory, and their names.

use super::{Checker, ElementId, PlanResult};
use maquette_ir::buffer_plan::BufferView;
use maquette_ir::functional_ops::{FunctionalOp, List, Region};
use maquette_ir::graph::ValueId;
use maquette_ir::sym::Expr;
use maquette_ir::view::StridedPositions;
use std::collections::HashMap;

/// Positions of a strided tensor, in row-major order.
pub(super) fn positions(offset: i64, sizes: &[i64], strides: &[i64]) -> Vec<i64> {
    StridedPositions::new(offset, sizes, strides).collect()
}

impl Checker<'_> {
    pub(super) fn list(&self, list: List<'_>) -> PlanResult<Vec<i64>> {
        list.iter().map(|e| self.eval(self.graph.symbols(), e)).collect()
    }

    /// The elements of a base, row-major, that a view has.
    pub(super) fn view_positions(&self, region: Region<'_>) -> PlanResult<Vec<i64>> {
        let offset = self.eval(self.graph.symbols(), region.offset)?;
        Ok(positions(offset, &self.list(region.sizes)?, &self.list(region.strides)?))
    }

    pub(super) fn positions(&self, place: &BufferView) -> PlanResult<Vec<i64>> {
        let table = &self.plan.symbols;
        let dims = place.spec.dims();
        let sizes: Vec<i64> =
            dims.iter().map(|d| self.eval(table, d.size)).collect::<PlanResult<_>>()?;
        let strides: Vec<i64> =
            dims.iter().map(|d| self.eval(table, d.stride)).collect::<PlanResult<_>>()?;
        Ok(positions(self.eval(table, place.spec.offset())?, &sizes, &strides))
    }

    /// Where the elements of a tensor lie that has the strides of its type, from its first element
    /// on.
    pub(super) fn declared_positions(&self, v: ValueId) -> PlanResult<Vec<i64>> {
        let t = self.graph.tensor_type(v).ok_or("a value is not a tensor")?;
        let numbers = |l: &[Expr]| {
            l.iter().map(|e| self.eval(self.graph.symbols(), *e)).collect::<PlanResult<Vec<i64>>>()
        };
        Ok(positions(0, &numbers(&t.sizes)?, &numbers(&t.strides)?))
    }

    /// Names for the elements of a tensor: those that share their place are one.
    fn ids_in_memory(
        &mut self,
        v: ValueId,
        memory: &mut HashMap<i64, ElementId>,
    ) -> PlanResult<Vec<ElementId>> {
        let at = self.declared_positions(v)?;
        let mut fresh = || {
            self.next += 1;
            self.next
        };
        Ok(at.into_iter().map(|p| *memory.entry(p).or_insert_with(&mut fresh)).collect())
    }

    pub(super) fn element_ids(&self, v: ValueId) -> PlanResult<&Vec<ElementId>> {
        self.names
            .get(&v)
            .ok_or_else(|| format!("%{} is used before it is defined", self.graph.value_name(v)))
    }

    /// Names all values: inputs by where they lie, results by who makes them.
    pub(super) fn name_elements(&mut self) -> PlanResult {
        let graph = self.graph;
        let externals: Vec<ValueId> = graph
            .inputs()
            .iter()
            .copied()
            .chain(graph.consts().iter().map(|c| c.value()))
            .collect();
        for (b, v) in externals.iter().enumerate() {
            if graph.tensor_type(*v).is_none() {
                continue;
            }
            let mut memory = std::mem::take(&mut self.memory[b]);
            let names = self.ids_in_memory(*v, &mut memory)?;
            self.memory[b] = memory;
            self.names.insert(*v, names);
        }
        self.initial_memory = self.memory.clone();
        for node in graph.nodes() {
            let results: Vec<ValueId> = graph.result_values(node).collect();
            let made = match self.decode(node)? {
                FunctionalOp::View { base, region } => {
                    let base = self.element_ids(base)?;
                    self.view_positions(region)?
                        .iter()
                        .map(|p| base.get(*p as usize).copied())
                        .collect::<Option<_>>()
                        .ok_or("a view exceeds its base")?
                }
                FunctionalOp::Scatter { base, source, region } => {
                    let (mut base, source) =
                        (self.element_ids(base)?.clone(), self.element_ids(source)?);
                    for (p, name) in self.view_positions(region)?.iter().zip(source) {
                        *base.get_mut(*p as usize).ok_or("a store exceeds its base")? = *name;
                    }
                    base
                }
                FunctionalOp::Strided { operand } | FunctionalOp::Barrier { operand } => {
                    self.element_ids(operand)?.clone()
                }
                _ => {
                    for v in results {
                        if graph.tensor_type(v).is_some() {
                            let names = self.ids_in_memory(v, &mut HashMap::new())?;
                            self.names.insert(v, names);
                        }
                    }
                    continue;
                }
            };
            self.names.insert(*results.first().ok_or("a view has no result")?, made);
        }
        Ok(())
    }
}
