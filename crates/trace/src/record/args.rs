//! The arguments of a recorded call: for the graph, and for the fake kernel.

use super::Recorder;
use crate::consts::ConstEntry;
use maquette_invoke::Captured;
use maquette_ir::graph::{Arg, TypeId, ValueId};
use maquette_ops::internals::TensorInternals;
use maquette_ops::{Result, Tensor, TraceError, Value};
use smallvec::SmallVec;
use std::sync::Arc;

impl Recorder {
    /// The graph's argument for an argument of the program.
    pub(crate) fn arg(&mut self, v: &Value) -> Result<Arg> {
        Ok(match v {
            Value::None => Arg::None,
            Value::Tensor(t) => Arg::Value(self.value_of(t)?),
            Value::Int(i) => Arg::Int(self.expr(*i)?),
            Value::Float(x) => (*x).into(),
            Value::Bool(b) => (*b).into(),
            Value::Str(s) => Arg::Str(self.builder.intern(s)),
            Value::DType(d) => (*d).into(),
            Value::Device(d) => (*d).into(),
            Value::Layout(l) => (*l).into(),
            Value::MemoryFormat(m) => (*m).into(),
            Value::Ints(l) => {
                let elements = l
                    .iter()
                    .map(|&i| self.expr(i).map(Arg::Int))
                    .collect::<Result<SmallVec<[Arg; 8]>>>()?;
                self.builder.list(&elements)
            }
            Value::List(l) => {
                let elements =
                    l.iter().map(|v| self.arg(v)).collect::<Result<SmallVec<[Arg; 8]>>>()?;
                self.builder.list(&elements)
            }
        })
    }

    /// The graph value of a tensor: a traced tensor's slot, or a constant. Fails for a tensor of
    /// another trace.
    pub(crate) fn value_of(&mut self, t: &Tensor) -> Result<ValueId> {
        match t.alive()?.slot() {
            Some(slot) if Arc::ptr_eq(&slot.trace, &self.tag) => {
                let unknown = || {
                    TraceError::Internal("a traced tensor has a slot that is unknown to its trace")
                };
                Ok(self.values.get(slot.value as usize).copied().ok_or_else(unknown)?)
            }
            Some(slot) => Err(TraceError::OtherTrace {
                trace: slot.trace.name.clone(),
                current: self.tag.name.clone(),
            }
            .into()),
            None => Ok(self.constant(t)?.value),
        }
    }

    /// The entry of a real tensor, which becomes a constant unless it is already known.
    pub(super) fn constant(&mut self, t: &Tensor) -> Result<&ConstEntry> {
        let at = self.const_index(t, |r, ty, t| {
            r.builder.constant(ty, Arc::new(Captured(t.clone())), None)
        })?;
        self.consts
            .all()
            .get(at)
            .ok_or_else(|| TraceError::Internal("a constant is missing").into())
    }

    /// The index of a real tensor in `consts`. If it is new, `define` adds it to the graph.
    ///
    /// # Errors
    /// The tensor is fake but does not belong to a trace.
    pub(crate) fn const_index(
        &mut self,
        t: &Tensor,
        define: impl FnOnce(&mut Recorder, TypeId, &Tensor) -> ValueId,
    ) -> Result<usize> {
        if t.is_fake() {
            return Err(TraceError::Fake {
                trace: self.tag.name.clone(),
                tensor: t.meta().to_string(),
            }
            .into());
        }
        let mut consts = std::mem::take(&mut self.consts);
        let found = consts.get_or_define(t, |t| {
            // Until the trace ends, a use on another thread would be executed and not recorded.
            t.own_storage()?.capture(&self.tag);
            let ty = self.tensor_type(t)?;
            Ok(define(self, ty, t))
        });
        self.consts = consts;
        if let Some(entry) = found.as_ref().ok().and_then(|&at| self.consts.all().get(at)) {
            self.memories.add_captured(t, &entry.fake);
        }
        found
    }

    /// The argument for the fake kernel. A traced tensor keeps its slot only if the fake kernel
    /// reads nothing but metadata; otherwise it gets a plain fake tensor.
    pub(super) fn fake_arg(&mut self, v: &Value, traced: bool) -> Result<Value> {
        let mut tensor = |t: &Tensor| match t.slot() {
            Some(_) if traced => Ok(t.clone()),
            Some(_) => Ok(t.without_slot()),
            None => self.constant(t).map(|k| k.fake.clone()),
        };
        match v {
            Value::Tensor(t) => Ok(Value::Tensor(tensor(t)?)),
            other => other.map_tensors(&mut tensor),
        }
    }
}
