//! The compiled runtime: executes planned programs, with everything decided before the call that
//! does not depend on data.
//!
//! ```text
//! graph ─ passes ─ program form ─ instantiate (per shape) ─ run
//!         maquette-pipeline       this crate
//! ```
//!
//! An [`Executable`] is made of the form of a program that the last pass leaves; this crate calls
//! no pass. It is a planned program. Its first call with inputs of given layouts makes an
//! *instance* (`instance`): a flat list of steps, in which every size, stride, argument and kernel
//! is a constant, and every value has a base and an offset. Later calls with inputs of these
//! layouts fill in the addresses of the bases and walk the list (`run`). A step launches a kernel
//! at addresses ([`PreparedCall`](maquette_ops::PreparedCall)), or calls an operator that the
//! runtime cannot look into, through the dispatcher, with handles to the same memory.
//!
//! Sizes that depend on data split an instance into *segments*. A segment ends with the step that
//! binds such a size. The next segment is found by its value.
//!
//! New memory of a segment lies in one *arena*, whose layout is found once for an instance
//! (`arena_layout`). Calls of one executable share a pool of arenas, one for each concurrent call.
//!
//! **Invariant:** a run has the results, mutations, aliases, effects and errors of the reference
//! interpreter in the same plan ([`maquette_interp`]). It is stricter with kernels: a kernel may
//! neither keep a guard of its argument nor discard the error of a write to it.
#![deny(unsafe_code, unsafe_op_in_unsafe_fn)]
#![warn(missing_docs)]

mod arena_layout;
mod executable;
mod frozen;
mod instance;
pub mod memory_map;
mod outputs;
mod packed_weights;
pub mod peaks;
mod planned;
pub mod profile;
mod region_nodes;
mod run;
mod unplanned;

pub use executable::Executable;
pub use frozen::Weights;
#[doc(hidden)]
pub use instance::LayoutStamp;
