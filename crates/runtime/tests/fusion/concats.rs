//! Concatenations whose parts are computed in place, and parts of values that are read in place.

use super::{agree, compiled, ramp};
use maquette_ir::fused::NoFusionReason;
use maquette_ir::graph::Graph;
use maquette_ops::Value;
use maquette_ops::library::Facts;
use maquette_rewrite::plan;

/// The graph that runs, and the elements that its plan copies.
#[track_caller]
fn in_place(text: &str, inputs: &dyn Fn() -> Vec<Value>) -> (String, u64) {
    let fused = agree(text, inputs);
    let (executable, _) = compiled(text);
    let program = match executable.fused() {
        Some(fused) => fused.program.clone(),
        None => panic!("nothing is fused: {fused}"),
    };
    let plan = plan(&program, &Facts).unwrap();
    (program.graph.to_string(), program.copies_at_most(&plan).unwrap_or(u64::MAX))
}

#[test]
fn parts_are_computed_in_the_memory_of_the_whole() {
    let (graph, copied) = in_place(
        "graph g(%x: f32[5, 30], %y: f32[5, 30]) -> (f32[5, 90]) {
            %a: f32[5, 30] = aten::mul.Tensor(%x, %y)
            %b: f32[5, 30] = aten::tanh(%a)
            %c: f32[5, 30] = aten::add.Tensor(%x, %y)
            %d: f32[5, 30] = aten::relu(%c)
            %e: f32[5, 30] = aten::exp(%x)
            %z: f32[5, 90] = aten::cat([%b, %d, %e], 1)
            return %z
        }",
        &|| vec![ramp(&[5, 30]), ramp(&[5, 30])],
    );
    assert_eq!(copied, 0);
    insta::assert_snapshot!(graph, @r#"
    graph g(%x: f32[5, 30], %y: f32[5, 30]) -> (f32[5, 90])
    {
      %empty: f32[5, 90] = ir::empty()
      %tanh: f32[5, 30] = ir::fused("elements", 0, [%x, %y], [])
      %relu: f32[5, 30] = ir::fused("elements", 1, [%x, %y], [])
      %exp: f32[5, 30] = aten::exp(%x)
      %scatter: f32[5, 90] = ir::scatter(%empty, %tanh, [5, 30], [90, 1], 0)
      %scatter_1: f32[5, 90] = ir::scatter(%scatter, %relu, [5, 30], [90, 1], 30)
      %cat: f32[5, 90] = ir::scatter(%scatter_1, %exp, [5, 30], [90, 1], 60)
      return %cat
    }
    "#);
}

#[test]
fn a_store_is_an_edge_that_only_moves_elements() {
    let text = "graph g(%x: f32[5, 30]) -> (f32[5, 60]) {
            %a: f32[5, 30] = aten::neg(%x)
            %b: f32[5, 30] = aten::tanh(%a)
            %c: f32[5, 30] = aten::exp(%a)
            %z: f32[5, 60] = aten::cat([%b, %c], 1)
            return %z
        }";
    let (executable, _) = compiled(text);
    let graph = executable.graph();
    let edges = executable.refusals().iter().map(|r| (graph.op_name(r.producer), r.reason));
    let edges: Vec<(&str, NoFusionReason)> = edges.collect();
    let moves = NoFusionReason::NotAffine;
    assert_eq!(edges, [("aten::tanh", moves), ("aten::exp", moves)]);
}

#[test]
fn a_concatenation_of_any_size_copies_nothing() {
    let text = "graph g(%x: f32[n, 6], %y: f32[m, 6]) -> (f32[2*n + m, 6]) \
        where n in [1, oo), m in [1, oo) {
            %a: f32[n, 6] = aten::exp(%x)
            %b: f32[m, 6] = aten::neg(%y)
            %c: f32[m, 6] = aten::tanh(%b)
            %d: f32[n, 6] = aten::cos(%x)
            %z: f32[2*n + m, 6] = aten::cat([%a, %c, %d])
            return %z
        }";
    let (_, copied) = in_place(text, &|| vec![ramp(&[4, 6]), ramp(&[7, 6])]);
    assert_eq!(copied, 0);
}

#[test]
fn a_part_that_is_an_input_is_copied_and_others_are_not() {
    // As a cache of keys that grows.
    let text =
        "graph g(%past: f32[2, 9, 4], %x: f32[2, 1, 4], %s: f32[2, 1, 4]) -> (f32[2, 10, 4]) {
            %a: f32[2, 1, 4] = aten::mul.Tensor(%x, %s)
            %k: f32[2, 1, 4] = aten::neg(%a)
            %z: f32[2, 10, 4] = aten::cat([%past, %k], dim=1)
            return %z
        }";
    let (_, copied) =
        in_place(text, &|| vec![ramp(&[2, 9, 4]), ramp(&[2, 1, 4]), ramp(&[2, 1, 4])]);
    assert_eq!(copied, 2 * 9 * 4);
}

#[test]
fn a_part_that_is_read_elsewhere_is_read_where_it_lies() {
    let text = "graph g(%x: f32[6, 8]) -> (f32[6, 16], f32[6]) {
            %a: f32[6, 8] = aten::neg(%x)
            %b: f32[6, 8] = aten::exp(%a)
            %z: f32[6, 16] = aten::cat([%b, %b], -1)
            %s: f32[6] = aten::amax(%b, [1])
            return %z, %s
        }";
    let (_, copied) = in_place(text, &|| vec![ramp(&[6, 8])]);
    // The second part is a copy of the first.
    assert_eq!(copied, 6 * 8);
}

#[test]
fn concatenations_of_concatenations_have_one_memory() {
    let text = "graph g(%x: f32[3, 4], %y: f32[3, 4]) -> (f32[3, 3, 4]) {
            %a: f32[3, 4] = aten::exp(%x)
            %b: f32[3, 4] = aten::neg(%y)
            %c: f32[3, 4] = aten::tanh(%b)
            %u: f32[1, 3, 4] = aten::unsqueeze(%a, 0)
            %v: f32[1, 3, 4] = aten::unsqueeze(%c, 0)
            %p: f32[2, 3, 4] = aten::cat([%u, %v], 0)
            %d: f32[3, 4] = aten::cos(%x)
            %w: f32[1, 3, 4] = aten::unsqueeze(%d, 0)
            %z: f32[3, 3, 4] = aten::cat([%p, %w], 0)
            return %z
        }";
    let (_, copied) = in_place(text, &|| vec![ramp(&[3, 4]), ramp(&[3, 4])]);
    assert_eq!(copied, 0);
}

#[test]
fn convolutions_write_their_channels() {
    // As the expansion of a fire module.
    let text = "graph g(%x: f32[2, 3, 9, 8], %k: f32[5, 3, 3, 3], %l: f32[4, 3, 1, 1]) -> (f32[2, 9, 9, 8]) {
            %c: f32[2, 5, 9, 8] = aten::convolution(%x, %k, None, [1, 1], [1, 1], [1, 1], false, [0, 0], 1)
            %d: f32[2, 4, 9, 8] = aten::convolution(%x, %l, None, [1, 1], [0, 0], [1, 1], false, [0, 0], 1)
            %e: f32[2, 5, 9, 8] = aten::relu(%c)
            %f: f32[2, 4, 9, 8] = aten::relu(%d)
            %z: f32[2, 9, 9, 8] = aten::cat([%e, %f], 1)
            return %z
        }";
    let inputs = || vec![ramp(&[2, 3, 9, 8]), ramp(&[5, 3, 3, 3]), ramp(&[4, 3, 1, 1])];
    let (_, copied) = in_place(text, &inputs);
    assert_eq!(copied, 0);
}

#[test]
fn a_region_whose_sizes_do_not_fit_its_part_is_copied() {
    // The rows of the product are two dimensions of the part, with a gap between them.
    let text = "graph g(%x: f32[b, 5, 65], %w: f32[33, 65], %r: f32[b, 5, 33]) -> (f32[b, 10, 33]) where b in [1, oo) {
            %f: f32[5*b, 65] = aten::view(%x, [5*b, 65])
            %t: f32[65, 33] strides [1, 65] = aten::t(%w)
            %p: f32[5*b, 33] = aten::mm(%f, %t)
            %v: f32[b, 5, 33] = aten::view(%p, [b, 5, 33])
            %g: f32[b, 5, 33] = aten::gelu(%v)
            %y: f32[b, 5, 33] = aten::add.Tensor(%g, %r)
            %n: f32[b, 5, 33] = aten::neg(%r)
            %z: f32[b, 10, 33] = aten::cat([%n, %y], 1)
            return %z
        }";
    agree(text, &|| vec![ramp(&[3, 5, 65]), ramp(&[33, 65]), ramp(&[3, 5, 33])]);
    let (executable, _) = compiled(text);
    assert_eq!(executable.unfused_instances(), 0);
}

#[test]
fn parts_of_a_value_are_read_in_place() {
    // A gated unit: both halves of one product.
    let (graph, copied) = in_place(
        "graph g(%x: f32[7, 16], %w: f32[16, 24]) -> (f32[7, 12]) {
            %p: f32[7, 24] = aten::mm(%x, %w)
            %a: f32[7, 12] strides [24, 1] = aten::slice.Tensor(%p, 1, 0, 12, 1)
            %b: f32[7, 12] strides [24, 1] offset 12 = aten::slice.Tensor(%p, 1, 12, 24, 1)
            %s: f32[7, 12] = aten::silu(%a)
            %y: f32[7, 12] = aten::mul.Tensor(%s, %b)
            return %y
        }",
        &|| vec![ramp(&[7, 16]), ramp(&[16, 24])],
    );
    assert_eq!(copied, 0);
    insta::assert_snapshot!(graph, @r#"
    graph g(%x: f32[7, 16], %w: f32[16, 24]) -> (f32[7, 12])
    {
      %mm: f32[7, 24] = aten::mm(%x, %w)
      %view: f32[7, 12] = ir::view(%mm, [7, 12], [24, 1], 0)
      %view_1: f32[7, 12] = ir::view(%mm, [7, 12], [24, 1], 12)
      %mul: f32[7, 12] = ir::fused("elements", 0, [%view, %view_1], [])
      return %mul
    }
    "#);
}

#[test]
fn other_concatenations_stay_operators() {
    let text = "graph g(%x: f32[4], %y: f64[4]) -> (f64[8]) {
        %a: f32[4] = aten::exp(%x)
        %b: f32[4] = aten::neg(%a)
        %z: f64[8] = aten::cat([%b, %y], 0)
        return %z
    }";
    let (executable, _) = compiled(text);
    let graph: &Graph = executable.graph();
    assert!(graph.nodes().any(|node| graph.op_name(node) == "aten::cat"), "{graph}");
}
