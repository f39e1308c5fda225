//! Inputs made from those that are given: in other layouts, of other sizes, and repeated.

use crate::values::on_device_of;
use maquette_ir::DType;
use maquette_ops::{Error, Result, Tensor};
use std::collections::BTreeSet;

/// Inputs of a function, none of which requires a gradient.
pub(super) struct Variant {
    pub(super) inputs: Vec<Tensor>,
    /// For each input, the first input that is the same tensor.
    pub(super) same: Vec<usize>,
    /// The inputs in words.
    pub(super) what: String,
}

impl Variant {
    fn new(inputs: Vec<Tensor>, what: String) -> Variant {
        let first = |t: &Tensor| inputs.iter().position(|u| u.is_same(t)).unwrap_or_default();
        let same = inputs.iter().map(first).collect();
        Variant { inputs, same, what }
    }

    /// The inputs of the caller. A tensor that is given twice stays one.
    pub(super) fn given(inputs: &[Tensor]) -> Result<Variant> {
        let mut own: Vec<Tensor> = Vec::new();
        for (i, t) in inputs.iter().enumerate() {
            let earlier = inputs[..i].iter().position(|u| u.is_same(t));
            own.push(match earlier {
                Some(at) => own[at].clone(),
                None => t.detach().ok()?.clone(),
            });
        }
        Ok(Variant::new(own, "the inputs".into()))
    }

    /// With more inputs.
    pub(super) fn with(&self, more: &[Tensor]) -> Result<Variant> {
        let inputs = self.inputs.iter().chain(more).cloned().collect();
        Ok(Variant::new(inputs, format!("{}, with random weights", self.what)))
    }

    /// The inputs as leaves that require gradients, each with a history of its own. The same tensor
    /// is the same leaf.
    pub(super) fn leaves(&self) -> Result<Vec<Tensor>> {
        let mut leaves: Vec<Tensor> = Vec::new();
        for (t, &same) in self.inputs.iter().zip(&self.same) {
            let leaf = match leaves.get(same) {
                Some(leaf) => leaf.clone(),
                None if t.dtype().is_float() => t.detach().requires_grad_(),
                None => t.clone(),
            };
            leaf.ok()?;
            leaves.push(leaf);
        }
        Ok(leaves)
    }

    /// The inputs that are floats, each tensor once.
    pub(super) fn floats(&self) -> impl Iterator<Item = usize> + '_ {
        let is_own = |i: &usize| self.same[*i] == *i && self.inputs[*i].dtype().is_float();
        (0..self.inputs.len()).filter(is_own)
    }

    /// The inputs with another tensor in place of one, wherever it occurs.
    pub(super) fn replaced(&self, i: usize, by: &Tensor) -> Vec<Tensor> {
        let pick = |(t, &same): (&Tensor, &usize)| if same == i { by } else { t }.clone();
        self.inputs.iter().zip(&self.same).map(pick).collect()
    }
}

/// The variants of the inputs, the cheapest first.
pub(super) fn variants(inputs: &[Tensor]) -> Result<Vec<Variant>> {
    let given = Variant::given(inputs)?;
    let mut out = Vec::new();
    layouts(&given, &mut out)?;
    sizes(&given, &mut out)?;
    repeated(&given, &mut out);
    Ok(out)
}

/// The same elements, except in expanded tensors, at other places of memory.
fn layouts(given: &Variant, out: &mut Vec<Variant>) -> Result<()> {
    type Relayout = fn(&Tensor, &[i64]) -> Option<Tensor>;
    let kinds: [(&str, Relayout); 3] = [
        ("transposed", |t, sizes| {
            let last = sizes.len().checked_sub(1).filter(|n| *n > 0)? as i64;
            Some(t.transpose(0, last).clone_tensor().contiguous().transpose(0, last))
        }),
        ("sliced", |t, sizes| {
            let (last, n) = (sizes.len().checked_sub(1)? as i64, *sizes.last()?);
            // every other element of a larger tensor, and not from its beginning
            let wide = Tensor::stack([t, &(t * 3.0 + 1.0)], -1);
            let mut flat = sizes.to_vec();
            *flat.last_mut()? = 2 * n;
            Some(wide.reshape(&flat[..]).slice_step(last, 0..2 * n, 2))
        }),
        ("expanded", |t, sizes| {
            sizes.first().filter(|n| **n > 1)?;
            Some(t.slice(0, 0..1).clone_tensor().expand(sizes))
        }),
    ];
    for (what, relayout) in kinds {
        let mut inputs = given.inputs.clone();
        let mut changed = false;
        for i in given.floats().collect::<Vec<_>>() {
            let t = &given.inputs[i];
            if let Some(other) = relayout(t, &t.sizes_i64()?) {
                inputs = Variant { inputs, ..given.clone_shape() }.replaced(i, other.ok()?);
                changed = true;
            }
        }
        if changed {
            out.push(Variant::new(inputs, format!("the inputs, {what} in memory")));
        }
    }
    Ok(())
}

impl Variant {
    fn clone_shape(&self) -> Variant {
        Variant { inputs: Vec::new(), same: self.same.clone(), what: String::new() }
    }
}

/// Other sizes. Equal sizes of all inputs change together.
fn sizes(given: &Variant, out: &mut Vec<Variant>) -> Result<()> {
    let all = given.inputs.iter().map(Tensor::sizes_i64).collect::<Result<Vec<Vec<i64>>>>()?;
    let mut known: Vec<i64> = all.iter().flatten().copied().collect();
    known.sort_unstable();
    known.dedup();
    for n in known {
        for to in [0, 1, n + 1].into_iter().filter(|to| *to != n) {
            let mut inputs: Vec<Tensor> = Vec::new();
            for (i, t) in given.inputs.iter().enumerate() {
                let other: Vec<i64> =
                    all[i].iter().map(|m| if *m == n { to } else { *m }).collect();
                let same = given.same[i];
                inputs.push(if same < i { inputs[same].clone() } else { resized(t, &other)? });
            }
            out.push(Variant::new(inputs, format!("the inputs, with {to} in place of size {n}")));
        }
    }
    Ok(())
}

/// A tensor of other sizes with elements between those of `t`, so that a domain is not left.
fn resized(t: &Tensor, sizes: &[i64]) -> Result<Tensor> {
    let n: i64 = sizes.iter().product();
    let flat = t.contiguous().reshape([-1]);
    let len = flat.size(0).as_i64().unwrap_or(0);
    if t.sizes_i64()? == sizes {
        return Ok(t.clone());
    }
    if !t.dtype().is_float() {
        return resized_integers(t, sizes);
    }
    // the fraction of the golden ratio keeps elements apart
    let parts = (0..n).map(|k| ((k + 1) as f64 * 0.618_033_988_749_894_9).fract());
    let parts = on_device_of(t, parts.collect::<Vec<f64>>(), &[n]).to_dtype(t.dtype());
    let values = if len == 0 {
        // in most domains, and no pole of any function
        parts * 0.5 + 0.25
    } else {
        let at = |shift: i64| {
            let places: Vec<i64> = (0..n).map(|k| (k + shift) % len).collect();
            flat.index_select(0, &on_device_of(t, places, &[n]))
        };
        at(0) + (at(1) - at(0)) * parts
    };
    values.reshape(sizes).ok().cloned()
}

/// Integers, or booleans, of other sizes: one dimension after the other, the slices repeat.
/// Integers that are distinct along a dimension stay so: they may be positions, and an operator
/// that writes a position twice has no derivative.
fn resized_integers(t: &Tensor, sizes: &[i64]) -> Result<Tensor> {
    let mut all = t.clone();
    for (d, &to) in sizes.iter().enumerate() {
        let from = all.size(d as i64).as_i64().unwrap_or(0);
        if from == 0 && to > 0 {
            return t.new_empty(sizes, t.dtype()).zero_().ok().cloned();
        }
        let places: Vec<i64> = (0..to).map(|k| k % from.max(1)).collect();
        let grown = all.index_select(d as i64, &on_device_of(t, places, &[to]));
        all = match t.dtype() {
            DType::Bool => grown,
            _ if to > from => distinct_where_were(&grown, d, from as usize)?,
            _ => grown,
        };
    }
    all.ok().cloned()
}

/// If the first `from` integers along a dimension are distinct everywhere, makes the others
/// distinct as well: the least that are not there.
fn distinct_where_were(t: &Tensor, d: usize, from: usize) -> Result<Tensor> {
    let rows = t.to_dtype(DType::I64).transpose(d as i64, -1).contiguous();
    let (sizes, mut flat) = (rows.sizes_i64()?, rows.to_vec::<i64>()?);
    let width = sizes.last().map_or(1, |n| *n as usize).max(1);
    for row in flat.chunks_mut(width) {
        let given: BTreeSet<i64> = row[..from].iter().copied().collect();
        if given.len() < from {
            return Ok(t.clone());
        }
        let others = (0..).filter(|k| !given.contains(k));
        row[from..].iter_mut().zip(others).for_each(|(element, other)| *element = other);
    }
    let all = on_device_of(t, flat, &sizes).transpose(d as i64, -1).contiguous();
    all.to_dtype(t.dtype()).ok().cloned()
}

/// One tensor in place of two of the same sizes.
fn repeated(given: &Variant, out: &mut Vec<Variant>) {
    let floats: Vec<usize> = given.floats().collect();
    for (k, &i) in floats.iter().enumerate() {
        for &j in &floats[k + 1..] {
            let (a, b) = (&given.inputs[i], &given.inputs[j]);
            if a.sizes_i64().ok() == b.sizes_i64().ok() && a.dtype() == b.dtype() {
                let what = format!("the inputs, with input {i} in place of input {j}");
                out.push(Variant::new(given.replaced(j, a), what));
            }
        }
    }
}

/// The number of elements.
pub(super) fn len(t: &Tensor) -> Result<i64> {
    t.numel().as_i64().ok_or_else(|| Error::value("gradcheck needs static sizes"))
}
