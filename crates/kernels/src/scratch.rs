//! Scratch memory aligned to cache lines. Without the alignment, every 64-byte load and store
//! touches two cache lines.

use crate::element::Class;
use crate::error::{KernelError, Result};
use crate::math::Float;
use std::cell::RefCell;
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

    /// The address of the first element.
    pub fn as_ptr(&self) -> *const A {
        self.lines.as_ptr().cast()
    }

    pub fn get(&mut self) -> &mut [A] {
        // SAFETY: the lines hold `n` elements of `A`, are aligned for `A`, and all-zero bytes are a
        // valid value of every `Class`.
        unsafe { std::slice::from_raw_parts_mut(self.lines.as_mut_ptr().cast(), self.n) }
    }
}

/// The most cache lines of a buffer that a thread keeps for [`with_scratch`].
const KEPT: usize = (8 << 20) / size_of::<Line>();

thread_local! {
    /// The buffers that are not in use. A call within a call takes another one.
    static LINES: RefCell<Vec<Vec<Line>>> = const { RefCell::new(Vec::new()) };
}

/// Calls `f` with an aligned buffer of `n` elements of unspecified values. The thread keeps the
/// buffer for its next call, so that small kernels neither allocate nor clear memory.
pub(crate) fn with_scratch<A: Float, R>(
    kernel: &'static str,
    n: usize,
    f: impl FnOnce(&mut [A]) -> R,
) -> Result<R> {
    let mut lines = LINES.with_borrow_mut(Vec::pop).unwrap_or_default();
    let count = n.div_ceil(64 / size_of::<A>());
    if lines.len() < count {
        lines
            .try_reserve_exact(count - lines.len())
            .map_err(|_| KernelError::Memory { kernel, elements: n })?;
        lines.resize(count, Line { _bytes: [0; 64] });
    }
    // SAFETY: as in `Scratch::get`, except that the bytes are what the last call left: valid values
    // of every `Float`.
    let out = f(unsafe { std::slice::from_raw_parts_mut(lines.as_mut_ptr().cast(), n) });
    if lines.len() <= KEPT {
        LINES.with_borrow_mut(|kept| kept.push(lines));
    }
    Ok(out)
}
