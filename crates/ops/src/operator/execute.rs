//! The executor of lowerings. [`OpDef::fake`] computes the metadata of results, and [`OpDef::run`]
//! computes results: on the host, on the device of the tensors, or on copies in host memory.
//!
//! All checks of arguments and metadata come before the first write. So only an error of a kernel
//! itself can leave a tensor half-written, and only such an error poisons the tensors that the call
//! writes. A write that replaces all contents of a poisoned storage lifts the poison.

use super::OpDef;
use super::lowering::{Lowering, Pointwise, Types};
use super::pointwise::cache::{CompiledExpr, tensor_operands};
use super::{host_fallback, on_device};
use crate::dispatch::call_borrows::{borrow_args, mutated_args, resolve_overlap};
use crate::dispatch::cpu_exec;
use crate::dispatch::device::device_of;
use crate::dispatch::value::{Outputs, Value};
use crate::error::{Error, ErrorKind, Result};
use crate::fake::FakeCtx;
use crate::library::{Op, OpState};
use crate::tensor::Tensor;
use crate::tensor::meta::Meta;
use crate::tensor::storage::{Poison, Storage};
use maquette_ir::Layout;
use maquette_ir::typing::{broadcast, can_cast, contiguous_strides, elementwise_strides};
use smallvec::SmallVec;
use std::rc::Rc;
use std::sync::Arc;

/// A prepared call of a pointwise operator: the compiled expression, the tensor operands and the
/// metadata of the output.
pub(crate) struct PointwiseCall<'a> {
    pub(crate) compiled: Rc<CompiledExpr>,
    pub(crate) operands: SmallVec<[&'a Tensor; 4]>,
    pub(crate) meta: Meta,
}

impl Pointwise {
    /// Promotes, compiles and broadcasts. `target` is the metadata of the tensor that an in-place
    /// operator writes.
    pub(crate) fn call<'a>(
        &self,
        op: &OpDef,
        state: &OpState,
        args: &'a [Value],
        target: Option<&Meta>,
    ) -> Result<PointwiseCall<'a>> {
        let compiled = self.compile(op, state, args, target.map(|t| t.dtype))?;
        let operands: SmallVec<[&Tensor; 4]> = tensor_operands(state)
            .filter_map(|i| match &args[i] {
                Value::Tensor(t) => Some(t),
                _ => None,
            })
            .collect();
        if target.is_none()
            && let Some(first) = operands.first()
            && cpu_exec::common_dense_numel(operands.iter().copied()).is_some()
        {
            let device = device_of(state, args)?;
            let meta = Meta {
                dtype: compiled.out_dtype,
                device,
                offset: 0.into(),
                ..first.meta().clone()
            };
            return Ok(PointwiseCall { compiled, operands, meta });
        }
        let shapes: SmallVec<[&[_]; 4]> = operands.iter().map(|t| t.sizes()).collect();
        let sizes = broadcast(&shapes)?;
        let meta = match target {
            Some(t) => {
                crate::tensor::shape::require_same(&t.sizes, &sizes, || {
                    format!("{} writes into a tensor of", op.name())
                })?;
                t.clone()
            }
            None => {
                let layouts: SmallVec<[(&[_], &[_]); 4]> =
                    operands.iter().map(|t| (t.sizes(), t.strides())).collect();
                let strides = match self.types {
                    Types::Masked | Types::PromoteContiguous => contiguous_strides(&sizes),
                    _ => elementwise_strides(&sizes, &layouts)?,
                };
                let device = device_of(state, args)?;
                Meta {
                    dtype: compiled.out_dtype,
                    device,
                    layout: Layout::Strided,
                    sizes,
                    strides,
                    offset: 0.into(),
                }
            }
        };
        Ok(PointwiseCall { compiled, operands, meta })
    }
}

/// Whether an error is that of an operand, which was found when the operand was read.
fn is_of_operand(e: &Error, args: &[Value]) -> bool {
    args.iter().flat_map(Value::tensors).any(|t| t.poisoned().is_some_and(|own| own.is_same(e)))
}

/// Groups tensors as the schema declares the returns: one value each, or one list.
pub(super) fn group(state: &OpState, tensors: impl Iterator<Item = Tensor>) -> Outputs {
    use maquette_ir::schema::Type;
    let values = tensors.map(Value::Tensor);
    match state.schema.returns.as_slice() {
        [r] if matches!(r.ty, Type::List(..)) => smallvec::smallvec![Value::List(values.collect())],
        _ => values.collect(),
    }
}

impl OpDef {
    /// The argument whose storage a view aliases.
    fn viewed<'a>(&self, state: &OpState, args: &'a [Value]) -> Result<&'a Tensor> {
        let i = state.facts.aliases.first().copied().flatten().unwrap_or(0);
        args[usize::from(i)].tensor()
    }

    /// Whether the operator writes every element of its first argument, and reads none of them.
    pub(crate) fn overwrites_target(&self, state: &OpState) -> bool {
        matches!(self.lowering, Lowering::InPlace(_))
            && state.functional_variant().is_ok_and(|(_, def)| {
                def.role == super::Role::IgnoresContents || def.role.copied_operand() == Some(1)
            })
    }

    /// Computes the outputs of fake arguments.
    pub(crate) fn fake(&self, cx: &FakeCtx, state: &OpState, args: &[Value]) -> Result<Outputs> {
        match &self.lowering {
            Lowering::Pointwise(p) => Ok(group(
                state,
                std::iter::once(Tensor::fake_of(p.call(self, state, args, None)?.meta)),
            )),
            Lowering::Compute(c) => {
                Ok(group(state, (c.metas)(cx, args)?.into_iter().map(Tensor::fake_of)))
            }
            Lowering::View(f) => {
                let base = self.viewed(state, args)?;
                let view = |m| {
                    let view = base.view_of(m)?;
                    Ok(if self.role == super::Role::Detaches { view.untracked() } else { view })
                };
                let views: Vec<Tensor> =
                    f(cx, args)?.into_iter().map(view).collect::<Result<_>>()?;
                Ok(group(state, views.into_iter()))
            }
            Lowering::InPlace(name) => {
                let target = args[0].tensor()?;
                let (op, def) = state.functional_variant()?;
                let inner = op.state()?;
                match &def.lowering {
                    Lowering::Pointwise(p) => {
                        drop(p.call(self, &inner, args, Some(target.meta()))?)
                    }
                    _ => {
                        let out = def.fake(cx, &inner, args)?;
                        fits_into(target, out.first(), name)?;
                    }
                }
                Ok(smallvec::smallvec![args[0].clone()])
            }
            Lowering::Dynamic { fake, .. } => fake(cx, args),
            Lowering::Composite(f)
            | Lowering::RandomComposite(f)
            | Lowering::UnannotatedComposite { body: f, .. } => f(args),
        }
    }

    /// Computes the outputs of real arguments.
    ///
    /// Mutated arguments that partly overlap other arguments are copied or refused before the call
    /// borrows its arguments. In-place pointwise operators may read exactly the view that they
    /// write, because each element depends on the same element only.
    pub(crate) fn run(&self, op: Op, state: &OpState, args: &mut [Value]) -> Result<Outputs> {
        match &self.lowering {
            Lowering::View(_) => FakeCtx::eager(op, |cx| self.fake(cx, state, args))
                .and_then(crate::fake::well_formed),
            Lowering::Composite(f)
            | Lowering::RandomComposite(f)
            | Lowering::UnannotatedComposite { body: f, .. } => f(args),
            _ => {
                let in_place = matches!(self.lowering, Lowering::InPlace(_));
                let same_view_is_safe = match &self.lowering {
                    Lowering::InPlace(_) => {
                        matches!(state.functional_variant()?.1.lowering, Lowering::Pointwise(_))
                    }
                    _ => false,
                };
                // the others compute into new memory, and then only copy
                let fails_half_written = same_view_is_safe || !in_place;
                let written = mutated_args(state, args);
                resolve_overlap(state, args, same_view_is_safe)?;
                let borrowed = borrow_args(op, state, args)?;
                let lifted = self.lift_poison(state, borrowed.args(), &written);
                let computed = self.compute(op, state, borrowed.args());
                if let (Err(_), Some((storage, poison))) = (&computed, lifted) {
                    storage.restore_poison(poison);
                }
                let out = computed.inspect_err(|e| {
                    // Every other error is raised before the first write.
                    if fails_half_written
                        && matches!(e.kind(), ErrorKind::Kernel(_))
                        && !is_of_operand(e, borrowed.args())
                    {
                        written.iter().flat_map(Value::tensors).for_each(|t| t.poison_storage(e));
                    }
                })?;
                // Whoever borrows the memory next sees the new version.
                written.iter().flat_map(Value::tensors).for_each(Tensor::bump_version);
                drop(borrowed);
                Ok(if in_place { written.into_iter().collect() } else { out })
            }
        }
    }

    /// Lifts the poison of the storage that a call will cover with what it writes. The call has
    /// borrowed the storage, so nobody reads it meanwhile, and it reads none of its contents.
    #[inline]
    fn lift_poison<'a>(
        &self,
        state: &OpState,
        args: &[Value],
        written: &'a [Value],
    ) -> Option<(&'a Arc<Storage>, Poison)> {
        let [Value::Tensor(target)] = written else { return None };
        let storage = target.own_storage().ok().filter(|storage| storage.may_be_poisoned())?;
        let sees = |t: &&Tensor| t.has_storage_of(target);
        let is_read = || args.iter().flat_map(Value::tensors).filter(sees).count() > 1;
        if !self.overwrites_target(state) || !target.covers_storage() || is_read() {
            return None;
        }
        Some((storage, storage.lift_poison()))
    }

    /// The part of [`OpDef::run`] that runs while the arguments are borrowed.
    fn compute(&self, op: Op, state: &OpState, args: &[Value]) -> Result<Outputs> {
        let needs_no_kernel = matches!(&self.lowering, Lowering::Compute(c) if c.needs_no_kernel());
        if !needs_no_kernel && host_fallback::is_elsewhere(args) {
            let device = host_fallback::device_of_results(state, args)?;
            if let Some(outputs) = on_device::compute(self, op, state, device, args)? {
                return Ok(outputs);
            }
            return host_fallback::on_host(op, state, device, args, |host| {
                self.compute_on_host(op, state, host)
            });
        }
        self.compute_on_host(op, state, args)
    }

    /// As [`OpDef::compute`], for arguments of the host.
    fn compute_on_host(&self, op: Op, state: &OpState, args: &[Value]) -> Result<Outputs> {
        match &self.lowering {
            Lowering::Pointwise(p) => {
                let PointwiseCall { compiled, operands, meta } = p.call(self, state, args, None)?;
                let out = Tensor::allocate_to_fill(meta)?;
                cpu_exec::pointwise(&compiled, &operands, &out)?;
                Ok(group(state, std::iter::once(out)))
            }
            Lowering::Compute(c) => {
                let metas = FakeCtx::eager(op, |cx| (c.metas)(cx, args))?;
                let allocate =
                    if c.overwrites_output() { Tensor::allocate_to_fill } else { Tensor::allocate };
                let mut outs: SmallVec<[Tensor; 2]> = SmallVec::new();
                for meta in metas {
                    outs.push(allocate(meta)?);
                }
                c.run(self, args, &outs)?;
                outs.iter().for_each(Tensor::forget_writes);
                Ok(group(state, outs.into_iter()))
            }
            Lowering::InPlace(name) => {
                let target = args[0].tensor()?;
                let (op, def) = state.functional_variant()?;
                let inner = op.state()?;
                match &def.lowering {
                    Lowering::Pointwise(p) => {
                        let call = p.call(self, &inner, args, Some(target.meta()))?;
                        cpu_exec::pointwise(&call.compiled, &call.operands, target)?;
                    }
                    _ => {
                        let out = def.compute_on_host(op, &inner, args)?;
                        cpu_exec::copy(fits_into(target, out.first(), name)?, target)?;
                    }
                }
                Ok(Outputs::new())
            }
            Lowering::Dynamic { run, .. } => {
                let out = run(args)?;
                let is_given =
                    |t: &Tensor| args.iter().flat_map(Value::tensors).any(|a| a.has_storage_of(t));
                let new = out.iter().flat_map(Value::tensors).filter(|t| !is_given(t));
                new.for_each(Tensor::forget_writes);
                Ok(out)
            }
            Lowering::View(_)
            | Lowering::Composite(_)
            | Lowering::RandomComposite(_)
            | Lowering::UnannotatedComposite { .. } => {
                Err(Error::value("views and composites have no kernel"))
            }
        }
    }
}

/// The result of a functional operator, after a check that it can be written into `target`.
pub fn fits_into<'a>(target: &Tensor, out: Option<&'a Value>, name: &str) -> Result<&'a Tensor> {
    let out =
        out.ok_or_else(|| Error::value(format!("{name} returns nothing to write")))?.tensor()?;
    crate::tensor::shape::require_same(target.sizes(), out.sizes(), || {
        format!("the result of {name} is written into a tensor of")
    })?;
    if !can_cast(out.dtype(), target.dtype()) {
        let (from, to) = (out.dtype(), target.dtype());
        return Err(Error::value(format!(
            "the result has dtype {from}, which cannot be written into a tensor of dtype {to}"
        )));
    }
    Ok(out)
}
