//! What is known of the operators of a graph, asked once each.

use maquette_ir::graph::{ArgEffect, Graph, NodeId, OpFacts, StrId};
use maquette_ir::copy_cost::WriteModel;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// An operator.
#[derive(Clone, Debug, Default)]
pub(crate) struct Operator {
    /// By argument.
    writes: SmallVec<[bool; 8]>,
    /// By result: the argument whose storage it shares.
    aliases: SmallVec<[Option<usize>; 2]>,
    pub ordered: bool,
    pub opaque: bool,
    pub random: bool,
    /// Its result has the elements of its first argument, in row-major order.
    pub keeps: bool,
    pub sees_storage: bool,
    pub describes: bool,
    pub write_model: WriteModel,
}

impl Operator {
    pub fn writes(&self, arg: usize) -> bool {
        self.writes.get(arg).copied().unwrap_or(true)
    }

    pub fn alias(&self, result: usize) -> Option<usize> {
        self.aliases.get(result).copied().flatten()
    }
}

/// The operators of a graph.
pub(crate) struct Told<'g> {
    facts: &'g dyn OpFacts,
    /// By name.
    operators: Vec<Option<Operator>>,
    keywords: FxHashMap<(StrId, StrId), Option<usize>>,
}

impl<'g> Told<'g> {
    pub fn new(facts: &'g dyn OpFacts) -> Told<'g> {
        Told { facts, operators: Vec::new(), keywords: FxHashMap::default() }
    }

    /// The number of an argument given by keyword.
    pub fn keyword(&mut self, graph: &Graph, op: StrId, name: StrId) -> Option<usize> {
        let facts = self.facts;
        *self.keywords.entry((op, name)).or_insert_with(|| facts.arg_index(graph.str(op), graph.str(name)))
    }

    /// An argument, as messages name it.
    pub fn name(&self, op: &str, arg: usize) -> String {
        self.facts.arg_name(op, arg).unwrap_or_else(|| format!("argument {arg}"))
    }

    /// The operator of a node, whose arguments are numbered below `args`.
    pub fn operator(&mut self, graph: &Graph, node: NodeId, args: usize) -> &Operator {
        let (op, name, facts) = (graph.op(node).index(), graph.op_name(node), self.facts);
        if op >= self.operators.len() {
            self.operators.resize(op + 1, None);
        }
        let operator = self.operators[op].get_or_insert_with(|| Operator {
            ordered: facts.has_effect(name),
            opaque: facts.observes_strides(name),
            random: facts.uses_rng(name),
            keeps: facts.preserves_elements(name),
            sees_storage: facts.observes_storage(name),
            describes: facts.is_metadata_query(name),
            write_model: WriteModel::of(name, facts),
            ..Operator::default()
        });
        for arg in operator.writes.len()..args {
            operator.writes.push(facts.arg_effect(name, arg) == ArgEffect::Write);
        }
        for result in operator.aliases.len()..graph.results(node).len() {
            operator.aliases.push(facts.result_aliases(name, result));
        }
        operator
    }
}
