//! Compiled expressions of pointwise calls. The dtypes and the scalar expression depend on the
//! operator, the operands' dtypes and the number arguments, and not on sizes. Each thread caches
//! recent expressions.

use crate::dispatch::value::{Args, Value};
use crate::error::{Error, Result};
use crate::library::OpState;
use crate::operator::OpDef;
use crate::operator::lowering::{Pointwise, PointwiseCx, Types, operand, wide};
use crate::operator::number::{filling, require_fits};
use maquette_ir::scalar_expr::{ExprBuilder, Reg, ScalarExpr};
use maquette_ir::typing::{can_cast, promote};
use maquette_ir::{Category, DType};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

/// The compiled form of a pointwise call, independent of sizes.
pub(crate) struct CompiledExpr {
    pub(crate) expr: Arc<ScalarExpr>,
    /// The kernel for contiguous operands, if the expression has such a form.
    pub(crate) contiguous_kernel: Option<maquette_kernels::ContiguousKernel>,
    /// The dtype of the output.
    pub(crate) out_dtype: DType,
}

type Key = SmallVec<[u64; 12]>;

/// The limit on the cache of a thread. A full cache is cleared: a program uses few expressions at a
/// time.
const MAX_CACHED: usize = 512;

thread_local! {
    static CACHE: RefCell<FxHashMap<Key, Rc<CompiledExpr>>> = RefCell::default();
}

/// The cache key: everything that a compiled expression depends on. `None` if an argument is of a
/// kind that is not cached.
fn key(op: &OpDef, args: &[Value], target: Option<DType>) -> Option<Key> {
    let mut key = Key::new();
    key.push(op.schema.as_ptr().addr() as u64);
    key.push(target.map_or(u64::MAX, |d| d as u64));
    for a in args {
        // The low bits tag the kind. Numbers follow in full.
        match a {
            Value::Tensor(t) => key.push((t.dtype() as u64) << 8 | u64::from(t.dim() == 0) << 4),
            Value::None => key.push(1),
            Value::Bool(b) => key.push(2 | u64::from(*b) << 4),
            Value::Float(x) => key.extend([3, x.to_bits()]),
            Value::Int(i) => key.extend([4, i.as_i64()? as u64]),
            _ => return None,
        }
    }
    Some(key)
}

fn is_symbolic(v: &Value) -> bool {
    matches!(v, Value::Int(i) if i.as_i64().is_none() && i.poisoned().is_none())
}

impl Pointwise {
    /// The compiled expression of a call. `target` is the dtype of the tensor that an in-place
    /// operator writes.
    ///
    /// # Errors
    /// The operator does not accept these dtypes, or its result cannot be written into `target`.
    pub(crate) fn compile(
        &self,
        op: &OpDef,
        state: &OpState,
        args: &[Value],
        target: Option<DType>,
    ) -> Result<Rc<CompiledExpr>> {
        let key = key(op, args, target);
        if let Some(compiled) =
            key.as_ref().and_then(|k| CACHE.with_borrow(|cache| cache.get(k).cloned()))
        {
            return Ok(compiled);
        }
        if key.is_none() && args.iter().any(is_symbolic) {
            // A call with a symbolic number only needs metadata, which does not depend on the
            // number's value.
            let placeholder_args: Args = args
                .iter()
                .map(|a| if is_symbolic(a) { Value::from(1i64) } else { a.clone() })
                .collect();
            return self.compile(op, state, &placeholder_args, target);
        }
        let compiled = Rc::new(self.compile_uncached(state, args, target)?);
        if let Some(key) = key {
            CACHE.with_borrow_mut(|cache| {
                if cache.len() >= MAX_CACHED {
                    cache.clear();
                }
                cache.insert(key, compiled.clone());
            });
        }
        Ok(compiled)
    }

    /// Promotes the operands, builds the expression in the compute dtype, and converts its result.
    fn compile_uncached(
        &self,
        state: &OpState,
        args: &[Value],
        target: Option<DType>,
    ) -> Result<CompiledExpr> {
        let operand_args: SmallVec<[usize; 4]> = tensor_operands(state)
            .chain(self.scalar_operands(state))
            .filter(|&i| !args[i].is_none())
            .collect();
        let promoted = promote(
            operand_args
                .iter()
                .skip(usize::from(self.types == Types::Select))
                .map(|&i| operand(&args[i])),
        );
        let (compute, result) = self.dtypes(promoted, args);
        let mut cx = PointwiseCx {
            b: ExprBuilder::new(),
            dtype: compute,
            result,
            args,
            declared: &state.schema.args,
            regs: SmallVec::from_elem(None, args.len()),
        };
        for &i in &operand_args {
            let keep = matches!(self.types, Types::First | Types::Masked)
                || (self.types == Types::Select && Some(&i) == operand_args.first());
            let reg = match &args[i] {
                Value::Tensor(t) => {
                    let r = cx.b.input(t.dtype());
                    if keep { r } else { to_common(&mut cx.b, r, compute, result)? }
                }
                number => {
                    if self.types == Types::Select {
                        require_fits(
                            &state.schema.args[i].name,
                            number.scalar()?,
                            filling(promoted),
                        )?;
                    }
                    let r = cx.b.constant(
                        number.scalar()?,
                        if self.types == Types::Compare { compute } else { result },
                    );
                    to_common(&mut cx.b, r, compute, result)?
                }
            };
            cx.regs[i] = Some(reg);
        }
        let mut out = self.build.build(&mut cx)?;
        if cx.b.dtype(out).map_err(Error::other)? != result {
            // The result is rounded to the operator's own dtype before it is converted to the dtype
            // of the target, even if that is wider.
            out = cx.b.cast(out, result).map_err(Error::other)?;
        }
        let out_dtype = target.unwrap_or(result);
        if !can_cast(result, out_dtype) {
            return Err(Error::value(format!(
                "the result has dtype {result}, which cannot be written into a tensor of dtype \
                    {out_dtype}"
            )));
        }
        if result != out_dtype {
            out = cx.b.cast(out, out_dtype).map_err(Error::other)?;
        }
        let expr = cx.b.finish(&[out]).map_err(Error::other)?;
        Ok(CompiledExpr {
            contiguous_kernel: maquette_kernels::ContiguousKernel::new(&expr),
            expr: Arc::new(expr),
            out_dtype,
        })
    }

    /// The dtype in which the expression computes, and that of the operator's result.
    fn dtypes(&self, promoted: DType, args: &[Value]) -> (DType, DType) {
        let float = if promoted.category() == Category::Float { promoted } else { DType::F32 };
        match self.types {
            Types::Select => (promoted, promoted),
            Types::FloatIfNone(i) if args[i].is_none() => (wide(float), float),
            Types::Promote | Types::PromoteContiguous | Types::FloatIfNone(_) => {
                (wide(promoted), promoted)
            }
            Types::Float => (wide(float), float),
            Types::Compare => (promoted, DType::Bool),
            Types::First | Types::Masked => {
                let d = args.first().map_or(promoted, |a| operand(a).dtype);
                (d, d)
            }
        }
    }

    /// Arguments of type `Scalar` whose names are those of operands (`other`, `self`, `min`, …).
    /// They promote as wrapped numbers.
    fn scalar_operands<'a>(&self, state: &'a OpState) -> impl Iterator<Item = usize> + use<'a> {
        use maquette_ir::schema::Type;
        let is_scalar = |ty: &Type| {
            *ty == Type::Scalar || matches!(ty, Type::Optional(t) if **t == Type::Scalar)
        };
        let promotes = |name: &str| matches!(name, "other" | "self" | "exponent" | "min" | "max");
        let args = state.schema.args.iter().enumerate();
        args.filter(move |(_, a)| is_scalar(&a.ty) && promotes(&a.name)).map(|(i, _)| i)
    }
}

/// An operand in the dtype `compute`. It is rounded to the operator's own dtype before, even if the
/// expression computes in a wider one.
fn to_common(b: &mut ExprBuilder, r: Reg, compute: DType, result: DType) -> Result<Reg> {
    let mut r = r;
    let of = b.dtype(r).map_err(Error::other)?;
    if result.is_float() && compute != result && of != compute && of != result {
        r = b.cast(r, result).map_err(Error::other)?;
    }
    if b.dtype(r).map_err(Error::other)? != compute {
        r = b.cast(r, compute).map_err(Error::other)?;
    }
    Ok(r)
}

/// The indices of the arguments that may be tensors.
pub(crate) fn tensor_operands(state: &OpState) -> impl Iterator<Item = usize> {
    state.facts.tensor_args.iter().map(|&i| usize::from(i))
}
