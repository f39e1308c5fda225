//! Why reading and writing data is refused.

use maquette_ir::{DType, Device};

/// Why reading or writing data was refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AccessError {
    /// Somebody holds an overlapping region.
    #[error("cannot {wanted} `{arg}`: {holder} {held} an overlapping region of the same storage")]
    Conflict {
        /// `read` or `write`.
        wanted: &'static str,
        /// What for.
        arg: String,
        /// Who holds it.
        holder: String,
        /// `reads` or `writes`.
        held: &'static str,
    },
    /// The schema does not mark the argument as mutated.
    #[error(
        "{holder} is read-only in this call, and the kernel writes to it; take it as `&mut \
            Tensor` (`Tensor(a!)` in the schema) to mutate it"
    )]
    UndeclaredWrite {
        /// Which argument of which operator.
        holder: String,
    },
    /// A handle that a kernel kept after its call.
    #[error(
        "this handle was borrowed by a kernel for one call, which is over; a kernel may not keep \
            its arguments"
    )]
    Stale,
    /// A handle used beyond the region that was borrowed for it.
    #[error("the view leaves the region of {holder} that this kernel borrowed")]
    OutsideBorrow {
        /// Which argument of which operator.
        holder: String,
    },
    /// Two mutated arguments meet.
    #[error(
        "the mutated arguments `{first}` and `{second}` overlap in memory; the result would \
            depend on the order of writes"
    )]
    MutatedOverlap {
        /// An argument.
        first: String,
        /// Another.
        second: String,
    },
    /// A mutated argument meets itself.
    #[error(
        "the mutated argument `{arg}` overlaps itself (sizes {sizes:?}, strides {strides:?}); \
            write to a copy (`{arg}.contiguous()`) instead"
    )]
    SelfOverlap {
        /// Which.
        arg: String,
        /// Its sizes.
        sizes: Vec<i64>,
        /// Its strides.
        strides: Vec<i64>,
    },
    /// A layout that a mutable array view cannot have, though no two elements meet.
    #[error(
        "the dimensions interleave in memory (sizes {sizes:?}, strides {strides:?}), which an \
            array view cannot show to be free of overlap; \
         write to a copy (`let mut y = x.contiguous()`) and copy it back (`x.copy_(&y)`)"
    )]
    Interleaved {
        /// Its sizes.
        sizes: Vec<i64>,
        /// Its strides.
        strides: Vec<i64>,
    },
    /// Another element type.
    #[error("the tensor holds {found}, not {expected}")]
    DType {
        /// Asked for.
        expected: DType,
        /// Held.
        found: DType,
    },
    /// More or fewer elements.
    #[error("expected a tensor of one element, found sizes {sizes}")]
    NotOne {
        /// Its sizes.
        sizes: String,
    },
    /// There is no host memory to read.
    #[error("the tensor is on {0}; copy it to the host first: `.to_device(Device::Cpu)`")]
    Device(Device),
    /// A view of another dtype over memory that is not aligned for it.
    #[error(
        "the memory is not aligned for elements of {0}; view a copy (`x.clone_tensor()`) instead"
    )]
    Misaligned(DType),
    /// A fake tensor has no data.
    #[error(
        "cannot read or write the data of a fake tensor: it has sizes, strides and a dtype, but \
            no contents. In a fake kernel, compute the \
         output's metadata from the inputs' metadata only"
    )]
    Fake,
    /// Data outside the trace, which a graph would freeze as it happens to be.
    #[error(
        "a tensor's data was {0} while tracing; what the program does with it would happen once, \
            in the trace, and not in the graph. Do it \
         before the trace, keep it in operators, or put it into a custom operator"
    )]
    WhileTracing(&'static str),
    /// A traced tensor has no data yet.
    #[error(
        "cannot read the data of a traced tensor: its values are not known while tracing. Keep \
            the computation in operators, or put it \
         into a custom operator"
    )]
    Traced,
    /// The layout reaches outside the storage.
    #[error(
        "sizes {sizes}, strides {strides} and offset {offset} reach outside a storage of {bytes} \
            bytes"
    )]
    OutOfBounds {
        /// Sizes.
        sizes: String,
        /// Strides.
        strides: String,
        /// Offset.
        offset: String,
        /// The storage's length.
        bytes: usize,
    },
    /// A shape that does not fit the data.
    #[error("{found} elements do not fill sizes {sizes}")]
    Shape {
        /// Asked for.
        sizes: String,
        /// Given.
        found: usize,
    },
    /// The memory cannot be had.
    #[error("cannot allocate a tensor of sizes {sizes} and dtype {dtype}")]
    Allocation {
        /// Asked for.
        sizes: String,
        /// Asked for.
        dtype: DType,
    },
}
