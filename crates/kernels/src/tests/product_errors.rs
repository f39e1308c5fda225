//! Errors of products of `f32` against `f64`, beside those of other orders of summation.

use super::{view, view_mut};
use crate::gemm;

/// The products of one length whose errors are averaged.
const SAMPLES: usize = 64;

/// Deterministic numbers from `low` to 1.
fn numbers(n: usize, low: f32, seed: u64) -> Vec<f32> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        low + (1.0 - low) * ((state >> 40) as f32 / (1u64 << 24) as f32)
    };
    (0..n).map(|_| next()).collect()
}

/// One chain of fused multiply-adds for each block of `block`, added in order: what libraries that
/// block `k` for the cache compute.
fn blocked(a: &[f32], b: &[f32], block: usize) -> f32 {
    let chain =
        |(a, b): (&[f32], &[f32])| a.iter().zip(b).fold(0f32, |sum, (x, y)| x.mul_add(*y, sum));
    a.chunks(block).zip(b.chunks(block)).map(chain).fold(0.0, |sum, x| sum + x)
}

/// Halves, down to chains of 8.
fn pairwise(a: &[f32], b: &[f32]) -> f32 {
    if a.len() <= 8 {
        return blocked(a, b, 8);
    }
    let half = (a.len() / 2).next_multiple_of(8);
    pairwise(&a[..half], &b[..half]) + pairwise(&a[half..], &b[half..])
}

fn product(a: &[f32], b: &[f32]) -> f32 {
    let (k, mut c) = (a.len() as i64, [0f32]);
    gemm(&view(a, &[1, k]), &view(b, &[k, 1]), &mut view_mut(&mut c, &[1, 1]), 1.0, 0.0)
        .expect("multiplies");
    c[0]
}

/// The root of the mean square of relative errors. The error of a sum is relative to the sum of
/// magnitudes.
fn error(k: usize, low: f32, sum: impl Fn(&[f32], &[f32]) -> f32) -> f64 {
    let squares = (0..SAMPLES as u64).map(|seed| {
        let (a, b) = (numbers(k, low, 2 * seed + 1), numbers(k, low, 2 * seed + 2));
        let pairs = || a.iter().zip(&b).map(|(x, y)| f64::from(*x) * f64::from(*y));
        let exact: f64 = pairs().sum();
        ((f64::from(sum(&a, &b)) - exact) / pairs().map(f64::abs).sum::<f64>()).powi(2)
    });
    (squares.sum::<f64>() / SAMPLES as f64).sqrt()
}

/// The errors are printed with `--nocapture`: those of the product; of one chain over all of `k`;
/// of chains of 256; of halves.
#[test]
fn errors_of_long_products_stay_small() {
    for low in [-1.0, 0.0] {
        for k in [64, 512, 4096, 1 << 15, 1 << 18, 1 << 20] {
            let found = error(k, low, product);
            let chain = error(k, low, |a, b| blocked(a, b, k));
            let in_blocks = error(k, low, |a, b| blocked(a, b, 256));
            let halves = error(k, low, pairwise);
            println!(
                "from {low}, k = {k}: {found:.1e}, chain {chain:.1e}, blocks {in_blocks:.1e}, \
                 halves {halves:.1e}"
            );
            assert!(found <= 1.01 * chain, "from {low}, k = {k}: {found:e}, chain {chain:e}");
            // A chain of 512 rounds more often than two of 256.
            assert!(found <= 3.0 * in_blocks, "from {low}, k = {k}: {found:e} and {in_blocks:e}");
            let is_long = k > 1 << 15;
            assert!(!is_long || found <= in_blocks, "from {low}, k = {k}: {found:e}");
            assert!(found <= 5e-6, "from {low}, k = {k}: {found:e}");
        }
    }
}
