/* matrix.c: the definition of matrix products. */
#include "common/device/ref/kernels.h"

static void product(Compute how, MatmulShape s, const float *a, const float *b, const float *bias,
                    float *c, bool accumulate) {
    HostProduct p = host_begin(how.precision, host_matmul_counts(s),
                               (HostProduct){a, b, bias, c, accumulate, how.workspace});
    for (size_t i = 0; i < s.m; i++)
        for (size_t j = 0; j < s.n; j++) {
            double sum = 0;
            for (size_t l = 0; l < s.k; l++)
                sum += (double)(s.transpose_a ? p.a[l * s.m + i] : p.a[i * s.k + l]) *
                       (double)(s.transpose_b ? p.b[j * s.k + l] : p.b[l * s.n + j]);
            ref_put(&p.c[i * s.n + j], sum + (p.bias ? (double)p.bias[j] : 0), p.accumulate);
        }
    host_end(how.precision, host_matmul_counts(s), &p, c, accumulate);
}

static void ref_matmul(Compute how, MatmulShape s, const float *a, const float *b, float *c,
                       bool accumulate) {
    product(how, s, a, b, NULL, c, accumulate);
}

static void ref_linear(Compute how, LinearShape s, const float *x, const float *weight,
                       const float *bias, float *y) {
    product(how, (MatmulShape){false, true, s.rows, s.out, s.in}, x, weight, bias, y, false);
    if (!s.relu) return;
    ref_elementwise.activation(ACTIVATION_RELU, y, y, s.rows * s.out, false);
    s.relu->y = y;
}

static void ref_linear_weight_gradient(Compute how, LinearShape s, const float *dy, const float *x,
                                       const LinearGradient *to) {
    for (size_t j = 0; to->dbias && j < s.out; j++) {
        double sum = 0;
        for (size_t i = 0; i < s.rows; i++) sum += (double)dy[i * s.out + j];
        ref_put(&to->dbias[j], sum, to->add_dbias);
    }
    const MatmulShape shape = {true, false, s.out, s.in, s.rows};
    if (to->dweight) ref_matmul(how, shape, dy, x, to->dweight, to->add_dweight);
}

static void ref_linear_relu_gradient(Compute how, LinearShape s, const float *dy,
                                     const float *weight, const ReluMask *of, float *dx) {
    ref_matmul(how, (MatmulShape){false, false, s.rows, s.in, s.out}, dy, weight, dx, false);
    ref_elementwise.activation_gradient(ACTIVATION_RELU, dx, of->y, dx, s.rows * s.in, false);
}

const MatrixKernels ref_matrix = {
    .matmul_workspace = host_matmul_workspace,
    .matmul = ref_matmul,
    .linear = ref_linear,
    .relu_mask = host_relu_mask,
    .linear_weight_gradient = ref_linear_weight_gradient,
    .linear_relu_gradient = ref_linear_relu_gradient,
};
