//! Convolutions by the kernel of [`conv`](crate::conv()) and
//! [`conv_transpose`](crate::conv_transpose()).

use super::Special;
use super::template::{found, is_nest};
use crate::conv::Form;
use crate::error::Result;
use crate::isa::Isa;
use crate::view::{View, ViewMut};
use crate::window::Window;
use maquette_ir::loops::named::{self, ChannelGroups, WindowDim};
use maquette_ir::loops::{LaunchScalar, LoopNest, StageKind};
use maquette_ir::{DType, Scalar};
use smallvec::SmallVec;
use std::sync::Arc;

#[derive(Debug)]
struct Convolution {
    transposed: bool,
    /// Whether the nest has the numbers of a window.
    has_window: bool,
}

pub(super) fn matches(nest: &LoopNest) -> Option<Arc<dyn Special>> {
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
    let is_number = |s: &&LaunchScalar| matches!(s, LaunchScalar::Number(_));
    let has_window = nest.scalars().iter().any(|s| is_number(&s));
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
    found(matches, Convolution { transposed, has_window })
}

impl Special for Convolution {
    fn run(
        &self,
        isa: Isa,
        operands: &[View<'_>],
        numbers: &[Scalar],
        results: &mut [ViewMut<'_>],
    ) -> Result<bool> {
        let ([x, weight, bias @ ..], [out]) = (operands, results) else { return Ok(false) };
        let number = |of: usize, without_window: i64| -> Vec<i64> {
            let given = |d: usize| numbers.get(3 * d + of).map(|n| n.to_i64());
            (0..x.rank() - 2).map(|d| given(d).unwrap_or(without_window)).collect()
        };
        let w = Window {
            kernel: weight.sizes()[2..].to_vec(),
            stride: number(0, 1),
            padding: number(1, 0),
            dilation: number(2, 1),
            ceil_mode: false,
        };
        // The channels of one group are a dimension of the weight.
        let all = if self.transposed { out.sizes()[1] } else { x.sizes()[1] };
        let groups = if weight.sizes()[1] == 0 { 1 } else { all / weight.sizes()[1] };
        let form = Form { w: &w, groups, transposed: self.transposed };
        // The kernel adds no sum of one tap to +0, so its order is that of another nest.
        let is_other = self.transposed && self.has_window == form.is_plain(x, out);
        if is_other || form.check(x, weight, bias.first(), out).is_err() {
            return Ok(false);
        }
        form.run(isa, x, weight, bias.first(), out)?;
        Ok(true)
    }
}
