//! The list of passes: its order, what a caller sees of it, and that every result can run.

use insta::assert_snapshot;
use maquette_interp::Interpreter;
use maquette_invoke::SourceInfo;
use maquette_ir::graph::Graph;
use maquette_ir::program_form::ProgramForm;
use maquette_ops::{Error, Tensor, Value};
use maquette_pipeline::{
    FastMath, Pass, PassOptions, WhyUnplanned, compile, compile_observed, compile_planned,
};
use maquette_rewrite::Rematerialization;
use maquette_runtime::Executable;
use std::cell::Cell;
use std::ops::ControlFlow;

/// Composites, writes in place, a concatenation, and operators that fuse.
const PROGRAM: &str = "graph g(%x: f32[n, 8], %w: f32[8, 8]) -> (f32[2*n, 8])
  where n in [1, oo)
{
    %y: f32[n, 8] = aten::linear(%x, %w)
    %e: f32[n, 8] = aten::exp(%y)
    %c: f32[n, 8] = aten::cos(%e)
    %d: f32[n, 8] = aten::add_.Tensor(%c, %e)
    %s: f32[n, 8] = aten::softmax.int(%e, -1)
    %z: f32[2*n, 8] = aten::cat([%c, %s])
    %r: f32[2*n, 8] = aten::relu_(%z)
    return %z
}";

fn graph(text: &str) -> Graph {
    let graph: Graph = text.parse().unwrap();
    graph.verify().unwrap();
    graph
}

fn ramp(sizes: [i64; 2]) -> Value {
    let numbers = (0..sizes[0] * sizes[1]).map(|i| (i * 37 % 23) as f32 / 11.0 - 1.0);
    Tensor::from_vec(numbers.collect::<Vec<f32>>(), sizes).into()
}

fn bits(results: &[Value]) -> Vec<Vec<u32>> {
    let elements = |v: &Value| v.tensor().unwrap().to_vec::<f32>().unwrap();
    results.iter().map(|v| elements(v).into_iter().map(f32::to_bits).collect()).collect()
}

#[test]
fn an_observer_sees_the_program_after_each_pass() {
    let mut seen = String::new();
    let compilation = compile_observed(&graph(PROGRAM), &PassOptions::new(), &mut |pass, form| {
        let form = match form {
            ProgramForm::Original(graph) => format!("{} nodes", graph.node_count()),
            ProgramForm::Functional(f) => format!("{} nodes, functional", f.graph.node_count()),
            ProgramForm::Planned(planned) => {
                let fused = planned.fused.as_ref();
                let fused = fused.map_or_else(String::new, |(fused, _)| {
                    format!(", fused to {}", fused.program.graph.node_count())
                });
                format!("{} nodes, planned{fused}", planned.program.graph.node_count())
            }
        };
        seen += &format!("{}: {form}\n", pass.name());
        Ok(ControlFlow::Continue(()))
    });
    assert!(compilation.unwrap().why_unplanned.is_none());
    assert_snapshot!(seen, @r"
    fast-math: 7 nodes
    decompose: 8 nodes
    functionalize: 8 nodes, functional
    select-plan: 8 nodes, planned
    rematerialize: 8 nodes, planned
    concats: 10 nodes, planned
    fuse: 10 nodes, planned, fused to 7
    ");
}

#[test]
fn a_program_runs_after_every_pass() {
    let graph = graph(PROGRAM);
    let inputs = || vec![ramp([3, 8]), ramp([8, 8])];
    let expected = bits(&Interpreter::new(&graph).run(&inputs()).unwrap().results);
    for &pass in Pass::ALL {
        let options = PassOptions::new()
            .fast_math(FastMath::all())
            .rematerialize(Rematerialization::least())
            .until(pass);
        let program = compile(&graph, &options).unwrap().program;
        let interpreted = Interpreter::new(program.mode()).run(&inputs()).unwrap().results;
        assert_eq!(bits(&interpreted), expected, "{}", pass.name());
        let executable = Executable::new(program).unwrap();
        let found = executable.run(&inputs(), &SourceInfo::of_caller()).unwrap();
        assert_eq!(bits(&found), expected, "{}", pass.name());
    }
}

#[test]
fn an_observer_ends_the_list() {
    let graph = graph(PROGRAM);
    let compilation = compile_observed(&graph, &PassOptions::new(), &mut |pass, _| {
        Ok(match pass {
            Pass::Functionalize => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        })
    });
    assert!(matches!(compilation.unwrap().program, ProgramForm::Functional(_)));
    let failed = compile_observed(&graph, &PassOptions::new(), &mut |_, _| Err(Error::msg("no")));
    assert_eq!(failed.unwrap_err().kind().to_string(), "no");
}

#[test]
fn a_program_without_a_functional_form_stays_decomposed() {
    let text = "graph g(%x: f32[1], %y: f32[4] strides [0], %w: f32[1, 1]) -> (f32[1]) {
        %a: f32[4] strides [0] = aten::add_.Tensor(%y, %x)
        %b: f32[1] = aten::linear(%x, %w)
        return %b
    }";
    let compilation = compile(&graph(text), &PassOptions::new()).unwrap();
    let Some(WhyUnplanned::Refused(e)) = &compilation.why_unplanned else {
        panic!("{:?}", compilation.why_unplanned)
    };
    assert!(e.statement.is_some(), "{e}");
    let ProgramForm::Original(graph) = &compilation.program else { panic!("{e}") };
    assert!(!graph.nodes().any(|node| graph.op_name(node) == "aten::linear"));
    assert!(compilation.deciding.iter().any(|op| op.name() == "aten::linear"));
}

#[test]
fn passes_that_take_graphs_leave_a_planned_program() {
    let options = PassOptions::new().decompose(false).until(Pass::SelectPlan);
    let ProgramForm::Planned(planned) = compile(&graph(PROGRAM), &options).unwrap().program else {
        panic!("no plan")
    };
    let before = planned.program.graph.clone();
    let same = compile_planned(planned.program.clone(), planned.plan.clone(), &options).unwrap();
    assert_eq!(*same.program.graph(), before);
    let all = compile_planned(planned.program, planned.plan, &PassOptions::new()).unwrap();
    assert!(matches!(&all.program, ProgramForm::Planned(p) if p.fused.is_some()));
}

#[test]
fn memory_is_measured_on_programs_that_are_ready() {
    let graph = graph(PROGRAM);
    let (measured, fused) = (Cell::new(0), Cell::new(0));
    let bytes = |program: ProgramForm| {
        measured.set(measured.get() + 1);
        if matches!(&program, ProgramForm::Planned(planned) if planned.fused.is_some()) {
            fused.set(fused.get() + 1);
        }
        Ok(1_000)
    };
    let options = PassOptions::new().rematerialize(Rematerialization::within(4_000));
    let found = compile(&graph, &options.clone().measured_by(&bytes)).unwrap().recomputed.unwrap();
    assert_eq!((found.bytes_before, found.operators), (1_000, 0), "the bound is met");
    assert_eq!((measured.get(), fused.get()), (1, 1));
    let estimated = compile(&graph, &options).unwrap().recomputed.unwrap();
    assert_eq!(estimated.bound, Some(4_000));
    assert!(compile(&graph, &PassOptions::new()).unwrap().recomputed.is_none());
}

#[test]
fn passes_have_names() {
    for &pass in Pass::ALL {
        assert_eq!(Pass::named(pass.name()), Some(pass));
    }
    assert_eq!(Pass::named("fusion"), None);
}
