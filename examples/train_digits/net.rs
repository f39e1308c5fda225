//! The network: two convolutions, a batch norm and two linear layers, with a custom operator that
//! has a derivative.

use maquette::ops::{Reduction, random};
use maquette::prelude::*;

/// Images of bytes `[n, 8, 8]`, 0 to 16, as floats `[n, 1, 8, 8]`: each pixel divided by 16 and
/// multiplied by a learnt gain `[8, 8]`. No pass looks into the operator.
#[custom_op("train_digits::normalize")]
fn normalize(images: &Tensor, gain: &Tensor) -> Result<Tensor> {
    let (images, gain) = (images.read::<u8>()?, gain.read::<f32>()?);
    let pixels = images.mapv(|p| f32::from(p) / 16.0) * &*gain;
    Ok(Tensor::from(pixels.insert_axis(maquette::ndarray::Axis(1))))
}

#[register_fake(normalize)]
fn normalize_fake(_cx: &FakeCtx, images: &Tensor, gain: &Tensor) -> Result<Tensor> {
    ensure!(images.dtype() == DType::U8, "images must be bytes, found {}", images.dtype());
    Ok(gain.new_empty([images.size(0), 1.into(), images.size(1), images.size(2)], gain.dtype()))
}

/// Registers the derivative of [`normalize`]: the gain's gradient is that of the result times the
/// pixels, summed over the images. Bytes have no gradient.
pub fn register_derivative() -> Result<()> {
    static ONCE: std::sync::Once = std::sync::Once::new();
    let mut outcome = Ok(());
    ONCE.call_once(|| {
        outcome = Op::find("train_digits::normalize").and_then(|op| {
            op.register_autograd_with(
                |ctx, inputs, _| {
                    ctx.save(inputs[0].tensor()?);
                    Ok(())
                },
                |ctx, grads| {
                    let pixels = ctx.saved(0)?.to_dtype(DType::F32) / 16.0;
                    Ok(vec![None, Some((grads[0].select(1, 0) * pixels).sum_dim([0], false))])
                },
            )
        });
    });
    outcome
}

/// The weight and the bias of a layer.
#[derive(Clone, Tree)]
pub struct Layer {
    weight: Tensor,
    bias: Tensor,
}

/// What is learnt.
#[derive(Clone, Tree)]
pub struct Params {
    gain: Tensor,
    conv1: Layer,
    conv2: Layer,
    norm: Layer,
    fc1: Layer,
    fc2: Layer,
}

/// The running statistics of the batch norm, which training updates in place.
#[derive(Clone, Tree)]
pub struct Running {
    mean: Tensor,
    var: Tensor,
}

impl Layer {
    /// Uniform in `±1 / sqrt(inputs)`, as PyTorch's layers begin.
    fn new(sizes: &[i64], device: Device) -> Layer {
        let inputs: i64 = sizes[1..].iter().product();
        let bound = 1.0 / (inputs as f64).sqrt();
        let drawn = |sizes: &[i64]| Tensor::empty(sizes, DType::F32).uniform_(-bound, bound);
        let uniform = |sizes: &[i64]| drawn(sizes).to_device(device);
        Layer { weight: uniform(sizes), bias: uniform(&sizes[..1]) }
    }

    fn conv(&self, x: &Tensor) -> Tensor {
        x.conv2d(&self.weight, Some(&self.bias), [1, 1], [1, 1], [1, 1], 1)
    }

    fn linear(&self, x: &Tensor) -> Tensor {
        x.linear(&self.weight, Some(&self.bias))
    }
}

impl Params {
    /// Random parameters on a device, the same for a seed.
    pub fn random(seed: u64, device: Device) -> Params {
        random::manual_seed(seed);
        Params {
            gain: Tensor::ones([8, 8], DType::F32).to_device(device),
            conv1: Layer::new(&[16, 1, 3, 3], device),
            conv2: Layer::new(&[32, 16, 3, 3], device),
            norm: Layer {
                weight: Tensor::ones([32], DType::F32).to_device(device),
                bias: Tensor::zeros([32], DType::F32).to_device(device),
            },
            fc1: Layer::new(&[64, 512], device),
            fc2: Layer::new(&[10, 64], device),
        }
    }

    /// The mean cross-entropy of a batch of images `[n, 8, 8]` with labels `[n]`. Updates the
    /// running statistics.
    pub fn loss(&self, running: &Running, images: &Tensor, labels: &Tensor) -> Tensor {
        let Layer { weight, bias } = &self.norm;
        let statistics = Some((&running.mean, &running.var));
        let logits = self.logits(images, |x| {
            x.batch_norm_train(Some(weight), Some(bias), statistics, 0.1, 1e-5)
        });
        logits.cross_entropy_loss(labels, None, Reduction::Mean, -100, 0.0)
    }

    /// The most likely digit of each image.
    pub fn predict(&self, Running { mean, var }: &Running, images: &Tensor) -> Tensor {
        let Layer { weight, bias } = &self.norm;
        self.logits(images, |x| x.batch_norm(Some(weight), Some(bias), mean, var, 1e-5))
            .argmax_dim(1, false)
    }

    fn logits(&self, images: &Tensor, norm: impl Fn(&Tensor) -> Tensor) -> Tensor {
        let x = self.conv1.conv(&normalize(images, &self.gain)).relu();
        let x = norm(&self.conv2.conv(&x)).relu();
        let x = x.max_pool2d([2, 2], [2, 2], [0, 0]).flatten(1, -1);
        self.fc2.linear(&self.fc1.linear(&x).relu())
    }
}

impl Running {
    /// Those of no images, on a device.
    pub fn new(device: Device) -> Running {
        let (mean, var) = (Tensor::zeros([32], DType::F32), Tensor::ones([32], DType::F32));
        Running { mean: mean.to_device(device), var: var.to_device(device) }
    }
}
