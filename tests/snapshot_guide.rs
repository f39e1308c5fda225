//! The test that docs/snapshots.md shows.

use maquette::prelude::*;

#[test]
fn the_encoder() -> Result<()> {
    let x = Tensor::zeros([2, 4], DType::F32);
    let traced = TraceOptions::symbolic().names(["x"]).trace(|x: Tensor| x.relu(), x)?;
    assert_graph_snapshot!(traced);
    Ok(())
}
