use super::*;
use crate::view::ViewMut;
use maquette_ir::Scalar;

fn ramp(n: usize) -> Vec<f32> {
    (0..n).map(|i| i as f32).collect()
}

fn v2<T: Element>(x: &[T], a: i64, b: i64) -> View<'_> {
    View::from_slice_sized(x, &[a, b]).expect("fits")
}

#[test]
fn selects_rows_and_columns() {
    let x = ramp(12);
    let v = v2(&x, 3, 4);
    let mut out = vec![0f32; 8];
    select(
        &v,
        0,
        &View::from_slice(&[2i64, 0]),
        &mut ViewMut::from_slice_sized(&mut out, &[2, 4]).unwrap(),
    )
    .unwrap();
    assert_eq!(out, [8., 9., 10., 11., 0., 1., 2., 3.]);
    let mut out = vec![0f32; 6];
    select(
        &v,
        1,
        &View::from_slice(&[3i32, 0]),
        &mut ViewMut::from_slice_sized(&mut out, &[3, 2]).unwrap(),
    )
    .unwrap();
    assert_eq!(out, [3., 0., 7., 4., 11., 8.]);
    for bad in [3i64, -1] {
        let r = select(
            &v,
            0,
            &View::from_slice(&[bad]),
            &mut ViewMut::from_slice_sized(&mut out[..4], &[1, 4]).unwrap(),
        );
        assert_eq!(r, Err(KernelError::IndexOutOfRange { index: bad, size: 3, dim: 0 }));
        let r = select(
            &v,
            0,
            &View::from_slice(&[bad]),
            &mut ViewMut::from_slice_sized(&mut out[..4], &[1, 4]).unwrap(),
        );
        assert_eq!(r, Err(KernelError::IndexOutOfRange { index: bad, size: 3, dim: 0 }));
    }
    let mut e = vec![0f32; 8];
    select(
        &v,
        0,
        &v2(&[1i64, 1], 2, 1),
        &mut ViewMut::from_slice_sized(&mut e, &[2, 1, 4]).unwrap(),
    )
    .unwrap();
    assert_eq!(e, [4., 5., 6., 7., 4., 5., 6., 7.]);
}

#[test]
fn advanced_indices_take_their_places() {
    let x = ramp(24);
    let v = View::from_slice_sized(&x, &[2, 3, 4]).unwrap();
    let (a, b) = ([1i64, 0], [2i64, -1]);
    // Indexed dimensions apart: the index's shape comes first.
    let mut out = vec![0f32; 6];
    let idx = [Some(View::from_slice(&a)), None, Some(View::from_slice(&b))];
    index(&v, &idx, &mut ViewMut::from_slice_sized(&mut out, &[2, 3]).unwrap()).unwrap();
    assert_eq!(out, [14., 18., 22., 3., 7., 11.]);
    // Adjacent indexed dimensions: the index's shape replaces them.
    let mut out = vec![0f32; 4];
    let idx = [None, Some(View::from_slice(&a)), Some(View::from_slice(&b))];
    index(&v, &idx, &mut ViewMut::from_slice_sized(&mut out, &[2, 2]).unwrap()).unwrap();
    assert_eq!(out, [6., 3., 18., 15.]);
    let mut y = vec![0f32; 4];
    let idx = [Some(View::from_slice(&[1i64, 1, 3]))];
    index_put(&mut ViewMut::from_slice(&mut y), &idx, &View::from_slice(&[1f32, 2., 4.]), true)
        .unwrap();
    assert_eq!(y, [0., 3., 0., 4.]);
    index_put(&mut ViewMut::from_slice(&mut y), &idx, &View::from_slice(&[1f32, 2., 4.]), false)
        .unwrap();
    assert_eq!(y, [0., 2., 0., 4.]);
}

#[test]
fn gathers_and_scatters() {
    let x = ramp(6);
    let idx = [2i64, 0, 2, 1];
    let mut out = vec![0f32; 4];
    gather(
        &v2(&x, 2, 3),
        1,
        &v2(&idx, 2, 2),
        &mut ViewMut::from_slice_sized(&mut out, &[2, 2]).unwrap(),
    )
    .unwrap();
    assert_eq!(out, [2., 0., 5., 4.]);
    let src = [10f32, 20., 30., 40.];
    let cases = [
        (ScatterOp::Replace, [20., 1., 10., 3., 40., 30.]),
        (ScatterOp::Add, [20., 1., 12., 3., 44., 35.]),
        (ScatterOp::Max, [20., 1., 10., 3., 40., 30.]),
    ];
    for (op, want) in cases {
        let mut y = ramp(6);
        let mut o = ViewMut::from_slice_sized(&mut y, &[2, 3]).unwrap();
        scatter(&mut o, 1, &v2(&idx, 2, 2), &Source::Tensor(v2(&src, 2, 2)), op).unwrap();
        assert_eq!(y, want, "{op:?}");
    }
    let mut y = ramp(6);
    let mut o = ViewMut::from_slice_sized(&mut y, &[2, 3]).unwrap();
    scatter(&mut o, 1, &v2(&idx, 2, 2), &Source::Value(Scalar::Int(7)), ScatterOp::Replace)
        .unwrap();
    assert_eq!(y, [7., 1., 7., 3., 7., 7.]);
    for bad in [5, -1] {
        let idx = [0i64, bad, 0, 0];
        let mut o = ViewMut::from_slice_sized(&mut y, &[2, 3]).unwrap();
        let r =
            scatter(&mut o, 1, &v2(&idx, 2, 2), &Source::Value(Scalar::Int(1)), ScatterOp::Replace);
        assert_eq!(r, Err(KernelError::IndexOutOfRange { index: bad, size: 3, dim: 1 }));
        let r = gather(
            &v2(&x, 2, 3),
            1,
            &v2(&idx, 2, 2),
            &mut ViewMut::from_slice_sized(&mut out, &[2, 2]).unwrap(),
        );
        assert_eq!(r, Err(KernelError::IndexOutOfRange { index: bad, size: 3, dim: 1 }));
    }
}

#[test]
fn selects_by_truth() {
    let x = [0f32, 2., f32::NAN, 0., 0., 5.];
    let v = v2(&x, 2, 3);
    assert_eq!(count_nonzero(&v), 3);
    let mut at = vec![0i64; 6];
    nonzero(&v, &mut ViewMut::from_slice_sized(&mut at, &[3, 2]).unwrap()).unwrap();
    assert_eq!(at, [0, 1, 0, 2, 1, 2]);
    assert!(nonzero(&v, &mut ViewMut::from_slice_sized(&mut at[..4], &[2, 2]).unwrap()).is_err());
    let mask = [true, false, false, true, false, true];
    let mut some = vec![1f32; 3];
    masked_select(&v, &v2(&mask, 2, 3), &mut ViewMut::from_slice(&mut some)).unwrap();
    assert_eq!(some, [0., 0., 5.]);
    let mut y = ramp(6);
    let mut o = ViewMut::from_slice_sized(&mut y, &[2, 3]).unwrap();
    masked_scatter(&mut o, &v2(&mask, 2, 3), &View::from_slice(&[9f32, 8., 7.])).unwrap();
    assert_eq!(y, [9., 1., 2., 8., 4., 7.]);
}
