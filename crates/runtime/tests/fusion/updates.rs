//! Products whose result updates what only the following operators read: training steps.

use super::{agree, compiled, ramp};
use maquette_invoke::SourceInfo;
use maquette_ir::graph::Graph;
use maquette_ops::Value;
use maquette_ops::library::Facts;
use maquette_rewrite::plan;
use maquette_runtime::profile::ProfileOptions;

/// The elements that the fused program copies.
fn copies(text: &str) -> u64 {
    let (executable, _) = compiled(text);
    let refusals = executable.refusals();
    let Some(fused) = executable.fused() else { panic!("nothing is fused: {refusals:?}") };
    plan(&fused.program, &Facts).unwrap().cost.estimate.copied
}

/// The graph's text for sizes `m`, `k`, `n`.
fn momentum(m: i64, k: i64, n: i64) -> String {
    format!(
        "graph g(%x: f32[{k}, {m}], %d: f32[{k}, {n}], %p: f32[{m}, {n}], %v: f32[{m}, {n}]) -> (f32[{m}, {n}]) {{
            %t: f32[{m}, {k}] strides [1, {m}] = aten::t(%x)
            %g: f32[{m}, {n}] = aten::mm(%t, %d)
            %a: f32[{m}, {n}] = aten::mul_.Scalar(%v, 0.9)
            %b: f32[{m}, {n}] = aten::add_.Tensor(%a, %g)
            %c: f32[{m}, {n}] = aten::add_.Tensor(%p, %b, alpha=-0.01)
            return %c
        }}"
    )
}

#[test]
fn the_update_of_a_weight_is_one_kernel_with_its_gradient_in_place() {
    // within a tile, over tiles and blocks, and tall, wide and long products
    let sizes = [(5, 3, 7), (130, 33, 150), (257, 70, 65), (17, 600, 300), (600, 20, 40)];
    for (m, k, n) in sizes {
        let text = momentum(m, k, n);
        assert_eq!(copies(&text), 0);
        agree(&text, &|| [[k, m], [k, n], [m, n], [m, n]].map(|sizes| ramp(&sizes)).to_vec());
    }
    let (executable, _) = compiled(&momentum(5, 3, 7));
    insta::assert_snapshot!(super::fused(&executable), @r#"
    graph g(%x: f32[3, 5], %d: f32[3, 7], %p: f32[5, 7], %v: f32[5, 7]) -> (f32[5, 7], f32[5, 7])
    {
      %view: f32[5, 3] = ir::view(%x, [5, 3], [1, 5], 0)
      %add: f32[5, 7], %add_1: f32[5, 7] = ir::fused("product", 0, [%view, %d, %v, %p], [], [2, 0, 3, 1])
      return %add_1, %add
    }
    "#);
}

#[test]
fn a_factor_is_not_overwritten() {
    let text = "graph g(%x: f32[96, 96]) -> (f32[96, 96]) {
            %p: f32[96, 96] = aten::mm(%x, %x)
            %y: f32[96, 96] = aten::add_.Tensor(%x, %p)
            return %p
        }";
    agree(text, &|| vec![ramp(&[96, 96])]);
}

#[test]
fn what_is_read_after_the_update_is_not_overwritten() {
    let text = "graph g(%x: f32[70, 40], %w: f32[40, 90], %v: f32[70, 90]) -> (f32[70, 90]) {
            %g: f32[70, 90] = aten::mm(%x, %w)
            %n: f32[70, 90] = aten::add.Tensor(%v, %g)
            %o: f32[70, 90] = aten::mul.Tensor(%n, %v)
            %c: f32[70, 90] = aten::copy_(%v, %n)
            return %o
        }";
    let graph = agree(text, &|| vec![ramp(&[70, 40]), ramp(&[40, 90]), ramp(&[70, 90])]);
    insta::assert_snapshot!(graph, @r#"
    graph g(%x: f32[70, 40], %w: f32[40, 90], %v: f32[70, 90]) -> (f32[70, 90], f32[70, 90])
    {
      %add: f32[70, 90] = ir::fused("product", 0, [%x, %w, %v], [], [2, 0])
      %mul: f32[70, 90] = aten::mul.Tensor(%add, %v)
      return %add, %mul
    }
    "#);
}

#[test]
fn an_update_stands_where_nothing_reads_the_old_weight_any_more() {
    let text =
        "graph g(%x: f32[64, 48], %w: f32[48, 80], %d: f32[64, 80]) -> (f32[64, 48], f32[64, 48]) {
            %t: f32[48, 64] strides [1, 48] = aten::t(%x)
            %g: f32[48, 80] = aten::mm(%t, %d)
            %u: f32[80, 48] strides [1, 80] = aten::t(%w)
            %e: f32[64, 48] = aten::mm(%d, %u)
            %s: f32[64, 48] = aten::_softmax(%e, -1, false)
            %r: f32[64, 48] = aten::cumsum(%s, 0)
            %c: f32[48, 80] = aten::add_.Tensor(%w, %g, alpha=-0.1)
            return %s, %r
        }";
    let graph = agree(text, &|| vec![ramp(&[64, 48]), ramp(&[48, 80]), ramp(&[64, 80])]);
    assert_eq!(copies(text), 0);
    graph.parse::<Graph>().unwrap();
    insta::assert_snapshot!(graph, @r#"
    graph g(%x: f32[64, 48], %w: f32[48, 80], %d: f32[64, 80]) -> (f32[48, 80], f32[64, 48], f32[64, 48])
    {
      %view: f32[48, 64] = ir::view(%x, [48, 64], [1, 48], 0)
      %view_1: f32[80, 48] = ir::view(%w, [80, 48], [1, 80], 0)
      %mm_1: f32[64, 48] = aten::mm(%d, %view_1)
      %add: f32[48, 80] = ir::fused("product", 0, [%view, %d, %w], [], [2, 0])
      %_softmax: f32[64, 48] = aten::_softmax(%mm_1, -1, false)
      %cumsum: f32[64, 48] = aten::cumsum(%_softmax, 0)
      return %add, %_softmax, %cumsum
    }
    "#);
}

/// A residual block of a network in evaluation mode, for some images. Nothing reads `%r` after it.
fn residual(images: i64) -> String {
    let y = format!("f32[{images}, 5, 6, 7]");
    let conv = "None, [1, 1], [1, 1], [1, 1], false, [0, 0], 1";
    format!(
        "graph g(%x: {y}, %w: f32[5, 5, 3, 3], %g: f32[5], %b: f32[5], %m: f32[5], %v: f32[5]) -> ({y}) {{
            %r: {y} = aten::convolution(%x, %w, {conv})
            %h: {y} = aten::convolution(%r, %w, {conv})
            %c: {y} = aten::convolution(%h, %w, {conv})
            %n: {y}, %e: f32[0], %f: f32[0] = aten::_native_batch_norm_legit_no_training(%c, %g, %b, %m, %v, 0.1, 1e-5)
            %a: {y} = aten::add.Tensor(%n, %r)
            %z: {y} = aten::convolution(%a, %w, {conv})
            return %z
        }}"
    )
}

#[test]
fn a_residual_is_overwritten_without_a_copy() {
    for images in [1, 2] {
        let text = residual(images);
        let inputs = || {
            let sizes: [&[i64]; 3] = [&[images, 5, 6, 7], &[5, 5, 3, 3], &[5]];
            let [x, w, c] = sizes.map(ramp);
            let positive = Value::Tensor(c.tensor().unwrap().abs() + 0.5);
            vec![x, w, c.clone(), c.clone(), c, positive]
        };
        agree(&text, &inputs);
        let (executable, _) = compiled(&text);
        let options = ProfileOptions::new().warm_up(0).repeat(1);
        let profile = executable.profile(&inputs(), &options, &SourceInfo::of_caller()).unwrap();
        let kernels: Vec<String> = profile.kernels.iter().map(|k| k.label()).collect();
        let region = "convolution + _native_batch_norm_legit_no_training + add";
        assert_eq!(kernels, ["convolution", "convolution", region, "convolution"]);
    }
}

/// `exp` is a stage before the product, whose values could be in the memory of the last result. But
/// another stage reads them behind the product, and that memory is an operand's. Each of both
/// prevents it alone; `loops::tests::overwriting` of the kernels has nests for one of them.
#[test]
fn values_of_an_earlier_stage_are_not_in_memory_that_is_read() {
    let text = "graph g(%t: f32[70, 40], %s: f32[70, 90], %x: f32[70, 40], %w: f32[40, 90], \
         %k: f32[90, 9]) -> (f32[70, 90], f32[70, 9]) {
            %r: f32[70, 90] = aten::mm(%t, %w)
            %e: f32[70, 90] = aten::exp(%s)
            %g: f32[70, 90] = aten::mm(%x, %w)
            %a: f32[70, 90] = aten::add.Tensor(%g, %e)
            %p: f32[70, 90] = aten::add.Tensor(%a, %r)
            %b: f32[70, 90] = aten::mul.Tensor(%e, %p)
            %z: f32[70, 9] = aten::mm(%b, %k)
            return %a, %z
        }";
    let sizes: [&[i64]; 5] = [&[70, 40], &[70, 90], &[70, 40], &[40, 90], &[90, 9]];
    let graph = agree(text, &|| sizes.map(ramp).to_vec());
    assert!(graph.contains("[%x, %w, %s, %mm], [], [3, 1]"), "{graph}");
}

/// The product reads all of a factor for each part of its columns.
#[test]
fn a_factor_that_is_read_behind_the_product_is_not_overwritten() {
    for (m, n) in [(96, 96), (300, 700)] {
        let text = format!(
            "graph g(%x: f32[{m}, {n}], %w: f32[{n}, {n}]) -> (f32[{m}, {n}]) {{
                %e: f32[{m}, {n}] = aten::exp(%x)
                %p: f32[{m}, {n}] = aten::mm(%e, %w)
                %b: f32[{m}, {n}] = aten::add.Tensor(%e, %p)
                return %b
            }}"
        );
        agree(&text, &|| vec![ramp(&[m, n]), ramp(&[n, n])]);
    }
}
