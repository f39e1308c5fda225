//! Convolutions over any number of spatial dimensions, and their transposes.
//!
//! A convolution is a contraction of the weight with the windows of the input (im2col; Chellapilla
//! et al., 2006). The products of an output element come in the order of the channels, then of the
//! taps, the positions in the kernel. An element of the padding is a zero that is multiplied too.
//! A depthwise convolution, whose groups are single channels, contracts over taps alone.
//!
//! The transpose contracts over channels first. An output element is then the sum, from +0 and in
//! the order of the taps, of the products that reach it (col2im, as a gather).

use super::Input;
use crate::DType;
use crate::loops::fold::{Fold, Order};
use crate::loops::{
    Affine, Axes, AxisId, Index, IndexMap, LoopBuilder, LoopError, ScalarId, StageBuilder, StageId,
    StageKind, StageOutput,
};
use crate::scalar_expr::{BinaryOp, Bounds, CmpOp, Reg};
use crate::sym::Expr;
use smallvec::SmallVec;

/// A convolution of `x[N, C, …]`, with the result cast once. All is computed in the accumulator's
/// dtype.
#[derive(Clone, Copy, Debug)]
pub struct Convolution<'a> {
    /// The input: batch, channels, positions.
    pub x: &'a Input,
    /// The weight: output channels, input channels of a group, taps. The transpose has the input
    /// channels first, and the output channels of a group.
    pub weight: &'a Input,
    /// Added to each output channel.
    pub bias: Option<&'a Input>,
    /// The axes of the output's positions, one a spatial dimension.
    pub positions: &'a [AxisId],
    /// The window, one entry a spatial dimension. Without entries the window is one element, which
    /// moves by 1 without padding.
    pub window: &'a [WindowDim],
    /// The groups of channels.
    pub groups: ChannelGroups,
    /// Whether it is the transpose.
    pub transposed: bool,
    /// The dtype of the output.
    pub out: DType,
}

/// How channels are divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChannelGroups {
    /// One group.
    One,
    /// This many groups, at least 1.
    Several(Expr),
    /// A group for each channel, with one output channel. The convolution has a window, and is no
    /// transpose.
    EachChannel,
}

/// How a window moves along one dimension. The numbers are `i64`.
#[derive(Clone, Copy, Debug)]
pub struct WindowDim {
    /// The step between windows.
    pub stride: ScalarId,
    /// The zeros before the first element.
    pub padding: ScalarId,
    /// The distance between elements of a window.
    pub dilation: ScalarId,
}

/// The channels of a group, and how groups make up all channels.
struct Channels {
    /// The axis of the groups.
    group: Option<AxisId>,
    /// The axes of the output and input channels of a group. A group of one channel has one axis.
    out: AxisId,
    contracted: Option<AxisId>,
}

impl Convolution<'_> {
    fn channels(&self, nest: &mut LoopBuilder) -> Result<Channels, LoopError> {
        let [first, second] = [self.weight.axes[0], self.weight.axes[1]];
        let groups = match self.groups {
            ChannelGroups::Several(groups) => groups,
            ChannelGroups::EachChannel => {
                return Ok(Channels { group: None, out: first, contracted: None });
            }
            ChannelGroups::One => {
                let (out, contracted) =
                    if self.transposed { (second, first) } else { (first, second) };
                return Ok(Channels { group: None, out, contracted: Some(contracted) });
            }
        };
        let all = nest.nest().extent(first);
        let of_group = nest.symbols_mut().floor_div(all, groups);
        let of_group = nest.axis(of_group.map_err(|e| LoopError::new(e.to_string()))?);
        let group = Some(nest.axis(groups));
        let (out, contracted) =
            if self.transposed { (second, of_group) } else { (of_group, second) };
        Ok(Channels { group, out, contracted: Some(contracted) })
    }
}

impl Channels {
    /// The position of a group's channel among all channels.
    fn at(&self, nest: &LoopBuilder, channel: AxisId) -> Affine {
        let mut at = Affine::from(channel);
        at.terms.extend(self.group.map(|group| (group, nest.nest().extent(channel))));
        at
    }

    /// The axes of a batch, the group, its output channels, and others.
    fn over<'a>(&self, batch: AxisId, others: impl IntoIterator<Item = &'a AxisId>) -> Axes {
        let first = [batch].into_iter().chain(self.group).chain([self.out]);
        first.chain(others.into_iter().copied()).collect()
    }
}

/// Appends the stages of a convolution.
///
/// # Errors
/// The ranks differ or are less than 2, or the dtype is not a number.
pub fn convolution(nest: &mut LoopBuilder, of: &Convolution<'_>) -> Result<StageOutput, LoopError> {
    let (rank, positions) = (of.x.axes.len(), of.positions.len());
    let has_window = of.window.len() == positions || of.window.is_empty();
    if rank < 2 || of.weight.axes.len() != rank || rank - 2 != positions || !has_window {
        return Err(LoopError::new("the dimensions of a convolution do not agree"));
    }
    let is_depthwise = of.groups == ChannelGroups::EachChannel;
    if is_depthwise && (of.transposed || of.window.is_empty()) {
        return Err(LoopError::new("a depthwise convolution has windows"));
    }
    let channels = of.channels(nest)?;
    let sums = match of.transposed && !of.window.is_empty() {
        false => contraction(nest, of, &channels)?,
        true => gathered(nest, of, &channels)?,
    };
    finished(nest, of, &channels, sums)
}

/// The sums of products over input channels, and, of a convolution with a window, over taps.
fn contraction(
    nest: &mut LoopBuilder,
    of: &Convolution<'_>,
    channels: &Channels,
) -> Result<StageId, LoopError> {
    let (accumulator, taps) = (of.out.accumulator(), &of.weight.axes[2..]);
    let (batch, contracted) = (of.x.axes[0], channels.contracted);
    let has_taps = !of.transposed && !of.window.is_empty();
    let along = contracted.into_iter().chain(taps.iter().copied().filter(|_| has_taps));
    let along: Axes = along.collect();
    let over: Axes = channels.over(batch, of.positions.iter().chain(&along));
    let at_out = channels.at(nest, channels.out);
    let at_x = contracted.map_or(at_out.clone(), |axis| channels.at(nest, axis));
    let first = Affine { start: Expr::Int(0), terms: SmallVec::new() };
    // The transpose has its input channels first.
    let at_weight = match of.transposed {
        false => [at_out, contracted.map_or(first, Affine::from)],
        true => [at_x.clone(), channels.out.into()],
    };
    let at_taps = taps.iter().map(|tap| match has_taps {
        true => Index::from(*tap),
        false => Index::from(Expr::Int(0)),
    });
    let at_weight: IndexMap = at_weight.into_iter().map(Index::from).chain(at_taps).collect();
    let in_batch = [Index::from(batch), at_x.into()];
    nest.stage(&over, StageKind::Contract { along }, |s| {
        let weight = s.load(of.weight.id, at_weight)?;
        let weight = s.expr.cast(weight, accumulator)?;
        let x = if has_taps {
            let mut at = SmallVec::<[Reg; 4]>::new();
            for ((position, tap), window) in of.positions.iter().zip(taps).zip(of.window) {
                at.push(s.element_of_window(*position, *tap, window)?);
            }
            let map = in_batch.into_iter().chain(taps.iter().map(|_| Index::Computed));
            let zero = s.expr.constant(0, of.x.dtype);
            s.read(of.x.id, map.collect::<IndexMap>(), &at, Bounds::Else(zero), None)?
        } else {
            let map = in_batch.into_iter().chain(of.positions.iter().map(|p| Index::from(*p)));
            s.load(of.x.id, map.collect::<IndexMap>())?
        };
        Ok(vec![weight, s.expr.cast(x, accumulator)?])
    })
}

/// The sums of a transpose: for each output element, the products of the taps that reach it.
fn gathered(
    nest: &mut LoopBuilder,
    of: &Convolution<'_>,
    channels: &Channels,
) -> Result<StageId, LoopError> {
    let accumulator = of.out.accumulator();
    let (batch, taps, inputs) = (of.x.axes[0], &of.weight.axes[2..], &of.x.axes[2..]);
    let missing = || LoopError::new("a transpose contracts over channels");
    let contracted = channels.contracted.ok_or_else(missing)?;
    let along: Axes = [contracted].into_iter().collect();
    let over = channels.over(batch, taps.iter().chain(inputs).chain([&contracted]));
    let at = channels.at(nest, contracted);
    let at_weight = [at.clone(), channels.out.into()].map(Index::from);
    let at_weight = at_weight.into_iter().chain(taps.iter().map(|tap| Index::from(*tap)));
    let at_x = [Index::from(batch), at.into()].into_iter();
    let at_x = at_x.chain(inputs.iter().map(|i| Index::from(*i)));
    let products = nest.stage(&over, StageKind::Contract { along }, |s| {
        let weight = s.load(of.weight.id, at_weight.collect::<IndexMap>())?;
        let weight = s.expr.cast(weight, accumulator)?;
        let x = s.load(of.x.id, at_x.collect::<IndexMap>())?;
        Ok(vec![weight, s.expr.cast(x, accumulator)?])
    })?;
    let over = channels.over(batch, of.positions.iter().chain(taps));
    let of_channel = channels.over(batch, taps);
    nest.reduce(&over, taps, Fold::Sum, Order::Sequential, |s| {
        let mut at = SmallVec::<[Reg; 4]>::new();
        let mut reaches = None;
        for ((position, tap), window) in of.positions.iter().zip(taps).zip(of.window) {
            let (index, is_whole) = s.window_of_element(*position, *tap, window)?;
            at.push(index);
            reaches = Some(match reaches {
                Some(others) => s.expr.binary(BinaryOp::And, others, is_whole)?,
                None => is_whole,
            });
        }
        let map = of_channel.iter().map(|axis| Index::from(*axis));
        let map = map.chain(inputs.iter().map(|_| Index::Computed)).collect::<IndexMap>();
        let zero = s.expr.constant(0, accumulator);
        s.read(products, map, &at, Bounds::Else(zero), reaches)
    })
}

/// The sums with the bias, in the dtype of the output, with groups and their channels as one
/// dimension.
fn finished(
    nest: &mut LoopBuilder,
    of: &Convolution<'_>,
    channels: &Channels,
    sums: StageId,
) -> Result<StageOutput, LoopError> {
    let accumulator = of.out.accumulator();
    if channels.group.is_none() && of.bias.is_none() && accumulator == of.out {
        return Ok(sums.into());
    }
    let channel = match (of.groups, of.transposed) {
        (ChannelGroups::One | ChannelGroups::EachChannel, _) => channels.out,
        (ChannelGroups::Several(_), false) => of.weight.axes[0],
        (ChannelGroups::Several(groups), true) => {
            let of_group = nest.nest().extent(channels.out);
            let all = nest.symbols_mut().mul(of_group, groups);
            nest.axis(all.map_err(|e| LoopError::new(e.to_string()))?)
        }
    };
    let of_group = channels.group.map(|_| nest.size(nest.nest().extent(channels.out)));
    let lead = [of.x.axes[0], channel];
    let over: Axes = lead.iter().chain(of.positions).copied().collect();
    let result = nest.map(&over, |s| {
        let sum = match of_group {
            None => s.load(sums, &over[..])?,
            Some(of_group) => {
                let (channel, of_group) = (s.coord(channel), s.launch(of_group)?);
                let group = s.expr.binary(BinaryOp::FloorDiv, channel, of_group)?;
                let within = s.expr.binary(BinaryOp::Remainder, channel, of_group)?;
                let map = [Index::from(of.x.axes[0]), Index::Computed, Index::Computed].into_iter();
                let map = map.chain(of.positions.iter().map(|p| Index::from(*p)));
                s.read(sums, map.collect::<IndexMap>(), &[group, within], Bounds::Fails, None)?
            }
        };
        let sum = match of.bias {
            None => sum,
            Some(bias) => {
                let bias = s.load(bias.id, [channel])?;
                let bias = s.expr.cast(bias, accumulator)?;
                s.expr.binary(BinaryOp::Add, sum, bias)?
            }
        };
        Ok(s.expr.cast(sum, of.out)?)
    })?;
    Ok(result.into())
}

impl StageBuilder<'_> {
    /// The position of the element that a tap of a window sees.
    fn element_of_window(
        &mut self,
        window: AxisId,
        tap: AxisId,
        by: &WindowDim,
    ) -> Result<Reg, LoopError> {
        let (first, within) = self.window_terms(window, tap, by)?;
        let (stride, padding) = (self.launch(by.stride)?, self.launch(by.padding)?);
        let first = self.expr.binary(BinaryOp::Mul, first, stride)?;
        let element = self.expr.binary(BinaryOp::Add, first, within)?;
        Ok(self.expr.binary(BinaryOp::Sub, element, padding)?)
    }

    /// The window of which a tap sees an element, and whether there is one.
    fn window_of_element(
        &mut self,
        element: AxisId,
        tap: AxisId,
        by: &WindowDim,
    ) -> Result<(Reg, Reg), LoopError> {
        let (element, within) = self.window_terms(element, tap, by)?;
        let (stride, padding) = (self.launch(by.stride)?, self.launch(by.padding)?);
        let first = self.expr.binary(BinaryOp::Add, element, padding)?;
        let first = self.expr.binary(BinaryOp::Sub, first, within)?;
        let window = self.expr.binary(BinaryOp::FloorDiv, first, stride)?;
        let rest = self.expr.binary(BinaryOp::Remainder, first, stride)?;
        let zero = self.expr.constant(0, DType::I64);
        Ok((window, self.expr.compare(CmpOp::Eq, rest, zero)?))
    }

    /// The coordinate of an axis, and the distance of a tap from the first.
    fn window_terms(
        &mut self,
        axis: AxisId,
        tap: AxisId,
        by: &WindowDim,
    ) -> Result<(Reg, Reg), LoopError> {
        let (coord, tap, dilation) = (self.coord(axis), self.coord(tap), self.launch(by.dilation)?);
        Ok((coord, self.expr.binary(BinaryOp::Mul, tap, dilation)?))
    }
}
