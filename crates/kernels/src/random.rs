//! Random fills by Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3",
//! 2011). The generator is counter-based: element `i` (row-major, whatever the strides) depends
//! only on (seed, offset, i), so the result does not depend on threads or layout. A fill of n
//! elements uses the counters `offset .. offset + ceil(n / 4)`.

use crate::element::{Element, cast, dispatch};
use crate::error::{KernelError, Result};
use crate::layout::Loops;
use crate::thread_pool;
use crate::view::{Ptr, ViewMut};
use maquette_ir::DType;

const KERNEL: &str = "random";

/// Philox4x32 with ten rounds, applied to a counter under a key.
pub fn philox4x32(key: u64, counter: [u32; 4]) -> [u32; 4] {
    let (mut k0, mut k1) = (key as u32, (key >> 32) as u32);
    let mut c = counter;
    for _ in 0..10 {
        let a = u64::from(c[0]) * 0xD251_1F53;
        let b = u64::from(c[2]) * 0xCD9E_8D57;
        c = [(b >> 32) as u32 ^ c[1] ^ k0, b as u32, (a >> 32) as u32 ^ c[3] ^ k1, a as u32];
        k0 = k0.wrapping_add(0x9E37_79B9);
        k1 = k1.wrapping_add(0xBB67_AE85);
    }
    c
}

/// A position in the random sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Philox {
    /// The key.
    pub seed: u64,
    /// The first counter.
    pub offset: u64,
}

impl Philox {
    /// The four 32-bit words of the counter of element `i`. `stream` selects an independent second
    /// word for elements that need 64 bits.
    fn block(self, i: u64, stream: u32) -> [u32; 4] {
        let at = self.offset.wrapping_add(i / 4);
        philox4x32(self.seed, [at as u32, (at >> 32) as u32, stream, 0])
    }

    /// Calls `f(i, high, low)` for elements `from..to`, with 32 bits of the first stream as `high`
    /// and 32 of the second as `low`.
    fn each(self, from: usize, to: usize, mut f: impl FnMut(usize, u32, u32)) {
        let mut i = from;
        while i < to {
            let (a, b) = (self.block(i as u64, 0), self.block(i as u64, 1));
            let end = to.min((i / 4 + 1) * 4);
            for j in i..end {
                f(j, a[j % 4], b[j % 4]);
            }
            i = end;
        }
    }
}

/// A uniform number in [0, 1) with 53 random bits.
fn unit(high: u32, low: u32) -> f64 {
    ((u64::from(high) << 21) | u64::from(low >> 11)) as f64 * 2f64.powi(-53)
}

fn generate<T: Element>(
    out: &mut ViewMut<'_>,
    at: Philox,
    f: impl Fn(u32, u32) -> T + Sync,
) -> Result<()> {
    let loops = Loops::new(out.sizes(), [out.strides()], false);
    let (base, stride) = (Ptr(out.typed::<T>().0), loops.inner_stride(0));
    thread_pool::ranges(loops.numel(), thread_pool::GRAIN / 4, 4, &|from, to| {
        loops.runs(0, from, to - from, |pos, off, len| {
            at.each(from + pos, from + pos + len, |i, a, b| {
                // SAFETY: the element is within the run, and the run belongs to one task.
                unsafe { base.set(off + (i - from - pos) as i64 * stride, f(a, b)) }
            });
        });
        Ok(())
    })
}

/// Fills with uniform numbers in [low, high), for float dtypes. `f64` uses 53 random bits, `f32`
/// 24, `f16` 11 and `bf16` 8.
pub fn uniform(out: &mut ViewMut<'_>, at: Philox, low: f64, high: f64) -> Result<()> {
    let wide = out.dtype() == DType::F64;
    let bits = match out.dtype() {
        DType::F16 => 11,
        DType::BF16 => 8,
        _ => 24,
    };
    dispatch!(float KERNEL, "the output", out.dtype(), T => generate::<T>(out, at, |a, b| {
        // With as many bits as the dtype's precision, no number rounds up to 1.
        let u = if wide { unit(a, b) } else { f64::from(a >> (32 - bits)) * 2f64.powi(-bits) };
        cast(low + u * (high - low))
    }))
}

/// Fills with normal numbers of this mean and standard deviation, by the Box–Muller transform in
/// `f64`, for float dtypes.
pub fn normal(out: &mut ViewMut<'_>, at: Philox, mean: f64, std: f64) -> Result<()> {
    dispatch!(float KERNEL, "the output", out.dtype(), T => generate::<T>(out, at, |a, b| {
        // The half keeps the argument above zero, so that the logarithm is finite.
        let radius = (-2.0 * libm::log((f64::from(a) + 0.5) * 2f64.powi(-32))).sqrt();
        let angle = std::f64::consts::TAU * (f64::from(b) * 2f64.powi(-32));
        cast(mean + std * radius * libm::cos(angle))
    }))
}

/// Fills with integers in [low, high), cast to the dtype: 64 random bits modulo the range.
pub fn randint(out: &mut ViewMut<'_>, at: Philox, low: i64, high: i64) -> Result<()> {
    let range = high.wrapping_sub(low) as u64;
    if high <= low {
        return Err(KernelError::argument(KERNEL, format!("the range [{low}, {high}) is empty")));
    }
    dispatch!(out.dtype(), T => generate::<T>(out, at, |a, b| {
        let bits = (u64::from(a) << 32) | u64::from(b);
        cast(low.wrapping_add((bits % range) as i64))
    }))
}
