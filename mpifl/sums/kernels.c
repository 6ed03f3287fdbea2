/* The inner loops of aggregation, fused: one pass over memory instead of up to five by tensor operations. kernels.py loads
 * this file and has each loop in tensor operations, too. Both give the same bits, so the compiler must not contract
 * products and sums (-ffp-contract=off). */

#include <stdint.h>
#include <string.h>

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && defined(__gnu_linux__)
#define VECTORISED __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define VECTORISED
#endif

#define BLOCK 256

/* the largest magnitude, NaN if there is one; read as integers, magnitudes keep their order, and Inf and NaN come last */
VECTORISED float mpifl_peak(const int32_t *vector, int64_t n) {
    int32_t peak = 0;
    for (int64_t i = 0; i < n; i++) {
        const int32_t magnitude = vector[i] & INT32_MAX;
        peak = magnitude > peak ? magnitude : peak;
    }
    float value;
    memcpy(&value, &peak, sizeof value);
    return value;
}

/* total (+)= vector * weight, rounded to the grid of the anchor */
VECTORISED void mpifl_add(double *restrict total, const float *restrict vector, double weight, double anchor,
                          int64_t fresh, int64_t n) {
    if (fresh)
        for (int64_t i = 0; i < n; i++) total[i] = (vector[i] * weight + anchor) - anchor;
    else
        for (int64_t i = 0; i < n; i++) total[i] += (vector[i] * weight + anchor) - anchor;
}

/* into += some elements of the parts of a window; a part of weight 0 is a sum (float64), any other part is a summand
 * (float32), which is weighted and rounded here */
static inline __attribute__((always_inline)) void add_parts(double *restrict into, const void *const *parts,
                                                            const double *weights, int64_t count, double anchor,
                                                            int64_t start, int64_t size) {
    for (int64_t k = 0; k < count; k++) {
        const double weight = weights[k];
        const float *summand = (const float *)parts[k] + start;
        const double *sum = (const double *)parts[k] + start;
        if (weight != 0)
            for (int64_t i = 0; i < size; i++) into[i] += (summand[i] * weight + anchor) - anchor;
        else
            for (int64_t i = 0; i < size; i++) into[i] += sum[i];
    }
}

/* out = the sum of the parts of a window */
VECTORISED void mpifl_sum(double *restrict out, const void *const *parts, const double *weights, int64_t count,
                          double anchor, int64_t n) {
    for (int64_t start = 0; start < n; start += BLOCK) {
        int64_t size = n - start < BLOCK ? n - start : BLOCK;
        for (int64_t i = 0; i < size; i++) out[start + i] = 0;
        add_parts(out + start, parts, weights, count, anchor, start, size);
    }
}

/* out = scale * (the sum of the windows, in order); window w is the sum of counts[w] parts */
VECTORISED void mpifl_mean(float *restrict out, const void *const *parts, const double *weights, const int64_t *counts,
                           const double *anchors, int64_t windows, double scale, int64_t n) {
    double total[BLOCK], window[BLOCK];
    for (int64_t start = 0; start < n; start += BLOCK) {
        int64_t size = n - start < BLOCK ? n - start : BLOCK;
        int64_t next = 0;
        for (int64_t w = 0; w < windows; w++) {
            double *restrict into = w ? window : total;
            for (int64_t i = 0; i < size; i++) into[i] = 0;
            add_parts(into, parts + next, weights + next, counts[w], anchors[w], start, size);
            next += counts[w];
            if (w)
                for (int64_t i = 0; i < size; i++) total[i] += window[i];
        }
        for (int64_t i = 0; i < size; i++) out[start + i] = (float)(total[i] * scale);
    }
}

/* total += vector * scale, rounded to whole numbers, ties to even; modulo 2^64 */
VECTORISED void mpifl_add_rounded(uint64_t *restrict total, const float *restrict vector, double scale, int64_t n) {
    for (int64_t i = 0; i < n; i++) total[i] += (uint64_t)(int64_t)__builtin_rint(vector[i] * scale);
}

#define ROWS 128
#define COLUMNS 256

/* out = for each column, the mean of its values number first, ..., last - 1 in ascending order; a zero is never negative.
 * The comparators (low, high) of the network sort at most ROWS rows. */
VECTORISED void mpifl_between(float *restrict out, const float *const *rows, int64_t count, const int32_t *network,
                              int64_t comparators, int64_t first, int64_t last, int64_t n) {
    float values[ROWS][COLUMNS];
    double total[COLUMNS];
    for (int64_t start = 0; start < n; start += COLUMNS) {
        int64_t size = n - start < COLUMNS ? n - start : COLUMNS;
        for (int64_t k = 0; k < count; k++)
            for (int64_t i = 0; i < size; i++) values[k][i] = rows[k][start + i];
        for (int64_t c = 0; c < comparators; c++) {
            float *restrict low = values[network[2 * c]];
            float *restrict high = values[network[2 * c + 1]];
            for (int64_t i = 0; i < COLUMNS; i++) {
                const float a = low[i], b = high[i];
                const float least = a < b ? a : b, most = b > a ? b : a; /* computed before a store: 3.5 times as fast */
                low[i] = least;
                high[i] = most;
            }
        }
        for (int64_t i = 0; i < size; i++) total[i] = 0;
        for (int64_t k = first; k < last; k++)
            for (int64_t i = 0; i < size; i++) total[i] += values[k][i];
        for (int64_t i = 0; i < size; i++) out[start + i] = (float)(total[i] / (double)(last - first)) + 0.0f;
    }
}
