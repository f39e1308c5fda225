//! What the compiled runtime costs beside the kernels: the same programs eagerly, by the reference
//! interpreter, and compiled. `cargo bench -p maquette-benches --bench runtime`.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use maquette::prelude::*;
use maquette::with_num_threads;
use std::hint::black_box;
use std::sync::Barrier;
use std::time::Instant;

#[custom_op("bench::opaque")]
fn opaque(x: &Tensor) -> Result<Tensor> {
    let _ = x;
    Ok(computed())
}

#[register_fake(opaque)]
fn opaque_fake(_cx: &FakeCtx, x: &Tensor) -> Result<Tensor> {
    Ok(x.new_empty(x.sizes(), x.dtype()))
}

#[custom_op("bench::bump_")]
fn bump(x: &mut Tensor) -> Result<()> {
    let _ = x;
    Ok(())
}

/// What the kernel of [`opaque`] computes.
fn computed() -> Tensor {
    Tensor::from([1.0f32, 2.0, 3.0, 4.0])
}

/// The work of a benchmark, on tensors of 4 elements unless it says otherwise.
#[derive(Clone, Copy)]
enum Work {
    /// `x + 1` and `x * 2` in turn.
    Pointwise,
    /// Remainders of integers, which can fail and so are not computed together with others.
    Remainder,
    /// Products of square matrices, with so many rows, with a constant.
    Product(i64),
    /// A softmax over the only dimension, again and again.
    Softmax,
    /// A sum, and its difference to each element.
    Sum,
    LayerNorm,
    /// Elements at constant positions.
    Gather,
    /// A custom operator that returns a tensor.
    Opaque,
    /// A custom operator that mutates a tensor.
    Mutating,
}

/// A number of operators in a row.
#[derive(Module)]
#[module(Tensor -> Tensor)]
struct Chain {
    #[module(skip)]
    work: Work,
    #[module(skip)]
    len: usize,
    /// The other operand of a product or gather.
    #[module(skip)]
    constant: Tensor,
}

impl Chain {
    fn forward(&self, x: Tensor) -> Tensor {
        let x = if matches!(self.work, Work::Mutating) { &x + 1.0 } else { x };
        (0..self.len).fold(x, |x, i| match self.work {
            Work::Pointwise if i % 2 == 0 => &x + 1.0,
            Work::Pointwise => &x * 2.0,
            Work::Remainder => x.remainder(7),
            Work::Product(_) => x.mm(&self.constant),
            Work::Softmax => x.softmax(0),
            // Two operators in every second step.
            Work::Sum if i % 2 == 0 => &x - x.sum_dim([0], true),
            Work::Sum => x,
            Work::LayerNorm => x.layer_norm([4], None, None, 1e-5),
            Work::Gather => x.gather(0, &self.constant),
            Work::Opaque => opaque(&x),
            Work::Mutating => {
                // A failure poisons the tensor, which the call reports.
                let _ = bump(&mut x.clone());
                x
            }
        })
    }
}

fn overhead(c: &mut Criterion) {
    const LEN: usize = 1_000;
    let works = [
        ("add and mul", Work::Pointwise),
        ("remainder", Work::Remainder),
        ("product, 2 x 2", Work::Product(2)),
        ("product, 8 x 8", Work::Product(8)),
        ("product, 16 x 16", Work::Product(16)),
        ("softmax", Work::Softmax),
        ("sum and difference", Work::Sum),
        ("layer norm", Work::LayerNorm),
        ("gather", Work::Gather),
        ("opaque", Work::Opaque),
        ("opaque, mutating", Work::Mutating),
    ];
    for (name, work) in works {
        let x = Tensor::from([1.0f32, 2.0, 3.0, 4.0]);
        let (x, constant) = match work {
            // Rotations of pairs keep the elements at their size.
            Work::Product(n) => {
                let element = |at: i64| match (at / n, at % n) {
                    (i, j) if i == j => 0.8,
                    (i, j) if i == j ^ 1 => 0.6 - 1.2 * (i % 2) as f32,
                    _ => 0.0,
                };
                let constant = Tensor::from_vec((0..n * n).map(element).collect(), [n, n]);
                (Tensor::ones([n, n], DType::F32), constant)
            }
            Work::Gather => (x, Tensor::from([3i64, 0, 2, 1])),
            Work::Remainder => (Tensor::from([1i64, 2, 3, 4]), x),
            _ => (x.clone(), x),
        };
        let chain = Chain { work, len: LEN, constant };
        let program = ExportOptions::new().export(&chain, x.clone()).expect("exports");
        let compiled = program.compile(Device::Cpu).expect("compiles");
        assert!(compiled.is_compiled());
        let mut group = c.benchmark_group(format!("1,000 of {name}"));
        group.throughput(Throughput::Elements(LEN as u64));
        group.bench_function(BenchmarkId::from_parameter("eager"), |b| {
            b.iter(|| black_box(chain.forward(x.clone())).ok().map(drop).expect("runs"))
        });
        if matches!(work, Work::Opaque) {
            group.bench_function(BenchmarkId::from_parameter("kernel"), |b| {
                b.iter(|| (0..LEN).fold(x.clone(), |_, _| black_box(computed())))
            });
        }
        group.bench_function(BenchmarkId::from_parameter("interpreter"), |b| {
            b.iter(|| black_box(program.call(x.clone())).expect("runs"))
        });
        group.bench_function(BenchmarkId::from_parameter("compiled"), |b| {
            b.iter(|| black_box(compiled.call(x.clone())).expect("runs"))
        });
        group.finish();
    }
}

/// Callers on threads of their own, with a budget of one thread each: a layer of a network, a
/// thousand small operators. Two callers on two cores finish nearly twice the calls of one.
fn callers(c: &mut Criterion) {
    let weight = Tensor::ones([256, 256], DType::F32) * 0.01;
    let layer = compile(|x: Tensor| x.matmul(&weight).relu().softmax(-1));
    let small = compile(|x: Tensor| (0..1_000).fold(x, |x, _| x.softmax(0)));
    type Call<'a> = &'a (dyn Fn(Tensor) -> Result<Tensor> + Sync);
    let works: [(&str, Call<'_>, Vec<i64>); 2] = [
        ("a layer, 64 x 256", &|x| layer.call(x), vec![64, 256]),
        ("1,000 softmaxes, 4 elements", &|x| small.call(x), vec![4]),
    ];
    for (name, call, sizes) in works {
        let mut group = c.benchmark_group(format!("callers: {name}"));
        for threads in [1usize, 2] {
            group.throughput(Throughput::Elements(threads as u64));
            group.bench_function(BenchmarkId::from_parameter(threads), |b| {
                b.iter_custom(|iterations| {
                    let begin = Barrier::new(threads + 1);
                    let work = || {
                        let x = Tensor::ones(sizes.clone(), DType::F32);
                        begin.wait();
                        for _ in 0..iterations {
                            with_num_threads(1, || black_box(call(x.clone()))).expect("runs");
                        }
                    };
                    std::thread::scope(|scope| {
                        let running: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
                        begin.wait();
                        let started = Instant::now();
                        running.into_iter().for_each(|thread| thread.join().expect("runs"));
                        started.elapsed()
                    })
                });
            });
        }
        group.finish();
    }
}

/// A layer of an encoder, as in BERT, with 4 heads.
#[derive(Module)]
#[module(Tensor -> Tensor)]
struct Layer {
    weight: Tensor,
    bias: Tensor,
}

impl Layer {
    fn forward(&self, x: Tensor) -> Tensor {
        let (weight, bias) = (&self.weight, Some(&self.bias));
        let split = |t: Tensor| t.unflatten(-1, [4, -1]).transpose(1, 2);
        let [q, k, v] = [1.0, 0.5, 2.0].map(|c| split((&x * c).linear(weight, bias)));
        let scores = (q.matmul(&k.transpose(-2, -1)) * 0.25).softmax(-1);
        let mixed = scores.matmul(&v).transpose(1, 2).flatten(2, 3);
        let width = [x.size(-1)];
        let attended = (mixed.linear(weight, bias) + &x).layer_norm(width, None, None, 1e-5);
        let inner = attended.linear(weight, bias).gelu();
        (inner.linear(weight, bias) + attended).layer_norm(width, None, None, 1e-5)
    }
}

/// What a call of a new size costs beside a call of one that was there before: the sizes of a call
/// are bound to the symbols of kernels. More sizes than an executable keeps are called in turn.
fn new_sizes(c: &mut Criterion) {
    const LAYERS: usize = 6;
    const SIZES: i64 = 100;
    let layers: Vec<Layer> = (0..LAYERS)
        .map(|_| Layer {
            weight: Tensor::ones([16, 16], DType::F32) * 0.1,
            bias: Tensor::ones([16], DType::F32) * 0.1,
        })
        .collect();
    let model = move |x: Tensor| layers.iter().fold(x, |x, layer| layer.forward(x));
    let f = CompileOptions::symbolic().compile(model);
    let inputs: Vec<Tensor> =
        (0..SIZES).map(|words| Tensor::ones([2, words + 2, 16], DType::F32) * 0.5).collect();
    let mut group = c.benchmark_group("6 layers of an encoder");
    let call = |x: &Tensor| black_box(f.call(x.clone()).expect("the model runs"));
    group.bench_function("of a known size", |b| b.iter(|| call(&inputs[0])));
    let mut next = 0;
    group.bench_function("of a new size", |b| {
        b.iter(|| {
            next = (next + 1) % inputs.len();
            call(&inputs[next])
        })
    });
    group.finish();
}

criterion_group!(benches, overhead, callers, new_sizes);
criterion_main!(benches);
