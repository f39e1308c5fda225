//! Operators that return views.

use super::{floats, report};
use maquette_check::opcheck::Check;
use maquette_ops::{FakeCtx, Op, Result, Tensor, args, custom_op};
use std::ops::Range;

/// An operator whose kernel returns the rows `real`, and whose fake kernel promises `promised`.
fn rows(name: &str, real: Range<i64>, promised: Range<i64>) -> Op {
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

#[test]
fn a_view_at_another_offset_than_promised_is_a_finding() {
    let report = report(&rows("bad::rows", 2..4, 0..2), args![floats(5)]);
    assert!(report.failed().contains(&Check::Fake), "{report}");
    let text = report.to_string();
    assert!(
        text.contains("offset: the fake kernel promises 0, but the kernel returned 2"),
        "{text}"
    );
}

#[test]
fn a_view_as_promised_passes() {
    let report = report(&rows("good::rows", 1..2, 1..2), args![floats(5)]);
    assert!(report.failed().is_empty(), "{report}");
}
