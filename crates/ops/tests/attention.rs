//! Attention against its definition by other operators, in every layout; what it refuses; what it
//! asks of symbolic sizes.

use maquette_aten as _;
use maquette_ir::DType;
use maquette_ir::sym::{Range, Scope, SymInt};
use maquette_ops::{Tensor, args, call};

fn tensor(sizes: &[i64], seed: i64) -> Tensor {
    let n: i64 = sizes.iter().product();
    Tensor::from_vec(
        (0..n).map(|i| ((i * 5 + seed * 3) % 13 - 6) as f32 / 8.0).collect::<Vec<f32>>(),
        sizes,
    )
}

fn numbers(t: &Tensor) -> Vec<f32> {
    t.to_dtype(DType::F32).contiguous().to_vec().unwrap()
}

/// Heads repeated, scores, softmax, product.
fn definition(
    [q, k, v]: [&Tensor; 3],
    mask: Option<&Tensor>,
    causal: bool,
    scale: Option<f64>,
    grouped: bool,
) -> Tensor {
    let repeated = |t: &Tensor| match grouped {
        true => t.repeat_interleave(
            q.sizes_i64().unwrap()[q.dim() - 3] / t.sizes_i64().unwrap()[t.dim() - 3],
            -3,
        ),
        false => t.clone(),
    };
    let (k, v) = (repeated(k), repeated(v));
    let width = *q.sizes_i64().unwrap().last().unwrap();
    let mut scores = q.matmul(&k.transpose(-2, -1)) * scale.unwrap_or(1.0 / (width as f64).sqrt());
    let lowest = Tensor::scalar(f32::NEG_INFINITY);
    let rows = [q.sizes()[q.dim() - 2], k.sizes()[k.dim() - 2]];
    let seen = if causal {
        Some(Tensor::ones(rows, DType::Bool).tril(0))
    } else {
        mask.filter(|m| m.dtype() == DType::Bool).cloned()
    };
    match (seen, mask) {
        (Some(seen), _) => {
            scores = call("aten::where.self", args![&seen, &scores, &lowest]).unwrap()[0]
                .tensor()
                .unwrap()
                .clone()
        }
        (None, Some(m)) => scores = &scores + m,
        (None, None) => {}
    }
    call("aten::_safe_softmax", args![&scores, -1]).unwrap()[0].tensor().unwrap().matmul(&v)
}

#[track_caller]
fn check(
    [q, k, v]: [&Tensor; 3],
    mask: Option<&Tensor>,
    causal: bool,
    scale: Option<f64>,
    grouped: bool,
) {
    let (found, expected) = (
        q.scaled_dot_product_attention(k, v, mask, causal, scale, grouped),
        definition([q, k, v], mask, causal, scale, grouped),
    );
    found.ok().unwrap();
    assert_eq!(found.sizes_i64().unwrap(), expected.sizes_i64().unwrap());
    for (a, b) in numbers(&found).iter().zip(numbers(&expected)) {
        assert!((a - b).abs() < 1e-5, "{a} {b}");
    }
}

#[test]
fn its_definition() {
    let (q, k, v) = (tensor(&[2, 4, 5, 3], 1), tensor(&[2, 4, 7, 3], 2), tensor(&[2, 4, 7, 2], 3));
    check([&q, &k, &v], None, false, None, false);
    check([&q, &k, &v], None, true, Some(-0.7), false);
    let odd = |sizes: &[i64]| tensor(sizes, 4);
    for sizes in [&[][..], &[7], &[5, 1], &[5, 7], &[4, 5, 7], &[2, 1, 1, 7], &[3, 1, 1, 5, 7]] {
        let mask = odd(sizes);
        check([&q, &k, &v], Some(&mask), false, None, false);
        check([&q, &k, &v], Some(&mask.gt(0.0)), false, None, false);
    }
    check([&q, &k, &v], Some(&odd(&[7, 5]).t()), false, None, false);
    // batches that broadcast, of unlike ranks, and memory in other orders
    check([&odd(&[5, 3]), &k, &v], None, false, None, false);
    check([&q, &odd(&[1, 4, 7, 3]), &odd(&[7, 2])], None, true, None, false);
    let (heads, values) = (odd(&[2, 5, 4, 3]).transpose(1, 2), odd(&[2, 4, 2, 7]).transpose(2, 3));
    check([&heads, &k, &values], Some(&odd(&[2, 7, 5, 1]).transpose(1, 3)), false, None, false);
    check(
        [&q.expand([2, 2, 4, 5, 3]), &k.slice(2, ..1).expand([2i64, 4, 7, 3]), &v],
        None,
        false,
        None,
        false,
    );
}

#[test]
fn grouped_heads() {
    let q = tensor(&[2, 6, 5, 3], 1);
    for (hk, hv) in [(1, 1), (2, 2), (3, 3), (6, 6), (2, 1), (2, 6), (6, 2), (2, 3), (3, 2)] {
        let (k, v) = (tensor(&[2, hk, 7, 3], 2), tensor(&[2, hv, 7, 2], 3));
        check([&q, &k, &v], None, true, None, true);
        for sizes in [&[5, 7][..], &[6, 5, 7], &[2, 1, 1, 7], &[3, 1, 1, 1, 1]] {
            check([&q, &k, &v], Some(&tensor(sizes, 4)), false, None, true);
        }
        check([&q.select(0, 1), &k, &v], None, false, None, true);
        check([&q, &k.select(0, 1), &v.select(0, 0)], None, false, None, true);
    }
    // one head of each, and a mask of several
    check(
        [&q.slice(1, ..1), &tensor(&[2, 1, 7, 3], 2), &tensor(&[2, 1, 7, 2], 3)],
        Some(&tensor(&[4, 5, 7], 4)),
        false,
        None,
        true,
    );
}

#[test]
fn sizes_of_nothing() {
    let attend = |sizes: [&[i64]; 3], mask: Option<&[i64]>, grouped: bool| {
        let [q, k, v] = sizes.map(|s| tensor(s, 1));
        let mask = mask.map(|m| tensor(m, 2));
        let out = q.scaled_dot_product_attention(&k, &v, mask.as_ref(), false, None, grouped);
        (out.sizes_i64().unwrap(), numbers(&out))
    };
    for grouped in [false, true] {
        for mask in [None, Some(&[5, 7][..])] {
            // no batch, no heads, no queries, no width of values
            assert_eq!(
                attend([&[0, 4, 5, 3], &[0, 4, 7, 3], &[0, 4, 7, 2]], mask, grouped),
                (vec![0, 4, 5, 2], vec![])
            );
            assert_eq!(
                attend([&[2, 0, 5, 3], &[2, 0, 7, 3], &[2, 0, 7, 2]], mask, grouped),
                (vec![2, 0, 5, 2], vec![])
            );
            assert_eq!(
                attend([&[2, 4, 5, 3], &[2, 4, 7, 3], &[2, 4, 7, 0]], mask, grouped),
                (vec![2, 4, 5, 0], vec![])
            );
        }
        assert_eq!(
            attend([&[2, 4, 0, 3], &[2, 4, 7, 3], &[2, 4, 7, 2]], Some(&[0, 7]), grouped),
            (vec![2, 4, 0, 2], vec![])
        );
        // no keys; no width of queries
        for mask in [None, Some(&[4, 5, 0][..])] {
            assert_eq!(
                attend([&[2, 4, 5, 3], &[2, 4, 0, 3], &[2, 4, 0, 2]], mask, grouped),
                (vec![2, 4, 5, 2], vec![0.0; 80])
            );
        }
        let (sizes, means) = attend([&[4, 1, 0], &[4, 2, 0], &[4, 2, 1]], None, grouped);
        let v = numbers(&tensor(&[4, 2, 1], 1));
        assert_eq!(
            (sizes, means),
            (vec![4, 1, 1], v.chunks(2).map(|p| (p[0] + p[1]) / 2.0).collect())
        );
    }
    assert_eq!(
        attend([&[2, 0, 5, 3], &[2, 4, 7, 3], &[2, 1, 7, 2]], None, true),
        (vec![2, 0, 5, 2], vec![])
    );
    // as many dimensions as there may be
    let deep = |n: i64| [vec![1; 61], vec![n, 2, 2]].concat();
    assert_eq!(attend([&deep(4), &deep(2), &deep(2)], None, true).0, deep(4));
}

#[test]
fn half_precision_in_groups() {
    let (q, k, v) = (tensor(&[2, 4, 5, 3], 1), tensor(&[2, 2, 7, 3], 2), tensor(&[2, 2, 7, 2], 3));
    for d in [DType::BF16, DType::F16] {
        let [x, y, z] = [&q, &k, &v].map(|t| t.to_dtype(d));
        for mask in [
            None,
            Some(tensor(&[5, 7], 4)),
            Some(tensor(&[5, 7], 4).to_dtype(d)),
            Some(tensor(&[4, 5, 7], 4).gt(0.0)),
        ] {
            let out = x.scaled_dot_product_attention(&y, &z, mask.as_ref(), false, None, true);
            let wide = q.scaled_dot_product_attention(
                &k,
                &v,
                mask.map(|m| if m.dtype() == d { m.to_dtype(DType::F32) } else { m }).as_ref(),
                false,
                None,
                true,
            );
            assert_eq!(out.dtype(), d);
            numbers(&out)
                .iter()
                .zip(numbers(&wide))
                .for_each(|(a, b)| assert!((a - b).abs() < 5e-3, "{a} {b}"));
        }
    }
}

#[test]
fn flash_hides_by_mask_and_by_cause() {
    let (q, k) = (tensor(&[2, 4, 5, 3], 1), tensor(&[2, 2, 5, 3], 2));
    let mask = tensor(&[2, 1, 5, 5], 4);
    let later = Tensor::ones([5, 5], DType::F32).triu(1).gt(0.0);
    let both = mask.masked_fill(&later, f64::from(f32::NEG_INFINITY));
    let out = call(
        "aten::_scaled_dot_product_flash_attention_for_cpu",
        args![&q, &k, &k, 0.0, true, &mask],
    )
    .unwrap();
    let expected = definition([&q, &k, &k], Some(&both), false, None, true);
    for (a, b) in numbers(out[0].tensor().unwrap()).iter().zip(numbers(&expected)) {
        assert!((a - b).abs() < 1e-5, "{a} {b}");
    }
    assert_eq!(out[1].tensor().unwrap().sizes_i64().unwrap(), [2, 4, 5]);
}

#[test]
fn refusals_name_the_argument() {
    let (q, k, v) = (tensor(&[2, 4, 5, 3], 1), tensor(&[2, 4, 7, 3], 2), tensor(&[2, 4, 7, 2], 3));
    let refusal = |[q, k, v]: [&Tensor; 3], mask: Option<&Tensor>, causal: bool, grouped: bool| {
        q.scaled_dot_product_attention(k, v, mask, causal, None, grouped)
            .ok()
            .map(|_| ())
            .expect_err("the call is refused")
            .to_string()
    };
    let ints = [&q, &k, &v].map(|t| t.to_dtype(DType::I64));
    let halves = |sizes: &[i64]| tensor(sizes, 1).to_dtype(DType::BF16);
    let three = tensor(&[2, 3, 7, 2], 1);
    for (text, expected) in [
        (
            refusal([&ints[0], &ints[1], &ints[2]], None, false, false),
            "argument `query` must have a floating dtype, found i64[2, 4, 5, 3]",
        ),
        (
            refusal([&q, &k.to_dtype(DType::F64), &v], None, false, false),
            "arguments `query` and `key` must have the same dtype, found f32[2, 4, 5, 3] and \
                f64[2, 4, 7, 3]",
        ),
        (
            refusal([&q, &k, &tensor(&[7], 1)], None, false, false),
            "argument `value` must have 2 to 64 dimensions, found sizes [7]",
        ),
        (
            refusal([&tensor(&[5, 3], 1), &k, &v], None, false, true),
            "argument `query` must have 3 to 64 dimensions, found sizes [5, 3]",
        ),
        (
            refusal([&q, &v, &v], None, false, false),
            "argument `key` must have rows of 3 elements, as `query`, found sizes [2, 4, 7, 2]",
        ),
        (
            refusal([&q, &k, &q], None, false, false),
            "argument `value` must have 7 rows, as `key`, found sizes [2, 4, 5, 3]",
        ),
        (
            refusal([&q, &k, &three], None, false, true),
            "the heads of `value` must divide the 4 of `query`, found sizes [2, 3, 7, 2]",
        ),
        (
            refusal([&q, &k.slice(1, ..0), &v], None, false, true),
            "the heads of `key` must divide the 4 of `query`, found sizes [2, 0, 7, 3]",
        ),
        (
            refusal([&q, &k, &three], None, false, false),
            "the leading sizes of `query` and `value` must broadcast, found sizes [2, 4, 5, 3] \
                and [2, 3, 7, 2]",
        ),
        (
            refusal([&q, &k, &v], Some(&tensor(&[3, 1, 5, 7], 1)), false, false),
            "the leading sizes of `query` and `attn_mask` must broadcast, found sizes [2, 4, 5, \
                3] and [3, 1, 5, 7]",
        ),
        (
            refusal([&q, &k, &v], Some(&tensor(&[5, 6], 1)), false, false),
            "argument `attn_mask` must expand to sizes [5, 7], found sizes [5, 6]",
        ),
        (
            refusal([&q, &k, &v], Some(&tensor(&[2, 1, 4, 7], 1)), false, true),
            "argument `attn_mask` must expand to sizes [2, 1, 5, 7], found sizes [2, 1, 4, 7]",
        ),
        (
            refusal([&q, &k, &v], Some(&ints[0]), false, false),
            "argument `attn_mask` must have dtype bool, f32 or that of `query` (f32), found \
                i64[2, 4, 5, 3]",
        ),
        (
            refusal([&q, &k, &v], Some(&halves(&[5, 7])), false, false),
            "argument `attn_mask` must have dtype bool, f32 or that of `query` (f32), found \
                bf16[5, 7]",
        ),
        (
            refusal([&q, &k, &v], Some(&tensor(&[5, 7], 1)), true, false),
            "`attn_mask` must not be given if `is_causal` is true",
        ),
    ] {
        assert!(text.contains(expected), "{text}\n{expected}");
    }
    let flash = |q: &Tensor, k: &Tensor| {
        call("aten::_scaled_dot_product_flash_attention_for_cpu", args![q, k, k])
            .expect_err("refused")
            .to_string()
    };
    let text = flash(&ints[0], &ints[0]);
    assert!(text.contains("argument `query` must have a floating dtype"), "{text}");
    let text = flash(&q, &q.slice(1, ..0));
    assert!(
        text.contains("the heads of `key` must divide the 4 of `query`, found sizes [2, 0, 5, 3]"),
        "{text}"
    );
    assert!(
        flash(&q, &q.slice(1, ..3)).contains("the heads of `key` must divide the 4 of `query`")
    );
}

/// The output's sizes, and the guards that they took.
fn symbolic(f: impl FnOnce(&Scope) -> Tensor) -> (String, Vec<String>) {
    let scope = Scope::new();
    let out = f(&scope);
    out.ok().expect("the call succeeds");
    let sizes = out.sizes().iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    (
        sizes,
        scope.with(|d| d.guards.iter().map(|g| d.table.display_bool(g.cond).to_string()).collect()),
    )
}

#[test]
fn symbolic_sizes_take_the_guards_they_need() {
    let size = |s: &Scope, name, n| {
        s.backed(Some(name), Range::new(0, 1 << 20), n).expect("a fresh symbol")
    };
    let fake = |sizes: [SymInt; 4], d| Tensor::fake(sizes, d);
    // one symbol a size: nothing to decide
    for grouped in [false, true] {
        let (sizes, guards) = symbolic(|s| {
            let [b, h, n, l, e, d] = [("b", 2), ("h", 4), ("n", 5), ("l", 7), ("e", 3), ("d", 6)]
                .map(|(name, n)| size(s, name, n));
            let (q, k, v) = (
                fake([b, h, n, e], DType::F32),
                fake([b, h, l, e], DType::F32),
                fake([b, h, l, d], DType::F32),
            );
            let mask = fake([b, 1.into(), n, l], DType::Bool);
            q.scaled_dot_product_attention(&k, &v, Some(&mask), false, None, grouped)
        });
        assert_eq!((&sizes[..], guards), ("b, h, n, d", vec![]), "{grouped}");
    }
    // groups: the number of heads once for keys and values
    let (sizes, guards) = symbolic(|s| {
        let [b, h, g, n] =
            [("b", 2), ("h", 4), ("g", 2), ("n", 5)].map(|(name, n)| size(s, name, n));
        let (q, k) = (fake([b, h, n, 8.into()], DType::F32), fake([b, g, n, 8.into()], DType::F32));
        q.scaled_dot_product_attention(&k, &k, None, true, None, true)
    });
    assert_eq!((&sizes[..], guards.len()), ("b, h, n, 8", 1), "{guards:?}");
    // sizes that are the same only by example
    let (sizes, guards) = symbolic(|s| {
        let [b, n, l] = [("b", 2), ("n", 5), ("l", 5)].map(|(name, n)| size(s, name, n));
        let one = SymInt::from(1);
        let q = fake([b, one, n, 8.into()], DType::F32);
        q.scaled_dot_product_attention(
            &fake([b, one, n, 8.into()], DType::F32),
            &fake([b, one, l, 8.into()], DType::F32),
            None,
            false,
            None,
            false,
        )
    });
    assert_eq!((&sizes[..], guards.len()), ("b, 1, n, 8", 1), "{guards:?}");
}
