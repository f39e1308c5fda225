//! Row-by-row traversal of an input and an output, for kernels such as softmax that reduce each row
//! and then transform it.
//!
//! Rows are converted to the class of their dtype (`f32` or `f64`) in a scratch buffer of one row
//! per task. Contiguous rows whose dtype is the class are used in place. [`DenseRows`] need nothing
//! else.

use crate::copy::{same_dtype, same_sizes};
use crate::element::Element;
use crate::error::Result;
use crate::isa::Isa;
use crate::layout::Loops;
use crate::math::Float;
use crate::pointwise::moves::{Load, Store};
use crate::scratch::Scratch;
use crate::thread_pool;
use crate::view::{Dims, Ptr, View, ViewMut, numel};
use maquette_ir::DType;

/// Rows that follow each other in an input and an output whose dtype is the class, so that there
/// are no loops to prepare.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DenseRows {
    count: usize,
    n: usize,
}

impl DenseRows {
    /// The rows over the dimensions from `first`, if they are dense and have elements. The views
    /// have the same sizes.
    pub fn of(input: &View<'_>, first: usize, out: &ViewMut<'_>) -> Option<DenseRows> {
        let is_class = |v: &View<'_>| matches!(v.dtype(), DType::F32 | DType::F64);
        let (outer, inner) = input.sizes().split_at_checked(first)?;
        let n = numel(inner);
        let is_dense = is_class(input)
            && input.dtype() == out.dtype()
            && input.is_contiguous()
            && out.is_contiguous();
        (is_dense && n > 0).then(|| DenseRows { count: numel(outer), n })
    }

    /// The number of rows.
    pub fn count(self) -> usize {
        self.count
    }

    /// The number of elements of a row.
    pub fn len(self) -> usize {
        self.n
    }

    /// Calls `f(row, elements, results)` for every row.
    ///
    /// # Safety
    /// The rows begin at these addresses and have the type `A`. The output does not overlap the
    /// input, and nothing else accesses it.
    pub unsafe fn each<A: Copy>(
        self,
        [input, out]: [Ptr<A>; 2],
        f: impl Fn(usize, &[A], &mut [A]) + Sync,
    ) -> Result<()> {
        let DenseRows { count, n } = self;
        let grain = (thread_pool::GRAIN / 4 / n).max(1);
        thread_pool::ranges(count, grain, 1, &|first, last| {
            for r in first..last {
                let at = (r * n) as i64;
                // SAFETY: the caller's promise; a row belongs to one task.
                unsafe { f(r, input.slice(at, n), out.slice_mut(at, n)) }
            }
            Ok(())
        })
    }
}

/// The loops over the rows of an input and an output of the same sizes.
pub(crate) struct RowLoops {
    /// Over the rows: operand 0 is the output, operand 1 the input.
    pub outer: Loops,
    /// Over the elements of a row, with the same operands, in logical order.
    inner: Loops,
    /// The number of elements of a row.
    pub n: usize,
}

impl RowLoops {
    /// Checks the operands. `in_row` selects the dimensions that form a row.
    pub fn new(
        kernel: &'static str,
        input: &View<'_>,
        out: &ViewMut<'_>,
        in_row: impl Fn(usize) -> bool,
    ) -> Result<RowLoops> {
        same_dtype(kernel, "the output", input.dtype(), out.dtype())?;
        same_sizes(kernel, "the output", input.sizes(), out.sizes())?;
        let first = (0..input.rank()).find(|d| in_row(*d)).unwrap_or(input.rank());
        if input.is_contiguous() && out.is_contiguous() && (first..input.rank()).all(&in_row) {
            let (rows, n) = (numel(&input.sizes()[..first]), numel(&input.sizes()[first..]));
            return Ok(RowLoops {
                n,
                outer: Loops::line(rows, [n, n]),
                inner: Loops::line(n, [1, 1]),
            });
        }
        let pick = |of: &[i64], row: bool| -> Dims {
            (0..of.len()).filter(|d| in_row(*d) == row).map(|d| of[d]).collect()
        };
        let loops = |row, sort| {
            let (o, i) = (pick(out.strides(), row), pick(input.strides(), row));
            Loops::new(&pick(input.sizes(), row), [&o[..], &i[..]], sort)
        };
        let (outer, inner) = (loops(false, false), loops(true, false));
        Ok(RowLoops { n: inner.numel(), outer, inner })
    }

    /// Loads row `r` of the input into `xs`.
    fn read<T: Element>(&self, isa: Isa, src: Ptr<T>, r: usize, xs: &mut [T::Class]) {
        let (base, stride) = (self.outer.offset(1, r), self.inner.inner_stride(1));
        self.inner.runs(1, 0, self.n, |pos, at, len| {
            let xs = &mut xs[pos..pos + len];
            // SAFETY: these are elements of the row.
            match stride {
                1 => isa.dispatch(Load::<T>(unsafe { src.slice(base + at, len) }, xs)),
                _ => (0..)
                    .zip(xs)
                    .for_each(|(i, x)| *x = unsafe { src.get(base + at + i * stride) }.load()),
            }
        });
    }

    /// Stores `xs` into row `r` of the output.
    fn write<T: Element>(&self, isa: Isa, dst: Ptr<T>, r: usize, xs: &[T::Class]) {
        let (base, stride) = (self.outer.offset(0, r), self.inner.inner_stride(0));
        self.inner.runs(0, 0, self.n, |pos, at, len| {
            let xs = &xs[pos..pos + len];
            // SAFETY: these are elements of the row, which belongs to one task.
            match stride {
                1 => isa.dispatch(Store::<T>(xs, unsafe { dst.slice_mut(base + at, len) })),
                _ => (0..)
                    .zip(xs)
                    .for_each(|(i, x)| unsafe { dst.set(base + at + i * stride, T::store(*x)) }),
            }
        });
    }

    /// Calls `f(isa, row, elements, results)` for every row. The input may be the output itself.
    pub fn each<T: Element<Class: Float>>(
        &self,
        kernel: &'static str,
        input: &View<'_>,
        out: &ViewMut<'_>,
        f: impl Fn(Isa, usize, &[T::Class], &mut [T::Class]) + Sync,
    ) -> Result<()> {
        let (isa, src, dst) = (Isa::detect(), input.typed::<T>(), out.typed::<T>());
        if self.n == 0 {
            return Ok(());
        }
        let is_class_and_contiguous = |operand| {
            T::DTYPE == T::Class::DTYPE
                && self.inner.sizes.len() == 1
                && self.inner.inner_stride(operand) == 1
        };
        let read_in_place = is_class_and_contiguous(1) && !out.overlaps(input);
        let write_in_place = is_class_and_contiguous(0);
        thread_pool::ranges(
            self.outer.numel(),
            (thread_pool::GRAIN / 4 / self.n).max(1),
            1,
            &|from, to| {
                let mut xs = Scratch::new(kernel, if read_in_place { 0 } else { self.n })?;
                let mut ys = Scratch::new(kernel, if write_in_place { 0 } else { self.n })?;
                for r in from..to {
                    let x: &[T::Class] = match read_in_place {
                        // SAFETY: these are the row's elements, of the class's type. The output
                        // does not overlap them.
                        true => unsafe { Ptr(src.0.cast()).slice(self.outer.offset(1, r), self.n) },
                        false => {
                            self.read(isa, src, r, xs.get());
                            xs.get()
                        }
                    };
                    match write_in_place {
                        // SAFETY: as above; the row belongs to this task alone.
                        true => f(isa, r, x, unsafe {
                            Ptr(dst.0.cast()).slice_mut(self.outer.offset(0, r), self.n)
                        }),
                        false => {
                            f(isa, r, x, ys.get());
                            self.write(isa, dst, r, ys.get());
                        }
                    }
                }
                Ok(())
            },
        )
    }
}
