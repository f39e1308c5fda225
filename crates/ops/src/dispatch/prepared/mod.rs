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
use crate::operator::loops::NestLaunch;
use crate::tensor::Tensor;
use maquette_ir::scalar_expr::ScalarExpr;
use maquette_ir::{Loc, Scalar};
use maquette_kernels::{CopyPlan, DenseFill, Isa, PointwisePlan, View, ViewMut};
use operand::{views, views_mut};
use smallvec::SmallVec;

/// The operator that copies into a tensor.
const COPY: &str = "aten::copy_";

type Operands = SmallVec<[PlacedOperand; 3]>;
type Results = SmallVec<[PlacedOperand; 1]>;

/// A call of a builtin operator for operands and results of given layouts: all that
/// comes before the kernel is done.
pub struct PreparedCall {
    op: Op,
    kernel: Kernel,
    operands: Operands,
    results: Results,
    own_strides: bool,
}

enum Kernel {
    /// The results have no elements.
    Nothing,
    /// The plans of results whose elements follow each other.
    Zeros(SmallVec<[Option<DenseFill>; 1]>),
    Copy(Box<CopyPlan>),
    Pointwise(Box<(ScalarExpr, PointwisePlan)>),
    Nest(Box<NestLaunch>),
}

impl Kernel {
    fn pointwise(
        expr: &ScalarExpr,
        operands: &[PlacedOperand],
        results: &[PlacedOperand],
        in_place: &[(usize, usize)],
    ) -> Option<Kernel> {
        let outputs = views_mut(results);
        let plan = PointwisePlan::new(expr, &views(operands), &outputs, in_place).ok()?;
        Some(Kernel::Pointwise(Box::new((expr.clone(), plan))))
    }
}

impl PreparedCall {
    /// The copy of a tensor into memory of another layout, with broadcasting and conversion, as
    /// `aten::copy_`. Both are fake, on the CPU, with plain sizes.
    pub fn copy(from: &Tensor, to: &Tensor) -> Option<PreparedCall> {
        let op = Op::find(COPY).ok()?;
        let result = PlacedOperand::of(0, to)?;
        let operand = PlacedOperand::of(0, from)?.expanded(&result.layout.sizes)?;
        let kernel = match result.layout.is_empty() {
            true => Kernel::Nothing,
            false => Kernel::Copy(Box::new(
                CopyPlan::new(&operand.layout.view(), &result.layout.view_mut()).ok()?,
            )),
        };
        let (operands, results) = ([operand].into_iter().collect(), [result].into_iter().collect());
        Some(PreparedCall { op, kernel, operands, results, own_strides: false })
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

    /// Whether a launch has nothing to compute.
    pub fn is_empty(&self) -> bool {
        matches!(self.kernel, Kernel::Nothing)
    }

    /// The call for results that occupy exactly the memory of operands, with the same addresses:
    /// `pairs` of an operand and a result. `None` if the kernel does not support that.
    pub fn in_place(self, pairs: &[(usize, usize)]) -> Option<PreparedCall> {
        for &(k, j) in pairs {
            if self.operands.get(k)?.layout != self.results.get(j)?.layout {
                return None;
            }
        }
        let kernel = match self.kernel {
            Kernel::Pointwise(pointwise) => {
                Kernel::pointwise(&pointwise.0, &self.operands, &self.results, pairs)?
            }
            Kernel::Nest(mut nest) => {
                let (operands, results) = (views(&self.operands), views_mut(&self.results));
                nest.plan_over(&operands, &results, pairs).then_some(Kernel::Nest(nest))?
            }
            _ => return None,
        };
        Some(PreparedCall { kernel, ..self })
    }

    /// Computes the results. `addresses` are those of the operands, then of the results.
    ///
    /// # Errors
    /// The error of the kernel. Then the results are partly written.
    ///
    /// # Safety
    /// Each address is that of the first element of memory in which all elements of the layout lie,
    /// aligned for the dtype. During the launch, nothing writes the operands, and nothing else
    /// accesses the results. A result overlaps no other result, and no operand but those of
    /// [`PreparedCall::in_place`].
    pub unsafe fn launch(&self, addresses: &[*mut u8]) -> Result<()> {
        self.check_count(addresses)?;
        let (operands, results) = addresses.split_at(self.operands.len());
        // SAFETY: the caller's promise, here and below.
        match &self.kernel {
            Kernel::Nothing => Ok(()),
            Kernel::Pointwise(pointwise) => Ok(unsafe { pointwise.1.run_at(addresses) }?),
            Kernel::Copy(plan) => Ok(unsafe { plan.run_at(operands[0], results[0]) }?),
            Kernel::Zeros(plans) => {
                for ((plan, result), &address) in plans.iter().zip(&self.results).zip(results) {
                    match plan {
                        Some(plan) => unsafe { plan.run_at(address, Scalar::Int(0)) }?,
                        None => {
                            let mut output = unsafe { result.layout.view_mut_at(address) };
                            maquette_kernels::fill(&mut output, Scalar::Int(0))?;
                        }
                    }
                }
                Ok(())
            }
            Kernel::Nest(nest) => {
                if let Some(plan) = nest.special_plan() {
                    return Ok(unsafe { plan.run_at(addresses) }?);
                }
                if let Some(plan) = nest.only_plan() {
                    return Ok(unsafe { plan.run_at(Isa::detect(), addresses, nest.numbers()) }?);
                }
                unsafe { self.launch_views(nest, operands, results) }
            }
        }
    }

    /// Computes a nest on views.
    ///
    /// # Safety
    /// As [`PreparedCall::launch`].
    unsafe fn launch_views(
        &self,
        nest: &NestLaunch,
        operands: &[*mut u8],
        results: &[*mut u8],
    ) -> Result<()> {
        let views = self.operands.iter().zip(operands);
        // SAFETY: the caller's promise.
        let views = views.map(|(o, &address)| unsafe { o.layout.view_at(address) });
        let views: SmallVec<[View<'_>; 6]> = views.collect();
        let outputs = self.results.iter().zip(results);
        // SAFETY: the caller's promise.
        let outputs = outputs.map(|(o, &address)| unsafe { o.layout.view_mut_at(address) });
        let mut outputs: SmallVec<[ViewMut<'_>; 4]> = outputs.collect();
        Ok(nest.run(&views, &mut outputs)?)
    }

    /// # Errors
    /// A launch has another number of addresses.
    fn check_count(&self, addresses: &[*mut u8]) -> Result<()> {
        match addresses.len() == self.operands.len() + self.results.len() {
            true => Ok(()),
            false => Err(Error::value("a launch has an address for each operand and result")),
        }
    }

    /// The error of a failed launch in the operator's words. The arguments are those of the call.
    /// They are read if the operator looks for the position of an error.
    pub fn explained(&self, e: Error, args: &[Value]) -> Error {
        match (&self.kernel, e.kind()) {
            (Kernel::Nest(nest), ErrorKind::Kernel(kernel)) => nest.explained(kernel.clone(), args),
            _ => e,
        }
    }

    /// The error as that of the call on line `loc`.
    pub fn in_call(&self, e: Error, loc: Loc) -> Error {
        e.in_call(self.op.shared_name(), loc)
    }
}
