//! Results in the memory of operands.

use super::{bytes_of, run};
use crate::pointwise::plan::PointwisePlan;
use crate::pointwise::*;
use maquette_ir::Scalar;
use maquette_ir::scalar_expr::{BinaryOp, ExprBuilder};

#[test]
fn in_place_large_and_shared() {
    let n = 200_000;
    let mut x: Vec<f32> = (0..n).map(|i| i as f32).collect();
    let p = x.as_mut_ptr();
    let expr = ScalarExpr::binary(BinaryOp::Add, DType::F32).expect("typed");
    // SAFETY: exactly the same layout, as the executor allows.
    unsafe {
        let a = View::from_raw(p.cast(), DType::F32, &[n], &[1]);
        let mut o = [ViewMut::from_raw(p.cast(), DType::F32, &[n], &[1])];
        pointwise(&expr, &[a.clone(), a], &mut o).expect("runs");
    }
    assert!(x.iter().enumerate().all(|(i, v)| *v == 2.0 * i as f32));
}

#[test]
fn in_place_of_either_operand() {
    use BinaryOp::{Add, Div, Max, Min, Mul, Sub};
    // longer expressions read an operand again after the first step, or write the last step onto
    // memory they have read before
    let long = |first: BinaryOp, again: usize, swap: bool| {
        let mut b = ExprBuilder::new();
        let x = [b.input(DType::F32), b.input(DType::F32)];
        let y = b.binary(first, x[0], x[1]).expect("typed");
        let (l, r) = if swap { (x[again], y) } else { (y, x[again]) };
        let z = b.binary(Sub, l, r).expect("typed");
        b.finish(&[z]).expect("well formed")
    };
    let mut exprs: Vec<ScalarExpr> = [Add, Sub, Mul, Div, Min, Max]
        .map(|op| ScalarExpr::binary(op, DType::F32).expect("typed"))
        .into();
    exprs.extend(
        [(0, false), (0, true), (1, false), (1, true)].map(|(again, swap)| long(Mul, again, swap)),
    );
    let n = 3000usize;
    let operand = |by: i64| -> Vec<Scalar> {
        (0..n as i64).map(|i| Scalar::Float((i * by % 101 - 50) as f64)).collect()
    };
    let inputs = [bytes_of(DType::F32, &operand(37)), bytes_of(DType::F32, &operand(53))];
    for (e, expr) in exprs.iter().enumerate() {
        let expected = run(expr, Isa::detect(), n, &inputs).expect("runs").remove(0);
        for place in 0..2 {
            let mut memory = inputs.clone();
            let at = memory.each_mut().map(|m| m.as_mut_ptr());
            // SAFETY: exactly the layout of one operand, as the executor allows.
            unsafe {
                let views = at.map(|p| View::from_raw(p.cast(), DType::F32, &[n as i64], &[1]));
                let mut out = [ViewMut::from_raw(at[place].cast(), DType::F32, &[n as i64], &[1])];
                pointwise(expr, &views, &mut out).expect("runs");
            }
            assert!(memory[place] == expected, "expression {e} in place of operand {place}");
            assert!(memory[1 - place] == inputs[1 - place]);
        }
    }
}

#[test]
fn several_results_over_operands() {
    let n = 5_000;
    for form in 0..2 {
        let mut b = ExprBuilder::new();
        let (x, y) = (b.input(DType::F32), b.input(DType::F32));
        let sum = b.binary(BinaryOp::Add, x, y).expect("typed");
        let product = b.binary(BinaryOp::Mul, sum, x).expect("typed");
        // the second form has an operand itself as a result, over the other operand
        let expr = b.finish(&[sum, [product, x][form]]).expect("well formed");
        let mut memory: [Vec<f32>; 2] =
            [(0..n).map(|i| i as f32).collect(), (0..n).map(|i| (i % 7) as f32).collect()];
        let given = memory.clone();
        let at = memory.each_mut().map(|m| m.as_mut_ptr().cast::<u8>());
        // SAFETY: exactly the layouts of the operands, as the plan says.
        unsafe {
            let inputs = at.map(|p| View::from_raw(p, DType::F32, &[n], &[1]));
            let outputs = at.map(|p| ViewMut::from_raw(p, DType::F32, &[n], &[1]));
            let plan = PointwisePlan::new(&expr, &inputs, &outputs, &[(0, 0), (1, 1)]);
            plan.expect("planned").run_at(&[at[0], at[1], at[0], at[1]]).expect("runs");
        }
        for i in 0..n as usize {
            let (x, y) = (given[0][i], given[1][i]);
            let second = if form == 0 { (x + y) * x } else { x };
            assert_eq!([memory[0][i], memory[1][i]], [x + y, second], "{form}, {i}");
        }
    }
}
