//! `gather`, `scatter`, and the machinery of scatters along one dimension that `slices` shares.
//!
//! A [`Scatter`] copies `self` and combines each source element into the position that the index
//! gives along `dim`. The reductions are those of `scatter_reduce`: sum, product, mean, maximum and
//! minimum.

use crate::norm::compute_dtype;
use crate::shape::views;
use maquette_ir::loops::named;
use maquette_ir::scalar_expr::cast_scalar;
use maquette_ir::{DType, Scalar};
use maquette_kernels::{self as kernels, ScatterOp, Source};
use maquette_ops::operator::Derivative;
use maquette_ops::operator::cpu_exec::{self, input, output};
use maquette_ops::operator::dims::{fresh, require, require_index, require_same_dtype};
use maquette_ops::operator::host::{self, fill_with};
use maquette_ops::operator::lowering::{Class, Compute, How, Lowering, Metas, Strides};
use maquette_ops::operator::number::require_argument_fits;
use maquette_ops::operator::wrap_dim;
use maquette_ops::operator::{dims_text, table};
use maquette_ops::{Error, FakeCtx, Result, Tensor, Value};
use smallvec::smallvec;

pub(crate) const fn gather(metas: fn(&FakeCtx, &[Value]) -> Result<Metas>, how: How) -> Lowering {
    Lowering::Compute(Compute { class: Class::Gather, strides: Strides::RowMajor, metas, how })
}

/// Argument 0, of which a 0-d tensor has one dimension.
pub(crate) fn at_least_1d(args: &[Value]) -> Result<Tensor> {
    let x = args[0].tensor()?;
    if x.dim() > 0 { Ok(x.clone()) } else { x.view_of(views::unsqueeze(x.meta(), 0)?) }
}

pub(crate) const fn scatter(
    metas: fn(&FakeCtx, &[Value]) -> Result<Metas>,
    run: fn(&[Value], &[Tensor]) -> Result<()>,
) -> Lowering {
    Lowering::Compute(Compute {
        class: Class::Scatter,
        strides: Strides::RowMajor,
        metas,
        how: How::Host(run),
    })
}

/// Requires the index to have the rank of `bound` and to be no larger; dimension `dim` is exempt
/// unless `whole`.
#[track_caller]
fn check_index(
    x: &Tensor,
    dim: i64,
    index: &Tensor,
    bound: &Tensor,
    bound_name: &str,
    whole: bool,
) -> Result<()> {
    let d = wrap_dim(dim, x.dim())?;
    // PyTorch accepts an empty index with any dtype and rank. A guard on emptiness is recorded only
    // if dtype or rank would be an error.
    let usual = require_index("index", index).is_ok() && index.dim().max(1) == bound.dim().max(1);
    if index.numel().as_i64() == Some(0) || !usual && index.numel().eq(0).guard()? {
        return Ok(());
    }
    require_index("index", index)?;
    let misfit = || {
        let (expected, found) = (dims_text(bound.sizes()), dims_text(index.sizes()));
        format!(
            "argument `index` must have at most the sizes {expected} of `{bound_name}`, except in \
                dimension {dim}, found sizes {found}"
        )
    };
    if index.dim().max(1) != bound.dim().max(1) {
        return Err(Error::value(misfit()));
    }
    for (k, (&i, &n)) in index.sizes().iter().zip(bound.sizes()).enumerate() {
        if k == d && !whole {
            continue;
        }
        if let Err(e) = require(i.le(n), misfit) {
            // An index that is too large is accepted if it is empty.
            return if index.numel().eq(0).guard().unwrap_or(false) { Ok(()) } else { Err(e) };
        }
    }
    Ok(())
}

/// How a scattered element is combined with the element at its position.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Combine {
    With(ScatterOp),
    Mean,
}

impl Combine {
    /// The combination that the argument `reduce` names.
    pub(crate) fn parse(name: &str) -> Result<Combine> {
        Ok(Combine::With(match name {
            "add" | "sum" => ScatterOp::Add,
            "multiply" | "prod" => ScatterOp::Mul,
            "amax" => ScatterOp::Max,
            "amin" => ScatterOp::Min,
            "mean" => return Ok(Combine::Mean),
            other => {
                return Err(Error::value(format!(
                    "`reduce` must be sum, prod, mean, amax or amin (scatter: add, multiply), \
                        found {other:?}"
                )));
            }
        }))
    }

    /// The identity element of the combination.
    fn identity(self, dtype: DType) -> Scalar {
        match self {
            Combine::With(ScatterOp::Mul) => Scalar::Int(1),
            Combine::With(ScatterOp::Max) => extreme(dtype, false),
            Combine::With(ScatterOp::Min) => extreme(dtype, true),
            _ => Scalar::Int(0),
        }
    }
}

/// The largest or smallest value of a dtype.
fn extreme(dtype: DType, greatest: bool) -> Scalar {
    match dtype {
        d if d.is_float() => {
            Scalar::Float(if greatest { f64::INFINITY } else { f64::NEG_INFINITY })
        }
        d => d.int_range().map_or(Scalar::Bool(greatest), |(least, most)| {
            Scalar::Int(if greatest { most } else { least })
        }),
    }
}

/// Copies `self`, and combines the source into the copy at the index along a dimension.
pub(crate) struct Scatter<'a> {
    pub(crate) x: &'a Tensor,
    pub(crate) dim: usize,
    pub(crate) index: Tensor,
    pub(crate) combine: Combine,
    pub(crate) include_self: bool,
    /// Whether half precision is rounded once, after all elements that fall on a position.
    /// Otherwise it is rounded after each, as in some of PyTorch's kernels.
    pub(crate) once: bool,
    /// The dtype in which a mean counts. PyTorch counts by adding ones in the element dtype, which
    /// rounds in half precision.
    pub(crate) counts: DType,
}

/// The source of a scatter.
pub(crate) enum ScatterSource<'a> {
    Elements(&'a Tensor),
    Number(Scalar),
}

impl Scatter<'_> {
    /// Fills `out`. Half precision computes in a wider dtype if it is rounded only once.
    pub(crate) fn run(&self, out: &Tensor, source: &ScatterSource<'_>) -> Result<()> {
        let combines = self.combine != SET && self.index.numel().as_i64() != Some(0);
        let wide = if combines && self.once { compute_dtype(out.dtype()) } else { out.dtype() };
        if wide == out.dtype() || !out.dtype().is_float() {
            return self.run_in(out, source);
        }
        let work = Tensor::allocate(fresh(out, out.sizes().into(), wide))?;
        let number = |x: &Scalar| ScatterSource::Number(cast_scalar(*x, out.dtype()));
        match source {
            ScatterSource::Elements(t) => {
                self.run_in(&work, &ScatterSource::Elements(&cpu_exec::cast(t, wide)?))?
            }
            ScatterSource::Number(x) => self.run_in(&work, &number(x))?,
        }
        cpu_exec::copy(&work, out)
    }

    /// As [`Scatter::run`], computing in the dtype of `out`.
    fn run_in(&self, out: &Tensor, source: &ScatterSource<'_>) -> Result<()> {
        cpu_exec::copy(self.x, out)?;
        if self.index.numel().as_i64() == Some(0) {
            return Ok(());
        }
        let source = &match source {
            ScatterSource::Elements(t) => Source::Tensor(input(t)?),
            ScatterSource::Number(x) => Source::Value(*x),
        };
        let index = input(&self.index)?;
        let put = |to: &Tensor, source: &Source<'_>, op| -> Result<()> {
            Ok(kernels::scatter(&mut output(to)?, self.dim, &index, source, op)?)
        };
        if !self.include_self {
            put(out, &Source::Value(self.combine.identity(out.dtype())), ScatterOp::Replace)?;
        }
        match self.combine {
            Combine::With(op) => put(out, source, op),
            Combine::Mean => {
                put(out, source, ScatterOp::Add)?;
                let count = Tensor::allocate(fresh(self.x, self.x.sizes().into(), self.counts))?;
                host::fill(&count, Scalar::Int(i64::from(self.include_self)))?;
                put(&count, &Source::Value(Scalar::Int(1)), ScatterOp::Add)?;
                divide(out, &host::data::<i64>(&cpu_exec::cast(&count, DType::I64)?)?)
            }
        }
    }
}

/// Divides each element by its count, if the count is at least 1. Integer division rounds down.
fn divide(out: &Tensor, by: &[i64]) -> Result<()> {
    let wide = cpu_exec::cast(out, if out.dtype().is_float() { DType::F64 } else { DType::I64 })?;
    if out.dtype().is_float() {
        fill_with::<f64>(&wide, |o| {
            o.iter_mut().zip(by).for_each(|(o, &n)| *o /= n.max(1) as f64)
        })?;
    } else {
        fill_with::<i64>(&wide, |o| {
            o.iter_mut().zip(by).for_each(|(o, &n)| *o = o.div_euclid(n.max(1)))
        })?;
    }
    cpu_exec::copy(&wide, out)
}

/// A scatter with the arguments `self, dim, index`.
pub(crate) fn along(args: &[Value], combine: Combine, include_self: bool) -> Result<Scatter<'_>> {
    let x = args[0].tensor()?;
    let dim = wrap_dim(args[1].int_i64()?, x.dim())?;
    Ok(Scatter {
        x,
        dim,
        index: args[2].tensor()?.clone(),
        combine,
        include_self,
        once: true,
        counts: DType::I64,
    })
}

pub(crate) const SET: Combine = Combine::With(ScatterOp::Replace);

fn scatter_src(args: &[Value], out: &Tensor, combine: Combine, include_self: bool) -> Result<()> {
    along(args, combine, include_self)?.run(out, &ScatterSource::Elements(args[3].tensor()?))
}

fn scatter_value(args: &[Value], out: &Tensor, combine: Combine) -> Result<()> {
    along(args, combine, true)?.run(out, &ScatterSource::Number(args[3].scalar()?))
}

fn scatter_meta(args: &[Value]) -> Result<Metas> {
    let (x, dim, index) = (args[0].tensor()?, args[1].int_i64()?, args[2].tensor()?);
    check_index(x, dim, index, x, "self", false)?;
    if index.numel().as_i64() != Some(0) {
        require_argument_fits("value", &args[3], x.dtype())?;
    }
    if let Value::Tensor(src) = &args[3] {
        check_index(x, dim, index, src, "src", true)?;
        require_same_dtype(("self", x), ("src", src))?;
    }
    Ok(smallvec![fresh(x, x.sizes().into(), x.dtype())])
}

table! {
    /// `gather` and `scatter`.
    static TABLE = {
        "aten::gather(Tensor self, int dim, Tensor index, *, \
            bool sparse_grad=False) -> Tensor" => {
            role: General,
            lowering: gather(
                |_, a| {
                    let (x, index) = (a[0].tensor()?, a[2].tensor()?);
                    check_index(x, a[1].int_i64()?, index, x, "self", false)?;
                    Ok(smallvec![fresh(x, index.sizes().into(), x.dtype())])
                },
                How::Loops(|cx| {
                    let (x, index) = (cx.view(at_least_1d)?, cx.input(2)?);
                    let dim = wrap_dim(cx.int(1)?, x.axes.len())?;
                    Ok(smallvec![named::gather(&mut cx.nest, &x, dim, &index)?.into()])
                }),
            ),
            vjp: crate::grad::GATHER,
        },
        "aten::scatter.src(Tensor self, int dim, Tensor index, Tensor src) -> Tensor" => {
            role: General,
            lowering: scatter(|_, a| scatter_meta(a), |a, out| scatter_src(a, &out[0], SET, true)),
            vjp: crate::grad::SCATTER,
        },
        "aten::scatter.value(Tensor self, int dim, Tensor index, Scalar value) -> Tensor" => {
            role: General,
            lowering: scatter(|_, a| scatter_meta(a), |a, out| scatter_value(a, &out[0], SET)),
            vjp: crate::grad::SCATTER,
        },
        "aten::scatter.reduce(Tensor self, int dim, Tensor index, Tensor src, *, \
            str reduce) -> Tensor" => {
            role: General,
            lowering: scatter(
                |_, a| scatter_meta(a),
                |a, out| scatter_src(a, &out[0], Combine::parse(a[4].str()?)?, true),
            ),
            vjp: Derivative::Refused("PyTorch has none"),
        },
        "aten::scatter.value_reduce(Tensor self, int dim, Tensor index, Scalar value, *, \
            str reduce) -> Tensor" => {
            role: General,
            lowering: scatter(
                |_, a| scatter_meta(a),
                |a, out| scatter_value(a, &out[0], Combine::parse(a[4].str()?)?),
            ),
            vjp: Derivative::Refused("PyTorch has none"),
        },
        "aten::scatter_add(Tensor self, int dim, Tensor index, Tensor src) -> Tensor" => {
            role: General,
            lowering: scatter(
                |_, a| scatter_meta(a),
                |a, out| scatter_src(a, &out[0], Combine::With(ScatterOp::Add), true),
            ),
            vjp: crate::grad::SCATTER_ADD,
        },
        "aten::scatter_reduce.two(Tensor self, int dim, Tensor index, Tensor src, \
            str reduce, *, bool include_self=True) -> Tensor" => {
            role: General,
            lowering: scatter(
                |_, a| scatter_meta(a),
                |a, out| scatter_src(a, &out[0], Combine::parse(a[4].str()?)?, a[5].bool()?),
            ),
            vjp: crate::grad::SCATTER_REDUCE,
        },
        "aten::scatter_.src(Tensor(a!) self, int dim, Tensor index, \
            Tensor src) -> Tensor(a!)" => {
            role: General,
            lowering: Lowering::InPlace("aten::scatter.src"),
        },
        "aten::scatter_.value(Tensor(a!) self, int dim, Tensor index, \
            Scalar value) -> Tensor(a!)" => {
            role: General,
            lowering: Lowering::InPlace("aten::scatter.value"),
        },
        "aten::scatter_.reduce(Tensor(a!) self, int dim, Tensor index, Tensor src, *, \
            str reduce) -> Tensor(a!)" => {
            role: General,
            lowering: Lowering::InPlace("aten::scatter.reduce"),
        },
        "aten::scatter_.value_reduce(Tensor(a!) self, int dim, Tensor index, Scalar value, \
            *, str reduce) -> Tensor(a!)" => {
            role: General,
            lowering: Lowering::InPlace("aten::scatter.value_reduce"),
        },
        "aten::scatter_add_(Tensor(a!) self, int dim, Tensor index, \
            Tensor src) -> Tensor(a!)" => {
            role: General,
            lowering: Lowering::InPlace("aten::scatter_add"),
        },
        "aten::scatter_reduce_.two(Tensor(a!) self, int dim, Tensor index, Tensor src, \
            str reduce, *, bool include_self=True) -> Tensor(a!)" => {
            role: General,
            lowering: Lowering::InPlace("aten::scatter_reduce.two"),
        },
    }
}
