//! Regions that are a loop nest: rows, maps, and products or convolutions with what follows them.

use super::super::operand::{PlacedOperand, views, views_mut};
use super::super::{Kernel, Operands, Results};
use super::{Sizes, ValueSource};
use crate::operator::loops::NestLaunch;
use maquette_ir::Scalar;
use maquette_ir::fused::FusionKind;
use maquette_ir::loops::{AxisId, ComposedTensor, Composer};
use maquette_ir::scalar_expr::ScalarExpr;
use maquette_kernels::LoopKernel;
use smallvec::{SmallVec, smallvec};

/// A region with fewer rows than this is not computed by rows if each has more elements than
/// [`LONG_ROW`]: the operators alone divide a row among threads.
const FEW_ROWS: i64 = 8;
const LONG_ROW: i64 = 32_768;

/// A nest, and the numbers of its launches.
pub(super) struct Nest {
    pub kind: FusionKind,
    /// How many leading dimensions of the first call's results are common axes.
    pub outer: usize,
    /// The nest, and its spaces: one for each size of products. `None` before the first call.
    pub composer: Option<(Composer, SmallVec<[Sizes; 1]>)>,
    pub operands: Vec<(PlacedOperand, ComposedTensor)>,
    pub numbers: Vec<Scalar>,
}

impl Nest {
    /// Makes the nest for a first call with results of these sizes.
    pub fn start(&mut self, sizes: &[i64]) -> Option<()> {
        if self.composer.is_none() {
            let composer = Composer::new(sizes.get(..self.outer)?);
            self.composer = Some((composer, smallvec![sizes.into()]));
        }
        Some(())
    }

    /// Adds the space of a product with results of these sizes. `None` if another one has as many
    /// elements.
    pub fn add_space(&mut self, sizes: &[i64]) -> Option<()> {
        let (composer, spaces) = self.composer.as_mut()?;
        match space_of(spaces, sizes) {
            Some(space) => (space[..] == *sizes).then_some(()),
            None => {
                composer.also(sizes.get(..self.outer)?);
                spaces.push(sizes.into());
                Some(())
            }
        }
    }

    /// An operand of the kernel as a tensor of the nest. The same operand twice is one.
    pub fn operand(&mut self, operand: PlacedOperand) -> Option<ComposedTensor> {
        if let Some((_, tensor)) = self.operands.iter().find(|(known, _)| *known == operand) {
            return Some(tensor.clone());
        }
        let (composer, _) = self.composer.as_mut()?;
        let tensor = composer.operand(operand.layout.dtype, &operand.layout.sizes);
        self.operands.push((operand, tensor.clone()));
        Some(tensor)
    }

    pub fn pointwise(
        &mut self,
        part: &ScalarExpr,
        operands: &[&ValueSource],
        sizes: &[i64],
    ) -> Option<ValueSource> {
        self.start(sizes)?;
        let space: Sizes = match &self.composer {
            Some((_, spaces)) if self.kind.is_contraction() => space_of(spaces, sizes)?.clone(),
            _ => sizes.into(),
        };
        let mut tensors: SmallVec<[ComposedTensor; 4]> = SmallVec::new();
        for operand in operands {
            tensors.push(match operand {
                // Behind a reshape, the sizes do not say where an element is broadcast to.
                ValueSource::Composed(tensor)
                    if self.kind.is_contraction() && tensor.sizes() != &space[..] =>
                {
                    return None;
                }
                ValueSource::Composed(tensor) => tensor.clone(),
                ValueSource::Memory(operand) if space[..] == *sizes => {
                    self.operand(operand.clone())?
                }
                ValueSource::Memory(operand) => {
                    let operand = operand.clone().expanded(sizes)?.reshaped(&space)?;
                    self.operand(operand.without_broadcast())?
                }
                ValueSource::Element(_) => return None,
            });
        }
        let (composer, _) = self.composer.as_mut()?;
        let [output] = &composer.map(part, &tensors, &space).ok()?[..] else { return None };
        Some(ValueSource::Composed(output.clone()))
    }

    pub fn finish(
        self,
        results: &[ValueSource],
        places: Results,
    ) -> Option<(Kernel, Operands, Results)> {
        let tensor = |source: &ValueSource| match source {
            ValueSource::Composed(tensor) => Some(tensor.clone()),
            _ => None,
        };
        let results = results.iter().map(tensor);
        let results = results.collect::<Option<SmallVec<[ComposedTensor; 4]>>>()?;
        let places = places.into_iter().zip(&results).map(|(p, of)| p.reshaped(of.sizes()));
        let places = places.collect::<Option<Results>>()?;
        let (composer, _) = self.composer?;
        let nest = composer.finish(&results).ok()?;
        let mut launch = NestLaunch::plain(nest, self.numbers.into_iter().collect());
        if self.kind == FusionKind::Rows && !runs_by_rows(launch.kernel(), self.outer) {
            return None;
        }
        let operands: Operands = self.operands.into_iter().map(|(operand, _)| operand).collect();
        launch.plan(&views(&operands), &views_mut(&places)).ok()?;
        Some((Kernel::Nest(Box::new(launch)), operands, places))
    }
}

/// The space with as many elements as a tensor of these sizes.
fn space_of<'a>(spaces: &'a [Sizes], sizes: &[i64]) -> Option<&'a Sizes> {
    let numel: i64 = sizes.iter().product();
    spaces.iter().find(|space| space.iter().product::<i64>() == numel)
}

/// Whether the executor runs all stages row by row, and threads have enough rows.
fn runs_by_rows(kernel: &LoopKernel, rows: usize) -> bool {
    let (nest, outer) = (kernel.nest(), kernel.outer_axes());
    let points = |axes: &[AxisId]| {
        let extents = axes.iter().map(|axis| nest.extent(*axis).as_i64().unwrap_or(i64::MAX));
        extents.fold(1i64, i64::saturating_mul)
    };
    let all = nest.stages().iter().map(|stage| points(&stage.over)).max().unwrap_or(0);
    let count = points(outer);
    outer.len() >= rows && (count >= FEW_ROWS || all / count.max(1) <= LONG_ROW)
}
