//! Scopes: the path of the module whose code runs, while a trace runs.
//!
//! A module does not know where it stands in another one. So the outermost module that a traced
//! program enters names its parts: for each part, its address and type with its path, as
//! `encoder.layers.0`. A part that is entered later is found by both. The parts stay where they
//! are, since the outermost module is borrowed meanwhile.
//!
//! A part that stands at several paths, as one behind an `Arc`, has the first of the paths that are
//! nearest to the module that enters it. So do parts without size, which may have one address. A
//! module that is not a part of the entered ones stands for the module in whose code it is, and
//! names its own parts from there.
//!
//! The nodes of derivatives keep the scope of their calls, and sweeps return to it.
//!
//! **Cost.** Without a trace, a check of one thread-local number. In a trace, each outermost module
//! that is entered is visited once.

use crate::dispatch::mode;
use crate::module::{PartId, Slot, State, Visitor, join};
use crate::tensor::Tensor;
use maquette_ir::graph::common_scope;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::cell::RefCell;
use std::sync::Arc;

/// The paths of the parts of the modules that were entered.
type Parts = FxHashMap<PartId, SmallVec<[Box<str>; 1]>>;

/// A place in a tree of modules.
#[derive(Clone)]
pub struct ModuleScope(Arc<Place>);

struct Place {
    path: Box<str>,
    parts: Arc<Parts>,
}

thread_local! {
    static CURRENT: RefCell<Option<ModuleScope>> = const { RefCell::new(None) };
}

impl ModuleScope {
    /// The path, as `encoder.layers.0`. It is empty in an outermost module.
    pub fn path(&self) -> &str {
        &self.0.path
    }

    /// Runs `f` in this scope.
    pub(crate) fn run<R>(&self, f: impl FnOnce() -> R) -> R {
        let _entered = Entered::new(self.clone());
        f()
    }
}

/// The scope of the code that runs now; `None` outside of all modules, or without a trace.
#[doc(hidden)]
pub fn current_scope() -> Option<ModuleScope> {
    if mode::is_active() { CURRENT.with_borrow(Option::clone) } else { None }
}

/// Leaves a scope when it is dropped.
#[must_use]
#[doc(hidden)]
pub struct Entered(Option<Option<ModuleScope>>);

impl Entered {
    fn new(scope: ModuleScope) -> Entered {
        Entered(Some(CURRENT.replace(Some(scope))))
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        if let Some(before) = self.0.take() {
            drop(CURRENT.replace(before));
        }
    }
}

/// Enters the code of a module or a part until the result is dropped. What a trace records
/// meanwhile has its scope.
#[doc(hidden)]
#[inline]
pub fn enter<T: State + ?Sized>(part: &T) -> Entered {
    if !mode::is_active() {
        return Entered(None);
    }
    enter_traced(PartId::of(part), &|path, v| part.visit_at(path, Slot::Parameter, v))
}

#[cold]
fn enter_traced(id: PartId, visit: &dyn Fn(&str, &mut dyn Visitor)) -> Entered {
    let (path, parts) = place();
    let place = match parts.get(&id) {
        Some(paths) => Place { path: nearest(paths, &path), parts },
        None => {
            let mut parts = Arc::unwrap_or_clone(parts);
            visit(&path, &mut Naming(&mut parts));
            Place { path, parts: Arc::new(parts) }
        }
    };
    Entered::new(ModuleScope(Arc::new(place)))
}

/// The path of the code that runs, and the parts that are known there.
fn place() -> (Box<str>, Arc<Parts>) {
    match CURRENT.with_borrow(Option::clone) {
        Some(ModuleScope(place)) => (place.path.clone(), place.parts.clone()),
        None => Default::default(),
    }
}

/// The first of the paths that have most in common with another one.
fn nearest(paths: &[Box<str>], to: &str) -> Box<str> {
    let shared = |path: &str| common_scope(Some(path), Some(to)).map_or(0, str::len);
    let mut best: &str = paths.first().map_or("", |path| path);
    for path in paths {
        if shared(path) > shared(best) {
            best = path;
        }
    }
    best.into()
}

/// Notes the paths of parts.
struct Naming<'a>(&'a mut Parts);

impl Visitor for Naming<'_> {
    fn tensor(&mut self, _name: &str, _slot: Slot, _t: &Tensor) {}

    fn part(&mut self, path: &str, id: PartId) {
        let paths = self.0.entry(id).or_default();
        if !paths.iter().any(|known| **known == *path) {
            paths.push(path.into());
        }
    }
}

/// Runs `f` in a scope of this name, within that of the code that calls it. What a trace records
/// meanwhile shows the name: in the text of its graph, in errors, profiles and pictures.
///
/// Modules with [`#[scoped]`](https://docs.rs/maquette/latest/maquette/attr.scoped.html) name
/// their code themselves. Characters other than letters, digits and `_` become `_`, and dots
/// separate parts.
///
/// JAX: `jax.named_scope`.
pub fn named_scope<R>(name: &str, f: impl FnOnce() -> R) -> R {
    if !mode::is_active() {
        return f();
    }
    let (path, parts) = place();
    ModuleScope(Arc::new(Place { path: join(&path, name).into(), parts })).run(f)
}
