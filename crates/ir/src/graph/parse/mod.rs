//! The parser of graph text: recursive descent over the tokens of [`super::lex`], which builds the
//! graph through [`GraphBuilder`].
//!
//! The signature contains symbols that the `where` clause after it declares. The parser therefore
//! skips the signature, reads the `where` clause, and then returns to the signature. No input makes
//! the parser panic or use more than linear memory; nesting is bounded.

mod args;
mod cursor;
mod stmts;

pub use args::unquote;
pub use cursor::{ParseError, TextPosition};

use super::build::GraphBuilder;
use super::canonicalize::is_reserved;
use super::lex::{Kind, Token, lex};
use super::print::{kind_name, names_unbacked};
use super::types::{Arg, Name, ValueId, ValueType};
use super::{Digest, Graph, MAX_LIST_DEPTH};
use crate::sym::{Expr, Range, SymTable, SymbolKind};
use crate::{DType, Device, Layout, MemoryFormat};
use rustc_hash::FxHashMap;
use std::str::FromStr;
use std::sync::Arc;

/// The longest accepted text, in bytes.
pub const MAX_TEXT: usize = 1 << 28;

impl FromStr for Graph {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Graph, ParseError> {
        Graph::parse(text)
    }
}

impl Graph {
    /// Parses a graph. The result may be invalid: see [`Graph::verify`].
    ///
    /// # Errors
    /// The text does not match the grammar, or contains a value or symbol that it does not define.
    pub fn parse(text: &str) -> Result<Graph, ParseError> {
        Parser::of_text(text, SymTable::new(), FxHashMap::default())?.graph()
    }

    /// Parses a graph as [`Graph::parse`] does, and gives the position of each statement.
    ///
    /// # Errors
    /// As [`Graph::parse`].
    pub fn parse_with_positions(text: &str) -> Result<(Graph, Vec<TextPosition>), ParseError> {
        let mut parser = Parser::of_text(text, SymTable::new(), FxHashMap::default())?;
        let graph = parser.graph()?;
        let mut positions = Vec::with_capacity(graph.body().len());
        let (mut at, mut seen) = (TextPosition { line: 1, column: 1 }, 0);
        for &token in &parser.statements {
            let start = parser.start_of(token);
            // one pass over the text, however many statements share a line
            for c in text.get(seen..start).unwrap_or_default().chars() {
                at = match c {
                    '\n' => TextPosition { line: at.line + 1, column: 1 },
                    _ => TextPosition { column: at.column + 1, ..at },
                };
            }
            seen = start;
            positions.push(at);
        }
        Ok((graph, positions))
    }
}

type Result<T, E = ParseError> = std::result::Result<T, E>;

/// The declared type of an output in the signature.
#[derive(Debug, PartialEq)]
enum OutputType {
    Value(ValueType),
    Other(&'static str),
    List(Vec<OutputType>),
}

/// The tokens of a text and the position of the parser, shared with the text form of plans.
pub(crate) struct Parser<'t> {
    text: &'t str,
    tokens: Vec<Token>,
    pub(crate) pos: usize,
    builder: GraphBuilder,
    pub(crate) symbols: SymTable,
    values: FxHashMap<&'t str, ValueId>,
    /// Parsed expressions by their text: most types repeat the same few expressions.
    exprs: FxHashMap<&'t str, Expr>,
    /// The tokens at which statements begin.
    statements: Vec<usize>,
}

impl<'t> Parser<'t> {
    /// A parser of a text that contains these symbols and values.
    pub(crate) fn of_text(
        text: &'t str,
        symbols: SymTable,
        values: FxHashMap<&'t str, ValueId>,
    ) -> Result<Parser<'t>> {
        if text.len() > MAX_TEXT {
            let message =
                format!("expected a text of at most {MAX_TEXT} bytes, found {}", text.len());
            return Err(ParseError::new("", 0, message));
        }
        Ok(Parser {
            text,
            tokens: lex(text).map_err(|(at, message)| ParseError::new(text, at, message))?,
            pos: 0,
            builder: GraphBuilder::new("graph"),
            symbols,
            values,
            exprs: FxHashMap::default(),
            statements: Vec::new(),
        })
    }

    /// Parses a graph.
    fn graph(&mut self) -> Result<Graph> {
        self.newline();
        self.keyword("graph")?;
        let name = self.ident("the graph's name")?;
        self.builder = GraphBuilder::new(name);
        let signature = self.pos;
        self.skip_group()?;
        self.expect("->")?;
        self.skip_group()?;
        self.newline();
        if self.eat_word("where") {
            self.list_until(None, |p| p.symbol())?;
            self.newline();
        }
        let clauses = std::mem::replace(&mut self.pos, signature);
        self.expect("(")?;
        self.list_until(Some(")"), |p| {
            let name = p.new_name()?;
            let ty = p.value_type()?;
            let value = p.builder.push_input(ty, name.1);
            p.values.insert(name.0, value);
            Ok(())
        })?;
        self.expect("->")?;
        self.expect("(")?;
        let results = self.pos;
        let mut starts = Vec::new();
        let declared = self.output_types(")", 0, &mut starts)?;
        self.pos = clauses;
        self.clauses()?;
        self.expect("{")?;
        self.newline();
        while !self.eat_word("return") {
            self.statements.push(self.pos);
            self.stmt()?;
            self.end_of_line()?;
        }
        let at = self.pos;
        let outputs = self.outputs()?;
        self.newline();
        self.expect("}")?;
        self.newline();
        if self.peek().kind != Kind::End {
            return Err(self.expected("the end of the text"));
        }
        let returned: Vec<OutputType> = outputs.iter().map(|o| self.output_type(*o)).collect();
        if returned.len() != declared.len() {
            let (declared, returned) = (declared.len(), returned.len());
            let message =
                format!("the signature declares {declared} results, but {returned} are returned");
            return Err(self.error_at(results, message));
        }
        let differs = |(declared, returned): (&OutputType, &OutputType)| declared != returned;
        if let Some(i) = declared.iter().zip(&returned).position(differs) {
            let message =
                format!("result {i} is declared with another type than the returned value has");
            return Err(self.error_at(starts.get(i).copied().unwrap_or(results), message));
        }
        let (text, at) = (self.text, self.start_of(at));
        let builder = std::mem::replace(&mut self.builder, GraphBuilder::new(""));
        builder
            .finish(&self.symbols, &outputs)
            .map_err(|e| ParseError::new(text, at, e.to_string()))
    }

    /// Parses a declaration of the `where` clause: `n in [1, 64]`, `unbacked rows in [0, oo)`.
    pub(crate) fn symbol(&mut self) -> Result<()> {
        let marker = match self.word() {
            "unbacked" => Some(SymbolKind::Unbacked),
            "backed" => Some(SymbolKind::Backed),
            _ => None,
        };
        // Either word may itself be a symbol's name; then `in` and a bracket follow.
        let marker =
            marker.filter(|_| self.nth(1).kind == Kind::Ident && self.nth(2).kind == Kind::Ident);
        if marker.is_some() {
            self.pos += 1;
        }
        let at = self.pos;
        let name = self.ident("a symbol")?;
        if is_reserved(name) {
            return Err(self.error_at(
                at,
                format!(
                    "a symbol cannot be named `{name}`: the name is a reserved word of graph text"
                ),
            ));
        }
        let by_name = if names_unbacked(name) { SymbolKind::Unbacked } else { SymbolKind::Backed };
        self.keyword("in")?;
        let lo = if self.eat("(") {
            self.expect("-")?;
            self.keyword("oo")?;
            i64::MIN
        } else {
            self.expect("[")?;
            self.int()?
        };
        self.expect(",")?;
        let hi = if self.eat_word("oo") {
            self.expect(")")?;
            i64::MAX
        } else {
            let hi = self.int()?;
            self.expect("]")?;
            hi
        };
        let declared = self.symbols.symbol(name, marker.unwrap_or(by_name), Range { lo, hi });
        declared.map(|_| ()).map_err(|e| self.error_at(at, e))
    }

    /// Parses guards and constants.
    fn clauses(&mut self) -> Result<()> {
        loop {
            self.newline();
            if self.eat_word("guard") {
                let cond = self.condition()?;
                self.builder.guard(cond, None);
            } else if self.eat_word("const") {
                let (text, name) = self.new_name()?;
                let at = self.pos;
                let ValueType::Tensor(ty) = self.value_type()? else {
                    return Err(self.error_at(at, "expected a tensor type for the constant"));
                };
                self.expect("=")?;
                let token = self.take(Kind::Digest, "`sha256:` and 16 hexadecimal digits")?;
                let digest =
                    u64::from_str_radix(token, 16).map_err(|e| self.error_at(self.pos, e))?;
                let value =
                    self.builder.push_const(ty, Arc::new(Digest(digest.to_be_bytes())), name);
                self.values.insert(text, value);
            } else {
                return Ok(());
            }
        }
    }

    /// Parses the outputs after `return`.
    fn outputs(&mut self) -> Result<Vec<Arg>> {
        let mut outputs = Vec::new();
        if self.eat("(") {
            if self.eat(")") {
                return Ok(outputs);
            }
            self.pos -= 1; // an expression in parentheses
        }
        self.list_until(None, |p| {
            outputs.push(p.arg(0)?);
            Ok(())
        })?;
        Ok(outputs)
    }

    /// Parses the types of outputs in the signature, including the closing `close`. Adds the token
    /// at which each type starts to `starts`.
    fn output_types(
        &mut self,
        close: &'static str,
        depth: usize,
        starts: &mut Vec<usize>,
    ) -> Result<Vec<OutputType>> {
        let mut output_types = Vec::new();
        self.list_until(Some(close), |p| {
            let others = [
                Arg::None,
                DType::F32.into(),
                Device::Cpu.into(),
                Layout::Strided.into(),
                MemoryFormat::Preserve.into(),
            ];
            starts.push(p.pos);
            output_types.push(if p.eat("[") {
                if depth == MAX_LIST_DEPTH {
                    return Err(p.error_at(
                        p.pos,
                        format!("lists are nested more than {MAX_LIST_DEPTH} levels deep"),
                    ));
                }
                OutputType::List(p.output_types("]", depth + 1, &mut Vec::new())?)
            } else if let Some(other) = others.iter().map(kind_name).find(|name| *name == p.word())
            {
                p.pos += 1;
                OutputType::Other(other)
            } else {
                OutputType::Value(p.value_type()?)
            });
            Ok(())
        })?;
        Ok(output_types)
    }

    /// The signature's type of an actual output.
    fn output_type(&self, arg: Arg) -> OutputType {
        match arg {
            Arg::Value(v) => {
                self.builder.value_type(v).map_or(OutputType::Other("value"), OutputType::Value)
            }
            Arg::Int(e) => OutputType::Value(ValueType::Int(e)),
            Arg::Float(_) => OutputType::Value(ValueType::Float),
            Arg::Bool(_) => OutputType::Value(ValueType::Bool),
            Arg::Str(_) => OutputType::Value(ValueType::Str),
            Arg::List(list) => OutputType::List(
                list.get(&self.builder.args)
                    .unwrap_or_default()
                    .iter()
                    .map(|a| self.output_type(*a))
                    .collect(),
            ),
            other => OutputType::Other(kind_name(&other)),
        }
    }

    /// Parses `%name:` of a new value.
    fn new_name(&mut self) -> Result<(&'t str, Name)> {
        let at = self.pos;
        let text = self.take(Kind::Value, "the name of a value, such as `%x`")?;
        let Some(name) = self.builder.take_name(text) else {
            return Err(self.error_at(at, format!("duplicate definition of `%{text}`")));
        };
        self.expect(":")?;
        Ok((text, name))
    }
}
