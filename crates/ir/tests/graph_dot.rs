//! Pictures of graphs: a program with each kind of node and edge, and the smallest ones.

use maquette_ir::Effect;
use maquette_ir::graph::{ArgEffect, Graph, InputRole, MemoryFacts};

/// `write_` writes its argument and returns it, `view` gives a view, `print` has an effect.
struct Facts;

impl MemoryFacts for Facts {
    fn arg_index(&self, _: &str, _: &str) -> Option<usize> {
        None
    }
    fn arg_effect(&self, op: &str, arg: usize) -> ArgEffect {
        if op == "t::write_" && arg == 0 { ArgEffect::Write } else { ArgEffect::Read }
    }
    fn result_aliases(&self, op: &str, _: usize) -> Option<usize> {
        matches!(op, "t::write_" | "t::view").then_some(0)
    }
    fn effect(&self, op: &str) -> Option<Effect> {
        (op == "t::print").then_some(Effect::Ordered)
    }
    fn is_custom(&self, op: &str) -> bool {
        op.starts_with("mine::")
    }
}

fn graph(text: &str) -> Graph {
    let g = Graph::parse(text).unwrap_or_else(|e| panic!("{e}"));
    g.verify().unwrap_or_else(|e| panic!("{e}"));
    g
}

#[test]
fn every_kind_of_node_and_edge() {
    let g = graph(
        "graph picture(%x: f32[n], %w: f32[4], %m: f32[4]) -> (f32[n], f32[u0])
  where n in [1, 64], u0 in [0, 64]
  guard n <= 32
  const %c: f32[4] = sha256:0123456789abcdef
{
  %view: f32[n] = t::view(%x)
  %write_: f32[n] = t::write_(%view, %c)
  %mul: f32[n] = t::mul(%x, 2.0)
  t::print(\"a \\\"quoted\\\" text\")
  t::print(%mul)
  %rows: i64[u0], %count: int(u0) = mine::rows(%w, %m)
  bind u0 = %count
  assert u0 <= n \"no more rows than there are\"
  %zeros: f32[u0] = t::zeros([u0])
  %a: f32[4], %b: f32[4] = t::split(%w)
  %sum: f32[4] = t::sum(%a, %b)
  return %x, %zeros
}",
    );
    let roles = [InputRole::Argument, InputRole::Parameter, InputRole::Buffer];
    insta::assert_snapshot!(g.to_dot_with(&Facts, &|i| roles[i]));
}

#[test]
fn a_graph_without_calls_has_inputs_and_a_return() {
    let g = graph("graph identity(%x: f32[4]) -> (f32[4])\n{\n  return %x\n}");
    insta::assert_snapshot!(g.to_dot(&Facts));
}

/// What runs after a write and takes nothing from it is joined to it all the same.
#[test]
fn statements_after_a_write_have_an_edge_from_it() {
    let g = graph(
        "graph order(%x: f32[4]) -> (f32[4])
{
  %write_: f32[4] = t::write_(%x, 1.0)
  %mul: f32[4] = t::mul(%x, 2.0)
  return %mul
}",
    );
    let dot = g.to_dot(&Facts);
    assert!(dot.contains("v0 -> n0 [color=red penwidth=2]\n"), "{dot}");
    assert!(dot.contains("n0 -> n1 [color=red label=\"then reads %x\"]\n"), "{dot}");
}
