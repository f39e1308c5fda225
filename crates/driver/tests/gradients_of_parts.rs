//! Gradients of custom operators, of checkpoints and under autocast, in traces: one graph with the
//! bits of the eager program.

use maquette_driver::{CompileOptions, compile};
use maquette_ir::DType;
use maquette_ir::graph::Graph;
use maquette_ops::autograd::{AutogradRule, checkpoint};
use maquette_ops::func::{grad, value_and_grad, vjp};
use maquette_ops::library::Facts;
use maquette_ops::{
    Effect, ErrorKind, FakeCtx, Op, Result, RunError, Tensor, args, autocast, custom_op, random,
    without_autocast,
};
use maquette_rewrite::{Options, functionalize};
use maquette_trace::TraceOptions;

fn bits(t: &Tensor) -> Vec<u64> {
    t.to_dtype(DType::F64).to_vec::<f64>().unwrap().into_iter().map(f64::to_bits).collect()
}

/// The generator is that of the process: only one test at a time compares what it draws.
static RANDOM: std::sync::Mutex<()> = std::sync::Mutex::new(());

/// The number of calls of an operator.
fn calls(graph: &Graph, op: &str) -> usize {
    graph.to_string().matches(&format!(" {op}(")).count()
}

fn call(op: Op, args: maquette_ops::Args) -> Tensor {
    match op.call(args) {
        Ok(out) => out[0].tensor().cloned().unwrap_or_else(Tensor::poison),
        Err(e) => Tensor::poison(e),
    }
}

/// The first `n` elements, whose derivative needs the length of the tensor.
fn first() -> Op {
    let kernel = |x: &Tensor, n: i64| -> Result<Tensor> {
        Ok(Tensor::from(x.to_vec::<f64>()?.into_iter().take(n as usize).collect::<Vec<f64>>()))
    };
    let rule = AutogradRule::new(|ctx, grads| {
        let rest = ctx.value(0)?.int()? - grads[0].size(0);
        let zeros = grads[0].new_zeros([rest], DType::F64);
        Ok(vec![Some(Tensor::cat(&[grads[0].clone(), zeros], 0)), None])
    })
    .setup_context(|ctx, inputs, _| {
        ctx.save_value(inputs[0].tensor()?.size(0));
        Ok(())
    });
    let op = custom_op("gradients_of_parts::first").kernel(kernel).autograd(rule).register();
    let op = op.unwrap();
    op.register_fake(|_: &FakeCtx, x: &Tensor, n: maquette_ir::sym::SymInt| -> Result<Tensor> {
        Ok(x.new_empty([n], x.dtype()))
    })
    .unwrap();
    op
}

#[test]
fn a_custom_operator_with_symbolic_sizes() {
    let op = first();
    let f = move |x: Tensor| {
        let half = call(op, args![&x, x.size(0).floor_div(2)]);
        (&half * &half).sum()
    };
    let sample = Tensor::from([1.0f64, 2.0, 3.0, 4.0]);
    let traced = TraceOptions::symbolic().trace(grad(f), sample).unwrap();
    let compiled = compile(grad(f));
    for n in [6i64, 7, 2, 1] {
        let x = Tensor::arange(n).to_dtype(DType::F64) + 1.0;
        let expected = bits(&grad(f)(x.clone()).unwrap());
        assert_eq!(bits(&traced.run(x.clone()).unwrap()), expected);
        assert_eq!(bits(&compiled.call(x).unwrap()), expected);
    }
}

#[test]
fn effects_of_a_derivative_stay_in_order() {
    let log = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let seen = log.clone();
    let note = custom_op("gradients_of_parts::note")
        .kernel(move |what: &str, x: &Tensor| -> Result<()> {
            seen.lock().unwrap().push(format!("{what} {:?}", x.to_vec::<f64>()?));
            Ok(())
        })
        .arg_names(["what", "x"])
        .effect(Effect::Ordered)
        .register()
        .unwrap();
    let rule = AutogradRule::new(move |_, grads| {
        note.call(args!["backward", &grads[0]])?;
        Ok(vec![Some(&grads[0] * 2.0)])
    });
    let op = custom_op("gradients_of_parts::double")
        .kernel(|x: &Tensor| -> Result<Tensor> { Ok(x * 2.0) })
        .autograd(rule)
        .register()
        .unwrap();
    op.register_fake(|_: &FakeCtx, x: &Tensor| -> Result<Tensor> {
        Ok(x.new_empty(x.sizes(), x.dtype()))
    })
    .unwrap();
    let f = move |x: Tensor| {
        let y = call(op, args![&x]);
        match note.call(args!["forward", &y]) {
            Ok(_) => call(op, args![&(y * 3.0)]).sum(),
            Err(e) => Tensor::poison(e),
        }
    };
    // only the value is used, and the effects of the derivative remain
    let step = move |x: Tensor| value_and_grad(f)(x).map(|(value, _)| value);
    let x = Tensor::from([1.0f64]);
    step(x.clone()).unwrap();
    let eager = std::mem::take(&mut *log.lock().unwrap());
    assert_eq!(eager, ["forward [2.0]", "backward [1.0]", "backward [6.0]"]);
    let run = compile(step);
    for _ in 0..2 {
        run.call(x.clone()).unwrap();
        assert_eq!(std::mem::take(&mut *log.lock().unwrap()), eager);
    }
    let traced = TraceOptions::symbolic().trace(step, x.clone()).unwrap();
    let functional = functionalize(traced.graph(), &Facts, &Options::new()).unwrap();
    assert_eq!(calls(&functional.graph, "gradients_of_parts::note"), 3);
}

#[test]
fn a_checkpoint_is_computed_again_in_the_graph() {
    let f = |x: Tensor| x.exp().sin().exp().sum();
    let checkpointed = |x: Tensor| {
        let f = checkpoint(|x: Tensor| x.exp().sin().exp());
        f(x).map_or_else(Tensor::poison, |y| y.sum())
    };
    let x = Tensor::from([0.25f64, 0.5]);
    let graph = |f: &dyn Fn(Tensor) -> Tensor| {
        let traced = TraceOptions::symbolic().trace(value_and_grad(f), x.clone()).unwrap();
        functionalize(traced.graph(), &Facts, &Options::new()).unwrap().graph
    };
    let (plain, again) = (graph(&f), graph(&checkpointed));
    assert_eq!((calls(&plain, "aten::exp"), calls(&again, "aten::exp")), (2, 4), "{again}");
    assert_eq!(calls(&again, "grad::recompute"), 1, "{again}");
    let (value, expected) = value_and_grad(f)(x.clone()).unwrap();
    for of in [
        value_and_grad(checkpointed)(x.clone()).unwrap(),
        compile(value_and_grad(checkpointed)).call(x.clone()).unwrap(),
    ] {
        assert_eq!((bits(&of.0), bits(&of.1)), (bits(&value), bits(&expected)));
    }
}

#[test]
fn a_checkpoint_in_a_graph_keeps_its_random_numbers() {
    let plain = |x: Tensor| {
        let y = x.dropout(0.5, true).exp();
        let noise = y.zeros_like().uniform_(0.0, 1.0);
        (y * noise * x).sum()
    };
    let checkpointed = move |x: Tensor| checkpoint(plain)(x).unwrap_or_else(Tensor::poison);
    let x = Tensor::ones([32], DType::F64);
    let run = |f: &dyn Fn(Tensor) -> Result<(Tensor, Tensor)>| seeded(f, &x);
    let expected = run(&value_and_grad(plain));
    assert_eq!(run(&value_and_grad(checkpointed)), expected);
    let compiled = compile(value_and_grad(checkpointed));
    assert_eq!(run(&|x| compiled.call(x)), expected);
    let traced = TraceOptions::symbolic().trace(value_and_grad(checkpointed), x.clone()).unwrap();
    assert_eq!(run(&|x| traced.run(x)), expected);
}

/// The bits of a value, of its gradient, and of the numbers that are drawn next, from one seed.
fn seeded(f: &dyn Fn(Tensor) -> Result<(Tensor, Tensor)>, x: &Tensor) -> [Vec<u64>; 3] {
    let _alone = RANDOM.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    random::manual_seed(11);
    let (value, gradient) = f(x.clone()).unwrap();
    [bits(&value), bits(&gradient), bits(&Tensor::rand([4], DType::F64))]
}

#[test]
fn random_numbers_of_nested_checkpoints_are_kept() {
    let plain = |x: Tensor| {
        let y = x.dropout(0.5, true);
        let noise = y.zeros_like().uniform_(0.0, 1.0);
        (y.exp() * noise * x.dropout(0.25, true)).sum()
    };
    let nested = |x: Tensor| {
        let outer = checkpoint(|x: Tensor| {
            let inner = checkpoint(|x: Tensor| {
                let y = x.dropout(0.5, true);
                let noise = y.zeros_like().uniform_(0.0, 1.0);
                y.exp() * noise
            });
            (inner(x.clone()).unwrap_or_else(Tensor::poison) * x.dropout(0.25, true)).sum()
        });
        outer(x).unwrap_or_else(Tensor::poison)
    };
    let x = Tensor::ones([32], DType::F64);
    let run = |f: &dyn Fn(Tensor) -> Result<(Tensor, Tensor)>| seeded(f, &x);
    let expected = run(&value_and_grad(plain));
    assert_eq!(run(&value_and_grad(nested)), expected);
    let compiled = compile(value_and_grad(nested));
    assert_eq!(run(&|x| compiled.call(x)), expected);
}

#[test]
fn autocast_is_part_of_the_graph() {
    let loss = |(x, w): (Tensor, Tensor)| {
        autocast(DType::BF16, || {
            let y = x.mm(&w).relu().mm(&w.t());
            (y.to_dtype(DType::F32) * &x).sum()
        })
    };
    // not random: another test compares what it draws
    let waves = |n: i64| Tensor::arange(n).to_dtype(DType::F32).sin();
    let inputs = (waves(24).view([6, 4]), waves(32).view([4, 8]));
    let (value, (dx, dw)) = value_and_grad(loss)(inputs.clone()).unwrap();
    assert_eq!((dx.dtype(), dw.dtype()), (DType::F32, DType::F32));
    let traced = TraceOptions::symbolic().trace(value_and_grad(loss), inputs.clone()).unwrap();
    // each use of the weight has its own cast, and the compiler merges them
    let text = traced.graph().to_string();
    assert!(text.contains("bf16[s0, s3] = aten::mm("), "{text}");
    type Step<'a> = &'a dyn Fn((Tensor, Tensor)) -> Result<(Tensor, (Tensor, Tensor))>;
    let run = |f: Step<'_>| {
        let (v, (x, w)) = f(inputs.clone()).unwrap();
        assert_eq!((bits(&v), bits(&x), bits(&w)), (bits(&value), bits(&dx), bits(&dw)));
    };
    run(&|i| traced.run(i));
    // a graph has the casts of its trace, and no others
    let e = autocast(DType::F16, || traced.run(inputs.clone())).unwrap_err();
    assert!(matches!(e.kind(), ErrorKind::Run(RunError::Autocast)), "{e}");
    run(&|i| autocast(DType::F16, || without_autocast(|| traced.run(i))));
    run(&|i| compile(value_and_grad(loss)).call(i));
    let compiled = compile(loss);
    let e = autocast(DType::BF16, || compiled.call(inputs.clone())).unwrap_err().to_string();
    assert!(e.contains("call `autocast` in the function that is compiled"), "{e}");
}

/// The trace is no part of the region: the second call would have the gradient of the first one's
/// data.
#[test]
fn a_gradient_that_is_compiled_inside_a_checkpoint() {
    let g = compile(value_and_grad(|x: Tensor| x.sin().sum()));
    let layer = checkpoint(move |x: Tensor| {
        g.call(&x * 2.0).map_or_else(Tensor::poison, |(_, gradient)| gradient)
    });
    for v in [0.5f64, 1.0] {
        let found = layer(Tensor::from([v])).unwrap().to_vec::<f64>().unwrap()[0];
        assert_eq!(found, (2.0 * v).cos());
    }
}

#[test]
fn a_view_of_another_dtype_in_a_compiled_gradient() {
    let f = value_and_grad(|x: Tensor| {
        let y = &x * 2.0;
        drop(y.view_dtype(DType::I32));
        y.sum()
    });
    let x = || Tensor::from([1.0f32]);
    let (value, gradient) = f(x()).unwrap();
    let found = compile(f).call(x()).unwrap();
    assert_eq!((bits(&found.0), bits(&found.1)), (bits(&value), bits(&gradient)));
}

/// The size of a gradient that the caller gives is an assertion of the graph.
#[test]
fn the_gradient_of_a_sweep_has_the_sizes_of_its_tensor() {
    let f = |(x, w): (Tensor, Tensor)| -> Result<Tensor> { vjp(|x: Tensor| x.exp(), x)?.1(w) };
    let inputs = |n: i64, m: i64| (Tensor::ones([n], DType::F64), Tensor::ones([m], DType::F64));
    assert!(f(inputs(3, 1)).is_err());
    let f = CompileOptions::symbolic().compile(f);
    f.call(inputs(3, 3)).unwrap();
    f.call(inputs(4, 4)).unwrap();
    assert!(f.call(inputs(4, 1)).is_err());
}
