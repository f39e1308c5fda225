//! Calls of builtin operators that are prepared once for given layouts, and launched many times.
//!
//! [`Op::prepare`] does all that a call does before its kernel runs: coercion, promotion, the checks
//! of sizes, and the choice of the kernel. It takes fake tensors, because none of this depends on
//! data. A launch takes addresses alone. It runs the kernel that [`Op::call_into`] runs on tensors
//! of these layouts, so it has the same bits and the same errors.
//!
//! Safety of this module: the caller of [`PreparedCall::launch`] promises valid memory. Layouts and
//! dtypes are those that the kernel was chosen for.
#![allow(unsafe_code)]

use crate::aten::execute::PointwiseCall;
use crate::aten::loops::{NestLaunch, PlacedNest};
use crate::aten::lowering::How;
use crate::aten::{Compute, Lowering, OpDef, Pointwise};
use crate::dispatch::call_into::{placement, writes_into};
use crate::dispatch::coerce_args::coerce_args;
use crate::dispatch::value::{Args, Value};
use crate::error::{Error, ErrorKind, Result};
use crate::library::{Op, OpState};
use crate::mode;
use crate::tensor::Tensor;
use crate::tensor::meta::Concrete;
use crate::tensor::overlap::{may_overlap, may_self_overlap};
use maquette_ir::graph::Placement;
use maquette_ir::scalar_expr::ScalarExpr;
use maquette_ir::{DType, Device, Loc, Scalar};
use maquette_kernels::{Isa, PointwisePlan, View, ViewMut};
use smallvec::SmallVec;

/// The operator that copies into a tensor.
const COPY: &str = "aten::copy_";

type Dims = SmallVec<[i64; 6]>;

/// A call of a builtin operator for operands and one result of given layouts. See the
/// [module](self).
pub struct PreparedCall {
    op: Op,
    kernel: Kernel,
    operands: SmallVec<[Operand; 3]>,
    result: Operand,
}

/// An operand or the result of a prepared call.
#[derive(Clone, Debug)]
pub struct Operand {
    /// Which of the tensors among the arguments it is or views, in order; 0 for the result.
    pub tensor: usize,
    /// Its first byte, counted from the first element of that tensor.
    pub start: i64,
    /// The sizes and strides with which the kernel accesses it, in elements.
    layout: Layout,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Layout {
    dtype: DType,
    sizes: Dims,
    strides: Dims,
}

enum Kernel {
    /// The result has no elements.
    Nothing,
    Zeros,
    Copy,
    Pointwise(Box<(ScalarExpr, PointwisePlan)>),
    Nest(Box<NestLaunch>),
}

impl Layout {
    /// A view of this layout, whose memory must not be accessed.
    fn view(&self) -> View<'static> {
        // SAFETY: the memory is not accessed.
        unsafe { View::from_raw(std::ptr::null(), self.dtype, &self.sizes, &self.strides) }
    }

    /// As [`Layout::view`].
    fn view_mut(&self) -> ViewMut<'static> {
        // SAFETY: the memory is not accessed.
        unsafe { ViewMut::from_raw(std::ptr::null_mut(), self.dtype, &self.sizes, &self.strides) }
    }
}

impl Operand {
    fn of(tensor: usize, t: &Tensor) -> Option<Operand> {
        let at = t.meta().concrete()?;
        is_countable(&at.sizes)?;
        let start = at.offset.checked_mul(at.width)?;
        let layout = Layout { dtype: t.dtype(), sizes: at.sizes, strides: at.strides };
        Some(Operand { tensor, start, layout })
    }

    /// The same memory, broadcast to `sizes` by strides of 0.
    fn expanded(self, sizes: &[i64]) -> Option<Operand> {
        let lead = sizes.len().checked_sub(self.layout.sizes.len())?;
        let mut strides: Dims = SmallVec::from_elem(0, lead);
        for ((&n, &s), &m) in
            self.layout.sizes.iter().zip(&self.layout.strides).zip(sizes.get(lead..)?)
        {
            if n != m && n != 1 {
                return None;
            }
            strides.push(if n == m { s } else { 0 });
        }
        is_countable(sizes)?;
        Some(Operand { layout: Layout { sizes: sizes.into(), strides, ..self.layout }, ..self })
    }

    /// The half-open range of bytes that it spans, counted as [`Operand::start`]; `None` if it has
    /// no elements.
    pub fn span(&self) -> Option<(i64, i64)> {
        let Layout { dtype, sizes, strides } = &self.layout;
        if sizes.contains(&0) {
            return None;
        }
        let reach = |sign: i64| -> i64 {
            let steps = sizes.iter().zip(strides).map(|(n, s)| (n - 1) * s);
            steps.filter(|step| step.signum() == sign).sum()
        };
        let width = dtype.size() as i64;
        Some((self.start + reach(-1) * width, self.start + (reach(1) + 1) * width))
    }
}

impl Op {
    /// Prepares calls with arguments of these kinds and layouts, whose only result is written into
    /// memory of the layout of `out`. Tensors are fake, on the CPU, with plain sizes and a storage
    /// of their own each.
    ///
    /// `None` if calls have to go through the dispatcher: the operator is custom, overridden, or
    /// computed by a function on tensors; or the call would fail.
    pub fn prepare(self, mut args: Args, out: &Tensor) -> Option<PreparedCall> {
        let state = self.state().ok()?;
        let def = state.plain_builtin()?;
        let on_host = |t: &Tensor| t.device() == Device::Cpu;
        if placement(&state) == Placement::Allocates
            || !args.iter().flat_map(Value::tensors).chain([out]).all(on_host)
        {
            return None;
        }
        mode::without_modes(|| {
            coerce_args(&state, &mut args).ok()?;
            match &def.lowering {
                Lowering::Pointwise(p) => self.prepare_pointwise(def, &state, p, &args, out),
                Lowering::Compute(c) => self.prepare_compute(def, c, &args, out),
                _ => None,
            }
        })
    }

    fn prepare_pointwise(
        self,
        def: &OpDef,
        state: &OpState,
        lowering: &Pointwise,
        args: &[Value],
        out: &Tensor,
    ) -> Option<PreparedCall> {
        let PointwiseCall { compiled, operands, .. } =
            lowering.call(def, state, args, Some(out.meta())).ok()?;
        let tensors: SmallVec<[&Tensor; 4]> = args.iter().flat_map(Value::tensors).collect();
        let result = Operand::of(0, out)?;
        let operand = |t: &&Tensor| -> Option<Operand> {
            let at = tensors.iter().position(|u| u.is_same(t))?;
            Operand::of(at, t)?.expanded(&result.layout.sizes)
        };
        let operands: SmallVec<[Operand; 3]> =
            operands.iter().map(operand).collect::<Option<_>>()?;
        let kernel = match result.layout.sizes.contains(&0) {
            true => Kernel::Nothing,
            false => Kernel::pointwise(&compiled.expr, &operands, &result, None)?,
        };
        Some(PreparedCall { op: self, kernel, operands, result })
    }

    fn prepare_compute(
        self,
        def: &OpDef,
        compute: &Compute,
        args: &[Value],
        out: &Tensor,
    ) -> Option<PreparedCall> {
        if !writes_into(self, compute, args, out).ok()? {
            return None;
        }
        let result = Operand::of(0, out)?;
        let is_empty = result.layout.sizes.contains(&0);
        let (operands, result, kernel) = match compute.how {
            How::Host(_) => return None,
            _ if is_empty => (SmallVec::new(), result, Kernel::Nothing),
            How::Zeros | How::Nothing => (SmallVec::new(), result, Kernel::Zeros),
            How::Loops(build) => {
                let nest = PlacedNest::of(def, build, args, out).ok()??;
                let tensors: SmallVec<[&Tensor; 4]> =
                    args.iter().flat_map(Value::tensors).collect();
                let operand = |t: &Tensor| -> Option<Operand> {
                    Operand::of(tensors.iter().position(|u| u.shares_storage(t))?, t)
                };
                let operands: SmallVec<[Operand; 3]> =
                    nest.operands.iter().map(operand).collect::<Option<_>>()?;
                let result = match nest.result.shares_storage(out) {
                    true => Operand::of(0, &nest.result)?,
                    false => return None,
                };
                let mut launch = nest.launch;
                let views = views(&operands);
                launch.plan(&views, &[result.layout.view_mut()]).ok()?;
                (operands, result, Kernel::Nest(Box::new(launch)))
            }
        };
        Some(PreparedCall { op: self, kernel, operands, result })
    }
}

/// `None` if a view of these sizes has more elements than an eager call takes.
fn is_countable(sizes: &[i64]) -> Option<()> {
    let counted = sizes.iter().filter(|n| **n != 0).try_fold(1i64, |n, s| n.checked_mul(*s))?;
    (counted <= isize::MAX as i64 / 8).then_some(())
}

fn views(operands: &[Operand]) -> SmallVec<[View<'static>; 3]> {
    operands.iter().map(|o| o.layout.view()).collect()
}

impl Kernel {
    fn pointwise(
        expr: &ScalarExpr,
        operands: &[Operand],
        result: &Operand,
        in_place: Option<usize>,
    ) -> Option<Kernel> {
        let outputs = [result.layout.view_mut()];
        let plan = PointwisePlan::new(expr, &views(operands), &outputs, in_place).ok()?;
        Some(Kernel::Pointwise(Box::new((expr.clone(), plan))))
    }
}

impl PreparedCall {
    /// The copy of a tensor into memory of another layout, with broadcasting and conversion, as
    /// `aten::copy_`. Both are fake, on the CPU, with plain sizes.
    pub fn copy(from: &Tensor, to: &Tensor) -> Option<PreparedCall> {
        let op = Op::find(COPY).ok()?;
        let result = Operand::of(0, to)?;
        let operand = Operand::of(0, from)?.expanded(&result.layout.sizes)?;
        let kernel = match result.layout.sizes.contains(&0) {
            true => Kernel::Nothing,
            false => Kernel::Copy,
        };
        Some(PreparedCall { op, kernel, operands: [operand].into_iter().collect(), result })
    }

    /// The operands of a launch, in order.
    pub fn operands(&self) -> &[Operand] {
        &self.operands
    }

    /// The result of a launch.
    pub fn result(&self) -> &Operand {
        &self.result
    }

    /// Whether the result may share an element with operand `k`, if they begin at these bytes of one
    /// memory.
    pub fn may_overlap(&self, k: usize, operand: i64, result: i64) -> bool {
        let at = |o: &Operand, start: i64| {
            let Layout { dtype, sizes, strides } = &o.layout;
            let (sizes, strides, width) = (sizes.clone(), strides.clone(), dtype.size() as i64);
            (start % width == 0).then(|| Concrete { sizes, strides, offset: start / width, width })
        };
        let Some(operand) = self.operands.get(k).map(|o| at(o, operand)) else { return false };
        match (operand, at(&self.result, result)) {
            (Some(operand), Some(result)) => may_overlap(&operand, &result),
            _ => true,
        }
    }

    /// Whether the result may have two elements in one place.
    pub fn may_self_overlap(&self) -> bool {
        let Layout { dtype, sizes, strides } = &self.result.layout;
        let (sizes, strides, width) = (sizes.clone(), strides.clone(), dtype.size() as i64);
        may_self_overlap(&Concrete { sizes, strides, offset: 0, width })
    }

    /// Whether a launch has nothing to compute.
    pub fn is_empty(&self) -> bool {
        matches!(self.kernel, Kernel::Nothing)
    }

    /// The call for a result that occupies exactly the memory of operand `k`, with the same address.
    /// `None` if the kernel does not support that.
    pub fn in_place(self, k: usize) -> Option<PreparedCall> {
        let PreparedCall { op, kernel: Kernel::Pointwise(pointwise), operands, result } = self
        else {
            return None;
        };
        if operands.get(k)?.layout != result.layout {
            return None;
        }
        let kernel = Kernel::pointwise(&pointwise.0, &operands, &result, Some(k))?;
        Some(PreparedCall { op, kernel, operands, result })
    }

    /// Computes the result. `addresses` are those of the operands, then of the result.
    ///
    /// # Errors
    /// The error of the kernel. Then the result is partly written.
    ///
    /// # Safety
    /// Each address is that of the first element of memory in which all elements of the layout lie,
    /// aligned for the dtype. During the launch, nothing writes the operands, and nothing else
    /// accesses the result. The result overlaps no operand but that of [`PreparedCall::in_place`].
    pub unsafe fn launch(&self, addresses: &[*mut u8]) -> Result<()> {
        if addresses.len() != self.operands.len() + 1 {
            return Err(Error::value("a launch has an address for each operand and the result"));
        }
        match &self.kernel {
            Kernel::Nothing => return Ok(()),
            // SAFETY: the caller's promise.
            Kernel::Pointwise(pointwise) => return Ok(unsafe { pointwise.1.run_at(addresses) }?),
            Kernel::Nest(nest) => {
                if let Some(plan) = nest.only_plan() {
                    // SAFETY: the caller's promise.
                    return Ok(unsafe { plan.run_at(Isa::detect(), addresses, nest.numbers()) }?);
                }
            }
            Kernel::Zeros | Kernel::Copy => {}
        }
        let (operands, result) = addresses.split_at(self.operands.len());
        let Layout { dtype, sizes, strides } = &self.result.layout;
        let Some(&result) = result.first() else { return Ok(()) };
        // SAFETY: the caller's promise.
        let mut result = unsafe { ViewMut::from_raw(result, *dtype, sizes, strides) };
        let mut views: SmallVec<[View<'_>; 3]> = SmallVec::new();
        for (operand, &address) in self.operands.iter().zip(operands) {
            let Layout { dtype, sizes, strides } = &operand.layout;
            // SAFETY: the caller's promise.
            views.push(unsafe { View::from_raw(address, *dtype, sizes, strides) });
        }
        match &self.kernel {
            Kernel::Nothing | Kernel::Pointwise(_) => Ok(()),
            Kernel::Zeros => Ok(maquette_kernels::fill(&mut result, Scalar::Int(0))?),
            Kernel::Copy => match views.first() {
                Some(from) => Ok(maquette_kernels::copy(from, &mut result)?),
                None => Ok(()),
            },
            Kernel::Nest(nest) => Ok(nest.run(&views, std::slice::from_mut(&mut result))?),
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
