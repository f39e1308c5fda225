//! Kernels and callers that break the contract on purpose: each is an error at the call, and what
//! the call did not write is as it was.

use super::{inc, values};
use maquette_ops::{
    Error, FakeCtx, MAX_LIST_DEPTH, Op, Result, Tensor, Value, args, custom_op, ensure,
};
use std::sync::{Arc, Mutex};

#[track_caller]
fn refused(op: &Op, args: maquette_ops::Args) -> String {
    op.call(args).unwrap_err().to_string()
}

// ---- what was not written is not poisoned

#[test]
fn a_conflict_leaves_the_tensor_as_it_was() {
    let x = Tensor::from([1.0f32, 2.0, 3.0]);
    let y = x.slice(0, 0..2);
    let guard = x.read::<f32>().unwrap();
    let e = y.add_(1.0).ok().unwrap_err().to_string();
    assert!(e.contains("cannot write `self`") && e.contains("hostile.rs"), "{e}");
    drop(guard);
    assert_eq!((values(&x), values(&y)), (vec![1.0, 2.0, 3.0], vec![1.0, 2.0]));
    assert_eq!(values(&y.add_(1.0)), [2.0, 3.0], "the conflict is over");

    let op = inc("hostile::conflict");
    let guard = x.read::<f32>().unwrap();
    assert!(op.call(args![&y]).is_err());
    drop(guard);
    op.call(args![&y]).unwrap();
    assert_eq!(values(&x), [3.0, 4.0, 3.0]);
}

// ---- what a kernel returns is its call's alone

type Kernel = fn(&Tensor) -> Result<Tensor>;

#[test]
fn a_kernel_that_keeps_what_it_returns_is_refused() {
    static KEPT: Mutex<Option<Tensor>> = Mutex::new(None);
    thread_local!(static OWN: Mutex<Vec<Tensor>> = const { Mutex::new(Vec::new()) });
    fn copy(x: &Tensor) -> Result<Tensor> {
        Ok(Tensor::from(x.to_vec::<f32>()?))
    }
    let kernels: [(&str, Kernel); 4] = [
        ("hostile::cached", |x| {
            let mut kept = KEPT.lock().unwrap();
            if kept.is_none() {
                *kept = Some(copy(x)?);
            }
            kept.clone().ok_or_else(|| Error::msg("just set"))
        }),
        ("hostile::kept", |x| {
            let y = copy(x)?;
            *KEPT.lock().unwrap() = Some(y.clone());
            Ok(y)
        }),
        ("hostile::kept_base", |x| {
            let y = copy(x)?;
            OWN.with(|own| own.lock().unwrap().push(y.clone()));
            Ok(y.slice(0, 0..1))
        }),
        ("hostile::kept_view", |x| {
            let y = copy(x)?;
            OWN.with(|own| own.lock().unwrap().push(y.slice(0, 0..1)));
            Ok(y)
        }),
    ];
    let captured = Tensor::from([1.0f32, 2.0]);
    let weight = captured.clone();
    let closure = custom_op("hostile::captured")
        .schema("(Tensor x) -> Tensor")
        .kernel(move |_: &Tensor| -> Result<Tensor> { Ok(weight.clone()) })
        .register()
        .unwrap();
    let list = custom_op("hostile::kept_list")
        .schema("(Tensor x) -> Tensor[]")
        .kernel(|x: &Tensor| -> Result<Vec<Tensor>> {
            let y = copy(x)?;
            OWN.with(|own| own.lock().unwrap().push(y.clone()));
            Ok(vec![copy(x)?, y])
        })
        .register()
        .unwrap();
    let typed = kernels.map(|(name, kernel)| {
        custom_op(name).schema("(Tensor x) -> Tensor").kernel(kernel).register().unwrap()
    });
    for op in typed.iter().chain([&closure, &list]) {
        let e = refused(op, args![&Tensor::from([1.0f32, 2.0])]);
        assert!(
            e.contains(op.name()) && e.contains("output 0") && e.contains("return a copy"),
            "{e}"
        );
        *KEPT.lock().unwrap() = None;
    }
    assert_eq!(values(&captured), [1.0, 2.0]);
}

#[test]
fn new_memory_may_come_from_anywhere_in_the_call() {
    let inner = custom_op("hostile::fresh_inner")
        .schema("(Tensor x) -> Tensor")
        .kernel(|x: &Tensor| -> Result<Tensor> { Ok(x.clone_tensor()) })
        .register()
        .unwrap();
    let outer = custom_op("hostile::fresh")
        .schema("(Tensor x) -> (Tensor, Tensor, Tensor[])")
        .kernel(move |x: &Tensor| -> Result<(Tensor, Tensor, Vec<Tensor>)> {
            let nested = inner.call(args![x])?[0].tensor()?.clone();
            let view = (x + 1.0).slice(0, 0..1);
            // handles that are dropped before the return do not matter
            let base = x * 2.0;
            let (part, also) = (base.slice(0, 1..2), base.clone());
            ensure!(values(&also).len() == 2);
            drop((base, also));
            let here = x.clone_tensor();
            let from_thread = std::thread::scope(|s| {
                let task = s.spawn(|| {
                    here.add_(10.0);
                    &here + 1.0
                });
                task.join().unwrap_or_else(|_| Tensor::poison(Error::msg("it panicked")))
            });
            Ok((nested, view, vec![part, from_thread, here]))
        })
        .register()
        .unwrap();
    for _ in 0..2 {
        let out = outer.call(args![&Tensor::from([1.0f32, 2.0])]).unwrap();
        let all: Vec<Vec<f32>> = out.iter().flat_map(Value::tensors).map(values).collect();
        assert_eq!(all, [vec![1.0, 2.0], vec![2.0], vec![4.0], vec![12.0, 13.0], vec![11.0, 12.0]]);
    }
}

// ---- a kernel touches what the call gave it, and what the call made

type SharedKernel = Arc<dyn Fn(&Tensor) -> Result<()> + Send + Sync>;

#[test]
fn a_kernel_that_touches_what_it_was_not_given_is_refused_even_if_it_drops_the_error() {
    let weight = Tensor::from([1.0f32]);
    let (a, b, c, d) = (weight.clone(), weight.clone(), weight.clone(), weight.clone());
    let op = |name: &str, kernel: SharedKernel| {
        custom_op(name)
            .schema("(Tensor x) -> Tensor")
            .kernel(move |x: &Tensor| -> Result<Tensor> {
                kernel(x)?;
                Ok(x.clone_tensor())
            })
            .register()
            .unwrap()
    };
    let nested = inc("hostile::inner_inc");
    let ops = [
        op("hostile::reads", Arc::new(move |_| a.read::<f32>().map(drop))),
        op("hostile::adds", Arc::new(move |x| (x + &b).ok().map(drop))),
        op("hostile::writes", Arc::new(move |_| c.fill_(0.0).ok().map(drop))),
        op("hostile::passes", Arc::new(move |_| nested.call(args![&d]).map(drop))),
    ];
    for op in &ops {
        let e = refused(op, args![&Tensor::from([2.0f32])]);
        assert!(
            e.contains(op.name())
                && e.contains("hostile.rs")
                && e.contains("was not given")
                && e.contains("pass it as an argument"),
            "{e}"
        );
        let name = format!("{}_quietly", op.name());
        let loud = *op;
        let quiet = custom_op(&name)
            .schema("(Tensor x) -> Tensor")
            .kernel(move |x: &Tensor| -> Result<Tensor> {
                let _dropped = loud.call(args![x]);
                Ok(x.clone_tensor())
            })
            .register()
            .unwrap();
        let e = refused(&quiet, args![&Tensor::from([2.0f32])]);
        assert!(e.contains("was not given") && e.contains(&name), "{e}");
        assert_eq!(values(&weight), [1.0]);
    }
    let held = weight.clone();
    let quiet = op(
        "hostile::quiet",
        Arc::new(move |_| {
            let _dropped = held.read::<f32>().is_ok();
            Ok(())
        }),
    );
    assert!(refused(&quiet, args![&Tensor::from([2.0f32])]).contains("was not given"));
    assert_eq!(values(&(&weight + 1.0)), [2.0], "outside of kernels nothing has changed");
}

#[test]
fn a_kernel_may_use_metadata_and_what_an_inner_call_made() {
    let shape = Tensor::from([[1.0f32, 2.0]]);
    let inner = custom_op("hostile::makes")
        .schema("(Tensor x) -> Tensor")
        .kernel(|x: &Tensor| -> Result<Tensor> { Ok(x.clone_tensor()) })
        .register()
        .unwrap();
    let outer = custom_op("hostile::uses")
        .schema("(Tensor x) -> Tensor")
        .kernel(move |x: &Tensor| -> Result<Tensor> {
            let made = inner.call(args![x])?[0].tensor()?.clone();
            made.add_(1.0).ok()?;
            Ok(&made * shape.sizes_i64()?[1])
        })
        .register()
        .unwrap();
    let out = outer.call(args![&Tensor::from([1.0f32])]).unwrap();
    assert_eq!(values(out[0].tensor().unwrap()), [4.0]);
}

#[test]
fn a_view_that_a_nested_call_returns_has_the_rights_of_its_argument() {
    let tail = custom_op("hostile::tail")
        .schema("(Tensor(a) x) -> Tensor(a)")
        .kernel(|x: &Tensor| -> Result<Tensor> { Ok(x.slice(0, 1..)) })
        .register()
        .unwrap();
    let outer = custom_op("hostile::tails")
        .schema("(Tensor x, Tensor(a!) y) -> Tensor")
        .kernel(move |x: &Tensor, y: &mut Tensor| -> Result<Tensor> {
            let seen = tail.call(args![x])?[0].tensor()?.clone_tensor();
            tail.call(args![&*y])?[0].tensor()?.add_(&seen).ok()?;
            ensure!(tail.call(args![x])?[0].tensor()?.fill_(0.0).ok().is_ok(), "it is read-only");
            Ok(seen)
        })
        .register()
        .unwrap();
    let (x, y) = (Tensor::from([1.0f32, 2.0]), Tensor::from([0.0f32, 0.0]));
    assert!(refused(&outer, args![&x, &y]).contains("it is read-only"));
    assert_eq!(values(&x), [1.0, 2.0]);
    let (op, y) = (tail, Tensor::from([1.0f32, 2.0]));
    op.call(args![&y]).unwrap()[0].tensor().unwrap().add_(1.0).ok().unwrap();
    assert_eq!(values(&y), [1.0, 3.0], "outside of kernels it is the caller's");
}

// ---- a panic is an error

#[test]
fn a_panic_is_an_error_that_names_its_own_line() {
    let op = custom_op("hostile::panics")
        .schema("(Tensor(a!) x, Tensor y) -> ()")
        .kernel(|x: &mut Tensor, y: &Tensor| -> Result<()> {
            let y = y.read::<f32>()?;
            x.write::<f32>()?.fill(7.0);
            assert_eq!(y.len(), 1, "one element"); // this line
            Ok(())
        })
        .register()
        .unwrap();
    let line = line!() - 5;
    let (x, y) = (Tensor::from([1.0f32]), Tensor::from([1.0f32, 2.0]));
    let e = refused(&op, args![&x, &y]);
    let called = line!() - 1;
    assert!(e.contains("hostile::panics: its kernel panicked at"), "{e}");
    assert!(e.contains(&format!("hostile.rs:{line}")) && e.contains("one element"), "{e}");
    assert!(e.contains(&format!("hostile.rs:{called}")), "{e}");
    assert!(x.ok().unwrap_err().to_string().contains("one element"));
    assert_eq!(values(&y), [1.0, 2.0], "what it only read is as it was");
    assert!(y.clone().write::<f32>().is_ok(), "every borrow was given back");
}

#[test]
fn a_panic_in_a_fake_kernel_is_an_error_too() {
    let op = custom_op("hostile::fake_panics")
        .schema("(Tensor x) -> Tensor")
        .kernel(|x: &Tensor| -> Result<Tensor> { Ok(x.clone_tensor()) })
        .register()
        .unwrap();
    op.register_fake(|_: &FakeCtx, x: &Tensor| -> Result<Tensor> {
        let last = x.sizes()[3];
        Ok(x.new_empty([last], x.dtype()))
    })
    .unwrap();
    let e = refused(&op, args![&Tensor::fake([2], maquette_ir::DType::F32)]);
    assert!(
        e.contains("hostile::fake_panics: its fake kernel panicked at")
            && e.contains("hostile.rs:")
            && e.contains("index out of bounds"),
        "{e}"
    );
}

#[test]
fn a_panic_without_a_message_or_a_hook_is_an_error_too() {
    let op = custom_op("hostile::resumes")
        .schema("(Tensor x) -> Tensor")
        .kernel(|_: &Tensor| -> Result<Tensor> { std::panic::resume_unwind(Box::new(3)) })
        .register()
        .unwrap();
    let e = refused(&op, args![&Tensor::from([1.0f32])]);
    assert!(e.contains("its kernel panicked"), "{e}");
}

// ---- lists have a depth

#[test]
fn a_list_nested_too_deeply_is_refused() {
    let any = custom_op("hostile::any")
        .schema("(Tensor x, Tensor[] xs) -> Tensor")
        .kernel(|x: &Tensor, _xs: &[Tensor]| -> Result<Tensor> { Ok(x.clone_tensor()) })
        .register()
        .unwrap();
    let nested =
        |depth: usize| (0..depth).fold(Value::None, |inner, _| Value::List(vec![inner].into()));
    let x = Tensor::from([1.0f32]);
    let within = nested(MAX_LIST_DEPTH);
    assert!(refused(&any, args![&x, within.clone()]).contains("argument 1 `xs`"));
    for depth in [MAX_LIST_DEPTH + 1, 3 * MAX_LIST_DEPTH, 200_000] {
        let deep = nested(depth);
        let copy = deep.clone();
        assert!(!format!("{deep:?} {}", copy.kind()).is_empty());
        let e = refused(&any, args![&x, deep]);
        assert!(e.contains("hostile::any") && e.contains("nested more than"), "{e}");
        drop(copy);
    }
}
