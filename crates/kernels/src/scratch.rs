//! Scratch memory aligned for the widest vectors: unaligned, every load and store of 64 bytes
//! touches two lines of cache.

use crate::element::Class;
use crate::error::{KernelError, Result};
use std::marker::PhantomData;

#[repr(align(64))]
#[derive(Clone, Copy)]
struct Line {
    _bytes: [u8; 64],
}

/// So many copies of a value: an error where there is no memory for them, as for an expanded view
/// of more elements than any memory has.
pub(crate) fn filled<T: Copy>(kernel: &'static str, value: T, n: usize) -> Result<Vec<T>> {
    let mut out = Vec::new();
    out.try_reserve_exact(n).map_err(|_| KernelError::Memory { kernel, elements: n })?;
    out.resize(n, value);
    Ok(out)
}

/// So many elements, zero at first.
pub(crate) struct Scratch<A> {
    lines: Vec<Line>,
    n: usize,
    class: PhantomData<A>,
}

impl<A: Class> Scratch<A> {
    pub fn new(kernel: &'static str, n: usize) -> Result<Self> {
        let (mut lines, count) = (Vec::new(), n.div_ceil(64 / size_of::<A>()));
        lines.try_reserve_exact(count).map_err(|_| KernelError::Memory { kernel, elements: n })?;
        lines.resize(count, Line { _bytes: [0; 64] });
        Ok(Scratch { lines, n, class: PhantomData })
    }

    pub fn get(&mut self) -> &mut [A] {
        // SAFETY: the lines hold `n` elements of `A`, which fits their alignment, and any `Class`
        // may be all zeros.
        unsafe { std::slice::from_raw_parts_mut(self.lines.as_mut_ptr().cast(), self.n) }
    }
}
