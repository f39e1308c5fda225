//! Fusion: which operators become one kernel, that the bits are those of the operators alone, and
//! why other operators stay apart.

#[path = "fusion/attention.rs"]
mod attention;
mod common;
#[path = "fusion/concats.rs"]
mod concats;
#[path = "fusion/images.rs"]
mod images;
#[path = "fusion/updates.rs"]
mod updates;

use common::planned;
use maquette_aten as _;
use maquette_interp::Interpreter;
use maquette_invoke::SourceInfo;
use maquette_ops::{Tensor, Value};
use maquette_rewrite::ExecutionMode;
use maquette_runtime::Executable;

fn compiled(text: &str) -> (Executable, ExecutionMode<'static>) {
    let mode = planned(text);
    (common::fused(&mode), mode)
}

/// The fused graph; empty if nothing is fused.
fn fused(executable: &Executable) -> String {
    executable.fused().map_or_else(String::new, |fused| fused.program.graph.to_string())
}

fn bits(v: &Value) -> Vec<u32> {
    let t = v.tensor().unwrap();
    t.to_vec::<f32>().unwrap().into_iter().map(f32::to_bits).collect()
}

/// Runs both on the same inputs, twice, and compares bits.
#[track_caller]
fn agree(text: &str, inputs: &dyn Fn() -> Vec<Value>) -> String {
    let (executable, mode) = compiled(text);
    let source_info = SourceInfo::of_caller();
    let reference_inputs = inputs();
    let reference = Interpreter::new(&mode).with_source_info(source_info);
    let reference = reference.run(&reference_inputs).unwrap().results;
    for _ in 0..2 {
        let given = inputs();
        let found = executable.run(&given, &source_info).unwrap();
        assert_eq!(found.len(), reference.len());
        for (a, b) in found.iter().zip(&reference).chain(given.iter().zip(&reference_inputs)) {
            assert_eq!(bits(a), bits(b));
        }
    }
    assert_eq!(executable.unfused_instances(), 0);
    fused(&executable)
}

fn ramp(sizes: &[i64]) -> Value {
    let n: i64 = sizes.iter().product();
    let data: Vec<f32> = (0..n).map(|i| ((i * 37 % 101) as f32 - 50.0) / 17.0).collect();
    Value::Tensor(Tensor::from_vec(data, sizes.to_vec()))
}

#[test]
fn a_chain_of_elementwise_operators_is_one_kernel() {
    let graph = agree(
        "graph g(%x: f32[5, 300], %y: f32[300], %m: f32[5, 1]) -> (f32[5, 300]) {
            %a: f32[5, 300] = aten::mul.Tensor(%x, %y)
            %b: f32[5, 300] = aten::add.Tensor(%a, %m)
            %c: f32[5, 300] = aten::tanh(%b)
            %d: f32[5, 300] = aten::sub.Tensor(%c, %a)
            return %d
        }",
        &|| vec![ramp(&[5, 300]), ramp(&[300]), ramp(&[5, 1])],
    );
    insta::assert_snapshot!(graph, @r#"
    graph g(%x: f32[5, 300], %y: f32[300], %m: f32[5, 1]) -> (f32[5, 300])
    {
      %sub: f32[5, 300] = ir::fused("elements", 0, [%x, %y, %m], [])
      return %sub
    }
    "#);
}

#[test]
fn softmax_with_what_is_around_it_is_one_kernel() {
    let graph = agree(
        "graph g(%x: f32[n, 40], %m: f32[n, 40]) -> (f32[n, 40], f32[n, 40]) where n in [1, oo) {
            %a: f32[n, 40] = aten::mul.Scalar(%x, 0.125)
            %b: f32[n, 40] = aten::add.Tensor(%a, %m)
            %s: f32[n, 40] = aten::_softmax(%b, -1, false)
            %d: f32[n, 40] = aten::mul.Tensor(%s, %x)
            return %d, %b
        }",
        &|| vec![ramp(&[33, 40]), ramp(&[33, 40])],
    );
    insta::assert_snapshot!(graph, @r#"
    graph g(%x: f32[n, 40], %m: f32[n, 40]) -> (f32[n, 40], f32[n, 40])
      where n in [1, oo)
    {
      %add: f32[n, 40], %mul_1: f32[n, 40] = ir::fused("rows", 0, [%x, %m], [])
      return %mul_1, %add
    }
    "#);
}

#[test]
fn a_norm_with_what_is_around_it_is_one_kernel() {
    let graph = agree(
        "graph g(%x: f32[2, 9, 384], %r: f32[2, 9, 384], %w: f32[384], %b: f32[384]) -> (f32[2, 9, 384], f32[2, 9]) {
            %s: f32[2, 9, 384] = aten::add.Tensor(%x, %r)
            %n: f32[2, 9, 384], %mean: f32[2, 9, 1], %rstd: f32[2, 9, 1] = aten::native_layer_norm(%s, [384], %w, %b, 1e-5)
            %g: f32[2, 9, 384] = aten::gelu(%n)
            %o: f32[2, 9, 384] = aten::add.Tensor(%g, %r)
            %q: f32[2, 9] = aten::amax(%o, [2])
            return %o, %q
        }",
        &|| vec![ramp(&[2, 9, 384]), ramp(&[2, 9, 384]), ramp(&[384]), ramp(&[384])],
    );
    insta::assert_snapshot!(graph, @r#"
    graph g(%x: f32[2, 9, 384], %r: f32[2, 9, 384], %w: f32[384], %b: f32[384]) -> (f32[2, 9, 384], f32[2, 9])
    {
      %add_1: f32[2, 9, 384], %amax: f32[2, 9] = ir::fused("rows", 0, [%x, %r, %w, %b], [])
      return %add_1, %amax
    }
    "#);
}

#[test]
fn a_product_is_fused_across_a_view_of_other_sizes() {
    // As `linear` of a tensor with three dimensions, an activation and a residual.
    let text = "graph g(%x: f32[b, 5, 65], %w: f32[33, 65], %c: f32[33], %r: f32[b, 5, 33]) -> (f32[b, 5, 33]) where b in [1, oo) {
            %f: f32[5*b, 65] = aten::view(%x, [5*b, 65])
            %t: f32[65, 33] strides [1, 65] = aten::t(%w)
            %p: f32[5*b, 33] = aten::addmm(%c, %f, %t)
            %v: f32[b, 5, 33] = aten::view(%p, [b, 5, 33])
            %g: f32[b, 5, 33] = aten::gelu(%v)
            %y: f32[b, 5, 33] = aten::add.Tensor(%g, %r)
            return %y
        }";
    let graph =
        agree(text, &|| vec![ramp(&[3, 5, 65]), ramp(&[33, 65]), ramp(&[33]), ramp(&[3, 5, 33])]);
    insta::assert_snapshot!(graph, @r#"
    graph g(%x: f32[b, 5, 65], %w: f32[33, 65], %c: f32[33], %r: f32[b, 5, 33]) -> (f32[b, 5, 33])
      where b in [1, oo)
    {
      %view: f32[5 * b, 65] = ir::view(%x, [5 * b, 65], [65, 1], 0)
      %view_1: f32[65, 33] = ir::view(%w, [65, 33], [1, 65], 0)
      %add: f32[b, 5, 33] = ir::fused("product", 0, [%c, %view, %view_1, %r], [b], [3, 0])
      return %add
    }
    "#);
}

#[test]
fn a_view_between_operators_that_others_read_too_is_a_value() {
    let text = "graph g(%x: f32[6, 8], %m: f32[8]) -> (f32[2, 3, 8], f32[48], f32[2, 3, 8]) {
            %a: f32[6, 8] = aten::exp(%x)
            %v: f32[2, 3, 8] = aten::view(%a, [2, 3, 8])
            %b: f32[2, 3, 8] = aten::mul.Tensor(%v, %m)
            %w: f32[48] = aten::view(%v, [48])
            %c: f32[48] = aten::neg(%w)
            return %b, %c, %v
        }";
    let graph = agree(text, &|| vec![ramp(&[6, 8]), ramp(&[8])]);
    insta::assert_snapshot!(graph, @r#"
    graph g(%x: f32[6, 8], %m: f32[8]) -> (f32[2, 3, 8], f32[48], f32[2, 3, 8])
    {
      %exp: f32[6, 8], %mul: f32[2, 3, 8], %neg: f32[48] = ir::fused("elements", 0, [%x, %m], [])
      %view: f32[2, 3, 8] = ir::view(%exp, [2, 3, 8], [24, 8, 1], 0)
      return %mul, %neg, %view
    }
    "#);
}

#[test]
fn a_chain_across_views_reads_strided_operands() {
    // The sizes with the most dimensions number the elements: the others' strides are split.
    let text = "graph g(%x: f32[8, 6] strides [1, 8], %y: f32[2, 4, 6], %z: f32[6]) -> (f32[2, 4, 6], f32[48]) {
            %a: f32[8, 6] = aten::add.Tensor(%x, %z)
            %v: f32[2, 4, 6] = aten::view(%a, [2, 4, 6])
            %b: f32[2, 4, 6] = aten::mul.Tensor(%v, %y)
            %w: f32[48] = aten::view(%b, [48])
            %c: f32[48] = aten::neg(%w)
            return %b, %c
        }";
    let inputs = || {
        let x = ramp(&[6, 8]).tensor().unwrap().t();
        vec![Value::Tensor(x), ramp(&[2, 4, 6]), ramp(&[6])]
    };
    let graph = agree(text, &inputs);
    insta::assert_snapshot!(graph, @r#"
    graph g(%x: f32[8, 6] strides [1, 8], %y: f32[2, 4, 6], %z: f32[6]) -> (f32[2, 4, 6], f32[48])
    {
      %mul: f32[2, 4, 6], %neg: f32[48] = ir::fused("elements", 0, [%x, %z, %y], [])
      return %mul, %neg
    }
    "#);
}

#[test]
fn a_product_with_what_follows_is_one_kernel() {
    let graph = agree(
        "graph g(%x: f32[37, 65], %w: f32[33, 65], %b: f32[33], %r: f32[37, 33]) -> (f32[37, 33]) {
            %t: f32[65, 33] strides [1, 65] = aten::t(%w)
            %p: f32[37, 33] = aten::addmm(%b, %x, %t)
            %g: f32[37, 33] = aten::gelu(%p)
            %y: f32[37, 33] = aten::add.Tensor(%g, %r)
            return %y
        }",
        &|| vec![ramp(&[37, 65]), ramp(&[33, 65]), ramp(&[33]), ramp(&[37, 33])],
    );
    insta::assert_snapshot!(graph, @r#"
    graph g(%x: f32[37, 65], %w: f32[33, 65], %b: f32[33], %r: f32[37, 33]) -> (f32[37, 33])
    {
      %view: f32[65, 33] = ir::view(%w, [65, 33], [1, 65], 0)
      %add: f32[37, 33] = ir::fused("product", 0, [%b, %x, %view, %r], [], [3, 0])
      return %add
    }
    "#);
}

#[test]
fn values_that_are_read_outside_are_results() {
    // An operator between two members of a chain would have to run between them.
    let graph = agree(
        "graph g(%x: f32[64], %y: f32[64]) -> (f32[64], f32[]) {
            %a: f32[64] = aten::mul.Tensor(%x, %y)
            %s: f32[] = aten::sum(%a)
            %b: f32[64] = aten::add.Tensor(%a, %s)
            %c: f32[64] = aten::tanh(%b)
            return %c, %s
        }",
        &|| vec![ramp(&[64]), ramp(&[64])],
    );
    insta::assert_snapshot!(graph, @r#"
    graph g(%x: f32[64], %y: f32[64]) -> (f32[64], f32[])
    {
      %mul: f32[64] = aten::mul.Tensor(%x, %y)
      %sum: f32[] = aten::sum(%mul)
      %tanh: f32[64] = ir::fused("elements", 0, [%mul, %sum], [])
      return %tanh, %sum
    }
    "#);
}

#[test]
fn writes_of_inputs_are_those_of_the_program() {
    let graph = agree(
        "graph g(%x: f32[4, 8], %y: f32[4, 8]) -> (f32[4, 8]) {
            %a: f32[4, 8] = aten::mul.Tensor(%x, %y)
            %b: f32[4, 8] = aten::exp(%a)
            %h: f32[2, 8] = aten::slice.Tensor(%x, 0, 0, 2, 1)
            %w: f32[2, 8] = aten::mul_.Scalar(%h, 10.0)
            %c: f32[4, 8] = aten::add.Tensor(%b, %x)
            %d: f32[4, 8] = aten::tanh(%c)
            %z: f32[4, 8] = aten::copy_(%y, %d)
            return %d
        }",
        &|| vec![ramp(&[4, 8]), ramp(&[4, 8])],
    );
    insta::assert_snapshot!(graph, @r#"
    graph g(%x: f32[4, 8], %y: f32[4, 8]) -> (f32[4, 8], f32[4, 8])
    {
      %exp: f32[4, 8] = ir::fused("elements", 0, [%x, %y], [])
      %view: f32[2, 8] = ir::view(%x, [2, 8], [8, 1], 0)
      %mul_1: f32[2, 8] = aten::mul.Scalar(%view, 10.0)
      %scatter: f32[4, 8] = ir::scatter(%x, %mul_1, [2, 8], [8, 1], 0)
      %tanh: f32[4, 8] = ir::fused("elements", 1, [%exp, %scatter], [])
      return %scatter, %tanh
    }
    "#);
}

#[test]
fn what_is_not_fused_has_a_reason() {
    let (executable, _) = compiled(
        "graph g(%x: f32[4, 4], %i: i64[4, 4]) -> (f32[4, 4], f32[4], i64[4, 4]) {
            %a: f32[4, 4] = aten::neg(%x)
            %t: f32[4, 4] strides [1, 4] = aten::t(%a)
            %b: f32[4, 4] = aten::mm(%t, %a)
            %c: f32[4, 4] = aten::exp(%b)
            %d: f32[4, 4] = aten::tanh(%c)
            %m: f32[4] = aten::sum.dim_IntList(%d, [0])
            %e: f32[4] = aten::neg(%m)
            %j: i64[4, 4] = aten::neg(%i)
            %k: i64[4, 4] = aten::remainder.Tensor(%i, %j)
            return %d, %e, %k
        }",
    );
    let fused = executable.fused().unwrap();
    let graph = &fused.original.graph;
    let lines: Vec<String> = (fused.refusals.iter())
        .map(|r| {
            format!("{} -> {}: {}", graph.op_name(r.producer), graph.op_name(r.consumer), r.reason)
        })
        .collect();
    insta::assert_snapshot!(lines.join("\n"), @r"
    aten::neg -> ir::view: one of them only moves elements
    ir::view -> aten::mm: one of them only moves elements
    aten::neg -> aten::mm: the kernel of one of them is faster alone
    aten::tanh -> aten::sum.dim_IntList: they have no rows in common
    aten::sum.dim_IntList -> aten::neg: they have no rows in common
    aten::neg -> aten::remainder.Tensor: the kernel of one of them is faster alone
    ");
}

#[test]
fn conversions_are_elementwise() {
    let graph = agree(
        "graph g(%x: f32[5, 300], %y: f32[300]) -> (f32[5, 300]) {
            %a: bf16[5, 300] = aten::_to_copy(%x, dtype=bf16)
            %b: bf16[5, 300] = aten::mul.Tensor(%a, %a)
            %c: f32[5, 300] = aten::_to_copy(%b, dtype=f32)
            %d: f32[5, 300] = aten::add.Tensor(%c, %y)
            return %d
        }",
        &|| vec![ramp(&[5, 300]), ramp(&[300])],
    );
    insta::assert_snapshot!(graph, @r#"
    graph g(%x: f32[5, 300], %y: f32[300]) -> (f32[5, 300])
    {
      %add: f32[5, 300] = ir::fused("elements", 0, [%x, %y], [])
      return %add
    }
    "#);
}

#[test]
fn a_norm_by_channels_is_a_nest_of_maps() {
    let graph = agree(
        "graph g(%x: f32[2, 5, 7, 9], %w: f32[5], %b: f32[5], %m: f32[5], %v: f32[5], %r: f32[2, 5, 7, 9]) -> (f32[2, 5, 7, 9]) {
            %y: f32[2, 5, 7, 9], %s: f32[0], %t: f32[0] = aten::_native_batch_norm_legit_no_training(%x, %w, %b, %m, %v, 0.1, 1e-5)
            %z: f32[2, 5, 7, 9] = aten::add.Tensor(%y, %r)
            %u: f32[2, 5, 7, 9] = aten::relu(%z)
            return %u
        }",
        &|| {
            let positive = Value::Tensor(Tensor::from_vec(vec![0.5f32, 1.0, 2.0, 0.1, 3.0], [5]));
            let [w, b, m] = [ramp(&[5]), ramp(&[5]), ramp(&[5])];
            vec![ramp(&[2, 5, 7, 9]), w, b, m, positive, ramp(&[2, 5, 7, 9])]
        },
    );
    insta::assert_snapshot!(graph, @r#"
    graph g(%x: f32[2, 5, 7, 9], %w: f32[5], %b: f32[5], %m: f32[5], %v: f32[5], %r: f32[2, 5, 7, 9]) -> (f32[2, 5, 7, 9])
    {
      %relu: f32[2, 5, 7, 9] = ir::fused("maps", 0, [%x, %w, %b, %m, %v, %r], [])
      return %relu
    }
    "#);
}

#[test]
fn a_convolution_with_what_follows_is_one_kernel() {
    let graph = agree(
        "graph g(%x: f32[2, 3, 9, 8], %k: f32[5, 3, 3, 3], %b: f32[5], %w: f32[5], %m: f32[5], %v: f32[5], %r: f32[2, 5, 9, 8]) -> (f32[2, 5, 9, 8]) {
            %c: f32[2, 5, 9, 8] = aten::convolution(%x, %k, %b, [1, 1], [1, 1], [1, 1], false, [0, 0], 1)
            %y: f32[2, 5, 9, 8], %s: f32[0], %t: f32[0] = aten::_native_batch_norm_legit_no_training(%c, %w, %b, %m, %v, 0.1, 1e-5)
            %z: f32[2, 5, 9, 8] = aten::add.Tensor(%y, %r)
            %u: f32[2, 5, 9, 8] = aten::relu(%z)
            return %u
        }",
        &|| {
            let positive = Value::Tensor(Tensor::from_vec(vec![0.5f32, 1.0, 2.0, 0.1, 3.0], [5]));
            let [b, w, m] = [ramp(&[5]), ramp(&[5]), ramp(&[5])];
            let (x, k, r) = (ramp(&[2, 3, 9, 8]), ramp(&[5, 3, 3, 3]), ramp(&[2, 5, 9, 8]));
            vec![x, k, b, w, m, positive, r]
        },
    );
    insta::assert_snapshot!(graph, @r#"
    graph g(%x: f32[2, 3, 9, 8], %k: f32[5, 3, 3, 3], %b: f32[5], %w: f32[5], %m: f32[5], %v: f32[5], %r: f32[2, 5, 9, 8]) -> (f32[2, 5, 9, 8])
    {
      %relu: f32[2, 5, 9, 8] = ir::fused("convolution", 0, [%x, %k, %b, %w, %m, %v, %r], [], [6, 0])
      return %relu
    }
    "#);
}

#[test]
fn a_depthwise_convolution_with_what_follows_is_one_kernel() {
    let graph = agree(
        "graph g(%x: f32[2, 5, 9, 8], %k: f32[5, 1, 3, 3], %w: f32[5], %m: f32[5], %v: f32[5]) -> (f32[2, 5, 5, 4]) {
            %c: f32[2, 5, 5, 4] = aten::convolution(%x, %k, None, [2, 2], [1, 1], [1, 1], false, [0, 0], 5)
            %y: f32[2, 5, 5, 4], %s: f32[0], %t: f32[0] = aten::_native_batch_norm_legit_no_training(%c, %w, %w, %m, %v, 0.1, 1e-5)
            %z: f32[2, 5, 5, 4] = aten::hardtanh(%y, 0.0, 6.0)
            return %z
        }",
        &|| {
            let positive = Value::Tensor(Tensor::from_vec(vec![0.5f32, 1.0, 2.0, 0.1, 3.0], [5]));
            let (x, k) = (ramp(&[2, 5, 9, 8]), ramp(&[5, 1, 3, 3]));
            vec![x, k, ramp(&[5]), ramp(&[5]), positive]
        },
    );
    insta::assert_snapshot!(graph, @r#"
    graph g(%x: f32[2, 5, 9, 8], %k: f32[5, 1, 3, 3], %w: f32[5], %m: f32[5], %v: f32[5]) -> (f32[2, 5, 5, 4])
    {
      %hardtanh: f32[2, 5, 5, 4] = ir::fused("convolution", 0, [%x, %k, %w, %m, %v], [])
      return %hardtanh
    }
    "#);
}
