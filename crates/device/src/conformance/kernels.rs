//! Kernels: what a launch computes, in which order, and where its error goes.

use super::{block, downloaded, uploaded};
use crate::{
    Address, Binding, Block, Computation, Contents, Dims, Failing, FailureSlot, Fault, Kernel,
    KernelError, Launch, Layout, OpenDevice, Origin,
};
use maquette_ir::loops::fold::Fold;
use maquette_ir::loops::named::{Product, Reduced, Reduction, gather, product, reduce, scan};
use maquette_ir::loops::{Array, LoopBuilder, LoopNest, StageOutput};
use maquette_ir::scalar_expr::{BinaryOp, ScalarExpr};
use maquette_ir::sym::{SymTable, SymbolId};
use maquette_ir::{DType, Scalar};
use std::sync::Arc;

fn layout(dtype: DType, sizes: &[i64], strides: &[i64]) -> Layout {
    Layout { dtype, sizes: sizes.into(), strides: strides.into() }
}

fn row_major(dtype: DType, sizes: &[i64]) -> Layout {
    let mut strides: Dims = std::iter::repeat_n(1, sizes.len()).collect();
    for d in (1..sizes.len()).rev() {
        strides[d - 1] = strides[d] * sizes[d];
    }
    layout(dtype, sizes, &strides)
}

fn kernel(device: &dyn OpenDevice, computation: Computation) -> Arc<dyn Kernel> {
    let mut kernels = device.backend().compile(&[computation]);
    kernels.pop().flatten().expect("the device has the kernel")
}

fn bound(kernel: &dyn Kernel, operands: &[&Layout], results: &[&Layout]) -> Arc<dyn Launch> {
    with_symbols(kernel, &[], operands, results)
}

fn with_symbols(
    kernel: &dyn Kernel,
    symbols: &[i64],
    operands: &[&Layout],
    results: &[&Layout],
) -> Arc<dyn Launch> {
    let symbols: Vec<Option<i64>> = symbols.iter().map(|n| Some(*n)).collect();
    let (symbols, numbers, in_place) = (&symbols[..], &[][..], &[][..]);
    let binding = Binding { symbols, numbers, operands, results, in_place };
    kernel.bind(&binding).expect("the kernel takes these layouts")
}

fn launched(launch: &dyn Launch, blocks: &[&Block]) {
    let addresses: Vec<Address> = blocks.iter().map(|block| block.at()).collect();
    // SAFETY: blocks of this suite, of which each has all elements of its layout.
    unsafe { launch.enqueue(&addresses, &[], None) }.expect("a launch is taken");
}

fn floats(values: impl IntoIterator<Item = f32>) -> Vec<u8> {
    values.into_iter().flat_map(f32::to_ne_bytes).collect()
}

fn integers(values: impl IntoIterator<Item = i64>) -> Vec<u8> {
    values.into_iter().flat_map(i64::to_ne_bytes).collect()
}

/// Numbers of both signs that a sum rounds.
fn numbers(count: i64) -> Vec<f32> {
    (0..count).map(|i| ((i * 7_919) % 1_009 - 504) as f32 / 37.0).collect()
}

/// Zeros and copies reach every element of a result, and no byte between two elements.
pub fn zeros_and_copies_are_computed(device: &'static dyn OpenDevice) {
    let columns = layout(DType::F32, &[2, 3], &[2, 4]);
    let to = uploaded(device, &floats([7.0; 12]));
    let zeros = kernel(device, Computation::Zeros);
    launched(&*bound(&*zeros, &[], &[&columns]), &[&to]);
    let mut expected = [7.0f32; 12];
    expected.iter_mut().step_by(2).for_each(|x| *x = 0.0);
    assert_eq!(downloaded(device, &to), floats(expected));
    // A row of integers becomes two rows of floats.
    let (row, wide) = (layout(DType::I64, &[2, 3], &[0, 1]), row_major(DType::F32, &[2, 3]));
    let (from, to) = (uploaded(device, &integers([4, 5, 6])), block(device, 24, Contents::Any));
    let copy = kernel(device, Computation::Copy);
    launched(&*bound(&*copy, &[&row], &[&wide]), &[&from, &to]);
    assert_eq!(downloaded(device, &to), floats([4.0, 5.0, 6.0, 4.0, 5.0, 6.0]));
}

/// `x + y`.
fn sum_of_two(dtype: DType) -> Arc<ScalarExpr> {
    Arc::new(ScalarExpr::binary(BinaryOp::Add, dtype).expect("the expression is well-formed"))
}

/// An expression is computed for each element, in new memory and over an operand, after the
/// commands before it and before those after it.
pub fn expressions_are_computed_in_order(device: &'static dyn OpenDevice) {
    let sum = kernel(device, Computation::Elements(sum_of_two(DType::F32)));
    let n = 10_000;
    let row = row_major(DType::F32, &[n]);
    let x = uploaded(device, &floats(numbers(n)));
    let total = block(device, 4 * n as usize, Contents::Zeros);
    let add = bound(&*sum, &[&row, &row], &[&row]);
    let doubled = block(device, 4 * n as usize, Contents::Any);
    launched(&*add, &[&x, &x, &doubled]);
    let binding = Binding {
        symbols: &[],
        numbers: &[],
        operands: &[&row, &row],
        results: &[&row],
        in_place: &[(0, 0)],
    };
    let over = sum.bind(&binding).expect("an expression is computed over its operand");
    for _ in 0..20 {
        launched(&*over, &[&total, &x, &total]);
    }
    let twice = numbers(n).into_iter().map(|x| x + x);
    assert!(downloaded(device, &doubled) == floats(twice), "a sum of two");
    let sums = numbers(n).into_iter().map(|x| (0..20).fold(0.0, |sum, _| sum + x));
    assert!(downloaded(device, &total) == floats(sums), "each launch sees those before");
}

/// A nest with its sizes: the extents of its operands and results, and the operands' elements.
struct Case {
    nest: LoopNest,
    symbols: Vec<i64>,
    operands: Vec<(DType, Vec<i64>)>,
}

fn cases(n: i64) -> Vec<(&'static str, Case)> {
    let float = |sizes: &[i64]| (DType::F32, sizes.to_vec());
    let build = |make: &dyn Fn(&mut LoopBuilder) -> Vec<StageOutput>| {
        let mut nest = LoopBuilder::new(SymTable::default());
        let results = make(&mut nest);
        nest.finish(&results).expect("the nest is well-formed")
    };
    let rows = build(&|nest| {
        let x = nest.input(DType::F32, 2);
        let along = [x.axes[1]];
        let of = Reduced { x: &x, along: &along, keep: false, out: DType::F32 };
        vec![reduce(nest, Reduction::Sum, of).expect("a sum")]
    });
    let scans = build(&|nest| {
        let x = nest.input(DType::F32, 2);
        vec![scan(nest, &x, x.axes[1], Fold::Sum, DType::F32).expect("a scan")]
    });
    let products = build(&|nest| {
        let (a, b) = (nest.input(DType::F32, 2), nest.input(DType::F32, 2));
        let out = DType::F32;
        let of = Product { a: &a, b: &b, batch: 0, alpha: None, addend: None, out };
        vec![product(nest, &of).expect("a product")]
    });
    let matrix = Case { nest: rows, symbols: vec![n, 5], operands: vec![float(&[n, 5])] };
    let lines = Case { nest: scans, symbols: vec![n, 40], operands: vec![float(&[n, 40])] };
    let operands = vec![float(&[n, 7]), float(&[7, 9])];
    let product = Case { nest: products, symbols: vec![n, 7, 7, 9], operands };
    vec![("sums of rows", matrix), ("scans", lines), ("a product", product)]
}

/// A nest has the bits of its reference evaluation, and one kernel serves every size.
pub fn nests_have_the_bits_of_their_evaluation(device: &'static dyn OpenDevice) {
    for (at, (what, Case { nest, .. })) in cases(3).into_iter().enumerate() {
        let nest = Arc::new(nest);
        let kernel = kernel(device, Computation::Nest(nest.clone()));
        for n in [1, 3, 200] {
            let Case { symbols, operands, .. } = cases(n).swap_remove(at).1;
            let value = |symbol: SymbolId| symbols.get(symbol.index()).copied();
            let arrays: Vec<Array> = operands
                .iter()
                .map(|(dtype, sizes)| {
                    let elements = numbers(sizes.iter().product()).into_iter();
                    let elements: Vec<Scalar> = elements.map(|x| f64::from(x).into()).collect();
                    Array::new(*dtype, sizes, elements).expect("as many elements")
                })
                .collect();
            let expected = nest.eval(&value, &arrays, &[]).expect("the nest is evaluated");
            let [expected] = &expected[..] else { panic!("one result") };
            let from: Vec<Block> = operands
                .iter()
                .map(|(_, sizes)| uploaded(device, &floats(numbers(sizes.iter().product()))))
                .collect();
            let count = expected.elements().len();
            let to = block(device, 4 * count, Contents::Any);
            let layouts: Vec<Layout> =
                operands.iter().map(|(dtype, sizes)| row_major(*dtype, sizes)).collect();
            let result = row_major(expected.dtype(), expected.sizes());
            let operands: Vec<&Layout> = layouts.iter().collect();
            let launch = with_symbols(&*kernel, &symbols, &operands, &[&result]);
            launched(&*launch, &from.iter().chain([&to]).collect::<Vec<_>>());
            let expected = floats(expected.elements().iter().map(|x| x.to_f64() as f32));
            assert!(downloaded(device, &to) == expected, "{what} of {n} rows");
        }
    }
}

/// The error of a kernel is in its slot after a wait, with what the launch belongs to, or is
/// returned by the call. Launches of the slot after it do nothing, and those of others run.
pub fn the_error_of_a_kernel_is_found(device: &'static dyn OpenDevice) {
    let mut nest = LoopBuilder::new(SymTable::default());
    let (x, index) = (nest.input(DType::F32, 1), nest.input(DType::I64, 1));
    let picked = gather(&mut nest, &x, 0, &index).expect("a gather");
    let nest = Arc::new(nest.finish(&[picked.into()]).expect("the nest is well-formed"));
    assert!(nest.may_fail());
    let gather = kernel(device, Computation::Nest(nest));
    let (row, indices) = (row_major(DType::F32, &[4]), row_major(DType::I64, &[2]));
    let pair = row_major(DType::F32, &[2]);
    let gather = with_symbols(&*gather, &[4, 2], &[&row, &indices], &[&pair]);
    let zeros = bound(&*kernel(device, Computation::Zeros), &[], &[&pair]);
    let x = uploaded(device, &floats([1.0, 2.0, 3.0, 4.0]));
    let (good, bad) = (uploaded(device, &integers([3, 0])), uploaded(device, &integers([0, 4])));
    let picked = uploaded(device, &floats([8.0, 9.0]));
    let origin = Arc::new(Origin { op: "suite::gather".into(), loc: None });
    let slot = Arc::<FailureSlot>::default();
    let enqueue = |launch: &dyn Launch, blocks: &[&Block], slot: &Arc<FailureSlot>| {
        let addresses: Vec<Address> = blocks.iter().map(|block| block.at()).collect();
        let failing = Failing { slot, origin: Some(&origin) };
        // SAFETY: blocks of this suite, of which each has all elements of its layout.
        unsafe { launch.enqueue(&addresses, &[], Some(failing)) }
    };
    let out_of_range = |fault: &Fault| {
        let Fault::Kernel { error, .. } = fault else { return false };
        *error == KernelError::IndexOutOfRange { index: 4, size: 4, dim: 0 }
    };
    enqueue(&*gather, &[&x, &good, &picked], &slot).expect("the positions are inside");
    let failed = enqueue(&*gather, &[&x, &bad, &picked], &slot);
    if !device.target().reports_late {
        assert!(failed.is_err_and(|fault| out_of_range(&fault)));
        return;
    }
    failed.expect("the launch is taken");
    let kept = uploaded(device, &floats([5.0, 6.0]));
    let cleared = uploaded(device, &floats([5.0, 6.0]));
    enqueue(&*zeros, &[&kept], &slot).expect("the launch is taken");
    let other = Arc::<FailureSlot>::default();
    enqueue(&*zeros, &[&cleared], &other).expect("the launch is taken");
    device.queue().wait(device.queue().fence()).expect("the device is not lost");
    assert!(slot.is_settled() && other.is_settled());
    assert_eq!([slot.received(), other.received()], [3, 1], "the driver counts its launches");
    let fault = slot.fault().expect("the error is in the slot");
    assert!(out_of_range(fault), "{fault}");
    assert!(matches!(fault, Fault::Kernel { origin: Some(of), .. } if *of == origin));
    assert_eq!(other.fault(), None);
    assert_eq!(downloaded(device, &kept), floats([5.0, 6.0]), "a launch after the error");
    assert_eq!(downloaded(device, &cleared), floats([0.0, 0.0]), "a launch of another slot");
}

/// A launch with packed operands has the bits of one without.
pub fn packed_operands_change_no_bit(device: &'static dyn OpenDevice) {
    let (m, k, n) = (70, 96, 80);
    let mut nest = LoopBuilder::new(SymTable::default());
    let (a, b) = (nest.input(DType::F32, 2), nest.input(DType::F32, 2));
    let of = Product { a: &a, b: &b, batch: 0, alpha: None, addend: None, out: DType::F32 };
    let result = product(&mut nest, &of).expect("a product");
    let nest = Arc::new(nest.finish(&[result]).expect("the nest is well-formed"));
    let kernel = kernel(device, Computation::Nest(nest));
    let layouts = [[m, k], [k, n], [m, n]].map(|sizes| row_major(DType::F32, &sizes));
    let [left, right, product] = &layouts;
    let launch = with_symbols(&*kernel, &[m, k, k, n], &[left, right], &[product]);
    let from = [m * k, k * n].map(|count| uploaded(device, &floats(numbers(count))));
    let to = [(); 2].map(|()| block(device, 4 * (m * n) as usize, Contents::Any));
    launched(&*launch, &[&from[0], &from[1], &to[0]]);
    let packed: Vec<_> = launch
        .packs()
        .iter()
        .enumerate()
        .map(|(index, operands)| {
            assert!(launch.pack_key(index).is_some(), "a form without a key");
            let at: Vec<Address> = operands.iter().map(|operand| from[*operand].at()).collect();
            // SAFETY: blocks of this suite, which nothing writes any more.
            Some(unsafe { launch.pack(index, &at) }.expect("there is memory"))
        })
        .collect();
    assert!(launch.pack_key(packed.len()).is_none());
    let addresses = [&from[0], &from[1], &to[1]].map(|block| block.at());
    // SAFETY: as above. The packed forms are of these operands.
    unsafe { launch.enqueue(&addresses, &packed, None) }.expect("a launch is taken");
    assert!(downloaded(device, &to[0]) == downloaded(device, &to[1]), "{packed:?}");
}
