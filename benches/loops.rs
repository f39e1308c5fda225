//! The generic executor of loop nests beside the kernels that are written by hand.
//! `cargo bench -p maquette-benches --bench loops [NAME…]`.
//!
//! Each case runs a kernel and the same computation as a nest in turn, on the same operands, and
//! compares their bytes first. A figure is the best of all rounds.

use maquette::ir::loops::LoopNest;
use maquette_kernels::{LoopKernel, View, ViewMut};
use std::hint::black_box;
use std::time::{Duration, Instant};

const ROUNDS: usize = 40;
/// The time that a sample takes at least.
const SAMPLE: Duration = Duration::from_micros(400);

/// Softmax over the rows of `x * s + m`, or of `x`.
fn softmax(rows: usize, columns: usize, scaled: bool) -> LoopNest {
    let (operand, scale, first) = match scaled {
        false => ("", "", "    r0: f32 = load a0[i0, i1]\n    return r0\n"),
        true => (
            ", a1: f32[COLUMNS]",
            "  launch c0: f32\n",
            "    r0: f32 = load a0[i0, i1]\n    r1: f32 = launch c0\n    r2: f32 = mul r0, r1\n    \
                r3: f32 = load a1[i1]\n    r4: f32 = add r2, r3\n    return r4\n",
        ),
    };
    let text = format!(
        "loops (a0: f32[ROWS, COLUMNS]{operand}) -> (t5)\n{scale}  axes i0 < ROWS, i1 < COLUMNS\n{{\n  \
            t0[i0, i1] = map {{\n{first}  }}\n"
    ) + "
  t1[i0] = reduce max lanes over [i0, i1] {
    r0: f32 = load t0[i0, i1]
    return r0
  }
  t2[i0, i1] = map {
    r0: f32 = load t0[i0, i1]
    r1: f32 = load t1[i0]
    r2: f32 = sub r0, r1
    r3: f32 = exp r2
    return r3
  }
  t3[i0] = reduce sum lanes over [i0, i1] {
    r0: f32 = load t2[i0, i1]
    return r0
  }
  t4[i0] = map {
    r0: f32 = load t3[i0]
    r1: f32 = reciprocal r0
    return r1
  }
  t5[i0, i1] = map {
    r0: f32 = load t2[i0, i1]
    r1: f32 = load t4[i0]
    r2: f32 = mul r0, r1
    return r2
  }
}
";
    let text = text.replace("ROWS", &rows.to_string()).replace("COLUMNS", &columns.to_string());
    LoopNest::parse(&text).unwrap_or_else(|e| panic!("{e}"))
}

fn numbers(n: usize) -> Vec<f32> {
    (0..n).map(|i| ((i * 7919 + 13) % 4099) as f32 / 512.0 - 4.0).collect()
}

fn view(x: &[f32], sizes: [usize; 2]) -> View<'_> {
    View::from_slice_sized(x, &sizes.map(|s| s as i64)).expect("fits")
}

fn view_mut(x: &mut [f32], sizes: [usize; 2]) -> ViewMut<'_> {
    ViewMut::from_slice_sized(x, &sizes.map(|s| s as i64)).expect("fits")
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

fn plain(rows: usize, columns: usize) {
    let sizes = [rows, columns];
    let (x, kernel) = (numbers(rows * columns), LoopKernel::new(softmax(rows, columns, false)));
    let (mut y, mut z) = (vec![0.0; x.len()], vec![0.0; x.len()]);
    let best = race(&mut [
        Box::new(|| {
            let mut y = view_mut(&mut y, sizes);
            maquette_kernels::softmax(&view(black_box(&x), sizes), 1, &mut y).expect("runs");
        }),
        Box::new(|| {
            let z = view_mut(&mut z, sizes);
            kernel.run(&|_| None, &[view(black_box(&x), sizes)], &[], &mut [z]).expect("runs");
        }),
    ]);
    assert_eq!(y, z, "the bytes differ");
    row(&format!("softmax, {rows}x{columns}"), &best);
}

fn scaled(rows: usize, columns: usize) {
    let sizes = [rows, columns];
    let (x, m) = (numbers(rows * columns), numbers(columns));
    let (fused, alone) = (softmax(rows, columns, true), softmax(rows, columns, false));
    let (fused, alone) = (LoopKernel::new(fused), LoopKernel::new(alone));
    let (mut y, mut z) = (vec![0.0; x.len()], vec![0.0; x.len()]);
    let best = race(&mut [
        Box::new(|| {
            let y = view_mut(&mut y, sizes);
            alone.run(&|_| None, &[view(black_box(&x), sizes)], &[], &mut [y]).expect("runs");
        }),
        Box::new(|| {
            let operands = [view(black_box(&x), sizes), View::from_slice(&m)];
            let z = view_mut(&mut z, sizes);
            fused.run(&|_| None, &operands, &[0.5f32.into()], &mut [z]).expect("runs");
        }),
    ]);
    row(&format!("softmax of x * s + m beside softmax, {rows}x{columns}"), &best);
}

fn row(name: &str, best: &[f64]) {
    let [first, second] = best else { return };
    println!("| {name} | {:.2} | {:.2} | {:.2} |", first * 1e6, second * 1e6, second / first);
}

fn main() {
    // what `cargo bench` passes on
    let asked: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with("--")).collect();
    let is_asked = |name: &str| asked.is_empty() || asked.iter().any(|a| name.contains(a.as_str()));
    println!("| case | kernel µs | nest µs | ratio |\n|---|--:|--:|--:|");
    if is_asked("softmax") {
        for columns in [4, 7, 32, 128, 384, 1000, 1024, 4096] {
            for rows in [1, 12, 128, 1024] {
                plain(rows, columns);
            }
        }
    }
    if is_asked("scaled") {
        for columns in [32, 384, 1024] {
            scaled(128, columns);
        }
    }
}
