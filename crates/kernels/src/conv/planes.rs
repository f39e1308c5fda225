//! Convolution of planes for groups of few output channels, as in depthwise convolution.
//!
//! A task takes some groups of an image. Windows of 3 x 3 elements of one channel have a
//! [kernel](crate::gemm::PlaneTile), which reads planes where they are. For others, the task copies
//! the input of one group after another, or of some rows of it, into a [frame](Frame) in the first
//! cache. No tap is in its padding, so that a vector of outputs takes a multiply-add for each tap.
//! Sums are in registers until they are finished; rows shorter than a few vectors are computed as
//! one: where the frame has other elements between two rows, the sums are dropped.
//!
//! **Invariant:** the sums have the order of the product with the patch matrix, with the zeros of
//! the padding.
//!
//! **Cost:** half a load for each multiply-add of a vector; with a frame, a load, and a copy of the
//! input.

use super::frame::{Frame, PlaneWindow};
use super::images::Images;
use super::visitor::ImageVisitor;
use crate::error::Result;
use crate::gemm::{Kernels, PlaneTile, Product, WindowedPlane};
use crate::isa::{Isa, Simd};
use crate::pointwise::ops::{Add, Op2};
use crate::scratch::Scratch;
use crate::thread_pool;
use crate::view::Ptr;
use std::ops::Range;

/// The most bytes of a frame, beside which the first cache has room for outputs.
const FRAME_BYTES: usize = 16 << 10;
/// The elements of a rectangle that is visited while it is in a near cache, unless a plane has
/// more.
const VISITED: usize = 4 << 10;
/// The most elements of a block of sums, which are in registers.
const BLOCK: usize = 64;
/// Rows of fewer elements are computed as one.
const SHORT: usize = 32;

/// A convolution of groups of images, whose channels are row-major planes.
pub(crate) struct PlaneConv<'a, T> {
    pub isa: Isa,
    pub threads: usize,
    pub window: PlaneWindow,
    pub images: usize,
    pub groups: usize,
    /// The channels of a group: of the input and of the output.
    pub channels: (usize, usize),
    /// The images, whose channels are row-major planes.
    pub x: Images<T>,
    /// The weights of one output channel after another.
    pub weight: &'a [T],
    pub bias: Option<&'a [T]>,
    /// The result, if it is wanted beside what a visitor makes of it.
    pub out: Option<Images<T>>,
    pub visitor: Option<&'a dyn ImageVisitor<T>>,
}

/// How the planes of an image are divided.
struct Blocks {
    /// The rows of a frame, and the number of such blocks.
    rows: usize,
    count: usize,
    /// The groups of a rectangle, and of a task.
    part: usize,
    each: usize,
    /// The blocks of rows of a task.
    of_task: usize,
}

impl<T: Product> PlaneConv<'_, T>
where
    Add: Op2<T, T>,
{
    /// Computes the convolution. `None`, with nothing written, if a frame would be too large.
    ///
    /// # Errors
    /// There is not enough memory, or that of the visitor.
    ///
    /// # Safety
    /// The input and the output are in live memory of these sizes, and nothing else accesses the
    /// output during the call.
    pub unsafe fn run(&self) -> Option<Result<()>> {
        let (window, (ci, co), groups) = (&self.window, self.channels, self.groups);
        let [all_rows, columns] = window.output;
        if all_rows * columns * self.images * groups * co == 0 {
            return Some(Ok(()));
        }
        let blocks = self.blocks()?;
        let frame = Frame::new(window, ci, blocks.rows)?;
        let offsets = frame.offsets(ci);
        let kernels = self.kernels();
        let elements = blocks.part * co * blocks.rows * columns;
        // Short rows are computed with all that is between them, in whole blocks.
        let of_line = match columns < SHORT && kernels.is_none() {
            true => ((blocks.rows - 1) * frame.row() + columns).next_multiple_of(BLOCK),
            false => 0,
        };
        let of_frame = match kernels {
            Some(_) => 0,
            None => (frame.len(ci) + 2 * BLOCK).next_multiple_of(BLOCK),
        };
        let of_sums = if self.out.is_none() { elements.next_multiple_of(BLOCK) } else { 0 };
        let of_visitor = self.visitor.map_or(0, |v| v.scratch(elements).div_ceil(size_of::<T>()));
        let scratch = of_frame + of_line + of_sums + of_visitor;
        let (per_image, per_group) =
            (groups.div_ceil(blocks.each), blocks.count.div_ceil(blocks.of_task));
        let tasks = self.images * per_image * per_group;
        Some(thread_pool::try_for(tasks, tasks > 1, &|task| {
            let (image, task) = (task / (per_image * per_group), task % (per_image * per_group));
            let groups = task / per_group * blocks.each;
            let groups = groups..self.groups.min(groups + blocks.each);
            let first = task % per_group * blocks.of_task;
            let of_task = first..blocks.count.min(first + blocks.of_task);
            // Elements of the padding stay zeros.
            let mut memory = Scratch::<T>::new("conv", scratch)?;
            let (framed, rest) = memory.get().split_at_mut(of_frame);
            let (line, rest) = rest.split_at_mut(of_line);
            let (sums, own) = rest.split_at_mut(of_sums);
            let (frame, offsets) = (&frame, &offsets[..]);
            let mut group = Group { conv: self, kernels, frame, offsets, framed, line };
            for block in of_task {
                let rows = block * blocks.rows..all_rows.min((block + 1) * blocks.rows);
                let pixels = rows.start * columns..rows.end * columns;
                for first in groups.clone().step_by(blocks.part) {
                    let some = first..groups.end.min(first + blocks.part);
                    let channels = some.start * co..some.end * co;
                    let (start, stride) = match &self.out {
                        Some(out) => (out.at(image, channels.start, pixels.start), out.channel),
                        None => (sums.as_mut_ptr(), pixels.len()),
                    };
                    // SAFETY: the caller's promise; the rectangle is this task's alone.
                    unsafe {
                        for (i, of) in some.enumerate() {
                            let at = start.wrapping_add(i * co * stride);
                            group.run(image, of, rows.clone(), (at, stride));
                        }
                        if let Some(visitor) = self.visitor {
                            let sums = (Ptr(start.cast()), [stride as i64, 1]);
                            let own = Ptr(own.as_mut_ptr().cast());
                            visitor.visit(image, channels, pixels.clone(), sums, own)?;
                        }
                    }
                }
            }
            Ok(())
        }))
    }

    /// The kernels of its windows, if there are some.
    fn kernels(&self) -> Option<&'static Kernels<T>> {
        let PlaneWindow { kernel, stride: [step, columns], dilation, .. } = self.window;
        let is_dense = kernel == [3; 2] && dilation == [1; 2] && self.channels.0 == 1;
        let kernels = T::microkernels(self.isa).filter(|_| is_dense)?;
        (step == columns && step <= kernels.most_steps()).then_some(kernels)
    }

    /// Divides groups and rows, so that there are some tasks for each thread. `None` if a frame
    /// would be too large.
    fn blocks(&self) -> Option<Blocks> {
        let ((ci, co), [all, columns]) = (self.channels, self.window.output);
        let frame = |rows: usize| Some(Frame::new(&self.window, ci, rows)?.len(ci));
        let of_row = frame(2)?.checked_sub(frame(1)?)?.max(1);
        let fitting = (FRAME_BYTES / size_of::<T>()).saturating_sub(frame(1)?) / of_row + 1;
        let rows = all.div_ceil(all.div_ceil(fitting));
        let count = all.div_ceil(rows);
        let [kh, kw] = self.window.kernel;
        let work = (self.images * self.groups).saturating_mul(co * all * columns);
        let is_parallel =
            self.threads > 1 && work.saturating_mul(ci * kh * kw) > thread_pool::GRAIN;
        let wanted = if is_parallel { 4 * self.threads } else { 1 };
        let each = self.groups.div_ceil(wanted.div_ceil(self.images)).max(1);
        let are_few = self.images * self.groups.div_ceil(each) < wanted;
        let of_task = if are_few { 1 } else { count };
        let part = match count {
            1 => (VISITED / (co * all * columns)).clamp(1, each),
            _ => 1,
        };
        Some(Blocks { rows, count, part, each, of_task })
    }
}

/// What a task computes groups with.
struct Group<'a, T: 'static> {
    conv: &'a PlaneConv<'a, T>,
    kernels: Option<&'static Kernels<T>>,
    frame: &'a Frame,
    offsets: &'a [u32],
    /// The elements of the frame, and what a kernel may read after it.
    framed: &'a mut [T],
    /// Scratch memory for the sums of short rows.
    line: &'a mut [T],
}

impl<T: Product> Group<'_, T>
where
    Add: Op2<T, T>,
{
    /// Computes some rows of a group of an image. The planes of its channels are `stride` apart.
    ///
    /// # Safety
    /// The rows are this task's alone.
    unsafe fn run(
        &mut self,
        image: usize,
        group: usize,
        rows: Range<usize>,
        (out, stride): (*mut T, usize),
    ) {
        let Group { conv, frame, offsets, .. } = *self;
        let (isa, (ci, co)) = (conv.isa, conv.channels);
        let PlaneWindow { input: [height, width], output: [all, columns], kernel, .. } =
            conv.window;
        let (depth, plane) = (ci * kernel[0] * kernel[1], ci * height * width);
        // SAFETY: the images have these planes.
        let x = unsafe { Ptr(conv.x.at(image, group * ci, 0)).slice(0, plane) };
        match rows.len() == all {
            _ if self.kernels.is_some() => {}
            true => frame.fill_inside(isa, x, rows.clone(), self.framed),
            false => frame.fill(isa, x, rows.clone(), self.framed),
        }
        for channel in 0..co {
            let of_all = group * co + channel;
            let weights = &conv.weight[of_all * depth..][..depth];
            let bias = conv.bias.map(|bias| bias[of_all]);
            let out = Ptr(out.wrapping_add(channel * stride));
            // SAFETY: the caller's promise.
            unsafe {
                match self.kernels {
                    Some(kernels) => {
                        let tile = PlaneTile {
                            plane: WindowedPlane {
                                start: x.as_ptr(),
                                sizes: [height, width],
                                padding: conv.window.padding,
                            },
                            weights: weights.as_ptr(),
                            bias: bias.as_ref().map_or(std::ptr::null(), std::ptr::from_ref),
                            rows: rows.clone(),
                            columns,
                            out: out.0,
                        };
                        kernels.plane(&tile, conv.window.stride[0])
                    }
                    None => isa.dispatch(Plane {
                        isa,
                        frame: self.framed,
                        offsets,
                        weights,
                        bias,
                        step: frame.row(),
                        columns,
                        line: &mut *self.line,
                        out: out.slice_mut(0, rows.len() * columns),
                    }),
                }
            }
        }
    }
}

/// A plane of the output.
struct Plane<'a, T> {
    isa: Isa,
    frame: &'a [T],
    offsets: &'a [u32],
    weights: &'a [T],
    bias: Option<T>,
    /// The distance of rows in the frame.
    step: usize,
    columns: usize,
    /// Scratch memory for the sums of short rows, with all that is between them.
    line: &'a mut [T],
    out: &'a mut [T],
}

impl<T: Product> Simd for Plane<'_, T>
where
    Add: Op2<T, T>,
{
    type Out = ();
    #[inline(always)]
    fn run(mut self) {
        let (columns, step) = (self.columns, self.step);
        let line = std::mem::take(&mut self.line);
        let out = std::mem::take(&mut self.out);
        if line.is_empty() {
            for (row, out) in out.chunks_mut(columns).enumerate() {
                self.row(row * step, out);
            }
            return;
        }
        self.row(0, line);
        for (from, to) in line.chunks(step).zip(out.chunks_mut(columns)) {
            to.iter_mut().zip(from).for_each(|(to, x)| *to = *x);
        }
    }
}

impl<T: Product> Plane<'_, T>
where
    Add: Op2<T, T>,
{
    /// Computes the sums of neighbours in the frame, from position `at` on.
    #[inline(always)]
    fn row(&self, at: usize, out: &mut [T]) {
        let mut done = 0;
        while done < out.len() {
            let out = &mut out[done..];
            let n = match out.len() {
                49.. => self.block::<BLOCK>(at + done, out),
                17.. => self.block::<32>(at + done, out),
                _ => self.block::<16>(at + done, out),
            };
            done += n;
        }
    }

    /// Computes at most `N` sums, and returns how many.
    #[inline(always)]
    fn block<const N: usize>(&self, at: usize, out: &mut [T]) -> usize {
        let mut sums = [T::default(); N];
        for (&weight, &offset) in self.weights.iter().zip(self.offsets) {
            let Some(x) = self.frame[at + offset as usize..].first_chunk::<N>() else { return N };
            for (sum, x) in sums.iter_mut().zip(x) {
                *sum = T::multiply_add(self.isa, weight, *x, *sum);
            }
        }
        if let Some(bias) = self.bias {
            sums.iter_mut().for_each(|sum| *sum = <Add as Op2<T, T>>::f(*sum, bias));
        }
        sums.iter_mut().for_each(|sum| *sum = sum.one_nan());
        match out.first_chunk_mut::<N>() {
            Some(out) => *out = sums,
            None => out.iter_mut().zip(sums).for_each(|(out, sum)| *out = sum),
        }
        N.min(out.len())
    }
}
