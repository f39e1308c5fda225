//! What eager operators cost, beside PyTorch where it is installed.
//! `cargo bench -p maquette-benches --bench kernels [NAME…]`.
//!
//! Every case is timed here and then by `benches/peers/torch_kernels.py` (with `MAQUETTE_PYTHON`,
//! or `python3`), which knows the same cases by name: both warm, with as many threads. A figure is
//! the median of samples of at least 20 ms.

use maquette::prelude::*;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::hint::black_box;
use std::process::Command;
use std::time::{Duration, Instant};

/// What a case moves or computes, once.
enum Work {
    /// Nothing worth counting: a call's own cost.
    Call,
    /// Bytes read and written.
    Bytes(f64),
    /// Floating-point operations.
    Flops(f64),
}

struct Case {
    name: String,
    work: Work,
    /// Makes the operands, when the case's turn comes.
    build: Box<dyn FnOnce() -> Run>,
}

type Run = Box<dyn Fn() -> Tensor>;

type Function = fn(&Tensor) -> Tensor;

fn case<R: Fn() -> Tensor + 'static>(
    name: impl Into<String>,
    work: Work,
    build: impl FnOnce() -> R + 'static,
) -> Case {
    Case { name: name.into(), work, build: Box::new(|| Box::new(build())) }
}

/// A case of one random operand.
fn unary(name: impl Into<String>, work: Work, sizes: &'static [i64], f: Function) -> Case {
    case(name, work, move || {
        let x = random(sizes);
        move || f(&x)
    })
}

/// A case of two.
fn binary(
    name: impl Into<String>,
    work: Work,
    sizes: [&'static [i64]; 2],
    f: fn(&Tensor, &Tensor) -> Tensor,
) -> Case {
    case(name, work, move || {
        let (x, y) = (random(sizes[0]), random(sizes[1]));
        move || f(&x, &y)
    })
}

fn random(sizes: &[i64]) -> Tensor {
    Tensor::randn(sizes, DType::F32)
}

const M: f64 = 1048576.0;

fn small() -> Vec<Case> {
    vec![
        binary("add, 4 elements", Work::Call, [&[4], &[4]], |x, y| x + y),
        unary("relu, 4 elements", Work::Call, &[4], Tensor::relu),
        unary("sum, 4 elements", Work::Call, &[4], Tensor::sum),
        unary("softmax, 4 elements", Work::Call, &[4], |x| x.softmax(0)),
        unary("slice, 4 elements", Work::Call, &[4], |x| x.slice(0, 1..3)),
        binary("matmul, 2x2", Work::Call, [&[2, 2], &[2, 2]], Tensor::matmul),
        unary("amax, 4 elements", Work::Call, &[2, 2], |x| x.amax([1], false)),
        case("layer_norm, 4 elements", Work::Call, || {
            let x = random(&[1, 4]);
            move || x.layer_norm([4], None, None, 1e-5)
        }),
        case("embedding, 4 elements", Work::Call, || {
            let (table, ids) = (random(&[8, 2]), Tensor::from([1i64, 5]));
            move || table.embedding(&ids)
        }),
        // as a schedule of learning rates gives them
        case("mul by a fresh number, 4 elements", Work::Call, || {
            let (x, count) = (random(&[4]), Cell::new(0.0));
            move || {
                count.set(count.get() + 1.0);
                &x * count.get()
            }
        }),
        case("full of a fresh number, 4 elements", Work::Call, || {
            let count = Cell::new(0.0);
            move || {
                count.set(count.get() + 1.0);
                Tensor::full([4], count.get(), DType::F32)
            }
        }),
    ]
}

fn pointwise() -> Vec<Case> {
    const N: &[i64] = &[16 * 1024 * 1024];
    const SQUARE: &[i64] = &[4096, 4096];
    let functions: [(&str, Function); 8] = [
        ("relu", Tensor::relu),
        ("exp", Tensor::exp),
        ("tanh", Tensor::tanh),
        ("sigmoid", Tensor::sigmoid),
        ("gelu", Tensor::gelu),
        ("log", Tensor::log),
        ("sin", Tensor::sin),
        ("mul by a number", |x| x * 2.0),
    ];
    let mut cases: Vec<Case> = functions
        .into_iter()
        .map(|(name, f)| unary(format!("{name}, 16M"), Work::Bytes(2.0 * 64.0 * M), N, f))
        .collect();
    cases.extend([
        binary("add, 16M", Work::Bytes(3.0 * 64.0 * M), [N, N], |x, y| x + y),
        binary("add_, 16M", Work::Bytes(3.0 * 64.0 * M), [N, N], |x, y| x.add_(y)),
        case("add bf16, 16M", Work::Bytes(3.0 * 32.0 * M), || {
            let (x, y) = (random(N).to_dtype(DType::BF16), random(N).to_dtype(DType::BF16));
            move || &x + &y
        }),
        binary("add a row, 4096x4096", Work::Bytes(2.0 * 64.0 * M), [SQUARE, &[4096]], |x, y| {
            x + y
        }),
        unary("copy of a transpose, 4096x4096", Work::Bytes(2.0 * 64.0 * M), SQUARE, |x| {
            x.t().contiguous()
        }),
    ]);
    cases
}

fn rows() -> Vec<Case> {
    const ROWS: &[i64] = &[4096, 1024];
    let functions: [(&str, f64, Function); 8] = [
        ("softmax", 32.0, |x| x.softmax(1)),
        ("log_softmax", 32.0, |x| x.log_softmax(1)),
        ("sum of rows", 16.0, |x| x.sum_dim([1], false)),
        ("sum of columns", 16.0, |x| x.sum_dim([0], false)),
        ("sum", 16.0, Tensor::sum),
        ("max of rows", 16.0, |x| x.amax([1], false)),
        ("argmax of rows", 16.0, |x| x.argmax_dim(1, false)),
        ("cumsum of rows", 32.0, |x| x.cumsum(1)),
    ];
    let mut cases: Vec<Case> = functions
        .into_iter()
        .map(|(name, bytes, f)| {
            unary(format!("{name}, 4096x1024"), Work::Bytes(bytes * M), ROWS, f)
        })
        .collect();
    cases.push(case("layer_norm, 4096x1024", Work::Bytes(32.0 * M), || {
        let (x, w, b) = (random(ROWS), random(&[1024]), random(&[1024]));
        move || x.layer_norm([1024], Some(&w), Some(&b), 1e-5)
    }));
    const FEW: [(&str, &[i64]); 4] = [
        ("64x64", &[64, 64]),
        ("256x256", &[256, 256]),
        ("128x8192", &[128, 8192]),
        ("16x256K", &[16, 1 << 18]),
    ];
    for (shape, sizes) in FEW {
        let bytes = sizes.iter().product::<i64>() as f64 * 4.0;
        let (sum, max): (Function, Function) = (|x| x.sum_dim([1], false), |x| x.amax([1], false));
        for (name, f) in [("sum", sum), ("max", max)] {
            cases.push(unary(format!("{name} of rows, {shape}"), Work::Bytes(bytes), sizes, f));
        }
    }
    cases.push(unary("sort, 1M", Work::Bytes(16.0 * M), &[1024 * 1024], |x| x.sort(0, false).0));
    cases
}

fn products() -> Vec<Case> {
    let sizes = [
        (128, 384, 384),
        (128, 384, 1536),
        (512, 512, 512),
        (1024, 1024, 1024),
        (2048, 2048, 2048),
    ];
    let matmul = |(m, k, n): (i64, i64, i64)| {
        case(format!("matmul, {m}x{k}x{n}"), Work::Flops(2.0 * (m * k * n) as f64), move || {
            let (a, b) = (random(&[m, k]), random(&[k, n]));
            move || a.matmul(&b)
        })
    };
    let mut cases: Vec<Case> = sizes.into_iter().map(matmul).collect();
    cases.extend([
        case("linear, 1024x384x1536", Work::Flops(2.0 * 1024.0 * 384.0 * 1536.0), || {
            let (x, w, b) = (random(&[1024, 384]), random(&[1536, 384]), random(&[1536]));
            move || x.linear(&w, Some(&b))
        }),
        binary(
            "bmm, 96 of 128x64x128",
            Work::Flops(2.0 * 96.0 * 128.0 * 64.0 * 128.0),
            [&[96, 128, 64], &[96, 64, 128]],
            Tensor::matmul,
        ),
        binary(
            "conv2d 3x3, 8x64x56x56",
            Work::Flops(2.0 * 8.0 * 64.0 * 56.0 * 56.0 * 64.0 * 9.0),
            [&[8, 64, 56, 56], &[64, 64, 3, 3]],
            |x, w| x.conv2d(w, None, [1, 1], [1, 1], [1, 1], 1),
        ),
        case(
            "attention, 8x12x128x32",
            Work::Flops(4.0 * 8.0 * 12.0 * 128.0 * 128.0 * 32.0),
            || {
                let [q, k, v] = [0; 3].map(|_| random(&[8, 12, 128, 32]));
                move || q.scaled_dot_product_attention(&k, &v, None, false, None, false)
            },
        ),
    ]);
    cases
}

fn gathers() -> Vec<Case> {
    let gather = |name: &str, f: fn(&Tensor, &Tensor) -> Tensor| {
        case(
            format!("{name}, 8192 of 30522x384"),
            Work::Bytes(2.0 * 8192.0 * 384.0 * 4.0),
            move || {
                let table = random(&[30522, 384]);
                let ids =
                    Tensor::from_vec((0..8192i64).map(|i| i * 7919 % 30522).collect(), [8192]);
                move || f(&table, &ids)
            },
        )
    };
    vec![
        gather("embedding", |table, ids| table.embedding(ids)),
        gather("index_select", |table, ids| table.index_select(0, ids)),
        binary(
            "cat, 2 of 4096x1024",
            Work::Bytes(64.0 * M),
            [&[4096, 1024], &[4096, 1024]],
            |x, y| Tensor::cat([x, y], 1),
        ),
    ]
}

fn images() -> Vec<Case> {
    const IMAGES: &[i64] = &[8, 64, 56, 56];
    const BYTES: f64 = 8.0 * 64.0 * 56.0 * 56.0 * 4.0;
    vec![
        unary("max_pool2d 3x3 by 2, 8x64x56x56", Work::Bytes(1.25 * BYTES), IMAGES, |x| {
            x.max_pool2d([3, 3], [2, 2], [1, 1])
        }),
        unary("avg_pool2d 2x2, 8x64x56x56", Work::Bytes(1.25 * BYTES), IMAGES, |x| {
            x.avg_pool2d([2, 2], [2, 2], [0, 0])
        }),
        unary("adaptive_avg_pool2d 1, 8x64x56x56", Work::Bytes(BYTES), IMAGES, |x| {
            x.adaptive_avg_pool2d([1, 1])
        }),
        unary("pad by 1, 8x64x56x56", Work::Bytes(2.0 * BYTES), IMAGES, |x| {
            x.constant_pad_nd([1, 1, 1, 1], 0.0)
        }),
        unary("group_norm of 8, 8x64x56x56", Work::Bytes(2.0 * BYTES), IMAGES, |x| {
            x.group_norm(8, None, None, 1e-5)
        }),
        case("batch_norm, 8x64x56x56", Work::Bytes(2.0 * BYTES), || {
            let (x, w, b, mean) = (random(IMAGES), random(&[64]), random(&[64]), random(&[64]));
            let var = random(&[64]).exp();
            move || x.batch_norm(Some(&w), Some(&b), &mean, &var, 1e-5)
        }),
        binary(
            "depthwise conv2d 3x3, 8x64x56x56",
            Work::Bytes(2.0 * BYTES),
            [IMAGES, &[64, 1, 3, 3]],
            |x, w| x.conv2d(w, None, [1, 1], [1, 1], [1, 1], 64),
        ),
    ]
}

fn others() -> Vec<Case> {
    vec![
        case("scatter_add, 1M into 64K", Work::Bytes(12.0 * M), || {
            let (into, from) = (random(&[64 << 10]), random(&[1 << 20]));
            let index: Vec<i64> = (0..1 << 20).map(|i| i * 7919 % (64 << 10)).collect();
            let index = Tensor::from_vec(index, [1 << 20]);
            move || into.scatter_add(0, &index, &from)
        }),
        case("randn, 1M", Work::Bytes(4.0 * M), || || random(&[1 << 20])),
        case("zeros, 16M", Work::Bytes(64.0 * M), || || Tensor::zeros([16 << 20], DType::F32)),
        case("arange, 1M", Work::Bytes(8.0 * M), || || Tensor::arange(1 << 20)),
        unary("tril, 4096x4096", Work::Bytes(128.0 * M), &[4096, 4096], |x| x.tril(0)),
        binary("dot, 1M", Work::Bytes(8.0 * M), [&[1 << 20], &[1 << 20]], Tensor::dot),
        binary("mv, 4096x1024", Work::Bytes(16.0 * M), [&[4096, 1024], &[1024]], Tensor::mv),
    ]
}

/// Seconds a call: the median of samples of at least 20 ms.
fn seconds(run: &dyn Fn() -> Tensor) -> f64 {
    let mut calls = 1u32;
    while sample(run, calls) < Duration::from_millis(20) {
        calls *= 2;
    }
    let mut samples: Vec<f64> =
        (0..9).map(|_| sample(run, calls).as_secs_f64() / f64::from(calls)).collect();
    samples.sort_by(f64::total_cmp);
    samples[samples.len() / 2]
}

fn sample(run: &dyn Fn() -> Tensor, calls: u32) -> Duration {
    let begin = Instant::now();
    for _ in 0..calls {
        black_box(run());
    }
    begin.elapsed()
}

/// PyTorch's seconds by case, where it is installed.
fn peer(names: &[String]) -> BTreeMap<String, f64> {
    let python = std::env::var("MAQUETTE_PYTHON").unwrap_or_else(|_| "python3".into());
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/peers/torch_kernels.py");
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get()).to_string();
    let Ok(out) = Command::new(python).arg(script).arg(threads).args(names).output() else {
        return BTreeMap::new();
    };
    let text = String::from_utf8_lossy(&out.stdout);
    text.lines()
        .filter_map(|l| l.rsplit_once('\t'))
        .filter_map(|(name, s)| Some((name.to_owned(), s.parse().ok()?)))
        .collect()
}

fn shown(seconds: f64) -> String {
    match seconds {
        s if s < 1e-3 => format!("{:.2} µs", s * 1e6),
        s => format!("{:.2} ms", s * 1e3),
    }
}

fn main() {
    // what `cargo bench` passes on
    let asked: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with("--")).collect();
    let cases: Vec<Case> =
        [small(), pointwise(), rows(), products(), gathers(), images(), others()]
            .into_iter()
            .flatten()
            .collect();
    let chosen: Vec<Case> = cases
        .into_iter()
        .filter(|c| asked.is_empty() || asked.iter().any(|a| c.name.contains(a.as_str())))
        .collect();
    let peers = peer(&chosen.iter().map(|c| c.name.clone()).collect::<Vec<_>>());
    println!("| work | here | | PyTorch | here / PyTorch |\n|---|---|---|---|---|");
    for c in chosen {
        let run = (c.build)();
        if let Err(e) = run().ok() {
            panic!("{}: {e}", c.name);
        }
        let s = seconds(&run);
        let rate = match c.work {
            Work::Call => String::new(),
            Work::Bytes(b) => format!("{:.1} GB/s", b / s / 1e9),
            Work::Flops(f) => format!("{:.0} GFLOP/s", f / s / 1e9),
        };
        let (theirs, ratio) = peers
            .get(&c.name)
            .map_or_else(Default::default, |&p| (shown(p), format!("{:.2}", s / p)));
        println!("| {} | {} | {rate} | {theirs} | {ratio} |", c.name, shown(s));
    }
}
