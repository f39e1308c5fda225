//! What a compiled function costs beside its run: the look-up of the program that serves a call.
//! `cargo bench -p maquette-benches --bench guards`.
//!
//! A look-up flattens the inputs and evaluates the guards of the program that served the last call,
//! as every call does. A figure is the least of many samples, since everything else only adds. The
//! last rows are whole calls that write thousands of inputs, which must not be quadratic.

use maquette::prelude::*;
use std::hint::black_box;
use std::time::Instant;

type Inputs = (Tensor, Tensor, Tensor, Tensor);

const SAMPLES: usize = 200;
const CALLS: usize = 2_000;

/// The least time of one call of `f`, in nanoseconds.
fn nanoseconds(f: impl FnMut()) -> f64 {
    nanoseconds_of(CALLS, f)
}

/// As [`nanoseconds`], with so many calls in each sample.
fn nanoseconds_of(calls: usize, mut f: impl FnMut()) -> f64 {
    let mut least = f64::INFINITY;
    for _ in 0..SAMPLES {
        let start = Instant::now();
        (0..calls).for_each(|_| f());
        least = least.min(start.elapsed().as_secs_f64());
    }
    least * 1e9 / calls as f64
}

fn add_ones(xs: Vec<Tensor>) -> Vec<Tensor> {
    for x in &xs {
        x.add_(1.0);
    }
    Vec::new()
}

/// The time of a call that writes `n` inputs, in nanoseconds.
fn written(n: usize) -> Result<f64> {
    let f = compile(add_ones);
    let xs: Vec<Tensor> = (0..n).map(|_| Tensor::ones([8], DType::F32)).collect();
    f.call(xs.clone())?;
    let time = nanoseconds_of(1, || {
        let _written = black_box(f.call(xs.clone()));
    });
    println!("{:<40} {time:>8.0} ns", format!("a call that writes {n} inputs"));
    Ok(time)
}

fn inputs(rows: i64) -> Inputs {
    let (x, y) = (Tensor::ones([rows, 8], DType::F32), Tensor::ones([rows, 8], DType::F32));
    (x, y, Tensor::ones([8, 8], DType::F32), Tensor::ones([8], DType::F32))
}

fn model((x, y, w, b): Inputs) -> Tensor {
    (x + y).linear(&w, Some(&b))
}

fn updates((x, y, w, b): Inputs) -> Tensor {
    x.add_(&y);
    x.linear(&w, Some(&b))
}

fn branches((x, y, w, b): Inputs) -> Result<Tensor> {
    let small = x.size(0).lt(1 << 20).guard()?;
    Ok(if small { model((x, y, w, b)) } else { x })
}

fn report(name: &str, f: &dyn Fn(&Inputs) -> Result<bool>, inputs: &Inputs) -> Result<()> {
    ensure!(f(inputs)?, "no program serves the inputs");
    let time = nanoseconds(|| {
        let _served = black_box(f(black_box(inputs)));
    });
    println!("{name:<40} {time:>8.0} ns");
    Ok(())
}

fn main() -> Result<()> {
    println!("the look-up of a program for 4 inputs");
    let f = compile(model);
    f.call(inputs(4))?;
    report("static sizes", &|x| f.matches(x), &inputs(4))?;
    f.call(inputs(5))?;
    report("symbolic sizes", &|x| f.matches(x), &inputs(7))?;
    let f = CompileOptions::symbolic().compile(model);
    f.call(inputs(4))?;
    report("every size symbolic", &|x| f.matches(x), &inputs(7))?;
    let f = CompileOptions::symbolic().compile(branches);
    f.call(inputs(4))?;
    report("every size symbolic, and a branch", &|x| f.matches(x), &inputs(7))?;
    let f = compile(updates);
    f.call(inputs(4))?;
    report("static sizes, an input written", &|x| f.matches(x), &inputs(4))?;
    let f = CompileOptions::new().static_(0, 0).static_(1, 0).compile(model);
    for rows in 1..=8 {
        f.call(inputs(rows))?;
    }
    report("the last of 8 programs, tried first", &|x| f.matches(x), &inputs(8))?;
    let (first, last) = (inputs(1), inputs(8));
    let pair = nanoseconds(|| {
        let _served = black_box((f.matches(&first), f.matches(&last)));
    });
    println!("{:<40} {:>8.0} ns", "two of 8 programs in turn, each", pair / 2.0);
    let (few, many) = (written(1000)?, written(4000)?);
    println!("{:<40} {:>8.1}", "the ratio of the two", many / few);
    Ok(())
}
