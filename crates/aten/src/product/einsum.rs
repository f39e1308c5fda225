//! Tensor contractions: `einsum`, and its special cases `tensordot` and `inner`.
//!
//! Each dimension of an operand has a [`Label`]. As in PyTorch's `sumproduct_pair`, a pair of
//! operands is contracted as one batched matrix product: labels that both operands have and that
//! are kept are the batch, labels that both have and that are summed are the inner dimension, and
//! the others are rows and columns. Labels that only one operand has and that are not kept are
//! summed first. If no label is summed, the result is an elementwise product.
//!
//! `einsum` contracts operands from left to right, without a search for the best order. Its
//! argument `path` is ignored.
//!
//! For `"bij,jk->bik"` there is no batch label, the inner label is `j`, the row labels are `b` and
//! `i`, and the column label is `k`.

use crate::shape::structure::tensors;
use maquette_ir::sym::SymInt;
use maquette_ops::operator::dims::{done, is_one, product};
use maquette_ops::operator::lowering::Lowering;
use maquette_ops::operator::{require_equal, table};
use maquette_ops::{Dims, Error, Result, Tensor, Value};
use std::fmt;

/// The label of a dimension: a letter, a position in an ellipsis counted from its end, or a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Label {
    Ellipsis(usize),
    Letter(char),
    Number(usize),
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Label::Ellipsis(_) => f.write_str("..."),
            Label::Letter(c) => write!(f, "{c}"),
            Label::Number(i) => write!(f, "{i}"),
        }
    }
}

/// An operand with one label for each dimension. No label occurs twice.
pub(crate) struct Labelled {
    pub(crate) tensor: Tensor,
    pub(crate) labels: Vec<Label>,
}

fn malformed(why: String) -> Error {
    Error::value(format!("invalid `equation`: {why}"))
}

/// The labels that one part of an equation gives to `rank` dimensions. Without a rank, for the
/// output, an ellipsis stands for `ellipsis` dimensions.
fn parse(part: &str, rank: Option<usize>, ellipsis: usize) -> Result<Vec<Label>> {
    let compact: String = part.chars().filter(|c| !c.is_whitespace()).collect();
    let (before, after) =
        compact.split_once("...").map_or((compact.as_str(), None), |(b, a)| (b, Some(a)));
    let letters = || before.chars().chain(after.unwrap_or("").chars());
    if let Some(c) = letters().find(|c| !c.is_ascii_alphabetic()) {
        return Err(malformed(format!("{c:?} in {part:?} is not a letter")));
    }
    let named = letters().count();
    let spread = match (rank, after) {
        (None, Some(_)) => ellipsis,
        (Some(rank), Some(_)) if rank >= named => rank - named,
        (Some(rank), None) if rank == named => 0,
        (None, None) => 0,
        (Some(rank), _) => {
            return Err(malformed(format!(
                "{part:?} has {named} labels for an operand of {rank} dimensions"
            )));
        }
    };
    let hidden = (0..spread).rev().map(Label::Ellipsis);
    Ok(before
        .chars()
        .map(Label::Letter)
        .chain(hidden)
        .chain(after.unwrap_or("").chars().map(Label::Letter))
        .collect())
}

/// Makes labels unique: two dimensions with the same label become their diagonal.
fn distinct(tensor: &Tensor, labels: Vec<Label>) -> Result<Labelled> {
    let (mut tensor, mut left) = (tensor.clone(), labels);
    while let Some((i, j)) =
        (0..left.len()).find_map(|j| Some((left[..j].iter().position(|l| *l == left[j])?, j)))
    {
        let (n, m) = (tensor.sizes()[i], tensor.sizes()[j]);
        require_equal(n, m, &|| {
            let label = left[j];
            Error::value(format!("label {label} names dimensions of sizes {n} and {m}"))
        })?;
        tensor = tensor.diagonal(0, i as i64, j as i64);
        let label = left.remove(j);
        left.remove(i);
        left.push(label);
    }
    Ok(Labelled { tensor, labels: left })
}

impl Labelled {
    fn size(&self, l: Label) -> Option<SymInt> {
        self.labels.iter().position(|m| *m == l).and_then(|d| self.tensor.sizes().get(d).copied())
    }

    /// Sums over the labels that `keep` rejects.
    fn summed(self, keep: impl Fn(Label) -> bool) -> Labelled {
        let dims: Vec<i64> =
            (0..self.labels.len()).filter(|&d| !keep(self.labels[d])).map(|d| d as i64).collect();
        if dims.is_empty() {
            return self;
        }
        Labelled {
            tensor: self.tensor.sum_dim(&dims, false),
            labels: self.labels.into_iter().filter(|&l| keep(l)).collect(),
        }
    }

    /// The tensor with its dimensions permuted to `order`, which has all of its labels.
    pub(crate) fn arranged(&self, order: &[Label]) -> Tensor {
        let dims: Vec<i64> = order
            .iter()
            .filter_map(|l| self.labels.iter().position(|m| m == l))
            .map(|d| d as i64)
            .collect();
        if dims.iter().enumerate().all(|(i, &d)| d == i as i64) {
            self.tensor.clone()
        } else {
            self.tensor.permute(dims)
        }
    }

    /// Removes dimensions of size 1 that broadcast against a larger dimension of the other operand.
    fn squeezed(self, other: &Labelled) -> Result<Labelled> {
        let mut drop = Vec::new();
        for (d, &l) in self.labels.iter().enumerate() {
            let n = self.tensor.sizes()[d];
            if let Some(m) =
                other.size(l).filter(|&m| !maquette_ops::operator::dims::known_equal(n, m))
                && is_one(n)?
                && !is_one(m)?
            {
                drop.push(d);
            }
        }
        if drop.is_empty() {
            return Ok(self);
        }
        let dims: Vec<i64> = drop.iter().map(|&d| d as i64).collect();
        let labels = self
            .labels
            .iter()
            .enumerate()
            .filter(|(d, _)| !drop.contains(d))
            .map(|(_, &l)| l)
            .collect();
        Ok(Labelled { tensor: self.tensor.squeeze_dims(dims), labels })
    }
}

/// Multiplies two operands and sums over the labels that `keep` rejects, as one batched matrix
/// product.
pub(crate) fn contract(a: Labelled, b: Labelled, keep: impl Fn(Label) -> bool) -> Result<Labelled> {
    if a.tensor.dtype() != b.tensor.dtype() {
        let (x, y) = (a.tensor.dtype(), b.tensor.dtype());
        return Err(Error::value(format!(
            "operands that are multiplied must have the same dtype, found {x} and {y}"
        )));
    }
    // A poisoned tensor has no dimensions to label.
    a.tensor.ok()?;
    b.tensor.ok()?;
    let a = a.squeezed(&b)?;
    let b = b.squeezed(&a)?;
    let in_both = |l: Label| a.size(l).is_some() && b.size(l).is_some();
    for &l in a.labels.iter().filter(|&&l| in_both(l)) {
        if let (Some(n), Some(m)) = (a.size(l), b.size(l)) {
            require_equal(n, m, &|| {
                Error::value(format!("label {l} names dimensions of sizes {n} and {m}"))
            })?;
        }
    }
    let (left, right) = (a.labels.clone(), b.labels.clone());
    // A label of only one operand can be summed before the product.
    let a = a.summed(|l| keep(l) || right.contains(&l));
    let b = b.summed(|l| keep(l) || left.contains(&l));
    let both: Vec<Label> = a.labels.iter().copied().filter(|l| right.contains(l)).collect();
    let (batch, inner): (Vec<Label>, Vec<Label>) = both.into_iter().partition(|&l| keep(l));
    let rows: Vec<Label> = a.labels.iter().copied().filter(|l| !right.contains(l)).collect();
    let cols: Vec<Label> = b.labels.iter().copied().filter(|l| !left.contains(l)).collect();
    if inner.is_empty() {
        // No label is summed, so the result is an elementwise product.
        let order = [batch, rows, cols].concat();
        let spread = |x: &Labelled| -> Tensor {
            let missing = order
                .iter()
                .enumerate()
                .filter(|(_, l)| x.size(**l).is_none())
                .map(|(d, _)| d as i64);
            missing.fold(x.arranged(&order), |t, d| t.unsqueeze(d))
        };
        return Ok(Labelled { tensor: spread(&a) * spread(&b), labels: order });
    }
    let sizes =
        |x: &Labelled, labels: &[Label]| labels.iter().filter_map(|&l| x.size(l)).collect::<Dims>();
    let (n, k) = (sizes(&a, &batch), product(&sizes(&a, &inner)));
    let (r, c) = (sizes(&a, &rows), sizes(&b, &cols));
    let x =
        a.arranged(&[&batch[..], &rows, &inner].concat()).reshape([product(&n), product(&r), k]);
    let y =
        b.arranged(&[&batch[..], &inner, &cols].concat()).reshape([product(&n), k, product(&c)]);
    let whole: Dims = [n, r, c].concat().into();
    Ok(Labelled { tensor: x.bmm(&y).reshape(whole), labels: [batch, rows, cols].concat() })
}

/// Parses the equation, makes labels unique, and contracts the operands from left to right.
fn einsum(equation: &str, operands: &[&Tensor]) -> Result<Tensor> {
    let (inputs, output) =
        equation.split_once("->").map_or((equation, None), |(i, o)| (i, Some(o)));
    let parts: Vec<&str> = inputs.split(',').collect();
    if parts.len() != operands.len() {
        return Err(Error::value(format!(
            "`equation` names {} operands, but there are {}",
            parts.len(),
            operands.len()
        )));
    }
    let named: Vec<Vec<Label>> = parts
        .iter()
        .zip(operands)
        .map(|(p, t)| parse(p, Some(t.dim()), 0))
        .collect::<Result<_>>()?;
    let all = || named.iter().flatten().copied();
    let hidden = all()
        .filter_map(|l| if let Label::Ellipsis(i) = l { Some(i + 1) } else { None })
        .max()
        .unwrap_or(0);
    let output = match output {
        Some(text) => parse(text, None, hidden)?,
        // Without an arrow, the output has the ellipsis, then the letters that occur once, in
        // alphabetical order.
        None => {
            let mut letters: Vec<Label> = all()
                .filter(|l| matches!(l, Label::Letter(_)) && all().filter(|m| m == l).count() == 1)
                .collect();
            letters.sort_unstable();
            (0..hidden).rev().map(Label::Ellipsis).chain(letters).collect()
        }
    };
    for (i, l) in output.iter().enumerate() {
        if output[..i].contains(l) || !all().any(|m| m == *l) {
            return Err(malformed(format!(
                "label {l} must occur once in the output, and in an operand"
            )));
        }
    }
    let mut rest = operands
        .iter()
        .zip(named)
        .map(|(t, l)| distinct(t, l))
        .collect::<Result<Vec<_>>>()?
        .into_iter();
    let mut result = rest.next().ok_or_else(|| malformed("there are no operands".into()))?;
    let single = rest.len() == 0;
    while let Some(next) = rest.next() {
        let later: Vec<Label> =
            rest.as_slice().iter().flat_map(|x| x.labels.iter().copied()).collect();
        result = contract(result, next, |l| output.contains(&l) || later.contains(&l))?;
    }
    let arranged = result.summed(|l| output.contains(&l)).arranged(&output);
    Ok(if single { arranged.clone_tensor() } else { arranged.contiguous() })
}

/// Contracts pairs of dimensions. The result has the other dimensions of `x`, then those of `y`.
fn tensordot(x: &Tensor, y: &Tensor, dims_x: &[i64], dims_y: &[i64]) -> Result<Tensor> {
    if dims_x.len() != dims_y.len() {
        return Err(Error::value(format!(
            "`dims_self` and `dims_other` must have the same length, found {dims_x:?} and \
                {dims_y:?}"
        )));
    }
    let (px, py) = (
        crate::shape::views::wrap_dims(dims_x, x.dim())?,
        crate::shape::views::wrap_dims(dims_y, y.dim())?,
    );
    let a: Vec<Label> = (0..x.dim()).map(Label::Number).collect();
    let mut b: Vec<Label> = (0..y.dim()).map(|d| Label::Number(x.dim() + d)).collect();
    for (&i, &j) in px.iter().zip(&py) {
        if let (Some(&l), Some(m)) = (a.get(i), b.get_mut(j)) {
            *m = l;
        }
    }
    let kept = |l: Label| !(a.contains(&l) && b.contains(&l));
    let order: Vec<Label> = a.iter().chain(&b).copied().filter(|&l| kept(l)).collect();
    let (a, b) = (
        Labelled { tensor: x.clone(), labels: a.clone() },
        Labelled { tensor: y.clone(), labels: b.clone() },
    );
    let summed: Vec<Label> = a.labels.iter().copied().filter(|l| b.labels.contains(l)).collect();
    Ok(contract(a, b, |l| !summed.contains(&l))?.arranged(&order).contiguous())
}

/// The sum of products over the last dimensions; a product if an operand is 0-d.
fn inner(x: &Tensor, y: &Tensor) -> Result<Tensor> {
    if x.dim() == 0 || y.dim() == 0 {
        return Ok(x * y);
    }
    tensordot(x, y, &[-1], &[-1])
}

/// The first two arguments as tensors.
pub(crate) fn pair(args: &[Value]) -> Result<(&Tensor, &Tensor)> {
    Ok((args[0].tensor()?, args[1].tensor()?))
}

table! {
    /// Contractions.
    static TABLE = {
        "aten::einsum(str equation, Tensor[] tensors, *, int[]? path=None) -> Tensor" => {
            role: General,
            lowering: Lowering::Composite(
                |a| done(einsum(a[0].str()?, &tensors("tensors", &a[1])?)?),
            ),
        },
        "aten::tensordot(Tensor self, Tensor other, int[] dims_self, \
            int[] dims_other) -> Tensor" => {
            role: General,
            lowering: Lowering::Composite(|a| {
                let (x, y) = pair(a)?;
                done(tensordot(x, y, &a[2].ints_i64()?, &a[3].ints_i64()?)?)
            }),
        },
        "aten::inner(Tensor self, Tensor other) -> Tensor" => {
            role: General,
            lowering: Lowering::Composite(|a| pair(a).and_then(|(x, y)| done(inner(x, y)?))),
        },
    }
}
