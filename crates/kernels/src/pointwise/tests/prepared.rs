//! Kernels prepared ahead of a launch, against direct evaluation.

use super::{bytes_of, run, specials};
use crate::pointwise::*;
use maquette_ir::Scalar;
use maquette_ir::scalar_expr::{BinaryOp, CmpOp, ExprBuilder, UnaryOp};
use proptest::prelude::*;

/// Builds an expression from numbers, each of which selects the next instruction. Outputs may be
/// inputs, constants or duplicates.
fn expression(choices: &[(u8, u8, u8)], outputs: &[u8]) -> ScalarExpr {
    use DType::{Bool, F32, F64, I64};
    let mut b = ExprBuilder::new();
    let mut regs: Vec<_> = [F32, F64, I64, Bool, F32].iter().map(|d| (b.input(*d), *d)).collect();
    for &(op, x, y) in choices {
        let pick = |i: u8| regs[i as usize % regs.len()];
        let ((x, d), (y, other)) = (pick(x), pick(y));
        let y = if other == d { Ok(y) } else { b.cast(y, d) }.expect("casts");
        let next = match op % 8 {
            0 => b.unary(UnaryOp::ALL[op as usize / 8 % UnaryOp::ALL.len()], x).map(|r| (r, d)),
            1..=3 => {
                b.binary(BinaryOp::ALL[op as usize / 4 % BinaryOp::ALL.len()], x, y).map(|r| (r, d))
            }
            4 => b.compare(CmpOp::ALL[op as usize / 8 % CmpOp::ALL.len()], x, y).map(|r| (r, Bool)),
            5 => b.compare(CmpOp::Lt, x, y).and_then(|c| b.select(c, x, y)).map(|r| (r, d)),
            6 => Ok((b.constant(i64::from(op / 64), d), d)),
            _ => Ok((
                b.cast(x, [F32, F64, I64, Bool][op as usize / 8 % 4]).expect("casts"),
                [F32, F64, I64, Bool][op as usize / 8 % 4],
            )),
        };
        regs.extend(next);
    }
    let outputs: Vec<_> =
        outputs.iter().map(|o| regs[regs.len() - 1 - *o as usize % regs.len()].0).collect();
    b.finish(&outputs).expect("an expression")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]
    /// A compiled kernel returns the same bits and errors as direct evaluation.
    #[test]
    fn prepared(
        choices in prop::collection::vec(any::<(u8, u8, u8)>(), 0..12),
        outputs in prop::collection::vec(0u8..9, 1..4),
        at in 0usize..8,
    ) {
        let expr = expression(&choices, &outputs);
        let n = [1, 2, 255, 1023, 1024, 1025, 3000, 70_001][at];
        let inputs: Vec<Vec<u64>> = expr
            .inputs()
            .iter()
            .enumerate()
            .map(|(k, d)| {
                let s = specials(*d);
                bytes_of(
                    *d,
                    &(0..n).map(|i| s[(i * (k + 1) + i / 7) % s.len()]).collect::<Vec<_>>(),
                )
            })
            .collect();
        let expected = run(&expr, Isa::detect(), n, &inputs);
        let Some(p) = ContiguousKernel::new(&expr) else { return Ok(()) };
        let sizes = [n as i64];
        let view = |(d, b): (&DType, &Vec<u64>)| {
            // SAFETY: the buffers hold n elements.
            unsafe { View::from_raw(b.as_ptr().cast(), *d, &sizes, &[1]) }
        };
        let views: Vec<View> = expr.inputs().iter().zip(&inputs).map(view).collect();
        let mut outs: Vec<Vec<u64>> =
            expr.output_dtypes().map(|d| bytes_of(d, &vec![Scalar::Int(0); n])).collect();
        // SAFETY: as above.
        let mut targets: Vec<ViewMut> = expr
            .output_dtypes()
            .zip(&mut outs)
            .map(|(d, b)| unsafe { ViewMut::from_raw(b.as_mut_ptr().cast(), d, &sizes, &[1]) })
            .collect();
        let ran = p.run(&views, &mut targets);
        prop_assert_eq!(
            ran.map(|done| {
                assert!(done);
                outs
            }),
            expected
        );
    }
}

#[test]
fn prepared_kernels_refuse_other_operands() {
    let expr = ScalarExpr::binary(BinaryOp::Add, DType::F32).expect("typed");
    let p = ContiguousKernel::new(&expr).expect("floats");
    let (a, mut o) = ([1f32, 2.0, 3.0, 4.0], [9f32; 4]);
    let whole = View::from_slice(&a);
    let of = |sizes: &[i64]| View::from_slice_sized(&a, sizes).expect("fits");
    for inputs in [
        vec![whole.clone()],
        vec![of(&[2, 2]), whole.clone()],
        vec![View::from_slice(&a[..1]), whole.clone()],
        vec![View::from_slice(&[1i64; 4]), whole.clone()],
    ] {
        assert_eq!(p.run(&inputs, &mut [ViewMut::from_slice(&mut o)]), Ok(false));
    }
    assert_eq!(
        p.run(
            &[View::from_slice(&a[..0]), View::from_slice(&a[..0])],
            &mut [ViewMut::from_slice(&mut o[..0])]
        ),
        Ok(false)
    );
    assert_eq!(p.run(&[], &mut []), Ok(false));
    // in place, and over part of an input
    // SAFETY: the elements are the output's, to which nothing is written.
    let same = unsafe { View::from_raw(o.as_ptr().cast(), DType::F32, &[4], &[1]) };
    assert_eq!(p.run(&[same, whole.clone()], &mut [ViewMut::from_slice(&mut o)]), Ok(false));
    assert_eq!(o, [9.0; 4]);
    for d in DType::ALL {
        let direct = matches!(d, DType::F32 | DType::F64 | DType::I64 | DType::Bool);
        let Ok(expr) = ScalarExpr::binary(BinaryOp::Max, d) else { continue };
        assert_eq!(ContiguousKernel::new(&expr).is_some(), direct, "{d}");
    }
}
