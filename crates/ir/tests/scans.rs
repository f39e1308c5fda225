//! The order of scans: the reference evaluator against recursions over numbers, and the verifier.

use maquette_ir::loops::fold::Fold;
use maquette_ir::loops::scan::ScanOrder;
use maquette_ir::loops::{Array, LoopBuilder, LoopError, LoopNest, StageKind, named};
use maquette_ir::scalar_expr::{BinaryOp, ExprBuilder};
use maquette_ir::sym::SymTable;
use maquette_ir::{DType, Scalar};

/// The scan of a vector, of its dtype.
fn nest(fold: Fold, dtype: DType) -> LoopNest {
    let mut nest = LoopBuilder::new(SymTable::new());
    let x = nest.input(dtype, 1);
    let result = named::scan(&mut nest, &x, x.axes[0], fold, dtype).expect("is valid");
    let nest = nest.finish(&[result]).expect("is valid");
    assert_eq!(LoopNest::parse(&nest.to_string()).expect("parses").to_string(), nest.to_string());
    nest
}

fn found(nest: &LoopNest, x: &[f64]) -> Vec<f64> {
    let array = Array::new(DType::F64, &[x.len() as i64], x.iter().map(|x| Scalar::Float(*x)));
    let results = nest.eval(&|_| Some(x.len() as i64), &[array.expect("fits")], &[]);
    results.expect("evaluates")[0].elements().iter().map(|x| x.to_f64()).collect()
}

/// An output of a scan in blocks, straight from its definition: the chain of its block, and before
/// it the scanned total of the blocks before.
fn output(op: fn(f64, f64) -> f64, x: &[f64], at: usize) -> f64 {
    let block = at / 16;
    let chain = |block: usize, last: usize| {
        (16 * block + 1..=last).fold(x[16 * block], |chain, i| op(chain, x[i]))
    };
    if block == 0 {
        return chain(0, at);
    }
    let totals: Vec<f64> = (0..block).map(|b| chain(b, 16 * b + 15)).collect();
    op(output(op, &totals, block - 1), chain(block, at))
}

/// Numbers whose sums and products round.
fn rounding(n: usize, near: f64, by: f64) -> Vec<f64> {
    (0..n).map(|i| near + by * (((i * 7919 + 13) % 4099) as f64 / 2050.0 - 1.0).powi(3)).collect()
}

const LENGTHS: [usize; 18] =
    [1, 2, 15, 16, 17, 31, 32, 33, 255, 256, 257, 272, 273, 513, 4095, 4096, 4097, 4400];

#[test]
fn sums_of_floats_are_in_blocks() {
    for n in LENGTHS {
        let x = rounding(n, 0.0, 10.0);
        let found = found(&nest(Fold::Sum, DType::F64), &x);
        for at in (0..n).filter(|at| n < 600 || at % 61 == 0 || at + 20 > n) {
            let expected = output(|a, b| a + b, &x, at);
            assert_eq!(found[at].to_bits(), expected.to_bits(), "at {at} of {n}");
        }
    }
}

#[test]
fn products_of_floats_are_chains() {
    for n in LENGTHS {
        let (x, mut product) = (rounding(n, 1.0, 0.1), 1.0);
        for (x, found) in x.iter().zip(found(&nest(Fold::Prod, DType::F64), &x)) {
            product *= x;
            assert_eq!(found.to_bits(), f64::to_bits(product), "of {n}");
        }
    }
    let factors: Vec<f64> = (0..600).map(f64::from).collect();
    assert_eq!(found(&nest(Fold::Prod, DType::F64), &factors), vec![0.0; 600]);
}

#[test]
fn blocks_are_another_order_than_a_chain() {
    let x = rounding(300, 0.0, 10.0);
    let mut sum = 0.0;
    let chain = x.iter().map(|x| {
        sum += x;
        sum
    });
    let differ = chain.zip(found(&nest(Fold::Sum, DType::F64), &x)).position(|(a, b)| a != b);
    assert!(differ.is_some_and(|at| at >= 16), "{differ:?}");
}

#[test]
fn a_scan_begins_with_the_identity() {
    let zeros = found(&nest(Fold::Sum, DType::F64), &[-0.0; 300]);
    assert!(zeros.iter().all(|zero| zero.is_sign_positive()), "{zeros:?}");
    let signs = found(&nest(Fold::Prod, DType::F64), &[-0.0, -1.0]);
    assert!(signs[0].is_sign_negative() && signs[1].is_sign_positive(), "{signs:?}");
    assert_eq!(found(&nest(Fold::Sum, DType::F64), &[]), []);
}

/// The error of a scan with this order.
fn refused(fold: Fold, dtype: DType, order: ScanOrder) -> Option<String> {
    let mut nest = LoopBuilder::new(SymTable::new());
    let x = nest.input(dtype, 1);
    let kind = StageKind::Scan { along: x.axes[0], fold, order };
    let result = nest.stage(&x.axes, kind, |s| Ok::<_, LoopError>(vec![s.element(&x, dtype)?]));
    result.err().map(|e| e.to_string())
}

#[test]
fn the_order_of_a_scan_follows_from_its_operation() {
    let (sum, max) = (|| Fold::Sum, || Fold::Max);
    assert_eq!(refused(sum(), DType::F32, ScanOrder::Blocks), None);
    assert_eq!(refused(sum(), DType::I64, ScanOrder::Exact), None);
    assert_eq!(refused(max(), DType::F32, ScanOrder::Exact), None);
    insta::assert_snapshot!(
        [
            refused(sum(), DType::F32, ScanOrder::Exact),
            refused(Fold::Prod, DType::F64, ScanOrder::Exact),
            refused(sum(), DType::I64, ScanOrder::Blocks),
            refused(max(), DType::F32, ScanOrder::Blocks),
        ]
        .map(Option::unwrap_or_default)
        .join("\n"),
        @r"
    stage t0: the order of a scan with sum of f32 is `blocks`, found `exact`
    stage t0: the order of a scan with prod of f64 is `chain`, found `exact`
    stage t0: the order of a scan with sum of i64 is `exact`, found `blocks`
    stage t0: the order of a scan with max of f32 is `exact`, found `blocks`
    "
    );
    for order in ScanOrder::ALL {
        let mut combine = ExprBuilder::new();
        let [a, b] = [combine.input(DType::F32), combine.input(DType::F32)];
        let sum = combine.binary(BinaryOp::Add, a, b).expect("adds");
        let combine = Box::new(combine.finish(&[sum]).expect("is valid"));
        let fold = Fold::Of { identity: vec![Scalar::Float(0.0)], combine };
        assert_eq!(refused(fold, DType::F32, order), None);
    }
}
