//! What `explain` says.

use super::*;
use maquette_trace::Dim;

#[test]
fn programs_with_reasons_and_guards() {
    let f = CompileOptions::new().names(["x", "total"]).name("model").compile(
        |(x, total): (Tensor, Tensor)| -> Result<Tensor> {
            total.add_(x.sum());
            Ok(if x.size(0).gt(2).guard()? { x.relu() } else { x + 1.0 })
        },
    );
    insta::assert_snapshot!(f.explain(), @"");
    let total = Tensor::zeros([1], DType::F32);
    for x in [arange(3), arange(4), arange(2), rows(3).t(), arange(3).to_dtype(DType::F64)] {
        f.call((x, total.clone())).unwrap();
    }
    let all = arange(4);
    let (x, total) = (all.slice(0, 0..3), all.slice(0, 3..));
    f.call((x, total)).unwrap();
    insta::assert_snapshot!(without_lines(&f.explain().to_string()), @"");
}

#[test]
fn sizes_that_are_required() {
    let f = CompileOptions::new().names(["x"]).compile(|x: Tensor| -> Result<Tensor> {
        let n = x.size(0).guard_int()?;
        Ok(x * n as f64)
    });
    f.call(arange(3)).unwrap();
    f.call(arange(4)).unwrap();
    insta::assert_snapshot!(without_lines(&f.explain().to_string()), @"");
}

#[test]
fn composites_that_stay() {
    let f = CompileOptions::new()
        .dynamic(0, 0, Dim::new("n"))
        .stance(Stance::FailOnRecompile)
        .compile(|x: Tensor| x.chunk(2, 0));
    f.call(arange(4)).unwrap();
    insta::assert_snapshot!(without_lines(&f.explain().to_string()), @"");
}
