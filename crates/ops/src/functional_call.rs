//! Calls of a module with other tensors than its own.
//!
//! `forward` passes the module's tensors to operators. During a functional call, the dispatcher
//! replaces each operand that is a handle of the module by the given tensor, before derivatives are
//! recorded. So gradients go to the given tensors, and a trace records these. Trees that are
//! flattened meanwhile, such as the inputs of compiled functions, are replaced in the same way, and
//! so is what `custom_vjp` takes.
//!
//! The parts of a call pass the dispatcher again, with operands that were replaced. So no given
//! tensor may be a handle that is replaced in turn: one that is gets another handle, a view of it.
//!
//! Code that a sweep runs, such as a checkpointed function, runs in the functional calls of the
//! place where it was recorded ([`Kept`]).
//!
//! An input of the call may be a tensor of the module. `forward` gets another handle of the tensor,
//! a view of it, which is not replaced.
//!
//! A view that the module made of its tensor before the call is not a handle of the module: it must
//! be made in `forward`.

use crate::autograd::history;
use crate::autograd::node::Edges;
use crate::dispatch::value::{Args, Value};
use crate::error::{Error, Result};
use crate::module::{Module, Slot};
use crate::tensor::Tensor;
use crate::tree::{Tree, flatten_values};
use maquette_ir::Loc;
use maquette_ir::sym::check_sizes_equal;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::convert::Infallible;

/// The tensors of a module and those in their places.
type Frame = Vec<(Tensor, Tensor)>;

thread_local! {
    /// The functional calls that run on this thread, the innermost last.
    static FRAMES: RefCell<Vec<Frame>> = const { RefCell::new(Vec::new()) };
    /// How many there are, to be read at every call of an operator.
    static DEPTH: Cell<usize> = const { Cell::new(0) };
}

/// Whether a functional call runs on this thread.
pub fn in_functional_call() -> bool {
    DEPTH.get() != 0
}

/// The tensor that stands in the place of `t`, if there is one.
pub(crate) fn replacement(t: &Tensor) -> Option<Tensor> {
    FRAMES.with_borrow(|frames| {
        let pairs = || frames.iter().rev().flatten();
        pairs().find(|(own, _)| own.is_same_handle(t)).map(|(_, given)| given.clone())
    })
}

/// The tensor itself, or the one in its place.
pub(crate) fn current(t: &Tensor) -> Tensor {
    in_functional_call().then(|| replacement(t)).flatten().unwrap_or_else(|| t.clone())
}

/// Replaces the operands of a call.
#[cold]
pub(crate) fn replace(args: &mut Args) {
    for arg in args {
        let Ok(replaced) =
            arg.map_tensors::<Infallible>(&mut |t| Ok(replacement(t).unwrap_or_else(|| t.clone())));
        *arg = replaced;
    }
}

/// Checks that the data of a tensor may be read or written: it is not that of a replaced one.
///
/// # Errors
/// Another tensor stands in its place.
pub(crate) fn check_access(t: &Tensor, what: &str) -> Result<()> {
    if in_functional_call() && replacement(t).is_some() {
        return Err(Error::value(format!(
            "a tensor of the module was {what} in a functional call, where another stands in its \
                place; use it by operators"
        )));
    }
    Ok(())
}

/// The parameters of a module by name. A parameter with several names has the first.
///
/// PyTorch: `Module.named_parameters`.
pub fn parameters<M: Module + ?Sized>(module: &M) -> BTreeMap<String, Tensor> {
    named(module, Slot::Parameter)
}

/// The buffers of a module by name. A buffer with several names has the first.
///
/// PyTorch: `Module.named_buffers`.
pub fn buffers<M: Module + ?Sized>(module: &M) -> BTreeMap<String, Tensor> {
    named(module, Slot::Buffer)
}

fn named<M: Module + ?Sized>(module: &M, wanted: Slot) -> BTreeMap<String, Tensor> {
    let (mut all, mut seen) = (BTreeMap::new(), Vec::<Tensor>::new());
    module.visit(&mut |name, slot, t| {
        if slot == wanted && !seen.iter().any(|s| s.is_same_handle(t)) {
            seen.push(t.clone());
            all.insert(name.to_owned(), t.clone());
        }
    });
    all
}

/// Runs a module with the given tensors in the places of its own, by name. Tensors without a given
/// one are the module's own. The module is not changed, except its own buffers that it writes.
///
/// What `forward` takes from the module is replaced, and `input` is not: a tensor in it that is one
/// of the module's own stands for itself, and a write to it writes the module's tensor.
///
/// ```
/// # use maquette_aten as _;
/// use maquette_ops::func::{functional_call, grad, parameters};
/// use maquette_ops::module::Slot;
/// use maquette_ops::{Module, Tensor};
/// use std::collections::BTreeMap;
///
/// struct Scale(Tensor);
///
/// impl Module for Scale {
///     type In = Tensor;
///     type Out = Tensor;
///
///     fn forward(&self, x: Tensor) -> Tensor {
///         x * &self.0
///     }
///
///     fn visit(&self, v: &mut dyn FnMut(&str, Slot, &Tensor)) {
///         v("factor", Slot::Parameter, &self.0);
///     }
/// }
///
/// let (scale, x) = (Scale(Tensor::from([2.0])), Tensor::from([5.0]));
/// let loss = |p: BTreeMap<String, Tensor>| {
///     functional_call(&scale, &p, x.clone()).unwrap_or_else(Tensor::poison).sum()
/// };
/// let gradients = grad(loss)(parameters(&scale))?;
/// assert_eq!(gradients["factor"].to_vec::<f64>()?, [5.0]);
/// # Ok::<(), maquette_ops::Error>(())
/// ```
///
/// PyTorch: `torch.func.functional_call`.
///
/// # Errors
/// The module has no tensor of a name, or it has other sizes; names of one tensor have different
/// ones; `forward` fails. An operation in `forward` that reads the data of a replaced tensor fails.
#[track_caller]
pub fn functional_call<M: Module + ?Sized>(
    module: &M,
    tensors: &BTreeMap<String, Tensor>,
    input: M::In,
) -> Result<<M::Out as Tree>::Output> {
    let loc = Loc::caller();
    let call = || {
        let frame = frame(module, tensors)?;
        let (input, inputs) = apart(&frame, input)?;
        let (spec, values) = {
            let _guard = Guard::new(frame);
            flatten_values(&module.forward(input))?
        };
        let values = values.iter().map(|v| v.map_tensors(&mut |t| Ok(original(&inputs, t))));
        let values = values.collect::<Result<Vec<Value>>>()?;
        <M::Out as Tree>::Output::unflatten(&spec, &mut values.into_iter())
    };
    call().map_err(|e: Error| e.at(loc))
}

/// The input of a functional call with other handles in the places of the module's own tensors:
/// only what `forward` takes from the module is replaced. Also returns these tensors, each with its
/// other handle.
///
/// # Errors
/// The input carries an error.
fn apart<I: Tree>(frame: &Frame, input: I) -> Result<(I, Frame)> {
    let (spec, values) = flatten_values(&input)?;
    let is_own = |t: &Tensor| frame.iter().any(|(own, _)| own.is_same_handle(t));
    // In an outer call, flattening has put what that call gives in the places of its tensors.
    if !in_functional_call() && !values.iter().flat_map(Value::tensors).any(is_own) {
        return Ok((input, Frame::new()));
    }
    let mut inputs = Frame::new();
    let mut other = |t: &Tensor| {
        if !is_own(t) {
            return Ok(t.clone());
        }
        let known = inputs.iter().find(|(own, _)| own.is_same_handle(t)).map(|(_, other)| other);
        let other = known.cloned().unwrap_or_else(|| history::alias(t));
        inputs.push((t.clone(), other.clone()));
        Ok(other)
    };
    let values =
        values.iter().map(|v| v.map_tensors(&mut other)).collect::<Result<Vec<Value>>>()?;
    Ok((I::unflatten(&spec, &mut values.into_iter())?, inputs))
}

/// The tensor of which [`apart`] made another handle; others are themselves.
fn original(inputs: &Frame, t: &Tensor) -> Tensor {
    let found = inputs.iter().find(|(_, other)| other.is_same_handle(t));
    found.map_or(t, |(own, _)| own).clone()
}

/// Pairs the tensors of a module with the given ones.
fn frame<M: Module + ?Sized>(module: &M, tensors: &BTreeMap<String, Tensor>) -> Result<Frame> {
    let mut own: BTreeMap<String, Tensor> = BTreeMap::new();
    module.visit(&mut |name, _, t| {
        own.insert(name.to_owned(), t.clone());
    });
    let pair = |(name, given): (&String, &Tensor)| {
        let Some(own) = own.get(name) else {
            let names: Vec<&str> = own.keys().map(String::as_str).collect();
            let names = names.join(", ");
            return Err(Error::value(format!(
                "the module has no tensor `{name}`; there are: {names}"
            )));
        };
        let (expected, found) = (own.alive()?.sizes(), given.alive()?.sizes());
        let claim = "a given tensor has the sizes of the module's";
        if !check_sizes_equal(expected, found, claim)? {
            return Err(Error::value(format!(
                "`{name}` is {} in the module; found {}",
                own.meta(),
                given.meta()
            )));
        }
        Ok((own.clone(), given.clone()))
    };
    let mut pairs = tensors.iter().map(pair).collect::<Result<Frame>>()?;
    check_tied(tensors, &pairs)?;
    pairs.retain(|(own, given)| !own.is_same_handle(given));
    let is_replaced = |given: &Tensor| {
        pairs.iter().any(|(own, _)| own.is_same_handle(given)) || replacement(given).is_some()
    };
    let unreplaced = |(own, given): &(Tensor, Tensor)| {
        // The given tensor of an inner call may be the module's own of an outer one.
        let given = current(given);
        (own.clone(), if is_replaced(&given) { history::alias(&given) } else { given })
    };
    Ok(pairs.iter().map(unreplaced).collect())
}

/// Checks that a tensor of the module has one given tensor. `pairs` has an entry for each name.
fn check_tied(tensors: &BTreeMap<String, Tensor>, pairs: &[(Tensor, Tensor)]) -> Result<()> {
    for (i, (name, (own, given))) in tensors.keys().zip(pairs).enumerate() {
        let earlier = tensors.keys().zip(pairs).take(i);
        let mut tied = earlier.filter(|(_, (other, _))| other.is_same_handle(own));
        if let Some((first, _)) = tied.find(|(_, (_, other))| !other.is_same_handle(given)) {
            return Err(Error::value(format!(
                "`{first}` and `{name}` are names of one tensor in the module, and different ones \
                    are given; give one of them, or the same tensor for both"
            )));
        }
    }
    Ok(())
}

/// Runs `f` in these functional calls, in place of those that run on this thread.
fn within<R>(frames: Vec<Frame>, f: impl FnOnce() -> R) -> R {
    struct Restore(Vec<Frame>);
    impl Drop for Restore {
        fn drop(&mut self) {
            // The tensors are dropped without the borrow.
            drop(swap(std::mem::take(&mut self.0)));
        }
    }
    let _restore = Restore(swap(frames));
    f()
}

fn swap(frames: Vec<Frame>) -> Vec<Frame> {
    DEPTH.set(frames.len());
    FRAMES.replace(frames)
}

/// The functional calls at a place of the program, for code that a sweep runs as if it were there.
///
/// Given tensors are kept without their histories, as those that a sweep reads are: the graph that
/// keeps them would otherwise keep itself alive.
#[derive(Default)]
pub(crate) struct Kept(Vec<KeptPair>);

struct KeptPair {
    own: Tensor,
    given: Tensor,
    /// The index of the history among all of them.
    edge: Option<usize>,
}

impl Kept {
    /// The calls that run now, and the histories of their given tensors.
    pub(crate) fn now() -> (Kept, Edges) {
        let (mut kept, mut edges) = (Kept::default(), Edges::new());
        if in_functional_call() {
            for (own, given) in FRAMES.with_borrow(Clone::clone).iter().rev().flatten() {
                let edge = history::edge(given).map(|edge| {
                    edges.push(Some(edge));
                    edges.len() - 1
                });
                let (own, given) = (own.clone(), given.untracked());
                kept.0.push(KeptPair { own, given, edge });
            }
        }
        (kept, edges)
    }

    /// Runs `f` in these calls. `tracked` gives a new handle of a given tensor the history with the
    /// index.
    pub(crate) fn run<R>(&self, tracked: impl Fn(&Tensor, usize), f: impl FnOnce() -> R) -> R {
        let pair = |pair: &KeptPair| {
            let given = pair.given.untracked();
            if let Some(edge) = pair.edge {
                tracked(&given, edge);
            }
            (pair.own.clone(), given)
        };
        let frame: Frame = self.0.iter().map(pair).collect();
        within(if frame.is_empty() { Vec::new() } else { vec![frame] }, f)
    }
}

/// Ends a functional call when it is dropped.
struct Guard;

impl Guard {
    fn new(frame: Frame) -> Guard {
        FRAMES.with_borrow_mut(|frames| frames.push(frame));
        DEPTH.set(DEPTH.get() + 1);
        Guard
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get() - 1);
        // The tensors are dropped without the borrow.
        drop(FRAMES.with_borrow_mut(Vec::pop));
    }
}

/// The value itself, or the one in its place.
pub(crate) fn leaf(t: &Tensor) -> Value {
    Value::Tensor(current(t))
}
