//! Vector norms over dimensions: `norm` and `linalg_vector_norm`.

use super::lowering::{How, Lowering, Metas};
use super::reduce::{averaged, every, fold_cast, listed, picked, reduced, reduction, t};
use super::table;
use crate::dispatch::value::Value;
use crate::error::Result;
use crate::tensor::Tensor;
use maquette_ir::Scalar;
use maquette_kernels::ReduceOp;
use smallvec::smallvec;

fn norm_order(p: &Value) -> Result<f64> {
    Ok(p.opt(Value::scalar)?.map_or(2.0, Scalar::to_f64))
}

/// The metadata of a norm. Norms of infinite or negative order have no value for no elements.
fn norm_meta(args: &[Value], dims: &[usize], keepdim: bool, dtype: &Value) -> Result<Metas> {
    let (x, p) = (t(args)?, norm_order(&args[1])?);
    let of = if p < 0.0 || p.is_infinite() {
        picked
    } else {
        |x: &Tensor, d: &[usize], k, t| Ok(reduced(x, d, k, t))
    };
    Ok(smallvec![of(x, dims, keepdim, averaged(x, dtype, "a norm")?)?])
}

fn norm(args: &[Value], outs: &[Tensor], dims: &[usize]) -> Result<()> {
    let p = norm_order(&args[1])?;
    let (x, out) = (args[0].tensor()?, &outs[0]);
    fold_cast(ReduceOp::Norm(p), x, dims, out)
}

table! {
    /// Vector norms.
    pub(super) static TABLE = {
        General "aten::norm.Scalar(Tensor self, Scalar p=2) -> Tensor" =>
            reduction(
                |_, a| norm_meta(a, &every(t(a)?), false, &Value::None),
                How::Host(|a, o| norm(a, o, &every(t(a)?))),
            ),
        General "aten::norm.ScalarOpt_dtype(Tensor self, Scalar? p, *, \
            ScalarType dtype) -> Tensor" =>
            Lowering::Composite(|a| {
                crate::call(
                    "aten::norm.ScalarOpt_dim",
                    crate::args![
                        t(a)?.to_dtype(a[2].dtype()?),
                        a[1].clone(),
                        Value::from_dims([0i64; 0])
                    ],
                )
            }),
        General "aten::norm.ScalarOpt_dim_dtype(Tensor self, Scalar? p, int[1] dim, bool keepdim, \
            *, ScalarType dtype) -> Tensor" =>
            Lowering::Composite(|a| {
                crate::call(
                    "aten::norm.ScalarOpt_dim",
                    crate::args![
                        t(a)?.to_dtype(a[4].dtype()?),
                        a[1].clone(),
                        a[2].clone(),
                        a[3].clone()
                    ],
                )
            }),
        General "aten::norm.ScalarOpt_dim(Tensor self, Scalar? p, int[1] dim, \
            bool keepdim=False) -> Tensor" =>
            reduction(
                |_, a| norm_meta(a, &listed(t(a)?, &a[2])?, a[3].bool()?, &Value::None),
                How::Host(|a, o| norm(a, o, &listed(t(a)?, &a[2])?)),
            ),
        General "aten::linalg_vector_norm(Tensor self, Scalar ord=2, int[1]? dim=None, \
            bool keepdim=False, *, ScalarType? dtype=None) -> Tensor" =>
            reduction(
                |_, a| norm_meta(a, &listed(t(a)?, &a[2])?, a[3].bool()?, &a[4]),
                How::Host(|a, o| norm(a, o, &listed(t(a)?, &a[2])?)),
            ),
    }
}
