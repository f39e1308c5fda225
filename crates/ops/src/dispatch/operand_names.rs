//! Names of operands in errors: the algorithms of `typing` count operands, and callers know the
//! arguments of a schema.

use super::mode;
use super::value::Value;
use crate::error::{Error, ErrorKind};
use crate::library::Op;
use maquette_ir::typing::TypingError;

/// The error of a call of `op`, with the names of its arguments in place of positions.
///
/// Inside a builtin composite the operands are not the arguments of the operator that the user
/// called. The error is then one in words, so that the outer call leaves the positions alone.
#[cold]
pub(super) fn added(e: Error, op: Op, args: &[Value]) -> Error {
    let ErrorKind::Typing(TypingError::Broadcast {
        operand,
        shape,
        other,
        other_shape,
        dim,
        size,
        other_size,
    }) = e.kind()
    else {
        return e;
    };
    if e.op().is_some() {
        return e;
    }
    if mode::user_loc().is_some() {
        let text = e.kind().to_string();
        return e.with_kind(ErrorKind::Value(text));
    }
    let names = names(op, args);
    let (Some(name), Some(other_name)) = (names.get(*operand), names.get(*other)) else { return e };
    let text = format!(
        "cannot broadcast {shape} with {other_shape}: dimension {dim} of the result is {size} in \
            `{name}`, but {other_size} in `{other_name}`"
    );
    e.with_kind(ErrorKind::Value(text))
}

/// The names of the tensors among the arguments, in order.
fn names(op: Op, args: &[Value]) -> Vec<String> {
    let Ok(schema) = op.schema() else { return Vec::new() };
    let mut names = Vec::new();
    for (arg, value) in schema.args.iter().zip(args) {
        match value {
            Value::Tensor(_) => names.push(arg.name.to_string()),
            Value::List(list) => {
                let tensors = list.iter().enumerate().filter(|(_, v)| v.tensors().next().is_some());
                names.extend(tensors.map(|(i, _)| format!("{}[{i}]", arg.name)));
            }
            _ => {}
        }
    }
    names
}
