//! The snapshot macro, which the feature `check` adds.
#![cfg(feature = "check")]

use maquette_aten as _;
use maquette_ops::Tensor;
use maquette_trace::{assert_graph_snapshot, trace};

#[test]
fn a_graph_is_compared_as_text() {
    let t = trace(|x: Tensor| x.relu(), Tensor::from([1.0f32])).unwrap();
    assert_graph_snapshot!(t.graph(), @r"
    graph graph(%in0: f32[1]) -> (f32[1])
    {
      %relu: f32[1] = aten::relu(%in0)
      return %relu
    }
    ");
}
