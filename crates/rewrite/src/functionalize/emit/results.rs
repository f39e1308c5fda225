//! The calling convention of the emitted graph: mutations and outputs, and the layouts that they
//! need as further results of the graph.

use super::Emit;
use crate::error::{Reason, Result};
use crate::functionalize::lift::memory_ssa::{OutputRef, OutputValue, StorageOrigin};
use maquette_ir::functional_program::{ExternalTensor, Mutation, Output};
use maquette_ir::graph::{Arg, TypeId, ValueType};
use maquette_ir::sym::Expr;
use maquette_ir::view::ViewSpec;
use smallvec::SmallVec;

impl Emit<'_> {
    /// The number of a result of the graph, which is added if it is new.
    fn result(&mut self, arg: Arg) -> usize {
        let found =
            self.results.iter().position(|r| *r == arg).filter(|_| matches!(arg, Arg::Value(_)));
        found.unwrap_or_else(|| {
            self.results.push(arg);
            self.results.len() - 1
        })
    }

    /// Adds a layout to the results of the graph. Returns its number among the layouts.
    fn add_layout(&mut self, offset: Expr, sizes: &[Expr], strides: &[Expr]) -> usize {
        let numbers: SmallVec<[Arg; 8]> =
            [offset].iter().chain(sizes).chain(strides).map(|&e| Arg::Int(e)).collect();
        let list = self.builder.list(&numbers);
        self.layouts.push(list);
        self.layouts.len() - 1
    }

    /// Adds a layout with the strides of a view, but other sizes and another offset.
    fn layout_of_spec(&mut self, offset: Expr, sizes: &[Expr], spec: &ViewSpec) -> usize {
        let strides: SmallVec<[Expr; 4]> = spec.dims().iter().map(|d| d.stride).collect();
        self.add_layout(offset, sizes, &strides)
    }

    fn layout_of_type(&mut self, offset: Expr, ty: TypeId) -> usize {
        let t = self.graph.type_of(ty).clone();
        self.add_layout(offset, &t.sizes, &t.strides)
    }

    /// The external tensor of a storage, its type (`None` for shared memory, which is flat), and
    /// its offset. `None` for a storage that the program allocates.
    fn external_tensor(
        &self,
        origin: StorageOrigin,
    ) -> Option<(ExternalTensor, Option<TypeId>, Expr)> {
        let (tensor, v) = match origin {
            StorageOrigin::Input(i) => {
                (ExternalTensor::Input(i as usize), self.graph.inputs()[i as usize])
            }
            StorageOrigin::Const(i) => {
                (ExternalTensor::Const(i as usize), self.graph.consts()[i as usize].value())
            }
            StorageOrigin::Shared(i) => {
                return Some((
                    ExternalTensor::SharedMemory(i as usize),
                    None,
                    Expr::Int(self.memory.shared[i as usize].start),
                ));
            }
            StorageOrigin::Fresh => return None,
        };
        match self.graph.value_type(v) {
            ValueType::Tensor(ty) => Some((tensor, Some(ty), self.graph.type_of(ty).offset)),
            _ => None,
        }
    }

    /// An offset relative to `start`.
    fn relative_offset(&mut self, offset: Expr, start: Expr) -> Result<Expr> {
        Ok(self
            .memory
            .interner
            .symbols
            .sub(offset, start)
            .map_err(|_| Reason::Overflow("the offsets of a tensor"))?)
    }

    pub(super) fn mutations(&mut self) -> Result<Vec<Mutation>> {
        let mut out = Vec::new();
        for at in 0..self.memory.storages.len() {
            let s = &self.memory.storages[at];
            let (Some((target, ty, start)), Some(first)) =
                (self.external_tensor(s.origin), s.written)
            else {
                continue;
            };
            let preceding_effects = self.effects.iter().filter(|e| e.precedes(first)).count();
            let (version, base, region) =
                (s.version, s.base, self.memory.interner.specs[s.region.index()].clone());
            let is_whole_tensor = match ty {
                Some(ty) => {
                    let t = self.graph.type_of(ty);
                    ViewSpec::strided(
                        t.offset,
                        &t.sizes,
                        &t.strides,
                        &mut self.memory.interner.symbols,
                    )? == region
                }
                None => true,
            };
            let value = Arg::Value(self.value(version)?);
            let layout = match is_whole_tensor {
                true => None,
                false => {
                    let offset = self.relative_offset(region.offset(), start)?;
                    // The sizes of the storage's value, which is empty if a repeated dimension is.
                    let sizes = self.memory.interner.metas[base.index()].sizes.clone();
                    Some(self.layout_of_spec(offset, &sizes, &region))
                }
            };
            out.push(Mutation { target, result: self.result(value), layout, preceding_effects });
        }
        Ok(out)
    }

    pub(super) fn output(&mut self, o: &OutputRef, f: &OutputValue) -> Result<Output> {
        Ok(match (o, f) {
            (_, OutputValue::Storage(t)) => {
                let storage = &self.memory.storages[t.storage];
                match self.external_tensor(storage.origin) {
                    Some((of, ty, _)) if ty == Some(t.ty) => Output::Alias { of, layout: None },
                    Some((of, _, start)) => {
                        let offset =
                            self.relative_offset(self.graph.type_of(t.ty).offset, start)?;
                        Output::Alias { of, layout: Some(self.layout_of_type(offset, t.ty)) }
                    }
                    None => {
                        let (version, base, whole) = (
                            storage.version,
                            storage.base,
                            self.memory.interner.specs[storage.region.index()].clone(),
                        );
                        let value = Arg::Value(self.value(version)?);
                        let result = self.result(value);
                        let layout = self.layout_of_type(self.graph.type_of(t.ty).offset, t.ty);
                        let sizes = self.memory.interner.metas[base.index()].sizes.clone();
                        let storage_layout = self.layout_of_spec(whole.offset(), &sizes, &whole);
                        Output::Shared { memory: t.storage, result, storage_layout, layout }
                    }
                }
            }
            (OutputRef::Tensor(t), OutputValue::Value(id)) => {
                let value = Arg::Value(self.value(*id)?);
                let offset = self.graph.type_of(t.ty).offset;
                let plain = self.graph.is_contiguous(t.ty) && offset == Expr::Int(0);
                let layout = if plain { None } else { Some(self.layout_of_type(offset, t.ty)) };
                Output::Result { result: self.result(value), layout }
            }
            (_, OutputValue::Value(id)) => {
                let value = Arg::Value(self.value(*id)?);
                Output::Result { result: self.result(value), layout: None }
            }
            (_, OutputValue::Plain(arg)) => {
                let arg = self.plain(*arg);
                Output::Result { result: self.result(arg), layout: None }
            }
            (OutputRef::List(l), OutputValue::List(output_values)) => Output::List(
                l.iter()
                    .zip(output_values)
                    .map(|(o, f)| self.output(o, f))
                    .collect::<Result<_>>()?,
            ),
            _ => return Err(Reason::Internal("an output and its value differ in structure").into()),
        })
    }
}
