//! Values and edges.

use super::{INF, NAN, agree, number, refusal};
use maquette_ops::{Tensor, args};
use std::f64::consts::PI;

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
