//! Random calls of every builtin operator, compared over the modes of the
//! [oracle](crate::oracle).
//!
//! The oracle's programs call some operators in many ways. A [`RandomCall`] is one call of any
//! operator: a call that PyTorch recorded, or one that is made up from the schema ([`Recipe`]).
//! Then one or two arguments are [changed](Changes), and tensors get other layouts and elements at
//! the edges of their dtype. The call becomes a program of the oracle, so that the same modes run
//! and compare it: results in bits, layouts, which results share memory, written arguments, and
//! whether the call is refused.

mod change;
mod layout;
mod recipe;
mod run;

pub use change::{Changes, MANY};
pub use recipe::{Recipe, Recorded, ramp};
pub use run::CallVerdict;

use crate::oracle::{Mode, Rng, Verdict, modes};
use maquette_ir::functional_ops::is_functional_op;
use maquette_ops::library::all;
use maquette_ops::{Args, Op, Result, Value};
use std::fmt;
use std::path::Path;

/// A call of a builtin operator.
pub struct RandomCall {
    /// The operator.
    pub op: Op,
    /// Its arguments, in the schema's order.
    pub args: Args,
}

/// Makes random calls.
pub struct CallGenerator {
    ops: Vec<Op>,
    recorded: Recorded,
    seed: u64,
}

/// A call that a mode does not run as eager execution does.
#[derive(Clone, Debug)]
pub struct CallFailure {
    /// The number of the call.
    pub index: u64,
    /// The name of the operator.
    pub op: &'static str,
    /// The name of the mode.
    pub mode: &'static str,
    /// The first difference.
    pub what: String,
    /// The call.
    pub call: String,
}

/// The result of a run. Displays as a summary line.
#[derive(Clone, Debug, Default)]
pub struct CallReport {
    /// The number of calls that were compared.
    pub calls: u64,
    /// The failures.
    pub failures: Vec<CallFailure>,
    /// The number of calls that were refused, eagerly too, or for a documented reason.
    pub refused: u64,
}

impl fmt::Display for CallReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { calls, failures, refused } = self;
        write!(f, "{calls} calls, {} mismatches, {refused} refused", failures.len())
    }
}

/// The modes in which calls are compared if no others are named.
pub fn call_modes() -> Vec<&'static dyn Mode> {
    const NAMES: [&str; 5] = ["traced", "text", "symbolic", "compiled", "compiled-symbolic"];
    modes().into_iter().filter(|mode| NAMES.contains(&mode.name())).collect()
}

/// Whether calls of an operator are made. The operators of functional graphs (`ir::…`) are not for
/// programs. Polynomials take as many steps as their degree, which a changed call makes 2^62. A
/// trace has no storage offset to give.
fn is_called(op: &Op) -> bool {
    let name = op.name();
    let is_left_out = is_functional_op(name)
        || name.contains("_polynomial_")
        || name == "aten::sym_storage_offset";
    op.is_builtin() && !is_left_out
}

impl CallGenerator {
    /// For every builtin operator, or for those whose name contains `named`. `recorded` is the
    /// folder of recorded calls; without it, all calls are made up.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn new(
        seed: u64,
        named: Option<&str>,
        recorded: Option<&Path>,
    ) -> Result<CallGenerator, maquette_conform::ConformError> {
        let is_named = |op: &Op| named.is_none_or(|part| op.name().contains(part));
        let ops = all().into_iter().filter(|op| is_called(op) && is_named(op));
        Ok(CallGenerator {
            ops: ops.collect(),
            recorded: recorded.map(Recorded::read).transpose()?.unwrap_or_default(),
            seed,
        })
    }

    /// Call number `index`: operators take turns. `None` if no such call can be made.
    ///
    /// # Errors
    /// A tensor cannot be laid out.
    pub fn call(&self, index: u64) -> Result<Option<RandomCall>> {
        let mut rng = Rng::new(self.seed, index);
        let Some(&op) = self.ops.get((index % self.ops.len().max(1) as u64) as usize) else {
            return Ok(None);
        };
        let schema = op.schema()?;
        let file = self.recorded.of(op.name()).find(|file| file.samples(op).next().is_some());
        let given = match file.filter(|_| rng.chance(80)) {
            Some(file) => file.samples(op).nth(rng.below(file.samples(op).count())),
            None => Recipe::all()
                .nth(rng.below(Recipe::all().count()))
                .and_then(|recipe| recipe.call(op, &schema)),
        };
        let Some(mut args) = given else { return Ok(None) };
        if rng.chance(60) {
            let mut changes = Changes(rng);
            args = changes.change(args);
            rng = changes.0;
        }
        // A change may give tensors that are errors, and arguments that no schema takes.
        if args.iter().flat_map(Value::tensors).any(|t| t.ok().is_err()) {
            return Ok(None);
        }
        let is_large = |t: &maquette_ops::Tensor| t.numel().as_i64().is_none_or(|n| n > 1 << 12);
        if !args.iter().flat_map(Value::tensors).any(is_large) {
            args = layout::vary(&schema, &args, &mut rng)?;
        }
        Ok(Some(RandomCall { op, args }))
    }

    /// Checks the calls `from` to `from + calls`. Calls `failed` for each failure.
    pub fn run(
        &self,
        from: u64,
        calls: u64,
        modes: &[&dyn Mode],
        failed: &dyn Fn(&CallFailure),
    ) -> CallReport {
        let mut report = CallReport::default();
        for index in from..from.saturating_add(calls) {
            let (call, verdict) = match self.call(index) {
                Ok(Some(call)) => {
                    let verdict = call.check(modes);
                    (call, verdict)
                }
                Ok(None) | Err(_) => continue,
            };
            let (mode, what) = match verdict {
                Ok(CallVerdict::Left) => continue,
                Ok(CallVerdict::Checked(Verdict::Agree)) => {
                    report.calls += 1;
                    continue;
                }
                Ok(CallVerdict::Checked(Verdict::Refused(_))) => {
                    report.calls += 1;
                    report.refused += 1;
                    continue;
                }
                Ok(CallVerdict::Checked(Verdict::Mismatch { mode, what })) => (mode, what),
                Err(e) => ("eager", e.to_string()),
            };
            report.calls += 1;
            let op = call.op.name();
            let failure = CallFailure { index, op, mode, what, call: call.to_string() };
            failed(&failure);
            report.failures.push(failure);
        }
        report
    }
}

impl fmt::Display for RandomCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |v: &Value| match v {
            Value::Tensor(t) => format!("{t:?} of {}", t.meta()),
            other => maquette_check::values::show(other),
        };
        let args: Vec<String> = self.args.iter().map(text).collect();
        write!(f, "{}({})", self.op.name(), args.join(", "))
    }
}
