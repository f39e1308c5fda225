//! Errors as values: handles that carry an index into a process-wide table of errors.

use super::SymError;
use std::error::Error;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

/// An error that can be shared.
pub type SharedError = Arc<dyn Error + Send + Sync>;

/// The most errors that are kept; all later ones read as [`SymError::TooManyErrors`].
const CAPACITY: usize = 1 << 16;

static ERRORS: Mutex<Vec<SharedError>> = Mutex::new(Vec::new());
static OVERFULL: LazyLock<SharedError> =
    LazyLock::new(|| Arc::new(SymError::TooManyErrors(CAPACITY)));

/// An error of the table.
#[derive(Clone, Copy)]
pub(super) struct PoisonId(u32);

pub(super) fn record(e: SharedError) -> PoisonId {
    let mut errors = ERRORS.lock().unwrap_or_else(PoisonError::into_inner);
    if errors.len() < CAPACITY {
        errors.push(e);
        PoisonId(errors.len() as u32 - 1)
    } else {
        PoisonId(CAPACITY as u32)
    }
}

pub(super) fn get(id: PoisonId) -> SharedError {
    let errors = ERRORS.lock().unwrap_or_else(PoisonError::into_inner);
    errors.get(id.0 as usize).unwrap_or(&OVERFULL).clone()
}

/// The error as a result: itself if it is of this module.
pub(super) fn raise(id: PoisonId) -> SymError {
    let e = get(id);
    match e.downcast_ref::<SymError>() {
        Some(e) => e.clone(),
        None => SymError::Poisoned(e),
    }
}
