//! Names of values: a base string and a number. Values of one operator share the base string, so a
//! new name allocates no string.
//!
//! The text `base_N` with a canonical decimal `N >= 1` always denotes (`base`, `N`); any other text
//! is a base with number 0. The split at the last underscore is unique: `add__1` is number 1 of
//! base `add_`, and never number 0 of base `add__1`.

use super::{Name, StrId};
use rustc_hash::FxHashSet;
use std::borrow::Cow;

/// Splits a text into base and number.
pub(super) fn split(text: &str) -> (&str, u32) {
    match text.rsplit_once('_') {
        Some((base, digits)) if !base.is_empty() && is_canonical(digits) => match digits.parse() {
            Ok(number) => (base, number),
            Err(_) => (text, 0),
        },
        _ => (text, 0),
    }
}

/// Whether a text is a decimal number without leading zero.
fn is_canonical(digits: &str) -> bool {
    digits.bytes().all(|b| b.is_ascii_digit()) && digits.bytes().next().is_some_and(|b| b != b'0')
}

/// Whether a text may follow `%`: letters, digits, `_` and `.`, starting with a letter or `_`.
pub(super) fn is_valid(text: &str) -> bool {
    text.bytes().next().is_some_and(is_start) && text.bytes().all(is_continue)
}

/// Whether a text is a plain identifier.
pub(super) fn is_ident(text: &str) -> bool {
    is_valid(text) && !text.contains('.')
}

/// Whether a text names an operator: `ns::name` or `ns::name.overload`.
pub(super) fn is_op(text: &str) -> bool {
    let Some((ns, rest)) = text.split_once("::") else { return false };
    let (name, overload) = rest.split_once('.').unwrap_or((rest, "default"));
    is_ident(ns)
        && is_ident(name)
        && !overload.is_empty()
        && overload.bytes().all(|b| b == b'_' || b.is_ascii_alphanumeric())
}

pub(super) fn is_start(b: u8) -> bool {
    b.is_ascii_alphabetic() || b == b'_'
}

pub(super) fn is_continue(b: u8) -> bool {
    is_start(b) || b.is_ascii_digit() || b == b'.'
}

/// Converts a text to a valid name: invalid characters become `_`, and a text with an invalid start
/// gets a leading `_`.
pub(super) fn sanitize(text: &str) -> Cow<'_, str> {
    if is_valid(text) {
        return Cow::Borrowed(text);
    }
    let mut name = String::with_capacity(text.len() + 1);
    if !text.bytes().next().is_some_and(is_start) {
        name.push('_');
    }
    name.extend(text.chars().map(|c| if c.is_ascii() && is_continue(c as u8) { c } else { '_' }));
    Cow::Owned(name)
}

/// The default base name of an operator's results: the operator's name without namespace and
/// overload. A trailing underscore stays: `aten::add_.Tensor` gives `add_`, `add__1`, …, which
/// differ from all names of `aten::add`.
pub(super) fn of_op(op: &str) -> &str {
    let name = op.rsplit_once("::").map_or(op, |(_, name)| name);
    name.split_once('.').map_or(name, |(name, _)| name)
}

/// Allocates unique names. Taking a name is O(1); a fresh name skips only taken numbers.
#[derive(Clone, Debug, Default)]
pub(super) struct Names {
    /// For each base, a number below which every number is taken.
    next: Vec<u32>,
    /// Taken names whose number is not below `next`.
    ahead: FxHashSet<Name>,
}

impl Names {
    /// Takes exactly this name; `false` if it is already taken.
    pub fn take(&mut self, name: Name) -> bool {
        name.number >= self.next.get(name.base.index()).copied().unwrap_or(0)
            && self.ahead.insert(name)
    }

    /// Takes this name if it is free, else the next free number of its base.
    pub fn fresh(&mut self, base: StrId, wanted: u32) -> Name {
        let wanted = Name { base, number: wanted };
        if wanted.number > 0 && self.take(wanted) {
            return wanted;
        }
        if self.next.len() <= base.index() {
            self.next.resize(base.index() + 1, 0);
        }
        let next = &mut self.next[base.index()];
        loop {
            let name = Name { base, number: *next };
            *next = next.saturating_add(1);
            if self.ahead.is_empty() || !self.ahead.remove(&name) || name.number == u32::MAX {
                return name;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn split_is_canonical() {
        for (text, base, number) in [
            ("add", "add", 0),
            ("add_1", "add", 1),
            ("add_", "add_", 0),
            ("add__1", "add_", 1),
            ("add_01", "add_01", 0),
            ("add_0", "add_0", 0),
            ("_1", "_1", 0),
            ("a_1_2", "a_1", 2),
            ("a_4294967295", "a", u32::MAX),
            ("a_4294967296", "a_4294967296", 0),
        ] {
            assert_eq!(split(text), (base, number), "{text}");
        }
    }

    #[test]
    fn names_are_unique() {
        let (mut names, base) = (Names::default(), StrId(3));
        assert!(names.take(Name { base, number: 1 }));
        assert!(!names.take(Name { base, number: 1 }));
        let numbers: Vec<u32> = (0..3).map(|_| names.fresh(base, 0).number).collect();
        assert_eq!(numbers, [0, 2, 3]);
        assert_eq!(names.fresh(base, 7).number, 7);
        assert_eq!(names.fresh(base, 7).number, 4);
        assert!(!names.take(Name { base, number: 2 }));
    }

    #[test]
    fn bases_and_sanitizing() {
        assert_eq!(of_op("aten::add_.Tensor"), "add_");
        assert_eq!(of_op("aten::_softmax"), "_softmax");
        assert_eq!(sanitize("layers.0/weight é"), "layers.0_weight__");
        assert_eq!(sanitize("0"), "_0");
        assert_eq!(sanitize(""), "_");
        assert!(
            is_valid("layers.0.weight") && !is_ident("a.b") && !is_valid(".a") && !is_valid("0")
        );
    }
}
