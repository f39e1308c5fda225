//! Layers with state or statistics: recurrence, batch statistics, dropout.

use super::calls::{aten_outputs, calls, list, results};
use super::methods;
use crate::dispatch::value::Value;
use crate::tensor::Tensor;
use crate::tensor::meta::IntoDims;
use maquette_ir::Loc;

/// How a recurrent layer is built.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Recurrence {
    /// Layers, one on the other; at least 1.
    pub layers: i64,
    /// Weights come with input and hidden biases.
    pub biases: bool,
    /// A second direction, from the last step to the first.
    pub bidirectional: bool,
    /// Sequences are `[batch, time, features]` instead of `[time, batch, features]`.
    pub batch_first: bool,
    /// The probability with which elements between layers are dropped, in training.
    pub dropout: f64,
    /// Whether this is training.
    pub train: bool,
}

methods! {
    /// As [`Tensor::dropout`], in place.
    fn dropout_(p: f64, train: bool) = "dropout_";
}

calls! {
    /// Divided by the root of the mean square over the last dimensions, whose sizes are
    /// `normalized_shape`; `eps` is the smallest number that adds to 1 where absent.
    fn rms_norm(normalized_shape: impl IntoDims, weight: Option<&Tensor>, eps: Option<f64>) =
        "rms_norm", Value::from_dims(normalized_shape), weight, eps;
    /// Normalised by the statistics of the batch, channel by channel; the running mean and
    /// variance, if given, move towards them by `momentum`.
    fn batch_norm_train(
        weight: Option<&Tensor>,
        bias: Option<&Tensor>,
        running: Option<(&Tensor, &Tensor)>,
        momentum: f64,
        eps: f64,
    ) =
        "batch_norm", weight, bias, running.map(|r| r.0), running.map(|r| r.1), true, momentum, eps,
        false;
    /// Each sample's channels normalised by their own statistics.
    fn instance_norm(weight: Option<&Tensor>, bias: Option<&Tensor>, eps: f64) =
        "instance_norm", weight, bias, (), (), true, 0.0, eps, false;
    /// A convolution of volumes `[N, C, D, H, W]` or `[C, D, H, W]` with kernels `[O, C / groups,
    /// KD, KH, KW]`.
    fn conv3d(
        weight: &Tensor,
        bias: Option<&Tensor>,
        stride: impl IntoDims,
        padding: impl IntoDims,
        dilation: impl IntoDims,
        groups: i64,
    ) =
        "conv3d", weight, bias, Value::from_dims(stride), Value::from_dims(padding),
        Value::from_dims(dilation), groups;
    /// A transposed convolution of signals with kernels `[C, O / groups, K]`.
    fn conv_transpose1d(
        weight: &Tensor,
        bias: Option<&Tensor>,
        stride: impl IntoDims,
        padding: impl IntoDims,
        output_padding: impl IntoDims,
        groups: i64,
        dilation: impl IntoDims,
    ) =
        "conv_transpose1d", weight, bias, Value::from_dims(stride), Value::from_dims(padding),
        Value::from_dims(output_padding), groups, Value::from_dims(dilation);
    /// A transposed convolution of volumes with kernels `[C, O / groups, KD, KH, KW]`.
    fn conv_transpose3d(
        weight: &Tensor,
        bias: Option<&Tensor>,
        stride: impl IntoDims,
        padding: impl IntoDims,
        output_padding: impl IntoDims,
        groups: i64,
        dilation: impl IntoDims,
    ) =
        "conv_transpose3d.input", weight, bias, Value::from_dims(stride), Value::from_dims(padding),
        Value::from_dims(output_padding), groups, Value::from_dims(dilation);
    /// One step of a gated recurrent unit from the state `hx`; weights are `[3 hidden, features]`
    /// and `[3 hidden, hidden]`.
    fn gru_cell(
        hx: &Tensor,
        w_ih: &Tensor,
        w_hh: &Tensor,
        b_ih: Option<&Tensor>,
        b_hh: Option<&Tensor>,
    ) =
        "gru_cell", hx, w_ih, w_hh, b_ih, b_hh;
}

impl Tensor {
    /// A long short-term memory over a sequence: the hidden states of all steps, and the last
    /// hidden and cell state of every layer and direction. `params` holds input and hidden weights,
    /// then biases, then a projection if the states' widths differ, layer by layer.
    ///
    /// PyTorch: `aten::lstm.input`.
    #[track_caller]
    pub fn lstm(
        &self,
        hx: (&Tensor, &Tensor),
        params: &[Tensor],
        r: Recurrence,
    ) -> (Tensor, Tensor, Tensor) {
        let [y, h, c] = results(aten_outputs!("lstm.input", Loc::caller();
            self, list([hx.0, hx.1]), list(params), r.biases, r.layers, r.dropout, r.train,
            r.bidirectional, r.batch_first
        ));
        (y, h, c)
    }

    /// As [`Tensor::lstm`], of gated recurrent units, which have no cell state.
    ///
    /// PyTorch: `aten::gru.input`.
    #[track_caller]
    pub fn gru(&self, hx: &Tensor, params: &[Tensor], r: Recurrence) -> (Tensor, Tensor) {
        let [y, h] = results(aten_outputs!("gru.input", Loc::caller();
            self, hx, list(params), r.biases, r.layers, r.dropout, r.train, r.bidirectional,
            r.batch_first
        ));
        (y, h)
    }

    /// One step of a long short-term memory from the states `hx`: the next hidden and cell state.
    ///
    /// PyTorch: `aten::lstm_cell`.
    #[track_caller]
    pub fn lstm_cell(
        &self,
        hx: (&Tensor, &Tensor),
        w_ih: &Tensor,
        w_hh: &Tensor,
        b_ih: Option<&Tensor>,
        b_hh: Option<&Tensor>,
    ) -> (Tensor, Tensor) {
        let [h, c] = results(aten_outputs!("lstm_cell", Loc::caller();
            self, list([hx.0, hx.1]), w_ih, w_hh, b_ih, b_hh
        ));
        (h, c)
    }
}
