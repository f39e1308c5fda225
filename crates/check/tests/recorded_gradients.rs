//! The gradients that PyTorch recorded, and the gradients of these, against those here.

use maquette_check::conform::{File, check_file, operator_files};
use std::path::Path;

/// Operators of which some gradients differ: exactly how many, and why.
const EXCEPTIONS: &[(&str, usize, &str)] = &[
    (
        "aten::_scaled_dot_product_flash_attention_for_cpu",
        1,
        "the gradient of a query is 0 in exact arithmetic, and rounding errors differ",
    ),
    ("aten::addbmm_", 1, "PyTorch resizes a `self` that is too small"),
    (
        "aten::as_strided_scatter",
        4,
        "PyTorch takes the gradient of `self` from the memory around the operand",
    ),
    ("aten::atan2", 1, "PyTorch's second derivative at (0, 0) is NaN where its first is 0"),
    ("aten::embedding", 1, "PyTorch's second derivative ignores the frequencies of rows"),
    ("aten::kthvalue", 1, "equal elements: the position that is chosen is open"),
    ("aten::linalg_matrix_norm.str_ord", 1, "the nuclear norm is not supported"),
    ("aten::logical_and_", 2, ALTERED),
    ("aten::logical_not_", 2, ALTERED),
    ("aten::logical_or_", 2, ALTERED),
    ("aten::logical_xor_", 1, ALTERED),
    (
        "aten::native_layer_norm",
        1,
        "the gradient is 0 in exact arithmetic, and rounding errors differ",
    ),
    ("aten::rrelu", 2, "random slopes are not supported"),
    ("aten::rrelu_", 1, "random slopes are not supported"),
    ("aten::scaled_dot_product_attention", 4, "dropout inside of attention is not supported"),
    ("aten::special_bessel_j0", 1, FARTHER),
    ("aten::special_bessel_j1", 1, FARTHER),
    ("aten::special_bessel_y0", 1, FARTHER),
    ("aten::topk", 1, "equal elements: the positions that are chosen are open"),
    ("aten::triangular_solve", 1, FARTHER),
];

const ALTERED: &str = "PyTorch passes the gradient through a write that discards the operand";
const FARTHER: &str = "PyTorch's result is farther from the exact one";

#[test]
fn gradients_agree_but_for_the_exceptions() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/grad");
    let (mut wrong, mut calls, mut failed) = (Vec::new(), 0, 0);
    for path in operator_files(&folder, None).unwrap() {
        let (report, _) = check_file(&File::read(&path).unwrap());
        let allowed =
            EXCEPTIONS.iter().find(|(name, ..)| *name == report.name).map_or(0, |(_, n, _)| *n);
        if report.failed() != allowed {
            wrong.push(format!("{}: {} differ, not {allowed}", report.name, report.failed()));
            wrong.extend(report.failures().map(|(i, f)| format!("  call {i}, {f}")));
        }
        calls += report.calls.len();
        failed += report.failed();
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(calls > 2_700 && failed * 33 < calls, "{failed} of {calls}");
}
