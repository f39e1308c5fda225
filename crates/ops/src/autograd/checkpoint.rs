//! Checkpoints: what a function saves for its derivative is computed again by the sweep, in place
//! of being kept.
//!
//! The calls in a *region* are recorded as any others, but the tensors that they save are not kept:
//! each has only its position among those of the region. The first of them that a sweep reads runs
//! the function again, with the kept inputs and the state of the random generator, and collects
//! what the same calls save now. So the graph of derivatives is that of the program without a
//! checkpoint, and gradients have its bits. A tensor is freed with the call that saved it.
//!
//! In a trace, the sweep's run of the function is part of the graph. Its inputs go through
//! `grad::recompute`, an identity that no pass knows as one, as otherwise the repeated operators
//! would be found equal to the first ones, and merged. Random operators are not repeated there: a
//! graph has no state of a generator to return to, so their results are kept.
//!
//! Source: A. Griewank and A. Walther, "Revolve", 2000; PyTorch's `torch.utils.checkpoint` with
//! `use_reentrant=False`; JAX's `checkpoint`, whose barriers keep the repeated operators apart.

use super::grad_mode::{is_grad_enabled, with_grad};
use super::history::{self, requires_grad};
use super::node::lock;
use super::saved::SavedTensor;
use crate::dispatch::autocast;
use crate::dispatch::panics;
use crate::dispatch::value::{Args, Outputs, Value};
use crate::error::{AutogradError, Error, Result};
use crate::functional_call::Kept;
use crate::library::{OpState, Tag};
use crate::mode;
use crate::random::{self, Philox};
use crate::tensor::Tensor;
use crate::tensor::meta::Meta;
use crate::tree::{Tree, flatten_values};
use maquette_ir::sym::check_sizes_equal;
use maquette_ir::{DType, Device, Loc};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// A function that computes what `f` computes, and keeps nothing of it for the derivative but the
/// inputs and the state of the random generator. The sweep runs `f` again. Gradients and random
/// numbers are those of `f`, of tensors that it captures too.
///
/// `f` must compute the same again: it must not write its inputs, nor depend on what changes
/// between the two runs. Its effects, such as printing, happen twice.
///
/// ```
/// # use maquette_aten as _;
/// use maquette_ops::{Tensor, autograd::checkpoint};
/// let layer = checkpoint(|x: Tensor| x.exp().sin());
/// let x = Tensor::from([0.5f64]).requires_grad_();
/// layer(x.clone())?.sum().backward()?;
/// let expected = 0.5f64.exp() * 0.5f64.exp().cos();
/// let found = x.grad().map(|g| g.item::<f64>()).transpose()?.unwrap_or_default();
/// assert!((found - expected).abs() < 1e-12);
/// # Ok::<(), maquette_ops::Error>(())
/// ```
///
/// PyTorch: `torch.utils.checkpoint.checkpoint`.
///
/// # Errors
/// The returned function fails if `f` panics or writes an input. A sweep fails if an input was
/// written since, or if the second run of `f` saves other tensors than the first.
#[track_caller]
pub fn checkpoint<I: Tree + 'static, O: 'static>(
    f: impl Fn(I) -> O + Send + Sync + 'static,
) -> impl Fn(I) -> Result<O> {
    panics::install_hook();
    let (f, loc) = (Arc::new(f), Loc::caller());
    move |inputs| {
        if !is_grad_enabled() {
            return caught(|| f(inputs)).map_err(|e| e.at(loc));
        }
        let (spec, values) = flatten_values(&inputs).map_err(|e| e.at(loc))?;
        let versions = |values: &[Value]| -> Vec<u64> {
            values.iter().flat_map(Value::tensors).map(super::saved::version).collect()
        };
        let (kept, before) = (values.iter().map(Input::new).collect(), versions(&values));
        let again = f.clone();
        let rerun = move |values: Vec<Value>| {
            let inputs = I::unflatten(&spec, &mut values.into_iter())?;
            caught(|| drop(again(inputs)))
        };
        let region = Arc::new(Region {
            loc,
            inputs: kept,
            rerun: Box::new(rerun),
            rng: random::state_also_in_traces(Device::Cpu),
            autocast: autocast::autocast_dtype(),
            calls: Kept::now().0,
            random: Mutex::default(),
            count: AtomicUsize::new(0),
            is_finished: AtomicBool::new(false),
            found: Mutex::default(),
        });
        let run = || active(Active::First(region.clone()), || f(inputs));
        let output = caught(run).map_err(|e| e.at(loc))?;
        region.is_finished.store(true, Ordering::Release);
        if versions(&values) != before {
            return Err(Error::from(AutogradError::CheckpointWrites).at(loc));
        }
        Ok(output)
    }
}

/// Runs a function that is checkpointed. A panic is an error.
fn caught<R>(f: impl FnOnce() -> R) -> Result<R> {
    panics::catch("checkpointed function", || Ok(f()))
}

/// One run of a function under a checkpoint.
pub(crate) struct Region {
    loc: Loc,
    inputs: Vec<Input>,
    rerun: Box<dyn Fn(Vec<Value>) -> Result<()> + Send + Sync>,
    rng: Philox,
    autocast: Option<DType>,
    calls: Kept,
    /// In a trace, the results of random operators, in order.
    random: Mutex<Vec<Outputs>>,
    /// The number of tensors that the first run has saved so far.
    count: AtomicUsize,
    /// Whether the first run has ended. A sweep inside of the function runs it again before.
    is_finished: AtomicBool,
    /// What the second run saved, until the calls that need it are freed.
    found: Mutex<Option<Vec<Option<Found>>>>,
}

/// A tensor that the second run saved, and its version then.
type Found = (Tensor, u64);

/// An input of a region.
enum Input {
    Tensor { saved: SavedTensor, requires_grad: bool },
    Other(Value),
}

impl Input {
    fn new(value: &Value) -> Input {
        match value {
            Value::Tensor(t) if t.alive().is_ok() => {
                Input::Tensor { saved: SavedTensor::new(t), requires_grad: requires_grad(t) }
            }
            other => Input::Other(other.clone()),
        }
    }
}

/// What a thread does for a region.
#[derive(Clone)]
enum Active {
    First(Arc<Region>),
    Second(Rc<Second>),
}

/// The second run of a region.
struct Second {
    region: Arc<Region>,
    found: RefCell<Vec<Option<Found>>>,
    /// The number of random operators so far.
    random: Cell<usize>,
}

thread_local! {
    static IS_ACTIVE: Cell<bool> = const { Cell::new(false) };
    /// The regions, the innermost last.
    static ACTIVE: RefCell<Vec<Active>> = const { RefCell::new(Vec::new()) };
}

/// Runs `f` in a region.
fn active<R>(now: Active, f: impl FnOnce() -> R) -> R {
    struct Pop;
    impl Drop for Pop {
        fn drop(&mut self) {
            let (ended, rest) = ACTIVE.with_borrow_mut(|active| (active.pop(), active.len()));
            IS_ACTIVE.set(rest > 0);
            // What the region keeps is dropped without the borrow.
            drop(ended);
        }
    }
    ACTIVE.with_borrow_mut(|active| active.push(now));
    IS_ACTIVE.set(true);
    let _pop = Pop;
    f()
}

/// Runs `f` apart from the regions of this thread. A trace is recorded so: its graph must not
/// refer to what a region computes again from the tensors of one call.
pub fn outside_regions<R>(f: impl FnOnce() -> R) -> R {
    struct Restore(Vec<Active>);
    impl Drop for Restore {
        fn drop(&mut self) {
            let regions = std::mem::take(&mut self.0);
            IS_ACTIVE.set(!regions.is_empty());
            drop(ACTIVE.replace(regions));
        }
    }
    let _restore = Restore(ACTIVE.take());
    IS_ACTIVE.set(false);
    f()
}

/// Whether a region runs on this thread.
pub(super) fn is_active() -> bool {
    IS_ACTIVE.get()
}

/// A tensor that is computed again.
pub(super) struct Recomputed {
    region: Arc<Region>,
    index: usize,
    meta: Meta,
}

/// A call in a region saves a tensor: its place, unless the tensor itself is to be kept.
pub(super) fn save(t: &Tensor) -> Option<Recomputed> {
    match ACTIVE.with_borrow(|active| active.last().cloned())? {
        Active::First(region) => {
            let index = region.count.fetch_add(1, Ordering::Relaxed);
            Some(Recomputed { region, index, meta: t.meta().clone() })
        }
        Active::Second(second) => {
            second.found.borrow_mut().push(Some((t.untracked(), t.writes())));
            None
        }
    }
}

impl Recomputed {
    /// The tensor, and its version when it was saved.
    ///
    /// # Errors
    /// The second run fails, or saved another tensor here, or another number of tensors: then it
    /// is not known which calls saved them.
    pub(super) fn get(&self) -> Result<(Tensor, u64)> {
        // with the number of all that the second run saved
        let known = || {
            let found = lock(&self.region.found);
            let all = found.as_ref()?;
            Some((all.get(self.index)?.clone()?, all.len()))
        };
        let found = match known() {
            Some(found) => Some(found),
            None => {
                let all = self.region.run_again()?;
                *lock(&self.region.found) = Some(all);
                known()
            }
        };
        let error = |expected: String, found: String| -> Error {
            AutogradError::Recomputed { called: self.region.loc, expected, found }.into()
        };
        let differs = |found: String| error(self.meta.to_string(), found);
        let ((tensor, version), saved) = found.ok_or_else(|| differs("nothing".into()))?;
        if let Some(first) = self.region.saved()
            && first != saved
        {
            return Err(error(format!("{first} tensors"), saved.to_string()));
        }
        let (meta, expected) = (tensor.meta(), &self.meta);
        let claim = "the second run of a checkpointed function saves the same sizes";
        let fits =
            meta.dtype == expected.dtype && check_sizes_equal(&expected.sizes, &meta.sizes, claim)?;
        if !fits {
            return Err(differs(meta.to_string()));
        }
        Ok((tensor, version))
    }
}

impl Drop for Recomputed {
    fn drop(&mut self) {
        let mut found = lock(&self.region.found);
        let freed = found.as_mut().and_then(|f| f.get_mut(self.index)).and_then(Option::take);
        drop(found);
        drop(freed);
    }
}

impl Region {
    /// The number of tensors that the first run has saved, once it has ended.
    fn saved(&self) -> Option<usize> {
        let is_finished = self.is_finished.load(Ordering::Acquire);
        is_finished.then(|| self.count.load(Ordering::Relaxed))
    }

    /// Runs the function again. Returns what it saved.
    fn run_again(self: &Arc<Region>) -> Result<Vec<Option<Found>>> {
        let inputs = self.inputs.iter().map(|i| self.input(i)).collect::<Result<Vec<Value>>>()?;
        let second =
            Second { region: self.clone(), found: RefCell::default(), random: Cell::new(0) };
        let second = Rc::new(second);
        let run = || mode::in_user_code(|| with_grad(true, || (self.rerun)(inputs)));
        let run = || autocast::with_dtype(self.autocast, run);
        // Only what is saved counts, so leaves stand for the histories of given tensors.
        let leaf = |t: &Tensor, _| drop(history::make_leaf(t, self.loc));
        let run = || self.calls.run(leaf, run);
        let mut rng = self.rng;
        random::apart_also_in_traces(&mut rng, || active(Active::Second(second.clone()), run))?;
        let found = second.found.take();
        Ok(found)
    }

    /// An input of the second run: a leaf, where the first run's took part in differentiation.
    fn input(&self, input: &Input) -> Result<Value> {
        let (saved, requires_grad) = match input {
            Input::Tensor { saved, requires_grad } => (saved, *requires_grad),
            Input::Other(value) => return Ok(value.clone()),
        };
        let mut t = saved.unpack(None, "a checkpointed function", self.loc)?.untracked();
        if t.slot().is_some() {
            let apart = with_grad(false, || crate::call("grad::recompute", crate::args![t]))?;
            t = apart.into_iter().next().unwrap_or(Value::None).into_tensor()?;
        }
        if requires_grad {
            history::make_leaf(&t, self.loc)?;
        }
        Ok(Value::Tensor(t))
    }
}

/// A call of a traced operator. In a region, a random one is called in the first run only.
pub(crate) fn traced(
    state: &OpState,
    args: &mut Args,
    call: impl FnOnce(&mut Args) -> Result<Outputs>,
) -> Result<Outputs> {
    let random = state.facts.tags.contains(Tag::NondeterministicSeeded);
    if !random || !is_active() {
        return call(args);
    }
    let mut regions = ACTIVE.with_borrow(Clone::clone);
    // Regions around a second run are not asked: whether it takes place depends on what a sweep has
    // found before.
    let (mut first, mut second) = (Vec::new(), None);
    while let Some(active) = regions.pop() {
        match active {
            Active::First(region) => first.push(region),
            Active::Second(outer) => {
                second = Some(outer);
                break;
            }
        }
    }
    let written: Vec<Tensor> =
        state.facts.mutated.iter().flat_map(|&i| args[usize::from(i)].tensors()).cloned().collect();
    let (outputs, kept) = match second {
        Some(second) => second.random(&written, state.schema.returns.len())?,
        None => {
            let outputs = call(args)?;
            let kept = kept(&outputs, &written)?;
            (outputs, kept)
        }
    };
    for region in first {
        lock(&region.random).push(kept.clone());
    }
    Ok(outputs)
}

/// What a region keeps of the results of a random operator.
fn kept(outputs: &Outputs, written: &[Tensor]) -> Result<Outputs> {
    // What a call writes may be written again: its values are kept as copies.
    let copy = |t: &Tensor| t.clone_tensor().ok().cloned().map(Value::Tensor);
    match written {
        [] => outputs.iter().map(|v| v.map_tensors(&mut |t| Ok(t.untracked()))).collect(),
        written => with_grad(false, || written.iter().map(copy).collect()),
    }
}

impl Second {
    /// The results of the next random operator, those of the first run, and what that run kept of
    /// them.
    fn random(&self, written: &[Tensor], returns: usize) -> Result<(Outputs, Outputs)> {
        let at = self.random.replace(self.random.get() + 1);
        let region = &self.region;
        let known = lock(&region.random).get(at).cloned();
        let missing = || {
            let (expected, found) = ("no random operator".into(), "one".into());
            AutogradError::Recomputed { called: region.loc, expected, found }
        };
        let known = known.ok_or_else(missing)?;
        if written.is_empty() {
            return Ok((kept(&known, written)?, known));
        }
        for (t, values) in written.iter().zip(known.iter().flat_map(Value::tensors)) {
            with_grad(false, || t.copy_(values)).ok()?;
        }
        let outputs = written.iter().cloned().map(Value::Tensor).take(returns).collect();
        Ok((outputs, known))
    }
}
