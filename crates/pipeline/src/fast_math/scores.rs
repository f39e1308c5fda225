//! The scores of an attention: a product of queries and keys, times numbers, and then a mask.

use super::explain::NoAttentionReason;
use super::pattern::Matcher;
use maquette_aten::attention_parts::AttentionPart;
use maquette_ir::DType;
use maquette_ir::graph::{NodeId, ValueId, ValueType};

/// The keys of an attention.
#[derive(Clone, Copy)]
pub(super) enum Key {
    /// A key is a row.
    Rows(ValueId),
    /// A key is a column.
    Columns(ValueId),
}

/// The mask of an attention.
#[derive(Clone, Copy)]
pub(super) enum Mask {
    /// Added to the scores.
    Added(ValueId),
    /// A bool for each key that a query sees.
    Visible(ValueId),
    /// A bool for each key that a query does not see, and the node that says so.
    Hidden(ValueId, NodeId),
}

impl Mask {
    pub fn value(self) -> ValueId {
        match self {
            Mask::Added(v) | Mask::Visible(v) | Mask::Hidden(v, _) => v,
        }
    }
}

/// The scores that a softmax takes.
pub(super) struct Scores {
    /// The nodes between operands and scores.
    pub removed: Vec<NodeId>,
    /// A view of the keys that has other users, so that it stays.
    pub view: Option<NodeId>,
    /// The product of queries and keys.
    pub product: NodeId,
    pub query: ValueId,
    pub key: Key,
    pub mask: Option<Mask>,
    pub scale: f64,
}

impl Matcher<'_> {
    /// The scores of a softmax, masked or not.
    pub fn masked_scores(&self, of: ValueId) -> Result<Scores, NoAttentionReason> {
        if let Some(scores) = self.scores(of) {
            return Ok(scores);
        }
        let node = self.graph.producer(of).ok_or(NoAttentionReason::Scores)?;
        let operand = |arg| self.operand(node, arg).ok_or(NoAttentionReason::Scores);
        let (own, mask, hidden) = match self.part(node) {
            Some(AttentionPart::Sum) => {
                let (a, b) = (operand(0)?, operand(1)?);
                let (own, mask) = if self.scores(a).is_some() { (a, b) } else { (b, a) };
                (own, Mask::Added(mask), f64::NEG_INFINITY)
            }
            Some(AttentionPart::Select { of, mask, where_true, other }) => {
                let mask = operand(mask)?;
                let mask = if where_true { Mask::Visible(mask) } else { Mask::Hidden(mask, node) };
                (operand(of)?, mask, other)
            }
            _ => return Err(NoAttentionReason::Scores),
        };
        let mut scores = self.scores(own).ok_or(NoAttentionReason::Scores)?;
        if hidden != f64::NEG_INFINITY || !self.is_mask(mask, own, of) {
            return Err(NoAttentionReason::Mask);
        }
        scores.removed.push(node);
        scores.mask = Some(mask);
        Ok(scores)
    }

    /// Whether a mask that is applied to scores, with this result, is one of the operator.
    fn is_mask(&self, mask: Mask, scores: ValueId, result: ValueId) -> bool {
        let types = (self.ty(mask.value()), self.ty(scores), self.ty(result));
        let (Some(ty), Some(scores), Some(result)) = types else { return false };
        let is_right = match mask {
            Mask::Added(_) => ty.dtype == scores.dtype,
            Mask::Visible(_) => ty.dtype == DType::Bool,
            // Its negation is row-major, too, so that the type of the negation is known.
            Mask::Hidden(v, _) => {
                let is_row_major = match self.graph.value_type(v) {
                    ValueType::Tensor(ty) => self.graph.is_contiguous(ty),
                    ValueType::Int(_) | ValueType::Float | ValueType::Bool | ValueType::Str => {
                        false
                    }
                };
                ty.dtype == DType::Bool && is_row_major
            }
        };
        is_right && scores.sizes == result.sizes && ty.device == scores.device
    }

    /// A product of queries and keys, times numbers.
    fn scores(&self, of: ValueId) -> Option<Scores> {
        let (mut removed, mut scale, mut value) = (Vec::new(), 1.0, of);
        let (product, query, key) = loop {
            let node = self.graph.producer(value)?;
            removed.push(node);
            if self.part(node) == Some(AttentionPart::Product) {
                break (node, self.operand(node, 0)?, self.operand(node, 1)?);
            }
            let (scaled, factor) = self.times_number(node)?;
            scale *= factor;
            value = scaled;
        };
        let mut unscaled = |mut value: ValueId, mut user: NodeId| {
            while let Some(node) = self.graph.producer(value)
                && self.is_only_user(user, value)
                && let Some((of, factor)) = self.times_number(node)
            {
                removed.push(node);
                scale *= factor;
                (value, user) = (of, node);
            }
            (value, user)
        };
        let (query, _) = unscaled(query, product);
        let (columns, user) = unscaled(key, product);
        let (mut key, mut view) = (Key::Columns(columns), None);
        if let Some(node) = self.graph.producer(columns)
            && let Some(rows) = self.transposed(node)
        {
            key = Key::Rows(rows);
            view = Some(node);
            if self.is_only_user(user, columns) {
                key = Key::Rows(unscaled(rows, node).0);
                removed.extend(view.take());
            }
        }
        Some(Scores { removed, view, product, query, key, mask: None, scale })
    }

    /// The tensor that a node multiplies by a number, and the number.
    fn times_number(&self, node: NodeId) -> Option<(ValueId, f64)> {
        match self.part(node) {
            Some(AttentionPart::Scale { of, by }) => Some((self.operand(node, of)?, by)),
            _ => None,
        }
    }

    /// The tensor whose last two dimensions a node exchanges.
    fn transposed(&self, node: NodeId) -> Option<ValueId> {
        match self.part(node) {
            Some(AttentionPart::Transpose) => self.operand(node, 0),
            _ => None,
        }
    }
}
