// The functions of the `libm` crate 0.2.16 that recorded programs call, in f64.
//
// Each function does the operations of the crate in the crate's order, with the crate's constants,
// so it has the same bits. Left out is what only raises floating-point exceptions, such as to add
// a number too small to change the sum. The compiler must not contract products and sums.
//
// The text is C and also CUDA C++. A prelude defines `LIBM_FUNCTION` and `LIBM_TABLE`, which
// declare a function and a table, and the operations `bits_f64`, `float_f64`, `abs_f64`,
// `trunc_f64` and `sqrt_f64`.
//
// The crate is a port of musl's functions, most of which come from FreeBSD's msun. Its notices:
//
// Copyright (c) 2018 Jorge Aparicio
// Copyright (c) 2005-2020 Rich Felker, et al.
//
// Permission is hereby granted, free of charge, to any person obtaining a copy of this software and
// associated documentation files (the "Software"), to deal in the Software without restriction,
// including without limitation the rights to use, copy, modify, merge, publish, distribute,
// sublicense, and/or sell copies of the Software, and to permit persons to whom the Software is
// furnished to do so, subject to the following conditions:
//
// The above copyright notice and this permission notice shall be included in all copies or
// substantial portions of the Software.
//
// THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT
// NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND
// NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM,
// DAMAGES OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM,
// OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE.
//
// exp, tan and pow, and the other functions of msun but exp2:
//
// ====================================================
// Copyright (C) 2004 by Sun Microsystems, Inc. All rights reserved.
// Copyright (C) 1993 by Sun Microsystems, Inc. All rights reserved.
//
// Developed at SunPro and SunSoft, Sun Microsystems, Inc. businesses.
// Permission to use, copy, modify, and distribute this
// software is freely granted, provided that this notice
// is preserved.
// ====================================================
//
// The reduction of angles is optimized by Bruce D. Evans.
//
// exp2:
//
// Copyright (c) 2005 David Schultz <das@FreeBSD.ORG>
// All rights reserved.
//
// Redistribution and use in source and binary forms, with or without modification, are permitted
// provided that the following conditions are met:
// 1. Redistributions of source code must retain the above copyright notice, this list of conditions
//    and the following disclaimer.
// 2. Redistributions in binary form must reproduce the above copyright notice, this list of
//    conditions and the following disclaimer in the documentation and/or other materials provided
//    with the distribution.
//
// THIS SOFTWARE IS PROVIDED BY THE AUTHOR AND CONTRIBUTORS ``AS IS'' AND ANY EXPRESS OR IMPLIED
// WARRANTIES, INCLUDING, BUT NOT LIMITED TO, THE IMPLIED WARRANTIES OF MERCHANTABILITY AND FITNESS
// FOR A PARTICULAR PURPOSE ARE DISCLAIMED. IN NO EVENT SHALL THE AUTHOR OR CONTRIBUTORS BE LIABLE
// FOR ANY DIRECT, INDIRECT, INCIDENTAL, SPECIAL, EXEMPLARY, OR CONSEQUENTIAL DAMAGES (INCLUDING,
// BUT NOT LIMITED TO, PROCUREMENT OF SUBSTITUTE GOODS OR SERVICES; LOSS OF USE, DATA, OR PROFITS;
// OR BUSINESS INTERRUPTION) HOWEVER CAUSED AND ON ANY THEORY OF LIABILITY, WHETHER IN CONTRACT,
// STRICT LIABILITY, OR TORT (INCLUDING NEGLIGENCE OR OTHERWISE) ARISING IN ANY WAY OUT OF THE USE
// OF THIS SOFTWARE, EVEN IF ADVISED OF THE POSSIBILITY OF SUCH DAMAGE.

// Parts of numbers. The high word has the sign, the exponent and the first 20 bits of the fraction,
// so intervals are told apart by comparing high words.

// Two numbers whose sum is a value of more bits.
typedef struct {
    double high;
    double low;
} libm_pair;

LIBM_FUNCTION uint32_t libm_high_word(double x) { return (uint32_t)(bits_f64(x) >> 32); }

LIBM_FUNCTION uint32_t libm_low_word(double x) { return (uint32_t)bits_f64(x); }

// The high word of |x|.
LIBM_FUNCTION uint32_t libm_magnitude(double x) { return libm_high_word(x) & 0x7fffffffu; }

LIBM_FUNCTION bool libm_is_negative(double x) { return libm_high_word(x) >> 31 != 0; }

// The biased exponent.
LIBM_FUNCTION int32_t libm_exponent(double x) { return (int32_t)(libm_magnitude(x) >> 20); }

LIBM_FUNCTION double libm_from_words(uint32_t high, uint32_t low) {
    return float_f64(((uint64_t)high << 32) | low);
}

LIBM_FUNCTION double libm_with_high_word(double x, uint32_t high) {
    return libm_from_words(high, libm_low_word(x));
}

// The first half of the bits. The product of two such numbers is exact.
LIBM_FUNCTION double libm_first_half(double x) { return libm_from_words(libm_high_word(x), 0); }

LIBM_FUNCTION double libm_with_sign(bool is_negative, double x) { return is_negative ? -x : x; }

// 2^n for a normal result.
LIBM_FUNCTION double libm_power_of_2(int32_t n) {
    return libm_from_words((uint32_t)(0x3ff + n) << 20, 0);
}

// 2^n x for n from -1991 to 2046. The first step keeps x normal, so a subnormal result is rounded
// once.
LIBM_FUNCTION double libm_scale(double x, int32_t n) {
    if (n > 1023) {
        x *= libm_power_of_2(1023);
        n -= 1023;
    } else if (n < -1022) {
        x *= libm_power_of_2(53 - 1022);
        n += 1022 - 53;
    }
    return x * libm_power_of_2(n);
}

// Polynomials by Horner's rule, from the coefficient of x^0.

LIBM_FUNCTION double libm_poly2(double x, double a, double b) { return a + x * b; }

LIBM_FUNCTION double libm_poly3(double x, double a, double b, double c) {
    return a + x * libm_poly2(x, b, c);
}

LIBM_FUNCTION double libm_poly4(double x, double a, double b, double c, double d) {
    return a + x * libm_poly3(x, b, c, d);
}

LIBM_FUNCTION double libm_poly5(double x, double a, double b, double c, double d, double e) {
    return a + x * libm_poly4(x, b, c, d, e);
}

LIBM_FUNCTION double libm_poly6(double x, double a, double b, double c, double d, double e,
                                double f) {
    return a + x * libm_poly5(x, b, c, d, e, f);
}

LIBM_FUNCTION double libm_poly7(double x, double a, double b, double c, double d, double e,
                                double f, double g) {
    return a + x * libm_poly6(x, b, c, d, e, f, g);
}

LIBM_FUNCTION double libm_poly8(double x, double a, double b, double c, double d, double e,
                                double f, double g, double h) {
    return a + x * libm_poly7(x, b, c, d, e, f, g, h);
}

LIBM_FUNCTION double libm_poly9(double x, double a, double b, double c, double d, double e,
                                double f, double g, double h, double i) {
    return a + x * libm_poly8(x, b, c, d, e, f, g, h, i);
}

// Exponentials.

// ln 2 in two parts. The first has trailing zeros, so its product by an exponent is exact.
#define LIBM_LN2_HIGH 6.93147180369123816490e-01
#define LIBM_LN2_LOW 1.90821492927058770002e-10
#define LIBM_LN2 6.93147180559945286227e-01
#define LIBM_LOG2_E 1.44269504088896338700e+00

// r - (R(r) - 2) with R(r) = r (e^r + 1) / (e^r - 1), for |r| <= ln(2) / 2, by a minimax polynomial
// of R in r^2.
LIBM_FUNCTION double libm_exp_remainder(double r) {
    const double square = r * r;
    return r - square * libm_poly5(square, 1.66666666666666019037e-01, -2.77777777770155933842e-03,
                                   6.61375632143793436117e-05, -1.65339022054652515390e-06,
                                   4.13813679705723846039e-08);
}

// The integer nearest to x / ln 2.
LIBM_FUNCTION int32_t libm_exp_quotient(double x) {
    return (int32_t)(LIBM_LOG2_E * x + (libm_is_negative(x) ? -0.5 : 0.5));
}

// e^x = 2^k e^r with x = k ln 2 + r. r is the difference of two numbers, for more bits.
LIBM_FUNCTION double libm_exp(double x) {
    const uint32_t magnitude = libm_magnitude(x);
    double high = x, low = 0.0;
    int32_t k = 0;
    if (x != x) {
        return x;
    }
    if (x > 709.782712893383973096) {
        return x * libm_power_of_2(1023);
    }
    if (x < -745.13321910194110842) {
        return 0.0;
    }
    if (magnitude <= 0x3e300000) { // |x| <= 2^-28
        return 1.0 + x;
    }
    if (magnitude > 0x3fd62e42) { // |x| > 0.5 ln 2
        k = magnitude >= 0x3ff0a2b2 ? libm_exp_quotient(x) : libm_is_negative(x) ? -1 : 1;
        high = x - (double)k * LIBM_LN2_HIGH;
        low = (double)k * LIBM_LN2_LOW;
        x = high - low;
    }
    const double c = libm_exp_remainder(x);
    const double y = 1.0 + (x * c / (2.0 - c) - low + high);
    return k == 0 ? y : libm_scale(y, k);
}

// e^x / 2 where e^x can overflow: 2^2042 e^(x - 2043 ln 2).
LIBM_FUNCTION double libm_half_exp(double x) {
    const double scale = libm_power_of_2(1021);
    return libm_exp(x - float_f64(0x40962066151add8bull)) * scale * scale;
}

// 2^k (1 + r - e) - 1, in the order that rounds least.
LIBM_FUNCTION double libm_expm1_scaled(double r, double e, int32_t k) {
    if (k == -1) {
        return 0.5 * (r - e) - 0.5;
    }
    if (k == 1) {
        return r < -0.25 ? -2.0 * (e - (r + 0.5)) : 1.0 + 2.0 * (r - e);
    }
    if (k == 1024) {
        return (r - e + 1.0) * 2.0 * libm_power_of_2(1023) - 1.0;
    }
    const double scale = libm_power_of_2(k);
    if (k < 0 || k > 56) {
        return (r - e + 1.0) * scale - 1.0;
    }
    const double inverse = libm_power_of_2(-k);
    if (k < 20) {
        return (r - e + (1.0 - inverse)) * scale;
    }
    return (r - (e + inverse) + 1.0) * scale;
}

// e^x - 1. The correction c is what the rounding of r = x - k ln 2 loses.
LIBM_FUNCTION double libm_expm1(double x) {
    const uint32_t magnitude = libm_magnitude(x);
    double c = 0.0;
    int32_t k = 0;
    if (magnitude >= 0x4043687a) { // |x| >= 56 ln 2
        if (x != x) {
            return x;
        }
        if (libm_is_negative(x)) {
            return -1.0;
        }
        if (x > 7.09782712893383973096e+02) {
            return x * libm_power_of_2(1023);
        }
    }
    if (magnitude < 0x3c900000) { // |x| < 2^-54
        return x;
    }
    if (magnitude > 0x3fd62e42) { // |x| > 0.5 ln 2
        k = magnitude >= 0x3ff0a2b2 ? libm_exp_quotient(x) : libm_is_negative(x) ? -1 : 1;
        const double high = x - (double)k * LIBM_LN2_HIGH;
        const double low = (double)k * LIBM_LN2_LOW;
        x = high - low;
        c = (high - x) - low;
    }
    const double half_x = 0.5 * x;
    const double square = x * half_x;
    const double r1 = libm_poly6(square, 1.0, -3.33333333333331316428e-02,
                                 1.58730158725481460165e-03, -7.93650757867487942473e-05,
                                 4.00821782732936239552e-06, -2.01099218183624371326e-07);
    const double t = 3.0 - r1 * half_x;
    const double e = square * ((r1 - t) / (6.0 - x * t));
    if (k == 0) {
        return x - (x * e - square);
    }
    return libm_expm1_scaled(x, x * (e - c) - c - square, k);
}

// For i from 0: 2^(i / 256 - 1/2 + eps) and eps, as bits. The numbers eps are small and chosen so
// that the powers are accurate to 2^-64 (Gal and Bachelis, TOMS 17(1), 1991).
LIBM_TABLE uint64_t libm_exp2_table[512] = {
    0x3fe6a09e667f3d5dull, 0x3d39880000000000ull, 0x3fe6b052fa751744ull, 0x3cd8000000000000ull,
    0x3fe6c012750bd9feull, 0xbd28780000000000ull, 0x3fe6cfdcddd476bfull, 0x3d1ec00000000000ull,
    0x3fe6dfb23c651a29ull, 0xbcd8000000000000ull, 0x3fe6ef9298593ae3ull, 0xbcbc000000000000ull,
    0x3fe6ff7df9519386ull, 0xbd2fd80000000000ull, 0x3fe70f7466f42da3ull, 0xbd2c880000000000ull,
    0x3fe71f75e8ec5fc3ull, 0x3d13c00000000000ull, 0x3fe72f8286eacf05ull, 0xbd38300000000000ull,
    0x3fe73f9a48a58152ull, 0xbd00c00000000000ull, 0x3fe74fbd35d7ccfcull, 0x3d2f880000000000ull,
    0x3fe75feb564267f1ull, 0x3d03e00000000000ull, 0x3fe77024b1ab6d48ull, 0xbd27d00000000000ull,
    0x3fe780694fde5d38ull, 0xbcdd000000000000ull, 0x3fe790b938ac1d00ull, 0x3ce3000000000000ull,
    0x3fe7a11473eb0178ull, 0xbced000000000000ull, 0x3fe7b17b0976d060ull, 0x3d20400000000000ull,
    0x3fe7c1ed0130c133ull, 0x3ca0000000000000ull, 0x3fe7d26a62ff8636ull, 0xbd26900000000000ull,
    0x3fe7e2f336cf4e3bull, 0xbd02e00000000000ull, 0x3fe7f3878491c3e8ull, 0xbd24580000000000ull,
    0x3fe80427543e1b4eull, 0x3d33000000000000ull, 0x3fe814d2add1071aull, 0x3d0f000000000000ull,
    0x3fe82589994ccd7eull, 0xbd21c00000000000ull, 0x3fe8364c1eb942d0ull, 0x3d29d00000000000ull,
    0x3fe8471a4623cab5ull, 0x3d47100000000000ull, 0x3fe857f4179f5bbcull, 0x3d22600000000000ull,
    0x3fe868d99b4491afull, 0xbd32c40000000000ull, 0x3fe879cad931a395ull, 0xbd23000000000000ull,
    0x3fe88ac7d98a65b8ull, 0xbd2a800000000000ull, 0x3fe89bd0a4785800ull, 0xbced000000000000ull,
    0x3fe8ace5422aa223ull, 0x3d33280000000000ull, 0x3fe8be05bad619faull, 0x3d42b40000000000ull,
    0x3fe8cf3216b54383ull, 0xbd2ed00000000000ull, 0x3fe8e06a5e08664cull, 0xbd20500000000000ull,
    0x3fe8f1ae99157807ull, 0x3d28280000000000ull, 0x3fe902fed0282c0eull, 0xbd1cb00000000000ull,
    0x3fe9145b0b91ff96ull, 0xbd05e00000000000ull, 0x3fe925c353aa2ff9ull, 0x3cf5400000000000ull,
    0x3fe93737b0cdc64aull, 0x3d17200000000000ull, 0x3fe948b82b5f98aeull, 0xbd09000000000000ull,
    0x3fe95a44cbc852cbull, 0x3d25680000000000ull, 0x3fe96bdd9a766f21ull, 0xbd36d00000000000ull,
    0x3fe97d829fde4e2aull, 0xbd01000000000000ull, 0x3fe98f33e47a23a3ull, 0x3d2d000000000000ull,
    0x3fe9a0f170ca0604ull, 0xbd38a40000000000ull, 0x3fe9b2bb4d53ff89ull, 0x3d355c0000000000ull,
    0x3fe9c49182a3f15bull, 0x3d26b80000000000ull, 0x3fe9d674194bb8c5ull, 0xbcec000000000000ull,
    0x3fe9e86319e3238eull, 0x3d17d00000000000ull, 0x3fe9fa5e8d07f302ull, 0x3d16400000000000ull,
    0x3fea0c667b5de54dull, 0xbcf5000000000000ull, 0x3fea1e7aed8eb8f6ull, 0x3d09e00000000000ull,
    0x3fea309bec4a2e27ull, 0x3d2ad80000000000ull, 0x3fea42c980460a5dull, 0xbd1af00000000000ull,
    0x3fea5503b23e259bull, 0x3d0b600000000000ull, 0x3fea674a8af46213ull, 0x3d38880000000000ull,
    0x3fea799e1330b3a7ull, 0x3d11200000000000ull, 0x3fea8bfe53c12e8dull, 0x3d06c00000000000ull,
    0x3fea9e6b5579fcd2ull, 0xbd29b80000000000ull, 0x3feab0e521356fb8ull, 0x3d2b700000000000ull,
    0x3feac36bbfd3f381ull, 0x3cd9000000000000ull, 0x3fead5ff3a3c2780ull, 0x3ce4000000000000ull,
    0x3feae89f995ad2a3ull, 0xbd2c900000000000ull, 0x3feafb4ce622f367ull, 0x3d16500000000000ull,
    0x3feb0e07298db790ull, 0x3d2fd40000000000ull, 0x3feb20ce6c9a89a9ull, 0x3d12700000000000ull,
    0x3feb33a2b84f1a4bull, 0x3d4d470000000000ull, 0x3feb468415b747e7ull, 0xbd38380000000000ull,
    0x3feb59728de5593aull, 0x3c98000000000000ull, 0x3feb6c6e29f1c56aull, 0x3d0ad00000000000ull,
    0x3feb7f76f2fb5e50ull, 0x3cde800000000000ull, 0x3feb928cf22749b2ull, 0xbd04c00000000000ull,
    0x3feba5b030a10603ull, 0xbd0d700000000000ull, 0x3febb8e0b79a6f66ull, 0x3d0d900000000000ull,
    0x3febcc1e904bc1ffull, 0x3d02a00000000000ull, 0x3febdf69c3f3a16full, 0xbd1f780000000000ull,
    0x3febf2c25bd71db8ull, 0xbd10a00000000000ull, 0x3fec06286141b2e9ull, 0xbd11400000000000ull,
    0x3fec199bdd8552e0ull, 0x3d0be00000000000ull, 0x3fec2d1cd9fa64eeull, 0xbd09400000000000ull,
    0x3fec40ab5fffd02full, 0xbd0ed00000000000ull, 0x3fec544778fafd15ull, 0x3d39660000000000ull,
    0x3fec67f12e57d0cbull, 0xbd1a100000000000ull, 0x3fec7ba88988c1b6ull, 0xbd58458000000000ull,
    0x3fec8f6d9406e733ull, 0xbd1a480000000000ull, 0x3feca3405751c4dfull, 0x3ccb000000000000ull,
    0x3fecb720dcef9094ull, 0x3d01400000000000ull, 0x3feccb0f2e6d1689ull, 0x3cf0200000000000ull,
    0x3fecdf0b555dc412ull, 0x3cf3600000000000ull, 0x3fecf3155b5bab3bull, 0xbd06900000000000ull,
    0x3fed072d4a0789bcull, 0x3d09a00000000000ull, 0x3fed1b532b08c8faull, 0xbd15e00000000000ull,
    0x3fed2f87080d8a85ull, 0x3d1d280000000000ull, 0x3fed43c8eacaa203ull, 0x3d01a00000000000ull,
    0x3fed5818dcfba491ull, 0x3cdf000000000000ull, 0x3fed6c76e862e6a1ull, 0xbd03a00000000000ull,
    0x3fed80e316c9834eull, 0xbd0cd80000000000ull, 0x3fed955d71ff6090ull, 0x3cf4c00000000000ull,
    0x3feda9e603db32aeull, 0x3cff900000000000ull, 0x3fedbe7cd63a8325ull, 0x3ce9800000000000ull,
    0x3fedd321f301b445ull, 0xbcf5200000000000ull, 0x3fede7d5641c05bfull, 0xbd1d700000000000ull,
    0x3fedfc97337b9aecull, 0xbd16140000000000ull, 0x3fee11676b197d5eull, 0x3d0b480000000000ull,
    0x3fee264614f5a3e7ull, 0x3d40ce0000000000ull, 0x3fee3b333b16ee5cull, 0x3d0c680000000000ull,
    0x3fee502ee78b3fb4ull, 0xbd09300000000000ull, 0x3fee653924676d68ull, 0xbce5000000000000ull,
    0x3fee7a51fbc74c44ull, 0xbd07f80000000000ull, 0x3fee8f7977cdb726ull, 0xbcf3700000000000ull,
    0x3feea4afa2a490e8ull, 0x3ce5d00000000000ull, 0x3feeb9f4867ccae4ull, 0x3d161a0000000000ull,
    0x3feecf482d8e680dull, 0x3cf5500000000000ull, 0x3feee4aaa2188514ull, 0x3cc6400000000000ull,
    0x3feefa1bee615a13ull, 0xbcee800000000000ull, 0x3fef0f9c1cb64106ull, 0xbcfa880000000000ull,
    0x3fef252b376bb963ull, 0xbd2c900000000000ull, 0x3fef3ac948dd7275ull, 0x3caa000000000000ull,
    0x3fef50765b6e4524ull, 0xbcf4f00000000000ull, 0x3fef6632798844fdull, 0x3cca800000000000ull,
    0x3fef7bfdad9cbe38ull, 0x3cfabc0000000000ull, 0x3fef91d802243c82ull, 0xbcd4600000000000ull,
    0x3fefa7c1819e908eull, 0xbd0b0c0000000000ull, 0x3fefbdba3692d511ull, 0xbcc0e00000000000ull,
    0x3fefd3c22b8f7194ull, 0xbd10de8000000000ull, 0x3fefe9d96b2a23eeull, 0x3cee430000000000ull,
    0x3ff0000000000000ull, 0x0ull, 0x3ff00b1afa5abcbeull, 0xbcb3400000000000ull,
    0x3ff0163da9fb3303ull, 0xbd12170000000000ull, 0x3ff02168143b0282ull, 0x3cba400000000000ull,
    0x3ff02c9a3e77806cull, 0x3cef980000000000ull, 0x3ff037d42e11bbcaull, 0xbcc7400000000000ull,
    0x3ff04315e86e7f89ull, 0x3cd8300000000000ull, 0x3ff04e5f72f65467ull, 0xbd1a3f0000000000ull,
    0x3ff059b0d315855aull, 0xbd02840000000000ull, 0x3ff0650a0e3c1f95ull, 0x3cf1600000000000ull,
    0x3ff0706b29ddf71aull, 0x3d15240000000000ull, 0x3ff07bd42b72a82dull, 0xbce9a00000000000ull,
    0x3ff0874518759bd0ull, 0x3ce6400000000000ull, 0x3ff092bdf66607c8ull, 0xbd00780000000000ull,
    0x3ff09e3ecac6f383ull, 0xbc98000000000000ull, 0x3ff0a9c79b1f3930ull, 0x3cffa00000000000ull,
    0x3ff0b5586cf988fcull, 0xbcfac80000000000ull, 0x3ff0c0f145e46c8aull, 0x3cd9c00000000000ull,
    0x3ff0cc922b724816ull, 0x3d05200000000000ull, 0x3ff0d83b23395dd8ull, 0xbcfad00000000000ull,
    0x3ff0e3ec32d3d1f3ull, 0x3d1bac0000000000ull, 0x3ff0efa55fdfa9a6ull, 0xbd04e80000000000ull,
    0x3ff0fb66affed2f0ull, 0xbd0d300000000000ull, 0x3ff1073028d7234bull, 0x3cf1500000000000ull,
    0x3ff11301d0125b5bull, 0x3cec000000000000ull, 0x3ff11edbab5e2af9ull, 0x3d16bc0000000000ull,
    0x3ff12abdc06c31d5ull, 0x3ce8400000000000ull, 0x3ff136a814f2047dull, 0xbd0ed00000000000ull,
    0x3ff1429aaea92de9ull, 0x3ce8e00000000000ull, 0x3ff14e95934f3138ull, 0x3ceb400000000000ull,
    0x3ff15a98c8a58e71ull, 0x3d05300000000000ull, 0x3ff166a45471c3dfull, 0x3d03380000000000ull,
    0x3ff172b83c7d5211ull, 0x3d28d40000000000ull, 0x3ff17ed48695bb9full, 0xbd05d00000000000ull,
    0x3ff18af9388c8d93ull, 0xbd1c880000000000ull, 0x3ff1972658375d66ull, 0x3d11f00000000000ull,
    0x3ff1a35beb6fcba7ull, 0x3d10480000000000ull, 0x3ff1af99f81387e3ull, 0xbd47390000000000ull,
    0x3ff1bbe084045d54ull, 0x3d24e40000000000ull, 0x3ff1c82f95281c43ull, 0xbd0a200000000000ull,
    0x3ff1d4873168b9b2ull, 0x3ce3800000000000ull, 0x3ff1e0e75eb44031ull, 0x3ceac00000000000ull,
    0x3ff1ed5022fcd938ull, 0x3d01900000000000ull, 0x3ff1f9c18438cdf7ull, 0xbd1b780000000000ull,
    0x3ff2063b88628d8full, 0x3d2d940000000000ull, 0x3ff212be3578a81eull, 0x3cd8000000000000ull,
    0x3ff21f49917ddd41ull, 0x3d2b340000000000ull, 0x3ff22bdda2791323ull, 0x3d19f80000000000ull,
    0x3ff2387a6e7561e7ull, 0xbd19c80000000000ull, 0x3ff2451ffb821427ull, 0x3d02300000000000ull,
    0x3ff251ce4fb2a602ull, 0xbd13480000000000ull, 0x3ff25e85711eceb0ull, 0x3d12700000000000ull,
    0x3ff26b4565e27d16ull, 0x3d11d00000000000ull, 0x3ff2780e341de00full, 0x3d31ee0000000000ull,
    0x3ff284dfe1f5633eull, 0xbd14c00000000000ull, 0x3ff291ba7591bb30ull, 0xbd13d80000000000ull,
    0x3ff29e9df51fdf09ull, 0x3d08b00000000000ull, 0x3ff2ab8a66d10e9bull, 0xbd227c0000000000ull,
    0x3ff2b87fd0dada3aull, 0x3d2a340000000000ull, 0x3ff2c57e39771af9ull, 0xbd10800000000000ull,
    0x3ff2d285a6e402d9ull, 0xbd0ed00000000000ull, 0x3ff2df961f641579ull, 0xbcf4200000000000ull,
    0x3ff2ecafa93e2ecfull, 0xbd24980000000000ull, 0x3ff2f9d24abd8822ull, 0xbd16300000000000ull,
    0x3ff306fe0a31b625ull, 0xbd32360000000000ull, 0x3ff31432edeea50bull, 0xbd70df8000000000ull,
    0x3ff32170fc4cd7b8ull, 0xbd22480000000000ull, 0x3ff32eb83ba8e9a2ull, 0xbd25980000000000ull,
    0x3ff33c08b2641766ull, 0x3d1ed00000000000ull, 0x3ff3496266e3fa27ull, 0xbcdc000000000000ull,
    0x3ff356c55f929f0full, 0xbd30d80000000000ull, 0x3ff36431a2de88b9ull, 0x3d22c80000000000ull,
    0x3ff371a7373aaa39ull, 0x3d20600000000000ull, 0x3ff37f26231e74feull, 0xbd16600000000000ull,
    0x3ff38cae6d05d838ull, 0xbd0ae00000000000ull, 0x3ff39a401b713ec3ull, 0xbd44720000000000ull,
    0x3ff3a7db34e5a020ull, 0x3d08200000000000ull, 0x3ff3b57fbfec6e95ull, 0x3d3e800000000000ull,
    0x3ff3c32dc313a8f2ull, 0x3cef800000000000ull, 0x3ff3d0e544ede122ull, 0xbd17a00000000000ull,
    0x3ff3dea64c1234bbull, 0x3d26300000000000ull, 0x3ff3ec70df1c4eccull, 0xbd48a60000000000ull,
    0x3ff3fa4504ac7e8cull, 0xbd3cdc0000000000ull, 0x3ff40822c367a0bbull, 0x3d25b80000000000ull,
    0x3ff4160a21f72e95ull, 0x3d1ec00000000000ull, 0x3ff423fb27094646ull, 0xbd13600000000000ull,
    0x3ff431f5d950a920ull, 0x3d23980000000000ull, 0x3ff43ffa3f84b9ebull, 0x3cfa000000000000ull,
    0x3ff44e0860618919ull, 0xbcf6c00000000000ull, 0x3ff45c2042a7d201ull, 0xbd0bc00000000000ull,
    0x3ff46a41ed1d0016ull, 0xbd12800000000000ull, 0x3ff4786d668b3326ull, 0x3d30e00000000000ull,
    0x3ff486a2b5c13c00ull, 0xbd2d400000000000ull, 0x3ff494e1e192af04ull, 0x3d0c200000000000ull,
    0x3ff4a32af0d7d372ull, 0xbd1e500000000000ull, 0x3ff4b17dea6db801ull, 0x3d07800000000000ull,
    0x3ff4bfdad53629e1ull, 0xbd13800000000000ull, 0x3ff4ce41b817c132ull, 0x3d00800000000000ull,
    0x3ff4dcb299fddddbull, 0x3d2c700000000000ull, 0x3ff4eb2d81d8ab96ull, 0xbd1ce00000000000ull,
    0x3ff4f9b2769d2d02ull, 0x3d19200000000000ull, 0x3ff508417f4531c1ull, 0xbd08c00000000000ull,
    0x3ff516daa2cf662aull, 0xbcfa000000000000ull, 0x3ff5257de83f51eaull, 0x3d4a080000000000ull,
    0x3ff5342b569d4edaull, 0xbd26d80000000000ull, 0x3ff542e2f4f6ac1aull, 0xbd32440000000000ull,
    0x3ff551a4ca5d94dbull, 0x3d483c0000000000ull, 0x3ff56070dde9116bull, 0x3d24b00000000000ull,
    0x3ff56f4736b529deull, 0x3d415a0000000000ull, 0x3ff57e27dbe2c40eull, 0xbd29e00000000000ull,
    0x3ff58d12d497c76full, 0xbd23080000000000ull, 0x3ff59c0827ff0b4cull, 0x3d4dec0000000000ull,
    0x3ff5ab07dd485427ull, 0xbcc4000000000000ull, 0x3ff5ba11fba87af4ull, 0x3d30080000000000ull,
    0x3ff5c9268a59460bull, 0xbd26c80000000000ull, 0x3ff5d84590998e3full, 0x3d469a0000000000ull,
    0x3ff5e76f15ad20e1ull, 0xbd1b400000000000ull, 0x3ff5f6a320dcebcaull, 0x3d17700000000000ull,
    0x3ff605e1b976dcb8ull, 0x3d26f80000000000ull, 0x3ff6152ae6cdf715ull, 0x3d01000000000000ull,
    0x3ff6247eb03a5531ull, 0xbd15d00000000000ull, 0x3ff633dd1d1929b5ull, 0xbd12d00000000000ull,
    0x3ff6434634ccc313ull, 0xbcea800000000000ull, 0x3ff652b9febc8efaull, 0xbd28600000000000ull,
    0x3ff6623882553397ull, 0x3d71fe0000000000ull, 0x3ff671c1c708328eull, 0xbd37200000000000ull,
    0x3ff68155d44ca97eull, 0x3ce6800000000000ull, 0x3ff690f4b19e9471ull, 0xbd29780000000000ull,
};

// 2^x = 2^k 2^(i / 256 - 1/2) 2^r, of a table and a minimax polynomial in r.
LIBM_FUNCTION double libm_exp2(double x) {
    // Adding this rounds to a multiple of 1/256, which is then in the low bits.
    const double magic = 6755399441055744.0 / 256.0;
    const uint32_t magnitude = libm_magnitude(x);
    if (magnitude >= 0x40900000 && !libm_is_negative(x)) { // x >= 1024 or NaN
        return x * libm_power_of_2(1023);
    }
    if (magnitude >= 0x7ff00000) {
        return -1.0 / x;
    }
    if (x <= -1075.0) {
        return 0.0;
    }
    if (magnitude < 0x3c900000) { // |x| < 2^-54
        return 1.0 + x;
    }
    const double shifted = x + magic;
    const uint32_t steps = libm_low_word(shifted) + 128;
    const uint32_t i = steps % 256;
    const int32_t k = (int32_t)(steps - i) / 256;
    const double power = float_f64(libm_exp2_table[2 * i]);
    const double r = x - (shifted - magic) - float_f64(libm_exp2_table[2 * i + 1]);
    const double p = libm_poly5(
        r, float_f64(0x3fe62e42fefa39efull), float_f64(0x3fcebfbdff82c575ull),
        float_f64(0x3fac6b08d704a0a6ull), float_f64(0x3f83b2ab88f70400ull),
        float_f64(0x3f55d88003875c74ull));
    return libm_scale(power + power * r * p, k);
}

// Logarithms: x = 2^k (1 + f) with 1 + f in [sqrt(1/2), sqrt(2)]. With s = f / (2 + f),
// log(1 + f) = f - f^2 / 2 + s (f^2 / 2 + R(s^2)), where R is a minimax polynomial.

typedef struct {
    int32_t k;
    double f;
} libm_logarithm;

LIBM_FUNCTION double libm_log_rest(double s) {
    const double z = s * s;
    const double w = z * z;
    const double t1 = w * libm_poly3(w, 3.999999999940941908e-01, 2.222219843214978396e-01,
                                     1.531383769920937332e-01);
    const double t2 = z * libm_poly4(w, 6.666666666666735130e-01, 2.857142874366239149e-01,
                                     1.818357216161805012e-01, 1.479819860511658591e-01);
    return t2 + t1;
}

// k and f of a normal number.
LIBM_FUNCTION libm_logarithm libm_log_split(double x) {
    // The exponent of x / sqrt(1/2), so that 1 + f comes out on both sides of 1.
    const uint32_t shifted = libm_high_word(x) + (0x3ff00000 - 0x3fe6a09e);
    libm_logarithm parts;
    parts.k = (int32_t)(shifted >> 20) - 0x3ff;
    parts.f = libm_with_high_word(x, (shifted & 0x000fffff) + 0x3fe6a09e) - 1.0;
    return parts;
}

// k and f of a positive number.
LIBM_FUNCTION libm_logarithm libm_log_reduce(double x) {
    if (libm_high_word(x) >= 0x00100000) {
        return libm_log_split(x);
    }
    libm_logarithm parts = libm_log_split(x * libm_power_of_2(54));
    parts.k -= 54;
    return parts;
}

// Whether a number is 0, negative, infinite or not a number.
LIBM_FUNCTION bool libm_log_is_special(double x) {
    return !(x > 0.0) || libm_high_word(x) >= 0x7ff00000;
}

LIBM_FUNCTION double libm_log_of_special(double x) {
    if (x == 0.0) {
        return -1.0 / (x * x);
    }
    return x < 0.0 ? (x - x) / (x - x) : x;
}

LIBM_FUNCTION double libm_log(double x) {
    if (libm_log_is_special(x)) {
        return libm_log_of_special(x);
    }
    const libm_logarithm parts = libm_log_reduce(x);
    const double f = parts.f, k = (double)parts.k;
    const double half_square = 0.5 * f * f;
    const double s = f / (2.0 + f);
    return s * (half_square + libm_log_rest(s)) + k * LIBM_LN2_LOW - half_square + f +
           k * LIBM_LN2_HIGH;
}

// log(1 + f) in two parts, for a product with another logarithm.
LIBM_FUNCTION libm_pair libm_log_pair(double f) {
    const double half_square = 0.5 * f * f;
    const double s = f / (2.0 + f);
    const double rest = libm_log_rest(s);
    libm_pair log;
    log.high = libm_first_half(f - half_square);
    log.low = f - log.high - half_square + s * (half_square + rest);
    return log;
}

// y + high + low, where |y| is 0 or greater than |high|.
LIBM_FUNCTION double libm_log_sum(double y, double high, double low) {
    const double w = y + high;
    return low + ((y - w) + high) + w;
}

// log(1 + f) / log(2) + k.
LIBM_FUNCTION double libm_log2(double x) {
    const double log2_e_high = 1.44269504072144627571e+00;
    const double log2_e_low = 1.67517131648865118353e-10;
    if (libm_log_is_special(x)) {
        return libm_log_of_special(x);
    }
    const libm_logarithm parts = libm_log_reduce(x);
    const libm_pair log = libm_log_pair(parts.f);
    const double low = (log.low + log.high) * log2_e_low + log.low * log2_e_high;
    return libm_log_sum((double)parts.k, log.high * log2_e_high, low);
}

// log(1 + f) / log(10) + k log10(2).
LIBM_FUNCTION double libm_log10(double x) {
    const double log10_e_high = 4.34294481878168880939e-01;
    const double log10_e_low = 2.50829467116452752298e-11;
    const double log10_2_high = 3.01029995663611771306e-01;
    const double log10_2_low = 3.69423907715893078616e-13;
    if (libm_log_is_special(x)) {
        return libm_log_of_special(x);
    }
    const libm_logarithm parts = libm_log_reduce(x);
    const libm_pair log = libm_log_pair(parts.f);
    const double k = (double)parts.k;
    const double low =
        k * log10_2_low + (log.low + log.high) * log10_e_low + log.low * log10_e_high;
    return libm_log_sum(k * log10_2_high, log.high * log10_e_high, low);
}

// log(1 + x) - log(u), about (1 + x - u) / u, for u = 2^k (1 + f) the rounded sum. The difference
// begins with the greater of 1 and x, so it is exact.
LIBM_FUNCTION double libm_log1p_correction(double x, double u, int32_t k) {
    if (k >= 54) {
        return 0.0;
    }
    return (k >= 2 ? 1.0 - (u - x) : x - (u - 1.0)) / u;
}

LIBM_FUNCTION double libm_log1p(double x) {
    const uint32_t high = libm_high_word(x);
    libm_logarithm parts;
    double c = 0.0;
    parts.k = 0;
    parts.f = x;
    if (!(x > -1.0)) {
        return x == -1.0 ? -1.0 / (x + 1.0) : (x - x) / (x - x);
    }
    if (libm_magnitude(x) < 0x3ca00000) { // |x| < 2^-53
        return x;
    }
    if (libm_magnitude(x) >= 0x7ff00000) {
        return x;
    }
    // 1 + x is not in [sqrt(1/2), sqrt(2)].
    if (libm_is_negative(x) ? high > 0xbfd2bec4 : high >= 0x3fda827a) {
        const double u = 1.0 + x;
        parts = libm_log_split(u);
        c = libm_log1p_correction(x, u, parts.k);
    }
    const double f = parts.f, k = (double)parts.k;
    const double half_square = 0.5 * f * f;
    const double s = f / (2.0 + f);
    return s * (half_square + libm_log_rest(s)) + (k * LIBM_LN2_LOW + c) - half_square + f +
           k * LIBM_LN2_HIGH;
}

// Sine, cosine and tangent: x = n pi/2 + y with |y| <= pi/4, then minimax polynomials in y.

// An angle less a multiple of pi/2. Of the multiple, the last two bits count.
typedef struct {
    int32_t quadrant;
    libm_pair rest;
} libm_angle;

// The difference of the parts as a sum of two numbers.
LIBM_FUNCTION libm_pair libm_renormalize(double high, double low) {
    libm_pair sum;
    sum.high = high - low;
    sum.low = (high - sum.high) - low;
    return sum;
}

// pi/2 as a sum of numbers of 33 bits, whose products by a quotient are exact, each with what pi/2
// has beyond it.
#define LIBM_PIO2_1 1.57079632673412561417e+00
#define LIBM_PIO2_1_REST 6.07710050650619224932e-11
#define LIBM_PIO2_2 6.07710050630396597660e-11
#define LIBM_PIO2_2_REST 2.02226624879595063154e-21
#define LIBM_PIO2_3 2.02226624871116645580e-21
#define LIBM_PIO2_3_REST 8.47842766036889956997e-32

// Subtracts n times the next number from `high`, and renews `low`.
LIBM_FUNCTION libm_pair libm_subtract_next(double high, double n, double next, double rest) {
    const double product = n * next;
    libm_pair difference;
    difference.high = high - product;
    difference.low = n * rest - ((high - difference.high) - product);
    return difference;
}

// The angle for |x| up to 2^20 pi/2, with more numbers of pi/2 the more bits cancel.
LIBM_FUNCTION libm_angle libm_reduce_medium(double x) {
    // Adding this rounds to an integer.
    const double magic = 1.5 / 2.2204460492503131e-16;
    const double n = x * 6.36619772367581382433e-01 + magic - magic;
    const int32_t exponent = libm_exponent(x);
    libm_pair y;
    y.high = x - n * LIBM_PIO2_1;
    y.low = n * LIBM_PIO2_1_REST;
    if (exponent - libm_exponent(y.high - y.low) > 16) {
        y = libm_subtract_next(y.high, n, LIBM_PIO2_2, LIBM_PIO2_2_REST);
        if (exponent - libm_exponent(y.high - y.low) > 49) {
            y = libm_subtract_next(y.high, n, LIBM_PIO2_3, LIBM_PIO2_3_REST);
        }
    }
    libm_angle angle;
    angle.quadrant = (int32_t)n;
    angle.rest = libm_renormalize(y.high, y.low);
    return angle;
}

// Great angles (Payne and Hanek): of the product of |x| by 2/pi, only the digits that matter are
// computed. A digit has 24 bits, so a product of two is exact, and so is the sum of three.

// The digits of 2/pi after the point. The crate has more, for formats of greater exponents.
LIBM_TABLE int32_t libm_two_over_pi[66] = {
    0xa2f983, 0x6e4e44, 0x1529fc, 0x2757d1, 0xf534dd, 0xc0db62, 0x95993c, 0x439041, 0xfe5163,
    0xabdebb, 0xc561b7, 0x246e3a, 0x424dd2, 0xe00649, 0x2eea09, 0xd1921c, 0xfe1deb, 0x1cb129,
    0xa73ee8, 0x8235f5, 0x2ebb44, 0x84e99c, 0x7026b4, 0x5f7e41, 0x3991d6, 0x398353, 0x39f49c,
    0x845f8b, 0xbdf928, 0x3b1ff8, 0x97ffde, 0x05980f, 0xef2f11, 0x8b5a0a, 0x6d1f6d, 0x367ecf,
    0x27cb09, 0xb74f46, 0x3f669e, 0x5fea2d, 0x7527ba, 0xc7ebe5, 0xf17b3d, 0x0739f7, 0x8a5292,
    0xea6bfb, 0x5fb11f, 0x8d5d08, 0x560330, 0x46fc7b, 0x6babf0, 0xcfbc20, 0x9af436, 0x1da9e3,
    0x91615e, 0xe61b08, 0x659985, 0x5f14a0, 0x68408d, 0xffd880, 0x4d7327, 0x310606, 0x1556ca,
    0x73a8c9, 0x60e27b, 0xc08c6b,
};

// The digits of pi/2.
LIBM_TABLE double libm_pi_over_2[5] = {
    1.57079625129699707031e+00, 7.54978941586159635335e-08, 5.39030252995776476554e-15,
    3.28200341580791294123e-22, 1.27065575308067607349e-29,
};

typedef struct {
    // The digits of |x|.
    double x[3];
    // The first digit of 2/pi that matters: those before it add multiples of 8 to the product.
    int32_t first;
    // The sum i counts 2^(scale - 24 i).
    int32_t scale;
    // Sums of products of digits, from the highest, and how many there are after the first.
    double sums[20];
    int32_t last;
    // The digits of the product's fraction, from the lowest.
    int32_t digits[20];
    // The integer nearest to the product, and whether it is above the product.
    int32_t integer;
    bool is_complement;
} libm_product;

LIBM_FUNCTION double libm_digit_of_two_over_pi(int32_t i) {
    return i < 0 ? 0.0 : (double)libm_two_over_pi[i];
}

LIBM_FUNCTION void libm_product_extend(libm_product *p, int32_t last) {
    for (int32_t i = p->last + 1; i <= last; i++) {
        const int32_t digit = p->first + i;
        p->sums[i] = p->x[0] * libm_digit_of_two_over_pi(digit) +
                     p->x[1] * libm_digit_of_two_over_pi(digit - 1) +
                     p->x[2] * libm_digit_of_two_over_pi(digit - 2);
    }
    p->last = last;
}

// Splits x, and computes as many sums as most angles need.
LIBM_FUNCTION void libm_product_start(libm_product *p, double x) {
    const int32_t exponent = libm_exponent(x) - (0x3ff + 23);
    double rest = libm_with_high_word(x, (libm_high_word(x) & 0x000fffff) | (0x3ff + 23) << 20);
    for (int32_t i = 0; i < 2; i++) {
        p->x[i] = (double)(int32_t)rest;
        rest = (rest - p->x[i]) * 16777216.0;
    }
    p->x[2] = rest;
    p->first = (exponent - 3) / 24;
    p->scale = exponent - 24 * (p->first + 1);
    p->last = -1;
    libm_product_extend(p, 4);
}

// Carries between the sums, from the lowest. Returns the highest sum with its carry.
LIBM_FUNCTION double libm_product_carry(libm_product *p) {
    double z = p->sums[p->last];
    for (int32_t i = 0; i < p->last; i++) {
        const double carry = (double)(int32_t)(5.9604644775390625e-8 * z);
        p->digits[i] = (int32_t)(z - 16777216.0 * carry);
        z = p->sums[p->last - i - 1] + carry;
    }
    return z;
}

// Takes the integer of the product, modulo 8, out of z and the highest digit. Returns 0 if the
// fraction is below 1/2, else 1 if it begins in the highest digit, else 2.
LIBM_FUNCTION int32_t libm_product_integer(libm_product *p, double *z) {
    *z = libm_scale(*z, p->scale);
    *z -= 8.0 * trunc_f64(*z * 0.125); // the floor, since z is not negative
    p->integer = (int32_t)*z;
    *z -= (double)p->integer;
    if (p->scale > 0) {
        int32_t *digit = &p->digits[p->last - 1];
        const int32_t bits = *digit >> (24 - p->scale);
        p->integer += bits;
        *digit -= bits << (24 - p->scale);
        return *digit >> (23 - p->scale);
    }
    if (p->scale == 0) {
        return p->digits[p->last - 1] >> 23;
    }
    return *z >= 0.5 ? 2 : 0;
}

// Replaces the fraction by 1 less it, and so the integer by the nearest one. `is_in_z` says that
// the fraction begins in z.
LIBM_FUNCTION void libm_product_complement(libm_product *p, double *z, bool is_in_z) {
    bool carry = false;
    for (int32_t i = 0; i < p->last; i++) {
        const int32_t digit = p->digits[i];
        p->digits[i] = carry ? 0xffffff - digit : digit != 0 ? 0x1000000 - digit : 0;
        carry = carry || digit != 0;
    }
    if (p->scale > 0) { // 1 or 2 bits of the highest digit belonged to the integer
        p->digits[p->last - 1] &= 0xffffff >> p->scale;
    }
    if (is_in_z) {
        *z = 1.0 - *z;
        if (carry) {
            *z -= libm_scale(1.0, p->scale);
        }
    }
    p->integer += 1;
}

// How many more sums are needed if z is 0. Then the product may be close to an integer, and its
// first digits 0. A sum is added for each of these, and one for z.
LIBM_FUNCTION int32_t libm_product_missing(const libm_product *p) {
    for (int32_t i = 4; i < p->last; i++) {
        if (p->digits[i] != 0) {
            return 0;
        }
    }
    int32_t missing = 1;
    while (p->digits[4 - missing] == 0) {
        missing++;
    }
    return missing;
}

// Removes the highest digits if they are 0. Otherwise z has what the digits lack, and is added.
LIBM_FUNCTION void libm_product_finish(libm_product *p, double z) {
    if (z == 0.0) {
        do {
            p->last -= 1;
            p->scale -= 24;
        } while (p->digits[p->last] == 0);
        return;
    }
    z = libm_scale(z, -p->scale);
    if (z >= 16777216.0) {
        const double carry = (double)(int32_t)(5.9604644775390625e-8 * z);
        p->digits[p->last] = (int32_t)(z - 16777216.0 * carry);
        p->last += 1;
        p->scale += 24;
        z = carry;
    }
    p->digits[p->last] = (int32_t)z;
}

// The fraction times pi/2.
LIBM_FUNCTION libm_pair libm_product_angle(libm_product *p) {
    double unit = libm_scale(1.0, p->scale);
    double terms[20];
    for (int32_t i = p->last; i >= 0; i--) {
        p->sums[i] = unit * (double)p->digits[i];
        unit *= 5.9604644775390625e-8;
    }
    for (int32_t i = p->last; i >= 0; i--) {
        double term = 0.0;
        for (int32_t k = 0; k <= 4 && k <= p->last - i; k++) {
            term += libm_pi_over_2[k] * p->sums[i + k];
        }
        terms[p->last - i] = term;
    }
    libm_pair y;
    y.high = 0.0;
    for (int32_t i = p->last; i >= 0; i--) {
        y.high += terms[i];
    }
    y.low = terms[0] - y.high;
    for (int32_t i = 1; i <= p->last; i++) {
        y.low += terms[i];
    }
    return y;
}

LIBM_FUNCTION libm_angle libm_reduce_great(double x) {
    libm_product p;
    libm_product_start(&p, x);
    for (;;) {
        double z = libm_product_carry(&p);
        const int32_t above_half = libm_product_integer(&p, &z);
        p.is_complement = above_half > 0;
        if (p.is_complement) {
            libm_product_complement(&p, &z, above_half == 2);
        }
        const int32_t missing = z == 0.0 ? libm_product_missing(&p) : 0;
        if (missing == 0) {
            libm_product_finish(&p, z);
            break;
        }
        libm_product_extend(&p, p.last + missing);
    }
    const libm_pair y = libm_product_angle(&p);
    const bool is_negative = libm_is_negative(x);
    libm_angle angle;
    angle.quadrant = is_negative ? -(p.integer & 7) : p.integer & 7;
    angle.rest.high = libm_with_sign(p.is_complement != is_negative, y.high);
    angle.rest.low = libm_with_sign(p.is_complement != is_negative, y.low);
    return angle;
}

// The nearest multiple of pi/2 if it is 1 to 4, and if x is not so close to it that bits cancel.
// Otherwise 0.
LIBM_FUNCTION int32_t libm_near_multiple(uint32_t magnitude) {
    if (magnitude > 0x401c463b || magnitude == 0x4012d97c || (magnitude & 0xfffff) == 0x921fb) {
        return 0;
    }
    if (magnitude <= 0x400f6a7a) {
        return magnitude <= 0x4002d97c ? 1 : 2;
    }
    return magnitude <= 0x4015fdbc ? 3 : 4;
}

// The angle of a finite number beyond pi/4.
LIBM_FUNCTION libm_angle libm_reduce(double x) {
    const uint32_t magnitude = libm_magnitude(x);
    const int32_t multiple = libm_near_multiple(magnitude);
    if (multiple != 0) {
        libm_angle angle;
        angle.quadrant = libm_is_negative(x) ? -multiple : multiple;
        const double n = (double)angle.quadrant;
        angle.rest = libm_renormalize(x - n * LIBM_PIO2_1, n * LIBM_PIO2_1_REST);
        return angle;
    }
    return magnitude < 0x413921fb ? libm_reduce_medium(x) : libm_reduce_great(x);
}

// x + y is an angle up to pi/4 in two parts. The tail y counts to first order.

// sin(x + y). `is_exact` says that y is 0.
LIBM_FUNCTION double libm_sin_kernel(double x, double y, bool is_exact) {
    const double first = -1.66666666666666324348e-01;
    const double z = x * x;
    const double w = z * z;
    const double r = libm_poly3(z, 8.33333333332248946124e-03, -1.98412698298579493134e-04,
                                2.75573137070700676789e-06) +
                     z * w * libm_poly2(z, -2.50507602534068634195e-08, 1.58969099521155010221e-10);
    const double v = z * x;
    return is_exact ? x + v * (first + z * r) : x - ((z * (0.5 * y - v * r) - y) - v * first);
}

// cos(x + y). The first terms, 1 - x^2 / 2, are a sum of two numbers.
LIBM_FUNCTION double libm_cos_kernel(double x, double y) {
    const double z = x * x;
    const double z2 = z * z;
    const double low = libm_poly3(z, 4.16666666666666019037e-02, -1.38888888888741095749e-03,
                                  2.48015872894767294178e-05);
    const double high = libm_poly3(z, -2.75573143513906633035e-07, 2.08757232129817482790e-09,
                                   -1.13596475577881948265e-11);
    const double r = z * low + z2 * z2 * high;
    const double half_z = 0.5 * z;
    const double w = 1.0 - half_z;
    return w + (((1.0 - w) - half_z) + (z * r - x * y));
}

// What tan(x + y) has beyond x, as a polynomial in its even and its odd terms.
LIBM_FUNCTION double libm_tan_rest(double x, double y) {
    const double z = x * x;
    const double w = z * z;
    const double r = libm_poly6(w, 1.33333333333201242699e-01, 2.18694882948595424599e-02,
                                3.59207910759131235356e-03, 5.88041240820264096874e-04,
                                7.81794442939557092300e-05, -1.85586374855275456654e-05);
    const double v = z * libm_poly6(w, 5.39682539762260521377e-02, 8.86323982359930005737e-03,
                                    1.45620945432529025516e-03, 2.46463134818469906812e-04,
                                    7.14072491382608190305e-05, 2.59073051863633712884e-05);
    const double s = z * x;
    return y + z * (s * (r + v) + y) + s * 3.33333333333334091986e-01;
}

// tan(x + y) or -1 / tan(x + y). Near pi/4, where the polynomial does not reach, by that of
// pi/4 - x.
LIBM_FUNCTION double libm_tan_kernel(double x, double y, bool is_inverse) {
    if (libm_magnitude(x) >= 0x3fe59428) { // |x| >= 0.6744
        const bool is_negative = libm_is_negative(x);
        const double one = is_inverse ? -1.0 : 1.0;
        x = (7.85398163397448278999e-01 - libm_with_sign(is_negative, x)) +
            (3.06161699786838301793e-17 - libm_with_sign(is_negative, y));
        const double r = libm_tan_rest(x, 0.0);
        const double w = x + r;
        return libm_with_sign(is_negative, one - 2.0 * (x + (r - w * w / (w + one))));
    }
    const double r = libm_tan_rest(x, y);
    const double w = x + r;
    if (!is_inverse) {
        return w;
    }
    // The quotient a would have an error of 2 ULP. Its first half is corrected.
    const double a = -1.0 / w;
    const double w_high = libm_first_half(w);
    const double w_low = r - (w_high - x);
    const double a_high = libm_first_half(a);
    return a_high + a * (1.0 + a_high * w_high + a_high * w_low);
}

LIBM_FUNCTION double libm_sin(double x) {
    const uint32_t magnitude = libm_magnitude(x);
    if (magnitude <= 0x3fe921fb) { // |x| <= pi/4
        return magnitude < 0x3e500000 ? x : libm_sin_kernel(x, 0.0, true); // 2^-26
    }
    if (magnitude >= 0x7ff00000) {
        return x - x;
    }
    const libm_angle angle = libm_reduce(x);
    const double y = angle.rest.high, tail = angle.rest.low;
    const bool is_odd = (angle.quadrant & 1) != 0;
    const double value = is_odd ? libm_cos_kernel(y, tail) : libm_sin_kernel(y, tail, false);
    return libm_with_sign((angle.quadrant & 2) != 0, value);
}

LIBM_FUNCTION double libm_cos(double x) {
    const uint32_t magnitude = libm_magnitude(x);
    if (magnitude <= 0x3fe921fb) { // |x| <= pi/4
        return magnitude < 0x3e46a09e ? 1.0 : libm_cos_kernel(x, 0.0); // 2^-27 sqrt(2)
    }
    if (magnitude >= 0x7ff00000) {
        return x - x;
    }
    const libm_angle angle = libm_reduce(x);
    const double y = angle.rest.high, tail = angle.rest.low;
    const bool is_odd = (angle.quadrant & 1) != 0;
    const double value = is_odd ? libm_sin_kernel(y, tail, false) : libm_cos_kernel(y, tail);
    return libm_with_sign(((angle.quadrant + 1) & 2) != 0, value);
}

LIBM_FUNCTION double libm_tan(double x) {
    const uint32_t magnitude = libm_magnitude(x);
    if (magnitude <= 0x3fe921fb) { // |x| <= pi/4
        return magnitude < 0x3e400000 ? x : libm_tan_kernel(x, 0.0, false); // 2^-27
    }
    if (magnitude >= 0x7ff00000) {
        return x - x;
    }
    const libm_angle angle = libm_reduce(x);
    return libm_tan_kernel(angle.rest.high, angle.rest.low, (angle.quadrant & 1) != 0);
}

// Inverse trigonometric functions.

#define LIBM_PIO2_HIGH 1.57079632679489655800e+00
#define LIBM_PIO2_LOW 6.12323399573676603587e-17

// (asin(x) - x) / x for z = x^2, |x| <= 1/2: a rational approximation.
LIBM_FUNCTION double libm_asin_rest(double z) {
    const double p =
        z * libm_poly6(z, 1.66666666666666657415e-01, -3.25565818622400915405e-01,
                       2.01212532134862925881e-01, -4.00555345006794114027e-02,
                       7.91534994289814532176e-04, 3.47933107596021167570e-05);
    const double q = libm_poly5(z, 1.0, -2.40339491173441421878e+00, 2.02094576023350569471e+00,
                                -6.88283971605453293030e-01, 7.70381505559019352791e-02);
    return p / q;
}

// What sqrt(z) has beyond f, the first half of its rounded value s.
LIBM_FUNCTION double libm_sqrt_rest(double z, double s, double f) {
    return (z - f * f) / (s + f);
}

// Beyond 1/2, pi/2 - 2 asin(sqrt((1 - |x|) / 2)). The root has an error, which counts unless the
// result is near pi/2.
LIBM_FUNCTION double libm_asin(double x) {
    const uint32_t magnitude = libm_magnitude(x);
    const double a = abs_f64(x);
    if (a == 1.0) {
        return x * LIBM_PIO2_HIGH;
    }
    if (!(a < 1.0)) {
        return 0.0 / (x - x);
    }
    if (magnitude < 0x3fe00000) { // |x| < 1/2
        const bool is_small = magnitude >= 0x00100000 && magnitude < 0x3e500000;
        return is_small ? x : x + x * libm_asin_rest(x * x);
    }
    const double z = (1.0 - a) * 0.5;
    const double s = sqrt_f64(z);
    const double r = libm_asin_rest(z);
    if (magnitude >= 0x3fef3333) { // |x| > 0.975
        return libm_with_sign(x < 0.0, LIBM_PIO2_HIGH - (2.0 * (s + s * r) - LIBM_PIO2_LOW));
    }
    const double f = libm_first_half(s);
    const double c = libm_sqrt_rest(z, s, f);
    const double rest =
        2.0 * s * r - (LIBM_PIO2_LOW - 2.0 * c) - (0.5 * LIBM_PIO2_HIGH - 2.0 * f);
    return libm_with_sign(x < 0.0, 0.5 * LIBM_PIO2_HIGH - rest);
}

LIBM_FUNCTION double libm_acos(double x) {
    const uint32_t magnitude = libm_magnitude(x);
    if (x == 1.0) {
        return 0.0;
    }
    if (x == -1.0) {
        return 2.0 * LIBM_PIO2_HIGH;
    }
    if (!(abs_f64(x) < 1.0)) {
        return 0.0 / (x - x);
    }
    if (magnitude <= 0x3c600000) { // |x| <= 2^-57
        return LIBM_PIO2_HIGH;
    }
    if (magnitude < 0x3fe00000) { // |x| < 1/2
        return LIBM_PIO2_HIGH - (x - (LIBM_PIO2_LOW - x * libm_asin_rest(x * x)));
    }
    if (x < 0.0) {
        const double z = (1.0 + x) * 0.5;
        const double s = sqrt_f64(z);
        return 2.0 * (LIBM_PIO2_HIGH - (s + (libm_asin_rest(z) * s - LIBM_PIO2_LOW)));
    }
    const double z = (1.0 - x) * 0.5;
    const double s = sqrt_f64(z);
    const double f = libm_first_half(s);
    return 2.0 * (f + (libm_asin_rest(z) * s + libm_sqrt_rest(z, s, f)));
}

// atan of 1/2, 1, 3/2 and infinity, each in two parts.
LIBM_TABLE double libm_atan_high[4] = {
    4.63647609000806093515e-01, 7.85398163397448278999e-01, 9.82793723247329054082e-01,
    1.57079632679489655800e+00,
};
LIBM_TABLE double libm_atan_low[4] = {
    2.26987774529616870924e-17, 3.06161699786838301793e-17, 1.39033110312309984516e-17,
    6.12323399573676603587e-17,
};

// (x - atan(x)) / x by a minimax polynomial, in its even and its odd terms.
LIBM_FUNCTION double libm_atan_rest(double x) {
    const double z = x * x;
    const double w = z * z;
    const double s1 = z * libm_poly6(w, 3.33333333333329318027e-01, 1.42857142725034663711e-01,
                                     9.09088713343650656196e-02, 6.66107313738753120669e-02,
                                     4.97687799461593236017e-02, 1.62858201153657823623e-02);
    const double s2 = w * libm_poly5(w, -1.99999999998764832476e-01, -1.11111104054623557880e-01,
                                     -7.69187620504482999495e-02, -5.83357013379057348645e-02,
                                     -3.65315727442169155270e-02);
    return s1 + s2;
}

// Which of the table's angles is subtracted from atan(|x|), for |x| >= 7/16.
LIBM_FUNCTION uint32_t libm_atan_interval(uint32_t magnitude) {
    if (magnitude < 0x3ff30000) { // 19/16
        return magnitude < 0x3fe60000 ? 0 : 1; // 11/16
    }
    return magnitude < 0x40038000 ? 2 : 3; // 39/16
}

// The tangent of the difference of atan(a) and the table's angle.
LIBM_FUNCTION double libm_atan_difference(uint32_t interval, double a) {
    switch (interval) {
    case 0:
        return (2.0 * a - 1.0) / (2.0 + a);
    case 1:
        return (a - 1.0) / (a + 1.0);
    case 2:
        return (a - 1.5) / (1.0 + 1.5 * a);
    default:
        return -1.0 / a;
    }
}

LIBM_FUNCTION double libm_atan(double x) {
    const uint32_t magnitude = libm_magnitude(x);
    if (x != x) {
        return x;
    }
    if (magnitude >= 0x44100000) { // |x| >= 2^66
        return libm_with_sign(x < 0.0, libm_atan_high[3]);
    }
    if (magnitude < 0x3e400000) { // |x| < 2^-27
        return x;
    }
    if (magnitude < 0x3fdc0000) { // |x| < 7/16
        return x - x * libm_atan_rest(x);
    }
    const uint32_t i = libm_atan_interval(magnitude);
    const double y = libm_atan_difference(i, abs_f64(x));
    const double value = libm_atan_high[i] - (y * libm_atan_rest(y) - libm_atan_low[i] - y);
    return libm_with_sign(x < 0.0, value);
}

// The angle of a point on an axis, or at infinity. `is_left` says that x is negative.
LIBM_FUNCTION double libm_atan2_of_special(double y, double x, bool is_left) {
    const double pi = 3.1415926535897931160e+00;
    const bool is_below = libm_is_negative(y);
    if (y == 0.0) {
        return is_left ? libm_with_sign(is_below, pi) : y;
    }
    if (libm_magnitude(x) != 0x7ff00000) {
        return libm_with_sign(is_below, pi / 2.0);
    }
    if (libm_magnitude(y) == 0x7ff00000) {
        return libm_with_sign(is_below, is_left ? 3.0 * pi / 4.0 : pi / 4.0);
    }
    return libm_with_sign(is_below, is_left ? pi : 0.0);
}

LIBM_FUNCTION double libm_atan2(double y, double x) {
    const double pi = 3.1415926535897931160e+00;
    const double pi_low = 1.2246467991473531772e-16;
    const uint32_t far_apart = 64 << 20; // a quotient of 2^64, in high words
    const bool is_left = libm_is_negative(x), is_below = libm_is_negative(y);
    const uint32_t mx = libm_magnitude(x), my = libm_magnitude(y);
    if (x != x || y != y) {
        return x + y;
    }
    if (x == 1.0) {
        return libm_atan(y);
    }
    if (x == 0.0 || y == 0.0 || mx == 0x7ff00000 || my == 0x7ff00000 || mx + far_apart < my) {
        return libm_atan2_of_special(y, x, is_left);
    }
    // Without the test, the quotient could be subnormal.
    const double z = is_left && my + far_apart < mx ? 0.0 : libm_atan(abs_f64(y / x));
    if (!is_left) {
        return libm_with_sign(is_below, z);
    }
    return is_below ? (z - pi_low) - pi : pi - (z - pi_low);
}

// Hyperbolic functions, by e^x - 1 near 0.

// (e^x - e^-x) / 2 with t = e^|x| - 1.
LIBM_FUNCTION double libm_sinh(double x) {
    const double a = abs_f64(x);
    const uint32_t magnitude = libm_magnitude(x);
    const double signed_half = libm_is_negative(x) ? -0.5 : 0.5;
    if (magnitude >= 0x40862e42) { // e^|x| may overflow, or NaN
        return 2.0 * signed_half * libm_half_exp(a);
    }
    if (magnitude < 0x3ff00000 - (26 << 20)) { // |x| < 2^-26
        return x;
    }
    const double t = libm_expm1(a);
    return magnitude < 0x3ff00000 ? signed_half * (2.0 * t - t * t / (t + 1.0)) // |x| < 1
                                  : signed_half * (t + t / (t + 1.0));
}

LIBM_FUNCTION double libm_cosh(double x) {
    const double a = abs_f64(x);
    const uint32_t magnitude = libm_magnitude(x);
    if (magnitude >= 0x40862e42) { // e^|x| may overflow, or NaN
        return libm_half_exp(a);
    }
    if (magnitude < 0x3ff00000 - (26 << 20)) { // |x| < 2^-26
        return 1.0;
    }
    if (magnitude < 0x3fe62e42) { // |x| < log(2)
        const double t = libm_expm1(a);
        return 1.0 + t * t / (2.0 * (1.0 + t));
    }
    const double t = libm_exp(a);
    return 0.5 * (t + 1.0 / t);
}

// log(|x| + sqrt(x^2 + 1)), with what is left of it as |x| grows.
LIBM_FUNCTION double libm_asinh(double x) {
    const int32_t exponent = libm_exponent(x) - 0x3ff;
    double a = abs_f64(x);
    if (exponent >= 26) {
        a = libm_log(a) + LIBM_LN2;
    } else if (exponent >= 1) {
        a = libm_log(2.0 * a + 1.0 / (sqrt_f64(a * a + 1.0) + a));
    } else if (exponent >= -26) {
        a = libm_log1p(a + a * a / (sqrt_f64(a * a + 1.0) + 1.0));
    }
    return libm_with_sign(libm_is_negative(x), a);
}

// log(x + sqrt(x^2 - 1)), with what is left of it as x grows. Arguments below 1 are not special.
LIBM_FUNCTION double libm_acosh(double x) {
    const int32_t exponent = libm_exponent(x) - 0x3ff;
    const double d = x - 1.0;
    if (exponent < 1) {
        return libm_log1p(d + sqrt_f64(d * d + 2.0 * d));
    }
    if (exponent < 26) {
        return libm_log(2.0 * x - 1.0 / (x + sqrt_f64(x * x - 1.0)));
    }
    return libm_log(x) + LIBM_LN2;
}

// log((1 + |x|) / (1 - |x|)) / 2.
LIBM_FUNCTION double libm_atanh(double x) {
    const int32_t exponent = libm_exponent(x) - 0x3ff;
    double a = abs_f64(x);
    if (exponent >= -1) {
        a = 0.5 * libm_log1p(2.0 * (a / (1.0 - a)));
    } else if (exponent >= -32) {
        a = 0.5 * libm_log1p(2.0 * a + 2.0 * a * a / (1.0 - a));
    }
    return libm_with_sign(libm_is_negative(x), a);
}

// The error function: rational approximations on intervals.

// erf(1), rounded to 24 bits.
#define LIBM_ERF_1 8.45062911510467529297e-01

// (erf(x) - x) / x for |x| < 0.84375.
LIBM_FUNCTION double libm_erf_rest(double x) {
    const double z = x * x;
    const double r = libm_poly5(z, 1.28379167095512558561e-01, -3.25042107247001499370e-01,
                                -2.84817495755985104766e-02, -5.77027029648944159157e-03,
                                -2.37630166566501626084e-05);
    const double s = libm_poly6(z, 1.0, 3.97917223959155352819e-01, 6.50222499887672944485e-02,
                                5.08130628187576562776e-03, 1.32494738004321644526e-04,
                                -3.96022827877536812320e-06);
    return r / s;
}

// 1 - erf(a) for a from 0.84375 to 1.25.
LIBM_FUNCTION double libm_erfc_near_1(double a) {
    const double s = a - 1.0;
    const double p = libm_poly7(s, -2.36211856075265944077e-03, 4.14856118683748331666e-01,
                                -3.72207876035701323847e-01, 3.18346619901161753674e-01,
                                -1.10894694282396677476e-01, 3.54783043256182359371e-02,
                                -2.16637559486879084300e-03);
    const double q = libm_poly7(s, 1.0, 1.06420880400844228286e-01, 5.40397917702171048937e-01,
                                7.18286544141962662868e-02, 1.26171219808761642112e-01,
                                1.36370839120290507362e-02, 1.19844998467991074170e-02);
    return 1.0 - LIBM_ERF_1 - p / q;
}

// log(a erfc(a)) + a^2 + 0.5625, with s = 1 / a^2, for a from 1.25 to 1 / 0.35.
LIBM_FUNCTION double libm_erfc_exponent(double s) {
    const double r = libm_poly8(s, -9.86494403484714822705e-03, -6.93858572707181764372e-01,
                                -1.05586262253232909814e+01, -6.23753324503260060396e+01,
                                -1.62396669462573470355e+02, -1.84605092906711035994e+02,
                                -8.12874355063065934246e+01, -9.81432934416914548592e+00);
    const double q = libm_poly9(s, 1.0, 1.96512716674392571292e+01, 1.37657754143519042600e+02,
                                4.34565877475229228821e+02, 6.45387271733267880336e+02,
                                4.29008140027567833386e+02, 1.08635005541779435134e+02,
                                6.57024977031928170135e+00, -6.04244152148580987438e-02);
    return r / q;
}

// The same beyond 1 / 0.35.
LIBM_FUNCTION double libm_erfc_far_exponent(double s) {
    const double r = libm_poly7(s, -9.86494292470009928597e-03, -7.99283237680523006574e-01,
                                -1.77579549177547519889e+01, -1.60636384855821916062e+02,
                                -6.37566443368389627722e+02, -1.02509513161107724954e+03,
                                -4.83519191608651397019e+02);
    const double q = libm_poly8(s, 1.0, 3.03380607434824582924e+01, 3.25792512996573918826e+02,
                                1.53672958608443695994e+03, 3.19985821950859553908e+03,
                                2.55305040643316442583e+03, 4.74528541206955367215e+02,
                                -2.24409524465858183362e+01);
    return r / q;
}

// 1 - erf(a) for a from 0.84375 to 28. The square of the first half z of a is exact, so
// e^(-a^2) is e^(-z^2) e^((z - a) (z + a)).
LIBM_FUNCTION double libm_erfc_beyond(double a) {
    const uint32_t magnitude = libm_magnitude(a);
    if (magnitude < 0x3ff40000) { // a < 1.25
        return libm_erfc_near_1(a);
    }
    const double s = 1.0 / (a * a);
    const double exponent =
        magnitude < 0x4006db6d ? libm_erfc_exponent(s) : libm_erfc_far_exponent(s); // 1 / 0.35
    const double z = libm_first_half(a);
    return libm_exp(-z * z - 0.5625) * libm_exp((z - a) * (z + a) + exponent) / a;
}

LIBM_FUNCTION double libm_erf(double x) {
    const uint32_t magnitude = libm_magnitude(x);
    const bool is_negative = libm_is_negative(x);
    if (magnitude >= 0x7ff00000) {
        return (is_negative ? -1.0 : 1.0) + 1.0 / x;
    }
    if (magnitude < 0x3e300000) { // |x| < 2^-28; the factor 8 avoids an inexact subnormal
        return 0.125 * (8.0 * x + 1.02703333676410069053e+00 * x);
    }
    if (magnitude < 0x3feb0000) { // |x| < 0.84375
        return x + x * libm_erf_rest(x);
    }
    const double value = magnitude < 0x40180000 ? 1.0 - libm_erfc_beyond(abs_f64(x)) : 1.0; // 6
    return libm_with_sign(is_negative, value);
}

LIBM_FUNCTION double libm_erfc(double x) {
    const uint32_t magnitude = libm_magnitude(x);
    const bool is_negative = libm_is_negative(x);
    if (magnitude >= 0x7ff00000) {
        return (is_negative ? 2.0 : 0.0) + 1.0 / x;
    }
    if (magnitude < 0x3c700000) { // |x| < 2^-56
        return 1.0 - x;
    }
    if (magnitude < 0x3feb0000) { // |x| < 0.84375
        const double y = libm_erf_rest(x);
        return x < 0.25 ? 1.0 - (x + x * y) : 0.5 - (x - 0.5 + x * y);
    }
    if (magnitude < 0x403c0000) { // |x| < 28
        const double value = libm_erfc_beyond(abs_f64(x));
        return is_negative ? 2.0 - value : value;
    }
    return is_negative ? 2.0 : 0.0;
}

// x^y = 2^(y log2(x)), with the logarithm and the product in two parts.

// The exponent of a power: a fraction, an odd integer or an even one.
#define LIBM_FRACTION 0
#define LIBM_ODD 1
#define LIBM_EVEN 2

LIBM_FUNCTION int32_t libm_parity(double y) {
    const uint32_t magnitude = libm_magnitude(y);
    const int32_t exponent = libm_exponent(y) - 0x3ff;
    if (exponent > 52) {
        return LIBM_EVEN;
    }
    if (exponent < 0) {
        return LIBM_FRACTION;
    }
    // Above the bits of the fraction is the last one of the integer. For 1, that is the last bit of
    // the exponent, which is set.
    const uint64_t bits = ((uint64_t)magnitude << 32) | libm_low_word(y);
    const int32_t fraction = 52 - exponent;
    if ((bits & (((uint64_t)1 << fraction) - 1)) != 0) {
        return LIBM_FRACTION;
    }
    return (bits >> fraction & 1) != 0 ? LIBM_ODD : LIBM_EVEN;
}

// An infinity or 0.
LIBM_FUNCTION double libm_overflow_or_underflow(double sign, bool is_overflow) {
    const double extreme = is_overflow ? 1.0e300 : 1.0e-300;
    return sign * extreme * extreme;
}

// |x|^y for an infinite y.
LIBM_FUNCTION double libm_pow_of_infinity(double a, double y) {
    if (a == 1.0) {
        return 1.0;
    }
    return (a > 1.0) == (y > 0.0) ? abs_f64(y) : 0.0;
}

// x^y for x = ±0, ±1 and ±infinity.
LIBM_FUNCTION double libm_pow_of_special(double x, double y, int32_t parity) {
    const double a = abs_f64(x);
    const double z = y < 0.0 ? 1.0 / a : a;
    if (!libm_is_negative(x)) {
        return z;
    }
    if (a == 1.0 && parity == LIBM_FRACTION) {
        return (z - z) / (z - z);
    }
    return parity == LIBM_ODD ? -z : z;
}

// log2(a) for |1 - a| <= 2^-20, by a Taylor series.
LIBM_FUNCTION libm_pair libm_pow_log2_near_1(double a) {
    const double t = a - 1.0;
    const double w = (t * t) * (0.5 - t * (0.3333333333333333333333 - t * 0.25));
    const double u = 1.44269502162933349609e+00 * t;
    const double v = t * 1.92596299112661746887e-08 - w * LIBM_LOG2_E;
    libm_pair log;
    log.high = libm_first_half(u + v);
    log.low = v - (log.high - u);
    return log;
}

// log(m / base) 3/2 for m between sqrt(3/4) and sqrt(3), by a polynomial of
// s = (m - base) / (m + base).
LIBM_FUNCTION libm_pair libm_pow_log(double m, double base) {
    const double u = m - base;
    const double v = 1.0 / (m + base);
    const double s = u * v;
    const double s_high = libm_first_half(s);
    // The first bits of m + base, by adding the bits of base to those of m.
    const uint32_t high = (libm_high_word(m) >> 1 | 0x20000000) + 0x00080000;
    const double sum_high = libm_from_words(high + (base == 1.5 ? 1u << 18 : 0), 0);
    const double sum_low = m - (sum_high - base);
    const double s_low = v * ((u - s_high * sum_high) - s_high * sum_low);
    const double s2 = s * s;
    const double poly = libm_poly6(s2, 5.99999999999994648725e-01, 4.28571428578550184252e-01,
                                   3.33333329818377432918e-01, 2.72728123808534006489e-01,
                                   2.30660745775561754067e-01, 2.06975017800338417784e-01);
    const double r = s2 * s2 * poly + s_low * (s_high + s);
    const double square = s_high * s_high;
    const double t_high = libm_first_half(3.0 + square + r);
    const double t_low = r - ((t_high - 3.0) - square);
    const double p = s_high * t_high;
    const double q = s_low * t_high + t_low * s;
    libm_pair log;
    log.high = libm_first_half(p + q);
    log.low = q - (log.high - p);
    return log;
}

// log2(a) = n + log2(base) + log2(m / base), with base 1 or 3/2.
LIBM_FUNCTION libm_pair libm_pow_log2(double a) {
    const double factor = 9.61796693925975554329e-01; // 2 / (3 log(2)), and in two parts
    const double factor_high = 9.61796700954437255859e-01;
    const double factor_low = -7.02846165095275826516e-09;
    const bool is_subnormal = a < libm_power_of_2(-1022);
    if (is_subnormal) {
        a *= 9007199254740992.0;
    }
    const uint32_t fraction = libm_high_word(a) & 0x000fffff;
    const bool is_middle = fraction > 0x3988e && fraction < 0xbb67a; // sqrt(3/2) to sqrt(3)
    const bool is_last = fraction >= 0xbb67a;
    const int32_t n = libm_exponent(a) - 0x3ff - (is_subnormal ? 53 : 0) + (is_last ? 1 : 0);
    const uint32_t exponent = is_last ? 0x3fe00000 : 0x3ff00000;
    const libm_pair p =
        libm_pow_log(libm_with_high_word(a, fraction | exponent), is_middle ? 1.5 : 1.0);
    const double base_high = is_middle ? 5.84962487220764160156e-01 : 0.0;
    const double base_low = is_middle ? 1.35003920212974897128e-08 : 0.0;
    const double z_high = factor_high * p.high;
    const double z_low = factor_low * p.high + p.low * factor + base_low;
    const double t = (double)n;
    libm_pair log;
    log.high = libm_first_half(((z_high + z_low) + base_high) + t);
    log.low = z_low - (((log.high - t) - base_high) - z_high);
    return log;
}

// 2^(high + low), for a sum from -1075 to 1024.
LIBM_FUNCTION double libm_pow_exp2(double high, double low) {
    const double sum = low + high;
    int32_t n = 0;
    if (libm_magnitude(sum) > 0x3fe00000) { // beyond 1/2, n is the nearest integer
        const int32_t exponent = libm_exponent(sum) - 0x3ff;
        const uint32_t word = libm_high_word(sum) + (0x00100000u >> (exponent + 1));
        const int32_t k = (int32_t)((word & 0x7fffffff) >> 20) - 0x3ff;
        n = (int32_t)(((word & 0x000fffff) | 0x00100000) >> (20 - k));
        n = sum < 0.0 ? -n : n;
        high -= libm_from_words(word & ~(0x000fffffu >> k), 0);
    }
    const double t = libm_first_half(low + high);
    const double u = t * 6.93147182464599609375e-01;
    const double v = (low - (t - high)) * LIBM_LN2 + t * -1.90465429995776804525e-09;
    const double z = u + v;
    const double w = v - (z - u);
    const double c = libm_exp_remainder(z);
    const double r = (z * c) / (c - 2.0) - (w + z * w);
    const double y = 1.0 - (r - z);
    if (libm_exponent(y) + n <= 0) {
        return libm_scale(y, n);
    }
    return libm_with_high_word(y, libm_high_word(y) + ((uint32_t)n << 20));
}

// sign |x|^y for finite numbers, y not 0, |x| neither 0 nor 1.
LIBM_FUNCTION double libm_pow_of_finite(double sign, double a, double y) {
    const double overflow_rest = 8.0085662595372944372e-17; // -(1024 - log2(greatest + ULP / 2))
    const uint32_t ma = libm_magnitude(a), my = libm_magnitude(y);
    const bool is_near_1 = my > 0x41e00000; // |y| > 2^31: the others are too great or too small
    if (my > 0x43f00000 || (is_near_1 && (ma < 0x3fefffff || ma > 0x3ff00000))) {
        return libm_overflow_or_underflow(sign, (a < 1.0) == (y < 0.0));
    }
    const libm_pair log = is_near_1 ? libm_pow_log2_near_1(a) : libm_pow_log2(a);
    const double y_high = libm_first_half(y);
    const double low = (y - y_high) * log.high + y * log.low;
    const double high = y_high * log.high;
    const double z = low + high;
    if (z > 1024.0 || (z == 1024.0 && low + overflow_rest > z - high)) {
        return libm_overflow_or_underflow(sign, true);
    }
    if (z < -1075.0 || (z == -1075.0 && low <= z - high)) {
        return libm_overflow_or_underflow(sign, false);
    }
    return sign * libm_pow_exp2(high, low);
}

LIBM_FUNCTION double libm_pow(double x, double y) {
    const double a = abs_f64(x);
    const bool is_negative = libm_is_negative(x);
    if (y == 0.0 || x == 1.0) {
        return 1.0;
    }
    if (x != x || y != y) {
        return x + y;
    }
    if (libm_magnitude(y) == 0x7ff00000) {
        return libm_pow_of_infinity(a, y);
    }
    if (abs_f64(y) == 1.0) {
        return y > 0.0 ? x : 1.0 / x;
    }
    if (y == 2.0) {
        return x * x;
    }
    if (y == 0.5 && !is_negative) {
        return sqrt_f64(x);
    }
    const int32_t parity = is_negative ? libm_parity(y) : LIBM_EVEN;
    if (a == 0.0 || a == 1.0 || libm_magnitude(x) == 0x7ff00000) {
        return libm_pow_of_special(x, y, parity);
    }
    if (parity == LIBM_FRACTION) {
        return (x - x) / (x - x);
    }
    return libm_pow_of_finite(parity == LIBM_ODD ? -1.0 : 1.0, a, y);
}

// The square as a sum of two numbers (Dekker).
LIBM_FUNCTION libm_pair libm_square(double x) {
    const double c = x * (134217728.0 + 1.0);
    const double high = x - c + c;
    const double low = x - high;
    libm_pair square;
    square.high = x * x;
    square.low = high * high - square.high + 2.0 * high * low + low * low;
    return square;
}

// sqrt(a^2 + b^2), scaled so that no square overflows or underflows.
LIBM_FUNCTION double libm_hypot(double x, double y) {
    double a = abs_f64(x), b = abs_f64(y), scale = 1.0;
    if (bits_f64(a) < bits_f64(b)) {
        const double greater = b;
        b = a;
        a = greater;
    }
    const int32_t ea = libm_exponent(a), eb = libm_exponent(b);
    if (eb == 0x7ff) { // both are infinite or not numbers; an infinity is the less in bits
        return b;
    }
    if (ea == 0x7ff || b == 0.0) {
        return a;
    }
    if (ea - eb > 64) {
        return a + b;
    }
    if (ea > 0x3ff + 510) {
        scale = libm_power_of_2(700);
        a *= libm_power_of_2(-700);
        b *= libm_power_of_2(-700);
    } else if (eb < 0x3ff - 450) {
        scale = libm_power_of_2(-700);
        a *= libm_power_of_2(700);
        b *= libm_power_of_2(700);
    }
    const libm_pair a2 = libm_square(a), b2 = libm_square(b);
    return scale * sqrt_f64(b2.low + a2.low + b2.high + a2.high);
}
