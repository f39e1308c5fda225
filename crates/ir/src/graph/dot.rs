//! Pictures of graphs, for Graphviz.

use super::Graph;
use super::deps::{Adjacency, EdgeKind};
use petgraph::dot::{Config, Dot};
use petgraph::visit::EdgeRef;

impl Graph {
    /// The graph's dataflow in the DOT language: operators, and types on the edges between them.
    pub fn to_dot(&self) -> String {
        self.dataflow().to_dot()
    }
}

impl Adjacency<'_> {
    /// These edges in the DOT language. Edges of data are solid and carry the type, the others are
    /// dashed and say why they are there.
    pub fn to_dot(&self) -> String {
        let graph = self.graph;
        let label =
            |text: String| format!("label=\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""));
        let edge = |_: &Adjacency<'_>, e: super::EdgeReference<'_>| {
            let subject =
                e.weight().value.map(|v| format!("%{}", graph.value_name(v))).unwrap_or_default();
            match (e.weight().kind, e.weight().value) {
                (EdgeKind::Data, Some(v)) => {
                    label(format!("{subject}: {}", graph.display_type(graph.value_type(v))))
                }
                (kind, _) => {
                    let reason = match kind {
                        EdgeKind::Data => "data",
                        EdgeKind::Symbol => "size of",
                        EdgeKind::ReadAfterWrite => "reads after write of",
                        EdgeKind::WriteAfterRead => "writes after read of",
                        EdgeKind::WriteAfterWrite => "writes after write of",
                        EdgeKind::Order => "effect",
                    };
                    format!(
                        "style=dashed {}",
                        label(format!("{reason} {subject}").trim_end().to_owned())
                    )
                }
            }
        };
        let node = |_: &Adjacency<'_>, (_, op): (super::NodeId, &&str)| {
            format!("shape=box {}", label((*op).to_owned()))
        };
        let config = [Config::NodeNoLabel, Config::EdgeNoLabel];
        format!(
            "{:?}",
            Dot::with_attr_getters(self, &config, &|g, e| edge(g, e), &|g, n| node(g, n))
        )
    }
}
