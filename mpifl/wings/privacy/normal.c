/* Normal numbers from random words, in one pass. normal.py loads this file, has the same computation with NumPy, and
 * explains each step. Both give the same bits; this needs -ffp-contract=off, so that products and sums are not fused.
 * The only function of libm is the square root, whose rounding IEEE 754 fixes. */

#include <stdint.h>
#include <string.h>

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && defined(__gnu_linux__)
#define VECTORISED __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define VECTORISED
#endif

static inline __attribute__((always_inline)) int32_t bits_of(float value) {
    int32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline __attribute__((always_inline)) float float_of(int32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* (a + b x) + (c + d x) x^2 */
static inline __attribute__((always_inline)) float four(float x, float xx, float a, float b, float c, float d) {
    return (d * x + c) * xx + (b * x + a);
}

/* two numbers from the three words of a pair */
static inline __attribute__((always_inline)) void pair(int32_t high, int32_t low, int32_t turn, float *one, float *other) {
    const float whole = (float)(high & 0x3fffffff) * 0x1p31f + ((float)(low & 0x7fffffff) + 0.5f);
    const int32_t bits = bits_of(whole), mirrored = high & 0x40000000;
    const float halvings = mirrored ? 0.0f : (float)(188 - (bits >> 23));
    const float f = mirrored ? whole * 0x1p-62f : 1.0f - float_of((bits & 0x7fffff) | 0x3f000000);
    const float ff = f * f, v = (float)(turn | 1) * 0x1p-31f, y = v * v, yy = y * y;
    const float of_logarithm = four(f, ff, -0.361907274f, 2.41743422f, -3.27918673f, 2.82909894f) * (ff * ff) +
                               four(f, ff, 0.999990463f, 0.667264223f, 0.487365127f, 0.527382493f);
    const float root = __builtin_sqrtf(halvings * 1.38629436f + (of_logarithm * f + 2.0f) * f);
    const float radius = high < 0 ? -root : root;
    const float s = four(y, yy, 0.785398185f, -0.0807454363f, 0.00249000103f, -3.5950452e-05f) * v;
    const float c = four(y, yy, -0.308425128f, 0.015854327f, -0.000325940084f, 3.53033806e-06f) * y + 1.0f;
    *one = radius * (low < 0 ? s : c);
    *other = radius * (low < 0 ? c : s);
}

/* Add deviation * normal numbers to first and second; second may be shorter by one. The words have shape [3][n]. */
VECTORISED void mpifl_add_normal(float *restrict first, float *restrict second, const int32_t *restrict words,
                                 float deviation, int64_t n, int64_t shorter) {
    const int32_t *high = words, *low = words + n, *turn = words + 2 * n;
    float one, other;
    for (int64_t i = 0; i < shorter; i++) {
        pair(high[i], low[i], turn[i], &one, &other);
        first[i] += one * deviation;
        second[i] += other * deviation;
    }
    for (int64_t i = shorter; i < n; i++) {
        pair(high[i], low[i], turn[i], &one, &other);
        first[i] += one * deviation;
    }
}
