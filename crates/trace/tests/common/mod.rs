//! Operators the tests share. Each test binary registers them once.
#![allow(dead_code)]

use maquette_ir::DType;
use maquette_ops::{FakeCtx, Op, Result, Tensor, custom_op};
use std::sync::LazyLock;

/// `[n, rank]` indices of nonzero elements: a data-dependent size.
pub static NONZERO: LazyLock<Op> = LazyLock::new(|| {
    let op =
        custom_op("t::nonzero").schema("(Tensor x) -> Tensor").kernel(nonzero).register().unwrap();
    op.register_fake(|cx: &FakeCtx, x: &Tensor| -> Result<Tensor> {
        let n = cx.new_dynamic_size()?;
        Ok(Tensor::fake([n, x.dim().into()], DType::I64))
    })
    .unwrap();
    op
});

/// As [`NONZERO`], with at most two rows promised.
pub static FEW: LazyLock<Op> = LazyLock::new(|| {
    let op = custom_op("t::few").schema("(Tensor x) -> Tensor").kernel(nonzero).register().unwrap();
    op.register_fake(|cx: &FakeCtx, x: &Tensor| -> Result<Tensor> {
        Ok(Tensor::fake([cx.new_dynamic_size_in(0, 2)?, x.dim().into()], DType::I64))
    })
    .unwrap();
    op
});

/// Adds one in place.
pub static INC: LazyLock<Op> = LazyLock::new(|| {
    let kernel = |x: &mut Tensor| -> Result<()> {
        x.write::<f32>()?.mapv_inplace(|v| v + 1.0);
        Ok(())
    };
    custom_op("t::inc_").schema("(Tensor(a!) x) -> ()").kernel(kernel).register().unwrap()
});

/// Adds one in place and returns its argument.
pub static INC_RETURNED: LazyLock<Op> = LazyLock::new(|| {
    let kernel = |x: &mut Tensor| -> Result<Tensor> {
        x.write::<f32>()?.mapv_inplace(|v| v + 1.0);
        Ok(x.clone())
    };
    custom_op("t::inc_returned_")
        .schema("(Tensor(a!) x) -> Tensor(a!)")
        .kernel(kernel)
        .register()
        .unwrap()
});

/// The number of elements above a bound: an integer that depends on data.
pub static COUNT: LazyLock<Op> = LazyLock::new(|| {
    let kernel = |x: &Tensor, bound: f64| -> Result<i64> {
        Ok(x.read::<f32>()?.iter().filter(|v| f64::from(**v) > bound).count() as i64)
    };
    let op = custom_op("t::count")
        .schema("(Tensor x, float bound=0.0) -> int")
        .kernel(kernel)
        .register()
        .unwrap();
    op.register_fake(
        |cx: &FakeCtx, _x: &Tensor, _bound: f64| -> Result<maquette_ir::sym::SymInt> {
            cx.new_dynamic_size()
        },
    )
    .unwrap();
    op
});

fn nonzero(x: &Tensor) -> Result<Tensor> {
    let x = x.read::<f32>()?;
    let found: Vec<i64> = x
        .indexed_iter()
        .filter(|(_, v)| **v != 0.0)
        .flat_map(|(i, _)| (0..x.ndim()).map(move |d| i[d] as i64).collect::<Vec<_>>())
        .collect();
    let rows = found.len().checked_div(x.ndim()).unwrap_or(0);
    Ok(Tensor::from_vec(found, [rows as i64, x.ndim() as i64]))
}

/// Calls an operator for its only tensor.
#[track_caller]
pub fn call(op: &Op, args: maquette_ops::Args) -> Result<Tensor> {
    op.call(args)?
        .first()
        .map_or_else(|| Err(maquette_ops::Error::msg("no output")), |v| v.tensor().cloned())
}

pub fn vector(n: usize) -> Tensor {
    Tensor::from_vec((0..n).map(|i| i as f32 - 1.5).collect(), [n as i64])
}

pub fn matrix(rows: usize, columns: usize) -> Tensor {
    Tensor::from_vec(
        (0..rows * columns).map(|i| i as f32 - 2.0).collect(),
        [rows as i64, columns as i64],
    )
}

pub fn values(t: &Tensor) -> Vec<f32> {
    t.to_vec().unwrap()
}
