//! Helpers of shape rules: decisions on symbolic sizes, layouts, and argument checks.
//!
//! A decision on a condition is made statically if the condition is provable. Otherwise a condition
//! on backed symbols becomes a guard, and a condition on data-dependent symbols is an error that
//! names the symbol. A requirement on data-dependent sizes becomes a deferred assertion instead.

use crate::dispatch::value::{Outputs, Value};
use crate::error::{Error, Result};
use crate::tensor::meta::{Dims, Meta};
use crate::tensor::{Tensor, dims_text};
use maquette_ir::sym::{SymBool, SymInt};
use maquette_ir::typing::{self, contiguous_strides, elementwise_strides};
use maquette_ir::{DType, MemoryFormat};
use smallvec::smallvec;

/// Whether a condition holds. Records a guard if the condition depends on backed symbols.
#[track_caller]
pub fn decide(b: SymBool) -> Result<bool> {
    match b.statically_known() {
        Some(known) => Ok(known),
        None => Ok(b.guard()?),
    }
}

/// As [`decide`], but a data-dependent condition is asserted to be false.
#[track_caller]
pub fn decide_or_deny(b: SymBool, negated: SymBool, message: &str) -> Result<bool> {
    match b.statically_known() {
        Some(known) => Ok(known),
        None if b.is_data_dependent() => {
            negated.check(message)?;
            Ok(false)
        }
        None => Ok(b.guard()?),
    }
}

/// Requires a condition. It is an error if the condition is known to fail, a guard if it depends on
/// backed symbols, and a deferred assertion if it is data-dependent.
#[track_caller]
pub fn require(b: SymBool, failed: impl Fn() -> String) -> Result<()> {
    crate::tensor::shape::demand(b, &failed, &|| Error::value(failed()))
}

/// Whether a size is 1. A data-dependent size is asserted not to be 1.
#[track_caller]
pub fn is_one(n: SymInt) -> Result<bool> {
    match n.as_i64() {
        Some(n) => Ok(n == 1),
        None => decide_or_deny(
            n.eq(1),
            n.ne(1),
            &format!("the size {n} must not be 1, because the trace assumes that it is not"),
        ),
    }
}

/// Whether a size, or a number of elements, is 0. If it is 0 in the sample, a guard says so. Any
/// other symbolic number is taken as nonzero without a guard: the caller's computation for the
/// general case must be right for 0 too, or make a guard of its own.
#[track_caller]
pub fn is_zero(n: SymInt) -> Result<bool> {
    Ok(n.eq(0).statically_known() == Some(true) || n.hint() == Some(0) && n.guard_int()? == 0)
}

/// `a / b` rounded up, for positive `b`. Constant operands do not overflow, nor does a size divided
/// by a constant.
pub fn div_ceil(a: SymInt, b: SymInt) -> SymInt {
    const LARGE: i64 = 1 << 62;
    match (a.as_i64(), b.as_i64()) {
        (Some(a), Some(b @ 1..)) => SymInt::from(a.div_euclid(b) + i64::from(a.rem_euclid(b) != 0)),
        (None, Some(LARGE..)) => a.floor_div(b) + a.modulo(b).min(1),
        _ => (a + (b - 1)).floor_div(b),
    }
}

/// Whether two integers are provably equal. Records no guard.
pub fn known_equal(a: SymInt, b: SymInt) -> bool {
    match (a.as_i64(), b.as_i64()) {
        (Some(a), Some(b)) => a == b,
        _ => a.eq(b).statically_known() == Some(true),
    }
}

/// The product of sizes.
pub fn product(sizes: &[SymInt]) -> SymInt {
    sizes.iter().fold(SymInt::from(1), |n, &s| n * s)
}

/// Whether the layout is row-major, ignoring the strides of dimensions of size 1. Records guards if
/// strides or sizes are backed symbols.
#[track_caller]
pub fn is_contiguous(sizes: &[SymInt], strides: &[SymInt]) -> Result<bool> {
    Ok(typing::is_contiguous(sizes, strides)?)
}

#[track_caller]
fn matches_strides(sizes: &[SymInt], strides: &[SymInt], wanted: &[SymInt]) -> Result<bool> {
    if sizes.iter().any(|n| n.as_i64() == Some(0)) {
        return Ok(true);
    }
    for ((&n, &s), &w) in sizes.iter().zip(strides).zip(wanted) {
        if known_equal(s, w) || n.as_i64() == Some(1) {
            continue;
        }
        if !decide(s.eq(w))? && !decide(n.eq(1))? {
            return Ok(typing::counts_as_empty(sizes));
        }
    }
    Ok(true)
}

/// The channels-last strides of an image batch: batch, then spatial dimensions, then channels.
pub fn channels_last_strides(sizes: &[SymInt]) -> Dims {
    let rank = sizes.len();
    let mut strides: Dims = smallvec![SymInt::from(1); rank];
    let mut step = sizes[1].max(1);
    for d in (2..rank).rev() {
        strides[d] = step;
        step *= sizes[d].max(1);
    }
    strides[0] = step;
    strides
}

/// The metadata in channels-last format.
pub fn in_channels_last(m: Meta) -> Meta {
    let strides = channels_last_strides(&m.sizes);
    m.with_strides(strides)
}

/// Whether an image batch is stored channels-last, and not also row-major. Unlike PyTorch's
/// `suggest_memory_format`, the test ignores strides of dimensions of size 1, because graphs do not
/// preserve them.
#[track_caller]
pub fn is_channels_last(m: &Meta) -> Result<bool> {
    if !matches!(m.rank(), 4 | 5) || is_contiguous(&m.sizes, &m.strides)? {
        return Ok(false);
    }
    // An empty batch is row-major, and operators take the layout of a result that is not empty from
    // an operand that may be.
    Ok(is_channels_last_contiguous(&m.sizes, &m.strides)? && !has_size_0(&m.sizes)?)
}

/// Whether a size is 0. Records guards if sizes are backed symbols.
#[track_caller]
pub fn has_size_0(sizes: &[SymInt]) -> Result<bool> {
    for n in sizes {
        if decide(n.eq(0))? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether the layout is channels-last, ignoring the strides of dimensions of size 1, as
/// [`is_contiguous`] does for row-major layouts.
#[track_caller]
pub fn is_channels_last_contiguous(sizes: &[SymInt], strides: &[SymInt]) -> Result<bool> {
    matches_strides(sizes, strides, &channels_last_strides(sizes))
}

/// The strides of a fresh tensor with these sizes in a memory format. For `Preserve`, `like` gives
/// the order of the dimensions.
#[track_caller]
pub fn format_strides(format: MemoryFormat, sizes: &[SymInt], like: &Meta) -> Result<Dims> {
    let needs = |rank: usize| {
        if sizes.len() == rank {
            Ok(channels_last_strides(sizes))
        } else {
            Err(Error::value(format!(
                "memory_format {format} needs a tensor of {rank} dimensions, found sizes {}",
                dims_text(sizes)
            )))
        }
    };
    match format {
        MemoryFormat::Contiguous => Ok(contiguous_strides(sizes)),
        MemoryFormat::Preserve => Ok(elementwise_strides(sizes, &[(sizes, &like.strides)])?),
        MemoryFormat::ChannelsLast => needs(4),
        MemoryFormat::ChannelsLast3d => needs(5),
    }
}

/// Metadata of a fresh row-major tensor on the device of `like`.
pub fn fresh(like: &Tensor, sizes: Dims, dtype: DType) -> Meta {
    Meta::contiguous(sizes, dtype).on(like.device())
}

/// As [`fresh`], with the sizes of `like` and the strides that a pointwise operator gives its
/// result.
pub fn fresh_like(like: &Tensor, dtype: DType) -> Result<Meta> {
    let sizes = like.sizes();
    let strides = format_strides(MemoryFormat::Preserve, sizes, like.meta())?;
    Ok(Meta { strides, ..fresh(like, sizes.into(), dtype) })
}

/// The metadata of a fresh result, changed to channels-last if `like` is channels-last.
#[track_caller]
pub fn in_format_of(like: &Tensor, m: Meta) -> Result<Meta> {
    Ok(if is_channels_last(like.meta())? {
        Meta { strides: channels_last_strides(&m.sizes), ..m }
    } else {
        m
    })
}

/// Requires a tensor argument to have a number of dimensions in this range.
pub fn require_rank(
    arg: &str,
    t: &Tensor,
    expected: std::ops::RangeInclusive<usize>,
) -> Result<()> {
    if expected.contains(&t.dim()) {
        return Ok(());
    }
    let (lo, hi) = (expected.start(), expected.end());
    let wanted = if lo == hi { lo.to_string() } else { format!("{lo} to {hi}") };
    Err(Error::value(format!(
        "argument `{arg}` must have {wanted} dimensions, found sizes {}",
        dims_text(t.sizes())
    )))
}

/// Requires two tensor arguments to have the same dtype.
pub fn require_same_dtype(a: (&str, &Tensor), b: (&str, &Tensor)) -> Result<()> {
    if a.1.dtype() == b.1.dtype() {
        return Ok(());
    }
    Err(Error::value(format!(
        "arguments `{}` and `{}` must have the same dtype, found {}{} and {}{}",
        a.0,
        b.0,
        a.1.dtype(),
        dims_text(a.1.sizes()),
        b.1.dtype(),
        dims_text(b.1.sizes())
    )))
}

/// Requires a tensor argument to have a dtype that `fits`; `expected` describes those dtypes.
pub fn require_dtype(
    arg: &str,
    t: &Tensor,
    expected: &str,
    fits: impl FnOnce(DType) -> bool,
) -> Result<()> {
    if fits(t.dtype()) {
        return Ok(());
    }
    Err(Error::value(format!(
        "argument `{arg}` must have {expected}, found {}{}",
        t.dtype(),
        dims_text(t.sizes())
    )))
}

/// Requires a tensor argument to have a floating dtype.
pub fn require_float(arg: &str, t: &Tensor) -> Result<()> {
    require_dtype(arg, t, "a floating dtype", DType::is_float)
}

/// Requires tensor arguments to have floating dtypes.
pub fn require_floats(args: &[(&str, &Tensor)]) -> Result<()> {
    args.iter().try_for_each(|(arg, t)| require_float(arg, t))
}

/// Requires an index tensor to have dtype i64 or i32.
pub fn require_index(arg: &str, t: &Tensor) -> Result<()> {
    match t.dtype() {
        DType::I64 | DType::I32 => Ok(()),
        found => Err(Error::value(format!(
            "argument `{arg}` must be an index tensor of dtype i64 or i32, found {found}{}",
            dims_text(t.sizes())
        ))),
    }
}

/// Requires a mask to have dtype bool, or the dtype `also`.
pub fn require_mask(arg: &str, t: &Tensor, also: Option<DType>) -> Result<()> {
    let found = t.dtype();
    if found == DType::Bool || also == Some(found) {
        return Ok(());
    }
    let or = also.map_or(String::new(), |d| format!(" or {d}"));
    Err(Error::value(format!(
        "argument `{arg}` must have dtype bool{or}, found {found}{}",
        dims_text(t.sizes())
    )))
}

/// The outputs of a composite.
///
/// # Errors
/// The tensor is poisoned: an operator that the composite called has failed.
pub fn done(t: Tensor) -> Result<Outputs> {
    t.alive()?;
    Ok(smallvec![Value::Tensor(t)])
}

/// Whether a size is the placeholder -1. A symbolic size is tested only if it may be negative; a
/// data-dependent one is asserted not to be negative.
#[track_caller]
pub fn is_open(n: SymInt) -> Result<bool> {
    match n.as_i64() {
        Some(n) => Ok(n == -1),
        None if decide_or_deny(
            n.lt(0),
            n.ge(0),
            &format!("the size {n} must not be negative"),
        )? =>
        {
            decide(n.eq(-1))
        }
        None => Ok(false),
    }
}
