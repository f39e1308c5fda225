//! Fake execution: an operator's outputs without their contents.

use crate::dispatch::returned_argument;
use crate::error::{Error, FakeError, Result};
use crate::library::{Op, OpState};
use crate::mode;
use crate::tensor::{Tensor, dims_text};
use crate::value::{Outputs, Value};
use maquette_ir::Loc;
use maquette_ir::sym::{Range, Scope, SymInt};
use std::cell::{Cell, RefCell};
use std::sync::Arc;

/// A fake kernel over boxed arguments.
pub type FakeFn = Arc<dyn Fn(&FakeCtx, &[Value]) -> Result<Outputs> + Send + Sync>;

/// What a fake kernel is given besides its arguments.
pub struct FakeCtx {
    scope: Option<Scope>,
    op: Op,
    loc: Loc,
    fresh: RefCell<Vec<SymInt>>,
}

impl FakeCtx {
    /// A new data-dependent size, at least 0.
    ///
    /// # Errors
    /// There is no trace to hold it.
    pub fn new_dynamic_size(&self) -> Result<SymInt> {
        self.new_dynamic_size_in(0, i64::MAX)
    }

    /// A new data-dependent size in `[min, max]`; the real size is checked against it in every run of the graph.
    ///
    /// # Errors
    /// There is no trace to hold it, or not `0 <= min <= max`.
    pub fn new_dynamic_size_in(&self, min: i64, max: i64) -> Result<SymInt> {
        if min < 0 || min > max {
            return Err(FakeError::Bounds { min, max }.into());
        }
        let scope = self.scope.as_ref().ok_or(FakeError::NoTrace)?;
        let size = scope.unbacked(Range { lo: min, hi: max }, self.op.name(), self.loc);
        self.fresh.borrow_mut().push(size);
        Ok(size)
    }

    /// A context outside any trace, for metadata rules run on real tensors.
    pub(crate) fn eager<R>(op: Op, f: impl FnOnce(&FakeCtx) -> R) -> R {
        f(&FakeCtx { scope: None, op, loc: mode::user_loc().unwrap_or_else(Loc::caller), fresh: RefCell::new(Vec::new()) })
    }

    /// The operator whose fake kernel is running.
    pub fn op(&self) -> Op {
        self.op
    }
}

thread_local! {
    static DEPTH: Cell<usize> = const { Cell::new(0) };
    /// The scope of the trace on whose behalf fake code is running, for operators called by composites and fake kernels.
    static SCOPE: RefCell<Option<Scope>> = const { RefCell::new(None) };
}

/// Runs an operator on metadata: arguments and outputs are fake tensors. `scope` holds data-dependent sizes.
///
/// # Errors
/// The operator has no fake kernel, its fake kernel fails or breaks its contract.
pub fn call(op: Op, args: &[Value], scope: Option<&Scope>, loc: Loc) -> Result<Outputs> {
    let state = op.state()?;
    let outer = SCOPE.with_borrow(Clone::clone);
    let scope = scope.cloned().or_else(|| outer.clone());
    SCOPE.set(scope.clone());
    DEPTH.set(DEPTH.get() + 1);
    let _restore = Restore(outer);
    mode::without_modes(|| {
        let cx = FakeCtx { scope, op, loc, fresh: RefCell::new(Vec::new()) };
        match state.builtin {
            Some(def) if state.fake.is_none() => mode::on_behalf_of(loc, || def.fake(&cx, &state, args)).and_then(well_formed),
            _ => custom(&cx, &state, args),
        }
    })
}

/// No size or stride is known to be negative.
fn well_formed(outputs: Outputs) -> Result<Outputs> {
    for m in outputs.iter().flat_map(Value::tensors).map(Tensor::meta) {
        if m.sizes.iter().chain(&m.strides).any(|n| n.as_i64().is_some_and(|n| n < 0)) {
            let (sizes, strides) = (dims_text(&m.sizes), dims_text(&m.strides));
            return Err(Error::value(format!("the result would have sizes {sizes} and strides {strides}; none may be negative")));
        }
    }
    Ok(outputs)
}

/// Whether a fake kernel or a builtin's fake rule is running on this thread.
pub(crate) fn is_running() -> bool {
    DEPTH.get() != 0
}

struct Restore(Option<Scope>);

impl Drop for Restore {
    fn drop(&mut self) {
        SCOPE.set(self.0.take());
        DEPTH.set(DEPTH.get() - 1);
    }
}

fn custom(cx: &FakeCtx, state: &OpState, args: &[Value]) -> Result<Outputs> {
    // what the schema says suffices where every return is an argument, or there is none
    let all_arguments: Option<Outputs> = (0..state.schema.returns.len()).map(|i| returned_argument(state, args, i)).collect();
    if let Some(outputs) = all_arguments {
        return Ok(outputs);
    }
    let Some(fake) = &state.fake else {
        return Err(FakeError::Missing { function: state.schema.name.name.clone() }.into());
    };
    let outputs = mode::in_user_code(|| (fake.f)(cx, args))?;
    crate::dispatch::check_returns(state, args, &outputs)?;
    for (index, t) in outputs.iter().enumerate().flat_map(|(i, v)| v.tensors().map(move |t| (i, t))) {
        if !t.ok()?.is_fake() || t.slot().is_some() {
            return Err(FakeError::NotFake { index }.into());
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
    Ok(outputs)
}

fn symbols_of(v: &Value) -> Vec<SymInt> {
    match v {
        Value::Int(i) => vec![*i],
        other => other.tensors().flat_map(|t: &Tensor| t.sizes().to_vec()).collect(),
    }
}
