/* kernel_times.c: the kernels of a training step in float32 are wrapped: each wrapper times the
 * device's own kernel and knows its bytes and operations. */
#include "bench/kernel_times.h"

#include <stdlib.h>
#include <string.h>

#include "bench/workload.h"
#include "common/base/clock.h"
#include "common/base/memory.h"

enum { FLOAT = 4, KERNELS_MAX = 48, PROBE_FLOATS = 4 << 20, PROBE_WIDTH = 512 };

typedef struct KernelTime {
    const char *name;
    size_t calls;         // in all rounds
    double bytes, flops;  // in all rounds
    double now, *seconds; // in this round; [rounds]
} KernelTime;

struct KernelTimes {
    Device *device;
    const Kernels *own; // the device's
    Kernels kernels;
    ElementwiseKernels elementwise;
    MatrixKernels matrix;
    ConvolutionKernels convolution;
    NormKernels norm;
    LossKernels loss;
    PixelKernels pixels;
    TransformerKernels transformer;
    OptimizerKernels optimizer;
    KernelTime list[KERNELS_MAX];
    size_t count, round, rounds;
    double *step, *bytes_rate, *flops_rate; // [rounds]: seconds; per second
    float *probe;                           // [3, PROBE_FLOATS]
};

// Kernel functions have no parameter for their device (kernels.h), so the times are found here.
static KernelTimes *timing;

typedef struct Cost {
    double bytes, flops;
} Cost;

static void note(const char *name, uint64_t start_ns, Cost cost) {
    const double seconds = (double)(clock_ns() - start_ns) / 1e9;
    KernelTimes *t = timing;
    size_t i = 0;
    while (i < t->count && strcmp(t->list[i].name, name) != 0) i++;
    if (i == t->count) {
        CHECK(i < KERNELS_MAX, "more than %d kernels", KERNELS_MAX);
        t->list[t->count++] =
            (KernelTime){.name = name, .seconds = memory_zalloc(t->rounds * sizeof(double))};
    }
    t->list[i].calls++;
    t->list[i].bytes += cost.bytes;
    t->list[i].flops += cost.flops;
    t->list[i].now += seconds;
}

// The wrapper of one kernel: its parameters, their names, and its cost.
// (PARAMETERS and ARGUMENTS have parentheses of their own.) NOLINTBEGIN(bugprone-macro-parentheses)
#define TIMED(FAMILY, NAME, PARAMETERS, ARGUMENTS, ...) \
    static void NAME PARAMETERS {                       \
        const uint64_t start_ns = clock_ns();           \
        timing->own->FAMILY->NAME ARGUMENTS;            \
        note(#NAME, start_ns, (Cost){__VA_ARGS__});     \
    }
// NOLINTEND(bugprone-macro-parentheses)

// Bytes of `times` passes over `count` floats.
static double floats(double times, size_t count) {
    return times * FLOAT * (double)count;
}

static double added(bool accumulate) { // passes over an output
    return accumulate ? 2 : 1;
}

// ---- elementwise and products ------------------------------------------------------------------

// Vector operations of an exponential (cpu/exponential.h, compiled for AVX-512).
enum { EXPONENTIAL = 32 };

// Counts `each` vector operations per number as the floating-point operations that sgemm does in
// the same time: they are not fused, and each takes the time of a multiply-add.
static double operations(double each, size_t count) {
    return 2 * each * (double)count;
}

TIMED(elementwise, fill, (float *y, float value, size_t count), (y, value, count), floats(1, count),
      0)
TIMED(elementwise, add, (float *y, const float *a, const float *b, size_t count), (y, a, b, count),
      floats(3, count), 0)
TIMED(elementwise, accumulate, (float *y, const float *x, size_t count), (y, x, count),
      floats(3, count), 0)
TIMED(elementwise, activation, (Activation f, float *y, float *x, size_t count, bool save),
      (f, y, x, count, save), floats(f == ACTIVATION_GELU && save ? 3 : 2, count),
      f == ACTIVATION_GELU ? operations(EXPONENTIAL + (save ? 16 : 8), count) : 0)
TIMED(elementwise, activation_gradient,
      (Activation f, float *dx, const float *saved, const float *dy, size_t count, bool accumulate),
      (f, dx, saved, dy, count, accumulate), floats(2 + added(accumulate), count), 0)

static double product_bytes(size_t m, size_t n, size_t k, bool accumulate) {
    return floats(1, m * k + k * n) + floats(added(accumulate), m * n);
}

static double product_flops(size_t m, size_t n, size_t k) {
    return 2 * (double)(m * n) * (double)k;
}

TIMED(matrix, matmul,
      (Compute how, MatmulShape s, const float *a, const float *b, float *c, bool accumulate),
      (how, s, a, b, c, accumulate), product_bytes(s.m, s.n, s.k, accumulate),
      product_flops(s.m, s.n, s.k))
TIMED(matrix, linear,
      (Compute how, LinearShape s, const float *x, const float *weight, const float *bias,
       float *y),
      (how, s, x, weight, bias, y), product_bytes(s.rows, s.out, s.in, false),
      product_flops(s.rows, s.out, s.in))
TIMED(matrix, linear_weight_gradient,
      (Compute how, LinearShape s, const float *dy, const float *x, const LinearGradient *to),
      (how, s, dy, x, to), product_bytes(s.out, s.in, s.rows, to->add_dweight),
      product_flops(s.out, s.in, s.rows))
TIMED(matrix, linear_relu_gradient,
      (Compute how, LinearShape s, const float *dy, const float *weight, const ReluMask *of,
       float *dx),
      (how, s, dy, weight, of, dx),
      product_bytes(s.rows, s.in, s.out, false) + floats(1, s.rows *s.in),
      product_flops(s.rows, s.in, s.out))

// ---- windows -----------------------------------------------------------------------------------

static size_t inputs(const Window *v) {
    return v->n * v->c * v->h * v->w;
}

static size_t outputs(const Window *v) {
    return v->n * v->k * v->oh * v->ow;
}

static size_t seen(const Window *v) { // by the shortcut
    return v->n * v->c * v->oh * v->ow;
}

static size_t weights(const Window *v) {
    return v->k * v->c * v->kernel * v->kernel;
}

static double convolution_flops(const Window *v) {
    return 2 * (double)outputs(v) * (double)(v->c * v->kernel * v->kernel);
}

TIMED(convolution, conv2d,
      (Compute how, const Window *v, const float *x, const float *weight, const float *bias,
       float *y),
      (how, v, x, weight, bias, y), floats(1, inputs(v) + weights(v) + outputs(v)),
      convolution_flops(v))
TIMED(convolution, conv2d_input_gradient,
      (Compute how, const Window *v, const float *weight, const float *dy, float *dx,
       bool accumulate),
      (how, v, weight, dy, dx, accumulate),
      floats(1, weights(v) + outputs(v)) + floats(added(accumulate), inputs(v)),
      convolution_flops(v))
TIMED(convolution, conv2d_weight_gradient,
      (Compute how, const Window *v, const float *x, const float *dy, float *dweight,
       bool accumulate),
      (how, v, x, dy, dweight, accumulate), floats(1, inputs(v) + outputs(v) + weights(v)),
      convolution_flops(v))
TIMED(convolution, conv2d_bias_gradient,
      (const Window *v, const float *dy, float *dbias, bool accumulate), (v, dy, dbias, accumulate),
      floats(1, outputs(v)), 0)
TIMED(convolution, shortcut, (const Window *v, const float *x, float *y), (v, x, y),
      floats(1, seen(v) + outputs(v)), 0)
TIMED(convolution, shortcut_gradient,
      (const Window *v, const float *dy, float *dx, bool accumulate), (v, dy, dx, accumulate),
      floats(1, seen(v)) + floats(accumulate ? 2 : 1, accumulate ? seen(v) : inputs(v)), 0)
TIMED(convolution, max_pool, (const Window *v, const float *x, float *y, int32_t *chosen),
      (v, x, y, chosen), floats(1, inputs(v)) + floats(2, outputs(v)), 0)
TIMED(convolution, max_pool_gradient,
      (const Window *v, const int32_t *chosen, const float *dy, float *dx, bool accumulate),
      (v, chosen, dy, dx, accumulate), floats(2, outputs(v)) + floats(added(accumulate), inputs(v)),
      0)
TIMED(convolution, avg_pool, (const Window *v, const float *x, float *y), (v, x, y),
      floats(1, inputs(v) + outputs(v)), 0)
TIMED(convolution, avg_pool_gradient,
      (const Window *v, const float *dy, float *dx, bool accumulate), (v, dy, dx, accumulate),
      floats(1, outputs(v)) + floats(added(accumulate), inputs(v)), 0)

// ---- norms, loss, transformers -----------------------------------------------------------------

static size_t normed(const BatchNorm *norm) {
    return norm->n * norm->c * norm->inner;
}

// x is read for the statistics, and again; x and dy for the sums, and again.
TIMED(norm, batch_norm, (const BatchNorm *norm, float *y), (norm, y),
      floats(norm->residual ? 4 : 3, normed(norm)), 0)
TIMED(norm, batch_norm_gradient, (const BatchNorm *norm, float *dy, const NormGradient *to),
      (norm, dy, to),
      floats(4 + (norm->relu ? 1 : 0) + (to->dx ? added(to->add_dx) : 0), normed(norm)), 0)
// The operations of a softmax per logit: maximum, difference, exponential, and in double a sum and
// a multiplication. A row is padded to whole vectors.
enum { SOFTMAX = 1 + 1 + EXPONENTIAL + 4 + 6, WIDEST = 16 };

static size_t row_lanes(const Labels *labels) {
    return labels->n * ((labels->classes + WIDEST - 1) / WIDEST * WIDEST);
}

TIMED(loss, cross_entropy,
      (Labels labels, const float *logits, double divisor, float *probabilities, float *loss),
      (labels, logits, divisor, probabilities, loss), floats(2, labels.n *labels.classes),
      operations(SOFTMAX, row_lanes(&labels)))
TIMED(loss, cross_entropy_gradient,
      (Labels labels, const float *probabilities, Upstream upstream, float *dlogits,
       bool accumulate),
      (labels, probabilities, upstream, dlogits, accumulate),
      floats(1 + added(accumulate), labels.n *labels.classes), 0)

static size_t logits_of(const PixelLabels *labels) {
    return labels->n * labels->classes * labels->inner;
}

TIMED(pixels, upsample2x, (const float *x, float *y, size_t planes, size_t h, size_t w),
      (x, y, planes, h, w), floats(5, planes *h *w), 0)
TIMED(pixels, upsample2x_gradient,
      (const float *dy, float *dx, bool accumulate, size_t planes, size_t h, size_t w),
      (dy, dx, accumulate, planes, h, w), floats(4 + added(accumulate), planes *h *w), 0)
// The largest, a difference, the exponential, a sum and a quotient, all in float.
TIMED(pixels, pixel_cross_entropy,
      (PixelLabels labels, const float *logits, float *probabilities, float *losses),
      (labels, logits, probabilities, losses),
      floats(2, logits_of(&labels)) + floats(3, labels.n *labels.inner),
      operations(EXPONENTIAL + 4, logits_of(&labels)))
TIMED(pixels, hard_pixels, (const HardPixels *of, uint8_t *kept, int64_t *kept_count, float *sum),
      (of, kept, kept_count, sum), floats(3.25, of->count), 0)
TIMED(pixels, pixel_cross_entropy_gradient,
      (PixelLabels labels, const float *probabilities, const uint8_t *kept, const float *upstream,
       float *dlogits, bool accumulate),
      (labels, probabilities, kept, upstream, dlogits, accumulate),
      floats(1 + added(accumulate), logits_of(&labels)) + floats(2.25, labels.n *labels.inner), 0)

TIMED(transformer, embedding, (const Embedding *of, const float *wte, const float *wpe, float *y),
      (of, wte, wpe, y), floats(2, of->rows * of->channels), 0)
TIMED(transformer, embedding_gradient,
      (const Embedding *of, const float *dy, float *dwte, bool accumulate, void *workspace),
      (of, dy, dwte, accumulate, workspace),
      floats(1, of->rows * of->channels) + floats(added(accumulate), of->vocabulary * of->channels),
      0)
TIMED(transformer, position_gradient,
      (const Embedding *of, const float *dy, float *dwpe, bool accumulate),
      (of, dy, dwpe, accumulate), floats(1, of->rows * of->channels), 0)
TIMED(transformer, layer_norm, (const LayerNorm *norm, float *y), (norm, y),
      floats(2, norm->rows * norm->channels), 0)
TIMED(transformer, layer_norm_gradient,
      (const LayerNorm *norm, const float *dy, const NormGradient *to), (norm, dy, to),
      floats(2 + added(to->add_dx), norm->rows * norm->channels), 0)

// Products of a query and a key, or of a weight and a value, and `each` vector operations, for each
// pair of tokens.
static double pairs_flops(const Attention *of, double products, double each) {
    const size_t pairs = of->batch * of->heads * of->length * (of->length + 1) / 2;
    return products * 2 * (double)(pairs * of->size) + operations(each, pairs);
}

static size_t pairs_saved(const Attention *of) {
    return of->batch * of->heads * of->length * of->length;
}

static size_t attended(const Attention *of) {
    return of->batch * of->length * of->heads * of->size;
}

TIMED(transformer, attention,
      (Compute how, const Attention *of, const float *qkv, float *y, void *saved),
      (how, of, qkv, y, saved), floats(4, attended(of)) + floats(0.5, pairs_saved(of)),
      pairs_flops(of, 2, EXPONENTIAL + 5))
TIMED(transformer, attention_gradient,
      (Compute how, const Attention *of, const float *qkv, const float *y, const void *saved,
       const float *dy, float *dqkv, bool accumulate),
      (how, of, qkv, y, saved, dy, dqkv, accumulate),
      floats(4 + 3 * added(accumulate), attended(of)) + floats(0.5, pairs_saved(of)),
      pairs_flops(of, 4, 5))

static double sgd_bytes(const SgdTensor *tensors, size_t count) {
    double bytes = 0;
    for (size_t i = 0; i < count; i++)
        bytes += floats(tensors[i].velocity ? 5 : 3, tensors[i].count);
    return bytes;
}

static double adam_bytes(const AdamTensor *tensors, size_t count) {
    double bytes = 0;
    for (size_t i = 0; i < count; i++) bytes += floats(7, tensors[i].count);
    return bytes;
}

TIMED(optimizer, sgd,
      (const SgdConfig *config, const SgdTensor *tensors, size_t count, const OptimizerPeer *peer),
      (config, tensors, count, peer), sgd_bytes(tensors, count), 0)
TIMED(optimizer, adam,
      (const AdamConfig *config, const AdamTensor *tensors, size_t count,
       const OptimizerPeer *peer),
      (config, tensors, count, peer), adam_bytes(tensors, count), 0)

// ---- the tables --------------------------------------------------------------------------------

#define FAMILY(name) t->name = *t->own->name, t->kernels.name = &t->name

static void fill_tables(KernelTimes *t) {
    FAMILY(elementwise), FAMILY(matrix), FAMILY(convolution), FAMILY(norm), FAMILY(loss);
    FAMILY(pixels), FAMILY(transformer), FAMILY(optimizer);
    t->elementwise.fill = fill, t->elementwise.add = add, t->elementwise.accumulate = accumulate;
    t->elementwise.activation = activation;
    t->elementwise.activation_gradient = activation_gradient;
    t->matrix.matmul = matmul, t->matrix.linear = linear;
    t->matrix.linear_weight_gradient = linear_weight_gradient;
    t->matrix.linear_relu_gradient = linear_relu_gradient;
    t->convolution.conv2d = conv2d;
    t->convolution.conv2d_input_gradient = conv2d_input_gradient;
    t->convolution.conv2d_weight_gradient = conv2d_weight_gradient;
    t->convolution.conv2d_bias_gradient = conv2d_bias_gradient;
    t->convolution.shortcut = shortcut, t->convolution.shortcut_gradient = shortcut_gradient;
    t->convolution.max_pool = max_pool, t->convolution.max_pool_gradient = max_pool_gradient;
    t->convolution.avg_pool = avg_pool, t->convolution.avg_pool_gradient = avg_pool_gradient;
    t->norm.batch_norm = batch_norm, t->norm.batch_norm_gradient = batch_norm_gradient;
    t->loss.cross_entropy = cross_entropy;
    t->loss.cross_entropy_gradient = cross_entropy_gradient;
    t->pixels.upsample2x = upsample2x, t->pixels.upsample2x_gradient = upsample2x_gradient;
    t->pixels.pixel_cross_entropy = pixel_cross_entropy, t->pixels.hard_pixels = hard_pixels;
    t->pixels.pixel_cross_entropy_gradient = pixel_cross_entropy_gradient;
    t->transformer.embedding = embedding;
    t->transformer.embedding_gradient = embedding_gradient;
    t->transformer.position_gradient = position_gradient;
    t->transformer.layer_norm = layer_norm;
    t->transformer.layer_norm_gradient = layer_norm_gradient;
    t->transformer.attention = attention;
    t->transformer.attention_gradient = attention_gradient;
    t->optimizer.sgd = sgd, t->optimizer.adam = adam;
}

KernelTimes *kernel_times_open(Device *device, size_t rounds) {
    CHECK(device_is_cpu(device) && !timing, "%s: its kernels are not timed", device->name);
    KernelTimes *t = timing = memory_zalloc(sizeof *t);
    t->device = device;
    t->own = device->kernels;
    t->rounds = rounds;
    t->kernels = *device->kernels;
    fill_tables(t);
    t->step = memory_zalloc(rounds * sizeof *t->step);
    t->bytes_rate = memory_zalloc(rounds * sizeof *t->bytes_rate);
    t->flops_rate = memory_zalloc(rounds * sizeof *t->flops_rate);
    t->probe = memory_zalloc(3 * (size_t)PROBE_FLOATS * sizeof *t->probe);
    for (size_t i = 0; i < 3 * (size_t)PROBE_FLOATS; i++) t->probe[i] = 1;
    device->kernels = &t->kernels;
    return t;
}

void kernel_times_close(KernelTimes *t) {
    if (!t) return;
    t->device->kernels = t->own;
    kernel_times_clear(t);
    free(t->step);
    free(t->bytes_rate);
    free(t->flops_rate);
    free(t->probe);
    timing = NULL;
    free(t);
}

// ---- rounds ------------------------------------------------------------------------------------

void kernel_times_clear(KernelTimes *t) {
    for (size_t i = 0; i < t->count; i++) free(t->list[i].seconds);
    t->count = t->round = 0;
}

static double seconds_since(uint64_t start_ns) {
    return (double)(clock_ns() - start_ns) / 1e9;
}

void kernel_times_round(KernelTimes *t, double step_seconds) {
    CHECK(t->round < t->rounds, "more than %zu rounds", t->rounds);
    for (size_t i = 0; i < t->count; i++) {
        t->list[i].seconds[t->round] = t->list[i].now;
        t->list[i].now = 0;
    }
    t->step[t->round] = step_seconds;
    float *sum = t->probe, *x = sum + PROBE_FLOATS, *y = x + PROBE_FLOATS;
    const MatmulShape square = {false, false, PROBE_WIDTH, PROBE_WIDTH, PROBE_WIDTH};
    double memory = 0, sgemm = 0;
    for (int i = 0; i < 3; i++) { // the best of three
        uint64_t start = clock_ns();
        t->own->elementwise->add(sum, x, y, PROBE_FLOATS);
        double rate = floats(3, PROBE_FLOATS) / seconds_since(start);
        if (rate > memory) memory = rate;
        start = clock_ns();
        t->own->matrix->matmul((Compute){PRECISION_F32, NULL}, square, x, y, sum, false);
        rate = 2.0 * PROBE_WIDTH * PROBE_WIDTH * PROBE_WIDTH / seconds_since(start);
        if (rate > sgemm) sgemm = rate;
    }
    t->bytes_rate[t->round] = memory;
    t->flops_rate[t->round++] = sgemm;
}

static int slower_first(const void *a, const void *b) {
    double x = ((const KernelTime *)a)->now, y = ((const KernelTime *)b)->now;
    return (x < y) - (x > y);
}

static void print_kernel(const KernelTime *k, double rounds, double step, Cost rate) {
    const double bytes = k->bytes / rounds, operations = k->flops / rounds;
    const double memory = bytes / rate.bytes, flops = operations / rate.flops;
    const double bound = memory > flops ? memory : flops;
    printf("%-28s %6.0f %12.0f %12.0f %9.3f %6.3f", k->name, (double)k->calls / rounds, bytes,
           operations, k->now * 1e3, k->now / step);
    if (bound > 0)
        printf(" %9.3f %-7s %8.2f", bound * 1e3, memory > flops ? "memory" : "flops",
               k->now / bound);
    printf("\n");
}

void kernel_times_print(KernelTimes *t) {
    const double step = bench_median(t->step, t->round);
    const Cost rate = {bench_median(t->bytes_rate, t->round),
                       bench_median(t->flops_rate, t->round)};
    double others = step;
    for (size_t i = 0; i < t->count; i++) {
        t->list[i].now = bench_median(t->list[i].seconds, t->round);
        others -= t->list[i].now;
    }
    qsort(t->list, t->count, sizeof *t->list, slower_first);
    printf("step_ms=%.3f memory_gb_s=%.1f sgemm_gflops=%.1f\n", step * 1e3, rate.bytes / 1e9,
           rate.flops / 1e9);
    printf("%-28s %6s %12s %12s %9s %6s %9s %-7s %8s\n", "kernel", "calls", "bytes", "operations",
           "ms", "share", "bound_ms", "by", "to_bound");
    for (size_t i = 0; i < t->count; i++) print_kernel(&t->list[i], (double)t->round, step, rate);
    printf("%-28s %6s %12s %12s %9.3f %6.3f\n", "(all else)", "", "", "", others * 1e3,
           others / step);
}
