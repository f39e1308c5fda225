//! The launch of a prepared nest on the tensors of a call.

use super::cache::prepare;
use super::{BuildNest, Operand, Size};
use crate::aten::OpDef;
use crate::dispatch::cpu_exec::{self, input, output};
use crate::dispatch::value::Value;
use crate::error::{Error, Result};
use crate::tensor::Tensor;
use crate::tensor::meta::{Dims, Meta};
use maquette_ir::Scalar;
use maquette_ir::sym::SymbolId;
use maquette_kernels::{KernelError, View, ViewMut};
use smallvec::SmallVec;

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
        let new = Meta::contiguous(old.sizes().iter().copied().collect::<Dims>(), old.dtype());
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
    let explained = |e: KernelError| match (e, nest.explain) {
        (KernelError::IndexOutOfRange { .. } | KernelError::Assertion(_), Some(explain)) => {
            explain(args).unwrap_or_else(|e| e)
        }
        (e, _) => e.into(),
    };
    if nest.kernel.run_specialised(&operands, &numbers, &mut outputs).map_err(explained)? {
        return update(&updates);
    }
    let size = |sizes: &[i64], dim: u8| sizes.get(usize::from(dim)).copied();
    let symbols: SmallVec<[Option<i64>; 8]> = nest
        .symbols
        .iter()
        .map(|symbol| match *symbol {
            Size::Operand { operand, dim } => {
                size(operands.get(usize::from(operand))?.sizes(), dim)
            }
            Size::Result { result, dim } => {
                size(outputs.get(usize::from(result))?.as_view().sizes(), dim)
            }
            Size::Number(arg) => arg.int(args),
        })
        .collect();
    let symbols = |symbol: SymbolId| symbols.get(symbol.index()).copied().flatten();
    nest.kernel.run(&symbols, &operands, &numbers, &mut outputs).map_err(explained)?;
    update(&updates)
}

/// Copies the new values into the arguments that the nest updates.
fn update(updates: &[(&Tensor, Tensor)]) -> Result<()> {
    updates.iter().try_for_each(|(old, new)| cpu_exec::copy(new, old))
}
