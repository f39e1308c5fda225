//! Calls of a module with other tensors than its own.
//!
//! `forward` passes the module's tensors to operators. During a functional call, the dispatcher
//! replaces each operand that is a handle of the module by the given tensor, before derivatives are
//! recorded. So gradients go to the given tensors, and a trace records these. Trees that are
//! flattened meanwhile, such as the inputs of compiled functions, are replaced in the same way.
//!
//! A view that the module made of its tensor before the call is no handle of the module: it must be
//! made in `forward`.

use crate::dispatch::value::{Args, Value};
use crate::error::{Error, Result};
use crate::module::{Module, Slot};
use crate::tensor::Tensor;
use crate::tree::{Tree, flatten_values};
use maquette_ir::Loc;
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
        let mut found: Option<&Tensor> = None;
        // The given tensor of an inner call may be the module's own of an outer one.
        for frame in frames.iter().rev() {
            let current = found.unwrap_or(t);
            let given = frame.iter().find(|(own, _)| own.is_same(current)).map(|(_, given)| given);
            found = given.or(found);
        }
        found.cloned()
    })
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
        if slot == wanted && !seen.iter().any(|s| s.is_same(t)) {
            seen.push(t.clone());
            all.insert(name.to_owned(), t.clone());
        }
    });
    all
}

/// Runs a module with the given tensors in the places of its own, by name. Tensors without a given
/// one are the module's own. The module is not changed, except its own buffers that it writes.
///
/// ```
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
/// The module has no tensor of a name, or it has other sizes; `forward` fails. An operation in
/// `forward` that reads the data of a replaced tensor fails.
#[track_caller]
pub fn functional_call<M: Module + ?Sized>(
    module: &M,
    tensors: &BTreeMap<String, Tensor>,
    input: M::In,
) -> Result<<M::Out as Tree>::Output> {
    let loc = Loc::caller();
    let frame = frame(module, tensors).map_err(|e| e.at(loc))?;
    let _guard = Guard::new(frame);
    let (spec, values) = flatten_values(&module.forward(input)).map_err(|e| e.at(loc))?;
    <M::Out as Tree>::Output::unflatten(&spec, &mut values.into_iter()).map_err(|e| e.at(loc))
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
        let (expected, found) = (own.ok()?.sizes_i64(), given.ok()?.sizes_i64());
        if let (Ok(expected), Ok(found)) = (expected, found)
            && expected != found
        {
            return Err(Error::value(format!(
                "`{name}` is {} in the module; found {}",
                own.meta(),
                given.meta()
            )));
        }
        Ok((own.clone(), given.clone()))
    };
    tensors.iter().map(pair).filter(|p| !matches!(p, Ok((a, b)) if a.is_same(b))).collect()
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
    match in_functional_call().then(|| replacement(t)).flatten() {
        Some(given) => Value::Tensor(given),
        None => Value::from(t),
    }
}
