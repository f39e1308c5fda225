//! Overridden operators, in a process of its own: an override holds for all tests of one.

use maquette_driver::{CompileOptions, FastMath, NoAttentionReason};
use maquette_ir::DType;
use maquette_ops::library::{Kind, Library};
use maquette_ops::{Result, Tensor};

fn attend((q, k, v): (Tensor, Tensor, Tensor)) -> Tensor {
    q.matmul(&k.mT()).softmax(-1).matmul(&v)
}

/// Neither the operators of a pattern nor those that they call are replaced if they are overridden.
#[test]
fn an_override_is_called() {
    let inputs = || {
        let ramp = Tensor::arange(24).to_dtype(DType::F32).view([2, 3, 4]) / 24.0;
        (ramp.clone(), ramp.clone(), ramp)
    };
    let f = CompileOptions::new().fast_math(FastMath::all()).compile(attend);
    let first = f.call(inputs()).unwrap().to_vec::<f32>().unwrap();
    let recognized = || f.explain().programs[0].attention.clone().unwrap().recognized.len();
    assert_eq!(recognized(), 1);
    let ones = |x: &Tensor, y: &Tensor| -> Result<Tensor> {
        Ok(Tensor::ones([x.size(0), x.size(1), y.size(2)], x.dtype()))
    };
    let rows =
        |x: &Tensor, _: i64, _: bool| -> Result<Tensor> { Ok(Tensor::ones(x.sizes(), x.dtype())) };
    for name in ["bmm", "_softmax"] {
        let library = Library::new("aten", Kind::Impl).unwrap();
        match name {
            "bmm" => library.impl_(name, "cpu", ones).unwrap(),
            _ => library.impl_(name, "cpu", rows).unwrap(),
        }
        let found = f.call(inputs()).unwrap().to_vec::<f32>().unwrap();
        assert_eq!(found, attend(inputs()).to_vec::<f32>().unwrap(), "{name}");
        assert_ne!(found, first, "{name}");
        let refused = f.explain().programs[0].attention.clone().unwrap().refused;
        assert_eq!(refused[0].1, NoAttentionReason::Overridden, "{name}");
        drop(library);
        assert_eq!(f.call(inputs()).unwrap().to_vec::<f32>().unwrap(), first, "{name}");
        assert_eq!(recognized(), 1, "{name}");
    }
}
