//! The network: two convolutions, a batch norm, a pooling and two linear layers, as plain Rust.

use super::operators::{confident_rows, normalize};
use maquette::io::Weights;
use maquette::prelude::*;

/// A convolutional network for 8×8 images of digits.
pub struct Cnn {
    conv1: [Tensor; 2],
    conv2: [Tensor; 2],
    norm: [Tensor; 4],
    fc1: [Tensor; 2],
    fc2: [Tensor; 2],
}

/// The network's predictions for a batch of `n` images.
#[derive(Tree)]
pub struct Prediction {
    /// `[n, 10]`
    pub logits: Tensor,
    /// The most likely digit of each image, `[n]`.
    pub digit: Tensor,
    /// The images with a confident prediction, `[k]`, where `k` depends on the data.
    pub confident_rows: Tensor,
    /// Their digits, `[k]`.
    pub confident_digit: Tensor,
}

impl Cnn {
    /// Creates the network with the given weights on a device.
    pub fn new(w: &Weights, device: Device) -> Result<Cnn> {
        let get = |name: &str| -> Result<Tensor> { Ok(w.get(name)?.to_device(device)) };
        let pair = |name: &str| -> Result<[Tensor; 2]> {
            Ok([get(&format!("{name}.weight"))?, get(&format!("{name}.bias"))?])
        };
        let [scale, shift] = pair("bn")?;
        Ok(Cnn {
            conv1: pair("conv1")?,
            conv2: pair("conv2")?,
            norm: [scale, shift, get("bn.running_mean")?, get("bn.running_var")?],
            fc1: pair("fc1")?,
            fc2: pair("fc2")?,
        })
    }

    /// Maps images of bytes `[n, 8, 8]` to predictions.
    pub fn forward(&self, images: &Tensor, confidence: f64) -> Prediction {
        let [scale, shift, mean, var] = &self.norm;
        let x = normalize(images);
        let x = conv3x3(&x, &self.conv1).relu();
        let x =
            conv3x3(&x, &self.conv2).batch_norm(Some(scale), Some(shift), mean, var, 1e-5).relu();
        let x = x.max_pool2d([2, 2], [2, 2], [0, 0]).flatten(1, -1);
        let x = x.linear(&self.fc1[0], Some(&self.fc1[1])).relu();
        let logits = x.linear(&self.fc2[0], Some(&self.fc2[1]));

        let digit = logits.argmax_dim(1, false);
        let confident_rows = confident_rows(&logits.softmax(-1), confidence);
        let confident_digit = digit.index_select(0, &confident_rows);
        Prediction { logits, digit, confident_rows, confident_digit }
    }
}

fn conv3x3(x: &Tensor, [weight, bias]: &[Tensor; 2]) -> Tensor {
    x.conv2d(weight, Some(bias), [1, 1], [1, 1], [1, 1], 1)
}
