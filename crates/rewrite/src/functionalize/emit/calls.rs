//! Emits calls: gives operands the strides that their operator observes, and results their types.

use super::{Effect, Emit};
use crate::error::{Reason, Result, UnknownView};
use crate::functionalize::value_graph::{
    CallArg, CallId, CallKey, Id, Kind, Layouts, MetaId, Name, ResultKind,
};
use maquette_ir::fault_injection::{Fault, fault_injected};
use maquette_ir::functional_ops;
use maquette_ir::graph::{
    Arg, Created, GraphBuilder, NodeInfo, ResultSpec, StrId, TensorType, ValueId, ValueType,
};
use maquette_ir::sym::{Expr, SymbolId, SymbolKind};
use smallvec::SmallVec;

impl Emit<'_> {
    pub(super) fn call(
        &mut self,
        call: CallId,
        operands: &[Id],
        from: NodeInfo<'_>,
    ) -> Result<Created> {
        let (calls, result_strides) = (self.calls.clone(), self.result_strides.clone());
        let (key, recorded) = (&calls[call.index()], &result_strides[call.index()]);
        let operands = self.operands_with_strides(key, operands, from)?;
        let name = self.str(key.op);
        let (mut args, mut op) = (SmallVec::<[Arg; 8]>::new(), name);
        if key.mutates {
            op = self.builder.intern(functional_ops::CALL);
            args.push(Arg::Str(name));
        }
        for call_arg in &key.args {
            args.push(self.arg(call_arg, &operands));
        }
        let kwargs: SmallVec<[(StrId, Arg); 2]> =
            key.kwargs.iter().map(|(n, s)| (self.str(*n), self.arg(s, &operands))).collect();
        let mut is_known = true;
        let mut types = self.result_types(key, recorded.as_ref(), &mut is_known)?;
        self.promise_offsets(key, is_known, &mut types)?;
        let specs: SmallVec<[ResultSpec<'_>; 2]> = key
            .results
            .iter()
            .zip(&types)
            .map(|(r, types)| match r {
                ResultKind::Value(_) => ResultSpec::Value(types[0]),
                ResultKind::List(_) => ResultSpec::List(types),
                ResultKind::Absent => ResultSpec::Absent,
            })
            .collect();
        let created = self.builder.node(op, &args, &kwargs, &specs, from);
        if !is_known {
            self.unknown_strides.push(created.node);
        }
        if let Some(effect) = key.effect {
            let checks = [functional_ops::INJECTIVE, functional_ops::DISJOINT];
            let is_check = checks.contains(&self.memory.interner.str(key.op));
            self.effects.push(Effect { statement: key.serial.saturating_sub(1), is_check });
            let effect = effect.map(|name| self.memory.interner.str(name));
            self.builder.set_effect(created.node, effect);
        }
        if key.copies {
            self.builder.set_copies(created.node);
        }
        Ok(created)
    }

    /// The operands of a call, with the strides that its operator may observe.
    fn operands_with_strides(
        &mut self,
        key: &CallKey,
        operands: &[Id],
        from: NodeInfo<'_>,
    ) -> Result<SmallVec<[ValueId; 4]>> {
        let mut values =
            operands.iter().map(|&o| self.value(o)).collect::<Result<SmallVec<[ValueId; 4]>>>()?;
        for ((value, &id), strides) in values.iter_mut().zip(operands).zip(&key.layouts) {
            if let Some(meta) = self.memory.value_graph.meta(id) {
                *value = self.strided(*value, meta, strides.as_deref(), from)?;
            }
        }
        Ok(values)
    }

    /// The types of a call's results. A result has its strides of eager execution if they are known
    /// at the call, else row-major strides. In the latter case a run may have to copy the result,
    /// which `relayout_bound` counts, and `is_known` becomes false.
    fn result_types(
        &mut self,
        key: &CallKey,
        recorded: Option<&Layouts>,
        is_known: &mut bool,
    ) -> Result<SmallVec<[SmallVec<[ValueType; 1]>; 2]>> {
        let mut strides_of = recorded.into_iter().flatten();
        // Without operand layouts, the operator's result strides do not depend on its operands.
        let unknown = recorded.is_none() && !key.layouts.is_empty();
        let mut types = SmallVec::new();
        for r in &key.results {
            let typed = |&kind| {
                let strides = strides_of.next().and_then(Option::as_deref);
                let declared = strides.filter(|strides| self.is_known_with(kind, strides));
                let unknown = unknown || strides.is_some() && declared.is_none();
                *is_known &= !unknown;
                if let Kind::Tensor(m) = kind
                    && unknown
                    && !fault_injected(Fault::AllStridesKnown)
                {
                    self.relayout_bound.add(&self.memory.interner.metas[m.index()].sizes, 1);
                }
                self.strided_type(kind, declared)
            };
            types.push(r.kinds().iter().map(typed).collect::<Result<_>>()?);
        }
        Ok(types)
    }

    /// Declares where promised views begin.
    ///
    /// # Errors
    /// The strides of a promised view are not known.
    fn promise_offsets(
        &mut self,
        key: &CallKey,
        is_known: bool,
        types: &mut [SmallVec<[ValueType; 1]>],
    ) -> Result<()> {
        if !is_known && !key.offsets.is_empty() {
            let op = self.memory.interner.str(key.op).to_owned();
            return Err(Reason::UnknownView { op, why: UnknownView::Strides }.into());
        }
        for (ty, offset) in types.iter_mut().flatten().zip(&key.offsets) {
            if let (ValueType::Tensor(id), Some(offset)) = (*ty, *offset)
                && let Some(plain) = self.builder.tensor_type(id).cloned()
            {
                let declared = TensorType { offset, ..plain };
                *ty = ValueType::Tensor(self.builder.intern_type(declared));
            }
        }
        Ok(())
    }

    /// Whether the strides of a value are known at its definition: their symbols are sizes of
    /// inputs or occur in the value's own sizes.
    fn is_known_with(&self, kind: Kind, strides: &[Expr]) -> bool {
        let Kind::Tensor(meta) = kind else { return false };
        let interner = &self.memory.interner;
        let known: Vec<_> = interner.metas[meta.index()]
            .sizes
            .iter()
            .flat_map(|e| interner.symbols.free_symbols(*e))
            .collect();
        let is_known =
            |s: &SymbolId| known.contains(s) || interner.symbols.kind(*s) == SymbolKind::Backed;
        strides.iter().all(|e| interner.symbols.free_symbols(*e).iter().all(is_known))
    }

    /// The type of a value with the given strides, or row-major without strides.
    fn strided_type(&mut self, kind: Kind, strides: Option<&[Expr]>) -> Result<ValueType> {
        let (ValueType::Tensor(row_major), Some(strides)) = (self.value_type(kind)?, strides)
        else {
            return self.value_type(kind);
        };
        let plain = self
            .builder
            .tensor_type(row_major)
            .cloned()
            .ok_or(Reason::Internal("a tensor type is missing"))?;
        Ok(ValueType::Tensor(
            self.builder.intern_type(TensorType { strides: strides.into(), ..plain }),
        ))
    }

    /// A value with the given strides, or row-major without strides: the value itself if it has
    /// them, else an `ir::strided` of it.
    fn strided(
        &mut self,
        value: ValueId,
        meta: MetaId,
        strides: Option<&[Expr]>,
        from: NodeInfo<'_>,
    ) -> Result<ValueId> {
        let ValueType::Tensor(ty) = self.strided_type(Kind::Tensor(meta), strides)? else {
            return Ok(value);
        };
        let strides_of = |b: &GraphBuilder, ty| b.tensor_type(ty).map(|t| t.strides.clone());
        let strides = strides_of(&self.builder, ty)
            .ok_or_else(|| Reason::Internal("a tensor type is missing"))?;
        let has_strides = match self.builder.value_type(value) {
            Some(ValueType::Tensor(own)) => {
                strides_of(&self.builder, own).as_ref() == Some(&strides)
            }
            _ => false,
        };
        if has_strides {
            return Ok(value);
        }
        let numbers: SmallVec<[Arg; 4]> = strides.iter().map(|&e| Arg::Int(e)).collect();
        let (op, list) =
            (self.builder.intern(functional_ops::STRIDED), self.builder.list(&numbers));
        let made = self.builder.node(
            op,
            &[Arg::Value(value), list],
            &[],
            &[ResultSpec::Value(ValueType::Tensor(ty))],
            from,
        );
        Ok(made.values.get(0).ok_or(Reason::Internal("a node has no result"))?)
    }

    fn str(&mut self, name: Name) -> StrId {
        let known = self.names.get(name.0 as usize).copied().flatten();
        known.unwrap_or_else(|| {
            let str = self.builder.intern(self.memory.interner.str(name));
            if let Some(known) = self.names.get_mut(name.0 as usize) {
                *known = Some(str);
            }
            str
        })
    }

    fn arg(&mut self, call_arg: &CallArg, operands: &[ValueId]) -> Arg {
        match call_arg {
            CallArg::Operand(i) => Arg::Value(operands[*i as usize]),
            CallArg::None => Arg::None,
            CallArg::Int(e) => Arg::Int(*e),
            CallArg::Float(x) => Arg::Float(*x),
            CallArg::Bool(b) => Arg::Bool(*b),
            CallArg::Str(s) => Arg::Str(self.str(*s)),
            CallArg::DType(d) => Arg::DType(*d),
            CallArg::Device(d) => Arg::Device(*d),
            CallArg::Layout(l) => Arg::Layout(*l),
            CallArg::MemoryFormat(m) => Arg::MemoryFormat(*m),
            CallArg::List(l) => {
                let elements: SmallVec<[Arg; 8]> =
                    l.iter().map(|s| self.arg(s, operands)).collect();
                self.builder.list(&elements)
            }
        }
    }

    /// Translates an argument without values; its strings are interned in the new graph.
    pub(super) fn plain(&mut self, arg: Arg) -> Arg {
        if let Arg::Str(s) = arg { Arg::Str(self.builder.intern(self.graph.str(s))) } else { arg }
    }
}
