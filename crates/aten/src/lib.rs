//! The builtin operators, with ATen's names and schemas: one row of a table for each, and the rules
//! of their derivatives. Each family of operators is a folder.
//!
//! A program needs this crate only to be linked: each table registers itself when the program
//! starts, and `maquette_ops` finds the operators by name. What a row says is the vocabulary of
//! `maquette_ops::operator`.
//!
//! Most operators lower to data: a pointwise expression or a loop nest. Others lower to a class of
//! `maquette_kernels`, and rare ones to a plain loop over host data. `unsupported` lists the
//! operators of PyTorch that are missing.
#![deny(unsafe_code, unsafe_op_in_unsafe_fn)]
#![warn(missing_docs)]

mod checks;
mod create;
mod functional;
mod grad;
mod image;
mod index;
mod linalg;
mod loss;
mod norm;
mod number;
mod order;
mod pointwise;
mod product;
mod reduce;
mod shape;
mod special;
mod unsupported;

pub use product::attention_parts;
pub use unsupported::{all_unsupported, unsupported};
