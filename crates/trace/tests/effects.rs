//! Effects and random numbers: order, and that nothing is dropped or merged.

mod common;

use common::{INC, call, vector};
use insta::assert_snapshot;
use maquette_aten as _;
use maquette_interp::Interpreter;
use maquette_ir::Device;
use maquette_ir::graph::{EdgeKind, Graph, NodeId};
use maquette_ops::library::Facts;
use maquette_ops::{
    Effect, ErrorKind, FakeCtx, Op, RegisterError, Result, Tensor, Value, args, custom_op, random,
};
use maquette_trace::trace;
use petgraph::visit::{EdgeRef, IntoEdgeReferences};
use std::sync::{Arc, Mutex};

/// Who was called, in order.
type Log = Arc<Mutex<Vec<String>>>;

/// Writes a word down: returns nothing, mutates nothing.
fn logger(name: &str, log: &Log) -> Op {
    let log = log.clone();
    let kernel = move |_x: &Tensor, word: &str| -> Result<()> {
        log.lock().unwrap().push(word.to_owned());
        Ok(())
    };
    custom_op(name)
        .schema("(Tensor x, str word) -> ()")
        .effect(Effect::Ordered)
        .kernel(kernel)
        .register()
        .unwrap()
}

/// Adds one in place, and writes it down.
fn effectful_inc(name: &str, log: &Log) -> Op {
    let log = log.clone();
    let kernel = move |x: &mut Tensor| -> Result<()> {
        x.write::<f32>()?.mapv_inplace(|v| v + 1.0);
        log.lock().unwrap().push("em".to_owned());
        Ok(())
    };
    let op = custom_op(name).schema("(Tensor(a!) x) -> ()").kernel(kernel).register().unwrap();
    op.register_effect(Effect::Ordered).unwrap();
    op
}

fn order_edges(g: &Graph) -> Vec<String> {
    let show = |n: NodeId| format!("{}{}", g.op_name(n), n.index());
    let dependence = g.dependence(&Facts);
    let order = dependence.edge_references().filter(|e| e.weight().kind == EdgeKind::Order);
    order.map(|e| format!("{} -> {}", show(e.source()), show(e.target()))).collect()
}

#[test]
fn effects_keep_their_order_and_their_repetitions() {
    let log = Log::default();
    let (say, inc) = (logger("e::log", &log), effectful_inc("e::inc_", &log));
    let model = move |x: Tensor| -> Result<Tensor> {
        say.call(args![&x, "a"])?;
        let temporary = &x * 2.0;
        inc.call(args![&temporary])?; // nobody reads it
        let y = &x + 1.0;
        say.call(args![&x, "b"])?;
        say.call(args![&x, "b"])?;
        Ok(y)
    };
    model(vector(2)).unwrap();
    let eager = std::mem::take(&mut *log.lock().unwrap());
    assert_eq!(eager, ["a", "em", "b", "b"]);
    let t = trace(model, vector(2)).unwrap();
    assert!(log.lock().unwrap().is_empty(), "a trace runs no kernel");
    assert_snapshot!("effects", t);
    assert_eq!(
        order_edges(t.graph()),
        ["e::log0 -> e::inc_2", "e::inc_2 -> e::log4", "e::log4 -> e::log5"]
    );
    t.run(vector(2)).unwrap();
    assert_eq!(std::mem::take(&mut *log.lock().unwrap()), eager);
    // a graph read from text knows its effects, whoever reads it
    let text = t.graph().to_string();
    let again: Graph = text.parse().unwrap();
    assert_eq!(again, *t.graph());
    Interpreter::new(&again).run(&[vector(2).into()]).unwrap();
    assert_eq!(*log.lock().unwrap(), eager);
    let unknown: Graph = text.replace("e::", "nobody::").parse().unwrap();
    assert_eq!(unknown.nodes().filter(|n| unknown.has_effect(*n)).count(), 4);
    assert_eq!(order_edges(&unknown).len(), 3);
}

#[test]
fn an_effect_is_registered_and_cleared() {
    let op = custom_op("e::pure")
        .schema("(Tensor x) -> Tensor")
        .kernel(|x: &Tensor| -> Result<Tensor> { Ok(Tensor::from(x.to_vec::<f32>()?)) });
    let op = op.register().unwrap();
    op.register_fake(|_cx: &FakeCtx, x: &Tensor| -> Result<Tensor> {
        Ok(x.new_empty(x.sizes(), x.dtype()))
    })
    .unwrap();
    let text = || trace(move |x: Tensor| call(&op, args![&x]), vector(2)).unwrap().to_string();
    assert!(op.is_pure() && !text().contains("effect"));
    op.register_effect(Effect::Ordered).unwrap();
    assert!(!op.is_pure() && op.effect() == Some(Effect::Ordered));
    assert!(text().contains("%pure: f32[2] = e::pure(%in0) effect"), "{}", text());
    op.register_effect(None).unwrap();
    assert!(op.is_pure() && !text().contains("effect"));
}

#[test]
fn an_operator_without_effect_that_returns_nothing_is_refused() {
    let silent = custom_op("e::silent")
        .schema("(Tensor x) -> ()")
        .kernel(|x: &Tensor| -> Result<()> { x.ok().map(drop) })
        .register();
    let e = silent.unwrap_err();
    assert!(matches!(e.kind(), ErrorKind::Register(RegisterError::NoPurpose { .. })), "{e}");
    let op = logger("e::not_silent", &Log::default());
    let e = op.register_effect(None).unwrap_err();
    assert!(matches!(e.kind(), ErrorKind::Register(RegisterError::NoPurpose { .. })), "{e}");
    assert_eq!(op.effect(), Some(Effect::Ordered), "a failed registration changes nothing");
    assert!(INC.register_effect(None).is_ok(), "a mutation is a purpose");
}

#[test]
fn a_stateful_operator_is_called_as_often_as_eagerly() {
    let calls = Arc::new(Mutex::new(0));
    let count = calls.clone();
    let kernel = move |x: &Tensor| -> Result<Tensor> {
        *count.lock().unwrap() += 1;
        Ok(Tensor::from(vec![*count.lock().unwrap() as f32; x.to_vec::<f32>()?.len()]))
    };
    let op = custom_op("e::counter")
        .schema("(Tensor x) -> Tensor")
        .effect(Effect::Ordered)
        .kernel(kernel)
        .register()
        .unwrap();
    op.register_fake(|_cx: &FakeCtx, x: &Tensor| -> Result<Tensor> {
        Ok(x.new_empty(x.sizes(), x.dtype()))
    })
    .unwrap();
    let t = trace(
        move |x: Tensor| -> Result<(Tensor, Tensor)> {
            Ok((call(&op, args![&x])?, call(&op, args![&x])?))
        },
        vector(1),
    )
    .unwrap();
    let (a, b) = t.run(vector(1)).unwrap();
    assert_eq!(
        (a.to_vec::<f32>().unwrap(), b.to_vec::<f32>().unwrap(), *calls.lock().unwrap()),
        (vec![1.0], vec![2.0], 2)
    );
}

#[test]
fn a_traced_program_draws_the_numbers_that_eager_draws() {
    // the third draw is dead, and advances the sequence all the same
    let model = |x: Tensor| -> Result<(Tensor, Tensor, Tensor)> {
        let a = x.rand_like();
        let b = maquette_ops::call("aten::dropout", args![&x, 0.5, true])?[0].tensor()?.clone();
        let _dead = maquette_ops::call("aten::randn", args![vec![7i64]])?;
        let c = maquette_ops::call("aten::uniform_", args![&(&x * 1.0), 2.0, 3.0])?[0]
            .tensor()?
            .clone();
        Ok((a, b, c))
    };
    let bits = |(a, b, c): (Tensor, Tensor, Tensor)| {
        [a, b, c]
            .map(|t| t.to_vec::<f32>().unwrap().iter().map(|v| v.to_bits()).collect::<Vec<u32>>())
    };
    let x = || Tensor::from([1.0f32, 2.0, 3.0, 4.0, 5.0]);
    random::manual_seed(5);
    let eager = (bits(model(x()).unwrap()), random::state(Device::Cpu).offset);
    random::manual_seed(5);
    let t = trace(model, x()).unwrap();
    assert_eq!(random::state(Device::Cpu).offset, 0, "tracing advances nothing");
    assert_eq!((bits(t.run(x()).unwrap()), random::state(Device::Cpu).offset), eager);
    random::manual_seed(5);
    let again: Graph = t.graph().to_string().parse().unwrap();
    let out = Interpreter::new(&again).run(&[Value::from(x())]).unwrap().results;
    let tensors: Vec<Tensor> = out.iter().flat_map(Value::tensors).cloned().collect();
    assert_eq!(
        (
            bits((tensors[0].clone(), tensors[1].clone(), tensors[2].clone())),
            random::state(Device::Cpu).offset
        ),
        eager
    );
    assert_eq!(
        order_edges(t.graph()),
        [
            "aten::rand_like0 -> aten::dropout1",
            "aten::dropout1 -> aten::randn2",
            "aten::randn2 -> aten::uniform_4"
        ]
    );
}
