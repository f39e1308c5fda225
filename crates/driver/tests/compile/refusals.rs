//! What cannot be compiled, and what is said instead.

use super::*;
use maquette_ir::Device;
use maquette_ops::Meta;
use maquette_trace::trace;

#[test]
fn control_flow_over_data() {
    let f = CompileOptions::new().names(["x"]).compile(|x: Tensor| -> Result<Tensor> {
        Ok(if x.sum().item::<f32>()? > 0.0 { x.relu() } else { x })
    });
    insta::assert_snapshot!(text(&err(f.call(arange(2)))), @"");
    assert_eq!(f.compilations(), 0);
}

#[test]
fn control_flow_over_a_size_from_data() {
    let f = CompileOptions::new().names(["x"]).compile(|x: Tensor| -> Result<Tensor> {
        let found = x.nonzero();
        Ok(if found.size(0).gt(3).guard()? { found } else { x })
    });
    insta::assert_snapshot!(text(&err(f.call(arange(2)))), @"");
}

#[test]
fn inputs_that_require_gradients() {
    let meta = Meta { requires_grad: true, ..Meta::contiguous([2], DType::F32).on(Device::Cpu) };
    let x = Tensor::fake_of(meta);
    let f = compile(|(x, y): (Tensor, Tensor)| x + y);
    insta::assert_snapshot!(text(&err(f.call((arange(2), x)))), @"");
}

#[test]
fn an_error_of_the_function() {
    let f = compile(|x: Tensor| x.reshape([7]));
    insta::assert_snapshot!(text(&err(f.call(arange(2)))), @"");
}

#[test]
fn under_a_trace_the_function_is_inlined() {
    let f = compile(|x: Tensor| x.relu() + 1.0);
    f.call(arange(2)).unwrap();
    let outer = trace(|x: Tensor| f.call(x * 2.0), arange(3)).unwrap();
    assert_eq!(f.compilations(), 1);
    let names: Vec<&str> = outer.graph().nodes().map(|n| outer.graph().op_name(n)).collect();
    assert_eq!(names, ["aten::mul.Tensor", "aten::relu", "aten::add.Tensor"]);
    let g = compile(|x: Tensor| f.call(x * 2.0));
    assert_eq!(g.call(arange(4)).unwrap().to_vec::<f32>().unwrap(), [1.0; 4]);
    assert_eq!((f.compilations(), g.compilations()), (1, 1));
}

#[test]
fn on_fake_tensors_the_function_is_called() {
    let f = compile(|x: Tensor| x.relu().t());
    let y = f.call(Tensor::fake([2, 3], DType::F32)).unwrap();
    assert!(y.is_fake());
    assert_eq!(y.sizes_i64().unwrap(), [3, 2]);
    assert_eq!(f.compilations(), 0);
}
