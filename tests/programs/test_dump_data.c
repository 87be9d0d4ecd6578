/* test_dump_data.c: dump_data's file has the first samples of a data set and their labels. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <stdio.h>

#include "common/data/dataset.h"
#include "common/tensor_files/safetensors.h"
#include "tests/rigs/bench_main.h"
#include "tests/rigs/temp_folder.h"

enum { COUNT = 3 };

static const SafeEntry *entry(const SafeTensors *file, const char *name) {
    size_t i = 0;
    while (i < file->count && strcmp(file->entries[i].name, name) != 0) i++;
    assert_true(i < file->count);
    return &file->entries[i];
}

static void check(const char *folder, const char *name) {
    char *path = memory_format("%s/data", folder), *text;
    const char *const arguments[] = {"dump_data", name, "3", path, NULL};
    Error err = {0};
    SafeTensors file;
    assert_int_equal(run_bench(arguments, &text), STATUS_OK);
    assert_int_equal(safetensors_read(path, &file, &err), 0);
    DataSource *source = must_get(dataset_open(name, 0, &err), &err);
    const size_t size = dataset_sample_size(&source->train),
                 labels = dataset_label_size(&source->train);
    const SafeEntry *x = entry(&file, "x"), *target = entry(&file, "target");
    float *sample = memory_zalloc(size * sizeof *sample);
    int64_t *label = memory_zalloc(labels * sizeof *label);
    assert_int_equal(x->bytes, COUNT * size * sizeof *sample);
    assert_int_equal(target->bytes, COUNT * labels * sizeof *label);
    for (size_t i = 0; i < COUNT; i++) {
        dataset_sample(&source->train, i, NULL, 0, sample);
        dataset_sample_labels(&source->train, i, NULL, 0, label);
        assert_memory_equal((const float *)x->data + i * size, sample, size * sizeof *sample);
        assert_memory_equal((const int64_t *)target->data + i * labels, label,
                            labels * sizeof *label);
    }
    dataset_close(source);
    safetensors_free(&file);
    free(sample);
    free(label);
    free(text);
    free(path);
}

static void samples_are_the_first(void **state) {
    check(*state, "digits");
    check(*state, "shapes:8x9@4");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test_setup_teardown(
        samples_are_the_first, temp_folder_make, temp_folder_remove)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
