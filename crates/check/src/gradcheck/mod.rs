//! Checks gradients: [`gradcheck`] compares the gradients of a function with differences of its
//! values, [`gradgradcheck`] those of its gradients. It is the counterpart of PyTorch's
//! `torch.autograd.gradcheck`.
//!
//! Beyond PyTorch's, the check does not stop at the inputs that are given. From these it makes
//! others (`variants`): inputs that are transposed, sliced and expanded in memory,
//! of other sizes, and one tensor in place of two. A function that refuses an input of another size
//! is not checked there. Gradients of results are given in several layouts, too.
//!
//! Differences say nothing where a function has a kink. The inputs that are given must have none;
//! others are left out where differences with two steps disagree. Where a gradient seems wrong,
//! they are also left out if the slope is not linear in the direction, as at a tie of three
//! elements. Integers may be positions: those that are distinct stay distinct in inputs of other
//! sizes.

mod jacobian;
mod point;
mod variants;

use maquette_ir::{DType, Loc};
use maquette_ops::autograd::{BackwardOptions, enable_grad, grad};
use maquette_ops::internals::{TensorInternals, is_grad_enabled};
use maquette_ops::{Error, ErrorKind, Result, Tensor, mode};
use point::Point;

/// A function to be checked.
pub type Function<'a> = dyn Fn(&[Tensor]) -> Result<Vec<Tensor>> + 'a;

/// The options of [`gradcheck_with`] and [`gradgradcheck_with`]. The defaults are PyTorch's.
#[derive(Clone, Debug)]
pub struct GradcheckOptions {
    eps: f64,
    atol: f64,
    rtol: f64,
    nondet_tol: f64,
    fast: bool,
    variants: bool,
    undefined: bool,
    any_float: bool,
}

impl Default for GradcheckOptions {
    fn default() -> GradcheckOptions {
        GradcheckOptions {
            eps: 1e-6,
            atol: 1e-5,
            rtol: 1e-3,
            nondet_tol: 0.0,
            fast: false,
            variants: true,
            undefined: true,
            any_float: false,
        }
    }
}

impl GradcheckOptions {
    /// Steps of 1e-6, tolerances of 1e-5 and 1e-3, whole Jacobians, and variants of the inputs.
    pub fn new() -> GradcheckOptions {
        GradcheckOptions::default()
    }

    /// The length of a step from which a difference is taken.
    pub fn eps(mut self, eps: f64) -> GradcheckOptions {
        self.eps = eps;
        self
    }

    /// How far an entry of a Jacobian may be from the difference.
    pub fn atol(mut self, atol: f64) -> GradcheckOptions {
        self.atol = atol;
        self
    }

    /// How far an entry of a Jacobian may be from the difference, relative to it.
    pub fn rtol(mut self, rtol: f64) -> GradcheckOptions {
        self.rtol = rtol;
        self
    }

    /// How much two sweeps may differ; 0, the default, requires equal bits.
    pub fn nondet_tol(mut self, tol: f64) -> GradcheckOptions {
        self.nondet_tol = tol;
        self
    }

    /// Whether to compare random projections of Jacobians instead of every entry. The time is then
    /// that of a few calls.
    pub fn fast(mut self, on: bool) -> GradcheckOptions {
        self.fast = on;
        self
    }

    /// Whether to check inputs of other layouts and sizes, and repeated ones, too.
    pub fn variants(mut self, on: bool) -> GradcheckOptions {
        self.variants = on;
        self
    }

    /// Whether to check sweeps in which some results have no gradient.
    pub fn undefined_gradients(mut self, on: bool) -> GradcheckOptions {
        self.undefined = on;
        self
    }

    /// Whether inputs may be floats other than `f64`. Differences of these are seldom exact enough
    /// without larger steps and tolerances.
    pub fn any_float(mut self, on: bool) -> GradcheckOptions {
        self.any_float = on;
        self
    }
}

/// What was checked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GradcheckReport {
    /// The inputs on which gradients agree: those given, and in words the others.
    pub checked: Vec<String>,
    /// The inputs that were not checked, with the reasons.
    pub skipped: Vec<String>,
}

/// A gradient that is wrong.
#[derive(Debug, thiserror::Error)]
#[error("gradcheck{}: {what}", if *.second { " of the gradient" } else { "" })]
pub struct GradcheckError {
    /// Whether the gradient of the gradient is wrong.
    pub second: bool,
    /// What is wrong, and on which inputs.
    pub what: String,
}

/// Compares the gradients of a function with differences of its values, with respect to each float
/// among the inputs, which is `f64` of static sizes. The function must give the same results each
/// time.
///
/// ```
/// use maquette_check::gradcheck::gradcheck;
/// use maquette_ops::Tensor;
/// let x = Tensor::from([[0.3f64, -1.2], [0.8, 2.0]]);
/// gradcheck(|x| Ok(vec![x[0].sin().sum_dim([0], false)]), &[x])?;
/// # Ok::<(), maquette_ops::Error>(())
/// ```
///
/// PyTorch: `torch.autograd.gradcheck`.
///
/// # Errors
/// A gradient is wrong ([`GradcheckError`]); the function fails, or has no gradient; an input is a
/// float other than `f64`, or none is a float.
#[track_caller]
pub fn gradcheck(
    f: impl Fn(&[Tensor]) -> Result<Vec<Tensor>>,
    inputs: &[Tensor],
) -> Result<GradcheckReport> {
    let loc = Loc::caller();
    check(&f, inputs, &GradcheckOptions::new(), false).map_err(|e| e.at(loc))
}

/// As [`gradcheck`], with options.
///
/// # Errors
/// As [`gradcheck`].
#[track_caller]
pub fn gradcheck_with(
    f: impl Fn(&[Tensor]) -> Result<Vec<Tensor>>,
    inputs: &[Tensor],
    options: &GradcheckOptions,
) -> Result<GradcheckReport> {
    let loc = Loc::caller();
    check(&f, inputs, options, false).map_err(|e| e.at(loc))
}

/// Compares the gradients of the gradients of a function with differences, as [`gradcheck`]. The
/// weights of the results are random.
///
/// PyTorch: `torch.autograd.gradgradcheck`.
///
/// # Errors
/// As [`gradcheck`].
#[track_caller]
pub fn gradgradcheck(
    f: impl Fn(&[Tensor]) -> Result<Vec<Tensor>>,
    inputs: &[Tensor],
) -> Result<GradcheckReport> {
    let loc = Loc::caller();
    check(&f, inputs, &GradcheckOptions::new(), true).map_err(|e| e.at(loc))
}

/// As [`gradgradcheck`], with options.
///
/// # Errors
/// As [`gradcheck`].
#[track_caller]
pub fn gradgradcheck_with(
    f: impl Fn(&[Tensor]) -> Result<Vec<Tensor>>,
    inputs: &[Tensor],
    options: &GradcheckOptions,
) -> Result<GradcheckReport> {
    let loc = Loc::caller();
    check(&f, inputs, options, true).map_err(|e| e.at(loc))
}

/// Whether differences of a function tell its slope on these inputs.
pub(crate) fn is_smooth_at(f: &Function<'_>, inputs: &[Tensor], eps: f64) -> Result<bool> {
    let given = variants::Variant::given(inputs)?;
    Ok(jacobian::is_smooth(f, &given, eps)? && jacobian::is_linear(f, &given, eps)?)
}

fn check(
    f: &Function<'_>,
    inputs: &[Tensor],
    options: &GradcheckOptions,
    second: bool,
) -> Result<GradcheckReport> {
    if mode::is_active() {
        return Err(Error::value("gradcheck compares values, so a trace cannot contain it"));
    }
    if !inputs.iter().any(|t| t.dtype().is_float()) {
        return Err(Error::value("gradcheck needs an input that is a float"));
    }
    let other = |t: &&Tensor| t.dtype().is_float() && t.dtype() != DType::F64;
    if let Some(t) = inputs.iter().find(other).filter(|_| !options.any_float) {
        return Err(Error::value(format!(
            "gradcheck takes floats as f64, found {}: differences of others are not exact",
            t.meta()
        )));
    }
    let wrong = |what| {
        let e = GradcheckError { second, what };
        Error::from(ErrorKind::Other(Box::new(e)))
    };
    let mut report = GradcheckReport::default();
    let given = variants::Variant::given(inputs)?;
    one(f, &given, options, second)?.map_err(wrong)?;
    report.checked.push(given.what.clone());
    if !options.variants {
        return Ok(report);
    }
    for variant in variants::variants(inputs)? {
        let skip = |why: String| format!("{}: {why}", variant.what);
        // the function need not take other sizes, and may have a kink elsewhere
        if let Err(e) = jacobian::outputs(f, &variant.leaves()?) {
            report.skipped.push(skip(first_line(&e)));
            continue;
        }
        if !jacobian::is_smooth(f, &variant, options.eps)? {
            report.skipped.push(skip("the function is not smooth there".into()));
            continue;
        }
        match one(f, &variant, &options.clone().fast(true), second)? {
            Ok(()) => report.checked.push(variant.what),
            Err(_) if !jacobian::is_linear(f, &variant, options.eps)? => {
                report.skipped.push(skip("the function has a kink there".into()));
            }
            Err(what) => return Err(wrong(what)),
        }
    }
    Ok(report)
}

/// Checks a function, or its gradient, on some inputs. The inner error is a gradient that is wrong.
fn one(
    f: &Function<'_>,
    variant: &variants::Variant,
    options: &GradcheckOptions,
    second: bool,
) -> Result<std::result::Result<(), String>> {
    if !second {
        return Point { f, variant, options }.check();
    }
    let outputs = jacobian::outputs(f, &variant.leaves()?)?;
    let n = variant.inputs.len();
    let weights = outputs.iter().enumerate().map(|(i, t)| jacobian::random_like(t, 100 + i as u64));
    let weights = weights.collect::<Result<Vec<Tensor>>>()?;
    let gradient = |all: &[Tensor]| -> Result<Vec<Tensor>> {
        let leaves = variants::Variant::given(&all[..n])?.leaves()?;
        // differences are taken of tensors without a history
        let inputs = if is_grad_enabled() { all[..n].to_vec() } else { leaves };
        let outputs = enable_grad(|| jacobian::outputs(f, &inputs))?;
        let own = |(i, t): &(usize, &Tensor)| {
            t.tracks_gradient() && !inputs[..*i].iter().any(|u| u.is_same(t))
        };
        let wanted = inputs.iter().enumerate().filter(own).map(|(_, t)| t.clone());
        let wanted: Vec<Tensor> = wanted.collect();
        let weights: Vec<Option<Tensor>> = all[n..].iter().cloned().map(Some).collect();
        let create_graph = is_grad_enabled();
        let options = BackwardOptions { create_graph, ..BackwardOptions::default() };
        let found = grad(&outputs, &wanted, &weights, options)?;
        // a gradient that is missing is zeros, and a result in any case
        let zeros = wanted.iter().map(|t| t.detach().zeros_like());
        Ok(found.into_iter().zip(zeros).map(|(g, zeros)| g.unwrap_or(zeros)).collect())
    };
    let variant = variant.with(&weights)?;
    Point { f: &gradient, variant: &variant, options }.check()
}

fn first_line(e: &Error) -> String {
    e.kind().to_string().lines().next().unwrap_or_default().to_owned()
}
