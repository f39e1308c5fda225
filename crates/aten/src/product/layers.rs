//! Layers outside the other families: `bilinear` and `prelu`.

use super::einsum::{Label, Labelled, contract};
use crate::shape::views::wrap_dims;
use maquette_ir::scalar_expr::{BinaryOp, CmpOp, Reg};
use maquette_ir::sym::SymInt;
use maquette_ops::operator::dims::{done, require, require_rank};
use maquette_ops::operator::lowering::{Formula, Lowering, Types};
use maquette_ops::operator::require_same;
use maquette_ops::operator::{Pointwise, dims_text, table};
use maquette_ops::{Dims, Error, Outputs, Result, Tensor, Value};
use smallvec::smallvec;

/// `_trilinear`: multiplies three tensors, after inserting dimensions of size 1, and sums over
/// `sumdim`. The first two operands are contracted first.
fn trilinear(args: &[Value]) -> Result<Tensor> {
    let rank = args[0].tensor()?.dim() + args[3].ints()?.len();
    let dims =
        |i: usize| -> Result<Vec<usize>> { Ok(wrap_dims(&args[i].ints_i64()?, rank)?.into_vec()) };
    let operand = |i: usize| -> Result<Labelled> {
        let (tensor, expanded) = (args[i].tensor()?.clone(), dims(3 + i)?);
        if tensor.dim() + expanded.len() != rank {
            let sizes = dims_text(tensor.sizes());
            return Err(Error::value(format!(
                "`i{}` {sizes} and its {} new dimensions must make {rank}",
                i + 1,
                expanded.len()
            )));
        }
        Ok(Labelled {
            tensor,
            labels: (0..rank).filter(|d| !expanded.contains(d)).map(Label::Number).collect(),
        })
    };
    let (summed, third) = (dims(6)?, operand(2)?);
    let kept = |l: Label| !matches!(l, Label::Number(d) if summed.contains(&d));
    let later = third.labels.clone();
    let product = contract(
        contract(operand(0)?, operand(1)?, |l| kept(l) || later.contains(&l))?,
        third,
        kept,
    )?;
    let order: Vec<Label> = (0..rank).map(Label::Number).filter(|&l| kept(l)).collect();
    // A dimension that no operand has was inserted and has size 1.
    let missing = order
        .iter()
        .enumerate()
        .filter(|(_, l)| !product.labels.contains(l))
        .map(|(d, _)| d as i64);
    Ok(missing.fold(product.arranged(&order), |t, d| t.unsqueeze(d)).contiguous())
}

/// `x1ᵀ W x2 + bias` over the last dimensions of `x1` and `x2`.
fn bilinear(x1: &Tensor, x2: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
    require_rank("weight", weight, 3..=3)?;
    require_rank("input1", x1, 1..=64)?;
    let lead = x1.dim() - 1;
    require_same(&x1.sizes()[..lead], &x2.sizes()[..x2.dim().saturating_sub(1)], || {
        "argument `input2` must have, before its last dimension,".into()
    })?;
    let w = weight.sizes();
    for (name, x, width) in [("input1", x1, w[1]), ("input2", x2, w[2])] {
        require_same(&[width], &x.sizes()[lead..], || {
            format!("argument `{name}` must end, as `weight` says, in")
        })?;
    }
    let count = maquette_ops::operator::dims::product(&x1.sizes()[..lead]);
    let (flat1, flat2) = (x1.reshape([count, w[1]]), x2.reshape([count, w[2]]));
    let args = maquette_ops::args![
        flat1,
        weight,
        flat2,
        Value::from_dims([1i64, 3]),
        Value::from_dims([0i64]),
        Value::from_dims([1i64, 2]),
        Value::from_dims([2i64, 3])
    ];
    let out = maquette_ops::call("aten::_trilinear", args)?;
    let sizes: Dims = x1.sizes()[..lead].iter().copied().chain([w[0]]).collect();
    let out = crate::linalg::tensor(&out, 0)?.reshape(sizes);
    Ok(bias.map_or(out.clone(), |b| out + b))
}

/// `x` if `x > 0`, else `weight * x`.
fn prelu_kernel(cx: &mut maquette_ops::operator::PointwiseCx) -> Result<Reg> {
    if !cx.dtype.is_float() {
        return Err(Error::value(format!("`prelu` takes floats, found {}", cx.dtype)));
    }
    let (x, w) = (cx.arg(0)?, cx.arg(1)?);
    let zero = cx.b.constant(0, cx.dtype);
    let positive = cx.b.compare(CmpOp::Gt, x, zero).map_err(Error::other)?;
    let scaled = cx.b.binary(BinaryOp::Mul, w, x).map_err(Error::other)?;
    cx.b.select(positive, x, scaled).map_err(Error::other)
}

fn prelu(x: &Tensor, weight: &Tensor) -> Result<Outputs> {
    require_rank("weight", weight, 0..=1)?;
    maquette_ops::operator::dims::require_same_dtype(("self", x), ("weight", weight))?;
    let channels = x.sizes().get(1).copied().unwrap_or(1.into());
    let mut sizes: Dims = smallvec![SymInt::from(1); x.dim()];
    if weight.numel().as_i64() != Some(1) {
        let mismatch = || {
            format!(
                "`weight` must hold one number, or one for each of {channels} channels, found \
                    sizes {}",
                dims_text(weight.sizes())
            )
        };
        require(weight.numel().eq(channels), mismatch)?;
        if let Some(n) = sizes.get_mut(1) {
            *n = channels;
        }
    }
    maquette_ops::call("aten::_prelu_kernel", maquette_ops::args![x, weight.reshape(sizes)])
}

table! {
    /// `bilinear` and `prelu`.
    static TABLE = {
        "aten::_trilinear(Tensor i1, Tensor i2, Tensor i3, int[] expand1, int[] expand2, \
            int[] expand3, int[] sumdim, int unroll_dim=1) -> Tensor" => {
            role: General,
            lowering: Lowering::Composite(|a| done(trilinear(a)?)),
        },
        "aten::bilinear(Tensor input1, Tensor input2, Tensor weight, \
            Tensor? bias=None) -> Tensor" => {
            role: General,
            lowering: Lowering::Composite(|a| {
                done(bilinear(a[0].tensor()?, a[1].tensor()?, a[2].tensor()?, a[3].opt_tensor()?)?)
            }),
        },
        "aten::_prelu_kernel(Tensor self, Tensor weight) -> Tensor" => {
            role: General,
            lowering: Lowering::Pointwise(
                Pointwise { types: Types::Promote, build: Formula::Built(prelu_kernel) },
            ),
        },
        "aten::prelu(Tensor self, Tensor weight) -> Tensor" => {
            role: General,
            lowering: Lowering::Composite(|a| prelu(a[0].tensor()?, a[1].tensor()?)),
        },
    }
}
