//! Prints graph text. `docs/graph-text.md` has the grammar; [`super::parse`] reads the text back.
//!
//! The printer accepts malformed graphs, because the verifier's errors show parts of them. An id
//! outside its table prints as `?`.

use super::Graph;
use super::types::{
    Arg, BindSource, Name, NodeId, Res, Stmt, StrId, TensorType, ValueId, ValueType,
};
use crate::sym::{Expr, SymTable, SymbolId, SymbolKind};
use crate::{Device, Layout, Scalar};
use std::fmt::{self, Display, Write};

impl Display for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Printer { g: self, w: f }.graph()
    }
}

impl Graph {
    /// A value's name, as graph text prints it after `%`.
    pub fn value_name(&self, value: ValueId) -> impl Display + '_ {
        struct ValueName<'g>(&'g Graph, ValueId);
        impl Display for ValueName<'_> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                Printer { g: self.0, w: f }.name(self.1)
            }
        }
        ValueName(self, value)
    }

    /// A type as graph text prints it: `f32[batch, 784] strides [1, 784]`.
    pub fn display_type(&self, ty: ValueType) -> impl Display + '_ {
        struct Type<'g>(&'g Graph, ValueType);
        impl Display for Type<'_> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                Printer { g: self.0, w: f }.value_type(self.1)
            }
        }
        Type(self, ty)
    }

    /// An argument or output as graph text prints it.
    pub fn display_arg(&self, arg: Arg) -> impl Display + '_ {
        struct OneArg<'g>(&'g Graph, Arg);
        impl Display for OneArg<'_> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                Printer { g: self.0, w: f }.arg(&self.1)
            }
        }
        OneArg(self, arg)
    }

    /// The statements around a node, for errors: up to `radius` on each side, one per line. A `>`
    /// marks the node's statement.
    pub fn window(&self, node: NodeId, radius: usize) -> String {
        match self.body.iter().position(|s| *s == Stmt::Node(node)) {
            Some(at) => self.window_at(at, radius),
            None => String::new(),
        }
    }

    /// The statements around statement number `at`, in the form of [`Graph::window`].
    pub fn window_at(&self, at: usize, radius: usize) -> String {
        let (from, to) = (
            at.saturating_sub(radius),
            at.saturating_add(radius).saturating_add(1).min(self.body.len()),
        );
        let mut text = String::new();
        for (i, stmt) in self.body.iter().enumerate().take(to).skip(from) {
            text.push_str(if i == at { "> " } else { "  " });
            // Writing to a `String` cannot fail.
            let _ = Printer { g: self, w: &mut text }.stmt(stmt);
            text.push('\n');
        }
        text
    }
}

/// Whether a symbol's name has the form of an unbacked symbol: `u` and digits. Other unbacked
/// symbols are declared as such in the text.
pub(super) fn names_unbacked(name: &str) -> bool {
    name.strip_prefix('u')
        .is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()))
}

/// Writes the declaration of a symbol: `s0 in [0, oo)`.
pub(crate) fn write_symbol(w: &mut impl Write, table: &SymTable, s: SymbolId) -> fmt::Result {
    let (name, kind) = (table.name(s), table.kind(s));
    match (kind, names_unbacked(name)) {
        (SymbolKind::Unbacked, false) => w.write_str("unbacked ")?,
        (SymbolKind::Backed, true) => w.write_str("backed ")?,
        _ => {}
    }
    write!(w, "{name} in {}", table.range(s))
}

struct Printer<'g, 'w, W: Write> {
    g: &'g Graph,
    w: &'w mut W,
}

impl<'g, W: Write> Printer<'g, '_, W> {
    fn graph(&mut self) -> fmt::Result {
        let g = self.g;
        write!(self.w, "graph {}(", self.str(g.name))?;
        self.separated(&g.inputs, |p, &input| p.definition(input))?;
        self.w.write_str(") -> (")?;
        self.separated(&g.outputs, |p, output| p.arg_type(output))?;
        self.w.write_str(")\n")?;
        let symbols: Vec<SymbolId> = g.symbols.symbols().collect();
        if !symbols.is_empty() {
            self.w.write_str("  where ")?;
            self.separated(&symbols, |p, &s| p.symbol(s))?;
            self.w.write_str("\n")?;
        }
        for &guard in &g.guards {
            writeln!(self.w, "  guard {}", g.symbols.display_bool(guard))?;
        }
        for c in &g.consts {
            self.w.write_str("  const ")?;
            self.definition(c.value)?;
            writeln!(self.w, " = sha256:{}", c.digest())?;
        }
        self.w.write_str("{\n")?;
        for stmt in &g.body {
            self.w.write_str("  ")?;
            self.stmt(stmt)?;
            self.w.write_str("\n")?;
        }
        self.w.write_str("  return ")?;
        if g.outputs.is_empty() {
            self.w.write_str("()")?;
        }
        self.separated(&g.outputs, |p, output| p.arg(output))?;
        self.w.write_str("\n}")
    }

    fn separated<T>(
        &mut self,
        items: &[T],
        mut item: impl FnMut(&mut Self, &T) -> fmt::Result,
    ) -> fmt::Result {
        for (i, x) in items.iter().enumerate() {
            if i > 0 {
                self.w.write_str(", ")?;
            }
            item(self, x)?;
        }
        Ok(())
    }

    fn symbol(&mut self, s: SymbolId) -> fmt::Result {
        write_symbol(self.w, &self.g.symbols, s)
    }

    fn stmt(&mut self, stmt: &Stmt) -> fmt::Result {
        match *stmt {
            Stmt::Node(node) => self.node(node),
            Stmt::Bind { symbol, value, source } => {
                write!(self.w, "bind {} = ", self.g.symbols.name(symbol))?;
                match source {
                    BindSource::Size(dim) => {
                        self.w.write_str("size(")?;
                        self.value(value)?;
                        write!(self.w, ", {dim})")
                    }
                    BindSource::Value => self.value(value),
                }
            }
            Stmt::Assert { cond, message } => {
                write!(self.w, "assert {}", self.g.symbols.display_bool(cond))?;
                match message {
                    Some(message) => {
                        self.w.write_char(' ')?;
                        self.string(message)
                    }
                    None => Ok(()),
                }
            }
        }
    }

    fn node(&mut self, node: NodeId) -> fmt::Result {
        let (g, scope) = (self.g, self.g.scope(node));
        let Some(node) = g.nodes.get(node.index()) else { return self.w.write_char('?') };
        let results = node.results.get(&g.results).unwrap_or_default();
        self.separated(results, |p, result| match *result {
            Res::Value(v) => p.definition(v),
            Res::List(values) => {
                p.w.write_char('[')?;
                for (i, v) in values.iter().enumerate() {
                    if i > 0 {
                        p.w.write_str(", ")?;
                    }
                    p.definition(v)?;
                }
                p.w.write_char(']')
            }
            Res::Absent => p.w.write_char('_'),
        })?;
        if !results.is_empty() {
            self.w.write_str(" = ")?;
        }
        write!(self.w, "{}(", self.str(node.op))?;
        let args = node.args.get(&g.args).unwrap_or_default();
        let kwargs = node.kwargs.get(&g.kwargs).unwrap_or_default();
        self.separated(args, |p, arg| p.arg(arg))?;
        if !args.is_empty() && !kwargs.is_empty() {
            self.w.write_str(", ")?;
        }
        self.separated(kwargs, |p, &(name, arg)| {
            write!(p.w, "{}=", p.str(name))?;
            p.arg(&arg)
        })?;
        self.w.write_str(")")?;
        self.w.write_str(if node.copies { " copy" } else { "" })?;
        if let Some(effect) = node.effect {
            write!(self.w, " {}", effect.map(|name| self.str(name)))?;
        }
        scope.map_or(Ok(()), |scope| write!(self.w, " @ {scope}"))
    }

    fn arg(&mut self, arg: &Arg) -> fmt::Result {
        match *arg {
            Arg::Value(v) => self.value(v),
            Arg::None => self.w.write_str("None"),
            Arg::Int(e) => self.expr(e),
            Arg::Float(x) => write!(self.w, "{}", Scalar::Float(x.get())),
            Arg::Bool(b) => write!(self.w, "{b}"),
            Arg::Str(s) => self.string(s),
            Arg::DType(d) => self.w.write_str(d.name()),
            Arg::Device(d) => write!(self.w, "device({d})"),
            Arg::Layout(l) => write!(self.w, "layout({l})"),
            Arg::MemoryFormat(m) => write!(self.w, "memory_format({m})"),
            Arg::List(list) => {
                self.w.write_char('[')?;
                self.separated(list.get(&self.g.args).unwrap_or_default(), |p, arg| p.arg(arg))?;
                self.w.write_char(']')
            }
        }
    }

    /// The type of an output, as the graph's signature prints it.
    fn arg_type(&mut self, arg: &Arg) -> fmt::Result {
        match *arg {
            Arg::Value(v) => match self.g.values.get(v.index()) {
                Some(value) => self.value_type(value.ty),
                None => self.w.write_char('?'),
            },
            Arg::Int(e) => self.value_type(ValueType::Int(e)),
            Arg::List(list) => {
                self.w.write_char('[')?;
                self.separated(list.get(&self.g.args).unwrap_or_default(), |p, arg| {
                    p.arg_type(arg)
                })?;
                self.w.write_char(']')
            }
            other => self.w.write_str(kind_name(&other)),
        }
    }

    fn definition(&mut self, v: ValueId) -> fmt::Result {
        self.value(v)?;
        self.w.write_str(": ")?;
        match self.g.values.get(v.index()) {
            Some(value) => self.value_type(value.ty),
            None => self.w.write_char('?'),
        }
    }

    fn value_type(&mut self, ty: ValueType) -> fmt::Result {
        match ty {
            ValueType::Tensor(id) => {
                match (self.g.types.get(id.index()), self.g.contiguous.get(id.index())) {
                    (Some(ty), Some(&contiguous)) => self.tensor_type(ty, contiguous),
                    _ => self.w.write_char('?'),
                }
            }
            ValueType::Int(e) => {
                self.w.write_str("int(")?;
                self.expr(e)?;
                self.w.write_char(')')
            }
            ValueType::Float => self.w.write_str("float"),
            ValueType::Bool => self.w.write_str("bool"),
            ValueType::Str => self.w.write_str("str"),
        }
    }

    fn tensor_type(&mut self, ty: &TensorType, contiguous: bool) -> fmt::Result {
        write!(self.w, "{}[", ty.dtype.name())?;
        self.separated(&ty.sizes, |p, &e| p.expr(e))?;
        self.w.write_char(']')?;
        if !contiguous {
            self.w.write_str(" strides [")?;
            self.separated(&ty.strides, |p, &e| p.expr(e))?;
            self.w.write_char(']')?;
        }
        if ty.offset != Expr::Int(0) {
            self.w.write_str(" offset ")?;
            self.expr(ty.offset)?;
        }
        if ty.device != Device::Cpu {
            write!(self.w, " device {}", ty.device)?;
        }
        if ty.layout != Layout::Strided {
            write!(self.w, " layout {}", ty.layout)?;
        }
        if ty.requires_grad {
            self.w.write_str(" requires_grad")?;
        }
        Ok(())
    }

    fn expr(&mut self, e: Expr) -> fmt::Result {
        match e {
            Expr::Int(n) => write!(self.w, "{n}"),
            e => write!(self.w, "{}", self.g.symbols.display(e)),
        }
    }

    fn value(&mut self, v: ValueId) -> fmt::Result {
        self.w.write_char('%')?;
        self.name(v)
    }

    fn name(&mut self, v: ValueId) -> fmt::Result {
        let Some(&Name { base, number }) = self.g.values.get(v.index()).map(|v| &v.name) else {
            return self.w.write_char('?');
        };
        self.w.write_str(self.str(base))?;
        if number == 0 { Ok(()) } else { write!(self.w, "_{number}") }
    }

    fn string(&mut self, s: StrId) -> fmt::Result {
        self.w.write_str(&quote(self.str(s)))
    }

    fn str(&self, s: StrId) -> &'g str {
        self.g.strings.get(s.index()).map_or("?", |s| s)
    }
}

/// A text as a string of graph text, with its quotes.
pub fn quote(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            c if is_invisible(c) => quoted.push_str(&format!("\\u{{{:x}}}", u32::from(c))),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

/// Whether a character has no visible form, so that a string prints it as an escape: controls,
/// zero-width characters, direction marks, line separators.
fn is_invisible(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}')
        || matches!(c, '\u{2060}'..='\u{206f}' | '\u{feff}')
}

/// The name of an argument's kind. A signature prints it as the type of a constant output.
pub(super) fn kind_name(arg: &Arg) -> &'static str {
    match arg {
        Arg::Value(_) => "value",
        Arg::None => "None",
        Arg::Int(_) => "int",
        Arg::Float(_) => "float",
        Arg::Bool(_) => "bool",
        Arg::Str(_) => "str",
        Arg::DType(_) => "dtype",
        Arg::Device(_) => "device",
        Arg::Layout(_) => "layout",
        Arg::MemoryFormat(_) => "memory_format",
        Arg::List(_) => "list",
    }
}
