//! Memory of packed factors, in huge pages where a cache keeps them.
//!
//! A product reads packed weights faster than a processor looks up pages of 4 KiB: 9 MiB are 2,304
//! pages, and on a virtual machine each look-up walks two tables. Linux gives pages of 2 MiB to a
//! program that asks for them, unless its administrator forbids that.
//!
//! **Cost:** at most one huge page more than the elements take.

use crate::element::Class;
use crate::error::Result;
use crate::scratch::Scratch;
use memmap2::MmapMut;

/// The bytes of a huge page. With other sizes of pages the memory is correct all the same.
const HUGE: usize = 2 << 20;

/// How long a packed factor lives: for one call, or in a cache for later ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lifetime {
    Call,
    Cached,
}

/// The elements of a packed factor, initially zero.
pub(crate) struct PackedElements<A> {
    memory: Memory<A>,
    n: usize,
}

enum Memory<A> {
    Lines(Scratch<A>),
    /// Pages, and the first byte of the elements, which is aligned to a huge page.
    Pages(MmapMut, usize),
}

impl<A: Class> PackedElements<A> {
    /// Memory for `n` elements.
    ///
    /// # Errors
    /// There is not enough memory.
    pub fn new(kernel: &'static str, n: usize, lifetime: Lifetime) -> Result<PackedElements<A>> {
        let bytes = n.checked_mul(size_of::<A>()).filter(|bytes| *bytes >= HUGE);
        let memory = match bytes.filter(|_| lifetime == Lifetime::Cached).and_then(pages) {
            Some((map, first)) => Memory::Pages(map, first),
            None => Memory::Lines(Scratch::new(kernel, n)?),
        };
        Ok(PackedElements { memory, n })
    }

    /// How many elements.
    pub fn len(&self) -> usize {
        self.n
    }

    /// The address of the first element.
    pub fn as_ptr(&self) -> *const A {
        match &self.memory {
            Memory::Lines(lines) => lines.as_ptr(),
            Memory::Pages(map, first) => map[*first..].as_ptr().cast(),
        }
    }

    pub fn get(&mut self) -> &mut [A] {
        match &mut self.memory {
            Memory::Lines(lines) => lines.get(),
            Memory::Pages(map, first) => {
                let start = map[*first..].as_mut_ptr();
                // SAFETY: the map has the bytes of `n` elements after `first`, where it is aligned
                // for every class. All-zero bytes are a valid value of every `Class`.
                unsafe { std::slice::from_raw_parts_mut(start.cast(), self.n) }
            }
        }
    }
}

/// Pages for so many bytes from the returned offset on. `None` if the system has none.
fn pages(bytes: usize) -> Option<(MmapMut, usize)> {
    let map = MmapMut::map_anon(bytes.checked_add(HUGE)?).ok()?;
    // Pages of the usual size are as correct.
    #[cfg(target_os = "linux")]
    let _ = map.advise(memmap2::Advice::HugePage);
    let first = map.as_ptr().align_offset(HUGE);
    (first <= HUGE).then_some((map, first))
}

#[cfg(test)]
mod tests {
    use super::{HUGE, Lifetime, PackedElements};

    #[test]
    fn elements_are_zeros_that_can_be_written() {
        let sizes = [0, 1, 1000, HUGE / 4 - 1, HUGE / 4, HUGE + 5];
        let all = sizes.map(|n| [Lifetime::Call, Lifetime::Cached].map(|of| (n, of)));
        for (n, lifetime) in all.into_iter().flatten() {
            let mut elements = PackedElements::<f32>::new("test", n, lifetime).unwrap();
            assert!(elements.get().iter().all(|x| x.to_bits() == 0));
            elements.get().iter_mut().enumerate().for_each(|(i, x)| *x = i as f32);
            assert_eq!(elements.get().len(), n);
            assert_eq!(elements.as_ptr().align_offset(64), 0);
            if let Some(last) = n.checked_sub(1) {
                // SAFETY: the element is one of `n`.
                assert_eq!(unsafe { *elements.as_ptr().add(last) }, last as f32);
            }
        }
        assert!(PackedElements::<f32>::new("test", usize::MAX / 2, Lifetime::Cached).is_err());
    }
}
