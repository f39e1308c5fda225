//! Tensor metadata: everything about a tensor except its contents.

use maquette_ir::sym::SymInt;
use maquette_ir::typing::contiguous_strides;
use maquette_ir::{DType, Device, Layout};
use smallvec::SmallVec;

/// Sizes or strides, one entry a dimension.
pub type Dims = SmallVec<[SymInt; 4]>;

/// A tensor's metadata. Strides and offset are in elements.
#[derive(Clone, Debug)]
pub struct Meta {
    /// Element type.
    pub dtype: DType,
    /// Where the storage lives.
    pub device: Device,
    /// Always [`Layout::Strided`] at present.
    pub layout: Layout,
    /// One entry a dimension; none for a 0-d tensor.
    pub sizes: Dims,
    /// Elements between neighbours, a dimension each.
    pub strides: Dims,
    /// Elements from the storage's start to the first element.
    pub offset: SymInt,
    /// Whether gradients flow to it.
    pub requires_grad: bool,
}

impl Meta {
    /// Row-major metadata at offset 0 on the host.
    pub fn contiguous(sizes: impl IntoDims, dtype: DType) -> Meta {
        let sizes = sizes.into_dims();
        let strides = contiguous_strides(&sizes);
        Meta {
            dtype,
            device: Device::Cpu,
            layout: Layout::Strided,
            sizes,
            strides,
            offset: SymInt::from(0),
            requires_grad: false,
        }
    }

    /// The same with other sizes and strides.
    pub fn with_dims(&self, sizes: Dims, strides: Dims) -> Meta {
        Meta { sizes, strides, requires_grad: false, ..self.clone() }
    }

    /// On another device.
    pub fn on(mut self, device: Device) -> Meta {
        self.device = device;
        self
    }

    /// The number of dimensions.
    pub fn rank(&self) -> usize {
        self.sizes.len()
    }

    /// The number of elements.
    pub fn numel(&self) -> SymInt {
        // the other sizes of an empty tensor may be too large for their product
        let empty = self.sizes.iter().any(|n| n.as_i64() == Some(0));
        if empty { SymInt::from(0) } else { self.sizes.iter().fold(SymInt::from(1), |n, &s| n * s) }
    }

    /// Whether elements are known to lie in row-major order, without gaps.
    pub(crate) fn is_row_major(&self) -> bool {
        self.concrete().is_some_and(|c| c.is_contiguous())
    }

    /// How many elements there are, if they lie row-major in plain numbers, without size-1
    /// dimensions of other strides: a quick answer for the common case.
    pub(crate) fn dense_numel(&self) -> Option<i64> {
        let (mut expected, mut elements) = (1i64, 1i64);
        for (n, s) in self.sizes.iter().zip(&self.strides).rev() {
            match (n.as_i64(), s.as_i64()) {
                (Some(n), Some(s)) if s == expected => {
                    expected = expected.saturating_mul(n.max(1));
                    elements = elements.saturating_mul(n);
                }
                _ => return None,
            }
        }
        Some(elements)
    }

    /// The number of elements of a layout that is [dense](Self::dense_numel), where no size is
    /// negative and their product fits.
    pub(crate) fn checked_dense_numel(&self) -> Option<i64> {
        let numel = || {
            self.sizes.iter().try_fold(1i64, |n, s| n.checked_mul(s.as_i64().filter(|s| *s >= 0)?))
        };
        self.dense_numel().and_then(|_| numel())
    }

    /// The layout as plain numbers, or `None` where a size, stride or the offset is symbolic.
    pub fn concrete(&self) -> Option<Concrete> {
        let ints = |dims: &[SymInt]| {
            dims.iter().map(|d| d.as_i64()).collect::<Option<SmallVec<[i64; 6]>>>()
        };
        Some(Concrete {
            sizes: ints(&self.sizes)?,
            strides: ints(&self.strides)?,
            offset: self.offset.as_i64()?,
            width: self.dtype.size() as i64,
        })
    }
}

/// A layout in plain numbers; strides and offset in elements of `width` bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Concrete {
    /// One entry a dimension.
    pub sizes: SmallVec<[i64; 6]>,
    /// One entry a dimension, in elements.
    pub strides: SmallVec<[i64; 6]>,
    /// In elements.
    pub offset: i64,
    /// Bytes an element.
    pub width: i64,
}

impl Concrete {
    /// The number of elements, or `None` where it overflows.
    pub fn numel(&self) -> Option<i64> {
        if self.sizes.contains(&0) {
            Some(0)
        } else {
            self.sizes.iter().try_fold(1i64, |n, &s| n.checked_mul(s))
        }
    }

    /// The half-open range of bytes that the elements span; `None` where empty or where it
    /// overflows.
    pub fn span(&self) -> Option<(i64, i64)> {
        if self.sizes.contains(&0) {
            return None;
        }
        let last = self.sizes.iter().zip(&self.strides).try_fold(self.offset, |o, (&n, &s)| {
            o.checked_add(n.checked_sub(1)?.checked_mul(s)?)
        })?;
        Some((self.offset.checked_mul(self.width)?, last.checked_add(1)?.checked_mul(self.width)?))
    }

    /// Row-major, size-1 dimensions aside.
    pub fn is_contiguous(&self) -> bool {
        let mut expected = 1;
        self.sizes.contains(&0)
            || self.sizes.iter().zip(&self.strides).rev().all(|(&n, &s)| {
                let ok = n == 1 || s == expected;
                expected = i64::wrapping_mul(expected, n);
                ok
            })
    }
}

/// What can be given where sizes, strides or another list of integers is wanted: arrays, slices and
/// vectors of numbers or [`SymInt`]s.
pub trait IntoDims {
    /// The list, as symbolic integers.
    fn into_dims(self) -> Dims;
}

impl IntoDims for Dims {
    fn into_dims(self) -> Dims {
        self
    }
}

impl<T: Copy + Into<SymInt>, const N: usize> IntoDims for [T; N] {
    fn into_dims(self) -> Dims {
        self.into_iter().map(Into::into).collect()
    }
}

impl<T: Copy + Into<SymInt>> IntoDims for &[T] {
    fn into_dims(self) -> Dims {
        self.iter().map(|&x| x.into()).collect()
    }
}

impl<T: Copy + Into<SymInt>, const N: usize> IntoDims for &[T; N] {
    fn into_dims(self) -> Dims {
        self.as_slice().into_dims()
    }
}

impl<T: Copy + Into<SymInt>> IntoDims for Vec<T> {
    fn into_dims(self) -> Dims {
        self.as_slice().into_dims()
    }
}

impl<T: Copy + Into<SymInt>> IntoDims for &Vec<T> {
    fn into_dims(self) -> Dims {
        self.as_slice().into_dims()
    }
}

impl IntoDims for SymInt {
    /// One integer stands for a list of one, as in PyTorch's `int[1]`.
    fn into_dims(self) -> Dims {
        smallvec::smallvec![self]
    }
}

impl IntoDims for &Dims {
    fn into_dims(self) -> Dims {
        self.clone()
    }
}

macro_rules! one_integer {
    ($($t:ty),*) => { $(
        impl IntoDims for $t {
            fn into_dims(self) -> Dims {
                SymInt::from(self).into_dims()
            }
        }
    )* };
}
one_integer!(i32, i64, usize);
