//! The generator of random programs.
//!
//! A statement is chosen at random, executed eagerly on real tensors, and kept if it succeeds. So
//! every program runs, except for the few that end with a statement that eager execution must
//! refuse.

mod answers;
mod choices;
mod custom;
mod differentiable;
mod inputs;
mod patterns;
mod pure;
mod views;
mod writes;

use super::library;
use super::outcome;
use super::program::{Family, Sizes, TestProgram};
use super::program_builder::{BuilderArg, BuilderStmt, Call, ProgramBuilder, ResultGroup};
use answers::RareStatement;
use maquette_check::Rng;
use maquette_interp::Interpreter;
use maquette_ir::DType;
use maquette_ir::graph::{Arg, BindSource};
use maquette_ir::sym::{Expr, Range, SymbolId, SymbolKind};
use maquette_ops::internals::MetaInternals;
use maquette_ops::{Args, Error, ErrorKind, Kwargs, Op, Outputs, Result, RunError, Tensor, Value};

/// Results with more elements are rejected: a fuzzing run should spend its time on programs, not on
/// elements.
const LARGEST: i64 = 256;
/// Results with more dimensions are rejected.
const RANKS: usize = 5;

/// A generated program, and the statements that were rejected.
#[derive(Clone, Debug)]
pub struct Generated {
    /// The program.
    pub program: TestProgram,
    /// For each rejected statement: the operator and the error, without digits.
    pub rejected: Vec<String>,
}

/// Generates program number `index` of the fuzzing run `seed`, with about `statements` statements.
///
/// # Errors
/// The oracle's operators cannot be registered, or the program cannot be built.
pub fn generate(seed: u64, index: u64, statements: usize) -> Result<Generated> {
    generate_for(Family::Programs, seed, index, statements)
}

/// As [`generate`], of a family. Programs with gradients compute in `f64`, and write no leaf.
///
/// # Errors
/// As [`generate`].
pub fn generate_for(family: Family, seed: u64, index: u64, statements: usize) -> Result<Generated> {
    library::register()?;
    let mut rng = Rng::new(seed, index);
    let rare = answers::rare_statement(family, seed, index);
    let program =
        outcome::with_fixed_seed(|| Generator::program(&mut rng, family, statements, rare));
    library::take_log();
    program
}

/// A tensor that statements may use.
#[derive(Clone)]
struct LiveTensor {
    value: usize,
    tensor: Tensor,
    /// Its sizes depend on data.
    data_dependent: bool,
    /// An operator returned it as a view or mutated it, so it is more likely to be mutated again.
    write_target: bool,
}

impl LiveTensor {
    fn arg(&self) -> BuilderArg {
        BuilderArg::Value(self.value)
    }

    fn sizes(&self) -> Vec<i64> {
        self.tensor.sizes_i64().unwrap_or_default()
    }

    fn rank(&self) -> usize {
        self.tensor.dim()
    }

    fn dtype(&self) -> DType {
        self.tensor.dtype()
    }
}

/// The state of generating one program.
struct Generator<'r> {
    rng: &'r mut Rng,
    builder: ProgramBuilder,
    live: Vec<LiveTensor>,
    /// The symbols, with their values in the first run.
    symbols: Vec<(SymbolId, i64)>,
    next: usize,
    symbolic: bool,
    rejected: Vec<String>,
}

impl Generator<'_> {
    fn program(
        rng: &mut Rng,
        family: Family,
        statements: usize,
        mut rare: Option<(RareStatement, usize)>,
    ) -> Result<Generated> {
        let refused = rng.below(1000) < 5 && family == Family::Programs;
        let symbolic = !refused && rng.chance(35);
        let mut generator = Generator {
            rng,
            builder: ProgramBuilder { family, ..ProgramBuilder::default() },
            live: Vec::new(),
            symbols: Vec::new(),
            next: 0,
            symbolic,
            rejected: Vec::new(),
        };
        generator.inputs()?;
        let wanted = 1 + generator.rng.below(statements.max(1)) + statements / 3;
        for _ in 0..3 * wanted {
            if generator.builder.stmts.len() >= wanted {
                break;
            }
            let made = generator.builder.stmts.len();
            if let Some((statement, _)) = rare.take_if(|(_, at)| 100 * made >= *at * wanted) {
                generator.rare(statement);
            }
            generator.statement();
        }
        if refused {
            generator.refused_statement();
        }
        if !generator.has_gradients() && generator.rng.below(500) == 0 {
            generator.broken_promise();
        }
        generator.outputs();
        let rejected = std::mem::take(&mut generator.rejected);
        generator.finish().map(|program| Generated { program, rejected })
    }

    /// Whether the program is differentiated.
    fn has_gradients(&self) -> bool {
        self.builder.family == Family::Gradients
    }

    /// The dtype of the floats in the program.
    fn float(&self) -> DType {
        if self.has_gradients() { DType::F64 } else { DType::F32 }
    }

    fn statement(&mut self) -> bool {
        if self.has_gradients() {
            return self.differentiable_statement();
        }
        match self.rng.below(100) {
            0..29 => self.view(),
            29..56 => self.write(),
            56..73 => self.pure(),
            73..96 => self.custom(),
            _ => self.pattern(),
        }
    }

    /// One to six outputs: results, views, inputs, possibly repeated.
    fn outputs(&mut self) {
        for _ in 0..1 + self.rng.below(6) {
            if let Some(t) = self.any() {
                self.builder.outputs.push(t.arg());
            }
        }
        if self.has_gradients()
            && let Some(t) = self.pick(|l| l.tensor.requires_grad())
        {
            self.builder.outputs.push(t.arg());
        }
    }

    fn finish(mut self) -> Result<TestProgram> {
        if self.has_gradients() {
            self.drop_refused_writes();
        }
        let program = match self.builder.program() {
            Ok(program) => program,
            // The trace refuses the program with symbols. The same program with numbers is still a
            // test: modes that trace it with symbols must give a documented reason.
            Err(_) => {
                return self
                    .builder
                    .with_concrete_sizes(&|e| Some(self.number(e)))
                    .ok_or_else(|| Error::msg("a size has no value"))?
                    .program();
            }
        };
        if program.is_symbolic() { Ok(self.other_sizes(program)) } else { Ok(program) }
    }

    /// Adds sizes at which the program runs as well and its guards hold.
    fn other_sizes(self, mut program: TestProgram) -> TestProgram {
        let Some(home) = program.sizes.first().cloned() else { return program };
        for _ in 0..4 {
            let mut other = |n: &i64| match self.rng.below(100) {
                0..20 => *n,
                20..40 => self.rng.between(0, 1),
                _ => self.rng.between(0, 6),
            };
            let at: Sizes = home.iter().map(|(name, n)| (name.clone(), other(n))).collect();
            let runs = |run: &dyn Fn(&[Tensor]) -> Result<Vec<Value>>| {
                program.run_inputs(&at).and_then(|run_inputs| run(&run_inputs.inputs))
            };
            let eager = runs(&|inputs| program.call(inputs));
            let guards = runs(&|inputs| {
                let inputs: Vec<Value> = inputs.iter().map(Value::from).collect();
                Ok(Interpreter::new(&program.graph).run(&inputs)?.results)
            });
            let guarded = |e: &ErrorKind| {
                matches!(e, ErrorKind::Run(RunError::Guard { .. } | RunError::Input { .. }))
            };
            if eager.is_ok()
                && !guards.is_err_and(|e| guarded(e.kind()))
                && program.sizes.len() < 3
                && !program.sizes.contains(&at)
            {
                program.sizes.push(at);
            }
        }
        program
    }

    // Statements.

    /// Tries a call, and appends it if it succeeds. Returns its tensors.
    fn emit(&mut self, op: &str, args: Vec<BuilderArg>) -> Option<Vec<LiveTensor>> {
        self.emit_kw(op, args, Vec::new())
    }

    /// Like `emit`, with keyword arguments.
    fn emit_kw(
        &mut self,
        op: &str,
        args: Vec<BuilderArg>,
        kwargs: Vec<(&'static str, BuilderArg)>,
    ) -> Option<Vec<LiveTensor>> {
        let callee = Op::find(op).ok()?;
        let values = args.iter().map(|a| self.value(a)).collect::<Option<Args>>()?;
        let keywords =
            kwargs.iter().map(|(k, a)| Some((*k, self.value(a)?))).collect::<Option<Kwargs>>()?;
        let data_dependent = values
            .iter()
            .flat_map(Value::tensors)
            .any(|t| self.live.iter().any(|l| l.data_dependent && l.tensor.is_same(t)));
        let outputs = self.attempt(callee, values, keywords)?;
        let too_large = |t: &Tensor| {
            t.meta().concrete().and_then(|c| c.numel()).is_none_or(|n| n > LARGEST)
                || t.dim() > RANKS
        };
        if outputs.iter().flat_map(Value::tensors).any(too_large) {
            return None;
        }
        let data = matches!(
            op,
            "aten::nonzero" | "aten::masked_select" | "oracle::hits" | "oracle::count_"
        );
        let mut results = Vec::new();
        let mut new_tensors = Vec::new();
        for v in &outputs {
            let mut group = |v: &Value, next: &mut usize| {
                *next += 1;
                if let Value::Tensor(t) = v {
                    let written = t.storage().is_ok_and(|s| s.version() > 0);
                    let write_target = written || shares_live_storage(&self.live, t);
                    new_tensors.push(LiveTensor {
                        value: *next - 1,
                        tensor: t.clone(),
                        data_dependent: data_dependent || data,
                        write_target,
                    });
                }
                *next - 1
            };
            results.push(match v {
                Value::List(l) => {
                    ResultGroup::List(l.iter().map(|v| group(v, &mut self.next)).collect())
                }
                Value::None => ResultGroup::Absent,
                v => ResultGroup::One(group(v, &mut self.next)),
            });
        }
        let first = results.first().and_then(|g| g.values().first().copied());
        let kwargs = kwargs.into_iter().map(|(k, a)| (k.to_owned(), a)).collect();
        self.builder.stmts.push(BuilderStmt::Call(Call {
            op: op.to_owned(),
            args,
            kwargs,
            results,
        }));
        if let (true, Some(v), Some(first)) = (data, first, outputs.first()) {
            self.bind(v, first);
        }
        self.live.extend(new_tensors.iter().cloned());
        Some(new_tensors)
    }

    /// Calls an operator. A call that fails halfway poisons the tensors that it was writing; these
    /// are not used again.
    fn attempt(&mut self, op: Op, args: Args, kwargs: Kwargs) -> Option<Outputs> {
        match op.call_kw(args, kwargs) {
            Ok(outputs) => Some(outputs),
            Err(e) => {
                let why: String =
                    e.kind().to_string().chars().filter(|c| !c.is_ascii_digit()).take(90).collect();
                self.rejected.push(format!(
                    "{} {}",
                    op.name(),
                    why.lines().next().unwrap_or_default()
                ));
                self.live.retain(|l| l.tensor.ok().is_ok());
                None
            }
        }
    }

    /// Binds a data-dependent size or number to a symbol, so that later statements can use it.
    fn bind(&mut self, v: usize, found: &Value) {
        let (source, n) = match found {
            Value::Tensor(t) => (BindSource::Size(0), t.size(0).as_i64()),
            other => (BindSource::Value, other.int().ok().and_then(|i| i.as_i64())),
        };
        let Some(n) = n else { return };
        let symbol = self.builder.table.fresh(SymbolKind::Unbacked, Range::SIZE);
        self.builder.stmts.push(BuilderStmt::Bind(symbol, v, source));
        self.symbols.push((symbol, n));
    }

    fn data_dependent_sizes(&self) -> usize {
        self.builder.stmts.iter().filter(|s| matches!(s, BuilderStmt::Bind(..))).count()
    }

    fn number(&self, e: Expr) -> i64 {
        let env = |s: SymbolId| self.symbols.iter().find(|(t, _)| *t == s).map(|(_, n)| *n);
        self.builder.table.eval(e, &env).unwrap_or_default()
    }

    /// The value of an argument in the first run; `None` for a tensor that is no longer available.
    fn value(&self, item: &BuilderArg) -> Option<Value> {
        Some(match item {
            BuilderArg::Value(v) => {
                Value::Tensor(self.live.iter().find(|l| l.value == *v)?.tensor.clone())
            }
            BuilderArg::Str(s) => Value::from(s.as_str()),
            BuilderArg::List(l) => {
                Value::from(l.iter().map(|i| self.value(i)).collect::<Option<Vec<Value>>>()?)
            }
            BuilderArg::Plain(Arg::Int(e)) => self.number(*e).into(),
            BuilderArg::Plain(Arg::Float(x)) => x.get().into(),
            BuilderArg::Plain(Arg::Bool(b)) => (*b).into(),
            BuilderArg::Plain(Arg::DType(d)) => (*d).into(),
            BuilderArg::Plain(_) => Value::None,
        })
    }
}

/// Whether a tensor shares its storage with a live one.
fn shares_live_storage(live: &[LiveTensor], t: &Tensor) -> bool {
    live.iter().any(|l| l.tensor.shares_storage(t))
}
