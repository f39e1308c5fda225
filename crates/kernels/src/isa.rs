//! Picking an instruction set at run time. The same source is compiled once per set; results are
//! the same bits on each.

use std::sync::LazyLock;

/// An instruction set kernels are compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Isa {
    /// What the compiler's target guarantees (SSE2 on x86-64, NEON on AArch64).
    Scalar,
    /// AVX2 and FMA.
    Avx2,
    /// AVX-512 F, BW, DQ, VL.
    Avx512,
}

/// Work that is compiled once per instruction set; `run` must be `#[inline(always)]`, and so must
/// what it calls.
pub(crate) trait Simd {
    type Out;
    fn run(self) -> Self::Out;
}

static DETECTED: LazyLock<Isa> = LazyLock::new(|| {
    let best = Isa::best();
    let asked = match std::env::var("MAQUETTE_ISA").as_deref() {
        Ok("scalar") => Isa::Scalar,
        Ok("avx2") => Isa::Avx2,
        _ => Isa::Avx512,
    };
    asked.min(best)
});

impl Isa {
    /// The best set this machine has, or the lesser one that `MAQUETTE_ISA` (`scalar`, `avx2`,
    /// `avx512`) asks for.
    pub fn detect() -> Isa {
        *DETECTED
    }

    /// The best set this machine has.
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

    /// Runs the work compiled for this set; for a set this machine lacks, the best it has.
    #[inline]
    pub(crate) fn dispatch<S: Simd>(self, work: S) -> S::Out {
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

/// One load and compare: `Isa` is freely constructible, so soundness is decided here.
#[cfg(target_arch = "x86_64")]
#[inline]
fn available(isa: Isa) -> bool {
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

/// `y = f(x)` for every element of two slices of one length; `f` is inlined into the loop.
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

/// `x = f(x)` for every element, likewise.
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
