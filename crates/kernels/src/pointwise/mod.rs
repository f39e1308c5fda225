//! Pointwise kernels: evaluates a [`ScalarExpr`] over strided operands by vectorised
//! interpretation, one block of 1,024 elements at a time (as MonetDB/X100, Boncz et al. 2005).
//!
//! Each instruction of the expression is one vectorised loop over a block that stays in the
//! first-level cache. Contiguous operands whose dtype is a class are used in place; others are
//! loaded into scratch blocks. Blocks are independent, so the result does not depend on threads.
//! In a loop nest, adjacent cheap instructions are one loop over smaller tiles: a [`chain`].

mod broadcast;
pub(crate) mod chain;
mod compile;
mod evaluation;
pub(crate) mod frame;
pub(crate) mod moves;
pub(crate) mod ops;
pub(crate) mod place;
mod plan;
mod row_read;
pub(crate) mod steps;
#[cfg(test)]
mod tests;

use crate::error::{KernelError, Result};
use crate::isa::Isa;
use crate::layout::Loops;
use crate::thread_pool;
use crate::view::{Dims, Ptr, View, ViewMut};
pub(crate) use compile::in_place_op;
use compile::{CompiledSteps, InputMode, OperandLayout};
use evaluation::with_frame;
pub(crate) use evaluation::{Evaluation, FirstFailure, LONG_ROW, Operands};
use frame::BLOCK;
use maquette_ir::DType;
use maquette_ir::scalar_expr::ScalarExpr;
pub use plan::PointwisePlan;
use smallvec::SmallVec;
use steps::Context;

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
    let of = |v: &View<'_>| Ptr(v.as_ptr().cast_mut());
    let views = || inputs.iter().chain(outputs.iter().map(|o| o.as_view()));
    let overlap = outputs.iter().any(|o| inputs.iter().any(|i| o.overlaps(i)));
    let strides: SmallVec<[&[i64]; 8]> = views().map(|v| v.strides()).collect();
    let operands = Operands {
        sizes: &sizes,
        strides: &strides,
        overlap,
        in_place: if overlap { in_place(inputs, outputs) } else { None },
        coords: None,
        computed: &[],
    };
    let Some(evaluation) = Evaluation::new(expr, &operands)? else { return Ok(()) };
    let bases: SmallVec<[Ptr<u8>; 8]> = views().map(of).collect();
    match evaluation.run(isa, &bases, None)? {
        None => Ok(()),
        Some(_) => Err(KernelError::DivisionByZero),
    }
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

/// An expression compiled once for the most common layout: every operand is contiguous and used in
/// place.
pub struct ContiguousKernel {
    steps: CompiledSteps,
    /// The dtypes of the inputs, then of the outputs.
    dtypes: SmallVec<[DType; 4]>,
    isa: Isa,
    /// No loops: every operand is used in place.
    loops: Loops,
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
            &OperandLayout {
                inputs: &inputs,
                outputs: &outputs,
                overlap: false,
                in_place: None,
                coords: None,
            },
        )
        .ok()?;
        // A store step uses the operand's loops, which this path does not have. An output that is
        // an input or a constant needs such a step.
        let direct = steps.each.iter().chain(&steps.once).all(|s| !s.in_memory);
        let loops = Loops { sizes: Dims::new(), strides: SmallVec::new() };
        direct.then(|| ContiguousKernel { steps, dtypes, isa: Isa::detect(), loops })
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
            let cx = Context {
                isa: self.isa,
                loops: &self.loops,
                bases: &[],
                reads: &[],
                chains: &self.steps.chains,
                place: None,
            };
            with_frame(&self.steps, &cx, bases.len(), BLOCK.min(n), |frame| {
                for b in from..to {
                    frame.start = b * BLOCK;
                    frame.n = BLOCK.min(n - frame.start);
                    for ((base, size), at) in bases.iter().zip(&mut frame.direct) {
                        *at = base.0.wrapping_add(frame.start * size);
                    }
                    for s in &self.steps.each {
                        (s.run)(&cx, frame, s);
                    }
                }
            })
        };
        let failure = if n <= thread_pool::GRAIN {
            blocks(0, n.div_ceil(BLOCK))
        } else {
            let first = FirstFailure::default();
            thread_pool::ranges(n.div_ceil(BLOCK), thread_pool::GRAIN / BLOCK, 1, &|from, to| {
                first.add(blocks(from, to));
                Ok(())
            })?;
            first.get()
        };
        // The only failure of a pure expression.
        if failure.is_some() { Err(KernelError::DivisionByZero) } else { Ok(true) }
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
