//! Keeps the operands of one call apart: copies each read operand that overlaps a mutated one, and
//! borrows the regions of all others.
//!
//! Every tensor argument is borrowed for the duration of the call. The handles that the kernel
//! receives carry exactly these rights (see [`Borrows`](crate::tensor::borrow::Borrows)). A kernel
//! therefore never observes its own writes through a read operand, and never races with another
//! thread.

use crate::dispatch::value::Value;
use crate::error::{AccessError, Result};
use crate::library::{Op, OpState};
use crate::tensor::Tensor;
use crate::tensor::borrow::{Access, Holder};
use crate::tensor::meta::Concrete;
use crate::tensor::overlap::{may_overlap, may_self_overlap};
use maquette_ir::Loc;
use smallvec::SmallVec;

/// Resolves overlap among the operands: replaces each read operand that overlaps a mutated one by a
/// copy of its current contents.
///
/// `same_view_is_safe`: a read operand with the same elements in the same order as the mutated one
/// needs no copy, because the kernel reads each element before it writes that element.
///
/// # Errors
/// A mutated operand overlaps itself, or two mutated operands overlap.
pub(crate) fn resolve_overlap(
    state: &OpState,
    args: &mut [Value],
    same_view_is_safe: bool,
) -> Result<()> {
    let facts = &state.facts;
    if facts.mutated.is_empty() {
        return Ok(());
    }
    let name = |i: u16, position: usize| {
        let name = &state.schema.args[usize::from(i)].name;
        match args[usize::from(i)] {
            Value::List(_) => format!("{name}[{position}]"),
            _ => name.clone(),
        }
    };
    let mut targets: SmallVec<[(u16, usize, Tensor); 2]> = SmallVec::new();
    for &i in &facts.mutated {
        for (position, t) in args[usize::from(i)].tensors().enumerate() {
            if t.meta().dense_numel().is_none()
                && let Some(c) = t.meta().concrete()
                && may_self_overlap(&c)
            {
                let (sizes, strides) = (c.sizes.to_vec(), c.strides.to_vec());
                let arg = name(i, position);
                return Err(AccessError::SelfOverlap { arg, sizes, strides }.into());
            }
            if let Some((j, at, _)) =
                targets.iter().find(|(.., u)| t.shares_storage(u) && tensors_may_overlap(t, u))
            {
                let (first, second) = (name(*j, *at), name(i, position));
                return Err(AccessError::MutatedOverlap { first, second }.into());
            }
            targets.push((i, position, t.clone()));
        }
    }
    targets.iter().try_for_each(|(.., u)| copy_overlapping_reads(state, args, u, same_view_is_safe))
}

/// Copies each read operand that overlaps `target`, except one that is the same view if
/// `same_view_is_safe`.
pub(crate) fn copy_overlapping_reads(
    state: &OpState,
    args: &mut [Value],
    target: &Tensor,
    same_view_is_safe: bool,
) -> Result<()> {
    for &i in &state.facts.read {
        for t in args[usize::from(i)].tensors_mut().filter(|t| t.shares_storage(target)) {
            if !(same_view_is_safe && is_same_view(t, target)) && tensors_may_overlap(t, target) {
                *t = crate::dispatch::cpu_exec::snapshot(t)?;
            }
        }
    }
    Ok(())
}

pub(crate) fn tensors_may_overlap(t: &Tensor, u: &Tensor) -> bool {
    match (t.meta().concrete(), u.meta().concrete()) {
        (Some(c), Some(d)) => may_overlap(&c, &d),
        _ => true,
    }
}

/// Whether two tensors view the same elements of a storage in the same order. Strides of size-1
/// dimensions are ignored.
pub(crate) fn is_same_view(t: &Tensor, u: &Tensor) -> bool {
    let along =
        |c: &Concrete, d: &Concrete, i: usize| c.sizes[i] == 1 || c.strides[i] == d.strides[i];
    let same = |c: Concrete, d: Concrete| {
        c.offset == d.offset && c.sizes == d.sizes && (0..c.sizes.len()).all(|i| along(&c, &d, i))
    };
    t.shares_storage(u)
        && t.dtype() == u.dtype()
        && t.meta().concrete().zip(u.meta().concrete()).is_some_and(|(c, d)| same(c, d))
}

/// Arguments borrowed for one call. Their handles carry the rights of the borrows, which end when
/// this value is dropped.
pub(crate) struct BorrowedArgs<'a> {
    state: &'a OpState,
    args: &'a mut [Value],
    /// A tensor that the call writes although it is not an argument.
    out: Option<Tensor>,
    /// The number of tensors borrowed so far, in the order of [`borrow_order`]. Only these are
    /// released.
    count: usize,
}

/// The access each tensor argument is borrowed for. Mutated arguments come first, so that a
/// conflict error names the mutated argument.
fn borrow_order(state: &OpState) -> impl Iterator<Item = (Access, u16)> {
    let facts = &state.facts;
    facts
        .mutated
        .iter()
        .map(|&i| (Access::Write, i))
        .chain(facts.read.iter().map(|&i| (Access::Read, i)))
}

/// Borrows every tensor argument, and stores the rights of these borrows in the argument handles.
/// After [`resolve_overlap`], a read operand that overlaps a mutated one is the same view, and
/// shares its borrow.
///
/// # Errors
/// Another holder has borrowed an overlapping region. No borrow remains taken in that case.
pub(crate) fn borrow_args<'a>(
    op: Op,
    state: &'a OpState,
    args: &'a mut [Value],
) -> Result<BorrowedArgs<'a>> {
    borrow_args_and_out(op, state, args, None)
}

/// As [`borrow_args`], with an additional tensor to write that is not an argument.
pub(crate) fn borrow_args_and_out<'a>(
    op: Op,
    state: &'a OpState,
    args: &'a mut [Value],
    out: Option<&Tensor>,
) -> Result<BorrowedArgs<'a>> {
    let mut borrowed = BorrowedArgs { state, args, out: None, count: 0 };
    if let Some(out) = out {
        let mut out = out.clone();
        out.grant =
            out.storage()?.borrows.take(&out, Access::Write, Holder::Guard(Loc::caller()))?;
        borrowed.out = Some(out);
    }
    let mut written: SmallVec<[Tensor; 2]> = SmallVec::new();
    for (access, index) in borrow_order(state) {
        if access == Access::Read && written.is_empty() {
            written.extend(
                state
                    .facts
                    .mutated
                    .iter()
                    .flat_map(|&i| borrowed.args[usize::from(i)].tensors())
                    .chain(&borrowed.out)
                    .cloned(),
            );
        }
        for t in borrowed.args[usize::from(index)].tensors_mut() {
            if access == Access::Read
                && let Some(u) = written.iter().find(|u| is_same_view(t, u))
            {
                t.grant = u.grant;
                borrowed.count += 1;
                continue;
            }
            t.grant = t.storage()?.borrows.take(t, access, Holder::Argument { op, index })?;
            borrowed.count += 1;
        }
    }
    Ok(borrowed)
}

impl BorrowedArgs<'_> {
    pub(crate) fn args(&self) -> &[Value] {
        self.args
    }

    /// The tensor that the call writes although it is not an argument.
    pub(crate) fn out(&self) -> Option<&Tensor> {
        self.out.as_ref()
    }

    fn tensors(&self) -> impl Iterator<Item = &Tensor> {
        borrow_order(self.state)
            .flat_map(|(_, i)| self.args[usize::from(i)].tensors())
            .take(self.count)
            .chain(&self.out)
    }

    /// The error of the first write attempted through one of the read-only borrows, if any.
    pub(crate) fn undeclared_write(&self) -> Option<AccessError> {
        self.tensors().find_map(|t| t.storage().ok()?.borrows.undeclared_write(t.grant))
    }
}

impl Drop for BorrowedArgs<'_> {
    fn drop(&mut self) {
        self.tensors()
            .filter_map(|t| Some((t, t.storage().ok()?)))
            .for_each(|(t, s)| s.borrows.release(t.grant));
    }
}

/// The handles of the mutated arguments as the caller passed them, without the rights of the call's
/// borrows.
pub(crate) type MutatedArgs = SmallVec<[Value; 1]>;

pub(crate) fn mutated_args(state: &OpState, args: &[Value]) -> MutatedArgs {
    state.facts.mutated.iter().map(|&i| args[usize::from(i)].clone()).collect()
}

/// The handles, as the caller passed them, of arguments that are not mutated and of which results
/// are views.
pub(crate) fn viewed_args(state: &OpState, args: &[Value]) -> SmallVec<[Tensor; 1]> {
    let viewed = state.facts.aliases.iter().flatten().filter(|a| !state.facts.mutated.contains(a));
    viewed.flat_map(|&a| args[usize::from(a)].tensors()).cloned().collect()
}
