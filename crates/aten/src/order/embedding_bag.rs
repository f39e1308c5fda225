//! `embedding_bag`, which reduces bags of rows of an embedding table; and `renorm`, which limits
//! the norm of slices.

use super::{integers, require_float, store_integers};
use maquette_ir::DType;
use maquette_ir::loops::Axes;
use maquette_ir::loops::fold::{Fold, Order};
use maquette_ir::loops::named;
use maquette_ir::scalar_expr::{BinaryOp, CmpOp};
use maquette_ir::sym::SymInt;
use maquette_ops::operator::Derivative;
use maquette_ops::operator::dims::{
    decide, fresh, fresh_like, require, require_index, require_rank, require_same_dtype,
};
use maquette_ops::operator::loops::{NestCx, NestResults};
use maquette_ops::operator::lowering::{Class, Compute, How, Lowering, Metas, Strides};
use maquette_ops::operator::{host, table};
use maquette_ops::operator::{require_same, wrap_dim};
use maquette_ops::{Error, Outputs, Result, Tensor, Value};
use smallvec::smallvec;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Sum,
    Mean,
    Max,
}

/// A call. The arguments are `weight, indices, offsets, scale_grad_by_freq, mode, sparse,
/// per_sample_weights, include_last_offset, padding_idx`.
struct Bags<'a> {
    weight: &'a Tensor,
    indices: &'a Tensor,
    offsets: &'a Tensor,
    mode: Mode,
    scale: Option<&'a Tensor>,
    /// Whether the last offset is the end of the last bag, rather than the start of another.
    closed: bool,
    /// The index that is skipped.
    padding: i64,
    bags: SymInt,
}

impl<'a> Bags<'a> {
    /// Reads and checks the arguments.
    fn of(args: &'a [Value]) -> Result<Bags<'a>> {
        let (weight, indices, offsets) = (args[0].tensor()?, args[1].tensor()?, args[2].tensor()?);
        require_float("weight", weight)?;
        require_rank("weight", weight, 2..=2)?;
        for (name, t) in [("indices", indices), ("offsets", offsets)] {
            require_index(name, t)?;
            require_rank(name, t, 1..=1)?;
        }
        let mode = match args[4].int_i64()? {
            0 => Mode::Sum,
            1 => Mode::Mean,
            2 => Mode::Max,
            n => {
                return Err(Error::value(format!(
                    "`mode` must be 0 (sum), 1 (mean) or 2 (max), found {n}"
                )));
            }
        };
        let scale = args[6].opt_tensor()?;
        if let Some(s) = scale {
            if mode != Mode::Sum {
                return Err(Error::value("`per_sample_weights` requires `mode` 0 (sum)"));
            }
            require_same_dtype(("weight", weight), ("per_sample_weights", s))?;
            require_same(indices.sizes(), s.sizes(), || {
                "argument `per_sample_weights` must have".into()
            })?;
        }
        let (closed, listed) = (args[7].bool()?, offsets.sizes()[0]);
        if closed {
            require(listed.ge(1), || {
                "`offsets` must hold at least one position if `include_last_offset` is set".into()
            })?;
        }
        let bags = if closed { listed - 1 } else { listed };
        Ok(Bags {
            weight,
            indices,
            offsets,
            mode,
            scale,
            closed,
            padding: args[8].int_i64()?,
            bags,
        })
    }

    /// Whether PyTorch takes its fast path, which does not record the bag of each index.
    fn fast(&self) -> Result<bool> {
        if self.mode != Mode::Sum || self.padding >= 0 || self.weight.dtype() == DType::F64 {
            return Ok(false);
        }
        let scaled = self.scale.map_or(Ok(true), |s| decide(s.strides()[0].eq(1)))?;
        Ok(scaled && decide(self.weight.strides()[1].eq(1))?)
    }

    /// The metadata of the reduced bags, the bag of each index, the size of each bag, and the index
    /// of each maximum. Sizes follow PyTorch, which omits results that it does not need for
    /// gradients.
    fn metas(&self, forward_only: bool) -> Result<Metas> {
        let wide = [self.indices, self.offsets].iter().any(|t| t.dtype() == DType::I64);
        let dtype = if wide { DType::I64 } else { DType::I32 };
        let (bags, width) = (self.bags, self.weight.sizes()[1]);
        let of = if self.fast()? { 0.into() } else { self.indices.sizes()[0] };
        let sizes =
            if forward_only && self.mode == Mode::Sum { self.offsets.sizes()[0] } else { bags };
        let sizes = fresh(self.weight, smallvec![sizes], dtype);
        let greatest = if self.mode == Mode::Max {
            fresh(self.weight, smallvec![bags, width], dtype)
        } else {
            sizes.clone()
        };
        Ok(smallvec![
            fresh(self.weight, smallvec![bags, width], self.weight.dtype()),
            fresh(self.weight, smallvec![of], dtype),
            sizes,
            greatest
        ])
    }

    /// The start of each bag, and the end of the last.
    fn bounds(&self, len: usize) -> Result<Vec<usize>> {
        let mut bounds = integers(self.offsets)?;
        if !self.closed && !bounds.is_empty() {
            bounds.push(len as i64);
        }
        let ordered = bounds.is_sorted()
            && bounds.first().is_none_or(|n| *n == 0)
            && bounds.last().is_none_or(|n| *n <= len as i64);
        if !ordered {
            return Err(Error::value(format!(
                "`offsets` must rise from 0 to at most the {len} `indices`, found {bounds:?}"
            )));
        }
        Ok(bounds.into_iter().map(|n| n as usize).collect())
    }

    /// Reduces each bag by a loop over its indices.
    fn run(&self, outs: &[Tensor]) -> Result<()> {
        let (weight, indices) = (host::reals(self.weight)?, integers(self.indices)?);
        let scale = self.scale.map(host::reals).transpose()?;
        let [rows, width] = host::sizes(self.weight)?[..] else {
            return Err(Error::value("argument `weight` must have 2 dimensions"));
        };
        if let Some(bad) = indices.iter().find(|i| !(0..rows as i64).contains(*i)) {
            return Err(Error::value(format!(
                "argument `indices` must hold rows from 0 to {}, found {bad}",
                rows as i64 - 1
            )));
        }
        let bounds = self.bounds(indices.len())?;
        let (mut results, mut sizes, mut greatest) = (Vec::new(), Vec::new(), Vec::new());
        let mut bag_of = vec![0; indices.len()];
        for (bag, span) in bounds.windows(2).enumerate() {
            bag_of[span[0]..].fill(bag as i64);
            let members: Vec<usize> =
                (span[0]..span[1]).filter(|&i| indices[i] != self.padding).collect();
            let element = |i: usize, c: usize| weight[indices[i] as usize * width + c];
            for c in 0..width {
                if self.mode == Mode::Max {
                    let best = members
                        .iter()
                        .map(|&i| (element(i, c), indices[i]))
                        .reduce(|a, b| if b.0 > a.0 { b } else { a });
                    let (value, index) = best.unwrap_or((0.0, 0));
                    results.push(value);
                    greatest.push(index);
                } else {
                    let sum: f64 = members
                        .iter()
                        .map(|&i| element(i, c) * scale.as_ref().map_or(1.0, |s| s[i]))
                        .sum();
                    results.push(if self.mode == Mode::Mean {
                        sum / members.len().max(1) as f64
                    } else {
                        sum
                    });
                }
            }
            sizes.push(if self.mode == Mode::Sum { 0 } else { members.len() as i64 });
        }
        // If PyTorch does not record sizes, the output may be one longer than the number of bags.
        sizes.resize(outs[2].numel().as_i64().map_or(0, |n| n.max(0) as usize), 0);
        host::store_reals(&outs[0], &results)?;
        store_integers(&outs[1], &bag_of)?;
        store_integers(&outs[2], &sizes)?;
        store_integers(&outs[3], if self.mode == Mode::Max { &greatest } else { &sizes })
    }
}

/// The table entry. PyTorch has one operator for training and one for inference.
macro_rules! bags {
    ($forward_only:literal) => {
        Lowering::Compute(Compute {
            class: Class::Gather,
            strides: Strides::FromOperands,
            metas: |_, a| Bags::of(a)?.metas($forward_only),
            how: How::Host(|a, o| Bags::of(a)?.run(o)),
        })
    };
}

/// `embedding_bag`. Trailing arguments may be absent. A negative padding index counts from the end.
fn embedding_bag(a: &[Value]) -> Result<Outputs> {
    let padding = match a.get(8).map_or(Ok(None), |v| v.opt(Value::int_i64))? {
        None => -1,
        Some(p) => {
            let weight = a[0].tensor()?;
            require_rank("weight", weight, 2..=2)?;
            let rows = weight.sizes()[0];
            for within in [(rows + p).ge(0), rows.gt(p)] {
                require(within, || format!("`padding_idx` must be a row of {rows}, found {p}"))?;
            }
            if p < 0 { (rows + p).as_i64().map_or_else(|| (rows + p).guard_int(), Ok)? } else { p }
        }
    };
    let args = a.iter().take(8).cloned().chain([Value::from(padding)]).collect();
    maquette_ops::call("aten::_embedding_bag_forward_only", args)
}

/// `(sum |x|^p)^(1/p)`; for `p = 0` the number of nonzero elements, for infinite `p` the maximum or
/// minimum.
fn norm(x: &[f64], p: f64) -> f64 {
    let sizes = x.iter().map(|x| x.abs());
    match p {
        0.0 => sizes.filter(|x| *x != 0.0).count() as f64,
        f64::INFINITY => {
            sizes.fold(0.0, |a, x| if a.is_nan() || x.is_nan() { f64::NAN } else { a.max(x) })
        }
        f64::NEG_INFINITY => sizes
            .fold(f64::INFINITY, |a, x| if a.is_nan() || x.is_nan() { f64::NAN } else { a.min(x) }),
        1.0 => sizes.sum(),
        2.0 => sizes.map(|x| x * x).sum::<f64>().sqrt(),
        _ => sizes.map(|x| x.powf(p)).sum::<f64>().powf(1.0 / p),
    }
}

/// The factor that brings a slice of norm `n` down to `most`. PyTorch adds 1e-7 to the norm.
fn shrink(n: f64, most: f64) -> f64 {
    if n > most { most / (n + 1e-7) } else { 1.0 }
}

/// The arguments `self, p, dim, maxnorm` of `renorm`, checked.
fn renorm_args(args: &[Value]) -> Result<(&Tensor, f64, usize, f64)> {
    let (x, p, most) = (args[0].tensor()?, args[1].scalar()?.to_f64(), args[3].scalar()?.to_f64());
    require_float("self", x)?;
    require_rank("self", x, 2..=64)?;
    if p.is_nan() || p <= 0.0 || most.is_nan() || most < 0.0 {
        return Err(Error::value(format!(
            "`p` must be positive and `maxnorm` not negative, found {p} and {most}"
        )));
    }
    Ok((x, p, wrap_dim(args[2].int_i64()?, x.dim())?, most))
}

/// Scales each slice along a dimension whose norm is greater than `maxnorm`. It computes in `f64`,
/// with sums in the order of the elements.
fn renorm(cx: &mut NestCx<'_>) -> Result<NestResults> {
    let (p, wide) = (cx.scalar(1)?.to_f64(), DType::F64);
    let x = cx.input(0)?;
    let slice = cx.axis(&x, 2)?;
    let most = cx.number(3, wide)?;
    let along: Axes = x.axes.iter().copied().filter(|a| *a != slice).collect();
    let over: Axes = [slice].iter().chain(&along).copied().collect();
    let fold = if p.is_infinite() { Fold::Max } else { Fold::Sum };
    let sum = cx.nest.reduce(&over, &along, fold, Order::Sequential, |s| {
        let element = s.element(&x, wide)?;
        named::power(s, element, p)
    })?;
    // PyTorch adds 1e-7 to the norm.
    let factor = cx.nest.map(&[slice], |s| {
        let sum = s.load(sum, [slice])?;
        let (norm, most) = (named::root(s, sum, p)?, s.launch(most)?);
        let (small, one) = (s.expr.constant(1e-7, wide), s.expr.constant(1.0, wide));
        let more = s.expr.binary(BinaryOp::Add, norm, small)?;
        let factor = s.expr.binary(BinaryOp::Div, most, more)?;
        let is_greater = s.expr.compare(CmpOp::Gt, norm, most)?;
        Ok(s.expr.select(is_greater, factor, one)?)
    })?;
    let y = cx.nest.map(&x.axes, |s| {
        let (element, factor) = (s.element(&x, wide)?, s.load(factor, [slice])?);
        let y = s.expr.binary(BinaryOp::Mul, element, factor)?;
        Ok(s.expr.cast(y, x.dtype)?)
    })?;
    Ok(smallvec![y.into()])
}

/// The metadata of `embedding_renorm` with the arguments `self, indices, max_norm, norm_type`.
fn embedding_renorm_meta(args: &[Value]) -> Result<Metas> {
    let (x, indices) = (args[0].tensor()?, args[1].tensor()?);
    require_float("self", x)?;
    require_rank("self", x, 2..=2)?;
    require_index("indices", indices)?;
    Ok(smallvec![fresh_like(x, x.dtype())?])
}

fn embedding_renorm(args: &[Value], out: &Tensor) -> Result<()> {
    let (x, most, p) = (args[0].tensor()?, args[2].float()?, args[3].float()?);
    let (mut values, rows) = (host::reals(x)?, x.size(0).as_i64().unwrap_or(0));
    let width = x.size(1).as_i64().map_or(0, |n| n as usize);
    let mut indices = integers(args[1].tensor()?)?;
    for i in &mut indices {
        if !(-rows..rows).contains(i) {
            return Err(Error::value(format!(
                "argument `indices` must hold rows of {rows}, found {i}"
            )));
        }
        *i = i.rem_euclid(rows);
    }
    indices.sort_unstable();
    indices.dedup();
    for i in indices {
        if let Some(row) = values.get_mut(i as usize * width..(i as usize + 1) * width) {
            let factor = shrink(norm(row, p), most);
            row.iter_mut().for_each(|x| *x *= factor);
        }
    }
    host::store_reals(out, &values)
}

table! {
    /// Embedding bags and norms of slices.
    static TABLE = {
        "aten::_embedding_bag_forward_only(Tensor weight, Tensor indices, Tensor offsets, \
            bool scale_grad_by_freq=False, int mode=0, bool sparse=False, \
            Tensor? per_sample_weights=None, bool include_last_offset=False, \
            int padding_idx=-1) -> (Tensor, Tensor, Tensor, Tensor)" => {
            role: General,
            lowering: bags!(true),
            vjp: crate::grad::EMBEDDING_BAG,
        },
        "aten::_embedding_bag(Tensor weight, Tensor indices, Tensor offsets, \
            bool scale_grad_by_freq=False, int mode=0, bool sparse=False, \
            Tensor? per_sample_weights=None, bool include_last_offset=False, \
            int padding_idx=-1) -> (Tensor, Tensor, Tensor, Tensor)" => {
            role: General,
            lowering: bags!(false),
            vjp: crate::grad::EMBEDDING_BAG,
        },
        "aten::embedding_bag(Tensor weight, Tensor indices, Tensor offsets, \
            bool scale_grad_by_freq=False, int mode=0, bool sparse=False, \
            Tensor? per_sample_weights=None, \
            bool include_last_offset=False) -> (Tensor, Tensor, Tensor, Tensor)" => {
            role: General,
            lowering: Lowering::Composite(embedding_bag),
        },
        "aten::embedding_bag.padding_idx(Tensor weight, Tensor indices, Tensor offsets, \
            bool scale_grad_by_freq, int mode, bool sparse, Tensor? per_sample_weights, \
            bool include_last_offset, int? padding_idx) -> (Tensor, Tensor, Tensor, Tensor)" => {
            role: General,
            lowering: Lowering::Composite(embedding_bag),
        },
        "aten::renorm(Tensor self, Scalar p, int dim, Scalar maxnorm) -> Tensor" => {
            role: General,
            lowering: Lowering::Compute(Compute {
                class: Class::Norm,
                strides: Strides::FromOperands,
                metas: |_, a| {
                    Ok(smallvec![renorm_args(a).map(|(x, ..)| fresh(
                        x,
                        x.sizes().into(),
                        x.dtype()
                    ))?])
                },
                how: How::Loops(renorm),
            }),
            vjp: crate::grad::RENORM,
        },
        "aten::renorm_(Tensor(a!) self, Scalar p, int dim, Scalar maxnorm) -> Tensor(a!)" => {
            role: General,
            lowering: Lowering::InPlace("aten::renorm"),
        },
        "aten::embedding_renorm(Tensor self, Tensor indices, float max_norm, \
            float norm_type) -> Tensor" => {
            role: General,
            lowering: Lowering::Compute(Compute {
                class: Class::Norm,
                strides: Strides::FromOperands,
                metas: |_, a| embedding_renorm_meta(a),
                how: How::Host(|a, out| embedding_renorm(a, &out[0])),
            }),
            vjp: Derivative::None("no gradient passes through the bound on norms"),
        },
        "aten::embedding_renorm_(Tensor(a!) self, Tensor indices, float max_norm, \
            float norm_type) -> Tensor(a!)" => {
            role: General,
            lowering: Lowering::InPlace("aten::embedding_renorm"),
        },
    }
}
