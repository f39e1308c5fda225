//! [`View`] and [`ViewMut`]: strided views of raw memory. The contracts of their constructors make
//! the executors safe functions. Memory enters the crate by these constructors, or as addresses that
//! are given to a plan.

use crate::element::Element;
use crate::error::{KernelError, Result};
use maquette_device::Layout;
use maquette_ir::DType;
use maquette_ir::typing::{fill_dense_strides, is_contiguous_i64};
use std::convert::Infallible;
use std::marker::PhantomData;

pub use maquette_device::Dims;

/// A strided view of memory to read.
#[derive(Clone, Debug)]
pub struct View<'a> {
    ptr: *const u8,
    dtype: DType,
    sizes: Dims,
    strides: Dims,
    memory: PhantomData<&'a [u8]>,
}

/// A strided view of memory to read and write. No two of its elements overlap.
#[derive(Debug)]
pub struct ViewMut<'a> {
    view: View<'a>,
    memory: PhantomData<&'a mut [u8]>,
}

// SAFETY: the constructor's contract makes the memory valid for reads from any thread for 'a.
unsafe impl Send for View<'_> {}
// SAFETY: as above.
unsafe impl Sync for View<'_> {}
// SAFETY: the constructor's contract gives the view exclusive access to the memory for 'a.
unsafe impl Send for ViewMut<'_> {}
// SAFETY: by construction, executors write disjoint elements from different threads.
unsafe impl Sync for ViewMut<'_> {}

impl<'a> View<'a> {
    /// A view of elements of `dtype` with the given sizes, and strides in elements. Element 0 is at
    /// `ptr`. If `sizes` and `strides` differ in length, the longer is truncated. Negative sizes
    /// count as 0. Negative strides are allowed.
    ///
    /// # Safety
    /// For `'a`, every element that the sizes and strides reach from `ptr` must be initialised,
    /// aligned to its type, and not written except through a [`ViewMut`] given to the same executor
    /// call under that call's rules on aliasing. A `bool` must be 0 or 1.
    pub unsafe fn from_raw(ptr: *const u8, dtype: DType, sizes: &[i64], strides: &[i64]) -> Self {
        // SAFETY: the caller's promise.
        unsafe { Self::from_dims(ptr, dtype, Dims::from_slice(sizes), Dims::from_slice(strides)) }
    }

    /// As [`View::from_raw`], with the sizes and strides themselves.
    ///
    /// # Safety
    /// As [`View::from_raw`].
    #[inline]
    pub unsafe fn from_dims(
        ptr: *const u8,
        dtype: DType,
        mut sizes: Dims,
        mut strides: Dims,
    ) -> Self {
        let n = sizes.len().min(strides.len());
        sizes.truncate(n);
        strides.truncate(n);
        sizes.iter_mut().for_each(|s| *s = (*s).max(0));
        View { ptr, dtype, sizes, strides, memory: PhantomData }
    }

    /// A contiguous one-dimensional view of a slice.
    pub fn from_slice<T: Element>(x: &'a [T]) -> Self {
        Self::from_slice_sized(x, &[x.len() as i64]).unwrap_or_else(|| Self::empty(T::DTYPE))
    }

    /// A contiguous view of a slice; `None` if its length is not the product of `sizes`.
    pub fn from_slice_sized<T: Element>(x: &'a [T], sizes: &[i64]) -> Option<Self> {
        (numel(sizes) == x.len()).then(|| {
            // SAFETY: a slice is initialised, aligned and unchanged for 'a, and contiguous strides
            // stay in it.
            unsafe { Self::from_raw(x.as_ptr().cast(), T::DTYPE, sizes, &contiguous(sizes)) }
        })
    }

    fn empty(dtype: DType) -> Self {
        View {
            ptr: std::ptr::dangling(),
            dtype,
            sizes: smallvec::smallvec![0],
            strides: smallvec::smallvec![1],
            memory: PhantomData,
        }
    }

    /// The address of the element at index 0.
    pub fn as_ptr(&self) -> *const u8 {
        self.ptr
    }

    /// The dtype.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The sizes.
    pub fn sizes(&self) -> &[i64] {
        &self.sizes
    }

    /// The strides, in elements.
    pub fn strides(&self) -> &[i64] {
        &self.strides
    }

    /// The dtype, the sizes and the strides.
    pub(crate) fn layout(&self) -> Layout {
        Layout { dtype: self.dtype, sizes: self.sizes.clone(), strides: self.strides.clone() }
    }

    /// Whether the dtype, the sizes and the strides are these.
    pub(crate) fn has_layout(&self, layout: &Layout) -> bool {
        let Layout { dtype, sizes, strides } = layout;
        *dtype == self.dtype && *sizes == self.sizes && *strides == self.strides
    }

    /// The number of dimensions.
    pub fn rank(&self) -> usize {
        self.sizes.len()
    }

    /// The number of elements.
    pub fn numel(&self) -> usize {
        numel(&self.sizes)
    }

    /// Whether the elements are contiguous in row-major order. Those of an empty view are.
    pub fn is_contiguous(&self) -> bool {
        is_contiguous_i64(&self.sizes, &self.strides)
    }

    /// The view broadcast to `sizes`: dimensions of size 1 and new leading dimensions get stride 0.
    pub fn expand(&self, sizes: &[i64]) -> Result<View<'a>> {
        let fail = || KernelError::Shape {
            kernel: "expand",
            operand: "the input",
            expected: sizes.to_vec(),
            found: self.sizes.to_vec(),
        };
        let front = sizes.len().checked_sub(self.rank()).ok_or_else(fail)?;
        let mut out = self.clone();
        out.sizes = Dims::from_slice(sizes);
        out.strides = smallvec::smallvec![0; sizes.len()];
        for (d, (s, st)) in self.sizes.iter().zip(&self.strides).enumerate() {
            match (*s, sizes[front + d]) {
                (a, b) if a == b => out.strides[front + d] = *st,
                (1, _) => {}
                _ => return Err(fail()),
            }
        }
        Ok(out)
    }

    /// The view with reordered dimensions: dimension `i` of the result is dimension `order[i]`.
    pub fn permute(&self, order: &[usize]) -> Result<View<'a>> {
        let mut out = self.clone();
        let mut seen = vec![false; self.rank()];
        if order.len() != self.rank() {
            return Err(KernelError::Count {
                kernel: "permute",
                what: "dimensions",
                expected: self.rank(),
                found: order.len(),
            });
        }
        for (i, &d) in order.iter().enumerate() {
            if d >= self.rank() || std::mem::replace(&mut seen[d], true) {
                return Err(KernelError::Dim { kernel: "permute", dim: d, rank: self.rank() });
            }
            out.sizes[i] = self.sizes[d];
            out.strides[i] = self.strides[d];
        }
        Ok(out)
    }

    /// The view with a dimension of size 1 inserted before dimension `dim`, or at the end.
    pub(crate) fn unsqueeze(&self, dim: usize) -> View<'a> {
        let mut out = self.clone();
        let at = dim.min(self.rank());
        out.sizes.insert(at, 1);
        out.strides.insert(at, 0);
        out
    }

    /// The view with every dimension of stride 0 shrunk to size 1 at most, so that no element
    /// repeats.
    pub(crate) fn without_repeats(&self) -> View<'a> {
        let mut out = self.clone();
        out.sizes
            .iter_mut()
            .zip(&out.strides)
            .filter(|(_, st)| **st == 0)
            .for_each(|(s, _)| *s = (*s).min(1));
        out
    }

    /// The base pointer, typed. The caller has matched the dtype with `T`.
    pub(crate) fn typed<T: Element>(&self) -> Ptr<T> {
        debug_assert_eq!(self.dtype, T::DTYPE);
        Ptr(self.ptr.cast_mut().cast())
    }

    /// The range of addresses that the elements span, `[start, end)`; empty without elements.
    pub(crate) fn extent(&self) -> (usize, usize) {
        if self.numel() == 0 {
            return (0, 0);
        }
        let (mut lo, mut hi) = (0i64, 0i64);
        for (s, st) in self.sizes.iter().zip(&self.strides) {
            let reach = (s - 1).saturating_mul(*st);
            if reach < 0 { lo += reach } else { hi += reach }
        }
        let size = self.dtype.size() as i64;
        let at = |d: i64| (self.ptr as usize).wrapping_add_signed((d * size) as isize);
        (at(lo), at(hi + 1))
    }

    /// Whether the address ranges of the views overlap. Interleaved views without a common element
    /// count as overlapping.
    pub(crate) fn overlaps(&self, other: &View<'_>) -> bool {
        let ((a, b), (c, d)) = (self.extent(), other.extent());
        a < d && c < b
    }
}

impl<'a> ViewMut<'a> {
    /// As [`View::from_raw`], for writing.
    ///
    /// # Safety
    /// As for [`View::from_raw`]. For `'a`, nothing else may access the elements. The exception are
    /// inputs of the same executor call with exactly the same memory and layout, if the executor
    /// documents that it works in place. No two indices may address one element.
    pub unsafe fn from_raw(ptr: *mut u8, dtype: DType, sizes: &[i64], strides: &[i64]) -> Self {
        // SAFETY: the caller's promise covers the reader's.
        ViewMut { view: unsafe { View::from_raw(ptr, dtype, sizes, strides) }, memory: PhantomData }
    }

    /// As [`ViewMut::from_raw`], with the sizes and strides themselves.
    ///
    /// # Safety
    /// As [`ViewMut::from_raw`].
    #[inline]
    pub unsafe fn from_dims(ptr: *mut u8, dtype: DType, sizes: Dims, strides: Dims) -> Self {
        // SAFETY: the caller's promise covers the reader's.
        let view = unsafe { View::from_dims(ptr, dtype, sizes, strides) };
        ViewMut { view, memory: PhantomData }
    }

    /// A contiguous one-dimensional view of a slice.
    pub fn from_slice<T: Element>(x: &'a mut [T]) -> Self {
        let n = x.len() as i64;
        // SAFETY: the slice is exclusively borrowed for 'a, and these strides stay within it.
        unsafe { Self::from_raw(x.as_mut_ptr().cast(), T::DTYPE, &[n], &[1]) }
    }

    /// A contiguous view of a slice; `None` if its length is not the product of `sizes`.
    pub fn from_slice_sized<T: Element>(x: &'a mut [T], sizes: &[i64]) -> Option<Self> {
        (numel(sizes) == x.len()).then(|| {
            // SAFETY: as above.
            unsafe { Self::from_raw(x.as_mut_ptr().cast(), T::DTYPE, sizes, &contiguous(sizes)) }
        })
    }

    /// The same memory as a view to read.
    pub fn as_view(&self) -> &View<'a> {
        &self.view
    }

    /// The same view with a shorter borrow.
    pub fn reborrow(&mut self) -> ViewMut<'_> {
        ViewMut { view: self.view.clone(), memory: PhantomData }
    }

    /// As [`View::unsqueeze`], with a shorter borrow.
    pub(crate) fn unsqueeze(&mut self, dim: usize) -> ViewMut<'_> {
        ViewMut { view: self.view.unsqueeze(dim), memory: PhantomData }
    }
}

impl<'a> std::ops::Deref for ViewMut<'a> {
    type Target = View<'a>;
    fn deref(&self) -> &View<'a> {
        &self.view
    }
}

/// A typed pointer that can be sent between threads. The contract of the view from which it comes
/// governs access to the memory.
#[derive(Debug)]
pub(crate) struct Ptr<T>(pub *mut T);

impl<T> Clone for Ptr<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Ptr<T> {}
// SAFETY: see the type's comment.
unsafe impl<T> Send for Ptr<T> {}
// SAFETY: see the type's comment.
unsafe impl<T> Sync for Ptr<T> {}

impl<T: Copy> Ptr<T> {
    /// The address of element `i`.
    #[inline(always)]
    pub fn at(self, i: usize) -> *mut T {
        self.0.wrapping_add(i)
    }

    /// # Safety
    /// Element `i` must be in the view of the pointer.
    #[inline(always)]
    pub unsafe fn get(self, i: i64) -> T {
        // SAFETY: the caller's promise.
        unsafe { *self.0.offset(i as isize) }
    }

    /// # Safety
    /// As for `get`. The view must be writable, and no other thread may access the element.
    #[inline(always)]
    pub unsafe fn set(self, i: i64, x: T) {
        // SAFETY: the caller's promise.
        unsafe { *self.0.offset(i as isize) = x }
    }

    /// # Safety
    /// The `n` elements from `i` must be in the view, and not be written while the slice lives.
    pub unsafe fn slice<'s>(self, i: i64, n: usize) -> &'s [T] {
        // SAFETY: the caller's promise.
        unsafe { std::slice::from_raw_parts(self.0.offset(i as isize), n) }
    }

    /// # Safety
    /// The `n` elements from `i` must be in a writable view, and nothing else may access them while
    /// the slice lives.
    pub unsafe fn slice_mut<'s>(self, i: i64, n: usize) -> &'s mut [T] {
        // SAFETY: the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.0.offset(i as isize), n) }
    }
}

/// The product of sizes, saturating; 0 if any is not positive.
pub(crate) fn numel(sizes: &[i64]) -> usize {
    sizes.iter().fold(1usize, |n, s| n.saturating_mul(usize::try_from(*s).unwrap_or(0)))
}

/// Row-major strides. If one overflows, the tensor has no elements, and the stride saturates.
pub(crate) fn contiguous(sizes: &[i64]) -> Dims {
    let mut strides: Dims = smallvec::smallvec![1; sizes.len()];
    let times = |stride: i64, size: i64| Ok::<_, Infallible>(stride.saturating_mul(size.max(1)));
    let Ok(()) = fill_dense_strides(sizes, &mut strides, (0..sizes.len()).rev(), 1, times);
    strides
}
