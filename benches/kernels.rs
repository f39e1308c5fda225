//! What eager operators cost, beside PyTorch where it is installed. `cargo bench --bench kernels [NAME…]`.
//!
//! Every case is timed here and then by `benches/peers/torch_kernels.py` (with `MAQUETTE_PYTHON`, or `python3`), which knows the same
//! cases by name: both warm, with as many threads. A figure is the median of samples of at least 20 ms.

use maquette::prelude::*;
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
    run: Box<dyn Fn() -> Tensor>,
}

fn case(name: impl Into<String>, work: Work, run: impl Fn() -> Tensor + 'static) -> Case {
    Case { name: name.into(), work, run: Box::new(run) }
}

fn random(sizes: &[i64]) -> Tensor {
    Tensor::randn(sizes, DType::F32)
}

const M: f64 = 1048576.0;

fn small() -> Vec<Case> {
    let (x, y) = (random(&[4]), random(&[4]));
    let (a, b) = (random(&[2, 2]), random(&[2, 2]));
    let (r, s, t, v) = (x.clone(), x.clone(), x.clone(), x.clone());
    vec![
        case("add, 4 elements", Work::Call, move || &x + &y),
        case("relu, 4 elements", Work::Call, move || r.relu()),
        case("sum, 4 elements", Work::Call, move || s.sum()),
        case("softmax, 4 elements", Work::Call, move || t.softmax(0)),
        case("slice, 4 elements", Work::Call, move || v.slice(0, 1..3)),
        case("matmul, 2x2", Work::Call, move || a.matmul(&b)),
    ]
}

fn pointwise() -> Vec<Case> {
    let n = 16 * 1024 * 1024;
    let (x, y) = (random(&[n]), random(&[n]));
    let unary = |name: &str, f: fn(&Tensor) -> Tensor| {
        let x = x.clone();
        case(format!("{name}, 16M"), Work::Bytes(2.0 * 64.0 * M), move || f(&x))
    };
    let mut cases = vec![
        unary("relu", Tensor::relu),
        unary("exp", Tensor::exp),
        unary("tanh", Tensor::tanh),
        unary("sigmoid", Tensor::sigmoid),
        unary("gelu", Tensor::gelu),
        unary("log", Tensor::log),
        unary("sin", Tensor::sin),
        unary("mul by a number", |x| x * 2.0),
    ];
    let (a, b, base) = (x.clone(), y.clone(), x.clone());
    cases.push(case("add, 16M", Work::Bytes(3.0 * 64.0 * M), move || &a + &b));
    cases.push(case("add_, 16M", Work::Bytes(3.0 * 64.0 * M), move || base.add_(&y)));
    let (h, g) = (x.to_dtype(DType::BF16), x.to_dtype(DType::BF16));
    cases.push(case("add bf16, 16M", Work::Bytes(3.0 * 32.0 * M), move || &h + &g));
    let (m, row) = (random(&[4096, 4096]), random(&[4096]));
    let (wide, t) = (m.clone(), m.clone());
    cases.push(case("add a row, 4096x4096", Work::Bytes(2.0 * 64.0 * M), move || &wide + &row));
    cases.push(case("copy of a transpose, 4096x4096", Work::Bytes(2.0 * 64.0 * M), move || t.t().contiguous()));
    cases
}

fn rows() -> Vec<Case> {
    let x = random(&[4096, 1024]);
    let (w, b) = (random(&[1024]), random(&[1024]));
    let of = |name: &str, bytes: f64, f: fn(&Tensor) -> Tensor| {
        let x = x.clone();
        case(format!("{name}, 4096x1024"), Work::Bytes(bytes * M), move || f(&x))
    };
    let mut cases = vec![
        of("softmax", 32.0, |x| x.softmax(1)),
        of("log_softmax", 32.0, |x| x.log_softmax(1)),
        of("sum of rows", 16.0, |x| x.sum_dim([1], false)),
        of("sum of columns", 16.0, |x| x.sum_dim([0], false)),
        of("sum", 16.0, Tensor::sum),
        of("max of rows", 16.0, |x| x.amax([1], false)),
        of("argmax of rows", 16.0, |x| x.argmax_dim(1, false)),
        of("cumsum of rows", 32.0, |x| x.cumsum(1)),
    ];
    let y = x.clone();
    cases.push(case("layer_norm, 4096x1024", Work::Bytes(32.0 * M), move || y.layer_norm([1024], Some(&w), Some(&b), 1e-5)));
    let z = random(&[1024 * 1024]);
    cases.push(case("sort, 1M", Work::Bytes(16.0 * M), move || z.sort(0, false).0));
    cases
}

fn products() -> Vec<Case> {
    let mut cases = Vec::new();
    for (m, k, n) in [(128, 384, 384), (128, 384, 1536), (512, 512, 512), (1024, 1024, 1024), (2048, 2048, 2048)] {
        let (a, b) = (random(&[m, k]), random(&[k, n]));
        cases.push(case(format!("matmul, {m}x{k}x{n}"), Work::Flops(2.0 * (m * k * n) as f64), move || a.matmul(&b)));
    }
    let (x, w, bias) = (random(&[1024, 384]), random(&[1536, 384]), random(&[1536]));
    cases.push(case("linear, 1024x384x1536", Work::Flops(2.0 * 1024.0 * 384.0 * 1536.0), move || x.linear(&w, Some(&bias))));
    let (a, b) = (random(&[96, 128, 64]), random(&[96, 64, 128]));
    cases.push(case("bmm, 96 of 128x64x128", Work::Flops(2.0 * 96.0 * 128.0 * 64.0 * 128.0), move || a.matmul(&b)));
    let (x, w) = (random(&[8, 64, 56, 56]), random(&[64, 64, 3, 3]));
    let flops = 2.0 * 8.0 * 64.0 * 56.0 * 56.0 * 64.0 * 9.0;
    cases.push(case("conv2d 3x3, 8x64x56x56", Work::Flops(flops), move || x.conv2d(&w, None, [1, 1], [1, 1], [1, 1], 1)));
    let (q, k, v) = (random(&[8, 12, 128, 32]), random(&[8, 12, 128, 32]), random(&[8, 12, 128, 32]));
    let flops = 4.0 * 8.0 * 12.0 * 128.0 * 128.0 * 32.0;
    cases
        .push(case("attention, 8x12x128x32", Work::Flops(flops), move || q.scaled_dot_product_attention(&k, &v, None, false, None, false)));
    cases
}

fn gathers() -> Vec<Case> {
    let table = random(&[30522, 384]);
    let ids = Tensor::from_vec((0..8192i64).map(|i| i * 7919 % 30522).collect(), [8192]);
    let (a, b, c) = (table.clone(), ids.clone(), random(&[4096, 1024]));
    let d = c.clone();
    vec![
        case("embedding, 8192 of 30522x384", Work::Bytes(2.0 * 8192.0 * 384.0 * 4.0), move || table.embedding(&ids)),
        case("index_select, 8192 of 30522x384", Work::Bytes(2.0 * 8192.0 * 384.0 * 4.0), move || a.index_select(0, &b)),
        case("cat, 2 of 4096x1024", Work::Bytes(64.0 * M), move || Tensor::cat(&[c.clone(), d.clone()], 1)),
    ]
}

/// Seconds a call: the median of samples of at least 20 ms.
fn seconds(run: &dyn Fn() -> Tensor) -> f64 {
    let mut calls = 1u32;
    while sample(run, calls) < Duration::from_millis(20) {
        calls *= 2;
    }
    let mut samples: Vec<f64> = (0..9).map(|_| sample(run, calls).as_secs_f64() / f64::from(calls)).collect();
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
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/peers/torch_kernels.py");
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get()).to_string();
    let Ok(out) = Command::new(python).arg(script).arg(threads).args(names).output() else { return BTreeMap::new() };
    let text = String::from_utf8_lossy(&out.stdout);
    text.lines().filter_map(|l| l.rsplit_once('\t')).filter_map(|(name, s)| Some((name.to_owned(), s.parse().ok()?))).collect()
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
    let cases: Vec<Case> = [small(), pointwise(), rows(), products(), gathers()].into_iter().flatten().collect();
    let chosen: Vec<&Case> = cases.iter().filter(|c| asked.is_empty() || asked.iter().any(|a| c.name.contains(a.as_str()))).collect();
    for c in &chosen {
        if let Err(e) = (c.run)().ok() {
            panic!("{}: {e}", c.name);
        }
    }
    let peers = peer(&chosen.iter().map(|c| c.name.clone()).collect::<Vec<_>>());
    println!("| work | here | | PyTorch | here / PyTorch |\n|---|---|---|---|---|");
    for c in chosen {
        let s = seconds(&c.run);
        let rate = match c.work {
            Work::Call => String::new(),
            Work::Bytes(b) => format!("{:.1} GB/s", b / s / 1e9),
            Work::Flops(f) => format!("{:.0} GFLOP/s", f / s / 1e9),
        };
        let (theirs, ratio) = peers.get(&c.name).map_or_else(Default::default, |&p| (shown(p), format!("{:.2}", s / p)));
        println!("| {} | {} | {rate} | {theirs} | {ratio} |", c.name, shown(s));
    }
}
