//! Calls of builtin operators that are prepared once for given layouts, and launched many times.
//!
//! [`Op::prepare`] does all that a call does before its kernel runs: coercion, promotion, the
//! checks of sizes, and the choice of the kernel. It takes fake tensors, because none of this
//! depends on data. A launch takes addresses alone. It runs the kernel that [`Op::call_into`] runs
//! on tensors of these layouts, so it has the same bits and the same errors.
//!
//! Safety of this module: the caller of [`PreparedCall::launch`] promises valid memory. Layouts and
//! dtypes are those that the kernel was chosen for.
#![allow(unsafe_code)]

mod composed;
mod kernel;
mod lowered;
mod operand;
mod packed;
mod prepare;
mod work;

pub use composed::{KernelBinding, composed_nests};
pub use kernel::PreparedKernel;
pub use lowered::{LoweredBody, LoweredCall, LoweredNest};
pub use operand::PlacedOperand;
pub use work::Work;

use crate::dispatch::value::Value;
use crate::error::{Error, ErrorKind, Result};
use crate::library::Op;
use crate::operator::loops::{Explain, SymbolValues, explained};
use crate::tensor::Tensor;
use crate::tensor::create::opened;
use maquette_device::{
    Address, Binding, Computation, Failing, FailureSlot, Kernel, Launch, Origin, PackedOperand,
};
use maquette_ir::{Device, Loc, Scalar};
use operand::layouts;
use smallvec::SmallVec;
use std::sync::Arc;

/// The operator that copies into a tensor.
const COPY: &str = "aten::copy_";

type Operands = SmallVec<[PlacedOperand; 3]>;
type Results = SmallVec<[PlacedOperand; 1]>;

/// A call of a builtin operator for operands and results of given layouts: all that
/// comes before the kernel is done.
pub struct PreparedCall {
    op: Op,
    device: Device,
    /// The kernel; `None` if there is nothing to compute: the results have no elements.
    kernel: Option<Box<BoundKernel>>,
    operands: Operands,
    results: Results,
    own_strides: bool,
    origin: Option<Arc<Origin>>,
}

type Numbers = SmallVec<[Scalar; 4]>;

/// A kernel of a device, bound to the layouts and numbers of a call.
struct BoundKernel {
    computation: Computation,
    kernel: Arc<dyn Kernel>,
    symbols: SymbolValues,
    numbers: Numbers,
    explain: Option<Explain>,
    launch: Arc<dyn Launch>,
}

/// The kernels that devices have compiled for one computation; `None` of a device that has none.
pub(crate) type DeviceKernels = SmallVec<[(Device, Option<Arc<dyn Kernel>>); 1]>;

/// The kernel of a device for a computation; `None` if the device has none.
pub(crate) fn compiled(device: Device, computation: &Computation) -> Option<Arc<dyn Kernel>> {
    let backend = opened(device).ok()?.backend();
    backend.compile(std::slice::from_ref(computation)).pop().flatten()
}

/// The launches of a kernel with these operands and results.
fn bind(
    kernel: &dyn Kernel,
    (symbols, numbers): (&[Option<i64>], &[Scalar]),
    (operands, results): (&[PlacedOperand], &[PlacedOperand]),
    in_place: &[(usize, usize)],
) -> Option<Arc<dyn Launch>> {
    let (operands, results) = (layouts(operands), layouts(results));
    kernel.bind(&Binding { symbols, numbers, operands: &operands, results: &results, in_place })
}

impl BoundKernel {
    /// `None` if the kernel does not support these launches.
    fn new(
        computation: Computation,
        kernel: Arc<dyn Kernel>,
        (symbols, numbers): (SymbolValues, Numbers),
        operands: (&[PlacedOperand], &[PlacedOperand]),
    ) -> Option<BoundKernel> {
        let launch = bind(&*kernel, (&symbols, &numbers), operands, &[])?;
        Some(BoundKernel { computation, kernel, symbols, numbers, explain: None, launch })
    }

    /// As [`BoundKernel::new`], of a computation without symbols and numbers.
    fn plain(
        device: Device,
        computation: Computation,
        operands: (&[PlacedOperand], &[PlacedOperand]),
    ) -> Option<BoundKernel> {
        let kernel = compiled(device, &computation)?;
        BoundKernel::new(computation, kernel, Default::default(), operands)
    }
}

impl PreparedCall {
    /// A call of a kernel; of nothing to compute if there is none.
    fn new(
        op: Op,
        device: Device,
        kernel: Option<BoundKernel>,
        (operands, results): (Operands, Results),
        own_strides: bool,
    ) -> PreparedCall {
        let (kernel, origin) = (kernel.map(Box::new), None);
        PreparedCall { op, device, kernel, operands, results, own_strides, origin }
    }

    /// The copy of a tensor into memory of another layout on the same device, with broadcasting and
    /// conversion, as `aten::copy_`. Both are fake, with plain sizes.
    pub fn copy(from: &Tensor, to: &Tensor) -> Option<PreparedCall> {
        let op = Op::find(COPY).ok()?;
        let device = to.device();
        let result = PlacedOperand::of(0, to)?;
        let operand = PlacedOperand::of(0, from)?.expanded(&result.layout.sizes)?;
        if from.device() != device {
            return None;
        }
        let (operands, results): (Operands, Results) =
            ([operand].into_iter().collect(), [result].into_iter().collect());
        let kernel = match results[0].is_empty() {
            true => None,
            false => {
                let on = (&operands[..], &results[..]);
                Some(BoundKernel::plain(device, Computation::Copy, on)?)
            }
        };
        Some(PreparedCall::new(op, device, kernel, (operands, results), false))
    }

    /// The call, whose late errors name this operator and line.
    #[must_use]
    pub fn with_origin(mut self, op: Arc<str>, loc: Option<Loc>) -> PreparedCall {
        self.origin = Some(Arc::new(Origin { op, loc }));
        self
    }

    /// The operands of a launch, in order.
    pub fn operands(&self) -> &[PlacedOperand] {
        &self.operands
    }

    /// The results of a launch, in order.
    pub fn results(&self) -> &[PlacedOperand] {
        &self.results
    }

    /// Whether an operator of a kernel class would itself choose the strides of the results for its
    /// own memory.
    pub fn has_own_strides(&self) -> bool {
        self.own_strides
    }

    /// Whether the values of operands can make a launch fail.
    pub fn may_fail(&self) -> bool {
        self.kernel.as_ref().is_some_and(|kernel| kernel.computation.may_fail())
    }

    /// Whether a launch has nothing to compute.
    pub fn is_empty(&self) -> bool {
        self.kernel.is_none()
    }

    /// The call for results that occupy exactly the memory of operands, with the same addresses:
    /// `pairs` of an operand and a result. `None` if the kernel does not support that.
    pub fn in_place(mut self, pairs: &[(usize, usize)]) -> Option<PreparedCall> {
        for &(k, j) in pairs {
            if self.operands.get(k)?.layout != self.results.get(j)?.layout {
                return None;
            }
        }
        // Where nothing is computed, nothing is overwritten.
        let Some(kernel) = self.kernel.as_mut() else { return Some(self) };
        let values = (&kernel.symbols[..], &kernel.numbers[..]);
        kernel.launch = bind(&*kernel.kernel, values, (&self.operands, &self.results), pairs)?;
        Some(self)
    }

    /// Gives a launch to the device. `addresses` are those of the operands, then of the results.
    /// `packed` has those of [`PreparedCall::packs`] that are given in packed form, and may be
    /// empty. The bits are those of a launch without them.
    ///
    /// # Errors
    /// The error of the kernel. Then the results are partly written. A device that reports late
    /// puts the error into `slot`, with the line of [`PreparedCall::with_origin`]. A packed operand
    /// is of another call.
    ///
    /// # Safety
    /// Each address is that of the first element of memory in which all elements of the layout lie,
    /// aligned for the dtype. Until the launch is done, nothing writes the operands, and nothing
    /// else accesses the results. A result overlaps no other result, and no operand but those of
    /// [`PreparedCall::in_place`].
    pub unsafe fn launch(
        &self,
        addresses: &[Address],
        packed: &[Option<Arc<dyn PackedOperand>>],
        slot: Option<&Arc<FailureSlot>>,
    ) -> Result<()> {
        let Some(kernel) = &self.kernel else { return Ok(()) };
        let failing = slot.map(|slot| Failing { slot, origin: self.origin.as_ref() });
        // SAFETY: the caller's promise.
        unsafe { kernel.launch.enqueue(addresses, packed, failing) }
            .map_err(|fault| Error::of_fault(self.device, fault, None))
    }

    /// The error of a failed launch in the operator's words. The arguments are those of the call.
    /// They are read if the operator looks for the position of an error.
    pub fn explained(&self, e: Error, args: &[Value]) -> Error {
        let explain = self.kernel.as_ref().and_then(|kernel| kernel.explain);
        match (explain, e.kind()) {
            (Some(explain), ErrorKind::Kernel(kernel)) => {
                explained(Some(explain), kernel.clone(), args)
            }
            _ => e,
        }
    }

    /// The error as that of the call on line `loc`.
    pub fn in_call(&self, e: Error, loc: Loc) -> Error {
        e.in_call(self.op.shared_name(), loc)
    }
}
