//! Error texts beyond the error contract, of builtin operators and of traces, reviewed like code.

use insta::assert_snapshot;
use maquette::prelude::*;
use std::fmt::Write;

#[custom_op("errors::nonzero")]
fn nonzero(x: &Tensor) -> Result<Tensor> {
    let rows: Vec<i64> = x
        .read::<f32>()?
        .iter()
        .enumerate()
        .filter(|(_, v)| **v != 0.0)
        .map(|(i, _)| i as i64)
        .collect();
    Ok(Tensor::from(rows))
}

#[register_fake(nonzero)]
fn nonzero_fake(cx: &FakeCtx, x: &Tensor) -> Result<Tensor> {
    Ok(x.new_empty([cx.new_dynamic_size_in(0, 3)?], DType::I64))
}

fn x() -> Tensor {
    Tensor::from([1.0f32, 2.0, 3.0])
}

#[custom_op("errors::scale")]
fn errors_scale(outs: &mut [Tensor]) -> Result<()> {
    outs.iter_mut().try_for_each(|t| t.mul_(2.0).ok().map(drop))
}

#[custom_op("errors::first")]
fn errors_first(x: &Tensor) -> Result<Tensor> {
    Ok(Tensor::from([x.read::<f32>()?[0]]))
}

/// A traced tensor that got out of its trace.
fn leaked() -> Tensor {
    let mut out = None;
    let _ = trace(
        |x: Tensor| {
            out = Some(x.clone());
            x + 1.0
        },
        x(),
    );
    out.unwrap()
}

/// One bad use: what it is, and the error it gave.
type Case = (&'static str, Box<dyn Fn() -> Option<Error>>);

fn case(name: &'static str, f: impl Fn() -> Result<()> + 'static) -> Case {
    (name, Box::new(move || f().err()))
}

fn dead(t: Tensor) -> Result<()> {
    t.ok().map(drop)
}

fn builtins() -> Vec<Case> {
    vec![
        case("shapes that do not broadcast", || dead(x() + Tensor::from([1.0f32, 2.0]))),
        case("an in-place result that does not fit", || dead(Tensor::from([1i64, 2]).add_(1.5))),
        case("matrices that do not fit", || {
            dead(Tensor::zeros([2, 3], DType::F32).mm(&Tensor::zeros([2, 3], DType::F32)))
        }),
        case("one tensor twice in a list of mutated tensors", || {
            let y = x();
            errors_scale(&mut [y.clone(), x(), y])
        }),
        case("more elements than can be counted", || {
            dead(Tensor::from([1.0f32]).expand([1i64 << 31, 1 << 31]).mean())
        }),
        case("a device without memory of its own", || dead(x().to_device(Device::cuda(0)))),
        case("an argument of another dtype", || dead(errors_first(&Tensor::from([1.0f64])))),
        case("an assertion on known sizes", || Ok(x().size(0).lt(2).check("few rows")?)),
        case("a matrix of another dtype", || {
            dead(Tensor::zeros([2, 3], DType::F32).mm(&Tensor::zeros([3, 2], DType::F64)))
        }),
        case("a view that does not fit", || dead(x().view([2, 2]))),
        case("a dimension that is not there", || dead(x().select(1, 0))),
        case("an index out of range", || dead(x().select(0, 7))),
        case("an image with too few channels", || {
            let (image, weight) =
                (Tensor::zeros([1, 3, 8, 8], DType::F32), Tensor::zeros([4, 1, 3, 3], DType::F32));
            dead(image.conv2d(&weight, None, [1, 1], [0, 0], [1, 1], 1))
        }),
        case("integer division by zero", || dead(Tensor::from([1i64]).floor_divide(0))),
        case("the first of two causes", || dead(x().view([2, 2]).relu().mm(&x()) + 1.0)),
        case("a size that is not there", || dead(Tensor::zeros([x().size(5)], DType::F32))),
        case("the wrong element type", || x().read::<f64>().map(drop)),
        case("the data of a fake tensor", || Tensor::fake([2], DType::F32).read::<f32>().map(drop)),
        case("an item of many", || x().item::<f32>().map(drop)),
        case("the size of a poisoned tensor", || {
            x().view([2, 2]).size(0).guard_int().map(drop).map_err(Error::from)
        }),
    ]
}

fn traces() -> Vec<Case> {
    let symbolic = || TraceOptions::symbolic().names(["x"]);
    vec![
        case("a size beyond its declared bound", move || {
            dead(symbolic().trace(|x: Tensor| nonzero(&x), x())?.run(Tensor::from([1.0f32; 5]))?)
        }),
        case("reading a captured tensor while tracing", move || {
            let w = Tensor::from([3.0f32]);
            symbolic()
                .trace(move |x: Tensor| -> Result<Tensor> { Ok(x * w.item::<f32>()?) }, x())
                .map(drop)
        }),
        case("writing a captured tensor's data while tracing", move || {
            let mut w = Tensor::from([3.0f32]);
            let model = move |x: Tensor| -> Result<Tensor> {
                w.write::<f32>()?.fill(1.0);
                Ok(x + &w)
            };
            symbolic().trace(model, x()).map(drop)
        }),
        case("sizes of data that must be equal and are not", move || {
            let t =
                symbolic().trace(|x: Tensor| nonzero(&x) + Tensor::from([10i64, 20, 30]), x())?;
            dead(t.run(Tensor::from([1.0f32, 0.0, 0.0]))?)
        }),
        case("a traced tensor after its trace", || dead(leaked() + 1.0)),
        case("a traced tensor in another trace", || {
            trace(
                |x: Tensor| -> Result<Tensor> {
                    trace(|y: Tensor| y + &x, Tensor::from([1.0f32]))?;
                    Ok(x)
                },
                x(),
            )
            .map(drop)
        }),
        case("a traced tensor on another thread", || {
            trace(
                |x: Tensor| {
                    std::thread::spawn(move || x + 1.0)
                        .join()
                        .map_err(|_| Error::msg("the thread panicked"))
                },
                x(),
            )
            .map(drop)
        }),
        case("a failure whose result is dead", || {
            let model = |x: Tensor| {
                let _dead = x.view([7, 7]);
                x + 1.0
            };
            trace(model, x()).map(drop)
        }),
    ]
}

fn texts(cases: Vec<Case>) -> String {
    let mut out = String::new();
    for (name, run) in cases {
        let text = run().map_or_else(|| "NO ERROR".to_owned(), |e| e.to_string());
        assert!(!text.contains("NO ERROR"), "{name} must be an error");
        writeln!(out, "## {name}\n\n{text}\n").unwrap();
    }
    out
}

macro_rules! snapshot {
    ($($name:ident),*) => { $(
        #[test]
        fn $name() {
            let filters = [(r"\.rs:\d+", ".rs:LINE"), (r"at \S*?(tests|crates)/", "at $1/")];
            insta::with_settings!({ filters => filters }, {
                assert_snapshot!(concat!("errors_", stringify!($name)), texts(super::$name()));
            });
        }
    )* };
}

mod texts_of {
    use super::*;
    snapshot!(builtins, traces);
}
