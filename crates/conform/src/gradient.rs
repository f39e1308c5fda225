//! Recorded gradients: the vector-Jacobian product of a call, and the gradients of that product.

use super::compare;
use super::recorded::{RecordedCall, SharedStorages};
use super::report::{Failure, Stage};
use maquette_check::values::{catch_panics, flatten, show};
use maquette_ops::autograd::{self, BackwardOptions};
use maquette_ops::internals::TensorInternals;
use maquette_ops::{Args, AutogradError, Error, ErrorKind, Op, Result, Tensor, Value};
use serde_json::Value as Json;

/// What was recorded of the derivative of a call.
pub(super) struct RecordedGradient {
    /// The paths of the inputs that require a gradient.
    wrt: Vec<Json>,
    /// The gradient of each output tensor; null if the output has none.
    cot: Vec<Json>,
    /// The gradient of each input in `wrt`.
    vjp: Vec<Json>,
    second: Option<Second>,
    /// Whether the call draws random numbers.
    is_random: bool,
}

/// The gradients of the sum of all products of `vjp` and `v`.
struct Second {
    v: Vec<Json>,
    /// With respect to the inputs, then to the gradients of the outputs.
    grads: Vec<Json>,
}

fn list(doc: &Json) -> Vec<Json> {
    doc.as_array().cloned().unwrap_or_default()
}

impl RecordedGradient {
    /// Reads the gradient of a recorded call. `None` if the call was recorded without one.
    pub(super) fn new(doc: &Json) -> Option<RecordedGradient> {
        let second = &doc["second"];
        Some(RecordedGradient {
            wrt: doc.get("wrt")?.as_array()?.clone(),
            cot: list(&doc["cot"]),
            vjp: list(&doc["vjp"]),
            second: second["v"].as_array().map(|v| Second {
                v: v.clone(),
                grads: list(&second["wrt"]).into_iter().chain(list(&second["cot"])).collect(),
            }),
            is_random: doc.get("seed").is_some(),
        })
    }
}

/// Why a check ended early.
struct Stop(Stage, String);

impl From<Error> for Stop {
    fn from(e: Error) -> Stop {
        let missing = matches!(
            e.kind(),
            ErrorKind::Autograd(AutogradError::NoRule { .. } | AutogradError::Refused { .. })
        );
        Stop(if missing { Stage::NoRule } else { Stage::Refused }, e.to_string())
    }
}

impl From<String> for Stop {
    fn from(message: String) -> Stop {
        Stop(Stage::Refused, message)
    }
}

/// Checks the recorded gradients of a call.
pub(super) fn check(op: Op, call: &RecordedCall, recorded: &RecordedGradient) -> Option<Failure> {
    let mut found = Vec::new();
    let outcome = catch_panics("the call", || Ok(run(op, call, recorded, &mut found)));
    let Stop(stage, message) = match outcome {
        Ok(Ok(())) => return None,
        Ok(Err(stop)) => stop,
        Err(e) => Stop(Stage::Refused, e.to_string()),
    };
    let shown = |values: &[Value]| values.iter().map(show).collect::<Vec<_>>();
    let expected =
        recorded.vjp.iter().filter_map(|j| call.value(j, &mut SharedStorages::new()).ok());
    Some(Failure {
        stage,
        message,
        inputs: call.arguments(op).map(|a| shown(&a)).unwrap_or_default(),
        expected: shown(&expected.collect::<Vec<_>>()),
        found: found.iter().map(|g: &Option<Tensor>| format!("{g:?}")).collect(),
    })
}

fn run(
    op: Op,
    call: &RecordedCall,
    recorded: &RecordedGradient,
    found: &mut Vec<Option<Tensor>>,
) -> std::result::Result<(), Stop> {
    let mut args = call.arguments(op)?;
    let leaves: Vec<Tensor> = recorded
        .wrt
        .iter()
        .map(|path| leaf(op, &mut args, path))
        .collect::<std::result::Result<_, String>>()?;
    let out = op.call(args.clone())?;
    let out: Vec<Tensor> = flatten(&out).iter().flat_map(Value::tensors).cloned().collect();
    if recorded.cot.len() != out.len() {
        return Err(format!("{} outputs, expected {}", out.len(), recorded.cot.len()).into());
    }
    let (mut roots, mut cot, mut cot_at) = (Vec::new(), Vec::new(), vec![None; out.len()]);
    for (i, (t, grad)) in out.iter().zip(&recorded.cot).enumerate() {
        if !grad.is_null() && t.tracks_gradient() {
            let grad = call.tensor(grad, &mut SharedStorages::new())?;
            if recorded.second.is_some() {
                grad.requires_grad_().ok()?;
            }
            cot_at[i] = Some(grad.clone());
            roots.push(t.clone());
            cot.push(Some(grad));
        }
    }
    let options = BackwardOptions { create_graph: recorded.second.is_some(), ..Default::default() };
    *found = autograd::grad(&roots, &leaves, &cot, options)?;
    if !recorded.is_random || same_draw(op, call, &args, &out) {
        agree(call, &recorded.vjp, found).map_err(|m| Stop(Stage::Gradient, m))?;
    }
    match &recorded.second {
        Some(second) => check_second(call, second, &leaves, &cot_at, found),
        None => Ok(()),
    }
}

/// Makes the argument at a path a leaf. A tensor that the call writes is replaced by a copy of the
/// leaf.
fn leaf(op: Op, args: &mut Args, path: &Json) -> std::result::Result<Tensor, String> {
    let schema = op.schema().map_err(|e| e.to_string())?;
    let unknown = || format!("there is no argument at {path}");
    let steps = path.as_array().ok_or_else(unknown)?;
    let first = steps.first().ok_or_else(unknown)?;
    let index = match (first.as_u64(), first.as_str()) {
        (Some(i), _) => Some(i as usize),
        (None, name) => schema.args.iter().position(|a| Some(a.name.as_str()) == name),
    };
    let index = index.filter(|i| *i < args.len()).ok_or_else(unknown)?;
    let position = steps.get(1).and_then(Json::as_u64).unwrap_or(0) as usize;
    let (mut at, mut found) = (0, None);
    let mutates = op.mutates(index);
    args[index] = args[index]
        .map_tensors(&mut |t| {
            at += 1;
            if at != position + 1 {
                return Ok(t.clone());
            }
            let t = t.requires_grad_().ok()?.clone();
            found = Some(t.clone());
            if mutates { t.clone_tensor().ok().cloned() } else { Ok(t) }
        })
        .map_err(|e| e.to_string())?;
    found.ok_or_else(unknown)
}

/// Whether a random call gave what PyTorch's gave, so that the gradients are comparable.
fn same_draw(op: Op, call: &RecordedCall, args: &Args, out: &[Tensor]) -> bool {
    let Ok(expected) = call.value(&call.out, &mut SharedStorages::new()) else { return false };
    // A zero may be dropped out, or a product with one that is not.
    let has_zeros = |t: &Tensor| t.count_nonzero().item_int().as_i64() != t.numel().as_i64();
    let has_zeros = out.iter().any(has_zeros);
    let out: Vec<Value> = out.iter().map(Value::from).collect();
    !has_zeros && compare::outputs(op.name(), args, &[expected], &out).is_ok()
}

fn check_second(
    call: &RecordedCall,
    second: &Second,
    leaves: &[Tensor],
    cot: &[Option<Tensor>],
    vjp: &[Option<Tensor>],
) -> std::result::Result<(), Stop> {
    let at = |e: Error| match Stop::from(e) {
        Stop(Stage::NoRule, m) => Stop(Stage::NoRule, m),
        Stop(_, m) => Stop(Stage::Second, m),
    };
    let (mut roots, mut grads) = (Vec::new(), Vec::new());
    for (v, g) in second.v.iter().zip(vjp) {
        if let Some(g) = g.as_ref().filter(|g| !v.is_null() && g.tracks_gradient()) {
            roots.push(g.clone());
            grads.push(Some(call.tensor(v, &mut SharedStorages::new())?));
        }
    }
    // A cotangent that was not recorded is a leaf of which nothing depends.
    let inputs: Vec<Tensor> = leaves.iter().chain(cot.iter().flatten()).cloned().collect();
    let found = autograd::grad(&roots, &inputs, &grads, BackwardOptions::default()).map_err(at)?;
    let mut found = found.into_iter();
    let mut all: Vec<Option<Tensor>> = found.by_ref().take(leaves.len()).collect();
    all.extend(cot.iter().map(|c| c.as_ref().and_then(|_| found.next().flatten())));
    agree(call, &second.grads, &all).map_err(|m| Stop(Stage::Second, format!("second: {m}")))
}

/// Compares gradients. No gradient is as good as zeros.
fn agree(
    call: &RecordedCall,
    expected: &[Json],
    found: &[Option<Tensor>],
) -> std::result::Result<(), String> {
    if expected.len() != found.len() {
        return Err(format!("found {} gradients, expected {}", found.len(), expected.len()));
    }
    for (i, (e, f)) in expected.iter().zip(found).enumerate() {
        let dense =
            |t: &Tensor| -> Result<Value> { Ok(Value::from(t.clone_tensor().contiguous().ok()?)) };
        let recorded = match e {
            Json::Null => None,
            e => Some(call.tensor(e, &mut SharedStorages::new())?),
        };
        let (e, f) = match (&recorded, f) {
            (None, None) => continue,
            (Some(e), Some(f)) => (dense(e), dense(f)),
            (Some(e), None) => (dense(e), dense(&e.zeros_like())),
            (None, Some(f)) => (dense(&f.zeros_like()), dense(f)),
        };
        let (e, f) = (e.map_err(|e| e.to_string())?, f.map_err(|e| e.to_string())?);
        compare::value(&e, &f).map_err(|m| format!("gradient {i}: {m}"))?;
    }
    Ok(())
}
