//! Products of many matrices (`linalg_multi_dot`, `chain_matmul`) and powers of one
//! (`linalg_matrix_power`).
//!
//! The order of a chain of products is found by dynamic programming over its intervals
//! (matrix-chain multiplication): O(n³) time and O(n²) memory for n factors. A power takes O(log n)
//! products by repeated squaring.

use super::shape;
use crate::shape::structure::tensors;
use maquette_ir::MemoryFormat;
use maquette_ir::sym::SymInt;
use maquette_ops::operator::dims::{done, require, require_rank};
use maquette_ops::operator::lowering::Lowering;
use maquette_ops::operator::{dims_text, table};
use maquette_ops::{Error, Result, Tensor};

/// The best split of each interval of factors: `split[i][j]` is the last factor of the left part of
/// the product of factors `i` to `j`. `edges` are the rows of the factors, followed by the columns
/// of the last one.
fn best_splits(edges: &[f64]) -> Vec<Vec<usize>> {
    let n = edges.len() - 1;
    let (mut cost, mut split) = (vec![vec![0.0; n]; n], vec![vec![0; n]; n]);
    for length in 1..n {
        for i in 0..n - length {
            let j = i + length;
            cost[i][j] = f64::INFINITY;
            for k in i..j {
                let c = cost[i][k] + cost[k + 1][j] + edges[i] * edges[k + 1] * edges[j + 1];
                if c < cost[i][j] {
                    (cost[i][j], split[i][j]) = (c, k);
                }
            }
        }
    }
    split
}

fn multiply(factors: &[Tensor], split: &[Vec<usize>], i: usize, j: usize) -> Tensor {
    if i == j {
        return factors[i].clone();
    }
    let k = split[i][j];
    multiply(factors, split, i, k).mm(&multiply(factors, split, k + 1, j))
}

/// Multiplies matrices in the order that costs least. Symbolic sizes count as large, so that the
/// order needs no guard.
fn product(factors: &[Tensor]) -> Result<Tensor> {
    let mut edges = Vec::with_capacity(factors.len() + 1);
    for (i, t) in factors.iter().enumerate() {
        require_rank(&format!("tensors[{i}]"), t, 2..=2)?;
        edges.push(t.sizes()[0]);
    }
    edges.extend(factors.last().map(|t| t.sizes()[1]));
    let edges: Vec<f64> =
        edges.into_iter().map(|n: SymInt| n.as_i64().unwrap_or(1 << 20) as f64).collect();
    Ok(multiply(factors, &best_splits(&edges), 0, factors.len() - 1))
}

/// `linalg_multi_dot`: a first factor of one dimension is a row, and a last one is a column.
fn multi_dot(matrices: &[&Tensor]) -> Result<Tensor> {
    let [first, .., last] = matrices else {
        return Err(Error::value(format!(
            "`tensors` must hold at least 2 matrices, found {}",
            matrices.len()
        )));
    };
    let (row, column) = (first.dim() == 1, last.dim() == 1);
    let mut factors: Vec<Tensor> = matrices.iter().map(|t| (*t).clone()).collect();
    if let (true, Some(t)) = (row, factors.first_mut()) {
        *t = t.unsqueeze(0);
    }
    if let (true, Some(t)) = (column, factors.last_mut()) {
        *t = t.unsqueeze(1);
    }
    let out = product(&factors)?;
    let out = if column { out.squeeze_dim(1) } else { out };
    Ok(if row { out.squeeze_dim(0) } else { out })
}

fn chain_matmul(matrices: &[&Tensor]) -> Result<Tensor> {
    match matrices {
        [only] => {
            require_rank("matrices[0]", only, 2..=2)?;
            Ok(only.clone_tensor())
        }
        many => product(&many.iter().map(|t| (*t).clone()).collect::<Vec<_>>()),
    }
}

/// The power by repeated squaring. A negative power is a power of the inverse.
fn power(x: &Tensor, n: i64) -> Result<Tensor> {
    let (_, rows, cols) = shape("self", x)?;
    require(rows.eq(cols), || {
        format!("argument `self` must hold square matrices, found sizes {}", dims_text(x.sizes()))
    })?;
    if n == 0 {
        let ones = Tensor::eye(rows, x.dtype());
        return Ok(ones.expand(x.sizes()).clone_as(MemoryFormat::Contiguous));
    }
    if n == 1 {
        return Ok(x.clone_as(MemoryFormat::Contiguous));
    }
    let mut square = if n < 0 { x.linalg_inv() } else { x.clone() };
    let (mut left, mut result) = (n.unsigned_abs(), None::<Tensor>);
    loop {
        if left & 1 == 1 {
            result = Some(result.map_or(square.clone(), |r| r.matmul(&square)));
        }
        left >>= 1;
        match result {
            Some(r) if left == 0 => return Ok(r),
            _ => square = square.matmul(&square),
        }
    }
}

table! {
    /// Chains and powers.
    static TABLE = {
        "aten::linalg_multi_dot(Tensor[] tensors) -> Tensor" => {
            role: General,
            lowering: Lowering::Composite(|a| done(multi_dot(&tensors("tensors", &a[0])?)?)),
        },
        "aten::chain_matmul(Tensor[] matrices) -> Tensor" => {
            role: General,
            lowering: Lowering::Composite(|a| done(chain_matmul(&tensors("matrices", &a[0])?)?)),
        },
        "aten::linalg_matmul(Tensor self, Tensor other) -> Tensor" => {
            role: General,
            lowering: Lowering::Composite(|a| done(a[0].tensor()?.matmul(a[1].tensor()?))),
        },
        "aten::linalg_matrix_power(Tensor self, int n) -> Tensor" => {
            role: General,
            lowering: Lowering::Composite(|a| done(power(a[0].tensor()?, a[1].int_i64()?)?)),
        },
        "aten::matrix_power(Tensor self, int n) -> Tensor" => {
            role: General,
            lowering: Lowering::Composite(|a| done(power(a[0].tensor()?, a[1].int_i64()?)?)),
        },
    }
}
