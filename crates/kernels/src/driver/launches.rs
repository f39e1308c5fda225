//! Launches on the CPU: each is done when it is enqueued.
//!
//! Safety of this module: the caller of [`Launch::enqueue`] promises valid memory of the layouts of
//! the binding, for which each plan was made.

use super::backend::{views, views_mut};
use crate::copy::{CopyPlan, DenseFill, fill};
use crate::error::KernelError;
use crate::isa::Isa;
use crate::loops::{LaunchPlan, LoopKernel, PackedOperand, SpecialPlan};
use crate::pointwise::PointwisePlan;
use crate::view::{View, ViewMut};
use maquette_device::{Address, Binding, Failing, Fault, Launch, Layout, PackKey};
use maquette_ir::Scalar;
use maquette_ir::sym::SymbolId;
use smallvec::SmallVec;
use std::any::Any;
use std::sync::Arc;

/// Operands in packed form, as a caller keeps them.
type Given<'a> = &'a [Option<Arc<dyn maquette_device::PackedOperand>>];

/// The addresses of a launch of `expected` operands and results.
fn counted(addresses: &[Address], expected: usize) -> Result<&[*mut u8], Fault> {
    let (what, found) = ("addresses", addresses.len());
    match expected == found {
        true => Ok(Address::as_ptrs(addresses)),
        false => Err(KernelError::Count { kernel: "launch", what, expected, found }.into()),
    }
}

/// A launch of the CPU.
pub(super) enum HostLaunch {
    /// Zeros in results of these layouts.
    Zeros(SmallVec<[(Layout, Option<DenseFill>); 1]>),
    Copy(CopyPlan),
    Elements(Box<PointwisePlan>),
    /// A hand-tuned executor that takes no packed operands.
    Special(SpecialPlan),
    Nest(Box<NestLaunch>),
}

impl HostLaunch {
    pub fn zeros(results: &[&Layout]) -> HostLaunch {
        let dense = views_mut(results).iter().map(DenseFill::of).collect::<Vec<_>>();
        HostLaunch::Zeros(results.iter().map(|l| (*l).clone()).zip(dense).collect())
    }

    /// A launch of a nest; `None` as for [`NestLaunch::new`].
    pub fn nest(kernel: &LoopKernel, binding: &Binding<'_>) -> Option<HostLaunch> {
        let mut nest = NestLaunch::new(kernel, binding)?;
        let special = match nest.packing_plan() {
            None => nest.special.take(),
            Some(_) => None,
        };
        Some(match special {
            Some(plan) => HostLaunch::Special(plan),
            None => HostLaunch::Nest(Box::new(nest)),
        })
    }

    fn as_nest(&self) -> Option<&NestLaunch> {
        match self {
            HostLaunch::Nest(nest) => Some(nest),
            _ => None,
        }
    }
}

impl Launch for HostLaunch {
    unsafe fn enqueue(
        &self,
        addresses: &[Address],
        packed: Given<'_>,
        _: Option<Failing<'_>>,
    ) -> Result<(), Fault> {
        // SAFETY: the caller's promise, here and below.
        match self {
            HostLaunch::Zeros(results) => {
                let addresses = counted(addresses, results.len())?;
                for ((layout, dense), &address) in results.iter().zip(addresses) {
                    match dense {
                        Some(dense) => unsafe { dense.run_at(address, Scalar::Int(0)) }?,
                        None => fill(&mut unsafe { view_mut_at(layout, address) }, Scalar::Int(0))?,
                    }
                }
                Ok(())
            }
            HostLaunch::Copy(plan) => {
                let addresses = counted(addresses, 2)?;
                Ok(unsafe { plan.run_at(addresses[0], addresses[1]) }?)
            }
            // These plans count the addresses.
            HostLaunch::Elements(plan) => Ok(unsafe { plan.run_at(Address::as_ptrs(addresses)) }?),
            HostLaunch::Special(plan) => Ok(unsafe { plan.run_at(Address::as_ptrs(addresses)) }?),
            HostLaunch::Nest(nest) => unsafe { nest.run(addresses, packed) },
        }
    }

    fn packs(&self) -> &[SmallVec<[usize; 1]>] {
        self.as_nest().and_then(NestLaunch::packing_plan).map_or(&[], LaunchPlan::packs)
    }

    fn pack_key(&self, index: usize) -> Option<PackKey> {
        let nest = self.as_nest()?;
        nest.packing_plan()?.pack_key(index, &nest.numbers)
    }

    unsafe fn pack(
        &self,
        index: usize,
        addresses: &[Address],
    ) -> Result<Arc<dyn maquette_device::PackedOperand>, Fault> {
        let missing = || KernelError::argument("launch", "the launch packs no such operands");
        let nest = self.as_nest().ok_or_else(missing)?;
        let plan = nest.packing_plan().ok_or_else(missing)?;
        let operands = plan.packs().get(index).ok_or_else(missing)?;
        let mut views: SmallVec<[View<'_>; 4]> = SmallVec::new();
        for (operand, address) in operands.iter().zip(addresses) {
            let layout = nest.layouts.get(*operand).ok_or_else(missing)?;
            // SAFETY: the caller's promise.
            views.push(unsafe { view_at(layout, address.as_ptr()) });
        }
        Ok(Arc::new(plan.pack(Isa::detect(), index, &views, &nest.numbers)?))
    }
}

/// A loop nest for operands and results of given layouts, with its numbers.
pub(super) struct NestLaunch {
    kernel: LoopKernel,
    numbers: SmallVec<[Scalar; 4]>,
    symbols: SmallVec<[Option<i64>; 8]>,
    /// The layouts of the operands, then of the results.
    layouts: SmallVec<[Layout; 4]>,
    operands: usize,
    /// The plan for the layouts, if there is no hand-tuned executor, or none for packed operands.
    plan: Option<Arc<LaunchPlan>>,
    /// The plan of the hand-tuned executor, if it has one for the layouts.
    special: Option<SpecialPlan>,
}

/// The hand-tuned executors that take no packed operands, while a plan does.
const PACKED: [&str; 2] = ["product", "convolution"];

/// # Safety
/// As [`View::from_raw`].
unsafe fn view_at(layout: &Layout, address: *const u8) -> View<'static> {
    // SAFETY: the caller's promise.
    unsafe { View::from_raw(address, layout.dtype, &layout.sizes, &layout.strides) }
}

/// # Safety
/// As [`ViewMut::from_raw`].
unsafe fn view_mut_at(layout: &Layout, address: *mut u8) -> ViewMut<'static> {
    // SAFETY: the caller's promise.
    unsafe { ViewMut::from_raw(address, layout.dtype, &layout.sizes, &layout.strides) }
}

impl NestLaunch {
    /// `None` if the layouts do not fit the nest, or the results may not have the memory of these
    /// operands.
    pub fn new(kernel: &LoopKernel, binding: &Binding<'_>) -> Option<NestLaunch> {
        let (operands, results) = (views(binding.operands), views_mut(binding.results));
        let value = |symbol: SymbolId| binding.symbols.get(symbol.index()).copied().flatten();
        let (mut plan, mut special) = (None, None);
        if binding.in_place.is_empty() {
            if kernel.specialisation().is_none_or(|name| PACKED.contains(&name)) {
                plan = Some(kernel.plan(&value, &operands, &results).ok()?);
            }
            special = kernel.special_plan(&operands, binding.numbers, &results);
        } else {
            let over = kernel.plan_over(&value, &operands, &results, binding.in_place);
            plan = Some(over.ok().flatten()?);
        }
        let layouts = binding.operands.iter().chain(binding.results);
        Some(NestLaunch {
            kernel: kernel.clone(),
            numbers: binding.numbers.into(),
            symbols: binding.symbols.into(),
            layouts: layouts.map(|layout| (*layout).clone()).collect(),
            operands: binding.operands.len(),
            plan,
            special,
        })
    }

    /// The plan of launches with packed operands, if there is one.
    fn packing_plan(&self) -> Option<&LaunchPlan> {
        self.plan.as_deref().filter(|plan| !plan.packs().is_empty())
    }

    /// Computes the nest on views.
    ///
    /// # Safety
    /// As [`Launch::enqueue`].
    unsafe fn run_on_views(&self, addresses: &[*mut u8]) -> Result<(), KernelError> {
        let (operands, results) = addresses.split_at(self.operands);
        let (of_operands, of_results) = self.layouts.split_at(self.operands);
        // SAFETY: the caller's promise, here and below.
        let view = |(layout, &address): (&Layout, &*mut u8)| unsafe { view_at(layout, address) };
        let views: SmallVec<[View<'_>; 6]> = of_operands.iter().zip(operands).map(view).collect();
        let view =
            |(layout, &address): (&Layout, &*mut u8)| unsafe { view_mut_at(layout, address) };
        let mut outputs: SmallVec<[ViewMut<'_>; 4]> =
            of_results.iter().zip(results).map(view).collect();
        if self.kernel.run_specialised(&views, &self.numbers, &mut outputs)? {
            return Ok(());
        }
        let value = |symbol: SymbolId| self.symbols.get(symbol.index()).copied().flatten();
        self.kernel.run(&value, &views, &self.numbers, &mut outputs)
    }

    /// Computes the nest.
    ///
    /// # Safety
    /// As [`Launch::enqueue`].
    unsafe fn run(&self, addresses: &[Address], packed: Given<'_>) -> Result<(), Fault> {
        let addresses = counted(addresses, self.layouts.len())?;
        if packed.iter().any(Option::is_some)
            && let Some(plan) = self.packing_plan()
        {
            let mut own: SmallVec<[Option<&PackedOperand>; 2]> = SmallVec::new();
            for packed in packed {
                own.push(packed.as_deref().map(own_packed).transpose()?);
            }
            let isa = Isa::detect();
            // SAFETY: the caller's promise, here and below.
            return Ok(unsafe { plan.run_packed_at(isa, addresses, &self.numbers, &own) }?);
        }
        if let Some(plan) = &self.special {
            return Ok(unsafe { plan.run_at(addresses) }?);
        }
        // A hand-tuned executor without a plan looks at the layouts first.
        if let (Some(plan), None) = (&self.plan, self.kernel.specialisation()) {
            return Ok(unsafe { plan.run_at(Isa::detect(), addresses, &self.numbers) }?);
        }
        Ok(unsafe { self.run_on_views(addresses) }?)
    }
}

/// A packed operand of this driver.
///
/// # Errors
/// It is of another one.
fn own_packed(packed: &dyn maquette_device::PackedOperand) -> Result<&PackedOperand, KernelError> {
    let other = || KernelError::argument("launch", "a packed operand is of another device");
    (packed as &dyn Any).downcast_ref().ok_or_else(other)
}
