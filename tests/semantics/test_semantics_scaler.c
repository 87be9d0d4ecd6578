/* test_semantics_scaler.c: the gradient scaler (row 74 of tests/semantics.md): its scale's rule and
 * its errors on one device; under DistributedDataParallel it changes no bit, and all ranks skip the
 * same steps without a collective of its own.
 */
#include <float.h>

#include "tests/rigs/check.h"
#include "tests/rigs/ddp_models.h"
#include "tests/rigs/ranks.h"

#include "tests/rigs/ddp_toy.h"

#include "common/nn/grad_scaler.h"

static const OptimizerConfig SGD = {.kind = OPTIMIZER_SGD, .momentum = 0.9};

// ---- the scaler without a wrapper -------------------------------------------------------------

// One weight [1, 3] on one device.
typedef struct Alone {
    Device *device;
    Module *model;
    Tensor *weight;
    Optimizer *optimizer;
    GradScaler scaler;
} Alone;

static Alone alone_open(float scale, int64_t interval) {
    Error err = {0};
    Alone alone = {.device = device_open("cpu:0", &err)};
    CHECK_OK(alone.device, err);
    alone.model = matrix_model(alone.device, 3, 1, 1);
    alone.weight = module_parameter(alone.model, 0);
    alone.optimizer = optimizer_create(alone.model, &SGD);
    GradScalerState state = grad_scaler_default();
    state.scale = scale;
    state.growth_interval = interval;
    CHECK_OK(grad_scaler_load(&alone.scaler, &state, &err) == 0, err);
    return alone;
}

static void alone_close(Alone *alone) {
    optimizer_close(alone->optimizer);
    module_close(alone->model);
    device_close(alone->device);
}

static void set_gradient(Alone *alone, float a, float b, float c) {
    memcpy(alone->weight->grad, (float[]){a, b, c}, sizeof(float[3]));
    alone->weight->has_grad = true;
}

// One scaled step; the middle element of the gradient is `element`.
static void alone_step(Alone *alone, float element) {
    Error err = {0};
    set_gradient(alone, 1, element, 1);
    CHECK_OK(grad_scaler_step(&alone->scaler, alone->optimizer, 0.1, &err) == 0, err);
    CHECK_OK(grad_scaler_update(&alone->scaler, &err) == 0, err);
}

static void assert_state(const Alone *alone, float scale, int64_t tracker) {
    assert_true(alone->scaler.state.scale == scale);
    assert_int_equal(alone->scaler.state.growth_tracker, tracker);
}

static void row_74_update_rule(void **state) {
    (void)state;
    const GradScalerState standard = grad_scaler_default();
    assert_true(standard.scale == 65536 && standard.growth_factor == 2 &&
                standard.backoff_factor == 0.5 && standard.growth_interval == 2000 &&
                standard.growth_tracker == 0);
    Alone alone = alone_open(standard.scale, standard.growth_interval);
    for (int i = 0; i < 1999; i++) alone_step(&alone, 1);
    assert_state(&alone, 65536, 1999);
    alone_step(&alone, 1);
    assert_state(&alone, 131072, 0);
    alone_step(&alone, 1);
    assert_state(&alone, 131072, 1);
    static const float bad[] = {INFINITY, -INFINITY, NAN};
    for (int i = 0; i < 3; i++) { // each inf halves the scale and resets the growth tracker
        int64_t steps = alone.optimizer->steps[0];
        float weight = tensor_f32(alone.weight)[0];
        alone_step(&alone, bad[i]);
        assert_state(&alone, (float)(65536 >> i), 0);
        assert_int_equal(alone.optimizer->steps[0], steps); // the step was skipped
        assert_true(tensor_f32(alone.weight)[0] == weight);
        alone_step(&alone, FLT_MAX); // finite
        assert_state(&alone, (float)(65536 >> i), 1);
        assert_int_equal(alone.optimizer->steps[0], steps + 1);
    }
    alone_close(&alone);
}

// The scale grows only if the result is finite; otherwise it stays and the tracker is reset.
static void row_74_growth_only_if_finite(void **state) {
    (void)state;
    Alone alone = alone_open(0x1p126f, 2);
    for (int i = 0; i < 2; i++) alone_step(&alone, 1);
    assert_state(&alone, 0x1p127f, 0);
    for (int i = 0; i < 3; i++) alone_step(&alone, 1);
    assert_state(&alone, 0x1p127f, 1);
    alone_close(&alone);
}

// Not finite: inf - inf (NaN). Finite: numbers whose sum would overflow. Undefined gradients are
// not read.
static void row_74_what_is_finite(void **state) {
    (void)state;
    Error err = {0};
    Alone alone = alone_open(1, 2000);
    set_gradient(&alone, INFINITY, 0, -INFINITY);
    CHECK_OK(grad_scaler_unscale(&alone.scaler, alone.optimizer, &err) == 0, err);
    assert_true(alone.scaler.found_inf);
    CHECK_OK(grad_scaler_update(&alone.scaler, &err) == 0, err);
    set_gradient(&alone, FLT_MAX, FLT_MAX, FLT_MAX);
    CHECK_OK(grad_scaler_unscale(&alone.scaler, alone.optimizer, &err) == 0, err);
    assert_false(alone.scaler.found_inf);
    alone_close(&alone);
}

// Parameters on two devices: an infinite gradient on either device skips the step on both.
static void row_74_bad_gradient_on_one_of_two_devices(void **state) {
    (void)state;
    Error err = {0};
    Device *devices[] = {device_open("cpu:0", &err), device_open("cpu:1", &err)};
    Module *model = layer_sequential("Two");
    for (int i = 0; i < 2; i++) module_add(model, i ? "b" : "a", matrix_model(devices[i], 3, 1, 1));
    Optimizer *optimizer = optimizer_create(model, &SGD);
    for (int bad = 0; bad < 3; bad++) { // 2: no infinite gradient
        GradScaler scaler;
        GradScalerState start = grad_scaler_default();
        CHECK_OK(grad_scaler_load(&scaler, &start, &err) == 0, err);
        for (int i = 0; i < 2; i++) {
            Tensor *weight = module_parameter(model->children[i], 0);
            weight->has_grad = true;
            for (int e = 0; e < 3; e++) weight->grad[e] = i == bad && e == 1 ? NAN : 65536;
        }
        CHECK_OK(grad_scaler_unscale(&scaler, optimizer, &err) == 0, err);
        assert_int_equal(scaler.found_inf, bad < 2);
        CHECK_OK(grad_scaler_step(&scaler, optimizer, 1, &err) == 0, err);
        for (int i = 0; i < 2; i++)
            assert_true(tensor_f32(module_parameter(model->children[i], 0))[0] == (bad < 2));
    }
    optimizer_close(optimizer);
    module_close(model);
    for (int i = 0; i < 2; i++) device_close(devices[i]);
}

// Unscaling multiplies by the reciprocal, rounded once: g * float(1 / scale), not g / scale.
static void row_74_unscale_then_clip(void **state) {
    (void)state;
    Error err = {0};
    Alone alone = alone_open(3, 2000);
    set_gradient(&alone, 5, 7, 1e-30f);
    CHECK_OK(grad_scaler_unscale(&alone.scaler, alone.optimizer, &err) == 0, err);
    const float inverse = (float)(1.0 / 3.0), want[] = {5 * inverse, 7 * inverse, 1e-30f * inverse};
    assert_memory_equal(alone.weight->grad, want, sizeof want);
    set_gradient(&alone, 0.5f, 0, -0.5f); // the clipped gradient, as the step will read it
    CHECK_OK(grad_scaler_step(&alone.scaler, alone.optimizer, 1, &err) == 0, err);
    const float after[] = {0.5f, 1, 1.5f};
    assert_memory_equal(alone.weight->data, after, sizeof after);
    alone_close(&alone);
}

static void row_74_scaled_loss(void **state) {
    (void)state;
    static const float scales[] = {65536, 1, 0x1p-20f, 3, 1000.1f};
    for (size_t i = 0; i < sizeof scales / sizeof scales[0]; i++) {
        Error err = {0};
        Alone alone = alone_open(scales[i], 2000);
        Tape *tape = tape_create(alone.device, NULL);
        Tensor *loss = op_toy_mean(tape, alone.weight, 3); // d loss / d weight is 1
        Tensor *scaled = grad_scaler_scale(&alone.scaler, tape, loss);
        assert_true(tensor_item(scaled) == tensor_item(loss) * scales[i]);
        CHECK_OK(tape_backward(tape, scaled, &err) == 0, err);
        for (int e = 0; e < 3; e++) assert_true(alone.weight->grad[e] == scales[i]);
        assert_null(grad_scaler_scale(&alone.scaler, tape, NULL));
        tape_close(tape);
        alone_close(&alone);
    }
}

static void refuse(int result, Error *err, const char *text) {
    assert_int_equal(result, -1);
    assert_string_equal(err->message, text);
    *err = (Error){0};
}

static void row_74_calls_out_of_order(void **state) {
    (void)state;
    Error err = {0};
    Alone alone = alone_open(2, 2000);
    GradScaler *scaler = &alone.scaler;
    Optimizer *optimizer = alone.optimizer;
    refuse(grad_scaler_update(scaler, &err), &err, "No inf checks were recorded prior to update.");
    refuse(grad_scaler_step(scaler, optimizer, 1, &err), &err,
           "No inf checks were recorded for this optimizer.");
    set_gradient(&alone, 2, 2, 2);
    CHECK_OK(grad_scaler_unscale(scaler, optimizer, &err) == 0, err);
    refuse(grad_scaler_unscale(scaler, optimizer, &err), &err,
           "unscale_() has already been called on this optimizer since the last update().");
    CHECK_OK(grad_scaler_step(scaler, optimizer, 1, &err) == 0, err);
    refuse(grad_scaler_step(scaler, optimizer, 1, &err), &err,
           "step() has already been called since the last update().");
    refuse(grad_scaler_unscale(scaler, optimizer, &err), &err,
           "unscale_() is being called after step().");
    assert_true(alone.weight->grad[0] == 1 && tensor_f32(alone.weight)[0] == 0); // one step each
    CHECK_OK(grad_scaler_update(scaler, &err) == 0, err);
    CHECK_OK(grad_scaler_unscale(scaler, optimizer, &err) == 0, err);
    alone_close(&alone);
}

static void row_74_saved_state(void **state) {
    (void)state;
    Error err = {0};
    Alone alone = alone_open(1024, 3), other = alone_open(65536, 2000);
    for (int i = 0; i < 2; i++) alone_step(&alone, 1);
    GradScalerState saved = alone.scaler.state;
    CHECK_OK(grad_scaler_load(&other.scaler, &saved, &err) == 0, err);
    assert_state(&other, 1024, 2);
    alone_step(&other, 1);
    assert_state(&other, 2048, 0);
    // Loading a state resets a scaler that has found an inf in the current step.
    set_gradient(&other, INFINITY, 0, 0);
    CHECK_OK(grad_scaler_unscale(&other.scaler, other.optimizer, &err) == 0, err);
    CHECK_OK(grad_scaler_load(&other.scaler, &saved, &err) == 0, err);
    alone_step(&other, 1);
    assert_state(&other, 2048, 0);
    static const struct {
        GradScalerState state;
        const char *text;
    } bad[] = {
        {{1, 1, 0.5, 1, 0}, "The growth factor must be > 1.0, not 1."},
        {{1, 2, 1, 1, 0}, "The backoff factor must be < 1.0 and > 0, not 1."},
        {{1, 2, NAN, 1, 0}, "The backoff factor must be < 1.0 and > 0, not nan."},
        {{0, 2, 0.5, 1, 0}, "The scale must be positive and finite, not 0."},
        {{INFINITY, 2, 0.5, 1, 0}, "The scale must be positive and finite, not inf."},
        {{1, 2, 0.5, 0, 0}, "0 good steps do not fit a growth interval of 0 steps."},
        {{1, 2, 0.5, 5, 5}, "5 good steps do not fit a growth interval of 5 steps."},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        refuse(grad_scaler_load(&other.scaler, &bad[i].state, &err), &err, bad[i].text);
    assert_state(&other, 2048, 0);
    alone_close(&alone);
    alone_close(&other);
}

// ---- with DistributedDataParallel -------------------------------------------------------------

// A scaler with this scale, which grows after `interval` steps without an inf.
static GradScaler scaler_of(float scale, int64_t interval) {
    GradScaler scaler;
    GradScalerState state = grad_scaler_default();
    state.scale = scale;
    state.growth_interval = interval;
    CHECK(grad_scaler_load(&scaler, &state, NULL) == 0, "scale %g", (double)scale);
    return scaler;
}

static bool same_tensors(Module *a, Module *b, bool grads) {
    NamedTensors mine = module_tensors(a, MODULE_PARAMETERS);
    NamedTensors theirs = module_tensors(b, MODULE_PARAMETERS);
    bool same = true;
    for (size_t i = 0; i < mine.count; i++) {
        const Tensor *x = mine.items[i].tensor, *y = theirs.items[i].tensor;
        const void *left = grads ? (void *)x->grad : x->data;
        same = same && memcmp(left, grads ? (void *)y->grad : y->data, tensor_bytes(x)) == 0;
    }
    named_tensors_free(&mine);
    named_tensors_free(&theirs);
    return same;
}

static double largest_gradient(Module *model) {
    NamedTensors tensors = module_tensors(model, MODULE_PARAMETERS);
    double largest = 0;
    for (size_t i = 0; i < tensors.count; i++)
        for (size_t e = 0; e < tensor_count(tensors.items[i].tensor); e++)
            largest = fmax(largest, fabs((double)tensors.items[i].tensor->grad[e]));
    named_tensors_free(&tensors);
    return largest;
}

static void backward(Rig *rig, Module *wrapper, const GradScaler *scaler, int step) {
    Error err = {0};
    size_t rows = test_rows(rig->rank);
    tape_reset(rig->tape);
    module_zero_grad(wrapper);
    Tensor *loss = test_loss(rig->tape, wrapper, rig->rank, step, rows, (double)rows);
    if (scaler) loss = grad_scaler_scale(scaler, rig->tape, loss);
    if (tape_error(rig->tape, &err) != 0 || tape_backward(rig->tape, loss, &err) != 0 ||
        ddp_finish_backward(wrapper, NULL, &err) != 0)
        problem(rig->outcome, "step %d: %s", step, err.message);
}

// Trains with and without a scaler in one group: equal bits.
static void parity(ProcessGroup *group, const void *argument, Outcome *outcome) {
    (void)argument;
    Rig self = rig_open(group, outcome), *rig = &self;
    Error err = {0};
    DdpConfig config = ddp_config_default();
    config.bucket_cap_mb = 0.002;
    rig_wrap(rig, test_model("shared", 5, rig->device), &config);
    Module *plain = distributed_data_parallel(test_model("shared", 5, rig->device), group, &config,
                                              &outcome->error);
    CHECK(plain, "%s", outcome->error.message);
    Optimizer *mine = optimizer_create(rig->model, &SGD);
    Optimizer *theirs = optimizer_create(ddp_module(plain), &SGD);
    GradScaler scaler = scaler_of(65536, 2);
    for (int step = 0; step < 5; step++) {
        float scale = scaler.state.scale;
        EXPECT(scale == ldexpf(1, 16 + step / 2)); // grown after two good steps
        backward(rig, rig->wrapper, &scaler, step);
        backward(rig, plain, NULL, step);
        double scaled = largest_gradient(rig->model), unscaled = largest_gradient(plain);
        EXPECT(unscaled > 1e-3 && scaled == unscaled * (double)scale); // reduced while scaled
        EXPECT(grad_scaler_unscale(&scaler, mine, &err) == 0);
        EXPECT(!scaler.found_inf && same_tensors(rig->model, plain, true));
        EXPECT(grad_scaler_step(&scaler, mine, 0.1, &err) == 0);
        EXPECT(grad_scaler_update(&scaler, &err) == 0);
        optimizer_step(theirs, 0.1);
        EXPECT(same_tensors(rig->model, plain, false));
    }
    optimizer_close(mine);
    optimizer_close(theirs);
    module_close(plain);
    rig_close(rig);
}

// One rank's gradient is inf or NaN, or overflows when it is scaled: all ranks skip the step. The
// other ranks' losses are finite: they see the inf in the reduced gradient only.
static void one_bad_rank(ProcessGroup *group, const void *argument, Outcome *outcome) {
    const float *bad = argument;
    Rig self = rig_open(group, outcome), *rig = &self;
    Error err = {0};
    const DdpConfig config = ddp_config_default();
    rig_wrap(rig, toy_model(rig->device, 2, 1), &config);
    Optimizer *optimizer = optimizer_create(rig->model, &SGD);
    GradScaler scaler = scaler_of(65536, 2000);
    for (int step = 0; step < 4; step++) {
        bool fails = step % 2 == 1, mine = fails && rig->rank == rig->world - 1;
        float factors[] = {4, 4};
        if (mine) factors[step / 2] = *bad; // in the first parameter, then in the last
        tape_reset(rig->tape);
        module_zero_grad(rig->model);
        Tensor *x = tape_input(rig->tape, DTYPE_F32, 1, (size_t[]){2}, factors);
        Tensor *loss = module_forward(rig->wrapper, rig->tape, x);
        EXPECT(mine || isfinite(tensor_item(loss)));
        EXPECT(tape_backward(rig->tape, grad_scaler_scale(&scaler, rig->tape, loss), &err) == 0);
        EXPECT(ddp_finish_backward(rig->wrapper, NULL, &err) == 0);
        uint64_t calls = pg_sequence(group);
        float before = tensor_f32(rig_parameter(rig, 0))[0];
        EXPECT(grad_scaler_step(&scaler, optimizer, 0.25, &err) == 0);
        EXPECT(grad_scaler_update(&scaler, &err) == 0);
        EXPECT(pg_sequence(group) == calls); // no collective of the scaler
        EXPECT(scaler.found_inf == fails);
        EXPECT(fails == (tensor_f32(rig_parameter(rig, 0))[0] == before));
        EXPECT(scaler.state.scale == ldexpf(1, 16 - (step + 1) / 2)); // halved twice
        EXPECT(scaler.state.growth_tracker == !fails);
        EXPECT(optimizer->steps[0] == step / 2 + 1 && optimizer->steps[1] == step / 2 + 1);
    }
    optimizer_close(optimizer);
    rig_close(rig);
}

static void row_74_grad_scaler_with_ddp(void **state) {
    (void)state;
    static const float bad[] = {INFINITY, -INFINITY, NAN, 1e36f};
    for (int world = 2; world <= 3; world++) {
        play_both(world, parity, NULL, NULL);
        for (int i = 0; i < 4; i++) play_both(world, one_bad_rank, &bad[i], NULL);
    }
}

// Without a reduction (a warning in the header) each rank decides for itself whether to step.
static void unreduced(ProcessGroup *group, const void *argument, Outcome *outcome) {
    (void)argument;
    Rig self = rig_open(group, outcome), *rig = &self;
    Error err = {0};
    const DdpConfig config = ddp_config_default();
    rig_wrap(rig, toy_model(rig->device, 1, 1), &config);
    Optimizer *optimizer = optimizer_create(rig->model, &SGD);
    GradScaler scaler = scaler_of(65536, 2000);
    bool before = ddp_no_sync_begin(rig->wrapper);
    toy_train(rig, (float[]){rig->rank == 1 ? INFINITY : 65536});
    ddp_no_sync_end(rig->wrapper, before);
    EXPECT(grad_scaler_step(&scaler, optimizer, 0.25, &err) == 0);
    EXPECT(scaler.found_inf == (rig->rank == 1));
    optimizer_close(optimizer);
    rig_close(rig);
}

static void row_74_ranks_disagree_under_no_sync(void **state) {
    (void)state;
    play_both(2, unreduced, NULL, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(row_74_update_rule),
        cmocka_unit_test(row_74_growth_only_if_finite),
        cmocka_unit_test(row_74_what_is_finite),
        cmocka_unit_test(row_74_bad_gradient_on_one_of_two_devices),
        cmocka_unit_test(row_74_unscale_then_clip),
        cmocka_unit_test(row_74_scaled_loss),
        cmocka_unit_test(row_74_calls_out_of_order),
        cmocka_unit_test(row_74_saved_state),
        cmocka_unit_test(row_74_grad_scaler_with_ddp),
        cmocka_unit_test(row_74_ranks_disagree_under_no_sync),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
