//! Reading the text form of loop nests: recursive descent over the tokens of graph text.
//!
//! The parser adds each stage with [`LoopBuilder`], so a text that parses is a valid nest. An error
//! has the line and column of the statement.

mod body;

use super::fold::{Fold, Order};
use super::scan::ScanOrder;
use super::{
    Axes, AxisId, Combine, LaunchScalar, LoopBuilder, LoopNest, OperandId, Source, Stage, StageId,
    StageKind, StageOutput,
};
use crate::graph::lex::Kind;
use crate::graph::parse::{ParseError, Parser};
use crate::scalar_expr::{BinaryOp, Reg, ScalarExpr};
use crate::sym::{Expr, SymTable};
use crate::{DType, Scalar, graph::Arg};
use rustc_hash::FxHashMap;

type Result<T> = std::result::Result<T, ParseError>;

impl LoopNest {
    /// Reads the text that `Display` prints.
    ///
    /// # Errors
    /// The text does not follow the grammar, or a stage is not valid: an error with line and
    /// column.
    pub fn parse(text: &str) -> Result<LoopNest> {
        let parser = Parser::of_text(text, SymTable::new(), FxHashMap::default())?;
        NestParser { p: parser, nest: LoopBuilder::new(SymTable::new()) }.nest()
    }
}

struct NestParser<'t> {
    p: Parser<'t>,
    nest: LoopBuilder,
}

impl<'t> NestParser<'t> {
    fn nest(mut self) -> Result<LoopNest> {
        self.p.newline();
        self.p.keyword("loops")?;
        // Operands have sizes, whose symbols are declared behind them.
        let operands = self.p.pos;
        self.p.skip_group()?;
        self.p.expect("->")?;
        let results = self.p.pos;
        self.p.skip_group()?;
        self.p.newline();
        if self.p.eat_word("where") {
            self.p.list_until(None, |p| p.symbol())?;
            self.p.newline();
        }
        let clauses = std::mem::replace(&mut self.p.pos, operands);
        self.operands()?;
        self.p.pos = clauses;
        self.clauses()?;
        self.p.expect("{")?;
        self.p.newline();
        while !self.p.eat("}") {
            self.stage()?;
            self.p.end_of_line()?;
        }
        self.p.newline();
        if self.p.peek().kind != Kind::End {
            return Err(self.p.expected("the end of the text"));
        }
        self.p.pos = results;
        let outputs = self.list("(", ")", Self::output)?;
        let NestParser { mut p, mut nest } = self;
        *nest.symbols_mut() = std::mem::take(&mut p.symbols);
        nest.finish(&outputs).map_err(|e| p.error_at(results, e))
    }

    /// Items in brackets, separated by commas.
    fn list<T>(
        &mut self,
        open: &str,
        close: &str,
        mut item: impl FnMut(&mut Self) -> Result<T>,
    ) -> Result<Vec<T>> {
        let mut items = Vec::new();
        self.p.expect(open)?;
        if self.p.eat(close) {
            return Ok(items);
        }
        loop {
            items.push(item(self)?);
            if self.p.eat(close) {
                return Ok(items);
            }
            self.p.expect(",")?;
        }
    }

    fn operands(&mut self) -> Result<()> {
        let mut next = 0;
        self.list("(", ")", |s| {
            s.declared('a', next)?;
            next += 1;
            s.p.expect(":")?;
            let dtype = s.p.dtype()?;
            let sizes = s.p.expr_list()?;
            s.nest.operand(dtype, &sizes);
            Ok(())
        })?;
        Ok(())
    }

    /// Launch scalars, axes and messages.
    fn clauses(&mut self) -> Result<()> {
        loop {
            self.p.newline();
            if self.p.eat_word("launch") {
                self.each(|s, next| {
                    s.declared('c', next)?;
                    let scalar = match s.p.eat("=") {
                        true => LaunchScalar::Size(s.p.expr()?),
                        false => {
                            s.p.expect(":")?;
                            LaunchScalar::Number(s.p.dtype()?)
                        }
                    };
                    s.nest.scalar(scalar);
                    Ok(())
                })?;
            } else if self.p.eat_word("axes") {
                self.each(|s, next| {
                    s.declared('i', next)?;
                    s.p.expect("<")?;
                    let extent = s.p.expr()?;
                    s.nest.axis(extent);
                    Ok(())
                })?;
            } else if self.p.eat_word("message") {
                let message = self.p.string()?;
                self.nest.message(&message);
            } else {
                return Ok(());
            }
        }
    }

    /// Items separated by commas; `item` gets their number.
    fn each(&mut self, mut item: impl FnMut(&mut Self, u32) -> Result<()>) -> Result<()> {
        for next in 0.. {
            item(self, next)?;
            if !self.p.eat(",") {
                break;
            }
        }
        Ok(())
    }

    /// A declaration, which has the next number.
    fn declared(&mut self, letter: char, next: u32) -> Result<()> {
        match self.p.eat_word(&format!("{letter}{next}")) {
            true => Ok(()),
            false => Err(self.p.expected(&format!("`{letter}{next}`"))),
        }
    }

    /// A letter and a number, such as `t3`.
    fn id(&mut self, letter: char, what: &str) -> Result<u32> {
        match number(self.p.word(), letter) {
            Some(n) if self.p.peek().kind == Kind::Ident => {
                self.p.pos += 1;
                Ok(n)
            }
            _ => Err(self.p.expected(&format!("{what} such as `{letter}0`"))),
        }
    }

    fn axis(&mut self) -> Result<AxisId> {
        self.id('i', "an axis").map(AxisId)
    }

    fn reg(&mut self) -> Result<Reg> {
        self.id('r', "a register").map(Reg)
    }

    fn output(&mut self) -> Result<StageOutput> {
        let stage = StageId(self.id('t', "a stage")?);
        let at = self.p.pos;
        let output = if self.p.eat(":") { self.p.int()? } else { 0 };
        let output = u8::try_from(output)
            .map_err(|_| self.p.error_at(at, "a stage has at most 256 outputs"))?;
        Ok(StageOutput { stage, output })
    }

    fn source(&mut self) -> Result<Source> {
        match number(self.p.word(), 'a') {
            Some(n) => {
                self.p.pos += 1;
                Ok(OperandId(n).into())
            }
            None => self.output().map(Source::from),
        }
    }

    fn stage(&mut self) -> Result<()> {
        let at = self.p.pos;
        self.declared('t', self.nest.nest().stages().len() as u32)?;
        let left: Axes = match self.p.word() {
            "[" => self.list("[", "]", Self::axis)?.into(),
            _ => Axes::new(),
        };
        self.p.expect("=")?;
        let kind = self.p.ident("a kind of stage")?;
        let (kind, over) = match kind {
            "map" => (StageKind::Map, left),
            "reduce" => {
                let fold = self.fold()?;
                let order = match self.p.ident("`lanes` or `sequential`")? {
                    "lanes" => Order::Lanes,
                    "sequential" => Order::Sequential,
                    _ => return Err(self.p.error_at(self.p.pos - 1, "unknown order of a fold")),
                };
                let over = self.over()?;
                (StageKind::Reduce { along: but(&over, &left), fold, order }, over)
            }
            "scan" => {
                let fold = self.fold()?;
                let name = self.p.ident("`exact` or `blocks`")?;
                let order = named(&ScanOrder::ALL, name, ScanOrder::name)
                    .ok_or_else(|| self.p.error_at(self.p.pos - 1, "unknown order of a scan"))?;
                self.p.keyword("along")?;
                (StageKind::Scan { along: self.axis()?, fold, order }, left)
            }
            "contract" => {
                let over = self.over()?;
                (StageKind::Contract { along: but(&over, &left) }, over)
            }
            "sort" => {
                let descending = self.p.eat_word("descending");
                if !descending {
                    self.p.keyword("ascending")?;
                }
                let along = self.axis()?;
                self.p.keyword("to")?;
                let keep = self.axis()?;
                let over = left.iter().map(|a| if *a == keep { along } else { *a }).collect();
                (StageKind::Sort { along, keep, descending }, over)
            }
            "scatter" => {
                let at = self.p.pos;
                let combine = match self.p.ident("`replace` or an operation")? {
                    "replace" => Combine::Replace,
                    name => match named(BinaryOp::ALL, name, |op| op.name()) {
                        Some(op) => Combine::Op(op),
                        None => return Err(self.p.error_at(at, "unknown operation")),
                    },
                };
                self.p.keyword("into")?;
                let into = self.source()?;
                (StageKind::Scatter { into, combine }, self.over()?)
            }
            _ => {
                let expected = "expected `map`, `reduce`, `scan`, `contract`, `sort` or `scatter`";
                return Err(self.p.error_at(self.p.pos - 1, expected));
            }
        };
        let (expr, loads) = self.body(false)?;
        let kind = self.with_combine(kind)?;
        let stage = Stage { over, loads, expr, kind };
        // The verifier needs the parser's table.
        std::mem::swap(self.nest.symbols_mut(), &mut self.p.symbols);
        let pushed = self.nest.push(stage);
        std::mem::swap(self.nest.symbols_mut(), &mut self.p.symbols);
        pushed.map(|_| ()).map_err(|e| self.p.error_at(at, e))
    }

    fn over(&mut self) -> Result<Axes> {
        self.p.keyword("over")?;
        Ok(self.list("[", "]", Self::axis)?.into())
    }

    /// A fold by its name, or the identity of one whose operation follows the body.
    fn fold(&mut self) -> Result<Fold> {
        if self.p.word() == "(" {
            let identity = self.list("(", ")", Self::scalar)?;
            let combine = Box::new(ScalarExpr::cast(DType::F32, DType::F32));
            return Ok(Fold::Of { identity, combine });
        }
        let at = self.p.pos;
        let name = self.p.ident("a fold")?;
        let found = Fold::NAMED.into_iter().find(|fold| fold.name() == Some(name));
        found.ok_or_else(|| self.p.error_at(at, "unknown fold"))
    }

    /// Reads the operation of a fold that has no name.
    fn with_combine(&mut self, mut kind: StageKind) -> Result<StageKind> {
        if let StageKind::Reduce { fold, .. } | StageKind::Scan { fold, .. } = &mut kind
            && let Fold::Of { combine, .. } = fold
        {
            self.p.keyword("combine")?;
            **combine = self.body(true)?.0;
        }
        Ok(kind)
    }

    fn scalar(&mut self) -> Result<Scalar> {
        let at = self.p.pos;
        match self.p.arg(0)? {
            Arg::Int(Expr::Int(n)) => Ok(Scalar::Int(n)),
            Arg::Float(x) => Ok(Scalar::Float(x.get())),
            Arg::Bool(b) => Ok(Scalar::Bool(b)),
            _ => Err(self.p.error_at(at, "expected a number")),
        }
    }
}

/// The number after a letter: 3 of `t3`.
fn number(word: &str, letter: char) -> Option<u32> {
    word.strip_prefix(letter)?.parse().ok()
}

/// The axes that are not left.
fn but(over: &[AxisId], left: &[AxisId]) -> Axes {
    over.iter().copied().filter(|axis| !left.contains(axis)).collect()
}

fn named<T: Copy>(all: &[T], name: &str, of: impl Fn(T) -> &'static str) -> Option<T> {
    all.iter().copied().find(|op| of(*op) == name)
}
