//! A cache of operator facts for one graph: each fact is queried once for each operator.

use maquette_ir::copy_cost::WriteModel;
use maquette_ir::graph::{ArgEffect, Graph, NodeId, OpFacts, StrId, ViewSource};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// The facts of an operator that lifting uses.
#[derive(Clone, Debug)]
pub(crate) struct OpInfo {
    /// For each argument: whether the operator writes it.
    writes: SmallVec<[bool; 8]>,
    /// For each result: the argument whose storage it shares.
    aliases: SmallVec<[Option<usize>; 2]>,
    pub has_effect: bool,
    pub observes_strides: bool,
    pub uses_rng: bool,
    /// Its result has the elements of its first argument in row-major order.
    pub keeps_elements: bool,
    pub observes_storage: bool,
    /// What decides which elements its views have.
    pub view_source: ViewSource,
    /// A result of it became a view.
    pub is_viewer: bool,
    /// Its views may have elements that their tensor does not have.
    pub view_may_exceed_base: bool,
    /// The argument that is an offset from the start of its tensor's storage.
    pub absolute_offset: Option<usize>,
    /// The argument that requests a copy, of an operator that keeps elements.
    pub copy_arg: Option<usize>,
    pub is_metadata_query: bool,
    pub write_model: WriteModel,
}

impl OpInfo {
    /// Whether the operator writes an argument; true if that is not known.
    pub fn writes(&self, arg: usize) -> bool {
        self.writes.get(arg).copied().unwrap_or(true)
    }

    /// The argument whose storage a result shares.
    pub fn alias(&self, result: usize) -> Option<usize> {
        self.aliases.get(result).copied().flatten()
    }
}

/// The cached facts of a graph's operators.
pub(crate) struct OpInfoCache<'g> {
    facts: &'g dyn OpFacts,
    /// For each operator, by the number of its name.
    infos: Vec<Option<OpInfo>>,
    /// For each operator and keyword: the position of the argument.
    keywords: FxHashMap<(StrId, StrId), Option<usize>>,
}

impl<'g> OpInfoCache<'g> {
    pub fn new(facts: &'g dyn OpFacts) -> OpInfoCache<'g> {
        OpInfoCache { facts, infos: Vec::new(), keywords: FxHashMap::default() }
    }

    /// The position of the argument that a keyword names.
    pub fn keyword_index(&mut self, graph: &Graph, op: StrId, name: StrId) -> Option<usize> {
        let facts = self.facts;
        *self
            .keywords
            .entry((op, name))
            .or_insert_with(|| facts.arg_index(graph.str(op), graph.str(name)))
    }

    /// The name of an argument in error messages.
    pub fn arg_name(&self, op: &str, arg: usize) -> String {
        self.facts.arg_name(op, arg).unwrap_or_else(|| format!("argument {arg}"))
    }

    /// Whether an operator takes an offset that counts from the start of its tensor's storage.
    pub fn has_absolute_offset(&self, op: &str) -> bool {
        self.facts.absolute_offset_arg(op).is_some()
    }

    /// The facts of a node's operator, for argument positions below `args`.
    pub fn info(&mut self, graph: &Graph, node: NodeId, args: usize) -> &mut OpInfo {
        let (op, name, facts) = (graph.op(node).index(), graph.op_name(node), self.facts);
        if op >= self.infos.len() {
            self.infos.resize(op + 1, None);
        }
        let info = self.infos[op].get_or_insert_with(|| OpInfo {
            has_effect: facts.has_effect(name),
            observes_strides: facts.observes_strides(name),
            uses_rng: facts.uses_rng(name),
            keeps_elements: facts.preserves_elements(name),
            copy_arg: match facts.preserves_elements(name) {
                true => facts.arg_index(name, "copy"),
                false => None,
            },
            observes_storage: facts.observes_storage(name),
            view_source: facts.view_source(name),
            is_viewer: false,
            view_may_exceed_base: facts.view_may_exceed_base(name),
            absolute_offset: facts.absolute_offset_arg(name),
            is_metadata_query: facts.is_metadata_query(name),
            write_model: WriteModel::of(name, facts),
            writes: SmallVec::new(),
            aliases: SmallVec::new(),
        });
        for arg in info.writes.len()..args {
            info.writes.push(facts.arg_effect(name, arg) == ArgEffect::Write);
        }
        for result in info.aliases.len()..graph.results(node).len() {
            info.aliases.push(facts.result_aliases(name, result));
        }
        info
    }
}
