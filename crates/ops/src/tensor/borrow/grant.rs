//! The rights of a handle.

/// The kind of access a borrow permits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Shared access.
    Read,
    /// Exclusive access.
    Write,
}

impl Access {
    pub(super) const fn verb(self) -> &'static str {
        match self {
            Access::Read => "read",
            Access::Write => "write",
        }
    }

    pub(crate) const fn verb_s(self) -> &'static str {
        match self {
            Access::Read => "reads",
            Access::Write => "writes",
        }
    }
}

/// The borrow that a handle belongs to, and the rights of that borrow. A handle outside of any call
/// and run has [`Grant::NONE`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub(crate) struct Grant(u64);

impl Grant {
    pub(crate) const NONE: Grant = Grant(0);

    /// Bit 0 is the right to write. Bit 1 says that the table entry holds a tensor, bit 2 that the
    /// borrow is a reservation. The borrow's id, counted from 1, is in the bits above.
    pub(super) fn new(id: u64, access: Access, strided: bool) -> Grant {
        Grant(id << 3 | u64::from(strided) << 1 | u64::from(access == Access::Write))
    }

    pub(super) fn id(self) -> u64 {
        self.0 >> 3
    }

    /// The grant of a reservation's handles. All of them may write if the run writes any of them.
    pub(crate) fn of_reservation(self, may_write: bool) -> Grant {
        Grant(self.0 | 4 | u64::from(may_write))
    }

    /// Whether the grant belongs to a run, not to one call.
    pub(crate) fn is_reservation(self) -> bool {
        self.0 & 4 != 0
    }

    /// Whether the grant belongs to one call.
    pub(crate) fn is_of_call(self) -> bool {
        self != Grant::NONE && !self.is_reservation()
    }

    pub(super) fn is_strided(self) -> bool {
        self.0 & 2 != 0
    }

    pub(crate) fn may_write(self) -> bool {
        self.0 & 1 == 1
    }
}
