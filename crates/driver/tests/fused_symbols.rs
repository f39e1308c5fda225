//! Operators are fused in programs of symbolic sizes that only guards make equal, with the bits of
//! the operators alone.

use maquette_driver::{CompileOptions, Compiled};
use maquette_ir::DType;
use maquette_ops::{Result, Tensor, composed_nests};

fn ramp(sizes: &[i64]) -> Tensor {
    ((Tensor::arange(sizes.iter().product::<i64>()) * 0.37).sin()).reshape(sizes.to_vec())
}

fn bits(t: &Tensor) -> Vec<u64> {
    let wide = t.contiguous().reshape([-1i64]).to_dtype(DType::F64);
    wide.to_vec::<f64>().unwrap().into_iter().map(f64::to_bits).collect()
}

fn indices(sizes: &[i64], n: i64) -> Tensor {
    let count = sizes.iter().product::<i64>();
    (Tensor::arange(count) * 7 + 3).remainder(n).to_dtype(DType::I64).reshape(sizes.to_vec())
}

type Function = fn(Vec<Tensor>) -> Result<Vec<Tensor>>;

/// Calls a program of symbolic sizes with several lists of inputs. Returns it.
#[track_caller]
fn agree(
    function: Function,
    inputs: Vec<Vec<Tensor>>,
) -> Compiled<Vec<Tensor>, Result<Vec<Tensor>>, Function> {
    let f = CompileOptions::symbolic().compile(function);
    for x in inputs {
        let expected: Vec<_> = function(x.clone()).unwrap().iter().map(bits).collect();
        let found = f.call(x).unwrap();
        assert!(found.iter().map(bits).eq(expected));
    }
    assert_eq!(f.explain().programs.len(), 1, "{}", f.explain());
    assert_eq!(f.explain().programs[0].unfused_layouts, 0, "{}", f.explain());
    f
}

/// A layer of an encoder: products with their biases, attention, and norms.
fn layer(x: Vec<Tensor>) -> Result<Vec<Tensor>> {
    let [x, weight, bias, norm] = &x[..] else { panic!("4 tensors") };
    let width = x.size(-1);
    let split = |t: Tensor| t.unflatten(-1, [4, -1]).transpose(1, 2);
    let [q, k, v] = [1.0, 0.5, 2.0].map(|c| split((x * c).linear(weight, Some(bias))));
    let scores = (q.matmul(&k.transpose(-2, -1)) * 0.25).softmax(-1);
    let mixed = scores.matmul(&v).transpose(1, 2).flatten(2, 3);
    let attended =
        (mixed.linear(weight, Some(bias)) + x).layer_norm([width], Some(norm), Some(bias), 1e-5);
    Ok(vec![(attended.linear(weight, Some(bias)).gelu() + attended).ok()?.clone()])
}

#[test]
fn another_size_composes_no_nest() {
    let inputs = |batch: i64, words: i64| {
        vec![ramp(&[batch, words, 16]), ramp(&[16, 16]), ramp(&[16]), ramp(&[16])]
    };
    let function: Function = layer;
    let f = CompileOptions::symbolic().compile(function);
    let before = composed_nests();
    f.call(inputs(3, 7)).unwrap();
    assert!(composed_nests() > before, "the first call composes the nests of fused regions");
    let before = composed_nests();
    for (batch, words) in [(2, 5), (5, 2), (4, 4), (16, 9), (11, 16)] {
        let expected = layer(inputs(batch, words)).unwrap();
        let found = f.call(inputs(batch, words)).unwrap();
        assert_eq!(bits(&found[0]), bits(&expected[0]), "{batch} and {words}");
    }
    assert_eq!(composed_nests(), before, "{}", f.explain());
}

#[test]
fn a_weight_and_a_bias_of_one_size() {
    let scaled: Function = |x| Ok(vec![(x[0].clone() * &x[1] + &x[2]).tanh()]);
    let norm: Function = |x| {
        let width = x[0].sizes()[1];
        Ok(vec![(x[0].clone() + 1.0).layer_norm([width], Some(&x[1]), Some(&x[2]), 1e-5).relu()])
    };
    let linear: Function = |x| Ok(vec![(x[0].matmul(&x[3]) * &x[1] + &x[2]).tanh()]);
    for (function, kind) in [(scaled, "elements"), (norm, "rows"), (linear, "product")] {
        let inputs = [[5, 40], [9, 384], [130, 33], [33, 33], [9, 1]].map(|[rows, width]| {
            let [weight, bias] = [ramp(&[width]), ramp(&[width]) * 0.5];
            vec![ramp(&[rows, width]), weight, bias, ramp(&[width, width])]
        });
        let f = agree(function, inputs.into());
        let program = &f.explain().programs[0];
        assert_eq!(program.fused.len(), 1, "{program}");
        assert!(program.fused[0].starts_with(kind), "{program}");
        assert!(program.not_fused.is_empty(), "{program}");
    }
}

#[test]
fn embeddings_of_indices_of_one_size() {
    let embedded: Function = |x| {
        let width = x[3].sizes()[1];
        let word = x[3].embedding(&x[0]).ok()?.clone();
        let kind = x[4].embedding(&x[1]).ok()?.clone();
        let place = x[5].embedding(&x[2]).ok()?.clone();
        let sum = word + kind + place;
        Ok(vec![sum.layer_norm([width], Some(&x[6]), Some(&x[7]), 1e-5)])
    };
    let inputs = [[4, 16, 384], [2, 3, 40], [3, 130, 33]].map(|[batch, length, width]| {
        let rows = [101, 5, 40];
        let ids = rows.map(|n| indices(&[batch, length], n));
        let tables = rows.map(|n| ramp(&[n, width]));
        let norm = [ramp(&[width]), ramp(&[width]) * 0.5];
        ids.into_iter().chain(tables).chain(norm).collect()
    });
    let f = agree(embedded, inputs.into());
    let program = &f.explain().programs[0];
    assert_eq!(program.fused.len(), 1, "{program}");
    let text = &program.fused[0];
    assert!(text.starts_with("rows") && text.matches("embedding").count() == 3, "{program}");
}

#[test]
fn a_size_that_others_determine() {
    let joined: Function = |x| Ok(vec![(Tensor::cat([&x[0], &x[0]], 0).exp() + &x[1]).tanh()]);
    let inputs = [[6, 40], [14, 304]].map(|[m, n]| vec![ramp(&[m, n]), ramp(&[2 * m, n])]);
    let f = agree(joined, inputs.into());
    let program = &f.explain().programs[0];
    assert_eq!(program.fused, ["elements: aten::exp, aten::add.Tensor, aten::tanh"], "{program}");
}
