//! Pointwise kernels: evaluates a [`ScalarExpr`] over strided operands by vectorised
//! interpretation, one block of 1,024 elements at a time (as MonetDB/X100, Boncz et al. 2005).
//!
//! Each instruction of the expression is one vectorised loop over a block that stays in the
//! first-level cache. Contiguous operands whose dtype is a class are used in place; others are
//! loaded into scratch blocks. Blocks are independent, so the result does not depend on threads.

mod compile;
pub(crate) mod frame;
pub(crate) mod ops;
pub(crate) mod steps;
#[cfg(test)]
mod tests;

use crate::error::{KernelError, Result};
use crate::isa::Isa;
use crate::layout::Loops;
use crate::thread_pool;
use crate::view::{Dims, Ptr, View, ViewMut};
use compile::{CompiledSteps, InputMode, OperandLayout};
use frame::{BLOCK, Frame};
use maquette_ir::DType;
use maquette_ir::scalar_expr::ScalarExpr;
use smallvec::SmallVec;
use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering};
use steps::Context;

/// Inner dimensions of at least this length are split into blocks row by row; shorter rows are
/// gathered, several to a block.
const LONG_ROW: usize = 256;

thread_local! {
    /// The thread's scratch blocks, reused between calls.
    static FRAME: RefCell<Option<Box<Frame>>> = const { RefCell::new(None) };
}

/// Evaluates `expr` for every element. The inputs must have the outputs' sizes (with stride 0 where
/// broadcast) and the expression's dtypes. An input may have exactly an output's memory and layout;
/// the caller must exclude any other overlap with an output.
///
/// # Errors
/// Counts, dtypes or sizes do not match, or an integer is divided by zero; in the latter case the
/// outputs are partly written.
pub fn pointwise(
    expr: &ScalarExpr,
    inputs: &[View<'_>],
    outputs: &mut [ViewMut<'_>],
) -> Result<()> {
    pointwise_on(Isa::detect(), expr, inputs, outputs)
}

/// As [`pointwise`], on the given instruction set.
pub fn pointwise_on(
    isa: Isa,
    expr: &ScalarExpr,
    inputs: &[View<'_>],
    outputs: &mut [ViewMut<'_>],
) -> Result<()> {
    let Some(sizes) = check(expr, inputs, outputs)? else { return Ok(()) };
    let strides = outputs.iter().map(|o| o.strides()).chain(inputs.iter().map(|i| i.strides()));
    let mut loops = Loops::new(&sizes, strides, true);
    let numel = loops.numel();
    if numel == 0 {
        return Ok(());
    }
    // The loops list outputs first, because these decide the loop order; steps number inputs first.
    loops.strides.rotate_left(outputs.len());

    let rows = loops.inner_size() >= LONG_ROW || loops.sizes.len() == 1;
    let direct = |k: usize, d: DType| {
        rows && loops.inner_stride(k) == 1
            && matches!(d, DType::F32 | DType::F64 | DType::I64 | DType::Bool)
    };
    let access: SmallVec<[InputMode; 4]> = inputs
        .iter()
        .enumerate()
        .map(|(k, v)| match loops.strides[k].iter().all(|s| *s == 0) {
            true => InputMode::Uniform,
            false if direct(k, v.dtype()) => InputMode::Direct,
            false => InputMode::Gather,
        })
        .collect();
    let n_in = inputs.len();
    let direct_out: SmallVec<[bool; 4]> =
        outputs.iter().enumerate().map(|(j, v)| direct(n_in + j, v.dtype())).collect();
    let overlap = outputs.iter().any(|o| inputs.iter().any(|i| o.overlaps(i)));
    let in_place = if overlap {
        in_place(inputs, outputs).filter(|&k| access[k] == InputMode::Direct && direct_out[0])
    } else {
        None
    };
    let steps = compile::compile(
        expr,
        &OperandLayout { inputs: &access, outputs: &direct_out, overlap, in_place },
    )?;

    let bases = inputs
        .iter()
        .map(|v| v.as_ptr())
        .chain(outputs.iter().map(|v| v.as_ptr()))
        .map(|p| Ptr(p.cast_mut()))
        .collect();
    let sizes_of: SmallVec<[usize; 4]> = inputs
        .iter()
        .map(|v| v.dtype().size())
        .chain(outputs.iter().map(|v| v.dtype().size()))
        .collect();
    let is_direct: SmallVec<[bool; 4]> =
        access.iter().map(|a| *a == InputMode::Direct).chain(direct_out).collect();
    let run = BlockRunner { cx: Context { isa, loops, bases }, steps, sizes_of, is_direct, rows };

    let row = if rows { run.cx.loops.inner_size() } else { numel };
    let (per_row, rows_n) = (row.div_ceil(BLOCK), numel / row);
    let zero_divisor = AtomicBool::new(false);
    thread_pool::ranges(per_row * rows_n, thread_pool::GRAIN / BLOCK.min(row), 1, &|from, to| {
        zero_divisor.fetch_or(run.blocks(from, to, row, per_row), Ordering::Relaxed);
        Ok(())
    })?;
    if zero_divisor.into_inner() { Err(KernelError::DivisionByZero) } else { Ok(()) }
}

/// The input that occupies exactly the memory of the only output, if no other input overlaps that
/// output.
fn in_place(inputs: &[View<'_>], outputs: &[ViewMut<'_>]) -> Option<usize> {
    let [out] = outputs else { return None };
    let mut over = inputs.iter().enumerate().filter(|(_, i)| out.overlaps(i));
    let ((k, v), None) = (over.next()?, over.next()) else { return None };
    (v.as_ptr() == out.as_ptr() && v.dtype() == out.dtype() && v.strides() == out.strides())
        .then_some(k)
}

struct BlockRunner {
    cx: Context,
    steps: CompiledSteps,
    sizes_of: SmallVec<[usize; 4]>,
    is_direct: SmallVec<[bool; 4]>,
    rows: bool,
}

impl BlockRunner {
    /// Runs blocks `from..to`, and returns whether an integer was divided by zero.
    fn blocks(&self, from: usize, to: usize, row: usize, per_row: usize) -> bool {
        run_blocks(&self.steps, &self.cx, self.is_direct.len(), from..to, row, |frame, b| {
            let (r, i) = if self.rows { (b / per_row, b % per_row) } else { (0, b) };
            frame.start = r * row + i * BLOCK;
            frame.n = BLOCK.min(row - i * BLOCK);
            for (k, _) in self.is_direct.iter().enumerate().filter(|(_, d)| **d) {
                let at = self.cx.loops.offset(k, frame.start) * self.sizes_of[k] as i64;
                frame.direct[k] = self.cx.bases[k].0.wrapping_offset(at as isize);
            }
        })
    }
}

/// Runs a compiled expression on each block after `enter_block` has set the block's position.
/// Returns whether an integer was divided by zero.
fn run_blocks(
    steps: &CompiledSteps,
    cx: &Context,
    operands: usize,
    blocks: std::ops::Range<usize>,
    longest: usize,
    mut enter_block: impl FnMut(&mut Frame, usize),
) -> bool {
    let mut frame = FRAME.take().unwrap_or_else(|| Box::new(Frame::new()));
    frame.ensure(steps.blocks);
    frame.zero_divisor = false;
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
    let zero = frame.zero_divisor;
    FRAME.set(Some(frame));
    zero
}

/// An expression compiled once for the most common layout: every operand is contiguous and used in
/// place.
pub struct ContiguousKernel {
    steps: CompiledSteps,
    /// The dtypes of the inputs, then of the outputs.
    dtypes: SmallVec<[DType; 4]>,
    cx: Context,
}

impl ContiguousKernel {
    /// Compiles the expression. `None` if some operand's dtype must be converted through scratch.
    pub fn new(expr: &ScalarExpr) -> Option<ContiguousKernel> {
        let dtypes: SmallVec<[DType; 4]> =
            expr.inputs().iter().copied().chain(expr.output_dtypes()).collect();
        if !dtypes.iter().all(|d| matches!(d, DType::F32 | DType::F64 | DType::I64 | DType::Bool)) {
            return None;
        }
        let (inputs, outputs) =
            (vec![InputMode::Direct; expr.inputs().len()], vec![true; expr.outputs().len()]);
        let steps = compile::compile(
            expr,
            &OperandLayout { inputs: &inputs, outputs: &outputs, overlap: false, in_place: None },
        )
        .ok()?;
        // A store step uses the operand's loops, which this path does not have. An output that is
        // an input or a constant needs such a step.
        let direct = steps.each.iter().chain(&steps.once).all(|s| !s.in_memory);
        let loops = Loops { sizes: Dims::new(), strides: SmallVec::new() };
        direct.then(|| ContiguousKernel {
            steps,
            dtypes,
            cx: Context { isa: Isa::detect(), loops, bases: SmallVec::new() },
        })
    }

    /// As [`pointwise()`] with this expression. Returns `false`, without having written anything,
    /// if the operands are not one contiguous row each, or overlap.
    pub fn run(&self, inputs: &[View<'_>], outputs: &mut [ViewMut<'_>]) -> Result<bool> {
        let Some(n) = outputs.first().map(|o| o.numel()).filter(|n| *n > 0) else {
            return Ok(false);
        };
        let all = || inputs.iter().chain(outputs.iter().map(|o| o.as_view()));
        let row = |(v, d): (&View<'_>, &DType)| {
            v.dtype() == *d && v.sizes() == [n as i64] && v.strides() == [1]
        };
        if all().count() != self.dtypes.len() || !all().zip(&self.dtypes).all(row) {
            return Ok(false);
        }
        if outputs.iter().any(|o| inputs.iter().any(|i| o.overlaps(i))) {
            return Ok(false);
        }
        let bases: SmallVec<[(Ptr<u8>, usize); 4]> =
            all().map(|v| (Ptr(v.as_ptr().cast_mut()), v.dtype().size())).collect();
        let blocks = |from, to| {
            run_blocks(&self.steps, &self.cx, bases.len(), from..to, n, |frame, b| {
                frame.start = b * BLOCK;
                frame.n = BLOCK.min(n - frame.start);
                for ((base, size), at) in bases.iter().zip(&mut frame.direct) {
                    *at = base.0.wrapping_add(frame.start * size);
                }
            })
        };
        let zero_divisor = if n <= thread_pool::GRAIN {
            blocks(0, n.div_ceil(BLOCK))
        } else {
            let zero = AtomicBool::new(false);
            thread_pool::ranges(n.div_ceil(BLOCK), thread_pool::GRAIN / BLOCK, 1, &|from, to| {
                zero.fetch_or(blocks(from, to), Ordering::Relaxed);
                Ok(())
            })?;
            zero.into_inner()
        };
        if zero_divisor { Err(KernelError::DivisionByZero) } else { Ok(true) }
    }
}

/// Checks the operands and returns the sizes to iterate over; `None` if there are no outputs.
fn check(expr: &ScalarExpr, inputs: &[View<'_>], outputs: &[ViewMut<'_>]) -> Result<Option<Dims>> {
    const KERNEL: &str = "pointwise";
    let count = |what, expected: usize, found: usize| match expected == found {
        true => Ok(()),
        false => Err(KernelError::Count { kernel: KERNEL, what, expected, found }),
    };
    count("inputs", expr.inputs().len(), inputs.len())?;
    count("outputs", expr.outputs().len(), outputs.len())?;
    let Some(first) = outputs.first() else { return Ok(None) };
    let sizes = first.sizes();
    let views = inputs
        .iter()
        .map(|v| ("an input", v))
        .chain(outputs.iter().map(|v| ("an output", v.as_view())));
    for ((operand, v), d) in views.zip(expr.inputs().iter().copied().chain(expr.output_dtypes())) {
        if v.dtype() != d {
            return Err(KernelError::DType {
                kernel: KERNEL,
                operand,
                expected: d.to_string(),
                found: v.dtype(),
            });
        }
        if v.sizes() != sizes {
            return Err(KernelError::Shape {
                kernel: KERNEL,
                operand,
                expected: sizes.to_vec(),
                found: v.sizes().to_vec(),
            });
        }
    }
    Ok(Some(sizes.into()))
}
