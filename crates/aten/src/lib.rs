//! The builtin operators, with ATen's names and schemas: one row of a table for each, and the rules
//! of their derivatives. Each family of operators is a file or a folder with a table.
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

mod alias;
mod arrange;
mod attention;
pub mod attention_parts;
mod batch_norm;
mod calculus;
mod checks;
mod classification;
mod combinatorics;
mod convolution;
mod copies;
mod creation;
mod distance;
mod einsum;
mod embedding;
mod expand;
mod functional;
mod grad;
mod indexing;
mod join;
mod layers;
mod linalg;
mod loss;
mod matmul;
mod matrix;
mod norm;
mod number;
mod order;
mod permute;
mod pointwise;
mod pooling;
mod products;
mod random;
mod ranges;
mod reduce;
mod rnn;
mod scan;
mod scatter;
mod shift;
mod slices;
mod slicing;
mod softmax;
mod sort;
mod spatial;
mod special;
mod split;
mod structure;
mod take;
mod unsupported;
mod variance;
mod vector_norm;
mod view_scatter;
mod views;

pub use unsupported::{all_unsupported, unsupported};
