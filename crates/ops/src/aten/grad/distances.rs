//! Derivatives of distances between points, by their parts.

use super::norms::vector_norm;
use super::parts::parts;
use crate::aten::Derivative;
use crate::tensor::Tensor;

/// The distance of each pair of rows.
fn pairs(x: &Tensor, y: &Tensor, p: f64) -> Tensor {
    let difference = x.unsqueeze(-2) - y.unsqueeze(-3);
    match difference.size(-1).as_i64() {
        Some(0) => difference.sum_dim([-1i64], false),
        _ => {
            let last = difference.dim() as i64 - 1;
            vector_norm(&difference, p, &[last], false)
        }
    }
}

pub(in crate::aten) const CDIST: Derivative =
    parts!(|a| Ok(vec![pairs(a[0].tensor()?, a[1].tensor()?, a[2].float()?)]));

pub(in crate::aten) const EUCLIDEAN: Derivative =
    parts!(|a| Ok(vec![pairs(a[0].tensor()?, a[1].tensor()?, 2.0)]));

/// The distances of the pairs of rows of one matrix, each pair once.
pub(in crate::aten) const PDIST: Derivative = parts!(|a| {
    let x = a[0].tensor()?;
    let n = x.size(0);
    let above = x.detach().new_ones([n, n], maquette_ir::DType::Bool).triu(1);
    let difference = x.unsqueeze(1) - x.unsqueeze(0);
    let width = x.size(1);
    let mask = above.unsqueeze(-1).expand([n, n, width]);
    let rows = difference.masked_select(&mask).reshape([(n * (n - 1)).floor_div(2), width]);
    Ok(vec![match width.as_i64() {
        Some(0) => rows.sum_dim([-1i64], false),
        _ => vector_norm(&rows, a[1].float()?, &[1], false),
    }])
});
