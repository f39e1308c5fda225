//! A program in editable form, which the generator extends and the shrinker reduces, and its
//! conversion to a graph.
//!
//! A builder has no types; [`ProgramBuilder::program`] derives them. With static sizes, they are
//! the types found in an eager run. With symbols, for sizes or for data, a trace of the program
//! gives the graph.

mod graph;

use super::program::{
    AS_STRIDED, Family, InputLocation, MemoryInit, RunInputs, Sizes, TestProgram, tensor_input,
};
use super::{model, outcome};
use maquette_check::values::{FlatValues, flatten};
use maquette_ir::DType;
use maquette_ir::graph::{Arg, BindSource, Graph, NodeId, Res, Stmt, TensorType, ValueId};
use maquette_ir::sym::{Expr, SymTable, SymbolId};
use maquette_ops::{Args, Error, Op, Result, Tensor, Value};
use maquette_trace::{Dim, TraceOptions};
use rustc_hash::FxHashMap;

/// An argument of a call, or an output of the program.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum BuilderArg {
    /// A value of the builder, by its number.
    Value(usize),
    Str(String),
    List(Vec<BuilderArg>),
    /// An argument without values and strings of a graph. Expressions refer to the builder's table.
    Plain(Arg),
}

impl<T> From<T> for BuilderArg
where
    Arg: From<T>,
{
    fn from(x: T) -> BuilderArg {
        BuilderArg::Plain(Arg::from(x))
    }
}

impl BuilderArg {
    /// Calls `f` with every expression in the argument, until `f` returns `None`.
    fn for_each_expr(&mut self, f: &impl Fn(&mut Expr) -> Option<()>) -> Option<()> {
        match self {
            BuilderArg::Plain(Arg::Int(e)) => f(e),
            BuilderArg::List(l) => l.iter_mut().try_for_each(|i| i.for_each_expr(f)),
            BuilderArg::Value(_) | BuilderArg::Str(_) | BuilderArg::Plain(_) => Some(()),
        }
    }

    /// Calls `f` with every value in the argument.
    pub(super) fn for_each_value(&mut self, f: &mut impl FnMut(&mut usize)) {
        match self {
            BuilderArg::Value(v) => f(v),
            BuilderArg::List(l) => l.iter_mut().for_each(|i| i.for_each_value(f)),
            BuilderArg::Str(_) | BuilderArg::Plain(_) => {}
        }
    }
}

/// The values of one result of an operator.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ResultGroup {
    One(usize),
    List(Vec<usize>),
    Absent,
}

impl ResultGroup {
    pub(super) fn values(&self) -> &[usize] {
        match self {
            ResultGroup::One(v) => std::slice::from_ref(v),
            ResultGroup::List(l) => l,
            ResultGroup::Absent => &[],
        }
    }
}

/// A call of an operator.
#[derive(Clone, Debug)]
pub(super) struct Call {
    pub(super) op: String,
    pub(super) args: Vec<BuilderArg>,
    pub(super) kwargs: Vec<(String, BuilderArg)>,
    pub(super) results: Vec<ResultGroup>,
}

impl Call {
    /// The arguments, by position and by keyword.
    pub(super) fn args_mut(&mut self) -> impl Iterator<Item = &mut BuilderArg> {
        self.args.iter_mut().chain(self.kwargs.iter_mut().map(|(_, item)| item))
    }
}

/// A statement of the program.
#[derive(Clone, Debug)]
pub(super) enum BuilderStmt {
    Call(Call),
    /// Binds a symbol to a property of a value.
    Bind(SymbolId, usize, BindSource),
}

/// An input of the program.
#[derive(Clone, Debug)]
pub(super) struct Input {
    pub(super) value: usize,
    pub(super) dtype: DType,
    pub(super) sizes: Vec<Expr>,
    /// The strides; `None` if row-major.
    pub(super) strides: Option<Vec<Expr>>,
    pub(super) location: InputLocation,
}

/// A program without types. See the [module](self).
#[derive(Clone, Debug, Default)]
pub(super) struct ProgramBuilder {
    pub(super) table: SymTable,
    pub(super) memories: Vec<MemoryInit>,
    pub(super) inputs: Vec<Input>,
    pub(super) stmts: Vec<BuilderStmt>,
    pub(super) outputs: Vec<BuilderArg>,
    pub(super) sizes: Vec<Sizes>,
    pub(super) family: Family,
}

/// An argument of a graph in the form of builders.
fn builder_arg(graph: &Graph, arg: Arg) -> BuilderArg {
    match arg {
        Arg::Value(v) => BuilderArg::Value(v.index()),
        Arg::Str(s) => BuilderArg::Str(graph.str(s).to_owned()),
        Arg::List(l) => {
            BuilderArg::List(graph.list(l).iter().map(|&a| builder_arg(graph, a)).collect())
        }
        plain => BuilderArg::Plain(plain),
    }
}

/// Values of an eager run, each with the start of the input that it is a view of.
type Types = FxHashMap<usize, (Value, i64)>;

impl ProgramBuilder {
    /// Decomposes a program. Guards and assertions are left out, since whatever raised them raises
    /// them again.
    pub(super) fn of(program: &TestProgram) -> Result<ProgramBuilder> {
        let graph = &program.graph;
        let mut builder = ProgramBuilder {
            table: graph.symbols().clone(),
            memories: program.memories.clone(),
            sizes: program.sizes.clone(),
            family: program.family,
            outputs: graph.outputs().iter().map(|&a| builder_arg(graph, a)).collect(),
            ..ProgramBuilder::default()
        };
        for (&v, &location) in graph.inputs().iter().zip(&program.locations) {
            let ty = tensor_input(graph, v)?;
            let contiguous = TensorType::contiguous(ty.dtype, &ty.sizes, &mut builder.table)?
                .strides
                == ty.strides;
            let strides = (!contiguous).then(|| ty.strides.to_vec());
            builder.inputs.push(Input {
                value: v.index(),
                dtype: ty.dtype,
                sizes: ty.sizes.to_vec(),
                strides,
                location,
            });
        }
        for stmt in graph.body() {
            match *stmt {
                Stmt::Node(node) => builder.stmts.push(BuilderStmt::Call(Call {
                    op: graph.op_name(node).to_owned(),
                    args: graph.args(node).iter().map(|&a| builder_arg(graph, a)).collect(),
                    kwargs: graph
                        .kwargs(node)
                        .iter()
                        .map(|&(k, a)| (graph.str(k).to_owned(), builder_arg(graph, a)))
                        .collect(),
                    results: graph.results(node).iter().map(|r| group(*r)).collect(),
                })),
                Stmt::Bind { symbol, value, source } => {
                    builder.stmts.push(BuilderStmt::Bind(symbol, value.index(), source))
                }
                Stmt::Assert { .. } => {}
            }
        }
        Ok(builder)
    }

    /// Builds the program.
    ///
    /// # Errors
    /// A statement uses an undefined value, or the program has symbols and cannot be traced.
    pub(super) fn program(&self) -> Result<TestProgram> {
        let untyped = self.untyped()?;
        let run_inputs = self.run_inputs()?;
        // data-dependent sizes have symbols as well
        let graph = if untyped.is_symbolic()
            || self.stmts.iter().any(|s| matches!(s, BuilderStmt::Bind(..)))
        {
            self.traced(&untyped.graph, run_inputs.inputs)?
        } else {
            self.graph(&self.eager_types(&untyped.graph, &run_inputs.inputs))?
        };
        Ok(TestProgram { graph, ..untyped })
    }

    /// See [`TestProgram::names_storage_offsets`].
    fn names_storage_offsets(&self) -> bool {
        let named = |c: &Call| {
            c.op == AS_STRIDED && matches!(c.args.get(3), Some(BuilderArg::Plain(Arg::Int(_))))
        };
        self.stmts.iter().any(|s| matches!(s, BuilderStmt::Call(c) if named(c)))
    }

    /// The storage offset in the type of an input.
    fn start(&self, input: &Input) -> i64 {
        if self.names_storage_offsets() { input.location.offset } else { 0 }
    }

    /// The program with placeholder types.
    pub(super) fn untyped(&self) -> Result<TestProgram> {
        Ok(TestProgram {
            graph: self.graph(&FxHashMap::default())?,
            memories: self.memories.clone(),
            locations: self.inputs.iter().map(|i| i.location).collect(),
            sizes: if self.sizes.is_empty() { vec![Sizes::new()] } else { self.sizes.clone() },
            family: self.family,
        })
    }

    /// The builder with symbols replaced by numbers, for one run; `None` if `number` lacks an
    /// expression.
    pub(super) fn with_concrete_sizes(
        &self,
        number: &dyn Fn(Expr) -> Option<i64>,
    ) -> Option<ProgramBuilder> {
        let fix = |e: &mut Expr| number(*e).map(|n| *e = Expr::Int(n));
        let mut builder =
            ProgramBuilder { table: SymTable::new(), sizes: vec![Sizes::new()], ..self.clone() };
        builder.stmts.retain(|s| matches!(s, BuilderStmt::Call(_)));
        for input in &mut builder.inputs {
            input.sizes.iter_mut().chain(input.strides.iter_mut().flatten()).try_for_each(fix)?;
        }
        let calls = builder
            .stmts
            .iter_mut()
            .flat_map(|s| if let BuilderStmt::Call(c) = s { Some(c.args_mut()) } else { None })
            .flatten();
        calls.chain(&mut builder.outputs).try_for_each(|item| item.for_each_expr(&fix))?;
        Some(builder)
    }

    /// The inputs of the first run.
    ///
    /// # Errors
    /// As [`TestProgram::run_inputs`].
    pub(super) fn run_inputs(&self) -> Result<RunInputs> {
        self.untyped()?.run_inputs(self.sizes.first().unwrap_or(&Sizes::new()))
    }

    /// The values of an eager run, up to its failure if it fails: later statements need no types.
    fn eager_types(&self, untyped: &Graph, inputs: &[Tensor]) -> Types {
        // a finished graph numbers its values in the order of their definitions
        let results = self
            .stmts
            .iter()
            .flat_map(|s| if let BuilderStmt::Call(c) = s { c.results.as_slice() } else { &[] });
        let order: Vec<usize> = self
            .inputs
            .iter()
            .map(|i| i.value)
            .chain(results.flat_map(|g| g.values().iter().copied()))
            .collect();
        let mut types = FxHashMap::default();
        // a graph counts a view's offset from the start of its input, unless the input's type has
        // an offset itself
        let begins = self.inputs.iter().map(|i| i.location.offset - self.start(i));
        let mut starts: Vec<(Tensor, i64)> = inputs.iter().cloned().zip(begins).collect();
        let mut observe = |node: NodeId, op: Op, args: Args| {
            let operands: Vec<Tensor> = args.iter().flat_map(Value::tensors).cloned().collect();
            let outputs = op.call(args)?;
            let ids = untyped.result_values(node).filter_map(|v| order.get(v.index()).copied());
            for (id, value) in ids.zip(flatten(&outputs).into_iter().filter(|v| !v.is_none())) {
                let mut start = 0;
                if let Value::Tensor(t) = &value {
                    let base = operands
                        .iter()
                        .find(|g| g.is_same(t))
                        .or_else(|| operands.iter().find(|g| g.shares_storage(t)));
                    start = starts
                        .iter()
                        .find(|(known, _)| base.is_some_and(|g| g.is_same(known)))
                        .map_or(0, |(_, start)| *start);
                    starts.push((t.clone(), start));
                }
                types.insert(id, (value, start));
            }
            Ok(outputs)
        };
        let _ = outcome::with_fixed_seed(|| model::run(untyped, inputs, &mut observe));
        types
    }

    /// The graph that a trace records, with the builder's symbols as dynamic sizes.
    fn traced(&self, graph: &Graph, sample: Vec<Tensor>) -> Result<Graph> {
        let mut options =
            TraceOptions::new().name("program").keep_offsets(self.names_storage_offsets());
        for (i, input) in self.inputs.iter().enumerate() {
            for (d, &e) in input.sizes.iter().enumerate().filter(|(_, e)| matches!(e, Expr::Id(_)))
            {
                options = options.dynamic(i, d, Dim::new(self.table.display(e).to_string()));
            }
        }
        let program = |inputs: Vec<Tensor>| model::call_all(graph, &inputs).map(FlatValues);
        let traced = options.trace(program, sample)?.into_program().graph;
        let calls = |g: &Graph| g.nodes().map(|n| g.op_name(n).to_owned()).collect::<Vec<_>>();
        match calls(graph) == calls(&traced) {
            true => Ok(traced),
            false => Err(Error::msg(format!(
                "the trace recorded other calls than were made:\n{graph}\n{traced}"
            ))),
        }
    }
}

/// A result of a graph in the form of builders.
fn group(result: Res) -> ResultGroup {
    match result {
        Res::Value(v) => ResultGroup::One(v.index()),
        Res::List(range) => ResultGroup::List(range.iter().map(ValueId::index).collect()),
        Res::Absent => ResultGroup::Absent,
    }
}
