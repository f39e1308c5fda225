//! What a call does to keep its operands apart: copies of what it reads and writes at once, and
//! borrows of everything else.
//!
//! Every tensor argument is borrowed for the call, and the handles that the kernel is given carry
//! exactly these rights.

use crate::dispatch::value::Value;
use crate::error::{AccessError, Result};
use crate::library::{Op, OpState};
use crate::tensor::Tensor;
use crate::tensor::borrow::{Access, Holder};
use crate::tensor::meta::Concrete;
use crate::tensor::overlap::{may_overlap, may_self_overlap};
use maquette_ir::Loc;
use smallvec::SmallVec;

/// Read operands that overlap mutated ones are read as they were before the call; mutated operands
/// may not meet.
///
/// `same_view_is_safe`: an operand in exactly the place of a mutated one needs no copy, since each
/// element is read before it is written.
pub(crate) fn resolve_overlap(
    state: &OpState,
    args: &mut [Value],
    same_view_is_safe: bool,
) -> Result<()> {
    let facts = &state.facts;
    if facts.mutated.is_empty() {
        return Ok(());
    }
    let name = |i: u16| state.schema.args[usize::from(i)].name.clone();
    let mut targets: SmallVec<[(u16, Tensor); 2]> = SmallVec::new();
    for &i in &facts.mutated {
        for t in args[usize::from(i)].tensors() {
            if t.meta().dense_numel().is_none()
                && let Some(c) = t.meta().concrete()
                && may_self_overlap(&c)
            {
                let (sizes, strides) = (c.sizes.to_vec(), c.strides.to_vec());
                return Err(AccessError::SelfOverlap { arg: name(i), sizes, strides }.into());
            }
            if let Some((j, _)) =
                targets.iter().find(|(_, u)| t.shares_storage(u) && tensors_may_overlap(t, u))
            {
                return Err(AccessError::MutatedOverlap { first: name(*j), second: name(i) }.into());
            }
            targets.push((i, t.clone()));
        }
    }
    targets.iter().try_for_each(|(_, u)| copy_overlapping_reads(state, args, u, same_view_is_safe))
}

/// Read operands that overlap `target` are copied, unless they are in its very place and
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

/// Whether two tensors see the same elements in the same order.
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

/// Arguments while they are borrowed: their handles carry the rights of the borrows, which end when
/// this is dropped.
pub(crate) struct BorrowedArgs<'a> {
    state: &'a OpState,
    args: &'a mut [Value],
    /// A tensor that is written, and no argument.
    out: Option<Tensor>,
    /// So many tensors are borrowed, in the order of [`borrow_order`].
    count: usize,
}

/// What each argument that may hold tensors is borrowed for; writers first, so that a conflict
/// names the mutated argument.
fn borrow_order(state: &OpState) -> impl Iterator<Item = (Access, u16)> {
    let facts = &state.facts;
    facts
        .mutated
        .iter()
        .map(|&i| (Access::Write, i))
        .chain(facts.read.iter().map(|&i| (Access::Read, i)))
}

/// Borrows every tensor argument, and turns the arguments into handles with the rights of these
/// borrows. After [`resolve_overlap`], a read operand that meets a mutated one is in its very
/// place, and shares its borrow.
///
/// # Errors
/// Somebody else holds an overlapping region; nothing is borrowed then.
pub(crate) fn borrow_args<'a>(
    op: Op,
    state: &'a OpState,
    args: &'a mut [Value],
) -> Result<BorrowedArgs<'a>> {
    borrow_args_and_out(op, state, args, None)
}

/// As [`borrow_args`], with a tensor to write to that is no argument.
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

    /// The tensor that is written and no argument.
    pub(crate) fn out(&self) -> Option<&Tensor> {
        self.out.as_ref()
    }

    fn tensors(&self) -> impl Iterator<Item = &Tensor> {
        borrow_order(self.state)
            .flat_map(|(_, i)| self.args[usize::from(i)].tensors())
            .take(self.count)
            .chain(&self.out)
    }

    /// The error of a write tried through a borrow that is read-only.
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

/// The handles of the mutated arguments, as the caller gave them.
pub(crate) type MutatedArgs = SmallVec<[Value; 1]>;

pub(crate) fn mutated_args(state: &OpState, args: &[Value]) -> MutatedArgs {
    state.facts.mutated.iter().map(|&i| args[usize::from(i)].clone()).collect()
}
