/* test_rungs.c: a rung of threads trains in constant memory, and differs from the one before in
 * nothing but its speed: their weights stay equal.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <string.h>

#include "bench/ladder/rungs.h"
#include "common/base/memory.h"
#include "common/nn/module.h"

enum { ROWS = 20, DEVICES = 3, BATCHES = 2, FIRST = 2, STEPS = 60 };

static Course open_course(const TrainConfig *config) {
    Error err = {0};
    const DataSource *data = must_get(dataset_open("digits", 0, &err), &err);
    const size_t sample = dataset_sample_size(&data->train);
    float *samples = memory_zalloc(BATCHES * ROWS * sample * sizeof *samples);
    int64_t *labels = memory_zalloc(BATCHES * ROWS * sizeof *labels);
    for (size_t i = 0; i < BATCHES * ROWS; i++) {
        dataset_sample(&data->train, i, NULL, 0, samples + i * sample);
        dataset_sample_labels(&data->train, i, NULL, 0, labels + i);
    }
    return (Course){config, data, samples, labels, BATCHES, ROWS, sample, DEVICES, 1};
}

// Returns the weights, [*bytes], the caller's.
static char *weights_of(const Rung *rung, size_t *bytes) {
    NamedTensors all = module_tensors(rung_model(rung), MODULE_PARAMETERS);
    char *weights = NULL;
    *bytes = 0;
    for (size_t i = 0; i < all.count; i++) {
        const size_t more = tensor_bytes(all.items[i].tensor);
        weights = realloc(weights, *bytes + more);
        memcpy(weights + *bytes, all.items[i].tensor->data, more);
        *bytes += more;
    }
    named_tensors_free(&all);
    return weights;
}

static const Device *first_device(const Rung *rung) {
    NamedTensors all = module_tensors(rung_model(rung), MODULE_PARAMETERS);
    const Device *device = all.items[0].tensor->device;
    named_tensors_free(&all);
    return device;
}

static void memory_is_constant(void **state) {
    (void)state;
    TrainConfig config = train_config_default();
    config.model = "mlp";
    config.hidden = "64,32";
    config.schedule.lr = 0.02;
    Course course = open_course(&config);
    char *first = NULL;
    for (Ingredient i = 0; i < PROCESSES; i++) {
        size_t before = 0, bytes;
        Rung *rung = rung_open(&course, i, NULL, NULL);
        for (int step = 0; step < STEPS; step++) {
            if (step == FIRST) before = first_device(rung)->bytes;
            rung_step(rung);
        }
        assert_int_equal(first_device(rung)->bytes, before);
        char *weights = weights_of(rung, &bytes);
        if (first) assert_memory_equal(weights, first, bytes);
        if (first)
            free(weights);
        else
            first = weights;
        rung_close(rung);
    }
    free(first);
    free((void *)course.samples);
    free((void *)course.labels);
    dataset_close((DataSource *)course.data);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(memory_is_constant)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
