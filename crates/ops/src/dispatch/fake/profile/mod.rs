//! Fake kernels generated from recorded calls, as PyTorch's `register_fake_from_profiles`.
//!
//! A profile stores the ranks, dtypes, devices and layouts of one call's arguments and outputs, but
//! no sizes. The generated fake kernel looks up the profile of its arguments and returns contiguous
//! outputs of the recorded ranks, whose sizes are all data-dependent.

mod text;

use super::{FakeCtx, FakeFn};
use crate::dispatch::value::{Args, Outputs, Value};
use crate::error::{Error, FakeError, RegisterError, Result};
use crate::library::Op;
use crate::library::registrations::RegistrationOwner;
use crate::tensor::Tensor;
use crate::tensor::clone_storages::StorageCloner;
use crate::tensor::meta::{Dims, Meta};
use maquette_ir::schema::Schema;
use maquette_ir::{DType, Device, Layout, Loc};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

/// The part of a tensor's metadata that a profile records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TensorProfile {
    /// The number of dimensions.
    pub rank: usize,
    /// The element type.
    pub dtype: DType,
    /// The device.
    pub device: Device,
    /// The layout.
    pub layout: Layout,
}

/// The profile of an argument or an output.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Profiled {
    /// A tensor with this metadata.
    Tensor(TensorProfile),
    /// An absent optional.
    Absent,
    /// An integer output.
    Int,
    /// A number or string argument of any value.
    Any,
    /// A bool, dtype, device, layout or memory format argument of exactly this value, in text form.
    Choice(String),
    /// A list with this number of elements.
    List(Vec<Profiled>),
}

/// The profile of one call: its arguments and its outputs, without sizes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FakeProfile {
    /// One entry per argument, defaults included.
    pub args: Vec<Profiled>,
    /// One entry per return.
    pub outputs: Vec<Profiled>,
}

impl TensorProfile {
    /// Of a tensor.
    pub fn of(t: &Tensor) -> TensorProfile {
        TensorProfile { rank: t.dim(), dtype: t.dtype(), device: t.device(), layout: t.layout() }
    }
}

impl Profiled {
    fn argument(v: &Value) -> Profiled {
        match v {
            Value::None => Profiled::Absent,
            Value::Tensor(t) => Profiled::Tensor(TensorProfile::of(t)),
            Value::Int(_) | Value::Float(_) | Value::Str(_) => Profiled::Any,
            Value::Bool(b) => Profiled::Choice(b.to_string()),
            Value::DType(d) => Profiled::Choice(format!("dtype({d})")),
            Value::Device(d) => Profiled::Choice(format!("device({d})")),
            Value::Layout(l) => Profiled::Choice(format!("layout({l})")),
            Value::MemoryFormat(m) => Profiled::Choice(format!("memory_format({m})")),
            Value::Ints(l) => Profiled::List(vec![Profiled::Any; l.len()]),
            Value::List(l) => Profiled::List(l.iter().map(Profiled::argument).collect()),
        }
    }

    fn output(v: &Value) -> Result<Profiled> {
        Ok(match v {
            Value::None => Profiled::Absent,
            Value::Tensor(t) => Profiled::Tensor(TensorProfile::of(t.alive()?)),
            Value::Int(_) => Profiled::Int,
            Value::Ints(l) => Profiled::List(vec![Profiled::Int; l.len()]),
            Value::List(l) => {
                Profiled::List(l.iter().map(Profiled::output).collect::<Result<_>>()?)
            }
            other => {
                return Err(Error::value(format!(
                    "it returned {}, but a profile describes tensors and integers only",
                    other.kind()
                )));
            }
        })
    }

    /// Creates a fake output of this profile.
    fn make(&self, cx: &FakeCtx) -> Result<Value> {
        Ok(match self {
            Profiled::Tensor(t) => {
                let sizes = (0..t.rank).map(|_| cx.new_dynamic_size()).collect::<Result<Dims>>()?;
                Value::Tensor(Tensor::fake_of(Meta {
                    layout: t.layout,
                    ..Meta::contiguous(sizes, t.dtype).on(t.device)
                }))
            }
            Profiled::Int => Value::Int(cx.new_dynamic_int()?),
            Profiled::List(l) => {
                crate::dispatch::value::list(l.iter().map(|p| p.make(cx)).collect::<Result<_>>()?)
            }
            Profiled::Absent | Profiled::Any | Profiled::Choice(_) => Value::None,
        })
    }
}

impl FakeProfile {
    /// Runs the operator on copies of the arguments and records the profile of the call. The
    /// arguments themselves are not mutated.
    ///
    /// # Errors
    /// The call fails, an argument has no data, or a return is neither a tensor nor an integer.
    #[track_caller]
    pub fn record(op: &Op, args: Args) -> Result<FakeProfile> {
        let loc = Loc::caller();
        let mut cloner = StorageCloner::default();
        let copy = |v: &Value| v.map_tensors(&mut |t| cloner.clone_of(t));
        let copies = || args.iter().map(copy).collect::<Result<Args>>();
        let mut args = crate::mode::on_behalf_of(loc, copies)
            .map_err(|e| crate::mode::failed(e.in_call(op.shared_name(), loc)))?;
        let outputs = crate::mode::without_modes(|| op.call_at(args.clone(), loc))?;
        let declared = op.schema()?.args.len();
        args.extend((args.len()..declared).filter_map(|i| op.default_value(i)));
        let outputs = outputs
            .iter()
            .map(Profiled::output)
            .collect::<Result<_>>()
            .map_err(|e| e.in_call(op.shared_name(), loc))?;
        Ok(FakeProfile { args: args.iter().map(Profiled::argument).collect(), outputs })
    }
}

impl Op {
    /// Adds a fake kernel generated from recorded calls. For a call whose arguments match a
    /// profile, the fake kernel returns contiguous outputs of the recorded ranks, dtypes and
    /// devices, with data-dependent sizes. A call that matches no profile is an error that lists
    /// the recorded ones.
    ///
    /// # Errors
    /// The operator has a fake kernel already, two profiles have the same arguments but different
    /// outputs, there is no profile, or the operator returns views.
    #[track_caller]
    pub fn register_fake_from_profiles(
        &self,
        profiles: impl IntoIterator<Item = FakeProfile>,
    ) -> Result<()> {
        let loc = Loc::caller();
        let fake = kernel(*self, profiles.into_iter().collect());
        fake.and_then(|f| self.add_fake(f, None, RegistrationOwner::FOREVER, loc))
            .map_err(|e| e.at(loc))
    }
}

fn kernel(op: Op, profiles: BTreeSet<FakeProfile>) -> Result<FakeFn> {
    let invalid = |detail: String| -> Error {
        RegisterError::Invalid { op: op.name().to_owned(), detail }.into()
    };
    let schema = op.schema()?;
    let profiles: Vec<FakeProfile> = profiles.into_iter().collect();
    let (args, outputs) = (schema.args.len(), schema.returns.len());
    match profiles.iter().find(|p| p.args.len() != args || p.outputs.len() != outputs) {
        None if profiles.is_empty() => {
            return Err(invalid("a fake kernel from profiles needs at least one profile".into()));
        }
        None => {}
        Some(p) => {
            return Err(invalid(format!("the profile `{p}` does not match the schema {schema}")));
        }
    }
    if let Some([a, b]) = profiles.array_windows().find(|[a, b]| a.args == b.args) {
        return Err(invalid(format!(
            "the inputs of two profiles are equal, but their outputs differ, so profiles are not \
                enough: `{a}` and `{b}`"
        )));
    }
    let returned: Vec<Option<usize>> = (0..outputs).map(|i| op.return_alias(i)).collect();
    if let Some(arg) = returned.iter().flatten().find(|a| !op.mutates(**a)) {
        return Err(invalid(format!(
            "it returns a view of `{}`, but profiles do not record strides; write a fake kernel",
            op.arg_name(*arg)
        )));
    }
    Ok(Arc::new(move |cx: &FakeCtx, args: &[Value]| {
        let called: Vec<Profiled> = args.iter().map(Profiled::argument).collect();
        let Some(profile) = profiles.iter().find(|p| p.args == called) else {
            let recorded = profiles.iter().map(|p| text::list(&p.args)).collect();
            return Err(FakeError::MissingProfile { given: text::list(&called), recorded }.into());
        };
        let output = |(output, argument): (&Profiled, &Option<usize>)| match argument
            .and_then(|a| args.get(a))
        {
            Some(argument) => Ok(argument.clone()),
            None => output.make(cx),
        };
        profile.outputs.iter().zip(&returned).map(output).collect::<Result<Outputs>>()
    }))
}

/// Profiles of several operators, to store in a file. `Display` and `FromStr` define the text form.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FakeProfiles {
    /// Keyed by the text of the operator's schema.
    by_schema: BTreeMap<String, BTreeSet<FakeProfile>>,
}

impl FakeProfiles {
    /// An empty set of profiles.
    pub fn new() -> FakeProfiles {
        FakeProfiles::default()
    }

    /// Runs the operator on copies of the arguments, and adds the profile of the call.
    ///
    /// # Errors
    /// As [`FakeProfile::record`].
    #[track_caller]
    pub fn record(&mut self, op: &Op, args: Args) -> Result<()> {
        let profile = FakeProfile::record(op, args)?;
        self.by_schema.entry(op.schema()?.to_string()).or_default().insert(profile);
        Ok(())
    }

    /// The profiles of one operator.
    pub fn of(&self, op: &Op) -> impl Iterator<Item = FakeProfile> {
        let schema = op.schema().map(|s| s.to_string()).unwrap_or_default();
        self.by_schema.get(&schema).into_iter().flatten().cloned()
    }

    /// Registers a generated fake kernel for each of the operators.
    ///
    /// # Errors
    /// An operator is not registered, or its schema has changed since the recording; otherwise as
    /// [`Op::register_fake_from_profiles`].
    #[track_caller]
    pub fn register(&self) -> Result<()> {
        let loc = Loc::caller();
        for (text, profiles) in &self.by_schema {
            let op = Op::find(&Schema::from_str(text)?.name.to_string()).map_err(|e| e.at(loc))?;
            let now = op.schema()?.to_string();
            if now != *text {
                let detail = format!(
                    "its profiles were recorded for the schema\n  {text}\nbut it is now\n  \
                        {now}\nRecord them again"
                );
                return Err(Error::from(RegisterError::Invalid {
                    op: op.name().to_owned(),
                    detail,
                })
                .at(loc));
            }
            kernel(op, profiles.clone())
                .and_then(|f| op.add_fake(f, None, RegistrationOwner::FOREVER, loc))
                .map_err(|e| e.at(loc))?;
        }
        Ok(())
    }

    /// Writes the profiles to a file.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        Ok(std::fs::write(path, self.to_string())?)
    }

    /// Reads profiles from a file.
    ///
    /// # Errors
    /// The file cannot be read, has another format version, or is malformed.
    pub fn load(path: impl AsRef<Path>) -> Result<FakeProfiles> {
        std::fs::read_to_string(path)?.parse()
    }
}
