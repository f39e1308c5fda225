//! Errors of access to a tensor's data.

use crate::tensor::TraceTag;
use maquette_ir::{DType, Device};
use std::sync::Arc;

/// An access to a tensor's data that was refused.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AccessError {
    /// Another holder has borrowed an overlapping region.
    #[error("cannot {wanted} `{arg}`: {holder} {held} an overlapping region of the same storage")]
    Conflict {
        /// `read` or `write`.
        wanted: &'static str,
        /// The item the new borrow is for: an argument's name, or `the tensor`.
        arg: String,
        /// The holder of the conflicting borrow.
        holder: String,
        /// `reads` or `writes`.
        held: &'static str,
    },
    /// A real tensor that a running trace has captured was used on another thread. The use would
    /// take place, and the graph would not hold it.
    #[error(
        "cannot {wanted} `{arg}`: the trace `{}` has captured this tensor, and a trace belongs \
            to the thread that made it. Use the tensor on that thread, or before or after the trace",
        .trace.name
    )]
    Captured {
        /// `read` or `write`.
        wanted: &'static str,
        /// The item that was to be borrowed: an argument's name, or `the tensor`.
        arg: String,
        /// The trace.
        trace: Arc<TraceTag>,
    },
    /// A write to memory that nobody may write any more.
    #[error(
        "cannot write `{arg}`: the tensor is frozen, and compiled programs rely on its contents; \
            write to a copy (`{arg}.clone_as(MemoryFormat::Preserve)`)"
    )]
    Frozen {
        /// The item that was to be borrowed: an argument's name, or `the tensor`.
        arg: String,
    },
    /// A write through an argument that the schema does not mark as mutated.
    #[error(
        "{holder} is read-only in this call, and the kernel writes to it; take it as `&mut \
            Tensor` (`Tensor(a!)` in the schema) to mutate it"
    )]
    UndeclaredWrite {
        /// Which argument of which operator.
        holder: String,
    },
    /// A kernel used a tensor that is not an argument of its call and that the call did not make.
    #[error(
        "the kernel {access} a tensor {tensor} that it was not given: pass it as an argument. A \
            kernel may use its arguments and the tensors that it makes in the call; it may keep \
            constants as plain arrays"
    )]
    NotGiven {
        /// `reads` or `writes`.
        access: &'static str,
        /// The tensor's metadata.
        tensor: String,
    },
    /// A borrowed handle was used after the call it was borrowed for.
    #[error(
        "this handle was borrowed for a kernel call that has returned; a kernel must not keep its \
            arguments"
    )]
    Stale,
    /// A kernel of a compiled program kept a guard of its argument.
    #[error(
        "a guard of an argument outlives the call; a kernel must drop its guards before it returns"
    )]
    KeptGuard,
    /// A borrowed handle was used to access memory outside its borrowed region.
    #[error("the view exceeds the region of {holder} that this kernel borrowed")]
    OutsideBorrow {
        /// Which argument of which operator.
        holder: String,
    },
    /// Two mutated arguments share memory.
    #[error(
        "the mutated arguments `{first}` and `{second}` overlap in memory; the result would \
            depend on the order of writes"
    )]
    MutatedOverlap {
        /// The first argument.
        first: String,
        /// The second argument.
        second: String,
    },
    /// Two elements of a mutated tensor share memory.
    #[error(
        "the mutated argument `{arg}` overlaps itself (sizes {sizes:?}, strides {strides:?}); \
            write to a copy (`{arg}.contiguous()`) instead"
    )]
    SelfOverlap {
        /// The argument.
        arg: String,
        /// Its sizes.
        sizes: Vec<i64>,
        /// Its strides.
        strides: Vec<i64>,
    },
    /// The tensor's dimensions interleave: a mutable array view cannot represent the layout,
    /// although no two elements share memory.
    #[error(
        "cannot prove that elements do not overlap, because the dimensions interleave in memory \
            (sizes {sizes:?}, strides {strides:?}); write to a copy (`let mut y = x.contiguous()`) \
            and copy it back (`x.copy_(&y)`)"
    )]
    Interleaved {
        /// Its sizes.
        sizes: Vec<i64>,
        /// Its strides.
        strides: Vec<i64>,
    },
    /// The data was accessed as another element type.
    #[error("{holder} holds {found}, not {expected}; convert it with `to_dtype`")]
    DType {
        /// Which argument of which operator, or `the tensor`.
        holder: String,
        /// The requested value.
        expected: DType,
        /// The tensor's dtype.
        found: DType,
    },
    /// `item` on a tensor that does not have exactly one element.
    #[error("expected a tensor of one element, found sizes {sizes}")]
    NotOne {
        /// Its sizes.
        sizes: String,
    },
    /// The tensor has no host memory.
    #[error("the tensor is on {0}; copy it to the host first: `.to_device(Device::Cpu)`")]
    Device(Device),
    /// No driver in this program serves the device.
    #[error(
        "cannot allocate a tensor on {0}: this program has no driver for the device; make the \
            tensor with an operator that has a kernel for the device"
    )]
    NoAllocator(Device),
    /// The device cannot be used.
    #[error("cannot use {0}: {1}")]
    Unavailable(Device, String),
    /// A command failed on the device.
    #[error("{0} failed: {1}")]
    Fault(Device, maquette_device::Fault),
    /// The tensor's memory is not aligned for its dtype.
    #[error(
        "the memory is not aligned for elements of {0}; view a copy (`x.clone_tensor()`) instead"
    )]
    Misaligned(DType),
    /// The tensor is fake and has no data.
    #[error(
        "cannot read or write the data of a fake tensor: it has sizes, strides and a dtype, but \
            no contents. In a fake kernel, compute the \
         output's metadata from the inputs' metadata only"
    )]
    Fake,
    /// Data was read or written during a trace. A graph would record the current contents as a
    /// constant.
    #[error(
        "a tensor's data was {0} while tracing; the access would happen once, during the trace, \
            and would not be in the graph. Access the data before the trace, compute with \
            operators, or write a custom operator"
    )]
    WhileTracing(&'static str),
    /// The tensor is traced and has no data.
    #[error(
        "cannot read the data of a traced tensor: its values are not known while tracing. Compute \
            with operators, such as `cond.where_(a, b)` in place of `if`, or write a custom \
            operator"
    )]
    Traced,
    /// The layout extends beyond the storage.
    #[error(
        "sizes {sizes}, strides {strides} and offset {offset} exceed a storage of {bytes} bytes"
    )]
    OutOfBounds {
        /// Sizes.
        sizes: String,
        /// Strides.
        strides: String,
        /// Offset.
        offset: String,
        /// The length of the storage in bytes.
        bytes: usize,
    },
    /// A tensor has more elements than an address space, because dimensions have stride 0.
    #[error(
        "sizes {sizes} are more elements than can be counted; an expanded dimension repeats \
            elements: compute before expanding it"
    )]
    TooManyElements {
        /// Its sizes.
        sizes: String,
    },
    /// The number of elements does not match the sizes.
    #[error("the number of elements, {found}, does not match sizes {sizes}")]
    Shape {
        /// The requested value.
        sizes: String,
        /// The actual value.
        found: usize,
    },
    /// The allocation failed.
    #[error("cannot allocate a tensor of sizes {sizes} and dtype {dtype}")]
    Allocation {
        /// The requested value.
        sizes: String,
        /// The requested value.
        dtype: DType,
    },
}
