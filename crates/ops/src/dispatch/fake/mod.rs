//! Fake execution: computes the metadata of an operator's outputs from the metadata of its
//! arguments, as PyTorch's `FakeTensorMode`.
//!
//! Builtin operators have fake rules in the operator table. A custom operator has a registered fake
//! kernel, or needs none if each return is a mutated argument. The result is checked: it must match
//! the schema, have no data, return every data-dependent size that the kernel created, and have no
//! negative or overflowed size. A size that depends on data becomes an unbacked symbol of the
//! trace's [`Scope`].

mod example;
pub(crate) mod profile;

pub use profile::{FakeProfile, FakeProfiles, Profiled, TensorProfile};

use crate::dispatch::coerce_args::coerce_args;
use crate::dispatch::device::device_of;
use crate::dispatch::failures;
use crate::dispatch::operand_names;
use crate::dispatch::panics;
use crate::dispatch::returned_argument;
use crate::dispatch::value::{Args, Outputs, Value};
use crate::error::{CallError, Error, ErrorKind, FakeError, Result};
use crate::library::{Op, OpState};
use crate::mode;
use crate::tensor::{Tensor, dims_text};
use maquette_ir::sym::{DataDependent, Range, Refusal, Scope, SymError, SymInt, Watch};
use maquette_ir::{Layout, Loc};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

/// A fake kernel over boxed arguments.
pub type FakeFn = Arc<dyn Fn(&FakeCtx, &[Value]) -> Result<Outputs> + Send + Sync>;

/// The context argument of a fake kernel.
///
/// A context exists only during a fake kernel: user code can neither create nor keep one.
///
/// ```compile_fail
/// let cx = maquette_ops::FakeCtx { scope: None };
/// ```
///
/// ```compile_fail
/// use maquette_ops::{FakeCtx, Op, Result, Tensor};
/// use std::sync::Mutex;
/// fn keep(op: &Op, kept: &'static Mutex<Option<&'static FakeCtx>>) -> Result<()> {
///     op.register_fake(|cx: &FakeCtx, x: &Tensor| -> Result<Tensor> {
///         *kept.lock().unwrap() = Some(cx);
///         Ok(x.new_empty(x.sizes(), x.dtype()))
///     })
/// }
/// ```
pub struct FakeCtx {
    scope: Option<Rc<Scope>>,
    op: Op,
    loc: Loc,
    fresh: RefCell<Vec<SymInt>>,
}

impl FakeCtx {
    /// A new data-dependent size, at least 0. Every call of the operator creates a new symbol, even
    /// for the same arguments.
    ///
    /// # Errors
    /// There is no trace to hold it.
    pub fn new_dynamic_size(&self) -> Result<SymInt> {
        self.new_integer_in(0, i64::MAX)
    }

    /// A new data-dependent size in `[min, max]`. Every run of the graph checks the real size
    /// against this range.
    ///
    /// # Errors
    /// No trace is active, a bound is symbolic, or `0 <= min <= max` does not hold.
    pub fn new_dynamic_size_in(
        &self,
        min: impl Into<SymInt>,
        max: impl Into<SymInt>,
    ) -> Result<SymInt> {
        let (min, max) = (min.into(), max.into());
        if let Some(e) = min.poisoned().or_else(|| max.poisoned()) {
            return Err(SymError::Poisoned(e).into());
        }
        match (min.as_i64(), max.as_i64()) {
            (Some(lo), Some(hi)) if 0 <= lo && lo <= hi => self.new_integer_in(lo, hi),
            (Some(min), Some(max)) => Err(FakeError::Bounds { min, max }.into()),
            _ => {
                Err(FakeError::SymbolicBounds { min: min.to_string(), max: max.to_string() }.into())
            }
        }
    }

    /// A new data-dependent integer of any sign, for an operator that returns an integer. For
    /// sizes, use [`FakeCtx::new_dynamic_size`].
    ///
    /// # Errors
    /// There is no trace to hold it.
    pub fn new_dynamic_int(&self) -> Result<SymInt> {
        self.new_integer_in(i64::MIN, i64::MAX)
    }

    /// A new data-dependent integer in `[min, max]`, not necessarily a size.
    #[doc(hidden)]
    pub fn new_integer_in(&self, min: i64, max: i64) -> Result<SymInt> {
        let scope = self.scope.as_ref().ok_or(FakeError::NoTrace)?;
        let integer = scope.unbacked(Range { lo: min, hi: max }, self.op.name(), self.loc);
        self.fresh.borrow_mut().push(integer);
        Ok(integer)
    }

    /// Converts the arguments for the fake kernel. Where the kernel takes a plain number and the
    /// argument is a symbol, the conversion adds a guard. `load` attributes that guard, or its
    /// error, to the line that called the operator.
    pub(crate) fn load<T>(&self, f: impl FnOnce() -> Result<T>) -> Result<T> {
        let Some(scope) = &self.scope else { return f() };
        let before = scope.with(|d| d.guards.len());
        let loaded = f();
        scope.with(|d| d.guards.iter_mut().skip(before).for_each(|g| g.loc = self.loc));
        loaded.map_err(|e| self.decided_by_caller(e))
    }

    /// Attributes the error of a decision to the line that called the operator: its rule took the
    /// decision for that call.
    fn decided_by_caller(&self, e: Error) -> Error {
        match e.kind() {
            ErrorKind::Guard(SymError::DataDependent(d)) => {
                SymError::DataDependent(Box::new(DataDependent {
                    loc: self.loc,
                    ..DataDependent::clone(d)
                }))
                .into()
            }
            _ => e,
        }
    }

    /// Runs `f` with a context outside any trace. Used to apply metadata rules to real tensors.
    pub(crate) fn eager<R>(op: Op, f: impl FnOnce(&FakeCtx) -> R) -> R {
        f(&FakeCtx {
            scope: None,
            op,
            loc: mode::user_loc().unwrap_or_else(Loc::caller),
            fresh: RefCell::new(Vec::new()),
        })
    }

    /// The operator whose fake kernel is running.
    pub fn op(&self) -> Op {
        self.op
    }
}

/// What a program asks for by [`without_data`].
const WITHOUT_DATA: &str = "the result of a computation without data";

thread_local! {
    static DEPTH: Cell<usize> = const { Cell::new(0) };
    /// The scope of the trace for which fake code is running. Operators called by composites and by
    /// fake kernels inherit this scope.
    static SCOPE: RefCell<Option<Rc<Scope>>> = const { RefCell::new(None) };
}

/// Runs an operator on metadata: arguments and outputs are fake tensors. Omitted arguments have
/// their defaults. `scope` receives the symbols of data-dependent sizes.
///
/// # Errors
/// The operator has no fake kernel, or the fake kernel fails or breaks its contract.
pub fn call(op: Op, args: &[Value], scope: Option<&Scope>, loc: Loc) -> Result<Outputs> {
    call_in(op, args, scope.map(|scope| Rc::new(scope.clone())).as_ref(), loc)
}

/// As [`call`], for a caller that makes many calls in one scope: this counts no atomic references.
///
/// # Errors
/// As [`call`].
pub fn call_in(op: Op, args: &[Value], scope: Option<&Rc<Scope>>, loc: Loc) -> Result<Outputs> {
    let state = op.state()?;
    let completed: Args;
    let args = if args.len() == state.schema.args.len() {
        args
    } else {
        let mut full_args = args.into();
        coerce_args(&state, &mut full_args)?;
        completed = full_args;
        &completed
    };
    within(scope, |scope| {
        device_of(&state, args)?;
        let cx = FakeCtx { scope, op, loc, fresh: RefCell::new(Vec::new()) };
        match state.builtin {
            Some(def) if state.fake.is_none() => {
                // a rule may try a decision and go on; a failure that counts is the rule's result
                let watch = cx.scope.as_deref().map(Scope::watch_decisions);
                let outputs = mode::on_behalf_of(loc, || def.fake(&cx, &state, args));
                drop(watch.and_then(Watch::finish));
                let named = |e| operand_names::added(cx.decided_by_caller(e), op, args);
                outputs.and_then(well_formed).map_err(named)
            }
            _ => custom(&cx, &state, args),
        }
    })
}

/// Runs `f` without computing data or drawing random numbers: builtin operators and factories
/// return fake tensors, and custom operators need fake kernels. A size that depends on data is an
/// error. A traced function cannot do this: what it reads meanwhile would be that of the trace.
#[track_caller]
pub fn without_data<T>(f: impl FnOnce() -> T) -> T {
    // A trace gets the error, which this cannot return.
    let _reported = mode::ask(mode::Question::Surroundings, WITHOUT_DATA, Loc::caller());
    within(None, |_| f())
}

/// The error of a decision, with its line.
pub fn decision_failed(refusal: &Refusal) -> Error {
    match &refusal.error {
        // its text names the line
        error @ SymError::DataDependent(_) => error.clone().into(),
        error => Error::from(error.clone()).at(refusal.loc),
    }
}

/// As [`without_data`], but sizes are expressions of a scope, and a size that depends on data
/// becomes a symbol of it.
#[track_caller]
pub fn without_data_in<T>(scope: &Scope, f: impl FnOnce() -> T) -> T {
    // A trace gets the error, which this cannot return.
    let _reported = mode::ask(mode::Question::Surroundings, WITHOUT_DATA, Loc::caller());
    within(Some(&Rc::new(scope.clone())), |_| f())
}

fn within<T>(scope: Option<&Rc<Scope>>, f: impl FnOnce(Option<Rc<Scope>>) -> T) -> T {
    let scope = scope.cloned().or_else(|| SCOPE.with_borrow(Clone::clone));
    let outer = SCOPE.replace(scope.clone());
    DEPTH.set(DEPTH.get() + 1);
    let _restore = Restore(outer);
    mode::without_modes(|| f(scope))
}

/// Checks that no size or stride is known to be negative, and that none overflowed.
pub(crate) fn well_formed(outputs: Outputs) -> Result<Outputs> {
    for m in outputs.iter().flat_map(Value::tensors).map(Tensor::meta) {
        let numbers = m.sizes.iter().chain(&m.strides).chain([&m.offset]);
        if let Some(e) = numbers.filter(|n| n.as_i64().is_none()).find_map(|n| n.poisoned()) {
            return Err(SymError::Poisoned(e).into());
        }
        if m.sizes.iter().chain(&m.strides).any(|n| n.as_i64().is_some_and(|n| n < 0)) {
            let (sizes, strides) = (dims_text(&m.sizes), dims_text(&m.strides));
            return Err(Error::value(format!(
                "the result would have sizes {sizes} and strides {strides}; none may be negative"
            )));
        }
    }
    Ok(outputs)
}

/// Whether a fake kernel, a builtin's fake rule or [`without_data`] is running on this thread.
pub fn is_running() -> bool {
    DEPTH.get() != 0
}

struct Restore(Option<Rc<Scope>>);

impl Drop for Restore {
    fn drop(&mut self) {
        SCOPE.set(self.0.take());
        DEPTH.set(DEPTH.get() - 1);
    }
}

/// The outputs that follow from the schema alone: there are none, or each is a mutated argument.
fn generated(state: &OpState, args: &[Value]) -> Option<Outputs> {
    (0..state.schema.returns.len()).map(|i| returned_argument(state, args, i)).collect()
}

fn custom(cx: &FakeCtx, state: &OpState, args: &[Value]) -> Result<Outputs> {
    let Some(fake) = &state.fake else {
        let missing = || {
            let function = state.schema.name.name.clone();
            FakeError::Missing { function, example: example::of(&state.schema) }.into()
        };
        return generated(state, args).ok_or_else(missing);
    };
    let watch = cx.scope.as_deref().map(Scope::watch_decisions);
    let (outputs, discarded) = failures::watch(|| {
        mode::in_user_code(|| panics::catch("fake kernel", || (fake.f)(cx, args)))
    });
    let refused = watch.and_then(Watch::finish);
    let outputs = outputs?;
    if let Some(e) = discarded.or_else(|| refused.map(|r| decision_failed(&r))) {
        return Err(e);
    }
    crate::dispatch::check_returns(state, args, &outputs).map_err(|e| match e.kind() {
        ErrorKind::Call(c) => contract(c).into(),
        _ => e,
    })?;
    for (index, v) in outputs.iter().enumerate() {
        if let Some(arg) = returned_argument(state, args, index)
            && !arg.tensors().zip(v.tensors()).all(|(a, b)| a.is_same_handle(b))
        {
            let arg = state.facts.aliases.get(index).copied().flatten().map_or(0, usize::from);
            return Err(contract(&CallError::NotTheArgument {
                output: index,
                arg: cx.op.arg_name(arg),
            })
            .into());
        }
        for t in v.tensors() {
            if !t.alive()?.is_fake() || t.slot().is_some() {
                return Err(FakeError::NotFake { index }.into());
            }
            if t.layout() != Layout::Strided {
                let text = format!(
                    "its fake kernel promises output {index} in the layout {}, but only the \
                        strided layout is supported",
                    t.layout()
                );
                return Err(FakeError::Contract(text).into());
            }
        }
    }
    let fresh = cx.fresh.take();
    if let (Some(scope), false) = (&cx.scope, fresh.is_empty()) {
        let returned: Vec<SymInt> = outputs.iter().flat_map(symbols_of).collect();
        for s in fresh {
            if !scope.mentions(&returned, s) {
                return Err(FakeError::Unreturned { symbol: s.to_string() }.into());
            }
        }
    }
    well_formed(outputs)
}

/// Rewrites an error about a kernel's returns as an error about a fake kernel's.
fn contract(e: &CallError) -> FakeError {
    let text = e.to_string();
    FakeError::Contract(match text.strip_prefix("its kernel") {
        Some(rest) => format!("its fake kernel{rest}"),
        None => format!("in its fake kernel, {text}"),
    })
}

fn symbols_of(v: &Value) -> Vec<SymInt> {
    match v {
        Value::Int(i) => vec![*i],
        Value::Ints(l) => l.to_vec(),
        other => other.tensors().flat_map(|t: &Tensor| t.sizes().to_vec()).collect(),
    }
}
