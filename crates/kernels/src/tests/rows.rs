//! Softmax and layer norm.

use super::{values, view, view_mut};
use crate::{
    Element, KernelError, LayerNorm, LayerNormBackward, View, ViewMut, layer_norm,
    layer_norm_backward, log_softmax, softmax,
};

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
        weight: Some(&View::from_slice(&w)),
        bias: Some(&View::from_slice(&b)),
        mean: Some(&mut ViewMut::from_slice(&mut mean)),
        rstd: Some(&mut ViewMut::from_slice(&mut rstd)),
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

/// A kernel that maps rows of the input to rows of the output.
type RowKernel<'a> = &'a dyn Fn(&View<'_>, &mut ViewMut<'_>) -> Result<(), KernelError>;

#[test]
fn row_kernels_in_place_have_the_same_bits() {
    fn check<T: Element>(from: impl Fn(f64) -> T, sizes: &[i64], dim: usize) {
        let x: Vec<T> =
            values(sizes.iter().product::<i64>() as usize).into_iter().map(from).collect();
        let norm = |i: &View<'_>, o: &mut ViewMut<'_>| {
            layer_norm(i, sizes.len() - dim, 1e-5, LayerNorm::default(), o)
        };
        let all: [RowKernel<'_>; 3] =
            [&|i, o| softmax(i, dim, o), &|i, o| log_softmax(i, dim, o), &norm];
        for kernel in all {
            let (mut separate, mut in_place) = (x.clone(), x.clone());
            kernel(&view(&x, sizes), &mut view_mut(&mut separate, sizes)).expect("runs");
            let p = in_place.as_mut_ptr().cast();
            let strides = crate::view::contiguous(sizes);
            // SAFETY: input and output have exactly the same layout, which these kernels allow.
            let (i, mut o) = unsafe {
                (
                    View::from_raw(p, T::DTYPE, sizes, &strides),
                    ViewMut::from_raw(p, T::DTYPE, sizes, &strides),
                )
            };
            kernel(&i, &mut o).expect("runs");
            assert_eq!(in_place, separate, "{sizes:?} {dim}");
        }
    }
    for sizes in [&[7i64][..], &[4, 33], &[33, 1], &[3, 5, 4], &[2, 0, 3], &[40, 2500]] {
        for dim in 0..sizes.len() {
            check(|x| x as f32, sizes, dim);
            check(half::bf16::from_f64, sizes, dim);
        }
    }
    // Rows of one element, one of which is fully masked.
    let mut y = [9f32; 4];
    softmax(
        &view(&[f32::NEG_INFINITY, 0.0, -0.0, 1e38], &[4, 1]),
        1,
        &mut view_mut(&mut y, &[4, 1]),
    )
    .expect("runs");
    assert!(y[0].is_nan() && y[1..] == [1.0; 3]);
    // One row, repeated by a stride of 0.
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

#[test]
fn the_gradients_of_a_layer_norm_are_those_of_the_formula() {
    for (rows, n) in [(100usize, 7usize), (1, 40), (33, 1), (0, 5)] {
        let (x, w) = (values(rows * n), values(n));
        // The gradient is transposed in memory.
        let g: Vec<f64> = values(rows * n).iter().map(|v| v * v - 0.3).collect();
        let at = |r: usize, i: usize| g[i * rows + r];
        let row = |r: usize| &x[r * n..][..n];
        let mean: Vec<f64> = (0..rows).map(|r| row(r).iter().sum::<f64>() / n as f64).collect();
        let rstd: Vec<f64> = (0..rows)
            .map(|r| row(r).iter().map(|v| (v - mean[r]).powi(2)).sum::<f64>() / n as f64)
            .map(|variance| 1.0 / (variance + 1e-5).sqrt())
            .collect();
        let sizes = [rows as i64, n as i64];
        let turned = view(&g, &[n as i64, rows as i64]).permute(&[1, 0]).expect("two dimensions");
        for weight in [None, Some(View::from_slice(&w))] {
            let [mut dx, mut dw, mut db] = [rows * n, n, n].map(|n| vec![9f64; n]);
            let operands = LayerNormBackward {
                grad: &turned,
                input: &view(&x, &sizes),
                statistics: [&View::from_slice(&mean), &View::from_slice(&rstd)],
                weight: weight.as_ref(),
            };
            let outs = [
                &mut view_mut(&mut dx, &sizes),
                &mut ViewMut::from_slice(&mut dw),
                &mut ViewMut::from_slice(&mut db),
            ];
            layer_norm_backward(&operands, 1, outs).expect("the sizes fit");
            let z = |r: usize, i: usize| (x[r * n + i] - mean[r]) * rstd[r];
            let scaled = |r: usize, i: usize| at(r, i) * weight.as_ref().map_or(1.0, |_| w[i]);
            for i in 0..n {
                let of_weight: f64 = (0..rows).map(|r| at(r, i) * z(r, i)).sum();
                let of_bias: f64 = (0..rows).map(|r| at(r, i)).sum();
                assert!((dw[i] - of_weight).abs() < 1e-11 && (db[i] - of_bias).abs() < 1e-11);
            }
            for r in 0..rows {
                let over_row = |f: &dyn Fn(usize) -> f64| (0..n).map(f).sum::<f64>() / n as f64;
                let average = over_row(&|i| scaled(r, i));
                let slope = over_row(&|i| scaled(r, i) * z(r, i));
                for i in 0..n {
                    let expected = (scaled(r, i) - average - z(r, i) * slope) * rstd[r];
                    assert!((dx[r * n + i] - expected).abs() < 1e-9 * (1.0 + rstd[r]));
                }
            }
        }
    }
    let (x, one) = ([1f32; 6], [1f32; 2]);
    let statistics = [&View::from_slice(&one), &View::from_slice(&one[..1])];
    let input = view(&x, &[2, 3]);
    let operands = LayerNormBackward { grad: &input, input: &input, statistics, weight: None };
    let [mut dx, mut dw, mut db] = [6, 3, 3].map(|n| vec![0f32; n]);
    let outs = [
        &mut view_mut(&mut dx, &[2, 3]),
        &mut ViewMut::from_slice(&mut dw),
        &mut ViewMut::from_slice(&mut db),
    ];
    let found = layer_norm_backward(&operands, 1, outs);
    assert!(matches!(found, Err(KernelError::Shape { .. })), "one row has no statistics");
}
