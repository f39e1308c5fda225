//! What a caller asks of the passes.

use crate::{FastMath, Pass};
use maquette_ir::program_form::ProgramForm;
use maquette_ops::Result;
use maquette_rewrite::{Options, Rematerialization};

/// Measures the bytes of memory that a program needs, beside inputs, constants and outputs.
pub(crate) type Measure<'a> = &'a dyn Fn(ProgramForm) -> Result<u64>;

/// Options of the passes. By default, every pass runs that keeps each bit and needs no request.
#[derive(Clone)]
pub struct PassOptions<'a> {
    pub(crate) fast_math: FastMath,
    pub(crate) decompose: bool,
    pub(crate) functionalize: Options,
    pub(crate) rematerialize: Option<Rematerialization>,
    pub(crate) measure: Option<Measure<'a>>,
    pub(crate) until: Option<Pass>,
}

impl Default for PassOptions<'_> {
    fn default() -> Self {
        PassOptions {
            fast_math: FastMath::new(),
            decompose: true,
            functionalize: Options::new(),
            rematerialize: None,
            measure: None,
            until: None,
        }
    }
}

impl<'a> PassOptions<'a> {
    /// The default options.
    pub fn new() -> PassOptions<'a> {
        PassOptions::default()
    }

    /// Allows rewrites that change bits of results; none by default.
    pub fn fast_math(self, flags: FastMath) -> PassOptions<'a> {
        PassOptions { fast_math: flags, ..self }
    }

    /// Whether composites are decomposed; `true` by default.
    pub fn decompose(self, yes: bool) -> PassOptions<'a> {
        PassOptions { decompose: yes, ..self }
    }

    /// How the program is made functional.
    pub fn functionalize(self, options: Options) -> PassOptions<'a> {
        PassOptions { functionalize: options, ..self }
    }

    /// Computes values again in place of keeping them. The bound is one of the
    /// [estimate](maquette_rewrite::estimated_peak), unless the memory is
    /// [measured](PassOptions::measured_by).
    pub fn rematerialize(self, options: Rematerialization) -> PassOptions<'a> {
        PassOptions { rematerialize: Some(options), ..self }
    }

    /// Measures the memory of programs that compute values again. `bytes` gets a program as the
    /// last pass leaves it, and returns the bytes that it needs beside inputs, constants and
    /// outputs.
    pub fn measured_by(self, bytes: &'a dyn Fn(ProgramForm) -> Result<u64>) -> PassOptions<'a> {
        PassOptions { measure: Some(bytes), ..self }
    }

    /// Ends the list after a pass.
    pub fn until(self, pass: Pass) -> PassOptions<'a> {
        PassOptions { until: Some(pass), ..self }
    }
}
