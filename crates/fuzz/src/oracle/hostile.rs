//! Operators whose kernels break the contract in ways that no schema shows. Eager execution and
//! every mode must refuse them, since a rewritten program could differ from the eager one. A broken
//! promise of a fake kernel is refused by every mode that traced the program.

use super::library::{like, mixed_with_itself, op};
use maquette_ops::{Effect, FakeCtx, Result, Tensor};
use std::cell::RefCell;
use std::sync::OnceLock;

thread_local! {
    /// What `oracle::keeps` returned last.
    static KEPT: RefCell<Option<Tensor>> = const { RefCell::new(None) };
}

/// What `oracle::peeks` reads, which is not an argument of it.
static HELD: OnceLock<Tensor> = OnceLock::new();

/// A kernel that keeps the memory it returns, one that reads a tensor it is not given, and one that
/// returns another view than its fake kernel promises, which eager execution does not ask.
pub(super) fn register() -> Result<()> {
    // memory made inside of a call belongs to that call
    HELD.get_or_init(|| Tensor::from([1.0f32]));
    let fake = |_: &FakeCtx, x: &Tensor| -> Result<Tensor> { Ok(like(x)) };
    let keep = |x: &Tensor| -> Result<Tensor> {
        let out = mixed_with_itself(x)?;
        KEPT.set(Some(out.clone()));
        Ok(out)
    };
    let peek = |x: &Tensor| -> Result<Tensor> {
        // the kernel ignores the error, the call may not
        let _seen = HELD.get().map(|held| held.to_vec::<f32>());
        mixed_with_itself(x)
    };
    // Without an effect, a pass would remove a call whose result is unused, and its error with it.
    op("keeps(Tensor x) -> Tensor")
        .effect(Effect::Ordered)
        .kernel(keep)
        .register()?
        .register_fake(fake)?;
    op("peeks(Tensor x) -> Tensor")
        .effect(Effect::Ordered)
        .kernel(peek)
        .register()?
        .register_fake(fake)?;
    // all rows but the first, where the fake kernel promises all but the last
    op("lies(Tensor(a) x) -> Tensor(a)")
        .kernel(|x: &Tensor| -> Result<Tensor> { Ok(x.slice(0, 1..)) })
        .register()?
        .register_fake(|_: &FakeCtx, x: &Tensor| -> Result<Tensor> { Ok(x.slice(0, ..-1)) })
}
