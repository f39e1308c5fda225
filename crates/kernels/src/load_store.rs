//! Loads and stores of elements of any dtype, as values of a class. They go through function
//! pointers, so that a kernel is compiled once per class instead of once per pair of dtypes.

use crate::element::{Class, Element, cast, dispatch};
use crate::isa::{Isa, Simd};
use crate::view::{Ptr, View, ViewMut};
use maquette_ir::DType;

struct LoadCast<'a, T, A>(&'a [T], &'a mut [A]);
impl<T: Element, A: Class> Simd for LoadCast<'_, T, A> {
    type Out = ();
    #[inline(always)]
    fn run(self) {
        for (o, x) in self.1.iter_mut().zip(self.0) {
            *o = A::cast(x.load());
        }
    }
}

/// # Safety
/// `base` must be the start of a view of dtype `T` that contains the elements `at, at + stride, …`,
/// as many as `out` has.
unsafe fn load<T: Element, A: Class>(isa: Isa, base: Ptr<u8>, at: i64, stride: i64, out: &mut [A]) {
    let base = Ptr(base.0.cast::<T>());
    // SAFETY: the caller's promise.
    unsafe {
        match stride {
            1 => isa.dispatch(LoadCast(base.slice(at, out.len()), out)),
            _ => (0..).zip(out).for_each(|(i, o)| *o = A::cast(base.get(at + i * stride).load())),
        }
    }
}

struct StoreCast<'a, A, T>(&'a [A], &'a mut [T]);
impl<A: Class, T: Element> Simd for StoreCast<'_, A, T> {
    type Out = ();
    #[inline(always)]
    fn run(self) {
        for (o, x) in self.1.iter_mut().zip(self.0) {
            *o = cast(*x);
        }
    }
}

/// # Safety
/// `base` must be the start of a writable view of dtype `T` that contains the elements `at, at +
/// stride, …`, as many as there are values. No other thread may access these elements.
unsafe fn store<T: Element, A: Class>(isa: Isa, base: Ptr<u8>, at: i64, stride: i64, values: &[A]) {
    let base = Ptr(base.0.cast::<T>());
    // SAFETY: the caller's promise.
    unsafe {
        match stride {
            1 => isa.dispatch(StoreCast(values, base.slice_mut(at, values.len()))),
            _ => (0..).zip(values).for_each(|(i, x)| base.set(at + i * stride, cast(*x))),
        }
    }
}

/// Reads a view's elements and casts them to `A`.
#[derive(Clone, Copy)]
pub(crate) struct Reader<A> {
    base: Ptr<u8>,
    dtype: DType,
    load: unsafe fn(Isa, Ptr<u8>, i64, i64, &mut [A]),
}

/// Casts values of `A` and writes them as a view's elements.
#[derive(Clone, Copy)]
pub(crate) struct Writer<A> {
    base: Ptr<u8>,
    store: unsafe fn(Isa, Ptr<u8>, i64, i64, &[A]),
}

impl<A: Class> Reader<A> {
    pub fn new(v: &View<'_>) -> Self {
        Reader {
            base: Ptr(v.as_ptr().cast_mut()),
            dtype: v.dtype(),
            load: dispatch!(v.dtype(), T => load::<T, A>),
        }
    }

    /// A reader of elements of `A` itself, from `base`.
    pub fn of_class(base: Ptr<A>) -> Self {
        Reader { base: Ptr(base.0.cast()), dtype: A::DTYPE, load: load::<A, A> }
    }

    /// # Safety
    /// Elements `at, at + stride, …`, as many as `out` has, must be in the view.
    pub unsafe fn read(self, isa: Isa, at: i64, stride: i64, out: &mut [A]) {
        // SAFETY: the caller's promise, and the dtype is the view's.
        unsafe { (self.load)(isa, self.base, at, stride, out) }
    }

    /// A slice of the view's memory itself, if the view's dtype is that of `A`.
    ///
    /// # Safety
    /// The `n` contiguous elements from `at` must be in the view, and not be written while the
    /// slice lives.
    pub unsafe fn in_place<'s>(self, at: i64, n: usize) -> Option<&'s [A]> {
        // SAFETY: the caller's promise.
        (self.dtype == A::DTYPE).then(|| unsafe { Ptr(self.base.0.cast::<A>()).slice(at, n) })
    }

    /// The address of an element, if the view's dtype is that of `A`.
    pub fn address(self, at: i64) -> Option<Ptr<A>> {
        let base = self.base.0.cast::<A>();
        (self.dtype == A::DTYPE).then(|| Ptr(base.wrapping_offset(at as isize)))
    }
}

impl<A: Class> Writer<A> {
    pub fn new(v: &mut ViewMut<'_>) -> Self {
        Writer { base: Ptr(v.as_ptr().cast_mut()), store: dispatch!(v.dtype(), T => store::<T, A>) }
    }

    /// A writer of elements of `A` itself, from `base`.
    pub fn of_class(base: Ptr<A>) -> Self {
        Writer { base: Ptr(base.0.cast()), store: store::<A, A> }
    }

    /// # Safety
    /// Element `at` must be in the view, and no other thread may access it.
    pub unsafe fn write(self, at: i64, x: A) {
        // SAFETY: the caller's promise, and the dtype is the view's.
        unsafe { (self.store)(Isa::Scalar, self.base, at, 0, &[x]) }
    }

    /// # Safety
    /// Elements `at, at + stride, …`, as many as there are values, must be in the view, and no
    /// other thread may access them.
    pub unsafe fn write_run(self, isa: Isa, at: i64, stride: i64, values: &[A]) {
        // SAFETY: the caller's promise, and the dtype is the view's.
        unsafe { (self.store)(isa, self.base, at, stride, values) }
    }
}
