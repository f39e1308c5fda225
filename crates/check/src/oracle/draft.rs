//! A program taken apart, to be added to by the generator and cut by the shrinker, and how it becomes a graph again.
//!
//! A draft has no types. With plain sizes they are those that an eager run finds; with symbols, for sizes or for data, a trace writes the graph.

use super::program::{AS_STRIDED, Given, Memory, Place, Program, Sizes, tensor_input};
use super::{model, outcome};
use crate::values::{Flat, flatten};
use maquette_ir::DType;
use maquette_ir::graph::{Arg, BindSource, Graph, GraphBuilder, NodeId, Res, ResultSpec, Stmt, TensorType, ValueId, ValueType};
use maquette_ir::sym::{Expr, SymTable, SymbolId};
use maquette_ops::{Args, Concrete, Error, Op, Result, Tensor, Value};
use maquette_trace::{Dim, TraceOptions};
use rustc_hash::FxHashMap;

/// An argument, or an output of the program.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Item {
    /// A value of the draft, by its number.
    Value(usize),
    Str(String),
    List(Vec<Item>),
    /// Anything that mentions neither values nor strings of a graph; expressions are of the draft's table.
    Plain(Arg),
}

impl<T> From<T> for Item
where
    Arg: From<T>,
{
    fn from(x: T) -> Item {
        Item::Plain(Arg::from(x))
    }
}

impl Item {
    /// Calls `f` with every expression in it, as long as it gives something.
    fn for_each_expr(&mut self, f: &impl Fn(&mut Expr) -> Option<()>) -> Option<()> {
        match self {
            Item::Plain(Arg::Int(e)) => f(e),
            Item::List(l) => l.iter_mut().try_for_each(|i| i.for_each_expr(f)),
            Item::Value(_) | Item::Str(_) | Item::Plain(_) => Some(()),
        }
    }

    /// Calls `f` with every value in it.
    pub(super) fn for_each_value(&mut self, f: &mut impl FnMut(&mut usize)) {
        match self {
            Item::Value(v) => f(v),
            Item::List(l) => l.iter_mut().for_each(|i| i.for_each_value(f)),
            Item::Str(_) | Item::Plain(_) => {}
        }
    }
}

/// The values that one result of an operator is.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Group {
    One(usize),
    List(Vec<usize>),
    Absent,
}

impl Group {
    pub(super) fn values(&self) -> &[usize] {
        match self {
            Group::One(v) => std::slice::from_ref(v),
            Group::List(l) => l,
            Group::Absent => &[],
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Call {
    pub(super) op: String,
    pub(super) args: Vec<Item>,
    pub(super) kwargs: Vec<(String, Item)>,
    pub(super) results: Vec<Group>,
}

impl Call {
    /// The arguments, by position and by keyword.
    pub(super) fn items(&mut self) -> impl Iterator<Item = &mut Item> {
        self.args.iter_mut().chain(self.kwargs.iter_mut().map(|(_, item)| item))
    }
}

#[derive(Clone, Debug)]
pub(super) enum Step {
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
    pub(super) place: Place,
}

/// A program without types. See the [module's page](self).
#[derive(Clone, Debug, Default)]
pub(super) struct Draft {
    pub(super) table: SymTable,
    pub(super) memories: Vec<Memory>,
    pub(super) inputs: Vec<Input>,
    pub(super) steps: Vec<Step>,
    pub(super) outputs: Vec<Item>,
    pub(super) sizes: Vec<Sizes>,
}

fn names(graph: &Graph, arg: Arg) -> Item {
    match arg {
        Arg::Value(v) => Item::Value(v.index()),
        Arg::Str(s) => Item::Str(graph.str(s).to_owned()),
        Arg::List(l) => Item::List(graph.list(l).iter().map(|&a| names(graph, a)).collect()),
        plain => Item::Plain(plain),
    }
}

/// What values are in an eager run, and where the input begins that they see.
type Types = FxHashMap<usize, (Value, i64)>;

impl Draft {
    /// A program taken apart. Guards and assertions are left out: whatever raised them raises them again.
    pub(super) fn of(program: &Program) -> Result<Draft> {
        let graph = &program.graph;
        let mut draft = Draft {
            table: graph.symbols().clone(),
            memories: program.memories.clone(),
            sizes: program.sizes.clone(),
            outputs: graph.outputs().iter().map(|&a| names(graph, a)).collect(),
            ..Draft::default()
        };
        for (&v, &place) in graph.inputs().iter().zip(&program.places) {
            let ty = tensor_input(graph, v)?;
            let contiguous = TensorType::contiguous(ty.dtype, &ty.sizes, &mut draft.table)?.strides == ty.strides;
            let strides = (!contiguous).then(|| ty.strides.to_vec());
            draft.inputs.push(Input { value: v.index(), dtype: ty.dtype, sizes: ty.sizes.to_vec(), strides, place });
        }
        for stmt in graph.body() {
            match *stmt {
                Stmt::Node(node) => draft.steps.push(Step::Call(Call {
                    op: graph.op_name(node).to_owned(),
                    args: graph.args(node).iter().map(|&a| names(graph, a)).collect(),
                    kwargs: graph.kwargs(node).iter().map(|&(k, a)| (graph.str(k).to_owned(), names(graph, a))).collect(),
                    results: graph.results(node).iter().map(|r| group(*r)).collect(),
                })),
                Stmt::Bind { symbol, value, source } => draft.steps.push(Step::Bind(symbol, value.index(), source)),
                Stmt::Assert { .. } => {}
            }
        }
        Ok(draft)
    }

    /// The program.
    ///
    /// # Errors
    /// The draft takes what it does not define; or it has symbols and a trace refuses it.
    pub(super) fn program(&self) -> Result<Program> {
        let untyped = self.untyped()?;
        let given = self.given()?;
        // sizes that depend on data have symbols as well
        let graph = if untyped.is_symbolic() || self.steps.iter().any(|s| matches!(s, Step::Bind(..))) {
            self.traced(&untyped.graph, given.inputs)?
        } else {
            self.graph(&self.observed(&untyped.graph, &given.inputs))?
        };
        Ok(Program { graph, ..untyped })
    }

    /// As [`Program::names_places`].
    fn names_places(&self) -> bool {
        let named = |c: &Call| c.op == AS_STRIDED && matches!(c.args.get(3), Some(Item::Plain(Arg::Int(_))));
        self.steps.iter().any(|s| matches!(s, Step::Call(c) if named(c)))
    }

    /// Where the type of an input says that it begins.
    fn start(&self, input: &Input) -> i64 {
        if self.names_places() { input.place.offset } else { 0 }
    }

    /// The program with types that are made up.
    fn untyped(&self) -> Result<Program> {
        Ok(Program {
            graph: self.graph(&FxHashMap::default())?,
            memories: self.memories.clone(),
            places: self.inputs.iter().map(|i| i.place).collect(),
            sizes: if self.sizes.is_empty() { vec![Sizes::new()] } else { self.sizes.clone() },
        })
    }

    /// The draft with numbers in the place of symbols, for one run; nothing where an expression has none.
    pub(super) fn fixed(&self, number: &dyn Fn(Expr) -> Option<i64>) -> Option<Draft> {
        let fix = |e: &mut Expr| number(*e).map(|n| *e = Expr::Int(n));
        let mut draft = Draft { table: SymTable::new(), sizes: vec![Sizes::new()], ..self.clone() };
        draft.steps.retain(|s| matches!(s, Step::Call(_)));
        for input in &mut draft.inputs {
            input.sizes.iter_mut().chain(input.strides.iter_mut().flatten()).try_for_each(fix)?;
        }
        let calls = draft.steps.iter_mut().flat_map(|s| if let Step::Call(c) = s { Some(c.items()) } else { None }).flatten();
        calls.chain(&mut draft.outputs).try_for_each(|item| item.for_each_expr(&fix))?;
        Some(draft)
    }

    /// What the first run is given.
    ///
    /// # Errors
    /// As [`Program::given`].
    pub(super) fn given(&self) -> Result<Given> {
        self.untyped()?.given(self.sizes.first().unwrap_or(&Sizes::new()))
    }

    /// What the values are in an eager run, up to where it fails: nothing needs a type from there on.
    fn observed(&self, untyped: &Graph, inputs: &[Tensor]) -> Types {
        // a finished graph numbers its values in the order of their definitions
        let results = self.steps.iter().flat_map(|s| if let Step::Call(c) = s { c.results.as_slice() } else { &[] });
        let order: Vec<usize> = self.inputs.iter().map(|i| i.value).chain(results.flat_map(|g| g.values().iter().copied())).collect();
        let mut types = FxHashMap::default();
        // a graph counts offsets from where the input begins that a view goes back to, unless its type says where that is
        let begins = self.inputs.iter().map(|i| i.place.offset - self.start(i));
        let mut starts: Vec<(Tensor, i64)> = inputs.iter().cloned().zip(begins).collect();
        let mut observe = |node: NodeId, op: Op, args: Args| {
            let given: Vec<Tensor> = args.iter().flat_map(Value::tensors).cloned().collect();
            let outputs = op.call(args)?;
            let ids = untyped.result_values(node).filter_map(|v| order.get(v.index()).copied());
            for (id, value) in ids.zip(flatten(&outputs).into_iter().filter(|v| !v.is_none())) {
                let mut start = 0;
                if let Value::Tensor(t) = &value {
                    let base = given.iter().find(|g| g.is_same(t)).or_else(|| given.iter().find(|g| g.shares_storage(t)));
                    start = starts.iter().find(|(known, _)| base.is_some_and(|g| g.is_same(known))).map_or(0, |(_, start)| *start);
                    starts.push((t.clone(), start));
                }
                types.insert(id, (value, start));
            }
            Ok(outputs)
        };
        let _ = outcome::repeatable(|| model::run(untyped, inputs, &mut observe));
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
        for step in &self.steps {
            match step {
                Step::Bind(symbol, value, source) => b.bind(*symbol, find(&values, *value)?, *source),
                Step::Call(call) => {
                    let args = call.args.iter().map(|a| arg(&mut b, &values, a)).collect::<Result<Vec<Arg>>>()?;
                    let mut kwargs = Vec::new();
                    for (name, item) in &call.kwargs {
                        kwargs.push((b.intern(name), arg(&mut b, &values, item)?));
                    }
                    let mut result_type = |v: &usize| result_type(&mut b, &mut table, types.get(v));
                    let groups: Vec<Vec<ValueType>> =
                        call.results.iter().map(|g| g.values().iter().map(&mut result_type).collect()).collect::<Result<_>>()?;
                    let specs: Vec<ResultSpec<'_>> = call.results.iter().zip(&groups).map(|(g, types)| spec(g, types)).collect();
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
        let outputs = self.outputs.iter().map(|a| arg(&mut b, &values, a)).collect::<Result<Vec<Arg>>>()?;
        b.finish(&table, &outputs).map_err(Error::other)
    }

    /// The graph as a trace writes it, with these symbols for sizes.
    fn traced(&self, graph: &Graph, sample: Vec<Tensor>) -> Result<Graph> {
        let mut options = TraceOptions::new().name("program").keep_offsets(self.names_places());
        for (i, input) in self.inputs.iter().enumerate() {
            for (d, &e) in input.sizes.iter().enumerate().filter(|(_, e)| matches!(e, Expr::Id(_))) {
                options = options.dynamic(i, d, Dim::new(self.table.display(e).to_string()));
            }
        }
        let program = |inputs: Vec<Tensor>| model::call_all(graph, &inputs).map(Flat);
        let traced = options.trace(program, sample)?.into_program().graph;
        let calls = |g: &Graph| g.nodes().map(|n| g.op_name(n).to_owned()).collect::<Vec<_>>();
        match calls(graph) == calls(&traced) {
            true => Ok(traced),
            false => Err(Error::msg(format!("a trace wrote down other calls than were made:\n{graph}\n{traced}"))),
        }
    }
}

fn group(result: Res) -> Group {
    match result {
        Res::Value(v) => Group::One(v.index()),
        Res::List(range) => Group::List(range.iter().map(ValueId::index).collect()),
        Res::Absent => Group::Absent,
    }
}

fn spec<'a>(group: &Group, types: &'a [ValueType]) -> ResultSpec<'a> {
    match (group, types) {
        (Group::One(_), [ty]) => ResultSpec::Value(*ty),
        (Group::List(_), types) => ResultSpec::List(types),
        _ => ResultSpec::Absent,
    }
}

fn find(values: &FxHashMap<usize, ValueId>, v: usize) -> Result<ValueId> {
    values.get(&v).copied().ok_or_else(|| Error::value(format!("value {v} of a draft is used before it is defined")))
}

fn arg(b: &mut GraphBuilder, values: &FxHashMap<usize, ValueId>, item: &Item) -> Result<Arg> {
    Ok(match item {
        Item::Value(v) => Arg::Value(find(values, *v)?),
        Item::Str(s) => Arg::Str(b.intern(s)),
        Item::Plain(arg) => *arg,
        Item::List(l) => {
            let elements = l.iter().map(|i| arg(b, values, i)).collect::<Result<Vec<Arg>>>()?;
            b.list(&elements)
        }
    })
}

fn result_type(b: &mut GraphBuilder, table: &mut SymTable, found: Option<&(Value, i64)>) -> Result<ValueType> {
    let meta = match found {
        Some((Value::Int(i), _)) => return Ok(ValueType::Int(Expr::Int(i.as_i64().unwrap_or_default()))),
        Some((Value::Tensor(t), start)) => t.meta().concrete().map(|c| (t.dtype(), Concrete { offset: c.offset - start, ..c })),
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
