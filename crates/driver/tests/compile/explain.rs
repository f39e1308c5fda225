//! What `explain` says.

use super::*;
use maquette_trace::Dim;
use std::collections::BTreeMap;

#[test]
fn programs_with_reasons_and_guards() {
    let f = CompileOptions::new().names(["x", "total"]).name("model").compile(
        |(x, total): (Tensor, Tensor)| -> Result<Tensor> {
            total.add_(x.sum());
            Ok(if x.size(0).gt(2).guard()? { x.relu() } else { x + 1.0 })
        },
    );
    insta::assert_snapshot!(f.explain(), @"`model`: not compiled yet, 0 of at most 8 programs");
    let total = Tensor::zeros([1], DType::F32);
    for x in [arange(3), arange(4), arange(2), rows(3).t(), arange(3).to_dtype(DType::F64)] {
        f.call((x, total.clone())).unwrap();
    }
    let all = arange(4);
    let (x, total) = (all.slice(0, 0..3), all.slice(0, 3..));
    f.call((x, total)).unwrap();
    insta::assert_snapshot!(without_lines(&f.explain().to_string()), @r"
    `model`: compiled 6 times, 6 of at most 8 programs
    program 0: the first call
      inputs: %x: f32[3], %total: f32[1]
      requires: no inputs that share memory which the program writes
      runs: 3 nodes, in planned memory of 4 buffers
      not fused: 1 pair of operators: they have no rows in common
    program 1: program 0 requires: size 0 of `x` is 3; found 4
      inputs: %x: f32[s0], %total: f32[1]
      symbols: s0 in [0, oo)
      requires: `s0 > 2`, at explain.rs:LINE
      requires: no inputs that share memory which the program writes
      runs: 3 nodes, in planned memory of 4 buffers
      not fused: 1 pair of operators: they have no rows in common
    program 2: program 1 requires: `s0 > 2`; found s0 = 2 (required at explain.rs:LINE)
      inputs: %x: f32[s0], %total: f32[1]
      symbols: s0 in [0, oo)
      requires: `s0 <= 2`, at explain.rs:LINE
      requires: no inputs that share memory which the program writes
      runs: 3 nodes, in planned memory of 4 buffers
      not fused: 1 pair of operators: they have no rows in common
    program 3: program 2 requires: the rank of `x` is 1; found 2
      inputs: %x: f32[3, 3] strides [1, 3], %total: f32[1]
      requires: no inputs that share memory which the program writes
      runs: 3 nodes, in planned memory of 4 buffers
      not fused: 1 pair of operators: they have no rows in common
    program 4: program 3 requires: the rank of `x` is 2; found 1
      inputs: %x: f64[3], %total: f32[1]
      requires: no inputs that share memory which the program writes
      runs: 3 nodes, in planned memory of 4 buffers
      not fused: 1 pair of operators: they have no rows in common
    program 5: program 1 requires: no inputs that share memory which the program writes; found `total` and `x`, which do
      inputs: %x: f32[s0], %total: f32[1]
      symbols: s0 in [0, oo)
      requires: `s0 > 2`, at explain.rs:LINE
      requires: inputs that share memory which the program writes
      runs: 3 nodes, as traced: inputs share memory that the program writes
    ");
}

#[test]
fn sizes_that_are_required() {
    let f = CompileOptions::new().names(["x"]).compile(|x: Tensor| -> Result<Tensor> {
        let n = x.size(0).guard_int()?;
        Ok(x * n as f64)
    });
    f.call(arange(3)).unwrap();
    f.call(arange(4)).unwrap();
    insta::assert_snapshot!(without_lines(&f.explain().to_string()), @r"
    `graph`: compiled 2 times, 2 of at most 8 programs
    program 0: the first call
      inputs: %x: f32[3]
      runs: 1 node, in planned memory of 2 buffers
    program 1: program 0 requires: size 0 of `x` is 3; found 4
      inputs: %x: f32[4]
      requires: size 0 of `x` is one number, at explain.rs:LINE
      runs: 1 node, in planned memory of 2 buffers
    ");
}

#[test]
fn conditions_on_two_sizes() {
    // whether the reshape is a view depends on both
    let f = CompileOptions::new()
        .dynamic(0, 0, Dim::new("n"))
        .dynamic(0, 1, Dim::new("m"))
        .stance(Stance::FailOnRecompile)
        .compile(|x: Tensor| x.t().reshape([-1i64]));
    f.call(rows(4)).unwrap();
    insta::assert_snapshot!(without_lines(&f.explain().to_string()), @r"
    `graph`: compiled once, 1 of at most 8 programs, stance FailOnRecompile
    program 0: the first call
      inputs: %in0: f32[n, m]
      symbols: n in [0, oo), m in [0, oo)
      requires: `n * max(1, m) != 1`, at explain.rs:LINE
      requires: `m != 1`, at explain.rs:LINE
      requires: `n > 1`, at explain.rs:LINE
      requires: `m * n != n`, at explain.rs:LINE
      requires: `m * n != 0`, at explain.rs:LINE
      requires: `n != 1 and max(1, m) != 1`, at explain.rs:LINE
      requires: `m != 0`, at explain.rs:LINE
      runs: 2 nodes, in planned memory of 2 buffers
    ");
}

#[test]
fn a_function_that_cannot_be_traced_with_symbols() {
    let f = compile(|x: Tensor| -> Result<Tensor> {
        let n = x.size(0).as_i64().ok_or_else(|| Error::msg("the size must be known"))?;
        Ok(x * n as f64)
    });
    assert_eq!(counts(&f, [3, 4], arange), [1, 2]);
    insta::assert_snapshot!(without_lines(&f.explain().to_string()), @r"
    `graph`: compiled 2 times, 2 of at most 8 programs
    program 0: the first call
      inputs: %in0: f32[3]
      runs: 1 node, in planned memory of 2 buffers
    program 1: program 0 requires: size 0 of `in0` is 3; found 4
      inputs: %in0: f32[4]
      without symbols: the size must be known
      runs: 1 node, in planned memory of 2 buffers
    ");
}

#[test]
fn inputs_are_named_by_their_places_in_the_tree() {
    type Inputs = (BTreeMap<String, Tensor>, Tensor, (Tensor, Vec<Tensor>));
    let f = compile(|(weights, x, (y, rest)): Inputs| {
        weights.into_values().chain([y]).chain(rest).fold(x, |sum, t| sum + t)
    });
    let t = || arange(2);
    let weights = ["w1", "w2"].map(|name| (name.to_owned(), t()));
    f.call((weights.into(), t(), (t(), vec![t(), t()]))).unwrap();
    let names: Vec<String> = f.explain().programs[0]
        .inputs
        .iter()
        .map(|input| input.split(':').next().unwrap().to_owned())
        .collect();
    assert_eq!(names, ["%in0_w1", "%in0_w2", "%in1", "%in2_0", "%in2_1_0", "%in2_1_1"]);
}

#[test]
fn a_memory_map_names_kernels_and_buffers_and_runs_nothing() {
    let f = compile(|(x, w): (Tensor, Tensor)| {
        x.add_(1.0);
        x.matmul(&w).softmax(-1)
    });
    let inputs = || (Tensor::zeros([2, 3], DType::F32), Tensor::ones([3, 4], DType::F32));
    let (x, w) = inputs();
    let map = f.memory_map((x.clone(), w)).unwrap().unwrap();
    assert_eq!(f.compilations(), 1);
    assert_eq!(x.to_vec::<f32>().unwrap(), [0.0; 6], "nothing runs");
    let labels: Vec<&str> = map.kernels.iter().map(|k| k.label.as_str()).collect();
    assert_eq!(labels.len(), 3, "{labels:?}");
    assert!(map.svg().starts_with("<svg"));
    f.call(inputs()).unwrap();
    assert_eq!(f.compilations(), 1);

    // a call that reads what it writes runs as it was traced
    let shared = compile(|(x, y): (Tensor, Tensor)| x.add_(&y));
    let x = arange(4);
    assert!(shared.memory_map((x.slice(0, 0..2), x.slice(0, 1..3))).unwrap().is_none());
    f.set_stance(Stance::ForceEager);
    let error = f.memory_map(inputs()).unwrap_err().to_string();
    assert!(error.contains("runs eagerly for this call, so there is no memory to map"), "{error}");
}
