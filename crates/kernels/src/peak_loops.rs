//! Loops that do nothing but one thing, as fast as the machine can: fused multiply-adds, and reads.
//! The peaks of a machine are measured with them.
//!
//! A chain of multiply-adds waits for the one before, so there are as many chains as keep all units
//! busy: more than latency times units, and no more than registers. The factors have all digits in
//! use: with operands that never change, a processor needs less power and may run at a higher clock
//! than any product can.
#![allow(unsafe_code)]

use crate::isa::Isa;
use std::hint::black_box;

/// Factors of the multiply-adds. The sums converge for no factor of these, and overflow for none.
const ROWS: [f32; 8] = [
    0.731_058_6,
    0.413_287_9,
    0.268_941_4,
    0.880_797,
    0.119_202_9,
    0.982_013_8,
    0.377_540_7,
    0.622_459_3,
];
const COLUMNS: [f32; 3] = [-0.574_442_5, 0.836_017_6, -0.217_111_8];

/// The chains without vectors.
const SCALAR_CHAINS: usize = 16;

// The loops are by index: iterators over vectors are functions without the instruction set, which
// are not inlined.
#[cfg(target_arch = "x86_64")]
macro_rules! chains {
    ($name:ident, $features:literal, $float:ty, $rows:literal, $zero:ident, $splat:ident, $fma:ident) => {
        #[target_feature(enable = $features)]
        fn $name(steps: usize) {
            use std::arch::x86_64::*;
            let (rows, columns) = black_box((ROWS, COLUMNS));
            let splat = [columns[0] as $float, columns[1] as $float, columns[2] as $float];
            let columns = [$splat(splat[0]), $splat(splat[1]), $splat(splat[2])];
            let mut sums = [[$zero(); 3]; $rows];
            for _ in 0..steps {
                for row in 0..$rows {
                    let x = $splat(rows[row] as $float);
                    for column in 0..3 {
                        sums[row][column] = $fma(x, columns[column], sums[row][column]);
                    }
                }
            }
            black_box(sums);
        }
    };
}

#[cfg(target_arch = "x86_64")]
chains!(f32_avx512, "avx512f", f32, 8, _mm512_setzero_ps, _mm512_set1_ps, _mm512_fmadd_ps);
#[cfg(target_arch = "x86_64")]
chains!(f64_avx512, "avx512f", f64, 8, _mm512_setzero_pd, _mm512_set1_pd, _mm512_fmadd_pd);
#[cfg(target_arch = "x86_64")]
chains!(f32_avx2, "avx2,fma", f32, 3, _mm256_setzero_ps, _mm256_set1_ps, _mm256_fmadd_ps);
#[cfg(target_arch = "x86_64")]
chains!(f64_avx2, "avx2,fma", f64, 3, _mm256_setzero_pd, _mm256_set1_pd, _mm256_fmadd_pd);

/// Multiplies and adds in the vectors of the compiler's target.
fn baseline<T: Copy + std::ops::Mul<Output = T> + std::ops::Add<Output = T>>(
    steps: usize,
    zero: T,
    from: impl Fn(f32) -> T,
) -> u64 {
    let (rows, columns) = black_box((ROWS, COLUMNS));
    let (rows, y) = (rows.map(&from), from(columns[0]));
    let mut sums = [zero; SCALAR_CHAINS];
    for _ in 0..steps {
        for (i, sum) in sums.iter_mut().enumerate() {
            *sum = rows[i % rows.len()] * y + *sum;
        }
    }
    black_box(sums);
    (steps * SCALAR_CHAINS * 2) as u64
}

/// Runs `steps` rounds of multiply-adds on `f32`. Returns the number of operations.
pub fn multiply_adds_f32(isa: Isa, steps: usize) -> u64 {
    #[cfg(target_arch = "x86_64")]
    match isa {
        Isa::Avx512 if crate::isa::available(isa) => {
            // SAFETY: the machine has the instruction set.
            unsafe { f32_avx512(steps) };
            return (steps * 8 * 3 * 16 * 2) as u64;
        }
        Isa::Avx2 if crate::isa::available(isa) => {
            // SAFETY: as above.
            unsafe { f32_avx2(steps) };
            return (steps * 3 * 3 * 8 * 2) as u64;
        }
        _ => {}
    }
    let _ = isa;
    baseline(steps, 0.0f32, |x| x)
}

/// As [`multiply_adds_f32`], on `f64`.
pub fn multiply_adds_f64(isa: Isa, steps: usize) -> u64 {
    #[cfg(target_arch = "x86_64")]
    match isa {
        Isa::Avx512 if crate::isa::available(isa) => {
            // SAFETY: the machine has the instruction set.
            unsafe { f64_avx512(steps) };
            return (steps * 8 * 3 * 8 * 2) as u64;
        }
        Isa::Avx2 if crate::isa::available(isa) => {
            // SAFETY: as above.
            unsafe { f64_avx2(steps) };
            return (steps * 3 * 3 * 4 * 2) as u64;
        }
        _ => {}
    }
    let _ = isa;
    baseline(steps, 0.0f64, f64::from)
}

/// The words of a block, which all accumulators read together.
#[cfg(target_arch = "x86_64")]
const BLOCK: usize = 64;

#[cfg(target_arch = "x86_64")]
macro_rules! sums {
    ($name:ident, $features:literal, $lanes:literal, $zero:ident, $load:ident, $add:ident) => {
        #[target_feature(enable = $features)]
        fn $name(blocks: &[[u64; BLOCK]]) -> u64 {
            use std::arch::x86_64::*;
            const SUMS: usize = 8;
            let mut sums = [$zero(); SUMS];
            for block in blocks {
                for i in 0..BLOCK / $lanes {
                    // SAFETY: a vector has as many words as lanes, so it ends inside the block.
                    let words = unsafe { $load(block.as_ptr().add(i * $lanes).cast()) };
                    sums[i % SUMS] = $add(sums[i % SUMS], words);
                }
            }
            let mut sum = sums[0];
            for other in 1..SUMS {
                sum = $add(sum, sums[other]);
            }
            // SAFETY: both have the same size, and every bit pattern is a word.
            let lanes: [u64; $lanes] = unsafe { std::mem::transmute(sum) };
            lanes.iter().fold(0, |sum, lane| sum.wrapping_add(*lane))
        }
    };
}

#[cfg(target_arch = "x86_64")]
sums!(sum_avx512, "avx512f", 8, _mm512_setzero_si512, _mm512_loadu_si512, _mm512_add_epi64);
#[cfg(target_arch = "x86_64")]
sums!(sum_avx2, "avx2", 4, _mm256_setzero_si256, _mm256_loadu_si256, _mm256_add_epi64);

/// The sum of some words, modulo 2⁶⁴: it takes as long as to read them.
pub fn read_words(isa: Isa, words: &[u64]) -> u64 {
    let sum = |words: &[u64]| words.iter().fold(0u64, |sum, word| sum.wrapping_add(*word));
    #[cfg(target_arch = "x86_64")]
    {
        let (blocks, rest) = words.as_chunks::<BLOCK>();
        match isa {
            Isa::Avx512 if crate::isa::available(isa) => {
                // SAFETY: the machine has the instruction set.
                return unsafe { sum_avx512(blocks) }.wrapping_add(sum(rest));
            }
            Isa::Avx2 if crate::isa::available(isa) => {
                // SAFETY: as above.
                return unsafe { sum_avx2(blocks) }.wrapping_add(sum(rest));
            }
            _ => {}
        }
    }
    let _ = isa;
    sum(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_instruction_set_does_what_it_counts() {
        for isa in [Isa::Scalar, Isa::Avx2, Isa::Avx512] {
            assert!(multiply_adds_f32(isa, 10) >= 320);
            assert!(multiply_adds_f64(isa, 10) >= 320 / 2);
            let words: Vec<u64> = (0..1_000).collect();
            assert_eq!(read_words(isa, &words), 999 * 500);
        }
    }
}
