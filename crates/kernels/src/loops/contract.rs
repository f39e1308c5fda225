//! Contractions of integers, as products of matrices; [`product`](super::product) has those of
//! floats.
//!
//! Each factor is evaluated at the axes that it depends on. The axes of both make a batch, those of
//! one its rows or columns, and the contracted ones the inner dimension; a factor that does not
//! depend on an axis has stride 0 along it.

use super::access::Buffer;
use super::stage::{PanelContext, Planner, StagePlan};
use super::values::{Destination, Values};
use crate::error::Result;
use crate::gemm::batched_gemm;
use crate::view::{Dims, View, ViewMut, numel};
use maquette_ir::loops::{Axes, AxisId, Index, Stage};
use maquette_ir::scalar_expr::{Op, ScalarExpr};
use smallvec::SmallVec;

/// The axes on which an expression depends.
pub(super) fn dependencies(stage: &Stage, expr: &ScalarExpr) -> Vec<AxisId> {
    let mut axes = Vec::new();
    for instr in expr.instrs() {
        let load = match instr.op {
            Op::Coord(axis) => {
                axes.push(AxisId(axis));
                continue;
            }
            Op::Input(k) => k,
            Op::Read(read) => read.input,
            _ => continue,
        };
        for index in stage.loads.get(load as usize).iter().flat_map(|l| l.at.indices()) {
            if let Index::Affine(affine) = index {
                axes.extend(affine.terms.iter().map(|(axis, _)| *axis));
            }
        }
    }
    axes
}

/// Plans the values of the two factors: at the kept axes on which each depends, in the order of the
/// stage, and at all contracted ones.
pub(super) fn factors(
    planner: &mut Planner<'_>,
    stage: &Stage,
    along: &[AxisId],
) -> Result<SmallVec<[Values; 1]>> {
    let mut factors = SmallVec::new();
    for output in 0..2 {
        let Some(expr) = stage.expr.only_output(output) else { continue };
        let needed = dependencies(stage, &expr);
        let is_kept = |a: &&AxisId| !along.contains(a) && needed.contains(a);
        let axes: Axes = stage.over.iter().filter(is_kept).chain(along).copied().collect();
        factors.push(Values::new(planner, stage, &expr, axes, Destination::Scratch, &[])?);
    }
    Ok(factors)
}

/// Offsets or strides in the left factor, the right factor and the result.
type Three = [i64; 3];

/// Some axes of the result, with the strides of the three tensors along each.
struct Group {
    sizes: Dims,
    strides: [Dims; 3],
}

impl Group {
    /// Splits off one dimension: the innermost axes that merge into one in each tensor.
    fn split(mut self) -> (Group, i64, Three) {
        let mut inner: (i64, Three) = (1, [0; 3]);
        while let Some(size) = self.sizes.last().copied() {
            let last = self.sizes.len() - 1;
            let strides: Three = std::array::from_fn(|t| self.strides[t][last]);
            let (n, steps) = inner;
            if n == 1 {
                inner = (size, strides);
            } else if size != 1 {
                if (0..3).any(|t| strides[t] != steps[t] * n) {
                    break;
                }
                inner = (n * size, steps);
            }
            self.sizes.pop();
            self.strides.iter_mut().for_each(|strides| strides.truncate(last));
        }
        (self, inner.0, inner.1)
    }

    /// Calls `f` with the offsets of each coordinate.
    fn each(&self, f: &mut dyn FnMut(Three) -> Result<()>) -> Result<()> {
        let mut outcome = Ok(());
        let [left, right, out] = &self.strides;
        crate::layout::for_each(&self.sizes, [left, right, out], |at| {
            if outcome.is_ok() {
                outcome = f(at);
            }
        });
        outcome
    }
}

/// Multiplies the factors.
pub(super) fn multiply(
    cx: &PanelContext<'_>,
    plan: &StagePlan,
    stage: &Stage,
    along: &[AxisId],
) -> Result<()> {
    let ([left, right], [out]) = (&plan.values[..], &plan.outputs[..]) else { return Ok(()) };
    let (kept, out, panels) = (stage.axes(), &out.buffer, cx.panels);
    let [l, r] = [&left.buffers[0], &right.buffers[0]];
    let group = |is: &dyn Fn(bool, bool) -> bool| {
        let is_in = |a: &&AxisId| is(left.axes.contains(a), right.axes.contains(a));
        let axes: Axes = kept.iter().filter(is_in).copied().collect();
        let strides = |b: &Buffer, dims: &[AxisId]| b.access(dims, &axes, panels).strides;
        let strides = [strides(l, &left.axes), strides(r, &right.axes), strides(out, &kept)];
        Group { sizes: cx.extents_of(&axes), strides }
    };
    let batch = group(&|in_left, in_right| in_left && in_right);
    let (rows, m, row) = group(&|_, in_right| !in_right).split();
    let (columns, n, column) = group(&|in_left, in_right| !in_left && in_right).split();
    let k = numel(&cx.extents_of(along)) as i64;
    let address = |buffer: &Buffer, at: i64| {
        let bytes = (at * buffer.dtype.size() as i64) as isize;
        cx.base(buffer.base).0.wrapping_offset(bytes)
    };
    let product = |at: Three| {
        // SAFETY: the factors were computed at these elements; the output is this task's alone.
        unsafe {
            let a = View::from_raw(address(l, at[0]), l.dtype, &[1, m, k], &[0, row[0], 1]);
            let b = View::from_raw(address(r, at[1]), r.dtype, &[1, k, n], &[0, 1, column[1]]);
            let (sizes, strides) = ([1, m, n], [0, row[2], column[2]]);
            let mut c = ViewMut::from_raw(address(out, at[2]), out.dtype, &sizes, &strides);
            batched_gemm(&a, &b, &mut c, 1i64, 0i64)
        }
    };
    let sum = |a: Three, b: Three| -> Three { std::array::from_fn(|t| a[t] + b[t]) };
    batch.each(&mut |b| rows.each(&mut |i| columns.each(&mut |j| product(sum(b, sum(i, j))))))
}
