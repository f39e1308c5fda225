//! Graphs and what is registered: one canonical node a call, overrides at run time, constants of
//! users' types.

use insta::assert_snapshot;
use maquette_aten as _;
use maquette_interp::Interpreter;
use maquette_ir::graph::Graph;
use maquette_ops::library::{Const, ConstArg, DispatchKey, Kind, Library, Tag};
use maquette_ops::{
    CallError, Error, ErrorKind, FakeCtx, Result, Tensor, args, call, call_kw, custom_op, kwargs,
};
use maquette_trace::{TraceOptions, trace};
use std::sync::LazyLock;

fn tensor(out: Result<maquette_ops::Outputs>) -> Result<Tensor> {
    out?[0].tensor().cloned()
}

fn same_size(_: &FakeCtx, x: &Tensor) -> Result<Tensor> {
    Ok(x.new_empty(x.sizes(), x.dtype()))
}

#[test]
fn a_call_has_one_canonical_node() {
    let kernel = |x: &Tensor, _: i64, _: f64, _: bool| -> Result<Tensor> {
        Tensor::from(x.to_vec::<f32>()?).ok().cloned()
    };
    let op = custom_op("lib_graph::f")
        .schema("(Tensor x, int n=3, float s=1., *, bool flag=False) -> Tensor")
        .kernel(kernel)
        .register()
        .unwrap();
    op.register_fake(|cx: &FakeCtx, x: &Tensor, _: i64, _: f64, _: bool| -> Result<Tensor> {
        same_size(cx, x)
    })
    .unwrap();
    let name = "lib_graph::f";
    let model = |x: Tensor| -> Result<Vec<Tensor>> {
        [
            call(name, args![&x, 3]),
            call(name, args![&x, 3, 1.0, false]),
            call_kw(name, args![], kwargs![s = 1, x = &x]),
            call_kw(name, args![&x], kwargs![s = 2.0]),
            call_kw(name, args![&x], kwargs![flag = true, n = true]),
        ]
        .into_iter()
        .map(tensor)
        .collect()
    };
    let t = TraceOptions::new().names(["x"]).trace(model, Tensor::from([1.0f32, 2.0])).unwrap();
    assert_snapshot!(t, @r"
    graph graph(%x: f32[2]) -> (f32[2], f32[2], f32[2], f32[2], f32[2])
    {
      %f: f32[2] = lib_graph::f(%x)
      %f_1: f32[2] = lib_graph::f(%x)
      %f_2: f32[2] = lib_graph::f(%x)
      %f_3: f32[2] = lib_graph::f(%x, 3, 2.0)
      %f_4: f32[2] = lib_graph::f(%x, 1, flag=true)
      return %f, %f_1, %f_2, %f_3, %f_4
    }
    ");
    assert_eq!(t.run(Tensor::from([5.0f32, 6.0])).unwrap()[3].to_vec::<f32>().unwrap(), [5.0, 6.0]);
}

#[test]
fn a_graph_runs_the_kernels_registered_at_run_time() {
    let x = Tensor::from([0.5f32]);
    let t = trace(|x: Tensor| x.asinh() + 1.0, x.clone()).unwrap();
    let run = || t.run(x.clone()).unwrap().item::<f32>().unwrap();
    let plain = run();
    let lib = Library::new("aten", Kind::Impl).unwrap();
    lib.impl_("asinh", DispatchKey::Cpu, |_: &Tensor| -> Result<Tensor> {
        Ok(Tensor::from([41.0f32]))
    })
    .unwrap();
    assert_eq!(run(), 42.0);
    let traced_now = trace(|x: Tensor| x.asinh() + 1.0, x.clone()).unwrap();
    assert_eq!(
        traced_now.graph().to_string(),
        t.graph().to_string(),
        "the graph names operators, not kernels"
    );
    let wrong = Library::new("aten", Kind::Impl).unwrap();
    wrong
        .impl_("asinh", "cpu", |_: &Tensor| -> Result<Tensor> { Ok(Tensor::from([1.0f32, 2.0])) })
        .unwrap();
    let e = t.run(x.clone()).unwrap_err();
    assert!(
        matches!(e.kind(), ErrorKind::Fake(_)),
        "what it returns is checked against the fake rule: {e}"
    );
    drop((wrong, lib));
    assert_eq!(run(), plain);
}

#[test]
fn a_graph_of_an_operator_that_is_gone_says_so() {
    let lib = Library::new("lib_gone", Kind::Def).unwrap();
    lib.define("f(Tensor x) -> Tensor", &[]).unwrap();
    lib.impl_("f", "default", |x: &Tensor| -> Result<Tensor> {
        Tensor::from(x.to_vec::<f32>()?).ok().cloned()
    })
    .unwrap();
    lib.register_fake("f", same_size).unwrap();
    let t =
        trace(|x: Tensor| tensor(call("lib_gone::f", args![&x])), Tensor::from([1.0f32])).unwrap();
    assert!(t.run(Tensor::from([2.0f32])).is_ok());
    drop(lib);
    let e = t.run(Tensor::from([2.0f32])).unwrap_err();
    assert!(matches!(e.kind(), ErrorKind::Call(CallError::Unknown { .. })), "{e}");
}

#[test]
fn in_place_and_out_operators_need_no_fake_kernel() {
    let write = |x: &mut Tensor| -> Result<()> {
        x.write::<f32>()?.mapv_inplace(|v| v + 1.0);
        Ok(())
    };
    custom_op("lib_graph::inc_")
        .arg_names(["x"])
        .tags([Tag::Inplace])
        .kernel(write)
        .register()
        .unwrap();
    let into = |x: &Tensor, out: &mut Tensor| -> Result<()> {
        let x = x.read::<f32>()?;
        out.write::<f32>()?.assign(&x);
        Ok(())
    };
    custom_op("lib_graph::copy.out")
        .arg_names(["x", "out"])
        .tags([Tag::Out])
        .kernel(into)
        .register()
        .unwrap();
    let model = |x: Tensor| -> Result<Tensor> {
        let y = tensor(call("lib_graph::inc_", args![&x]))?;
        let out = y.clone_tensor();
        tensor(call_kw("lib_graph::copy", args![&y * 2.0], kwargs![out = &out]))?;
        Ok(y + out)
    };
    let t = TraceOptions::symbolic().names(["x"]).trace(model, Tensor::from([1.0f32])).unwrap();
    assert_snapshot!(t, @r"
    graph graph(%x: f32[s0]) -> (f32[s0])
      where s0 in [0, oo)
    {
      %inc_: f32[s0] = lib_graph::inc_(%x)
      %clone: f32[s0] = aten::clone(%x)
      %mul: f32[s0] = aten::mul.Tensor(%x, 2.0)
      %copy: f32[s0] = lib_graph::copy.out(%mul, out=%clone)
      %add: f32[s0] = aten::add.Tensor(%x, %clone)
      return %add
    }
    ");
    let x = Tensor::from([1.0f32, 2.0]);
    assert_eq!(t.run(x.clone()).unwrap().to_vec::<f32>().unwrap(), [6.0, 9.0]);
    assert_eq!(x.to_vec::<f32>().unwrap(), [2.0, 3.0]);
}

#[derive(Clone, Copy, PartialEq)]
struct Odd(i64);

impl ConstArg for Odd {
    const NAME: &'static str = "Odd";
    fn to_text(&self) -> String {
        self.0.to_string()
    }
    fn from_text(text: &str) -> Result<Odd> {
        text.parse().map(Odd).map_err(Error::other)
    }
}

static ADD_ODD: LazyLock<maquette_ops::Op> = LazyLock::new(|| {
    let kernel = |x: &Tensor, n: Const<Odd>| -> Result<Tensor> {
        Ok(Tensor::from(x.read::<f32>()?.mapv(|v| v + n.0.0 as f32)))
    };
    let op =
        custom_op("lib_graph::add_odd").arg_names(["x", "n"]).kernel(kernel).register().unwrap();
    op.register_fake(|cx: &FakeCtx, x: &Tensor, _: Const<Odd>| -> Result<Tensor> {
        same_size(cx, x)
    })
    .unwrap();
    op
});

#[test]
fn a_constant_of_a_users_type_survives_the_text_of_a_graph() {
    let t = TraceOptions::symbolic()
        .names(["x"])
        .trace(|x: Tensor| tensor(ADD_ODD.call(args![&x, Const(Odd(7))])), Tensor::from([1.0f32]))
        .unwrap();
    assert_snapshot!(t, @r#"
    graph graph(%x: f32[s0]) -> (f32[s0])
      where s0 in [0, oo)
    {
      %add_odd: f32[s0] = lib_graph::add_odd(%x, "Odd(7)")
      return %add_odd
    }
    "#);
    let parsed: Graph = t.graph().to_string().parse().unwrap();
    let x = Tensor::from([1.0f32, 2.0]);
    let out = Interpreter::new(&parsed).run(&[x.into()]).unwrap().results;
    assert_eq!(out[0].tensor().unwrap().to_vec::<f32>().unwrap(), [8.0, 9.0]);
}
