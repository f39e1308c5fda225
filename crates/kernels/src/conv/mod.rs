//! Convolution over 1, 2 or 3 spatial dimensions by im2col: windows of the input are unfolded into
//! a patch matrix, which is multiplied by the weight matrix (Chellapilla et al., 2006).
//!
//! There is no patch matrix in memory: windows are unfolded into the panels that the product packs
//! anyway. For many windows the weights are packed instead, and windows are read where they are
//! (`pixels`). A 1x1 convolution of stride 1 without padding multiplies the input itself, and
//! groups of few channels are summed without a product (`direct`). The transposed convolution
//! multiplies first and then adds each row back at its window positions (col2im). Values are
//! computed in the class (`f32` for narrow floats, `i64` for integers) and rounded once.

mod channels;
mod direct;
mod frame;
mod images;
mod pixel_frame;
mod pixels;
mod planes;
mod source;
#[cfg(test)]
mod tests;
mod transposed;
mod unfold;
mod visitor;

pub(crate) use channels::{ChannelConv, WindowReduction};
pub(crate) use frame::{Frame, PlaneWindow};
pub(crate) use images::{Images, image_strides};
pub(crate) use pixels::{PixelConv, Pixels};
pub(crate) use planes::PlaneConv;
pub(crate) use visitor::{Following, ImageVisitor};

use crate::copy::{copy, same_dtype, same_sizes, to_vec};
use crate::error::{KernelError, Result};
use crate::gemm::{Gemm, Mat, Product, Right};
use crate::isa::{Each, Isa};
use crate::pointwise::ops::{Add, Op2};
use crate::pointwise::steps::{Kind, class_of};
use crate::scratch::filled;
use crate::thread_pool;
use crate::view::{Dims, Ptr, View, ViewMut, numel};
use crate::window::Window;
use maquette_ir::DType;
use std::borrow::Cow;
use unfold::{Patches, Unfold};

/// Weights are packed for at least this many pixels: it takes as long as about 60 of them.
const MIN_PIXELS: usize = 512;

/// Computes `out[N, Cout, …] = input[N, Cin, …] * weight[Cout, Cin / groups, …] + bias[Cout]`. The
/// window's kernel sizes must be those of the weight.
pub fn conv(
    input: &View<'_>,
    weight: &View<'_>,
    bias: Option<&View<'_>>,
    w: &Window,
    groups: i64,
    out: &mut ViewMut<'_>,
) -> Result<()> {
    let form = Form { w, groups, transposed: false };
    form.check(input, weight, bias, out)?;
    form.run(Isa::detect(), input, weight, bias, out)
}

/// The transpose of [`conv`]: `weight[Cin, Cout / groups, …]`; the output's spatial sizes may
/// exceed the least by less than a stride or dilation (PyTorch's `output_padding`).
pub fn conv_transpose(
    input: &View<'_>,
    weight: &View<'_>,
    bias: Option<&View<'_>>,
    w: &Window,
    groups: i64,
    out: &mut ViewMut<'_>,
) -> Result<()> {
    let form = Form { w, groups, transposed: true };
    form.check(input, weight, bias, out)?;
    form.run(Isa::detect(), input, weight, bias, out)
}

/// A convolution without its operands.
pub(crate) struct Form<'a> {
    pub w: &'a Window,
    pub groups: i64,
    pub transposed: bool,
}

impl Form<'_> {
    fn kernel(&self) -> &'static str {
        if self.transposed { "conv_transpose" } else { "conv" }
    }

    /// Checks dtypes and sizes.
    pub fn check(
        &self,
        input: &View<'_>,
        weight: &View<'_>,
        bias: Option<&View<'_>>,
        out: &View<'_>,
    ) -> Result<()> {
        let Form { w, groups, transposed } = *self;
        let (kernel, spatial) = (self.kernel(), w.kernel.len());
        w.check(kernel, input.rank())?;
        for (what, v) in [("input", input), ("weight", weight), ("output", out)] {
            if v.rank() != spatial + 2 {
                return Err(KernelError::argument(
                    kernel,
                    format!("the {what} must have rank {}, found {}", spatial + 2, v.rank()),
                ));
            }
            same_dtype(kernel, "an operand", input.dtype(), v.dtype())?;
        }
        let (n, c_in, c_out) = (input.sizes()[0], input.sizes()[1], out.sizes()[1]);
        if groups < 1 || c_in % groups != 0 || c_out % groups != 0 {
            return Err(KernelError::argument(
                kernel,
                format!(
                    "{c_in} input and {c_out} output channels are not divisible by {groups} groups"
                ),
            ));
        }
        let channels = if transposed { [c_in, c_out / groups] } else { [c_out, c_in / groups] };
        let expected: Dims = channels.into_iter().chain(w.kernel.iter().copied()).collect();
        same_sizes(kernel, "the weight", &expected, weight.sizes())?;
        let mut sizes: Dims = smallvec::smallvec![n, c_out];
        for d in 0..spatial {
            let (i, o) = (input.sizes()[2 + d], out.sizes()[2 + d]);
            if transposed {
                let least = (i - 1) * w.stride[d] - 2 * w.padding[d]
                    + w.dilation[d] * (w.kernel[d] - 1)
                    + 1;
                let extra = o - least;
                sizes.push(if extra >= 0 && extra < w.stride[d].max(w.dilation[d]) {
                    o
                } else {
                    least
                });
            } else {
                sizes.push(w.output_size(d, i));
            }
            if sizes[2 + d] < 0 || (!transposed && sizes[2 + d] < 1) {
                return Err(KernelError::argument(
                    kernel,
                    format!("the window exceeds spatial dimension {d}"),
                ));
            }
        }
        same_sizes(kernel, "the output", &sizes, out.sizes())?;
        bias.map_or(Ok(()), |b| same_sizes(kernel, "the bias", &[c_out], b.sizes()))
    }

    /// Computes what was checked.
    pub fn run(
        &self,
        isa: Isa,
        input: &View<'_>,
        weight: &View<'_>,
        bias: Option<&View<'_>>,
        out: &mut ViewMut<'_>,
    ) -> Result<()> {
        match class_of(input.dtype()) {
            Kind::F32 => self.typed::<f32>(isa, input, weight, bias, out),
            Kind::F64 => self.typed::<f64>(isa, input, weight, bias, out),
            Kind::I64 => self.typed::<i64>(isa, input, weight, bias, out),
            Kind::Bool => Err(KernelError::DType {
                kernel: self.kernel(),
                operand: "the input",
                expected: "a number".into(),
                found: DType::Bool,
            }),
        }
    }

    /// Whether the windows are the elements: a kernel of one tap, stride 1, no padding, and as many
    /// elements in a channel of the input as of the output.
    pub fn is_plain(&self, input: &View<'_>, out: &View<'_>) -> bool {
        let one = |d: &[i64]| d.iter().all(|n| *n == 1);
        one(&self.w.kernel)
            && one(&self.w.stride)
            && self.w.padding.iter().all(|p| *p == 0)
            && numel(&input.sizes()[2..]) == numel(&out.sizes()[2..])
    }

    fn typed<T: Product>(
        &self,
        isa: Isa,
        input: &View<'_>,
        weight: &View<'_>,
        bias: Option<&View<'_>>,
        out: &mut ViewMut<'_>,
    ) -> Result<()>
    where
        Add: Op2<T, T>,
    {
        let is_plain = self.is_plain(input, out);
        let (x, weight) = (elements::<T>(input, out)?, elements::<T>(weight, out)?);
        let bias = bias.map(to_vec::<T>).transpose()?;
        // A row-major output of the class's dtype is computed in place; any other goes through a
        // buffer.
        let in_place = out.dtype() == T::DTYPE && out.is_contiguous();
        let mut y = filled("conv", T::default(), if in_place { 0 } else { out.numel() })?;
        let g = self.groups as usize;
        let (plane, windows) = if self.transposed {
            (&out.sizes()[2..], &input.sizes()[2..])
        } else {
            (&input.sizes()[2..], &out.sizes()[2..])
        };
        let conv = Conv {
            isa,
            x: &x,
            weight: &weight,
            bias: bias.as_deref(),
            y: if in_place { out.typed::<T>() } else { Ptr(y.as_mut_ptr()) },
            groups: g,
            channels: (input.sizes()[1] as usize / g, out.sizes()[1] as usize / g),
            planes: (numel(&input.sizes()[2..]), numel(&out.sizes()[2..])),
            unfold: Unfold { w: self.w, plane: plane.into(), windows: windows.into() },
            is_plain,
        };
        let items = input.sizes()[0] as usize * g;
        if self.transposed {
            conv.transposed(items)?
        } else {
            conv.forward(items)?
        }
        if in_place {
            return Ok(());
        }
        let result = View::from_slice_sized(&y, out.sizes())
            .ok_or_else(|| KernelError::argument("conv", "the sizes overflow"))?;
        copy(&result, out)
    }
}

/// An operand's elements in row-major order: borrowed if they already are so and the output does
/// not overlap them, otherwise copied.
fn elements<'a, T: Product>(input: &'a View<'_>, out: &View<'_>) -> Result<Cow<'a, [T]>> {
    if input.dtype() == T::DTYPE && input.is_contiguous() && !out.overlaps(input) {
        // SAFETY: the view is contiguous, and the only memory written is the output, which does not
        // overlap it.
        return Ok(Cow::Borrowed(unsafe { input.typed::<T>().slice(0, input.numel()) }));
    }
    Ok(Cow::Owned(to_vec(input)?))
}

/// The row-major operands of a convolution. An item is one group of one batch.
struct Conv<'a, T> {
    isa: Isa,
    x: &'a [T],
    weight: &'a [T],
    bias: Option<&'a [T]>,
    y: Ptr<T>,
    groups: usize,
    /// The channels of an item's input and output.
    channels: (usize, usize),
    /// The elements per channel of the input and the output.
    planes: (usize, usize),
    unfold: Unfold<'a>,
    /// Whether the patch matrix is the input itself.
    is_plain: bool,
}

impl<T: Product> Conv<'_, T>
where
    Add: Op2<T, T>,
{
    fn input(&self, item: usize) -> &[T] {
        let n = self.channels.0 * self.planes.0;
        &self.x[item * n..][..n]
    }

    fn kernel(&self, item: usize) -> &[T] {
        let n = self.channels.0 * self.channels.1 * self.unfold.taps();
        &self.weight[item % self.groups * n..][..n]
    }

    /// The biases of an item's channels, as a matrix that repeats each for all windows.
    fn biases(&self, item: usize) -> Option<Mat<T>> {
        let of_group = self.bias?.get(item % self.groups * self.channels.1..)?;
        Some(Mat::column(Ptr(of_group.as_ptr().cast_mut())))
    }

    /// Runs `work(item, threads)` for each item: on one thread each, if there are many.
    fn over_items(items: usize, work: impl Fn(usize, usize) -> Result<()> + Sync) -> Result<()> {
        let threads = thread_pool::num_threads();
        if items >= 2 * threads {
            return thread_pool::try_for(items, true, &|item| work(item, 1));
        }
        (0..items).try_for_each(|item| work(item, threads))
    }

    /// The convolution: one product per item, with the bias as addend.
    fn forward(&self, items: usize) -> Result<()> {
        let ((ci, co), columns, isa) = (self.channels, self.planes.1, self.isa);
        let depth = ci * self.unfold.taps();
        if !self.is_plain && direct::is_direct(co, depth) {
            return self.direct(items, depth);
        }
        if let Some(done) = self.by_pixels(depth) {
            return done;
        }
        Self::over_items(items, |item, threads| {
            let planes = self.input(item);
            let patches = Patches { unfold: &self.unfold, planes };
            let input = Mat::row_major(Ptr(planes.as_ptr().cast_mut()), columns);
            let gemm = Gemm {
                sizes: [co, columns, depth],
                c: Mat::row_major(Ptr(self.y.at(item * co * columns)), columns),
                a: Mat::row_major(Ptr(self.kernel(item).as_ptr().cast_mut()), depth),
                b: if self.is_plain { Right::InPlace(input) } else { Right::Source(&patches) },
                alpha: T::cast(1i64),
                addend: self.biases(item),
            };
            // SAFETY: the item's output belongs to this task.
            unsafe { T::product(isa, threads, gemm) }
        })
    }

    /// The convolution as a product of pixels, if that is worth packing the weights.
    fn by_pixels(&self, depth: usize) -> Option<Result<()>> {
        let ((ci, co), (_, windows)) = (self.channels, self.planes);
        let window = self.plane_window()?;
        let images = self.x.len() / (ci * self.planes.0).max(1);
        if self.groups != 1 || self.unfold.taps() == 1 || images * windows < MIN_PIXELS {
            return None;
        }
        let threads = thread_pool::num_threads();
        let of = Pixels {
            isa: self.isa,
            threads,
            window,
            images,
            channels: (ci, co),
            depth,
            x: Ptr(self.x.as_ptr().cast_mut()),
            weight: Ptr(self.weight.as_ptr().cast_mut()),
            bias: self.bias,
            y: Ptr(self.y.0),
            windows,
        };
        // SAFETY: the operands have these sizes, and the output is this call's alone.
        unsafe { T::convolve(of) }
    }

    /// How the window moves, if it does so over a plane.
    fn plane_window(&self) -> Option<PlaneWindow> {
        let w = self.unfold.w;
        let sizes = [&self.unfold.plane[..], &self.unfold.windows[..], &w.kernel[..]];
        PlaneWindow::new(sizes, [&w.stride, &w.padding, &w.dilation])
    }

    /// The convolution without products.
    fn direct(&self, items: usize, depth: usize) -> Result<()> {
        if let Some(window) = self.plane_window() {
            let ((ci, co), (plane, windows)) = (self.channels, self.planes);
            let image = self.groups * co * windows;
            let planes = PlaneConv {
                isa: self.isa,
                threads: thread_pool::num_threads(),
                window,
                images: items / self.groups.max(1),
                groups: self.groups,
                channels: self.channels,
                x: Images {
                    start: Ptr(self.x.as_ptr().cast_mut()),
                    image: self.groups * ci * plane,
                    channel: plane,
                    pixel: 1,
                },
                weight: self.weight,
                bias: self.bias,
                out: Some(Images { start: Ptr(self.y.0), image, channel: windows, pixel: 1 }),
                visitor: None,
            };
            // SAFETY: the output is this call's alone.
            if let Some(done) = unsafe { planes.run() } {
                return done;
            }
        }
        let (channels, columns, isa) = (self.channels.1, self.planes.1, self.isa);
        let chunks = direct::Columns::chunks(&self.unfold, columns);
        let is_parallel = items * channels * columns * depth > thread_pool::GRAIN;
        thread_pool::try_for(items * chunks.len(), is_parallel, &|task| {
            let (item, chunk) = (task / chunks.len(), &chunks[task % chunks.len()]);
            for (channel, weights) in self.kernel(item).chunks(depth.max(1)).enumerate() {
                let at = (item * channels + channel) * columns + chunk.range.start;
                // SAFETY: these columns of the item's output belong to this task.
                let sums = unsafe { self.y.slice_mut(at as i64, chunk.range.len()) };
                chunk.sum(isa, self.input(item), weights, sums);
                let bias = self.bias.map(|b| b[item % self.groups * channels + channel]);
                isa.dispatch(Each(sums, |x: T| {
                    bias.map_or(x, |bias| <Add as Op2<T, T>>::f(x, bias)).one_nan()
                }));
            }
            Ok(())
        })
    }
}
