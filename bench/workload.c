/* workload.c: a training step without a trainer around it. */
#include "bench/workload.h"

#include "common/base/clock.h"
#include "common/base/memory.h"
#include "common/base/rng.h"
#include "common/nn/ops.h"
#include "ddp/distributed_data_parallel.h"

static void make_batch(Workload *w, size_t classes) {
    size_t sample = w->shape[0] * w->shape[1] * w->shape[2];
    w->samples = memory_zalloc(w->batch * sample * sizeof *w->samples);
    w->tokens = w->length ? memory_zalloc(w->batch * w->length * sizeof *w->tokens) : NULL;
    w->labels = memory_zalloc(w->targets * sizeof *w->labels);
    for (size_t i = 0; i < w->batch * sample; i++)
        w->samples[i] = rng_normal(1, RNG_STREAM_TEST, i);
    for (size_t i = 0; i < w->batch * w->length; i++)
        w->tokens[i] = (int64_t)rng_below(2, RNG_STREAM_TEST, i, classes);
    for (size_t i = 0; i < w->targets; i++)
        w->labels[i] = (int64_t)rng_below(1, RNG_STREAM_TEST + 1, i, classes);
}

static Optimizer *make_optimizer(const Workload *w, Precision precision) {
    const OptimizerConfig sgd = {.kind = OPTIMIZER_SGD, .momentum = 0.9, .half_copies = precision};
    const OptimizerConfig adamw = {.kind = OPTIMIZER_ADAMW,
                                   .weight_decay = 0.1,
                                   .decay_matrices_only = true,
                                   .beta1 = 0.9,
                                   .beta2 = 0.999,
                                   .eps = 1e-8,
                                   .half_copies = precision};
    return optimizer_create(w->model, w->length ? &adamw : &sgd);
}

Workload workload_open(const ModelConfig *config, Device *device, size_t batch,
                       ProcessGroup *group) {
    Error err = {0};
    Workload w = {.device = device, .batch = batch, .is_ddp = group != NULL};
    for (int i = 0; i < 3; i++) w.shape[i] = config->input[i];
    w.model = w.module = must_get(model_create(config, device, &err), &err);
    if (group) {
        DdpConfig ddp = ddp_config_default();
        w.module = must_get(distributed_data_parallel(w.model, group, &ddp, &err), &err);
    }
    bool is_text = model_is_text(config->name);
    if (is_text) w.length = model_gpt_sizes(config).context;
    w.is_dense = model_is_dense(config->name);
    w.targets = is_text ? batch * w.length : w.is_dense ? batch * w.shape[1] * w.shape[2] : batch;
    w.optimizer = make_optimizer(&w, PRECISION_F32);
    w.tape = tape_create(device, NULL);
    w.hits = device_alloc(device, sizeof *w.hits);
    make_batch(&w, config->outputs);
    return w;
}

void workload_use_precision(Workload *w, Precision precision) {
    optimizer_close(w->optimizer);
    w->optimizer = make_optimizer(w, precision);
    w->tape->precision = precision;
}

void workload_close(Workload *w) {
    tape_close(w->tape);
    optimizer_close(w->optimizer);
    module_close(w->module);
    device_free(w->device, w->hits, sizeof *w->hits);
    free(w->samples);
    free(w->tokens);
    free(w->labels);
}

static Tensor *batch_input(const Workload *w) {
    if (w->length)
        return tape_input(w->tape, DTYPE_I64, 2, (size_t[]){w->batch, w->length}, w->tokens);
    return tape_input(w->tape, DTYPE_F32, 4,
                      (size_t[]){w->batch, w->shape[0], w->shape[1], w->shape[2]}, w->samples);
}

// The mean over all targets, which are samples, tokens or pixels.
static Tensor *batch_loss(const Workload *w, Tensor *outputs) {
    if (!w->is_dense) {
        Tensor *target = tape_input(w->tape, DTYPE_I64, 1, &w->targets, w->labels);
        return op_cross_entropy_and_hits(w->tape, outputs, target, (double)w->targets, w->hits);
    }
    size_t kept;
    Tensor *target = tape_input(w->tape, DTYPE_I64, 3,
                                (size_t[]){w->batch, w->shape[1], w->shape[2]}, w->labels);
    Tensor *sum = op_pixel_cross_entropy(w->tape, outputs, target, NULL, &kept);
    return op_divide(w->tape, sum, (double)kept);
}

double workload_step(Workload *w) {
    uint64_t start = clock_ns();
    Error err = {0};
    tape_reset(w->tape);
    module_zero_grad(w->model);
    Tensor *loss = batch_loss(w, module_forward(w->module, w->tape, batch_input(w)));
    must_do(tape_error(w->tape, &err), &err);
    must_do(tape_backward(w->tape, loss, &err), &err);
    if (w->is_ddp) must_do(ddp_finish_backward(w->module, NULL, &err), &err);
    optimizer_step(w->optimizer, 1e-3);
    return (double)(clock_ns() - start) / 1e9;
}

static int compare_double(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

double bench_quantile(double *values, size_t count, double q) {
    const double place = q * (double)(count - 1);
    const size_t low = (size_t)place, high = low + 1 < count ? low + 1 : low;
    qsort(values, count, sizeof *values, compare_double);
    return values[low] + (place - (double)low) * (values[high] - values[low]);
}

double bench_median(double *values, size_t count) {
    return bench_quantile(values, count, 0.5);
}
