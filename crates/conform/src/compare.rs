//! What must agree, and how closely: PyTorch's own tolerances.

use maquette_check::values::{Bytes, compare_metadata, flatten};
use maquette_ir::DType;
use maquette_ops::{Tensor, Value, typed};

/// Operators that may give any of the positions of equal elements, with the dimension among their
/// arguments.
const ANY_OF_EQUAL: &[(&str, usize)] = &[
    ("aten::argsort", 1),
    ("aten::kthvalue", 2),
    ("aten::median.dim", 1),
    ("aten::mode", 1),
    ("aten::nanmedian.dim", 1),
    ("aten::sort", 1),
    ("aten::topk", 2),
];

/// The results of a call of `name` with `args`.
pub(super) fn outputs(
    name: &str,
    args: &[Value],
    expected: &[Value],
    found: &[Value],
) -> Result<(), String> {
    let (expected, found) = (flatten(expected), flatten(found));
    if expected.len() != found.len() {
        return Err(format!("found {} results, expected {}", found.len(), expected.len()));
    }
    for (i, (e, f)) in expected.iter().zip(&found).enumerate() {
        let outcome = value(e, f).or_else(|difference| {
            let dim = ANY_OF_EQUAL
                .iter()
                .find(|(n, _)| *n == name)
                .and_then(|(_, at)| args.get(*at)?.int_i64().ok());
            match (dim, args.first(), e, f) {
                (Some(dim), Some(Value::Tensor(x)), Value::Tensor(e), Value::Tensor(f))
                    if e.dtype() == DType::I64 =>
                {
                    same_elements(x, dim, e, f).map_err(|_| difference)
                }
                _ => Err(difference),
            }
        });
        outcome.map_err(|m| format!("output {i}: {m}"))?;
    }
    Ok(())
}

/// Other positions, none of them twice, of the same elements.
fn same_elements(x: &Tensor, dim: i64, expected: &Tensor, found: &Tensor) -> Result<(), String> {
    compare_metadata(expected, found)?;
    let at = |index: &Tensor| {
        let index = if index.dim() < x.dim() { index.unsqueeze(dim) } else { index.clone() };
        Value::from(x.gather(dim, &index))
    };
    value(&at(expected), &at(found))?;
    if found.dim() == x.dim() && found.dim() > 0 {
        let sorted = found.sort(dim, false).0;
        let next = sorted.narrow(dim, 1, sorted.size(dim) - 1).ne(sorted.narrow(
            dim,
            0,
            sorted.size(dim) - 1,
        ));
        if !next.all().to_vec::<bool>().map_err(|e| e.to_string())?.iter().all(|distinct| *distinct)
        {
            return Err("duplicate position".into());
        }
    }
    Ok(())
}

/// One value.
pub(super) fn value(expected: &Value, found: &Value) -> Result<(), String> {
    match (expected, found) {
        (Value::Tensor(e), Value::Tensor(f)) => {
            compare_metadata(e, f)?;
            typed!(e.dtype(), T => elements::<T>(e, f))
        }
        (Value::Bool(e), Value::Bool(f)) if e == f => Ok(()),
        (Value::Int(e), Value::Int(f)) if e.as_i64() == f.as_i64() => Ok(()),
        (Value::Float(e), Value::Float(f))
            if close(Number::Float(*e), Number::Float(*f), (1e-7, 1e-7)) =>
        {
            Ok(())
        }
        (Value::None, Value::None) => Ok(()),
        _ => Err(format!("found {found:?}, expected {expected:?}")),
    }
}

/// The relative and absolute tolerance of a dtype.
const fn tolerance(d: DType) -> (f64, f64) {
    match d {
        DType::F32 => (1.3e-6, 1e-5),
        DType::BF16 => (1.6e-2, 1e-5),
        DType::F16 => (1e-3, 1e-5),
        DType::F64 => (1e-7, 1e-7),
        _ => (0.0, 0.0),
    }
}

fn elements<T: Bytes + Into<Number>>(expected: &Tensor, found: &Tensor) -> Result<(), String> {
    let tolerance = tolerance(expected.dtype());
    let read = |t: &Tensor| t.to_vec::<T>().map_err(|e| e.to_string());
    let (expected, found) = (read(expected)?, read(found)?);
    let differ: Vec<usize> = (0..found.len())
        .filter(|&i| !close(expected[i].into(), found[i].into(), tolerance))
        .collect();
    match differ.first() {
        None => Ok(()),
        Some(&i) => Err(format!(
            "element {i} is {:?}, expected {:?}; {} of {} elements differ",
            found[i],
            expected[i],
            differ.len(),
            found.len()
        )),
    }
}

/// Whether all elements have equal bits, or are NaN in both.
pub(super) fn equal_bits(a: &Tensor, b: &Tensor) -> Result<bool, String> {
    fn equal<T: Bytes + Into<Number>>(a: &Tensor, b: &Tensor) -> Result<bool, String> {
        let read = |t: &Tensor| t.to_vec::<T>().map_err(|e| e.to_string());
        let (a, b) = (read(a)?, read(b)?);
        Ok(a.len() == b.len()
            && a.into_iter().zip(b).all(|(a, b)| match (a.into(), b.into()) {
                (Number::Float(a), Number::Float(b)) => {
                    a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan()
                }
                (Number::Int(a), Number::Int(b)) => a == b,
                _ => false,
            }))
    }
    typed!(a.dtype(), T => equal::<T>(a, b))
}

/// An element, exactly.
#[derive(Clone, Copy)]
pub(super) enum Number {
    Float(f64),
    Int(i64),
}

macro_rules! number {
    ($($v:ident: $($t:ty),*;)*) => { $($(
        impl From<$t> for Number {
            fn from(x: $t) -> Number {
                Number::$v(x.into())
            }
        }
    )*)* };
}
number! {
    Int: bool, u8, i8, i16, i32, i64;
    Float: half::f16, half::bf16, f32, f64;
}

fn close(e: Number, x: Number, (relative, absolute): (f64, f64)) -> bool {
    match (e, x) {
        // beside an infinity any number would be within the tolerance, which is infinite too
        (Number::Float(e), Number::Float(x)) => {
            e == x
                || e.is_nan() && x.is_nan()
                || e.is_finite() && (e - x).abs() <= absolute + relative * e.abs()
        }
        (Number::Int(e), Number::Int(x)) => e == x,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn infinities_agree_with_themselves_alone() {
        let inf = f64::INFINITY;
        let agree =
            |e: f64, x: f64| close(Number::Float(e), Number::Float(x), tolerance(DType::F32));
        assert!(
            agree(inf, inf)
                && agree(-inf, -inf)
                && agree(f64::NAN, f64::NAN)
                && agree(1.0, 1.000_001)
        );
        for (e, x) in [
            (inf, -inf),
            (-inf, inf),
            (inf, 1.0),
            (-inf, 1.0),
            (1.0, inf),
            (inf, f64::NAN),
            (f64::NAN, inf),
            (1.0, 1.1),
        ] {
            assert!(!agree(e, x), "{x} is not {e}");
        }
    }
}
