//! The rules that tags impose on a schema, and the tags of builtin operators.

use super::tags::{Tag, TagSet};
use crate::error::{RegisterError, Result};
use crate::operator::{Class, Lowering, OpDef};
use maquette_ir::schema::{Alias, Arg, Schema, Type};

/// Whether the operator returns nothing and mutates nothing, so that without an effect a call has
/// no observable result.
pub(super) fn is_pointless(schema: &Schema) -> bool {
    schema.returns.is_empty() && !schema.is_mutable()
}

/// Checks that each return of a custom operator aliases one argument at most. What a call returns
/// is checked against that argument, and passes rely on it.
pub(super) fn check_aliases(schema: &Schema) -> Result<()> {
    for output in 0..schema.returns.len() {
        let names: Vec<String> = schema
            .aliased_args(output)
            .filter_map(|i| schema.args.get(i))
            .map(|a| format!("`{}`", a.name))
            .collect();
        if names.len() > 1 {
            let detail = format!(
                "return {output} may alias {}, but a return can alias one argument only; give each \
                    argument an alias set of its own, and the return the set of one: {schema}",
                names.join(" and ")
            );
            return Err(RegisterError::Invalid { op: schema.name.to_string(), detail }.into());
        }
    }
    Ok(())
}

/// Checks the tags against each other and against the schema.
pub(super) fn check_tags(schema: &Schema, tags: TagSet) -> Result<()> {
    let invalid =
        |detail: String| Err(RegisterError::Invalid { op: schema.name.to_string(), detail }.into());
    match (tags.contains(Tag::Inplace), tags.contains(Tag::Out)) {
        (true, true) => return invalid("the tags `inplace` and `out` exclude each other".into()),
        (true, false) => {
            if let Some(why) = not_inplace(schema) {
                return invalid(format!(
                    "the tag `inplace` is for `(Tensor(a!) x, …) -> Tensor(a!)`, but {why}: \
                        {schema}"
                ));
            }
        }
        (false, true) => {
            if let Some(why) = not_out(schema) {
                return invalid(format!(
                    "the tag `out` is for `(Tensor x, *, Tensor(a!) out) -> Tensor(a!)`, but \
                        {why}: {schema}"
                ));
            }
        }
        (false, false) => {}
    }
    if tags.contains(Tag::InplaceView) {
        return invalid(
            "the tag `inplace_view` is for operators that change their argument's metadata, which \
                is immutable in Maquette"
                .into(),
        );
    }
    if tags.contains(Tag::MaybeAliasingOrMutating) {
        return invalid(
            "the tag `maybe_aliasing_or_mutating` is for operators whose schema omits mutation, \
                but every call is checked against its schema; annotate the mutation, as in \
                `Tensor(a!) x`, or define it with `mutates_unknown()`"
                .into(),
        );
    }
    Ok(())
}

fn not_inplace(schema: &Schema) -> Option<String> {
    let Some(first) = schema.args.first().filter(|a| !a.kwarg_only) else {
        return Some("it has no positional argument".into());
    };
    if first.ty != Type::Tensor || !first.is_written() {
        return Some(format!("its first argument `{}` is not a mutated tensor", first.name));
    }
    if let Some(other) = schema.args.iter().skip(1).find(|a| a.is_written()) {
        return Some(format!("it mutates `{}` too", other.name));
    }
    match schema.returns.as_slice() {
        [r] if is_argument(&r.ty, r.alias.as_ref(), first) => None,
        _ => Some(format!("it does not return `{}`", first.name)),
    }
}

fn not_out(schema: &Schema) -> Option<String> {
    let written: Vec<&Arg> = schema.args.iter().filter(|a| a.is_written()).collect();
    if written.is_empty() {
        return Some("it mutates no argument".into());
    }
    if let Some(a) = written.iter().find(|a| a.ty != Type::Tensor) {
        return Some(format!("the mutated argument `{}` is {}, not a tensor", a.name, a.ty));
    }
    if let Some(a) = written.iter().find(|a| !a.kwarg_only) {
        return Some(format!("the mutated argument `{}` is not keyword-only", a.name));
    }
    if schema.returns.len() != written.len() {
        return Some(format!(
            "it does not return exactly what it mutates ({} returned, {} mutated)",
            schema.returns.len(),
            written.len()
        ));
    }
    let differs = |(_, (r, a)): &(usize, (&maquette_ir::schema::Ret, &&Arg))| {
        !is_argument(&r.ty, r.alias.as_ref(), a)
    };
    let found = schema.returns.iter().zip(&written).enumerate().find(differs);
    found.map(|(i, (_, a))| format!("return {i} is not the argument `{}`", a.name))
}

/// Whether a return is the given mutated argument.
fn is_argument(ty: &Type, alias: Option<&Alias>, arg: &Arg) -> bool {
    *ty == Type::Tensor
        && alias
            .is_some_and(|r| r.write && arg.alias.as_ref().is_some_and(|a| a.before == r.before))
}

/// The tags of a builtin operator, from its lowering.
pub(super) fn of_builtin(def: &OpDef) -> TagSet {
    let tags = TagSet::default().with(Tag::Pt2Compliant);
    match &def.lowering {
        Lowering::Pointwise(_) => tags.with(Tag::Pointwise),
        Lowering::Compute(c) if c.class == Class::Reduce => tags.with(Tag::Reduction),
        Lowering::Compute(c) if c.class.uses_rng() => tags.with(Tag::NondeterministicSeeded),
        Lowering::InPlace(name) => match super::registry::entry(name).0.builtin {
            Some(functional) if !std::ptr::eq(functional, def) => of_builtin(functional),
            _ => tags,
        },
        Lowering::Dynamic { .. } => {
            let (_, returns) = def.schema.rsplit_once("->").unwrap_or_default();
            tags.with(if returns.contains("Tensor") {
                Tag::DynamicOutputShape
            } else {
                Tag::DataDependentOutput
            })
        }
        Lowering::RandomComposite(_) => tags.with(Tag::NondeterministicSeeded),
        Lowering::Composite(_)
        | Lowering::UnannotatedComposite { .. }
        | Lowering::Compute(_)
        | Lowering::View(_) => tags,
    }
}
