//! The text form of plans. `docs/graph-text.md` gives its grammar; [`super::parse`] reads it back.
//!
//! Printing never fails on a plan that does not fit its graph, so that errors about one can show
//! it: an index outside a table prints as `?`.

use super::{Buffer, BufferPlan, BufferView, CopyReason, ResultDest, Step};
use crate::Device;
use crate::graph::{Arg, Graph, NodeId, Stmt, ValueId};
use crate::sym::{Expr, SymTable};
use crate::view::{ViewSpec, row_major_strides};
use std::fmt::{self, Display, Formatter, Write};

/// A plan beside its graph, to be printed.
#[derive(Clone, Copy, Debug)]
pub struct BufferPlanText<'a> {
    pub(super) plan: &'a BufferPlan,
    pub(super) graph: &'a Graph,
}

impl CopyReason {
    /// Every reason.
    pub const ALL: [CopyReason; 7] = [
        CopyReason::Store,
        CopyReason::Keep,
        CopyReason::Operand,
        CopyReason::Strides,
        CopyReason::View,
        CopyReason::Mutate,
        CopyReason::Output,
    ];
}

impl Display for CopyReason {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            CopyReason::Store => "the value is stored into a tensor",
            CopyReason::Keep => "the old value is used after the store",
            CopyReason::Operand => "an operand occupies the memory of the result",
            CopyReason::Strides => "the operator observes strides",
            CopyReason::View => "a view has no strides there",
            CopyReason::Mutate => "the old value is used after the mutation",
            CopyReason::Output => "the output needs its own buffer",
        })
    }
}

impl Display for BufferPlanText<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let BufferPlanText { plan, graph } = *self;
        Printer { graph, symbols: plan.symbols.clone(), w: f }.plan(plan)
    }
}

/// What a node is called in a plan. A node that mutates goes by the operator it calls, which its
/// first argument names.
pub(super) fn node_name(graph: &Graph, node: NodeId, mutates: bool) -> &str {
    match graph.args(node).first() {
        Some(Arg::Str(name)) if mutates => graph.str(*name),
        _ => graph.op_name(node),
    }
}

struct Printer<'a, 'w, W: Write> {
    graph: &'a Graph,
    /// A copy of the plan's table: row-major strides are computed, to be left out.
    symbols: SymTable,
    w: &'w mut W,
}

impl<W: Write> Printer<'_, '_, W> {
    fn plan(&mut self, plan: &BufferPlan) -> fmt::Result {
        writeln!(self.w, "plan {}", self.graph.name())?;
        for (i, buffer) in plan.buffers.iter().enumerate() {
            write!(self.w, "  b{i} = ")?;
            self.buffer(buffer)?;
            self.w.write_str("\n")?;
        }
        self.w.write_str("{\n")?;
        for step in &plan.steps {
            self.w.write_str("  ")?;
            self.step(step)?;
            self.w.write_str("\n")?;
        }
        self.w.write_str("  return ")?;
        if plan.outputs.is_empty() {
            self.w.write_str("()")?;
        }
        self.separated(&plan.outputs, |p, output| match output {
            Some(view) => p.view(view),
            None => p.w.write_str("_"),
        })?;
        self.w.write_str("\n}\n")
    }

    fn buffer(&mut self, buffer: &Buffer) -> fmt::Result {
        let (kind, value) = match buffer {
            Buffer::Input(i) => ("input", self.graph.inputs().get(*i).copied()),
            Buffer::Const(i) => ("const", self.graph.consts().get(*i).map(|c| c.value())),
            Buffer::Returned(v) => ("result", Some(*v)),
            Buffer::New { dtype, device, layout } => {
                write!(self.w, "alloc {dtype}")?;
                self.layout(layout)?;
                if *device != Device::Cpu {
                    write!(self.w, " device {device}")?;
                }
                return Ok(());
            }
        };
        write!(self.w, "{kind} ")?;
        match value {
            Some(v) => self.value(v),
            None => self.w.write_str("?"),
        }
    }

    fn step(&mut self, step: &Step) -> fmt::Result {
        match step {
            Step::Stmt(at) => {
                write!(self.w, "{at}: ")?;
                match self.graph.body().get(*at) {
                    Some(Stmt::Bind { symbol, .. }) => {
                        write!(self.w, "bind {}", self.graph.symbols().name(*symbol))
                    }
                    Some(Stmt::Assert { cond, .. }) => {
                        write!(self.w, "assert {}", self.graph.symbols().display_bool(*cond))
                    }
                    _ => self.w.write_str("?"),
                }
            }
            Step::Alias { value, view } => {
                self.w.write_str("alias ")?;
                self.placed(*value, view)
            }
            Step::Node { node, reads, writes, results } => {
                match self.graph.body().iter().position(|s| *s == Stmt::Node(*node)) {
                    Some(at) => write!(self.w, "{at}: ")?,
                    None => self.w.write_str("?: ")?,
                }
                self.w.write_str(node_name(self.graph, *node, !writes.is_empty()))?;
                self.clause(" reads ", reads, |p, (v, view)| p.placed(*v, view))?;
                self.clause(" mutates ", writes, |p, view| p.view(view))?;
                self.clause(" writes ", results, |p, (v, dest)| match dest {
                    ResultDest::Into(view) => p.placed(*v, view),
                    ResultDest::Returned(b) => {
                        p.value(*v)?;
                        write!(p.w, " as b{}", b.0)
                    }
                })
            }
            Step::Copy { value, from, to, overlaps, reason } => {
                self.w.write_str("copy ")?;
                self.value(*value)?;
                self.w.write_str(" from ")?;
                self.view(from)?;
                self.w.write_str(" to ")?;
                self.view(to)?;
                self.w.write_str(if *overlaps { " through temporary" } else { "" })?;
                write!(self.w, " because {reason}")
            }
        }
    }

    fn clause<T>(
        &mut self,
        word: &str,
        items: &[T],
        item: impl FnMut(&mut Self, &T) -> fmt::Result,
    ) -> fmt::Result {
        if items.is_empty() {
            return Ok(());
        }
        self.w.write_str(word)?;
        self.separated(items, item)
    }

    fn separated<T>(
        &mut self,
        items: &[T],
        mut item: impl FnMut(&mut Self, &T) -> fmt::Result,
    ) -> fmt::Result {
        for (i, one) in items.iter().enumerate() {
            self.w.write_str(if i > 0 { ", " } else { "" })?;
            item(self, one)?;
        }
        Ok(())
    }

    fn value(&mut self, value: ValueId) -> fmt::Result {
        write!(self.w, "%{}", self.graph.value_name(value))
    }

    fn placed(&mut self, value: ValueId, view: &BufferView) -> fmt::Result {
        self.value(value)?;
        self.w.write_str(" in ")?;
        self.view(view)
    }

    fn view(&mut self, view: &BufferView) -> fmt::Result {
        write!(self.w, "b{}", view.buffer.0)?;
        self.layout(&view.spec)
    }

    /// Sizes, strides unless they are row-major, and the offset unless it is 0, as in types.
    fn layout(&mut self, spec: &ViewSpec) -> fmt::Result {
        let sizes: Vec<Expr> = spec.sizes().collect();
        let strides: Vec<Expr> = spec.dims().iter().map(|d| d.stride).collect();
        self.exprs(&sizes)?;
        let row_major = row_major_strides(&sizes, &mut self.symbols);
        if row_major.is_none_or(|row_major| *row_major != *strides) {
            self.w.write_str(" strides ")?;
            self.exprs(&strides)?;
        }
        if spec.offset() != Expr::Int(0) {
            write!(self.w, " offset {}", self.symbols.display(spec.offset()))?;
        }
        Ok(())
    }

    fn exprs(&mut self, exprs: &[Expr]) -> fmt::Result {
        self.w.write_str("[")?;
        self.separated(exprs, |p, &e| write!(p.w, "{}", p.symbols.display(e)))?;
        self.w.write_str("]")
    }
}
