//! Algorithms on one dense matrix in `f64`: LU, Cholesky and Householder QR, with the storage
//! conventions of LAPACK. Each takes O(n³) operations and is not blocked.

use std::ops::{Index, IndexMut};

/// A row-major matrix.
#[derive(Clone, Debug)]
pub(super) struct Matrix {
    pub(super) rows: usize,
    pub(super) cols: usize,
    data: Vec<f64>,
}

impl Index<(usize, usize)> for Matrix {
    type Output = f64;
    fn index(&self, (r, c): (usize, usize)) -> &f64 {
        &self.data[r * self.cols + c]
    }
}

impl IndexMut<(usize, usize)> for Matrix {
    fn index_mut(&mut self, (r, c): (usize, usize)) -> &mut f64 {
        &mut self.data[r * self.cols + c]
    }
}

impl Matrix {
    /// A matrix of `rows * cols` elements.
    pub(super) fn new(rows: usize, cols: usize, data: Vec<f64>) -> Matrix {
        Matrix { rows, cols, data }
    }

    /// The matrix of the elements `f(row, column)`.
    pub(super) fn from_fn(rows: usize, cols: usize, f: impl Fn(usize, usize) -> f64) -> Matrix {
        if cols == 0 {
            return Matrix::new(rows, cols, Vec::new()); // there may be many rows
        }
        Matrix {
            rows,
            cols,
            data: (0..rows)
                .flat_map(|r| (0..cols).map(move |c| (r, c)))
                .map(|(r, c)| f(r, c))
                .collect(),
        }
    }

    /// Ones on the main diagonal, zeros elsewhere.
    pub(super) fn identity(rows: usize, cols: usize) -> Matrix {
        Matrix::from_fn(rows, cols, |r, c| f64::from(u8::from(r == c)))
    }

    /// The elements in row-major order.
    pub(super) fn data(&self) -> &[f64] {
        &self.data
    }

    pub(super) fn transposed(&self) -> Matrix {
        Matrix::from_fn(self.cols, self.rows, |r, c| self[(c, r)])
    }

    /// The transpose if `yes`, else the matrix.
    pub(super) fn transposed_if(self, yes: bool) -> Matrix {
        if yes { self.transposed() } else { self }
    }

    /// The leading block with these sizes, with zeros below (`upper`) or above the diagonal.
    pub(super) fn triangle(&self, rows: usize, cols: usize, upper: bool) -> Matrix {
        Matrix::from_fn(
            rows,
            cols,
            |r, c| if r == c || (c > r) == upper { self[(r, c)] } else { 0.0 },
        )
    }

    fn swap_rows(&mut self, a: usize, b: usize) {
        for c in 0..self.cols {
            self.data.swap(a * self.cols + c, b * self.cols + c);
        }
    }

    /// Applies the row exchanges of a factorization, or undoes them.
    pub(super) fn permute(&mut self, pivots: &[usize], back: bool) {
        let mut swap = |(i, &p): (usize, &usize)| self.swap_rows(i, p);
        if back {
            pivots.iter().enumerate().rev().for_each(&mut swap)
        } else {
            pivots.iter().enumerate().for_each(&mut swap)
        }
    }
}

/// A factorization `P L U`. Both factors share one matrix, as in LAPACK's `getrf`.
pub(super) struct Lu {
    pub(super) factors: Matrix,
    /// The row with which each row was exchanged, in order.
    pub(super) pivots: Vec<usize>,
    /// The number of the first pivot that is 0, counted from 1; 0 if there is none.
    pub(super) info: usize,
}

/// LU factorization by Gaussian elimination with partial pivoting.
pub(super) fn lu(mut m: Matrix) -> Lu {
    let mut pivots = Vec::new();
    let mut info = 0;
    for k in 0..m.rows.min(m.cols) {
        let mut p = k;
        for i in k + 1..m.rows {
            if m[(i, k)].abs() > m[(p, k)].abs() {
                p = i;
            }
        }
        pivots.push(p);
        m.swap_rows(k, p);
        if m[(k, k)] == 0.0 {
            info = if info == 0 { k + 1 } else { info };
            continue;
        }
        for i in k + 1..m.rows {
            m[(i, k)] /= m[(k, k)];
            let factor = m[(i, k)];
            for j in k + 1..m.cols {
                m[(i, j)] -= factor * m[(k, j)];
            }
        }
    }
    Lu { factors: m, pivots, info }
}

impl Lu {
    /// The sign of the determinant, and the logarithm of its absolute value.
    pub(super) fn slogdet(&self) -> (f64, f64) {
        let (mut sign, mut log) = (1.0, 0.0);
        for (i, &p) in self.pivots.iter().enumerate() {
            let d = self.factors[(i, i)];
            sign *= if d == 0.0 { 0.0 } else { d.signum() } * if p == i { 1.0 } else { -1.0 };
            log += d.abs().ln();
        }
        (sign, log)
    }

    pub(super) fn det(&self) -> f64 {
        self.pivots
            .iter()
            .enumerate()
            .map(|(i, &p)| if p == i { self.factors[(i, i)] } else { -self.factors[(i, i)] })
            .product()
    }

    /// Solves `A x = b`, or `Aᵀ x = b` if `transposed`.
    pub(super) fn solve(&self, mut b: Matrix, transposed: bool) -> Matrix {
        if transposed {
            let t = self.factors.transposed();
            solve_triangular(&t, &mut b, false, false);
            solve_triangular(&t, &mut b, true, true);
            b.permute(&self.pivots, true);
        } else {
            b.permute(&self.pivots, false);
            solve_triangular(&self.factors, &mut b, false, true);
            solve_triangular(&self.factors, &mut b, true, false);
        }
        b
    }
}

/// Replaces `b` by the solution `x` of `T x = b`, where `T` is a triangle of `a`. With `unit`, the
/// diagonal of `T` is 1.
pub(super) fn solve_triangular(a: &Matrix, b: &mut Matrix, upper: bool, unit: bool) {
    let n = b.rows;
    for step in 0..n {
        let i = if upper { n - 1 - step } else { step };
        for c in 0..b.cols {
            let known = if upper { i + 1..n } else { 0..i };
            let rest: f64 = known.map(|k| a[(i, k)] * b[(k, c)]).sum();
            let x = b[(i, c)] - rest;
            b[(i, c)] = if unit { x } else { x / a[(i, i)] };
        }
    }
}

/// Replaces the lower triangle of `m` by its Cholesky factor and the rest by zeros. Returns the
/// order of the first leading minor that is not positive, or 0.
pub(super) fn cholesky(m: &mut Matrix) -> usize {
    let mut info = 0;
    'columns: for j in 0..m.cols {
        for i in j..m.rows {
            let x = m[(i, j)] - (0..j).map(|k| m[(i, k)] * m[(j, k)]).sum::<f64>();
            if i == j && (x.is_nan() || x <= 0.0) {
                m[(i, j)] = x;
                info = j + 1;
                break 'columns;
            }
            m[(i, j)] = if i == j { x.sqrt() } else { x / m[(j, j)] };
        }
    }
    *m = m.triangle(m.rows, m.cols, false);
    info
}

/// QR by Householder reflections, in the form of LAPACK's `geqrf`: `R` in the upper triangle of
/// `m`, the vectors of the reflections below. Returns the factors of the reflections.
pub(super) fn householder(m: &mut Matrix) -> Vec<f64> {
    (0..m.rows.min(m.cols)).map(|k| reflection(m, k)).collect()
}

/// One reflection of [`householder`].
fn reflection(m: &mut Matrix, k: usize) -> f64 {
    let tail = (k + 1..m.rows).fold(0.0f64, |n, i| n.hypot(m[(i, k)]));
    if tail == 0.0 {
        return 0.0;
    }
    let alpha = m[(k, k)];
    let beta = -alpha.hypot(tail).copysign(alpha);
    for i in k + 1..m.rows {
        m[(i, k)] /= alpha - beta;
    }
    let tau = (beta - alpha) / beta;
    for j in k + 1..m.cols {
        let dot = m[(k, j)] + (k + 1..m.rows).map(|i| m[(i, k)] * m[(i, j)]).sum::<f64>();
        m[(k, j)] -= tau * dot;
        for i in k + 1..m.rows {
            m[(i, j)] -= tau * dot * m[(i, k)];
        }
    }
    m[(k, k)] = beta;
    tau
}

/// Multiplies `c` from the left by the product of the reflections in `a`, or by its transpose, as
/// LAPACK's `ormqr`.
pub(super) fn reflect(a: &Matrix, tau: &[f64], c: &mut Matrix, transposed: bool) {
    for step in 0..tau.len() {
        let k = if transposed { step } else { tau.len() - 1 - step };
        for j in 0..c.cols {
            let dot = c[(k, j)] + (k + 1..c.rows).map(|i| a[(i, k)] * c[(i, j)]).sum::<f64>();
            c[(k, j)] -= tau[k] * dot;
            for i in k + 1..c.rows {
                c[(i, j)] -= tau[k] * dot * a[(i, k)];
            }
        }
    }
}
