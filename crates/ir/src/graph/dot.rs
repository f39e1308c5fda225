//! Pictures of graphs, in Graphviz's DOT language.
//!
//! A picture has a node for each input, constant, call and assertion, and one for the return. Data
//! edges alone do not order a graph that mutates, so the picture draws [`Graph::dependence`]: black
//! edges carry values, red edges are mutations, dashed edges are effects and sizes. A red edge is
//! either an operand that the call writes (bold), or an order that memory imposes. The picture
//! leaves out an order between two calls that a value orders already, for otherwise each view and
//! its base would have two edges. Calls of one [scope](super::NodeInfo::scope) are in a cluster.

use super::memory_deps::{for_each_arg, for_each_tensor};
use super::op_facts::{ArgEffect, MemoryFacts};
use super::types::{Arg, Def, NodeId, Stmt, ValueId, ValueType};
use super::{EdgeKind, Graph};
use crate::Effect;
use crate::sym::{BoolExpr, SymbolId, SymbolKind};
use indexmap::IndexMap;
use petgraph::visit::{EdgeRef, IntoEdgeReferences};
use rustc_hash::{FxBuildHasher, FxHashMap, FxHashSet};
use std::fmt::Write;

/// Arguments and results longer than this are cut in labels.
const MAX_LINE: usize = 72;
/// A label shows at most so many results of a call.
const MAX_RESULTS: usize = 4;

/// What an input of a graph is for its picture. A graph itself knows inputs only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum InputRole {
    /// The caller gives it.
    Argument,
    /// It is a parameter of a module.
    Parameter,
    /// It is a buffer of a module.
    Buffer,
}

impl Graph {
    /// The graph in the DOT language; `facts` tells which operators mutate and which are custom.
    ///
    /// Custom operators are filled, edges of mutations are red, edges of effects dashed.
    pub fn to_dot(&self, facts: &dyn MemoryFacts) -> String {
        self.to_dot_with(facts, &|_| InputRole::Argument)
    }

    /// As [`Graph::to_dot`], with the role of each input by its number.
    pub fn to_dot_with(
        &self,
        facts: &dyn MemoryFacts,
        role: &dyn Fn(usize) -> InputRole,
    ) -> String {
        let mut picture = Picture { graph: self, facts, text: String::new() };
        picture.header();
        picture.inputs(role);
        picture.calls();
        picture.data_edges();
        picture.order_edges();
        picture.assertions();
        picture.returned();
        picture.text + "}\n"
    }
}

/// The calls of a scope, and the scopes in it, in the order of their first calls.
#[derive(Default)]
struct Cluster<'g> {
    nodes: Vec<NodeId>,
    inner: IndexMap<&'g str, Cluster<'g>, FxBuildHasher>,
}

impl<'g> Cluster<'g> {
    /// The cluster at a path.
    fn at(&mut self, path: impl Iterator<Item = &'g str>) -> &mut Cluster<'g> {
        path.fold(self, |cluster, part| cluster.inner.entry(part).or_default())
    }
}

struct Picture<'g> {
    graph: &'g Graph,
    facts: &'g dyn MemoryFacts,
    text: String,
}

impl Picture<'_> {
    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.text, "  {line}");
    }

    fn header(&mut self) {
        let g = self.graph;
        let symbols = g.symbols();
        let mut title = vec![format!("graph {}", g.name())];
        let ranges: Vec<String> = symbols
            .symbols()
            .map(|s| format!("{} in {}", symbols.name(s), symbols.range(s)))
            .collect();
        if !ranges.is_empty() {
            title.push(cut(format!("where {}", ranges.join(", "))));
        }
        title.extend(g.guards().iter().map(|b| cut(format!("guard {}", symbols.display_bool(*b)))));
        self.text = format!("digraph {} {{\n", quoted(&[g.name().to_owned()]));
        self.line(format_args!("label={} labelloc=t bgcolor=white", quoted(&title)));
        self.line(format_args!("fontname=Helvetica fontsize=14"));
        self.line(format_args!("node [fontname=Helvetica fontsize=11 shape=box]"));
        self.line(format_args!("edge [fontname=Helvetica fontsize=9]"));
    }

    fn inputs(&mut self, role: &dyn Fn(usize) -> InputRole) {
        let g = self.graph;
        for (i, &v) in g.inputs().iter().enumerate() {
            let (kind, style) = match role(i) {
                InputRole::Argument => ("input", "shape=ellipse"),
                InputRole::Parameter => ("parameter", "shape=cylinder"),
                InputRole::Buffer => ("buffer", "shape=cylinder style=dashed"),
            };
            let mut label = vec![kind.to_owned(), self.definition(v)];
            label.extend(self.binds(v));
            self.line(format_args!("v{} [{style} label={}]", v.index(), quoted(&label)));
        }
        for c in g.consts() {
            let v = c.value();
            let label = ["constant".to_owned(), self.definition(v)];
            self.line(format_args!("v{} [shape=note label={}]", v.index(), quoted(&label)));
        }
    }

    /// The calls. Those of a scope are in a cluster, which is in that of the enclosing scope.
    fn calls(&mut self) {
        let mut clusters = Cluster::default();
        for node in self.graph.nodes() {
            let scope = self.graph.scope(node);
            clusters.at(scope.into_iter().flat_map(|scope| scope.split('.'))).nodes.push(node);
        }
        self.cluster(&clusters, "");
    }

    fn cluster(&mut self, cluster: &Cluster<'_>, path: &str) {
        for node in &cluster.nodes {
            self.call(*node);
        }
        for (part, inner) in &cluster.inner {
            let path = if path.is_empty() { (*part).to_owned() } else { format!("{path}.{part}") };
            let id = quoted(&[format!("cluster_{path}")]);
            self.line(format_args!("subgraph {id} {{"));
            self.line(format_args!("label={} color=gray60", quoted(&[(*part).to_owned()])));
            self.cluster(inner, &path);
            self.line(format_args!("}}"));
        }
    }

    fn call(&mut self, node: NodeId) {
        let g = self.graph;
        let op = g.op_name(node);
        let mut args: Vec<String> =
            g.args(node).iter().map(|arg| g.display_arg(*arg).to_string()).collect();
        let kwargs = g.kwargs(node).iter();
        args.extend(kwargs.map(|&(k, arg)| format!("{}={}", g.str(k), g.display_arg(arg))));
        let mut label = vec![op.to_owned(), cut(format!("({})", args.join(", ")))];
        let results: Vec<ValueId> = g.result_values(node).collect();
        label.extend(results.iter().take(MAX_RESULTS).map(|v| self.definition(*v)));
        if results.len() > MAX_RESULTS {
            label.push(format!("and {} more", results.len() - MAX_RESULTS));
        }
        label.extend(results.iter().flat_map(|v| self.binds(*v)));
        let style = match self.facts.is_custom(op) {
            true => "style=filled fillcolor=\"#ffe8a3\" ",
            false => "",
        };
        self.line(format_args!("n{} [{style}label={}]", node.index(), quoted(&label)));
    }

    /// An edge for each value that a call takes; red where the call writes it.
    fn data_edges(&mut self) {
        for node in self.graph.nodes() {
            let mut taken: Vec<ValueId> = Vec::new();
            self.graph.for_each_operand(node, |v| {
                if !taken.contains(&v) {
                    taken.push(v);
                }
            });
            let written = self.written(node);
            for v in taken {
                let style = if written.contains(&v) { "color=red penwidth=2 " } else { "" };
                self.data_edge(v, &format!("n{}", node.index()), style);
            }
        }
    }

    fn data_edge(&mut self, v: ValueId, to: &str, style: &str) {
        // One value leaves most nodes; of several the edge says which.
        let several =
            self.graph.producer(v).is_some_and(|n| self.graph.result_values(n).count() > 1);
        let name = if several { self.name(v) } else { String::new() };
        let label = if several { format!("label={}", quoted(&[name])) } else { String::new() };
        self.edge(&self.origin(v), to, format!("{style}{label}").trim_end());
    }

    fn edge(&mut self, from: &str, to: &str, style: &str) {
        match style {
            "" => self.line(format_args!("{from} -> {to}")),
            style => self.line(format_args!("{from} -> {to} [{style}]")),
        }
    }

    /// The values that a call may write.
    fn written(&self, node: NodeId) -> FxHashSet<ValueId> {
        let (op, mut written) = (self.graph.op_name(node), FxHashSet::default());
        for_each_arg(self.graph, self.facts, node, |index, arg| {
            if index.is_none_or(|i| self.facts.arg_effect(op, i) == ArgEffect::Write) {
                for_each_tensor(self.graph, arg, |v| {
                    written.insert(v);
                });
            }
        });
        written
    }

    /// What orders calls besides values: memory, effects, and sizes that calls bind.
    fn order_edges(&mut self) {
        let dependence = self.graph.dependence(self.facts);
        let edges = || dependence.edge_references();
        let ordered: FxHashSet<(NodeId, NodeId)> = edges()
            .filter(|e| e.weight().kind == EdgeKind::Data)
            .map(|e| (e.source(), e.target()))
            .collect();
        for e in edges().filter(|e| !ordered.contains(&(e.source(), e.target()))) {
            let subject = match e.weight().value {
                Some(v) => self.name(v),
                None => self.resource(e.source(), e.target()),
            };
            let (style, reason) = match e.weight().kind {
                EdgeKind::Data => continue,
                EdgeKind::Symbol => ("style=dashed color=gray40", "size of "),
                EdgeKind::ReadAfterWrite => ("color=red", "then reads "),
                EdgeKind::WriteAfterRead | EdgeKind::WriteAfterWrite => {
                    ("color=red", "then writes ")
                }
                EdgeKind::Order => ("style=dashed", "effect"),
            };
            let label = quoted(&[format!("{reason}{subject}")]);
            let (from, to) = (e.source().index(), e.target().index());
            self.line(format_args!("n{from} -> n{to} [{style} label={label}]"));
        }
    }

    /// The resource on which two calls have effects, after a space; empty for the process.
    fn resource(&self, first: NodeId, second: NodeId) -> String {
        match (self.graph.effect(first), self.graph.effect(second)) {
            (Some(Effect::On(name)), Some(Effect::On(other))) if name == other => {
                format!(" on {name}")
            }
            _ => String::new(),
        }
    }

    /// Assertions, and edges from what has the sizes that they compare.
    fn assertions(&mut self) {
        let symbols = self.symbol_origins();
        for (i, stmt) in self.graph.body().iter().enumerate() {
            let Stmt::Assert { cond, message } = *stmt else { continue };
            let mut label = vec![cut(format!("assert {}", self.condition(cond)))];
            label.extend(message.map(|m| cut(self.graph.str(m).to_owned())));
            self.line(format_args!("a{i} [shape=octagon label={}]", quoted(&label)));
            let mut from: Vec<String> = Vec::new();
            for s in self.graph.symbols().free_symbols_bool(cond) {
                let origin = symbols.get(&s).map(|v| self.origin(*v));
                from.extend(origin.filter(|o| !from.contains(o)));
            }
            for origin in from {
                self.edge(&origin, &format!("a{i}"), "style=dashed color=gray40");
            }
        }
    }

    /// The return, after the last write to the memory of each returned value.
    fn returned(&mut self) {
        let g = self.graph;
        let outputs: Vec<String> =
            g.outputs().iter().map(|arg| g.display_arg(*arg).to_string()).collect();
        let label = quoted(&["return".to_owned(), cut(outputs.join(", "))]);
        self.line(format_args!("return [shape=ellipse peripheries=2 label={label}]"));
        let writers = g.last_writers(self.facts);
        let mut seen = FxHashSet::default();
        for output in g.outputs() {
            let mut leaves = Vec::new();
            g.for_each_leaf(*output, &mut |leaf| leaves.push(leaf));
            for leaf in leaves {
                let Arg::Value(v) = leaf else { continue };
                if !seen.insert(v) {
                    continue;
                }
                self.data_edge(v, "return", "");
                let writer = writers.get(v.index()).copied().flatten();
                if let Some(writer) = writer.filter(|w| g.producer(v) != Some(*w)) {
                    let label = quoted(&[format!("then returns {}", self.name(v))]);
                    let style = format!("color=red label={label}");
                    self.edge(&format!("n{}", writer.index()), "return", &style);
                }
            }
        }
    }

    /// The node of the picture that a value comes from.
    fn origin(&self, v: ValueId) -> String {
        match self.graph.def(v) {
            Def::Node(node) => format!("n{}", node.index()),
            Def::Input(_) | Def::Const(_) => format!("v{}", v.index()),
        }
    }

    /// For each symbol, a value that tells it: the one it is bound from, or the first input of that
    /// size.
    fn symbol_origins(&self) -> FxHashMap<SymbolId, ValueId> {
        let g = self.graph;
        let mut origins = FxHashMap::default();
        for stmt in g.body() {
            if let Stmt::Bind { symbol, value, .. } = *stmt {
                origins.insert(symbol, value);
            }
        }
        for &v in g.inputs() {
            let exprs: Vec<_> = match g.value_type(v) {
                ValueType::Tensor(ty) => g.type_of(ty).exprs().collect(),
                ValueType::Int(e) => vec![e],
                ValueType::Float | ValueType::Bool | ValueType::Str => continue,
            };
            for s in exprs.into_iter().flat_map(|e| g.symbols().free_symbols(e)) {
                if g.symbols().kind(s) == SymbolKind::Backed {
                    origins.entry(s).or_insert(v);
                }
            }
        }
        origins
    }

    /// The symbols that are bound from a value, a line each.
    fn binds(&self, v: ValueId) -> impl Iterator<Item = String> {
        let g = self.graph;
        g.body().iter().filter_map(move |stmt| match *stmt {
            Stmt::Bind { symbol, value, .. } if value == v => {
                Some(format!("binds {}", g.symbols().name(symbol)))
            }
            _ => None,
        })
    }

    fn definition(&self, v: ValueId) -> String {
        let ty = self.graph.display_type(self.graph.value_type(v));
        cut(format!("{}: {ty}", self.name(v)))
    }

    fn name(&self, v: ValueId) -> String {
        format!("%{}", self.graph.value_name(v))
    }

    fn condition(&self, cond: BoolExpr) -> String {
        self.graph.symbols().display_bool(cond).to_string()
    }
}

/// The start of a text that is too long for a label.
fn cut(text: String) -> String {
    match text.char_indices().nth(MAX_LINE) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text,
    }
}

/// A DOT string of these lines. Control characters have no picture, and Graphviz stops at some.
fn quoted(lines: &[String]) -> String {
    let escape = |line: &String| -> String {
        line.chars()
            .flat_map(|c| match c {
                '"' | '\\' => vec!['\\', c],
                c if c.is_control() => vec!['\u{fffd}'],
                c => vec![c],
            })
            .collect()
    };
    format!("\"{}\"", lines.iter().map(escape).collect::<Vec<_>>().join("\\n"))
}
