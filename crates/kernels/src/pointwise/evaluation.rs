//! An expression over strided operands, compiled and ready to run on them in blocks.

use super::compile::{self, CompiledSteps, InputMode, Level, OperandLayout, is_class};
use super::frame::{BLOCK, Failure, Frame};
use super::place::{ComputedDim, Place};
use super::steps::Context;
use crate::error::Result;
use crate::isa::Isa;
use crate::layout::Loops;
use crate::thread_pool;
use crate::view::{Ptr, contiguous};
use maquette_ir::DType;
use maquette_ir::scalar_expr::ScalarExpr;
use smallvec::SmallVec;
use std::cell::RefCell;
use std::sync::{Mutex, PoisonError};

/// Inner dimensions of at least this length are split into blocks row by row. Blocks have several
/// shorter rows, and only operands in the order of the loops are used in place.
pub(crate) const LONG_ROW: usize = 256;

/// The same for inner dimensions along which an operand repeats one element: to copy that element
/// takes longer than to begin a row.
const REPEATING_ROW: usize = 32;

/// The same where an operand is read at computed positions: if they are those of a row, to copy
/// element by element takes longer.
const SELECTED_ROW: usize = 8;

thread_local! {
    /// The thread's scratch blocks, reused between calls.
    static FRAME: RefCell<Option<Box<Frame>>> = const { RefCell::new(None) };
}

/// The layout of an evaluation's operands.
pub(crate) struct Operands<'a> {
    /// The sizes to iterate over.
    pub sizes: &'a [i64],
    /// The strides of inputs, outputs and, in a loop nest, of the coordinates and the index.
    pub strides: &'a [&'a [i64]],
    /// Whether some output may overlap an input.
    pub overlap: bool,
    /// The input that occupies exactly the memory of the only output.
    pub in_place: Option<usize>,
    /// In a loop nest: the axes of the coordinates.
    pub coords: Option<&'a [u32]>,
    /// In a loop nest: the computed dimensions of each input that is not part of an output.
    pub computed: &'a [SmallVec<[ComputedDim; 2]>],
}

/// A compiled expression with the loops over its operands.
pub(crate) struct Evaluation {
    loops: Loops,
    steps: CompiledSteps,
    placed: SmallVec<[Placed; 4]>,
    /// The number of inputs and outputs.
    operands: usize,
    /// The elements that are evaluated block after block: a row of the loops, or all.
    row: usize,
    numel: usize,
}

/// An operand whose address a frame has.
struct Placed {
    operand: u16,
    /// The bytes of an element.
    size: i64,
    /// The elements from row to row, where the loops have at most two dimensions.
    row_stride: Option<i64>,
    /// The bytes from element to element in a row.
    step: usize,
}

impl Evaluation {
    /// `None` if there are no elements. The sizes and strides must fit each other and the
    /// expression.
    pub fn new(expr: &ScalarExpr, operands: &Operands<'_>) -> Result<Option<Evaluation>> {
        let (n_in, n_out) = (expr.inputs().len(), expr.outputs().len());
        let Operands { sizes, strides, overlap, in_place, coords, computed } = *operands;
        let (inputs, others) = strides.split_at(n_in);
        // The loops list outputs first, because these decide the loop order; steps number inputs
        // first.
        let (outputs, virtual_ones) = others.split_at(n_out);
        let all = outputs.iter().chain(inputs).chain(virtual_ones).copied();
        let mut loops = Loops::new(sizes, all, true);
        let numel = loops.numel();
        if numel == 0 {
            return Ok(None);
        }
        loops.strides[..n_in + n_out].rotate_left(n_out);

        let rank = loops.sizes.len();
        let repeats = |k: usize| {
            loops.inner_stride(k) == 0 && loops.strides[k].iter().any(|stride| *stride != 0)
        };
        let is_source = |k: usize| {
            let dims = computed.get(k).filter(|dims| !dims.is_empty());
            dims.is_some_and(|dims| dims.iter().all(|d| d.size > 0)) && loops.inner_stride(k) == 1
        };
        let long = match () {
            () if (0..n_in).any(is_source) => SELECTED_ROW,
            () if (0..n_in).any(repeats) => REPEATING_ROW,
            () => LONG_ROW,
        };
        let rows = loops.inner_size() >= long || rank == 1;
        let row_major = contiguous(&loops.sizes);
        let dtypes: SmallVec<[DType; 8]> =
            expr.inputs().iter().copied().chain(expr.output_dtypes()).collect();
        let direct = |k: usize| {
            let in_order = match rows {
                true => loops.inner_stride(k) == 1,
                false => loops.strides[k] == row_major,
            };
            in_order && is_class(dtypes[k])
        };
        let access: SmallVec<[InputMode; 4]> = (0..n_in)
            .map(|k| match loops.strides[k].iter().all(|s| *s == 0) {
                _ if rows && is_source(k) => InputMode::AdjacentSource,
                true => InputMode::Uniform,
                false if rows && loops.inner_stride(k) == 0 => InputMode::Row,
                false if direct(k) => InputMode::Direct,
                false => InputMode::Gather,
            })
            .collect();
        let direct_out: SmallVec<[bool; 4]> = (n_in..n_in + n_out).map(direct).collect();
        let in_place = in_place.filter(|&k| access[k] == InputMode::Direct && direct_out[0]);
        let level = |(axis, k): (&u32, usize)| {
            let in_row = rows && loops.inner_stride(k) == 0;
            (*axis, if in_row { Level::Row } else { Level::Each })
        };
        let coords: Option<SmallVec<[(u32, Level); 4]>> =
            coords.map(|axes| axes.iter().zip(n_in + n_out..).map(level).collect());
        let layout = OperandLayout {
            inputs: &access,
            outputs: &direct_out,
            overlap,
            in_place,
            coords: coords.as_deref(),
        };
        let steps = compile::compile(expr, &layout)?;
        let placed = |k: usize| {
            let in_row = access.get(k) == Some(&InputMode::Row);
            let is_direct = match k < n_in {
                true => matches!(access[k], InputMode::Direct | InputMode::AdjacentSource),
                false => direct_out[k - n_in],
            };
            let row_stride = match &loops.strides[k][..] {
                _ if !rows => Some(0),
                [_] => Some(0),
                [outer, _] => Some(*outer),
                _ => None,
            };
            let size = dtypes[k].size();
            let step = if in_row { 0 } else { size };
            let placed = Placed { operand: k as u16, size: size as i64, row_stride, step };
            (is_direct || in_row).then_some(placed)
        };
        let placed = (0..n_in + n_out).filter_map(placed).collect();
        let row = if rows { loops.inner_size() } else { numel };
        Ok(Some(Evaluation { loops, steps, placed, operands: n_in + n_out, row, numel }))
    }

    /// Evaluates every element, on the thread pool if there are many. `bases` are the addresses of
    /// the operands' elements 0. Returns the first failure; then the outputs are partly written.
    pub fn run(
        &self,
        isa: Isa,
        bases: &[Ptr<u8>],
        place: Option<&Place<'_>>,
    ) -> Result<Option<Box<Failure>>> {
        if let Some(n) = self.few() {
            return Ok(self.range(isa, bases, place, 0, n));
        }
        let first = FirstFailure::default();
        thread_pool::ranges(self.numel, thread_pool::GRAIN, BLOCK, &|from, to| {
            first.add(self.range(isa, bases, place, from, to));
            Ok(())
        })?;
        Ok(first.get())
    }

    /// The number of elements, if they are too few for several threads.
    pub fn few(&self) -> Option<usize> {
        (self.numel <= thread_pool::GRAIN).then_some(self.numel)
    }

    /// Evaluates the elements `from..to`, in the order of the loops, on this thread.
    pub fn range(
        &self,
        isa: Isa,
        bases: &[Ptr<u8>],
        place: Option<&Place<'_>>,
        from: usize,
        to: usize,
    ) -> Option<Box<Failure>> {
        let CompiledSteps { reads, chains, .. } = &self.steps;
        let cx = Context { isa, loops: &self.loops, bases, reads, chains, place };
        with_frame(&self.steps, &cx, self.operands, BLOCK.min(self.row), |frame| {
            let mut at = from;
            let (mut row, mut first) = match self.row == self.numel {
                true => (0, at),
                false => (at / self.row, at % self.row),
            };
            while at < to {
                let end = to.min(at - first + self.row);
                for p in &self.placed {
                    let k = p.operand as usize;
                    let offset = match p.row_stride {
                        Some(stride) => row as i64 * stride,
                        None => self.loops.offset(k, at - first),
                    };
                    let bytes = offset.wrapping_mul(p.size) as isize;
                    let base = bases[k].0.wrapping_offset(bytes);
                    frame.direct[k] = base.wrapping_add(first * p.step);
                }
                if !self.steps.row.is_empty() {
                    frame.start = at - first;
                    frame.n = if self.steps.fills[1] { BLOCK.min(self.row) } else { 1 };
                    for s in &self.steps.row {
                        (s.run)(&cx, frame, s);
                    }
                }
                while at < end {
                    (frame.start, frame.n) = (at, BLOCK.min(end - at));
                    for s in &self.steps.each {
                        (s.run)(&cx, frame, s);
                    }
                    at += frame.n;
                    for p in &self.placed {
                        let address = &mut frame.direct[p.operand as usize];
                        *address = address.wrapping_add(frame.n * p.step);
                    }
                }
                (row, first) = (row + 1, 0);
            }
        })
    }
}

/// The first failure of several threads.
#[derive(Default)]
pub(crate) struct FirstFailure(Mutex<Option<Failure>>);

impl FirstFailure {
    pub fn add(&self, failure: Option<Box<Failure>>) {
        if let Some(failure) = failure.map(|failure| *failure) {
            let mut first = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            *first = Some(first.map_or(failure, |first| first.min(failure)));
        }
    }

    pub fn get(self) -> Option<Box<Failure>> {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner).map(Box::new)
    }
}

/// Calls `f` with the thread's frame, after the steps that run once. `longest` is the greatest
/// number of elements of a block. Returns the first failure.
pub(super) fn with_frame(
    steps: &CompiledSteps,
    cx: &Context<'_>,
    operands: usize,
    longest: usize,
    f: impl FnOnce(&mut Frame),
) -> Option<Box<Failure>> {
    let mut frame = FRAME.take().unwrap_or_else(|| Box::new(Frame::new()));
    frame.ensure(steps.blocks);
    frame.failure = None;
    frame.direct.clear();
    frame.direct.resize(operands, std::ptr::null_mut());
    (frame.n, frame.start) = (if steps.fills[0] { longest } else { 1 }, 0);
    for s in &steps.once {
        (s.run)(cx, &mut frame, s);
    }
    f(&mut frame);
    let failure = frame.failure.map(Box::new);
    FRAME.set(Some(frame));
    failure
}
