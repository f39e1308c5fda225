//! Factorizations: LU, Cholesky, QR, and the Householder reflections of QR. The algorithms are in
//! `dense`.

use super::dense::{Matrix, cholesky, householder, lu, reflect};
use super::{columns, dense, load, load_rows, matrix, sizes, square, store};
use maquette_ir::DType;
use maquette_ir::sym::SymInt;
use maquette_ops::operator::Derivative;
use maquette_ops::operator::dims::{fresh, require, require_same_dtype};
use maquette_ops::operator::lowering::{Lowering, Metas};
use maquette_ops::operator::require_same;
use maquette_ops::operator::{dims_text, host, table};
use maquette_ops::{Dims, Error, Meta, Result, Tensor, Value};
use smallvec::smallvec;

/// An error if a factorization failed and the caller requested the check.
pub(super) fn check_info(info: &[f64], check: bool, why: &str) -> Result<()> {
    match info.iter().position(|i| *i != 0.0).filter(|_| check) {
        None => Ok(()),
        Some(batch) => Err(Error::value(format!(
            "matrix {batch} of the batch {why} (at its row {})",
            info[batch]
        ))),
    }
}

/// The smaller size.
pub(super) fn least(a: SymInt, b: SymInt) -> SymInt {
    a.min(b)
}

/// The metadata of `LU`, `pivots` and `info` for the matrices of an argument.
pub(super) fn lu_metas(name: &str, x: &Tensor) -> Result<[Meta; 3]> {
    let (batch, n, m) = matrix(name, x)?;
    let pivots = fresh(x, sizes(batch, &[least(n, m)]), DType::I32);
    Ok([columns(x, x.sizes().into()), pivots, fresh(x, batch.into(), DType::I32)])
}

/// Stores pivots, which count from 1 as in LAPACK.
pub(super) fn store_pivots<'a>(
    out: &Tensor,
    all: impl Iterator<Item = &'a Vec<usize>>,
) -> Result<()> {
    host::store_reals(out, &all.flatten().map(|&p| p as f64 + 1.0).collect::<Vec<f64>>())
}

fn lu_factor_metas(args: &[Value]) -> Result<Metas> {
    if !args[1].bool()? {
        return Err(Error::value(
            "`pivot` must be true: an LU factorisation without pivoting is not implemented on the \
                host",
        ));
    }
    Ok(lu_metas("A", args[0].tensor()?)?.into_iter().collect())
}

fn lu_factor(args: &[Value], out: &[Tensor]) -> Result<()> {
    let x = args[0].tensor()?;
    let all: Vec<_> = load(x, matrix("A", x)?.0)?.into_iter().map(lu).collect();
    let info: Vec<f64> = all.iter().map(|f| f.info as f64).collect();
    check_info(&info, args[2].bool()?, "is singular")?;
    store(&out[0], all.iter().map(|f| &f.factors))?;
    store_pivots(&out[1], all.iter().map(|f| &f.pivots))?;
    host::store_reals(&out[2], &info)
}

/// Loads the row exchanges of an argument of pivots, for matrices with `rows` rows.
pub(super) fn load_pivots(t: &Tensor, rows: usize) -> Result<Vec<Vec<usize>>> {
    let all = load_rows(t)?;
    if let Some(p) = all.iter().flatten().find(|p| !(1.0..=rows as f64).contains(*p)) {
        return Err(Error::value(format!(
            "pivots must be row numbers from 1 to {rows}, found {p}"
        )));
    }
    Ok(all.into_iter().map(|row| row.into_iter().map(|p| p as usize - 1).collect()).collect())
}

/// Requires the pivots to be one vector of i32 for each matrix.
pub(super) fn require_pivots(
    name: &str,
    pivots: &Tensor,
    batch: &[SymInt],
    length: SymInt,
) -> Result<()> {
    if pivots.dtype() != DType::I32 {
        return Err(Error::value(format!(
            "argument `{name}` must have dtype i32, found {}",
            pivots.dtype()
        )));
    }
    require_same(&sizes(batch, &[length]), pivots.sizes(), || {
        format!("argument `{name}` must have")
    })
}

fn lu_unpack_metas(args: &[Value]) -> Result<Metas> {
    let x = args[0].tensor()?;
    let (batch, n, m) = matrix("LU_data", x)?;
    let k = least(n, m);
    let if_requested = |yes: &Value, rest: &[SymInt]| -> Result<Meta> {
        Ok(fresh(x, if yes.bool()? { sizes(batch, rest) } else { smallvec![0.into()] }, x.dtype()))
    };
    if args[3].bool()? {
        require_pivots("LU_pivots", args[1].tensor()?, batch, k)?;
    }
    Ok(smallvec![
        if_requested(&args[3], &[n, n])?,
        if_requested(&args[2], &[n, k])?,
        if_requested(&args[2], &[k, m])?
    ])
}

/// Separates `P`, `L` and `U`. The permutation follows from the row exchanges.
fn lu_unpack(args: &[Value], out: &[Tensor]) -> Result<()> {
    let x = args[0].tensor()?;
    let all = load(x, matrix("LU_data", x)?.0)?;
    let rows = host::sizes(x)?[x.dim() - 2];
    if args[3].bool()? {
        let mut permutations = load_pivots(args[1].tensor()?, rows)?;
        let matrices: Vec<Matrix> = permutations
            .iter_mut()
            .map(|pivots| {
                let mut p = Matrix::identity(rows, rows);
                p.permute(pivots, true);
                p
            })
            .collect();
        store(&out[0], &matrices)?;
    }
    if args[2].bool()? {
        let unit = |m: &Matrix| {
            let mut l = m.triangle(m.rows, m.rows.min(m.cols), false);
            (0..l.cols).for_each(|i| l[(i, i)] = 1.0);
            l
        };
        store(&out[1], &all.iter().map(unit).collect::<Vec<_>>())?;
        store(
            &out[2],
            &all.iter().map(|m| m.triangle(m.rows.min(m.cols), m.cols, true)).collect::<Vec<_>>(),
        )?;
    }
    Ok(())
}

fn cholesky_metas(args: &[Value]) -> Result<Metas> {
    let x = args[0].tensor()?;
    let (batch, _) = square("self", x)?;
    Ok(smallvec![columns(x, x.sizes().into()), fresh(x, batch.into(), DType::I32)])
}

fn cholesky_ex(args: &[Value], out: &[Tensor]) -> Result<()> {
    let (x, upper) = (args[0].tensor()?, args[1].bool()?);
    let mut all: Vec<Matrix> =
        load(x, square("self", x)?.0)?.into_iter().map(|m| m.transposed_if(upper)).collect();
    let info: Vec<f64> = all.iter_mut().map(|m| cholesky(m) as f64).collect();
    check_info(&info, args[2].bool()?, "is not positive-definite")?;
    store(&out[0], &all.into_iter().map(|m| m.transposed_if(upper)).collect::<Vec<_>>())?;
    host::store_reals(&out[1], &info)
}

fn geqrf_metas(args: &[Value]) -> Result<Metas> {
    let x = args[0].tensor()?;
    let (batch, n, m) = matrix("self", x)?;
    Ok(smallvec![columns(x, x.sizes().into()), fresh(x, sizes(batch, &[least(n, m)]), x.dtype())])
}

fn geqrf(args: &[Value], out: &[Tensor]) -> Result<()> {
    let x = args[0].tensor()?;
    let mut all = load(x, matrix("self", x)?.0)?;
    let tau: Vec<f64> = all.iter_mut().flat_map(householder).collect();
    store(&out[0], &all)?;
    host::store_reals(&out[1], &tau)
}

/// Requires `tau` to hold a factor for each reflection in `x`. There are at most as many
/// reflections as columns, and at most as many columns as rows.
fn require_reflections(names: [&str; 2], x: &Tensor, tau: &Tensor) -> Result<()> {
    require_same_dtype((names[0], x), (names[1], tau))?;
    let (batch, n, m) = matrix(names[0], x)?;
    let k = tau.sizes().last().copied().unwrap_or(1.into());
    require_same(&sizes(batch, &[k]), tau.sizes(), || {
        format!("argument `{}` must have", names[1])
    })?;
    for (small, large) in [(k, m), (k, n)] {
        require(small.le(large), || {
            format!(
                "`{}` {} has more factors than `{}` {} has reflections",
                names[1],
                dims_text(tau.sizes()),
                names[0],
                dims_text(x.sizes())
            )
        })?;
    }
    Ok(())
}

fn householder_product_metas(args: &[Value]) -> Result<Metas> {
    let (x, tau) = (args[0].tensor()?, args[1].tensor()?);
    require_reflections(["input", "tau"], x, tau)?;
    let (_, n, m) = matrix("input", x)?;
    require(m.le(n), || {
        format!(
            "argument `input` must have at least as many rows as columns, found sizes {}",
            dims_text(x.sizes())
        )
    })?;
    Ok(smallvec![columns(x, x.sizes().into())])
}

fn householder_product(args: &[Value], out: &Tensor) -> Result<()> {
    let x = args[0].tensor()?;
    let all = load(x, matrix("input", x)?.0)?;
    let product = |(m, tau): (&Matrix, Vec<f64>)| {
        let mut q = Matrix::identity(m.rows, m.cols);
        reflect(m, &tau, &mut q, false);
        q
    };
    store(out, &all.iter().zip(load_rows(args[1].tensor()?)?).map(product).collect::<Vec<_>>())
}

fn ormqr_metas(args: &[Value]) -> Result<Metas> {
    let (x, tau, c) = (args[0].tensor()?, args[1].tensor()?, args[2].tensor()?);
    require_reflections(["self", "input2"], x, tau)?;
    require_same_dtype(("self", x), ("input3", c))?;
    let ((batch, n, _), (other, rows, cols)) = (matrix("self", x)?, matrix("input3", c)?);
    require_same(batch, other, || "argument `input3` must have, as `self`, the batch".into())?;
    let (side, from) = if args[3].bool()? { (rows, "left") } else { (cols, "right") };
    require(n.eq(side), || {
        format!(
            "the {n} rows of `self` do not match a product with `input3` {} from the {from}",
            dims_text(c.sizes())
        )
    })?;
    Ok(smallvec![columns(c, c.sizes().into())])
}

/// `ormqr`. To multiply from the right, the transpose is multiplied from the left.
fn ormqr(args: &[Value], out: &Tensor) -> Result<()> {
    let (x, c, left, transposed) =
        (args[0].tensor()?, args[2].tensor()?, args[3].bool()?, args[4].bool()?);
    let batch = matrix("self", x)?.0;
    let mut all = Vec::new();
    for ((m, tau), c) in
        load(x, batch)?.iter().zip(load_rows(args[1].tensor()?)?).zip(load(c, batch)?)
    {
        let mut c = c.transposed_if(!left);
        reflect(m, &tau, &mut c, transposed == left);
        all.push(c.transposed_if(!left));
    }
    store(out, &all)
}

/// The outputs that `mode` requests: whether `Q` is computed, and whether it is square.
fn qr_mode(mode: &Value) -> Result<(bool, bool)> {
    match mode.str()? {
        "reduced" => Ok((true, false)),
        "complete" => Ok((true, true)),
        "r" => Ok((false, false)),
        other => {
            Err(Error::value(format!("`mode` must be reduced, complete or r, found {other:?}")))
        }
    }
}

fn qr_metas(args: &[Value]) -> Result<Metas> {
    let x = args[0].tensor()?;
    let (batch, n, m) = matrix("A", x)?;
    let (with_q, complete) = qr_mode(&args[1])?;
    let k = if complete { n } else { least(n, m) };
    let q = if with_q {
        columns(x, sizes(batch, &[n, k]))
    } else {
        fresh(x, Dims::from_elem(0.into(), 1), x.dtype())
    };
    Ok(smallvec![q, columns(x, sizes(batch, &[k, m]))])
}

fn qr(args: &[Value], out: &[Tensor]) -> Result<()> {
    let x = args[0].tensor()?;
    let (with_q, complete) = qr_mode(&args[1])?;
    let (mut qs, mut rs) = (Vec::new(), Vec::new());
    for mut m in load(x, matrix("A", x)?.0)? {
        let tau = householder(&mut m);
        let k = if complete { m.rows } else { m.rows.min(m.cols) };
        if with_q {
            let mut q = Matrix::identity(m.rows, k);
            reflect(&m, &tau, &mut q, false);
            qs.push(q);
        }
        rs.push(m.triangle(k, m.cols, true));
    }
    if with_q {
        store(&out[0], &qs)?;
    }
    store(&out[1], &rs)
}

/// The first `count` results of an operator that is called with `check_errors`.
fn checked(op: &str, args: maquette_ops::Args, count: usize) -> Result<maquette_ops::Outputs> {
    let mut out = maquette_ops::call(op, args)?;
    out.truncate(count);
    Ok(out)
}

table! {
    /// Factorizations.
    static TABLE = {
        "aten::linalg_lu_factor_ex(Tensor A, *, bool pivot=True, \
            bool check_errors=False) -> (Tensor LU, Tensor pivots, Tensor info)" => {
            role: General,
            lowering: dense(|_, a| lu_factor_metas(a), lu_factor),
            vjp: crate::grad::LU_FACTOR,
        },
        "aten::linalg_lu_factor(Tensor A, *, \
            bool pivot=True) -> (Tensor LU, Tensor pivots)" => {
            role: General,
            lowering: Lowering::Composite(|a| {
                checked(
                    "aten::linalg_lu_factor_ex",
                    maquette_ops::args![a[0].tensor()?, a[1].bool()?, true],
                    2,
                )
            }),
        },
        "aten::linalg_lu(Tensor A, *, bool pivot=True) -> (Tensor P, Tensor L, Tensor U)" => {
            role: General,
            lowering: Lowering::Composite(|a| {
                let f = maquette_ops::call(
                    "aten::linalg_lu_factor_ex",
                    maquette_ops::args![a[0].tensor()?, a[1].bool()?],
                )?;
                maquette_ops::call(
                    "aten::lu_unpack",
                    maquette_ops::args![super::tensor(&f, 0)?, super::tensor(&f, 1)?],
                )
            }),
        },
        "aten::lu_unpack(Tensor LU_data, Tensor LU_pivots, bool unpack_data=True, \
            bool unpack_pivots=True) -> (Tensor P, Tensor L, Tensor U)" => {
            role: General,
            lowering: dense(|_, a| lu_unpack_metas(a), lu_unpack),
            vjp: crate::grad::LU_UNPACK,
        },
        "aten::linalg_cholesky_ex(Tensor self, *, bool upper=False, \
            bool check_errors=False) -> (Tensor L, Tensor info)" => {
            role: General,
            lowering: dense(|_, a| cholesky_metas(a), cholesky_ex),
            vjp: crate::grad::CHOLESKY,
        },
        "aten::linalg_cholesky(Tensor self, *, bool upper=False) -> Tensor" => {
            role: General,
            lowering: Lowering::Composite(|a| {
                checked(
                    "aten::linalg_cholesky_ex",
                    maquette_ops::args![a[0].tensor()?, a[1].bool()?, true],
                    1,
                )
            }),
        },
        "aten::geqrf(Tensor self) -> (Tensor a, Tensor tau)" => {
            role: General,
            lowering: dense(|_, a| geqrf_metas(a), geqrf),
            vjp: Derivative::Refused("PyTorch has none"),
        },
        "aten::ormqr(Tensor self, Tensor input2, Tensor input3, bool left=True, \
            bool transpose=False) -> Tensor" => {
            role: General,
            lowering: dense(|_, a| ormqr_metas(a), |a, out| ormqr(a, &out[0])),
            vjp: crate::grad::ORMQR,
        },
        "aten::linalg_householder_product(Tensor input, Tensor tau) -> Tensor" => {
            role: General,
            lowering: dense(
                |_,
                a| householder_product_metas(a),
                |a,
                out| householder_product(a, &out[0]),
            ),
            vjp: crate::grad::HOUSEHOLDER,
        },
        "aten::orgqr(Tensor self, Tensor input2) -> Tensor" => {
            role: General,
            lowering: Lowering::Composite(|a| {
                maquette_ops::call("aten::linalg_householder_product", a.iter().cloned().collect())
            }),
        },
        "aten::linalg_qr(Tensor A, str mode=\"reduced\") -> (Tensor Q, Tensor R)" => {
            role: General,
            lowering: dense(|_, a| qr_metas(a), qr),
            vjp: crate::grad::QR,
        },
    }
}
