//! Compiled functions beside the eager ones.

mod common;
#[path = "compile/counts.rs"]
mod counts;
#[path = "compile/explain.rs"]
mod explain;
#[path = "compile/grad_mode.rs"]
mod grad_mode;
#[path = "compile/marks.rs"]
mod marks;
#[path = "compile/memory.rs"]
mod memory;
#[path = "compile/operators.rs"]
mod operators;
#[path = "compile/outputs.rs"]
mod outputs;
#[path = "compile/refusals.rs"]
mod refusals;
#[path = "compile/stances.rs"]
mod stances;
#[path = "compile/threads.rs"]
mod threads;

use common::{arange, seen};
use maquette_driver::{CompileOptions, Compiled, Stance, compile};
use maquette_ir::DType;
use maquette_ops::{Error, Result, Tensor, Tree, Value, tree};

/// An error with this file's lines as `LINE`, so that snapshots do not depend on them.
fn text(e: &Error) -> String {
    without_lines(&e.to_string())
}

/// A text without line numbers and without the folders of files.
fn without_lines(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(".rs:") {
        let (before, after) = rest.split_at(at + ".rs:".len());
        let file = before.rfind([' ', '\n', '`', '(']).map_or(0, |i| i + 1);
        let name = before[file..].rfind('/').map_or(file, |i| file + i + 1);
        out += &before[..file];
        out += &before[name..];
        out += "LINE";
        rest = after.trim_start_matches(|c: char| c.is_ascii_digit());
    }
    out + rest
}

fn tensors<T: Tree>(x: &T) -> Vec<Tensor> {
    let (_, leaves) = tree::flatten(x).unwrap();
    leaves.iter().flat_map(|leaf| leaf.value.tensors().cloned().collect::<Vec<_>>()).collect()
}

/// Calls a function eagerly and compiled, on inputs that `inputs` makes each time, and compares
/// outputs, inputs and what shares memory.
#[track_caller]
fn same<I: Tree, O: Tree, F: Fn(I) -> O>(
    eager: impl Fn(I) -> O,
    compiled: &Compiled<I, O, F>,
    inputs: impl Fn() -> I,
) {
    let (eager_in, compiled_in) = (inputs(), inputs());
    let given = [tensors(&eager_in), tensors(&compiled_in)];
    let expected = tensors(&eager(eager_in));
    let found = match compiled.call(compiled_in) {
        Ok(outputs) => tensors(&outputs),
        Err(e) => panic!("{e}"),
    };
    let [eager_in, compiled_in] = given;
    assert_eq!(seen(&[found, compiled_in].concat()), seen(&[expected, eager_in].concat()));
}

/// The number of compilations after each call.
#[track_caller]
fn counts<T, I: Tree, O: Tree, F: Fn(I) -> O>(
    f: &Compiled<I, O, F>,
    calls: impl IntoIterator<Item = T>,
    inputs: impl Fn(T) -> I,
) -> Vec<usize> {
    let mut counts = Vec::new();
    for call in calls {
        if let Err(e) = f.call(inputs(call)) {
            panic!("{e}\n{}", f.explain());
        }
        counts.push(f.compilations());
    }
    counts
}

/// `[n, 3]`, counting.
fn rows(n: i64) -> Tensor {
    arange(3 * n).reshape([n, 3])
}

fn err<T>(result: Result<T>) -> Error {
    result.err().unwrap_or_else(|| panic!("the call succeeded"))
}

#[test]
fn a_compiled_function_does_the_same() {
    let eager = |(x, w): (Tensor, Tensor)| x.linear(&w, None).relu() + 1.0;
    let f = compile(eager);
    for n in [2, 3, 1, 0, 9] {
        same(eager, &f, || (rows(n), rows(4)));
    }
    assert_eq!(f.compilations(), 2);
    assert_eq!(f.stance(), Stance::Compile);
}

#[test]
fn results_and_numbers_in_trees() {
    let eager = |(x, scale, keep): (Vec<Tensor>, f64, Option<Tensor>)| -> Result<Vec<Tensor>> {
        let mut out: Vec<Tensor> = x.iter().map(|t| t * scale).collect();
        out.extend(keep);
        Ok(out)
    };
    let f = CompileOptions::new().compile(eager);
    let one = || vec![arange(2)];
    assert_eq!(f.call((one(), 2.0, None)).unwrap().len(), 1);
    assert_eq!(f.call((one(), 2.0, Some(arange(3)))).unwrap().len(), 2);
    assert_eq!(f.call((one(), 3.0, None)).unwrap()[0].to_vec::<f32>().unwrap(), [-9.0, -6.0]);
    assert_eq!(f.call((vec![arange(2), arange(2)], 2.0, None)).unwrap().len(), 2);
    assert_eq!(f.compilations(), 4);
    f.call((one(), 3.0, None)).unwrap();
    assert_eq!(f.compilations(), 4);
}

#[test]
fn a_captured_tensor_is_used_by_reference() {
    let (scale, count) = (arange(3), Tensor::zeros([1], DType::F32));
    let f = compile(|x: Tensor| {
        count.add_(1.0);
        x * &scale
    });
    assert_eq!(f.call(rows(1)).unwrap().to_vec::<f32>().unwrap(), [9.0, 4.0, 1.0]);
    scale.add_(4.0);
    assert_eq!(f.call(rows(1)).unwrap().to_vec::<f32>().unwrap(), [-3.0, -4.0, -3.0]);
    assert_eq!(count.item::<f32>().unwrap(), 2.0);
    assert_eq!(f.compilations(), 1);
}

#[test]
fn many_sizes_are_one_program() {
    let f = compile(|x: Tensor| x.relu() * 2.0);
    for n in 0..2000 {
        f.call(arange(n)).unwrap();
    }
    let explained = f.explain();
    assert_eq!((explained.compilations, explained.programs.len()), (2, 2));
}

#[test]
fn values_are_not_kept_by_the_cache() {
    let f = compile(|x: Tensor| x.relu());
    let x = arange(4);
    f.call(x.clone()).unwrap();
    let storage = std::sync::Arc::downgrade(x.storage().unwrap());
    drop(x);
    assert!(storage.upgrade().is_none());
    assert!(matches!(Value::from(f.call(arange(4)).unwrap()), Value::Tensor(_)));
}
