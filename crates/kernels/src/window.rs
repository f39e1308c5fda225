//! The geometry of windows that slide over spatial dimensions, of convolutions and poolings.

use crate::error::{KernelError, Result};

/// The geometry of a sliding window; each list has one entry per spatial dimension.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Window {
    /// The sizes of the window.
    pub kernel: Vec<i64>,
    /// The steps between windows.
    pub stride: Vec<i64>,
    /// The padding on both sides.
    pub padding: Vec<i64>,
    /// The distances between elements of the window.
    pub dilation: Vec<i64>,
    /// Whether a last window may extend beyond the padded input.
    pub ceil_mode: bool,
}

impl Window {
    /// The greatest value of any entry, so that no product of two entries overflows.
    pub const MOST: i64 = i32::MAX as i64;

    pub(crate) fn check(&self, kernel: &'static str, rank: usize) -> Result<()> {
        let n = self.kernel.len();
        for (what, list, least) in [
            ("kernel", &self.kernel, 1),
            ("stride", &self.stride, 1),
            ("padding", &self.padding, 0),
            ("dilation", &self.dilation, 1),
        ] {
            if list.len() != n {
                return Err(KernelError::Count {
                    kernel,
                    what: "entries per list of the window",
                    expected: n,
                    found: list.len(),
                });
            }
            if let Some(bad) = list.iter().find(|x| !(least..=Self::MOST).contains(*x)) {
                return Err(KernelError::argument(
                    kernel,
                    format!("{what} must be from {least} to {}, found {bad}", Self::MOST),
                ));
            }
        }
        if n == 0 || n > rank {
            return Err(KernelError::argument(
                kernel,
                format!("{n} spatial dimensions exceed rank {rank}"),
            ));
        }
        Ok(())
    }

    /// The number of windows along spatial dimension `d` of `size` elements, as PyTorch computes
    /// it; zero or negative if no window fits.
    pub fn output_size(&self, d: usize, size: i64) -> i64 {
        let (k, s, p, l) = (self.kernel[d], self.stride[d], self.padding[d], self.dilation[d]);
        let room = size + 2 * p - l * (k - 1) - 1;
        let n = (if self.ceil_mode { room + s - 1 } else { room }).div_euclid(s) + 1;
        // The last window must begin inside the input or its left padding.
        if self.ceil_mode && (n - 1) * s >= size + p { n - 1 } else { n }
    }
}
