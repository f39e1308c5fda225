//! A program that does not link the crate of the builtin operators.

use maquette_ops::Op;

#[test]
fn an_operator_that_is_not_linked_says_so() {
    let e = Op::find("aten::add.Tensor").unwrap_err().to_string();
    assert!(e.contains("`use maquette_aten as _;`"), "{e}");
    let e = Op::find("own::add").unwrap_err().to_string();
    assert!(!e.contains("maquette_aten"), "{e}");
}
