mod tangent;

use super::*;
use crate::DType::*;

fn one(op: BinaryOp, d: DType, a: Scalar, b: Scalar) -> Result<Scalar, EvalError> {
    ScalarExpr::binary(op, d).expect("well typed").eval(&[a, b]).map(|v| v[0])
}

#[test]
fn prints_one_line_per_instruction() {
    let mut b = ExprBuilder::new();
    let x = b.input(F32);
    let c = b.constant(3i64, F32);
    let y = b.binary(BinaryOp::Mul, x, c).unwrap();
    let z = b.cast(y, I64).unwrap();
    let e = b.finish(&[y, z]).unwrap();
    assert_eq!(
        e.to_string(),
        "r0: f32 = input 0\nr1: f32 = const 3.0\nr2: f32 = mul r0, r1\nr3: i64 = cast r2\nreturn \
            r2, r3\n"
    );
}

#[test]
fn builder_refuses_mismatches() {
    let mut b = ExprBuilder::new();
    let (x, i, p) = (b.input(F32), b.input(I64), b.input(Bool));
    assert!(matches!(
        b.binary(BinaryOp::Add, x, i),
        Err(BuildError::Mismatch { left: F32, right: I64, .. })
    ));
    assert!(matches!(b.unary(UnaryOp::Exp, i), Err(BuildError::DType { found: I64, .. })));
    assert!(matches!(b.binary(BinaryOp::Sub, p, p), Err(BuildError::DType { found: Bool, .. })));
    assert!(matches!(b.select(x, x, x), Err(BuildError::DType { .. })));
    assert!(matches!(b.unary(UnaryOp::Neg, Reg(9)), Err(BuildError::UnknownReg { .. })));
    assert!(b.finish(&[Reg(9)]).is_err());
}

#[test]
fn integers_follow_python() {
    use BinaryOp::*;
    let cases = [
        (FloorDiv, -7, 2, -4),
        (TruncDiv, -7, 2, -3),
        (Fmod, -7, 2, -1),
        (Remainder, -7, 2, 1),
        (Remainder, 7, -2, -1),
        (Pow, 2, 70, 0),
        (Pow, 2, -1, 0),
        (Pow, -1, -3, -1),
        (Shl, 1, 64, 0),
        (Shr, -8, 70, -1),
        (FloorDiv, i64::MIN, -1, i64::MIN),
    ];
    for (op, a, b, want) in cases {
        assert_eq!(one(op, I64, a.into(), b.into()), Ok(want.into()), "{op} {a} {b}");
    }
    assert_eq!(one(Add, U8, 200.into(), 100.into()), Ok(44.into()));
    assert_eq!(one(FloorDiv, I32, 1.into(), 0.into()), Err(EvalError::DivisionByZero));
}

#[test]
fn casts_follow_pytorch() {
    let cases = [
        (Scalar::Float(-1.9), I64, Scalar::Int(-1)),
        (Scalar::Float(f64::NAN), I64, Scalar::Int(i64::MIN)),
        (Scalar::Float(1e30), I64, Scalar::Int(i64::MIN)),
        (Scalar::Float(300.0), U8, Scalar::Int(44)),
        (Scalar::Float(f64::NAN), Bool, Scalar::Bool(true)),
        (Scalar::Int(257), F16, Scalar::Float(257.0)),
        (Scalar::Int(257), BF16, Scalar::Float(256.0)),
        (Scalar::Bool(true), F64, Scalar::Float(1.0)),
    ];
    for (x, d, want) in cases {
        assert_eq!(cast_scalar(x, d), want, "{x} to {d}");
    }
}

#[test]
fn floats_round_at_every_instruction() {
    assert_eq!(
        one(BinaryOp::Add, BF16, Scalar::Float(256.0), Scalar::Float(1.0)),
        Ok(Scalar::Float(256.0))
    );
    assert_eq!(
        one(BinaryOp::FloorDiv, F32, Scalar::Float(-1.0), Scalar::Float(0.3)),
        Ok(Scalar::Float(-4.0))
    );
    let max = one(BinaryOp::Max, F32, Scalar::Float(f64::NAN), Scalar::Float(0.3));
    assert!(matches!(max, Ok(Scalar::Float(x)) if x.is_nan()));
    let erf = |x: f64| {
        ScalarExpr::unary(UnaryOp::Erf, F64).unwrap().eval(&[x.into()]).unwrap()[0].to_f64()
    };
    assert!((erf(1.0) - 0.842_700_792_949_714_9).abs() < 1e-15);
    assert!((erf(2.5) - 0.999_593_047_982_555).abs() < 1e-15);
}

#[test]
fn a_split_expression_takes_values_as_inputs() {
    let mut b = ExprBuilder::new();
    let (x, y) = (b.input(F32), b.input(F32));
    let root = b.unary(UnaryOp::Sqrt, y).unwrap();
    let scale = b.unary(UnaryOp::Reciprocal, root).unwrap();
    let z = b.binary(BinaryOp::Mul, x, scale).unwrap();
    let e = b.finish(&[z, scale]).unwrap();
    let (ahead, rest) = e.split(&[scale]).unwrap();
    assert_eq!(
        ahead.to_string(),
        "r0: f32 = input 1\nr1: f32 = sqrt r0\nr2: f32 = reciprocal r1\nreturn r2\n"
    );
    assert_eq!(
        rest.to_string(),
        "r0: f32 = input 0\nr1: f32 = input 2\nr2: f32 = mul r0, r1\nreturn r2, r1\n"
    );
    assert_eq!(rest.inputs(), [F32; 3]);
    assert!(e.split(&[Reg(9)]).is_none());
}
