//! The generic executor against the reference evaluator: equal bits, and the same failures.

mod chains;
mod convolutions;
mod joined;
mod nests;
mod overwriting;
mod packed;
mod planned;
mod random;
mod random_named;
mod random_nests;
mod random_products;
mod special;

use super::{KernelFunctions, LoopKernel};
use crate::element::{dispatch, from_scalar};
use crate::view::{Dims, contiguous, numel};
use crate::{Isa, View, ViewMut};
use maquette_ir::loops::{Array, EvalError, LoopNest, StageOutput};
use maquette_ir::sym::{Expr, SymbolId};
use maquette_ir::{DType, Scalar};

/// How a tensor lies in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Layout {
    RowMajor,
    /// Row-major, with an element between two neighbours.
    Gaps,
    /// The dimensions are reversed.
    Reversed,
    /// The channels of images `[N, C, …]` are last, with so many elements behind those of a pixel.
    ChannelsLast(i64),
}

impl Layout {
    fn strides(self, sizes: &[i64]) -> Dims {
        match self {
            Layout::RowMajor => contiguous(sizes),
            Layout::Gaps => contiguous(sizes).into_iter().map(|s| 2 * s).collect(),
            Layout::Reversed => {
                let turned: Dims = sizes.iter().rev().copied().collect();
                contiguous(&turned).into_iter().rev().collect()
            }
            Layout::ChannelsLast(behind) => {
                let mut order: Vec<usize> = (0..sizes.len()).collect();
                order[1..].rotate_left(1);
                let mut turned: Dims = order.iter().map(|d| sizes[*d]).collect();
                turned[sizes.len() - 1] += behind;
                let mut strides = contiguous(sizes);
                for (d, stride) in order.iter().zip(contiguous(&turned)) {
                    strides[*d] = stride;
                }
                strides
            }
        }
    }
}

/// A tensor in memory with some strides.
struct Tensor {
    bytes: Vec<u64>,
    dtype: DType,
    sizes: Dims,
    strides: Dims,
}

impl Tensor {
    fn new(dtype: DType, sizes: &[i64], layout: Layout) -> Tensor {
        let strides = layout.strides(sizes);
        let reach = sizes.iter().zip(&strides).map(|(n, stride)| (n - 1).max(0) * stride);
        let elements = 1 + reach.sum::<i64>() as usize;
        let bytes = vec![0; (elements * dtype.size()).div_ceil(8) + 1];
        Tensor { bytes, dtype, sizes: sizes.into(), strides }
    }

    fn of(array: &Array, layout: Layout) -> Tensor {
        let mut tensor = Tensor::new(array.dtype(), array.sizes(), layout);
        let (dtype, base) = (tensor.dtype, tensor.bytes.as_mut_ptr());
        for (i, x) in array.elements().iter().enumerate() {
            let at = crate::layout::offset(&tensor.sizes, &tensor.strides, i);
            // SAFETY: the memory has the element.
            dispatch!(dtype, T => unsafe {
                base.cast::<T>().offset(at as isize).write_unaligned(from_scalar::<T>(*x))
            });
        }
        tensor
    }

    fn view(&self) -> View<'_> {
        let base = self.bytes.as_ptr().cast();
        // SAFETY: the memory has all elements.
        unsafe { View::from_raw(base, self.dtype, &self.sizes, &self.strides) }
    }

    fn view_mut(&mut self) -> ViewMut<'_> {
        let base = self.bytes.as_mut_ptr().cast();
        // SAFETY: as above.
        unsafe { ViewMut::from_raw(base, self.dtype, &self.sizes, &self.strides) }
    }

    /// The elements' bits.
    fn bits(&self) -> Vec<u64> {
        let base = self.bytes.as_ptr();
        let bits = |i: usize| {
            let at = crate::layout::offset(&self.sizes, &self.strides, i) as isize;
            // SAFETY: the memory has the element.
            unsafe {
                match self.dtype.size() {
                    1 => u64::from(base.cast::<u8>().offset(at).read()),
                    2 => u64::from(base.cast::<u16>().offset(at).read()),
                    4 => u64::from(base.cast::<u32>().offset(at).read()),
                    _ => base.offset(at).read(),
                }
            }
        };
        (0..numel(&self.sizes)).map(bits).collect()
    }
}

/// The instruction sets of this machine.
fn sets() -> Vec<Isa> {
    [Isa::Scalar, Isa::Avx2, Isa::Avx512].into_iter().filter(|i| *i <= Isa::best()).collect()
}

/// Runs a nest without symbols on every instruction set and on operands of different layouts, and
/// compares with the reference. Returns its error.
fn agrees(nest: &LoopNest, operands: &[Array], numbers: &[Scalar]) -> Option<String> {
    agrees_at(nest, &[], operands, numbers)
}

/// As [`agrees`], of a nest with symbols of these values.
fn agrees_at(
    nest: &LoopNest,
    symbols: &[i64],
    operands: &[Array],
    numbers: &[Scalar],
) -> Option<String> {
    let layouts = [Layout::RowMajor, Layout::Gaps, Layout::Reversed];
    let layouts = layouts.map(|layout| (vec![layout; operands.len()], layout));
    agrees_in(nest, symbols, operands, numbers, &layouts)
}

/// As [`agrees_at`], for some layouts of the operands and of the results.
fn agrees_in(
    nest: &LoopNest,
    symbols: &[i64],
    operands: &[Array],
    numbers: &[Scalar],
    layouts: &[(Vec<Layout>, Layout)],
) -> Option<String> {
    let value = |s: SymbolId| symbols.get(s.index()).copied();
    let expected = nest.eval_with(&value, operands, numbers, &KernelFunctions);
    let kernel = LoopKernel::new(nest.clone());
    for isa in sets() {
        for (of_operands, layout) in layouts {
            let operands = operands.iter().zip(of_operands);
            let operands: Vec<Tensor> = operands.map(|(a, l)| Tensor::of(a, *l)).collect();
            let views: Vec<View<'_>> = operands.iter().map(Tensor::view).collect();
            for is_planned in [false, true] {
                let mut results = results(nest, &value, *layout);
                let mut outputs: Vec<ViewMut<'_>> =
                    results.iter_mut().map(Tensor::view_mut).collect();
                let found = match is_planned {
                    false => kernel.run_on(isa, &value, &views, numbers, &mut outputs),
                    true => {
                        let plan = kernel.special_plan_on(isa, &views, numbers, &outputs);
                        let Some(plan) = plan else { continue };
                        let views = views.iter().chain(outputs.iter().map(|o| o.as_view()));
                        let addresses: Vec<_> = views.map(|v| v.as_ptr().cast_mut()).collect();
                        // SAFETY: the addresses are those of the views.
                        unsafe { plan.run_at(&addresses) }
                    }
                };
                compare((nest, &(isa, layout)), &expected, found, &results);
            }
        }
    }
    expected.err().map(|e| e.to_string())
}

/// Memory for the results of a nest.
fn results(
    nest: &LoopNest,
    value: &dyn Fn(SymbolId) -> Option<i64>,
    layout: Layout,
) -> Vec<Tensor> {
    let result = |r: &StageOutput| {
        let sizes = nest.sizes(r.stage).expect("has sizes");
        let size = |e: &Expr| nest.symbols().eval(*e, value).expect("has a value");
        let sizes: Vec<i64> = sizes.iter().map(size).collect();
        Tensor::new(nest.dtype(*r).expect("has a dtype"), &sizes, layout)
    };
    nest.results().iter().map(result).collect()
}

/// Compares the outcome of a launch with that of the reference.
fn compare(
    (nest, place): (&LoopNest, &dyn std::fmt::Debug),
    expected: &std::result::Result<Vec<Array>, EvalError>,
    found: crate::error::Result<()>,
    results: &[Tensor],
) {
    match (expected, found) {
        (Ok(arrays), Ok(())) => {
            for (i, (array, result)) in arrays.iter().zip(results).enumerate() {
                let expected = Tensor::of(array, Layout::RowMajor).bits();
                let found = result.bits();
                for (e, (a, b)) in expected.iter().zip(&found).enumerate() {
                    let value = array.elements()[e];
                    // The bits of a NaN that passed through arithmetic are not defined.
                    if a != b && !is_nan(value) {
                        panic!("result {i} at {e}: {b:x}, not {a:x} ({value}): {place:?}\n{nest}");
                    }
                }
            }
        }
        (Err(expected), Err(found)) => {
            assert_eq!(expected.to_string(), found.to_string(), "{nest}");
        }
        (expected, found) => panic!("{found:?}, not {expected:?}: {place:?}\n{nest}"),
    }
}

/// Whether the specialisation of a nest has a plan for dense operands and results.
fn has_special_plan(
    nest: &LoopNest,
    symbols: &[i64],
    operands: &[Array],
    numbers: &[Scalar],
) -> bool {
    let value = |s: SymbolId| symbols.get(s.index()).copied();
    let mut results = results(nest, &value, Layout::RowMajor);
    let operands: Vec<Tensor> = operands.iter().map(|a| Tensor::of(a, Layout::RowMajor)).collect();
    let views: Vec<View<'_>> = operands.iter().map(Tensor::view).collect();
    let outputs: Vec<ViewMut<'_>> = results.iter_mut().map(Tensor::view_mut).collect();
    LoopKernel::new(nest.clone()).special_plan(&views, numbers, &outputs).is_some()
}

fn is_nan(x: Scalar) -> bool {
    matches!(x, Scalar::Float(x) if x.is_nan())
}

fn floats(sizes: &[i64], elements: impl IntoIterator<Item = f64>) -> Array {
    Array::new(DType::F32, sizes, elements.into_iter().map(Scalar::Float)).expect("fits")
}

fn ints(sizes: &[i64], elements: impl IntoIterator<Item = i64>) -> Array {
    Array::new(DType::I64, sizes, elements.into_iter().map(Scalar::Int)).expect("fits")
}

/// Numbers that look random.
fn noise(n: usize) -> impl Iterator<Item = f64> {
    (0..n).map(|i| f64::from(((i * 7919 + 13) % 4099) as f32 / 512.0 - 4.0))
}
