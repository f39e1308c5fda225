//! The vocabulary of the tables: the few classes of computation, of which every builtin operator is
//! one, and the facts that follow from each.

use crate::dispatch::value::{Outputs, Value};
use crate::error::{Error, Result};
use crate::fake::FakeCtx;
use crate::tensor::Tensor;
use crate::tensor::meta::Meta;
use maquette_ir::DType;
use maquette_ir::scalar_expr::{ExprBuilder, Reg};
use maquette_ir::typing::{Operand, OperandKind};
use smallvec::SmallVec;

/// The metadata of an operator's outputs.
pub type Metas = SmallVec<[Meta; 2]>;

/// What a builtin operator computes.
pub enum Lowering {
    /// Broadcasting and promotion, then a scalar expression.
    Pointwise(Pointwise),
    /// Outputs whose metadata is known beforehand, filled by a kernel of a class.
    Compute(Compute),
    /// Other metadata over the storage of the argument that the schema says is aliased.
    View(fn(&FakeCtx, &[Value]) -> Result<Metas>),
    /// The named operator's result, written into the first argument, which is returned.
    InPlace(&'static str),
    /// Outputs that are not tensors, or whose sizes depend on data: metadata by one function,
    /// values by another.
    Dynamic {
        /// Outputs of fake arguments.
        fake: fn(&FakeCtx, &[Value]) -> Result<Outputs>,
        /// Outputs of real ones.
        run: fn(&[Value]) -> Result<Outputs>,
        /// Whether operands of equal elements and different strides may give different outputs.
        observes_strides: bool,
    },
    /// Other operators, called in turn.
    Composite(fn(&[Value]) -> Result<Outputs>),
    /// A composite of which a part draws random numbers.
    RandomComposite(fn(&[Value]) -> Result<Outputs>),
    /// A composite that, where `when` holds, writes to arguments its schema does not mark. A trace
    /// then records its parts, whose schemas do.
    HiddenMutation {
        /// Whether a call writes.
        when: fn(&[Value]) -> Result<bool>,
        /// Calls the parts.
        body: fn(&[Value]) -> Result<Outputs>,
    },
}

impl std::fmt::Display for Lowering {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Lowering::Pointwise(_) => f.write_str("pointwise"),
            Lowering::Compute(c) => write!(f, "{}", format!("{:?}", c.class).to_lowercase()),
            Lowering::View(_) => f.write_str("view"),
            Lowering::InPlace(name) => write!(f, "in place of `{name}`"),
            Lowering::Dynamic { .. } => f.write_str("data-dependent"),
            Lowering::Composite(_)
            | Lowering::RandomComposite(_)
            | Lowering::HiddenMutation { .. } => f.write_str("composite"),
        }
    }
}

/// The kernel class of a [`Compute`], by which a backend knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names are the documentation")]
pub enum Class {
    Reduce,
    Gemm,
    Convolution,
    Attention,
    Norm,
    Gather,
    Scatter,
    Scan,
    Sort,
    Window,
    Random,
    Recurrent,
    Fill,
    Copy,
    Scalar,
}

impl Class {
    /// Whether the bits of its results may depend on the strides of its operands.
    pub(crate) const fn order_depends_on_layout(self) -> bool {
        match self {
            Class::Gemm | Class::Convolution | Class::Attention | Class::Recurrent => true,
            Class::Reduce
            | Class::Norm
            | Class::Gather
            | Class::Scatter
            | Class::Scan
            | Class::Sort
            | Class::Window
            | Class::Random
            | Class::Fill
            | Class::Copy
            | Class::Scalar => false,
        }
    }

    /// Whether its kernels write to tensors of any strides.
    pub(crate) const fn supports_strided_output(self) -> bool {
        match self {
            Class::Copy | Class::Fill | Class::Gather | Class::Scatter | Class::Random => true,
            Class::Reduce
            | Class::Gemm
            | Class::Convolution
            | Class::Attention
            | Class::Norm
            | Class::Scan
            | Class::Sort
            | Class::Window
            | Class::Recurrent
            | Class::Scalar => false,
        }
    }

    /// Whether its kernels may draw random numbers: recurrent layers drop elements between one
    /// another in training.
    pub(crate) const fn uses_rng(self) -> bool {
        match self {
            Class::Random | Class::Recurrent => true,
            Class::Reduce
            | Class::Gemm
            | Class::Convolution
            | Class::Attention
            | Class::Norm
            | Class::Gather
            | Class::Scatter
            | Class::Scan
            | Class::Sort
            | Class::Window
            | Class::Fill
            | Class::Copy
            | Class::Scalar => false,
        }
    }

    /// Whether its kernels write every element of their outputs, whatever the operands are.
    pub(crate) const fn overwrites_output(self) -> bool {
        match self {
            Class::Reduce
            | Class::Gemm
            | Class::Convolution
            | Class::Attention
            | Class::Norm
            | Class::Gather
            | Class::Scatter
            | Class::Scan
            | Class::Random
            | Class::Copy => true,
            Class::Sort | Class::Window | Class::Recurrent | Class::Fill | Class::Scalar => false,
        }
    }
}

/// How the strides of results come about, where the operator chooses them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strides {
    /// Results are row-major.
    RowMajor,
    /// They may follow from the strides of the operands.
    FromOperands,
}

/// Outputs whose metadata is known beforehand.
pub struct Compute {
    /// The kernel class.
    pub class: Class,
    /// How the strides in `metas` come about.
    pub strides: Strides,
    /// The outputs' metadata, from arguments real or fake.
    pub metas: fn(&FakeCtx, &[Value]) -> Result<Metas>,
    /// Fills freshly allocated outputs of that metadata.
    pub run: fn(&[Value], &[Tensor]) -> Result<()>,
}

/// A scalar expression over operands that are broadcast and promoted.
pub struct Pointwise {
    /// How dtypes follow from the operands'.
    pub types: Types,
    /// Builds the expression.
    pub build: fn(&mut PointwiseCx) -> Result<Reg>,
}

/// How a pointwise operator's dtypes follow from its operands'.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Types {
    /// Computes and returns the promoted dtype.
    Promote,
    /// As [`Types::Promote`]; the result is row-major.
    PromoteContiguous,
    /// As [`Types::Promote`], but integers and bools are computed as the default float.
    Float,
    /// As [`Types::Float`] where this argument is absent, else as [`Types::Promote`].
    FloatIfNone(usize),
    /// Computes in the promoted dtype, returns bool.
    Compare,
    /// Computes in and returns the first operand's own dtype; the others are left as they are.
    First,
    /// As [`Types::First`]; the result is row-major.
    Masked,
    /// Computes in and returns the promoted dtype of every operand but the first, which is a bool
    /// mask.
    Select,
}

/// What a pointwise operator builds its expression from.
pub struct PointwiseCx<'a> {
    /// The expression being built.
    pub b: ExprBuilder,
    /// The dtype it computes in.
    pub dtype: DType,
    /// The dtype of its result, which may be narrower.
    pub result: DType,
    /// The operator's arguments.
    pub args: &'a [Value],
    /// What the schema says of them.
    pub declared: &'a [maquette_ir::schema::Arg],
    /// For each argument that is an operand, its value in the compute dtype.
    pub regs: SmallVec<[Option<Reg>; 4]>,
}

impl PointwiseCx<'_> {
    /// The operand that argument `i` is.
    pub fn arg(&self, i: usize) -> Result<Reg> {
        self.regs
            .get(i)
            .copied()
            .flatten()
            .ok_or_else(|| Error::value(format!("argument {i} is not an operand")))
    }
}

/// The dtype that formulas compute in: narrow floats compute wide and round once, as PyTorch's
/// kernels do.
pub(crate) const fn wide(d: DType) -> DType {
    match d {
        DType::F16 | DType::BF16 => DType::F32,
        d => d,
    }
}

/// How a value promotes.
pub(crate) fn operand(v: &Value) -> Operand {
    match v {
        Value::Tensor(t) if t.dim() == 0 => {
            Operand { dtype: t.dtype(), kind: OperandKind::ZeroDim }
        }
        Value::Tensor(t) => Operand { dtype: t.dtype(), kind: OperandKind::Tensor },
        Value::Float(_) => Operand { dtype: DType::F32, kind: OperandKind::Scalar },
        Value::Bool(_) => Operand { dtype: DType::Bool, kind: OperandKind::Scalar },
        _ => Operand { dtype: DType::I64, kind: OperandKind::Scalar },
    }
}
