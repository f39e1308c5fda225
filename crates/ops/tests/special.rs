//! Special functions: values and edges against PyTorch's and high-precision references, dtypes,
//! layouts, refusals.

use maquette_ir::DType;
use maquette_ir::sym::{Range, Scope};
use maquette_ops::{Args, Error, Result, Tensor, args, call};
use std::f64::consts::PI;

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
fn functions_of_one_number() {
    let cases: &[(&str, &[(f64, f64)])] = &[
        (
            "lgamma",
            &[
                (-2.0, INF),
                (0.0, INF),
                (1.0, 0.0),
                (0.5, 0.572_364_942_924_700_1),
                (-INF, INF),
                (INF, INF),
                (NAN, NAN),
            ],
        ),
        (
            "digamma",
            &[
                (-3.0, NAN),
                (0.0, -INF),
                (-0.0, INF),
                (0.5, -1.963_510_026_021_423_5),
                (3.7, 1.167_153_539_361_511_4),
            ],
        ),
        (
            "digamma",
            &[
                (-7.25, 5.189_977_214_956_288),
                (1e-10, -10_000_000_000.577_215),
                (-INF, NAN),
                (INF, INF),
            ],
        ),
        (
            "erfinv",
            &[
                (1e-20, 8.862_269_254_527_58e-21),
                (0.3, 0.272_462_714_726_754_4),
                (-0.9, -1.163_087_153_676_674_2),
            ],
        ),
        (
            "erfinv",
            &[
                (0.999_999, 3.458_910_737_275_499),
                (0.0, 0.0),
                (1.0, INF),
                (-1.0, -INF),
                (1.001, NAN),
                (NAN, NAN),
            ],
        ),
        (
            "special_ndtri",
            &[
                (0.0, -INF),
                (1.0, INF),
                (0.5, 0.0),
                (-0.1, NAN),
                (1.1, NAN),
                (1e-300, -37.047_096_299_361_2),
            ],
        ),
        ("special_ndtri", &[(0.02, -2.053_748_910_631_823), (0.9, 1.281_551_565_544_600_6)]),
        (
            "special_erfcx",
            &[
                (-INF, INF),
                (-3.0, 16_205.988_853_999_587),
                (5.0, 0.110_704_637_733_068_63),
                (INF, 0.0),
            ],
        ),
        (
            "special_erfcx",
            &[
                (24.9, 0.022_639_987_776_049_506),
                (25.1, 0.022_459_875_817_581_39),
                (-30.0, INF),
                (NAN, NAN),
            ],
        ),
        (
            "special_log_ndtr",
            &[
                (-1e4, -50_000_010.129_278_91),
                (-40.0, -804.608_442_013_753_8),
                (-INF, -INF),
                (INF, 0.0),
            ],
        ),
        (
            "special_log_ndtr",
            &[(-0.5, -1.175_911_761_593_618_6), (9.0, -1.128_588_405_953_840_6e-19)],
        ),
        (
            "special_entr",
            &[(-1.0, -INF), (0.0, 0.0), (2.0, -1.386_294_361_119_890_6), (INF, -INF), (NAN, NAN)],
        ),
        ("special_ndtr", &[(-INF, 0.0), (0.0, 0.5), (INF, 1.0)]),
        ("angle", &[(-2.0, PI), (-0.0, 0.0), (3.0, 0.0), (-INF, PI), (NAN, NAN)]),
        (
            "special_i0e",
            &[(19.9, 0.090_008_588_864_389_6), (-20.1, 0.089_553_763_620_613_44), (INF, 0.0)],
        ),
        (
            "special_i1e",
            &[(19.9, 0.087_717_102_131_706_1), (-20.1, -0.087_296_851_843_201_59), (-INF, 0.0)],
        ),
        ("i0", &[(0.0, 1.0), (-3.0, 4.880_792_585_865_024), (1e3, INF), (INF, NAN)]),
        ("special_i1", &[(0.0, 0.0), (-3.0, -3.953_370_217_402_609_4), (-1e3, -INF), (INF, NAN)]),
        (
            "special_modified_bessel_k0",
            &[
                (0.0, INF),
                (-1.0, NAN),
                (0.1, 2.427_069_024_702_017),
                (1.99, 0.115_301_767_551_776_8),
            ],
        ),
        (
            "special_modified_bessel_k0",
            &[(2.0, 0.113_893_872_749_533_44), (500.0, 3.992_321_609_117_793e-219), (INF, 0.0)],
        ),
        (
            "special_modified_bessel_k1",
            &[
                (0.0, INF),
                (-1.0, NAN),
                (0.1, 9.853_844_780_870_606),
                (10.0, 1.864_877_345_382_558_5e-5),
            ],
        ),
        (
            "special_scaled_modified_bessel_k0",
            &[(0.5, 1.524_109_385_773_909_9), (1e3, 0.039_628_321_600_754_22), (INF, 0.0)],
        ),
        (
            "special_bessel_j0",
            &[(0.0, 1.0), (-3.0, -0.260_051_954_901_933_44), (INF, NAN), (NAN, NAN)],
        ),
        (
            "special_bessel_y0",
            &[(0.0, -INF), (-1.0, NAN), (1.0, 0.088_256_964_215_676_96), (INF, NAN)],
        ),
        ("special_spherical_bessel_j0", &[(0.0, 1.0), (INF, 0.0), (2.0, 0.454_648_713_412_840_85)]),
        (
            "special_airy_ai",
            &[
                (0.0, 0.355_028_053_887_817_2),
                (-2.5, -0.112_325_067_692_966_09),
                (5.0, 0.000_108_344_428_136_074_42),
            ],
        ),
        (
            "special_airy_ai",
            &[
                (-30.0, -0.087_968_188_456_842_16),
                (-9.9, 0.136_235_026_447_979_43),
                (104.0, 0.0),
                (INF, NAN),
            ],
        ),
    ];
    for (op, values) in cases {
        for &(x, expected) in *values {
            agree(&format!("{op}({x})"), number(op, args![Tensor::scalar(x)]), expected);
        }
    }
}

#[test]
fn functions_of_two_numbers() {
    let cases: &[(&str, f64, f64, f64)] = &[
        // both sides of where the expansions meet
        ("igamma", 50.0, 52.0, 0.627_850_298_426_132_5),
        ("igammac", 50.0, 52.0, 0.372_149_701_573_867_5),
        ("igammac", 1e-10, 0.5, 5.597_735_948_054_988e-11),
        ("igammac", 0.3, 2.2, 0.017_139_900_089_930_13),
        ("igamma", 0.0, 1.0, 1.0),
        ("igamma", 0.0, 0.0, NAN),
        ("igamma", -1.0, 1.0, NAN),
        ("igamma", INF, 1.0, 0.0),
        ("igamma", INF, INF, NAN),
        ("igamma", 2.0, INF, 1.0),
        ("igamma", NAN, 0.0, 0.0),
        ("igammac", 2.0, 0.0, 1.0),
        ("igammac", 1.0, NAN, NAN),
        ("special_zeta", 2.5, 1.5, 0.590_256_385_076_431_3),
        ("special_zeta", 2.0, -1000.25, 19.738_209_551_699_785),
        ("special_zeta", 40.0, 0.3, 8.225_263_339_969_971e20),
        ("special_zeta", 1.0, -3.0, INF),
        ("special_zeta", 0.5, 1.0, NAN),
        ("special_zeta", 2.0, -3.0, INF),
        ("special_zeta", 2.5, -0.5, NAN),
        ("special_zeta", INF, 1.0, 1.0),
        ("special_xlog1py", 0.0, -INF, 0.0),
        ("special_xlog1py", 0.0, NAN, NAN),
        ("special_xlog1py", 2.0, -1.0, -INF),
        ("nextafter", 0.0, 1.0, 5e-324),
        ("nextafter", INF, 0.0, f64::MAX),
        ("nextafter", 1.0, NAN, NAN),
        ("special_chebyshev_polynomial_t", 0.3, 12.0, -0.870_430_994_432_001),
        ("special_chebyshev_polynomial_u", -1.0, 3.7, -4.0),
        ("special_chebyshev_polynomial_v", -1.0, 12.0, 25.0),
        ("special_chebyshev_polynomial_w", 1.0, 3.0, 7.0),
        ("special_shifted_chebyshev_polynomial_t", 0.0, 3.0, -1.0),
        ("special_shifted_chebyshev_polynomial_u", 2.5, 2.0, 63.0),
        ("special_hermite_polynomial_h", 0.5, 600.0, NAN),
        ("special_hermite_polynomial_he", 2.5, 3.0, 8.125),
        ("special_laguerre_polynomial_l", 0.0, 1e12, 1.0),
        ("special_legendre_polynomial_p", -1.0, 3.0, -1.0),
        ("special_legendre_polynomial_p", NAN, 0.0, 1.0),
        ("special_legendre_polynomial_p", 0.5, -1.0, 0.0),
        ("special_legendre_polynomial_p", 0.5, INF, 0.0),
        ("special_legendre_polynomial_p", 0.5, NAN, 0.0),
    ];
    for &(op, a, b, expected) in cases {
        agree(
            &format!("{op}({a}, {b})"),
            number(op, args![Tensor::scalar(a), Tensor::scalar(b)]),
            expected,
        );
    }
    // orders so large that the exponent's rounding shows
    for (a, x, p) in [
        (1.1e5, 1.105e5, 0.934_002_760_818_113_7),
        (2e6, 1.999e6, 0.239_786_670_928_572_95),
        (9e4, 8.95e4, 0.047_593_233_002_364_95),
    ] {
        let (a, x) = (Tensor::scalar(a), Tensor::scalar(x));
        let (lower, upper) = (number("igamma", args![&a, &x]), number("igammac", args![&a, &x]));
        assert!(
            (lower - p).abs() < 1e-11 * p && (lower + upper - 1.0).abs() < 1e-15,
            "{lower} {upper}"
        );
    }
}

#[test]
fn derivatives_of_digamma() {
    for (n, x, expected) in [
        (1i64, -7.25, 19.610_354_539_293_27),
        (1, 0.3, 12.245_364_546_107_731),
        (1, 0.0, INF),
        (1, INF, 0.0),
        (3, 3.7, 0.058_279_217_956_563_614),
        (3, -0.25, 1_555.763_312_534_850_6),
        (2, 0.0, -INF),
        (2, -1.0, -INF),
    ] {
        agree(
            &format!("polygamma({n}, {x})"),
            number("polygamma", args![n, Tensor::scalar(x)]),
            expected,
        );
    }
    // at a pole the value is decided by how pi rounds in the operand's precision
    for x in [Tensor::from(vec![-3f32]), Tensor::from(vec![-3i64])] {
        let at_pole = x.polygamma(1).to_vec::<f32>().expect("f32");
        assert!((at_pole[0] / 1.7351e16 - 1.0).abs() < 1e-4, "{at_pole:?}");
    }
    agree(
        "at a pole in f64",
        number("polygamma", args![1i64, Tensor::scalar(-1f64)]),
        6.580_790_147_320_947e32,
    );
    let x = Tensor::from(vec![1.5f32, 2.5]);
    let derivative = x.polygamma(2).to_vec::<f32>().expect("f32");
    assert_eq!(x.polygamma_(2).to_vec::<f32>().expect("f32"), derivative);
    assert_eq!(x.to_vec::<f32>().expect("f32"), derivative);
    assert!(refusal(x.polygamma(-1).ok()).contains("must not be negative"));
    assert!(refusal(Tensor::from(vec![1i64]).polygamma_(1).ok()).contains("i64"));
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
