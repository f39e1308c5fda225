//! Runs the programs of `crates/rewrite/filetests`: as they are, as values, and by their plans. All
//! must leave equal bits and equal aliasing. Left out are programs whose inputs a type does not
//! tell: custom operators have no kernels there, and symbols no values.

mod common;
#[path = "../../rewrite/tests/filetests/format.rs"]
#[expect(dead_code, reason = "running needs less of a file than comparing")]
mod format;

use common::{arange, seen};
use format::{FileTest, Pass};
use maquette_interp::Interpreter;
use maquette_ir::graph::{Graph, TensorType};
use maquette_ir::sym::Expr;
use maquette_ops::library::Facts;
use maquette_ops::random::{Philox, apart};
use maquette_ops::{Result, Tensor, Value};
use maquette_rewrite::{functionalize, plan, rematerialize};
use std::path::{Path, PathBuf};

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => files(&path, found),
            false if path.extension().is_some_and(|e| e == "mqt") => found.push(path),
            false => {}
        }
    }
}

/// A tensor of a type whose numbers are plain, inside memory that is larger than it.
fn input(ty: &TensorType) -> Option<Tensor> {
    let number = |e: &Expr| if let Expr::Int(n) = e { Some(*n) } else { None };
    let numbers = |l: &[Expr]| l.iter().map(number).collect::<Option<Vec<i64>>>();
    let (sizes, strides) = (numbers(&ty.sizes)?, numbers(&ty.strides)?);
    let offset = number(&ty.offset)?;
    let last: i64 = sizes.iter().zip(&strides).map(|(n, s)| (n - 1).max(0) * s).sum();
    let memory = arange(offset + last + 1).to_dtype(ty.dtype);
    Some(memory.as_strided(sizes, strides, Some(offset.into())).clone())
}

fn inputs(graph: &Graph) -> Option<Vec<Tensor>> {
    graph.inputs().iter().map(|&v| graph.tensor_type(v).and_then(input)).collect()
}

#[test]
fn every_form_of_a_program_leaves_the_same() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../rewrite/filetests");
    let (mut paths, mut ran) = (Vec::new(), 0);
    files(&root, &mut paths);
    for path in paths {
        let name = path.display();
        let test = FileTest::parse(&std::fs::read_to_string(&path).unwrap()).unwrap();
        let graph: Graph = test.input.parse().unwrap();
        let runs = test.operators.is_empty()
            && graph.consts().is_empty()
            && !test.expected.starts_with("error: ")
            && !test.expected.contains("\nno plan: ")
            && !test.input.contains("sharing=");
        let Some(_) = inputs(&graph).filter(|_| runs) else { continue };
        let f = functionalize(&graph, &Facts, &test.options).unwrap();
        let plan = plan(&f, &Facts).unwrap();
        let leaves = |run: &dyn Fn(&[Value]) -> Result<Vec<Value>>| {
            let given = inputs(&graph).unwrap();
            let values: Vec<Value> = given.iter().cloned().map(Value::Tensor).collect();
            // random numbers begin at one place every time
            let outputs = apart(&mut Philox { seed: 7, offset: 0 }, || run(&values))
                .map_err(|e| e.kind().to_string())?;
            let outputs = outputs.iter().flat_map(Value::tensors).cloned();
            Ok::<_, String>(seen(&outputs.chain(given).collect::<Vec<_>>()))
        };
        let eager = leaves(&|given| Ok(Interpreter::new(&graph).run(given)?.results));
        let Ok(eager) = eager else {
            assert!(
                leaves(&|given| Ok(Interpreter::new(&f).run(given)?.results)).is_err(),
                "{name}: {eager:?}"
            );
            continue;
        };
        assert_eq!(
            leaves(&|given| Ok(Interpreter::new(&f).run(given)?.results)).as_ref(),
            Ok(&eager),
            "{name}"
        );
        let planned = leaves(&|given| Ok(Interpreter::new((&f, &plan)).run(given)?.results));
        assert_eq!(planned.as_ref(), Ok(&eager), "{name}\n{}", plan.display(&f.graph));
        if let Pass::Rematerialize(options) = test.pass
            && let Some(r) = rematerialize(&f, &Facts, &options).unwrap()
        {
            let again = leaves(&|given| Ok(Interpreter::new(&r.program).run(given)?.results));
            assert_eq!(again.as_ref(), Ok(&eager), "{name}\n{}", r.program.graph);
            let planned = (&r.program, &r.plan);
            let planned = leaves(&|given| Ok(Interpreter::new(planned).run(given)?.results));
            assert_eq!(planned.as_ref(), Ok(&eager), "{name}\n{}", r.program.graph);
        }
        ran += 1;
    }
    assert!(ran > 50, "{ran}");
}
