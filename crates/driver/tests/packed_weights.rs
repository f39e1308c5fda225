//! Weights of compiled programs are packed once, and stay live.

use maquette_driver::ExportOptions;
use maquette_ir::{DType, Device};
use maquette_ops::Tensor;
use maquette_ops::module::{Module, Slot, visit_part};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

type Visitor<'a> = &'a mut dyn FnMut(&str, Slot, &Tensor);

const K: i64 = 96;
const N: i64 = 80;

/// A linear layer, and a product with the same weight as it is stored. `scale` is a constant.
struct Layer {
    weight: Tensor,
    bias: Tensor,
    scale: Tensor,
}

impl Module for Layer {
    type In = Tensor;
    type Out = (Tensor, Tensor);

    fn forward(&self, x: Tensor) -> (Tensor, Tensor) {
        let y = x.linear(&self.weight, Some(&self.bias));
        let z = y.matmul(&self.scale);
        (y, z)
    }

    fn visit(&self, v: Visitor<'_>) {
        visit_part(&self.weight, "", "weight", Slot::Parameter, v);
        visit_part(&self.bias, "", "bias", Slot::Parameter, v);
        visit_part(&self.scale, "", "scale", Slot::Buffer, v);
    }
}

fn ramp(rows: i64, columns: i64) -> Tensor {
    let x = Tensor::arange(rows * columns).to_dtype(DType::F32);
    ((x * 0.37).sin()).reshape([rows, columns])
}

fn layer() -> Layer {
    Layer { weight: ramp(N, K), bias: ramp(1, N).reshape([N]), scale: ramp(N, N) }
}

fn values(t: &Tensor) -> Vec<f32> {
    t.to_vec().unwrap()
}

#[test]
fn weights_are_packed_once_and_again_after_a_write() {
    let layer = layer();
    let program = ExportOptions::symbolic().export(&layer, ramp(5, K)).unwrap();
    let compiled = program.compile(Device::Cpu).unwrap();
    assert!(compiled.is_compiled());
    assert_eq!(compiled.packed_bytes(), 0);
    let compare = |rows: i64| {
        let x = ramp(rows, K);
        let (found, expected) = (compiled.call(x.clone()).unwrap(), program.call(x).unwrap());
        assert_eq!(values(&found.0), values(&expected.0));
        assert_eq!(values(&found.1), values(&expected.1));
    };
    compare(5);
    let bytes = compiled.packed_bytes();
    assert!(bytes >= 4 * (N * K + N * N) as usize, "{bytes}");
    assert!(bytes <= 5 * (N * K + N * N) as usize, "{bytes}");
    // Another size shares them, and one row needs none.
    compare(7);
    compare(1);
    assert_eq!(compiled.packed_bytes(), bytes);
    for (name, _, t) in program.state() {
        t.mul_(-2.0);
        compare(5);
        compare(1);
        compare(130);
        assert_eq!(compiled.packed_bytes(), bytes, "{name}");
    }
    // A view of the weight writes it, too.
    let (_, _, weight) = program.state().next().unwrap();
    weight.select(0, 3).add_(1.0);
    compare(7);
    assert_eq!(compiled.packed_bytes(), bytes);
}

#[test]
fn a_run_has_the_weights_of_one_time() {
    let layer = Layer {
        weight: Tensor::ones([N, K], DType::F32),
        bias: Tensor::zeros([N], DType::F32),
        scale: Tensor::ones([N, N], DType::F32),
    };
    let program = ExportOptions::new().export(&layer, Tensor::ones([4, K], DType::F32)).unwrap();
    let compiled = program.compile(Device::Cpu).unwrap();
    let (_, _, weight) = program.state().next().unwrap();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..3 {
            let (compiled, done) = (&compiled, &done);
            scope.spawn(move || {
                let x = Tensor::ones([4, K], DType::F32);
                let mut last = 0.0f32;
                while !done.load(Ordering::Relaxed) {
                    // A run is refused while the weight is written.
                    let Ok((y, _)) = compiled.call(x.clone()) else { continue };
                    let y = values(&y);
                    assert!(y.iter().all(|v| *v == y[0]), "{y:?}");
                    assert!(y[0] >= last, "{} after {last}", y[0]);
                    last = y[0];
                }
            });
        }
        for step in 2..200 {
            while weight.fill_(f64::from(step)).ok().is_err() {
                thread::yield_now();
            }
            thread::yield_now();
        }
        done.store(true, Ordering::Relaxed);
    });
    let (y, _) = compiled.call(Tensor::ones([4, K], DType::F32)).unwrap();
    assert_eq!(values(&y), vec![199.0 * K as f32; (4 * N) as usize]);
}

/// A convolution with a batch norm, whose scale and shift follow from four weights.
struct Normed {
    weight: Tensor,
    norm: Option<[Tensor; 4]>,
}

impl Module for Normed {
    type In = Tensor;
    type Out = Tensor;

    fn forward(&self, x: Tensor) -> Tensor {
        let y = x.conv2d(&self.weight, None, [1, 1], [1, 1], [1, 1], 1);
        let Some([scale, shift, mean, variance]) = &self.norm else { return y };
        y.batch_norm(Some(scale), Some(shift), mean, variance, 1e-5).relu()
    }

    fn visit(&self, v: Visitor<'_>) {
        visit_part(&self.weight, "", "weight", Slot::Parameter, v);
        let names = ["scale", "shift", "mean", "variance"];
        for (name, t) in names.iter().zip(self.norm.iter().flatten()) {
            visit_part(t, "", name, Slot::Buffer, v);
        }
    }
}

#[test]
fn values_of_weights_are_computed_once_and_again_after_a_write() {
    let channels = |add: f64| ramp(1, 24).reshape([24]) + add;
    let norm = [channels(2.0), channels(0.0), channels(0.5), channels(1.5)];
    let weight = ramp(24, 16 * 9).reshape([24, 16, 3, 3]);
    let (normed, plain) =
        (Normed { weight: weight.clone(), norm: Some(norm) }, Normed { weight, norm: None });
    let image = |rows: i64| ramp(16, rows * 12).reshape([1, 16, rows, 12]);
    let program = ExportOptions::symbolic().export(&normed, image(10)).unwrap();
    let compiled = program.compile(Device::Cpu).unwrap();
    let compare = |rows: i64| {
        let (found, expected) = (compiled.call(image(rows)), program.call(image(rows)));
        assert_eq!(values(&found.unwrap()), values(&expected.unwrap()));
    };
    compare(10);
    let bytes = compiled.packed_bytes();
    let plain = ExportOptions::new().export(&plain, image(10)).unwrap();
    let plain = plain.compile(Device::Cpu).unwrap();
    plain.call(image(10)).unwrap();
    let values = bytes - plain.packed_bytes();
    assert!(values >= 24 * 4, "{values} bytes of values");
    for (name, _, t) in program.state() {
        t.mul_(1.25);
        compare(10);
        compare(7);
        t.select(0, 3).add_(0.5);
        compare(10);
        assert!(compiled.packed_bytes() >= bytes, "{name}");
    }
    compiled.freeze().unwrap();
    compare(10);
    compare(7);
}
