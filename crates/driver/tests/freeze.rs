//! Frozen weights: nobody can write them, and calls give what they gave.

mod common;

use common::arange;
use maquette_driver::compile;
use maquette_ir::DType;
use maquette_ops::Tensor;

fn floats(t: &Tensor) -> Vec<f32> {
    t.to_vec().unwrap()
}

fn weight() -> Tensor {
    (arange(96 * 80) * 0.01).sin().reshape([96, 80])
}

#[test]
fn a_frozen_weight_cannot_be_written() {
    let weight = weight();
    let eager = |x: Tensor| x.matmul(&weight).relu();
    let f = compile(eager);
    assert_eq!(f.freeze().unwrap().weights, 0, "nothing is captured yet");
    let x = arange(5 * 96).reshape([5, 96]);
    let before = floats(&f.call(x.clone()).unwrap());
    let report = f.freeze().unwrap();
    assert_eq!((report.weights, report.bytes, report.written), (1, 4 * 96 * 80, 0));
    assert!(report.packed_bytes >= 4 * 96 * 80, "{report}");
    let wrong_sizes = weight.add_(arange(7));
    assert!(wrong_sizes.ok().is_err());
    for written in [weight.add_(1.0), weight.select(0, 3).fill_(0.5), weight.t().zero_()] {
        let e = written.ok().map(drop).unwrap_err().to_string();
        assert!(e.contains("the tensor is frozen"), "{e}");
    }
    assert!(weight.clone().write::<f32>().is_err());
    // what failed has poisoned nothing, and calls read what they read before
    for rows in [5, 1, 9, 5] {
        let x = arange(rows * 96).reshape([rows, 96]);
        assert_eq!(floats(&f.call(x.clone()).unwrap()), floats(&eager(x)));
    }
    assert_eq!(floats(&f.call(x).unwrap()), before);
    // a run cannot write it either
    let g = compile(|x: Tensor| weight.add_(&x).relu());
    let e = g.call(Tensor::ones([96, 80], DType::F32)).map(drop).unwrap_err().to_string();
    assert!(e.contains("the tensor is frozen"), "{e}");
    assert_eq!(f.freeze().unwrap().weights, 1, "freezing twice");
}

#[test]
fn a_weight_that_a_program_writes_stays_as_it_is() {
    let (weight, count) = (weight(), Tensor::zeros([80], DType::F32));
    let f = compile(|x: Tensor| {
        count.add_(1.0);
        x.matmul(&weight) + &count
    });
    let x = arange(5 * 96).reshape([5, 96]);
    f.call(x.clone()).unwrap();
    let report = f.freeze().unwrap();
    assert_eq!((report.weights, report.written), (1, 1), "{report} {}", f.explain());
    f.call(x).unwrap();
    assert_eq!(floats(&count), [2.0; 80]);
}

#[test]
fn a_weight_in_use_is_not_frozen() {
    let weight = weight();
    let f = compile(|x: Tensor| x.matmul(&weight));
    f.call(Tensor::ones([3, 96], DType::F32)).unwrap();
    let mut handle = weight.clone();
    let guard = handle.write::<f32>().unwrap();
    let e = f.freeze().unwrap_err().to_string();
    assert!(e.contains("cannot freeze"), "{e}");
    drop(guard);
    weight.add_(1.0);
    f.freeze().unwrap();
    assert!(weight.add_(1.0).ok().is_err());
}
