//! Derivatives beside central differences, and the conventions where there is no derivative.

use super::super::*;
use crate::DType::F64;

/// The derivative of an expression of two inputs with respect to input `variable`, at a point.
fn derivative(
    build: &dyn Fn(&mut ExprBuilder, Reg, Reg) -> Result<Reg, BuildError>,
    variable: usize,
    point: [f64; 2],
) -> f64 {
    let mut b = ExprBuilder::new();
    let inputs = [b.input(F64), b.input(F64)];
    let y = build(&mut b, inputs[0], inputs[1]).unwrap();
    let slope = b.derivative(y, inputs[variable]).unwrap();
    let slope = slope.unwrap_or_else(|| b.constant(0, F64));
    let e = b.finish(&[slope]).unwrap();
    e.eval(&point.map(Scalar::Float)).unwrap()[0].to_f64()
}

/// The central difference, with an error of order `1e-10` for values and slopes near 1.
fn difference(
    build: &dyn Fn(&mut ExprBuilder, Reg, Reg) -> Result<Reg, BuildError>,
    variable: usize,
    point: [f64; 2],
) -> f64 {
    let mut b = ExprBuilder::new();
    let inputs = [b.input(F64), b.input(F64)];
    let y = build(&mut b, inputs[0], inputs[1]).unwrap();
    let e = b.finish(&[y]).unwrap();
    let step = 1e-5;
    let at = |by: f64| {
        let mut moved = point;
        moved[variable] += by;
        e.eval(&moved.map(Scalar::Float)).unwrap()[0].to_f64()
    };
    (at(step) - at(-step)) / (2.0 * step)
}

fn assert_near(found: f64, expected: f64, what: &str) {
    let near = (found - expected).abs() <= 1e-7 * (1.0 + expected.abs());
    assert!(near, "{what}: {found}, and the difference is {expected}");
}

#[test]
fn unary_operations() {
    use UnaryOp::*;
    for &op in UnaryOp::ALL.iter().filter(|op| !matches!(op, IsNan | IsInf | Not)) {
        let points: &[f64] = match op {
            Acosh => &[1.3, 2.7],
            Asin | Acos | Atanh => &[-0.7, 0.3],
            Sqrt | Rsqrt | Log | Log2 | Log10 | Log1p => &[0.2, 1.7],
            _ => &[-1.3, 0.7],
        };
        let build = |b: &mut ExprBuilder, x: Reg, _: Reg| b.unary(op, x);
        for &x in points {
            let found = derivative(&build, 0, [x, 0.0]);
            assert_near(found, difference(&build, 0, [x, 0.0]), &format!("{op} at {x}"));
        }
    }
}

#[test]
fn binary_operations() {
    use BinaryOp::*;
    for &op in BinaryOp::ALL.iter().filter(|op| !matches!(op, And | Or | Xor | Shl | Shr)) {
        let build = |b: &mut ExprBuilder, x: Reg, y: Reg| b.binary(op, x, y);
        let signed: &[[f64; 2]] = &[[-1.3, 0.7], [2.3, -0.8]];
        let points = if op == Pow { &[[1.3, 0.7], [0.4, -2.3]] } else { signed };
        for &p in points {
            for variable in 0..2 {
                let what = format!("{op} at {p:?}, operand {variable}");
                assert_near(
                    derivative(&build, variable, p),
                    difference(&build, variable, p),
                    &what,
                );
            }
        }
    }
}

#[test]
fn compositions_use_the_chain_rule() {
    // sin(x * y) / (x + exp(y))
    let build = |b: &mut ExprBuilder, x: Reg, y: Reg| {
        let product = b.binary(BinaryOp::Mul, x, y)?;
        let (sin, exp) = (b.unary(UnaryOp::Sin, product)?, b.unary(UnaryOp::Exp, y)?);
        let sum = b.binary(BinaryOp::Add, x, exp)?;
        b.binary(BinaryOp::Div, sin, sum)
    };
    for variable in 0..2 {
        let p = [0.8, -0.4];
        assert_near(derivative(&build, variable, p), difference(&build, variable, p), "quotient");
    }
}

#[test]
fn a_branch_that_is_not_taken_gives_no_nan() {
    // x if x < 1, else log(x - 1), whose tangent at 1 is infinite
    let build = |b: &mut ExprBuilder, x: Reg, _: Reg| {
        let one = b.constant(1, F64);
        let rest = b.binary(BinaryOp::Sub, x, one)?;
        let log = b.unary(UnaryOp::Log, rest)?;
        let below = b.compare(CmpOp::Le, x, one)?;
        b.select(below, x, log)
    };
    assert_eq!(derivative(&build, 0, [1.0, 0.0]), 1.0);
    assert_eq!(derivative(&build, 0, [3.0, 0.0]), 0.5);
}

#[test]
fn conventions_of_pytorch_where_there_is_no_derivative() {
    let unary = |op: UnaryOp| move |b: &mut ExprBuilder, x: Reg, _: Reg| b.unary(op, x);
    let binary = |op: BinaryOp| move |b: &mut ExprBuilder, x: Reg, y: Reg| b.binary(op, x, y);
    assert_eq!(derivative(&unary(UnaryOp::Abs), 0, [0.0, 0.0]), 0.0);
    for op in [BinaryOp::Min, BinaryOp::Max] {
        assert_eq!(derivative(&binary(op), 0, [2.0, 2.0]), 0.5);
        assert_eq!(derivative(&binary(op), 1, [2.0, 2.0]), 0.5);
    }
    assert_eq!(derivative(&binary(BinaryOp::Pow), 0, [0.0, 0.0]), 0.0);
    assert_eq!(derivative(&binary(BinaryOp::Pow), 1, [0.0, 0.0]), 0.0);
    assert_eq!(derivative(&binary(BinaryOp::Atan2), 0, [0.0, 0.0]), 0.0);
    assert_eq!(derivative(&binary(BinaryOp::Copysign), 0, [0.0, 1.0]), 0.0);
}

#[test]
fn an_infinite_factor_has_no_part_in_a_branch_without_slope() {
    let product = |x: f64, y: f64, factor: f64| {
        let mut b = ExprBuilder::new();
        let [factor_reg, x_reg, y_reg] = [(); 3].map(|()| b.input(F64));
        let largest = b.binary(BinaryOp::Max, x_reg, y_reg).unwrap();
        let slope = b.derivative(largest, y_reg).unwrap().unwrap();
        let first = b.chained(factor_reg, slope).unwrap();
        // the product is linear in the factor, and its derivative is a choice again
        let again = b.derivative(first, factor_reg).unwrap().unwrap();
        let second = b.chained(factor_reg, again).unwrap();
        let e = b.finish(&[first, second]).unwrap();
        let found = e.eval(&[factor, x, y].map(Scalar::Float)).unwrap();
        [found[0].to_f64(), found[1].to_f64()]
    };
    let infinite = f64::INFINITY;
    assert_eq!(product(0.0, -1.0, infinite), [0.0; 2]);
    assert_eq!(product(-1.0, 0.0, infinite), [infinite; 2]);
    assert_eq!(product(-1.0, 0.0, 3.0), [3.0; 2]);
    assert_eq!(product(2.0, 2.0, 3.0), [1.5; 2]);
}

#[test]
fn what_does_not_depend_on_the_variable_has_no_derivative() {
    let mut b = ExprBuilder::new();
    let (x, y, i) = (b.input(F64), b.input(F64), b.input(crate::DType::I64));
    let z = b.unary(UnaryOp::Exp, y).unwrap();
    assert_eq!(b.derivative(z, x), Ok(None));
    assert_eq!(b.derivative(z, i), Ok(None));
    assert!(b.derivative(Reg(99), x).is_err());
}
