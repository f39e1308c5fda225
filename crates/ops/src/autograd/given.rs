//! Gradients that user code is given. Other users of the same value may get the same tensor, and so
//! may the caller of the sweep. So a gradient is read-only while the code runs.
//!
//! Technique: the sweep borrows the gradients for reading, and a write conflicts with the borrow. A
//! trace records writes and does not make them, so no borrow holds them off: there, the versions
//! before and after are compared.

use super::node::GradNode;
use super::saved::{last_recorded_write, version};
use crate::dispatch::panics;
use crate::error::{AutogradError, Result};
use crate::tensor::borrow::Access;
use crate::tensor::holder::{GivenTo, Holder};
use crate::tensor::{BorrowGuard, Tensor};
use maquette_ir::fault_injection::{Fault, fault_injected};
use smallvec::SmallVec;

/// What runs with gradients.
#[derive(Clone, Copy)]
pub(super) enum Role {
    Derivative,
    Hook,
}

impl Role {
    fn text(self) -> &'static str {
        match self {
            Role::Derivative => "the derivative",
            Role::Hook => "a hook",
        }
    }

    /// As the error of a panic names it.
    fn code(self) -> &'static str {
        match self {
            Role::Derivative => "derivative",
            Role::Hook => "hook",
        }
    }
}

/// Runs user code with these gradients of the results of a node. Its panics are errors.
///
/// # Errors
/// Those of `f`; or `f` panics, or writes a gradient.
pub(super) fn with_read_only<'a, R>(
    role: Role,
    node: &GradNode,
    grads: impl Iterator<Item = &'a Tensor>,
    f: impl FnOnce() -> Result<R>,
) -> Result<R> {
    if fault_injected(Fault::GivenGradientsWritten) {
        return panics::catch(role.code(), f);
    }
    let to = || GivenTo { role: role.text(), op: node.name.clone(), called: node.loc };
    let lent = grads.map(|t| {
        let is_real = t.alive()?.slot().is_none() && !t.is_fake();
        let borrow = is_real.then(|| t.borrow(Access::Read, Holder::Gradient(to()))).transpose()?;
        Ok((t, version(t), borrow))
    });
    let lent = lent.collect::<Result<SmallVec<[(&Tensor, u64, Option<BorrowGuard>); 2]>>>()?;
    let result = panics::catch(role.code(), f)?;
    match lent.iter().find(|(t, before, _)| version(t) != *before) {
        None => Ok(result),
        Some((t, ..)) => {
            let (tensor, written) = (t.meta().to_string(), last_recorded_write(t));
            Err(AutogradError::GivenWritten { to: to().to_string(), tensor, written }.into())
        }
    }
}
