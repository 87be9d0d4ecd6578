/* bench_step.c: the share of matrix products in a training step; with --by-op, the time of each
 * kernel beside its bound (kernel_times.h), also for networks of convolutions.
 *
 * Trains an mlp of wide layers, or a gpt, and, between its steps, times sgemm (the device's matrix
 * products, alone) on the shapes that its linear layers need. Both are measured in one process,
 * alternating, so that whatever disturbs one disturbs the other. The figure is the step's
 * floating-point rate over sgemm's; the difference from 1 is the cost of everything else: relu or
 * GELU, layer norm, attention's small products and its softmax, loss, optimizer, the tape itself.
 */
#include <string.h>

#include "bench/kernel_times.h"
#include "bench/workload.h"
#include "common/base/clock.h"
#include "common/base/format.h"
#include "common/base/memory.h"
#include "common/base/options.h"
#include "common/base/rng.h"
#include "common/data/formats.h"

enum { CLASSES = 10, CHARACTERS = 76, PERIOD = 1 << 20 };

typedef struct Sizes {
    const char *model;
    size_t width, layers, batch, rounds; // layers and batch may be 0: fill_sizes chooses
    GptSizes gpt;
    bool by_op;
} Sizes;

// `count` linear layers of one shape, y[rows, out] from x[rows, in]. In a step each takes three
// products: forward, weight gradient, and input gradient. A layer on the network's input has none
// of the last kind (is_input).
typedef struct Layers {
    size_t rows, in, out, count;
    bool is_input;
} Layers;

enum { KINDS_MAX = 5 };
typedef struct Work {
    Layers kinds[KINDS_MAX];
    int count;
    double flops;  // floating-point operations of these layers' products in a step
    double others; // of the model's other products in a step, which are not timed alone
} Work;

static void add_layers(Work *work, Layers layers) {
    double products = (double)(layers.count * (layers.is_input ? 2 : 3));
    work->flops += 2.0 * (double)(layers.rows * layers.in * layers.out) * products;
    work->kinds[work->count++] = layers;
}

// The work of an mlp's step. The product of its narrow head is not timed alone.
static Work mlp_work(const Sizes *s) {
    Work work = {.others = 3 * 2.0 * (double)(s->batch * s->width * CLASSES)};
    add_layers(&work, (Layers){s->batch, s->width, s->width, 1, true});
    add_layers(&work, (Layers){s->batch, s->width, s->width, s->layers - 1, false});
    return work;
}

// The work of a gpt's step. Attention has two products forward and four backward, which use
// half of all pairs of tokens.
static Work gpt_work(const Sizes *s) {
    size_t rows = s->batch * s->gpt.context, c = s->gpt.embedding, n = s->gpt.layers;
    Work work = {.others = 6.0 * (double)n * (double)(rows * (s->gpt.context + 1)) * (double)c};
    add_layers(&work, (Layers){rows, c, 3 * c, n, false});
    add_layers(&work, (Layers){rows, c, c, n, false});
    add_layers(&work, (Layers){rows, c, 4 * c, n, false});
    add_layers(&work, (Layers){rows, 4 * c, c, n, false});
    add_layers(&work, (Layers){rows, c, CHARACTERS, 1, false});
    return work;
}

// The operands of sgemm alone: random numbers, each array as long as the largest product needs.
typedef struct Operands {
    float *x, *w, *y;
} Operands;

static void layer_products(const Layers *l, const Kernels *kernels, const Operands *o) {
    size_t n = l->rows, in = l->in, out = l->out;
    Compute how = {PRECISION_F32, NULL};
    kernels->matrix->matmul(how, (MatmulShape){false, true, n, out, in}, o->x, o->w, o->y, false);
    kernels->matrix->matmul(how, (MatmulShape){true, false, out, in, n}, o->x, o->w, o->y, false);
    if (!l->is_input)
        kernels->matrix->matmul(how, (MatmulShape){false, false, n, in, out}, o->x, o->w, o->y,
                                false);
}

static double products_seconds(const Work *work, const Kernels *kernels, const Operands *o) {
    uint64_t start = clock_ns();
    for (int i = 0; i < work->count; i++)
        for (size_t k = 0; k < work->kinds[i].count; k++)
            layer_products(&work->kinds[i], kernels, o);
    return (double)(clock_ns() - start) / 1e9;
}

static Operands operands_open(const Work *work) {
    size_t count = 0;
    for (int i = 0; i < work->count; i++) {
        const Layers *l = &work->kinds[i];
        size_t wide = l->in > l->out ? l->in : l->out, high = l->rows > wide ? l->rows : wide;
        if (wide * high > count) count = wide * high;
    }
    Operands o = {memory_zalloc(count * sizeof *o.x), memory_zalloc(count * sizeof *o.w),
                  memory_zalloc(count * sizeof *o.y)};
    for (size_t i = 0; i < count; i++) { // PERIOD different numbers, repeated
        o.x[i] = i < PERIOD ? rng_normal(2, RNG_STREAM_TEST, i) : o.x[i - PERIOD];
        o.w[i] = i < PERIOD ? rng_normal(3, RNG_STREAM_TEST, i) : o.w[i - PERIOD];
    }
    return o;
}

static bool is_mlp(const Sizes *s) {
    return strcmp(s->model, "mlp") == 0;
}

static bool is_convolutional(const Sizes *s) {
    return strcmp(s->model, "convnet") == 0 || strcmp(s->model, "resnet20") == 0 ||
           strcmp(s->model, "segnet") == 0;
}

static Workload open_model(const Sizes *s, Device *device) {
    char hidden[256] = "";
    for (size_t i = 0; is_mlp(s) && i < s->layers; i++)
        format_append(hidden, sizeof hidden, "%s%zu", i ? "," : "", s->width);
    ModelConfig model = {.name = s->model, .seed = 1, .gpt = s->gpt, .outputs = CHARACTERS};
    if (is_mlp(s)) model = (ModelConfig){"mlp", hidden, {s->width, 1, 1}, CLASSES, .seed = 1};
    if (strcmp(s->model, "convnet") == 0) // the shapes of MNIST and of CIFAR-10
        model = (ModelConfig){s->model, "", {1, 28, 28}, CLASSES, .seed = 1};
    if (strcmp(s->model, "resnet20") == 0)
        model = (ModelConfig){s->model, "", {3, 32, 32}, CLASSES, .seed = 1};
    if (strcmp(s->model, "segnet") == 0) // of the shapes, drawn
        model = (ModelConfig){s->model, "", {3, 64, 64}, SHAPES_CLASSES, .seed = 1};
    return workload_open(&model, device, s->batch, NULL);
}

static void report(const Sizes *s, const Work *work, double step, double products,
                   const Kernels *kernels) {
    double step_rate = (work->flops + work->others) / step / 1e9;
    double sgemm_rate = work->flops / products / 1e9;
    char blas[160];
    kernels->describe(blas, sizeof blas);
    printf("blas=\"%s\"\n", blas);
    if (is_mlp(s))
        printf("width=%zu layers=%zu", s->width, s->layers);
    else
        printf("layers=%zu heads=%zu embedding=%zu context=%zu", s->gpt.layers, s->gpt.heads,
               s->gpt.embedding, s->gpt.context);
    printf(" batch=%zu rounds=%zu\n", s->batch, s->rounds);
    printf("step_ms_p50=%.3f step_gflops=%.1f sgemm_gflops=%.1f step_to_sgemm=%.3f\n", step * 1e3,
           step_rate, sgemm_rate, step_rate / sgemm_rate);
}

static void compare_with_sgemm(const Sizes *s, Device *device) {
    Workload model = open_model(s, device);
    const Work work = is_mlp(s) ? mlp_work(s) : gpt_work(s);
    Operands operands = operands_open(&work);
    double *steps = memory_zalloc(s->rounds * sizeof *steps);
    double *products = memory_zalloc(s->rounds * sizeof *products);
    workload_step(&model); // fills the arena and the caches
    products_seconds(&work, device->kernels, &operands);
    for (size_t i = 0; i < s->rounds; i++) {
        steps[i] = workload_step(&model);
        products[i] = products_seconds(&work, device->kernels, &operands);
    }
    report(s, &work, bench_median(steps, s->rounds), bench_median(products, s->rounds),
           device->kernels);
    free(operands.x);
    free(operands.w);
    free(operands.y);
    free(steps);
    free(products);
    workload_close(&model);
}

static void time_kernels(const Sizes *s, Device *device) {
    KernelTimes *times = kernel_times_open(device, s->rounds);
    Workload model = open_model(s, device);
    workload_step(&model);
    kernel_times_clear(times);
    for (size_t i = 0; i < s->rounds; i++) kernel_times_round(times, workload_step(&model));
    kernel_times_print(times);
    workload_close(&model);
    kernel_times_close(times);
}

// Fills in the sizes that were not asked for: an mlp has two layers and 256 rows, a batch of images
// is 64, and a gpt has the sizes that go with its name and twelve texts.
static void fill_sizes(Sizes *s) {
    if (is_mlp(s) || is_convolutional(s)) {
        if (s->layers == 0) s->layers = 2;
        if (s->batch == 0) s->batch = is_mlp(s) ? 256 : 64;
        return;
    }
    s->gpt.layers = s->layers;
    s->gpt = model_gpt_sizes(&(ModelConfig){.name = s->model, .gpt = s->gpt});
    if (s->batch == 0) s->batch = 12;
}

int main(int argc, char **argv) {
    Sizes s = {.model = "mlp", .width = 4096, .rounds = 5};
    Options options = {.program = "bench_step",
                       .summary = "Compares a model's training step with sgemm alone."};
    options_add_choice(&options, "model", &s.model, "mlp|convnet|resnet20|segnet|gpt",
                       "the network");
    options_add_count(&options, "width", &s.width, 1, 1 << 14, "of a layer of the mlp");
    options_add_count(&options, "layers", &s.layers, 0, 16, "wide layers, or blocks (0: 2, or 4)");
    options_add_count(&options, "heads", &s.gpt.heads, 0, 256, "of the gpt (0: 4)");
    options_add_count(&options, "embedding", &s.gpt.embedding, 0, 1 << 14, "of the gpt (0: 128)");
    options_add_count(&options, "context", &s.gpt.context, 0, 1 << 14, "tokens of a text (0: 64)");
    options_add_count(&options, "batch", &s.batch, 0, 1 << 14,
                      "rows (0: 256, images 64), or texts (0: 12)");
    options_add_count(&options, "rounds", &s.rounds, 1, 1000, "timed steps");
    options_add_flag(&options, "by-op", &s.by_op, "time each kernel, beside its bound");
    Error err = {0};
    must_do(options_parse(&options, argc, argv, &err), &err);
    if (is_convolutional(&s) && !s.by_op)
        must_do(error_set(&err, STATUS_USAGE,
                          "%s has convolutions, not sgemm's products -- give --by-op", s.model),
                &err);
    fill_sizes(&s);
    Device *device = must_get(device_open("cpu:0", &err), &err);
    (s.by_op ? time_kernels : compare_with_sgemm)(&s, device);
    device_close(device);
    return STATUS_OK;
}
