//! What every check needs of values: to take them apart, to print them, and to see their bits.

use maquette_ir::DType;
use maquette_ops::internals::{MetaInternals, wait_for};
use maquette_ops::tree::{Leaves, TreeSpec};
use maquette_ops::{Element, Error, Result, Tensor, Tree, Value, call, message_of_panic, typed};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Elements as little-endian bytes.
pub trait Bytes: Element + std::fmt::Debug {
    fn decode(bytes: &[u8]) -> Self;
    fn encode(self, out: &mut Vec<u8>);
    /// The number, or the one NaN: sign and payload of a NaN depend on the kernel.
    fn plain(self) -> Self {
        self
    }
    /// Whether two elements have equal bits, or are both NaN.
    fn is_same(self, other: Self) -> bool;
}

macro_rules! bytes {
    ($($t:ty $(: $plain:expr)?),*) => { $(impl Bytes for $t {
        fn decode(bytes: &[u8]) -> Self {
            bytes.try_into().map(<$t>::from_le_bytes).unwrap_or_default()
        }
        fn encode(self, out: &mut Vec<u8>) {
            out.extend(self.to_le_bytes());
        }
        $(fn plain(self) -> Self {
            if self.is_nan() { $plain } else { self }
        })?
        fn is_same(self, other: $t) -> bool {
            self.plain().to_le_bytes() == other.plain().to_le_bytes()
        }
    })* };
}
bytes!(u8, i8, i16, i32, i64, half::f16: half::f16::NAN, half::bf16: half::bf16::NAN);
bytes!(f32: f32::NAN, f64: f64::NAN);

impl Bytes for bool {
    fn decode(bytes: &[u8]) -> Self {
        bytes.first().is_some_and(|b| *b != 0)
    }
    fn encode(self, out: &mut Vec<u8>) {
        out.push(u8::from(self));
    }
    fn is_same(self, other: bool) -> bool {
        self == other
    }
}

/// The values in lists and tuples, one after another.
pub fn flatten(values: &[Value]) -> Vec<Value> {
    let mut out = Vec::new();
    for v in values {
        match v {
            Value::List(l) => out.extend(flatten(l)),
            Value::Ints(l) => out.extend(l.iter().map(|i| Value::Int(*i))),
            other => out.push(other.clone()),
        }
    }
    out
}

/// A value, to be read.
pub fn show(v: &Value) -> String {
    match v {
        Value::None => "None".to_owned(),
        Value::Tensor(t) => format!("{t:?}"),
        Value::Ints(l) => {
            format!("[{}]", l.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))
        }
        Value::List(l) => format!("[{}]", l.iter().map(show).collect::<Vec<_>>().join(", ")),
        Value::Int(i) => i.to_string(),
        Value::Float(x) => format!("{x:?}"),
        Value::Bool(b) => b.to_string(),
        Value::Str(s) => format!("{s:?}"),
        Value::DType(d) => d.to_string(),
        Value::Device(d) => d.to_string(),
        Value::Layout(l) => l.to_string(),
        Value::MemoryFormat(m) => m.to_string(),
    }
}

/// The one result of an operator that returns one tensor.
pub fn call_single(op: &str, args: maquette_ops::Args) -> Result<Tensor> {
    let out = call(op, args)?;
    out.first().ok_or_else(|| Error::value(format!("{op} returned nothing")))?.tensor().cloned()
}

/// A tensor of these elements on the device of `t`. The tensor is poisoned if the copy fails.
pub fn on_device_of<T: Element>(t: &Tensor, elements: Vec<T>, sizes: &[i64]) -> Tensor {
    Tensor::from_vec(elements, sizes).to_device(t.device())
}

/// Waits until a tensor is computed.
///
/// # Errors
/// The tensor is poisoned; its device has failed.
pub fn computed(t: &Tensor) -> Result<&Tensor> {
    wait_for(t.device())?;
    t.ok()
}

/// The whole storage behind a tensor, as elements of its dtype.
pub fn whole_storage(t: &Tensor) -> Result<Tensor> {
    let n = (t.storage()?.len() / t.dtype().size()) as i64;
    call_single("aten::as_strided", maquette_ops::args![t, [n], [1], 0])
}

/// The bytes of a tensor's elements in row-major order.
pub fn element_bytes(t: &Tensor) -> Result<Vec<u8>> {
    typed!(t.dtype(), T => {
        let elements = t.to_vec::<T>()?;
        let mut bytes = Vec::with_capacity(elements.len() * size_of::<T>());
        elements.into_iter().for_each(|x| x.encode(&mut bytes));
        Ok(bytes)
    })
}

/// Whether elements that [`element_bytes`] gave have equal bits, apart from those of NaNs.
pub fn are_same_elements(dtype: DType, a: &[u8], b: &[u8]) -> bool {
    let width = dtype.size();
    typed!(dtype, T => {
        let mut pairs = a.chunks(width).zip(b.chunks(width));
        a.len() == b.len() && pairs.all(|(x, y)| T::decode(x).is_same(T::decode(y)))
    })
}

/// How the metadata of a tensor differs from what is expected, as far as it can be observed.
pub fn compare_metadata(expected: &Tensor, found: &Tensor) -> Result<(), String> {
    let (Some(e), Some(f)) = (expected.meta().concrete(), found.meta().concrete()) else {
        return Err(format!("expected static sizes, found the symbolic {}", found.meta()));
    };
    let empty = e.sizes.contains(&0);
    if expected.dtype() != found.dtype() || e.sizes != f.sizes || e.offset != f.offset && !empty {
        return Err(format!("found {}, expected {}", found.meta(), expected.meta()));
    }
    // strides of size-1 dimensions and of empty tensors are not observable
    let agree = e.strides.iter().zip(&f.strides).zip(&e.sizes).all(|((a, b), n)| *n == 1 || a == b);
    if agree || empty {
        Ok(())
    } else {
        Err(format!(
            "found strides {:?}, expected {:?}, for sizes {:?}",
            f.strides, e.strides, e.sizes
        ))
    }
}

/// Runs user code; a panic is an error as well.
pub fn catch_panics<R>(what: &str, f: impl FnOnce() -> Result<R>) -> Result<R> {
    catch_unwind(AssertUnwindSafe(f)).unwrap_or_else(|panic| {
        let text = message_of_panic(panic).unwrap_or_else(|| "without a message".to_owned());
        Err(Error::value(format!("{what} panicked: {text}")))
    })
}

/// Any number of tensors and numbers: what a call takes and returns.
pub struct FlatValues(pub Vec<Value>);

impl Tree for FlatValues {
    type Output = FlatValues;

    fn flatten(&self, leaves: &mut Leaves) -> Result<TreeSpec> {
        // an absent optional is not a leaf
        Ok(TreeSpec::List(
            self.0.iter().filter(|v| !v.is_none()).map(|v| leaves.push(v.clone())).collect(),
        ))
    }

    fn unflatten(spec: &TreeSpec, leaves: &mut dyn Iterator<Item = Value>) -> Result<FlatValues> {
        match spec {
            TreeSpec::List(l) => Ok(FlatValues(leaves.take(l.len()).collect())),
            other => Err(maquette_ops::tree::wrong_shape("a list", other)),
        }
    }
}
