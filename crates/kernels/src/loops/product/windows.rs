//! Convolutions as products whose right factor is the windows of an image, whose channels are
//! planes or last.
//!
//! The contraction of a convolution reads its input at positions that it computes from those of an
//! output and of a tap. [`Windows`] recognises that expression, so that windows are read where they
//! are ([`PixelConv`]), with the weights packed. The numbers of the window are those of a launch;
//! where they are of no use, the windows of an image are written to a patch matrix.
//!
//! **Invariant:** the bits are those of the expression: an element outside the input is a zero that
//! is multiplied, and the sums have the order of the contraction.
//!
//! **Cost:** that of [`PixelConv`], `PlaneConv` or `ChannelConv`. Windows of one element that move
//! by 1 are a product without any copy.

use super::image_maps::ImageMaps;
use super::packed::{Convolved, PackForm, PackedOperand, packed_weights};
use super::{ProductPlan, Visitor};
use crate::conv::{ImageVisitor, Images, PixelConv, PlaneWindow, image_strides};
use crate::error::Result;
use crate::gemm::{EpilogueVisitor, PixelWeights, RightFactor, over_batches, visited_product};
use crate::layout::merged;
use crate::loops::KERNEL;
use crate::loops::access::Base;
use crate::loops::launch::Launch;
use crate::loops::stage::PanelContext;
use crate::pages::Lifetime;
use crate::pointwise::frame::Failure;
use crate::scratch::Scratch;
use crate::thread_pool;
use crate::view::{Dims, Ptr, View, ViewMut, contiguous};
use maquette_ir::fault_injection::{Fault, fault_injected};
use maquette_ir::loops::{Axes, AxisId, Index, Load, Source, Stage};
use maquette_ir::scalar_expr::{BinaryOp, Bounds, Op, Reg};
use maquette_ir::sym::Expr;
use maquette_ir::{DType, Scalar};
use smallvec::SmallVec;
use std::ops::Range;

/// A number of a window.
#[derive(Clone, Copy, Debug)]
enum Number {
    Launch(usize),
    Constant(i64),
}

/// The factors of a convolution.
pub(super) struct Windows {
    /// The operands of the input and of the weight.
    pub x: usize,
    pub weight: usize,
    /// The axes of images, of output channels and of positions.
    images: AxisId,
    channels: AxisId,
    pub positions: Axes,
    /// The sizes of a channel of the input, of the output, and of the window, with 1 before those
    /// of a convolution along one dimension.
    pub input: [i64; 2],
    pub output: [i64; 2],
    pub kernel: [i64; 2],
    /// Whether each channel has one of its own as input.
    pub is_depthwise: bool,
    /// The input channels, and the distances of images, channels and pixels.
    depth: i64,
    strides: [usize; 3],
    /// The strides, paddings and dilations.
    numbers: [SmallVec<[Number; 2]>; 3],
}

/// The one axis that an index is.
fn axis(index: &Index) -> Option<AxisId> {
    let Index::Affine(affine) = index else { return None };
    let [(axis, _)] = affine.terms[..] else { return None };
    (*index == Index::from(axis)).then_some(axis)
}

/// The number of an operand that is row-major after its first dimension.
fn row_major(launch: &Launch<'_>, load: &Load, dtype: DType) -> Option<usize> {
    let Source::Operand(operand) = load.from else { return None };
    let layout = launch.operands.get(operand.index())?;
    let (sizes, strides) = (layout.sizes.get(1..)?, layout.strides.get(1..)?);
    let of_sizes = contiguous(sizes);
    let fits = |d: usize| sizes[d] == 1 || strides[d] == of_sizes[d];
    let is_it = layout.dtype == dtype && (0..sizes.len()).all(fits);
    is_it.then_some(operand.index())
}

/// The number of an operand of images, and the distances of images, of channels and of pixels.
fn image_operand(launch: &Launch<'_>, load: &Load, dtype: DType) -> Option<(usize, [usize; 3])> {
    let Source::Operand(operand) = load.from else { return None };
    let layout = launch.operands.get(operand.index()).filter(|o| o.dtype == dtype)?;
    let mut strides = image_strides(&layout.sizes, &layout.strides)?;
    if fault_injected(Fault::PartsAreWhole) && strides[1] == 1 && strides[2] != 1 {
        strides[2] = usize::try_from(layout.sizes[1]).ok()?;
    }
    Some((operand.index(), strides))
}

/// Two numbers, the first of them 1 unless there are two.
fn two(sizes: &[i64]) -> Option<[i64; 2]> {
    match *sizes {
        [n] => Some([1, n]),
        [rows, columns] => Some([rows, columns]),
        _ => None,
    }
}

impl Windows {
    /// The convolution that a contraction of floats is, if its operands are images and a row-major
    /// weight.
    pub fn of(launch: &Launch<'_>, stage: &Stage, along: &[AxisId]) -> Option<Windows> {
        let expr = &stage.expr;
        let op = |r: Reg| expr.instrs().get(r.index()).map(|i| i.op);
        let [left, right] = *expr.outputs() else { return None };
        let dtype = expr.output_dtypes().next()?;
        let (Op::Input(of_weight), Op::Read(read)) = (op(left)?, op(right)?) else { return None };
        let Bounds::Else(zero) = read.bounds else { return None };
        // -0 is another number.
        let is_zero = match op(zero)? {
            Op::Const(Scalar::Float(x)) => x.to_bits() == 0,
            Op::Const(Scalar::Int(x)) => x == 0,
            _ => false,
        };
        let kept = stage.axes();
        let (&[images, channels], positions) = kept.split_first_chunk::<2>()?;
        let is_depthwise = along.len() == positions.len();
        let (contracted, taps) = along.split_at(usize::from(!is_depthwise));
        let contracted = contracted.first().copied();
        let (weight, x) =
            (stage.loads.get(of_weight as usize)?, stage.loads.get(read.input as usize)?);
        let within = contracted.map_or(Index::from(Expr::Int(0)), Index::from);
        let at_weight = [Index::from(channels), within].into_iter();
        let at_weight = at_weight.chain(taps.iter().map(|tap| Index::from(*tap)));
        let [of_image, of_channel, computed @ ..] = x.at.indices() else { return None };
        let is_read = axis(of_image) == Some(images)
            && axis(of_channel) == Some(contracted.unwrap_or(channels))
            && computed.iter().all(|index| matches!(index, Index::Computed))
            && computed.len() == taps.len()
            && read.when.is_none();
        let is_weight = at_weight.eq(weight.at.indices().iter().cloned());
        if !is_zero || !is_weight || !is_read || positions.len() != taps.len() {
            return None;
        }
        let number = |r: Reg| match op(r)? {
            Op::Launch(n) => Some(Number::Launch(n as usize)),
            Op::Const(Scalar::Int(n)) => Some(Number::Constant(n)),
            _ => None,
        };
        let binary = |r: Reg, is: BinaryOp| match op(r)? {
            Op::Binary(op, a, b) if op == is => Some((a, b)),
            _ => None,
        };
        // An axis times a number.
        let term = |r: Reg, of: AxisId| {
            let (coord, by) = binary(r, BinaryOp::Mul)?;
            matches!(op(coord)?, Op::Coord(a) if AxisId(a) == of).then(|| number(by))?
        };
        let mut numbers: [SmallVec<[Number; 2]>; 3] = Default::default();
        for ((&at, position), tap) in read.at.regs().iter().zip(positions).zip(taps) {
            let (element, padding) = binary(at, BinaryOp::Sub)?;
            let (first, within) = binary(element, BinaryOp::Add)?;
            let of = [term(first, *position)?, number(padding)?, term(within, *tap)?];
            numbers.iter_mut().zip(of).for_each(|(numbers, n)| numbers.push(n));
        }
        let (x, strides) = image_operand(launch, x, dtype)?;
        let weight = row_major(launch, weight, dtype)?;
        let (of_x, of_weight) = (&launch.operands[x], &launch.operands[weight]);
        // All channels and taps are contracted.
        let channel = contracted.map_or(1, |axis| launch.extent(axis));
        let whole = [channel].into_iter().chain(launch.extents_of(taps));
        let depth = contracted.unwrap_or(channels);
        if !whole.eq(of_weight.sizes[1..].iter().copied()) || of_x.sizes[1] != launch.extent(depth)
        {
            return None;
        }
        // The rows of the weight follow each other, too.
        let row: i64 = of_weight.sizes[1..].iter().product();
        if of_weight.sizes[0] > 1 && of_weight.strides[0] != row {
            return None;
        }
        Some(Windows {
            x,
            weight,
            images,
            channels,
            positions: positions.into(),
            input: two(&of_x.sizes[2..])?,
            output: two(&launch.extents_of(positions))?,
            kernel: two(&launch.extents_of(taps))?,
            is_depthwise,
            depth: of_x.sizes[1],
            strides,
            numbers,
        })
    }

    /// The axes of loops, rows and columns.
    pub fn axes(&self) -> [Axes; 3] {
        let one = |axis: AxisId| [axis].into_iter().collect();
        [one(self.images), one(self.channels), self.positions.clone()]
    }

    /// Whether the channels of a tensor with these strides, by axes, are row-major planes or last.
    pub fn are_images(&self, launch: &Launch<'_>, stride: &dyn Fn(AxisId) -> i64) -> bool {
        let strides: Dims = self.positions.iter().map(|a| stride(*a)).collect();
        let sizes = launch.extents_of(&self.positions);
        let is_one = sizes.iter().all(|n| *n == 1);
        let pixel = merged(&sizes, &strides);
        let channels = launch.extent(self.channels);
        let are_last = stride(self.channels) == 1 && pixel.is_some_and(|p| p >= channels);
        let are_images = is_one || pixel == Some(1) || are_last;
        are_images && stride(self.images) >= 0 && stride(self.channels) >= 0
    }

    /// Whether the channels of the input are last.
    pub fn has_channels_last(&self) -> bool {
        self.strides[2] != 1
    }

    /// How the weight is packed.
    pub fn pack_form(&self) -> PackForm {
        match self.is_depthwise && self.has_channels_last() {
            true => PackForm::Channels,
            false => PackForm::Windows,
        }
    }

    /// The input of a launch.
    pub fn images<F>(&self, cx: &PanelContext<'_>) -> Images<F> {
        let start = Ptr(cx.base(Base::Memory(self.x)).0.cast::<F>());
        let [image, channel, pixel] = self.strides;
        Images { start, image, channel, pixel }
    }

    /// The strides, paddings and dilations of a launch.
    pub fn numbers(&self, scalars: &[Scalar]) -> [SmallVec<[i64; 2]>; 3] {
        let value = |n: &Number| match *n {
            Number::Launch(at) => scalars.get(at).map_or(0, |n| n.to_i64()),
            Number::Constant(n) => n,
        };
        let mut numbers = [0, 1, 2].map(|of| self.numbers[of].iter().map(value).collect());
        if fault_injected(Fault::NoDilation) {
            let dilation: &mut SmallVec<[i64; 2]> = &mut numbers[2];
            dilation.fill(1);
        }
        numbers
    }

    /// The window, unless it is one of which [`PixelConv`] does not know.
    pub fn window(
        &self,
        [stride, padding, dilation]: &[SmallVec<[i64; 2]>; 3],
    ) -> Option<PlaneWindow> {
        let from = 2 - self.positions.len();
        let sizes = [&self.input[from..], &self.output[from..], &self.kernel[from..]];
        PlaneWindow::new(sizes, [stride, padding, dilation])
    }
}

impl ProductPlan {
    /// Computes a convolution and its epilogue.
    ///
    /// # Errors
    /// There is not enough memory.
    pub(super) fn convolve<F: Convolved>(
        &self,
        cx: &PanelContext<'_>,
        of: &Windows,
        packed: Option<&PackedOperand>,
        failed: &(dyn Fn(usize, Failure) + Sync),
    ) -> Result<()> {
        if of.is_depthwise {
            return self.convolve_depthwise::<F>(cx, of, packed, failed);
        }
        let numbers = of.numbers(cx.run.scalars);
        let (threads, isa) = (thread_pool::num_threads(), cx.run.isa);
        let (window, [m, _, k]) = (of.window(&numbers), self.sizes);
        // Where the weights are not packed, the product reads both factors where they are.
        let is_plain = window.is_some_and(|window| window.is_plain());
        let x = of.images::<F>(cx);
        if is_plain && x.has_planes() && packed.is_none() {
            return self.over_images(threads, &|image, threads| {
                let matrix = (0..m, Ptr(x.at(image, 0, 0)));
                // SAFETY: the plan is of the layouts of the operands.
                unsafe { self.image(cx, of, image, threads, matrix, failed) }
            });
        }
        let visitor = ImageMaps { plan: self, cx, failed };
        if let Some(window) = window {
            let own;
            let weights = match packed.and_then(F::weights) {
                Some(weights) => weights,
                None => {
                    own = self.weights_of_call(cx, of, [m, k])?;
                    &own
                }
            };
            let out = self.image_output(cx);
            let conv = PixelConv {
                isa,
                threads,
                window,
                images: self.loops[0] as usize,
                channels: of.depth as usize,
                x,
                weights,
                bias: None,
                out,
                visitor: (self.epilogue.maps() > 0).then_some(&visitor as &dyn ImageVisitor<F>),
            };
            // SAFETY: the plan is of the layouts of the operands, and of a result whose channels
            // are planes or last. Each element of the results of maps is that of one rectangle.
            if let Some(done) = unsafe { conv.run() } {
                return done;
            }
        }
        self.over_images(threads, &|image, threads| {
            let mut patches = Scratch::<F>::new(KERNEL, k.saturating_mul(self.sizes[1]))?;
            // SAFETY: the plan is of the layouts of the operands.
            unsafe {
                of.unfold(&numbers, Images { start: Ptr(x.at(image, 0, 0)), ..x }, patches.get());
                let matrix = (0..m, Ptr(patches.get().as_mut_ptr()));
                self.image(cx, of, image, threads, matrix, failed)
            }
        })
    }

    fn over_images(
        &self,
        threads: usize,
        work: &(dyn Fn(usize, usize) -> Result<()> + Sync),
    ) -> Result<()> {
        over_batches(self.loops[0] as usize, self.sizes, threads, work)
    }

    /// Packs the weight for one call.
    ///
    /// # Errors
    /// There is not enough memory.
    pub(super) fn weights_of_call<F: Convolved>(
        &self,
        cx: &PanelContext<'_>,
        of: &Windows,
        sizes: [usize; 2],
    ) -> Result<PixelWeights<F>> {
        let start = Ptr(cx.base(Base::Memory(of.weight)).0.cast::<F>());
        // SAFETY: the weight is row-major.
        unsafe { packed_weights(cx.run.isa, start, (sizes, of.pack_form()), Lifetime::Call) }
    }

    /// Where the sums of images are, if they are wanted in memory.
    pub(super) fn image_output<F>(&self, cx: &PanelContext<'_>) -> Option<Images<F>> {
        let out = self.out.as_ref()?;
        let at = |image: i64, of: [usize; 2]| out.offset(&[image], of);
        let distance = |to: i64| (to - at(0, [0, 0])) as usize;
        let start = Ptr(out.address(cx, &[0], [0, 0]).0.cast::<F>());
        let (image, channel) = (distance(at(1, [0, 0])), distance(at(0, [1, 0])));
        let pixel = if self.sizes[1] == 1 { 1 } else { distance(at(0, [0, 1])) };
        Some(Images { start, image, channel, pixel })
    }

    /// Computes the product of the weights of some channels with the row-major patch matrix of an
    /// image.
    ///
    /// # Safety
    /// The matrix is in live memory.
    pub(super) unsafe fn image<F: Convolved>(
        &self,
        cx: &PanelContext<'_>,
        of: &Windows,
        image: usize,
        threads: usize,
        (channels, patches): (Range<usize>, Ptr<F>),
        failed: &(dyn Fn(usize, Failure) + Sync),
    ) -> Result<()> {
        let sizes = [channels.len(), self.sizes[1], self.sizes[2]];
        let [m, n, k] = sizes.map(|n| n as i64);
        let (coords, first_row) = ([image as i64], channels.start);
        let of_maps = Visitor { plan: self, cx, coords: &coords, first_row, failed };
        let visitor: Option<&dyn EpilogueVisitor> =
            (self.epilogue.maps() > 0).then_some(&of_maps as &dyn EpilogueVisitor);
        let weight = cx.base(Base::Memory(of.weight)).0.cast_const();
        let weight = weight.wrapping_add(first_row * self.sizes[2] * size_of::<F>());
        // SAFETY: the caller's promise; the weight is row-major, and the rows and columns of the
        // result have these strides.
        unsafe {
            let left = View::from_raw(weight, self.dtype, &[m, k], &[k, 1]);
            let right =
                View::from_raw(patches.0.cast::<u8>().cast_const(), self.dtype, &[k, n], &[n, 1]);
            let mut out = self.out.as_ref().map(|out| {
                let address = out.address(cx, &coords, [first_row, 0]).0;
                ViewMut::from_raw(address, self.dtype, &[m, n], &out.strides())
            });
            let factors = (&left, RightFactor::Matrix(&right));
            visited_product::<F>(cx.run.isa, threads, factors, sizes, out.as_mut(), visitor)
        }
    }
}
