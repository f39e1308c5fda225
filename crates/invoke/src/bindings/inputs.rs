//! Binds symbols from the inputs of a run, and checks the inputs and the guards.

use super::{Bindings, DeclaredType, declared_type};
use crate::external_tensors::storage_id;
use crate::metadata_check::{LayoutPromise, MetadataMismatch};
use maquette_ir::graph::{Def, Graph, ValueId};
use maquette_ir::sym::{Expr, SymbolId};
use maquette_ops::internals::MetaInternals;
use maquette_ops::{Error, Result, RunError, Tensor, TraceError, Value};

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
    let mut values: Vec<(SymbolId, i64)> = bindings.into_values().values.into_iter().collect();
    values.sort_unstable();
    Ok(values.into_iter().map(|(s, value)| (graph.symbols().name(s).to_owned(), value)).collect())
}

impl Bindings<'_> {
    /// Binds the symbols of the inputs, and checks the inputs and the guards. All inputs bind
    /// before the first is checked, because a type may use symbols that a later input binds.
    ///
    /// # Errors
    /// The number, kind or metadata of an input differs from the graph's declaration, an input has
    /// no data, or a guard does not hold.
    pub fn bind_inputs(&mut self, inputs: &[Value]) -> Result<()> {
        let graph = self.graph;
        if inputs.len() != graph.inputs().len() {
            return Err(RunError::InputCount {
                expected: graph.inputs().len(),
                found: inputs.len(),
            }
            .into());
        }
        for (&input, value) in graph.inputs().iter().zip(inputs) {
            self.bind_input(input, value)?;
        }
        for (&input, value) in graph.inputs().iter().zip(inputs) {
            self.check_input(input, value)?;
        }
        for (i, &guard) in graph.guards().iter().enumerate() {
            // A guard that cannot be evaluated does not hold: it may divide by a size that is 0.
            if !self.holds(guard).unwrap_or(false) {
                let (guard, values) = self.explain(guard);
                let loc = graph
                    .guard_loc(i)
                    .map_or_else(|| "an unknown line".to_owned(), |loc| loc.to_string());
                return Err(RunError::Guard { guard, values, loc }.into());
            }
        }
        Ok(())
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

    fn input_error(&self, input: ValueId, mismatch: MetadataMismatch<Expr>) -> Error {
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
                        self.known.values.get(s)?,
                        self.known.origins.get(s)?
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
    fn bind_input(&mut self, input: ValueId, value: &Value) -> Result<()> {
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
                    t.meta().offset().as_i64().filter(|o| *o != 0 && ty.offset == Expr::Int(0))
                    && let Some(id) = storage_id(t)
                {
                    // Only the offset of an empty tensor exceeds memory.
                    let start = start.saturating_mul(t.dtype().size() as i64);
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
            if self.known.values.contains_key(&symbol)
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
            let origin = format!("{what} of `{}`", self.label(input));
            let known = self.known.to_mut();
            known.values.insert(symbol, found);
            known.origins.insert(symbol, origin);
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
    fn check_input(&self, input: ValueId, value: &Value) -> Result<()> {
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
}
