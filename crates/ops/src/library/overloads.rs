//! Keyword arguments, and overload resolution by the types of the arguments.

use super::op::Op;
use super::registry;
use crate::dispatch::coerce_args::{coerce_args, matches_schema};
use crate::dispatch::value::{Args, Value};
use crate::error::{CallError, Error, ErrorKind, Result};
use maquette_ir::Loc;
use maquette_ir::schema::{Schema, closest};
use smallvec::SmallVec;

/// Keyword arguments.
pub type Kwargs = SmallVec<[(&'static str, Value); 4]>;

/// Boxes keyword arguments for [`ops::call_kw`](crate::call_kw): `kwargs![alpha = 2.0, out = &y]`.
#[macro_export]
macro_rules! kwargs {
    ($($name:ident = $e:expr),* $(,)?) => {{
        #[allow(unused_mut)]
        let mut kwargs = $crate::Kwargs::new();
        $(kwargs.push((::std::stringify!($name), $crate::Value::from($e)));)*
        kwargs
    }};
}

/// Merges positional and keyword arguments in the schema's order. A missing argument before a
/// keyword argument gets its default. Trailing defaults are omitted.
pub(crate) fn complete(op: Op, mut args: Args, mut kwargs: Kwargs) -> Result<Args> {
    let state = op.state()?;
    if kwargs.is_empty() {
        return Ok(args);
    }
    let names: SmallVec<[&str; 8]> = kwargs.iter().map(|(name, _)| *name).collect();
    append_keywords(&state.schema, &mut args, &names, |i| {
        Ok(std::mem::replace(&mut kwargs[i].1, Value::None))
    })?;
    Ok(args)
}

/// Appends the arguments that keywords give to the positional ones. `value` is the value of a
/// keyword, by its index in `names`. A missing argument before a keyword argument gets its default.
/// Trailing defaults are omitted.
pub(super) fn append_keywords(
    schema: &Schema,
    args: &mut Args,
    names: &[&str],
    mut value: impl FnMut(usize) -> Result<Value>,
) -> Result<()> {
    check_keywords(schema, args.len(), names)?;
    let mut left = names.len();
    for (index, decl) in schema.args.iter().enumerate().skip(args.len()) {
        if left == 0 {
            break;
        }
        args.push(match names.iter().position(|name| *name == decl.name) {
            Some(i) => {
                left -= 1;
                value(i)?
            }
            None => super::default_value(decl).ok_or_else(|| CallError::Missing {
                arg: decl.name.clone(),
                index,
                expected: decl.ty.to_string(),
                schema: schema.to_string(),
            })?,
        });
    }
    Ok(())
}

/// Requires the keywords of a call to be distinct arguments after the positional ones.
fn check_keywords(schema: &Schema, positional: usize, names: &[&str]) -> Result<()> {
    for (i, &name) in names.iter().enumerate() {
        let twice = |index: usize, how| CallError::GivenTwice {
            arg: name.into(),
            index,
            how,
            schema: schema.to_string(),
        };
        let Some(index) = schema.arg_index(name) else {
            let similar = closest(name, schema.args.iter().map(|a| a.name.as_str()))
                .map(str::to_owned)
                .into_iter()
                .collect();
            return Err(CallError::UnknownKeyword {
                keyword: name.into(),
                similar,
                schema: schema.to_string(),
            }
            .into());
        };
        if index < positional {
            return Err(twice(index, "by position and by keyword").into());
        }
        if names[..i].contains(&name) {
            return Err(twice(index, "by keyword").into());
        }
    }
    Ok(())
}

/// Selects the overload of `name` for the arguments. A name with an overload name selects that
/// overload. Otherwise the order of preference is: the overload without a name, if it is the only
/// one or matches; the first overload that matches; the first that accepts the arguments after
/// conversion.
pub(crate) fn resolve(name: &str, args: Args, kwargs: Kwargs, loc: Loc) -> Result<(Op, Args)> {
    let itself = registry::find(name);
    match itself {
        Ok(op)
            if name.contains('.') || kwargs.is_empty() && matches_schema(&*op.state()?, &args) =>
        {
            only(op, args, kwargs, loc)
        }
        _ => choose(name, itself, args, kwargs, loc),
    }
}

/// Selects the only candidate. Dispatch reports arguments that do not fit.
fn only(op: Op, args: Args, kwargs: Kwargs, loc: Loc) -> Result<(Op, Args)> {
    let args = complete(op, args, kwargs).map_err(|e| e.in_call(op.shared_name(), loc))?;
    Ok((op, args))
}

/// Tries all overloads in order; see [`resolve`].
#[cold]
fn choose(
    name: &str,
    itself: Result<Op>,
    args: Args,
    kwargs: Kwargs,
    loc: Loc,
) -> Result<(Op, Args)> {
    let candidates = registry::overloads(name);
    match (itself, candidates.as_slice()) {
        (Ok(op), [_]) => return only(op, args, kwargs, loc),
        // The name is unknown, or its static registration failed.
        (Err(e), []) => return Err(e.at(loc)),
        _ => {}
    }
    let mut converted: Option<(Op, Args)> = None;
    let (mut rejected, mut removed) = (Vec::new(), None);
    for op in candidates {
        let attempt = || -> Result<(Args, bool)> {
            let full = complete(op, args.clone(), kwargs.clone())?;
            let state = op.state()?;
            let matches = matches_schema(&state, &full);
            coerce_args(&state, &mut full.clone())?;
            Ok((full, matches))
        };
        match attempt() {
            Ok((full, true)) => return Ok((op, full)),
            Ok((full, false)) => converted = converted.or(Some((op, full))),
            // Another thread has just dropped the library that defined this overload.
            Err(e) if matches!(e.kind(), ErrorKind::Call(CallError::Unknown { .. })) => {
                removed = Some(e)
            }
            Err(e) => rejected.push(reason(op, &e)),
        }
    }
    if let (Some(e), true, None) = (removed, rejected.is_empty(), &converted) {
        return Err(e.at(loc));
    }
    let none = CallError::NoOverload { name: name.into(), tried: rejected };
    converted.ok_or_else(|| Error::from(none).at(loc))
}

/// An overload and the reason that it rejects the arguments, on one line.
fn reason(op: Op, e: &Error) -> String {
    let text = e.kind().to_string();
    let why = text.split("; its schema is").next().unwrap_or(&text);
    match op.schema() {
        Ok(schema) => format!("{schema}: {why}"),
        Err(_) => format!("{}: {why}", op.name()),
    }
}
