//! Where the calls of a functional graph come from: in random programs none is made twice, and none
//! is lost that anybody could miss.

use maquette_fuzz::oracle::{TestProgram, generate::generate, model};
use maquette_ir::Loc;
use maquette_ir::functional_ops::FunctionalOp;
use maquette_ir::graph::{Graph, NodeId};
use maquette_ops::library::Facts;
use maquette_ops::{Op, Result, Tensor, Value};
use maquette_rewrite::{Level, Options, functionalize};
use maquette_trace::TraceOptions;
use std::collections::BTreeMap;

const PROGRAMS: u64 = 1500;

/// The program as a trace, each call on a line of its own: that of its statement's number.
fn traced(program: &TestProgram) -> Result<Graph> {
    let code = |inputs: Vec<Tensor>| -> Result<Vec<Tensor>> {
        let line = |node: NodeId| Loc { file: "program", line: node.index() as u32 };
        let outputs = model::run(&program.graph, &inputs, &mut |node, op, args| {
            op.call_at(args, line(node))
        })?;
        Ok(outputs.iter().flat_map(Value::tensors).cloned().collect())
    };
    let given = program.run_inputs(&program.sizes[0])?.inputs;
    Ok(TraceOptions::new().keep_offsets(true).trace(code, given)?.graph().clone())
}

/// The library operator that a node calls; `None` for nodes of the functional dialect.
fn called(graph: &Graph, node: NodeId) -> Option<&str> {
    match FunctionalOp::of(graph, node) {
        Ok(FunctionalOp::Call(callee)) => Some(callee.op),
        _ => None,
    }
}

/// Operators that no pass looks into, by the line of the call.
fn opaque(graph: &Graph) -> BTreeMap<u32, Vec<&str>> {
    let mut calls: BTreeMap<u32, Vec<&str>> = BTreeMap::new();
    for node in graph.nodes() {
        if let Some(op) =
            called(graph, node).filter(|op| op.starts_with("oracle::") && *op != "oracle::tail")
        {
            let line = graph.loc(node).unwrap_or_else(|| panic!("{op} has no line:\n{graph}")).line;
            calls.entry(line).or_default().push(op);
        }
    }
    calls
}

#[test]
fn each_call_is_one_of_the_programs() {
    let (mut calls, mut merged) = (0, 0);
    for index in 0..PROGRAMS {
        let program = generate(11, index, 12).unwrap().program;
        let shared: Vec<Vec<usize>> = (0..program.memories.len())
            .map(|m| {
                (0..program.locations.len()).filter(|i| program.locations[*i].memory == m).collect()
            })
            .filter(|group: &Vec<usize>| group.len() > 1)
            .collect();
        // what eager or a trace refuses has no functional form
        let Ok(before) = traced(&program) else { continue };
        for level in [Level::LiftOnly, Level::Exact] {
            let options = Options::new().level(level).sharing(shared.clone());
            let Ok(f) = functionalize(&before, &Facts, &options) else { continue };
            let (made, written) = (opaque(&before), opaque(&f.graph));
            let show = || format!("program {index}, {level:?}:\n{before}\n{}", f.graph);
            for (line, ops) in &written {
                assert_eq!(made.get(line), Some(ops), "line {line} of {}", show());
            }
            for (line, ops) in &made {
                let effect = Op::find(ops[0]).unwrap().effect().is_some();
                assert!(
                    written.contains_key(line) || !effect,
                    "the effect in line {line} is lost: {}",
                    show()
                );
                calls += 1;
                merged += usize::from(!written.contains_key(line));
            }
            let random = |g: &Graph| {
                g.nodes()
                    .filter(|n| called(g, *n).is_some_and(|op| Op::find(op).unwrap().is_random()))
                    .count()
            };
            assert_eq!(random(&f.graph), random(&before), "{}", show());
        }
    }
    // most calls are of use to somebody
    assert!(calls > 2000 && merged * 2 < calls, "{merged} of {calls} calls are gone");
}
