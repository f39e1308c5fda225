//! Large programs: what is done grows as the program does, counted in steps and never in time, and
//! the same program gives the same graph.

use maquette_aten as _;
use maquette_ir::DType::F32;
use maquette_ir::graph::Graph;
use maquette_ops::Tensor;
use maquette_ops::library::Facts;
use maquette_rewrite::{FunctionalGraph, Options, functionalize, plan};
use maquette_trace::trace;

fn functional(graph: &Graph) -> FunctionalGraph {
    functionalize(graph, &Facts, &Options::new()).unwrap()
}

/// So many stores into one buffer beside each other, and then a load of each.
fn tiles(n: i64) -> Graph {
    let model = |x: Tensor| {
        (0..n).for_each(|i| drop(x.slice(0, i..i + 1).mul_(2.0)));
        (0..n).map(|i| x.slice(0, i..i + 1)).collect::<Vec<_>>()
    };
    trace(model, Tensor::zeros([n], F32)).unwrap().graph().clone()
}

// Case 27 of the textbook in `cases.rs`.
#[test]
fn stores_and_loads_of_one_buffer_cost_the_same_each() {
    let per_store = |n: i64| {
        let f = functional(&tiles(n));
        let (stats, n) = (&f.stats, n as usize);
        assert_eq!(stats.stopped, "saturated");
        // a load sees its store when it is lifted: no rule looks for it
        assert!(
            stats.after <= 6 * n + 16
                && stats.visits as usize <= 12 * n + 64
                && stats.applied as usize <= 3 * n + 16,
            "{n}: {stats:?}"
        );
        assert!(f.graph.node_count() <= 4 * n + 16, "{n}: {} nodes", f.graph.node_count());
        (stats.after / n, stats.visits as usize / n, stats.applied as usize / n)
    };
    assert_eq!(per_store(33_000), per_store(1_000));
}

/// A residual, a fused buffer split in three, a cache written by rows, and a store that nobody
/// sees: twenty calls.
fn layer(h: &Tensor, cache: &Tensor, at: i64) {
    let fused = h * 3.0;
    let [q, k, v] = [0, 1, 2].map(|i| fused.slice(0, i * 4..(i + 1) * 4));
    q.mul_(2.0);
    k.add_(&q);
    let row = cache.select(0, at);
    row.slice(0, 0..4).copy_(&k);
    row.slice(0, 4..8).copy_(&v);
    fused.slice(0, 0..4).relu_();
    v.mul_(&k);
    h.neg().fill_(0.0);
    h.add_(&fused);
}

// Case 28 of the textbook in `cases.rs`.
#[test]
fn a_large_graph_is_the_same_to_the_byte_in_eight_threads() {
    let model = |(h, cache): (Tensor, Tensor)| (0..6_250).for_each(|i| layer(&h, &cache, i % 16));
    let t = trace(model, (Tensor::zeros([16i64], F32), Tensor::zeros([16i64, 16], F32))).unwrap();
    let graph = t.graph();
    assert!(graph.node_count() >= 100_000, "{}", graph.node_count());
    let text = || {
        let f = functional(graph);
        let plan = plan(&f, &Facts).unwrap();
        format!("{}\n{:?}\n{:?}\n{}", f.graph, f.mutations, f.outputs, plan.display(&f.graph))
    };
    let first = text();
    std::thread::scope(|s| {
        let threads: Vec<_> = (0..8).map(|_| s.spawn(|| text() == first)).collect();
        assert!(threads.into_iter().all(|t| t.join().unwrap()));
    });
}
