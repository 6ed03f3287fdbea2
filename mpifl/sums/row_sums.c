/* The inner loops of exact sums over rows. row_sums.py loads this file; exact_products.py and column_moments.py in
 * mpifl/wings/analysis have each loop in tensor operations, too. Both give the same bits. */

#include <stdint.h>
#include <string.h>

#define LOOP static inline __attribute__((always_inline))
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && defined(__gnu_linux__)
#define X86
#define VECTORISED __attribute__((target_clones("avx512f", "avx2", "default")))
/* for loops all of whose products are exact: then a product and a sum fused give the same bits */
#define FUSED(...) __attribute__((__VA_ARGS__, optimize("fp-contract=fast")))
#define FUSED_CLONES FUSED(target_clones("avx512f", "fma", "default"))
#else
#define VECTORISED
#define FUSED_CLONES
#endif

#define EXACT 4096 /* rows whose sums of slices and of products have no rounding in float64 */
#define SLICES 3
#define SLICE 524288.0 /* 2^19 */
#define WHOLE 6755399441055744.0 /* 1.5 * 2^52: added and subtracted, it rounds to a whole number, ties to even */

#define LEVELS 8 /* the sums of three slices, and of their products by five levels */
#define WIDTH 64

/* sums, of shape [LEVELS, columns], += the sums of the slices of numbers * scale, and of the products of two slices;
 * numbers have `stride` from row to row, and numbers * scale are at most 2^19 in magnitude */
FUSED_CLONES void mpifl_power_sums(int64_t *restrict sums, const float *restrict numbers, int64_t stride,
                                   const double *restrict scale, int64_t columns, int64_t rows) {
    for (int64_t start = 0; start < rows; start += EXACT)
        for (int64_t first = 0; first < columns; first += WIDTH) {
            const int64_t end = rows - start < EXACT ? rows : start + EXACT;
            const int64_t size = columns - first < WIDTH ? columns - first : WIDTH;
            double total[LEVELS][WIDTH] = {{0}};
            for (int64_t row = start; row < end; row++)
                for (int64_t i = 0; i < size; i++) {
                    const double x = numbers[row * stride + first + i] * scale[first + i];
                    const double a = (x + WHOLE) - WHOLE, y = (x - a) * SLICE;
                    const double b = (y + WHOLE) - WHOLE, z = (y - b) * SLICE;
                    const double c = (z + WHOLE) - WHOLE;
                    total[0][i] += a;
                    total[1][i] += b;
                    total[2][i] += c;
                    total[3][i] += a * a;
                    total[4][i] += a * b;
                    total[5][i] += (a + a) * c + b * b;
                    total[6][i] += b * c;
                    total[7][i] += c * c;
                }
            for (int64_t level = 0; level < LEVELS; level++) {
                const int64_t twice = level == 4 || level == 6; /* (a, b) and (b, a), (b, c) and (c, b) */
                for (int64_t i = 0; i < size; i++) sums[level * columns + first + i] += (int64_t)total[level][i] << twice;
            }
        }
}

#define CHUNK 64 /* rows that are cut at a time: the slices of a panel stay in the second cache, tiles in the first */
#define PANEL 64 /* columns of either side that are cut at a time */
#define TILE 4   /* columns of the left side whose products are in registers, 12 vectors of sums */
#define MOST 8   /* numbers of a vector */

/* A column of one side of a product: numbers with a stride from row to row, the rows' weights (NULL: none), and what brings
 * numbers times weights to 2^19 at most in magnitude. */
typedef struct {
    const double *numbers, *weights;
    int64_t stride;
    double scale;
} column;

/* x = some columns times weights and scale; columns after the last one are zeros */
LOOP void gather(double x[CHUNK][MOST], const column *columns, int64_t size, int64_t start, int64_t rows,
                 const int64_t width) {
    const column first = columns[0];
    double scale[MOST];
    int beside = size == width; /* the numbers of a row lie in one piece */
    for (int64_t i = 0; i < size; i++) {
        const column one = columns[i];
        scale[i] = one.scale;
        beside &= one.numbers == first.numbers + i && one.stride == first.stride && one.weights == first.weights;
    }
    const double *numbers = first.numbers + start * first.stride, *weights = first.weights + start;
    if (beside && first.weights)
        for (int64_t r = 0; r < rows; r++)
            for (int64_t i = 0; i < width; i++) x[r][i] = numbers[r * first.stride + i] * weights[r] * scale[i];
    else if (beside)
        for (int64_t r = 0; r < rows; r++)
            for (int64_t i = 0; i < width; i++) x[r][i] = numbers[r * first.stride + i] * scale[i];
    else
        for (int64_t i = 0; i < width; i++) {
            const column one = columns[i < size ? i : 0];
            const double *number = one.numbers + start * one.stride, by = i < size ? one.scale : 0;
            if (i < size && one.weights)
                for (int64_t r = 0; r < rows; r++) x[r][i] = number[r * one.stride] * one.weights[start + r] * by;
            else if (i < size)
                for (int64_t r = 0; r < rows; r++) x[r][i] = number[r * one.stride] * by;
            else
                for (int64_t r = 0; r < rows; r++) x[r][i] = 0;
        }
}

/* into, of shape [count / width, CHUNK, SLICES, width], = the slices of columns in some rows */
LOOP void cut(double *restrict into, const column *columns, int64_t count, int64_t start, int64_t rows,
              const int64_t width) {
    double x[CHUNK][MOST];
    for (int64_t first = 0; first < count; first += width, into += CHUNK * SLICES * width) {
        gather(x, columns + first, count - first < width ? count - first : width, start, rows, width);
        for (int64_t r = 0; r < rows; r++)
            for (int64_t i = 0; i < width; i++) {
                double *restrict to = into + r * SLICES * width + i;
                const double a = (x[r][i] + WHOLE) - WHOLE, y = (x[r][i] - a) * SLICE;
                const double b = (y + WHOLE) - WHOLE, z = (y - b) * SLICE;
                to[0] = a, to[width] = b, to[2 * width] = (z + WHOLE) - WHOLE;
            }
    }
}

/* total, of shape [SLICES, TILE, LANES], += products of two slices by their level, summed over some rows */
#define MULTIPLY(NAME, LANES)                                                                                         \
    LOOP void NAME(double *restrict total, const double *restrict a, const double *restrict b, int64_t rows) {        \
        typedef double lanes __attribute__((vector_size(8 * LANES), aligned(8), may_alias));                          \
        lanes sum[SLICES][TILE], *all = (lanes *)total;                                                               \
        for (int64_t k = 0; k < SLICES * TILE; k++) sum[k / TILE][k % TILE] = all[k];                                 \
        for (int64_t r = 0; r < rows; r++, a += SLICES * TILE, b += SLICES * LANES) {                                 \
            const lanes *of = (const lanes *)b, high = of[0], middle = of[1], low = of[2];                            \
            for (int64_t i = 0; i < TILE; i++) {                                                                      \
                sum[0][i] += a[i] * high;                                                                             \
                sum[1][i] += a[i] * middle;                                                                           \
                sum[2][i] += a[i] * low;                                                                              \
                sum[1][i] += a[TILE + i] * high;                                                                      \
                sum[2][i] += a[TILE + i] * middle;                                                                    \
                sum[2][i] += a[2 * TILE + i] * high;                                                                  \
            }                                                                                                         \
        }                                                                                                             \
        for (int64_t k = 0; k < SLICES * TILE; k++) all[k] = sum[k / TILE][k % TILE];                                 \
    }
MULTIPLY(by_two, 2)
MULTIPLY(by_four, 4)
MULTIPLY(by_eight, 8)

/* Columns of both sides, and where the sums of their products go: to rows of `row` numbers, and levels of `level`. */
typedef struct {
    const column *left, *right;
    int64_t p, q;
    int64_t *sums;
    int64_t row, level;
} panel;

typedef void multiplication(double *restrict, const double *restrict, const double *restrict, int64_t);

/* Add up the products of the columns of a panel over rows start, ..., end - 1, at most EXACT. */
LOOP void multiply_panel(const panel of, int64_t start, int64_t end, const int64_t lanes, multiplication multiply) {
    double a[PANEL * CHUNK * SLICES], b[PANEL * CHUNK * SLICES], total[SLICES * PANEL * PANEL];
    const int64_t across = (of.p + TILE - 1) / TILE, size = SLICES * TILE * lanes;
    const int64_t tiles = across * ((of.q + lanes - 1) / lanes);
    for (int64_t k = 0; k < tiles * size; k++) total[k] = 0;
    for (; start < end; start += CHUNK) {
        const int64_t rows = end - start < CHUNK ? end - start : CHUNK;
        cut(a, of.left, of.p, start, rows, TILE);
        cut(b, of.right, of.q, start, rows, lanes);
        for (int64_t k = 0; k < tiles; k++) {
            const int64_t i = k % across * TILE, j = k / across * lanes;
            multiply(total + k * size, a + i * CHUNK * SLICES, b + j * CHUNK * SLICES, rows);
        }
    }
    for (int64_t k = 0; k < tiles * size; k++) {
        const int64_t tile = k / size, level = k / (TILE * lanes) % SLICES;
        const int64_t i = tile % across * TILE + k / lanes % TILE, j = tile / across * lanes + k % lanes;
        if (i < of.p && j < of.q) of.sums[level * of.level + i * of.row + j] += (int64_t)total[k];
    }
}

/* The same for any number of columns and rows. */
LOOP void multiply_all(const panel all, int64_t start, int64_t end, const int64_t lanes, multiplication multiply) {
    for (; start < end; start += EXACT)
        for (int64_t i = 0; i < all.p; i += PANEL)
            for (int64_t j = 0; j < all.q; j += PANEL) {
                const int64_t p = all.p - i < PANEL ? all.p - i : PANEL, q = all.q - j < PANEL ? all.q - j : PANEL;
                const panel of = {all.left + i, all.right + j, p, q, all.sums + i * all.row + j, all.row, all.level};
                multiply_panel(of, start, end - start < EXACT ? end : start + EXACT, lanes, multiply);
            }
}

#ifdef X86
FUSED(target("avx512f")) static void in_avx512(const panel *all, int64_t start, int64_t end) {
    multiply_all(*all, start, end, 8, by_eight);
}

FUSED(target("avx2,fma")) static void in_avx2(const panel *all, int64_t start, int64_t end) {
    multiply_all(*all, start, end, 4, by_four);
}
#endif

/* sums, of shape [SLICES, p, q], += the products of two slices of p columns and q columns by their level, added up over rows
 * start, ..., end - 1 */
void mpifl_products(int64_t *sums, const column *left, int64_t p, const column *right, int64_t q, int64_t start,
                    int64_t end) {
    const panel all = {left, right, p, q, sums, q, p * q};
#ifdef X86
    if (__builtin_cpu_supports("avx512f")) return in_avx512(&all, start, end);
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return in_avx2(&all, start, end);
#endif
    multiply_all(all, start, end, 2, by_two);
}

/* eta = numbers @ beta, added up in the order of the columns, each product and each sum rounded */
VECTORISED void mpifl_predictor(double *restrict eta, const double *restrict numbers, int64_t row, int64_t column,
                                const double *restrict beta, int64_t columns, int64_t rows) {
    for (int64_t start = 0; start < rows; start += CHUNK) {
        const int64_t some = rows - start < CHUNK ? rows - start : CHUNK;
        double sum[CHUNK] = {0};
        for (int64_t j = 0; j < columns; j++)
            for (int64_t r = 0; r < some; r++) sum[r] += numbers[(start + r) * row + j * column] * beta[j];
        for (int64_t r = 0; r < some; r++) eta[start + r] = sum[r];
    }
}

/* counts, of shape [columns, highest - lowest + 1], += how many numbers but zeros are below 2^e, and not below 2^(e - 1), for
 * each exponent e; exponents beyond the ends count there, and so do numbers that are not finite */
void mpifl_exponents(int64_t *counts, const double *numbers, int64_t row, int64_t column, int64_t columns, int64_t rows,
                     int64_t lowest, int64_t highest) {
    for (int64_t r = 0; r < rows; r++)
        for (int64_t j = 0; j < columns; j++) {
            const double number = numbers[r * row + j * column];
            uint64_t bits;
            memcpy(&bits, &number, sizeof bits);
            int64_t exponent = (int64_t)(bits >> 52 & 2047) - 1022;
            exponent = exponent < lowest ? lowest : exponent > highest ? highest : exponent;
            counts[j * (highest - lowest + 1) + exponent - lowest] += number != 0;
        }
}
