use super::*;
use crate::element::Class;
use half::bf16;

const HUGE: i64 = 1 << 58;

/// A view whose dimension `dim` is repeated.
fn repeated<'a, T: Element>(x: &'a [T], sizes: &[i64], dim: usize, n: i64) -> View<'a> {
    let mut wide = sizes.to_vec();
    wide[dim] = n;
    View::from_slice_sized(x, sizes).and_then(|v| v.expand(&wide).ok()).expect("fits")
}

fn view<'a, T: Element>(x: &'a [T], sizes: &[i64]) -> View<'a> {
    View::from_slice_sized(x, sizes).expect("fits")
}

fn run<T: Element>(
    q: &View<'_>,
    k: &View<'_>,
    v: &View<'_>,
    options: Attention<'_>,
    sizes: &[i64],
) -> Result<Vec<T>> {
    let mut out = vec![T::default(); numel(sizes)];
    attention(q, k, v, options, &mut ViewMut::from_slice_sized(&mut out, sizes).expect("fits"))?;
    Ok(out)
}

#[test]
fn huge_numbers_of_keys() {
    let (q, k, v) = ([0.5f32, 1.0], [1.0f32, 2.0], [7.0f32]);
    let (q, k, v) =
        (view(&q, &[1, 2]), repeated(&k, &[1, 2], 0, HUGE), repeated(&v, &[1, 1], 0, HUGE));
    // the first causal query sees only the first key
    let options = || Attention { scale: 1.0, ..Attention::default() };
    assert_eq!(
        run::<f32>(&q, &k, &v, Attention { causal: true, ..options() }, &[1, 1]),
        Ok(vec![7.0])
    );
    let e = run::<f32>(&q, &k, &v, options(), &[1, 1]).expect_err("there is no such memory");
    assert_eq!(
        e.to_string(),
        "attention: cannot allocate 288230376151711744 elements of scratch memory"
    );
    let (q, k, v) = ([bf16::ONE; 2], [bf16::ONE; 2], [bf16::from_f32(7.0)]);
    let (q, k, v) =
        (view(&q, &[1, 2]), repeated(&k, &[1, 2], 0, HUGE), repeated(&v, &[1, 1], 0, HUGE));
    assert_eq!(
        run::<bf16>(&q, &k, &v, Attention { causal: true, ..options() }, &[1, 1]),
        Ok(vec![bf16::from_f32(7.0)])
    );
    assert!(run::<bf16>(&q, &k, &v, options(), &[1, 1]).is_err());
}

#[test]
fn empty_outputs_take_no_time() {
    let k = view::<f32>(&[], &[3, 0]);
    let q = repeated(&[0f32; 0], &[1, 0], 0, HUGE);
    assert_eq!(run::<f32>(&q, &k, &k, Attention::default(), &[HUGE, 0]), Ok(vec![]));
    let (q, k) =
        (repeated(&[0f32; 0], &[1, 1, 0], 0, HUGE), repeated(&[0f32; 0], &[1, 3, 0], 0, HUGE));
    assert_eq!(
        run::<f32>(
            &q.expand(&[HUGE, 1, 0]).expect("is so"),
            &k,
            &k,
            Attention::default(),
            &[HUGE, 1, 0]
        ),
        Ok(vec![])
    );
}

#[test]
fn no_keys_and_no_width() {
    let (q, v) = ([1.0f32, 2.0, 3.0, 4.0], [1.0f32, 5.0, 3.0, 7.0]);
    let mut lse = [9.0f32; 2];
    let options = Attention {
        scale: 1.0,
        logsumexp: Some(ViewMut::from_slice(&mut lse)),
        ..Attention::default()
    };
    let none = view::<f32>(&[], &[0, 2]);
    assert_eq!(run::<f32>(&view(&q, &[2, 2]), &none, &none, options, &[2, 2]), Ok(vec![0.0; 4]));
    assert_eq!(lse, [0.0; 2]);
    // without width all scores are 0, whatever the scale
    let none = view::<f32>(&[], &[2, 0]);
    let options = Attention { scale: f64::INFINITY, ..Attention::default() };
    assert_eq!(
        run::<f32>(&none, &none, &view(&v, &[2, 2]), options, &[2, 2]),
        Ok(vec![2.0, 6.0, 2.0, 6.0])
    );
    // values of width 0, with log-sum-exp requested
    let mut lse = [9.0f32; 2];
    let options = Attention {
        scale: 1.0,
        logsumexp: Some(ViewMut::from_slice(&mut lse)),
        ..Attention::default()
    };
    assert_eq!(
        run::<f32>(
            &view(&q, &[2, 2]),
            &view(&[0f32; 2], &[1, 2]),
            &view::<f32>(&[], &[1, 0]),
            options,
            &[2, 0]
        ),
        Ok(vec![])
    );
    assert_eq!(lse, [0.0; 2]);
}

#[test]
fn nan_stays_in_its_row() {
    let (nan, inf) = (f64::NAN, f64::INFINITY);
    let (q, k) = ([1.0, 1.0, 1.0, 1.0, 1.0], [1.0, 2.0]);
    let mask = [0.0, 0.0, nan, 0.0, inf, 0.0, -inf, -inf, -inf, 0.0];
    let v = [4.0, 8.0];
    let with = |mask, scale| Attention { scale, mask: Some(mask), ..Attention::default() };
    let out = run::<f64>(
        &view(&q, &[5, 1]),
        &view(&k, &[2, 1]),
        &view(&v, &[2, 1]),
        with(view(&mask, &[5, 2]), 0.0),
        &[5, 1],
    )
    .expect("runs");
    assert_eq!(
        out.iter().map(|x| x.is_nan()).collect::<Vec<_>>(),
        [false, true, true, false, false]
    );
    assert_eq!([out[0], out[3], out[4]], [6.0, 0.0, 8.0]);
    // a masked score may be any value; a visible NaN stays NaN whatever the scale
    let k = [1.0, nan];
    let seen = [true, false, false, true];
    let out = run::<f64>(
        &view(&q[..2], &[2, 1]),
        &view(&k, &[2, 1]),
        &view(&v, &[2, 1]),
        with(view(&seen, &[2, 2]), 0.0),
        &[2, 1],
    )
    .expect("runs");
    assert!(out[0] == 4.0 && out[1].is_nan(), "{out:?}");
}

#[test]
fn half_precision_rounds_once_and_reads_any_layout() {
    let f = |i: usize| bf16::from_f32(((i * 37) % 19) as f32 / 8.0 - 1.0);
    let (b, h, n, l, e) = (2usize, 6, 5, 70, 3);
    let (q, k): (Vec<bf16>, Vec<bf16>) =
        ((0..b * h * n * e).map(f).collect(), (0..b * 2 * l * e).map(f).collect());
    let sizes = [b as i64, 2, 3, n as i64, e as i64];
    let keys = repeated(&k, &[b as i64, 2, 1, l as i64, e as i64], 2, 3);
    let options = || Attention { scale: 0.5, causal: true, ..Attention::default() };
    let out = run::<bf16>(&view(&q, &sizes), &keys, &keys, options(), &sizes).expect("runs");
    let wide = |x: &[bf16]| x.iter().map(|x| x.to_f32()).collect::<Vec<f32>>();
    let (q, k) = (wide(&q), wide(&k));
    let keys = repeated(&k, &[b as i64, 2, 1, l as i64, e as i64], 2, 3);
    let expected = run::<f32>(&view(&q, &sizes), &keys, &keys, options(), &sizes).expect("runs");
    assert_eq!(out, expected.iter().map(|x| bf16::from_f32(*x)).collect::<Vec<_>>());
}

#[test]
fn operands_that_do_not_match_are_refused() {
    let x = [0f32; 6];
    let (q, k) = (view(&x, &[2, 3]), view(&x, &[3, 2]));
    let text = |q: &View<'_>, k: &View<'_>, v: &View<'_>, mask| {
        run::<f32>(q, k, v, Attention { mask, ..Attention::default() }, &[2, 3])
            .expect_err("refused")
            .to_string()
    };
    assert_eq!(text(&q, &k, &q, None), "attention: the key must have sizes [3, 3], found [3, 2]");
    assert_eq!(text(&q, &q, &k, None), "attention: the value must have sizes [2, 3], found [3, 2]");
    assert_eq!(
        text(&q, &q, &view(&[0f64; 6], &[2, 3]), None),
        "attention: the value must be f32, found f64"
    );
    assert!(text(&q, &q, &q, Some(view(&x, &[2, 3]))).contains("[2, 2], found [2, 3]"));
    assert_eq!(text(&view(&x, &[6]), &q, &q, None), "attention: takes 2 dimensions, found 1");
    let e = attention(
        &view(&x, &[6]),
        &q,
        &q,
        Attention::default(),
        &mut ViewMut::from_slice(&mut [0f32; 6]),
    )
    .expect_err("refused");
    assert_eq!(e.to_string(), "attention: takes 2 dimensions, found 1");
    let ints = [0i64; 1];
    let i = view(&ints, &[1, 1]);
    assert!(run::<i64>(&i, &i, &i, Attention::default(), &[1, 1]).is_err());
}

/// What an attention of some queries returns: the values, and the logarithms.
fn attended<T: Element>(
    isa: Isa,
    (q, k, v): (&View<'_>, &View<'_>, &View<'_>),
    (mask, plain_softmax): (Option<&View<'_>>, bool),
    [n, d]: [i64; 2],
) -> (Vec<T>, Vec<u64>) {
    let mut out = vec![T::default(); (n * d) as usize];
    let mut logs = vec![0f64; n as usize];
    let options = Attention {
        scale: 0.3,
        mask: mask.cloned(),
        round: true,
        plain_softmax,
        logsumexp: Some(ViewMut::from_slice(&mut logs)),
        ..Attention::default()
    };
    let mut to = ViewMut::from_slice_sized(&mut out, &[n, d]).expect("fits");
    attention_on(isa, q, k, v, options, &mut to).expect("runs");
    (out, logs.iter().map(|x| x.one_nan().to_bits()).collect())
}

/// Compares an attention of several queries, whose scores are in columns, with that of each alone.
fn columns_are_rows<T: Element>(element: impl Fn(f64) -> T, bits: impl Fn(&T) -> u64) {
    let noise = |n: i64, at: i64| -> Vec<T> {
        (0..n).map(|i| element(((i * 37 + at * 11) % 101) as f64 / 25.0 - 2.0)).collect()
    };
    for [n, l, e, d] in
        [[8, 1, 1, 1], [16, 16, 32, 32], [17, 32, 5, 3], [40, 31, 8, 17], [9, 50, 4, 3]]
    {
        let (q, k, mut v) = (noise(n * e, 1), noise(l * e, 2), noise(l * d, 3));
        v[0] = element(-0.0);
        // A mask that hides all keys, some, and one that makes a score infinite.
        let hidden: Vec<bool> = (0..l).map(|j| j % 3 != 1).collect();
        let none = vec![false; l as usize];
        let added: Vec<f64> = (0..l).map(|j| j as f64 / 7.0).collect();
        let mut infinite = added.clone();
        infinite[0] = f64::INFINITY;
        let of_keys = [
            None,
            Some(view(&hidden, &[1, l])),
            Some(view(&none, &[1, l])),
            Some(view(&added, &[1, l])),
            Some(view(&infinite, &[1, l])),
        ];
        let isas = [Isa::Scalar, Isa::Avx2, Isa::Avx512].into_iter().filter(|i| *i <= Isa::best());
        for (isa, mask) in isas.flat_map(|isa| of_keys.iter().map(move |m| (isa, m.as_ref()))) {
            for plain in [false, true] {
                let (k, v) = (view(&k, &[l, e]), view(&v, &[l, d]));
                let all = view(&q, &[n, e]);
                let (found, logs) = attended::<T>(isa, (&all, &k, &v), (mask, plain), [n, d]);
                for i in 0..n {
                    let row = &q[(i * e) as usize..][..e as usize];
                    let row = view(row, &[1, e]);
                    let (alone, log) = attended::<T>(isa, (&row, &k, &v), (mask, plain), [1, d]);
                    let of_row = &found[(i * d) as usize..][..d as usize];
                    assert!(
                        of_row.iter().map(&bits).eq(alone.iter().map(&bits))
                            && logs[i as usize] == log[0],
                        "{isa:?} {n} {l} {e} {d}, query {i}"
                    );
                }
            }
        }
    }
}

#[test]
fn few_keys_have_the_bits_of_each_query_alone() {
    columns_are_rows(|x| x as f32, |x: &f32| u64::from(x.to_bits()));
    columns_are_rows(|x| x, |x: &f64| x.to_bits());
    columns_are_rows(bf16::from_f64, |x| u64::from(x.to_bits()));
}
