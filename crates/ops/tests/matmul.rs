//! Matrix products against loops, by rank, stride and dtype.

use maquette_aten as _;
use maquette_ir::{DType, Scalar};
use maquette_ops::{Args, Tensor, args, call};

fn values(n: i64, seed: i64) -> Vec<f32> {
    (0..n).map(|i| ((i * 7 + seed * 13) % 11 - 5) as f32 / 2.0).collect()
}

fn tensor(sizes: &[i64], seed: i64) -> Tensor {
    Tensor::from_vec(values(sizes.iter().product(), seed), sizes)
}

/// The product by definition, of operands broadcast as `matmul` says.
fn naive(a: &Tensor, b: &Tensor) -> (Vec<i64>, Vec<f32>) {
    let (mut x, mut y) = (a.clone(), b.clone());
    let (drop_row, drop_column) = (a.dim() == 1, b.dim() == 1);
    if drop_row {
        x = x.unsqueeze(0);
    }
    if drop_column {
        y = y.unsqueeze(1);
    }
    let rank = x.dim().max(y.dim());
    let pad = |t: &Tensor| [vec![1; rank - t.dim()], t.sizes_i64().unwrap()].concat();
    let (s, t) = (pad(&x), pad(&y));
    let batch: Vec<i64> = (0..rank - 2).map(|d| if s[d] == 1 { t[d] } else { s[d] }).collect();
    let (m, k, n) = (s[rank - 2], s[rank - 1], t[rank - 1]);
    let x = x.expand([batch.clone(), vec![m, k]].concat()).to_vec::<f32>().unwrap();
    let y = y.expand([batch.clone(), vec![k, n]].concat()).to_vec::<f32>().unwrap();
    let mut out = Vec::new();
    for p in 0..batch.iter().product::<i64>() {
        for i in 0..m {
            for j in 0..n {
                out.push(
                    (0..k)
                        .map(|l| {
                            x[((p * m + i) * k + l) as usize] * y[((p * k + l) * n + j) as usize]
                        })
                        .sum(),
                );
            }
        }
    }
    let mut sizes = batch;
    if !drop_row {
        sizes.push(m);
    }
    if !drop_column {
        sizes.push(n);
    }
    (sizes, out)
}

#[test]
fn matmul_follows_the_ranks() {
    let shapes: [(&[i64], &[i64]); 12] = [
        (&[3], &[3]),
        (&[2, 3], &[3]),
        (&[3], &[3, 4]),
        (&[2, 3], &[3, 4]),
        (&[5, 2, 3], &[3, 4]),
        (&[5, 2, 3], &[3]),
        (&[3], &[5, 3, 4]),
        (&[2, 3], &[5, 3, 4]),
        (&[5, 2, 3], &[5, 3, 4]),
        (&[6, 1, 2, 3], &[5, 3, 4]),
        (&[2, 0], &[0, 4]),
        (&[0, 2, 3], &[3, 4]),
    ];
    for (a, b) in shapes {
        let (x, y) = (tensor(a, 1), tensor(b, 2));
        let (sizes, expected) = naive(&x, &y);
        let out = x.matmul(&y);
        assert_eq!(out.sizes_i64().unwrap(), sizes, "{a:?} {b:?}");
        assert_eq!(out.to_vec::<f32>().unwrap(), expected, "{a:?} {b:?}");
    }
}

#[test]
fn strides_do_not_matter() {
    let (x, y) = (tensor(&[3, 2], 1).t(), tensor(&[4, 6], 2).slice_step(1, .., 2).t());
    assert_eq!(x.mm(&y).to_vec::<f32>().unwrap(), naive(&x, &y).1);
    let row = tensor(&[1, 3], 3).expand([2, 3]);
    assert_eq!(row.mm(&y).to_vec::<f32>().unwrap(), naive(&row, &y).1);
}

#[test]
fn linear_and_addmm_add_the_bias() {
    let (x, w, b) = (tensor(&[5, 2, 3], 1), tensor(&[4, 3], 2), tensor(&[4], 3));
    let plain = x.linear(&w, None);
    assert_eq!(plain.sizes_i64().unwrap(), [5, 2, 4]);
    assert_eq!(plain.to_vec::<f32>().unwrap(), naive(&x, &w.t()).1);
    let biased = x.linear(&w, Some(&b)).to_vec::<f32>().unwrap();
    let bias = b.to_vec::<f32>().unwrap();
    for (i, (with, without)) in biased.iter().zip(plain.to_vec::<f32>().unwrap()).enumerate() {
        assert_eq!(*with, without + bias[i % 4]);
    }
    let nan = Tensor::from([f32::NAN; 4]);
    let ignored = nan.addmm_scaled(&tensor(&[2, 3], 1), &w.t(), 0, 1);
    assert!(ignored.to_vec::<f32>().unwrap().iter().all(|v| v.is_finite()), "beta 0 ignores self");
}

/// Beyond 2^53, where not every integer is an `f64`.
#[test]
fn factors_of_integers_are_exact() {
    const BIG: i64 = (1 << 53) + 1;
    let ones = |rank: usize| Tensor::ones(vec![1i64; rank], DType::I64);
    for (op, first, ranks) in
        [("addmv", 1, [2, 1]), ("addmm", 2, [2, 2]), ("baddbmm", 3, [3, 3]), ("addbmm", 2, [3, 3])]
    {
        let scaled = |beta: Scalar, alpha: Scalar| {
            let out = call(
                &format!("aten::{op}"),
                args![ones(first), ones(ranks[0]), ones(ranks[1]), beta, alpha],
            )
            .unwrap();
            out[0].tensor().unwrap().to_vec::<i64>().unwrap()
        };
        assert_eq!(scaled(0.into(), BIG.into()), [BIG], "{op}");
        assert_eq!(scaled(BIG.into(), 2.into()), [BIG + 2], "{op}");
        assert_eq!(scaled(1.7.into(), 2.5.into()), [3], "{op} truncates");
        assert_eq!(scaled(0.5.into(), 1.into()), [1], "{op}");
    }
}

#[test]
fn refusals_name_both_operands() {
    let (x, y) = (tensor(&[2, 3], 1), tensor(&[4, 5], 2));
    let text = x.mm(&y).ok().expect_err("3 columns, 4 rows").to_string();
    assert!(
        ["f32[2, 3]", "f32[4, 5]", "`self`", "`mat2`", "3 columns do not match 4 rows"]
            .iter()
            .all(|p| text.contains(p)),
        "{text}"
    );
    let text = x.matmul(&y.to_dtype(DType::F64)).ok().expect_err("two dtypes").to_string();
    assert!(["f32[2, 3]", "f64[4, 5]", "dtypes differ"].iter().all(|p| text.contains(p)), "{text}");
    let text = x.linear(&y, None).ok().expect_err("3 and 5").to_string();
    assert!(["`input`", "`weight`", "is 3", "5"].iter().all(|p| text.contains(p)), "{text}");
}

#[test]
fn outer_products_are_added_in_the_common_dtype() {
    let one =
        |args: Args| call("aten::addr", args).map(|o| o[0].tensor().expect("a tensor").clone());
    let (byte, hundred, float) =
        (Tensor::from(vec![16i8]), Tensor::from(vec![100i8]), Tensor::from(vec![1f32]));
    let cases = [
        (args![&Tensor::from(vec![0f32]), &hundred, &hundred], DType::F32, 10000.0),
        (args![&Tensor::from([[0i64]]), &byte, &byte], DType::I64, 256.0),
        (args![&Tensor::from([[100i8]]), &float, &float, 3], DType::F32, 301.0),
        (args![&Tensor::scalar(1i64), &hundred, &Tensor::from(vec![1i8])], DType::I64, 101.0),
        (args![&Tensor::scalar(1f64), &float, &float], DType::F64, 2.0),
    ];
    for (args, dtype, expected) in cases {
        let found = one(args).expect("terms of numbers");
        assert_eq!(
            (found.dtype(), found.to_dtype(DType::F64).item::<f64>().expect("one element")),
            (dtype, expected)
        );
    }
    let refused = [
        (args![&Tensor::from([[1i64]]), &hundred, &hundred, 0.5], "`beta` must be an integer"),
        (args![&Tensor::from([[1i64]]), &hundred, &hundred, 1, 1.0], "`alpha` must be an integer"),
        (args![&float, &float, &float, true], "`beta` must be a number"),
        (args![&byte, &byte, &byte, 1, 300], "`alpha` must be in the range of i8"),
        (args![&float, &Tensor::scalar(1f32), &float], "`vec1`"),
    ];
    for (args, message) in refused {
        let e = one(args).expect_err(message).to_string();
        assert!(e.contains(message), "{e}");
    }
    let e = call(
        "aten::addr_",
        args![
            &Tensor::from([[2i64, 3]]),
            &Tensor::from(vec![1.5f32]),
            &Tensor::from(vec![1f32, 1.0])
        ],
    );
    assert!(
        e.expect_err("floats in integers")
            .to_string()
            .contains("cannot be written into a tensor of dtype i64")
    );
}

/// A factor of 0 ignores a product, but not of batches, nor in half precision: as in PyTorch.
#[test]
fn zero_times_a_nonfinite_product_is_ignored() {
    for dtype in [DType::F32, DType::F64, DType::BF16] {
        let (one, inf) = (Tensor::ones([1, 1], dtype), Tensor::full([1, 1], f64::INFINITY, dtype));
        let (ones, infs) = (one.unsqueeze(0), inf.unsqueeze(0));
        let (v, w) = (one.select(0, 0), inf.select(0, 0));
        let kept = dtype != DType::BF16;
        for (op, args, expected) in [
            ("addmm", args![&one, &inf, &one, 1, 0], kept.then_some(1.0)),
            ("addmm", args![&one, &inf, &one, 2, 0], kept.then_some(2.0)),
            ("addmm", args![&inf, &inf, &one, 0, 0], kept.then_some(0.0)),
            ("addmv", args![&v, &inf, &v, 1, 0], kept.then_some(1.0)),
            ("addmv", args![&v, &one, &w, 1, 0], kept.then_some(1.0)),
            ("addbmm", args![&one, &infs, &ones, 1, 0], kept.then_some(1.0)),
            ("baddbmm", args![&ones, &infs, &ones, 1, 0], None),
        ] {
            let found = call(&format!("aten::{op}"), args).unwrap()[0]
                .tensor()
                .unwrap()
                .to_dtype(DType::F64)
                .item::<f64>()
                .unwrap();
            assert!(
                expected.map_or(found.is_nan(), |e| found == e),
                "{op} {dtype}: {found}, not {expected:?}"
            );
        }
    }
}
