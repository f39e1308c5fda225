//! Symbols and metadata of one run: binds symbols from inputs and results, evaluates expressions,
//! and names the first mismatch between a real tensor and the graph's declaration.
//!
//! Inputs bind the symbols that stand alone as a size, a stride or a value. All other expressions
//! are only compared, once their symbols are bound.

use crate::external_tensors::{StorageId, storage_id};
use crate::metadata_check::{
    CheckResult, ExpectedMeta, LayoutPromise, MetadataMismatch, check_metadata, mismatch,
};
use maquette_ir::graph::{Def, Graph, TensorType, ValueId, ValueType};
use maquette_ir::sym::{BoolExpr, Expr, SymError, SymTable, SymbolId};
use maquette_ops::{FakeError, Result, RunError, Tensor, TraceError, Value};
use rustc_hash::{FxHashMap, FxHashSet};

/// The declared type of a value.
enum DeclaredType<'g> {
    Tensor(&'g TensorType),
    Int(Expr),
    Other(&'static str),
}

/// The symbols' values in one run.
pub(crate) struct Bindings<'g> {
    graph: &'g Graph,
    /// Names of inputs for messages; the graph's own names where there are none.
    labels: &'g [String],
    values: FxHashMap<SymbolId, i64>,
    /// Where each was bound from: `` `x` dimension 0 ``.
    origins: FxHashMap<SymbolId, String>,
    /// By storage: where inputs begin that do not begin at its start, in bytes. A graph counts
    /// offsets from the input's start, unless the input's type names an offset.
    input_offsets: FxHashMap<StorageId, FxHashSet<i64>>,
}

/// The values that inputs give to a graph's symbols, by name. Nothing else that the graph declares
/// of inputs is checked.
///
/// # Errors
/// A size is not in the range of its symbol; an input has no data.
pub fn input_symbols(graph: &Graph, inputs: &[Value]) -> Result<Vec<(String, i64)>> {
    let mut bindings = Bindings::new(graph, &[]);
    graph
        .inputs()
        .iter()
        .zip(inputs)
        .try_for_each(|(&input, value)| bindings.bind_input(input, value))?;
    let mut values: Vec<(SymbolId, i64)> = bindings.values.into_iter().collect();
    values.sort_unstable();
    Ok(values.into_iter().map(|(s, value)| (graph.symbols().name(s).to_owned(), value)).collect())
}

impl<'g> Bindings<'g> {
    pub(crate) fn new(graph: &'g Graph, labels: &'g [String]) -> Bindings<'g> {
        Bindings {
            graph,
            labels,
            values: FxHashMap::default(),
            origins: FxHashMap::default(),
            input_offsets: FxHashMap::default(),
        }
    }

    fn label(&self, input: ValueId) -> String {
        let label = if let Def::Input(i) = self.graph.def(input) {
            self.labels.get(i as usize)
        } else {
            None
        };
        label
            .filter(|l| !l.is_empty())
            .cloned()
            .unwrap_or_else(|| self.graph.value_name(input).to_string())
    }

    fn eval_sym(&self, e: Expr) -> Result<i64, SymError> {
        match e {
            Expr::Int(i) => Ok(i),
            e => self.graph.symbols().eval(e, &|s| self.values.get(&s).copied()),
        }
    }

    /// The value of an expression.
    pub(crate) fn eval(&self, e: Expr) -> Result<i64> {
        Ok(self.eval_sym(e)?)
    }

    /// The value of an expression of another table, which has the graph's symbols.
    pub(crate) fn eval_in(&self, table: &SymTable, e: Expr) -> Result<i64> {
        match e {
            Expr::Int(i) => Ok(i),
            e => Ok(table.eval(e, &|s| self.values.get(&s).copied())?),
        }
    }

    /// The value, or nothing where a symbol is not bound yet.
    fn known(&self, e: Expr) -> Result<Option<i64>> {
        match self.eval_sym(e) {
            Ok(i) => Ok(Some(i)),
            Err(SymError::Unbound(_)) => Ok(None),
            Err(e) => Err(e.into()),
        }
    }

    /// Whether a tensor sees the storage of an input that does not begin at the storage's start.
    pub(crate) fn has_input_offset(&self, t: &Tensor) -> bool {
        storage_id(t).is_some_and(|id| self.input_offsets.contains_key(&id))
    }

    /// Whether a condition holds.
    pub(crate) fn holds(&self, cond: BoolExpr) -> Result<bool> {
        Ok(self.graph.symbols().eval_bool(cond, &|s| self.values.get(&s).copied())?)
    }

    /// A condition, and the values of its symbols.
    pub(crate) fn explain(&self, cond: BoolExpr) -> (String, String) {
        let table = self.graph.symbols();
        let value = |s: &SymbolId| {
            let value =
                self.values.get(s).map_or_else(|| "unknown".to_owned(), ToString::to_string);
            format!("{} = {value}", table.name(*s))
        };
        let values: Vec<String> = table.free_symbols_bool(cond).iter().map(value).collect();
        (table.display_bool(cond).to_string(), values.join(", "))
    }

    /// Binds a data-dependent symbol, if it is in its declared range.
    pub(crate) fn bind(&mut self, symbol: SymbolId, value: i64) -> Result<()> {
        let table = self.graph.symbols();
        let range = table.range(symbol);
        if value < range.lo || value > range.hi {
            return Err(RunError::Range {
                symbol: table.name(symbol).to_owned(),
                value,
                range: range.to_string(),
            }
            .into());
        }
        self.values.insert(symbol, value);
        Ok(())
    }

    fn input_error(&self, input: ValueId, d: MetadataMismatch<Expr>) -> maquette_ops::Error {
        let layout = d.what.starts_with("stride");
        let why = d.expr.map(|e| {
            let table = self.graph.symbols();
            let origins: Vec<String> = table
                .free_symbols(e)
                .iter()
                .filter_map(|s| {
                    Some(format!(
                        "{} = {} from {}",
                        table.name(*s),
                        self.values.get(s)?,
                        self.origins.get(s)?
                    ))
                })
                .collect();
            let expr = table.display(e).to_string();
            match origins.is_empty() {
                true if layout => {
                    "as the sample lies in memory; `contiguous()` lays a tensor out in rows"
                        .to_owned()
                }
                true => {
                    "the trace took it for a fixed number; make the dimension dynamic to vary it"
                        .to_owned()
                }
                false => format!("`{expr}`, where {}", origins.join(", ")),
            }
        });
        RunError::Input {
            input: self.label(input),
            what: d.what,
            expected: d.expected,
            found: d.found,
            why,
        }
        .into()
    }

    /// Binds the symbols that are sizes, strides or the value of an input.
    pub(crate) fn bind_input(&mut self, input: ValueId, value: &Value) -> Result<()> {
        let mut candidates: Vec<(Expr, Option<i64>, String)> = Vec::new();
        match (declared_type(self.graph, input), value) {
            (DeclaredType::Tensor(ty), Value::Tensor(t)) => {
                self.check_real(input, t)?;
                let all = [("size", &ty.sizes, t.sizes()), ("stride", &ty.strides, t.strides())];
                for (what, exprs, found) in all {
                    if exprs.len() != found.len() {
                        break;
                    }
                    candidates.extend(
                        exprs
                            .iter()
                            .zip(found)
                            .enumerate()
                            .map(|(d, (&e, s))| (e, s.as_i64(), format!("{what} {d}"))),
                    );
                }
                if let Some(start) =
                    t.storage_offset().as_i64().filter(|o| *o != 0 && ty.offset == Expr::Int(0))
                    && let Some(id) = storage_id(t)
                {
                    let start = start * t.dtype().size() as i64;
                    self.input_offsets.entry(id).or_default().insert(start);
                }
            }
            (DeclaredType::Int(e), Value::Int(i)) => {
                candidates.push((e, i.as_i64(), "the value".to_owned()))
            }
            _ => {}
        }
        let table = self.graph.symbols();
        for (e, found, what) in candidates {
            let (Expr::Id(_), Some(found)) = (e, found) else { continue };
            let free = table.free_symbols(e);
            // a symbol alone prints as its name
            let &[symbol] = free.as_slice() else { continue };
            if self.values.contains_key(&symbol)
                || table.display(e).to_string() != table.name(symbol)
            {
                continue;
            }
            let range = table.range(symbol);
            if found < range.lo || found > range.hi {
                let why = Some(format!("the declared range of `{}`", table.name(symbol)));
                let input = self.label(input);
                return Err(RunError::Input {
                    input,
                    what,
                    expected: format!("in {range}"),
                    found: found.to_string(),
                    why,
                }
                .into());
            }
            self.values.insert(symbol, found);
            self.origins.insert(symbol, format!("{what} of `{}`", self.label(input)));
        }
        Ok(())
    }

    /// Inputs have data, and are of no trace.
    fn check_real(&self, input: ValueId, t: &Tensor) -> Result<()> {
        if let Some(slot) = t.slot() {
            let input = self.graph.inputs().iter().position(|&v| v == input).unwrap_or_default();
            return Err(TraceError::Nested { input, trace: slot.trace.name.clone() }.into());
        }
        if t.ok()?.is_fake() {
            return Err(self.input_error(
                input,
                MetadataMismatch {
                    what: "it".into(),
                    expected: "a real tensor".into(),
                    found: format!("a fake tensor {}", t.meta()),
                    expr: None,
                },
            ));
        }
        Ok(())
    }

    /// Checks an input once all symbols of inputs are bound.
    pub(crate) fn check_input(&self, input: ValueId, value: &Value) -> Result<()> {
        match self.check_value(input, value, LayoutPromise::StridesAndOffset)? {
            (Some(d), _) => Err(self.input_error(input, d)),
            (None, _) => Ok(()),
        }
    }

    /// Checks a result. False if some of it is known only once more symbols are bound.
    pub(crate) fn check_result(
        &self,
        v: ValueId,
        output: usize,
        value: &Value,
        promise: LayoutPromise,
    ) -> Result<bool> {
        match self.check_value(v, value, promise)? {
            (Some(MetadataMismatch { what, expected, found, .. }), _) => {
                Err(FakeError::Mismatch { output, what, expected, found }.into())
            }
            (None, complete) => Ok(complete),
        }
    }

    /// The first mismatch, and whether everything could be compared.
    fn check_value(
        &self,
        v: ValueId,
        value: &Value,
        promise: LayoutPromise,
    ) -> Result<CheckResult<Expr>> {
        match (declared_type(self.graph, v), value) {
            (DeclaredType::Tensor(ty), Value::Tensor(t)) => self.check_tensor(ty, t, promise),
            (DeclaredType::Int(e), Value::Int(i)) => {
                let known = self.known(e)?;
                let differs = known
                    .filter(|k| i.as_i64() != Some(*k))
                    .and_then(|k| mismatch("the value", k, i));
                Ok((differs.map(|d| MetadataMismatch { expr: Some(e), ..d }), known.is_some()))
            }
            (DeclaredType::Other("a float"), Value::Float(_))
            | (DeclaredType::Other("a bool"), Value::Bool(_)) => Ok((None, true)),
            (DeclaredType::Other("a string"), Value::Str(_)) => Ok((None, true)),
            (DeclaredType::Tensor(_), other) => {
                Ok((mismatch("the kind", "a tensor", other.kind()), true))
            }
            (DeclaredType::Int(_), other) => {
                Ok((mismatch("the kind", "an integer", other.kind()), true))
            }
            (DeclaredType::Other(kind), other) => {
                Ok((mismatch("the kind", kind, other.kind()), true))
            }
        }
    }

    fn check_tensor(
        &self,
        ty: &TensorType,
        t: &Tensor,
        promise: LayoutPromise,
    ) -> Result<CheckResult<Expr>> {
        let expected = ExpectedMeta {
            dtype: ty.dtype,
            device: ty.device,
            layout: ty.layout,
            sizes: &ty.sizes,
            strides: &ty.strides,
            offset: ty.offset,
            promise,
        };
        let width = t.dtype().size() as i64;
        // a view of an input begins as far from the input's start as in the trace
        let begins = storage_id(t).and_then(|id| self.input_offsets.get(&id));
        let begins_at = |at: i64| begins.is_some_and(|begins| begins.contains(&(at * width)));
        check_metadata(&expected, t, begins_at, |e| self.known(e))
    }
}

/// The metadata that a value of this type must have, as far as a graph says.
fn declared_type(graph: &Graph, v: ValueId) -> DeclaredType<'_> {
    match graph.value_type(v) {
        ValueType::Tensor(ty) => DeclaredType::Tensor(graph.type_of(ty)),
        ValueType::Int(e) => DeclaredType::Int(e),
        ValueType::Float => DeclaredType::Other("a float"),
        ValueType::Bool => DeclaredType::Other("a bool"),
        ValueType::Str => DeclaredType::Other("a string"),
    }
}
