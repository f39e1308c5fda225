#[path = "worker/training.rs"]
mod training;
use maquette::prelude::*;
use std::time::Instant;
type Run = Box<dyn FnMut() -> Result<()>>;
fn normal(sizes: &[i64]) -> Tensor {
    Tensor::randn(sizes.to_vec(), DType::F32)
}
fn weight(sizes: &[i64]) -> Tensor {
    let from: i64 = sizes.iter().skip(1).product();
    normal(sizes) * (1.0 / (from.max(1) as f64).sqrt())
}
fn main() -> Result<()> {
    ops::random::manual_seed(1);
    let which = std::env::args().nth(1).unwrap_or_default();
    if which == "mm" {
        for (m, k, n) in [
            (512, 256, 1024),
            (1024, 512, 256),
            (512, 1024, 256),
            (256, 512, 1024),
            (512, 256, 256),
            (768, 512, 256),
            (64, 784, 512),
            (512, 64, 784),
            (512, 64, 512),
        ] {
            for (ta, tb) in [(false, false), (true, false), (false, true)] {
                let a = if ta { normal(&[k, m]).t() } else { normal(&[m, k]) };
                let b = if tb { normal(&[n, k]).t() } else { normal(&[k, n]) };
                let mut out = Tensor::zeros([m, n], DType::F32);
                let mut best = f64::INFINITY;
                for _ in 0..60 {
                    let s = Instant::now();
                    drop(std::mem::replace(&mut out, a.mm(&b)));
                    best = best.min(s.elapsed().as_secs_f64());
                }
                println!(
                    "{m}x{k}x{n} ta {ta} tb {tb}: {:.1} us {:.0} GFLOP/s",
                    best * 1e6,
                    2e-9 * (m * k * n) as f64 / best
                );
            }
        }
        return Ok(());
    }
    let mut run: Run = if which.starts_with("mlp") {
        training::mlp(64, true)
    } else {
        training::transformer(8, true)
    };
    let mut best = f64::INFINITY;
    for _ in 0..60 {
        let s = Instant::now();
        run()?;
        best = best.min(s.elapsed().as_secs_f64());
    }
    println!("step {:.0} us", best * 1e6);
    Ok(())
}
