//! Runs one program in every mode and compares the outcomes with eager execution.

use super::copy_stats::CopyStats;
use super::gradients::NotCompared;
use super::library;
use super::mode::{Eager, Mode, PreparedProgram, Text};
use super::outcome::{Comparison, Outcome};
use super::program::{Family, Sizes, TestProgram};
use super::statements::{self, ASKS, ATTEMPTS};
use super::subject::Subject;
use super::unused_failure::only_an_unused_call_fails;
use maquette_check::values::catch_panics;
use maquette_ir::graph::{Graph, Stmt};
use maquette_ir::sym::{Expr, SymError};
use maquette_ir::typing::TypingError;
use maquette_ir::view::{TriBool, ViewSpec};
use maquette_ops::{
    AccessError, AutogradError, CallError, Error, ErrorKind, FakeError, Result, RunError, Tensor,
    TraceError, with_default_device,
};
use maquette_rewrite::{FunctionalizeError, Reason};

/// Why a program with a custom view is refused that may exceed its tensor.
pub const UNKNOWN_VIEW: &str = "a view whose elements only its kernel knows";
/// Why a program with a call of `oracle::lies` is refused.
pub const BROKEN_PROMISE: &str = "a view operator that breaks the promise of its fake kernel";

/// Why a program with a call of `oracle::asks` is refused.
pub const STATE: &str = "a question about the state of a tensor";
/// Why a program with a call of `oracle::attempts_` is refused.
pub const HANDLED_WRITE: &str = "a refused write, which the program handles";
/// Why a program with a call of `oracle::greedy` is refused.
pub const WRITTEN_GRADIENT: &str = "a derivative that writes the gradient that it is given";

/// The result of checking a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Every mode agrees with eager execution.
    Agree,
    /// No mode disagrees, but some run was refused: by eager and the mode alike, or by the mode for
    /// a documented reason.
    Refused(&'static str),
    /// A mode disagrees with eager execution.
    Mismatch {
        /// The name of the mode.
        mode: &'static str,
        /// The first difference.
        what: String,
    },
}

/// The reason for a refusal that follows from an assertion about data.
const ASSUMED: &str = "an assumption about a data-dependent size that does not hold";

/// The documented reason for which a mode may refuse a program that eager runs; `None` if it may
/// not. `symbolic`: the mode traces with symbolic input sizes. `docs/oracle.md` explains each
/// reason.
pub fn documented_refusal(
    program: &TestProgram,
    e: &Error,
    symbolic: bool,
) -> Option<&'static str> {
    const WINDOWS: &str = "a write to an input of symbolic sizes whose elements overlap";
    const OUTSIDE: &str = "a view must not exceed the elements of its tensor";
    let binds = || program.graph.body().iter().any(|s| matches!(s, Stmt::Bind { .. }));
    let of_statement = |op| calls(program, op) && statements::names_a_statement(e);
    match e.kind() {
        ErrorKind::Trace(TraceError::State { what })
            if calls(program, ASKS) && what.starts_with("the text of a tensor") =>
        {
            Some(STATE)
        }
        ErrorKind::Trace(TraceError::State { .. } | TraceError::Offset(_))
            if of_statement(ASKS) =>
        {
            Some(STATE)
        }
        // a trace fails with the first error of any call
        ErrorKind::Call(_) | ErrorKind::Kernel(_) | ErrorKind::Value(_) | ErrorKind::Typing(_)
            if of_statement(ATTEMPTS) =>
        {
            Some(HANDLED_WRITE)
        }
        ErrorKind::Autograd(AutogradError::GivenWritten { .. })
            if calls(program, "oracle::greedy") =>
        {
            Some(WRITTEN_GRADIENT)
        }
        ErrorKind::Guard(SymError::DataDependent(_)) => Some("a decision on a data-dependent size"),
        ErrorKind::Access(AccessError::OutOfBounds { .. }) => {
            Some("as_strided of data-dependent sizes, beyond its tensor")
        }
        // whether such a tensor is looked at depends on the mode
        ErrorKind::Access(AccessError::TooManyElements { .. }) => Some(NO_PRODUCT),
        ErrorKind::Access(AccessError::SelfOverlap { .. })
            if symbolic && has_overlapping_inputs(&program.graph) =>
        {
            Some(WINDOWS)
        }
        ErrorKind::Other(e) if e.is::<NotCompared>() => {
            e.downcast_ref().map(|NotCompared(why)| *why)
        }
        ErrorKind::Other(e) => match &e.downcast_ref::<FunctionalizeError>()?.kind {
            Reason::WriteToOverlappingView { .. }
                if symbolic && has_overlapping_inputs(&program.graph) =>
            {
                Some(WINDOWS)
            }
            // no operator except `as_strided` returns a view of elements that its tensor does not
            // have
            Reason::ViewOutOfBounds { .. }
                if program.family == Family::Programs
                    && !program.uses_as_strided()
                    && !has_overlapping_inputs(&program.graph) =>
            {
                None
            }
            why => functionalize_refusal(why),
        },
        ErrorKind::Run(RunError::Guard { .. }) => Some("a guard of a trace made at other sizes"),
        ErrorKind::Fake(FakeError::Mismatch { .. }) if calls(program, "oracle::lies") => {
            Some(BROKEN_PROMISE)
        }
        ErrorKind::Run(RunError::Assertion { message: Some(m), .. }) if m == OUTSIDE => {
            Some("a view of elements that its tensor does not have")
        }
        ErrorKind::Run(RunError::Assertion { values, .. }) if mentions_unbacked_symbol(values) => {
            Some(ASSUMED)
        }
        // the assumption already fails at the sizes with which the trace is made
        ErrorKind::Guard(SymError::Contradiction { .. })
        | ErrorKind::Typing(TypingError::Sym(SymError::Contradiction { .. }))
            if binds() || mentions_unbacked_symbol(&e.kind().to_string()) =>
        {
            Some(ASSUMED)
        }
        ErrorKind::Typing(_) | ErrorKind::Value(_)
            if mentions_unbacked_symbol(&e.kind().to_string()) =>
        {
            Some(ASSUMED)
        }
        _ => None,
    }
}

const NO_PRODUCT: &str = "an empty tensor whose other sizes have no product";

/// The documented reason for which a program that eager runs has no functional form.
fn functionalize_refusal(why: &Reason) -> Option<&'static str> {
    match why {
        Reason::ViewOutOfBounds { .. } => Some("a view of elements that its tensor does not have"),
        Reason::UnresolvedView { .. } => {
            Some("a view whose elements cannot be determined from symbolic sizes")
        }
        Reason::SizeFromView { .. } => Some("a view whose size is known only from the view itself"),
        Reason::Reinterpreted { .. } | Reason::SharedDtypes { .. } => {
            Some("memory viewed as two dtypes")
        }
        Reason::SymbolicAliasing => Some("inputs of symbolic sizes that share memory"),
        Reason::UnknownView { .. } => Some(UNKNOWN_VIEW),
        Reason::Storage { .. } => Some("an operator that reads its argument's storage"),
        // of sizes that are not empty, eager execution refuses the product, too
        Reason::Overflow(_) => Some(NO_PRODUCT),
        _ => None,
    }
}

/// Whether a program calls an operator.
fn calls(program: &TestProgram, op: &str) -> bool {
    program.graph.nodes().any(|node| program.graph.op_name(node) == op)
}

/// Whether an error is a fault of a pass, or a panic of an operator, which no program excuses.
pub(crate) fn is_internal(e: &Error) -> bool {
    let of_a_pass = |e: &FunctionalizeError| matches!(e.kind, Reason::Internal(_));
    match e.kind() {
        ErrorKind::Other(e) => e.downcast_ref().is_some_and(of_a_pass),
        ErrorKind::Call(CallError::Panicked { .. }) => true,
        _ => false,
    }
}

/// The reason for which every mode may refuse a program at sizes where one of its own assertions
/// about data fails: code after an assertion relies on it.
fn violated_assumption(program: &TestProgram, at: &Sizes) -> Option<&'static str> {
    let run_inputs = program.run_inputs(at).ok()?;
    let outcome =
        Outcome::of(&run_inputs, |inputs| Text.prepare(&Subject::new(program), inputs)?(inputs));
    outcome.err().and_then(|e| documented_refusal(program, &e, false)).filter(|why| *why == ASSUMED)
}

/// Whether an input overlaps itself, other than by expanded dimensions (stride 0).
fn has_overlapping_inputs(graph: &Graph) -> bool {
    graph.inputs().iter().filter_map(|v| graph.tensor_type(*v)).any(|t| {
        let (sizes, strides): (Vec<Expr>, Vec<Expr>) =
            t.sizes.iter().zip(&t.strides).filter(|(_, s)| **s != Expr::Int(0)).unzip();
        let mut symbols = graph.symbols().clone();
        let view = ViewSpec::strided(Expr::Int(0), &sizes, &strides, &mut symbols);
        view.is_ok_and(|v| v.injective(&mut symbols) != TriBool::Yes)
    })
}

/// Whether a text mentions a data-dependent symbol (`u0`, `u1`…), as opposed to those of input
/// sizes (`s0`, `s1`…).
fn mentions_unbacked_symbol(text: &str) -> bool {
    text.split(|c: char| !c.is_ascii_alphanumeric())
        .any(|word| word.strip_prefix('u').is_some_and(|n| n.parse::<u32>().is_ok()))
}

/// Runs a program in every mode, at every of its sizes.
///
/// # Errors
/// The program itself cannot be run: its inputs do not fit its sizes, or the oracle's operators
/// cannot be registered.
pub fn check(program: &TestProgram, modes: &[&dyn Mode]) -> Result<Verdict> {
    check_with_stats(program, modes, &mut CopyStats::default())
}

/// Like [`check`], and adds the elements that were copied.
pub(super) fn check_with_stats(
    program: &TestProgram,
    modes: &[&dyn Mode],
    copies: &mut CopyStats,
) -> Result<Verdict> {
    library::register()?;
    // An error of `catch_panics` is a panic, which is never allowed.
    let panicked = |mode, e: Error| Verdict::Mismatch { mode, what: e.to_string() };
    let subject = Subject::new(program);
    let mut expected = Vec::new();
    for at in &program.sizes {
        let reference = program.run_inputs(at)?;
        let run = || {
            let prepared = Eager.prepare(&subject, &reference.inputs);
            Ok(prepared.and_then(|prepared| Outcome::of(&reference, &*prepared)))
        };
        match catch_panics(Eager.name(), run) {
            Ok(outcome) => expected.push(outcome),
            Err(e) => return Ok(panicked(Eager.name(), e)),
        }
    }
    let mut verdict = Verdict::Agree;
    for mode in modes {
        match catch_panics(mode.name(), || one_mode(&subject, *mode, &expected, copies)) {
            Ok(Verdict::Agree) => {}
            Ok(refused @ Verdict::Refused(_)) => verdict = refused,
            Ok(mismatch) => return Ok(mismatch),
            Err(e) => return Ok(panicked(mode.name(), e)),
        }
    }
    Ok(verdict)
}

/// Runs a program in one mode at all its sizes, and compares with the eager outcome at each.
fn one_mode(
    program: &Subject<'_>,
    mode: &dyn Mode,
    expected: &[Result<Outcome>],
    copies: &mut CopyStats,
) -> Result<Verdict> {
    let mut prepared: Option<PreparedProgram> = None;
    let mut verdict = Verdict::Agree;
    for (at, expected) in program.sizes.iter().zip(expected) {
        let reused = prepared.is_some() && mode.serves_all_sizes(program);
        let mut found = attempt(program, mode, at, &mut prepared);
        // A trace made at other sizes may refuse these by a guard; a trace made at these sizes may
        // not.
        let is_guard = |e: &Error| matches!(e.kind(), ErrorKind::Run(RunError::Guard { .. }));
        if reused && found.as_ref().is_err_and(is_guard) {
            prepared = None;
            found = attempt(program, mode, at, &mut prepared);
        }
        let counted = match (expected, &found) {
            (Ok(e), Ok(f)) => copies.count(e.written, f.written),
            _ => Ok(()),
        };
        match compare_outcomes(program, mode, at, expected, &found) {
            Verdict::Agree => {
                if let Err(what) = counted {
                    return Ok(mismatch(mode, at, &what));
                }
            }
            refused @ Verdict::Refused(_) => verdict = refused,
            mismatch => return Ok(mismatch),
        }
    }
    Ok(verdict)
}

/// Runs a program, prepared anew unless the mode can reuse `prepared`.
fn attempt(
    program: &Subject<'_>,
    mode: &dyn Mode,
    at: &Sizes,
    prepared: &mut Option<PreparedProgram>,
) -> Result<Outcome> {
    let run_inputs = program.run_inputs_on(at, mode.device())?;
    let mut run = |inputs: &[Tensor]| {
        let ready = match prepared.take().filter(|_| mode.serves_all_sizes(program)) {
            Some(ready) => ready,
            None => mode.prepare(program, inputs)?,
        };
        prepared.insert(ready)(inputs)
    };
    Outcome::of(&run_inputs, |inputs| with_default_device(mode.device(), || run(inputs)))
}

fn mismatch(mode: &dyn Mode, at: &Sizes, what: &str) -> Verdict {
    let sizes: Vec<String> = at.iter().map(|(name, n)| format!("{name} = {n}")).collect();
    let at = if sizes.is_empty() { String::new() } else { format!("at {}: ", sizes.join(", ")) };
    Verdict::Mismatch { mode: mode.name(), what: format!("{at}{what}") }
}

/// Compares the outcome of a mode with that of eager execution.
fn compare_outcomes(
    program: &TestProgram,
    mode: &dyn Mode,
    at: &Sizes,
    expected: &Result<Outcome>,
    found: &Result<Outcome>,
) -> Verdict {
    let mismatch = |what: String| mismatch(mode, at, &what);
    match (expected, found) {
        (Ok(e), Ok(f)) => {
            let comparison = Comparison {
                layouts: mode.shares_as_eager(),
                nans: program.family == Family::Programs && mode.keeps_nans(program),
                device: mode.device(),
            };
            e.difference(f, comparison).map_or_else(mismatch, |()| Verdict::Agree)
        }
        (_, Err(e)) if is_internal(e) => mismatch(format!("fails: {e}")),
        (Err(_), Err(_)) => Verdict::Refused("refused by eager too"),
        (Err(e), Ok(f)) if only_an_unused_call_fails(program, at, e, f) => {
            Verdict::Refused("only a call that nothing uses fails")
        }
        (Err(e), Ok(_)) => mismatch(format!("runs, but eager fails: {e}")),
        (Ok(_), Err(e)) => match documented_refusal(program, e, mode.is_symbolic(program))
            .or_else(|| violated_assumption(program, at))
        {
            Some(why) => Verdict::Refused(why),
            None => mismatch(format!("fails, but eager runs: {e}")),
        },
    }
}
