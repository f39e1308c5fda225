//! Fills and copies.

use super::{view, view_mut};
use crate::{Element, View, ViewMut, copy, fill};
use maquette_ir::{DType, Scalar};

#[test]
fn fills_and_copies() {
    let mut x = [0i32; 5];
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
    // Whole tiles, partial tiles, and a batch of matrices.
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
