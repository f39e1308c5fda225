//! Statements that are more than a call: the program asks a question of a tensor, or handles the
//! error of a write, and goes on as the answer says.
//!
//! In a graph, such a statement is a call of an operator. A mode that runs the program as model
//! code makes the calls that the statement consists of, so that a trace sees the question itself.
//! Text mode calls the operator. Its kernel asks the same questions, and makes no write that must
//! be refused: so it says what a refused write leaves.

use super::library::{like, op};
use maquette_ir::{DType, Loc};
use maquette_ops::{Args, Error, FakeCtx, Op, Outputs, Result, Tensor, Value, args};
use std::sync::OnceLock;

/// Asks a question of a tensor, or of a tensor from outside of the program, and computes with the
/// answer.
pub(super) const ASKS: &str = "oracle::asks";
/// Tries to write a tensor, and writes something else if this is refused.
pub(super) const ATTEMPTS: &str = "oracle::attempts_";

/// A tensor from outside of every program. Nothing writes it.
static OUTSIDE: OnceLock<Tensor> = OnceLock::new();

/// Makes one call. A call of model code names the line of the statement.
pub(super) type Calls<'a> = dyn FnMut(Op, Args, Loc) -> Result<Outputs> + 'a;

/// Runs a statement as model code does, and makes its calls through `calls`.
///
/// # Errors
/// Those of the calls, except of a write that the statement handles.
#[track_caller]
pub(super) fn run(op: Op, args: Args, calls: &mut Calls<'_>) -> Result<Outputs> {
    match op.name() {
        ASKS => {
            let x = tensor(&args, 0)?;
            let of = args.get(1).and_then(|of| of.tensors().next());
            Ok(Outputs::from_iter([Value::Tensor(ask(x, of, number(&args, 2)?, calls)?)]))
        }
        ATTEMPTS => {
            attempt(tensor(&args, 0)?, tensor(&args, 1)?, number(&args, 2)?, calls)?;
            Ok(Outputs::new())
        }
        _ => calls(op, args, Loc::caller()),
    }
}

/// Whether an error names a line of this file, as those of statements do. That of a text names
/// none: formatting does not tell who asks.
pub(super) fn names_a_statement(e: &Error) -> bool {
    e.loc().is_some_and(|loc| loc.file.ends_with("oracle/statements.rs"))
}

fn tensor(args: &[Value], i: usize) -> Result<&Tensor> {
    args.get(i).ok_or_else(|| Error::value("takes a tensor"))?.tensor()
}

fn number(args: &[Value], i: usize) -> Result<i64> {
    Ok(args.get(i).ok_or_else(|| Error::value("takes a number"))?.int()?.guard_int()?)
}

/// The questions, by number.
pub(super) const QUESTIONS: [&str; 7] = [
    "question: version",
    "question: is_leaf",
    "question: requires_grad",
    "question: strides",
    "question: storage_offset",
    "question: ok",
    "question: text",
];

/// The question whose answer depends on all elements.
const TEXT: i64 = 6;

/// `x` times a number that depends on the answer.
fn ask(x: &Tensor, of: Option<&Tensor>, question: i64, calls: &mut Calls<'_>) -> Result<Tensor> {
    let of = of.or(OUTSIDE.get()).unwrap_or(x);
    let answer = match question {
        0 => of.version() as i64,
        1 => of.is_leaf().into(),
        2 => of.requires_grad().into(),
        3 => strides(of)?,
        4 => of.storage_offset().guard_int()?,
        5 => of.ok().is_ok().into(),
        // a traced tensor shows no elements
        _ => format!("{of}{of:?}").contains("poisoned").into(),
    };
    let mul = Op::find("aten::mul.Scalar")?;
    calls(mul, args![x, answer + 2], Loc::caller())?
        .first()
        .ok_or_else(|| Error::value("returns a tensor"))?
        .tensor()
        .cloned()
}

/// A number that depends on the observable strides: those of more than one element.
fn strides(of: &Tensor) -> Result<i64> {
    if of.numel().eq(0).guard()? {
        return Ok(0);
    }
    of.sizes().iter().zip(of.strides()).try_fold(0, |sum: i64, (size, stride)| {
        let is_seen = size.gt(1).guard()?;
        Ok(if is_seen { 3 * sum + stride.guard_int()? } else { sum })
    })
}

/// How a statement tries to write.
pub(super) const ATTEMPT_FORMS: i64 = 3;

/// Writes `y` into `x`. Where that is refused, `x` is as it was and may be written: it is mixed
/// with itself.
fn attempt(x: &Tensor, y: &Tensor, form: i64, calls: &mut Calls<'_>) -> Result<()> {
    let mut write = |op: &str, x: &Tensor| calls(Op::find(op)?, args![x, y], Loc::caller());
    let written = match form {
        0 => write("aten::copy_", x),
        1 => write("aten::add_.Tensor", x),
        _ => x.select(0, 0).ok().and_then(|row| write("aten::copy_", row)),
    };
    match written {
        Ok(_) => Ok(()),
        Err(_) => remix(x, calls),
    }
}

fn remix(x: &Tensor, calls: &mut Calls<'_>) -> Result<()> {
    calls(Op::find("oracle::remix_")?, args![x], Loc::caller()).map(drop)
}

/// Whether eager execution makes the write of [`attempt`].
pub(super) fn is_accepted(x: &Tensor, y: &Tensor, form: i64) -> Result<bool> {
    let (to, from) = (x.sizes_i64()?, y.sizes_i64()?);
    let to = match (form, to.as_slice()) {
        (0 | 1, to) => to,
        (_, [rows, rest @ ..]) if *rows > 0 => rest,
        _ => return Ok(false),
    };
    let broadcasts = from.len() <= to.len()
        && from.iter().rev().zip(to.iter().rev()).all(|(from, to)| from == to || *from == 1);
    let kind = |t: &Tensor| match t.dtype() {
        DType::Bool => 0,
        dtype if dtype.is_float() => 2,
        _ => 1,
    };
    Ok(broadcasts && (form != 1 || kind(y) <= kind(x)))
}

/// Registers the operators.
pub(super) fn register() -> Result<()> {
    OUTSIDE.get_or_init(|| Tensor::from([1.0f32, 2.0]));
    let call = |op: Op, args: Args, loc: Loc| op.call_at(args, loc);
    op("asks(Tensor x, Tensor? of, int question) -> Tensor")
        .kernel(move |x: &Tensor, of: Option<&Tensor>, question: i64| {
            // A kernel reads only what it is given. No text says of a tensor that it is poisoned.
            let of = if question == TEXT { of.or(Some(x)) } else { of };
            ask(x, of, question, &mut { call })
        })
        .register()?
        .register_fake(|_: &FakeCtx, x: &Tensor, _: Option<&Tensor>, _: i64| -> Result<Tensor> {
            Ok(like(x))
        })?;
    op("attempts_(Tensor(a!) x, Tensor y, int form) -> ()")
        .kernel(move |x: &mut Tensor, y: &Tensor, form: i64| -> Result<()> {
            match is_accepted(x, y, form)? {
                true => attempt(x, y, form, &mut { call }),
                false => remix(x, &mut { call }),
            }
        })
        .register()
        .map(drop)
}
