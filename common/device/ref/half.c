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

// x as float32 [n, c, inner], to be freed.
static float *wide(Precision precision, ImageSizes of, const uint16_t *x) {
    float *values = room(count_of(of));
    for (size_t i = 0; i < count_of(of); i++) values[i] = load(precision, &x[last(of, i)]);
    return values;
}

// Rounds values [n, c, inner], which are freed, to their place in y.
static void put(Precision precision, ImageSizes of, float *values, uint16_t *y, bool accumulate) {
    for (size_t i = 0; i < count_of(of); i++) {
        uint16_t *place = &y[last(of, i)];
        if (accumulate) values[i] += load(precision, place);
        host_narrow(precision, place, &values[i], 1);
    }
    free(values);
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
    float *values = room(count_of(of));
    for (size_t i = 0; i < count_of(of); i++) values[i] = x[i];
    put(precision, of, values, y, accumulate);
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

// ---- linear -----------------------------------------------------------------------------------

static ImageSizes rows_of(size_t rows, size_t columns) {
    return (ImageSizes){rows, columns, 1};
}

static void ref_half_narrow_linear(Precision precision, LinearShape s, const float *weight,
                                   const float *bias, uint16_t *narrow) {
    host_narrow(precision, narrow, weight, s.out * s.in);
    if (bias) host_narrow(precision, narrow + linear_narrow_bias(s), bias, s.out);
}

static size_t ref_half_linear_workspace(Precision precision, LinearShape s) {
    size_t forward = ref_matrix.matmul_workspace(precision, s.rows, s.out, s.in);
    size_t backward = ref_matrix.matmul_workspace(precision, s.out, s.in, s.rows);
    return forward > backward ? forward : backward;
}

static void ref_half_linear(Compute how, LinearShape s, const uint16_t *x, const uint16_t *narrow,
                            const float *bias, uint16_t *y) {
    const LinearShape plain = {s.rows, s.out, s.in, NULL};
    ImageSizes outputs = rows_of(s.rows, s.out);
    float *wide_x = wide(how.precision, rows_of(s.rows, s.in), x);
    float *w = wide(how.precision, rows_of(s.out, s.in), narrow), *result = room(count_of(outputs));
    ref_matrix.linear(how, plain, wide_x, w, bias, result);
    put(how.precision, outputs, result, y, false);
    free(wide_x);
    free(w);
    if (!s.relu) return;
    half_relu(how.precision, y, count_of(outputs));
    s.relu->y = y;
}

static void ref_half_linear_weight_gradient(Compute how, LinearShape s, const uint16_t *dy,
                                            const uint16_t *x, const LinearGradient *to) {
    float *wide_x = wide(how.precision, rows_of(s.rows, s.in), x);
    float *wide_dy = wide(how.precision, rows_of(s.rows, s.out), dy), *sums = room(s.out);
    const LinearGradient places = {to->dweight, sums, to->add_dweight, false};
    ref_matrix.linear_weight_gradient(how, s, wide_dy, wide_x, &places);
    host_round(how.precision, sums, sums, s.out);
    for (size_t j = 0; to->dbias && j < s.out; j++)
        ref_put(&to->dbias[j], (double)sums[j], to->add_dbias);
    free(wide_x);
    free(wide_dy);
    free(sums);
}

static void ref_half_linear_input_gradient(Compute how, LinearShape s, const uint16_t *dy,
                                           const uint16_t *weight, const ReluMask *of, uint16_t *dx,
                                           bool accumulate) {
    ImageSizes inputs = rows_of(s.rows, s.in);
    float *wide_dy = wide(how.precision, rows_of(s.rows, s.out), dy);
    float *w = wide(how.precision, rows_of(s.out, s.in), weight), *result = room(count_of(inputs));
    ref_matrix.matmul(EXACT, (MatmulShape){false, false, s.rows, s.in, s.out}, wide_dy, w, result,
                      false);
    put(how.precision, inputs, result, dx, accumulate);
    if (of)
        ref_half_activation_gradient((HalfActivation){how.precision, ACTIVATION_RELU}, dx, of->y,
                                     dx, count_of(inputs), false);
    free(wide_dy);
    free(w);
}

// ---- attention --------------------------------------------------------------------------------

// qkv has three parts of so many channels, y and dy one.
static ImageSizes tokens_of(const Attention *of, size_t parts) {
    return rows_of(of->batch * of->length, parts * of->heads * of->size);
}

static void ref_half_attention(Compute how, const Attention *of, const uint16_t *qkv, uint16_t *y,
                               void *saved) {
    float *x = wide(how.precision, tokens_of(of, 3), qkv),
          *result = room(count_of(tokens_of(of, 1)));
    ref_transformer.attention(how, of, x, result, saved);
    put(how.precision, tokens_of(of, 1), result, y, false);
    free(x);
}

static void ref_half_attention_gradient(Compute how, const Attention *of, const uint16_t *qkv,
                                        const uint16_t *y, const void *saved, const uint16_t *dy,
                                        uint16_t *dqkv, bool accumulate) {
    ImageSizes inputs = tokens_of(of, 3), outputs = tokens_of(of, 1);
    float *x = wide(how.precision, inputs, qkv), *wide_y = wide(how.precision, outputs, y);
    float *wide_dy = wide(how.precision, outputs, dy), *result = room(count_of(inputs));
    ref_transformer.attention_gradient(how, of, x, wide_y, saved, wide_dy, result, false);
    put(how.precision, inputs, result, dqkv, accumulate);
    free(x);
    free(wide_y);
    free(wide_dy);
}

// ---- convolution ------------------------------------------------------------------------------

static ImageSizes taps(const Window *v) {
    return (ImageSizes){v->k, v->c, v->kernel * v->kernel};
}

static void ref_half_conv2d(Compute how, const Window *v, const uint16_t *x, const uint16_t *weight,
                            const float *bias, uint16_t *y) {
    float *wide_x = wide(how.precision, inputs(v), x), *w = wide(how.precision, taps(v), weight);
    float *result = room(count_of(outputs(v)));
    ref_convolution.conv2d(how, v, wide_x, w, bias, result);
    put(how.precision, outputs(v), result, y, false);
    free(wide_x);
    free(w);
}

static void ref_half_conv2d_input_gradient(Compute how, const Window *v, const uint16_t *weight,
                                           const uint16_t *dy, uint16_t *dx, bool accumulate) {
    float *w = wide(how.precision, taps(v), weight), *wide_dy = wide(how.precision, outputs(v), dy);
    float *result = room(count_of(inputs(v)));
    ref_convolution.conv2d_input_gradient(EXACT, v, w, wide_dy, result, false);
    put(how.precision, inputs(v), result, dx, accumulate);
    free(w);
    free(wide_dy);
}

static void ref_half_conv2d_weight_gradient(Compute how, const Window *v, const uint16_t *x,
                                            const uint16_t *dy, float *dweight, bool accumulate) {
    float *wide_x = wide(how.precision, inputs(v), x),
          *wide_dy = wide(how.precision, outputs(v), dy);
    ref_convolution.conv2d_weight_gradient(how, v, wide_x, wide_dy, dweight, accumulate);
    free(wide_x);
    free(wide_dy);
}

static void ref_half_conv2d_bias_gradient(Precision precision, const Window *v, const uint16_t *dy,
                                          float *dbias, bool accumulate) {
    float *wide_dy = wide(precision, outputs(v), dy), *sums = room(v->k);
    ref_convolution.conv2d_bias_gradient(v, wide_dy, sums, false);
    host_round(precision, sums, sums, v->k);
    for (size_t k = 0; k < v->k; k++) ref_put(&dbias[k], (double)sums[k], accumulate);
    free(wide_dy);
    free(sums);
}

// ---- windows without weights ------------------------------------------------------------------

static void ref_half_shortcut(Precision precision, const Window *v, const uint16_t *x,
                              uint16_t *y) {
    float *wide_x = wide(precision, inputs(v), x), *result = room(count_of(outputs(v)));
    ref_convolution.shortcut(v, wide_x, result);
    put(precision, outputs(v), result, y, false);
    free(wide_x);
}

static void ref_half_shortcut_gradient(Precision precision, const Window *v, const uint16_t *dy,
                                       uint16_t *dx, bool accumulate) {
    float *wide_dy = wide(precision, outputs(v), dy), *result = room(count_of(inputs(v)));
    ref_convolution.shortcut_gradient(v, wide_dy, result, false);
    put(precision, inputs(v), result, dx, accumulate);
    free(wide_dy);
}

static void ref_half_max_pool(Precision precision, const Window *v, const uint16_t *x, uint16_t *y,
                              int32_t *chosen) {
    ImageSizes of = outputs(v);
    float *wide_x = wide(precision, inputs(v), x), *result = room(count_of(of));
    int32_t *usual = memory_zalloc((count_of(of) + 1) * sizeof *usual); // [n, c, oh, ow]
    ref_convolution.max_pool(v, wide_x, result, usual);
    for (size_t i = 0; i < count_of(of); i++) chosen[last(of, i)] = usual[i];
    put(precision, of, result, y, false);
    free(wide_x);
    free(usual);
}

static void ref_half_max_pool_gradient(Precision precision, const Window *v, const int32_t *chosen,
                                       const uint16_t *dy, uint16_t *dx, bool accumulate) {
    ImageSizes of = outputs(v);
    float *wide_dy = wide(precision, of, dy), *result = room(count_of(inputs(v)));
    int32_t *usual = memory_zalloc((count_of(of) + 1) * sizeof *usual);
    for (size_t i = 0; i < count_of(of); i++) usual[i] = chosen[last(of, i)];
    ref_convolution.max_pool_gradient(v, usual, wide_dy, result, false);
    put(precision, inputs(v), result, dx, accumulate);
    free(wide_dy);
    free(usual);
}

static void ref_half_avg_pool(Precision precision, const Window *v, const uint16_t *x,
                              uint16_t *y) {
    float *wide_x = wide(precision, inputs(v), x), *result = room(count_of(outputs(v)));
    ref_convolution.avg_pool(v, wide_x, result);
    put(precision, outputs(v), result, y, false);
    free(wide_x);
}

static void ref_half_avg_pool_gradient(Precision precision, const Window *v, const uint16_t *dy,
                                       uint16_t *dx, bool accumulate) {
    float *wide_dy = wide(precision, outputs(v), dy), *result = room(count_of(inputs(v)));
    ref_convolution.avg_pool_gradient(v, wide_dy, result, false);
    put(precision, inputs(v), result, dx, accumulate);
    free(wide_dy);
}

static ImageSizes upsampled(const Window *v) {
    return (ImageSizes){v->n, v->c, 4 * v->h * v->w};
}

static void ref_half_upsample2x(Precision precision, const Window *v, const uint16_t *x,
                                uint16_t *y) {
    float *wide_x = wide(precision, inputs(v), x), *result = room(count_of(upsampled(v)));
    ref_pixels.upsample2x(wide_x, result, v->n * v->c, v->h, v->w);
    put(precision, upsampled(v), result, y, false);
    free(wide_x);
}

static void ref_half_upsample2x_gradient(Precision precision, const Window *v, const uint16_t *dy,
                                         uint16_t *dx, bool accumulate) {
    float *wide_dy = wide(precision, upsampled(v), dy), *result = room(count_of(inputs(v)));
    ref_pixels.upsample2x_gradient(wide_dy, result, false, v->n * v->c, v->h, v->w);
    put(precision, inputs(v), result, dx, accumulate);
    free(wide_dy);
}

// ---- batch norm -------------------------------------------------------------------------------

static ImageSizes images_of(const HalfNorm *norm) {
    return (ImageSizes){norm->of.n, norm->of.c, norm->of.inner};
}

static void normalize(Precision precision, const HalfNorm *norm, uint16_t *y,
                      void (*compute)(const BatchNorm *norm, float *y)) {
    ImageSizes of = images_of(norm);
    size_t count = count_of(of);
    float *x = wide(precision, of, norm->x), *result = room(count);
    BatchNorm plain = norm->of;
    plain.x = x;
    plain.relu = false;
    compute(&plain, result);
    put(precision, of, result, y, false);
    if (norm->of.relu && norm->residual) ref_half_add(precision, y, y, norm->residual, count);
    if (norm->of.relu) half_relu(precision, y, count);
    free(x);
}

static void ref_half_batch_norm(Precision precision, const HalfNorm *norm, uint16_t *y) {
    normalize(precision, norm, y, ref_norm.batch_norm);
}

static void ref_half_batch_norm_eval(Precision precision, const HalfNorm *norm, uint16_t *y) {
    normalize(precision, norm, y, ref_norm.batch_norm_eval);
}

static void ref_half_batch_norm_gradient(Precision precision, const HalfNorm *norm,
                                         const uint16_t *dy, uint16_t *dx, const NormGradient *to) {
    ImageSizes of = images_of(norm);
    float *x = wide(precision, of, norm->x), *wide_dy = wide(precision, of, dy);
    float *y = norm->of.relu ? wide(precision, of, norm->y) : NULL;
    float *result = dx ? room(count_of(of)) : NULL;
    BatchNorm plain = norm->of;
    plain.x = x;
    plain.y = y;
    NormGradient places = *to;
    places.dx = result;
    places.add_dx = false;
    ref_norm.batch_norm_gradient(&plain, wide_dy, &places);
    if (result) put(precision, of, result, dx, to->add_dx);
    free(x);
    free(wide_dy);
    free(y);
}

// What follows are the steps over several ranks.

static void ref_half_batch_norm_statistics(Precision precision, const HalfNorm *norm) {
    BatchNorm plain = norm->of;
    float *x = wide(precision, images_of(norm), norm->x);
    plain.x = x;
    ref_norm.batch_norm_statistics(&plain);
    free(x);
}

static void ref_half_batch_norm_apply(Precision precision, const HalfNorm *norm, uint16_t *y) {
    normalize(precision, norm, y, ref_norm.batch_norm_apply);
}

static void ref_half_batch_norm_gradient_sums(Precision precision, const HalfNorm *norm,
                                              const uint16_t *dy, float *sums,
                                              const NormGradient *to) {
    BatchNorm plain = norm->of;
    float *x = wide(precision, images_of(norm), norm->x);
    float *wide_dy = wide(precision, images_of(norm), dy);
    plain.x = x;
    ref_norm.batch_norm_gradient_sums(&plain, wide_dy, sums, to);
    free(x);
    free(wide_dy);
}

static void ref_half_batch_norm_gradient_apply(Precision precision, const HalfNorm *norm,
                                               const uint16_t *dy, const float *sums,
                                               const double *count, uint16_t *dx,
                                               const NormGradient *to) {
    ImageSizes of = images_of(norm);
    BatchNorm plain = norm->of;
    float *x = wide(precision, of, norm->x), *wide_dy = wide(precision, of, dy);
    float *result = room(count_of(of));
    plain.x = x;
    ref_norm.batch_norm_gradient_apply(&plain, wide_dy, sums, count, &(NormGradient){.dx = result});
    put(precision, of, result, dx, to->add_dx);
    free(x);
    free(wide_dy);
}

const HalfKernels ref_halves = {
    .narrow = ref_half_narrow,
    .widen = ref_half_widen,
    .add = ref_half_add,
    .add_to = ref_half_add_to,
    .activation = ref_half_activation,
    .activation_gradient = ref_half_activation_gradient,
    .attention = ref_half_attention,
    .attention_gradient = ref_half_attention_gradient,
    .narrow_linear = ref_half_narrow_linear,
    .linear_workspace = ref_half_linear_workspace,
    .linear = ref_half_linear,
    .linear_weight_gradient = ref_half_linear_weight_gradient,
    .linear_input_gradient = ref_half_linear_input_gradient,
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
