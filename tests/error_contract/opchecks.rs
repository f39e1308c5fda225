//! What `opcheck` reports.

use super::*;
use maquette::check::opcheck::Check;
use maquette::library::{IntoKernel, OpcheckOptions, opcheck, opcheck_with};
use maquette::ops::Meta;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// How often a kernel with a state was called.
static CALLS: AtomicU32 = AtomicU32::new(0);

/// Checks an operator of one tensor, `x`.
fn check<M, F: IntoKernel<M>>(
    name: &str,
    kernel: F,
    fake: fn(&Tensor) -> Result<Tensor>,
) -> Result<()> {
    let op = ops::custom_op(name).arg_names(["x"]).kernel(kernel).register()?;
    op.register_fake(move |_: &FakeCtx, x: &Tensor| fake(x))?;
    opcheck(&op, args![Tensor::from([[1.0f32, 2.0, 3.0], [4.0, 5.0, 6.0]])]).map(drop)
}

fn like(x: &Tensor) -> Result<Tensor> {
    Ok(x.new_empty(x.sizes(), x.dtype()))
}

/// A fake tensor like `x` with other metadata.
fn with(x: &Tensor, change: impl FnOnce(&mut Meta)) -> Result<Tensor> {
    let mut meta = x.meta().clone();
    change(&mut meta);
    Ok(Tensor::fake_of(meta))
}

pub fn rows() -> Vec<Row> {
    vec![
        fails!("an argument that is mutated, and not declared so", {
            check(
                "err::c_writes",
                |x: &Tensor| {
                    x.clone().write::<f32>().map(|mut v| v.fill(0.0)).and_then(|()| copy(x))
                },
                like,
            )
        }),
        fails!(
            "an output that is an argument",
            check("err::c_same", |x: &Tensor| Ok(x.clone()), like)
        ),
        fails!(
            "an output that is a view of an argument",
            check(
                "err::c_view",
                |x: &Tensor| Ok(x.view([3, 2])),
                |x| Ok(x.new_empty([3, 2], x.dtype()))
            )
        ),
        fails!("two outputs that are one", {
            let op = ops::custom_op("err::c_both")
                .arg_names(["x"])
                .kernel(|x: &Tensor| copy(x).map(|y| (y.clone(), y)))
                .register()?;
            op.register_fake(|_: &FakeCtx, x: &Tensor| Ok((like(x)?, like(x)?)))?;
            opcheck(&op, args![x()])
        }),
        fails!(
            "another size than promised",
            check("err::c_size", copy, |x| Ok(x.new_empty([x.size(0), x.size(1) + 1], x.dtype())))
        ),
        fails!(
            "another dtype than promised",
            check("err::c_dtype", copy, |x| Ok(x.new_empty(x.sizes(), DType::F64)))
        ),
        fails!(
            "another device than promised",
            check("err::c_device", copy, |x| with(x, |m| m.device = Device::cuda(0)))
        ),
        fails!(
            "other strides than promised",
            check("err::c_strides", copy, |x| like(&x.t()).map(|y| y.t()))
        ),
        fails!(
            "another offset than promised",
            check("err::c_offset", copy, |x| with(x, |m| *m = m.clone().with_offset(4)))
        ),
        without(
            "another `requires_grad` than promised; autograd in a kernel",
            "kernels run below derivatives: what they call is not recorded",
        ),
        fails!(
            "a fake kernel that knows the sample",
            check("err::c_fixed", copy, |x| Ok(x.new_empty([2, 3], x.dtype())))
        ),
        fails!("a fake kernel that refuses what the kernel accepts", {
            check("err::c_refuses", copy, |x| {
                ensure!(x.size(1).eq(3).guard()?, "rows have 3 elements");
                like(x)
            })
        }),
        fails!("results that differ from call to call", {
            let kernel = |_: &Tensor| Ok(Tensor::from([CALLS.fetch_add(1, Relaxed) as f32]));
            let op = ops::custom_op("err::c_state").arg_names(["x"]).kernel(kernel).register()?;
            opcheck_with(
                &op,
                args![x()],
                OpcheckOptions::new().only([Check::Determinism]).derive(0),
            )
        }),
        fails!("a derivative that is wrong", {
            let kernel = |x: &Tensor| -> Result<Tensor> {
                Ok(Tensor::from(x.to_array::<f32>()?.mapv(|v| 2.0 * v)))
            };
            let op =
                ops::custom_op("err::c_gradient").arg_names(["x"]).kernel(kernel).register()?;
            op.register_fake(copy_fake)?;
            op.register_autograd(|_, grads| Ok(vec![Some(&grads[0] * 3.0)]))?;
            opcheck_with(&op, args![x()], OpcheckOptions::new().only([Check::Gradients]).derive(0))
        }),
        without(
            "something that is no operator; an unknown check; one of two tolerances",
            "`Op` and `Check` are types, and bits are compared, without tolerance",
        ),
        fails!("a kernel that reads a tensor it was not given", {
            let held = x();
            check("err::c_peeks", move |x: &Tensor| (x + held.item::<f32>()?).ok().cloned(), like)
        }),
        fails!(
            "a sample of too many elements",
            opcheck(&Op::find("aten::relu")?, args![Tensor::zeros([3_000_000], DType::F32)])
        ),
        fails!("a sample that does not fit", opcheck(&Op::find("aten::relu")?, args![])),
        without("an operator with overloads", "`Op` is one overload"),
    ]
}
