/* transformer.c: the definition of what a transformer is made of: rows looked up in tables, layer
 * norm and causal attention.
 */
#include <math.h>

#include "common/base/half.h"
#include "common/device/ref/kernels.h"

// ---- embedding ----------------------------------------------------------------------------------

static void ref_embedding(const Embedding *of, const float *wte, const float *wpe, float *y) {
    for (size_t row = 0; row < of->rows; row++)
        for (size_t j = 0; j < of->channels; j++)
            y[row * of->channels + j] = host_is_token(of, row)
                                            ? wte[(size_t)of->tokens[row] * of->channels + j] +
                                                  wpe[row % of->length * of->channels + j]
                                            : NAN;
}

static void ref_embedding_gradient(const Embedding *of, const float *dy, float *dwte,
                                   bool accumulate, void *workspace) {
    (void)workspace;
    for (size_t token = 0; token < of->vocabulary; token++)
        for (size_t j = 0; j < of->channels; j++) {
            double sum = 0;
            for (size_t row = 0; row < of->rows; row++)
                if (of->tokens[row] == (int64_t)token) sum += (double)dy[row * of->channels + j];
            ref_put(&dwte[token * of->channels + j], sum, accumulate);
        }
}

static void ref_position_gradient(const Embedding *of, const float *dy, float *dwpe,
                                  bool accumulate) {
    for (size_t t = 0; t < of->length; t++)
        for (size_t j = 0; j < of->channels; j++) {
            double sum = 0;
            for (size_t row = t; row < of->rows; row += of->length)
                if (host_is_token(of, row)) sum += (double)dy[row * of->channels + j];
            ref_put(&dwpe[t * of->channels + j], sum, accumulate);
        }
}

// ---- layer norm ---------------------------------------------------------------------------------

static void ref_layer_norm(const LayerNorm *norm, float *y) {
    double count = (double)norm->channels;
    for (size_t i = 0; i < norm->rows; i++) {
        const float *x = norm->x + i * norm->channels;
        double sum = 0, squares = 0;
        for (size_t j = 0; j < norm->channels; j++) sum += (double)x[j];
        double mean = sum / count;
        for (size_t j = 0; j < norm->channels; j++) squares += pow((double)x[j] - mean, 2);
        double invstd = 1 / sqrt(squares / count + (double)norm->eps);
        for (size_t j = 0; j < norm->channels; j++)
            y[i * norm->channels + j] =
                (float)(((double)x[j] - mean) * invstd * (double)norm->weight[j] +
                        (double)norm->bias[j]);
        norm->mean[i] = (float)mean;
        norm->invstd[i] = (float)invstd;
    }
}

static double normal(const LayerNorm *norm, size_t row, size_t j) {
    return ((double)norm->x[row * norm->channels + j] - (double)norm->mean[row]) *
           (double)norm->invstd[row];
}

// With g = dy weight: dx = invstd (g - mean(g) - normal mean(g normal)), means over the row.
static void row_gradient(const LayerNorm *norm, const float *dy, const NormGradient *to,
                         size_t row) {
    double sum = 0, product = 0, count = (double)norm->channels;
    const float *from = dy + row * norm->channels;
    for (size_t j = 0; j < norm->channels; j++) {
        double g = (double)from[j] * (double)norm->weight[j];
        sum += g;
        product += g * normal(norm, row, j);
    }
    for (size_t j = 0; j < norm->channels; j++) {
        double g = (double)from[j] * (double)norm->weight[j];
        double rest = g - sum / count - normal(norm, row, j) * product / count;
        ref_put(&to->dx[row * norm->channels + j], (double)norm->invstd[row] * rest, to->add_dx);
    }
}

static void ref_layer_norm_gradient(const LayerNorm *norm, const float *dy,
                                    const NormGradient *to) {
    for (size_t j = 0; j < norm->channels; j++) {
        double dweight = 0, dbias = 0;
        for (size_t i = 0; i < norm->rows; i++) {
            dweight += (double)dy[i * norm->channels + j] * normal(norm, i, j);
            dbias += (double)dy[i * norm->channels + j];
        }
        if (to->dweight) ref_put(&to->dweight[j], dweight, to->add_dweight);
        if (to->dbias) ref_put(&to->dbias[j], dbias, to->add_dbias);
    }
    for (size_t i = 0; to->dx && i < norm->rows; i++) row_gradient(norm, dy, to, i);
}

// ---- attention ----------------------------------------------------------------------------------

static float rounded(Precision precision, double x) {
    if (precision == PRECISION_F32) return (float)x;
    return precision == PRECISION_F16 ? half_from_f16(half_to_f16((float)x))
                                      : half_from_bf16(half_to_bf16((float)x));
}

// One head of one text: the location of its tokens' vectors of `size` elements.
typedef struct Head {
    const float *q, *k, *v;
    size_t stride;      // from token to token, of q, k, v
    size_t base, width; // in y: token t's vector is y[base + t width]
    const float
        *weights; // [length, length]: row t has the weights of the tokens s <= t, then zeros
} Head;

static Head head_at(const Attention *of, const float *qkv, const void *saved, size_t text,
                    size_t head) {
    size_t channels = of->heads * of->size, first = text * of->length;
    const float *q = qkv + first * 3 * channels + head * of->size;
    const float *weights = saved;
    return (Head){.q = q,
                  .k = q + channels,
                  .v = q + 2 * channels,
                  .stride = 3 * channels,
                  .base = first * channels + head * of->size,
                  .width = channels,
                  .weights = weights + (text * of->heads + head) * of->length * of->length};
}

static double dot(Precision precision, const float *a, const float *b, size_t count) {
    double sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += (double)rounded(precision, (double)a[i]) * (double)rounded(precision, (double)b[i]);
    return sum;
}

static size_t ref_attention_workspace(Precision precision, const Attention *of) {
    (void)precision;
    return of->length * of->length * sizeof(float);
}

// row[length]: the weights of token t. factors[length]: the factors of the values; in 16 bits,
// weights that were rounded before they were divided by their sum.
static void row_weights(Precision precision, const Attention *of, const Head *h, size_t t,
                        float *row, float *factors) {
    double max = -INFINITY, total = 0, scale = 1 / sqrt((double)of->size);
    for (size_t s = 0; s <= t; s++) {
        const float *k = h->k + s * h->stride;
        row[s] = (float)(dot(precision, h->q + t * h->stride, k, of->size) * scale);
        max = fmax(max, (double)row[s]);
    }
    for (size_t s = 0; s <= t; s++) total += exp((double)row[s] - max);
    for (size_t s = 0; s < of->length; s++) {
        double weight = s <= t ? exp((double)row[s] - max) : 0;
        row[s] = (float)(weight / total);
        factors[s] = precision == PRECISION_F32
                         ? row[s]
                         : (float)((double)rounded(precision, weight) / total);
    }
}

static void ref_attention(Compute how, const Attention *of, const float *qkv, float *y,
                          void *saved) {
    for (size_t i = 0; i < of->batch * of->heads; i++) {
        Head h = head_at(of, qkv, saved, i / of->heads, i % of->heads);
        for (size_t t = 0; t < of->length; t++) {
            float *row = (float *)saved + (i * of->length + t) * of->length;
            float *factors = how.workspace;
            row_weights(how.precision, of, &h, t, row, factors);
            for (size_t j = 0; j < of->size; j++) {
                double sum = 0;
                for (size_t s = 0; s <= t; s++)
                    sum += (double)factors[s] *
                           (double)rounded(how.precision, (double)h.v[s * h.stride + j]);
                y[h.base + t * h.width + j] = rounded(how.precision, sum);
            }
        }
    }
}

// With p the weights and dp = dy[t].v[s], the gradient of score s of token t is
// ds = p (dp - sum over s of p dp). scores[length, length] gets them, zeros above the diagonal. The
// sum is dy[t].y[t] as well, and in 16 bits it is made of y as that was rounded.
static void score_gradients(Precision precision, const Attention *of, const Head *h, const float *y,
                            const float *dy, float *scores) {
    for (size_t t = 0; t < of->length; t++) {
        const float *p = h->weights + t * of->length, *from = dy + h->base + t * h->width;
        double mean = 0;
        for (size_t s = 0; s <= t && precision == PRECISION_F32; s++)
            mean += (double)p[s] * dot(precision, from, h->v + s * h->stride, of->size);
        if (precision != PRECISION_F32)
            mean = dot(precision, from, y + h->base + t * h->width, of->size);
        for (size_t s = 0; s < of->length; s++) {
            double dp = s <= t ? dot(precision, from, h->v + s * h->stride, of->size) : 0;
            scores[t * of->length + s] = rounded(precision, (double)p[s] * (dp - mean));
        }
    }
}

// Element j of the gradients of one token's query, key and value:
// dq[t] = scale sum ds[t,s] k[s], dk[t] = scale sum ds[s,t] q[s], dv[t] = sum p[s,t] dy[s]
static void token_gradient(Precision precision, const Attention *of, const Head *h, const float *dy,
                           const float *scores, size_t t, size_t j, double sums[3]) {
    double scale = 1 / sqrt((double)of->size);
    sums[0] = sums[1] = sums[2] = 0;
    for (size_t s = 0; s < of->length; s++) {
        float p = rounded(precision, (double)h->weights[s * of->length + t]);
        float q = rounded(precision, (double)h->q[s * h->stride + j]);
        float k = rounded(precision, (double)h->k[s * h->stride + j]);
        float d = rounded(precision, (double)dy[h->base + s * h->width + j]);
        sums[0] += scale * (double)scores[t * of->length + s] * (double)k;
        sums[1] += scale * (double)scores[s * of->length + t] * (double)q;
        sums[2] += (double)p * (double)d;
    }
}

static void ref_attention_gradient(Compute how, const Attention *of, const float *qkv,
                                   const float *y, const void *saved, const float *dy, float *dqkv,
                                   bool accumulate) {
    size_t channels = of->heads * of->size;
    for (size_t i = 0; i < of->batch * of->heads; i++) {
        Head h = head_at(of, qkv, saved, i / of->heads, i % of->heads);
        score_gradients(how.precision, of, &h, y, dy, how.workspace);
        for (size_t t = 0; t < of->length; t++)
            for (size_t j = 0; j < of->size; j++) {
                double sums[3];
                token_gradient(how.precision, of, &h, dy, how.workspace, t, j, sums);
                float *to = dqkv + (h.q - qkv) + t * h.stride + j;
                for (size_t part = 0; part < 3; part++)
                    ref_put(to + part * channels, (double)rounded(how.precision, sums[part]),
                            accumulate);
            }
    }
}

const TransformerKernels ref_transformer = {
    .embedding = ref_embedding,
    .embedding_workspace = host_embedding_workspace,
    .embedding_gradient = ref_embedding_gradient,
    .position_gradient = ref_position_gradient,
    .layer_norm = ref_layer_norm,
    .layer_norm_gradient = ref_layer_norm_gradient,
    .attention_saved = host_attention_saved,
    .attention_workspace = ref_attention_workspace,
    .attention = ref_attention,
    .attention_gradient = ref_attention_gradient,
};
