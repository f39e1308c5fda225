//! The operators of functional graphs: `ir::view`, `ir::scatter`, `ir::strided`, `ir::barrier`,
//! `ir::apart` and `ir::distinct`. Offsets, sizes and strides count the elements of a value in
//! row-major order, independent of the layout of the value in memory.

use crate::create::copies::{COPY, copy_of};
use maquette_ir::functional_ops::schemas;
use maquette_ir::sym::SymInt;
use maquette_ops::internals::MetaInternals;
use maquette_ops::operator::Derivative;
use maquette_ops::operator::dims::{fresh, require};
use maquette_ops::operator::lowering::{Class, Compute, How, Lowering, Metas, Strides};
use maquette_ops::operator::{cpu_exec, dims_text, table};
use maquette_ops::operator::{may_overlap, may_self_overlap};
use maquette_ops::{AccessError, Concrete, Error, Outputs, Result, Tensor, Value};
use smallvec::{SmallVec, smallvec};

/// The part of a row-major value that `size, stride, offset` name. Of an empty part, only the sizes
/// matter: it may have any strides and offset.
fn part(base: &Tensor, at: &[Value]) -> Result<Tensor> {
    let (sizes, strides, offset) = (at[0].ints()?, at[1].ints()?, at[2].int()?);
    let start = base.meta().offset();
    let meta = if sizes.iter().any(|n| n.as_i64() == Some(0)) {
        let strides: SmallVec<[SymInt; 6]> = strides.iter().map(|_| SymInt::from(0)).collect();
        crate::shape::views::as_strided(base, sizes, &strides, Some(start))?
    } else {
        crate::shape::views::as_strided(base, sizes, strides, Some(start + offset))?
    };
    base.view_of(meta)
}

fn viewed(args: &[Value]) -> Result<Tensor> {
    let base = args[0].tensor()?;
    let rows = if base.meta().is_row_major() { base.clone() } else { cpu_exec::contiguous(base)? };
    part(&rows, &args[1..])
}

fn scatter(args: &[Value], out: &[Tensor]) -> Result<()> {
    let (base, from) = (args[0].tensor()?, args[1].tensor()?);
    cpu_exec::copy(base, &out[0])?;
    cpu_exec::copy(from, &part(&out[0], &args[2..])?)
}

fn view_metas(args: &[Value]) -> Result<Metas> {
    let base = args[0].tensor()?;
    Ok(smallvec![fresh(base, args[1].ints()?.into(), base.dtype())])
}

fn scatter_metas(args: &[Value]) -> Result<Metas> {
    let base = args[0].tensor()?;
    Ok(smallvec![fresh(base, base.sizes().into(), base.dtype())])
}

fn strided_metas(args: &[Value]) -> Result<Metas> {
    let base = args[0].tensor()?;
    let strides = args[1].ints()?;
    require(SymInt::from(strides.len() as i64).eq(base.dim() as i64), || {
        format!(
            "`stride` {} must have an element for each of the sizes {}",
            dims_text(strides),
            dims_text(base.sizes())
        )
    })?;
    // A tensor without elements may be declared with any strides, but has none that are negative.
    let is_empty = base.sizes().iter().any(|n| n.as_i64() == Some(0));
    let valid = |s: &SymInt| match s.as_i64() {
        Some(..0) if is_empty => SymInt::from(0),
        _ => *s,
    };
    Ok(smallvec![
        fresh(base, base.sizes().into(), base.dtype())
            .with_strides(strides.iter().map(valid).collect())
    ])
}

fn barrier_metas(args: &[Value]) -> Result<Metas> {
    let base = args[0].tensor()?;
    Ok(smallvec![fresh(base, base.sizes().into(), base.dtype())])
}

/// The integers of a region. They are concrete in every run.
fn concrete_ints(v: &Value) -> Result<SmallVec<[i64; 6]>> {
    let numbers = v.ints()?.iter().map(|i| i.as_i64()).collect::<Option<_>>();
    numbers.ok_or_else(|| Error::value("a region must have static offset, sizes and strides"))
}

/// Checks that two regions are disjoint. A region is a list of an offset, sizes and strides.
fn disjoint(args: &[Value]) -> Result<Outputs> {
    let region = |v: &Value| -> Result<Concrete> {
        let numbers = concrete_ints(v)?;
        let Some((&offset, rest)) = numbers.split_first() else {
            return Err(Error::value("a region needs at least an offset"));
        };
        let (sizes, strides) = rest.split_at(rest.len() / 2);
        Ok(Concrete { sizes: sizes.into(), strides: strides.into(), offset, width: 1 })
    };
    if may_overlap(&region(&args[0])?, &region(&args[1])?) {
        return Err(AccessError::MutatedOverlap {
            first: args[2].str()?.into(),
            second: args[3].str()?.into(),
        }
        .into());
    }
    Ok(Outputs::new())
}

/// Checks that no two indices of these sizes and strides address the same element.
fn injective(args: &[Value]) -> Result<Outputs> {
    let (sizes, strides) = (concrete_ints(&args[0])?, concrete_ints(&args[1])?);
    let at = Concrete { sizes, strides, offset: 0, width: 1 };
    if may_self_overlap(&at) {
        return Err(AccessError::SelfOverlap {
            arg: args[2].str()?.into(),
            sizes: at.sizes.to_vec(),
            strides: at.strides.to_vec(),
        }
        .into());
    }
    Ok(Outputs::new())
}

table! {
    /// The operators of functional graphs.
    static TABLE = {
        schemas::VIEW => {
            role: MovesElements,
            lowering: Lowering::Compute(Compute {
                class: Class::Copy,
                strides: Strides::FromOperands,
                metas: |_, a| view_metas(a),
                how: How::Loops(|cx| copy_of(cx, viewed)),
            }),
            vjp: Derivative::Refused("it is an operator of functional graphs"),
        },
        schemas::STRIDED => {
            role: General,
            lowering: Lowering::Compute(Compute {
                class: Class::Copy,
                strides: Strides::FromOperands,
                metas: |_, a| strided_metas(a),
                how: COPY,
            }),
            vjp: Derivative::Refused("it is an operator of functional graphs"),
        },
        schemas::BARRIER => {
            role: General,
            lowering: Lowering::Compute(Compute {
                class: Class::Copy,
                strides: Strides::FromOperands,
                metas: |_, a| barrier_metas(a),
                how: COPY,
            }),
            vjp: Derivative::Refused("it is an operator of functional graphs"),
        },
        schemas::DISJOINT => {
            role: General,
            lowering: Lowering::Dynamic {
                observes_strides: true,
                fake: |_, _| Ok(Outputs::new()),
                run: disjoint,
            },
            vjp: Derivative::Refused("it is an operator of functional graphs"),
        },
        schemas::INJECTIVE => {
            role: General,
            lowering: Lowering::Dynamic {
                observes_strides: true,
                fake: |_, _| Ok(Outputs::new()),
                run: injective,
            },
            vjp: Derivative::Refused("it is an operator of functional graphs"),
        },
        schemas::SCATTER => {
            role: General,
            lowering: Lowering::Compute(Compute {
                class: Class::Copy,
                strides: Strides::FromOperands,
                metas: |_, a| scatter_metas(a),
                how: How::Host(scatter),
            }),
            vjp: Derivative::Refused("it is an operator of functional graphs"),
        },
    }
}
