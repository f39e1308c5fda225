//! Variants of a sample: other sizes, other contents, other layouts, other integers.

use super::sample::{Operand, Relayout, concrete, operands, replace};
use maquette_ir::schema::{Schema, Type};
use maquette_ir::typing::{dense_strides_i64, fill_dense_strides};
use maquette_ops::{Args, Concrete, Op, Result, Value};
use std::convert::Infallible;

/// The property in which a sample differs from the given one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum VariantKind {
    Given,
    /// Other sizes.
    Sizes,
    /// Other contents of the same sizes.
    Contents,
    /// The same elements in another layout.
    Layout,
    /// Another integer argument.
    Integers,
}

/// Arguments on which the operator is tried.
pub(super) struct SampleVariant {
    pub(super) kind: VariantKind,
    pub(super) args: Args,
    /// The difference in words: `with 4 instead of 3 as size 0 of x`.
    pub(super) what: String,
    /// The dimensions that differ: operand, dimension.
    pub(super) dims: Vec<(usize, usize)>,
}

/// About the maximum number of elements in all variants together.
const BUDGET: i64 = 1 << 20;

/// The maximum number of elements in a variant, unless the sample has more.
const LARGEST: i64 = 1 << 18;

/// Dense strides for these sizes that keep the sample's order of dimensions and its expanded
/// dimensions.
fn strides_like(sample: &Concrete, sizes: &[i64]) -> Vec<i64> {
    let mut order: Vec<usize> = (0..sizes.len()).rev().collect();
    if !sample.is_contiguous() {
        order.sort_by_key(|&d| (sample.strides[d], sample.sizes[d] > 1));
    }
    order.retain(|&d| sample.strides[d] != 0 || sample.sizes[d] <= 1);
    let mut strides = vec![0; sizes.len()];
    let times = |stride: i64, size: i64| Ok::<_, Infallible>(stride.saturating_mul(size.max(1)));
    let Ok(()) = fill_dense_strides(sizes, &mut strides, order, 1, times);
    strides
}

/// Creates the variants of a sample.
pub(super) struct VariantGenerator<'a> {
    schema: &'a Schema,
    args: &'a Args,
    operands: Vec<Operand>,
    layouts: Vec<Concrete>,
}

impl<'a> VariantGenerator<'a> {
    pub(super) fn new(schema: &'a Schema, args: &'a Args) -> Result<VariantGenerator<'a>> {
        let operands = operands(schema, args);
        let layouts = operands.iter().map(|o| concrete(&o.tensor)).collect::<Result<_>>()?;
        Ok(VariantGenerator { schema, args, operands, layouts })
    }

    /// The dimensions of tensors with a storage of their own: operand, dimension, size.
    pub(super) fn dims(&self) -> Vec<(usize, usize, i64)> {
        let own =
            self.operands.iter().zip(&self.layouts).enumerate().filter(|(_, (o, _))| !o.shares);
        own.flat_map(|(k, (_, c))| c.sizes.iter().enumerate().map(move |(d, &n)| (k, d, n)))
            .collect()
    }

    pub(super) fn dim_name(&self, (operand, dim): (usize, usize)) -> String {
        let name = self.operands.get(operand).map_or("?", |o| o.name.as_str());
        format!("size {dim} of `{name}`")
    }

    /// How many of `most` variants to try: fewer if the sample is large.
    pub(super) fn max_variants(&self, most: usize) -> usize {
        let elements: i64 =
            self.layouts.iter().filter_map(Concrete::numel).fold(0, i64::saturating_add);
        most.min(usize::try_from(BUDGET / elements.max(1)).unwrap_or(most))
    }

    /// The first `most` variants, in the order in which they are tried.
    pub(super) fn variants(&self, most: usize) -> Result<Vec<SampleVariant>> {
        let mut out = Vec::new();
        if most == 0 {
            return Ok(out);
        }
        let dims = self.dims();
        let mut groups: Vec<(i64, Vec<(usize, usize)>)> = Vec::new();
        for &(k, d, n) in &dims {
            match groups.iter_mut().find(|(m, _)| *m == n) {
                Some((_, members)) => members.push((k, d)),
                None => groups.push((n, vec![(k, d)])),
            }
        }
        for (n, members) in &groups {
            self.resized(&mut out, members, *n, n + 1)?;
            if *n > 1 {
                self.resized(&mut out, members, *n, n - 1)?;
            }
        }
        self.contents(&mut out)?;
        self.transposed(&mut out)?;
        self.integers(&mut out);
        for (n, members) in groups.iter().filter(|(_, members)| members.len() > 1) {
            for dim in members {
                self.resized(&mut out, std::slice::from_ref(dim), *n, n + 1)?;
            }
        }
        if groups.iter().filter(|(n, _)| *n > 1).count() > 1 {
            let doubled = |k: usize, d: usize, n: i64| {
                if n > 1 && dims.contains(&(k, d, n)) { 2 * n } else { n }
            };
            let all = dims.iter().filter(|(.., n)| *n > 1).map(|&(k, d, _)| (k, d)).collect();
            self.sized(
                &mut out,
                "the sample with every size above 1 doubled".into(),
                all,
                &doubled,
            )?;
        }
        out.truncate(most);
        Ok(out)
    }

    fn resized(
        &self,
        out: &mut Vec<SampleVariant>,
        members: &[(usize, usize)],
        from: i64,
        to: i64,
    ) -> Result<()> {
        let names: Vec<String> = members.iter().map(|&m| self.dim_name(m)).collect();
        let what = format!("the sample with {to} instead of {from} as {}", names.join(" and "));
        self.sized(out, what, members.to_vec(), &|k, d, n| {
            if members.contains(&(k, d)) { to } else { n }
        })
    }

    fn sized(
        &self,
        out: &mut Vec<SampleVariant>,
        what: String,
        dims: Vec<(usize, usize)>,
        size: &dyn Fn(usize, usize, i64) -> i64,
    ) -> Result<()> {
        let layout = |k: usize, c: &Concrete| {
            let sizes: Vec<i64> = c.sizes.iter().enumerate().map(|(d, &n)| size(k, d, n)).collect();
            if sizes == c.sizes[..] {
                return None;
            }
            Some(Concrete {
                strides: strides_like(c, &sizes).into(),
                sizes: sizes.into(),
                ..c.clone()
            })
        };
        let numel = |c: Option<Concrete>| c.and_then(|c| c.numel()).unwrap_or(0);
        let sample_largest = self.layouts.iter().map(|c| numel(Some(c.clone()))).fold(0, i64::max);
        let largest =
            self.layouts.iter().enumerate().map(|(k, c)| numel(layout(k, c))).fold(0, i64::max);
        if largest > LARGEST.max(2 * sample_largest) {
            return Ok(());
        }
        let args = self.with_layouts(&layout, &|_| true)?;
        out.push(SampleVariant { kind: VariantKind::Sizes, args, what, dims });
        Ok(())
    }

    /// The arguments with the operands in new layouts, where `layout` returns one, and with the
    /// elements that `keep` selects.
    fn with_layouts(
        &self,
        layout: &dyn Fn(usize, &Concrete) -> Option<Concrete>,
        keep: &dyn Fn(usize) -> bool,
    ) -> Result<Args> {
        let replacements =
            self.operands.iter().zip(&self.layouts).enumerate().map(|(k, (o, c))| {
                match layout(k, c).filter(|_| !o.shares) {
                    Some(c) => {
                        Relayout { layout: &c, keep, other: 0, beyond: 0, filler: 0 }.of(&o.tensor)
                    }
                    None => Ok(o.tensor.clone()),
                }
            });
        replace(&self.operands, self.args, &replacements.collect::<Result<Vec<_>>>()?)
    }

    fn contents(&self, out: &mut Vec<SampleVariant>) -> Result<()> {
        if self.operands.iter().all(|o| o.shares) {
            return Ok(());
        }
        let keeps: [(&str, &dyn Fn(usize) -> bool); 2] = [
            ("the sample with zeros as contents", &|_| false),
            ("the sample with every other element zero", &|i| i % 2 == 0),
        ];
        for (what, keep) in keeps {
            let args = self.with_layouts(&|_, c| Some(c.clone()), keep)?;
            out.push(SampleVariant {
                kind: VariantKind::Contents,
                args,
                what: what.into(),
                dims: Vec::new(),
            });
        }
        Ok(())
    }

    /// A variant in which every tensor of rank 2 or more has the opposite order of dimensions in
    /// memory.
    fn transposed(&self, out: &mut Vec<SampleVariant>) -> Result<()> {
        let layout = |_: usize, c: &Concrete| {
            if c.sizes.iter().filter(|n| **n > 1).count() < 2
                || c.strides.iter().zip(&c.sizes).any(|(s, n)| *s == 0 && *n > 1)
            {
                return None;
            }
            let contiguous = c.is_contiguous();
            let order: Vec<usize> = if contiguous {
                (0..c.sizes.len()).collect()
            } else {
                (0..c.sizes.len()).rev().collect()
            };
            let strides = dense_strides_i64(&c.sizes, order)?.into_iter().collect();
            Some(Concrete { strides, ..c.clone() })
        };
        if self.layouts.iter().zip(&self.operands).any(|(c, o)| !o.shares && layout(0, c).is_some())
        {
            let args = self.with_layouts(&layout, &|_| true)?;
            out.push(SampleVariant {
                kind: VariantKind::Layout,
                args,
                what: "the sample with the dimensions in another order in memory".into(),
                dims: Vec::new(),
            });
        }
        Ok(())
    }

    /// Variants with one `SymInt`, or one element of a list of these, increased by 1.
    fn integers(&self, out: &mut Vec<SampleVariant>) {
        let mut push = |i: usize, v: Value, what: String| {
            let mut args = self.args.clone();
            if let Some(place) = args.get_mut(i) {
                *place = v;
            }
            out.push(SampleVariant { kind: VariantKind::Integers, args, what, dims: Vec::new() });
        };
        for (i, (decl, v)) in self.schema.args.iter().zip(self.args).enumerate() {
            let symbolic = match &decl.ty {
                Type::SymInt => true,
                Type::List(t, _) | Type::Optional(t) => **t == Type::SymInt,
                _ => false,
            };
            match v {
                Value::Int(n) if symbolic => {
                    if let Some(n) = n.as_i64() {
                        push(
                            i,
                            (n + 1).into(),
                            format!("the sample with {} instead of {n} as `{}`", n + 1, decl.name),
                        );
                    }
                }
                Value::Ints(l) if symbolic => {
                    for k in 0..l.len() {
                        let more = l
                            .iter()
                            .enumerate()
                            .map(|(j, &n)| if j == k { n + 1 } else { n })
                            .collect();
                        push(
                            i,
                            Value::Ints(more),
                            format!(
                                "the sample with {} instead of {} as `{}[{k}]`",
                                l[k] + 1,
                                l[k],
                                decl.name
                            ),
                        );
                    }
                }
                _ => {}
            }
        }
    }

    /// The sample with a margin before and after every tensor in its storage, filled with a byte.
    pub(super) fn with_margins(&self, filler: u8) -> Result<Option<Args>> {
        const MARGIN: i64 = 16;
        if self.operands.iter().all(|o| o.shares) {
            return Ok(None);
        }
        let replacements = self.operands.iter().zip(&self.layouts).map(|(o, c)| {
            if o.shares {
                return Ok(o.tensor.clone());
            }
            let moved = Concrete { offset: c.offset + MARGIN, ..c.clone() };
            Relayout { layout: &moved, keep: &|_| true, other: 0, beyond: MARGIN as usize, filler }
                .of(&o.tensor)
        });
        replace(&self.operands, self.args, &replacements.collect::<Result<Vec<_>>>()?).map(Some)
    }

    /// The sample with mutated arguments that consist of this byte; `None` if there are none that
    /// can be changed.
    pub(super) fn with_initial_contents(&self, byte: u8, op: Op) -> Result<Option<Args>> {
        let mutated = |o: &Operand| {
            let tensors = self
                .args
                .iter()
                .enumerate()
                .filter(|(i, _)| op.mutates(*i))
                .flat_map(|(_, v)| v.tensors());
            !o.shares && tensors.into_iter().any(|t| t.shares_storage(&o.tensor))
        };
        if !self.operands.iter().any(mutated) {
            return Ok(None);
        }
        let replacements = self.operands.iter().zip(&self.layouts).map(|(o, c)| match mutated(o) {
            true => Relayout { layout: c, keep: &|_| false, other: byte, beyond: 0, filler: 0 }
                .of(&o.tensor),
            false => Ok(o.tensor.clone()),
        });
        replace(&self.operands, self.args, &replacements.collect::<Result<Vec<_>>>()?).map(Some)
    }
}
