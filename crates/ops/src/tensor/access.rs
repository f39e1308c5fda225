//! Access to a tensor's data from Rust: guards that deref to `ndarray` arrays, and conversions from
//! and to vectors and arrays.
//!
//! Safety of this module: an array view is created only under a borrow of the tensor's region, over
//! a region that lies inside the storage. Readers never coexist with a writer, and a region that
//! overlaps itself is never written. The guards return references that cannot outlive them (an
//! [`ndarray::ArrayRef`], not a copyable view), so no reference outlives its borrow.
#![allow(unsafe_code)]

use crate::Element;
use crate::autograd::history;
use crate::dispatch::failures::{access_failed, failed};
use crate::error::{AccessError, Error, Result};
use crate::functional_call;
use crate::mode;
use crate::tensor::borrow::Access;
use crate::tensor::holder::Holder;
use crate::tensor::meta::Concrete;
use crate::tensor::overlap::{is_nested, may_self_overlap};
use crate::tensor::storage::{Buffer, Data};
use crate::tensor::{BorrowGuard, Tensor, dims_text};
use maquette_device::{Address, Dims};
use maquette_ir::Loc;
use maquette_ir::typing::fill_dense_strides;
use ndarray::{Array, ArrayD, ArrayRef, ArrayViewD, ArrayViewMutD, Dimension, IxDyn, ShapeBuilder};
use std::convert::Infallible;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// A read-only array over a tensor's borrowed data. Dropping the guard ends the borrow.
pub struct ReadGuard<'a, T> {
    view: ArrayViewD<'a, T>,
    _borrow: BorrowGuard,
}

/// A mutable array over a tensor's exclusively borrowed data. Dropping the guard ends the borrow
/// and, outside kernels, counts as one write of the storage's version.
pub struct WriteGuard<'a, T> {
    view: ArrayViewMutD<'a, T>,
    borrow: BorrowGuard,
    /// False for a write through a borrowed handle: the call that borrowed it counts that write.
    counts: bool,
}

impl<T> Deref for ReadGuard<'_, T> {
    type Target = ArrayRef<T, IxDyn>;
    fn deref(&self) -> &Self::Target {
        &self.view
    }
}

impl<T> Deref for WriteGuard<'_, T> {
    type Target = ArrayRef<T, IxDyn>;
    fn deref(&self) -> &Self::Target {
        &self.view
    }
}

impl<T> DerefMut for WriteGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.view
    }
}

impl<T> Drop for WriteGuard<'_, T> {
    fn drop(&mut self) {
        if self.counts {
            self.borrow.storage().bump_version();
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for ReadGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.view.fmt(f)
    }
}

impl<T: fmt::Debug> fmt::Debug for WriteGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.view.fmt(f)
    }
}

#[repr(align(64))]
struct Aligned;

/// A tensor's layout and the address of its first element, both checked against its storage.
pub(crate) struct Raw {
    pub(crate) ptr: NonNull<u8>,
    pub(crate) layout: Concrete,
}

impl Tensor {
    /// The address and layout of the tensor's host data.
    #[track_caller]
    pub(crate) fn raw(&self) -> Result<Raw> {
        self.raw_in(self.host()?)
    }

    /// The address and layout of the tensor's data, on whatever device.
    #[track_caller]
    pub(crate) fn raw_on_device(&self) -> Result<Raw> {
        self.raw_in(self.memory()?)
    }

    fn raw_in(&self, buffer: &Buffer) -> Result<Raw> {
        let (mut sizes, mut strides) = (Dims::new(), Dims::new());
        let ptr = self.dims_in(buffer, &mut sizes, &mut strides)?;
        let offset = match sizes.contains(&0) {
            true => 0,
            false => self.meta().offset.as_i64().unwrap_or_default(),
        };
        let width = self.dtype().size() as i64;
        Ok(Raw { ptr, layout: Concrete { sizes, strides, offset, width } })
    }

    /// As [`Tensor::raw`], with the layout in empty lists of the caller, which need no move.
    #[track_caller]
    #[inline]
    pub(crate) fn raw_dims(&self, sizes: &mut Dims, strides: &mut Dims) -> Result<NonNull<u8>> {
        self.dims_in(self.host()?, sizes, strides)
    }

    /// The address of the first element in a buffer, and the layout. This is done for each operand
    /// of each call, so the checks take one pass over the dimensions.
    fn dims_in(
        &self,
        buffer: &Buffer,
        sizes: &mut Dims,
        strides: &mut Dims,
    ) -> Result<NonNull<u8>> {
        let meta = self.meta();
        let symbolic = || self.out_of_bounds(buffer);
        let offset = meta.offset.as_i64().ok_or_else(symbolic)?;
        let (mut counted, mut last, mut is_empty) = (Some(1i64), Some(offset), false);
        for (size, stride) in meta.sizes.iter().zip(&meta.strides) {
            let (n, s) = (size.as_i64().zip(stride.as_i64())).ok_or_else(symbolic)?;
            sizes.push(n);
            strides.push(s);
            // Elements before the first one are not looked for.
            if n < 0 || n > 0 && s < 0 {
                return Err(self.out_of_bounds(buffer));
            }
            if n == 0 {
                is_empty = true;
                continue;
            }
            counted = counted.and_then(|c| c.checked_mul(n));
            last = last.and_then(|l| l.checked_add(n.checked_sub(1)?.checked_mul(s)?));
        }
        // `ndarray` requires that the product of the nonzero sizes fits `isize`, even for an empty
        // array
        if counted.is_none_or(|n| n > isize::MAX as i64 / 8) {
            return Err(AccessError::TooManyElements { sizes: dims_text(self.sizes()) }.into());
        }
        if is_empty {
            // an empty tensor has no first element: any aligned address will do
            return Ok(NonNull::<Aligned>::dangling().cast());
        }
        let width = meta.dtype.size() as i64;
        let start = offset.checked_mul(width);
        let end = last.and_then(|l| l.checked_add(1)?.checked_mul(width));
        match start.zip(end) {
            Some(span) => self.address_in(buffer, span),
            None => Err(self.out_of_bounds(buffer)),
        }
    }

    /// The address of the first element on the device. All elements lie inside the storage. Any
    /// aligned address if there are none.
    ///
    /// # Errors
    /// The tensor is poisoned, has no data, or exceeds its storage.
    #[track_caller]
    pub(crate) fn address(&self) -> Result<Address> {
        Ok(Address::of_host(self.raw_on_device()?.ptr))
    }

    /// As [`Tensor::raw`] for a layout known to be `n` contiguous elements: the address of the
    /// first.
    #[track_caller]
    pub(crate) fn raw_row(&self, n: i64) -> Result<NonNull<u8>> {
        let buffer = self.host()?;
        let size = self.dtype().size() as i64;
        let start = self.meta().offset.as_i64().and_then(|o| o.checked_mul(size));
        let end = start.and_then(|s| s.checked_add(n.checked_mul(size)?));
        match start.zip(end) {
            _ if n == 0 => Ok(NonNull::<Aligned>::dangling().cast()),
            Some(span) => self.address_in(buffer, span),
            None => Err(self.out_of_bounds(buffer)),
        }
    }

    /// The memory of the storage, on whatever device. There is no other way to it, so that an
    /// access to a tensor without contents cannot go unreported.
    #[track_caller]
    fn memory(&self) -> Result<&Buffer> {
        let storage = self.alive()?.own_storage()?;
        match &storage.data {
            _ if self.slot().is_some() => Err(self.refused(AccessError::Traced)),
            Data::Memory(buffer) => Ok(buffer),
            Data::Fake => Err(self.refused(AccessError::Fake)),
        }
    }

    /// The memory of the storage, if host code may access its bytes.
    #[track_caller]
    fn host(&self) -> Result<&Buffer> {
        let buffer = self.memory()?;
        match buffer.is_host_memory() {
            true => Ok(buffer),
            false => Err(self.refused(AccessError::Device(self.device()))),
        }
    }

    /// A refused access at the caller's line, reported to the trace.
    #[cold]
    #[track_caller]
    fn refused(&self, e: AccessError) -> Error {
        // a function pointer to `Loc::caller` would give a line of the standard library
        let loc = Loc::caller();
        access_failed(self, Error::from(e).at(mode::user_loc().unwrap_or(loc)))
    }

    #[cold]
    fn out_of_bounds(&self, buffer: &Buffer) -> Error {
        let (sizes, strides, offset) =
            (dims_text(self.sizes()), dims_text(self.strides()), self.meta().offset.to_string());
        AccessError::OutOfBounds { sizes, strides, offset, bytes: buffer.len() }.into()
    }

    /// The address of byte range `start..end` of the buffer, checked for bounds and alignment.
    fn address_in(&self, buffer: &Buffer, (start, end): (i64, i64)) -> Result<NonNull<u8>> {
        if start < 0 || usize::try_from(end).map_or(true, |e| e > buffer.len()) {
            return Err(self.out_of_bounds(buffer));
        }
        let at = buffer.at().offset(start as usize);
        let ptr = NonNull::new(at.as_ptr()).ok_or_else(|| self.out_of_bounds(buffer))?;
        // an adopted vector is aligned for its own element type only, and a view may have another
        // dtype
        if !ptr.addr().get().is_multiple_of(self.dtype().size()) {
            return Err(AccessError::Misaligned(self.dtype()).into());
        }
        Ok(ptr)
    }

    #[track_caller]
    fn typed_raw<T: Element>(&self, what: &'static str) -> Result<Raw> {
        functional_call::check_access(self, what)?;
        let raw = self.raw()?;
        if mode::is_active() {
            return Err(self.refused(AccessError::WhileTracing(what)));
        }
        if self.dtype() != T::DTYPE {
            let holder = self.own_storage()?.borrows.holder(self.grant);
            let holder = holder.unwrap_or_else(|| "the tensor".to_owned());
            let (expected, found) = (T::DTYPE, self.dtype());
            return Err(AccessError::DType { holder, expected, found }.into());
        }
        Ok(raw)
    }

    /// Borrows the data for reading, as an array with the tensor's sizes and strides.
    ///
    /// # Errors
    /// The tensor is poisoned, fake or traced, is on another device or of another dtype, or another
    /// holder writes to an overlapping region.
    #[track_caller]
    pub fn read<T: Element>(&self) -> Result<ReadGuard<'_, T>> {
        let loc = Loc::caller();
        let raw = self.typed_raw::<T>("read").map_err(|e| named(e, loc))?;
        let borrow =
            self.borrow(Access::Read, Holder::Guard(loc)).map_err(|e| failed(e.at(loc)))?;
        let shape = shape(&raw.layout);
        // SAFETY: `typed_raw` checked the bounds and the element type. The view is aligned, because
        // `raw` checked the first element and strides count elements. It is shared safely, because
        // the borrow excludes writers while the guard lives.
        let view = unsafe { ArrayViewD::from_shape_ptr(shape, raw.ptr.as_ptr().cast::<T>()) };
        Ok(ReadGuard { view, _borrow: borrow })
    }

    /// Borrows the data for writing, as an array with the tensor's sizes and strides.
    ///
    /// # Errors
    /// As [`Tensor::read`]. In addition: the handle is read-only in this call, the tensor overlaps
    /// itself, or its dimensions interleave, which a mutable array cannot represent; or it takes
    /// part in differentiation, and gradients are recorded.
    #[track_caller]
    pub fn write<T: Element>(&mut self) -> Result<WriteGuard<'_, T>> {
        let loc = Loc::caller();
        let raw = self.typed_raw::<T>("written").map_err(|e| named(e, loc))?;
        // a kernel's call is recorded as a whole
        if !self.has_grant() {
            history::check_array_write(self).map_err(|e| failed(e.at(loc)))?;
        }
        let borrow =
            self.borrow(Access::Write, Holder::Guard(loc)).map_err(|e| failed(e.at(loc)))?;
        if !raw.layout.sizes.contains(&0) && !is_nested(&raw.layout) {
            let (sizes, strides) = (raw.layout.sizes.to_vec(), raw.layout.strides.to_vec());
            let e = match may_self_overlap(&raw.layout) {
                true => AccessError::SelfOverlap { arg: "the tensor".into(), sizes, strides },
                false => AccessError::Interleaved { sizes, strides },
            };
            return Err(Error::from(e).at(loc));
        }
        let shape = shape(&raw.layout);
        // SAFETY: as in `read`. The view is exclusive, because the borrow excludes all others and
        // no two elements of the region share memory.
        let view = unsafe { ArrayViewMutD::from_shape_ptr(shape, raw.ptr.as_ptr().cast::<T>()) };
        Ok(WriteGuard { view, borrow, counts: !self.has_grant() })
    }

    /// The elements in row-major order.
    ///
    /// # Errors
    /// As [`Tensor::read`].
    #[track_caller]
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>> {
        let source = self.readable()?;
        let data = source.read::<T>()?;
        // an expanded tensor can have more elements than fit in memory
        let mut out = Vec::new();
        out.try_reserve_exact(data.len()).map_err(|_| AccessError::Allocation {
            sizes: dims_text(self.sizes()),
            dtype: T::DTYPE,
        })?;
        match data.as_slice() {
            Some(elements) => out.extend_from_slice(elements),
            None => out.extend(data.iter().copied()),
        }
        Ok(out)
    }

    /// A row-major copy of the data.
    ///
    /// # Errors
    /// As [`Tensor::read`].
    #[track_caller]
    pub fn to_array<T: Element>(&self) -> Result<ArrayD<T>> {
        let data = self.to_vec::<T>()?;
        let shape: Vec<usize> =
            self.sizes().iter().filter_map(|s| s.as_i64()).map(|n| n as usize).collect();
        Ok(ArrayD::from_shape_vec(shape, data)?)
    }

    /// The only element of a one-element tensor.
    ///
    /// # Errors
    /// As [`Tensor::read`]; or the tensor does not have exactly one element.
    #[track_caller]
    pub fn item<T: Element>(&self) -> Result<T> {
        let loc = Loc::caller();
        let source = self.readable()?;
        let data = source.read::<T>()?;
        match data.first() {
            Some(&x) if data.len() == 1 => Ok(x),
            _ => Err(Error::from(AccessError::NotOne { sizes: dims_text(self.sizes()) }).at(loc)),
        }
    }

    /// A contiguous tensor of the elements in row-major order. The tensor is poisoned if the number
    /// of elements does not match the sizes.
    #[track_caller]
    pub fn from_vec<T: Element>(data: Vec<T>, sizes: impl crate::IntoDims) -> Tensor {
        let loc = Loc::caller();
        match Tensor::adopt(data, sizes) {
            Ok(t) => mode::host_data(t, loc),
            Err(e) => Tensor::poison(failed(e.at(loc))),
        }
    }

    /// A 0-d tensor with one value.
    #[track_caller]
    pub fn scalar<T: Element>(value: T) -> Tensor {
        Tensor::from_vec(vec![value], [0i64; 0])
    }
}

/// The error with a line: its own, if a tensor carries it from an earlier call.
fn named(e: Error, loc: Loc) -> Error {
    if e.loc().is_some() { e } else { e.at(loc) }
}

fn shape(c: &Concrete) -> ndarray::StrideShape<IxDyn> {
    let dim: Vec<usize> = c.sizes.iter().map(|&n| n as usize).collect();
    let mut strides: Vec<usize> = c.strides.iter().map(|&s| s as usize).collect();
    if dim.contains(&0) {
        // an empty array has no elements, but `ndarray` checks the strides nevertheless; these are
        // valid
        let times = |stride: usize, n: usize| Ok::<_, Infallible>(stride.saturating_mul(n.max(1)));
        let Ok(()) = fill_dense_strides(&dim, &mut strides, (0..dim.len()).rev(), 1, times);
    }
    IxDyn(&dim).strides(IxDyn(&strides))
}

impl<T: Element, D: Dimension> From<Array<T, D>> for Tensor {
    /// A contiguous tensor; no copy if the array is already in row-major order.
    #[track_caller]
    fn from(a: Array<T, D>) -> Tensor {
        let sizes: Vec<i64> = a.shape().iter().map(|&n| n as i64).collect();
        let data = if a.is_standard_layout()
            && a.len() == a.as_slice_memory_order().map_or(0, <[T]>::len)
        {
            let n = a.len();
            let (mut v, offset) = a.into_raw_vec_and_offset();
            let offset = offset.unwrap_or(0);
            if offset == 0 && v.len() == n {
                v
            } else {
                v.drain(offset.min(v.len())..).take(n).collect()
            }
        } else {
            a.iter().copied().collect()
        };
        Tensor::from_vec(data, sizes)
    }
}

impl<T: Element> From<Vec<T>> for Tensor {
    /// One-dimensional, without copying.
    #[track_caller]
    fn from(v: Vec<T>) -> Tensor {
        let n = v.len() as i64;
        Tensor::from_vec(v, [n])
    }
}

impl<T: Element, const N: usize> From<[T; N]> for Tensor {
    /// One-dimensional.
    #[track_caller]
    fn from(v: [T; N]) -> Tensor {
        Tensor::from(v.to_vec())
    }
}

impl<T: Element, const N: usize, const M: usize> From<[[T; N]; M]> for Tensor {
    /// Two-dimensional: `M` rows of `N`.
    #[track_caller]
    fn from(v: [[T; N]; M]) -> Tensor {
        Tensor::from_vec(v.as_flattened().to_vec(), [M as i64, N as i64])
    }
}
