//! Networks of images: convolutions of as many channels as get a layout of their own when they are
//! compiled, what models have between them, and calls that observe an image.

use super::super::{Argument, Call};
use super::{Generator, patterns::one};
use Argument::{Bool, Float, Int, Ints, None, Value as V, Values};
use maquette_ir::DType;

/// The channels of convolutions: more than a vector has, and fewer.
const CHANNELS: [i64; 6] = [16, 17, 24, 33, 16, 8];

impl Generator {
    /// The dtype and the sizes of small images.
    pub(super) fn image(&mut self) -> (DType, Vec<i64>) {
        let dtype = if self.rng.chance(85) { DType::F32 } else { DType::F64 };
        let channels = self.rng.one(&[3, 16, 17, 32]).unwrap_or(3);
        let mut side = || self.rng.one(&[5, 6, 7, 9]).unwrap_or(5);
        (dtype, vec![self.batch, channels, side(), side()])
    }

    /// Adds the layers of a network whose image is the first input.
    pub(super) fn network(&mut self) {
        let mut image = 0;
        for _ in 0..2 + self.rng.below(4) {
            image = self.layer(image);
        }
    }

    /// Adds a layer that reads an image. Returns the image after it.
    fn layer(&mut self, image: usize) -> usize {
        let mut image = self.convolved(image);
        if self.rng.chance(40) {
            image = self.then(image, |own, image| own.norm(image));
        }
        if self.rng.chance(35) {
            image = self.then(image, Generator::residual);
        }
        if self.rng.chance(70) {
            image = self.then(image, Generator::activation);
        }
        match self.rng.below(12) {
            0 | 1 => self.then(image, Generator::pool),
            2 | 3 => self.then(image, Generator::joined),
            4..=6 => {
                let inputs = self.chain.inputs.len();
                let call = self.observer(image);
                self.take(call);
                self.moved(image, inputs)
            }
            _ => image,
        }
    }

    /// Adds a call that `make` makes for an image. Returns the result, or the image if the operator
    /// refuses it.
    fn then(
        &mut self,
        image: usize,
        make: impl FnOnce(&mut Generator, usize) -> Option<Call>,
    ) -> usize {
        let inputs = self.chain.inputs.len();
        let call = make(self, image);
        let result = self.values.len();
        match call.is_some_and(|call| self.take(call)) {
            true => result,
            false => self.moved(image, inputs),
        }
    }

    /// The number of a value that was `v` while there were `inputs` inputs.
    fn moved(&self, v: usize, inputs: usize) -> usize {
        if v < inputs { v } else { v + self.chain.inputs.len() - inputs }
    }

    fn convolved(&mut self, image: usize) -> usize {
        self.then(image, |own, image| match own.sizes_of(image)[..] {
            [_, channels, ..] => {
                let out = own.rng.one(&CHANNELS)?;
                // Mostly one that keeps the sizes, so that there are images to add and to join.
                let window = match own.rng.chance(60) {
                    true => own.rng.one(&[[1, 1, 0, 1], [3, 1, 1, 1], [3, 1, 2, 2]])?,
                    false => own.window(),
                };
                Some(own.convolution(image, [channels, out], window, 2))
            }
            _ => Option::None,
        })
    }

    /// The sum with an earlier image of the same sizes.
    fn residual(&mut self, image: usize) -> Option<Call> {
        let sizes = self.sizes_of(image);
        let is_like = |v: &usize| *v != image && self.sizes_of(*v) == sizes;
        let alike: Vec<usize> = (0..self.values.len()).filter(is_like).collect();
        let other = self.rng.one(&alike)?;
        let (a, b) = if self.rng.chance(50) { (image, other) } else { (other, image) };
        Some(one(Some("aten::add.Tensor"), vec![V(a), V(b)]))
    }

    fn activation(&mut self, image: usize) -> Option<Call> {
        Some(match self.rng.below(6) {
            0 => one(Some("aten::hardtanh"), vec![V(image), Float(0.0), Float(6.0)]),
            1 => one(Some("aten::silu"), vec![V(image)]),
            2 => one(Some("aten::relu_"), vec![V(image)]),
            _ => one(Some("aten::relu"), vec![V(image)]),
        })
    }

    fn pool(&mut self, image: usize) -> Option<Call> {
        let (kernel, stride) = (self.rng.one(&[2, 3])?, self.rng.one(&[1, 2])?);
        let (kernel, stride) = (Ints(vec![kernel; 2]), Ints(vec![stride; 2]));
        Some(match self.rng.below(4) {
            0 => one(Some("aten::avg_pool2d"), vec![V(image), kernel, stride]),
            1 => {
                let size = Ints(vec![self.rng.one(&[1, 2])?; 2]);
                one(Some("aten::_adaptive_avg_pool2d"), vec![V(image), size])
            }
            _ => {
                let padding = Ints(vec![self.rng.below(2) as i64; 2]);
                one(Some("aten::max_pool2d"), vec![V(image), kernel, stride, padding])
            }
        })
    }

    /// The channels of an earlier image of as many pixels, and those of this one.
    fn joined(&mut self, image: usize) -> Option<Call> {
        let of = |own: &Generator, v: usize| match own.sizes_of(v)[..] {
            [images, _, rows, columns] => Some([images, rows, columns]),
            _ => Option::None,
        };
        let here = of(self, image);
        let is_like = |v: &usize| *v != image && of(self, *v) == here;
        let alike: Vec<usize> = (0..self.values.len()).filter(is_like).collect();
        let other = self.rng.one(&alike)?;
        let parts = if self.rng.chance(50) { [image, other] } else { [other, image] };
        Some(one(Some("aten::cat"), vec![Values(parts.into()), Int(1)]))
    }

    /// A call that knows nothing of images.
    fn observer(&mut self, image: usize) -> Call {
        match self.rng.below(8) {
            0 => self.view(image),
            1 => self.rows(image),
            2 => one(Some("aten::flatten.using_ints"), vec![V(image), Int(1), Int(-1)]),
            3 => one(Some("aten::_softmax"), vec![V(image), Int(3), Bool(false)]),
            4 => self.custom_unary(image),
            5 => {
                let args = vec![V(image), Int(1), Int(1), None, Int(2)];
                one(Some("aten::slice.Tensor"), args)
            }
            _ => self.custom_binary(image),
        }
    }
}
