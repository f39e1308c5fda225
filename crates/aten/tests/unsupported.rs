//! The list of missing operators against the tables.

use maquette_aten::all_unsupported;
use maquette_ops::library::all;

#[test]
fn unsupported_operators_are_not_in_the_tables() {
    for (name, _) in all_unsupported() {
        let full = format!("aten::{name}");
        assert!(all().iter().all(|op| op.name() != full), "{full} is in a table");
    }
}
