//! Composition of loop nests: one nest that computes what several nests compute one after another.
//!
//! A [`Composition`] is data: the operands, the parts in their order, and the results. Sizes are
//! numbers or symbols ([`Extent`]). So one composition, and the nest that is made of it, serves
//! every size, and equal compositions need one nest. The symbols of the nest are those of the
//! composition, in their order.
//!
//! The stages of the parts are put after each other, and loads of a part's operand become loads of
//! the stage that computes it. Two things then make the nest more than a sequence:
//!
//! - **Common axes.** The results of all parts have the same leading dimensions, the rows of the
//!   composition. Their axes become one, so that an executor runs all stages for a row, or some of
//!   them, while the values are in a cache. Products with one left factor may have other columns
//!   each: then the maps that follow a product have its axes ([`Composition::rows`]).
//! - **Inlining.** A map is evaluated where its values are read, if there is one reader, or if it
//!   is cheaper to compute than to store.
//!
//! **Invariants:** Every value is computed by the same instructions in the same order as by the
//! parts: no conversion is dropped and no sum is reordered, so the bits are those of the parts.
//! Sizes are equal if their expressions are, for every value of the symbols. Numbers of a launch
//! serve as examples, by which the cost of inlining is judged.
//!
//! **Cost:** linear in the instructions of the parts, times the number of copies of an inlined map.

mod composer;
mod inline;

use super::{LoopError, LoopNest};
use crate::DType;
use crate::scalar_expr::ScalarExpr;
use crate::sym::Range;
use composer::Composer;
use smallvec::SmallVec;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// A size of a composition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Extent {
    /// A number. Another number needs another nest.
    Number(i64),
    /// A symbol of the composition. The nest serves every value in its range.
    Symbol(u32),
}

/// The sizes of a tensor.
pub type Extents = SmallVec<[Extent; 4]>;

impl Extent {
    /// The value, if the symbols have these; `None` if it is a symbol without a value.
    pub fn value(self, symbols: &[i64]) -> Option<i64> {
        match self {
            Extent::Number(n) => Some(n),
            Extent::Symbol(s) => symbols.get(s as usize).copied(),
        }
    }

    fn number(self, symbols: &[i64]) -> Extent {
        self.value(symbols).map_or(self, Extent::Number)
    }
}

/// A tensor of a composition: an operand, or what a part computes.
#[derive(Clone, Debug)]
pub struct ComposedTensor {
    id: u32,
    extents: Extents,
}

impl ComposedTensor {
    /// The sizes.
    pub fn extents(&self) -> &[Extent] {
        &self.extents
    }
}

/// The tensors that a part reads.
type Operands = SmallVec<[u32; 4]>;

/// A step of a composition. Each tensor that a step defines has the next number.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Part {
    /// Results with these leading sizes have common axes.
    Rows(Extents),
    Operand {
        dtype: DType,
        extents: Extents,
    },
    Map {
        expr: Arc<ScalarExpr>,
        operands: Operands,
        extents: Extents,
    },
    Nest(Box<NestPart>),
}

/// A nest of a composition.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct NestPart {
    nest: SharedNest,
    /// The value of each symbol of the nest.
    symbols: SmallVec<[Extent; 8]>,
    operands: Operands,
    results: SmallVec<[Extents; 2]>,
}

/// A nest of which many compositions are made. Its hash has only what is found at once.
#[derive(Clone, Debug)]
struct SharedNest(Arc<LoopNest>);

impl PartialEq for SharedNest {
    fn eq(&self, other: &SharedNest) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0 == other.0
    }
}

impl Eq for SharedNest {}

impl Hash for SharedNest {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        let nest = &self.0;
        (nest.axes.len(), nest.stages.len(), &nest.results).hash(hasher);
        nest.operands.iter().for_each(|operand| operand.dtype.hash(hasher));
    }
}

/// Nests and expressions that are put together, as data. One nest computes all sizes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Composition {
    /// How many leading dimensions of results have common axes.
    rank: usize,
    /// The values that each symbol may have.
    symbols: Vec<(i64, i64)>,
    parts: Vec<Part>,
    results: SmallVec<[u32; 4]>,
    /// The number of tensors.
    tensors: u32,
}

impl Composition {
    /// A composition in which `rank` leading dimensions of the results have common axes.
    pub fn new(rank: usize) -> Composition {
        let (symbols, parts, results) = (Vec::new(), Vec::new(), SmallVec::new());
        Composition { rank, symbols, parts, results, tensors: 0 }
    }

    /// A size that is a symbol with values in this range.
    pub fn symbol(&mut self, range: Range) -> Extent {
        self.symbols.push((range.lo, range.hi));
        Extent::Symbol(self.symbols.len() as u32 - 1)
    }

    /// Gives results of these leading sizes common axes. Where a size is that of other results in
    /// the same dimension, the axis is theirs.
    pub fn rows(&mut self, rows: &[Extent]) {
        self.parts.push(Part::Rows(rows.into()));
    }

    fn tensor(&mut self, extents: Extents) -> ComposedTensor {
        self.tensors += 1;
        ComposedTensor { id: self.tensors - 1, extents }
    }

    /// Adds an operand.
    pub fn operand(&mut self, dtype: DType, extents: &[Extent]) -> ComposedTensor {
        self.parts.push(Part::Operand { dtype, extents: extents.into() });
        self.tensor(extents.into())
    }

    /// Appends a pure expression, evaluated for each element of `extents`; operands are broadcast.
    /// Returns a tensor for each output.
    pub fn map(
        &mut self,
        expr: &Arc<ScalarExpr>,
        operands: &[ComposedTensor],
        extents: &[Extent],
    ) -> Vec<ComposedTensor> {
        let operands = operands.iter().map(|tensor| tensor.id).collect();
        self.parts.push(Part::Map { expr: Arc::clone(expr), operands, extents: extents.into() });
        expr.outputs().iter().map(|_| self.tensor(extents.into())).collect()
    }

    /// Appends a nest, whose symbols have these values and whose results these sizes. Its launch
    /// scalars come after those of earlier parts.
    pub fn nest(
        &mut self,
        nest: &Arc<LoopNest>,
        symbols: &[Extent],
        operands: &[ComposedTensor],
        results: &[Extents],
    ) -> Vec<ComposedTensor> {
        let operands = operands.iter().map(|tensor| tensor.id).collect();
        let (nest, symbols) = (SharedNest(Arc::clone(nest)), symbols.into());
        let part = NestPart { nest, symbols, operands, results: results.into() };
        self.parts.push(Part::Nest(Box::new(part)));
        results.iter().map(|extents| self.tensor(extents.clone())).collect()
    }

    /// Sets the results.
    pub fn finish(&mut self, results: &[ComposedTensor]) {
        self.results = results.iter().map(|tensor| tensor.id).collect();
    }

    /// The composition for these values of the symbols alone.
    pub fn for_numbers(&self, symbols: &[i64]) -> Composition {
        let numbers =
            |extents: &Extents| extents.iter().map(|e| e.number(symbols)).collect::<Extents>();
        let part = |part: &Part| match part {
            Part::Rows(rows) => Part::Rows(numbers(rows)),
            Part::Operand { dtype, extents } => {
                Part::Operand { dtype: *dtype, extents: numbers(extents) }
            }
            Part::Map { expr, operands, extents } => Part::Map {
                expr: Arc::clone(expr),
                operands: operands.clone(),
                extents: numbers(extents),
            },
            Part::Nest(part) => Part::Nest(Box::new(NestPart {
                nest: part.nest.clone(),
                symbols: part.symbols.iter().map(|e| e.number(symbols)).collect(),
                operands: part.operands.clone(),
                results: part.results.iter().map(numbers).collect(),
            })),
        };
        Composition {
            symbols: Vec::new(),
            parts: self.parts.iter().map(part).collect(),
            results: self.results.clone(),
            ..*self
        }
    }

    /// The nest. `example` are values of the symbols that a launch may have.
    ///
    /// # Errors
    /// An operand has another dtype, does not expand to the sizes of a map, or has other sizes than
    /// a nest takes. A part has no place in a composition: it asserts something, sorts or scatters.
    /// A result is an operand.
    pub fn compose(&self, example: &[i64]) -> Result<LoopNest, LoopError> {
        let ranges = self.symbols.iter().map(|&(lo, hi)| Range { lo, hi });
        let mut composer = Composer::new(self.rank, ranges);
        for part in &self.parts {
            match part {
                Part::Rows(rows) => composer.rows(rows)?,
                Part::Operand { dtype, extents } => composer.operand(*dtype, extents)?,
                Part::Map { expr, operands, extents } => composer.map(expr, operands, extents)?,
                Part::Nest(part) => {
                    let NestPart { nest, symbols, operands, results } = &**part;
                    composer.nest(&nest.0, symbols, operands, results)?;
                }
            }
        }
        inline::inlined(&composer.finish(&self.results)?, example)
    }
}
