//! Contractions, as products of matrices.
//!
//! Each factor is evaluated at the axes that it depends on. The axes of both make a batch, those of
//! one its rows or columns, and the contracted ones the inner dimension; a factor that does not
//! depend on an axis has stride 0 along it.

use super::access::Buffer;
use super::launch::Launch;
use super::schedule::Panels;
use super::stage::{PanelContext, Plan, StagePlan};
use super::values::Values;
use crate::error::Result;
use crate::gemm::batched_gemm;
use crate::view::{Dims, ViewMut, numel};
use maquette_ir::loops::{Axes, AxisId, Index, Stage, StageKind};
use maquette_ir::scalar_expr::{Op, ScalarExpr};
use smallvec::SmallVec;

/// The axes on which an expression depends.
fn dependencies(stage: &Stage, expr: &ScalarExpr) -> Vec<AxisId> {
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
    launch: &Launch<'_>,
    panels: &Panels,
    plan: &mut Plan<'_>,
    stage: &Stage,
    along: &[AxisId],
) -> Result<SmallVec<[Values; 1]>> {
    let mut factors = SmallVec::new();
    for output in 0..2 {
        let Some(expr) = stage.expr.only_output(output) else { continue };
        let needed = dependencies(stage, &expr);
        let is_kept = |a: &&AxisId| !along.contains(a) && needed.contains(a);
        let axes: Axes = stage.over.iter().filter(is_kept).chain(along).copied().collect();
        factors.push(Values::new(launch, panels, plan, stage, expr, axes, None)?);
    }
    Ok(factors)
}

/// Multiplies the factors.
pub(super) fn multiply(cx: &PanelContext<'_>, plan: &StagePlan<'_>) -> Result<()> {
    let (StageKind::Contract { along }, [left, right], [out]) =
        (&plan.stage.kind, &plan.values[..], &plan.outputs[..])
    else {
        return Ok(());
    };
    let kept = plan.stage.axes();
    let of =
        |is: &dyn Fn(&AxisId) -> bool| -> Axes { kept.iter().copied().filter(|a| is(a)).collect() };
    let batch = of(&|a| left.axes.contains(a) && right.axes.contains(a));
    let columns = of(&|a| !left.axes.contains(a) && right.axes.contains(a));
    let rows = of(&|a| !right.axes.contains(a));
    let size = |axes: &[AxisId]| numel(&cx.launch.extents_of(axes)) as i64;
    let k = size(along);
    // Rows of a factor follow each other in its row-major order of kept axes only if the batch
    // comes first; so matrices are taken one batch and row at a time where it does not.
    let dims = |axes: &[AxisId]| -> Dims { cx.launch.extents_of(axes) };
    let strides = |buffer: &Buffer, own: &[AxisId], axes: &[AxisId]| -> Dims {
        buffer.access(own, axes, cx.panels).strides
    };
    let group = |sizes: &[i64], strides: &[i64]| -> Option<i64> {
        // The distance of consecutive elements of merged dimensions, if there is one.
        let mut merged: Option<(i64, i64)> = None;
        for (&n, &stride) in sizes.iter().zip(strides).rev().filter(|(n, _)| **n != 1) {
            merged = match merged {
                None => Some((n, stride)),
                Some((m, inner)) if stride == inner * m => Some((m * n, inner)),
                Some(_) => return None,
            };
        }
        Some(merged.map_or(0, |(_, stride)| stride))
    };
    let [l, r] = [&left.buffers[0], &right.buffers[0]];
    let out_strides = |axes: &[AxisId]| strides(out, &kept, axes);
    let (row_sizes, column_sizes, batch_sizes) = (dims(&rows), dims(&columns), dims(&batch));
    let (l_rows, o_rows) = (strides(l, &left.axes, &rows), out_strides(&rows));
    let (r_columns, o_columns) = (strides(r, &right.axes, &columns), out_strides(&columns));
    let (l_batch, r_batch) = (strides(l, &left.axes, &batch), strides(r, &right.axes, &batch));
    let o_batch = out_strides(&batch);
    // Axes that do not merge are taken one coordinate at a time.
    let merges = |sizes: &[i64], a: &[i64], b: &[i64]| Some((group(sizes, a)?, group(sizes, b)?));
    let whole_rows = merges(&row_sizes, &l_rows, &o_rows);
    let whole_columns = merges(&column_sizes, &r_columns, &o_columns);
    let (m, n) = (size(&rows), size(&columns));
    let loops = |axes: &Dims, strides: [&Dims; 3], f: &mut dyn FnMut([i64; 3]) -> Result<()>| {
        let mut failed = Ok(());
        crate::layout::for_each(axes, strides.map(|s| &s[..]), |at| {
            if failed.is_ok() {
                failed = f(at);
            }
        });
        failed
    };
    let none = |sizes: &Dims| Dims::from_elem(0, sizes.len());
    let (row_sizes, row_step, m) = match whole_rows {
        Some(step) => (Dims::new(), step, m),
        None => (row_sizes, (0, 0), 1),
    };
    let (column_sizes, column_step, n) = match whole_columns {
        Some(step) => (Dims::new(), step, n),
        None => (column_sizes, (0, 0), 1),
    };
    let product = |l_at: i64, r_at: i64, o_at: i64| {
        let bytes = |at: i64, buffer: &Buffer| {
            let address = buffer.base.address(cx.memory).0;
            address.wrapping_offset((at * buffer.dtype.size() as i64) as isize)
        };
        // SAFETY: the factors were computed at these elements; the output is this task's alone.
        unsafe {
            let a = crate::View::from_raw(bytes(l_at, l), l.dtype, &[1, m, k], &[0, row_step.0, 1]);
            let b =
                crate::View::from_raw(bytes(r_at, r), r.dtype, &[1, k, n], &[0, 1, column_step.0]);
            let strides = [0, row_step.1, column_step.1];
            let mut c = ViewMut::from_raw(bytes(o_at, out), out.dtype, &[1, m, n], &strides);
            batched_gemm(&a, &b, &mut c, 1i64, 0i64)
        }
    };
    loops(&batch_sizes, [&l_batch, &r_batch, &o_batch], &mut |[l0, r0, o0]| {
        loops(&row_sizes, [&l_rows, &none(&row_sizes), &o_rows], &mut |[l1, _, o1]| {
            let columns = [&none(&column_sizes), &r_columns, &o_columns];
            loops(&column_sizes, columns, &mut |[_, r2, o2]| {
                product(l0 + l1, r0 + r2, o0 + o1 + o2)
            })
        })
    })
}
