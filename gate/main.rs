//! Measurements of the gate.
mod nests;

use maquette_kernels::loops::{
    CompiledKernel, InterpretedSoftmaxStages, Launch, LoopNest, Place, Tuning, compile,
};
use maquette_kernels::{Isa, View, ViewMut, limit_threads};
use std::hint::black_box;
use std::time::{Duration, Instant};

const COLS: [usize; 7] = [7, 32, 128, 384, 1000, 1024, 4096];
const ROWS: [usize; 4] = [1, 12, 128, 1024];

struct Rng(u64);
impl Rng {
    fn next(&mut self) -> f32 {
        let mut s = 0.0;
        for _ in 0..4 {
            self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            s += (self.0 >> 40) as f32 / (1u64 << 24) as f32 - 0.5;
        }
        s * 3.0
    }
    fn vec(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| self.next()).collect()
    }
}

fn today(x: &[f32], y: &mut [f32], r: usize, c: usize) {
    let sizes = [r as i64, c as i64];
    let strides = [c as i64, 1];
    // SAFETY: the slices hold the elements.
    unsafe {
        let x = View::from_raw(x.as_ptr().cast(), maquette_ir::DType::F32, &sizes, &strides);
        let mut y =
            ViewMut::from_raw(y.as_mut_ptr().cast(), maquette_ir::DType::F32, &sizes, &strides);
        maquette_kernels::softmax(&x, 1, &mut y).unwrap();
    }
}

fn place(x: &[f32], row: usize) -> Place {
    Place { ptr: x.as_ptr().cast_mut(), row }
}

fn nest_run(k: &CompiledKernel, ops: &[Place], scalars: &[f32], y: &mut [f32], r: usize, c: usize) {
    let results = [Place { ptr: y.as_mut_ptr(), row: c }];
    let l =
        Launch { rows: r, cols: c, operands: ops, results: &results, scalars, overlap: false };
    // SAFETY: the slices hold the elements.
    unsafe { k.run(&l).unwrap() }
}

/// A buffer at a given offset in its page, as a tensor's is (a cache line).
struct Buffer {
    _memory: Vec<f32>,
    ptr: *mut f32,
    n: usize,
}
impl Buffer {
    fn new(n: usize, offset: usize) -> Buffer {
        let mut memory = vec![0.0f32; n + 2048 + 64];
        let at = memory.as_ptr() as usize;
        let want = at.next_multiple_of(4096) + offset;
        let ptr = memory.as_mut_ptr().wrapping_byte_add(want - at);
        Buffer { _memory: memory, ptr, n }
    }
    fn of(x: &[f32], offset: usize) -> Buffer {
        let b = Buffer::new(x.len(), offset);
        b.get().copy_from_slice(x);
        b
    }
    #[allow(clippy::mut_from_ref)]
    fn get(&self) -> &mut [f32] {
        // SAFETY: the memory is the buffer's; the program is single-threaded here.
        unsafe { std::slice::from_raw_parts_mut(self.ptr, self.n) }
    }
}
/// The page offset of results, relative to that of operands.
fn offset() -> usize {
    std::env::var("OFFSET").ok().and_then(|s| s.parse().ok()).unwrap_or(2048)
}

type Case<'a> = (&'a str, Box<dyn FnMut() + 'a>);

/// The least seconds a call of each case, interleaved.
fn race(cases: &mut [Case<'_>], rounds: usize) -> Vec<f64> {
    let mut calls = Vec::new();
    for (_, f) in cases.iter_mut() {
        let mut n = 1u32;
        loop {
            let t = Instant::now();
            (0..n).for_each(|_| f());
            if t.elapsed() > Duration::from_micros(150) || n > 1 << 20 {
                break;
            }
            n *= 2;
        }
        calls.push(n);
    }
    let mut best = vec![f64::INFINITY; cases.len()];
    for round in 0..rounds {
        for k in 0..cases.len() {
            let k = (k + round) % cases.len();
            let t = Instant::now();
            (0..calls[k]).for_each(|_| (cases[k].1)());
            best[k] = best[k].min(t.elapsed().as_secs_f64() / f64::from(calls[k]));
        }
    }
    best
}

fn bits(a: &[f32]) -> Vec<u32> {
    a.iter().map(|x| x.to_bits()).collect()
}

fn make(nest: &LoopNest, t: Tuning) -> CompiledKernel {
    compile(nest, Isa::detect(), t).expect("compiles")
}

fn tunings() -> Vec<(String, Tuning)> {
    let d = Tuning::default();
    let none = Tuning { join_maps: false, join_folds: false, short: 0, ..d };
    let mut out = vec![
        ("steps, row".into(), Tuning { panel: 1, ..none }),
        ("steps, panel".into(), none),
        ("steps t128".into(), Tuning { tile: 128, ..none }),
        ("steps t256".into(), Tuning { tile: 256, ..none }),
        ("+folds".into(), Tuning { join_folds: true, ..none }),
        ("+folds t256".into(), Tuning { join_folds: true, tile: 256, ..none }),
        ("+maps".into(), Tuning { join_folds: true, join_maps: true, ..none }),
        ("+short".into(), d),
    ];
    for (n, t) in [("p1", 1), ("p4096", 4096), ("p1024", 1024)] {
        out.push((n.into(), Tuning { panel: t, ..d }));
    }
    out.push(("own scratch".into(), Tuning { result_as_scratch: false, ..d }));
    out
}

fn explore(rounds: usize) {
    let nest = nests::softmax();
    let naive = InterpretedSoftmaxStages::new(&nest).unwrap();
    let ks: Vec<(String, CompiledKernel)> =
        tunings().into_iter().map(|(n, t)| (n, make(&nest, t))).collect();
    print!("R C today_us naive");
    ks.iter().for_each(|(n, _)| print!(" |{n}"));
    println!();
    for c in COLS {
        for r in [1, 12, 128] {
            let x = Buffer::of(&Rng(7).vec(r * c), 0);
            let y = Buffer::new(r * c, offset());
            let (ops, naive) = ([place(x.get(), c)], &naive);
            let (x, y) = (&x, &y);
            let mut cases: Vec<Case<'_>> =
                vec![("today", Box::new(|| today(black_box(x.get()), y.get(), r, c)))];
            cases.push((
                "naive",
                Box::new(move || {
                    let results = [Place { ptr: y.ptr, row: c }];
                    let l = Launch {
                        rows: r, cols: c, operands: &ops, results: &results, scalars: &[],
                        overlap: false,
                    };
                    unsafe { naive.run(&l) }
                }),
            ));
            for (n, k) in &ks {
                cases.push((n, Box::new(move || nest_run(k, &ops, &[], y.get(), r, c))));
            }
            let mut want = Vec::new();
            for (n, f) in cases.iter_mut() {
                f();
                if want.is_empty() { want = bits(y.get()) }
                if bits(y.get()) != want { println!("  DIFFERS: {n}") }
            }
            let best = race(&mut cases, rounds);
            print!("{r:5} {c:5} {:9.3}", best[0] * 1e6);
            best[1..].iter().for_each(|b| print!(" {:5.2}", b / best[0]));
            println!();
        }
    }
}

/// Item 1: plain softmax against today's, with final tuning.
fn plain(rounds: usize, t: Tuning) -> (f64, f64) {
    let k = make(&nests::softmax(), t);
    let (mut worst, mut sum, mut count) = (0.0f64, 0.0, 0);
    for c in COLS {
        for r in ROWS {
            let x = Buffer::of(&Rng(11).vec(r * c), 0);
            let y = Buffer::new(r * c, offset());
            let best = race(
                &mut [
                    ("today", Box::new(|| today(black_box(x.get()), y.get(), r, c))),
                    ("nest", Box::new(|| nest_run(&k, &[place(black_box(x.get()), c)], &[], y.get(), r, c))),
                ],
                rounds,
            );
            let q = best[1] / best[0];
            today(x.get(), y.get(), r, c);
            let want = bits(y.get());
            nest_run(&k, &[place(x.get(), c)], &[], y.get(), r, c);
            let same = want == bits(y.get());
            println!(
                "| {c} | {r} | {:.3} | {:.3} | {q:.3} | {} |",
                best[0] * 1e6, best[1] * 1e6, if same { "equal" } else { "DIFFER" }
            );
            worst = worst.max(q);
            sum += q.ln();
            count += 1;
        }
    }
    (worst, (sum / f64::from(count)).exp())
}

/// Item 2: the fused nest against eager `x * s + m` and softmax.
fn fused(rounds: usize, t: Tuning) {
    use maquette_ops::Tensor;
    let plain = make(&nests::softmax(), t);
    for full in [false, true] {
        let k = make(&nests::scaled_softmax(full), t);
        println!("\nmask {}", if full { "[R, C]" } else { "[C]" });
        for c in COLS {
            for r in ROWS {
                let mut rng = Rng(13);
                let x = rng.vec(r * c);
                let m = rng.vec(if full { r * c } else { c });
                let s = 0.125f32;
                let tx = Tensor::from_vec(x.clone(), [r as i64, c as i64]);
                let shape: Vec<i64> = if full { vec![r as i64, c as i64] } else { vec![c as i64] };
                let tm = Tensor::from_vec(m.clone(), shape);
                let eager = || (&tx * f64::from(s) + &tm).softmax(1);
                let mut z = vec![0.0; r * c];
                let (mut u, mut v) = (vec![0.0; r * c], vec![0.0; r * c]);
                let ops = [place(&x, c), place(&m, if full { c } else { 0 })];
                let _ = (&mut u, &mut v);
                let best = race(
                    &mut [
                        ("eager", Box::new(|| drop(black_box(eager())))),
                        ("nest", Box::new(|| nest_run(&k, &ops, &[s], &mut z, r, c))),
                        ("plain", Box::new(|| nest_run(&plain, &ops[..1], &[], &mut u, r, c))),
                    ],
                    rounds,
                );
                let want: Vec<f32> = eager().to_vec::<f32>().unwrap();
                let same = bits(&want) == bits(&z);
                println!(
                    "| {c} | {r} | {:.3} | {:.3} | {:.2} | {:.2} | {} |",
                    best[0] * 1e6, best[1] * 1e6, best[0] / best[1], best[1] / best[2],
                    if same { "equal" } else { "DIFFER" }
                );
            }
        }
    }
}

/// Item 3: calls on 4 elements.
fn small(rounds: usize, t: Tuning) {
    use maquette_ops::Tensor;
    use maquette_ops::aten::softmax::loops_path;
    use std::cell::RefCell;
    use std::rc::Rc;
    use std::sync::atomic::Ordering;
    type Key = smallvec::SmallVec<[u64; 12]>;
    thread_local! {
        static TABLE: RefCell<rustc_hash::FxHashMap<Key, Rc<CompiledKernel>>> = RefCell::default();
    }
    let key = |op: u64, tensors: &[&[i64]]| {
        let mut k = Key::new();
        k.push(op);
        tensors.iter().for_each(|s| k.push((s.len() as u64) << 8 | 1));
        k
    };
    TABLE.with_borrow_mut(|t2| {
        t2.insert(key(1, &[&[4], &[4], &[4]]), Rc::new(make(&nests::add(), t)));
        t2.insert(key(2, &[&[4], &[4]]), Rc::new(make(&nests::softmax(), t)));
        // Other entries, as in a program.
        for i in 3..200 {
            t2.insert(key(i, &[&[4], &[4]]), Rc::new(make(&nests::softmax(), t)));
        }
    });
    let (x, m) = (vec![0.5f32, 1.0, -2.0, 0.25], vec![1.0f32; 4]);
    let (mut y, mut z, mut w, mut q) = (vec![0.0f32; 4], vec![0.0f32; 4], vec![0.0f32; 4], vec![0.0f32; 4]);
    let cached = |op: u64, ops: &[&[f32]], y: &mut [f32]| {
        let sizes = [4i64];
        let shapes: smallvec::SmallVec<[&[i64]; 4]> =
            (0..=ops.len()).map(|_| black_box(&sizes[..])).collect();
        let k = TABLE.with_borrow(|t| t.get(&key(black_box(op), &shapes)).cloned()).unwrap();
        let places: smallvec::SmallVec<[Place; 4]> = ops.iter().map(|o| place(o, 4)).collect();
        nest_run(&k, &places, &[], y, 1, 4);
    };
    let direct = [make(&nests::add(), t), make(&nests::softmax(), t)];
    let (tx, tm) = (Tensor::from_vec(x.clone(), [4]), Tensor::from_vec(m.clone(), [4]));
    let (t2, m2) = (Tensor::from_vec(x.clone(), [4]), Tensor::from_vec(m.clone(), [4]));
    let best = race(
        &mut [
            ("eager add, today", Box::new(|| drop(black_box(&tx + &tm)))),
            ("add: lookup, fill, run", Box::new(|| cached(1, &[&x, &m], &mut y))),
            ("add: run alone", Box::new(|| nest_run(&direct[0], &[place(&x, 4), place(&m, 4)], &[], &mut z, 1, 4))),
            ("eager softmax, today", Box::new(|| drop(black_box(t2.softmax(0))))),
            (
                "eager softmax, through the nest",
                Box::new(|| {
                    loops_path::ON.store(true, Ordering::Relaxed);
                    drop(black_box(m2.softmax(0)));
                    loops_path::ON.store(false, Ordering::Relaxed);
                }),
            ),
            ("softmax kernel, today", Box::new(|| today(black_box(&x), &mut w, 1, 4))),
            ("softmax: lookup, fill, run", Box::new(|| cached(2, &[&x], &mut q))),
        ],
        rounds,
    );
    for (n, b) in ["eager add, today", "add: lookup, fill, run", "add: run alone", "eager softmax, today",
        "eager softmax, through the nest", "softmax kernel, today", "softmax: lookup, fill, run"].iter().zip(best) {
        println!("| {n} | {:.0} ns |", b * 1e9);
    }
}

/// Random rows with special values, every instruction set and tuning, one and two threads.
fn check() {
    let mut rng = Rng(3);
    let (mut cases, mut nan_only, mut bad) = (0u64, 0u64, 0u64);
    let specials = [f32::NEG_INFINITY, f32::INFINITY, f32::NAN, -f32::NAN, -0.0, 0.0, 1e38, -1e38, 1e-40, 88.0];
    for c in (1..=70).chain([96, 127, 128, 384, 1000, 1023, 1024, 1025, 2047, 2048, 2049, 4096, 4100, 6145, 10000]) {
        for r in [1usize, 2, 5, 13, 70] {
            for special in [false, true] {
                let mut x = rng.vec(r * c);
                if special {
                    for i in 0..(r * c / 5 + 1) {
                        let at = (i * 7919 + c) % (r * c);
                        x[at] = specials[(i * 31 + r) % specials.len()];
                    }
                }
                limit_threads(2);
                let mut want = vec![0.0; r * c];
                today(&x, &mut want, r, c);
                for isa in [Isa::Scalar, Isa::Avx2, Isa::Avx512] {
                    for (name, t) in tunings() {
                        for threads in [1, 2] {
                            limit_threads(threads);
                            let k = compile(&nests::softmax(), isa, t).unwrap();
                            let mut y = vec![0.0; r * c];
                            nest_run(&k, &[place(&x, c)], &[], &mut y, r, c);
                            cases += 1;
                            let diff: Vec<usize> =
                                (0..r * c).filter(|i| y[*i].to_bits() != want[*i].to_bits()).collect();
                            if !diff.is_empty() {
                                let nans = diff.iter().all(|i| y[*i].is_nan() && want[*i].is_nan());
                                if nans { nan_only += 1 } else {
                                    bad += 1;
                                    if bad < 10 {
                                        let i = diff[0];
                                        println!("{name} {isa:?} {r}x{c} at {i}: {} want {}", y[i], want[i]);
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
    println!("{cases} cases: {bad} differ in values, {nan_only} in the bits of NaNs only");
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let rounds = args.get(2).and_then(|s| s.parse().ok()).unwrap_or(30);
    let t = Tuning::default();
    match args.get(1).map(String::as_str) {
        Some("explore") => {
            limit_threads(1);
            explore(rounds);
        }
        Some("plain") => {
            for threads in [1, 2] {
                limit_threads(threads);
                println!("\n{threads} thread(s)\n| C | R | today µs | nest µs | ratio | bits |");
                let (worst, mean) = plain(rounds, t);
                println!("worst {worst:.3}, geometric mean {mean:.3}");
            }
        }
        Some("fused") => {
            for threads in [1, 2] {
                limit_threads(threads);
                println!("\n{threads} thread(s)\n| C | R | eager µs | nest µs | speed-up | nest / plain nest | bits |");
                fused(rounds, t);
            }
        }
        Some("small") => small(rounds, t),
        Some("check") => check(),
        Some("one") => {
            // For a profiler: softmax of 128 x C, over and over.
            let c: usize = args[3].parse().unwrap();
            limit_threads(1);
            let k = make(&nests::softmax(), t);
            let x = Rng(1).vec(128 * c);
            let mut y = vec![0.0; 128 * c];
            for _ in 0..rounds {
                match args[4].as_str() {
                    "today" => today(black_box(&x), &mut y, 128, c),
                    _ => nest_run(&k, &[place(black_box(&x), c)], &[], &mut y, 128, c),
                }
            }
        }
        Some("cuda") => {
            let mut all: Vec<(u32, u32, bool)> = Vec::new();
            for v in [true, false] {
                all.extend([1, 2, 4, 8].map(|n| (32, n, v)));
                all.extend([2, 4, 8, 16].map(|n| (256, n, v)));
            }
            let which = args.get(3).map_or("mask_row", String::as_str);
            let nest = match which {
                "softmax" => nests::softmax(),
                "mask_full" => nests::scaled_softmax(true),
                _ => nests::scaled_softmax(false),
            };
            println!("{}", maquette_kernels::loops::cuda::print(&nest, which, &all).unwrap());
        }
        _ => println!("{}", nests::scaled_softmax(false).print()),
    }
}
