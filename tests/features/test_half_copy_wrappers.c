/* test_half_copy_wrappers.c: wrappers that write parameters must invalidate the optimizer's 16-bit
 * copies: after DDP's broadcast and after model averaging the next forward reads the new
 * parameters; DataParallel's replicas read no copies.
 */
#include "common/base/half.h"
#include "common/nn/half_copy.h"
#include "common/nn/layers.h"
#include "common/nn/ops.h"
#include "common/nn/optimizer.h"
#include "common/nn/tape.h"
#include "ddp/distributed_data_parallel.h"
#include "ddp/features/post_local_sgd.h"
#include "dp/data_parallel.h"
#include "tests/rigs/check.h"
#include "tests/rigs/ranks.h"

enum { WORLD = 2, ROWS = 4, IN = 6, OUT = 3 };

static const OptimizerConfig SGD = {.kind = OPTIMIZER_SGD, .half_copies = PRECISION_BF16};

static Tensor *run_forward(Tape *tape, Module *module) {
    tape_reset(tape);
    Tensor *x = tape_tensor(tape, DTYPE_F32, 2, (size_t[]){ROWS, IN});
    device_kernels(tape->device)->elementwise->fill(tensor_f32(x), 0.7f, ROWS * IN);
    return op_float32(tape, module_forward(module, tape, x));
}

// Returns whether the copies equal the rounded parameters. Device memory is host memory here.
static bool copies_are_right(Module *model) {
    for (int i = 0; i < 2; i++) {
        const Tensor *tensor = module_parameter(model, i);
        if (!tensor->half || !tensor->half->data || !tensor->half->current) return false;
        for (size_t j = 0; j < tensor_count(tensor); j++)
            if (tensor->half->data[j] != half_to_bf16(tensor_f32(tensor)[j])) return false;
    }
    return true;
}

static void write_parameters(ProcessGroup *group, const void *argument, Outcome *outcome) {
    (void)argument;
    Error err = {0};
    char name[16];
    snprintf(name, sizeof name, "ref:%d", pg_rank(group));
    Device *device = device_open(name, &err);
    Module *model = layer_linear(device, IN, OUT);
    module_initialize(model, 1 + (uint64_t)pg_rank(group)); // differs between ranks
    Optimizer *optimizer = optimizer_create(model, &SGD);
    Tape *tape = tape_create(device, NULL);
    tape->precision = PRECISION_BF16;
    (void)run_forward(tape, model);
    if (!copies_are_right(model)) problem(outcome, "no copies at first");
    const DdpConfig config = ddp_config_default();
    Module *wrapper = distributed_data_parallel(model, group, &config, &err);
    if (!wrapper) problem(outcome, "%s", err.message);
    (void)run_forward(tape, model);
    if (!copies_are_right(model)) problem(outcome, "old copies after the broadcast");
    Tensor *weight = module_parameter(model, 0);
    device_kernels(device)->elementwise->fill(tensor_f32(weight), (float)pg_rank(group), IN * OUT);
    tensor_changed(weight);
    (void)run_forward(tape, model);
    ModelAverager averager = {.period = 1};
    if (model_averager_step(&averager, model, group, &err) != 0)
        problem(outcome, "%s", err.message);
    (void)run_forward(tape, model);
    if (tensor_f32(weight)[0] != 0.5f) problem(outcome, "the mean is not 0.5");
    if (!copies_are_right(model)) problem(outcome, "old copies after averaging");
    tape_close(tape);
    optimizer_close(optimizer);
    module_close(wrapper);
    device_close(device);
}

static void ranks_write_parameters(void **state) {
    (void)state;
    play_ranks(AS_THREADS, WORLD, 60, write_parameters, NULL, NULL);
}

// Trains three steps; outputs[ROWS * OUT] of the last forward.
static void train_replicas(Precision copies, float *outputs) {
    Error err = {0};
    OptimizerConfig sgd = SGD;
    Device *devices[] = {device_open("ref:0", &err), device_open("ref:1", &err)};
    CHECK_OK(devices[0] && devices[1], err);
    Module *model = layer_linear(devices[0], IN, OUT);
    module_initialize(model, 1);
    Module *wrapper = data_parallel(model, devices, 2, &err);
    CHECK_OK(wrapper, err);
    sgd.half_copies = copies;
    Optimizer *optimizer = optimizer_create(model, &sgd);
    Tape *tape = tape_create(devices[0], NULL);
    tape->precision = PRECISION_BF16;
    for (int step = 0; step < 3; step++) {
        module_zero_grad(model);
        Tensor *y = run_forward(tape, wrapper);
        CHECK_OK(tape_error(tape, &err) == 0, err);
        tensor_to_host(y, outputs);
        CHECK_OK(tape_backward(tape, op_mean(tape, y), &err) == 0, err);
        optimizer_step(optimizer, 0.5);
        for (int i = 0; i < 2; i++) {
            const Tensor *parameter = module_parameter(model, i);
            assert_true(!parameter->half || !parameter->half->data);
        }
    }
    tape_close(tape);
    optimizer_close(optimizer);
    module_close(wrapper);
    for (int i = 0; i < 2; i++) device_close(devices[i]);
}

static void replicas_read_no_copies(void **state) {
    (void)state;
    float kept[ROWS * OUT], plain[ROWS * OUT];
    train_replicas(PRECISION_BF16, kept);
    train_replicas(PRECISION_F32, plain);
    assert_memory_equal(kept, plain, sizeof kept);
    assert_true(kept[0] != 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(ranks_write_parameters),
                                       cmocka_unit_test(replicas_read_no_copies)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
