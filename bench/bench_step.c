/* bench_step.c: how much of a training step is matrix product.
 *
 * Trains an mlp of wide layers and, between its steps, times cblas_sgemm alone on the products that
 * its layers need. Both are measured in one process, alternating, so that whatever disturbs one
 * disturbs the other. The figure is the step's floating-point rate over sgemm's; what is missing
 * from 1 is what everything else costs: bias, relu, loss, optimizer, the tape itself.
 */
#include <string.h>

#include "bench/workload.h"
#include "common/base/clock.h"
#include "common/base/memory.h"
#include "common/base/options.h"
#include "common/base/rng.h"

enum { CLASSES = 10, PERIOD = 1 << 20 };

typedef struct Sizes {
    size_t width, layers, batch, rounds;
} Sizes;

typedef struct Operands { // random numbers for sgemm alone, each [width, max(width, batch)]
    float *x, *w, *y;
} Operands;

// The products of one step: forward, weight gradient and input gradient of every wide layer (the
// first layer's input wants no gradient).
static double products_seconds(const Sizes *s, const Kernels *kernels, const Operands *o) {
    size_t n = s->batch, k = s->width;
    uint64_t start = clock_ns();
    for (size_t i = 0; i < s->layers; i++) {
        kernels->matrix->matmul((Compute){PRECISION_F32, NULL}, (MatmulShape){false, true, n, k, k},
                                o->x, o->w, o->y, false);
        kernels->matrix->matmul((Compute){PRECISION_F32, NULL}, (MatmulShape){true, false, k, k, n},
                                o->x, o->x, o->y, false);
        if (i > 0)
            kernels->matrix->matmul((Compute){PRECISION_F32, NULL},
                                    (MatmulShape){false, false, n, k, k}, o->x, o->w, o->y, false);
    }
    return (double)(clock_ns() - start) / 1e9;
}

static Operands operands_open(const Sizes *s) {
    size_t count = s->width * (s->width > s->batch ? s->width : s->batch);
    Operands o = {memory_zalloc(count * sizeof *o.x), memory_zalloc(count * sizeof *o.w),
                  memory_zalloc(count * sizeof *o.y)};
    for (size_t i = 0; i < count; i++) { // PERIOD different numbers, repeated
        o.x[i] = i < PERIOD ? rng_normal(2, RNG_STREAM_TEST, i) : o.x[i - PERIOD];
        o.w[i] = i < PERIOD ? rng_normal(3, RNG_STREAM_TEST, i) : o.w[i - PERIOD];
    }
    return o;
}

static Workload open_mlp(const Sizes *s, Device *device) {
    char hidden[256] = "";
    for (size_t i = 0; i < s->layers; i++)
        snprintf(hidden + strlen(hidden), sizeof hidden - strlen(hidden), "%s%zu", i ? "," : "",
                 s->width);
    ModelConfig model = {"mlp", hidden, {s->width, 1, 1}, CLASSES, .seed = 1};
    return workload_open(&model, device, s->batch, NULL);
}

static void report(const Sizes *s, const Kernels *kernels, double step, double products) {
    double square = 2.0 * (double)(s->batch * s->width) * (double)s->width;
    double wide = (3.0 * (double)s->layers - 1) * square;
    double head = 3 * 2.0 * (double)(s->batch * s->width * CLASSES);
    double step_rate = (wide + head) / step / 1e9, sgemm_rate = wide / products / 1e9;
    char blas[160];
    kernels->describe(blas, sizeof blas);
    printf("blas=\"%s\"\n", blas);
    printf("width=%zu layers=%zu batch=%zu rounds=%zu\n", s->width, s->layers, s->batch, s->rounds);
    printf("step_ms_p50=%.3f step_gflops=%.1f sgemm_gflops=%.1f step_to_sgemm=%.3f\n", step * 1e3,
           step_rate, sgemm_rate, step_rate / sgemm_rate);
}

static void run(const Sizes *s) {
    Error err = {0};
    Device *device = device_open("cpu:0", &err);
    if (!device) error_exit(&err);
    Workload mlp = open_mlp(s, device);
    Operands operands = operands_open(s);
    double *steps = memory_zalloc(s->rounds * sizeof *steps);
    double *products = memory_zalloc(s->rounds * sizeof *products);
    workload_step(&mlp); // fills the arena and the caches
    products_seconds(s, device->kernels, &operands);
    for (size_t i = 0; i < s->rounds; i++) {
        steps[i] = workload_step(&mlp);
        products[i] = products_seconds(s, device->kernels, &operands);
    }
    report(s, device->kernels, bench_median(steps, s->rounds), bench_median(products, s->rounds));
    free(operands.x);
    free(operands.w);
    free(operands.y);
    free(steps);
    free(products);
    workload_close(&mlp);
    device_close(device);
}

int main(int argc, char **argv) {
    Sizes s = {.width = 4096, .layers = 2, .batch = 256, .rounds = 5};
    Options options = {.program = "bench_step",
                       .summary = "Compares an mlp's training step with sgemm alone."};
    options_add_count(&options, "width", &s.width, 1, 1 << 14, "of a layer");
    options_add_count(&options, "layers", &s.layers, 1, 16, "wide layers");
    options_add_count(&options, "batch", &s.batch, 1, 1 << 14, "rows");
    options_add_count(&options, "rounds", &s.rounds, 1, 1000, "timed steps");
    Error err = {0};
    if (options_parse(&options, argc, argv, &err) != 0) error_exit(&err);
    run(&s);
    return STATUS_OK;
}
