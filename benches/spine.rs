//! What tracing, calling and printing cost. `cargo bench -p maquette-benches --bench spine`.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use maquette::prelude::*;
use std::hint::black_box;

#[custom_op("bench::identity")]
fn identity(x: &Tensor) -> Result<Tensor> {
    let _ = x;
    Ok(Tensor::from([1.0f32, 2.0, 3.0]))
}

/// A kernel of many small inputs, such as a fused cell or an optimizer's step.
#[custom_op("bench::many")]
#[allow(clippy::many_single_char_names)]
fn many(
    a: &Tensor,
    b: &Tensor,
    c: &Tensor,
    d: &Tensor,
    e: &Tensor,
    f: &Tensor,
    g: &Tensor,
    h: &Tensor,
    i: &Tensor,
    j: &Tensor,
    k: &Tensor,
    l: &Tensor,
    m: &Tensor,
    n: &Tensor,
) -> Result<Tensor> {
    let _ = [a, b, c, d, e, f, g, h, i, j, k, l, m, n];
    Ok(Tensor::from([1.0f32, 2.0, 3.0]))
}

#[custom_op("bench::touch")]
fn touch(x: &mut Tensor) -> Result<()> {
    let _ = x;
    Ok(())
}

/// `x + 1`, `x * 2`, in turn.
fn chain(x: Tensor, n: usize) -> Tensor {
    (0..n).fold(x, |x, i| if i % 2 == 0 { &x + 1.0 } else { &x * 2.0 })
}

fn traced(n: usize) -> Traced<Tensor, Tensor> {
    match TraceOptions::symbolic()
        .names(["x"])
        .trace(|x| chain(x, n), Tensor::zeros([4, 5], DType::F32))
    {
        Ok(t) => t,
        Err(e) => panic!("{e}"),
    }
}

fn tracing(c: &mut Criterion) {
    let mut group = c.benchmark_group("symbolic trace");
    for n in [1_000, 10_000, 100_000] {
        group.throughput(Throughput::Elements(n as u64));
        group.bench_with_input(BenchmarkId::from_parameter(n), &n, |b, &n| {
            b.iter_with_large_drop(|| traced(n))
        });
    }
    group.finish();
}

fn calling(c: &mut Criterion) {
    let x = Tensor::from([1.0f32, 2.0, 3.0]);
    c.bench_function("custom op call, one tensor in and out", |b| {
        b.iter(|| identity(black_box(&x)))
    });
    let mut y = x.clone();
    c.bench_function("custom op call, one mutated tensor", |b| b.iter(|| touch(black_box(&mut y))));
    let t: [Tensor; 14] = std::array::from_fn(|i| Tensor::from([i as f32, 2.0, 3.0]));
    c.bench_function("custom op call, 14 tensors in, one out", |b| {
        b.iter(|| {
            let [a, b, c, d, e, f, g, h, i, j, k, l, m, n] = black_box(&t);
            many(a, b, c, d, e, f, g, h, i, j, k, l, m, n)
        });
    });
    c.bench_function("the first one's kernel alone", |b| {
        b.iter(|| identity::kernel(black_box(&x)))
    });
    c.bench_function("builtin add, 3 elements", |b| b.iter(|| black_box(&x) + black_box(&x)));
}

fn text(c: &mut Criterion) {
    let mut group = c.benchmark_group("graph text");
    for n in [1_000, 10_000, 100_000] {
        let graph = traced(n).graph().clone();
        let text = graph.to_string();
        group.throughput(Throughput::Elements(n as u64));
        group.bench_with_input(BenchmarkId::new("print", n), &graph, |b, g| {
            b.iter(|| g.to_string())
        });
        group.bench_with_input(BenchmarkId::new("parse", n), &text, |b, t| {
            b.iter(|| t.parse::<Graph>())
        });
        group.bench_with_input(BenchmarkId::new("verify", n), &graph, |b, g| b.iter(|| g.verify()));
    }
    group.finish();
}

fn running(c: &mut Criterion) {
    let t = traced(1_000);
    let x = Tensor::zeros([4, 5], DType::F32);
    c.bench_function("reference run of 1,000 nodes", |b| b.iter(|| t.run(x.clone())));
    c.bench_function("the same eagerly", |b| b.iter(|| chain(x.clone(), 1_000)));
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(20);
    targets = tracing, calling, text, running
}
criterion_main!(benches);
