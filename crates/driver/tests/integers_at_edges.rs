//! The arithmetic of a program on integers and sizes: what overflows eagerly, or divides by zero,
//! is an error of every executor.

use maquette_driver::{CompileOptions, ExportOptions};
use maquette_ir::DType;
use maquette_ir::sym::SymInt;
use maquette_ops::module::{Module, Slot};
use maquette_ops::{FakeCtx, Result, Tensor, args, custom_op};
use maquette_trace::TraceOptions;

const EDGES: [i64; 12] = [
    i64::MIN,
    i64::MIN + 1,
    i64::MIN / 4 - 1,
    -3,
    -1,
    0,
    1,
    2,
    3_037_000_500,
    i64::MAX / 4,
    i64::MAX / 4 + 1,
    i64::MAX,
];

type Program = fn(SymInt, SymInt, SymInt) -> SymInt;
type Inputs = (Tensor, SymInt, SymInt);

/// Expressions of two integers and of a size.
#[expect(
    clippy::eq_op,
    clippy::erasing_op,
    clippy::modulo_one,
    reason = "a canonical form simplifies what these expressions compute"
)]
const PROGRAMS: [(&str, Program); 24] = [
    ("n * 4", |n, _, _| n * 4),
    ("n * 4 // 4", |n, _, _| (n * 4).floor_div(4)),
    ("n + 1", |n, _, _| n + 1),
    ("n + 1 - 1", |n, _, _| n + 1 - 1),
    ("n - 1", |n, _, _| n - 1),
    ("-n", |n, _, _| -n),
    ("n - m", |n, m, _| n - m),
    ("n + m - m", |n, m, _| n + m - m),
    ("n * m", |n, m, _| n * m),
    ("n * n - n * n", |n, _, _| n * n - n * n),
    ("n * 3 % 3", |n, _, _| n * 3 % 3),
    ("min(n * 2, 3)", |n, _, _| (n * 2).min(3)),
    ("max(n * 2, 3)", |n, _, _| (n * 2).max(3)),
    ("min(n, m) * 2", |n, m, _| n.min(m) * 2),
    ("n // m", |n, m, _| n.floor_div(m)),
    ("n // m * 0", |n, m, _| n.floor_div(m) * 0),
    ("n % m * 0", |n, m, _| n % m * 0),
    ("n // -1", |n, _, _| n.floor_div(-1)),
    ("n % -1", |n, _, _| n % -1),
    ("(n + m) // 2", |n, m, _| (n + m).floor_div(2)),
    ("n * 2 - n", |n, _, _| n * 2 - n),
    ("n * size", |n, _, size| n * size),
    ("size + n", |n, _, size| size + n),
    ("min(size * n, size)", |n, _, size| (size * n).min(size)),
];

fn x() -> Tensor {
    Tensor::from([1.0f32, 2.0, 3.0])
}

/// The values of a slice, or the text of the error.
fn outcome(y: Result<Tensor>) -> Result<Vec<f32>, String> {
    let values = y.and_then(|y| y.ok()?.to_vec::<f32>());
    values.map_err(|e| e.kind().to_string())
}

fn pairs() -> impl Iterator<Item = (i64, i64)> {
    EDGES.into_iter().flat_map(|n| EDGES.into_iter().map(move |m| (n, m)))
}

#[test]
fn compiled_functions_refuse_what_eager_calls_refuse() {
    for (name, program) in PROGRAMS {
        let f = move |(x, n, m): Inputs| x.slice(0, ..program(n, m, x.size(0)));
        let compiled = CompileOptions::symbolic().recompile_limit(1000).compile(f);
        compiled.call((x(), 1.into(), 1.into())).unwrap();
        for (n, m) in pairs() {
            let eager = outcome(Ok(f((x(), n.into(), m.into()))));
            let found = outcome(compiled.call((x(), n.into(), m.into())));
            assert_eq!(found, eager, "{name} of n = {n}, m = {m}:\n{}", compiled.explain());
        }
    }
}

struct Slice(Program);

impl Module for Slice {
    type In = Inputs;
    type Out = Tensor;

    fn forward(&self, (x, n, m): Inputs) -> Tensor {
        x.slice(0, ..self.0(n, m, x.size(0)))
    }

    fn visit(&self, _: &mut dyn FnMut(&str, Slot, &Tensor)) {}
}

#[test]
fn traces_and_exported_programs_refuse_what_eager_calls_refuse() {
    for (name, program) in PROGRAMS {
        let sample = || (x(), SymInt::from(1), SymInt::from(1));
        let f = move |(x, n, m): Inputs| x.slice(0, ..program(n, m, x.size(0)));
        let traced = TraceOptions::symbolic().trace(f, sample()).unwrap();
        let exported = ExportOptions::symbolic().export(&Slice(program), sample()).unwrap();
        let planned = exported.compile(maquette_ir::Device::Cpu).unwrap();
        let text = traced.graph().to_string();
        assert_eq!(text.parse::<maquette_ir::graph::Graph>().unwrap().to_string(), text);
        for (n, m) in pairs() {
            let inputs = || (x(), n.into(), m.into());
            let eager = outcome(Ok(f(inputs())));
            let runs = [traced.run(inputs()), exported.call(inputs()), planned.call(inputs())];
            for run in runs.map(outcome) {
                // A trace may have taken another branch, such as that for a negative position.
                let branch = "The traced program branched on it";
                let agrees = match &run {
                    Ok(_) => run == eager,
                    Err(e) => eager.is_err() || e.contains(branch),
                };
                assert!(agrees, "{name} of n = {n}, m = {m}: {eager:?}, {run:?}\n{text}");
            }
        }
    }
}

#[test]
fn an_overflow_names_the_line() {
    let f = |(x, n): (Tensor, SymInt)| x.slice(0, ..n * 4);
    let compiled = CompileOptions::new().names(["x", "n"]).compile(f);
    for n in [1, 2] {
        compiled.call((x(), n.into())).unwrap();
    }
    let e = compiled.call((x(), i64::MAX.into())).unwrap_err().to_string();
    assert!(e.starts_with("`9223372036854775807 * 4` overflows a 64-bit integer"), "{e}");
    assert!(e.contains("integers_at_edges.rs:"), "{e}");
    let explained = compiled.explain().to_string();
    assert!(explained.contains("requires: `s0 <= 2305843009213693951`, at "), "{explained}");
    assert_eq!(explained.matches("9223372036854775808").count(), 0, "{explained}");
    let traced = TraceOptions::symbolic().trace(f, (x(), 1.into())).unwrap();
    let e = traced.run((x(), i64::MAX.into())).unwrap_err().to_string();
    assert!(e.contains("integers_at_edges.rs:"), "{e}");
}

#[test]
fn an_integer_of_data_that_overflows_is_an_assertion() {
    let first = custom_op("edges::first")
        .schema("(Tensor x) -> SymInt")
        .kernel(|x: &Tensor| -> Result<i64> { x.item::<i64>() })
        .register()
        .unwrap();
    first
        .register_fake(|cx: &FakeCtx, _x: &Tensor| -> Result<SymInt> { cx.new_dynamic_int() })
        .unwrap();
    let f = move |(x, of): (Tensor, Tensor)| -> Result<Tensor> {
        let n = first.call(args![&of])?[0].int()?;
        x.slice(0, ..(n * 4).min(2)).ok().cloned()
    };
    let of = |n: i64| Tensor::from([n]);
    let compiled = CompileOptions::symbolic().compile(f);
    for n in [1, 2, 0, i64::MAX / 4, i64::MAX / 4 + 1, i64::MIN] {
        let (eager, found) = (outcome(f((x(), of(n)))), outcome(compiled.call((x(), of(n)))));
        match eager {
            Ok(_) => assert_eq!(found, eager, "{n}"),
            Err(_) => {
                let e = found.unwrap_err();
                assert!(e.contains("the arithmetic of the program overflows"), "{n}: {e}");
            }
        }
    }
    let e = compiled.call((x(), of(i64::MAX))).unwrap_err().to_string();
    assert!(e.contains("integers_at_edges.rs:"), "{e}");
}

#[test]
fn a_huge_size_is_no_symbol() {
    let f = |x: Tensor| x.slice(0, ..x.size(0) * 4).slice(0, 0..2).clone();
    let compiled = CompileOptions::new().compile(f);
    let huge = |n: i64| Tensor::ones([1], DType::F32).expand([n]);
    for n in [2, 3, 4, i64::MAX / 4, i64::MAX / 4 + 1, 5] {
        let eager = outcome(Ok(f(huge(n))));
        assert_eq!(outcome(compiled.call(huge(n))), eager, "{n}: {}", compiled.explain());
    }
    let marked = CompileOptions::new().unbacked(0, 0).compile(f);
    let e = marked.call(huge(1 << 40)).unwrap_err().to_string();
    assert!(e.contains("is too large for a symbol, which is at most 2147483647"), "{e}");
}

#[test]
fn an_inclusive_range_whose_last_position_is_a_symbol() {
    let f = |(x, n): (Tensor, SymInt)| x.slice(0, SymInt::from(0)..=n);
    let compiled = CompileOptions::symbolic().compile(f);
    for n in [1, 0, -1, -2, 2, -1] {
        let eager = outcome(Ok(f((x(), n.into()))));
        assert_eq!(outcome(compiled.call((x(), n.into()))), eager, "{n}");
    }
}
