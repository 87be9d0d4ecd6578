/* bench_profile.c: the parts of a training step on one device, for the model in bench/model.
 *
 * Times forward, loss, backward and the optimizer for two batches, in turns, and lays a line
 * through the medians: a fixed part and a part per row. Also records when in backward each
 * gradient is ready, which decides how much communication can be hidden.
 */
#include <stdlib.h>
#include <string.h>

#include "bench/model/profile_file.h"
#include "bench/workload.h"
#include "common/base/clock.h"
#include "common/base/memory.h"
#include "common/base/options.h"
#include "common/device/link.h"
#include "common/nn/ops.h"

enum { WARMUP = 2, MAX_ROUNDS = 1000, BUNDLED_BYTES = 4096, SLEEPS = 101 };
enum { FORWARD, LOSS, BACKWARD, OPTIMIZER, PARTS };

typedef struct Settings {
    const char *model, *hidden, *save;
    size_t rows, rounds, features, outputs;
} Settings;

// Notes when the gradients become ready.
typedef struct ReadyWatch {
    uint64_t begin_ns; // when backward began
    size_t count;      // how many gradients have become ready in this backward
    NamedTensors parameters;
    double *seconds; // [parameters] from the begin of backward, summed over the rounds
    size_t *order;   // [count] parameters, in the order in which they became ready in this backward
    int *unit;       // [parameters] as train_fsdp cuts them: by blocks, or by layers; 0: the root's
} ReadyWatch;

static int gradient_ready(void *context, Tensor *tensor, Error *err) {
    (void)err;
    ReadyWatch *watch = context;
    double seconds = (double)(clock_ns() - watch->begin_ns) / 1e9;
    for (size_t k = 0; k < watch->parameters.count; k++) {
        if (watch->parameters.items[k].tensor != tensor) continue;
        watch->seconds[k] += seconds;
        watch->order[watch->count++] = k;
    }
    return 0;
}

// ---- units of fully sharded training -----------------------------------------------------------

static bool is_block(const Module *module) {
    return strcmp(module->type, "ConvBlock") == 0 || strcmp(module->type, "BasicBlock") == 0;
}

static bool is_layer(const Module *module) {
    return module->parameter_count > 0;
}

// Numbers the parameters of each wanted module, from 1; unit [all.count] keeps the others, the
// root's. Returns how many units there are.
static int number_units(Module *module, bool (*wanted)(const Module *), const NamedTensors *all,
                        int count, int *unit) {
    for (int i = 0; i < module->child_count; i++) {
        Module *child = module->children[i];
        if (!wanted(child)) {
            count = number_units(child, wanted, all, count, unit);
            continue;
        }
        NamedTensors inside = module_tensors(child, MODULE_PARAMETERS);
        count++;
        for (size_t k = 0; k < all->count; k++)
            for (size_t j = 0; j < inside.count; j++)
                if (all->items[k].tensor == inside.items[j].tensor) unit[k] = count;
        named_tensors_free(&inside);
    }
    return count;
}

static ReadyWatch watch_open(Workload *w) {
    ReadyWatch watch = {.parameters = module_tensors(w->model, MODULE_PARAMETERS)};
    watch.seconds = memory_zalloc(watch.parameters.count * sizeof *watch.seconds);
    watch.order = memory_zalloc(watch.parameters.count * sizeof *watch.order);
    watch.unit = memory_zalloc(watch.parameters.count * sizeof *watch.unit);
    if (number_units(w->model, is_block, &watch.parameters, 0, watch.unit) == 0)
        number_units(w->model, is_layer, &watch.parameters, 0, watch.unit);
    return watch;
}

static void watch_close(ReadyWatch *watch) {
    named_tensors_free(&watch->parameters);
    free(watch->seconds);
    free(watch->order);
    free(watch->unit);
}

// Takes one step. parts [PARTS] receives the seconds that each part took.
static void timed_step(Workload *w, ReadyWatch *watch, double *parts) {
    Error err = {0};
    tape_reset(w->tape);
    module_zero_grad(w->model);
    Tensor *x = tape_input(w->tape, DTYPE_F32, 4,
                           (size_t[]){w->batch, w->shape[0], w->shape[1], w->shape[2]}, w->samples);
    Tensor *target = tape_input(w->tape, DTYPE_I64, 1, &w->batch, w->labels);
    uint64_t at[PARTS + 1] = {clock_ns()};
    Tensor *outputs = module_forward(w->module, w->tape, x);
    at[1] = clock_ns();
    Tensor *loss = op_cross_entropy(w->tape, outputs, target, (double)w->batch);
    must_do(tape_error(w->tape, &err), &err);
    at[2] = watch->begin_ns = clock_ns();
    watch->count = 0;
    must_do(tape_backward(w->tape, loss, &err), &err);
    at[3] = clock_ns();
    optimizer_step(w->optimizer, 1e-3);
    at[4] = clock_ns();
    for (int i = 0; i < PARTS; i++) parts[i] = (double)(at[i + 1] - at[i]) / 1e9;
}

// Takes the medians over the rounds, in seconds: median[0] is of the half batch, median[1] of the
// whole one.
static void measure(Workload w[2], ReadyWatch watch[2], size_t rounds, double median[2][PARTS]) {
    double parts[PARTS];
    double *times = memory_zalloc((size_t)2 * PARTS * rounds * sizeof *times);
    for (int i = 0; i < 2 * WARMUP; i++) timed_step(&w[i % 2], &watch[i % 2], parts);
    for (int size = 0; size < 2; size++)
        memset(watch[size].seconds, 0, watch[size].parameters.count * sizeof(double));
    for (size_t i = 0; i < rounds; i++) {
        for (int size = 0; size < 2; size++) {
            timed_step(&w[size], &watch[size], parts);
            for (int k = 0; k < PARTS; k++)
                times[((size_t)size * PARTS + (size_t)k) * rounds + i] = parts[k];
        }
    }
    for (int size = 0; size < 2; size++)
        for (int k = 0; k < PARTS; k++)
            median[size][k] =
                bench_median(times + ((size_t)size * PARTS + (size_t)k) * rounds, rounds);
    free(times);
}

// Lays a line through two points. A part that would be below 0, which is noise, becomes 0.
static RowTime line_through(double small, double small_rows, double large, double large_rows) {
    double per_row = (large - small) / (large_rows - small_rows);
    if (per_row < 0) return (RowTime){large, 0};
    double fixed = large - per_row * large_rows;
    return fixed < 0 ? (RowTime){0, large / large_rows} : (RowTime){fixed, per_row};
}

static void fill_tensors(StepProfile *p, const ReadyWatch *watch, double backward, size_t rounds) {
    p->tensors = memory_zalloc(watch->count * sizeof *p->tensors);
    p->tensor_count = watch->count;
    double before = 0;
    bool any_small = false;
    for (size_t i = 0; i < watch->count; i++) {
        size_t k = watch->order[i];
        double ready = watch->seconds[k] / (double)rounds / backward;
        if (ready < before) ready = before;
        size_t bytes = tensor_bytes(watch->parameters.items[k].tensor);
        p->tensors[i] = (ModelTensor){(double)bytes, before = ready, watch->unit[k]};
        if (bytes > BUNDLED_BYTES) p->messages++;
        any_small |= bytes <= BUNDLED_BYTES;
    }
    p->messages += any_small; // DataParallel sends the small ones as one (dp/bundle.h)
}

static StepProfile profile_of(const Settings *s, const Workload w[2], const ReadyWatch *watch,
                              double median[2][PARTS]) {
    StepProfile p = {.optimizer = median[1][OPTIMIZER]};
    snprintf(p.name, sizeof p.name, "%s%s%s", s->model, strcmp(s->model, "mlp") == 0 ? " " : "",
             strcmp(s->model, "mlp") == 0 ? s->hidden : "");
    double small = (double)w[0].batch, large = (double)w[1].batch;
    RowTime *lines[] = {&p.forward, &p.loss, &p.backward};
    for (int k = 0; k < OPTIMIZER; k++)
        *lines[k] = line_through(median[0][k], small, median[1][k], large);
    p.sample_bytes = (double)(w[1].shape[0] * w[1].shape[1] * w[1].shape[2] * sizeof(float));
    p.output_bytes = (double)(s->outputs * sizeof(float));
    // The mean of backward's length belongs to the mean of the ready times; the last gradient of a
    // network is ready as backward ends.
    double last = 0;
    for (size_t i = 0; i < watch->count; i++) {
        double seconds = watch->seconds[watch->order[i]] / (double)s->rounds;
        if (seconds > last) last = seconds;
    }
    fill_tensors(&p, watch, last, s->rounds);
    return p;
}

// How late a thread wakes that sleeps until a message has come over an emulated link, in seconds.
static double measure_wake(void) {
    double late[SLEEPS];
    for (int i = 0; i < SLEEPS; i++) {
        uint64_t until = clock_ns() + 200000;
        link_sleep_until(until);
        late[i] = (double)(clock_ns() - until) / 1e9;
    }
    return bench_median(late, SLEEPS);
}

static void say(const StepProfile *p, const Kernels *kernels, size_t rows) {
    char blas[160];
    kernels->describe(blas, sizeof blas);
    double n = (double)rows, bytes = 0;
    for (size_t k = 0; k < p->tensor_count; k++) bytes += p->tensors[k].bytes;
    printf("blas=\"%s\"\n", blas);
    printf("model=\"%s\" rows=%zu gradients=%.0f bytes tensors=%zu\n", p->name, rows, bytes,
           p->tensor_count);
    printf("forward_ms=%.3f loss_ms=%.3f backward_ms=%.3f optimizer_ms=%.3f\n",
           1e3 * model_row_time(p->forward, n), 1e3 * model_row_time(p->loss, n),
           1e3 * model_row_time(p->backward, n), 1e3 * p->optimizer);
    printf("wake_us=%.1f after a sleep, as over an emulated link\n", 1e6 * measure_wake());
    printf("first gradient ready at %.0f %% of backward\n", 100 * p->tensors[0].ready);
}

static void run(const Settings *s) {
    Error err = {0};
    Device *device = must_get(device_open("cpu:0", &err), &err);
    bool pictures = strcmp(s->model, "mlp") != 0;
    ModelConfig model = {s->model,
                         s->hidden,
                         {pictures ? 3 : s->features, pictures ? 32 : 1, pictures ? 32 : 1},
                         s->outputs,
                         .seed = 1};
    Workload w[2];
    ReadyWatch watch[2];
    for (int i = 0; i < 2; i++) {
        w[i] = workload_open(&model, device, i == 0 ? (s->rows + 1) / 2 : s->rows, NULL);
        watch[i] = watch_open(&w[i]);
        for (size_t k = 0; k < watch[i].parameters.count; k++) {
            Tensor *tensor = watch[i].parameters.items[k].tensor;
            tensor->on_ready = gradient_ready;
            tensor->on_ready_context = &watch[i];
        }
    }
    double median[2][PARTS];
    measure(w, watch, s->rounds, median);
    StepProfile profile = profile_of(s, w, &watch[1], median);
    say(&profile, device->kernels, s->rows);
    const size_t rows[] = {w[0].batch, w[1].batch};
    if (s->save) must_do(profile_file_write(&profile, rows, s->save, &err), &err);
    step_profile_free(&profile);
    for (int i = 0; i < 2; i++) {
        watch_close(&watch[i]);
        workload_close(&w[i]);
    }
    device_close(device);
}

int main(int argc, char **argv) {
    Settings s = {.model = "mlp",
                  .hidden = "512,512,512,512,512,512,512,512",
                  .rows = 64,
                  .rounds = 30,
                  .features = 64,
                  .outputs = 10};
    Options options = {.program = "bench_profile",
                       .summary =
                           "Measures the parts of a training step on one device, and when each "
                           "gradient is ready.\n"
                           "Example: bench_profile --model resnet20 --rows 64 --save profile.json"};
    options_add_choice(&options, "model", &s.model, "mlp|convnet|resnet20", "");
    options_add_string(&options, "hidden", &s.hidden, "LIST", "widths of mlp's hidden layers");
    options_add_count(&options, "rows", &s.rows, 2, 1 << 20,
                      "rows of the larger batch; the other has half");
    options_add_count(&options, "features", &s.features, 1, 1 << 20,
                      "numbers in a row of mlp's input");
    options_add_count(&options, "outputs", &s.outputs, 2, 1 << 20, "classes");
    options_add_count(&options, "rounds", &s.rounds, 1, MAX_ROUNDS, "timed steps of each batch");
    options_add_string(&options, "save", &s.save, "FILE", "write the profile as JSON");
    Error err = {0};
    must_do(options_parse(&options, argc, argv, &err), &err);
    run(&s);
    return STATUS_OK;
}
