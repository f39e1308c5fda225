//! Computations by contractions: products, convolutions, attention.

use super::template::is_nest;
use crate::DType;
use crate::loops::named::{self, Addend, ChannelGroups, Scale, WindowDim};
use crate::loops::{LaunchScalar, LoopBuilder, LoopNest, StageKind};
use smallvec::SmallVec;

/// A product of matrices or vectors, or a batch of them, in one dtype. Operands are the factors and
/// the addend. The numbers of a launch are the factor of the product, then that of the addend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Product {
    /// Whether the left factor is a vector.
    pub is_row: bool,
    /// Whether the right factor is a vector.
    pub is_column: bool,
    /// Whether the product has a factor.
    pub has_alpha: bool,
    /// Whether something is added to the product.
    pub has_addend: bool,
}

pub(super) fn product(nest: &LoopNest) -> Option<Product> {
    let (operands, [result], [first, ..]) = (nest.operands(), nest.results(), nest.stages()) else {
        return None;
    };
    let StageKind::Contract { along } = &first.kind else { return None };
    let (out, [a, b, added @ ..]) = (nest.dtype(*result)?, operands) else { return None };
    let contracted = along.first()?;
    let at_b = &first.loads.get(1)?.at;
    let batch = at_b.indices().iter().position(|i| *i == (*contracted).into())?;
    let is_same_dtype = operands.iter().all(|operand| operand.dtype == out);
    let [own_a, own_b] = [a, b].map(|operand| operand.sizes.len().checked_sub(batch));
    if !is_same_dtype || !(1..=2).contains(&own_a?) {
        return None;
    }
    let (has_alpha, has_addend) = (!nest.scalars().is_empty(), !added.is_empty());
    let matches = is_nest(nest, |nest, inputs| {
        let accumulator = out.accumulator();
        let alpha = has_alpha.then(|| nest.number(accumulator));
        let addend = inputs.get(2).map(|of| Addend { beta: nest.number(accumulator), of });
        let (a, b) = (&inputs[0], &inputs[1]);
        Ok([named::product(nest, &named::Product { a, b, batch, alpha, addend, out })?])
    });
    let (is_row, is_column) = (own_a == Some(1), own_b == Some(1));
    matches.then_some(Product { is_row, is_column, has_alpha, has_addend })
}

/// A convolution of images, in one dtype. Operands are the images, the weight and the bias.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Convolution {
    /// Whether the convolution is a transposed one.
    pub transposed: bool,
    /// Whether stride, padding and dilation of each dimension are numbers of a launch, in this
    /// order. Otherwise windows have one element.
    pub has_window: bool,
}

pub(super) fn convolution(nest: &LoopNest) -> Option<Convolution> {
    let (operands, [result], [first, ..]) = (nest.operands(), nest.results(), nest.stages()) else {
        return None;
    };
    let StageKind::Contract { along } = &first.kind else { return None };
    let (out, [x, weight, bias @ ..]) = (nest.dtype(*result)?, operands) else { return None };
    let rank = x.sizes.len();
    let is_same_dtype = operands.iter().all(|operand| operand.dtype == out);
    if bias.len() > 1 || rank < 3 || weight.sizes.len() != rank || !is_same_dtype {
        return None;
    }
    let is_number = |s: &LaunchScalar| matches!(s, LaunchScalar::Number(_));
    let has_window = nest.scalars().iter().any(is_number);
    // A depthwise convolution contracts over taps alone, and others over channels, too.
    let is_depthwise = has_window && along.len() == rank - 2 && first.axes().len() == rank;
    // A transpose, and a window of one element, do not contract over taps.
    let transposed = along.len() == 1 && !is_depthwise;
    let kept = if transposed && has_window { 2 * rank - 2 } else { rank };
    let is_grouped = first.axes().len() == kept + 1;
    let matches = is_nest(nest, |nest, inputs| {
        let groups = match (is_depthwise, is_grouped) {
            (true, _) => ChannelGroups::EachChannel,
            (_, true) => ChannelGroups::Several(nest.new_size()),
            _ => ChannelGroups::One,
        };
        let sizes: SmallVec<[_; 3]> = (2..rank).map(|_| nest.new_size()).collect();
        let positions: SmallVec<[_; 3]> = sizes.into_iter().map(|size| nest.axis(size)).collect();
        let mut number = || nest.number(DType::I64);
        let dim = || WindowDim { stride: number(), padding: number(), dilation: number() };
        let dims = if has_window { rank - 2 } else { 0 };
        let window: SmallVec<[_; 3]> = std::iter::repeat_with(dim).take(dims).collect();
        let (x, weight, bias) = (&inputs[0], &inputs[1], inputs.get(2));
        let (positions, window) = (&positions[..], &window[..]);
        let of = named::Convolution { x, weight, bias, positions, window, groups, transposed, out };
        Ok([named::convolution(nest, &of)?])
    });
    matches.then_some(Convolution { transposed, has_window })
}

/// Scaled dot-product attention in one dtype, but for the mask. Operands are queries, keys, values
/// and the mask; results are the output and the logarithms of the sums of the rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attention {
    /// Whether a query sees the keys up to its own position alone.
    pub causal: bool,
    /// Whether several heads of queries share one of keys and values.
    pub grouped: bool,
    /// Whether the weights are rounded to the dtype of the values.
    pub round: bool,
    /// Whether a row without a key is NaN, and not 0.
    pub plain_softmax: bool,
    /// Whether the factor of the scores is a number of the launch.
    pub is_scale_given: bool,
}

pub(super) fn attention(nest: &LoopNest) -> Option<Attention> {
    let (operands, [result, logarithms @ ..], [first, second, ..]) =
        (nest.operands(), nest.results(), nest.stages())
    else {
        return None;
    };
    let is_product = |kind: &StageKind| matches!(kind, StageKind::Contract { .. });
    let (out, [query, key, value, mask @ ..]) = (nest.dtype(*result)?, operands) else {
        return None;
    };
    let is_same_dtype = [query, key, value].iter().all(|operand| operand.dtype == out);
    if !is_product(&first.kind)
        || !is_product(&second.kind)
        || !is_same_dtype
        || !out.is_float()
        || mask.len() > 1
        || logarithms.len() > 1
    {
        return None;
    }
    let logarithms = match logarithms {
        [logarithms] => Some(nest.dtype(*logarithms)?),
        _ => None,
    };
    // The scores have an axis for each dimension of the output but the last, and one for the keys.
    let batch = first.axes().len().checked_sub(2)?;
    let grouped = first.loads.get(1).is_some_and(|load| !load.at.is_affine());
    let is_scale_given = matches!(nest.scalars().first(), Some(LaunchScalar::Number(_)));
    let all = [false, true];
    let options = all.into_iter().flat_map(|plain| all.map(|causal| (plain, causal)));
    options.flat_map(|(plain, causal)| all.map(|round| (plain, causal, round))).find_map(
        |(plain_softmax, causal, round)| {
            let build = |nest: &mut LoopBuilder, inputs: &[named::Input]| {
                let sizes: SmallVec<[_; 4]> = (0..batch).map(|_| nest.new_size()).collect();
                let batch: SmallVec<[_; 4]> =
                    sizes.into_iter().map(|size| nest.axis(size)).collect();
                let scale = match is_scale_given {
                    true => Scale::Number(nest.number(out.accumulator())),
                    false => Scale::Width,
                };
                let of = named::Attention {
                    query: &inputs[0],
                    key: &inputs[1],
                    value: &inputs[2],
                    mask: inputs.get(3),
                    batch: &batch,
                    causal,
                    scale,
                    grouped,
                    round,
                    plain_softmax,
                    out,
                };
                named::attention(nest, &of)
            };
            let matches = match logarithms {
                None => is_nest(nest, |nest, inputs| Ok([build(nest, inputs)?.output])),
                Some(dtype) => is_nest(nest, |nest, inputs| {
                    let attended = build(nest, inputs)?;
                    Ok([attended.output, named::logarithms(nest, &attended, dtype)?])
                }),
            };
            matches.then_some(Attention { causal, grouped, round, plain_softmax, is_scale_given })
        },
    )
}
