//! Special functions: values and edges against PyTorch's and high-precision references, dtypes,
//! layouts, refusals.

#[path = "special/functions.rs"]
mod functions;

use maquette_aten as _;
use maquette_ir::DType;
use maquette_ir::sym::{Range, Scope};
use maquette_ops::internals::MetaInternals;
use maquette_ops::{Args, Error, Result, Tensor, args, call};

const INF: f64 = f64::INFINITY;
const NAN: f64 = f64::NAN;

fn one(op: &str, a: Args) -> Result<Tensor> {
    let out = call(&format!("aten::{op}"), a)?;
    out[0].tensor().cloned()
}

fn number(op: &str, a: Args) -> f64 {
    one(op, a).and_then(|t| t.item::<f64>()).unwrap_or_else(|e| panic!("{op}: {e}"))
}

fn agree(what: &str, found: f64, expected: f64) {
    let close = found == expected
        || found.is_nan() && expected.is_nan()
        || (found - expected).abs() <= 1e-13 * expected.abs().max(1e-290);
    assert!(close, "{what} is {found:?}, expected {expected:?}");
}

fn refusal<T>(r: Result<T>) -> String {
    let e: Error = r.err().expect("it must be refused");
    e.kind().to_string()
}

fn strides(t: &Tensor) -> Vec<i64> {
    t.meta().concrete().expect("concrete").strides.to_vec()
}

#[test]
fn divisors_and_multiples_wrap_as_pytorchs() {
    let pairs = [
        (i64::MIN, 0),
        (i64::MIN, 2),
        (-4, 6),
        (-4, -6),
        (0, 0),
        (i64::MIN, 3),
        (6, i64::MIN),
        (i64::MIN, i64::MAX),
    ];
    let (a, b) =
        (Tensor::from(pairs.map(|p| p.0).to_vec()), Tensor::from(pairs.map(|p| p.1).to_vec()));
    assert_eq!(a.gcd(&b).to_vec::<i64>().expect("i64"), [i64::MIN, 2, 2, 2, 0, 1, -2, -1]);
    assert_eq!(
        a.lcm(&b).to_vec::<i64>().expect("i64")[..7],
        [0, i64::MIN, 12, 12, 0, i64::MIN, i64::MIN]
    );
    let narrow =
        |a: Vec<i8>, b: Vec<i8>| Tensor::from(a).lcm(Tensor::from(b)).to_vec::<i8>().expect("i8");
    assert_eq!(narrow(vec![100, -128, -128], vec![99, 1, -128]), [-84, -128, -128]);
    let (a, b) = (Tensor::from(vec![100_000i32]), Tensor::from(vec![99_999i32]));
    assert_eq!(a.lcm(&b).to_vec::<i32>().expect("i32"), [1_409_965_408]);
    assert_eq!(
        Tensor::from(vec![true]).gcd(Tensor::from(vec![2i64])).to_vec::<i64>().expect("i64"),
        [1]
    );
}

#[test]
fn bits_of_floats() {
    let b = |x: f32| half::bf16::from_f32(x);
    let next = Tensor::from(vec![b(0.0), b(1.0), b(f32::INFINITY), b(-1.0), b(1.0)])
        .nextafter(Tensor::from(vec![b(1.0), b(2.0), b(0.0), b(0.0), b(-3.0)]));
    let bits: Vec<u16> =
        next.to_vec::<half::bf16>().expect("bf16").into_iter().map(half::bf16::to_bits).collect();
    assert_eq!(bits, [1, 0x3f81, 0x7f7f, 0xbf7f, 0x3f7f]);
    let (mantissa, exponent) =
        Tensor::from(vec![0.0f32, -0.75, 8.0, 1e-45, f32::INFINITY, f32::NAN]).frexp();
    assert_eq!(exponent.to_vec::<i32>().expect("i32"), [0, 0, 4, -148, 0, 0]);
    assert_eq!(mantissa.to_vec::<f32>().expect("f32")[..5], [0.0, -0.75, 0.5, 0.5, f32::INFINITY]);
    // a whole exponent is exact, another is a power of its own dtype
    let tiny = Tensor::scalar(1e-300);
    agree(
        "ldexp by i64",
        number("ldexp.Tensor", args![&tiny, Tensor::scalar(200i64)]),
        1e-300 * 2f64.powi(200),
    );
    agree("ldexp by f32", number("ldexp.Tensor", args![&tiny, Tensor::scalar(200f32)]), INF);
    agree(
        "ldexp to the least",
        number("ldexp.Tensor", args![Tensor::scalar(1f64), Tensor::scalar(-1074i64)]),
        5e-324,
    );
    assert_eq!(
        Tensor::from(vec![3i64]).ldexp(&Tensor::from(vec![2i64])).to_vec::<f32>().expect("f32"),
        [12.0]
    );
    assert!(
        refusal(Tensor::from(vec![3i64]).ldexp_(&Tensor::from(vec![2i64])).ok()).contains("i64")
    );
}

#[test]
fn dtypes_follow_pytorch() {
    let of = |dtype: DType| one("ones", args![vec![2i64], dtype]).expect("ones");
    let computed = |op: &str, dtype: DType| one(op, args![of(dtype)]).map(|t| t.dtype()).ok();
    let both =
        |op: &str, dtype: DType| one(op, args![of(dtype), of(dtype)]).map(|t| t.dtype()).ok();
    let (f32, f64, f16, i64, bool) = (DType::F32, DType::F64, DType::F16, DType::I64, DType::Bool);
    for op in ["lgamma", "digamma", "erfinv", "i0", "special_i1e", "angle", "special_entr"] {
        assert_eq!(
            [bool, i64, f16, f64].map(|d| computed(op, d)),
            [Some(f32), Some(f32), Some(f16), Some(f64)],
            "{op}"
        );
    }
    for op in [
        "special_airy_ai",
        "special_bessel_y1",
        "special_erfcx",
        "special_ndtri",
        "special_scaled_modified_bessel_k1",
    ] {
        assert_eq!(
            [bool, i64, f16, f64].map(|d| computed(op, d)),
            [Some(f32), Some(f32), None, Some(f64)],
            "{op}"
        );
    }
    for op in ["special_zeta", "special_legendre_polynomial_p"] {
        assert_eq!(
            [bool, i64, f16, f64].map(|d| both(op, d)),
            [Some(f32), Some(f32), None, Some(f64)],
            "{op}"
        );
    }
    for op in ["igamma", "igammac", "nextafter"] {
        assert_eq!(
            [bool, i64, f16, f64].map(|d| both(op, d)),
            [None, None, Some(f16), Some(f64)],
            "{op}"
        );
    }
    for op in ["gcd", "lcm"] {
        assert_eq!(
            [bool, i64, DType::U8, f64].map(|d| both(op, d)),
            [None, Some(i64), Some(DType::U8), None],
            "{op}"
        );
    }
    let long = Tensor::from(vec![2i64, 3]);
    let cases = [
        ("igamma(f32, f64)", Tensor::from(vec![1f32]).igamma(Tensor::from(vec![1f64])), f64),
        ("zeta(2.5, i64)", one("special_zeta.self_scalar", args![2.5, &long]).expect("zeta"), f32),
        ("t.n_scalar", Tensor::from(vec![0.5f64]).special_chebyshev_polynomial_t(3), f64),
        (
            "t.x_scalar",
            one("special_chebyshev_polynomial_t.x_scalar", args![0.5, &long]).expect("polynomials"),
            f32,
        ),
        ("float_power", long.float_power(2), f64),
        (
            "float_power of a number",
            one("float_power.Scalar", args![2i64, &long]).expect("powers"),
            f64,
        ),
        ("mvlgamma", long.mvlgamma(2), f32),
    ];
    for (what, t, dtype) in cases {
        assert_eq!(t.ok().map(Tensor::dtype).expect(what), dtype, "{what}");
    }
    assert!(
        refusal(Tensor::from(vec![1f32]).igamma(Tensor::from(vec![1f32])).lgamma().gcd(2).ok())
            .contains("integers")
    );
    assert!(
        refusal(one("float_power_.Scalar", args![Tensor::from(vec![1f32]), 2i64])).contains("f64")
    );
    for p in [0i64, 1 << 40] {
        assert!(
            refusal(one("mvlgamma", args![Tensor::from(vec![1f32]), p]))
                .contains("at least 1 and at most 16777216")
        );
    }
    assert!(refusal(one("mvlgamma", args![Tensor::from(vec![true]), 1i64])).contains("bool"));
    assert!(refusal(one("frexp.Tensor", args![&long])).contains("floats"));
    assert!(refusal(one("gcd", args![4i64, 6i64])).contains("tensor"));
    assert!(refusal(long.lgamma_().ok()).contains("i64"));
}

#[test]
fn layouts_follow_the_operands() {
    let x = Tensor::from([[0.5f32, 1.5, 2.5], [3.5, 4.5, 5.5]]);
    let (t, row) = (x.t(), Tensor::from(vec![1f32, 2.0]));
    assert_eq!(strides(&t.lgamma()), [1, 3]);
    assert_eq!(strides(&t.igamma(&row)), [1, 3]);
    assert_eq!(
        t.igamma(&row).to_vec::<f32>().expect("f32"),
        x.igamma(row.reshape([2, 1])).t().to_vec::<f32>().expect("f32")
    );
    let (mantissa, exponent) = t.frexp();
    assert_eq!((strides(&mantissa), strides(&exponent)), (vec![1, 3], vec![1, 3]));
    assert_eq!(strides(&t.mvlgamma(2)), [2, 1]);
    assert_eq!(strides(&t.logcumsumexp(0)), [2, 1]);
    // in place, through a view with gaps, from an operand that overlaps it
    let whole = Tensor::from(vec![4i64, 6, 8, 12]);
    whole.slice(0, 1..).gcd_(whole.slice(0, ..3)).ok().expect("written");
    assert_eq!(whole.to_vec::<i64>().expect("i64"), [4, 2, 2, 4]);
    x.select(1, 1).lgamma_().ok().expect("written");
    assert_eq!(x.select(1, 0).to_vec::<f32>().expect("f32"), [0.5, 3.5]);
    assert!((x.select(1, 1).to_vec::<f32>().expect("f32")[1] - 2.453_736_6).abs() < 1e-6);
    assert!(refusal(row.igamma_(x.t()).ok()).contains("sizes"));
    assert!(refusal(row.gcd(Tensor::from(vec![1i64, 2, 3])).ok()).contains('3'));
    // nothing, and one number
    let empty = Tensor::from_vec(Vec::<f32>::new(), [0, 3]);
    assert_eq!(empty.lgamma().sizes_i64().expect("sizes"), [0, 3]);
    assert_eq!(empty.logcumsumexp(1).sizes_i64().expect("sizes"), [0, 3]);
    assert_eq!(
        empty.igamma(Tensor::from(vec![1f32, 2.0, 3.0])).sizes_i64().expect("sizes"),
        [0, 3]
    );
    assert_eq!(empty.frexp().1.dtype(), DType::I32);
    assert_eq!(Tensor::scalar(2f32).logcumsumexp(-1).item::<f32>().expect("one"), 2.0);
    assert!(refusal(Tensor::scalar(2f32).logcumsumexp(1).ok()).contains("out of range"));
}

#[test]
fn running_sums_of_exponentials() {
    let x = Tensor::from(vec![-INF, -INF, 1.0, 1.0, INF, 2.0, NAN, 3.0]);
    let found = x.logcumsumexp(0).to_vec::<f64>().expect("f64");
    let expected = [-INF, -INF, 1.0, 1.0 + 2f64.ln(), INF, INF, NAN, NAN];
    found.iter().zip(expected).for_each(|(a, b)| agree("logcumsumexp", *a, b));
    let rows =
        Tensor::from([[0f64, 1e3], [0.0, 1e3]]).logcumsumexp(0).to_vec::<f64>().expect("f64");
    rows.iter()
        .zip([0.0, 1e3, 2f64.ln(), 1e3 + 2f64.ln()])
        .for_each(|(a, b)| agree("logcumsumexp", *a, b));
}

#[test]
fn second_names_are_the_same_operators() {
    let x = Tensor::from(vec![0.25f64, 0.5]);
    for (alias, op) in [
        ("special_psi", "digamma"),
        ("special_gammaln", "lgamma"),
        ("special_erfc", "erfc"),
        ("special_expit", "sigmoid"),
        ("special_logit", "logit"),
        ("special_i0", "i0"),
        ("special_sinc", "sinc"),
        ("special_expm1", "expm1"),
    ] {
        let values = |op: &str| {
            one(op, args![&x])
                .and_then(|t| t.to_vec::<f64>())
                .unwrap_or_else(|e| panic!("{op}: {e}"))
        };
        assert_eq!(values(alias), values(op));
    }
    let values = |op: &str, a: Args| {
        one(op, a).and_then(|t| t.to_vec::<f64>()).unwrap_or_else(|e| panic!("{op}: {e}"))
    };
    assert_eq!(values("special_round", args![&x]), [0.0, 0.0]);
    assert_eq!(values("special_multigammaln", args![&x, 1i64]), values("lgamma", args![&x]));
    assert_eq!(values("special_polygamma", args![1i64, &x]), values("polygamma", args![1i64, &x]));
    assert_eq!(values("special_gammaincc", args![&x, &x]), values("igammac", args![&x, &x]));
    assert_eq!(
        values("special_xlogy.self_scalar", args![2i64, &x]),
        values("xlogy.Tensor", args![2i64, &x])
    );
    assert_eq!(
        values("special_log_softmax", args![&x, 0i64]),
        values("log_softmax.int", args![&x, 0i64])
    );
}

#[test]
fn symbolic_sizes_take_no_guards() {
    let scope = Scope::new();
    let b = scope.backed(Some("b"), Range::new(2, 64), 4).expect("a fresh symbol");
    let x = Tensor::fake([b, 3.into()], DType::F32);
    let n = Tensor::fake([3], DType::I64);
    for y in [
        x.lgamma(),
        x.igamma(&n),
        x.special_zeta(2.0),
        x.polygamma(3),
        x.mvlgamma(2),
        x.frexp().0,
        x.ldexp(&n),
        x.logcumsumexp(0),
        x.lgamma_(),
        x.polygamma_(2),
        x.igamma_(&n),
        x.ldexp_(&n),
    ] {
        let y = y.ok().expect("a fake result");
        assert_eq!(y.meta().to_string(), x.meta().to_string());
    }
    assert!(scope.with(|d| d.guards.is_empty() && d.assertions.is_empty()));
}
