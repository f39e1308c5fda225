//! The launch of a prepared nest on the tensors of a call.

use super::cache::{PreparedNest, prepare};
use super::{BuildNest, Explain, Operand, Size};
use crate::dispatch::cpu_exec::{self, input, output};
use crate::dispatch::value::Value;
use crate::error::{Error, Result};
use crate::operator::OpDef;
use crate::operator::dims::fresh;
use crate::tensor::Tensor;
use maquette_device::Kernel;
use maquette_ir::loops::{ComposedTensor, Extent, Extents, LoopNest};
use maquette_ir::sym::SymbolId;
use maquette_ir::{Device, Scalar};
use maquette_kernels::{KernelError, View, ViewMut};
use smallvec::SmallVec;
use std::rc::Rc;
use std::sync::Arc;

/// Computes a call by its nest, into results of the right metadata. Results on the `meta` device
/// are left as they are. Results without elements take no computation.
///
/// # Errors
/// The error of the lowering, or of the nest: then the results are partly written.
pub(crate) fn run(def: &OpDef, build: BuildNest, args: &[Value], results: &[Tensor]) -> Result<()> {
    let is_empty = |t: &Tensor| t.numel().as_i64() == Some(0);
    if results.iter().any(Tensor::is_fake) || results.iter().all(is_empty) {
        return Ok(());
    }
    let nest = prepare(def, build, args, results)?;
    // The nest reads the old values of the arguments that it updates.
    let mut updates: SmallVec<[(&Tensor, Tensor); 2]> = SmallVec::new();
    for &arg in &nest.updates {
        let old = args[usize::from(arg)].tensor()?;
        let new = fresh(old, old.sizes().into(), old.dtype());
        updates.push((old, Tensor::allocate(new)?));
    }
    let mut views: SmallVec<[Tensor; 1]> = SmallVec::new();
    for operand in &nest.operands {
        if let Operand::View(view) = operand {
            views.push(view(args)?);
        }
    }
    let mut next_view = views.iter();
    // Loops instead of `collect`, which moves the views several times.
    let mut operands: SmallVec<[View<'_>; 3]> = SmallVec::new();
    for operand in &nest.operands {
        let tensor = match operand {
            Operand::View(_) => next_view.next(),
            Operand::Arg(arg) => match arg.value(args) {
                Some(Value::Tensor(t)) => Some(t),
                _ => None,
            },
        };
        let missing = || Error::value("an operand of the nest is not a tensor");
        operands.push(input(tensor.ok_or_else(missing)?)?);
    }
    let result_view = match (nest.result_view, results) {
        (Some(view), [result]) => Some([view(args, result)?]),
        _ => None,
    };
    let results = result_view.as_ref().map_or(results, |view| view);
    let mut outputs: SmallVec<[ViewMut<'_>; 2]> = SmallVec::new();
    for result in results.iter().chain(updates.iter().map(|(_, new)| new)) {
        outputs.push(output(result)?);
    }
    let mut numbers: SmallVec<[Scalar; 4]> = SmallVec::new();
    for arg in &nest.numbers {
        numbers.push(arg.scalar(args)?);
    }
    let explained = |e: KernelError| explained(nest.explain, e, args);
    if nest.kernel.run_specialised(&operands, &numbers, &mut outputs).map_err(explained)? {
        return update(&updates);
    }
    let sizes_of = |operand: usize| operands.get(operand).map(|v| v.sizes());
    let result_sizes = |result: usize| outputs.get(result).map(|v| v.as_view().sizes());
    let symbols = nest.symbol_values(args, &sizes_of, &result_sizes);
    let symbols = |symbol: SymbolId| symbols.get(symbol.index()).copied().flatten();
    nest.kernel.run(&symbols, &operands, &numbers, &mut outputs).map_err(explained)?;
    update(&updates)
}

/// The error of a kernel in the operator's words.
pub(crate) fn explained(explain: Option<Explain>, e: KernelError, args: &[Value]) -> Error {
    match (e, explain) {
        (KernelError::IndexOutOfRange { .. } | KernelError::Assertion(_), Some(explain)) => {
            explain(args).unwrap_or_else(|e| e)
        }
        (e, _) => e.into(),
    }
}

/// The values of a nest's symbols, by index.
pub(crate) type SymbolValues = SmallVec<[Option<i64>; 8]>;

impl PreparedNest {
    /// The values of the symbols in a call, from the sizes of its operands and results.
    fn symbol_values<'a>(
        &self,
        args: &[Value],
        operand_sizes: &dyn Fn(usize) -> Option<&'a [i64]>,
        result_sizes: &dyn Fn(usize) -> Option<&'a [i64]>,
    ) -> SymbolValues {
        let size = |sizes: &[i64], dim: u8| sizes.get(usize::from(dim)).copied();
        let value = |symbol: &Size| match *symbol {
            Size::Operand { operand, dim } => size(operand_sizes(usize::from(operand))?, dim),
            Size::Result { result, dim } => size(result_sizes(usize::from(result))?, dim),
            Size::Number(arg) => arg.int(args),
        };
        self.symbols.iter().map(value).collect()
    }
}

/// The nest of a call with the views of its arguments and its results that it accesses, as fake
/// tensors.
pub(crate) struct PlacedNest {
    pub operands: Vec<Tensor>,
    pub results: SmallVec<[Tensor; 1]>,
    pub numbers: SmallVec<[Scalar; 4]>,
    pub symbols: SymbolValues,
    prepared: Rc<PreparedNest>,
}

impl PlacedNest {
    /// The nest of a call with fake arguments, whose results have the layouts of `outs`. `None` if
    /// the nest updates an argument.
    ///
    /// # Errors
    /// The error of the lowering.
    pub(crate) fn of(
        def: &OpDef,
        build: BuildNest,
        args: &[Value],
        outs: &[Tensor],
    ) -> Result<Option<PlacedNest>> {
        let nest = prepare(def, build, args, outs)?;
        if !nest.updates.is_empty() {
            return Ok(None);
        }
        let operand = |operand: &Operand| match operand {
            Operand::View(view) => view(args),
            Operand::Arg(arg) => match arg.value(args) {
                Some(Value::Tensor(t)) => Ok(t.clone()),
                _ => Err(Error::value("an operand of the nest is not a tensor")),
            },
        };
        let operands = nest.operands.iter().map(operand).collect::<Result<Vec<Tensor>>>()?;
        let results = match (nest.result_view, outs) {
            (Some(view), [out]) => [view(args, out)?].into_iter().collect(),
            _ => outs.iter().cloned().collect::<SmallVec<[Tensor; 1]>>(),
        };
        let sizes = |t: &Tensor| t.meta().concrete().map(|at| at.sizes).unwrap_or_default();
        let operand_sizes: Vec<_> = operands.iter().map(sizes).collect();
        let result_sizes: Vec<_> = results.iter().map(sizes).collect();
        let numbers = nest.numbers.iter().map(|arg| arg.scalar(args)).collect::<Result<_>>()?;
        let symbols =
            nest.symbol_values(args, &|i| operand_sizes.get(i).map(|sizes| &sizes[..]), &|i| {
                result_sizes.get(i).map(|sizes| &sizes[..])
            });
        Ok(Some(PlacedNest { operands, results, numbers, symbols, prepared: nest }))
    }

    /// The nest.
    pub(crate) fn nest(&self) -> &Arc<LoopNest> {
        self.prepared.kernel.nest()
    }

    /// The kernel of a device; `None` if the device has none.
    pub(crate) fn kernel_on(&self, device: Device) -> Option<Arc<dyn Kernel>> {
        self.prepared.kernel_on(device)
    }

    /// How the operator puts an error of the kernel.
    pub(crate) fn explain(&self) -> Option<Explain> {
        self.prepared.explain
    }

    /// Whether the nest writes a view of the only result, which has other sizes.
    pub(crate) fn writes_view(&self) -> bool {
        self.prepared.result_view.is_some()
    }

    /// The extents that the symbols of the nest stand for, from those of its operands and results.
    /// `None` if a symbol stands for nothing.
    pub(crate) fn symbol_extents(
        &self,
        operands: &[ComposedTensor],
        results: &[Extents],
    ) -> Option<SmallVec<[Extent; 8]>> {
        let at = |extents: &[Extent], dim: u8| extents.get(usize::from(dim)).copied();
        let numbers = self.symbols.iter();
        let extent = |(of, number): (&Size, &Option<i64>)| match *of {
            Size::Operand { operand, dim } => {
                at(operands.get(usize::from(operand))?.extents(), dim)
            }
            Size::Result { result, dim } => at(results.get(usize::from(result))?, dim),
            Size::Number(_) => number.map(Extent::Number),
        };
        self.prepared.symbols.iter().zip(numbers).map(extent).collect()
    }
}

/// Copies the new values into the arguments that the nest updates.
fn update(updates: &[(&Tensor, Tensor)]) -> Result<()> {
    updates.iter().try_for_each(|(old, new)| cpu_exec::copy(new, old))
}
