//! Matrix products: against plain loops, and in bits against the defined order.

use super::{values, view, view_mut};
use crate::gemm::{packed_product_on, product_on};
use crate::{Element, Epilogue, Isa, PackedMatrix, View, batched_gemm};
use proptest::prelude::*;

/// A float with the operations of the defined order.
pub(super) trait Number: Element {
    fn from_f64(x: f64) -> Self;
    fn fma(self, by: Self, to: Self) -> Self;
    fn plus(self, by: Self) -> Self;
    fn bits(self) -> u64;
}

macro_rules! number {
    ($($float:ty)*) => {
        $(impl Number for $float {
            fn from_f64(x: f64) -> Self {
                x as $float
            }
            fn fma(self, by: Self, to: Self) -> Self {
                self.mul_add(by, to)
            }
            fn plus(self, by: Self) -> Self {
                self + by
            }
            /// The bits, with one NaN for all.
            fn bits(self) -> u64 {
                if self.is_nan() { <$float>::NAN.to_bits().into() } else { self.to_bits().into() }
            }
        })*
    };
}
number!(f32 f64);

/// The sum of products in the defined order, element by element: the reference.
pub(super) fn sum_in_order<T: Number>(
    k: usize,
    a: impl Fn(usize) -> T,
    b: impl Fn(usize) -> T,
) -> T {
    let indices: Vec<usize> = (0..k).collect();
    let segment = |s: &[usize]| s.iter().fold(T::default(), |sum, &p| a(p).fma(b(p), sum));
    let group = |g: &[usize]| g.chunks(512).map(segment).reduce(T::plus);
    let sums = indices.chunks(512 * 64).filter_map(group);
    sums.reduce(T::plus).unwrap_or_default()
}

/// A matrix with its elements by row and column.
pub(super) struct Matrix<T> {
    rows: usize,
    columns: usize,
    pub(super) elements: Vec<T>,
}

impl<T: Number> Matrix<T> {
    pub(super) fn new(rows: usize, columns: usize, seed: u64, special: bool) -> Matrix<T> {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let element = |_| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let x = (state >> 33) as f64 / f64::from(1u32 << 30) - 1.0;
            match (state >> 20) % 64 {
                0 if special => f64::NAN,
                1 if special => f64::INFINITY,
                2 if special => f64::NEG_INFINITY,
                3..8 if special => -0.0,
                8..20 if special => x * 1e-41,
                20..24 if special => x * 1e-308,
                _ => x,
            }
        };
        let elements = (0..rows * columns).map(element).map(T::from_f64).collect();
        Matrix { rows, columns, elements }
    }

    pub(super) fn at(&self, row: usize, column: usize) -> T {
        self.elements[row * self.columns + column]
    }

    /// The matrix in memory of some layout, and the strides.
    fn in_layout(&self, layout: Layout) -> (Vec<T>, [i64; 2]) {
        let (rows, columns) = (self.rows as i64, self.columns as i64);
        let strides = match layout {
            Layout::RowMajor => [columns, 1],
            Layout::Transposed => [1, rows],
            Layout::PaddedRows => [columns + 3, 1],
            Layout::PaddedColumns => [1, rows + 5],
            Layout::Strided => [2 * columns + 1, 2],
        };
        let last = (rows - 1).max(0) * strides[0] + (columns - 1).max(0) * strides[1];
        let mut memory = vec![T::from_f64(f64::NAN); last as usize + 1];
        for (i, j) in (0..self.rows).flat_map(|i| (0..self.columns).map(move |j| (i, j))) {
            memory[(i as i64 * strides[0] + j as i64 * strides[1]) as usize] = self.at(i, j);
        }
        (memory, strides)
    }
}

#[derive(Clone, Copy, Debug)]
enum Layout {
    RowMajor,
    Transposed,
    PaddedRows,
    PaddedColumns,
    Strided,
}

const LAYOUTS: [Layout; 5] = [
    Layout::RowMajor,
    Layout::Transposed,
    Layout::PaddedRows,
    Layout::PaddedColumns,
    Layout::Strided,
];

fn strided<'a, T: Number>(memory: &'a [T], m: &Matrix<T>, strides: [i64; 2]) -> View<'a> {
    // SAFETY: `in_layout` made the memory for these sizes and strides.
    unsafe {
        let sizes = [m.rows as i64, m.columns as i64];
        View::from_raw(memory.as_ptr().cast(), T::DTYPE, &sizes, &strides)
    }
}

/// The instruction sets of this machine.
pub(super) fn sets() -> Vec<Isa> {
    [Isa::Scalar, Isa::Avx2, Isa::Avx512].into_iter().filter(|i| *i <= Isa::best()).collect()
}

fn product_of<T: Number>(isa: Isa, threads: usize, a: &View<'_>, b: &View<'_>) -> Vec<T> {
    let sizes = [a.sizes()[0], b.sizes()[1]];
    let mut c = vec![T::from_f64(7.0); (sizes[0] * sizes[1]) as usize];
    product_on(isa, threads, a, b, &Epilogue::default(), &mut view_mut(&mut c, &sizes))
        .expect("multiplies");
    c
}

pub(super) fn bits<T: Number>(x: &[T]) -> Vec<u64> {
    x.iter().map(|x| x.bits()).collect()
}

/// Compares a product with the reference on every instruction set, for numbers of threads and
/// layouts: all of them, or each once.
fn has_the_bits_of_the_order<T: Number>([m, n, k]: [usize; 3], special: bool, all: bool) {
    let seed = (m * 1_000_003 + n * 1009 + k) as u64;
    let (a, b) = (Matrix::<T>::new(m, k, seed, special), Matrix::<T>::new(k, n, !seed, special));
    let expected: Vec<T> =
        (0..m * n).map(|p| sum_in_order(k, |q| a.at(p / n, q), |q| b.at(q, p % n))).collect();
    let expected = bits(&expected);
    let pairs: Vec<(Layout, Layout)> = match all {
        true => LAYOUTS.into_iter().flat_map(|x| LAYOUTS.map(|y| (x, y))).collect(),
        false => (0..5).map(|i| (LAYOUTS[i], LAYOUTS[(i + m + k) % 5])).collect(),
    };
    for (case, (la, lb)) in pairs.into_iter().enumerate() {
        let ((ma, sa), (mb, sb)) = (a.in_layout(la), b.in_layout(lb));
        let (va, vb) = (strided(&ma, &a, sa), strided(&mb, &b, sb));
        for (i, isa) in sets().into_iter().enumerate() {
            let threads = if all { &[1, 2, 4, 8][..] } else { &[[1, 2, 4, 8][(case + i) % 4]][..] };
            for &threads in threads {
                let found = bits(&product_of::<T>(isa, threads, &va, &vb));
                assert!(
                    found == expected,
                    "{m}x{n}x{k} {isa:?} {threads} threads {la:?} {lb:?}: element {:?}",
                    found.iter().zip(&expected).position(|(x, y)| x != y)
                );
            }
            let packed = PackedMatrix::on(isa, &vb).expect("packs");
            let mut c = vec![T::from_f64(7.0); m * n];
            let mut out = view_mut(&mut c, &[m as i64, n as i64]);
            packed_product_on([1, 2, 4, 8][case % 4], &va, &packed, &Epilogue::default(), &mut out)
                .expect("multiplies");
            assert!(bits(&c) == expected, "{m}x{n}x{k} {isa:?} packed {la:?} {lb:?}");
        }
    }
}

#[test]
fn bits_are_those_of_the_defined_order() {
    for k in [0, 1, 2, 511, 512, 513, 1000] {
        for [m, n] in [[1, 1], [1, 50], [3, 70], [17, 1], [9, 49], [20, 5], [7, 64]] {
            has_the_bits_of_the_order::<f32>([m, n, k], false, true);
            has_the_bits_of_the_order::<f64>([m, n, k], false, k < 512);
        }
    }
}

#[test]
fn bits_of_long_sums_are_those_of_the_defined_order() {
    for k in [32768, 32769, 65537] {
        for [m, n] in [[1, 1], [1, 17], [2, 3], [9, 1]] {
            has_the_bits_of_the_order::<f32>([m, n, k], false, false);
        }
        has_the_bits_of_the_order::<f64>([2, 9, k], false, false);
    }
}

#[test]
fn bits_of_special_values_are_those_of_the_defined_order() {
    for [m, n, k] in [[1, 1, 7], [5, 33, 40], [12, 100, 3], [3, 3, 600], [1, 64, 530]] {
        has_the_bits_of_the_order::<f32>([m, n, k], true, true);
        has_the_bits_of_the_order::<f64>([m, n, k], true, true);
    }
}

#[test]
fn bits_of_large_products_are_those_of_the_defined_order() {
    // few rows read B where it is: its rows, or its columns
    let few = [[12, 200, 2100], [16, 150, 1100], [2, 90, 2600]];
    // many rows of a transposed A are packed by the tasks
    let many = [[389, 70, 515], [390, 20, 2100], [400, 17, 2], [1000, 130, 33], [384, 64, 1]];
    for sizes in [[130, 200, 515], [64, 128, 1000], [200, 64, 1000], [70, 700, 2100]]
        .into_iter()
        .chain(few)
        .chain(many)
    {
        has_the_bits_of_the_order::<f32>(sizes, false, false);
    }
    has_the_bits_of_the_order::<f64>([385, 30, 600], true, false);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn bits_of_any_shape_are_those_of_the_defined_order(
        m in 1usize..40,
        n in 1usize..150,
        k in 0usize..1200,
        special in any::<bool>(),
    ) {
        has_the_bits_of_the_order::<f32>([m, n, k], special, false);
        has_the_bits_of_the_order::<f64>([m, n, k], special, false);
    }

    #[test]
    fn products_match_loops(
        m in 0usize..20,
        n in 0usize..20,
        k in 0usize..20,
        batch in 1usize..3,
        transpose in any::<bool>(),
        beta in 0u8..2,
    ) {
        let (a, b) = (values(batch * m * k), values(batch * k * n));
        let beta = f64::from(beta);
        let mut c = vec![0.5f64; batch * m * n];
        let (bi, mi, ni, ki) = (batch as i64, m as i64, n as i64, k as i64);
        let va = if transpose {
            view(&a, &[bi, ki, mi]).permute(&[0, 2, 1]).expect("permutes")
        } else {
            view(&a, &[bi, mi, ki])
        };
        batched_gemm(
            &va,
            &view(&b, &[bi, ki, ni]),
            &mut view_mut(&mut c, &[bi, mi, ni]),
            2.0,
            beta,
        )
        .expect("multiplies");
        for (p, got) in c.iter().enumerate() {
            let (t, i, j) = (p / (m * n), p / n % m, p % n);
            let at = |q: usize| {
                if transpose { a[t * m * k + q * m + i] } else { a[t * m * k + i * k + q] }
            };
            // Sums of these values are exact.
            let want: f64 =
                beta * 0.5 + 2.0 * (0..k).map(|q| at(q) * b[t * k * n + q * n + j]).sum::<f64>();
            prop_assert_eq!(*got, want);
        }
    }
}

#[test]
fn a_row_alone_has_the_bits_of_the_row_in_a_matrix() {
    let (m, n, k) = (40, 150, 1500);
    let (a, b) = (Matrix::<f32>::new(m, k, 1, false), Matrix::<f32>::new(k, n, 2, false));
    let (sizes_a, sizes_b) = ([m as i64, k as i64], [k as i64, n as i64]);
    for isa in sets() {
        let whole =
            product_of::<f32>(isa, 2, &view(&a.elements, &sizes_a), &view(&b.elements, &sizes_b));
        for rows in [1, 2, 3, 5, 8, 16, 39] {
            let some = view(&a.elements[k..(rows + 1) * k], &[rows as i64, k as i64]);
            let found = product_of::<f32>(isa, 4, &some, &view(&b.elements, &sizes_b));
            assert_eq!(bits(&found), bits(&whole[n..(rows + 1) * n]), "{isa:?} {rows}");
        }
    }
}
