//! The recorder: appends operator calls to a graph under construction, together with the binds of
//! data-dependent symbols and the assertions that the calls raise.
//!
//! A call is recorded in two steps around its fake kernel. [`Recorder::prepare`] translates the
//! arguments, for the graph and for the fake kernel; [`Recorder::record`] adds the node with the
//! result types that the fake kernel determined. The recorder is not borrowed in between, since a
//! fake kernel is user code.
//!
//! **Invariants.** A data-dependent symbol (`u0`) is bound directly after the first node whose
//! results mention it, from a size or an integer result that is exactly the symbol. An assertion is
//! placed at the first position at which all its symbols are bound.

mod args;
mod symbols;

pub(crate) use symbols::unbound_symbols;

use crate::consts::Consts;
use crate::memories::Memories;
use crate::op_record::OpRecord;
use maquette_ir::Loc;
use maquette_ir::graph::{
    Arg, BuildError, Graph, GraphBuilder, MAX_RANK, NodeInfo, ResultSpec, StrId, TensorType,
    TypeId, ValueId, ValueType,
};
use maquette_ir::sym::{Assertion, Expr, Scope, SymInt, SymTable, SymbolId};
use maquette_ops::internals::{MetaInternals, ModuleScope, TensorInternals, current_scope};
use maquette_ops::{
    Args, Error, Op, Outputs, Result, Tensor, TraceError, TraceSlot, TraceTag, Value, mode,
};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;
use std::rc::Rc;
use std::sync::Arc;

/// A call whose arguments are translated and whose fake kernel has not run yet.
pub(crate) struct PendingCall {
    pub(crate) op: Rc<OpRecord>,
    args: SmallVec<[Arg; 6]>,
    kwargs: SmallVec<[(StrId, Arg); 2]>,
    /// The arguments for the fake kernel: fake tensors in place of traced and real ones.
    pub(crate) fake_args: Args,
}

impl PendingCall {
    /// Whether all results that the schema declares as possible views are copies in this trace, as
    /// the result of `reshape` may be.
    fn returns_copies(&self, outputs: &Outputs) -> bool {
        let viewed = |(i, output): (usize, &Value)| -> Option<bool> {
            let argument = self.fake_args.get(self.op.views_arg.get(i).copied().flatten()?)?;
            Some(output.tensors().all(|t| argument.tensors().all(|u| !t.has_storage_of(u))))
        };
        let mut copied = outputs.iter().enumerate().filter_map(viewed).peekable();
        copied.peek().is_some() && copied.all(|c| c)
    }
}

/// The state of a graph under construction.
pub(crate) struct Recorder {
    scope: Scope,
    tag: Arc<TraceTag>,
    pub(crate) builder: GraphBuilder,
    /// For each slot of a traced tensor: the tensor's value in the graph.
    values: Vec<ValueId>,
    /// By the address of the operator's name, which is unique and permanent, so that no name is
    /// hashed.
    ops: FxHashMap<usize, Rc<OpRecord>>,
    pub(crate) consts: Consts,
    pub(crate) memories: Memories,
    /// For the first entries of `consts`, which are inputs: their indices in the state given to the
    /// trace.
    pub(crate) state: Vec<Vec<usize>>,
    /// Types with smaller ids have been searched for data-dependent sizes.
    types_seen: usize,
    bound_symbols: FxHashSet<SymbolId>,
    /// The number of the scope's assertions that have been taken over, and of its guards whose
    /// lines have been set.
    assertions_seen: usize,
    guards_seen: usize,
    /// Assertions with symbols that are not bound yet.
    pending_assertions: Vec<Assertion>,
}

impl Recorder {
    pub(crate) fn new(name: &str, scope: Scope, tag: Arc<TraceTag>) -> Recorder {
        Recorder {
            scope,
            tag,
            builder: GraphBuilder::new(name),
            values: Vec::new(),
            ops: FxHashMap::default(),
            consts: Consts::default(),
            memories: Memories::default(),
            state: Vec::new(),
            types_seen: 0,
            bound_symbols: FxHashSet::default(),
            assertions_seen: 0,
            guards_seen: 0,
            pending_assertions: Vec::new(),
        }
    }

    /// Adds a tensor input. Returns the traced tensor that the program gets.
    pub(crate) fn input_tensor(&mut self, fake: Tensor, name: &str) -> Result<Tensor> {
        let ty = self.tensor_type(&fake)?;
        let value = self.builder.input(ValueType::Tensor(ty), Some(name));
        Ok(self.traced(fake, value))
    }

    /// Adds an integer input.
    pub(crate) fn input_int(&mut self, i: SymInt, name: &str) -> Result<()> {
        let ty = ValueType::Int(self.expr(i)?);
        self.builder.input(ty, Some(name));
        Ok(())
    }

    /// A fake tensor as the traced tensor of a value.
    pub(crate) fn traced(&mut self, fake: Tensor, value: ValueId) -> Tensor {
        fake.with_slot(self.slot(value))
    }

    /// A new slot for a value.
    fn slot(&mut self, value: ValueId) -> TraceSlot {
        self.values.push(value);
        TraceSlot { trace: self.tag.clone(), value: self.values.len() as u32 - 1 }
    }

    /// The record of an operator, cached.
    fn op_record(&mut self, op: Op) -> Result<Rc<OpRecord>> {
        let key = op.name().as_ptr().addr();
        if let Some(record) = self.ops.get(&key) {
            return Ok(record.clone());
        }
        let record = Rc::new(OpRecord::of(op, &mut self.builder)?);
        self.ops.insert(key, record.clone());
        Ok(record)
    }

    /// Translates the arguments of a call. Arguments equal to their defaults are dropped at the end
    /// of the positional ones and among the keywords, so that a call has one canonical node.
    pub(crate) fn prepare(&mut self, op: Op, program_args: &Args) -> Result<PendingCall> {
        self.flush_assertions(None);
        let op = self.op_record(op)?;
        let is_default = |i: usize| {
            op.args.get(i).zip(program_args.get(i)).is_some_and(|(a, v)| a.is_default(v))
        };
        let mut positional = op.positional.min(program_args.len());
        while positional > 0 && is_default(positional - 1) {
            positional -= 1;
        }
        let mut call = PendingCall {
            args: SmallVec::new(),
            kwargs: SmallVec::new(),
            fake_args: Args::new(),
            op: op.clone(),
        };
        for (i, value) in program_args.iter().enumerate() {
            if i < positional {
                let arg = self.arg(value)?;
                call.args.push(arg);
            } else if i >= op.positional
                && !is_default(i)
                && let Some(record) = op.args.get(i)
            {
                call.kwargs.push((record.keyword, self.arg(value)?));
            }
            call.fake_args.push(self.fake_arg(value, op.takes_traced)?);
        }
        Ok(call)
    }

    /// Adds the node of a call, with its binds and assertions. `program_args` are the arguments as
    /// the program passed them.
    ///
    /// Returns the outputs as the program gets them: traced tensors, or the argument itself where
    /// the schema returns an argument (`add_` returns `self`).
    ///
    /// # Errors
    /// A result has a type that graphs cannot represent, or a data-dependent symbol cannot be
    /// bound.
    pub(crate) fn record(
        &mut self,
        call: PendingCall,
        program_args: &Args,
        outputs: Outputs,
        loc: Loc,
    ) -> Result<Outputs> {
        self.flush_assertions(call.op.builtin.then_some(loc));
        let op = &*call.op;
        let types_before = self.types_seen;
        let mut types: SmallVec<[ValueType; 4]> = SmallVec::new();
        for (output, v) in outputs.iter().enumerate() {
            match v {
                Value::List(l) => {
                    l.iter().try_for_each(|v| self.result_type(v, output).map(|t| types.push(t)))?
                }
                Value::Ints(l) => l
                    .iter()
                    .try_for_each(|&i| self.expr(i).map(|e| types.push(ValueType::Int(e))))?,
                Value::None => {}
                v => types.push(self.result_type(v, output)?),
            }
        }
        let mut rest: &[ValueType] = &types;
        let mut next = |n: usize| {
            let (now, later) = rest.split_at(n.min(rest.len()));
            rest = later;
            now
        };
        let results: SmallVec<[ResultSpec<'_>; 2]> = outputs
            .iter()
            .map(|v| match v {
                Value::List(l) => ResultSpec::List(next(l.len())),
                Value::Ints(l) => ResultSpec::List(next(l.len())),
                Value::None => ResultSpec::Absent,
                _ => next(1).first().map_or(ResultSpec::Absent, |t| ResultSpec::Value(*t)),
            })
            .collect();
        let called = mode::replaced_op();
        let (called, scope) = (called.as_ref().map(Op::name), current_scope());
        let scope = scope.as_ref().map(ModuleScope::path);
        let info = NodeInfo { loc: Some(loc), op: called, scope };
        let created = self.builder.node(op.name, &call.args, &call.kwargs, &results, info);
        if let Some(effect) = op.effect {
            self.builder.set_effect(created.node, effect.named());
        }
        if call.returns_copies(&outputs) {
            self.builder.set_copies(created.node);
        }
        if self.types_seen > types_before
            || types.iter().any(|t| matches!(t, ValueType::Int(Expr::Id(_))))
        {
            self.bind(created, &types)?;
        }
        if !self.pending_assertions.is_empty() {
            self.flush_assertions(None);
        }
        for t in op.mutated.iter().filter_map(|&i| call.fake_args.get(i)).flat_map(Value::tensors) {
            if !op.counts_writes {
                t.own_storage()?.bump_version();
            }
            self.memories.written(t, loc);
        }
        let mut values = created.values.iter();
        let mut wrapped = Outputs::new();
        for (i, output) in outputs.into_iter().enumerate() {
            let traced = self.wrap(output, &mut values)?;
            wrapped.push(
                match op.returns_arg.get(i).copied().flatten().and_then(|a| program_args.get(a)) {
                    Some(argument) => argument.clone(),
                    None => traced,
                },
            );
        }
        Ok(wrapped)
    }

    /// Turns a result into the traced one. `values` yields the node's values, one for each tensor
    /// and each integer.
    fn wrap(&mut self, v: Value, values: &mut dyn Iterator<Item = ValueId>) -> Result<Value> {
        Ok(match v {
            Value::Tensor(t) => {
                let value = values.next().ok_or(TraceError::Internal(
                    "a node defines fewer values than its fake kernel returned",
                ))?;
                Value::Tensor(t.into_slot(self.slot(value)))
            }
            Value::List(l) => {
                Value::List(l.into_iter().map(|v| self.wrap(v, values)).collect::<Result<_>>()?)
            }
            Value::Ints(l) => {
                values.take(l.len()).for_each(drop);
                Value::Ints(l)
            }
            Value::None => Value::None,
            other => {
                values.next();
                other
            }
        })
    }

    /// The graph type of a result, which must be a tensor or an integer.
    fn result_type(&mut self, v: &Value, output: usize) -> Result<ValueType> {
        match v {
            Value::Tensor(t) => Ok(ValueType::Tensor(self.tensor_type(t)?)),
            Value::Int(i) => Ok(ValueType::Int(self.expr(*i)?)),
            other => Err(TraceError::Untraceable { output, kind: other.kind().to_string() }.into()),
        }
    }

    /// The interned type of a tensor.
    fn tensor_type(&mut self, t: &Tensor) -> Result<TypeId> {
        let m = t.meta();
        if m.rank() > MAX_RANK {
            return Err(TraceError::Graph(BuildError::Rank { rank: m.rank() }).into());
        }
        let ty = TensorType {
            dtype: m.dtype,
            device: m.device,
            layout: m.layout,
            sizes: self.exprs(&m.sizes)?,
            strides: self.exprs(&m.strides)?,
            offset: self.expr(m.offset())?,
            requires_grad: t.tracks_gradient(),
        };
        let id = self.builder.intern_type(ty);
        self.types_seen = self.types_seen.max(id.index() + 1);
        Ok(id)
    }

    fn exprs(&self, dims: &[SymInt]) -> Result<SmallVec<[Expr; 4]>> {
        // a loop, since collecting `Result`s takes twice as long and runs for every node
        let mut out = SmallVec::with_capacity(dims.len());
        for &i in dims {
            out.push(self.expr(i)?);
        }
        Ok(out)
    }

    /// An integer as an expression of the scope's table.
    fn expr(&self, i: SymInt) -> Result<Expr> {
        match i.as_i64() {
            Some(i) => Ok(Expr::Int(i)),
            None => Ok(self.scope.lower(i)?),
        }
    }

    /// Finishes the graph and leaves the recorder empty. `table` is the table of the closed scope.
    /// Returns the graph and the lines of its guards, without duplicate guards.
    pub(crate) fn finish(
        &mut self,
        table: &SymTable,
        guards: &[maquette_ir::sym::Guard],
        outputs: &[Arg],
    ) -> Result<Graph> {
        if let Some(a) = self.pending_assertions.first() {
            let cond = table.display_bool(a.cond).to_string();
            return Err(Error::from(TraceError::Unbound { cond }).at(a.loc));
        }
        let mut builder = std::mem::replace(&mut self.builder, GraphBuilder::new(""));
        guards.iter().for_each(|g| builder.guard(g.cond, Some(g.loc)));
        Ok(builder.finish(table, outputs).map_err(TraceError::Graph)?)
    }
}
