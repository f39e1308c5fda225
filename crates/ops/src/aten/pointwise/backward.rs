//! Derivatives of pointwise operators that have names in ATen, because they read the result in place
//! of the operand, or because PyTorch's convention differs from that of the expression; and what a
//! sweep calls beside them.

use super::super::table;
use super::pointwise;

table! {
    /// Gradients of activations.
    pub(super) static TABLE = {
        General "aten::threshold_backward(Tensor grad_output, Tensor self, \
            Scalar threshold) -> Tensor" => pointwise!(Promote, |f| {
                f.arg(1).le(f.number_of(2, f.result)).select(0, f.arg(0))
            }),
        General "aten::tanh_backward(Tensor grad_output, Tensor output) -> Tensor" =>
            pointwise!(Float, |f| {
                let y = f.arg(1);
                f.arg(0) * (f.c(1) - y * y)
            }),
        General "aten::sigmoid_backward(Tensor grad_output, Tensor output) -> Tensor" =>
            pointwise!(Float, |f| {
                let y = f.arg(1);
                f.arg(0) * ((f.c(1) - y) * y)
            }),
        // The tensor itself. Unlike those of a copy, the passes know nothing of its values, so that
        // operators on the result are not equal to operators on the tensor.
        General "grad::recompute(Tensor self) -> Tensor" => pointwise!(First, |f| f.arg(0))
            => crate::aten::grad::IDENTITY,
    }
}
