//! The operators on which recognition depends.

use crate::Decompose;
use maquette_aten::attention_parts::operators;
use maquette_ir::DType;
use maquette_ops::Tensor;
use maquette_trace::{Dim, TraceOptions};

fn ramp(sizes: &[i64]) -> Tensor {
    Tensor::arange(sizes.iter().product::<i64>()).to_dtype(DType::F32).view(sizes) / 16.0
}

#[test]
fn operators_exist() {
    let names: Vec<&str> = operators().iter().map(|op| op.name()).collect();
    assert_eq!(names.len(), 27, "{names:?}");
    assert!(operators().iter().all(|op| op.is_plain_builtin()));
}

/// An override of an operator that a pattern calls must be seen.
#[test]
fn operators_that_patterns_call_are_watched() {
    let patterns: [fn(&Tensor, &Tensor, &Tensor) -> Tensor; 3] = [
        |q, k, v| {
            let mask = Tensor::ones([1], DType::Bool);
            let scores = (q * 0.5).matmul(&k.mT()).masked_fill(&mask, f64::NEG_INFINITY);
            scores.softmax_dtype(-1, DType::F32).dropout(0.1, false).matmul(v)
        },
        |q, k, v| {
            let mask = Tensor::ones([1], DType::Bool);
            let scores = mask.where_(q.matmul(&k.transpose(-2, -1)) / 2.0, f64::NEG_INFINITY);
            scores.softmax(-1).matmul(v)
        },
        |q, k, v| (q.matmul(&k.mT()) * 0.5 + 1.0 * q.sum()).softmax(-1).matmul(v),
    ];
    let watched: Vec<&str> = operators().iter().map(|op| op.name()).collect();
    // What makes the operands and the masks of these patterns.
    let others = ["aten::ones", "aten::sum", "aten::full"];
    let sizes: [[&[i64]; 3]; 4] = [
        [&[5, 4], &[7, 4], &[7, 6]],
        [&[3, 5, 4], &[3, 7, 4], &[3, 7, 6]],
        [&[2, 3, 5, 4], &[3, 7, 4], &[7, 6]],
        [&[2, 5, 3, 4], &[2, 5, 7, 4], &[1, 5, 7, 6]],
    ];
    for (pattern, sizes) in patterns.iter().flat_map(|p| sizes.map(|sizes| (p, sizes))) {
        for is_symbolic in [false, true] {
            let mut options = TraceOptions::new();
            if is_symbolic {
                options = options.dynamic(0, sizes[0].len() - 2, Dim::new("n"));
            }
            let [q, k, v] = sizes.map(ramp);
            let traced = options.trace(
                |(q, k, v): (Tensor, Tensor, Tensor)| pattern(&q, &k, &v),
                (q.transpose(-2, -1).contiguous().transpose(-2, -1), k, v),
            );
            let (decomposed, _) = traced.unwrap().decompose().unwrap();
            let graph = decomposed.graph();
            for name in graph.nodes().map(|node| graph.op_name(node)) {
                let is_watched = watched.contains(&name) || others.contains(&name);
                assert!(is_watched, "{name} in {graph}");
            }
        }
    }
}
