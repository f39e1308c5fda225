//! Laws: a program traced at one size and run at another does what the program does there.

mod common;

use common::matrix;
use maquette_aten as _;
use maquette_ir::graph::Graph;
use maquette_ops::{Error, ErrorKind, RunError, Tensor};
use maquette_trace::TraceOptions;
use proptest::prelude::*;

#[derive(Clone, Copy, Debug)]
enum Step {
    Relu,
    Sin,
    AddOne,
    Double,
    AddItself,
    AddCaptured,
    Transpose,
    FlattenAndUnsqueeze,
    Contiguous,
    AddInPlace,
    MulInPlaceThroughView,
    /// Asks whether the size is at least that large.
    SliceRows(i64),
    /// As above.
    NarrowColumns(i64),
}

use Step::*;

impl Step {
    fn apply(self, mut x: Tensor, captured: &Tensor) -> Tensor {
        match self {
            Relu => x.relu(),
            Sin => x.sin(),
            AddOne => x + 1.0,
            Double => x * 2.0,
            AddItself => &x + &x,
            AddCaptured => x + captured,
            Transpose => x.t(),
            FlattenAndUnsqueeze => x.flatten(0, 1).unsqueeze(0),
            Contiguous => x.contiguous(),
            AddInPlace => {
                x += 1.0;
                x
            }
            MulInPlaceThroughView => {
                let mut view = x.t();
                view *= 3.0;
                x
            }
            SliceRows(from) => x.slice(0, from..),
            NarrowColumns(n) => x.narrow(1, 0, n),
        }
    }

    fn any_size() -> impl Strategy<Value = Step> {
        prop_oneof![
            Just(Relu),
            Just(Sin),
            Just(AddOne),
            Just(Double),
            Just(AddItself),
            Just(AddCaptured),
            Just(Transpose),
            Just(FlattenAndUnsqueeze),
            Just(Contiguous),
            Just(AddInPlace),
            Just(MulInPlaceThroughView),
        ]
    }

    fn any() -> impl Strategy<Value = Step> {
        prop_oneof![
            3 => Step::any_size(),
            1 => (0i64..3).prop_map(SliceRows),
            1 => (0i64..3).prop_map(NarrowColumns),
        ]
    }
}

fn program(steps: &[Step], captured: &Tensor) -> impl Fn(Tensor) -> Tensor {
    move |x| steps.iter().fold(x, |x, step| step.apply(x, captured))
}

fn bits(t: &Tensor) -> (Vec<i64>, Vec<u32>) {
    (t.sizes_i64().unwrap(), t.to_vec::<f32>().unwrap().into_iter().map(f32::to_bits).collect())
}

/// Runs a trace made at one size at another: outputs and written inputs are the program's own, to
/// the bit.
fn agree(steps: &[Step], sample: (usize, usize), other: (usize, usize)) -> Result<bool, Error> {
    let captured = Tensor::scalar(0.5f32);
    let untouched = matrix(sample.0, sample.1);
    let traced = TraceOptions::symbolic().trace(program(steps, &captured), untouched.clone())?;
    assert_eq!(bits(&untouched), bits(&matrix(sample.0, sample.1)), "tracing touches no data");
    traced.graph().verify().unwrap();
    assert_eq!(traced.to_string().parse::<Graph>().unwrap().to_string(), traced.to_string());

    let (ours, theirs) = (matrix(other.0, other.1), matrix(other.0, other.1));
    let expected = program(steps, &captured)(theirs.clone());
    match traced.run(ours.clone()) {
        Ok(found) => {
            assert_eq!(bits(&found), bits(expected.ok()?));
            assert_eq!(bits(&ours), bits(&theirs));
            Ok(true)
        }
        Err(e) if matches!(e.kind(), ErrorKind::Run(RunError::Guard { .. })) => Ok(false),
        Err(e) => Err(e),
    }
}

#[test]
fn a_size_that_slices_made_0_flattens_twice() {
    let steps = [SliceRows(1), SliceRows(2), FlattenAndUnsqueeze, FlattenAndUnsqueeze];
    for other in [(2, 2), (3, 2), (4, 5)] {
        agree(&steps, (2, 2), other).unwrap();
    }
    let steps = [Transpose, NarrowColumns(1), SliceRows(2), FlattenAndUnsqueeze];
    assert!(agree(&steps, (2, 2), (2, 2)).unwrap());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn a_trace_runs_at_the_size_it_was_made_at(
        steps in prop::collection::vec(Step::any(), 0..8),
        rows in 2usize..5,
        columns in 2usize..5,
    ) {
        // a slice may leave nothing to slice again: then eager fails too
        let eager = program(&steps, &Tensor::scalar(0.5f32))(matrix(rows, columns));
        match agree(&steps, (rows, columns), (rows, columns)) {
            Ok(ran) => prop_assert!(ran, "guards hold for the sample"),
            Err(e) => prop_assert!(eager.ok().is_err(), "{e}"),
        }
    }

    #[test]
    fn steps_without_guards_run_at_any_size(
        steps in prop::collection::vec(Step::any_size(), 0..8),
        sample in (2usize..5, 2usize..5),
        other in (0usize..5, 0usize..5),
    ) {
        match agree(&steps, sample, other) {
            // whether a transposed tensor flattens without a copy depends on its sizes
            Ok(ran) => {
                let decides = |s: &Step| matches!(s, FlattenAndUnsqueeze | Contiguous);
                prop_assert!(ran || steps.iter().any(decides))
            }
            Err(e) => prop_assert!(false, "{e}"),
        }
    }
}
