//! Convolutions and their transposes.

use super::{agrees_specialised, operand};
use crate::LoopKernel;
use crate::loops::tests::agrees_at;
use crate::loops::tests::random::Random;
use maquette_ir::loops::named::{self, ChannelGroups, WindowDim};
use maquette_ir::loops::{Array, LoopBuilder, LoopNest};
use maquette_ir::sym::SymTable;
use maquette_ir::{DType, Scalar};

/// A convolution with equal sizes, strides and so on in all spatial dimensions.
#[derive(Clone, Copy, Debug)]
struct Case {
    dims: usize,
    batch: i64,
    groups: i64,
    /// The channels of a group: of the input and of the output.
    channels: (i64, i64),
    size: i64,
    kernel: i64,
    stride: i64,
    padding: i64,
    dilation: i64,
    output_padding: i64,
}

const CASE: Case = Case {
    dims: 2,
    batch: 2,
    groups: 1,
    channels: (3, 4),
    size: 6,
    kernel: 3,
    stride: 1,
    padding: 1,
    dilation: 1,
    output_padding: 0,
};

const CASES: [Case; 17] = [
    CASE,
    Case { groups: 2, stride: 2, channels: (2, 3), ..CASE },
    // depthwise
    Case { groups: 5, channels: (1, 1), size: 9, dilation: 2, ..CASE },
    Case { groups: 2, channels: (1, 2), stride: 3, padding: 4, ..CASE },
    // many products of one sum
    Case { channels: (60, 2), batch: 1, size: 3, ..CASE },
    Case { channels: (60, 7), batch: 1, size: 2, ..CASE },
    // one element
    Case { kernel: 1, padding: 0, channels: (5, 6), ..CASE },
    Case { kernel: 1, padding: 0, stride: 2, groups: 2, ..CASE },
    Case { kernel: 1, padding: 1, size: 1, ..CASE },
    Case { dims: 1, size: 40, kernel: 5, stride: 2, padding: 7, dilation: 3, ..CASE },
    Case { dims: 1, size: 70, batch: 3, groups: 2, channels: (3, 2), kernel: 2, ..CASE },
    Case { dims: 3, size: 4, kernel: 2, stride: 2, groups: 3, channels: (1, 2), ..CASE },
    Case { dims: 3, batch: 1, size: 3, kernel: 3, channels: (2, 3), ..CASE },
    // depthwise, in lines of one and of several vectors
    Case { groups: 37, channels: (1, 1), size: 14, ..CASE },
    Case { groups: 3, channels: (1, 1), size: 75, stride: 2, ..CASE },
    Case { groups: 2, channels: (1, 1), batch: 1, size: 130, padding: 2, ..CASE },
    Case { groups: 4, channels: (1, 1), size: 5, padding: 0, ..CASE },
];

impl Case {
    fn output_size(&self, transposed: bool) -> i64 {
        let reach = self.dilation * (self.kernel - 1) + 1;
        match transposed {
            false => (self.size + 2 * self.padding - reach) / self.stride + 1,
            true => (self.size - 1) * self.stride - 2 * self.padding + reach + self.output_padding,
        }
    }

    /// Whether the transpose has no window.
    fn is_plain(&self) -> bool {
        (self.kernel, self.stride, self.padding, self.output_padding) == (1, 1, 0, 0)
    }

    /// The nest, with the values of its symbols and the sizes of its operands.
    fn nest(
        &self,
        dtype: DType,
        transposed: bool,
        has_bias: bool,
    ) -> (LoopNest, Vec<i64>, Vec<Vec<i64>>) {
        let mut nest = LoopBuilder::new(SymTable::new());
        let rank = self.dims + 2;
        let (x, weight) = (nest.input(dtype, rank), nest.input(dtype, rank));
        let bias = has_bias.then(|| nest.input(dtype, 1));
        let is_depthwise = !transposed && self.groups > 1 && self.channels == (1, 1);
        let groups = match (is_depthwise, self.groups > 1) {
            (true, _) => ChannelGroups::EachChannel,
            (_, true) => ChannelGroups::Several(nest.new_size()),
            _ => ChannelGroups::One,
        };
        let sizes: Vec<_> = (0..self.dims).map(|_| nest.new_size()).collect();
        let positions: Vec<_> = sizes.into_iter().map(|size| nest.axis(size)).collect();
        let has_window = !(transposed && self.is_plain());
        let mut number = || nest.number(DType::I64);
        let dim = || WindowDim { stride: number(), padding: number(), dilation: number() };
        let dims = if has_window { self.dims } else { 0 };
        let window: Vec<_> = std::iter::repeat_with(dim).take(dims).collect();
        let of = named::Convolution {
            x: &x,
            weight: &weight,
            bias: bias.as_ref(),
            positions: &positions,
            window: &window,
            groups,
            transposed,
            out: dtype,
        };
        let result = named::convolution(&mut nest, &of).expect("is valid");
        let nest = nest.finish(&[result]).expect("is valid");
        let (ci, co) = self.channels;
        let lead = if transposed { [ci * self.groups, co] } else { [co * self.groups, ci] };
        let spatial = |lead: [i64; 2], size: i64| [&lead[..], &vec![size; self.dims]].concat();
        let mut operands =
            vec![spatial([self.batch, ci * self.groups], self.size), spatial(lead, self.kernel)];
        if has_bias {
            operands.push(vec![co * self.groups]);
        }
        let mut symbols = operands.concat();
        symbols.extend((self.groups > 1 && !is_depthwise).then_some(self.groups));
        symbols.extend(vec![self.output_size(transposed); self.dims]);
        (nest, symbols, operands)
    }

    fn numbers(&self, nest: &LoopNest) -> Vec<Scalar> {
        let of_dim = [self.stride, self.padding, self.dilation].map(Scalar::Int);
        let dims = (nest.scalars().len() / 3).min(self.dims);
        (0..dims).flat_map(|_| of_dim).collect()
    }

    /// Compares the specialisation, the generic executor and the reference.
    fn holds(&self, dtype: DType, transposed: bool, has_bias: bool) {
        let (nest, symbols, sizes) = self.nest(dtype, transposed, has_bias);
        let operands: Vec<Array> = sizes.iter().map(|sizes| operand(dtype, sizes)).collect();
        let numbers = self.numbers(&nest);
        let failure = agrees_specialised("convolution", &nest, &symbols, &operands, &numbers);
        assert_eq!(failure, None, "{self:?}");
    }
}

/// A random convolution, or transpose.
pub(in crate::loops::tests) fn random_call(random: &mut Random) {
    let transposed = random.chance(3);
    let dtype = random.pick(&[DType::F32, DType::F32, DType::BF16, DType::F64, DType::I32]);
    let [dims, groups] = [2, 3].map(|n| 1 + random.below(n));
    let mut below = |n: usize| random.below(n) as i64;
    let case = Case {
        dims,
        batch: below(3),
        groups: groups as i64,
        channels: (below(5), 1 + below(5)),
        size: 1 + below(9),
        kernel: 1 + below(3),
        stride: 1 + below(3),
        padding: below(3),
        dilation: 1 + below(2),
        output_padding: 0,
    };
    // The input is at least as large as the window.
    let missing = case.dilation * (case.kernel - 1) + 1 - case.size - 2 * case.padding;
    let case = Case { size: case.size + missing.max(0), ..case };
    let case = if case.output_size(transposed) > 0 { case } else { Case { padding: 0, ..case } };
    case.holds(dtype, transposed, random.chance(2));
}

#[test]
fn convolutions_have_the_bits_of_their_nests() {
    for case in CASES {
        for dtype in [DType::F32, DType::BF16] {
            case.holds(dtype, false, true);
        }
        case.holds(DType::F32, false, false);
    }
    for (dtype, case) in [(DType::F64, CASES[1]), (DType::I32, CASES[3]), (DType::I64, CASES[6])] {
        case.holds(dtype, false, true);
    }
}

#[test]
fn transposed_convolutions_have_the_bits_of_their_nests() {
    for case in CASES.into_iter().filter(|case| case.output_size(true) >= 0) {
        case.holds(DType::F32, true, true);
        case.holds(DType::BF16, true, false);
    }
    for (dtype, case) in [(DType::F64, CASES[1]), (DType::I32, CASES[2]), (DType::I64, CASES[6])] {
        case.holds(dtype, true, true);
    }
    let padded = [
        Case { stride: 3, output_padding: 2, ..CASE },
        Case { kernel: 1, padding: 0, dilation: 2, output_padding: 1, ..CASE },
    ];
    for case in padded {
        case.holds(DType::F32, true, true);
    }
}

#[test]
fn convolutions_of_nothing_have_the_bits_of_their_nests() {
    let empty = [
        Case { batch: 0, ..CASE },
        Case { channels: (0, 2), ..CASE },
        Case { channels: (0, 2), groups: 3, ..CASE },
        Case { channels: (2, 0), ..CASE },
        Case { channels: (2, 0), groups: 2, ..CASE },
        // every tap is in the padding
        Case { size: 0, padding: 2, ..CASE },
    ];
    for case in empty {
        for (transposed, has_bias) in [(false, true), (false, false), (true, true), (true, false)] {
            if case.output_size(transposed) > 0 {
                case.holds(DType::F32, transposed, has_bias);
            }
        }
    }
}

/// The padding is multiplied: an infinite weight gives NaN there. Products underflow to -0, which a
/// sum from +0 does not keep.
#[test]
fn special_values_have_the_bits_of_the_nest() {
    let values = [f64::INFINITY, -0.0, 1e-30, -1e-30, f64::NAN, 3.5, 0.0, f64::NEG_INFINITY, -1.0];
    for case in [CASES[0], CASES[3], CASES[6], CASES[9]] {
        for (transposed, has_bias) in [(false, true), (false, false), (true, true), (true, false)] {
            let (nest, symbols, sizes) = case.nest(DType::F32, transposed, has_bias);
            for step in [2, 5, 7] {
                let operand = |(o, sizes): (usize, &Vec<i64>)| {
                    let n = sizes.iter().product::<i64>() as usize;
                    // Mostly small numbers of both signs.
                    let value = |i: usize| match (i * step + o) % 23 {
                        special if special < values.len() => values[special],
                        other => values[2 + other % 2],
                    };
                    let elements = (0..n).map(|i| Scalar::Float(f64::from(value(i) as f32)));
                    Array::new(DType::F32, sizes, elements).expect("fits")
                };
                let operands: Vec<Array> = sizes.iter().enumerate().map(operand).collect();
                let numbers = case.numbers(&nest);
                let failure =
                    agrees_specialised("convolution", &nest, &symbols, &operands, &numbers);
                assert_eq!(failure, None, "{case:?}");
            }
        }
    }
}

/// A window that moves by other steps, or of other sizes, than the kernel takes is left to the
/// generic executor.
#[test]
fn other_windows_agree_with_the_reference() {
    let (nest, mut symbols, sizes) = CASE.nest(DType::F32, false, true);
    let operands: Vec<Array> = sizes.iter().map(|sizes| operand(DType::F32, sizes)).collect();
    let backwards = [-1, -5, -1].map(Scalar::Int).repeat(2);
    assert_eq!(agrees_at(&nest, &symbols, &operands, &backwards), None);
    if let Some(last) = symbols.last_mut() {
        *last += 3;
    }
    assert_eq!(agrees_at(&nest, &symbols, &operands, &CASE.numbers(&nest)), None);
    // a transpose without a window, of a kernel that has one
    let one = Case { kernel: 1, padding: 0, ..CASE };
    let (nest, mut symbols, mut sizes) = one.nest(DType::F32, true, false);
    sizes[1][2] = 2;
    symbols[6] = 2;
    let operands: Vec<Array> = sizes.iter().map(|sizes| operand(DType::F32, sizes)).collect();
    assert_eq!(LoopKernel::new(nest.clone()).specialisation(), Some("convolution"));
    assert_eq!(agrees_at(&nest, &symbols, &operands, &[]), None);
}
