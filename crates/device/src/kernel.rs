//! Kernels: what a device computes, from a computation as data to a launch.
//!
//! ```text
//! Computation ── Backend::compile ──> Kernel ── bind ──> Launch ── enqueue ──> the queue
//!   names no device                  symbolic          sizes, strides,       addresses
//!                                                      numbers
//! ```
//!
//! One kernel serves all sizes, and one launch all addresses. A compiled program keeps its
//! launches, so that a repeated call only gives them to the queue.

use crate::address::Address;
use crate::fault::{Failing, Fault};
use crate::layout::Layout;
use maquette_ir::Scalar;
use maquette_ir::loops::LoopNest;
use maquette_ir::scalar_expr::ScalarExpr;
use smallvec::SmallVec;
use std::any::Any;
use std::fmt::Debug;
use std::sync::Arc;

/// What a kernel computes. Its operands and results are those of a launch, in order.
#[derive(Clone, Debug)]
pub enum Computation {
    /// Zeros, for every element of the results.
    Zeros,
    /// The only operand, broadcast to the sizes of the only result and converted to its dtype, as
    /// `aten::copy_`.
    Copy,
    /// An expression, for each element of one index space: that of all operands and results.
    Elements(Arc<ScalarExpr>),
    /// The loop nest of an operator.
    Nest(Arc<LoopNest>),
    /// A loop nest that is composed of those of several operators.
    Fused {
        /// The nest.
        nest: Arc<LoopNest>,
        /// The number of leading dimensions that make a row, if the operators are computed row by
        /// row. A device refuses sizes for which the operators alone take less time.
        rows: Option<usize>,
    },
}

impl Computation {
    /// Whether the values of operands can make a kernel fail.
    pub fn may_fail(&self) -> bool {
        match self {
            Computation::Zeros | Computation::Copy => false,
            Computation::Elements(expr) => expr.may_fail(),
            Computation::Nest(nest) | Computation::Fused { nest, .. } => nest.may_fail(),
        }
    }
}

/// The compile side of a device.
pub trait Backend: Send + Sync {
    /// Compiles kernels, in one batch. `None` for each that the device does not have.
    fn compile(&self, computations: &[Computation]) -> Vec<Option<Arc<dyn Kernel>>>;
}

/// A kernel of a device, for all sizes and layouts.
pub trait Kernel: Send + Sync {
    /// The kernel for the sizes, the layouts and the numbers of launches. `None` if the kernel does
    /// not support them.
    fn bind(&self, binding: &Binding<'_>) -> Option<Arc<dyn Launch>>;
}

/// The facts about launches that do not depend on addresses.
#[derive(Clone, Copy, Debug)]
pub struct Binding<'a> {
    /// The values of the symbols of a nest, by index; `None` for a symbol that no size depends on.
    pub symbols: &'a [Option<i64>],
    /// The [numbers](maquette_ir::loops::LaunchScalar::Number) of a nest, in order.
    pub numbers: &'a [Scalar],
    /// The layouts of the operands.
    pub operands: &'a [&'a Layout],
    /// The layouts of the results.
    pub results: &'a [&'a Layout],
    /// The operands that have exactly the memory of a result: pairs of an operand and a result.
    pub in_place: &'a [(usize, usize)],
}

/// A kernel, bound to sizes, layouts and numbers.
pub trait Launch: Send + Sync {
    /// Gives the launch to the queue of its device. `addresses` are those of element 0 of each
    /// operand, then of each result. `packed` has what is given in packed form, by the index of
    /// [`Launch::packs`], and may be empty. The bits are those of a launch without packed forms.
    ///
    /// A device whose work is done when the call returns ignores `failing`. One that
    /// [reports late](crate::Target::reports_late) counts the launch in the slot
    /// ([`FailureSlot`](crate::FailureSlot)), puts the error of the kernel there, and does nothing
    /// if the slot has an error by then.
    ///
    /// # Errors
    /// The error of the kernel, on a device that does not report late: the results are partly
    /// written. The device is lost.
    ///
    /// # Safety
    /// Each address is that of element 0 of allocated memory in which all elements of the layout
    /// lie, aligned for the dtype, with values of the dtype. Until the launch is done, nothing
    /// writes the operands, and nothing else accesses the results. A result overlaps no other
    /// result, and no operand but those of [`Binding::in_place`]. A packed operand was packed from
    /// the operands as they are now.
    unsafe fn enqueue(
        &self,
        addresses: &[Address],
        packed: &[Option<Arc<dyn PackedOperand>>],
        failing: Option<Failing<'_>>,
    ) -> Result<(), Fault>;

    /// What is worth packing ahead of several launches, each by the operands from which it is
    /// packed.
    fn packs(&self) -> &[SmallVec<[usize; 1]>] {
        &[]
    }

    /// What the packed form of the operands `packs()[index]` depends on, beside their addresses and
    /// contents; `None` if there are no such operands.
    fn pack_key(&self, _index: usize) -> Option<PackKey> {
        None
    }

    /// Packs the operands `packs()[index]`, which are at these addresses.
    ///
    /// # Errors
    /// There are no such operands, or not enough memory; a command of the device has failed.
    ///
    /// # Safety
    /// As for operands of [`Launch::enqueue`].
    unsafe fn pack(
        &self,
        index: usize,
        addresses: &[Address],
    ) -> Result<Arc<dyn PackedOperand>, Fault> {
        let operands = format!("{} operands as number {index}", addresses.len());
        Err(Fault::Unsupported { command: "packing", operands })
    }
}

/// Operands in the layout that a kernel reads: a copy that one call makes for many launches, and
/// makes again when the memory was written.
pub trait PackedOperand: Any + Send + Sync + Debug {
    /// The bytes of memory that it takes.
    fn bytes(&self) -> usize;
}

/// What makes the same packed form of the same memory: launches of a device with equal keys take
/// the same packed operand.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PackKey {
    /// What the kernel says of the form.
    pub form: SmallVec<[i64; 8]>,
    /// The numbers of the launches, if the packed values depend on them.
    pub numbers: SmallVec<[Scalar; 2]>,
}
