//! An operator that returns a view, with a promise that may differ. The tests of `opcheck` use it
//! too.

use maquette_ops::{FakeCtx, Op, Result, Tensor, custom_op};
use std::ops::Range;

/// An operator whose kernel returns the rows `real`, and whose fake kernel promises `promised`.
pub fn rows(name: &str, real: Range<i64>, promised: Range<i64>) -> Op {
    let op = custom_op(name)
        .schema("(Tensor(a) x) -> Tensor(a)")
        .kernel(move |x: &Tensor| -> Result<Tensor> { Ok(x.slice(0, real.clone())) })
        .register()
        .unwrap();
    op.register_fake(move |_: &FakeCtx, x: &Tensor| -> Result<Tensor> {
        Ok(x.slice(0, promised.clone()))
    })
    .unwrap();
    op
}
