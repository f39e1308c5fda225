//! Dataflow and dependence edges of a graph, and petgraph's algorithms on them.

mod common;

use maquette_ir::graph::{Adjacency, ArgEffect, Graph, MemoryFacts, NodeId};
use maquette_ir::{Effect, Resource};
use petgraph::Direction;
use petgraph::algo::{dominators, has_path_connecting, tarjan_scc, toposort};
use petgraph::dot::Dot;
use petgraph::visit::{EdgeCount, EdgeRef, IntoEdgeReferences, IntoNeighborsDirected, Reversed};
use proptest::prelude::*;

const DIAMOND: &str = "graph diamond(%x: f32[4]) -> (f32[4])
  where u0 in [0, 4]
{
  %a: f32[4] = t::a(%x)
  %b: f32[4], %n: int(u0) = t::b(%a)
  bind u0 = %n
  %c: f32[4] = t::c(%a, %a)
  %d: f32[4] = t::d([%b, %c])
  %e: f32[4] = t::e(%x, u0 + 1)
  return %d
}";

/// The memory effects of the test operators: `write` writes its first argument, `swap` its first
/// two, `view` returns a view and `chunk` returns several.
struct Facts;

impl MemoryFacts for Facts {
    fn arg_index(&self, _: &str, name: &str) -> Option<usize> {
        (name == "out").then_some(1)
    }
    fn arg_effect(&self, op: &str, arg: usize) -> ArgEffect {
        match (op, arg) {
            ("t::write" | "t::swap", 0) | ("t::swap" | "t::into", 1) => ArgEffect::Write,
            _ => ArgEffect::Read,
        }
    }
    fn result_aliases(&self, op: &str, _: usize) -> Option<usize> {
        match op {
            "t::view" | "t::chunk" | "t::write" => Some(0),
            "t::into" => Some(1),
            _ => None,
        }
    }
    fn effect(&self, op: &str) -> Option<Effect> {
        match op {
            "t::print" => Some(Effect::Ordered),
            "t::send" => Some(Effect::On(Resource::new("wire"))),
            _ => None,
        }
    }
    fn uses_rng(&self, op: &str) -> bool {
        op == "t::draw"
    }
}

/// One line per edge, with operator names: `a0 -> b1 Data %a`.
fn edges(adjacency: &Adjacency<'_>) -> Vec<String> {
    let g = adjacency.graph();
    let show = |n: NodeId| format!("{}{}", g.op_name(n).trim_start_matches("t::"), n.index());
    adjacency
        .edge_references()
        .map(|e| {
            let value =
                e.weight().value.map(|v| format!(" %{}", g.value_name(v))).unwrap_or_default();
            format!("{} -> {} {:?}{value}", show(e.source()), show(e.target()), e.weight().kind)
        })
        .collect()
}

fn parse(text: &str) -> Graph {
    let g = Graph::parse(text).unwrap_or_else(|e| panic!("{e}"));
    g.verify().unwrap_or_else(|e| panic!("{e}"));
    g
}

#[test]
fn dataflow() {
    let g = parse(DIAMOND);
    let flow = g.dataflow();
    assert_eq!(
        edges(&flow),
        [
            "a0 -> b1 Data %a",
            "a0 -> c2 Data %a",
            "b1 -> d3 Data %b",
            "b1 -> e4 Symbol %n",
            "c2 -> d3 Data %c"
        ]
    );
    let n: Vec<NodeId> = g.nodes().collect();
    let incoming: Vec<NodeId> = flow.neighbors_directed(n[3], Direction::Incoming).collect();
    assert_eq!(incoming, [n[1], n[2]]);
}

#[test]
fn petgraph_algorithms_run_on_dataflow() {
    let g = parse(DIAMOND);
    let n: Vec<NodeId> = g.nodes().collect();
    let flow = g.dataflow();
    let order = toposort(&flow, None).unwrap();
    let position = |x: NodeId| order.iter().position(|y| *y == x).unwrap();
    assert!(flow.edge_references().all(|e| position(e.source()) < position(e.target())));
    assert_eq!(order.len(), 5);
    assert!(
        has_path_connecting(&flow, n[0], n[3], None)
            && !has_path_connecting(&flow, n[2], n[4], None)
    );
    let dominators = dominators::simple_fast(&flow, n[0]);
    assert_eq!(
        (dominators.immediate_dominator(n[3]), dominators.immediate_dominator(n[4])),
        (Some(n[0]), Some(n[1]))
    );
    assert_eq!(tarjan_scc(&flow).len(), 5);
    assert!(has_path_connecting(Reversed(&flow), n[3], n[0], None));
    assert!(format!("{:?}", Dot::new(&flow)).contains("t::a"));
}

#[test]
fn dependence_orders_memory_and_effects() {
    let cases: [(&str, &[&str]); 12] = [
        (
            "%y: f32[4] = t::read(%x)\n  t::write(%x)\n  t::read(%x)",
            &["read0 -> write1 WriteAfterRead %x", "write1 -> read2 ReadAfterWrite %x"],
        ),
        ("t::write(%x)\n  t::write(%z)\n  t::write(%x)", &["write0 -> write2 WriteAfterWrite %x"]),
        // A write through a view affects reads of the base and of other views.
        (
            "%v: f32[4] = t::view(%x)\n  t::write(%v)\n  t::read(%x)",
            &[
                "view0 -> write1 Data %v",
                "view0 -> write1 WriteAfterRead %v",
                "write1 -> read2 ReadAfterWrite %x",
            ],
        ),
        (
            "[%v: f32[4], %w: f32[4]] = t::chunk(%x)\n  t::write(%v)\n  t::read(%w)",
            &[
                "chunk0 -> write1 Data %v",
                "chunk0 -> write1 WriteAfterRead %v",
                "chunk0 -> read2 Data %w",
                "write1 -> read2 ReadAfterWrite %w",
            ],
        ),
        // One call reads and writes one alias class.
        ("t::swap(%x, [%x, %z])\n  t::swap(%z, %z)", &["swap0 -> swap1 WriteAfterWrite %z"]),
        // The written argument is passed by keyword.
        ("%o: f32[4] = t::into(%x, out=%z)\n  t::read(%z)", &["into0 -> read1 ReadAfterWrite %z"]),
        // An unknown keyword counts as written.
        ("t::read(%x)\n  t::read(k=%x)", &["read0 -> read1 WriteAfterRead %x"]),
        // An effect that only the graph declares; random number generation has an order of its own.
        ("t::print()\n  t::unknown() effect\n  t::unknown()", &["print0 -> unknown1 Order"]),
        (
            "t::draw()\n  t::print()\n  t::draw()\n  t::print()",
            &["draw0 -> draw2 Order", "print1 -> print3 Order"],
        ),
        (
            "t::print()\n  t::read(%x)\n  t::print(\"a\")\n  t::print()",
            &["print0 -> print2 Order", "print2 -> print3 Order"],
        ),
        // Each resource has an order of its own, and so has the process.
        (
            "t::a() effect(\"a\")\n  t::b() effect(\"b\")\n  t::print()\n  t::c() effect(\"a\")\n  \
                t::print()\n  t::d() effect(\"b\")",
            &["a0 -> c3 Order", "b1 -> d5 Order", "print2 -> print4 Order"],
        ),
        // What the graph declares and what the facts say.
        (
            "t::send()\n  t::a() effect(\"wire\")\n  t::send() effect\n  t::print()",
            &["send0 -> a1 Order", "a1 -> send2 Order", "send2 -> print3 Order"],
        ),
    ];
    for (body, expected) in cases {
        let g =
            parse(&format!("graph g(%x: f32[4], %z: f32[4]) -> ()\n{{\n  {body}\n  return ()\n}}"));
        let dependence = g.dependence(&Facts);
        assert_eq!(edges(&dependence), expected, "{body}");
        assert_eq!(dependence.edge_count(), expected.len());
    }
}

#[test]
fn dependence_edges_are_linear_in_the_reads() {
    let reads = "  t::read(%x)\n".repeat(2000);
    let g = parse(&format!(
        "graph g(%x: f32[4]) -> ()\n{{\n{reads}  t::write(%x)\n{reads}  return ()\n}}"
    ));
    assert_eq!(g.dependence(&Facts).edge_count(), 4000);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn edges_point_forward_in_program_order(
        choices in prop::collection::vec(any::<u32>(), 0..300),
    ) {
        let g = common::graph(&choices);
        for adjacency in [g.dataflow(), g.dependence(&Facts)] {
            prop_assert!(adjacency.edge_references().all(|e| e.source() < e.target()));
            let order = toposort(&adjacency, None).ok();
            prop_assert_eq!(order.map(|order| order.len()), Some(g.node_count()));
            let incoming = |n| adjacency.edges_of(n, Direction::Incoming).count();
            prop_assert_eq!(g.nodes().map(incoming).sum::<usize>(), adjacency.edge_count());
        }
    }
}
