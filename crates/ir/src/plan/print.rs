//! A plan as text.

use super::{Buffer, Made, Place, Plan, Step, Why};
use crate::graph::{Arg, Graph, Stmt};
use crate::view::ViewSpec;
use std::fmt::{Display, Formatter, Result};

/// A plan beside its graph, to be printed.
#[derive(Clone, Copy, Debug)]
pub struct PlanText<'a> {
    pub(super) plan: &'a Plan,
    pub(super) graph: &'a Graph,
}

impl Display for Why {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.write_str(match self {
            Why::Store => "stored into a tensor",
            Why::Keep => "the value before the store is needed afterwards",
            Why::Operand => "an operand lies where the result belongs",
            Why::Strides => "the operator looks at strides",
            Why::Mutate => "the value before the operator mutates it is needed afterwards",
            Why::Output => "an output has memory of its own",
        })
    }
}

impl PlanText<'_> {
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

    fn place(&self, place: &Place, f: &mut Formatter<'_>) -> Result {
        write!(f, "b{}", place.buffer.0)?;
        self.spec(&place.spec, f)
    }

    fn step(&self, step: &Step, f: &mut Formatter<'_>) -> Result {
        match step {
            Step::Stmt(at) => match self.graph.body().get(*at) {
                Some(Stmt::Bind { symbol, value, .. }) => {
                    write!(f, "bind {} from %{}", self.graph.symbols().name(*symbol), self.graph.value_name(*value))
                }
                Some(Stmt::Assert { cond, .. }) => write!(f, "assert {}", self.graph.symbols().display_bool(*cond)),
                _ => f.write_str("?"),
            },
            Step::Lies { value, place } => {
                write!(f, "%{} lies at ", self.graph.value_name(*value))?;
                self.place(place, f)
            }
            Step::Node { node, reads, writes, results } => {
                // what mutates is called by its name
                match self.graph.args(*node).first() {
                    Some(Arg::Str(name)) if !writes.is_empty() => f.write_str(self.graph.str(*name))?,
                    _ => f.write_str(self.graph.op_name(*node))?,
                }
                let mut sep = " of ";
                for (v, place) in reads {
                    write!(f, "{sep}%{} ", self.graph.value_name(*v))?;
                    self.place(place, f)?;
                    sep = ", ";
                }
                let mut sep = " mutates ";
                for place in writes {
                    f.write_str(sep)?;
                    self.place(place, f)?;
                    sep = ", ";
                }
                let mut sep = " makes ";
                for (v, made) in results {
                    write!(f, "{sep}%{} ", self.graph.value_name(*v))?;
                    match made {
                        Made::Into(place) => self.place(place, f)?,
                        Made::Returned(b) => write!(f, "b{}", b.0)?,
                    }
                    sep = ", ";
                }
                Ok(())
            }
            Step::Copy { value, from, to, overlaps, why } => {
                write!(f, "copy %{} ", self.graph.value_name(*value))?;
                self.place(from, f)?;
                f.write_str(" to ")?;
                self.place(to, f)?;
                write!(f, "{}: {why}", if *overlaps { " by way of a temporary" } else { "" })
            }
        }
    }
}

impl Display for PlanText<'_> {
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
        for (i, place) in self.plan.outputs.iter().enumerate() {
            if let Some(place) = place {
                write!(f, "  output {i} is ")?;
                self.place(place, f)?;
                writeln!(f)?;
            }
        }
        Ok(())
    }
}
