//! Finds attention that is written as products and a softmax, from the last product backwards.

use super::explain::{AttentionExplanation, NoAttentionReason};
use super::scores::{Key, Mask, Scores};
use maquette_aten::attention_parts::{AttentionPart, attention_part, operators};
use maquette_ir::graph::{
    Arg, ArgKind, Graph, MAX_RANK, NodeId, Stmt, TensorType, ValueId, ValueType,
};
use maquette_ir::{DType, Device};
use maquette_ops::Op;
use rustc_hash::FxHashSet;
use smallvec::{SmallVec, smallvec};

/// An attention in a graph.
pub(super) struct Match {
    /// The nodes that the operator replaces, besides the last.
    pub removed: Vec<NodeId>,
    /// The product of queries and keys.
    pub product: NodeId,
    /// The product of weights and values, in whose place the operator stands.
    pub last: NodeId,
    pub query: ValueId,
    pub key: Key,
    pub value: ValueId,
    pub mask: Option<Mask>,
    pub scale: f64,
}

impl Match {
    /// The nodes in whose place the operator stands, the last one at the end.
    pub fn nodes(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.removed.iter().copied().chain([self.last])
    }
}

/// The attentions of a graph, in program order, and what was refused.
pub(super) fn find(graph: &Graph) -> (Vec<Match>, AttentionExplanation) {
    let matcher = Matcher { graph, kept: kept(graph) };
    let (mut found, mut explanation) = (Vec::new(), AttentionExplanation::default());
    let mut is_plain: Option<bool> = None;
    // what a match replaces belongs to it alone: the scores of an attention can be the result of
    // another one
    let mut taken: FxHashSet<NodeId> = FxHashSet::default();
    for node in graph.nodes() {
        let Some(candidate) = matcher.candidate(node) else { continue };
        let is_plain =
            *is_plain.get_or_insert_with(|| operators().iter().all(Op::is_plain_builtin));
        let attention = match is_plain {
            true => matcher.attention(&candidate),
            false => Err(NoAttentionReason::Overridden),
        };
        let is_free = |found: &Match| !found.nodes().any(|node| taken.contains(&node));
        let attention = attention.and_then(|found| match is_free(&found) {
            true => Ok(found),
            false => Err(NoAttentionReason::Nested),
        });
        match attention {
            Ok(attention) => {
                taken.extend(attention.nodes());
                explanation.recognized.push(graph.loc(node));
                found.push(attention);
            }
            Err(reason) => explanation.refused.push((graph.loc(node), reason)),
        }
    }
    (found, explanation)
}

/// By value: whether something besides nodes uses it.
fn kept(graph: &Graph) -> Vec<bool> {
    let mut kept = vec![false; graph.values().len()];
    for &output in graph.outputs() {
        graph.for_each_leaf(output, &mut |leaf| {
            if let Arg::Value(v) = leaf {
                kept[v.index()] = true;
            }
        });
    }
    for stmt in graph.body() {
        if let Stmt::Bind { value, .. } = stmt {
            kept[value.index()] = true;
        }
    }
    kept
}

/// The sizes of a tensor for what depends on its rank alone.
static ANY_SIZES: [i64; MAX_RANK] = [1; MAX_RANK];

/// A softmax, perhaps after a dropout, that is the left factor of a product.
struct Candidate {
    last: NodeId,
    value: ValueId,
    /// The softmax, and a dropout.
    weights: SmallVec<[NodeId; 2]>,
    /// Whether the dropout draws random numbers.
    draws: bool,
    /// What the softmax is of, its dimension, and the dtype to which it converts.
    scores: ValueId,
    dim: i64,
    dtype: Option<DType>,
}

/// A graph, with questions about it.
pub(super) struct Matcher<'g> {
    pub graph: &'g Graph,
    /// By value: whether something besides nodes uses it.
    kept: Vec<bool>,
}

impl<'g> Matcher<'g> {
    /// What a call does in an attention. No call that does anything has keywords.
    pub fn part(&self, node: NodeId) -> Option<AttentionPart> {
        let graph = self.graph;
        if !graph.kwargs(node).is_empty() {
            return None;
        }
        let args: SmallVec<[ArgKind<'_>; 3]> =
            graph.args(node).iter().map(|arg| self.kind(*arg)).collect::<Option<_>>()?;
        attention_part(graph.op_name(node), &args)
    }

    fn kind(&self, arg: Arg) -> Option<ArgKind<'g>> {
        Some(match arg {
            Arg::Value(v) => {
                let ty = self.ty(v)?;
                ArgKind::Tensor { dtype: ty.dtype, sizes: ANY_SIZES.get(..ty.rank())? }
            }
            Arg::None => ArgKind::None,
            Arg::Int(x) => ArgKind::Int(x.as_i64()),
            Arg::Float(x) => ArgKind::Float(x.get()),
            Arg::Bool(x) => ArgKind::Bool(x),
            Arg::DType(x) => ArgKind::DType(x),
            Arg::List(list) => {
                let list = self.graph.list(list).iter().map(|arg| self.kind(*arg));
                ArgKind::List(list.collect::<Option<_>>()?)
            }
            Arg::Str(_) | Arg::Device(_) | Arg::Layout(_) | Arg::MemoryFormat(_) => return None,
        })
    }

    /// The value that a call takes as an argument.
    pub fn operand(&self, node: NodeId, arg: usize) -> Option<ValueId> {
        match self.graph.args(node).get(arg) {
            Some(Arg::Value(v)) => Some(*v),
            _ => None,
        }
    }

    /// Whether a node is the only user of a value.
    pub fn is_only_user(&self, node: NodeId, of: ValueId) -> bool {
        !self.kept[of.index()] && self.graph.users(of) == [node]
    }

    pub fn ty(&self, value: ValueId) -> Option<&'g TensorType> {
        self.graph.tensor_type(value)
    }

    fn candidate(&self, last: NodeId) -> Option<Candidate> {
        let Some(AttentionPart::Product) = self.part(last) else { return None };
        let value = self.operand(last, 1)?;
        let mut node = self.graph.producer(self.operand(last, 0)?)?;
        let (mut weights, mut draws): (SmallVec<_>, _) = (smallvec![node], false);
        if let Some(AttentionPart::Dropout { draws: has_drawn }) = self.part(node) {
            draws = has_drawn;
            node = self.graph.producer(self.operand(node, 0)?)?;
            weights.push(node);
        }
        let Some(AttentionPart::Softmax { dim, dtype }) = self.part(node) else { return None };
        let scores = self.operand(node, 0)?;
        Some(Candidate { last, value, weights, draws, scores, dim, dtype })
    }

    fn attention(&self, of: &Candidate) -> Result<Match, NoAttentionReason> {
        let Candidate { last, value, .. } = *of;
        let Scores { mut removed, view, product, query, key, mask, scale } =
            self.masked_scores(of.scores)?;
        removed.extend(&of.weights);
        let rank = self.ty(of.scores).map_or(0, TensorType::rank) as i64;
        if of.dim != -1 && of.dim != rank - 1 {
            return Err(NoAttentionReason::SoftmaxDim);
        }
        if of.draws {
            return Err(NoAttentionReason::Dropout);
        }
        let attention = Match { removed, product, last, query, key, value, mask, scale };
        let dtype = self.check_types(&attention)?;
        if of.dtype.is_some_and(|to| to != dtype) {
            return Err(NoAttentionReason::Operands);
        }
        let is_number = match dtype {
            DType::F32 => (scale as f32).is_normal(),
            _ => scale.is_normal(),
        };
        if !is_number {
            return Err(NoAttentionReason::Scale);
        }
        self.check_uses(&attention)?;
        self.check_writes(&attention, view)?;
        Ok(attention)
    }

    /// Requires one dtype of matrices on the CPU throughout, and the result in row-major order, as
    /// that of the operator is.
    fn check_types(&self, of: &Match) -> Result<DType, NoAttentionReason> {
        let key = match of.key {
            Key::Rows(key) | Key::Columns(key) => key,
        };
        let dtype = self.ty(of.query).map(|ty| ty.dtype);
        let dtype = dtype.filter(|dtype| [DType::F32, DType::F64].contains(dtype));
        let dtype = dtype.ok_or(NoAttentionReason::Operands)?;
        let nodes = of.removed.iter().chain([&of.last]);
        let results = nodes.flat_map(|node| self.graph.result_values(*node));
        let are_matrices = [of.query, key, of.value].into_iter().chain(results).all(|value| {
            self.ty(value)
                .is_some_and(|ty| (ty.dtype, ty.device) == (dtype, Device::Cpu) && ty.rank() >= 2)
        });
        let is_row_major =
            self.graph.result_values(of.last).all(|value| match self.graph.value_type(value) {
                ValueType::Tensor(ty) => self.graph.is_contiguous(ty),
                _ => false,
            });
        if are_matrices && is_row_major { Ok(dtype) } else { Err(NoAttentionReason::Operands) }
    }

    /// Requires that the values between the operands and the result have no other use.
    fn check_uses(&self, of: &Match) -> Result<(), NoAttentionReason> {
        let is_inside = |node: &NodeId| *node == of.last || of.removed.contains(node);
        let results = of.removed.iter().flat_map(|node| self.graph.result_values(*node));
        let has_other_use =
            |v: ValueId| self.kept[v.index()] || !self.graph.users(v).iter().all(is_inside);
        let key = match of.key {
            Key::Rows(key) | Key::Columns(key) => key,
        };
        let operands = [of.query, key, of.value].into_iter().chain(of.mask.map(Mask::value));
        let is_removed =
            |v: ValueId| self.graph.producer(v).is_some_and(|node| of.removed.contains(&node));
        match results.into_iter().any(has_other_use) || operands.into_iter().any(is_removed) {
            true => Err(NoAttentionReason::OtherUse),
            false => Ok(()),
        }
    }

    /// Requires that nothing else between the first node and the last writes memory, or may. `view`
    /// is a view of the keys that stays.
    fn check_writes(&self, of: &Match, view: Option<NodeId>) -> Result<(), NoAttentionReason> {
        let first = of.removed.iter().copied().chain(view).min().unwrap_or(of.last);
        let writes = |node: NodeId| {
            let op = Op::find(self.graph.op_name(node));
            self.graph.has_effect(node)
                || op.map_or(true, |op| op.is_mutable() || op.effect().is_some())
        };
        // In a finished graph, node ids increase in program order.
        let between = self.graph.nodes().filter(|node| first < *node && *node < of.last);
        let mut others = between.filter(|node| !of.removed.contains(node));
        if others.any(writes) { Err(NoAttentionReason::Write) } else { Ok(()) }
    }
}
