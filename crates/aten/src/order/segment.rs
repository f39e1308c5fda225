//! `segment_reduce`: reductions of consecutive segments of a dimension. Lengths or offsets give the
//! segments.

use super::{integers, require_float};
use maquette_ir::Scalar;
use maquette_ops::operator::dims::{fresh, require, require_index};
use maquette_ops::operator::lowering::{Class, Compute, How, Lowering, Metas, Strides};
use maquette_ops::operator::{dims_text, host, table};
use maquette_ops::operator::{require_same, wrap_dim};
use maquette_ops::{Dims, Error, Result, Tensor, Value};
use smallvec::smallvec;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fold {
    Sum,
    Mean,
    Max,
    Min,
    Prod,
}

impl Fold {
    fn named(name: &str) -> Result<Fold> {
        Ok(match name {
            "sum" => Fold::Sum,
            "mean" => Fold::Mean,
            "max" | "amax" => Fold::Max,
            "min" | "amin" => Fold::Min,
            "prod" => Fold::Prod,
            _ => {
                return Err(Error::value(format!(
                    "`reduce` must be \"sum\", \"mean\", \"max\", \"min\" or \"prod\", found \
                        {name:?}"
                )));
            }
        })
    }

    fn start(self) -> f64 {
        match self {
            Fold::Sum | Fold::Mean => 0.0,
            Fold::Max => f64::NEG_INFINITY,
            Fold::Min => f64::INFINITY,
            Fold::Prod => 1.0,
        }
    }

    fn step(self, a: f64, x: f64) -> f64 {
        match self {
            Fold::Sum | Fold::Mean => a + x,
            Fold::Prod => a * x,
            _ if a.is_nan() || x.is_nan() => f64::NAN,
            Fold::Max => a.max(x),
            Fold::Min => a.min(x),
        }
    }

    /// The result for `n` elements. The mean of no elements is NaN, unless there is an initial
    /// value.
    fn end(self, a: f64, n: usize, initial: bool) -> f64 {
        match self {
            Fold::Mean if n > 0 => a / n as f64,
            Fold::Mean if !initial => f64::NAN,
            _ => a,
        }
    }
}

/// A call. The arguments are `data, reduce, *, lengths, indices, offsets, axis, unsafe, initial`.
struct Segments<'a> {
    data: &'a Tensor,
    fold: Fold,
    /// The lengths of the segments, or their offsets. If both are given, the offsets apply.
    bounds: &'a Tensor,
    offsets: bool,
    axis: usize,
    initial: Option<f64>,
    /// Whether the lengths must add up to the size of the dimension.
    exact: bool,
}

impl<'a> Segments<'a> {
    /// Reads and checks the arguments.
    fn of(args: &'a [Value]) -> Result<Segments<'a>> {
        let data = args[0].tensor()?;
        require_float("data", data)?;
        if args[3].opt_tensor()?.is_some() {
            return Err(Error::value("`indices` is not supported; give `lengths` or `offsets`"));
        }
        let (lengths, offsets) = (args[2].opt_tensor()?, args[4].opt_tensor()?);
        let bounds = offsets
            .or(lengths)
            .ok_or_else(|| Error::value("`lengths` or `offsets` must be given"))?;
        let name = if offsets.is_some() { "offsets" } else { "lengths" };
        require_index(name, bounds)?;
        let axis = wrap_dim(args[5].int_i64()?, data.dim())?;
        if data.dim() == 0 || axis + 1 != bounds.dim() {
            let (found, of) = (dims_text(bounds.sizes()), dims_text(data.sizes()));
            return Err(Error::value(format!(
                "`axis` {axis} of `data` {of} must be the last dimension of `{name}` {found}"
            )));
        }
        require_same(&data.sizes()[..axis], &bounds.sizes()[..axis], || {
            format!("the dimensions of `{name}` before `axis` must have")
        })?;
        Ok(Segments {
            data,
            fold: Fold::named(args[1].str()?)?,
            bounds,
            offsets: offsets.is_some(),
            axis,
            initial: args[7].opt(Value::scalar)?.map(Scalar::to_f64),
            exact: !args[6].bool()?,
        })
    }

    fn metas(&self) -> Result<Metas> {
        let mut sizes: Dims = self.data.sizes().into();
        let n = self.bounds.sizes()[self.axis];
        if self.offsets {
            require(n.ge(1), || {
                format!(
                    "`offsets` must hold at least one position in its last dimension, found {n}"
                )
            })?;
        }
        sizes[self.axis] = if self.offsets { n - 1 } else { n };
        Ok(smallvec![fresh(self.data, sizes, self.data.dtype())])
    }

    /// The start and end of each segment of one line.
    fn spans(&self, bounds: &[i64], extent: usize) -> Result<Vec<(usize, usize)>> {
        let mut spans = Vec::with_capacity(bounds.len());
        let mut push = |start: i64, end: i64| match (usize::try_from(start), usize::try_from(end)) {
            (Ok(s), Ok(e)) if s <= e && e <= extent => {
                spans.push((s, e));
                Ok(())
            }
            _ => Err(Error::value(format!(
                "a segment from {start} to {end} exceeds the {extent} elements of `axis` {}",
                self.axis
            ))),
        };
        if self.offsets {
            bounds.windows(2).try_for_each(|w| push(w[0], w[1]))?;
            return Ok(spans);
        }
        let mut end = 0i64;
        for &n in bounds {
            let start = end;
            end = end.saturating_add(n);
            push(start, end)?;
        }
        if self.exact && end != extent as i64 {
            return Err(Error::value(format!(
                "`lengths` must add up to the {extent} elements of `axis` {}, found {end}",
                self.axis
            )));
        }
        Ok(spans)
    }

    fn run(&self, out: &Tensor) -> Result<()> {
        let (data, sizes) = (host::reals(self.data)?, host::sizes(self.data)?);
        let bounds = integers(self.bounds)?;
        let per_line = self.bounds.sizes()[self.axis].as_i64().map_or(0, |n| n as usize);
        let (extent, inner) = (sizes[self.axis], host::count(&sizes[self.axis + 1..]));
        let mut results = Vec::new();
        for line in 0..host::count(&sizes[..self.axis]) {
            let bounds = bounds.get(line * per_line..(line + 1) * per_line).unwrap_or_default();
            for (start, end) in self.spans(bounds, extent)? {
                results.extend((0..inner).map(|i| {
                    let elements = (start..end).map(|e| data[(line * extent + e) * inner + i]);
                    let total = elements.fold(self.initial.unwrap_or(self.fold.start()), |a, x| {
                        self.fold.step(a, x)
                    });
                    self.fold.end(total, end - start, self.initial.is_some())
                }));
            }
        }
        host::store_reals(out, &results)
    }
}

table! {
    /// Segment reductions.
    static TABLE = {
        "aten::segment_reduce(Tensor data, str reduce, *, Tensor? lengths=None, \
            Tensor? indices=None, Tensor? offsets=None, int axis=0, bool unsafe=False, \
            Scalar? initial=None) -> Tensor" => {
            role: General,
            lowering: Lowering::Compute(Compute {
                class: Class::Reduce,
                strides: Strides::RowMajor,
                metas: |_, a| Segments::of(a)?.metas(),
                how: How::Host(|a, o| Segments::of(a)?.run(&o[0])),
            }),
            vjp: crate::grad::SEGMENT_REDUCE,
        },
    }
}
