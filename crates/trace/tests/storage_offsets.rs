//! Where inputs begin in their storages, and what a trace may not do.

use maquette_aten as _;
use maquette_ir::DType;
use maquette_ir::sym::SymInt;
use maquette_ops::{ErrorKind, Result, RunError, Tensor, TraceError};
use maquette_trace::{TraceOptions, trace};

fn numbers() -> Tensor {
    Tensor::from((0..8).map(|i| i as f32).collect::<Vec<_>>())
}

#[test]
fn an_input_may_begin_anywhere() {
    let base = numbers();
    let model = |x: Tensor| (x.slice(0, 1..3), &x + 1.0, x.view_dtype(DType::I32));
    let t = trace(model, base.slice(0, 0..4)).unwrap();
    for part in [base.slice(0, 0..4), base.slice(0, 4..8)] {
        let (eager, run) = (model(part.clone()), t.run(part).unwrap());
        assert_eq!(eager.0.to_vec::<f32>().unwrap(), run.0.to_vec::<f32>().unwrap());
        assert_eq!(eager.1.to_vec::<f32>().unwrap(), run.1.to_vec::<f32>().unwrap());
        assert_eq!(eager.2.to_vec::<i32>().unwrap(), run.2.to_vec::<i32>().unwrap());
    }
}

#[test]
fn an_absolute_offset_is_not_guessed() {
    let base = numbers();
    let t = trace(|x: Tensor| x.as_strided([2], [1], Some(SymInt::from(1))), numbers()).unwrap();
    assert_eq!(t.run(numbers()).unwrap().to_vec::<f32>().unwrap(), [1.0, 2.0]);
    let short =
        trace(|x: Tensor| x.as_strided([2], [1], Some(SymInt::from(1))), base.slice(0, 4..8))
            .unwrap();
    let e = short.run(base.slice(0, 4..8)).unwrap_err();
    assert!(matches!(e.kind(), ErrorKind::Run(RunError::AbsoluteOffset)), "{e}");
    let offset =
        |x: Tensor| -> Result<Tensor> { Ok(x.as_strided([2], [1], Some(x.storage_offset() + 1))) };
    let e = trace(offset, base.slice(0, 4..8)).unwrap_err();
    assert!(e.to_string().contains("where a tensor begins in its storage may differ"), "{e}");
}

#[test]
fn a_graph_is_not_run_inside_a_trace() {
    let inner = trace(|x: Tensor| x + 1.0, numbers()).unwrap();
    let e = trace(|x: Tensor| -> Result<Tensor> { Ok(inner.run(numbers())? + x) }, numbers())
        .unwrap_err();
    assert!(matches!(e.kind(), ErrorKind::Trace(TraceError::Run)), "{e}");
}

#[test]
fn causal_attention_traces_symbolically() {
    let model = |(q, k, v): (Tensor, Tensor, Tensor)| {
        q.scaled_dot_product_attention(&k, &v, None, true, None, false)
    };
    let sample = |n: i64| {
        let x = Tensor::arange(n * 4).to_dtype(DType::F32).view([1, 1, n, 4]) * 0.1;
        (x.clone(), &x + 0.5, &x - 0.5)
    };
    let t = TraceOptions::new().dynamic(0, 2, maquette_trace::Dim::new("n")).dynamic(
        1,
        2,
        maquette_trace::Dim::new("n"),
    );
    let t = t.dynamic(2, 2, maquette_trace::Dim::new("n")).trace(model, sample(3)).unwrap();
    // one row would broadcast, and the trace was made for several
    for n in [2, 3, 6] {
        assert_eq!(
            model(sample(n)).to_vec::<f32>().unwrap(),
            t.run(sample(n)).unwrap().to_vec::<f32>().unwrap()
        );
    }
}

#[test]
fn a_guard_that_cannot_be_evaluated_does_not_hold() {
    let t = TraceOptions::symbolic().trace(|x: Tensor| x.chunk(2, 0), numbers()).unwrap();
    let e = t.run(Tensor::zeros([0], DType::F32)).unwrap_err();
    assert!(matches!(e.kind(), ErrorKind::Run(RunError::Guard { .. })), "{e}");
}
