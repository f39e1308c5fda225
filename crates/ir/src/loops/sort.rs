//! The order of sorts.

use crate::Scalar;
use std::cmp::Ordering;

/// The coordinates of a line's values in sorted order, equal ones in their order. NaN is greater
/// than every number and equal to itself.
pub(super) fn sorted(values: &[Scalar], descending: bool) -> Vec<usize> {
    let mut coords: Vec<usize> = (0..values.len()).collect();
    coords.sort_by(|&a, &b| {
        let order = order(values[a], values[b]);
        if descending { order.reverse() } else { order }
    });
    coords
}

fn order(a: Scalar, b: Scalar) -> Ordering {
    match (a, b) {
        (Scalar::Float(a), Scalar::Float(b)) => {
            a.partial_cmp(&b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
        }
        (a, b) => a.to_i64().cmp(&b.to_i64()),
    }
}
