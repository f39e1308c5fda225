//! The rows along which a stage combines values, and where they are.
//!
//! Where the expression of a stage is a load of adjacent elements, its rows are read in place. A
//! fold in the order of lanes reads other values in parts, of several rows or of a span of a row,
//! while they are in the first cache. Everything else reads all values of a panel from scratch
//! memory.

use super::access::{Access, Buffer};
use super::stage::{PanelContext, Planner};
use super::values::{Destination, Values};
use crate::element::Element;
use crate::error::Result;
use crate::layout::Loops;
use crate::view::{Ptr, numel};
use maquette_ir::DType;
use maquette_ir::loops::fold::{Fold, Order};
use maquette_ir::loops::{Axes, Stage, StageKind};
use maquette_ir::scalar_expr::Op;
use smallvec::SmallVec;
use std::borrow::Cow;

/// The rows of a stage in a panel.
pub(super) struct RowPlan {
    /// The elements of a row.
    pub n: usize,
    /// The rows of each part of the plan.
    counts: [usize; 2],
    source: RowSource,
}

/// Where rows are.
#[expect(clippy::large_enum_variant, reason = "a plan has one for each fold")]
enum RowSource {
    /// In a tensor; with the loops over the rows of each part of the plan.
    InPlace(Access, [Loops; 2]),
    /// In scratch memory, row-major.
    Scratch(Buffer),
    /// They are evaluated in parts.
    Parts,
}

/// Whether elements of a dtype are values of their class.
pub(super) fn is_class(dtype: DType) -> bool {
    matches!(dtype, DType::F32 | DType::F64 | DType::I64 | DType::Bool)
}

/// Plans the rows of a stage, whose axes are the kept ones and then those along which it combines,
/// and the values that have to be evaluated for them.
pub(super) fn plan(
    planner: &mut Planner<'_>,
    stage: &Stage,
    axes: &Axes,
    kept: usize,
) -> Result<(RowPlan, SmallVec<[Values; 1]>)> {
    let sizes = planner.panels.sizes(planner.launch, axes);
    let n = numel(&sizes[0][kept..]);
    let counts = [0, 1].map(|part| numel(&sizes[part][..kept]));
    let has_class = stage.expr.output_dtypes().all(is_class);
    let is_load = matches!(stage.expr.instrs(), [i] if matches!(i.op, Op::Input(0)));
    let takes_states = matches!(
        stage.kind,
        StageKind::Reduce { fold: Fold::Of { .. }, .. }
            | StageKind::Scan { fold: Fold::Of { .. }, .. }
    );
    if has_class && is_load && stage.expr.outputs().len() == 1 && !takes_states {
        let access = planner.load(&stage.loads[0], axes)?;
        let row = Loops::new(&sizes[0][kept..], [&access.strides[kept..]], false);
        let is_adjacent = row.sizes.len() == 1 && row.inner_stride(0) == 1;
        if n == 1 || (n > 1 && is_adjacent) {
            let loops =
                |part: usize| Loops::new(&sizes[part][..kept], [&access.strides[..kept]], false);
            let source = RowSource::InPlace(access.clone(), [loops(0), loops(1)]);
            return Ok((RowPlan { n, counts, source }, SmallVec::new()));
        }
    }
    let in_parts = match &stage.kind {
        StageKind::Reduce { fold, order: Order::Lanes, .. } => {
            has_class && fold.binary_op().is_some()
        }
        _ => false,
    };
    let to = if in_parts { Destination::Parts } else { Destination::Scratch };
    let values = Values::new(planner, stage, &stage.expr, axes.clone(), to, &[])?;
    let source = match values.buffers.first() {
        Some(buffer) => RowSource::Scratch(buffer.clone()),
        None => RowSource::Parts,
    };
    Ok((RowPlan { n, counts, source }, SmallVec::from_iter([values])))
}

impl RowPlan {
    /// Whether the values are evaluated in parts.
    pub fn is_in_parts(&self) -> bool {
        matches!(self.source, RowSource::Parts)
    }

    /// The rows of a panel.
    pub fn count(&self, cx: &PanelContext<'_>) -> usize {
        self.counts[cx.part]
    }

    /// The rows, which are in memory.
    pub fn rows<'a, T: Element>(&'a self, cx: &PanelContext<'a>) -> Option<Rows<'a, T>> {
        let (base, loops) = match &self.source {
            RowSource::InPlace(access, loops) => (access.address(cx), Some(&loops[cx.part])),
            RowSource::Scratch(buffer) => (cx.base(buffer.base), None),
            RowSource::Parts => return None,
        };
        Some(Rows { base: Ptr(base.0.cast()), loops, n: self.n })
    }
}

/// Rows in memory.
pub(super) struct Rows<'a, T> {
    base: Ptr<T>,
    /// The loops over the rows, unless they are row-major.
    loops: Option<&'a Loops>,
    pub n: usize,
}

impl<'a, T: Element> Rows<'a, T> {
    /// A row, as elements.
    pub fn elements(&self, row: usize) -> &'a [T] {
        let at = self.loops.map_or((row * self.n) as i64, |loops| loops.offset(0, row));
        // SAFETY: the elements of a row are adjacent, were computed, and nothing writes them now.
        unsafe { self.base.slice(at, self.n) }
    }

    /// A row, as values of the class.
    pub fn row(&self, row: usize) -> Cow<'a, [T::Class]> {
        let elements = self.elements(row);
        match of_class::<T>(elements) {
            Some(values) => Cow::Borrowed(values),
            None => elements.iter().map(|x| x.load()).collect(),
        }
    }

    /// Calls `f` with the address of the first of several rows that have one distance, the
    /// distance, their number, and the first's number counted from `from`.
    pub fn runs(&self, from: usize, to: usize, mut f: impl FnMut(Ptr<T>, i64, usize, usize)) {
        let at = |offset: i64| Ptr(self.base.0.wrapping_offset(offset as isize));
        match self.loops {
            None => f(at((from * self.n) as i64), self.n as i64, to - from, 0),
            Some(loops) => loops.runs(0, from, to - from, |row, offset, rows| {
                f(at(offset), loops.inner_stride(0), rows, row)
            }),
        }
    }
}

/// Elements as values that are written, if their type is that of its class.
pub(super) fn of_class_mut<T: Element>(elements: &mut [T]) -> Option<&mut [T::Class]> {
    // SAFETY: element types with the same dtype are the same type.
    (T::DTYPE == <T::Class as Element>::DTYPE)
        .then(|| unsafe { Ptr(elements.as_mut_ptr().cast()).slice_mut(0, elements.len()) })
}

/// Elements as values, if their type is that of its class.
pub(super) fn of_class<T: Element>(elements: &[T]) -> Option<&[T::Class]> {
    // SAFETY: element types with the same dtype are the same type.
    (T::DTYPE == <T::Class as Element>::DTYPE)
        .then(|| unsafe { Ptr(elements.as_ptr().cast_mut().cast()).slice(0, elements.len()) })
}
