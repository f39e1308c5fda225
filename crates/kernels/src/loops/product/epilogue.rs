//! The maps that follow a product, on rectangles of it.
//!
//! A map is an expression over tensors that have one stride along the rows of the product and one
//! along its columns. It is compiled for each size of rectangles that occurs; a product has a few.

use super::chain::{EpilogueChain, InChains};
use super::factor::Geometry;
use super::operand::{From, Operand};
use crate::conv::Following;
use crate::error::{KernelError, Result};
use crate::loops::KERNEL;
use crate::loops::access::{Base, Buffer};
use crate::loops::stage::{Output, PanelContext, Planner, StagePlan};
use crate::pointwise::frame::Failure;
use crate::pointwise::place::{ComputedDim, Place};
use crate::pointwise::{Evaluation, Operands};
use crate::view::{Dims, Ptr, contiguous};
use maquette_ir::DType;
use maquette_ir::fault_injection::{Fault, fault_injected};
use maquette_ir::loops::{AxisId, Index, Load, Source, Stage, StageId, StageKind, StageOutput};
use maquette_ir::scalar_expr::ScalarExpr;
use smallvec::SmallVec;
use std::ops::Range;
use std::sync::{Arc, PoisonError, RwLock};

/// The sizes of rectangles for which a map is kept compiled.
const KEPT: usize = 16;
/// Values between maps begin at multiples of this many bytes.
const ALIGN: usize = 64;

/// A rectangle of a product.
pub(super) struct Part<'a> {
    /// The coordinates of the loops over products.
    pub coords: &'a [i64],
    pub rows: Range<usize>,
    pub columns: Range<usize>,
    /// The first sum, and the strides of the sums.
    pub sums: (Ptr<u8>, [i64; 2]),
    pub scratch: Ptr<u8>,
}

/// A map on rectangles.
pub(super) struct MapPlan {
    pub expr: ScalarExpr,
    /// The loads, the outputs, the coordinates and the index.
    pub operands: SmallVec<[Operand; 6]>,
    pub loads: usize,
    outputs: usize,
    /// The loads of an operand over which the map writes its only output.
    overwritten: SmallVec<[usize; 1]>,
    coords: SmallVec<[u32; 4]>,
    pub computed: SmallVec<[SmallVec<[ComputedDim; 2]>; 2]>,
    /// By rows and columns of the rectangle, and by the strides of its sums.
    evaluations: RwLock<SmallVec<[Compiled; 4]>>,
}

/// A map for rectangles of one size.
type Compiled = (([usize; 2], [i64; 2]), Arc<Evaluation>);

/// The maps that follow a product.
pub(super) struct Epilogue {
    pub maps: Vec<MapPlan>,
    /// The bytes of an element of each slot, and what is in it.
    slots: Vec<(usize, StageOutput)>,
    dtype: DType,
    /// The maps as one chain, if they are one.
    chain: Option<EpilogueChain>,
}

impl Epilogue {
    /// Plans the maps that follow the first stage of a phase and can be computed on rectangles.
    pub fn new(planner: &Planner<'_>, geometry: &Geometry) -> Result<Epilogue> {
        let (nest, first) = (planner.launch.nest, planner.phase.start);
        let sums = StageId(first as u32).into();
        let dtype = nest.dtype(sums).unwrap_or(DType::F32);
        let mut epilogue = Epilogue { maps: Vec::new(), slots: Vec::new(), dtype, chain: None };
        for (at, stage) in nest.stages().iter().enumerate().skip(first + 1) {
            match epilogue.map(planner, geometry, StageId(at as u32), stage)? {
                Some((map, slots)) => {
                    epilogue.maps.push(map);
                    epilogue.slots.extend(slots);
                }
                None => break,
            }
        }
        Ok(epilogue)
    }

    /// The number of maps.
    pub fn maps(&self) -> usize {
        self.maps.len()
    }

    #[cfg(test)]
    pub fn has_chain(&self) -> bool {
        self.chain.is_some()
    }

    #[expect(clippy::type_complexity, reason = "a map and the slots of its outputs")]
    fn map(
        &self,
        planner: &Planner<'_>,
        geometry: &Geometry,
        id: StageId,
        stage: &Stage,
    ) -> Result<Option<(MapPlan, Vec<(usize, StageOutput)>)>> {
        let (launch, axes) = (planner.launch, geometry.axes());
        let is_same = axes.len() == stage.over.len() && axes.iter().all(|a| stage.over.contains(a));
        if !matches!(stage.kind, StageKind::Map) || !is_same {
            return Ok(None);
        }
        let expr = planner.expr(id, stage).clone();
        let mut operands: SmallVec<[Operand; 6]> = SmallVec::new();
        let mut computed = SmallVec::new();
        for load in &stage.loads {
            let Some((operand, dims)) = self.load(planner, geometry, load, &axes)? else {
                return Ok(None);
            };
            operands.push(operand);
            computed.push(dims);
        }
        let loads = operands.len();
        let mut slots = Vec::new();
        for (o, dtype) in stage.output_dtypes().into_iter().enumerate() {
            let output = StageOutput { stage: id, output: o as u8 };
            let mut results = launch.results_of(output).map(|result| planner.result(result));
            match (results.next(), results.next()) {
                (None, _) => {
                    let slot = From::Slot(self.slots.len() + slots.len());
                    slots.push((dtype.size(), output));
                    operands.push(Operand::of_part(slot, dtype));
                }
                (Some(buffer), None) => {
                    let stride = by_axis(&stage.over, &buffer.strides);
                    match Operand::in_buffer(launch, geometry, &buffer, &stride) {
                        Some(operand) => operands.push(operand),
                        None => return Ok(None),
                    }
                }
                (Some(_), Some(_)) => return Ok(None),
            }
        }
        let outputs = operands.len() - loads;
        let coords = expr.coords();
        let row_major = contiguous(&launch.extents_of(&stage.over));
        let index = by_axis(&stage.over, &row_major);
        let number = |stride: &dyn Fn(AxisId) -> i64| {
            Operand::new(launch, geometry, (From::Number, 1), stride)
        };
        for &axis in &coords {
            match number(&|a| i64::from(a == AxisId(axis))) {
                Some(operand) => operands.push(operand),
                None => return Ok(None),
            }
        }
        let Some(index) = number(&index) else { return Ok(None) };
        operands.push(index);
        let evaluations = RwLock::default();
        let overwritten = SmallVec::new();
        let map =
            MapPlan { expr, operands, loads, outputs, overwritten, coords, computed, evaluations };
        Ok(Some((map, slots)))
    }

    /// A load of a map, with the dimensions whose positions are computed.
    fn load(
        &self,
        planner: &Planner<'_>,
        geometry: &Geometry,
        load: &Load,
        axes: &[AxisId],
    ) -> Result<Option<(Operand, SmallVec<[ComputedDim; 2]>)>> {
        if let Source::Stage(output) = load.from
            && output.stage.index() >= planner.phase.start
        {
            // Of the product itself, a rectangle has its own points alone.
            let source = planner.launch.nest.stage(output.stage);
            let dims = source.map(|s| s.axes()).unwrap_or_default();
            let own = dims.iter().map(|a| Index::from(*a));
            if !own.eq(load.at.indices().iter().cloned()) {
                return Ok(None);
            }
            return Ok(self.of_stage(planner, output).map(|operand| (operand, SmallVec::new())));
        }
        let access = planner.load(load, axes)?;
        let Some(memory) = access.memory() else { return Ok(None) };
        let from = (From::Memory(memory), access.size());
        let operand = Operand::new(planner.launch, geometry, from, &by_axis(axes, &access.strides));
        Ok(operand.map(|o| (o.starting_at(access.start()), access.computed.clone())))
    }

    /// An output of the product or of an earlier map.
    fn of_stage(&self, planner: &Planner<'_>, output: StageOutput) -> Option<Operand> {
        let dtype = planner.launch.nest.dtype(output)?;
        let Some(map) = output.stage.index().checked_sub(planner.phase.start + 1) else {
            return Some(Operand::of_part(From::Sums, dtype));
        };
        let map = self.maps.get(map)?;
        map.operands.get(map.loads + output.output as usize).cloned()
    }

    /// Places what later phases read in memory, and adds the maps to the planner's stages.
    pub fn finish(mut self, planner: &mut Planner<'_>, geometry: &Geometry) -> Epilogue {
        let (launch, first) = (planner.launch, planner.phase.start + 1);
        let mut kept: Vec<(StageOutput, Buffer)> = Vec::new();
        for (slot, (_, output)) in self.slots.iter().enumerate() {
            let (Some(stage), Some(dtype)) =
                (launch.nest.stage(output.stage), launch.nest.dtype(*output))
            else {
                continue;
            };
            if !planner.is_read_later(*output) {
                continue;
            }
            let buffer = planner.keep(dtype, &stage.over, &geometry.axes());
            let place = {
                let stride = by_axis(&stage.over, &buffer.strides);
                Operand::in_buffer(launch, geometry, &buffer, &stride)
            };
            let Some(place) = place else { continue };
            let operands = self.maps.iter_mut().flat_map(|map| &mut map.operands);
            for operand in operands.filter(|o| o.from == From::Slot(slot)) {
                *operand = place.clone();
            }
            kept.push((*output, buffer));
        }
        for (i, map) in self.maps.iter().enumerate() {
            let stage = StageId((first + i) as u32);
            let buffer = |o: usize| {
                let output = StageOutput { stage, output: o as u8 };
                let is_it = |k: &&(StageOutput, Buffer)| k.0 == output;
                let kept = kept.iter().find(is_it).map(|(_, buffer)| buffer.clone());
                let result = || launch.results_of(output).next().map(|r| planner.result(r));
                // No stage reads what a rectangle has alone.
                let nowhere = || Buffer {
                    base: Base::Memory(usize::MAX),
                    dtype: launch.nest.dtype(output).unwrap_or(DType::Bool),
                    strides: Dims::new(),
                };
                kept.or_else(result).unwrap_or_else(nowhere)
            };
            let outputs = (0..map.outputs)
                .map(buffer)
                .map(|buffer| Output { access: buffer.whole(), buffer })
                .collect();
            planner.stages.push(StagePlan::of_product(SmallVec::new(), outputs));
        }
        self.chain = EpilogueChain::of(&self.maps, self.dtype);
        self
    }

    /// Lets a map write its output over an operand: `result` and `operand` are their numbers among
    /// the tensors in memory. A rectangle is computed once, map by map, so each element has been
    /// read before it is written if the maps read it where they write it, and none of them later.
    ///
    /// Returns whether they do.
    pub fn overwrite(&mut self, operand: usize, result: usize) -> bool {
        let writes = |map: &MapPlan| map.outputs().iter().any(|o| o.from == From::Memory(result));
        let Some(last) = self.maps.iter().position(writes) else { return false };
        let [output] = self.maps[last].outputs() else { return false };
        let output = output.clone();
        for (at, map) in self.maps.iter().enumerate() {
            for (load, computed) in map.loads().iter().zip(&map.computed) {
                let is_read = load.from == From::Memory(operand);
                let is_later = at > last && !fault_injected(Fault::OverwrittenAndRead);
                if is_read && (is_later || !computed.is_empty() || !load.lies_like(&output)) {
                    return false;
                }
            }
        }
        let map = &mut self.maps[last];
        let is_it = |i: &usize| map.operands[*i].from == From::Memory(operand);
        let loads: SmallVec<[usize; 1]> = (0..map.loads).filter(is_it).collect();
        map.overwritten.extend(loads);
        true
    }

    /// Whether the elements of a column of the product are best given as neighbours, as they are in
    /// the result.
    pub fn wants_columns(&self) -> bool {
        let results = self.maps.iter().flat_map(|map| map.outputs());
        let stored = results.filter(|o| matches!(o.from, From::Memory(_))).last();
        stored.is_some_and(|o| o.strides()[0] == 1 && o.strides()[1] != 1)
    }

    /// The maps of some products from a row and a column on, if they are a chain along columns.
    pub fn columns<F: InChains>(
        &self,
        cx: &PanelContext<'_>,
        coords: &[i64],
        at: [usize; 2],
    ) -> Option<Following<F>> {
        let chain = self.chain.as_ref().filter(|chain| chain.along() == 0)?;
        Some(match chain.affine(cx, coords, at) {
            Some(affine) => Following::Affine(affine),
            None => Following::Chain(chain.lines(cx, coords, at)),
        })
    }

    /// The bytes of scratch memory for a rectangle of at most this many elements.
    pub fn scratch(&self, elements: usize) -> usize {
        self.slots.iter().map(|(size, _)| (elements * size).next_multiple_of(ALIGN)).sum()
    }

    /// Computes the maps on a rectangle. Returns the first that fails, and how.
    ///
    /// # Errors
    /// An expression is too large to be compiled.
    pub fn run(&self, cx: &PanelContext<'_>, part: &Part<'_>) -> Result<Option<(usize, Failure)>> {
        if let Some(chain) = self.chain.as_ref().filter(|c| part.sums.1[c.along()] == 1) {
            match self.dtype {
                DType::F64 => chain.run::<f64>(cx, part),
                _ => chain.run::<f32>(cx, part),
            }
            return Ok(None);
        }
        let size = [part.rows.len(), part.columns.len()];
        let elements = size[0] * size[1];
        let at = [part.rows.start, part.columns.start];
        let address = |o: &Operand| match o.from {
            From::Memory(_) => o.address(cx, part.coords, at),
            From::Sums => part.sums.0,
            From::Slot(slot) => {
                let before = self.slots.iter().take(slot);
                let bytes = before.map(|(size, _)| (elements * size).next_multiple_of(ALIGN));
                Ptr(part.scratch.0.wrapping_add(bytes.sum()))
            }
            From::Number => {
                Ptr(std::ptr::without_provenance_mut(o.offset(part.coords, at) as usize))
            }
        };
        for (i, map) in self.maps.iter().enumerate() {
            let evaluation = map.evaluation(size, part.sums.1)?;
            let bases: SmallVec<[Ptr<u8>; 8]> = map.operands.iter().map(address).collect();
            let index_operand = map.operands.len() - 1;
            let place = Place { scalars: cx.run.scalars, computed: &map.computed, index_operand };
            let failure = evaluation.range(cx.run.isa, &bases, Some(&place), 0, elements);
            if let Some(failure) = failure {
                return Ok(Some((i, *failure)));
            }
        }
        Ok(None)
    }
}

impl MapPlan {
    pub fn loads(&self) -> &[Operand] {
        &self.operands[..self.loads]
    }

    pub fn outputs(&self) -> &[Operand] {
        &self.operands[self.loads..self.loads + self.outputs]
    }

    /// The map, compiled for rectangles of this size.
    fn evaluation(&self, size: [usize; 2], sums: [i64; 2]) -> Result<Arc<Evaluation>> {
        let kept = self.evaluations.read().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, evaluation)) = kept.iter().find(|(of, _)| *of == (size, sums)) {
            return Ok(Arc::clone(evaluation));
        }
        drop(kept);
        let row_major = [size[1] as i64, 1];
        let strides: SmallVec<[[i64; 2]; 8]> = (self.operands.iter())
            .map(|o| match o.from {
                From::Sums => sums,
                From::Slot(_) => row_major,
                From::Memory(_) | From::Number => o.strides(),
            })
            .collect();
        let strides: SmallVec<[&[i64]; 8]> = strides.iter().map(|s| &s[..]).collect();
        // A map may be written to the memory of what it reads.
        let is_written = |(i, load): (usize, &Operand)| {
            let in_memory = matches!(load.from, From::Memory(_));
            let by_itself = self.outputs().iter().any(|out| out.from == load.from);
            (in_memory && by_itself || self.overwritten.contains(&i)).then_some(i)
        };
        let written = self.loads().iter().enumerate().filter_map(is_written);
        let written: SmallVec<[usize; 2]> = written.collect();
        let operands = Operands {
            sizes: &size.map(|n| n as i64),
            strides: &strides,
            overlap: !written.is_empty(),
            in_place: written.first().copied().filter(|_| written.len() == 1),
            coords: Some(&self.coords),
            computed: &[],
        };
        let empty = || KernelError::argument(KERNEL, "a part of a product is empty");
        let made = Arc::new(Evaluation::new(&self.expr, &operands)?.ok_or_else(empty)?);
        let mut kept = self.evaluations.write().unwrap_or_else(PoisonError::into_inner);
        if kept.len() < KEPT {
            kept.push(((size, sums), Arc::clone(&made)));
        }
        Ok(made)
    }
}

/// The stride of an axis, by a list of axes and of their strides.
fn by_axis(axes: &[AxisId], strides: &[i64]) -> impl Fn(AxisId) -> i64 {
    let by: SmallVec<[(AxisId, i64); 4]> =
        axes.iter().copied().zip(strides.iter().copied()).collect();
    move |axis| by.iter().find(|(a, _)| *a == axis).map_or(0, |(_, stride)| *stride)
}
