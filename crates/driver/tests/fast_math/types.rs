//! Dtypes, and numbers that are not finite.

use super::*;

#[test]
fn wide_floats() {
    let wide = heads().iter().map(|t| t.to_dtype(DType::F64)).collect();
    is_one_kernel("f64", plain, &wide);
}

#[test]
fn a_query_that_sees_no_key_yields_nan() {
    let hidden = f32::NEG_INFINITY;
    let mask = Tensor::from_vec(vec![hidden, hidden, 0.0, hidden, 0.0, 0.0], [3, 2]);
    let operands = |mask: Tensor| {
        let mut all = vec![waves(&[2, 3, 4], 0.9), waves(&[2, 2, 4], 1.3), waves(&[2, 2, 5], 1.7)];
        all.push(mask);
        all
    };
    let added: Attend = |t| (t[0].matmul(&t[1].mT()) + &t[3]).softmax(-1).matmul(&t[2]);
    is_one_kernel("added", added, &operands(mask.clone()));
    assert!(numbers(&added(operands(mask.clone())))[0].is_nan());
    let chosen: Attend =
        |t| t[3].where_(t[0].matmul(&t[1].mT()), f64::NEG_INFINITY).softmax(-1).matmul(&t[2]);
    is_one_kernel("chosen", chosen, &operands(mask.eq(0.0)));
    let filled: Attend =
        |t| t[0].matmul(&t[1].mT()).masked_fill(&t[3], f64::NEG_INFINITY).softmax(-1).matmul(&t[2]);
    is_one_kernel("filled", filled, &operands(mask.ne(0.0)));
}

#[test]
fn operands_that_are_not_finite() {
    for special in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        for operand in 0..3 {
            let mut operands = heads();
            let sizes = operands[operand].sizes_i64().unwrap();
            let mut elements = operands[operand].contiguous().to_vec::<f32>().unwrap();
            elements[3] = special;
            operands[operand] = Tensor::from_vec(elements, sizes.as_slice());
            is_one_kernel(&format!("{special} in {operand}"), plain, &operands);
        }
    }
    // all scores are -inf
    let mut operands = heads();
    operands[0] = Tensor::full([2, 3, 5, 4], f32::NEG_INFINITY, DType::F32);
    operands[1] = Tensor::ones([2, 3, 7, 4], DType::F32);
    is_one_kernel("-inf", plain, &operands);
    assert!(numbers(&plain(operands)).iter().all(|x| x.is_nan()));
}

#[test]
fn sizes_of_nothing() {
    let cases = [
        [&[2, 0, 4][..], &[2, 7, 4], &[2, 7, 6]],
        [&[2, 5, 4], &[2, 0, 4], &[2, 0, 6]],
        [&[2, 5, 0], &[2, 7, 0], &[2, 7, 6]],
        [&[2, 5, 4], &[2, 7, 4], &[2, 7, 0]],
        [&[0, 5, 4], &[0, 7, 4], &[0, 7, 6]],
    ];
    for sizes in cases {
        let operands = sizes.iter().map(|sizes| waves(sizes, 0.9)).collect();
        is_one_kernel(&format!("{sizes:?}"), plain, &operands);
    }
}
