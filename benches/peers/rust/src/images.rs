//! Convolutional networks on images of 224 x 224 in candle, in evaluation mode: SqueezeNet 1.1,
//! ResNet-18 and MobileNet-v2 with the sizes of their papers. A batch norm is part of the weights
//! and the bias before it, as `Conv2d::absorb_bn` makes them.

use super::{Run, linear, normal, of_candle, weight};
use candle_core::{Module, Result, Tensor};
use candle_nn::{Conv2d, Conv2dConfig, Linear};

/// A network from images `[N, 3, 224, 224]` to scores `[N, 1000]`, on a batch of images.
pub fn run(network: impl Module + 'static, batch: usize) -> Result<Run> {
    let x = normal(&[batch, 3, 224, 224])?;
    Ok(of_candle(move || network.forward(&x)))
}

/// What follows a convolution.
#[derive(Clone, Copy)]
enum Then {
    Nothing,
    Relu,
    Relu6,
}

struct Conv {
    conv: Conv2d,
    then: Then,
}

impl Conv {
    fn new(sizes: [usize; 3], [stride, groups]: [usize; 2], then: Then) -> Result<Conv> {
        let config = Conv2dConfig { stride, groups, padding: sizes[2] / 2, ..Default::default() };
        Conv::with(sizes, config, then)
    }

    fn plain(sizes: [usize; 3], stride: usize, padding: usize) -> Result<Conv> {
        Conv::with(sizes, Conv2dConfig { stride, padding, ..Default::default() }, Then::Relu)
    }

    fn with([from, out, kernel]: [usize; 3], config: Conv2dConfig, then: Then) -> Result<Conv> {
        let weight = weight(&[out, from / config.groups, kernel, kernel])?;
        Ok(Conv { conv: Conv2d::new(weight, Some((normal(&[out])? * 0.1)?), config), then })
    }
}

impl Module for Conv {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let y = self.conv.forward(x)?;
        match self.then {
            Then::Nothing => Ok(y),
            Then::Relu => y.relu(),
            Then::Relu6 => y.clamp(0f32, 6f32),
        }
    }
}

fn mean_of_planes(x: &Tensor) -> Result<Tensor> {
    x.mean((2, 3))
}

/// SqueezeNet 1.1 ([Iandola et al.](https://arxiv.org/abs/1602.07360)).
pub struct SqueezeNet {
    stem: Conv,
    fires: Vec<[Conv; 3]>,
    classifier: Conv,
}

impl SqueezeNet {
    pub fn new() -> Result<SqueezeNet> {
        let fire = |(from, squeezed, expanded): (usize, usize, usize)| {
            Ok([
                Conv::plain([from, squeezed, 1], 1, 0)?,
                Conv::plain([squeezed, expanded, 1], 1, 0)?,
                Conv::plain([squeezed, expanded, 3], 1, 1)?,
            ])
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
        Ok(SqueezeNet {
            stem: Conv::plain([3, 64, 3], 2, 0)?,
            fires: sizes.into_iter().map(fire).collect::<Result<_>>()?,
            classifier: Conv::plain([512, 1_000, 1], 1, 0)?,
        })
    }
}

impl Module for SqueezeNet {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let mut x = self.stem.forward(x)?;
        for (i, [squeeze, narrow, wide]) in self.fires.iter().enumerate() {
            if matches!(i, 0 | 2 | 4) {
                x = x.max_pool2d_with_stride(3, 2)?;
            }
            let squeezed = squeeze.forward(&x)?;
            x = Tensor::cat(&[narrow.forward(&squeezed)?, wide.forward(&squeezed)?], 1)?;
        }
        mean_of_planes(&self.classifier.forward(&x)?)
    }
}

/// ResNet-18 ([He et al.](https://arxiv.org/abs/1512.03385)).
pub struct ResNet18 {
    stem: Conv,
    blocks: Vec<(Conv, Conv, Option<Conv>)>,
    head: Linear,
}

impl ResNet18 {
    pub fn new() -> Result<ResNet18> {
        let (mut blocks, mut from) = (Vec::new(), 64);
        for (stage, out) in [64, 128, 256, 512].into_iter().enumerate() {
            for block in 0..2 {
                let stride = if stage > 0 && block == 0 { 2 } else { 1 };
                let short = (stride == 2).then(|| Conv::new([from, out, 1], [2, 1], Then::Nothing));
                blocks.push((
                    Conv::new([from, out, 3], [stride, 1], Then::Relu)?,
                    Conv::new([out, out, 3], [1, 1], Then::Nothing)?,
                    short.transpose()?,
                ));
                from = out;
            }
        }
        let stem = Conv::new([3, 64, 7], [2, 1], Then::Relu)?;
        Ok(ResNet18 { stem, blocks, head: linear(512, 1_000)? })
    }
}

impl Module for ResNet18 {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        // Pooling has no padding in candle. Behind a relu, zeros do not change a maximum.
        let padded = self.stem.forward(x)?.pad_with_zeros(2, 1, 1)?.pad_with_zeros(3, 1, 1)?;
        let mut x = padded.max_pool2d_with_stride(3, 2)?;
        for (first, second, short) in &self.blocks {
            let y = second.forward(&first.forward(&x)?)?;
            let residual = match short {
                Some(short) => short.forward(&x)?,
                None => x,
            };
            x = (y + residual)?.relu()?;
        }
        self.head.forward(&mean_of_planes(&x)?)
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
    pub fn new() -> Result<MobileNet2> {
        let (mut blocks, mut from) = (Vec::new(), 32);
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
                    wider: (factor > 1).then(wider).transpose()?,
                    planes: Conv::new([inner, inner, 3], [stride, inner], Then::Relu6)?,
                    narrower: Conv::new([inner, out, 1], [1, 1], Then::Nothing)?,
                    is_residual: stride == 1 && from == out,
                });
                from = out;
            }
        }
        Ok(MobileNet2 {
            stem: Conv::new([3, 32, 3], [2, 1], Then::Relu6)?,
            blocks,
            last: Conv::new([320, 1_280, 1], [1, 1], Then::Relu6)?,
            head: linear(1_280, 1_000)?,
        })
    }
}

impl Module for MobileNet2 {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let mut x = self.stem.forward(x)?;
        for block in &self.blocks {
            let inner = match &block.wider {
                Some(wider) => wider.forward(&x)?,
                None => x.clone(),
            };
            let y = block.narrower.forward(&block.planes.forward(&inner)?)?;
            x = if block.is_residual { (y + x)? } else { y };
        }
        self.head.forward(&mean_of_planes(&self.last.forward(&x)?)?)
    }
}
