//! Each specialisation against the generic executor and the reference evaluator.

pub(super) mod attention;
pub(super) mod convolution;
mod scan;

use super::{LoopKernel, Tensor, agrees_at, noise};
use crate::without_specialisations;
use maquette_ir::loops::named::{self, Correction, Input, Number, Reduced, Reduction};
use maquette_ir::loops::{Array, LoopBuilder, LoopError, LoopNest, StageKind, StageOutput};
use maquette_ir::sym::SymTable;
use maquette_ir::{DType, Scalar};

/// Builds a nest of one operand and one result.
fn nest_of(
    dtype: DType,
    rank: usize,
    build: impl FnOnce(&mut LoopBuilder, &Input) -> Result<StageOutput, LoopError>,
) -> LoopNest {
    results_of(dtype, rank, |nest, x| build(nest, x).map(|result| [result]))
}

/// Builds a nest of one operand.
fn results_of<const N: usize>(
    dtype: DType,
    rank: usize,
    build: impl FnOnce(&mut LoopBuilder, &Input) -> Result<[StageOutput; N], LoopError>,
) -> LoopNest {
    let mut nest = LoopBuilder::new(SymTable::new());
    let x = nest.input(dtype, rank);
    let results = build(&mut nest, &x).expect("is valid");
    nest.finish(&results).expect("is valid")
}

/// An operand of numbers that look random, with some equal ones.
fn operand(dtype: DType, sizes: &[i64]) -> Array {
    let n = sizes.iter().product::<i64>() as usize;
    let element = |x: f64| match dtype {
        DType::Bool => Scalar::Bool(x > 3.5),
        d if d.is_float() => Scalar::Float(x),
        _ => Scalar::Int(x as i64),
    };
    Array::new(dtype, sizes, noise(n).map(element)).expect("fits")
}

/// Runs a nest with and without specialisations, on every instruction set and layout. The
/// specialisation must have this name.
fn holds(name: Option<&str>, nest: &LoopNest, sizes: &[i64]) {
    holds_of(name, nest, &[sizes], &[]);
}

/// As [`holds`], of operands of these sizes, each with symbols of its own, and numbers.
fn holds_of(name: Option<&str>, nest: &LoopNest, sizes: &[&[i64]], numbers: &[Scalar]) {
    assert_eq!(LoopKernel::new(nest.clone()).specialisation(), name, "{nest}");
    let symbols = sizes.concat();
    let operands: Vec<Array> =
        nest.operands().iter().zip(sizes).map(|(o, sizes)| operand(o.dtype, sizes)).collect();
    let agrees = || agrees_at(nest, &symbols, &operands, numbers);
    assert_eq!(without_specialisations(agrees), None);
    assert_eq!(agrees(), None);
}

const SIZES: [[i64; 3]; 6] =
    [[2, 3, 5], [1, 1, 4], [3, 1, 70], [1, 2100, 3], [0, 4, 2], [3, 2, 1100]];

#[test]
fn softmax_has_the_bits_of_its_nest() {
    for (log, dtype) in [(false, DType::F32), (true, DType::F32), (true, DType::BF16)] {
        for (dim, sizes) in (0..3).flat_map(|dim| SIZES.map(|sizes| (dim, sizes))) {
            let build = if log { named::log_softmax } else { named::softmax };
            let nest = nest_of(dtype, 3, |nest, x| Ok(build(nest, x, x.axes[dim], dtype)?.into()));
            holds(Some("softmax"), &nest, &sizes);
        }
    }
    let nest =
        nest_of(
            DType::F16,
            1,
            |nest, x| Ok(named::softmax(nest, x, x.axes[0], DType::F32)?.into()),
        );
    holds(None, &nest, &[9]);
}

#[test]
fn reductions_have_the_bits_of_their_nests() {
    for op in Reduction::ALL {
        let cases = match op {
            Reduction::Any | Reduction::All => vec![(DType::F32, DType::Bool)],
            Reduction::Mean => vec![(DType::F32, DType::F32), (DType::BF16, DType::BF16)],
            Reduction::ArgMin | Reduction::ArgMax => {
                vec![(DType::F32, DType::I64), (DType::I32, DType::I64)]
            }
            Reduction::Sum | Reduction::Prod => vec![
                (DType::F32, DType::F32),
                (DType::F16, DType::F16),
                (DType::Bool, DType::I64),
                (DType::F32, DType::F64),
                (DType::I32, DType::I32),
            ],
            Reduction::Min | Reduction::Max => {
                vec![(DType::F32, DType::F32), (DType::U8, DType::U8), (DType::F64, DType::F64)]
            }
        };
        for (x, out) in cases {
            for (dims, keep) in [(&[2][..], false), (&[0, 2], true), (&[1], true), (&[], false)] {
                let nest = nest_of(x, 3, |nest, x| {
                    let along: Vec<_> = dims.iter().map(|d| x.axes[*d]).collect();
                    named::reduce(nest, op, Reduced { x, along: &along, keep, out })
                });
                for sizes in SIZES {
                    // a minimum of no elements has no value
                    if !sizes.contains(&0) {
                        holds(Some("reduce"), &nest, &sizes);
                    }
                }
            }
        }
    }
}

#[test]
fn a_sum_of_rounded_elements_is_not_specialised() {
    let nest = nest_of(DType::F32, 2, |nest, x| {
        let of = Reduced { x, along: &x.axes[..1], keep: false, out: DType::BF16 };
        named::reduce(nest, Reduction::Sum, of)
    });
    holds(None, &nest, &[40, 3]);
}

#[test]
fn layer_norm_has_the_bits_of_its_nest() {
    let cases = [
        (DType::F32, DType::F32, true, true),
        (DType::F32, DType::F32, false, true),
        (DType::BF16, DType::BF16, true, false),
        (DType::F16, DType::F32, true, true),
        (DType::F64, DType::F64, false, false),
    ];
    for (dtype, statistics, has_weight, has_bias) in cases {
        for normalized in 1..=3 {
            let nest = results_of(dtype, 3, |nest, x| {
                let mut parameter = |has: bool| has.then(|| nest.input(statistics, normalized));
                let (weight, bias) = (parameter(has_weight), parameter(has_bias));
                let (weight, bias) = (weight.as_ref(), bias.as_ref());
                let eps = Some(nest.number(dtype.accumulator()));
                let of = named::RowNorm { x, normalized, weight, bias, eps, statistics };
                named::layer_norm(nest, of)
            });
            for sizes in SIZES {
                let row = &sizes[3 - normalized..];
                let present = [true, has_weight, has_bias];
                let operands: Vec<&[i64]> = [&sizes[..], row, row]
                    .into_iter()
                    .zip(present)
                    .filter_map(|(sizes, is_present)| is_present.then_some(sizes))
                    .collect();
                holds_of(Some("layer_norm"), &nest, &operands, &[Scalar::Float(1e-5)]);
            }
        }
    }
}

#[test]
fn rms_and_group_norms_agree_with_the_reference() {
    for dtype in [DType::F32, DType::BF16] {
        let rms = results_of(dtype, 3, |nest, x| {
            let weight = Some(&nest.input(dtype, 2));
            let statistics = DType::F32;
            let of = named::RowNorm { x, normalized: 2, weight, bias: None, eps: None, statistics };
            named::rms_norm(nest, of)
        });
        for sizes in SIZES {
            holds_of(None, &rms, &[&sizes, &sizes[1..]], &[]);
        }
        let group = results_of(dtype, 3, |nest, x| {
            let weight = Some(&nest.input(dtype, 1));
            let (eps, axes) = (nest.number(DType::F32), &x.axes[..]);
            let (from, groups, statistics) = (x.id.into(), 2, dtype);
            let of =
                named::GroupNorm { x: from, axes, groups, weight, bias: None, eps, statistics };
            named::group_norm(nest, &of)
        });
        for sizes in [[2, 4, 5], [1, 2, 700], [0, 2, 3], [3, 6, 0]] {
            holds_of(None, &group, &[&sizes, &sizes[1..2]], &[Scalar::Float(1e-5)]);
        }
    }
}

const DIMS: [(&[usize], bool); 4] = [(&[2], false), (&[0, 2], true), (&[1], true), (&[], false)];

/// Calls `f` with the nest of a reduction over each of [`DIMS`], and with each of [`SIZES`].
fn each_reduction<const N: usize>(
    (x, out): (DType, DType),
    build: impl Fn(&mut LoopBuilder, Reduced<'_>) -> Result<[StageOutput; N], LoopError>,
    f: impl Fn(&LoopNest, &[i64]),
) {
    for (dims, keep) in DIMS {
        let nest = results_of(x, 3, |nest, x| {
            let along: Vec<_> = dims.iter().map(|d| x.axes[*d]).collect();
            build(nest, Reduced { x, along: &along, keep, out })
        });
        SIZES.iter().for_each(|sizes| f(&nest, sizes));
    }
}

#[test]
fn variances_have_the_bits_of_their_nests() {
    for (dtype, root) in [(DType::F32, true), (DType::BF16, false), (DType::F64, false)] {
        each_reduction(
            (dtype, dtype),
            |nest, of| {
                let one = Correction::Fixed(1);
                named::variance(nest, of, one, root).map(|[variance, _]| [variance])
            },
            |nest, sizes| holds(Some("variance"), nest, sizes),
        );
    }
    for (dtype, number, root) in [(DType::F32, 4.0, false), (DType::F16, 1.5, true)] {
        each_reduction(
            (dtype, dtype),
            |nest, of| {
                let number = Correction::Number(nest.number(DType::F64));
                named::variance_and_mean(nest, of, number, root)
            },
            |nest, sizes| {
                holds_of(Some("variance"), nest, &[sizes], &[Scalar::Float(number)]);
            },
        );
    }
}

#[test]
fn norms_have_the_bits_of_their_nests() {
    let cases = [
        (0.0, DType::F32, DType::F32),
        (1.0, DType::F16, DType::F16),
        (2.0, DType::F32, DType::F32),
        (2.0, DType::BF16, DType::BF16),
        (2.0, DType::F64, DType::F32),
        (3.0, DType::F32, DType::F32),
        (-0.5, DType::F64, DType::F64),
        (f64::INFINITY, DType::F64, DType::F32),
        (f64::NEG_INFINITY, DType::F32, DType::F32),
    ];
    for (p, x, out) in cases {
        let build = |nest: &mut LoopBuilder, of: Reduced<'_>| {
            named::vector_norm(nest, of, p).map(|norm| [norm])
        };
        each_reduction((x, out), build, |nest, sizes| {
            // an infinite norm of no elements has no value
            if p.is_finite() || !sizes.contains(&0) {
                holds(Some("norm"), nest, sizes);
            }
        });
    }
    let narrow = |nest: &mut LoopBuilder, of: Reduced<'_>| {
        named::vector_norm(nest, of, 2.0).map(|norm| [norm])
    };
    let dtypes = (DType::F32, DType::BF16);
    each_reduction(dtypes, narrow, |nest, sizes| holds(None, nest, sizes));
}

#[test]
fn extremes_have_the_bits_of_their_nests() {
    let is_not_empty = |sizes: &[i64]| !sizes.contains(&0);
    for dtype in [DType::F32, DType::BF16, DType::U8, DType::Bool] {
        for max in [false, true] {
            each_reduction(
                (dtype, dtype),
                |nest, of| named::extreme(nest, max, of),
                |nest, sizes| {
                    let StageKind::Reduce { along, .. } = &nest.stages()[0].kind else { return };
                    let is_indexed = along.len() == 1 && along[0].index() < 3;
                    if is_not_empty(sizes) {
                        holds(is_indexed.then_some("extreme"), nest, sizes);
                    }
                },
            );
        }
        each_reduction(
            (dtype, dtype),
            |nest, of| {
                let min = named::reduce(nest, Reduction::Min, of)?;
                Ok([min, named::reduce(nest, Reduction::Max, of)?])
            },
            |nest, sizes| {
                if is_not_empty(sizes) {
                    holds(Some("extreme"), nest, sizes);
                }
            },
        );
    }
}

#[test]
fn other_softmaxes_agree_with_the_reference() {
    for (x, out) in [(DType::F32, DType::F32), (DType::F32, DType::BF16)] {
        each_reduction(
            (x, out),
            |nest, of| named::logsumexp(nest, of).map(|y| [y]),
            |nest, sizes| holds(None, nest, sizes),
        );
        for (dim, sizes) in (0..3).flat_map(|dim| SIZES.map(|sizes| (dim, sizes))) {
            let nest =
                nest_of(x, 3, |nest, x| Ok(named::safe_softmax(nest, x, x.axes[dim], out)?.into()));
            holds(None, &nest, &sizes);
        }
    }
}

#[test]
fn products_have_the_bits_of_their_nests() {
    use maquette_ir::loops::named::{Addend, Product};
    // the ranks of both factors, and the number of batch dimensions
    let kinds = [(2, 2, 0), (3, 3, 1), (2, 1, 0), (1, 1, 0), (1, 2, 0)];
    let dtypes = [DType::F32, DType::BF16, DType::F64, DType::I32];
    let cases = kinds.into_iter().flat_map(|k| dtypes.map(|d| (k, d)));
    for (((rank_a, rank_b, batch), dtype), scaled) in cases.flat_map(|c| [(c, false), (c, true)]) {
        for (m, n, k) in [(3, 5, 7), (1, 1, 1), (2, 70, 600), (33, 2, 0), (0, 3, 2)] {
            let mut nest = LoopBuilder::new(SymTable::new());
            let (a, b) = (nest.input(dtype, rank_a), nest.input(dtype, rank_b));
            let of = Product { a: &a, b: &b, batch, alpha: None, addend: None, out: dtype };
            let result = if scaled {
                let c = nest.input(dtype, of.axes().len());
                let alpha = Some(nest.number(dtype.accumulator()));
                let beta = nest.number(dtype.accumulator());
                let addend = Some(Addend { beta, of: &c });
                named::product(&mut nest, &Product { alpha, addend, ..of })
            } else {
                named::product(&mut nest, &of)
            };
            let nest = nest.finish(&[result.expect("is valid")]).expect("is valid");
            let lead = &[2][..batch];
            let sizes = |own: &[i64]| [lead, own].concat();
            let size_a = sizes(&[m, k][usize::from(rank_a == batch + 1)..]);
            let size_b = sizes(&[k, n][..rank_b - batch]);
            let out = match (rank_a == batch + 1, rank_b == batch + 1) {
                (true, true) => sizes(&[]),
                (true, false) => sizes(&[n]),
                (false, true) => sizes(&[m]),
                (false, false) => sizes(&[m, n]),
            };
            let operands = [&size_a[..], &size_b, &out];
            let numbers = [Scalar::Int(3), Scalar::Int(-2)];
            let count = if scaled { 3 } else { 2 };
            let numbers = if scaled { &numbers[..] } else { &[] };
            // a product of no elements is the call of another nest
            if !(scaled && k == 0) {
                holds_of(Some("product"), &nest, &operands[..count], numbers);
            }
        }
    }
}

/// As [`holds`], for a nest with these values of symbols. Returns the error.
fn agrees_specialised(
    name: &str,
    nest: &LoopNest,
    symbols: &[i64],
    operands: &[Array],
    numbers: &[Scalar],
) -> Option<String> {
    assert_eq!(LoopKernel::new(nest.clone()).specialisation(), Some(name), "{nest}");
    let generic = without_specialisations(|| agrees_at(nest, symbols, operands, numbers));
    let specialised = agrees_at(nest, symbols, operands, numbers);
    assert_eq!(generic, specialised);
    specialised
}

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
        for is_given in [false, true] {
            let mut nest = LoopBuilder::new(SymTable::new());
            let number = match is_given {
                true => Number::Launch(nest.number(dtype)),
                false => Number::Constant(value),
            };
            let sizes = [nest.new_size(), nest.new_size()];
            let over = sizes.map(|size| nest.axis(size));
            let result = named::fill(&mut nest, &over, number, dtype).expect("is valid");
            let nest = nest.finish(&[result.into()]).expect("is valid");
            let numbers = if is_given { vec![value] } else { Vec::new() };
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
        let mut from = Tensor::new(dtype, &[8], 0, false);
        for (i, x) in elements.iter().enumerate() {
            from.bytes[i / 4] |= u64::from(*x) << (16 * (i % 4));
        }
        let mut to = Tensor::new(dtype, &[10], 0, false);
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
