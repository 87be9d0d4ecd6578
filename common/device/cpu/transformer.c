/* transformer.c: the CPU backend's embedding and layer norm. Attention has a file of its own.
 */
#include <math.h>

#include "common/device/cpu/kernels.h"

// ---- embedding ----------------------------------------------------------------------------------

static void cpu_embedding(const Embedding *of, const float *wte, const float *wpe, float *y) {
    size_t width = of->channels;
    for (size_t row = 0; row < of->rows; row++)
        if (host_is_token(of, row))
            cpu_elementwise.add(y + row * width, wte + (size_t)of->tokens[row] * width,
                                wpe + row % of->length * width, width);
        else
            cpu_elementwise.fill(y + row * width, NAN, width);
}

static void cpu_embedding_gradient(const Embedding *of, const float *dy, float *dwte,
                                   bool accumulate, void *workspace) {
    size_t width = of->channels;
    (void)workspace;
    if (!accumulate) cpu_elementwise.fill(dwte, 0.0f, of->vocabulary * width);
    for (size_t row = 0; row < of->rows; row++)
        if (host_is_token(of, row))
            cpu_elementwise.accumulate(dwte + (size_t)of->tokens[row] * width, dy + row * width,
                                       width);
}

static void cpu_position_gradient(const Embedding *of, const float *dy, float *dwpe,
                                  bool accumulate) {
    size_t width = of->channels;
    if (!accumulate) cpu_elementwise.fill(dwpe, 0.0f, of->length * width);
    for (size_t row = 0; row < of->rows; row++)
        if (host_is_token(of, row))
            cpu_elementwise.accumulate(dwpe + row % of->length * width, dy + row * width, width);
}

// ---- layer norm ---------------------------------------------------------------------------------

// Rows are short and stay in the first-level cache: a pass for the mean, one for the variance, one
// for the result, in sixteen partial sums each.
VECTORISED static void cpu_layer_norm(const LayerNorm *norm, float *y) {
    size_t width = norm->channels, whole = width / WIDE * WIDE;
    for (size_t row = 0; row < norm->rows; row++, y += width) {
        const float *x = norm->x + row * width, *weight = norm->weight, *bias = norm->bias;
        Wide sums = {0}, squares = {0}, values;
        float sum = 0, square = 0;
        for (size_t j = 0; j < whole; j += WIDE) {
            wide_load(&values, x + j);
            sums += values;
        }
        for (size_t j = whole; j < width; j++) sum += x[j];
        float mean = (sum + wide_sum(&sums)) / (float)width;
        for (size_t j = 0; j < whole; j += WIDE) {
            wide_load(&values, x + j);
            values -= mean;
            squares += values * values;
        }
        for (size_t j = whole; j < width; j++) square += (x[j] - mean) * (x[j] - mean);
        float variance = (square + wide_sum(&squares)) / (float)width;
        float invstd = 1 / sqrtf(variance + norm->eps);
        INDEPENDENT
        for (size_t j = 0; j < width; j++) y[j] = (x[j] - mean) * invstd * weight[j] + bias[j];
        norm->mean[row] = mean;
        norm->invstd[row] = invstd;
    }
}

// With g = dy weight and normal = (x - mean) invstd:
// dx (+)= invstd (g - mean(g) - normal mean(g normal))
VECTORISED static void input_gradient(const LayerNorm *norm, const float *dy, float *dx,
                                      bool accumulate) {
    size_t width = norm->channels, whole = width / WIDE * WIDE;
    for (size_t row = 0; row < norm->rows; row++, dy += width, dx += width) {
        const float *x = norm->x + row * width, *weight = norm->weight;
        float mean = norm->mean[row], invstd = norm->invstd[row], sum = 0, product = 0;
        Wide sums = {0}, products = {0}, values, g, factor;
        for (size_t j = 0; j < whole; j += WIDE) {
            wide_load(&values, x + j);
            wide_load(&g, dy + j);
            wide_load(&factor, weight + j);
            g *= factor;
            sums += g;
            products += g * (values - mean);
        }
        for (size_t j = whole; j < width; j++) {
            sum += dy[j] * weight[j];
            product += dy[j] * weight[j] * (x[j] - mean);
        }
        float of_g = (sum + wide_sum(&sums)) / (float)width;
        float slope = (product + wide_sum(&products)) / (float)width * invstd * invstd;
        INDEPENDENT
        for (size_t j = 0; j < width; j++) {
            float gradient = invstd * (dy[j] * weight[j] - of_g - (x[j] - mean) * slope);
            float before = dx[j]; // read in any case, used if it is added to
            dx[j] = accumulate ? before + gradient : gradient;
        }
    }
}

enum { COLUMNS = 128, ROWS = 16 }; // whose sums stay in the first-level cache

// Computes the sums over rows of dy and of dy normal, for neighbouring columns: ROWS rows are added
// up in float, and their sums in double.
VECTORISED static void column_sums(const LayerNorm *norm, const float *dy, size_t first,
                                   size_t columns, double sums[2][COLUMNS]) {
    for (size_t j = 0; j < columns; j++) sums[0][j] = sums[1][j] = 0;
    for (size_t row = 0; row < norm->rows;) {
        float part[2][COLUMNS] = {{0}};
        for (size_t end = row + ROWS; row < end && row < norm->rows; row++) {
            const float *x = norm->x + row * norm->channels + first;
            const float *from = dy + row * norm->channels + first;
            float mean = norm->mean[row], invstd = norm->invstd[row];
            INDEPENDENT
            for (size_t j = 0; j < columns; j++) {
                part[0][j] += from[j];
                part[1][j] += from[j] * ((x[j] - mean) * invstd);
            }
        }
        for (size_t j = 0; j < columns; j++) {
            sums[0][j] += (double)part[0][j];
            sums[1][j] += (double)part[1][j];
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
    if (to->dx) input_gradient(norm, dy, to->dx, to->add_dx);
}

const TransformerKernels cpu_transformer = {
    .embedding = cpu_embedding,
    .embedding_workspace = host_embedding_workspace,
    .embedding_gradient = cpu_embedding_gradient,
    .position_gradient = cpu_position_gradient,
    .layer_norm = cpu_layer_norm,
    .layer_norm_gradient = cpu_layer_norm_gradient,
    .attention_saved = host_attention_saved,
    .attention_workspace = cpu_attention_workspace,
    .attention = cpu_attention,
    .attention_gradient = cpu_attention_gradient,
};
