//! [`Library`], whose registrations end when it is dropped, and free functions, whose registrations
//! are permanent.

use super::builder::{RESERVED, definition};
use super::key::{DispatchKey, IntoKey, key_for};
use super::op::Op;
use super::registrations::{Candidate, RegistrationOwner};
use super::tags::{Tag, TagSet};
use super::typed::{IntoFake, IntoKernel};
use super::{KernelFn, registry};
use crate::autograd::AutogradRule;
use crate::error::{Error, RegisterError, Result};
use maquette_ir::schema::{OpName, Schema};
use maquette_ir::{Effect, Loc};
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::{Mutex, PoisonError};

/// The rights of a [`Library`] in its namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Owns the namespace; a second library of this kind is an error. It defines operators and
    /// registers kernels.
    Def,
    /// Registers kernels for operators of the namespace, builtin ones included. The operator may be
    /// defined later.
    Impl,
    /// As [`Kind::Def`], but a namespace can have any number of fragments.
    Fragment,
}

/// Registrations in one namespace. Dropping the library removes them and reactivates the
/// registrations that they had overridden.
///
/// A registration overrides earlier ones of other libraries. A library can register only one kernel
/// per operator and key. A call that is running when the library is dropped completes with its
/// kernel.
///
/// ```
/// # use maquette_aten as _;
/// use maquette_ops::library::{DispatchKey, Kind, Library};
/// use maquette_ops::{Result, Tensor, args, call};
/// let x = Tensor::from([6.0f32]);
/// let lib = Library::new("aten", Kind::Impl)?;
/// lib.impl_("div.Tensor", DispatchKey::Cpu, |_: &Tensor, _: &Tensor| -> Result<Tensor> {
///     Ok(Tensor::from([7.0f32]))
/// })?;
/// assert_eq!((&x / 2.0).to_vec::<f32>()?, [7.0]);
/// drop(lib);
/// assert_eq!((&x / 2.0).to_vec::<f32>()?, [3.0]);
/// # Ok::<(), maquette_ops::Error>(())
/// ```
#[must_use = "dropping a library removes what it registered"]
pub struct Library {
    namespace: String,
    kind: Kind,
    owner: RegistrationOwner,
    loc: Loc,
    touched: Mutex<Vec<Op>>,
}

/// The namespaces that a library owns, and where the library was created.
static DEFINED: Mutex<BTreeMap<String, Loc>> = Mutex::new(BTreeMap::new());

impl Library {
    /// Creates an empty library of a namespace.
    ///
    /// # Errors
    /// The namespace is not a valid name, is reserved (`prim`), or belongs to another library or
    /// the builtin operators (`aten`) and `kind` is [`Kind::Def`].
    #[track_caller]
    pub fn new(namespace: &str, kind: Kind) -> Result<Library> {
        let loc = Loc::caller();
        let check = || {
            let bad = || RegisterError::NotANamespace { namespace: namespace.to_owned() };
            let name = OpName::from_str(&format!("{namespace}::name")).map_err(|_| bad())?;
            if name.ns == RESERVED {
                return Err(Error::from(RegisterError::Reserved { namespace: name.ns }));
            }
            if kind == Kind::Def {
                let taken = |first: String| RegisterError::Namespace {
                    namespace: namespace.to_owned(),
                    first,
                };
                if namespace == "aten" {
                    return Err(taken("by the builtin operators".into()).into());
                }
                let mut defined = DEFINED.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some(first) = defined.get(namespace) {
                    return Err(taken(format!("at {first}")).into());
                }
                defined.insert(namespace.to_owned(), loc);
            }
            Ok(())
        };
        check().map_err(|e| e.at(loc))?;
        Ok(Library {
            namespace: namespace.to_owned(),
            kind,
            owner: RegistrationOwner::new(),
            loc,
            touched: Mutex::default(),
        })
    }

    /// The namespace.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Defines an operator by its schema, such as `sin(Tensor x) -> Tensor`. The namespace is
    /// optional.
    ///
    /// # Errors
    /// The library is a [`Kind::Impl`], the schema does not parse or names another namespace, the
    /// operator exists, a return may alias several arguments, or a tag or an already registered
    /// kernel contradicts the schema. An operator that returns and mutates nothing needs its effect
    /// registered before it is defined.
    #[track_caller]
    pub fn define(&self, schema: &str, tags: &[Tag]) -> Result<Op> {
        let loc = Loc::caller();
        let define = || {
            if self.kind == Kind::Impl {
                let detail = format!(
                    "its kind is `Kind::Impl`, which adds kernels only, so it cannot define \
                        `{schema}`; make it a `Kind::Fragment`"
                );
                return Err(self.refuse(detail));
            }
            let schema = Schema::parse_in(&self.namespace, schema)?;
            let op = registry::entry(&schema.name.to_string());
            op.define(
                &definition(schema, tags.iter().copied().collect::<TagSet>(), self.owner, loc)?,
                false,
                |_| Ok(()),
            )?;
            Ok(self.touch(op))
        };
        define().map_err(|e| e.at(loc))
    }

    /// Registers a kernel: a function or closure, as for
    /// [`OpBuilder::kernel`](super::OpBuilder::kernel). The operator may be builtin, or be defined
    /// later.
    ///
    /// # Errors
    /// The name has another namespace, the key is unknown, this library already has a kernel under
    /// the key, or the signature contradicts the schema.
    #[track_caller]
    pub fn impl_<M, F: IntoKernel<M>>(&self, name: &str, key: impl IntoKey, f: F) -> Result<()> {
        self.add(name, Loc::caller(), |op, loc| {
            op.add_kernel(
                key_for(op, key, loc)?,
                Candidate::Kernel(f.into_kernel()),
                Some(F::signature()),
                self.owner,
                loc,
            )
        })
    }

    /// As [`Library::impl_`], for a kernel over boxed arguments. It has no signature to check at
    /// registration, so each call checks its arguments and results.
    ///
    /// # Errors
    /// As [`Library::impl_`].
    #[track_caller]
    pub fn impl_boxed(&self, name: &str, key: impl IntoKey, f: KernelFn) -> Result<()> {
        self.add(name, Loc::caller(), |op, loc| {
            op.add_kernel(key_for(op, key, loc)?, Candidate::Kernel(f), None, self.owner, loc)
        })
    }

    /// Registers a fallthrough: calls skip the kernels under the key. A device falls through to the
    /// default kernel, and the default key to the builtin kernel.
    ///
    /// # Errors
    /// As [`Library::impl_`].
    #[track_caller]
    pub fn impl_fallthrough(&self, name: &str, key: impl IntoKey) -> Result<()> {
        self.add(name, Loc::caller(), |op, loc| match key_for(op, key, loc)? {
            DispatchKey::Meta => Err(self.refuse("a fake kernel cannot be a fallthrough".into())),
            key => op.add_kernel(key, Candidate::Fallthrough, None, self.owner, loc),
        })
    }

    /// Registers a fake kernel; see [`Op::register_fake`].
    ///
    /// # Errors
    /// As [`Library::impl_`].
    #[track_caller]
    pub fn register_fake<M, F: IntoFake<M>>(&self, name: &str, f: F) -> Result<()> {
        self.add(name, Loc::caller(), |op, loc| {
            op.add_fake(f.into_fake(), Some(F::signature()), self.owner, loc)
        })
    }

    /// Registers a derivative, in place of an earlier one while the library lives. The operator may
    /// be builtin, or be defined later. A call that was recorded before keeps its derivative.
    ///
    /// PyTorch: `torch.library.register_autograd(…, lib=…)`.
    ///
    /// # Errors
    /// The name has another namespace, this library already has a derivative of the operator, or
    /// the operator mutates its arguments.
    #[track_caller]
    pub fn register_autograd(&self, name: &str, rule: AutogradRule) -> Result<()> {
        self.add(name, Loc::caller(), |op, loc| op.add_autograd(rule, self.owner, loc))
    }

    /// Declares the operator's effect besides its results and mutations; `None` declares that it
    /// has none.
    ///
    /// # Errors
    /// The name has another namespace, or the operator would have no purpose: it returns nothing,
    /// mutates nothing and has no effect.
    #[track_caller]
    pub fn register_effect(&self, name: &str, effect: Option<Effect>) -> Result<()> {
        self.add(name, Loc::caller(), |op, loc| op.add_effect(effect, self.owner, loc))
    }

    /// Makes the registrations permanent.
    pub fn leak(self) {
        std::mem::forget(self);
    }

    pub(super) fn add(
        &self,
        name: &str,
        loc: Loc,
        add: impl FnOnce(Op, Loc) -> Result<()>,
    ) -> Result<()> {
        let add = || {
            let full = if name.contains("::") {
                name.to_owned()
            } else {
                format!("{}::{name}", self.namespace)
            };
            let parsed = OpName::from_str(&full)?;
            if parsed.ns != self.namespace {
                return Err(self.refuse(format!(
                    "it cannot register for `{parsed}`, which is in another namespace"
                )));
            }
            add(self.touch(registry::entry(&parsed.to_string())), loc)
        };
        add().map_err(|e| e.at(loc))
    }

    fn refuse(&self, detail: String) -> Error {
        RegisterError::Library { namespace: self.namespace.clone(), made: self.loc, detail }.into()
    }

    /// Records that the library registered something for the operator, for its `Drop`.
    fn touch(&self, op: Op) -> Op {
        let mut touched = self.touched.lock().unwrap_or_else(PoisonError::into_inner);
        if !touched.contains(&op) {
            touched.push(op);
        }
        op
    }

    pub(super) fn owner(&self) -> RegistrationOwner {
        self.owner
    }
}

impl Drop for Library {
    fn drop(&mut self) {
        let touched =
            std::mem::take(self.touched.get_mut().unwrap_or_else(PoisonError::into_inner));
        touched.iter().for_each(|op| op.release(self.owner));
        if self.kind == Kind::Def {
            DEFINED.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.namespace);
        }
    }
}

impl fmt::Debug for Library {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Library({}, {:?}, {})", self.namespace, self.kind, self.loc)
    }
}

/// Defines an operator permanently, from its name and its schema without the name.
///
/// # Errors
/// As [`OpBuilder::register`](super::OpBuilder::register).
#[track_caller]
pub fn define(name: &str, schema: &str) -> Result<Op> {
    super::custom_op(name).schema(schema).register()
}

/// Registers a kernel permanently. The operator may be builtin, or be defined later.
///
/// # Errors
/// As [`Library::impl_`].
#[track_caller]
pub fn impl_<M, F: IntoKernel<M>>(name: &str, key: impl IntoKey, f: F) -> Result<()> {
    let loc = Loc::caller();
    let op = entry(name, loc)?;
    let key = key_for(op, key, loc)?;
    op.add_kernel(
        key,
        Candidate::Kernel(f.into_kernel()),
        Some(F::signature()),
        RegistrationOwner::FOREVER,
        loc,
    )
}

/// Registers a fake kernel permanently. The operator may be builtin, or be defined later.
///
/// # Errors
/// As [`Library::register_fake`].
#[track_caller]
pub fn register_fake<M, F: IntoFake<M>>(name: &str, f: F) -> Result<()> {
    let loc = Loc::caller();
    entry(name, loc)?.add_fake(f.into_fake(), Some(F::signature()), RegistrationOwner::FOREVER, loc)
}

/// Registers a derivative permanently. The operator may be builtin, or be defined later.
///
/// # Errors
/// As [`Library::register_autograd`].
#[track_caller]
pub fn register_autograd(name: &str, rule: AutogradRule) -> Result<()> {
    let loc = Loc::caller();
    entry(name, loc)?.add_autograd(rule, RegistrationOwner::FOREVER, loc)
}

/// The old name of [`register_fake`].
///
/// # Errors
/// As [`register_fake`].
#[deprecated(note = "use `register_fake`")]
#[track_caller]
pub fn impl_abstract<M, F: IntoFake<M>>(name: &str, f: F) -> Result<()> {
    register_fake(name, f)
}

/// Declares an operator's effect permanently; `None` declares that it has none.
///
/// # Errors
/// As [`Library::register_effect`].
#[track_caller]
pub fn register_effect(name: &str, effect: Option<Effect>) -> Result<()> {
    let loc = Loc::caller();
    entry(name, loc)?.add_effect(effect, RegistrationOwner::FOREVER, loc)
}

fn entry(name: &str, loc: Loc) -> Result<Op> {
    OpName::from_str(name)
        .map(|n| registry::entry(&n.to_string()))
        .map_err(|e| Error::from(e).at(loc))
}
