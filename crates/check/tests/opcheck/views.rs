//! Operators that return views.

use super::{floats, report};
use maquette_check::opcheck::Check;
use maquette_ops::args;

#[path = "../../../driver/tests/common/rows.rs"]
mod rows;
use rows::rows;

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
