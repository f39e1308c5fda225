//! Scratch memory aligned to cache lines. Without the alignment, every 64-byte load and store
//! touches two cache lines.

use crate::element::Class;
use crate::error::{KernelError, Result};
use std::marker::PhantomData;

#[repr(align(64))]
#[derive(Clone, Copy)]
struct Line {
    _bytes: [u8; 64],
}

/// A vector of `n` copies of a value. It is an error, not an abort, if the allocation fails: an
/// expanded view can have more elements than fit in memory.
pub(crate) fn filled<T: Copy>(kernel: &'static str, value: T, n: usize) -> Result<Vec<T>> {
    let mut out = Vec::new();
    out.try_reserve_exact(n).map_err(|_| KernelError::Memory { kernel, elements: n })?;
    out.resize(n, value);
    Ok(out)
}

/// An aligned buffer of `n` elements, initially zero.
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
        // SAFETY: the lines hold `n` elements of `A`, are aligned for `A`, and all-zero bytes are a
        // valid value of every `Class`.
        unsafe { std::slice::from_raw_parts_mut(self.lines.as_mut_ptr().cast(), self.n) }
    }
}
