use super::*;
use crate::layout::for_each;
use crate::view::contiguous;
use proptest::prelude::*;

fn values(n: usize, seed: u64) -> Vec<f32> {
    (0..n as u64)
        .map(|i| {
            ((i.wrapping_mul(2654435761).wrapping_add(seed * 97)) % 2003) as f32 / 1001.5 - 1.0
        })
        .collect()
}

fn run(isa: Isa, op: ReduceOp, x: &View<'_>, dims: &[usize], n: usize) -> Vec<f32> {
    let mut out = vec![0f32; n];
    let sizes: Vec<i64> =
        (0..x.rank()).map(|d| if dims.contains(&d) { 1 } else { x.sizes()[d] }).collect();
    reduce_on(isa, op, x, dims, &mut ViewMut::from_slice_sized(&mut out, &sizes).expect("fits"))
        .expect("reduces");
    out
}

/// The reduction of each output in f64, one element at a time.
fn naive(op: ReduceOp, x: &[f32], sizes: &[i64], strides: &[i64], dims: &[usize]) -> Vec<f64> {
    let kept: Vec<i64> =
        (0..sizes.len()).map(|d| if dims.contains(&d) { 1 } else { sizes[d] }).collect();
    let mut lists = vec![Vec::new(); crate::view::numel(&kept)];
    let at: Vec<i64> = contiguous(&kept)
        .iter()
        .enumerate()
        .map(|(d, s)| if dims.contains(&d) { 0 } else { *s })
        .collect();
    for_each(sizes, [strides, &at], |[i, o]| lists[o as usize].push(f64::from(x[i as usize])));
    let sum = |l: &[f64]| l.iter().sum::<f64>();
    lists
        .iter()
        .map(|l| match op {
            ReduceOp::Sum => sum(l),
            ReduceOp::Prod => l.iter().product(),
            ReduceOp::Min => l.iter().copied().fold(f64::INFINITY, f64::min),
            ReduceOp::Max => l.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            ReduceOp::Mean => sum(l) / l.len() as f64,
            ReduceOp::Norm(p) => l.iter().map(|v| v.abs().powf(p)).sum::<f64>().powf(1.0 / p),
            ReduceOp::Var { correction } => {
                let mean = sum(l) / l.len() as f64;
                l.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>()
                    / (l.len() as f64 - correction)
            }
            _ => f64::NAN,
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    /// Every layout gives the naive result, and the same bits as a contiguous copy of it and as the
    /// scalar code.
    #[test]
    fn any_layout(
        sizes in prop::collection::vec(1i64..40, 1..4),
        mask in 0usize..8,
        flip in any::<bool>(),
        which in 0usize..7,
        seed in 0u64..100,
    ) {
        let ops = [
            ReduceOp::Sum,
            ReduceOp::Prod,
            ReduceOp::Min,
            ReduceOp::Max,
            ReduceOp::Mean,
            ReduceOp::Norm(3.0),
            ReduceOp::Var { correction: 0.0 },
        ];
        let op = ops[which];
        let x = values(crate::view::numel(&sizes), seed);
        let (mut shown, mut strides) = (sizes.clone(), contiguous(&sizes));
        if flip {
            shown.reverse();
            strides.reverse();
        }
        let dims: Vec<usize> = (0..sizes.len()).filter(|d| mask >> d & 1 == 1).collect();
        // SAFETY: a permutation of a contiguous layout.
        let v = unsafe { View::from_raw(x.as_ptr().cast(), DType::F32, &shown, &strides) };
        let want = naive(op, &x, &shown, &strides, &dims);
        let got = run(Isa::best(), op, &v, &dims, want.len());
        // what cancels in the sum was rounded all the same
        let least = (x.len() / want.len() / 100).max(1) as f64;
        for (g, w) in got.iter().zip(&want) {
            prop_assert!((f64::from(*g) - w).abs() <= 1e-5 * w.abs().max(least), "{op:?} {g} {w}");
        }
        let copy: Vec<f32> = crate::copy::to_vec(&v).expect("copies");
        let c = View::from_slice_sized(&copy, &shown).expect("fits");
        prop_assert_eq!(&got, &run(Isa::best(), op, &c, &dims, want.len()));
        prop_assert_eq!(&got, &run(Isa::Scalar, op, &v, &dims, want.len()));
    }
}

#[test]
fn a_nan_is_the_same_whatever_the_layout() {
    // processors keep the first of two NaNs, and compilers put operands in either order
    let nans = [0x7fc0_0000u32, 0xffc0_0000, 0x7fc0_1234, 0xffc0_4321].map(f32::from_bits);
    let x: Vec<f32> = (0..24).map(|i| if i % 5 == 2 { 1.0 } else { nans[i % 4] }).collect();
    let (repeated, turned) = (x.repeat(3), (0..72).map(|i| x[i / 3]).collect::<Vec<_>>());
    // SAFETY: the same elements, seen three times.
    let expanded = unsafe { View::from_raw(x.as_ptr().cast(), DType::F32, &[3, 24], &[0, 1]) };
    // SAFETY: all elements, by columns.
    let columns = unsafe { View::from_raw(turned.as_ptr().cast(), DType::F32, &[3, 24], &[1, 3]) };
    let rows = View::from_slice_sized(&repeated, &[3, 24]).expect("fits");
    for op in [
        ReduceOp::Sum,
        ReduceOp::Prod,
        ReduceOp::Mean,
        ReduceOp::Norm(2.0),
        ReduceOp::Var { correction: 0.0 },
    ] {
        for (dims, n) in [(&[0, 1][..], 1), (&[0], 24), (&[1], 3)] {
            let bits = |isa, v: &View<'_>| {
                run(isa, op, v, dims, n).into_iter().map(f32::to_bits).collect::<Vec<_>>()
            };
            let expected = bits(Isa::Scalar, &rows);
            for v in [&rows, &expanded, &columns] {
                assert_eq!(bits(Isa::Scalar, v), expected, "{op:?} over {dims:?}");
                assert_eq!(bits(Isa::best(), v), expected, "{op:?} over {dims:?}");
            }
        }
    }
}

/// Rows are folded in groups, in pairs and alone, with and without a last part of a chunk.
#[test]
fn many_rows_have_the_bits_of_each_alone() {
    for n in [17, 31, 32, 40, 64, 250, 256, 2047, 2048] {
        for rows in [1, 2, 3, 7, 8, 9, 19] {
            let x = values(rows * n, n as u64);
            let v = View::from_slice_sized(&x, &[rows as i64, n as i64]).expect("fits");
            for (op, fold) in [
                (ReduceOp::Sum, lanes::row::<f32, Add> as fn(Isa, &[f32], f32) -> f32),
                (ReduceOp::Prod, lanes::row::<f32, Mul>),
                (ReduceOp::Max, lanes::row::<f32, Max>),
                (ReduceOp::Min, lanes::row::<f32, Min>),
            ] {
                let identity = match op {
                    ReduceOp::Sum => 0.0,
                    ReduceOp::Prod => 1.0,
                    ReduceOp::Max => f32::NEG_INFINITY,
                    _ => f32::INFINITY,
                };
                let bits = |x: &[f32]| x.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
                let alone: Vec<f32> =
                    x.chunks(n).map(|row| fold(Isa::Scalar, row, identity)).collect();
                for isa in [Isa::Scalar, Isa::Avx2, Isa::best()] {
                    let found = run(isa, op, &v, &[1], rows);
                    assert_eq!(bits(&found), bits(&alone), "{op:?} of {rows} rows of {n}, {isa:?}");
                }
            }
        }
    }
}

#[test]
fn large_sums_are_accurate_whole_and_by_columns() {
    let x = vec![0.1f32; 3_000_000];
    let v = View::from_slice(&x);
    let want = f64::from(0.1f32) * 3e6;
    let got = run(Isa::best(), ReduceOp::Sum, &v, &[0], 1);
    assert!((f64::from(got[0]) - want).abs() / want < 1e-6, "{got:?}");
    assert_eq!(got, run(Isa::Scalar, ReduceOp::Sum, &v, &[0], 1));
    let m = View::from_slice_sized(&x, &[100_000, 30]).expect("fits");
    for c in run(Isa::best(), ReduceOp::Sum, &m, &[0], 30) {
        assert!((f64::from(c) - want / 30.0).abs() / want < 1e-7);
    }
}

#[test]
fn integers_bools_and_empty_inputs() {
    let x = [200u8, 100, 7];
    let mut s = [0i64];
    reduce(
        ReduceOp::Sum,
        &View::from_slice(&x),
        &[0],
        &mut ViewMut::from_slice_sized(&mut s, &[]).unwrap(),
    )
    .unwrap();
    assert_eq!(s, [307]);
    let mut any = [false];
    for (x, want_any, want_all) in [(vec![false, true], true, false), (vec![], false, true)] {
        let v = View::from_slice(&x);
        reduce(ReduceOp::Any, &v, &[0], &mut ViewMut::from_slice(&mut any)).unwrap();
        assert_eq!(any, [want_any]);
        reduce(ReduceOp::All, &v, &[0], &mut ViewMut::from_slice(&mut any)).unwrap();
        assert_eq!(any, [want_all]);
    }
    let empty: [f32; 0] = [];
    let mut f = [1f32];
    reduce(ReduceOp::Sum, &View::from_slice(&empty), &[0], &mut ViewMut::from_slice(&mut f))
        .unwrap();
    assert_eq!(f, [0.0]);
    let r =
        reduce(ReduceOp::Max, &View::from_slice(&empty), &[0], &mut ViewMut::from_slice(&mut f));
    assert!(matches!(r, Err(KernelError::EmptyReduction { .. })));
    assert!(matches!(
        reduce(ReduceOp::Sum, &View::from_slice(&empty), &[1], &mut ViewMut::from_slice(&mut f)),
        Err(KernelError::Dim { .. })
    ));
    assert!(matches!(
        reduce(ReduceOp::Mean, &View::from_slice(&x), &[0], &mut ViewMut::from_slice(&mut f)),
        Err(KernelError::DType { .. })
    ));
}

#[test]
fn extremes_and_positions() {
    let x = [1f32, 5.0, 5.0, -2.0, f32::NAN, 3.0];
    let v = View::from_slice_sized(&x, &[2, 3]).unwrap();
    let (mut vals, mut idx) = ([0f32; 2], [0i64; 2]);
    minmax_with_index(
        true,
        &v,
        1,
        &mut ViewMut::from_slice(&mut vals),
        &mut ViewMut::from_slice(&mut idx),
    )
    .unwrap();
    assert_eq!((vals[0], idx), (5.0, [1, 1]));
    assert!(vals[1].is_nan());
    let mut all = [0i64];
    argminmax(false, &v, None, &mut ViewMut::from_slice_sized(&mut all, &[]).unwrap()).unwrap();
    assert_eq!(all, [4]);
    let max = run(Isa::best(), ReduceOp::Max, &v, &[1], 2);
    assert!(max[0] == 5.0 && max[1].is_nan());
    let inf = run(Isa::best(), ReduceOp::Norm(f64::INFINITY), &View::from_slice(&x[..4]), &[0], 1);
    assert_eq!(inf, [5.0]);
}

/// Columns have the bits of rows, whatever part of the lanes and chunks their elements fill.
#[test]
fn columns_have_the_bits_of_rows() {
    for (n, columns) in [(2, 300), (5, 700), (8, 64), (31, 9), (32, 256), (33, 70), (512, 300)] {
        let x = values(n * columns, 5);
        let turned: Vec<f32> = (0..n * columns).map(|at| x[at % n * columns + at / n]).collect();
        let (sizes, turned_sizes) = ([n as i64, columns as i64], [columns as i64, n as i64]);
        let by_columns = View::from_slice_sized(&x, &sizes).expect("fits");
        let by_rows = View::from_slice_sized(&turned, &turned_sizes).expect("fits");
        for op in [ReduceOp::Sum, ReduceOp::Prod, ReduceOp::Max, ReduceOp::Min] {
            let bits = |isa: Isa, x: &View<'_>, dim: usize| -> Vec<u32> {
                run(isa, op, x, &[dim], columns).into_iter().map(f32::to_bits).collect()
            };
            let expected = bits(Isa::Scalar, &by_rows, 1);
            for isa in [Isa::Scalar, Isa::Avx2, Isa::Avx512] {
                assert_eq!(bits(isa, &by_columns, 0), expected, "{op:?} of {n} on {isa:?}");
            }
        }
    }
}

/// Columns whose rows lie in several runs, forwards and backwards, have the bits of adjacent rows.
#[test]
fn runs_of_rows_have_the_bits_of_adjacent_rows() {
    let [outer, all, used] = [7, 20, 13];
    for columns in [40, 64, 300, 460] {
        let x = values(outer * all * columns, 6);
        let step = columns as i64;
        let sizes = [outer as i64, used as i64, step];
        let forwards = [all as i64 * step, step, 1];
        let backwards = [-(all as i64) * step, -step, 1];
        let end = (outer * all - 1) * columns;
        for (start, strides) in [(0, forwards), (end, backwards)] {
            // SAFETY: all places are in `x`.
            let apart =
                unsafe { View::from_raw(x[start..].as_ptr().cast(), DType::F32, &sizes, &strides) };
            let rows = (0..outer * used).map(|row| {
                let at = (row / used * all + row % used) * columns;
                if start == 0 { at } else { end - at }
            });
            let adjacent: Vec<f32> = rows.flat_map(|at| x[at..at + columns].to_vec()).collect();
            let adjacent = View::from_slice_sized(&adjacent, &sizes).expect("fits");
            for isa in [Isa::Scalar, Isa::Avx2, Isa::Avx512] {
                let bits = |x: &View<'_>| -> Vec<u32> {
                    let sums = run(isa, ReduceOp::Sum, x, &[0, 1], columns);
                    sums.into_iter().map(f32::to_bits).collect()
                };
                assert_eq!(bits(&apart), bits(&adjacent), "{columns} columns on {isa:?}");
            }
        }
    }
}
