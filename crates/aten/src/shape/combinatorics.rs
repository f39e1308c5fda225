//! Grids and combinations of the elements of vectors: `meshgrid`, `cartesian_prod`, `combinations`.

use super::structure::{list, tensors};
use maquette_ir::MemoryFormat;
use maquette_ir::sym::SymInt;
use maquette_ops::operator::dims::{done, require_rank};
use maquette_ops::operator::lowering::Lowering;
use maquette_ops::operator::{host, table};
use maquette_ops::{Dims, Error, Result, Tensor};
use smallvec::smallvec;

/// Expands vectors to a grid. `swapped` is the indexing "xy", which exchanges the first two
/// dimensions.
fn meshgrid(vectors: &[&Tensor], swapped: bool) -> Result<Vec<Tensor>> {
    for (i, t) in vectors.iter().enumerate() {
        require_rank(&format!("tensors[{i}]"), t, 0..=1)?;
        if t.dtype() != vectors[0].dtype() {
            return Err(Error::value(format!(
                "`tensors[{i}]` must have the dtype {} of the first, found {}",
                vectors[0].dtype(),
                t.dtype()
            )));
        }
    }
    let rank = vectors.len();
    let axis = |i: usize| if swapped && rank > 1 && i < 2 { 1 - i } else { i };
    let mut sizes: Dims = smallvec![SymInt::from(1); rank];
    for (i, t) in vectors.iter().enumerate() {
        sizes[axis(i)] = t.numel();
    }
    let grid = |(i, t): (usize, &&Tensor)| {
        let mut one: Dims = smallvec![SymInt::from(1); rank];
        one[axis(i)] = t.numel();
        t.clone_as(MemoryFormat::Contiguous).reshape(one).expand(sizes.clone())
    };
    Ok(vectors.iter().enumerate().map(grid).collect())
}

/// The Cartesian product of vectors, as rows.
fn cartesian_prod(vectors: &[&Tensor]) -> Result<Tensor> {
    for (i, t) in vectors.iter().enumerate() {
        require_rank(&format!("tensors[{i}]"), t, 1..=1)?;
    }
    if let [only] = vectors {
        return Ok(only.clone_tensor());
    }
    let columns: Vec<Tensor> = meshgrid(vectors, false)?.iter().map(|g| g.flatten(0, -1)).collect();
    Ok(Tensor::stack(&columns, 1))
}

/// The binomial coefficient of nonnegative `n` and `r`, if it fits into `i64`.
fn choose(n: i64, r: i64) -> Option<i64> {
    let mut ways = 1i128;
    for i in 1..=r.min(n - r) {
        ways = ways * i128::from(n - r.min(n - r) + i) / i128::from(i);
        i64::try_from(ways).ok()?;
    }
    i64::try_from(ways).ok()
}

/// The combinations of `r` elements, as rows. With `repeat`, elements may occur several times.
fn combinations(x: &Tensor, r: i64, repeat: bool) -> Result<Tensor> {
    require_rank("self", x, 1..=1)?;
    if r < 0 {
        return Err(Error::value(format!("`r` must not be negative, found {r}")));
    }
    if r == 0 {
        return Ok(x.new_empty([0i64], x.dtype()));
    }
    let n = x.sizes()[0];
    let n = n.as_i64().map_or_else(|| n.guard_int(), Ok)?;
    if n == 0 || (!repeat && r > n) {
        return Ok(x.new_empty([0, r], x.dtype()));
    }
    let failed = || {
        Error::value(format!(
            "the combinations of `r` = {r} of {n} elements exceed the available memory"
        ))
    };
    let count = if repeat { n.checked_add(r - 1).and_then(|n| choose(n, r)) } else { choose(n, r) }
        .ok_or_else(failed)?;
    let total =
        count.checked_mul(r).and_then(|total| usize::try_from(total).ok()).ok_or_else(failed)?;
    let mut rows = Vec::new();
    rows.try_reserve_exact(total).map_err(|_| failed())?;
    // Rows are generated in lexicographic order, each from the previous one.
    let mut row = Vec::new();
    row.try_reserve_exact(r as usize).map_err(|_| failed())?;
    row.extend((0..r).map(|i| if repeat { 0 } else { i }));
    let limit = |i: usize| if repeat { n - 1 } else { n - r + i as i64 };
    loop {
        rows.extend_from_slice(&row);
        let Some(i) = (0..row.len()).rev().find(|&i| row[i] < limit(i)) else { break };
        row[i] += 1;
        for k in i + 1..row.len() {
            row[k] = if repeat { row[i] } else { row[k - 1] + 1 };
        }
    }
    Ok(x.index_select(0, &host::on_device_of(x, Tensor::from(rows))).reshape([count, r]))
}

table! {
    /// Grids, Cartesian products and combinations.
    static TABLE = {
        "aten::meshgrid(Tensor[] tensors) -> Tensor[]" => {
            role: General,
            lowering: Lowering::Composite(|a| list(meshgrid(&tensors("tensors", &a[0])?, false)?)),
        },
        "aten::meshgrid.indexing(Tensor[] tensors, *, str indexing) -> Tensor[]" => {
            role: General,
            lowering: Lowering::Composite(|a| match a[1].str()? {
                order @ ("ij" | "xy") => {
                    list(meshgrid(&tensors("tensors", &a[0])?, order == "xy")?)
                }
                other => Err(Error::value(format!("`indexing` must be ij or xy, found {other:?}"))),
            }),
        },
        "aten::cartesian_prod(Tensor[] tensors) -> Tensor" => {
            role: General,
            lowering: Lowering::Composite(|a| done(cartesian_prod(&tensors("tensors", &a[0])?)?)),
        },
        "aten::combinations(Tensor self, int r=2, bool with_replacement=False) -> Tensor" => {
            role: General,
            lowering: Lowering::Composite(|a| {
                done(combinations(a[0].tensor()?, a[1].int_i64()?, a[2].bool()?)?)
            }),
        },
    }
}
