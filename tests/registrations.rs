//! Static registrations that fail, found at the start of a program.

use maquette::library::check_registrations;
use maquette::prelude::*;

#[custom_op("start::right")]
fn right(x: &Tensor) -> Result<Tensor> {
    x.ok().map(Tensor::clone_tensor)
}

#[custom_op("start::wrong_type", schema("(Tensor x, int n) -> Tensor"))]
fn wrong_type(x: &Tensor, n: f64) -> Result<Tensor> {
    Ok(x * n)
}

#[custom_op("start::wrong_mutation", schema("(Tensor x) -> Tensor"))]
fn wrong_mutation(x: &mut Tensor) -> Result<Tensor> {
    Ok(x.clone_tensor())
}

#[test]
fn a_schema_that_is_not_its_kernels_is_found_at_the_start() {
    let found = check_registrations().unwrap_err().to_string();
    let found: Vec<&str> = found.lines().collect();
    assert_eq!(found.first(), Some(&"2 registrations failed:"));
    let text = found.join("\n");
    for part in [
        "the operator start::wrong_type: its kernel's signature gives the schema",
        "the operator start::wrong_mutation: its kernel's signature gives the schema",
        "tests/registrations.rs:",
    ] {
        assert!(text.contains(part), "{text}");
    }
    assert!(!text.contains("start::right"), "{text}");
    right(&Tensor::from([1.0f32])).ok().unwrap();
}
