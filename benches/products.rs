//! What matrix products reach of the machine's peak of fused multiply-adds.
//! `cargo bench -p maquette-benches --bench products [NAME…]`.
//!
//! The peak is measured in turn with the cases, on as many threads. A figure is the best of all
//! rounds. Weights of the cases "from memory" are used in rotation over 64 MB.

use maquette_kernels::{
    Epilogue, PackedMatrix, View, ViewMut, num_threads, packed_product, product,
};
use std::hint::black_box;
use std::time::{Duration, Instant};

const ROUNDS: usize = 15;
/// The time that a sample takes at least.
const SAMPLE: Duration = Duration::from_millis(4);
/// The bytes of the weights that are used in rotation.
const ROTATED: usize = 64 << 20;

/// Runs `steps` times 24 fused multiply-adds of whole vectors, and returns the operations done.
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
            return (steps * 12 * 8 * 2) as f64;
        }
    }
    let mut sums = [1.0f32; 64];
    for _ in 0..steps {
        sums.iter_mut().for_each(|x| *x = x.mul_add(0.999, 0.001));
    }
    black_box(sums);
    (steps * 64 * 2) as f64
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn chains_avx512(steps: usize) {
    use std::arch::x86_64::*;
    let (by, to) = (_mm512_set1_ps(black_box(0.999)), _mm512_set1_ps(black_box(0.001)));
    let mut sums = [_mm512_set1_ps(1.0); 24];
    for _ in 0..steps {
        for x in &mut sums {
            *x = _mm512_fmadd_ps(*x, by, to);
        }
    }
    black_box(sums);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn chains_avx2(steps: usize) {
    use std::arch::x86_64::*;
    let (by, to) = (_mm256_set1_ps(black_box(0.999)), _mm256_set1_ps(black_box(0.001)));
    let mut sums = [_mm256_set1_ps(1.0); 12];
    for _ in 0..steps {
        for x in &mut sums {
            *x = _mm256_fmadd_ps(*x, by, to);
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
                done += peak_loop(20_000);
            }
            done / start.elapsed().as_secs_f64()
        };
        let handles: Vec<_> = (0..threads).map(|_| scope.spawn(one)).collect();
        handles.into_iter().filter_map(|h| h.join().ok()).sum()
    })
}

struct Case {
    name: String,
    flops: f64,
    run: Box<dyn FnMut()>,
    calls: u32,
    best: f64,
}

impl Case {
    fn new(name: String, [m, k, n]: [usize; 3], run: impl FnMut() + 'static) -> Case {
        let flops = 2.0 * (m * k * n) as f64;
        Case { name, flops, run: Box::new(run), calls: 1, best: 0.0 }
    }

    fn sample(&mut self) -> Duration {
        let begin = Instant::now();
        (0..self.calls).for_each(|_| (self.run)());
        begin.elapsed()
    }

    /// Measures once, and finds out first how many calls a sample takes.
    fn measure(&mut self) {
        while self.best == 0.0 && self.sample() < SAMPLE {
            self.calls *= 2;
        }
        let seconds = self.sample().as_secs_f64() / f64::from(self.calls);
        self.best = self.best.max(self.flops / seconds);
    }
}

fn numbers(n: usize) -> Vec<f32> {
    (0..n).map(|i| ((i * 7919 + 13) % 4099) as f32 / 2048.0 - 1.0).collect()
}

fn view<'a>(x: &'a [f32], rows: usize, columns: usize) -> View<'a> {
    View::from_slice_sized(x, &[rows as i64, columns as i64]).expect("fits")
}

/// A product with weights packed ahead: `copies` of them in rotation.
fn packed(place: &str, [m, k, n]: [usize; 3], copies: usize) -> Case {
    let (a, b) = (numbers(m * k), numbers(k * n));
    let weights: Vec<PackedMatrix> =
        (0..copies).map(|_| PackedMatrix::new(&view(&b, k, n)).expect("packs")).collect();
    let (mut c, mut turn) = (vec![0f32; m * n], 0);
    Case::new(format!("packed, {m}x{k}x{n}, {place}"), [m, k, n], move || {
        turn = (turn + 1) % weights.len();
        let mut out = ViewMut::from_slice_sized(&mut c, &[m as i64, n as i64]).expect("fits");
        packed_product(&view(&a, m, k), &weights[turn], &Epilogue::default(), &mut out)
            .expect("multiplies");
    })
}

/// A product of matrices as they are: B row-major, or transposed as the weight of `linear`.
fn plain([m, k, n]: [usize; 3], transposed: bool) -> Case {
    let (a, b) = (numbers(m * k), numbers(k * n));
    let mut c = vec![0f32; m * n];
    let name = if transposed { "transposed" } else { "row-major" };
    Case::new(format!("{name}, {m}x{k}x{n}"), [m, k, n], move || {
        let b = match transposed {
            true => view(&b, n, k).permute(&[1, 0]).expect("permutes"),
            false => view(&b, k, n),
        };
        let mut out = ViewMut::from_slice_sized(&mut c, &[m as i64, n as i64]).expect("fits");
        product(&view(&a, m, k), &b, &Epilogue::default(), &mut out).expect("multiplies");
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
    let mut cases: Vec<Case> = cases().into_iter().filter(is_asked).collect();
    let threads = num_threads();
    let mut best = 0f64;
    for _ in 0..ROUNDS {
        for case in &mut cases {
            best = best.max(peak(threads));
            case.measure();
        }
    }
    println!("peak of {threads} threads: {:.0} GFLOP/s\n", best / 1e9);
    println!("| product | GFLOP/s | of the peak |\n|---|--:|--:|");
    for c in &cases {
        println!("| {} | {:.0} | {:.0} % |", c.name, c.best / 1e9, 100.0 * c.best / best);
    }
}
