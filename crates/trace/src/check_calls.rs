//! A graph's calls held against the operators, without data.

use crate::interpreter::{Interpreter, SourceInfo};
use maquette_ir::graph::{Graph, Stmt, TensorType, ValueId};
use maquette_ir::sym::{Expr, SymInt};
use maquette_ops::{CallError, Error, ErrorKind, FakeError, Meta, Result, Tensor, Value, fake};

/// Checks that each call takes its arguments and gives what the graph declares, as far as numbers
/// tell: up to the first call of an operator that is not known or has no fake kernel, or whose
/// results data decide, in graphs whose inputs have no symbols for sizes. Nothing is computed.
/// Traces are so; texts may not be.
///
/// # Errors
/// An operator does not exist, refuses its arguments, or gives results of another number, dtype or
/// layout.
#[track_caller]
pub fn check_calls(graph: &Graph) -> Result<()> {
    let source_info = SourceInfo::of_caller();
    fake::without_data(|| check(graph, &source_info)).map_err(|e| source_info.locate(e))
}

fn check(graph: &Graph, source_info: &SourceInfo<'_>) -> Result<()> {
    let mut interpreter = Interpreter::new(graph, source_info, true);
    for v in graph.inputs().iter().copied().chain(graph.consts().iter().map(|c| c.value())) {
        let Some(t) = without_data(graph, v) else { return Ok(()) };
        interpreter.set(v, Value::Tensor(t));
    }
    for (at, stmt) in graph.body().iter().enumerate() {
        let Stmt::Node(node) = *stmt else { return Ok(()) };
        let Err(e) = interpreter.node(node) else { continue };
        let e = match e.kind() {
            ErrorKind::Fake(FakeError::Mismatch { output, what, expected, found }) => {
                let loc = graph.loc(node).unwrap_or(source_info.call_site);
                Error::msg(format!(
                    "result {output} is declared with {what} {expected}, and has {found}"
                ))
                .in_call(&graph.op_name(node).into(), loc)
            }
            ErrorKind::Value(_) | ErrorKind::Typing(_) => e,
            ErrorKind::Call(
                CallError::TooMany { .. } | CallError::Missing { .. } | CallError::Type { .. },
            ) => e,
            ErrorKind::Call(
                CallError::Unknown { name, .. } | CallError::Unsupported { name, .. },
            ) if name.starts_with("aten::") => e,
            _ => return Ok(()),
        };
        return Err(interpreter.in_window(e, at));
    }
    Ok(())
}

/// A tensor of a value's type, if that is of numbers.
fn without_data(graph: &Graph, v: ValueId) -> Option<Tensor> {
    let t: &TensorType = graph.tensor_type(v)?;
    let int = |e: &Expr| if let Expr::Int(n) = e { Some(SymInt::from(*n)) } else { None };
    let ints = |of: &[Expr]| of.iter().map(int).collect::<Option<Vec<SymInt>>>();
    let meta = Meta {
        device: t.device,
        layout: t.layout,
        strides: ints(&t.strides)?.into(),
        offset: int(&t.offset)?,
        requires_grad: t.requires_grad,
        ..Meta::contiguous(ints(&t.sizes)?, t.dtype)
    };
    Some(Tensor::fake_of(meta))
}
