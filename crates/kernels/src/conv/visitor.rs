//! What follows a convolution, on parts of its sums.

use crate::error::Result;
use crate::gemm::Affine;
use crate::pointwise::chain::LineChain;
use crate::view::Ptr;
use std::ops::Range;

/// What follows pixels whose channels are neighbours.
#[expect(clippy::large_enum_variant, reason = "it is made once for a rectangle, and not moved")]
pub(crate) enum Following<F> {
    Affine(Affine<F>),
    Chain(LineChain<F>),
}

/// What follows a convolution: it gets finished rectangles of channels and pixels.
pub(crate) trait ImageVisitor<F>: Sync {
    /// The bytes of scratch memory for a rectangle of at most this many elements.
    fn scratch(&self, elements: usize) -> usize;

    /// Whether the sums are best given with channels as neighbours, instead of pixels.
    fn wants_channels_last(&self) -> bool {
        false
    }

    /// What follows from a channel and a pixel of an image on, where the sums are given with
    /// channels as neighbours, if that is one chain.
    fn pixels(&self, image: usize, channel: usize, pixel: usize) -> Option<Following<F>> {
        let _ = (image, channel, pixel);
        None
    }

    /// Passes on the sums of some channels and pixels of an image: the address of the first, and
    /// the strides in elements.
    ///
    /// # Errors
    /// That of what follows, which the convolution returns.
    ///
    /// # Safety
    /// The sums can be read, and the scratch memory written, during the call. No other call has an
    /// element of the rectangle.
    unsafe fn visit(
        &self,
        image: usize,
        channels: Range<usize>,
        pixels: Range<usize>,
        sums: (Ptr<u8>, [i64; 2]),
        scratch: Ptr<u8>,
    ) -> Result<()>;
}
