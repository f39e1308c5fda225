//! Inclusive scans along a dimension: cumulative sums and products, and cumulative extremes with
//! positions.
//!
//! Each element depends on the one before it, so a single line is bound by the latency of the
//! operation. [`scan`] therefore scans [`SIDE`] lines interleaved, which gives independent
//! dependency chains without changing any line's order or bits.

use crate::copy::{check_dim, copy, same_dtype, same_sizes};
use crate::element::{Class, Element, dispatch};
use crate::error::Result;
use crate::isa::Isa;
use crate::layout::offset;
use crate::load_store::{Reader, Writer};
use crate::scratch::filled;
use crate::thread_pool;
use crate::view::{Dims, View, ViewMut, numel};
use maquette_ir::DType;
use smallvec::SmallVec;

const KERNEL: &str = "scan";
/// The number of lines that are scanned interleaved.
const SIDE: usize = 4;

/// What a scan accumulates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ScanOp {
    /// Sums; floats accumulate in `f64`, integers in `i64`.
    Sum,
    /// Products, with the same accumulators.
    Prod,
}

/// The lines of a tensor along `dim`: their number (0 if they have no elements), their length, and
/// their start in operands of the same sizes.
pub(crate) struct Lines {
    sizes: Dims,
    pub count: usize,
    pub len: usize,
    dim: usize,
}

impl Lines {
    pub fn new(kernel: &'static str, sizes: &[i64], dim: usize) -> Result<Lines> {
        check_dim(kernel, dim, sizes.len())?;
        let mut rest = Dims::from_slice(sizes);
        let len = rest.get(dim).map_or(1, |n| *n as usize);
        if let Some(d) = rest.get_mut(dim) {
            *d = 1;
        }
        Ok(Lines { count: if len == 0 { 0 } else { numel(&rest) }, sizes: rest, len, dim })
    }

    pub fn start(&self, v: &View<'_>, line: usize) -> i64 {
        offset(&self.sizes, v.strides(), line)
    }

    pub fn stride(&self, v: &View<'_>) -> i64 {
        v.strides().get(self.dim).copied().unwrap_or(0)
    }

    /// Runs `f(line)` for every line, on the thread pool if there is enough work.
    pub fn each(&self, f: impl Fn(usize) -> Result<()> + Sync) -> Result<()> {
        self.ranges(|from, to| (from..to).try_for_each(&f))
    }

    /// Runs `f(from, to)` for ranges that partition the lines, on the thread pool if there is
    /// enough work.
    fn ranges(&self, f: impl Fn(usize, usize) -> Result<()> + Sync) -> Result<()> {
        thread_pool::ranges(self.count, (thread_pool::GRAIN / 4 / self.len.max(1)).max(1), SIDE, &f)
    }
}

/// Cumulative sums or products along `dim`, of elements cast to the output's dtype. The input may
/// be the output itself.
pub fn scan(op: ScanOp, input: &View<'_>, dim: usize, out: &mut ViewMut<'_>) -> Result<()> {
    same_sizes(KERNEL, "the output", input.sizes(), out.sizes())?;
    let lines = Lines::new(KERNEL, input.sizes(), dim)?;
    if input.dtype() != out.dtype() {
        // Casts into the output first, then scans the output in place.
        copy(input, out)?;
        let cast = out.as_view().clone();
        return scan(op, &cast, dim, out);
    }
    let sum = op == ScanOp::Sum;
    if out.dtype().is_float() {
        if sum {
            typed(&lines, input, out, 0.0, |a: f64, b| a + b)
        } else {
            typed(&lines, input, out, 1.0, |a: f64, b| a * b)
        }
    } else if sum {
        typed(&lines, input, out, 0, i64::wrapping_add)
    } else {
        typed(&lines, input, out, 1, i64::wrapping_mul)
    }
}

fn typed<A: Class>(
    lines: &Lines,
    input: &View<'_>,
    out: &mut ViewMut<'_>,
    identity: A,
    f: impl Fn(A, A) -> A + Sync,
) -> Result<()> {
    let (src, dst) = (Reader::<A>::new(input), Writer::<A>::new(out));
    let (isa, si, so) = (Isa::detect(), lines.stride(input), lines.stride(out));
    lines.ranges(|from, to| {
        let mut scratch = filled(KERNEL, identity, lines.len.saturating_mul(SIDE.min(to - from)))?;
        for first in (from..to).step_by(SIDE) {
            let mut xs: SmallVec<[_; SIDE]> =
                (first..to).zip(scratch.chunks_mut(lines.len)).collect();
            for (line, xs) in &mut xs {
                // SAFETY: the elements belong to this line, and a line belongs to one task.
                unsafe { src.read(isa, lines.start(input, *line), si, xs) };
            }
            match xs.as_mut_slice() {
                [(_, a), (_, b), (_, c), (_, d)] => running([a, b, c, d], identity, &f),
                fewer => fewer.iter_mut().for_each(|(_, xs)| running([xs], identity, &f)),
            }
            for (line, xs) in &xs {
                // SAFETY: as above.
                unsafe { dst.write_run(isa, lines.start(out, *line), so, xs) }
            }
        }
        Ok(())
    })
}

/// Scans `N` lines of equal length in place, interleaved to hide the latency of `f`.
fn running<A: Class, const N: usize>(mut lines: [&mut [A]; N], identity: A, f: impl Fn(A, A) -> A) {
    let mut acc = [identity; N];
    let n = lines.iter().map(|l| l.len()).min().unwrap_or(0);
    let mut lines = lines.each_mut().map(|l| &mut l[..n]);
    for i in 0..n {
        for (acc, line) in acc.iter_mut().zip(&mut lines) {
            *acc = f(*acc, line[i]);
            line[i] = acc.one_nan();
        }
    }
}

/// The greatest (or least) element so far along `dim`, and its position (i64). Once a NaN occurs,
/// the result stays NaN. Among equal elements the last one counts, as in PyTorch.
pub fn cumulative_extreme(
    max: bool,
    input: &View<'_>,
    dim: usize,
    values: &mut ViewMut<'_>,
    indices: &mut ViewMut<'_>,
) -> Result<()> {
    same_sizes(KERNEL, "the values", input.sizes(), values.sizes())?;
    same_sizes(KERNEL, "the indices", input.sizes(), indices.sizes())?;
    same_dtype(KERNEL, "the values", input.dtype(), values.dtype())?;
    same_dtype(KERNEL, "the indices", DType::I64, indices.dtype())?;
    let lines = Lines::new(KERNEL, input.sizes(), dim)?;
    dispatch!(input.dtype(), T => {
        let (src, v, ix) = (input.typed::<T>(), values.typed::<T>(), indices.typed::<i64>());
        let (si, sv, sx) = (lines.stride(input), lines.stride(values), lines.stride(indices));
        lines.each(|line| {
            let (i0, v0) = (lines.start(input, line), lines.start(values, line));
            let x0 = lines.start(indices, line);
            // SAFETY: elements of this line, which is one task's and not empty.
            unsafe {
                let (mut best, mut at) = (src.get(i0), 0);
                for k in 0..lines.len as i64 {
                    let x = src.get(i0 + k * si);
                    let (a, b) = (x.load(), best.load());
                    let nan = b.partial_cmp(&b).is_none();
                    if a.partial_cmp(&a).is_none() || (!nan && if max { a >= b } else { a <= b }) {
                        (best, at) = (x, k);
                    }
                    v.set(v0 + k * sv, T::store(best.load().one_nan()));
                    ix.set(x0 + k * sx, at);
                }
            }
            Ok(())
        })
    })
}
