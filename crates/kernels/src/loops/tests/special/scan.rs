//! Cumulative sums, products and extremes.

use super::{SIZES, agrees_specialised, holds, nest_of, noise, results_of};
use crate::loops::tests::random::Random;
use crate::thread_pool::with_num_threads;
use crate::{ScanOp, View, ViewMut};
use maquette_ir::loops::fold::Fold;
use maquette_ir::loops::{Array, named};
use maquette_ir::{DType, Scalar};

#[test]
fn scans_have_the_bits_of_their_nests() {
    let dtypes = [
        (DType::F32, DType::F32),
        (DType::BF16, DType::BF16),
        (DType::F32, DType::F16),
        (DType::F64, DType::F64),
        (DType::I32, DType::I64),
        (DType::Bool, DType::I64),
        (DType::I64, DType::U8),
        (DType::F32, DType::Bool),
    ];
    for fold in [Fold::Sum, Fold::Prod] {
        for ((x, out), dim) in dtypes.into_iter().flat_map(|d| (0..3).map(move |dim| (d, dim))) {
            let nest =
                nest_of(x, 3, |nest, x| named::scan(nest, x, x.axes[dim], fold.clone(), out));
            SIZES.iter().for_each(|sizes| holds(Some("scan"), &nest, sizes));
        }
        let nest = nest_of(DType::F32, 0, |nest, x| {
            let along = nest.unit_axis();
            named::scan(nest, x, along, fold.clone(), DType::F32)
        });
        holds(Some("scan"), &nest, &[]);
    }
}

#[test]
fn cumulative_extremes_have_the_bits_of_their_nests() {
    for max in [false, true] {
        for dtype in [DType::F32, DType::F16, DType::I32, DType::U8, DType::Bool] {
            for dim in 0..3 {
                let nest = results_of(dtype, 3, |nest, x| {
                    named::cumulative_extreme(nest, x, x.axes[dim], max)
                });
                SIZES.iter().for_each(|sizes| holds(Some("scan"), &nest, sizes));
            }
        }
        let nest = results_of(DType::F64, 0, |nest, x| {
            let along = nest.unit_axis();
            named::cumulative_extreme(nest, x, along, max)
        });
        holds(Some("scan"), &nest, &[]);
        let special = [-0.0, 0.0, f64::NEG_INFINITY, 1.0, f64::INFINITY, 1.0, f64::NAN, 2.0];
        for first in 0..special.len() {
            let nest = results_of(DType::F32, 1, |nest, x| {
                named::cumulative_extreme(nest, x, x.axes[0], max)
            });
            let elements = special.iter().cycle().skip(first).take(special.len());
            let elements = elements.map(|x| Scalar::Float(*x));
            let x = Array::new(DType::F32, &[special.len() as i64], elements).expect("fits");
            let symbols = [special.len() as i64];
            assert_eq!(agrees_specialised("scan", &nest, &symbols, &[x], &[]), None);
        }
    }
}

/// Numbers whose sums and products round in `f64`.
fn rounding(dtype: DType, sizes: &[i64], fold: &Fold) -> Array {
    let n = sizes.iter().product::<i64>() as usize;
    let element = |x: f64| match fold {
        Fold::Prod => Scalar::Float(1.0 + (x / 60.0).powi(3)),
        _ => Scalar::Float(x.powi(3) / 3.0),
    };
    Array::new(dtype, sizes, noise(n).map(element)).expect("fits")
}

#[test]
fn scans_in_blocks_have_the_bits_of_the_reference() {
    let mut random = Random::new(16);
    for (i, near) in [16, 16, 16, 32, 128, 256, 256, 272, 2048, 4096].into_iter().enumerate() {
        let length = (near - 2 + random.below(5)) as i64;
        let others = if near > 300 { [1, 2] } else { [9, 66] };
        for fold in [Fold::Sum, Fold::Prod] {
            let dtype = random.pick(&[DType::F64, DType::F64, DType::F32]);
            let other = random.pick(&others);
            for (dim, sizes) in [[length, other], [other, length]].into_iter().enumerate() {
                let nest = nest_of(dtype, 2, |nest, x| {
                    named::scan(nest, x, x.axes[dim], fold.clone(), dtype)
                });
                let x = [rounding(dtype, &sizes, &fold)];
                let agrees = || agrees_specialised("scan", &nest, &sizes, &x, &[]);
                assert_eq!(with_num_threads(1 + i % 3, agrees), None);
            }
        }
    }
}

#[test]
fn scans_of_three_dimensions_have_the_bits_of_the_reference() {
    for sizes in [[3, 40, 8], [40, 3, 70], [2, 33, 7], [2, 8, 300], [17, 1, 9], [1, 20, 130]] {
        for dim in 0..3 {
            let nest = nest_of(DType::F64, 3, |nest, x| {
                named::scan(nest, x, x.axes[dim], Fold::Sum, DType::F64)
            });
            let x = [rounding(DType::F64, &sizes, &Fold::Sum)];
            assert_eq!(agrees_specialised("scan", &nest, &sizes, &x, &[]), None);
        }
    }
}

#[test]
fn a_sum_of_negative_zeros_is_positive() {
    for (dim, sizes) in [(0, [300, 9]), (1, [9, 300]), (1, [9, 40]), (0, [300, 1])] {
        let zeros = vec![-0.0f32; sizes.iter().product::<usize>()];
        let array = |x: &[f32]| {
            let sizes = sizes.map(|n| n as i64);
            Array::new(DType::F32, &sizes, x.iter().map(|x| Scalar::Float((*x).into())))
        };
        let nest = nest_of(DType::F32, 2, |nest, x| {
            named::scan(nest, x, x.axes[dim], Fold::Sum, DType::F32)
        });
        let x = [array(&zeros).expect("fits")];
        let symbols = sizes.map(|n| n as i64);
        assert_eq!(agrees_specialised("scan", &nest, &symbols, &x, &[]), None);
        let found = nest.eval(&|s| symbols.get(s.index()).copied(), &x, &[]).expect("evaluates");
        assert!(found[0].elements().iter().all(|x| x.to_f64().is_sign_positive()));
    }
}

/// A line of a million elements has five levels of blocks. A sum of integers tells whether one is
/// lost.
#[test]
fn long_lines_lose_no_block() {
    let n = (1 << 20) + 17;
    let x: Vec<i64> = (0..n).map(|i| i * i % 1009 - 500).collect();
    let mut y = vec![0i64; x.len()];
    crate::scan(ScanOp::Sum, &View::from_slice(&x), 0, &mut ViewMut::from_slice(&mut y))
        .expect("scans");
    let mut sum = 0;
    for (i, (x, y)) in x.iter().zip(y).enumerate() {
        sum += x;
        assert_eq!(y, sum, "at {i}");
    }
}
