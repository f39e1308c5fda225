//! Convolutions.

use super::{values, view, view_mut, window};
use crate::{KernelError, View, conv, conv_transpose};
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    /// Compares a convolution with its definition. The transposed convolution must be its adjoint:
    /// `<conv(x), y> = <x, conv_transpose(y)>`.
    #[test]
    fn convolution_and_its_adjoint(
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

/// Enough windows for two tiles, with the boundary of the tiles inside a row.
#[test]
fn convolution_of_two_tiles() {
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
fn convolution_of_bf16_and_invalid_windows() {
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

/// All taps are in the padding, which no frame of the windows can hold.
#[test]
fn a_dilation_that_reaches_beyond_the_input() {
    let (x, w, far) = ([1f32, 2., -3.], [5f32, 7.], 1 << 30);
    let mut y = [f32::NAN; 3];
    let window = window(&[2], 1, far / 2, far);
    let y_view = &mut view_mut(&mut y, &[1, 1, 3]);
    conv(&view(&x, &[1, 1, 3]), &view(&w, &[1, 1, 2]), None, &window, 1, y_view).unwrap();
    assert_eq!(y, [0.0; 3]);
}
