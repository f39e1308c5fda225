//! Products of tensors by the labels of their dimensions: `einsum`, and what is a case of it.

use super::dims::{decide, done, is_one, product, require_rank};
use super::lowering::Lowering;
use super::structure::{list, tensors};
use super::table;
use crate::dispatch::value::Value;
use crate::error::{Error, Result};
use crate::tensor::meta::Dims;
use crate::tensor::shape::{require_equal, wrap_dim};
use crate::tensor::{Tensor, dims_text};
use maquette_ir::sym::SymInt;
use maquette_ir::{DType, MemoryFormat};
use smallvec::smallvec;
use std::fmt;

/// The label of a dimension: a letter, a dimension that an ellipsis stands for, counted from its
/// end, or a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Label {
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

/// An operand whose dimensions are labelled, each label once.
pub(super) struct Labelled {
    pub(super) tensor: Tensor,
    pub(super) labels: Vec<Label>,
}

fn malformed(why: String) -> Error {
    Error::value(format!("invalid `equation`: {why}"))
}

/// The labels that one part of an equation gives to `rank` dimensions; `ellipsis` of them where
/// there is no rank to tell.
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
                "{part:?} labels {named} dimensions of an operand that has {rank}"
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

/// One label a dimension: repeated ones become a diagonal.
fn distinct(tensor: &Tensor, labels: Vec<Label>) -> Result<Labelled> {
    let (mut tensor, mut left) = (tensor.clone(), labels);
    while let Some((i, j)) =
        (0..left.len()).find_map(|j| Some((left[..j].iter().position(|l| *l == left[j])?, j)))
    {
        let (n, m) = (tensor.sizes()[i], tensor.sizes()[j]);
        require_equal(n, m, &|| {
            Error::value(format!("a repeated label names dimensions of sizes {n} and {m}"))
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

    /// Without the labels that `keep` refuses: summed.
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

    /// With its dimensions in this order, which names each of its labels.
    pub(super) fn arranged(&self, order: &[Label]) -> Tensor {
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

    /// Without dimensions of size 1 that the other operand has larger: they broadcast.
    fn squeezed(self, other: &Labelled) -> Result<Labelled> {
        let mut drop = Vec::new();
        for (d, &l) in self.labels.iter().enumerate() {
            let n = self.tensor.sizes()[d];
            if let Some(m) = other.size(l).filter(|&m| !super::dims::known_equal(n, m))
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

/// The product of two operands, summed over the labels that `keep` refuses: one batched product of
/// matrices.
pub(super) fn contract(a: Labelled, b: Labelled, keep: impl Fn(Label) -> bool) -> Result<Labelled> {
    if a.tensor.dtype() != b.tensor.dtype() {
        let (x, y) = (a.tensor.dtype(), b.tensor.dtype());
        return Err(Error::value(format!(
            "operands that are multiplied must have the same dtype, found {x} and {y}"
        )));
    }
    // a tensor that failed has no dimensions to label
    a.tensor.ok()?;
    b.tensor.ok()?;
    let a = a.squeezed(&b)?;
    let b = b.squeezed(&a)?;
    let in_both = |l: Label| a.size(l).is_some() && b.size(l).is_some();
    for &l in a.labels.iter().filter(|&&l| in_both(l)) {
        if let (Some(n), Some(m)) = (a.size(l), b.size(l)) {
            require_equal(n, m, &|| {
                Error::value(format!("the label {l} names dimensions of sizes {n} and {m}"))
            })?;
        }
    }
    let (left, right) = (a.labels.clone(), b.labels.clone());
    // what only one of them has can be summed before
    let a = a.summed(|l| keep(l) || right.contains(&l));
    let b = b.summed(|l| keep(l) || left.contains(&l));
    let both: Vec<Label> = a.labels.iter().copied().filter(|l| right.contains(l)).collect();
    let (batch, inner): (Vec<Label>, Vec<Label>) = both.into_iter().partition(|&l| keep(l));
    let rows: Vec<Label> = a.labels.iter().copied().filter(|l| !right.contains(l)).collect();
    let cols: Vec<Label> = b.labels.iter().copied().filter(|l| !left.contains(l)).collect();
    if inner.is_empty() {
        // nothing is summed: the product of elements
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
        // without an arrow: what the ellipsis stands for, then the letters that occur once, in
        // order
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
                "the output's label {l} must occur once in the output, and in an operand"
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

/// Sums over pairs of dimensions, those of `self` before those of `other`.
fn tensordot(x: &Tensor, y: &Tensor, dims_x: &[i64], dims_y: &[i64]) -> Result<Tensor> {
    if dims_x.len() != dims_y.len() {
        return Err(Error::value(format!(
            "`dims_self` and `dims_other` must have the same length, found {dims_x:?} and \
                {dims_y:?}"
        )));
    }
    let (px, py) =
        (super::views::wrap_dims(dims_x, x.dim())?, super::views::wrap_dims(dims_y, y.dim())?);
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

fn inner(x: &Tensor, y: &Tensor) -> Result<Tensor> {
    if x.dim() == 0 || y.dim() == 0 {
        return Ok(x * y);
    }
    tensordot(x, y, &[-1], &[-1])
}

/// Every element of `self` times the whole of `other`.
fn kron(x: &Tensor, y: &Tensor) -> Tensor {
    let rank = x.dim().max(y.dim());
    let one = SymInt::from(1);
    let padded = |t: &Tensor| -> Dims {
        std::iter::repeat_n(one, rank - t.dim()).chain(t.sizes().iter().copied()).collect()
    };
    let (a, b) = (padded(x), padded(y));
    let apart = |sizes: &[SymInt], first: bool| -> Dims {
        sizes.iter().flat_map(|&n| if first { [n, one] } else { [one, n] }).collect()
    };
    let whole: Dims = a.iter().zip(&b).map(|(&n, &m)| n * m).collect();
    (x.reshape(apart(&a, true)) * y.reshape(apart(&b, false))).reshape(whole)
}

/// The cross product along a dimension of size 3.
fn cross(x: &Tensor, y: &Tensor, dim: i64) -> Result<Tensor> {
    if x.dim() != y.dim() || x.dim() == 0 || x.dtype() != y.dtype() {
        let [a, b] = [x, y].map(|t| format!("{}{}", t.dtype(), dims_text(t.sizes())));
        return Err(Error::value(format!(
            "`self` and `other` must have the same dtype and the same number of dimensions, at \
                least 1, found {a} and {b}"
        )));
    }
    let d = wrap_dim(dim, x.dim())?;
    for (name, t) in [("self", x), ("other", y)] {
        require_equal(t.sizes()[d], 3.into(), &|| {
            Error::value(format!(
                "dimension {d} of `{name}` must have size 3, found sizes {}",
                dims_text(t.sizes())
            ))
        })?;
    }
    let turned = |t: &Tensor, by: i64| t.roll([by], [d as i64]);
    Ok(turned(x, -1) * turned(y, -2) - turned(x, -2) * turned(y, -1))
}

/// Along the first dimension of size 3, where none is named.
#[track_caller]
fn legacy_cross(x: &Tensor, y: &Tensor, dim: Option<i64>) -> Result<Tensor> {
    if let Some(dim) = dim {
        return cross(x, y, dim);
    }
    for (d, &n) in (0..).zip(x.sizes()) {
        if decide(n.eq(3))? {
            return cross(x, y, d);
        }
    }
    Err(Error::value(format!(
        "`self` has no dimension of size 3, found sizes {}",
        dims_text(x.sizes())
    )))
}

/// Vectors expanded to a grid. `swapped`: the first two change places, as columns and rows do in
/// images.
fn meshgrid(vectors: &[&Tensor], swapped: bool) -> Result<Vec<Tensor>> {
    for (i, t) in vectors.iter().enumerate() {
        require_rank(&format!("tensors[{i}]"), t, 0..=1)?;
        if t.dtype() != vectors[0].dtype() {
            return Err(Error::value(format!(
                "`tensors[{i}]` must have the dtype {} of the first, found {}",
                vectors[0].dtype(),
                t.dtype()
            )));
        }
    }
    let rank = vectors.len();
    let axis = |i: usize| if swapped && rank > 1 && i < 2 { 1 - i } else { i };
    let mut sizes: Dims = smallvec![SymInt::from(1); rank];
    for (i, t) in vectors.iter().enumerate() {
        sizes[axis(i)] = t.numel();
    }
    let grid = |(i, t): (usize, &&Tensor)| {
        let mut one: Dims = smallvec![SymInt::from(1); rank];
        one[axis(i)] = t.numel();
        t.clone_as(MemoryFormat::Contiguous).reshape(one).expand(sizes.clone())
    };
    Ok(vectors.iter().enumerate().map(grid).collect())
}

fn cartesian_prod(vectors: &[&Tensor]) -> Result<Tensor> {
    for (i, t) in vectors.iter().enumerate() {
        require_rank(&format!("tensors[{i}]"), t, 1..=1)?;
    }
    if let [only] = vectors {
        return Ok(only.clone_tensor());
    }
    let columns: Vec<Tensor> = meshgrid(vectors, false)?.iter().map(|g| g.flatten(0, -1)).collect();
    Ok(Tensor::stack(&columns, 1))
}

/// How many ways there are to choose `r` of `n`, none of them negative, if an `i64` can tell.
fn choose(n: i64, r: i64) -> Option<i64> {
    let mut ways = 1i128;
    for i in 1..=r.min(n - r) {
        ways = ways * i128::from(n - r.min(n - r) + i) / i128::from(i);
        i64::try_from(ways).ok()?;
    }
    i64::try_from(ways).ok()
}

fn combinations(x: &Tensor, r: i64, repeat: bool) -> Result<Tensor> {
    require_rank("self", x, 1..=1)?;
    if r < 0 {
        return Err(Error::value(format!("`r` must not be negative, found {r}")));
    }
    if r == 0 {
        return Ok(x.new_empty([0i64], x.dtype()));
    }
    let n = x.sizes()[0];
    let n = n.as_i64().map_or_else(|| n.guard_int(), Ok)?;
    if n == 0 || (!repeat && r > n) {
        return Ok(x.new_empty([0, r], x.dtype()));
    }
    let failed = || {
        Error::value(format!(
            "the combinations of `r` = {r} of {n} elements exceed the available memory"
        ))
    };
    let count = if repeat { n.checked_add(r - 1).and_then(|n| choose(n, r)) } else { choose(n, r) }
        .ok_or_else(failed)?;
    let total =
        count.checked_mul(r).and_then(|total| usize::try_from(total).ok()).ok_or_else(failed)?;
    let mut rows = Vec::new();
    rows.try_reserve_exact(total).map_err(|_| failed())?;
    // each row of positions is made from the one before
    let mut row: Vec<i64> = (0..r).map(|i| if repeat { 0 } else { i }).collect();
    let limit = |i: usize| if repeat { n - 1 } else { n - r + i as i64 };
    loop {
        rows.extend_from_slice(&row);
        let Some(i) = (0..row.len()).rev().find(|&i| row[i] < limit(i)) else { break };
        row[i] += 1;
        for k in i + 1..row.len() {
            row[k] = if repeat { row[i] } else { row[k - 1] + 1 };
        }
    }
    Ok(x.index_select(0, &Tensor::from(rows)).reshape([count, r]))
}

/// Powers of each element as a new last dimension, from 0 up.
fn powers(x: &Tensor, count: Option<SymInt>) -> Result<Tensor> {
    require_rank("x", x, 1..=63)?;
    let dtype = if x.dtype().is_float() { x.dtype() } else { DType::I64 };
    let n = count.unwrap_or(x.sizes()[x.dim() - 1]);
    super::dims::require(n.ge(0), || format!("`N` must not be negative, found {n}"))?;
    let sizes: Dims = x.sizes().iter().copied().chain([n]).collect();
    let base = x.to_dtype(dtype).unsqueeze(-1).expand(sizes);
    // a running product whose first factor is 1
    let first = Tensor::from([0i64]);
    Ok(if n.as_i64() == Some(0) {
        base.clone_as(MemoryFormat::Contiguous)
    } else {
        base.index_fill(-1, &first, 1).cumprod(-1).to_dtype(dtype)
    })
}

fn vander(x: &Tensor, n: Option<SymInt>, increasing: bool) -> Result<Tensor> {
    require_rank("x", x, 1..=1)?;
    let p = powers(x, n)?;
    Ok(if increasing { p } else { p.flip([-1i64]) })
}

fn pair(a: &[Value]) -> Result<(&Tensor, &Tensor)> {
    Ok((a[0].tensor()?, a[1].tensor()?))
}

table! {
    /// See the module.
    pub(super) static TABLE = {
        General "aten::einsum(str equation, Tensor[] tensors, *, int[]? path=None) -> Tensor" =>
            Lowering::Composite(|a| done(einsum(a[0].str()?, &tensors("tensors", &a[1])?)?)),
        General "aten::tensordot(Tensor self, Tensor other, int[] dims_self, \
            int[] dims_other) -> Tensor" =>
            Lowering::Composite(|a| {
                let (x, y) = pair(a)?;
                done(tensordot(x, y, &a[2].ints_i64()?, &a[3].ints_i64()?)?)
            }),
        General "aten::inner(Tensor self, Tensor other) -> Tensor" =>
            Lowering::Composite(|a| pair(a).and_then(|(x, y)| done(inner(x, y)?))),
        General "aten::kron(Tensor self, Tensor other) -> Tensor" =>
            Lowering::Composite(|a| pair(a).and_then(|(x, y)| done(kron(x, y)))),
        General "aten::ger(Tensor self, Tensor vec2) -> Tensor" =>
            Lowering::Composite(|a| pair(a).and_then(|(x, y)| done(x.outer(y)))),
        General "aten::cross(Tensor self, Tensor other, int? dim=None) -> Tensor" =>
            Lowering::Composite(|a| {
                pair(a).and_then(|(x, y)| done(legacy_cross(x, y, a[2].opt(Value::int_i64)?)?))
            }),
        General "aten::linalg_cross(Tensor self, Tensor other, *, int dim=-1) -> Tensor" =>
            Lowering::Composite(|a| pair(a).and_then(|(x, y)| done(cross(x, y, a[2].int_i64()?)?))),
        General "aten::meshgrid(Tensor[] tensors) -> Tensor[]" =>
            Lowering::Composite(|a| list(meshgrid(&tensors("tensors", &a[0])?, false)?)),
        General "aten::meshgrid.indexing(Tensor[] tensors, *, str indexing) -> Tensor[]" =>
            Lowering::Composite(|a| match a[1].str()? {
                order @ ("ij" | "xy") => {
                    list(meshgrid(&tensors("tensors", &a[0])?, order == "xy")?)
                }
                other => Err(Error::value(format!("`indexing` must be ij or xy, found {other:?}"))),
            }),
        General "aten::cartesian_prod(Tensor[] tensors) -> Tensor" =>
            Lowering::Composite(|a| done(cartesian_prod(&tensors("tensors", &a[0])?)?)),
        General "aten::combinations(Tensor self, int r=2, bool with_replacement=False) -> Tensor" =>
            Lowering::Composite(|a| {
                done(combinations(a[0].tensor()?, a[1].int_i64()?, a[2].bool()?)?)
            }),
        General "aten::vander(Tensor x, int? N=None, bool increasing=False) -> Tensor" =>
            Lowering::Composite(|a| {
                done(vander(a[0].tensor()?, a[1].opt(Value::int)?, a[2].bool()?)?)
            }),
        General "aten::linalg_vander(Tensor x, *, SymInt? N=None) -> Tensor" =>
            Lowering::Composite(|a| done(powers(a[0].tensor()?, a[1].opt(Value::int)?)?)),
    }
}
