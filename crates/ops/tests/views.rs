//! Views against a model that lists, for every element of a view, the element of the base it is.

use maquette_aten as _;
use maquette_ir::DType;
use maquette_ir::sym::{Range, Scope};
use maquette_ops::internals::TensorInternals;
use maquette_ops::{NewAxis, Tensor, args, call, fake};
use proptest::prelude::*;

/// A view: its sizes, and the base element at each of its positions in row-major order.
#[derive(Clone, Debug)]
struct Model {
    sizes: Vec<i64>,
    at: Vec<usize>,
}

impl Model {
    fn get(&self, index: &[i64]) -> usize {
        self.at[index.iter().zip(&self.sizes).fold(0, |flat, (i, n)| flat * n + i) as usize]
    }

    /// The view of `sizes` whose element at an index is this one's at `from(index)`.
    fn map(&self, sizes: Vec<i64>, from: impl Fn(&[i64]) -> Vec<i64>) -> Model {
        let mut at = Vec::new();
        for flat in 0..sizes.iter().product::<i64>() {
            let mut rest = flat;
            let mut index: Vec<i64> = sizes
                .iter()
                .rev()
                .map(|n| {
                    let i = rest % n;
                    rest /= n;
                    i
                })
                .collect();
            index.reverse();
            at.push(self.get(&from(&index)));
        }
        Model { sizes, at }
    }
}

/// A step of a chain; numbers are taken modulo what the view at hand allows.
#[derive(Clone, Debug)]
enum Step {
    Select(usize, i64),
    Slice(usize, i64, i64, i64),
    Transpose(usize, usize),
    Unsqueeze(usize),
    Squeeze,
    Diagonal(i64),
    Expand(i64),
    Flatten,
    Unfold(usize, i64, i64),
    Narrow(usize, i64, i64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0..4usize, -3..3i64).prop_map(|(d, i)| Step::Select(d, i)),
        (0..4usize, -4..4i64, -4..6i64, 1..3i64).prop_map(|(d, a, b, s)| Step::Slice(d, a, b, s)),
        (0..4usize, 0..4usize).prop_map(|(a, b)| Step::Transpose(a, b)),
        (0..4usize).prop_map(Step::Unsqueeze),
        Just(Step::Squeeze),
        (-2..3i64).prop_map(Step::Diagonal),
        (1..4i64).prop_map(Step::Expand),
        Just(Step::Flatten),
        (0..4usize, 1..3i64, 1..3i64).prop_map(|(d, n, s)| Step::Unfold(d, n, s)),
        (0..4usize, 0..3i64, 0..3i64).prop_map(|(d, a, n)| Step::Narrow(d, a, n)),
    ]
}

fn wrapped(i: i64, n: i64) -> i64 {
    if i < 0 { i + n } else { i }
}

/// Applies a step to both, or leaves them as they are where it does not apply. Returns whether the
/// result may be a copy.
fn apply(step: &Step, x: &Tensor, m: &Model) -> (Tensor, Model, bool) {
    let rank = m.sizes.len();
    let unchanged = || (x.clone(), m.clone(), false);
    let with = |d: usize, n: i64| {
        let mut s = m.sizes.clone();
        s[d] = n;
        s
    };
    match *step {
        Step::Select(d, i) if rank > 0 => {
            let d = d % rank;
            let n = m.sizes[d];
            if !(-n..n).contains(&i) {
                return unchanged();
            }
            let mut sizes = m.sizes.clone();
            sizes.remove(d);
            (
                x.select(d as i64, i),
                m.map(sizes, |at| {
                    let mut at = at.to_vec();
                    at.insert(d, wrapped(i, n));
                    at
                }),
                false,
            )
        }
        Step::Slice(d, a, b, s) if rank > 0 => {
            let d = d % rank;
            let n = m.sizes[d];
            let from = wrapped(a, n).clamp(0, n);
            let to = wrapped(b, n).clamp(0, n).max(from);
            let sizes = with(d, (to - from + s - 1) / s);
            (
                x.slice_step(d as i64, a..b, s),
                m.map(sizes, |at| {
                    let mut at = at.to_vec();
                    at[d] = from + at[d] * s;
                    at
                }),
                false,
            )
        }
        Step::Narrow(d, a, n) if rank > 0 => {
            let d = d % rank;
            if a + n > m.sizes[d] {
                return unchanged();
            }
            (
                x.narrow(d as i64, a, n),
                m.map(with(d, n), |at| {
                    let mut at = at.to_vec();
                    at[d] += a;
                    at
                }),
                false,
            )
        }
        Step::Transpose(a, b) if rank > 0 => {
            let (a, b) = (a % rank, b % rank);
            let mut sizes = m.sizes.clone();
            sizes.swap(a, b);
            (
                x.transpose(a as i64, b as i64),
                m.map(sizes, |at| {
                    let mut at = at.to_vec();
                    at.swap(a, b);
                    at
                }),
                false,
            )
        }
        Step::Unsqueeze(d) if rank < 5 => {
            let d = d % (rank + 1);
            let mut sizes = m.sizes.clone();
            sizes.insert(d, 1);
            (
                x.unsqueeze(d as i64),
                m.map(sizes, |at| {
                    let mut at = at.to_vec();
                    at.remove(d);
                    at
                }),
                false,
            )
        }
        Step::Squeeze => {
            let kept: Vec<usize> = (0..rank).filter(|&d| m.sizes[d] != 1).collect();
            let sizes = kept.iter().map(|&d| m.sizes[d]).collect();
            let from = |at: &[i64]| {
                let mut full = vec![0; rank];
                kept.iter().zip(at).for_each(|(&d, &i)| full[d] = i);
                full
            };
            (x.squeeze(), m.map(sizes, from), false)
        }
        Step::Diagonal(offset) if rank >= 2 => {
            let n = (m.sizes[0].min(m.sizes[1] - offset))
                .min(m.sizes[0] + offset)
                .min(m.sizes[1])
                .max(0);
            let mut sizes = m.sizes[2..].to_vec();
            sizes.push(n);
            let from = |at: &[i64]| {
                let i = at[at.len() - 1];
                [&[i - offset.min(0), i + offset.max(0)], &at[..at.len() - 1]].concat()
            };
            (x.diagonal(offset, 0, 1), m.map(sizes, from), false)
        }
        Step::Expand(n) => {
            let d = m.sizes.iter().position(|&s| s == 1);
            match d {
                Some(d) => (
                    x.expand(with(d, n)),
                    m.map(with(d, n), |at| {
                        let mut at = at.to_vec();
                        at[d] = 0;
                        at
                    }),
                    false,
                ),
                None if rank < 5 => {
                    let sizes = [&[n], m.sizes.as_slice()].concat();
                    (x.expand(&sizes), m.map(sizes, |at| at[1..].to_vec()), false)
                }
                None => unchanged(),
            }
        }
        Step::Flatten => {
            let n = m.at.len() as i64;
            (x.reshape([-1i64]), Model { sizes: vec![n], at: m.at.clone() }, true)
        }
        Step::Unfold(d, n, s) if rank > 0 && rank < 5 => {
            let d = d % rank;
            if n > m.sizes[d] {
                return unchanged();
            }
            let mut sizes = with(d, (m.sizes[d] - n) / s + 1);
            sizes.push(n);
            let from = |at: &[i64]| {
                let mut full = at[..rank].to_vec();
                full[d] = full[d] * s + at[rank];
                full
            };
            (x.unfold(d as i64, n, s), m.map(sizes, from), false)
        }
        _ => unchanged(),
    }
}

proptest! {
    #[test]
    fn chains_of_views_read_and_write_the_base(
        sizes in prop::collection::vec(1..5i64, 1..4),
        steps in prop::collection::vec(step(), 0..7),
    ) {
        let n: i64 = sizes.iter().product();
        let base = Tensor::from_vec((0..n).collect::<Vec<i64>>(), &sizes);
        let mut view = base.clone();
        let mut model = Model { sizes: sizes.clone(), at: (0..n as usize).collect() };
        for s in &steps {
            let (next, expected, may_copy) = apply(s, &view, &model);
            if expected.at.is_empty() && may_copy {
                break;
            }
            next.ok().map_err(|e| TestCaseError::fail(format!("{s:?} of {:?}: {e}", model.sizes)))?;
            prop_assert_eq!(next.sizes_i64().unwrap(), expected.sizes.clone(), "{:?}", s);
            let positions: Vec<i64> = expected.at.iter().map(|&i| i as i64).collect();
            prop_assert_eq!(next.to_vec::<i64>().unwrap(), positions, "{:?}", s);
            if !next.shares_storage(&base) {
                prop_assert!(may_copy, "{:?} copied", s);
                break;
            }
            (view, model) = (next, expected);
        }
        let mut touched = model.at.clone();
        touched.sort_unstable();
        touched.dedup();
        let before = base.version();
        let written = view.copy_(&Tensor::scalar(-1i64));
        if touched.len() == model.at.len() {
            prop_assert!(written.ok().is_ok());
            prop_assert_eq!(base.version(), before + 1);
            let expected: Vec<i64> =
                (0..n).map(|i| if touched.contains(&(i as usize)) { -1 } else { i }).collect();
            prop_assert_eq!(base.to_vec::<i64>().unwrap(), expected);
        } else {
            prop_assert!(written.ok().is_err(), "a view that overlaps itself was written");
        }
    }

    #[test]
    fn a_reshape_copies_only_where_no_view_exists(
        sizes in prop::collection::vec(1..4i64, 1..4),
        swap in any::<bool>(),
    ) {
        let n: i64 = sizes.iter().product();
        let base = Tensor::from_vec((0..n).collect::<Vec<i64>>(), &sizes);
        let x = if swap { base.transpose(0, -1) } else { base.clone() };
        let flat = x.reshape([-1i64]);
        prop_assert_eq!(flat.to_vec::<i64>().unwrap(), x.to_vec::<i64>().unwrap());
        prop_assert_eq!(flat.shares_storage(&base), x.view([-1i64]).ok().is_ok());
    }
}

fn iota(sizes: &[i64]) -> Tensor {
    Tensor::from_vec((0..sizes.iter().product::<i64>()).collect::<Vec<i64>>(), sizes)
}

#[test]
fn split_chunk_and_unbind_cover_the_dimension() {
    let x = iota(&[7, 2]);
    for (parts, lengths) in [
        (x.split(3, 0), vec![3, 3, 1]),
        (x.chunk(3, 0), vec![3, 3, 1]),
        (x.chunk(6, 0), vec![2, 2, 2, 1]),
        (x.split_with_sizes([2, 5, 0], 0), vec![2, 5, 0]),
    ] {
        let parts = parts.unwrap();
        assert_eq!(parts.iter().map(|p| p.sizes_i64().unwrap()[0]).collect::<Vec<_>>(), lengths);
        assert!(parts.iter().all(|p| p.shares_storage(&x)));
        assert_eq!(Tensor::cat(&parts, 0).to_vec::<i64>().unwrap(), x.to_vec::<i64>().unwrap());
    }
    let rows = x.unbind(0).unwrap();
    assert_eq!(rows.len(), 7);
    assert_eq!(Tensor::stack(&rows, 0).to_vec::<i64>().unwrap(), x.to_vec::<i64>().unwrap());
}

#[test]
fn indexing_notation_is_pythons() {
    let x = iota(&[3, 4, 5]);
    let check = |y: Tensor, sizes: &[i64], first: i64| {
        assert_eq!(y.sizes_i64().unwrap(), sizes, "{y:?}");
        assert_eq!(y.to_vec::<i64>().unwrap()[0], first);
    };
    check(x.i(1), &[4, 5], 20);
    check(x.i((0, .., 2..5)), &[4, 3], 2);
    check(x.i((.., -1)), &[3, 4], 4);
    check(x.i((1.., NewAxis, .., ..-3)), &[2, 1, 4, 2], 20);
    check(x.i((2, 3, 4)), &[], 59);
    check(x.i((0, 0, 0, ..)), &[], 0);
    check(x.i((.., &Tensor::from([3i64, 0]))), &[3, 4, 2], 3);
    check(x.i(&Tensor::from([false, true, true])), &[2, 4, 5], 20);
}

#[test]
fn errors_name_expected_and_found_values() {
    let x = iota(&[2, 6]);
    for (t, parts) in [
        (x.view([5, -1]), ["[5, -1]", "12"]),
        (x.view([-1, -1]), ["only one size can be -1", "[-1, -1]"]),
        (x.t().view([12]), ["strides [1, 6]", "reshape"]),
        (x.select(1, 6), ["index 6", "[2, 6]"]),
        (x.expand([3, 6]), ["[2, 6]", "[3, 6]"]),
        (x.permute([0, 0]), ["duplicate dimension", "[0, 0]"]),
        (x.narrow(1, 4, 3), ["start 4", "length 3"]),
        (x.as_strided([4, 4], [4, 1], None), ["[4, 4]", "96 bytes"]),
        (x.transpose(0, 2), ["dimension 2", "out of range"]),
    ] {
        let text = t.ok().expect_err("the call is refused").to_string();
        assert!(parts.iter().all(|p| text.contains(p)), "{text}");
        assert!(text.contains("views.rs"), "{text}");
    }
    assert!(
        x.split_with_sizes([2, 3], 1).is_err_and(|e| e.to_string().contains("must add up to 6"))
    );
}

/// A tensor without elements may have a dimension of any size.
#[test]
fn rearranging_empty_tensors_takes_no_time() {
    let (x, many) = (Tensor::zeros([0, 1i64 << 40], DType::F32), 1i64 << 40);
    for (op, args, expected) in [
        ("flip", args![&x, vec![1i64]], [0, many]),
        ("roll", args![&x, vec![1i64], vec![1i64]], [0, many]),
        ("rot90", args![&x, 2], [0, many]),
        ("repeat", args![Tensor::zeros([0], DType::F32), vec![many, 1]], [many, 0]),
        ("tile", args![Tensor::zeros([0], DType::F32), vec![many, 1]], [many, 0]),
    ] {
        let out = call(&format!("aten::{op}"), args).expect(op);
        assert_eq!(out[0].tensor().unwrap().sizes_i64().unwrap(), expected, "{op}");
    }
}

#[test]
fn numbers_too_large_for_any_memory() {
    let x = Tensor::zeros([4i64], DType::F32);
    let one = Tensor::ones([2i64], DType::F32);
    for stride in [1 << 40, 1 << 61, 1 << 62, i64::MAX] {
        let e = x.as_strided([2i64], [stride], None).to_vec::<f32>().unwrap_err().to_string();
        assert!(e.contains("16 bytes"), "{e}");
        let e = call("aten::as_strided_scatter", args![&x, &one, [2i64], [stride], None::<i64>])
            .unwrap_err()
            .to_string();
        assert!(e.contains("16 bytes"), "{e}");
    }
    let step = Tensor::from([1.0f32, 2.0, 3.0]).slice_step(0, .., i64::MAX);
    assert_eq!(step.to_vec::<f32>().unwrap(), [1.0]);
    // a stride that no number is
    for view in [Tensor::zeros([4i64, 4], DType::F32).unfold(0, 1, i64::MAX), x.repeat([i64::MAX])]
    {
        let e = view.to_vec::<f32>().unwrap_err().to_string();
        assert!(e.contains("overflows"), "{e}");
    }
}

/// A dimension of one element may have any stride, which no kernel adds to an offset.
#[test]
fn strides_of_one_element() {
    let x = Tensor::from([1.0f64, 0.0, 3.0]).as_strided([3i64, 1], [1, i64::MAX - 1], None);
    let found = call("aten::argwhere", args![&x]).expect("argwhere");
    assert_eq!(found[0].tensor().unwrap().to_vec::<i64>().unwrap(), [0, 0, 2, 0]);
    let chosen = x.masked_select(&x.gt(0.0));
    assert_eq!(chosen.to_vec::<f64>().unwrap(), [1.0, 3.0]);
    let planes = x.reshape([1, 1, 3, 1]).as_strided([1i64, 1, 3, 1], [i64::MAX - 1; 4], None);
    assert!(planes.to_vec::<f64>().is_err());
    let planes = x.as_strided([1i64, 1, 3, 1], [i64::MAX - 1, i64::MAX - 1, 1, 1], None);
    let pooled = call("aten::_adaptive_avg_pool2d", args![&planes, [1i64, 1]]).expect("pooled");
    assert_eq!(pooled[0].tensor().unwrap().to_vec::<f64>().unwrap(), [4.0 / 3.0]);
}

#[test]
fn the_least_number_is_an_error() {
    let scope = Scope::new();
    let n = scope.backed(Some("n"), Range::SIZE, 4).unwrap();
    let x = Tensor::zeros([4i64, 4], DType::F32);
    assert!(x.diagonal(i64::MIN, 0, 1).numel().as_i64() == Some(0));
    fake::without_data_in(&scope, || {
        let x = Tensor::zeros([n, 3.into()], DType::F32);
        assert!(call("aten::diagonal", args![&x, i64::MIN, 0, 1]).is_ok());
        assert!(call("aten::arange.start_step", args![n, -5i64, i64::MIN]).is_err());
    });
}

#[test]
fn pieces_larger_than_the_dimension() {
    for n in [0, 5] {
        let out = call("aten::split.Tensor", args![Tensor::zeros([n], DType::F32), i64::MAX, 0])
            .expect("one piece");
        let pieces = out[0].list().unwrap();
        assert_eq!(pieces.len(), 1);
        assert_eq!(pieces[0].tensor().unwrap().sizes_i64().unwrap(), [n]);
    }
}

#[test]
fn negative_padding_removes_at_most_all_elements() {
    let x = Tensor::from([0i64, 1]);
    let pad = |x: &Tensor, pad: &[i64]| call("aten::constant_pad_nd", args![x, pad.to_vec()]);
    for by in [[-3, 3], [3, -3], [-1, -2], [0, -3]] {
        assert!(pad(&x, &by).is_err(), "{by:?}");
    }
    assert!(pad(&Tensor::zeros([2, 2], DType::F32), &[-3, 3, 1, 0]).is_err());
    assert_eq!(pad(&x, &[-2, 3]).unwrap()[0].tensor().unwrap().to_vec::<i64>().unwrap(), [0, 0, 0]);
    assert_eq!(pad(&x, &[-1, -1]).unwrap()[0].tensor().unwrap().sizes_i64().unwrap(), [0]);
}

/// The target has strides of its own, by which it is divided until no part overlaps itself.
#[test]
fn a_copy_to_elements_that_share_memory_reads_the_source_by_its_own_strides() {
    let from = Tensor::from([[1.0f32, 2.0, 3.0], [3.0, 4.0, 5.0]]);
    let memory = Tensor::zeros([6], DType::F32);
    let to = memory.as_strided([2, 3], [2, 1], Some(1.into()));
    to.copy_shared_elements_(&from).unwrap();
    assert_eq!(memory.to_vec::<f32>().unwrap(), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
}

/// Views that no operator makes: kernels of runs make views of given numbers.
#[test]
fn elements_before_the_first_one_are_out_of_bounds() {
    let x = Tensor::from([0.0f32; 6]);
    for (sizes, strides, offset) in [([7i64], [-1i64], 6), ([-3], [1], 5), ([2], [-5], 5)] {
        let view = x.with_layout(&sizes, &strides, offset).unwrap();
        assert!(view.to_vec::<f32>().is_err(), "{sizes:?} {strides:?}");
        assert!(view.read::<f32>().is_err(), "{sizes:?} {strides:?}");
    }
    assert!(x.with_layout(&[1], &[-1], 5).unwrap().read::<f32>().is_err());
    assert!(x.with_layout(&[0], &[-1], 9).unwrap().read::<f32>().is_ok());
}
