//! Derivatives of pointwise operators that have names in ATen, because they read the result in
//! place of the operand, or because PyTorch's convention differs from that of the expression; and
//! what a sweep calls beside them.

use super::pointwise;
use maquette_ops::operator::pointwise::formula::{Formula, X};
use maquette_ops::operator::table;

/// The gradient of a shrinkage: 0 for operands within the bounds.
fn shrunk<'c>(f: &'c Formula<'c>) -> X<'c> {
    let (x, bound) = (f.arg(1), f.number_of(2, f.result));
    x.ge(-bound).and(x.le(bound)).select(0, f.arg(0))
}

/// The gradient of an exponential linear unit, from the operand or the result, in argument 5.
fn elu<'c>(f: &'c Formula<'c>) -> X<'c> {
    f.refuse(!f.dtype.is_float(), "`elu_backward` takes floats");
    let (alpha, scale, input_scale) = (f.float(1), f.float(2), f.float(3));
    let (grad, x) = (f.arg(0), f.arg(5));
    let is_result = f.float(4) != 0.0;
    f.refuse(is_result && alpha < 0.0, "`alpha` must not be negative if `is_result`");
    let slope = match is_result {
        true => grad * input_scale * (x + alpha * scale),
        false => grad * (input_scale * alpha * scale) * (x * input_scale).exp(),
    };
    x.le(0).select(slope, grad * scale)
}

table! {
    /// Gradients of activations.
    static TABLE = {
        "aten::threshold_backward(Tensor grad_output, Tensor self, \
            Scalar threshold) -> Tensor" => {
            role: General,
            lowering: pointwise!(Promote, |f| {
                f.arg(1).le(f.number_of(2, f.result)).select(0, f.arg(0))
            }),
        },
        "aten::tanh_backward(Tensor grad_output, Tensor output) -> Tensor" => {
            role: General,
            lowering: pointwise!(Float, |f| {
                let y = f.arg(1);
                f.arg(0) * (f.c(1) - y * y)
            }),
        },
        "aten::sigmoid_backward(Tensor grad_output, Tensor output) -> Tensor" => {
            role: General,
            lowering: pointwise!(Float, |f| {
                let y = f.arg(1);
                f.arg(0) * ((f.c(1) - y) * y)
            }),
        },
        "aten::leaky_relu_backward(Tensor grad_output, Tensor self, \
            Scalar negative_slope, bool self_is_result) -> Tensor" => {
            role: General,
            lowering: pointwise!(Promote, |f| {
                f.arg(1).gt(0).select(f.arg(0), f.arg(0) * f.number(2))
            }),
        },
        "aten::hardtanh_backward(Tensor grad_output, Tensor self, Scalar min_val, \
            Scalar max_val) -> Tensor" => {
            role: General,
            lowering: pointwise!(Promote, |f| {
                let (x, low, high) = (f.arg(1), f.number_of(2, f.result), f.number_of(3, f.result));
                x.le(low).or(x.ge(high)).select(0, f.arg(0))
            }),
        },
        "aten::hardshrink_backward(Tensor grad_out, Tensor self, \
            Scalar lambd) -> Tensor" => {
            role: General,
            lowering: pointwise!(Promote, |f| shrunk(f)),
        },
        "aten::softshrink_backward(Tensor grad_output, Tensor self, \
            Scalar lambd) -> Tensor" => {
            role: General,
            lowering: pointwise!(Promote, |f| shrunk(f)),
        },
        "aten::hardswish_backward(Tensor grad_output, Tensor self) -> Tensor" => {
            role: General,
            lowering: pointwise!(Promote, |f| {
                let (grad, x) = (f.arg(0), f.arg(1));
                let slope = x.lt(3).select(grad * (x / 3 + 0.5), grad);
                x.le(-3).select(0, slope)
            }),
        },
        "aten::softplus_backward(Tensor grad_output, Tensor self, Scalar beta, \
            Scalar threshold) -> Tensor" => {
            role: General,
            lowering: pointwise!(Promote, |f| {
                let (grad, scaled) = (f.arg(0), f.arg(1) * f.number(2));
                scaled.gt(f.number(3)).select(grad, grad * scaled.sigmoid())
            }),
        },
        "aten::elu_backward(Tensor grad_output, Scalar alpha, Scalar scale, \
            Scalar input_scale, bool is_result, Tensor self_or_result) -> Tensor" => {
            role: General,
            lowering: pointwise!(Promote, |f| elu(f)),
        },
        // The tensor itself. Unlike those of a copy, the passes know nothing of its values, so that
        // operators on the result are not equal to operators on the tensor.
        "grad::recompute(Tensor self) -> Tensor" => {
            role: General,
            lowering: pointwise!(First, |f| f.arg(0)),
            vjp: crate::grad::IDENTITY,
        },
    }
}
