//! The generator of random programs.
//!
//! A statement is chosen at random, executed eagerly on real tensors, and kept if it succeeds. So
//! every program runs, except for the few that end with a statement that eager execution must
//! refuse.

mod custom;
mod inputs;
mod patterns;
mod pure;
mod views;
mod writes;

use super::library;
use super::program::{Sizes, TestProgram};
use super::program_builder::{BuilderArg, BuilderStmt, Call, ProgramBuilder, ResultGroup};
use super::random::Rng;
use super::{model, outcome};
use maquette_interp::Interpreter;
use maquette_ir::graph::{Arg, BindSource};
use maquette_ir::sym::{Expr, Range, SymbolId, SymbolKind};
use maquette_ir::{DType, Scalar};
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
    library::register()?;
    let mut rng = Rng::new(seed, index);
    let program = outcome::with_fixed_seed(|| Generator::program(&mut rng, statements));
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
    fn program(rng: &mut Rng, statements: usize) -> Result<Generated> {
        let refused = rng.below(1000) < 3;
        let symbolic = !refused && rng.chance(35);
        let mut generator = Generator {
            rng,
            builder: ProgramBuilder::default(),
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
            generator.statement();
        }
        if refused {
            generator.refused_statement();
        }
        generator.outputs();
        let rejected = std::mem::take(&mut generator.rejected);
        generator.finish().map(|program| Generated { program, rejected })
    }

    fn statement(&mut self) -> bool {
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
    }

    fn finish(self) -> Result<TestProgram> {
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
            let eager = runs(&|inputs| model::call_all(&program.graph, inputs));
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

    // Choices.

    /// Any tensor. Data-dependent sizes are chosen less often, since most operators must decide
    /// something about a size.
    fn any(&mut self) -> Option<LiveTensor> {
        self.pick(|_| true)
    }

    /// A tensor that passes a test; recent ones are more likely.
    fn pick(&mut self, test: impl Fn(&LiveTensor) -> bool) -> Option<LiveTensor> {
        let data_dependent = self.rng.chance(12);
        let recent = self.live.len().saturating_sub(6);
        for _ in 0..8 {
            let at = if self.rng.chance(50) {
                recent + self.rng.below(self.live.len() - recent)
            } else {
                self.rng.below(self.live.len())
            };
            if let Some(l) =
                self.live.get(at).filter(|l| test(l) && (data_dependent || !l.data_dependent))
            {
                return Some(l.clone());
            }
        }
        let fit: Vec<&LiveTensor> =
            self.live.iter().filter(|l| test(l) && (data_dependent || !l.data_dependent)).collect();
        fit.get(self.rng.below(fit.len())).map(|l| (*l).clone())
    }

    /// A tensor to mutate: likely a view, or a tensor that was mutated before.
    fn target(&mut self) -> Option<LiveTensor> {
        if self.rng.chance(65)
            && let Some(write_target) = self.pick(|l| l.write_target)
        {
            return Some(write_target);
        }
        self.any()
    }

    /// A tensor of this dtype that broadcasts to these sizes; mostly one of exactly these sizes.
    fn operand(&mut self, dtype: DType, sizes: &[i64]) -> Option<LiveTensor> {
        let same = |l: &LiveTensor| l.dtype() == dtype && l.sizes() == sizes;
        if self.rng.chance(70)
            && let Some(found) = self.pick(same)
        {
            return Some(found);
        }
        self.pick(|l| {
            let from = l.sizes();
            l.dtype() == dtype
                && from.len() <= sizes.len()
                && from.iter().rev().zip(sizes.iter().rev()).all(|(a, b)| a == b || *a == 1)
        })
    }

    /// A dimension, sometimes counted from the end.
    fn dim(&mut self, t: &LiveTensor) -> Option<(usize, BuilderArg)> {
        let rank = t.rank();
        if rank == 0 {
            return None;
        }
        let d = self.rng.below(rank);
        let written = if self.rng.chance(25) { d as i64 - rank as i64 } else { d as i64 };
        Some((d, BuilderArg::from(written)))
    }

    /// A number as an argument. If expressions of symbols have this value, one of them is likely.
    fn int(&mut self, n: i64) -> BuilderArg {
        if self.symbols.is_empty() || self.rng.chance(30) {
            return n.into();
        }
        let mut fitting: Vec<Expr> = Vec::new();
        // few operators accept a data-dependent number without deciding on its value
        let data = self.rng.chance(25);
        let table = &mut self.builder.table;
        for (i, &(s, v)) in self.symbols.iter().enumerate() {
            if !data && table.kind(s) == SymbolKind::Unbacked {
                continue;
            }
            let e = table.expr(s);
            let mut offer =
                |value: i64, candidate: std::result::Result<Expr, maquette_ir::sym::SymError>| {
                    if value == n {
                        fitting.extend(candidate.ok());
                    }
                };
            offer(v, Ok(e));
            offer(v - 1, table.sub(e, Expr::Int(1)));
            offer(v + 1, table.add(e, Expr::Int(1)));
            offer(2 * v, table.mul(e, Expr::Int(2)));
            offer(v.div_euclid(2), table.floor_div(e, Expr::Int(2)));
            for &(t, w) in self.symbols.iter().skip(i + 1) {
                if !data && table.kind(t) == SymbolKind::Unbacked {
                    continue;
                }
                let f = table.expr(t);
                offer(v + w, table.add(e, f));
                offer(v * w, table.mul(e, f));
                offer(v - w, table.sub(e, f));
                offer(v.min(w), table.min(e, f));
            }
            if v > 1 && n > v && n % v == 0 {
                offer(n, table.mul(e, Expr::Int(n / v)));
            }
        }
        self.rng.one(&fitting).map_or(n.into(), BuilderArg::from)
    }

    fn ints(&mut self, of: &[i64]) -> BuilderArg {
        BuilderArg::List(of.iter().map(|&n| self.int(n)).collect())
    }

    /// A number of a dtype, sometimes a special one.
    fn scalar(&mut self, dtype: DType) -> BuilderArg {
        match self.rng.value(dtype) {
            Scalar::Float(x) => x.into(),
            Scalar::Int(n) => n.into(),
            Scalar::Bool(b) => b.into(),
        }
    }
}

/// Whether a tensor shares its storage with a live one.
fn shares_live_storage(live: &[LiveTensor], t: &Tensor) -> bool {
    live.iter().any(|l| l.tensor.shares_storage(t))
}

impl Rng {
    /// A number of a dtype: small, or one that arithmetic treats specially.
    fn value(&mut self, dtype: DType) -> Scalar {
        const FLOATS: [f32; 11] = [
            f32::NAN,
            -f32::NAN,
            -0.0,
            0.0,
            f32::INFINITY,
            f32::NEG_INFINITY,
            f32::from_bits(1),
            -1e-40,
            f32::MAX,
            f32::EPSILON,
            16_777_217.0,
        ];
        const INTS: [i64; 6] = [0, -1, i64::MAX, i64::MIN, 1 << 53, -(1 << 40) + 1];
        let special = self.chance(18);
        match dtype {
            DType::Bool => Scalar::Bool(self.chance(50)),
            DType::I64 if special => Scalar::Int(self.one(&INTS).unwrap_or(0)),
            DType::I64 => Scalar::Int(self.between(-5, 9)),
            _ if special => Scalar::Float(self.one(&FLOATS).unwrap_or(0.0).into()),
            _ => Scalar::Float(self.between(-12, 12) as f64 / 4.0),
        }
    }
}
