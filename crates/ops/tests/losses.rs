//! Losses, distances, products by labels and linear algebra: what recorded calls do not show.

use maquette_aten as _;
use maquette_ir::DType;
use maquette_ir::sym::{Range, Scope, SymInt};
use maquette_ops::{Error, Reduction, Tensor, Value, args, call};

fn close(t: &Tensor, expected: &[f64]) {
    let found: Vec<f64> = t.to_dtype(DType::F64).to_vec().expect("the call succeeds");
    let same = |(a, b): (&f64, &f64)| {
        a == b || a.is_nan() && b.is_nan() || (a - b).abs() < 1e-5 * (1.0 + b.abs())
    };
    assert!(
        found.len() == expected.len() && found.iter().zip(expected).all(same),
        "{found:?} is not {expected:?}"
    );
}

fn error(t: Tensor) -> Error {
    t.ok().expect_err("the call is refused").clone()
}

fn floats(values: &[f64], sizes: &[i64]) -> Tensor {
    Tensor::from_vec(values.to_vec(), sizes)
}

fn labels(values: &[i64]) -> Tensor {
    Tensor::from_vec(values.to_vec(), [values.len() as i64])
}

#[test]
fn losses_of_no_elements() {
    use Reduction::{Mean, None as Each, Sum};
    let (x, y) = (Tensor::zeros([0, 3], DType::F32), Tensor::zeros([0, 3], DType::F32));
    let target = Tensor::zeros([0], DType::I64);
    for (reduction, expected) in [(Mean, &[f64::NAN][..]), (Sum, &[0.0]), (Each, &[])] {
        close(&x.mse_loss(&y, reduction), expected);
        close(&x.binary_cross_entropy(&y, None, reduction), expected);
        close(&x.cross_entropy_loss(&target, None, reduction, -100, 0.0), expected);
        close(&x.nll_loss(&target, None, reduction, -100), expected);
    }
}

#[test]
fn ignored_classes_and_weights() {
    // log-probabilities of two examples over three classes
    let x = floats(&[-1.0, -2.0, -3.0, -4.0, -5.0, -6.0], &[2, 3]);
    let weight = floats(&[1.0, 2.0, 4.0], &[3]);
    let t = labels(&[2, 1]);
    for (weight, ignored, reduction, expected) in [
        (None, -100, Reduction::Mean, vec![4.0]),
        (None, 1, Reduction::Mean, vec![3.0]),
        (None, 1, Reduction::None, vec![3.0, 0.0]),
        (Some(&weight), -100, Reduction::Sum, vec![22.0]),
        (Some(&weight), -100, Reduction::Mean, vec![22.0 / 6.0]),
        (Some(&weight), 2, Reduction::Mean, vec![5.0]),
    ] {
        close(&x.nll_loss(&t, weight, reduction, ignored), &expected);
    }
    // all ignored: 0 / 0
    close(&x.nll_loss(&labels(&[7, 7]), None, Reduction::Mean, 7), &[f64::NAN]);
    close(&x.nll_loss(&labels(&[7, 7]), None, Reduction::Sum, 7), &[0.0]);
}

#[test]
fn values_at_the_edges() {
    let p = floats(&[0.0, 1.0, 1.0, 0.5], &[4]);
    // a certain mistake costs 100
    close(
        &p.binary_cross_entropy(&floats(&[1.0, 1.0, 0.0, 0.5], &[4]), None, Reduction::None),
        &[100.0, 0.0, 100.0, 2f64.ln()],
    );
    // xlogy(0, 0) is 0
    close(&floats(&[3.0], &[1]).kl_div(&floats(&[0.0], &[1]), Reduction::Sum, false), &[0.0]);
    let (a, b) = (floats(&[1.0, f64::NAN], &[1, 2]), floats(&[4.0, 0.0], &[1, 2]));
    close(&a.cdist(&b, 1.0), &[f64::NAN]);
    close(&a.cdist(&b, f64::INFINITY), &[3.0]);
    close(
        &floats(&[0.0, 3.0, 0.0, 0.0], &[2, 2]).cdist(&floats(&[0.0, 0.0], &[1, 2]), 0.0),
        &[1.0, 0.0],
    );
    close(&Tensor::zeros([3, 0], DType::F32).pdist(2.0), &[0.0; 3]);
    close(
        &floats(&[0.0, 0.0], &[2]).cosine_similarity(&floats(&[1.0, 2.0], &[2]), 0, 1e-8),
        &[0.0],
    );
}

#[test]
fn integers_stay_exact() {
    let big = 1i64 << 60;
    let x = Tensor::from([[big, 1], [2, big + 1]]);
    assert_eq!(x.trace().to_vec::<i64>().expect("a sum"), [2 * big + 1]);
    let cross = Tensor::from([big, 2, 3]).linalg_cross(&Tensor::from([1i64, 0, 1]), 0);
    assert_eq!(cross.to_vec::<i64>().expect("a product"), [2, 3 - big, -2]);
    let outer = Tensor::einsum("i,j->ji", [&Tensor::from([big, 1]), &Tensor::from([1i64, 3])]);
    assert_eq!(outer.to_vec::<i64>().expect("a product"), [big, 1, 3 * big, 3]);
    assert_eq!(x.linalg_matrix_power(0).to_vec::<i64>().expect("ones"), [1, 0, 0, 1]);
}

#[test]
fn labels_sum_multiply_and_repeat() {
    let (a, b) = (floats(&[1.0, 2.0, 3.0, 4.0], &[2, 2]), floats(&[1.0, 0.0, 2.0, 1.0], &[2, 2]));
    for (equation, operands, expected) in [
        ("ij,jk", vec![&a, &b], vec![5.0, 2.0, 11.0, 4.0]),
        ("ij,jk->ki", vec![&a, &b], vec![5.0, 11.0, 2.0, 4.0]),
        ("ii", vec![&a], vec![5.0]),
        ("ii->i", vec![&a], vec![1.0, 4.0]),
        ("ba", vec![&a], vec![1.0, 3.0, 2.0, 4.0]),
        ("ij->", vec![&a], vec![10.0]),
        ("...j,j...->...", vec![&a, &b], vec![5.0, 4.0]),
        ("ij,ij,ij->j", vec![&a, &b, &a], vec![1.0 + 18.0, 16.0]),
    ] {
        close(&Tensor::einsum(equation, operands), &expected);
    }
    for (equation, operands, part) in [
        ("ij,jk->iz", vec![&a, &b], "label z must occur once"),
        ("ij->ii", vec![&a], "label i must occur once"),
        ("ij,jk", vec![&a], "names 2 operands, but there are 1"),
        ("ijk", vec![&a], "has 3 labels for an operand of 2 dimensions"),
        ("i1", vec![&a], "'1'"),
        ("ij->->i", vec![&a], "is not a letter"),
    ] {
        let text = error(Tensor::einsum(equation, operands)).to_string();
        assert!(text.contains(part), "{equation}: {text}");
    }
}

#[test]
fn factorisations_multiply_back() {
    // a batch that is not contiguous: its matrices are transposed
    let data: Vec<f64> = (0..24)
        .map(|i| f64::from((i * 7 + 3) % 11) - 5.0 + f64::from(i == 5 || i == 17) * 20.0)
        .collect();
    let x = Tensor::from_vec(data, [2, 3, 4]).transpose(1, 2);
    let whole = x.to_vec::<f64>().expect("data");
    for mode in ["reduced", "complete"] {
        let (q, r) = x.linalg_qr(mode);
        close(&q.matmul(&r), &whole);
        let side = q.size(2);
        close(
            &(q.transpose(1, 2).matmul(&q) - Tensor::eye(side, DType::F64))
                .abs()
                .amax([0, 1, 2], false),
            &[0.0],
        );
    }
    let (p, l, u) = x.linalg_lu();
    close(&p.matmul(&l).matmul(&u), &whole);
    let s = x.transpose(1, 2).matmul(&x) + Tensor::eye(3, DType::F64);
    for upper in [false, true] {
        let f = s.linalg_cholesky(upper);
        let t = f.transpose(1, 2);
        close(&if upper { t.matmul(&f) } else { f.matmul(&t) }, &s.to_vec::<f64>().expect("data"));
        close(
            &f.cholesky_inverse(upper).matmul(&s).select(0, 1),
            &[1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0],
        );
    }
    let y = floats(&[1.0, -2.0, 3.0], &[3]);
    close(&s.matmul(&s.linalg_solve(&y).unsqueeze(-1)), &[1.0, -2.0, 3.0, 1.0, -2.0, 3.0]);
    let (sign, log) = s.linalg_slogdet();
    close(&(sign * log.exp()), &s.linalg_det().to_vec::<f64>().expect("determinants"));
}

#[test]
fn matrices_without_rows() {
    let none = Tensor::zeros([0, 0], DType::F64);
    close(&none.linalg_det(), &[1.0]);
    close(&none.linalg_inv(), &[]);
    close(&floats(&[0.0; 4], &[2, 2]).linalg_det(), &[0.0]);
    close(&floats(&[0.0; 4], &[2, 2]).linalg_slogdet().1, &[f64::NEG_INFINITY]);
    let (q, r) = Tensor::zeros([2, 3, 0], DType::F64).linalg_qr("complete");
    assert_eq!(
        (q.sizes_i64().expect("sizes"), r.sizes_i64().expect("sizes")),
        (vec![2, 3, 3], vec![2, 3, 0])
    );
    close(&Tensor::zeros([0, 2], DType::F64).linalg_matrix_norm(1.0, [0, 1], false), &[0.0]);
}

#[test]
fn errors_name_the_refused_argument() {
    let x = floats(&[0.1, 0.2, 0.3, 0.4], &[2, 2]);
    let whole = Tensor::from([[1i64, 2], [3, 4]]);
    let mean = Reduction::Mean;
    for (result, part) in [
        (whole.mse_loss(&whole, mean), "takes floats, found `self` i64"),
        (whole.l1_loss(&whole, mean), "i64"),
        (x.huber_loss(&x, mean, 0.0), "`delta` must be positive, found 0"),
        (x.smooth_l1_loss(&x, mean, -1.0), "`beta` must not be negative, found -1"),
        (
            (&x * 9.0).binary_cross_entropy(&x, None, mean),
            "a probability between 0 and 1, found 1.8",
        ),
        (
            x.binary_cross_entropy(&(&x * 9.0), None, mean),
            "every element of `target` must be a probability between 0 and 1, found 1.8",
        ),
        (
            x.nll_loss(&labels(&[0, 2]), None, mean, -100),
            "holds the class 2, but `self` has 2 classes",
        ),
        (x.nll_loss(&labels(&[0, -1]), None, mean, -100), "holds the class -1"),
        (x.nll_loss(&labels(&[0]), None, mean, -100), "argument `target`"),
        (
            x.nll_loss(&labels(&[0, 1]).to_dtype(DType::I32), None, mean, -100),
            "i64 or u8, found i32",
        ),
        (
            x.cross_entropy_loss(&labels(&[0, 1]), Some(&floats(&[1.0], &[1])), mean, -100, 0.0),
            "argument `weight`",
        ),
        (x.cross_entropy_loss(&x, None, mean, 3, 0.0), "`ignore_index`"),
        (
            x.cross_entropy_loss(&labels(&[0, 1]), None, mean, -100, 1.5),
            "`label_smoothing` must be between 0 and 1, found 1.5",
        ),
        (x.multi_margin_loss(&labels(&[0, 1]), 3, 1.0, None, mean), "`p` must be 1 or 2, found 3"),
        (x.cdist(&floats(&[1.0], &[1, 1]), 2.0), "must have the same length"),
        (x.cdist(&x, -1.0), "`p` must not be negative, found -1"),
        (x.to_dtype(DType::BF16).pdist(2.0), "takes f32 and f64, found bf16"),
        (x.diag_embed(0, 1, 1), "`dim1` and `dim2` must differ"),
        (x.prelu(&floats(&[1.0; 3], &[3])), "one for each of 2 channels"),
        (x.select(0, 0).linalg_inv(), "`A` must have 2 to 64 dimensions"),
        (x.narrow(0, 0, 1).linalg_inv(), "square matrices, found sizes [1, 2]"),
        (whole.linalg_det(), "takes f32 and f64, found `A` i64"),
        (floats(&[1.0, 2.0, 2.0, 4.0], &[2, 2]).linalg_inv(), "is singular (at its row 2)"),
        (
            floats(&[1.0, 0.0, 0.0, -1.0], &[2, 2]).linalg_cholesky(false),
            "is not positive-definite (at its row 2)",
        ),
        (x.linalg_solve(&floats(&[1.0; 3], &[3])), "does not match the equations of `A` [2, 2]"),
        (x.linalg_matrix_norm(3.0, [0, 1], false), "expected 1, -1, inf, -inf or fro"),
        (x.linalg_matrix_norm(1.0, [0, 0], false), "2 different dimensions"),
        (x.linalg_cross(&x, 0), "must have size 3"),
        (Tensor::linalg_multi_dot([&x]), "at least 2 matrices, found 1"),
        (
            Tensor::block_diag([&Tensor::zeros([1, 1, 1], DType::F32)]),
            "`tensors[0]` must have at most 2 dimensions",
        ),
    ] {
        let text = error(result).to_string();
        assert!(text.contains(part), "{text:?} does not contain {part:?}");
    }
    let text = call("aten::mse_loss", args![&x, &x, 3]).expect_err("no such reduction").to_string();
    assert!(text.contains("0 (none), 1 (mean) or 2 (sum), found 3"), "{text}");
    let most = i64::MAX;
    for (op, args) in [
        ("aten::tril_indices", args![most, most, 0]),
        ("aten::triu_indices", args![most, most, -most]),
        ("aten::combinations", args![labels(&[0, 1]), most, true]),
        ("aten::combinations", args![labels(&[0; 100]), 50, false]),
        ("aten::combinations", args![labels(&[0; 64]), 30, true]),
        ("aten::_histogramdd_bin_edges", args![&x, [1i64 << 60, 2], (), (), false]),
        ("aten::histc", args![x.reshape([-1i64]), most, 0, 1]),
        ("aten::linspace", args![0, 1, most]),
        ("aten::diag_embed", args![&x, most]),
        ("aten::_chunk_cat", args![vec![x.clone()], 0, most]),
        ("aten::vander", args![labels(&[0, 1]), most]),
    ] {
        call(op, args).expect_err("there is not that much memory");
    }
    let text = call("aten::lu_unpack", args![&x, Tensor::from([1i32, 5])])
        .expect_err("no such row")
        .to_string();
    assert!(text.contains("row numbers from 1 to 2, found 5"), "{text}");
}

#[test]
fn symbolic_sizes_take_no_guards() {
    let scope = Scope::new();
    let b = scope.backed(Some("b"), Range::new(1, 64), 4).expect("a fresh symbol");
    let fake = |sizes: &[SymInt], dtype| Tensor::fake(sizes, dtype);
    let x = fake(&[b, 3.into()], DType::F32);
    let m = fake(&[b, 3.into(), 3.into()], DType::F32);
    let t = fake(&[b], DType::I64);
    let (mean, each) = (Reduction::Mean, Reduction::None);
    for (y, expected) in [
        (x.mse_loss(&x, mean), "[] []"),
        (x.smooth_l1_loss(&x, each, 1.0), "[b, 3] [3, 1]"),
        (x.binary_cross_entropy(&x, None, each), "[b, 3] [3, 1]"),
        (x.cross_entropy_loss(&t, None, each, -100, 0.1), "[b] [1]"),
        (
            x.transpose(0, 1).cross_entropy_loss(
                &Tensor::fake([3], DType::I64),
                None,
                mean,
                -100,
                0.1,
            ),
            "[] []",
        ),
        (x.cross_entropy_loss(&x, None, mean, -100, 0.0), "[] []"),
        (x.cdist(&fake(&[5.into(), 3.into()], DType::F32), 2.0), "[b, 5] [5, 1]"),
        (x.cosine_similarity(&x, 1, 1e-8), "[b] [1]"),
        (x.diag_embed(1, -2, -1), "[b, 4, 4] [16, 4, 1]"),
        (Tensor::einsum("bij,bj->bi", [&m, &x]), "[b, 3] [3, 1]"),
        (m.linalg_inv(), "[b, 3, 3] [9, 1, 3]"),
        (m.linalg_solve(&x.unsqueeze(-1)), "[b, 3, 1] [3, 1, 3]"),
        (m.linalg_qr("reduced").1, "[b, 3, 3] [9, 1, 3]"),
        (m.linalg_det(), "[b] [1]"),
    ] {
        y.ok().expect("the call succeeds");
        let text = |d: &[SymInt]| d.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        assert_eq!(format!("[{}] [{}]", text(y.sizes()), text(y.strides())), expected);
    }
    let guards: Vec<String> =
        scope.with(|d| d.guards.iter().map(|g| d.table.display_bool(g.cond).to_string()).collect());
    assert_eq!(guards, Vec::<String>::new());
}

#[test]
fn parts_do_not_share_memory() {
    let x = Tensor::arange(6).reshape([2, 3]);
    let parts = call("aten::unsafe_split.Tensor", args![&x, 2, 1]).expect("two parts");
    let parts: Vec<Tensor> = parts.iter().flat_map(Value::tensors).cloned().collect();
    parts[0].zero_();
    assert_eq!(parts[1].to_vec::<i64>().expect("data"), [2, 5]);
    assert_eq!(x.to_vec::<i64>().expect("data"), [0, 1, 2, 3, 4, 5]);
    let grids =
        Tensor::meshgrid([&Tensor::arange(2), &Tensor::arange(3)], "xy").expect("two grids");
    assert_eq!(grids[0].to_vec::<i64>().expect("data"), [0, 1, 0, 1, 0, 1]);
    for (op, rows, cols, offset, expected) in [
        ("aten::tril_indices", 2, 3, 0, vec![0, 1, 1, 0, 0, 1]),
        ("aten::tril_indices", 3, 2, -2, vec![2, 0]),
        ("aten::triu_indices", 3, 2, 1, vec![0, 1]),
        ("aten::triu_indices", 2, 2, -5, vec![0, 0, 1, 1, 0, 1, 0, 1]),
        ("aten::tril_indices", i64::MAX, 0, 1, vec![]),
        ("aten::triu_indices", i64::MAX, 1, 0, vec![0, 0]),
    ] {
        let out = call(op, args![rows, cols, offset]).expect("indices");
        assert_eq!(
            out[0].tensor().and_then(Tensor::to_vec::<i64>).expect("data"),
            expected,
            "{op} {rows} {cols} {offset}"
        );
    }
    assert_eq!(Tensor::arange(3).combinations(2, true).sizes_i64().expect("sizes"), [6, 2]);
    assert_eq!(
        Tensor::cartesian_prod([&Tensor::arange(2), &Tensor::arange(0)])
            .sizes_i64()
            .expect("sizes"),
        [0, 2]
    );
    // written in place, also where the operand is not contiguous
    let target = Tensor::zeros([2, 2], DType::F64);
    let view = target.t();
    call("aten::addr_", args![&view, floats(&[1.0, 2.0], &[2]), floats(&[3.0, 4.0], &[2])])
        .expect("a write");
    close(&target, &[3.0, 6.0, 4.0, 8.0]);
}

#[test]
fn distances_of_nan() {
    let (a, b) = (Tensor::from([[f64::NAN, 1.0, 2.0]]), Tensor::from([[1.0f64, 1.0, 3.0]]));
    let x = Tensor::from([[f64::NAN, 1.0], [1.0, 0.0]]);
    for p in [0.0, 1.0, 2.0, 3.0, f64::INFINITY] {
        let cdist = call("aten::cdist", args![&a, &b, p]).unwrap()[0]
            .tensor()
            .unwrap()
            .item::<f64>()
            .unwrap();
        let pdist =
            call("aten::pdist", args![&x, p]).unwrap()[0].tensor().unwrap().item::<f64>().unwrap();
        // the greatest difference between two tensors' rows is of those that are numbers
        assert!(if p.is_infinite() { cdist == 1.0 } else { cdist.is_nan() }, "{p}: {cdist}");
        assert!(pdist.is_nan(), "{p}: {pdist}");
    }
}
