/* A step of a dense layer in one pass over memory. large_layer_step.py loads this file, and tries whether it rounds as PyTorch does.
 * It has the order of operations that MKL has: alpha a is rounded, products are added to 0 by fused additions in the order of
 * examples, and the sum is added to the weights. */

#include <stdint.h>
#include <string.h>

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define FUSED __attribute__((target("avx2,fma"), optimize("fp-contract=fast")))
#define UNROLLED _Pragma("GCC unroll 8")
#define SUPPORTED (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
#else
#define FUSED
#define UNROLLED
#define SUPPORTED 0
#endif

/* a tile, whose sums stay in registers: ROWS rows of VECTORS vectors of LANES numbers */
#define ROWS 3
#define VECTORS 4
#define LANES 8
#define WIDTH (VECTORS * LANES)

typedef float vector __attribute__((vector_size(LANES * sizeof(float)), aligned(sizeof(float))));

int64_t mpifl_width(void) { return SUPPORTED ? WIDTH : 0; }

/* out = from + g^T scaled, minus base if there is one; g and scaled have an example in each row, and g begins at the tile */
FUSED static void tile(float *out, const float *from, const float *base, int64_t stride, const float *g, int64_t rows,
                       const int64_t *row, const float *scaled, int64_t wide, int64_t examples) {
    vector sum[ROWS][VECTORS];
    memset(sum, 0, sizeof sum);
    for (int64_t k = 0; k < examples; k++) {
        vector x[VECTORS];
        UNROLLED for (int c = 0; c < VECTORS; c++) x[c] = *(const vector *)(scaled + k * wide + c * LANES);
        UNROLLED for (int r = 0; r < ROWS; r++) {
            const float y = g[k * rows + row[r]];
            UNROLLED for (int c = 0; c < VECTORS; c++) sum[r][c] += y * x[c];
        }
    }
    UNROLLED for (int r = 0; r < ROWS; r++) {
        UNROLLED for (int c = 0; c < VECTORS; c++) {
            const int64_t at = r * stride + c * LANES;
            vector value = *(const vector *)(from + at) + sum[r][c];
            if (base) value -= *(const vector *)(base + at);
            *(vector *)(out + at) = value;
        }
    }
}

static void copy(float *into, int64_t stride, const float *from, int64_t apart, int64_t high, int64_t broad) {
    for (int64_t r = 0; r < high; r++) memcpy(into + r * stride, from + r * apart, broad * sizeof(float));
}

/* out = from + g^T scaled, shape [rows, columns], minus base if there is one.
 * The rows of `scaled` have `wide` numbers, a multiple of WIDTH. `out` may be `from`. */
FUSED void mpifl_product_step(float *out, const float *from, const float *base, const float *g, const float *scaled,
                              int64_t wide, int64_t examples, int64_t rows, int64_t columns) {
    float edge[3][ROWS * WIDTH] = {{0}};
    for (int64_t top = 0; top < rows; top += ROWS) {
        const int64_t high = rows - top < ROWS ? rows - top : ROWS, row[ROWS] = {0, high > 1, high > 2 ? 2 : 0};
        for (int64_t left = 0; left < columns; left += WIDTH) {
            const int64_t broad = columns - left < WIDTH ? columns - left : WIDTH, at = top * columns + left;
            if (high == ROWS && broad == WIDTH) {
                tile(out + at, from + at, base ? base + at : 0, columns, g + top, rows, row, scaled + left, wide, examples);
            } else {
                copy(edge[0], WIDTH, from + at, columns, high, broad);
                if (base) copy(edge[1], WIDTH, base + at, columns, high, broad);
                tile(edge[2], edge[0], base ? edge[1] : 0, WIDTH, g + top, rows, row, scaled + left, wide, examples);
                copy(out + at, columns, edge[2], WIDTH, high, broad);
            }
        }
    }
}
