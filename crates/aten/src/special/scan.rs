//! `logcumsumexp`: a scan with `log(exp(a) + exp(b))`.

use super::elementwise::Takes;
use maquette_ops::operator::lowering::{Class, Compute, How, Lowering, Metas, Strides};
use maquette_ops::operator::wrap_dim;
use maquette_ops::operator::{host, table};
use maquette_ops::{Meta, Result, Tensor, Value};
use smallvec::smallvec;

/// The metadata of `self, dim`: row-major.
fn metas(args: &[Value]) -> Result<Metas> {
    let x = args[0].tensor()?;
    wrap_dim(args[1].int_i64()?, x.dim())?;
    Ok(smallvec![Meta::contiguous(x.sizes(), Takes::Floats.dtype(&args[..1])?).on(x.device())])
}

/// `log(exp(a) + exp(b))` without overflow. Equal infinities are returned as they are.
fn log_add(a: f64, b: f64) -> f64 {
    if a.is_nan() || b.is_nan() {
        return f64::NAN;
    }
    let (least, greatest) = (a.min(b), a.max(b));
    if least == greatest && least.is_infinite() {
        least
    } else {
        greatest + libm::log1p(libm::exp(least - greatest))
    }
}

fn run(args: &[Value], outs: &[Tensor]) -> Result<()> {
    let x = args[0].tensor()?;
    let (sizes, dim) = (host::sizes(x)?, wrap_dim(args[1].int_i64()?, x.dim())?);
    let extent = sizes.get(dim).copied().unwrap_or(1);
    let inner: usize = host::count(sizes.get(dim + 1..).unwrap_or_default());
    let mut values = host::reals(x)?;
    for block in values.chunks_mut(extent.saturating_mul(inner).max(1)) {
        for i in inner..block.len() {
            block[i] = log_add(block[i], block[i - inner]);
        }
    }
    host::store_reals(&outs[0], &values)
}

const LOWERING: Lowering = Lowering::Compute(Compute {
    class: Class::Scan,
    strides: Strides::RowMajor,
    metas: |_, a| metas(a),
    how: How::Host(run),
});

table! {
    /// Scans of exponentials.
    static TABLE = {
        "aten::logcumsumexp(Tensor self, int dim) -> Tensor" => {
            role: General,
            lowering: LOWERING,
            vjp: crate::grad::LOGCUMSUMEXP,
        },
        "aten::_logcumsumexp(Tensor self, int dim) -> Tensor" => {
            role: General,
            lowering: LOWERING,
            vjp: crate::grad::LOGCUMSUMEXP,
        },
    }
}
