/* checkpoint_rig.h: a small model, its optimizer and a strategy's state, in which every value
 * encodes the current step; saving, loading and comparing them, for the tests of checkpoints.
 */
#ifndef TESTS_RIGS_CHECKPOINT_RIG_H
#define TESTS_RIGS_CHECKPOINT_RIG_H

#include "tests/rigs/check.h"

#include "common/tensor_files/checkpoint.h"

static const float UNTOUCHED = -77; // marks memory that no load may write

// A model and an optimizer whose values encode their step.
typedef struct Rig {
    Device *device;
    Module *module;
    Optimizer *optimizer;
    size_t floats; // elements of each parameter
} Rig;

static inline Rig rig_open(OptimizerKind kind, double momentum) {
    Error err = {0};
    Rig rig = {.device = device_open("cpu:0", &err), .floats = 6};
    CHECK_OK(rig.device, err);
    rig.module = module_create("Root", NULL);
    module_add_parameter(rig.module, rig.device, "weight", 2, (size_t[]){2, 3});
    module_add_parameter(rig.module, rig.device, "bias", 1, (size_t[]){6});
    OptimizerConfig config = {
        .kind = kind, .momentum = momentum, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8};
    rig.optimizer = optimizer_create(rig.module, &config);
    return rig;
}

static inline void rig_close(Rig *rig) {
    optimizer_close(rig->optimizer);
    module_close(rig->module);
    device_close(rig->device);
}

// Calls visit for every value of model and optimizer, with a running number.
static inline void
for_each_value(Rig *rig, void (*visit)(float *value, float number, void *context), void *context) {
    float number = 0;
    for (int p = 0; p < 2; p++) {
        float *memory[3] = {rig->module->parameters[p].tensor.data, rig->optimizer->state[0][p],
                            rig->optimizer->state[1][p]};
        for (int m = 0; m < 3; m++)
            for (size_t i = 0; memory[m] && i < rig->floats; i++)
                visit(&memory[m][i], number++, context);
    }
}

static inline void put(float *value, float number, void *step) {
    *value = *(float *)step + number / 1024;
}

static inline void compare(float *value, float number, void *step) {
    float wanted = *(float *)step;
    if (wanted != UNTOUCHED) wanted += number / 1024;
    if (!(*value == wanted)) fail_msg("%g, not %g", (double)*value, (double)wanted);
}

static inline void blank(float *value, float number, void *step) {
    (void)number, (void)step;
    *value = UNTOUCHED;
}

static inline Progress progress_at(uint64_t step) {
    return (Progress){.step = step,
                      .epoch = 3,
                      .batch = 100 + step,
                      .seed = UINT64_MAX - 9,
                      .global_batch = 60,
                      .samples = 600,
                      .shuffled = 1,
                      .devices = 4,
                      .best = 1.0 / 3 + (double)step, // needs 17 digits
                      .amp = "fp16",
                      .scale = 32768,
                      .growth_tracker = 200 + step,
                      .notes = {"a rate", "a schedule", "a momentum", "a decay", "betas", "steps",
                                "", "text of 31 characters, the most"}};
}

// A strategy's state: a counter, which equals the step, and numbers.
typedef struct Carried {
    int64_t counter;
    float numbers[8];
    SafeEntry entries[2];
} Carried;

static inline SafeTensors carry(Carried *carried, uint64_t step) {
    *carried = (Carried){.counter = (int64_t)step};
    for (int i = 0; i < 8; i++) carried->numbers[i] = (float)step + (float)i / 16;
    carried->entries[0] = (SafeEntry){.name = "powersgd.error.weight",
                                      .dtype = DTYPE_F32,
                                      .ndim = 3,
                                      .shape = {2, 2, 2},
                                      .data = carried->numbers,
                                      .bytes = sizeof carried->numbers};
    carried->entries[1] = (SafeEntry){.name = "step",
                                      .dtype = DTYPE_I64,
                                      .data = &carried->counter,
                                      .bytes = sizeof carried->counter};
    return (SafeTensors){.entries = carried->entries, .count = 2};
}

static inline void compare_carried(const SafeTensors *loaded, uint64_t step) {
    Carried memory;
    SafeTensors wanted = carry(&memory, step);
    assert_int_equal(loaded->count, wanted.count);
    for (size_t i = 0; i < wanted.count; i++) {
        const SafeEntry *want = &wanted.entries[i];
        const SafeEntry *have = safetensors_find(loaded, want->name);
        assert_non_null(have);
        assert_int_equal(have->dtype, want->dtype);
        assert_int_equal(have->ndim, want->ndim);
        assert_memory_equal(have->shape, want->shape, sizeof want->shape);
        assert_int_equal(have->bytes, want->bytes);
        assert_memory_equal(have->data, want->data, want->bytes);
    }
}

// Saves a checkpoint of `step`.
static inline int rig_save(Rig *rig, uint64_t step, const char *path, const char *previous,
                           Error *err) {
    float base = (float)step;
    for_each_value(rig, put, &base);
    for (int p = 0; p < 2; p++) rig->optimizer->steps[p] = (int64_t)step;
    Progress progress = progress_at(step);
    Carried memory;
    SafeTensors carried = carry(&memory, step);
    return checkpoint_save(path, previous, rig->module, rig->optimizer, &carried, &progress, err);
}

// Loads a checkpoint, asserts that all values are those of its step, and returns the step.
static inline uint64_t rig_load(Rig *rig, const char *path) {
    Error err = {0};
    Progress progress = {0};
    for_each_value(rig, blank, NULL);
    SafeTensors carried;
    CHECK_OK(checkpoint_load(path, rig->module, rig->optimizer, &carried, &progress, &err) == 0,
             err);
    compare_carried(&carried, progress.step);
    safetensors_free(&carried);
    float base = (float)progress.step;
    for_each_value(rig, compare, &base);
    Progress wanted = progress_at(progress.step);
    assert_int_not_equal(progress.checksum, 0);
    wanted.checksum = progress.checksum; // computed by the save
    assert_memory_equal(&progress, &wanted, sizeof wanted);
    assert_int_equal(rig->optimizer->steps[1], progress.step);
    return progress.step;
}

// Asserts that loading fails, changes nothing, and sets an error that contains `words`.
static inline void assert_refused(Rig *rig, const char *path, const char *words) {
    Error err = {0};
    Progress progress = {.step = 12345};
    for_each_value(rig, blank, NULL);
    SafeTensors carried;
    assert_int_equal(checkpoint_load(path, rig->module, rig->optimizer, &carried, &progress, &err),
                     -1);
    assert_null(carried.entries);
    check_message(&err, words);
    assert_int_equal(err.status, STATUS_USAGE);
    assert_int_equal(progress.step, 12345);
    float base = UNTOUCHED;
    for_each_value(rig, compare, &base);
}

#endif
