//! Nodes traced per second, for a chain of pointwise calls with symbolic sizes: `cargo run
//! --release -p maquette-trace --example trace_speed`.

use maquette_ops::{Result, Tensor};
use maquette_trace::TraceOptions;
use std::time::Instant;

fn main() -> Result<()> {
    let x = Tensor::from_vec(vec![1.0f32; 6], [2, 3]);
    for n in [1_000, 10_000, 100_000, 100_000] {
        let start = Instant::now();
        let chain = |x: Tensor| (0..n).fold(x, |x, i| if i % 2 == 0 { x + 1.0 } else { x * 2.0 });
        let traced = TraceOptions::symbolic().trace(chain, x.clone())?;
        let seconds = start.elapsed().as_secs_f64();
        assert_eq!(traced.graph().node_count(), n);
        println!("{n} nodes: {:.2} million a second", n as f64 / seconds / 1e6);
    }
    Ok(())
}
