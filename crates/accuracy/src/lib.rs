//! Measures the errors of the elementary functions, in units in the last place (ULP), on every
//! instruction set.
//!
//! [`sweep`] evaluates a function at many bit patterns and records the largest error. [`functions`]
//! lists the functions with their `f64` references, and [`big`] has references for `f64` itself.
//! [`bounds`] holds the documented bounds, and is the only place that does. The binary `ulp`
//! measures every `f32` pattern; the test `accuracy` measures a sample.
#![deny(unsafe_code)]

pub mod big;
pub mod bounds;
pub mod functions;
pub mod report;
pub mod sweep;
pub mod ulp;

use maquette_ir::DType;
use maquette_ir::scalar_expr::{BuildError, ScalarExpr};
use maquette_kernels::{Element, Isa, KernelError, View, ViewMut, pointwise_on};

/// The reasons for which a function cannot be measured.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The scalar language rejects the function.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// The kernel failed.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// A measuring thread panicked.
    #[error("a measuring thread panicked")]
    Thread,
    /// The arbitrary-precision constants cannot be computed.
    #[error("arbitrary-precision constants: {0}")]
    Constants(String),
}

/// The instruction sets of this machine, the best one first.
pub fn instruction_sets() -> Vec<Isa> {
    let best = Isa::best();
    [Isa::Avx512, Isa::Avx2, Isa::Scalar].into_iter().filter(|i| *i <= best).collect()
}

/// A function of the scalar language.
#[derive(Clone, Copy, Debug)]
pub enum Op {
    /// A function with one argument.
    Unary(maquette_ir::scalar_expr::UnaryOp),
    /// A function with two arguments.
    Binary(maquette_ir::scalar_expr::BinaryOp),
}

impl Op {
    /// The name in the scalar language.
    pub fn name(self) -> &'static str {
        match self {
            Op::Unary(op) => op.name(),
            Op::Binary(op) => op.name(),
        }
    }

    fn expr(self, dtype: DType) -> Result<ScalarExpr, Error> {
        Ok(match self {
            Op::Unary(op) => ScalarExpr::unary(op, dtype)?,
            Op::Binary(op) => ScalarExpr::binary(op, dtype)?,
        })
    }
}

/// A function compiled for one dtype.
pub(crate) struct Kernel {
    expr: ScalarExpr,
}

impl Kernel {
    pub(crate) fn new(op: Op, dtype: DType) -> Result<Self, Error> {
        Ok(Kernel { expr: op.expr(dtype)? })
    }

    /// Evaluates the function into `out`; `y` holds the second arguments, if the function has two.
    pub(crate) fn run<T: Element>(
        &self,
        isa: Isa,
        x: &[T],
        y: &[T],
        out: &mut [T],
    ) -> Result<(), Error> {
        let mut out = [ViewMut::from_slice(out)];
        match self.expr.inputs().len() {
            1 => Ok(pointwise_on(isa, &self.expr, &[View::from_slice(x)], &mut out)?),
            _ => Ok(pointwise_on(
                isa,
                &self.expr,
                &[View::from_slice(x), View::from_slice(y)],
                &mut out,
            )?),
        }
    }
}
