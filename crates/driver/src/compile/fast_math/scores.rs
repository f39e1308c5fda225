//! The scores of an attention: a product of queries and keys, times numbers, and then a mask.

use super::explain::NoAttentionReason;
use super::pattern::Matcher;
use maquette_ir::DType;
use maquette_ir::graph::{Arg, NodeId, ValueId, ValueType};

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
        let (own, mask, hidden) = match self.call(node).ok_or(NoAttentionReason::Scores)? {
            ("aten::add.Tensor", &[Arg::Value(a), Arg::Value(b)]) => {
                let (own, mask) = if self.scores(a).is_some() { (a, b) } else { (b, a) };
                (own, Mask::Added(mask), f64::NEG_INFINITY)
            }
            ("aten::where.ScalarOther", &[Arg::Value(mask), Arg::Value(own), with]) => {
                (own, Mask::Visible(mask), number(with).unwrap_or(f64::NAN))
            }
            ("aten::masked_fill.Scalar", &[Arg::Value(own), Arg::Value(mask), with])
            | ("aten::where.ScalarSelf", &[Arg::Value(mask), with, Arg::Value(own)]) => {
                (own, Mask::Hidden(mask, node), number(with).unwrap_or(f64::NAN))
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
            if let Some((query, key)) = self.product(node) {
                break (node, query, key);
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
        match self.call(node)? {
            ("aten::mul.Tensor" | "aten::mul.Scalar", &[Arg::Value(of), by])
            | ("aten::mul.Tensor", &[by, Arg::Value(of)]) => Some((of, number(by)?)),
            ("aten::div.Tensor" | "aten::div.Scalar", &[Arg::Value(of), by]) => {
                Some((of, 1.0 / number(by)?))
            }
            _ => None,
        }
    }

    /// The tensor whose last two dimensions a node exchanges.
    fn transposed(&self, node: NodeId) -> Option<ValueId> {
        let (op, args) = self.call(node)?;
        let (&Arg::Value(of), dims) = args.split_first()? else { return None };
        let rank = i64::try_from(self.ty(of)?.rank()).ok()?;
        let wrapped = |dim: &Arg| match dim {
            Arg::Int(dim) => dim.as_i64().map(|dim| if dim < 0 { dim + rank } else { dim }),
            _ => None,
        };
        let is_last = match (op, dims) {
            ("aten::mT", []) => true,
            ("aten::t", []) => rank == 2,
            ("aten::transpose.int" | "aten::swapaxes" | "aten::swapdims", [a, b]) => {
                let dims = (wrapped(a)?, wrapped(b)?);
                dims == (rank - 2, rank - 1) || dims == (rank - 1, rank - 2)
            }
            ("aten::permute", &[Arg::List(dims)]) => {
                let dims = self.graph.list(dims).iter().map(wrapped);
                let exchanged = (0..rank - 2).chain([rank - 1, rank - 2]).map(Some);
                rank >= 2 && dims.eq(exchanged)
            }
            _ => return None,
        };
        is_last.then_some(of)
    }
}

/// A number that an argument gives.
fn number(arg: Arg) -> Option<f64> {
    match arg {
        Arg::Float(x) => Some(x.get()),
        Arg::Int(x) => x.as_i64().map(|x| x as f64),
        _ => None,
    }
}
