//! Statements of the body.

use super::{Parser, Result};
use crate::Effect;
use crate::graph::MAX_KWARGS;
use crate::graph::build::ResultSpec;
use crate::graph::info::{NodeInfo, is_scope};
use crate::graph::lex::Kind;
use crate::graph::types::{Arg, BindSource, Name, StrId, ValueType};
use smallvec::SmallVec;

/// One result on the left-hand side of a call, with its number of values.
enum Group {
    Value,
    List(usize),
    Absent,
}

impl<'t> Parser<'t> {
    /// Parses a statement of the body.
    pub(super) fn stmt(&mut self) -> Result<()> {
        if self.eat_word("bind") {
            let at = self.pos;
            let name = self.ident("the symbol to bind")?;
            let Some(symbol) = self.symbols.lookup(name) else {
                return Err(self.error_at(
                    at,
                    format!("undeclared symbol `{name}`; declare it in the `where` clause"),
                ));
            };
            self.expect("=")?;
            if self.eat_word("size") {
                self.expect("(")?;
                let value = self.value()?;
                self.expect(",")?;
                let at = self.pos;
                let dim = self
                    .take(Kind::Int, "a dimension")?
                    .parse()
                    .map_err(|e| self.error_at(at, e))?;
                self.expect(")")?;
                self.builder.bind(symbol, value, BindSource::Size(dim));
            } else {
                let value = self.value()?;
                self.builder.bind(symbol, value, BindSource::Value);
            }
            Ok(())
        } else if self.eat_word("assert") {
            let cond = self.condition()?;
            let message = if self.peek().kind == Kind::Str { Some(self.string()?) } else { None };
            self.builder.assert_(cond, message.as_deref(), None);
            Ok(())
        } else {
            self.call()
        }
    }

    /// Parses a call and its results.
    fn call(&mut self) -> Result<()> {
        let mut groups: SmallVec<[Group; 2]> = SmallVec::new();
        let mut names: SmallVec<[(&'t str, Name); 2]> = SmallVec::new();
        let mut types: SmallVec<[ValueType; 2]> = SmallVec::new();
        if self.peek().kind != Kind::Op {
            loop {
                if self.eat_word("_") {
                    groups.push(Group::Absent);
                } else if self.eat("[") {
                    let before = names.len();
                    self.list_until(Some("]"), |p| {
                        names.push(p.new_name()?);
                        types.push(p.value_type()?);
                        Ok(())
                    })?;
                    groups.push(Group::List(names.len() - before));
                } else if self.peek().kind == Kind::Value {
                    names.push(self.new_name()?);
                    types.push(self.value_type()?);
                    groups.push(Group::Value);
                } else {
                    return Err(self.expected("a statement: a call, `bind`, `assert` or `return`"));
                }
                if !self.eat(",") {
                    break;
                }
            }
            self.expect("=")?;
        }
        let op = self.take(Kind::Op, "an operator such as `namespace::name`")?;
        let op = self.builder.intern(op);
        self.expect("(")?;
        let (args, kwargs) = self.call_args()?;
        let mut remaining: &[ValueType] = &types;
        let mut next = |n: usize| {
            let (taken, later) = remaining.split_at(n.min(remaining.len()));
            remaining = later;
            taken
        };
        let specs: SmallVec<[ResultSpec<'_>; 2]> = groups
            .iter()
            .map(|group| match group {
                Group::Value => {
                    next(1).first().map_or(ResultSpec::Absent, |&ty| ResultSpec::Value(ty))
                }
                Group::List(n) => ResultSpec::List(next(*n)),
                Group::Absent => ResultSpec::Absent,
            })
            .collect();
        let created = self.builder.push_node(op, &args, &kwargs, &specs, NodeInfo::default());
        if self.eat_word("copy") {
            self.builder.set_copies(created.node);
        }
        if self.eat_word("effect") {
            let resource = if self.eat("(") { Some(self.string()?) } else { None };
            if resource.is_some() {
                self.expect(")")?;
            }
            let effect = resource.as_deref().map_or(Effect::Ordered, Effect::On);
            self.builder.set_effect(created.node, effect);
        }
        if self.peek().kind == Kind::Scope {
            let scope = self.scope()?;
            self.builder.info.set_scope(created.node, scope);
        }
        for (value, (text, name)) in created.values.iter().zip(names) {
            self.builder.name_value(value, name);
            self.values.insert(text, value);
        }
        Ok(())
    }

    /// Parses `@ path`: names and numbers with dots between them.
    fn scope(&mut self) -> Result<&'t str> {
        let at = self.pos;
        let scope = self.take(Kind::Scope, "a scope")?;
        match is_scope(scope) {
            true => Ok(scope),
            false => Err(self.error_at(
                at,
                "expected a scope after `@`: names and numbers with dots between them",
            )),
        }
    }

    /// Parses positional arguments, then keyword arguments.
    #[allow(clippy::type_complexity)]
    fn call_args(&mut self) -> Result<(SmallVec<[Arg; 8]>, SmallVec<[(StrId, Arg); 4]>)> {
        let (mut args, mut kwargs): (SmallVec<[Arg; 8]>, SmallVec<[(StrId, Arg); 4]>) =
            Default::default();
        self.list_until(Some(")"), |p| {
            if p.peek().kind == Kind::Ident && p.token_text(p.nth(1)) == "=" {
                let at = p.pos;
                let name = p.ident("a keyword")?;
                let name = p.builder.intern(name);
                if kwargs.len() == MAX_KWARGS {
                    return Err(p.error_at(
                        at,
                        format!("the call has more than {MAX_KWARGS} keyword arguments"),
                    ));
                }
                if kwargs.iter().any(|(n, _)| *n == name) {
                    return Err(p.error_at(at, "duplicate keyword argument"));
                }
                p.expect("=")?;
                kwargs.push((name, p.arg(0)?));
            } else if kwargs.is_empty() {
                args.push(p.arg(0)?);
            } else {
                return Err(
                    p.error_at(p.pos, "a positional argument cannot follow a keyword argument")
                );
            }
            Ok(())
        })?;
        Ok((args, kwargs))
    }
}
