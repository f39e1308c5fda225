//! Gradients of attention: one kernel, compared with the parts of the formula and with differences,
//! for blocks, masks, causality, groups of heads and broadcast operands; equal bits on any number
//! of threads, and as a compiled step.

use maquette_check::gradcheck::{gradcheck, gradgradcheck};
use maquette_driver::compile;
use maquette_ir::DType;
use maquette_ops::autograd::{BackwardOptions, grad};
use maquette_ops::func::value_and_grad;
use maquette_ops::random::{Philox, apart};
use maquette_ops::{Result, Tensor, with_num_threads};

/// An attention's operands and options.
struct Case {
    name: &'static str,
    sizes: [&'static [i64]; 3],
    mask: Option<&'static [i64]>,
    causal: bool,
    scale: Option<f64>,
    grouped: bool,
}

const PLAIN: Case = Case {
    name: "plain",
    sizes: [&[2, 3, 7, 4], &[2, 3, 9, 4], &[2, 3, 9, 5]],
    mask: None,
    causal: false,
    scale: None,
    grouped: false,
};

const CASES: &[Case] = &[
    PLAIN,
    Case { name: "scaled", scale: Some(0.3), ..PLAIN },
    Case { name: "causal, fewer queries than keys", causal: true, ..PLAIN },
    Case {
        name: "causal, over blocks of rows",
        sizes: [&[2, 150, 8], &[2, 130, 8], &[2, 130, 6]],
        causal: true,
        ..PLAIN
    },
    Case { name: "masked", mask: Some(&[7, 9]), ..PLAIN },
    Case { name: "masked for each batch", mask: Some(&[2, 1, 7, 9]), ..PLAIN },
    Case {
        name: "grouped",
        sizes: [&[2, 6, 7, 4], &[2, 2, 9, 4], &[2, 2, 9, 5]],
        grouped: true,
        ..PLAIN
    },
    Case { name: "broadcast", sizes: [&[2, 3, 7, 4], &[3, 9, 4], &[2, 1, 9, 5]], ..PLAIN },
    Case { name: "no batch", sizes: [&[70, 4], &[3, 4], &[3, 2]], ..PLAIN },
];

impl Case {
    fn operands(&self) -> [Tensor; 3] {
        apart(&mut Philox { seed: 5, offset: 0 }, || {
            self.sizes.map(|sizes| Tensor::randn(sizes.to_vec(), DType::F64))
        })
    }

    /// Hides some keys, of the last query all of them.
    fn mask(&self) -> Option<Tensor> {
        let sizes = self.mask?.to_vec();
        let mask = apart(&mut Philox { seed: 6, offset: 0 }, || Tensor::randn(sizes, DType::F64));
        let mask = mask.gt(-0.5);
        mask.select(-2, -1).fill_(0.0).ok().unwrap();
        Some(mask)
    }

    fn fused(&self, [q, k, v]: &[Tensor; 3]) -> Tensor {
        let mask = self.mask();
        q.scaled_dot_product_attention(k, v, mask.as_ref(), self.causal, self.scale, self.grouped)
    }

    fn by_parts(&self, [q, k, v]: &[Tensor; 3]) -> Tensor {
        let repeated = |t: &Tensor| match self.grouped {
            true => {
                let (own, all) = (t.size(-3), q.size(-3));
                let wide = t.unsqueeze(-3);
                let n = all.floor_div(own);
                let sizes = [t.size(0), own, n, t.size(-2), t.size(-1)];
                wide.expand(sizes).reshape([t.size(0), all, t.size(-2), t.size(-1)])
            }
            false => t.clone(),
        };
        let (k, v) = (repeated(k), repeated(v));
        let width = q.sizes_i64().unwrap().last().copied().unwrap_or(1) as f64;
        let mut scores = q.matmul(&k.transpose(-2, -1)) * self.scale.unwrap_or(1.0 / width.sqrt());
        if self.causal {
            let seen = Tensor::ones([q.size(-2), k.size(-2)], DType::Bool).tril(0);
            scores = seen.where_(scores, f64::NEG_INFINITY);
        }
        if let Some(mask) = self.mask() {
            scores = mask.where_(scores, -1e300);
            let weights = mask.where_(scores.softmax(-1), 0.0);
            return weights.matmul(&v);
        }
        scores.softmax(-1).matmul(&v)
    }
}

fn gradients(f: &dyn Fn(&[Tensor; 3]) -> Tensor, operands: &[Tensor; 3]) -> Vec<Vec<f64>> {
    let leaves = operands.each_ref().map(|t| t.detach().requires_grad_());
    let loss = f(&leaves).sin().sum();
    let found = grad(&[loss], &leaves, &[None], BackwardOptions::default()).unwrap();
    found.into_iter().map(|g| g.unwrap().to_vec::<f64>().unwrap()).collect()
}

#[test]
fn the_kernel_has_the_gradients_of_the_parts() {
    for case in CASES {
        let operands = case.operands();
        let fused = gradients(&|t| case.fused(t), &operands);
        let parts = gradients(&|t| case.by_parts(t), &operands);
        for (fused, parts) in fused.iter().zip(&parts) {
            assert_eq!(fused.len(), parts.len(), "{}", case.name);
            for (a, b) in fused.iter().zip(parts) {
                assert!((a - b).abs() <= 1e-12 * (1.0 + b.abs()), "{}: {a} and {b}", case.name);
            }
        }
    }
}

#[test]
fn threads_change_no_bit() {
    for case in CASES {
        let operands = case.operands();
        let one = with_num_threads(1, || gradients(&|t| case.fused(t), &operands));
        let two = with_num_threads(2, || gradients(&|t| case.fused(t), &operands));
        assert!(one == two, "{}", case.name);
    }
}

#[test]
fn first_and_second_derivatives_agree_with_differences() {
    for case in [PLAIN, Case { name: "causal", causal: true, scale: Some(0.7), ..PLAIN }] {
        let small = Case { sizes: [&[2, 3, 2], &[2, 4, 2], &[2, 4, 2]], ..case };
        let f = |t: &[Tensor]| -> Result<Vec<Tensor>> {
            Ok(vec![small.fused(&[t[0].clone(), t[1].clone(), t[2].clone()])])
        };
        gradcheck(f, &small.operands()).unwrap();
        gradgradcheck(f, &small.operands()).unwrap();
    }
}

#[test]
fn a_compiled_step_has_the_bits_of_the_eager_one() {
    let step = |(q, k, v): (Tensor, Tensor, Tensor)| {
        let heads = |t: &Tensor| t.unflatten(-1, [2, -1]).transpose(1, 2);
        value_and_grad(|(q, k, v): (Tensor, Tensor, Tensor)| {
            let (q, k, v) = (heads(&q), heads(&k), heads(&v));
            q.scaled_dot_product_attention(&k, &v, None, true, None, false).sin().sum()
        })((q, k, v))
    };
    let make = || Tensor::randn([2, 70, 16], DType::F32);
    let inputs = apart(&mut Philox { seed: 9, offset: 0 }, || (make(), make(), make()));
    let (value, grads) = step(inputs.clone()).unwrap();
    let (compiled_value, compiled_grads) = compile(step).call(inputs).unwrap();
    let bits =
        |t: &Tensor| t.to_vec::<f32>().unwrap().iter().map(|x| x.to_bits()).collect::<Vec<_>>();
    assert_eq!(bits(&value), bits(&compiled_value));
    for (a, b) in [
        (&grads.0, &compiled_grads.0),
        (&grads.1, &compiled_grads.1),
        (&grads.2, &compiled_grads.2),
    ] {
        assert_eq!(bits(a), bits(b));
    }
}
