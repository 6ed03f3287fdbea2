/* The passes of a perceptron over a batch. dense_passes.py loads this file, and compares its bits with PyTorch's.
 * Products are those of the BLAS that PyTorch calls, with its arguments. */

#include <stdint.h>
#include <string.h>

typedef void gemm(const char *, const char *, const int *, const int *, const int *, const float *, const float *, const int *,
                  const float *, const int *, const float *, float *, const int *);

/* a layer: its sizes, the places of its parameters in the flat vectors, and memory for a batch; dense_passes.py fills it */
typedef struct {
    int64_t inputs, outputs, relu, weight, bias; /* bias: -1 if there is none */
    float *z;                                    /* the layer's outputs, behind its ReLU, [n, outputs] */
    float *g;                                    /* the gradient for its inputs, [n, inputs]; NULL in the first layer */
    float *product;                              /* where the gradient for W is computed, if not in its place */
} layer;

void mpifl_dense_forward(gemm *product, const layer *layers, int64_t count, const float *w, const float *x, int64_t examples) {
    const int n = (int)examples;
    const float one = 1.0f, zero = 0.0f;
    for (int64_t l = 0; l < count; l++) {
        const layer *at = layers + l;
        const int in = (int)at->inputs, out = (int)at->outputs;
        if (at->bias >= 0)
            for (int64_t i = 0; i < examples; i++) memcpy(at->z + i * out, w + at->bias, out * sizeof(float));
        product("T", "N", &out, &n, &in, &one, w + at->weight, &in, x, &in, at->bias >= 0 ? &one : &zero, at->z, &out);
        if (at->relu)
            for (int64_t i = 0; i < examples * out; i++) at->z[i] = at->z[i] < 0 ? 0 : at->z[i]; /* NaN stays */
        x = at->z;
    }
}

void mpifl_dense_backward(gemm *product, const layer *layers, int64_t count, const float *w, float *gradient, const float *x,
                          const float *g, int64_t examples) {
    const int n = (int)examples;
    const float one = 1.0f, zero = 0.0f;
    for (int64_t l = count - 1; l >= 0; l--) {
        const layer *at = layers + l;
        const int in = (int)at->inputs, out = (int)at->outputs;
        const float *a = l ? layers[l - 1].z : x;
        float *place = gradient + at->weight, *made = at->product ? at->product : place;
        product("N", "T", &in, &out, &n, &one, a, &in, g, &out, &zero, made, &in);
        if (made != place) memcpy(place, made, (size_t)at->inputs * at->outputs * sizeof(float));
        if (!l) return;
        product("N", "N", &in, &n, &out, &one, w + at->weight, &in, g, &out, &zero, at->g, &in);
        if (layers[l - 1].relu)
            for (int64_t i = 0; i < examples * in; i++) at->g[i] = a[i] <= 0 ? 0 : at->g[i];
        g = at->g;
    }
}
