//! Reductions, scans, order and softmax.

use maquette_aten as _;
use maquette_ir::DType;
use maquette_ops::{Tensor, Value, args, call};

fn sample() -> Tensor {
    Tensor::from([[1f32, 5.0, 3.0], [4.0, 2.0, 6.0]])
}

fn values(t: &Tensor) -> Vec<f64> {
    t.to_dtype(DType::F64).to_vec().expect("a real tensor")
}

#[test]
fn over_dimensions() {
    let x = sample();
    let cases: Vec<(&str, Tensor, Vec<i64>, Vec<f64>)> = vec![
        ("sum", x.sum(), vec![], vec![21.0]),
        ("sum 0", x.sum_dim(0, false), vec![3], vec![5.0, 7.0, 9.0]),
        ("sum -1 keep", x.sum_dim(-1, true), vec![2, 1], vec![9.0, 12.0]),
        ("sum both", x.sum_dim([0, 1], true), vec![1, 1], vec![21.0]),
        ("mean 1", x.mean_dim([1], false), vec![2], vec![3.0, 4.0]),
        ("prod", x.prod(), vec![], vec![720.0]),
        ("amax 0", x.amax(0, false), vec![3], vec![4.0, 5.0, 6.0]),
        ("amin all", x.amin([0i64; 0], false), vec![], vec![1.0]),
        ("argmax", x.argmax(), vec![], vec![5.0]),
        ("argmin 1 keep", x.argmin_dim(1, true), vec![2, 1], vec![0.0, 1.0]),
        ("any 0", x.gt(5).any_dim(0, false), vec![3], vec![0.0, 0.0, 1.0]),
        ("all", x.gt(0).all(), vec![], vec![1.0]),
        ("var 1", x.var_dim(1, 1, false), vec![2], vec![4.0, 4.0]),
        ("std 1 biased", x.std_dim(1, 0, false), vec![2], vec![(8f64 / 3.0).sqrt(); 2]),
        ("norm", x.linalg_vector_norm(2, 1, false), vec![2], vec![35f64.sqrt(), 56f64.sqrt()]),
        ("count", x.gt(2).count_nonzero(), vec![], vec![4.0]),
        ("cumsum", x.cumsum(1), vec![2, 3], vec![1.0, 6.0, 9.0, 4.0, 6.0, 12.0]),
        ("cumprod", x.cumprod(0), vec![2, 3], vec![1.0, 5.0, 3.0, 4.0, 10.0, 18.0]),
        ("argsort", x.argsort(1, true), vec![2, 3], vec![1.0, 2.0, 0.0, 2.0, 0.0, 1.0]),
        ("logsumexp", x.logsumexp(1, false), vec![2], vec![5.142_931_6, 6.142_931_6]),
        ("softmax", x.softmax(1).sum_dim(1, false), vec![2], vec![1.0, 1.0]),
        ("log_softmax", x.log_softmax(1).exp().sum_dim(1, false), vec![2], vec![1.0, 1.0]),
    ];
    for (name, t, sizes, expected) in cases {
        assert_eq!(t.sizes_i64().expect(name), sizes, "{name}");
        let found = values(&t);
        assert!(
            found.iter().zip(&expected).all(|(a, b)| (a - b).abs() < 1e-5),
            "{name}: {found:?}, expected {expected:?}"
        );
    }
}

#[test]
fn with_positions() {
    let x = sample();
    let (v, i) = x.max_dim(0, false);
    assert_eq!((values(&v), values(&i)), (vec![4.0, 5.0, 6.0], vec![1.0, 0.0, 1.0]));
    let (v, i) = x.sort(1, false);
    assert_eq!(
        (values(&v), values(&i)),
        (vec![1.0, 3.0, 5.0, 2.0, 4.0, 6.0], vec![0.0, 2.0, 1.0, 1.0, 0.0, 2.0])
    );
    let (v, i) = x.topk(1, 1, true);
    assert_eq!((values(&v), values(&i)), (vec![5.0, 6.0], vec![1.0, 2.0]));
    let (var, mean) = x.var_mean(1, 1, false);
    assert_eq!((values(&var), values(&mean)), (vec![4.0, 4.0], vec![3.0, 4.0]));
}

#[test]
fn dtypes_and_scalars() {
    let b = Tensor::from(vec![true, true, false]);
    assert_eq!(b.sum().item::<i64>().expect("an integer"), 2);
    assert_eq!(Tensor::from(vec![1u8, 2]).sum().dtype(), DType::I64);
    assert_eq!(Tensor::from(vec![1u8, 0]).any().dtype(), DType::U8);
    let zero_dim = Tensor::scalar(3f32);
    assert_eq!(zero_dim.sum_dim(0, false).item::<f32>().expect("a float"), 3.0);
    assert_eq!(zero_dim.max_dim(-1, true).1.item::<i64>().expect("an index"), 0);
    assert_eq!(zero_dim.softmax(0).item::<f32>().expect("a float"), 1.0);
}

#[test]
fn no_elements() {
    let x = Tensor::zeros([2, 0], DType::F32);
    assert_eq!(values(&x.sum_dim(1, false)), [0.0, 0.0]);
    assert_eq!(values(&x.prod()), [1.0]);
    assert!(values(&x.mean())[0].is_nan());
    assert_eq!(values(&x.logsumexp(1, false)), [f64::NEG_INFINITY; 2]);
    for t in [x.max(), x.amax(1, false), x.argmax(), x.min_dim(1, false).0] {
        let e = t.ok().expect_err("there is nothing to choose").to_string();
        assert!(e.contains("no elements"), "{e}");
    }
}

#[test]
fn bad_dimensions_and_dtypes() {
    let x = sample();
    for (t, message) in [
        (x.sum_dim([0, 0], false), "duplicate dimension 0"),
        (x.sum_dim(2, false), "out of range"),
        (Tensor::from(vec![1i64]).mean(), "floats"),
        (Tensor::from(vec![1i64]).softmax(0), "floats"),
        (x.topk(4, 1, true).0, "`k`"),
    ] {
        let e = t.ok().expect_err(message).to_string();
        assert!(e.contains(message), "{e}");
    }
}

#[test]
fn the_norm_of_one_element_is_its_magnitude() {
    let x = Tensor::from([[-6.09375f32, 3e30, 0.0]]);
    for p in [100.0, 2.0, 0.5, -3.0, f64::NEG_INFINITY] {
        assert_eq!(
            values(&x.linalg_vector_norm(p, 0, false)),
            [6.09375, f64::from(3e30f32), 0.0],
            "order {p}"
        );
        assert_eq!(
            values(&x.select(1, 0).linalg_vector_norm(p, [0i64; 0], true)),
            [6.09375],
            "order {p}"
        );
    }
    assert_eq!(values(&x.linalg_vector_norm(0, 0, false)), [1.0, 1.0, 0.0]);
}

/// Squares of `f32` are accumulated in `f64`, and so is the mean that goes with them.
#[test]
fn deviations_of_large_numbers_do_not_overflow() {
    for x in [
        Tensor::from([1e20f32, 2e20, 3e20]),
        Tensor::from([[1e20f32, 0.0], [2e20, 0.0], [3e20, 0.0]]).select(1, 0),
    ] {
        assert_eq!(x.std_dim(0, 1, false).to_vec::<f32>().unwrap(), [1e20]);
    }
    for n in [2, 5000] {
        let x = Tensor::full([n, 16], 3e38, DType::F32);
        for dims in [vec![0i64], vec![0, 1]] {
            let out = call("aten::var_mean.correction", args![&x, dims, 1, false]).unwrap();
            for (t, expected) in out.iter().zip([0.0, 3e38]) {
                assert!(
                    t.tensor().unwrap().to_vec::<f32>().unwrap().iter().all(|&y| y == expected),
                    "{out:?}"
                );
            }
        }
    }
    let x = Tensor::from([60000f32, 60000.0]).to_dtype(DType::F16);
    assert_eq!(values(&x.std_dim(0, 1, false)), [0.0]);
}

/// Sums and products in a dtype that is asked for are of elements in it.
#[test]
fn elements_are_cast_before_they_are_added() {
    let found = |op: &str, x: &Tensor, dtype: DType| {
        let dtype =
            if op == "nansum" { args![x, Value::None, false, dtype] } else { args![x, dtype] };
        values(call(&format!("aten::{op}"), dtype).unwrap()[0].tensor().unwrap())[0]
    };
    for (x, [sum, prod, nansum]) in [
        ([2.0f32, -2.0], [1.0, 1.0, 1.0]),
        ([0.5, -0.5], [1.0, 1.0, 1.0]),
        ([0.5, 0.5], [1.0, 1.0, 1.0]),
        ([f32::NAN, 0.0], [1.0, 0.0, 0.0]),
        ([0.0, 0.0], [0.0, 0.0, 0.0]),
    ] {
        for (op, expected) in [("sum", sum), ("prod", prod), ("nansum", nansum)] {
            assert_eq!(found(op, &Tensor::from(x), DType::Bool), expected, "{op} {x:?}");
        }
    }
    assert_eq!(found("sum", &Tensor::from([2i64, -2]), DType::Bool), 1.0);
    let beyond = Tensor::from([70000f32, -70000.0]);
    assert!(
        found("sum", &beyond, DType::F16).is_nan() && found("nansum", &beyond, DType::F16).is_nan()
    );
    assert!(found("prod", &Tensor::from([70000f32, 0.0]), DType::F16).is_nan());
    assert_eq!(found("sum", &Tensor::from([2049i64, 1]), DType::F16), 2048.0);
    assert_eq!(found("mean", &beyond, DType::F16), 0.0, "means are cast last");
}

#[test]
fn norms_that_choose_have_no_value_of_nothing() {
    let x = Tensor::zeros([2, 0], DType::F32);
    for p in [f64::INFINITY, f64::NEG_INFINITY, -1.0, -2.5] {
        for (op, args) in [
            ("linalg_vector_norm", args![&x, p]),
            ("linalg_vector_norm", args![&x, p, vec![1i64]]),
            ("norm.Scalar", args![&x, p]),
            ("norm.ScalarOpt_dim", args![&x, p, vec![1i64], false]),
            ("norm.ScalarOpt_dim_dtype", args![&x, p, vec![1i64], false, DType::F64]),
            ("dist", args![&x, &x, p]),
            ("pairwise_distance", args![&x, &x, p, 1e-6, false]),
        ] {
            let text = call(&format!("aten::{op}"), args).expect_err(op).to_string();
            assert!(text.contains("no elements"), "{op} {p}: {text}");
        }
        assert_eq!(
            x.linalg_vector_norm(p, [0i64], false).sizes_i64().unwrap(),
            [0],
            "there is no line without elements"
        );
    }
    assert_eq!(values(&x.linalg_vector_norm(0.5, [1i64], false)), [0.0, 0.0]);
}

/// Lines may be long where there are none.
#[test]
fn empty_reductions_over_long_dimensions() {
    let x = Tensor::zeros([0, 1i64 << 40], DType::F32);
    for (op, args) in [
        ("median.dim", args![&x, 1]),
        ("nanmedian.dim", args![&x, 1]),
        ("mode", args![&x, 1]),
        ("kthvalue", args![&x, 1, 1]),
    ] {
        let out = call(&format!("aten::{op}"), args).expect(op);
        assert_eq!(out[0].tensor().unwrap().sizes_i64().unwrap(), [0], "{op}");
    }
}

#[test]
fn medians_of_nothing() {
    for (dtype, expected) in [
        (DType::I8, 0.0),
        (DType::U8, 0.0),
        (DType::I16, 0.0),
        (DType::I32, -2147483648.0),
        (DType::I64, -9223372036854775808.0),
    ] {
        for op in ["aten::median", "aten::nanmedian"] {
            let out = call(op, args![Tensor::zeros([0], dtype)]).expect("a number");
            assert_eq!(values(out[0].tensor().unwrap()), [expected], "{op} {dtype}");
        }
    }
}

#[test]
fn truths_have_no_integral() {
    let (b, x) = (Tensor::from([true, true, false]), Tensor::from([1f32, 2.0, 3.0]));
    for op in ["trapezoid", "cumulative_trapezoid"] {
        for (overload, args) in
            [("dx", args![&b]), ("x", args![&b, &b]), ("x", args![&x, &b]), ("x", args![&b, &x])]
        {
            let text = call(&format!("aten::{op}.{overload}"), args).expect_err(op).to_string();
            assert!(text.contains("must hold numbers"), "{text}");
        }
    }
    let none =
        call("aten::trapezoid.dx", args![Tensor::zeros([0], DType::Bool)]).expect("nothing to add");
    assert!(!none[0].tensor().unwrap().item::<bool>().unwrap());
}
