//! Fake kernels, and sizes that depend on data.

use super::*;
use maquette::library::{define, register_fake};
use maquette::ops::FakeCtx;

/// Traces an operator with this fake kernel, every size a symbol.
fn traced(
    name: &str,
    fake: fn(&FakeCtx, &Tensor) -> Result<Tensor>,
) -> Result<Traced<Tensor, Tensor>> {
    let op = ops::custom_op(name).arg_names(["x"]).kernel(copy).register()?;
    op.register_fake(move |cx: &FakeCtx, x: &Tensor| fake(cx, x))?;
    let call = move |x: Tensor| -> Result<Tensor> { op.call(args![&x])?[0].tensor().cloned() };
    TraceOptions::symbolic()
        .names(["x"])
        .trace(|x: Tensor| call(x).unwrap_or_else(Tensor::poison), x())
}

#[custom_op("err::nonzero")]
fn indices(x: &Tensor) -> Result<Tensor> {
    nonzero(x)
}

#[maquette::register_fake(indices)]
fn indices_fake(cx: &FakeCtx, x: &Tensor) -> Result<Tensor> {
    nonzero_fake(cx, x)
}

#[custom_op("err::no_fake")]
fn no_fake(x: &Tensor) -> Result<Tensor> {
    copy(x)
}

/// Traces a program, every size a symbol.
fn program<O: Tree>(f: impl FnOnce(Tensor) -> Result<O>) -> Result<Traced<Tensor, O::Output>> {
    TraceOptions::symbolic().names(["x"]).trace(f, x())
}

pub fn rows() -> Vec<Row> {
    vec![
        refused(
            "a fake kernel of a function that is no operator",
            "fake_of_no_operator",
            "of_a_function",
        ),
        refused("a fake kernel of too few arguments", "fake_arguments", "too_few"),
        refused("a fake kernel of another type", "fake_arguments", "of_another_type"),
        fails!("no fake kernel", trace(|x: Tensor| no_fake(&x), x())),
        fails!("no fake kernel of an operator that has only a schema", {
            let op =
                define("err::low", "(Tensor x, int[] sizes, *, bool keep=False) -> (Tensor, int)")?;
            trace(
                |x: Tensor| op.call(args![&x, [1i64, 2]]).map(|out| out[0].tensor().cloned()),
                x(),
            )
        }),
        fails!("a data-dependent size outside of a trace", indices(&Tensor::fake([3], DType::F32))),
        fails!(
            "a data-dependent size on the `meta` device",
            indices(&Tensor::from([1.0f32]).to_device(Device::Meta))
        ),
        fails!(
            "a size below 0",
            traced("err::below", |cx, x| Ok(
                x.new_empty([cx.new_dynamic_size_in(-1, 4)?], x.dtype())
            ))
        ),
        fails!(
            "a bound that is a symbol",
            traced("err::bound", |cx, x| Ok(
                x.new_empty([cx.new_dynamic_size_in(0, x.size(0))?], x.dtype())
            ))
        ),
        fails!(
            "a lower bound above the upper",
            traced("err::bounds", |cx, x| Ok(
                x.new_empty([cx.new_dynamic_size_in(5, 3)?], x.dtype())
            ))
        ),
        fails!(
            "a size that no output has",
            traced("err::unreturned", |cx, x| cx.new_dynamic_size().and_then(|_| copy_fake(cx, x)))
        ),
        fails!(
            "a branch on data",
            program(|x| Ok(if indices(&x).size(0).gt(3).guard()? { x.relu() } else { x }))
        ),
        fails!("a branch on data in a fake kernel", {
            traced("err::branches", |cx, x| {
                let n = cx.new_dynamic_size()?;
                Ok(x.new_empty([if n.gt(3).guard()? { n } else { n + 1 }], x.dtype()))
            })
        }),
        fails!(
            "a number for data",
            program(|x| Ok(Tensor::zeros([indices(&x).size(0).guard_int()?], DType::F32)))
        ),
        fails!(
            "a tensor with data in a fake kernel",
            traced("err::mixes", |_, x| Ok(x + Tensor::from([1.0f32])))
        ),
        fails!(
            "a value read from a traced tensor",
            program(|x| Ok(Tensor::from([x.item::<f32>()?])))
        ),
        fails!("an array of a fake tensor", traced("err::reads", |_, x| copy(x))),
        without(
            "a data pointer of a fake tensor",
            "pointers come from arrays, and there is none, as above",
        ),
        fails!("an assertion that does not hold", {
            let few = |x: Tensor| -> Result<Tensor> {
                let found = indices(&x);
                found.size(0).le(2).check("at most two may be nonzero")?;
                Ok(found)
            };
            program(few)?.run(x())?
        }),
        fails!("a fake kernel that is there already", {
            register_fake("err::once", copy_fake)?;
            register_fake("err::once", copy_fake)
        }),
    ]
}
