//! What fusion saves: the same planned programs with and without fused kernels, and a copy of the
//! bytes that the fused kernel reads and writes. `cargo bench -p maquette-benches --bench fusion`.
//!
//! The three take turns. A figure is the least of many runs, in microseconds.

use maquette::pipeline::{
    Pass, PassOptions, PlannedProgram, ProgramForm, compile, compile_planned,
};
use maquette::prelude::*;
use maquette_invoke::SourceInfo;
use maquette_ops::Value;
use maquette_runtime::Executable;
use std::time::{Duration, Instant};

/// A program as text, the sizes of its inputs, and the bytes that a fused kernel moves.
struct Case {
    name: String,
    text: String,
    inputs: Vec<Vec<i64>>,
    bytes: i64,
}

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (name, n) in [("4,096", 4_096i64), ("65,536", 65_536), ("1M", 1 << 20), ("16M", 1 << 24)] {
        cases.push(Case {
            name: format!("8 pointwise operators, {name} elements"),
            text: format!(
                "graph g(%x: f32[{n}], %y: f32[{n}]) -> (f32[{n}]) {{
                    %a: f32[{n}] = aten::mul.Tensor(%x, %y)
                    %b: f32[{n}] = aten::add.Tensor(%a, %x)
                    %c: f32[{n}] = aten::relu(%b)
                    %d: f32[{n}] = aten::sub.Tensor(%c, %y)
                    %e: f32[{n}] = aten::mul.Scalar(%d, 0.5)
                    %f: f32[{n}] = aten::maximum(%e, %x)
                    %g: f32[{n}] = aten::add.Scalar(%f, 1.0)
                    %h: f32[{n}] = aten::abs(%g)
                    return %h
                }}"
            ),
            inputs: vec![vec![n], vec![n]],
            bytes: 12 * n,
        });
    }
    for (rows, columns) in [(12 * 128, 128i64), (1_024, 1_024), (64, 8_192)] {
        let shape = format!("{rows}, {columns}");
        cases.push(Case {
            name: format!("scale, mask, softmax, {rows} x {columns}"),
            text: format!(
                "graph g(%x: f32[{shape}], %m: f32[{columns}]) -> (f32[{shape}]) {{
                    %a: f32[{shape}] = aten::mul.Scalar(%x, 0.125)
                    %b: f32[{shape}] = aten::add.Tensor(%a, %m)
                    %c: f32[{shape}] = aten::_softmax(%b, -1, false)
                    return %c
                }}"
            ),
            inputs: vec![vec![rows, columns], vec![columns]],
            bytes: 8 * rows * columns,
        });
    }
    for (rows, columns) in [(128, 384i64), (1_024, 768), (64, 8_192)] {
        let shape = format!("{rows}, {columns}");
        cases.push(Case {
            name: format!("layer norm, gelu, residual, {rows} x {columns}"),
            text: format!(
                "graph g(%x: f32[{shape}], %w: f32[{columns}], %b: f32[{columns}]) -> (f32[{shape}]) {{
                    %n: f32[{shape}], %mean: f32[{rows}, 1], %rstd: f32[{rows}, 1] = aten::native_layer_norm(%x, [{columns}], %w, %b, 1e-5)
                    %g: f32[{shape}] = aten::gelu(%n)
                    %y: f32[{shape}] = aten::add.Tensor(%g, %x)
                    return %y
                }}"
            ),
            inputs: vec![vec![rows, columns], vec![columns], vec![columns]],
            bytes: 8 * rows * columns,
        });
    }
    cases
}

fn ramp(sizes: &[i64]) -> Tensor {
    let n: i64 = sizes.iter().product();
    let data: Vec<f32> = (0..n).map(|i| ((i * 37 % 101) as f32 - 50.0) / 17.0).collect();
    Tensor::from_vec(data, sizes.to_vec())
}

/// Compile times of chains of elementwise operators and softmaxes: cold, each step once.
fn compile_times() {
    println!("| nodes | functionalize, plan | fuse, plan | first run | later run |");
    println!("|---|---|---|---|---|");
    for nodes in [10, 100, 1_000, 10_000] {
        let mut text = "graph g(%v0: f32[8, 16]) -> (f32[8, 16]) {\n".to_owned();
        for i in 1..=nodes {
            let before = i - 1;
            let op = match i % 7 {
                0 => format!("aten::_softmax(%v{before}, -1, false)"),
                n if n % 2 == 0 => format!("aten::tanh(%v{before})"),
                _ => format!("aten::add.Tensor(%v{before}, %v0)"),
            };
            text += &format!("%v{i}: f32[8, 16] = {op}\n");
        }
        text += &format!("return %v{nodes}\n}}");
        let graph: maquette::ir::graph::Graph = text.parse().expect("parses");
        let source_info = SourceInfo::of_caller();
        let inputs = [Value::Tensor(ramp(&[8, 16]))];
        let start = Instant::now();
        let planned = planned(&graph);
        let functional = start.elapsed();
        let start = Instant::now();
        let executable = executable(planned);
        let fused = start.elapsed();
        let start = Instant::now();
        executable.run(&inputs, &source_info).expect("runs");
        let first = start.elapsed();
        let start = Instant::now();
        executable.run(&inputs, &source_info).expect("runs");
        let later = start.elapsed();
        let ms = |t: Duration| format!("{:.3} ms", t.as_secs_f64() * 1e3);
        println!(
            "| {nodes} | {} | {} | {} | {} |",
            ms(functional),
            ms(fused),
            ms(first),
            ms(later)
        );
    }
}

/// The program in planned memory, before fusion.
fn planned(graph: &maquette::ir::graph::Graph) -> Box<PlannedProgram> {
    let options = PassOptions::new().decompose(false).until(Pass::SelectPlan);
    match compile(graph, &options).expect("functional").program {
        ProgramForm::Planned(planned) => planned,
        _ => panic!("no plan"),
    }
}

/// The executable of a program in planned memory, fused.
fn executable(planned: Box<PlannedProgram>) -> Executable {
    let made = compile_planned(planned.program, planned.plan, &PassOptions::new());
    Executable::new(made.expect("fuses").program).expect("compiles")
}

fn main() {
    let wanted = std::env::args().skip(1).find(|arg| !arg.starts_with("--"));
    println!("| case | fused | unfused | ratio | copy of the bytes | fused / copy |");
    println!("|---|---|---|---|---|---|");
    for case in cases() {
        if wanted.as_ref().is_some_and(|wanted| !case.name.contains(wanted.as_str())) {
            continue;
        }
        let graph: maquette::ir::graph::Graph = case.text.parse().expect("parses");
        let planned = planned(&graph);
        let unfused = Executable::new(ProgramForm::Planned(planned.clone())).expect("compiles");
        let fused = executable(planned);
        assert!(fused.fused().is_some_and(|fused| fused.regions.len() == 1));
        let inputs: Vec<Value> =
            case.inputs.iter().map(|sizes| Value::Tensor(ramp(sizes))).collect();
        let half = case.bytes as usize / 2;
        let (from, mut to) = (vec![1u8; half], vec![0u8; half]);
        let (mut runs, start) = ([f64::INFINITY; 3], Instant::now());
        let mut time = |at: usize, f: &mut dyn FnMut()| {
            let start = Instant::now();
            f();
            runs[at] = runs[at].min(start.elapsed().as_secs_f64() * 1e6);
        };
        while start.elapsed() < Duration::from_millis(1_500) {
            let source_info = SourceInfo::of_caller();
            time(0, &mut || drop(fused.run(&inputs, &source_info).expect("runs")));
            time(1, &mut || drop(unfused.run(&inputs, &source_info).expect("runs")));
            time(2, &mut || {
                to.copy_from_slice(&from);
                std::hint::black_box(&mut to);
            });
        }
        assert_eq!(fused.unfused_instances(), 0, "{}", case.name);
        let [fused, unfused, copy] = runs;
        println!(
            "| {} | {fused:.1} | {unfused:.1} | {:.2} | {copy:.1} | {:.2} |",
            case.name,
            fused / unfused,
            fused / copy
        );
    }
    if wanted.is_none_or(|wanted| "compile".contains(wanted.as_str())) {
        compile_times();
    }
}
