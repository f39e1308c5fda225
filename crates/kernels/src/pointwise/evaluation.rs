//! An expression over strided operands, compiled and ready to run on them in blocks.

use super::compile::{self, CompiledSteps, InputMode, OperandLayout};
use super::frame::{BLOCK, Failure, Frame};
use super::place::Place;
use super::steps::Context;
use crate::error::Result;
use crate::isa::Isa;
use crate::layout::Loops;
use crate::thread_pool;
use crate::view::Ptr;
use maquette_ir::DType;
use maquette_ir::scalar_expr::ScalarExpr;
use smallvec::SmallVec;
use std::cell::RefCell;
use std::sync::{Mutex, PoisonError};

/// Inner dimensions of at least this length are split into blocks row by row; shorter rows are
/// gathered, several to a block.
const LONG_ROW: usize = 256;

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
}

/// A compiled expression with the loops over its operands.
pub(crate) struct Evaluation {
    loops: Loops,
    steps: CompiledSteps,
    sizes_of: SmallVec<[usize; 4]>,
    is_direct: SmallVec<[bool; 4]>,
    rows: bool,
    numel: usize,
}

impl Evaluation {
    /// `None` if there are no elements. The sizes and strides must fit each other and the
    /// expression.
    pub fn new(expr: &ScalarExpr, operands: &Operands<'_>) -> Result<Option<Evaluation>> {
        let (n_in, n_out) = (expr.inputs().len(), expr.outputs().len());
        let Operands { sizes, strides, overlap, in_place, coords } = *operands;
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

        let rows = loops.inner_size() >= LONG_ROW || loops.sizes.len() == 1;
        let direct = |k: usize, d: DType| {
            rows && loops.inner_stride(k) == 1
                && matches!(d, DType::F32 | DType::F64 | DType::I64 | DType::Bool)
        };
        let dtypes: SmallVec<[DType; 8]> =
            expr.inputs().iter().copied().chain(expr.output_dtypes()).collect();
        let access: SmallVec<[InputMode; 4]> = (0..n_in)
            .map(|k| match loops.strides[k].iter().all(|s| *s == 0) {
                true => InputMode::Uniform,
                false if direct(k, dtypes[k]) => InputMode::Direct,
                false => InputMode::Gather,
            })
            .collect();
        let direct_out: SmallVec<[bool; 4]> =
            (n_in..n_in + n_out).map(|k| direct(k, dtypes[k])).collect();
        let in_place = in_place.filter(|&k| access[k] == InputMode::Direct && direct_out[0]);
        let layout =
            OperandLayout { inputs: &access, outputs: &direct_out, overlap, in_place, coords };
        let steps = compile::compile(expr, &layout)?;
        let sizes_of = dtypes.iter().map(|d| d.size()).collect();
        let is_direct = access.iter().map(|a| *a == InputMode::Direct).chain(direct_out).collect();
        Ok(Some(Evaluation { loops, steps, sizes_of, is_direct, rows, numel }))
    }

    /// Evaluates every element, on the thread pool if there are many. `bases` are the addresses of
    /// the operands' elements 0. Returns the first failure; then the outputs are partly written.
    pub fn run(
        &self,
        isa: Isa,
        bases: &[Ptr<u8>],
        place: Option<&Place<'_>>,
    ) -> Result<Option<Failure>> {
        let cx = Context { isa, loops: &self.loops, bases, reads: &self.steps.reads, place };
        let row = if self.rows { self.loops.inner_size() } else { self.numel };
        let (per_row, rows) = (row.div_ceil(BLOCK), self.numel / row);
        let first = FirstFailure::default();
        thread_pool::ranges(
            per_row * rows,
            thread_pool::GRAIN / BLOCK.min(row),
            1,
            &|from, to| {
                first.add(self.blocks(&cx, from, to, row, per_row));
                Ok(())
            },
        )?;
        Ok(first.get())
    }

    /// Runs blocks `from..to`.
    fn blocks(
        &self,
        cx: &Context<'_>,
        from: usize,
        to: usize,
        row: usize,
        per_row: usize,
    ) -> Option<Failure> {
        run_blocks(&self.steps, cx, self.is_direct.len(), from..to, row, |frame, b| {
            let (r, i) = if self.rows { (b / per_row, b % per_row) } else { (0, b) };
            frame.start = r * row + i * BLOCK;
            frame.n = BLOCK.min(row - i * BLOCK);
            for (k, _) in self.is_direct.iter().enumerate().filter(|(_, d)| **d) {
                let at = cx.loops.offset(k, frame.start) * self.sizes_of[k] as i64;
                frame.direct[k] = cx.bases[k].0.wrapping_offset(at as isize);
            }
        })
    }
}

/// The first failure of several threads.
#[derive(Default)]
pub(super) struct FirstFailure(Mutex<Option<Failure>>);

impl FirstFailure {
    pub fn add(&self, failure: Option<Failure>) {
        if let Some(failure) = failure {
            let mut first = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            *first = Some(first.map_or(failure, |first| first.min(failure)));
        }
    }

    pub fn get(self) -> Option<Failure> {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs a compiled expression on each block after `enter_block` has set the block's position.
/// Returns the first failure.
pub(super) fn run_blocks(
    steps: &CompiledSteps,
    cx: &Context<'_>,
    operands: usize,
    blocks: std::ops::Range<usize>,
    longest: usize,
    mut enter_block: impl FnMut(&mut Frame, usize),
) -> Option<Failure> {
    let mut frame = FRAME.take().unwrap_or_else(|| Box::new(Frame::new()));
    frame.ensure(steps.blocks);
    frame.failure = None;
    frame.direct.clear();
    frame.direct.resize(operands, std::ptr::null_mut());
    (frame.n, frame.start) = (BLOCK.min(longest), 0);
    for s in &steps.once {
        (s.run)(cx, &mut frame, s);
    }
    for b in blocks {
        enter_block(&mut frame, b);
        for s in &steps.each {
            (s.run)(cx, &mut frame, s);
        }
    }
    let failure = frame.failure;
    FRAME.set(Some(frame));
    failure
}
