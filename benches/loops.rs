//! The generic executor of loop nests beside the kernels that are written by hand.
//! `cargo bench -p maquette-benches --bench loops [NAME…]`.
//!
//! Each case runs a kernel and the same computation as a nest in turn, on the same operands, and
//! compares their bytes first. A figure is the best of all rounds.

use maquette::ir::Scalar;
use maquette::ir::loops::LoopNest;
use maquette_kernels::{LayerNorm, LoopKernel, ReduceOp, View, ViewMut};
use std::hint::black_box;
use std::time::{Duration, Instant};

const ROUNDS: usize = 40;
/// The time that a sample takes at least.
const SAMPLE: Duration = Duration::from_micros(400);

/// Parses a nest whose text has the names `ROWS` and `COLUMNS`.
fn nest(text: &str, [rows, columns]: [usize; 2]) -> LoopNest {
    let text = text.replace("ROWS", &rows.to_string()).replace("COLUMNS", &columns.to_string());
    LoopNest::parse(&text).unwrap_or_else(|e| panic!("{e}"))
}

/// Softmax over the rows of `x * s + m`, or of `x`.
fn softmax(sizes: [usize; 2], scaled: bool) -> LoopNest {
    let head = match scaled {
        false => {
            "loops (a0: f32[ROWS, COLUMNS]) -> (t4)
  axes i0 < ROWS, i1 < COLUMNS
{
"
        }
        true => {
            "loops (a0: f32[ROWS, COLUMNS], a1: f32[COLUMNS]) -> (t5)
  launch c0: f32
  axes i0 < ROWS, i1 < COLUMNS
{
  t0[i0, i1] = map {
    r0: f32 = load a0[i0, i1]
    r1: f32 = launch c0
    r2: f32 = mul r0, r1
    r3: f32 = load a1[i1]
    r4: f32 = add r2, r3
    return r4
  }
"
        }
    };
    // the stages of a softmax, by the names of their results
    let stages = "  MAX[i0] = reduce max lanes over [i0, i1] {
    r0: f32 = load X[i0, i1]
    return r0
  }
  EXP[i0, i1] = map {
    r0: f32 = load X[i0, i1]
    r1: f32 = load MAX[i0]
    r2: f32 = sub r0, r1
    r3: f32 = exp r2
    return r3
  }
  SUM[i0] = reduce sum lanes over [i0, i1] {
    r0: f32 = load EXP[i0, i1]
    return r0
  }
  SCALE[i0] = map {
    r0: f32 = load SUM[i0]
    r1: f32 = reciprocal r0
    return r1
  }
  OUT[i0, i1] = map {
    r0: f32 = load EXP[i0, i1]
    r1: f32 = load SCALE[i0]
    r2: f32 = mul r0, r1
    return r2
  }
}
";
    let mut text = format!("{head}{stages}");
    let x = if scaled { "t0" } else { "a0" };
    text = text.replace("X[", &format!("{x}[")).replace(&format!("MA{x}["), "MAX[");
    for (i, name) in ["MAX", "EXP", "SUM", "SCALE", "OUT"].iter().enumerate() {
        text = text.replace(&format!("{name}["), &format!("t{}[", i + usize::from(scaled)));
    }
    nest(&text, sizes)
}

/// Layer normalization of rows, with weight and bias.
const LAYER_NORM: &str = "
loops (a0: f32[ROWS, COLUMNS], a1: f32[COLUMNS], a2: f32[COLUMNS]) -> (t2)
  axes i0 < ROWS, i1 < COLUMNS
{
  t0[i0] = reduce moments lanes over [i0, i1] {
    r0: f32 = load a0[i0, i1]
    return r0
  }
  t1[i0] = map {
    r0: f32 = load t0:1[i0]
    r1: f32 = const COLUMNS.0
    r2: f32 = div r0, r1
    r3: f32 = const 1e-5
    r4: f32 = add r2, r3
    r5: f32 = sqrt r4
    r6: f32 = reciprocal r5
    return r6
  }
  t2[i0, i1] = map {
    r0: f32 = load a0[i0, i1]
    r1: f32 = load t0[i0]
    r2: f32 = sub r0, r1
    r3: f32 = load t1[i0]
    r4: f32 = mul r2, r3
    r5: f32 = load a1[i1]
    r6: f32 = mul r4, r5
    r7: f32 = load a2[i1]
    r8: f32 = add r6, r7
    return r8
  }
}
";

/// A fold of rows.
const FOLD: &str = "
loops (a0: f32[ROWS, COLUMNS]) -> (t0)
  axes i0 < ROWS, i1 < COLUMNS
{
  t0[i0] = reduce FOLD lanes over [i0, i1] {
    r0: f32 = load a0[i0, i1]
    return r0
  }
}
";

fn numbers(n: usize) -> Vec<f32> {
    (0..n).map(|i| ((i * 7919 + 13) % 4099) as f32 / 512.0 - 4.0).collect()
}

fn view<'a, const R: usize>(x: &'a [f32], sizes: [usize; R]) -> View<'a> {
    View::from_slice_sized(x, &sizes.map(|s| s as i64)).expect("fits")
}

/// The least seconds of a call of each function, which run in turn.
fn race(functions: &mut [Box<dyn FnMut() + '_>]) -> Vec<f64> {
    let mut calls = Vec::new();
    for f in functions.iter_mut() {
        let mut n = 1u32;
        loop {
            let begin = Instant::now();
            (0..n).for_each(|_| f());
            if begin.elapsed() > SAMPLE || n > 1 << 20 {
                break;
            }
            n *= 2;
        }
        calls.push(n);
    }
    let mut best = vec![f64::INFINITY; functions.len()];
    for _ in 0..ROUNDS {
        for ((f, n), best) in functions.iter_mut().zip(&calls).zip(&mut best) {
            let begin = Instant::now();
            (0..*n).for_each(|_| f());
            *best = best.min(begin.elapsed().as_secs_f64() / f64::from(*n));
        }
    }
    best
}

/// Compares a nest with a kernel. `operands` and `out` have the rows and columns of the case.
fn compare(
    name: &str,
    nest: LoopNest,
    operands: &[View<'_>],
    numbers: &[Scalar],
    out: &[usize],
    kernel: &mut dyn FnMut(&mut ViewMut<'_>),
) {
    let loops = LoopKernel::new(nest);
    let sizes: Vec<i64> = out.iter().map(|s| *s as i64).collect();
    let n = out.iter().product();
    let (mut y, mut z) = (vec![0.0f32; n], vec![0.0f32; n]);
    let best = race(&mut [
        Box::new(|| kernel(&mut ViewMut::from_slice_sized(&mut y, &sizes).expect("fits"))),
        Box::new(|| {
            let z = ViewMut::from_slice_sized(&mut z, &sizes).expect("fits");
            loops.run(&|_| None, black_box(operands), numbers, &mut [z]).expect("runs");
        }),
    ]);
    if numbers.is_empty() {
        assert_eq!(y, z, "{name}: the bytes differ");
    }
    let [first, second] = best[..] else { return };
    println!("| {name} | {:.2} | {:.2} | {:.2} |", first * 1e6, second * 1e6, second / first);
}

fn main() {
    // what `cargo bench` passes on
    let asked: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with("--")).collect();
    let is_asked = |name: &str| asked.is_empty() || asked.iter().any(|a| name.contains(a.as_str()));
    println!("| case | kernel µs | nest µs | ratio |\n|---|--:|--:|--:|");
    for columns in [4, 32, 128, 1024, 4096] {
        for rows in [1, 16, 128, 4096] {
            let sizes = [rows, columns];
            let name = |what: &str| format!("{what}, {rows}x{columns}");
            let [soft, scaled] = [name("softmax"), name("softmax of x * s + m beside that of x")];
            let [norm, sum, max] = ["layer norm", "sum of rows", "max of rows"].map(name);
            if ![&soft, &scaled, &norm, &sum, &max].iter().any(|name| is_asked(name)) {
                continue;
            }
            let (x, w, b) = (numbers(rows * columns), numbers(columns), numbers(columns));
            let (x, w, b) = (view(&x, sizes), view(&w, [columns]), view(&b, [columns]));
            if is_asked(&soft) {
                let run = &mut |y: &mut ViewMut<'_>| {
                    maquette_kernels::softmax(black_box(&x), 1, y).expect("runs");
                };
                compare(&soft, softmax(sizes, false), std::slice::from_ref(&x), &[], &sizes, run);
            }
            if is_asked(&scaled) && rows == 128 {
                let alone = LoopKernel::new(softmax(sizes, false));
                let run = &mut |y: &mut ViewMut<'_>| {
                    let operands = [x.clone()];
                    alone.run(&|_| None, &operands, &[], &mut [y.reborrow()]).expect("runs");
                };
                let operands = [x.clone(), w.clone()];
                let nest = softmax(sizes, true);
                compare(&scaled, nest, &operands, &[0.5f32.into()], &sizes, run);
            }
            if is_asked(&norm) {
                let run = &mut |y: &mut ViewMut<'_>| {
                    let (weight, bias) = (Some(&w), Some(&b));
                    let with = LayerNorm { weight, bias, mean: None, rstd: None };
                    maquette_kernels::layer_norm(black_box(&x), 1, 1e-5, with, y).expect("runs");
                };
                let operands = [x.clone(), w.clone(), b.clone()];
                compare(&norm, nest(LAYER_NORM, sizes), &operands, &[], &sizes, run);
            }
            for (name, fold, op) in [(&sum, "sum", ReduceOp::Sum), (&max, "max", ReduceOp::Max)] {
                if is_asked(name) {
                    let run = &mut |y: &mut ViewMut<'_>| {
                        maquette_kernels::reduce(op, black_box(&x), &[1], y).expect("runs");
                    };
                    let nest = nest(&FOLD.replace("FOLD", fold), sizes);
                    compare(name, nest, std::slice::from_ref(&x), &[], &[rows], run);
                }
            }
        }
    }
}
