//! The numbers of the last call whose numbers a program's guards accepted.
//!
//! Most calls repeat a shape. Their numbers are compared with those of the last call, which is
//! cheaper than the checks and conditions of the guards. These depend on the numbers alone. The
//! runtime gets the stamp of the numbers, and takes the instance of the last call with this stamp.
//! So nothing is read and compared twice.
//!
//! **Technique.** A sequence lock over atomics: the count of changes is odd during a change, and a
//! reader that met a change, or saw two counts, has seen nothing. A reader writes no memory, so
//! that threads do not wait for one another. A writer that meets another one does nothing.

use maquette_runtime::LayoutStamp;
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

    /// The stamp of these numbers, if the last call had them. `None` while another thread changes
    /// them.
    pub(crate) fn stamp_of(&self, numbers: &[i64]) -> Option<LayoutStamp> {
        let before = self.changes.load(Ordering::Acquire);
        let equal = self.numbers.len() == numbers.len()
            && self.numbers.iter().zip(numbers).all(|(a, b)| a.load(Ordering::Relaxed) == *b);
        // Orders the loads before the second load of the count.
        fence(Ordering::Acquire);
        let is_set = before != 0 && before.is_multiple_of(2);
        let is_read = equal && is_set && self.changes.load(Ordering::Relaxed) == before;
        is_read.then_some(LayoutStamp(before))
    }

    /// Keeps the numbers of a call. Returns their stamp, unless another thread changes them or
    /// there are too many. No other numbers had the stamp before.
    pub(crate) fn set(&self, numbers: &[i64]) -> Option<LayoutStamp> {
        let before = self.changes.load(Ordering::Relaxed);
        let changing = before + 1;
        if numbers.len() != self.numbers.len()
            || !before.is_multiple_of(2)
            || self
                .changes
                .compare_exchange(before, changing, Ordering::Acquire, Ordering::Relaxed)
                .is_err()
        {
            return None;
        }
        // Orders the odd count before the stores.
        fence(Ordering::Release);
        for (kept, number) in self.numbers.iter().zip(numbers) {
            kept.store(*number, Ordering::Relaxed);
        }
        self.changes.store(changing + 1, Ordering::Release);
        Some(LayoutStamp(changing + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_numbers_of_the_last_call_are_accepted() {
        let accepted = AcceptedNumbers::new(2);
        assert_eq!(accepted.stamp_of(&[0, 0]), None);
        let first = accepted.set(&[1, 2]);
        assert!(first.is_some() && accepted.stamp_of(&[1, 2]) == first);
        assert!(accepted.stamp_of(&[2, 2]).is_none() && accepted.stamp_of(&[1]).is_none());
        assert_eq!(accepted.set(&[3]), None);
        assert_eq!(accepted.stamp_of(&[1, 2]), first);
        let second = accepted.set(&[2, 2]);
        assert!(second.is_some() && second != first);
        let again = accepted.set(&[1, 2]);
        assert!(again != first && again != second && accepted.stamp_of(&[1, 2]) == again);
        let large = AcceptedNumbers::new(MAX_NUMBERS + 1);
        assert_eq!(large.set(&[0; MAX_NUMBERS + 1]), None);
        assert_eq!(large.stamp_of(&[0; MAX_NUMBERS + 1]), None);
        assert_eq!(large.stamp_of(&[]), None);
        let none = AcceptedNumbers::new(0);
        assert!(none.set(&[]).is_some() && none.stamp_of(&[]).is_some());
    }

    #[test]
    fn numbers_of_two_calls_are_never_mixed() {
        let accepted = AcceptedNumbers::new(2);
        std::thread::scope(|scope| {
            for k in 0..2 {
                let accepted = &accepted;
                scope.spawn(move || {
                    for i in 0..20_000 {
                        accepted.set(&[i * 2 + k; 2]);
                    }
                });
            }
            scope.spawn(|| {
                for i in 0..20_000 {
                    assert_eq!(accepted.stamp_of(&[i, i + 1]), None);
                }
            });
        });
    }
}
