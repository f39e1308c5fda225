//! Outputs that the caller gives: the values of a run, in the caller's memory.

mod common;

use common::{fused, planned};
use maquette_aten as _;
use maquette_invoke::SourceInfo;
use maquette_ir::DType;
use maquette_ir::graph::Graph;
use maquette_ir::program_form::ProgramForm;
use maquette_ops::library::Facts;
use maquette_ops::{Tensor, Value};
use maquette_rewrite::{Options, functionalize};
use maquette_runtime::Executable;

/// The program in planned memory, in new memory, and as it is written.
fn executables(text: &str) -> [Executable; 3] {
    let graph: Graph = text.parse().unwrap();
    let functional = functionalize(&graph, &Facts, &Options::new()).unwrap();
    let [unplanned, original] = [ProgramForm::Functional(functional), ProgramForm::Original(graph)]
        .map(|program| Executable::new(program).unwrap());
    [fused(&planned(text)), unplanned, original]
}

fn arange(sizes: &[i64]) -> Tensor {
    let count: i64 = sizes.iter().product();
    let values: Vec<f32> = (0..count).map(|i| i as f32 * 0.5 - 2.0).collect();
    Tensor::from_vec(values, sizes.to_vec())
}

fn vec(t: &Tensor) -> Vec<f32> {
    t.to_vec().unwrap()
}

/// Makes a tensor of given sizes.
type Layout<'a> = &'a dyn Fn(&Vec<i64>) -> Tensor;

/// Runs a program into new tensors of each way to lay out two dimensions, and compares with `run`.
#[track_caller]
fn check(text: &str, inputs: &dyn Fn() -> Vec<Tensor>) {
    let source_info = SourceInfo::of_caller();
    let values = |t: &[Tensor]| t.iter().cloned().map(Value::Tensor).collect::<Vec<Value>>();
    for executable in executables(text) {
        let given = inputs();
        let results = executable.run(&values(&given), &source_info).unwrap();
        let results: Vec<Tensor> = results.iter().flat_map(Value::tensors).cloned().collect();
        let sizes: Vec<Vec<i64>> = results.iter().map(|t| t.sizes_i64().unwrap()).collect();
        let row_major = |n: &Vec<i64>| Tensor::zeros(n.clone(), DType::F32);
        let transposed = |n: &Vec<i64>| match &n[..] {
            [a, b] => row_major(&vec![*b, *a]).t(),
            _ => row_major(n),
        };
        let part = |n: &Vec<i64>| {
            let larger: Vec<i64> = n.iter().map(|n| n + 3).collect();
            let whole = row_major(&larger);
            n.iter().enumerate().fold(whole, |t, (d, n)| t.slice(d as i64, 1..n + 1))
        };
        let layouts: [Layout<'_>; 3] = [&row_major, &transposed, &part];
        for (i, layout) in layouts.into_iter().enumerate() {
            let outputs: Vec<Tensor> = sizes.iter().map(layout).collect();
            for _ in 0..2 {
                let again = inputs();
                executable.run_into(&values(&again), &outputs, &source_info).unwrap();
                for (expected, found) in results.iter().zip(&outputs) {
                    assert_eq!(vec(expected), vec(found), "layout {i}");
                }
                for (expected, found) in given.iter().zip(&again) {
                    assert_eq!(vec(expected), vec(found), "written inputs");
                }
            }
        }
    }
}

#[test]
fn results_of_their_own() {
    let text = "graph g(%x: f32[3, 4], %y: f32[4]) -> (f32[3, 4], f32[3]) {
        %a: f32[3, 4] = aten::add.Tensor(%x, %y)
        %b: f32[3, 4] = aten::exp(%a)
        %s: f32[3] = aten::sum.dim_IntList(%b, [1])
        return %b, %s
    }";
    check(text, &|| vec![arange(&[3, 4]), arange(&[4])]);
}

#[test]
fn views_duplicates_and_written_inputs() {
    let text = "graph g(%x: f32[3, 4], %y: f32[4]) -> \
        (f32[4, 3] strides [1, 4], f32[3, 4], f32[3, 4], f32[2, 4] offset 4) {
        %a: f32[3, 4] = aten::add_.Tensor(%x, %y)
        %t: f32[4, 3] strides [1, 4] = aten::t(%x)
        %b: f32[3, 4] = aten::exp(%a)
        %c: f32[2, 4] offset 4 = aten::slice.Tensor(%b, 0, 1, 3)
        return %t, %b, %b, %c
    }";
    check(text, &|| vec![arange(&[3, 4]), arange(&[4])]);
}

#[test]
fn results_without_elements() {
    let text = "graph g(%x: f32[0, 4], %y: f32[4]) -> (f32[0, 4], f32[4]) {
        %a: f32[0, 4] = aten::add.Tensor(%x, %y)
        %b: f32[4] = aten::sum.dim_IntList(%a, [0])
        return %a, %b
    }";
    check(text, &|| vec![arange(&[0, 4]), arange(&[4])]);
}

const ADDED: &str = "graph g(%x: f32[3, 4], %y: f32[4]) -> (f32[3, 4], f32[3, 4]) {
    %z: f32[4] = aten::mul_.Scalar(%y, 2)
    %a: f32[3, 4] = aten::add.Tensor(%x, %y)
    %b: f32[3, 4] = aten::exp(%a)
    return %a, %b
}";

/// What is wrong with each pair of outputs. A refused call writes nothing.
#[test]
fn refused_outputs() {
    let zeros = |sizes: &[i64]| Tensor::zeros(sizes.to_vec(), DType::F32);
    let (x, y) = (arange(&[6, 4]), arange(&[4]));
    let rows = x.slice(0, 0..3);
    let inputs = [Value::Tensor(rows.clone()), Value::Tensor(y.clone())];
    let good = || zeros(&[3, 4]);
    let both = zeros(&[4, 4]);
    let cases: Vec<(&str, Vec<Tensor>)> = vec![
        ("a missing one", vec![good()]),
        ("another dtype", vec![good(), Tensor::zeros([3, 4], DType::F64)]),
        ("another rank", vec![good(), zeros(&[12])]),
        ("another size", vec![zeros(&[3, 5]), good()]),
        ("one element for a row", vec![zeros(&[3, 1]).expand([3, 4]), good()]),
        ("one tensor twice", vec![both.slice(0, 0..3), both.slice(0, 1..4)]),
        ("an input", vec![good(), rows.clone()]),
        ("rows of an input", vec![x.slice(0, 2..5), good()]),
        ("no contents", vec![good(), Tensor::fake([3, 4], DType::F32)]),
    ];
    let mut texts = String::new();
    for (number, executable) in executables(ADDED).into_iter().enumerate() {
        for (name, outputs) in &cases {
            let source_info = SourceInfo::of_caller();
            let e = executable.run_into(&inputs, outputs, &source_info).unwrap_err().to_string();
            let e = e.lines().next().unwrap().split(" at crates").next().unwrap().to_owned();
            if number == 0 {
                texts += &format!("{name}: {e}\n");
            } else {
                assert!(texts.contains(&format!("{name}: {e}\n")), "{name}: {e}\n{texts}");
            }
            assert_eq!(vec(&y), vec(&arange(&[4])), "{name}: the input was written");
            let untouched = outputs.iter().filter(|t| !t.is_fake() && !t.shares_storage(&x));
            for t in untouched.filter(|t| t.dtype() == DType::F32) {
                assert!(vec(t).iter().all(|v| *v == 0.0), "{name}: an output was written");
            }
        }
        // beside an input, in one storage
        let (half, source_info) = (x.slice(0, 3..6), SourceInfo::of_caller());
        executable.run_into(&inputs, &[half.clone(), good()], &source_info).unwrap();
        let expected = &rows + &y;
        assert_eq!(vec(&half), vec(&expected));
        y.mul_(0.5);
        let guard = half.read::<f32>().unwrap();
        let outputs = [half.clone(), good()];
        let e = executable.run_into(&inputs, &outputs, &source_info).unwrap_err();
        assert!(e.to_string().contains("the guard taken at"), "{e}");
        assert_eq!(vec(&y), vec(&arange(&[4])));
        drop(guard);
    }
    insta::assert_snapshot!(texts);
}

#[test]
fn sizes_from_data_are_refused() {
    let text = "graph g(%x: f32[4]) -> (f32[u0]) where u0 in [0, 4] {
        %m: bool[4] = aten::gt.Scalar(%x, 0)
        %n: f32[u0] = aten::masked_select(%x, %m)
        bind u0 = size(%n, 0)
        return %n
    }";
    for executable in executables(text) {
        let outputs = [Tensor::zeros([2], DType::F32)];
        let inputs = [Value::Tensor(arange(&[4]))];
        let e = executable.run_into(&inputs, &outputs, &SourceInfo::of_caller()).unwrap_err();
        assert!(e.to_string().contains("has a size that depends on data"), "{e}");
    }
}

/// An operator that fails in the middle: inputs that the program does not write stay as they are,
/// and no output that the run has written in part can be read.
#[test]
fn a_failed_run_poisons_the_output_that_it_wrote_in_part() {
    let text = "graph g(%x: i64[2], %y: i64[2], %w: i64[2]) -> (i64[2], i64[2], i64[2]) {
        %a: i64[2] = aten::cumsum(%x, 0)
        %v: i64[2] = aten::add_.Tensor(%w, %a)
        %q: i64[2] = aten::floor_divide(%a, %y)
        %c: i64[2] = aten::cumsum(%q, 0)
        return %a, %q, %c
    }";
    let ints = |values: [i64; 2]| Tensor::from(values);
    let read = |t: &Tensor| t.to_vec::<i64>();
    let source_info = SourceInfo::of_caller();
    for (number, executable) in executables(text).into_iter().enumerate() {
        let inputs = [ints([3, 4]), ints([1, 0]), ints([5, 6])];
        let outputs = [ints([0, 0]), ints([0, 0]), ints([0, 0])];
        let e = executable.run_into(&inputs.each_ref().map(Value::from), &outputs, &source_info);
        assert!(e.unwrap_err().to_string().contains("division by zero"));
        assert_eq!(
            (read(&inputs[0]).unwrap(), read(&inputs[1]).unwrap()),
            (vec![3, 4], vec![1, 0])
        );
        if number == 0 {
            let e = read(&outputs[1]).unwrap_err().to_string();
            assert!(e.contains("division by zero"), "{e}");
        } else {
            // the results would have been copied at the end
            assert!(outputs.iter().all(|t| read(t).unwrap() == [0, 0]));
        }
        // a poisoned tensor cannot be given again; the executable is as before
        let inputs = [ints([3, 4]), ints([1, 2]), ints([5, 6])];
        let values = inputs.each_ref().map(Value::from);
        if number == 0 {
            executable.run_into(&values, &outputs, &source_info).unwrap_err();
            assert_eq!(read(&inputs[2]).unwrap(), [5, 6], "nothing was written");
        }
        let outputs = [ints([0, 0]), ints([0, 0]), ints([0, 0])];
        executable.run_into(&values, &outputs, &source_info).unwrap();
        let found: Vec<Vec<i64>> = outputs.iter().map(|t| read(t).unwrap()).collect();
        assert_eq!(found, [[3, 7], [3, 3], [3, 6]]);
        assert_eq!(read(&inputs[2]).unwrap(), [8, 13]);
    }
}
