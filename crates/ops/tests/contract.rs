//! The contract of a call: who may read and write what, and what a kernel may return.

#[path = "contract/overlap.rs"]
mod overlap;

use maquette_aten as _;
use maquette_ir::{DType, Device};
use maquette_ops::{
    AccessError, CallError, Error, ErrorKind, Meta, Op, RegisterError, Result, Tensor, args,
    custom_op,
};

#[path = "contract/hostile.rs"]
mod hostile;

fn values(t: &Tensor) -> Vec<f32> {
    t.to_vec().unwrap()
}

fn inc(name: &str) -> Op {
    custom_op(name)
        .arg_names(["x"])
        .kernel(|x: &mut Tensor| -> Result<()> {
            x.write::<f32>()?.mapv_inplace(|v| v + 1.0);
            Ok(())
        })
        .register()
        .unwrap()
}

#[test]
fn a_write_is_seen_through_every_handle_and_counted_once() {
    let op = inc("contract::inc");
    assert_eq!(op.schema().unwrap().to_string(), "contract::inc(Tensor(a0!) x) -> ()");
    let x = Tensor::from([1.0f32, 2.0]);
    let also = x.clone();
    let before = x.version();
    op.call(args![&x]).unwrap();
    assert_eq!(values(&also), [2.0, 3.0]);
    assert_eq!(x.version(), before + 1, "the kernel's own guard belongs to the call");
}

#[test]
fn a_guard_keeps_writers_away_and_writers_keep_everybody_away() {
    let mut x = Tensor::from([1.0f32, 2.0]);
    let other = x.clone();
    let mut third = x.clone();
    let reading = other.read::<f32>().unwrap();
    assert!(other.read::<f32>().is_ok(), "readers share");
    let e = x.write::<f32>().unwrap_err();
    assert!(
        matches!(
            e.kind(),
            ErrorKind::Access(AccessError::Conflict { wanted: "write", held: "reads", .. })
        ),
        "{e}"
    );
    assert!(e.to_string().contains("contract.rs"), "the holder's line is named: {e}");
    drop(reading);
    let writing = x.write::<f32>().unwrap();
    assert!(other.read::<f32>().is_err());
    assert!(third.write::<f32>().is_err());
    drop(writing);
    assert!(third.write::<f32>().is_ok());
}

#[test]
fn an_undeclared_write_is_refused_even_through_a_clone_or_a_nested_call() {
    let direct = custom_op("contract::sneaky")
        .arg_names(["x"])
        .kernel(|x: &Tensor| -> Result<Tensor> {
            x.clone().write::<f32>()?.fill(0.0);
            Ok(Tensor::from([0.0f32]))
        })
        .register()
        .unwrap();
    let inner = inc("contract::inner_inc");
    let nested = custom_op("contract::sneaky_nested")
        .arg_names(["x"])
        .kernel(move |x: &Tensor| -> Result<Tensor> {
            inner.call(args![x])?;
            Ok(Tensor::from([0.0f32]))
        })
        .register()
        .unwrap();
    for op in [direct, nested] {
        let x = Tensor::from([1.0f32]);
        let e = op.call(args![&x]).unwrap_err();
        assert!(matches!(e.kind(), ErrorKind::Access(AccessError::UndeclaredWrite { .. })), "{e}");
        assert_eq!(values(&x), [1.0]);
    }
}

#[test]
fn a_nested_call_may_mutate_arguments_declared_by_the_outer_call() {
    let inner = inc("contract::inc_in");
    let outer = custom_op("contract::inc_twice")
        .arg_names(["x"])
        .kernel(move |x: &mut Tensor| -> Result<()> {
            inner.call(args![&*x])?;
            inner.call(args![&*x])?;
            x.write::<f32>()?.mapv_inplace(|v| v * 10.0);
            Ok(())
        })
        .register()
        .unwrap();
    let x = Tensor::from([1.0f32]);
    outer.call(args![&x]).unwrap();
    assert_eq!(values(&x), [30.0]);
}

#[test]
fn the_caller_cannot_access_tensors_borrowed_by_a_kernel() {
    let outside = Tensor::from([1.0f32]);
    let held = outside.clone();
    let op = custom_op("contract::peeks")
        .arg_names(["x"])
        .kernel(move |x: &mut Tensor| -> Result<()> {
            x.write::<f32>()?.fill(5.0);
            held.read::<f32>()?;
            Ok(())
        })
        .register()
        .unwrap();
    let e = op.call(args![&outside]).unwrap_err();
    assert!(
        matches!(e.kind(), ErrorKind::Access(AccessError::Conflict { held: "writes", .. })),
        "{e}"
    );
    // the kernel had begun to write, so nobody may read what is left, and the first cause stays
    let later = outside.to_vec::<f32>().unwrap_err();
    assert!(later.is_same(&e), "{later}");
}

#[test]
fn a_handle_kept_beyond_its_call_is_stale() {
    use std::sync::Mutex;
    static KEPT: Mutex<Option<Tensor>> = Mutex::new(None);
    let op = custom_op("contract::keeps")
        .arg_names(["x"])
        .kernel(|x: &mut Tensor| -> Result<()> {
            *KEPT.lock().unwrap() = Some(x.clone());
            Ok(())
        })
        .register()
        .unwrap();
    let x = Tensor::from([1.0f32]);
    op.call(args![&x]).unwrap();
    let kept = KEPT.lock().unwrap().take().unwrap();
    let e = kept.read::<f32>().unwrap_err();
    assert!(matches!(e.kind(), ErrorKind::Access(AccessError::Stale)), "{e}");
    assert_eq!(values(&x), [1.0]);
}

type Make = fn(&Tensor) -> Result<Tensor>;

#[test]
fn outputs_may_not_alias_arguments() {
    for (name, make) in [
        ("contract::same", (|x: &Tensor| Ok(x.clone())) as Make),
        ("contract::part", |x: &Tensor| Ok(x.slice(0, 0..0))),
    ] {
        let op = custom_op(name).schema("(Tensor x) -> Tensor").kernel(make).register().unwrap();
        let e = op.call(args![&Tensor::from([1.0f32])]).unwrap_err();
        assert!(
            matches!(e.kind(), ErrorKind::Call(CallError::OutputAliases { output: 0, .. })),
            "{e}"
        );
        assert!(e.to_string().contains("argument `x`"), "{e}");
    }
    let twice = custom_op("contract::twice")
        .schema("(Tensor x) -> (Tensor, Tensor)")
        .kernel(|x: &Tensor| -> Result<(Tensor, Tensor)> {
            let y = Tensor::from(x.to_vec::<f32>()?);
            Ok((y.clone(), y))
        })
        .register()
        .unwrap();
    let e = twice.call(args![&Tensor::from([1.0f32])]).unwrap_err();
    assert!(e.to_string().contains("output 1 shares memory with output 0"), "{e}");
}

#[test]
fn replacing_a_mutable_argument_is_refused() {
    let op = custom_op("contract::replaces")
        .arg_names(["x"])
        .kernel(|x: &mut Tensor| -> Result<()> {
            *x = Tensor::from([9.0f32]);
            Ok(())
        })
        .register()
        .unwrap();
    let x = Tensor::from([1.0f32]);
    let e = op.call(args![&x]).unwrap_err();
    assert!(matches!(e.kind(), ErrorKind::Call(CallError::ReplacedArgument { .. })), "{e}");
}

#[test]
fn arguments_must_fit_the_schema() {
    let op = custom_op("contract::fits")
        .schema("(Tensor x, int n=2, *, float s=1.0) -> Tensor")
        .kernel(|x: &Tensor, n: i64, s: f64| -> Result<Tensor> {
            Ok(Tensor::from(vec![x.item::<f32>()? * n as f32 * s as f32]))
        })
        .register()
        .unwrap();
    let x = Tensor::from([3.0f32]);
    let one = |args| values(op.call(args).unwrap()[0].tensor().unwrap());
    assert_eq!(one(args![&x]), [6.0]);
    assert_eq!(one(args![&x, 3, 2]), [18.0], "an integer is a float where one is declared");
    assert_eq!(one(args![&x, true]), [3.0], "a bool is an integer");
    let kind = |args| op.call(args).unwrap_err();
    assert!(matches!(kind(args![]).kind(), ErrorKind::Call(CallError::Missing { index: 0, .. })));
    assert!(matches!(kind(args![1.0]).kind(), ErrorKind::Call(CallError::Type { index: 0, .. })));
    assert!(matches!(
        kind(args![&x, 1.5]).kind(),
        ErrorKind::Call(CallError::Type { index: 1, .. })
    ));
    assert!(matches!(
        kind(args![&x, 1, 1.0, 1]).kind(),
        ErrorKind::Call(CallError::TooMany { .. })
    ));
}

#[test]
fn an_operator_without_purpose_or_defined_twice_is_refused() {
    let pointless = custom_op("contract::pointless")
        .arg_names(["x"])
        .kernel(|_x: &Tensor| -> Result<()> { Ok(()) })
        .register();
    assert!(matches!(
        pointless.unwrap_err().kind(),
        ErrorKind::Register(RegisterError::NoPurpose { .. })
    ));
    inc("contract::once");
    let again = custom_op("contract::once").schema("(Tensor x) -> Tensor").register().unwrap_err();
    assert!(again.to_string().contains("contract.rs"), "both lines are named: {again}");
}

#[test]
fn errors_about_a_missing_device_list_the_devices() {
    let op = custom_op("contract::host_only")
        .device_types(["cpu"])
        .schema("(int n, *, Device device) -> int")
        .kernel(|n: i64, _d: Device| -> Result<i64> { Ok(n) })
        .register()
        .unwrap();
    assert_eq!(op.call(args![3, Device::Cpu]).unwrap()[0].int_i64().unwrap(), 3);
    let e = op.call(args![3, Device::cuda(0)]).unwrap_err();
    assert!(e.to_string().contains("no kernel for cuda; it has kernels for: cpu"), "{e}");
}

#[test]
fn the_first_cause_survives() {
    let first = Error::msg("the first cause");
    let op = inc("contract::inc_poisoned");
    let dead = Tensor::poison(first.clone());
    let e = op.call(args![&dead]).unwrap_err();
    assert!(e.is_same(&first));
    assert!(dead.clone().read::<f32>().unwrap_err().is_same(&first));
    assert!(dead.size(0).guard_int().is_err() || dead.size(0).as_i64().is_some());
}

#[test]
fn fake_tensors_have_no_data() {
    let x = Tensor::fake([2, 3], DType::F32);
    assert!(matches!(x.read::<f32>().unwrap_err().kind(), ErrorKind::Access(AccessError::Fake)));
    let gpu = Tensor::fake_of(Meta::contiguous([2], DType::F32).on(Device::cuda(0)));
    assert_eq!(gpu.device(), Device::cuda(0));
}

#[test]
fn a_kernel_that_panics_poisons_the_tensors_it_wrote() {
    let op = custom_op("contract::panics")
        .arg_names(["x"])
        .kernel(|x: &mut Tensor| -> Result<()> {
            x.write::<f32>()?.fill(7.0);
            panic!("on purpose")
        })
        .register()
        .unwrap();
    let x = Tensor::from([1.0f32]);
    let panicked = |e: &Error| {
        matches!(e.kind(), ErrorKind::Call(CallError::Panicked { message, .. })
            if message == "on purpose")
    };
    let e = op.call(args![&x]).unwrap_err();
    assert!(panicked(&e), "{e}");
    let e = x.read::<f32>().unwrap_err();
    assert!(panicked(&e), "{e}");
}

#[test]
fn more_elements_than_memory_is_an_error() {
    let huge = Tensor::from([1.0f32]).expand([1i64 << 32, 1 << 27]);
    assert!(matches!(
        huge.to_vec::<f32>().unwrap_err().kind(),
        ErrorKind::Access(AccessError::Allocation { .. })
    ));
    let beyond = Tensor::from([1.0f32]).expand([1i64 << 32, 1 << 32]);
    assert!(beyond.to_array::<f32>().is_err());
}

#[test]
fn a_dropped_error_of_an_undeclared_write_fails_the_call_and_spares_the_argument() {
    let op = custom_op("contract::drops_the_error")
        .arg_names(["x"])
        .kernel(|x: &Tensor| -> Result<Tensor> {
            let _ = x.copy_(&Tensor::from([9.0f32, 9.0]));
            Ok(Tensor::from([0.0f32]))
        })
        .register()
        .unwrap();
    let x = Tensor::from([1.0f32, 2.0]);
    let e = op.call(args![&x]).unwrap_err();
    assert!(matches!(e.kind(), ErrorKind::Access(AccessError::UndeclaredWrite { .. })), "{e}");
    assert_eq!(values(&x), [1.0, 2.0]);
}

#[test]
fn a_lent_view_cannot_be_widened_between_its_elements() {
    let op = custom_op("contract::widens")
        .arg_names(["x"])
        .kernel(|x: &mut Tensor| -> Result<()> {
            x.as_strided([1], [1], Some(1.into())).write::<f32>()?.fill(-7.0);
            Ok(())
        })
        .register()
        .unwrap();
    let m = Tensor::from([[1.0f32, 2.0], [3.0, 4.0]]);
    let e = op.call(args![&m.select(1, 0)]).unwrap_err();
    assert!(matches!(e.kind(), ErrorKind::Access(AccessError::OutsideBorrow { .. })), "{e}");
}

#[test]
fn a_declared_view_must_be_of_the_declared_argument() {
    let op = custom_op("contract::views_the_other")
        .schema("(Tensor(a) x, Tensor y) -> Tensor(a)")
        .kernel(|x: &Tensor, y: &Tensor| -> Result<Tensor> {
            x.ok().and_then(|_| y.view([-1]).ok().cloned())
        })
        .register()
        .unwrap();
    let e = op.call(args![&Tensor::from([1.0f32]), &Tensor::from([2.0f32])]).unwrap_err();
    assert!(matches!(e.kind(), ErrorKind::Call(CallError::NotTheArgument { .. })), "{e}");
}

#[test]
fn a_failed_builtin_write_poisons_partially_written_tensors() {
    let x = Tensor::from([7i64, 8]);
    let e = maquette_ops::call("aten::floor_divide_.Tensor", args![&x, &Tensor::from([2i64, 0])])
        .unwrap_err();
    assert!(e.to_string().contains("division by zero"), "{e}");
    assert!(x.read::<i64>().is_err());
}

#[test]
fn lists_and_paddings_without_bound_are_refused() {
    assert!(Tensor::zeros([0i64], DType::F32).chunk(i64::MAX, 0).is_err());
    assert!(Tensor::zeros([1i64], DType::F32).expand([1i64 << 62]).split(1, 0).is_err());
    assert!(
        Tensor::zeros([1i64, 1, 3], DType::F32)
            .pad([1i64 << 60, 1], "replicate", None)
            .ok()
            .is_err()
    );
}

#[test]
fn an_empty_tensor_whose_other_sizes_overflow_is_an_error_not_a_panic() {
    let mut t = Tensor::zeros([0, i64::MAX / 4, 1 << 20], DType::F32);
    assert!(t.read::<f32>().is_err() && t.to_vec::<f32>().is_err() && t.write::<f32>().is_err());
    assert_eq!(Tensor::zeros([0, 5], DType::F32).to_vec::<f32>().unwrap(), [0.0f32; 0]);
}

#[test]
fn foreign_memory_is_used_in_place_and_given_back_by_its_last_view() {
    use std::ptr::NonNull;
    use std::sync::Arc;
    let mut memory = vec![0u64; 2];
    let bytes =
        NonNull::slice_from_raw_parts(NonNull::new(memory.as_mut_ptr()).unwrap().cast::<u8>(), 16);
    // the elements stay where they are, and nothing but the tensors touches them from here on
    let owner = Arc::new(memory);
    // SAFETY: as just said; no two tensors are used at once.
    let tensor = |bytes, sizes: &[i64]| unsafe {
        Tensor::from_foreign(bytes, sizes, DType::F32, Box::new(owner.clone()))
    };

    let t = tensor(bytes, &[2, 2]);
    let (also, row) = (t.clone(), t.select(0, 1));
    t.fill_(1.5);
    assert_eq!((values(&also), values(&row)), (vec![1.5; 4], vec![1.5; 2]));
    drop((t, also));
    assert_eq!(Arc::strong_count(&owner), 2, "a view keeps the memory");
    drop(row);
    assert_eq!(Arc::strong_count(&owner), 1);

    let e = tensor(bytes, &[3]).ok().unwrap_err();
    assert!(matches!(e.kind(), ErrorKind::Access(AccessError::Shape { found: 4, .. })), "{e}");
    assert_eq!(Arc::strong_count(&owner), 1, "nothing is kept where there is no tensor");
    // SAFETY: the 4 bytes at 1 lie inside.
    let odd = NonNull::slice_from_raw_parts(unsafe { bytes.cast::<u8>().add(1) }, 4);
    let e = tensor(odd, &[1]).to_vec::<f32>().unwrap_err();
    assert!(matches!(e.kind(), ErrorKind::Access(AccessError::Misaligned(DType::F32))), "{e}");
}
