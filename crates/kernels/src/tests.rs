//! Products, convolutions, pooling, rows, scans, sorts and random fills against plain loops.

use crate::*;
use maquette_ir::{DType, Scalar};
use proptest::prelude::*;

fn values(n: usize) -> Vec<f64> {
    (0..n).map(|i| ((i * 7919 + 13) % 41) as f64 / 8.0 - 2.5).collect()
}

fn view<'a, T: Element>(x: &'a [T], sizes: &[i64]) -> View<'a> {
    View::from_slice_sized(x, sizes).expect("fits")
}

fn view_mut<'a, T: Element>(x: &'a mut [T], sizes: &[i64]) -> ViewMut<'a> {
    ViewMut::from_slice_sized(x, sizes).expect("fits")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn products(
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
            let want: f64 =
                beta * 0.5 + 2.0 * (0..k).map(|q| at(q) * b[t * k * n + q * n + j]).sum::<f64>();
            prop_assert!((got - want).abs() < 1e-9, "{got} {want}");
        }
    }
}

#[test]
fn products_of_narrow_types_and_panels() {
    let (a, b) = ([100i8, 100, 1, 2], [100i8, 1, 100, 1]);
    let mut c = [0i8; 4];
    gemm(&view(&a, &[2, 2]), &view(&b, &[2, 2]), &mut view_mut(&mut c, &[2, 2]), 1.0, 0.0).unwrap();
    assert_eq!(c, [(20000i64 as i8), -56, (300i64 as i8), 3]);
    // A wide product is split into panels; each column must be what the column alone gives in the
    // same panel-free call.
    let (m, k, n) = (70usize, 90usize, 300usize);
    let (a, b): (Vec<f32>, Vec<f32>) = (
        values(m * k).iter().map(|x| *x as f32).collect(),
        values(k * n).iter().map(|x| *x as f32 * 0.37).collect(),
    );
    let mut c = vec![f32::NAN; m * n];
    gemm(&view(&a, &[70, 90]), &view(&b, &[90, 300]), &mut view_mut(&mut c, &[70, 300]), 1.0, 0.0)
        .unwrap();
    let mut whole = vec![0f32; m * n];
    // SAFETY: sizes and strides describe the three buffers.
    unsafe {
        ::gemm::gemm(
            m,
            n,
            k,
            whole.as_mut_ptr(),
            1,
            n as isize,
            false,
            a.as_ptr(),
            1,
            k as isize,
            b.as_ptr(),
            1,
            n as isize,
            0.0,
            1.0,
            false,
            false,
            false,
            ::gemm::Parallelism::None,
        );
    }
    assert_eq!(c, whole);
}

fn window(kernel: &[i64], stride: i64, padding: i64, dilation: i64) -> Window {
    let n = kernel.len();
    Window {
        kernel: kernel.to_vec(),
        stride: vec![stride; n],
        padding: vec![padding; n],
        dilation: vec![dilation; n],
        ceil_mode: false,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    /// Convolution in two dimensions, and its transpose, which must be its adjoint: <conv(x), y> =
    /// <x, conv_t(y)>.
    #[test]
    fn convolutions(
        size in 5i64..9,
        kernel in 1i64..4,
        stride in 1i64..3,
        padding in 0i64..2,
        dilation in 1i64..3,
        groups in 1i64..3,
    ) {
        let w = window(&[kernel, kernel], stride, padding, dilation);
        let (cin, cout, o) = (2 * groups, groups * 3, w.output_size(0, size));
        let (x, wt) = (
            values((2 * cin * size * size) as usize),
            values((cout * 2 * kernel * kernel) as usize),
        );
        let bias = values(cout as usize);
        let mut y = vec![0f64; (2 * cout * o * o) as usize];
        let (xs, ws, ys) = ([2, cin, size, size], [cout, 2, kernel, kernel], [2, cout, o, o]);
        conv(
            &view(&x, &xs),
            &view(&wt, &ws),
            Some(&View::from_slice(&bias)),
            &w,
            groups,
            &mut view_mut(&mut y, &ys),
        )
        .expect("convolves");
        for (p, got) in y.iter().enumerate() {
            let p = p as i64;
            let (b, c, i, j) = (p / (cout * o * o), p / (o * o) % cout, p / o % o, p % o);
            let mut want = bias[c as usize];
            for ci in 0..2 {
                for (u, v) in (0..kernel).flat_map(|u| (0..kernel).map(move |v| (u, v))) {
                    let (r, s) =
                        (i * stride - padding + u * dilation, j * stride - padding + v * dilation);
                    if (0..size).contains(&r) && (0..size).contains(&s) {
                        let channel = c / 3 * 2 + ci;
                        want += x[(((b * cin + channel) * size + r) * size + s) as usize]
                            * wt[(((c * 2 + ci) * kernel + u) * kernel + v) as usize];
                    }
                }
            }
            prop_assert!((got - want).abs() < 1e-9, "{got} {want}");
        }
        let mut plain = vec![0f64; y.len()];
        conv(&view(&x, &xs), &view(&wt, &ws), None, &w, groups, &mut view_mut(&mut plain, &ys))
            .expect("convolves");
        let mut back = vec![0f64; x.len()];
        conv_transpose(
            &view(&y, &ys),
            &view(&wt, &ws),
            None,
            &w,
            groups,
            &mut view_mut(&mut back, &xs),
        )
        .expect("transposes");
        let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(x, y)| x * y).sum::<f64>();
        let (l, r) = (dot(&plain, &y), dot(&x, &back));
        prop_assert!((l - r).abs() <= 1e-9 * l.abs().max(1.0), "{l} {r}");
    }
}

/// Enough windows for two tiles, with the tile boundary inside a row.
#[test]
fn convolutions_in_tiles() {
    let (channels, outputs, o) = (16, 3, 50);
    for (stride, size) in [(1, 50), (2, 99)] {
        let x: Vec<f32> = (0..channels * size * size).map(|i| ((i * 37) % 11 - 5) as f32).collect();
        let wt: Vec<f32> = (0..outputs * channels * 9).map(|i| ((i * 53) % 7 - 3) as f32).collect();
        let mut y = vec![f32::NAN; (outputs * o * o) as usize];
        let w = window(&[3, 3], stride, 1, 1);
        let (xs, ws, ys) =
            ([1, channels, size, size], [outputs, channels, 3, 3], [1, outputs, o, o]);
        conv(&view(&x, &xs), &view(&wt, &ws), None, &w, 1, &mut view_mut(&mut y, &ys))
            .expect("convolves");
        for (p, got) in y.iter().enumerate() {
            let (c, i, j) = (p as i64 / (o * o), p as i64 / o % o, p as i64 % o);
            let mut want = 0.0;
            for (k, u, v) in (0..channels * 9).map(|t| (t / 9, t / 3 % 3, t % 3)) {
                let (r, s) = (i * stride - 1 + u, j * stride - 1 + v);
                if (0..size).contains(&r) && (0..size).contains(&s) {
                    want += x[((k * size + r) * size + s) as usize]
                        * wt[((c * channels + k) * 9 + u * 3 + v) as usize];
                }
            }
            assert_eq!(*got, want, "stride {stride}, channel {c}, window {i}, {j}");
        }
    }
}

#[test]
fn convolutions_of_bf16_one_dimension_and_misfits() {
    let x: Vec<half::bf16> = [1f32, 2., 3.].map(half::bf16::from_f32).to_vec();
    let w: Vec<half::bf16> = [1f32, -1.].map(half::bf16::from_f32).to_vec();
    let mut y = vec![half::bf16::ZERO; 2];
    conv(
        &view(&x, &[1, 1, 3]),
        &view(&w, &[1, 1, 2]),
        None,
        &window(&[2], 1, 0, 1),
        1,
        &mut view_mut(&mut y, &[1, 1, 2]),
    )
    .unwrap();
    assert_eq!(y, [half::bf16::NEG_ONE; 2]);
    let bad = conv(
        &view(&x, &[1, 1, 3]),
        &view(&w, &[1, 1, 2]),
        None,
        &window(&[2], 0, 0, 1),
        1,
        &mut view_mut(&mut y, &[1, 1, 2]),
    );
    assert!(matches!(bad, Err(KernelError::Argument { .. })), "{bad:?}");
    let bad = conv(
        &view(&x, &[1, 3, 1]),
        &view(&w, &[1, 1, 2]),
        None,
        &window(&[2], 1, 0, 1),
        2,
        &mut view_mut(&mut y, &[1, 1, 2]),
    );
    assert!(bad.is_err());
}

#[test]
fn pooling() {
    let x = [1f32, 5., 2., f32::NAN, 4., 3.];
    let mut out = [0f32; 3];
    let mut idx = [9i64; 3];
    let mut w = window(&[2], 2, 0, 1);
    max_pool(
        &view(&x, &[1, 6]),
        &w,
        &mut view_mut(&mut out, &[1, 3]),
        Some(&mut view_mut(&mut idx, &[1, 3])),
    )
    .unwrap();
    assert!(out[0] == 5. && out[1].is_nan() && out[2] == 4. && idx == [1, 3, 4]);
    let x = [1f32, 2., 3., 4., 5.];
    w = window(&[3], 2, 1, 1);
    for (include, divisor, want) in [
        (true, None, [1., 3., 3.]),
        (false, None, [1.5, 3., 4.5]),
        (true, Some(2), [1.5, 4.5, 4.5]),
    ] {
        avg_pool(&view(&x, &[1, 5]), &w, include, divisor, &mut view_mut(&mut out, &[1, 3]))
            .unwrap();
        assert_eq!(out, want, "{include} {divisor:?}");
    }
    adaptive_avg_pool(&view(&x, &[1, 5]), 1, &mut view_mut(&mut out, &[1, 3])).unwrap();
    assert_eq!(out, [1.5, 3., 4.5]);
    w.ceil_mode = true;
    assert_eq!((w.output_size(0, 5), w.output_size(0, 6)), (3, 4));
    // Two dimensions, and a window cut at both sides.
    let x: Vec<i64> = (0..9).collect();
    let (mut m, mut at) = ([0i64; 4], [0i64; 4]);
    let w = window(&[2, 2], 2, 1, 1);
    max_pool(
        &view(&x, &[3, 3]),
        &w,
        &mut view_mut(&mut m, &[2, 2]),
        Some(&mut view_mut(&mut at, &[2, 2])),
    )
    .unwrap();
    assert_eq!((m, at), ([0, 2, 6, 8], [0, 2, 6, 8]));
}

#[test]
fn softmax_and_layer_norm() {
    let x: Vec<f64> = values(4 * 33);
    for (sizes, dim) in [([4i64, 33], 1), ([33, 4], 0)] {
        let (mut y, mut l) = (vec![0f64; x.len()], vec![0f64; x.len()]);
        softmax(&view(&x, &sizes), dim, &mut view_mut(&mut y, &sizes)).unwrap();
        log_softmax(&view(&x, &sizes), dim, &mut view_mut(&mut l, &sizes)).unwrap();
        let (n, step, rows, next) = if dim == 1 { (33, 1, 4, 33) } else { (33, 4, 4, 1) };
        for r in 0..rows {
            let row = |v: &[f64]| (0..n).map(|i| v[r * next + i * step]).collect::<Vec<_>>();
            let sum: f64 = row(&x).iter().map(|v| v.exp()).sum();
            for ((x, y), l) in row(&x).iter().zip(row(&y)).zip(row(&l)) {
                assert!((x.exp() / sum - y).abs() < 1e-14 && (l - y.ln()).abs() < 1e-12);
            }
        }
    }
    let x: Vec<f32> = values(12).iter().map(|v| *v as f32).collect();
    let (w, b) = ([1f32, 2., 3., 4.], [0.5f32; 4]);
    let (mut y, mut mean, mut rstd) = (vec![0f32; 12], [0f32; 3], [0f32; 3]);
    let operands = LayerNorm {
        weight: Some(View::from_slice(&w)),
        bias: Some(View::from_slice(&b)),
        mean: Some(ViewMut::from_slice(&mut mean)),
        rstd: Some(ViewMut::from_slice(&mut rstd)),
    };
    layer_norm(&view(&x, &[3, 4]), 1, 1e-5, operands, &mut view_mut(&mut y, &[3, 4])).unwrap();
    for r in 0..3 {
        let row = &x[r * 4..][..4];
        let m = row.iter().sum::<f32>() / 4.0;
        let s = 1.0 / (row.iter().map(|v| (v - m) * (v - m)).sum::<f32>() / 4.0 + 1e-5).sqrt();
        assert!((m - mean[r]).abs() < 1e-6 && (s - rstd[r]).abs() < 1e-5);
        (0..4).for_each(|i| assert!((y[r * 4 + i] - ((row[i] - m) * s * w[i] + 0.5)).abs() < 1e-5));
    }
    let mut z = [0i64; 4];
    assert!(matches!(
        softmax(&view(&[1i64; 4], &[4]), 0, &mut view_mut(&mut z, &[4])),
        Err(KernelError::DType { .. })
    ));
}

#[test]
fn scans_of_lines_side_by_side() {
    for rows in [1usize, 3, 4, 6] {
        let x: Vec<i64> = (0..rows as i64 * 5).map(|i| i * i % 17 - 8).collect();
        let mut y = vec![0i64; x.len()];
        scan(
            ScanOp::Sum,
            &view(&x, &[rows as i64, 5]),
            1,
            &mut view_mut(&mut y, &[rows as i64, 5]),
        )
        .unwrap();
        for (r, (x, y)) in x.chunks(5).zip(y.chunks(5)).enumerate() {
            assert!(
                (0..5).all(|i| y[i] == x[..=i].iter().sum::<i64>()),
                "row {r} of {rows}: {x:?} {y:?}"
            );
        }
    }
    scan(ScanOp::Sum, &view::<i64>(&[], &[3, 0]), 1, &mut view_mut::<i64>(&mut [], &[3, 0]))
        .unwrap();
}

#[test]
fn scans_and_sorts() {
    let x = [3i32, 1, 2, 1, 5, 4];
    let mut y = [0i64; 6];
    scan(ScanOp::Sum, &view(&x, &[2, 3]), 1, &mut view_mut(&mut y, &[2, 3])).unwrap();
    assert_eq!(y, [3, 4, 6, 1, 6, 10]);
    scan(ScanOp::Prod, &view(&x, &[2, 3]), 0, &mut view_mut(&mut y, &[2, 3])).unwrap();
    assert_eq!(y, [3, 1, 2, 3, 5, 8]);
    let x = [2f32, f32::NAN, 1., 2., -1.];
    let (mut v, mut i) = ([0f32; 5], [0i64; 5]);
    for (descending, want) in [(false, [4, 2, 0, 3, 1]), (true, [1, 0, 3, 2, 4])] {
        sort(
            &View::from_slice(&x),
            0,
            descending,
            &mut ViewMut::from_slice(&mut v),
            &mut ViewMut::from_slice(&mut i),
        )
        .unwrap();
        assert_eq!(i, want);
        assert!(v.iter().zip(i).all(|(v, i)| v.to_bits() == x[i as usize].to_bits()));
    }
    topk(
        &View::from_slice(&x[2..]),
        0,
        true,
        &mut ViewMut::from_slice(&mut v[..2]),
        &mut ViewMut::from_slice(&mut i[..2]),
    )
    .unwrap();
    assert_eq!((&v[..2], &i[..2]), (&[2f32, 1.][..], &[1i64, 0][..]));
    let mut v = [0f32; 9];
    let mut i = [0i64; 9];
    assert!(
        topk(
            &View::from_slice(&x),
            0,
            true,
            &mut ViewMut::from_slice(&mut v),
            &mut ViewMut::from_slice(&mut i)
        )
        .is_err()
    );
    let (mut v, mut i) = ([0f32; 5], [0i64; 5]);
    cumulative_extreme(
        true,
        &View::from_slice(&[1f32, 3., 3., 2., 5.]),
        0,
        &mut ViewMut::from_slice(&mut v),
        &mut ViewMut::from_slice(&mut i),
    )
    .unwrap();
    assert_eq!((v, i), ([1., 3., 3., 3., 5.], [0, 1, 2, 2, 4]));
}

#[test]
fn random_numbers() {
    // The published vectors of Philox4x32-10.
    assert_eq!(philox4x32(0, [0; 4]), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
    assert_eq!(
        philox4x32(u64::MAX, [u32::MAX; 4]),
        [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]
    );
    let at = Philox { seed: 7, offset: 3 };
    let (mut a, mut b, mut c) = (vec![0f32; 100_000], vec![0f32; 10], vec![0f32; 100_000]);
    uniform(&mut ViewMut::from_slice(&mut a), at, 0.0, 1.0).unwrap();
    uniform(&mut ViewMut::from_slice(&mut b), at, 0.0, 1.0).unwrap();
    assert_eq!(a[..10], b);
    uniform(&mut ViewMut::from_slice(&mut b), Philox { offset: 4, ..at }, 0.0, 1.0).unwrap();
    assert_eq!(a[4..10], b[..6]);
    let mean = |x: &[f32]| x.iter().map(|v| f64::from(*v)).sum::<f64>() / x.len() as f64;
    assert!((mean(&a) - 0.5).abs() < 5e-3 && a.iter().all(|x| (0.0..1.0).contains(x)));
    normal(&mut ViewMut::from_slice(&mut c), at, 1.0, 2.0).unwrap();
    let m = mean(&c);
    let var = c.iter().map(|x| (f64::from(*x) - m).powi(2)).sum::<f64>() / 1e5;
    assert!((m - 1.0).abs() < 0.03 && (var - 4.0).abs() < 0.1, "{m} {var}");
    let mut k = vec![0i64; 1000];
    randint(&mut ViewMut::from_slice(&mut k), at, -2, 3).unwrap();
    assert!((-2..3).all(|v| k.contains(&v)) && k.iter().all(|v| (-2..3).contains(v)));
    assert!(randint(&mut ViewMut::from_slice(&mut k), at, 3, 3).is_err());
}

#[test]
fn fills_and_copies() {
    let mut x = [0i32; 5];
    arange(&mut ViewMut::from_slice(&mut x), Scalar::Int(3), Scalar::Int(-2)).unwrap();
    assert_eq!(x, [3, 1, -1, -3, -5]);
    fill(&mut ViewMut::from_slice(&mut x), Scalar::Float(2.9)).unwrap();
    assert_eq!(x, [2; 5]);
    let src = [1f32, f32::from_bits(0x7f80_0001), 3.];
    let mut dst = [0f32; 6];
    copy(&View::from_slice(&src), &mut view_mut(&mut dst, &[2, 3])).unwrap();
    assert_eq!(dst[4].to_bits(), 0x7f80_0001);
    let mut t = [0f32; 6];
    copy(&view(&dst, &[2, 3]).permute(&[1, 0]).unwrap(), &mut view_mut(&mut t, &[3, 2])).unwrap();
    assert_eq!((t[0], t[1], t[4], t[5]), (1., 1., 3., 3.));
    let mut half = [half::f16::ZERO; 3];
    copy(&View::from_slice(&[1i64, 70000, -2]), &mut ViewMut::from_slice(&mut half)).unwrap();
    assert_eq!(half[1], half::f16::INFINITY);
    assert_eq!(half[0].to_f32(), 1.0);
    let mut one = [0f64];
    copy(&view(&[7i16], &[]), &mut view_mut(&mut one, &[])).unwrap();
    assert_eq!((one, DType::F64), ([7.0], f64::DTYPE));
}

#[test]
fn transposed_copies_are_the_elements_in_order() {
    // with whole and partial tiles, and a batch around them
    for (b, r, c) in [(1, 16, 16), (1, 33, 70), (3, 64, 31), (2, 100, 17)] {
        fn check<T: Element + From<u8>>(b: i64, r: i64, c: i64) {
            let x: Vec<T> = (0..b * r * c).map(|i| T::from((i % 251) as u8)).collect();
            let mut out = vec![T::default(); x.len()];
            let transposed = view(&x, &[b, r, c]).permute(&[0, 2, 1]).expect("permutes");
            copy(&transposed, &mut view_mut(&mut out, &[b, c, r])).expect("copies");
            let at = |t: i64, i: i64, j: i64| x[((t * r + i) * c + j) as usize];
            let want: Vec<T> = (0..b)
                .flat_map(|t| (0..c).flat_map(move |j| (0..r).map(move |i| (t, i, j))))
                .map(|(t, i, j)| at(t, i, j))
                .collect();
            assert_eq!(out, want, "{b} {r} {c}");
        }
        check::<u8>(b, r, c);
        check::<i16>(b, r, c);
        check::<f32>(b, r, c);
        check::<f64>(b, r, c);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    /// Compares with the definition, for any layout of the keys and blocks of several sizes.
    #[test]
    fn attention_of_blocks(
        b in 1usize..3,
        n in 0usize..40,
        l in 0usize..40,
        e in 0usize..5,
        d in 0usize..5,
        causal in any::<bool>(),
        kind in 0u8..3,
    ) {
        let (q, k, v) = (values(b * n * e), values(b * l * e), values(b * l * d));
        let (seen, added) =
            (values(n * l).iter().map(|x| *x > 0.0).collect::<Vec<bool>>(), values(n * l));
        let [bi, ni, li, ei, di] = [b, n, l, e, d].map(|x| x as i64);
        let mask = match kind {
            0 => None,
            1 => Some(view(&seen, &[ni, li])),
            _ => Some(view(&added, &[1, ni, li])),
        };
        let (mut out, mut lse) = (vec![7.0f64; b * n * d], vec![7.0f64; b * n]);
        // the keys lie transposed in memory
        let keys: Vec<f64> = (0..b * e * l)
            .map(|p| k[p / (e * l).max(1) * e * l + p % l.max(1) * e + p / l.max(1) % e.max(1)])
            .collect();
        let key = view(&keys, &[bi, ei, li]).permute(&[0, 2, 1]).expect("permutes");
        let asked = Attention {
            scale: 0.5,
            causal,
            mask,
            round: false,
            logsumexp: Some(view_mut(&mut lse, &[bi, ni])),
        };
        attention(
            &view(&q, &[bi, ni, ei]),
            &key,
            &view(&v, &[bi, li, di]),
            asked,
            &mut view_mut(&mut out, &[bi, ni, di]),
        )
        .expect("attends");
        for (t, i) in (0..b).flat_map(|t| (0..n).map(move |i| (t, i))) {
            let score = |j: usize| -> f64 {
                let dot: f64 =
                    (0..e).map(|c| q[(t * n + i) * e + c] * k[(t * l + j) * e + c]).sum();
                let hidden = causal && j > i || kind == 1 && !seen[i * l + j];
                if hidden {
                    f64::NEG_INFINITY
                } else {
                    0.5 * dot + if kind == 2 { added[i * l + j] } else { 0.0 }
                }
            };
            let sum: f64 = (0..l).map(|j| score(j).exp()).sum();
            let expected = if sum == 0.0 { 0.0 } else { sum.ln() };
            prop_assert!((lse[t * n + i] - expected).abs() < 1e-9, "{} {expected}", lse[t * n + i]);
            for c in 0..d {
                let weighted: f64 = (0..l).map(|j| score(j).exp() * v[(t * l + j) * d + c]).sum();
                let (found, expected) =
                    (out[(t * n + i) * d + c], if sum == 0.0 { 0.0 } else { weighted / sum });
                prop_assert!((found - expected).abs() < 1e-9, "{found} {expected}");
            }
        }
    }
}

type Rows<'a> = &'a dyn Fn(&View<'_>, &mut ViewMut<'_>) -> Result<(), KernelError>;

#[test]
fn rows_in_place_have_the_bits_of_rows_elsewhere() {
    fn check<T: Element>(from: impl Fn(f64) -> T, sizes: &[i64], dim: usize) {
        let x: Vec<T> =
            values(sizes.iter().product::<i64>() as usize).into_iter().map(from).collect();
        let norm = |i: &View<'_>, o: &mut ViewMut<'_>| {
            layer_norm(i, sizes.len() - dim, 1e-5, LayerNorm::default(), o)
        };
        let all: [Rows<'_>; 3] =
            [&|i, o| softmax(i, dim, o), &|i, o| log_softmax(i, dim, o), &norm];
        for kernel in all {
            let (mut elsewhere, mut here) = (x.clone(), x.clone());
            kernel(&view(&x, sizes), &mut view_mut(&mut elsewhere, sizes)).expect("runs");
            let p = here.as_mut_ptr().cast();
            let strides = crate::view::contiguous(sizes);
            // SAFETY: exactly the same layout, as the executors allow.
            let (i, mut o) = unsafe {
                (
                    View::from_raw(p, T::DTYPE, sizes, &strides),
                    ViewMut::from_raw(p, T::DTYPE, sizes, &strides),
                )
            };
            kernel(&i, &mut o).expect("runs");
            assert_eq!(here, elsewhere, "{sizes:?} {dim}");
        }
    }
    for sizes in [&[7i64][..], &[4, 33], &[33, 1], &[3, 5, 4], &[2, 0, 3], &[40, 2500]] {
        for dim in 0..sizes.len() {
            check(|x| x as f32, sizes, dim);
            check(half::bf16::from_f64, sizes, dim);
        }
    }
    // rows of one element each, and a fully masked row
    let mut y = [9f32; 4];
    softmax(
        &view(&[f32::NEG_INFINITY, 0.0, -0.0, 1e38], &[4, 1]),
        1,
        &mut view_mut(&mut y, &[4, 1]),
    )
    .expect("runs");
    assert!(y[0].is_nan() && y[1..] == [1.0; 3]);
    // one row, repeated
    let row = values(33);
    let mut y = vec![0f64; 99];
    softmax(
        &view(&row, &[1, 33]).expand(&[3, 33]).expect("fits"),
        1,
        &mut view_mut(&mut y, &[3, 33]),
    )
    .expect("runs");
    assert!(y[..33] == y[33..66] && y[..33] == y[66..]);
}

/// The strides of an empty view are irrelevant, and no product of its sizes may overflow.
#[test]
fn empty_views_are_contiguous() {
    for (sizes, strides) in [([0, 2, 3], [5, 1, 7]), ([0, 1 << 40, 1 << 40], [0, 1 << 40, 1])] {
        // SAFETY: the view has no elements.
        let view =
            unsafe { View::from_raw([0f32; 1].as_ptr().cast(), DType::F32, &sizes, &strides) };
        assert!(view.is_contiguous(), "{sizes:?} {strides:?}");
    }
}
