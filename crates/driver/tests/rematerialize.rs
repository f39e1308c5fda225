//! Compiled programs that compute values again to need less memory.

use maquette_driver::{CompileOptions, RecomputeExplanation};
use maquette_ir::DType;
use maquette_ops::func::value_and_grad;
use maquette_ops::library::{Effect, Tag};
use maquette_ops::{
    FakeCtx, Op, Result, Tensor, Tree, args, autograd::AutogradRule, autograd::no_grad, custom_op,
    random, tree,
};
use maquette_rewrite::Rematerialization;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

fn waves(sizes: [i64; 2], frequency: f64) -> Tensor {
    let t = Tensor::arange(sizes[0] * sizes[1]).to_dtype(DType::F32);
    (t * frequency).sin().view(sizes) * 0.5
}

fn tensors<T: Tree>(x: &T) -> Vec<Tensor> {
    let (_, leaves) = tree::flatten(x).unwrap();
    leaves.iter().flat_map(|leaf| leaf.value.tensors().cloned().collect::<Vec<_>>()).collect()
}

fn bits<T: Tree>(x: &T) -> Vec<Vec<u64>> {
    let bits = |t: &Tensor| -> Vec<u64> {
        let elements = t.to_dtype(DType::F64).to_vec::<f64>().unwrap();
        elements.into_iter().map(f64::to_bits).collect()
    };
    tensors(x).iter().map(bits).collect()
}

/// Runs a function eagerly and compiled. All outputs and inputs must have equal bits.
#[track_caller]
fn same<I: Tree + Clone, O: Tree, F: Fn(I) -> O>(
    f: F,
    options: Rematerialization,
    inputs: impl Fn() -> I,
) -> RecomputeExplanation {
    let (eager, compiled) = (inputs(), inputs());
    let expected = random_from(1, || f(eager.clone()));
    let f = CompileOptions::new().rematerialize(options).compile(f);
    let found = random_from(1, || f.call(compiled.clone()).unwrap());
    assert_eq!(bits(&found), bits(&expected), "{}", f.explain());
    assert_eq!(bits(&compiled), bits(&eager), "{}", f.explain());
    let explanation = f.explain();
    explanation.programs[0].recomputed.unwrap_or_else(|| panic!("{explanation}"))
}

fn random_from<R>(seed: u64, f: impl FnOnce() -> R) -> R {
    random::apart(&mut random::Philox { seed, offset: 0 }, f)
}

type Weights = Vec<Tensor>;

fn weights(layers: i64, width: i64) -> Weights {
    (0..layers).map(|i| waves([width, width], 0.3 + i as f64)).collect()
}

/// Products with elementwise operators between them.
fn mlp(weights: &Weights, x: &Tensor) -> Tensor {
    let layer = |x: Tensor, w: &Tensor| (x.mm(w) * 2.0).gelu().sin();
    let y = weights.iter().fold(x.clone(), layer);
    (&y * &y).mean()
}

/// A step of gradient descent: writes the weights.
fn step((weights, x): (Weights, Tensor)) -> Result<Tensor> {
    let (loss, grads) = value_and_grad(|w: Weights| mlp(&w, &x))(weights.clone())?;
    no_grad(|| {
        for (w, g) in weights.iter().zip(&grads) {
            w.sub_(&(g * 0.1)).ok()?;
        }
        Ok(loss)
    })
}

#[test]
fn a_deep_network_needs_less_memory() {
    let inputs = || (weights(8, 16), waves([128, 16], 0.7));
    let least = same(step, Rematerialization::least(), inputs);
    println!("{least}");
    assert!(least.bytes * 5 < least.bytes_before * 3, "{least}");
    assert!(least.operators > 0, "{least}");
}

#[test]
fn memory_keeps_to_a_bound_that_can_be_reached() {
    let inputs = || (weights(8, 16), waves([128, 16], 0.7));
    let least = same(step, Rematerialization::least(), inputs);
    let mut operators = usize::MAX;
    for eighths in [1, 4, 7] {
        let bound = least.bytes + (least.bytes_before - least.bytes) * eighths / 8;
        let found = same(step, Rematerialization::within(bound), inputs);
        println!("{found}");
        assert_eq!(found.is_within_bound(), Some(true), "{found}");
        // a looser bound takes no more work
        assert!(found.operators <= operators, "{found}");
        operators = found.operators;
    }
    let found = same(step, Rematerialization::within(least.bytes_before), inputs);
    assert_eq!((found.operators, found.bytes), (0, least.bytes_before), "{found}");
    let found = same(step, Rematerialization::within(1), inputs);
    assert_eq!(found.is_within_bound(), Some(false), "{found}");
    assert!(found.to_string().contains("; the bound of 1 cannot be reached: "), "{found}");
    assert!(found.bytes < found.bytes_before, "{found}");
}

/// A layer of attention by its parts, dropout, and norms.
fn block(weights: &Weights, x: &Tensor) -> Tensor {
    let norm = |x: &Tensor| x.layer_norm([16i64], None, None, 1e-5);
    let layer = |x: Tensor, w: &[Tensor]| {
        let h = norm(&x);
        let (q, k, v) = (h.mm(&w[0]), h.mm(&w[1]), h.mm(&w[2]));
        let scores = (q.mm(&k.t()) * 0.25).softmax(-1);
        let x = x + scores.dropout(0.1, true).mm(&v);
        let h = norm(&x);
        x + h.mm(&w[3]).gelu()
    };
    let y = weights.chunks(4).fold(x.clone(), layer);
    (&y * &y).mean()
}

#[test]
fn attention_by_its_parts_with_dropout() {
    let inputs = || (weights(12, 16), waves([64, 16], 0.7));
    let grads = |(w, x): (Weights, Tensor)| value_and_grad(|w: Weights| block(&w, &x))(w);
    let least = same(grads, Rematerialization::least(), inputs);
    println!("{least}");
    // what dropout draws, and products, are kept
    assert!(least.bytes * 5 < least.bytes_before * 4, "{least}");
    let expensive = same(grads, Rematerialization::least().expensive(true), inputs);
    println!("{expensive}");
    assert!(expensive.bytes <= least.bytes, "{least}; {expensive}");
    let bound = (least.bytes + least.bytes_before) / 2;
    let found = same(grads, Rematerialization::within(bound), inputs);
    println!("{found}");
    assert_eq!(found.is_within_bound(), Some(true), "{found}");
}

#[test]
fn symbolic_sizes() {
    let options = CompileOptions::symbolic().rematerialize(Rematerialization::least());
    let f = options.compile(step);
    for n in [128, 96, 1] {
        let (eager, compiled) = (weights(4, 16), weights(4, 16));
        let x = waves([n, 16], 0.7);
        let expected = step((eager.clone(), x.clone())).unwrap();
        let found = f.call((compiled.clone(), x)).unwrap();
        assert_eq!((bits(&found), bits(&compiled)), (bits(&expected), bits(&eager)));
    }
    assert_eq!(f.compilations(), 1);
    let found = f.explain().programs[0].recomputed.unwrap();
    println!("{found}");
    assert!(found.bytes < found.bytes_before && found.operators > 0, "{found}");
}

/// An operator that counts its calls, with the derivative of `x.sin()`.
fn counted(name: &str, calls: &Arc<AtomicUsize>, tags: Option<Tag>, effect: bool) -> Op {
    let calls = calls.clone();
    let kernel = move |x: &Tensor| -> Result<Tensor> {
        calls.fetch_add(1, Ordering::Relaxed);
        Ok(x.sin())
    };
    let rule = AutogradRule::new(|ctx, grads| Ok(vec![Some(&grads[0] * ctx.saved(0)?.cos())]))
        .setup_context(|ctx, inputs, _| {
            ctx.save(inputs[0].tensor()?);
            Ok(())
        });
    let op = custom_op(name).kernel(kernel).autograd(rule).tags(tags);
    let op = if effect { op.effect(Effect::Ordered) } else { op }.register().unwrap();
    op.register_fake(|_: &FakeCtx, x: &Tensor| -> Result<Tensor> {
        Ok(x.new_empty(x.sizes(), x.dtype()))
    })
    .unwrap();
    op
}

#[test]
fn custom_operators_run_once_unless_they_are_pointwise() {
    let cases = [
        ("rematerialize::opaque", None, false, false),
        ("rematerialize::noted", Some(Tag::Pointwise), true, false),
        ("rematerialize::each", Some(Tag::Pointwise), false, true),
    ];
    for (name, tags, effect, again) in cases {
        let calls = Arc::new(AtomicUsize::new(0));
        let op = counted(name, &calls, tags, effect);
        let layer = move |x: Tensor, w: &Tensor| match op.call(args![&x.mm(w)]) {
            Ok(out) => out[0].tensor().cloned().unwrap_or_else(Tensor::poison),
            Err(e) => Tensor::poison(e),
        };
        let loss = move |w: Weights, x: &Tensor| {
            let y = w.iter().fold(x.clone(), layer);
            (&y * &y).mean()
        };
        let f = move |(w, x): (Weights, Tensor)| value_and_grad(|w: Weights| loss(w, &x))(w);
        let inputs = || (weights(5, 16), waves([128, 16], 0.7));
        let options = Rematerialization::least().expensive(true);
        let f = CompileOptions::new().rematerialize(options).compile(f);
        f.call(inputs()).unwrap();
        let found = calls.load(Ordering::Relaxed);
        assert_eq!(found > 5, again, "{name}: {found} calls\n{}", f.explain());
    }
}
