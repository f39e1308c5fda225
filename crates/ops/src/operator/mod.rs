//! The vocabulary of builtin operators: what a row of a table says ([`OpDef`]), how operators are
//! computed ([`Lowering`]), and what the rows compute with. The rows are in the crate
//! `maquette-aten`, which registers each table here ([`table!`](crate::operator::table)).
//!
//! An entry has a schema, a [`Lowering`] and a [`Role`]. The fake kernel, the host kernel and the
//! kernel class for backends all follow from the lowering (`execute`). The role states the facts
//! that passes use and that follow from neither schema nor lowering.
//!
//! This module is for crates of operators, and no part of the public interface.

mod class;
pub mod dims;
pub(crate) mod execute;
pub mod host;
pub(crate) mod host_fallback;
pub mod loops;
pub mod lowering;
pub mod number;
mod on_device;
pub mod pointwise;
mod reduction;
pub mod reshape;
mod role;

pub use crate::autograd::grad_mode::{is_grad_enabled, with_grad};
pub use crate::autograd::history::requires_grad;
pub use crate::autograd::layout::repeats;
pub use crate::autograd::rule::{Backward, Derivative, RuleDef, Saved, ZEROS};
pub use crate::autograd::strided::{Placed, positions, span};
pub use crate::dispatch::cpu_exec;
pub use crate::methods::Builtin;
pub use crate::methods::calls::results;
pub use crate::tensor::dims_text;
pub use crate::tensor::overlap::{may_overlap, may_self_overlap};
pub use crate::tensor::shape::{require_equal, require_same, wrap_dim};
pub use crate::{aten, aten_outputs};
pub use execute::fits_into;
pub use host_fallback::{
    HostFallback, host_fallback_counts, set_host_fallback, with_host_fallback,
};
pub use lowering::{Class, Compute, Lowering, Metas, Pointwise, PointwiseCx, Strides, Types};
pub use reduction::Reduction;
pub use role::Role;

use maquette_ir::Loc;

/// A builtin operator.
pub struct OpDef {
    /// PyTorch's schema, name included.
    pub schema: &'static str,
    /// The facts that passes use and that follow from neither the schema nor the lowering.
    pub role: Role,
    /// How the operator is computed.
    pub lowering: Lowering,
    /// How gradients of the results become gradients of the operands.
    pub derivative: Derivative,
    /// The source location of the entry, or of the macro call that makes it.
    pub loc: Loc,
}

impl OpDef {
    /// A table entry. Without a derivative, a scalar expression has its own, and composites and
    /// in-place operators have that of the operators that they call. Of every other entry a missing
    /// derivative is an error of the build.
    pub const fn new(
        schema: &'static str,
        role: Role,
        lowering: Lowering,
        derivative: Option<Derivative>,
        loc: Loc,
    ) -> OpDef {
        let derivative = match derivative {
            Some(derivative) => derivative,
            None => match lowering.derivative(role) {
                Some(derivative) => derivative,
                None => panic!("the table entry has no derivative, and none follows from it"),
            },
        };
        OpDef { schema, role, lowering, derivative, loc }
    }

    /// Whether the result is the first argument, which the call writes.
    pub(crate) fn writes_its_result(&self) -> bool {
        self.schema.contains("(Tensor(a!) self") && self.schema.ends_with("-> Tensor(a!)")
    }

    /// The full name, `aten::add.Tensor`.
    pub fn name(&self) -> &'static str {
        self.schema.split_once('(').map_or(self.schema, |(name, _)| name)
    }
}

/// A table of builtin operators, as [`table!`](crate::operator::table) registers it.
pub struct Table(pub &'static &'static [OpDef]);

/// Gives the reason why an operator of PyTorch is missing, by its name with the namespace.
pub struct Missing(pub fn(&str) -> Option<&'static str>);

inventory::collect!(Table);
inventory::collect!(Missing);

/// Registers the table that a static holds.
#[macro_export]
#[doc(hidden)]
macro_rules! register_table {
    ($table:ident) => {
        $crate::inventory::submit! { $crate::operator::Table(&$table) }
    };
}

/// A row of a table: `"schema" => { role: ROLE, lowering: LOWERING, vjp: DERIVATIVE }`. The fields
/// are in this order, and only `vjp` may be absent, if it follows from the lowering
/// ([`OpDef::new`](crate::operator::OpDef)).
#[macro_export]
#[doc(hidden)]
macro_rules! op_row {
    ($schema:expr => {
        role: $role:ident $(($of:ident))?, lowering: $lowering:expr $(, vjp: $vjp:expr)? $(,)?
    }) => {
        $crate::operator::OpDef::new(
            $schema,
            $crate::operator::Role::$role $(($crate::__private::ArithOp::$of))?,
            $lowering,
            $crate::operator::optional!($($vjp)?),
            $crate::__private::Loc { file: file!(), line: line!() },
        )
    };
}

/// Defines and registers a table of [rows](crate::operator::op_row).
#[macro_export]
#[doc(hidden)]
macro_rules! table {
    ($(#[$doc:meta])* static $name:ident = { $($schema:expr => { $($row:tt)* },)* }) => {
        $(#[$doc])*
        static $name: &[$crate::operator::OpDef] =
            &[$($crate::operator::op_row!($schema => { $($row)* })),*];
        $crate::operator::register_table!($name);
    };
}

/// `Some` of an expression, or `None` without one.
#[macro_export]
#[doc(hidden)]
macro_rules! optional_field {
    () => {
        None
    };
    ($e:expr) => {
        Some($e)
    };
}
pub use crate::optional_field as optional;
pub use crate::{op_row, register_table, table};

/// Whether a name is in a namespace that is reserved for the builtin operators: `aten::`, `grad::`
/// for the derivatives of scalar expressions, or `fast::` for what compiled programs call in place
/// of operators that round otherwise.
pub fn is_builtin_name(op: &str) -> bool {
    ["aten::", "grad::", "fast::"].iter().any(|namespace| op.starts_with(namespace))
}

/// Which arguments of an operator may be on the host while others are on a device, as text.
pub fn from_host(op: crate::Op) -> String {
    let of = crate::dispatch::device::from_host;
    op.state().map(|state| format!("{:?}", of(&state))).unwrap_or_default()
}

/// The operators that autocast names, list by list.
pub fn autocast_lists() -> [&'static [&'static str]; 3] {
    crate::dispatch::autocast::lists()
}

/// The rows of all tables that are linked.
pub(crate) fn builtins() -> impl Iterator<Item = &'static OpDef> {
    inventory::iter::<Table>.into_iter().flat_map(|table| table.0.iter())
}

/// Why a builtin operator is missing, if it is known.
pub(crate) fn missing(name: &str) -> Option<&'static str> {
    const NOT_LINKED: &str = "the program has no builtin operators: depend on `maquette-aten`, and \
        name it once, by `use maquette_aten as _;`";
    let is_linked = inventory::iter::<Table>.into_iter().next().is_some();
    match is_linked || !is_builtin_name(name) {
        true => inventory::iter::<Missing>.into_iter().find_map(|missing| (missing.0)(name)),
        false => Some(NOT_LINKED),
    }
}
