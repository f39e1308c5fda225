//! [`custom_op`] and [`OpBuilder`]: definition of operators. Also the methods of [`Op`] that
//! register further kernels.

use super::infer::{check_names, infer};
use super::key::{DispatchKey, IntoKey, key_for};
use super::op::Op;
use super::registrations::{Candidate, Definition, Registered, RegistrationOwner};
use super::rules::{check_aliases, check_tags};
use super::state::SchemaFacts;
use super::tags::{Tag, TagSet};
use super::typed::{IntoFake, IntoKernel, Signature};
use super::{KernelFn, registry};
use crate::autograd::{AutogradCtx, AutogradRule};
use crate::dispatch::value::Value;
use crate::error::{Error, RegisterError, Result};
use crate::tensor::Tensor;
use maquette_ir::schema::{Arg, OpName, Schema};
use maquette_ir::{Effect, Loc};
use std::str::FromStr;
use std::sync::Arc;

/// Starts the definition of a custom operator with the name `namespace::name` or
/// `namespace::name.overload`.
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
        autograd: None,
        tags: TagSet::default(),
        mutates_unknown: false,
        replace: false,
        loc: Loc::caller(),
    }
}

/// The definition of a custom operator, which [`OpBuilder::register`] completes.
#[must_use = "an operator exists once `.register()` is called"]
pub struct OpBuilder {
    name: String,
    schema: Option<String>,
    arg_names: Vec<String>,
    devices: Vec<String>,
    effect: Option<Effect>,
    kernel: Option<(Signature, KernelFn)>,
    autograd: Option<AutogradRule>,
    tags: TagSet,
    mutates_unknown: bool,
    replace: bool,
    loc: Loc,
}

impl OpBuilder {
    /// Sets the schema, without the name: `(Tensor x, int y=3) -> Tensor`. By default the schema is
    /// inferred from the kernel's signature.
    pub fn schema(mut self, schema: &str) -> Self {
        self.schema = Some(schema.to_owned());
        self
    }

    /// Sets the argument names of an inferred schema. By default these are `arg0`, `arg1`, …. With
    /// [`OpBuilder::schema`], they are the names in the kernel, which must be those of the schema.
    /// Underscores at either end do not count, and any name stands for `self`.
    pub fn arg_names<S: Into<String>>(mut self, names: impl IntoIterator<Item = S>) -> Self {
        self.arg_names = names.into_iter().map(Into::into).collect();
        self
    }

    /// Restricts the kernel to device types (`cpu`, `cuda`, …). By default it serves every device.
    pub fn device_types<S: Into<String>>(mut self, devices: impl IntoIterator<Item = S>) -> Self {
        self.devices = devices.into_iter().map(Into::into).collect();
        self
    }

    /// Declares an effect besides the outputs and mutations.
    pub fn effect(mut self, effect: Effect) -> Self {
        self.effect = Some(effect);
        self
    }

    /// Adds tags.
    pub fn tags(mut self, tags: impl IntoIterator<Item = Tag>) -> Self {
        self.tags = tags.into_iter().fold(self.tags, TagSet::with);
        self
    }

    /// Treats every tensor argument as mutated, whatever the kernel's signature says. For kernels
    /// whose mutations are unknown.
    pub fn mutates_unknown(mut self) -> Self {
        self.mutates_unknown = true;
        self
    }

    /// Replaces an existing operator of this name, with all its registrations. Without this option,
    /// an existing operator is an error.
    pub fn replace(mut self) -> Self {
        self.replace = true;
        self
    }

    /// Sets the kernel: a function or closure that takes `&Tensor`, `&mut Tensor`, numbers, and
    /// lists and options of these, and returns a [`Result`].
    pub fn kernel<M, F: IntoKernel<M>>(mut self, f: F) -> Self {
        self.kernel = Some((F::signature(), f.into_kernel()));
        self
    }

    /// Sets the derivative.
    ///
    /// ```
    /// # use maquette_aten as _;
    /// use maquette_ops::autograd::AutogradRule;
    /// use maquette_ops::{Result, Tensor, args, custom_op};
    /// let op = custom_op("doc::square")
    ///     .kernel(|x: &Tensor| -> Result<Tensor> {
    ///         Ok(Tensor::from(x.read::<f32>()?.mapv(|v| v * v)))
    ///     })
    ///     .autograd(
    ///         AutogradRule::new(|ctx, grads| Ok(vec![Some(ctx.saved(0)? * 2.0 * &grads[0])]))
    ///             .setup_context(|ctx, inputs, _| Ok(ctx.save(inputs[0].tensor()?))),
    ///     )
    ///     .register()?;
    /// let x = Tensor::from([3.0f32]).requires_grad_();
    /// op.call(args![&x])?[0].tensor()?.sum().backward()?;
    /// assert_eq!(x.grad().map(|g| g.to_vec::<f32>()).transpose()?, Some(vec![6.0]));
    /// # Ok::<(), maquette_ops::Error>(())
    /// ```
    pub fn autograd(mut self, rule: AutogradRule) -> Self {
        self.autograd = Some(rule);
        self
    }

    /// Sets the source line of the definition, for messages. By default it is the line that called
    /// [`custom_op`].
    pub fn defined_at(mut self, loc: Loc) -> Self {
        self.loc = loc;
        self
    }

    /// Defines the operator.
    ///
    /// # Errors
    /// The name or schema does not parse, a return may alias several arguments, the kernel's
    /// signature or argument names contradict the schema, the operator exists, it would have no
    /// purpose (it returns nothing, mutates nothing and has no effect), a device name is unknown, a
    /// tag contradicts the schema, or an operator that mutates its arguments has a derivative.
    pub fn register(self) -> Result<Op> {
        let loc = self.loc;
        self.build().map_err(|e| e.at(loc))
    }

    fn build(self) -> Result<Op> {
        let name = OpName::from_str(&self.name)?;
        if name.ns == RESERVED {
            return Err(RegisterError::Reserved { namespace: name.ns }.into());
        }
        let full_name = name.to_string();
        let invalid = |detail: &str| {
            Error::from(RegisterError::Invalid { op: full_name.clone(), detail: detail.to_owned() })
        };
        let schema = match (&self.schema, &self.kernel) {
            (Some(_), _) if self.mutates_unknown => {
                return Err(invalid(
                    "`mutates_unknown` applies to an inferred schema only; write `Tensor(a!)` in \
                        this schema",
                ));
            }
            (Some(text), _) => Schema::parse_signature(name, text)?,
            (None, Some((signature, _))) => {
                infer(name, signature, &self.arg_names, self.tags, self.mutates_unknown)?
            }
            (None, None) => {
                return Err(invalid("it has neither a schema nor a kernel to infer one from"));
            }
        };
        let op = registry::entry(&full_name);
        let devices = self
            .devices
            .iter()
            .map(|d| key_for(op, d.as_str(), self.loc))
            .collect::<Result<Vec<_>>>()?;
        let mut definition = definition(
            schema,
            self.tags.with(Tag::Pt2Compliant),
            RegistrationOwner::FOREVER,
            self.loc,
        )?;
        definition.mutates_unknown = self.mutates_unknown;
        if self.schema.is_some() {
            check_names(&definition, &self.arg_names, self.kernel.as_ref().map(|(s, _)| s))?;
        }
        let kernel = self.kernel.map(|(signature, f)| {
            Registered::new(f, Some(signature), RegistrationOwner::FOREVER, self.loc)
        });
        definition.initial = kernel.clone();
        let keys = if devices.is_empty() { vec![DispatchKey::Default] } else { devices };
        op.define(&definition, self.replace, |registrations| {
            if let Some(k) = &kernel {
                for key in keys {
                    registrations.push_kernel(op, key, k.with(Candidate::Kernel(k.f.clone())))?;
                }
            }
            if let Some(rule) = self.autograd {
                registrations.push_autograd(op, rule, RegistrationOwner::FOREVER, self.loc)?;
            }
            registrations.effect.extend(
                self.effect
                    .map(|e| Registered::new(Some(e), None, RegistrationOwner::FOREVER, self.loc)),
            );
            Ok(())
        })?;
        Ok(op)
    }
}

/// The namespace of PyTorch's language primitives, which have no schemas.
pub(super) const RESERVED: &str = "prim";

/// A definition from a schema, after its tags and aliases have been checked.
pub(super) fn definition(
    schema: Schema,
    tags: TagSet,
    owner: RegistrationOwner,
    loc: Loc,
) -> Result<Definition> {
    check_tags(&schema, tags)?;
    check_aliases(&schema)?;
    let facts = Arc::new(SchemaFacts::of(&schema, tags));
    Ok(Definition {
        schema: Arc::new(schema),
        facts,
        mutates_unknown: false,
        initial: None,
        owner,
        loc,
    })
}

impl Op {
    /// Registers the kernel for a device type, or with `"default"` the kernel for all devices
    /// without their own.
    ///
    /// # Errors
    /// The device is unknown or already has a kernel, or the signature contradicts the schema.
    #[track_caller]
    pub fn register_kernel<M, F: IntoKernel<M>>(&self, device: impl IntoKey, f: F) -> Result<()> {
        let loc = Loc::caller();
        let key = key_for(*self, device, loc)?;
        self.require(&key.what()).map_err(|e| e.at(loc))?;
        self.add_kernel(
            key,
            Candidate::Kernel(f.into_kernel()),
            Some(F::signature()),
            RegistrationOwner::FOREVER,
            loc,
        )
    }

    /// Registers the fake kernel: a function of [`FakeCtx`](crate::FakeCtx) and the operator's
    /// arguments. It returns fake outputs with the right sizes, strides, dtype and device.
    ///
    /// # Errors
    /// The operator already has a fake kernel, or the signature contradicts the schema.
    #[track_caller]
    pub fn register_fake<M, F: IntoFake<M>>(&self, f: F) -> Result<()> {
        let loc = Loc::caller();
        self.require("fake kernel").map_err(|e| e.at(loc))?;
        self.add_fake(f.into_fake(), Some(F::signature()), RegistrationOwner::FOREVER, loc)
    }

    /// Registers the derivative: a function of what the call saved and of the gradients of the
    /// tensors among the results, as [`AutogradRule`] describes it.
    ///
    /// PyTorch: `torch.library.register_autograd`.
    ///
    /// # Errors
    /// The operator has a derivative, or mutates its arguments.
    #[track_caller]
    pub fn register_autograd(
        &self,
        backward: impl Fn(&AutogradCtx, &[Tensor]) -> Result<Vec<Option<Tensor>>>
        + Send
        + Sync
        + 'static,
    ) -> Result<()> {
        self.register_autograd_rule(AutogradRule::new(backward))
    }

    /// As [`Op::register_autograd`]; after each call with gradients, `setup_context` saves what the
    /// derivative reads.
    ///
    /// # Errors
    /// As [`Op::register_autograd`].
    #[track_caller]
    pub fn register_autograd_with(
        &self,
        setup_context: impl Fn(&mut AutogradCtx, &[Value], &[Value]) -> Result<()>
        + Send
        + Sync
        + 'static,
        backward: impl Fn(&AutogradCtx, &[Tensor]) -> Result<Vec<Option<Tensor>>>
        + Send
        + Sync
        + 'static,
    ) -> Result<()> {
        self.register_autograd_rule(AutogradRule::new(backward).setup_context(setup_context))
    }

    /// As [`Op::register_autograd`], for a whole rule.
    ///
    /// # Errors
    /// As [`Op::register_autograd`].
    #[track_caller]
    pub fn register_autograd_rule(&self, rule: AutogradRule) -> Result<()> {
        let loc = Loc::caller();
        self.require("derivative").map_err(|e| e.at(loc))?;
        self.add_autograd(rule, RegistrationOwner::FOREVER, loc)
    }

    /// The old name of [`Op::register_fake`].
    ///
    /// # Errors
    /// As [`Op::register_fake`].
    #[deprecated(note = "use `register_fake`")]
    #[track_caller]
    pub fn impl_abstract<M, F: IntoFake<M>>(&self, f: F) -> Result<()> {
        self.register_fake(f)
    }
}

/// The schema's default value of an argument, boxed.
pub(crate) fn default_value(decl: &Arg) -> Option<crate::Value> {
    use crate::Value;
    use maquette_ir::schema::{Default, Type};
    fn value(d: &Default, ty: &Type) -> Option<Value> {
        Some(match (d, ty) {
            (d, Type::Optional(inner)) if !matches!(d, Default::None) => value(d, inner)?,
            (Default::None, _) => Value::None,
            (Default::Int(i), Type::Float) => Value::Float(*i as f64),
            // PyTorch's schemas write a default memory format as the number of the enumerator.
            (Default::Int(i), Type::List(inner, Some(n)))
                if matches!(**inner, Type::Int | Type::SymInt) =>
            {
                Value::from_dims(vec![*i; *n as usize])
            }
            (Default::Int(i), _) => Value::from(*i),
            (Default::Float(x), _) => Value::Float(*x),
            (Default::Bool(b), _) => Value::Bool(*b),
            (Default::Str(s), _) => Value::from(s.as_str()),
            (Default::List(l), Type::List(inner, _)) => {
                let l = l.iter().map(|d| value(d, inner)).collect::<Option<Vec<_>>>()?;
                if l.is_empty() && matches!(**inner, Type::Int | Type::SymInt) {
                    Value::Ints(Box::new([]))
                } else {
                    crate::dispatch::value::list(l)
                }
            }
            (Default::DType(d), _) => Value::DType(*d),
            (Default::Device(d), _) => Value::Device(*d),
            (Default::Layout(l), _) => Value::Layout(*l),
            (Default::MemoryFormat(m), _) => Value::MemoryFormat(*m),
            _ => return None,
        })
    }
    decl.default
        .as_ref()
        .and_then(|d| value(d, &decl.ty))
        .or_else(|| matches!(decl.ty, Type::Generator).then_some(Value::None))
}
