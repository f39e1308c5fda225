// The operations that printed functions and libm.c name, in C.
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define CLASS(f, float_t, bits_t, signed_t, suffix)                                            \
    static inline bits_t bits_##suffix(float_t x) {                                            \
        bits_t bits;                                                                           \
        memcpy(&bits, &x, sizeof bits);                                                        \
        return bits;                                                                           \
    }                                                                                          \
    static inline float_t float_##suffix(bits_t bits) {                                        \
        float_t x;                                                                             \
        memcpy(&x, &bits, sizeof x);                                                           \
        return x;                                                                              \
    }                                                                                          \
    static inline float_t fma_##suffix(float_t x, float_t y, float_t z) {                      \
        return fma##f(x, y, z);                                                                \
    }                                                                                          \
    static inline float_t abs_##suffix(float_t x) { return fabs##f(x); }                       \
    static inline float_t trunc_##suffix(float_t x) { return trunc##f(x); }                    \
    static inline float_t copysign_##suffix(float_t x, float_t y) { return copysign##f(x, y); } \
    static inline float_t signed_##suffix(bits_t x) { return (float_t)(signed_t)x; }           \
    static inline bits_t sar_##suffix(bits_t x, uint32_t by) {                                 \
        return (bits_t)((signed_t)x >> by);                                                    \
    }
CLASS(f, float, uint32_t, int32_t, f32)
CLASS(, double, uint64_t, int64_t, f64)

#define LIBM_FUNCTION static inline
#define LIBM_TABLE static const
static inline double sqrt_f64(double x) { return sqrt(x); }
