//! Linear systems, inverses and determinants, by LU or Cholesky factorization or by triangular
//! solves.

use super::dense::{Lu, Matrix, lu, solve_triangular};
use super::factor::{check_info, load_pivots, lu_metas, require_pivots, store_pivots};
use super::{columns, common_batch, dense, load, matrix, shape, sizes, square, store};
use crate::shape::views;
use maquette_ir::DType;
use maquette_ir::sym::SymInt;
use maquette_ops::operator::dims::{decide, fresh, is_contiguous, require, require_same_dtype};
use maquette_ops::operator::lowering::{Lowering, Metas};
use maquette_ops::operator::{dims_text, host, table};
use maquette_ops::{Dims, Result, Tensor, Value};
use smallvec::smallvec;

/// Checks a system of a square `a` with right sides `b`: `a x = b`, or `x a = b` unless `left`.
/// Returns the sizes of the solution.
fn system(a: (&str, &Tensor), b: (&str, &Tensor), left: bool) -> Result<Dims> {
    let (_, n) = square(a.0, a.1)?;
    let (_, rows, cols) = matrix(b.0, b.1)?;
    let side = if left { rows } else { cols };
    require(n.eq(side), || {
        format!(
            "argument `{}` {} does not match the equations of `{}` {}",
            b.0,
            dims_text(b.1.sizes()),
            a.0,
            dims_text(a.1.sizes())
        )
    })?;
    Ok(sizes(&common_batch(a, b)?, &[rows, cols]))
}

/// Solves each system of a batch: `a x = b`, or `x a = b` unless `left`.
fn solve_each(
    a: &Tensor,
    b: &Tensor,
    out: &Tensor,
    left: bool,
    solve: impl Fn(Matrix, Matrix) -> Matrix,
) -> Result<()> {
    let batch = &out.sizes()[..out.dim() - 2];
    // `x a = b` is solved as `aᵀ xᵀ = bᵀ`.
    let pairs = load(a, batch)?.into_iter().zip(load(b, batch)?);
    let all: Vec<Matrix> = pairs
        .map(|(a, b)| solve(a.transposed_if(!left), b.transposed_if(!left)).transposed_if(!left))
        .collect();
    store(out, &all)
}

fn triangular(mut b: Matrix, a: &Matrix, upper: bool, unit: bool) -> Matrix {
    solve_triangular(a, &mut b, upper, unit);
    b
}

fn solve_triangular_metas(args: &[Value]) -> Result<Metas> {
    let b = args[1].tensor()?;
    Ok(smallvec![columns(b, system(("self", args[0].tensor()?), ("B", b), args[3].bool()?)?)])
}

fn run_solve_triangular(a: &[Value], out: &Tensor) -> Result<()> {
    let (upper, left, unit) = (a[2].bool()?, a[3].bool()?, a[4].bool()?);
    solve_each(a[0].tensor()?, a[1].tensor()?, out, left, |a, b| {
        triangular(b, &a, upper == left, unit)
    })
}

/// `triangular_solve` takes the right sides as `self`.
fn triangular_solve_metas(args: &[Value]) -> Result<Metas> {
    let (b, x) = (args[0].tensor()?, args[1].tensor()?);
    let solution = system(("A", x), ("self", b), true)?;
    let (batch, n) = (&solution[..solution.len() - 2], x.sizes()[x.dim() - 1]);
    let coefficients = columns(x, sizes(batch, &[n, n]));
    Ok(smallvec![columns(b, solution), coefficients])
}

fn triangular_solve(a: &[Value], out: &[Tensor]) -> Result<()> {
    let (b, x) = (a[0].tensor()?, a[1].tensor()?);
    let (upper, transposed, unit) = (a[2].bool()?, a[3].bool()?, a[4].bool()?);
    solve_each(x, b, &out[0], true, |a, b| {
        triangular(b, &a.transposed_if(transposed), upper != transposed, unit)
    })?;
    store(&out[1], &load(x, &out[1].sizes()[..out[1].dim() - 2])?)
}

/// Solves with a Cholesky factor: one triangular solve, then one with the transpose.
fn with_factor(factor: Matrix, b: Matrix, upper: bool) -> Matrix {
    let lower = factor.transposed_if(upper);
    let half = triangular(b, &lower, false, false);
    triangular(half, &lower.transposed(), true, false)
}

fn cholesky_solve_metas(args: &[Value]) -> Result<Metas> {
    let b = args[0].tensor()?;
    Ok(smallvec![columns(b, system(("input2", args[1].tensor()?), ("self", b), true)?)])
}

fn cholesky_inverse(args: &[Value], out: &Tensor) -> Result<()> {
    let (x, upper) = (args[0].tensor()?, args[1].bool()?);
    let inverse = |m: Matrix| {
        let n = m.rows;
        with_factor(m, Matrix::identity(n, n), upper)
    };
    store(out, &load(x, square("self", x)?.0)?.into_iter().map(inverse).collect::<Vec<_>>())
}

fn inv_metas(args: &[Value]) -> Result<Metas> {
    let x = args[0].tensor()?;
    let (batch, _) = square("A", x)?;
    Ok(smallvec![columns(x, x.sizes().into()), fresh(x, batch.into(), DType::I32)])
}

fn inv(args: &[Value], out: &[Tensor]) -> Result<()> {
    let x = args[0].tensor()?;
    let all: Vec<Lu> = load(x, square("A", x)?.0)?.into_iter().map(lu).collect();
    let info: Vec<f64> = all.iter().map(|f| f.info as f64).collect();
    check_info(&info, args[1].bool()?, "is singular")?;
    store(
        &out[0],
        &all.iter()
            .map(|f| f.solve(Matrix::identity(f.factors.rows, f.factors.rows), false))
            .collect::<Vec<_>>(),
    )?;
    host::store_reals(&out[1], &info)
}

/// Factorizes each matrix. With `or_transpose`, row-major matrices are factorized transposed:
/// PyTorch does so, because LAPACK is column-major and no copy is needed.
fn factorised(x: &Tensor, or_transpose: bool) -> Result<Vec<Lu>> {
    let transposed = or_transpose && is_contiguous(x.sizes(), x.strides())?;
    Ok(load(x, square("A", x)?.0)?.into_iter().map(|m| lu(m.transposed_if(transposed))).collect())
}

/// The metadata of `numbers` results for each matrix, followed by the factorization.
fn det_metas(args: &[Value], numbers: usize) -> Result<Metas> {
    let x = args[0].tensor()?;
    let (batch, _) = square("A", x)?;
    let [factors, pivots, _] = lu_metas("A", x)?;
    Ok(std::iter::repeat_n(fresh(x, batch.into(), x.dtype()), numbers)
        .chain([factors, pivots])
        .collect())
}

fn store_factors(all: &[Lu], out: &[Tensor]) -> Result<()> {
    store(&out[0], all.iter().map(|f| &f.factors))?;
    store_pivots(&out[1], all.iter().map(|f| &f.pivots))
}

fn det(args: &[Value], out: &[Tensor]) -> Result<()> {
    let all = factorised(args[0].tensor()?, true)?;
    host::store_reals(&out[0], &all.iter().map(Lu::det).collect::<Vec<_>>())?;
    store_factors(&all, &out[1..])
}

fn slogdet(args: &[Value], out: &[Tensor]) -> Result<()> {
    let all = factorised(args[0].tensor()?, true)?;
    let (signs, logs): (Vec<f64>, Vec<f64>) = all.iter().map(Lu::slogdet).unzip();
    host::store_reals(&out[0], &signs)?;
    host::store_reals(&out[1], &logs)?;
    store_factors(&all, &out[2..])
}

/// Whether sizes of one rank are equal.
fn are_equal(a: &[SymInt], b: &[SymInt]) -> Result<bool> {
    a.iter().zip(b).try_fold(true, |all, (&n, &m)| Ok(all && decide(n.eq(m))?))
}

/// Whether `b` is a batch of vectors rather than matrices, and the sizes of the solution.
fn right_sides(a: &Tensor, b: &Tensor, left: bool) -> Result<(bool, Dims)> {
    square("A", a)?;
    let lead = &a.sizes()[..a.dim() - 1];
    // The sizes decide the rank of the result, so symbolic ones are guarded.
    let vectors = b.dim() == 1 || b.dim() == lead.len() && are_equal(b.sizes(), lead)?;
    if !vectors {
        return Ok((false, system(("A", a), ("B", b), left)?));
    }
    require(left.into(), || {
        format!("`left` must be true if `B` holds vectors, found sizes {}", dims_text(b.sizes()))
    })?;
    let column = Tensor::fake_of(views::unsqueeze(b.meta(), -1)?);
    let mut all = system(("A", a), ("B", &column), true)?;
    all.pop();
    Ok((true, all))
}

fn solve_metas(args: &[Value]) -> Result<Metas> {
    let (x, b, left) = (args[0].tensor()?, args[1].tensor()?, args[2].bool()?);
    require_same_dtype(("A", x), ("B", b))?;
    let (_, result) = right_sides(x, b, left)?;
    let result = if left { columns(b, result) } else { fresh(b, result, b.dtype()) };
    let [factors, pivots, info] = lu_metas("A", x)?;
    Ok(smallvec![result, factors, pivots, info])
}

fn solve(a: &[Value], out: &[Tensor]) -> Result<()> {
    let (x, b, left) = (a[0].tensor()?, a[1].tensor()?, a[2].bool()?);
    let all = factorised(x, false)?;
    let info: Vec<f64> = all.iter().map(|f| f.info as f64).collect();
    check_info(&info, a[3].bool()?, "is singular")?;
    let (vectors, _) = right_sides(x, b, left)?;
    let column = |t: &Tensor| {
        if vectors { t.view_of(views::unsqueeze(t.meta(), -1)?) } else { Ok(t.clone()) }
    };
    solve_each(x, &column(b)?, &column(&out[0])?, left, |a, b| lu(a).solve(b, false))?;
    store_factors(&all, &out[1..])?;
    host::store_reals(&out[3], &info)
}

fn lu_solve_metas(args: &[Value]) -> Result<Metas> {
    let (factors, b, left) = (args[0].tensor()?, args[2].tensor()?, args[3].bool()?);
    let (batch, n) = square("LU", factors)?;
    require_pivots("pivots", args[1].tensor()?, batch, n)?;
    let result = system(("LU", factors), ("B", b), left)?;
    Ok(smallvec![if left { columns(b, result) } else { fresh(b, result, b.dtype()) }])
}

fn lu_solve(args: &[Value], out: &Tensor) -> Result<()> {
    let (factors, pivots, b) = (args[0].tensor()?, args[1].tensor()?, args[2].tensor()?);
    let (left, adjoint) = (args[3].bool()?, args[4].bool()?);
    let batch = &out.sizes()[..out.dim() - 2];
    let (_, n, _) = shape("LU", factors)?;
    let expanded = pivots.view_of(views::expand(pivots.meta(), &sizes(batch, &[n]))?)?;
    let rows = n.as_i64().unwrap_or(0).max(0) as usize;
    let all =
        load(factors, batch)?.into_iter().zip(load_pivots(&expanded, rows)?).zip(load(b, batch)?);
    let solved = |((factors, pivots), b): ((Matrix, Vec<usize>), Matrix)| {
        Lu { factors, pivots, info: 0 }
            .solve(b.transposed_if(!left), adjoint == left)
            .transposed_if(!left)
    };
    store(out, &all.map(solved).collect::<Vec<_>>())
}

/// The results `picked` of a call of `op`.
fn some(op: &str, args: maquette_ops::Args, picked: &[usize]) -> Result<maquette_ops::Outputs> {
    let out = maquette_ops::call(op, args)?;
    picked.iter().map(|&i| Ok(Value::from(super::tensor(&out, i)?))).collect()
}

fn to_args(args: &[Value]) -> maquette_ops::Args {
    args.iter().cloned().collect()
}

fn with_check(args: &[Value], check: bool) -> maquette_ops::Args {
    args.iter().cloned().chain([Value::Bool(check)]).collect()
}

/// The metadata of `self`, which must hold square matrices.
fn square_like(args: &[Value]) -> Result<Metas> {
    let x = args[0].tensor()?;
    square("self", x)?;
    Ok(smallvec![columns(x, x.sizes().into())])
}

table! {
    /// Systems, inverses and determinants.
    static TABLE = {
        "aten::triangular_solve(Tensor self, Tensor A, bool upper=True, \
            bool transpose=False, \
            bool unitriangular=False) -> (Tensor solution, Tensor cloned_coefficient)" => {
            role: General,
            lowering: dense(|_, a| triangular_solve_metas(a), triangular_solve),
            vjp: crate::grad::TRIANGULAR_SOLVE,
        },
        "aten::linalg_solve_triangular(Tensor self, Tensor B, *, bool upper, \
            bool left=True, bool unitriangular=False) -> Tensor" => {
            role: General,
            lowering: dense(
                |_,
                a| solve_triangular_metas(a),
                |a,
                out| run_solve_triangular(a, &out[0]),
            ),
            vjp: crate::grad::TRIANGULAR,
        },
        "aten::cholesky_solve(Tensor self, Tensor input2, bool upper=False) -> Tensor" => {
            role: General,
            lowering: dense(
                |_, a| cholesky_solve_metas(a),
                |a, out| {
                    let upper = a[2].bool()?;
                    solve_each(a[1].tensor()?, a[0].tensor()?, &out[0], true, |factor, b| {
                        with_factor(factor, b, upper)
                    })
                },
            ),
            vjp: crate::grad::CHOLESKY_SOLVE,
        },
        "aten::cholesky_inverse(Tensor self, bool upper=False) -> Tensor" => {
            role: General,
            lowering: dense(|_, a| square_like(a), |a, out| cholesky_inverse(a, &out[0])),
            vjp: crate::grad::CHOLESKY_INVERSE,
        },
        "aten::linalg_inv_ex(Tensor A, *, \
            bool check_errors=False) -> (Tensor inverse, Tensor info)" => {
            role: General,
            lowering: dense(|_, a| inv_metas(a), inv),
            vjp: crate::grad::INVERSE,
        },
        "aten::linalg_inv(Tensor A) -> Tensor" => {
            role: General,
            lowering: Lowering::Composite(
                |a| some("aten::linalg_inv_ex", with_check(a, true), &[0]),
            ),
        },
        "aten::inverse(Tensor self) -> Tensor" => {
            role: General,
            lowering: Lowering::Composite(
                |a| some("aten::linalg_inv_ex", with_check(a, true), &[0]),
            ),
        },
        "aten::_linalg_det(Tensor A) -> (Tensor result, Tensor LU, Tensor pivots)" => {
            role: General,
            lowering: dense(|_, a| det_metas(a, 1), det),
            vjp: crate::grad::DETERMINANT,
        },
        "aten::linalg_det(Tensor A) -> Tensor" => {
            role: General,
            lowering: Lowering::Composite(|a| some("aten::_linalg_det", to_args(a), &[0])),
        },
        "aten::det(Tensor self) -> Tensor" => {
            role: General,
            lowering: Lowering::Composite(|a| some("aten::_linalg_det", to_args(a), &[0])),
        },
        "aten::_linalg_slogdet(Tensor A) \
            -> (Tensor sign, Tensor logabsdet, Tensor LU, Tensor pivots)" => {
            role: General,
            lowering: dense(|_, a| det_metas(a, 2), slogdet),
            vjp: crate::grad::LOG_DETERMINANT,
        },
        "aten::linalg_slogdet(Tensor A) -> (Tensor sign, Tensor logabsdet)" => {
            role: General,
            lowering: Lowering::Composite(|a| some("aten::_linalg_slogdet", to_args(a), &[0, 1])),
        },
        "aten::slogdet(Tensor self) -> (Tensor sign, Tensor logabsdet)" => {
            role: General,
            lowering: Lowering::Composite(|a| some("aten::_linalg_slogdet", to_args(a), &[0, 1])),
        },
        "aten::_linalg_solve_ex(Tensor A, Tensor B, *, bool left=True, \
            bool check_errors=False) -> (Tensor result, Tensor LU, Tensor pivots, Tensor info)" => {
            role: General,
            lowering: dense(|_, a| solve_metas(a), solve),
            vjp: crate::grad::SOLVE,
        },
        "aten::linalg_solve_ex(Tensor A, Tensor B, *, bool left=True, \
            bool check_errors=False) -> (Tensor result, Tensor info)" => {
            role: General,
            lowering: Lowering::Composite(|a| some("aten::_linalg_solve_ex", to_args(a), &[0, 3])),
        },
        "aten::linalg_solve(Tensor A, Tensor B, *, bool left=True) -> Tensor" => {
            role: General,
            lowering: Lowering::Composite(
                |a| some("aten::_linalg_solve_ex", with_check(a, true), &[0]),
            ),
        },
        "aten::linalg_lu_solve(Tensor LU, Tensor pivots, Tensor B, *, bool left=True, \
            bool adjoint=False) -> Tensor" => {
            role: General,
            lowering: dense(|_, a| lu_solve_metas(a), |a, out| lu_solve(a, &out[0])),
            vjp: crate::grad::LU_SOLVE,
        },
    }
}
