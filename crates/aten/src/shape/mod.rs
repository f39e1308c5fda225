//! Views, and operators that arrange elements anew.

pub(crate) mod arrange;
pub(crate) mod combinatorics;
pub(crate) mod derivative;
pub(crate) mod expand;
pub(crate) mod join;
pub(crate) mod permute;
pub(crate) mod shift;
pub(crate) mod slicing;
pub(crate) mod split;
pub(crate) mod structure;
pub(crate) mod views;
