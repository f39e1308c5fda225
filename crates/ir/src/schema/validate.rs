//! The rules of a schema beyond its grammar: unique names, the order of defaults, and alias sets.

use super::{AliasSet, Schema, SchemaError, SchemaErrorKind, Type};
use std::collections::{BTreeMap, HashSet};
use std::ops::Range;

/// The byte ranges of the arguments and returns, for error messages.
#[derive(std::default::Default)]
pub(super) struct Sites {
    pub(super) args: Vec<Range<usize>>,
    pub(super) returns: Vec<Range<usize>>,
}

/// Checks that names are unique, that positional arguments with defaults come last, that only
/// tensors have alias annotations, and that the alias sets of returns occur in arguments.
pub(super) fn validate(schema: &Schema, sites: &Sites, text: &str) -> Result<(), SchemaError> {
    let fail =
        |kind: SchemaErrorKind, span: &Range<usize>| SchemaError::new(kind, text, span.clone());
    let mut names = HashSet::new();
    let mut defaulted: Option<&str> = None;
    let mut written: BTreeMap<&AliasSet, bool> = BTreeMap::new();
    for (arg, site) in schema.args.iter().zip(&sites.args) {
        if !names.insert(arg.name.as_str()) {
            return Err(fail(
                SchemaErrorKind::Duplicate { what: "argument", name: arg.name.clone() },
                site,
            ));
        }
        // PyTorch exempts lists, because some of its older schemas have a list without default
        // after an argument with a default.
        if let (Some(before), false, None, false) =
            (defaulted, arg.kwarg_only, &arg.default, matches!(arg.ty, Type::List(..)))
        {
            let kind =
                SchemaErrorKind::DefaultOrder { arg: arg.name.clone(), before: before.to_owned() };
            return Err(fail(kind, site).help(
                "give it a default, or move it before the arguments with defaults or after a `*`",
            ));
        }
        if arg.default.is_some() {
            defaulted = Some(&arg.name);
        }
        let Some(alias) = &arg.alias else { continue };
        if !arg.ty.is_tensors() {
            return Err(fail(SchemaErrorKind::NoStorage(arg.ty.to_string()), site));
        }
        for set in alias.before.iter().chain(&alias.after) {
            *written.entry(set).or_default() |= alias.write;
        }
    }
    let anything = written.contains_key(&AliasSet::Wildcard);
    let mut names = HashSet::new();
    for (ret, site) in schema.returns.iter().zip(&sites.returns) {
        if let Some(name) = &ret.name
            && !names.insert(name.as_str())
        {
            return Err(fail(
                SchemaErrorKind::Duplicate { what: "return", name: name.clone() },
                site,
            ));
        }
        let Some(alias) = &ret.alias else { continue };
        if !ret.ty.is_tensors() {
            return Err(fail(SchemaErrorKind::NoStorage(ret.ty.to_string()), site));
        }
        for set in alias.before.iter().filter(|set| **set != AliasSet::Wildcard) {
            match written.get(set) {
                None if !anything => {
                    let help = format!(
                        "annotate the argument that it shares storage with: `Tensor({set}) x`"
                    );
                    return Err(
                        fail(SchemaErrorKind::UnknownAlias(set.to_string()), site).help(help)
                    );
                }
                Some(false) if alias.write => {
                    let help = format!(
                        "mark the argument as written, `Tensor({set}!)`, or return `Tensor({set})`"
                    );
                    return Err(
                        fail(SchemaErrorKind::WrittenReturn(set.to_string()), site).help(help)
                    );
                }
                _ => {}
            }
        }
    }
    Ok(())
}
