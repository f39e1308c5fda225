//! Triangles of matrices: of each row, one part is copied and the other is cleared.

use super::Special;
use crate::error::Result;
use crate::isa::Isa;
use crate::layout::offset;
use crate::thread_pool;
use crate::view::{Ptr, View, ViewMut, numel};
use maquette_ir::Scalar;
use maquette_ir::loops::recognise::Triangle;

impl Special for Triangle {
    fn run(
        &self,
        _: Isa,
        operands: &[View<'_>],
        numbers: &[Scalar],
        results: &mut [ViewMut<'_>],
    ) -> Result<bool> {
        let ([x], [out], [Scalar::Int(diagonal)]) = (operands, results, numbers) else {
            return Ok(false);
        };
        let ([outer @ .., columns], [.., from], [.., to]) = (x.sizes(), x.strides(), out.strides())
        else {
            return Ok(false);
        };
        if x.sizes() != out.sizes() || x.dtype() != out.dtype() {
            return Ok(false);
        }
        if *columns > 1 && (*from, *to) != (1, 1) {
            return Ok(false);
        }
        let (columns, width) = (*columns as usize, x.dtype().size());
        let Some(height) = outer.last().map(|n| *n as usize) else { return Ok(false) };
        let (source, target) = (Ptr(x.as_ptr().cast_mut()), Ptr(out.as_ptr().cast_mut()));
        let grain = (thread_pool::GRAIN / columns.max(1)).max(1);
        thread_pool::ranges(numel(outer), grain, 1, &|first, last| {
            for at in first..last {
                let row = (at % height) as i64;
                // The first column on the diagonal, or the number of those before it.
                let end = row.saturating_add(*diagonal);
                let count = |n: i64| n.clamp(0, columns as i64) as usize;
                let copied = match self.lower {
                    true => 0..count(end.saturating_add(1)),
                    false => count(end)..columns,
                };
                let strides = [x.strides(), out.strides()].map(|s| &s[..outer.len()]);
                let [from, to] = strides.map(|s| offset(outer, s, at) as isize * width as isize);
                // SAFETY: the columns of a row of the operand and the result, which are contiguous
                // and do not overlap. The row of the result is this task's alone. Zero bytes are
                // the zero of each dtype.
                unsafe {
                    let (from, to) = (source.at(from as usize), target.at(to as usize));
                    let begin = copied.start * width;
                    to.write_bytes(0, begin);
                    to.add(begin).copy_from_nonoverlapping(from.add(begin), copied.len() * width);
                    to.add(copied.end * width).write_bytes(0, (columns - copied.end) * width);
                }
            }
            Ok(())
        })?;
        Ok(true)
    }
}
