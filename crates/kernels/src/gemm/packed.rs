//! Weights that are packed once, ahead of their products.

use super::blocks::Blocks;
use super::epilogue::{Epilogue, Operand};
use super::pack::{Panels, Right};
use super::{Expanded, Float, KERNEL, over_batches, special};
use crate::copy::{same_dtype, same_sizes};
use crate::error::{KernelError, Result};
use crate::isa::Isa;
use crate::layout;
use crate::thread_pool;
use crate::view::{Dims, View, ViewMut};
use maquette_ir::DType;

/// A matrix `b[k, n]` of floats in the layout that the microkernels read. Half precision is widened
/// to `f32`.
///
/// A product with it has the bits of the product with the matrix itself, and is faster where few
/// rows share the packing. The layout is that of one instruction set, so that it is for the process
/// that made it.
pub struct PackedMatrix {
    dtype: DType,
    panels: Packed,
}

impl std::fmt::Debug for PackedMatrix {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (sizes, dtype) = (self.sizes(), self.dtype);
        f.debug_struct("PackedMatrix").field("sizes", &sizes).field("dtype", &dtype).finish()
    }
}

enum Packed {
    F32(Panels<f32>),
    F64(Panels<f64>),
}

impl PackedMatrix {
    /// Packs `b[k, n]`, of any float dtype and any strides.
    pub fn new(b: &View<'_>) -> Result<PackedMatrix> {
        Self::on(Isa::detect(), b)
    }

    pub(crate) fn on(isa: Isa, b: &View<'_>) -> Result<PackedMatrix> {
        let &[k, n] = b.sizes() else {
            let (what, found) = ("dimensions", b.rank());
            return Err(KernelError::Count { kernel: KERNEL, what, expected: 2, found });
        };
        let sizes = [k as usize, n as usize];
        let panels = match b.dtype() {
            DType::F32 | DType::F16 | DType::BF16 => {
                Packed::F32(Panels::new(KERNEL, isa, Operand::new(b, 0), sizes)?)
            }
            DType::F64 => Packed::F64(Panels::new(KERNEL, isa, Operand::new(b, 0), sizes)?),
            found => {
                let (operand, expected) = ("b", "a float".into());
                return Err(KernelError::DType { kernel: KERNEL, operand, expected, found });
            }
        };
        Ok(PackedMatrix { dtype: b.dtype(), panels })
    }

    /// The sizes of the matrix: `[k, n]`.
    pub fn sizes(&self) -> [i64; 2] {
        let [k, n] = match &self.panels {
            Packed::F32(panels) => [panels.rows, panels.columns],
            Packed::F64(panels) => [panels.rows, panels.columns],
        };
        [k as i64, n as i64]
    }

    /// The bytes of memory that it takes.
    pub fn bytes(&self) -> usize {
        match &self.panels {
            Packed::F32(panels) => panels.bytes(),
            Packed::F64(panels) => panels.bytes(),
        }
    }

    /// The panels, if they are of this class.
    pub(super) fn panels<F: Float>(&self) -> Option<&Panels<F>> {
        let panels: &dyn std::any::Any = match &self.panels {
            Packed::F32(panels) => panels,
            Packed::F64(panels) => panels,
        };
        panels.downcast_ref()
    }

    /// The dtype of the matrix.
    pub fn dtype(&self) -> DType {
        self.dtype
    }
}

/// `c[..., m, n] = epilogue(a[..., m, k] b[k, n])`, all of one dtype. The bits are those of
/// [`product`](super::product) with the matrix that was packed.
pub fn packed_product(
    a: &View<'_>,
    b: &PackedMatrix,
    epilogue: &Epilogue<'_>,
    c: &mut ViewMut<'_>,
) -> Result<()> {
    packed_product_on(thread_pool::num_threads(), a, b, epilogue, c)
}

pub(crate) fn packed_product_on(
    threads: usize,
    a: &View<'_>,
    b: &PackedMatrix,
    epilogue: &Epilogue<'_>,
    c: &mut ViewMut<'_>,
) -> Result<()> {
    let (rank, [k, n]) = (c.rank(), b.sizes());
    if rank < 2 || a.rank() != rank {
        let (what, found) = ("dimensions", if rank < 2 { rank } else { a.rank() });
        return Err(KernelError::Count { kernel: KERNEL, what, expected: rank.max(2), found });
    }
    let rows = &c.sizes()[..rank - 1];
    let with = |last: i64| rows.iter().copied().chain([last]).collect::<Dims>();
    same_sizes(KERNEL, "a", &with(k), a.sizes())?;
    same_sizes(KERNEL, "c", &with(n), c.sizes())?;
    same_dtype(KERNEL, "a", b.dtype, a.dtype())?;
    same_dtype(KERNEL, "c", b.dtype, c.dtype())?;
    match &b.panels {
        Packed::F32(panels) => run(threads, a, panels, epilogue, c),
        Packed::F64(panels) => run(threads, a, panels, epilogue, c),
    }
}

fn run<F: Float>(
    threads: usize,
    a: &View<'_>,
    b: &Panels<F>,
    epilogue: &Epilogue<'_>,
    c: &mut ViewMut<'_>,
) -> Result<()> {
    if c.numel() == 0 {
        return Ok(());
    }
    let r = c.rank() - 2;
    let sizes = [c.sizes()[r] as usize, b.columns, b.rows];
    let batches = crate::view::numel(&c.sizes()[..r]);
    let expanded = Expanded::new(epilogue, c)?;
    let output = expanded.output::<F>(epilogue, c, sizes[2]);
    over_batches(batches, sizes, threads, &|i, threads| {
        let at = layout::offset(&a.sizes()[..r], &a.strides()[..r], i);
        // SAFETY: the sizes were checked against each other; the matrices of C are disjoint.
        unsafe {
            special::with_rows(b.isa, threads, sizes, Operand::new(a, at), &|a| {
                let blocks = Blocks::new(b.isa, sizes, a, Right::Packed(b), output(i));
                blocks.run(threads)
            })
        }
    })
}
