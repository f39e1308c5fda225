//! A write that was refused before its kernel started changes nothing. A write whose kernel failed
//! poisons the storage, until a write that covers the storage replaces its contents.

use maquette_aten as _;
use maquette_ir::{DType, Loc};
use maquette_ops::{
    Error, Op, Outputs, Result, Tensor, args, autograd::no_grad, call, call_kw, custom_op, kwargs,
};

fn values(t: &Tensor) -> Vec<f32> {
    t.to_vec().unwrap()
}

#[track_caller]
fn text(t: &Tensor) -> String {
    t.ok().map(drop).unwrap_err().to_string()
}

#[test]
fn a_refused_method_leaves_the_storage_as_it_was() {
    let cache = Tensor::from([[1.0f32, 2.0], [3.0, 4.0]]);
    let wrong_shape = Tensor::from([1.0f32, 2.0, 3.0]);
    let row = cache.select(0, 1);
    assert!(text(&row.copy_(&wrong_shape)).contains("aten::copy_"));
    assert_eq!((values(&row), values(&cache)), (vec![3.0, 4.0], vec![1.0, 2.0, 3.0, 4.0]));
    assert_eq!(cache.version(), 0, "nothing was written");
    let refused = [
        cache.add_(&wrong_shape),
        cache.index_add_(0, &Tensor::from([7i64]), &cache),
        cache.masked_fill_(&wrong_shape, 1.0),
        cache.square_().add_(Tensor::from([true; 3])),
        cache.expand([2i64, 2, 2]).fill_(1.0),
    ];
    assert!(refused.iter().all(|t| t.ok().is_err()));
    assert_eq!(values(&cache), [1.0, 4.0, 9.0, 16.0], "`square_` alone has run");
    assert_eq!(values(&row.fill_(0.0)), [0.0, 0.0]);
}

#[test]
fn a_parameter_that_may_not_be_written_stays_usable() {
    let p = Tensor::from([1.0f32]).requires_grad_();
    assert!(text(&p.add_(1.0)).contains("no_grad"));
    assert_eq!(values(&no_grad(|| p.add_(1.0))), [2.0], "the remedy in the message");
    (&p * 3.0).sum().backward().unwrap();
    assert_eq!(values(&p.grad().unwrap()), [3.0]);
}

#[test]
fn no_form_of_call_changes_what_it_may_not_write() {
    let (x, longer) = (Tensor::from([1.0f32, 2.0]), Tensor::from([1.0f32, 2.0, 3.0]));
    let dead = Tensor::poison(Error::msg("the first cause"));
    let add_ = Op::find("aten::add_.Tensor").unwrap();
    for operand in [&longer, &dead] {
        assert!(x.add_(operand).ok().is_err());
        assert!(call("aten::add_.Tensor", args![&x, operand]).is_err());
        assert!(call_kw("aten::add_.Tensor", args![&x, operand], kwargs![alpha = 2]).is_err());
        assert!(add_.call(args![&x, operand]).is_err());
        assert!(add_.call_at(args![&x, operand], Loc::caller()).is_err());
        let add = Op::find("aten::add.Tensor").unwrap();
        assert!(add.call_into(args![&x, operand], &x, Loc::caller()).is_err());
        assert!(call("aten::addr_", args![&x, operand, operand]).is_err(), "a composite");
        // The handle on the left is the result. Others are as they were.
        let mut sum = x.clone();
        sum += operand;
        assert!(sum.ok().is_err());
        assert_eq!(values(&x), [1.0, 2.0]);
    }
    assert_eq!(x.version(), 0);
    assert!(text(&x.add_(&dead)).starts_with("the first cause"));
}

#[test]
fn a_custom_operator_writes_nothing_before_its_kernel_starts() {
    let op = custom_op("refused::set")
        .arg_names(["x", "y", "fails"])
        .kernel(|x: &mut Tensor, y: &Tensor, fails: bool| -> Result<()> {
            x.copy_(y).ok()?;
            if fails { Err(Error::msg("half way")) } else { Ok(()) }
        })
        .register()
        .unwrap();
    let x = Tensor::from([1.0f32, 2.0]);
    let refused = [
        args![&x, &Tensor::poison(Error::msg("dead")), false],
        args![&x, &x],
        args![&x, &Tensor::fake([2], DType::F32), false],
        args![&x.expand([2i64, 2]), &x, false],
    ];
    for args in refused {
        op.call(args).unwrap_err();
        assert_eq!(values(&x), [1.0, 2.0]);
    }
    op.call(args![&x, &Tensor::from([3.0f32, 4.0]), true]).unwrap_err();
    assert!(text(&x).starts_with("refused::set: half way"), "{}", text(&x));
}

fn one(outputs: Result<Outputs>) -> Tensor {
    outputs.and_then(|out| out[0].tensor().cloned()).unwrap_or_else(Tensor::poison)
}

/// Fails in the middle of its write.
#[track_caller]
fn fail_halfway(x: &Tensor) {
    assert!(x.floor_divide_(Tensor::from([2i64, 0, 1, 1])).ok().is_err());
    assert!(text(x).contains("division by zero"));
}

fn poisoned() -> Tensor {
    let x = Tensor::from([7i64, 8, 9, 10]);
    fail_halfway(&x);
    x
}

#[test]
fn every_view_of_a_poisoned_storage_reports_the_operator_and_the_line() {
    let x = Tensor::from([7i64, 8, 9, 10]);
    let view = x.slice(0, 1..3);
    let line = line!() + 1;
    fail_halfway(&x);
    let expected = format!(
        "aten::floor_divide_.Tensor: integer division by zero\n  at \
         crates/ops/tests/refused_writes.rs:{line}"
    );
    let read = |t: &Tensor| t.to_vec::<i64>().unwrap_err().to_string();
    assert_eq!(
        [text(&x), text(&view), read(&view), text(&view.neg())],
        [(); 4].map(|()| expected.clone())
    );
}

#[test]
fn a_write_that_covers_a_poisoned_storage_lifts_the_poison() {
    let whole: [fn(&Tensor) -> Tensor; 5] = [
        |x| x.fill_(5),
        |x| one(call("aten::fill_.Tensor", args![x, &Tensor::scalar(5i64)])),
        |x| x.zero_(),
        |x| x.copy_(&Tensor::from([1i64, 2, 3, 4])),
        |x| x.copy_(&Tensor::from([1.5f32; 4])),
    ];
    let expected = [[5; 4], [5; 4], [0; 4], [1, 2, 3, 4], [1; 4]];
    for (write, expected) in whole.into_iter().zip(expected) {
        let x = Tensor::from([7i64, 8, 9, 10]);
        let (view, square) = (x.slice(0, 1..3), x.view([2i64, 2]).t());
        fail_halfway(&x);
        assert!(view.fill_(0).ok().is_err(), "a part");
        write(&x).ok().unwrap();
        assert_eq!(x.to_vec::<i64>().unwrap(), expected);
        assert_eq!(view.to_vec::<i64>().unwrap(), expected[1..3]);
        fail_halfway(&x);
        square.fill_(3).ok().unwrap();
        assert_eq!(x.to_vec::<i64>().unwrap(), [3; 4]);
    }
}

#[test]
fn a_write_of_a_part_or_of_what_is_read_lifts_no_poison() {
    let longer = Tensor::from([0i64; 5]);
    let others: [fn(&Tensor, &Tensor) -> Tensor; 8] = [
        |x, _| x.slice(0, 1..4).fill_(5),
        |x, _| x.add_(1),
        |x, _| x.copy_(x),
        |x, _| x.copy_(&x.slice(0, 0..1)),
        |x, longer| x.copy_(longer),
        |x, _| x.copy_(&Tensor::poison(Error::msg("another"))),
        |x, _| one(call("aten::fill_.Tensor", args![x, &x.select(0, 0)])),
        |x, _| x.slice(0, 0..1).expand([4i64]).fill_(1),
    ];
    for (number, write) in others.into_iter().enumerate() {
        let x = poisoned();
        assert!(write(&x, &longer).ok().is_err(), "{number}");
        assert!(text(&x).contains("division by zero"), "{number}: {}", text(&x));
    }
    // Nobody knows which elements are written through a guard.
    let mut x = poisoned();
    assert!(x.write::<i64>().is_err());
    // A kernel that fails again leaves its own error.
    custom_op("refused::fails")
        .arg_names(["x"])
        .kernel(|_: &mut Tensor| -> Result<()> { Err(Error::msg("again")) })
        .register()
        .unwrap();
    x.zero_().ok().unwrap();
    call("refused::fails", args![&x]).unwrap_err();
    assert!(text(&x).starts_with("refused::fails: again"));
}

#[test]
fn a_frozen_storage_is_as_it_was() {
    let x = Tensor::from([1.0f32, 2.0]);
    x.storage().unwrap().freeze().unwrap();
    assert!(x.fill_(1.0).ok().is_err());
    assert_eq!(values(&x), [1.0, 2.0]);
}
