//! What checking an operator costs. `cargo bench -p maquette-benches --bench opcheck`.

use criterion::{Criterion, criterion_group, criterion_main};
use maquette::library::{OpcheckOptions, opcheck, opcheck_with};
use maquette::prelude::*;

#[custom_op("bench::sin")]
fn sin(x: &Tensor) -> Result<Tensor> {
    Ok(Tensor::from(x.read::<f32>()?.mapv(f32::sin)))
}

#[register_fake(sin)]
fn sin_fake(_cx: &FakeCtx, x: &Tensor) -> Result<Tensor> {
    Ok(x.new_empty(x.sizes(), x.dtype()))
}

#[custom_op("bench::sin_out")]
fn sin_out(x: &Tensor, out: &mut Tensor) -> Result<()> {
    let x = x.read::<f32>()?;
    let mut out = out.write::<f32>()?;
    ensure!(out.shape() == x.shape(), "sizes differ");
    out.zip_mut_with(&x, |o, x| *o = x.sin());
    Ok(())
}

fn checking(c: &mut Criterion) {
    let x = || Tensor::zeros([4, 5], DType::F32);
    c.bench_function("opcheck, one tensor in and out", |b| {
        b.iter(|| opcheck(&sin::op(), args![x()]))
    });
    c.bench_function("the same without derived samples", |b| {
        b.iter(|| opcheck_with(&sin::op(), args![x()], OpcheckOptions::new().derive(0)));
    });
    c.bench_function("opcheck, one mutated tensor", |b| {
        b.iter(|| opcheck(&sin_out::op(), args![x(), x()]))
    });
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(20);
    targets = checking
}
criterion_main!(benches);
