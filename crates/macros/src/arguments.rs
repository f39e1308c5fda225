//! Checks the argument types of a kernel by their source text, for errors at the argument itself.
//! An unknown name may be a type alias, so it passes, and the compiler's trait checks decide.

use quote::ToTokens;
use syn::{Error, GenericArgument, Ident, PathArguments, Result, Type, TypePath, TypeReference};

/// The types that kernels take by value, also in `Option`.
const VALUES: [&str; 9] =
    ["i64", "SymInt", "f64", "bool", "Scalar", "DType", "Device", "Layout", "MemoryFormat"];
/// The element types of slices, besides `Tensor` and `Option<Tensor>`.
const ELEMENTS: [&str; 5] = ["i64", "SymInt", "f64", "bool", "Scalar"];
/// The list of supported types, for error messages.
pub(crate) const SUPPORTED: &str = "an operator takes `&Tensor`, `&mut Tensor`, `&[Tensor]`, \
    `&mut [Tensor]`, `&[Option<Tensor>]`, `&mut [Option<Tensor>]`, \
                         `i64`, `SymInt`, `f64`, `bool`, `Scalar`, `DType`, `Device`, `Layout`, \
                         `MemoryFormat`, `&str`, `&[i64]`, \
                         `&[SymInt]`, `&[f64]`, `&[bool]`, `&[Scalar]`, `Option` of one of these, \
                         and `Const<T>`";

/// The way in which a kernel takes an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Mutate,
}

/// The way in which a wrapper takes an argument that is only read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Parameter {
    /// With the kernel's type.
    AsKernel,
    /// `impl Into<SymInt>`: in a trace, the kernel's `i64` may be symbolic.
    Integer,
    /// A list of integers or symbolic integers.
    Integers,
}

/// The way in which a wrapper takes an argument of this type.
pub(crate) fn parameter(ty: &Type) -> Parameter {
    let is_integer = |ty: &Type| match last_segment(strip_parens(ty)) {
        Some((name, None)) => name == "i64" || name == "SymInt",
        _ => false,
    };
    match strip_parens(ty) {
        Type::Reference(r) if r.mutability.is_none() => match strip_parens(&r.elem) {
            Type::Slice(s) if is_integer(&s.elem) => Parameter::Integers,
            _ => Parameter::AsKernel,
        },
        ty if is_integer(ty) => Parameter::Integer,
        _ => Parameter::AsKernel,
    }
}

/// The way in which a kernel takes an argument of this type.
///
/// # Errors
/// No kernel can take the type; the error suggests a replacement.
pub(crate) fn access(ty: &Type) -> Result<Access> {
    match strip_parens(ty) {
        Type::Reference(r) => reference(ty, r),
        Type::Path(path) => by_value(ty, path),
        Type::Tuple(t) if t.elems.is_empty() => unsupported(ty, "remove the argument"),
        Type::Tuple(_) => unsupported(ty, "make each element a separate argument"),
        Type::Array(a) => unsupported(ty, &format!("use `&[{}]`", text(&a.elem))),
        Type::Slice(s) => unsupported(ty, &format!("use `&[{}]`", text(&s.elem))),
        Type::ImplTrait(_) | Type::TraitObject(_) | Type::FnPtr(_) => {
            unsupported(ty, "an operator's arguments are plain data")
        }
        _ => unsupported(ty, ""),
    }
}

fn reference(whole: &Type, r: &TypeReference) -> Result<Access> {
    if let Some(lifetime) = r.lifetime.as_ref().filter(|l| l.ident != "_") {
        let message =
            format!("a kernel borrows its arguments only during a call; remove `{lifetime}`");
        return Err(Error::new_spanned(lifetime, message));
    }
    let access = if r.mutability.is_some() { Access::Mutate } else { Access::Read };
    let element = match strip_parens(&r.elem) {
        Type::Slice(s) => Some(strip_parens(&s.elem)),
        _ => None,
    };
    let target = element.unwrap_or_else(|| strip_parens(&r.elem));
    let Some((name, inner)) = last_segment(target) else {
        let hint = match (element, target) {
            (Some(_), Type::Reference(e)) => format!("use `&[{}]`", text(&e.elem)),
            (None, Type::Reference(e)) => format!("use `&{}`", text(&e.elem)),
            (None, Type::Array(a)) => format!("use `&[{}]`", text(&a.elem)),
            (None, Type::Tuple(_)) => "make each element a separate argument".to_owned(),
            _ => String::new(),
        };
        return unsupported(whole, &hint);
    };
    let mutable = |hint: &str| {
        if access == Access::Read {
            Ok(Access::Read)
        } else {
            unsupported(whole, &format!("only tensors can be mutated; {hint}"))
        }
    };
    let name = name.to_string();
    match (element.is_some(), name.as_str(), inner) {
        (_, "Tensor", None) => Ok(access),
        (false, "str", None) => mutable("use `&str`"),
        (true, "Option", Some(t)) if is_tensor(t) => Ok(access),
        (true, e, None) if ELEMENTS.contains(&e) => mutable(&format!("use `&[{e}]`")),
        (true, e, _) => match replacement(e) {
            Some(r) if ELEMENTS.contains(&r) => unsupported(whole, &format!("use `&[{r}]`")),
            None if inner.is_none() && !VALUES.contains(&e) => Ok(access),
            _ => unsupported(whole, ""),
        },
        (false, "Vec", Some(t)) => unsupported(
            whole,
            &format!("use `&{}[{}]`", if is_tensor(t) { mutability(access) } else { "" }, text(t)),
        ),
        (false, "Option", Some(t)) if is_tensor(t) => {
            unsupported(whole, &format!("use `Option<&{}Tensor>`", mutability(access)))
        }
        (false, v, None) if VALUES.contains(&v) => unsupported(whole, &format!("use `{v}`")),
        (false, v, _) => match replacement(v) {
            Some(r) => unsupported(whole, &format!("use `{r}`")),
            None if inner.is_none() => Ok(access),
            None => unsupported(whole, ""),
        },
    }
}

fn by_value(whole: &Type, path: &TypePath) -> Result<Access> {
    let Some((name, inner)) = last_segment(strip_parens(whole)) else {
        return unsupported(whole, "");
    };
    match (name.to_string().as_str(), inner) {
        ("Tensor", None) => {
            unsupported(whole, "use `&Tensor`, or `&mut Tensor` for one that the operator mutates")
        }
        ("Option", Some(t)) => optional(whole, strip_parens(t)),
        ("Vec", Some(t)) => unsupported(whole, &format!("use `&[{}]`", text(t))),
        // A constant of a user-defined type.
        ("Const", Some(_)) => Ok(Access::Read),
        (v, None) => match replacement(v) {
            Some(r) => unsupported(whole, &format!("use `{r}`")),
            // A supported type, or possibly an alias of one.
            None => Ok(Access::Read),
        },
        _ => unsupported(&Type::Path(path.clone()), ""),
    }
}

fn optional(whole: &Type, inner: &Type) -> Result<Access> {
    match last_segment(inner) {
        Some((name, None)) if name == "Tensor" => unsupported(whole, "use `Option<&Tensor>`"),
        Some((name, Some(_))) if name == "Option" => {
            unsupported(whole, "an optional argument cannot be nested; use a single `Option`")
        }
        Some((name, Some(t))) if name == "Vec" => {
            unsupported(whole, &format!("use `Option<&[{}]>`", text(t)))
        }
        Some((name, None)) => match replacement(&name.to_string()) {
            Some(r) => unsupported(whole, &format!("use `Option<{r}>`")),
            None => Ok(Access::Read),
        },
        _ => match (access(inner)?, inner) {
            (Access::Mutate, Type::Reference(r)) if !is_tensor(&r.elem) => {
                unsupported(whole, "use `&mut [Tensor]`, which may be empty")
            }
            (access, _) => Ok(access),
        },
    }
}

/// The suggested replacement for a similar but unsupported type.
fn replacement(name: &str) -> Option<&'static str> {
    Some(match name {
        "i8" | "i16" | "i32" | "i128" | "isize" | "u8" | "u16" | "u32" | "u64" | "u128"
        | "usize" => "i64",
        "f16" | "bf16" | "f32" => "f64",
        "String" | "str" | "char" => "&str",
        _ => return None,
    })
}

fn mutability(access: Access) -> &'static str {
    if access == Access::Mutate { "mut " } else { "" }
}

fn unsupported(ty: &Type, hint: &str) -> Result<Access> {
    let hint = if hint.is_empty() { String::new() } else { format!("; {hint}") };
    Err(Error::new_spanned(
        ty,
        format!("`{}` is not an argument type of operators{hint}", text(ty)),
    ))
}

pub(crate) fn is_tensor(ty: &Type) -> bool {
    matches!(last_segment(strip_parens(ty)), Some((name, None)) if name == "Tensor")
}

/// The last segment of a path and its single type argument, if any: `Option` and `Tensor` of
/// `std::option::Option<Tensor>`.
pub(crate) fn last_segment(ty: &Type) -> Option<(&Ident, Option<&Type>)> {
    let Type::Path(path) = ty else { return None };
    let segment = path.path.segments.last()?;
    let inner = match &segment.arguments {
        PathArguments::AngleBracketed(args) => args
            .args
            .iter()
            .find_map(|a| if let GenericArgument::Type(t) = a { Some(t) } else { None }),
        _ => None,
    };
    Some((&segment.ident, inner))
}

/// The type without enclosing parentheses.
pub(crate) fn strip_parens(ty: &Type) -> &Type {
    match ty {
        Type::Paren(t) => strip_parens(&t.elem),
        Type::Group(t) => strip_parens(&t.elem),
        other => other,
    }
}

/// The type as source text.
pub(crate) fn text(ty: &Type) -> String {
    let mut out = ty.to_token_stream().to_string();
    for (from, to) in [
        (" < ", "<"),
        (" <", "<"),
        ("< ", "<"),
        (" >", ">"),
        ("& ", "&"),
        (" :: ", "::"),
        (" ,", ","),
        (" ;", ";"),
    ] {
        out = out.replace(from, to);
    }
    out
}
