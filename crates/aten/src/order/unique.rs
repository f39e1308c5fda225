//! `unique` and its relatives: distinct elements or slices, the group of each, and the size of each
//! group. NaN is distinct from NaN.
//!
//! The items are sorted, and equal neighbours form a group: O(n log n) comparisons. Results are in
//! ascending order even if `sorted` is false, for which PyTorch specifies no order.

use super::{Keys, Lines, group_count, store_integers, take};
use maquette_ir::DType;
use maquette_ir::sym::SymInt;
use maquette_ir::typing::contiguous_strides;
use maquette_ops::operator::Derivative;
use maquette_ops::operator::dims::fresh;
use maquette_ops::operator::lowering::{Lowering, Metas};
use maquette_ops::operator::wrap_dim;
use maquette_ops::operator::{dims_text, table};
use maquette_ops::{Dims, Error, Meta, Outputs, Result, Tensor, Value};
use smallvec::smallvec;

/// The outputs that a call requests.
#[derive(Clone, Copy)]
struct Request {
    /// The dimension whose slices are compared. If `None`, elements are compared.
    dim: Option<usize>,
    /// Compare only neighbours, in the given order.
    consecutive: bool,
    inverse: bool,
    /// Whether counts are requested, for operators that return them.
    counts: Option<bool>,
}

impl Request {
    fn elements(consecutive: bool, inverse: &Value, counts: Option<&Value>) -> Result<Request> {
        Ok(Request {
            dim: None,
            consecutive,
            inverse: inverse.bool()?,
            counts: counts.map(Value::bool).transpose()?,
        })
    }

    /// Operators on slices return all outputs, whatever the call requests.
    fn slices(x: &Tensor, dim: &Value, consecutive: bool) -> Result<Request> {
        let dim = dim.int_i64()?;
        if x.dim() == 0 {
            return Err(Error::value(format!("`dim` is {dim}, but a 0-d tensor has no slices")));
        }
        let d = wrap_dim(dim, x.dim())?;
        if x.sizes().iter().enumerate().any(|(i, n)| i != d && n.as_i64() == Some(0)) {
            return Err(Error::value(format!(
                "only dimension `dim` {d} may be empty, found sizes {}",
                dims_text(x.sizes())
            )));
        }
        Ok(Request { dim: Some(d), consecutive, inverse: true, counts: Some(true) })
    }

    /// `unique_consecutive`. As in PyTorch, along dimension 0 of a vector it compares elements.
    fn neighbours(args: &[Value]) -> Result<Request> {
        let x = args[0].tensor()?;
        match args[3].opt(Value::int_i64)? {
            None => Request::elements(true, &args[1], Some(&args[2])),
            Some(0) if x.dim() == 1 => Request::elements(true, &args[1], Some(&args[2])),
            Some(_) => Request::slices(x, &args[3], true),
        }
    }

    /// The number of elements or slices.
    fn extent(&self, x: &Tensor) -> SymInt {
        self.dim.and_then(|d| x.sizes().get(d).copied()).unwrap_or(x.numel())
    }

    /// The metadata of the outputs for `n` distinct items.
    fn metas(&self, x: &Tensor, n: SymInt) -> Metas {
        let vector = |n: SymInt| fresh(x, smallvec![n], DType::I64);
        let (values, inverse) = match self.dim {
            None => (fresh(x, smallvec![n], x.dtype()), fresh(x, x.sizes().into(), DType::I64)),
            Some(d) => (slices_meta(x, d, n), vector(self.extent(x))),
        };
        let mut out: Metas =
            smallvec![values, if self.inverse { inverse } else { vector(0.into()) }];
        out.extend(self.counts.map(|given| vector(if given { n } else { 0.into() })));
        out
    }

    fn run(&self, x: &Tensor) -> Result<Outputs> {
        let (groups, lines) = self.groups(x)?;
        let outs: Vec<Tensor> = self
            .metas(x, groups.first.len().into())
            .into_iter()
            .map(Tensor::allocate)
            .collect::<Result<_>>()?;
        let inner = lines.step;
        let outer = if groups.first.is_empty() { 0 } else { lines.count / inner.max(1) };
        let at: Vec<usize> = (0..outer)
            .flat_map(|o| {
                groups.first.iter().flat_map(move |g| (0..inner).map(move |i| (o, *g, i)))
            })
            .map(|(o, g, i)| (o * lines.len + g) * inner + i)
            .collect();
        take(x, &at, &outs[0])?;
        for (out, values) in outs[1..].iter().zip([&groups.inverse, &groups.counts]) {
            store_integers(out, values)?;
        }
        Ok(outs.into_iter().map(Value::Tensor).collect())
    }

    /// The groups of equal items, and the lines that make up the slices.
    fn groups(&self, x: &Tensor) -> Result<(Groups, Lines)> {
        let keys = Keys::of(x)?;
        let lines = match self.dim {
            Some(d) => Lines::of(x, d)?,
            None => Lines::flat(x)?,
        };
        let mut order: Vec<usize> = (0..lines.len).collect();
        let pairs = |a: usize, b: usize| {
            (0..lines.count).map({
                let lines = &lines;
                move |l| (lines.at(l, a), lines.at(l, b))
            })
        };
        if !self.consecutive {
            // The sort is stable, so that the first of equal slices represents its group.
            order.sort_by(|&a, &b| {
                pairs(a, b)
                    .map(|(a, b)| keys.all[a].cmp(&keys.all[b]))
                    .find(|o| o.is_ne())
                    .unwrap_or(std::cmp::Ordering::Equal)
            });
        }
        Ok((Groups::of(&order, |a, b| pairs(a, b).all(|(a, b)| keys.same(a, b))), lines))
    }
}

/// The metadata of `n` slices of `x` along `d`. As in PyTorch, dimension `d` is outermost in
/// memory.
fn slices_meta(x: &Tensor, d: usize, n: SymInt) -> Meta {
    let mut sizes: Dims = x.sizes().into();
    sizes.remove(d);
    sizes.insert(0, n);
    let mut strides = contiguous_strides(&sizes);
    for dims in [&mut sizes, &mut strides] {
        let moved = dims.remove(0);
        dims.insert(d, moved);
    }
    fresh(x, sizes, x.dtype()).with_strides(strides)
}

/// Groups of equal items.
struct Groups {
    /// The first item of each group.
    first: Vec<usize>,
    /// The group of each item.
    inverse: Vec<i64>,
    counts: Vec<i64>,
}

impl Groups {
    fn of(order: &[usize], same: impl Fn(usize, usize) -> bool) -> Groups {
        let mut groups =
            Groups { first: Vec::new(), inverse: vec![0; order.len()], counts: Vec::new() };
        for run in order.chunk_by(|&a, &b| same(a, b)) {
            run.iter().for_each(|&i| groups.inverse[i] = groups.first.len() as i64);
            groups.first.extend(run.first());
            groups.counts.push(run.len() as i64);
        }
        groups
    }
}

/// A table entry for a request.
macro_rules! distinct {
    (|$a:ident| $request:expr) => {
        Lowering::Dynamic {
            observes_strides: true,
            fake: |cx, $a| {
                let (x, request) = ($a[0].tensor()?, $request?);
                let n = group_count(cx, request.extent(x))?;
                Ok(request
                    .metas(x, n)
                    .into_iter()
                    .map(|m| Value::Tensor(Tensor::fake_of(m)))
                    .collect())
            },
            run: |$a| $request?.run($a[0].tensor()?),
        }
    };
}

table! {
    /// Distinct elements and slices.
    static TABLE = {
        "aten::_unique(Tensor self, bool sorted=True, \
            bool return_inverse=False) -> (Tensor, Tensor)" => {
            role: General,
            lowering: distinct!(|a| Request::elements(false, &a[2], None)),
            vjp: Derivative::Refused("PyTorch has none"),
        },
        "aten::_unique2(Tensor self, bool sorted=True, bool return_inverse=False, \
            bool return_counts=False) -> (Tensor, Tensor, Tensor)" => {
            role: General,
            lowering: distinct!(|a| Request::elements(false, &a[2], Some(&a[3]))),
            vjp: Derivative::Refused("PyTorch has none"),
        },
        "aten::unique_dim(Tensor self, int dim, bool sorted=True, \
            bool return_inverse=False, bool return_counts=False) -> (Tensor, Tensor, Tensor)" => {
            role: General,
            lowering: distinct!(|a| Request::slices(a[0].tensor()?, &a[1], false)),
            vjp: Derivative::Refused("PyTorch has none"),
        },
        "aten::unique_dim_consecutive(Tensor self, int dim, bool return_inverse=False, \
            bool return_counts=False) -> (Tensor, Tensor, Tensor)" => {
            role: General,
            lowering: distinct!(|a| Request::slices(a[0].tensor()?, &a[1], true)),
            vjp: Derivative::Refused("PyTorch has none"),
        },
        "aten::unique_consecutive(Tensor self, bool return_inverse=False, \
            bool return_counts=False, int? dim=None) -> (Tensor, Tensor, Tensor)" => {
            role: General,
            lowering: distinct!(|a| Request::neighbours(a)),
            vjp: Derivative::Refused("PyTorch has none"),
        },
    }
}
