//! Values of a thread that hold while a function runs.

use std::cell::Cell;
use std::thread::LocalKey;

/// Runs `f` with a value in a cell of the thread. The cell has its value from before afterwards,
/// also if `f` panics.
pub(crate) fn with_value<T: Copy, R>(
    cell: &'static LocalKey<Cell<T>>,
    value: T,
    f: impl FnOnce() -> R,
) -> R {
    struct Restore<T: Copy + 'static>(&'static LocalKey<Cell<T>>, T);
    impl<T: Copy + 'static> Drop for Restore<T> {
        fn drop(&mut self) {
            self.0.set(self.1);
        }
    }
    let _restore = Restore(cell, cell.replace(value));
    f()
}
