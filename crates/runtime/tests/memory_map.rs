//! Maps of memory: where buffers lie, when they are used, and the picture of it.

mod common;

use common::{fused, planned};
use maquette_aten as _;
use maquette_invoke::SourceInfo;
use maquette_ir::DType;
use maquette_ops::{Tensor, Value};
use maquette_runtime::memory_map::{BufferMemory, MemoryMap};

fn map(text: &str, sizes: &[&[i64]]) -> MemoryMap {
    let executable = fused(&planned(text));
    let ones = |sizes: &&[i64]| Value::Tensor(Tensor::ones(sizes.to_vec(), DType::F32));
    let inputs: Vec<Value> = sizes.iter().map(ones).collect();
    executable.memory_map(&inputs, &SourceInfo::of_caller()).unwrap().unwrap()
}

/// Six products in a row, of which each reads the two before.
fn chain() -> MemoryMap {
    let mut text =
        String::from("graph chain(%v0: f32[16, 16], %v1: f32[16, 16]) -> (f32[16, 16]) {\n");
    for i in 2..8 {
        let (a, b) = (i - 2, i - 1);
        text += &format!("%v{i}: f32[16, 16] = aten::mm(%v{a}, %v{b})\n");
    }
    map(&(text + "return %v7\n}"), &[&[16, 16], &[16, 16]])
}

#[test]
fn buffers_that_are_alive_together_share_no_byte() {
    let map = chain();
    assert_eq!(map.kernels.len(), 6);
    let placed: Vec<(u64, u64, (usize, usize))> = (map.buffers.iter())
        .filter_map(|b| match b.memory {
            BufferMemory::Arena { offset } => Some((offset, b.bytes, b.lifetime)),
            _ => None,
        })
        .collect();
    assert_eq!(placed.len(), 5);
    for (i, a) in placed.iter().enumerate() {
        assert!(a.0 + a.1 <= map.arena_bytes);
        for b in &placed[..i] {
            let apart = a.0 + a.1 <= b.0 || b.0 + b.1 <= a.0;
            let together = a.2.0 <= b.2.1 && b.2.0 <= a.2.1;
            assert!(apart || !together, "{map}");
        }
    }
    assert_eq!((map.arena_bytes, map.live_bytes()), (3 * 1024, 3 * 1024));
    assert_eq!(map.bytes_without_sharing(), 5 * 1024);
}

#[test]
fn a_map_has_a_text() {
    insta::assert_snapshot!(chain(), @r"
    arena of 3072 bytes; 3072 are in use at one time, 5120 without sharing
      input                      1024 bytes  kernels 0–5       v0
      input                      1024 bytes  kernels 0–5       v1
      arena + 0                  1024 bytes  kernels 0–2       mm
      arena + 1024               1024 bytes  kernels 1–3       mm_1
      arena + 2048               1024 bytes  kernels 2–4       mm_2
      arena + 0                  1024 bytes  kernels 3–5       mm_3
      arena + 1024               1024 bytes  kernels 4–5       mm_4
      output                     1024 bytes  kernels 5         mm_5
    ");
}

#[test]
fn a_map_ends_where_a_size_depends_on_data() {
    let text = "graph g(%x: f32[4]) -> (i64[u0, 1]) where u0 in [0, oo) {
        %y: f32[4] = aten::exp(%x)
        %nonzero: i64[u0, 1] strides [1, u0] = aten::nonzero(%y)
        bind u0 = size(%nonzero, 0)
        %z: i64[u0, 1] = aten::clone(%nonzero)
        return %z
    }";
    let map = map(text, &[&[4]]);
    assert!(map.ends_early && map.to_string().contains("up to the first size"));
    let labels: Vec<&str> = map.kernels.iter().map(|k| &k.label[..]).collect();
    assert_eq!(labels, ["exp", "nonzero"]);
}

/// The numbers of an attribute, in the order of the picture.
fn numbers(svg: &str, tag: &str, attribute: &str) -> Vec<f64> {
    let key = format!(" {attribute}=\"");
    let of_tag = svg.split('<').filter(|part| part.starts_with(tag));
    let value = |part: &str| part.split(&key).nth(1)?.split('"').next()?.parse().ok();
    of_tag.filter_map(value).collect()
}

#[test]
fn a_picture_has_a_rectangle_for_each_buffer() {
    let map = chain();
    let svg = map.svg();
    let [x, y, width, height] =
        ["x", "y", "width", "height"].map(|attribute| numbers(&svg, "rect", attribute));
    // the background has no numbers
    assert_eq!(x.len(), map.buffers.len());
    let (all, below) = (numbers(&svg, "svg", "width")[0], numbers(&svg, "svg", "height")[0]);
    for i in 0..x.len() {
        assert!(x[i] >= 0.0 && x[i] + width[i] <= all, "{svg}");
        assert!(y[i] >= 0.0 && y[i] + height[i] <= below, "{svg}");
        for j in 0..i {
            let apart = |a: f64, size: f64, b: f64, other: f64| {
                a + size <= b + 0.11 || b + other <= a + 0.11
            };
            let beside = apart(x[i], width[i], x[j], width[j]);
            assert!(beside || apart(y[i], height[i], y[j], height[j]), "{i} {j} {svg}");
        }
    }
    for open in ["svg", "text", "title"] {
        let count = |text: &str| svg.matches(text).count();
        assert_eq!(count(&format!("<{open}")), count(&format!("</{open}>")), "{open}");
    }
}

#[test]
fn names_are_escaped() {
    let mut map = chain();
    map.name = "a<b & c>".to_owned();
    map.buffers[0].values = vec!["<&>".to_owned()];
    let svg = map.svg();
    assert!(svg.contains("a&lt;b &amp; c&gt;") && svg.contains("&lt;&amp;&gt;"));
    assert!(!svg.contains("a<b"));
}

#[test]
fn an_empty_program_has_a_map() {
    let map = map("graph g(%x: f32[4]) -> (f32[4]) {\n return %x\n}", &[&[4]]);
    assert!(map.kernels.is_empty() && map.svg().ends_with("</svg>\n"));
}
