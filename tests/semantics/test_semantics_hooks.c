/* test_semantics_hooks.c: communication hooks, by rows of PyTorch's own tests (tests/semantics.md):
 * the toy model with its published numbers, registration, compression, PowerSGD, post-local SGD,
 * the optimizer inside the hook. (Checkpoints of hooks' state: test_hook_state.c.)
 */
#include "tests/rigs/check.h"
#include "tests/rigs/ddp_models.h"
#include "tests/rigs/ranks.h"

#include "tests/rigs/ddp_toy.h"

#include "common/base/half.h"
#include "ddp/features/comm_hooks.h"
#include "ddp/features/optimizer_hook.h"
#include "ddp/features/post_local_sgd.h"
#include "ddp/features/powersgd_hook.h"

// ---- row 61: the toy --------------------------------------------------------------------------

static int fill_with_two(void *state, GradBucket *bucket, Error *err) {
    (void)state, (void)err;
    bucket->device->kernels->elementwise->fill(bucket->buffer, 2, bucket->count);
    return 0;
}

static int start_nothing(void *state, GradBucket *bucket, Error *err) {
    (void)state, (void)bucket, (void)err;
    return 0;
}

static void add_one(void *context, GradBucket *bucket) {
    (void)context;
    for (size_t i = 0; i < bucket->count; i++) bucket->buffer[i] += 1;
}

typedef struct HookCase {
    const char *name;
    float expected[2]; // the gradient: with averaging, with global normalisation
    bool global;
} HookCase;

static CommHook make_hook(const char *name, ProcessGroup *group) {
    if (strcmp(name, "allreduce") == 0) return comm_hook_all_reduce(group);
    if (strcmp(name, "fp16") == 0) return comm_hook_compress(group, PG_F16);
    if (strcmp(name, "bf16") == 0) return comm_hook_compress(group, PG_BF16);
    if (strcmp(name, "fp16 wrapper") == 0)
        return comm_hook_round(comm_hook_all_reduce(group), PG_F16);
    if (strcmp(name, "bf16 wrapper") == 0)
        return comm_hook_round(comm_hook_all_reduce(group), PG_BF16);
    if (strcmp(name, "then") == 0)
        return comm_hook_then(comm_hook_all_reduce(group), add_one, NULL);
    if (strcmp(name, "noop") == 0) return comm_hook_noop();
    return (CommHook){.name = "constant", .start = start_nothing, .finish = fill_with_two};
}

static void run_toy(ProcessGroup *group, const void *argument, Outcome *outcome) {
    const HookCase *hook = argument;
    Rig self = rig_open(group, outcome), *rig = &self;
    DdpConfig config = ddp_config_default();
    config.global_normalization = hook->global;
    float expected = hook->expected[hook->global];
    rig_wrap(rig, toy_model(rig->device, 2, 1), &config);
    if (strcmp(hook->name, "none") != 0)
        EXPECT(ddp_register_comm_hook(rig->wrapper, make_hook(hook->name, group),
                                      &outcome->error) == 0);
    for (int step = 0; step < 3; step++) {
        module_zero_grad(rig->model);
        toy_train(rig, (float[]){1, 1});
        EXPECT(grad_is(rig, 0, expected) && grad_is(rig, 1, expected));
    }
    rig_close(rig);
}

static void row_61_hook_toy(void **state) {
    (void)state;
    static const HookCase cases[] = {
        {"none", {0.25f, 0.5f}, false},
        {"allreduce", {0.25f, 0.5f}, false},
        {"fp16", {0.25f, 0.5f}, false},
        {"bf16", {0.25f, 0.5f}, false},
        {"fp16 wrapper", {0.25f, 0.5f}, false},
        {"bf16 wrapper", {0.25f, 0.5f}, false},
        {"constant", {2, 2}, false},
        {"then", {1.25f, 1.5f}, false},
        {"noop", {0.25f, 0.25f}, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (int global = 0; global <= 1; global++) {
            HookCase hook = cases[i];
            hook.global = global;
            play_both(2, run_toy, &hook, NULL);
        }
}

static int fail_to_finish(void *state, GradBucket *bucket, Error *err) {
    (void)state, (void)bucket;
    return error_set(err, STATUS_FAILED, "the cable is cut");
}

static void count_calls(void *context, GradBucket *bucket) {
    (void)bucket;
    ++*(int *)context;
}

static void chain_to_failure(ProcessGroup *group, const void *argument, Outcome *outcome) {
    (void)argument;
    Rig self = rig_open(group, outcome), *rig = &self;
    const DdpConfig config = ddp_config_default();
    int calls = 0;
    rig_wrap(rig, toy_model(rig->device, 2, 1), &config);
    CommHook hook = {.name = "broken", .start = start_nothing, .finish = fail_to_finish};
    hook = comm_hook_then(hook, count_calls, &calls);
    EXPECT(ddp_register_comm_hook(rig->wrapper, hook, NULL) == 0);
    EXPECT(toy_step(rig, (float[]){1, 1}, &outcome->error) != 0);
    EXPECT(strstr(outcome->error.message, "the cable is cut") && calls == 0);
    rig_close(rig);
}

static void row_61_then_not_after_a_failure(void **state) {
    (void)state;
    play_both(2, chain_to_failure, NULL, NULL);
}

// ---- row 62: registration ---------------------------------------------------------------------

static void register_twice(ProcessGroup *group, const void *argument, Outcome *outcome) {
    (void)argument;
    Rig self = rig_open(group, outcome), *rig = &self;
    const DdpConfig config = ddp_config_default();
    rig_wrap(rig, toy_model(rig->device, 1, 1), &config);
    Error err = {0};
    EXPECT(ddp_register_comm_hook(rig->wrapper, (CommHook){.name = "nothing"}, &err) != 0);
    EXPECT(strstr(err.message, "Communication hook must be callable"));
    EXPECT(ddp_register_comm_hook(rig->wrapper, comm_hook_all_reduce(group), NULL) == 0);
    EXPECT(ddp_register_comm_hook(rig->wrapper, comm_hook_compress(group, PG_F16),
                                  &outcome->error) != 0);
    toy_train(rig, (float[]){1}); // the first hook stays registered
    EXPECT(grad_is(rig, 0, 0.25f));
    rig_close(rig);
}

static void row_62_register_once_and_invalid_hook(void **state) {
    (void)state;
    Outcome outcomes[RANKS_MAX];
    play_both(2, register_twice, NULL, outcomes);
    check_message(&outcomes[1].error,
                  "register_comm_hook or register_builtin_comm_hook can only be called once.");
}

// ---- row 63: against no hook, on a real model -------------------------------------------------

enum { STEPS = 4, WEIGHTS = 1 << 16 };

typedef struct Watch {
    int last, buckets;
} Watch;

static void count_last(void *context, GradBucket *bucket) {
    Watch *watch = context;
    watch->buckets++;
    watch->last += bucket->is_last;
}

// Trains STEPS steps, copies the last gradients to `out` and returns their count. alone: without a
// wrapper, on this rank's rows.
static size_t train_gradients(Rig *rig, CommHook *hook, bool alone, float *out) {
    DdpConfig config = ddp_config_default();
    config.bucket_cap_mb = 0.002;
    Error err = {0};
    rig->model = test_model("mlp", 3, rig->device);
    if (!alone) rig_wrap(rig, rig->model, &config);
    if (hook) EXPECT(ddp_register_comm_hook(rig->wrapper, *hook, &err) == 0);
    Module *module = alone ? rig->model : rig->wrapper;
    for (int step = 0; step < STEPS; step++) {
        module_zero_grad(rig->model);
        if (test_backward(rig->tape, module, rig->rank, step, 3, 3, &err) != 0 ||
            (!alone && ddp_finish_backward(rig->wrapper, NULL, &err) != 0))
            problem(rig->outcome, "%s", err.message);
    }
    NamedTensors parameters = module_tensors(rig->model, MODULE_PARAMETERS);
    size_t used = 0;
    for (size_t i = 0; i < parameters.count; i++) {
        const Tensor *tensor = parameters.items[i].tensor;
        memcpy(out + used, tensor->grad, tensor_bytes(tensor));
        used += tensor_count(tensor);
    }
    named_tensors_free(&parameters);
    module_close(module);
    rig->wrapper = rig->model = NULL;
    return used;
}

static float worst(const float *a, const float *b, size_t count) {
    float most = 0;
    for (size_t i = 0; i < count; i++) {
        float difference = fabsf(a[i] - b[i]);
        if (!(difference <= most)) most = difference; // NaN counts as a difference
    }
    return most;
}

static void compare_hooks(ProcessGroup *group, const void *argument, Outcome *outcome) {
    (void)argument;
    Rig self = rig_open(group, outcome), *rig = &self;
    float *plain = memory_zalloc(WEIGHTS * sizeof *plain),
          *hooked = memory_zalloc(WEIGHTS * sizeof *hooked);
    size_t count = train_gradients(rig, NULL, false, plain);
    float largest = worst(plain, hooked, count); // hooked is still zero
    EXPECT(largest > 0.01f);
    Watch watch = {0};
    CommHook hook = comm_hook_then(comm_hook_all_reduce(group), count_last, &watch);
    EXPECT(train_gradients(rig, &hook, false, hooked) == count);
    EXPECT(memcmp(plain, hooked, count * sizeof *plain) == 0);
    EXPECT(watch.last == STEPS && watch.buckets > STEPS);
    hook = comm_hook_compress(group, PG_F16);
    train_gradients(rig, &hook, false, hooked);
    EXPECT(worst(plain, hooked, count) <= 1e-3f * largest && memcmp(plain, hooked, count) != 0);
    hook = comm_hook_compress(group, PG_BF16);
    train_gradients(rig, &hook, false, hooked);
    EXPECT(worst(plain, hooked, count) <= 8e-3f * largest && memcmp(plain, hooked, count) != 0);
    hook = comm_hook_noop();
    train_gradients(rig, &hook, false, hooked);
    EXPECT(worst(plain, hooked, count) > 1e-3f);
    EXPECT(train_gradients(rig, NULL, true, plain) == count);
    EXPECT(memcmp(plain, hooked, count * sizeof *plain) == 0); // local, undivided gradients
    free(plain);
    free(hooked);
    rig_close(rig);
}

static void row_63_ddp_hooks(void **state) {
    (void)state;
    for (int world = 2; world <= 3; world++)
        play_ranks(AS_THREADS, world, 60, compare_hooks, NULL, NULL);
}

// ---- row 33: fp16 does not overflow -----------------------------------------------------------

static void large_gradient(ProcessGroup *group, const void *argument, Outcome *outcome) {
    (void)argument;
    Rig self = rig_open(group, outcome), *rig = &self;
    const DdpConfig config = ddp_config_default();
    rig_wrap(rig, toy_model(rig->device, 1, 1), &config);
    EXPECT(ddp_register_comm_hook(rig->wrapper, comm_hook_compress(group, PG_F16), NULL) == 0);
    toy_train(rig, (float[]){4 * 32768.0f});
    EXPECT(grad_is(rig, 0, 32768.0f)); // the sum would be 65536, beyond fp16's largest number
    rig_close(rig);
}

static void row_33_fp16_overflow(void **state) {
    (void)state;
    play_both(2, large_gradient, NULL, NULL);
}

static void row_65_rounding_to_16_bits(void **state) {
    (void)state;
    for (uint32_t half = 0; half < 65536; half++) { // every fp16 value
        float value = half_from_f16((uint16_t)half);
        if (isnan(value))
            assert_true(isnan(half_from_f16(half_to_f16(value))));
        else
            assert_int_equal(half_to_f16(value), half);
        value = half_from_bf16((uint16_t)half);
        if (!isnan(value)) assert_int_equal(half_to_bf16(value), half);
    }
    assert_true(half_from_f16(0x3c00) == 1 && half_from_f16(0x7bff) == 65504);
    assert_true(half_from_f16(1) == 0x1p-24f && half_from_f16(0xc000) == -2);
    assert_int_equal(half_to_f16(65519), 0x7bff);        // below the middle
    assert_int_equal(half_to_f16(65520), 0x7c00);        // infinite
    assert_int_equal(half_to_f16(1 + 0x1p-11f), 0x3c00); // ties go to even
    assert_int_equal(half_to_f16(1 + 3 * 0x1p-11f), 0x3c02);
    assert_int_equal(half_to_f16(0x1p-25f), 0);
    assert_int_equal(half_to_f16(3 * 0x1p-25f), 2);
    assert_int_equal(half_to_bf16(1 + 0x1p-8f), 0x3f80);
    assert_int_equal(half_to_bf16(1 + 3 * 0x1p-8f), 0x3f82);
    assert_true(isnan(half_from_bf16(half_to_bf16(NAN))));
}

// Both ranks' gradients are exact in 16 bits, their average lies midway between two 16-bit numbers:
// the hook wrapper rounds the reduced bucket to even.
static void average_between(ProcessGroup *group, const void *argument, Outcome *outcome) {
    PgType type = *(const PgType *)argument;
    Rig self = rig_open(group, outcome), *rig = &self;
    const DdpConfig config = ddp_config_default();
    const float last_bit = type == PG_F16 ? 0x1p-10f : 0x1p-7f;
    rig_wrap(rig, toy_model(rig->device, 1, 1), &config);
    CommHook hook = comm_hook_round(comm_hook_all_reduce(group), type);
    EXPECT(ddp_register_comm_hook(rig->wrapper, hook, NULL) == 0);
    toy_train(rig, (float[]){rig->rank == 0 ? 4 : 4 * (1 + last_bit)});
    EXPECT(grad_is(rig, 0, 1));
    rig_close(rig);
}

static void row_65_wrappers_round_what_comes_back(void **state) {
    (void)state;
    static const PgType types[] = {PG_F16, PG_BF16};
    for (int i = 0; i < 2; i++) play_both(2, average_between, &types[i], NULL);
}

// ---- rows 64, 65: PowerSGD, post-local SGD ----------------------------------------------------

enum { ITERATIONS = 100 };

static PowerSgdConfig early_power_sgd(void) {
    PowerSgdConfig config = power_sgd_config_default();
    config.start_iteration = 2;
    config.min_compression_rate = 0.5; // the test's matrix is too small for the default
    return config;
}

// One iteration of Linear(1, 5); the input is the rank's number. gradient: the mean over ranks.
static void rank_iteration(Rig *rig, float input, float expected) {
    Error err = {0};
    module_zero_grad(rig->model);
    if (matrix_backward(rig, rig->wrapper, 1, 1, input, 1, &err) != 0 ||
        ddp_finish_backward(rig->wrapper, NULL, &err) != 0)
        problem(rig->outcome, "%s", err.message);
    const float *grad = rig->model->parameters[0].tensor.grad;
    for (int i = 0; i < 5; i++)
        if (!(fabsf(grad[i] - expected) <= 1e-5f + 1.3e-6f * fabsf(expected)))
            problem(rig->outcome, "gradient %g, not %g", (double)grad[i], (double)expected);
}

static void hook_parity(ProcessGroup *group, const void *argument, Outcome *outcome) {
    const char *name = argument;
    Rig self = rig_open(group, outcome), *rig = &self;
    const DdpConfig config = ddp_config_default();
    rig_wrap(rig, matrix_model(rig->device, 1, 5, 0.5f), &config);
    const PowerSgdConfig powersgd = early_power_sgd();
    PowerSgd *power = power_sgd_create(ddp_reducer(rig->wrapper), &powersgd, NULL);
    PostLocalSgd local = {.group = group, .start_step = 60};
    CommHook hook = strcmp(name, "powersgd") == 0     ? power_sgd_hook(power)
                    : strcmp(name, "post-local") == 0 ? post_local_sgd_hook(&local)
                                                      : comm_hook_all_reduce(group);
    EXPECT(ddp_register_comm_hook(rig->wrapper, hook, NULL) == 0);
    float mean = (float)(rig->world - 1) / 2;
    for (int i = 0; i < ITERATIONS; i++) {
        bool alone = strcmp(name, "post-local") == 0 && i >= 60;
        rank_iteration(rig, (float)rig->rank, alone ? (float)rig->rank : mean);
    }
    if (strcmp(name, "powersgd") == 0) EXPECT(power_sgd_iteration(power) == ITERATIONS);
    power_sgd_close(power);
    rig_close(rig);
}

static void row_64_hook_parity(void **state) {
    (void)state;
    static const char *const names[] = {"allreduce", "post-local", "powersgd"};
    for (int i = 0; i < 3; i++)
        for (int world = 2; world <= 3; world++) play_both(world, hook_parity, names[i], NULL);
}

static void subgroup_gradients(ProcessGroup *group, const void *argument, Outcome *outcome) {
    (void)argument;
    Rig self = rig_open(group, outcome), *rig = &self;
    const DdpConfig config = ddp_config_default();
    int first = rig->rank / 2 * 2;
    ProcessGroup *pairs[2];
    for (int p = 0; p < 2; p++)
        pairs[p] = pg_new_subgroup(group, (int[]){2 * p, 2 * p + 1}, 2, &outcome->error);
    PostLocalSgd local = {.group = group, .subgroup = pairs[rig->rank / 2], .start_step = 1};
    rig_wrap(rig, matrix_model(rig->device, 1, 5, (float)rig->rank), &config);
    EXPECT(ddp_register_comm_hook(rig->wrapper, post_local_sgd_hook(&local), NULL) == 0);
    rank_iteration(rig, (float)rig->rank, 1.5f);
    rank_iteration(rig, (float)rig->rank, (float)first + 0.5f);
    // Weights that differ between ranks are averaged at steps 1 and 4 only.
    ModelAverager averager = {.period = 3, .warmup_steps = 1};
    float *weight = tensor_f32(&rig->model->parameters[0].tensor);
    for (int step = 0; step < 6; step++) {
        for (int i = 0; i < 5; i++) weight[i] = (float)(rig->rank + step);
        EXPECT(model_averager_step(&averager, rig->model, group, &outcome->error) == 0);
        bool met = step == 1 || step == 4;
        EXPECT(all_equal(weight, 5, (float)step + (met ? 1.5f : (float)rig->rank)));
    }
    EXPECT(local.step == 2);
    rig_close(rig);
    for (int p = 0; p < 2; p++) pg_close(pairs[p]);
}

static void row_64_post_local_sgd_subgroups_and_averaging(void **state) {
    (void)state;
    play_ranks(AS_THREADS, 4, 60, subgroup_gradients, NULL, NULL);
}

// Error feedback: random local gradients of full rank, equal in all steps. PowerSGD of rank 1
// compresses them, but over many steps the sum of its outputs approaches the sum of its inputs.
static void power_sgd_sums(ProcessGroup *group, const void *argument, Outcome *outcome) {
    bool global = *(const bool *)argument;
    Rig self = rig_open(group, outcome), *rig = &self;
    DdpConfig config = ddp_config_default();
    config.global_normalization = global;
    rig_wrap(rig, matrix_model(rig->device, 12, 8, 0), &config);
    PowerSgdConfig powersgd = power_sgd_config_default();
    powersgd.start_iteration = 2;
    PowerSgd *power = power_sgd_create(ddp_reducer(rig->wrapper), &powersgd, &outcome->error);
    EXPECT(ddp_register_comm_hook(rig->wrapper, power_sgd_hook(power), NULL) == 0);
    double in[96] = {0}, out[96] = {0}, difference = 0, size = 0, off = 0;
    Tensor *weight = &rig->model->parameters[0].tensor;
    for (int step = 0; step < 60; step++) {
        tape_reset(rig->tape);
        module_zero_grad(rig->model);
        Tensor *x = tape_tensor(rig->tape, DTYPE_F32, 2, (size_t[]){8, 12});
        for (size_t i = 0; i < 96; i++) {
            tensor_f32(x)[i] = 0; // the gradient is x' dy, and dy is the unit matrix
            for (int r = 0; r < rig->world; r++) {
                float value = rng_uniform(3, RNG_STREAM_TEST, (uint64_t)(r * 96) + i, -1, 1);
                if (r == rig->rank) tensor_f32(x)[i] = value;
                in[i] += (double)value / (global ? 1 : rig->world);
            }
        }
        Tensor *y = module_forward(rig->wrapper, rig->tape, x); // [8, 8]
        float *dy = tape_make_grad(rig->tape, y);
        for (size_t i = 0; i < 64; i++) dy[i] = i % 9 == 0;
        EXPECT(tape_backward(rig->tape, y, &outcome->error) == 0);
        EXPECT(ddp_finish_backward(rig->wrapper, NULL, &outcome->error) == 0);
        for (size_t i = 0; i < 96; i++) out[i] += (double)weight->grad[i];
        for (size_t i = 0; step == 10 && i < 96; i++)
            off += fabs((double)weight->grad[i] - in[i] / (step + 1));
    }
    for (size_t i = 0; i < 96; i++) difference += (in[i] - out[i]) * (in[i] - out[i]);
    for (size_t i = 0; i < 96; i++) size += in[i] * in[i];
    EXPECT(off > 1);                              // one step differs from the gradient,
    EXPECT(sqrt(difference) < 0.15 * sqrt(size)); // the sums nearly agree
    outcome->number = (long)(1000 * sqrt(difference / size));
    power_sgd_close(power);
    rig_close(rig);
}

static void row_64_power_sgd_error_feedback(void **state) {
    (void)state;
    Outcome outcomes[RANKS_MAX];
    for (int global = 0; global <= 1; global++) {
        bool argument = global;
        play_ranks(AS_THREADS, 3, 60, power_sgd_sums, &argument, outcomes);
        assert_int_equal(outcomes[0].number, outcomes[2].number);
    }
}

static void power_sgd_toy(ProcessGroup *group, const void *argument, Outcome *outcome) {
    (void)argument;
    Rig self = rig_open(group, outcome), *rig = &self;
    const DdpConfig config = ddp_config_default();
    rig_wrap(rig, toy_model(rig->device, 2, 1), &config);
    PowerSgdConfig powersgd = early_power_sgd();
    for (int mode = 0; mode < 4; mode++) {
        powersgd.error_feedback = mode & 1;
        powersgd.warm_start = mode & 2;
        PowerSgd *power = power_sgd_create(ddp_reducer(rig->wrapper), &powersgd, NULL);
        EXPECT(ddp_register_comm_hook(rig->wrapper, power_sgd_hook(power), NULL) == 0);
        for (int step = 0; step < 5; step++) {
            module_zero_grad(rig->model);
            toy_train(rig, (float[]){1, 1});
            for (int i = 0; i < 4; i++)
                EXPECT(fabsf(rig_parameter(rig, 1)->grad[i] - 0.25f) < 1e-6f);
        }
        rig_wrap(rig, ddp_unwrap(rig->wrapper), &config);
        power_sgd_close(power);
    }
    rig_close(rig);
}

static void row_65_power_sgd_toy(void **state) {
    (void)state;
    play_both(2, power_sgd_toy, NULL, NULL);
}

// A gradient of rank 1, compressed to rank 4: columns 2 to 4 are rounding errors and must not be
// orthogonalised into directions.
static void power_sgd_low_rank(ProcessGroup *group, const void *argument, Outcome *outcome) {
    (void)argument;
    Rig self = rig_open(group, outcome), *rig = &self;
    const DdpConfig config = ddp_config_default();
    rig_wrap(rig, matrix_model(rig->device, 5, 4, 0.5f), &config);
    PowerSgdConfig powersgd = early_power_sgd();
    powersgd.rank = 4;
    powersgd.min_compression_rate = 0.1;
    PowerSgd *power = power_sgd_create(ddp_reducer(rig->wrapper), &powersgd, NULL);
    EXPECT(ddp_register_comm_hook(rig->wrapper, power_sgd_hook(power), NULL) == 0);
    Error err = {0};
    for (int step = 0; step < 6; step++) {
        const float row[] = {1, 2, 3, 4, 5};
        tape_reset(rig->tape);
        module_zero_grad(rig->model);
        Tensor *x = tape_input(rig->tape, DTYPE_F32, 2, (size_t[]){1, 5}, row);
        Tensor *y = module_forward(rig->wrapper, rig->tape, x); // [1, 4]
        float *dy = tape_make_grad(rig->tape, y);
        for (int i = 0; i < 4; i++) dy[i] = (float)(i + 1 + step + rig->rank);
        EXPECT(tape_backward(rig->tape, y, &err) == 0);
        EXPECT(ddp_finish_backward(rig->wrapper, NULL, &err) == 0);
        for (int i = 0; i < 20; i++) {
            float mean = ((float)(i / 5 + 1 + step) + 0.5f) * row[i % 5];
            EXPECT(fabsf(rig->model->parameters[0].tensor.grad[i] - mean) <= 1e-5f * mean);
        }
    }
    power_sgd_close(power);
    rig_close(rig);
}

static void row_65_power_sgd_more_rank_than_the_gradient_has(void **state) {
    (void)state;
    play_both(2, power_sgd_low_rank, NULL, NULL);
}

// ---- row 66 ----------------------------------------------------------------------------------

static void invalid_state(ProcessGroup *group, const void *argument, Outcome *outcome) {
    (void)argument;
    Rig self = rig_open(group, outcome), *rig = &self;
    const DdpConfig config = ddp_config_default();
    rig_wrap(rig, toy_model(rig->device, 1, 1), &config);
    for (int mode = 0; mode < 4; mode++) {
        PowerSgdConfig powersgd = early_power_sgd();
        powersgd.start_iteration = 1;
        powersgd.error_feedback = mode & 1;
        powersgd.warm_start = mode & 2;
        PowerSgd *power = power_sgd_create(ddp_reducer(rig->wrapper), &powersgd, &outcome->error);
        EXPECT((power != NULL) == (mode == 0));
        power_sgd_close(power);
    }
    rig_close(rig);
}

static void row_66_invalid_power_sgd_state(void **state) {
    (void)state;
    Outcome outcomes[RANKS_MAX];
    play_both(2, invalid_state, NULL, outcomes);
    check_message(&outcomes[0].error, "Expect `start_powerSGD_iter` > 1 if `use_error_feedback` or "
                                      "`warm_start` is enabled");
}

// ---- row 59: the optimizer inside the hook ----------------------------------------------------

static void optimizer_parity(ProcessGroup *group, const void *argument, Outcome *outcome) {
    const OptimizerConfig *kind = argument;
    DdpConfig config = ddp_config_default();
    config.bucket_cap_mb = 0.002;
    float *weights[2] = {memory_zalloc(WEIGHTS * sizeof(float)),
                         memory_zalloc(WEIGHTS * sizeof(float))};
    size_t count = 0;
    for (int inside = 0; inside < 2; inside++) {
        Rig self = rig_open(group, outcome), *rig = &self;
        Error err = {0};
        rig_wrap(rig, test_model("mlp", 3, rig->device), &config);
        Optimizer *optimizer = optimizer_create(rig->model, kind);
        double lr = 0.05;
        if (inside)
            ddp_register_comm_hook(
                rig->wrapper, optimizer_hook(comm_hook_all_reduce(group), optimizer, &lr), &err);
        for (int step = 0; step < STEPS; step++, lr *= 0.5) {
            module_zero_grad(rig->model);
            EXPECT(test_backward(rig->tape, rig->wrapper, rig->rank, step, 3, 3, &err) == 0);
            EXPECT(ddp_finish_backward(rig->wrapper, NULL, &err) == 0);
            optimizer_step(optimizer, lr); // has no gradients if the hook has run the optimizer
        }
        NamedTensors parameters = module_tensors(rig->model, MODULE_PARAMETERS);
        count = 0;
        for (size_t i = 0; i < parameters.count; i++) {
            const Tensor *tensor = parameters.items[i].tensor;
            EXPECT(tensor->has_grad == !inside);
            memcpy(weights[inside] + count, tensor->data, tensor_bytes(tensor));
            count += tensor_count(tensor);
        }
        named_tensors_free(&parameters);
        optimizer_close(optimizer);
        rig_close(rig);
    }
    if (memcmp(weights[0], weights[1], count * sizeof(float)) != 0)
        problem(outcome, "weights differ");
    free(weights[0]);
    free(weights[1]);
}

static void row_59_hook_with_optimizer_parity(void **state) {
    (void)state;
    static const OptimizerConfig kinds[] = {
        {.kind = OPTIMIZER_SGD},
        {.kind = OPTIMIZER_SGD, .momentum = 0.9, .nesterov = true},
        {.kind = OPTIMIZER_ADAMW, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.01}};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        play_ranks(AS_THREADS, 2, 60, optimizer_parity, &kinds[i], NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(row_33_fp16_overflow),
        cmocka_unit_test(row_59_hook_with_optimizer_parity),
        cmocka_unit_test(row_61_hook_toy),
        cmocka_unit_test(row_61_then_not_after_a_failure),
        cmocka_unit_test(row_62_register_once_and_invalid_hook),
        cmocka_unit_test(row_63_ddp_hooks),
        cmocka_unit_test(row_64_hook_parity),
        cmocka_unit_test(row_64_post_local_sgd_subgroups_and_averaging),
        cmocka_unit_test(row_64_power_sgd_error_feedback),
        cmocka_unit_test(row_65_rounding_to_16_bits),
        cmocka_unit_test(row_65_wrappers_round_what_comes_back),
        cmocka_unit_test(row_65_power_sgd_toy),
        cmocka_unit_test(row_65_power_sgd_more_rank_than_the_gradient_has),
        cmocka_unit_test(row_66_invalid_power_sgd_state),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
