//! Covariances (`cov`), correlations (`corrcoef`), and `nanmean`.

use super::{refuse_bool, require_float};
use maquette_ir::DType;
use maquette_ir::sym::SymInt;
use maquette_ir::typing::promote_pair;
use maquette_ops::operator::dims::{done, fresh, is_one};
use maquette_ops::operator::lowering::{Class, Compute, How, Lowering, Metas, Strides};
use maquette_ops::operator::require_equal;
use maquette_ops::operator::{dims_text, host, table};
use maquette_ops::{Dims, Error, Outputs, Result, Tensor, Value};
use smallvec::smallvec;

/// A sample: variables in rows, observations in columns.
struct Sample<'a> {
    x: &'a Tensor,
    correction: f64,
    /// The frequency of each observation, and its importance.
    weights: [Option<&'a Tensor>; 2],
}

impl<'a> Sample<'a> {
    /// From the arguments `self, *, correction, fweights, aweights`, or `self` alone.
    fn of(args: &'a [Value]) -> Result<Sample<'a>> {
        let x = args[0].tensor()?;
        refuse_bool("self", &args[0])?;
        if x.dim() > 2 {
            return Err(Error::value(format!(
                "argument `self` must have at most 2 dimensions, found sizes {}",
                dims_text(x.sizes())
            )));
        }
        let observations = x.sizes().last().copied().unwrap_or(1.into());
        let mut weights = [None, None];
        for (i, name, float) in [(0, "fweights", false), (1, "aweights", true)] {
            let Some(w) = args.get(i + 2).map_or(Ok(None), Value::opt_tensor)? else { continue };
            let kind = if float { "floats" } else { "integers" };
            let found = || format!("{}{}", w.dtype(), dims_text(w.sizes()));
            if w.dtype().is_float() != float || w.dtype() == DType::Bool || w.dim() > 1 {
                return Err(Error::value(format!(
                    "argument `{name}` must hold {kind} in at most 1 dimension, found {}",
                    found()
                )));
            }
            let mismatch = || {
                Error::value(format!(
                    "argument `{name}` must hold as many weights as there are observations, \
                        {observations}; found {}",
                    found()
                ))
            };
            require_equal(observations, w.numel(), &mismatch)?;
            weights[i] = Some(w);
        }
        Ok(Sample { x, correction: args.get(1).map_or(Ok(1), Value::int_i64)? as f64, weights })
    }

    /// A square matrix, or a 0-d tensor for one variable.
    fn metas(&self) -> Result<Metas> {
        let own = if self.x.dtype().is_float() { self.x.dtype() } else { DType::F32 };
        let dtype = match self.weights[1] {
            Some(w) if self.x.dtype().is_float() => promote_pair(own, w.dtype()),
            Some(w) => w.dtype(),
            None => own,
        };
        let n = if self.x.dim() == 2 { self.x.sizes()[0] } else { SymInt::from(1) };
        let sizes: Dims = if is_one(n)? { smallvec![] } else { smallvec![n, n] };
        Ok(smallvec![fresh(self.x, sizes, dtype)])
    }

    /// The covariance matrix of the weighted observations, in row-major order.
    fn covariances(&self) -> Result<Vec<f64>> {
        let values = host::reals(self.x)?;
        let sizes = host::sizes(self.x)?;
        let n = sizes.last().copied().unwrap_or(1);
        let rows = if sizes.len() == 2 { sizes[0] } else { 1 };
        let mut weight = host::filled(1.0, n)?;
        let mut importance = None;
        for (w, name) in self.weights.iter().zip(["fweights", "aweights"]) {
            let Some(w) = w.map(host::reals).transpose()? else { continue };
            if let Some(bad) = w.iter().find(|w| **w < 0.0) {
                return Err(Error::value(format!(
                    "argument `{name}` must hold no negative weights, found {bad}"
                )));
            }
            weight.iter_mut().zip(&w).for_each(|(a, b)| *a *= b);
            importance = Some(w).filter(|_| name == "aweights");
        }
        let total: f64 = weight.iter().sum();
        let lost = match importance.filter(|_| self.correction != 0.0) {
            Some(a) => {
                self.correction * weight.iter().zip(&a).map(|(w, a)| w * a).sum::<f64>() / total
            }
            None => self.correction,
        };
        // As in PyTorch, a negative divisor counts as 0.
        let divisor = if total - lost <= 0.0 { 0.0 } else { total - lost };
        let centred: Vec<Vec<f64>> = (0..rows)
            .map(|r| {
                let row = &values[r * n..(r + 1) * n];
                let mean = row.iter().zip(&weight).map(|(x, w)| x * w).sum::<f64>() / total;
                row.iter().map(|x| x - mean).collect()
            })
            .collect();
        let product = |a: &[f64], b: &[f64]| {
            a.iter().zip(b).zip(&weight).map(|((a, b), w)| a * b * w).sum::<f64>() / divisor
        };
        Ok(centred
            .iter()
            .flat_map(|a| centred.iter().map(move |b| (a, b)))
            .map(|(a, b)| product(a, b))
            .collect())
    }

    /// The covariances divided by the standard deviations of both variables.
    fn correlations(&self) -> Result<Vec<f64>> {
        let mut c = self.covariances()?;
        let n = if self.x.dim() == 2 { host::sizes(self.x)?[0] } else { 1 };
        let spread: Vec<f64> = (0..n).map(|i| c[i * n + i].sqrt()).collect();
        for (i, c) in c.iter_mut().enumerate() {
            // `clamp` keeps NaN.
            *c = (*c / spread[i / n] / spread[i % n]).clamp(-1.0, 1.0);
        }
        Ok(c)
    }
}

/// The arguments are `self, dim, keepdim, *, dtype`.
fn nanmean(a: &[Value]) -> Result<Outputs> {
    let x = a[0].tensor()?;
    require_float("self", x)?;
    let sum = maquette_ops::call("aten::nansum", a.iter().cloned().collect())?;
    let numbers = x.isnan().logical_not();
    let count = maquette_ops::call(
        "aten::sum.dim_IntList",
        maquette_ops::args![numbers, a[1].clone(), a[2].clone()],
    )?;
    done(sum[0].tensor()?.div(count[0].tensor()?))
}

table! {
    /// Covariances, correlations, and means without NaN.
    static TABLE = {
        "aten::cov(Tensor self, *, int correction=1, Tensor? fweights=None, \
            Tensor? aweights=None) -> Tensor" => {
            role: General,
            lowering: Lowering::Compute(Compute {
                class: Class::Reduce,
                strides: Strides::RowMajor,
                metas: |_, a| Sample::of(a)?.metas(),
                how: How::Host(|a, out| host::store_reals(&out[0], &Sample::of(a)?.covariances()?)),
            }),
            vjp: crate::grad::COVARIANCE,
        },
        "aten::corrcoef(Tensor self) -> Tensor" => {
            role: General,
            lowering: Lowering::Compute(Compute {
                class: Class::Reduce,
                strides: Strides::RowMajor,
                metas: |_, a| Sample::of(a)?.metas(),
                how: How::Host(|a, out| {
                    host::store_reals(&out[0], &Sample::of(a)?.correlations()?)
                }),
            }),
            vjp: crate::grad::CORRELATION,
        },
        "aten::nanmean(Tensor self, int[1]? dim=None, bool keepdim=False, *, \
            ScalarType? dtype=None) -> Tensor" => {
            role: General,
            lowering: Lowering::Composite(nanmean),
        },
    }
}
