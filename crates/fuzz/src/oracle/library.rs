//! The custom operators of random programs, and the log of their effects.
//!
//! Each operator has a kind of signature that passes must handle: several mutated arguments,
//! mutated optionals and lists, results that alias, data-dependent sizes, effects.

use super::derivatives;
use super::hostile;
use super::statements;
use maquette_check::values::{Bytes, element_bytes};
use maquette_ir::DType;
use maquette_ir::sym::SymInt;
use maquette_ops::internals::MetaInternals;
use maquette_ops::library::{OpBuilder, Tag};
use maquette_ops::{Effect, Error, FakeCtx, Resource, Result, Tensor, custom_op};
use std::cell::RefCell;
use std::fmt;
use std::sync::OnceLock;

thread_local! {
    static LOG: RefCell<Vec<LoggedCall>> = const { RefCell::new(Vec::new()) };
}

/// Takes the log of this thread: the effects since the last call.
pub(super) fn take_log() -> Vec<LoggedCall> {
    LOG.with_borrow_mut(std::mem::take)
}

/// Puts a log back that was taken.
pub(super) fn restore_log(log: Vec<LoggedCall>) {
    LOG.set(log);
}

/// A call with an effect.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct LoggedCall {
    /// The operator, a tag, and the type of the tensor.
    pub call: String,
    pub dtype: DType,
    /// The elements of the tensor.
    pub bytes: Vec<u8>,
}

impl fmt::Display for LoggedCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.call)?;
        self.bytes.iter().try_for_each(|byte| write!(f, " {byte:02x}"))
    }
}

/// Logs a call.
fn note(op: &str, tag: i64, x: &Tensor) -> Result<()> {
    let call = format!("{op} {tag} {}{:?}", x.dtype(), x.sizes_i64()?);
    let logged = LoggedCall { call, dtype: x.dtype(), bytes: element_bytes(x)? };
    LOG.with_borrow_mut(|log| log.push(logged));
    Ok(())
}

/// An element type of the kernels.
trait Mix: Bytes {
    /// A combination that is neither commutative nor idempotent, so that a changed order or number
    /// of calls changes the result.
    fn mix(self, other: Self) -> Self;
    /// A number as an element.
    fn of(n: i64) -> Self;
    fn is_zero(self) -> bool;
}

impl Mix for f32 {
    fn mix(self, other: f32) -> f32 {
        self * 0.5 + other
    }
    fn of(n: i64) -> f32 {
        n as f32
    }
    fn is_zero(self) -> bool {
        self == 0.0
    }
}

impl Mix for f64 {
    fn mix(self, other: f64) -> f64 {
        self * 0.5 + other
    }
    fn of(n: i64) -> f64 {
        n as f64
    }
    fn is_zero(self) -> bool {
        self == 0.0
    }
}

impl Mix for i64 {
    fn mix(self, other: i64) -> i64 {
        self.wrapping_mul(3).wrapping_add(other).wrapping_add(1)
    }
    fn of(n: i64) -> i64 {
        n
    }
    fn is_zero(self) -> bool {
        self == 0
    }
}

impl Mix for bool {
    fn mix(self, other: bool) -> bool {
        !self | other
    }
    fn of(n: i64) -> bool {
        n % 2 != 0
    }
    fn is_zero(self) -> bool {
        !self
    }
}

/// Evaluates an expression with `T` bound to the tensor's element type.
macro_rules! typed {
    ($t:expr, $T:ident => $body:expr) => {
        match $t.dtype() {
            DType::F32 => {
                type $T = f32;
                $body
            }
            DType::F64 => {
                type $T = f64;
                $body
            }
            DType::I64 => {
                type $T = i64;
                $body
            }
            DType::Bool => {
                type $T = bool;
                $body
            }
            other => Err(Error::value(format!("takes f32, f64, i64 or bool, found {other}"))),
        }
    };
}

/// Mixes `y` into `x`, repeating `y`'s elements; an empty `y` changes nothing. Returns the old
/// value of `x`.
fn mix_into(x: &mut Tensor, y: &Tensor) -> Result<Tensor> {
    typed!(x, T => {
        let (before, other) = (x.to_vec::<T>()?, y.to_vec::<T>()?);
        x.write::<T>()?.iter_mut().zip(other.iter().cycle()).for_each(|(x, y)| *x = x.mix(*y));
        Ok(Tensor::from_vec(before, x.sizes()))
    })
}

/// The elements of `x` mixed with themselves, as a new tensor.
pub(super) fn mixed_with_itself(x: &Tensor) -> Result<Tensor> {
    typed!(x, T => {
        let mixed = x.to_vec::<T>()?.into_iter().map(|v| v.mix(v)).collect();
        Ok(Tensor::from_vec(mixed, x.sizes()))
    })
}

/// Mixes the elements of `prev` into `out`, in row-major order. If the two overlap, `prev` must be
/// read as it was before the call.
fn scan(prev: &Tensor, out: &mut Tensor) -> Result<()> {
    typed!(out, T => {
        let mut out = out.write::<T>()?;
        prev.read::<T>()?.iter().zip(out.iter_mut()).for_each(|(p, o)| *o = o.mix(*p));
        Ok(())
    })
}

/// A number that depends on a tensor's strides, as far as they are observable: dimensions of size 1
/// have no observable stride.
fn stride_number(x: &Tensor) -> Result<i64> {
    let layout =
        x.meta().concrete().ok_or_else(|| Error::value("takes tensors of known strides"))?;
    let apart = layout.sizes.iter().zip(&layout.strides).filter(|(n, _)| **n > 1);
    Ok(apart.fold(0, |sum, (_, stride)| 3 * sum + stride))
}

/// Mixes a number that depends on the strides of `x` and `y` into `x`.
fn mix_strides(x: &mut Tensor, y: &Tensor) -> Result<()> {
    let strides = if y.numel().as_i64() == Some(0) {
        stride_number(x)?
    } else {
        stride_number(x)? + 5 * stride_number(y)?
    };
    typed!(x, T => {
        x.write::<T>()?.iter_mut().for_each(|x| *x = x.mix(T::of(strides)));
        Ok(())
    })
}

/// Mixes each tensor into the other.
fn swap(x: &mut Tensor, y: &mut Tensor) -> Result<()> {
    let before = x.clone_tensor();
    mix_into(x, y)?;
    mix_into(y, &before).map(drop)
}

/// The positions of nonzero elements in row-major order.
fn nonzero_positions(x: &Tensor) -> Result<Vec<i64>> {
    typed!(x, T => {
        let elements = x.to_vec::<T>()?;
        let nonzero = elements.into_iter().enumerate().filter(|(_, v)| !v.is_zero());
        Ok(nonzero.map(|(i, _)| i as i64).collect())
    })
}

/// An empty tensor of the same sizes and dtype.
pub(super) fn like(x: &Tensor) -> Tensor {
    x.new_empty(x.sizes(), x.dtype())
}

/// A builder for the operator with this schema in the namespace `oracle`.
pub(super) fn op(schema: &str) -> OpBuilder {
    let (name, rest) = schema.split_at(schema.find('(').unwrap_or(schema.len()));
    custom_op(&format!("oracle::{name}")).schema(rest)
}

/// Registers the operators once.
///
/// # Errors
/// Operators with these names are already registered.
pub fn register() -> Result<()> {
    static DONE: OnceLock<Result<()>> = OnceLock::new();
    let all = || {
        pure()
            .and_then(|()| mutating())
            .and_then(|()| effects())
            .and_then(|()| derivatives::register())
            .and_then(|()| statements::register())
    };
    DONE.get_or_init(|| all().and_then(|()| hostile::register())).clone()
}

fn pure() -> Result<()> {
    let mix = |x: &Tensor, y: &Tensor| -> Result<Tensor> {
        let mut out = x.clone_tensor().contiguous();
        mix_into(&mut out, y)?;
        Ok(out)
    };
    op("mix(Tensor x, Tensor y) -> Tensor")
        .kernel(mix)
        .register()?
        .register_fake(|_: &FakeCtx, x: &Tensor, _y: &Tensor| -> Result<Tensor> { Ok(like(x)) })?;
    op("both(Tensor x, Tensor? y=None) -> (Tensor, Tensor)")
        .kernel(|x: &Tensor, y: Option<&Tensor>| -> Result<(Tensor, Tensor)> {
            Ok((mixed_with_itself(x)?, mixed_with_itself(y.unwrap_or(x))?))
        })
        .register()?
        .register_fake(
            |_: &FakeCtx, x: &Tensor, y: Option<&Tensor>| -> Result<(Tensor, Tensor)> {
                Ok((like(x), like(y.unwrap_or(x))))
            },
        )?;
    op("copies(Tensor[] xs) -> Tensor[]")
        .kernel(|xs: &[Tensor]| -> Result<Vec<Tensor>> {
            xs.iter().map(mixed_with_itself).collect()
        })
        .register()?
        .register_fake(|_: &FakeCtx, xs: &[Tensor]| -> Result<Vec<Tensor>> {
            Ok(xs.iter().map(like).collect())
        })?;
    op("tail(Tensor(a) x) -> Tensor(a)")
        .kernel(|x: &Tensor| -> Result<Tensor> { Ok(x.slice(0, 1..)) })
        .register()?
        .register_fake(|_: &FakeCtx, x: &Tensor| -> Result<Tensor> { Ok(x.slice(0, 1..)) })?;
    op("hits(Tensor x) -> Tensor")
        .kernel(|x: &Tensor| -> Result<Tensor> {
            let hits = nonzero_positions(x)?;
            let n = hits.len() as i64;
            Ok(Tensor::from_vec(hits, [n]))
        })
        .register()?
        .register_fake(|cx: &FakeCtx, x: &Tensor| -> Result<Tensor> {
            Ok(x.new_empty([cx.new_dynamic_size()?], DType::I64))
        })
}

fn mutating() -> Result<()> {
    op("mix_(Tensor(a!) x, Tensor y) -> ()")
        .kernel(|x: &mut Tensor, y: &Tensor| -> Result<()> { mix_into(x, y).map(drop) })
        .register()?;
    op("strides_(Tensor(a!) x, Tensor y) -> ()")
        .kernel(|x: &mut Tensor, y: &Tensor| mix_strides(x, y))
        .register()?;
    op("remix_(Tensor(a!) x) -> Tensor(a!)")
        .kernel(|x: &mut Tensor| -> Result<Tensor> {
            mix_into(x, &x.clone_tensor())?;
            Ok(x.clone())
        })
        .tags([Tag::Inplace])
        .register()?;
    op("mix_out(Tensor x, *, Tensor(a!) out) -> Tensor(a!)")
        .kernel(|x: &Tensor, out: &mut Tensor| -> Result<Tensor> {
            mix_into(out, x)?;
            Ok(out.clone())
        })
        .tags([Tag::Out])
        .register()?;
    op("scan_(Tensor prev, Tensor(a!) out) -> ()")
        .kernel(|prev: &Tensor, out: &mut Tensor| scan(prev, out))
        .register()?;
    op("acc_(Tensor(a!) x, Tensor y) -> Tensor")
        .kernel(|x: &mut Tensor, y: &Tensor| mix_into(x, y))
        .register()?
        .register_fake(|_: &FakeCtx, x: &mut Tensor, _y: &Tensor| -> Result<Tensor> {
            Ok(like(x))
        })?;
    op("count_(Tensor(a!) x) -> SymInt")
        .kernel(|x: &mut Tensor| -> Result<i64> {
            let n = nonzero_positions(x)?.len() as i64;
            mix_into(x, &x.clone_tensor())?;
            Ok(n)
        })
        .register()?
        .register_fake(|cx: &FakeCtx, _x: &mut Tensor| -> Result<SymInt> {
            cx.new_dynamic_size()
        })?;
    op("swap_(Tensor(a!) x, Tensor(b!) y) -> ()").kernel(swap).register()?;
    let rotate =
        |x: &mut Tensor, y: &mut Tensor, z: &mut Tensor, w: &Tensor| -> Result<(Tensor, Tensor)> {
            let first = mix_into(x, w)?;
            swap(y, z)?;
            Ok((first, mixed_with_itself(w)?))
        };
    op("rotate_(Tensor(a!) x, Tensor(b!) y, Tensor(c!) z, Tensor w) -> (Tensor, Tensor)")
        .kernel(rotate)
        .register()?
        .register_fake(
            |_: &FakeCtx,
             x: &mut Tensor,
             _y: &mut Tensor,
             _z: &mut Tensor,
             w: &Tensor|
             -> Result<(Tensor, Tensor)> { Ok((like(x), like(w))) },
        )?;
    op("maybe_(Tensor(a!)? x, Tensor y) -> Tensor")
        .kernel(|x: Option<&mut Tensor>, y: &Tensor| -> Result<Tensor> {
            x.map(|x| mix_into(x, y)).transpose()?;
            mixed_with_itself(y)
        })
        .register()?
        .register_fake(|_: &FakeCtx, _x: Option<&mut Tensor>, y: &Tensor| -> Result<Tensor> {
            Ok(like(y))
        })?;
    op("each_(Tensor(a!)[] xs, Tensor y) -> Tensor[]")
        .kernel(|xs: &mut [Tensor], y: &Tensor| -> Result<Vec<Tensor>> {
            xs.iter_mut().map(|x| mix_into(x, y)).collect()
        })
        .register()?
        .register_fake(|_: &FakeCtx, xs: &mut [Tensor], _y: &Tensor| -> Result<Vec<Tensor>> {
            Ok(xs.iter().map(like).collect())
        })?;
    op("some_(Tensor(a!)?[] xs, Tensor y) -> ()")
        .kernel(|xs: &mut [Option<Tensor>], y: &Tensor| -> Result<()> {
            xs.iter_mut().flatten().try_for_each(|x| mix_into(x, y).map(drop))
        })
        .register()
        .map(drop)
}

fn effects() -> Result<()> {
    op("log(Tensor x, int tag) -> ()")
        .effect(Effect::Ordered)
        .kernel(|x: &Tensor, tag: i64| -> Result<()> { note("log", tag, x) })
        .register()?;
    op("log_(Tensor(a!) x, int tag) -> ()")
        .effect(Effect::Ordered)
        .kernel(|x: &mut Tensor, tag: i64| -> Result<()> {
            note("log_", tag, x)?;
            mix_into(x, &x.clone_tensor()).map(drop)
        })
        .register()?;
    op("tell(Tensor x, int tag) -> Tensor")
        .effect(Effect::On(Resource::new("oracle::tell")))
        .kernel(|x: &Tensor, tag: i64| -> Result<Tensor> {
            note("tell", tag, x)?;
            mixed_with_itself(x)
        })
        .register()?
        .register_fake(|_: &FakeCtx, x: &Tensor, _tag: i64| -> Result<Tensor> { Ok(like(x)) })
}
