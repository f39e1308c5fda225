//! A copy of a tensor with one view of it replaced: `slice_scatter`, `select_scatter`,
//! `diagonal_scatter`, `as_strided_scatter`.

use crate::shape::structure::copying;
use crate::shape::views;
use maquette_ir::view::StridedPositions;
use maquette_ops::internals::MetaInternals;
use maquette_ops::operator::dims::fresh_like;
use maquette_ops::operator::host::{self, typed};
use maquette_ops::operator::lowering::{How, Metas};
use maquette_ops::operator::require_same;
use maquette_ops::operator::{cpu_exec, table};
use maquette_ops::{Error, Meta, Result, Tensor, Value};
use smallvec::smallvec;

/// The metadata of a copy of argument 0, after a check that `src` has the sizes of the view.
fn replaced(args: &[Value], view: fn(&Meta, &[Value]) -> Result<Meta>) -> Result<Metas> {
    let (x, src) = (args[0].tensor()?, args[1].tensor()?);
    require_same(&view(x.meta(), args)?.sizes, src.sizes(), || "argument `src` must have".into())?;
    Ok(smallvec![fresh_like(x, x.dtype())?])
}

/// Copies argument 0, then writes `src` to the view of the copy.
fn replace(args: &[Value], out: &Tensor, view: fn(&Meta, &[Value]) -> Result<Meta>) -> Result<()> {
    cpu_exec::copy(args[0].tensor()?, out)?;
    cpu_exec::copy(args[1].tensor()?, &out.view_of(view(out.meta(), args)?)?)
}

fn sliced(m: &Meta, args: &[Value]) -> Result<Meta> {
    views::slice(
        m,
        args[2].int_i64()?,
        args[3].opt(Value::int)?,
        args[4].opt(Value::int)?,
        args[5].int()?,
    )
}

fn selected(m: &Meta, args: &[Value]) -> Result<Meta> {
    views::select(m, args[2].int_i64()?, args[3].int()?)
}

fn diagonal(m: &Meta, args: &[Value]) -> Result<Meta> {
    views::diagonal(m, args[2].int_i64()?, args[3].int_i64()?, args[4].int_i64()?)
}

/// `as_strided_scatter`: the metadata of the copy, with the strides of `self`.
fn window_metas(args: &[Value]) -> Result<Metas> {
    let (x, src) = (args[0].tensor()?, args[1].tensor()?);
    let window = views::as_strided(x, args[2].ints()?, args[3].ints()?, args[4].opt(Value::int)?)?;
    require_same(&window.sizes, src.sizes(), || "argument `src` must have".into())?;
    let dense = fresh_like(x, x.dtype())?;
    // Expanded memory cannot be preserved in a copy that is written.
    let overlaps = x
        .sizes()
        .iter()
        .zip(x.strides())
        .any(|(n, s)| s.as_i64() == Some(0) && n.as_i64() != Some(1));
    Ok(smallvec![if overlaps { dense } else { dense.with_strides(x.strides().into()) }])
}

/// Replaces the elements of `self` that the `as_strided` window over its storage covers. Window and
/// tensor may visit the storage in different orders, so elements are matched by position.
fn window(args: &[Value], out: &Tensor) -> Result<()> {
    let (x, src) = (args[0].tensor()?, args[1].tensor()?);
    let window = views::as_strided(x, args[2].ints()?, args[3].ints()?, args[4].opt(Value::int)?)?;
    let src = cpu_exec::cast(src, x.dtype())?;
    typed!(x.dtype(), T => {
        let (mut elements, new) = (host::data::<T>(x)?, host::data::<T>(&src)?);
        let written: rustc_hash::FxHashMap<i64, T> =
            positions(&window)?.into_iter().zip(new).collect();
        for (e, at) in elements.iter_mut().zip(positions(x.meta())?) {
            if let Some(v) = written.get(&at) {
                *e = *v;
            }
        }
        host::fill_with::<T>(out, |o| o.copy_from_slice(&elements))
    })
}

/// The storage positions of the elements, in row-major order.
fn positions(m: &Meta) -> Result<Vec<i64>> {
    let c = m.concrete().ok_or_else(|| Error::value("the layout is symbolic"))?;
    let positions = StridedPositions::new(c.offset, &c.sizes, &c.strides);
    host::collect(positions.len(), positions)
}

table! {
    /// Copies with one view replaced.
    static TABLE = {
        "aten::slice_scatter(Tensor self, Tensor src, int dim=0, SymInt? start=None, \
            SymInt? end=None, SymInt step=1) -> Tensor" => {
            role: General,
            lowering: copying(
                |_, a| replaced(a, sliced),
                How::Host(|a, out| replace(a, &out[0], sliced)),
            ),
            vjp: crate::grad::SLICE_SCATTER,
        },
        "aten::select_scatter(Tensor self, Tensor src, int dim, SymInt index) -> Tensor" => {
            role: General,
            lowering: copying(
                |_, a| replaced(a, selected),
                How::Host(|a, out| replace(a, &out[0], selected)),
            ),
            vjp: crate::grad::SELECT_SCATTER,
        },
        "aten::diagonal_scatter(Tensor self, Tensor src, int offset=0, int dim1=0, \
            int dim2=1) -> Tensor" => {
            role: General,
            lowering: copying(
                |_, a| replaced(a, diagonal),
                How::Host(|a, out| replace(a, &out[0], diagonal)),
            ),
            vjp: crate::grad::DIAGONAL_SCATTER,
        },
        "aten::as_strided_scatter(Tensor self, Tensor src, SymInt[] size, \
            SymInt[] stride, SymInt? storage_offset=None) -> Tensor" => {
            role: ObservesStorage,
            lowering: copying(|_, a| window_metas(a), How::Host(|a, out| window(a, &out[0]))),
            vjp: crate::grad::STRIDED_SCATTER,
        },
    }
}
