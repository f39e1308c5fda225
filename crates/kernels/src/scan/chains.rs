//! Scans in the order of a chain ([`ScanOrder::Chain`](maquette_ir::loops::scan::ScanOrder)).
//!
//! Each element depends on the one before, so a single line is bound by the latency of the
//! operation. [`SIDE`] lines run interleaved, which gives independent chains without changing the
//! order of any line.

use super::{KERNEL, Lines};
use crate::element::Class;
use crate::error::Result;
use crate::isa::Isa;
use crate::load_store::{Reader, Writer};
use crate::pointwise::ops::Op2;
use crate::scratch::filled;
use crate::view::{View, ViewMut};
use smallvec::SmallVec;

/// The lines that run interleaved.
const SIDE: usize = 4;

/// Scans line by line, from the first value of each.
pub(super) fn in_chains<A: Class, O: Op2<A, A>>(
    lines: &Lines,
    input: &View<'_>,
    out: &mut ViewMut<'_>,
) -> Result<()> {
    let (src, dst) = (Reader::<A>::new(input), Writer::<A>::new(out));
    let (isa, si, so) = (Isa::detect(), lines.stride(input), lines.stride(out));
    lines.ranges(|from, to| {
        let n = lines.len.saturating_mul(SIDE.min(to - from));
        let mut scratch = filled(KERNEL, A::default(), n)?;
        for first in (from..to).step_by(SIDE) {
            let mut xs: SmallVec<[_; SIDE]> =
                (first..to).zip(scratch.chunks_mut(lines.len)).collect();
            for (line, xs) in &mut xs {
                // SAFETY: the elements belong to this line, and a line belongs to one task.
                unsafe { src.read(isa, lines.start(input, *line), si, xs) };
            }
            match xs.as_mut_slice() {
                [(_, a), (_, b), (_, c), (_, d)] => running::<A, O, SIDE>([a, b, c, d]),
                fewer => fewer.iter_mut().for_each(|(_, xs)| running::<A, O, 1>([xs])),
            }
            for (line, xs) in &xs {
                // SAFETY: as above.
                unsafe { dst.write_run(isa, lines.start(out, *line), so, xs) }
            }
        }
        Ok(())
    })
}

/// Scans `N` lines of equal length in place.
fn running<A: Class, O: Op2<A, A>, const N: usize>(mut lines: [&mut [A]; N]) {
    let n = lines.iter().map(|line| line.len()).min().unwrap_or(0);
    if n == 0 {
        return;
    }
    let mut lines = lines.each_mut().map(|line| &mut line[..n]);
    let mut ends = lines.each_ref().map(|line| line[0]);
    lines.iter_mut().for_each(|line| line[0] = line[0].one_nan());
    for i in 1..n {
        for (end, line) in ends.iter_mut().zip(&mut lines) {
            *end = O::f(*end, line[i]);
            line[i] = end.one_nan();
        }
    }
}
