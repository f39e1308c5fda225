//! Calls with an argument that is wrong, or rare: no builtin operator panics, and where a kernel
//! gives something, the fake kernel promises its metadata. They are the calls that PyTorch
//! recorded, or calls made up where there are none, each with one or two arguments changed.

use maquette_fuzz::oracle::Rng;
use maquette_fuzz::random_calls::{Changes, MANY, Recipe, Recorded};
use maquette_invoke::metadata_check::{ExpectedMeta, NumberCheck, check_metadata};
use maquette_ir::sym::{Scope, SymInt};
use maquette_ir::{DType, Loc};
use maquette_ops::library::all;
use maquette_ops::random::{Philox, apart};
use maquette_ops::{Args, Error, Meta, Op, Result, Tensor, Value, args, fake};
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

/// Changed calls of each operator, if the environment's `CALLS` says no other number.
const CALLS: u64 = 60;

/// What a call gave, or its error; else the panic.
fn outcome<T>(f: impl FnOnce() -> Result<T>) -> std::result::Result<Result<T>, String> {
    catch_unwind(AssertUnwindSafe(f)).map_err(|panic| {
        let text = panic
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| panic.downcast_ref::<&str>().copied());
        text.unwrap_or("without a message").to_owned()
    })
}

fn tensors(v: &[Value]) -> Vec<&Tensor> {
    v.iter().flat_map(Value::tensors).collect()
}

/// Whether what is promised is so, as far as it is known and can be observed.
fn holds(promised: &Meta, real: &Tensor) -> bool {
    let check = |promised: SymInt, found: Option<i64>| {
        let is = |real| {
            promised
                .as_i64()
                .map_or(promised.poisoned().is_none() && promised.range().contains(real), |p| {
                    p == real
                })
        };
        Ok(if found.is_some_and(is) {
            NumberCheck::Holds
        } else {
            NumberCheck::Differs(promised.to_string())
        })
    };
    check_metadata(&ExpectedMeta::of(promised), real, |_, _| Ok(false), check)
        .is_ok_and(|(mismatch, _)| mismatch.is_none())
}

/// What is wrong with how a call goes.
fn fault(op: Op, args: &Args) -> Option<String> {
    let mut without_data = |t: &Tensor| Ok::<_, Error>(Tensor::fake_of(t.meta().clone()));
    let fakes =
        args.iter().map(|v| v.map_tensors(&mut without_data)).collect::<Result<Args>>().ok()?;
    let promised = match outcome(|| fake::call(op, &fakes, Some(&Scope::new()), Loc::caller())) {
        Ok(promised) => promised,
        Err(panic) => return Some(format!("the fake kernel panicked: {panic}")),
    };
    let real = match outcome(|| apart(&mut Philox { seed: 7, offset: 0 }, || op.call(args.clone())))
    {
        Ok(real) => real.ok()?,
        Err(panic) => return Some(format!("the kernel panicked: {panic}")),
    };
    let real = tensors(&real);
    let promised = match &promised {
        Ok(promised) => tensors(promised),
        // a number that data decide is one that a trace is right to refuse
        Err(_) if real.is_empty() => return None,
        Err(e) => return Some(format!("the fake kernel refuses what the kernel does: {e}")),
    };
    let same =
        promised.len() == real.len() && promised.iter().zip(&real).all(|(p, r)| holds(p.meta(), r));
    let list = |tensors: &[&Tensor]| {
        tensors.iter().map(|t| t.meta().to_string()).collect::<Vec<_>>().join(", ")
    };
    (!same).then(|| {
        format!(
            "the fake kernel promises {}, but the kernel returned {}",
            list(&promised),
            list(&real)
        )
    })
}

fn text(args: &[Value]) -> String {
    let one = |v: &Value| match v {
        Value::Tensor(t) => t.meta().to_string(),
        Value::List(l) => format!("[{}]", text(l)),
        other => format!("{other:?}"),
    };
    args.iter().map(one).collect::<Vec<_>>().join(", ")
}

fn from_environment(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|n| n.parse().ok()).unwrap_or(otherwise)
}

#[test]
fn no_call_panics_and_fakes_match_kernels() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/aten");
    let (recorded, mut faults, mut made) = (Recorded::read(&folder).unwrap(), BTreeSet::new(), 0);
    let (calls, seed) = (from_environment("CALLS", CALLS), from_environment("SEED", 0));
    // polynomials take as many steps as their degree, which a changed call makes 2^62
    for op in all().into_iter().filter(|op| op.is_builtin() && !op.name().contains("_polynomial_"))
    {
        let (name, schema) = (op.name(), op.schema().unwrap());
        let file = recorded.of(name).find(|file| file.samples(op).next().is_some());
        let count = file.map_or_else(|| Recipe::all().count(), |file| file.samples(op).count());
        for i in 0..calls {
            let mut choices = Changes(Rng::new(
                name.bytes().fold(seed, |h, b| h.wrapping_mul(31).wrapping_add(b.into())),
                i,
            ));
            let at = choices.0.below(count);
            let call = match file {
                Some(file) => file.samples(op).nth(at),
                None => Recipe::all().nth(at).and_then(|recipe| recipe.call(op, &schema)),
            };
            let Some(args) = call.map(|call| choices.change(call)) else { continue };
            made += 1;
            faults.extend(fault(op, &args).map(|what| format!("{name}({}): {what}", text(&args))));
        }
    }
    assert!(made > calls * 800, "{made} calls were made");
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), Vec::from_iter(faults).join("\n"));
}

/// An expanded tensor may have more elements than any memory: a kernel that wants them one after
/// another says so.
#[test]
fn more_elements_than_memory_are_an_error() {
    let wide = |lead: &[i64], dtype| Tensor::ones([1i64], dtype).expand([lead, &[MANY]].concat());
    let x = wide(&[], DType::F32);
    let row = wide(&[1], DType::F16);
    let channels = || wide(&[1], DType::F32).unsqueeze(2);
    let indices =
        Value::List([Value::Tensor(Tensor::zeros([1i64], DType::I64).expand([MANY]))].into());
    let calls: [(&str, Args); 11] = [
        ("aten::topk", args![&x, 1, 0, true, true]),
        ("aten::median", args![&x]),
        ("aten::kthvalue", args![&x, 1, 0, false]),
        ("aten::histc", args![&x, 4, 0, 1]),
        ("aten::unique_dim", args![&x, 0, true, false, false]),
        ("aten::bincount", args![wide(&[], DType::I64), Value::None, 0]),
        ("aten::mm", args![&row, row.transpose(0, 1)]),
        (
            "aten::index_put",
            args![
                Tensor::ones([1i64], DType::F32),
                indices,
                Tensor::ones([1i64], DType::F32),
                false
            ],
        ),
        (
            "aten::as_strided_scatter",
            args![Tensor::ones([1i64], DType::F32), &x, [MANY], [0i64], Value::None],
        ),
        (
            "aten::histogramdd.int_bins",
            args![wide(&[2], DType::F32), 1, Value::None, Value::None, false],
        ),
        ("aten::conv1d", args![channels(), channels()]),
    ];
    for (name, args) in calls {
        let found = outcome(|| Op::find(name).unwrap().call(args));
        let memory = |e: &Error| {
            ["cannot allocate", "no memory"].iter().any(|text| e.to_string().contains(text))
        };
        assert!(matches!(&found, Ok(Err(e)) if memory(e)), "{name} gave {found:?}");
    }
}

/// A tensor without elements may have a size beyond any memory: where the results have no elements
/// either, there is nothing to do.
#[test]
fn many_empty_rows_take_no_time() {
    let x = |sizes: &[i64]| Tensor::zeros(sizes, DType::F32);
    let (wide, tall, batch) = (x(&[MANY, 0]), x(&[0, MANY]), x(&[MANY, 0, 2]));
    let calls: [(&str, Args); 13] = [
        ("aten::diff", args![&wide, MANY, 0, Value::None, Value::None]),
        ("aten::sort", args![&wide, 1, false]),
        ("aten::topk", args![&wide, 0, 1, true, true]),
        ("aten::cumsum", args![&wide, 1, Value::None]),
        ("aten::cummax", args![&wide, 1]),
        ("aten::renorm", args![&wide, 2.0, 0, 1.0]),
        ("aten::unique_dim", args![&wide, 1, true, true, true]),
        ("aten::_softmax", args![&wide, 0, false]),
        ("aten::linalg_qr", args![&wide, "reduced"]),
        ("aten::mm", args![&wide, x(&[0, 0])]),
        // these hold something for each matrix, or column
        ("aten::geqrf", args![&batch]),
        ("aten::triangular_solve", args![&batch, x(&[MANY, 0, 0]), true, false, false]),
        ("aten::cov", args![&tall, 1, Value::None, Value::None]),
    ];
    for (name, args) in calls {
        let found = outcome(|| Op::find(name).unwrap().call(args));
        let refused = matches!(name, "aten::geqrf" | "aten::triangular_solve" | "aten::cov");
        assert!(
            matches!(&found, Ok(result) if result.is_err() == refused),
            "{name} gave {found:?}"
        );
    }
}
