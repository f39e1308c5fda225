//! What matrix products reach of the machine's peak of fused multiply-adds.
//! `cargo bench -p maquette-benches --bench products [NAME…]`.
//!
//! The peak is measured before and after each sample, on as many threads, because the clock drifts.
//! The figures are medians of all rounds. Weights of the cases "from memory" are used in rotation
//! over 64 MB. `benches/peers/products.py` has the same products in PyTorch and onnxruntime.

use maquette_kernels::{
    Epilogue, PackedMatrix, View, ViewMut, num_threads, packed_product, product,
};
use std::hint::black_box;
use std::time::{Duration, Instant};

const ROUNDS: usize = 31;
/// The time that a sample takes at least.
const SAMPLE: Duration = Duration::from_millis(1);
/// The bytes of the weights that are used in rotation.
const ROTATED: usize = 64 << 20;

/// Factors with all digits in use: with operands that never change, a processor needs less power
/// and may run at a higher clock than any product can.
const FACTORS: ([f32; 8], [f32; 3]) = (
    [
        0.731_058_6,
        0.413_287_9,
        0.268_941_4,
        0.880_797,
        0.119_202_9,
        0.982_013_8,
        0.377_540_7,
        0.622_459_3,
    ],
    [-0.574_442_5, 0.836_017_6, -0.217_111_8],
);

/// Runs `steps` times some fused multiply-adds of whole vectors, and returns the operations done.
fn peak_loop(steps: usize) -> f64 {
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx512f") {
            // SAFETY: the machine has the instruction set.
            unsafe { chains_avx512(steps) };
            return (steps * 24 * 16 * 2) as f64;
        }
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
            // SAFETY: as above.
            unsafe { chains_avx2(steps) };
            return (steps * 9 * 8 * 2) as f64;
        }
    }
    let (mut sums, (rows, columns)) = ([0f32; 64], black_box(FACTORS));
    for _ in 0..steps {
        sums.iter_mut().zip(rows.iter().cycle()).for_each(|(sum, x)| {
            *sum = x.mul_add(columns[0], *sum);
        });
    }
    black_box(sums);
    (steps * 64 * 2) as f64
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn chains_avx512(steps: usize) {
    use std::arch::x86_64::*;
    let (rows, columns) = black_box(FACTORS);
    let columns =
        [_mm512_set1_ps(columns[0]), _mm512_set1_ps(columns[1]), _mm512_set1_ps(columns[2])];
    let mut sums = [[_mm512_setzero_ps(); 3]; 8];
    for _ in 0..steps {
        for (row, sums) in rows.iter().zip(&mut sums) {
            let x = _mm512_set1_ps(*row);
            for (sum, y) in sums.iter_mut().zip(columns) {
                *sum = _mm512_fmadd_ps(x, y, *sum);
            }
        }
    }
    black_box(sums);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn chains_avx2(steps: usize) {
    use std::arch::x86_64::*;
    let (rows, columns) = black_box(FACTORS);
    let columns =
        [_mm256_set1_ps(columns[0]), _mm256_set1_ps(columns[1]), _mm256_set1_ps(columns[2])];
    let mut sums = [[_mm256_setzero_ps(); 3]; 3];
    for _ in 0..steps {
        for (row, sums) in rows.iter().zip(&mut sums) {
            let x = _mm256_set1_ps(*row);
            for (sum, y) in sums.iter_mut().zip(columns) {
                *sum = _mm256_fmadd_ps(x, y, *sum);
            }
        }
    }
    black_box(sums);
}

/// The peak of all threads together, in operations a second.
fn peak(threads: usize) -> f64 {
    let begin = std::sync::Barrier::new(threads);
    std::thread::scope(|scope| {
        let one = || {
            begin.wait();
            let (mut done, start) = (0.0, Instant::now());
            while start.elapsed() < SAMPLE {
                done += peak_loop(5_000);
            }
            done / start.elapsed().as_secs_f64()
        };
        let handles: Vec<_> = (1..threads).map(|_| scope.spawn(one)).collect();
        one() + handles.into_iter().filter_map(|h| h.join().ok()).sum::<f64>()
    })
}

struct Case {
    name: String,
    flops: f64,
    make: Box<dyn Fn() -> Box<dyn FnMut()>>,
}

impl Case {
    fn new<R: FnMut() + 'static>(
        name: String,
        [m, k, n]: [usize; 3],
        make: impl Fn() -> R + 'static,
    ) -> Case {
        let flops = 2.0 * (m * k * n) as f64;
        Case { name, flops, make: Box::new(move || Box::new(make())) }
    }

    /// The operations a second and their share of the peak.
    fn measure(&self, threads: usize) -> (f64, f64) {
        let (mut run, mut calls) = ((self.make)(), 1);
        let mut sample = |calls: u32| {
            let begin = Instant::now();
            (0..calls).for_each(|_| run());
            begin.elapsed()
        };
        while sample(calls) < SAMPLE {
            calls *= 2;
        }
        let round = |_| {
            let before = peak(threads);
            let rate = self.flops * f64::from(calls) / sample(calls).as_secs_f64();
            (rate, rate / before.max(peak(threads)))
        };
        let rounds: Vec<(f64, f64)> = (0..ROUNDS).map(round).collect();
        (median(rounds.iter().map(|r| r.0)), median(rounds.iter().map(|r| r.1)))
    }
}

fn median(x: impl Iterator<Item = f64>) -> f64 {
    let mut x: Vec<f64> = x.collect();
    x.sort_by(f64::total_cmp);
    x[x.len() / 2]
}

fn numbers(n: usize) -> Vec<f32> {
    (0..n).map(|i| ((i * 7919 + 13) % 4099) as f32 / 2048.0 - 1.0).collect()
}

fn view<'a>(x: &'a [f32], rows: usize, columns: usize) -> View<'a> {
    View::from_slice_sized(x, &[rows as i64, columns as i64]).expect("fits")
}

/// A product with weights packed ahead: `copies` of them in rotation.
fn packed(place: &str, [m, k, n]: [usize; 3], copies: usize) -> Case {
    Case::new(format!("packed, {m}x{k}x{n}, {place}"), [m, k, n], move || {
        let (a, b) = (numbers(m * k), numbers(k * n));
        let weights: Vec<PackedMatrix> =
            (0..copies).map(|_| PackedMatrix::new(&view(&b, k, n)).expect("packs")).collect();
        let (mut c, mut turn) = (vec![0f32; m * n], 0);
        move || {
            turn = (turn + 1) % weights.len();
            let mut out = ViewMut::from_slice_sized(&mut c, &[m as i64, n as i64]).expect("fits");
            packed_product(&view(&a, m, k), &weights[turn], &Epilogue::default(), &mut out)
                .expect("multiplies");
        }
    })
}

/// A product of matrices as they are: B row-major, or transposed as the weight of `linear`.
fn plain([m, k, n]: [usize; 3], transposed: bool) -> Case {
    let name = if transposed { "transposed" } else { "row-major" };
    Case::new(format!("{name}, {m}x{k}x{n}"), [m, k, n], move || {
        let (a, b) = (numbers(m * k), numbers(k * n));
        let mut c = vec![0f32; m * n];
        move || {
            let b = match transposed {
                true => view(&b, n, k).permute(&[1, 0]).expect("permutes"),
                false => view(&b, k, n),
            };
            let mut out = ViewMut::from_slice_sized(&mut c, &[m as i64, n as i64]).expect("fits");
            product(&view(&a, m, k), &b, &Epilogue::default(), &mut out).expect("multiplies");
        }
    })
}

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for m in [1, 16, 128, 1024] {
        for [k, n] in [[384, 384], [384, 1152], [384, 1536], [1536, 384]] {
            cases.push(packed("in cache", [m, k, n], 1));
            cases.push(packed("from memory", [m, k, n], ROTATED / (k * n * 4)));
            cases.push(plain([m, k, n], false));
            cases.push(plain([m, k, n], true));
        }
    }
    for n in [512, 1024, 2048] {
        cases.push(packed("in cache", [n; 3], 1));
        cases.push(plain([n; 3], false));
        cases.push(plain([n; 3], true));
    }
    cases.extend([[1, 1 << 22, 1], [4096, 4096, 1], [1, 4096, 4096]].map(|s| plain(s, false)));
    cases.push(plain([1, 4096, 4096], true));
    cases
}

fn main() {
    // what `cargo bench` passes on
    let asked: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with("--")).collect();
    let is_asked = |c: &Case| asked.is_empty() || asked.iter().any(|a| c.name.contains(a.as_str()));
    let threads = num_threads();
    let best = (0..ROUNDS).map(|_| peak(threads)).fold(0.0, f64::max);
    println!("peak of {threads} threads: {:.0} GFLOP/s\n", best / 1e9);
    println!("| product | GFLOP/s | of the peak |\n|---|--:|--:|");
    for case in cases().into_iter().filter(is_asked) {
        let (rate, share) = case.measure(threads);
        println!("| {} | {:.0} | {:.0} % |", case.name, rate / 1e9, 100.0 * share);
    }
}
