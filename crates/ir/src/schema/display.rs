//! The printer of schemas, in PyTorch's canonical form.

use super::default::{dtype_code, format_code, layout_code};
use super::{Alias, AliasSet, Arg, Default, OpName, Ret, Schema, Type};
use std::collections::BTreeSet;
use std::fmt::{self, Display, Formatter, Write as _};

impl Display for OpName {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}::{}", self.ns, self.name)?;
        if self.overload.is_empty() { Ok(()) } else { write!(f, ".{}", self.overload) }
    }
}

impl Display for Schema {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}(", self.name)?;
        for (i, arg) in self.args.iter().enumerate() {
            let comma = if i == 0 { "" } else { ", " };
            let first_kwarg = arg.kwarg_only && !self.args[..i].iter().any(|a| a.kwarg_only);
            write!(f, "{comma}{}{arg}", if first_kwarg { "*, " } else { "" })?;
        }
        f.write_str(") -> ")?;
        match self.returns.as_slice() {
            [only] => only.fmt(f),
            many => {
                f.write_str("(")?;
                separated(f, many, ", ")?;
                f.write_str(")")
            }
        }
    }
}

impl Display for Arg {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        typed(f, &self.ty, self.alias.as_ref())?;
        write!(f, " {}", self.name)?;
        match &self.default {
            Some(default) => {
                f.write_str("=")?;
                default_of(f, &self.ty, default)
            }
            None => Ok(()),
        }
    }
}

impl Display for Ret {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        typed(f, &self.ty, self.alias.as_ref())?;
        match &self.name {
            Some(name) => write!(f, " {name}"),
            None => Ok(()),
        }
    }
}

impl Display for Type {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        typed(f, self, None)
    }
}

/// Writes a type with its alias annotation. The annotation precedes the `?` of a tensor, follows
/// the `?` of a list's element, and precedes every `[]`.
fn typed(f: &mut Formatter<'_>, ty: &Type, alias: Option<&Alias>) -> fmt::Result {
    match ty {
        Type::Optional(inner) => {
            typed(f, inner, alias)?;
            f.write_str("?")
        }
        Type::List(element, count) => {
            if matches!(element.required(), Type::List(..)) {
                typed(f, element, alias)?;
            } else {
                typed(f, element, None)?;
                annotation(f, alias)?;
            }
            f.write_str("[")?;
            count.map_or(Ok(()), |n| write!(f, "{n}"))?;
            f.write_str("]")
        }
        leaf => {
            f.write_str(leaf.leaf_name())?;
            annotation(f, alias)
        }
    }
}

/// Writes an alias annotation, if any.
fn annotation(f: &mut Formatter<'_>, alias: Option<&Alias>) -> fmt::Result {
    alias.map_or(Ok(()), |a| a.fmt(f))
}

impl Display for Alias {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let sets = |f: &mut Formatter<'_>, sets: &BTreeSet<AliasSet>| separated(f, sets, "|");
        f.write_str("(")?;
        sets(f, &self.before)?;
        f.write_str(if self.write { "!" } else { "" })?;
        if self.after != self.before {
            f.write_str(" -> ")?;
            sets(f, &self.after)?;
        }
        f.write_str(")")
    }
}

/// Writes items with a separator.
fn separated<T: Display>(
    f: &mut Formatter<'_>,
    items: impl IntoIterator<Item = T>,
    separator: &str,
) -> fmt::Result {
    for (i, item) in items.into_iter().enumerate() {
        write!(f, "{}{item}", if i == 0 { "" } else { separator })?;
    }
    Ok(())
}

/// Writes a default value. `int[2] x=[1, 1]` prints as `int[2] x=1`; PyTorch does so for `int`
/// only.
fn default_of(f: &mut Formatter<'_>, ty: &Type, default: &Default) -> fmt::Result {
    if let (Type::List(element, Some(count)), Default::List(items)) = (ty, default)
        && let (Type::Int, [first, rest @ ..]) = (&**element, items.as_slice())
        && items.len() == *count as usize
        && !rest.is_empty()
        && rest.iter().all(|x| x == first)
    {
        return first.fmt(f);
    }
    default.fmt(f)
}

impl Display for Default {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Default::None => f.write_str("None"),
            Default::Int(x) => write!(f, "{x}"),
            Default::Float(x) => float(f, *x),
            Default::Bool(x) => f.write_str(if *x { "True" } else { "False" }),
            Default::Str(s) => quoted(f, s),
            Default::Device(d) => write!(f, "\"{d}\""),
            Default::List(items) => {
                f.write_str("[")?;
                separated(f, items, ", ")?;
                f.write_str("]")
            }
            Default::DType(d) => write!(f, "{}", dtype_code(*d)),
            Default::Layout(l) => write!(f, "{}", layout_code(*l)),
            Default::MemoryFormat(m) => write!(f, "{}", format_code(*m)),
        }
    }
}

/// Writes a float as PyTorch prints it: whole numbers below 10^10 as `1.`, others with 17
/// significant digits as C's `%.17g`.
fn float(f: &mut Formatter<'_>, x: f64) -> fmt::Result {
    const DIGITS: i32 = 17;
    if !x.is_finite() {
        return f.write_str(if x.is_nan() {
            "nan"
        } else if x > 0.0 {
            "inf"
        } else {
            "-inf"
        });
    }
    if x.abs() < 1e10 && x.trunc() == x {
        return write!(f, "{x:.0}.");
    }
    let scientific = format!("{x:.*e}", (DIGITS - 1) as usize);
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..DIGITS).contains(&exponent) {
        let fixed = format!("{x:.*}", (DIGITS - 1 - exponent) as usize);
        return f.write_str(trim_zeros(&fixed));
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    write!(f, "{}e{sign}{:02}", trim_zeros(mantissa), exponent.abs())
}

/// Drops trailing zeros after the decimal point.
fn trim_zeros(digits: &str) -> &str {
    if digits.contains('.') { digits.trim_end_matches('0').trim_end_matches('.') } else { digits }
}

/// Writes a string literal with escapes.
fn quoted(f: &mut Formatter<'_>, text: &str) -> fmt::Result {
    f.write_char('"')?;
    for c in text.chars() {
        match c {
            '\n' => f.write_str("\\n")?,
            '\r' => f.write_str("\\r")?,
            '\t' => f.write_str("\\t")?,
            '\\' | '"' | '\'' => write!(f, "\\{c}")?,
            c if c.is_ascii_control() => write!(f, "\\{:03o}", c as u32)?,
            c => f.write_char(c)?,
        }
    }
    f.write_char('"')
}
