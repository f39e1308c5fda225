//! The registry: all operators, by name. The static registrations of the macros run once, before
//! the first look-up.

use super::op::{Op, OpEntry, ask_registrations};
use crate::autograd::expression;
use crate::error::{CallError, Error, Result};
use crate::operator::{self, OpDef};
use maquette_ir::Loc;
use rustc_hash::FxHashMap;
use std::cell::Cell;
use std::sync::{Once, OnceLock, PoisonError, RwLock};

type Entries = FxHashMap<Box<str>, &'static OpEntry>;

static ENTRIES: OnceLock<RwLock<Entries>> = OnceLock::new();
static STATICS: Once = Once::new();

thread_local! {
    static RUNNING_STATICS: Cell<bool> = const { Cell::new(false) };
}

/// A registration that a macro generates. It runs before the first look-up.
pub struct StaticRegistration {
    /// Definitions run before the registrations that extend them.
    pub stage: Stage,
    /// The operator's full name.
    pub op: &'static str,
    /// The source file of the macro.
    pub file: &'static str,
    /// The line of the macro.
    pub line: u32,
    /// Makes the registration.
    pub run: fn(Loc) -> Result<()>,
}

/// When a static registration runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// `#[custom_op]`
    Define,
    /// `#[register_kernel]`, `#[register_fake]`…
    Extend,
}

inventory::collect!(StaticRegistration);

fn entries() -> &'static RwLock<Entries> {
    ENTRIES.get_or_init(|| {
        let builtin = operator::builtins().map(|def| {
            let entry: &'static OpEntry = Box::leak(Box::new(OpEntry::new(def.name(), Some(def))));
            (Box::from(def.name()), entry)
        });
        RwLock::new(builtin.collect())
    })
}

/// The entries, after the static registrations have run. A static registration that looks up an
/// operator sees the registrations made before it.
fn ready() -> &'static RwLock<Entries> {
    let entries = entries();
    if !RUNNING_STATICS.get() {
        STATICS.call_once(|| {
            RUNNING_STATICS.set(true);
            let mut all: Vec<&StaticRegistration> =
                inventory::iter::<StaticRegistration>.into_iter().collect();
            all.sort_by_key(|r| (r.stage, r.op, r.file, r.line));
            for r in all {
                let loc = Loc { file: r.file, line: r.line };
                if let Err(e) = (r.run)(loc) {
                    entry(r.op).fail(e.at(loc));
                }
            }
            RUNNING_STATICS.set(false);
        });
    }
    entries
}

/// Checks every operator that a macro defines or extends: its schema against the signatures of its
/// kernels, its name, its tags. Without this call, an operator whose registration failed reports
/// the error when it is first used. Call the function at the start of a program, or in a test.
///
/// # Errors
/// The error of each operator whose registration failed.
pub fn check_registrations() -> Result<()> {
    let mut names: Vec<&str> =
        inventory::iter::<StaticRegistration>.into_iter().map(|r| r.op).collect();
    names.sort_unstable();
    names.dedup();
    let mut failed: Vec<Error> =
        names.into_iter().filter_map(|name| entry(name).state().err()).collect();
    match failed.len() {
        0 => Ok(()),
        1 => Err(failed.remove(0)),
        n => {
            let texts: Vec<String> = failed.iter().map(ToString::to_string).collect();
            Err(Error::value(format!("{n} registrations failed:\n{}", texts.join("\n"))))
        }
    }
}

/// Whether all static registrations have run. Until then, other threads wait in the first look-up.
pub(crate) fn statics_have_run() -> bool {
    STATICS.is_completed()
}

/// The entry with this name, created if necessary. Entries are never freed, so that handles are
/// plain references.
pub(crate) fn entry(name: &str) -> Op {
    let entries = ready();
    if let Some(&e) = entries.read().unwrap_or_else(PoisonError::into_inner).get(name) {
        return Op(e);
    }
    let mut map = entries.write().unwrap_or_else(PoisonError::into_inner);
    Op(map.entry(name.into()).or_insert_with(|| Box::leak(Box::new(OpEntry::new(name, None)))))
}

/// The operator with this full name. The overload name `default` means no overload name.
///
/// # Errors
/// The operator is not defined, or its static registration failed.
pub(crate) fn find(name: &str) -> Result<Op> {
    let name = name.strip_suffix(".default").unwrap_or(name);
    let op = lookup(name).ok_or_else(|| unknown(name, Vec::new()))?;
    op.state()?;
    Ok(op)
}

/// The operator with this full name, if it is defined. Unlike [`find`], a miss costs no text:
/// passes ask for the nodes of functional graphs (`ir::…`), which the registry does not have.
pub(super) fn find_defined(name: &str) -> Option<Op> {
    let op = lookup(name.strip_suffix(".default").unwrap_or(name))?;
    (op.is_defined() && op.state().is_ok()).then_some(op)
}

fn lookup(name: &str) -> Option<Op> {
    let found = ready().read().unwrap_or_else(PoisonError::into_inner).get(name).copied();
    found.or_else(|| derivative(name)).map(Op)
}

/// The entry of the derivative of a scalar expression, which is defined when it is first named.
#[cold]
fn derivative(name: &str) -> Option<&'static OpEntry> {
    let builtin = |name: &str| {
        let found = ready().read().unwrap_or_else(PoisonError::into_inner).get(name).copied();
        found.or_else(|| derivative(name)).and_then(|entry| entry.builtin)
    };
    let def = expression::define(name, &builtin)?;
    let mut map = ready().write().unwrap_or_else(PoisonError::into_inner);
    Some(map.entry(name.into()).or_insert_with(|| {
        let def: &'static OpDef = Box::leak(Box::new(def));
        Box::leak(Box::new(OpEntry::new(name, Some(def))))
    }))
}

/// All entries, sorted by name.
fn all_entries() -> Vec<Op> {
    let map = ready().read().unwrap_or_else(PoisonError::into_inner);
    let mut ops: Vec<Op> = map.values().map(|e| Op(e)).collect();
    drop(map);
    ops.sort_by_key(Op::name);
    ops
}

/// All defined operators, sorted by name.
#[track_caller]
pub fn all() -> Vec<Op> {
    ask_registrations(Loc::caller());
    all_entries().into_iter().filter(|op| op.state().is_ok()).collect()
}

/// All operators that have registrations but no definition, sorted by name.
#[track_caller]
pub fn unresolved() -> Vec<Op> {
    ask_registrations(Loc::caller());
    all_entries()
        .into_iter()
        .filter(|op| !op.is_defined() && !op.registrations().is_empty())
        .collect()
}

/// The defined overloads of `namespace::name`: the one without an overload name first, the others
/// sorted by name.
pub(crate) fn overloads(packet: &str) -> Vec<Op> {
    let of_packet = |op: &Op| {
        op.name().strip_prefix(packet).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    all_entries().into_iter().filter(of_packet).filter(Op::is_defined).collect()
}

/// The error for an unknown operator. It suggests similar names and a missing crate, and lists the
/// registrations under the name.
pub(crate) fn unknown(name: &str, registered: Vec<String>) -> Error {
    if let Some(why) = operator::missing(name) {
        return CallError::Unsupported { name: name.into(), why }.into();
    }
    let namespace = name.split("::").next().unwrap_or(name);
    let packet = |name: &str| name.split('.').next().map(str::to_owned);
    let mut similar: Vec<(usize, &str)> = entries()
        .read()
        .unwrap_or_else(PoisonError::into_inner)
        .values()
        .map(|e| Op(e))
        .filter(Op::is_defined)
        .map(|op| (distance(op.name(), name), op.name()))
        .filter(|(d, k)| *d <= 2 || packet(k) == packet(name))
        .collect();
    similar.sort_unstable();
    similar.truncate(5);
    let similar = similar.into_iter().map(|(_, k)| k.to_owned()).collect();
    CallError::Unknown { name: name.into(), similar, registered, crate_hint: namespace.into() }
        .into()
}

/// The Levenshtein distance; `usize::MAX` if the lengths differ by more than 2.
fn distance(a: &str, b: &str) -> usize {
    if a.len().abs_diff(b.len()) > 2 {
        return usize::MAX;
    }
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, &y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}
