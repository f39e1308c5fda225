//! Embeddings: the rows of a table that indices name.

use maquette_ir::loops::named;
use maquette_kernels as kernels;
use maquette_ops::operator::cpu_exec::{input, output};
use maquette_ops::operator::dims::{fresh, require_float, require_index, require_rank};
use maquette_ops::operator::lowering::{Class, Compute, How, Lowering, Metas, Strides};
use maquette_ops::operator::{require_same, table};
use maquette_ops::{Dims, Error, Result, Tensor, Value};
use smallvec::smallvec;

fn rows_metas(args: &[Value]) -> Result<Metas> {
    let (weight, index) = (args[0].tensor()?, args[1].tensor()?);
    require_rank("weight", weight, 2..=2)?;
    require_index("indices", index)?;
    let sizes = index.sizes().iter().copied().chain([weight.sizes()[1]]).collect();
    Ok(smallvec![fresh(weight, sizes, weight.dtype())])
}

/// The gradient of the table, of sizes `[num_weights, D]`.
#[track_caller]
fn backward_metas(args: &[Value]) -> Result<Metas> {
    let (grad, index, rows) = (args[0].tensor()?, args[1].tensor()?, args[2].int()?);
    require_float("grad_output", grad)?;
    require_index("indices", index)?;
    let Some(width) = grad.sizes().last().copied() else {
        return Err(Error::value("argument `grad_output` must have at least one dimension"));
    };
    if rows.as_i64().is_some_and(|n| n < 0) {
        return Err(Error::value(format!("`num_weights` must not be negative, found {rows}")));
    }
    let expected: Dims = index.sizes().iter().copied().chain([width]).collect();
    require_same(&expected, grad.sizes(), || "argument `grad_output` must have".into())?;
    Ok(smallvec![fresh(grad, smallvec![rows, width], grad.dtype())])
}

fn backward(args: &[Value], outs: &[Tensor]) -> Result<()> {
    let (grad, indices) = (input(args[0].tensor()?)?, input(args[1].tensor()?)?);
    let [out] = outs else { return Err(Error::value("one gradient is written")) };
    let (padding, by_frequency) = (args[3].int_i64()?, args[4].bool()?);
    Ok(kernels::embedding_backward(&grad, &indices, padding, by_frequency, &mut output(out)?)?)
}

table! {
    /// Embeddings.
    static TABLE = {
        "aten::embedding(Tensor weight, Tensor indices, SymInt padding_idx=-1, \
            bool scale_grad_by_freq=False, bool sparse=False) -> Tensor" => {
            role: General,
            lowering: Lowering::Compute(Compute {
                class: Class::Gather,
                strides: Strides::RowMajor,
                metas: |_, a| rows_metas(a),
                how: How::Loops(|cx| {
                    let (weight, indices) = (cx.input(0)?, cx.input(1)?);
                    Ok(smallvec![named::select(&mut cx.nest, &weight, 0, &indices)?.into()])
                }),
            }),
            vjp: crate::grad::EMBEDDING,
        },
        "aten::embedding_dense_backward(Tensor grad_output, Tensor indices, \
            SymInt num_weights, SymInt padding_idx, bool scale_grad_by_freq) -> Tensor" => {
            role: General,
            lowering: Lowering::Compute(Compute {
                class: Class::Scatter,
                strides: Strides::RowMajor,
                metas: |_, a| backward_metas(a),
                how: How::Kernel(backward),
            }),
            vjp: crate::grad::EMBEDDING_BACKWARD,
        },
    }
}
