//! Max and average pooling over the last dimensions; all earlier dimensions are batch.

mod channels;
mod planes;

use crate::conv::PlaneWindow;
use crate::copy::{same_dtype, same_sizes};
use crate::element::{Class, Element, cast, dispatch};
use crate::error::{KernelError, Result};
use crate::gemm::Float;
use crate::isa::Isa;
use crate::layout::{for_each, offset};
use crate::pointwise::chain::Chained;
use crate::pointwise::ops::{Add, Div, Op2, TruncDiv};
use crate::reduce::better;
use crate::thread_pool;
use crate::view::{Dims, Ptr, View, ViewMut, contiguous, numel};
use crate::window::Window;
use maquette_ir::DType;
use planes::Greatest;

/// The planes of an input and an output, with their common batch dimensions.
struct Planes {
    batch: Dims,
    n: usize,
    in_sizes: Dims,
    out_sizes: Dims,
}

impl Planes {
    fn new(input: &View<'_>, out: &View<'_>, spatial: usize) -> Planes {
        let lead = input.rank() - spatial;
        let batch = Dims::from_slice(&input.sizes()[..lead]);
        Planes {
            n: numel(&batch),
            batch,
            in_sizes: input.sizes()[lead..].into(),
            out_sizes: out.sizes()[lead..].into(),
        }
    }

    fn start(&self, v: &View<'_>, plane: usize) -> i64 {
        offset(&self.batch, &v.strides()[..self.batch.len()], plane)
    }

    fn strides<'v>(&self, v: &'v View<'_>) -> &'v [i64] {
        &v.strides()[self.batch.len()..]
    }

    /// Runs `f(plane, position)` for every output position.
    fn each(&self, work: usize, f: impl Fn(usize, &[i64]) + Sync) -> Result<()> {
        let per = numel(&self.out_sizes);
        thread_pool::ranges(
            self.n,
            (thread_pool::GRAIN / work.max(1) / per.max(1)).max(1),
            1,
            &|from, to| {
                let mut position: Dims = smallvec::smallvec![0; self.out_sizes.len()];
                for plane in from..to {
                    for flat in 0..per {
                        let mut rest = flat as i64;
                        for d in (0..position.len()).rev() {
                            position[d] = rest % self.out_sizes[d];
                            rest /= self.out_sizes[d];
                        }
                        f(plane, &position);
                    }
                }
                Ok(())
            },
        )
    }
}

fn dot(a: &[i64], b: &[i64]) -> i64 {
    a.iter().zip(b).map(|(x, y)| x * y).sum()
}

fn check(kernel: &'static str, w: &Window, input: &View<'_>, out: &ViewMut<'_>) -> Result<()> {
    w.check(kernel, input.rank())?;
    same_dtype(kernel, "the output", input.dtype(), out.dtype())?;
    let lead = input.rank() - w.kernel.len();
    let mut expected = Dims::from_slice(input.sizes());
    for d in 0..w.kernel.len() {
        if w.padding[d] > w.kernel[d] / 2 {
            return Err(KernelError::argument(
                kernel,
                format!("padding {} exceeds half of kernel size {}", w.padding[d], w.kernel[d]),
            ));
        }
        expected[lead + d] = w.output_size(d, input.sizes()[lead + d]);
        if expected[lead + d] < 1 {
            return Err(KernelError::argument(
                kernel,
                format!("the window exceeds dimension {}", lead + d),
            ));
        }
    }
    same_sizes(kernel, "the output", &expected, out.sizes())
}

/// The greatest element of each window (the last NaN if there is one), and its row-major position
/// in the plane (i64).
pub fn max_pool(
    input: &View<'_>,
    w: &Window,
    out: &mut ViewMut<'_>,
    indices: Option<&mut ViewMut<'_>>,
) -> Result<()> {
    const KERNEL: &str = "max_pool";
    check(KERNEL, w, input, out)?;
    if let Some(i) = &indices {
        same_dtype(KERNEL, "the indices", DType::I64, i.dtype())?;
        same_sizes(KERNEL, "the indices", out.sizes(), i.sizes())?;
    }
    let p = Planes::new(input, out, w.kernel.len());
    let flat = contiguous(&p.in_sizes);
    let indices = indices.map(|i| (i.typed::<i64>(), i.as_view().clone()));
    let done = match input.dtype() {
        DType::F32 => by_vectors::<f32>(input, w, out, indices.as_ref()),
        DType::F64 => by_vectors::<f64>(input, w, out, indices.as_ref()),
        _ => None,
    };
    if let Some(done) = done {
        return done;
    }
    dispatch!(input.dtype(), T => {
        let (src, dst) = (input.typed::<T>(), out.typed::<T>());
        let out = out.as_view();
        p.each(numel(&w.kernel), |plane, at| {
            let base = p.start(input, plane);
            // The first coordinate of the window inside the plane, and the number of elements
            // inside.
            let (mut lo, mut count) = (Dims::new(), Dims::new());
            for d in 0..at.len() {
                let begin = at[d] * w.stride[d] - w.padding[d];
                let skip = if begin < 0 { (-begin + w.dilation[d] - 1) / w.dilation[d] } else { 0 };
                lo.push(begin + skip * w.dilation[d]);
                let fit = (p.in_sizes[d] - lo[d] + w.dilation[d] - 1) / w.dilation[d];
                count.push((w.kernel[d] - skip).min(fit).max(0));
            }
            let step =
                |s: &[i64]| -> Dims { s.iter().zip(&w.dilation).map(|(s, d)| s * d).collect() };
            let (i0, f0) = (base + dot(&lo, p.strides(input)), dot(&lo, &flat));
            let mut best: Option<(T, i64)> = None;
            for_each(&count, [&step(p.strides(input)), &step(&flat)], |[i, f]| {
                // SAFETY: the window was clipped to the input.
                let x = unsafe { src.get(i0 + i) };
                let nan = x.load().partial_cmp(&x.load()).is_none();
                if nan || best.is_none_or(|(b, _)| better(true, x.load(), b.load())) {
                    best = Some((x, f0 + f));
                }
            });
            // All elements of a dilated window may be in the padding.
            let (x, f) = best.unwrap_or((cast(f64::NEG_INFINITY), 0));
            // SAFETY: an output position belongs to one task.
            unsafe {
                dst.set(p.start(out, plane) + dot(at, p.strides(out)), x);
                if let Some((ix, v)) = &indices {
                    ix.set(p.start(v, plane) + dot(at, p.strides(v)), f);
                }
            }
        })
    })
}

/// The most taps of a window that vectors compute: they keep a list of all taps. Of a larger
/// window, most taps are in the padding, which the loop for one window at a time leaves out.
const MAX_TAPS: i64 = 4096;

/// As [`max_pool`], of images; `None`, with nothing written, for others.
fn by_vectors<T: Chained>(
    input: &View<'_>,
    w: &Window,
    out: &mut ViewMut<'_>,
    indices: Option<&(Ptr<i64>, View<'_>)>,
) -> Option<Result<()>> {
    if w.kernel.iter().fold(1, |taps: i64, n| taps.saturating_mul(*n)) > MAX_TAPS {
        return None;
    }
    let channels_last = indices.is_none().then(|| channels::greatest::<T>(input, w, out)).flatten();
    channels_last.or_else(|| by_planes::<T>(input, w, out, indices))
}

/// As [`max_pool`], of row-major planes; `None`, with nothing written, for others.
fn by_planes<T: Float>(
    input: &View<'_>,
    w: &Window,
    out: &mut ViewMut<'_>,
    indices: Option<&(Ptr<i64>, View<'_>)>,
) -> Option<Result<()>> {
    let lead = input.rank() - w.kernel.len();
    let is_row_major = indices.is_none_or(|(_, i)| i.is_contiguous());
    if !is_row_major || !input.is_contiguous() || !out.is_contiguous() || out.overlaps(input) {
        return None;
    }
    let sizes = [&input.sizes()[lead..], &out.sizes()[lead..], &w.kernel[..]];
    let window = PlaneWindow::new(sizes, [&w.stride, &w.padding, &w.dilation])?;
    // SAFETY: the input is contiguous, and does not overlap the output.
    let x = unsafe { input.typed::<T>().slice(0, input.numel()) };
    let indices = indices.map(|(i, _)| Ptr(i.0));
    let isa = Isa::detect();
    let planes = Greatest { isa, window, x, y: out.typed::<T>(), indices };
    // SAFETY: the outputs are contiguous, and this call's alone.
    unsafe { planes.run(numel(&input.sizes()[..lead])) }
}

/// Averages each window: sums its elements in row-major order and divides by the divisor. `window`
/// writes the window's start and sizes within the plane, and returns the divisor, which is not 0.
/// `D` is the division.
fn average<T: Element, D: Op2<T::Class, T::Class>>(
    input: &View<'_>,
    out: &mut ViewMut<'_>,
    spatial: usize,
    work: usize,
    window: impl Fn(&[i64], &mut Dims, &mut Dims) -> i64 + Sync,
) -> Result<()>
where
    Add: Op2<T::Class, T::Class>,
{
    let p = Planes::new(input, out, spatial);
    let (src, dst) = (input.typed::<T>(), out.typed::<T>());
    let out = out.as_view();
    p.each(work, |plane, at| {
        let (mut lo, mut sizes) = (Dims::new(), Dims::new());
        let by = <T::Class as Class>::cast(window(at, &mut lo, &mut sizes));
        let base = p.start(input, plane) + dot(&lo, p.strides(input));
        let mut sum = T::Class::default();
        for_each(&sizes, [p.strides(input)], |[i]| {
            // SAFETY: the window was clipped to the input.
            sum = Add::f(sum, unsafe { src.get(base + i) }.load());
        });
        // SAFETY: an output position belongs to one task.
        unsafe { dst.set(p.start(out, plane) + dot(at, p.strides(out)), T::store(D::f(sum, by))) }
    })
}

/// The mean of each window. Padding counts as zeros if `count_include_pad`; `divisor` replaces the
/// count. Takes floats, and `i64`, whose sums wrap and whose quotients are truncated.
pub fn avg_pool(
    input: &View<'_>,
    w: &Window,
    count_include_pad: bool,
    divisor: Option<i64>,
    out: &mut ViewMut<'_>,
) -> Result<()> {
    const KERNEL: &str = "avg_pool";
    check(KERNEL, w, input, out)?;
    if divisor == Some(0) {
        return Err(KernelError::argument(KERNEL, "the divisor must not be 0"));
    }
    if w.dilation.iter().any(|d| *d != 1) {
        return Err(KernelError::argument(KERNEL, "takes no dilation"));
    }
    // The counts of elements are products of at most these numbers.
    if w.kernel.iter().try_fold(1i64, |count, n| count.checked_mul(*n)).is_none() {
        return Err(KernelError::argument(KERNEL, "the window has too many elements"));
    }
    let sizes = Dims::from_slice(&input.sizes()[input.rank() - w.kernel.len()..]);
    let (spatial, work) = (w.kernel.len(), numel(&w.kernel));
    let window = |at: &[i64], lo: &mut Dims, len: &mut Dims| {
        let mut padded = 1;
        for d in 0..at.len() {
            let begin = at[d] * w.stride[d] - w.padding[d];
            let end = (begin + w.kernel[d]).min(sizes[d] + w.padding[d]);
            padded *= end - begin;
            lo.push(begin.max(0));
            len.push(end.min(sizes[d]) - begin.max(0));
        }
        divisor.unwrap_or(if count_include_pad { padded } else { len.iter().product() })
    };
    match input.dtype() {
        DType::I64 => average::<i64, TruncDiv>(input, out, spatial, work, window),
        dtype => {
            dispatch!(float KERNEL, "the input", dtype, T => {
                average::<T, Div>(input, out, spatial, work, window)
            })
        }
    }
}

/// The means over an even division of the plane into as many windows as the output has elements
/// (PyTorch's adaptive pooling), for floats.
pub fn adaptive_avg_pool(input: &View<'_>, spatial: usize, out: &mut ViewMut<'_>) -> Result<()> {
    const KERNEL: &str = "adaptive_avg_pool";
    if spatial == 0 || spatial > input.rank() || out.rank() != input.rank() {
        return Err(KernelError::argument(
            KERNEL,
            format!("{spatial} spatial dimensions exceed rank {}", input.rank()),
        ));
    }
    let lead = input.rank() - spatial;
    same_dtype(KERNEL, "the output", input.dtype(), out.dtype())?;
    same_sizes(KERNEL, "the leading dimensions", &input.sizes()[..lead], &out.sizes()[..lead])?;
    if input.sizes()[lead..].contains(&0) {
        return Err(KernelError::argument(KERNEL, "the plane has no elements"));
    }
    let (from, to) =
        (Dims::from_slice(&input.sizes()[lead..]), Dims::from_slice(&out.sizes()[lead..]));
    let window = |at: &[i64], lo: &mut Dims, len: &mut Dims| {
        for d in 0..at.len() {
            let begin = at[d] * from[d] / to[d];
            lo.push(begin);
            len.push(((at[d] + 1) * from[d] + to[d] - 1) / to[d] - begin);
        }
        len.iter().product()
    };
    let (area, windows) = (numel(&from), numel(&to));
    let is_row_major = input.is_contiguous() && out.is_contiguous() && !out.overlaps(input);
    dispatch!(float KERNEL, "the input", input.dtype(), T => {
        if windows == 1 && is_row_major {
            return whole_planes::<T>(input, area, out);
        }
        if windows == 1
            && let Some(done) = channels::means::<T>(input, spatial, out)
        {
            return done;
        }
        average::<T, Div>(input, out, spatial, (area / windows.max(1)).max(8), window)
    })
}

/// The planes whose sums are computed at a time, so that their chains of additions overlap.
const AT_A_TIME: usize = 8;

/// The means of row-major planes of floats, each summed in order.
fn whole_planes<T: Element>(input: &View<'_>, area: usize, out: &mut ViewMut<'_>) -> Result<()>
where
    Add: Op2<T::Class, T::Class>,
    Div: Op2<T::Class, T::Class>,
{
    // SAFETY: the input is contiguous, and does not overlap the output.
    let x = unsafe { input.typed::<T>().slice(0, input.numel()) };
    let (planes, means) = (out.numel(), out.typed::<T>());
    let by = <T::Class as Class>::cast(area as i64);
    let grain = (thread_pool::GRAIN / area.max(1)).max(1);
    thread_pool::ranges(planes, grain, AT_A_TIME, &|from, to| {
        // SAFETY: the planes are this task's alone.
        let means = unsafe { means.slice_mut(from as i64, to - from) };
        let x = x[from * area..to * area].chunks(AT_A_TIME * area);
        for (x, means) in x.zip(means.chunks_mut(AT_A_TIME)) {
            let mut sums = [T::Class::default(); AT_A_TIME];
            let rows: [&[T]; AT_A_TIME] =
                std::array::from_fn(|i| x.get(i * area..(i + 1) * area).unwrap_or(&x[..area]));
            for i in 0..area {
                for (sum, row) in sums.iter_mut().zip(rows) {
                    *sum = Add::f(*sum, row[i].load());
                }
            }
            means.iter_mut().zip(sums).for_each(|(to, sum)| *to = T::store(Div::f(sum, by)));
        }
        Ok(())
    })
}
