/* transformer.c: the CPU backend's embedding, layer norm and GELU. Attention has a file of its own.
 */
#include <math.h>

#include "common/device/cpu/exponential.h"
#include "common/device/cpu/kernels.h"

// ---- embedding ----------------------------------------------------------------------------------

static bool is_token(const Embedding *of, size_t row) {
    return of->tokens[row] >= 0 && (uint64_t)of->tokens[row] < of->vocabulary;
}

static void cpu_embedding(const Embedding *of, const float *wte, const float *wpe, float *y) {
    size_t width = of->channels;
    for (size_t row = 0; row < of->rows; row++)
        if (is_token(of, row))
            cpu_elementwise.add(y + row * width, wte + (size_t)of->tokens[row] * width,
                                wpe + row % of->length * width, width);
        else
            cpu_elementwise.fill(y + row * width, NAN, width);
}

static size_t cpu_embedding_workspace(const Embedding *of) {
    (void)of;
    return 0;
}

static void cpu_embedding_gradient(const Embedding *of, const float *dy, float *dwte,
                                   bool accumulate, void *workspace) {
    size_t width = of->channels;
    (void)workspace;
    if (!accumulate) cpu_elementwise.fill(dwte, 0.0f, of->vocabulary * width);
    for (size_t row = 0; row < of->rows; row++)
        if (is_token(of, row))
            cpu_elementwise.accumulate(dwte + (size_t)of->tokens[row] * width, dy + row * width,
                                       width);
}

static void cpu_position_gradient(const Embedding *of, const float *dy, float *dwpe,
                                  bool accumulate) {
    size_t width = of->channels;
    if (!accumulate) cpu_elementwise.fill(dwpe, 0.0f, of->length * width);
    for (size_t row = 0; row < of->rows; row++)
        if (is_token(of, row))
            cpu_elementwise.accumulate(dwpe + row % of->length * width, dy + row * width, width);
}

// ---- layer norm ---------------------------------------------------------------------------------

// The sum of (x - shift)^power over a row, power 1 or 2.
KERNEL_CLONES static double row_moment(const float *x, size_t count, double shift, bool squared) {
    Lanes sums[2] = {{0}}, values;
    double sum = 0;
    size_t j = 0;
    for (; j + LANES_ROUND <= count; j += LANES_ROUND)
        for (size_t half = 0; half < 2; half++) {
            lanes_load(&values, x + j + half * LANES);
            values -= shift;
            sums[half] += squared ? values * values : values;
        }
    for (; j < count; j++) {
        double value = (double)x[j] - shift;
        sum += squared ? value * value : value;
    }
    return sum + lanes_sum(sums);
}

KERNEL_CLONES static void row_normalize(const LayerNorm *norm, size_t row, float *y) {
    const float *x = norm->x + row * norm->channels, *weight = norm->weight, *bias = norm->bias;
    float mean = norm->mean[row], invstd = norm->invstd[row];
    KERNEL_INDEPENDENT
    for (size_t j = 0; j < norm->channels; j++) y[j] = (x[j] - mean) * invstd * weight[j] + bias[j];
}

static void cpu_layer_norm(const LayerNorm *norm, float *y) {
    size_t width = norm->channels;
    for (size_t row = 0; row < norm->rows; row++) {
        const float *x = norm->x + row * width;
        double mean = row_moment(x, width, 0, false) / (double)width;
        double variance = row_moment(x, width, mean, true) / (double)width;
        norm->mean[row] = (float)mean;
        norm->invstd[row] = (float)(1 / sqrt(variance + (double)norm->eps));
        row_normalize(norm, row, y + row * width);
    }
}

typedef struct RowSums { // with g = dy weight and normal = (x - mean) invstd
    double g, product;   // the sums of g and of g normal
} RowSums;

KERNEL_CLONES static RowSums row_products(const LayerNorm *norm, const float *dy, size_t row) {
    const float *x = norm->x + row * norm->channels, *weight = norm->weight;
    double mean = (double)norm->mean[row], invstd = (double)norm->invstd[row];
    Lanes sums[2] = {{0}}, products[2] = {{0}}, values, gradient, factor;
    RowSums rest = {0, 0};
    size_t j = 0;
    for (; j + LANES_ROUND <= norm->channels; j += LANES_ROUND)
        for (size_t half = 0; half < 2; half++) {
            lanes_load(&values, x + j + half * LANES);
            lanes_load(&gradient, dy + j + half * LANES);
            lanes_load(&factor, weight + j + half * LANES);
            gradient *= factor;
            sums[half] += gradient;
            products[half] += gradient * (values - mean);
        }
    for (; j < norm->channels; j++) {
        double g = (double)dy[j] * (double)weight[j];
        rest.g += g;
        rest.product += g * ((double)x[j] - mean);
    }
    return (RowSums){rest.g + lanes_sum(sums), (rest.product + lanes_sum(products)) * invstd};
}

// dx (+)= invstd (g - mean(g) - normal mean(g normal))
KERNEL_CLONES static void row_project(const LayerNorm *norm, const float *dy, size_t row,
                                      RowSums sums, float *dx, bool accumulate) {
    const float *x = norm->x + row * norm->channels, *weight = norm->weight;
    float mean = norm->mean[row], invstd = norm->invstd[row];
    float of_g = (float)(sums.g / (double)norm->channels);
    float of_product = (float)(sums.product / (double)norm->channels);
    if (accumulate) {
        KERNEL_INDEPENDENT
        for (size_t j = 0; j < norm->channels; j++)
            dx[j] += invstd * (dy[j] * weight[j] - of_g - (x[j] - mean) * invstd * of_product);
    } else {
        KERNEL_INDEPENDENT
        for (size_t j = 0; j < norm->channels; j++)
            dx[j] = invstd * (dy[j] * weight[j] - of_g - (x[j] - mean) * invstd * of_product);
    }
}

enum { COLUMNS = 128 }; // whose sums stay in the first-level cache

// Of neighbouring columns, the sums over rows of dy and of dy normal.
KERNEL_CLONES static void column_sums(const LayerNorm *norm, const float *dy, size_t first,
                                      size_t columns, double sums[2][COLUMNS]) {
    for (size_t j = 0; j < columns; j++) sums[0][j] = sums[1][j] = 0;
    for (size_t row = 0; row < norm->rows; row++) {
        const float *x = norm->x + row * norm->channels + first;
        const float *from = dy + row * norm->channels + first;
        double mean = (double)norm->mean[row], invstd = (double)norm->invstd[row];
        KERNEL_INDEPENDENT
        for (size_t j = 0; j < columns; j++) {
            sums[0][j] += (double)from[j];
            sums[1][j] += (double)from[j] * (((double)x[j] - mean) * invstd);
        }
    }
}

static void cpu_layer_norm_gradient(const LayerNorm *norm, const float *dy,
                                    const NormGradient *to) {
    size_t width = norm->channels;
    double sums[2][COLUMNS];
    for (size_t first = 0; (to->dweight || to->dbias) && first < width; first += COLUMNS) {
        size_t columns = width - first < COLUMNS ? width - first : COLUMNS;
        column_sums(norm, dy, first, columns, sums);
        for (size_t j = 0; to->dbias && j < columns; j++)
            kernel_store(&to->dbias[first + j], sums[0][j], to->add_dbias);
        for (size_t j = 0; to->dweight && j < columns; j++)
            kernel_store(&to->dweight[first + j], sums[1][j], to->add_dweight);
    }
    for (size_t row = 0; to->dx && row < norm->rows; row++) {
        const float *from = dy + row * width;
        row_project(norm, from, row, row_products(norm, from, row), to->dx + row * width,
                    to->add_dx);
    }
}

// ---- GELU ---------------------------------------------------------------------------------------

// (1 + tanh(u)) / 2 is 1 / (1 + exp(-2u)); here 2u = ROOT (x + CUBE x^3).
#define ROOT 1.5957691216057308f // 2 sqrt(2 / pi)
#define CUBE 0.044715f

KERNEL_CLONES static void cpu_gelu(float *y, const float *x, size_t count) {
    KERNEL_INDEPENDENT
    for (size_t i = 0; i < count; i++) {
        float v = x[i];
        y[i] = v / (1 + exponential(-ROOT * (v + CUBE * v * v * v)));
    }
}

// With s that fraction, the derivative of x s is s + x s (1 - s) 2u'.
static inline float gelu_slope(float v) {
    float s = 1 / (1 + exponential(-ROOT * (v + CUBE * v * v * v)));
    return s + v * s * (1 - s) * (ROOT * (1 + 3 * CUBE * v * v));
}

KERNEL_CLONES static void cpu_gelu_gradient(float *dx, const float *x, const float *dy,
                                            size_t count, bool accumulate) {
    if (accumulate) {
        KERNEL_INDEPENDENT
        for (size_t i = 0; i < count; i++) dx[i] += dy[i] * gelu_slope(x[i]);
    } else {
        KERNEL_INDEPENDENT
        for (size_t i = 0; i < count; i++) dx[i] = dy[i] * gelu_slope(x[i]);
    }
}

const TransformerKernels cpu_transformer = {
    .embedding = cpu_embedding,
    .embedding_workspace = cpu_embedding_workspace,
    .embedding_gradient = cpu_embedding_gradient,
    .position_gradient = cpu_position_gradient,
    .layer_norm = cpu_layer_norm,
    .layer_norm_gradient = cpu_layer_norm_gradient,
    .gelu = cpu_gelu,
    .gelu_gradient = cpu_gelu_gradient,
    .attention_saved = cpu_attention_saved,
    .attention_workspace = cpu_attention_workspace,
    .attention = cpu_attention,
    .attention_gradient = cpu_attention_gradient,
};
