//! Concatenations as stores, so that parts are computed where they belong.
//!
//! **Problem.** An operator that concatenates copies its parts, which have just been written.
//!
//! **Algorithm.** As MLIR decomposes `tensor.concat`, by `tensor.empty` and `tensor.insert_slice`:
//!
//! ```text
//!                                  %e = ir::empty()
//! %a = aten::exp(%x)               %a = aten::exp(%x)             is computed in its part of %e
//! %b = aten::cos(%x)               %b = aten::cos(%x)
//! %y = aten::cat([%a, %b], 0)      %s = ir::scatter(%e, %a, …)    aliases %e
//!                                  %y = ir::scatter(%s, %b, …)
//! ```
//!
//! The empty tensor stands before what computes the first part, so that its memory is known there.
//! [`plan`](crate::plan()) does the rest: a part is computed in the region into which it is stored,
//! or is copied there where the operator would have copied it.
//!
//! **Invariants.** The program has the values, effects and assertions of the original, in the same
//! order. It leaves out no error: that the sizes fit is known before a program runs.
//!
//! **Cost.** Linear in the number of nodes and parts.

use crate::error::{FunctionalizeError, Reason};
use indexmap::IndexMap;
use maquette_ir::copy_cost::{Bound, SymbolicCount};
use maquette_ir::functional_ops::{EMPTY, FunctionalOp, SCATTER};
use maquette_ir::functional_program::FunctionalGraph;
use maquette_ir::graph::{
    Arg, Graph, GraphBuilder, GraphCopy, NodeId, OpFacts, ResultSpec, Stmt, ValueId,
};
use maquette_ir::sym::{Expr, SymTable, SymbolId};
use maquette_ir::view::ViewSpec;
use rustc_hash::{FxBuildHasher, FxHashMap};
use smallvec::SmallVec;

type Exprs = SmallVec<[Expr; 4]>;
/// By node of the original.
type Concats = IndexMap<NodeId, Concat, FxBuildHasher>;

/// The most parts: the planner finds the memory of a part through the stores before it.
const MAX_PARTS: usize = 16;

/// A concatenation.
struct Concat {
    result: ValueId,
    /// The statement before which its empty tensor stands.
    at: usize,
    parts: Vec<Part>,
    /// Row-major.
    strides: Exprs,
}

/// An operand of a concatenation, and the position of its first element.
struct Part {
    value: ValueId,
    sizes: Exprs,
    offset: Expr,
}

/// A program with empty tensors and stores in place of its concatenations. `None` if it has none
/// that could be one.
///
/// # Errors
/// The graph is not valid.
pub fn decompose_concats(
    original: &FunctionalGraph,
    facts: &dyn OpFacts,
) -> Result<Option<FunctionalGraph>, FunctionalizeError> {
    let graph = &original.graph;
    if !graph.nodes().any(|node| facts.concatenates(graph.op_name(node))) {
        return Ok(None);
    }
    let mut symbols = graph.symbols().clone();
    let concats = find(original, facts, &mut symbols);
    if concats.is_empty() {
        return Ok(None);
    }
    let mut builder = GraphBuilder::new(graph.name());
    builder.reserve(graph.node_count());
    let mut copy = GraphCopy::new(graph, &mut builder);
    let mut nodes: Vec<Option<NodeId>> = vec![None; graph.node_count()];
    let mut empty: FxHashMap<ValueId, ValueId> = FxHashMap::default();
    for (at, stmt) in graph.body().iter().enumerate() {
        // A concatenation can be a part of a later one, whose memory has to be known first.
        for concat in concats.values().rev().filter(|c| c.at == at) {
            let ty = copy.type_of(&mut builder, concat.result);
            let op = builder.intern(EMPTY);
            let info = graph.producer_info(concat.result);
            let created = builder.node(op, &[], &[], &[ResultSpec::Value(ty)], info);
            empty.extend(created.values.iter().next().map(|e| (concat.result, e)));
        }
        match *stmt {
            Stmt::Node(node) => match concats.get(&node) {
                Some(concat) => {
                    let base = empty.get(&concat.result).copied().ok_or_else(undefined)?;
                    let stored = store(graph, &mut builder, &copy, concat, base, node);
                    copy.set(concat.result, stored.ok_or_else(undefined)?);
                }
                None => {
                    nodes[node.index()] = copy.node(&mut builder, node);
                    nodes[node.index()].ok_or_else(undefined)?;
                }
            },
            Stmt::Bind { symbol, value, source } => {
                builder.bind(symbol, copy.value(value).ok_or_else(undefined)?, source);
            }
            Stmt::Assert { cond, message } => {
                let message = message.map(|m| graph.str(m));
                builder.assert_(cond, message, graph.stmt_loc(at));
            }
        }
    }
    let outputs = copy.outputs(&mut builder).ok_or_else(undefined)?;
    let mut program = original.clone();
    // The operator copies all of its parts.
    let mut copied = SymbolicCount::default();
    for concat in concats.values() {
        copied.add(graph.tensor_type(concat.result).map_or(&[], |ty| &ty.sizes), 1);
    }
    if let Some(copied) = copied.import(&mut program.symbols, &symbols, Bound::AtLeast) {
        program.eager.copied.append(&copied);
    }
    program.unknown_strides = (original.unknown_strides.iter())
        .filter_map(|node| nodes.get(node.index()).copied().flatten())
        .collect();
    program.graph = builder.finish(&symbols, &outputs).map_err(Reason::from)?;
    Ok(Some(program))
}

/// A statement of the graph reads a value before its definition.
fn undefined() -> Reason {
    Reason::Internal("a statement reads a value that nothing defines")
}

/// The concatenations of a program that can be stores, in program order.
fn find(program: &FunctionalGraph, facts: &dyn OpFacts, symbols: &mut SymTable) -> Concats {
    let graph = &program.graph;
    let mut statements = vec![0; graph.node_count()];
    let mut bound: FxHashMap<SymbolId, usize> = FxHashMap::default();
    for (at, stmt) in graph.body().iter().enumerate() {
        match *stmt {
            Stmt::Node(node) => statements[node.index()] = at,
            Stmt::Bind { symbol, .. } => drop(bound.insert(symbol, at)),
            Stmt::Assert { .. } => {}
        }
    }
    let mut concats = Concats::default();
    for node in graph.nodes() {
        if !facts.concatenates(graph.op_name(node))
            || graph.has_effect(node)
            || program.unknown_strides.binary_search(&node).is_ok()
        {
            continue;
        }
        let Some(mut concat) = concat(graph, node, symbols) else { continue };
        // The statement that makes all elements of a part.
        let computed = |part: &Part, symbols: &mut SymTable| {
            let node = graph.producer(whole(graph, part.value, symbols))?;
            let earlier = concats.get(&node).map(|concat| concat.at);
            earlier.or_else(|| statements.get(node.index()).copied())
        };
        let own = statements.get(node.index()).copied().unwrap_or_default();
        let first = concat.parts.iter().filter_map(|part| computed(part, symbols)).min();
        let sizes = graph.tensor_type(concat.result).map_or(&[][..], |ty| &ty.sizes);
        let known =
            sizes.iter().flat_map(|n| symbols.free_symbols(*n)).filter_map(|s| bound.get(&s));
        concat.at = first.unwrap_or(own).max(known.map(|at| at + 1).max().unwrap_or(0)).min(own);
        concats.insert(node, concat);
    }
    concats
}

/// A node as a concatenation of tensors of one dtype and rank; `at` is not known yet.
fn concat(graph: &Graph, node: NodeId, symbols: &mut SymTable) -> Option<Concat> {
    let &[Arg::List(list), ref rest @ ..] = graph.args(node) else { return None };
    let dim = match (rest, graph.kwargs(node)) {
        ([], []) => 0,
        ([Arg::Int(dim)], []) | ([], [(_, Arg::Int(dim))]) => dim.as_i64()?,
        _ => return None,
    };
    let mut results = graph.result_values(node);
    let (result, None) = (results.next()?, results.next()) else { return None };
    let ty = graph.tensor_type(result)?;
    let rank = i64::try_from(ty.sizes.len()).ok()?;
    let dim = usize::try_from(if dim < 0 { dim + rank } else { dim }).ok()?;
    let elements = graph.list(list);
    if elements.len() > MAX_PARTS || dim >= ty.sizes.len() {
        return None;
    }
    let rows = ViewSpec::contiguous(&ty.sizes, symbols).ok()?;
    let strides: Exprs = rows.dims().iter().map(|d| d.stride).collect();
    let (mut parts, mut start) = (Vec::new(), Expr::Int(0));
    for element in elements {
        let Arg::Value(value) = *element else { return None };
        let part = graph.tensor_type(value)?;
        if part.dtype != ty.dtype || part.device != ty.device || part.sizes.len() != ty.sizes.len()
        {
            return None;
        }
        let offset = symbols.mul(start, *strides.get(dim)?).ok()?;
        parts.push(Part { value, sizes: part.sizes.clone(), offset });
        start = symbols.add(start, *part.sizes.get(dim)?).ok()?;
    }
    let is_covered = symbols.simplify(start) == symbols.simplify(*ty.sizes.get(dim)?);
    is_covered.then_some(Concat { result, at: 0, parts, strides })
}

/// The value that a value is a view of, through views of all elements.
fn whole(graph: &Graph, mut v: ValueId, symbols: &mut SymTable) -> ValueId {
    let mut numel = |v: ValueId| {
        let sizes = &graph.tensor_type(v)?.sizes;
        ViewSpec::contiguous(sizes, symbols).ok()?.numel(symbols)
    };
    while let Some(node) = graph.producer(v)
        && let Ok(FunctionalOp::View { base, .. }) = FunctionalOp::of(graph, node)
        && let (Some(own), Some(all)) = (numel(v), numel(base))
        && own == all
    {
        v = base;
    }
    v
}

/// Stores the parts of a concatenation into an empty tensor. Returns the last value; `None` if a
/// part is not defined.
fn store(
    graph: &Graph,
    builder: &mut GraphBuilder,
    copy: &GraphCopy<'_>,
    concat: &Concat,
    empty: ValueId,
    node: NodeId,
) -> Option<ValueId> {
    let op = builder.intern(SCATTER);
    let mut stored = empty;
    for part in &concat.parts {
        let mut list = |exprs: &[Expr]| {
            let ints: SmallVec<[Arg; 4]> = exprs.iter().map(|e| Arg::Int(*e)).collect();
            builder.list(&ints)
        };
        let (sizes, strides) = (list(&part.sizes), list(&concat.strides));
        let source = Arg::Value(copy.value(part.value)?);
        let args = [Arg::Value(stored), source, sizes, strides, Arg::Int(part.offset)];
        let ty = copy.type_of(builder, concat.result);
        let created = builder.node(op, &args, &[], &[ResultSpec::Value(ty)], graph.info(node));
        stored = created.values.iter().next()?;
    }
    builder.set_name(stored, &graph.value_name(concat.result).to_string());
    Some(stored)
}
