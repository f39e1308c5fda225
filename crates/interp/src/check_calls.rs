//! Checks the calls of a graph by running fake kernels on fake tensors.
//!
//! Abstract interpretation over the graph's types: a node's operands are fake tensors of their
//! declared types, whose sizes are expressions of a scope with the graph's symbols, guards and
//! assertions. The fake kernel computes the results' types, which the prover compares with the
//! declared ones. An answer is an error only if it holds for every value of the symbols.
//!
//! A fake kernel may have to decide a condition that the graph leaves open, such as `n == m` or
//! `n == 1`. It then runs again on samples of the symbols. Samples prove nothing about sizes, so
//! only what all of them agree on is compared: the number and kinds of the results, their dtypes
//! and their ranks.
//!
//! The cost is one run of a fake kernel per node, and at most [`MAX_SAMPLES`] more where a
//! condition is open.

use crate::fake_values::FakeValues;
use maquette_invoke::metadata_check::{ExpectedMeta, LayoutPromise, NumberCheck, check_metadata};
use maquette_invoke::{SourceInfo, in_window, match_results};
use maquette_ir::functional_ops::{Callee, is_functional_op};
use maquette_ir::graph::{Graph, NodeId, Stmt, TensorType, ValueType};
use maquette_ir::sym::{BoolExpr, Expr, SymError, SymInt, SymbolId};
use maquette_ir::typing::TypingError;
use maquette_ops::internals::MetaInternals;
use maquette_ops::operator::is_builtin_name;
use maquette_ops::{
    CallError, Error, ErrorKind, FakeError, Op, Outputs, Result, Tensor, Value, fake,
};
use rustc_hash::FxHashMap;

/// The most samples of the symbols on which a fake kernel runs.
const MAX_SAMPLES: usize = 4;

/// Checks that each operator exists, accepts its arguments and returns results of the declared
/// types. Only fake kernels run. A traced graph passes by construction; parsed graph text may fail.
///
/// Operator names, the number and kinds of arguments, dtypes and ranks are checked at every node.
/// Sizes, strides and offsets are errors where they provably differ from the declaration. What the
/// graph's symbols leave open is accepted, since a run checks it. An operator that is not
/// registered, or has no fake kernel, is accepted with the results that the graph declares.
///
/// # Errors
/// An operator does not exist, rejects its arguments, or returns results of a different number,
/// dtype or layout.
#[track_caller]
pub fn check_calls(graph: &Graph) -> Result<()> {
    let source_info = SourceInfo::of_caller();
    check(graph, &source_info).map_err(|e| source_info.locate(e))
}

fn check(graph: &Graph, source_info: &SourceInfo<'_>) -> Result<()> {
    let exact = Checker::new(graph, source_info, FxHashMap::default());
    let mut samples: Option<Vec<Checker<'_>>> = None;
    for (at, stmt) in graph.body().iter().enumerate() {
        let Stmt::Node(node) = *stmt else { continue };
        let checked = match exact.node(node) {
            Err(e) if is_open(&e) || exact.values.has_unknown_operand(node) => {
                let samples = samples.get_or_insert_with(|| sampled(graph, source_info));
                agreed(samples.iter().map(|s| s.node(node)))
            }
            checked => checked,
        };
        let Err(e) = checked else { continue };
        let e = match e.kind() {
            ErrorKind::Fake(FakeError::Mismatch { output, what, expected, found }) => {
                Error::msg(format!(
                    "the graph declares result {output} with {what} {expected}, but the operator \
                        returns {found}"
                ))
                .in_call(&graph.op_name(node).into(), exact.loc(node))
            }
            kind if is_refusal(kind) => e,
            _ => continue,
        };
        return Err(in_window(graph, e, at));
    }
    Ok(())
}

/// Whether an error is a condition on symbols that a fake kernel could not decide.
fn is_open(e: &Error) -> bool {
    let error = match e.kind() {
        ErrorKind::Guard(e) | ErrorKind::Typing(TypingError::Sym(e)) => e,
        _ => return false,
    };
    matches!(error, SymError::Unbound(_) | SymError::DataDependent(_))
}

/// Whether an error means that every run of the call fails.
fn is_refusal(kind: &ErrorKind) -> bool {
    match kind {
        ErrorKind::Value(_)
        | ErrorKind::Typing(_)
        | ErrorKind::Guard(SymError::AssertionFailed { .. }) => true,
        ErrorKind::Call(call) => match call {
            CallError::Unknown { name, .. } | CallError::Unsupported { name, .. } => {
                is_builtin_name(name) || is_functional_op(name)
            }
            CallError::TooMany { .. }
            | CallError::Missing { .. }
            | CallError::Type { .. }
            | CallError::UnknownKeyword { .. }
            | CallError::GivenTwice { .. } => true,
            _ => false,
        },
        _ => false,
    }
}

/// The error that all samples give which could run the fake kernel.
fn agreed(outcomes: impl Iterator<Item = Result<()>>) -> Result<()> {
    let mut first: Option<Error> = None;
    for outcome in outcomes {
        let Err(e) = outcome else { return Ok(()) };
        match e.kind() {
            ErrorKind::Fake(FakeError::Mismatch { .. }) => {}
            // refused whatever the sizes are
            ErrorKind::Call(_) if is_refusal(e.kind()) => {}
            _ => continue,
        }
        match &first {
            Some(first) if first.kind().to_string() != e.kind().to_string() => return Ok(()),
            Some(_) => {}
            None => first = Some(e),
        }
    }
    first.map_or(Ok(()), Err)
}

/// Checkers on samples of the symbols: all sizes 1, equal, and distinct, so that a sample is on
/// either side of the conditions that fake kernels usually decide. Samples satisfy the graph's
/// guards and assertions.
fn sampled<'g>(graph: &'g Graph, source_info: &'g SourceInfo<'g>) -> Vec<Checker<'g>> {
    let table = graph.symbols();
    let value = |number: &dyn Fn(i64) -> i64| -> FxHashMap<SymbolId, i64> {
        let within = |(i, s): (usize, SymbolId)| {
            let range = table.range(s);
            (s, number(i as i64).clamp(range.lo, range.hi))
        };
        table.symbols().enumerate().map(within).collect()
    };
    let candidates: [&dyn Fn(i64) -> i64; 7] =
        [&|_| 1, &|_| 4, &|i| 3 + 2 * i, &|i| 64 - 3 * i, &|_| 12, &|_| 0, &|_| i64::MIN];
    let satisfies = |sample: &FxHashMap<SymbolId, i64>| {
        (graph.guards().iter().copied().chain(asserted(graph)))
            .all(|b| table.eval_bool(b, &|s| sample.get(&s).copied()).unwrap_or(false))
    };
    let samples = candidates.into_iter().map(value).filter(satisfies).take(MAX_SAMPLES);
    samples.map(|sample| Checker::new(graph, source_info, sample)).collect()
}

/// The conditions that a graph asserts.
fn asserted(graph: &Graph) -> impl Iterator<Item = BoolExpr> {
    let assert = |s: &Stmt| if let Stmt::Assert { cond, .. } = *s { Some(cond) } else { None };
    graph.body().iter().filter_map(assert)
}

/// Runs the fake kernels of a graph's nodes.
struct Checker<'g> {
    graph: &'g Graph,
    source_info: &'g SourceInfo<'g>,
    values: FakeValues<'g>,
    /// Whether the symbols have sample values, on which fake kernels decide.
    sampled: bool,
}

impl<'g> Checker<'g> {
    fn new(
        graph: &'g Graph,
        source_info: &'g SourceInfo<'g>,
        hints: FxHashMap<SymbolId, i64>,
    ) -> Checker<'g> {
        let sampled = !hints.is_empty();
        let values = FakeValues::new(graph, hints);
        asserted(graph).for_each(|condition| values.assume(condition));
        Checker { graph, source_info, values, sampled }
    }

    fn loc(&self, node: NodeId) -> maquette_ir::Loc {
        self.graph.loc(node).unwrap_or(self.source_info.call_site)
    }

    /// Runs a node's fake kernel, and compares the results with the declared ones.
    fn node(&self, node: NodeId) -> Result<()> {
        let Callee { op: name, args, mutates, .. } = Callee::of(self.graph, node);
        let loc = self.loc(node);
        let op = Op::find(name).map_err(|e| e.at(loc))?;
        let arguments = self
            .values
            .arguments(op, node, args, &|v| Ok(self.values.value(v)))
            .map_err(|e| e.in_call(&name.into(), loc))?;
        let outputs = fake::without_data_in(self.values.scope(), || op.call_at(arguments, loc))?;
        // The results of `ir::call` are not those of the operator.
        if mutates { Ok(()) } else { self.results(node, outputs) }
    }

    fn results(&self, node: NodeId, outputs: Outputs) -> Result<()> {
        match_results(self.graph, node, outputs, &mut |output, v, value| {
            let differs = |what: String, expected: String, found: String| {
                Err(FakeError::Mismatch { output, what, expected, found }.into())
            };
            match (self.graph.value_type(v), &value) {
                (ValueType::Tensor(ty), Value::Tensor(t)) => {
                    match self.tensor_mismatch(self.graph.type_of(ty), t)? {
                        Some((what, expected, found)) => differs(what, expected, found),
                        None => Ok(()),
                    }
                }
                (ValueType::Int(e), Value::Int(i)) if self.is_different(e, *i) => differs(
                    "the value".into(),
                    self.values.scope().lift(e).to_string(),
                    i.to_string(),
                ),
                (ValueType::Int(_), Value::Int(_))
                | (ValueType::Float, Value::Float(_))
                | (ValueType::Bool, Value::Bool(_))
                | (ValueType::Str, Value::Str(_)) => Ok(()),
                (declared, found) => {
                    let declared = self.graph.display_type(declared).to_string();
                    differs("the type".into(), declared, found.kind().to_string())
                }
            }
        })
    }

    /// The first property of a result that provably differs from its type: the property, its
    /// declared value, its value.
    fn tensor_mismatch(
        &self,
        ty: &TensorType,
        t: &Tensor,
    ) -> Result<Option<(String, String, String)>> {
        let expected = ExpectedMeta::declared(ty, LayoutPromise::Nothing);
        let unknown = |_, _| Ok(NumberCheck::Unknown);
        if let (Some(m), _) = check_metadata(&expected, t, |_, _| Ok(false), unknown)? {
            return Ok(Some((m.what, m.expected, m.found)));
        }
        let number = |what: String, e: Expr, found: SymInt| {
            self.is_different(e, found)
                .then(|| (what, self.values.scope().lift(e).to_string(), found.to_string()))
        };
        let pairs = |of: &[Expr], found: &[SymInt]| -> Vec<(usize, Expr, SymInt)> {
            of.iter().zip(found).enumerate().map(|(d, (&e, &n))| (d, e, n)).collect()
        };
        for (d, e, n) in pairs(&ty.sizes, t.sizes()) {
            if let Some(mismatch) = number(format!("size {d}"), e, n) {
                return Ok(Some(mismatch));
            }
        }
        // The strides of an empty tensor, and the stride of a dimension of size 1, address no
        // element: kernels may choose them freely.
        let may_be = |n: &SymInt, value: i64| n.eq(value).statically_known() != Some(false);
        if t.sizes().iter().any(|n| may_be(n, 0)) {
            return Ok(None);
        }
        for (d, e, s) in pairs(&ty.strides, t.strides()) {
            if t.sizes().get(d).is_some_and(|n| may_be(n, 1)) {
                continue;
            }
            if let Some(mismatch) = number(format!("stride {d}"), e, s) {
                return Ok(Some(mismatch));
            }
        }
        Ok(number("offset".to_owned(), ty.offset, t.meta().offset()))
    }

    /// Whether two numbers differ for every value of the symbols. Samples prove nothing.
    fn is_different(&self, declared: Expr, found: SymInt) -> bool {
        !self.sampled
            && self.values.scope().lift(declared).eq(found).statically_known() == Some(false)
    }
}
