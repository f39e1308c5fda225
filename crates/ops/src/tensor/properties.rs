//! The properties of a tensor that a program may ask for.

use crate::dispatch::failures::access_failed;
use crate::dispatch::mode::{self, Question};
use crate::error::{Error, ErrorKind, Result};
use crate::tensor::Tensor;
use maquette_ir::sym::SymInt;
use maquette_ir::{DType, Device, Layout, Loc};
use std::sync::Arc;

impl Tensor {
    /// The element type.
    pub fn dtype(&self) -> DType {
        self.meta().dtype
    }

    /// Where it lives.
    pub fn device(&self) -> Device {
        self.meta().device
    }

    /// How it is laid out.
    pub fn layout(&self) -> Layout {
        self.meta().layout
    }

    /// The number of dimensions.
    pub fn dim(&self) -> usize {
        self.meta().rank()
    }

    /// Its sizes, possibly symbolic.
    pub fn sizes(&self) -> &[SymInt] {
        &self.meta().sizes
    }

    /// Its strides in elements, possibly symbolic.
    pub fn strides(&self) -> &[SymInt] {
        &self.meta().strides
    }

    /// The offset of its first element in its storage. The inputs of a run may begin anywhere in
    /// their storages: a compiled program is guarded on where they do, if its function asks; any
    /// other trace fails, and the integer is poisoned.
    #[track_caller]
    pub fn storage_offset(&self) -> SymInt {
        let what = "where a tensor begins in its storage";
        match mode::ask(Question::Offset(self), what, Loc::caller()) {
            Ok(()) => self.meta().offset,
            Err(e) => SymInt::poison(Arc::new(e)),
        }
    }

    /// The size of one dimension, counted from the end where negative; a poisoned integer where
    /// there is none.
    #[track_caller]
    pub fn size(&self, dim: i64) -> SymInt {
        if let Some(e) = self.poisoned() {
            return SymInt::poison(Arc::new(e));
        }
        let rank = self.dim() as i64;
        let index = if dim < 0 { dim + rank } else { dim };
        match usize::try_from(index).ok().and_then(|i| self.sizes().get(i)) {
            Some(&s) => s,
            None => {
                let e = Error::value(format!(
                    "dimension {dim} is out of range for a tensor of {rank} dimensions"
                ))
                .at(Loc::caller());
                SymInt::poison(Arc::new(e))
            }
        }
    }

    /// The number of elements.
    pub fn numel(&self) -> SymInt {
        match self.poisoned() {
            Some(e) => SymInt::poison(Arc::new(e)),
            None => self.meta().numel(),
        }
    }

    /// The sizes as plain numbers; an error where one is symbolic.
    #[track_caller]
    pub fn sizes_i64(&self) -> Result<Vec<i64>> {
        let loc = Loc::caller();
        self.alive()?;
        let symbolic = |s: &SymInt| {
            let message =
                format!("the size {s} is symbolic; use `sizes()`, which returns symbolic integers");
            access_failed(self, Error::from(ErrorKind::Message(message)).at(loc))
        };
        self.sizes().iter().map(|s| s.as_i64().ok_or_else(|| symbolic(s))).collect()
    }

    /// How often its storage was written to. A traced function cannot ask this of an input or a
    /// tensor from outside, nor of a view of one.
    #[track_caller]
    pub fn version(&self) -> u64 {
        let what = "how often an input, or a tensor from outside of the trace, was written";
        // A trace gets the error, which this cannot return.
        let _reported = mode::ask(Question::Writes(self), what, Loc::caller());
        self.writes()
    }

    /// As [`Tensor::version`], for the library itself.
    pub(crate) fn writes(&self) -> u64 {
        self.live().map_or(0, |l| l.storage.writes())
    }

    /// The half-open span of bytes it sees; `None` where it is empty or symbolic.
    pub(crate) fn span(&self) -> Option<(i64, i64)> {
        let m = self.meta();
        let mut last = m.offset.as_i64()?;
        let width = m.dtype.size() as i64;
        let first = last.checked_mul(width)?;
        for (n, s) in m.sizes.iter().zip(&m.strides) {
            let (n, s) = (n.as_i64()?, s.as_i64()?);
            if n == 0 {
                return None;
            }
            last = last.checked_add((n - 1).checked_mul(s)?)?;
        }
        Some((first, last.checked_add(1)?.checked_mul(width)?))
    }
}
