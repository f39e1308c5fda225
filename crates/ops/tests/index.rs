//! Indexing by tensors, against lists written out.

use maquette_aten as _;
use maquette_ir::DType;
use maquette_ops::{Tensor, args, call};

fn iota(sizes: &[i64]) -> Tensor {
    Tensor::from_vec((0..sizes.iter().product::<i64>()).collect::<Vec<i64>>(), sizes)
}

fn list(t: &Tensor) -> Vec<i64> {
    t.to_vec::<i64>().unwrap()
}

#[test]
fn neighbouring_indices_stay_and_others_go_first() {
    let x = iota(&[2, 3, 4, 5]);
    let i = Tensor::from([0i64, 1]);
    let j = Tensor::from([[2i64, 3], [0, -1]]);
    let kept = x.index(&[None, Some(&i), Some(&j)]);
    assert_eq!(kept.sizes_i64().unwrap(), [2, 2, 2, 5]);
    let front = x.index(&[None, Some(&i), None, Some(&j)]);
    assert_eq!(front.sizes_i64().unwrap(), [2, 2, 2, 4]);
    let expected: Vec<i64> = [(0, 2), (1, 3), (0, 0), (1, 4)]
        .iter()
        .flat_map(|(a, b)| {
            (0..2).flat_map(move |n| (0..4).map(move |k| n * 60 + a * 20 + k * 5 + b))
        })
        .collect();
    assert_eq!(list(&front), expected);
}

#[test]
fn masks_read_and_write_the_masked_elements() {
    let x = iota(&[2, 3]);
    let mask = Tensor::from([[true, false, true], [false, false, true]]);
    assert_eq!(list(&x.index(&[Some(&mask)])), [0, 2, 5]);
    assert_eq!(list(&x.masked_select(&mask)), [0, 2, 5]);
    assert_eq!(list(&mask.nonzero()), [0, 0, 0, 2, 1, 2]);
    let rows = Tensor::from([false, true]);
    assert_eq!(list(&x.index(&[Some(&rows)])), [3, 4, 5]);
    let version = x.version();
    assert!(x.index_put_(&[Some(&mask)], &Tensor::scalar(-1i64), false).ok().is_ok());
    assert_eq!(list(&x), [-1, 1, -1, 3, 4, -1]);
    assert_eq!(x.version(), version + 1);
    assert_eq!(list(&x.masked_scatter(&mask, &Tensor::from([7i64, 8, 9, 10]))), [7, 1, 8, 3, 4, 9]);
}

#[test]
fn repeated_positions_accumulate_or_the_last_counts() {
    let x = iota(&[3]);
    let at = Tensor::from([1i64, 1, -1]);
    let values = Tensor::from([10i64, 20, 30]);
    assert_eq!(list(&x.index_put(&[Some(&at)], &values, true)), [0, 31, 32]);
    assert_eq!(list(&x.index_put(&[Some(&at)], &values, false)), [0, 20, 30]);
    assert_eq!(list(&x.index_add(0, &at.slice(0, ..2), &values.slice(0, ..2))), [0, 31, 2]);
    assert_eq!(list(&x), [0, 1, 2], "functional operators leave their arguments");
}

#[test]
fn gather_undoes_scatter() {
    let x = iota(&[3, 2]);
    let order = Tensor::from([[2i64, 0], [0, 1], [1, 2]]);
    let out = Tensor::from([[0i64; 2]; 3]).scatter(0, &order, &x);
    assert_eq!(list(&out.gather(0, &order)), list(&x));
    assert_eq!(list(&x.scatter_value(1, &Tensor::from([[1i64], [0], [1]]), 9)), [0, 9, 9, 3, 4, 9]);
}

#[test]
fn reductions_include_self_or_not() {
    let x = Tensor::from([1.0f32, 2.0, 3.0]);
    let (at, src) = (Tensor::from([0i64, 0, 1]), Tensor::from([10.0f32, 20.0, 30.0]));
    for (reduce, with, without) in [
        ("sum", [31.0, 32.0, 3.0], [30.0, 30.0, 3.0]),
        ("prod", [200.0, 60.0, 3.0], [200.0, 30.0, 3.0]),
        ("mean", [31.0 / 3.0, 16.0, 3.0], [15.0, 30.0, 3.0]),
        ("amax", [20.0, 30.0, 3.0], [20.0, 30.0, 3.0]),
        ("amin", [1.0, 2.0, 3.0], [10.0, 30.0, 3.0]),
    ] {
        for (include, expected) in [(true, with), (false, without)] {
            let out = x.scatter_reduce(0, &at, &src, reduce, include).to_vec::<f32>().unwrap();
            assert!(
                out.iter().zip(expected).all(|(a, b): (&f32, f32)| (a - b).abs() < 1e-5),
                "{reduce} {include}: {out:?}"
            );
        }
    }
}

#[test]
fn refusals_name_the_index() {
    let x = iota(&[2, 3]);
    for (t, parts) in [
        (x.index(&[Some(&Tensor::from([2i64]))]), ["index 2", "size 2"]),
        (x.index(&[Some(&Tensor::from([true, false, true]))]), ["[2]", "[3]"]),
        (
            x.index(&[Some(&Tensor::from([0i64, 1])), Some(&Tensor::from([0i64, 1, 2]))]),
            ["broadcast", "[3]"],
        ),
        (x.index_select(1, &Tensor::from([0.5f32])), ["`index`", "f32[1]"]),
        (x.index_select(1, &Tensor::from([-1i64])), ["index -1", "size 3"]),
        (x.gather(0, &Tensor::from([[-1i64]])), ["index -1", "size 2"]),
        (x.scatter(0, &Tensor::from([[-2i64]]), &x), ["index -2", "size 2"]),
        (x.scatter_value(0, &Tensor::from([[-1i64]]), 9), ["index -1", "size 2"]),
        (x.scatter_reduce(0, &Tensor::from([[-1i64]]), &x, "sum", true), ["index -1", "size 2"]),
        (x.index_add(1, &Tensor::from([-1i64]), &iota(&[2, 1])), ["index -1", "size 3"]),
        (x.embedding(&Tensor::from([-1i64])), ["index -1", "size 2"]),
        (x.index_fill(1, &Tensor::from([-4i64]), 9), ["index -4", "size 3"]),
        (x.reshape([-1i64]).index_select(0, &Tensor::from([6i64])), ["index 6", "size 6"]),
        (x.gather(0, &Tensor::from([0i64])), ["`index`", "[2, 3]"]),
        (x.scatter_reduce(0, &Tensor::from([[0i64]]), &x, "median", true), ["`reduce`", "median"]),
    ] {
        let text = t.ok().expect_err("the call is refused").to_string();
        assert!(parts.iter().all(|p| text.contains(p)), "{text}");
    }
}

/// As in PyTorch; the rest of the family refuses them.
#[test]
fn negative_positions_count_from_the_end_in_fills_and_lines() {
    let x = iota(&[2, 3]);
    assert_eq!(list(&x.index_fill(1, &Tensor::from([-1i64, 0]), 9)), [9, 1, 9, 9, 4, 9]);
    assert_eq!(list(&x.index_fill(0, &Tensor::scalar(-1i64), 9)), [0, 1, 2, 9, 9, 9]);
    assert_eq!(list(&Tensor::scalar(5i64).index_fill(0, &Tensor::from([-1i64]), 9)), [9]);
    let along = call("aten::take_along_dim", args![&x, Tensor::from([[-1i64], [3]]), 1]).unwrap();
    assert_eq!(list(along[0].tensor().unwrap()), [2, 3]);
}

/// Sums of half precision are rounded once, but where PyTorch rounds after every addition.
#[test]
fn narrow_sums_round_where_pytorch_rounds_them() {
    for (dtype, n, rounded, mean) in
        [(DType::BF16, 300, 256.0, 0.8515625), (DType::F16, 3000, 2048.0, 0.6826171875)]
    {
        let whole = f64::from(n);
        let n = i64::from(n);
        let (zero, zeros) = (Tensor::zeros([1], dtype), Tensor::zeros([1, 4], dtype));
        let (ones, rows) = (Tensor::ones([n], dtype), Tensor::ones([n, 4], dtype));
        let at = Tensor::zeros([n], DType::I64);
        let (across, wide) = (Tensor::zeros([n, 4], DType::I64), at.unsqueeze(1).expand([n, 4]));
        for (op, args, expected) in [
            ("scatter_add", args![&zero, 0, &at, &ones], whole),
            ("scatter_add", args![&zeros, 0, &across, &rows], whole),
            ("scatter_add", args![&zeros, 0, &wide, &rows], whole),
            ("scatter.reduce", args![&zero, 0, &at, &ones, "add"], whole),
            ("scatter.value_reduce", args![&zero, 0, &at, 1, "add"], whole),
            ("scatter_reduce.two", args![&zero, 0, &at, &ones, "sum", true], whole),
            ("scatter_reduce.two", args![&zero, 0, &at, &ones, "sum", false], whole),
            ("scatter_reduce.two", args![&zero, 0, &at, &ones, "mean", false], 1.0),
            ("index_add", args![&zeros, 0, &at, &rows, 1], whole),
            ("index_add", args![&zero, 0, &at, &ones, 1], rounded),
            ("index_reduce", args![&zero, 0, &at, &ones, "mean", false], 1.0),
            ("index_reduce", args![&zeros, 0, &at, &rows, "mean", true], mean),
            ("put", args![&zero, &at, &ones, true], rounded),
        ] {
            let out = call(&format!("aten::{op}"), args).unwrap();
            let out = out[0].tensor().unwrap().to_dtype(DType::F64).to_vec::<f64>().unwrap();
            assert!(out.iter().all(|x| *x == expected), "{op} {dtype}: {out:?}, not {expected}");
        }
        assert_eq!(
            zero.index_put(&[Some(&at)], &ones, true).to_dtype(DType::F64).to_vec::<f64>().unwrap(),
            [rounded]
        );
        let (factors, first) = (Tensor::full([20], 1.1, dtype), Tensor::zeros([20], DType::I64));
        let one = Tensor::ones([1], dtype);
        let once = one
            .scatter_reduce(0, &first, &factors, "prod", true)
            .to_dtype(DType::F64)
            .to_vec::<f64>()
            .unwrap();
        let each =
            call("aten::index_reduce", args![&one, 0, &first, &factors, "prod", true]).unwrap();
        let each = each[0].tensor().unwrap().to_dtype(DType::F64).to_vec::<f64>().unwrap();
        assert_eq!(
            (once[0], each[0]),
            if dtype == DType::BF16 { (6.90625, 6.875) } else { (6.6796875, 6.67578125) }
        );
    }
}

#[test]
fn positions_in_an_empty_dimension_are_refused() {
    let at = Tensor::from([5i64]);
    let x = Tensor::zeros([0, 0], DType::F32);
    for t in [
        x.index(&[Some(&at)]),
        x.index(&[None, Some(&at)]),
        x.index_put(&[Some(&at)], &Tensor::scalar(1f32), false),
    ] {
        let text = t.ok().expect_err("the call is refused").to_string();
        assert!(text.contains("dimension") && text.contains("empty"), "{text}");
    }
    // as in PyTorch, no index is looked at where there is nothing to find in other dimensions
    assert_eq!(Tensor::zeros([2, 0], DType::F32).index(&[Some(&at)]).sizes_i64().unwrap(), [1, 0]);
    assert_eq!(x.index(&[Some(&Tensor::zeros([0], DType::I64))]).sizes_i64().unwrap(), [0, 0]);
}
