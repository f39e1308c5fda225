//! Infers schemas from kernel signatures, and checks signatures against schemas.

use super::registrations::Definition;
use super::tags::{Tag, TagSet};
use super::typed::{IntoKernel, Signature};
use crate::error::{Error, RegisterError, Result};
use maquette_ir::schema::{Alias, Arg, OpName, Ret, Schema, Type};
use std::str::FromStr;

/// The schema that [`custom_op`](super::custom_op) infers for a kernel.
///
/// ```
/// use maquette_ops::{Result, Tensor, library::infer_schema};
/// let kernel = |x: &mut Tensor, n: i64| -> Result<()> { Ok(()) };
/// let schema = infer_schema("doc::add_", &kernel, ["x", "n"])?;
/// assert_eq!(schema.to_string(), "doc::add_(Tensor(a0!) x, SymInt n) -> ()");
/// # Ok::<(), maquette_ops::Error>(())
/// ```
///
/// # Errors
/// The name or an argument's name does not parse, or two arguments have one name.
pub fn infer_schema<M, F: IntoKernel<M>>(
    name: &str,
    _kernel: &F,
    arg_names: impl IntoIterator<Item = impl Into<String>>,
) -> Result<Schema> {
    let names: Vec<String> = arg_names.into_iter().map(Into::into).collect();
    infer(OpName::from_str(name)?, &F::signature(), &names, TagSet::default(), false)
}

/// The schema of a signature. Each mutated argument gets its own alias set: `Tensor(a0!) x`. With
/// [`Tag::Inplace`] and [`Tag::Out`], the mutated arguments are the returns. With [`Tag::Out`],
/// they are also keyword-only.
pub(super) fn infer(
    name: OpName,
    signature: &Signature,
    names: &[String],
    tags: TagSet,
    mutates_unknown: bool,
) -> Result<Schema> {
    let schema = of_signature(name, signature, names, tags, mutates_unknown);
    let Schema { name, args, returns } = schema;
    let invalid =
        |detail: String| Error::from(RegisterError::Invalid { op: name.to_string(), detail });
    if names.len() > args.len() {
        return Err(invalid(format!(
            "the argument `{}` is named, but its kernel takes only {}",
            names[args.len()],
            args.len()
        )));
    }
    if let Some(i) = args.iter().position(|a| a.kwarg_only)
        && let Some(late) = args.iter().skip(i).find(|a| !a.kwarg_only)
    {
        let detail = format!(
            "with the tag `out` the mutated arguments are keyword-only and come last, but `{}` \
                follows `{}`",
            late.name, args[i].name
        );
        return Err(invalid(detail));
    }
    Ok(Schema::new(name, args, returns)?)
}

fn of_signature(
    name: OpName,
    signature: &Signature,
    names: &[String],
    tags: TagSet,
    mutates_unknown: bool,
) -> Schema {
    let out = tags.contains(Tag::Out);
    let args: Vec<Arg> = signature
        .args
        .iter()
        .enumerate()
        .map(|(i, (ty, mutated))| {
            let written = *mutated || mutates_unknown && ty.is_tensors();
            Arg {
                name: names.get(i).cloned().unwrap_or_else(|| format!("arg{i}")),
                ty: ty.clone(),
                alias: written.then(|| Alias::named(&format!("a{i}"), true)),
                default: None,
                kwarg_only: written && out,
            }
        })
        .collect();
    let plain = |ty: &Type| Ret { name: None, ty: ty.clone(), alias: None };
    let returned = args
        .iter()
        .filter(|a| a.is_written())
        .map(|a| Ret { alias: a.alias.clone(), ..plain(&a.ty) });
    let all_tensors = signature.returns.iter().all(|t| *t == Type::Tensor);
    let returns: Vec<Ret> =
        if tags.contains(Tag::Inplace) && all_tensors && signature.returns.len() <= 1 {
            returned.take(1).collect()
        } else if out
            && all_tensors
            && [0, args.iter().filter(|a| a.is_written()).count()]
                .contains(&signature.returns.len())
        {
            returned.collect()
        } else {
            signature.returns.iter().map(plain).collect()
        };
    Schema { name, args, returns }
}

/// Checks the argument names of a kernel against the definition. Two arguments of one type that the
/// schema has in the other order would otherwise be exchanged by a caller who knows the schema.
pub(super) fn check_names(
    definition: &Definition,
    names: &[String],
    kernel: Option<&Signature>,
) -> Result<()> {
    let schema = &definition.schema;
    // The registration reports other types, with the kernel's device.
    if kernel.is_some_and(|found| check_signature(definition, found, "kernel").is_err()) {
        return Ok(());
    }
    // A kernel marks an argument that it does not use, and no Rust argument can be called `self`.
    let same = |declared: &str, name: &str| {
        declared == "self" || declared.trim_matches('_') == name.trim_matches('_')
    };
    let differs = |(arg, name): &(&Arg, &String)| !same(&arg.name, name);
    let detail = match schema.args.iter().zip(names).enumerate().find(|(_, pair)| differs(pair)) {
        Some((i, (arg, name))) => {
            format!("argument {i} is `{}` in the schema, `{name}` in the kernel", arg.name)
        }
        None => match names.get(schema.args.len()) {
            Some(name) => format!(
                "the argument `{name}` is named, but the schema has only {}",
                schema.args.len()
            ),
            None => return Ok(()),
        },
    };
    Err(match kernel {
        Some(found) => mismatch(definition, found, names, "kernel", detail),
        None => RegisterError::Invalid { op: schema.name.to_string(), detail }.into(),
    })
}

/// The error that a kernel's signature and the definition disagree.
fn mismatch(
    definition: &Definition,
    found: &Signature,
    names: &[String],
    what: &str,
    detail: String,
) -> Error {
    let Definition { schema, facts, mutates_unknown, .. } = definition;
    let inferred = of_signature(schema.name.clone(), found, names, facts.tags, *mutates_unknown);
    RegisterError::SchemaMismatch {
        op: schema.name.to_string(),
        what: what.to_owned(),
        inferred: inferred.to_string(),
        declared: schema.to_string(),
        detail,
    }
    .into()
}

/// Checks the signature of a typed kernel against the definition. `what` names the kernel in
/// errors. To a kernel, `int` and `SymInt` are the same type, a fixed-length list is a list, and a
/// `Scalar` may be a float.
pub(super) fn check_signature(
    definition: &Definition,
    found: &Signature,
    what: &str,
) -> Result<()> {
    fn same(declared: &Type, rust: &Type) -> bool {
        match (declared, rust) {
            (Type::Optional(a), Type::Optional(b)) | (Type::List(a, _), Type::List(b, _)) => {
                same(a, b)
            }
            (Type::Int | Type::SymInt, Type::Int | Type::SymInt) | (Type::Scalar, Type::Float) => {
                true
            }
            (a, b) => a == b,
        }
    }
    let Definition { schema, facts, mutates_unknown, .. } = definition;
    let mismatch = |detail: String| {
        let names: Vec<String> = schema.args.iter().map(|a| a.name.clone()).collect();
        mismatch(definition, found, &names, what, detail)
    };
    if schema.args.len() != found.args.len() {
        return Err(mismatch(format!(
            "the kernel takes {} arguments, the schema has {}",
            found.args.len(),
            schema.args.len()
        )));
    }
    for (i, (a, (ty, mutated))) in schema.args.iter().zip(&found.args).enumerate() {
        if !same(&a.ty, ty) {
            return Err(mismatch(format!(
                "argument {i} `{}` is {} in the schema, {ty} in the kernel",
                a.name, a.ty
            )));
        }
        if a.is_written() != *mutated && !mutates_unknown {
            let (says, takes) = if *mutated { ("read-only", "`&mut`") } else { ("mutated", "`&`") };
            return Err(mismatch(format!(
                "argument {i} `{}` is {says} in the schema, but the kernel takes it by {takes}",
                a.name
            )));
        }
    }
    if facts.tags.returns_arguments() && found.returns.is_empty() {
        return Ok(());
    }
    if schema.returns.len() != found.returns.len()
        || schema.returns.iter().zip(&found.returns).any(|(r, ty)| !same(&r.ty, ty))
    {
        return Err(mismatch("the returns differ".into()));
    }
    Ok(())
}
