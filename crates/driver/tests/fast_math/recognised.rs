//! What is recognised.

use super::*;
use maquette_runtime::profile::ProfileOptions;

const HIDDEN: f64 = f64::NEG_INFINITY;

#[test]
fn factors_of_queries_keys_and_scores() {
    let cases: [(&str, Attend); 10] = [
        ("no factor", |t| t[0].matmul(&t[1].transpose(-2, -1)).softmax(-1).matmul(&t[2])),
        ("a quotient", plain),
        ("a product", |t| (t[0].matmul(&t[1].mT()) * 0.3).softmax(3).matmul(&t[2])),
        ("an integer", |t| (t[0].matmul(&t[1].mT()) * 2).softmax(-1).matmul(&t[2])),
        ("negative", |t| (t[0].matmul(&t[1].mT()) * -0.4).softmax(-1).matmul(&t[2])),
        ("of queries", |t| (&t[0] * 0.3).matmul(&t[1].mT()).softmax(-1).matmul(&t[2])),
        ("of keys", |t| t[0].matmul(&(&t[1] / 3.0).mT()).softmax(-1).matmul(&t[2])),
        ("of columns", |t| t[0].matmul(&(t[1].mT() * 0.3)).softmax(-1).matmul(&t[2])),
        ("of both", |t| {
            (&t[0] * 0.7).matmul(&(&t[1] * 0.7).transpose(2, 3)).softmax(-1).matmul(&t[2])
        }),
        ("of all", |t| {
            let scores = (&t[0] * 0.7).matmul(&((&t[1] / 2.0).mT() * 1.5)) * 0.5 / 0.7;
            scores.softmax(-1).matmul(&t[2])
        }),
    ];
    for (name, f) in cases {
        is_one_kernel(name, f, &heads());
    }
}

#[test]
fn masks() {
    let added: Attend = |t| (t[0].matmul(&t[1].mT()) * 0.5 + &t[3]).softmax(-1).matmul(&t[2]);
    let to_mask: Attend = |t| (&t[3] + t[0].matmul(&t[1].mT()) * 0.5).softmax(-1).matmul(&t[2]);
    for sizes in [&[2, 3, 5, 7][..], &[2, 1, 1, 7], &[3, 5, 1], &[5, 7], &[7], &[1], &[]] {
        is_one_kernel("added", added, &with(waves(sizes, 0.6)));
        is_one_kernel("scores added to it", to_mask, &with(waves(sizes, 0.6)));
    }
    let filled: Attend =
        |t| (t[0].matmul(&t[1].mT()) * 0.5).masked_fill(&t[3], HIDDEN).softmax(-1).matmul(&t[2]);
    let chosen: Attend =
        |t| t[3].where_(t[0].matmul(&t[1].mT()) * 0.5, HIDDEN).softmax(-1).matmul(&t[2]);
    let left_out: Attend =
        |t| t[3].where_(HIDDEN, t[0].matmul(&t[1].mT()) * 0.5).softmax(-1).matmul(&t[2]);
    for sizes in [&[2, 3, 5, 7][..], &[2, 1, 1, 7], &[3, 5, 7], &[5, 7], &[7]] {
        is_one_kernel("filled", filled, &with(some(sizes)));
        is_one_kernel("chosen", chosen, &with(some(sizes)));
        is_one_kernel("left out", left_out, &with(some(sizes)));
    }
    // the mask of a decoder, made in the program; a mask in another order
    let causal: Attend = |t| {
        let seen = Tensor::ones([5, 7], DType::Bool).tril(2);
        seen.where_(t[0].matmul(&t[1].mT()) * 0.5, HIDDEN).softmax(-1).matmul(&t[2])
    };
    is_one_kernel("causal", causal, &heads());
    is_one_kernel("transposed", added, &with(waves(&[7, 5], 0.6).t()));
}

#[test]
fn layouts_of_operands() {
    let columns: Attend = |t| (t[0].matmul(&t[1]) * 0.5).softmax(-1).matmul(&t[2]);
    let mut operands = heads();
    operands[1] = waves(&[2, 3, 4, 7], 1.3);
    is_one_kernel("keys as columns", columns, &operands);
    operands[1] = waves(&[2, 3, 7, 4], 1.3).mT();
    is_one_kernel("keys as columns of rows", columns, &operands);
    let permuted: Attend = |t| {
        (t[0].matmul(&t[1].permute([0, 2, 3, 1])) * 0.5).softmax(-1).matmul(&t[2].transpose(1, 2))
    };
    operands[1] = waves(&[2, 7, 3, 4], 1.3);
    operands[2] = waves(&[2, 7, 3, 6], 1.7);
    is_one_kernel("heads inside", permuted, &operands);
    let exchanged: Attend =
        |t| (t[0].matmul(&t[1].permute([0, 1, 3, 2])) * 0.5).softmax(-1).matmul(&t[2]);
    is_one_kernel("permuted", exchanged, &heads());
    // the transposed keys have another user
    let shared: Attend = |t| {
        let columns = (&t[1] * 0.5).mT();
        let y = t[0].matmul(&columns).softmax(-1).matmul(&t[2]);
        y + columns.sum()
    };
    is_one_kernel("shared keys", shared, &heads());
}

#[test]
fn ranks_and_batches() {
    let matrices = || vec![waves(&[5, 4], 0.9), waves(&[7, 4], 1.3), waves(&[7, 6], 1.7)];
    is_one_kernel("mm", |t| (t[0].mm(&t[1].t()) * 0.5).softmax(-1).mm(&t[2]), &matrices());
    is_one_kernel("matmul", plain, &matrices());
    let batch = || vec![waves(&[3, 5, 4], 0.9), waves(&[3, 7, 4], 1.3), waves(&[3, 7, 6], 1.7)];
    is_one_kernel("bmm", |t| (t[0].bmm(&t[1].mT()) * 0.5).softmax(2).bmm(&t[2]), &batch());
    let one_key = vec![waves(&[2, 3, 5, 4], 0.9), waves(&[1, 4], 1.3), waves(&[3, 1, 6], 1.7)];
    is_one_kernel("broadcast", plain, &one_key);
    let shared = vec![waves(&[5, 4], 0.9), waves(&[2, 3, 7, 4], 1.3), waves(&[7, 6], 1.7)];
    is_one_kernel("shared queries and values", plain, &shared);
    let values = vec![waves(&[5, 4], 0.9), waves(&[7, 4], 1.3), waves(&[2, 7, 6], 1.7)];
    is_one_kernel("batches of values", plain, &values);
}

#[test]
fn what_does_nothing() {
    let dropout: Attend = |t| t[0].matmul(&t[1].mT()).softmax(-1).dropout(0.3, false).matmul(&t[2]);
    is_one_kernel("dropout", dropout, &heads());
    let never: Attend = |t| t[0].matmul(&t[1].mT()).softmax(-1).dropout(0.0, true).matmul(&t[2]);
    is_one_kernel("dropout of nothing", never, &heads());
    let to: Attend = |t| t[0].matmul(&t[1].mT()).softmax_dtype(-1, DType::F32).matmul(&t[2]);
    is_one_kernel("dtype", to, &heads());
}

#[test]
fn a_profile_has_one_kernel() {
    let f = fast().compile(plain);
    let profile = f.profile(heads(), &ProfileOptions::new().warm_up(1).repeat(1)).unwrap();
    let names: Vec<String> = profile.kernels.iter().map(|kernel| kernel.label()).collect();
    assert_eq!(names.len(), 1, "{names:?}");
    assert!(names[0].contains("attention"), "{names:?}");
}

/// A layer of an encoder: heads are split and joined by views.
fn layer(x: &Tensor, weights: &[Tensor], mask: &Tensor) -> Tensor {
    let split = |w: &Tensor| x.linear(w, None).unflatten(-1, [3, -1]).transpose(1, 2);
    let [q, k, v] = [0, 1, 2].map(|i| split(&weights[i]));
    let scores = q.matmul(&k.transpose(-2, -1)) / 2.0 + mask;
    let y = scores.softmax(-1).matmul(&v).transpose(1, 2).flatten(2, 3);
    x + y.linear(&weights[3], None)
}

#[test]
fn layers_of_an_encoder() {
    let weights: Vec<Tensor> = (0..8).map(|i| waves(&[12, 12], 0.2 + i as f64) / 3.0).collect();
    let f = |(x, mask): (Tensor, Tensor)| {
        let mask = mask.unsqueeze(1).unsqueeze(1);
        weights.chunks(4).fold(x, |x, weights| layer(&x, weights, &mask))
    };
    let inputs = || (waves(&[2, 5, 12], 0.7), waves(&[2, 5], 0.6));
    let compiled = fast().compile(f);
    assert_close(&compiled.call(inputs()).unwrap(), &f(inputs()), "layers");
    let found = program(&compiled);
    assert_eq!(calls(&found, "fast::attention"), 2, "{}", found.graph);
    // the heads are read and written where the products have them
    let profile = compiled.profile(inputs(), &ProfileOptions::new().warm_up(1).repeat(1)).unwrap();
    let names: Vec<String> = profile.kernels.iter().map(|kernel| kernel.label()).collect();
    assert_eq!(names.iter().filter(|name| name.contains("attention")).count(), 2, "{names:?}");
    assert!(!names.iter().any(|name| name.contains("clone") || name.contains("copy")), "{names:?}");
}

#[test]
fn symbolic_sizes() {
    let f = |(q, k, v, mask): (Tensor, Tensor, Tensor, Tensor)| {
        (q.matmul(&k.mT()) * 0.5 + mask).softmax(-1).matmul(&v)
    };
    let options = CompileOptions::symbolic().fast_math(FastMath::all());
    let compiled = options.compile(f);
    for [b, n, l] in [[2, 5, 7], [3, 2, 9], [4, 130, 140], [2, 1, 1], [2, 5, 0], [0, 5, 7]] {
        let inputs = || {
            let [q, k, v] = [[b, 3, n, 4], [b, 3, l, 4], [b, 3, l, 6]].map(|s| waves(&s, 0.9));
            (q, k, v, waves(&[b, 1, 1, l], 0.6))
        };
        let found = compiled.call(inputs()).unwrap();
        assert_close(&found, &f(inputs()), &format!("{b} {n} {l}"));
    }
    for found in compiled.explain().programs {
        assert_eq!(calls(&found, "fast::attention"), 1, "{}", found.graph);
        assert!(!found.ranges.is_empty(), "{found}");
    }
}

#[test]
fn sizes_that_change_become_symbols() {
    let compiled = fast().compile(plain);
    for n in [5, 6, 7, 1, 0] {
        let inputs = || vec![waves(&[n, 4], 0.9), waves(&[7, 4], 1.3), waves(&[7, 6], 1.7)];
        assert_close(&compiled.call(inputs()).unwrap(), &plain(inputs()), "rows");
    }
    assert_eq!(compiled.compilations(), 2);
    for found in compiled.explain().programs {
        assert_eq!(calls(&found, "fast::attention"), 1, "{}", found.graph);
    }
}

/// Such a program runs as it was traced, after the rewrite.
#[test]
fn inputs_that_share_memory_which_the_program_writes() {
    let f = |t: Operands| {
        t[3].add_(1.0);
        plain(t)
    };
    let inputs = || {
        let all = heads();
        let shared = all[0].select(-1, 0);
        vec![all[0].clone(), all[1].clone(), all[2].clone(), shared]
    };
    let compiled = fast().compile(f);
    assert_close(&compiled.call(inputs()).unwrap(), &f(inputs()), "shared");
    let found = program(&compiled);
    assert_eq!((calls(&found, "fast::attention"), found.is_compiled), (1, false), "{found}");
}

/// The inner attention is recognised. The outer one reads it as its scores, and stays.
#[test]
fn an_attention_whose_result_is_the_scores_of_another() {
    let inner: Attend = |t| (t[0].matmul(&t[1].mT()) * 0.5).softmax(-1).matmul(&t[2]);
    let cases: [Attend; 2] = [
        |t| {
            let scores = (t[0].matmul(&t[1].mT()) * 0.5).softmax(-1).matmul(&t[2]);
            scores.softmax(-1).matmul(&t[3])
        },
        |t| {
            let scores = (t[0].matmul(&t[1].mT()) * 0.5).softmax(-1).matmul(&t[2]);
            (scores * 0.5).softmax(-1).matmul(&t[3])
        },
    ];
    let operands = with(waves(&[2, 3, 6, 4], 0.6));
    is_one_kernel("inner", inner, &operands);
    for f in cases {
        let compiled = fast().compile(f);
        assert_close(&compiled.call(operands.clone()).unwrap(), &f(operands.clone()), "nested");
        let found = program(&compiled);
        let attention = found.attention.as_ref().unwrap();
        assert_eq!((attention.recognized.len(), attention.refused.len()), (1, 1));
        assert_eq!(attention.refused[0].1, NoAttentionReason::Nested);
        assert_eq!(calls(&found, "fast::attention"), 1);
    }
}
