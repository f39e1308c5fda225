mod in_place;
mod prepared;

use super::*;
use crate::element::{Element, cast, dispatch};
use maquette_ir::Scalar;
use maquette_ir::scalar_expr::{BinaryOp, CmpOp, ExprBuilder, UnaryOp};
use proptest::prelude::*;

/// Converts scalars to the bytes of a dtype: the storage of a test tensor. [`scalar_at`] reads them
/// back.
pub(crate) fn bytes_of(d: DType, xs: &[Scalar]) -> Vec<u64> {
    let mut out = vec![0u64; (xs.len() * d.size()).div_ceil(8).max(1)];
    dispatch!(d, T => {
        for (i, x) in xs.iter().enumerate() {
            // SAFETY: `out` has room for all of `xs`, and is aligned for every type.
            unsafe { out.as_mut_ptr().cast::<T>().add(i).write(crate::element::from_scalar(*x)) }
        }
    });
    out
}

pub(crate) fn scalar_at(d: DType, bytes: &[u64], i: usize) -> Scalar {
    dispatch!(d, T => {
        // SAFETY: the caller's index is within what `bytes_of` wrote.
        let x = unsafe { bytes.as_ptr().cast::<T>().add(i).read() };
        match d {
            DType::Bool => Scalar::Bool(cast(x)),
            d if d.is_float() => Scalar::Float(cast(x)),
            _ => Scalar::Int(cast(x)),
        }
    })
}

fn run(
    expr: &ScalarExpr,
    isa: Isa,
    n: usize,
    inputs: &[Vec<u64>],
) -> Result<Vec<Vec<u64>>, KernelError> {
    let sizes = [n as i64];
    let view = |(d, b): (&DType, &Vec<u64>)| {
        // SAFETY: the buffers hold n elements.
        unsafe { View::from_raw(b.as_ptr().cast(), *d, &sizes, &[1]) }
    };
    let views: Vec<View> = expr.inputs().iter().zip(inputs).map(view).collect();
    let mut outs: Vec<Vec<u64>> =
        expr.output_dtypes().map(|d| bytes_of(d, &vec![Scalar::Int(0); n])).collect();
    let mut views_out: Vec<ViewMut> = expr
        .output_dtypes()
        .zip(&mut outs)
        // SAFETY: as above.
        .map(|(d, b)| unsafe { ViewMut::from_raw(b.as_mut_ptr().cast(), d, &sizes, &[1]) })
        .collect();
    pointwise_on(isa, expr, &views, &mut views_out)?;
    Ok(outs)
}

fn specials(d: DType) -> Vec<Scalar> {
    if d.is_float() {
        let base = [
            0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, 3.0, -3.7, 1e-3, -1e-5, 1e-30, 10.25, -20.0,
            88.0, -100.0, 1e5, 1e20, 6e4,
        ];
        base.into_iter()
            .chain([f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 1e-42])
            .map(Scalar::Float)
            .collect()
    } else {
        [0, 1, -1, 2, 3, -7, 8, 31, 64, 127, -128, 255, 30000, i32::MAX as i64, i64::MAX, i64::MIN]
            .map(Scalar::Int)
            .to_vec()
    }
}

/// Whether two scalars differ by at most `ulps` units in the last place of `d`.
fn close(d: DType, got: Scalar, want: Scalar, ulps: f64) -> bool {
    let (g, w) = (got.to_f64(), want.to_f64());
    if !d.is_float() || ulps == 0.0 {
        return got == want || (g.is_nan() && w.is_nan());
    }
    let (eps, tiny) = match d {
        DType::F64 => (2f64.powi(-52), 5e-324),
        DType::F32 => (2f64.powi(-23), 1.5e-45),
        DType::F16 => (2f64.powi(-10), 6e-8),
        _ => (2f64.powi(-7), 1e-40),
    };
    g == w || (g.is_nan() && w.is_nan()) || (g - w).abs() <= ulps * (w.abs() * eps + tiny)
}

fn compare_all(expr: &ScalarExpr, columns: &[Vec<Scalar>], ulps: f64) {
    let n = columns[0].len();
    let inputs: Vec<Vec<u64>> =
        expr.inputs().iter().zip(columns).map(|(d, c)| bytes_of(*d, c)).collect();
    let rows: Vec<_> = (0..n)
        .map(|i| {
            let args: Vec<Scalar> =
                expr.inputs().iter().zip(&inputs).map(|(d, b)| scalar_at(*d, b, i)).collect();
            (args.clone(), expr.eval(&args))
        })
        .collect();
    let scalar = run(expr, Isa::Scalar, n, &inputs);
    let best = run(expr, Isa::best(), n, &inputs);
    if rows.iter().any(|(_, r)| r.is_err()) {
        assert_eq!(scalar.as_ref().err(), Some(&KernelError::DivisionByZero));
        assert_eq!(best.as_ref().err(), Some(&KernelError::DivisionByZero));
        return;
    }
    let (scalar, best) = (scalar.expect("runs"), best.expect("runs"));
    for (j, d) in expr.output_dtypes().enumerate() {
        for (i, (args, want)) in rows.iter().enumerate() {
            let (s, b) = (scalar_at(d, &scalar[j], i), scalar_at(d, &best[j], i));
            assert!(close(d, s, b, 0.0), "sets differ: {s} {b} for {args:?}\n{expr}");
            let want = want.as_ref().expect("evaluates")[j];
            assert!(close(d, b, want, ulps), "got {b}, want {want} for {args:?}\n{expr}");
        }
    }
}

#[test]
fn every_unary_operation_on_every_dtype() {
    for d in DType::ALL {
        let mut xs = specials(d);
        xs.extend((0..2000).map(|i| match d.is_float() {
            true => Scalar::Float((i as f64 - 1000.0) * 0.0137),
            false => Scalar::Int(i - 1000),
        }));
        for op in UnaryOp::ALL {
            let Ok(expr) = ScalarExpr::unary(*op, d) else { continue };
            let exact = matches!(
                op,
                UnaryOp::Neg
                    | UnaryOp::Abs
                    | UnaryOp::Sign
                    | UnaryOp::Floor
                    | UnaryOp::Ceil
                    | UnaryOp::Round
                    | UnaryOp::Sqrt
            );
            // The reference's inverse hyperbolic functions, erfc and sigmoid are themselves rounded
            // in several steps.
            let loose = matches!(
                op,
                UnaryOp::Asinh | UnaryOp::Acosh | UnaryOp::Atanh | UnaryOp::Erfc | UnaryOp::Sigmoid
            );
            compare_all(
                &expr,
                std::slice::from_ref(&xs),
                if exact {
                    0.0
                } else if loose {
                    90.0
                } else {
                    4.0
                },
            );
        }
    }
}

#[test]
fn every_binary_operation_and_comparison_on_every_dtype() {
    for d in DType::ALL {
        let s = specials(d);
        let pairs: Vec<(Scalar, Scalar)> =
            s.iter().flat_map(|a| s.iter().map(|b| (*a, *b))).collect();
        let nonzero: Vec<(Scalar, Scalar)> = pairs
            .iter()
            .copied()
            .filter(|(_, b)| maquette_ir::scalar_expr::cast_scalar(*b, d).to_bool())
            .collect();
        for op in BinaryOp::ALL {
            let Ok(expr) = ScalarExpr::binary(*op, d) else { continue };
            // fmod of huge quotients loses to rounding in a reference that works in f64, so floats
            // compare loosely.
            let ulps = match op {
                BinaryOp::Pow | BinaryOp::Atan2 | BinaryOp::Hypot => 4.0,
                BinaryOp::FloorDiv | BinaryOp::Remainder if d.is_float() => 1.0,
                _ => 0.0,
            };
            for set in [&pairs, &nonzero] {
                let (a, b): (Vec<_>, Vec<_>) = set.iter().copied().unzip();
                compare_all(&expr, &[a, b], ulps);
            }
        }
        for op in CmpOp::ALL {
            let mut b = ExprBuilder::new();
            let (x, y) = (b.input(d), b.input(d));
            let c = b.compare(*op, x, y).expect("typed");
            let z = b.select(c, x, y).expect("typed");
            let expr = b.finish(&[c, z]).expect("typed");
            let (l, r): (Vec<_>, Vec<_>) = pairs.iter().copied().unzip();
            compare_all(&expr, &[l, r], 0.0);
        }
        for to in DType::ALL {
            compare_all(&ScalarExpr::cast(d, to), std::slice::from_ref(&s), 0.0);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// Any layout: permuted, stepped, expanded, empty, in place.
    #[test]
    fn layouts(
        sizes in prop::collection::vec(0i64..6, 0..4),
        step in 1i64..3,
        flip in any::<bool>(),
        broadcast in 0usize..4,
        seed in any::<u32>(),
    ) {
        let n = crate::view::numel(&sizes);
        let mut strides: Vec<i64> =
            crate::view::contiguous(&sizes).iter().map(|s| s * step).collect();
        let mut shown = sizes.clone();
        if flip {
            strides.reverse();
            shown.reverse();
        }
        let mut b_strides = strides.clone();
        if broadcast < b_strides.len() {
            b_strides[broadcast] = 0;
        }
        let a: Vec<f32> = (0..n as i64 * step + 1)
            .map(|i| ((i * 37 + i64::from(seed % 97)) % 101) as f32)
            .collect();
        let expr = ScalarExpr::binary(BinaryOp::Sub, DType::F32).expect("typed");
        let mut out = vec![-1f32; n];
        {
            // SAFETY: the strides stay within the buffers.
            let (va, vb) = unsafe {
                (
                    View::from_raw(a.as_ptr().cast(), DType::F32, &shown, &strides),
                    View::from_raw(a.as_ptr().cast(), DType::F32, &shown, &b_strides),
                )
            };
            let mut vo = ViewMut::from_slice_sized(&mut out, &shown).expect("fits");
            pointwise(&expr, &[va, vb], std::slice::from_mut(&mut vo)).expect("runs");
        }
        let mut i = 0;
        crate::layout::for_each(&shown, [&strides, &b_strides], |[x, y]| {
            assert_eq!(out[i], a[x as usize] - a[y as usize]);
            i += 1;
        });
    }
}

#[test]
fn operands_that_do_not_match_are_refused() {
    let (a, mut o) = ([1f32, 2.0], [0f32; 3]);
    let expr = ScalarExpr::unary(UnaryOp::Neg, DType::F32).expect("typed");
    let r = pointwise(&expr, &[View::from_slice(&a)], &mut [ViewMut::from_slice(&mut o)]);
    assert!(matches!(r, Err(KernelError::Shape { .. })), "{r:?}");
    let r =
        pointwise(&expr, &[View::from_slice(&[1i64, 2])], &mut [ViewMut::from_slice(&mut o[..2])]);
    assert!(matches!(r, Err(KernelError::DType { found: DType::I64, .. })), "{r:?}");
    assert!(pointwise(&expr, &[], &mut [ViewMut::from_slice(&mut o)]).is_err());
}

#[test]
fn generic_over_elements() {
    fn copy<T: Element + PartialEq + std::fmt::Debug>(x: T) {
        let (a, mut o) = (vec![x; 5], vec![x; 5]);
        pointwise(
            &ScalarExpr::cast(T::DTYPE, T::DTYPE),
            &[View::from_slice(&a)],
            &mut [ViewMut::from_slice(&mut o)],
        )
        .expect("runs");
        assert_eq!(a, o);
    }
    copy(1u8);
    copy(-3i16);
    copy(half::bf16::from_f32(2.5));
    copy(true);
}

#[test]
fn constants_survive_scratch_that_is_used_again() {
    use DType::{BF16, F32};
    let mut b = ExprBuilder::new();
    let x = b.input(BF16);
    let wide = b.cast(x, F32).unwrap();
    // the input's scratch block is free at this point; the constant, computed once, must not reuse
    // it
    let zero = b.constant(0, F32);
    let y = b.binary(BinaryOp::Max, wide, zero).unwrap();
    let narrow = b.cast(y, BF16).unwrap();
    let expr = b.finish(&[narrow]).unwrap();
    let n = 3000;
    let xs: Vec<Scalar> = (0..n).map(|i| Scalar::Float(f64::from(i % 7 - 3))).collect();
    let out = run(&expr, Isa::detect(), n as usize, &[bytes_of(BF16, &xs)]).unwrap();
    for (i, x) in xs.iter().enumerate() {
        assert_eq!(scalar_at(BF16, &out[0], i).to_f64(), x.to_f64().max(0.0), "element {i}");
    }
}
