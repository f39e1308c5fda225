//! Calls that PyTorch made, against the same operators here.
//!
//! A folder holds an operator a pair of files, `NAME.OVERLOAD.json` (the calls) and
//! `NAME.OVERLOAD.safetensors` (their storages). Every call is made three times: eagerly; traced
//! with its sizes as numbers, and run; traced with every size a symbol, and run. Each time the
//! sizes, strides, offset, dtype and values of the outputs must agree, and so must the arguments
//! after a call that writes them. Running a graph compares what its fake kernels promised with what
//! the kernels give.
//!
//! Differences that are known are listed beside the calls, with the reasons (`known`).
//!
//! A folder of gradients has the same format; each call is differentiated eagerly (`gradient`).
//! Recordings of training have a format of their own (`train`).
#![deny(unsafe_code)]

mod compare;
mod docs;
mod file;
mod gradient;
mod known;
mod recorded;
mod report;
mod run;
mod store;
mod train;

pub use docs::markdown;
pub use file::{ConformError, File, RecordedFile, operator_files, parse_names};
pub use known::KnownDifferences;
/// How often each operator has run on the host for tensors of another device.
pub use maquette_ops::operator::host_fallback_counts;
pub use report::{CallReport, Failure, OperatorReport, Stage};
pub use run::{CallResult, check_file};
pub use train::{Recording, TrainReport, check_training};
