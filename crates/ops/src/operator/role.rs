//! The role of an operator: facts that passes use and that follow from neither the schema nor the
//! lowering. Every table entry states one role.

use crate::dispatch::device::FromHost;
use maquette_ir::graph::ArithOp;

/// The facts about one operator. The roles are mutually exclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// No facts beyond the schema and the lowering.
    General,
    /// The only result has the elements of the first argument in row-major order, converted if the
    /// dtypes differ.
    PreservesElements,
    /// Data movement: each element that the operator returns or writes is an element of the first
    /// operand that it does not write, possibly converted.
    MovesElements,
    /// The result is the concatenation of the tensors in the first argument, along the dimension
    /// that is the second.
    Concatenates,
    /// As [`Role::MovesElements`] for the second operand, which may be on another device.
    CopiesAcrossDevices,
    /// The result depends on the metadata of the first argument and not on its contents.
    IgnoresContents,
    /// The results are numbers that follow from the metadata of the arguments.
    MetadataQuery,
    /// The operator reads the storage of its argument beyond the argument's own elements, or the
    /// offset into it.
    ObservesStorage,
    /// A view at an absolute offset into the storage, given by the fourth argument. The view may
    /// reach elements outside the first argument.
    AddressesStorage,
    /// The argument `indices` may be on the host while the other arguments are on a device.
    TakesHostIndices,
    /// 0-d operands may be on the host while the other arguments are on a device.
    TakesHostNumbers,
    /// A view that has no part in the history of gradients.
    Detaches,
    /// An arithmetic function that rewrite rules know.
    Arith(ArithOp),
    /// As [`Role::Arith`] if the argument `alpha` is 1.
    ArithUnlessScaled(ArithOp),
}

/// The facts that a role without an [`ArithOp`] states. Each fact has one place, so that a new role
/// is one arm of [`Role::facts`].
struct RoleFacts {
    preserves_elements: bool,
    is_data_movement: bool,
    host_args: Option<FromHost>,
    absolute_offset_arg: Option<usize>,
    copied_operand: Option<usize>,
}

/// A role that states none of the facts.
const NO_FACTS: RoleFacts = RoleFacts {
    preserves_elements: false,
    is_data_movement: false,
    host_args: None,
    absolute_offset_arg: None,
    copied_operand: None,
};

impl Role {
    /// The facts of the role.
    const fn facts(self) -> RoleFacts {
        match self {
            Role::General
            | Role::Concatenates
            | Role::Detaches
            | Role::IgnoresContents
            | Role::MetadataQuery
            | Role::ObservesStorage
            | Role::Arith(_)
            | Role::ArithUnlessScaled(_) => NO_FACTS,
            Role::PreservesElements => {
                RoleFacts { preserves_elements: true, is_data_movement: true, ..NO_FACTS }
            }
            Role::MovesElements => RoleFacts { is_data_movement: true, ..NO_FACTS },
            // Not data movement: the first operand that the operator only reads is the tensor
            // whose elements it ignores.
            Role::CopiesAcrossDevices => RoleFacts {
                host_args: Some(FromHost::Anything),
                copied_operand: Some(1),
                ..NO_FACTS
            },
            Role::AddressesStorage => RoleFacts { absolute_offset_arg: Some(3), ..NO_FACTS },
            Role::TakesHostIndices => RoleFacts { host_args: Some(FromHost::Indices), ..NO_FACTS },
            Role::TakesHostNumbers => RoleFacts { host_args: Some(FromHost::Numbers), ..NO_FACTS },
        }
    }

    /// Whether the result has the elements of the first argument in row-major order.
    pub(crate) const fn preserves_elements(self) -> bool {
        self.facts().preserves_elements
    }

    /// Whether the operator only moves elements of the first operand that it does not write.
    pub(crate) const fn is_data_movement(self) -> bool {
        self.facts().is_data_movement
    }

    /// The arguments that may be on the host in a call on another device. If `None`, the lowering
    /// decides.
    pub(crate) const fn host_args(self) -> Option<FromHost> {
        self.facts().host_args
    }

    /// The index of the argument that is an absolute offset into the storage.
    pub(crate) const fn absolute_offset_arg(self) -> Option<usize> {
        self.facts().absolute_offset_arg
    }

    /// The index of the operand whose elements the result has, if it is not the first.
    pub(crate) const fn copied_operand(self) -> Option<usize> {
        self.facts().copied_operand
    }

    /// The function that the operator computes. `scaled` says that the call multiplies an operand
    /// by an `alpha` other than 1.
    pub(crate) const fn arith_op(self, scaled: bool) -> Option<ArithOp> {
        match self {
            Role::Arith(op) => Some(op),
            Role::ArithUnlessScaled(op) if !scaled => Some(op),
            Role::ArithUnlessScaled(_)
            | Role::General
            | Role::Concatenates
            | Role::Detaches
            | Role::PreservesElements
            | Role::MovesElements
            | Role::CopiesAcrossDevices
            | Role::IgnoresContents
            | Role::MetadataQuery
            | Role::ObservesStorage
            | Role::AddressesStorage
            | Role::TakesHostIndices
            | Role::TakesHostNumbers => None,
        }
    }
}
