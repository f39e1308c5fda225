//! Defining operators, and adding kernels to them.

use super::KernelFn;
use super::op::{Effect, Op, OpState, Registered};
use super::registry;
use super::typed::{IntoFake, IntoKernel, Signature};
use crate::error::{Error, RegisterError, Result};
use crate::fake::FakeFn;
use maquette_ir::schema::{Alias, Arg, OpName, Ret, Schema};
use maquette_ir::{DeviceKind, Loc};
use std::str::FromStr;

/// Begins the definition of a custom operator, named `namespace::name` or `namespace::name.overload`.
///
/// ```
/// use maquette_ops::{Result, Tensor, args, custom_op};
/// let op = custom_op("doc::scale_")
///     .schema("(Tensor(a!) x, float s) -> ()")
///     .kernel(|x: &mut Tensor, s: f64| -> Result<()> {
///         x.write::<f32>()?.mapv_inplace(|v| v * s as f32);
///         Ok(())
///     })
///     .register()?;
/// let x = Tensor::from([1.0f32, 2.0]);
/// op.call(args![&x, 3.0])?;
/// assert_eq!(x.to_vec::<f32>()?, [3.0, 6.0]);
/// # Ok::<(), maquette_ops::Error>(())
/// ```
#[track_caller]
pub fn custom_op(name: &str) -> OpBuilder {
    OpBuilder {
        name: name.to_owned(),
        schema: None,
        arg_names: Vec::new(),
        devices: Vec::new(),
        effect: None,
        kernel: None,
        loc: Loc::caller(),
    }
}

/// A custom operator being defined. [`OpBuilder::register`] ends it.
#[must_use = "an operator exists once `.register()` is called"]
pub struct OpBuilder {
    name: String,
    schema: Option<String>,
    arg_names: Vec<String>,
    devices: Vec<String>,
    effect: Option<Effect>,
    kernel: Option<(Signature, KernelFn)>,
    loc: Loc,
}

impl OpBuilder {
    /// The schema without the name, as `(Tensor x, int y=3) -> Tensor`. Without it the kernel's signature is the schema.
    pub fn schema(mut self, schema: &str) -> Self {
        self.schema = Some(schema.to_owned());
        self
    }

    /// Names for the arguments of a schema that comes from the kernel's signature; `arg0`, `arg1`… otherwise.
    pub fn arg_names<S: Into<String>>(mut self, names: impl IntoIterator<Item = S>) -> Self {
        self.arg_names = names.into_iter().map(Into::into).collect();
        self
    }

    /// The device types the kernel is for (`cpu`, `cuda`, …); every device by default.
    pub fn device_types<S: Into<String>>(mut self, devices: impl IntoIterator<Item = S>) -> Self {
        self.devices = devices.into_iter().map(Into::into).collect();
        self
    }

    /// What the operator does besides its outputs and mutations.
    pub fn effect(mut self, effect: Effect) -> Self {
        self.effect = Some(effect);
        self
    }

    /// The kernel: a function or closure over `&Tensor`, `&mut Tensor`, numbers, lists and options of these, returning a [`Result`].
    pub fn kernel<M, F: IntoKernel<M>>(mut self, f: F) -> Self {
        self.kernel = Some((F::signature(), f.into_kernel()));
        self
    }

    /// Where the operator is defined, for messages; the line that called [`custom_op`] by default.
    pub fn defined_at(mut self, loc: Loc) -> Self {
        self.loc = loc;
        self
    }

    /// Defines the operator.
    ///
    /// # Errors
    /// The name or schema does not parse, the kernel's signature is not the schema's, the operator exists, it would have no purpose (it
    /// returns nothing, mutates nothing and has no effect), or a device name is unknown.
    pub fn register(self) -> Result<Op> {
        let loc = self.loc;
        self.build().map_err(|e| e.at(loc))
    }

    fn build(self) -> Result<Op> {
        let name = OpName::from_str(&self.name)?;
        let schema = match (&self.schema, &self.kernel) {
            (Some(text), _) => Schema::parse_signature(name, text)?,
            (None, Some((signature, _))) => infer(name, signature, &self.arg_names),
            (None, None) => {
                let detail = "it has neither a schema nor a kernel to infer one from".to_owned();
                return Err(RegisterError::Invalid { op: self.name, detail }.into());
            }
        };
        if schema.returns.is_empty() && schema.mutates().next().is_none() && self.effect.is_none() {
            return Err(RegisterError::NoPurpose { op: self.name }.into());
        }
        let mut state = OpState { effect: self.effect, ..OpState::new(schema, self.loc) };
        if let Some((signature, f)) = self.kernel {
            check_signature(&state.schema, &signature)?;
            let devices = parse_devices(&state, &self.devices)?;
            let kernel = Registered { f, loc: self.loc };
            for d in &devices {
                state.kernels[*d as usize] = Some(kernel.clone());
            }
            if devices.is_empty() {
                state.default_kernel = Some(kernel);
            }
        }
        let op = registry::place(&self.name);
        op.define(state)?;
        Ok(op)
    }
}

impl Op {
    /// Adds the kernel for a device type.
    ///
    /// # Errors
    /// The device is unknown, it has a kernel of its own already, or the signature is not the schema's.
    #[track_caller]
    pub fn register_kernel<M, F: IntoKernel<M>>(&self, device: &str, f: F) -> Result<()> {
        let loc = Loc::caller();
        let f = f.into_kernel();
        self.edit(&format!("{device} kernel"), |state| {
            check_signature(&state.schema, &F::signature())?;
            for d in parse_devices(state, &[device.to_owned()])? {
                if let Some(k) = &state.kernels[d as usize] {
                    return Err(self.duplicate(&format!("{d} kernel"), k.loc));
                }
                state.kernels[d as usize] = Some(Registered { f: f.clone(), loc });
            }
            Ok(())
        })
        .map_err(|e| e.at(loc))
    }

    /// Adds the fake kernel: a function of [`FakeCtx`](crate::FakeCtx) and the operator's arguments that returns outputs of the right
    /// sizes, strides, dtype and device, without contents.
    ///
    /// # Errors
    /// There is one already, or the signature is not the schema's.
    #[track_caller]
    pub fn register_fake<M, F: IntoFake<M>>(&self, f: F) -> Result<()> {
        let loc = Loc::caller();
        self.add_fake(f.into_fake(), loc, |state| check_signature(&state.schema, &F::signature())).map_err(|e| e.at(loc))
    }

    /// Adds a boxed fake kernel, if `check` finds nothing wrong.
    pub(crate) fn add_fake(&self, f: FakeFn, loc: Loc, check: impl FnOnce(&OpState) -> Result<()>) -> Result<()> {
        self.edit("fake kernel", |state| {
            check(state)?;
            if let Some(k) = &state.fake {
                return Err(self.duplicate("fake kernel", k.loc));
            }
            state.fake = Some(Registered { f, loc });
            Ok(())
        })
    }
}

/// The schema of a signature. Mutated arguments get alias names of their own: `Tensor(a0!) x`.
fn infer(name: OpName, signature: &Signature, names: &[String]) -> Schema {
    let arg = |(i, (ty, mutated)): (usize, &(maquette_ir::schema::Type, bool))| Arg {
        name: names.get(i).cloned().unwrap_or_else(|| format!("arg{i}")),
        ty: ty.clone(),
        alias: mutated.then(|| Alias::named(&format!("a{i}"), true)),
        default: None,
        kwarg_only: false,
    };
    let ret = |ty: &maquette_ir::schema::Type| Ret { name: None, ty: ty.clone(), alias: None };
    Schema { name, args: signature.args.iter().enumerate().map(arg).collect(), returns: signature.returns.iter().map(ret).collect() }
}

/// A schema's `int` and `SymInt` are one type to a kernel; a fixed-length list is a list; a `Scalar` may be taken as a float.
fn check_signature(schema: &Schema, found: &Signature) -> Result<()> {
    use maquette_ir::schema::Type;
    fn same(declared: &Type, rust: &Type) -> bool {
        match (declared, rust) {
            (Type::Optional(a), Type::Optional(b)) | (Type::List(a, _), Type::List(b, _)) => same(a, b),
            (Type::Int | Type::SymInt, Type::Int | Type::SymInt) | (Type::Scalar, Type::Float) => true,
            (a, b) => a == b,
        }
    }
    let mismatch = |detail: String| -> Error {
        let names: Vec<String> = schema.args.iter().map(|a| a.name.clone()).collect();
        RegisterError::SchemaMismatch {
            op: schema.name.to_string(),
            inferred: infer(schema.name.clone(), found, &names).to_string(),
            declared: schema.to_string(),
            detail,
        }
        .into()
    };
    if schema.args.len() != found.args.len() {
        return Err(mismatch(format!("the kernel takes {} arguments, the schema has {}", found.args.len(), schema.args.len())));
    }
    for (i, (a, (ty, mutated))) in schema.args.iter().zip(&found.args).enumerate() {
        let declared_mutated = a.alias.as_ref().is_some_and(|x| x.write);
        if !same(&a.ty, ty) {
            return Err(mismatch(format!("argument {i} `{}` is {} in the schema, {ty} in the kernel", a.name, a.ty)));
        }
        if declared_mutated != *mutated {
            let (says, takes) = if *mutated { ("read-only", "`&mut`") } else { ("mutated", "`&`") };
            return Err(mismatch(format!("argument {i} `{}` is {says} in the schema, but the kernel takes it by {takes}", a.name)));
        }
    }
    if schema.returns.len() != found.returns.len() || schema.returns.iter().zip(&found.returns).any(|(r, ty)| !same(&r.ty, ty)) {
        return Err(mismatch("the returns differ".into()));
    }
    Ok(())
}

fn parse_devices(state: &OpState, names: &[String]) -> Result<Vec<DeviceKind>> {
    let invalid = |detail: String| RegisterError::Invalid { op: state.schema.name.to_string(), detail };
    let kinds = names.iter().map(|n| DeviceKind::from_str(n).map_err(|e| invalid(e.to_string()))).collect::<Result<Vec<_>, _>>()?;
    if !kinds.is_empty() && state.facts.tensor_args.is_empty() && state.facts.device_arg.is_none() {
        let (op, schema) = (state.schema.name.to_string(), state.schema.to_string());
        return Err(RegisterError::NoDispatchArgument { op, schema }.into());
    }
    Ok(kinds)
}

/// The value of an argument that is left out.
pub(crate) fn default_value(decl: &Arg) -> Option<crate::Value> {
    use crate::Value;
    use maquette_ir::schema::{Default, Type};
    fn value(d: &Default, ty: &Type) -> Option<Value> {
        Some(match (d, ty) {
            (d, Type::Optional(inner)) if !matches!(d, Default::None) => value(d, inner)?,
            (Default::None, _) => Value::None,
            (Default::Int(i), Type::Float) => Value::Float(*i as f64),
            // PyTorch writes a default memory format as its number
            (Default::Int(i), Type::List(inner, Some(n))) if matches!(**inner, Type::Int | Type::SymInt) => {
                Value::from_dims(vec![*i; *n as usize])
            }
            (Default::Int(i), _) => Value::from(*i),
            (Default::Float(x), _) => Value::Float(*x),
            (Default::Bool(b), _) => Value::Bool(*b),
            (Default::Str(s), _) => Value::from(s.as_str()),
            (Default::List(l), Type::List(inner, _)) => {
                let l = l.iter().map(|d| value(d, inner)).collect::<Option<Vec<_>>>()?;
                if l.is_empty() && matches!(**inner, Type::Int | Type::SymInt) { Value::Ints(Box::new([])) } else { crate::value::list(l) }
            }
            (Default::DType(d), _) => Value::DType(*d),
            (Default::Device(d), _) => Value::Device(*d),
            (Default::Layout(l), _) => Value::Layout(*l),
            (Default::MemoryFormat(m), _) => Value::MemoryFormat(*m),
            _ => return None,
        })
    }
    decl.default.as_ref().and_then(|d| value(d, &decl.ty)).or_else(|| matches!(decl.ty, Type::Generator).then_some(Value::None))
}
