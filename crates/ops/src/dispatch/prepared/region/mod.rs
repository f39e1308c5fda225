//! Kernels that compute several builtin operators.
//!
//! A [`RegionBuilder`] is given the calls of a region of a graph, on fake tensors with plain sizes.
//! It puts their computations together: the expressions of pointwise operators become one, and the
//! nests of others become one nest ([`Composer`]). Coercion, promotion and the choice of the nest
//! are those of a single call.
//!
//! A value may be reshaped between two operators. Both see its elements in row-major order, so the
//! elements of all operators of a region are numbered alike. Memory outside of the region is
//! addressed by strides under one list of sizes, the *space* of the kernel: that with the most
//! dimensions for elementwise operators, and that of the product for what follows one. Products
//! with one left factor have a space each, as they may have other columns. Their numbers of
//! elements tell which one an operator follows.

mod nest;

use super::operand::PlacedOperand;
use super::{Kernel, Operands, PreparedCall, Results};
use crate::dispatch::coerce_args::coerce_args;
use crate::dispatch::value::Args;
use crate::library::Op;
use crate::mode;
use crate::operator::Lowering;
use crate::operator::execute::PointwiseCall;
use crate::operator::loops::PlacedNest;
use crate::operator::lowering::How;
use crate::tensor::Tensor;
use crate::tensor::meta::{IntoDims, Meta};
use maquette_ir::fault_injection::{Fault, fault_injected};
use maquette_ir::fused::FusionKind;
use maquette_ir::loops::{ComposedTensor, Load, Source, Stage, StageKind};
use maquette_ir::scalar_expr::{ExprBuilder, Reg, ScalarExpr};
use nest::Nest;
use smallvec::SmallVec;

type Sizes = SmallVec<[i64; 6]>;

/// The calls of a region, as far as they are known.
pub struct RegionBuilder {
    form: Form,
    values: Vec<KnownValue>,
    /// How many of the values are operands of the region.
    given: usize,
    op: Option<Op>,
}

/// A tensor of a region, fake and with plain sizes.
struct KnownValue {
    tensor: Tensor,
    source: ValueSource,
}

#[derive(Clone)]
enum ValueSource {
    /// A tensor outside of the region.
    Memory(PlacedOperand),
    /// An element of an elementwise region.
    Element(Reg),
    /// A tensor of a nest. Elementwise results of a product have the space's sizes.
    Composed(ComposedTensor),
}

enum Form {
    Elements(Elements),
    Nest(Box<Nest>),
}

/// An expression; the sizes under which operators use it.
#[derive(Default)]
struct Elements {
    expr: ExprBuilder,
    inputs: Vec<(PlacedOperand, Reg)>,
    numel: Option<i64>,
}

impl RegionBuilder {
    /// A region of operators that read these tensors. They are fake, on the CPU, with plain sizes
    /// and a storage of their own each. `results` have the layouts of memory into which the region
    /// writes. The results of the first call have `outer` leading dimensions in common with those
    /// of the others.
    ///
    /// `None` if a tensor has no elements.
    pub fn new(
        kind: FusionKind,
        outer: usize,
        operands: &[Tensor],
        results: &[Tensor],
    ) -> Option<RegionBuilder> {
        for t in operands.iter().chain(results) {
            if t.meta().concrete()?.sizes.contains(&0) {
                return None;
            }
        }
        let form = match kind {
            FusionKind::Elements => Form::Elements(Elements::default()),
            FusionKind::Rows | FusionKind::Maps | FusionKind::Product | FusionKind::Convolution => {
                let (operands, numbers) = (Vec::new(), Vec::new());
                Form::Nest(Box::new(Nest { kind, outer, composer: None, operands, numbers }))
            }
        };
        let given = operands.iter().enumerate().map(|(k, tensor)| {
            let source = ValueSource::Memory(PlacedOperand::of(k, tensor)?);
            Some(KnownValue { tensor: tensor.clone(), source })
        });
        let values = given.collect::<Option<Vec<KnownValue>>>()?;
        Some(RegionBuilder { form, values, given: operands.len(), op: None })
    }

    fn value(&self, t: &Tensor) -> Option<usize> {
        self.values.iter().position(|value| value.tensor.is_same_handle(t))
    }

    fn define(&mut self, tensor: Tensor, source: ValueSource) {
        self.values.push(KnownValue { tensor, source });
    }

    /// Adds a call, whose tensors are operands or results of earlier calls. Returns fake tensors
    /// for its results. `None` if it cannot be a part of the region.
    pub fn call(&mut self, op: Op, mut args: Args) -> Option<Vec<Tensor>> {
        let state = op.state().ok()?;
        let def = state.plain_builtin()?;
        self.op.get_or_insert(op);
        mode::without_modes(|| {
            coerce_args(&state, &mut args).ok()?;
            match &def.lowering {
                Lowering::Pointwise(p) => {
                    let PointwiseCall { compiled, operands, meta } =
                        p.call(def, &state, &args, None).ok()?;
                    let operands = operands.iter().map(|t| self.value(t));
                    let mut operands = operands.collect::<Option<SmallVec<[usize; 4]>>>()?;
                    if fault_injected(Fault::OperandsInReverse) {
                        operands.reverse();
                    }
                    let result =
                        Tensor::fake_of(Meta::contiguous(meta.sizes, meta.dtype).on(meta.device));
                    let source = self.pointwise(&compiled.expr, &operands, &result)?;
                    self.define(result.clone(), source);
                    Some(vec![result])
                }
                Lowering::Compute(c) => {
                    let How::Loops(build) = c.how else { return None };
                    let results = op.fake_results(def, &state, &args)?;
                    let nest = PlacedNest::of(def, build, &args, &results).ok()??;
                    self.nest(&nest, &results)?;
                    Some(results)
                }
                _ => None,
            }
        })
    }

    /// Adds a view of the result of a call: its elements in row-major order, under other sizes.
    /// Returns a fake tensor for it. `None` if it cannot be a part of the region.
    pub fn reshape(&mut self, t: &Tensor, sizes: &[i64]) -> Option<Tensor> {
        let by_elements = match &self.form {
            Form::Elements(_) => true,
            Form::Nest(nest) => nest.kind.is_contraction(),
        };
        let KnownValue { source, tensor } = self.values.get(self.value(t)?)?;
        if !by_elements || matches!(source, ValueSource::Memory(_)) {
            return None;
        }
        let (source, dtype) = (source.clone(), tensor.dtype());
        let viewed = Tensor::fake_of(Meta::contiguous(sizes.into_dims(), dtype));
        self.define(viewed.clone(), source);
        Some(viewed)
    }

    fn pointwise(
        &mut self,
        part: &ScalarExpr,
        operands: &[usize],
        result: &Tensor,
    ) -> Option<ValueSource> {
        let sizes = result.meta().concrete()?.sizes;
        let RegionBuilder { form, values, .. } = self;
        let sources = operands.iter().map(|&at| values.get(at).map(|v| &v.source));
        let sources = sources.collect::<Option<SmallVec<[&ValueSource; 4]>>>()?;
        match form {
            Form::Elements(elements) => elements.pointwise(part, &sources, &sizes),
            Form::Nest(nest) => nest.pointwise(part, &sources, &sizes),
        }
    }

    fn nest(&mut self, placed: &PlacedNest, results: &[Tensor]) -> Option<()> {
        if let Form::Elements(_) = self.form {
            return self.element_of_nest(placed, results);
        }
        let Form::Nest(nest) = &mut self.form else { return None };
        let mut operands: SmallVec<[ComposedTensor; 4]> = SmallVec::new();
        let first = results.first()?.meta().concrete()?.sizes;
        nest.start(&first)?;
        let is_product = |stage: &Stage| matches!(stage.kind, StageKind::Contract { .. });
        if placed.launch.kernel().nest().stages().iter().any(is_product) {
            nest.add_space(&first)?;
        }
        for t in &placed.operands {
            let known = self.values.iter().find(|value| value.tensor.is_same_handle(t));
            operands.push(match known.map(|value| &value.source) {
                Some(ValueSource::Composed(tensor)) => tensor.clone(),
                Some(ValueSource::Memory(operand)) => nest.operand(operand.clone())?,
                Some(ValueSource::Element(_)) => return None,
                // A view of an operand of the region.
                None => {
                    let given = self.values.get(..self.given)?;
                    let base = given.iter().position(|value| value.tensor.has_storage_of(t))?;
                    nest.operand(PlacedOperand::of(base, t)?)?
                }
            });
        }
        let value = |symbol| placed.launch.symbol(symbol);
        let (composer, _) = nest.composer.as_mut()?;
        let parts = composer.nest(placed.launch.kernel().nest(), &value, &operands).ok()?;
        nest.numbers.extend(placed.launch.numbers());
        for (tensor, part) in results.iter().zip(parts) {
            self.define(tensor.clone(), ValueSource::Composed(part));
        }
        Some(())
    }

    /// Adds a nest of one map that reads its operands in place, and is pure.
    fn element_of_nest(&mut self, placed: &PlacedNest, results: &[Tensor]) -> Option<()> {
        let ([map], [result]) = (placed.launch.kernel().nest().stages(), results) else {
            return None;
        };
        let operand = |load: &Load| match load.from {
            Source::Operand(operand) => self.value(placed.operands.get(operand.index())?),
            Source::Stage(_) => None,
        };
        let operands = map.loads.iter().map(operand).collect::<Option<SmallVec<[usize; 4]>>>()?;
        let source = self.pointwise(&map.expr, &operands, result)?;
        self.define(result.clone(), source);
        Some(())
    }

    /// The kernel that computes `results`, which calls returned, into memory of the layouts of
    /// `outs`. `None` if no kernel does.
    pub fn finish(self, results: &[Tensor], outs: &[Tensor]) -> Option<PreparedCall> {
        let source = |t: &Tensor| self.values.get(self.value(t)?).map(|v| v.source.clone());
        let sources = results.iter().map(source).collect::<Option<SmallVec<[_; 4]>>>()?;
        let places = outs.iter().enumerate().map(|(i, out)| PlacedOperand::of(i, out));
        let places = places.collect::<Option<Results>>()?;
        let (kernel, operands, results) = match self.form {
            Form::Elements(elements) => elements.finish(&sources, places)?,
            Form::Nest(nest) => nest.finish(&sources, places)?,
        };
        Some(PreparedCall { op: self.op?, kernel, operands, results, own_strides: true })
    }
}

impl Elements {
    fn pointwise(
        &mut self,
        part: &ScalarExpr,
        operands: &[&ValueSource],
        sizes: &[i64],
    ) -> Option<ValueSource> {
        if *self.numel.get_or_insert(sizes.iter().product()) != sizes.iter().product() {
            return None;
        }
        let mut regs: SmallVec<[Reg; 4]> = SmallVec::new();
        for operand in operands {
            regs.push(match operand {
                ValueSource::Element(reg) => *reg,
                ValueSource::Memory(operand) => self.input(operand.clone().expanded(sizes)?),
                ValueSource::Composed(_) => return None,
            });
        }
        let [output] = self.expr.inline(part, &regs).ok()?[..] else { return None };
        Some(ValueSource::Element(output))
    }

    fn input(&mut self, operand: PlacedOperand) -> Reg {
        if let Some((_, reg)) = self.inputs.iter().find(|(known, _)| *known == operand) {
            return *reg;
        }
        let reg = self.expr.input(operand.layout.dtype);
        self.inputs.push((operand, reg));
        reg
    }

    fn finish(
        self,
        results: &[ValueSource],
        places: Results,
    ) -> Option<(Kernel, Operands, Results)> {
        let reg = |source: &ValueSource| match source {
            ValueSource::Element(reg) => Some(*reg),
            _ => None,
        };
        let regs = results.iter().map(reg).collect::<Option<SmallVec<[Reg; 4]>>>()?;
        let inputs = self.inputs.iter().map(|(operand, _)| operand);
        let dims = |o: &&PlacedOperand| o.layout.sizes.iter().filter(|n| **n != 1).count();
        let space = inputs.chain(&places).max_by_key(dims)?.layout.sizes.clone();
        let operands = self.inputs.into_iter().map(|(operand, _)| operand.reshaped(&space));
        let operands = operands.collect::<Option<Operands>>()?;
        let places = places.into_iter().map(|place| place.reshaped(&space));
        let places = places.collect::<Option<Results>>()?;
        let expr = self.expr.finish(&regs).ok()?;
        Some((Kernel::pointwise(&expr, &operands, &places, &[])?, operands, places))
    }
}
