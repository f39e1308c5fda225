//! Scatters: a copy of the source, into which the values are combined in row-major order.

use super::fold::{element, write};
use super::functions::KernelFunctions;
use super::stage::{Outcome, PanelContext, StagePlan};
use crate::copy::copy;
use crate::element::Class;
use crate::pointwise::frame::{Failure, FailureKind};
use crate::view::{View, ViewMut, numel};
use maquette_ir::Scalar;
use maquette_ir::loops::Combine;
use maquette_ir::scalar_expr::binary;

/// Scatters the values of a stage. Returns the first failure, before anything is combined unless
/// it is one of the combination.
pub(super) fn scatter(cx: &PanelContext<'_>, plan: &StagePlan, combine: Combine) -> Outcome {
    let ([out], Some((source, sizes))) = (&plan.outputs[..], &plan.into) else { return Ok(()) };
    let (values, out) = (&plan.values[0], &out.buffer);
    let points = numel(&cx.extents_of(&values.axes));
    let (base, buffers) = (cx.base(out.base), &values.buffers);
    let value = |k: usize, point| element(cx.base(buffers[k].base), buffers[k].dtype, point);
    let position = |point: usize, dim: usize| value(1 + dim, point).to_i64();
    for point in 0..points {
        for (dim, &size) in sizes.iter().enumerate() {
            let position = position(point, dim);
            if !(0..size).contains(&position) {
                let kind = FailureKind::Index { position, dim, size };
                return Err(Failure { at: point as i64, instr: u32::MAX, kind }.into());
            }
        }
    }
    // SAFETY: the source as a whole, and the output, which is this task's alone.
    unsafe {
        let from = View::from_raw(cx.base(source.base).0, source.dtype, sizes, &source.strides);
        copy(&from, &mut ViewMut::from_raw(base.0, out.dtype, sizes, &out.strides))?;
    }
    for point in 0..points {
        let at = (0..sizes.len()).map(|dim| position(point, dim) * out.strides[dim]).sum::<i64>();
        let (at, new) = (at as usize, value(0, point));
        let value = match combine {
            Combine::Replace => new,
            Combine::Op(op) => {
                let old = element(base, out.dtype, at);
                match binary(op, old, new, out.dtype, &KernelFunctions) {
                    Ok(Scalar::Float(x)) => Scalar::Float(x.one_nan()),
                    Ok(x) => x,
                    Err(_) => {
                        let kind = FailureKind::DivisionByZero;
                        return Err(Failure { at: point as i64, instr: u32::MAX, kind }.into());
                    }
                }
            }
        };
        write(base, out.dtype, at, value);
    }
    Ok(())
}
