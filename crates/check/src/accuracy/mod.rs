//! How far the elementary functions are from the truth, in units in the last place (ULP), on every
//! instruction set.
//!
//! `sweep` runs a function over bit patterns and keeps the worst; `functions` lists what there is
//! to run, each with its reference in `f64`, `big` has the references of `f64` itself; `bounds` is
//! what is promised, and the one place that says so. The binary `ulp` runs every pattern, the test
//! `accuracy` a sample.

pub mod big;
pub mod bounds;
pub mod functions;
pub mod report;
pub mod sweep;
pub mod ulp;

use maquette_ir::DType;
use maquette_ir::scalar_expr::{BuildError, ScalarExpr};
use maquette_kernels::{Element, Isa, KernelError, View, ViewMut, pointwise_on};

/// Why a function could not be measured.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The scalar language refused the function.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// The kernel failed.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// A measuring thread ended without a result.
    #[error("a measuring thread panicked")]
    Thread,
    /// Arbitrary-precision constants could not be made.
    #[error("arbitrary-precision constants: {0}")]
    Constants(String),
}

/// The instruction sets this machine has, the best first.
pub fn instruction_sets() -> Vec<Isa> {
    let best = Isa::best();
    [Isa::Avx512, Isa::Avx2, Isa::Scalar].into_iter().filter(|i| *i <= best).collect()
}

/// A function of the scalar language.
#[derive(Clone, Copy, Debug)]
pub enum Op {
    /// Of one argument.
    Unary(maquette_ir::scalar_expr::UnaryOp),
    /// Of two arguments.
    Binary(maquette_ir::scalar_expr::BinaryOp),
}

impl Op {
    /// Its name in the scalar language.
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

/// A function ready to run on one dtype.
pub(crate) struct Kernel {
    expr: ScalarExpr,
}

impl Kernel {
    pub(crate) fn new(op: Op, dtype: DType) -> Result<Self, Error> {
        Ok(Kernel { expr: op.expr(dtype)? })
    }

    /// Fills `out`; `y` is the second argument, of a function that has one.
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
