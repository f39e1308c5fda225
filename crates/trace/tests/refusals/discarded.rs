//! Errors that a program discards: a trace fails with the first one all the same.

use super::{call, text, vector};
use crate::common::{COUNT, NONZERO};
use insta::assert_snapshot;
use maquette_ir::DType;
use maquette_ir::sym::SymBool;
use maquette_ops::{
    AccessError, ErrorKind, FakeCtx, Op, Result, StorageCloner, Tensor, args, custom_op,
};
use maquette_trace::{TraceOptions, trace};
use std::fmt::Write;
use std::sync::OnceLock;

/// The error of a symbolic trace with a sample of four elements.
fn error(f: impl FnOnce(Tensor) -> Tensor) -> Result<String> {
    held();
    match TraceOptions::symbolic().names(["x"]).trace(f, vector(4)) {
        Err(e) => Ok(text(&e)),
        Ok(t) => Err(maquette_ops::Error::msg(format!("no error, and the graph\n{t}"))),
    }
}

/// A program that goes on, whatever an access gave.
type Program = fn(Tensor) -> Tensor;

fn texts(programs: &[(&str, Program)]) -> String {
    let mut out = String::new();
    for (title, program) in programs {
        let found = error(program).unwrap_or_else(|e| panic!("{title}: {e}"));
        writeln!(out, "{title}:\n  {found}").unwrap();
    }
    out
}

/// A tensor that was there before the trace.
fn held() -> Tensor {
    static HELD: OnceLock<Tensor> = OnceLock::new();
    HELD.get_or_init(|| vector(4)).clone()
}

#[test]
fn an_access_to_data_whose_error_the_program_discards_is_the_error_of_the_trace() {
    let programs: [(&str, Program); 9] = [
        ("item", |x| &x + f64::from(x.sum().item::<f32>().unwrap_or(5.0))),
        ("to_vec", |x| &x + x.to_vec::<f32>().map_or(0.0, |v| f64::from(v[0]))),
        ("to_array", |x| if x.to_array::<f32>().is_ok() { x.neg() } else { x.relu() }),
        ("read", |x| if x.read::<f32>().is_ok() { x.neg() } else { x.relu() }),
        ("write", |mut x| if x.write::<f32>().is_ok() { x.neg() } else { x.relu() }),
        ("read of a tensor that was there before", |x| {
            if held().read::<f32>().is_ok() { x.neg() } else { x.relu() }
        }),
        ("read as another dtype", |x| if x.read::<i64>().is_ok() { x.neg() } else { x.relu() }),
        ("sizes_i64", |x| &x + x.sizes_i64().unwrap_or_default().len() as f64),
        ("a copy of the storage", |x| {
            if StorageCloner::default().clone_of(&x).is_ok() { x.neg() } else { x.relu() }
        }),
    ];
    assert_snapshot!("discarded_accesses", texts(&programs));
}

#[test]
fn a_decision_whose_error_the_program_discards_is_the_error_of_the_trace() {
    fn count(x: &Tensor) -> maquette_ir::sym::SymInt {
        COUNT.call(args![x, 0.0]).and_then(|out| out[0].int()).unwrap()
    }
    let programs: [(&str, Program); 9] = [
        ("guard", |x| if count(&x).gt(3).guard().unwrap_or(true) { x.neg() } else { x.relu() }),
        ("guard_int", |x| &x + count(&x).guard_int().unwrap_or(2) as f64),
        ("a size", |x| {
            let n = call(&NONZERO, args![&x]).unwrap().size(0);
            if n.eq(0).guard().is_ok() { x.neg() } else { x.relu() }
        }),
        ("check", |x| if x.size(0).gt(9).check("many").is_ok() { x.neg() } else { x.relu() }),
        ("a check of a constant", |x| {
            let _ = SymBool::from(x.dim() == 2).check("a matrix");
            x.relu()
        }),
        ("the offset of a traced tensor", |x| {
            let at = x.storage_offset().guard_int().unwrap_or(0);
            x.as_strided([2], [1], Some(at.into()))
        }),
        ("an argument that must be a number", |x| {
            let n = call(&NONZERO, args![&x]).unwrap().size(0);
            if maquette_ops::call("aten::softmax.int", args![&x, n]).is_ok() {
                x.neg()
            } else {
                x.relu()
            }
        }),
        ("a size as a number", |x| {
            let n = maquette_ops::Value::from(call(&NONZERO, args![&x]).unwrap().size(0));
            &x + n.int_i64().unwrap_or(1) as f64
        }),
        ("a decision on another thread", |x| {
            let n = count(&x);
            let many = std::thread::scope(|s| {
                s.spawn(move || n.gt(3).guard().unwrap_or(true)).join().unwrap()
            });
            if many { x.neg() } else { x.relu() }
        }),
    ];
    assert_snapshot!("discarded_decisions", texts(&programs));
}

#[test]
fn an_error_of_a_call_that_never_reached_an_operator_is_the_error_of_the_trace() {
    let programs: [(&str, Program); 5] = [
        ("an unknown operator", |x| {
            if maquette_ops::call("t::unheard_of", args![&x]).is_ok() { x.neg() } else { x.relu() }
        }),
        ("a tensor of symbolic sizes from data", |x| {
            let made = Tensor::from_vec(vec![1.0f32; 4], [x.size(0)]);
            if made.ok().is_ok() { x.neg() } else { x.relu() }
        }),
        ("an operand that was poisoned before", |x| {
            let dead = Tensor::poison(maquette_ops::Error::msg("dead before the trace"));
            if (&x + dead).ok().is_ok() { x.neg() } else { x.relu() }
        }),
        ("a run of a graph", |x| {
            let id = trace(|y: Tensor| y, vector(4));
            if id.and_then(|id| id.run(vector(4))).is_ok() { x.neg() } else { x.relu() }
        }),
        ("a trace of a traced tensor", |x| {
            if trace(|y: Tensor| y, x.clone()).is_ok() { x.neg() } else { x.relu() }
        }),
    ];
    assert_snapshot!("discarded_calls", texts(&programs));
}

#[test]
fn queries_record_no_error() {
    let t = TraceOptions::symbolic()
        .names(["x"])
        .trace(
            |x: Tensor| -> Result<Tensor> {
                let n = call(&NONZERO, args![&x])?.size(0);
                assert_eq!(n.gt(3).statically_known(), None);
                assert_eq!((n.hint(), n.as_i64(), n.gt(3).as_bool()), (None, None, None));
                assert!(n.gt(3).is_data_dependent() && n.poisoned().is_none());
                assert!(x.size(7).poisoned().is_some());
                assert!(x.is_fake() && n.range().lo == 0);
                assert!(format!("{x} {x:?}").contains("TracedTensor"));
                Ok(x.relu())
            },
            vector(4),
        )
        .unwrap();
    assert!(t.graph().to_string().contains("aten::relu"));
}

#[test]
fn the_first_of_several_discarded_errors_is_returned() {
    let found = error(|x| {
        let n = call(&NONZERO, args![&x]).unwrap().size(0);
        let _ = n.gt(3).guard();
        let _ = maquette_ops::call("t::unheard_of", args![&x]);
        x
    });
    assert!(found.unwrap().starts_with("cannot branch on `u0 > 3`"));
    let found = error(|x| {
        let n = call(&NONZERO, args![&x]).unwrap().size(0);
        let _ = x.item::<f32>();
        let _ = n.gt(3).guard();
        x
    });
    assert!(found.unwrap().starts_with("cannot read the data of a traced tensor"));
}

/// An operator whose fake kernel is `fake`.
fn faked(name: &str, fake: fn(&FakeCtx, &Tensor) -> Result<Tensor>) -> Op {
    let op = custom_op(name)
        .schema("(Tensor x) -> Tensor")
        .kernel(|x: &Tensor| -> Result<Tensor> {
            // a kernel may try one way and then another, and so do the calls of a trace with real
            // tensors
            let found = x.read::<f64>().is_ok() || x.matmul(x).ok().is_ok();
            let n = x.size(7).guard_int().unwrap_or(1);
            Ok(if found && n == 2 { x.relu() } else { x.neg() })
        })
        .register()
        .unwrap();
    op.register_fake(move |cx: &FakeCtx, x: &Tensor| -> Result<Tensor> { fake(cx, x) }).unwrap();
    op
}

#[test]
fn a_fake_kernel_fails_with_the_first_error_that_it_discards() {
    let ops = [
        faked("t::fake_reads", |_, x| {
            let n = x.to_vec::<f32>().map_or(4, |v| v.len() as i64);
            Ok(Tensor::fake([n], x.dtype()))
        }),
        faked("t::fake_calls", |_, x| {
            let n = if x.matmul(&x.i(0..2)).ok().is_ok() { 2 } else { 4 };
            Ok(Tensor::fake([n], x.dtype()))
        }),
        faked("t::fake_decides", |cx, x| {
            let n = cx.new_dynamic_size()?;
            let many = n.gt(3).guard().unwrap_or(true);
            Ok(Tensor::fake([n, i64::from(many).into()], x.dtype()))
        }),
        faked("t::fake_asks_for_sizes", |_, x| {
            let n = x.sizes_i64().map_or(4, |n| n[0]);
            Ok(Tensor::fake([n], x.dtype()))
        }),
    ];
    let mut out = String::new();
    for op in ops {
        let found = error(move |x| {
            let y = call(&op, args![&x]);
            if y.is_ok() { x.neg() } else { x.relu() }
        });
        writeln!(out, "{}", found.unwrap_or_else(|e| panic!("{op:?}: {e}"))).unwrap();
    }
    assert_snapshot!("discarded_in_fake_kernels", out);
    // outside of traces, too
    let op = faked("t::fake_reads_alone", |_, x| {
        let n = x.to_vec::<f32>().map_or(4, |v| v.len() as i64);
        Ok(Tensor::fake([n], x.dtype()))
    });
    let e = op.call(args![Tensor::fake([4], DType::F32)]).unwrap_err();
    assert!(matches!(e.kind(), ErrorKind::Access(AccessError::Fake)), "{e}");
}

#[test]
fn what_a_real_kernel_tries_is_no_error_of_the_trace() {
    let op = faked("t::tries", |_, x| Ok(x.new_empty(x.sizes(), x.dtype())));
    let options = TraceOptions::symbolic().propagate_real(true);
    options.trace(move |x: Tensor| call(&op, args![&x]), vector(4)).unwrap();
}

#[test]
fn a_tensor_of_an_outer_trace_that_an_inner_one_reads() {
    let e = trace(
        |x: Tensor| {
            let _ = trace(|y: Tensor| (y, x.item::<f32>().is_ok()), vector(1));
            x.relu()
        },
        vector(1),
    )
    .unwrap_err();
    assert!(matches!(e.kind(), ErrorKind::Access(AccessError::Traced)), "{e}");
}
