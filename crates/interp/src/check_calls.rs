//! Checks the calls of a graph by running fake kernels on fake tensors.

use crate::frame::{Frame, Semantics};
use crate::source_info::SourceInfo;
use maquette_ir::graph::{Graph, Stmt, TensorType, ValueId};
use maquette_ir::sym::{Expr, SymInt};
use maquette_ops::aten::is_builtin_name;
use maquette_ops::{CallError, Error, ErrorKind, FakeError, Meta, Result, Tensor, Value, fake};

/// Checks that each operator exists, accepts its arguments and returns results of the declared
/// types. Only fake kernels run. A traced graph passes by construction; parsed graph text may fail.
///
/// The check covers graphs whose inputs have constant sizes, up to the first call of an operator
/// that is unknown, has no fake kernel, or returns sizes that depend on data.
///
/// # Errors
/// An operator does not exist, rejects its arguments, or returns results of a different number,
/// dtype or layout.
#[track_caller]
pub fn check_calls(graph: &Graph) -> Result<()> {
    let source_info = SourceInfo::of_caller();
    fake::without_data(|| check(graph, &source_info)).map_err(|e| source_info.locate(e))
}

fn check(graph: &Graph, source_info: &SourceInfo<'_>) -> Result<()> {
    let mut frame = Frame::new(graph, source_info, Semantics::Memory);
    for v in graph.inputs().iter().copied().chain(graph.consts().iter().map(|c| c.value())) {
        let Some(t) = without_data(graph, v) else { return Ok(()) };
        frame.set(v, Value::Tensor(t));
    }
    for (at, stmt) in graph.body().iter().enumerate() {
        let Stmt::Node(node) = *stmt else { return Ok(()) };
        let Err(e) = frame.node(node) else { continue };
        let e = match e.kind() {
            ErrorKind::Fake(FakeError::Mismatch { output, what, expected, found }) => {
                let loc = frame.loc(node);
                Error::msg(format!(
                    "the graph declares result {output} with {what} {expected}, but the operator \
                        returns {found}"
                ))
                .in_call(&graph.op_name(node).into(), loc)
            }
            ErrorKind::Value(_) | ErrorKind::Typing(_) => e,
            ErrorKind::Call(
                CallError::TooMany { .. } | CallError::Missing { .. } | CallError::Type { .. },
            ) => e,
            ErrorKind::Call(
                CallError::Unknown { name, .. } | CallError::Unsupported { name, .. },
            ) if is_builtin_name(name) => e,
            _ => return Ok(()),
        };
        return Err(frame.in_window(e, at));
    }
    Ok(())
}

/// A fake tensor of a value's type; `None` if the type has symbols or is not a tensor's.
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
