/* test_gpt_cuda.c: ten training steps of a gpt on a GPU agree with the CPU's within each
 * precision's rounding; replayed from a graph, they agree with the eager steps bit for bit.
 */
#include "tests/rigs/check.h"
#include "tests/rigs/half_types.h"

#include "common/base/memory.h"
#include "common/base/rng.h"
#include "common/nn/clip.h"
#include "common/nn/models.h"
#include "common/nn/ops.h"
#include "common/nn/optimizer.h"
#include "common/nn/tape.h"

// 37 tokens are not a multiple of a tile; a head has 20 elements.
enum { VOCABULARY = 23, TEXTS = 3, LENGTH = 37, TOKENS = TEXTS * LENGTH, STEPS = 10 };
static const double LR = 0.003;

typedef struct Training {
    Device *device;
    Module *model;
    Optimizer *optimizer;
    NamedTensors parameters;
    GradClip *clip;
    Tape *tape;
    int64_t *tokens; // [TEXTS, LENGTH], then the next tokens; device memory
    int64_t *hits;   // [1], device memory
} Training;

static void training_open(Training *t, const char *device_name, Precision precision) {
    Error err = {0};
    *t = (Training){.device = device_open(device_name, &err)};
    CHECK_OK(t->device, err);
    const ModelConfig config = {
        .name = "gpt", .outputs = VOCABULARY, .seed = 5, .gpt = {2, 2, 40, LENGTH}};
    const OptimizerConfig adamw = {.kind = OPTIMIZER_ADAMW,
                                   .weight_decay = 0.1,
                                   .decay_matrices_only = true,
                                   .beta1 = 0.9,
                                   .beta2 = 0.95,
                                   .eps = 1e-4, // a gradient near 0 must not move a weight by lr
                                   .half_copies = precision};
    t->model = model_create(&config, t->device, &err);
    CHECK_OK(t->model, err);
    t->optimizer = optimizer_create(t->model, &adamw);
    t->parameters = module_tensors(t->model, MODULE_PARAMETERS);
    t->clip = grad_clip_open(&t->parameters, NULL);
    t->tape = tape_create(t->device, NULL);
    t->tape->precision = precision;
    t->tokens = device_alloc(t->device, 2 * TOKENS * sizeof *t->tokens);
    t->hits = device_alloc(t->device, sizeof *t->hits);
}

static void training_close(Training *t) {
    device_free(t->device, t->tokens, 2 * TOKENS * sizeof *t->tokens);
    device_free(t->device, t->hits, sizeof *t->hits);
    tape_close(t->tape);
    grad_clip_close(t->clip);
    named_tensors_free(&t->parameters);
    optimizer_close(t->optimizer);
    module_close(t->model);
    device_close(t->device);
}

static void give_tokens(Training *t, size_t step) {
    int64_t tokens[2 * TOKENS];
    for (size_t i = 0; i < 2 * TOKENS; i++)
        tokens[i] = (int64_t)rng_below(9, RNG_STREAM_TEST, step * 2 * TOKENS + i, VOCABULARY);
    device_copy(t->device, t->tokens, NULL, tokens, sizeof tokens);
}

// Runs a step without the optimizer. Returns the loss, in device memory.
static const float *ask_for_gradients(Training *t) {
    Error err = {0};
    const size_t shape[] = {TEXTS, LENGTH}, rows = TOKENS;
    module_zero_grad(t->model);
    Tensor *input = tape_view(t->tape, DTYPE_I64, 2, shape, t->tokens);
    Tensor *wanted = tape_view(t->tape, DTYPE_I64, 1, &rows, t->tokens + TOKENS);
    Tensor *output = module_forward(t->model, t->tape, input);
    Tensor *loss = op_cross_entropy_and_hits(t->tape, output, wanted, TOKENS, t->hits);
    CHECK_OK(tape_error(t->tape, &err) == 0, err);
    CHECK_OK(tape_backward(t->tape, loss, &err) == 0, err);
    grad_clip_queue(t->clip, 0.5);
    return tensor_f32(loss);
}

// Trains and fills losses[STEPS]. graph_from: the first step that is replayed from a graph.
static void train(Training *t, size_t graph_from, float *losses) {
    Error err = {0};
    DeviceGraph *graph = NULL;
    const float *loss = NULL;
    for (size_t step = 0; step < STEPS; step++) {
        give_tokens(t, step);
        if (step == graph_from) {
            tape_reset(t->tape);
            CHECK_OK(device_graph_begin(t->device, &err) == 0, err);
            loss = ask_for_gradients(t);
            optimizer_apply(t->optimizer);
            graph = device_graph_end(t->device, &err);
            CHECK_OK(graph, err);
        }
        if (graph) {
            optimizer_begin_step(t->optimizer, LR);
            device_graph_launch(t->device, graph);
        } else {
            tape_reset(t->tape);
            loss = ask_for_gradients(t);
            optimizer_step(t->optimizer, LR);
        }
        device_copy(NULL, &losses[step], t->device, loss, sizeof *losses);
    }
    device_graph_close(t->device, graph);
}

static float *read_parameter(const Training *t, size_t i) {
    const Tensor *tensor = t->parameters.items[i].tensor;
    float *values = memory_zalloc(tensor_bytes(tensor));
    device_copy(NULL, values, t->device, tensor->data, tensor_bytes(tensor));
    return values;
}

// Compares the weights; bound is relative to the largest weight, 0: equal bits.
static void compare(const Training *a, const Training *b, double bound) {
    for (size_t i = 0; i < a->parameters.count; i++) {
        float *x = read_parameter(a, i), *y = read_parameter(b, i);
        size_t count = tensor_count(a->parameters.items[i].tensor);
        double largest = 0, apart = 0;
        for (size_t j = 0; j < count; j++) {
            largest = fmax(largest, fabs((double)y[j]));
            double distance = fabs((double)x[j] - (double)y[j]);
            apart = distance <= apart ? apart : distance; // keeps NaN
        }
        if (bound > 0 ? !(apart <= bound * largest) : memcmp(x, y, count * sizeof *x) != 0)
            fail_msg("%s: %g apart, the largest is %g", a->parameters.items[i].name, apart,
                     largest);
        free(x);
        free(y);
    }
}

static void ten_steps_follow_the_cpu(void **state) {
    (void)state;
    // Bounds of losses, and of weights after ten steps of AdamW. 16-bit sums midway between two
    // numbers round either way, and AdamW turns small gradients into steps of full size.
    const double loss_bounds[] = {2e-6, 2e-4, 3e-5}, weight_bounds[] = {2e-4, 0.03, 8e-3};
    for (int p = PRECISION_F32; p <= PRECISION_F16; p++) {
        Training gpu, cpu;
        training_open(&gpu, "cuda:0", (Precision)p);
        if (p == PRECISION_BF16 && first_half(gpu.device) != PRECISION_BF16) {
            training_close(&gpu);
            continue;
        }
        training_open(&cpu, "cpu:0", (Precision)p);
        float found[STEPS], wanted[STEPS];
        train(&gpu, STEPS, found);
        train(&cpu, STEPS, wanted);
        for (int i = 0; i < STEPS; i++)
            check_close((double)found[i], (double)wanted[i], loss_bounds[p],
                        "a loss on the GPU and on the CPU");
        compare(&gpu, &cpu, weight_bounds[p]);
        training_close(&gpu);
        training_close(&cpu);
    }
}

static void a_graph_is_the_steps_themselves(void **state) {
    (void)state;
    for (int half = 0; half < 2; half++) {
        Training eager, graph;
        // Each forward rounds the parameters; the graph reads the optimizer's rounded copies.
        training_open(&eager, "cuda:0", PRECISION_F32);
        if (half) eager.tape->precision = first_half(eager.device);
        training_open(&graph, "cuda:0", eager.tape->precision);
        float found[STEPS], wanted[STEPS];
        train(&graph, 3, found);
        train(&eager, STEPS, wanted);
        assert_memory_equal(found, wanted, sizeof found);
        compare(&graph, &eager, 0);
        training_close(&graph);
        training_close(&eager);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(ten_steps_follow_the_cpu),
                                       cmocka_unit_test(a_graph_is_the_steps_themselves)};
    if (device_available("cuda") == 0) return STATUS_SKIPPED;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
