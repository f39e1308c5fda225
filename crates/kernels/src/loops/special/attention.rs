//! Scaled dot-product attention by the kernel of [`attention`](crate::attention()).
//!
//! The kernel takes batches that are equal. Operands are expanded with stride 0 to the common
//! batch. In grouped-query attention the heads are split into two dimensions, groups and heads of a
//! group, so that the heads of key and value repeat with stride 0.

use super::Special;
use crate::attention::{Attention as Options, attention_on};
use crate::error::Result;
use crate::isa::Isa;
use crate::view::{Dims, View, ViewMut};
use maquette_ir::Scalar;
use maquette_ir::loops::recognise::Attention;

/// How heads are split: the dimension from the end, and the heads of a group.
#[derive(Clone, Copy)]
struct Split {
    from_end: usize,
    groups: i64,
    of_group: i64,
}

impl Split {
    /// The view with the dimension of the heads as two.
    fn of<'a>(self, v: &View<'a>) -> View<'a> {
        let (mut sizes, mut strides) = (Dims::from_slice(v.sizes()), Dims::from_slice(v.strides()));
        let dim = sizes.len() - self.from_end;
        sizes[dim] = self.groups;
        sizes.insert(dim + 1, self.of_group);
        strides.insert(dim, strides[dim] * self.of_group);
        // SAFETY: the elements of the view: it has `groups * of_group` heads.
        unsafe { View::from_raw(v.as_ptr(), v.dtype(), &sizes, &strides) }
    }

    /// As [`Split::of`].
    fn of_result<'a>(self, v: &'a mut ViewMut<'_>) -> ViewMut<'a> {
        let split = self.of(v.as_view());
        let start = v.as_view().as_ptr().cast_mut();
        // SAFETY: the elements of the view, which is borrowed.
        unsafe { ViewMut::from_raw(start, split.dtype(), split.sizes(), split.strides()) }
    }
}

/// The operands of the kernel, which have the same leading sizes.
struct Operands<'a> {
    query: View<'a>,
    key: View<'a>,
    value: View<'a>,
    mask: Option<View<'a>>,
    /// The heads of the result are split as those of the operands.
    split: Option<Split>,
}

impl<'a> Operands<'a> {
    /// Expands the operands to the leading sizes of the output. `None` if they do not expand, or if
    /// keys and values have different numbers of heads, of which no one split has strides for both.
    fn new(operands: &[View<'a>], out: &[i64], grouped: bool) -> Option<Operands<'a>> {
        let [q, k, v, mask @ ..] = operands else { return None };
        let last = |x: &View<'_>| Dims::from_slice(&x.sizes()[x.rank() - 2..]);
        let ([n, width], [l, _]) = (last(q)[..].try_into().ok()?, last(k)[..].try_into().ok()?);
        let batch = &out[..out.len() - 2];
        if last(k)[1] != width || last(v)[0] != l {
            return None;
        }
        let wide = |x: &View<'a>, last: &[i64]| {
            x.expand(&batch.iter().chain(last).copied().collect::<Dims>()).ok()
        };
        let (query, mask) = (wide(q, &last(q))?, mask.first());
        let mask = mask.map(|mask| wide(mask, &[n, l]).ok_or(())).transpose().ok()?;
        if !grouped {
            let (key, value) = (wide(k, &last(k))?, wide(v, &last(v))?);
            return Some(Operands { query, key, value, mask, split: None });
        }
        let (heads, lead) = batch.split_last()?;
        let [groups, of_values] = [k, v].map(|x| x.sizes().iter().rev().nth(2).copied());
        let groups = groups.filter(|n| *n > 0 && heads % n == 0 && of_values == Some(*n))?;
        let split = Split { from_end: 3, groups, of_group: heads / groups };
        let repeated = |x: &View<'a>| {
            let sizes = |heads: &[i64]| -> Dims {
                lead.iter().chain(heads).chain(&last(x)).copied().collect()
            };
            let own = x.expand(&sizes(&[groups])).ok()?.unsqueeze(out.len() - 2);
            own.expand(&sizes(&[groups, split.of_group])).ok()
        };
        Some(Operands {
            query: split.of(&query),
            key: repeated(k)?,
            value: repeated(v)?,
            mask: mask.map(|mask| split.of(&mask)),
            split: Some(split),
        })
    }
}

impl Special for Attention {
    fn run(
        &self,
        isa: Isa,
        operands: &[View<'_>],
        numbers: &[Scalar],
        results: &mut [ViewMut<'_>],
    ) -> Result<bool> {
        let [out, logarithms @ ..] = results else { return Ok(false) };
        let Some(of) = Operands::new(operands, out.sizes(), self.grouped) else {
            return Ok(false);
        };
        let of_rows = |l: &ViewMut<'_>| Some(l.sizes()) == out.sizes().split_last().map(|(_, s)| s);
        if !logarithms.iter().all(of_rows) {
            return Ok(false);
        }
        let width = of.query.sizes()[of.query.rank() - 1];
        let scale = match (self.is_scale_given, numbers.first()) {
            (true, Some(number)) => number.to_f64(),
            _ => 1.0 / (width as f64).sqrt(),
        };
        // Without width every score is 0 times the factor, which the kernel leaves out.
        if width == 0 {
            return Ok(false);
        }
        let logsumexp = logarithms.first_mut().map(|l| match of.split {
            Some(split) => Split { from_end: 2, ..split }.of_result(l),
            None => l.reborrow(),
        });
        let Attention { causal, round, plain_softmax, .. } = *self;
        let mask = of.mask;
        let options = Options { scale, causal, round, plain_softmax, mask, logsumexp };
        let mut out = match of.split {
            Some(split) => split.of_result(out),
            None => out.reborrow(),
        };
        attention_on(isa, &of.query, &of.key, &of.value, options, &mut out)?;
        Ok(true)
    }
}
