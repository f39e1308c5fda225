//! Training steps: forward, backward and the update of the parameters by gradient descent with
//! momentum. A step writes parameters and moments in place.

use super::{Run, normal, weight};
use maquette::autograd::no_grad;
use maquette::ops::Reduction;
use maquette::prelude::*;
use maquette::value_and_grad;

const LR: f64 = 0.01;
const MOMENTUM: f64 = 0.9;

/// A model's parameters, the moments, a batch and the classes.
type State = (Vec<Tensor>, Vec<Tensor>, Tensor, Tensor);
type Forward = fn(&[Tensor], &Tensor) -> Tensor;

/// The loss of scores `[N, C]` for classes `[N]`.
fn cross_entropy(scores: &Tensor, classes: &Tensor) -> Tensor {
    scores.cross_entropy_loss(classes, None, Reduction::Mean, -100, 0.0)
}

/// One step; returns the loss.
fn step(forward: Forward, (params, moments, x, y): State) -> Result<Tensor> {
    let loss = |p: Vec<Tensor>| cross_entropy(&forward(&p, &x), &y);
    let (value, grads) = value_and_grad(loss)(params.clone())?;
    no_grad(|| {
        for ((p, m), g) in params.iter().zip(&moments).zip(&grads) {
            m.mul_(MOMENTUM).add_(g).ok()?;
            p.add_alpha_(m, -LR).ok()?;
        }
        Ok(value)
    })
}

/// Runs steps, eagerly or compiled.
fn steps(forward: Forward, state: State, compiled: bool) -> Run {
    let run = move |state: State| step(forward, state);
    if compiled {
        let run = maquette::compile(run);
        Box::new(move || run.call(state.clone()).map(drop))
    } else {
        Box::new(move || run(state.clone())?.item::<f32>().map(drop))
    }
}

fn moments(params: &[Tensor]) -> Vec<Tensor> {
    params.iter().map(Tensor::zeros_like).collect()
}

/// A perceptron of 784, 512, 512 and 10 units.
pub fn mlp(batch: i64, compiled: bool) -> Run {
    let widths = [784, 512, 512, 10];
    let pairs = widths.iter().zip(&widths[1..]);
    let params: Vec<Tensor> =
        pairs.flat_map(|(from, out)| [weight(&[*out, *from]), normal(&[*out]) * 0.02]).collect();
    let forward: Forward = |p, x| {
        let h = x.linear(&p[0], Some(&p[1])).relu();
        let h = h.linear(&p[2], Some(&p[3])).relu();
        h.linear(&p[4], Some(&p[5]))
    };
    let classes = Tensor::randint(0, 10, [batch]);
    steps(forward, (params.clone(), moments(&params), normal(&[batch, 784]), classes), compiled)
}

const WIDTH: i64 = 256;
const HEADS: i64 = 4;
const VOCABULARY: i64 = 512;
const LENGTH: i64 = 64;
const BLOCKS: usize = 2;
/// The parameters of a block.
const OF_BLOCK: usize = 12;

/// A decoder of two blocks, 256 wide, for sequences of 64 tokens.
pub fn transformer(batch: i64, compiled: bool) -> Run {
    let linear = |from, out| [weight(&[out, from]), normal(&[out]) * 0.02];
    let norm = || [Tensor::ones([WIDTH], DType::F32), Tensor::zeros([WIDTH], DType::F32)];
    let block = |_| {
        [
            norm(),
            linear(WIDTH, 3 * WIDTH),
            linear(WIDTH, WIDTH),
            norm(),
            linear(WIDTH, 4 * WIDTH),
            linear(4 * WIDTH, WIDTH),
        ]
        .concat()
    };
    let mut params = vec![normal(&[VOCABULARY, WIDTH]) * 0.05, normal(&[LENGTH, WIDTH]) * 0.05];
    params.extend((0..BLOCKS).flat_map(block));
    params.extend(norm());
    let tokens = Tensor::randint(0, VOCABULARY, [batch, LENGTH]);
    let next = Tensor::randint(0, VOCABULARY, [batch * LENGTH]);
    steps(decoder, (params.clone(), moments(&params), tokens, next), compiled)
}

/// Scores `[N, VOCABULARY]` of the next tokens, with the embedding as the last matrix.
fn decoder(p: &[Tensor], tokens: &Tensor) -> Tensor {
    let norm = |x: &Tensor, p: &[Tensor]| x.layer_norm([WIDTH], Some(&p[0]), Some(&p[1]), 1e-5);
    let linear = |x: &Tensor, p: &[Tensor]| x.linear(&p[0], Some(&p[1]));
    let mut x = p[0].embedding(tokens) + &p[1];
    for b in p[2..].chunks_exact(OF_BLOCK) {
        let joined = linear(&norm(&x, &b[0..]), &b[2..]);
        let part = |i: i64| {
            let own = joined.slice(-1, i * WIDTH..(i + 1) * WIDTH);
            own.unflatten(-1, [HEADS, -1]).transpose(1, 2)
        };
        let y = part(0).scaled_dot_product_attention(&part(1), &part(2), None, true, None, false);
        x = &x + linear(&y.transpose(1, 2).flatten(2, 3), &b[4..]);
        let inner = linear(&norm(&x, &b[6..]), &b[8..]).gelu();
        x = &x + linear(&inner, &b[10..]);
    }
    norm(&x, &p[p.len() - 2..]).linear(&p[0], None).flatten(0, 1)
}
