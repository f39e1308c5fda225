//! Comparisons and logic, with bool results.

use super::with_in_place;

with_in_place! {
    /// Comparisons of two operands, with broadcasting.
    static TABLE = {
        "eq" ".Tensor" ", Tensor other" => {
            role: General,
            types: Compare,
            formula: |f| f.arg(0).eq(f.arg(1)),
        },
        "eq" ".Scalar" ", Scalar other" => {
            role: General,
            types: Compare,
            formula: |f| f.arg(0).eq(f.arg(1)),
        },
        "ne" ".Tensor" ", Tensor other" => {
            role: General,
            types: Compare,
            formula: |f| f.arg(0).ne(f.arg(1)),
        },
        "ne" ".Scalar" ", Scalar other" => {
            role: General,
            types: Compare,
            formula: |f| f.arg(0).ne(f.arg(1)),
        },
        "lt" ".Tensor" ", Tensor other" => {
            role: General,
            types: Compare,
            formula: |f| f.arg(0).lt(f.arg(1)),
        },
        "lt" ".Scalar" ", Scalar other" => {
            role: General,
            types: Compare,
            formula: |f| f.arg(0).lt(f.arg(1)),
        },
        "le" ".Tensor" ", Tensor other" => {
            role: General,
            types: Compare,
            formula: |f| f.arg(0).le(f.arg(1)),
        },
        "le" ".Scalar" ", Scalar other" => {
            role: General,
            types: Compare,
            formula: |f| f.arg(0).le(f.arg(1)),
        },
        "gt" ".Tensor" ", Tensor other" => {
            role: General,
            types: Compare,
            formula: |f| f.arg(0).gt(f.arg(1)),
        },
        "gt" ".Scalar" ", Scalar other" => {
            role: General,
            types: Compare,
            formula: |f| f.arg(0).gt(f.arg(1)),
        },
        "ge" ".Tensor" ", Tensor other" => {
            role: General,
            types: Compare,
            formula: |f| f.arg(0).ge(f.arg(1)),
        },
        "ge" ".Scalar" ", Scalar other" => {
            role: General,
            types: Compare,
            formula: |f| f.arg(0).ge(f.arg(1)),
        },
        "logical_and" "" ", Tensor other" => {
            role: General,
            types: Compare,
            formula: |f| f.arg(0).truth().and(f.arg(1).truth()),
        },
        "logical_or" "" ", Tensor other" => {
            role: General,
            types: Compare,
            formula: |f| f.arg(0).truth().or(f.arg(1).truth()),
        },
        "logical_xor" "" ", Tensor other" => {
            role: General,
            types: Compare,
            formula: |f| f.arg(0).truth().xor(f.arg(1).truth()),
        },
    }
}
