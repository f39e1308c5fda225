//! Max and average pooling.

use super::{view, view_mut, window};
use crate::{KernelError, Window, adaptive_avg_pool, avg_pool, max_pool};
use half::f16;
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    /// Vectors of windows find the same elements and positions as single windows, which those of
    /// half precision are.
    #[test]
    fn greatest_elements_of_planes(
        size in prop::collection::vec(1i64..40, 2),
        kernel in prop::collection::vec(1i64..5, 2),
        stride in prop::collection::vec(1i64..4, 2),
        dilation in prop::collection::vec(1i64..3, 2),
        padding in prop::collection::vec(0i64..3, 2),
        ceil_mode in any::<bool>(),
        seed in 0usize..1000,
    ) {
        let padding = padding.iter().zip(&kernel).map(|(p, k)| *p.min(&(k / 2))).collect();
        let w = Window { kernel, stride, padding, dilation, ceil_mode };
        let [rows, columns] = [0, 1].map(|d| w.output_size(d, size[d]));
        prop_assume!(rows > 0 && columns > 0);
        let special = [f16::NAN, f16::NEG_INFINITY, f16::NEG_INFINITY, f16::NEG_ZERO, f16::ZERO];
        let value = |i: usize| match (i * 7919 + seed * 31) % 41 {
            n @ 0..5 => special[n],
            n => f16::from_f32(if seed % 3 == 0 { f32::NEG_INFINITY } else { n as f32 - 25.0 }),
        };
        let x: Vec<f16> = (0..(2 * size[0] * size[1]) as usize).map(value).collect();
        let wide: Vec<f32> = x.iter().map(|x| x.to_f32()).collect();
        let (from, to) = ([2, size[0], size[1]], [2, rows, columns]);
        let n = (2 * rows * columns) as usize;
        let (mut y, mut at) = (vec![f16::ZERO; n], vec![0i64; n]);
        let mut indices = view_mut(&mut at, &to);
        max_pool(&view(&x, &from), &w, &mut view_mut(&mut y, &to), Some(&mut indices))
            .expect("pools");
        let (mut found, mut found_at) = (vec![0f32; n], vec![-7i64; n]);
        let mut indices = view_mut(&mut found_at, &to);
        max_pool(&view(&wide, &from), &w, &mut view_mut(&mut found, &to), Some(&mut indices))
            .expect("pools");
        let expected: Vec<f32> = y.iter().map(|y| y.to_f32()).collect();
        // The text of a number has all its bits, but for NaN.
        prop_assert_eq!(format!("{found:?}"), format!("{expected:?}"));
        prop_assert_eq!(found_at, at);
        // Without positions, some windows have a kernel.
        found.fill(7.0);
        max_pool(&view(&wide, &from), &w, &mut view_mut(&mut found, &to), None).expect("pools");
        prop_assert_eq!(format!("{found:?}"), format!("{expected:?}"));
    }
}

#[test]
fn max_and_average_pools() {
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
    // Two dimensions, with windows that the padding cuts on both sides.
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

/// The number of elements of a window, by which its sum is divided, is an `i64`.
#[test]
fn a_window_of_too_many_elements() {
    let many = 1 << 22;
    let w = Window {
        kernel: vec![many; 3],
        stride: vec![1; 3],
        padding: vec![many / 2; 3],
        dilation: vec![1; 3],
        ceil_mode: false,
    };
    let (x, mut out) = ([1f32], [0f32; 8]);
    let out = &mut view_mut(&mut out, &[1, 2, 2, 2]);
    let mean = avg_pool(&view(&x, &[1; 4]), &w, true, None, out);
    assert!(matches!(mean, Err(KernelError::Argument { .. })), "{mean:?}");
}
