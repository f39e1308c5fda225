//! Out variants: operators that write the results of a functional operator to given tensors.

use super::namespace::Library;
use super::op::Op;
use super::registrations::{Registered, RegistrationOwner, Registrations};
use super::registry;
use super::tags::Tag;
use crate::error::{Error, RegisterError, Result};
use maquette_ir::Loc;
use maquette_ir::schema::{Arg, Schema, Type};

/// The out variant of a functional operator: the registered one, or else an overload of the same
/// name with [`Tag::Out`] and the same arguments, apart from the output tensors. `None` if there is
/// none.
///
/// # Errors
/// The operator does not exist, or mutates its arguments.
pub fn to_out_variant(op: &Op) -> Result<Option<Op>> {
    let schema = op.schema()?;
    if schema.is_mutable() {
        return Err(Error::value(format!(
            "{} mutates its arguments; only a functional operator has an out variant",
            op.name()
        )));
    }
    let registered = op.lock_registrations().out_variant.last().map(|r| r.f);
    let registered = registered.filter(|out| out.schema().is_ok());
    let packet = format!("{}::{}", schema.name.ns, schema.name.name);
    let is_variant = |out: &Op| {
        out.tags().contains(Tag::Out)
            && out.schema().is_ok_and(|out| mismatch(&schema, &out).is_none())
    };
    Ok(registered.or_else(|| registry::overloads(&packet).into_iter().find(is_variant)))
}

/// Declares permanently that `out` is the out variant of `functional`. The names need not be
/// related.
///
/// # Errors
/// An operator does not exist, `out` has no [`Tag::Out`], or the arguments or results do not
/// correspond.
#[track_caller]
pub fn register_out_variant(functional: &str, out: &str) -> Result<()> {
    register(functional, out, RegistrationOwner::FOREVER, Loc::caller()).map(|_| ())
}

impl Library {
    /// As [`register_out_variant`], for the lifetime of the library. `functional` must be in the
    /// library's namespace. `out` is a full name.
    ///
    /// # Errors
    /// As [`register_out_variant`]; also if `functional` is in another namespace.
    #[track_caller]
    pub fn register_out_variant(&self, functional: &str, out: &str) -> Result<()> {
        self.add(functional, Loc::caller(), |op, loc| register(op.name(), out, self.owner(), loc))
    }
}

fn register(functional: &str, out: &str, owner: RegistrationOwner, loc: Loc) -> Result<()> {
    let register = || {
        let (op, out) = (registry::find(functional)?, registry::find(out)?);
        let invalid =
            |detail: String| Error::from(RegisterError::Invalid { op: op.name().into(), detail });
        if !out.tags().contains(Tag::Out) {
            return Err(invalid(format!(
                "{} cannot be its out variant: it has no tag `out`",
                out.name()
            )));
        }
        if let Some(why) = mismatch(&*op.schema()?, &*out.schema()?) {
            return Err(invalid(format!("{} cannot be its out variant: {why}", out.schema()?)));
        }
        op.update(|registrations| {
            Registrations::push(
                op,
                "out variant",
                &mut registrations.out_variant,
                Registered::new(out, None, owner, loc),
            )
        })
    };
    register().map_err(|e| e.at(loc))
}

/// The reason that `out` is not an out variant of `functional`; `None` if it is one.
fn mismatch(functional: &Schema, out: &Schema) -> Option<String> {
    let (mut out_args, mut functional_args) =
        (out.args.iter().filter(|a| !a.is_written()), functional.args.iter());
    let same = |a: &Arg, b: &Arg| a.name == b.name && a.ty == b.ty && a.default == b.default;
    loop {
        match (functional_args.next(), out_args.next()) {
            (None, None) => break,
            (Some(a), Some(b)) if same(a, b) => {}
            (Some(a), Some(b)) => {
                return Some(format!("it has `{b}` where the functional operator has `{a}`"));
            }
            (Some(a), None) => return Some(format!("it lacks the argument `{a}`")),
            (None, Some(b)) => {
                return Some(format!(
                    "it has the argument `{b}`, which the functional operator lacks"
                ));
            }
        }
    }
    let (written, returned) = (out.mutates().count(), functional.returns.len());
    if written != returned || functional.returns.iter().any(|r| r.ty != Type::Tensor) {
        return Some(format!(
            "it must write as many tensors as the functional operator returns ({written} written, \
                {returned} returned)"
        ));
    }
    None
}
