//! Run-time selection of the instruction set (function multiversioning).
//!
//! The body of each [`Simd`] is inlined into one function per instruction set, compiled with the
//! corresponding target features. The compiler vectorises it there.
//!
//! The bodies have the same bits on each instruction set: they use only correctly rounded
//! operations, request fused multiply-add explicitly, and fix the order of reductions
//! (`reduce/lanes`, `gemm`). Matrix products choose among microkernels by the same [`Isa`].

use std::sync::LazyLock;

/// An instruction set that kernels are compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Isa {
    /// The baseline of the compiler's target (SSE2 on x86-64, NEON on AArch64).
    Scalar,
    /// AVX2 and FMA.
    Avx2,
    /// AVX-512 F, BW, DQ, VL.
    Avx512,
}

/// The bytes of a cache line.
pub(crate) const LINE: usize = 64;

/// Work that is compiled once per instruction set. `run` and all functions that it calls must be
/// `#[inline(always)]`: a call that is not inlined is compiled for the baseline.
pub(crate) trait Simd {
    type Out;
    fn run(self) -> Self::Out;
}

static DETECTED: LazyLock<Isa> = LazyLock::new(|| {
    let best = Isa::best();
    let requested = match std::env::var("MAQUETTE_ISA").as_deref() {
        Ok("scalar") => Isa::Scalar,
        Ok("avx2") => Isa::Avx2,
        _ => Isa::Avx512,
    };
    requested.min(best)
});

impl Isa {
    /// The instruction set to use: the best one of this machine, or a lesser one selected by
    /// `MAQUETTE_ISA` (`scalar`, `avx2`, `avx512`).
    pub fn detect() -> Isa {
        *DETECTED
    }

    /// The best instruction set of this machine.
    pub fn best() -> Isa {
        #[cfg(target_arch = "x86_64")]
        {
            let avx2 = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
            let avx512 = is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512dq")
                && is_x86_feature_detected!("avx512vl");
            if avx2 && avx512 {
                return Isa::Avx512;
            }
            if avx2 {
                return Isa::Avx2;
            }
        }
        Isa::Scalar
    }

    /// Runs the work compiled for this set, or for the baseline if this machine lacks the set.
    #[inline]
    pub(crate) fn dispatch<S: Simd>(self, work: S) -> S::Out {
        self.dispatch_inline(work)
    }

    /// As [`Isa::dispatch`], for work of a few elements that is made where it is dispatched:
    /// passing it on through memory would wait for the stores before it. Where the work is long,
    /// the compiler makes better code of a function of its own.
    #[inline(always)]
    pub(crate) fn dispatch_inline<S: Simd>(self, work: S) -> S::Out {
        #[cfg(target_arch = "x86_64")]
        match self {
            // SAFETY: `available` says that the machine has these features.
            Isa::Avx512 if available(self) => return unsafe { avx512(work) },
            // SAFETY: as above.
            Isa::Avx2 if available(self) => return unsafe { avx2(work) },
            _ => {}
        }
        work.run()
    }
}

/// Whether this machine has the set. `Isa` values can be constructed freely, so soundness of
/// [`Isa::dispatch`] rests on this check, which costs one load and one comparison.
#[cfg(target_arch = "x86_64")]
#[inline]
pub(crate) fn available(isa: Isa) -> bool {
    static BEST: LazyLock<Isa> = LazyLock::new(Isa::best);
    isa <= *BEST
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512dq,avx512vl")]
fn avx512<S: Simd>(work: S) -> S::Out {
    work.run()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn avx2<S: Simd>(work: S) -> S::Out {
    work.run()
}

/// Applies `y = f(x)` to every element of two slices of equal length; `f` is inlined into the loop.
pub(crate) struct Map<'a, A, F>(pub &'a [A], pub &'a mut [A], pub F);

impl<A: Copy, F: Fn(A) -> A> Simd for Map<'_, A, F> {
    type Out = ();
    #[inline(always)]
    fn run(self) {
        for (y, x) in self.1.iter_mut().zip(self.0) {
            *y = (self.2)(*x);
        }
    }
}

/// Applies `x = f(x)` to every element of a slice in place.
pub(crate) struct Each<'a, A, F>(pub &'a mut [A], pub F);

impl<A: Copy, F: Fn(A) -> A> Simd for Each<'_, A, F> {
    type Out = ();
    #[inline(always)]
    fn run(self) {
        for x in self.0 {
            *x = (self.1)(*x);
        }
    }
}

/// Asks for the cache line of an address to be loaded into the first-level cache. The address need
/// not be valid.
#[inline(always)]
pub(crate) fn prefetch_near(p: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: SSE is part of the target; a prefetch accesses no memory.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(p.cast())
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = p;
}
