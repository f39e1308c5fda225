//! Derivatives of scalar expressions, as operators: `grad::NAME.ARG` takes a gradient and the
//! arguments of `aten::NAME`, and returns the gradient times the derivative of the expression with
//! respect to `ARG`.
//!
//! Each is a scalar expression again, so that it is one kernel, one node of a graph, and has
//! derivatives itself: `grad::NAME.ARG__ARG2`. Of an operator with an overload name, the
//! derivatives are `grad::NAME.OVERLOAD__ARG`. They are defined when they are first named.

use super::rule::Backward;
use crate::dispatch::value::{Args, Value};
use crate::error::Result;
use crate::library::Op;
use crate::operator::lowering::{Formula, Pointwise, Types};
use crate::operator::{Lowering, OpDef, Role};
use maquette_ir::fault_injection::{Fault, fault_injected};
use maquette_ir::schema::Schema;
use std::str::FromStr;

/// The namespace of derivatives.
pub(crate) const NAMESPACE: &str = "grad::";
const SEPARATOR: &str = "__";

/// The name of the derivative of an operator with respect to an argument.
fn derivative_name(of: &str, argument: &str) -> String {
    let path = of.strip_prefix("aten::").or(of.strip_prefix(NAMESPACE)).unwrap_or(of);
    let separator = if path.contains('.') { SEPARATOR } else { "." };
    format!("{NAMESPACE}{path}{separator}{argument}")
}

/// The table entry that a name in the namespace stands for, made anew. `None` if there is no such
/// operator or argument, or the operator has no scalar expression.
pub(crate) fn define(
    name: &str,
    builtin: &dyn Fn(&str) -> Option<&'static OpDef>,
) -> Option<OpDef> {
    let path = name.strip_prefix(NAMESPACE)?;
    let (of, argument) = match path.rsplit_once(SEPARATOR) {
        // the rest is a derivative or an operator with an overload
        Some((rest, argument)) => {
            let overload = format!("aten::{rest}");
            match builtin(&overload).or_else(|| builtin(&format!("{NAMESPACE}{rest}"))) {
                Some(def) => (def, argument),
                None => return None,
            }
        }
        None => {
            let (rest, argument) = path.split_once('.')?;
            (builtin(&format!("aten::{rest}"))?, argument)
        }
    };
    let Lowering::Pointwise(p) = &of.lowering else { return None };
    if matches!(p.types, Types::Compare | Types::Select) {
        return None;
    }
    let schema = Schema::from_str(of.schema).ok()?;
    let index = schema.args.iter().position(|a| a.name == argument)?;
    let grads = schema.args.iter().filter(|a| a.name.starts_with("grad")).count();
    let grad = if grads == 0 { "grad".to_owned() } else { format!("grad{}", grads + 1) };
    let (_, signature) = of.schema.split_once('(')?;
    let schema: &'static str =
        Box::leak(format!("{name}(Tensor {grad}, {signature}").into_boxed_str());
    let build = Formula::Derivative { of, argument: index };
    let lowering = Lowering::Pointwise(Pointwise { types: Types::Promote, build });
    Some(OpDef::new(schema, Role::General, lowering, None, of.loc))
}

/// The rule of an operator that has the derivative of its expression.
pub(crate) fn backward(def: &'static OpDef, b: &Backward<'_>) -> Result<()> {
    let schema = Op::find(def.name())?.schema()?;
    for (i, arg) in schema.args.iter().enumerate() {
        if !b.needs(i) {
            continue;
        }
        let op = Op::find(&derivative_name(def.name(), &arg.name))?;
        let mut args = Args::new();
        let chained = !fault_injected(Fault::ChainRuleLeftOut);
        args.push(Value::Tensor(if chained { b.grad() } else { b.grad().ones_like() }));
        for j in 0..schema.args.len() {
            args.push(match b.tensors(j) {
                0 => b.arg(j).clone(),
                _ => Value::Tensor(b.input(j)),
            });
        }
        let loc = b.loc();
        let grad = op.call_at(args, loc)?;
        b.set(i, || match grad.into_iter().next() {
            Some(Value::Tensor(t)) if i > 0 && fault_injected(Fault::SignOfSecondOperand) => -t,
            Some(Value::Tensor(t)) => t,
            _ => crate::Tensor::poison(crate::Error::value("a derivative returns one tensor")),
        })?;
    }
    Ok(())
}
