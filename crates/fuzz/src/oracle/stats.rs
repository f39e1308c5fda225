//! Feature statistics of generated programs, observed in an eager run of each. The histogram shows
//! whether a feature really occurs.

use super::features::FEATURES;
use super::generate::Generated;
use super::model;
use super::program::TestProgram;
use super::statements::{ASKS, ATTEMPTS, QUESTIONS};
use maquette_ir::graph::{Arg, Stmt};
use maquette_ir::{DType, Scalar};
use maquette_ops::internals::MetaInternals;
use maquette_ops::{Args, Op, Outputs, Tensor, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// How many programs have each feature, and how many calls each operator has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    programs: u64,
    features: BTreeMap<&'static str, u64>,
    operators: BTreeMap<String, u64>,
    refusals: BTreeMap<String, u64>,
    rejected: BTreeMap<String, u64>,
}

/// The maximum number of rejected statements that are listed, the most frequent first.
const REJECTED: usize = 60;

impl Stats {
    /// Counts the features of a program in an eager run at its first sizes, and the statements that
    /// were rejected when it was generated.
    pub fn count(&mut self, generated: &Generated) {
        let program = &generated.program;
        self.programs += 1;
        generated.rejected.iter().for_each(|r| *self.rejected.entry(r.clone()).or_default() += 1);
        let mut collector = FeatureCollector::default();
        collector.header(program);
        let run_inputs = program.sizes.first().and_then(|at| program.run_inputs(at).ok());
        if let Some(run_inputs) = run_inputs {
            collector.inputs = run_inputs.inputs.clone();
            for (i, t) in run_inputs.inputs.iter().enumerate() {
                collector.shape(t);
                collector.record(
                    "input: not contiguous",
                    t.meta().concrete().is_some_and(|c| !c.is_contiguous()),
                );
                collector.record(
                    "input: aliases another input",
                    run_inputs.inputs.iter().take(i).any(|u| u.shares_storage(t)),
                );
            }
            let graph = &program.graph;
            let outputs = model::run(graph, &run_inputs.inputs, &mut |node, op, args| {
                *self.operators.entry(op.name().to_owned()).or_default() += 1;
                let mut symbols = false;
                graph.args(node).iter().for_each(|a| {
                    graph.for_each_leaf(*a, &mut |leaf| {
                        symbols |= matches!(leaf, Arg::Int(e) if e.as_i64().is_none())
                    })
                });
                collector.record("symbols: in arguments", symbols);
                collector.record(
                    "symbols: data-dependent, in arguments",
                    symbols && has_unbacked_args(program, node),
                );
                collector.call(op, args)
            });
            collector.outputs(&outputs.unwrap_or_default());
        }
        for feature in collector.found {
            *self.features.entry(feature).or_default() += 1;
        }
    }

    /// How many programs were refused for a reason.
    pub fn refusals(&self, why: &str) -> u64 {
        self.refusals.get(why).copied().unwrap_or_default()
    }

    /// Counts a refused program.
    pub fn refused(&mut self, why: &str) {
        *self.refusals.entry(why.to_owned()).or_default() += 1;
    }

    /// Adds the counts of other programs.
    pub fn add(&mut self, other: &Stats) {
        self.programs += other.programs;
        other.features.iter().for_each(|(k, n)| *self.features.entry(k).or_default() += n);
        other
            .operators
            .iter()
            .for_each(|(k, n)| *self.operators.entry(k.clone()).or_default() += n);
        other.rejected.iter().for_each(|(k, n)| *self.rejected.entry(k.clone()).or_default() += n);
        other.refusals.iter().for_each(|(k, n)| *self.refusals.entry(k.clone()).or_default() += n);
    }

    /// The features that no program has.
    pub fn missing(&self) -> Vec<&'static str> {
        FEATURES.iter().copied().filter(|f| !self.features.contains_key(f)).collect()
    }
}

impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bar = |n: u64, of: u64| "#".repeat((40 * n).div_ceil(of.max(1)) as usize);
        writeln!(f, "programs that have each feature:")?;
        for feature in FEATURES {
            let n = self.features.get(feature).copied().unwrap_or(0);
            writeln!(f, "{n:>8}  {feature:<52} {}", bar(n, self.programs))?;
        }
        writeln!(f, "calls of each operator:")?;
        let most = self.operators.values().copied().max().unwrap_or(0);
        for (op, &n) in &self.operators {
            writeln!(f, "{n:>8}  {op:<52} {}", bar(n, most))?;
        }
        writeln!(f, "most frequent errors of statements that the generator rejected:")?;
        let mut rejected: Vec<(&String, &u64)> = self.rejected.iter().collect();
        rejected.sort_by_key(|(why, n)| (std::cmp::Reverse(**n), *why));
        for (why, n) in rejected.into_iter().take(REJECTED) {
            writeln!(f, "{n:>8}  {why}")?;
        }
        writeln!(f, "programs refused:")?;
        for (why, n) in &self.refusals {
            writeln!(f, "{n:>8}  {why}")?;
        }
        Ok(())
    }
}

/// Whether an argument of the node mentions a data-dependent symbol.
fn has_unbacked_args(program: &TestProgram, node: maquette_ir::graph::NodeId) -> bool {
    let (graph, mut found) = (&program.graph, false);
    let table = graph.symbols();
    graph.args(node).iter().for_each(|a| {
        graph.for_each_leaf(*a, &mut |leaf| {
            if let Arg::Int(e) = leaf {
                found |= table
                    .free_symbols(e)
                    .iter()
                    .any(|s| table.kind(*s) == maquette_ir::sym::SymbolKind::Unbacked);
            }
        });
    });
    found
}

/// Observes an eager run, and collects the features that occur.
#[derive(Default)]
struct FeatureCollector {
    found: BTreeSet<&'static str>,
    inputs: Vec<Tensor>,
    /// Results of views.
    views: Vec<Tensor>,
    written: Vec<Tensor>,
    data_dependent: Vec<Tensor>,
}

impl FeatureCollector {
    fn record(&mut self, feature: &'static str, yes: bool) {
        if yes {
            self.found.insert(feature);
        }
    }

    fn header(&mut self, program: &TestProgram) {
        self.record("symbols: sizes of inputs", program.is_symbolic());
        self.record("symbols: run at another size", program.sizes.len() > 1);
        self.record(
            "symbols: data-dependent",
            program.graph.body().iter().any(|s| matches!(s, Stmt::Bind { .. })),
        );
        self.record(
            "input: with a storage offset",
            program.locations.iter().any(|p| p.offset != 0),
        );
        for m in &program.memories {
            let float = |test: fn(f32) -> bool| {
                m.values.iter().any(|v| matches!(v, Scalar::Float(x) if test(*x as f32)))
            };
            let floats = [
                ("input: f32 with NaN", float(f32::is_nan)),
                ("input: f32 with -0.0", float(|x| x == 0.0 && x.is_sign_negative())),
                ("input: f32 with an infinity", float(f32::is_infinite)),
                ("input: f32 with a subnormal", float(f32::is_subnormal)),
            ];
            let dtypes = [
                ("input: bool", DType::Bool),
                ("input: f32", DType::F32),
                ("input: i64", DType::I64),
            ];
            floats.into_iter().for_each(|(f, yes)| self.record(f, yes));
            dtypes.into_iter().for_each(|(f, d)| self.record(f, m.dtype == d));
        }
    }

    fn shape(&mut self, t: &Tensor) {
        let Ok(sizes) = t.sizes_i64() else { return };
        self.record("size: 0", sizes.contains(&0));
        self.record("size: 1", sizes.contains(&1));
        let rank = ["rank: 0", "rank: 1", "rank: 2", "rank: 3"].get(sizes.len()).copied();
        self.found.insert(rank.unwrap_or("rank: 4 or more"));
    }

    fn call(&mut self, op: Op, args: Args) -> maquette_ops::Result<Outputs> {
        let tensors: Vec<Tensor> = args.iter().flat_map(Value::tensors).cloned().collect();
        let mutated: Vec<Value> = args
            .iter()
            .enumerate()
            .filter(|(i, _)| op.mutates(*i))
            .map(|(_, v)| v.clone())
            .collect();
        let read: Vec<Tensor> = args
            .iter()
            .enumerate()
            .filter(|(i, _)| !op.mutates(*i))
            .flat_map(|(_, v)| v.tensors().cloned().collect::<Vec<_>>())
            .collect();
        self.record(
            "write: through a view whose base is read afterwards",
            read.iter().any(|t| self.written.iter().any(|w| w.shares_storage(t) && !w.is_same(t))),
        );
        self.statement(op, &args);
        let outputs = op.call(args).inspect_err(|e| self.failed(e))?;
        let fresh = |t: &Tensor| !tensors.iter().any(|u| u.shares_storage(t));
        let results: Vec<Tensor> =
            outputs.iter().flat_map(|v| v.tensors().cloned().collect::<Vec<_>>()).collect();
        results.iter().for_each(|t| self.shape(t));
        if mutated.is_empty() && results.iter().any(|t| !fresh(t)) {
            self.record("view: of rank 1 or more", true);
            self.record(
                "view: of a view",
                tensors.iter().any(|t| self.views.iter().any(|v| v.is_same(t))),
            );
            self.record(
                "view: of a data-dependent size",
                tensors.iter().any(|t| self.data_dependent.iter().any(|v| v.is_same(t))),
            );
            self.record(
                "view: overlaps itself",
                results.iter().any(|t| {
                    t.meta().concrete().is_some_and(|c| {
                        c.strides.contains(&0)
                            || ["aten::unfold", "aten::as_strided"].contains(&op.name())
                                && c.numel() > c.span().map(|(a, b)| (b - a) / c.width)
                    })
                }),
            );
            self.views.extend(results.iter().cloned());
        }
        if matches!(op.name(), "aten::nonzero" | "aten::masked_select" | "oracle::hits")
            || tensors.iter().any(|t| self.data_dependent.iter().any(|v| v.is_same(t)))
        {
            self.data_dependent.extend(results.iter().cloned());
        }
        self.record("random numbers", op.is_random());
        self.writes(op, &mutated, &read);
        if op.name().starts_with("oracle::") {
            self.custom(op, &mutated, &results, outputs.len());
        }
        Ok(outputs)
    }

    /// What a statement does that is more than a call.
    fn statement(&mut self, op: Op, args: &[Value]) {
        if op.name() == ASKS {
            let number = args.get(2).and_then(|n| n.int().ok()?.as_i64()).unwrap_or(-1);
            let question = usize::try_from(number).ok().and_then(|n| QUESTIONS.get(n));
            self.found.extend(question);
            let is_outside = args.get(1).is_some_and(Value::is_none);
            self.record("question: of a tensor from outside", is_outside);
        }
        self.record("write: refused, and handled", op.name() == ATTEMPTS);
    }

    fn writes(&mut self, op: Op, mutated: &[Value], read: &[Tensor]) {
        let builtin = !op.name().starts_with("oracle::");
        for t in mutated.iter().flat_map(Value::tensors) {
            let view = self.views.iter().any(|v| v.is_same(t));
            self.record("write: in place", builtin);
            self.record("write: out=", op.name().ends_with("_out"));
            self.record("write: into an input", self.inputs.iter().any(|i| i.shares_storage(t)));
            self.record("write: through a view", view);
            self.record(
                "write: through a view that is not contiguous",
                view && t.meta().concrete().is_some_and(|c| !c.is_contiguous()),
            );
            self.record(
                "write: of no elements",
                t.meta().concrete().and_then(|c| c.numel()) == Some(0),
            );
            self.record(
                "overlap: a read and a mutated argument",
                read.iter().any(|u| u.shares_storage(t) && spans_intersect(u, t)),
            );
            if view {
                self.written.push(t.clone());
            }
        }
    }

    fn custom(&mut self, op: Op, mutated: &[Value], results: &[Tensor], outputs: usize) {
        let n = mutated.iter().flat_map(Value::tensors).count();
        self.record("custom: mutates no argument", mutated.is_empty() && op.effect().is_none());
        self.record("custom: mutates 1 argument", n == 1);
        self.record("custom: mutates 2 arguments", n == 2);
        self.record("custom: mutates 3 arguments", n == 3);
        self.record("custom: a mutated optional", op.name() == "oracle::maybe_" && n == 1);
        self.record("custom: an absent mutated optional", op.name() == "oracle::maybe_" && n == 0);
        let list = mutated.iter().find_map(|v| if let Value::List(l) = v { Some(l) } else { None });
        self.record("custom: a mutated list", list.is_some_and(|l| !l.is_empty()));
        self.record(
            "custom: a mutated list with None",
            list.is_some_and(|l| l.iter().any(Value::is_none)),
        );
        self.record("custom: several results", outputs > 1 || results.len() > 1);
        self.record(
            "custom: fresh result and mutation",
            n > 0
                && !op.tags().contains(maquette_ops::library::Tag::Inplace)
                && !results.is_empty(),
        );
        self.record("effect: without mutation", op.effect().is_some() && n == 0);
        self.record("effect: with mutation", op.effect().is_some() && n > 0);
        self.record("effect: with a result", op.effect().is_some() && outputs > 0);
    }

    fn failed(&mut self, e: &maquette_ops::Error) {
        use maquette_ops::{AccessError, CallError, ErrorKind};
        self.record(
            "overlap: mutated arguments, refused",
            matches!(e.kind(), ErrorKind::Access(AccessError::MutatedOverlap { .. })),
        );
        self.record(
            "overlap: a mutated argument with itself, refused",
            matches!(e.kind(), ErrorKind::Access(AccessError::SelfOverlap { .. })),
        );
        self.record(
            "custom: keeps what it returns, refused",
            matches!(e.kind(), ErrorKind::Call(CallError::KeptOutput { .. })),
        );
        self.record(
            "custom: reads what it was not given, refused",
            matches!(e.kind(), ErrorKind::Access(AccessError::NotGiven { .. })),
        );
    }

    fn outputs(&mut self, outputs: &[Value]) {
        let tensors: Vec<Tensor> = maquette_check::values::flatten(outputs)
            .iter()
            .flat_map(|v| v.tensors().cloned().collect::<Vec<_>>())
            .collect();
        for (i, t) in tensors.iter().enumerate() {
            let of_input = self.inputs.iter().any(|u| u.shares_storage(t));
            let input = self.inputs.iter().any(|u| u.is_same(t));
            self.record("output: an input", input);
            self.record("output: a view of an input", of_input && !input);
            self.record("output: fresh", !of_input);
            self.record(
                "output: shares memory with another",
                tensors.iter().take(i).any(|u| u.shares_storage(t)),
            );
        }
    }
}

/// Whether the memory spans of two tensors intersect, even if their elements do not.
fn spans_intersect(a: &Tensor, b: &Tensor) -> bool {
    let span = |t: &Tensor| t.meta().concrete().and_then(|c| c.span());
    matches!((span(a), span(b)), (Some(a), Some(b)) if a.0 < b.1 && b.0 < a.1)
}
