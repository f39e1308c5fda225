//! Index operations whose indices select single elements: `gather` and `scatter`.

use super::{Add, Combine, Max, Min, Mul, Negative, Replace, checked, not_an_index};
use crate::copy::{check_dim, same_dtype, same_sizes};
use crate::element::{Element, dispatch, from_scalar};
use crate::error::{KernelError, Result};
use crate::isa::{Isa, Simd};
use crate::layout::{for_each, for_rows};
use crate::view::{Dims, Ptr, View, ViewMut, contiguous};
use maquette_ir::{DType, Scalar};
use std::marker::PhantomData;

/// Fails unless `index` has the same rank and, along every dimension but `dim`, is no larger than
/// `sizes`.
fn fits(kernel: &'static str, index: &View<'_>, sizes: &[i64], dim: usize) -> Result<()> {
    let inside = index.rank() == sizes.len()
        && (0..sizes.len()).all(|d| d == dim || index.sizes()[d] <= sizes[d]);
    // A rank of 0 counts as one dimension of size 1.
    if inside || index.numel() == 0 || (index.rank() <= 1 && sizes.len() <= 1) {
        Ok(())
    } else {
        Err(KernelError::Shape {
            kernel,
            operand: "the index",
            expected: sizes.to_vec(),
            found: index.sizes().to_vec(),
        })
    }
}

/// The strides over `rank` dimensions with 0 in place of that of `dim`, and the stride of `dim`.
fn without(v: &View<'_>, dim: usize, rank: usize) -> (Dims, i64) {
    let of = |d: usize| v.strides().get(d).copied().unwrap_or(0);
    ((0..rank).map(|d| if d == dim { 0 } else { of(d) }).collect(), of(dim))
}

/// Computes `out[i][j][k] = input[index[i][j][k]][j][k]` for `dim` 0, and correspondingly for other
/// dimensions. `out` has the sizes of `index`.
pub fn gather(input: &View<'_>, dim: usize, index: &View<'_>, out: &mut ViewMut<'_>) -> Result<()> {
    let [from, at] = [input, index].map(|v| Ptr(v.as_ptr().cast_mut()));
    let gather = Gather::new(input, dim, index, out)?;
    // SAFETY: the addresses are those of the views.
    unsafe { gather.run([from, at, Ptr(out.as_ptr().cast_mut())]) }
}

/// A [`gather`] for operands of given layouts.
pub(crate) struct Gather {
    run: unsafe fn(&Gather, [Ptr<u8>; 3]) -> Result<()>,
    dim: usize,
    /// The size of the input along the dimension, and its stride.
    size: i64,
    along: i64,
    /// The sizes of the index, and the strides of the input, the index and the output. That of the
    /// input along the dimension is 0.
    sizes: Dims,
    strides: [Dims; 3],
}

impl Gather {
    /// The gather of operands of the layouts of these, whose memory is not accessed.
    pub fn new(
        input: &View<'_>,
        dim: usize,
        index: &View<'_>,
        out: &ViewMut<'_>,
    ) -> Result<Gather> {
        const KERNEL: &str = "gather";
        check_dim(KERNEL, dim, input.rank())?;
        same_dtype(KERNEL, "the output", input.dtype(), out.dtype())?;
        same_sizes(KERNEL, "the output", index.sizes(), out.sizes())?;
        fits(KERNEL, index, input.sizes(), dim)?;
        let run = match index.dtype() {
            DType::I64 => dispatch!(size input.dtype(), T => Gather::elements::<T, i64>),
            DType::I32 => dispatch!(size input.dtype(), T => Gather::elements::<T, i32>),
            found => return Err(not_an_index(KERNEL, found)),
        };
        let (strides, along) = without(input, dim, index.rank());
        let strides = [strides, Dims::from_slice(index.strides()), Dims::from_slice(out.strides())];
        let size = input.sizes().get(dim).copied().unwrap_or(1);
        Ok(Gather { run, dim, size, along, sizes: Dims::from_slice(index.sizes()), strides })
    }

    /// Gathers between these addresses of element 0 of the input, the index and the output.
    ///
    /// # Safety
    /// With the layouts of the operands, they satisfy the contracts of [`View::from_raw`] and
    /// [`ViewMut::from_raw`] during the call.
    pub unsafe fn run(&self, addresses: [Ptr<u8>; 3]) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { (self.run)(self, addresses) }
    }

    /// # Safety
    /// As [`Gather::run`]; `T` has the size of an element, and `I` is the type of the indices.
    unsafe fn elements<T: Copy, I: Copy + Into<i64>>(
        &self,
        [from, index, to]: [Ptr<u8>; 3],
    ) -> Result<()> {
        let (from, index, to) =
            (Ptr(from.0.cast::<T>()), Ptr(index.0.cast::<I>()), Ptr(to.0.cast::<T>()));
        let [of_input, of_index, of_out] = &self.strides;
        let mut outside = None;
        for_each(&self.sizes, [&of_index[..]], |[at]| {
            // SAFETY: the caller's promise.
            let position: i64 = unsafe { index.get(at) }.into();
            if !(0..self.size).contains(&position) && outside.is_none() {
                outside = Some(position);
            }
        });
        if let Some(index) = outside {
            return Err(KernelError::IndexOutOfRange { index, size: self.size, dim: self.dim });
        }
        for_each(&self.sizes, [&of_input[..], &of_index[..], &of_out[..]], |[i, at, o]| {
            // SAFETY: the indices were checked, and the other coordinates are in range.
            unsafe { to.set(o, from.get(i + index.get(at).into() * self.along)) }
        });
        Ok(())
    }
}

/// The combination of new and existing elements in [`scatter`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ScatterOp {
    /// The new element replaces the old one; among equal indices the last one counts.
    Replace,
    /// The sum.
    Add,
    /// The product.
    Mul,
    /// The lesser; NaN if either is.
    Min,
    /// The greater; NaN if either is.
    Max,
}

/// The source of [`scatter`].
#[derive(Clone, Debug)]
pub enum Source<'a> {
    /// Elements of a tensor at least as large as the index, at the index's positions.
    Tensor(View<'a>),
    /// One number, cast to the dtype.
    Value(Scalar),
}

/// Computes `out[index[i][j][k]][j][k] op= source[i][j][k]` for `dim` 0, and correspondingly for
/// other dimensions, in row-major order of the index.
pub fn scatter(
    out: &mut ViewMut<'_>,
    dim: usize,
    index: &View<'_>,
    source: &Source<'_>,
    op: ScatterOp,
) -> Result<()> {
    const KERNEL: &str = "scatter";
    check_dim(KERNEL, dim, out.rank())?;
    fits(KERNEL, index, out.sizes(), dim)?;
    if let Source::Tensor(v) = source {
        same_dtype(KERNEL, "the source", out.dtype(), v.dtype())?;
        fits(KERNEL, index, v.sizes(), usize::MAX)?;
        if index.numel() > v.numel() {
            return Err(KernelError::Shape {
                kernel: KERNEL,
                operand: "the source",
                expected: index.sizes().to_vec(),
                found: v.sizes().to_vec(),
            });
        }
    }
    let own = index.without_repeats();
    let size = out.sizes().get(dim).copied().unwrap_or(1);
    let positions = Positions {
        at: &checked(KERNEL, &own, size, dim, Negative::Fails)?,
        strides: repeating(&own, index),
    };
    dispatch!(out.dtype(), T => match op {
        ScatterOp::Replace => each::<T, Replace>(out, dim, index, &positions, source),
        ScatterOp::Add => each::<T, Add>(out, dim, index, &positions, source),
        ScatterOp::Mul => each::<T, Mul>(out, dim, index, &positions, source),
        ScatterOp::Min => each::<T, Min>(out, dim, index, &positions, source),
        ScatterOp::Max => each::<T, Max>(out, dim, index, &positions, source),
    });
    Ok(())
}

/// The checked indices of a scatter, each once where the index repeats itself.
struct Positions<'a> {
    at: &'a [i64],
    /// Along the dimensions of the index.
    strides: Dims,
}

/// The row-major strides of `own`, with 0 along the dimensions in which `index` repeats it.
fn repeating(own: &View<'_>, index: &View<'_>) -> Dims {
    let repeats = index.strides().iter().map(|stride| *stride == 0);
    contiguous(own.sizes()).iter().zip(repeats).map(|(s, r)| if r { 0 } else { *s }).collect()
}

/// Combines row by row along the last dimension. In most rows of a slice-wise scatter, such as the
/// gradient of an embedding, all elements have one index: the row is added to a row.
fn each<T: Element, C: Combine<T>>(
    out: &mut ViewMut<'_>,
    dim: usize,
    index: &View<'_>,
    positions: &Positions<'_>,
    source: &Source<'_>,
) {
    let rank = index.rank();
    let (strides, along) = without(out, dim, rank);
    let dst = out.typed::<T>();
    let (value, tensor) = match source {
        Source::Value(x) => (Some(from_scalar::<T>(*x)), None),
        Source::Tensor(v) => (None, Some(v)),
    };
    let src = tensor.map(|v| v.typed::<T>());
    let of_source = |v: &View<'_>| without(v, usize::MAX, rank).0;
    let src_strides = tensor.map_or_else(|| Dims::from_elem(0, rank), of_source);
    let all = [&strides[..], &src_strides[..], &positions.strides[..]];
    let steps = all.map(|strides| strides.last().copied().unwrap_or(0));
    let isa = Isa::detect();
    for_rows(index.sizes(), all, &mut |[mut o, mut s, mut i], n| {
        let position = |i: i64| positions.at.get(i as usize).copied();
        // SAFETY: the indices were checked, the other coordinates are in range in both tensors, and
        // only one thread writes. The source is not the memory of `out`.
        unsafe {
            if let (Some(src), [1, 1, 0], Some(at)) = (src, steps, position(i)) {
                let row = dst.slice_mut(o + at * along, n as usize);
                isa.dispatch(CombineRows::<T, C>(row, src.slice(s, n as usize), PhantomData));
                return;
            }
            for _ in 0..n {
                let new = value.or_else(|| src.map(|p| p.get(s)));
                let (Some(new), Some(at)) = (new, position(i)) else { return };
                let to = o + at * along;
                dst.set(to, C::combine(dst.get(to), new));
                // The step after the last element may be of any size.
                [o, s, i] =
                    [o.wrapping_add(steps[0]), s.wrapping_add(steps[1]), i.wrapping_add(steps[2])];
            }
        }
    });
}

/// Combines the elements of a row with those of another one.
struct CombineRows<'a, T, C>(&'a mut [T], &'a [T], PhantomData<C>);

impl<T: Element, C: Combine<T>> Simd for CombineRows<'_, T, C> {
    type Out = ();
    #[inline(always)]
    fn run(self) {
        self.0.iter_mut().zip(self.1).for_each(|(old, new)| *old = C::combine(*old, *new));
    }
}
