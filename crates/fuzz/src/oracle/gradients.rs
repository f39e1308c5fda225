//! Gradients of programs.
//!
//! A program with gradients is a function from its inputs to a scalar, the sum of the sines of its
//! float outputs. It writes copies of the inputs, since a leaf may not be written. All modes run
//! the value and its gradient, as [`value_and_grad`] gives them: eagerly, or as one graph of the
//! forward and the backward pass. Two modes are of gradients alone: [`Backward`] collects them in
//! leaves, and [`FiniteDifferences`] compares them with differences of values.

use super::library;
use super::mode::{Mode, PreparedProgram, RunResult};
use super::model;
use super::outcome::with_fixed_seed;
use super::program::{AS_STRIDED, TestProgram};
use super::subject::Subject;
use maquette_check::Rng;
use maquette_check::values::{element_bytes, flatten};
use maquette_ir::DType;
use maquette_ir::graph::Graph;
use maquette_ops::autograd::{BackwardOptions, no_grad};
use maquette_ops::func::value_and_grad;
use maquette_ops::internals::TensorInternals;
use maquette_ops::{Args, Error, Op, Result, StorageCloner, Tensor, Value};

/// A gradient that the differences say nothing about.
#[derive(Debug, thiserror::Error)]
#[error("the gradient is not compared with differences: {0}")]
pub(super) struct NotCompared(pub(super) &'static str);

/// A copy of a leaf that views the memory of `input`; integers are the input itself.
pub(super) fn copy_of_leaf(input: &Tensor) -> Result<Tensor> {
    if !input.dtype().is_float() {
        return Ok(input.clone());
    }
    input.detach().requires_grad_().clone_tensor().ok().cloned()
}

/// The value of a program with these copies of its inputs.
fn value_of(graph: &Graph, copies: &[Tensor]) -> Result<Tensor> {
    value_by(graph, copies, &mut |_, op, args| op.call(args))
}

/// As [`value_of`], through `call`.
fn value_by(graph: &Graph, copies: &[Tensor], call: &mut model::Caller<'_>) -> Result<Tensor> {
    let outputs = flatten(&model::run(graph, copies, call)?);
    let floats = outputs.iter().flat_map(Value::tensors).filter(|t| t.dtype().is_float());
    let terms = floats.enumerate().map(|(i, t)| {
        let t = if t.dtype() == DType::F64 { t.clone() } else { t.to_dtype(DType::F64) };
        // the factor tells equal outputs apart
        (t * (1.0 + i as f64 / 8.0)).sin().sum()
    });
    let value = terms.reduce(|a, b| a + b).unwrap_or_else(|| Tensor::zeros([0i64; 0], DType::F64));
    value.ok().cloned()
}

/// The value of a program, whose floats it copies first.
fn value(graph: &Graph, inputs: &[Tensor]) -> Result<Tensor> {
    let copy = |t: &Tensor| if t.dtype().is_float() { t.clone_tensor() } else { t.clone() };
    value_of(graph, &inputs.iter().map(copy).collect::<Vec<Tensor>>())
}

/// The value of a program, and its gradient with respect to each float among the inputs.
///
/// # Errors
/// The program fails, or has no gradient.
pub(super) fn value_and_gradients(graph: &Graph, inputs: &[Tensor]) -> Result<Vec<Value>> {
    let f =
        value_and_grad(|inputs: Vec<Tensor>| value(graph, &inputs).unwrap_or_else(Tensor::poison));
    let (value, gradients) = f(inputs.to_vec())?;
    let gradients = gradients.into_iter().filter(|g| g.dtype().is_float());
    Ok(std::iter::once(value).chain(gradients).map(Value::Tensor).collect())
}

/// Eager sweeps that collect gradients in leaves. Some of the gradients are written in between: the
/// second sweep must add to what was written, and a write changes no other gradient.
pub(super) struct Backward;

impl Mode for Backward {
    fn name(&self) -> &'static str {
        "backward"
    }

    fn prepare(&self, program: &Subject<'_>, _sample: &[Tensor]) -> Result<PreparedProgram> {
        let graph = program.graph.clone();
        Ok(Box::new(move |inputs| swept(&graph, inputs)))
    }

    fn serves_all_sizes(&self, _program: &TestProgram) -> bool {
        true
    }

    fn is_symbolic(&self, _program: &TestProgram) -> bool {
        false
    }

    fn shares_as_eager(&self) -> bool {
        false
    }
}

fn swept(graph: &Graph, inputs: &[Tensor]) -> Result<RunResult> {
    let leaf = |t: &Tensor| {
        if t.dtype().is_float() { t.detach().requires_grad_() } else { t.clone() }
    };
    let leaves: Vec<Tensor> = inputs.iter().map(leaf).collect();
    let value = value(graph, &leaves)?;
    let floats: Vec<&Tensor> = leaves.iter().filter(|t| t.dtype().is_float()).collect();
    let mut outputs = vec![Value::Tensor(value.detach())];
    if !value.tracks_gradient() {
        outputs.extend(floats.iter().map(|t| Value::Tensor(t.zeros_like())));
        return Ok(outputs.into());
    }
    let retain = BackwardOptions { retain_graph: true, ..BackwardOptions::default() };
    value.backward_with(&value.ones_like(), retain)?;
    let copy = |t: &&Tensor| t.grad().map(|g| g.clone_tensor());
    let first: Vec<Option<Tensor>> = floats.iter().map(copy).collect();
    let mut expected = Vec::new();
    for (i, (t, first)) in floats.iter().zip(&first).enumerate() {
        let write = |g: &Tensor| match i % 3 {
            0 => g.mul_(3.0).ok().map(drop),
            1 => g.zero_().ok().map(drop),
            _ => Ok(()),
        };
        let written = first.as_ref().map(Tensor::clone_tensor);
        [t.grad().as_ref(), written.as_ref()].into_iter().flatten().try_for_each(write)?;
        expected.push(written.as_ref().zip(first.as_ref()).map(|(g, first)| g + first));
    }
    let log = library::take_log();
    value.backward()?;
    library::take_log();
    library::restore_log(log);
    for (t, expected) in floats.iter().zip(&expected) {
        let bytes = |g: Option<&Tensor>| g.map(element_bytes).transpose();
        maquette_ops::ensure!(
            bytes(t.grad().as_ref())? == bytes(expected.as_ref())?,
            "a second sweep does not add to the gradients as they were written"
        );
    }
    let first = first.into_iter().zip(&floats).map(|(g, t)| g.unwrap_or_else(|| t.zeros_like()));
    outputs.extend(first.map(Value::Tensor));
    Ok(outputs.into())
}

/// The eager gradient, compared with differences of values along a random direction.
///
/// A program may have a kink, or magnify rounding. Central differences with two steps that
/// disagree, or a difference from both sides that does not vanish, show this. Then the gradient is
/// compared at other values of the inputs.
pub(super) struct FiniteDifferences;

impl Mode for FiniteDifferences {
    fn name(&self) -> &'static str {
        "differences"
    }

    fn prepare(&self, program: &Subject<'_>, _sample: &[Tensor]) -> Result<PreparedProgram> {
        let graph = program.graph.clone();
        Ok(Box::new(move |inputs| {
            let log = library::take_log();
            let compared = compare_somewhere(&graph, inputs);
            library::take_log();
            library::restore_log(log);
            let outputs = value_and_gradients(&graph, inputs)?;
            compared?;
            Ok(outputs.into())
        }))
    }

    fn serves_all_sizes(&self, _program: &TestProgram) -> bool {
        true
    }

    fn is_symbolic(&self, _program: &TestProgram) -> bool {
        false
    }
}

/// At how many other values of the inputs a gradient may be compared.
const OTHER_POINTS: u64 = 4;

/// Compares the gradient at the inputs, or at the first values where there is a slope.
fn compare_somewhere(graph: &Graph, inputs: &[Tensor]) -> Result<()> {
    let why = match compare_at(graph, inputs)? {
        Comparison::Compared(result) => return result,
        Comparison::NoSlope(NoSlope::Anywhere(why)) => return Err(Error::other(NotCompared(why))),
        Comparison::NoSlope(NoSlope::Here(why)) => why,
    };
    for number in 1..=OTHER_POINTS {
        // The sizes of a program may depend on values, so that it fails at others.
        let there = elsewhere(inputs, number).and_then(|inputs| compare_at(graph, &inputs));
        if let Ok(Comparison::Compared(result)) = there {
            return result;
        }
    }
    Err(Error::other(NotCompared(why)))
}

/// Inputs of the same layouts with other floats, which are hardly ever equal. Some are positive,
/// for roots and logarithms. Those of greater numbers are smaller, since a program may magnify
/// them.
fn elsewhere(inputs: &[Tensor], number: u64) -> Result<Vec<Tensor>> {
    let mut rng = Rng::new(5, number);
    let largest = 1.5 / number as f64;
    let mut cloner = StorageCloner::default();
    let mut of = |t: &Tensor| {
        if t.dtype() != DType::F64 {
            return cloner.clone_of(t);
        }
        let n = t.storage()?.len() / DType::F64.size();
        let least = if number.is_multiple_of(2) { 1 } else { -1_000_003 };
        let mut value = |_| largest * rng.between(least, 1_000_003) as f64 / 1_000_003.0;
        let all = Tensor::from_vec((0..n).map(&mut value).collect::<Vec<f64>>(), [n as i64]);
        all.as_strided(t.sizes(), t.strides(), Some(t.storage_offset())).ok().cloned()
    };
    inputs.iter().map(&mut of).collect()
}

/// A gradient beside differences of values.
enum Comparison {
    /// An error if they are not near each other.
    Compared(Result<()>),
    NoSlope(NoSlope),
}

/// Why differences say nothing of a gradient: at some inputs, or at any.
#[derive(Clone, Copy)]
enum NoSlope {
    Here(&'static str),
    Anywhere(&'static str),
}

/// Compares the gradient at these inputs.
///
/// # Errors
/// The program fails there.
fn compare_at(graph: &Graph, inputs: &[Tensor]) -> Result<Comparison> {
    let differences = match Differences::new(graph, inputs)? {
        Ok(differences) => differences,
        Err(why) => return Ok(Comparison::NoSlope(why)),
    };
    let mut cloner = StorageCloner::default();
    let copies = inputs.iter().map(|t| cloner.clone_of(t)).collect::<Result<Vec<Tensor>>>()?;
    let outputs = with_fixed_seed(|| value_and_gradients(graph, &copies))?;
    differences.compare(&outputs)
}

/// The length of a step.
const STEP: f64 = 1e-5;
/// The greatest difference of a slope and a gradient that counts as rounding.
const NEAR: f64 = 1e-4;
/// The greatest difference of the slopes to both sides. At a kink, the gradient may be one of
/// these, and then half of their difference away from the slope.
const BEND: f64 = NEAR;
/// The greatest value of which a dozen roundings leave a slope as exact as [`NEAR`].
const LARGEST: f64 = NEAR * STEP / f64::EPSILON / 16.0;
const TOO_LARGE: NoSlope = NoSlope::Here("a value is too large, or not finite");

struct Differences {
    /// One direction for each float input.
    directions: Vec<Tensor>,
    slope: f64,
}

impl Differences {
    fn new(graph: &Graph, inputs: &[Tensor]) -> Result<std::result::Result<Differences, NoSlope>> {
        let floats = inputs.iter().filter(|t| t.dtype().is_float()).enumerate();
        let directions: Vec<Tensor> =
            floats.map(|(i, t)| direction(i, t)).collect::<Result<_>>()?;
        if directions.iter().all(|d| d.numel().as_i64() == Some(0)) {
            return Ok(Ok(Differences { directions, slope: 0.0 }));
        }
        let mut undefined = None;
        let mut inspect = |_, op: Op, args: Args| {
            undefined = undefined.or(has_no_slope(op, &args)?.map(NoSlope::Anywhere));
            let outputs = op.call(args)?;
            if outputs.iter().flat_map(Value::tensors).any(|t| !is_measurable(t)) {
                undefined = undefined.or(Some(TOO_LARGE));
            }
            Ok(outputs)
        };
        let mut at = |step: f64| {
            let mut cloner = StorageCloner::default();
            let mut directions = directions.iter();
            let copies = inputs.iter().map(|t| match directions.len() {
                _ if !t.dtype().is_float() => cloner.clone_of(t),
                _ => {
                    let copy = t.clone_tensor();
                    let moved = directions.next().map(|d| copy.add_(&(d * step)));
                    moved.as_ref().unwrap_or(&copy).ok()?;
                    Ok(copy)
                }
            });
            let copies = copies.collect::<Result<Vec<Tensor>>>()?;
            let run = || match step {
                0.0 => value_by(graph, &copies, &mut inspect),
                _ => value_of(graph, &copies),
            };
            no_grad(|| with_fixed_seed(run))?.item::<f64>()
        };
        let (home, ahead, behind) = (at(0.0)?, at(STEP)?, at(-STEP)?);
        let slope = (ahead - behind) / (2.0 * STEP);
        let halved = (at(STEP / 2.0)? - at(-STEP / 2.0)?) / STEP;
        let bend = (ahead + behind - 2.0 * home) / STEP;
        let scale = 1.0 + slope.abs();
        let none = if undefined.is_some() {
            undefined
        } else if !(slope - halved).is_finite() {
            Some(NoSlope::Here("a value is not finite"))
        } else if (slope - halved).abs() > 1e-6 * scale || bend.abs() > BEND * scale {
            Some(NoSlope::Here("the program is not smooth there"))
        } else {
            None
        };
        Ok(none.map_or(Ok(Differences { directions, slope: halved }), Err))
    }

    /// Compares a gradient with the slope.
    fn compare(&self, outputs: &[Value]) -> Result<Comparison> {
        let mut expected = 0.0;
        for (gradient, direction) in outputs.iter().skip(1).zip(&self.directions) {
            expected += (gradient.tensor()? * direction).sum().item::<f64>()?;
        }
        // as of `sqrt(0)`, weighted by 0
        if !expected.is_finite() {
            return Ok(Comparison::NoSlope(NoSlope::Here("a gradient is not finite")));
        }
        let is_near = (expected - self.slope).abs() <= NEAR * (1.0 + self.slope.abs());
        let found = match is_near {
            true => Ok(()),
            false => Err(Error::msg(format!(
                "the slope along a direction is {}, and by its gradient {expected}",
                self.slope
            ))),
        };
        Ok(Comparison::Compared(found))
    }
}

/// Why the gradient of a call is not a limit of differences.
fn has_no_slope(op: Op, args: &[Value]) -> Result<Option<&'static str>> {
    let name = op.name();
    if name == "aten::detach" {
        return Ok(Some("the program cuts a history"));
    }
    if name == AS_STRIDED {
        let t = args.first().ok_or_else(|| Error::value("takes a tensor"))?.tensor()?;
        let elements = t.storage()?.len() / t.dtype().size();
        let whole = t.numel().as_i64() == i64::try_from(elements).ok();
        return Ok((!whole).then_some("a view of elements that its tensor does not have"));
    }
    let stores = ["aten::index_put_", "aten::index_copy_", "aten::scatter_.src"].contains(&name);
    let indices = args.iter().skip(1).flat_map(Value::tensors);
    for index in indices.filter(|t| stores && t.dtype() == DType::I64) {
        let mut at = index.to_vec::<i64>()?;
        let n = at.len();
        at.sort_unstable();
        at.dedup();
        if at.len() < n {
            return Ok(Some("an element that is stored twice"));
        }
    }
    Ok(None)
}

/// Whether the rounding of a tensor's values is less than what a step changes.
fn is_measurable(t: &Tensor) -> bool {
    t.dtype() != DType::F64
        || t.to_vec::<f64>().is_ok_and(|values| values.iter().all(|x| x.abs() <= LARGEST))
}

/// A random direction with the sizes of a tensor.
fn direction(index: usize, t: &Tensor) -> Result<Tensor> {
    let sizes = t.sizes_i64()?;
    let mut rng = Rng::new(3, index as u64);
    let n: i64 = sizes.iter().product();
    let values = (0..n).map(|_| rng.between(-1000, 1000) as f64 / 1000.0);
    Ok(Tensor::from_vec(values.collect(), sizes))
}
