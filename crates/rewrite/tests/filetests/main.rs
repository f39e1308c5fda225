//! Runs the files of `crates/rewrite/filetests`: a graph text in, text out. See the README there.
//!
//! `MAQUETTE_BLESS=1` rewrites the expected output of every file instead of comparing it.

mod format;
mod fusion;

use format::{FileTest, Operator, Pass};
use maquette_aten as _;
use maquette_ir::buffer_plan::{BufferPlan, CopyReason};
use maquette_ir::graph::{EdgeKind, Graph, NodeId};
use maquette_ops::library::{Facts, custom_op};
use maquette_rewrite::{
    ExecutionMode, ExternalTensor, FunctionalGraph, Output, functionalize, functionalize_in_place,
    plan, rematerialize, rules,
};
use petgraph::visit::{EdgeRef, IntoEdgeReferences};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

type Result<T> = std::result::Result<T, String>;

/// Set to `1`, files get what passes give as their expected output.
const BLESS: &str = "MAQUETTE_BLESS";

/// Every file, by its path below `filetests`, in order.
fn files() -> Vec<(String, PathBuf)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("filetests");
    let mut found = Vec::new();
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "mqt") {
                let name = path.strip_prefix(&root).unwrap().to_string_lossy().replace('\\', "/");
                found.push((name, path));
            }
        }
    }
    found.sort();
    found
}

fn read_all() -> Vec<(String, FileTest)> {
    let read = |(name, path): (String, PathBuf)| {
        let text = std::fs::read_to_string(path).unwrap();
        let test = FileTest::parse(&text).unwrap_or_else(|e| panic!("{name}: {e}"));
        (name, test)
    };
    files().into_iter().map(read).collect()
}

/// Declares the custom operators of a file. Files that declare one operator declare it alike, as
/// operators are the process's.
fn declare_operators(test: &FileTest) -> Result<()> {
    static DECLARED: Mutex<BTreeMap<String, Operator>> = Mutex::new(BTreeMap::new());
    let mut known = DECLARED.lock().unwrap();
    for declared in &test.operators {
        let Operator { name, signature, tag, effect } = declared;
        match known.get(name) {
            Some(before) if before == declared => continue,
            Some(before) => {
                let before = &before.signature;
                return Err(format!("another file declares `{name}` otherwise: `{before}`"));
            }
            None => {}
        }
        let mut op = custom_op(name).schema(signature).tags(*tag);
        if let Some(effect) = *effect {
            op = op.effect(effect);
        }
        op.register().map_err(|e| e.kind().to_string())?;
        known.insert(name.clone(), declared.clone());
    }
    Ok(())
}

/// What a file's pass gives, as text.
fn run(test: &FileTest) -> Result<String> {
    let (graph, positions) = Graph::parse_with_positions(&test.input).map_err(|e| e.to_string())?;
    graph.verify().map_err(|e| e.to_string())?;
    let refused = |e: maquette_rewrite::FunctionalizeError| {
        let at = e.statement.as_ref().and_then(|s| positions.get(s.index));
        let line = at.map_or_else(String::new, |at| format!("line {}: ", at.line));
        format!("error: {line}{e}\n")
    };
    if test.pass == Pass::SelectPlan {
        return Ok(match functionalize_in_place(&graph, &Facts, &test.options) {
            Err(e) => refused(e),
            Ok(ExecutionMode::Original(_) | ExecutionMode::Functional(_)) => {
                "the original program\n".into()
            }
            Ok(ExecutionMode::Buffered(f, plan)) => {
                format!("a plan\n\n{}\n{}", describe(&f)?, describe_plan(&f, &plan)?)
            }
        });
    }
    let f = match functionalize(&graph, &Facts, &test.options) {
        Ok(f) => f,
        Err(e) => return Ok(refused(e)),
    };
    let uses = |rule: &String| f.stats.rules.iter().any(|(name, _)| name == rule);
    if let Some(rule) = test.fires.iter().find(|rule| !uses(rule)) {
        return Err(format!("the rule `{rule}` is of no use: {:?}\n{}", f.stats.rules, f.graph));
    }
    if let Some(rule) = test.rejects.iter().find(|rule| uses(rule)) {
        return Err(format!("the rule `{rule}` is of use: {:?}\n{}", f.stats.rules, f.graph));
    }
    if test.pass == Pass::Fuse {
        return fusion::run(f);
    }
    if test.pass == Pass::Order {
        return Ok(format!("{}{}", describe(&f)?, effect_order(&f.graph)));
    }
    if let Pass::Rematerialize(options) = test.pass {
        return Ok(match rematerialize(&f, &Facts, &options).map_err(|e| e.to_string())? {
            None => format!("{}\nnothing is computed again\n", describe(&f)?),
            Some(r) => {
                describe_plan(&r.program, &r.plan)?;
                let (before, peak, graph) = (r.peak_before, r.peak, describe(&r.program)?);
                let again = r.recomputed;
                format!("{graph}\n{again} run again, for {peak} bytes in place of {before}\n")
            }
        });
    }
    let mut text = describe(&f)?;
    // every functional graph has a plan, whose text parses, unless a text calls `ir::…` wrongly
    let plan = match plan(&f, &Facts) {
        Ok(plan) => plan,
        Err(e) if test.pass == Pass::Bufferize => return Ok(format!("{text}\nno plan: {e}\n")),
        Err(e) => return Err(format!("no plan: {e}")),
    };
    let planned = describe_plan(&f, &plan)?;
    if test.pass == Pass::Bufferize {
        write!(text, "\n{planned}").unwrap();
    }
    Ok(text)
}

/// The calls that effects and random numbers order, by their numbers.
fn effect_order(graph: &Graph) -> String {
    let dependence = graph.dependence(&Facts);
    let edges = dependence.edge_references().filter(|e| e.weight().kind == EdgeKind::Order);
    let call = |n: NodeId| format!("{} {}", graph.op_name(n), n.index());
    edges.map(|e| format!("{} before {}\n", call(e.source()), call(e.target()))).collect()
}

/// A functional program: its graph, and what becomes of the graph's results.
fn describe(f: &FunctionalGraph) -> Result<String> {
    f.graph.verify().map_err(|e| format!("the result is no graph: {e}"))?;
    let mut text = format!("{}\n", f.graph);
    if f.absolute_offsets {
        text += "inputs begin where their types say\n";
    }
    for (i, m) in f.memories.iter().enumerate() {
        let (inputs, start, len) = (&m.inputs, m.start, m.len);
        writeln!(text, "memory {i}: elements {start} to {} of inputs {inputs:?}", start + len)
            .unwrap();
    }
    for m in &f.mutations {
        writeln!(text, "{} becomes result {}{}", external(m.target), m.result, at(m.layout))
            .unwrap();
    }
    for (i, output) in f.outputs.iter().enumerate() {
        writeln!(text, "output {i}: {}", output_text(output)).unwrap();
    }
    Ok(text)
}

fn external(tensor: ExternalTensor) -> String {
    match tensor {
        ExternalTensor::Input(i) => format!("input {i}"),
        ExternalTensor::Const(i) => format!("constant {i}"),
        ExternalTensor::SharedMemory(i) => format!("memory {i}"),
    }
}

fn at(layout: Option<usize>) -> String {
    layout.map_or_else(String::new, |l| format!(" at {l}"))
}

fn output_text(output: &Output) -> String {
    match output {
        Output::Result { result, layout } => format!("result {result}{}", at(*layout)),
        Output::Alias { of, layout } => format!("view of {}{}", external(*of), at(*layout)),
        Output::Shared { memory, result, storage_layout, layout } => format!(
            "view of new memory {memory} at {layout}, which holds result {result} at \
                {storage_layout}"
        ),
        Output::List(list) => {
            format!("[{}]", list.iter().map(output_text).collect::<Vec<_>>().join(", "))
        }
    }
}

/// A plan and its cost. Its text parses back to it.
fn describe_plan(f: &FunctionalGraph, plan: &BufferPlan) -> Result<String> {
    let text = plan.display(&f.graph).to_string();
    let parsed = BufferPlan::parse(&text, &f.graph).map_err(|e| format!("{e}\n{text}"))?;
    if parsed.display(&f.graph).to_string() != text {
        return Err(format!("the plan's text parses to another plan:\n{text}"));
    }
    let same = (&parsed.buffers, &parsed.steps, &parsed.outputs)
        == (&plan.buffers, &plan.steps, &plan.outputs);
    if f.graph.symbols().symbols().next().is_none() && !same {
        return Err(format!("the plan parses to another plan of the same text:\n{text}"));
    }
    Ok(format!(
        "{text}copies at most {} elements, the program at least {}\n",
        f.copies_at_most_text(plan),
        f.copies_at_least_text()
    ))
}

/// How an output differs from the expected one.
fn difference(name: &str, expected: &str, found: &str) -> String {
    let diff = similar::TextDiff::from_lines(expected, found);
    let diff = diff.unified_diff().context_radius(6).header("expected", "found").to_string();
    format!(
        "crates/rewrite/filetests/{name}: another output than expected\n{diff}to take it: \
            {BLESS}=1 cargo test -p maquette-rewrite --test filetests\n"
    )
}

#[test]
fn filetests() {
    let bless = std::env::var(BLESS).is_ok_and(|v| v == "1");
    let mut failures = Vec::new();
    for (name, path) in files() {
        let text = std::fs::read_to_string(&path).unwrap();
        let output = FileTest::parse(&text).and_then(|test| {
            declare_operators(&test)?;
            Ok((run(&test)?, test))
        });
        match output {
            Err(e) => failures.push(format!("crates/rewrite/filetests/{name}: {e}\n")),
            Ok((output, test)) if bless && test.blessed(&output) != text => {
                std::fs::write(&path, test.blessed(&output)).unwrap();
            }
            Ok((output, test)) if !bless && test.expected != output => {
                failures.push(difference(&name, &test.expected, &output));
            }
            Ok(_) => {}
        }
    }
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
}

#[test]
fn each_rule_has_a_program_where_it_holds_and_one_where_its_condition_fails() {
    let files = read_all();
    for (rule, equation) in rules() {
        let has = |of: fn(&FileTest) -> &Vec<String>| {
            files.iter().any(|(_, test)| of(test).iter().any(|name| name == rule))
        };
        assert!(has(|t| &t.fires), "no file has `#! fires {rule}`: {equation}");
        assert!(has(|t| &t.rejects), "no file has `#! rejects {rule}`: {equation}");
    }
}

#[test]
fn each_reason_to_copy_is_in_a_plan() {
    let files = read_all();
    for reason in CopyReason::ALL {
        let because = format!(" because {reason}\n");
        assert!(files.iter().any(|(_, t)| t.expected.contains(&because)), "no plan{because}");
    }
}

#[test]
fn each_reason_to_refuse_a_program_has_a_file() {
    // `Build` and `Internal` are faults of the pass, and no program shows one
    let mut wanted = vec![
        "ViewOutOfBounds",
        "UnresolvedView",
        "Copies",
        "SizeFromView",
        "Keyword",
        "Storage",
        "Reinterpreted",
        "SharedDtypes",
        "WriteToOverlappingView",
        "AliasedMutableArgs",
        "SymbolicAliasing",
        "View",
    ];
    for (_, test) in read_all().iter().filter(|(_, t)| t.expected.starts_with("error: ")) {
        declare_operators(test).unwrap();
        let graph: Graph = test.input.parse().unwrap();
        let refused = functionalize(&graph, &Facts, &test.options).unwrap_err();
        let kind = format!("{:?}", refused.kind);
        wanted.retain(|name| {
            kind.strip_prefix(name).is_none_or(|rest| rest.starts_with(char::is_alphanumeric))
        });
    }
    assert!(wanted.is_empty(), "no program is refused for {wanted:?}");
}

#[test]
fn misspelt_files_are_errors() {
    let graph = "graph g(%x: f32[2]) -> (f32[2])\n{\n  return %x\n}\n";
    let error = |text: String| FileTest::parse(&text).unwrap_err();
    let with = |directives: &str| error(format!("# A point.\n{directives}\n{graph}"));
    let errors = [
        error(graph.into()),
        error(format!("#! test functionalize\n{graph}")),
        error(format!("# A point.\n{graph}")),
        with("#! tests functionalize"),
        with("#! test functionalise"),
        with("#! test functionalize level=lift"),
        with("#! test functionalize stop-at=few"),
        with("#! test functionalize only=store-to-laod"),
        with("#! test functionalize sharing=0,x"),
        with("#! test functionalize no-signed-zeroes"),
        with("#! test functionalize\n#! test bufferize"),
        with("#! test functionalize\n#! fires nothing"),
        error(format!("# A point.\n{graph}#! test functionalize\n")),
        error(format!("# A point.\n#! test functionalize\n{graph}#> a\n# b\n")),
    ];
    insta::assert_snapshot!(errors.join("\n"));
}
