//! Calls that run on the device of their tensors, with its own kernels.
//!
//! A builtin operator that is data is [prepared](Op::prepare) for the layouts of the call, as in a
//! compiled program, and given to the queue of the device. Other operators run on the host
//! ([`host_fallback`](super::host_fallback)).
//!
//! Safety of this module: the call has borrowed its arguments, and results are new. Every address
//! is that of a tensor whose layout lies inside its storage ([`Tensor::address`]), for which the
//! kernel was bound. The queue keeps the order of calls, so that what the launch uses stays
//! unchanged until it is done.
#![allow(unsafe_code)]

use super::execute::{fits_into, group};
use super::lowering::Lowering;
use super::{OpDef, execute::PointwiseCall};
use crate::dispatch::prepared::PreparedCall;
use crate::dispatch::value::{Args, Outputs, Value};
use crate::error::Result;
use crate::fake::FakeCtx;
use crate::library::{Op, OpState};
use crate::mode;
use crate::tensor::Tensor;
use crate::tensor::create::opened;
use crate::tensor::meta::Meta;
use crate::tensor::storage::LateSlot;
use maquette_device::{Address, FailureSlot};
use maquette_ir::Device;
use smallvec::SmallVec;
use std::sync::Arc;

type Tensors = SmallVec<[Tensor; 2]>;

/// Where a call runs, and the operator that was called.
struct On {
    device: Device,
    called: &'static Arc<str>,
}

/// Computes the outputs of a call on a device. `None` if the device has no kernel for the call, or
/// the call would fail: nothing is written then.
///
/// # Errors
/// Memory runs out, or the device is lost. The error of a kernel that fails later is that of its
/// results.
pub(super) fn compute(
    def: &OpDef,
    op: Op,
    state: &OpState,
    device: Device,
    args: &[Value],
) -> Result<Option<Outputs>> {
    let Some(args) = on_device(device, args)? else { return Ok(None) };
    let on = On { device, called: op.shared_name() };
    match &def.lowering {
        Lowering::Pointwise(_) | Lowering::Compute(_) => {
            let results = results(def, op, state, &on, &args)?;
            Ok(results.map(|outs| group(state, outs.into_iter())))
        }
        Lowering::InPlace(name) => {
            let target = args[0].tensor()?;
            let (variant, of_variant) = state.functional_variant()?;
            let inner = variant.state()?;
            let is_done = match &of_variant.lowering {
                Lowering::Pointwise(p) if !is_read_twice(&args) => {
                    p.call(def, &inner, &args, Some(target.meta()))?;
                    let outs = SmallVec::from_elem(target.clone(), 1);
                    launched(variant, &on, &args, outs)?.is_some()
                }
                _ => match results(of_variant, variant, &inner, &on, &args)? {
                    Some(outs) => {
                        let out = group(&inner, outs.into_iter());
                        copied(&on, fits_into(target, out.first(), name)?, target)?
                    }
                    None => false,
                },
            };
            Ok(is_done.then(Outputs::new))
        }
        Lowering::View(_)
        | Lowering::Dynamic { .. }
        | Lowering::Composite(_)
        | Lowering::RandomComposite(_)
        | Lowering::UnannotatedComposite { .. } => Ok(None),
    }
}

/// The arguments, with numbers of the host copied to the device. `None` if another tensor is
/// elsewhere, as in a copy to the host.
fn on_device(device: Device, args: &[Value]) -> Result<Option<Args>> {
    let fits = |t: &Tensor| t.device() == device || t.dim() == 0 && t.is_on_host();
    if !args.iter().flat_map(Value::tensors).all(fits) {
        return Ok(None);
    }
    let mut copy = |t: &Tensor| match t.device() == device {
        true => Ok(t.clone()),
        false => t.uploaded(device),
    };
    args.iter().map(|v| v.map_tensors(&mut copy)).collect::<Result<Args>>().map(Some)
}

/// Whether another operand than the target sees the target's memory.
fn is_read_twice(args: &[Value]) -> bool {
    let mut tensors = args.iter().flat_map(Value::tensors);
    let target = tensors.next();
    target.is_some_and(|target| tensors.any(|t| t.has_storage_of(target)))
}

/// The results of a functional operator, in new memory.
fn results(
    def: &OpDef,
    op: Op,
    state: &OpState,
    on: &On,
    args: &[Value],
) -> Result<Option<Tensors>> {
    let metas = match &def.lowering {
        Lowering::Pointwise(p) => {
            let PointwiseCall { meta, .. } = p.call(def, state, args, None)?;
            smallvec::smallvec![meta]
        }
        Lowering::Compute(c) => FakeCtx::eager(op, |cx| (c.metas)(cx, args))?,
        _ => return Ok(None),
    };
    let outs = metas.into_iter().map(Tensor::allocate_to_fill).collect::<Result<Tensors>>()?;
    let outs = launched(op, on, args, outs)?;
    outs.iter().flatten().for_each(Tensor::forget_writes);
    Ok(outs)
}

fn fake(t: &Tensor) -> Tensor {
    Tensor::fake_of(Meta { offset: 0.into(), ..t.meta().clone() })
}

/// Launches an operator into memory on the device. A target that is exactly the view of an operand
/// is written in place.
fn launched(op: Op, on: &On, args: &[Value], outs: Tensors) -> Result<Option<Tensors>> {
    let fakes =
        args.iter().map(|v| v.map_tensors(&mut |t| Ok(fake(t)))).collect::<Result<Args>>()?;
    let targets: Tensors = outs.iter().map(fake).collect();
    let Some(call) = op.prepare(fakes, &targets) else { return Ok(None) };
    let operands: SmallVec<[&Tensor; 4]> = args.iter().flat_map(Value::tensors).collect();
    let is_target = |k: usize, j: usize| {
        let (operand, result) = (&call.operands()[k], &call.results()[j]);
        operand.start == result.start
            && operands.get(operand.tensor).zip(outs.get(result.tensor)).is_some_and(|(t, out)| {
                let offset = |t: &Tensor| t.meta().offset.as_i64();
                t.has_storage_of(out) && offset(t) == offset(out)
            })
    };
    let mut in_place: SmallVec<[(usize, usize); 1]> = SmallVec::new();
    for j in 0..call.results().len() {
        in_place.extend((0..call.operands().len()).filter(|k| is_target(*k, j)).map(|k| (k, j)));
    }
    let call = match in_place.is_empty() {
        true => Some(call),
        false => call.in_place(&in_place),
    };
    let Some(call) = call else { return Ok(None) };
    launch(call, on, &operands, &outs.iter().collect::<Vec<_>>())?;
    Ok(Some(outs))
}

/// Copies a tensor into another one of the same device. Returns whether the device has a kernel for
/// that.
fn copied(on: &On, from: &Tensor, to: &Tensor) -> Result<bool> {
    let Some(call) = PreparedCall::copy(&fake(from), &fake(to)) else { return Ok(false) };
    launch(call, on, &[from], &[to]).map(|()| true)
}

fn launch(call: PreparedCall, on: &On, operands: &[&Tensor], outs: &[&Tensor]) -> Result<()> {
    let mut addresses: SmallVec<[Address; 8]> = SmallVec::new();
    for (places, tensors) in [(call.operands(), operands), (call.results(), outs)] {
        for place in places {
            addresses.push(tensors[place.tensor].address()?.moved(place.start));
        }
    }
    let On { device, called } = *on;
    // Any launch may fail: scratch memory may be missing.
    let own = opened(device)?.target().reports_late.then(Arc::<FailureSlot>::default);
    let call = call.with_origin(called.clone(), mode::current_loc());
    // SAFETY: see the module.
    unsafe { call.launch(&addresses, &[], own.as_ref()) }?;
    // The first error comes first. What a target may have had stays there.
    let mut slots: SmallVec<[LateSlot; 1]> = SmallVec::new();
    for t in operands.iter().filter(|t| !outs.iter().any(|out| out.has_storage_of(t))) {
        slots.extend(t.own_storage()?.late_slots());
    }
    slots.extend(own.map(|slot| LateSlot { device, slot, call_site: None }));
    outs.iter().try_for_each(|out| out.own_storage().map(|s| s.poison_late(&slots)))
}
