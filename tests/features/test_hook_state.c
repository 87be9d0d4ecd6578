/* test_hook_state.c: hooks' state in checkpoints: a resumed run has the bits of an uninterrupted
 * one; a state that does not match is refused and changes nothing. (The programs' checkpoints:
 * training.sh.)
 */
#include "tests/rigs/check.h"
#include "tests/rigs/ranks.h"

#include "tests/rigs/captured.h"
#include "tests/rigs/ddp_toy.h"

#include "common/base/half.h"
#include "common/base/rng.h"
#include "ddp/features/comm_hooks.h"
#include "ddp/features/hook_state.h"
#include "ddp/features/optimizer_hook.h"
#include "ddp/features/post_local_sgd.h"
#include "ddp/features/powersgd_hook.h"
#include "ddp/reducer.h"
#include "tests/rigs/temp_folder.h"

enum { STEPS = 6, CUT = 3, ROWS = 4, COLUMNS = 5, COUNT = ROWS * COLUMNS };

typedef struct Plan {
    const char *folder;
    uint64_t start_iteration;
    bool no_warm_start;
} Plan;

static PowerSgdConfig power_sgd_of(const Plan *plan) {
    PowerSgdConfig config = power_sgd_config_default();
    config.start_iteration = plan->start_iteration;
    config.warm_start = !plan->no_warm_start;
    config.min_compression_rate = 0.5; // the test's matrix is too small for the default
    return config;
}

// Wraps a new model and registers PowerSGD's hook inside two other hooks.
static PowerSgd *begin(Rig *rig, const PowerSgdConfig *powersgd) {
    const DdpConfig config = ddp_config_default();
    rig_wrap(rig, matrix_model(rig->device, COLUMNS, ROWS, 0.5f), &config);
    PowerSgd *power = power_sgd_create(ddp_reducer(rig->wrapper), powersgd, &rig->outcome->error);
    EXPECT(power);
    CommHook hook = comm_hook_round(comm_hook_round(power_sgd_hook(power), PG_BF16), PG_BF16);
    EXPECT(ddp_register_comm_hook(rig->wrapper, hook, NULL) == 0);
    return power;
}

static void end(Rig *rig, PowerSgd *power) {
    power_sgd_close(power);
    module_close(rig->wrapper);
    rig->wrapper = rig->model = NULL;
}

static const CommHook *hook_of(Rig *rig) {
    return &ddp_reducer(rig->wrapper)->hook;
}

static RunLog silent(void) {
    return log_open(true);
}

// A step whose gradient [4, 5] is random: x is the unit matrix, so the gradient is dy.
static void step(Rig *rig, int number) {
    Error *err = &rig->outcome->error;
    tape_reset(rig->tape);
    module_zero_grad(rig->model);
    Tensor *x = tape_tensor(rig->tape, DTYPE_F32, 2, (size_t[]){COLUMNS, COLUMNS});
    for (size_t i = 0; i < COLUMNS * COLUMNS; i++) tensor_f32(x)[i] = i % (COLUMNS + 1) == 0;
    Tensor *y = module_forward(rig->wrapper, rig->tape, x); // [5, 4]
    float *dy = tape_make_grad(rig->tape, y);
    for (uint64_t i = 0; i < COUNT; i++)
        dy[i] = rng_normal(4, RNG_STREAM_TEST, (uint64_t)(number * 8 + rig->rank) * COUNT + i);
    EXPECT(tape_backward(rig->tape, y, err) == 0);
    EXPECT(ddp_finish_backward(rig->wrapper, NULL, err) == 0);
}

static char *file_of(const Plan *plan) {
    return memory_format("%s/hook.safetensors", plan->folder);
}

// All ranks take part; rank 0 writes the file.
static void save(Rig *rig, const Plan *plan) {
    Error *err = &rig->outcome->error;
    SafeTensors content;
    char *path = file_of(plan);
    EXPECT(hook_of(rig)->save(hook_of(rig)->state, &content, err) == 0);
    EXPECT(rig->rank == 0 || content.count == 0);
    if (rig->rank == 0) EXPECT(safetensors_write(path, &content, err) == 0);
    safetensors_free(&content);
    EXPECT(pg_run(rig->group, pg_barrier(), err) == 0);
    free(path);
}

static int load(Rig *rig, const Plan *plan, Error *err) {
    SafeTensors content;
    RunLog log = silent();
    char *path = file_of(plan);
    EXPECT(safetensors_read(path, &content, err) == 0);
    int status = hook_of(rig)->load(hook_of(rig)->state, "FILE", &content, &log, err);
    safetensors_free(&content);
    free(path);
    return status;
}

// Copies the state's tensor `name` to values: each rank's own part (own), or the shared one. It is
// read from a checkpoint, so all ranks must call.
static void carried(Rig *rig, const char *name, bool own, float *values, size_t count) {
    SafeTensors content;
    Error *err = &rig->outcome->error;
    size_t all = own ? count * (size_t)rig->world : count;
    float *copy = memory_zalloc(all * sizeof *copy);
    EXPECT(hook_of(rig)->save(hook_of(rig)->state, &content, err) == 0);
    if (rig->rank == 0) memcpy(copy, safetensors_find(&content, name)->data, all * sizeof *copy);
    EXPECT(pg_run(rig->group, pg_broadcast(copy, all, PG_F32, 0), err) == 0);
    memcpy(values, copy + (own ? (size_t)rig->rank * count : 0), count * sizeof *copy);
    safetensors_free(&content);
    free(copy);
}

static void carried_error(Rig *rig, float error[COUNT]) {
    carried(rig, "powersgd.error.weight", true, error, COUNT);
}

// ---- the same number of ranks -----------------------------------------------------------------

typedef struct End { // a run's final state on one rank
    float grad[COUNT], error[COUNT];
} End;

static End look(Rig *rig) {
    End end;
    memcpy(end.grad, rig->model->parameters[0].tensor.grad, sizeof end.grad);
    carried_error(rig, end.error);
    return end;
}

static void cut_and_go_on(ProcessGroup *group, const void *argument, Outcome *outcome) {
    const Plan *plan = argument;
    const PowerSgdConfig powersgd = power_sgd_of(plan);
    Rig self = rig_open(group, outcome), *rig = &self;
    PowerSgd *power = begin(rig, &powersgd);
    for (int i = 0; i < STEPS; i++) step(rig, i);
    const End straight = look(rig);
    end(rig, power);

    power = begin(rig, &powersgd);
    for (int i = 0; i < CUT; i++) step(rig, i);
    save(rig, plan);
    end(rig, power);
    power = begin(rig, &powersgd);
    EXPECT(load(rig, plan, &outcome->error) == 0);
    EXPECT(power_sgd_iteration(power) == CUT);
    for (int i = CUT; i < STEPS; i++) step(rig, i);
    const End resumed = look(rig);
    EXPECT(memcmp(straight.grad, resumed.grad, sizeof straight.grad) == 0);
    EXPECT(memcmp(straight.error, resumed.error, sizeof straight.error) == 0);
    EXPECT(!all_equal(resumed.error, COUNT, 0));
    end(rig, power);

    power = begin(rig, &powersgd); // without the saved state, the bits must differ
    for (int i = CUT; i < STEPS; i++) step(rig, i);
    const End anew = look(rig);
    EXPECT(memcmp(straight.grad, anew.grad, sizeof straight.grad) != 0);
    end(rig, power);
    rig_close(rig);
}

// The cut is after compression has begun, one step before, and earlier.
static void row_65_hook_state_in_checkpoints(void **state) {
    for (int world = 2; world <= 3; world++)
        for (int warm = 0; warm < 2; warm++)
            for (uint64_t start = CUT - 1; start <= CUT + 1; start++)
                play_both(world, cut_and_go_on, &(Plan){*state, start, !warm}, NULL);
}

// ---- states that do not match -----------------------------------------------------------------

static void refuse(Rig *rig, const SafeTensors *content, const char *words) {
    Error err = {0};
    RunLog log = silent();
    float error[COUNT];
    EXPECT(hook_of(rig)->load(hook_of(rig)->state, "FILE", content, &log, &err) != 0);
    EXPECT(err.status == STATUS_USAGE);
    if (!strstr(err.message, words)) problem(rig->outcome, "no \"%s\": %s", words, err.message);
    carried_error(rig, error);
    EXPECT(all_equal(error, COUNT, 0)); // unchanged
}

static void refuse_what_does_not_fit(ProcessGroup *group, const void *argument, Outcome *outcome) {
    const Plan *plan = argument;
    PowerSgdConfig powersgd = power_sgd_of(plan);
    Rig self = rig_open(group, outcome), *rig = &self;
    PowerSgd *power = begin(rig, &powersgd);
    for (int i = 0; i < CUT; i++) step(rig, i);
    save(rig, plan);
    end(rig, power);

    char *path = file_of(plan);
    SafeTensors content;
    EXPECT(safetensors_read(path, &content, &outcome->error) == 0);
    power = begin(rig, &powersgd);
    for (size_t i = 0; i < content.count; i++) { // each tensor missing in turn
        SafeEntry last = content.entries[content.count - 1], missing = content.entries[i];
        content.entries[i] = last;
        content.count--;
        refuse(rig, &content, missing.name);
        refuse(rig, &content, "is missing");
        content.entries[i] = missing;
        content.entries[content.count++] = last;
    }
    for (size_t i = 0; i < content.count; i++) { // each tensor with another dtype
        SafeEntry entry = content.entries[i];
        content.entries[i].ndim = 0;
        content.entries[i].dtype = entry.dtype == DTYPE_F32 ? DTYPE_I64 : DTYPE_F32;
        refuse(rig, &content, "has not the shape that powerSGD has in this run");
        content.entries[i] = entry;
    }
    end(rig, power);
    powersgd.rank = 2;
    power = begin(rig, &powersgd);
    refuse(rig, &content, "powersgd.q.weight has not the shape");
    end(rig, power);
    powersgd.min_compression_rate = 9; // no matrix is compressed
    power = begin(rig, &powersgd);
    Error err = {0};
    EXPECT(load(rig, plan, &err) != 0);
    EXPECT(strstr(err.message, "FILE: holds 4 tensors of powerSGD, which has 2"));
    EXPECT(power_sgd_iteration(power) == 0);
    RunLog log = silent();
    EXPECT(hook_of(rig)->load(hook_of(rig)->state, "FILE", &(SafeTensors){0}, &log, &err) == 0);
    end(rig, power);
    safetensors_free(&content);
    free(path);
    rig_close(rig);
}

static void row_65_hook_state_that_does_not_fit(void **state) {
    play_both(2, refuse_what_does_not_fit, &(Plan){.folder = *state, .start_iteration = 2}, NULL);
}

// ---- another world size -----------------------------------------------------------------------

static void leave_state(ProcessGroup *group, const void *argument, Outcome *outcome) {
    const PowerSgdConfig powersgd = power_sgd_of(argument);
    Rig self = rig_open(group, outcome), *rig = &self;
    PowerSgd *power = begin(rig, &powersgd);
    for (int i = 0; i < CUT; i++) step(rig, i);
    save(rig, argument);
    end(rig, power);
    rig_close(rig);
}

static void take_state(ProcessGroup *group, const void *argument, Outcome *outcome) {
    const PowerSgdConfig powersgd = power_sgd_of(argument);
    Rig self = rig_open(group, outcome), *rig = &self;
    PowerSgd *power = begin(rig, &powersgd);
    for (int i = 0; i < CUT; i++) step(rig, i); // allocates a state, which the load replaces
    EXPECT(load(rig, argument, &outcome->error) == 0);
    EXPECT(power_sgd_iteration(power) == CUT);
    float error[COUNT], carried_q[COUNT];
    carried_error(rig, error);
    EXPECT(all_equal(error, COUNT, 0));
    char *path = file_of(argument);
    SafeTensors content;
    EXPECT(safetensors_read(path, &content, &outcome->error) == 0);
    const SafeEntry *q = safetensors_find(&content, "powersgd.q.weight");
    EXPECT(q->bytes <= sizeof carried_q && q->ndim == 2);
    EXPECT(safetensors_find(&content, "powersgd.iteration")->ndim == 0);
    EXPECT(safetensors_find(&content, "powersgd.compressed")->ndim == 0);
    carried(rig, "powersgd.q.weight", false, carried_q, q->bytes / sizeof *carried_q);
    EXPECT(memcmp(carried_q, q->data, q->bytes) == 0);
    EXPECT(!all_equal(q->data, COLUMNS, 0));
    for (int i = CUT; i < STEPS; i++) step(rig, i);
    safetensors_free(&content);
    free(path);
    end(rig, power);
    rig_close(rig);
}

static void row_65_hook_state_on_other_ranks(void **state) {
    const Plan plan = {.folder = *state, .start_iteration = 2};
    play_both(2, leave_state, &plan, NULL);
    play_both(3, take_state, &plan, NULL);
    play_both(1, take_state, &plan, NULL);
    play_both(3, leave_state, &plan, NULL);
    play_both(2, take_state, &plan, NULL);
}

// ---- several tensors --------------------------------------------------------------------------

typedef struct Several {
    float a, b[3];
    int64_t shared;
} Several;

// Restores rank 0's gathered state on each rank, with one field changed. Returns the note that was
// printed (to be freed), or NULL if the state is refused with an error that contains `words`.
static char *restore_changed(Rig *rig, HookState *state, SafeTensors *content, int tensor,
                             int dimension, size_t value, const char *words) {
    Error err = {0};
    RunLog log = log_open(false);
    SafeEntry *entry = &content->entries[tensor];
    const SafeEntry before = *entry;
    if (dimension < 0)
        entry->ndim = 0;
    else
        entry->shape[dimension] = value;
    Captured captured = captured_begin();
    const int status = hook_state_restore(state, "FILE", content, &log, &err);
    char *said = captured_end(&captured);
    *entry = before;
    EXPECT((status != 0) == (words != NULL));
    if (status == 0) return said;
    EXPECT(words && strstr(err.message, words));
    free(said);
    return NULL;
}

// Two per-rank tensors, the first a scalar, and a shared one, on a single rank: each is checked.
static void check_several(ProcessGroup *group, const void *argument, Outcome *outcome) {
    (void)argument;
    Rig self = {.group = group, .outcome = outcome}, *rig = &self;
    Error *err = &outcome->error;
    Several now = {1, {3, 4, 5}, 6};
    HookTensor tensors[] = {
        {.memory = &now.a, .own = true, .entry = {.name = "a", .bytes = 4}},
        {.memory = now.b,
         .own = true,
         .entry = {.name = "b", .ndim = 1, .shape = {3}, .bytes = 12}},
        {.memory = &now.shared, .entry = {.name = "c", .dtype = DTYPE_I64, .bytes = 8}}};
    HookState state = {"several", group, tensors, 3};
    SafeTensors content;
    EXPECT(hook_state_gather(&state, &content, err) == 0 && content.count == 3);
    EXPECT(content.entries[0].ndim == 1 && content.entries[0].shape[0] == 1);
    const int64_t saved = 6; // value of the shared tensor, which is the hook's memory
    content.entries[2].data = (char *)&saved;
    const char *wrong = "has not the shape that several has in this run";
    restore_changed(rig, &state, &content, 0, 0, 2, wrong); // two ranks, but the other has one
    restore_changed(rig, &state, &content, 1, 0, 2, wrong);
    restore_changed(rig, &state, &content, 0, 0, 0, wrong); // zero ranks
    restore_changed(rig, &state, &content, 1, 1, 2, wrong);
    restore_changed(rig, &state, &content, 0, -1, 0, wrong);
    now = (Several){0, {0}, 0};
    char *said = restore_changed(rig, &state, &content, 0, 0, 1, NULL);
    EXPECT(said && !*said);
    EXPECT(now.a == 1 && now.b[2] == 5 && now.shared == 6);
    free(said);
    SafeTensors shared = {.entries = &content.entries[2], .count = 1}; // no per-rank tensors
    HookState alone = {"alone", group, &tensors[2], 1};
    now.shared = 0;
    said = restore_changed(rig, &alone, &shared, 0, 0, 0, NULL);
    EXPECT(said && !*said && now.shared == 6);
    free(said);
    for (int i = 0; i < 2; i++) content.entries[i].shape[0] = 2; // two ranks
    said = restore_changed(rig, &state, &content, 0, 0, 2, NULL);
    EXPECT(said &&
           strstr(said, "2 ranks saved state of their own for several, and this run has 1"));
    EXPECT(now.a == 0 && now.b[2] == 0 && now.shared == 6);
    free(said);
    safetensors_free(&content);
}

static void row_65_several_tensors_of_a_hook(void **state) {
    (void)state;
    play_ranks(AS_THREADS, 1, 60, check_several, NULL, NULL);
}

// ---- post-local SGD ---------------------------------------------------------------------------

static void post_local_sgd_state(ProcessGroup *group, const void *argument, Outcome *outcome) {
    (void)argument;
    Rig self = rig_open(group, outcome), *rig = &self;
    const DdpConfig config = ddp_config_default();
    const OptimizerConfig sgd = {.kind = OPTIMIZER_SGD};
    const double lr = 0.1;
    PostLocalSgd local = {.group = group, .start_step = 1, .step = 2};
    Module *model = matrix_model(rig->device, COLUMNS, ROWS, 0.5f);
    Optimizer *optimizer = optimizer_create(model, &sgd);
    rig_wrap(rig, model, &config);
    CommHook hook = optimizer_hook(post_local_sgd_hook(&local), optimizer, &lr);
    EXPECT(ddp_register_comm_hook(rig->wrapper, hook, NULL) == 0);
    SafeTensors content;
    EXPECT(hook_of(rig)->save(hook_of(rig)->state, &content, &outcome->error) == 0);
    if (rig->rank == 0) { // only rank 0 reads the file
        RunLog log = silent();
        int64_t saved = local.step;
        content.entries[0].data = &saved;
        local.step = 0;
        EXPECT(content.count == 1);
        EXPECT(hook_of(rig)->load(hook_of(rig)->state, "FILE", &content, &log, &outcome->error) ==
               0);
        EXPECT(local.step == 2);
    }
    safetensors_free(&content);
    optimizer_close(optimizer);
    rig_close(rig);
}

static void row_65_post_local_sgd_state(void **state) {
    (void)state;
    play_both(2, post_local_sgd_state, NULL, NULL);
}

// A step counts once, for any number of buckets. Task k's factor is rank + k + 1.
static void several_buckets(ProcessGroup *group, const void *argument, Outcome *outcome) {
    (void)argument;
    enum { TASKS = 3, START = 2 };
    Rig self = rig_open(group, outcome), *rig = &self;
    DdpConfig config = ddp_config_default();
    config.bucket_cap_mb = 0; // one bucket per parameter
    PostLocalSgd local = {.group = group, .start_step = START};
    rig_wrap(rig, toy_model(rig->device, TASKS, 0), &config);
    EXPECT(ddp_register_comm_hook(rig->wrapper, post_local_sgd_hook(&local), NULL) == 0);
    for (int step = 0; step < START + 2; step++) {
        float factors[TASKS];
        for (int k = 0; k < TASKS; k++) factors[k] = (float)(rig->rank + k + 1);
        module_zero_grad(rig->model);
        toy_train(rig, factors);
        EXPECT(local.step == step + 1);
        float mean = step < START ? (float)(rig->world - 1) / 2 : (float)rig->rank;
        for (int k = 0; k < TASKS; k++) EXPECT(grad_is(rig, k, (mean + (float)(k + 1)) / 4));
    }
    rig_close(rig);
}

static void row_64_post_local_sgd_in_several_buckets(void **state) {
    (void)state;
    play_both(2, several_buckets, NULL, NULL);
}

// A hook without state has none inside another hook, either.
static void nothing_to_carry(ProcessGroup *group, const void *argument, Outcome *outcome) {
    (void)argument;
    Rig self = rig_open(group, outcome), *rig = &self;
    const DdpConfig config = ddp_config_default();
    rig_wrap(rig, matrix_model(rig->device, COLUMNS, ROWS, 0.5f), &config);
    EXPECT(!hook_of(rig)->save && !hook_of(rig)->load);
    CommHook hook = comm_hook_round(comm_hook_all_reduce(group), PG_F16);
    EXPECT(!hook.save && !hook.load);
    EXPECT(ddp_register_comm_hook(rig->wrapper, hook, NULL) == 0);
    rig_close(rig);
}

static void row_65_no_hook_state(void **state) {
    (void)state;
    play_both(1, nothing_to_carry, NULL, NULL);
}

// A bucket is rounded in blocks, the last of them shorter. A hook that wraps another is graph_safe
// if the inner one is.
static void row_65_every_block_is_rounded(void **state) {
    (void)state;
    enum { MANY = 1300 };
    float values[MANY];
    Error err = {0};
    Device *device = device_open("cpu", &err);
    GradBucket bucket = {.buffer = values, .count = MANY, .device = device};
    for (int bf16 = 0; bf16 < 2; bf16++) {
        CommHook inner = comm_hook_noop();
        inner.graph_safe = bf16;
        CommHook hook = comm_hook_round(inner, bf16 ? PG_BF16 : PG_F16);
        assert_int_equal(hook.graph_safe, bf16);
        for (uint64_t i = 0; i < MANY; i++) values[i] = rng_normal(4, RNG_STREAM_TEST, i);
        assert_int_equal(hook.start(hook.state, &bucket, &err), 0);
        for (uint64_t i = 0; i < MANY; i++) {
            const float x = rng_normal(4, RNG_STREAM_TEST, i);
            assert_true(values[i] ==
                        (bf16 ? half_from_bf16(half_to_bf16(x)) : half_from_f16(half_to_f16(x))));
        }
        hook.close(hook.state);
    }
    device_close(device);
}

int main(void) {
#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, temp_folder_make, temp_folder_remove)
    const struct CMUnitTest tests[] = {
        IN_FOLDER(row_65_hook_state_in_checkpoints),
        IN_FOLDER(row_65_hook_state_that_does_not_fit),
        IN_FOLDER(row_65_hook_state_on_other_ranks),
        cmocka_unit_test(row_65_several_tensors_of_a_hook),
        cmocka_unit_test(row_65_every_block_is_rounded),
        cmocka_unit_test(row_65_post_local_sgd_state),
        cmocka_unit_test(row_64_post_local_sgd_in_several_buckets),
        cmocka_unit_test(row_65_no_hook_state),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
