//! Checks call arguments against an operator's schema and converts them.
//!
//! The conversions are those of PyTorch's argument parser: defaults for trailing arguments, bool to
//! int, int to float, and one number for a list of fixed length (`int[2]`, `float[3]`).

use crate::dispatch::value::{Args, Value};
use crate::error::{CallError, Error, Result};
use crate::library::OpState;
use maquette_ir::schema::{Arg, Schema, Type};

/// Coerces `args` to the operator's schema, in place: fills in defaults, checks types and converts
/// values.
///
/// # Errors
/// There are too many arguments, a required one is missing, or one has the wrong type.
pub(crate) fn coerce_args(state: &OpState, args: &mut Args) -> Result<()> {
    let schema = &state.schema;
    if args.len() > schema.args.len() {
        return Err(CallError::TooMany {
            expected: schema.args.len(),
            found: args.len(),
            schema: schema.to_string(),
        }
        .into());
    }
    for (index, decl) in schema.args.iter().enumerate().skip(args.len()) {
        match crate::library::default_value(decl) {
            Some(v) => args.push(v),
            None => {
                let (arg, expected) = (decl.name.clone(), decl.ty.to_string());
                return Err(CallError::Missing {
                    arg,
                    index,
                    expected,
                    schema: schema.to_string(),
                }
                .into());
            }
        }
    }
    for (index, (v, decl)) in args.iter_mut().zip(&schema.args).enumerate() {
        if !has_type(&decl.ty, v) && !coerce(&decl.ty, v, state.builtin.is_some()) {
            return Err(wrong_type(schema, index, v));
        }
    }
    Ok(())
}

/// Whether the arguments match the schema without any conversion. Overload resolution tries this
/// first.
pub(crate) fn matches_schema(state: &OpState, args: &[Value]) -> bool {
    let declared = &state.schema.args;
    let (provided, omitted) = declared.split_at(args.len().min(declared.len()));
    let optional = |a: &Arg| a.default.is_some() || matches!(a.ty, Type::Generator);
    args.len() <= declared.len()
        && omitted.iter().all(optional)
        && provided.iter().zip(args).all(|(a, v)| has_type(&a.ty, v))
}

#[cold]
fn wrong_type(schema: &Schema, index: usize, v: &Value) -> Error {
    let decl = &schema.args[index];
    CallError::Type {
        arg: decl.name.clone(),
        index,
        expected: decl.ty.to_string(),
        found: v.kind().to_string(),
        schema: schema.to_string(),
    }
    .into()
}

/// Whether the value already has the type, without a conversion. This is the fast path of
/// [`coerce`].
pub(crate) fn has_type(ty: &Type, v: &Value) -> bool {
    match (ty, v) {
        (Type::Optional(inner), v) => matches!(v, Value::None) || has_type(inner, v),
        (Type::List(inner, _), Value::Ints(_)) => is_int(inner),
        (Type::List(inner, _), Value::List(l)) => {
            !(l.is_empty() && is_int(inner)) && l.iter().all(|x| has_type(inner, x))
        }
        (Type::Tensor, Value::Tensor(_))
        | (Type::Int | Type::SymInt, Value::Int(_))
        | (Type::Float, Value::Float(_))
        | (Type::Bool, Value::Bool(_))
        | (Type::Scalar, Value::Int(_) | Value::Float(_) | Value::Bool(_))
        | (Type::Str, Value::Str(_))
        | (Type::ScalarType, Value::DType(_))
        | (Type::Device, Value::Device(_))
        | (Type::Layout, Value::Layout(_))
        | (Type::MemoryFormat, Value::MemoryFormat(_))
        | (Type::Generator, Value::None)
        | (Type::Any, _) => true,
        _ => false,
    }
}

/// Converts the value to the type where PyTorch does, and returns whether the value then has the
/// type. Builtin operators also take a number where the schema wants a tensor; the number stays a
/// number.
fn coerce(ty: &Type, v: &mut Value, builtin: bool) -> bool {
    match (ty, &mut *v) {
        (ty, v) if has_type(ty, v) => true,
        (Type::Optional(inner), _) => coerce(inner, v, builtin),
        (Type::Tensor, Value::Int(_) | Value::Float(_) | Value::Bool(_)) => builtin,
        (Type::Int | Type::SymInt, Value::Bool(b)) => {
            *v = Value::Int(i64::from(*b).into());
            true
        }
        (Type::Float, Value::Int(i)) => {
            if let Some(i) = i.as_i64() {
                *v = Value::Float(i as f64);
            }
            true
        }
        (Type::List(inner, _), Value::Ints(l)) => {
            let mut l: Box<[Value]> = l.iter().map(|&i| Value::Int(i)).collect();
            let fits = l.iter_mut().all(|x| coerce(inner, x, builtin));
            *v = Value::List(l.into());
            fits
        }
        (Type::List(inner, _), Value::List(l)) => {
            if l.is_empty() && is_int(inner) {
                *v = Value::Ints(Box::new([]));
                return true;
            }
            l.elements_mut().iter_mut().all(|x| coerce(inner, x, builtin))
        }
        // PyTorch repeats the number. Builtin operators take a list of one instead, which they
        // repeat themselves, so graphs have the shorter list.
        (Type::List(inner, Some(n)), Value::Int(i)) if is_int(inner) => {
            let times = if builtin { 1 } else { *n as usize };
            *v = Value::Ints(vec![*i; times].into_boxed_slice());
            true
        }
        (Type::List(inner, Some(n)), Value::Int(_) | Value::Float(_)) if **inner == Type::Float => {
            let fits = coerce(inner, v, builtin);
            *v = Value::List(vec![v.clone(); *n as usize].into_boxed_slice().into());
            fits
        }
        _ => false,
    }
}

fn is_int(ty: &Type) -> bool {
    matches!(ty, Type::Int | Type::SymInt)
}
