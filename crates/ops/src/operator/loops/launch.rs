//! The launch of a prepared nest on the tensors of a call.

use super::cache::{PreparedNest, prepare};
use super::{BuildNest, Explain, Operand, Size};
use crate::dispatch::cpu_exec::{self, input, output};
use crate::dispatch::value::Value;
use crate::error::{Error, Result};
use crate::operator::OpDef;
use crate::operator::dims::fresh;
use crate::tensor::Tensor;
use maquette_ir::Scalar;
use maquette_ir::loops::{ComposedTensor, Extent, Extents};
use maquette_ir::sym::SymbolId;
use maquette_kernels::{KernelError, LaunchPlan, LoopKernel, SpecialPlan, View, ViewMut};
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
fn explained(explain: Option<Explain>, e: KernelError, args: &[Value]) -> Error {
    match (e, explain) {
        (KernelError::IndexOutOfRange { .. } | KernelError::Assertion(_), Some(explain)) => {
            explain(args).unwrap_or_else(|e| e)
        }
        (e, _) => e.into(),
    }
}

/// The values of a nest's symbols, by index.
type SymbolValues = SmallVec<[Option<i64>; 8]>;

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

/// The hand-tuned executors that take no packed operands, while a plan does.
const PACKED: [&str; 2] = ["product", "convolution"];

/// The nest of a call with the views of its arguments and its results that it accesses, as fake
/// tensors.
pub(crate) struct PlacedNest {
    pub operands: Vec<Tensor>,
    pub results: SmallVec<[Tensor; 1]>,
    pub launch: NestLaunch,
    prepared: Rc<PreparedNest>,
}

/// A nest with the numbers and sizes of one call.
pub(crate) struct NestLaunch {
    kernel: LoopKernel,
    numbers: SmallVec<[Scalar; 4]>,
    symbols: SymbolValues,
    explain: Option<Explain>,
    /// The plan for the layouts of the call, if there is no hand-tuned executor, or none for packed
    /// operands.
    plan: Option<Arc<LaunchPlan>>,
    /// The plan of the hand-tuned executor, if it has one for the layouts of the call.
    special: Option<SpecialPlan>,
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
        let launch = NestLaunch {
            kernel: nest.kernel.clone(),
            numbers: nest.numbers.iter().map(|arg| arg.scalar(args)).collect::<Result<_>>()?,
            symbols: nest.symbol_values(
                args,
                &|i| operand_sizes.get(i).map(|sizes| &sizes[..]),
                &|i| result_sizes.get(i).map(|sizes| &sizes[..]),
            ),
            explain: nest.explain,
            plan: None,
            special: None,
        };
        Ok(Some(PlacedNest { operands, results, launch, prepared: nest }))
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
        let numbers = self.launch.symbols.iter();
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

impl NestLaunch {
    /// A composed nest, whose symbols have these values.
    pub(crate) fn composed(
        kernel: LoopKernel,
        symbols: &[i64],
        numbers: SmallVec<[Scalar; 4]>,
    ) -> NestLaunch {
        let symbols = symbols.iter().map(|n| Some(*n)).collect();
        NestLaunch { kernel, numbers, symbols, explain: None, plan: None, special: None }
    }

    /// The kernel.
    pub(crate) fn kernel(&self) -> &LoopKernel {
        &self.kernel
    }

    /// The value of a symbol of the nest.
    pub(crate) fn symbol(&self, symbol: SymbolId) -> Option<i64> {
        self.symbols.get(symbol.index()).copied().flatten()
    }

    /// Finds all that depends on layouts. The memory of the views is not accessed.
    ///
    /// # Errors
    /// The layouts do not fit the nest.
    pub(crate) fn plan(
        &mut self,
        operands: &[View<'_>],
        results: &[ViewMut<'_>],
    ) -> std::result::Result<(), KernelError> {
        if self.kernel.specialisation().is_none_or(|name| PACKED.contains(&name)) {
            let values = &self.symbols;
            let symbols = |symbol: SymbolId| values.get(symbol.index()).copied().flatten();
            self.plan = Some(self.kernel.plan(&symbols, operands, results)?);
        }
        self.special = self.kernel.special_plan(operands, &self.numbers, results);
        Ok(())
    }

    /// Plans the launch for results that have exactly the memory of operands: `pairs` of an operand
    /// and a result. Returns whether the kernel supports that.
    pub(crate) fn plan_over(
        &mut self,
        operands: &[View<'_>],
        results: &[ViewMut<'_>],
        pairs: &[(usize, usize)],
    ) -> bool {
        let values = &self.symbols;
        let symbols = |symbol: SymbolId| values.get(symbol.index()).copied().flatten();
        let plan = self.kernel.plan_over(&symbols, operands, results, pairs);
        (self.plan, self.special) = (plan.ok().flatten(), None);
        self.plan.is_some()
    }

    /// The plan of the hand-tuned executor for every call, if it has one.
    pub(crate) fn special_plan(&self) -> Option<&SpecialPlan> {
        self.special.as_ref()
    }

    /// The plan that computes every call, if no hand-tuned executor may.
    pub(crate) fn only_plan(&self) -> Option<&LaunchPlan> {
        self.plan.as_deref().filter(|_| self.kernel.specialisation().is_none())
    }

    /// The plan that computes calls with packed operands, if there is one.
    pub(crate) fn packing_plan(&self) -> Option<&LaunchPlan> {
        self.plan.as_deref().filter(|plan| !plan.packs().is_empty())
    }

    /// The numbers of the call.
    pub(crate) fn numbers(&self) -> &[Scalar] {
        &self.numbers
    }

    /// Computes the results from operands of the layouts of the call.
    ///
    /// # Errors
    /// The error of the nest: then the results are partly written.
    pub(crate) fn run(
        &self,
        operands: &[View<'_>],
        results: &mut [ViewMut<'_>],
    ) -> std::result::Result<(), KernelError> {
        if self.kernel.run_specialised(operands, &self.numbers, results)? {
            return Ok(());
        }
        let symbols = |symbol: SymbolId| self.symbols.get(symbol.index()).copied().flatten();
        self.kernel.run(&symbols, operands, &self.numbers, results)
    }

    /// The error of a failed run in the operator's words.
    pub(crate) fn explained(&self, e: KernelError, args: &[Value]) -> Error {
        explained(self.explain, e, args)
    }
}

/// Copies the new values into the arguments that the nest updates.
fn update(updates: &[(&Tensor, Tensor)]) -> Result<()> {
    updates.iter().try_for_each(|(old, new)| cpu_exec::copy(new, old))
}
