//! Fills, copies, selections, gathers, triangles, padding and moves.

use super::super::{Layout, LoopKernel, Tensor};
use super::{SIZES, agrees_specialised, holds, holds_of, nest_of, operand};
use crate::{View, ViewMut, without_specialisations};
use maquette_ir::loops::named::{self, Number};
use maquette_ir::loops::{Array, LoopBuilder};
use maquette_ir::sym::SymTable;
use maquette_ir::{DType, Scalar};
#[test]
fn fills_have_the_bits_of_their_nests() {
    let cases = [
        (DType::F32, Scalar::Float(0.1)),
        (DType::BF16, Scalar::Float(3.140625)),
        (DType::F16, Scalar::Float(-0.0)),
        (DType::F64, Scalar::Float(f64::INFINITY)),
        (DType::I16, Scalar::Int(-7)),
        (DType::Bool, Scalar::Bool(true)),
    ];
    for (dtype, value) in cases {
        for (is_given, before) in [(false, 0), (true, 0), (true, 2)] {
            let mut nest = LoopBuilder::new(SymTable::new());
            for _ in 0..before {
                nest.number(DType::F32);
            }
            let number = match is_given {
                true => Number::Launch(nest.number(dtype)),
                false => Number::Constant(value),
            };
            let sizes = [nest.new_size(), nest.new_size()];
            let over = sizes.map(|size| nest.axis(size));
            let result = named::fill(&mut nest, &over, number, dtype).expect("is valid");
            let nest = nest.finish(&[result.into()]).expect("is valid");
            let mut numbers = vec![Scalar::Float(9.0); before];
            numbers.extend(is_given.then_some(value));
            for symbols in [[3, 5], [0, 4], [2, 1100]] {
                assert_eq!(agrees_specialised("fill", &nest, &symbols, &[], &numbers), None);
            }
        }
    }
}

#[test]
fn copies_have_the_bits_of_their_nests() {
    let dtypes = [DType::F32, DType::BF16, DType::F16, DType::I64, DType::U8, DType::Bool];
    for (from, to) in dtypes.iter().flat_map(|from| dtypes.map(|to| (*from, to))) {
        let nest = nest_of(from, 3, |nest, x| Ok(named::copy(nest, x, to)?.into()));
        for sizes in SIZES {
            holds(Some("copy"), &nest, &sizes);
        }
    }
}

#[test]
fn selections_have_the_bits_of_their_nests() {
    for (dtype, index) in [(DType::F32, DType::I64), (DType::BF16, DType::I32)] {
        for dim in 0..3 {
            let mut nest = LoopBuilder::new(SymTable::new());
            let (x, at) = (nest.input(dtype, 3), nest.input(index, 2));
            let result = named::select(&mut nest, &x, dim, &at).expect("is valid");
            let nest = nest.finish(&[result.into()]).expect("is valid");
            for sizes in [[4, 3, 5], [70, 2, 40], [3, 4, 0]] {
                let n = sizes[dim].max(1);
                let positions = |last: i64| {
                    let positions = [0, n - 1, n / 2, 0, n / 3, last].map(Scalar::Int);
                    Array::new(index, &[2, 3], positions).expect("fits")
                };
                let symbols = [&sizes[..], &[2, 3]].concat();
                let run = |at: Array| {
                    let operands = [operand(dtype, &sizes), at];
                    agrees_specialised("select", &nest, &symbols, &operands, &[])
                };
                if sizes[dim] > 0 {
                    assert_eq!(run(positions(n - 1)), None);
                    assert_eq!(run(positions(n)).is_some(), !sizes.contains(&0));
                }
            }
        }
    }
}

#[test]
fn elements_at_an_index_have_the_bits_of_their_nest() {
    for (dtype, index) in [(DType::F32, DType::I64), (DType::BF16, DType::I32)] {
        for dim in 0..3 {
            let mut nest = LoopBuilder::new(SymTable::new());
            let (x, at) = (nest.input(dtype, 3), nest.input(index, 3));
            let result = named::gather(&mut nest, &x, dim, &at).expect("is valid");
            let nest = nest.finish(&[result.into()]).expect("is valid");
            for sizes in [[4, 3, 5], [70, 2, 40], [3, 4, 0]] {
                // The index is smaller than the operand in other dimensions.
                let mut of_index = sizes.map(|n: i64| (n - 1).max(1).min(n));
                of_index[dim] = 7;
                let numel = of_index.iter().product::<i64>() as usize;
                let run = |last: i64| {
                    let position = |i: usize| match i + 1 == numel {
                        true => last,
                        false => (i as i64 * 5) % sizes[dim].max(1),
                    };
                    let positions = (0..numel).map(|i| Scalar::Int(position(i)));
                    let at = Array::new(index, &of_index, positions).expect("fits");
                    let symbols = [sizes, of_index].concat();
                    agrees_specialised(
                        "select",
                        &nest,
                        &symbols,
                        &[operand(dtype, &sizes), at],
                        &[],
                    )
                };
                if sizes[dim] > 0 {
                    assert_eq!(run(sizes[dim] - 1), None);
                    assert_eq!(run(sizes[dim]).is_some(), numel > 0);
                }
            }
        }
    }
}

#[test]
fn triangles_have_the_bits_of_their_nests() {
    for (dtype, lower) in [(DType::F32, true), (DType::F16, false), (DType::I64, true)] {
        let mut nest = LoopBuilder::new(SymTable::new());
        let (x, diagonal) = (nest.input(dtype, 3), nest.number(DType::I64));
        let result = named::triangle(&mut nest, &x, lower, diagonal).expect("is valid");
        let nest = nest.finish(&[result.into()]).expect("is valid");
        for sizes in [[2, 5, 7], [1, 70, 60], [3, 4, 1], [2, 0, 3], [2, 3, 0]] {
            for diagonal in [0, 1, -2, 6, -9, i64::MAX, i64::MIN] {
                holds_of(Some("triangle"), &nest, &[&sizes], &[Scalar::Int(diagonal)]);
            }
        }
    }
}

#[test]
fn padding_has_the_bits_of_its_nest() {
    for (dtype, dims) in [(DType::F32, &[1usize, 2][..]), (DType::F16, &[0, 1, 2])] {
        for is_given in [false, true] {
            let mut nest = LoopBuilder::new(SymTable::new());
            let x = nest.input(dtype, 3);
            let before: Vec<_> = dims.iter().map(|d| (*d, nest.number(DType::I64))).collect();
            let value = match is_given {
                true => Number::Launch(nest.number(dtype)),
                false => Number::Constant(Scalar::Float(-1.5)),
            };
            let sizes = [nest.new_size(), nest.new_size(), nest.new_size()];
            let over = sizes.map(|size| nest.axis(size));
            let result = named::pad(&mut nest, &x, &over, &before, value).expect("is valid");
            let nest = nest.finish(&[result.into()]).expect("is valid");
            let sizes = [3i64, 4, 60];
            for (first, last) in [(1, 2), (-1, 2), (2, -1), (0, 0), (-1, -1), (0, -2), (-3, 5)] {
                let padded = |d: usize| dims.contains(&d);
                let size = |d: usize| sizes[d] + if padded(d) { first + last } else { 0 };
                let symbols = [sizes[0], sizes[1], sizes[2], size(0), size(1), size(2)];
                let numbers = dims.iter().map(|_| Scalar::Int(first));
                let value = is_given.then_some(Scalar::Float(2.5));
                let numbers: Vec<Scalar> = numbers.chain(value).collect();
                let operands = [operand(dtype, &sizes)];
                let failure = agrees_specialised("pad", &nest, &symbols, &operands, &numbers);
                assert_eq!(failure, None);
            }
        }
    }
}

#[test]
fn moves_keep_every_bit() {
    // signaling and quiet NaNs of half precision, which arithmetic would change
    let elements = [0x7f81u16, 0xffa5, 0x7fc1, 0x3f80, 0x7d01, 0xfc01, 0x7e55, 0x8000];
    for dtype in [DType::F16, DType::BF16] {
        let mut nest = LoopBuilder::new(SymTable::new());
        let x = nest.input(dtype, 1);
        let size = nest.new_size();
        let axis = nest.axis(size);
        let value = nest.number(dtype);
        let before = nest.number(DType::I64);
        let padded = [(0, before)];
        let result = named::pad(&mut nest, &x, &[axis], &padded, Number::Launch(value));
        let nest = nest.finish(&[result.expect("is valid").into()]).expect("is valid");
        let mut from = Tensor::new(dtype, &[8], Layout::RowMajor);
        for (i, x) in elements.iter().enumerate() {
            from.bytes[i / 4] |= u64::from(*x) << (16 * (i % 4));
        }
        let mut to = Tensor::new(dtype, &[10], Layout::RowMajor);
        let symbols = |s: maquette_ir::sym::SymbolId| [8, 10].get(s.index()).copied();
        let kernel = LoopKernel::new(nest);
        let numbers = [Scalar::Float(1.0), Scalar::Int(1)];
        without_specialisations(|| {
            kernel.run(&symbols, &[from.view()], &numbers, &mut [to.view_mut()])
        })
        .expect("runs");
        let one = if dtype == DType::F16 { 0x3c00 } else { 0x3f80 };
        let expected = [one].into_iter().chain(elements).chain([one]).map(u64::from);
        assert_eq!(to.bits(), expected.collect::<Vec<_>>());
    }
}

/// The executor runs before any plan checks the result.
#[test]
fn a_triangle_of_other_sizes_is_refused() {
    let mut nest = LoopBuilder::new(SymTable::new());
    let x = nest.input(DType::F32, 2);
    let diagonal = nest.number(DType::I64);
    let triangle = named::triangle(&mut nest, &x, true, diagonal).expect("is valid");
    let kernel = LoopKernel::new(nest.finish(&[triangle.into()]).expect("is valid"));
    let (x, mut out) = (vec![1f32; 64], vec![7f32; 64]);
    let x = View::from_slice_sized(&x, &[8, 8]).expect("fits");
    let mut results = [ViewMut::from_slice_sized(&mut out[..4], &[2, 2]).expect("fits")];
    assert!(kernel.run(&|_| Some(8), &[x], &[Scalar::Int(0)], &mut results).is_err());
    assert_eq!(out, [7.0; 64]);
}
