//! Facts of operators: the answers that graphs and passes need about an operator, by its name.
//!
//! [`MemoryFacts`] tells an operator's effects on memory, for dependences; [`OpFacts`] adds the
//! facts for rewriting. A default answer is the one that holds for any operator, so that an
//! implementation may leave a fact out and lose an optimization only.

use crate::schema::Schema;
use crate::{DType, Effect};
use std::sync::Arc;

/// The effect of an operator on an argument's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArgEffect {
    /// It may read it.
    Read,
    /// It may read and write it.
    Write,
}

/// The effects of operators on memory, as their schemas say. Arguments and results are numbered as
/// in the schema.
pub trait MemoryFacts {
    /// The number of an argument given by keyword; `None` if the operator has none of this name.
    fn arg_index(&self, op: &str, name: &str) -> Option<usize>;
    /// The name of an argument, for messages.
    fn arg_name(&self, op: &str, arg: usize) -> Option<String> {
        let _ = (op, arg);
        None
    }
    /// The effect on an argument.
    fn arg_effect(&self, op: &str, arg: usize) -> ArgEffect;
    /// The argument whose storage a result shares, or may share.
    fn result_aliases(&self, op: &str, result: usize) -> Option<usize>;
    /// Whether an operator returns views of elements that only its kernel knows, whatever the graph
    /// says: also where the graph says that it copies.
    fn chooses_views(&self, op: &str) -> bool {
        let _ = op;
        false
    }
    /// The effect of an operator beyond its arguments. Calls with effects on one resource keep
    /// their order. A node that the graph marks has an effect too.
    fn effect(&self, op: &str) -> Option<Effect>;
    /// Whether an operator has an effect beyond its arguments.
    fn has_effect(&self, op: &str) -> bool {
        self.effect(op).is_some()
    }
    /// Whether an operator may tell tensors of equal elements and different strides apart.
    fn observes_strides(&self, op: &str) -> bool {
        let _ = op;
        true
    }
    /// Whether an operator draws random numbers. Such calls keep their order, because each call
    /// advances the sequence.
    fn uses_rng(&self, op: &str) -> bool {
        let _ = op;
        false
    }
    /// Whether an operator is one that a program or library registered, for pictures.
    fn is_custom(&self, op: &str) -> bool {
        let _ = op;
        false
    }
}

/// An argument of a call, as far as the call's dtypes depend on it.
#[derive(Clone, Debug, PartialEq)]
pub enum ArgKind<'a> {
    /// A tensor.
    Tensor {
        /// Its dtype.
        dtype: DType,
        /// Its sizes; where they are symbolic, those of one call among many.
        sizes: &'a [i64],
    },
    /// An absent optional.
    None,
    /// An integer; `None` if it is symbolic.
    Int(Option<i64>),
    /// A floating-point number.
    Float(f64),
    /// A boolean.
    Bool(bool),
    /// A string.
    Str(&'a str),
    /// An element type.
    DType(DType),
    /// A list.
    List(Vec<ArgKind<'a>>),
}

/// What an operator computes for each element, of its first argument or its first two, broadcast
/// and promoted. The function is PyTorch's, for every dtype: integers wrap, and NaN in either
/// operand is NaN.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names are the documentation")]
pub enum ArithOp {
    Add,
    Sub,
    Mul,
    Div,
    Max,
    Min,
    And,
    Or,
    Neg,
    Abs,
    Relu,
    /// All bits; of bools, their negation.
    Not,
}

/// The memory to which an operator can write its only result, and a fused kernel its results.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Placement {
    /// A tensor of any strides. Each element is read before its position is written, in any result,
    /// so the tensor may be an operand of the same sizes.
    Elementwise,
    /// A tensor of any strides that does not overlap the operands.
    Anywhere,
    /// A tensor of the strides that the operator chooses, which does not overlap the operands. For
    /// other strides the result is copied.
    Dense,
    /// Memory that it allocates; or its result is not one tensor.
    Allocates,
}

/// What an operator does with images: tensors `[N, C, H, W]`, whose channels may be planes in
/// memory, or last, as the neighbours of a pixel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ImageRole {
    /// It computes them with channels last best, from images of either layout.
    Makes,
    /// Its result has the layout of the images that it reads.
    Keeps,
    /// It may be slow with images whose channels are last; or it knows of no images.
    Other,
}

/// What it takes to compute the results of an operator a second time, with equal bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Recomputation {
    /// It must not be done: a second call may give other bits or has an effect, or nothing is known
    /// of the operator.
    Never,
    /// About the transfer of its operands and results.
    Cheap,
    /// Much arithmetic for each element, as of a product or a convolution.
    Expensive,
}

/// What decides which elements the views have that an operator returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ViewSource {
    /// A rule, which decides the types of the graph too.
    Rule,
    /// The kernel, for which a fake kernel promises the types of the graph. A call has to compare
    /// them.
    Promise,
    /// The kernel, and nothing else says which elements these are.
    Kernel,
}

/// Facts for rewriting.
pub trait OpFacts: MemoryFacts {
    /// For an operator that writes its first argument and nothing else: the operator, of the same
    /// arguments, whose result, in the argument's sizes, is converted to its dtype and written.
    fn functional_variant(&self, op: &str) -> Option<&str> {
        let _ = op;
        None
    }
    /// The schema of an operator that programs can define anew; `None` for every other.
    fn custom_schema(&self, op: &str) -> Option<Arc<Schema>> {
        let _ = op;
        None
    }
    /// The memory to which an operator can write its result.
    fn placement(&self, op: &str) -> Placement {
        let _ = op;
        Placement::Allocates
    }
    /// What an operator does with images.
    fn image_role(&self, op: &str) -> ImageRole {
        let _ = op;
        ImageRole::Other
    }
    /// What it takes to compute the results of an operator a second time.
    fn recomputation(&self, op: &str) -> Recomputation {
        let _ = op;
        Recomputation::Never
    }
    /// Whether the only result of an operator has the elements of its first argument in row-major
    /// order, converted where the dtypes differ.
    fn preserves_elements(&self, op: &str) -> bool {
        let _ = op;
        false
    }
    /// Whether an operator computes nothing: the elements that it makes or writes are elements of
    /// the first operand that is only read, at most converted.
    fn is_data_movement(&self, op: &str) -> bool {
        self.preserves_elements(op)
    }
    /// Whether the only result of an operator is the concatenation of the tensors in its first
    /// argument, along the dimension that is its second argument, or along dimension 0 if it is
    /// absent.
    fn concatenates(&self, op: &str) -> bool {
        let _ = op;
        false
    }
    /// The argument of an operator that is an offset from the start of its first argument's
    /// storage, wherever that tensor begins.
    fn absolute_offset_arg(&self, op: &str) -> Option<usize> {
        let _ = op;
        None
    }
    /// Whether an operator that returns a view may give elements of the storage that its tensor
    /// does not have.
    fn view_may_exceed_base(&self, op: &str) -> bool {
        let _ = op;
        true
    }
    /// What decides which elements the views have that an operator returns.
    fn view_source(&self, op: &str) -> ViewSource {
        let _ = op;
        ViewSource::Kernel
    }
    /// For an operator that returns another operand's elements in the sizes and the dtype of its
    /// first: that operand.
    fn copied_operand(&self, op: &str) -> Option<usize> {
        let _ = op;
        None
    }
    /// The operator that converts its argument to the dtype given by the keyword `dtype`.
    fn conversion(&self) -> Option<&str> {
        None
    }
    /// Whether an operator reads its argument's storage beyond the argument's own elements, which a
    /// functional graph does not have.
    fn observes_storage(&self, op: &str) -> bool {
        let _ = op;
        false
    }
    /// Whether an operator's results are numbers that the types of its arguments tell. They are
    /// read from the types, because values have no strides along dimensions of size 1.
    fn is_metadata_query(&self, op: &str) -> bool {
        let _ = op;
        false
    }
    /// Whether an operator that mutates copies the operands that overlap the mutated tensor. Others
    /// leave the copies to the operators that they call.
    fn copies_operands(&self, op: &str) -> bool {
        let _ = op;
        true
    }
    /// Whether an operator's result depends on the metadata of its first argument, and not on the
    /// contents.
    fn ignores_contents(&self, op: &str) -> bool {
        let _ = op;
        false
    }
    /// The dtype of an operator's only result, in the sizes of its first argument; `None` if it has
    /// others, or is not known.
    fn result_dtype(
        &self,
        op: &str,
        args: &[ArgKind<'_>],
        kwargs: &[(&str, ArgKind<'_>)],
    ) -> Option<DType> {
        let _ = (op, args, kwargs);
        None
    }
    /// The function that an operator computes of these arguments, if rewriting knows it.
    fn arith_op(
        &self,
        op: &str,
        args: &[ArgKind<'_>],
        kwargs: &[(&str, ArgKind<'_>)],
    ) -> Option<ArithOp> {
        let _ = (op, args, kwargs);
        None
    }
}
