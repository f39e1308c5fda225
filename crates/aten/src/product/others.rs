//! Products of two tensors that are not matrix products: `kron`, `ger`, `cross`; and the powers of
//! `vander`.

use super::einsum::pair;
use maquette_ir::sym::SymInt;
use maquette_ir::{DType, MemoryFormat};
use maquette_ops::operator::dims::{decide, done, is_zero, require, require_rank};
use maquette_ops::operator::lowering::Lowering;
use maquette_ops::operator::{dims_text, host, table};
use maquette_ops::operator::{require_equal, wrap_dim};
use maquette_ops::{Dims, Error, Result, Tensor, Value};

/// The Kronecker product: an elementwise product after interleaving dimensions of size 1.
fn kron(x: &Tensor, y: &Tensor) -> Tensor {
    let rank = x.dim().max(y.dim());
    let one = SymInt::from(1);
    let padded = |t: &Tensor| -> Dims {
        std::iter::repeat_n(one, rank - t.dim()).chain(t.sizes().iter().copied()).collect()
    };
    let (a, b) = (padded(x), padded(y));
    let interleaved = |sizes: &[SymInt], first: bool| -> Dims {
        sizes.iter().flat_map(|&n| if first { [n, one] } else { [one, n] }).collect()
    };
    let whole: Dims = a.iter().zip(&b).map(|(&n, &m)| n * m).collect();
    (x.reshape(interleaved(&a, true)) * y.reshape(interleaved(&b, false))).reshape(whole)
}

/// The cross product along a dimension of size 3, by two rolls of each operand.
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
    let rolled = |t: &Tensor, by: i64| t.roll([by], [d as i64]);
    Ok(rolled(x, -1) * rolled(y, -2) - rolled(x, -2) * rolled(y, -1))
}

/// `cross` without `dim` uses the first dimension of size 3.
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

/// The powers from 0 to `count - 1` of each element, as a new last dimension. A number counts as a
/// vector of one.
fn powers(x: &Tensor, count: Option<SymInt>) -> Result<Tensor> {
    require_rank("x", x, usize::from(count.is_none())..=63)?;
    let x = &if x.dim() == 0 { x.unsqueeze(0) } else { x.clone() };
    let dtype = if x.dtype().is_float() { x.dtype() } else { DType::I64 };
    let n = count.unwrap_or_else(|| x.size(-1));
    require(n.ge(0), || format!("`N` must not be negative, found {n}"))?;
    let sizes: Dims = x.sizes().iter().copied().chain([n]).collect();
    let base = x.to_dtype(dtype).unsqueeze(-1).expand(sizes);
    // The powers are a running product whose first factor is 1.
    let first = host::on_device_of(x, Tensor::from([0i64]));
    if is_zero(n)? {
        return Ok(base.clone_as(MemoryFormat::Contiguous));
    }
    require(n.ge(1), || format!("`N` must be positive in this trace, found {n}"))?;
    Ok(base.index_fill(-1, &first, 1).cumprod(-1).to_dtype(dtype))
}

/// A Vandermonde matrix: the powers of each element as a row, in descending order by default.
fn vander(x: &Tensor, n: Option<SymInt>, increasing: bool) -> Result<Tensor> {
    require_rank("x", x, 1..=1)?;
    let p = powers(x, n)?;
    Ok(if increasing { p } else { p.flip([-1i64]) })
}

table! {
    /// Kronecker, outer and cross products, and Vandermonde matrices.
    static TABLE = {
        "aten::kron(Tensor self, Tensor other) -> Tensor" => {
            role: General,
            lowering: Lowering::Composite(|a| pair(a).and_then(|(x, y)| done(kron(x, y)))),
        },
        "aten::ger(Tensor self, Tensor vec2) -> Tensor" => {
            role: General,
            lowering: Lowering::Composite(|a| pair(a).and_then(|(x, y)| done(x.outer(y)))),
        },
        "aten::cross(Tensor self, Tensor other, int? dim=None) -> Tensor" => {
            role: General,
            lowering: Lowering::Composite(|a| {
                pair(a).and_then(|(x, y)| done(legacy_cross(x, y, a[2].opt(Value::int_i64)?)?))
            }),
        },
        "aten::linalg_cross(Tensor self, Tensor other, *, int dim=-1) -> Tensor" => {
            role: General,
            lowering: Lowering::Composite(
                |a| pair(a).and_then(|(x, y)| done(cross(x, y, a[2].int_i64()?)?)),
            ),
        },
        "aten::vander(Tensor x, int? N=None, bool increasing=False) -> Tensor" => {
            role: General,
            lowering: Lowering::Composite(|a| {
                done(vander(a[0].tensor()?, a[1].opt(Value::int)?, a[2].bool()?)?)
            }),
        },
        "aten::linalg_vander(Tensor x, *, SymInt? N=None) -> Tensor" => {
            role: General,
            lowering: Lowering::Composite(|a| done(powers(a[0].tensor()?, a[1].opt(Value::int)?)?)),
        },
    }
}
