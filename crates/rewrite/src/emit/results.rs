//! What a functional program leaves: results, and the places in which they are left.

use super::Emit;
use crate::error::{Reason, Result};
use crate::functional::{Mutation, Output, Outside};
use crate::memory::{Final, Leaving, Owner};
use maquette_ir::graph::{Arg, TypeId, ValueType};
use maquette_ir::sym::Expr;
use maquette_ir::view::ViewSpec;
use smallvec::SmallVec;

impl Emit<'_> {
    /// The number of a result; equal ones are one.
    fn result(&mut self, arg: Arg) -> usize {
        let found = self.results.iter().position(|r| *r == arg).filter(|_| matches!(arg, Arg::Value(_)));
        found.unwrap_or_else(|| {
            self.results.push(arg);
            self.results.len() - 1
        })
    }

    /// The number of a place.
    fn place_of(&mut self, offset: Expr, sizes: &[Expr], strides: &[Expr]) -> usize {
        let numbers: SmallVec<[Arg; 8]> = [offset].iter().chain(sizes).chain(strides).map(|&e| Arg::Int(e)).collect();
        let list = self.builder.list(&numbers);
        self.places.push(list);
        self.places.len() - 1
    }

    /// The place of so many elements as a spec has them lie, wherever they begin.
    fn place_of_spec(&mut self, offset: Expr, sizes: &[Expr], spec: &ViewSpec) -> usize {
        let strides: SmallVec<[Expr; 4]> = spec.dims().iter().map(|d| d.stride).collect();
        self.place_of(offset, sizes, &strides)
    }

    fn place_of_type(&mut self, offset: Expr, ty: TypeId) -> usize {
        let t = self.graph.type_of(ty).clone();
        self.place_of(offset, &t.sizes, &t.strides)
    }

    /// The tensor from outside whose memory this is, its type unless it is a row, and where it begins.
    fn outside(&self, owner: Owner) -> Option<(Outside, Option<TypeId>, Expr)> {
        let (outside, v) = match owner {
            Owner::Input(i) => (Outside::Input(i as usize), self.graph.inputs()[i as usize]),
            Owner::Const(i) => (Outside::Const(i as usize), self.graph.consts()[i as usize].value()),
            Owner::Memory(i) => return Some((Outside::Memory(i as usize), None, Expr::Int(self.memory.shared[i as usize].start))),
            Owner::Fresh => return None,
        };
        match self.graph.value_type(v) {
            ValueType::Tensor(ty) => Some((outside, Some(ty), self.graph.type_of(ty).offset)),
            _ => None,
        }
    }

    /// An offset counted from another.
    fn counted_from(&mut self, offset: Expr, start: Expr) -> Result<Expr> {
        Ok(self.memory.session.symbols.sub(offset, start).map_err(|_| Reason::Internal("an offset overflows"))?)
    }

    pub(super) fn mutations(&mut self) -> Result<Vec<Mutation>> {
        let mut out = Vec::new();
        for at in 0..self.memory.storages.len() {
            let s = &self.memory.storages[at];
            let (Some((target, ty, start)), Some(first)) = (self.outside(s.owner), s.written) else { continue };
            let behind = self.ordered.iter().filter(|at| **at < first).count();
            let (version, base, place) = (s.version, s.base, self.memory.session.specs[s.place.index()].clone());
            let own = match ty {
                Some(ty) => {
                    let t = self.graph.type_of(ty);
                    ViewSpec::strided(t.offset, &t.sizes, &t.strides, &mut self.memory.session.symbols)? == place
                }
                None => true,
            };
            let value = Arg::Value(self.value(version)?);
            let place = match own {
                true => None,
                false => {
                    let offset = self.counted_from(place.offset(), start)?;
                    // of no elements there are none, however often they would be repeated
                    let sizes = self.memory.session.metas[base.index()].sizes.clone();
                    Some(self.place_of_spec(offset, &sizes, &place))
                }
            };
            out.push(Mutation { target, result: self.result(value), place, behind });
        }
        Ok(out)
    }

    pub(super) fn output(&mut self, o: &Leaving, f: &Final) -> Result<Output> {
        Ok(match (o, f) {
            (_, Final::Memory(t)) => {
                let storage = &self.memory.storages[t.storage];
                match self.outside(storage.owner) {
                    Some((of, ty, _)) if ty == Some(t.ty) => Output::Alias { of, place: None },
                    Some((of, _, start)) => {
                        let offset = self.counted_from(self.graph.type_of(t.ty).offset, start)?;
                        Output::Alias { of, place: Some(self.place_of_type(offset, t.ty)) }
                    }
                    None => {
                        let (version, base, whole) =
                            (storage.version, storage.base, self.memory.session.specs[storage.place.index()].clone());
                        let value = Arg::Value(self.value(version)?);
                        let result = self.result(value);
                        let place = self.place_of_type(self.graph.type_of(t.ty).offset, t.ty);
                        let sizes = self.memory.session.metas[base.index()].sizes.clone();
                        let whole = self.place_of_spec(whole.offset(), &sizes, &whole);
                        Output::Shared { memory: t.storage, result, whole, place }
                    }
                }
            }
            (Leaving::Tensor(t), Final::Value(id)) => {
                let value = Arg::Value(self.value(*id)?);
                let offset = self.graph.type_of(t.ty).offset;
                let plain = self.graph.is_contiguous(t.ty) && offset == Expr::Int(0);
                let place = if plain { None } else { Some(self.place_of_type(offset, t.ty)) };
                Output::Result { result: self.result(value), place }
            }
            (_, Final::Value(id)) => {
                let value = Arg::Value(self.value(*id)?);
                Output::Result { result: self.result(value), place: None }
            }
            (_, Final::Plain(arg)) => {
                let arg = self.plain(*arg);
                Output::Result { result: self.result(arg), place: None }
            }
            (Leaving::List(l), Final::List(finals)) => {
                Output::List(l.iter().zip(finals).map(|(o, f)| self.output(o, f)).collect::<Result<_>>()?)
            }
            _ => return Err(Reason::Internal("an output and its value do not fit").into()),
        })
    }
}
