//! Names in `special_` that are second names of other operators.

use maquette_ops::operator::{Lowering, table};

/// Each row is `"NAME(arguments)" => "operator"`.
macro_rules! aliases {
    ($($name:literal => $op:literal;)*) => {
        table! {
            /// Second names.
            static TABLE = {
                $(concat!("aten::special_", $name, " -> Tensor") => {
                    role: General,
                    lowering: Lowering::Composite(|a| {
                        maquette_ops::call(concat!("aten::", $op), a.iter().cloned().collect())
                    }),
                },)*
            }
        }
    };
}

aliases! {
    "digamma(Tensor self)" => "digamma";
    "psi(Tensor self)" => "digamma";
    "gammaln(Tensor self)" => "lgamma";
    "polygamma(int n, Tensor self)" => "polygamma";
    "multigammaln(Tensor self, int p)" => "mvlgamma";
    "gammainc(Tensor self, Tensor other)" => "igamma";
    "gammaincc(Tensor self, Tensor other)" => "igammac";
    "erf(Tensor self)" => "erf";
    "erfc(Tensor self)" => "erfc";
    "erfinv(Tensor self)" => "erfinv";
    "exp2(Tensor self)" => "exp2";
    "expm1(Tensor self)" => "expm1";
    "log1p(Tensor self)" => "log1p";
    "expit(Tensor self)" => "sigmoid";
    "logit(Tensor self, float? eps=None)" => "logit";
    "i0(Tensor self)" => "i0";
    "sinc(Tensor self)" => "sinc";
    "round(Tensor self, *, int decimals=0)" => "round.decimals";
    "xlogy(Tensor self, Tensor other)" => "xlogy.Tensor";
    "xlogy.self_scalar(Scalar self, Tensor other)" => "xlogy.Scalar_Self";
    "xlogy.other_scalar(Tensor self, Scalar other)" => "xlogy.Scalar_Other";
    "logsumexp(Tensor self, int[1] dim, bool keepdim=False)" => "logsumexp";
    "softmax(Tensor self, int dim, ScalarType? dtype=None)" => "softmax.int";
    "log_softmax(Tensor self, int dim, *, ScalarType? dtype=None)" => "log_softmax.int";
}
