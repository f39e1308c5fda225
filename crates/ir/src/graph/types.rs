//! The data types of a graph: ids, types, arguments, nodes and statements. All except
//! [`TensorType`] are small and `Copy`.

use crate::Effect;
use crate::sym::{BoolExpr, Expr, SymError, SymTable, SymbolId};
use crate::typing::fill_dense_strides;
use crate::{DType, Device, Layout, MemoryFormat};
use smallvec::SmallVec;

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident),+ $(,)?) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub(super) u32);

        impl $name {
            /// The index in the graph's table.
            pub const fn index(self) -> usize {
                self.0 as usize
            }
        }
    )+};
}

ids!(
    /// A node: one call of an operator. In a finished graph, node ids increase in program order.
    NodeId,
    /// A value: an input, a constant or one result of a node.
    ValueId,
    /// An interned [`TensorType`].
    TypeId,
    /// An interned string.
    StrId,
);

/// A range in one of the graph's pools.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Span {
    pub(super) start: u32,
    pub(super) len: u32,
}

impl Span {
    /// The number of entries.
    pub const fn len(self) -> usize {
        self.len as usize
    }

    /// Whether there are no entries.
    pub const fn is_empty(self) -> bool {
        self.len == 0
    }

    /// The slice of a pool; `None` if the range exceeds it.
    pub(super) fn get<T>(self, pool: &[T]) -> Option<&[T]> {
        let start = self.start as usize;
        pool.get(start..start.checked_add(self.len())?)
    }
}

/// A range of values with consecutive ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct ValueRange(pub(super) Span);

impl ValueRange {
    /// The number of values.
    pub const fn len(self) -> usize {
        self.0.len()
    }

    /// Whether there are no values.
    pub const fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    /// The `i`-th value.
    pub fn get(self, i: usize) -> Option<ValueId> {
        (i < self.len()).then(|| ValueId(self.0.start.wrapping_add(i as u32)))
    }

    /// The values, in order.
    pub fn iter(self) -> impl Iterator<Item = ValueId> {
        (0..self.len()).filter_map(move |i| self.get(i))
    }
}

/// A tensor's metadata. Sizes and strides have the same rank; strides and offset are in elements.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TensorType {
    /// The element type.
    pub dtype: DType,
    /// The device of the storage.
    pub device: Device,
    /// The layout; always strided in a valid graph.
    pub layout: Layout,
    /// The number of elements along each dimension.
    pub sizes: SmallVec<[Expr; 4]>,
    /// The distance between consecutive elements along each dimension, in elements.
    pub strides: SmallVec<[Expr; 4]>,
    /// The position of the first element in the storage, in elements.
    pub offset: Expr,
    /// Whether the tensor requires gradients.
    pub requires_grad: bool,
}

impl TensorType {
    /// A contiguous tensor on the host, with offset 0 and without gradient.
    ///
    /// # Errors
    /// A stride overflows.
    pub fn contiguous(
        dtype: DType,
        sizes: &[Expr],
        symbols: &mut SymTable,
    ) -> Result<TensorType, SymError> {
        Ok(TensorType {
            dtype,
            device: Device::Cpu,
            layout: Layout::Strided,
            strides: contiguous_strides(sizes, symbols)?,
            sizes: sizes.into(),
            offset: Expr::Int(0),
            requires_grad: false,
        })
    }

    /// The number of dimensions.
    pub fn rank(&self) -> usize {
        self.sizes.len()
    }

    /// All expressions of the type: sizes, strides, offset.
    pub fn exprs(&self) -> impl Iterator<Item = Expr> {
        self.sizes.iter().chain(&self.strides).copied().chain([self.offset])
    }
}

/// Row-major strides as in PyTorch: the product of `max(size, 1)` over the inner dimensions.
pub(super) fn contiguous_strides(
    sizes: &[Expr],
    symbols: &mut SymTable,
) -> Result<SmallVec<[Expr; 4]>, SymError> {
    let mut strides: SmallVec<[Expr; 4]> = SmallVec::from_elem(Expr::Int(1), sizes.len());
    let times = |stride: Expr, size: Expr| {
        let extent = match size {
            Expr::Int(n) => Expr::Int(n.max(1)),
            size => symbols.max(size, Expr::Int(1))?,
        };
        match (stride, extent) {
            (Expr::Int(1), e) | (e, Expr::Int(1)) => Ok(e),
            (a, b) => symbols.mul(a, b),
        }
    };
    let row_major = (0..sizes.len()).rev();
    fill_dense_strides(sizes, &mut strides, row_major, Expr::Int(1), times)?;
    Ok(strides)
}

/// The type of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ValueType {
    /// A tensor.
    Tensor(TypeId),
    /// An integer equal to this expression. For an input or a data-dependent result, the expression
    /// is a single symbol.
    Int(Expr),
    /// A floating-point number.
    Float,
    /// A boolean.
    Bool,
    /// A string.
    Str,
}

/// A float with bitwise equality and hash: `-0.0` differs from `0.0`, and a NaN equals a NaN of the
/// same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FloatBits(u64);

impl FloatBits {
    /// The number.
    pub const fn get(self) -> f64 {
        f64::from_bits(self.0)
    }
}

impl From<f64> for FloatBits {
    fn from(x: f64) -> FloatBits {
        FloatBits(x.to_bits())
    }
}

/// An argument of a node, or an output of the graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Arg {
    /// A value of the graph.
    Value(ValueId),
    /// `None`: an absent optional argument.
    None,
    /// An integer, which may be symbolic.
    Int(Expr),
    /// A floating-point number.
    Float(FloatBits),
    /// A boolean.
    Bool(bool),
    /// A string.
    Str(StrId),
    /// An element type.
    DType(DType),
    /// A device.
    Device(Device),
    /// A layout.
    Layout(Layout),
    /// A memory format.
    MemoryFormat(MemoryFormat),
    /// A list: a range in the graph's argument pool.
    List(Span),
}

const _: () = assert!(size_of::<Arg>() == 16);

/// One result of an operator's schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Res {
    /// A single value.
    Value(ValueId),
    /// A list of values.
    List(ValueRange),
    /// An optional result that this call does not return.
    Absent,
}

impl Res {
    /// The values of the result.
    pub fn values(self) -> ValueRange {
        match self {
            Res::Value(v) => ValueRange(Span { start: v.0, len: 1 }),
            Res::List(values) => values,
            Res::Absent => ValueRange::default(),
        }
    }
}

/// One call of an operator. [`super::Graph::args`] and similar methods resolve its ranges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node {
    pub(super) op: StrId,
    pub(super) args: Span,
    pub(super) kwargs: Span,
    pub(super) results: Span,
    /// The effect of the call besides its results and mutations.
    pub(super) effect: Option<Effect<StrId>>,
    /// Results that the schema allows to be views of an argument are copies in this call.
    pub(super) copies: bool,
}

/// A statement. The order of statements is the program order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stmt {
    /// A call of an operator.
    Node(NodeId),
    /// Defines an unbacked symbol from data.
    Bind {
        /// The symbol.
        symbol: SymbolId,
        /// The value that determines it.
        value: ValueId,
        /// The property of the value.
        source: BindSource,
    },
    /// A runtime assertion.
    Assert {
        /// The condition that must hold.
        cond: BoolExpr,
        /// The message if it fails.
        message: Option<StrId>,
    },
}

/// The property that a bind statement reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BindSource {
    /// The size of a tensor along a dimension.
    Size(u32),
    /// The integer value itself.
    Value,
}

/// The definition of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Def {
    /// The `i`-th input.
    Input(u32),
    /// The `i`-th constant.
    Const(u32),
    /// A result of a node.
    Node(NodeId),
}

/// The name of a value: `base` if the number is 0, else `base_number`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Name {
    /// The text before the number.
    pub base: StrId,
    /// The number, from 1; 0 means no number.
    pub number: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Value {
    pub ty: ValueType,
    pub name: Name,
    pub def: Def,
}

/// Data of a graph that its equality ignores: source locations, and indexes built on demand.
#[derive(Clone, Debug, Default)]
pub(super) struct IgnoredInEq<T>(pub T);

impl<T> PartialEq for IgnoredInEq<T> {
    fn eq(&self, _: &IgnoredInEq<T>) -> bool {
        true
    }
}
