//! Attention that is written as products and a softmax, as one kernel under `FastMath`.

#[path = "fast_math/recognised.rs"]
mod recognised;
#[path = "fast_math/refused.rs"]
mod refused;
#[path = "fast_math/types.rs"]
mod types;

use maquette_driver::{CompileOptions, Compiled, FastMath, NoAttentionReason, ProgramExplanation};
use maquette_ir::DType;
use maquette_ops::{Result, Tensor, Tree};

/// Query, key, value, and a mask.
type Operands = Vec<Tensor>;
type Attend = fn(Operands) -> Tensor;

/// Numbers with all digits in use.
fn waves(sizes: &[i64], frequency: f64) -> Tensor {
    let count: i64 = sizes.iter().product();
    let t = Tensor::arange(count).to_dtype(DType::F32);
    ((t + 1.0) * frequency).sin().view(sizes)
}

/// Two batches of three heads: 5 queries and 7 keys, 4 wide, and values, 6 wide.
fn heads() -> Operands {
    vec![waves(&[2, 3, 5, 4], 0.9), waves(&[2, 3, 7, 4], 1.3), waves(&[2, 3, 7, 6], 1.7)]
}

/// A bool mask under which each query sees some keys and not others.
fn some(sizes: &[i64]) -> Tensor {
    waves(sizes, 2.1).gt(-0.4)
}

fn with(mask: Tensor) -> Operands {
    let mut operands = heads();
    operands.push(mask);
    operands
}

fn fast() -> CompileOptions {
    CompileOptions::new().fast_math(FastMath::new().attention(true))
}

fn bits(t: &Tensor) -> Vec<u64> {
    numbers(t).into_iter().map(f64::to_bits).collect()
}

fn numbers(t: &Tensor) -> Vec<f64> {
    t.to_dtype(DType::F64).contiguous().to_vec::<f64>().unwrap()
}

/// Requires equal sizes, and strides that mean something; numbers that differ by rounding at most,
/// and NaN in the same places.
#[track_caller]
fn assert_close(found: &Tensor, expected: &Tensor, what: &str) {
    assert_eq!(found.dtype(), expected.dtype(), "{what}");
    assert_eq!(found.sizes_i64().unwrap(), expected.sizes_i64().unwrap(), "{what}");
    let strides = |t: &Tensor| -> Vec<Option<i64>> {
        let dims = t.strides().iter().zip(t.sizes());
        let dims = dims.filter(|(_, n)| !numbers(t).is_empty() && n.as_i64() != Some(1));
        dims.map(|(stride, _)| stride.as_i64()).collect()
    };
    assert_eq!(strides(found), strides(expected), "{what}");
    for (x, y) in numbers(found).into_iter().zip(numbers(expected)) {
        let is_close =
            x == y || (x - y).abs() <= 1e-5 * (1.0 + y.abs()) || x.is_nan() && y.is_nan();
        assert!(is_close, "{what}: {x} in place of {y}");
    }
}

/// The only program of a function.
#[track_caller]
fn program<I, O, F>(f: &Compiled<I, O, F>) -> ProgramExplanation {
    let mut programs = f.explain().programs;
    assert_eq!(programs.len(), 1);
    programs.remove(0)
}

/// How often a program calls an operator.
fn calls(program: &ProgramExplanation, op: &str) -> usize {
    program.graph.nodes().filter(|node| program.graph.op_name(*node) == op).count()
}

/// Requires a function to be one kernel under `FastMath`, with results that differ by rounding, and
/// to have the bits of the eager function without.
#[track_caller]
fn is_one_kernel(name: &str, f: impl Fn(Operands) -> Tensor + Copy, operands: &Operands) {
    let expected = f(operands.clone());
    let exact = CompileOptions::new().compile(f);
    let found = exact.call(operands.clone()).unwrap();
    assert_eq!(bits(&found), bits(&expected), "{name}");
    let without = program(&exact);
    assert_eq!(without.attention, None, "{name}");
    assert_eq!(calls(&without, "fast::attention"), 0, "{name}");
    let fast = fast().compile(f);
    let found = fast.call(operands.clone()).unwrap();
    assert_close(&found, &expected, name);
    let with = program(&fast);
    let attention = with.attention.as_ref().unwrap();
    assert_eq!((attention.recognized.len(), attention.refused.len()), (1, 0), "{name}: {with}");
    assert_eq!(calls(&with, "fast::attention"), 1, "{name}: {}", with.graph);
    for op in ["aten::matmul", "aten::bmm", "aten::mm", "aten::_softmax", "aten::softmax.int"] {
        assert_eq!(calls(&with, op), 0, "{name}: {}", with.graph);
    }
    assert!(with.is_compiled, "{name}: {with}");
}

/// Requires that a function is not recognised for a reason, and keeps the bits of the eager one.
#[track_caller]
fn is_refused<I: Tree, O: Tree>(
    reason: NoAttentionReason,
    f: impl Fn(I) -> O + Copy,
    inputs: impl Fn() -> I,
) {
    let (_, expected) = maquette_ops::tree::flatten_values(&f(inputs())).unwrap();
    let fast = fast().compile(f);
    let (_, found) = maquette_ops::tree::flatten_values(&fast.call(inputs()).unwrap()).unwrap();
    let of = |values: &[maquette_ops::Value]| -> Vec<Vec<u64>> {
        values.iter().flat_map(|value| value.tensors().map(bits)).collect()
    };
    assert_eq!(of(&found), of(&expected), "{reason:?}");
    let with = program(&fast);
    assert_eq!(calls(&with, "fast::attention"), 0, "{}", with.graph);
    let attention = with.attention.clone().unwrap();
    assert_eq!(attention.recognized, [], "{with}");
    let reasons: Vec<NoAttentionReason> = attention.refused.iter().map(|(_, why)| *why).collect();
    assert_eq!(reasons, [reason], "{with}");
}

/// `softmax(q kᵀ / 2) v`.
fn plain(t: Operands) -> Tensor {
    (t[0].matmul(&t[1].transpose(-2, -1)) / 2.0).softmax(-1).matmul(&t[2])
}

/// Not an error of a trace.
fn ok(t: Tensor) -> Result<Tensor> {
    t.ok().cloned()
}
