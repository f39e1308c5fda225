//! The arguments of a node as an operator takes them.

use maquette_ir::graph::{Arg, Graph, NodeId, ValueId};
use maquette_ir::sym::{Expr, SymInt};
use maquette_ops::{Args, Op, Result, Value};
use smallvec::SmallVec;

/// The value of an argument. `get` is the value of a graph value, `int` that of an expression.
///
/// # Errors
/// The error of `get` or `int`.
pub fn argument_value(
    graph: &Graph,
    arg: Arg,
    get: &dyn Fn(ValueId) -> Result<Value>,
    int: &dyn Fn(Expr) -> Result<SymInt>,
) -> Result<Value> {
    Ok(match arg {
        Arg::Value(v) => get(v)?,
        Arg::None => Value::None,
        Arg::Int(e) => Value::Int(int(e)?),
        Arg::Float(x) => Value::Float(x.get()),
        Arg::Bool(b) => Value::Bool(b),
        Arg::Str(s) => Value::Str(graph.str(s).into()),
        Arg::DType(d) => Value::DType(d),
        Arg::Device(d) => Value::Device(d),
        Arg::Layout(l) => Value::Layout(l),
        Arg::MemoryFormat(m) => Value::MemoryFormat(m),
        Arg::List(list) => {
            let elements = graph.list(list).iter().map(|&a| argument_value(graph, a, get, int));
            let elements = elements.collect::<Result<Vec<Value>>>()?;
            let int = |v: &Value| if let Value::Int(i) = v { Some(*i) } else { None };
            match elements.iter().map(int).collect::<Option<Box<[_]>>>() {
                Some(ints) if !ints.is_empty() => Value::Ints(ints),
                _ => Value::List(elements.into()),
            }
        }
    })
}

/// A call's arguments in the order of the schema: the positional ones, then keyword arguments and
/// defaults. `value` evaluates an argument.
///
/// # Errors
/// A keyword is unknown or names an argument that has a value already, an argument is missing, or
/// the error of `value`.
pub fn arguments(
    graph: &Graph,
    op: Op,
    node: NodeId,
    positional: &[Arg],
    value: &dyn Fn(Arg) -> Result<Value>,
) -> Result<Args> {
    let mut args = positional.iter().map(|&a| value(a)).collect::<Result<Args>>()?;
    let kwargs = graph.kwargs(node);
    if kwargs.is_empty() {
        return Ok(args);
    }
    let names: SmallVec<[&str; 8]> = kwargs.iter().map(|(name, _)| graph.str(*name)).collect();
    op.append_keywords(&mut args, &names, |i| value(kwargs[i].1))?;
    Ok(args)
}
