//! Depthwise convolutions with the maps that follow them.

use super::ProductPlan;
use super::packed::Convolved;
use super::windows::{ImageMaps, Windows};
use crate::conv::{ImageVisitor, PlaneConv};
use crate::error::Result;
use crate::gemm::over_batches;
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
    pub(super) fn convolve_planes<F: Convolved>(
        &self,
        cx: &PanelContext<'_>,
        of: &Windows,
        failed: &(dyn Fn(usize, Failure) + Sync),
    ) -> Result<()> {
        let numbers = of.numbers(cx.run.scalars);
        let (threads, isa) = (thread_pool::num_threads(), cx.run.isa);
        let ([channels, n, k], images) = (self.sizes, numel(&self.loops));
        let address = |operand: usize| Ptr(cx.base(Base::Memory(operand)).0.cast::<F>());
        if let Some(window) = of.window(&numbers) {
            let visitor = ImageMaps { plan: self, cx, failed };
            let planes = PlaneConv {
                isa,
                threads,
                window,
                images,
                groups: channels,
                channels: (1, 1),
                x: address(of.x),
                image: of.image as usize,
                // SAFETY: the weight is row-major.
                weight: unsafe { address(of.weight).slice(0, channels * k) },
                bias: None,
                out: self.image_output(cx),
                visitor: (self.epilogue.maps() > 0).then_some(&visitor as &dyn ImageVisitor),
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
            let area = numel(&of.input);
            let at = image * of.image as usize + channel * area;
            // SAFETY: the plan is of the layouts of the operands.
            unsafe {
                of.unfold(&numbers, address(of.x).slice(at as i64, area), patches.get());
                let matrix = (channel..channel + 1, Ptr(patches.get().as_mut_ptr()));
                self.image(cx, of, image, threads, matrix, failed)
            }
        })
    }
}
