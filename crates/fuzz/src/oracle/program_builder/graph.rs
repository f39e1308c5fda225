//! The graph of a builder whose types are known.

use super::{BuilderArg, BuilderStmt, ProgramBuilder, ResultGroup, Types};
use maquette_ir::DType;
use maquette_ir::graph::{Arg, Graph, GraphBuilder, ResultSpec, TensorType, ValueId, ValueType};
use maquette_ir::sym::{Expr, SymTable};
use maquette_ops::internals::MetaInternals;
use maquette_ops::{Concrete, Error, Op, Result, Value};
use rustc_hash::FxHashMap;

impl ProgramBuilder {
    /// The graph with these types of results. Values without a type get a placeholder.
    pub(super) fn graph(&self, types: &Types) -> Result<Graph> {
        let mut table = self.table.clone();
        let mut graph_builder = GraphBuilder::new("program");
        let mut values: FxHashMap<usize, ValueId> = FxHashMap::default();
        for input in &self.inputs {
            let mut ty = TensorType::contiguous(input.dtype, &input.sizes, &mut table)?;
            if let Some(strides) = &input.strides {
                ty.strides = strides.as_slice().into();
            }
            ty.offset = Expr::Int(self.start(input));
            let ty = graph_builder.intern_type(ty);
            values.insert(input.value, graph_builder.input(ValueType::Tensor(ty), None));
        }
        for step in &self.stmts {
            match step {
                BuilderStmt::Bind(symbol, value, source) => {
                    graph_builder.bind(*symbol, find(&values, *value)?, *source)
                }
                BuilderStmt::Call(call) => {
                    let args = call
                        .args
                        .iter()
                        .map(|a| arg(&mut graph_builder, &values, a))
                        .collect::<Result<Vec<Arg>>>()?;
                    let mut kwargs = Vec::new();
                    for (name, item) in &call.kwargs {
                        kwargs.push((
                            graph_builder.intern(name),
                            arg(&mut graph_builder, &values, item)?,
                        ));
                    }
                    let mut result_type =
                        |v: &usize| result_type(&mut graph_builder, &mut table, types.get(v));
                    let groups: Vec<Vec<ValueType>> = call
                        .results
                        .iter()
                        .map(|g| g.values().iter().map(&mut result_type).collect())
                        .collect::<Result<_>>()?;
                    let specs: Vec<ResultSpec<'_>> =
                        call.results.iter().zip(&groups).map(|(g, types)| spec(g, types)).collect();
                    let op = graph_builder.intern(&call.op);
                    let created = graph_builder.node(op, &args, &kwargs, &specs, None);
                    if let Some(effect) = Op::find(&call.op).ok().and_then(|op| op.effect()) {
                        graph_builder.set_effect(created.node, effect.named());
                    }
                    let ids = call.results.iter().flat_map(|g| g.values());
                    values.extend(ids.copied().zip(created.values.iter()));
                }
            }
        }
        let outputs = self
            .outputs
            .iter()
            .map(|a| arg(&mut graph_builder, &values, a))
            .collect::<Result<Vec<Arg>>>()?;
        graph_builder.finish(&table, &outputs).map_err(Error::other)
    }
}

/// The declaration of a result with these types.
fn spec<'a>(group: &ResultGroup, types: &'a [ValueType]) -> ResultSpec<'a> {
    match (group, types) {
        (ResultGroup::One(_), [ty]) => ResultSpec::Value(*ty),
        (ResultGroup::List(_), types) => ResultSpec::List(types),
        _ => ResultSpec::Absent,
    }
}

/// The graph value of a builder's value.
fn find(values: &FxHashMap<usize, ValueId>, v: usize) -> Result<ValueId> {
    values
        .get(&v)
        .copied()
        .ok_or_else(|| Error::value(format!("value {v} of a builder is used before it is defined")))
}

/// An argument of a builder in the form of graphs.
fn arg(
    graph_builder: &mut GraphBuilder,
    values: &FxHashMap<usize, ValueId>,
    item: &BuilderArg,
) -> Result<Arg> {
    Ok(match item {
        BuilderArg::Value(v) => Arg::Value(find(values, *v)?),
        BuilderArg::Str(s) => Arg::Str(graph_builder.intern(s)),
        BuilderArg::Plain(arg) => *arg,
        BuilderArg::List(l) => {
            let elements =
                l.iter().map(|i| arg(graph_builder, values, i)).collect::<Result<Vec<Arg>>>()?;
            graph_builder.list(&elements)
        }
    })
}

/// The graph type of a value that an eager run computed, or a placeholder.
fn result_type(
    graph_builder: &mut GraphBuilder,
    table: &mut SymTable,
    found: Option<&(Value, i64)>,
) -> Result<ValueType> {
    let meta = match found {
        Some((Value::Int(i), _)) => {
            return Ok(ValueType::Int(Expr::Int(i.as_i64().unwrap_or_default())));
        }
        Some((Value::Tensor(t), start)) => t
            .meta()
            .concrete()
            .map(|layout| (t.dtype(), Concrete { offset: layout.offset - start, ..layout })),
        _ => None,
    };
    let Some((dtype, layout)) = meta else {
        let ty = TensorType::contiguous(DType::F32, &[], table)?;
        return Ok(ValueType::Tensor(graph_builder.intern_type(ty)));
    };
    let exprs = |of: &[i64]| of.iter().map(|&n| Expr::Int(n)).collect::<Vec<_>>();
    let mut ty = TensorType::contiguous(dtype, &exprs(&layout.sizes), table)?;
    (ty.strides, ty.offset) = (exprs(&layout.strides).into(), Expr::Int(layout.offset));
    Ok(ValueType::Tensor(graph_builder.intern_type(ty)))
}
