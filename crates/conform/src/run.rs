//! Making a recorded call in each of the ways.

use super::compare;
use super::file::File;
use super::gradient;
use super::recorded::{RecordedCall, SharedStorages};
use super::report::{CallReport, Failure, OperatorReport, Stage};
use maquette_check::values::{flatten, show};
use maquette_ir::schema::Type;
use maquette_kernels::without_specialisations;
use maquette_ops::library::Op;
use maquette_ops::{Args, Error, Tensor, Value};
use maquette_pipeline::Decompose;
use maquette_trace::{TraceOptions, Traced};

/// What a call gave here: its outputs and its arguments afterwards, or the error.
pub type CallResult = Result<(Vec<Value>, Args), String>;

/// Makes every call of a file; the second result is what the eager calls gave.
pub fn check_file(file: &File) -> (OperatorReport, Vec<CallResult>) {
    let found = Op::find(&file.name);
    let missing = found.as_ref().err().map_or_else(
        || format!("{} is not a builtin operator", file.name),
        |e| e.kind().to_string(),
    );
    let op = found.ok().filter(Op::is_builtin);
    let schema = op.and_then(|op| op.schema().ok());
    let other_schema = schema.map(|s| s.to_string()).filter(|s| *s != file.schema);
    let (name, stages) = (file.name.clone(), file.stages());
    let mut report = OperatorReport { name, other_schema, stages, calls: Vec::new() };
    let mut results = Vec::new();
    for call in &file.calls {
        let (failure, result) = match op {
            Some(op) => match &call.gradient {
                Some(recorded) => {
                    let result = Err("a recorded gradient has no results".to_owned());
                    (gradient::check(op, call, recorded), result)
                }
                None => check(op, call),
            },
            None => {
                let none = Vec::new;
                let failure = Failure {
                    stage: Stage::Missing,
                    message: missing.clone(),
                    inputs: none(),
                    expected: none(),
                    found: none(),
                };
                (Some(failure), Err(missing.clone()))
            }
        };
        report.calls.push(CallReport { failure });
        results.push(result);
    }
    (report, results)
}

/// One call in each of the ways.
fn check(op: Op, call: &RecordedCall) -> (Option<Failure>, CallResult) {
    let result = eager(op, call);
    let generic = || match has_specialisations(op) {
        true => without_specialisations(|| eager(op, call)),
        false => result.clone(),
    };
    let decomposed = || match op.is_composite() && !op.is_random() {
        true => traced(op, call, &TraceOptions::new(), decompose),
        false => result.clone(),
    };
    let compiled = || match op.is_random() {
        true => result.clone(),
        false => compiled(op, call),
    };
    let stages: [(Stage, &dyn Fn() -> CallResult); 6] = [
        (Stage::Eager, &|| result.clone()),
        (Stage::Generic, &generic),
        (Stage::Static, &|| traced(op, call, &TraceOptions::new(), Ok)),
        (Stage::Symbolic, &|| traced(op, call, &TraceOptions::symbolic(), Ok)),
        (Stage::Decomposed, &decomposed),
        (Stage::Compiled, &compiled),
    ];
    let stages = if returns_tensors(op) { &stages[..] } else { &stages[..1] };
    for (stage, run) in stages {
        let found = run();
        let outcome = agrees(op, call, &found).and_then(|()| match stage {
            Stage::Generic | Stage::Decomposed | Stage::Compiled => same_bits(&result, &found),
            _ => Ok(()),
        });
        if let Err(message) = outcome {
            return (Some(describe(op, call, *stage, message, &found)), result);
        }
    }
    (None, result)
}

/// Whether the operator is a loop nest, which a hand-tuned executor may run.
fn has_specialisations(op: Op) -> bool {
    !op.is_random() && op.computation().is_some_and(|c| c == "data" || c == "composite")
}

/// Compares the elements of outputs with those of the eager call: equal bits, or both NaN.
fn same_bits(eager: &CallResult, found: &CallResult) -> Result<(), String> {
    let (Ok((eager, _)), Ok((found, _))) = (eager, found) else { return Ok(()) };
    let (eager, found) = (flatten(eager), flatten(found));
    for (i, (a, b)) in eager.iter().zip(&found).enumerate() {
        if let (Value::Tensor(a), Value::Tensor(b)) = (a, b)
            && !compare::equal_bits(a, b)?
        {
            return Err(format!("output {i} has other bits than that of the eager call"));
        }
    }
    Ok(())
}

/// Whether a graph can hold its results: a number that depends on data is refused where it is asked
/// for.
fn returns_tensors(op: Op) -> bool {
    fn tensor(ty: &Type) -> bool {
        match ty {
            Type::Tensor => true,
            Type::List(t, _) | Type::Optional(t) => tensor(t),
            _ => false,
        }
    }
    op.schema().is_ok_and(|s| s.returns.iter().all(|r| tensor(&r.ty)))
}

fn text(e: Error) -> String {
    e.to_string()
}

fn eager(op: Op, call: &RecordedCall) -> CallResult {
    let args = call.arguments(op)?;
    let out = op.call(args.clone()).map_err(text)?;
    Ok((out.into_vec(), args))
}

/// A program of tensors.
type Program = Traced<Vec<Tensor>, Vec<Tensor>>;

/// Decomposes a program, all of it.
fn decompose(program: Program) -> maquette_ops::Result<Program> {
    let (decomposed, kept) = program.decompose()?;
    match kept.first() {
        None => Ok(decomposed),
        Some(k) => Err(Error::value(format!("{} is not decomposed: {}", k.op, k.reason))),
    }
}

/// Traces the call as a program of its tensors, and runs what `pass` makes of it on them.
fn traced(
    op: Op,
    call: &RecordedCall,
    options: &TraceOptions,
    pass: fn(Program) -> maquette_ops::Result<Program>,
) -> CallResult {
    let args = call.arguments(op)?;
    let tensors = tensors_of(&args);
    // a recorded call may name a place in its storage
    let options = options.clone().keep_offsets(true);
    let out = options.trace(|given| program(op, &args, given), tensors.clone()).and_then(pass);
    let out = out.and_then(|t| t.run(tensors)).map_err(text)?;
    Ok((out.into_iter().map(Value::from).collect(), args))
}

/// The tensors among the arguments of a call.
fn tensors_of(args: &Args) -> Vec<Tensor> {
    args.iter().flat_map(Value::tensors).cloned().collect()
}

/// The call as a program of its tensors.
fn program(op: Op, args: &Args, given: Vec<Tensor>) -> maquette_ops::Result<Vec<Tensor>> {
    let mut given = given.into_iter();
    let mut next = |_: &Tensor| {
        given.next().ok_or_else(|| Error::value("the record has fewer tensors than arguments"))
    };
    let args = args.iter().map(|v| v.map_tensors(&mut next));
    let args = args.collect::<maquette_ops::Result<Args>>()?;
    op.call(args)?.iter().flat_map(Value::tensors).cloned().map(Ok).collect()
}

/// Compiles the call as a program of its tensors. It runs twice, the first time on other tensors of
/// the same elements: so the run that counts takes what another has left.
fn compiled(op: Op, call: &RecordedCall) -> CallResult {
    let args = call.arguments(op)?;
    let compiled = maquette_driver::compile(|given: Vec<Tensor>| program(op, &args, given));
    // The run that counts fails in the same way.
    let _ = compiled.call(tensors_of(&call.arguments(op)?));
    let out = compiled.call(tensors_of(&args)).map_err(text)?;
    Ok((out.into_iter().map(Value::from).collect(), args.clone()))
}

/// Compares outputs, and what was written.
fn agrees(op: Op, call: &RecordedCall, found: &CallResult) -> Result<(), String> {
    let (out, args) = found.as_ref().map_err(|e| format!("refused: {e}"))?;
    for (i, t) in flatten(out).iter().flat_map(Value::tensors).enumerate() {
        if t.device() != call.device() {
            return Err(format!("output {i} is on {}, expected {}", t.device(), call.device()));
        }
    }
    let expected = call.value(&call.out, &mut SharedStorages::new())?;
    compare::outputs(op.name(), args, &[expected], out)?;
    let mut shared = SharedStorages::new();
    for (i, (e, v)) in call.after.iter().flatten().zip(args).enumerate() {
        if e.get("t").is_some() {
            compare::value(&call.value(e, &mut shared)?, v)
                .map_err(|m| format!("argument {i} afterwards: {m}"))?;
        }
    }
    Ok(())
}

fn describe(
    op: Op,
    call: &RecordedCall,
    stage: Stage,
    message: String,
    found: &CallResult,
) -> Failure {
    let lines = |values: &[Value]| -> Vec<String> { flatten(values).iter().map(show).collect() };
    let inputs = match (call.arguments(op), op.schema()) {
        (Ok(args), Ok(schema)) => args
            .iter()
            .zip(&schema.args)
            .map(|(v, a)| format!("{} = {}", a.name, show(v)))
            .collect(),
        // the message says what cannot be read
        _ => Vec::new(),
    };
    let expected =
        call.value(&call.out, &mut SharedStorages::new()).map_or_else(|e| vec![e], |v| lines(&[v]));
    Failure {
        stage,
        message,
        inputs,
        expected,
        found: found.as_ref().map_or_else(|_| Vec::new(), |(out, _)| lines(out)),
    }
}
