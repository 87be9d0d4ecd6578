/* gpu_bounds.c: times of the kernels of a GPT-2 step, compared with the GPU's own limits.
 *
 *   gpu_bounds full|quick    quick: small sizes, to check that it runs; its figures mean nothing
 *
 * The limits are measured too: the rate of a product of square matrices in the same precision, and
 * the bandwidth of a copy within device memory. Products and attention are compared with the rate,
 * layer norm and the loss with the bandwidth. The last layer's product has 50257 columns (GPT-2's
 * tokens) and 50304, the next multiple of 128. Each row is the fastest of several tries, each of
 * which ends with one synchronize. The status is 77 without a GPU.
 */
#include <stdio.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/memory.h"
#include "common/device/cuda/kernels.h"

enum { TRIES = 5, HEADS = 12, SIZE = 64, WIDTH = HEADS * SIZE };

typedef struct Bounds {
    Device *device;
    size_t texts, length, square, times; // times: calls in each try
    size_t bytes;                        // of each buffer
    void *a, *b, *c;                     // device memory
    void *workspace;                     // for the current row
    Precision precision;
    LinearShape shape;
    double tflops, gb_per_s; // the limits: rate in this precision, bandwidth of a copy
} Bounds;

typedef void Work(const Bounds *bounds);

// Returns the microseconds of one call.
static double measure(const Bounds *bounds, Work *work) {
    double least = 0;
    work(bounds); // not timed: the first call selects algorithms
    for (int n = 0; n < TRIES; n++) {
        device_synchronize(bounds->device);
        uint64_t start = clock_ns();
        for (size_t i = 0; i < bounds->times; i++) work(bounds);
        device_synchronize(bounds->device);
        double us = (double)(clock_ns() - start) / 1e3 / (double)bounds->times;
        if (n == 0 || us < least) least = us;
    }
    return least;
}

static const char *precision_name(const Bounds *bounds) {
    static const char *const names[] = {"fp32", "bf16", "fp16"};
    return bounds->device->tf32 ? "tf32" : names[bounds->precision];
}

static void print_rate(const Bounds *bounds, const char *what, double us, double flop) {
    double rate = flop / us / 1e6;
    printf("%-34s %-4s %10.1f us %8.2f TFLOP/s %5.0f %% of the square product's\n", what,
           precision_name(bounds), us, rate, 100 * rate / bounds->tflops);
}

static void print_bandwidth(const Bounds *bounds, const char *what, double us, double bytes) {
    double rate = bytes / us / 1e3;
    printf("%-34s %-4s %10.1f us %8.0f GB/s    %5.0f %% of a copy's\n", what,
           precision_name(bounds), us, rate, 100 * rate / bounds->gb_per_s);
}

// ---- products -----------------------------------------------------------------------------------

static void multiply(const Bounds *bounds) {
    const Kernels *kernels = device_kernels(bounds->device);
    const Compute how = {bounds->precision, bounds->workspace};
    if (bounds->precision == PRECISION_F32)
        kernels->matrix->linear(how, bounds->shape, bounds->a, bounds->b, NULL, bounds->c);
    else
        kernels->halves->linear(how, bounds->shape, bounds->a, bounds->b, NULL, bounds->c);
}

// Returns the rate in TFLOP/s; prints a row unless `what` is NULL.
static double product(Bounds *bounds, const char *what, size_t rows, size_t in, size_t out) {
    const Kernels *kernels = device_kernels(bounds->device);
    bounds->shape = (LinearShape){.rows = rows, .in = in, .out = out};
    size_t bytes = bounds->precision == PRECISION_F32
                       ? kernels->matrix->matmul_workspace(PRECISION_F32, rows, out, in)
                       : kernels->halves->linear_workspace(bounds->precision, bounds->shape);
    bounds->workspace = device_alloc(bounds->device, bytes);
    double us = measure(bounds, multiply);
    double flop = 2.0 * (double)rows * (double)in * (double)out;
    device_free(bounds->device, bounds->workspace, bytes);
    if (what) print_rate(bounds, what, us, flop);
    return flop / us / 1e6;
}

static void products(Bounds *bounds) {
    size_t rows = bounds->texts * bounds->length, square = bounds->square;
    char what[64];
    bounds->tflops = product(bounds, NULL, square, square, square);
    snprintf(what, sizeof what, "square product of %zu", square);
    product(bounds, what, square, square, square);
    product(bounds, "qkv, 768 to 2304", rows, WIDTH, (size_t)3 * WIDTH);
    product(bounds, "mlp, 768 to 3072", rows, WIDTH, (size_t)4 * WIDTH);
    product(bounds, "mlp, 3072 to 768", rows, (size_t)4 * WIDTH, WIDTH);
    product(bounds, "logits, 768 to 50257", rows, WIDTH, 50257);
    product(bounds, "logits, 768 to 50304", rows, WIDTH, 50304);
}

// ---- attention ----------------------------------------------------------------------------------

static Attention attention_of(const Bounds *bounds) {
    return (Attention){bounds->texts, bounds->length, HEADS, SIZE};
}

// `a`: qkv and its gradient; `b`: y and its gradient; `c`: the values that forward saves.
static void attend(const Bounds *bounds) {
    const Kernels *kernels = device_kernels(bounds->device);
    const Attention of = attention_of(bounds);
    const Compute how = {bounds->precision, bounds->workspace};
    if (bounds->precision == PRECISION_F32)
        kernels->transformer->attention(how, &of, bounds->a, bounds->b, bounds->c);
    else
        kernels->halves->attention(how, &of, bounds->a, bounds->b, bounds->c);
}

static void attend_backward(const Bounds *bounds) {
    const Kernels *kernels = device_kernels(bounds->device);
    const Attention of = attention_of(bounds);
    const Compute how = {bounds->precision, bounds->workspace};
    char *dqkv = (char *)bounds->a + bounds->bytes / 2, *dy = (char *)bounds->b + bounds->bytes / 2;
    if (bounds->precision == PRECISION_F32)
        kernels->transformer->attention_gradient(how, &of, bounds->a, bounds->b, bounds->c,
                                                 (void *)dy, (void *)dqkv, false);
    else
        kernels->halves->attention_gradient(how, &of, bounds->a, bounds->b, bounds->c, (void *)dy,
                                            (void *)dqkv, false);
}

// A causal product of queries and keys has half the multiplications of a full one. Forward runs two
// products, backward five.
static void attentions(Bounds *bounds) {
    const Attention of = attention_of(bounds);
    const TransformerKernels *kernels = device_kernels(bounds->device)->transformer;
    size_t bytes = kernels->attention_workspace(bounds->precision, &of);
    double flop = (double)of.batch * HEADS * SIZE * (double)(of.length * of.length);
    CHECK(kernels->attention_saved(&of) <= bounds->bytes, "attention saves more than a buffer");
    bounds->workspace = device_alloc(bounds->device, bytes);
    print_rate(bounds, "attention", measure(bounds, attend), 2 * flop);
    print_rate(bounds, "attention's gradient", measure(bounds, attend_backward), 5 * flop);
    device_free(bounds->device, bounds->workspace, bytes);
}

// ---- layer norm and the loss --------------------------------------------------------------------

static void copy(const Bounds *bounds) {
    device_copy(bounds->device, bounds->b, bounds->device, bounds->a, bounds->bytes);
}

// The parameters and statistics are stored at the end of `c`.
static LayerNorm norm_of(const Bounds *bounds) {
    size_t rows = bounds->texts * bounds->length;
    float *weight = (float *)bounds->c + bounds->bytes / sizeof(float) - 4 * (size_t)WIDTH;
    float *mean = weight - 2 * rows;
    return (LayerNorm){.x = bounds->a,
                       .rows = rows,
                       .channels = WIDTH,
                       .weight = weight,
                       .bias = weight + WIDTH,
                       .mean = mean,
                       .invstd = mean + rows,
                       .eps = 1e-5f};
}

static void normalize(const Bounds *bounds) {
    const LayerNorm norm = norm_of(bounds);
    device_kernels(bounds->device)->transformer->layer_norm(&norm, bounds->b);
}

static void normalize_backward(const Bounds *bounds) {
    const LayerNorm norm = norm_of(bounds);
    float *dweight = (float *)norm.weight + (size_t)2 * WIDTH;
    const NormGradient to = {.dx = bounds->c, .dweight = dweight, .dbias = dweight + WIDTH};
    device_kernels(bounds->device)->transformer->layer_norm_gradient(&norm, bounds->b, &to);
}

// `c` contains the targets, all 0, then the loss; the loss's value serves as its gradient.
static float *loss_of(const Bounds *bounds) {
    return (void *)((char *)bounds->c + bounds->texts * bounds->length * sizeof(int64_t));
}

static void find_loss(const Bounds *bounds) {
    size_t rows = bounds->texts * bounds->length;
    device_kernels(bounds->device)
        ->loss->cross_entropy((Labels){bounds->c, rows, 50257}, bounds->a, (double)rows, bounds->b,
                              loss_of(bounds));
}

static void find_loss_gradient(const Bounds *bounds) {
    size_t rows = bounds->texts * bounds->length;
    const Upstream upstream = {loss_of(bounds), (double)rows};
    device_kernels(bounds->device)
        ->loss->cross_entropy_gradient((Labels){bounds->c, rows, 50257}, bounds->b, upstream,
                                       bounds->a, false);
}

static void passes(Bounds *bounds) {
    double rows = (double)(bounds->texts * bounds->length);
    double hidden = rows * WIDTH * sizeof(float), logits = rows * 50257 * sizeof(float);
    double us = measure(bounds, copy);
    bounds->gb_per_s = 2 * (double)bounds->bytes / us / 1e3;
    print_bandwidth(bounds, "copy", us, 2 * (double)bounds->bytes);
    print_bandwidth(bounds, "layer norm", measure(bounds, normalize), 2 * hidden);
    print_bandwidth(bounds, "layer norm's gradient", measure(bounds, normalize_backward),
                    3 * hidden);
    device_kernels(bounds->device)->elementwise->fill(bounds->c, 0, bounds->bytes / sizeof(float));
    print_bandwidth(bounds, "loss of 50257 tokens", measure(bounds, find_loss), 2 * logits);
    print_bandwidth(bounds, "loss's gradient", measure(bounds, find_loss_gradient), 2 * logits);
}

// ---- the program --------------------------------------------------------------------------------

// Sets the precision; returns whether the GPU supports it.
static bool use(Bounds *bounds, Precision precision, bool tf32) {
    enum { AMPERE = 80 };
    bounds->precision = precision;
    bounds->device->tf32 = tf32;
    return bounds->device->capability >= AMPERE || (!tf32 && precision != PRECISION_BF16);
}

int main(int argc, char **argv) {
    Error err = {0};
    CHECK(argc == 2, "usage: gpu_bounds full|quick");
    const bool quick = strcmp(argv[1], "quick") == 0;
    Device *device = device_open("cuda:0", &err);
    if (!device) error_exit(&err);
    Bounds bounds = {.device = device, .texts = 4, .length = 1024, .square = 4096, .times = 10};
    if (quick) bounds = (Bounds){device, .texts = 1, .length = 2, .square = 16, .times = 1};
    const size_t logits = bounds.texts * bounds.length * 50304, weight = (size_t)WIDTH * 50304;
    bounds.bytes = (logits > weight ? logits : weight) * sizeof(float);
    void **memory[] = {&bounds.a, &bounds.b, &bounds.c};
    for (int i = 0; i < 3; i++) {
        *memory[i] = device_alloc(device, bounds.bytes);
        device_kernels(device)->elementwise->fill(*memory[i], 1, bounds.bytes / sizeof(float));
    }
    for (int i = 0; i < 4; i++) {
        static const Precision precisions[] = {PRECISION_F32, PRECISION_F32, PRECISION_BF16,
                                               PRECISION_F16};
        if ((quick && i > 0) || !use(&bounds, precisions[i], i == 1)) continue;
        products(&bounds);
        if (i != 1) attentions(&bounds);
    }
    use(&bounds, PRECISION_F32, false);
    passes(&bounds);
    for (int i = 0; i < 3; i++) device_free(device, *memory[i], bounds.bytes);
    device_close(device);
    return STATUS_OK;
}
