//! The values of symbols in one run, and the checks that depend on them.
//!
//! An input binds a symbol if the symbol alone is one of the input's sizes, strides or its value. A
//! `bind` statement binds a symbol from data. Every other expression in a type is checked, not
//! solved: it is evaluated once its symbols are bound, and compared with the real tensor. The first
//! mismatch becomes an error that names the input from which each symbol was bound.

use crate::external_tensors::{StorageId, storage_id};
use crate::metadata_check::{
    CheckResult, ExpectedMeta, LayoutPromise, MetadataMismatch, NumberCheck, check_metadata,
    mismatch,
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

/// The values of the symbols in one run.
pub(crate) struct Bindings<'g> {
    graph: &'g Graph,
    /// Names of the inputs, for messages. An input without a name here is called by its name in the
    /// graph.
    labels: &'g [String],
    values: FxHashMap<SymbolId, i64>,
    /// The input from which each symbol was bound: ``size 0 of `x` ``.
    origins: FxHashMap<SymbolId, String>,
    /// By storage: the nonzero storage offsets, in bytes, of inputs whose types do not declare an
    /// offset. Offsets of views of such an input are relative to the input in the graph, and to the
    /// storage in the run.
    input_offsets: FxHashMap<StorageId, FxHashSet<i64>>,
}

/// The values of the symbols that inputs bind, by name. Only the ranges of the symbols are checked,
/// no other property of the inputs.
///
/// # Errors
/// A size is outside the range of its symbol, or an input has no data.
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

    /// The value of an expression of another table. Symbols have the same ids in both tables.
    pub(crate) fn eval_in(&self, table: &SymTable, e: Expr) -> Result<i64> {
        match e {
            Expr::Int(i) => Ok(i),
            e => Ok(table.eval(e, &|s| self.values.get(&s).copied())?),
        }
    }

    /// The value of an expression; `None` if a symbol of it is not bound yet.
    fn known(&self, e: Expr) -> Result<Option<i64>> {
        match self.eval_sym(e) {
            Ok(i) => Ok(Some(i)),
            Err(SymError::Unbound(_)) => Ok(None),
            Err(e) => Err(e.into()),
        }
    }

    /// Whether a tensor shares the storage of an input with an undeclared offset.
    pub(crate) fn has_input_offset(&self, t: &Tensor) -> bool {
        storage_id(t).is_some_and(|id| self.input_offsets.contains_key(&id))
    }

    /// Whether a condition holds.
    pub(crate) fn holds(&self, cond: BoolExpr) -> Result<bool> {
        Ok(self.graph.symbols().eval_bool(cond, &|s| self.values.get(&s).copied())?)
    }

    /// A condition as text, and the values of its symbols as text.
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

    /// Binds a data-dependent symbol to a value.
    ///
    /// # Errors
    /// The value is outside the declared range.
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

    fn input_error(&self, input: ValueId, mismatch: MetadataMismatch<Expr>) -> maquette_ops::Error {
        let is_stride = mismatch.what.starts_with("stride");
        let why = mismatch.expr.map(|e| {
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
                true if is_stride => {
                    "the layout of the sample; `contiguous()` returns a row-major tensor".to_owned()
                }
                true => "the trace is specialized to this value; make the dimension dynamic to \
                    vary it"
                    .to_owned(),
                false => format!("`{expr}`, where {}", origins.join(", ")),
            }
        });
        RunError::Input {
            input: self.label(input),
            what: mismatch.what,
            expected: mismatch.expected,
            found: mismatch.found,
            why,
        }
        .into()
    }

    /// Binds each symbol that alone is a size, a stride or the value of an input.
    pub(crate) fn bind_input(&mut self, input: ValueId, value: &Value) -> Result<()> {
        let mut candidates: Vec<(Expr, Option<i64>, String)> = Vec::new();
        match (declared_type(self.graph, input), value) {
            (DeclaredType::Tensor(ty), Value::Tensor(t)) => {
                self.check_real(input, t)?;
                let properties =
                    [("size", &ty.sizes, t.sizes()), ("stride", &ty.strides, t.strides())];
                for (what, exprs, found) in properties {
                    // `check_input` reports a wrong rank.
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
            // An expression is a symbol alone if and only if it prints as the symbol's name.
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

    /// Checks that an input has data and is not a tensor of a running trace.
    fn check_real(&self, input: ValueId, t: &Tensor) -> Result<()> {
        if let Some(slot) = t.slot() {
            let input = self.graph.inputs().iter().position(|&v| v == input).unwrap_or_default();
            return Err(TraceError::Nested { input, trace: slot.trace.name.clone() }.into());
        }
        if t.ok()?.is_fake() {
            return Err(self.input_error(
                input,
                MetadataMismatch {
                    what: "the value".into(),
                    expected: "a tensor with data".into(),
                    found: format!("a fake tensor {}", t.meta()),
                    expr: None,
                },
            ));
        }
        Ok(())
    }

    /// Checks the type of an input, after all inputs have bound their symbols.
    pub(crate) fn check_input(&self, input: ValueId, value: &Value) -> Result<()> {
        match self.check_value(input, value, LayoutPromise::StridesAndOffset)? {
            (Some(mismatch), _) => {
                Err(self.input_error(input, self.whole_type(input, value, mismatch)))
            }
            (None, _) => Ok(()),
        }
    }

    /// Of a wrong rank, the whole types: a rank alone says little.
    fn whole_type(
        &self,
        input: ValueId,
        value: &Value,
        mismatch: MetadataMismatch<Expr>,
    ) -> MetadataMismatch<Expr> {
        match value {
            Value::Tensor(t) if mismatch.what == "rank" => MetadataMismatch {
                what: "the type".into(),
                expected: self.graph.display_type(self.graph.value_type(input)).to_string(),
                found: t.meta().to_string(),
                expr: None,
            },
            _ => mismatch,
        }
    }

    /// Checks the type of a result. False if a later statement binds a symbol of the type, so that
    /// the check must be repeated.
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

    /// The first mismatch, and whether all symbols of the type were bound.
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
        let expected = ExpectedMeta::declared(ty, promise);
        let width = t.dtype().size() as i64;
        // The declared offset of a view of an input counts from the input's first element. If
        // several inputs share this storage, it may count from any of them.
        let input_offsets = storage_id(t).and_then(|id| self.input_offsets.get(&id));
        let counts_from_input = |e, found: i64| {
            let (Some(starts), Some(promised)) = (input_offsets, self.known(e)?) else {
                return Ok(false);
            };
            Ok(starts.contains(&(found.saturating_sub(promised).saturating_mul(width))))
        };
        let check = |e, found| Ok(NumberCheck::of(self.known(e)?, found));
        check_metadata(&expected, t, counts_from_input, check)
    }
}

/// The declared type of a value.
fn declared_type(graph: &Graph, v: ValueId) -> DeclaredType<'_> {
    match graph.value_type(v) {
        ValueType::Tensor(ty) => DeclaredType::Tensor(graph.type_of(ty)),
        ValueType::Int(e) => DeclaredType::Int(e),
        ValueType::Float => DeclaredType::Other("a float"),
        ValueType::Bool => DeclaredType::Other("a bool"),
        ValueType::Str => DeclaredType::Other("a string"),
    }
}
