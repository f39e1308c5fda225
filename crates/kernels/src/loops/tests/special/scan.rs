//! Cumulative sums, products and extremes.

use super::{SIZES, agrees_specialised, holds, nest_of, results_of};
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
