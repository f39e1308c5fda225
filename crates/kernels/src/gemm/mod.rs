//! Matrix products: `C = epilogue(A B)`, with arbitrary strides, in a defined order of summation.
//!
//! # The order
//!
//! An element of the result is computed in these steps. Each operation rounds once, to nearest
//! even, in `f32` or `f64`; `f16` and `bf16` are widened to `f32`.
//!
//! 1. `k` is cut into segments of [`SEGMENT`] (512); the last may be shorter. The sum of a segment
//!    is one chain of fused multiply-adds in increasing `k`, from +0.
//! 2. [`GROUP`] (64) segments make a group. The sum of a group begins with the sum of its first
//!    segment, to which those of the others are added in order.
//! 3. The sum begins with the sum of the first group, to which those of the others are added in
//!    order. The sum of no products is +0.
//! 4. The sum is multiplied by `alpha`, unless `k` is 0. Then `beta` times the addend is added, as
//!    a product and a sum. Then an activation is applied, and the residual is added ([`Epilogue`]).
//! 5. A NaN becomes the one NaN. Half precision is rounded.
//!
//! So the bits of a result depend on the operands alone: not on the number of threads, the
//! instruction set, the strides, the tiles, or the number of rows. The segments bound the error of
//! long sums: a single chain of `f32` over 2²⁵ ones would stop at 2²⁴. They also let the threads
//! share a long `k`.
//!
//! # The modules
//!
//! `kernel` has the microkernels, over the vectors of `lanes`; `pack` writes B into panels;
//! `blocks` divides a product among tasks and blocks, `tiles` a block among tiles; `strips` packs A
//! where its columns are contiguous; `epilogue` finishes tiles that the kernels cannot; `visitor`
//! passes finished parts of the result to what follows a product; `joined` has several products of
//! one left factor; `pixels` has products whose left rows are neighbours in an image, and
//! `pixel_panel` one panel of them; `small` has products of a few elements, and `special` those
//! with any epilogue, and long dot products. Integers use a plain loop and wrap (`integers`).

mod blocks;
mod epilogue;
mod integers;
mod joined;
mod kernel;
mod lanes;
mod operands;
mod pack;
mod packed;
mod pixel_panel;
mod pixels;
mod small;
mod soft_fma;
mod special;
mod strips;
mod tiles;
mod visitor;

pub use epilogue::{Activation, Epilogue};
pub(crate) use joined::{JoinedProduct, joined_products};
pub(crate) use lanes::{Array, Lanes};
pub(crate) use operands::{Gemm, Mat, Product};
pub(crate) use pack::{PackColumns, Right};
#[cfg(test)]
pub(crate) use packed::packed_product_on;
pub use packed::{PackedMatrix, packed_product};
pub(crate) use pixels::{PixelLines, PixelOutput, PixelProduct, PixelWeights, WeightsAhead};
pub(crate) use small::{SmallMatrices, SmallProduct};
pub(crate) use visitor::{EpilogueVisitor, RightFactor, visited_product};

use crate::copy::{same_dtype, same_sizes};
use crate::error::{KernelError, Result};
use crate::isa::Isa;
use crate::layout;
use crate::thread_pool;
use crate::view::{Dims, View, ViewMut};
use epilogue::{Operand, Output};
pub(crate) use kernel::{Affine, ChannelTile, Kernels, PlaneTile, Taps, WindowedPlane};
use maquette_ir::{DType, Scalar};

const KERNEL: &str = "gemm";
/// The products of one chain.
pub(crate) const SEGMENT: usize = 512;
/// The segments of a group.
const GROUP: usize = 64;
/// The most channels of a panel of pixels.
const WIDEST: usize = 32;

/// A float type with microkernels.
pub(crate) trait Float: crate::math::Float {
    /// Factors and summands of the channels of a panel that change nothing.
    const UNCHANGING: [&'static [Self; WIDEST]; 2];
    /// `a * b + c`, rounded once, without a function call in the baseline of the target.
    fn fma(a: Self, b: Self, c: Self) -> Self;
    /// `self * b + c`, rounded once. A function call, if the instruction set lacks the operation.
    fn mul_add(self, b: Self, c: Self) -> Self;
    fn kernels(isa: Isa) -> &'static Kernels<Self>;
}

impl Float for f32 {
    const UNCHANGING: [&'static [f32; WIDEST]; 2] = [&[1.0; WIDEST], &[-0.0; WIDEST]];
    #[inline(always)]
    fn fma(a: f32, b: f32, c: f32) -> f32 {
        // Without the instruction, the standard library calls a function for each element.
        if cfg!(any(target_feature = "fma", not(target_arch = "x86_64"))) {
            a.mul_add(b, c)
        } else {
            soft_fma::fma_f32(a, b, c)
        }
    }
    #[inline(always)]
    fn mul_add(self, b: f32, c: f32) -> f32 {
        self.mul_add(b, c)
    }
    fn kernels(isa: Isa) -> &'static Kernels<f32> {
        kernel::kernels_f32(isa)
    }
}

impl Float for f64 {
    const UNCHANGING: [&'static [f64; WIDEST]; 2] = [&[1.0; WIDEST], &[-0.0; WIDEST]];
    #[inline(always)]
    fn fma(a: f64, b: f64, c: f64) -> f64 {
        a.mul_add(b, c)
    }
    #[inline(always)]
    fn mul_add(self, b: f64, c: f64) -> f64 {
        self.mul_add(b, c)
    }
    fn kernels(isa: Isa) -> &'static Kernels<f64> {
        kernel::kernels_f64(isa)
    }
}

/// `c[m, n] = beta c + alpha a[m, k] b[k, n]`, all of one dtype. With `beta` 0 the contents of `c`
/// are ignored, even NaN.
pub fn gemm(
    a: &View<'_>,
    b: &View<'_>,
    c: &mut ViewMut<'_>,
    alpha: impl Into<Scalar>,
    beta: impl Into<Scalar>,
) -> Result<()> {
    if a.rank() != 2 || b.rank() != 2 || c.rank() != 2 {
        let found = [a.rank(), b.rank(), c.rank()].into_iter().find(|r| *r != 2).unwrap_or(2);
        return Err(KernelError::Count { kernel: KERNEL, what: "dimensions", expected: 2, found });
    }
    batched_gemm(a, b, c, alpha, beta)
}

/// [`gemm()`] over the last two dimensions, with equal leading sizes as batch dimensions; a stride
/// of 0 shares a matrix between batches.
pub fn batched_gemm(
    a: &View<'_>,
    b: &View<'_>,
    c: &mut ViewMut<'_>,
    alpha: impl Into<Scalar>,
    beta: impl Into<Scalar>,
) -> Result<()> {
    let addend = Some(c.as_view().clone());
    let epilogue =
        Epilogue { alpha: alpha.into(), beta: beta.into(), addend, ..Epilogue::default() };
    product(a, b, &epilogue, c)
}

/// `c[..., m, n] = epilogue(a[..., m, k] b[..., k, n])`, all of one dtype and rank, with equal
/// leading sizes. The addend and the residual expand to `c`, and may be `c` itself. Integers take
/// neither an activation nor a residual.
pub fn product(
    a: &View<'_>,
    b: &View<'_>,
    epilogue: &Epilogue<'_>,
    c: &mut ViewMut<'_>,
) -> Result<()> {
    product_on(Isa::detect(), thread_pool::num_threads(), a, b, epilogue, c)
}

/// [`product`] on a given instruction set, divided as for `threads` threads. Neither changes a bit.
pub(crate) fn product_on(
    isa: Isa,
    threads: usize,
    a: &View<'_>,
    b: &View<'_>,
    epilogue: &Epilogue<'_>,
    c: &mut ViewMut<'_>,
) -> Result<()> {
    let rank = c.rank();
    if rank < 2 || a.rank() != rank || b.rank() != rank {
        let found = match rank < 2 {
            true => rank,
            false => [a.rank(), b.rank()].into_iter().find(|r| *r != rank).unwrap_or(rank),
        };
        let expected = rank.max(2);
        return Err(KernelError::Count { kernel: KERNEL, what: "dimensions", expected, found });
    }
    let (outer, own) = c.sizes().split_at(rank - 2);
    let k = a.sizes()[rank - 1];
    for (name, matrix, sizes) in [("a", a, [own[0], k]), ("b", b, [k, own[1]])] {
        if matrix.sizes().strip_prefix(outer) != Some(&sizes) {
            let expected: Dims = outer.iter().copied().chain(sizes).collect();
            same_sizes(KERNEL, name, &expected, matrix.sizes())?;
        }
    }
    same_dtype(KERNEL, "a", c.dtype(), a.dtype())?;
    same_dtype(KERNEL, "b", c.dtype(), b.dtype())?;
    match c.dtype() {
        DType::F32 | DType::F16 | DType::BF16 => run::<f32>(isa, threads, a, b, epilogue, c),
        DType::F64 => run::<f64>(isa, threads, a, b, epilogue, c),
        DType::Bool => Err(KernelError::DType {
            kernel: KERNEL,
            operand: "c",
            expected: "a number".into(),
            found: DType::Bool,
        }),
        _ => integers::run(a, b, epilogue, c),
    }
}

/// The epilogue's operands, expanded to C.
struct Expanded<'a> {
    addend: Option<View<'a>>,
    residual: Option<View<'a>>,
}

impl<'a> Expanded<'a> {
    fn new(epilogue: &Epilogue<'a>, c: &View<'_>) -> Result<Expanded<'a>> {
        let expand = |v: &Option<View<'a>>| match v {
            None => Ok(None),
            Some(v) if v.sizes() == c.sizes() => Ok(Some(v.clone())),
            Some(v) => v.expand(c.sizes()).map(Some),
        };
        let addend = if epilogue.beta.to_bool() { expand(&epilogue.addend)? } else { None };
        Ok(Expanded { addend, residual: expand(&epilogue.residual)? })
    }

    /// The output of a batch.
    fn output<'s, F: Float>(
        &'s self,
        epilogue: &Epilogue<'_>,
        c: &'s mut ViewMut<'_>,
        k: usize,
    ) -> impl Fn(usize) -> Output<F> + Sync + use<'s, 'a, F> {
        let rank = c.rank();
        let direct = if c.dtype() == F::DTYPE { c.typed::<F>().0 } else { std::ptr::null_mut() };
        let operand =
            |v: &'s Option<View<'a>>| v.as_ref().map(|v| (Operand::<F>::new(v, 0), v.strides()));
        let (addend, residual) = (operand(&self.addend), operand(&self.residual));
        let writer = crate::load_store::Writer::new(c);
        let c = c.as_view();
        let (batch, strides) = (&c.sizes()[..rank - 2], c.strides());
        let output = Output {
            writer,
            direct: crate::view::Ptr(direct),
            at: 0,
            strides: [strides[rank - 2], strides[rank - 1]],
            alpha: if k == 0 { F::ONE } else { F::from_f64(epilogue.alpha.to_f64()) },
            beta: F::from_f64(epilogue.beta.to_f64()),
            addend: None,
            activation: epilogue.activation,
            residual: None,
        };
        move |i| {
            let at = |strides: &[i64]| layout::offset(batch, &strides[..batch.len()], i);
            let operand = |o: &Option<(Operand<F>, &[i64])>| {
                o.as_ref().map(|(o, strides)| Operand { at: at(strides), ..*o })
            };
            Output {
                at: at(strides),
                addend: operand(&addend),
                residual: operand(&residual),
                ..output
            }
        }
    }
}

/// The batched product of floats.
fn run<F: Float>(
    isa: Isa,
    threads: usize,
    a: &View<'_>,
    b: &View<'_>,
    epilogue: &Epilogue<'_>,
    c: &mut ViewMut<'_>,
) -> Result<()> {
    let r = c.rank() - 2;
    let sizes = [c.sizes()[r] as usize, c.sizes()[r + 1] as usize, a.sizes()[r + 1] as usize];
    if c.numel() == 0 {
        return Ok(());
    }
    let batches = crate::view::numel(&c.sizes()[..r]);
    let expanded = Expanded::new(epilogue, c)?;
    let output = expanded.output::<F>(epilogue, c, sizes[2]);
    let operand = |v: &View<'_>, i: usize| {
        Operand::<F>::new(v, layout::offset(&v.sizes()[..r], &v.strides()[..r], i))
    };
    // SAFETY: the sizes were checked against each other; the matrices of C are disjoint.
    over_batches(batches, sizes, threads, &|i, threads| unsafe {
        special::product(isa, threads, sizes, operand(a, i), operand(b, i), output(i))
    })
}

/// Computes the products of all batches: each on one thread if there are enough of them.
pub(crate) fn over_batches(
    batches: usize,
    [m, n, k]: [usize; 3],
    threads: usize,
    product: &(dyn Fn(usize, usize) -> Result<()> + Sync),
) -> Result<()> {
    if batches == 1 {
        return product(0, threads);
    }
    let work = m.saturating_mul(n).saturating_mul(k).saturating_mul(batches);
    if batches >= 2 * threads || work <= blocks::SMALL {
        return thread_pool::try_for(batches, work > blocks::SMALL, &|i| product(i, 1));
    }
    (0..batches).try_for_each(|i| product(i, threads))
}
