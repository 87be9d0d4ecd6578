/* test_semantics_bucket_view.c: gradient_as_bucket_view off (rows 23 and 74 of tests/semantics.md).
 * Two wrapped copies of a model, one with views and one without, train in one group. All gradients
 * and weights must have equal bits, and the gradients of the copy without views keep their
 * addresses.
 */
#include "tests/rigs/check.h"
#include "tests/rigs/ddp_models.h"
#include "tests/rigs/ranks.h"

#include "tests/rigs/ddp_toy.h"

#include "common/nn/grad_scaler.h"
#include "ddp/features/comm_hooks.h"
#include "ddp/reducer.h"

enum { STEPS = 4, PARAMETERS_MAX = 32 };

static const OptimizerConfig SGD = {.kind = OPTIMIZER_SGD, .momentum = 0.9};

// One of the two wrapped models.
typedef struct Side {
    Device *device;
    Module *model, *wrapper;
    Tape *tape;
    NamedTensors parameters;
    const float *home[PARAMETERS_MAX]; // addresses of the gradients before the first step
} Side;

static Side side_open(Rig *rig, Module *(*build)(const char *, uint64_t, Device *),
                      const char *name, const RigConfig *config, bool view) {
    char device[16];
    snprintf(device, sizeof device, "cpu:%d", 2 * rig->rank + view);
    Side side = {.device = device_open(device, NULL)};
    side.model = build(name, 5 + (uint64_t)rig->rank, side.device);
    RigConfig own = *config;
    own.gradients_beside_buckets = !view;
    rig_wrap_with(rig, side.model, &own);
    side.wrapper = rig->wrapper;
    side.tape = tape_create(side.device, NULL);
    side.parameters = module_tensors(side.model, MODULE_PARAMETERS);
    for (size_t i = 0; i < side.parameters.count; i++)
        side.home[i] = side.parameters.items[i].tensor->grad;
    return side;
}

static void side_close(Side *side) {
    named_tensors_free(&side->parameters);
    tape_close(side->tape);
    module_close(side->wrapper);
    device_close(side->device);
}

// Both models have the same defined gradients and the same weights; without views no gradient has
// moved.
static void compare(Rig *rig, const Side *view, const Side *copy, const char *when, int step) {
    double largest = 0;
    for (size_t i = 0; i < view->parameters.count; i++) {
        const Tensor *a = view->parameters.items[i].tensor, *b = copy->parameters.items[i].tensor;
        const char *name = view->parameters.items[i].name;
        size_t bytes = tensor_bytes(a);
        if (a->has_grad != b->has_grad || memcmp(a->data, b->data, bytes) != 0 ||
            (a->has_grad && memcmp(a->grad, b->grad, bytes) != 0))
            problem(rig->outcome, "%s differs, %s, step %d", name, when, step);
        if (b->grad != copy->home[i])
            problem(rig->outcome, "the gradient of %s moved, %s, step %d", name, when, step);
        for (size_t e = 0; a->has_grad && e < tensor_count(a); e++)
            largest = fmax(largest, fabs((double)a->grad[e]));
    }
    if (!(largest > 1e-3)) problem(rig->outcome, "all gradients are nearly zero, step %d", step);
}

// ---- models, hooks, accumulation --------------------------------------------------------------

typedef struct Case {
    const char *model;
    bool overlap, accumulate, static_graph, find_unused, global, hook;
} Case;

static void check_memory(Rig *rig, const Side *view, const Side *copy) {
    size_t gradients = 0;
    for (size_t i = 0; i < view->parameters.count; i++)
        gradients += tensor_bytes(view->parameters.items[i].tensor);
    EXPECT(copy->device->bytes == view->device->bytes + gradients); // gradients and buckets
}

static void train_step(Rig *rig, const Case *how, Side *side, Optimizer *optimizer, int step) {
    Error err = {0};
    size_t rows = test_rows(rig->rank);
    if (step != 1) module_zero_grad(side->model); // step 1 adds to the gradients of step 0
    for (int micro = 0; micro <= how->accumulate; micro++) {
        bool before = ddp_no_sync_begin(side->wrapper);
        if (micro == how->accumulate) ddp_no_sync_end(side->wrapper, before);
        if (test_backward(side->tape, side->wrapper, rig->rank, 2 * step + micro, rows,
                          (double)rows, &err) != 0 ||
            ddp_finish_backward(side->wrapper, NULL, &err) != 0)
            problem(rig->outcome, "%s, step %d: %s", how->model, step, err.message);
        ddp_no_sync_end(side->wrapper, before);
    }
    optimizer_step(optimizer, 0.1);
}

static void side_by_side(ProcessGroup *group, const void *argument, Outcome *outcome) {
    const Case *how = argument;
    Rig self = {.group = group, .outcome = outcome, .rank = pg_rank(group)}, *rig = &self;
    RigConfig config = {.ddp = ddp_config_default(),
                        .static_graph = how->static_graph,
                        .find_unused_parameters = how->find_unused};
    config.ddp.bucket_cap_mb = 0.001;
    config.ddp.overlap = how->overlap;
    config.ddp.global_normalization = how->global;
    Side sides[2]; // [view]
    Optimizer *optimizers[2];
    for (int view = 0; view < 2; view++) {
        sides[view] = side_open(rig, test_model, how->model, &config, view);
        optimizers[view] = optimizer_create(sides[view].model, &SGD);
        if (how->hook)
            EXPECT(ddp_register_comm_hook(sides[view].wrapper, comm_hook_compress(group, PG_F16),
                                          &outcome->error) == 0);
    }
    check_memory(rig, &sides[1], &sides[0]);
    for (int step = 0; step < STEPS; step++) {
        for (int view = 0; view < 2; view++)
            train_step(rig, how, &sides[view], optimizers[view], step);
        compare(rig, &sides[1], &sides[0], how->model, step);
    }
    EXPECT(ddp_reducer(sides[0].wrapper)->rebuilt == !how->find_unused);
    EXPECT(ddp_reducer(sides[0].wrapper)->slab.plan.bucket_count > 1);
    for (int view = 0; view < 2; view++) {
        optimizer_close(optimizers[view]);
        side_close(&sides[view]);
    }
}

static void row_23_same_bits_as_views(void **state) {
    (void)state;
    static const Case cases[] = {
        {.model = "mlp", .overlap = true},
        {.model = "mlp"},
        {.model = "convnet", .overlap = true, .global = true},
        {.model = "tied", .overlap = true},
        {.model = "mlp", .overlap = true, .accumulate = true},
        {.model = "shared", .overlap = true, .accumulate = true, .static_graph = true},
        {.model = "shared", .overlap = true, .find_unused = true},
        {.model = "mlp", .overlap = true, .hook = true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (int world = 1; world <= 3; world++) play_both(world, side_by_side, &cases[i], NULL);
}

// ---- unused parameters ------------------------------------------------------------------------

static Module *build_toy(const char *name, uint64_t seed, Device *device) {
    (void)name, (void)seed;
    return toy_model(device, 4, 1);
}

// Task 0 is used by all ranks, task 1 by rank 0, task 2 by no rank, but it has an old gradient from
// step 2 on. Task 3 is used by no rank, and its gradient stays None.
static void unused(ProcessGroup *group, const void *argument, Outcome *outcome) {
    const RigConfig *config = argument;
    Rig self = {.group = group, .outcome = outcome, .rank = pg_rank(group)}, *rig = &self;
    Side sides[2];
    for (int view = 0; view < 2; view++) sides[view] = side_open(rig, build_toy, "", config, view);
    for (int step = 0; step < STEPS; step++) {
        for (int view = 0; view < 2; view++) {
            rig->model = sides[view].model;
            rig->wrapper = sides[view].wrapper;
            rig->tape = sides[view].tape;
            if (step % 2 == 0) module_zero_grad(rig->model);
            if (step >= 2) {
                rig->device = sides[view].device;
                rig->device->kernels->elementwise->fill(rig_parameter(rig, 2)->grad,
                                                        (float)rig->rank + 7, 4);
                rig_parameter(rig, 2)->has_grad = true;
            }
            toy_train(rig, (float[]){(float)(4 * (rig->rank + step) + 4), rig->rank ? 0 : 8, 0, 0});
            if (step >= 2) EXPECT(grad_is(rig, 2, (float)rig->rank + 7)); // unchanged
            EXPECT(grad_is_none(rig, 3) && !grad_is_none(rig, 1));
        }
        compare(rig, &sides[1], &sides[0], "toy", step);
    }
    for (int view = 0; view < 2; view++) side_close(&sides[view]);
}

static void row_23_unused_parameters(void **state) {
    (void)state;
    for (int fixed = 0; fixed <= 1; fixed++) {
        RigConfig config = {
            .ddp = ddp_config_default(), .find_unused_parameters = !fixed, .static_graph = fixed};
        config.ddp.bucket_cap_mb = 0;
        for (int world = 1; world <= 3; world++) play_both(world, unused, &config, NULL);
    }
}

// ---- an error between the copies --------------------------------------------------------------

static int never_starts(void *state, GradBucket *bucket, Error *err) {
    (void)state, (void)bucket;
    return error_set(err, STATUS_FAILED, "it never starts");
}

static int never_finishes(void *state, GradBucket *bucket, Error *err) {
    return never_starts(state, bucket, err);
}

// The hook fails after the gradients were copied into the bucket: ddp_unwrap must give the module
// its own gradient memory back.
static void failing_hook(ProcessGroup *group, const void *argument, Outcome *outcome) {
    (void)argument;
    Rig self = {.group = group, .outcome = outcome, .rank = pg_rank(group)}, *rig = &self;
    const CommHook hook = {.name = "fails", .start = never_starts, .finish = never_finishes};
    const RigConfig config = rig_config_default();
    Side side = side_open(rig, build_toy, "", &config, false);
    rig->model = side.model;
    rig->wrapper = side.wrapper;
    rig->tape = side.tape;
    EXPECT(ddp_register_comm_hook(side.wrapper, hook, NULL) == 0);
    EXPECT(toy_step(rig, (float[]){4, 4, 4, 4}, &outcome->error) != 0);
    EXPECT(strstr(outcome->error.message, "it never starts"));
    Module *model = ddp_unwrap(side.wrapper);
    for (size_t i = 0; i < side.parameters.count; i++)
        EXPECT(side.parameters.items[i].tensor->grad == side.home[i]);
    rig_wrap_with(rig, model, &config); // wrapping again works
    toy_train(rig, (float[]){4, 4, 4, 4});
    EXPECT(grad_is(rig, 0, 1) && grad_is(rig, 3, 1));
    side.wrapper = rig->wrapper;
    side_close(&side);
}

static void row_23_error_between_the_copies(void **state) {
    (void)state;
    play_both(2, failing_hook, NULL, NULL);
}

// ---- row 74: the gradient scaler --------------------------------------------------------------

static void scaled(ProcessGroup *group, const void *argument, Outcome *outcome) {
    (void)argument;
    Rig self = {.group = group, .outcome = outcome, .rank = pg_rank(group)}, *rig = &self;
    const RigConfig config = rig_config_default();
    Side sides[2];
    Optimizer *optimizers[2];
    GradScaler scalers[2] = {{.state = grad_scaler_default()}, {.state = grad_scaler_default()}};
    for (int view = 0; view < 2; view++) {
        sides[view] = side_open(rig, test_model, "shared", &config, view);
        optimizers[view] = optimizer_create(sides[view].model, &SGD);
    }
    for (int step = 0; step < STEPS; step++) {
        for (int view = 0; view < 2; view++) {
            Error err = {0};
            Side *side = &sides[view];
            module_zero_grad(side->model);
            tape_reset(side->tape);
            Tensor *loss = test_loss(side->tape, side->wrapper, rig->rank, step, 4, 4);
            loss = grad_scaler_scale(&scalers[view], side->tape, loss);
            EXPECT(tape_backward(side->tape, loss, &err) == 0);
            EXPECT(ddp_finish_backward(side->wrapper, NULL, &err) == 0);
            EXPECT(grad_scaler_step(&scalers[view], optimizers[view], 0.1, &err) == 0);
            EXPECT(grad_scaler_update(&scalers[view], &err) == 0);
            EXPECT(!scalers[view].found_inf);
        }
        compare(rig, &sides[1], &sides[0], "scaled", step);
    }
    for (int view = 0; view < 2; view++) {
        optimizer_close(optimizers[view]);
        side_close(&sides[view]);
    }
}

static void row_74_grad_scaler_without_views(void **state) {
    (void)state;
    for (int world = 2; world <= 3; world++) play_both(world, scaled, NULL, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(row_23_same_bits_as_views),
        cmocka_unit_test(row_23_unused_parameters),
        cmocka_unit_test(row_23_error_between_the_copies),
        cmocka_unit_test(row_74_grad_scaler_without_views),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
