//! Tensor metadata: everything about a tensor except its contents.

use maquette_ir::sym::SymInt;
use maquette_ir::typing::{contiguous_strides, is_contiguous_i64};
use maquette_ir::{DType, Device, Layout};
use smallvec::SmallVec;
use std::fmt;

/// Sizes or strides, one entry per dimension.
pub type Dims = SmallVec<[SymInt; 4]>;

/// A tensor's metadata. Strides and offset are in elements.
#[derive(Clone, Debug)]
pub struct Meta {
    /// Element type.
    pub dtype: DType,
    /// The device of the storage.
    pub device: Device,
    /// Always [`Layout::Strided`] at present.
    pub layout: Layout,
    /// One size per dimension; empty for a 0-d tensor.
    pub sizes: Dims,
    /// One stride per dimension: the distance in elements between neighbours along it.
    pub strides: Dims,
    /// The distance in elements from the start of the storage to the first element. In a trace,
    /// inputs do not begin where they do in a run: a program asks with
    /// [`Tensor::storage_offset`](crate::Tensor::storage_offset), which knows.
    pub(crate) offset: SymInt,
}

impl Meta {
    /// Metadata of a row-major tensor on the CPU, with offset 0.
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
        }
    }

    /// The same metadata with other sizes and strides.
    pub fn with_dims(&self, sizes: Dims, strides: Dims) -> Meta {
        Meta { sizes, strides, ..self.clone() }
    }

    /// The same metadata with another element type. Strides and offset stay as many elements.
    pub fn with_dtype(mut self, dtype: DType) -> Meta {
        self.dtype = dtype;
        self
    }

    /// The same metadata with other strides, in elements, one for each dimension.
    pub fn with_strides(mut self, strides: Dims) -> Meta {
        self.strides = strides;
        self
    }

    /// The same metadata with another offset, in elements.
    pub fn with_offset(mut self, offset: impl Into<SymInt>) -> Meta {
        self.offset = offset.into();
        self
    }

    /// The same metadata on another device.
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
        // the product of the other sizes of an empty tensor may overflow
        let empty = self.sizes.iter().any(|n| n.as_i64() == Some(0));
        if empty { SymInt::from(0) } else { self.sizes.iter().fold(SymInt::from(1), |n, &s| n * s) }
    }

    /// Whether the layout is known to be row-major without gaps.
    #[doc(hidden)]
    pub fn is_row_major(&self) -> bool {
        self.concrete().is_some_and(|c| c.is_contiguous())
    }

    /// The number of elements if all sizes and strides are concrete and the layout is exactly
    /// row-major: a fast check for the common case. It rejects size-1 dimensions with irregular
    /// strides, although those are contiguous too.
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

    /// As [`dense_numel`](Self::dense_numel), but also `None` if a size is negative or the product
    /// overflows.
    pub(crate) fn checked_dense_numel(&self) -> Option<i64> {
        let numel = || {
            self.sizes.iter().try_fold(1i64, |n, s| n.checked_mul(s.as_i64().filter(|s| *s >= 0)?))
        };
        self.dense_numel().and_then(|_| numel())
    }

    /// The layout in concrete numbers, or `None` if a size, a stride or the offset is symbolic.
    pub(crate) fn concrete(&self) -> Option<Concrete> {
        let mut layout = Concrete {
            sizes: SmallVec::new(),
            strides: SmallVec::new(),
            offset: self.offset.as_i64()?,
            width: self.dtype.size() as i64,
        };
        for size in &self.sizes {
            layout.sizes.push(size.as_i64()?);
        }
        for stride in &self.strides {
            layout.strides.push(stride.as_i64()?);
        }
        Some(layout)
    }
}

/// A layout in concrete numbers. Strides and offset count elements of `width` bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Concrete {
    /// One size per dimension.
    pub sizes: SmallVec<[i64; 6]>,
    /// One entry per dimension, in elements.
    pub strides: SmallVec<[i64; 6]>,
    /// The offset in elements.
    pub offset: i64,
    /// The size of an element in bytes.
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

    /// The half-open byte range that the elements span; `None` if the region is empty, the range
    /// overflows, or elements are before the first one.
    pub fn span(&self) -> Option<(i64, i64)> {
        let is_backward = |(n, s): (&i64, &i64)| *n < 0 || *s < 0;
        if self.sizes.contains(&0) || self.sizes.iter().zip(&self.strides).any(is_backward) {
            return None;
        }
        let last = self.sizes.iter().zip(&self.strides).try_fold(self.offset, |o, (&n, &s)| {
            o.checked_add(n.checked_sub(1)?.checked_mul(s)?)
        })?;
        Some((self.offset.checked_mul(self.width)?, last.checked_add(1)?.checked_mul(self.width)?))
    }

    /// Whether the layout is row-major without gaps. Strides of size-1 dimensions are ignored.
    pub fn is_contiguous(&self) -> bool {
        is_contiguous_i64(&self.sizes, &self.strides)
    }
}

/// Types that convert to a list of sizes or strides: arrays, slices and vectors of numbers or
/// [`SymInt`]s, and single integers.
pub trait IntoDims {
    /// The list, as symbolic integers.
    fn into_dims(self) -> Dims;

    /// Whether this is a single integer, which an operator may repeat for each element of a list
    /// of fixed length.
    fn is_integer(&self) -> bool {
        false
    }
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

    fn is_integer(&self) -> bool {
        true
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

            fn is_integer(&self) -> bool {
                true
            }
        }
    )* };
}
one_integer!(i32, i64, usize);

/// `[2, s0]`
pub fn dims_text(dims: &[SymInt]) -> String {
    let parts: Vec<String> = dims.iter().map(ToString::to_string).collect();
    format!("[{}]", parts.join(", "))
}

/// The dims of a contiguous tensor of these sizes are implied; others are worth showing.
fn has_plain_layout(m: &Meta) -> bool {
    let plain: Dims = contiguous_strides(&m.sizes);
    m.offset.as_i64() == Some(0)
        && plain.iter().zip(&m.strides).all(|(a, b)| a.eq(*b).statically_known() == Some(true))
}

impl fmt::Display for Meta {
    /// As in graph text: `f32[2, 3] strides [1, 2] offset 4 device cuda:0`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.dtype, dims_text(&self.sizes))?;
        if !has_plain_layout(self) {
            write!(f, " strides {}", dims_text(&self.strides))?;
            if self.offset.as_i64() != Some(0) {
                write!(f, " offset {}", self.offset)?;
            }
        }
        if self.device != Device::Cpu {
            write!(f, " device {}", self.device)?;
        }
        Ok(())
    }
}
