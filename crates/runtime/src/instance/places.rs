//! Places: where a value lies, as a base and an offset. A base is a buffer of the plan that has
//! memory of its own, or the arena of a segment.

use maquette_ir::DType;
use maquette_ir::buffer_plan::BufferId;
use maquette_ops::Meta;

/// The address of a value: a number of bytes from a base. The bases are the plan's buffers, then
/// the arenas of segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub base: u32,
    pub start: i64,
}

/// The memory of a buffer: its place and its extent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BufferPlace {
    pub place: Place,
    /// The number of elements.
    pub len: i64,
    pub dtype: DType,
    /// Whether it is a tensor that the run got, and not memory that the run made.
    pub is_given: bool,
}

/// How long a handle to a tensor can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HandleLife {
    /// It is the tensor of the base itself.
    Base,
    /// Until the arena is replaced.
    Arena,
    /// Until the run ends: the base is an input, a constant, or memory for outputs.
    Run,
    /// For one step: the base is a tensor that an operator returned.
    Step,
}

/// A tensor in the memory of a run. The offset of its metadata counts elements from the base.
#[derive(Clone, Debug)]
pub(crate) struct TensorAt {
    pub base: u32,
    /// The half-open range of bytes of its buffer, counted from the base.
    pub bounds: (i64, i64),
    pub handle: HandleLife,
    /// Its number in its segment. Equal tensors have one.
    pub slot: u32,
    pub meta: Meta,
}

impl BufferPlace {
    /// A buffer with memory of its own that the run makes.
    pub fn own(buffer: BufferId, len: i64, dtype: DType) -> BufferPlace {
        BufferPlace { place: Place { base: buffer.0, start: 0 }, len, dtype, is_given: false }
    }

    /// The memory of a tensor that the run gets.
    pub fn given(buffer: BufferId, len: i64, dtype: DType) -> BufferPlace {
        BufferPlace { is_given: true, ..BufferPlace::own(buffer, len, dtype) }
    }

    /// The bytes of the buffer; `None` where their number overflows.
    pub fn bytes(&self) -> Option<i64> {
        self.len.checked_mul(self.dtype.size() as i64)
    }
}
