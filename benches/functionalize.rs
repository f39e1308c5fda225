//! What making a program functional costs. `cargo bench --bench functionalize [OPS…]`.
//!
//! The program is a made-up transformer: residuals added in place, one buffer split in three, caches written by rows, a store that nobody sees.

use maquette::library::Facts;
use maquette::prelude::*;
use maquette_rewrite::{Functional, Level, Options, functionalize};
use std::time::Instant;

/// Operators that mutate, in one layer.
const PER_LAYER: usize = 8;

fn layer(h: &Tensor, cache: &Tensor, at: i64) {
    let width = h.size(0).as_i64().unwrap_or(8);
    let fused = h * 3.0;
    let part = width / 4;
    let [q, k, v] = [0, 1, 2].map(|i| fused.slice(0, i * part..(i + 1) * part));
    q.mul_(2.0);
    k.add_(&q);
    let row = cache.select(0, at);
    row.slice(0, 0..part).copy_(&k);
    row.slice(0, part..2 * part).copy_(&v);
    fused.slice(0, 0..part).relu_();
    v.mul_(&k);
    let scratch = h.neg();
    scratch.fill_(0.0);
    h.add_(&fused);
}

fn program(layers: usize) -> Graph {
    let (h, cache) = (Tensor::randn([64i64], DType::F32), Tensor::zeros([16i64, 64], DType::F32));
    let model = |(h, cache): (Tensor, Tensor)| {
        (0..layers).for_each(|l| layer(&h, &cache, l as i64 % 16));
        h
    };
    trace(model, (h, cache)).expect("traces").graph().clone()
}

fn main() {
    let asked: Vec<usize> = std::env::args().skip(1).filter_map(|a| a.parse().ok()).collect();
    let sizes = if asked.is_empty() { vec![1_000, 10_000, 100_000] } else { asked };
    println!("| mutating operators | level | time | operators/s | nodes before, after | terms before, after | rounds | ended by |");
    println!("|---|---|---|---|---|---|---|---|");
    for n in sizes {
        let graph = program(n / PER_LAYER);
        for level in [Level::LiftOnly, Level::Exact] {
            let mut best: Option<(f64, Functional)> = None;
            for _ in 0..3 {
                let begin = Instant::now();
                let f = functionalize(&graph, &Facts, &Options::new().level(level)).expect("is functional");
                let s = begin.elapsed().as_secs_f64();
                if best.as_ref().is_none_or(|(b, _)| s < *b) {
                    best = Some((s, f));
                }
            }
            let Some((s, f)) = best else { continue };
            let (rate, stats) = (n as f64 / s, &f.stats);
            println!(
                "| {n} | {level:?} | {:.2} ms | {:.0} k | {}, {} | {}, {} | {} | {} |",
                s * 1e3,
                rate / 1e3,
                graph.node_count(),
                f.graph.node_count(),
                stats.before,
                stats.after,
                stats.rounds,
                stats.stopped
            );
            if level == Level::Exact {
                let rules: Vec<String> = stats.rules.iter().map(|(name, n)| format!("{name} {n}")).collect();
                println!("\n{}\n", rules.join(", "));
            }
        }
    }
}
