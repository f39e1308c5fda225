//! Pools of images whose channels are last in memory: vectors of channels.
//!
//! **Cost:** each element is read once for each window that has it.

use super::{Window, dot};
use crate::conv::{ChannelConv, Images, PlaneWindow, WindowReduction};
use crate::element::{Class, Element};
use crate::error::Result;
use crate::isa::{Isa, Simd};
use crate::pointwise::chain::Chained;
use crate::pointwise::ops::{Add, Div, Op2};
use crate::thread_pool;
use crate::view::{Dims, Ptr, View, ViewMut, numel};
use std::marker::PhantomData;

/// The channels whose sums are computed at a time.
const CHANNELS: usize = 32;

/// As [`max_pool`](super::max_pool) without positions; `None`, with nothing written, for images of
/// other layouts.
pub(super) fn greatest<T: Chained>(
    input: &View<'_>,
    w: &Window,
    out: &mut ViewMut<'_>,
) -> Option<Result<()>> {
    let lead = input.rank() - w.kernel.len();
    if lead != 2 || out.overlaps(input) {
        return None;
    }
    let x = Images::of(input, input.typed::<T>()).filter(Images::has_channels_last)?;
    let start = out.typed::<T>();
    let y = Images::of(out, start).filter(Images::has_channels_last)?;
    let sizes = [&input.sizes()[lead..], &out.sizes()[lead..], &w.kernel[..]];
    let conv = ChannelConv {
        isa: Isa::detect(),
        threads: thread_pool::num_threads(),
        window: PlaneWindow::new(sizes, [&w.stride, &w.padding, &w.dilation])?,
        images: input.sizes()[0] as usize,
        channels: input.sizes()[1] as usize,
        x,
        of: WindowReduction::Greatest,
        out: Some(y),
        visitor: None,
    };
    // SAFETY: the views have these images, and the output is this call's alone.
    unsafe { conv.run() }
}

/// The means of whole planes, each summed in order; `None`, with nothing written, for images of
/// other layouts.
pub(super) fn means<T: Element>(
    input: &View<'_>,
    spatial: usize,
    out: &mut ViewMut<'_>,
) -> Option<Result<()>>
where
    Add: Op2<T::Class, T::Class>,
    Div: Op2<T::Class, T::Class>,
{
    let x = Images::of(input, input.typed::<T>()).filter(Images::has_channels_last)?;
    let (&[images, channels], plane) = input.sizes().split_first_chunk::<2>()?;
    if input.rank() - spatial != 2 || out.overlaps(input) {
        return None;
    }
    let (images, channels, area) = (images as usize, channels as usize, numel(plane));
    let (means, strides) = (out.typed::<T>(), Dims::from_slice(&out.strides()[..2]));
    let by = <T::Class as Class>::cast(area as i64);
    let parts = channels.div_ceil(CHANNELS);
    let isa = Isa::detect();
    let grain = (thread_pool::GRAIN / (area * CHANNELS).max(1)).max(1);
    Some(thread_pool::ranges(images * parts, grain, 1, &|from, to| {
        for part in from..to {
            let (image, first) = (part / parts, part % parts * CHANNELS);
            let n = CHANNELS.min(channels - first);
            // SAFETY: the images have these pixels and channels, and do not overlap the output.
            let row = |pixel| unsafe { Ptr(x.at(image, first, pixel)).slice(0, n) };
            let sums = isa.dispatch(Sums { area, row, of: PhantomData });
            for (i, sum) in sums.into_iter().take(n).enumerate() {
                let at = dot(&[image as i64, (first + i) as i64], &strides);
                // SAFETY: the means of these channels are this task's alone.
                unsafe { means.set(at, T::store(Div::f(sum, by))) }
            }
        }
        Ok(())
    }))
}

/// The sums of some channels of a plane, of which `row` has those of a pixel.
struct Sums<T, R> {
    area: usize,
    row: R,
    of: PhantomData<T>,
}

impl<'a, T, R> Simd for Sums<T, R>
where
    T: Element,
    R: Fn(usize) -> &'a [T],
    Add: Op2<T::Class, T::Class>,
{
    type Out = [T::Class; CHANNELS];
    #[inline(always)]
    fn run(self) -> [T::Class; CHANNELS] {
        let mut sums = [T::Class::default(); CHANNELS];
        for pixel in 0..self.area {
            let row = (self.row)(pixel);
            // The sums are in registers if their number is a constant.
            if let Some(row) = row.as_array::<CHANNELS>() {
                for (sum, x) in sums.iter_mut().zip(row) {
                    *sum = Add::f(*sum, x.load());
                }
            } else {
                for (sum, x) in sums.iter_mut().zip(row) {
                    *sum = Add::f(*sum, x.load());
                }
            }
        }
        sums
    }
}

#[cfg(test)]
mod tests {
    use super::Window;
    use crate::view::{Dims, View, ViewMut, contiguous};
    use crate::{adaptive_avg_pool, max_pool};
    use maquette_ir::DType;
    use proptest::prelude::*;

    /// Images in memory, with channels last or as planes.
    struct Images {
        elements: Vec<f32>,
        sizes: Dims,
        strides: Dims,
    }

    impl Images {
        fn new(sizes: [i64; 4], channels_last: bool) -> Images {
            let [n, c, h, w] = sizes;
            let strides = match channels_last {
                true => Dims::from_slice(&[c * h * w, 1, w * c, c]),
                false => contiguous(&sizes),
            };
            let elements = vec![0.0; (n * c * h * w) as usize];
            Images { elements, sizes: sizes[..].into(), strides }
        }

        fn at(&self, i: usize) -> usize {
            crate::layout::offset(&self.sizes, &self.strides, i) as usize
        }

        fn view(&self) -> View<'_> {
            let at = self.elements.as_ptr().cast();
            // SAFETY: the memory has all elements.
            unsafe { View::from_raw(at, DType::F32, &self.sizes, &self.strides) }
        }

        fn view_mut(&mut self) -> ViewMut<'_> {
            let at = self.elements.as_mut_ptr().cast();
            // SAFETY: as above.
            unsafe { ViewMut::from_raw(at, DType::F32, &self.sizes, &self.strides) }
        }

        /// The elements in row-major order, as text, in which one NaN is like another.
        fn text(&self) -> String {
            format!(
                "{:?}",
                (0..self.elements.len()).map(|i| self.elements[self.at(i)]).collect::<Vec<_>>()
            )
        }
    }

    /// What `pool` makes of images of either layout.
    fn both(
        sizes: [i64; 4],
        output: [i64; 2],
        seed: usize,
        pool: impl Fn(&View<'_>, &mut ViewMut<'_>),
    ) -> [String; 2] {
        let special = [f32::NAN, f32::NEG_INFINITY, -0.0, 0.0];
        let value = |i: usize| match (i * 7919 + seed * 31) % 41 {
            n @ 0..4 => special[n],
            n => n as f32 / 3.0 - 6.0,
        };
        [false, true].map(|channels_last| {
            let mut x = Images::new(sizes, channels_last);
            for i in 0..x.elements.len() {
                let at = x.at(i);
                x.elements[at] = value(i);
            }
            let [n, c, ..] = sizes;
            let mut y = Images::new([n, c, output[0], output[1]], channels_last);
            pool(&x.view(), &mut y.view_mut());
            y.text()
        })
    }

    #[test]
    fn planes_of_more_than_two_dimensions_are_not_images() {
        // [C, H, W] of a transposed tensor: the first spatial dimension is not a channel.
        let x: Vec<f32> = (0..60).map(|i| i as f32).collect();
        let sizes = [5, 3, 4];
        for strides in [[12, 1, 3], [12, 4, 1]] {
            let mut means = vec![0f32; 5 + 40];
            // SAFETY: the memory has all elements.
            let (x, mut y) = unsafe {
                (
                    View::from_raw(x.as_ptr().cast(), DType::F32, &sizes, &strides),
                    ViewMut::from_raw(
                        means.as_mut_ptr().cast(),
                        DType::F32,
                        &[5, 1, 1],
                        &[1, 1, 1],
                    ),
                )
            };
            adaptive_avg_pool(&x, 2, &mut y).expect("pools");
            let expected: Vec<f32> = (0..5).map(|c| 5.5 + 12.0 * c as f32).collect();
            assert_eq!(means[..5], expected[..], "{strides:?}");
            assert!(means[5..].iter().all(|x| *x == 0.0));
        }
    }

    #[test]
    fn no_channels_have_no_greatest_elements() {
        let w = Window {
            kernel: vec![3; 2],
            stride: vec![1; 2],
            padding: vec![0; 2],
            dilation: vec![1; 2],
            ceil_mode: false,
        };
        let (x, mut y) = (Images::new([2, 0, 5, 5], true), Images::new([2, 0, 3, 3], true));
        max_pool(&x.view(), &w, &mut y.view_mut(), None).expect("pools");
    }

    proptest! {
        #[test]
        fn pools_of_pixels_are_those_of_planes(
            channels in 1i64..70,
            input in [3i64..30, 3i64..40],
            kernel in 1i64..4,
            stride in 1i64..4,
            dilation in 1i64..3,
            seed in 0usize..1000,
        ) {
            let w = Window {
                kernel: vec![kernel; 2],
                stride: vec![stride; 2],
                padding: vec![kernel / 2; 2],
                dilation: vec![dilation; 2],
                ceil_mode: false,
            };
            let output = [0, 1].map(|d| w.output_size(d, input[d]));
            prop_assume!(output.iter().all(|n| *n > 0));
            let sizes = [2, channels, input[0], input[1]];
            let [planes, last] = both(sizes, output, seed, |x, y| {
                max_pool(x, &w, y, None).expect("pools");
            });
            prop_assert_eq!(planes, last);
            let [planes, last] = both(sizes, [1, 1], seed, |x, y| {
                adaptive_avg_pool(x, 2, y).expect("pools");
            });
            prop_assert_eq!(planes, last);
        }
    }
}
