//! Real-tensor propagation: runs every call on copies of the samples beside the fake kernel, as
//! PyTorch's `fake_tensor_propagate_real_tensors` does.
//!
//! The real results give values to data-dependent symbols, so that branches on them can be decided;
//! they give metadata to operators without a fake kernel; and they check the fake kernels of all
//! others.
//!
//! Samples and captured tensors are cloned by storage, so that aliases stay aliases and the
//! originals do not change.

use crate::inputs::symbolic_strides;
use crate::record::unbound_symbols;
use maquette_invoke::metadata_check::{ExpectedMeta, NumberCheck, check_metadata};
use maquette_ir::sym::{Range, Scope, SymInt};
use maquette_ir::{Device, Loc};
use maquette_ops::internals::{self, MetaInternals, TensorInternals};
use maquette_ops::random::{self, Philox};
use maquette_ops::{
    Args, Dims, Error, FakeError, Op, Outputs, Result, RunError, StorageCloner, Tensor, TraceError,
    Value, mode,
};
use rustc_hash::FxHashMap;

/// The real tensors of a trace.
pub(crate) struct RealValues {
    cloner: StorageCloner,
    by_slot: FxHashMap<u32, Tensor>,
    /// Samples that do not begin at the start of their storages, each with its offset in bytes. A
    /// traced input has offset 0, so this offset is subtracted when metadata is compared.
    input_offsets: Vec<(Tensor, i64)>,
    /// The state of the random number generator for these calls, so that the program's own
    /// generator does not advance.
    random: Philox,
}

impl RealValues {
    pub(crate) fn new() -> RealValues {
        RealValues {
            cloner: StorageCloner::default(),
            by_slot: FxHashMap::default(),
            input_offsets: Vec::new(),
            random: random::state_also_in_traces(Device::Cpu),
        }
    }

    /// Clones a sample for its traced input.
    pub(crate) fn input(&mut self, index: usize, sample: &Tensor, traced: &Tensor) -> Result<()> {
        if sample.is_fake() {
            let tensor = sample.meta();
            let message = format!(
                "input {index} is a fake tensor {tensor}; `propagate_real` runs kernels, so every \
                    sample needs data"
            );
            return Err(TraceError::Input(message).into());
        }
        let copy = self.cloner.clone_of(sample)?;
        if let (Some(start), Some(0)) =
            (copy.meta().offset().as_i64().filter(|o| *o != 0), traced.meta().offset().as_i64())
        {
            self.input_offsets
                .push((copy.clone(), start.saturating_mul(copy.dtype().size() as i64)));
        }
        self.insert(traced, copy);
        Ok(())
    }

    /// Records the real tensor of a traced one.
    fn insert(&mut self, traced: &Tensor, real: Tensor) {
        if let Some(slot) = traced.slot() {
            self.by_slot.insert(slot.value, real);
        }
    }

    /// Makes a call on the real tensors.
    pub(crate) fn call(&mut self, op: Op, args: &Args, scope: &Scope, loc: Loc) -> Result<Outputs> {
        let args = args.iter().map(|v| self.real_value(v)).collect::<Result<Args>>()?;
        // a kernel may discard errors: it does the same in every run
        let call = || {
            random::apart_also_in_traces(&mut self.random, || {
                internals::without_modes(|| mode::on_behalf_of(loc, || op.call_at(args, loc)))
            })
        };
        scope.watch(call).0
    }

    /// An argument with real tensors and with the values that symbols have on the samples.
    fn real_value(&mut self, v: &Value) -> Result<Value> {
        let number = |i: &SymInt| {
            i.hint()
                .map(SymInt::from)
                .ok_or(TraceError::Internal("a size has no value for the samples"))
        };
        Ok(match v {
            Value::Int(i) => Value::Int(number(i)?),
            Value::Ints(l) => Value::Ints(l.iter().map(number).collect::<Result<_, _>>()?),
            other => other.map_tensors(&mut |t| match t.slot() {
                Some(slot) => {
                    let missing = TraceError::Internal("a traced tensor has no real tensor");
                    self.by_slot.get(&slot.value).cloned().ok_or_else(|| Error::from(missing))
                }
                None => self.cloner.clone_of(t),
            })?,
        })
    }

    /// Binds data-dependent symbols of the fake outputs to their real values, and checks the
    /// metadata of the fake outputs against the real ones.
    ///
    /// # Errors
    /// A fake output differs from the real one, or a value is outside its symbol's declared range.
    pub(crate) fn check_and_bind(
        &self,
        scope: &Scope,
        fake: &Outputs,
        real: &Outputs,
    ) -> Result<()> {
        bind(scope, fake, real)?;
        for (output, (f, r)) in fake.iter().zip(real).enumerate() {
            let mut differs = match (f, r) {
                (Value::Int(f), Value::Int(r)) if f.hint() != r.as_i64() => {
                    Some(("the value".to_owned(), f.to_string(), r.to_string()))
                }
                _ => None,
            };
            for (f, r) in f.tensors().zip(r.tensors()) {
                let width = r.dtype().size() as i64;
                let counts_from_input = |e: SymInt, found: i64| {
                    let Some(promised) = e.hint() else { return Ok(false) };
                    let start = found.saturating_sub(promised).saturating_mul(width);
                    let starts_there =
                        |(input, at): &(Tensor, i64)| *at == start && input.has_storage_of(r);
                    Ok(self.input_offsets.iter().any(starts_there))
                };
                let check = |e: SymInt, found| Ok(NumberCheck::of(e.hint(), found));
                let expected = ExpectedMeta::of(f.meta());
                let (found, _) = check_metadata(&expected, r, counts_from_input, check)?;
                differs = differs.or(found.map(|d| (d.what, d.expected, d.found)));
            }
            if let Some((what, expected, found)) = differs {
                return Err(FakeError::Mismatch { output, what, expected, found }.into());
            }
        }
        Ok(())
    }

    /// Records the real results of a call for the traced tensors that the program gets.
    pub(crate) fn insert_all(&mut self, traced: &Outputs, real: Outputs) {
        for (traced, real) in traced.iter().zip(&real) {
            traced.tensors().zip(real.tensors()).for_each(|(t, r)| self.insert(t, r.clone()));
        }
    }
}

/// The fake outputs of an operator without a fake kernel: with the ranks, dtypes and devices of the
/// real outputs, and with a fresh data-dependent symbol for each size, since one sample does not
/// show how sizes depend on the inputs. `None` if a result is a view, since its offset and strides
/// in its storage are not known either.
pub(crate) fn infer_outputs(
    op: Op,
    fake_args: &Args,
    real: &Outputs,
    scope: &Scope,
    loc: Loc,
) -> Option<Outputs> {
    let fresh = |range| scope.unbacked(range, op.name(), loc);
    let tensor = |t: &Tensor| -> Option<Tensor> {
        let sizes: Dims = t.sizes().iter().map(|_| fresh(Range { lo: 0, hi: i64::MAX })).collect();
        let strides = symbolic_strides(&t.meta().concrete()?, &sizes);
        Some(Tensor::fake_of(t.meta().with_dims(sizes, strides)))
    };
    let output = |(i, v): (usize, &Value)| match op.return_alias(i) {
        Some(arg) if op.mutates(arg) => fake_args.get(arg).cloned(),
        Some(_) => None,
        None => match v {
            Value::Int(_) => Some(Value::Int(fresh(Range::ALL))),
            Value::Ints(l) => Some(Value::Ints(l.iter().map(|_| fresh(Range::ALL)).collect())),
            v => v.map_tensors(&mut |t| tensor(t).ok_or(())).ok(),
        },
    };
    real.iter().enumerate().map(output).collect()
}

/// Gives the data-dependent symbols in fake outputs their real values.
fn bind(scope: &Scope, fake: &Outputs, real: &Outputs) -> Result<()> {
    for (output, (f, r)) in fake.iter().zip(real).enumerate() {
        let differs = |what: &str, expected: String, found: String| -> Result<()> {
            Err(FakeError::Mismatch { output, what: what.into(), expected, found }.into())
        };
        match (f, r) {
            (Value::Int(f), Value::Int(r)) => bind_int(scope, *f, *r)?,
            (Value::Ints(f), Value::Ints(r)) if f.len() == r.len() => {
                f.iter().zip(r).try_for_each(|(f, r)| bind_int(scope, *f, *r))?
            }
            (Value::List(f), Value::List(r)) if f.len() != r.len() => {
                differs("the length of the list", f.len().to_string(), r.len().to_string())?;
            }
            (f, r) if std::mem::discriminant(f) == std::mem::discriminant(r) => {}
            (f, r) => differs("it", f.kind().to_string(), r.kind().to_string())?,
        }
        for (f, r) in f.tensors().zip(r.tensors()).filter(|(f, r)| f.dim() == r.dim()) {
            f.sizes().iter().zip(r.sizes()).try_for_each(|(f, r)| bind_int(scope, *f, *r))?;
        }
    }
    Ok(())
}

/// Gives a data-dependent symbol its real value, and checks that the value is in its declared
/// range.
fn bind_int(scope: &Scope, fake: SymInt, real: SymInt) -> Result<()> {
    let (Some(value), None) = (real.as_i64(), fake.as_i64()) else { return Ok(()) };
    let e = scope.lower(fake)?;
    let outside = scope.with(|d| {
        let known = d.hints.keys().copied().collect();
        let (found, plain) = unbound_symbols(&mut d.table, e, &known);
        let (true, Some(&symbol)) = (plain, found.first()) else { return None };
        let range = d.table.range(symbol);
        d.hints.insert(symbol, value);
        let outside = value < range.lo || value > range.hi;
        outside.then(|| RunError::Range {
            symbol: d.table.name(symbol).to_owned(),
            value,
            range: range.to_string(),
        })
    });
    outside.map_or(Ok(()), |e| Err(e.into()))
}
