//! Operators that may write to arguments which their schemas do not mark: a graph holds the
//! operators that say so.

use insta::assert_snapshot;
use maquette_aten as _;
use maquette_ops::{Recurrence, Tensor};
use maquette_trace::{TraceOptions, trace};

fn ramp(sizes: [i64; 3]) -> Tensor {
    Tensor::from_vec(
        (0..sizes.iter().product()).map(|i| i as f32 * 0.25 - 1.0).collect::<Vec<f32>>(),
        sizes,
    )
}

#[test]
fn batch_norm_in_training_is_recorded_as_its_writes() {
    let norm = |(x, mean, var): (Tensor, Tensor, Tensor)| {
        x.batch_norm_train(None, None, Some((&mean, &var)), 0.5, 1e-5)
    };
    let statistics = || (Tensor::from([0.0f32, 0.0]), Tensor::from([1.0f32, 1.0]));
    let (mean, var) = statistics();
    let t = trace(norm, (ramp([3, 2, 2]), mean.clone(), var.clone())).unwrap();
    assert_snapshot!(t, @r"
    graph graph(%in0: f32[3, 2, 2], %in1: f32[2], %in2: f32[2]) -> (f32[3, 2, 2])
    {
      %_native_batch_norm_legit: f32[3, 2, 2], %_native_batch_norm_legit_1: f32[2], %_native_batch_norm_legit_2: f32[2] = aten::_native_batch_norm_legit(%in0, None, None, %in1, %in2, true, 0.5, 1e-5)
      return %_native_batch_norm_legit
    }
    ");
    assert_eq!(mean.to_vec::<f32>().unwrap(), [0.0, 0.0], "tracing writes nothing");
    let (eager_mean, eager_var) = statistics();
    let y = norm((ramp([3, 2, 2]), eager_mean.clone(), eager_var.clone()));
    let z = t.run((ramp([3, 2, 2]), mean.clone(), var.clone())).unwrap();
    let v = |t: &Tensor| t.to_vec::<f32>().unwrap();
    assert_eq!((v(&y), v(&eager_mean), v(&eager_var)), (v(&z), v(&mean), v(&var)));
    assert_ne!(v(&mean), [0.0, 0.0]);
}

#[test]
fn batch_norm_that_writes_nothing_is_recorded_as_called() {
    let (mean, var) = (Tensor::from([0.0f32, 0.0]), Tensor::from([1.0f32, 1.0]));
    let norm = |(x, mean, var): (Tensor, Tensor, Tensor)| {
        x.batch_norm(None, None, &mean, &var, 1e-5)
            + x.batch_norm_train(None, None, None, 0.5, 1e-5)
    };
    let t = trace(norm, (ramp([3, 2, 2]), mean, var)).unwrap();
    assert_snapshot!(t, @r"
    graph graph(%in0: f32[3, 2, 2], %in1: f32[2], %in2: f32[2]) -> (f32[3, 2, 2])
    {
      %batch_norm: f32[3, 2, 2] = aten::batch_norm(%in0, None, None, %in1, %in2, false, 0.0, 1e-5, false)
      %batch_norm_1: f32[3, 2, 2] = aten::batch_norm(%in0, None, None, None, None, true, 0.5, 1e-5, false)
      %add: f32[3, 2, 2] = aten::add.Tensor(%batch_norm, %batch_norm_1)
      return %add
    }
    ");
}

#[test]
fn a_recurrent_layer_is_one_node() {
    let weights = |g: i64| [ramp([1, g * 2, 3]).select(0, 0), ramp([1, g * 2, 2]).select(0, 0)];
    let layer = move |(x, h, w, u): (Tensor, Tensor, Tensor, Tensor)| {
        x.gru(&h, &[w, u], Recurrence { layers: 1, batch_first: true, ..Recurrence::default() }).0
    };
    let [w, u] = weights(3);
    let inputs = |b: i64, t: i64| (ramp([b, t, 3]), ramp([1, b, 2]), w.clone(), u.clone());
    let t =
        TraceOptions::symbolic().names(["x", "h", "w", "u"]).trace(layer, inputs(2, 4)).unwrap();
    assert_snapshot!(t, @r"
    graph graph(%x: f32[s0, s1, s2], %h: f32[s3, s4, s5], %w: f32[s6, s7], %u: f32[s8, s9]) -> (f32[s0, s1, s5] strides [max(1, s5), max(1, s0) * max(1, s5), 1])
      where s0 in [0, oo), s1 in [0, oo), s2 in [0, oo), s3 in [0, oo), s4 in [0, oo), s5 in [0, oo), s6 in [0, oo), s7 in [0, oo), s8 in [0, oo), s9 in [0, oo)
      guard s1 >= 1
      guard s3 == 1
      guard s0 == s4
      guard 3 * s5 == s6
      guard s2 == s7
      guard 3 * s5 == s8
      guard s5 == s9
    {
      %gru: f32[s0, s1, s5] strides [max(1, s5), max(1, s0) * max(1, s5), 1], %gru_1: f32[s3, s4, s5] = aten::gru.input(%x, %h, [%w, %u], false, 1, 0.0, false, false, true)
      return %gru
    }
    ");
    let (y, z) = (layer(inputs(3, 5)), t.run(inputs(3, 5)).unwrap());
    assert_eq!(y.to_vec::<f32>().unwrap(), z.to_vec::<f32>().unwrap());
}

#[test]
fn an_lstm_of_symbolic_widths() {
    let weights = |g: i64| [ramp([1, g * 2, 3]).select(0, 0), ramp([1, g * 2, 2]).select(0, 0)];
    let layer = |(x, h, c, w, u): (Tensor, Tensor, Tensor, Tensor, Tensor)| {
        x.lstm((&h, &c), &[w, u], Recurrence { layers: 1, ..Recurrence::default() }).0
    };
    let [w, u] = weights(4);
    let inputs = |t: i64| (ramp([t, 2, 3]), ramp([1, 2, 2]), ramp([1, 2, 2]), w.clone(), u.clone());
    let t = TraceOptions::symbolic().trace(layer, inputs(2)).unwrap();
    assert_eq!(
        layer(inputs(3)).to_vec::<f32>().unwrap(),
        t.run(inputs(3)).unwrap().to_vec::<f32>().unwrap()
    );
}
