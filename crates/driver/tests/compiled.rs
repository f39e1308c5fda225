//! Compiled programs share the state of the program that they were compiled from.

use maquette_driver::ExportOptions;
use maquette_ir::{DType, Device};
use maquette_ops::Tensor;
use maquette_ops::module::{Module, Slot, visit_part};
use std::thread;

type Visitor<'a> = &'a mut dyn FnMut(&str, Slot, &Tensor);

/// Adds its input to a buffer, and returns the softmax of both.
struct Sum {
    total: Tensor,
}

impl Module for Sum {
    type In = Tensor;
    type Out = Tensor;

    fn forward(&self, x: Tensor) -> Tensor {
        self.total.add_(&x);
        (&x * 2.0).linear(&Tensor::ones([2, 2], DType::F32), None).softmax(-1) + &self.total
    }

    fn visit(&self, v: Visitor<'_>) {
        visit_part(&self.total, "", "total", Slot::Buffer, v);
    }
}

fn sum() -> Sum {
    Sum { total: Tensor::zeros([2], DType::F32) }
}

fn values(t: &Tensor) -> Vec<f32> {
    t.to_vec().unwrap()
}

#[test]
fn a_compiled_program_writes_the_buffers_of_its_program() {
    let x = Tensor::from([1.0f32, 2.0]);
    let program = ExportOptions::new().export(&sum(), x.clone()).unwrap();
    let compiled = program.compile(Device::Cpu).unwrap();
    assert!(compiled.is_compiled());
    assert_eq!(values(&compiled.call(x.clone()).unwrap()), [1.5, 2.5]);
    assert_eq!(values(&program.call(x.clone()).unwrap()), [2.5, 4.5]);
    assert_eq!(values(&compiled.call(x.clone()).unwrap()), [3.5, 6.5]);
    let (_, _, total) = program.state().next().unwrap();
    assert_eq!(values(total), [3.0, 6.0]);
    // Composites are replaced by their parts.
    assert!(!compiled.graph().to_string().contains("aten::linear"));
    // An interpreter of the same program takes the same turns.
    thread::scope(|scope| {
        for k in 0..4 {
            let (x, program, compiled) = (&x, &program, &compiled);
            scope.spawn(move || {
                for _ in 0..50 {
                    match k % 2 {
                        0 => drop(program.call(x.clone()).unwrap()),
                        _ => drop(compiled.call(x.clone()).unwrap()),
                    }
                }
            });
        }
    });
    assert_eq!(values(total), [203.0, 406.0]);
}

#[test]
fn sizes_may_vary_as_in_the_program() {
    let program = ExportOptions::symbolic().export(&Square, Tensor::zeros([2], DType::F32));
    let compiled = program.unwrap().compile(Device::Cpu).unwrap();
    for n in [2, 0, 1, 300, 2] {
        let x = Tensor::full([n], 3.0, DType::F32);
        assert_eq!(values(&compiled.call(x).unwrap()), vec![9.0; n as usize]);
    }
    let e = compiled.call(Tensor::zeros([2, 2], DType::F32)).unwrap_err();
    insta::assert_snapshot!(e, @r"
    input `in0`: the type must be f32[s0], found f32[2, 2]
      at crates/driver/tests/compiled.rs:76
    ");
}

struct Square;

impl Module for Square {
    type In = Tensor;
    type Out = Tensor;

    fn forward(&self, x: Tensor) -> Tensor {
        &x * &x
    }

    fn visit(&self, _: Visitor<'_>) {}
}

#[test]
fn other_devices_are_refused() {
    let program = ExportOptions::new().export(&Square, Tensor::from([1.0f32])).unwrap();
    let device: Device = "cuda:0".parse().unwrap();
    let e = program.compile(device).unwrap_err();
    insta::assert_snapshot!(e.kind(), @"programs cannot be compiled for cuda:0; they can be compiled for: cpu");
}

#[test]
fn a_program_writes_given_outputs() {
    let x = Tensor::from([1.0f32, 2.0]);
    let program = ExportOptions::new().export(&sum(), x.clone()).unwrap();
    let compiled = program.compile(Device::Cpu).unwrap();
    let rows = Tensor::zeros([3, 2], DType::F32);
    for (row, expected) in [(2, [1.5, 2.5]), (0, [2.5, 4.5])] {
        compiled.call_into(x.clone(), &rows.select(0, row)).unwrap();
        assert_eq!(values(&rows.select(0, row)), expected);
    }
    assert_eq!(values(&rows), [2.5, 4.5, 0.0, 0.0, 1.5, 2.5]);
    let (_, _, total) = program.state().next().unwrap();
    let e = compiled.call_into(x.clone(), total).unwrap_err();
    assert!(e.to_string().contains("shares memory with input `total`"), "{e}");
    assert_eq!(values(total), [2.0, 4.0]);
}
