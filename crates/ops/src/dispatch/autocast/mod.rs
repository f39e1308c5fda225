//! Autocast: calls of operators that are safe in a lower precision compute in it, and calls of
//! operators that are not compute in `f32`, whatever the program's tensors are.
//!
//! The stage comes before the recording of derivatives. The casts are calls of `aten::to`, so they
//! are nodes of traces, and gradients pass through them in the precision of each tensor. What a
//! call consists of runs without autocast: a kernel is a function of its operands. Only a composite
//! without a policy or a rule of its own is called as its parts, each by its own policy.
//!
//! A sweep runs without autocast: its rules compute in the dtypes of the calls. A graph has the
//! casts of its trace, and its run inside of `autocast` is refused.
//!
//! PyTorch keeps the cast of a weight for its other uses in the region. Here each use has its own
//! cast, and the compiler merges equal ones. So the gradients of the uses are added in the
//! precision of the weight, eagerly as in a trace.
//!
//! Source: PyTorch's `autocast_mode.cpp`.

mod policies;

use crate::dispatch::mode;
use crate::dispatch::value::{Args, Outputs, Value};
use crate::error::{CallError, Result};
use crate::library::{Op, OpState};
use crate::operator::Derivative;
use crate::tensor::Tensor;
use maquette_ir::{DType, Loc};
pub(crate) use policies::lists;
use policies::{Policy, policy};
use std::cell::Cell;

thread_local! {
    /// The lower precision, while autocast is on.
    static LOWER: Cell<DType> = const { Cell::new(DType::BF16) };
}

/// Runs `f` with autocast on this thread: matrix products, convolutions and attention compute in
/// `dtype`, which is `bf16` or `f16`; losses, pooling, linear algebra and others that need the
/// range of `f32` compute in it; concatenations compute in the wider of their operands' dtypes.
/// Other operators compute in the dtypes of their operands. Tensors of `f64` and of integers are
/// not cast.
///
/// The operators are those of PyTorch's CPU lists, on every device. With another `dtype`, calls of
/// these operators fail.
///
/// ```
/// # use maquette_aten as _;
/// use maquette_ops::{Tensor, autocast};
/// use maquette_ir::DType;
/// let (x, w) = (Tensor::ones([2, 3], DType::F32), Tensor::ones([3, 4], DType::F32));
/// let y = autocast(DType::BF16, || x.mm(&w).relu());
/// assert_eq!(y.dtype(), DType::BF16);
/// ```
///
/// PyTorch: `torch.autocast("cpu", dtype)`.
pub fn autocast<R>(dtype: DType, f: impl FnOnce() -> R) -> R {
    with_dtype(Some(dtype), f)
}

/// Runs `f` without autocast, inside [`autocast`] too.
///
/// PyTorch: `torch.autocast("cpu", enabled=False)`.
pub fn without_autocast<R>(f: impl FnOnce() -> R) -> R {
    if mode::active().autocasts() { with_dtype(None, f) } else { f() }
}

/// The lower precision of this thread's calls, or `None` outside [`autocast`].
pub fn autocast_dtype() -> Option<DType> {
    mode::active().autocasts().then(|| LOWER.get())
}

/// Runs `f` with autocast to a dtype, or without autocast.
pub(crate) fn with_dtype<R>(dtype: Option<DType>, f: impl FnOnce() -> R) -> R {
    struct Restore(DType);
    impl Drop for Restore {
        fn drop(&mut self) {
            LOWER.set(self.0);
        }
    }
    let _restore = Restore(LOWER.replace(dtype.unwrap_or(LOWER.get())));
    mode::with_autocast(dtype.is_some(), f)
}

/// A call while autocast is on.
#[cold]
pub(super) fn call(op: Op, state: &OpState, args: &mut Args, loc: Loc) -> Result<Outputs> {
    let lower = LOWER.get();
    let body = state.plain_builtin().and_then(|def| {
        let body = def.lowering.composite_body();
        body.filter(|_| matches!(def.derivative, Derivative::Parts))
    });
    let to = match (policy(op.name()), body) {
        (None, Some(body)) => return mode::in_place_of(op, loc, || body(args)),
        (None, None) => None,
        (Some(_), _) if !matches!(lower, DType::BF16 | DType::F16) => {
            return Err(CallError::Autocast { dtype: lower }.into());
        }
        (Some(Policy::Lower), _) => Some(lower),
        (Some(Policy::F32), _) => Some(DType::F32),
        (Some(Policy::Promote), _) => {
            let mut dtypes =
                args.iter().flat_map(Value::tensors).filter(|t| casts(t)).map(Tensor::dtype);
            Some(if dtypes.all(|d| d == lower) { lower } else { DType::F32 })
        }
    };
    without_autocast(|| {
        if let Some(to) = to {
            let cast = |t: &Tensor| {
                if casts(t) && t.dtype() != to {
                    t.to_dtype(to).ok().cloned()
                } else {
                    Ok(t.clone())
                }
            };
            mode::on_behalf_of(loc, || {
                for arg in args.iter_mut().filter(|a| a.tensors().next().is_some()) {
                    *arg = arg.map_tensors(&mut |t| cast(t))?;
                }
                Ok::<(), crate::Error>(())
            })?;
        }
        super::run(op, args, loc)
    })
}

/// Whether a tensor is one that autocast casts.
fn casts(t: &Tensor) -> bool {
    matches!(t.dtype(), DType::F32 | DType::BF16 | DType::F16)
}
