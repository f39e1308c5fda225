//! What making a program functional costs, what each part of it is good for, and whether the same
//! program gives the same graph. `cargo bench -p maquette-benches --bench functionalize [OPS…]`.
//!
//! The program is a made-up transformer: residuals added in place, one buffer split in three,
//! caches written by rows, a store that nobody sees.

use maquette::ir::functional_ops::{CALL, SCATTER};
use maquette::library::Facts;
use maquette::prelude::*;
use maquette_rewrite::{FunctionalGraph, Level, Options, functionalize};
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

/// Stores and loads of one buffer, beside each other.
fn tiles(n: usize) -> Graph {
    let model = |x: Tensor| {
        (0..n as i64).for_each(|i| drop(x.slice(0, i..i + 1).mul_(2.0)));
        (0..n as i64).map(|i| x.slice(0, i..i + 1)).collect::<Vec<_>>()
    };
    trace(model, Tensor::zeros([n as i64], DType::F32)).expect("traces").graph().clone()
}

fn functional(graph: &Graph, options: &Options) -> FunctionalGraph {
    functionalize(graph, &Facts, options).expect("is functional")
}

/// The best of three runs, in seconds.
fn timed(graph: &Graph, options: &Options) -> (f64, FunctionalGraph) {
    let run = || {
        let begin = Instant::now();
        let f = functional(graph, options);
        (begin.elapsed().as_secs_f64(), f)
    };
    let mut best = run();
    for _ in 0..2 {
        let next = run();
        if next.0 < best.0 {
            best = next;
        }
    }
    best
}

/// How many stores there are, operators that mutate, and elements that they copy if nothing is done
/// in place.
fn copies(f: &FunctionalGraph) -> (usize, usize, i64) {
    let elements = |n| {
        let first = f.graph.results(n).first().and_then(|r| r.values().iter().next());
        let ty = first.and_then(|v| f.graph.tensor_type(v));
        ty.map_or(0, |t| t.sizes.iter().filter_map(|e| e.as_i64()).product::<i64>())
    };
    let of = |op: &'static str| f.graph.nodes().filter(move |&n| f.graph.op_name(n) == op);
    (of(SCATTER).count(), of(CALL).count(), of(SCATTER).chain(of(CALL)).map(elements).sum())
}

fn main() {
    let asked: Vec<usize> = std::env::args().skip(1).filter_map(|a| a.parse().ok()).collect();
    let sizes = if asked.is_empty() { vec![1_000, 10_000, 100_000] } else { asked };
    println!(
        "| mutating operators | level | time | operators/s | nodes before, after | lifted nodes, \
            terms | ended by |"
    );
    println!("|---|---|---|---|---|---|---|");
    for &n in &sizes {
        let graph = program(n / PER_LAYER);
        for level in [Level::LiftOnly, Level::Exact] {
            let (s, f) = timed(&graph, &Options::new().level(level));
            let (rate, stats, before) = (n as f64 / s / 1e3, &f.stats, graph.node_count());
            let (after, terms) = (f.graph.node_count(), (stats.before, stats.after));
            println!(
                "| {n} | {level:?} | {:.2} ms | {rate:.0} k | {before}, {after} | {}, {} | {} |",
                s * 1e3,
                terms.0,
                terms.1,
                stats.stopped
            );
        }
    }
    println!(
        "\n| {} mutating operators | stores | operators that mutate | elements copied | time \
            |\n|---|---|---|---|---|",
        sizes[0]
    );
    let graph = program(sizes[0] / PER_LAYER);
    let variants = || Options::new().only(["functional-variant"]);
    let ways = [
        ("lifted", Options::new().level(Level::LiftOnly)),
        ("and operators' twins", variants().disable_forwarding(true)),
        ("and loads that see stores while lifting", variants()),
        ("every rule, stores kept for them", Options::new().disable_forwarding(true)),
        ("everything", Options::new()),
    ];
    for (name, options) in ways {
        let (s, f) = timed(&graph, &options);
        let (stores, mutate, copied) = copies(&f);
        println!("| {name} | {stores} | {mutate} | {copied} | {:.2} ms |", s * 1e3);
    }
    for n in [3_300, 33_000] {
        let (s, f) = timed(&tiles(n), &Options::new());
        println!(
            "\n{n} stores and as many loads of one buffer: {:.1} ms, {} terms",
            s * 1e3,
            f.stats.after
        );
    }
    let graph = program(sizes.last().copied().unwrap_or(1) / PER_LAYER);
    let first = functional(&graph, &Options::new()).graph.to_string();
    let same = std::thread::scope(|s| {
        let threads: Vec<_> = (0..8)
            .map(|_| s.spawn(|| functional(&graph, &Options::new()).graph.to_string() == first))
            .collect();
        threads.into_iter().all(|t| t.join().is_ok_and(|same| same))
    });
    println!("\nthe same {} bytes in 8 threads: {same}", first.len());
}
