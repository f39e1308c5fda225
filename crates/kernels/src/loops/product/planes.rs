//! Depthwise convolutions with the maps that follow them.

use super::ProductPlan;
use super::image_maps::ImageMaps;
use super::packed::{Convolved, PackedOperand};
use super::windows::Windows;
use crate::conv::{ChannelConv, ImageVisitor, Images, PlaneConv, WindowReduction};
use crate::error::Result;
use crate::gemm::{SEGMENT, over_batches};
use crate::loops::KERNEL;
use crate::loops::access::Base;
use crate::loops::stage::PanelContext;
use crate::pointwise::frame::Failure;
use crate::scratch::Scratch;
use crate::thread_pool;
use crate::view::{Ptr, numel};

impl ProductPlan {
    /// Computes a depthwise convolution and its epilogue.
    ///
    /// # Errors
    /// There is not enough memory.
    pub(super) fn convolve_depthwise<F: Convolved>(
        &self,
        cx: &PanelContext<'_>,
        of: &Windows,
        packed: Option<&PackedOperand>,
        failed: &(dyn Fn(usize, Failure) + Sync),
    ) -> Result<()> {
        let numbers = of.numbers(cx.run.scalars);
        let (threads, isa) = (thread_pool::num_threads(), cx.run.isa);
        let ([channels, n, k], images) = (self.sizes, numel(&self.loops));
        let (x, out) = (of.images::<F>(cx), self.image_output(cx));
        let visitor = ImageMaps { plan: self, cx, failed };
        let visitor = (self.epilogue.maps() > 0).then_some(&visitor as &dyn ImageVisitor<F>);
        // The kernels add all taps in one chain, and so does a product of one segment.
        let window = of.window(&numbers).filter(|_| k <= SEGMENT);
        if let (Some(window), false) = (window, x.has_planes())
            && out.is_none_or(|out| out.has_channels_last())
        {
            let own;
            let weights = match packed.and_then(F::weights) {
                Some(weights) => weights,
                None => {
                    own = self.weights_of_call(cx, of, [channels, k])?;
                    &own
                }
            };
            let of = WindowReduction::Sum(weights);
            let conv = ChannelConv { isa, threads, window, images, channels, x, of, out, visitor };
            // SAFETY: the plan is of the layouts of the operands, and of a result whose channels
            // are last. Each element of the results of maps is that of one rectangle.
            if let Some(done) = unsafe { conv.run() } {
                return done;
            }
        }
        if let (Some(window), true) = (window, x.has_planes())
            && out.is_none_or(|out| out.has_planes())
        {
            let weight = Ptr(cx.base(Base::Memory(of.weight)).0.cast::<F>());
            let planes = PlaneConv {
                isa,
                threads,
                window,
                images,
                groups: channels,
                channels: (1, 1),
                x,
                // SAFETY: the weight is row-major.
                weight: unsafe { weight.slice(0, channels * k) },
                bias: None,
                out,
                visitor,
            };
            // SAFETY: the plan is of the layouts of the operands, and of a result whose channels
            // are row-major. Each element of the results of maps is that of one rectangle.
            if let Some(done) = unsafe { F::by_planes(&planes) } {
                return done;
            }
        }
        // One product for each plane.
        over_batches(images * channels, [1, n, k], threads, &|plane, threads| {
            let (image, channel) = (plane / channels, plane % channels);
            let mut patches = Scratch::<F>::new(KERNEL, k.saturating_mul(n))?;
            let start = Ptr(x.at(image, channel, 0));
            // SAFETY: the plan is of the layouts of the operands.
            unsafe {
                of.unfold(&numbers, Images { start, ..x }, patches.get());
                let matrix = (channel..channel + 1, Ptr(patches.get().as_mut_ptr()));
                self.image(cx, of, image, threads, matrix, failed)
            }
        })
    }
}
