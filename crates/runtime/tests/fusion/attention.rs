//! Attention between products: its kernel reads heads where the products write them, and writes its
//! result where the next product reads it.

use super::{agree, compiled, ramp};
use maquette_ir::fused::NoFusionReason;
use maquette_ops::Value;
use maquette_ops::library::Facts;
use maquette_rewrite::plan;

/// An attention of `heads` heads over `groups` heads of keys and values, each four wide.
fn attention(heads: i64, groups: i64, mask: &str, rest: &str) -> String {
    let (q, k) = (4 * heads, 4 * groups);
    format!(
        "graph g(%x: f32[b, t, 12], %wq: f32[12, {q}], %wk: f32[12, {k}], %o: f32[{q}, 9]{mask}) \
            -> (f32[b*t, 9]) where b in [1, oo), t in [1, oo) {{
            %f: f32[b*t, 12] = aten::view(%x, [b*t, 12])
            %p: f32[b*t, {q}] = aten::mm(%f, %wq)
            %v: f32[b, t, {heads}, 4] = aten::view(%p, [b, t, {heads}, 4])
            %q: f32[b, {heads}, t, 4] strides [{q}*t, 4, {q}, 1] = aten::transpose.int(%v, 1, 2)
            %n: f32[b*t, {k}] = aten::mm(%f, %wk)
            %m: f32[b, t, {groups}, 4] = aten::view(%n, [b, t, {groups}, 4])
            %k: f32[b, {groups}, t, 4] strides [{k}*t, 4, {k}, 1] = aten::transpose.int(%m, 1, 2)
            %y: f32[b, {heads}, t, 4] = aten::scaled_dot_product_attention(%q, %k, %k, {rest})
            %u: f32[b, t, {heads}, 4] strides [{q}*t, 4, 4*t, 1] = aten::transpose.int(%y, 1, 2)
            %c: f32[b, t, {heads}, 4] = aten::clone(%u, memory_format=memory_format(contiguous_format))
            %r: f32[b*t, {q}] = aten::view(%c, [b*t, {q}])
            %z: f32[b*t, 9] = aten::mm(%r, %o)
            %g: f32[b*t, 9] = aten::gelu(%z)
            return %g
        }}"
    )
}

#[track_caller]
fn copies_nothing(text: &str, inputs: &dyn Fn() -> Vec<Value>, reason: NoFusionReason) {
    agree(text, inputs);
    let (executable, _) = compiled(text);
    let fused = executable.fused().unwrap();
    let plan = plan(&fused.program, &Facts).unwrap();
    assert_eq!(fused.program.copies_at_most(&plan), Some(0), "{}", fused.program.graph);
    let name = |node| fused.original.graph.op_name(node);
    let into_attention = fused.refusals.iter().filter(|r| name(r.consumer).contains("attention"));
    let reasons: Vec<NoFusionReason> = into_attention.map(|r| r.reason).collect();
    assert!(reasons.iter().all(|r| *r == reason), "{reasons:?}");
}

#[test]
fn heads_are_read_and_written_in_place() {
    let text = attention(3, 3, "", "None, 0.0, false");
    let inputs = || vec![ramp(&[2, 5, 12]), ramp(&[12, 12]), ramp(&[12, 12]), ramp(&[12, 9])];
    copies_nothing(&text, &inputs, NoFusionReason::LosesSpecialisation);
    let causal = attention(3, 3, "", "None, 0.0, true");
    copies_nothing(&causal, &inputs, NoFusionReason::LosesSpecialisation);
}

#[test]
fn a_mask_is_read_with_broadcasting() {
    let text = attention(3, 3, ", %a: f32[b, 1, 1, t]", "%a, 0.0, false");
    let inputs = || {
        let [w, o] = [ramp(&[12, 12]), ramp(&[12, 9])];
        vec![ramp(&[2, 5, 12]), w.clone(), w, o, ramp(&[2, 1, 1, 5])]
    };
    copies_nothing(&text, &inputs, NoFusionReason::LosesSpecialisation);
}

#[test]
fn heads_of_the_query_share_keys() {
    let text = attention(4, 2, "", "None, 0.0, true, scale=0.3, enable_gqa=true");
    let inputs = || vec![ramp(&[2, 5, 12]), ramp(&[12, 16]), ramp(&[12, 8]), ramp(&[16, 9])];
    // Which head of the keys it is takes a division.
    copies_nothing(&text, &inputs, NoFusionReason::Assert);
}
