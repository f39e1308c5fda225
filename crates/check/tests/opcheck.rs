//! Operators that break their contract, one way each, and what `opcheck` says of them. The reports
//! are snapshots.

#[path = "opcheck/calls.rs"]
mod calls;

use maquette_check::opcheck::{Check, OpcheckOptions, Report, opcheck, opcheck_with};
use maquette_ir::DType;
use maquette_ops::{Args, Effect, FakeCtx, Op, Result, Tensor, args, custom_op};

#[path = "opcheck/hostile.rs"]
mod hostile;
#[path = "opcheck/views.rs"]
mod views;

/// The report, whether or not it is one of failures.
fn report(op: &Op, args: Args) -> Report {
    opcheck_with(op, args, OpcheckOptions::new().raise(false)).unwrap()
}

/// Compares a report with its snapshot; lines of this file are left out, as they move.
fn snapshot(name: &str, report: &Report) {
    insta::with_settings!({
        filters => vec![(r"\.rs:\d+", ".rs:LINE")],
        prepend_module_to_snapshot => false,
        omit_expression => true
    }, {
        insta::assert_snapshot!(name, report);
    });
}

/// The failed checks; the report is a snapshot.
fn shown(name: &str, op: &Op, args: Args) -> Vec<Check> {
    let report = report(op, args);
    snapshot(name, &report);
    report.failed()
}

fn floats(n: usize) -> Tensor {
    Tensor::from((0..n).map(|i| 0.5 + i as f32).collect::<Vec<f32>>())
}

fn matrix(rows: i64, columns: i64) -> Tensor {
    floats((rows * columns) as usize).reshape([rows, columns])
}

fn like(_: &FakeCtx, x: &Tensor) -> Result<Tensor> {
    Ok(x.new_empty(x.sizes(), x.dtype()))
}

fn sin(x: &Tensor) -> Result<Tensor> {
    Ok(Tensor::from(x.read::<f32>()?.mapv(f32::sin)))
}

/// The places of elements that are not zero.
fn nonzero(x: &Tensor) -> Result<Tensor> {
    let x = x.read::<f32>()?;
    Ok(Tensor::from(
        x.iter().enumerate().filter(|(_, v)| **v != 0.0).map(|(i, _)| i as i64).collect::<Vec<_>>(),
    ))
}

/// What foreign code may do with the pointer that it is given.
#[allow(unsafe_code)]
fn write_at(x: &Tensor, place: isize, f: impl Fn(f32) -> f32) -> Result<()> {
    let data = x.read::<f32>()?.as_ptr().cast_mut();
    // SAFETY: the tests' storages have this place, and nobody looks at them meanwhile
    unsafe { data.offset(place).write_volatile(f(data.offset(place).read_volatile())) };
    Ok(())
}

// ---- the schema

#[test]
fn an_undeclared_write_through_a_handle() {
    let op = custom_op("bad::writes").arg_names(["x"]).kernel(|x: &Tensor| -> Result<()> {
        x.clone().write::<f32>()?.fill(0.0);
        Ok(())
    });
    let op = op.effect(Effect::Ordered).register().unwrap();
    assert_eq!(shown("undeclared_write_through_a_handle", &op, args![floats(3)]), [Check::Schema]);
}

#[test]
fn an_undeclared_write_through_a_pointer_of_one_unit_in_the_last_place() {
    let kernel = |x: &Tensor, w: &Tensor| -> Result<Tensor> {
        write_at(w, 1, |v| f32::from_bits(v.to_bits() + 1))?;
        sin(x)
    };
    let op = custom_op("bad::ulp").arg_names(["x", "w"]).kernel(kernel).register().unwrap();
    op.register_fake(|cx: &FakeCtx, x: &Tensor, _w: &Tensor| -> Result<Tensor> { like(cx, x) })
        .unwrap();
    assert_eq!(
        shown("undeclared_write_of_one_ulp", &op, args![floats(3), matrix(2, 2)]),
        [Check::Schema]
    );
}

#[test]
fn a_mutation_below_every_tolerance_is_a_mutation() {
    let kernel = |x: &Tensor| -> Result<Tensor> {
        let data = x.read::<f64>()?;
        let pointer = data.as_ptr().cast_mut();
        #[allow(unsafe_code)]
        // SAFETY: as `write_at`
        unsafe {
            pointer.write_volatile(pointer.read_volatile() + 1e-9);
        }
        drop(data);
        Ok(Tensor::from([1.0f64]))
    };
    let op = custom_op("bad::tiny").arg_names(["x"]).kernel(kernel).register().unwrap();
    op.register_fake(|_: &FakeCtx, x: &Tensor| -> Result<Tensor> {
        Ok(x.new_empty([1i64], x.dtype()))
    })
    .unwrap();
    assert_eq!(
        shown("mutation_below_tolerance", &op, args![Tensor::from([1.0f64, 2.0])]),
        [Check::Schema]
    );
}

#[test]
fn declared_and_never_mutated_is_a_warning() {
    let op = custom_op("bad::idle").arg_names(["x", "out"]).kernel(
        |x: &Tensor, out: &mut Tensor| -> Result<Tensor> {
            let _ = out;
            sin(x)
        },
    );
    let op = op.register().unwrap();
    op.register_fake(|cx: &FakeCtx, x: &Tensor, _out: &mut Tensor| -> Result<Tensor> {
        like(cx, x)
    })
    .unwrap();
    assert!(shown("declared_and_never_mutated", &op, args![floats(3), floats(3)]).is_empty());
    assert_eq!(report(&op, args![floats(3), floats(3)]).warnings().count(), 1);
}

#[test]
fn each_half_of_a_storage_is_checked_separately() {
    let kernel = |k: &mut Tensor, v: &mut Tensor| -> Result<()> {
        let _ = v;
        k.write::<f32>()?.mapv_inplace(|x| x + 1.0);
        Ok(())
    };
    let op = custom_op("bad::half_idle").arg_names(["k", "v"]).kernel(kernel).register().unwrap();
    let kv = floats(6);
    let report = report(&op, args![kv.narrow(0, 0, 3), kv.narrow(0, 3, 3)]);
    assert_eq!(
        report.warnings().collect::<Vec<_>>(),
        ["argument `v` is declared as mutated, but no call changed it"]
    );
    assert!(report.passed(), "{report}");
    assert_eq!(
        kv.to_vec::<f32>().unwrap(),
        floats(6).to_vec::<f32>().unwrap(),
        "the sample is not written"
    );
}

#[test]
fn a_result_that_aliases_for_some_inputs_only() {
    let kernel = |x: &Tensor| -> Result<Tensor> {
        if x.numel().as_i64() == Some(4) { Ok(x.clone()) } else { sin(x) }
    };
    let op = custom_op("bad::maybe_alias").arg_names(["x"]).kernel(kernel).register().unwrap();
    op.register_fake(like).unwrap();
    let failed = shown("maybe_alias", &op, args![floats(3)]);
    assert_eq!(failed, [Check::Schema]);
}

#[test]
fn an_argument_given_twice_stays_one() {
    let kernel = |x: &Tensor, y: &Tensor| -> Result<Tensor> {
        if x.shares_storage(y) { Ok(y.clone()) } else { sin(x) }
    };
    let op = custom_op("bad::twice").arg_names(["x", "y"]).kernel(kernel).register().unwrap();
    op.register_fake(|cx: &FakeCtx, x: &Tensor, _y: &Tensor| -> Result<Tensor> { like(cx, x) })
        .unwrap();
    opcheck(&op, args![floats(3), floats(3)]).unwrap();
    let x = floats(3);
    assert_eq!(shown("argument_given_twice", &op, args![&x, &x]), [Check::Schema]);
}

#[test]
fn two_mutated_arguments_that_overlap_are_refused() {
    let kernel = |x: &mut Tensor, y: &mut Tensor| -> Result<()> {
        x.write::<f32>()?.fill(1.0);
        y.write::<f32>()?.fill(2.0);
        Ok(())
    };
    let op = custom_op("bad::both").arg_names(["x", "y"]).kernel(kernel).register().unwrap();
    opcheck(&op, args![floats(3), floats(3)]).unwrap();
    let x = floats(6);
    opcheck(&op, args![x.narrow(0, 0, 3), x.narrow(0, 3, 3)]).unwrap();
    assert_eq!(
        shown("mutated_arguments_overlap", &op, args![x.narrow(0, 0, 3), x.narrow(0, 1, 3)]),
        [Check::Schema]
    );
}

#[test]
fn a_kernel_that_reads_beside_its_view() {
    #[allow(unsafe_code)]
    let kernel = |x: &Tensor| -> Result<Tensor> {
        let x = x.read::<f32>()?;
        // SAFETY: the test's storages go on after the view
        let after = unsafe { x.as_ptr().add(x.len()).read_volatile() };
        Ok(Tensor::from(x.mapv(|v| v + after)))
    };
    let op = custom_op("bad::reads_on").arg_names(["x"]).kernel(kernel).register().unwrap();
    op.register_fake(like).unwrap();
    let only = OpcheckOptions::new().only([Check::Schema]).derive(0).raise(false);
    let report = opcheck_with(&op, args![floats(8).narrow(0, 0, 4)], only).unwrap();
    snapshot("reads_beside_its_view", &report);
}

#[test]
fn a_kernel_that_writes_behind_its_view() {
    let kernel = |x: &Tensor, out: &mut Tensor| -> Result<()> {
        out.copy_(x);
        write_at(out, 4, |v| v + 1.0)
    };
    let op = custom_op("bad::writes_on").arg_names(["x", "out"]).kernel(kernel).register().unwrap();
    let only = OpcheckOptions::new().only([Check::Schema]).derive(0).raise(false);
    let report = opcheck_with(&op, args![floats(4), floats(8).narrow(0, 0, 4)], only).unwrap();
    snapshot("writes_behind_its_view", &report);
}

#[test]
fn wrong_number_and_kind_of_outputs() {
    let two = custom_op("bad::count").schema("(Tensor x) -> (Tensor, Tensor)");
    let e = two.kernel(|x: &Tensor| -> Result<Tensor> { sin(x) }).register().unwrap_err();
    assert!(e.to_string().contains("the returns differ"), "{e}");
    // a list has any length, so its length is the fake kernel's to say
    let op = custom_op("bad::list")
        .arg_names(["x"])
        .kernel(|x: &Tensor| -> Result<Vec<Tensor>> { Ok(vec![sin(x)?, sin(x)?]) });
    let op = op.register().unwrap();
    op.register_fake(|cx: &FakeCtx, x: &Tensor| -> Result<Vec<Tensor>> { Ok(vec![like(cx, x)?]) })
        .unwrap();
    assert_eq!(shown("wrong_number_of_outputs", &op, args![floats(3)]), [Check::Fake]);
    let op = custom_op("bad::dtype").arg_names(["x"]).kernel(nonzero).register().unwrap();
    op.register_fake(like).unwrap();
    assert_eq!(shown("wrong_dtype", &op, args![floats(3)]), [Check::Fake]);
}

// ---- fake kernels

#[test]
fn no_fake_kernel() {
    let op = custom_op("bad::no_fake").arg_names(["x"]).kernel(sin).register().unwrap();
    assert_eq!(shown("no_fake_kernel", &op, args![floats(3)]), [Check::Fake]);
}

#[test]
fn a_fake_kernel_that_knows_the_sample() {
    let op = custom_op("bad::hard_coded").arg_names(["x"]).kernel(sin).register().unwrap();
    op.register_fake(|_: &FakeCtx, x: &Tensor| -> Result<Tensor> {
        Ok(x.new_empty([3i64], x.dtype()))
    })
    .unwrap();
    assert_eq!(shown("fake_hard_codes_the_size", &op, args![floats(3)]), [Check::Fake]);
    // of a factory, whose sizes are integers
    let op = custom_op("bad::ramp")
        .arg_names(["n"])
        .kernel(|n: i64| -> Result<Tensor> { Ok(floats(n as usize)) })
        .register()
        .unwrap();
    op.register_fake(|_: &FakeCtx, _n: i64| -> Result<Tensor> {
        Ok(Tensor::fake([5i64], DType::F32))
    })
    .unwrap();
    assert_eq!(shown("fake_hard_codes_an_integer", &op, args![5]), [Check::Fake]);
}

#[test]
fn a_fake_kernel_that_confuses_equal_sizes() {
    let kernel =
        |x: &Tensor| -> Result<Tensor> { Ok(Tensor::from(x.read::<f32>()?.t().mapv(f32::sin))) };
    let op = custom_op("bad::confused").arg_names(["x"]).kernel(kernel).register().unwrap();
    op.register_fake(like).unwrap();
    assert_eq!(shown("fake_confuses_equal_sizes", &op, args![matrix(3, 3)]), [Check::Fake]);
}

#[test]
fn a_fake_kernel_that_fixes_a_size() {
    let op = custom_op("bad::guards").arg_names(["x"]).kernel(sin).register().unwrap();
    op.register_fake(|_: &FakeCtx, x: &Tensor| -> Result<Tensor> {
        Ok(x.new_empty([x.size(0).guard_int()?], x.dtype()))
    })
    .unwrap();
    assert!(shown("fake_fixes_a_size", &op, args![floats(3)]).is_empty());
    assert_eq!(report(&op, args![floats(3)]).warnings().count(), 1);
}

#[test]
fn a_fake_kernel_that_reads_data() {
    let op = custom_op("bad::reads").arg_names(["x"]).kernel(sin).register().unwrap();
    op.register_fake(|_: &FakeCtx, x: &Tensor| -> Result<Tensor> { sin(x) }).unwrap();
    assert_eq!(shown("fake_reads_data", &op, args![floats(3)]), [Check::Fake]);
}

#[test]
fn wrong_bounds_of_a_dynamic_size() {
    let bounded = |name: &str, min: i64, max: i64| {
        let op = custom_op(name).arg_names(["x"]).kernel(nonzero).register().unwrap();
        let fake = move |cx: &FakeCtx, x: &Tensor| -> Result<Tensor> {
            Ok(x.new_empty([cx.new_dynamic_size_in(min, max)?], DType::I64))
        };
        op.register_fake(fake).unwrap();
        op
    };
    let x = Tensor::from([1.0f32, 0.0, 2.0, 0.0, 0.0]);
    assert_eq!(shown("bound_too_low", &bounded("bad::at_most_1", 0, 1), args![&x]), [Check::Fake]);
    assert_eq!(
        shown("bound_too_high", &bounded("bad::at_least_5", 5, i64::MAX), args![&x]),
        [Check::Fake]
    );
    // right for the sample, wrong for zeros: the contents are varied too
    let failed = report(&bounded("bad::at_least_1", 1, i64::MAX), args![&x]).failed();
    assert_eq!(failed, [Check::Fake]);
    opcheck(&bounded("bad::unbounded", 0, i64::MAX), args![&x]).unwrap();
}

#[test]
fn a_needlessly_dynamic_size_is_a_warning() {
    let op = custom_op("bad::needless").arg_names(["x"]).kernel(sin).register().unwrap();
    op.register_fake(|cx: &FakeCtx, x: &Tensor| -> Result<Tensor> {
        Ok(x.new_empty([cx.new_dynamic_size()?], x.dtype()))
    })
    .unwrap();
    assert!(shown("needlessly_dynamic", &op, args![floats(3)]).is_empty());
    assert_eq!(report(&op, args![floats(3)]).warnings().count(), 1);
}

#[test]
fn a_stride_of_a_dynamic_output() {
    let kernel = |x: &Tensor| -> Result<Tensor> {
        let n = x.read::<f32>()?.iter().filter(|v| **v != 0.0).count() as i64;
        Ok(Tensor::zeros([2i64, n], DType::F32).t())
    };
    let op = custom_op("bad::strides").arg_names(["x"]).kernel(kernel).register().unwrap();
    let fake = |cx: &FakeCtx, x: &Tensor| -> Result<Tensor> {
        Ok(x.new_empty([cx.new_dynamic_size()?, 2.into()], x.dtype()))
    };
    op.register_fake(fake).unwrap();
    assert_eq!(shown("stride_of_a_dynamic_output", &op, args![floats(3)]), [Check::Fake]);
}

#[test]
fn an_integer_that_differs() {
    let kernel = |x: &Tensor| -> Result<(Tensor, i64)> {
        let found = nonzero(x)?;
        let n = found.numel().as_i64().unwrap();
        Ok((found, n))
    };
    let op = |name: &str| custom_op(name).arg_names(["x"]).kernel(kernel).register().unwrap();
    let constant = op("bad::int");
    let fake = |cx: &FakeCtx, x: &Tensor| -> Result<(Tensor, i64)> {
        Ok((x.new_empty([cx.new_dynamic_size()?], DType::I64), 7))
    };
    constant.register_fake(fake).unwrap();
    assert_eq!(shown("integer_that_differs", &constant, args![floats(3)]), [Check::Fake]);
    let right = op("good::int");
    right
        .register_fake(|cx: &FakeCtx, x: &Tensor| -> Result<(Tensor, maquette_ir::sym::SymInt)> {
            let n = cx.new_dynamic_size()?;
            Ok((x.new_empty([n], DType::I64), n))
        })
        .unwrap();
    opcheck(&right, args![floats(3)]).unwrap();
}

#[test]
fn an_assertion_that_the_kernel_breaks() {
    let op = custom_op("bad::asserts").arg_names(["x"]).kernel(nonzero).register().unwrap();
    op.register_fake(|cx: &FakeCtx, x: &Tensor| -> Result<Tensor> {
        let n = cx.new_dynamic_size()?;
        n.lt(x.size(0)).check("some element is zero")?;
        Ok(x.new_empty([n], DType::I64))
    })
    .unwrap();
    assert_eq!(shown("assertion_in_a_fake", &op, args![floats(3)]), [Check::Fake]);
}
