//! What is not recognised, and why.

use super::NoAttentionReason::{
    Dropout, Mask, Operands as WrongOperands, OtherUse, Scale, Scores, SoftmaxDim, Write,
};
use super::*;
use maquette_ops::func::value_and_grad;
use maquette_ops::library::Effect;
use maquette_ops::{FakeCtx, args, custom_op};

const HIDDEN: f64 = f64::NEG_INFINITY;

/// The scores of queries and keys.
fn scores(t: &Operands) -> Tensor {
    t[0].matmul(&t[1].mT()) * 0.5
}

#[test]
fn other_uses() {
    // a second reader of the scores, of the weights, of the product; outputs; the mask
    let read_scores = |t: Operands| {
        let scores = scores(&t);
        scores.softmax(-1).matmul(&t[2]) + scores.sum()
    };
    is_refused(OtherUse, read_scores, heads);
    let read_product = |t: Operands| {
        let product = t[0].matmul(&t[1].mT());
        (&product * 0.5).softmax(-1).matmul(&t[2]) + product.sum()
    };
    is_refused(OtherUse, read_product, heads);
    let returned = |t: Operands| {
        let weights = scores(&t).softmax(-1);
        (weights.matmul(&t[2]), weights)
    };
    is_refused(OtherUse, returned, heads);
    let masked_by_itself = |t: Operands| {
        let scores = scores(&t);
        scores.masked_fill(&scores.lt(0.0), HIDDEN).softmax(-1).matmul(&t[2])
    };
    is_refused(OtherUse, masked_by_itself, heads);
    let doubled = |t: Operands| {
        let scores = scores(&t);
        (&scores + &scores).softmax(-1).matmul(&t[2])
    };
    is_refused(OtherUse, doubled, heads);
    let times_itself = |t: Operands| {
        let weights = t[0].matmul(&t[0].mT()).softmax(-1);
        weights.matmul(&weights)
    };
    is_refused(OtherUse, times_itself, heads);
    // a gradient reads the weights again
    let gradient = |t: Operands| -> Result<(Tensor, Operands)> {
        value_and_grad(|t: Operands| plain(t).sum())(t)
    };
    let matrices = || vec![waves(&[5, 4], 0.9), waves(&[7, 4], 1.3), waves(&[7, 6], 1.7)];
    is_refused(OtherUse, gradient, matrices);
}

#[test]
fn another_softmax() {
    is_refused(SoftmaxDim, |t: Operands| scores(&t).softmax(-2).matmul(&t[2]), heads);
    is_refused(SoftmaxDim, |t: Operands| scores(&t).softmax(1).matmul(&t[2]), heads);
    let drawn = |t: Operands| scores(&t).softmax(-1).dropout(0.5, true).matmul(&t[2]);
    let f = fast().compile(drawn);
    f.call(heads()).unwrap();
    assert_eq!(program(&f).attention.unwrap().refused[0].1, Dropout);
    // what is no pattern at all is not mentioned
    let f = fast().compile(|t: Operands| (scores(&t).softmax(-1), t[2].softmax(-1)));
    f.call(heads()).unwrap();
    assert_eq!(program(&f).attention, Some(Default::default()));
}

#[test]
fn other_scores() {
    is_refused(Scores, |t: Operands| t[1].softmax(-1).matmul(&t[0].mT()), heads);
    is_refused(Scores, |t: Operands| scores(&t).tanh().softmax(-1).matmul(&t[2]), heads);
    is_refused(Scores, |t: Operands| (scores(&t) + 1.0).softmax(-1).matmul(&t[2]), heads);
    let scaled_mask = |t: Operands| ((scores(&t) + &t[3]) * 0.5).softmax(-1).matmul(&t[2]);
    is_refused(Scores, scaled_mask, || with(waves(&[7], 0.6)));
    let two_masks = |t: Operands| (scores(&t) + &t[3] + &t[3]).softmax(-1).matmul(&t[2]);
    is_refused(Scores, two_masks, || with(waves(&[7], 0.6)));
    // a factor that is a tensor
    let scaled = |t: Operands| (scores(&t) * &t[3]).softmax(-1).matmul(&t[2]);
    is_refused(Scores, scaled, || with(waves(&[1], 0.6)));
}

#[test]
fn other_masks() {
    let finite = |t: Operands| scores(&t).masked_fill(&t[3], -1e9).softmax(-1).matmul(&t[2]);
    is_refused(Mask, finite, || with(some(&[5, 7])));
    let chosen = |t: Operands| t[3].where_(scores(&t), 0.0).softmax(-1).matmul(&t[2]);
    is_refused(Mask, chosen, || with(some(&[5, 7])));
    let added = |t: Operands| (scores(&t) + &t[3]).softmax(-1).matmul(&t[2]);
    is_refused(Mask, added, || with(some(&[5, 7])));
    is_refused(Mask, added, || with(Tensor::ones([5, 7], DType::I64)));
    // scores that the mask makes larger
    let one_query = || {
        let mut operands = with(waves(&[5, 7], 0.6));
        operands[0] = waves(&[2, 3, 1, 4], 0.9);
        operands
    };
    is_refused(Mask, added, one_query);
    // a mask to negate whose memory is in another order
    let filled = |t: Operands| scores(&t).masked_fill(&t[3], HIDDEN).softmax(-1).matmul(&t[2]);
    is_refused(Mask, filled, || with(some(&[7, 5]).t()));
}

#[test]
fn other_factors() {
    is_refused(Scale, |t: Operands| (scores(&t) * 0.0).softmax(-1).matmul(&t[2]), heads);
    let infinite = |t: Operands| (scores(&t) / 0.0).softmax(-1).matmul(&t[2]);
    is_refused(Scale, infinite, heads);
    is_refused(Scale, |t: Operands| (scores(&t) * 1e-40).softmax(-1).matmul(&t[2]), heads);
}

#[test]
fn other_dtypes() {
    let half = || heads().iter().map(|t| t.to_dtype(DType::BF16)).collect::<Operands>();
    is_refused(WrongOperands, |t: Operands| plain(t), half);
    let wide =
        |t: Operands| scores(&t).softmax_dtype(-1, DType::F64).matmul(&t[2].to_dtype(DType::F64));
    is_refused(WrongOperands, wide, heads);
    let vector =
        |t: Operands| scores(&t).softmax(-1).matmul(&t[2].select(-1, 0).select(0, 0).select(0, 0));
    is_refused(WrongOperands, vector, heads);
}

#[test]
fn writes_between() {
    // what is between would change an operand, a mask, or only something else
    let writes_values = |t: Operands| -> Result<Tensor> {
        let weights = scores(&t).softmax(-1);
        t[2].mul_(2.0).ok()?;
        ok(weights.matmul(&t[2]))
    };
    is_refused_writing(writes_values, heads);
    let writes_queries = |t: Operands| -> Result<Tensor> {
        let weights = scores(&t).softmax(-1);
        t[0].mul_(2.0).ok()?;
        ok(weights.matmul(&t[2]))
    };
    is_refused_writing(writes_queries, heads);
    let writes_scaled = |t: Operands| -> Result<Tensor> {
        let scaled = &t[0] * 0.5;
        t[0].mul_(2.0).ok()?;
        ok(scaled.matmul(&t[1].mT()).softmax(-1).matmul(&t[2]))
    };
    is_refused_writing(writes_scaled, heads);
    let writes_scores = |t: Operands| -> Result<Tensor> {
        let scores = scores(&t);
        scores.mul_(2.0).ok()?;
        ok(scores.softmax(-1).matmul(&t[2]))
    };
    is_refused_writing_as(None, writes_scores, heads);
    // a write before and one behind change nothing
    let around = |t: Operands| -> Result<Tensor> {
        t[2].mul_(2.0).ok()?;
        let y = plain(t.clone());
        t[0].mul_(2.0).ok()?;
        Ok(y)
    };
    let (eager, compiled) = (heads(), heads());
    let expected = around(eager.clone()).unwrap();
    let f = fast().compile(around);
    assert_close(&f.call(compiled.clone()).unwrap(), &expected, "around");
    assert_eq!(program(&f).attention.unwrap().recognized.len(), 1);
    for (x, y) in compiled.iter().zip(&eager) {
        assert_eq!(bits(x), bits(y));
    }
}

#[track_caller]
fn is_refused_writing(f: impl Fn(Operands) -> Result<Tensor> + Copy, inputs: fn() -> Operands) {
    is_refused_writing_as(Some(Write), f, inputs);
}

/// As [`is_refused`], and also compares what is written. Without a reason there is no candidate.
#[track_caller]
fn is_refused_writing_as(
    reason: Option<NoAttentionReason>,
    f: impl Fn(Operands) -> Result<Tensor> + Copy,
    inputs: fn() -> Operands,
) {
    let (eager, compiled) = (inputs(), inputs());
    let expected = f(eager.clone()).unwrap();
    let fast = fast().compile(f);
    let found = fast.call(compiled.clone()).unwrap();
    assert_eq!(bits(&found), bits(&expected));
    for (x, y) in compiled.iter().zip(&eager) {
        assert_eq!(bits(x), bits(y));
    }
    let attention = program(&fast).attention.unwrap();
    assert_eq!(attention.recognized, []);
    let reasons: Vec<NoAttentionReason> = attention.refused.iter().map(|(_, why)| *why).collect();
    if let Some(reason) = reason {
        assert_eq!(reasons, [reason]);
    }
}

#[test]
fn effects_between() {
    let noted = custom_op("fast_math::noted")
        .kernel(|x: &Tensor| -> Result<Tensor> { Ok(x.clone_tensor()) })
        .effect(Effect::Ordered)
        .register()
        .unwrap();
    noted
        .register_fake(|_: &FakeCtx, x: &Tensor| -> Result<Tensor> {
            Ok(x.new_empty(x.sizes(), x.dtype()))
        })
        .unwrap();
    let f = move |t: Operands| -> Result<Tensor> {
        let weights = scores(&t).softmax(-1);
        let values = noted.call(args![&t[2]])?[0].tensor()?.clone();
        ok(weights.matmul(&values))
    };
    is_refused_writing(f, heads);
}

#[test]
fn explanations_name_lines_and_reasons() {
    let f = fast().names(["q", "k", "v"]).compile(|(q, k, v): (Tensor, Tensor, Tensor)| {
        let weights = q.matmul(&k.mT()).softmax(-1);
        let y = weights.matmul(&v);
        let z = y.matmul(&k.mT()).softmax(-1).matmul(&v);
        (weights, z)
    });
    let operands = [[5, 4], [7, 4], [7, 4]].map(|sizes| waves(&sizes, 0.9));
    let [q, k, v] = operands;
    f.call((q, k, v)).unwrap();
    let found = program(&f);
    let first = line!() - 10;
    let attention = found.attention.clone().unwrap();
    let line = |loc: Option<maquette_ir::Loc>| loc.map(|loc| loc.line);
    assert_eq!(line(attention.recognized[0]), Some(first + 3), "{found}");
    assert_eq!(line(attention.refused[0].0), Some(first + 2), "{found}");
    let node = |op: &str| {
        let node = found.graph.nodes().find(|node| found.graph.op_name(*node) == op);
        found.graph.loc(node.unwrap()).map(|loc| loc.line)
    };
    assert_eq!(node("fast::attention"), Some(first + 3));
    let text = f.explain().to_string();
    let text: Vec<&str> = text.lines().filter(|line| line.contains("fast math")).collect();
    let text = text.join("\n").replace(&format!("{}:{}", file!(), first + 2), "FILE:LINE");
    insta::assert_snapshot!(text);
    let f = fast().compile(|x: Tensor| x.relu());
    f.call(waves(&[2], 0.5)).unwrap();
    let text = f.explain().to_string();
    assert!(text.contains("fast math: no softmax is the left factor of a product"), "{text}");
}
