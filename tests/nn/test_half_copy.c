/* test_half_copy.c: 16-bit copies of linear layers' parameters, on the device given as argument
 * ("ref" by default). Training with copies has the bits of training without copies, after each
 * operation that writes parameters.
 */
#include "tests/rigs/check.h"
#include "tests/rigs/half_types.h"
#include "tests/rigs/temp_folder.h"

#include "common/base/half.h"
#include "common/base/memory.h"
#include "common/base/rng.h"
#include "common/nn/grad_scaler.h"
#include "common/nn/half_copy.h"
#include "common/nn/models.h"
#include "common/nn/ops.h"
#include "common/nn/optimizer.h"
#include "common/nn/tape.h"
#include "common/tensor_files/safetensors.h"

static const char *name = "ref";

// A gpt: its output layer has no bias, has padding, and shares the embedding's weight.
enum { VOCABULARY = 23, TEXTS = 2, LENGTH = 5, TOKENS = TEXTS * LENGTH };
enum { LOGITS = TOKENS * VOCABULARY };
static const double LR = 0.01;

typedef struct Training {
    Device *device;
    Module *model;
    NamedTensors parameters;
    Optimizer *optimizer;
    Tape *tape;
} Training;

typedef struct Pair { // two trainings that must have equal bits
    Training kept, plain;
} Pair;

static void training_open(Training *t, OptimizerKind kind, Precision precision, bool keeps) {
    Error err = {0};
    *t = (Training){.device = device_open(name, &err)};
    CHECK_OK(t->device, err);
    const ModelConfig config = {
        .name = "gpt", .outputs = VOCABULARY, .seed = 5, .gpt = {2, 2, 24, LENGTH}};
    const OptimizerConfig optimizer = {.kind = kind,
                                       .momentum = 0.9,
                                       .weight_decay = 0.1,
                                       .beta1 = 0.9,
                                       .beta2 = 0.95,
                                       .eps = 1e-4,
                                       .half_copies = keeps ? precision : PRECISION_F32};
    t->model = model_create(&config, t->device, &err);
    CHECK_OK(t->model, err);
    t->parameters = module_tensors(t->model, MODULE_PARAMETERS);
    t->optimizer = optimizer_create(t->model, &optimizer);
    t->tape = tape_create(t->device, NULL);
    t->tape->precision = precision;
}

static void training_close(Training *t) {
    tape_close(t->tape);
    optimizer_close(t->optimizer);
    for (size_t i = 0; i < t->parameters.count; i++)
        assert_null(t->parameters.items[i].tensor->half);
    named_tensors_free(&t->parameters);
    module_close(t->model);
    device_close(t->device);
}

static Precision precision_of_device(void) {
    Error err = {0};
    Device *device = device_open(name, &err);
    CHECK_OK(device, err);
    const Precision precision = first_half(device);
    device_close(device);
    return precision;
}

static Pair pair_open(OptimizerKind kind, Precision precision) {
    Pair pair;
    training_open(&pair.kept, kind, precision, true);
    training_open(&pair.plain, kind, precision, false);
    return pair;
}

static void pair_close(Pair *pair) {
    training_close(&pair->kept);
    training_close(&pair->plain);
}

static Tensor *run_forward(const Training *t) {
    Error err = {0};
    int64_t tokens[TOKENS];
    for (size_t i = 0; i < TOKENS; i++)
        tokens[i] = (int64_t)rng_below(9, RNG_STREAM_TEST, i, VOCABULARY);
    tape_reset(t->tape);
    Tensor *input = tape_input(t->tape, DTYPE_I64, 2, (size_t[]){TEXTS, LENGTH}, tokens);
    Tensor *output = op_float32(t->tape, module_forward(t->model, t->tape, input));
    CHECK_OK(tape_error(t->tape, &err) == 0, err);
    return output;
}

static void run_backward(const Training *t) {
    Error err = {0};
    int64_t labels[TOKENS];
    for (size_t i = 0; i < TOKENS; i++)
        labels[i] = (int64_t)rng_below(8, RNG_STREAM_TEST, i, VOCABULARY);
    module_zero_grad(t->model);
    Tensor *output = run_forward(t);
    Tensor *target = tape_input(t->tape, DTYPE_I64, 1, (size_t[]){TOKENS}, labels);
    Tensor *loss = op_cross_entropy(t->tape, output, target, TOKENS);
    CHECK_OK(tape_backward(t->tape, loss, &err) == 0, err);
}

static void train_step(const Training *t) {
    run_backward(t);
    optimizer_step(t->optimizer, LR);
}

static void train_both(Pair *pair) {
    train_step(&pair->kept);
    train_step(&pair->plain);
}

static uint16_t rounded(Precision precision, float value) {
    return precision == PRECISION_F16 ? half_to_f16(value) : half_to_bf16(value);
}

// Returns the number of parameters with a copy. Each copy must be current and equal the rounded
// parameter.
static int check_copies(const Training *t) {
    int copies = 0;
    for (size_t i = 0; i < t->parameters.count; i++) {
        const Tensor *tensor = t->parameters.items[i].tensor;
        const size_t count = tensor_count(tensor);
        if (!tensor->half || !tensor->half->data) continue;
        float *values = memory_zalloc(count * sizeof *values);
        uint16_t *halves = memory_zalloc(count * sizeof *halves);
        tensor_to_host(tensor, values);
        device_copy(NULL, halves, t->device, tensor->half->data, count * sizeof *halves);
        assert_true(tensor->half->current);
        for (size_t j = 0; j < count; j++)
            if (halves[j] != rounded(tensor->half->precision, values[j]))
                fail_msg("%s[%zu]: the copy is %04x of %g", t->parameters.items[i].name, j,
                         (unsigned)halves[j], (double)values[j]);
        free(values);
        free(halves);
        copies++;
    }
    return copies;
}

// Both trainings have the same parameters and outputs.
static void check_same(const Pair *pair) {
    for (size_t i = 0; i < pair->kept.parameters.count; i++) {
        const Tensor *a = pair->kept.parameters.items[i].tensor;
        const Tensor *b = pair->plain.parameters.items[i].tensor;
        float *x = memory_zalloc(tensor_bytes(a)), *y = memory_zalloc(tensor_bytes(b));
        tensor_to_host(a, x);
        tensor_to_host(b, y);
        assert_memory_equal(x, y, tensor_bytes(a));
        free(x);
        free(y);
    }
    float x[LOGITS], y[LOGITS];
    tensor_to_host(run_forward(&pair->kept), x);
    tensor_to_host(run_forward(&pair->plain), y);
    assert_memory_equal(x, y, sizeof x);
}

// Four weights and their biases in each block; the output layer's weight.
enum { COPIES = 2 * 4 * 2 + 1 };

static void steps_have_the_same_bits(void **state) {
    (void)state;
    const Precision first = precision_of_device();
    for (int p = (int)first; p <= PRECISION_F16; p++)
        for (int kind = OPTIMIZER_SGD; kind <= OPTIMIZER_ADAMW; kind++) {
            Pair pair = pair_open((OptimizerKind)kind, (Precision)p);
            for (int step = 0; step < 3; step++) {
                train_both(&pair);
                assert_int_equal(check_copies(&pair.kept), COPIES);
                assert_int_equal(check_copies(&pair.plain), 0);
                check_same(&pair);
            }
            pair_close(&pair);
        }
}

// Only a recording forward makes copies; other forwards read them.
static void evaluation_reads_copies(void **state) {
    (void)state;
    Pair pair = pair_open(OPTIMIZER_ADAMW, precision_of_device());
    Tape *kept = pair.kept.tape, *plain = pair.plain.tape;
    for (int step = 0; step < 2; step++) {
        kept->recording = plain->recording = false;
        check_same(&pair);
        assert_int_equal(check_copies(&pair.kept), step ? COPIES : 0);
        kept->recording = plain->recording = true;
        train_both(&pair);
    }
    // Copies of another type are ignored.
    const Precision others[] = {PRECISION_F16, PRECISION_F32};
    for (int i = 0; i < 2; i++) {
        kept->precision = plain->precision = others[i];
        check_same(&pair);
    }
    pair_close(&pair);
}

static void scale_on_host(const Training *t) {
    for (size_t i = 0; i < t->parameters.count; i++) {
        Tensor *tensor = t->parameters.items[i].tensor;
        float *values = memory_zalloc(tensor_bytes(tensor));
        tensor_to_host(tensor, values);
        for (size_t j = 0; j < tensor_count(tensor); j++) values[j] *= 1.5f;
        tensor_from_host(tensor, values);
        free(values);
    }
}

// ndim: of the parameters that are scaled; 0: any.
static void scale_some(const Training *t, int ndim) {
    for (size_t i = 0; i < t->parameters.count; i++) {
        const Tensor *tensor = t->parameters.items[i].tensor;
        if (ndim > 0 && tensor->ndim != ndim) continue;
        device_kernels(t->device)->elementwise->scale(tensor_f32(tensor), 1.5f,
                                                      tensor_count(tensor));
        tensor_changed(tensor);
    }
}

static void scale_on_device(const Training *t) {
    scale_some(t, 0);
}

// A layer's two copies are one memory, and are outdated by each of the two.
static void scale_biases(const Training *t) {
    scale_some(t, 1);
}

static void scale_weights(const Training *t) {
    scale_some(t, 2);
}

// A step of another optimizer, which keeps no copies.
static void step_of_another(const Training *t) {
    Optimizer *other = optimizer_create(t->model, &(OptimizerConfig){.kind = OPTIMIZER_SGD});
    run_backward(t);
    optimizer_step(other, 4 * LR);
    optimizer_close(other);
}

static void step_by_parameters(const Training *t) {
    run_backward(t);
    optimizer_begin_parameters(t->optimizer, LR);
    for (size_t i = 0; i < t->parameters.count; i++) optimizer_step_parameter(t->optimizer, i);
    optimizer_end_step(t->optimizer);
    check_copies(t);
}

static void writers_outdate_copies(void **state) {
    (void)state;
    void (*const writers[])(const Training *) = {scale_on_host,   scale_on_device,
                                                 scale_biases,    scale_weights,
                                                 step_of_another, step_by_parameters};
    for (size_t w = 0; w < sizeof writers / sizeof *writers; w++) {
        Pair pair = pair_open(OPTIMIZER_ADAMW, precision_of_device());
        for (int step = 0; step < 2; step++) {
            train_both(&pair);
            writers[w](&pair.kept);
            writers[w](&pair.plain);
            check_same(&pair);
            assert_int_equal(check_copies(&pair.kept), COPIES);
        }
        pair_close(&pair);
    }
}

static void a_file_outdates_copies(void **state) {
    Error err = {0};
    Pair pair = pair_open(OPTIMIZER_ADAMW, precision_of_device());
    char *path = memory_format("%s/weights.safetensors", (const char *)*state);
    CHECK_OK(safetensors_save_module(path, pair.plain.model, NULL, 0, &err) == 0, err);
    train_step(&pair.kept);
    CHECK_OK(safetensors_load_module(path, pair.kept.model, &err) == 0, err);
    check_same(&pair);
    free(path);
    pair_close(&pair);
}

// A captured step reads copies without checking them: optimizer_begin_step refreshes them first.
static void a_step_begins_with_current_copies(void **state) {
    (void)state;
    Training t;
    training_open(&t, OPTIMIZER_ADAMW, precision_of_device(), true);
    run_backward(&t);
    scale_on_host(&t);
    optimizer_begin_step(t.optimizer, LR);
    assert_int_equal(check_copies(&t), COPIES);
    optimizer_apply(t.optimizer);
    optimizer_end_step(t.optimizer);
    assert_int_equal(check_copies(&t), COPIES);
    training_close(&t);
}

// A step skipped for an infinite gradient changes neither parameters nor copies.
static void a_skipped_step_changes_nothing(void **state) {
    (void)state;
    Error err = {0};
    Pair pair = pair_open(OPTIMIZER_ADAMW, PRECISION_F16);
    const GradScalerState start = grad_scaler_default();
    GradScaler scaler = {0};
    CHECK_OK(grad_scaler_load(&scaler, &start, &err) == 0, err);
    train_both(&pair);
    run_backward(&pair.kept);
    const Tensor *weight = pair.kept.parameters.items[2].tensor;
    device_kernels(pair.kept.device)->elementwise->fill(weight->grad, INFINITY, 1);
    CHECK_OK(grad_scaler_step(&scaler, pair.kept.optimizer, LR, &err) == 0, err);
    assert_true(scaler.found_inf);
    assert_int_equal(check_copies(&pair.kept), COPIES);
    check_same(&pair);
    pair_close(&pair);
}

// Two layers share a weight, and only the first one's bias can be stored behind it.
static void a_shared_weight_has_one_layout(void **state) {
    (void)state;
    const Precision precision = precision_of_device();
    float outputs[2][TOKENS * 24 * 2];
    for (int keeps = 0; keeps < 2; keeps++) {
        Training t;
        training_open(&t, OPTIMIZER_SGD, precision, keeps);
        Tensor *weight = NULL, *biases[2] = {NULL, NULL};
        for (size_t i = 0; i < t.parameters.count; i++) {
            Tensor *tensor = t.parameters.items[i].tensor;
            if (strstr(t.parameters.items[i].name, "attn.c_proj.weight")) weight = tensor;
            if (strstr(t.parameters.items[i].name, "attn.c_proj.bias"))
                biases[biases[0] != NULL] = tensor;
        }
        scale_on_host(&t);
        for (int repeat = 0; repeat < 3; repeat++) {
            Tensor *x = tape_tensor(t.tape, DTYPE_F32, 2, (size_t[]){TOKENS, 24});
            device_kernels(t.device)->elementwise->fill(tensor_f32(x), 0.3f, TOKENS * 24);
            Tensor *y[] = {op_linear(t.tape, x, weight, biases[0]),
                           op_linear(t.tape, x, weight, biases[1])};
            for (size_t k = 0; k < 2; k++)
                tensor_to_host(op_float32(t.tape, y[k]), outputs[keeps] + k * TOKENS * 24);
            if (repeat) continue;
            device_kernels(t.device)->elementwise->fill(tensor_f32(biases[1]), 7, 24);
            tensor_changed(biases[1]);
        }
        training_close(&t);
    }
    assert_memory_equal(outputs[0], outputs[1], sizeof outputs[0]);
}

// With a sharded optimizer other processes write parts of each parameter: no copies.
static void a_sharded_optimizer_keeps_none(void **state) {
    (void)state;
    Training t;
    training_open(&t, OPTIMIZER_ADAMW, precision_of_device(), false);
    OptimizerPart *parts = memory_zalloc(t.parameters.count * sizeof *parts);
    OptimizerSharding sharding = {.parts = parts};
    const OptimizerConfig config = {
        .kind = OPTIMIZER_ADAMW, .sharding = &sharding, .half_copies = t.tape->precision};
    Optimizer *optimizer = optimizer_create(t.model, &config);
    for (size_t i = 0; i < t.parameters.count; i++) assert_null(t.parameters.items[i].tensor->half);
    (void)run_forward(&t);
    optimizer_close(optimizer);
    free(parts);
    training_close(&t);
}

int main(int argc, char **argv) {
    if (argc > 1) name = argv[1];
    if (device_available(name) == 0) return STATUS_SKIPPED;
    const struct CMUnitTest tests[] = {cmocka_unit_test(steps_have_the_same_bits),
                                       cmocka_unit_test(evaluation_reads_copies),
                                       cmocka_unit_test(writers_outdate_copies),
                                       cmocka_unit_test_setup_teardown(a_file_outdates_copies,
                                                                       temp_folder_make,
                                                                       temp_folder_remove),
                                       cmocka_unit_test(a_step_begins_with_current_copies),
                                       cmocka_unit_test(a_skipped_step_changes_nothing),
                                       cmocka_unit_test(a_shared_weight_has_one_layout),
                                       cmocka_unit_test(a_sharded_optimizer_keeps_none)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
