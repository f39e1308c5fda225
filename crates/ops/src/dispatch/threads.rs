//! The number of threads, as a program may ask for it.

use crate::dispatch::mode::{Question, ask};
use maquette_ir::Loc;

/// How many threads a kernel that this thread calls may use, the calling thread included: the
/// budget of [`with_num_threads`](crate::with_num_threads), or the size of the pool. A traced
/// function cannot ask for it.
#[track_caller]
pub fn num_threads() -> usize {
    // A trace gets the error, which this cannot return.
    let _reported = ask(Question::Surroundings, "the number of threads", Loc::caller());
    maquette_kernels::num_threads()
}
