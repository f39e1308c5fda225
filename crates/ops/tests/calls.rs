//! Calls: keywords, overloads, conversions, devices, and what is checked of every return.

use maquette_aten as _;
use maquette_ir::{DType, Device, Loc};
use maquette_ops::internals;
use maquette_ops::library::{Kind, Library, define, impl_};
use maquette_ops::mode::{self, Mode};
use maquette_ops::{
    Args, CallError, Error, ErrorKind, FakeCtx, Meta, Op, Outputs, Result, Tensor, TraceTag, Value,
};
use maquette_ops::{args, call, call_kw, custom_op, kwargs};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

fn one(x: f32) -> Tensor {
    Tensor::from([x])
}

fn call_error(e: &maquette_ops::Error) -> &CallError {
    match e.kind() {
        ErrorKind::Call(c) => c,
        other => panic!("not about a call: {other}"),
    }
}

#[test]
fn keywords_stand_anywhere_and_defaults_fill_the_gaps() {
    define(
        "calls::kw",
        "(Tensor x, int n=3, float s=1., *, bool flag=False, str? mode=None) -> \
        (int, float, bool, str)",
    )
    .unwrap();
    impl_(
        "calls::kw",
        "default",
        |_: &Tensor, _: i64, _: f64, _: bool, _: Option<&str>| -> Result<(i64, f64)> {
            Ok((0, 0.0))
        },
    )
    .unwrap_err();
    let lib = Library::new("calls", Kind::Impl).unwrap();
    let echo = |a: &[Value]| {
        Ok([
            a[1].clone(),
            a[2].clone(),
            a[3].clone(),
            if a[4].is_none() { Value::from("none") } else { a[4].clone() },
        ]
        .into_iter()
        .collect())
    };
    lib.impl_boxed("kw", "default", Arc::new(echo)).unwrap();
    let shown = |out: Result<maquette_ops::Outputs>| {
        let out = out.unwrap();
        (
            out[0].int_i64().unwrap(),
            out[1].float().unwrap(),
            out[2].bool().unwrap(),
            out[3].str().unwrap().to_owned(),
        )
    };
    let x = one(0.0);
    let none = || "none".to_owned();
    assert_eq!(shown(call_kw("calls::kw", args![&x], kwargs![s = 2.0])), (3, 2.0, false, none()));
    assert_eq!(
        shown(call_kw("calls::kw", args![], kwargs![flag = true, x = &x, n = true])),
        (1, 1.0, true, none()),
        "a bool is an int"
    );
    assert_eq!(
        shown(call_kw("calls::kw", args![&x, 5, 7], kwargs![mode = "m"])),
        (5, 7.0, false, "m".to_owned()),
        "an int is a float"
    );
    let e = |args: Args, kwargs| call_kw("calls::kw", args, kwargs).unwrap_err();
    assert!(matches!(
        call_error(&e(args![&x], kwargs![fleg = true])),
        CallError::UnknownKeyword { similar, .. } if similar == &["flag"]
    ));
    assert!(matches!(
        call_error(&e(args![&x, 1], kwargs![n = 2])),
        CallError::GivenTwice { index: 1, .. }
    ));
    assert!(matches!(
        call_error(&e(args![&x], kwargs![n = 2, n = 2])),
        CallError::GivenTwice { index: 1, .. }
    ));
    assert!(matches!(call_error(&e(args![], kwargs![n = 2])), CallError::Missing { index: 0, .. }));
    assert!(
        matches!(call_error(&e(args![&x], kwargs![n = 2.0])), CallError::Type { index: 1, .. }),
        "a float is no int"
    );
}

#[test]
fn defaults_of_every_type_fill_in() {
    let schema = "(Tensor x, int[] sizes=[4, 5], int[2] pair=3, float[] fs=[0.5], bool b=True, \
        str s=\"a\", ScalarType d=float64, \
                  Device at=\"cuda:1\", Scalar k=1.5, *, Tensor? y=None, int? n=None) -> int";
    let op = define("calls::defaults", schema).unwrap();
    let given = std::sync::Mutex::new(Vec::new());
    let given: &'static std::sync::Mutex<Vec<Value>> = Box::leak(Box::new(given));
    let lib = Library::new("calls", Kind::Impl).unwrap();
    let kernel = |a: &[Value]| {
        *given.lock().unwrap() = a[1..].to_vec();
        Ok(args![0].into_iter().collect())
    };
    lib.impl_boxed("defaults", "default", Arc::new(kernel)).unwrap();
    let shown = |a, k| {
        op.call_kw(a, k).unwrap();
        given.lock().unwrap().iter().map(|v| v.kind().to_string()).collect::<Vec<_>>()
    };
    let defaults = shown(args![one(0.0)], kwargs![]);
    let kinds = [
        "a list of 2 integers",
        "a list of 2 integers",
        "a list of 1, the first the float 0.5",
        "the bool true",
        "the string \"a\"",
    ];
    assert_eq!(defaults[..5], kinds);
    assert_eq!(
        defaults[5..],
        ["the dtype f64", "the device cuda:1", "the float 1.5", "nothing", "nothing"]
    );
    assert_eq!(given.lock().unwrap()[0].ints_i64().unwrap().as_slice(), [4, 5]);
    assert_eq!(given.lock().unwrap()[1].ints_i64().unwrap().as_slice(), [3, 3]);
    let by_keyword = shown(args![one(0.0)], kwargs![y = one(2.0), sizes = [7i64]]);
    assert_eq!(
        (by_keyword[0].as_str(), by_keyword[8].as_str()),
        ("a list of 1 integers", "a tensor f32[1]"),
        "a tensor by keyword"
    );
}

#[test]
fn a_number_fills_a_list_of_fixed_length() {
    let ints = custom_op("calls::fixed_ints")
        .schema("(Tensor x, int[2] k=3) -> int")
        .kernel(|_: &Tensor, k: &[i64]| -> Result<i64> { Ok(k.iter().sum()) })
        .register()
        .unwrap();
    let floats = custom_op("calls::fixed_floats")
        .schema("(float[3] s=0.5, int[2]? k=None) -> float")
        .kernel(|s: &[f64], k: Option<&[i64]>| -> Result<f64> {
            Ok(s.iter().sum::<f64>() + k.map_or(0.0, |k| k.iter().sum::<i64>() as f64))
        })
        .register()
        .unwrap();
    let int = |args| ints.call(args).unwrap()[0].int_i64().unwrap();
    let x = one(0.0);
    assert_eq!((int(args![&x]), int(args![&x, 3])), (6, 6));
    assert_eq!((int(args![&x, [3, 4]]), int(args![&x, [3]])), (7, 3), "a list stays as it is");
    let float = |args| floats.call(args).unwrap()[0].float().unwrap();
    assert_eq!((float(args![]), float(args![0.25]), float(args![2])), (1.5, 0.75, 6.0));
    assert_eq!(float(args![[1.0, 2.0, 3.0], 5]), 16.0);
    assert!(ints.call(args![&x, 3.0]).is_err(), "a float is no int");
    let e = floats.call(args!["a"]).unwrap_err();
    assert!(matches!(call_error(&e), CallError::Type { index: 0, .. }), "{e}");
}

#[test]
fn an_overload_is_chosen_by_the_arguments() {
    let lib = Library::new("packet", Kind::Def).unwrap();
    for (i, schema) in [
        "f(Tensor x) -> int",
        "f.two(Tensor x, Tensor y) -> int",
        "f.scalar(Tensor x, Scalar y, *, int k=0) -> int",
        "f.sizes(int[2] s) -> int",
    ]
    .iter()
    .enumerate()
    {
        let op = lib.define(schema, &[]).unwrap();
        let kernel = move |_: &[Value]| Ok(args![i as i64].into_iter().collect());
        lib.impl_boxed(op.name(), "default", Arc::new(kernel)).unwrap();
    }
    let x = one(0.0);
    let which =
        |args, kwargs| call_kw("packet::f", args, kwargs).map(|out| out[0].int_i64().unwrap());
    assert_eq!(which(args![&x], kwargs![]).unwrap(), 0);
    assert_eq!(which(args![&x, &x], kwargs![]).unwrap(), 1);
    assert_eq!(which(args![&x, 2], kwargs![]).unwrap(), 2);
    assert_eq!(which(args![&x, 2.5], kwargs![k = 1]).unwrap(), 2);
    assert_eq!(
        which(args![3], kwargs![]).unwrap(),
        3,
        "converted, as no overload takes one integer as it is"
    );
    assert_eq!(which(args![], kwargs![y = &x, x = &x]).unwrap(), 1);
    assert_eq!(call("packet::f.two", args![&x, &x]).unwrap()[0].int_i64().unwrap(), 1);
    assert!(call("packet::f.two", args![&x]).is_err(), "a named overload is that one");
    let e = which(args![&x, "a"], kwargs![]).unwrap_err();
    assert!(
        matches!(call_error(&e), CallError::NoOverload { tried, .. } if tried.len() == 4),
        "{e}"
    );
    drop(lib);
    assert!(matches!(
        call_error(&call("packet::f", args![&x]).unwrap_err()),
        CallError::Unknown { .. }
    ));
    // PyTorch's own packets
    let sum = call("aten::add", args![&one(1.0), &one(2.0)]).unwrap();
    assert_eq!(sum[0].tensor().unwrap().item::<f32>().unwrap(), 3.0);
    let sum = call_kw("aten::add", args![&one(1.0), 2], kwargs![alpha = 3]).unwrap();
    assert_eq!(sum[0].tensor().unwrap().item::<f32>().unwrap(), 7.0);
}

#[test]
fn the_device_chooses_the_kernel() {
    let lib = Library::new("devices", Kind::Def).unwrap();
    lib.define("factory(int n, Device? device=None, Device? other=None) -> int", &[]).unwrap();
    for (key, is) in [("cpu", 1i64), ("cuda", 2)] {
        lib.impl_(
            "factory",
            key,
            move |n: i64, _: Option<Device>, _: Option<Device>| -> Result<i64> { Ok(n * 10 + is) },
        )
        .unwrap();
    }
    let out = |args| call("devices::factory", args).map(|o| o[0].int_i64().unwrap());
    assert_eq!((out(args![1]).unwrap(), out(args![1, Device::cuda(1)]).unwrap()), (11, 12));
    assert_eq!(
        out(args![1, Device::Cpu, Device::cuda(0)]).unwrap(),
        11,
        "only the argument called `device` chooses"
    );
    let e = out(args![1, Device::new(maquette_ir::DeviceKind::Xpu, 0)]).unwrap_err();
    assert!(e.to_string().contains("no kernel for xpu; it has kernels for: cpu, cuda"), "{e}");

    lib.define("nothing() -> int", &[]).unwrap();
    lib.impl_("nothing", "default", || -> Result<i64> { Ok(7) }).unwrap();
    assert_eq!(
        call("devices::nothing", args![]).unwrap()[0].int_i64().unwrap(),
        7,
        "neither tensors nor a device"
    );

    lib.define("two(Tensor x, Tensor[] ys) -> Tensor", &[]).unwrap();
    lib.impl_("two", "default", |x: &Tensor, _: &[Tensor]| -> Result<Tensor> {
        Tensor::from(x.to_vec::<f32>()?).ok().cloned()
    })
    .unwrap();
    let gpu = Tensor::fake_of(Meta::contiguous([1], DType::F32).on(Device::cuda(0)));
    lib.register_fake("two", |_: &FakeCtx, x: &Tensor, _: &[Tensor]| -> Result<Tensor> {
        Ok(x.new_empty(x.sizes(), x.dtype()))
    })
    .unwrap();
    assert_eq!(
        call("devices::two", args![&gpu, [gpu.clone()]]).unwrap()[0].tensor().unwrap().device(),
        Device::cuda(0)
    );
}

#[test]
fn returns_are_checked_on_every_call() {
    let op = custom_op("calls::pair")
        .schema("(Tensor x, Tensor[] ys) -> (Tensor, Tensor[], int)")
        .register()
        .unwrap();
    let (x, y) = (one(1.0), one(2.0));
    let wrong = |lie: &'static dyn Lie| -> maquette_ops::Error {
        let lib = Library::new("calls", Kind::Impl).unwrap();
        lib.impl_boxed(
            "pair",
            "cpu",
            Arc::new(move |a: &[Value]| Ok(lie.returns(a).into_iter().collect())),
        )
        .unwrap();
        op.call(args![&x, [y.clone()]]).unwrap_err()
    };
    assert!(matches!(
        call_error(&wrong(&|_: &[Value]| args![one(0.0)])),
        CallError::ReturnCount { expected: 3, found: 1, .. }
    ));
    assert!(matches!(
        call_error(&wrong(&|_: &[Value]| args![(), [one(0.0)], 1])),
        CallError::ReturnType { index: 0, .. }
    ));
    assert!(matches!(
        call_error(&wrong(&|_: &[Value]| args![one(0.0), one(0.0), 1])),
        CallError::ReturnType { index: 1, .. }
    ));
    assert!(matches!(
        call_error(&wrong(&|_: &[Value]| args![one(0.0), [one(0.0)], 1.5])),
        CallError::ReturnType { index: 2, .. }
    ));
    fn first(a: &[Value]) -> Tensor {
        a[1].list().unwrap()[0].tensor().unwrap().clone()
    }
    assert!(matches!(
        call_error(&wrong(&|a: &[Value]| args![one(0.0), vec![first(a)], 1])),
        CallError::OutputAliases { output: 1, other } if other.contains("ys")
    ));
    let twice = |_: &[Value]| {
        let t = one(0.0);
        args![one(0.0), [t.clone(), t], 1]
    };
    assert!(matches!(
        call_error(&wrong(Box::leak(Box::new(twice)))),
        CallError::OutputAliases { output: 1, .. }
    ));
    let empty_view = |a: &[Value]| args![a[0].tensor().unwrap().slice(0, 0..0), [one(0.0)], 1];
    assert!(matches!(
        call_error(&wrong(Box::leak(Box::new(empty_view)))),
        CallError::OutputAliases { output: 0, .. }
    ));
    let fake = |_: &[Value]| args![Tensor::fake([1], DType::F32), [one(0.0)], 1];
    assert!(matches!(wrong(Box::leak(Box::new(fake))).kind(), ErrorKind::Access(_)));
    let gpu = |_: &[Value]| {
        args![Tensor::fake_of(Meta::contiguous([1], DType::F32).on(Device::cuda(0))), [one(0.0)], 1]
    };
    assert!(matches!(
        call_error(&wrong(Box::leak(Box::new(gpu)))),
        CallError::ReturnDevice { index: 0, .. }
    ));
}

/// What a kernel returns instead.
trait Lie: Send + Sync {
    fn returns(&self, args: &[Value]) -> Args;
}

impl<F: Fn(&[Value]) -> Args + Send + Sync> Lie for F {
    fn returns(&self, args: &[Value]) -> Args {
        self(args)
    }
}

#[test]
fn versions_count_calls_not_writes() {
    let op = custom_op("calls::write_all")
        .arg_names(["x", "list", "holes", "maybe", "read"])
        .kernel(
            |x: &mut Tensor,
             list: &mut [Tensor],
             holes: &mut [Option<Tensor>],
             maybe: Option<&mut Tensor>,
             read: &Tensor|
             -> Result<()> {
                let v = read.item::<f32>()?;
                for t in [x].into_iter().chain(list).chain(holes.iter_mut().flatten()).chain(maybe)
                {
                    t.write::<f32>()?.fill(0.0);
                    t.write::<f32>()?.fill(v);
                }
                Ok(())
            },
        )
        .register()
        .unwrap();
    let all: Vec<Tensor> = (0..6).map(|i| one(i as f32)).collect();
    let versions = |all: &[Tensor]| all.iter().map(Tensor::version).collect::<Vec<_>>();
    let before = versions(&all);
    let holes = vec![None, Some(all[3].clone()), None];
    op.call(args![&all[0], [all[1].clone(), all[2].clone()], holes, &all[4], &all[5]]).unwrap();
    let counted: Vec<_> = versions(&all).iter().zip(&before).map(|(a, b)| a - b).collect();
    assert_eq!(counted, [1, 1, 1, 1, 1, 0]);
    assert!(all.iter().all(|t| t.item::<f32>().unwrap() == 5.0));
    op.call(args![&all[0], Vec::<Tensor>::new(), Vec::<Option<Tensor>>::new(), (), &all[5]])
        .unwrap();
    assert_eq!(versions(&all)[4] - before[4], 1, "an absent argument counts nothing");

    let replaces = custom_op("calls::replaces_hole")
        .arg_names(["holes"])
        .kernel(|holes: &mut [Option<Tensor>]| -> Result<()> {
            holes[0] = Some(one(9.0));
            Ok(())
        })
        .register()
        .unwrap();
    for hole in [None, Some(one(1.0))] {
        let e = replaces.call(args![vec![hole]]).unwrap_err();
        assert!(matches!(call_error(&e), CallError::ReplacedArgument { index: 0, .. }), "{e}");
    }
}

/// Answers every call with the integer 1, and counts them.
struct Answering(Cell<usize>);

impl Mode for Answering {
    fn call(&self, _op: Op, _args: Args, _loc: Loc) -> Result<Outputs> {
        self.0.set(self.0.get() + 1);
        Ok(args![1].into_iter().collect())
    }
    fn host_data(&self, t: Tensor, _loc: Loc) -> Tensor {
        t
    }
    fn failed(&self, _e: &Error) {}
    fn trace(&self) -> Option<&Arc<TraceTag>> {
        None
    }
}

#[test]
fn a_call_goes_by_poison_then_modes_then_fake_then_device() {
    let op = custom_op("calls::order")
        .arg_names(["x"])
        .kernel(|_: &Tensor| -> Result<i64> { Ok(3) })
        .register()
        .unwrap();
    op.register_fake(|_: &FakeCtx, _: &Tensor| -> Result<i64> { Ok(2) }).unwrap();
    let (real, fake, cause) =
        (one(0.0), Tensor::fake([1], DType::F32), Error::msg("the first cause"));
    let dead = Tensor::poison(cause.clone());
    let answer = |x: &Tensor| op.call(args![x]).map(|out| out[0].int_i64().unwrap());
    let mode = Rc::new(Answering(Cell::new(0)));
    mode::with_mode(mode.clone(), || {
        assert!(answer(&dead).unwrap_err().is_same(&cause), "no mode sees a dead operand");
        assert_eq!((answer(&fake).unwrap(), answer(&real).unwrap()), (1, 1));
        assert!(op.call(args![3]).is_err(), "nor arguments that do not fit");
        assert_eq!(internals::without_modes(|| answer(&real).unwrap()), 3);
    });
    assert_eq!(mode.0.get(), 2);
    assert!(answer(&dead).unwrap_err().is_same(&cause));
    assert_eq!((answer(&fake).unwrap(), answer(&real).unwrap()), (2, 3));
}

#[test]
fn names_are_exact() {
    define("calls::named.ov", "(Tensor x) -> Tensor").unwrap();
    assert!(Op::find("calls::named").is_err() && Op::find("calls::named.ov").is_ok());
    let e = call("calls::nam", args![one(0.0)]).unwrap_err();
    assert!(matches!(call_error(&e), CallError::Unknown { .. }), "{e}");
    for bad in ["calls", "::f", "a::b::c", "a::b-c", "a::b.", "1a::b"] {
        assert!(define(bad, "(Tensor x) -> Tensor").is_err(), "{bad}");
    }
    assert!(
        define("calls::twice", "twice(Tensor x) -> Tensor").is_err(),
        "the name belongs before the schema, once"
    );
    assert_eq!(define("calls::d.default", "(Tensor x) -> Tensor").unwrap().name(), "calls::d");
}
