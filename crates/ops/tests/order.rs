//! Order, counting and sets, beyond the recorded calls: ties, NaN, no elements, layouts, symbolic
//! sizes, errors.

use maquette_aten as _;
use maquette_ir::sym::{Range, Scope, SymInt};
use maquette_ir::{DType, Loc};
use maquette_ops::internals::MetaInternals;
use maquette_ops::{Args, Op, Tensor, Value, args, call, fake};

const NAN: f64 = f64::NAN;

fn floats(x: &[f64]) -> Tensor {
    Tensor::from_vec(x.iter().map(|x| *x as f32).collect::<Vec<_>>(), [x.len() as i64])
}

fn ints(x: &[i64]) -> Tensor {
    Tensor::from_vec(x.to_vec(), [x.len() as i64])
}

/// Elements, NaN written as a number that is none of theirs.
fn values(t: &Tensor) -> Vec<f64> {
    let v: Vec<f64> = t.to_dtype(DType::F64).to_vec().expect("a real tensor");
    v.into_iter().map(|x| if x.is_nan() { -999.0 } else { x }).collect()
}

#[test]
fn one_element_of_each_line() {
    let x = floats(&[3.0, NAN, 1.0, 2.0]);
    let rows = Tensor::from([[3i64, 1, 2], [9, 7, 7]]).transpose(0, 1);
    let (value, at) = x.median_dim(0, false);
    assert_eq!((values(&value), values(&at)), (vec![-999.0], vec![1.0]), "the first NaN");
    let (value, at) = x.nanmedian_dim(0, true);
    assert_eq!((values(&value), values(&at)), (vec![2.0], vec![3.0]));
    assert_eq!(values(&x.nanmedian()), [2.0]);
    assert_eq!(values(&ints(&[4, 1, 3, 2]).median()), [2.0], "the lower of two");
    assert_eq!(values(&floats(&[]).median()), [-999.0]);
    let (value, at) = rows.kthvalue(2, 0, false);
    assert_eq!((values(&value), values(&at)), (vec![2.0, 7.0], vec![2.0, 2.0]));
    let (value, at) = rows.mode(0, true);
    assert_eq!((values(&value), values(&at)), (vec![1.0, 7.0], vec![1.0, 2.0]));
    assert_eq!(value.sizes_i64().expect("sizes"), [1, 2]);
    let big = (1i64 << 53) + 1;
    assert_eq!(
        ints(&[big, big - 1, big + 1]).median().item::<i64>().expect("an integer"),
        big,
        "integers are not rounded"
    );
}

#[test]
fn distinct_elements() {
    let (v, inverse, counts) = floats(&[2.0, NAN, -0.0, 0.0, NAN]).unique();
    assert_eq!(values(&v), [0.0, 2.0, -999.0, -999.0]);
    assert_eq!(values(&inverse), [1.0, 2.0, 0.0, 0.0, 3.0]);
    assert_eq!(values(&counts), [2.0, 1.0, 1.0, 1.0]);
    let x = Tensor::from([[1i64, 2, 1], [3, 4, 3]]);
    let (v, inverse, counts) = x.unique_dim(1);
    assert_eq!(
        (values(&v), values(&inverse), values(&counts)),
        (vec![1.0, 2.0, 3.0, 4.0], vec![0.0, 1.0, 0.0], vec![2.0, 1.0])
    );
    assert_eq!(
        v.meta().concrete().expect("a real tensor").strides.as_slice(),
        [1, 2],
        "slices are outermost in memory"
    );
    let (v, _, counts) = ints(&[1, 1, 2, 1]).unique_consecutive();
    assert_eq!((values(&v), values(&counts)), (vec![1.0, 2.0, 1.0], vec![2.0, 1.0, 1.0]));
    let (v, inverse, counts) = Tensor::zeros([0, 3], DType::F32).unique_dim(0);
    assert_eq!(
        [v, inverse, counts].map(|t| t.sizes_i64().expect("sizes")),
        [vec![0, 3], vec![0], vec![0]]
    );
    assert_eq!(values(&ints(&[0, 2]).one_hot(-1)), [1.0, 0.0, 0.0, 0.0, 0.0, 1.0]);
    assert_eq!(values(&x.nonzero_static(3, -1).slice(0, 2..)), [0.0, 2.0]);
}

#[test]
fn positions_and_membership() {
    let s = floats(&[1.0, 3.0, 3.0, 5.0]);
    for (right, expected) in [(false, [1.0, 4.0, 0.0]), (true, [3.0, 4.0, 0.0])] {
        assert_eq!(values(&s.searchsorted(floats(&[3.0, NAN, -1.0]), right)), expected);
    }
    assert_eq!(values(&s.searchsorted(4.5, false)), [3.0]);
    assert_eq!(values(&ints(&[2, 4]).bucketize(&s)), [1.0, 3.0]);
    assert_eq!(values(&floats(&[3.0, NAN]).isin(&floats(&[NAN, 3.0]))), [1.0, 0.0]);
    assert_eq!(
        values(&ints(&[(1 << 53) + 1]).isin(&ints(&[1 << 53]))),
        [0.0],
        "integers are not rounded"
    );
    assert_eq!(values(&ints(&[1, 2]).isin(&floats(&[]))), [0.0, 0.0]);
}

#[test]
fn counts_and_bins() {
    assert_eq!(values(&floats(&[1.0, 2.0, 3.0, 9.0, NAN]).histc(3, 1, 3)), [1.0, 1.0, 1.0]);
    assert_eq!(values(&floats(&[1.0, 1.0]).histc(3, 0, 0)), [0.0, 2.0, 0.0]);
    let (hist, edges) = floats(&[]).histogram(2);
    assert_eq!((values(&hist), values(&edges)), (vec![0.0, 0.0], vec![0.0, 0.5, 1.0]));
    assert_eq!(values(&ints(&[3, 1, 3]).bincount()), [0.0, 1.0, 0.0, 2.0]);
    let weighted = call("aten::bincount", args![ints(&[]), floats(&[]), 2]).expect("a result");
    assert_eq!(weighted[0].tensor().expect("a tensor").dtype(), DType::I64);
    let x = floats(&[1.0, NAN, 3.0, 4.0]);
    let lengths = ints(&[2, 0, 2]);
    assert_eq!(values(&x.segment_reduce("max", &lengths, 0)), [-999.0, f64::NEG_INFINITY, 4.0]);
    assert_eq!(values(&x.segment_reduce("mean", &lengths, 0)), [-999.0, -999.0, 3.5]);
}

#[test]
fn shares_and_moments() {
    let x = Tensor::from([[1f32, 2.0, 3.0, 4.0], [4.0, 5.0, 6.0, f32::NAN]]);
    for (interpolation, expected) in
        [("linear", 2.5), ("lower", 2.0), ("higher", 3.0), ("midpoint", 2.5), ("nearest", 3.0)]
    {
        assert_eq!(
            values(&x.select(0, 0).quantile(0.5, None, false, interpolation)),
            [expected],
            "{interpolation}"
        );
    }
    let q = floats(&[0.0, 1.0]);
    let two = x.quantile(&q, Some(1), false, "linear");
    assert_eq!(
        (values(&two), two.sizes_i64().expect("sizes")),
        (vec![1.0, -999.0, 4.0, -999.0], vec![2, 2])
    );
    assert_eq!(values(&x.nanquantile(&q, Some(1), true, "linear")), [1.0, 4.0, 4.0, 6.0]);
    assert_eq!(values(&x.nanmean()), [25.0 / 7.0].map(|m: f64| f64::from(m as f32)));
    assert_eq!(
        values(&Tensor::from([[1f32, 2.0, 3.0], [3.0, 1.0, 2.0]]).cov()),
        [1.0, -0.5, -0.5, 1.0]
    );
    assert_eq!(values(&ints(&[1, 2, 3]).corrcoef()), [1.0]);
    assert_eq!(values(&Tensor::zeros([2, 0], DType::F32).cov()), [-999.0; 4]);
}

#[test]
fn norms_and_bags() {
    let x = Tensor::from([[3f32, 4.0], [0.3, 0.4]]);
    let near = |t: &Tensor, expected: &[f64]| {
        values(t).iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-6)
    };
    assert!(near(&x.renorm(2, 0, 1), &[0.6, 0.8, 0.3, 0.4]));
    let w = Tensor::from([[1f32, 10.0], [2.0, 5.0], [4.0, 0.0]]);
    let (indices, offsets) = (ints(&[0, 1, 2]), ints(&[0, 2, 2]));
    for (mode, expected) in [
        (0, [3.0, 15.0, 0.0, 0.0, 4.0, 0.0]),
        (1, [1.5, 7.5, 0.0, 0.0, 4.0, 0.0]),
        (2, [2.0, 10.0, 0.0, 0.0, 4.0, 0.0]),
    ] {
        assert_eq!(values(&w.embedding_bag(&indices, &offsets, mode)), expected, "mode {mode}");
    }
    let version = w.version();
    call("aten::embedding_renorm_", args![&w, ints(&[2, 2, -1]), 2.0, 2.0]).expect("a result");
    assert!(near(&w.select(0, 2), &[2.0, 0.0]), "a row counts once");
    assert_eq!(w.version(), version + 1);
    let w = Tensor::from([[3f32, -4.0, 2.0]]);
    for (order, expected) in
        [(f64::INFINITY, [0.75, -1.0, 0.5]), (f64::NEG_INFINITY, [1.5, -2.0, 1.0])]
    {
        let out =
            call("aten::embedding_renorm", args![&w, ints(&[0]), 1.0, order]).expect("a result");
        assert!(near(out[0].tensor().unwrap(), &expected), "order {order}");
    }
}

#[test]
fn agreement_is_a_bool() {
    let x = floats(&[1.0, NAN]);
    assert!(!x.equal(&x).expect("a bool"));
    assert!(ints(&[1, 2]).equal(&floats(&[1.0, 2.0])).expect("a bool"));
    assert!(!ints(&[1]).equal(&Tensor::from([[1i64]])).expect("a bool"));
    assert!(x.allclose(&x, 0.0, 0.0, true).expect("a bool"));
    assert_eq!(
        values(&floats(&[1.0, f64::INFINITY, 2.0]).isclose(
            &floats(&[1.1, f64::INFINITY, f64::INFINITY]),
            0.1,
            0.0,
            false
        )),
        [1.0, 1.0, 0.0]
    );
}

#[test]
fn masks_of_no_dimensions() {
    let x = ints(&[5, 6]);
    let (yes, no) = (Tensor::scalar(true), Tensor::scalar(false));
    assert_eq!(x.index(&[Some(&yes)]).sizes_i64().expect("sizes"), [1, 2]);
    assert_eq!(x.index(&[Some(&no)]).sizes_i64().expect("sizes"), [0, 2]);
    assert_eq!(values(&x.index(&[Some(&yes), Some(&ints(&[1]))])), [6.0]);
    assert_eq!(values(&Tensor::scalar(7i64).index(&[Some(&yes)])), [7.0]);
    assert_eq!(values(&x.index_put(&[Some(&yes)], &Tensor::scalar(1i64), false)), [1.0, 1.0]);
    assert_eq!(values(&x.index_put(&[Some(&no)], &Tensor::scalar(1i64), false)), [5.0, 6.0]);
}

fn shapes(scope: &Scope, op: &str, args: Args) -> Vec<String> {
    let out = fake::call(Op::find(op).expect("an operator"), &args, Some(scope), Loc::caller())
        .expect("the fake rule succeeds");
    let text = |d: &[SymInt]| d.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    out.iter()
        .flat_map(Value::tensors)
        .map(|t| format!("{}[{}] [{}]", t.dtype(), text(t.sizes()), text(t.strides())))
        .collect()
}

#[test]
fn symbolic_sizes_take_no_guards() {
    let scope = Scope::new();
    let b = scope.backed(Some("b"), Range::new(1, 64), 4).expect("a fresh symbol");
    let x = Tensor::fake([b, 6.into()], DType::F32);
    let v = Tensor::fake([b], DType::I64);
    for (op, args, expected) in [
        ("aten::median.dim", args![&x, 1, false], vec!["f32[b] [1]", "i64[b] [1]"]),
        ("aten::kthvalue", args![&x, 6, 1, true], vec!["f32[b, 1] [1, 1]", "i64[b, 1] [1, 1]"]),
        (
            "aten::quantile",
            args![&x, Tensor::fake([2], DType::F32), 1, false, "linear"],
            vec!["f32[2, b] [1, 2]"],
        ),
        (
            "aten::searchsorted.Tensor",
            args![Tensor::fake([9], DType::F32), &x, true, false, (), ()],
            vec!["i32[b, 6] [6, 1]"],
        ),
        ("aten::histc", args![&x, 5, 0, 0], vec!["f32[5] [1]"]),
        ("aten::renorm", args![&x, 2, 0, 1], vec!["f32[b, 6] [6, 1]"]),
        (
            "aten::_unique2",
            args![&x, true, true, false],
            vec!["f32[u0] [1]", "i64[b, 6] [6, 1]", "i64[0] [1]"],
        ),
        (
            "aten::unique_dim",
            args![&x, 1, true, true, true],
            vec!["f32[b, u1] [1, b]", "i64[6] [1]", "i64[u1] [1]"],
        ),
        ("aten::bincount", args![&v, (), 3], vec!["i64[u2] [1]"]),
        ("aten::one_hot", args![&v, -1], vec!["i64[b, u3] [u3, 1]"]),
        ("aten::nonzero_static", args![&x, b, 0], vec!["i64[b, 2] [2, 1]"]),
        (
            "aten::segment_reduce",
            args![&x, "sum", Tensor::fake([3], DType::I64), (), (), 0, false, ()],
            vec!["f32[3, 6] [6, 1]"],
        ),
        (
            "aten::_embedding_bag",
            args![&x, &v, Tensor::fake([3], DType::I64), false, 1, false, (), false, -1],
            vec!["f32[3, 6] [6, 1]", "i64[b] [1]", "i64[3] [1]", "i64[3] [1]"],
        ),
    ] {
        assert_eq!(shapes(&scope, op, args), expected, "{op}");
    }
    assert!(scope.with(|d| d.guards.is_empty()), "no guards");
    let range = |op: &str, args: Args| {
        let out =
            fake::call(Op::find(op).expect("an operator"), &args, Some(&scope), Loc::caller())
                .expect("the fake rule succeeds");
        out[0].tensor().expect("a tensor").size(-1).range()
    };
    assert_eq!(range("aten::_unique2", args![&x, true, false, false]), Range::new(1, 64 * 6));
    assert_eq!(range("aten::unique_dim", args![&x, 1, true, false, false]), Range::new(1, 6));
    assert_eq!(range("aten::bincount", args![&v, (), 3]).lo, 3);
    assert_eq!(
        range("aten::_unique2", args![Tensor::fake([0], DType::F32), true, false, false]),
        Range::new(0, 0)
    );
    assert!(
        fake::call(
            Op::find("aten::equal").expect("an operator"),
            &args![&x, &x],
            Some(&scope),
            Loc::caller()
        )
        .is_err()
    );
}

#[test]
fn bad_arguments_are_named() {
    let x = floats(&[1.0, 2.0]);
    let m = Tensor::from([[1f32, 2.0]]);
    let none = Tensor::zeros([2, 0], DType::F32);
    let big = ints(&[i64::MAX]);
    for (op, args, names) in [
        ("aten::median", args![Tensor::from(vec![true])], "`self`"),
        ("aten::median.dim", args![&none, 1, false], "dimension 1"),
        ("aten::mode", args![&none, -1, false], "dimension 1"),
        ("aten::kthvalue", args![&x, 3, 0, false], "`k`"),
        ("aten::kthvalue", args![&x, 0, 0, false], "`k`"),
        ("aten::unique_dim", args![&none, 0, true, true, true], "empty"),
        ("aten::unique_dim", args![Tensor::scalar(1f32), 0, true, true, true], "`dim`"),
        ("aten::nonzero_static", args![&x, -1, 0], "`size`"),
        ("aten::one_hot", args![ints(&[-1]), -1], "-1"),
        ("aten::one_hot", args![ints(&[2]), 2], "found 2"),
        ("aten::one_hot", args![ints(&[]), -1], "`num_classes`"),
        ("aten::one_hot", args![&big, -1], "`self`"),
        ("aten::bincount", args![&big, (), 0], "`self`"),
        ("aten::bincount", args![ints(&[-1]), (), 0], "negative"),
        ("aten::bincount", args![ints(&[i64::MAX / 16]), (), 0], "cannot allocate"),
        ("aten::searchsorted.Tensor", args![&m, &x, false, false, (), ()], "`self`"),
        ("aten::searchsorted.Tensor", args![&x, &x, false, true, "left", ()], "`side`"),
        ("aten::searchsorted.Tensor", args![&x, &x, false, false, (), ints(&[0, 2])], "`sorter`"),
        ("aten::bucketize.Tensor", args![&x, &m, false, false], "`boundaries`"),
        (
            "aten::isin.Tensor_Tensor",
            args![&x, Tensor::from(vec![true]), false, false],
            "`test_elements`",
        ),
        ("aten::histc", args![&x, 0, 0, 0], "`bins`"),
        ("aten::histc", args![&x, 3, 2, 1], "`max`"),
        ("aten::histc", args![floats(&[NAN]), 3, 0, 0], "finite"),
        ("aten::histogram.bin_ct", args![&x, 3, vec![1.0, 0.0], (), false], "`range`"),
        ("aten::histogram.bins_tensor", args![&x, floats(&[1.0]), (), false], "`bins`"),
        ("aten::_histogramdd_bin_edges", args![&m, [2i64], (), (), false], "`bins`"),
        ("aten::segment_reduce", args![&x, "sum", ints(&[1]), (), (), 0, false, ()], "`lengths`"),
        (
            "aten::segment_reduce",
            args![&x, "sum", (), (), ints(&[0, 3]), 0, true, ()],
            "a segment from 0 to 3",
        ),
        ("aten::segment_reduce", args![&x, "last", ints(&[2]), (), (), 0, false, ()], "`reduce`"),
        ("aten::quantile.scalar", args![&x, 1.5, (), false, "linear"], "`q`"),
        ("aten::quantile", args![&x, floats(&[NAN]), (), false, "linear"], "`q`"),
        ("aten::quantile.scalar", args![&none, 0.5, 0, false, "linear"], "`self`"),
        ("aten::quantile.scalar", args![&x, 0.5, 0, false, "cubic"], "`interpolation`"),
        ("aten::cov", args![&m, 1, ints(&[1, -1]), ()], "`fweights`"),
        ("aten::cov", args![&m, 1, (), ints(&[1, 1])], "`aweights`"),
        ("aten::renorm", args![&m, 0, 0, 1], "`p`"),
        ("aten::renorm", args![&x, 2, 0, 1], "`self`"),
        ("aten::embedding_renorm_", args![&m, ints(&[1]), 1.0, 2.0], "`indices`"),
        (
            "aten::embedding_bag",
            args![&m, ints(&[1]), ints(&[0]), false, 0, false, (), false],
            "`indices`",
        ),
        (
            "aten::embedding_bag",
            args![&m, ints(&[0]), ints(&[1]), false, 0, false, (), false],
            "`offsets`",
        ),
        (
            "aten::embedding_bag",
            args![&m, ints(&[0]), ints(&[0]), false, 3, false, (), false],
            "`mode`",
        ),
        ("aten::allclose", args![&x, ints(&[1, 2]), 0.0, 0.0, false], "`other`"),
        ("aten::isclose", args![&x, &x, -1.0, 0.0, false], "`rtol`"),
        ("aten::nanmean", args![ints(&[1]), (), false, ()], "`self`"),
    ] {
        let e = call(op, args).expect_err(op).to_string();
        assert!(e.contains(names), "{op} says {e:?}, not {names:?}");
    }
}
