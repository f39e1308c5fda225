//! The values of symbols in one run, and the checks that depend on them.
//!
//! An input binds a symbol if the symbol alone is one of the input's sizes, strides or its value. A
//! `bind` statement binds a symbol from data. Every other expression in a type is checked, not
//! solved: it is evaluated once its symbols are bound, and compared with the real tensor. The first
//! mismatch becomes an error that names the input from which each symbol was bound.

mod inputs;

pub use inputs::input_symbols;

use crate::copies::with_strides;
use crate::external_tensors::{StorageId, storage_id};
use crate::metadata_check::{
    CheckResult, ExpectedMeta, LayoutPromise, MetadataMismatch, NumberCheck, check_metadata,
    mismatch,
};
use maquette_ir::graph::{BindSource, Graph, NodeId, Stmt, TensorType, ValueId, ValueType};
use maquette_ir::sym::{BoolExpr, Expr, SymError, SymTable, SymbolId};
use maquette_ops::{Error, FakeError, Result, RunError, Tensor, Value};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;
use std::borrow::Cow;

/// The declared type of a value.
enum DeclaredType<'g> {
    Tensor(&'g TensorType),
    Int(Expr),
    Other(&'static str),
}

/// The values of symbols.
#[derive(Clone, Debug, Default)]
pub struct SymbolValues {
    values: FxHashMap<SymbolId, i64>,
    /// The input from which each symbol was bound: ``size 0 of `x` ``.
    origins: FxHashMap<SymbolId, String>,
}

/// The values of the symbols in one run of a graph.
pub struct Bindings<'g> {
    graph: &'g Graph,
    /// Names of the inputs, for messages. An input without a name here is called by its name in the
    /// graph.
    labels: &'g [String],
    known: Cow<'g, SymbolValues>,
    /// By storage: the nonzero storage offsets, in bytes, of inputs whose types do not declare an
    /// offset. Offsets of views of such an input are relative to the input in the graph, and to the
    /// storage in the run.
    input_offsets: FxHashMap<StorageId, FxHashSet<i64>>,
    /// By storage: how far, in bytes, views begin after the places that their types declare. Only
    /// their kernels know the places; see [`Op::chooses_views`](maquette_ops::Op::chooses_views).
    chosen_views: FxHashMap<StorageId, FxHashSet<i64>>,
}

impl<'g> Bindings<'g> {
    /// No symbol is bound yet. `labels` are the names of the inputs; an input without a name there
    /// is called by its name in the graph.
    pub fn new(graph: &'g Graph, labels: &'g [String]) -> Bindings<'g> {
        let known = Cow::Owned(SymbolValues::default());
        Bindings {
            graph,
            labels,
            known,
            input_offsets: FxHashMap::default(),
            chosen_views: FxHashMap::default(),
        }
    }

    /// The symbols that an earlier run of the graph bound. Runs in which an operator takes absolute
    /// storage offsets cannot resume.
    pub fn resume(graph: &'g Graph, labels: &'g [String], known: &'g SymbolValues) -> Bindings<'g> {
        Bindings { known: Cow::Borrowed(known), ..Bindings::new(graph, labels) }
    }

    /// The values of the symbols that are bound.
    pub fn into_values(self) -> SymbolValues {
        self.known.into_owned()
    }

    /// Checks an `assert` statement at position `at` of the body. Other statements hold.
    ///
    /// # Errors
    /// The condition does not hold: the error has its message and its line.
    pub fn check_assertion(&self, at: usize) -> Result<()> {
        let Some(&Stmt::Assert { cond, message }) = self.graph.body().get(at) else {
            return Ok(());
        };
        if self.holds(cond)? {
            return Ok(());
        }
        let (cond, values) = self.explain(cond);
        let message = message.map(|m| self.graph.str(m).to_owned());
        let e = Error::from(RunError::Assertion { cond, message, values });
        Err(match self.graph.stmt_loc(at) {
            Some(loc) => e.at(loc),
            None => e,
        })
    }

    fn eval_sym(&self, e: Expr) -> Result<i64, SymError> {
        match e {
            Expr::Int(i) => Ok(i),
            e => self.graph.symbols().eval(e, &|s| self.known.values.get(&s).copied()),
        }
    }

    /// The value of an expression.
    ///
    /// # Errors
    /// A symbol of it is not bound, or the value overflows.
    pub fn eval(&self, e: Expr) -> Result<i64> {
        Ok(self.eval_sym(e)?)
    }

    /// The value of an expression of another table. Symbols have the same ids in both tables.
    ///
    /// # Errors
    /// As [`Bindings::eval`].
    pub fn eval_in(&self, table: &SymTable, e: Expr) -> Result<i64> {
        match e {
            Expr::Int(i) => Ok(i),
            e => Ok(table.eval(e, &|s| self.known.values.get(&s).copied())?),
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
    pub fn has_input_offset(&self, t: &Tensor) -> bool {
        storage_id(t).is_some_and(|id| self.input_offsets.contains_key(&id))
    }

    /// Notes where views begin that only the kernel of a node knows. Views of them begin as far
    /// after the places that their types declare.
    ///
    /// # Errors
    /// An offset overflows.
    pub fn note_chosen_views(
        &mut self,
        graph: &Graph,
        node: NodeId,
        outputs: &[Value],
    ) -> Result<()> {
        let views = graph.result_values(node).zip(outputs.iter().flat_map(Value::tensors));
        for (v, t) in views {
            let (Some(ty), Some(found)) = (graph.tensor_type(v), t.storage_offset().as_i64())
            else {
                continue;
            };
            if let (Some(id), Some(declared)) = (storage_id(t), self.known(ty.offset)?) {
                let distance =
                    found.saturating_sub(declared).saturating_mul(t.dtype().size() as i64);
                self.chosen_views.entry(id).or_default().insert(distance);
            }
        }
        Ok(())
    }

    /// Whether a condition holds.
    fn holds(&self, cond: BoolExpr) -> Result<bool> {
        Ok(self.graph.symbols().eval_bool(cond, &|s| self.known.values.get(&s).copied())?)
    }

    /// The tensor with the strides of a value's type: itself, or a copy.
    ///
    /// # Errors
    /// A symbol of the strides is not bound, or memory runs out.
    pub fn with_declared_strides(&self, v: ValueId, t: Tensor) -> Result<Tensor> {
        match self.graph.tensor_type(v) {
            Some(ty) => {
                let strides = ty.strides.iter().map(|&e| self.eval(e));
                with_strides(t, &strides.collect::<Result<SmallVec<[i64; 6]>>>()?)
            }
            None => Ok(t),
        }
    }

    /// A condition as text, and the values of its symbols as text.
    fn explain(&self, cond: BoolExpr) -> (String, String) {
        let table = self.graph.symbols();
        let value = |s: &SymbolId| {
            let value =
                self.known.values.get(s).map_or_else(|| "unknown".to_owned(), ToString::to_string);
            format!("{} = {value}", table.name(*s))
        };
        let values: Vec<String> = table.free_symbols_bool(cond).iter().map(value).collect();
        (table.display_bool(cond).to_string(), values.join(", "))
    }

    /// Binds a data-dependent symbol to a value.
    ///
    /// # Errors
    /// The value is outside the declared range.
    pub fn bind(&mut self, symbol: SymbolId, value: i64) -> Result<()> {
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
        self.known.to_mut().values.insert(symbol, value);
        Ok(())
    }

    /// Checks the type of a result. False if a later statement binds a symbol of the type, so that
    /// the check must be repeated.
    ///
    /// # Errors
    /// The metadata of the result differs from the type of `v`.
    pub fn check_result(
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
        let id = storage_id(t);
        let starts = [&self.input_offsets, &self.chosen_views];
        let starts = starts.map(|starts| id.as_ref().and_then(|id| starts.get(id)));
        let counts_from_other = |e, found: i64| {
            let Some(promised) = self.known(e)?.filter(|_| starts.iter().any(Option::is_some))
            else {
                return Ok(false);
            };
            let distance = found.saturating_sub(promised).saturating_mul(width);
            Ok(starts.iter().flatten().any(|starts| starts.contains(&distance)))
        };
        let check = |e, found| Ok(NumberCheck::of(self.known(e)?, found));
        check_metadata(&expected, t, counts_from_other, check)
    }
}

/// The number that a `bind` statement takes from a value.
///
/// # Errors
/// The value has no such number.
pub fn bound_number(graph: &Graph, v: ValueId, value: &Value, source: BindSource) -> Result<i64> {
    let number = match (value, source) {
        (Value::Tensor(t), BindSource::Size(dim)) => {
            t.sizes().get(dim as usize).and_then(|s| s.as_i64())
        }
        (Value::Int(i), BindSource::Value) => i.as_i64(),
        _ => None,
    };
    let undefined = || RunError::Undefined { value: graph.value_name(v).to_string() };
    Ok(number.ok_or_else(undefined)?)
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
