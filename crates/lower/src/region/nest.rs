//! Regions that are a loop nest: rows, maps, and products or convolutions with what follows them.

use super::{KnownValue, Sizes, ValueSource};
use maquette_ir::Scalar;
use maquette_ir::fused::FusionKind;
use maquette_ir::kernel_def::{KernelBody, KernelDef};
use maquette_ir::loops::{ComposedTensor, Composition, Extent, Extents};
use maquette_ir::scalar_expr::ScalarExpr;
use maquette_ops::{KernelBinding, PlacedOperand};
use smallvec::SmallVec;
use std::sync::Arc;

/// A list of sizes under which results and operands are addressed.
struct Space {
    sizes: Sizes,
    extents: Extents,
}

/// A nest, and the numbers of its launches.
pub(super) struct Nest {
    pub kind: FusionKind,
    /// How many leading dimensions of the first call's results are common axes.
    outer: usize,
    pub composition: Composition,
    /// One for each size of products; none before the first call.
    spaces: SmallVec<[Space; 1]>,
    operands: Vec<(PlacedOperand, ComposedTensor)>,
    pub numbers: Vec<Scalar>,
}

impl Nest {
    pub fn new(kind: FusionKind, outer: usize) -> Nest {
        let (composition, spaces) = (Composition::new(outer), SmallVec::new());
        Nest { kind, outer, composition, spaces, operands: Vec::new(), numbers: Vec::new() }
    }

    /// Makes the space of a first call with results of these sizes.
    pub fn start(&mut self, sizes: &[i64], extents: &[Extent]) -> Option<()> {
        if self.spaces.is_empty() {
            self.composition.rows(extents.get(..self.outer)?);
            self.spaces.push(Space { sizes: sizes.into(), extents: extents.into() });
        }
        Some(())
    }

    /// Adds the space of a product with results of these sizes. `None` if another one has as many
    /// elements.
    pub fn add_space(&mut self, sizes: &[i64], extents: &[Extent]) -> Option<()> {
        match space_of(&self.spaces, sizes) {
            Some(space) => (space.sizes[..] == *sizes).then_some(()),
            None => {
                self.composition.rows(extents.get(..self.outer)?);
                self.spaces.push(Space { sizes: sizes.into(), extents: extents.into() });
                Some(())
            }
        }
    }

    /// An operand of the kernel as a tensor of the nest. The same operand twice is one.
    pub fn operand(&mut self, operand: PlacedOperand, extents: &[Extent]) -> ComposedTensor {
        if let Some((_, tensor)) = self.operands.iter().find(|(known, _)| *known == operand) {
            return tensor.clone();
        }
        let tensor = self.composition.operand(operand.dtype(), extents);
        self.operands.push((operand, tensor.clone()));
        tensor
    }

    pub fn pointwise(
        &mut self,
        part: &Arc<ScalarExpr>,
        operands: &[&KnownValue],
        (sizes, extents): (&[i64], &[Extent]),
        symbols: &[i64],
    ) -> Option<ValueSource> {
        self.start(sizes, extents)?;
        let (space, space_extents): (Sizes, Extents) = match self.kind.is_contraction() {
            true => {
                let Space { sizes, extents } = space_of(&self.spaces, sizes)?;
                (sizes.clone(), extents.clone())
            }
            false => (sizes.into(), extents.into()),
        };
        let has_space = |tensor: &ComposedTensor| {
            let sizes = tensor.extents().iter().map(|e| e.value(symbols));
            sizes.eq(space.iter().map(|n| Some(*n)))
        };
        let mut tensors: SmallVec<[ComposedTensor; 4]> = SmallVec::new();
        for known in operands {
            tensors.push(match &known.source {
                // After a reshape, the sizes do not say where an element is broadcast to.
                ValueSource::Composed(tensor)
                    if self.kind.is_contraction() && !has_space(tensor) =>
                {
                    return None;
                }
                ValueSource::Composed(tensor) => tensor.clone(),
                ValueSource::Memory(operand) if space[..] == *sizes => {
                    self.operand(operand.clone(), &known.extents)
                }
                ValueSource::Memory(operand) => {
                    let operand = operand.clone().expanded(sizes)?.reshaped(&space)?;
                    let operand = operand.without_broadcast();
                    let kept = operand.sizes().iter().zip(&space);
                    let extents = kept.zip(&space_extents).map(|((n, all), extent)| {
                        if n == all { *extent } else { Extent::Number(*n) }
                    });
                    let extents: Extents = extents.collect();
                    self.operand(operand, &extents)
                }
                ValueSource::Element(_) => return None,
            });
        }
        let [output] = &self.composition.map(part, &tensors, &space_extents)[..] else {
            return None;
        };
        Some(ValueSource::Composed(output.clone()))
    }

    /// The kernel that computes `results` into `places`, if the symbols have these values.
    pub fn finish(
        mut self,
        results: &[ValueSource],
        places: Vec<PlacedOperand>,
        symbols: Vec<i64>,
    ) -> Option<(KernelDef, KernelBinding)> {
        let tensor = |source: &ValueSource| match source {
            ValueSource::Composed(tensor) => Some(tensor.clone()),
            _ => None,
        };
        let results = results.iter().map(tensor);
        let results = results.collect::<Option<SmallVec<[ComposedTensor; 4]>>>()?;
        let places = places.into_iter().zip(&results).map(|(place, of)| {
            let sizes = of.extents().iter().map(|e| e.value(&symbols));
            place.reshaped(&sizes.collect::<Option<Sizes>>()?)
        });
        let results_at = places.collect::<Option<_>>()?;
        self.composition.finish(&results);
        let operands = self.operands.into_iter().map(|(operand, _)| operand).collect();
        let binding =
            KernelBinding { symbols, numbers: self.numbers, operands, results: results_at };
        let body = KernelBody::Nest(self.composition);
        Some((KernelDef { kind: self.kind, outer: self.outer, body }, binding))
    }
}

/// The space with as many elements as a tensor of these sizes.
fn space_of<'a>(spaces: &'a [Space], sizes: &[i64]) -> Option<&'a Space> {
    let numel: i64 = sizes.iter().product();
    spaces.iter().find(|space| space.sizes.iter().product::<i64>() == numel)
}
