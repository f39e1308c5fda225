//! Kernels that compute several builtin operators.
//!
//! A [`RegionBuilder`] is given the calls of a region of a graph, on fake tensors with plain sizes.
//! It puts their computations together: the expressions of pointwise operators become one, and the
//! nests of others become one nest ([`Composition`]). Coercion, promotion and the choice of the nest
//! are those of a single call ([`Op::lowered`]).
//!
//! A value may be reshaped between two operators. Both see its elements in row-major order, so the
//! elements of all operators of a region are numbered alike. Memory outside of the region is
//! addressed by strides under one list of sizes, the *space* of the kernel: that with the most
//! dimensions for elementwise operators, and that of the product for what follows one. Products
//! with one left factor have a space each, as they may have other columns. Their numbers of
//! elements tell which one an operator follows.
//!
//! Fakes have plain sizes, and a tensor has an [`Extent`] beside each. What is composed names sizes
//! by their extents, so that another size of a call finds the [kernel](kernels) that is there. All
//! decisions here are made on numbers, and the composition shows their outcome: where a size decides
//! otherwise, the composition is another one.

mod nest;

use maquette_ir::fault_injection::{Fault, fault_injected};
use maquette_ir::fused::FusionKind;
use maquette_ir::kernel_def::{KernelBody, KernelDef};
use maquette_ir::loops::{ComposedTensor, Extent, Extents, Load, Source, Stage, StageKind};
use maquette_ir::scalar_expr::{ExprBuilder, Reg, ScalarExpr};
use maquette_ir::sym::Range;
use maquette_ops::internals::{MetaInternals, TensorInternals};
use maquette_ops::{
    Args, IntoDims, KernelBinding, LoweredBody, LoweredNest, Meta, Op, PlacedOperand, Tensor,
};
use nest::Nest;
use smallvec::SmallVec;
use std::sync::Arc;

type Sizes = SmallVec<[i64; 6]>;

/// The calls of a region, as far as they are known.
pub(crate) struct RegionBuilder {
    form: Form,
    values: Vec<KnownValue>,
    /// How many of the values are operands of the region.
    given: usize,
    /// The numbers that stand for the symbols of extents in this call.
    symbols: Vec<i64>,
    op: Option<Op>,
}

/// A tensor of a region, fake and with plain sizes.
struct KnownValue {
    tensor: Tensor,
    extents: Extents,
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
    /// A region without operators. `results` have the layouts of memory into which the region
    /// writes. The results of the first call have `outer` leading dimensions in common with those
    /// of the others.
    ///
    /// `None` if a tensor has no elements.
    pub fn new(kind: FusionKind, outer: usize, results: &[Tensor]) -> Option<RegionBuilder> {
        results.iter().try_for_each(has_elements)?;
        let form = match kind {
            FusionKind::Elements => Form::Elements(Elements::default()),
            FusionKind::Rows | FusionKind::Maps | FusionKind::Product | FusionKind::Convolution => {
                Form::Nest(Box::new(Nest::new(kind, outer)))
            }
        };
        Some(RegionBuilder { form, values: Vec::new(), given: 0, symbols: Vec::new(), op: None })
    }

    /// A size that is `number` in this call, and another number of the range in others.
    pub fn symbol(&mut self, number: i64, range: Range) -> Extent {
        self.symbols.push(number);
        match &mut self.form {
            Form::Nest(nest) => nest.composition.symbol(range),
            Form::Elements(_) => Extent::Number(number),
        }
    }

    /// Adds a tensor that operators of the region read, before any call. The tensor is fake, with
    /// plain sizes and a storage of its own.
    ///
    /// `None` if the tensor has no elements, or other sizes than its extents say.
    pub fn operand(&mut self, tensor: Tensor, extents: Extents) -> Option<()> {
        has_elements(&tensor)?;
        let source = ValueSource::Memory(PlacedOperand::of(self.given, &tensor)?);
        self.given += 1;
        self.define(tensor, extents, source)
    }

    fn value(&self, t: &Tensor) -> Option<usize> {
        self.values.iter().position(|value| value.tensor.is_same_handle(t))
    }

    /// `None` if the sizes are not those of the extents.
    fn define(&mut self, tensor: Tensor, extents: Extents, source: ValueSource) -> Option<()> {
        let sizes = tensor.meta().concrete()?.sizes;
        let agree = |(extent, n): (&Extent, &i64)| extent.value(&self.symbols) == Some(*n);
        let fits = extents.len() == sizes.len() && extents.iter().zip(&sizes).all(agree);
        self.values.push(KnownValue { tensor, extents, source });
        fits.then_some(())
    }

    /// Adds a call, whose tensors are operands or results of earlier calls. `extents` are those of
    /// its results. Returns fake tensors for the results, and whether the values of operands can
    /// make the call fail. `None` if the call cannot be a part of the region.
    pub fn call(&mut self, op: Op, args: Args, extents: &[Extents]) -> Option<(Vec<Tensor>, bool)> {
        let call = op.lowered(args).ok()?;
        self.op.get_or_insert(op);
        match &call.body {
            LoweredBody::Elements { expr, operands } => {
                let operands = operands.iter().map(|t| self.value(t));
                let mut operands = operands.collect::<Option<SmallVec<[usize; 4]>>>()?;
                if fault_injected(Fault::OperandsInReverse) {
                    operands.reverse();
                }
                let ([extents], [result]) = (extents, &call.results[..]) else { return None };
                let source = self.pointwise(expr, &operands, result, extents)?;
                self.define(result.clone(), extents.clone(), source)?;
            }
            LoweredBody::Nest(nest) => self.nest(nest, &call.results, extents)?,
        }
        let may_fail = match &call.body {
            LoweredBody::Elements { expr, .. } => expr.may_fail(),
            LoweredBody::Nest(nest) => nest.nest().may_fail(),
        };
        Some((call.results, may_fail))
    }

    /// Adds a view of the result of a call: its elements in row-major order, under other sizes.
    /// Returns a fake tensor for it. `None` if it cannot be a part of the region.
    pub fn reshape(&mut self, t: &Tensor, sizes: &[i64], extents: Extents) -> Option<Tensor> {
        let by_elements = match &self.form {
            Form::Elements(_) => true,
            Form::Nest(nest) => nest.kind.is_contraction(),
        };
        let KnownValue { source, tensor, .. } = self.values.get(self.value(t)?)?;
        if !by_elements || matches!(source, ValueSource::Memory(_)) {
            return None;
        }
        let (source, dtype) = (source.clone(), tensor.dtype());
        let meta = Meta::contiguous(sizes.into_dims(), dtype).on(tensor.device());
        let viewed = Tensor::fake_of(meta);
        self.define(viewed.clone(), extents, source)?;
        Some(viewed)
    }

    fn pointwise(
        &mut self,
        part: &Arc<ScalarExpr>,
        operands: &[usize],
        result: &Tensor,
        extents: &[Extent],
    ) -> Option<ValueSource> {
        let sizes = result.meta().concrete()?.sizes;
        let RegionBuilder { form, values, symbols, .. } = self;
        let operands = operands.iter().map(|&at| values.get(at));
        let operands = operands.collect::<Option<SmallVec<[&KnownValue; 4]>>>()?;
        match form {
            Form::Elements(elements) => elements.pointwise(part, &operands, &sizes),
            Form::Nest(nest) => nest.pointwise(part, &operands, (&sizes, extents), symbols),
        }
    }

    fn nest(
        &mut self,
        placed: &LoweredNest,
        results: &[Tensor],
        extents: &[Extents],
    ) -> Option<()> {
        if placed.writes_view() {
            return None;
        }
        if let Form::Elements(elements) = &mut self.form {
            let source = elements.of_nest(placed, &self.values, results)?;
            let ([result], [extents]) = (results, extents) else { return None };
            return self.define(result.clone(), extents.clone(), source);
        }
        let Form::Nest(nest) = &mut self.form else { return None };
        let mut operands: SmallVec<[ComposedTensor; 4]> = SmallVec::new();
        let (first, first_extents) = (results.first()?.meta().concrete()?.sizes, extents.first()?);
        nest.start(&first, first_extents)?;
        let is_product = |stage: &Stage| matches!(stage.kind, StageKind::Contract { .. });
        if placed.nest().stages().iter().any(is_product) {
            nest.add_space(&first, first_extents)?;
        }
        for t in placed.operands() {
            let known = self.values.iter().find(|value| value.tensor.is_same_handle(t));
            operands.push(match known.map(|value| (&value.source, &value.extents)) {
                Some((ValueSource::Composed(tensor), _)) => tensor.clone(),
                Some((ValueSource::Memory(operand), extents)) => {
                    nest.operand(operand.clone(), extents)
                }
                Some((ValueSource::Element(_), _)) => return None,
                // A view of an operand of the region.
                None => {
                    let given = self.values.get(..self.given)?;
                    let base = given.iter().position(|value| value.tensor.has_storage_of(t))?;
                    let sizes = t.meta().concrete()?.sizes;
                    let near = given.get(base)?.extents.iter().chain(extents.iter().flatten());
                    let extents = likely_extents(&sizes, near, &self.symbols);
                    nest.operand(PlacedOperand::of(base, t)?, &extents)
                }
            });
        }
        let symbols = placed.symbol_extents(&operands, extents)?;
        let parts = nest.composition.nest(placed.nest(), &symbols, &operands, extents);
        nest.numbers.extend(placed.numbers());
        for ((tensor, part), extents) in results.iter().zip(parts).zip(extents) {
            self.define(tensor.clone(), extents.clone(), ValueSource::Composed(part))?;
        }
        Some(())
    }

    /// The kernel that computes `results`, which calls returned, into memory of the layouts of
    /// `outs`; its first operator, and what a launch binds. `None` if a result is not computed, or
    /// if no strides address the memory in the order of the kernel.
    pub fn finish(
        self,
        results: &[Tensor],
        outs: &[Tensor],
    ) -> Option<(Op, KernelDef, KernelBinding)> {
        let source = |t: &Tensor| self.values.get(self.value(t)?).map(|v| v.source.clone());
        let sources = results.iter().map(source).collect::<Option<SmallVec<[_; 4]>>>()?;
        let places = outs.iter().enumerate().map(|(i, out)| PlacedOperand::of(i, out));
        let places = places.collect::<Option<Vec<PlacedOperand>>>()?;
        let (kernel, binding) = match self.form {
            Form::Elements(elements) => elements.finish(&sources, places)?,
            Form::Nest(nest) => nest.finish(&sources, places, self.symbols)?,
        };
        Some((self.op?, kernel, binding))
    }
}

/// `None` if a tensor has no elements.
fn has_elements(t: &Tensor) -> Option<()> {
    (!t.meta().concrete()?.sizes.contains(&0)).then_some(())
}

/// Extents of these sizes: of each size, the first one nearby that has the number, and is not taken
/// yet. A launch compares the sizes of its operands with the extents, so a wrong guess for other
/// sizes is found there.
fn likely_extents<'a>(
    sizes: &[i64],
    near: impl Iterator<Item = &'a Extent>,
    symbols: &[i64],
) -> Extents {
    let mut near: SmallVec<[Option<Extent>; 8]> = near.map(|e| Some(*e)).collect();
    let mut of = |n: i64| {
        let has_it = |e: &&mut Option<Extent>| e.is_some_and(|e| e.value(symbols) == Some(n));
        near.iter_mut().find(has_it).and_then(Option::take).unwrap_or(Extent::Number(n))
    };
    sizes.iter().map(|n| of(*n)).collect()
}

impl Elements {
    fn pointwise(
        &mut self,
        part: &ScalarExpr,
        operands: &[&KnownValue],
        sizes: &[i64],
    ) -> Option<ValueSource> {
        if *self.numel.get_or_insert(sizes.iter().product()) != sizes.iter().product() {
            return None;
        }
        let mut regs: SmallVec<[Reg; 4]> = SmallVec::new();
        for operand in operands {
            regs.push(match &operand.source {
                ValueSource::Element(reg) => *reg,
                ValueSource::Memory(operand) => self.input(operand.clone().expanded(sizes)?),
                ValueSource::Composed(_) => return None,
            });
        }
        let [output] = self.expr.inline(part, &regs).ok()?[..] else { return None };
        Some(ValueSource::Element(output))
    }

    /// The element of a nest of one map that reads its operands in place, and is pure.
    fn of_nest(
        &mut self,
        placed: &LoweredNest,
        values: &[KnownValue],
        results: &[Tensor],
    ) -> Option<ValueSource> {
        let ([map], [result]) = (placed.nest().stages(), results) else {
            return None;
        };
        let operand = |load: &Load| match load.from {
            Source::Operand(operand) => {
                let t = placed.operands().get(operand.index())?;
                values.iter().find(|value| value.tensor.is_same_handle(t))
            }
            Source::Stage(_) => None,
        };
        let operands = map.loads.iter().map(operand);
        let operands = operands.collect::<Option<SmallVec<[&KnownValue; 4]>>>()?;
        self.pointwise(&map.expr, &operands, &result.meta().concrete()?.sizes)
    }

    fn input(&mut self, operand: PlacedOperand) -> Reg {
        if let Some((_, reg)) = self.inputs.iter().find(|(known, _)| *known == operand) {
            return *reg;
        }
        let reg = self.expr.input(operand.dtype());
        self.inputs.push((operand, reg));
        reg
    }

    fn finish(
        self,
        results: &[ValueSource],
        places: Vec<PlacedOperand>,
    ) -> Option<(KernelDef, KernelBinding)> {
        let reg = |source: &ValueSource| match source {
            ValueSource::Element(reg) => Some(*reg),
            _ => None,
        };
        let regs = results.iter().map(reg).collect::<Option<SmallVec<[Reg; 4]>>>()?;
        let inputs = self.inputs.iter().map(|(operand, _)| operand);
        let dims = |o: &&PlacedOperand| o.sizes().iter().filter(|n| **n != 1).count();
        let space = Sizes::from_slice(inputs.chain(&places).max_by_key(dims)?.sizes());
        let operands = self.inputs.into_iter().map(|(operand, _)| operand.reshaped(&space));
        let operands = operands.collect::<Option<_>>()?;
        let places = places.into_iter().map(|place| place.reshaped(&space));
        let results = places.collect::<Option<_>>()?;
        let body = KernelBody::Elements(self.expr.finish(&regs).ok()?);
        let binding = KernelBinding { symbols: Vec::new(), numbers: Vec::new(), operands, results };
        Some((KernelDef { kind: FusionKind::Elements, outer: 0, body }, binding))
    }
}
