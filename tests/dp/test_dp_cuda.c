/* test_dp_cuda.c: DataParallel on GPUs, also with several Devices on one GPU.
 *
 *   compared with                 result
 *   shards in sequence, one GPU   equal bits, as on CPUs, also in 16 bits: a kernel's result
 *                                 depends only on its arguments (all GPUs of a machine are alike)
 *   the whole batch on one GPU    float32 rounding: sums have another order
 *   DataParallel on CPUs          float32 rounding
 *
 * Bytes copied between Devices and allocated on them are the same as on CPUs.
 */
#include "dp/strategy_dp.h"
#include "tests/rigs/data_parallel_steps.h"
#include "tests/rigs/half_types.h"

typedef struct Placement {
    int count, ids[SHARDS_MAX]; // GPU of each replica
} Placement;

static const Placement PLACEMENTS[] = {
    {2, {0, 0}}, {3, {0, 0, 0}}, {2, {0, 1}}, {2, {1, 0}}, {5, {0, 1, 1, 0, 1}}};
static const size_t ROWS[] = {1, 2, 3, 7, LARGEST_BATCH}; // 1 to 3: fewer than replicas
static const BuildModule MODELS[] = {build_mlp, build_convnet};
enum { PLACEMENT_COUNT = 5, ROW_COUNT = 5, MODEL_COUNT = 2 };

static bool fits(const Placement *placement) {
    for (int i = 0; i < placement->count; i++)
        if (placement->ids[i] >= device_available("cuda")) return false;
    return true;
}

static Rig open_on(const Placement *placement, BuildModule build) {
    return rig_open_on(build, placement->count, "cuda", placement->ids, placement->ids[0]);
}

static Tensor *run_step(Rig *rig, size_t rows) {
    tape_reset(rig->tape);
    module_zero_grad(rig->wrapper);
    Tensor *y = module_forward(rig->wrapper, rig->tape, rig_batch(rig, rig->tape, rows));
    rig_backward(rig->tape, rig_loss(rig->tape, y));
    return y;
}

// Compares memory on any two devices.
static void assert_near_memory(const char *what, Device *a, const float *have, Device *b,
                               const float *want, size_t count) {
    float *mine = host_copy(a, have, count * sizeof *mine);
    float *other = host_copy(b, want, count * sizeof *other);
    assert_near(what, mine, other, count);
    free(mine);
    free(other);
}

static void assert_near_modules(const Rig *rig, const Rig *other) {
    NamedTensors a = module_tensors(rig->wrapper, MODULE_STATE);
    NamedTensors b = module_tensors(other->wrapper, MODULE_STATE);
    for (size_t k = 0; k < a.count; k++) {
        const Tensor *have = a.items[k].tensor, *want = b.items[k].tensor;
        if (have->dtype != DTYPE_F32) {
            assert_same_values(a.items[k].name, have, want);
            continue;
        }
        size_t count = tensor_count(want);
        assert_near_memory(a.items[k].name, have->device, have->data, want->device, want->data,
                           count);
        assert_int_equal(have->has_grad, want->has_grad);
        if (have->has_grad)
            assert_near_memory(a.items[k].name, have->device, have->grad, want->device, want->grad,
                               count);
    }
    named_tensors_free(&a);
    named_tensors_free(&b);
}

static void compare_rows(Rig *rig, Precision precision) {
    rig->tape->precision = rig->reference_tape->precision = precision;
    for (int r = 0; r < ROW_COUNT; r++) {
        module_zero_grad(rig->wrapper);
        module_zero_grad(rig->twin);
        compare_step(rig, ROWS[r]);
        compare_step(rig, ROWS[r]); // accumulates
    }
}

static void test_serial_shards(void **state) {
    (void)state;
    for (int p = 0; p < PLACEMENT_COUNT; p++) {
        for (int m = 0; m < MODEL_COUNT && fits(&PLACEMENTS[p]); m++) {
            Rig rig = open_on(&PLACEMENTS[p], MODELS[m]);
            compare_rows(&rig, PRECISION_F32);
            compare_rows(&rig, half_type(rig.devices[0], p % 2));
            rig_close(&rig);
        }
    }
}

// A weight too large for a packed copy, beside small ones.
static Module *build_wide(Device *device) {
    enum { WIDE = 44000 }; // 1.06 MB
    Module *model = layer_sequential("Wide");
    module_add(model, "fc1", layer_linear(device, INPUTS, WIDE));
    module_add(model, "fc2", layer_linear(device, WIDE, CLASSES));
    module_initialize(model, SEED);
    return model;
}

static void test_large_weight(void **state) {
    (void)state;
    Rig rig = open_on(&PLACEMENTS[0], build_wide);
    compare_step(&rig, 3);
    rig_close(&rig);
}

// Models without batch norm: each chunk would have its own statistics.
static void test_one_device(void **state) {
    (void)state;
    for (int p = 0; p < PLACEMENT_COUNT; p++) {
        if (!fits(&PLACEMENTS[p])) continue;
        Rig rig = open_on(&PLACEMENTS[p], build_mlp);
        Rig one = open_on(&(Placement){1, {0}}, build_mlp);
        for (int r = 0; r < ROW_COUNT; r++) {
            Tensor *y = run_step(&rig, ROWS[r]), *want = run_step(&one, ROWS[r]);
            assert_near_memory("the output", y->device, y->data, want->device, want->data,
                               tensor_count(want));
            assert_near_modules(&rig, &one);
        }
        rig_close(&rig);
        rig_close(&one);
    }
}

// Compares values with the CPU's, and the bytes that each device received.
static void test_cpu(void **state) {
    (void)state;
    for (int p = 0; p < PLACEMENT_COUNT; p++) {
        for (int m = 0; m < MODEL_COUNT && fits(&PLACEMENTS[p]); m++) {
            Rig rig = open_on(&PLACEMENTS[p], MODELS[m]);
            Rig cpu = rig_open(MODELS[m], PLACEMENTS[p].count);
            for (int r = 0; r < ROW_COUNT; r++) {
                Tensor *y = run_step(&rig, ROWS[r]), *want = run_step(&cpu, ROWS[r]);
                assert_ptr_equal(y->device, rig.devices[0]);
                assert_near_memory("the output", y->device, y->data, want->device, want->data,
                                   tensor_count(want));
                assert_near_modules(&rig, &cpu);
                for (int i = 0; i < rig.count; i++)
                    assert_int_equal(rig.devices[i]->copied_bytes, cpu.devices[i]->copied_bytes);
            }
            assert_true(rig.devices[1]->copied_bytes > 0);
            rig_close(&rig);
            rig_close(&cpu);
        }
    }
}

static Module *build_relu(Device *device) {
    (void)device;
    return layer_relu();
}

// A wrapped part returns its input's gradient, split along either dimension.
static void test_input_gradient(void **state) {
    (void)state;
    for (int dim = 0; dim < 2; dim++) {
        Rig rig = open_on(&PLACEMENTS[0], build_relu), cpu = rig_open(build_relu, 2);
        Rig *sides[] = {&rig, &cpu};
        Tensor *x[2], *y[2];
        for (int i = 0; i < 2; i++) {
            Tape *tape = sides[i]->tape;
            data_parallel_set_dim(sides[i]->wrapper, dim);
            x[i] = rig_numbers(tape, 5, 7, 0);
            x[i]->requires_grad = true;
            y[i] = module_forward(sides[i]->wrapper, tape, x[i]);
            rig_backward(tape, op_squared_error(tape, y[i], rig_numbers(tape, 5, 7, 1), 1));
        }
        assert_same_values("the output", y[0], y[1]);
        assert_near_memory("the gradient", x[0]->device, x[0]->grad, x[1]->device, x[1]->grad, 35);
        rig_close(&rig);
        rig_close(&cpu);
    }
}

static void test_integer_buffer(void **state) {
    (void)state;
    Rig rig = open_on(&PLACEMENTS[1], build_integer);
    Tensor *y = module_forward(rig.wrapper, rig.tape, rig_batch(&rig, rig.tape, 3));
    int64_t *told = host_copy(y->device, y->data, tensor_bytes(y));
    for (int i = 0; i < 3; i++) assert_true(told[i] == ODD_BITS);
    free(told);
    rig_close(&rig);
}

static void test_no_memory_after_first_step(void **state) {
    (void)state;
    static const size_t STEPS[] = {16, 16, 16, 3, 16}; // step 3 is a short batch
    size_t bytes[3], peak[3];
    Rig rig = open_on(&PLACEMENTS[1], build_convnet);
    for (int step = 0; step < 5; step++) {
        run_step(&rig, STEPS[step]);
        for (int i = 0; i < 3; i++) {
            if (step < 2) { // the second reset merges the first step's memory blocks
                bytes[i] = rig.devices[i]->bytes;
                peak[i] = rig.devices[i]->peak_bytes;
            }
            assert_true(bytes[i] > 0);
            assert_int_equal(rig.devices[i]->bytes, bytes[i]);
            assert_int_equal(rig.devices[i]->peak_bytes, peak[i]);
        }
    }
    rig_close(&rig);
}

// ---- errors, and the options' devices ----------------------------------------------------------

static void test_failing_replica(void **state) {
    (void)state;
    Rig rig = open_on(&PLACEMENTS[0], build_square);
    Tensor *x = rig_batch(&rig, rig.tape, 3); // chunks of 2 and 1
    assert_null(module_forward(rig.wrapper, rig.tape, x));
    assert_error(rig.tape, "Caught error in replica 1 on device cuda:0: batch_norm on cuda:0: "
                           "Expected more than 1 value per channel when training, got input size "
                           "[1, 6]");
    tape_reset(rig.tape);
    assert_non_null(module_forward(rig.wrapper, rig.tape, rig_batch(&rig, rig.tape, 4)));
    rig_close(&rig);
}

// Two Devices on one GPU are allowed, the same Device twice is an error.
static void test_same_device_twice(void **state) {
    (void)state;
    Error err = {0};
    Device *device = rig_device("cuda", 0), *twice[] = {device, device};
    Module *model = build_mlp(device);
    assert_null(data_parallel(model, twice, 2, &err));
    assert_int_equal(err.status, STATUS_USAGE);
    assert_string_equal(err.message, "device cuda:0 is given twice");
    module_close(model);
    device_close(device);
}

static int open_devices(const char *kind, DpOptions dp, Device **devices, Error *err) {
    TrainConfig config = train_config_default();
    config.device = kind;
    int count = dp_open_devices(&config, &dp, devices, err);
    for (int i = 0; i < count; i++) {
        assert_string_equal(devices[i]->kernels->name, "cuda");
        device_close(devices[i]);
    }
    return count;
}

static void test_options(void **state) {
    (void)state;
    Device *devices[DP_MAX_DEVICES];
    Error err = {0};
    int here = device_available("cuda");
    assert_int_equal(open_devices("auto", dp_options_default(), devices, &err), here);
    assert_int_equal(open_devices("cuda", (DpOptions){.devices = here}, devices, &err), here);
    DpOptions twice = {.device_ids = "0,0"};
    assert_int_equal(open_devices("auto", twice, devices, &err), 2);
    DpOptions missing = {.device_ids = "99"}, too_many = {.devices = here + 1};
    assert_int_equal(open_devices("cuda", missing, devices, &err), -1);
    assert_int_equal(err.status, STATUS_SKIPPED);
    assert_non_null(strstr(err.message, "device cuda:99: "));
    if (here >= DP_MAX_DEVICES) return;
    char text[32];
    snprintf(text, sizeof text, "device cuda:%d: ", here);
    assert_int_equal(open_devices("cuda", too_many, devices, &err), -1);
    assert_int_equal(err.status, STATUS_SKIPPED);
    assert_non_null(strstr(err.message, text));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_serial_shards),
        cmocka_unit_test(test_large_weight),
        cmocka_unit_test(test_one_device),
        cmocka_unit_test(test_cpu),
        cmocka_unit_test(test_input_gradient),
        cmocka_unit_test(test_integer_buffer),
        cmocka_unit_test(test_no_memory_after_first_step),
        cmocka_unit_test(test_failing_replica),
        cmocka_unit_test(test_same_device_twice),
        cmocka_unit_test(test_options),
    };
    if (device_available("cuda") == 0) return STATUS_SKIPPED;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
