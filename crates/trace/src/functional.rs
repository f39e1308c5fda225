//! Functional graphs: values have no strides, and operators that mutate are called on copies.

use crate::interpreter::{Interpreter, SourceInfo, interpret};
use maquette_ir::graph::{Arg, Graph, MemoryFacts, NodeId, ValueId};
use maquette_ir::sym::SymInt;
use maquette_ir::typing::contiguous_strides;
use maquette_ops::library::Facts;
use maquette_ops::{AccessError, Args, Error, ErrorKind, Op, Outputs, Result, Tensor, Value};
use smallvec::SmallVec;
use std::sync::Arc;

/// The name under which a functional graph calls an operator that mutates, on copies: the
/// operator's name and its arguments. It returns what the operator returns, without the arguments
/// among them, and then the copies, in the order of the arguments.
pub const CALL: &str = "ir::call";

/// Runs a functional graph: as [`run_graph`](crate::run_graph), but results have the declared sizes
/// only. Strides are those of the declared types where an operator takes a tensor whose strides may
/// show ([`MemoryFacts::observes_strides`]). Results may share memory with inputs and with each
/// other.
///
/// # Errors
/// As [`run_graph`](crate::run_graph).
#[track_caller]
pub fn run_functional(graph: &Graph, inputs: &[Value]) -> Result<Vec<Value>> {
    run_functional_at(graph, inputs, &SourceInfo::of_caller())
}

/// As [`run_functional`], for messages that know of the program.
///
/// # Errors
/// As [`run_functional`].
pub fn run_functional_at(
    graph: &Graph,
    inputs: &[Value],
    source_info: &SourceInfo<'_>,
) -> Result<Vec<Value>> {
    interpret(graph, inputs, source_info, true).map_err(|e| source_info.locate(e))
}

/// A copy in memory of its own, with strides; of elements that come to lie in one place, the last
/// counts.
///
/// # Errors
/// The strides do not fit, or there is no memory.
pub fn copy_with_strides(t: &Tensor, strides: &[SymInt]) -> Result<Tensor> {
    let out = Tensor::empty_strided(t.sizes(), strides, t.dtype());
    match out.copy_(t).ok() {
        Ok(_) => Ok(out),
        Err(e) if matches!(e.kind(), ErrorKind::Access(AccessError::SelfOverlap { .. })) => {
            copy_overlapping(t, strides, 0)
        }
        Err(e) => Err(e),
    }
}

/// As [`copy_with_strides`], element by element, and behind a margin.
pub(crate) fn copy_overlapping(t: &Tensor, strides: &[SymInt], offset: i64) -> Result<Tensor> {
    let plain = |l: &[SymInt]| l.iter().map(|i| i.as_i64()).collect::<Option<Vec<i64>>>();
    let symbolic = || Error::msg("strides that overlap must be plain numbers");
    let (sizes, steps) =
        (plain(t.sizes()).ok_or_else(symbolic)?, plain(strides).ok_or_else(symbolic)?);
    let mut positions = vec![offset];
    for (n, s) in sizes.iter().zip(&steps) {
        positions = positions.iter().flat_map(|p| (0..*n).map(move |i| p + i * s)).collect();
    }
    let extent = positions.iter().max().map_or(0, |p| p + 1);
    let count = positions.len() as i64;
    let flat = Tensor::zeros([extent], t.dtype());
    let at = Value::List(Box::from([Value::Tensor(Tensor::from_vec(positions, [count]))]));
    let args = [Value::from(&flat), at, Value::from(&t.reshape([count]))];
    maquette_ops::call("aten::index_put_", args.into_iter().collect())?;
    Ok(flat.as_strided(t.sizes(), strides, Some(offset.into())).ok()?.clone())
}

/// A copy to write to, with the strides it has where no two elements share their place.
///
/// # Errors
/// There is no memory.
pub fn copy_for_write(t: &Tensor) -> Result<Tensor> {
    let repeats = t
        .strides()
        .iter()
        .zip(t.sizes())
        .any(|(s, n)| s.as_i64() == Some(0) && n.as_i64() != Some(1));
    if repeats {
        copy_with_strides(t, &contiguous_strides(t.sizes()))
    } else {
        copy_with_strides(t, t.strides())
    }
}

impl Interpreter<'_> {
    pub(crate) fn functional_node(&mut self, node: NodeId) -> Result<()> {
        let loc = self.graph.loc(node).unwrap_or(self.source_info.call_site);
        let (name, skip) = self.callee(node);
        let op = Op::find(name).map_err(|e| e.at(loc))?;
        let mut arguments = match Facts.observes_strides(name) {
            false => self.arguments(op, node, skip, &|a| self.value(a))?,
            true => self.arguments(op, node, skip, &|a| self.value_with_declared_strides(a))?,
        };
        let mutated = self.replace_mutated(op, node, &mut arguments, &mut |t| copy_for_write(t))?;
        self.call(op, node, arguments, mutated)
    }

    /// The operator that a node calls, and how many of the node's arguments are not the operator's.
    pub(crate) fn callee(&self, node: NodeId) -> (&str, usize) {
        match (self.graph.op_name(node), self.graph.args(node).first()) {
            (CALL, Some(Arg::Str(name))) => (self.graph.str(*name), 1),
            (name, _) => (name, 0),
        }
    }

    /// Replaces the tensors that are mutated, in the order in which the node gives them, and
    /// returns what they were replaced by.
    pub(crate) fn replace_mutated(
        &self,
        op: Op,
        node: NodeId,
        arguments: &mut Args,
        by: &mut dyn FnMut(&Tensor) -> Result<Tensor>,
    ) -> Result<SmallVec<[Value; 2]>> {
        let (_, skip) = self.callee(node);
        let mut mutated = SmallVec::new();
        for index in self.given_arg_indices(op, node, skip)? {
            if let Some(argument) = arguments.get_mut(index).filter(|_| op.mutates(index)) {
                *argument = match &*argument {
                    Value::Tensor(t) => Value::Tensor(by(t)?),
                    other => other.map_tensors(by)?,
                };
                mutated.extend(argument.tensors().cloned().map(Value::Tensor));
            }
        }
        Ok(mutated)
    }

    /// Calls an operator, and takes what it returns, and what it mutated.
    pub(crate) fn call(
        &mut self,
        op: Op,
        node: NodeId,
        arguments: Args,
        mutated: SmallVec<[Value; 2]>,
    ) -> Result<()> {
        let loc = self.graph.loc(node).unwrap_or(self.source_info.call_site);
        let (name, skip) = self.callee(node);
        let name: Arc<str> = name.into();
        let returned = |i: usize| skip > 0 && op.return_alias(i).is_some_and(|a| op.mutates(a));
        let outputs = op.call_at(arguments, loc)?.into_iter().enumerate();
        let outputs: Outputs =
            outputs.filter(|(i, _)| !returned(*i)).map(|(_, v)| v).chain(mutated).collect();
        self.set_results(node, outputs).map_err(|e| e.in_call(&name, loc))
    }

    /// The numbers of the arguments that a node gives, in its own order.
    fn given_arg_indices(&self, op: Op, node: NodeId, skip: usize) -> Result<SmallVec<[usize; 6]>> {
        let positional = self.graph.args(node).len() - skip;
        let schema = op.schema()?;
        let named = self
            .graph
            .kwargs(node)
            .iter()
            .filter_map(|(name, _)| schema.arg_index(self.graph.str(*name)));
        Ok((0..positional).chain(named).collect())
    }

    /// As [`Interpreter::value`], tensors laid out as their types say.
    fn value_with_declared_strides(&self, arg: Arg) -> Result<Value> {
        match arg {
            Arg::Value(v) => match self.value(arg)? {
                Value::Tensor(t) => Ok(Value::Tensor(self.with_declared_strides(v, t)?)),
                other => Ok(other),
            },
            Arg::List(list)
                if self
                    .graph
                    .list(list)
                    .iter()
                    .any(|a| matches!(a, Arg::Value(_) | Arg::List(_))) =>
            {
                Ok(Value::List(
                    self.graph
                        .list(list)
                        .iter()
                        .map(|&a| self.value_with_declared_strides(a))
                        .collect::<Result<_>>()?,
                ))
            }
            other => self.value(other),
        }
    }

    /// A tensor with the strides of a value's type.
    pub(crate) fn with_declared_strides(&self, v: ValueId, t: Tensor) -> Result<Tensor> {
        let Some(ty) = self.graph.tensor_type(v) else { return Ok(t) };
        let strides = ty
            .strides
            .iter()
            .map(|&e| Ok(self.bindings.eval(e)?.into()))
            .collect::<Result<SmallVec<[SymInt; 4]>, Error>>()?;
        let same = t
            .strides()
            .iter()
            .zip(&strides)
            .zip(t.sizes())
            .all(|((a, b), n)| n.as_i64() == Some(1) || a.as_i64() == b.as_i64());
        if same { Ok(t) } else { copy_with_strides(&t, &strides) }
    }
}
