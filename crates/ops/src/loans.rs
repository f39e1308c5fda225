//! What a call does to keep its operands apart: copies of what it reads and writes at once, and loans of everything else.
//!
//! Every tensor argument is borrowed for the call, and the handles that the kernel is given carry exactly these rights.

use crate::borrow::{Access, Holder};
use crate::error::{AccessError, Result};
use crate::library::{Op, OpState};
use crate::meta::Concrete;
use crate::overlap::{may_overlap, may_self_overlap};
use crate::tensor::Tensor;
use crate::value::Value;
use maquette_ir::Loc;
use smallvec::SmallVec;

/// Read operands that overlap mutated ones are read as they were before the call; mutated operands may not meet.
///
/// `same_place_is_safe`: an operand in exactly the place of a mutated one needs no copy, since each element is read before it is written.
pub(crate) fn separate(state: &OpState, args: &mut [Value], same_place_is_safe: bool) -> Result<()> {
    let facts = &state.facts;
    if facts.mutated.is_empty() {
        return Ok(());
    }
    let name = |i: u16| state.schema.args[usize::from(i)].name.clone();
    let mut targets: SmallVec<[(u16, Tensor); 2]> = SmallVec::new();
    for &i in &facts.mutated {
        for t in args[usize::from(i)].tensors() {
            if t.meta().solid().is_none()
                && let Some(c) = t.meta().concrete()
                && may_self_overlap(&c)
            {
                let (sizes, strides) = (c.sizes.to_vec(), c.strides.to_vec());
                return Err(AccessError::SelfOverlap { arg: name(i), sizes, strides }.into());
            }
            if let Some((j, _)) = targets.iter().find(|(_, u)| t.shares_storage(u) && meet(t, u)) {
                return Err(AccessError::MutatedOverlap { first: name(*j), second: name(i) }.into());
            }
            targets.push((i, t.clone()));
        }
    }
    targets.iter().try_for_each(|(_, u)| keep_apart(state, args, u, same_place_is_safe))
}

/// Read operands that overlap `target` are copied, unless they are in its very place and `same_place_is_safe`.
pub(crate) fn keep_apart(state: &OpState, args: &mut [Value], target: &Tensor, same_place_is_safe: bool) -> Result<()> {
    for &i in &state.facts.read {
        for t in args[usize::from(i)].tensors_mut().filter(|t| t.shares_storage(target)) {
            if !(same_place_is_safe && in_place_of(t, target)) && meet(t, target) {
                *t = crate::eager::snapshot(t)?;
            }
        }
    }
    Ok(())
}

pub(crate) fn meet(t: &Tensor, u: &Tensor) -> bool {
    match (t.meta().concrete(), u.meta().concrete()) {
        (Some(c), Some(d)) => may_overlap(&c, &d),
        _ => true,
    }
}

/// Whether two tensors see the same elements in the same order.
pub(crate) fn in_place_of(t: &Tensor, u: &Tensor) -> bool {
    let along = |c: &Concrete, d: &Concrete, i: usize| c.sizes[i] == 1 || c.strides[i] == d.strides[i];
    let same = |c: Concrete, d: Concrete| c.offset == d.offset && c.sizes == d.sizes && (0..c.sizes.len()).all(|i| along(&c, &d, i));
    t.shares_storage(u) && t.dtype() == u.dtype() && t.meta().concrete().zip(u.meta().concrete()).is_some_and(|(c, d)| same(c, d))
}

/// Arguments while they are lent: their handles carry the rights of the loans, which end when this is dropped.
pub(crate) struct Lent<'a> {
    state: &'a OpState,
    args: &'a mut [Value],
    /// A tensor that is written, and no argument.
    out: Option<Tensor>,
    /// So many tensors are borrowed, in the order of [`lending`].
    count: usize,
}

/// What each argument that may hold tensors is lent for; writers first, so that a conflict names the mutated argument.
fn lending(state: &OpState) -> impl Iterator<Item = (Access, u16)> {
    let facts = &state.facts;
    facts.mutated.iter().map(|&i| (Access::Write, i)).chain(facts.read.iter().map(|&i| (Access::Read, i)))
}

/// Borrows every tensor argument, and turns the arguments into handles with the rights of these loans. After [`separate`], a read operand that
/// meets a mutated one is in its very place, and shares its loan.
///
/// # Errors
/// Somebody else holds an overlapping region; nothing is borrowed then.
pub(crate) fn lend<'a>(op: Op, state: &'a OpState, args: &'a mut [Value]) -> Result<Lent<'a>> {
    lend_with(op, state, args, None)
}

/// As [`lend`], with a tensor to write to that is no argument.
pub(crate) fn lend_with<'a>(op: Op, state: &'a OpState, args: &'a mut [Value], out: Option<&Tensor>) -> Result<Lent<'a>> {
    let mut lent = Lent { state, args, out: None, count: 0 };
    if let Some(out) = out {
        let mut out = out.clone();
        out.grant = out.storage()?.borrows.take(&out, Access::Write, Holder::Guard(Loc::caller()))?;
        lent.out = Some(out);
    }
    let mut written: SmallVec<[Tensor; 2]> = SmallVec::new();
    for (access, index) in lending(state) {
        if access == Access::Read && written.is_empty() {
            written.extend(state.facts.mutated.iter().flat_map(|&i| lent.args[usize::from(i)].tensors()).chain(&lent.out).cloned());
        }
        for t in lent.args[usize::from(index)].tensors_mut() {
            if access == Access::Read
                && let Some(u) = written.iter().find(|u| in_place_of(t, u))
            {
                t.grant = u.grant;
                lent.count += 1;
                continue;
            }
            t.grant = t.storage()?.borrows.take(t, access, Holder::Argument { op, index })?;
            lent.count += 1;
        }
    }
    Ok(lent)
}

impl Lent<'_> {
    pub(crate) fn args(&self) -> &[Value] {
        self.args
    }

    /// The tensor that is written and no argument.
    pub(crate) fn out(&self) -> Option<&Tensor> {
        self.out.as_ref()
    }

    fn tensors(&self) -> impl Iterator<Item = &Tensor> {
        lending(self.state).flat_map(|(_, i)| self.args[usize::from(i)].tensors()).take(self.count).chain(&self.out)
    }

    /// The error of a write tried through a loan that is read-only.
    pub(crate) fn violated(&self) -> Option<AccessError> {
        self.tensors().find_map(|t| t.storage().ok()?.borrows.violated(t.grant))
    }
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        self.tensors().filter_map(|t| Some((t, t.storage().ok()?))).for_each(|(t, s)| s.borrows.release(t.grant));
    }
}

/// The handles of the mutated arguments, as the caller gave them.
pub(crate) type Written = SmallVec<[Value; 1]>;

pub(crate) fn written(state: &OpState, args: &[Value]) -> Written {
    state.facts.mutated.iter().map(|&i| args[usize::from(i)].clone()).collect()
}
