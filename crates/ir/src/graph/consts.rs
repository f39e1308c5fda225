//! Constants: tensors that exist before the graph is built. A graph holds their type and a digest
//! of their contents; the contents are behind [`ConstSource`].

use super::{Graph, ValueId};
use std::any::Any;
use std::fmt;
use std::sync::{Arc, OnceLock};

/// The first 8 bytes of a SHA-256 digest over a constant's dtype, sizes and logical contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest(pub [u8; 8]);

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", u64::from_be_bytes(self.0))
    }
}

/// The holder of a constant's contents. The crate that built the graph recovers its own type by
/// upcasting to [`Any`].
pub trait ConstSource: Any + Send + Sync {
    /// The digest of the contents; computed at most once per graph, on first use.
    fn digest(&self) -> Digest;
}

/// A constant read from text: only its digest is known.
impl ConstSource for Digest {
    fn digest(&self) -> Digest {
        *self
    }
}

/// A constant of a graph. Two constants are equal if they name the same value and their digests are
/// equal.
#[derive(Clone)]
pub struct Const {
    pub(super) value: ValueId,
    pub(super) source: Arc<dyn ConstSource>,
    pub(super) digest: OnceLock<Digest>,
}

impl Const {
    /// The value that represents the constant in the graph.
    pub fn value(&self) -> ValueId {
        self.value
    }

    /// The holder of its contents.
    pub fn source(&self) -> &Arc<dyn ConstSource> {
        &self.source
    }

    /// The holder of its contents as `T`, if it has this type.
    pub fn source_as<T: ConstSource>(&self) -> Option<&T> {
        let any: &dyn Any = &*self.source;
        any.downcast_ref()
    }

    /// The digest of the contents, computed on first use.
    pub fn digest(&self) -> Digest {
        *self.digest.get_or_init(|| self.source.digest())
    }
}

impl Graph {
    /// Replaces the holders of all constants' contents.
    ///
    /// # Errors
    /// The first error of `holder`.
    pub fn with_sources<E>(
        mut self,
        mut holder: impl FnMut(&Const) -> Result<Arc<dyn ConstSource>, E>,
    ) -> Result<Graph, E> {
        for c in &mut self.consts {
            c.source = holder(c)?;
        }
        Ok(self)
    }
}

impl PartialEq for Const {
    fn eq(&self, other: &Const) -> bool {
        self.value == other.value
            && (Arc::ptr_eq(&self.source, &other.source) || self.digest() == other.digest())
    }
}

impl fmt::Debug for Const {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Const")
            .field("value", &self.value)
            .field("digest", &self.digest.get())
            .finish_non_exhaustive()
    }
}
