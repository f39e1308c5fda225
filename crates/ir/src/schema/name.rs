//! Operator names.

use super::{SchemaError, parse};
use std::str::FromStr;

/// The name of an operator overload, such as `aten::add.Tensor`. Each part is an identifier of
/// ASCII letters, digits and `_`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OpName {
    /// The namespace: `aten`.
    pub ns: String,
    /// The operator: `add`.
    pub name: String,
    /// The overload: `Tensor`; empty for the default overload.
    pub overload: String,
}

impl FromStr for OpName {
    type Err = SchemaError;

    /// Parses `ns::name` or `ns::name.overload`; `ns::name.default` is the default overload.
    fn from_str(text: &str) -> Result<OpName, SchemaError> {
        parse::name(text)
    }
}
