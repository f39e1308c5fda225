//! Fusion in programs with sizes that depend on data: before such a size, and behind it, where a
//! region may have no kernel for the size of a run.

use maquette_driver::compile;
use maquette_ir::DType;
use maquette_ops::Tensor;
use maquette_ops::internals::MetaInternals;

fn ramp(sizes: &[i64]) -> Tensor {
    let x = Tensor::arange(sizes.iter().product::<i64>()).to_dtype(DType::F32);
    ((x * 0.37).sin()).reshape(sizes.to_vec())
}

fn bits(t: &Tensor) -> (Vec<i64>, Vec<u32>) {
    let sizes = t.meta().concrete().unwrap().sizes.to_vec();
    let values = t.contiguous().reshape([-1i64]).to_vec::<f32>().unwrap();
    (sizes, values.into_iter().map(f32::to_bits).collect())
}

/// A layer, the rows that a condition selects, and a softmax and a product of these rows.
fn selected((x, w, m): (Tensor, Tensor, Tensor)) -> (Tensor, Tensor, Tensor) {
    let hidden = (x.mm(&w) + 1.0).relu();
    let rows = m.nonzero().reshape([-1i64]);
    let chosen = hidden.index_select(0, &rows);
    let weights = (&chosen * 0.5).softmax(-1);
    let again = chosen.mm(&w).tanh();
    (hidden, weights, again)
}

#[test]
fn kernels_before_and_behind_a_size_from_data() {
    let f = compile(selected);
    let (x, w) = (ramp(&[24, 16]), ramp(&[16, 16]));
    // All rows, some, one, none, and then as many as before.
    for every in [1, 3, 24, 100, 3] {
        let m = Tensor::from_vec((1..=24i64).map(|i| i % every == 0).collect::<Vec<_>>(), [24]);
        let found = f.call((x.clone(), w.clone(), m.clone())).unwrap();
        let expected = selected((x.clone(), w.clone(), m));
        for (found, expected) in
            [(&found.0, &expected.0), (&found.1, &expected.1), (&found.2, &expected.2)]
        {
            assert_eq!(bits(found), bits(expected), "every {every}");
        }
    }
    let fused = &f.explain().programs[0].fused;
    let has = |text: &str| fused.iter().any(|kernel| kernel == text);
    assert!(has("product: aten::mm, aten::add.Tensor, aten::relu"), "{fused:?}");
    assert!(has("product: aten::mm, aten::tanh"), "{fused:?}");
    assert!(fused.iter().any(|kernel| kernel.contains("aten::_softmax")), "{fused:?}");
}

/// A region behind the size writes an input, which a view of it shows.
fn written((x, m): (Tensor, Tensor)) -> Tensor {
    let rows = m.nonzero().reshape([-1i64]);
    let chosen = x.index_select(0, &rows);
    let sum = (chosen.exp() * 2.0).sum_dim([0], false);
    let view = x.select(0, 1);
    x.mul_((&sum + 1.0).sigmoid());
    view + sum
}

#[test]
fn an_input_is_written_behind_a_size_from_data() {
    let f = compile(written);
    for every in [1, 5, 100] {
        let m = Tensor::from_vec((1..=9i64).map(|i| i % every == 0).collect::<Vec<_>>(), [9]);
        let (x, y) = (ramp(&[9, 20]), ramp(&[9, 20]));
        let found = f.call((x.clone(), m.clone())).unwrap();
        let expected = written((y.clone(), m));
        assert_eq!(bits(&found), bits(&expected), "every {every}");
        assert_eq!(bits(&x), bits(&y), "every {every}");
    }
}

/// A softmax of long rows and a write of its result to an input.
fn long_rows((x, m): (Tensor, Tensor)) -> Tensor {
    let rows = m.nonzero().reshape([-1i64]);
    let weights = (x.index_select(0, &rows) * 0.5).softmax(-1);
    x.select(0, 0).add_((&weights + 1.0).sum_dim([0], false));
    weights
}

/// Threads divide one row of a softmax, so a kernel by rows is for many rows alone. For few, the
/// operators of the region run one by one.
#[test]
fn a_region_without_a_kernel_for_the_size_of_a_run() {
    let f = compile(long_rows);
    for every in [1, 4, 9, 1] {
        let m = Tensor::from_vec((1..=9i64).map(|i| i % every == 0).collect::<Vec<_>>(), [9]);
        let (x, y) = (ramp(&[9, 40_000]), ramp(&[9, 40_000]));
        let found = f.call((x.clone(), m.clone())).unwrap();
        let expected = long_rows((y.clone(), m));
        assert!(bits(&found) == bits(&expected), "every {every}");
        assert!(bits(&x) == bits(&y), "every {every}");
    }
    let fused = &f.explain().programs[0].fused;
    assert!(fused.iter().any(|kernel| kernel.contains("aten::_softmax")), "{fused:?}");
}
