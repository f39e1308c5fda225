//! Times a few kernels: `cargo run --release -p maquette-kernels --example kernel_speed`.

use maquette_ir::DType::F32;
use maquette_ir::scalar_expr::{BinaryOp, ExprBuilder, ScalarExpr, UnaryOp};
use maquette_kernels::{
    LayerNorm, ReduceOp, View, ViewMut, gemm, layer_norm, pointwise, reduce, softmax,
};
use std::time::{Duration, Instant};

fn time(name: &str, mut f: impl FnMut()) {
    f();
    let mut best = Duration::MAX;
    for _ in 0..12 {
        let t = Instant::now();
        f();
        best = best.min(t.elapsed());
    }
    println!("{name:<40} {:>10.3} ms", best.as_secs_f64() * 1e3);
}

fn chain(transcendental: bool) -> Option<ScalarExpr> {
    let mut b = ExprBuilder::new();
    let mut x = b.input(F32);
    for i in 0..5 {
        let c = b.constant(1.0 + f64::from(i) * 0.01, F32);
        x = b.binary(BinaryOp::Mul, x, c).ok()?;
        x = b.binary(BinaryOp::Add, x, c).ok()?;
    }
    if transcendental {
        x = b.unary(UnaryOp::Tanh, x).ok()?;
        x = b.unary(UnaryOp::Sigmoid, x).ok()?;
    }
    b.finish(&[x]).ok()
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let n = 16 << 20;
    let x: Vec<f32> = (0..n).map(|i| (i % 1000) as f32 * 0.001).collect();
    let mut y = vec![0f32; n];
    for (name, e) in [
        ("copy, 16M", Some(ScalarExpr::cast(F32, F32))),
        ("exp, 16M", ScalarExpr::unary(UnaryOp::Exp, F32).ok()),
        ("tanh, 16M", ScalarExpr::unary(UnaryOp::Tanh, F32).ok()),
        ("erf, 16M", ScalarExpr::unary(UnaryOp::Erf, F32).ok()),
        ("sin, 16M", ScalarExpr::unary(UnaryOp::Sin, F32).ok()),
        ("chain of 10, 16M", chain(false)),
        ("chain of 10, tanh, sigmoid, 16M", chain(true)),
    ] {
        let e = e.ok_or("ill-typed")?;
        time(name, || {
            pointwise(&e, &[View::from_slice(&x)], &mut [ViewMut::from_slice(&mut y)])
                .unwrap_or_else(|e| println!("{e}"))
        });
    }
    let add = ScalarExpr::binary(BinaryOp::Add, F32)?;
    time("add, 64 elements (per 1000 calls)", || {
        for _ in 0..1000 {
            let _ = pointwise(
                &add,
                &[View::from_slice(&x[..64]), View::from_slice(&x[..64])],
                &mut [ViewMut::from_slice(&mut y[..64])],
            );
        }
    });
    let mut s = [0f32];
    time("sum, 16M", || {
        reduce(ReduceOp::Sum, &View::from_slice(&x), &[0], &mut ViewMut::from_slice(&mut s))
            .unwrap_or_else(|e| println!("{e}"))
    });
    let sizes = [4096, 1024];
    let m = View::from_slice_sized(&x[..4096 * 1024], &sizes).ok_or("size")?;
    let mut cols = vec![0f32; 1024];
    time("column sums, 4096x1024", || {
        reduce(ReduceOp::Sum, &m, &[0], &mut ViewMut::from_slice(&mut cols))
            .unwrap_or_else(|e| println!("{e}"))
    });
    let mut out = vec![0f32; 4096 * 1024];
    let mut o = ViewMut::from_slice_sized(&mut out, &sizes).ok_or("size")?;
    time("softmax, 4096x1024", || softmax(&m, 1, &mut o).unwrap_or_else(|e| println!("{e}")));
    time("layer_norm, 4096x1024", || {
        layer_norm(&m, 1, 1e-5, LayerNorm::default(), &mut o).unwrap_or_else(|e| println!("{e}"))
    });
    for (mm, kk, nn) in [(128usize, 384usize, 384usize), (128, 384, 1536), (1024, 1024, 1024)] {
        let a = View::from_slice_sized(&x[..mm * kk], &[mm as i64, kk as i64]).ok_or("size")?;
        let b = View::from_slice_sized(&x[..kk * nn], &[kk as i64, nn as i64]).ok_or("size")?;
        let mut c = vec![0f32; mm * nn];
        let mut c = ViewMut::from_slice_sized(&mut c, &[mm as i64, nn as i64]).ok_or("size")?;
        time(&format!("gemm {mm}x{kk}x{nn}"), || {
            gemm(&a, &b, &mut c, 1.0, 0.0).unwrap_or_else(|e| println!("{e}"))
        });
    }
    Ok(())
}
