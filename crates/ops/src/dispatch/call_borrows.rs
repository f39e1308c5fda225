//! Keeps the operands of one call apart: copies each read operand that overlaps a mutated one, and
//! borrows the regions of all others.
//!
//! Every tensor argument is borrowed for the duration of the call. The handles that the kernel
//! receives carry exactly these rights (see [`Borrows`](crate::tensor::borrow::Borrows)). A kernel
//! therefore never observes its own writes through a read operand, and never races with another
//! thread.

use crate::dispatch::value::Value;
use crate::error::{AccessError, Error, Result};
use crate::library::{Op, OpState};
use crate::tensor::Tensor;
use crate::tensor::borrow::{Access, Grant};
use crate::tensor::holder::Holder;
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
    let refuse_self_overlap = |t: &Tensor, i: u16, position: usize| {
        if t.meta().dense_numel().is_some() {
            return Ok(());
        }
        match t.meta().concrete() {
            Some(c) if may_self_overlap(&c) => {
                let (sizes, strides) = (c.sizes.to_vec(), c.strides.to_vec());
                Err(AccessError::SelfOverlap { arg: name(i, position), sizes, strides })
            }
            _ => Ok(()),
        }
    };
    if let [i] = facts.mutated[..]
        && let Value::Tensor(target) = &args[usize::from(i)]
    {
        refuse_self_overlap(target, i, 0)?;
        if facts.read.is_empty() {
            return Ok(());
        }
        let target = target.clone();
        return copy_overlapping_reads(state, args, &target, same_view_is_safe);
    }
    let mut targets: SmallVec<[(u16, usize, Tensor); 2]> = SmallVec::new();
    for &i in &facts.mutated {
        for (position, t) in args[usize::from(i)].tensors().enumerate() {
            refuse_self_overlap(t, i, position)?;
            if let Some((j, at, _)) =
                targets.iter().find(|(.., u)| t.has_storage_of(u) && tensors_may_overlap(t, u))
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
        for t in args[usize::from(i)].tensors_mut().filter(|t| t.has_storage_of(target)) {
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
    t.has_storage_of(u)
        && t.dtype() == u.dtype()
        && t.meta().concrete().zip(u.meta().concrete()).is_some_and(|(c, d)| same(c, d))
}

/// Arguments borrowed for one call. Their handles carry the rights of the borrows, which end when
/// this value is dropped. The handles then have their own rights again.
pub(crate) struct BorrowedArgs<'a> {
    state: &'a OpState,
    args: &'a mut [Value],
    /// A tensor that the call writes although it is not an argument.
    out: Option<Tensor>,
    /// The grants that the borrowed tensors had: first those of mutated arguments, so that the
    /// error of a conflict names the mutated one. Only these tensors are released.
    before: SmallVec<[Grant; 8]>,
}

/// The arguments, borrowed as by [`BorrowedArgs::borrow`].
///
/// # Errors
/// As [`BorrowedArgs::borrow`].
pub(crate) fn borrow_args<'a>(
    op: Op,
    state: &'a OpState,
    args: &'a mut [Value],
) -> Result<BorrowedArgs<'a>> {
    let mut borrowed = BorrowedArgs::new(state, args);
    borrowed.borrow(op)?;
    Ok(borrowed)
}

/// As [`borrow_args`], with an additional tensor to write that is not an argument.
pub(crate) fn borrow_args_and_out<'a>(
    op: Op,
    state: &'a OpState,
    args: &'a mut [Value],
    out: &Tensor,
) -> Result<BorrowedArgs<'a>> {
    let mut borrowed = BorrowedArgs::new(state, args);
    let mut out = out.clone();
    out.grant =
        out.own_storage()?.borrows.take(&out, Access::Write, Holder::Guard(Loc::caller()))?;
    borrowed.out = Some(out);
    borrowed.borrow(op)?;
    Ok(borrowed)
}

impl<'a> BorrowedArgs<'a> {
    /// Arguments of which none is borrowed yet.
    pub(crate) fn new(state: &'a OpState, args: &'a mut [Value]) -> BorrowedArgs<'a> {
        BorrowedArgs { state, args, out: None, before: SmallVec::new() }
    }

    /// Borrows every tensor argument, and stores the rights of these borrows in the argument
    /// handles. After [`resolve_overlap`], a read operand that overlaps a mutated one is the same
    /// view, and shares its borrow.
    ///
    /// # Errors
    /// Another holder has borrowed an overlapping region.
    pub(crate) fn borrow(&mut self, op: Op) -> Result<()> {
        for &index in &self.state.facts.mutated {
            for t in self.args[usize::from(index)].tensors_mut() {
                let holder = Holder::Argument { op, index };
                let grant = t.own_storage()?.borrows.take(t, Access::Write, holder)?;
                self.before.push(std::mem::replace(&mut t.grant, grant));
            }
        }
        if self.state.facts.read.is_empty() {
            return Ok(());
        }
        let written: SmallVec<[Tensor; 2]> = self.written();
        for &index in &self.state.facts.read {
            for t in self.args[usize::from(index)].tensors_mut() {
                let grant = match written.iter().find(|u| is_same_view(t, u)) {
                    Some(u) => u.grant,
                    None => {
                        let holder = Holder::Argument { op, index };
                        t.own_storage()?.borrows.take(t, Access::Read, holder)?
                    }
                };
                self.before.push(std::mem::replace(&mut t.grant, grant));
            }
        }
        Ok(())
    }

    pub(crate) fn args(&self) -> &[Value] {
        self.args
    }

    /// Counts a write of each mutated argument, unless the caller is a kernel that has borrowed it:
    /// its own call counts.
    pub(crate) fn bump_versions(&self) {
        let mutated = self.state.facts.mutated.iter().map(|&i| &self.args[usize::from(i)]);
        for (t, before) in mutated.flat_map(Value::tensors).zip(&self.before) {
            if let Ok(storage) = t.own_storage()
                && !before.is_of_call()
            {
                storage.bump_version();
            }
        }
    }

    /// The tensor that the call writes although it is not an argument.
    pub(crate) fn out(&self) -> Option<&Tensor> {
        self.out.as_ref()
    }

    /// The handles of everything that the call writes.
    fn written(&self) -> SmallVec<[Tensor; 2]> {
        if self.state.facts.mutated.is_empty() && self.out.is_none() {
            return SmallVec::new();
        }
        let mutated = self.state.facts.mutated.iter().map(|&i| &self.args[usize::from(i)]);
        mutated.flat_map(Value::tensors).chain(&self.out).cloned().collect()
    }

    /// Poisons what the call writes.
    #[cold]
    pub(crate) fn poison(&self, e: &Error) {
        self.written().iter().for_each(|t| t.poison_storage(e));
    }

    fn for_each_borrowed(&self, mut f: impl FnMut(&Tensor)) {
        let facts = &self.state.facts;
        let mut left = self.before.len();
        for arguments in [&facts.mutated[..], &facts.read[..]] {
            for &i in arguments {
                for t in self.args[usize::from(i)].tensors().take(left) {
                    left -= 1;
                    f(t);
                }
            }
        }
        self.out.iter().for_each(f);
    }

    /// The error of the first write attempted through one of the read-only borrows, if any.
    #[cold]
    pub(crate) fn undeclared_write(&self) -> Option<AccessError> {
        let mut error = None;
        self.for_each_borrowed(|t| {
            if error.is_none()
                && let Ok(storage) = t.own_storage()
            {
                error = storage.borrows.undeclared_write(t.grant);
            }
        });
        error
    }
}

impl Drop for BorrowedArgs<'_> {
    fn drop(&mut self) {
        let release = |t: &Tensor| {
            if let Ok(storage) = t.own_storage() {
                storage.borrows.release(t.grant);
            }
        };
        // Loops, because each call of an operator releases its borrows here, and a chain of
        // iterators costs as much as the releases.
        let facts = &self.state.facts;
        let mut before = self.before.iter();
        for arguments in [&facts.mutated[..], &facts.read[..]] {
            for &i in arguments {
                for t in self.args[usize::from(i)].tensors_mut() {
                    let Some(before) = before.next() else { break };
                    release(t);
                    t.grant = *before;
                }
            }
        }
        self.out.iter().for_each(release);
    }
}

/// The handles of the mutated arguments as the caller passed them, without the rights of the call's
/// borrows.
pub(crate) type MutatedArgs = SmallVec<[Value; 1]>;

#[inline]
pub(crate) fn mutated_args(state: &OpState, args: &[Value]) -> MutatedArgs {
    if state.facts.mutated.is_empty() {
        return MutatedArgs::new();
    }
    state.facts.mutated.iter().map(|&i| args[usize::from(i)].clone()).collect()
}

/// The handles, as the caller passed them, of arguments that are not mutated and of which results
/// are views.
pub(crate) fn viewed_args(state: &OpState, args: &[Value]) -> SmallVec<[Tensor; 1]> {
    let viewed = state.facts.aliases.iter().flatten().filter(|a| !state.facts.mutated.contains(a));
    viewed.flat_map(|&a| args[usize::from(a)].tensors()).cloned().collect()
}
