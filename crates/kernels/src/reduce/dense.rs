//! Sums, products and extremes over the last dimensions of a row-major operand, in the operand's
//! dtype. The elements of an output are one row of memory, and rows follow each other. So there are
//! no loops to prepare, which takes longer than the sum of a few elements, and one call folds many
//! rows.

use super::ReduceOp;
use super::lanes::CHUNK;
use super::rows::fold_rows;
use crate::element::Class;
use crate::error::Result;
use crate::isa::Isa;
use crate::pointwise::ops::{Add, Max, Min, Mul, Op2};
use crate::thread_pool;
use crate::view::{Ptr, View, ViewMut, numel};
use maquette_ir::DType;

/// Reduces `input` over `dims` into `out`, if the layouts are as the [module](self) says and a row
/// has at most one chunk. Otherwise returns `false`, with nothing written: also for a wrong output.
pub(super) fn run(
    isa: Isa,
    op: ReduceOp,
    input: &View<'_>,
    dims: &[usize],
    out: &mut ViewMut<'_>,
) -> Result<bool> {
    let rank = input.rank();
    let kept = rank.saturating_sub(dims.len());
    let (outer, inner) = input.sizes().split_at(kept);
    let fits = |found: &[i64]| match found.strip_prefix(outer) {
        Some(rest) => rest.is_empty() || rest.len() == inner.len() && rest.iter().all(|n| *n == 1),
        None => false,
    };
    if input.dtype() != out.dtype()
        || !dims.iter().copied().eq(kept..rank)
        || !fits(out.sizes())
        || !input.is_contiguous()
        || !out.is_contiguous()
    {
        return Ok(false);
    }
    let sizes = [numel(outer), numel(inner)];
    match out.dtype() {
        DType::F32 => {
            of::<f32>(isa, op, input, sizes, [1.0, f32::NEG_INFINITY, f32::INFINITY], out)
        }
        DType::F64 => {
            of::<f64>(isa, op, input, sizes, [1.0, f64::NEG_INFINITY, f64::INFINITY], out)
        }
        DType::I64 => of::<i64>(isa, op, input, sizes, [1, i64::MIN, i64::MAX], out),
        _ => Ok(false),
    }
}

/// [`run`] in class `A`, whose range is `least..=greatest`.
fn of<A: Class>(
    isa: Isa,
    op: ReduceOp,
    input: &View<'_>,
    [rows, n]: [usize; 2],
    [one, least, greatest]: [A; 3],
    out: &mut ViewMut<'_>,
) -> Result<bool>
where
    Add: Op2<A, A>,
    Mul: Op2<A, A>,
    Min: Op2<A, A>,
    Max: Op2<A, A>,
{
    if rows == 0 || !(1..=CHUNK).contains(&n) {
        return Ok(false);
    }
    let (fold, identity): (FoldFn<A>, A) = match op {
        ReduceOp::Sum => (fold::<A, Add>, A::default()),
        ReduceOp::Prod => (fold::<A, Mul>, one),
        ReduceOp::Max => (fold::<A, Max>, least),
        ReduceOp::Min => (fold::<A, Min>, greatest),
        _ => return Ok(false),
    };
    fold(isa, input, [rows, n], identity, out)?;
    Ok(true)
}

type FoldFn<A> = fn(Isa, &View<'_>, [usize; 2], A, &mut ViewMut<'_>) -> Result<()>;

/// Folds rows of `n` elements.
fn fold<A: Class, O: Op2<A, A>>(
    isa: Isa,
    input: &View<'_>,
    [rows, n]: [usize; 2],
    identity: A,
    out: &mut ViewMut<'_>,
) -> Result<()> {
    let (first, results) = (input.typed::<A>(), out.typed::<A>());
    thread_pool::ranges(rows, (thread_pool::GRAIN / n).max(1), 1, &|from, to| {
        // SAFETY: `run` found rows of `n` elements, and an output for each; the outputs of this
        // range are this task's alone.
        unsafe {
            let out = results.slice_mut(from as i64, to - from);
            fold_rows::<A, O>(isa, Ptr(first.at(from * n)), n as i64, n, identity, out);
        }
        Ok(())
    })
}
