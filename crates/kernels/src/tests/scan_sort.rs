//! Scans and sorts.

use super::{view, view_mut};
use crate::{ScanOp, View, ViewMut, cumulative_extreme, scan, sort, topk};

#[test]
fn interleaved_scans_keep_lines_apart() {
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
