//! Matrix norms (`linalg_matrix_norm`, `linalg_norm`) and `linalg_vecdot`.

use crate::shape::views;
use maquette_ops::operator::dims::{done, is_zero, require, require_float, require_floats};
use maquette_ops::operator::lowering::Lowering;
use maquette_ops::operator::wrap_dim;
use maquette_ops::operator::{dims_text, table};
use maquette_ops::{Dims, Error, Result, Tensor, Value};
use smallvec::smallvec;

/// The kind of a matrix norm.
enum Order {
    Frobenius,
    /// The largest or smallest sum of absolute values over columns (orders 1 and -1) or rows
    /// (infinite orders).
    Sums {
        greatest: bool,
        of_rows: bool,
    },
}

impl Order {
    fn number(ord: f64) -> Result<Order> {
        if ord.abs() == 1.0 || ord.is_infinite() {
            return Ok(Order::Sums { greatest: ord > 0.0, of_rows: ord.is_infinite() });
        }
        Err(Error::value(format!(
            "the matrix norm of order {ord} is not supported; expected 1, -1, inf, -inf or fro"
        )))
    }

    fn name(ord: &str) -> Result<Order> {
        match ord {
            "fro" => Ok(Order::Frobenius),
            other => Err(Error::value(format!(
                "the matrix norm {other:?} is not supported; expected 1, -1, inf, -inf or fro"
            ))),
        }
    }

    /// The norm over two dimensions, computed in `dtype`.
    fn apply(&self, x: &Tensor, dims: &[i64], keepdim: bool, dtype: &Value) -> Result<Tensor> {
        let [a, b] = *dims else {
            return Err(Error::value(format!("`dim` must name 2 dimensions, found {dims:?}")));
        };
        let (a, b) = (wrap_dim(a, x.dim())? as i64, wrap_dim(b, x.dim())? as i64);
        if a == b || x.dim() < 2 {
            return Err(Error::value(format!(
                "`dim` must name 2 different dimensions of sizes {}, found {dims:?}",
                dims_text(x.sizes())
            )));
        }
        let x = match dtype.opt(Value::dtype)? {
            Some(d) => x.to_dtype(d),
            None => x.clone(),
        };
        require_float("self", &x)?;
        let Order::Sums { greatest, of_rows } = *self else {
            return Ok(x.linalg_vector_norm(2.0, [a, b], keepdim));
        };
        let (sum, pick) = if of_rows { (b, a) } else { (a, b) };
        let sums = x.abs().sum_dim([sum], true);
        let n = x.sizes()[pick as usize];
        let norm = if !greatest {
            sums.amin([pick], true)
        } else if is_zero(n)? {
            // The maximum of no sums is 0.
            let mut sizes: Dims = sums.sizes().into();
            sizes[pick as usize] = 1.into();
            x.new_zeros(sizes, x.dtype())
        } else {
            require(n.ge(1), || "a trace takes the maximum of at least one sum".into())?;
            sums.amax([pick], true)
        };
        Ok(if keepdim { norm } else { norm.squeeze_dims([a, b]) })
    }
}

fn vector_norm(args: &[Value], ord: f64) -> Result<Tensor> {
    let x = args[0].tensor()?;
    let dims = args[2].opt(Value::ints)?.unwrap_or(&[]);
    let x = args[4].opt(Value::dtype)?.map_or(x.clone(), |d| x.to_dtype(d));
    require_float("self", &x)?;
    Ok(x.linalg_vector_norm(ord, dims, args[3].bool()?))
}

/// The two dimensions of the matrices of a `linalg_norm` call with an order. `None` if the call
/// computes a vector norm.
fn matrix_dims(a: &[Value]) -> Result<Option<[i64; 2]>> {
    let x = a[0].tensor()?;
    let Some(dims) = a[2].opt(Value::ints_i64)? else {
        return match x.dim() {
            1 => Ok(None),
            2 => Ok(Some([0, 1])),
            _ => Err(Error::value(format!(
                "`dim` must be given with `ord`, unless `self` has 1 or 2 dimensions; found sizes \
                    {}",
                dims_text(x.sizes())
            ))),
        };
    };
    match *dims {
        [_] => Ok(None),
        [a, b] => Ok(Some([a, b])),
        _ => Err(Error::value(format!("`dim` must name 1 or 2 dimensions, found {dims:?}"))),
    }
}

fn norm(args: &[Value]) -> Result<Tensor> {
    let Some(ord) = args[1].opt(Value::scalar)? else { return vector_norm(args, 2.0) };
    match matrix_dims(args)? {
        None => vector_norm(args, ord.to_f64()),
        Some(dims) => {
            Order::number(ord.to_f64())?.apply(args[0].tensor()?, &dims, args[3].bool()?, &args[4])
        }
    }
}

fn named_norm(args: &[Value]) -> Result<Tensor> {
    let dims = matrix_dims(args)?
        .ok_or_else(|| Error::value("`dim` must list 2 dimensions for a norm given by name"))?;
    Order::name(args[1].str()?)?.apply(args[0].tensor()?, &dims, args[3].bool()?, &args[4])
}

fn vecdot(x: &Tensor, y: &Tensor, dim: i64) -> Result<Tensor> {
    require_floats(&[("x", x), ("y", y)])?;
    Ok((x * y).sum_dim([dim], false))
}

table! {
    /// Matrix norms and vector products.
    static TABLE = {
        "aten::linalg_matrix_norm(Tensor self, Scalar ord, int[] dim=[-2, -1], \
            bool keepdim=False, *, ScalarType? dtype=None) -> Tensor" => {
            role: General,
            lowering: Lowering::Composite(|a| {
                done(Order::number(a[1].scalar()?.to_f64())?.apply(
                    a[0].tensor()?,
                    &a[2].ints_i64()?,
                    a[3].bool()?,
                    &a[4],
                )?)
            }),
        },
        "aten::linalg_matrix_norm.str_ord(Tensor self, str ord=\"fro\", \
            int[] dim=[-2, -1], bool keepdim=False, *, ScalarType? dtype=None) -> Tensor" => {
            role: General,
            lowering: Lowering::Composite(|a| {
                done(Order::name(a[1].str()?)?.apply(
                    a[0].tensor()?,
                    &a[2].ints_i64()?,
                    a[3].bool()?,
                    &a[4],
                )?)
            }),
        },
        "aten::linalg_norm(Tensor self, Scalar? ord=None, int[1]? dim=None, \
            bool keepdim=False, *, ScalarType? dtype=None) -> Tensor" => {
            role: General,
            lowering: Lowering::Composite(|a| done(norm(a)?)),
        },
        "aten::linalg_norm.ord_str(Tensor self, str ord, int[1]? dim=None, \
            bool keepdim=False, *, ScalarType? dtype=None) -> Tensor" => {
            role: General,
            lowering: Lowering::Composite(|a| done(named_norm(a)?)),
        },
        "aten::linalg_vecdot(Tensor x, Tensor y, *, int dim=-1) -> Tensor" => {
            role: General,
            lowering: Lowering::Composite(
                |a| done(vecdot(a[0].tensor()?, a[1].tensor()?, a[2].int_i64()?)?),
            ),
        },
        "aten::linalg_diagonal(Tensor(a) A, *, int offset=0, int dim1=-2, \
            int dim2=-1) -> Tensor(a)" => {
            role: General,
            lowering: Lowering::View(|_, a| {
                Ok(smallvec![views::diagonal(
                    a[0].tensor()?.meta(),
                    a[1].int_i64()?,
                    a[2].int_i64()?,
                    a[3].int_i64()?
                )?])
            }),
            vjp: crate::grad::PLACED,
        },
    }
}
