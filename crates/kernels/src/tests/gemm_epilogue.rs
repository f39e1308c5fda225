//! Epilogues of products, half precision and integers.

use super::gemm::{Matrix, bits, sets, sum_in_order};
use super::{view, view_mut};
use crate::gemm::{packed_product_on, product_on};
use crate::{Activation, Element, Epilogue, PackedMatrix, ViewMut, gemm, product};
use maquette_ir::Scalar;

/// The definition of the epilogue, element by element.
#[test]
fn the_epilogue_rounds_each_step() {
    let (m, n, k) = (19usize, 53usize, 30usize);
    let (a, b) = (Matrix::<f32>::new(m, k, 3, false), Matrix::<f32>::new(k, n, 4, false));
    let (bias, rest) = (Matrix::<f32>::new(m, n, 5, false), Matrix::<f32>::new(m, n, 6, false));
    let sizes = [m as i64, n as i64];
    let addends = [
        ("row", view(&bias.elements[..n], &[n as i64])),
        ("column", view(&bias.elements[..m], &[m as i64, 1])),
        ("matrix", view(&bias.elements, &sizes)),
        ("one", view(&bias.elements[..1], &[1])),
    ];
    let (va, vb) =
        (view(&a.elements, &[m as i64, k as i64]), view(&b.elements, &[k as i64, n as i64]));
    for (name, addend) in addends {
        for activation in [None, Some(Activation::Relu)] {
            for residual in [None, Some(view(&rest.elements, &sizes))] {
                let (alpha, beta) = (0.3f32, -1.7f32);
                let epilogue = Epilogue {
                    alpha: Scalar::Float(alpha.into()),
                    beta: Scalar::Float(beta.into()),
                    addend: Some(addend.clone()),
                    activation,
                    residual: residual.clone(),
                };
                let expected = (0..m * n).map(|p| {
                    let (i, j) = (p / n, p % n);
                    let y = match name {
                        "row" => bias.elements[j],
                        "column" => bias.elements[i],
                        "matrix" => bias.elements[p],
                        _ => bias.elements[0],
                    };
                    let mut x = sum_in_order(k, |q| a.at(i, q), |q| b.at(q, j)) * alpha;
                    x += beta * y;
                    if activation.is_some() {
                        x = if x < 0.0 { 0.0 } else { x };
                    }
                    if residual.is_some() { x + rest.elements[p] } else { x }
                });
                let expected = bits(&expected.collect::<Vec<f32>>());
                for isa in sets() {
                    let mut c = vec![f32::NAN; m * n];
                    product_on(isa, 2, &va, &vb, &epilogue, &mut view_mut(&mut c, &sizes))
                        .expect("multiplies");
                    assert_eq!(bits(&c), expected, "{isa:?} {name} {activation:?}");
                    let mut turned = vec![f32::NAN; m * n];
                    // SAFETY: the strides are those of the transposed matrix.
                    let mut c = unsafe {
                        let start = turned.as_mut_ptr().cast();
                        ViewMut::from_raw(start, f32::DTYPE, &sizes, &[1, m as i64])
                    };
                    product_on(isa, 2, &va, &vb, &epilogue, &mut c).expect("multiplies");
                    let found: Vec<f32> = (0..m * n).map(|p| turned[p % n * m + p / n]).collect();
                    assert_eq!(bits(&found), expected, "{isa:?} {name} {activation:?} turned");
                }
            }
        }
    }
}

#[test]
fn the_addend_may_be_the_result() {
    let (m, n, k) = (33usize, 70usize, 700usize);
    let (a, b) = (Matrix::<f32>::new(m, k, 7, false), Matrix::<f32>::new(k, n, 8, false));
    let start = Matrix::<f32>::new(m, n, 9, false);
    let expected: Vec<f32> = (0..m * n)
        .map(|p| start.elements[p] * 2.0 + sum_in_order(k, |q| a.at(p / n, q), |q| b.at(q, p % n)))
        .collect();
    let mut c = start.elements.clone();
    gemm(
        &view(&a.elements, &[m as i64, k as i64]),
        &view(&b.elements, &[k as i64, n as i64]),
        &mut view_mut(&mut c, &[m as i64, n as i64]),
        1.0,
        2.0,
    )
    .expect("multiplies");
    assert_eq!(bits(&c), bits(&expected));
}

#[test]
fn half_precision_is_summed_in_f32_and_rounded_once() {
    use half::{bf16, f16};
    fn check<T: Element<Class = f32>>(narrow: impl Fn(f32) -> T) {
        let (m, n, k) = (21usize, 61usize, 700usize);
        let (a, b) = (Matrix::<f32>::new(m, k, 10, false), Matrix::<f32>::new(k, n, 11, false));
        let round = |m: &Matrix<f32>| m.elements.iter().map(|x| narrow(*x)).collect::<Vec<T>>();
        let (na, nb) = (round(&a), round(&b));
        let expected: Vec<T> = (0..m * n)
            .map(|p| {
                let sum =
                    sum_in_order(k, |q| na[p / n * k + q].load(), |q| nb[q * n + p % n].load());
                T::store(sum)
            })
            .collect();
        let nb_turned: Vec<T> = (0..k * n).map(|p| nb[p % k * n + p / k]).collect();
        for isa in sets() {
            for turned in [false, true] {
                let vb = match turned {
                    false => view(&nb, &[k as i64, n as i64]),
                    true => view(&nb_turned, &[n as i64, k as i64]).permute(&[1, 0]).expect("is"),
                };
                let va = view(&na, &[m as i64, k as i64]);
                let mut c = vec![T::default(); m * n];
                let sizes = [m as i64, n as i64];
                product_on(isa, 2, &va, &vb, &Epilogue::default(), &mut view_mut(&mut c, &sizes))
                    .expect("multiplies");
                assert_eq!(c, expected, "{isa:?} {turned}");
                let packed = PackedMatrix::on(isa, &vb).expect("packs");
                c.fill(T::default());
                let mut out = view_mut(&mut c, &sizes);
                packed_product_on(2, &va, &packed, &Epilogue::default(), &mut out).expect("is");
                assert_eq!(c, expected, "{isa:?} {turned} packed");
            }
        }
    }
    check(bf16::from_f32);
    check(f16::from_f32);
}

#[test]
fn products_of_narrow_types_wrap() {
    let (a, b) = ([100i8, 100, 1, 2], [100i8, 1, 100, 1]);
    let mut c = [0i8; 4];
    gemm(&view(&a, &[2, 2]), &view(&b, &[2, 2]), &mut view_mut(&mut c, &[2, 2]), 1.0, 0.0).unwrap();
    assert_eq!(c, [(20000i64 as i8), -56, (300i64 as i8), 3]);
    let sizes = view(&a, &[2, 2]);
    let epilogue = Epilogue { activation: Some(Activation::Relu), ..Epilogue::default() };
    let refused = product(&sizes, &sizes, &epilogue, &mut view_mut(&mut c, &[2, 2]));
    assert!(refused.is_err());
}

#[test]
fn a_factor_of_0_ignores_the_addend() {
    let (a, mut c) = ([1.0f32, 2.0], [f32::NAN]);
    gemm(&view(&a, &[1, 2]), &view(&a, &[2, 1]), &mut view_mut(&mut c, &[1, 1]), 1.0, 0.0).unwrap();
    assert_eq!(c, [5.0]);
    let none: [f32; 0] = [];
    let mut c = [3.0f32, 4.0];
    gemm(&view(&none, &[2, 0]), &view(&none, &[0, 1]), &mut view_mut(&mut c, &[2, 1]), 9.0, 2.0)
        .unwrap();
    assert_eq!(c, [6.0, 8.0]);
}
