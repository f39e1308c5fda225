//! The registry: every operator by name. Static registrations run once, before the first look-up.

use super::op::{Op, OpEntry};
use crate::aten;
use crate::error::{CallError, Error, Result};
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

/// A registration made by a macro, run before the first look-up.
pub struct StaticRegistration {
    /// Definitions come before what is added to them.
    pub stage: Stage,
    /// The operator's full name.
    pub op: &'static str,
    /// Where the macro was written.
    pub file: &'static str,
    /// Where the macro was written.
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
        let builtin = aten::tables().flat_map(|t| t.iter()).map(|def| {
            let entry: &'static OpEntry = Box::leak(Box::new(OpEntry::new(def.name(), Some(def))));
            (Box::from(def.name()), entry)
        });
        RwLock::new(builtin.collect())
    })
}

/// Runs the static registrations, once; a registration that looks operators up itself sees those
/// made so far.
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

/// The operator's entry, made if it is new. Entries are few and live forever.
pub(crate) fn entry(name: &str) -> Op {
    let entries = ready();
    if let Some(&e) = entries.read().unwrap_or_else(PoisonError::into_inner).get(name) {
        return Op(e);
    }
    let mut map = entries.write().unwrap_or_else(PoisonError::into_inner);
    Op(map.entry(name.into()).or_insert_with(|| Box::leak(Box::new(OpEntry::new(name, None)))))
}

/// The operator of this full name, defined or failed. The overload `default` is the operator
/// without one.
pub(crate) fn find(name: &str) -> Result<Op> {
    let name = name.strip_suffix(".default").unwrap_or(name);
    let found = ready().read().unwrap_or_else(PoisonError::into_inner).get(name).copied();
    let op = Op(found.ok_or_else(|| unknown(name, Vec::new()))?);
    op.state()?;
    Ok(op)
}

/// Every entry, by name.
fn all_entries() -> Vec<Op> {
    let map = ready().read().unwrap_or_else(PoisonError::into_inner);
    let mut ops: Vec<Op> = map.values().map(|e| Op(e)).collect();
    drop(map);
    ops.sort_by_key(Op::name);
    ops
}

/// Every operator that is defined, by name.
pub fn all() -> Vec<Op> {
    all_entries().into_iter().filter(|op| op.state().is_ok()).collect()
}

/// Every operator that something is registered for although it is not defined, by name.
pub fn unresolved() -> Vec<Op> {
    all_entries()
        .into_iter()
        .filter(|op| !op.is_defined() && !op.registrations().is_empty())
        .collect()
}

/// The defined overloads of `namespace::name`, the default one first, the others by name.
pub(crate) fn overloads(packet: &str) -> Vec<Op> {
    let of_packet = |op: &Op| {
        op.name().strip_prefix(packet).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    all_entries().into_iter().filter(of_packet).filter(Op::is_defined).collect()
}

/// There is no such operator: what is close, what may be missing, and what is registered for it all
/// the same.
pub(crate) fn unknown(name: &str, registered: Vec<String>) -> Error {
    if let Some(why) = crate::aten::unsupported(name) {
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

/// Levenshtein distance.
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
