//! Calls of the operator on copies of a sample, and the differences between two calls.

use super::sample::{StorageSnapshot, copy, snapshot_storages};
use super::sample_variants::SampleVariant;
use crate::values::{
    Bytes, catch_panics, compare_metadata, computed, element_bytes, flatten, show,
};
use maquette_ir::Loc;
use maquette_ir::schema::Schema;
use maquette_ops::{Args, Error, Op, Result, Tensor, Value, typed};

/// The operator under test.
pub(super) struct OpUnderTest<'a> {
    pub(super) op: Op,
    pub(super) schema: &'a Schema,
    pub(super) loc: Loc,
}

/// The record of a call.
pub(super) struct CallRecord {
    pub(super) args: Args,
    pub(super) outputs: Vec<Value>,
    /// The metadata of every tensor among the arguments, before the call.
    pub(super) metadata: Vec<String>,
    pub(super) before: Vec<StorageSnapshot>,
    pub(super) after: Vec<StorageSnapshot>,
}

/// A sample that the operator accepts, with the record of the call on it.
pub(super) struct SampleRun {
    pub(super) variant: SampleVariant,
    pub(super) ran: CallRecord,
}

/// Whether an error means that the kernel broke its contract, which it may not do on any arguments.
/// Any other error may be a legitimate refusal of these arguments.
pub(super) fn breaks_contract(e: &Error) -> bool {
    use maquette_ops::{AccessError, CallError, ErrorKind};
    match e.kind() {
        ErrorKind::Call(e) => matches!(
            e,
            CallError::ReturnCount { .. }
                | CallError::ReturnType { .. }
                | CallError::ReturnDevice { .. }
                | CallError::OutputAliases { .. }
                | CallError::KeptOutput { .. }
                | CallError::ReplacedArgument { .. }
                | CallError::NotTheArgument { .. }
        ),
        ErrorKind::Access(e) => matches!(
            e,
            AccessError::UndeclaredWrite { .. }
                | AccessError::NotGiven { .. }
                | AccessError::OutsideBorrow { .. }
                | AccessError::Stale
        ),
        _ => false,
    }
}

impl OpUnderTest<'_> {
    /// Calls the operator on copies of `args`, by `call`.
    pub(super) fn on_copies(
        &self,
        args: &[Value],
        call: impl FnOnce(&Args) -> Result<Vec<Value>>,
    ) -> Result<CallRecord> {
        let args = copy(self.schema, args, None)?;
        let before = snapshot_storages(&args)?;
        let metadata = args.iter().flat_map(Value::tensors).map(|t| t.meta().to_string()).collect();
        let outputs = call(&args)?;
        for t in outputs.iter().flat_map(Value::tensors) {
            computed(t)?;
        }
        let after = snapshot_storages(&args)?;
        Ok(CallRecord { args, outputs, metadata, before, after })
    }

    /// Makes one eager call.
    pub(super) fn run(&self, args: &[Value]) -> Result<CallRecord> {
        self.on_copies(args, |args| {
            catch_panics("its kernel", || Ok(self.op.call_at(args.clone(), self.loc)?.into_vec()))
        })
    }
}

/// Two calls that should agree in every bit, with their names in messages.
pub(super) struct Pair<'a> {
    pub(super) first: (&'a str, &'a CallRecord),
    pub(super) second: (&'a str, &'a CallRecord),
    /// Whether values are compared, or only metadata and aliasing.
    pub(super) values: bool,
}

impl Pair<'_> {
    fn differ(&self, a: impl std::fmt::Display, b: impl std::fmt::Display) -> String {
        format!("{a} {}, {b} {}", self.first.0, self.second.0)
    }

    /// The differences between the two calls.
    pub(super) fn differences(&self, schema: &Schema) -> Vec<String> {
        let ((_, first), (_, second)) = (self.first, self.second);
        let mut out = Vec::new();
        let (e, f) = (flatten(&first.outputs), flatten(&second.outputs));
        if e.len() != f.len() {
            return vec![format!("the number of outputs: {}", self.differ(e.len(), f.len()))];
        }
        for (i, (e, f)) in e.iter().zip(&f).enumerate() {
            if let Err(m) = self.value(e, f) {
                out.push(format!("output {i}: {m}"));
            }
        }
        if self.values {
            for (a, (e, f)) in schema.args.iter().zip(first.args.iter().zip(&second.args)) {
                for (e, f) in e.tensors().zip(f.tensors()) {
                    if let Err(m) = self.bits(e, f) {
                        out.push(format!("argument `{}` afterwards: {m}", a.name));
                    }
                }
            }
        }
        let (e, f) = (aliasing(schema, first), aliasing(schema, second));
        let only = |a: &[String], b: &[String], which: &str| -> Vec<String> {
            a.iter().filter(|x| !b.contains(x)).map(|x| format!("{x} {which} only")).collect()
        };
        out.extend(only(&e, &f, self.first.0));
        out.extend(only(&f, &e, self.second.0));
        out
    }

    fn value(&self, e: &Value, f: &Value) -> Result<(), String> {
        let values = self.values;
        match (e, f) {
            (Value::Tensor(e), Value::Tensor(f)) => {
                compare_metadata(e, f).map_err(|_| self.differ(e.meta(), f.meta()))?;
                if values { self.bits(e, f) } else { Ok(()) }
            }
            (Value::Int(a), Value::Int(b))
                if !values || a.as_i64().is_some() && a.as_i64() == b.as_i64() =>
            {
                Ok(())
            }
            (Value::Float(a), Value::Float(b)) if !values || a.to_bits() == b.to_bits() => Ok(()),
            (Value::Bool(a), Value::Bool(b)) if !values || a == b => Ok(()),
            (Value::Str(a), Value::Str(b)) if !values || a == b => Ok(()),
            (Value::None, Value::None) => Ok(()),
            _ => Err(self.differ(show(e), show(f))),
        }
    }

    /// The first element that differs in any bit.
    fn bits(&self, e: &Tensor, f: &Tensor) -> Result<(), String> {
        let read = |t: &Tensor| element_bytes(t).map_err(|e| e.to_string());
        let (x, y, size) = (read(e)?, read(f)?, e.dtype().size());
        let mut pairs = x.chunks(size).zip(y.chunks(size)).enumerate().filter(|(_, (a, b))| a != b);
        let Some((first, (a, b))) = pairs.next() else { return Ok(()) };
        let text = |bytes: &[u8]| typed!(e.dtype(), T => format!("{:?}", T::decode(bytes)));
        let more = match (1 + pairs.count(), x.len() / size) {
            (_, 1) => String::new(),
            (n, all) => format!(" ({n} of {all} elements differ)"),
        };
        Err(format!("element {first} is {}{more}", self.differ(text(a), text(b))))
    }
}

/// For each output: the arguments and the other outputs that share its memory.
pub(super) fn aliasing(schema: &Schema, ran: &CallRecord) -> Vec<String> {
    let outputs: Vec<(usize, Tensor)> = flatten(&ran.outputs)
        .iter()
        .enumerate()
        .flat_map(|(i, v)| v.tensors().map(move |t| (i, t.clone())).collect::<Vec<_>>())
        .collect();
    let mut out = Vec::new();
    for (k, (i, t)) in outputs.iter().enumerate() {
        for (a, v) in schema.args.iter().zip(&ran.args) {
            if v.tensors().any(|u| u.shares_storage(t)) {
                out.push(format!("output {i} shares memory with argument `{}`", a.name));
            }
        }
        for (j, u) in outputs.iter().take(k) {
            if u.shares_storage(t) {
                out.push(format!("output {i} shares memory with output {j}"));
            }
        }
    }
    out
}
