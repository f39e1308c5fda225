//! Translates a call that mutates into a call on values. Each tensor that the call writes becomes a
//! result, which is the next version of its storage.

use super::memory_ssa::{Handle, StorageOrigin};
use super::{Lift, Operand};
use crate::error::{Reason, Result};
use crate::functionalize::value_graph::{
    CallArg, CallKey, Id, Kind, Layouts, Name, Node, ResultKind,
};
use maquette_ir::graph::{Arg, NodeId, Res, StrId, ValueId, ValueType};
use maquette_ir::sym::Expr;
use smallvec::SmallVec;

/// A call of the program, before it is added to the value graph.
pub(super) struct Call<'a> {
    pub(super) operands: &'a [Operand],
    /// The mutated tensors, with the numbers of their arguments.
    pub(super) mutated: &'a [(usize, Handle)],
    /// The operator may observe the strides of its operands.
    pub(super) observes_strides: bool,
    /// The places of promised views, as [`CallKey::offsets`].
    pub(super) offsets: Box<[Option<Expr>]>,
    pub(super) serial: u32,
}

impl Lift<'_> {
    /// Adds a call on the current values of its operands, and writes the new values of the tensors
    /// that it mutates. Results for which `is_written` holds are mutated arguments, not values of
    /// their own.
    pub(super) fn call(
        &mut self,
        node: NodeId,
        call: Call<'_>,
        is_written: impl Fn(usize) -> bool,
    ) -> Result<()> {
        let Call { operands, mutated, observes_strides, offsets, serial } = call;
        let (graph, op) = (self.graph, self.graph.op_name(node));
        let ids: SmallVec<[Id; 4]> =
            operands.iter().map(|o| self.value(o.value)).collect::<Result<_>>()?;
        let mut number = 0;
        let args: SmallVec<[CallArg; 8]> =
            graph.args(node).iter().map(|&a| self.call_arg(a, &mut number)).collect();
        let mut kwargs = Vec::with_capacity(graph.kwargs(node).len());
        for &(name, a) in graph.kwargs(node) {
            let name = self.name(name);
            kwargs.push((name, self.call_arg(a, &mut number)));
        }
        let mut leaves: SmallVec<[Option<ValueId>; 4]> = SmallVec::new();
        let mut results: SmallVec<[ResultKind; 2]> = SmallVec::new();
        for (_, r) in graph.results(node).iter().enumerate().filter(|(i, _)| !is_written(*i)) {
            let kinds: SmallVec<[Kind; 4]> =
                r.values().iter().map(|v| self.kind(graph.value_type(v))).collect();
            leaves.extend(r.values().iter().map(Some));
            results.push(match r {
                Res::Value(_) => ResultKind::Value(kinds[0]),
                Res::List(_) => ResultKind::List(kinds.into_boxed_slice()),
                Res::Absent => ResultKind::Absent,
            });
        }
        for (_, t) in mutated {
            results.push(ResultKind::Value(Kind::Tensor(t.meta)));
            leaves.push(None);
        }
        let layouts = if observes_strides {
            operands.iter().map(|o| self.recorded_strides(o.value)).collect()
        } else {
            Box::default()
        };
        let strides: Layouts =
            leaves.iter().map(|v| v.and_then(|v| self.recorded_strides(v))).collect();
        let strides =
            Some(if strides.iter().all(Option::is_none) { Box::default() } else { strides });
        let effect = graph.effect(node);
        let effect = effect.map(|e| e.map(|name| self.memory.interner.name(name)));
        let key = CallKey {
            op: self.name(graph.op(node)),
            args: args.into_boxed_slice(),
            kwargs: kwargs.into(),
            mutates: !mutated.is_empty(),
            effect,
            copies: graph.copies(node) || !offsets.is_empty(),
            offsets,
            results: results.into_boxed_slice(),
            layouts,
            serial,
        };
        let kinds: SmallVec<[Kind; 4]> = key.kinds().collect();
        let kind = key.kind();
        let call = self.memory.interner.call(key, strides);
        let id = self.memory.add(Node::Call(call, ids), kind);
        let mut written = mutated.iter();
        for (i, (leaf, &of)) in leaves.iter().zip(&kinds).enumerate() {
            let value = if kind == Kind::Tuple {
                self.memory.add(Node::Proj(i as u32, id), of)
            } else {
                id
            };
            match leaf {
                Some(v) => self.bind_new_storage(*v, value, StorageOrigin::Fresh)?,
                None => {
                    let (_, t) = *written.next().ok_or(Reason::Internal(
                        "a call returns more mutated values than it has mutated arguments",
                    ))?;
                    self.memory.write(t, value, op)?;
                }
            }
        }
        Ok(())
    }

    /// The interned name that is a string of the graph.
    fn name(&mut self, text: StrId) -> Name {
        let known = self.names.get(text.index()).copied().flatten();
        known.unwrap_or_else(|| {
            let name = self.memory.interner.name(self.graph.str(text));
            if text.index() >= self.names.len() {
                self.names.resize(text.index() + 1, None);
            }
            self.names[text.index()] = Some(name);
            name
        })
    }

    /// The recorded strides of a tensor that is not row-major, simplified as sizes are.
    fn recorded_strides(&mut self, v: ValueId) -> Option<Box<[Expr]>> {
        let graph = self.graph;
        match graph.value_type(v) {
            ValueType::Tensor(ty) if !graph.is_contiguous(ty) => {
                let symbols = &mut self.memory.interner.symbols;
                Some(graph.type_of(ty).strides.iter().map(|e| symbols.simplify(*e)).collect())
            }
            _ => None,
        }
    }

    /// An argument of the call. Its values are the next operands; `number` counts them.
    fn call_arg(&mut self, given: Arg, number: &mut u32) -> CallArg {
        match given {
            Arg::Value(v) => match self.static_number(v) {
                Some(e) => CallArg::Int(e),
                None => {
                    *number += 1;
                    CallArg::Operand(*number - 1)
                }
            },
            Arg::List(list) => CallArg::List(
                self.graph.list(list).iter().map(|&a| self.call_arg(a, number)).collect(),
            ),
            Arg::None => CallArg::None,
            Arg::Int(e) => CallArg::Int(e),
            Arg::Float(x) => CallArg::Float(x),
            Arg::Bool(b) => CallArg::Bool(b),
            Arg::Str(s) => CallArg::Str(self.name(s)),
            Arg::DType(d) => CallArg::DType(d),
            Arg::Device(d) => CallArg::Device(d),
            Arg::Layout(l) => CallArg::Layout(l),
            Arg::MemoryFormat(m) => CallArg::MemoryFormat(m),
        }
    }
}
