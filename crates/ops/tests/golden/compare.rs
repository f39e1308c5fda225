//! What must agree, and how closely: PyTorch's own tolerances.

use crate::reader::{Decode, Layouts, Recorded, typed};
use maquette_ir::DType;
use maquette_ops::{Tensor, Value};
use serde_json::Value as Json;

/// The returns of a call.
pub fn outputs(call: &Recorded, found: &[Value]) -> Result<(), String> {
    let mut expected = Vec::new();
    flatten_json(&call.out, &mut expected);
    let mut values = Vec::new();
    found.iter().for_each(|v| flatten(v, &mut values));
    if expected.len() != values.len() {
        return Err(format!("{} results, not {}", values.len(), expected.len()));
    }
    expected.iter().zip(&values).enumerate().try_for_each(|(i, (e, v))| value(call, e, v).map_err(|m| format!("output {i}: {m}")))
}

/// The arguments after a call that mutates.
pub fn arguments(call: &Recorded, args: &[Value]) -> Result<(), String> {
    let Some(after) = &call.after else { return Ok(()) };
    let pairs = after.iter().zip(args).enumerate();
    pairs
        .filter(|(_, (e, _))| e.get("t").is_some())
        .try_for_each(|(i, (e, v))| value(call, e, v).map_err(|m| format!("argument {i} afterwards: {m}")))
}

fn flatten_json<'a>(j: &'a Json, out: &mut Vec<&'a Json>) {
    match j {
        Json::Array(l) => l.iter().for_each(|x| flatten_json(x, out)),
        other => out.push(other),
    }
}

fn flatten(v: &Value, out: &mut Vec<Value>) {
    match v {
        Value::List(l) => l.iter().for_each(|x| flatten(x, out)),
        other => out.push(other.clone()),
    }
}

fn value(call: &Recorded, expected: &Json, found: &Value) -> Result<(), String> {
    match (Layouts::of(expected), found) {
        (Some(l), Value::Tensor(t)) => tensor(call, expected, &l, t),
        (None, Value::Bool(b)) if expected.as_bool() == Some(*b) => Ok(()),
        (None, Value::Int(i)) if expected.as_i64() == i.as_i64() => Ok(()),
        _ => Err(format!("found {}, not {expected}", found.kind())),
    }
}

fn tensor(call: &Recorded, json: &Json, l: &Layouts, t: &Tensor) -> Result<(), String> {
    let found = t.meta().concrete().ok_or("symbolic sizes")?;
    if t.dtype() != l.dtype || found.sizes.as_slice() != l.sizes || found.offset != l.offset && !l.sizes.contains(&0) {
        return Err(format!("found {}, not {json}", t.meta()));
    }
    // strides of size-1 dimensions and of empty tensors are not observable
    let strides_agree = found.strides.iter().zip(&l.strides).zip(&l.sizes).all(|((a, b), n)| *n == 1 || a == b);
    if !strides_agree && !l.sizes.contains(&0) {
        return Err(format!("found strides {:?}, not {:?}, of sizes {:?}", found.strides, l.strides, l.sizes));
    }
    typed!(l.dtype, T => elements::<T>(call, json, l, t))
}

fn elements<T: Decode + Into<Number>>(call: &Recorded, json: &Json, l: &Layouts, t: &Tensor) -> Result<(), String> {
    let storage = call.elements::<T>(json);
    let found = t.to_vec::<T>().map_err(|e| e.to_string())?;
    let (relative, absolute) = match l.dtype {
        DType::F32 => (1.3e-6, 1e-5),
        DType::BF16 => (1.6e-2, 1e-5),
        DType::F16 => (1e-3, 1e-5),
        DType::F64 => (1e-7, 1e-7),
        _ => (0.0, 0.0),
    };
    for (i, x) in found.iter().enumerate() {
        let at = position(i, l);
        let e = *storage.get(at).ok_or("the recorded storage is too short")?;
        if !close(e.into(), (*x).into(), relative, absolute) {
            return Err(format!("element {i} is {x:?}, not {e:?}"));
        }
    }
    Ok(())
}

/// Where element `i` in row-major order is stored.
fn position(mut i: usize, l: &Layouts) -> usize {
    let mut at = l.offset;
    for (&n, &s) in l.sizes.iter().zip(&l.strides).rev() {
        at += (i % n as usize) as i64 * s;
        i /= n as usize;
    }
    at as usize
}

/// An element, exactly.
pub enum Number {
    Float(f64),
    Int(i64),
}

macro_rules! number {
    ($($t:ty => $v:ident),*) => { $(impl From<$t> for Number { fn from(x: $t) -> Number { Number::$v(x.into()) } })* };
}
number!(bool => Int, u8 => Int, i8 => Int, i16 => Int, i32 => Int, i64 => Int, half::f16 => Float, half::bf16 => Float, f32 => Float, f64 => Float);

fn close(e: Number, x: Number, relative: f64, absolute: f64) -> bool {
    match (e, x) {
        (Number::Float(e), Number::Float(x)) => e == x || e.is_nan() && x.is_nan() || (e - x).abs() <= absolute + relative * e.abs(),
        (Number::Int(e), Number::Int(x)) => e == x,
        _ => false,
    }
}
