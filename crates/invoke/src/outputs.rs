//! Builds the outputs of a functional run with the layout and aliasing of the original program.

use crate::copies::copy_with_strides;
use crate::errors::too_large;
use crate::external_tensors::ExternalTensors;
use crate::layouts::extent;
use maquette_ir::functional_program::{ExternalTensor, FunctionalGraph, Output};
use maquette_ir::sym::SymInt;
use maquette_ir::typing::contiguous_strides;
use maquette_ops::internals::MetaInternals;
use maquette_ops::{Error, Result, Tensor, Value, mode};
use rustc_hash::{FxHashMap, FxHashSet};

/// A layout that a graph returns as a list of integers: offset, sizes, strides, in elements.
struct ResultLayout {
    offset: i64,
    sizes: Vec<i64>,
    strides: Vec<i64>,
}

impl ResultLayout {
    fn of(value: &Value) -> Result<ResultLayout> {
        let numbers: Vec<i64> = match value {
            Value::Ints(l) => l.iter().filter_map(|i| i.as_i64()).collect(),
            _ => Vec::new(),
        };
        let Some((&offset, rest)) = numbers.split_first() else {
            return Err(Error::value("a returned layout is not a list of integers"));
        };
        let (sizes, strides) = rest.split_at(rest.len() / 2);
        let mut layout = ResultLayout { offset, sizes: sizes.to_vec(), strides: strides.to_vec() };
        if sizes.contains(&0) {
            // An empty tensor addresses no element, so no run checks what the graph declares.
            let numbers = layout.strides.iter_mut().chain([&mut layout.offset]);
            numbers.for_each(|number| *number = (*number).max(0));
        }
        Ok(layout)
    }

    fn sym_strides(&self) -> Vec<SymInt> {
        self.strides.iter().map(|s| (*s).into()).collect()
    }

    /// The view with this layout of a tensor's storage, relative to the storage's start.
    fn view_of(&self, t: &Tensor) -> Result<Tensor> {
        self.view_from(t, 0.into())
    }

    /// The view with this layout of a tensor's storage, relative to element `start`.
    fn view_from(&self, t: &Tensor, start: SymInt) -> Result<Tensor> {
        let start = start + self.offset;
        let view = || t.as_strided(self.sizes.clone(), self.strides.clone(), Some(start));
        Ok(mode::with_builtin_kernels(view).ok()?.clone())
    }
}

fn tensor(v: &Value) -> Result<&Tensor> {
    match v {
        Value::Tensor(t) => Ok(t),
        other => Err(Error::value(format!("expected a tensor, found {}", other.kind()))),
    }
}

/// Builds the outputs of one run, in order.
pub struct OutputBuilder<'a> {
    results: &'a [Value],
    external: &'a ExternalTensors,
    /// By leaf of the outputs: the memory in which a buffer plan has put it, if any.
    planned: &'a [Option<Tensor>],
    /// The storages that several outputs share, by number.
    shared: FxHashMap<usize, Tensor>,
    /// The results that outputs have returned. A second output of the same result gets a copy.
    returned: FxHashSet<usize>,
    /// The number of leaves built so far.
    leaf_count: usize,
}

impl<'a> OutputBuilder<'a> {
    /// `results` are those of the graph, in order. `planned` are the tensors that a buffer plan
    /// made for the leaves of the outputs.
    pub fn new(
        results: &'a [Value],
        external: &'a ExternalTensors,
        planned: &'a [Option<Tensor>],
    ) -> OutputBuilder<'a> {
        let (shared, returned) = Default::default();
        OutputBuilder { results, external, planned, shared, returned, leaf_count: 0 }
    }

    /// Result `at` of the graph.
    ///
    /// # Errors
    /// The graph returns fewer results.
    pub fn result(&self, at: usize) -> Result<&'a Value> {
        self.results.get(at).ok_or_else(|| {
            Error::value("the graph returns fewer values than the program has results")
        })
    }

    fn layout(&self, at: usize) -> Result<ResultLayout> {
        ResultLayout::of(self.result(at)?)
    }

    /// The view with the given layout, relative to a tensor's first element; the tensor itself
    /// without a layout. `layout` is the result of the graph that is the layout.
    ///
    /// # Errors
    /// The result is no layout, or the view is outside of the storage.
    pub fn view_at(&self, t: &Tensor, layout: Option<usize>) -> Result<Tensor> {
        match layout {
            Some(at) => self.layout(at)?.view_from(t, t.meta().offset()),
            None => Ok(t.clone()),
        }
    }

    /// Builds the next output.
    ///
    /// # Errors
    /// The results are not those of the graph, or memory runs out.
    pub fn output(&mut self, output: &Output) -> Result<Value> {
        let is_leaf = !matches!(output, Output::List(_));
        let planned = self.planned.get(self.leaf_count).filter(|_| is_leaf);
        self.leaf_count += usize::from(is_leaf);
        Ok(match (output, planned.and_then(Option::as_ref)) {
            (Output::Result { .. }, Some(t)) => Value::Tensor(t.clone()),
            (Output::Shared { storage_layout, layout, .. }, Some(t)) => {
                // A kernel may have returned a part of a storage of its own.
                let start = t.meta().offset() - self.layout(*storage_layout)?.offset;
                Value::Tensor(self.layout(*layout)?.view_from(t, start)?)
            }
            (&Output::Result { result, layout }, None) => self.result_output(result, layout)?,
            (Output::Alias { of, layout }, _) => {
                Value::Tensor(self.view_at(self.external.get(*of)?, *layout)?)
            }
            (&Output::Shared { memory, result, storage_layout, layout }, None) => {
                let storage = self.shared_storage(memory, result, storage_layout)?;
                Value::Tensor(self.layout(layout)?.view_of(&storage)?)
            }
            (Output::List(list), _) => {
                Value::List(list.iter().map(|o| self.output(o)).collect::<Result<_>>()?)
            }
        })
    }

    /// An output in its own memory. The operator's result itself is returned if it has the right
    /// layout and no earlier output is the same result; otherwise a copy is.
    fn result_output(&mut self, result: usize, layout: Option<usize>) -> Result<Value> {
        let t = match self.result(result)? {
            Value::Tensor(t) => t.clone(),
            other => return Ok(other.clone()),
        };
        let wanted = layout.map(|at| self.layout(at)).transpose()?;
        let (offset, strides) = match &wanted {
            Some(layout) => (layout.offset, layout.sym_strides()),
            None => (0, contiguous_strides(t.sizes()).to_vec()),
        };
        let same = t.meta().offset().as_i64() == Some(offset)
            && t.strides().iter().zip(&strides).all(|(a, b)| a.as_i64() == b.as_i64());
        let is_returned = !self.returned.insert(result);
        Ok(Value::Tensor(match wanted {
            _ if same && !is_returned => t,
            Some(layout) if offset != 0 => layout.view_of(&allocate_result(&t, &layout)?)?,
            _ => copy_with_strides(&t, &strides)?,
        }))
    }

    /// The storage that several outputs share. The first of them allocates it.
    fn shared_storage(
        &mut self,
        memory: usize,
        result: usize,
        storage_layout: usize,
    ) -> Result<Tensor> {
        if let Some(storage) = self.shared.get(&memory) {
            return Ok(storage.clone());
        }
        let storage =
            allocate_result(tensor(self.result(result)?)?, &self.layout(storage_layout)?)?;
        self.shared.insert(memory, storage.clone());
        Ok(storage)
    }
}

/// A copy of a value's elements with a given layout, in new memory.
fn allocate_result(value: &Tensor, layout: &ResultLayout) -> Result<Tensor> {
    let strides = layout.sym_strides();
    let rows = copy_with_strides(value, &strides)?;
    if layout.offset == 0 || layout.sizes.contains(&0) {
        return Ok(rows);
    }
    // The output's storage offset is visible to the caller, so the copy keeps it.
    let all = extent(layout.offset, &layout.sizes, &layout.strides).ok_or_else(too_large)?;
    let extent = all - layout.offset;
    mode::with_builtin_kernels(|| {
        let flat = rows.new_zeros([all], rows.dtype());
        flat.slice(0, layout.offset..all)
            .copy_(&rows.as_strided([extent], [1i64], Some(0.into())))
            .ok()?;
        Ok(flat)
    })
}

/// The external tensors that a program mutates.
pub fn mutated(program: &FunctionalGraph) -> FxHashSet<ExternalTensor> {
    program.mutations.iter().map(|m| m.target).collect()
}
