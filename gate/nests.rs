//! The nests of the gate.
use maquette_ir::DType::F32;
use maquette_ir::scalar_expr::{BinaryOp, UnaryOp};
use maquette_kernels::loops::{Fold, LoopNest, Source, StageKind};

pub fn softmax_of(nest: &mut LoopNest, x: Source) -> Source {
    let max = nest.stage(
        &[0, 1],
        &[x],
        StageKind::Reduce { along: 1, fold: Fold::Max },
        |_, r| r[0],
    );
    let e = nest.stage(&[0, 1], &[x, max], StageKind::Map, |b, r| {
        let d = b.binary(BinaryOp::Sub, r[0], r[1]).unwrap();
        b.unary(UnaryOp::Exp, d).unwrap()
    });
    let sum =
        nest.stage(&[0, 1], &[e], StageKind::Reduce { along: 1, fold: Fold::Sum }, |_, r| r[0]);
    let scale =
        nest.stage(&[0], &[sum], StageKind::Map, |b, r| b.unary(UnaryOp::Reciprocal, r[0]).unwrap());
    nest.stage(&[0, 1], &[e, scale], StageKind::Map, |b, r| {
        b.binary(BinaryOp::Mul, r[0], r[1]).unwrap()
    })
}

fn rows() -> LoopNest {
    LoopNest { axes: vec!["row", "col"], ..LoopNest::default() }
}

pub fn softmax() -> LoopNest {
    let mut nest = rows();
    let x = nest.operand(F32, &[0, 1]);
    let y = softmax_of(&mut nest, x);
    nest.store(y);
    nest
}

/// softmax(x * s + m); `full`: m has rows.
pub fn scaled_softmax(full: bool) -> LoopNest {
    let mut nest = rows();
    let x = nest.operand(F32, &[0, 1]);
    let m = nest.operand(F32, if full { &[0, 1] } else { &[1] });
    let s = nest.scalar(F32);
    let t = nest.stage(&[0, 1], &[x, s, m], StageKind::Map, |b, r| {
        let p = b.binary(BinaryOp::Mul, r[0], r[1]).unwrap();
        b.binary(BinaryOp::Add, p, r[2]).unwrap()
    });
    let y = softmax_of(&mut nest, t);
    nest.store(y);
    nest
}

/// A map of two operands.
pub fn add() -> LoopNest {
    let mut nest = rows();
    let (x, y) = (nest.operand(F32, &[0, 1]), nest.operand(F32, &[0, 1]));
    let z = nest.stage(&[0, 1], &[x, y], StageKind::Map, |b, r| {
        b.binary(BinaryOp::Add, r[0], r[1]).unwrap()
    });
    nest.store(z);
    nest
}
