//! Derivatives of matrix products and convolutions.

use crate::grad::rule;
use maquette_ir::sym::SymInt;
use maquette_ops::operator::Saved::{Input, InputFor};
use maquette_ops::operator::{Backward, Derivative};
use maquette_ops::{Result, Tensor};

/// The gradient `left grad` of the right factor. That of a transposed matrix, such as the weight of
/// a linear layer, is the transpose of `grad^T left^T`: an optimizer reads the gradient together
/// with the parameter.
///
/// The gradients of left factors and of batches are row-major. Such a factor may be a batch whose
/// dimensions were folded, which is a view for some strides and a copy for others: its strides must
/// not decide.
///
/// Source: `mm_mat2_backward` of PyTorch.
fn of_right(b: &Backward<'_>, argument: usize, left: &Tensor) -> Result<Tensor> {
    let (strides, grad) = (&b.meta(argument)?.strides, b.grad());
    let is_one = |i: usize| strides[i].as_i64() == Some(1);
    let is_transposed = strides.len() == 2 && is_one(0) && !is_one(1);
    Ok(if is_transposed { grad.t().mm(&left.t()).t() } else { product(left, &grad) })
}

/// The product of two matrices, or of two batches of matrices.
fn product(left: &Tensor, right: &Tensor) -> Tensor {
    if left.dim() == 3 { left.bmm(right) } else { left.mm(right) }
}

/// The gradients of the factors in two arguments, times the number in `factor`.
fn products(b: &Backward<'_>, [left, right]: [usize; 2], factor: Option<usize>) -> Result<()> {
    let turned = |t: Tensor| t.transpose(-2, -1);
    let scaled = |grad: Result<Tensor>| match (grad, factor) {
        (Ok(grad), Some(factor)) => times(b, grad, factor),
        (grad, _) => grad.unwrap_or_else(Tensor::poison),
    };
    b.set(left, || scaled(Ok(product(&b.grad(), &turned(b.input(right))))))?;
    b.set(right, || scaled(of_right(b, right, &turned(b.input(left)))))
}

pub(crate) const MM: Derivative =
    rule!([InputFor(1, 0), InputFor(0, 1)], |b| products(b, [0, 1], None));

pub(crate) const BMM: Derivative =
    rule!([InputFor(1, 0), InputFor(0, 1)], |b| products(b, [0, 1], None));

/// The gradient times the number in an argument.
fn times(b: &Backward<'_>, grad: Tensor, factor: usize) -> Tensor {
    match b.arg(factor).scalar() {
        Ok(s) if s.to_f64() == 1.0 => grad,
        Ok(s) => grad * s,
        Err(e) => Tensor::poison(e),
    }
}

pub(crate) const ADDMM: Derivative = rule!([InputFor(2, 1), InputFor(1, 2)], |b| {
    b.set(0, || times(b, b.grad(), 3))?;
    products(b, [1, 2], Some(4))
});

pub(crate) const BADDBMM: Derivative = rule!([InputFor(2, 1), InputFor(1, 2)], |b| {
    b.set(0, || times(b, b.grad(), 3))?;
    products(b, [1, 2], Some(4))
});

pub(crate) const ADDMV: Derivative = rule!([InputFor(2, 1), InputFor(1, 2)], |b| {
    b.set(0, || times(b, b.grad(), 3))?;
    b.set(1, || times(b, b.grad().unsqueeze(1) * b.input(2).unsqueeze(0), 4))?;
    b.set(2, || times(b, b.input(1).t().mv(&b.grad()), 4))
});

pub(crate) const MV: Derivative = rule!([InputFor(1, 0), InputFor(0, 1)], |b| {
    b.set(0, || b.grad().unsqueeze(1) * b.input(1).unsqueeze(0))?;
    b.set(1, || b.input(0).t().mv(&b.grad()))
});

pub(crate) const DOT: Derivative = rule!([InputFor(1, 0), InputFor(0, 1)], |b| {
    b.set(0, || b.grad() * b.input(1))?;
    b.set(1, || b.grad() * b.input(0))
});

/// The geometry of a convolution, for as many dimensions as it has.
struct Geometry {
    stride: Vec<SymInt>,
    padding: Vec<SymInt>,
    dilation: Vec<SymInt>,
    transposed: bool,
    groups: SymInt,
}

impl Geometry {
    fn of(b: &Backward<'_>, dims: usize) -> Result<Geometry> {
        let list = |i: usize| -> Result<Vec<SymInt>> {
            let given = b.arg(i).ints()?;
            Ok(if given.len() == 1 { vec![given[0]; dims] } else { given.to_vec() })
        };
        Ok(Geometry {
            stride: list(3)?,
            padding: list(4)?,
            dilation: list(5)?,
            transposed: b.arg(6).bool()?,
            groups: b.arg(8).int()?,
        })
    }

    /// The convolution that takes the gradient to the operand: a convolution for a transposed one,
    /// and the other way around.
    fn of_input(&self, grad: &Tensor, weight: &Tensor, sizes: &[SymInt]) -> Tensor {
        let dims = self.stride.len();
        let output_padding: Vec<SymInt> = (0..dims)
            .map(|d| {
                if self.transposed {
                    return 0.into();
                }
                let reach = (grad.size(d as i64 + 2) - 1) * self.stride[d] - self.padding[d] * 2
                    + self.dilation[d] * (weight.size(d as i64 + 2) - 1)
                    + 1;
                sizes[d + 2] - reach
            })
            .collect();
        let Geometry { stride, padding, dilation, transposed, groups } = self;
        let found = grad.convolution(
            weight,
            None,
            stride,
            padding,
            dilation,
            !transposed,
            &output_padding,
            *groups,
        );
        // an output padding is more than some strides need
        (2..sizes.len()).fold(found, |x, d| x.narrow(d as i64, 0, sizes[d]))
    }

    /// The gradient of the weight: a convolution of the operand with the gradient, where batches
    /// and channels change places, and so do stride and dilation.
    fn of_weight(&self, x: &Tensor, grad: &Tensor, sizes: &[SymInt]) -> Tensor {
        let (x, grad) = if self.transposed { (grad, x) } else { (x, grad) };
        let (n, channels) = (x.size(0), x.size(1));
        let each = channels.floor_div(self.groups);
        let mut split: Vec<SymInt> = vec![n, self.groups, each];
        split.extend_from_slice(&x.sizes()[2..]);
        let mut joined: Vec<SymInt> = vec![each, self.groups * n];
        joined.extend_from_slice(&x.sizes()[2..]);
        let x = x.reshape(split).movedim([2i64], [0i64]).transpose(1, 2).reshape(joined);
        let zeros = vec![SymInt::from(0); self.stride.len()];
        let found = x.convolution(
            &grad.transpose(0, 1),
            None,
            &self.dilation,
            &self.padding,
            &self.stride,
            false,
            &zeros,
            self.groups,
        );
        // a stride may leave out elements at the end, which are beyond the weight here
        let found = found.transpose(0, 1);
        (2..sizes.len()).fold(found, |w, d| w.narrow(d as i64, 0, sizes[d]))
    }
}

pub(crate) const CONVOLUTION: Derivative = rule!([Input(0), Input(1)], |b| {
    let (x, weight, grad) = (b.input(0), b.input(1), b.grad());
    let dims = weight.dim() - 2;
    let geometry = Geometry::of(b, dims)?;
    // without a batch, the batch has one element
    let alone = x.dim() == dims + 1;
    let (x, grad) = if alone { (x.unsqueeze(0), grad.unsqueeze(0)) } else { (x, grad) };
    if b.tensors(2) > 0 {
        let dims: Vec<i64> = (0..x.dim() as i64).filter(|d| *d != 1).collect();
        b.set(2, || grad.sum_dim(&dims, false))?;
    }
    // the bias reaches results that no element of the operand does
    let is_empty = |t: &Tensor| t.numel().as_i64() == Some(0);
    if is_empty(&x) || is_empty(&grad) {
        for i in 0..2 {
            if b.needs(i) {
                let m = b.meta(i)?;
                b.set(i, || grad.new_zeros(&m.sizes, m.dtype))?;
            }
        }
        return Ok(());
    }
    b.set(0, || {
        let of_input = geometry.of_input(&grad, &weight, x.sizes());
        if alone { of_input.squeeze_dim(0) } else { of_input }
    })?;
    b.set(1, || geometry.of_weight(&x, &grad, weight.sizes()))
});
