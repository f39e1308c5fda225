//! Operators of every kind that keep their contract.

use maquette_check::opcheck::{Check, suite};
use maquette_check::opcheck_suite;
use maquette_ir::DType;
use maquette_ir::sym::SymInt;
use maquette_ops::{Effect, FakeCtx, Op, Result, Tensor, args, custom_op};
use std::sync::LazyLock;

fn floats(n: i64) -> Tensor {
    Tensor::from((0..n).map(|i| 0.5 + i as f32).collect::<Vec<f32>>())
}

fn matrix(rows: i64, columns: i64) -> Tensor {
    floats(rows * columns).reshape([rows, columns])
}

fn find(name: &str) -> Op {
    Op::find(name).unwrap()
}

fn linear() -> Op {
    static OP: LazyLock<Op> = LazyLock::new(|| {
        let kernel =
            |x: &Tensor, w: &Tensor, b: Option<&Tensor>| -> Result<Tensor> { Ok(x.linear(w, b)) };
        let op =
            custom_op("good::linear").arg_names(["x", "w", "b"]).kernel(kernel).register().unwrap();
        op.register_fake(
            |_: &FakeCtx, x: &Tensor, w: &Tensor, _b: Option<&Tensor>| -> Result<Tensor> {
                Ok(x.new_empty([x.size(0), w.size(0)], x.dtype()))
            },
        )
        .unwrap();
        op
    });
    *OP
}

fn scale_() -> Op {
    let kernel = |x: &mut Tensor, s: f64| -> Result<()> {
        x.write::<f32>()?.mapv_inplace(|v| v * s as f32);
        Ok(())
    };
    custom_op("good::scale_").arg_names(["x", "s"]).kernel(kernel).register().unwrap()
}

fn sin_out() -> Op {
    static OP: LazyLock<Op> = LazyLock::new(|| {
        let kernel = |x: &Tensor, out: &mut Tensor| -> Result<()> {
            let x = x.read::<f32>()?;
            maquette_ops::ensure!(x.shape() == out.read::<f32>()?.shape(), "sizes differ");
            out.write::<f32>()?.zip_mut_with(&x, |o, x| *o = x.sin());
            Ok(())
        };
        custom_op("good::sin_out").arg_names(["x", "out"]).kernel(kernel).register().unwrap()
    });
    *OP
}

fn add_() -> Op {
    custom_op("good::add_")
        .schema("(Tensor(a!) x, Tensor y) -> Tensor(a!)")
        .kernel(|x: &mut Tensor, y: &Tensor| -> Result<Tensor> {
            x.add_(y);
            Ok(x.clone())
        })
        .register()
        .unwrap()
}

fn ramp() -> Op {
    let op = custom_op("good::ramp")
        .arg_names(["n"])
        .kernel(|n: i64| -> Result<Tensor> { Ok(floats(n)) })
        .register()
        .unwrap();
    op.register_fake(|_: &FakeCtx, n: SymInt| -> Result<Tensor> {
        Ok(Tensor::fake([n], DType::F32))
    })
    .unwrap();
    op
}

fn nonzero() -> Op {
    let kernel = |x: &Tensor| -> Result<Tensor> { Ok(x.nonzero().contiguous()) };
    let op = custom_op("good::nonzero").arg_names(["x"]).kernel(kernel).register().unwrap();
    op.register_fake(|cx: &FakeCtx, x: &Tensor| -> Result<Tensor> {
        let n = cx.new_dynamic_size()?;
        n.le(x.numel()).check("more places than elements")?;
        Ok(x.new_empty([n, x.dim().into()], DType::I64))
    })
    .unwrap();
    op
}

fn halves() -> Op {
    let kernel =
        |xs: &[Tensor]| -> Result<Vec<Tensor>> { xs.iter().map(|x| Ok(x * 0.5)).collect() };
    let op = custom_op("good::halves").arg_names(["xs"]).kernel(kernel).register().unwrap();
    op.register_fake(|_: &FakeCtx, xs: &[Tensor]| -> Result<Vec<Tensor>> {
        Ok(xs.iter().map(|x| x.new_empty(x.sizes(), x.dtype())).collect())
    })
    .unwrap();
    op
}

/// A mutable optional list with a `None` in it.
fn zero_some() -> Op {
    custom_op("good::zero_some")
        .schema("(Tensor x, Tensor(a!)?[] outs) -> ()")
        .kernel(|_x: &Tensor, outs: &mut [Option<Tensor>]| -> Result<()> {
            outs.iter_mut().flatten().try_for_each(|o| o.write::<f32>().map(|mut o| o.fill(0.0)))
        })
        .register()
        .unwrap()
}

fn zero_all() -> Op {
    let kernel = |outs: &mut [Tensor]| -> Result<()> {
        outs.iter_mut().try_for_each(|o| o.write::<f32>().map(|mut o| o.fill(0.0)))
    };
    custom_op("good::zero_all").arg_names(["outs"]).kernel(kernel).register().unwrap()
}

fn log() -> Op {
    custom_op("good::log")
        .arg_names(["x"])
        .effect(Effect::Ordered)
        .kernel(|x: &Tensor| -> Result<()> { x.ok().map(drop) })
        .register()
        .unwrap()
}

opcheck_suite! {
    functional: linear(), [
        args![matrix(2, 3), matrix(4, 3), floats(4)],
        args![matrix(2, 3), matrix(4, 3), ()],
        args![matrix(3, 2).t(), matrix(3, 4).t(), ()],
    ];
    mutable: scale_(), [
        args![floats(3), 2.0],
        args![matrix(2, 3).t(), 0.5],
        args![floats(8).narrow(0, 2, 3), 2.0],
    ];
    out: sin_out(), [args![floats(3), floats(3)]];
    overlapping: sin_out(), [{
        let x = floats(5);
        args![x.narrow(0, 0, 4), x.narrow(0, 1, 4)]
    }];
    in_place_and_returned: add_(), [args![matrix(2, 3), floats(3)], {
        let x = floats(3);
        args![&x, &x]
    }];
    factory: ramp(), [args![3], args![0]];
    data_dependent: nonzero(), [
        args![Tensor::from([0.0f32, 1.0, 2.0])],
        args![matrix(2, 3)],
        args![Tensor::scalar(1.0f32)],
    ];
    lists: halves(), [args![[floats(2), floats(3)]], args![Vec::<Tensor>::new()]];
    mutable_list: zero_all(), [args![[floats(2), floats(3)]]];
    optional_list_with_none: zero_some(), [
        args![floats(2), [Some(floats(2)), None]],
        args![floats(2), [None::<Tensor>]],
    ];
    effect: log(), [args![floats(3)]];
    empty: linear(), [args![matrix(0, 3), matrix(4, 3), ()]];

    builtin_pointwise: find("aten::add.Tensor"), [
        args![matrix(2, 3), floats(3)],
        args![floats(2), 2.0],
    ];
    builtin_reduction: find("aten::sum.dim_IntList"), [args![matrix(2, 3), [1], true]];
    builtin_matrix: find("aten::addmm"), [args![floats(4), matrix(2, 3), matrix(3, 4)]];
    builtin_view: find("aten::transpose.int"), [args![matrix(2, 3), 0, 1]];
    builtin_in_place: find("aten::mul_.Tensor"), [args![matrix(2, 3), 2.0]];
    builtin_list: find("aten::split.Tensor"), [args![matrix(4, 3), 2]];
    builtin_cat: find("aten::cat"), [args![[matrix(2, 3), matrix(1, 3)], 0]];
    builtin_sort: find("aten::sort"), [args![matrix(2, 3), 1, true]];
    builtin_nonzero: find("aten::nonzero"), [args![Tensor::from([0.0f32, 1.0, 2.0])]];
    builtin_factory: find("aten::full"), [args![[2, 3], 1.5]];
    builtin_random: find("aten::rand"), [args![[2, 3]]];
    builtin_index: find("aten::index_select"), [args![matrix(3, 4), 0, Tensor::from([2i64, 0])]];

    known_to_fail: no_fake(), [args![floats(3)]], xfail [Fake];
}

#[test]
fn an_xfail_that_passes_fails() {
    let op = custom_op("good::double_")
        .kernel(|x: &mut Tensor| -> Result<()> { x.mul_(2.0).ok().map(drop) })
        .register()
        .unwrap();
    let e = suite(&op, vec![args![floats(3)]], &[Check::Fake]).unwrap_err();
    assert_eq!(
        e.kind().to_string(),
        "the check `fake kernel` of good::double_ is listed as xfail, but passes on every sample"
    );
    let e = suite(&no_fake(), vec![args![floats(3)]], &[]).unwrap_err();
    assert!(e.to_string().contains("fake kernel    FAILED"), "{e}");
}

fn no_fake() -> Op {
    static OP: LazyLock<Op> = LazyLock::new(|| {
        custom_op("good::no_fake")
            .kernel(|x: &Tensor| -> Result<Tensor> { Ok(x + x) })
            .register()
            .unwrap()
    });
    *OP
}
