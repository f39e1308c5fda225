//! Each specialisation against the generic executor and the reference evaluator.

pub(super) mod attention;
pub(super) mod convolution;
mod moves;
mod scan;

use super::{LoopKernel, agrees_at, noise};
use crate::without_specialisations;
use maquette_ir::loops::named::{self, Correction, Input, Reduced, Reduction};
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
