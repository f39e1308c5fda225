//! Comparisons and logic, with bool results.

use super::with_in_place;

with_in_place! {
    /// Comparisons of two operands, with broadcasting.
    static TABLE = {
        General "eq" ".Tensor" ", Tensor other" => Compare |f| f.arg(0).eq(f.arg(1));
        General "eq" ".Scalar" ", Scalar other" => Compare |f| f.arg(0).eq(f.arg(1));
        General "ne" ".Tensor" ", Tensor other" => Compare |f| f.arg(0).ne(f.arg(1));
        General "ne" ".Scalar" ", Scalar other" => Compare |f| f.arg(0).ne(f.arg(1));
        General "lt" ".Tensor" ", Tensor other" => Compare |f| f.arg(0).lt(f.arg(1));
        General "lt" ".Scalar" ", Scalar other" => Compare |f| f.arg(0).lt(f.arg(1));
        General "le" ".Tensor" ", Tensor other" => Compare |f| f.arg(0).le(f.arg(1));
        General "le" ".Scalar" ", Scalar other" => Compare |f| f.arg(0).le(f.arg(1));
        General "gt" ".Tensor" ", Tensor other" => Compare |f| f.arg(0).gt(f.arg(1));
        General "gt" ".Scalar" ", Scalar other" => Compare |f| f.arg(0).gt(f.arg(1));
        General "ge" ".Tensor" ", Tensor other" => Compare |f| f.arg(0).ge(f.arg(1));
        General "ge" ".Scalar" ", Scalar other" => Compare |f| f.arg(0).ge(f.arg(1));
        General "logical_and" "" ", Tensor other" =>
            Compare |f| f.arg(0).truth().and(f.arg(1).truth());
        General "logical_or" "" ", Tensor other" =>
            Compare |f| f.arg(0).truth().or(f.arg(1).truth());
        General "logical_xor" "" ", Tensor other" =>
            Compare |f| f.arg(0).truth().xor(f.arg(1).truth());
    }
}
