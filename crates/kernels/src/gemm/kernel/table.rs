//! The microkernels of each instruction set.

use super::super::kernel;
use super::super::lanes::{Array, Lanes};
use super::{Affine, ChannelTile, Kernels, PixelTile, PlaneTile, Strips, Tile};
use crate::isa::Isa;
#[cfg(target_arch = "x86_64")]
use crate::isa::available;

/// Wraps the kernels in functions that enable an instruction set, and lists them.
macro_rules! kernels {
    (
        $name:ident: $isa:ident, $vector:ty $(, enable = $features:literal)?;
        tiles $([$($rows:literal)* ; $vectors:literal])*;
        copying $([$most:literal ; $copied:literal])*;
        columns $([$($few:literal)* ; $wide:literal])*;
        pixels $([$($count:literal)* ; $broad:literal])*
    ) => {
        mod $name {
            use super::*;
            type F = <$vector as Lanes>::Float;

            $(#[target_feature(enable = $features)])?
            unsafe fn tile<const ROWS: usize, const VECTORS: usize, const COPY: bool>(t: &Tile<F>) {
                // SAFETY: the caller's promise.
                unsafe { kernel::tile::<$vector, ROWS, VECTORS, COPY, false>(t) }
            }

            $(#[target_feature(enable = $features)])?
            unsafe fn strip<const ROWS: usize, const VECTORS: usize, const COPY: bool>(
                t: &Tile<F>,
            ) {
                // SAFETY: the caller's promise.
                unsafe { kernel::tile::<$vector, ROWS, VECTORS, COPY, true>(t) }
            }

            $(#[target_feature(enable = $features)])?
            unsafe fn few<const ROWS: usize, const VECTORS: usize>(t: &Tile<F>) {
                // SAFETY: the caller's promise.
                unsafe { kernel::few::few::<$vector, ROWS, VECTORS>(t) }
            }

            $(#[target_feature(enable = $features)])?
            unsafe fn columns<const ROWS: usize, const VECTORS: usize>(t: &Tile<F>) {
                // SAFETY: the caller's promise.
                unsafe { kernel::columns::columns::<$vector, ROWS, VECTORS>(t) }
            }

            $(#[target_feature(enable = $features)])?
            unsafe fn pixels<const ROWS: usize, const VECTORS: usize, const APART: bool>(
                t: &PixelTile<F>,
            ) {
                // SAFETY: the caller's promise.
                unsafe { kernel::pixels::pixels::<$vector, ROWS, VECTORS, APART>(t) }
            }

            $(#[target_feature(enable = $features)])?
            unsafe fn affine(sums: *const F, width: usize, of: &Affine<F>, sizes: [usize; 2]) {
                // SAFETY: the caller's promise.
                unsafe { kernel::affine::affine::<$vector>(sums, width, of, sizes) }
            }

            $(#[target_feature(enable = $features)])?
            unsafe fn channels<const GREATEST: bool>(t: &ChannelTile<'_, F>) {
                // SAFETY: the caller's promise.
                unsafe { kernel::channels::channels::<$vector, GREATEST>(t) }
            }

            $(#[target_feature(enable = $features)])?
            unsafe fn finish_pixels(
                sums: *const F,
                sizes: [usize; 3],
                bias: *const F,
                out: *mut F,
                stride: usize,
            ) {
                // SAFETY: the caller's promise.
                unsafe { kernel::pixels::finish::<$vector>(sums, sizes, bias, out, stride) }
            }

            $(#[target_feature(enable = $features)])?
            unsafe fn plane<const STEP: usize>(t: &PlaneTile<F>) {
                // SAFETY: the caller's promise.
                unsafe { kernel::planes::plane::<$vector, STEP>(t) }
            }

            $(#[target_feature(enable = $features)])?
            unsafe fn greatest<const STEP: usize>(t: &PlaneTile<F>) {
                // SAFETY: the caller's promise.
                unsafe { kernel::planes::greatest::<$vector, STEP>(t) }
            }

            $(#[target_feature(enable = $features)])?
            unsafe fn dots(a: *const F, b: *const F, k: usize, out: *mut F) {
                // SAFETY: the caller's promise.
                unsafe { kernel::columns::dots::<$vector>(a, b, k, out) }
            }

            $(#[target_feature(enable = $features)])?
            unsafe fn pack(from: *const F, stride: isize, sizes: [usize; 3], to: *mut F) {
                // SAFETY: the caller's promise.
                unsafe { kernel::columns::pack::<$vector>(from, stride, sizes, to) }
            }

            $(#[target_feature(enable = $features)])?
            unsafe fn pack_strips(strips: Strips<'_, F>) {
                // SAFETY: the caller's promise.
                unsafe { kernel::strips::pack::<$vector>(strips) }
            }

            pub(super) static KERNELS: Kernels<F> = Kernels {
                isa: Isa::$isa,
                lanes: <$vector as Lanes>::N,
                tiles: &[$(&[$(tile::<$rows, $vectors, false>),*]),*],
                copying: &[$(tile::<$most, $copied, true>),*],
                strips: &[$(&[$(strip::<$rows, $vectors, false>),*]),*],
                copying_strips: &[$(strip::<$most, $copied, true>),*],
                few: &[
                    &[few::<1, 1>, few::<2, 1>, few::<3, 1>, few::<4, 1>, few::<5, 1>, few::<6, 1>],
                    &[few::<1, 2>, few::<2, 2>, few::<3, 2>, few::<4, 2>],
                ],
                columns: &[$(&[$(columns::<$few, $wide>),*]),*],
                pixels: &[$(&[$(pixels::<$count, $broad, false>),*]),*],
                pixels_apart: &[$(&[$(pixels::<$count, $broad, true>),*]),*],
                affine,
                channels: [channels::<false>, channels::<true>],
                finish_pixels,
                planes: [plane::<1>, plane::<2>],
                greatest: [greatest::<1>, greatest::<2>],
                dots,
                pack,
                pack_strips,
            };
        }
    };
}

#[cfg(target_arch = "x86_64")]
use super::super::lanes::{__m256, __m256d, __m512, __m512d};

// A tile fills the registers: 24 sums of 32 registers, 12 of 16. More rows would need more
// addresses of rows than there are general registers.
#[cfg(target_arch = "x86_64")]
kernels!(avx512_f32: Avx512, __m512, enable = "avx2,fma,avx512f,avx512bw,avx512dq,avx512vl";
    tiles [1 2 3 4 5 6 7 8 9 10; 1] [1 2 3 4 5 6 7 8 9 10; 2] [1 2 3 4 5 6 7 8; 3] [1 2 3 4 5 6; 4];
    copying [10; 1] [10; 2] [8; 3] [6; 4];
    columns [1 2 3 4; 1];
    pixels [1 2 3 4 5 6 7 8 9 10 11 12 13 14; 1] [1 2 3 4 5 6 7 8 9 10 11 12 13 14; 2]);
#[cfg(target_arch = "x86_64")]
kernels!(avx512_f64: Avx512, __m512d, enable = "avx2,fma,avx512f,avx512bw,avx512dq,avx512vl";
    tiles [1 2 3 4 5 6 7 8 9 10; 1] [1 2 3 4 5 6 7 8 9 10; 2] [1 2 3 4 5 6 7 8; 3] [1 2 3 4 5 6; 4];
    copying [10; 1] [10; 2] [8; 3] [6; 4];
    columns [1 2 3 4; 1];
    pixels [1 2 3 4 5 6 7 8 9 10 11 12 13 14; 1] [1 2 3 4 5 6 7 8 9 10 11 12 13 14; 2]);
#[cfg(target_arch = "x86_64")]
kernels!(avx2_f32: Avx2, __m256, enable = "avx2,fma";
    tiles [1 2 3 4 5 6 7 8; 1] [1 2 3 4 5 6; 2];
    copying [8; 1] [6; 2];
    columns [1 2 3 4; 1] [1 2 3 4; 2];
    pixels [1 2 3 4 5 6; 1] [1 2 3 4 5 6; 2]);
#[cfg(target_arch = "x86_64")]
kernels!(avx2_f64: Avx2, __m256d, enable = "avx2,fma";
    tiles [1 2 3 4 5 6 7 8; 1] [1 2 3 4 5 6; 2];
    copying [8; 1] [6; 2];
    columns [1 2 3 4; 1] [1 2 3 4; 2];
    pixels [1 2 3 4 5 6; 1] [1 2 3 4 5 6; 2]);
// On AArch64, arrays of this size are two and two registers of NEON.
kernels!(portable_f32: Scalar, Array<f32, 8>;
    tiles [1 2 3 4 5 6; 1] [1 2 3 4 5 6; 2];
    copying [6; 1] [6; 2];
    columns [1 2; 1] [1 2; 2];
    pixels [1 2 3 4 5 6; 1] [1 2 3 4 5 6; 2]);
kernels!(portable_f64: Scalar, Array<f64, 4>;
    tiles [1 2 3 4 5 6; 1] [1 2 3 4 5 6; 2];
    copying [6; 1] [6; 2];
    columns [1 2; 1] [1 2; 2];
    pixels [1 2 3 4 5 6; 1] [1 2 3 4 5 6; 2]);

/// Chooses the kernels of an instruction set, or the portable ones if the machine lacks the set.
macro_rules! choose {
    ($isa:expr, $avx512:ident, $avx2:ident, $portable:ident) => {{
        #[cfg(target_arch = "x86_64")]
        match $isa {
            Isa::Avx512 if available(Isa::Avx512) => return &$avx512::KERNELS,
            Isa::Avx2 if available(Isa::Avx2) => return &$avx2::KERNELS,
            _ => {}
        }
        let _ = $isa;
        &$portable::KERNELS
    }};
}

pub(crate) fn kernels_f32(isa: Isa) -> &'static Kernels<f32> {
    choose!(isa, avx512_f32, avx2_f32, portable_f32)
}

pub(crate) fn kernels_f64(isa: Isa) -> &'static Kernels<f64> {
    choose!(isa, avx512_f64, avx2_f64, portable_f64)
}
