//! The numbers of the last call whose numbers a program's guards accepted.
//!
//! Most calls repeat a shape. Their numbers are compared with those of the last call, which is
//! cheaper than the checks and conditions of the guards. These depend on the numbers alone.
//!
//! **Technique.** A sequence lock over atomics: the count of changes is odd during a change, and a
//! reader that met a change, or saw two counts, has seen nothing. A reader writes no memory, so
//! that threads do not wait for one another. A writer that meets another one does nothing.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering, fence};

/// The most numbers that are kept.
const MAX_NUMBERS: usize = 64;

/// The numbers of a call.
#[derive(Debug)]
pub(crate) struct AcceptedNumbers {
    /// The number of begun and ended changes: 0 before the first call, odd during a change.
    changes: AtomicU64,
    numbers: Box<[AtomicI64]>,
}

impl AcceptedNumbers {
    /// No call yet. Calls have `count` numbers; of more than [`MAX_NUMBERS`] none is kept.
    pub(crate) fn new(count: usize) -> AcceptedNumbers {
        let kept = if count > MAX_NUMBERS { 0 } else { count };
        AcceptedNumbers {
            changes: AtomicU64::new(0),
            numbers: (0..kept).map(|_| AtomicI64::new(0)).collect(),
        }
    }

    /// Whether the last call had these numbers. `false` while another thread changes them.
    pub(crate) fn are(&self, numbers: &[i64]) -> bool {
        let before = self.changes.load(Ordering::Acquire);
        let equal = self.numbers.len() == numbers.len()
            && self.numbers.iter().zip(numbers).all(|(a, b)| a.load(Ordering::Relaxed) == *b);
        // Orders the loads before the second load of the count.
        fence(Ordering::Acquire);
        let is_set = before != 0 && before.is_multiple_of(2);
        equal && is_set && self.changes.load(Ordering::Relaxed) == before
    }

    /// Keeps the numbers of a call.
    pub(crate) fn set(&self, numbers: &[i64]) {
        let before = self.changes.load(Ordering::Relaxed);
        let changing = before + 1;
        if numbers.len() != self.numbers.len()
            || !before.is_multiple_of(2)
            || self
                .changes
                .compare_exchange(before, changing, Ordering::Acquire, Ordering::Relaxed)
                .is_err()
        {
            return;
        }
        // Orders the odd count before the stores.
        fence(Ordering::Release);
        for (kept, number) in self.numbers.iter().zip(numbers) {
            kept.store(*number, Ordering::Relaxed);
        }
        self.changes.store(changing + 1, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_numbers_of_the_last_call_are_accepted() {
        let accepted = AcceptedNumbers::new(2);
        assert!(!accepted.are(&[0, 0]));
        accepted.set(&[1, 2]);
        assert!(accepted.are(&[1, 2]) && !accepted.are(&[2, 2]) && !accepted.are(&[1]));
        accepted.set(&[3]);
        assert!(accepted.are(&[1, 2]));
        let large = AcceptedNumbers::new(MAX_NUMBERS + 1);
        large.set(&[0; MAX_NUMBERS + 1]);
        assert!(!large.are(&[0; MAX_NUMBERS + 1]) && !large.are(&[]));
        let none = AcceptedNumbers::new(0);
        none.set(&[]);
        assert!(none.are(&[]));
    }

    #[test]
    fn numbers_of_two_calls_are_never_mixed() {
        let accepted = AcceptedNumbers::new(2);
        std::thread::scope(|scope| {
            for k in 0..2 {
                let accepted = &accepted;
                scope.spawn(move || (0..20_000).for_each(|i| accepted.set(&[i * 2 + k; 2])));
            }
            scope.spawn(|| {
                for i in 0..20_000 {
                    assert!(!accepted.are(&[i, i + 1]));
                }
            });
        });
    }
}
