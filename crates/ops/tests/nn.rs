//! Networks' operators against loops and identities.

use maquette_aten as _;
use maquette_ir::DType;
use maquette_ops::{Tensor, Value, args, call};

const NONE: [i64; 0] = [];

fn tensor(sizes: &[i64], seed: i64) -> Tensor {
    let n: i64 = sizes.iter().product();
    Tensor::from_vec(
        (0..n).map(|i| ((i * 5 + seed * 3) % 13 - 6) as f32 / 4.0).collect::<Vec<f32>>(),
        sizes,
    )
}

fn close(a: &Tensor, b: &[f32]) {
    let a = a.to_vec::<f32>().unwrap();
    assert_eq!(a.len(), b.len());
    assert!(a.iter().zip(b).all(|(x, y)| (x - y).abs() < 1e-4), "{a:?}\n{b:?}");
}

/// A 2-d convolution by definition, of one image without groups.
fn naive_conv(x: &Tensor, w: &Tensor, stride: i64, pad: i64, dilation: i64) -> Vec<f32> {
    let (xs, ws) = (x.sizes_i64().unwrap(), w.sizes_i64().unwrap());
    let (x, w) = (x.to_vec::<f32>().unwrap(), w.to_vec::<f32>().unwrap());
    let size = |n: i64, k: i64| (n + 2 * pad - dilation * (k - 1) - 1) / stride + 1;
    let mut out = Vec::new();
    for o in 0..ws[0] {
        for i in 0..size(xs[2], ws[2]) {
            for j in 0..size(xs[3], ws[3]) {
                let mut sum = 0.0;
                for c in 0..ws[1] {
                    for a in 0..ws[2] {
                        for b in 0..ws[3] {
                            let (p, q) =
                                (i * stride - pad + a * dilation, j * stride - pad + b * dilation);
                            if (0..xs[2]).contains(&p) && (0..xs[3]).contains(&q) {
                                sum += x[((c * xs[2] + p) * xs[3] + q) as usize]
                                    * w[(((o * ws[1] + c) * ws[2] + a) * ws[3] + b) as usize];
                            }
                        }
                    }
                }
                out.push(sum);
            }
        }
    }
    out
}

#[test]
fn convolutions_slide() {
    let (x, w) = (tensor(&[1, 2, 7, 6], 1), tensor(&[3, 2, 3, 2], 2));
    for (stride, pad, dilation) in [(1, 0, 1), (2, 1, 1), (1, 2, 2), (3, 1, 1)] {
        close(
            &x.conv2d(&w, None, stride, pad, dilation, 1),
            &naive_conv(&x, &w, stride, pad, dilation),
        );
    }
    let same = x.conv2d_padded(&w, None, 1, "same", 1, 1);
    assert_eq!(same.sizes_i64().unwrap(), [1, 3, 7, 6]);
    close(&x.select(0, 0).conv2d(&w, None, 1, 0, 1, 1), &naive_conv(&x, &w, 1, 0, 1));
}

#[test]
fn groups_are_separate_convolutions() {
    let (x, w) = (tensor(&[1, 4, 5, 5], 1), tensor(&[6, 2, 3, 3], 2));
    let whole = x.conv2d(&w, None, 1, 1, 1, 2);
    let halves: Vec<Tensor> = (0..2)
        .map(|g| x.narrow(1, g * 2, 2).conv2d(&w.narrow(0, g * 3, 3), None, 1, 1, 1, 1))
        .collect();
    close(&whole, &Tensor::cat(&halves, 1).to_vec::<f32>().unwrap());
}

#[test]
fn a_transposed_convolution_is_the_adjoint() {
    let (x, w, y) = (tensor(&[1, 2, 5, 5], 1), tensor(&[3, 2, 3, 3], 2), tensor(&[1, 3, 3, 3], 3));
    let inner = |a: &Tensor, b: &Tensor| {
        a.to_vec::<f32>()
            .unwrap()
            .iter()
            .zip(b.to_vec::<f32>().unwrap())
            .map(|(x, y)| x * y)
            .sum::<f32>()
    };
    let forward = x.conv2d(&w, None, 2, 1, 1, 1);
    let back = y.conv_transpose2d(&w, None, 2, 1, 0, 1, 1);
    assert_eq!(back.sizes_i64().unwrap(), [1, 2, 5, 5]);
    assert!((inner(&forward, &y) - inner(&x, &back)).abs() < 1e-3);
}

#[test]
fn pools_take_extremes_and_means() {
    let x = Tensor::from_vec(vec![1.0f32, 5.0, 2.0, 0.0, 3.0, 4.0, 8.0, 7.0, 6.0], [1, 3, 3]);
    let (max, at) = x.max_pool2d_with_indices(2, 1, 0, 1, false);
    close(&max, &[5.0, 5.0, 8.0, 7.0]);
    assert_eq!(at.to_vec::<i64>().unwrap(), [1, 1, 6, 7]);
    close(&x.avg_pool2d(2, NONE, 0), &[9.0 / 4.0]);
    close(&x.adaptive_avg_pool2d([1, 1]), &[4.0]);
    close(&x.select(1, 0).max_pool1d(2, 1, 0), &[5.0, 5.0]);
    let text = x.max_pool2d(2, NONE, 2).ok().expect_err("too much padding").to_string();
    assert!(text.contains("`padding`"), "{text}");
}

/// Sums of `i64` wrap, and their quotients are truncated; PyTorch takes no other integers.
#[test]
fn means_of_integers_are_exact() {
    const BIG: i64 = (1 << 53) + 1;
    let pooled = |x: [i64; 2], window: i64| {
        Tensor::from([x]).unsqueeze(0).avg_pool2d([1, window], NONE, 0).to_vec::<i64>().unwrap()
    };
    assert_eq!(pooled([BIG, -BIG], 1), [BIG, -BIG]);
    assert_eq!(pooled([-7, 2], 2), [-2]);
    assert_eq!(pooled([1 << 62, 1 << 62], 2), [i64::MIN / 2]);
    let volume = call(
        "aten::avg_pool3d",
        args![
            Tensor::from_vec(vec![BIG], [1, 1, 1, 1]),
            Value::from_dims([1i64]),
            Value::from_dims(NONE)
        ],
    )
    .unwrap();
    assert_eq!(volume[0].tensor().unwrap().to_vec::<i64>().unwrap(), [BIG]);
    let x = Tensor::from([[5i64, 3]]).unsqueeze(0);
    for (t, parts) in [
        (
            x.to_dtype(DType::I32).avg_pool2d([1, 2], NONE, 0),
            ["`self`", "a floating dtype or i64, found i32[1, 1, 2]"],
        ),
        (x.adaptive_avg_pool2d([1, 1]), ["`self`", "a floating dtype, found i64[1, 1, 2]"]),
    ] {
        let text = t.ok().expect_err("the dtype is refused").to_string();
        assert!(parts.iter().all(|p| text.contains(p)), "{text}");
    }
}

/// The mean of equal numbers is that number, though their sum is rounded.
#[test]
fn rows_of_one_number_normalize_to_zero() {
    for n in [1, 3, 7, 100, 5000] {
        let x = Tensor::full([2, n], 1000.1, DType::F32);
        for y in [x.layer_norm([n], None, None, 1e-5), x.group_norm(1, None, None, 1e-5)] {
            assert!(y.to_vec::<f32>().unwrap().iter().all(|&y| y == 0.0), "{n}: {y:?}");
        }
    }
}

#[test]
fn rows_whose_squares_or_sums_overflow() {
    for (number, n) in [(1.1e27, 7), (3.3e26, 768), (1.1e37, 768)] {
        let (x, rstd) = (Tensor::full([n], number, DType::F32), (1e-5f32).sqrt().recip());
        let out = call("aten::native_layer_norm", args![&x, [n], Value::None, Value::None, 1e-5])
            .unwrap();
        let [y, _, found] = [0, 1, 2].map(|i| out[i].tensor().unwrap().to_vec::<f32>().unwrap());
        assert!(
            y.iter().all(|&y| y == 0.0) && (found[0] - rstd).abs() < 1e-3,
            "{number}: {y:?} {found:?}"
        );
    }
    // deviations whose squares are no numbers leave nothing of them
    let wide: Vec<f32> = (0..64).map(|i| ((i * 7919 + 13) % 101 - 50) as f32 * 2.1e26).collect();
    let y = Tensor::from_vec(wide, [64i64])
        .layer_norm([64i64], None, None, 1e-5)
        .to_vec::<f32>()
        .unwrap();
    assert!(y.iter().all(|&y| y == 0.0), "{y:?}");
    for bad in [f32::INFINITY, f32::NAN] {
        let y = Tensor::from([1.0f32, bad, 2.0])
            .layer_norm([3i64], None, None, 1e-5)
            .to_vec::<f32>()
            .unwrap();
        assert!(y.iter().all(|y| y.is_nan()), "{y:?}");
    }
}

#[test]
fn norms_have_mean_zero_and_variance_one() {
    let x = tensor(&[2, 4, 3], 1);
    for y in [x.layer_norm([4, 3], None, None, 1e-6), x.group_norm(1, None, None, 1e-6)] {
        for row in y.to_vec::<f32>().unwrap().chunks(12) {
            let mean = row.iter().sum::<f32>() / 12.0;
            let var = row.iter().map(|v| (v - mean).powi(2)).sum::<f32>() / 12.0;
            assert!(mean.abs() < 1e-5 && (var - 1.0).abs() < 1e-4, "{row:?}");
        }
    }
    let (mean, var) = (tensor(&[4], 2), Tensor::from([0.25f32, 1.0, 4.0, 9.0]));
    let (w, b) = (tensor(&[4], 3), tensor(&[4], 4));
    let v = |t: &Tensor| t.to_vec::<f32>().unwrap();
    let expected: Vec<f32> = v(&x)
        .iter()
        .enumerate()
        .map(|(i, x)| {
            let c = i / 3 % 4;
            (x - v(&mean)[c]) / v(&var)[c].sqrt() * v(&w)[c] + v(&b)[c]
        })
        .collect();
    close(&x.batch_norm(Some(&w), Some(&b), &mean, &var, 0.0), &expected);
}

#[test]
fn padding_modes_and_rearrangements() {
    let x = Tensor::from([[1i64, 2, 3]]);
    let list = |t: &Tensor| t.to_vec::<i64>().unwrap();
    assert_eq!(list(&x.constant_pad_nd([1, 2], 9)), [9, 1, 2, 3, 9, 9]);
    assert_eq!(list(&x.constant_pad_nd([-1, 1], 0)), [2, 3, 0]);
    assert_eq!(list(&x.pad([2, 1], "reflect", None)), [3, 2, 1, 2, 3, 2]);
    assert_eq!(list(&x.pad([2, 1], "replicate", None)), [1, 1, 1, 2, 3, 3]);
    assert_eq!(list(&x.pad([2, 1], "circular", None)), [2, 3, 1, 2, 3, 1]);
    assert_eq!(list(&x.roll(1, 1)), [3, 1, 2]);
    assert_eq!(list(&x.flip(1)), [3, 2, 1]);
    assert_eq!(list(&x.repeat([2, 2])), [1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2, 3]);
    let m = Tensor::from([[1i64, 2, 3], [4, 5, 6], [7, 8, 9]]);
    assert_eq!(list(&m.tril(0)), [1, 0, 0, 4, 5, 0, 7, 8, 9]);
    assert_eq!(list(&m.triu(1)), [0, 2, 3, 0, 0, 6, 0, 0, 0]);
    assert_eq!(
        list(&m.slice_scatter(&Tensor::from([[0i64; 3]]), 0, 1..2)),
        [1, 2, 3, 0, 0, 0, 7, 8, 9]
    );
    assert_eq!(list(&Tensor::from([0i64, 2]).one_hot(3)), [1, 0, 0, 0, 0, 1]);
    let table = Tensor::from([[1i64, 2], [3, 4]]);
    assert_eq!(list(&table.embedding(&Tensor::from([1i64, 0, 1]))), [3, 4, 1, 2, 3, 4]);
}

/// A read has at most four computed positions, so that five padded dimensions take two steps.
#[test]
fn moves_of_any_layout_and_rank() {
    let list = |t: &Tensor| t.to_vec::<i64>().unwrap();
    let m = Tensor::from([[1i64, 2, 3], [4, 5, 6]]);
    let t = m.t();
    let cube = m.view([1i64, 1, 1, 2, 3]);
    let padded = cube.constant_pad_nd([1i64, 0, 0, 1, 1, 0, 1, 0, 1, 0], 9);
    assert_eq!(padded.sizes_i64().unwrap(), [2, 2, 2, 3, 4]);
    let mut expected = vec![9i64; 7 * 12];
    expected.extend([9, 1, 2, 3, 9, 4, 5, 6, 9, 9, 9, 9]);
    assert_eq!(list(&padded), expected);
    assert_eq!(list(&cube.flip([0i64, 1, 2, 3, 4])), [6, 5, 4, 3, 2, 1]);
    assert_eq!(list(&cube.roll([1i64, 1, 1, 3, -1], [0i64, 1, 2, 3, 4])), [5, 6, 4, 2, 3, 1]);
    assert_eq!(list(&t.roll([1i64], Vec::<i64>::new())), [6, 1, 4, 2, 5, 3]);
    assert_eq!(list(&m.roll([1i64, 4], [1i64, 1])), [2, 3, 1, 5, 6, 4]);
    assert_eq!(list(&m.roll([i64::MIN, i64::MAX], [0i64, 1])), [3, 1, 2, 6, 4, 5]);
    assert_eq!(list(&t.repeat([2i64, 1, 1])), [1, 4, 2, 5, 3, 6, 1, 4, 2, 5, 3, 6]);
    assert_eq!(list(&t.repeat([0i64, 2])), Vec::<i64>::new());
    assert_eq!(list(&t.take(&Tensor::from([1i64, -1, 2]))), [4, 6, 2]);
    for k in [i64::MIN, i64::MAX] {
        let (all, none) = ([1, 2, 3, 4, 5, 6], [0; 6]);
        assert_eq!(list(&m.tril(k)), if k > 0 { all } else { none });
        assert_eq!(list(&m.triu(k)), if k > 0 { none } else { all });
    }
    let one = Tensor::scalar(7i64);
    assert_eq!(list(&one.index_select(0, &Tensor::from([0i64, 0]))), [7]);
    let e = one.index_select(0, &Tensor::from([0i64, 1])).ok().expect_err("is outside");
    assert!(e.to_string().contains("index 1 is out of bounds for dimension 0 with size 1"), "{e}");
    let e = t.gather(0, &Tensor::from([[0i64, 3]])).ok().expect_err("is outside");
    assert!(e.to_string().contains("index 3 is out of bounds for dimension 0 with size 3"), "{e}");
}

/// `N`, `C` and `HxW` say how the elements are grouped, whatever the sizes.
#[test]
fn groups_of_channels_that_the_sizes_do_not_show() {
    let w = Tensor::from([1f32, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let x = Tensor::from((0..24).map(|i| i as f32).collect::<Vec<_>>()).view([2i64, 3, 4]);
    let out = |x: &Tensor, b: Option<&Tensor>, n: i64, space: i64| {
        let b = b.map_or(Value::None, |b| Value::Tensor(b.clone()));
        let out =
            call("aten::native_group_norm", args![x, &w, b, n, 6, space, 2, 1e-5]).expect("groups");
        out[0].tensor().expect("a tensor").to_vec::<f32>().expect("f32")
    };
    let near = |found: Vec<f32>, expected: &[f32]| {
        assert!(
            found.len() == expected.len()
                && found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 2e-5),
            "{found:?}"
        );
    };
    let row = [-1.224_735_6f32, 0.0, 3.674_206_7, -4.898_942_5, 0.0, 7.348_413_5];
    near(out(&x, None, 4, 1), &row.repeat(4));
    let shifted = [-0.224_735_6f32, 2.0, 6.674_206_7, -0.898_942_5, 5.0, 13.348_413];
    near(out(&x, Some(&w), 4, 1), &shifted.repeat(4));
    near(out(&Tensor::from([0f32, 1.0, 2.0, 3.0, 4.0, 5.0]), Some(&w), 1, 1), &shifted);
    assert_eq!(out(&Tensor::ones([6], DType::F32), None, 1, 1), [0.0; 6]);
    // strides change nothing
    let t = x.transpose(0, 2);
    let first = [-1.463_85f32, 0.292_77, -1.756_62, 1.756_619_9, -0.878_310_2, 4.391_549_6];
    near(out(&t, None, 2, 2)[..6].to_vec(), &first);
    near(out(&t.clone_as(maquette_ir::MemoryFormat::Contiguous), None, 2, 2)[..6].to_vec(), &first);
}
