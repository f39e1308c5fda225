//! What the macros refuse, and with which words at which tokens. `TRYBUILD=overwrite cargo test -p
//! maquette-tests --test ui` writes the answers anew.

#[test]
fn refusals() {
    trybuild::TestCases::new().compile_fail("ui/*.rs");
}
