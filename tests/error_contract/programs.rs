//! Traces, their graphs, and runs.

use super::*;
use maquette::library::{Facts, Kind, Library};
use maquette::rewrite::{Options, functionalize};
use std::sync::OnceLock;

fn symbolic() -> TraceOptions {
    TraceOptions::symbolic().names(["x"])
}

fn batch(dim: Dim) -> TraceOptions {
    TraceOptions::new().names(["x"]).dynamic(0, 0, dim)
}

/// The fake kernel promises one element too many.
#[custom_op("err::wrong_fake")]
fn wrong_fake(x: &Tensor) -> Result<Tensor> {
    copy(x)
}

#[register_fake(wrong_fake)]
fn wrong_fake_fake(_cx: &FakeCtx, x: &Tensor) -> Result<Tensor> {
    Ok(x.new_empty([x.size(0) + 1], x.dtype()))
}

#[custom_op("err::wrong_dtype")]
fn wrong_dtype(x: &Tensor) -> Result<Tensor> {
    copy(x)
}

#[register_fake(wrong_dtype)]
fn wrong_dtype_fake(_cx: &FakeCtx, x: &Tensor) -> Result<Tensor> {
    Ok(x.new_empty(x.sizes(), DType::F64))
}

/// An operator whose kernel calls the program that runs the kernel.
#[custom_op("err::again")]
fn again(x: &Tensor) -> Result<Tensor> {
    match CALLS.get() {
        Some(program) => program.call(x.clone_tensor()),
        None => copy(x),
    }
}

#[register_fake(again)]
fn again_fake(cx: &FakeCtx, x: &Tensor) -> Result<Tensor> {
    copy_fake(cx, x)
}

static CALLS: OnceLock<Program<Tensor, Tensor>> = OnceLock::new();

/// Counts its calls.
#[derive(Module)]
#[module(Tensor -> Tensor)]
struct Calls {
    #[buffer]
    count: Tensor,
}

impl Calls {
    fn forward(&self, x: Tensor) -> Tensor {
        self.count.add_(1.0);
        again(&x)
    }
}

/// An operator whose kernel reads a captured tensor.
#[custom_op("err::peek")]
fn peek(x: &Tensor) -> Result<Tensor> {
    copy(PEEKED.get().unwrap_or(x))
}

#[register_fake(peek)]
fn peek_fake(cx: &FakeCtx, x: &Tensor) -> Result<Tensor> {
    copy_fake(cx, x)
}

static PEEKED: OnceLock<Tensor> = OnceLock::new();

pub fn mutation() -> Vec<Row> {
    vec![
        without(
            "returns that alias, returned lists beside mutations",
            "graphs keep mutation as it is; nothing rewrites it yet",
        ),
        without("`None` in a mutated list", "allowed"),
        without(
            "a mutated view of a data-dependent size",
            "allowed: what must hold of the size is asserted when the graph runs",
        ),
        fails!("a view whose size is known only from the view", {
            let head = ops::custom_op("err::head")
                .schema("(Tensor(a) x) -> Tensor(a)")
                .kernel(|x: &Tensor| -> Result<Tensor> { Ok(x.slice(0, 0..2)) })
                .register()?;
            head.register_fake(|cx: &FakeCtx, x: &Tensor| -> Result<Tensor> {
                Ok(x.narrow(0, 0i64, cx.new_dynamic_size_in(0, 3)?))
            })?;
            let model =
                move |x: Tensor| -> Result<Tensor> { head.call(args![&x])?[0].tensor().cloned() };
            let traced = trace(model, x())?;
            functionalize(traced.graph(), &Facts, &Options::new()).map_err(|e| Error::other(e))
        }),
        fails!("a view operator that returns another view than its fake kernel promises", {
            let head = ops::custom_op("err::tail_for_head")
                .schema("(Tensor(a) x) -> Tensor(a)")
                .kernel(|x: &Tensor| -> Result<Tensor> { Ok(x.slice(0, 1..)) })
                .register()?;
            head.register_fake(|_: &FakeCtx, x: &Tensor| -> Result<Tensor> {
                Ok(x.slice(0, ..-1))
            })?;
            let model = move |x: Tensor| -> Result<Tensor> {
                head.call(args![&x])?[0].tensor()?.mul_(2.0);
                Ok(x)
            };
            maquette::compile(model).call(x())?
        }),
        fails!("a builtin view that a registration overrides, in a functional program", {
            let library = Library::new("aten", Kind::Impl)?;
            let whole = |x: &Tensor, _: i64, _: i64, _: i64| -> Result<Tensor> { Ok(x.clone()) };
            library.impl_("unfold", "cpu", whole)?;
            let model = |x: Tensor| x.unfold(0, 1, 1).sum();
            let traced = trace(model, x())?;
            functionalize(traced.graph(), &Facts, &Options::new()).map_err(|e| Error::other(e))
        }),
        fails!("a write that is refused, to a storage that stays as it was", {
            let cache = Tensor::zeros([2, 3], DType::F32);
            let refused = cache.select(0, 1).copy_(&Tensor::from([1.0f32, 2.0]));
            let row = cache.select(0, 1).copy_(&x());
            assert_eq!(row.to_vec::<f32>()?, [1.0, 2.0, 3.0]);
            refused
        }),
        fails!("a write that is refused, of another dtype", {
            let counts = Tensor::from([1i64, 2, 3]);
            let refused = counts.add_(x());
            assert_eq!(counts.add_(1).to_vec::<i64>()?, [2, 3, 4]);
            refused
        }),
        fails!("a refused write whose error a traced function handles", {
            let model = |x: Tensor| -> Tensor {
                let written = x.slice(0, ..2).copy_(&x);
                if written.ok().is_err() { x.relu() } else { x }
            };
            trace(model, x())
        }),
        without("`out=` into a strided tensor", "allowed"),
        without(
            "batching rules: missing, for mutating operators, of another number or shape",
            "there is no vmap yet",
        ),
    ]
}

pub fn rows() -> Vec<Row> {
    vec![
        fails!("a named size that the program fixes", {
            let model = |x: Tensor| -> Result<Tensor> {
                if x.size(0).eq(3).guard()? { Ok(x.relu()) } else { Ok(x) }
            };
            batch(Dim::new("batch")).trace(model, x())?.run(Tensor::from([1.0f32]))?
        }),
        fails!("a guard that cuts the declared range", {
            let model = |x: Tensor| -> Result<Tensor> {
                if x.size(0).ge(3).guard()? { Ok(x.relu()) } else { Ok(x) }
            };
            batch(Dim::new("batch")).trace(model, x())?.run(Tensor::from([1.0f32]))?
        }),
        fails!("a relation between two sizes", {
            let options = TraceOptions::new()
                .names(["x", "y"])
                .dynamic(0, 0, Dim::new("batch"))
                .dynamic(1, 0, Dim::new("c"));
            options
                .trace(|(x, y): (Tensor, Tensor)| x + y, (x(), x()))?
                .run((x(), Tensor::from([1.0f32, 2.0])))
        }),
        fails!("one name for two sizes", {
            let options =
                TraceOptions::new().dynamic(0, 0, Dim::new("n")).dynamic(1, 0, Dim::new("n"));
            options.trace(|(x, y): (Tensor, Tensor)| (x, y), (x(), Tensor::from([1.0f32])))
        }),
        without("a dynamic dimension of size 1", "allowed: 0 and 1 are sizes like others"),
        fails!(
            "a range without sizes",
            batch(Dim::new("batch").min(5).max(3)).trace(|x: Tensor| x, x())
        ),
        fails!("a name that is none", batch(Dim::new("1q")).trace(|x: Tensor| x, x())),
        fails!(
            "a sample outside the range",
            batch(Dim::new("batch").min(5).max(9)).trace(|x: Tensor| x, x())
        ),
        fails!(
            "a dimension that the input does not have",
            TraceOptions::new().dynamic(0, 3, Dim::new("batch")).trace(|x: Tensor| x, x())
        ),
        fails!(
            "an input that is not there",
            TraceOptions::new().dynamic(4, 0, Dim::new("batch")).trace(|x: Tensor| x, x())
        ),
        fails!(
            "another number of names than inputs",
            TraceOptions::new().names(["x", "y"]).trace(|x: Tensor| x, x())
        ),
        fails!(
            "a run of another size",
            trace(|x: Tensor| x + 1.0, x())?.run(Tensor::from([1.0f32]))
        ),
        fails!(
            "a run of a size outside the range",
            batch(Dim::new("batch").max(9))
                .trace(|x: Tensor| x + 1.0, x())?
                .run(Tensor::zeros([10], DType::F32))
        ),
        fails!(
            "a run of another rank",
            trace(|x: Tensor| x + 1.0, x())?.run(Tensor::zeros([3, 1], DType::F32))
        ),
        fails!(
            "a run of another dtype",
            trace(|x: Tensor| x + 1.0, x())?.run(Tensor::from([1i64, 2, 3]))
        ),
        fails!(
            "another number of inputs",
            trace(|xs: Vec<Tensor>| xs[0].relu(), vec![x()])?.run(vec![x(), x()])
        ),
        fails!("inputs nested in another way", {
            trace(|(x, y): (Tensor, Option<Tensor>)| (x.relu(), y), (x(), Some(x())))?
                .run((x(), None))
        }),
        fails!("a graph with an operator that is not registered", {
            let graph: Graph =
                "graph g(%x: f32[3]) -> (f32[3]) {\n  %y: f32[3] = mylib::nz(%x)\n  return %y\n}"
                    .parse()?;
            maquette::interp::Interpreter::new(&graph).run(&[x().into()])
        }),
        fails!("an operator that was redefined after the trace", {
            let define = |schema| ops::custom_op("err::redefined").schema(schema).replace();
            let op = define("(Tensor x) -> Tensor").kernel(copy).register()?;
            op.register_fake(copy_fake)?;
            let model =
                move |x: Tensor| -> Result<Tensor> { op.call(args![&x])?[0].tensor().cloned() };
            let traced = trace(model, x())?;
            define("(Tensor(a!) x) -> Tensor")
                .kernel(|x: &mut Tensor| copy(&x.fill_(0.0)))
                .register()?;
            traced.run(x())
        }),
        fails!(
            "text that is not a graph",
            "graph g(%x: f32[2]) -> (f32[2]) {\n  return %y\n}".parse::<Graph>()
        ),
        fails!("a branch on a value", {
            symbolic().trace(
                |x: Tensor| -> Result<Tensor> {
                    if x.sum().item::<f32>()? > 0.0 { Ok(x) } else { Ok(-x) }
                },
                x(),
            )
        }),
        fails!("a value that is asked for, with another one in case of an error", {
            symbolic().trace(|x: Tensor| &x + f64::from(x.sum().item::<f32>().unwrap_or(5.0)), x())
        }),
        fails!("a decision on a value, with an answer in case of an error", {
            let model = |x: Tensor| -> Tensor {
                let n = ops::call("aten::nonzero", args![&x]).map_or(1.into(), |out| {
                    out[0].tensor().map_or(1.into(), |found| found.size(0))
                });
                if n.gt(2).guard().unwrap_or(true) { x.relu() } else { x.neg() }
            };
            symbolic().trace(model, x())
        }),
        fails!("a decision on how often a captured tensor was written", {
            let w = x();
            trace(|x: Tensor| if w.version() == 0 { &x * &w } else { x.relu() }, x())
        }),
        fails!(
            "a decision on how often an input was written",
            trace(|x: Tensor| if x.version() == 0 { x.add_(1.0) } else { x.relu() }, x())
        ),
        fails!(
            "a decision on whether an input requires a gradient",
            trace(|x: Tensor| if x.requires_grad() { x.detach() } else { x.relu() }, x())
        ),
        fails!("a decision on where an input begins in its storage", {
            let model = |x: Tensor| -> Tensor {
                if x.storage_offset().as_i64() == Some(0) { x.relu() } else { x.neg() }
            };
            trace(model, x())
        }),
        fails!("a decision on the text of a captured tensor", {
            let w = x();
            let model = |x: Tensor| -> Tensor {
                let y = x.relu();
                if w.to_string().contains('2') { y.neg() } else { y }
            };
            trace(model, x())
        }),
        fails!("a captured tensor on another thread", {
            let w = x();
            let model = |x: Tensor| -> Tensor {
                let y = &x + &w;
                let elsewhere = std::thread::scope(|s| s.spawn(|| w.relu()).join());
                elsewhere.map_or(x, |z| &y + z.ok().cloned().unwrap_or_else(|_| y.clone()))
            };
            trace(model, x())
        }),
        fails!("more dimensions than a graph can hold", {
            trace(|x: Tensor| x.unsqueeze(0), Tensor::zeros([1; 64], DType::F32))
        }),
        fails!(
            "a fake kernel that is wrong, found by a run",
            symbolic().trace(|x: Tensor| wrong_fake(&x), x())?.run(x())
        ),
        fails!("the same, a dtype", symbolic().trace(|x: Tensor| wrong_dtype(&x), x())?.run(x())),
        fails!("a run that writes what somebody reads", {
            let (program, given) = (trace(|x: Tensor| x.add_(1.0).clone(), x())?, x());
            let _guard = given.read::<f32>()?;
            program.run(given.clone())
        }),
        fails!("a run that reads what somebody writes", {
            let (program, mut given) = (trace(|x: Tensor| x + 1.0, x())?, x());
            let same = given.clone();
            let _guard = given.write::<f32>()?;
            program.run(same)
        }),
        fails!("a kernel that reads what the run writes", {
            let program = |w: Tensor| {
                w.add_(1.0);
                peek(&Tensor::ones([3], DType::F32))
            };
            trace(program, x())?.run(PEEKED.get_or_init(x).clone())
        }),
        fails!("a kernel that calls the program that it is part of", {
            let calls = Calls { count: Tensor::from([0.0f32]) };
            CALLS.get_or_init(|| match ExportOptions::new().export(&calls, x()) {
                Ok(program) => program,
                Err(e) => panic!("{e}"),
            });
            CALLS.get().map(|program| program.call(x())).transpose()
        }),
        fails!("too many recompilations", {
            let options = CompileOptions::new().names(["x"]).static_(0, 0).recompile_limit(2);
            let f = options.compile(|x: Tensor| x + 1.0);
            f.call(Tensor::from([1.0f32]))?;
            f.call(Tensor::from([1.0f32, 2.0]))?;
            f.call(x())
        }),
        fails!("too many recompilations, of a float", {
            let options = CompileOptions::new().names(["x", "by"]).recompile_limit(2);
            let f = options.compile(|(x, by): (Tensor, f64)| x * by);
            f.call((x(), 0.5))?;
            f.call((x(), 0.25))?;
            f.call((x(), 0.125))
        }),
        fails!("too many recompilations, of an integer", {
            let options = CompileOptions::new().names(["x", "n"]).recompile_limit(2);
            let f = options.compile(|(x, n): (Tensor, i64)| x.slice(0, 0..n));
            f.call((x(), 1))?;
            f.call((x(), 2))?;
            f.call((x(), 3))
        }),
        fails!("too many recompilations, of a size that `guard_int` fixes", {
            let options = CompileOptions::new().names(["x"]).recompile_limit(2);
            let f = options.compile(|x: Tensor| -> Result<Tensor> {
                let n = x.size(0).guard_int()?;
                Ok(x * n as f64)
            });
            f.call(Tensor::from([1.0f32]))?;
            f.call(Tensor::from([1.0f32, 2.0]))?;
            f.call(x())
        }),
        fails!("a recompilation that is forbidden", {
            let options = CompileOptions::new().names(["x"]).stance(Stance::FailOnRecompile);
            let f = options.compile(|x: Tensor| x + 1.0);
            f.call(x())?;
            f.call(x().to_dtype(DType::F64))
        }),
        fails!("a size that is marked dynamic, and that the function requires", {
            let options = CompileOptions::new().names(["x"]).dynamic(0, 0, Dim::new("batch"));
            let f = options.compile(|x: Tensor| -> Result<Tensor> {
                let n = x.size(0).guard_int()?;
                Ok(x * n as f64)
            });
            f.call(x())
        }),
        fails!("an integer that overflows in a compiled function", {
            let options = CompileOptions::symbolic().names(["x", "n"]);
            let f = options.compile(|(x, n): (Tensor, SymInt)| x.slice(0, ..(n * 4).min(2)));
            f.call((x(), 1.into()))?;
            f.call((x(), (i64::MAX / 4 + 1).into()))
        }),
        fails!("an integer that overflows in an exported graph", {
            let f = |(x, n): (Tensor, SymInt)| x.slice(0, ..(n * 4).min(2));
            let traced = TraceOptions::symbolic().names(["x", "n"]).trace(f, (x(), 1.into()))?;
            traced.run((x(), (i64::MAX / 4 + 1).into()))
        }),
        fails!("a mark on a size that is too large for a symbol", {
            let f = CompileOptions::new().names(["x"]).unbacked(0, 0).compile(|x: Tensor| x + 1.0);
            f.call(Tensor::ones([1], DType::F32).expand([1i64 << 40]))
        }),
        fails!("a branch on a size that is marked unbacked", {
            let options = CompileOptions::new().names(["x"]).unbacked(0, 0);
            let f = options.compile(|x: Tensor| -> Result<Tensor> {
                Ok(if x.size(0).gt(2).guard()? { x + 1.0 } else { x })
            });
            f.call(x())
        }),
    ]
}
