//! The transpose of a convolution: a product, whose rows are added at the positions of their taps.

use super::Conv;
use crate::error::Result;
use crate::gemm::{Gemm, Mat, Product, Right};
use crate::pointwise::ops::{Add, Op2};
use crate::scratch::Scratch;
use crate::view::Ptr;

impl<T: Product> Conv<'_, T>
where
    Add: Op2<T, T>,
{
    /// The transposed convolution: one product per item, whose rows are added at their taps'
    /// positions.
    pub(super) fn transposed(&self, items: usize) -> Result<()> {
        let ((ci, co), (li, lo), plain) = (self.channels, self.planes, self.is_plain);
        let rows = co * self.unfold.taps();
        Self::over_items(items, |item, threads| {
            let mut scratch = Scratch::new("conv", if plain { 0 } else { rows * li })?;
            let target = if plain { self.y.at(item * co * lo) } else { scratch.get().as_mut_ptr() };
            let kernel = Ptr(self.kernel(item).as_ptr().cast_mut());
            let source = Ptr(self.input(item).as_ptr().cast_mut());
            let gemm = Gemm {
                sizes: [rows, li, ci],
                c: Mat::row_major(Ptr(target), li),
                a: Mat::row_major(kernel, rows).transposed(),
                b: Right::InPlace(Mat::row_major(source, li)),
                alpha: T::cast(1i64),
                addend: if plain { self.biases(item) } else { None },
            };
            // SAFETY: whole matrices: [co taps, li] = kernel[ci, co taps]ᵀ input[ci, li]. The
            // item's output belongs to this task.
            unsafe { T::product(self.isa, threads, gemm)? }
            if !plain {
                // SAFETY: as above.
                let out = unsafe { self.y.slice_mut((item * co * lo) as i64, co * lo) };
                out.fill(T::default());
                self.unfold.fold(scratch.get(), out, <Add as Op2<T, T>>::f)?;
                if let Some(bias) = self.bias {
                    let of_group = &bias[item % self.groups * co..];
                    for (row, bias) in out.chunks_mut(lo.max(1)).zip(of_group) {
                        row.iter_mut().for_each(|v| *v = <Add as Op2<T, T>>::f(*v, *bias));
                    }
                }
            }
            Ok(())
        })
    }
}
