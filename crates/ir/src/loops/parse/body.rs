//! The parser of the instructions of a stage.

use super::{NestParser, Result, named, number};
use crate::DType;
use crate::graph::lex::Kind;
use crate::loops::{Affine, Index, IndexMap, Load};
use crate::scalar_expr::{
    BinaryOp, Bounds, CmpOp, ExprBuilder, Reg, ScalarExpr, UnaryOp, cast_scalar,
};
use crate::sym::Expr;
use smallvec::SmallVec;
use std::fmt::Display;

/// What a stage's body is part of.
struct Body {
    expr: ExprBuilder,
    loads: SmallVec<[Load; 2]>,
    /// Whether it is the operation of a fold, which has inputs instead of loads.
    is_combine: bool,
}

impl NestParser<'_> {
    /// The instructions in braces, and what they load.
    pub(super) fn body(&mut self, is_combine: bool) -> Result<(ScalarExpr, SmallVec<[Load; 2]>)> {
        self.p.expect("{")?;
        self.p.newline();
        let mut body = Body { expr: ExprBuilder::new(), loads: SmallVec::new(), is_combine };
        let mut next = 0;
        while !self.p.eat_word("return") {
            let at = self.p.pos;
            self.declared('r', next)?;
            self.p.expect(":")?;
            let dtype = self.p.dtype()?;
            self.p.expect("=")?;
            let reg = self.instr(&mut body, dtype)?;
            let found = body.expr.dtype(reg).map_err(|e| self.p.error_at(at, e))?;
            if reg != Reg(next) || found != dtype {
                let message = format!("the instruction defines {found} in a register of {dtype}");
                return Err(self.p.error_at(at, message));
            }
            next += 1;
            self.p.end_of_line()?;
        }
        let at = self.p.pos;
        let mut outputs = Vec::new();
        if self.p.peek().kind != Kind::Newline {
            self.each(|s, _| {
                outputs.push(s.reg()?);
                Ok(())
            })?;
        }
        self.p.end_of_line()?;
        self.p.expect("}")?;
        let expr = body.expr.finish(&outputs).map_err(|e| self.p.error_at(at, e))?;
        Ok((expr, body.loads))
    }

    fn instr(&mut self, body: &mut Body, dtype: DType) -> Result<Reg> {
        let at = self.p.pos;
        let name = self.p.ident("an instruction")?;
        let failed = |s: &Self, e: &dyn Display| s.p.error_at(at, e);
        let built = match name {
            "load" if !body.is_combine => {
                let load = self.load(&mut Vec::new())?;
                body.loads.push(load);
                return Ok(body.expr.input(dtype));
            }
            "input" if body.is_combine => {
                let (k, reg) = (self.p.int()?, body.expr.input(dtype));
                return match k == i64::from(reg.0) {
                    true => Ok(reg),
                    false => Err(failed(self, &"inputs come first, in order")),
                };
            }
            "read" if !body.is_combine => return self.read(body, dtype, at),
            "coord" => Ok(body.expr.coord(self.axis()?.0)),
            "launch" => Ok(body.expr.launch(self.id('c', "a launch scalar")?, dtype)),
            "assert" => {
                let holds = self.reg()?;
                self.p.keyword("message")?;
                let message = u32::try_from(self.p.int()?).unwrap_or(u32::MAX);
                body.expr.assert(holds, message)
            }
            "const" => {
                let value = self.scalar()?;
                if cast_scalar(value, dtype) != value {
                    return Err(failed(
                        self,
                        &format!("the constant {value} is not one of {dtype}"),
                    ));
                }
                Ok(body.expr.constant(value, dtype))
            }
            "cast" => {
                let from = self.reg()?;
                body.expr.cast(from, dtype)
            }
            "select" => {
                let [a, b, c] = [self.reg()?, self.next_reg()?, self.next_reg()?];
                body.expr.select(a, b, c)
            }
            name => {
                if let Some(op) = named(UnaryOp::ALL, name, |op| op.name()) {
                    let a = self.reg()?;
                    body.expr.unary(op, a)
                } else if let Some(op) = named(BinaryOp::ALL, name, |op| op.name()) {
                    let [a, b] = [self.reg()?, self.next_reg()?];
                    body.expr.binary(op, a, b)
                } else if let Some(op) = named(CmpOp::ALL, name, |op| op.name()) {
                    let [a, b] = [self.reg()?, self.next_reg()?];
                    body.expr.compare(op, a, b)
                } else {
                    return Err(failed(self, &format!("unknown instruction `{name}`")));
                }
            }
        };
        built.map_err(|e| failed(self, &e))
    }

    /// A comma and a register.
    fn next_reg(&mut self) -> Result<Reg> {
        self.p.expect(",")?;
        self.reg()
    }

    fn read(&mut self, body: &mut Body, dtype: DType, at: usize) -> Result<Reg> {
        let mut positions = Vec::new();
        let load = self.load(&mut positions)?;
        let bounds = match self.p.ident("what becomes of positions out of bounds")? {
            "inside" => Bounds::Inside,
            "wraps" => Bounds::Wraps,
            "fails" => Bounds::Fails,
            "clamps" => Bounds::Clamps,
            "else" => Bounds::Else(self.reg()?),
            _ => {
                let expected = "expected `inside`, `wraps`, `fails`, `clamps` or `else`";
                return Err(self.p.error_at(self.p.pos - 1, expected));
            }
        };
        let when = if self.p.eat_word("when") { Some(self.reg()?) } else { None };
        let known = body.loads.iter().position(|l| *l == load && !l.at.is_affine());
        let input = match known {
            Some(input) => input as u32,
            None => {
                body.loads.push(load);
                body.expr.source(dtype)
            }
        };
        body.expr.read(input, &positions, bounds, when).map_err(|e| self.p.error_at(at, e))
    }

    /// A source with its indices. The registers of computed ones are added to `computed`.
    fn load(&mut self, computed: &mut Vec<Reg>) -> Result<Load> {
        let from = self.source()?;
        let at: IndexMap = self
            .list("[", "]", |s| match number(s.p.word(), 'r') {
                Some(n) => {
                    s.p.pos += 1;
                    computed.push(Reg(n));
                    Ok(Index::Computed)
                }
                None => s.affine().map(Index::Affine),
            })?
            .into_iter()
            .collect();
        Ok(Load { from, at })
    }

    /// `2 * i0 + i1 + (s0 - 1)`.
    fn affine(&mut self) -> Result<Affine> {
        let mut affine = Affine { start: Expr::Int(0), terms: SmallVec::new() };
        loop {
            let at = self.p.pos;
            if number(self.p.word(), 'i').is_some() {
                affine.terms.push((self.axis()?, Expr::Int(1)));
            } else {
                let size = if self.p.eat("(") {
                    let size = self.p.expr()?;
                    self.p.expect(")")?;
                    size
                } else {
                    Expr::Int(self.p.int()?)
                };
                if self.p.eat("*") {
                    affine.terms.push((self.axis()?, size));
                } else {
                    let sum = self.p.symbols.add(affine.start, size);
                    affine.start = sum.map_err(|e| self.p.error_at(at, e))?;
                }
            }
            if !self.p.eat("+") {
                return Ok(affine);
            }
        }
    }
}
