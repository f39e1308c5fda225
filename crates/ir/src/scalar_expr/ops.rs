//! The operations of the scalar language.

use std::fmt;

macro_rules! ops {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $v:ident = $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name { $($(#[$vdoc])* $v,)* }

        impl $name {
            /// Every operation, in declaration order.
            pub const ALL: &'static [$name] = &[$($name::$v),*];

            /// The name used in text.
            pub const fn name(self) -> &'static str {
                match self { $($name::$v => $text,)* }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.name())
            }
        }
    };
}

ops! {
    /// A unary operation. Unless noted otherwise it accepts floats, and the result has the
    /// operand's dtype.
    UnaryOp {
        /// Negation of numbers. Integers wrap.
        Neg = "neg",
        /// Absolute value of numbers. Integers wrap.
        Abs = "abs",
        /// Sign of numbers: -1, 0 or 1. NaN gives 0, as in PyTorch.
        Sign = "sign",
        /// Rounds toward negative infinity.
        Floor = "floor",
        /// Rounds toward positive infinity.
        Ceil = "ceil",
        /// Rounds to nearest, halves to even.
        Round = "round",
        /// Rounds toward zero.
        Trunc = "trunc",
        /// Square root, correctly rounded.
        Sqrt = "sqrt",
        /// `1 / sqrt(x)`, with the square root and the quotient each rounded.
        Rsqrt = "rsqrt",
        /// `1 / x`.
        Reciprocal = "reciprocal",
        /// e^x.
        Exp = "exp",
        /// 2^x.
        Exp2 = "exp2",
        /// e^x - 1.
        Expm1 = "expm1",
        /// Natural logarithm.
        Log = "log",
        /// Logarithm to base 2.
        Log2 = "log2",
        /// Logarithm to base 10.
        Log10 = "log10",
        /// log(1 + x).
        Log1p = "log1p",
        /// Sine.
        Sin = "sin",
        /// Cosine.
        Cos = "cos",
        /// Tangent.
        Tan = "tan",
        /// Arc sine.
        Asin = "asin",
        /// Arc cosine.
        Acos = "acos",
        /// Arc tangent.
        Atan = "atan",
        /// Hyperbolic sine.
        Sinh = "sinh",
        /// Hyperbolic cosine.
        Cosh = "cosh",
        /// Hyperbolic tangent.
        Tanh = "tanh",
        /// Inverse hyperbolic sine.
        Asinh = "asinh",
        /// Inverse hyperbolic cosine.
        Acosh = "acosh",
        /// Inverse hyperbolic tangent.
        Atanh = "atanh",
        /// Error function.
        Erf = "erf",
        /// 1 - erf(x), without cancellation.
        Erfc = "erfc",
        /// `1 / (1 + e^-x)`, without overflow.
        Sigmoid = "sigmoid",
        /// Whether the operand is NaN; the result is bool.
        IsNan = "isnan",
        /// Whether the operand is infinite; the result is bool.
        IsInf = "isinf",
        /// Logical not of a bool, bitwise not of an integer.
        Not = "not",
    }
}

ops! {
    /// A binary operation on operands of one dtype, which is also the result's dtype.
    BinaryOp {
        /// Sum; numbers, and bool as logical or.
        Add = "add",
        /// Difference; numbers.
        Sub = "sub",
        /// Product; numbers, and bool as logical and.
        Mul = "mul",
        /// True division; floats.
        Div = "div",
        /// Quotient toward negative infinity; numbers.
        FloorDiv = "floor_div",
        /// Quotient toward zero; numbers.
        TruncDiv = "trunc_div",
        /// Remainder with the dividend's sign; numbers.
        Fmod = "fmod",
        /// Remainder with the divisor's sign; numbers.
        Remainder = "remainder",
        /// Power; numbers. A negative integer exponent gives 0, except for bases 1 and -1.
        Pow = "pow",
        /// Minimum; NaN if either operand is NaN. Any dtype.
        Min = "min",
        /// Maximum; NaN if either operand is NaN. Any dtype.
        Max = "max",
        /// The angle of the point (x, y) for operands (y, x); floats.
        Atan2 = "atan2",
        /// sqrt(a^2 + b^2) without overflow; floats.
        Hypot = "hypot",
        /// The magnitude of the first operand with the sign of the second; floats.
        Copysign = "copysign",
        /// Bitwise and; integers and bool.
        And = "and",
        /// Bitwise or; integers and bool.
        Or = "or",
        /// Bitwise exclusive or; integers and bool.
        Xor = "xor",
        /// Shift left; integers. A count outside `0..width` gives 0.
        Shl = "shl",
        /// Arithmetic shift right; integers. A count outside `0..width` gives 0 or -1.
        Shr = "shr",
    }
}

ops! {
    /// A comparison; the result is bool. Every comparison with NaN is false, except `Ne`.
    CmpOp {
        /// Equal.
        Eq = "eq",
        /// Not equal.
        Ne = "ne",
        /// Less.
        Lt = "lt",
        /// Less or equal.
        Le = "le",
        /// Greater.
        Gt = "gt",
        /// Greater or equal.
        Ge = "ge",
    }
}
