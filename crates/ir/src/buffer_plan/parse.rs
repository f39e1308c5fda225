//! Reading the text form of plans: recursive descent over the tokens of graph text.
//!
//! A step that executes a statement of the graph begins with that statement's position, and names
//! its operator or symbol again: a plan of another graph is an error with a line and column, not
//! another plan. The reader checks what a plan mentions, and not whether the plan is right: the
//! invariants at the [module's head](super) are for a plan checker.

use super::print::node_name;
use super::{Buffer, BufferId, BufferPlan, BufferView, CopyReason, ResultDest, Step};
use crate::copy_cost::{CopyCost, Traffic};
use crate::graph::parse::{ParseError, Parser};
use crate::graph::{Graph, NodeId, Stmt, ValueId};
use crate::sym::{Expr, SymTable};
use crate::view::{TriBool, ViewError, ViewSpec, row_major_strides};
use crate::{Device, graph::lex::Kind};
use rustc_hash::FxHashMap;

type Result<T> = std::result::Result<T, ParseError>;

impl BufferPlan {
    /// Reads a plan of a graph from the text that [`BufferPlan::display`] prints.
    ///
    /// The cost of the result counts its `copy` steps. What operators write besides depends on
    /// their facts, which a text does not have.
    ///
    /// # Errors
    /// The text does not follow the grammar, or mentions a buffer, value, statement or symbol that
    /// the plan or the graph does not have.
    pub fn parse(text: &str, graph: &Graph) -> Result<BufferPlan> {
        let names: Vec<(String, ValueId)> =
            graph.values().map(|v| (graph.value_name(v).to_string(), v)).collect();
        let values: FxHashMap<&str, ValueId> =
            names.iter().map(|(n, v)| (n.as_str(), *v)).collect();
        let mut symbols = graph.symbols().clone();
        for &guard in graph.guards() {
            // a guard that contradicts what is known is one that no call passes
            let _ = symbols.assume(guard);
        }
        let parser = Parser::of_text(text, symbols, values)?;
        PlanParser { p: parser, graph, buffers: Vec::new(), cost: CopyCost::default() }.plan()
    }
}

struct PlanParser<'a, 't> {
    p: Parser<'t>,
    graph: &'a Graph,
    buffers: Vec<Buffer>,
    cost: CopyCost,
}

impl<'t> PlanParser<'_, 't> {
    fn plan(mut self) -> Result<BufferPlan> {
        self.p.newline();
        self.p.keyword("plan")?;
        let at = self.p.pos;
        let (name, expected) = (self.p.ident("the graph's name")?, self.graph.name());
        if name != expected {
            return Err(self.p.error_at(
                at,
                format!("expected a plan of the graph `{expected}`, found one of `{name}`"),
            ));
        }
        self.p.end_of_line()?;
        while !self.p.eat("{") {
            let buffer = self.buffer()?;
            self.buffers.push(buffer);
            self.p.end_of_line()?;
        }
        self.p.newline();
        let mut steps = Vec::new();
        while !self.p.eat_word("return") {
            steps.push(self.step()?);
            self.p.end_of_line()?;
        }
        let outputs = self.outputs()?;
        self.p.newline();
        self.p.expect("}")?;
        self.p.newline();
        if self.p.peek().kind != Kind::End {
            return Err(self.p.expected("the end of the text"));
        }
        let PlanParser { p, graph, buffers, cost } = self;
        let graph = graph.digest();
        Ok(BufferPlan { graph, symbols: p.symbols, buffers, steps, outputs, cost })
    }

    fn outputs(&mut self) -> Result<Vec<Option<BufferView>>> {
        let mut outputs = Vec::new();
        if self.p.eat("(") {
            self.p.expect(")")?;
            return Ok(outputs);
        }
        loop {
            outputs.push(if self.p.eat_word("_") { None } else { Some(self.view()?) });
            if !self.p.eat(",") {
                return Ok(outputs);
            }
        }
    }

    fn buffer(&mut self) -> Result<Buffer> {
        let (at, next) = (self.p.pos, self.buffers.len());
        if !self.p.eat_word(&format!("b{next}")) {
            return Err(self
                .p
                .expected(&format!("the declaration of buffer `b{next}`, or `{{` and the steps")));
        }
        self.p.expect("=")?;
        let kind = self.p.ident("`input`, `const`, `alloc` or `result`")?;
        if kind == "alloc" {
            let dtype = self.p.dtype()?;
            let layout = self.layout()?;
            let device = if self.p.eat_word("device") { self.p.device()? } else { Device::Cpu };
            return Ok(Buffer::New { dtype, device, layout });
        }
        let value_at = self.p.pos;
        let value = self.p.value()?;
        let graph = self.graph;
        let found = match kind {
            "input" => graph.inputs().iter().position(|&v| v == value).map(Buffer::Input),
            "const" => graph.consts().iter().position(|c| c.value() == value).map(Buffer::Const),
            "result" => Some(Buffer::Returned(value)),
            _ => {
                return Err(self.p.error_at(
                    at + 2,
                    format!(
                        "expected a buffer of kind `input`, `const`, `alloc` or `result`, found \
                            `{kind}`"
                    ),
                ));
            }
        };
        let name = graph.value_name(value);
        found.ok_or_else(|| self.p.error_at(value_at, format!("the graph has no {kind} `%{name}`")))
    }

    fn step(&mut self) -> Result<Step> {
        if self.p.eat_word("alias") {
            let (value, view) = self.placed()?;
            return Ok(Step::Alias { value, view });
        }
        if self.p.eat_word("copy") {
            return self.copy();
        }
        let at = self.p.pos;
        if self.p.peek().kind != Kind::Int {
            return Err(self.p.expected("`alias`, `copy` or the number of a statement"));
        }
        let number = self.p.int()?;
        let stmt = usize::try_from(number).ok().and_then(|n| Some((n, self.graph.body().get(n)?)));
        let Some((number, &stmt)) = stmt else {
            let count = self.graph.body().len();
            return Err(self.p.error_at(
                at,
                format!("the statement is out of range: the graph has {count} statements"),
            ));
        };
        self.p.expect(":")?;
        match stmt {
            Stmt::Node(node) => self.node(node),
            Stmt::Bind { symbol, .. } => {
                self.p.keyword("bind")?;
                self.p.keyword(self.graph.symbols().name(symbol))?;
                Ok(Step::Stmt(number))
            }
            Stmt::Assert { cond, .. } => {
                self.p.keyword("assert")?;
                let at = self.p.pos;
                let expected = self.graph.symbols().display_bool(cond).to_string();
                if self.rest_of_line() != expected {
                    return Err(self.p.error_at(
                        at,
                        format!("expected the condition of the statement, `{expected}`"),
                    ));
                }
                Ok(Step::Stmt(number))
            }
        }
    }

    fn node(&mut self, node: NodeId) -> Result<Step> {
        let at = self.p.pos;
        let name = self.p.take(Kind::Op, "an operator")?;
        let reads = self.clause("reads", Self::placed)?;
        let writes = self.clause("mutates", Self::view)?;
        let results = self.clause("writes", |s| {
            let value = s.p.value()?;
            let dest = if s.p.eat_word("as") {
                ResultDest::Returned(s.buffer_id()?)
            } else {
                s.p.keyword("in")?;
                ResultDest::Into(s.view()?)
            };
            Ok((value, dest))
        })?;
        let expected = node_name(self.graph, node, !writes.is_empty());
        if name != expected {
            return Err(self
                .p
                .error_at(at, format!("expected the operator of the statement, `{expected}`")));
        }
        Ok(Step::Node { node, reads, writes, results })
    }

    fn clause<T>(
        &mut self,
        word: &str,
        mut item: impl FnMut(&mut Self) -> Result<T>,
    ) -> Result<Vec<T>> {
        let mut items = Vec::new();
        if self.p.eat_word(word) {
            items.push(item(self)?);
            while self.p.eat(",") {
                items.push(item(self)?);
            }
        }
        Ok(items)
    }

    fn copy(&mut self) -> Result<Step> {
        let value = self.p.value()?;
        self.p.keyword("from")?;
        let from = self.view()?;
        self.p.keyword("to")?;
        let to = self.view()?;
        let overlaps = self.p.eat_word("through");
        if overlaps {
            self.p.keyword("temporary")?;
        }
        self.p.keyword("because")?;
        let at = self.p.pos;
        let text = self.rest_of_line();
        let reason = CopyReason::ALL.into_iter().find(|r| r.to_string() == text);
        let reason = reason.ok_or_else(|| {
            let known = CopyReason::ALL.map(|r| format!("`{r}`")).join(", ");
            self.p.error_at(at, format!("unknown reason for a copy; expected one of {known}"))
        })?;
        let sizes: Vec<Expr> = to.spec.sizes().collect();
        let injective = to.spec.injective(&mut self.p.symbols) == TriBool::Yes;
        let times = Traffic::writes_per_copied_element(overlaps, injective);
        self.cost.add(&sizes, Traffic::copy(times));
        Ok(Step::Copy { value, from, to, overlaps, reason })
    }

    fn rest_of_line(&mut self) -> &'t str {
        let at = self.p.pos;
        while !matches!(self.p.peek().kind, Kind::Newline | Kind::End) {
            self.p.pos += 1;
        }
        self.p.slice(at)
    }

    /// A value, and the elements of a buffer in which it is.
    fn placed(&mut self) -> Result<(ValueId, BufferView)> {
        let value = self.p.value()?;
        self.p.keyword("in")?;
        Ok((value, self.view()?))
    }

    fn view(&mut self) -> Result<BufferView> {
        let buffer = self.buffer_id()?;
        Ok(BufferView { buffer, spec: self.layout()? })
    }

    fn buffer_id(&mut self) -> Result<BufferId> {
        let at = self.p.pos;
        let name = self.p.ident("a buffer such as `b0`")?;
        let number: Option<u32> = name.strip_prefix('b').and_then(|n| n.parse().ok());
        match number.filter(|n| (*n as usize) < self.buffers.len()) {
            Some(n) => Ok(BufferId(n)),
            None => Err(self.p.error_at(at, format!("undeclared buffer `{name}`"))),
        }
    }

    /// Sizes, and strides and an offset where they are given.
    fn layout(&mut self) -> Result<ViewSpec> {
        let at = self.p.pos;
        let sizes = self.p.expr_list()?;
        let strides = if self.p.eat_word("strides") { Some(self.p.expr_list()?) } else { None };
        let offset = if self.p.eat_word("offset") { self.p.expr()? } else { Expr::Int(0) };
        let symbols: &mut SymTable = &mut self.p.symbols;
        strides
            .or_else(|| row_major_strides(&sizes, symbols))
            .ok_or(ViewError::TooLarge)
            .and_then(|strides| ViewSpec::exact(offset, &sizes, &strides, symbols))
            .map_err(|e| self.p.error_at(at, e))
    }
}
