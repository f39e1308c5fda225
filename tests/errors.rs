//! Error texts, reviewed like code: one snapshot, to be read from top to bottom.

use insta::assert_snapshot;
use maquette::prelude::*;
use std::fmt::Write;

#[custom_op("errors::double")]
fn double(x: &Tensor) -> Result<Tensor> {
    Ok(Tensor::from(x.read::<f32>()?.mapv(|v| 2.0 * v)))
}

#[register_fake(double)]
fn double_fake(_cx: &FakeCtx, x: &Tensor) -> Result<Tensor> {
    Ok(x.new_empty(x.sizes(), x.dtype()))
}

#[custom_op("errors::host_only", device_types("cpu"))]
fn host_only(n: i64, device: Device) -> Result<i64> {
    let _ = device;
    Ok(n)
}

#[custom_op("errors::no_fake")]
fn no_fake(x: &Tensor) -> Result<Tensor> {
    Ok(Tensor::from(x.to_array::<f32>()?))
}

#[custom_op("errors::fake_reads")]
fn fake_reads(x: &Tensor) -> Result<Tensor> {
    Ok(Tensor::from(x.to_array::<f32>()?))
}

#[register_fake(fake_reads)]
fn fake_reads_fake(_cx: &FakeCtx, x: &Tensor) -> Result<Tensor> {
    Ok(Tensor::from(x.to_array::<f32>()?))
}

/// The fake kernel promises one column too many.
#[custom_op("errors::wrong_fake")]
fn wrong_fake(x: &Tensor) -> Result<Tensor> {
    Ok(Tensor::from(x.to_array::<f32>()?))
}

#[register_fake(wrong_fake)]
fn wrong_fake_fake(_cx: &FakeCtx, x: &Tensor) -> Result<Tensor> {
    Ok(x.new_empty([x.size(0) + 1], x.dtype()))
}

#[custom_op("errors::unreturned")]
fn unreturned(x: &Tensor) -> Result<Tensor> {
    Ok(Tensor::from(x.to_array::<f32>()?))
}

#[register_fake(unreturned)]
fn unreturned_fake(cx: &FakeCtx, x: &Tensor) -> Result<Tensor> {
    cx.new_dynamic_size()?;
    Ok(x.new_empty(x.sizes(), x.dtype()))
}

#[custom_op("errors::undeclared_write")]
fn undeclared_write(x: &Tensor) -> Result<Tensor> {
    x.clone().write::<f32>()?.fill(0.0);
    Ok(Tensor::from([0.0f32]))
}

#[custom_op("errors::aliases")]
fn aliases(x: &Tensor) -> Result<Tensor> {
    Ok(x.view([-1]))
}

#[custom_op("errors::two")]
fn two(x: &mut Tensor, y: &mut Tensor) -> Result<()> {
    let _ = (x, y);
    Ok(())
}

#[custom_op("errors::inc")]
fn inc(x: &mut Tensor) -> Result<()> {
    x.write::<f32>()?.mapv_inplace(|v| v + 1.0);
    Ok(())
}

#[custom_op("errors::nonzero")]
fn nonzero(x: &Tensor) -> Result<Tensor> {
    let rows: Vec<i64> = x.read::<f32>()?.iter().enumerate().filter(|(_, v)| **v != 0.0).map(|(i, _)| i as i64).collect();
    Ok(Tensor::from(rows))
}

#[register_fake(nonzero)]
fn nonzero_fake(cx: &FakeCtx, x: &Tensor) -> Result<Tensor> {
    Ok(x.new_empty([cx.new_dynamic_size_in(0, 3)?], DType::I64))
}

fn x() -> Tensor {
    Tensor::from([1.0f32, 2.0, 3.0])
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

fn calls() -> Vec<Case> {
    vec![
        case("an operator that does not exist", || ops::call("errors::duoble", args![&x()]).map(drop)),
        case("a namespace that is not linked", || ops::call("elsewhere::op", args![&x()]).map(drop)),
        case("a name without a namespace", || ops::custom_op("double").schema("(Tensor x) -> Tensor").register().map(drop)),
        case("a schema with a misspelt type", || ops::custom_op("errors::typo").schema("(Tensr x) -> Tensor").register().map(drop)),
        case("a schema in C++", || ops::custom_op("errors::cpp").schema("(Tensor x, int64_t n) -> Tensor").register().map(drop)),
        case("a schema without its arrow", || ops::custom_op("errors::arrow").schema("(Tensor x)").register().map(drop)),
        case("an unknown device type", || {
            ops::custom_op("errors::gpu")
                .device_types(["gpu"])
                .arg_names(["x"])
                .kernel(|x: &Tensor| -> Result<Tensor> { Ok(x + 1.0) })
                .register()
                .map(drop)
        }),
        case("a kernel that is not the schema's", || {
            ops::custom_op("errors::other")
                .schema("(Tensor(a!) x, int n) -> ()")
                .kernel(|x: &Tensor, _n: i64| -> Result<()> { x.ok().map(drop) })
                .register()
                .map(drop)
        }),
        case("an operator without a purpose", || {
            ops::custom_op("errors::none").arg_names(["x"]).kernel(|_x: &Tensor| -> Result<()> { Ok(()) }).register().map(drop)
        }),
        case("two definitions", || ops::custom_op("errors::double").schema("(Tensor x) -> Tensor").register().map(drop)),
        case("two fake kernels", || double::op().register_fake(|_cx: &FakeCtx, x: &Tensor| -> Result<Tensor> { Ok(x.clone()) })),
        case("too few arguments", || double::op().call(args![]).map(drop)),
        case("too many arguments", || double::op().call(args![&x(), 1]).map(drop)),
        case("an argument of another type", || double::op().call(args![3]).map(drop)),
        case("a device without a kernel", || host_only(3, Device::cuda(1)).map(drop)),
        case("an undeclared write", || dead(undeclared_write(&x()))),
        case("an output that is a view of the input", || dead(aliases(&x()))),
        case("two mutated arguments in one place", || {
            let mut x = x();
            let mut y = x.clone();
            two(&mut x, &mut y)
        }),
        case("a mutated argument that overlaps itself", || inc(&mut Tensor::from([1.0f32]).expand([3]))),
        case("a writer while somebody reads", || {
            let mut x = x();
            let other = x.clone();
            let _reading = other.read::<f32>()?;
            inc(&mut x)
        }),
        case("the wrong element type", || x().read::<f64>().map(drop)),
        case("the data of a fake tensor", || Tensor::fake([2], DType::F32).read::<f32>().map(drop)),
        case("an item of many", || x().item::<f32>().map(drop)),
    ]
}

fn builtins() -> Vec<Case> {
    vec![
        case("shapes that do not broadcast", || dead(x() + Tensor::from([1.0f32, 2.0]))),
        case("an in-place result that does not fit", || dead(Tensor::from([1i64, 2]).add_(1.5))),
        case("matrices that do not fit", || dead(Tensor::zeros([2, 3], DType::F32).mm(&Tensor::zeros([2, 3], DType::F32)))),
        case("a matrix of another dtype", || dead(Tensor::zeros([2, 3], DType::F32).mm(&Tensor::zeros([3, 2], DType::F64)))),
        case("a view that does not fit", || dead(x().view([2, 2]))),
        case("a dimension that is not there", || dead(x().select(1, 0))),
        case("an index out of range", || dead(x().select(0, 7))),
        case("an image with too few channels", || {
            let (image, weight) = (Tensor::zeros([1, 3, 8, 8], DType::F32), Tensor::zeros([4, 1, 3, 3], DType::F32));
            dead(image.conv2d(&weight, None, [1, 1], [0, 0], [1, 1], 1))
        }),
        case("integer division by zero", || dead(Tensor::from([1i64]).floor_divide(0))),
        case("the first of two causes", || dead(x().view([2, 2]).relu().mm(&x()) + 1.0)),
        case("a size that is not there", || dead(Tensor::zeros([x().size(5)], DType::F32))),
        case("the size of a poisoned tensor", || x().view([2, 2]).size(0).guard_int().map(drop).map_err(Error::from)),
    ]
}

fn traces() -> Vec<Case> {
    let symbolic = || TraceOptions::symbolic().names(["x"]);
    vec![
        case("an operator without a fake kernel", move || symbolic().trace(|x: Tensor| no_fake(&x), x()).map(drop)),
        case("a fake kernel that reads data", move || symbolic().trace(|x: Tensor| fake_reads(&x), x()).map(drop)),
        case("a fake kernel that makes a size and drops it", move || symbolic().trace(|x: Tensor| unreturned(&x), x()).map(drop)),
        case("a fake kernel that is wrong", move || dead(symbolic().trace(|x: Tensor| wrong_fake(&x), x())?.run(x())?)),
        case("a size beyond its declared bound", move || {
            dead(symbolic().trace(|x: Tensor| nonzero(&x), x())?.run(Tensor::from([1.0f32; 5]))?)
        }),
        case("branching on data", move || {
            symbolic()
                .trace(|x: Tensor| -> Result<Tensor> { if nonzero(&x).size(0).gt(1).guard()? { Ok(x + 1.0) } else { Ok(x) } }, x())
                .map(drop)
        }),
        case("reading data while tracing", move || {
            symbolic().trace(|x: Tensor| -> Result<f64> { Ok(x.item::<f32>()?.into()) }, x()).map(drop)
        }),
        case("reading a captured tensor while tracing", move || {
            let w = Tensor::from([3.0f32]);
            symbolic().trace(move |x: Tensor| -> Result<Tensor> { Ok(x * w.item::<f32>()?) }, x()).map(drop)
        }),
        case("writing a captured tensor's data while tracing", move || {
            let mut w = Tensor::from([3.0f32]);
            let model = move |x: Tensor| -> Result<Tensor> {
                w.write::<f32>()?.fill(1.0);
                Ok(x + &w)
            };
            symbolic().trace(model, x()).map(drop)
        }),
        case("another size than the program branched for", move || {
            let model = |x: Tensor| -> Result<Tensor> { if x.size(0).gt(2).guard()? { Ok(x + 1.0) } else { Ok(x) } };
            symbolic().trace(model, x())?.run(Tensor::from([1.0f32]))?.map(drop)
        }),
        case("another size than a static trace's", || dead(trace(|x: Tensor| x + 1.0, x())?.run(Tensor::from([1.0f32]))?)),
        case("another dtype", || dead(trace(|x: Tensor| x + 1.0, x())?.run(Tensor::from([1.0f64, 2.0, 3.0]))?)),
        case("a size outside the declared range", || {
            let t = TraceOptions::new().names(["x"]).dynamic(0, 0, Dim::new("batch").min(2).max(4)).trace(|x: Tensor| x + 1.0, x())?;
            dead(t.run(Tensor::from([1.0f32; 9]))?)
        }),
        case("an assertion with a message", move || {
            let model = |x: Tensor| -> Result<Tensor> {
                let n = nonzero(&x);
                n.size(0).ge(2).check("at least two must be nonzero")?;
                Ok(n)
            };
            symbolic().trace(model, x())?.run(Tensor::from([1.0f32, 0.0, 0.0]))?.map(drop)
        }),
        case("sizes of data that must be equal and are not", move || {
            let t = symbolic().trace(|x: Tensor| nonzero(&x) + Tensor::from([10i64, 20, 30]), x())?;
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
            trace(|x: Tensor| std::thread::spawn(move || x + 1.0).join().map_err(|_| Error::msg("the thread panicked")), x()).map(drop)
        }),
        case("a failure whose result is dead", || {
            let model = |x: Tensor| {
                let _dead = x.view([7, 7]);
                x + 1.0
            };
            trace(model, x()).map(drop)
        }),
        case("a sample outside its range", || {
            TraceOptions::new().dynamic(0, 0, Dim::new("batch").min(5)).trace(|x: Tensor| x, x()).map(drop)
        }),
        case("a dimension that the input does not have", || {
            TraceOptions::new().dynamic(0, 3, Dim::new("batch")).trace(|x: Tensor| x, x()).map(drop)
        }),
        case("an input that is not there", || TraceOptions::new().dynamic(4, 0, Dim::new("batch")).trace(|x: Tensor| x, x()).map(drop)),
        case("one name for two sizes", || {
            let both = (x(), Tensor::from([1.0f32, 2.0]));
            let options = TraceOptions::new().dynamic(0, 0, Dim::new("n")).dynamic(1, 0, Dim::new("n"));
            options.trace(|(a, b): (Tensor, Tensor)| (a, b), both).map(drop)
        }),
        case("text that is not a graph", || {
            "graph g(%x: f32[2]) -> (f32[2]) {\n  return %y\n}".parse::<Graph>().map(drop).map_err(Error::from)
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
            insta::with_settings!({ filters => vec![(r"\.rs:\d+", ".rs:LINE"), (r"at \S*?(tests|crates)/", "at $1/")] }, {
                assert_snapshot!(concat!("errors_", stringify!($name)), texts(super::$name()));
            });
        }
    )* };
}

mod texts_of {
    use super::*;
    snapshot!(calls, builtins, traces);
}
