//! Finite differences and the trapezoidal rule: `diff`, `trapezoid`, `cumulative_trapezoid`.

use crate::order::refuse_bool;
use crate::shape::views;
use maquette_ir::{DType, Loc, MemoryFormat, Scalar};
use maquette_ops::operator::dims::{decide, done, is_zero, require_rank};
use maquette_ops::operator::lowering::Lowering;
use maquette_ops::operator::{aten, dims_text, table};
use maquette_ops::operator::{require_equal, wrap_dim};
use maquette_ops::{Dims, Error, Outputs, Result, Tensor, Value};

/// `self, n, dim, prepend, append`
#[track_caller]
fn diff(args: &[Value]) -> Result<Outputs> {
    let (x, n, append, prepend) =
        (args[0].tensor()?, args[1].int_i64()?, args[4].opt_tensor()?, args[3].opt_tensor()?);
    require_rank("self", x, 1..=64)?;
    let d = wrap_dim(args[2].int_i64()?, x.dim())?;
    if n < 0 {
        return Err(Error::value(format!("`n` must not be negative, found {n}")));
    }
    for (name, t) in [("prepend", prepend), ("append", append)] {
        t.map_or(Ok(()), |t| require_rank(name, t, x.dim()..=x.dim()))?;
    }
    let parts: Vec<&Tensor> = prepend.into_iter().chain([x]).chain(append).collect();
    let mut out = if parts.len() == 1 || n == 0 {
        x.clone()
    } else {
        Tensor::cat(parts, d as i64).ok()?.clone()
    };
    let size = out.sizes()[d];
    // PyTorch takes at most as many differences as there are elements.
    let n =
        if decide(size.ge(n))? { n } else { size.as_i64().map_or_else(|| size.guard_int(), Ok)? };
    if n == 0 {
        return done(out.clone_as(MemoryFormat::Preserve));
    }
    // An empty tensor has only sizes to compute. The number of differences may be very large.
    if is_zero(out.numel())? {
        return done(out.narrow(d as i64, 0, size - n).clone_as(MemoryFormat::Preserve));
    }
    for i in 1..=n {
        let (after, before) =
            (out.narrow(d as i64, 1, size - i), out.narrow(d as i64, 0, size - i));
        out = if out.dtype() == DType::Bool { after.logical_xor(&before) } else { after - before };
    }
    done(out)
}

/// The distances between neighbouring points: one distance for all, or the differences of points
/// that broadcast to the values.
enum Steps {
    Even(f64),
    Points(Tensor),
}

impl Steps {
    /// The steps between the points `x`, at which `y` is sampled along `dim`.
    #[track_caller]
    fn at(y: &Tensor, x: &Tensor, dim: usize) -> Result<Steps> {
        let points = if x.dim() == 1 {
            let wrong = || {
                let (of, found) = (dims_text(y.sizes()), dims_text(x.sizes()));
                Error::value(format!(
                    "argument `x` must hold one point for each element of dimension {dim} of `y` \
                        {of}, found {found}"
                ))
            };
            require_equal(x.sizes()[0], y.sizes()[dim], &wrong)?;
            let mut sizes: Dims = smallvec::smallvec![1.into(); y.dim()];
            sizes[dim] = x.sizes()[0];
            x.reshape(sizes)
        } else if x.dim() < y.dim() {
            let mut sizes: Dims = smallvec::smallvec![1.into(); y.dim() - x.dim()];
            sizes.extend_from_slice(x.sizes());
            x.reshape(sizes)
        } else {
            x.clone()
        };
        let (left, right) = neighbours(points.ok()?, dim)?;
        Ok(Steps::Points(right - left))
    }
}

/// The elements of a dimension without the last, and without the first.
fn neighbours(t: &Tensor, dim: usize) -> Result<(Tensor, Tensor)> {
    let n = views::nonzero_rank(t.meta()).map(|()| t.sizes()[dim])?;
    let rest = if is_zero(n)? { n } else { n - 1 };
    Ok((t.narrow(dim as i64, 0, rest), t.slice(dim as i64, 1..)))
}

/// The integral of `y` by the trapezoidal rule.
#[track_caller]
fn trapezoid(
    y: &Tensor,
    steps: impl FnOnce(usize) -> Result<Steps>,
    dim: &Value,
) -> Result<Outputs> {
    require_rank("y", y, 1..=64)?;
    let d = wrap_dim(dim.int_i64()?, y.dim())?;
    if is_zero(y.sizes()[d])? {
        let sizes: Dims =
            y.sizes().iter().enumerate().filter(|(i, _)| *i != d).map(|(_, &n)| n).collect();
        return done(aten!("zeros", Loc::caller(); Value::from_dims(sizes), y.dtype()));
    }
    done(match steps(d)? {
        Steps::Even(dx) => {
            let ends = y.select(d as i64, 0) + y.select(d as i64, -1);
            (y.sum_dim(d as i64, false) - ends * 0.5) * dx
        }
        Steps::Points(dx) => {
            let (left, right) = neighbours(y, d)?;
            ((right + left) * dx).sum_dim(d as i64, false) / 2.0
        }
    })
}

/// The integrals of `y` from the first point up to each later point.
#[track_caller]
fn cumulative(
    y: &Tensor,
    steps: impl FnOnce(usize) -> Result<Steps>,
    dim: &Value,
) -> Result<Outputs> {
    require_rank("y", y, 1..=64)?;
    let d = wrap_dim(dim.int_i64()?, y.dim())?;
    let (left, right) = neighbours(y, d)?;
    let areas = match steps(d)? {
        Steps::Even(dx) => (right + left) * (dx / 2.0),
        Steps::Points(dx) => (right + left) * dx / 2.0,
    };
    done(areas.cumsum(d as i64))
}

fn even(dx: &Value) -> Result<Steps> {
    dx.scalar().map(|dx: Scalar| Steps::Even(dx.to_f64()))
}

/// An integral with even steps (`even`), or over given points.
macro_rules! integral {
    ($rule:ident even) => {
        Lowering::Composite(|a| {
            $rule(a[0].tensor()?, |_| refuse_bool("y", &a[0]).and_then(|()| even(&a[1])), &a[2])
        })
    };
    ($rule:ident points) => {
        Lowering::Composite(|a| {
            let y = a[0].tensor()?;
            let steps = |d| {
                refuse_bool("y", &a[0])?;
                refuse_bool("x", &a[1])?;
                Steps::at(y, a[1].tensor()?, d)
            };
            $rule(y, steps, &a[2])
        })
    };
}

table! {
    /// Differences and integrals.
    static TABLE = {
        "aten::diff(Tensor self, int n=1, int dim=-1, Tensor? prepend=None, \
            Tensor? append=None) -> Tensor" => {
            role: General,
            lowering: Lowering::Composite(diff),
        },
        "aten::trapezoid.x(Tensor y, Tensor x, *, int dim=-1) -> Tensor" => {
            role: General,
            lowering: integral!(trapezoid points),
        },
        "aten::trapezoid.dx(Tensor y, *, Scalar dx=1, int dim=-1) -> Tensor" => {
            role: General,
            lowering: integral!(trapezoid even),
        },
        "aten::trapz.x(Tensor y, Tensor x, *, int dim=-1) -> Tensor" => {
            role: General,
            lowering: integral!(trapezoid points),
        },
        "aten::trapz.dx(Tensor y, *, float dx=1., int dim=-1) -> Tensor" => {
            role: General,
            lowering: integral!(trapezoid even),
        },
        "aten::cumulative_trapezoid.x(Tensor y, Tensor x, *, int dim=-1) -> Tensor" => {
            role: General,
            lowering: integral!(cumulative points),
        },
        "aten::cumulative_trapezoid.dx(Tensor y, *, Scalar dx=1, int dim=-1) -> Tensor" => {
            role: General,
            lowering: integral!(cumulative even),
        },
    }
}
