//! Operators: defining them, registering kernels for them, and checking that they keep their
//! contract.

#[cfg(feature = "check")]
pub use maquette_check::opcheck::{OpcheckError, OpcheckOptions, opcheck, opcheck_with};
pub use maquette_ops::library::*;
