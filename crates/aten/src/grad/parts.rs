//! Rules that differentiate a formula: the operator in terms of operators that have derivatives.
//!
//! A rule computes the formula again from the saved operands, records it, and sweeps through the
//! record. This costs another evaluation, and keeps rules of rare or involved operators short;
//! derivatives of every order follow.

use super::give;
use maquette_ir::sym::SymInt;
use maquette_ops::autograd::{self, BackwardOptions};
use maquette_ops::operator::Backward;
use maquette_ops::operator::Saved::{self, Input};
use maquette_ops::operator::{is_grad_enabled, requires_grad, with_grad};
use maquette_ops::{Result, Tensor, Value};

/// Every operand.
pub(crate) const OPERANDS: &[Saved] =
    &[Input(0), Input(1), Input(2), Input(3), Input(4), Input(5), Input(6), Input(7), Input(8)];

/// The derivative of a formula, `|a| results`, of the arguments of the call. The formula may leave
/// out results at the end that have no gradient.
macro_rules! parts {
    (|$a:ident| $body:expr) => {
        ::maquette_ops::operator::Derivative::Rule(::maquette_ops::operator::RuleDef {
            saves: $crate::grad::parts::OPERANDS,
            backward: |b| $crate::grad::parts::differentiate(b, &|$a| $body),
        })
    };
}
pub(crate) use parts;

/// An operand that requires a gradient, as a tensor of its own.
struct Operand {
    argument: usize,
    position: usize,
    tensor: Tensor,
}

/// Gives the gradients of the operands of `formula`.
pub(crate) fn differentiate(
    b: &Backward<'_>,
    formula: &dyn Fn(&[Value]) -> Result<Vec<Tensor>>,
) -> Result<()> {
    let create_graph = is_grad_enabled();
    let mut operands: Vec<Operand> = Vec::new();
    let arguments = (0..b.arguments()).map(|argument| {
        b.argument_with(argument, &mut |position| {
            let saved = b.input_at(argument, position);
            if !b.needs_at(argument, position) {
                return saved.ok().cloned();
            }
            // Gradients of this use of the operand end here. An alias passes on the gradients of
            // gradients, which reach the operand itself.
            let tensor = match create_graph {
                true => saved.alias(),
                false => saved.detach().requires_grad_(),
            };
            operands.push(Operand { argument, position, tensor: tensor.ok()?.clone() });
            Ok(tensor)
        })
    });
    let arguments = arguments.collect::<Result<Vec<Value>>>()?;
    let results = with_grad(true, || formula(&arguments))?;
    let (mut roots, mut grads) = (Vec::new(), Vec::new());
    for (i, result) in results.iter().enumerate() {
        result.ok()?;
        if b.has_grad(i) && requires_grad(result) {
            let grad = b.grad_of(i);
            let grad = if grad.dtype() == result.dtype() { grad } else { grad.to_other(result) };
            roots.push(result.clone());
            grads.push(Some(grad));
        }
    }
    let inputs: Vec<Tensor> = operands.iter().map(|o| o.tensor.clone()).collect();
    let options = BackwardOptions { create_graph, ..Default::default() };
    let found = autograd::grad(&roots, &inputs, &grads, options)?;
    for (operand, grad) in operands.into_iter().zip(found) {
        if let Some(grad) = grad {
            b.set_at(operand.argument, operand.position, || grad)?;
        }
    }
    Ok(())
}

/// The transposes of operators that move elements of their first operand: the operator itself moves
/// positions, and each gradient is added at the position that its element came from. Position 0
/// stands for elements that the operator makes.
pub(crate) fn rearranged(b: &Backward<'_>) -> Result<()> {
    let x = b.meta(0)?;
    let (n, dtype) = (x.numel(), x.dtype);
    // floats have all positions up to 2^53, and more operators take them than integers
    let ones = b.grad().detach().new_ones([n], maquette_ir::DType::F64);
    let positions = ones.cumsum(0).reshape(&x.sizes);
    let arguments = (0..b.arguments()).map(|i| match i {
        0 => Ok(Value::Tensor(positions.clone())),
        _ => b.argument(i),
    });
    let arguments = arguments.collect::<Result<_>>()?;
    let moved = with_grad(false, || b.op().call_at(arguments, b.loc()))?;
    let mut sum: Option<Tensor> = None;
    for (i, at) in moved.iter().flat_map(Value::tensors).enumerate().filter(|(i, _)| b.has_grad(*i))
    {
        let at = at.reshape([-1i64]).to_dtype(maquette_ir::DType::I64);
        let before = sum.unwrap_or_else(|| ones.new_zeros([n + 1], dtype));
        sum = Some(before.index_add(0, &at, &b.grad_of(i).reshape([-1i64])));
    }
    match sum {
        Some(sum) => b.set(0, || sum.narrow(0, 1, n).reshape(&x.sizes)),
        None => Ok(()),
    }
}

/// The transposes of linear operators that treat the last dimensions separately. `along` calls the
/// operator on a tensor of which all of these but one have size 1.
pub(crate) fn separable(
    b: &Backward<'_>,
    dims: usize,
    along: &dyn Fn(usize, &Tensor) -> Result<Tensor>,
) -> Result<()> {
    let x = b.meta(0)?;
    let mut grad = b.grad();
    for d in 0..dims {
        let n = x.sizes[x.rank() - dims + d];
        let mut sizes: Vec<SymInt> = vec![n, 1.into()];
        sizes.extend((0..dims).map(|e| if e == d { n } else { 1.into() }));
        let ones = grad.detach().new_ones([n], x.dtype);
        let eye = ones.diag_embed(0, -2, -1).reshape(sizes);
        let matrix = with_grad(false, || along(d, &eye))?.reshape([n, (-1i64).into()]);
        let dim = d as i64 - dims as i64;
        grad = grad.transpose(dim, -1).matmul(&matrix.t()).transpose(dim, -1);
    }
    give(b, 0, Ok(grad))
}
