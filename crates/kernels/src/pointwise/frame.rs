//! The state of a running block: aligned scratch blocks per class, and the addresses of the
//! operands.

use crate::element::Class;
use crate::view::Ptr;
use std::cell::UnsafeCell;

/// Elements per block.
pub(crate) const BLOCK: usize = 1024;

/// A block of scratch, aligned for the widest vectors.
#[repr(align(64))]
pub(crate) struct Block<C>(UnsafeCell<[C; BLOCK]>);

/// The scratch blocks of one class. A block is moved out while it is written, so that the borrow
/// checker allows reads of other blocks meanwhile.
pub(crate) struct Bank<C>(Vec<Option<Box<Block<C>>>>);

impl<C: Class> Bank<C> {
    fn ensure(&mut self, n: usize) {
        while self.0.len() < n {
            self.0.push(Some(Box::new(Block(UnsafeCell::new([C::default(); BLOCK])))));
        }
    }
}

/// The location of a step's operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Location {
    /// A scratch block of the operand's class.
    Scratch(u16),
    /// The memory of input or output `k`, used in place.
    Direct(u16),
}

/// An evaluation that cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Failure {
    /// The row-major index of the element, where the evaluation has such indices.
    pub at: i64,
    /// The instruction.
    pub instr: u32,
    pub kind: FailureKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum FailureKind {
    DivisionByZero,
    /// A computed position outside a dimension of this size.
    Index {
        position: i64,
        dim: usize,
        size: i64,
    },
    /// An assertion, with the index of its message.
    Assertion(u32),
}

/// The state of one thread that runs blocks.
pub(crate) struct Frame {
    /// The number of elements in this block.
    pub n: usize,
    /// The flat index of the block's first element.
    pub start: usize,
    /// The addresses of the direct operands' elements at `start`, inputs first; null for the
    /// others.
    pub direct: Vec<*mut u8>,
    /// The first failure.
    pub failure: Option<Failure>,
    f32: Bank<f32>,
    f64: Bank<f64>,
    i64: Bank<i64>,
    bool: Bank<bool>,
}

/// Associates a class with its bank.
pub(crate) trait Banked: Class {
    fn bank(frame: &mut Frame) -> &mut Bank<Self>;
    fn bank_ref(frame: &Frame) -> &Bank<Self>;
}

macro_rules! banked {
    ($($t:ident)*) => {
        $(impl Banked for $t {
            #[inline(always)]
            fn bank(frame: &mut Frame) -> &mut Bank<Self> { &mut frame.$t }
            #[inline(always)]
            fn bank_ref(frame: &Frame) -> &Bank<Self> { &frame.$t }
        })*
    };
}
banked!(f32 f64 i64 bool);

impl Frame {
    pub fn new() -> Frame {
        Frame {
            n: 0,
            start: 0,
            direct: Vec::new(),
            failure: None,
            f32: Bank(Vec::new()),
            f64: Bank(Vec::new()),
            i64: Bank(Vec::new()),
            bool: Bank(Vec::new()),
        }
    }

    /// Records a failure, unless an earlier one is known.
    pub fn fail(&mut self, failure: Failure) {
        self.failure = Some(self.failure.map_or(failure, |first| first.min(failure)));
    }

    /// Ensures that there are at least this many blocks of f32, f64, i64 and bool.
    pub fn ensure(&mut self, blocks: [usize; 4]) {
        self.f32.ensure(blocks[0]);
        self.f64.ensure(blocks[1]);
        self.i64.ensure(blocks[2]);
        self.bool.ensure(blocks[3]);
    }

    /// The operand's elements in this block.
    ///
    /// # Safety
    /// A direct operand's address must point to `n` elements of class `C`, which nothing writes
    /// while the slice lives.
    #[inline(always)]
    pub unsafe fn source<C: Banked>(&self, location: Location) -> &[C] {
        match location {
            Location::Scratch(i) => match C::bank_ref(self).0.get(i as usize) {
                // SAFETY: nothing writes the block while the slice lives.
                Some(Some(block)) => unsafe { &(&*block.0.get())[..self.n.min(BLOCK)] },
                _ => &[],
            },
            // SAFETY: the caller's promise.
            Location::Direct(k) => unsafe {
                Ptr(self.direct[k as usize].cast::<C>()).slice(0, self.n)
            },
        }
    }

    /// The address of an operand's or destination's first element in this block; null for a block
    /// that does not exist.
    #[inline(always)]
    pub fn address<C: Banked>(&self, location: Location) -> Ptr<C> {
        match location {
            Location::Scratch(i) => match C::bank_ref(self).0.get(i as usize) {
                Some(Some(block)) => Ptr(block.0.get().cast()),
                _ => Ptr(std::ptr::null_mut()),
            },
            Location::Direct(k) => Ptr(self.direct[k as usize].cast()),
        }
    }

    /// Runs `f` with the destination's elements; a scratch destination is moved out of the frame
    /// meanwhile.
    ///
    /// # Safety
    /// A direct destination's address must point to `n` elements of class `C`, which nothing else
    /// accesses meanwhile.
    #[inline(always)]
    pub unsafe fn write<C: Banked>(
        &mut self,
        location: Location,
        f: impl FnOnce(&Frame, &mut [C]),
    ) {
        match location {
            Location::Scratch(i) => {
                let Some(mut block) = C::bank(self).0.get_mut(i as usize).and_then(Option::take)
                else {
                    return;
                };
                let n = self.n.min(BLOCK);
                f(self, &mut block.0.get_mut()[..n]);
                C::bank(self).0[i as usize] = Some(block);
            }
            Location::Direct(k) => {
                // SAFETY: the caller's promise.
                let out = unsafe { Ptr(self.direct[k as usize].cast::<C>()).slice_mut(0, self.n) };
                f(self, out);
            }
        }
    }
}
