//! Fake kernels made from recorded calls: outputs of the recorded ranks, dtypes and devices, whose
//! sizes all depend on data.

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

/// What a profile says of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TensorProfile {
    /// The number of dimensions.
    pub rank: usize,
    /// The element type.
    pub dtype: DType,
    /// Where it is.
    pub device: Device,
    /// How it is laid out.
    pub layout: Layout,
}

/// What a profile says of an argument or an output.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Profiled {
    /// A tensor of this kind.
    Tensor(TensorProfile),
    /// An absent optional.
    Absent,
    /// An integer that was returned.
    Int,
    /// An argument that is a number or a string, of any value.
    Any,
    /// An argument that is a bool, or chooses a dtype, device, layout or memory format: this one.
    Choice(String),
    /// A list of as many elements.
    List(Vec<Profiled>),
}

/// One kind of call: what was given, and what came back. Sizes are not part of it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FakeProfile {
    /// Each argument, defaults included.
    pub args: Vec<Profiled>,
    /// Each return.
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
            Value::Tensor(t) => Profiled::Tensor(TensorProfile::of(t.ok()?)),
            Value::Int(_) => Profiled::Int,
            Value::Ints(l) => Profiled::List(vec![Profiled::Int; l.len()]),
            Value::List(l) => {
                Profiled::List(l.iter().map(Profiled::output).collect::<Result<_>>()?)
            }
            other => {
                return Err(Error::value(format!(
                    "it returned {}; a profile can tell of tensors and integers only",
                    other.kind()
                )));
            }
        })
    }

    /// An output of this kind.
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
    /// Runs the operator and records what kind of call it was. It runs on copies: the arguments
    /// stay as they are.
    ///
    /// # Errors
    /// The call fails, an argument has no data, or a return is neither a tensor nor an integer.
    #[track_caller]
    pub fn record(op: &Op, args: Args) -> Result<FakeProfile> {
        let loc = Loc::caller();
        let mut cloner = StorageCloner::default();
        let copy = |v: &Value| v.map_tensors(&mut |t| cloner.clone_of(t));
        let mut args = args
            .iter()
            .map(copy)
            .collect::<Result<Args>>()
            .map_err(|e| e.in_call(op.shared_name(), loc))?;
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
    /// Adds a fake kernel made from recorded calls: it gives outputs of the ranks, dtypes and
    /// devices that a call of this kind gave, contiguous and of sizes that depend on data. A call
    /// unlike all of them is an error that lists what was recorded.
    ///
    /// # Errors
    /// There is a fake kernel already, calls of one kind gave outputs of two, there is no profile,
    /// or the operator returns views.
    #[track_caller]
    pub fn register_fake_from_profiles(
        &self,
        profiles: impl IntoIterator<Item = FakeProfile>,
    ) -> Result<()> {
        let loc = Loc::caller();
        let made = kernel(*self, profiles.into_iter().collect());
        made.and_then(|f| self.add_fake(f, None, RegistrationOwner::FOREVER, loc))
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
            return Err(invalid("there is no profile to make a fake kernel from".into()));
        }
        None => {}
        Some(p) => return Err(invalid(format!("the profile `{p}` is not of the schema {schema}"))),
    }
    if let Some([a, b]) = profiles.array_windows().find(|[a, b]| a.args == b.args) {
        return Err(invalid(format!(
            "calls of one kind gave outputs of two, so profiles are not enough: `{a}` and `{b}`"
        )));
    }
    let returned: Vec<Option<usize>> = (0..outputs).map(|i| op.return_alias(i)).collect();
    if let Some(arg) = returned.iter().flatten().find(|a| !op.mutates(**a)) {
        return Err(invalid(format!(
            "it returns a view of `{}`, and profiles do not tell of strides; write a fake kernel",
            op.arg_name(*arg)
        )));
    }
    Ok(Arc::new(move |cx: &FakeCtx, args: &[Value]| {
        let given: Vec<Profiled> = args.iter().map(Profiled::argument).collect();
        let Some(profile) = profiles.iter().find(|p| p.args == given) else {
            let recorded = profiles.iter().map(|p| text::list(&p.args)).collect();
            return Err(FakeError::MissingProfile { given: text::list(&given), recorded }.into());
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

/// Profiles of several operators, to be kept in a file. Its text form is that of `Display` and
/// `FromStr`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FakeProfiles {
    /// By the operator's schema.
    by_schema: BTreeMap<String, BTreeSet<FakeProfile>>,
}

impl FakeProfiles {
    /// None yet.
    pub fn new() -> FakeProfiles {
        FakeProfiles::default()
    }

    /// Runs the operator on copies of the arguments, and adds what kind of call it was.
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

    /// Makes a fake kernel for each of the operators.
    ///
    /// # Errors
    /// An operator is not registered, its schema has changed since, or as
    /// [`Op::register_fake_from_profiles`].
    #[track_caller]
    pub fn register(&self) -> Result<()> {
        let loc = Loc::caller();
        for (text, profiles) in &self.by_schema {
            let op = Op::find(&Schema::from_str(text)?.name.to_string()).map_err(|e| e.at(loc))?;
            let now = op.schema()?.to_string();
            if now != *text {
                let detail = format!(
                    "its profiles were recorded for the schema\n  {text}\nand it is now\n  \
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

    /// Writes them to a file.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        Ok(std::fs::write(path, self.to_string())?)
    }

    /// Reads them from a file.
    ///
    /// # Errors
    /// The file cannot be read, is of another version, or is not what [`FakeProfiles::save`]
    /// writes.
    pub fn load(path: impl AsRef<Path>) -> Result<FakeProfiles> {
        std::fs::read_to_string(path)?.parse()
    }
}
