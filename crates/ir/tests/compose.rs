//! A composition of nests computes what its parts compute one after another, as one nest.

use maquette_ir::loops::named::{self, Reduced, Reduction};
use maquette_ir::loops::{Array, ComposedTensor, Composer, LoopBuilder, LoopNest};
use maquette_ir::scalar_expr::{BinaryOp, ExprBuilder, ScalarExpr, UnaryOp};
use maquette_ir::sym::{SymTable, SymbolId};
use maquette_ir::{DType, Scalar};

const ROWS: i64 = 3;
const COLUMNS: i64 = 5;

/// `a * 0.5 + b`
fn scaled() -> ScalarExpr {
    let mut expr = ExprBuilder::new();
    let (a, b) = (expr.input(DType::F32), expr.input(DType::F32));
    let half = expr.constant(0.5, DType::F32);
    let product = expr.binary(BinaryOp::Mul, a, half).unwrap();
    let sum = expr.binary(BinaryOp::Add, product, b).unwrap();
    expr.finish(&[sum]).unwrap()
}

fn negative() -> ScalarExpr {
    ScalarExpr::unary(UnaryOp::Neg, DType::F32).unwrap()
}

/// A nest over an operand of two dimensions.
fn nest(build: impl FnOnce(&mut LoopBuilder, &named::Input) -> LoopNestResult) -> LoopNest {
    let mut nest = LoopBuilder::new(SymTable::new());
    let x = nest.input(DType::F32, 2);
    let result = build(&mut nest, &x);
    nest.finish(&[result]).unwrap()
}

type LoopNestResult = maquette_ir::loops::StageOutput;

fn softmax() -> LoopNest {
    nest(|nest, x| named::softmax(nest, x, x.axes[1], DType::F32).unwrap().into())
}

fn sum() -> LoopNest {
    nest(|nest, x| {
        let of = Reduced { x, along: &x.axes[1..], keep: false, out: DType::F32 };
        named::reduce(nest, Reduction::Sum, of).unwrap()
    })
}

fn ramp(sizes: &[i64]) -> Array {
    let n = sizes.iter().product::<i64>();
    let elements = (0..n).map(|i| Scalar::Float(((i * 7 % 11) as f64 - 5.0) / 4.0));
    Array::new(DType::F32, sizes, elements).unwrap()
}

/// The values of the symbols of a nest over an operand of these sizes, in order.
fn sizes(symbol: SymbolId) -> Option<i64> {
    [ROWS, COLUMNS].get(symbol.index()).copied()
}

fn eval(nest: &LoopNest, operands: &[Array]) -> Vec<Array> {
    nest.eval(&sizes, operands, &[]).unwrap()
}

fn map(expr: &ScalarExpr, operands: &[&Array], out: &[i64]) -> Array {
    let mut composer = Composer::new(&[]);
    let given: Vec<ComposedTensor> =
        operands.iter().map(|a| composer.operand(a.dtype(), a.sizes())).collect();
    let result = composer.map(expr, &given, out).unwrap();
    let nest = composer.finish(&result).unwrap();
    let operands: Vec<Array> = operands.iter().map(|a| (*a).clone()).collect();
    eval(&nest, &operands).pop().unwrap()
}

#[test]
fn a_softmax_with_maps_around_it_is_one_nest() {
    let (x, m) = (ramp(&[ROWS, COLUMNS]), ramp(&[COLUMNS]));
    let mut composer = Composer::new(&[ROWS]);
    let operands =
        [composer.operand(DType::F32, x.sizes()), composer.operand(DType::F32, m.sizes())];
    let shape = [ROWS, COLUMNS];
    let before = composer.map(&scaled(), &operands, &shape).unwrap();
    let rows = composer.nest(&softmax(), &sizes, &before).unwrap();
    let after = composer.map(&negative(), &rows, &shape).unwrap();
    let total = composer.nest(&sum(), &sizes, &after).unwrap();
    let composed = composer.finish(&[after[0].clone(), total[0].clone()]).unwrap();
    let found = eval(&composed, &[x.clone(), m.clone()]);

    let a = map(&scaled(), &[&x, &m], &shape);
    let s = eval(&softmax(), &[a]).pop().unwrap();
    let y = map(&negative(), &[&s], &shape);
    let t = eval(&sum(), std::slice::from_ref(&y)).pop().unwrap();
    assert_eq!(found[0].elements(), y.elements());
    assert_eq!(found[1].elements(), t.elements());
    // The map behind the softmax is evaluated with the last stage of that.
    insta::assert_snapshot!(composed, @r"
    loops (a0: f32[3, 5], a1: f32[5]) -> (t5, t6)
      axes i0 < 3, i1 < 5, i2 < 5, i3 < 5, i4 < 5
    {
      t0[i0, i1] = map {
        r0: f32 = load a0[i0, i1]
        r1: f32 = load a1[i1]
        r2: f32 = const 0.5
        r3: f32 = mul r0, r2
        r4: f32 = add r3, r1
        return r4
      }
      t1[i0] = reduce max lanes over [i0, i2] {
        r0: f32 = load t0[i0, i2]
        return r0
      }
      t2[i0, i2] = map {
        r0: f32 = load t0[i0, i2]
        r1: f32 = load t1[i0]
        r2: f32 = sub r0, r1
        r3: f32 = exp r2
        return r3
      }
      t3[i0] = reduce sum lanes over [i0, i2] {
        r0: f32 = load t2[i0, i2]
        return r0
      }
      t4[i0] = map {
        r0: f32 = load t3[i0]
        r1: f32 = reciprocal r0
        return r1
      }
      t5[i0, i3] = map {
        r0: f32 = load t2[i0, i3]
        r1: f32 = load t4[i0]
        r2: f32 = mul r0, r1
        r3: f32 = neg r2
        return r3
      }
      t6[i0] = reduce sum lanes over [i0, i4] {
        r0: f32 = load t5[i0, i4]
        return r0
      }
    }
    ");
}

#[test]
fn what_nothing_reads_is_left_out() {
    let mut composer = Composer::new(&[ROWS]);
    let x = composer.operand(DType::F32, &[ROWS, COLUMNS]);
    let unused = composer.nest(&sum(), &sizes, std::slice::from_ref(&x)).unwrap();
    let y = composer.map(&negative(), &[x], &[ROWS, COLUMNS]).unwrap();
    assert_eq!(unused[0].sizes(), [ROWS]);
    assert_eq!(composer.finish(&y).unwrap().stages().len(), 1);
}

#[test]
fn operands_of_other_types_are_refused() {
    let mut composer = Composer::new(&[ROWS]);
    let x = composer.operand(DType::F32, &[ROWS, COLUMNS + 1]);
    let error = composer.nest(&softmax(), &sizes, std::slice::from_ref(&x)).unwrap_err();
    insta::assert_snapshot!(error, @"an operand has another type");
    let error = composer.map(&negative(), &[x], &[ROWS, COLUMNS]).unwrap_err();
    insta::assert_snapshot!(error, @"an operand does not expand");
}
