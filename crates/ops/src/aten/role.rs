//! The role of an operator: the facts that passes use and neither its schema nor its lowering
//! tells. Every entry of a table states one.

use crate::dispatch::device::FromHost;
use maquette_ir::graph::ArithOp;

/// The facts about one operator. The roles exclude each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Passes know its schema and its lowering only.
    General,
    /// Its only result has the elements of its first argument in row-major order, converted where
    /// the dtypes differ.
    PreservesElements,
    /// The elements that it makes or writes are elements of the first operand that is only read,
    /// at most converted.
    MovesElements,
    /// As [`Role::MovesElements`] of its second operand, which may be on another device.
    CopiesAcrossDevices,
    /// Its result depends on the metadata of its first argument, and not on the contents.
    IgnoresContents,
    /// Its results are numbers that the types of its arguments tell.
    MetadataQuery,
    /// It reads the storage of its argument, beyond the argument's own elements.
    ObservesStorage,
    /// A view by an absolute offset into the storage, which its fourth argument gives. The view may
    /// reach elements that its first argument does not have.
    AddressesStorage,
    /// Its argument `indices` may be on the host while the others are on a device.
    TakesHostIndices,
    /// Its 0-d operands may be on the host while the others are on a device.
    TakesHostNumbers,
    /// A function that rewriting knows.
    Arith(ArithOp),
    /// As [`Role::Arith`] where the argument `alpha` is 1.
    ArithUnlessScaled(ArithOp),
}

impl Role {
    /// Whether the result has the elements of the first argument in row-major order.
    pub(crate) const fn preserves_elements(self) -> bool {
        match self {
            Role::PreservesElements => true,
            Role::General
            | Role::MovesElements
            | Role::CopiesAcrossDevices
            | Role::IgnoresContents
            | Role::MetadataQuery
            | Role::ObservesStorage
            | Role::AddressesStorage
            | Role::TakesHostIndices
            | Role::TakesHostNumbers
            | Role::Arith(_)
            | Role::ArithUnlessScaled(_) => false,
        }
    }

    /// Whether the operator only moves elements of the first operand that it only reads.
    pub(crate) const fn is_data_movement(self) -> bool {
        match self {
            Role::PreservesElements | Role::MovesElements => true,
            // the first operand that it only reads is the tensor whose elements it ignores
            Role::CopiesAcrossDevices => false,
            Role::General
            | Role::IgnoresContents
            | Role::MetadataQuery
            | Role::ObservesStorage
            | Role::AddressesStorage
            | Role::TakesHostIndices
            | Role::TakesHostNumbers
            | Role::Arith(_)
            | Role::ArithUnlessScaled(_) => false,
        }
    }

    /// What may be on the host in a call on another device; `None` where the lowering tells.
    pub(crate) const fn host_args(self) -> Option<FromHost> {
        match self {
            Role::CopiesAcrossDevices => Some(FromHost::Anything),
            Role::TakesHostIndices => Some(FromHost::Indices),
            Role::TakesHostNumbers => Some(FromHost::Numbers),
            Role::General
            | Role::PreservesElements
            | Role::MovesElements
            | Role::IgnoresContents
            | Role::MetadataQuery
            | Role::ObservesStorage
            | Role::AddressesStorage
            | Role::Arith(_)
            | Role::ArithUnlessScaled(_) => None,
        }
    }

    /// The function that the operator computes; `scaled`: of an operand times an `alpha` that is
    /// not 1.
    pub(crate) const fn arith_op(self, scaled: bool) -> Option<ArithOp> {
        match self {
            Role::Arith(op) => Some(op),
            Role::ArithUnlessScaled(op) if !scaled => Some(op),
            Role::ArithUnlessScaled(_)
            | Role::General
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

    /// The argument that is an absolute offset into the storage.
    pub(crate) const fn absolute_offset_arg(self) -> Option<usize> {
        match self {
            Role::AddressesStorage => Some(3),
            Role::General
            | Role::PreservesElements
            | Role::MovesElements
            | Role::CopiesAcrossDevices
            | Role::IgnoresContents
            | Role::MetadataQuery
            | Role::ObservesStorage
            | Role::TakesHostIndices
            | Role::TakesHostNumbers
            | Role::Arith(_)
            | Role::ArithUnlessScaled(_) => None,
        }
    }

    /// The operand whose elements the result has, where that is not the first.
    pub(crate) const fn copied_operand(self) -> Option<usize> {
        match self {
            Role::CopiesAcrossDevices => Some(1),
            Role::General
            | Role::PreservesElements
            | Role::MovesElements
            | Role::IgnoresContents
            | Role::MetadataQuery
            | Role::ObservesStorage
            | Role::AddressesStorage
            | Role::TakesHostIndices
            | Role::TakesHostNumbers
            | Role::Arith(_)
            | Role::ArithUnlessScaled(_) => None,
        }
    }
}
