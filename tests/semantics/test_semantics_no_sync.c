/* test_semantics_no_sync.c: forwards that prepare a reduction or a broadcast of buffers, and
 * forwards that do not, by rows of PyTorch's own tests (tests/semantics.md): under no_sync, without
 * gradients, on one rank alone, after an error.
 */
#include "tests/rigs/check.h"
#include "tests/rigs/ddp_models.h"
#include "tests/rigs/ranks.h"

#include "tests/rigs/ddp_toy.h"

#include "ddp/features/comm_hooks.h"
#include "ddp/reducer.h"

// ---- rows 35 to 37: no_sync -------------------------------------------------------------------

typedef struct NoSync {
    bool hook, bypass; // a communication hook is registered; local steps call the inner module
} NoSync;

static void accumulate(ProcessGroup *group, const void *argument, Outcome *outcome) {
    const NoSync *how = argument;
    Rig self = rig_open(group, outcome), *rig = &self;
    const DdpConfig config = ddp_config_default();
    rig_wrap(rig, toy_model(rig->device, 2, 1), &config);
    if (how->hook) ddp_register_comm_hook(rig->wrapper, comm_hook_all_reduce(group), NULL);
    float mine = (float)rig->rank + 1, mean = (float)(rig->world + 1) / 2;
    for (int step = 0; step < 4; step++) {
        Error err = {0};
        module_zero_grad(rig->model);
        uint64_t calls = pg_sequence(group);
        for (int micro = 0; micro < 2; micro++) { // gradients: rank + 1, then twice that
            bool before = ddp_no_sync_begin(rig->wrapper);
            Module *module = how->bypass ? rig->model : rig->wrapper;
            float factors[] = {4 * mine * (float)(micro + 1), 4};
            EXPECT(toy_backward(rig, module, factors, &err) == 0);
            EXPECT(how->bypass || ddp_finish_backward(rig->wrapper, NULL, &err) == 0);
            ddp_no_sync_end(rig->wrapper, before);
        }
        EXPECT(grad_is(rig, 0, 3 * mine) && grad_is(rig, 1, 2)); // local sums, undivided
        EXPECT(pg_sequence(group) == calls); // no collective, not even for a rebuild
        toy_train(rig, (float[]){4 * mine, 4});
        EXPECT(fabsf(rig_parameter(rig, 0)->grad[2] - 4 * mean) < 1e-6f * 4 * mean);
        EXPECT(fabsf(rig_parameter(rig, 1)->grad[0] - 3) < 1e-6f * 3);
        for (int task = 0; task < 2; task++) { // row 37: the same bits on all ranks
            const float *grad = rig_parameter(rig, task)->grad;
            float gathered[5][4];
            EXPECT(pg_run(group, pg_all_gather(grad, gathered, 4, PG_F32), &err) == 0);
            for (int r = 0; r < rig->world; r++)
                EXPECT(memcmp(gathered[r], grad, sizeof gathered[r]) == 0);
        }
    }
    rig_close(rig);
}

static void row_35_37_accumulate_gradients_no_sync(void **state) {
    (void)state;
    for (int world = 1; world <= 5; world++)
        play_both(world, accumulate, &(NoSync){false, false}, NULL);
}

static void row_36_no_sync_with_hook_and_module_bypass(void **state) {
    (void)state;
    play_both(2, accumulate, &(NoSync){true, false}, NULL);
    play_both(3, accumulate, &(NoSync){false, true}, NULL);
}

// The no_sync flag is read in forward: set around the backward alone it has no effect. Contexts
// nest.
static void flag_in_forward(ProcessGroup *group, const void *argument, Outcome *outcome) {
    (void)argument;
    Rig self = rig_open(group, outcome), *rig = &self;
    const DdpConfig config = ddp_config_default();
    rig_wrap(rig, toy_model(rig->device, 1, 1), &config);
    Error err = {0};
    tape_reset(rig->tape);
    Tensor *x =
        tape_input(rig->tape, DTYPE_F32, 1, (size_t[]){1}, (float[]){4.0f * (float)rig->rank + 2});
    Tensor *loss = module_forward(rig->wrapper, rig->tape, x);
    bool outer = ddp_no_sync_begin(rig->wrapper);
    EXPECT(tape_backward(rig->tape, loss, &err) == 0);
    EXPECT(ddp_finish_backward(rig->wrapper, NULL, &err) == 0);
    EXPECT(grad_is(rig, 0, 1)); // reduced
    bool inner = ddp_no_sync_begin(rig->wrapper);
    ddp_no_sync_end(rig->wrapper, inner);
    module_zero_grad(rig->model);
    toy_train(rig, (float[]){4.0f * (float)rig->rank + 4}); // the outer context is still active
    EXPECT(grad_is(rig, 0, (float)rig->rank + 1));
    ddp_no_sync_end(rig->wrapper, outer);
    module_zero_grad(rig->model);
    toy_train(rig, (float[]){4});
    EXPECT(grad_is(rig, 0, 1));
    rig_close(rig);
}

static void row_35_no_sync_is_read_in_forward(void **state) {
    (void)state;
    play_both(2, flag_in_forward, NULL, NULL);
}

// ---- rows 38 to 40, 53: forwards without backward, recovery, buffers --------------------------

static void no_grad(ProcessGroup *group, const void *argument, Outcome *outcome) {
    (void)argument;
    Rig self = rig_open(group, outcome), *rig = &self;
    const DdpConfig config = ddp_config_default();
    rig_wrap(rig, toy_model(rig->device, 2, 1), &config);
    for (int step = 0; step < 3; step++) {
        uint64_t calls = pg_sequence(group);
        tape_reset(rig->tape);
        rig->tape->recording = false;
        Tensor *x = tape_input(rig->tape, DTYPE_F32, 1, (size_t[]){2}, (float[]){1, 3});
        EXPECT(tensor_item(module_forward(rig->wrapper, rig->tape, x)) == 4);
        rig->tape->recording = true;
        EXPECT(!ddp_reducer(rig->wrapper)->expecting && pg_sequence(group) == calls);
        module_zero_grad(rig->model);
        toy_train(rig, (float[]){4, 8});
        EXPECT(grad_is(rig, 0, 1) && grad_is(rig, 1, 2));
    }
    rig_close(rig);
}

static void row_38_no_grad_forward(void **state) {
    (void)state;
    play_both(2, no_grad, NULL, NULL);
}

static void recover(ProcessGroup *group, const void *argument, Outcome *outcome) {
    (void)argument;
    Rig self = rig_open(group, outcome), *rig = &self;
    const DdpConfig config = ddp_config_default();
    rig_wrap(rig, toy_model(rig->device, 2, 1), &config);
    size_t bytes = rig->device->bytes;
    for (int time = 0; time < 3; time++) {
        Error err = {0};
        EXPECT(toy_step(rig, (float[]){1, 0}, &err) != 0); // task 1 is not used
        EXPECT(strstr(err.message, "task1.p"));
        rig_wrap(rig, ddp_unwrap(rig->wrapper), &config);
        toy_train(rig, (float[]){4, 8});
        EXPECT(grad_is(rig, 0, 1) && grad_is(rig, 1, 2));
        rig_wrap(rig, ddp_unwrap(rig->wrapper), &config);
    }
    tape_reset(rig->tape);
    EXPECT(rig->device->bytes >= bytes);
    rig_close(rig); // the device would report leaked memory
}

static void row_39_failure_recovery(void **state) {
    (void)state;
    play_both(2, recover, NULL, NULL);
}

// A module that was trained without a wrapper has gradients. Wrapping frees them: they are None,
// and the first reduced gradient is not added to them. Later steps without zero_grad add to the
// reduced gradients.
static void wrap_trained(ProcessGroup *group, const void *argument, Outcome *outcome) {
    const RigConfig *config = argument;
    Rig self = rig_open(group, outcome), *rig = &self;
    float divisor = config->ddp.global_normalization ? 1 : (float)rig->world;
    rig->model = toy_model(rig->device, 2, 1);
    for (int time = 0; time < 2; time++) {
        Error err = {0};
        EXPECT(toy_backward(rig, rig->model, (float[]){400, 800}, &err) == 0);
        EXPECT(grad_is(rig, 0, 100) && grad_is(rig, 1, 200));
        rig_wrap_with(rig, rig->model, config);
        EXPECT(grad_is_none(rig, 0) && grad_is_none(rig, 1));
        float expected = 0;
        for (int step = 0; step < 3; step++) {
            toy_train(rig, (float[]){4, 2 + 4 * (float)rig->rank});
            expected = (expected + 1) * (float)rig->world / divisor;
            EXPECT(grad_is(rig, 0, expected) && grad_is(rig, 1, expected));
        }
        const float *slice = ddp_reducer(rig->wrapper)->slab.slices[0].data;
        ddp_unwrap(rig->wrapper);
        rig->wrapper = NULL;
        EXPECT(grad_is_none(rig, 0) && grad_is_none(rig, 1));
        EXPECT(rig_parameter(rig, 0)->grad && rig_parameter(rig, 0)->grad != slice); // reallocated
    }
    rig_close(rig);
}

static void row_39_gradients_from_before_the_wrapping(void **state) {
    (void)state;
    for (int kind = 0; kind < 5; kind++)
        for (int global = 0; global <= 1; global++) {
            RigConfig config = rig_config_default();
            config.ddp.global_normalization = global;
            config.find_unused_parameters = kind == 1;
            config.static_graph = kind == 2;
            config.gradients_beside_buckets = kind == 3;
            config.ddp.overlap = kind != 4;
            play_both(2, wrap_trained, &config, NULL);
        }
}

// A backward that fails on all ranks.
typedef struct Failure {
    RigConfig config;
    bool halfway; // task 1's gradient was already reduced; otherwise no gradient was ready
} Failure;

static void fail_backward(Tape *tape, TapeNode *node) {
    (void)node;
    tape_fail(tape, "fragile", "out of luck");
}

static Tensor *fragile(Tape *tape, Tensor *x) {
    Tensor *y = tape_tensor(tape, DTYPE_F32, 0, NULL);
    tensor_f32(y)[0] = tensor_item(x);
    tape_record(tape, "fragile", fail_backward, y, 1, &x, NULL);
    return y;
}

// The toy with three tasks; config[0] selects the operation that fails: 1, task 0's; 2, the last
// one.
static Tensor *fragile_forward(Module *self, Tape *tape, Tensor *x) {
    Tensor *loss = NULL;
    for (int k = 0; k < self->child_count; k++) {
        if (tensor_f32(x)[k] == 0) continue;
        Tensor *p = module_parameter(self->children[k], 0);
        Tensor *mean = op_toy_mean(tape, p, tensor_f32(x)[k]);
        if (k == 0 && self->config[0] == 1) mean = fragile(tape, mean);
        loss = loss ? op_add(tape, loss, mean) : mean;
    }
    return self->config[0] == 2 ? fragile(tape, loss) : loss;
}

static void fail_and_go_on(ProcessGroup *group, const void *argument, Outcome *outcome) {
    const Failure *how = argument;
    Rig self = rig_open(group, outcome), *rig = &self;
    bool fewer = how->config.find_unused_parameters;
    Module *model = toy_model(rig->device, 3, 1);
    model->forward = fragile_forward;
    rig_wrap_with(rig, model, &how->config);
    for (int time = 0; time < 3; time++) {
        Error err = {0};
        module_zero_grad(rig->model);
        model->config[0] = how->halfway ? 1 : 2;
        EXPECT(toy_backward(rig, rig->wrapper, (float[]){1, 1, 1}, &err) != 0);
        EXPECT(strstr(err.message, "out of luck"));
        model->config[0] = 0;
        if (how->halfway) { // the wrapper is unusable: a new one is needed, as in row 39
            EXPECT(toy_step(rig, (float[]){1, 1, 1}, &(Error){0}) != 0);
            rig_wrap_with(rig, ddp_unwrap(rig->wrapper), &how->config);
        }
        for (int step = 0; step < 2; step++) { // a task may be unused now
            module_zero_grad(rig->model);
            toy_train(rig, (float[]){4, 8, fewer ? 0 : 12});
            EXPECT(grad_is(rig, 0, 1) && grad_is(rig, 1, 2));
            EXPECT(fewer ? grad_is_none(rig, 2) : grad_is(rig, 2, 3));
        }
    }
    rig_close(rig);
}

static void row_39_a_backward_that_fails(void **state) {
    (void)state;
    for (int kind = 0; kind < 4; kind++)
        for (int halfway = 0; halfway <= 1; halfway++) {
            Failure how = {rig_config_default(), halfway};
            how.config.ddp.bucket_cap_mb = 0;
            how.config.find_unused_parameters = kind == 1;
            how.config.static_graph = kind == 2;
            how.config.gradients_beside_buckets = kind == 3;
            play_both(2, fail_and_go_on, &how, NULL);
        }
}

static int forward_images(Rig *rig, Module *module, Error *err) {
    float images[2 * IMAGE];
    for (int i = 0; i < 2 * IMAGE; i++) images[i] = (float)(i % 7);
    tape_reset(rig->tape);
    module_forward(module, rig->tape,
                   tape_input(rig->tape, DTYPE_F32, 4, (size_t[]){2, 1, 8, 8}, images));
    return tape_error(rig->tape, err);
}

static void evaluate_alone(ProcessGroup *group, const void *argument, Outcome *outcome) {
    (void)argument;
    Rig self = rig_open(group, outcome), *rig = &self;
    DdpConfig config = ddp_config_default();
    for (int buffers = 0; buffers <= 1; buffers++) {
        config.broadcast_buffers = buffers;
        rig_wrap(rig, test_model("convnet", 3, rig->device), &config);
        rig->tape->training = rig->tape->recording = false;
        uint64_t calls = pg_sequence(group);
        // Rank 0 evaluates alone: with the wrapper if it broadcasts no buffers, else with the inner
        // module.
        Module *module = buffers ? ddp_module(rig->wrapper) : rig->wrapper;
        if (rig->rank == 0) EXPECT(forward_images(rig, module, &outcome->error) == 0);
        EXPECT(pg_sequence(group) == calls);
        rig->tape->training = rig->tape->recording = true;
        Error err = {0};
        EXPECT(test_backward(rig->tape, rig->wrapper, rig->rank, 0, 2, 2, &err) == 0);
        EXPECT(ddp_finish_backward(rig->wrapper, NULL, &err) == 0);
        module_close(rig->wrapper);
    }
    rig->wrapper = rig->model = NULL;
    rig_close(rig);
}

static void row_40_inference_on_one_rank(void **state) {
    (void)state;
    play_both(3, evaluate_alone, NULL, NULL);
}

static void buffer_broadcast(ProcessGroup *group, const void *argument, Outcome *outcome) {
    (void)argument;
    Rig self = rig_open(group, outcome), *rig = &self;
    const DdpConfig config = ddp_config_default();
    rig_wrap(rig, test_model("convnet", 3, rig->device), &config);
    Tensor *mean = &module_child(rig->model, "bn1")->buffers[0].tensor;
    size_t count = tensor_count(mean);
    // The kind of forward before the checked forward.
    enum { SYNC, NO_SYNC, EVALUATION };
    static const int before[] = {SYNC, SYNC, NO_SYNC, EVALUATION, SYNC};
    for (int i = 0; i < 5; i++) {
        Error err = {0};
        if (before[i] == SYNC) {
            EXPECT(test_backward(rig->tape, rig->wrapper, rig->rank, i, 2, 2, &err) == 0);
            EXPECT(ddp_finish_backward(rig->wrapper, NULL, &err) == 0);
        } else if (before[i] == NO_SYNC) {
            bool flag = ddp_no_sync_begin(rig->wrapper);
            EXPECT(test_backward(rig->tape, rig->wrapper, rig->rank, i, 2, 2, &err) == 0);
            ddp_no_sync_end(rig->wrapper, flag);
        } else {
            rig->tape->training = rig->tape->recording = false;
            EXPECT(forward_images(rig, rig->wrapper, &err) == 0);
            rig->tape->training = rig->tape->recording = true;
        }
        rig->device->kernels->elementwise->fill(mean->data, (float)rig->rank + 0.5f, count);
        rig->tape->training = false; // this forward must not update the statistics
        EXPECT(forward_images(rig, rig->wrapper, &err) == 0);
        rig->tape->training = true;
        bool broadcast = before[i] == SYNC;
        EXPECT(all_equal(mean->data, count, broadcast ? 0.5f : (float)rig->rank + 0.5f));
    }
    rig_close(rig);
}

static void row_53_broadcast_buffer(void **state) {
    (void)state;
    play_both(3, buffer_broadcast, NULL, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(row_35_37_accumulate_gradients_no_sync),
        cmocka_unit_test(row_36_no_sync_with_hook_and_module_bypass),
        cmocka_unit_test(row_35_no_sync_is_read_in_forward),
        cmocka_unit_test(row_38_no_grad_forward),
        cmocka_unit_test(row_39_failure_recovery),
        cmocka_unit_test(row_39_gradients_from_before_the_wrapping),
        cmocka_unit_test(row_39_a_backward_that_fails),
        cmocka_unit_test(row_40_inference_on_one_rank),
        cmocka_unit_test(row_53_broadcast_buffer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
