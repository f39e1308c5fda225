//! A program taken apart, to be added to by the generator and cut by the shrinker, and how it
//! becomes a graph again.
//!
//! A builder has no types. With plain sizes they are those that an eager run finds; with symbols,
//! for sizes or for data, a trace writes the graph.

use super::program::{
    AS_STRIDED, InputLocation, MemoryInit, RunInputs, Sizes, TestProgram, tensor_input,
};
use super::{model, outcome};
use crate::values::{FlatValues, flatten};
use maquette_ir::DType;
use maquette_ir::graph::{
    Arg, BindSource, Graph, GraphBuilder, NodeId, Res, ResultSpec, Stmt, TensorType, ValueId,
    ValueType,
};
use maquette_ir::sym::{Expr, SymTable, SymbolId};
use maquette_ops::{Args, Concrete, Error, Op, Result, Tensor, Value};
use maquette_trace::{Dim, TraceOptions};
use rustc_hash::FxHashMap;

/// An argument, or an output of the program.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum BuilderArg {
    /// A value of the builder, by its number.
    Value(usize),
    Str(String),
    List(Vec<BuilderArg>),
    /// Anything that mentions neither values nor strings of a graph; expressions are of the
    /// builder's table.
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
    /// Calls `f` with every expression in it, as long as it gives something.
    fn for_each_expr(&mut self, f: &impl Fn(&mut Expr) -> Option<()>) -> Option<()> {
        match self {
            BuilderArg::Plain(Arg::Int(e)) => f(e),
            BuilderArg::List(l) => l.iter_mut().try_for_each(|i| i.for_each_expr(f)),
            BuilderArg::Value(_) | BuilderArg::Str(_) | BuilderArg::Plain(_) => Some(()),
        }
    }

    /// Calls `f` with every value in it.
    pub(super) fn for_each_value(&mut self, f: &mut impl FnMut(&mut usize)) {
        match self {
            BuilderArg::Value(v) => f(v),
            BuilderArg::List(l) => l.iter_mut().for_each(|i| i.for_each_value(f)),
            BuilderArg::Str(_) | BuilderArg::Plain(_) => {}
        }
    }
}

/// The values that one result of an operator is.
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

#[derive(Clone, Debug)]
pub(super) enum BuilderStmt {
    Call(Call),
    /// Reads a symbol from a value.
    Bind(SymbolId, usize, BindSource),
}

#[derive(Clone, Debug)]
pub(super) struct Input {
    pub(super) value: usize,
    pub(super) dtype: DType,
    pub(super) sizes: Vec<Expr>,
    /// Row-major where there are none.
    pub(super) strides: Option<Vec<Expr>>,
    pub(super) location: InputLocation,
}

/// A program without types. See the [module's page](self).
#[derive(Clone, Debug, Default)]
pub(super) struct ProgramBuilder {
    pub(super) table: SymTable,
    pub(super) memories: Vec<MemoryInit>,
    pub(super) inputs: Vec<Input>,
    pub(super) stmts: Vec<BuilderStmt>,
    pub(super) outputs: Vec<BuilderArg>,
    pub(super) sizes: Vec<Sizes>,
}

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

/// What values are in an eager run, and where the input begins that they see.
type Types = FxHashMap<usize, (Value, i64)>;

impl ProgramBuilder {
    /// A program taken apart. Guards and assertions are left out: whatever raised them raises them
    /// again.
    pub(super) fn of(program: &TestProgram) -> Result<ProgramBuilder> {
        let graph = &program.graph;
        let mut builder = ProgramBuilder {
            table: graph.symbols().clone(),
            memories: program.memories.clone(),
            sizes: program.sizes.clone(),
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

    /// The program.
    ///
    /// # Errors
    /// The builder takes what it does not define; or it has symbols and a trace refuses it.
    pub(super) fn program(&self) -> Result<TestProgram> {
        let untyped = self.untyped()?;
        let given = self.run_inputs()?;
        // sizes that depend on data have symbols as well
        let graph = if untyped.is_symbolic()
            || self.stmts.iter().any(|s| matches!(s, BuilderStmt::Bind(..)))
        {
            self.traced(&untyped.graph, given.inputs)?
        } else {
            self.graph(&self.eager_types(&untyped.graph, &given.inputs))?
        };
        Ok(TestProgram { graph, ..untyped })
    }

    /// As [`TestProgram::names_storage_offsets`].
    fn names_storage_offsets(&self) -> bool {
        let named = |c: &Call| {
            c.op == AS_STRIDED && matches!(c.args.get(3), Some(BuilderArg::Plain(Arg::Int(_))))
        };
        self.stmts.iter().any(|s| matches!(s, BuilderStmt::Call(c) if named(c)))
    }

    /// Where the type of an input says that it begins.
    fn start(&self, input: &Input) -> i64 {
        if self.names_storage_offsets() { input.location.offset } else { 0 }
    }

    /// The program with types that are made up.
    fn untyped(&self) -> Result<TestProgram> {
        Ok(TestProgram {
            graph: self.graph(&FxHashMap::default())?,
            memories: self.memories.clone(),
            locations: self.inputs.iter().map(|i| i.location).collect(),
            sizes: if self.sizes.is_empty() { vec![Sizes::new()] } else { self.sizes.clone() },
        })
    }

    /// The builder with numbers in the place of symbols, for one run; nothing where an expression
    /// has none.
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

    /// What the first run is given.
    ///
    /// # Errors
    /// As [`TestProgram::run_inputs`].
    pub(super) fn run_inputs(&self) -> Result<RunInputs> {
        self.untyped()?.run_inputs(self.sizes.first().unwrap_or(&Sizes::new()))
    }

    /// What the values are in an eager run, up to where it fails: nothing needs a type from there
    /// on.
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
        // a graph counts offsets from where the input begins that a view goes back to, unless its
        // type says where that is
        let begins = self.inputs.iter().map(|i| i.location.offset - self.start(i));
        let mut starts: Vec<(Tensor, i64)> = inputs.iter().cloned().zip(begins).collect();
        let mut observe = |node: NodeId, op: Op, args: Args| {
            let given: Vec<Tensor> = args.iter().flat_map(Value::tensors).cloned().collect();
            let outputs = op.call(args)?;
            let ids = untyped.result_values(node).filter_map(|v| order.get(v.index()).copied());
            for (id, value) in ids.zip(flatten(&outputs).into_iter().filter(|v| !v.is_none())) {
                let mut start = 0;
                if let Value::Tensor(t) = &value {
                    let base = given
                        .iter()
                        .find(|g| g.is_same(t))
                        .or_else(|| given.iter().find(|g| g.shares_storage(t)));
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

    /// The graph with these types of results, by value; any others are made up.
    fn graph(&self, types: &Types) -> Result<Graph> {
        let mut table = self.table.clone();
        let mut b = GraphBuilder::new("program");
        let mut values: FxHashMap<usize, ValueId> = FxHashMap::default();
        for input in &self.inputs {
            let mut ty = TensorType::contiguous(input.dtype, &input.sizes, &mut table)?;
            if let Some(strides) = &input.strides {
                ty.strides = strides.as_slice().into();
            }
            ty.offset = Expr::Int(self.start(input));
            let ty = b.intern_type(ty);
            values.insert(input.value, b.input(ValueType::Tensor(ty), None));
        }
        for step in &self.stmts {
            match step {
                BuilderStmt::Bind(symbol, value, source) => {
                    b.bind(*symbol, find(&values, *value)?, *source)
                }
                BuilderStmt::Call(call) => {
                    let args = call
                        .args
                        .iter()
                        .map(|a| arg(&mut b, &values, a))
                        .collect::<Result<Vec<Arg>>>()?;
                    let mut kwargs = Vec::new();
                    for (name, item) in &call.kwargs {
                        kwargs.push((b.intern(name), arg(&mut b, &values, item)?));
                    }
                    let mut result_type = |v: &usize| result_type(&mut b, &mut table, types.get(v));
                    let groups: Vec<Vec<ValueType>> = call
                        .results
                        .iter()
                        .map(|g| g.values().iter().map(&mut result_type).collect())
                        .collect::<Result<_>>()?;
                    let specs: Vec<ResultSpec<'_>> =
                        call.results.iter().zip(&groups).map(|(g, types)| spec(g, types)).collect();
                    let op = b.intern(&call.op);
                    let created = b.node(op, &args, &kwargs, &specs, None);
                    if Op::find(&call.op).is_ok_and(|op| op.effect().is_some()) {
                        b.set_effect(created.node);
                    }
                    let ids = call.results.iter().flat_map(|g| g.values());
                    values.extend(ids.copied().zip(created.values.iter()));
                }
            }
        }
        let outputs =
            self.outputs.iter().map(|a| arg(&mut b, &values, a)).collect::<Result<Vec<Arg>>>()?;
        b.finish(&table, &outputs).map_err(Error::other)
    }

    /// The graph as a trace writes it, with these symbols for sizes.
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
                "a trace wrote down other calls than were made:\n{graph}\n{traced}"
            ))),
        }
    }
}

fn group(result: Res) -> ResultGroup {
    match result {
        Res::Value(v) => ResultGroup::One(v.index()),
        Res::List(range) => ResultGroup::List(range.iter().map(ValueId::index).collect()),
        Res::Absent => ResultGroup::Absent,
    }
}

fn spec<'a>(group: &ResultGroup, types: &'a [ValueType]) -> ResultSpec<'a> {
    match (group, types) {
        (ResultGroup::One(_), [ty]) => ResultSpec::Value(*ty),
        (ResultGroup::List(_), types) => ResultSpec::List(types),
        _ => ResultSpec::Absent,
    }
}

fn find(values: &FxHashMap<usize, ValueId>, v: usize) -> Result<ValueId> {
    values
        .get(&v)
        .copied()
        .ok_or_else(|| Error::value(format!("value {v} of a builder is used before it is defined")))
}

fn arg(b: &mut GraphBuilder, values: &FxHashMap<usize, ValueId>, item: &BuilderArg) -> Result<Arg> {
    Ok(match item {
        BuilderArg::Value(v) => Arg::Value(find(values, *v)?),
        BuilderArg::Str(s) => Arg::Str(b.intern(s)),
        BuilderArg::Plain(arg) => *arg,
        BuilderArg::List(l) => {
            let elements = l.iter().map(|i| arg(b, values, i)).collect::<Result<Vec<Arg>>>()?;
            b.list(&elements)
        }
    })
}

fn result_type(
    b: &mut GraphBuilder,
    table: &mut SymTable,
    found: Option<&(Value, i64)>,
) -> Result<ValueType> {
    let meta = match found {
        Some((Value::Int(i), _)) => {
            return Ok(ValueType::Int(Expr::Int(i.as_i64().unwrap_or_default())));
        }
        Some((Value::Tensor(t), start)) => {
            t.meta().concrete().map(|c| (t.dtype(), Concrete { offset: c.offset - start, ..c }))
        }
        _ => None,
    };
    let Some((dtype, c)) = meta else {
        let ty = TensorType::contiguous(DType::F32, &[], table)?;
        return Ok(ValueType::Tensor(b.intern_type(ty)));
    };
    let exprs = |of: &[i64]| of.iter().map(|&n| Expr::Int(n)).collect::<Vec<_>>();
    let mut ty = TensorType::contiguous(dtype, &exprs(&c.sizes), table)?;
    (ty.strides, ty.offset) = (exprs(&c.strides).into(), Expr::Int(c.offset));
    Ok(ValueType::Tensor(b.intern_type(ty)))
}
