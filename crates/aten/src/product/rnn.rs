//! Recurrent layers: one operator runs a sequence through all layers and directions (`lstm`, `gru`,
//! `rnn_tanh`, `rnn_relu`), and single cells run one step.
//!
//! The input's contribution to the gates of all steps is one matrix product. The hidden state's
//! contribution is computed step by step.

use crate::shape::views;
use maquette_ir::Loc;
use maquette_ir::sym::SymInt;
use maquette_ops::operator::dims::{done, fresh, require, require_rank, require_same_dtype};
use maquette_ops::operator::lowering::{Class, Compute, How, Lowering, Metas, Strides};
use maquette_ops::operator::{Derivative, aten, cpu_exec, table};
use maquette_ops::operator::{require_equal, require_same};
use maquette_ops::{Dims, Error, Outputs, Result, Tensor, Value};
use smallvec::smallvec;

/// The kind of a cell.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cell {
    Lstm,
    Gru,
    Tanh,
    Relu,
}

/// The hidden state, and the cell state of an LSTM.
#[derive(Clone)]
struct State {
    h: Tensor,
    c: Option<Tensor>,
}

/// The weights of one layer in one direction, with PyTorch's names.
#[derive(Clone, Copy)]
struct Weights<'a> {
    ih: &'a Tensor,
    hh: &'a Tensor,
    b_ih: Option<&'a Tensor>,
    b_hh: Option<&'a Tensor>,
    /// The projection of the hidden state, if there is one.
    hr: Option<&'a Tensor>,
}

impl Cell {
    /// The number of gates, whose weights are concatenated.
    fn gates(self) -> i64 {
        match self {
            Cell::Lstm => 4,
            Cell::Gru => 3,
            Cell::Tanh | Cell::Relu => 1,
        }
    }

    /// The next state. `input` is the input's contribution to the gates, including its bias.
    fn step(self, input: &Tensor, state: &State, w: Weights<'_>) -> Result<State> {
        let recurrent = state.h.linear(w.hh, w.b_hh);
        let h = match (self, &state.c) {
            (Cell::Lstm, Some(c)) => {
                let gates = (recurrent + input).chunk(4, -1)?;
                let [i, f, g, o] = gates.as_slice() else { return Err(misfit("4 gates")) };
                let c = f.sigmoid() * c + i.sigmoid() * g.tanh();
                let h = o.sigmoid() * c.tanh();
                return Ok(State {
                    h: w.hr.map_or(h.clone(), |hr| h.linear(hr, None)),
                    c: Some(c),
                });
            }
            (Cell::Lstm, None) => return Err(misfit("a cell state")),
            (Cell::Gru, _) => {
                let (input, recurrent) = (input.chunk(3, -1)?, recurrent.chunk(3, -1)?);
                let ([ir, iz, inew], [hr, hz, hnew]) = (input.as_slice(), recurrent.as_slice())
                else {
                    return Err(misfit("3 gates"));
                };
                let (reset, update) = ((hr + ir).sigmoid(), (hz + iz).sigmoid());
                let new = (inew + hnew * &reset).tanh();
                (&state.h - &new) * update + new
            }
            (Cell::Tanh, _) => (recurrent + input).tanh(),
            (Cell::Relu, _) => (recurrent + input).relu(),
        };
        Ok(State { h, c: None })
    }
}

fn misfit(expected: &str) -> Error {
    Error::value(format!("a recurrent cell needs {expected}"))
}

/// A call. The arguments are `input, hx, params, has_biases, num_layers, dropout, train,
/// bidirectional, batch_first`.
struct Rnn<'a> {
    cell: Cell,
    input: &'a Tensor,
    /// The initial hidden states of all layers and directions.
    h: &'a Tensor,
    c: Option<&'a Tensor>,
    /// The weights by layer, then by direction.
    weights: Vec<Weights<'a>>,
    directions: usize,
    /// The dropout probability between layers.
    dropout: f64,
    batch_first: bool,
}

impl<'a> Rnn<'a> {
    /// Reads and checks the arguments. `params` lists the weights by layer and direction.
    fn of(args: &'a [Value], cell: Cell) -> Result<Rnn<'a>> {
        let states: Vec<&Tensor> = match &args[1] {
            Value::Tensor(_) => vec![args[1].tensor()?],
            other => other.list()?.iter().map(Value::tensor).collect::<Result<_>>()?,
        };
        let (h, c) = match (cell, states.as_slice()) {
            (Cell::Lstm, [h, c]) => (*h, Some(*c)),
            (Cell::Gru | Cell::Tanh | Cell::Relu, [h]) => (*h, None),
            _ => {
                return Err(Error::value(format!(
                    "`hx` must hold a hidden and a cell state, found {} tensors",
                    states.len()
                )));
            }
        };
        require_rank("input", args[0].tensor()?, 3..=3)?;
        states.iter().try_for_each(|t| require_rank("hx", t, 3..=3))?;
        let params: Vec<&Tensor> =
            args[2].list()?.iter().map(Value::tensor).collect::<Result<_>>()?;
        let (biases, layers, directions) =
            (args[3].bool()?, args[4].int_i64()?, 1 + usize::from(args[7].bool()?));
        let cells =
            usize::try_from(layers).ok().filter(|n| *n > 0).and_then(|n| n.checked_mul(directions));
        let plain = 2 + 2 * usize::from(biases);
        // The number of weights decides whether hidden states are projected, because sizes may be
        // symbolic.
        let counts = |each: usize| cells.and_then(|n| n.checked_mul(each)) == Some(params.len());
        let projected = c.is_some() && counts(plain + 1);
        let each = plain + usize::from(projected);
        if !counts(each) {
            let what = "`params` must hold input and hidden weights, biases if `has_biases`, and \
                in an LSTM a projection or none";
            return Err(Error::value(format!(
                "{what}, for {layers} layers (at least 1) in {directions} directions; found {} \
                    tensors",
                params.len()
            )));
        }
        let weights = params.chunks_exact(each).filter_map(|p| {
            let (&[ih, hh], rest) = p.split_first_chunk::<2>()?;
            let (b_ih, b_hh) =
                if biases { (rest.first().copied(), rest.get(1).copied()) } else { (None, None) };
            Some(Weights { ih, hh, b_ih, b_hh, hr: projected.then(|| p.last().copied()).flatten() })
        });
        let dropout = if args[6].bool()? { args[5].float()? } else { 0.0 };
        Ok(Rnn {
            cell,
            input: args[0].tensor()?,
            h,
            c,
            weights: weights.collect(),
            directions,
            dropout,
            batch_first: args[8].bool()?,
        })
    }

    /// Checks the weights of one layer with `width` input features, hidden states of size `out` and
    /// cell states of size `hidden`.
    #[track_caller]
    fn check_weights(
        &self,
        w: &Weights<'_>,
        width: SymInt,
        out: SymInt,
        hidden: SymInt,
    ) -> Result<()> {
        let gates = hidden * self.cell.gates();
        let expected: [(&str, Option<&Tensor>, Dims); 5] = [
            ("w_ih", Some(w.ih), smallvec![gates, width]),
            ("w_hh", Some(w.hh), smallvec![gates, out]),
            ("b_ih", w.b_ih, smallvec![gates]),
            ("b_hh", w.b_hh, smallvec![gates]),
            ("w_hr", w.hr, smallvec![out, hidden]),
        ];
        for (name, t, sizes) in expected.iter().filter_map(|(n, t, s)| Some((n, (*t)?, s))) {
            require_same_dtype(("input", self.input), (name, t))?;
            require_same(sizes, t.sizes(), || format!("`{name}` in `params` must have"))?;
        }
        Ok(())
    }

    /// The metadata of the output sequence and of the last states, after a check of all weights.
    #[track_caller]
    fn metas(&self) -> Result<Metas> {
        maquette_ops::operator::dims::require_float("input", self.input)?;
        let s = self.input.sizes();
        let (time, batch) = if self.batch_first { (s[1], s[0]) } else { (s[0], s[1]) };
        require(time.ge(1), || "the sequence in `input` must have at least one step".into())?;
        let (out, hidden) = (self.h.sizes()[2], self.c.unwrap_or(self.h).sizes()[2]);
        let cells = SymInt::from(self.weights.len());
        if self.weights.iter().all(|w| w.hr.is_none()) {
            let wrong = || {
                Error::value(format!(
                    "states in `hx` must have equal widths without a projection, found {out} and \
                        {hidden}"
                ))
            };
            require_equal(out, hidden, &wrong)?;
        }
        for (t, width) in [(self.h, out)].into_iter().chain(self.c.map(|c| (c, hidden))) {
            require_same_dtype(("input", self.input), ("hx", t))?;
            require_same(&[cells, batch, width], t.sizes(), || "`hx` must have".into())?;
        }
        let features = out * self.directions as i64;
        for (layer, weights) in self.weights.chunks(self.directions).enumerate() {
            for w in weights {
                self.check_weights(w, if layer == 0 { s[2] } else { features }, out, hidden)?;
            }
        }
        let fresh = |sizes: Dims| fresh(self.input, sizes, self.input.dtype());
        let sequence = fresh(smallvec![time, batch, features]);
        let sequence = if self.batch_first { views::transpose(&sequence, 0, 1)? } else { sequence };
        let mut metas: Metas = smallvec![sequence, fresh(self.h.sizes().into())];
        metas.extend(self.c.map(|c| fresh(c.sizes().into())));
        Ok(metas)
    }

    /// Runs one layer in one direction. Returns the hidden states of all steps and the last state.
    fn direction(
        &self,
        inputs: &Tensor,
        w: Weights<'_>,
        mut state: State,
        reverse: bool,
    ) -> Result<(Tensor, State)> {
        // The input's contribution of all steps is one matrix product.
        let mut steps = inputs.linear(w.ih, w.b_ih).unbind(0)?;
        let mut hidden = Vec::with_capacity(steps.len());
        if reverse {
            steps.reverse();
        }
        for x in &steps {
            state = self.cell.step(x, &state, w)?;
            hidden.push(state.h.clone());
        }
        if reverse {
            hidden.reverse();
        }
        Ok((Tensor::stack(&hidden, 0), state))
    }

    /// Runs all layers. Dropout applies between layers. Returns the sequence and the last states.
    fn run(&self) -> Result<Outputs> {
        let mut sequence =
            if self.batch_first { self.input.transpose(0, 1) } else { self.input.clone() };
        let layers = self.weights.len() / self.directions;
        let mut last: Vec<State> = Vec::new();
        for (layer, weights) in self.weights.chunks(self.directions).enumerate() {
            let mut parts = Vec::new();
            for (d, w) in weights.iter().enumerate() {
                let at = last.len() as i64;
                let first = State { h: self.h.select(0, at), c: self.c.map(|c| c.select(0, at)) };
                let (hidden, state) = self.direction(&sequence, *w, first, d == 1)?;
                parts.push(hidden);
                last.push(state);
            }
            sequence =
                if parts.len() == 1 { parts.swap_remove(0) } else { Tensor::cat(&parts, -1) };
            if self.dropout > 0.0 && layer + 1 < layers {
                sequence = aten!("dropout", Loc::caller(); &sequence, self.dropout, true);
            }
        }
        let sequence = if self.batch_first { sequence.transpose(0, 1) } else { sequence };
        let h = Tensor::stack(last.iter().map(|s| &s.h), 0);
        let c = self.c.map(|_| Tensor::stack(last.iter().filter_map(|s| s.c.as_ref()), 0));
        let results = [Some(sequence), Some(h), c].into_iter().flatten();
        results.map(|t| Ok(Value::Tensor(t.ok()?.clone()))).collect()
    }

    /// As [`Rnn::run`], into given results.
    fn run_into(&self, outs: &[Tensor]) -> Result<()> {
        self.run()?.iter().zip(outs).try_for_each(|(from, to)| cpu_exec::copy(from.tensor()?, to))
    }
}

/// One step of a cell. The arguments are `input, hx, w_ih, w_hh, b_ih, b_hh`.
fn step(args: &[Value], cell: Cell) -> Result<Outputs> {
    let input = args[0].tensor()?;
    let w = Weights {
        ih: args[2].tensor()?,
        hh: args[3].tensor()?,
        b_ih: args[4].opt_tensor()?,
        b_hh: args[5].opt_tensor()?,
        hr: None,
    };
    let state = match (cell, &args[1]) {
        (Cell::Lstm, hx) => match hx.list()? {
            [h, c] => State { h: h.tensor()?.clone(), c: Some(c.tensor()?.clone()) },
            other => {
                return Err(Error::value(format!(
                    "`hx` must hold a hidden and a cell state, found {} tensors",
                    other.len()
                )));
            }
        },
        (_, hx) => State { h: hx.tensor()?.clone(), c: None },
    };
    let next = cell.step(&input.linear(w.ih, w.b_ih), &state, w)?;
    let mut out = done(next.h)?;
    if let Some(c) = next.c {
        out.extend(done(c)?);
    }
    Ok(out)
}

/// The operator that runs a sequence with one kind of cell.
macro_rules! sequence {
    ($cell:expr) => {
        Lowering::Compute(Compute {
            class: Class::Recurrent,
            strides: Strides::RowMajor,
            metas: |_, a| Rnn::of(a, $cell)?.metas(),
            how: How::Host(|a, out| Rnn::of(a, $cell)?.run_into(out)),
        })
    };
}

table! {
    /// Recurrent layers and cells.
    static TABLE = {
        "aten::lstm.input(Tensor input, Tensor[] hx, Tensor[] params, bool has_biases, \
            int num_layers, float dropout, bool train, bool bidirectional, \
            bool batch_first) -> (Tensor, Tensor, Tensor)" => {
            role: General,
            lowering: sequence!(Cell::Lstm),
            vjp: Derivative::Calls(|a| Rnn::of(a, Cell::Lstm)?.run()),
        },
        "aten::gru.input(Tensor input, Tensor hx, Tensor[] params, bool has_biases, \
            int num_layers, float dropout, bool train, bool bidirectional, \
            bool batch_first) -> (Tensor, Tensor)" => {
            role: General,
            lowering: sequence!(Cell::Gru),
            vjp: Derivative::Calls(|a| Rnn::of(a, Cell::Gru)?.run()),
        },
        "aten::rnn_tanh.input(Tensor input, Tensor hx, Tensor[] params, bool has_biases, \
            int num_layers, float dropout, bool train, bool bidirectional, \
            bool batch_first) -> (Tensor, Tensor)" => {
            role: General,
            lowering: sequence!(Cell::Tanh),
            vjp: Derivative::Calls(|a| Rnn::of(a, Cell::Tanh)?.run()),
        },
        "aten::rnn_relu.input(Tensor input, Tensor hx, Tensor[] params, bool has_biases, \
            int num_layers, float dropout, bool train, bool bidirectional, \
            bool batch_first) -> (Tensor, Tensor)" => {
            role: General,
            lowering: sequence!(Cell::Relu),
            vjp: Derivative::Calls(|a| Rnn::of(a, Cell::Relu)?.run()),
        },
        "aten::lstm_cell(Tensor input, Tensor[] hx, Tensor w_ih, Tensor w_hh, \
            Tensor? b_ih=None, Tensor? b_hh=None) -> (Tensor, Tensor)" => {
            role: General,
            lowering: Lowering::Composite(|a| step(a, Cell::Lstm)),
        },
        "aten::gru_cell(Tensor input, Tensor hx, Tensor w_ih, Tensor w_hh, \
            Tensor? b_ih=None, Tensor? b_hh=None) -> Tensor" => {
            role: General,
            lowering: Lowering::Composite(|a| step(a, Cell::Gru)),
        },
        "aten::rnn_tanh_cell(Tensor input, Tensor hx, Tensor w_ih, Tensor w_hh, \
            Tensor? b_ih=None, Tensor? b_hh=None) -> Tensor" => {
            role: General,
            lowering: Lowering::Composite(|a| step(a, Cell::Tanh)),
        },
        "aten::rnn_relu_cell(Tensor input, Tensor hx, Tensor w_ih, Tensor w_hh, \
            Tensor? b_ih=None, Tensor? b_hh=None) -> Tensor" => {
            role: General,
            lowering: Lowering::Composite(|a| step(a, Cell::Relu)),
        },
    }
}
