//! Recurrent layers, and normalization by statistics of the batch or sample.

use super::calls::{calls, list, tuple_calls};
use super::methods;
use crate::dispatch::value::Value;
use crate::tensor::Tensor;
use crate::tensor::meta::IntoDims;

/// The configuration of a recurrent layer.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Recurrence {
    /// The number of stacked layers; at least 1.
    pub layers: i64,
    /// Whether the weights include input and hidden biases.
    pub biases: bool,
    /// Whether a second direction runs from the last step to the first.
    pub bidirectional: bool,
    /// Whether sequences are `[batch, time, features]` instead of `[time, batch, features]`.
    pub batch_first: bool,
    /// The probability of dropout between layers, in training.
    pub dropout: f64,
    /// Whether dropout applies.
    pub train: bool,
}

methods! {
    /// As [`Tensor::dropout`], in place.
    fn dropout_(p: f64, train: bool) = "dropout_";
}

calls! {
    /// Divides by the root mean square over the last dimensions, whose sizes are
    /// `normalized_shape`. `eps` defaults to the machine epsilon.
    fn rms_norm(normalized_shape: impl IntoDims, weight: Option<&Tensor>, eps: Option<f64>) =
        "rms_norm", Value::from_dims(normalized_shape), weight, eps;
    /// Batch normalization by the statistics of the batch, as in training. `running`, if given, is
    /// updated in place: `running = (1 - momentum) running + momentum statistic`, for mean and
    /// variance.
    fn batch_norm_train(
        weight: Option<&Tensor>,
        bias: Option<&Tensor>,
        running: Option<(&Tensor, &Tensor)>,
        momentum: f64,
        eps: f64,
    ) =
        "batch_norm", weight, bias, running.map(|r| r.0), running.map(|r| r.1), true, momentum, eps,
        false;
    /// Instance normalization: each channel of each sample by its own statistics.
    fn instance_norm(weight: Option<&Tensor>, bias: Option<&Tensor>, eps: f64) =
        "instance_norm", weight, bias, (), (), true, 0.0, eps, false;
    /// One step of a gated recurrent unit from the state `hx`. The weights are `w_ih`
    /// `[3 hidden, features]` and `w_hh` `[3 hidden, hidden]`.
    fn gru_cell(
        hx: &Tensor,
        w_ih: &Tensor,
        w_hh: &Tensor,
        b_ih: Option<&Tensor>,
        b_hh: Option<&Tensor>,
    ) =
        "gru_cell", hx, w_ih, w_hh, b_ih, b_hh;
}

tuple_calls! {
    /// A long short-term memory over a sequence. Returns the hidden states of all steps, and the
    /// last hidden and cell states of every layer and direction. `params` holds, layer by layer,
    /// the input and hidden weights, then the biases, then a projection if hidden and cell states
    /// differ in width.
    fn lstm(
        hx: (&Tensor, &Tensor),
        params: &[Tensor],
        r: Recurrence,
    ) -> (Tensor, Tensor, Tensor) =
        "lstm.input", list([hx.0, hx.1]), list(params), r.biases, r.layers, r.dropout, r.train,
        r.bidirectional, r.batch_first;
    /// As [`Tensor::lstm`], with gated recurrent units, which have no cell state.
    fn gru(hx: &Tensor, params: &[Tensor], r: Recurrence) -> (Tensor, Tensor) =
        "gru.input", hx, list(params), r.biases, r.layers, r.dropout, r.train, r.bidirectional,
        r.batch_first;
    /// One step of a long short-term memory from the states `hx`. Returns the next hidden and cell
    /// states.
    fn lstm_cell(
        hx: (&Tensor, &Tensor),
        w_ih: &Tensor,
        w_hh: &Tensor,
        b_ih: Option<&Tensor>,
        b_hh: Option<&Tensor>,
    ) -> (Tensor, Tensor) =
        "lstm_cell", list([hx.0, hx.1]), w_ih, w_hh, b_ih, b_hh;
}
