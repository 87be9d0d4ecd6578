/* test_attention_choice.c: replicas agree on one of two attention kernels per head size; a fast
 * kernel that is inexact is named in a note (nn/attention_choice.h). The devices are CPUs with
 * simulated kernels.
 */
#include "common/device/device_backend.h"
#include "tests/rigs/captured.h"
#include "tests/rigs/check.h"

#include <stdlib.h>

#include "common/nn/attention_choice.h"
#include "common/nn/models.h"

enum { DEVICES = 3, LAYERS = 2, SIZES = 3 };

// The model's head sizes.
static const size_t HEADS[SIZES] = {4, 6, 8};

typedef struct Replica {
    Device device;
    DeviceBackend backend;
    Kernels kernels;
    HalfKernels halves;
    float trials[SIZES][2]; // measured differences; bf16, fp16
    float choices[SIZES][2];
    int set;
} Replica;

static Replica replicas[DEVICES], *current;

static int size_of(size_t head_size) {
    for (int i = 0; i < SIZES; i++)
        if (HEADS[i] == head_size) return i;
    return SIZES;
}

static void enter(const Device *device) {
    current = (Replica *)device; // its first field
}

static float difference(Precision precision, size_t head_size) {
    const int size = size_of(head_size);
    assert_true(precision == PRECISION_BF16 || precision == PRECISION_F16);
    return size < SIZES ? current->trials[size][precision == PRECISION_F16] : 0;
}

static void set_difference(Precision precision, size_t head_size, float value) {
    const int size = size_of(head_size);
    current->set++;
    if (size < SIZES) current->choices[size][precision == PRECISION_F16] = value;
}

static void reset_replicas(void) {
    for (int d = 0; d < DEVICES; d++) {
        Replica *r = &replicas[d];
        *r = (Replica){.backend = {.name = "two", .enter = enter},
                       .halves = {.attention_difference = difference,
                                  .set_attention_difference = set_difference}};
        r->kernels.halves = &r->halves;
        r->device.kernels = &r->kernels;
        r->device.backend = &r->backend;
        snprintf(r->device.name, sizeof r->device.name, "two:%d", d);
        for (int s = 0; s < SIZES; s++)
            for (int p = 0; p < 2; p++) r->trials[s][p] = 0.25f;
    }
}

static Module *add_gpt(Module *parent, Device *cpu, size_t head_size) {
    char name[24];
    Error err = {0};
    const ModelConfig config = {
        .name = "gpt",
        .outputs = 5,
        .gpt = {.layers = LAYERS, .heads = 1, .embedding = head_size, .context = 4}};
    Module *gpt = model_create(&config, cpu, &err);
    CHECK_OK(gpt, err);
    snprintf(name, sizeof name, "gpt%d", parent->child_count);
    return module_add(parent, name, gpt);
}

// Runs attention_choose over `count` devices. Returns the printed notes, to be freed.
static char *agree(Module *model, int count) {
    Device *devices[DEVICES];
    for (int d = 0; d < count; d++) devices[d] = &replicas[d].device;
    Captured captured = captured_begin();
    attention_choose(model, devices, count);
    return captured_end(&captured);
}

static void expect_choices(int count, const float wanted[SIZES]) {
    for (int d = 0; d < count; d++) {
        assert_int_equal(replicas[d].set, SIZES * LAYERS * 2);
        for (int s = 0; s < SIZES; s++)
            for (int p = 0; p < 2; p++) assert_true(replicas[d].choices[s][p] == wanted[s]);
    }
}

typedef struct Rig {
    Device *cpu;
    Module *model;
} Rig;

static Rig rig_open(void) {
    Error err = {0};
    Rig rig = {device_open("cpu:0", &err), module_create("Several", NULL)};
    CHECK_OK(rig.cpu, err);
    for (int s = 0; s < SIZES; s++) add_gpt(rig.model, rig.cpu, HEADS[s]);
    reset_replicas();
    return rig;
}

static void rig_close(Rig *rig) {
    module_close(rig->model);
    device_close(rig->cpu);
}

static void the_worst_trial_counts_for_all(void **state) {
    (void)state;
    Rig rig = rig_open();
    replicas[1].trials[0][1] = 0.75f;
    replicas[0].trials[1][0] = 1; // at most 1: the fast kernel is used
    replicas[2].trials[2][0] = 0.5f;
    replicas[1].trials[2][1] = 1.5f;
    char *said = agree(rig.model, DEVICES);
    assert_string_equal(said, "note: attention on tensor cores is off for heads of 8: that of "
                              "device 1 is 1.5e+00 times what rounding explains from the exact "
                              "kernels, which take over on all 3\n");
    free(said);
    expect_choices(DEVICES, (const float[]){0.75f, 1, 1.5f});
    // Only the first two devices agree; the third is unchanged.
    reset_replicas();
    replicas[2].trials[0][0] = 9;
    said = agree(rig.model, 2);
    assert_string_equal(said, "");
    free(said);
    expect_choices(2, (const float[]){0.25f, 0.25f, 0.25f});
    assert_int_equal(replicas[2].set, 0);
    rig_close(&rig);
}

// INFINITY: a device has no fast kernel for this size. If no device has one, there is no note.
static void no_fast_attention_is_no_news(void **state) {
    (void)state;
    Rig rig = rig_open();
    for (int d = 0; d < DEVICES; d++) replicas[d].trials[0][0] = INFINITY;
    replicas[2].trials[1][0] = INFINITY;
    char *said = agree(rig.model, DEVICES);
    assert_null(strstr(said, "heads of 4"));
    assert_non_null(strstr(said, "off for heads of 6: that of device 2 is inf times"));
    assert_null(strstr(said, "heads of 8"));
    free(said);
    expect_choices(DEVICES, (const float[]){INFINITY, INFINITY, 0.25f});
    // A quiet rank prints nothing and computes the same choices.
    AttentionChoices all[2] = {{1, {{4, 0.5}}}, {1, {{4, 2}}}};
    Captured captured = captured_begin();
    attention_choices_join(all, 2, "rank", false);
    said = captured_end(&captured);
    assert_string_equal(said, "");
    assert_true(all[0].of[0].difference == 2 && all[0].count == 1);
    free(said);
    rig_close(&rig);
}

static void who_has_two(void **state) {
    (void)state;
    Rig rig = rig_open();
    assert_int_equal(attention_choices(rig.model, &replicas[0].device).count, SIZES);
    assert_int_equal(attention_choices(rig.model, NULL).count, 0); // the model is on a CPU
    snprintf(replicas[0].device.name, sizeof replicas[0].device.name, "dry-two:0");
    assert_int_equal(attention_choices(rig.model, &replicas[0].device).count, 0);
    replicas[1].halves.attention_difference = NULL; // as for "ref"
    assert_int_equal(attention_choices(rig.model, &replicas[1].device).count, 0);
    replicas[2].kernels.halves = NULL;
    assert_int_equal(attention_choices(rig.model, &replicas[2].device).count, 0);
    rig_close(&rig);
}

// More sizes than ATTENTION_CHOICES: the last sizes have no choice.
static void more_sizes_than_choices(void **state) {
    (void)state;
    Rig rig = rig_open();
    for (size_t i = SIZES; i < ATTENTION_CHOICES + 2; i++) add_gpt(rig.model, rig.cpu, 10 + 2 * i);
    const AttentionChoices choices = attention_choices(rig.model, &replicas[0].device);
    assert_int_equal(choices.count, ATTENTION_CHOICES);
    for (int s = 0; s < SIZES; s++) {
        assert_int_equal(choices.of[s].size, HEADS[s]);
        assert_true(choices.of[s].difference == 0.25);
    }
    free(agree(rig.model, 1));
    assert_int_equal(replicas[0].set, ATTENTION_CHOICES * LAYERS * 2);
    rig_close(&rig);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_worst_trial_counts_for_all),
        cmocka_unit_test(no_fast_attention_is_no_news),
        cmocka_unit_test(who_has_two),
        cmocka_unit_test(more_sizes_than_choices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
