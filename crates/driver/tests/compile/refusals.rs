//! What cannot be compiled, and what is said instead.

use super::*;
use maquette_ir::sym::SymInt;
use maquette_trace::trace;

#[test]
fn control_flow_over_data() {
    let f = CompileOptions::new().names(["x"]).compile(|x: Tensor| -> Result<Tensor> {
        Ok(if x.sum().item::<f32>()? > 0.0 { x.relu() } else { x })
    });
    insta::assert_snapshot!(text(&err(f.call(arange(2)))), @r"
    cannot read the data of a traced tensor: its values are not known while tracing. Compute with operators, such as `cond.where_(a, b)` in place of `if`, or write a custom operator
      at refusals.rs:LINE
    ");
    assert_eq!(f.compilations(), 0);
}

#[test]
fn control_flow_over_a_size_from_data() {
    let f = CompileOptions::new().names(["x"]).compile(|x: Tensor| -> Result<Tensor> {
        let found = x.nonzero();
        Ok(if found.size(0).gt(0).guard()? { found } else { x })
    });
    insta::assert_snapshot!(text(&err(f.call(arange(2)))), @r#"
    cannot branch on `u0 > 0` at refusals.rs:LINE: u0 is the data-dependent size made by aten::nonzero at refusals.rs:LINE, unknown while tracing; use .check("message") to assert what you know about it, or .statically_known() to ask without deciding
      at refusals.rs:LINE
    "#);
}

#[test]
fn inputs_that_require_gradients() {
    let x = Tensor::fake([2], DType::F32).requires_grad_();
    let f = compile(|(x, y): (Tensor, Tensor)| x + y);
    insta::assert_snapshot!(text(&err(f.call((arange(2), x)))), @r"
    input `in1` requires a gradient, and a compiled function computes none; compile the function with its gradient, `compile(value_and_grad(f))`, or pass a tensor that does not require one
      at refusals.rs:LINE
    ");
}

#[test]
fn an_error_of_the_function() {
    let f = compile(|x: Tensor| x.reshape([7]));
    insta::assert_snapshot!(text(&err(f.call(arange(2)))), @r"
    aten::reshape: sizes [7] do not hold the 2 elements of the tensor
      at refusals.rs:LINE
    ");
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

/// A tree has one way to say that an option is empty.
#[test]
fn options_inside_options() {
    let eager = |(x, o): (Tensor, Option<Option<Tensor>>)| match o {
        Some(_) => x + 1.0,
        None => x,
    };
    let f = compile(eager);
    same(eager, &f, || (arange(2), None));
    same(eager, &f, || (arange(2), Some(Some(arange(2)))));
    assert!(err(f.call((arange(2), Some(None)))).to_string().contains("`Some(None)`"));
}

#[test]
fn an_integer_that_is_an_error() {
    let f = compile(|(x, n): (Tensor, SymInt)| x.narrow(0, 0, n));
    f.call((arange(4), 2.into())).unwrap();
    let n = SymInt::from(i64::MAX) + 1;
    let eager = arange(4).narrow(0, 0, n).ok().unwrap_err().kind().to_string();
    assert_eq!(err(f.call((arange(4), n))).kind().to_string(), eager);
}
