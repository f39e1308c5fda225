//! Effects: what an operator does besides its results and mutations, and on what.
//!
//! An effect is on a resource: the process as a whole, or one with a name, such as a communicator
//! or a log. Two effects on one resource keep their order. Effects on different resources do not
//! order one another.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Mutex, PoisonError};

/// An effect of an operator, on a resource of the type `R`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Effect<R = Resource> {
    /// On the process as a whole, which is a resource of its own. Calls keep program order, and are
    /// never dropped, duplicated or merged.
    Ordered,
    /// On this resource. Calls with effects on it keep program order, and are never dropped,
    /// duplicated or merged.
    On(R),
}

/// A resource on which operators have effects. Equal names are one resource.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Resource(&'static str);

impl Resource {
    /// The resource of this name, such as `nccl:0`. The first use of a name keeps it for the rest
    /// of the process.
    pub fn new(name: &str) -> Resource {
        static NAMES: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
        let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = names.get(name) {
            return Resource(known);
        }
        let kept: &'static str = Box::leak(name.into());
        names.insert(kept);
        Resource(kept)
    }

    /// The name.
    pub const fn name(self) -> &'static str {
        self.0
    }
}

impl fmt::Debug for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

impl<R> Effect<R> {
    /// The effect on what `f` gives for the resource.
    pub fn map<S>(self, f: impl FnOnce(R) -> S) -> Effect<S> {
        match self {
            Effect::Ordered => Effect::Ordered,
            Effect::On(resource) => Effect::On(f(resource)),
        }
    }
}

impl Effect {
    /// The effect with the name of its resource.
    pub fn named(self) -> Effect<&'static str> {
        self.map(Resource::name)
    }
}

/// Displays as graph text has it: `effect`, `effect("nccl:0")`.
impl fmt::Display for Effect<&str> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Effect::Ordered => f.write_str("effect"),
            Effect::On(name) => write!(f, "effect({})", crate::graph::quote(name)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_names_are_one_resource() {
        let (a, b) = (Resource::new("effect test a"), Resource::new("effect test b"));
        assert_eq!(a, Resource::new(&format!("effect test {}", "a")));
        assert_ne!(Effect::On(a), Effect::On(b));
        assert_ne!(Effect::On(Resource::new("")), Effect::Ordered);
        let texts = [Effect::Ordered, Effect::On(a)].map(|e| e.named().to_string());
        assert_eq!(texts, ["effect", "effect(\"effect test a\")"]);
    }
}
