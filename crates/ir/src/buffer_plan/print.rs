//! A plan as text.

use super::{Buffer, BufferPlan, BufferView, CopyReason, ResultDest, Step};
use crate::graph::{Arg, Graph, Stmt};
use crate::view::ViewSpec;
use std::fmt::{Display, Formatter, Result};

/// A plan beside its graph, to be printed.
#[derive(Clone, Copy, Debug)]
pub struct BufferPlanText<'a> {
    pub(super) plan: &'a BufferPlan,
    pub(super) graph: &'a Graph,
}

impl Display for CopyReason {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.write_str(match self {
            CopyReason::Store => "stored into a tensor",
            CopyReason::Keep => "the value before the store is needed afterwards",
            CopyReason::Operand => "an operand lies where the result belongs",
            CopyReason::Strides => "the operator looks at strides",
            CopyReason::Mutate => "the value before the operator mutates it is needed afterwards",
            CopyReason::Output => "an output has memory of its own",
        })
    }
}

impl BufferPlanText<'_> {
    fn spec(&self, spec: &ViewSpec, f: &mut Formatter<'_>) -> Result {
        let symbols = &self.plan.symbols;
        write!(f, "[{}", symbols.display(spec.offset()))?;
        for (i, d) in spec.dims().iter().enumerate() {
            f.write_str(if i == 0 { ": " } else { ", " })?;
            write!(f, "{}", symbols.display(d.size))?;
            if d.stride != crate::sym::Expr::Int(1) {
                write!(f, " by {}", symbols.display(d.stride))?;
            }
        }
        f.write_str("]")
    }

    fn view(&self, view: &BufferView, f: &mut Formatter<'_>) -> Result {
        write!(f, "b{}", view.buffer.0)?;
        self.spec(&view.spec, f)
    }

    fn step(&self, step: &Step, f: &mut Formatter<'_>) -> Result {
        match step {
            Step::Stmt(at) => match self.graph.body().get(*at) {
                Some(Stmt::Bind { symbol, value, .. }) => {
                    write!(
                        f,
                        "bind {} from %{}",
                        self.graph.symbols().name(*symbol),
                        self.graph.value_name(*value)
                    )
                }
                Some(Stmt::Assert { cond, .. }) => {
                    write!(f, "assert {}", self.graph.symbols().display_bool(*cond))
                }
                _ => f.write_str("?"),
            },
            Step::Alias { value, view } => {
                write!(f, "%{} lies at ", self.graph.value_name(*value))?;
                self.view(view, f)
            }
            Step::Node { node, reads, writes, results } => {
                // what mutates is called by its name
                match self.graph.args(*node).first() {
                    Some(Arg::Str(name)) if !writes.is_empty() => {
                        f.write_str(self.graph.str(*name))?
                    }
                    _ => f.write_str(self.graph.op_name(*node))?,
                }
                let mut sep = " of ";
                for (v, view) in reads {
                    write!(f, "{sep}%{} ", self.graph.value_name(*v))?;
                    self.view(view, f)?;
                    sep = ", ";
                }
                let mut sep = " mutates ";
                for view in writes {
                    f.write_str(sep)?;
                    self.view(view, f)?;
                    sep = ", ";
                }
                let mut sep = " makes ";
                for (v, dest) in results {
                    write!(f, "{sep}%{} ", self.graph.value_name(*v))?;
                    match dest {
                        ResultDest::Into(view) => self.view(view, f)?,
                        ResultDest::Returned(b) => write!(f, "b{}", b.0)?,
                    }
                    sep = ", ";
                }
                Ok(())
            }
            Step::Copy { value, from, to, overlaps, reason } => {
                write!(f, "copy %{} ", self.graph.value_name(*value))?;
                self.view(from, f)?;
                f.write_str(" to ")?;
                self.view(to, f)?;
                write!(f, "{}: {reason}", if *overlaps { " by way of a temporary" } else { "" })
            }
        }
    }
}

impl Display for BufferPlanText<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        writeln!(f, "plan of {}", self.graph.name())?;
        for (i, b) in self.plan.buffers.iter().enumerate() {
            write!(f, "  b{i}: ")?;
            match b {
                Buffer::Input(i) => match self.graph.inputs().get(*i) {
                    Some(v) => write!(f, "%{}", self.graph.value_name(*v))?,
                    None => f.write_str("?")?,
                },
                Buffer::Const(i) => match self.graph.consts().get(*i) {
                    Some(c) => write!(f, "%{}", self.graph.value_name(c.value()))?,
                    None => f.write_str("?")?,
                },
                Buffer::New { dtype, layout, .. } => {
                    write!(f, "new {dtype}")?;
                    self.spec(layout, f)?;
                }
                Buffer::Returned(v) => write!(f, "returned as %{}", self.graph.value_name(*v))?,
            }
            writeln!(f)?;
        }
        for step in &self.plan.steps {
            f.write_str("  ")?;
            self.step(step, f)?;
            writeln!(f)?;
        }
        for (i, view) in self.plan.outputs.iter().enumerate() {
            if let Some(view) = view {
                write!(f, "  output {i} is ")?;
                self.view(view, f)?;
                writeln!(f)?;
            }
        }
        Ok(())
    }
}
