//! Images whose channels are last in memory.

use super::{agree, compiled, ramp};
use maquette_ops::Value;
use maquette_ops::library::Facts;
use maquette_rewrite::plan;

/// Where the fused program writes its values: a line for each node with a buffer.
#[track_caller]
fn written(text: &str) -> String {
    let (executable, _) = compiled(text);
    let program = &executable.fused().expect("something is fused").program;
    let plan = plan(program, &Facts).unwrap().display(&program.graph).to_string();
    let lines = plan.lines().filter_map(|line| line.split_once(" writes "));
    let lines: Vec<&str> = lines.map(|(_, writes)| writes).collect();
    lines.join("\n")
}

const STEP: &str = "[1, 1], [1, 1], [1, 1], false, [0, 0]";
const POINT: &str = "[1, 1], [0, 0], [1, 1], false, [0, 0]";

/// A residual block with a depthwise convolution between two others.
fn block(n: &str, h: &str, w: &str, constraints: &str) -> String {
    let of = |c: i64| format!("f32[{n}, {c}, {h}, {w}]");
    let (narrow, wide) = (of(16), of(32));
    format!(
        "graph g(%x: f32[{n}, 3, {h}, {w}], %k: f32[16, 3, 3, 3], %a: f32[32, 16, 1, 1], %b: f32[32, 1, 3, 3], %c: f32[16, 32, 1, 1]) -> ({narrow}) {constraints} {{
            %s: {narrow} = aten::convolution(%x, %k, None, {STEP}, 1)
            %t: {narrow} = aten::relu(%s)
            %p: {wide} = aten::convolution(%t, %a, None, {POINT}, 1)
            %q: {wide} = aten::relu(%p)
            %d: {wide} = aten::convolution(%q, %b, None, {STEP}, 32)
            %e: {wide} = aten::relu(%d)
            %f: {narrow} = aten::convolution(%e, %c, None, {POINT}, 1)
            %r: {narrow} = aten::add.Tensor(%f, %t)
            %u: {narrow} = aten::convolution(%r, %k2, None, {POINT}, 1)
            %z: {narrow} = aten::relu(%u)
            return %z
        }}"
    )
    .replace("%c: f32[16, 32, 1, 1])", "%c: f32[16, 32, 1, 1], %k2: f32[16, 16, 1, 1])")
}

fn weights() -> Vec<Value> {
    vec![
        ramp(&[16, 3, 3, 3]),
        ramp(&[32, 16, 1, 1]),
        ramp(&[32, 1, 3, 3]),
        ramp(&[16, 32, 1, 1]),
        ramp(&[16, 16, 1, 1]),
    ]
}

#[test]
fn channels_between_convolutions_are_last() {
    let text = block("2", "15", "14", "");
    agree(&text, &|| [vec![ramp(&[2, 3, 15, 14])], weights()].concat());
    insta::assert_snapshot!(written(&text));
}

#[test]
fn sizes_of_images_may_be_symbols() {
    let text = block("n", "h", "w", "where n in [1, oo), h in [3, oo), w in [3, oo)");
    for (h, w) in [(15, 14), (28, 30)] {
        agree(&text, &|| [vec![ramp(&[2, 3, h, w])], weights()].concat());
    }
    insta::assert_snapshot!(written(&text));
}

#[test]
fn pools_keep_the_layout() {
    let text = format!(
        "graph g(%x: f32[2, 3, 30, 30], %k: f32[64, 3, 3, 3], %l: f32[20, 64, 3, 3]) -> (f32[2, 20]) {{
            %a: f32[2, 64, 30, 30] = aten::convolution(%x, %k, None, {STEP}, 1)
            %b: f32[2, 64, 30, 30] = aten::relu(%a)
            %c: f32[2, 64, 15, 15] = aten::max_pool2d(%b, [3, 3], [2, 2], [1, 1])
            %d: f32[2, 20, 15, 15] = aten::convolution(%c, %l, None, {STEP}, 1)
            %e: f32[2, 20, 15, 15] = aten::relu(%d)
            %f: f32[2, 20, 1, 1] = aten::_adaptive_avg_pool2d(%e, [1, 1])
            %g: f32[2, 20] = aten::view(%f, [2, 20])
            return %g
        }}"
    );
    let inputs = || vec![ramp(&[2, 3, 30, 30]), ramp(&[64, 3, 3, 3]), ramp(&[20, 64, 3, 3])];
    agree(&text, &inputs);
    insta::assert_snapshot!(written(&text));
}

#[test]
fn parts_of_a_concatenation_are_parts_of_pixels() {
    let text = format!(
        "graph g(%x: f32[2, 16, 9, 8], %k: f32[16, 16, 3, 3], %l: f32[32, 16, 1, 1], %m: f32[16, 48, 1, 1]) -> (f32[2, 16, 9, 8]) {{
            %a: f32[2, 16, 9, 8] = aten::convolution(%x, %k, None, {STEP}, 1)
            %b: f32[2, 16, 9, 8] = aten::relu(%a)
            %c: f32[2, 32, 9, 8] = aten::convolution(%x, %l, None, {POINT}, 1)
            %d: f32[2, 32, 9, 8] = aten::relu(%c)
            %e: f32[2, 48, 9, 8] = aten::cat([%b, %d], 1)
            %f: f32[2, 16, 9, 8] = aten::convolution(%e, %m, None, {POINT}, 1)
            %z: f32[2, 16, 9, 8] = aten::relu(%f)
            return %z
        }}"
    );
    let inputs = || {
        vec![
            ramp(&[2, 16, 9, 8]),
            ramp(&[16, 16, 3, 3]),
            ramp(&[32, 16, 1, 1]),
            ramp(&[16, 48, 1, 1]),
        ]
    };
    agree(&text, &inputs);
    insta::assert_snapshot!(written(&text));
}

#[test]
fn images_that_others_read_are_planes() {
    // A softmax of the columns of a plane knows of no images.
    let text = format!(
        "graph g(%x: f32[2, 3, 15, 14], %k: f32[16, 3, 3, 3], %l: f32[16, 16, 3, 3]) -> (f32[2, 16, 15, 14], f32[2, 16, 15, 14]) {{
            %a: f32[2, 16, 15, 14] = aten::convolution(%x, %k, None, {STEP}, 1)
            %b: f32[2, 16, 15, 14] = aten::relu(%a)
            %c: f32[2, 16, 15, 14] = aten::convolution(%b, %l, None, {STEP}, 1)
            %d: f32[2, 16, 15, 14] = aten::relu(%c)
            %s: f32[2, 16, 15, 14] = aten::_softmax(%b, 3, false)
            return %d, %s
        }}"
    );
    let inputs = || vec![ramp(&[2, 3, 15, 14]), ramp(&[16, 3, 3, 3]), ramp(&[16, 16, 3, 3])];
    agree(&text, &inputs);
    assert!(!written(&text).contains("strides"), "{}", written(&text));
}
