//! Derivatives of distances between points, by their parts.

use crate::grad::parts::parts;
use crate::reduce::derivative::norms::vector_norm;
use maquette_ops::Tensor;
use maquette_ops::operator::Derivative;

/// The lengths of differences along the last dimension, as far as their derivatives go.
fn lengths(difference: &Tensor, p: f64) -> Tensor {
    let last = [difference.dim() as i64 - 1];
    if difference.size(-1).as_i64() == Some(0) {
        return difference.sum_dim(last, false);
    }
    if p != f64::INFINITY {
        return vector_norm(difference, p, &last, false);
    }
    // Of a distance, each of the equal largest coordinates gets the whole gradient; of a norm, they
    // share it. The value is a multiple of the distance, and is not used.
    let sizes = difference.abs();
    let largest = sizes.detach().amax(last, true);
    sizes.eq(largest).where_(&sizes, 0.0).sum_dim(last, false)
}

/// The distance of each pair of rows.
fn pairs(x: &Tensor, y: &Tensor, p: f64) -> Tensor {
    lengths(&(x.unsqueeze(-2) - y.unsqueeze(-3)), p)
}

pub(crate) const CDIST: Derivative =
    parts!(|a| Ok(vec![pairs(a[0].tensor()?, a[1].tensor()?, a[2].float()?)]));

pub(crate) const EUCLIDEAN: Derivative =
    parts!(|a| Ok(vec![pairs(a[0].tensor()?, a[1].tensor()?, 2.0)]));

/// The distances of the pairs of rows of one matrix, each pair once.
pub(crate) const PDIST: Derivative = parts!(|a| {
    let x = a[0].tensor()?;
    let n = x.size(0);
    let above = x.detach().new_ones([n, n], maquette_ir::DType::Bool).triu(1);
    let difference = x.unsqueeze(1) - x.unsqueeze(0);
    let width = x.size(1);
    let mask = above.unsqueeze(-1).expand([n, n, width]);
    let rows = difference.masked_select(&mask).reshape([(n * (n - 1)).floor_div(2), width]);
    Ok(vec![lengths(&rows, a[1].float()?)])
});
