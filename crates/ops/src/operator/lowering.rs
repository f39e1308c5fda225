//! The vocabulary of the operator tables: the kinds of lowerings, the kernel classes, and the facts
//! that follow from each. `execute` runs lowerings.

pub use super::class::Class;
use super::loops::BuildNest;
use super::{OpDef, Role};
use crate::autograd::rule::Derivative;
use crate::dispatch::value::{Outputs, Value};
use crate::error::{Error, Result};
use crate::fake::FakeCtx;
use crate::library::Op;
use crate::tensor::Tensor;
use crate::tensor::meta::Meta;
use maquette_ir::DType;
use maquette_ir::scalar_expr::{ExprBuilder, Reg};
use maquette_ir::typing::{Operand, OperandKind};
use smallvec::SmallVec;

/// The metadata of an operator's outputs.
pub type Metas = SmallVec<[Meta; 2]>;

/// The body of a composite, which calls other operators.
pub type CompositeFn = fn(&[Value]) -> Result<Outputs>;

/// How a builtin operator is computed.
pub enum Lowering {
    /// Broadcasting and type promotion, then a scalar expression for each element.
    Pointwise(Pointwise),
    /// A kernel of a class fills outputs whose metadata follows from the arguments' metadata.
    Compute(Compute),
    /// A view: new metadata over the storage of the argument that the schema marks as aliased.
    View(fn(&FakeCtx, &[Value]) -> Result<Metas>),
    /// Writes the result of the named functional operator into the first argument, and returns that
    /// argument.
    InPlace(&'static str),
    /// Outputs that are not tensors, or whose sizes depend on data. Fake and real arguments have
    /// separate functions.
    Dynamic {
        /// Computes outputs of fake arguments.
        fake: fn(&FakeCtx, &[Value]) -> Result<Outputs>,
        /// Computes outputs of real arguments.
        run: fn(&[Value]) -> Result<Outputs>,
        /// Whether operands with equal elements and different strides may give different outputs.
        observes_strides: bool,
    },
    /// Calls other operators.
    Composite(CompositeFn),
    /// A composite that calls an operator which draws random numbers.
    RandomComposite(CompositeFn),
    /// A composite whose schema lacks annotations of aliasing: a call may write to arguments, or
    /// return results that share memory, and the schema does not say so. If `when` holds, a trace
    /// records the operators that `body` calls instead, because their schemas do.
    UnannotatedComposite {
        /// Whether a call does so.
        when: fn(&[Value]) -> Result<bool>,
        /// Calls the other operators.
        body: CompositeFn,
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
            | Lowering::UnannotatedComposite { .. } => f.write_str("composite"),
        }
    }
}

impl Lowering {
    /// The derivative that follows from the lowering, if any does.
    pub(crate) const fn derivative(&self, role: Role) -> Option<Derivative> {
        match self {
            Lowering::Pointwise(Pointwise { types: Types::Compare, .. }) => {
                Some(Derivative::None("the result is a truth value"))
            }
            Lowering::Pointwise(_) => Some(Derivative::Expression),
            Lowering::InPlace(_)
            | Lowering::Composite(_)
            | Lowering::RandomComposite(_)
            | Lowering::UnannotatedComposite { .. } => Some(Derivative::Parts),
            Lowering::Compute(_) | Lowering::View(_) | Lowering::Dynamic { .. } => match role {
                Role::IgnoresContents | Role::MetadataQuery => {
                    Some(Derivative::None("the result does not depend on contents"))
                }
                _ => None,
            },
        }
    }

    /// The function that calls the other operators of which a composite consists.
    pub(crate) const fn composite_body(&self) -> Option<CompositeFn> {
        match self {
            Lowering::Composite(body)
            | Lowering::RandomComposite(body)
            | Lowering::UnannotatedComposite { body, .. } => Some(*body),
            Lowering::Pointwise(_)
            | Lowering::Compute(_)
            | Lowering::View(_)
            | Lowering::InPlace(_)
            | Lowering::Dynamic { .. } => None,
        }
    }

    /// What computes the operator, for the list of operators: `data` is a scalar expression, an
    /// index map or a loop nest; a `call` is a Rust function, with the reason.
    pub(crate) fn computation(&self) -> String {
        match self {
            Lowering::Pointwise(_) | Lowering::View(_) => "data".to_owned(),
            Lowering::Compute(c) => match c.how {
                How::Loops(_) | How::Zeros | How::Nothing => "data".to_owned(),
                How::Kernel(_) => "call: a kernel of its own".to_owned(),
                How::Host(_) => format!("call: {}", c.class.reason_for_call()),
            },
            Lowering::InPlace(name) => Op::find(name)
                .ok()
                .and_then(|op| op.computation())
                .unwrap_or_else(|| "call".to_owned()),
            Lowering::Dynamic { .. } => "call: data-dependent".to_owned(),
            Lowering::Composite(_)
            | Lowering::RandomComposite(_)
            | Lowering::UnannotatedComposite { .. } => "composite".to_owned(),
        }
    }
}

/// How the strides of an operator's results are determined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strides {
    /// All results are row-major.
    RowMajor,
    /// Strides may depend on the strides of the operands.
    FromOperands,
}

/// A computation whose outputs' metadata follows from the arguments' metadata.
pub struct Compute {
    /// The kernel class.
    pub class: Class,
    /// How the strides in `metas` are determined.
    pub strides: Strides,
    /// The metadata of the outputs, for real or fake arguments.
    pub metas: fn(&FakeCtx, &[Value]) -> Result<Metas>,
    /// How outputs that have this metadata are computed.
    pub how: How,
}

/// How the outputs of a [`Compute`] are computed.
pub enum How {
    /// By the loop nest that the function builds.
    Loops(BuildNest),
    /// By nothing: every element is zero, as fresh memory is.
    Zeros,
    /// By nothing: the elements have no defined value. They are zero.
    Nothing,
    /// By a function that fills freshly allocated outputs.
    Host(fn(&[Value], &[Tensor]) -> Result<()>),
    /// As `Host`. The function fails only if there is not enough memory.
    Kernel(fn(&[Value], &[Tensor]) -> Result<()>),
}

impl Compute {
    /// Computes the outputs of a call.
    pub(crate) fn run(&self, def: &OpDef, args: &[Value], outs: &[Tensor]) -> Result<()> {
        match self.how {
            How::Loops(build) => super::loops::run(def, build, args, outs),
            How::Zeros | How::Nothing => Ok(()),
            How::Host(run) | How::Kernel(run) => run(args, outs),
        }
    }

    /// Whether outputs are complete once they are allocated, on any device.
    pub(crate) const fn needs_no_kernel(&self) -> bool {
        matches!(self.how, How::Zeros | How::Nothing)
    }

    /// Whether outputs may have any strides.
    pub(crate) const fn supports_strided_output(&self) -> bool {
        !matches!(self.how, How::Host(_) | How::Kernel(_)) || self.class.supports_strided_output()
    }

    /// Whether every element of the outputs is written for all operands. If so, the executor does
    /// not zero fresh outputs.
    pub(crate) const fn overwrites_output(&self) -> bool {
        match self.how {
            How::Loops(_) => true,
            How::Zeros | How::Nothing => false,
            How::Host(_) | How::Kernel(_) => self.class.overwrites_output(),
        }
    }
}

/// A scalar expression over operands after broadcasting and type promotion.
pub struct Pointwise {
    /// How the compute dtype and the result dtype follow from the operands' dtypes.
    pub types: Types,
    /// The expression.
    pub build: Formula,
}

/// The expression of a pointwise operator.
#[derive(Clone, Copy)]
pub enum Formula {
    /// What the function builds.
    Built(fn(&mut PointwiseCx) -> Result<Reg>),
    /// The first operand times the derivative of another operator's expression with respect to an
    /// argument. The operands after the first are those of the other operator.
    Derivative {
        /// The other operator.
        of: &'static OpDef,
        /// The argument.
        argument: usize,
    },
}

/// How the compute dtype and the result dtype of a pointwise operator follow from its operands'
/// dtypes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Types {
    /// Computes in the promoted dtype and returns it.
    Promote,
    /// As [`Types::Promote`], with a row-major result.
    PromoteContiguous,
    /// As [`Types::Promote`], but integers and bools are converted to the default float.
    Float,
    /// As [`Types::Float`] if this argument is absent, else as [`Types::Promote`].
    FloatIfNone(usize),
    /// Computes in the promoted dtype and returns bool.
    Compare,
    /// Computes in the first operand's dtype and returns it. The other operands are not converted.
    First,
    /// As [`Types::First`], with a row-major result.
    Masked,
    /// Computes in the promoted dtype of all operands but the first, and returns it. The first
    /// operand is a bool mask.
    Select,
}

/// The context in which a pointwise operator builds its expression.
pub struct PointwiseCx<'a> {
    /// The expression being built.
    pub b: ExprBuilder,
    /// The compute dtype.
    pub dtype: DType,
    /// The result dtype, which may be narrower than the compute dtype.
    pub result: DType,
    /// The operator's arguments.
    pub args: &'a [Value],
    /// The declarations of the arguments in the schema.
    pub declared: &'a [maquette_ir::schema::Arg],
    /// For each argument that is an operand, its register in the compute dtype.
    pub regs: SmallVec<[Option<Reg>; 4]>,
}

impl Formula {
    /// Builds the expression. Returns the register of its result.
    ///
    /// # Errors
    /// The operator does not accept these operands.
    pub(crate) fn build(&self, cx: &mut PointwiseCx) -> Result<Reg> {
        match *self {
            Formula::Built(build) => build(cx),
            Formula::Derivative { of, argument } => derivative(cx, of, argument),
        }
    }
}

/// The first operand of `cx` times the derivative of `of`, whose arguments are the rest of `cx`,
/// with respect to one of them. 0 where the derivative chooses 0, whatever the operand is.
fn derivative(cx: &mut PointwiseCx, of: &OpDef, argument: usize) -> Result<Reg> {
    let Lowering::Pointwise(p) = &of.lowering else {
        return Err(Error::value(format!("{} has no scalar expression", of.name())));
    };
    let (grad, variable) = (cx.arg(0)?, cx.arg(argument + 1)?);
    let mut inner = PointwiseCx {
        b: std::mem::take(&mut cx.b),
        dtype: cx.dtype,
        result: cx.result,
        args: cx.args.get(1..).unwrap_or_default(),
        declared: cx.declared.get(1..).unwrap_or_default(),
        regs: cx.regs.iter().skip(1).copied().collect(),
    };
    let value = p.build.build(&mut inner);
    let mut b = inner.b;
    let product = value.and_then(|value| {
        let mut product = || match b.derivative(value, variable)? {
            Some(slope) => {
                let slope = b.cast(slope, cx.dtype)?;
                b.chained(grad, slope)
            }
            None => Ok(b.constant(0, cx.dtype)),
        };
        product().map_err(Error::other)
    });
    cx.b = b;
    product
}

impl PointwiseCx<'_> {
    /// The register of argument `i`.
    ///
    /// # Errors
    /// The argument is not an operand.
    pub fn arg(&self, i: usize) -> Result<Reg> {
        self.regs
            .get(i)
            .copied()
            .flatten()
            .ok_or_else(|| Error::value(format!("argument {i} is not an operand")))
    }
}

/// The dtype in which pointwise formulas compute. Narrow floats compute in `f32` and round the
/// result once, as in PyTorch's kernels.
pub const fn wide(d: DType) -> DType {
    match d {
        DType::F16 | DType::BF16 => DType::F32,
        d => d,
    }
}

/// The dtype and kind with which a value takes part in type promotion.
pub fn operand(v: &Value) -> Operand {
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
