//! Images in memory, by channels or by pixels.

use crate::layout;
use crate::view::{Ptr, View};

/// Images whose pixels are in row-major order: the first element, and the distances of images, of
/// channels and of pixels.
///
/// Channels are planes if pixels are neighbours. They are last if channels are neighbours.
#[derive(Clone, Copy)]
pub(crate) struct Images<F> {
    pub start: Ptr<F>,
    pub image: usize,
    pub channel: usize,
    pub pixel: usize,
}

impl<F: Copy> Images<F> {
    /// The images of a tensor `[N, C, …]` at an address; `None` if its channels are neither planes
    /// nor last.
    pub fn of(view: &View<'_>, start: Ptr<F>) -> Option<Images<F>> {
        let [image, channel, pixel] = image_strides(view.sizes(), view.strides())?;
        Some(Images { start, image, channel, pixel })
    }

    /// Whether pixels are neighbours.
    pub fn has_planes(&self) -> bool {
        self.pixel == 1
    }

    /// Whether channels are neighbours, and pixels are not.
    pub fn has_channels_last(&self) -> bool {
        self.channel == 1 && self.pixel != 1
    }

    /// The address of a pixel of a channel.
    pub fn at(&self, image: usize, channel: usize, pixel: usize) -> *mut F {
        self.start.at(image * self.image + channel * self.channel + pixel * self.pixel)
    }
}

/// The distances of images, of channels and of pixels of a tensor `[N, C, …]`, if its channels are
/// row-major planes or last.
pub(crate) fn image_strides(sizes: &[i64], strides: &[i64]) -> Option<[usize; 3]> {
    let ([_, channels, plane @ ..], [image, channel, pixels @ ..]) = (sizes, strides) else {
        return None;
    };
    let area: i64 = plane.iter().product();
    let pixel = if area == 1 { 1 } else { layout::merged(plane, pixels)? };
    let channel = if *channels == 1 { area } else { *channel };
    let are_planes = pixel == 1 && channel == area;
    let are_last = channel == 1 && pixel >= *channels;
    let [image, channel, pixel] = [*image, channel, pixel].map(|n| usize::try_from(n).ok());
    Some([image?, channel?, pixel?]).filter(|_| are_planes || are_last)
}
