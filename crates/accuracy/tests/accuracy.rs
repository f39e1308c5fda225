//! The elementary functions keep the bounds stated in `accuracy::bounds`: over a sample of `f32`
//! and `f64`, and over all of `f16` and `bf16`, with the same bits on every instruction set. The
//! binary `ulp` does the same for every `f32`.

use half::{bf16, f16};
use maquette_accuracy::Op;
use maquette_accuracy::big::Big;
use maquette_accuracy::bounds::{BOUNDS, bound};
use maquette_accuracy::functions::{BINARY, UNARY};
use maquette_accuracy::report::{Effort, Row, line, markdown, measure};
use maquette_accuracy::ulp::{Errors, error};
use maquette_ir::DType;
use maquette_ir::scalar_expr::UnaryOp;

#[test]
fn functions_keep_their_bounds() {
    // Without optimisation a twentieth is enough to wait for.
    let (step, wide) = if cfg!(debug_assertions) { (1 << 17, 64) } else { (1 << 12, 2048) };
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
    let effort = Effort { step, reach: 1 << 9, pairs: (1 << 30) / step, wide, threads };
    let rows = measure(&effort, |_, _| true, |row| eprintln!("{}", line(row))).unwrap();
    assert_eq!(rows.len(), 4 * (UNARY.len() + BINARY.len()));
    assert!(rows.iter().all(|r| r.errors.count > 1000 || r.dtype == DType::F64));
    let failures: Vec<String> = rows.iter().filter_map(Row::failure).collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert_eq!(markdown(&rows).lines().count(), 2 + BOUNDS.len());
}

#[test]
fn a_row_over_its_bound_fails() {
    let row = |errors| Row { op: Op::Unary(UnaryOp::Exp), dtype: DType::F32, errors };
    let stated = bound("exp").unwrap().of(DType::F32);
    let good = Errors { count: 1, max: stated, ..Errors::default() };
    assert_eq!(row(good.clone()).failure(), None);
    assert!(
        row(Errors { max: stated + 0.001, ..good.clone() }).failure().unwrap().contains("stated")
    );
    assert!(row(Errors { wrong: 1, ..good.clone() }).failure().unwrap().contains("NaN"));
    assert!(row(Errors { differ: 1, ..good }).failure().unwrap().contains("instruction sets"));
}

#[test]
fn errors_are_in_units_of_the_exact_value() {
    let least = f64::from(f32::from_bits(1));
    for (got, exact, expected) in [
        (1.0f32, 1.0, Some(0.0)),
        (1.0f32.next_up(), 1.0, Some(1.0)),
        // Below a power of two the spacing is half as wide.
        (1.0f32.next_down(), 1.0, Some(0.5)),
        (1.0, f64::from(1.0f32.next_down()), Some(1.0)),
        (f32::from_bits(2), least, Some(1.0)),
        (0.0, least / 4.0, Some(0.25)),
        (f32::INFINITY, 1e300, Some(0.0)),
        (f32::INFINITY, f64::from(f32::MAX), Some(1.0)),
        (f32::MAX, f64::INFINITY, Some(1.0)),
        (f32::NAN, f64::NAN, Some(0.0)),
        (f32::NAN, 1.0, None),
        (1.0, f64::NAN, None),
        (-0.0, 0.0, None),
        (-0.0, -least / 4.0, Some(0.25)),
    ] {
        assert_eq!(error(got, exact), expected, "{got:e} for {exact:e}");
    }
    assert_eq!(error(f16::from_f32(2.0 + 1.0 / 512.0), 2.0), Some(1.0));
    assert_eq!(error(bf16::from_f32(2.0 + 1.0 / 64.0), 2.0), Some(1.0));
}

/// Where doubles nearest to the exact values are known from tables, arbitrary precision finds them
/// within half a unit.
#[test]
fn arbitrary_precision_agrees_with_tables() {
    let mut big = Big::new().unwrap();
    for (op, x, nearest) in [
        (UnaryOp::Exp, 1.0, std::f64::consts::E),
        (UnaryOp::Log, 2.0, std::f64::consts::LN_2),
        (UnaryOp::Log1p, 1.0, std::f64::consts::LN_2),
        (UnaryOp::Sqrt, 2.0, std::f64::consts::SQRT_2),
        (UnaryOp::Expm1, 1e-300, 1e-300),
        (UnaryOp::Sqrt, f64::from_bits(8), std::f64::consts::SQRT_2 * 2f64.powi(-536)),
        (UnaryOp::Erf, 1.0, 0.842_700_792_949_714_9),
        (UnaryOp::Erfc, 1.0, 0.157_299_207_050_285_13),
        (UnaryOp::Erfc, 5.0, 1.537459794428035e-12),
        (UnaryOp::Sin, 1e22, -0.852_200_849_767_188_8),
    ] {
        let e = big.error(nearest, nearest, true, |b| b.unary(op, x)).unwrap();
        assert!(e <= 0.5, "{op}({x:e}) is {e} ULP from {nearest:e}");
        let e = big.error(nearest.next_up(), nearest, true, |b| b.unary(op, x)).unwrap();
        assert!((0.5..=1.5).contains(&e), "{op}({x:e})");
    }
}
