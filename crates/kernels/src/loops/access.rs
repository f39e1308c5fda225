//! Where the tensors of a launch are, and the offsets at which a stage accesses them.

use super::launch::Launch;
use super::schedule::Panels;
use super::stage::PanelContext;
use crate::error::{KernelError, Result};
use crate::pointwise::place::ComputedDim;
use crate::view::{Dims, Ptr};
use maquette_ir::DType;
use maquette_ir::loops::{AxisId, Index, Load, Source};
use smallvec::SmallVec;

/// Where a tensor of a launch is.
#[derive(Clone, Copy, Debug)]
pub(super) enum Base {
    /// The memory of an operand, a result, or of what a phase leaves to later ones, with
    /// coordinates of the whole nest.
    Memory(usize),
    /// At a byte of the scratch memory, with coordinates of the panel.
    Scratch(usize),
}

/// A tensor of a launch.
#[derive(Clone, Debug)]
pub(super) struct Buffer {
    pub base: Base,
    pub dtype: DType,
    /// Distances in elements, one a dimension. Those of the axes with one coordinate in a panel do
    /// not count in scratch memory.
    pub strides: Dims,
}

/// A tensor as a stage accesses it: by offsets of the axes at which its expression is evaluated.
#[derive(Clone, Debug)]
pub(super) struct Access {
    base: Base,
    dtype: DType,
    /// One for each axis of the evaluation.
    pub strides: Dims,
    /// The offset where every coordinate is 0.
    start: i64,
    /// The distances along the axes that a panel starts.
    started: SmallVec<[i64; 4]>,
    pub computed: SmallVec<[ComputedDim; 2]>,
}

impl Buffer {
    /// The tensor, whose dimensions are `dims`, as it is accessed at the same coordinates.
    pub fn access(&self, dims: &[AxisId], axes: &[AxisId], panels: &Panels) -> Access {
        let stride = |axis: &AxisId| {
            let dim = dims.iter().position(|d| d == axis);
            dim.and_then(|d| self.strides.get(d)).copied().unwrap_or(0)
        };
        let started = match self.base {
            Base::Memory(_) => panels.started().iter().map(stride).collect(),
            Base::Scratch(_) => SmallVec::new(),
        };
        Access {
            base: self.base,
            dtype: self.dtype,
            strides: axes.iter().map(stride).collect(),
            start: 0,
            started,
            computed: SmallVec::new(),
        }
    }

    /// The tensor as a whole, at its dimensions.
    pub fn whole(&self) -> Access {
        let (base, dtype, strides) = (self.base, self.dtype, self.strides.clone());
        Access {
            base,
            dtype,
            strides,
            start: 0,
            started: SmallVec::new(),
            computed: SmallVec::new(),
        }
    }
}

impl Access {
    /// A load of a stage.
    pub fn of_load(
        launch: &Launch<'_>,
        panels: &Panels,
        buffers: &dyn Fn(Source) -> Option<Buffer>,
        load: &Load,
        axes: &[AxisId],
    ) -> Result<Access> {
        let Some(buffer) = buffers(load.from) else {
            return Err(KernelError::argument(super::KERNEL, "a load has no source"));
        };
        let dims = match load.from {
            Source::Stage(o) => launch.nest.stage(o.stage).map(|s| s.axes()).unwrap_or_default(),
            Source::Operand(_) => Default::default(),
        };
        // In scratch memory the dimension of an outer axis begins with the panel.
        let is_relative = |dim: usize| {
            matches!(buffer.base, Base::Scratch(_))
                && dims.get(dim).is_some_and(|a| panels.outer.contains(a))
        };
        let sizes = launch.sizes(load.from)?;
        let mut access = Access {
            base: buffer.base,
            dtype: buffer.dtype,
            strides: Dims::from_elem(0, axes.len()),
            start: 0,
            started: SmallVec::from_elem(0, panels.started().len()),
            computed: SmallVec::new(),
        };
        for (dim, (index, &stride)) in load.at.indices().iter().zip(&buffer.strides).enumerate() {
            let Index::Affine(affine) = index else {
                let size = sizes.get(dim).copied().unwrap_or(0);
                access.computed.push(ComputedDim { dim, size, stride });
                continue;
            };
            let position = launch.position(affine)?;
            access.start += position.start * stride;
            for (axis, by) in position.terms {
                if let Some(a) = axes.iter().position(|a| *a == axis) {
                    access.strides[a] += by * stride;
                }
                let started = panels.started().iter().position(|a| *a == axis);
                if let Some(a) = started.filter(|_| !is_relative(dim)) {
                    access.started[a] += by * stride;
                }
            }
        }
        Ok(access)
    }

    /// Whether both are in the same memory of an operand or result.
    pub fn is_at(&self, other: &Access) -> bool {
        matches!((self.base, other.base), (Base::Memory(a), Base::Memory(b)) if a == b)
    }

    /// The offset of the element where every coordinate is 0, in memory whose dimensions begin with
    /// the nest.
    pub fn start(&self) -> i64 {
        self.start
    }

    /// The operand or result, if it is in one.
    pub fn memory(&self) -> Option<usize> {
        match self.base {
            Base::Memory(at) => Some(at),
            Base::Scratch(_) => None,
        }
    }

    /// The dtype of the tensor.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The bytes of an element.
    pub fn size(&self) -> usize {
        self.dtype.size()
    }

    /// The address of the element where the coordinates of a panel are 0.
    pub fn address(&self, cx: &PanelContext<'_>) -> Ptr<u8> {
        let started = self.started.iter().zip(&cx.panel.start);
        let offset = started.fold(self.start, |sum, (stride, start)| sum + stride * start);
        let bytes = offset.wrapping_mul(self.dtype.size() as i64) as isize;
        Ptr(cx.base(self.base).0.wrapping_offset(bytes))
    }
}
