//! Exported programs and overrides of their operators. In a process of their own, since an override
//! is everyone's.

use maquette_driver::ExportOptions;
use maquette_ir::Device;
use maquette_ops::library::{DispatchKey, Kind, Library};
use maquette_ops::module::{Module, Slot};
use maquette_ops::{Result, Tensor};
use std::sync::{Mutex, MutexGuard, PoisonError};

type Visitor<'a> = &'a mut dyn FnMut(&str, Slot, &Tensor);

/// Tests take turns.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn values(t: &Tensor) -> Vec<f32> {
    t.to_vec().unwrap()
}

/// Overrides `aten::mul.Tensor` by ones until the library is dropped.
fn ones_for_products() -> Library {
    let library = Library::new("aten", Kind::Impl).unwrap();
    let ones = |x: &Tensor, _: &Tensor| -> Result<Tensor> { Ok(x.ones_like()) };
    library.impl_("mul.Tensor", DispatchKey::Cpu, ones).unwrap();
    library
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
fn programs_follow_an_override_of_an_operator() {
    let _alone = alone();
    let x = || Tensor::from([2.0f32, 3.0]);
    let program = ExportOptions::new().export(&Square, x()).unwrap();
    let compiled = program.compile(Device::Cpu).unwrap();
    let both = || [program.call(x()).unwrap(), compiled.call(x()).unwrap()].map(|t| values(&t));
    assert_eq!(both(), [[4.0, 9.0]; 2]);
    let library = ones_for_products();
    assert_eq!(both(), [[1.0, 1.0]; 2]);
    drop(library);
    assert_eq!(both(), [[4.0, 9.0]; 2]);
}

struct Scale;

impl Module for Scale {
    type In = (Tensor, Tensor);
    type Out = Tensor;

    fn forward(&self, (x, y): (Tensor, Tensor)) -> Tensor {
        x.mul_(&y);
        x
    }

    fn visit(&self, _: Visitor<'_>) {}
}

/// A write computes by the functional operator in a graph. An override of this operator is none of
/// the write.
#[test]
fn a_write_in_a_program_is_not_overridden_with_its_functional_operator() {
    let _alone = alone();
    let given = || (Tensor::from([2.0f32, 3.0]), Tensor::from([5.0f32, 7.0]));
    let program = ExportOptions::new().export(&Scale, given()).unwrap();
    let compiled = program.compile(Device::Cpu).unwrap();
    let _library = ones_for_products();
    for found in [Scale.forward(given()), program.call(given()).unwrap()] {
        assert_eq!(values(&found), [10.0, 21.0]);
    }
    assert_eq!(values(&compiled.call(given()).unwrap()), [10.0, 21.0]);
    let again = ExportOptions::new().export(&Scale, given()).unwrap();
    assert_eq!(values(&again.call(given()).unwrap()), [10.0, 21.0]);
}
