//! What recording a call and visiting a node cost, beside the same operators without gradients.
//! `cargo bench -p maquette-benches --bench autograd`.
//!
//! The kernels are small: 4 elements. A chain of `n` products `x * c` needs `n` products in its
//! sweep as well, so that a node costs what the sweep takes beyond these.

use criterion::{Criterion, criterion_group, criterion_main};
use maquette::prelude::*;
use std::time::{Duration, Instant};

const NODES: usize = 1_000;

fn chain(x: &Tensor, c: &Tensor) -> Tensor {
    (0..NODES).fold(x.clone(), |x, _| &x * c)
}

fn operands() -> (Tensor, Tensor) {
    (Tensor::ones([4], DType::F32), Tensor::ones([4], DType::F32))
}

/// The time of `part`, whose operand `prepare` makes, for one node.
fn per_node<T>(iters: u64, prepare: impl Fn() -> T, part: impl Fn(T)) -> Duration {
    let mut total = Duration::ZERO;
    for _ in 0..iters {
        let prepared = prepare();
        let start = Instant::now();
        part(prepared);
        total += start.elapsed();
    }
    total / NODES as u32
}

fn nodes(c: &mut Criterion) {
    let (x, factor) = operands();
    c.bench_function("product of 4 elements", |b| {
        b.iter_custom(|iters| per_node(iters, || (), |()| drop(chain(&x, &factor))))
    });
    let leaf = x.clone_as(MemoryFormat::Contiguous).requires_grad_();
    c.bench_function("product of 4 elements, recorded", |b| {
        b.iter_custom(|iters| per_node(iters, || (), |()| drop(chain(&leaf, &factor))))
    });
    c.bench_function("node of a sweep, with its product", |b| {
        let forward = || chain(&leaf, &factor).sum();
        b.iter_custom(|iters| {
            per_node(iters, forward, |loss| {
                if let Err(e) = loss.backward() {
                    panic!("{e}");
                }
            })
        })
    });
}

criterion_group!(benches, nodes);
criterion_main!(benches);
