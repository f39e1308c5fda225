//! Lowerings: the few classes of computation that every builtin operator is one of, and what
//! follows from each.

use super::OpDef;
use super::pointwise::cache::{CompiledExpr, tensor_operands};
use crate::dispatch::call_borrows::{borrow_args, mutated_args, resolve_overlap};
use crate::dispatch::cpu_exec;
use crate::dispatch::device::device_of;
use crate::dispatch::value::{Outputs, Value};
use crate::error::{Error, ErrorKind, Result};
use crate::fake::FakeCtx;
use crate::library::{Op, OpState};
use crate::tensor::Tensor;
use crate::tensor::meta::Meta;
use maquette_ir::scalar_expr::{ExprBuilder, Reg};
use maquette_ir::typing::{
    Operand, OperandKind, broadcast, can_cast, contiguous_strides, elementwise_strides,
};
use maquette_ir::{DType, Layout};
use smallvec::SmallVec;
use std::rc::Rc;

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

/// A pointwise operator's call, worked out: the compiled expression, the tensor operands, and the
/// output.
pub(crate) struct PointwiseCall<'a> {
    pub(crate) compiled: Rc<CompiledExpr>,
    pub(crate) operands: SmallVec<[&'a Tensor; 4]>,
    pub(crate) meta: Meta,
}

impl Pointwise {
    /// Promotes, builds and broadcasts. `target`: the tensor that an in-place operator writes to.
    pub(crate) fn call<'a>(
        &self,
        op: &OpDef,
        state: &OpState,
        args: &'a [Value],
        target: Option<&Meta>,
    ) -> Result<PointwiseCall<'a>> {
        let compiled = self.compile(op, state, args, target.map(|t| t.dtype))?;
        let operands: SmallVec<[&Tensor; 4]> = tensor_operands(state)
            .filter_map(|i| match &args[i] {
                Value::Tensor(t) => Some(t),
                _ => None,
            })
            .collect();
        if target.is_none()
            && let Some(first) = operands.first()
            && cpu_exec::common_dense_numel(operands.iter().copied()).is_some()
        {
            let device = device_of(state, args)?;
            let meta = Meta {
                dtype: compiled.out_dtype,
                device,
                offset: 0.into(),
                requires_grad: false,
                ..first.meta().clone()
            };
            return Ok(PointwiseCall { compiled, operands, meta });
        }
        let shapes: SmallVec<[&[_]; 4]> = operands.iter().map(|t| t.sizes()).collect();
        let sizes = broadcast(&shapes)?;
        let meta = match target {
            Some(t) => {
                crate::tensor::shape::require_same(&t.sizes, &sizes, || {
                    format!("{} writes into a tensor of", op.name())
                })?;
                t.clone()
            }
            None => {
                let layouts: SmallVec<[(&[_], &[_]); 4]> =
                    operands.iter().map(|t| (t.sizes(), t.strides())).collect();
                let strides = match self.types {
                    Types::Masked | Types::PromoteContiguous => contiguous_strides(&sizes),
                    _ => elementwise_strides(&sizes, &layouts)?,
                };
                let device = device_of(state, args)?;
                Meta {
                    dtype: compiled.out_dtype,
                    device,
                    layout: Layout::Strided,
                    sizes,
                    strides,
                    offset: 0.into(),
                    requires_grad: false,
                }
            }
        };
        Ok(PointwiseCall { compiled, operands, meta })
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

/// Tensors as the returns a schema declares: one each, or one list.
fn group(state: &OpState, tensors: impl Iterator<Item = Tensor>) -> Outputs {
    use maquette_ir::schema::Type;
    let values = tensors.map(Value::Tensor);
    match state.schema.returns.as_slice() {
        [r] if matches!(r.ty, Type::List(..)) => smallvec::smallvec![Value::List(values.collect())],
        _ => values.collect(),
    }
}

impl OpDef {
    /// The argument whose storage a view is of.
    fn viewed<'a>(&self, state: &OpState, args: &'a [Value]) -> Result<&'a Tensor> {
        let i = state.facts.aliases.first().copied().flatten().unwrap_or(0);
        args[usize::from(i)].tensor()
    }

    /// The operator whose result an in-place operator writes.
    fn functional(&self, name: &str) -> Result<(Op, &'static OpDef)> {
        let op = Op::find(name)?;
        let def = op
            .state()?
            .builtin
            .ok_or_else(|| Error::value(format!("{name} is not a builtin operator")))?;
        Ok((op, def))
    }

    /// Outputs of fake arguments.
    pub(crate) fn fake(&self, cx: &FakeCtx, state: &OpState, args: &[Value]) -> Result<Outputs> {
        match &self.lowering {
            Lowering::Pointwise(p) => Ok(group(
                state,
                std::iter::once(Tensor::fake_of(p.call(self, state, args, None)?.meta)),
            )),
            Lowering::Compute(c) => {
                Ok(group(state, (c.metas)(cx, args)?.into_iter().map(Tensor::fake_of)))
            }
            Lowering::View(f) => {
                let base = self.viewed(state, args)?;
                let views: Vec<Tensor> =
                    f(cx, args)?.into_iter().map(|m| base.view_of(m)).collect::<Result<_>>()?;
                Ok(group(state, views.into_iter()))
            }
            Lowering::InPlace(name) => {
                let target = args[0].tensor()?;
                let (op, def) = self.functional(name)?;
                let inner = op.state()?;
                match &def.lowering {
                    Lowering::Pointwise(p) => {
                        drop(p.call(self, &inner, args, Some(target.meta()))?)
                    }
                    _ => {
                        let out = def.fake(cx, &inner, args)?;
                        fits_into(target, out.first(), name)?;
                    }
                }
                Ok(smallvec::smallvec![args[0].clone()])
            }
            Lowering::Dynamic { fake, .. } => fake(cx, args),
            Lowering::Composite(f)
            | Lowering::RandomComposite(f)
            | Lowering::HiddenMutation { body: f, .. } => f(args),
        }
    }

    /// Outputs of real arguments on the host.
    pub(crate) fn run(&self, op: Op, state: &OpState, args: &mut [Value]) -> Result<Outputs> {
        match &self.lowering {
            Lowering::View(_) => FakeCtx::eager(op, |cx| self.fake(cx, state, args))
                .and_then(crate::fake::well_formed),
            Lowering::Composite(f)
            | Lowering::RandomComposite(f)
            | Lowering::HiddenMutation { body: f, .. } => f(args),
            _ => {
                let same_view_is_safe = matches!(&self.lowering, Lowering::InPlace(name) if matches!(self.functional(name)?.1.lowering, Lowering::Pointwise(_)));
                let written = mutated_args(state, args);
                resolve_overlap(state, args, same_view_is_safe)?;
                let borrowed = borrow_args(op, state, args)?;
                let out = self.compute(op, state, borrowed.args()).inspect_err(|e| {
                    // other errors are found before anything is written
                    if matches!(e.kind(), ErrorKind::Kernel(_)) {
                        written.iter().flat_map(Value::tensors).for_each(|t| t.poison_storage(e));
                    }
                })?;
                drop(borrowed);
                written.iter().flat_map(Value::tensors).for_each(Tensor::bump_version);
                Ok(if matches!(self.lowering, Lowering::InPlace(_)) {
                    written.into_iter().collect()
                } else {
                    out
                })
            }
        }
    }

    /// The part of [`OpDef::run`] under the borrows.
    fn compute(&self, op: Op, state: &OpState, args: &[Value]) -> Result<Outputs> {
        match &self.lowering {
            Lowering::Pointwise(p) => {
                let PointwiseCall { compiled, operands, meta } = p.call(self, state, args, None)?;
                let out = Tensor::allocate_to_fill(meta)?;
                cpu_exec::pointwise(&compiled, &operands, &out)?;
                Ok(group(state, std::iter::once(out)))
            }
            Lowering::Compute(c) => {
                let metas = FakeCtx::eager(op, |cx| (c.metas)(cx, args))?;
                let allocate = if c.class.overwrites_output() {
                    Tensor::allocate_to_fill
                } else {
                    Tensor::allocate
                };
                let mut outs: SmallVec<[Tensor; 2]> = SmallVec::new();
                for meta in metas {
                    outs.push(allocate(meta)?);
                }
                (c.run)(args, &outs)?;
                Ok(group(state, outs.into_iter()))
            }
            Lowering::InPlace(name) => {
                let target = args[0].tensor()?;
                let (op, def) = self.functional(name)?;
                let inner = op.state()?;
                match &def.lowering {
                    Lowering::Pointwise(p) => {
                        let call = p.call(self, &inner, args, Some(target.meta()))?;
                        cpu_exec::pointwise(&call.compiled, &call.operands, target)?;
                    }
                    _ => {
                        let out = def.compute(op, &inner, args)?;
                        cpu_exec::copy(fits_into(target, out.first(), name)?, target)?;
                    }
                }
                Ok(Outputs::new())
            }
            Lowering::Dynamic { run, .. } => run(args),
            Lowering::View(_)
            | Lowering::Composite(_)
            | Lowering::RandomComposite(_)
            | Lowering::HiddenMutation { .. } => {
                Err(Error::value("views and composites have no kernel"))
            }
        }
    }
}

/// The result of a functional operator, if it can be written into `target`.
pub(super) fn fits_into<'a>(
    target: &Tensor,
    out: Option<&'a Value>,
    name: &str,
) -> Result<&'a Tensor> {
    let out =
        out.ok_or_else(|| Error::value(format!("{name} returns nothing to write")))?.tensor()?;
    crate::tensor::shape::require_same(target.sizes(), out.sizes(), || {
        format!("the result of {name} is written into a tensor of")
    })?;
    if !can_cast(out.dtype(), target.dtype()) {
        let (from, to) = (out.dtype(), target.dtype());
        return Err(Error::value(format!(
            "the result has dtype {from}, which cannot be written into a tensor of dtype {to}"
        )));
    }
    Ok(out)
}
