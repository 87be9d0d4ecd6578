/* half.c: the definition of tensors in 16 bits, images with the channels last: each operation is
 * that of float32 [n, c, h, w], between a copy of its inputs in that form and one rounding of its
 * result.
 */
#include "common/base/memory.h"
#include "common/device/ref/kernels.h"

static size_t count_of(ImageSizes of) {
    return of.n * of.c * of.inner;
}

// Where element i of [n, c, inner] lies in [n, inner, c].
static size_t last(ImageSizes of, size_t i) {
    size_t pixel = i % of.inner, channel = i / of.inner % of.c, image = i / of.inner / of.c;
    return (image * of.inner + pixel) * of.c + channel;
}

static float load(Precision precision, const uint16_t *x) {
    float value;
    host_widen(precision, &value, x, 1);
    return value;
}

static float *room(size_t count) {
    return memory_zalloc((count + 1) * sizeof(float));
}

// y = values[n, c, inner], or adds them, with one rounding.
static void put(Precision precision, ImageSizes of, const float *values, uint16_t *y,
                bool accumulate) {
    for (size_t i = 0; i < count_of(of); i++) {
        uint16_t *place = &y[last(of, i)];
        float value = accumulate ? values[i] + load(precision, place) : values[i];
        host_narrow(precision, place, &value, 1);
    }
}

typedef struct Operand {
    ImageSizes of;
    const uint16_t *x; // [n, inner, c]; NULL: no operand
} Operand;

static const Operand NONE = {{0, 0, 0}, NULL};

// An operation's operands and its result as float32 [n, c, inner].
typedef struct Wide {
    Precision precision;
    ImageSizes sizes; // the result's
    float *a, *b, *c; // NULL: no operand
    float *result;
} Wide;

static float *widened(Precision precision, Operand from) {
    if (!from.x) return NULL;
    float *values = room(count_of(from.of));
    for (size_t i = 0; i < count_of(from.of); i++)
        values[i] = load(precision, &from.x[last(from.of, i)]);
    return values;
}

static Wide widen(Precision precision, ImageSizes result, Operand a, Operand b, Operand c) {
    return (Wide){.precision = precision,
                  .sizes = result,
                  .a = widened(precision, a),
                  .b = widened(precision, b),
                  .c = widened(precision, c),
                  .result = room(count_of(result))};
}

static void discard(const Wide *w) {
    free(w->a);
    free(w->b);
    free(w->c);
    free(w->result);
}

static void finish(const Wide *w, uint16_t *y, bool accumulate) {
    put(w->precision, w->sizes, w->result, y, accumulate);
    discard(w);
}

// dbias (+)= the rounded result, a bias's gradient. dbias may be NULL: not computed.
static void finish_bias(const Wide *w, float *dbias, bool accumulate) {
    host_round(w->precision, w->result, w->result, count_of(w->sizes));
    for (size_t j = 0; dbias && j < count_of(w->sizes); j++)
        ref_put(&dbias[j], (double)w->result[j], accumulate);
    discard(w);
}

static ImageSizes inputs(const Window *v) {
    return (ImageSizes){v->n, v->c, v->h * v->w};
}

static ImageSizes outputs(const Window *v) {
    return (ImageSizes){v->n, v->k, v->oh * v->ow};
}

// ---- elements ---------------------------------------------------------------------------------

static void ref_half_narrow(Precision precision, ImageSizes of, const float *x, uint16_t *y,
                            bool accumulate) {
    put(precision, of, x, y, accumulate);
}

static void ref_half_widen(Precision precision, ImageSizes of, const uint16_t *x, float *y,
                           bool accumulate) {
    for (size_t i = 0; i < count_of(of); i++)
        ref_put(&y[i], (double)load(precision, &x[last(of, i)]), accumulate);
}

static void ref_half_add(Precision precision, uint16_t *y, const uint16_t *a, const uint16_t *b,
                         size_t count) {
    for (size_t i = 0; i < count; i++) {
        float sum = load(precision, &a[i]) + load(precision, &b[i]);
        host_narrow(precision, &y[i], &sum, 1);
    }
}

static void ref_half_add_to(Precision precision, float *y, const float *a, const uint16_t *b,
                            size_t count) {
    for (size_t i = 0; i < count; i++) y[i] = a[i] + load(precision, &b[i]);
}

static void ref_half_activation(HalfActivation f, uint16_t *y, const uint16_t *x, size_t count) {
    for (size_t i = 0; i < count; i++) {
        float value, from = load(f.precision, &x[i]);
        ref_elementwise.activation(f.kind, &value, &from, 1, false);
        host_narrow(f.precision, &y[i], &value, 1);
    }
}

static void ref_half_activation_gradient(HalfActivation f, uint16_t *dx, const uint16_t *saved,
                                         const uint16_t *dy, size_t count, bool accumulate) {
    for (size_t i = 0; i < count; i++) {
        float value = accumulate ? load(f.precision, &dx[i]) : 0;
        float from = load(f.precision, &saved[i]), upstream = load(f.precision, &dy[i]);
        ref_elementwise.activation_gradient(f.kind, &value, &from, &upstream, 1, accumulate);
        host_narrow(f.precision, &dx[i], &value, 1);
    }
}

static void half_relu(Precision precision, uint16_t *y, size_t count) { // in place
    ref_half_activation((HalfActivation){precision, ACTIVATION_RELU}, y, y, count);
}

static const Compute EXACT = {PRECISION_F32, NULL}; // put rounds the result

// ---- rows with a padding ----------------------------------------------------------------------

static void ref_half_narrow_rows(Precision precision, HalfRows of, const float *x, uint16_t *y,
                                 bool accumulate) {
    for (size_t i = 0; i < of.n * of.pitch; i++) {
        float value = 0;
        if (i % of.pitch < of.columns) {
            value = x[i / of.pitch * of.columns + i % of.pitch];
            if (accumulate) value += load(precision, &y[i]);
        }
        host_narrow(precision, &y[i], &value, 1);
    }
}

static void ref_half_widen_rows(Precision precision, HalfRows of, const uint16_t *x, float *y,
                                bool accumulate) {
    for (size_t i = 0; i < of.n * of.columns; i++)
        ref_put(&y[i], (double)load(precision, &x[i / of.columns * of.pitch + i % of.columns]),
                accumulate);
}

// ---- loss -------------------------------------------------------------------------------------

static void ref_half_cross_entropy(const HalfLogits *of, float *loss, int64_t *correct) {
    const Labels labels = of->labels;
    const HalfRows rows = {labels.n, labels.classes, of->pitch};
    const float one = 1;
    float *x = room(labels.n * labels.classes), *p = room(labels.n * labels.classes);
    ref_half_widen_rows(of->precision, rows, of->logits, x, false);
    ref_loss.cross_entropy(labels, x, of->divisor, p, loss);
    ref_loss.count_correct(labels, x, correct);
    ref_loss.cross_entropy_gradient(labels, p, (Upstream){&one, of->divisor}, x, false);
    if (of->gradient) ref_half_narrow_rows(of->precision, rows, x, of->logits, false);
    free(x);
    free(p);
}

// ---- linear -----------------------------------------------------------------------------------

static ImageSizes rows_of(size_t rows, size_t columns) {
    return (ImageSizes){rows, columns, 1};
}

static LinearShape padded(LinearShape s) {
    s.out += s.padding;
    s.padding = 0;
    return s;
}

static void ref_half_narrow_linear(Precision precision, LinearShape s, const float *weight,
                                   const float *bias, uint16_t *narrow) {
    host_narrow(precision, narrow, weight, s.out * s.in);
    for (size_t i = s.out * s.in; i < padded(s).out * s.in; i++) narrow[i] = 0;
    if (bias) host_narrow(precision, narrow + linear_narrow_bias(s), bias, s.out);
}

static size_t ref_half_linear_workspace(Precision precision, LinearShape s) {
    s = padded(s);
    size_t forward = ref_matrix.matmul_workspace(precision, s.rows, s.out, s.in);
    size_t backward = ref_matrix.matmul_workspace(precision, s.out, s.in, s.rows);
    return forward > backward ? forward : backward;
}

static void ref_half_linear(Compute how, LinearShape s, const uint16_t *x, const uint16_t *narrow,
                            const float *bias, uint16_t *y) {
    s = padded(s);
    Wide w = widen(how.precision, rows_of(s.rows, s.out), (Operand){rows_of(s.rows, s.in), x},
                   (Operand){rows_of(s.out, s.in), narrow}, NONE);
    const LinearShape plain = {s.rows, s.out, s.in, NULL, 0};
    ref_matrix.linear(how, plain, w.a, w.b, bias, w.result);
    finish(&w, y, false);
    if (!s.relu) return;
    half_relu(how.precision, y, s.rows * s.out);
    s.relu->y = y;
}

static void ref_half_linear_weight_gradient(Compute how, LinearShape s, const uint16_t *dy,
                                            const uint16_t *x, const LinearGradient *to) {
    Wide w = widen(how.precision, rows_of(1, s.out), (Operand){rows_of(s.rows, padded(s).out), dy},
                   (Operand){rows_of(s.rows, s.in), x}, NONE);
    ref_half_widen_rows(how.precision, (HalfRows){s.rows, s.out, padded(s).out}, dy, w.a, false);
    const LinearGradient places = {to->dweight, w.result, to->add_dweight, false};
    if (how.precision == PRECISION_F16) {
        ref_matrix.linear_weight_gradient(how, s, w.a, w.b, &places);
        finish_bias(&w, to->dbias, to->add_dbias);
    } else {
        ref_matrix.linear_weight_gradient(EXACT, s, w.a, w.b, to);
        discard(&w);
    }
}

static void ref_half_linear_input_gradient(Compute how, LinearShape s, const uint16_t *dy,
                                           const uint16_t *weight, const ReluMask *of, uint16_t *dx,
                                           bool accumulate) {
    s = padded(s);
    Wide w = widen(how.precision, rows_of(s.rows, s.in), (Operand){rows_of(s.rows, s.out), dy},
                   (Operand){rows_of(s.out, s.in), weight}, NONE);
    const MatmulShape shape = {false, false, s.rows, s.in, s.out};
    ref_matrix.matmul(EXACT, shape, w.a, w.b, w.result, false);
    finish(&w, dx, accumulate);
    if (of)
        ref_half_activation_gradient((HalfActivation){how.precision, ACTIVATION_RELU}, dx, of->y,
                                     dx, s.rows * s.in, false);
}

static void ref_half_linear_gelu(Compute how, LinearShape s, const uint16_t *x,
                                 const uint16_t *narrow, const float *bias, HalfGelu to) {
    ref_half_linear(how, s, x, narrow, bias, to.before);
    ref_half_activation((HalfActivation){how.precision, ACTIVATION_GELU}, to.y, to.before,
                        s.rows * s.out);
}

static void ref_half_linear_gelu_gradient(Compute how, LinearShape s, const uint16_t *dy,
                                          const uint16_t *weight, const uint16_t *before,
                                          uint16_t *dbefore) {
    ref_half_linear_input_gradient(how, s, dy, weight, NULL, dbefore, false);
    ref_half_activation_gradient((HalfActivation){how.precision, ACTIVATION_GELU}, dbefore, before,
                                 dbefore, s.rows * s.in, false);
}

// ---- layer norm -------------------------------------------------------------------------------

static void ref_half_layer_norm(Precision precision, const LayerNorm *norm, const uint16_t *branch,
                                float *sum, uint16_t *y) {
    Wide w = widen(precision, rows_of(norm->rows, norm->channels), NONE, NONE, NONE);
    LayerNorm plain = *norm;
    if (branch) {
        ref_half_add_to(precision, sum, norm->x, branch, count_of(w.sizes));
        plain.x = sum;
    }
    ref_transformer.layer_norm(&plain, w.result);
    finish(&w, y, false);
}

static void ref_half_layer_norm_gradient(Precision precision, const LayerNorm *norm,
                                         const uint16_t *dy, const NormGradient *to,
                                         uint16_t *dbranch) {
    const ImageSizes of = rows_of(norm->rows, norm->channels);
    Wide w = widen(precision, of, (Operand){of, dy}, NONE, NONE);
    ref_transformer.layer_norm_gradient(norm, w.a, to);
    if (dbranch) put(precision, of, to->dx, dbranch, false);
    discard(&w);
}

// ---- attention --------------------------------------------------------------------------------

// qkv has three parts of so many channels, y and dy one.
static ImageSizes tokens_of(const Attention *of, size_t parts) {
    return rows_of(of->batch * of->length, parts * of->heads * of->size);
}

static void ref_half_attention(Compute how, const Attention *of, const uint16_t *qkv, uint16_t *y,
                               void *saved) {
    Wide w = widen(how.precision, tokens_of(of, 1), (Operand){tokens_of(of, 3), qkv}, NONE, NONE);
    ref_transformer.attention(how, of, w.a, w.result, saved);
    finish(&w, y, false);
}

static void ref_half_attention_gradient(Compute how, const Attention *of, const uint16_t *qkv,
                                        const uint16_t *y, const void *saved, const uint16_t *dy,
                                        uint16_t *dqkv, bool accumulate) {
    Wide w = widen(how.precision, tokens_of(of, 3), (Operand){tokens_of(of, 3), qkv},
                   (Operand){tokens_of(of, 1), y}, (Operand){tokens_of(of, 1), dy});
    ref_transformer.attention_gradient(how, of, w.a, w.b, saved, w.c, w.result, false);
    finish(&w, dqkv, accumulate);
}

// ---- convolution ------------------------------------------------------------------------------

static ImageSizes taps(const Window *v) {
    return (ImageSizes){v->k, v->c, v->kernel * v->kernel};
}

static void ref_half_conv2d(Compute how, const Window *v, const uint16_t *x, const uint16_t *weight,
                            const float *bias, uint16_t *y) {
    Wide w =
        widen(how.precision, outputs(v), (Operand){inputs(v), x}, (Operand){taps(v), weight}, NONE);
    ref_convolution.conv2d(how, v, w.a, w.b, bias, w.result);
    finish(&w, y, false);
}

static void ref_half_conv2d_input_gradient(Compute how, const Window *v, const uint16_t *weight,
                                           const uint16_t *dy, uint16_t *dx, bool accumulate) {
    Wide w = widen(how.precision, inputs(v), (Operand){taps(v), weight}, (Operand){outputs(v), dy},
                   NONE);
    ref_convolution.conv2d_input_gradient(EXACT, v, w.a, w.b, w.result, false);
    finish(&w, dx, accumulate);
}

static void ref_half_conv2d_weight_gradient(Compute how, const Window *v, const uint16_t *x,
                                            const uint16_t *dy, float *dweight, bool accumulate) {
    Wide w =
        widen(how.precision, NONE.of, (Operand){inputs(v), x}, (Operand){outputs(v), dy}, NONE);
    ref_convolution.conv2d_weight_gradient(how, v, w.a, w.b, dweight, accumulate);
    discard(&w);
}

static void ref_half_conv2d_bias_gradient(Precision precision, const Window *v, const uint16_t *dy,
                                          float *dbias, bool accumulate) {
    Wide w = widen(precision, rows_of(1, v->k), (Operand){outputs(v), dy}, NONE, NONE);
    ref_convolution.conv2d_bias_gradient(v, w.a, w.result, false);
    finish_bias(&w, dbias, accumulate);
}

// ---- windows without weights ------------------------------------------------------------------

static void ref_half_shortcut(Precision precision, const Window *v, const uint16_t *x,
                              uint16_t *y) {
    Wide w = widen(precision, outputs(v), (Operand){inputs(v), x}, NONE, NONE);
    ref_convolution.shortcut(v, w.a, w.result);
    finish(&w, y, false);
}

static void ref_half_shortcut_gradient(Precision precision, const Window *v, const uint16_t *dy,
                                       uint16_t *dx, bool accumulate) {
    Wide w = widen(precision, inputs(v), (Operand){outputs(v), dy}, NONE, NONE);
    ref_convolution.shortcut_gradient(v, w.a, w.result, false);
    finish(&w, dx, accumulate);
}

static void ref_half_max_pool(Precision precision, const Window *v, const uint16_t *x, uint16_t *y,
                              int32_t *chosen) {
    Wide w = widen(precision, outputs(v), (Operand){inputs(v), x}, NONE, NONE);
    int32_t *usual = (void *)room(count_of(w.sizes)); // [n, c, oh, ow]
    ref_convolution.max_pool(v, w.a, w.result, usual);
    for (size_t i = 0; i < count_of(w.sizes); i++) chosen[last(w.sizes, i)] = usual[i];
    finish(&w, y, false);
    free(usual);
}

static void ref_half_max_pool_gradient(Precision precision, const Window *v, const int32_t *chosen,
                                       const uint16_t *dy, uint16_t *dx, bool accumulate) {
    Wide w = widen(precision, inputs(v), (Operand){outputs(v), dy}, NONE, NONE);
    size_t count = count_of(outputs(v));
    int32_t *usual = (void *)room(count);
    for (size_t i = 0; i < count; i++) usual[i] = chosen[last(outputs(v), i)];
    ref_convolution.max_pool_gradient(v, usual, w.a, w.result, false);
    finish(&w, dx, accumulate);
    free(usual);
}

static void ref_half_avg_pool(Precision precision, const Window *v, const uint16_t *x,
                              uint16_t *y) {
    Wide w = widen(precision, outputs(v), (Operand){inputs(v), x}, NONE, NONE);
    ref_convolution.avg_pool(v, w.a, w.result);
    finish(&w, y, false);
}

static void ref_half_avg_pool_gradient(Precision precision, const Window *v, const uint16_t *dy,
                                       uint16_t *dx, bool accumulate) {
    Wide w = widen(precision, inputs(v), (Operand){outputs(v), dy}, NONE, NONE);
    ref_convolution.avg_pool_gradient(v, w.a, w.result, false);
    finish(&w, dx, accumulate);
}

static ImageSizes upsampled(const Window *v) {
    return (ImageSizes){v->n, v->c, 4 * v->h * v->w};
}

static void ref_half_upsample2x(Precision precision, const Window *v, const uint16_t *x,
                                uint16_t *y) {
    Wide w = widen(precision, upsampled(v), (Operand){inputs(v), x}, NONE, NONE);
    ref_pixels.upsample2x(w.a, w.result, v->n * v->c, v->h, v->w);
    finish(&w, y, false);
}

static void ref_half_upsample2x_gradient(Precision precision, const Window *v, const uint16_t *dy,
                                         uint16_t *dx, bool accumulate) {
    Wide w = widen(precision, inputs(v), (Operand){upsampled(v), dy}, NONE, NONE);
    ref_pixels.upsample2x_gradient(w.a, w.result, false, v->n * v->c, v->h, v->w);
    finish(&w, dx, accumulate);
}

// ---- batch norm -------------------------------------------------------------------------------

// Sets *plain to the norm with x and y in float32, of a and b; c is dy.
static Wide widen_norm(Precision precision, const HalfNorm *norm, const uint16_t *dy,
                       BatchNorm *plain) {
    ImageSizes of = {norm->of.n, norm->of.c, norm->of.inner};
    Wide w =
        widen(precision, of, (Operand){of, norm->x}, (Operand){of, norm->y}, (Operand){of, dy});
    *plain = norm->of;
    plain->x = w.a;
    plain->y = w.b;
    return w;
}

static void normalize(Precision precision, const HalfNorm *norm, uint16_t *y,
                      void (*compute)(const BatchNorm *norm, float *y)) {
    BatchNorm plain;
    Wide w = widen_norm(precision, norm, NULL, &plain);
    plain.relu = false;
    compute(&plain, w.result);
    finish(&w, y, false);
    if (!norm->of.relu) return;
    if (norm->residual) ref_half_add(precision, y, y, norm->residual, count_of(w.sizes));
    half_relu(precision, y, count_of(w.sizes));
}

static void ref_half_batch_norm(Precision precision, const HalfNorm *norm, uint16_t *y) {
    normalize(precision, norm, y, ref_norm.batch_norm);
}

static void ref_half_batch_norm_eval(Precision precision, const HalfNorm *norm, uint16_t *y) {
    normalize(precision, norm, y, ref_norm.batch_norm_eval);
}

static void ref_half_batch_norm_gradient(Precision precision, const HalfNorm *norm,
                                         const uint16_t *dy, uint16_t *dx, const NormGradient *to) {
    BatchNorm plain;
    Wide w = widen_norm(precision, norm, dy, &plain);
    NormGradient places = *to;
    places.dx = dx ? w.result : NULL;
    places.add_dx = false;
    ref_norm.batch_norm_gradient(&plain, w.c, &places);
    if (dx) put(precision, w.sizes, w.result, dx, to->add_dx);
    discard(&w);
}

// The functions for several ranks.

static void ref_half_batch_norm_statistics(Precision precision, const HalfNorm *norm) {
    BatchNorm plain;
    Wide w = widen_norm(precision, norm, NULL, &plain);
    ref_norm.batch_norm_statistics(&plain);
    discard(&w);
}

static void ref_half_batch_norm_apply(Precision precision, const HalfNorm *norm, uint16_t *y) {
    normalize(precision, norm, y, ref_norm.batch_norm_apply);
}

static void ref_half_batch_norm_gradient_sums(Precision precision, const HalfNorm *norm,
                                              const uint16_t *dy, float *sums,
                                              const NormGradient *to) {
    BatchNorm plain;
    Wide w = widen_norm(precision, norm, dy, &plain);
    ref_norm.batch_norm_gradient_sums(&plain, w.c, sums, to);
    discard(&w);
}

static void ref_half_batch_norm_gradient_apply(Precision precision, const HalfNorm *norm,
                                               const uint16_t *dy, const float *sums,
                                               const double *count, uint16_t *dx,
                                               const NormGradient *to) {
    BatchNorm plain;
    Wide w = widen_norm(precision, norm, dy, &plain);
    ref_norm.batch_norm_gradient_apply(&plain, w.c, sums, count, &(NormGradient){.dx = w.result});
    finish(&w, dx, to->add_dx);
}

const HalfKernels ref_halves = {
    .narrow = ref_half_narrow,
    .widen = ref_half_widen,
    .narrow_rows = ref_half_narrow_rows,
    .widen_rows = ref_half_widen_rows,
    .add = ref_half_add,
    .add_to = ref_half_add_to,
    .activation = ref_half_activation,
    .activation_gradient = ref_half_activation_gradient,
    .layer_norm = ref_half_layer_norm,
    .layer_norm_gradient = ref_half_layer_norm_gradient,
    .attention = ref_half_attention,
    .attention_gradient = ref_half_attention_gradient,
    .narrow_linear = ref_half_narrow_linear,
    .linear_workspace = ref_half_linear_workspace,
    .linear = ref_half_linear,
    .linear_weight_gradient = ref_half_linear_weight_gradient,
    .linear_input_gradient = ref_half_linear_input_gradient,
    .linear_gelu = ref_half_linear_gelu,
    .linear_gelu_gradient = ref_half_linear_gelu_gradient,
    .cross_entropy = ref_half_cross_entropy,
    .conv2d_workspace = host_conv2d_workspace,
    .conv2d = ref_half_conv2d,
    .conv2d_input_gradient = ref_half_conv2d_input_gradient,
    .conv2d_weight_gradient = ref_half_conv2d_weight_gradient,
    .conv2d_bias_gradient = ref_half_conv2d_bias_gradient,
    .shortcut = ref_half_shortcut,
    .shortcut_gradient = ref_half_shortcut_gradient,
    .max_pool = ref_half_max_pool,
    .max_pool_gradient = ref_half_max_pool_gradient,
    .avg_pool = ref_half_avg_pool,
    .avg_pool_gradient = ref_half_avg_pool_gradient,
    .upsample2x = ref_half_upsample2x,
    .upsample2x_gradient = ref_half_upsample2x_gradient,
    .batch_norm = ref_half_batch_norm,
    .batch_norm_eval = ref_half_batch_norm_eval,
    .batch_norm_gradient = ref_half_batch_norm_gradient,
    .batch_norm_statistics = ref_half_batch_norm_statistics,
    .batch_norm_apply = ref_half_batch_norm_apply,
    .batch_norm_gradient_sums = ref_half_batch_norm_gradient_sums,
    .batch_norm_gradient_apply = ref_half_batch_norm_gradient_apply,
};
