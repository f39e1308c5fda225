//! The inputs of one call, flattened: what guards look at.

use maquette_ir::sym::SymInt;
use maquette_ir::{DType, Device, Layout};
use maquette_ops::internals::{MetaInternals, TensorInternals};
use maquette_ops::tree::{TreeSpec, flatten_values};
use maquette_ops::{Meta, Result, Tree, Value};
use smallvec::SmallVec;

/// In place of a number that is symbolic. No guard accepts it.
pub(crate) const UNKNOWN: i64 = i64::MIN;

/// The flattened inputs of a call.
pub(crate) struct CallInputs {
    /// The structure of the input tree.
    pub(crate) spec: TreeSpec,
    /// Its leaves.
    pub(crate) values: Vec<Value>,
    /// For each leaf in order: the sizes, strides and offset of a tensor; the value of an integer.
    pub(crate) numbers: Numbers,
    /// Whether a tensor has no data: a fake kernel calls the function, or another trace does.
    pub(crate) is_fake: bool,
    /// The first leaf that is a tensor which requires a gradient.
    pub(crate) requires_grad: Option<usize>,
}

/// The numbers that most calls have at most.
const FEW: usize = 32;

type Numbers = SmallVec<[i64; FEW]>;

/// Numbers as they come. Their count is a variable of the caller, and not in memory: each look-up
/// counts them, and a count in memory waits for its last change.
struct FlatNumbers {
    few: [i64; FEW],
    count: usize,
    /// All numbers, once there are too many.
    many: Vec<i64>,
}

impl FlatNumbers {
    #[inline]
    fn new() -> FlatNumbers {
        FlatNumbers { few: [0; FEW], count: 0, many: Vec::new() }
    }

    #[inline]
    fn push(&mut self, number: i64) {
        match self.few.get_mut(self.count) {
            Some(place) => *place = number,
            None => self.spill(number),
        }
        self.count += 1;
    }

    #[cold]
    fn spill(&mut self, number: i64) {
        if self.many.is_empty() {
            self.many.extend(self.few);
        }
        self.many.push(number);
    }

    #[inline]
    fn finish(self) -> Numbers {
        match self.many.is_empty() {
            true => Numbers::from_buf_and_len(self.few, self.count),
            false => self.many.into(),
        }
    }
}

/// What is known of a call after it: everything that guards look at, and no tensor.
#[derive(Clone, Debug)]
pub(crate) struct Signature {
    pub(crate) spec: TreeSpec,
    pub(crate) leaves: Vec<LeafSignature>,
    pub(crate) numbers: Vec<i64>,
}

/// A leaf of a [`Signature`]. Sizes, strides, offsets and integers are among its numbers.
#[derive(Clone, Debug)]
pub(crate) enum LeafSignature {
    Tensor(TensorClass),
    Integer,
    /// A float or a bool.
    Other(Value),
}

/// What two tensors have in common for which one program can serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TensorClass {
    pub(crate) dtype: DType,
    pub(crate) device: Device,
    pub(crate) layout: Layout,
    pub(crate) rank: usize,
}

impl CallInputs {
    /// Flattens the inputs of a call.
    ///
    /// # Errors
    /// As [`Tree::flatten`].
    pub(crate) fn of(inputs: &impl Tree) -> Result<CallInputs> {
        let (spec, values) = flatten_values(inputs)?;
        let (mut numbers, mut is_fake, mut requires_grad) = (FlatNumbers::new(), false, None);
        let number = |n: &SymInt| n.as_i64().unwrap_or(UNKNOWN);
        for (leaf, value) in values.iter().enumerate() {
            match value {
                Value::Tensor(t) => {
                    let meta = t.meta();
                    is_fake |= t.is_fake();
                    if t.tracks_gradient() && requires_grad.is_none() {
                        requires_grad = Some(leaf);
                    }
                    // loops, which are faster than `extend` for so few numbers
                    for size in &meta.sizes {
                        numbers.push(number(size));
                    }
                    for stride in &meta.strides {
                        numbers.push(number(stride));
                    }
                    numbers.push(number(&meta.offset()));
                }
                Value::Int(i) => {
                    is_fake |= i.as_i64().is_none();
                    numbers.push(number(i));
                }
                _ => {}
            }
        }
        Ok(CallInputs { spec, values, numbers: numbers.finish(), is_fake, requires_grad })
    }

    /// What is known of the call after it.
    pub(crate) fn signature(&self) -> Signature {
        let leaf = |value: &Value| match value {
            Value::Tensor(t) => LeafSignature::Tensor(TensorClass::of(t.meta())),
            Value::Int(_) => LeafSignature::Integer,
            other => LeafSignature::Other(other.clone()),
        };
        Signature {
            spec: self.spec.clone(),
            leaves: self.values.iter().map(leaf).collect(),
            numbers: self.numbers.to_vec(),
        }
    }
}

impl TensorClass {
    pub(crate) fn of(meta: &Meta) -> TensorClass {
        let Meta { dtype, device, layout, ref sizes, .. } = *meta;
        TensorClass { dtype, device, layout, rank: sizes.len() }
    }
}

impl LeafSignature {
    /// How many numbers the leaf has.
    pub(crate) fn count(&self) -> usize {
        match self {
            LeafSignature::Tensor(class) => 2 * class.rank + 1,
            LeafSignature::Integer => 1,
            LeafSignature::Other(_) => 0,
        }
    }

    /// Whether two leaves differ in their numbers at most.
    fn is_like(&self, other: &LeafSignature) -> bool {
        match (self, other) {
            (LeafSignature::Tensor(a), LeafSignature::Tensor(b)) => a == b,
            (LeafSignature::Integer, LeafSignature::Integer) => true,
            (LeafSignature::Other(a), LeafSignature::Other(b)) => equal(a, b),
            _ => false,
        }
    }
}

impl Signature {
    /// Whether two calls differ in their numbers at most.
    pub(crate) fn is_like(&self, other: &Signature) -> bool {
        self.spec == other.spec
            && self.leaves.len() == other.leaves.len()
            && self.leaves.iter().zip(&other.leaves).all(|(a, b)| a.is_like(b))
    }
}

/// Whether two plain numbers are equal, floats in bits.
pub(crate) fn equal(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Int(a), Value::Int(b)) => a.as_i64().is_some() && a.as_i64() == b.as_i64(),
        (Value::Float(a), Value::Float(b)) => a.to_bits() == b.to_bits(),
        (Value::Bool(a), Value::Bool(b)) => a == b,
        _ => false,
    }
}
