//! A composition of nests computes what its parts compute one after another, as one nest.

use maquette_ir::loops::named::{self, Reduced, Reduction};
use maquette_ir::loops::{
    Array, ComposedTensor, Composition, Extent, Extents, LoopBuilder, LoopError, LoopNest,
};
use maquette_ir::scalar_expr::{BinaryOp, ExprBuilder, ScalarExpr, UnaryOp};
use maquette_ir::sym::{Range, SymTable, SymbolId};
use maquette_ir::{DType, Scalar};
use std::sync::Arc;

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

fn numbers(sizes: &[i64]) -> Extents {
    sizes.iter().map(|n| Extent::Number(*n)).collect()
}

fn map(expr: &ScalarExpr, operands: &[&Array], out: &[i64]) -> Array {
    let mut composition = Composition::new(0);
    let given: Vec<ComposedTensor> =
        operands.iter().map(|a| composition.operand(a.dtype(), &numbers(a.sizes()))).collect();
    let result = composition.map(&Arc::new(expr.clone()), &given, &numbers(out));
    composition.finish(&result);
    let nest = composition.compose(&[]).unwrap();
    let operands: Vec<Array> = operands.iter().map(|a| (*a).clone()).collect();
    eval(&nest, &operands).pop().unwrap()
}

/// A softmax of a map, a map of its result, and the sums of the rows of that. The number of rows and
/// that of columns are given by `sizes`.
fn softmax_with_maps(composition: &mut Composition, sizes: [Extent; 2]) {
    let [rows, columns] = sizes;
    composition.rows(&[rows]);
    let operands =
        [composition.operand(DType::F32, &sizes), composition.operand(DType::F32, &[columns])];
    let before = composition.map(&Arc::new(scaled()), &operands, &sizes);
    let (softmax, sum, negative) = (Arc::new(softmax()), Arc::new(sum()), Arc::new(negative()));
    let normal = composition.nest(&softmax, &sizes, &before, &[sizes.into_iter().collect()]);
    let after = composition.map(&negative, &normal, &sizes);
    let total = composition.nest(&sum, &sizes, &after, &[[rows].into_iter().collect()]);
    composition.finish(&[after[0].clone(), total[0].clone()]);
}

#[test]
fn a_softmax_with_maps_around_it_is_one_nest() {
    let (x, m) = (ramp(&[ROWS, COLUMNS]), ramp(&[COLUMNS]));
    let shape = [ROWS, COLUMNS];
    let mut composition = Composition::new(1);
    softmax_with_maps(&mut composition, shape.map(Extent::Number));
    let composed = composition.compose(&[]).unwrap();
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
fn one_nest_serves_every_size() {
    let mut composition = Composition::new(1);
    let sizes = [composition.symbol(Range::SIZE), composition.symbol(Range::SIZE)];
    softmax_with_maps(&mut composition, sizes);
    let example = [7, 11];
    let nest = composition.compose(&example).unwrap();
    assert!(nest.unproven().is_empty(), "{nest}");
    for (rows, columns) in [(3, 5), (1, 1), (5, 3), (1, 7), (4, 1)] {
        let operands = [ramp(&[rows, columns]), ramp(&[columns])];
        let value = |symbol: SymbolId| [rows, columns].get(symbol.index()).copied();
        let found = nest.eval(&value, &operands, &[]).unwrap();
        let plain = composition.for_numbers(&[rows, columns]);
        let expected = plain.compose(&[]).unwrap().eval(&|_| None, &operands, &[]).unwrap();
        for (found, expected) in found.iter().zip(&expected) {
            assert_eq!((found.sizes(), found.elements()), (expected.sizes(), expected.elements()));
        }
    }
    // The same numbers in other symbols are the same composition.
    let mut again = Composition::new(1);
    let sizes = [again.symbol(Range::SIZE), again.symbol(Range::SIZE)];
    softmax_with_maps(&mut again, sizes);
    assert_eq!(composition, again);
    assert_ne!(composition, composition.for_numbers(&example));
}

#[test]
fn sizes_that_no_expression_makes_equal_are_refused() {
    let mut composition = Composition::new(1);
    let sizes = [composition.symbol(Range::SIZE), composition.symbol(Range::SIZE)];
    composition.rows(&sizes[..1]);
    let x = composition.operand(DType::F32, &sizes[..1]);
    let y = composition.map(&Arc::new(negative()), &[x], &sizes[1..]);
    composition.finish(&y);
    insta::assert_snapshot!(composition.compose(&[4, 4]).unwrap_err(), @"an operand does not expand");
    assert!(composition.for_numbers(&[4, 4]).compose(&[]).is_ok());
}

#[test]
fn what_nothing_reads_is_left_out() {
    let mut composition = Composition::new(1);
    let shape = numbers(&[ROWS, COLUMNS]);
    composition.rows(&shape[..1]);
    let x = composition.operand(DType::F32, &shape);
    let sums = numbers(&[ROWS]);
    composition.nest(&Arc::new(sum()), &shape, std::slice::from_ref(&x), &[sums]);
    let y = composition.map(&Arc::new(negative()), &[x], &shape);
    composition.finish(&y);
    assert_eq!(composition.compose(&[]).unwrap().stages().len(), 1);
}

#[test]
fn operands_of_other_types_are_refused() {
    let shape = numbers(&[ROWS, COLUMNS]);
    let composed = |build: &dyn Fn(&mut Composition, ComposedTensor) -> Vec<ComposedTensor>| {
        let mut composition = Composition::new(1);
        composition.rows(&shape[..1]);
        let x = composition.operand(DType::F32, &numbers(&[ROWS, COLUMNS + 1]));
        let results = build(&mut composition, x);
        composition.finish(&results);
        composition.compose(&[]).map(|nest| nest.to_string()).map_err(|e: LoopError| e.to_string())
    };
    let error = composed(&|composition, x| {
        composition.nest(&Arc::new(softmax()), &shape, &[x], std::slice::from_ref(&shape))
    });
    insta::assert_snapshot!(error.unwrap_err(), @"an operand has another type");
    let error = composed(&|composition, x| composition.map(&Arc::new(negative()), &[x], &shape));
    insta::assert_snapshot!(error.unwrap_err(), @"an operand does not expand");
    let error = composed(&|composition, x| {
        let y = composition.map(&Arc::new(negative()), &[x], &numbers(&[ROWS, COLUMNS + 1]));
        composition.nest(&Arc::new(sum()), &numbers(&[ROWS, COLUMNS + 1]), &y, &[numbers(&[2])])
    });
    insta::assert_snapshot!(error.unwrap_err(), @"a result has other sizes");
}
