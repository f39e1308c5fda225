//! Sums, products, means and extremes over the last dimensions of a row-major operand, in the
//! operand's dtype. The elements of an output are one row of memory, and rows follow each other. So
//! there are no loops to prepare, which takes longer than the sum of a few elements, and one call
//! folds many rows.

use super::ReduceOp;
use super::lanes::CHUNK;
use super::rows::fold_rows;
use crate::element::Class;
use crate::error::Result;
use crate::isa::{Each, Isa};
use crate::math::Float;
use crate::pointwise::ops::{Add, Max, Min, Mul, Op2};
use crate::thread_pool;
use crate::view::{Ptr, View, ViewMut, numel};
use maquette_ir::DType;

/// A reduction of dense rows of given sizes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DenseReduction {
    fold: FoldFn,
    /// The rows, and the elements of one.
    sizes: [usize; 2],
}

impl DenseReduction {
    /// The reduction of `input` over `dims` into `out`, if the layouts are as the [module](self)
    /// says and a row has at most one chunk. `None` also for a wrong output.
    pub fn of(
        op: ReduceOp,
        input: &View<'_>,
        dims: &[usize],
        out: &ViewMut<'_>,
    ) -> Option<DenseReduction> {
        let rank = input.rank();
        let kept = rank.saturating_sub(dims.len());
        let (outer, inner) = input.sizes().split_at(kept);
        let fits = |found: &[i64]| match found.strip_prefix(outer) {
            Some(rest) => {
                rest.is_empty() || rest.len() == inner.len() && rest.iter().all(|n| *n == 1)
            }
            None => false,
        };
        let sizes = [numel(outer), numel(inner)];
        if input.dtype() != out.dtype()
            || !dims.iter().copied().eq(kept..rank)
            || !fits(out.sizes())
            || !input.is_contiguous()
            || !out.is_contiguous()
            || sizes[0] == 0
            || !(1..=CHUNK).contains(&sizes[1])
        {
            return None;
        }
        let fold = match out.dtype() {
            DType::F32 if op == ReduceOp::Mean => means::<f32>,
            DType::F64 if op == ReduceOp::Mean => means::<f64>,
            DType::F32 => of::<f32>(op)?,
            DType::F64 => of::<f64>(op)?,
            DType::I64 => of::<i64>(op)?,
            _ => return None,
        };
        Some(DenseReduction { fold, sizes })
    }

    /// Reduces the rows from the first address into the elements from the second.
    ///
    /// # Safety
    /// They are those of the views of [`DenseReduction::of`], or have their layouts. The output
    /// does not overlap the input, and nothing else accesses it.
    pub unsafe fn run(&self, isa: Isa, addresses: [Ptr<u8>; 2]) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { (self.fold)(isa, addresses, self.sizes) }
    }
}

/// The least and the greatest value of a class, and 1.
trait Range: Class {
    const LEAST: Self;
    const GREATEST: Self;
    const ONE: Self;
}

macro_rules! range {
    ($($t:ty: $least:expr, $greatest:expr, $one:expr;)*) => {
        $(impl Range for $t {
            const LEAST: $t = $least;
            const GREATEST: $t = $greatest;
            const ONE: $t = $one;
        })*
    };
}
range! {
    f32: f32::NEG_INFINITY, f32::INFINITY, 1.0;
    f64: f64::NEG_INFINITY, f64::INFINITY, 1.0;
    i64: i64::MIN, i64::MAX, 1;
}

type FoldFn = unsafe fn(Isa, [Ptr<u8>; 2], [usize; 2]) -> Result<()>;

/// The fold of an operation in class `A`.
fn of<A: Range>(op: ReduceOp) -> Option<FoldFn>
where
    Add: Op2<A, A>,
    Mul: Op2<A, A>,
    Min: Op2<A, A>,
    Max: Op2<A, A>,
{
    Some(match op {
        ReduceOp::Sum => |isa, at, sizes| {
            // SAFETY: the promise of `DenseReduction::run`.
            unsafe { fold::<A, Add>(isa, at, sizes, A::default(), |_, _| {}) }
        },
        ReduceOp::Prod => |isa, at, sizes| {
            // SAFETY: as above.
            unsafe { fold::<A, Mul>(isa, at, sizes, A::ONE, |_, _| {}) }
        },
        ReduceOp::Max => |isa, at, sizes| {
            // SAFETY: as above.
            unsafe { fold::<A, Max>(isa, at, sizes, A::LEAST, |_, _| {}) }
        },
        ReduceOp::Min => |isa, at, sizes| {
            // SAFETY: as above.
            unsafe { fold::<A, Min>(isa, at, sizes, A::GREATEST, |_, _| {}) }
        },
        _ => return None,
    })
}

/// The means of rows.
///
/// # Safety
/// As [`DenseReduction::run`].
unsafe fn means<A: Float>(isa: Isa, at: [Ptr<u8>; 2], sizes: [usize; 2]) -> Result<()>
where
    Add: Op2<A, A>,
{
    let count = A::from_f64(sizes[1] as f64);
    let divide = |isa: Isa, sums: &mut [A]| isa.dispatch(Each(sums, |x: A| (x / count).one_nan()));
    // SAFETY: the caller's promise.
    unsafe { fold::<A, Add>(isa, at, sizes, A::ZERO, divide) }
}

/// Folds rows of `n` elements, and finishes the results.
///
/// # Safety
/// As [`DenseReduction::run`].
unsafe fn fold<A: Class, O: Op2<A, A>>(
    isa: Isa,
    [first, results]: [Ptr<u8>; 2],
    [rows, n]: [usize; 2],
    identity: A,
    finish: impl Fn(Isa, &mut [A]) + Sync,
) -> Result<()> {
    let (first, results) = (Ptr(first.0.cast::<A>()), Ptr(results.0.cast::<A>()));
    thread_pool::ranges(rows, (thread_pool::GRAIN / n).max(1), 1, &|from, to| {
        // SAFETY: the rows of `n` elements, and an output for each; the outputs of this range are
        // this task's alone.
        unsafe {
            let out = results.slice_mut(from as i64, to - from);
            fold_rows::<A, O>(isa, Ptr(first.at(from * n)), n as i64, n, identity, out);
            finish(isa, out);
        }
        Ok(())
    })
}
