//! Calls by name with keywords, and calls that leave the choice of an overload to the arguments.

use super::op::Op;
use super::registry;
use crate::dispatch::coerce_args::{coerce_args, matches_schema};
use crate::dispatch::value::{Args, Value};
use crate::error::{CallError, Error, ErrorKind, Result};
use maquette_ir::Loc;
use maquette_ir::schema::{Schema, closest};
use smallvec::SmallVec;

/// Arguments by keyword.
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

/// All arguments in the schema's order: those by position, then those by keyword, defaults where a
/// later one is given. Trailing defaults are left out.
pub(crate) fn complete(op: Op, mut args: Args, mut kwargs: Kwargs) -> Result<Args> {
    let state = op.state()?;
    let schema = &state.schema;
    if kwargs.is_empty() {
        return Ok(args);
    }
    check_keywords(schema, args.len(), &kwargs)?;
    for (index, decl) in schema.args.iter().enumerate().skip(args.len()) {
        if kwargs.is_empty() {
            break;
        }
        match kwargs.iter().position(|(name, _)| *name == decl.name) {
            Some(i) => args.push(kwargs.swap_remove(i).1),
            None => args.push(super::default_value(decl).ok_or_else(|| CallError::Missing {
                arg: decl.name.clone(),
                index,
                expected: decl.ty.to_string(),
                schema: schema.to_string(),
            })?),
        }
    }
    Ok(args)
}

fn check_keywords(schema: &Schema, positional: usize, kwargs: &Kwargs) -> Result<()> {
    for (i, (name, _)) in kwargs.iter().enumerate() {
        let twice = |index: usize, how| CallError::GivenTwice {
            arg: (*name).into(),
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
                keyword: (*name).into(),
                similar,
                schema: schema.to_string(),
            }
            .into());
        };
        if index < positional {
            return Err(twice(index, "by position and by keyword").into());
        }
        if kwargs.iter().take(i).any(|(n, _)| n == name) {
            return Err(twice(index, "by keyword").into());
        }
    }
    Ok(())
}

/// The overload of `name` that takes the arguments: the operator itself if it does or is the only
/// one, else the first that takes them as they are, else the first that takes them converted. A
/// name with an overload stands for that one.
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

/// There is no choice: the operator, and whatever is wrong with the arguments.
fn only(op: Op, args: Args, kwargs: Kwargs, loc: Loc) -> Result<(Op, Args)> {
    let args = complete(op, args, kwargs).map_err(|e| e.in_call(op.shared_name(), loc))?;
    Ok((op, args))
}

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
        // a failed registration, or nothing of this name
        (Err(e), []) => return Err(e.at(loc)),
        _ => {}
    }
    let mut converted: Option<(Op, Args)> = None;
    let (mut tried, mut gone) = (Vec::new(), None);
    for op in candidates {
        let attempt = || -> Result<(Args, bool)> {
            let full = complete(op, args.clone(), kwargs.clone())?;
            let state = op.state()?;
            let as_is = matches_schema(&state, &full);
            coerce_args(&state, &mut full.clone())?;
            Ok((full, as_is))
        };
        match attempt() {
            Ok((full, true)) => return Ok((op, full)),
            Ok((full, false)) => converted = converted.or(Some((op, full))),
            // another thread dropped the library that defined it
            Err(e) if matches!(e.kind(), ErrorKind::Call(CallError::Unknown { .. })) => {
                gone = Some(e)
            }
            Err(e) => tried.push(reason(op, &e)),
        }
    }
    if let (Some(e), true, None) = (gone, tried.is_empty(), &converted) {
        return Err(e.at(loc));
    }
    converted.ok_or_else(|| Error::from(CallError::NoOverload { name: name.into(), tried }).at(loc))
}

/// An overload and why it does not take the arguments, on one line.
fn reason(op: Op, e: &Error) -> String {
    let text = e.kind().to_string();
    let why = text.split("; its schema is").next().unwrap_or(&text);
    match op.schema() {
        Ok(schema) => format!("{schema}: {why}"),
        Err(_) => format!("{}: {why}", op.name()),
    }
}
