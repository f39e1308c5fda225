//! The gradient of an embedding: rows that are added to those that indices name.
//!
//! A task has some columns and adds the rows in the order of the indices, so that the bits do not
//! depend on the number of threads. Half precision adds in `f32` and rounds the sums.

use super::not_an_index;
use crate::copy::{copy, elements, same_dtype, same_sizes, to_vec};
use crate::element::Element;
use crate::error::{KernelError, Result};
use crate::isa::{Isa, LINE, Simd};
use crate::math::Float;
use crate::scratch::filled;
use crate::thread_pool;
use crate::view::{Dims, Ptr, View, ViewMut};
use maquette_ir::DType;

const KERNEL: &str = "embedding_backward";

/// Writes to `out[N, D]` the sums of the rows of `grad[..., D]` that `indices[...]` name. Indices
/// that name no row, and `padding`, are left out. With `by_frequency`, a row is divided by the
/// number of indices that name it.
///
/// # Errors
/// The sizes or the dtypes do not fit, or there is not enough memory.
pub fn embedding_backward(
    grad: &View<'_>,
    indices: &View<'_>,
    padding: i64,
    by_frequency: bool,
    out: &mut ViewMut<'_>,
) -> Result<()> {
    let [rows, width] = *out.sizes() else {
        return Err(KernelError::argument(KERNEL, "the result must be a matrix"));
    };
    let expected: Dims = indices.sizes().iter().copied().chain([width]).collect();
    same_sizes(KERNEL, "the gradient", &expected, grad.sizes())?;
    same_dtype(KERNEL, "the gradient", out.dtype(), grad.dtype())?;
    if !matches!(indices.dtype(), DType::I64 | DType::I32) {
        return Err(not_an_index(KERNEL, indices.dtype()));
    }
    let at = to_vec::<i64>(indices)?;
    let is_row = |row: i64| (0..rows).contains(&row) && row != padding;
    let mut counts = filled(KERNEL, 0u32, if by_frequency { rows as usize } else { 0 })?;
    for &row in at.iter().filter(|row| by_frequency && is_row(**row)) {
        counts[row as usize] += 1;
    }
    let named = at.into_iter().enumerate().filter(|(_, row)| is_row(*row));
    let named: Vec<[usize; 2]> = named.map(|(i, row)| [i, row as usize]).collect();
    let sum = Sum { named: &named, counts: &counts, width: width as usize };
    match out.dtype() {
        DType::F64 => sum.write::<f64>(grad, out),
        DType::F32 | DType::F16 | DType::BF16 => sum.write::<f32>(grad, out),
        found => {
            let expected = "a float".into();
            Err(KernelError::DType { kernel: KERNEL, operand: "the gradient", expected, found })
        }
    }
}

struct Sum<'a> {
    /// The rows of the gradient that are added, and those to which.
    named: &'a [[usize; 2]],
    /// How many rows are added to each row, if that matters.
    counts: &'a [u32],
    width: usize,
}

impl Sum<'_> {
    /// Adds in a class; the result may be of another dtype, and have any strides.
    fn write<A: Element + Float>(&self, grad: &View<'_>, out: &mut ViewMut<'_>) -> Result<()> {
        let grad = elements::<A>(grad)?;
        let n = out.as_view().numel();
        if out.dtype() == A::DTYPE && out.as_view().is_contiguous() {
            return self.add(&grad, out.typed::<A>(), n);
        }
        let mut sums = filled(KERNEL, A::ZERO, n)?;
        self.add(&grad, Ptr(sums.as_mut_ptr()), n)?;
        let sums = View::from_slice_sized(&sums, out.sizes());
        copy(&sums.ok_or_else(|| KernelError::argument(KERNEL, "the sizes overflow"))?, out)
    }

    /// Writes the `n` sums to `out`.
    fn add<A: Element + Float>(&self, grad: &[A], out: Ptr<A>, n: usize) -> Result<()> {
        let (width, isa) = (self.width, Isa::detect());
        let rows = n.checked_div(width).unwrap_or(0);
        // One task for each thread, half of this grain: short pieces of rows are slow to reach.
        // Tasks have whole cache lines of columns.
        let grain = thread_pool::GRAIN / (rows + self.named.len()).max(1);
        let columns = grain.max(2 * width.div_ceil(thread_pool::num_threads()));
        thread_pool::ranges(width, columns, LINE / size_of::<A>(), &|from, to| {
            for row in 0..rows {
                // SAFETY: a task's columns are its own.
                unsafe { out.slice_mut((row * width + from) as i64, to - from) }.fill(A::ZERO);
            }
            for &[i, row] in self.named {
                let factor = self.counts.get(row).map(|n| A::ONE / A::from_f64(f64::from(*n)));
                let from_row = &grad[i * width..][from..to];
                // SAFETY: as above.
                let out = unsafe { out.slice_mut((row * width + from) as i64, to - from) };
                isa.dispatch(AddRow { out, row: from_row, factor });
            }
            Ok(())
        })
    }
}

/// Adds a row, times a factor.
struct AddRow<'a, A> {
    out: &'a mut [A],
    row: &'a [A],
    factor: Option<A>,
}

impl<A: Float> Simd for AddRow<'_, A> {
    type Out = ();
    #[inline(always)]
    fn run(self) {
        let AddRow { out, row, factor } = self;
        let pairs = out.iter_mut().zip(row);
        match factor {
            Some(factor) => pairs.for_each(
                #[inline(always)]
                |(out, x)| *out = (*out + *x * factor).one_nan(),
            ),
            None => pairs.for_each(
                #[inline(always)]
                |(out, x)| *out = (*out + *x).one_nan(),
            ),
        }
    }
}
