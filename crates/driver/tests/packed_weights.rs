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
