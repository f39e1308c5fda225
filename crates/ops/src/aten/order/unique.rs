//! Distinct elements and slices: their values, where each element went, and how often each occurs. NaN is distinct from NaN.
//!
//! Results are in ascending order, also where `sorted` is false and PyTorch leaves the order open.

use super::super::dims::{done, fresh};
use super::super::lower::{Class, Compute, Lowering, Metas};
use super::super::{host, table};
use super::{Keys, Lines, group_count, integers, store_integers, take};
use crate::eager::{input, output};
use crate::error::{Error, Result};
use crate::meta::{Dims, Meta};
use crate::shape::wrap_dim;
use crate::tensor::{Tensor, dims_text};
use crate::value::{Outputs, Value};
use maquette_ir::sym::SymInt;
use maquette_ir::typing::contiguous_strides;
use maquette_ir::{DType, Scalar};
use maquette_kernels as kernels;
use smallvec::smallvec;

/// What an operator of this family is asked for.
#[derive(Clone, Copy)]
struct Request {
    /// The dimension whose slices are compared; elements where there is none.
    dim: Option<usize>,
    /// Only neighbours are compared, in the order they have.
    consecutive: bool,
    inverse: bool,
    /// The counts, for operators that have them.
    counts: Option<bool>,
}

impl Request {
    fn elements(consecutive: bool, inverse: &Value, counts: Option<&Value>) -> Result<Request> {
        Ok(Request { dim: None, consecutive, inverse: inverse.bool()?, counts: counts.map(Value::bool).transpose()? })
    }

    /// Operators on slices return everything, whatever is asked for.
    fn slices(x: &Tensor, dim: &Value, consecutive: bool) -> Result<Request> {
        let dim = dim.int_i64()?;
        if x.dim() == 0 {
            return Err(Error::value(format!("`dim` is {dim}, and a tensor of no dimensions has no slices")));
        }
        let d = wrap_dim(dim, x.dim())?;
        if x.sizes().iter().enumerate().any(|(i, n)| i != d && n.as_i64() == Some(0)) {
            return Err(Error::value(format!("no dimension but `dim` {d} may be empty, found sizes {}", dims_text(x.sizes()))));
        }
        Ok(Request { dim: Some(d), consecutive, inverse: true, counts: Some(true) })
    }

    /// Equal neighbours, of slices where there is a dimension; that of a vector at dimension 0 are elements, as in PyTorch.
    fn neighbours(a: &[Value]) -> Result<Request> {
        let x = a[0].tensor()?;
        match a[3].opt(Value::int_i64)? {
            None => Request::elements(true, &a[1], Some(&a[2])),
            Some(0) if x.dim() == 1 => Request::elements(true, &a[1], Some(&a[2])),
            Some(_) => Request::slices(x, &a[3], true),
        }
    }

    /// How many elements or slices there are.
    fn extent(&self, x: &Tensor) -> SymInt {
        self.dim.and_then(|d| x.sizes().get(d).copied()).unwrap_or(x.numel())
    }

    /// The metadata of the outputs, of which `n` are distinct.
    fn metas(&self, x: &Tensor, n: SymInt) -> Metas {
        let vector = |n: SymInt| fresh(x, smallvec![n], DType::I64);
        let (values, inverse) = match self.dim {
            None => (fresh(x, smallvec![n], x.dtype()), fresh(x, x.sizes().into(), DType::I64)),
            Some(d) => (slices_meta(x, d, n), vector(self.extent(x))),
        };
        let mut out: Metas = smallvec![values, if self.inverse { inverse } else { vector(0.into()) }];
        out.extend(self.counts.map(|given| vector(if given { n } else { 0.into() })));
        out
    }

    fn run(&self, x: &Tensor) -> Result<Outputs> {
        let (groups, lines) = self.groups(x)?;
        let outs: Vec<Tensor> = self.metas(x, groups.first.len().into()).into_iter().map(Tensor::allocate).collect::<Result<_>>()?;
        let inner = lines.step;
        let outer = lines.count / inner.max(1);
        let at: Vec<usize> = (0..outer)
            .flat_map(|o| groups.first.iter().flat_map(move |g| (0..inner).map(move |i| (o, *g, i))))
            .map(|(o, g, i)| (o * lines.len + g) * inner + i)
            .collect();
        take(x, &at, &outs[0])?;
        for (out, values) in outs[1..].iter().zip([&groups.inverse, &groups.counts]) {
            store_integers(out, values)?;
        }
        Ok(outs.into_iter().map(Value::Tensor).collect())
    }

    /// The groups of equal elements or slices, and the lines that slices are of.
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
            // stable, so that the first of equal slices leads its group
            order.sort_by(|&a, &b| {
                pairs(a, b).map(|(a, b)| keys.all[a].cmp(&keys.all[b])).find(|o| o.is_ne()).unwrap_or(std::cmp::Ordering::Equal)
            });
        }
        Ok((Groups::of(&order, |a, b| pairs(a, b).all(|(a, b)| keys.same(a, b))), lines))
    }
}

/// Slices of `x` along `d`, of which there are `n`; in memory that dimension is outermost, as in PyTorch.
fn slices_meta(x: &Tensor, d: usize, n: SymInt) -> Meta {
    let mut sizes: Dims = x.sizes().into();
    sizes.remove(d);
    sizes.insert(0, n);
    let mut strides = contiguous_strides(&sizes);
    for dims in [&mut sizes, &mut strides] {
        let moved = dims.remove(0);
        dims.insert(d, moved);
    }
    Meta { strides, ..fresh(x, sizes, x.dtype()) }
}

/// Runs of equal items.
struct Groups {
    /// The first item of each.
    first: Vec<usize>,
    /// Each item's group.
    inverse: Vec<i64>,
    counts: Vec<i64>,
}

impl Groups {
    fn of(order: &[usize], same: impl Fn(usize, usize) -> bool) -> Groups {
        let mut groups = Groups { first: Vec::new(), inverse: vec![0; order.len()], counts: Vec::new() };
        for run in order.chunk_by(|&a, &b| same(a, b)) {
            run.iter().for_each(|&i| groups.inverse[i] = groups.first.len() as i64);
            groups.first.extend(run.first());
            groups.counts.push(run.len() as i64);
        }
        groups
    }
}

/// An entry of the table by its request.
macro_rules! distinct {
    (|$a:ident| $request:expr) => {
        Lowering::Dynamic {
            fake: |cx, $a| {
                let (x, request) = ($a[0].tensor()?, $request?);
                let n = group_count(cx, request.extent(x))?;
                Ok(request.metas(x, n).into_iter().map(|m| Value::Tensor(Tensor::fake_of(m))).collect())
            },
            run: |$a| $request?.run($a[0].tensor()?),
        }
    };
}

fn nonzero_static_meta(args: &[Value]) -> Result<Metas> {
    let (x, size) = (args[0].tensor()?, args[1].int()?);
    super::super::dims::require(size.ge(0), || format!("`size` must not be negative, found {size}"))?;
    Ok(smallvec![fresh(x, smallvec![size, x.dim().into()], DType::I64)])
}

/// The first positions of nonzero elements, then rows of `fill_value`.
fn nonzero_static(args: &[Value], out: &Tensor) -> Result<()> {
    let x = args[0].tensor()?;
    let (rank, wanted) = (x.dim(), host::sizes(out)?.iter().product::<usize>());
    let sizes = host::sizes(x)?;
    let set = Keys::of(x)?.all.into_iter().enumerate().filter(|(_, k)| *k != 0).map(|(i, _)| i);
    let mut rows = Vec::with_capacity(wanted);
    for flat in set.take(wanted / rank.max(1)) {
        let (start, mut rest) = (rows.len(), flat);
        for n in sizes.iter().rev() {
            rows.push((rest % n) as i64);
            rest /= n;
        }
        rows[start..].reverse();
    }
    rows.resize(wanted, args[2].int_i64()?);
    store_integers(out, &rows)
}

/// How many classes one-hot rows are of: as given, or as the data have.
fn classes(x: &Tensor, given: &Value) -> Result<Option<i64>> {
    if x.dtype() != DType::I64 {
        return Err(Error::value(format!("argument `self` must have dtype i64, found {}{}", x.dtype(), dims_text(x.sizes()))));
    }
    match given.int_i64()? {
        -1 => Ok(None),
        n if n >= 1 => Ok(Some(n)),
        n => Err(Error::value(format!("`num_classes` must be positive, or -1 to take it from the data; found {n}"))),
    }
}

fn one_hot_meta(x: &Tensor, n: SymInt) -> Meta {
    fresh(x, x.sizes().iter().copied().chain([n]).collect(), DType::I64)
}

fn one_hot(args: &[Value]) -> Result<Outputs> {
    let x = args[0].tensor()?;
    let values = integers(x)?;
    let n = match (classes(x, &args[1])?, values.iter().max()) {
        (Some(n), _) => n,
        (None, Some(&greatest)) => greatest.max(0).checked_add(1).ok_or_else(|| Error::value("`self` holds the greatest i64"))?,
        (None, None) => return Err(Error::value("`num_classes` cannot be taken from a tensor without elements")),
    };
    if let Some(bad) = values.iter().find(|v| !(0..n).contains(*v)) {
        return Err(Error::value(format!("argument `self` must hold classes from 0 to {}, found {bad}", n - 1)));
    }
    let out = Tensor::allocate(one_hot_meta(x, n.into()))?;
    if !values.is_empty() {
        let index = x.view_of(super::super::views::unsqueeze(x.meta(), -1)?)?;
        let one = kernels::Source::Value(Scalar::Int(1));
        kernels::scatter(&mut output(&out)?, x.dim(), &input(&index)?, &one, kernels::ScatterOp::Replace)?;
    }
    Ok(smallvec![Value::Tensor(out)])
}

table! {
    /// See the module.
    pub(super) static TABLE = {
        "aten::_unique(Tensor self, bool sorted=True, bool return_inverse=False) -> (Tensor, Tensor)" =>
            distinct!(|a| Request::elements(false, &a[2], None)),
        "aten::_unique2(Tensor self, bool sorted=True, bool return_inverse=False, bool return_counts=False) -> (Tensor, Tensor, Tensor)" =>
            distinct!(|a| Request::elements(false, &a[2], Some(&a[3]))),
        "aten::unique_dim(Tensor self, int dim, bool sorted=True, bool return_inverse=False, bool return_counts=False) -> (Tensor, Tensor, Tensor)" =>
            distinct!(|a| Request::slices(a[0].tensor()?, &a[1], false)),
        "aten::unique_dim_consecutive(Tensor self, int dim, bool return_inverse=False, bool return_counts=False) -> (Tensor, Tensor, Tensor)" =>
            distinct!(|a| Request::slices(a[0].tensor()?, &a[1], true)),
        "aten::unique_consecutive(Tensor self, bool return_inverse=False, bool return_counts=False, int? dim=None) -> (Tensor, Tensor, Tensor)" =>
            distinct!(|a| Request::neighbours(a)),
        "aten::nonzero_static(Tensor self, *, SymInt size, int fill_value=-1) -> Tensor" => Lowering::Compute(Compute {
            class: Class::Gather,
            metas: |_, a| nonzero_static_meta(a),
            run: |a, out| nonzero_static(a, &out[0]),
        }),
        "aten::argwhere(Tensor self) -> Tensor" => Lowering::Composite(|a| done(a[0].tensor()?.nonzero())),
        "aten::one_hot(Tensor self, int num_classes=-1) -> Tensor" => Lowering::Dynamic {
            fake: |cx, a| {
                let x = a[0].tensor()?;
                let n = match classes(x, &a[1])? {
                    Some(n) => n.into(),
                    None => cx.new_dynamic_size_in(1, i64::MAX)?,
                };
                Ok(smallvec![Value::Tensor(Tensor::fake_of(one_hot_meta(x, n)))])
            },
            run: one_hot,
        },
    }
}
