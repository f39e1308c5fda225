//! Max and average pooling.

use super::{view, view_mut, window};
use crate::{adaptive_avg_pool, avg_pool, max_pool};

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
