//! The plain data of a graph: ids, types, arguments, nodes and statements. All of it is small and
//! `Copy`, except [`TensorType`].

use crate::sym::{BoolExpr, Expr, SymError, SymTable, SymbolId};
use crate::{DType, Device, Layout, MemoryFormat};
use smallvec::SmallVec;

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident),+ $(,)?) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub(super) u32);

        impl $name {
            /// The position in the graph's table.
            pub const fn index(self) -> usize {
                self.0 as usize
            }
        }
    )+};
}

ids!(
    /// A node: one call of an operator. In a finished graph, ids count up in program order.
    NodeId,
    /// A value: an input, a constant or one result of a node.
    ValueId,
    /// An interned [`TensorType`].
    TypeId,
    /// An interned string.
    StrId,
);

/// A range of one of the graph's pools.
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

    /// The slice of a pool; `None` if it ends before the span does.
    pub(super) fn get<T>(self, pool: &[T]) -> Option<&[T]> {
        let start = self.start as usize;
        pool.get(start..start.checked_add(self.len())?)
    }
}

/// Values with consecutive ids.
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

/// A tensor's metadata. Sizes and strides are in elements, and of equal rank.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TensorType {
    /// Element type.
    pub dtype: DType,
    /// Where the storage is.
    pub device: Device,
    /// Only strided tensors exist.
    pub layout: Layout,
    /// Extent of each dimension.
    pub sizes: SmallVec<[Expr; 4]>,
    /// Distance between neighbours along each dimension, in elements.
    pub strides: SmallVec<[Expr; 4]>,
    /// First element's position in the storage, in elements.
    pub offset: Expr,
    /// Whether gradients are recorded for it.
    pub requires_grad: bool,
}

impl TensorType {
    /// A contiguous, strided tensor on the host with offset 0 and without gradient.
    ///
    /// # Errors
    /// If a stride overflows.
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

    /// Every expression in it: sizes, strides, offset.
    pub fn exprs(&self) -> impl Iterator<Item = Expr> {
        self.sizes.iter().chain(&self.strides).copied().chain([self.offset])
    }
}

/// Row-major strides as PyTorch gives them: the product of `max(size, 1)` over the dimensions to
/// the right.
pub(super) fn contiguous_strides(
    sizes: &[Expr],
    symbols: &mut SymTable,
) -> Result<SmallVec<[Expr; 4]>, SymError> {
    let mut strides: SmallVec<[Expr; 4]> = SmallVec::from_elem(Expr::Int(1), sizes.len());
    let mut next = Expr::Int(1);
    for (stride, &size) in strides.iter_mut().zip(sizes).rev() {
        *stride = next;
        let extent = match size {
            Expr::Int(n) => Expr::Int(n.max(1)),
            size => symbols.max(size, Expr::Int(1))?,
        };
        next = match (next, extent) {
            (Expr::Int(1), e) | (e, Expr::Int(1)) => e,
            (a, b) => symbols.mul(a, b)?,
        };
    }
    Ok(strides)
}

/// What kind of value an operator's result or an input is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ValueType {
    /// A tensor.
    Tensor(TypeId),
    /// An integer known as this expression; for an input or a data-dependent result, a plain
    /// symbol.
    Int(Expr),
    /// A floating-point number.
    Float,
    /// A boolean.
    Bool,
    /// A string.
    Str,
}

/// A float compared and hashed by its bits, so that `-0.0` differs from `0.0` and a NaN equals
/// itself.
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
    /// An absent optional.
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
    /// A list, in the graph's argument pool.
    List(Span),
}

const _: () = assert!(size_of::<Arg>() == 16);

/// One of the results an operator's schema declares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Res {
    /// A single value.
    Value(ValueId),
    /// A list of values.
    List(ValueRange),
    /// An optional result that this call does not give.
    Absent,
}

impl Res {
    /// The values in it.
    pub fn values(self) -> ValueRange {
        match self {
            Res::Value(v) => ValueRange(Span { start: v.0, len: 1 }),
            Res::List(values) => values,
            Res::Absent => ValueRange::default(),
        }
    }
}

/// One call of an operator. Read it through [`super::Graph::args`] and its neighbours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node {
    pub(super) op: StrId,
    pub(super) args: Span,
    pub(super) kwargs: Span,
    pub(super) results: Span,
    /// It does something besides its results and mutations.
    pub(super) effect: bool,
    /// Results that may be views of an argument are copies.
    pub(super) copies: bool,
}

/// A statement. Their order is the program's order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stmt {
    /// A call of an operator.
    Node(NodeId),
    /// Defines an unbacked symbol from data.
    Bind {
        /// The symbol.
        symbol: SymbolId,
        /// The value it is read from.
        value: ValueId,
        /// What of the value.
        source: BindSource,
    },
    /// A check at run time.
    Assert {
        /// What must hold.
        cond: BoolExpr,
        /// What to say if it does not.
        message: Option<StrId>,
    },
}

/// What a bind statement reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BindSource {
    /// A tensor's size in one dimension.
    Size(u32),
    /// An integer value itself.
    Value,
}

/// Where a value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Def {
    /// The `i`-th input.
    Input(u32),
    /// The `i`-th constant.
    Const(u32),
    /// A result of a node.
    Node(NodeId),
}

/// A value's name: `base` alone if the number is 0, else `base_number`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Name {
    /// The text before the number.
    pub base: StrId,
    /// From 1; 0 stands for no number.
    pub number: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Value {
    pub ty: ValueType,
    pub name: Name,
    pub def: Def,
}

/// Data beside a graph that is no part of its meaning (source locations, indexes built on demand):
/// any two are equal.
#[derive(Clone, Debug, Default)]
pub(super) struct IgnoredInEq<T>(pub T);

impl<T> PartialEq for IgnoredInEq<T> {
    fn eq(&self, _: &IgnoredInEq<T>) -> bool {
        true
    }
}
