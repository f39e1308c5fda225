//! Error values for `Copy` handles. An error is stored in a process-wide table and a poisoned
//! handle carries its index, so that a handle stays 16 bytes and needs no destructor. Stored errors
//! are never freed; [`CAPACITY`] bounds the table.

use super::SymError;
use std::error::Error;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

/// A shared error of any type.
pub type SharedError = Arc<dyn Error + Send + Sync>;

/// The most stored errors; every later one reads as [`SymError::TooManyErrors`].
const CAPACITY: usize = 1 << 16;

static ERRORS: Mutex<Vec<SharedError>> = Mutex::new(Vec::new());
static OVERFULL: LazyLock<SharedError> =
    LazyLock::new(|| Arc::new(SymError::TooManyErrors(CAPACITY)));

/// The index of a stored error.
#[derive(Clone, Copy)]
pub(super) struct PoisonId(u32);

/// Stores an error.
pub(super) fn record(e: SharedError) -> PoisonId {
    let mut errors = ERRORS.lock().unwrap_or_else(PoisonError::into_inner);
    if errors.len() < CAPACITY {
        errors.push(e);
        PoisonId(errors.len() as u32 - 1)
    } else {
        PoisonId(CAPACITY as u32)
    }
}

/// The stored error.
pub(super) fn get(id: PoisonId) -> SharedError {
    let errors = ERRORS.lock().unwrap_or_else(PoisonError::into_inner);
    errors.get(id.0 as usize).unwrap_or(&OVERFULL).clone()
}

/// The stored error as a [`SymError`]; an error of another type is wrapped.
pub(super) fn raise(id: PoisonId) -> SymError {
    let e = get(id);
    match e.downcast_ref::<SymError>() {
        Some(e) => e.clone(),
        None => SymError::Poisoned(e),
    }
}
