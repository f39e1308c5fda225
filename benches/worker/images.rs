//! Convolutional networks on images of 224 x 224, in evaluation mode: SqueezeNet 1.1, ResNet-18 and
//! MobileNet-v2 with the sizes of their papers.

use super::encoder::Linear;
use super::{Run, normal, weight};
use maquette::prelude::*;

/// A network from images `[N, 3, 224, 224]` to scores `[N, 1000]`.
pub trait Network {
    fn forward(&self, x: &Tensor) -> Tensor;
}

/// A network on a batch of images.
pub fn run(network: impl Network + 'static, batch: i64) -> Run {
    let compiled = maquette::compile(move |x: Tensor| network.forward(&x));
    let x = normal(&[batch, 3, 224, 224]);
    Box::new(move || compiled.call(x.clone()).map(drop))
}

/// What follows a convolution.
#[derive(Clone, Copy)]
enum Then {
    Nothing,
    Relu,
    Relu6,
}

/// A convolution, with a bias, or with a batch norm behind it.
struct Conv {
    weight: Tensor,
    bias: Option<Tensor>,
    norm: Option<[Tensor; 4]>,
    stride: i64,
    padding: i64,
    groups: i64,
    then: Then,
}

impl Conv {
    fn new([from, out, kernel]: [i64; 3], [stride, groups]: [i64; 2], then: Then) -> Conv {
        let positive = || Tensor::rand([out], DType::F32) + 0.5;
        Conv {
            weight: weight(&[out, from / groups, kernel, kernel]),
            bias: None,
            norm: Some([positive(), normal(&[out]) * 0.1, normal(&[out]) * 0.1, positive()]),
            stride,
            padding: kernel / 2,
            groups,
            then,
        }
    }

    fn plain([from, out, kernel]: [i64; 3], stride: i64, padding: i64) -> Conv {
        let conv = Conv::new([from, out, kernel], [stride, 1], Then::Relu);
        Conv { bias: Some(normal(&[out]) * 0.1), norm: None, padding, ..conv }
    }

    fn forward(&self, x: &Tensor) -> Tensor {
        let (stride, padding) = ([self.stride; 2], [self.padding; 2]);
        let mut y =
            x.conv2d(&self.weight, self.bias.as_ref(), stride, padding, [1, 1], self.groups);
        if let Some([weight, bias, mean, var]) = &self.norm {
            y = y.batch_norm(Some(weight), Some(bias), mean, var, 1e-5);
        }
        match self.then {
            Then::Nothing => y,
            Then::Relu => y.relu(),
            Then::Relu6 => y.relu6(),
        }
    }
}

fn mean_of_planes(x: &Tensor) -> Tensor {
    x.adaptive_avg_pool2d([1, 1]).flatten(1, -1)
}

/// SqueezeNet 1.1 ([Iandola et al.](https://arxiv.org/abs/1602.07360)).
pub struct SqueezeNet {
    stem: Conv,
    fires: Vec<[Conv; 3]>,
    classifier: Conv,
}

impl SqueezeNet {
    pub fn new() -> SqueezeNet {
        let fire = |from: i64, squeezed: i64, expanded: i64| {
            [
                Conv::plain([from, squeezed, 1], 1, 0),
                Conv::plain([squeezed, expanded, 1], 1, 0),
                Conv::plain([squeezed, expanded, 3], 1, 1),
            ]
        };
        let sizes = [
            (64, 16, 64),
            (128, 16, 64),
            (128, 32, 128),
            (256, 32, 128),
            (256, 48, 192),
            (384, 48, 192),
            (384, 64, 256),
            (512, 64, 256),
        ];
        SqueezeNet {
            stem: Conv::plain([3, 64, 3], 2, 0),
            fires: sizes.into_iter().map(|(from, s, e)| fire(from, s, e)).collect(),
            classifier: Conv::plain([512, 1_000, 1], 1, 0),
        }
    }
}

impl Network for SqueezeNet {
    fn forward(&self, x: &Tensor) -> Tensor {
        let pool = |x: Tensor| x.max_pool2d([3, 3], [2, 2], [0, 0]);
        let mut x = pool(self.stem.forward(x));
        for (i, [squeeze, narrow, wide]) in self.fires.iter().enumerate() {
            let squeezed = squeeze.forward(&x);
            x = Tensor::cat([&narrow.forward(&squeezed), &wide.forward(&squeezed)], 1);
            if i == 1 || i == 3 {
                x = pool(x);
            }
        }
        mean_of_planes(&self.classifier.forward(&x))
    }
}

/// ResNet-18 ([He et al.](https://arxiv.org/abs/1512.03385)).
pub struct ResNet18 {
    stem: Conv,
    blocks: Vec<(Conv, Conv, Option<Conv>)>,
    head: Linear,
}

impl ResNet18 {
    pub fn new() -> ResNet18 {
        let mut blocks = Vec::new();
        let mut from = 64;
        for (stage, out) in [64, 128, 256, 512].into_iter().enumerate() {
            for block in 0..2 {
                let stride = if stage > 0 && block == 0 { 2 } else { 1 };
                let short = (stride == 2).then(|| Conv::new([from, out, 1], [2, 1], Then::Nothing));
                blocks.push((
                    Conv::new([from, out, 3], [stride, 1], Then::Relu),
                    Conv::new([out, out, 3], [1, 1], Then::Nothing),
                    short,
                ));
                from = out;
            }
        }
        let stem = Conv::new([3, 64, 7], [2, 1], Then::Relu);
        ResNet18 { stem, blocks, head: Linear::new(512, 1_000) }
    }
}

impl Network for ResNet18 {
    fn forward(&self, x: &Tensor) -> Tensor {
        let mut x = self.stem.forward(x).max_pool2d([3, 3], [2, 2], [1, 1]);
        for (first, second, short) in &self.blocks {
            let y = second.forward(&first.forward(&x));
            let residual = short.as_ref().map_or_else(|| x.clone(), |short| short.forward(&x));
            x = (y + residual).relu();
        }
        self.head.forward(&mean_of_planes(&x))
    }
}

/// MobileNet-v2 ([Sandler et al.](https://arxiv.org/abs/1801.04381)).
pub struct MobileNet2 {
    stem: Conv,
    blocks: Vec<Inverted>,
    last: Conv,
    head: Linear,
}

/// An inverted residual block: wider, by planes, narrower.
struct Inverted {
    wider: Option<Conv>,
    planes: Conv,
    narrower: Conv,
    is_residual: bool,
}

impl MobileNet2 {
    pub fn new() -> MobileNet2 {
        let mut blocks = Vec::new();
        let mut from = 32;
        let stages = [
            (1, 16, 1, 1),
            (6, 24, 2, 2),
            (6, 32, 3, 2),
            (6, 64, 4, 2),
            (6, 96, 3, 1),
            (6, 160, 3, 2),
            (6, 320, 1, 1),
        ];
        for (factor, out, count, first_stride) in stages {
            for i in 0..count {
                let stride = if i == 0 { first_stride } else { 1 };
                let inner = from * factor;
                let wider = || Conv::new([from, inner, 1], [1, 1], Then::Relu6);
                blocks.push(Inverted {
                    wider: (factor > 1).then(wider),
                    planes: Conv::new([inner, inner, 3], [stride, inner], Then::Relu6),
                    narrower: Conv::new([inner, out, 1], [1, 1], Then::Nothing),
                    is_residual: stride == 1 && from == out,
                });
                from = out;
            }
        }
        MobileNet2 {
            stem: Conv::new([3, 32, 3], [2, 1], Then::Relu6),
            blocks,
            last: Conv::new([320, 1_280, 1], [1, 1], Then::Relu6),
            head: Linear::new(1_280, 1_000),
        }
    }
}

impl Network for MobileNet2 {
    fn forward(&self, x: &Tensor) -> Tensor {
        let mut x = self.stem.forward(x);
        for block in &self.blocks {
            let inner = block.wider.as_ref().map_or_else(|| x.clone(), |wider| wider.forward(&x));
            let y = block.narrower.forward(&block.planes.forward(&inner));
            x = if block.is_residual { y + &x } else { y };
        }
        self.head.forward(&mean_of_planes(&self.last.forward(&x)))
    }
}
