//! Inclusive scans along a dimension: cumulative sums and products, and cumulative extremes with
//! positions.
//!
//! Sums are in the order of [`blocks`], and products of floats are [`chains`]. Integers have the
//! same bits in each order, and take that of blocks. There a line is read and written once, in parts
//! that fit the first-level cache.

pub(crate) mod blocks;
mod chains;

use crate::copy::{check_dim, copy, same_dtype, same_sizes};
use crate::element::{Class, Element, dispatch};
use crate::error::Result;
use crate::isa::Isa;
use crate::layout::offset;
use crate::load_store::{Reader, Writer};
use crate::pointwise::ops::{Add, Mul, Op2};
use crate::scratch::filled;
use crate::thread_pool;
use crate::view::{Dims, View, ViewMut, numel};
use blocks::{PART, SIDE, Totals, scan_line, scan_lines, scan_rows};
use chains::in_chains;
use maquette_ir::DType;
use maquette_ir::loops::scan::BLOCK;
use std::ops::Range;

const KERNEL: &str = "scan";
/// The lines that are scanned side by side, a row at a time.
const STRIP: usize = 64;
/// The fewest lines for which rows are faster than lines.
const FEW: usize = 8;

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

    /// The dimension along which lines lie side by side, nearer in memory than the elements of a
    /// line, but not in one place.
    fn side(&self, v: &View<'_>) -> Option<usize> {
        let stride = |d: &usize| v.strides()[*d].unsigned_abs();
        let nearer =
            |d: &usize| self.sizes[*d] >= FEW as i64 && (1..stride(&self.dim)).contains(&stride(d));
        (0..self.sizes.len()).filter(nearer).min_by_key(stride)
    }

    /// Calls `f` with the place and stride of the elements of some lines from `first`, and which of
    /// them they are. Lines that continue each other are taken at once.
    fn adjacent(
        &self,
        v: &View<'_>,
        first: usize,
        n: usize,
        mut f: impl FnMut(i64, i64, Range<usize>),
    ) {
        let (len, stride) = (self.len, self.stride(v));
        let (mut at, mut from) = (self.start(v, first), 0);
        for to in (len..=n).step_by(len) {
            let next = (to < n).then(|| self.start(v, first + to / len));
            if next != Some(at + (to - from) as i64 * stride) {
                f(at, stride, from..to);
                (at, from) = (next.unwrap_or(at), to);
            }
        }
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
    match (out.dtype().is_float(), op) {
        (true, ScanOp::Sum) => typed::<f64, Add>(&lines, Some(0.0), input, out),
        (true, ScanOp::Prod) => in_chains::<f64, Mul>(&lines, input, out),
        (false, ScanOp::Sum) => typed::<i64, Add>(&lines, None, input, out),
        (false, ScanOp::Prod) => typed::<i64, Mul>(&lines, None, input, out),
    }
}

/// Lines begin with `first`; see [`Totals::new`].
fn typed<A: Class, O: Op2<A, A>>(
    lines: &Lines,
    first: Option<A>,
    input: &View<'_>,
    out: &mut ViewMut<'_>,
) -> Result<()> {
    match lines.side(input) {
        Some(side) => in_rows::<A, O>(lines, (side, first), input, out),
        None => in_lines::<A, O>(lines, first, input, out),
    }
}

/// Scans line by line.
fn in_lines<A: Class, O: Op2<A, A>>(
    lines: &Lines,
    begins_with: Option<A>,
    input: &View<'_>,
    out: &mut ViewMut<'_>,
) -> Result<()> {
    let (src, dst) = (Reader::<A>::new(input), Writer::<A>::new(out));
    let (isa, si, so) = (Isa::detect(), lines.stride(input), lines.stride(out));
    let len = lines.len;
    lines.ranges(|from, to| {
        let most = (PART / len / SIDE * SIDE).max(1).min(to - from);
        let mut scratch = filled(KERNEL, A::default(), PART.min(len * most))?;
        if len > PART / SIDE {
            for line in from..to {
                let (i, o) = (lines.start(input, line), lines.start(out, line));
                let mut totals = Totals::new(begins_with);
                for at in (0..len).step_by(PART) {
                    let values = &mut scratch[..PART.min(len - at)];
                    let at = at as i64;
                    // SAFETY: the elements belong to this line, and a line belongs to one task.
                    unsafe { src.read(isa, i + at * si, si, values) };
                    scan_line::<A, O>(isa, values, &mut totals);
                    // SAFETY: as above.
                    unsafe { dst.write_run(isa, o + at * so, so, values) };
                }
            }
            return Ok(());
        }
        for first in (from..to).step_by(most) {
            let values = &mut scratch[..len * most.min(to - first)];
            lines.adjacent(input, first, values.len(), |at, stride, part| {
                // SAFETY: the elements belong to these lines, which belong to one task.
                unsafe { src.read(isa, at, stride, &mut values[part]) };
            });
            scan_lines::<A, O>(isa, values, len, begins_with);
            lines.adjacent(out, first, values.len(), |at, stride, part| {
                // SAFETY: as above.
                unsafe { dst.write_run(isa, at, stride, &values[part]) };
            });
        }
        Ok(())
    })
}

/// Scans lines that lie side by side along a dimension, a block of rows at a time.
fn in_rows<A: Class, O: Op2<A, A>>(
    lines: &Lines,
    (side, begins_with): (usize, Option<A>),
    input: &View<'_>,
    out: &mut ViewMut<'_>,
) -> Result<()> {
    let (src, dst) = (Reader::<A>::new(input), Writer::<A>::new(out));
    let (isa, si, so) = (Isa::detect(), lines.stride(input), lines.stride(out));
    let mut outer = lines.sizes.clone();
    let width = std::mem::replace(&mut outer[side], 1) as usize;
    let strips = width.div_ceil(STRIP);
    let (wi, wo) = (input.strides()[side], out.strides()[side]);
    let grain = (thread_pool::GRAIN / 4 / lines.len.saturating_mul(STRIP.min(width)).max(1)).max(1);
    thread_pool::ranges(numel(&outer) * strips, grain, 1, &|from, to| {
        let mut rows = [[A::default(); STRIP]; BLOCK];
        for task in from..to {
            let (line, strip) = (task / strips, task % strips * STRIP);
            let width = STRIP.min(width - strip);
            let start = |v: &View<'_>, w: i64| offset(&outer, v.strides(), line) + strip as i64 * w;
            let (i, o) = (start(input, wi), start(out, wo));
            let mut totals = Totals::new(begins_with);
            for at in (0..lines.len).step_by(BLOCK) {
                let rows = &mut rows[..BLOCK.min(lines.len - at)];
                for (row, at) in rows.iter_mut().zip(at as i64..) {
                    // SAFETY: the elements belong to these lines, which belong to one task.
                    unsafe { src.read(isa, i + at * si, wi, &mut row[..width]) };
                }
                scan_rows::<A, O, STRIP>(isa, rows, &mut totals);
                for (row, at) in rows.iter().zip(at as i64..) {
                    // SAFETY: as above.
                    unsafe { dst.write_run(isa, o + at * so, wo, &row[..width]) };
                }
            }
        }
        Ok(())
    })
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
