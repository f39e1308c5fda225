//! Overrides of builtin operators of which a trace sees only the parts. In a process of their own,
//! since an override is everyone's.

use maquette_driver::compile;
use maquette_ir::DType;
use maquette_ops::func::value_and_grad;
use maquette_ops::library::{Kind, Library};
use maquette_ops::{Op, Result, Tensor, args, autocast};

/// A composite whose parts are differentiated.
#[test]
fn a_composite_in_a_differentiated_function() {
    let op = Op::find("aten::arcsinh").unwrap();
    let sum = move |x: Tensor| -> Tensor {
        let y = op.call(args![&x]).and_then(|results| results[0].tensor().cloned());
        y.unwrap_or_else(Tensor::poison).sum()
    };
    let f = compile(value_and_grad(sum));
    let x = || Tensor::from([0.0f32, 1.0]);
    f.call(x()).unwrap();
    let library = Library::new("aten", Kind::Impl).unwrap();
    let zeros = |x: &Tensor| -> Result<Tensor> { Ok(Tensor::zeros(x.sizes(), x.dtype())) };
    library.impl_("arcsinh", "cpu", zeros).unwrap();
    assert!(value_and_grad(sum)(x()).is_err());
    assert!(f.call(x()).is_err());
    drop(library);
    f.call(x()).unwrap();
}

/// A composite whose parts are cast.
#[test]
fn a_composite_in_autocast() {
    let op = Op::find("aten::arccosh").unwrap();
    let lower = move |x: Tensor| -> Result<Tensor> {
        autocast(DType::BF16, || Ok(op.call(args![&x])?[0].tensor()?.clone()))
    };
    let f = compile(lower);
    let x = || Tensor::from([1.0f32, 2.0]);
    f.call(x()).unwrap();
    let library = Library::new("aten", Kind::Impl).unwrap();
    let zeros = |x: &Tensor| -> Result<Tensor> { Ok(Tensor::zeros(x.sizes(), x.dtype())) };
    library.impl_("arccosh", "cpu", zeros).unwrap();
    assert_eq!(lower(x()).unwrap().to_vec::<f32>().unwrap(), [0.0, 0.0]);
    assert_eq!(f.call(x()).unwrap().to_vec::<f32>().unwrap(), [0.0, 0.0]);
}

/// A norm that updates its statistics, which its schema does not say.
#[test]
fn a_norm_that_updates_statistics() {
    type Given = (Tensor, Tensor, Tensor);
    let norm =
        |(x, mean, var): Given| x.batch_norm_train(None, None, Some((&mean, &var)), 0.1, 1e-5);
    let inputs = || {
        let x = Tensor::from([[0.0f32, 1.0], [2.0, 3.0]]);
        (x, Tensor::zeros([2], DType::F32), Tensor::ones([2], DType::F32))
    };
    let f = compile(norm);
    f.call(inputs()).unwrap();
    let library = Library::new("aten", Kind::Impl).unwrap();
    let zeros = |x: &Tensor,
                 _: Option<&Tensor>,
                 _: Option<&Tensor>,
                 _: Option<&Tensor>,
                 _: Option<&Tensor>,
                 _: bool,
                 _: f64,
                 _: f64,
                 _: bool|
     -> Result<Tensor> { Ok(Tensor::zeros(x.sizes(), x.dtype())) };
    library.impl_("batch_norm", "cpu", zeros).unwrap();
    assert_eq!(norm(inputs()).to_vec::<f32>().unwrap(), [0.0; 4]);
    assert_eq!(f.call(inputs()).unwrap().to_vec::<f32>().unwrap(), [0.0; 4]);
    assert_eq!(compile(norm).call(inputs()).unwrap().to_vec::<f32>().unwrap(), [0.0; 4]);
}
