//! Every operator that can write its result where a plan says, on every call that PyTorch recorded:
//! into memory like its own, behind a margin, and into memory with gaps and another order of
//! dimensions. The bits are those of the call that makes its own memory.

use maquette_conform::{File, operator_files};
use maquette_ir::graph::{MemoryFacts, OpFacts, Placement};
use maquette_ir::{DType, Loc};
use maquette_ops::library::Facts;
use maquette_ops::random::{Philox, apart};
use maquette_ops::{Args, Op, Tensor, Value};
use std::path::Path;

fn bits(t: &Tensor) -> Vec<u64> {
    t.to_dtype(DType::F64)
        .contiguous()
        .reshape([-1i64])
        .to_vec::<f64>()
        .unwrap()
        .into_iter()
        .map(f64::to_bits)
        .collect()
}

/// A tensor like this one, of the same strides, behind a margin.
fn behind_a_margin(like: &Tensor) -> Tensor {
    let (sizes, strides) = (
        like.sizes_i64().unwrap(),
        like.strides().iter().map(|s| s.as_i64().unwrap()).collect::<Vec<i64>>(),
    );
    let extent = 4 + sizes.iter().zip(&strides).map(|(n, s)| (n - 1).max(0) * s).sum::<i64>();
    Tensor::zeros([extent], like.dtype())
        .as_strided(sizes, strides, Some(3.into()))
        .ok()
        .unwrap()
        .clone()
}

/// A tensor like this one, column-major, every second element of its memory.
fn gapped(like: &Tensor) -> Tensor {
    let sizes = like.sizes_i64().unwrap();
    let mut next = 2;
    let strides: Vec<i64> = sizes
        .iter()
        .map(|n| {
            let stride = next;
            next *= (*n).max(1);
            stride
        })
        .collect();
    let flat = Tensor::zeros([next], like.dtype());
    flat.as_strided(sizes, strides, Some(1.into())).ok().unwrap().clone()
}

#[test]
fn results_are_the_same_wherever_they_are_written() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/aten");
    let (mut calls, mut direct, mut wrong) = (0, 0, Vec::new());
    for path in operator_files(&folder, None).unwrap() {
        let file = File::read(&path).unwrap();
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let Ok(op) = Op::find(&file.name) else { continue };
        // uninitialised memory differs from call to call
        if Facts.placement(op.name()) == Placement::Allocates || name.contains("empty") {
            continue;
        }
        for (i, args) in file.samples(op).enumerate() {
            let seed = || Philox { seed: 7, offset: 0 };
            let Ok(made) = apart(&mut seed(), || op.call(args.clone())) else { continue };
            let [Value::Tensor(expected)] = made.as_slice() else { continue };
            let own = Tensor::empty_strided(expected.sizes(), expected.strides(), expected.dtype());
            for out in [own, behind_a_margin(expected), gapped(expected)] {
                let into = || op.call_into(args.clone(), &out, Loc::caller());
                match apart(&mut seed(), into) {
                    Ok(there) => direct += usize::from(there),
                    Err(e) => wrong.push(format!("{name}, call {i}: {e}")),
                }
                if bits(&out) != bits(expected) {
                    wrong.push(format!(
                        "{name}, call {i}: other bits with strides {:?}",
                        out.strides()
                    ));
                }
                calls += 1;
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {calls}:\n{}", wrong.len(), wrong.join("\n"));
    assert!(calls > 1000 && direct * 2 > calls, "{direct} of {calls} were written in place");
}

/// The same elements, the `inner`th dimension innermost.
fn turned(v: &Value, inner: i64) -> Value {
    match v {
        Value::Tensor(t) if t.dim() as i64 > inner.max(1) => {
            Value::Tensor(t.movedim(inner, -1i64).contiguous().movedim(-1i64, inner))
        }
        Value::List(l) => Value::List(l.iter().map(|v| turned(v, inner)).collect()),
        other => other.clone(),
    }
}

/// The same elements, column-major with gaps.
fn with_gaps(v: &Value) -> Value {
    match v {
        Value::Tensor(t) if t.dim() > 0 => {
            let out = gapped(t);
            out.copy_(t).ok().unwrap();
            Value::Tensor(out)
        }
        Value::List(l) => Value::List(l.iter().map(with_gaps).collect()),
        other => other.clone(),
    }
}

/// The same elements in memory of the same strides, behind a margin.
fn moved(v: &Value) -> Value {
    match v {
        Value::Tensor(t) => {
            let out = behind_a_margin(t);
            out.copy_(t).ok().unwrap();
            Value::Tensor(out)
        }
        Value::List(l) => Value::List(l.iter().map(moved).collect()),
        other => other.clone(),
    }
}

/// Strides along the dimensions in which they can be seen.
fn steps(t: &Tensor) -> Vec<i64> {
    let sizes = t.sizes_i64().unwrap();
    let seen = |n: &i64| *n != 1 && !sizes.contains(&0);
    sizes
        .iter()
        .zip(t.strides())
        .filter(|(n, _)| seen(n))
        .map(|(_, s)| s.as_i64().unwrap())
        .collect()
}

/// Plans rely on it: where operands lie otherwise than in the eager program, what an operator
/// returns does not.
#[test]
fn results_have_strides_of_operands_only_if_declared() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/aten");
    let (mut calls, mut wrong) = (0, Vec::new());
    for path in operator_files(&folder, None).unwrap() {
        let file = File::read(&path).unwrap();
        let Ok(op) = Op::find(&file.name) else { continue };
        let name = op.name();
        let said = Facts.observes_strides(name)
            || matches!(Facts.placement(name), Placement::Elementwise | Placement::Anywhere);
        if said
            || Facts.functional_variant(name).is_some()
            || (0..8).any(|result| op.return_alias(result).is_some())
        {
            continue;
        }
        for (i, args) in file.samples(op).enumerate() {
            let Ok(plain) = op.call(args.clone()) else { continue };
            // the second innermost is what channels last is
            let layouts: [&dyn Fn(&Value) -> Value; 5] =
                [&|v| turned(v, 0), &|v| turned(v, 1), &|v| turned(v, 2), &with_gaps, &moved];
            for layout in layouts {
                let Ok(other) = op.call(args.iter().map(layout).collect::<Args>()) else {
                    continue;
                };
                let strides = |results: &[Value]| -> Vec<Vec<i64>> {
                    results.iter().flat_map(Value::tensors).map(steps).collect()
                };
                if strides(&plain) != strides(&other) {
                    wrong.push(format!(
                        "{name}, call {i}: {:?} and {:?}",
                        strides(&plain),
                        strides(&other)
                    ));
                }
                calls += 1;
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {calls}:\n{}", wrong.len(), wrong.join("\n"));
    assert!(calls > 1000, "{calls}");
}
