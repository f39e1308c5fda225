//! Convolution over 1, 2 or 3 spatial dimensions: unfold, then a matrix product. Computed in the class (`f32` for narrow
//! floats, `i64` for integers), rounded once.

use crate::copy::{copy, same_dtype, same_sizes, to_vec};
use crate::error::{KernelError, Result};
use crate::gemm::{Product, batched_gemm};
use crate::layout::for_each;
use crate::pointwise::steps::{Kind, class_of};
use crate::pool;
use crate::view::{Dims, Ptr, View, ViewMut, contiguous, numel};
use crate::window::Window;
use maquette_ir::DType;

/// `out[N, Cout, …] = input[N, Cin, …] * weight[Cout, Cin / groups, …] + bias[Cout]`; the window's kernel is the weight's.
pub fn conv(input: &View<'_>, weight: &View<'_>, bias: Option<&View<'_>>, w: &Window, groups: i64, out: &mut ViewMut<'_>) -> Result<()> {
    run("conv", input, weight, bias, w, groups, out, false)
}

/// The transpose of [`conv`]: `weight[Cin, Cout / groups, …]`; the output's spatial sizes may exceed the least by less than a
/// stride or dilation (PyTorch's `output_padding`).
pub fn conv_transpose(
    input: &View<'_>,
    weight: &View<'_>,
    bias: Option<&View<'_>>,
    w: &Window,
    groups: i64,
    out: &mut ViewMut<'_>,
) -> Result<()> {
    run("conv_transpose", input, weight, bias, w, groups, out, true)
}

#[allow(clippy::too_many_arguments)]
fn run(
    kernel: &'static str,
    input: &View<'_>,
    weight: &View<'_>,
    bias: Option<&View<'_>>,
    w: &Window,
    groups: i64,
    out: &mut ViewMut<'_>,
    transposed: bool,
) -> Result<()> {
    let spatial = w.kernel.len();
    w.check(kernel, input.rank())?;
    for (what, v) in [("input", input), ("weight", weight), ("output", out.as_view())] {
        if v.rank() != spatial + 2 {
            return Err(KernelError::argument(kernel, format!("the {what} must have rank {}, found {}", spatial + 2, v.rank())));
        }
        same_dtype(kernel, "an operand", input.dtype(), v.dtype())?;
    }
    let (n, c_in, c_out) = (input.sizes()[0], input.sizes()[1], out.sizes()[1]);
    if groups < 1 || c_in % groups != 0 || c_out % groups != 0 {
        return Err(KernelError::argument(kernel, format!("{groups} groups do not divide {c_in} inputs and {c_out} outputs")));
    }
    let channels = if transposed { [c_in, c_out / groups] } else { [c_out, c_in / groups] };
    let expected: Dims = channels.into_iter().chain(w.kernel.iter().copied()).collect();
    same_sizes(kernel, "the weight", &expected, weight.sizes())?;
    let mut sizes: Dims = smallvec::smallvec![n, c_out];
    for d in 0..spatial {
        let (i, o) = (input.sizes()[2 + d], out.sizes()[2 + d]);
        if transposed {
            let least = (i - 1) * w.stride[d] - 2 * w.padding[d] + w.dilation[d] * (w.kernel[d] - 1) + 1;
            let extra = o - least;
            sizes.push(if extra >= 0 && extra < w.stride[d].max(w.dilation[d]) { o } else { least });
        } else {
            sizes.push(w.output_size(d, i));
        }
        if sizes[2 + d] < 0 || (!transposed && sizes[2 + d] < 1) {
            return Err(KernelError::argument(kernel, format!("no window fits spatial dimension {d}")));
        }
    }
    same_sizes(kernel, "the output", &sizes, out.sizes())?;
    if let Some(b) = bias {
        same_sizes(kernel, "the bias", &[c_out], b.sizes())?;
    }
    match class_of(input.dtype()) {
        Kind::F32 => typed::<f32>(input, weight, bias, w, groups, out, transposed),
        Kind::F64 => typed::<f64>(input, weight, bias, w, groups, out, transposed),
        Kind::I64 => typed::<i64>(input, weight, bias, w, groups, out, transposed),
        Kind::Bool => Err(KernelError::DType { kernel, operand: "the input", expected: "a number".into(), found: DType::Bool }),
    }
}

/// What a patch matrix is made of: windows over a plane. Rows are (channel, kernel position), columns window positions.
struct Unfold<'w> {
    w: &'w Window,
    /// The sizes of the plane that windows lie on.
    plane: Dims,
    /// How many windows lie along each dimension.
    windows: Dims,
}

impl Unfold<'_> {
    fn taps(&self) -> usize {
        numel(&self.w.kernel)
    }

    /// Calls `f(column, plane offset, length, step)` for the runs of windows whose tap `tap` is inside the plane.
    fn runs(&self, tap: usize, mut f: impl FnMut(usize, i64, usize, i64)) {
        let w = self.w;
        let spatial = self.plane.len();
        let (mut rest, mut first, mut lo, mut count) =
            (tap as i64, Dims::from_elem(0, spatial), Dims::from_elem(0, spatial), Dims::from_elem(0, spatial));
        for d in (0..spatial).rev() {
            // The plane coordinate of window 0's tap; then which windows have theirs inside.
            first[d] = rest % w.kernel[d] * w.dilation[d] - w.padding[d];
            rest /= w.kernel[d];
            let s = w.stride[d];
            lo[d] = if first[d] < 0 { (-first[d] + s - 1) / s } else { 0 };
            let end = if self.plane[d] > first[d] { (self.plane[d] - first[d] + s - 1) / s } else { 0 };
            count[d] = (end.min(self.windows[d]) - lo[d]).max(0);
        }
        let (plane, columns) = (contiguous(&self.plane), contiguous(&self.windows));
        let steps: Dims = plane.iter().zip(&w.stride).map(|(p, s)| p * s).collect();
        let at: i64 = (0..spatial).map(|d| (first[d] + lo[d] * w.stride[d]) * plane[d]).sum();
        let column: i64 = (0..spatial).map(|d| lo[d] * columns[d]).sum();
        let inner = spatial - 1;
        let n = count[inner] as usize;
        for_each(&count[..inner], [&steps[..inner], &columns[..inner]], |[a, c]| f((column + c) as usize, at + a, n, steps[inner]));
    }

    fn patches<T: Product>(&self, planes: &[T], patches: &mut [T]) -> Result<()> {
        let (taps, columns, plane) = (self.taps(), numel(&self.windows), numel(&self.plane));
        let rows = patches.len() / columns.max(1);
        let out = Ptr(patches.as_mut_ptr());
        pool::ranges(rows, (pool::GRAIN / columns.max(1)).max(1), 1, &|from, to| {
            for r in from..to {
                // SAFETY: row `r` is one task's.
                let row = unsafe { out.slice_mut((r * columns) as i64, columns) };
                row.fill(T::default());
                let src = &planes[r / taps * plane..][..plane];
                self.runs(r % taps, |c, at, n, step| {
                    if step == 1 {
                        row[c..c + n].copy_from_slice(&src[at as usize..at as usize + n]);
                    } else {
                        row[c..c + n].iter_mut().zip(src[at as usize..].iter().step_by(step as usize)).for_each(|(o, x)| *o = *x);
                    }
                });
            }
            Ok(())
        })
    }

    /// Adds patches back onto planes, tap by tap.
    fn fold<T: Product>(&self, patches: &[T], planes: &mut [T], add: impl Fn(T, T) -> T + Sync) -> Result<()> {
        let (taps, columns, plane) = (self.taps(), numel(&self.windows), numel(&self.plane));
        let out = Ptr(planes.as_mut_ptr());
        pool::ranges(planes.len() / plane.max(1), 1, 1, &|from, to| {
            for c in from..to {
                // SAFETY: plane `c` is one task's.
                let dst = unsafe { out.slice_mut((c * plane) as i64, plane) };
                for tap in 0..taps {
                    let src = &patches[(c * taps + tap) * columns..][..columns];
                    self.runs(tap, |col, at, n, step| {
                        for (i, x) in src[col..col + n].iter().enumerate() {
                            let o = &mut dst[at as usize + i * step as usize];
                            *o = add(*o, *x);
                        }
                    });
                }
            }
            Ok(())
        })
    }
}

fn matrix<'a, T: Product>(x: &'a [T], rows: usize, columns: usize) -> Result<View<'a>> {
    View::from_slice_sized(x, &[rows as i64, columns as i64]).ok_or_else(|| KernelError::argument("conv", "the sizes overflow"))
}

fn typed<T: Product>(
    input: &View<'_>,
    weight: &View<'_>,
    bias: Option<&View<'_>>,
    w: &Window,
    groups: i64,
    out: &mut ViewMut<'_>,
    transposed: bool,
) -> Result<()>
where
    crate::pointwise::ops::Add: crate::pointwise::ops::Op2<T, T>,
{
    use crate::pointwise::ops::{Add, Op2};
    let add = <Add as Op2<T, T>>::f;
    let (x, weight) = (to_vec::<T>(input)?, to_vec::<T>(weight)?);
    let bias = bias.map(to_vec::<T>).transpose()?;
    let mut y = vec![T::default(); out.numel()];
    let (n, g) = (input.sizes()[0] as usize, groups as usize);
    let (ci, co) = (input.sizes()[1] as usize / g, out.sizes()[1] as usize / g);
    let (li, lo) = (numel(&input.sizes()[2..]), numel(&out.sizes()[2..]));
    let taps = numel(&w.kernel);
    let plain = taps == 1 && li == lo && w.stride.iter().all(|s| *s == 1) && w.padding.iter().all(|p| *p == 0);
    let (plane, windows) = if transposed { (&out.sizes()[2..], &input.sizes()[2..]) } else { (&input.sizes()[2..], &out.sizes()[2..]) };
    let unfold = Unfold { w, plane: plane.into(), windows: windows.into() };
    let (patch_rows, columns) = (if transposed { co } else { ci } * taps, numel(windows));
    let y_out = Ptr(y.as_mut_ptr());

    // With enough batches and groups, each is a task of its own; otherwise the steps within one are spread.
    pool::try_for(n * g, n * g >= 2 * pool::num_threads() && y.len() > pool::GRAIN, &|t| {
        let (b, gi) = (t / g, t % g);
        let src = &x[(b * g + gi) * ci * li..][..ci * li];
        // SAFETY: this batch and group's outputs, which are one task's.
        let dst = unsafe { y_out.slice_mut(((b * g + gi) * co * lo) as i64, co * lo) };
        let kernel = &weight[gi * ci * co * taps..][..ci * co * taps];
        let mut patches = if plain { Vec::new() } else { vec![T::default(); patch_rows * columns] };
        if transposed {
            // [co taps, li] = kernel[ci, co taps]^T src[ci, li]
            let k = matrix(kernel, ci, co * taps)?.permute(&[1, 0])?;
            let target = if plain { &mut *dst } else { &mut patches[..] };
            let mut c = ViewMut::from_slice_sized(target, &[(co * taps) as i64, li as i64]).ok_or_else(overflow)?;
            batched_gemm(&k, &matrix(src, ci, li)?, &mut c, 1.0, 0.0)?;
            if !plain {
                unfold.fold(&patches, dst, add)?;
            }
        } else {
            if !plain {
                unfold.patches(src, &mut patches)?;
            }
            let b = if plain { matrix(src, ci, li)? } else { matrix(&patches, ci * taps, lo)? };
            let mut c = ViewMut::from_slice_sized(dst, &[co as i64, lo as i64]).ok_or_else(overflow)?;
            batched_gemm(&matrix(kernel, co, ci * taps)?, &b, &mut c, 1.0, 0.0)?;
        }
        if let (Some(bias), true) = (&bias, lo > 0) {
            // SAFETY: as above; the borrow before has ended.
            let dst = unsafe { y_out.slice_mut(((b * g + gi) * co * lo) as i64, co * lo) };
            for (row, add_to) in dst.chunks_mut(lo).zip(&bias[gi * co..]) {
                row.iter_mut().for_each(|v| *v = add(*v, *add_to));
            }
        }
        Ok(())
    })?;
    let result = View::from_slice_sized(&y, out.sizes()).ok_or_else(overflow)?;
    copy(&result, out)
}

fn overflow() -> KernelError {
    KernelError::argument("conv", "the sizes overflow")
}
