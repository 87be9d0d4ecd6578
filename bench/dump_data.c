/* dump_data.c: training samples as the programs see them (normalised, not augmented), in their
 * order, for other programs to train on: x [count, c, h, w] and target, as safetensors.
 */
#include "common/base/format.h"
#include "common/base/memory.h"
#include "common/data/dataset.h"
#include "common/tensor_files/safetensors.h"

static const char USAGE[] = "usage: dump_data NAME COUNT FILE: the first COUNT training samples of "
                            "--data NAME, which has labels";

static int write_data(const Dataset *set, size_t count, const char *path, Error *err) {
    size_t size = dataset_sample_size(set), labels = dataset_label_size(set);
    float *x = memory_zalloc(count * size * sizeof *x);
    int64_t *target = memory_zalloc(count * labels * sizeof *target);
    for (size_t i = 0; i < count; i++) {
        dataset_sample(set, i, NULL, 0, x + i * size);
        dataset_sample_labels(set, i, NULL, 0, target + i * labels);
    }
    const size_t *shape = set->shape;
    SafeEntry entries[] = {
        {"x", DTYPE_F32, 4, {count, shape[0], shape[1], shape[2]}, x, count * size * sizeof *x},
        {"target",
         DTYPE_I64,
         set->dense ? 3 : 1,
         {count, shape[1], shape[2]},
         target,
         count * labels * sizeof *target}};
    SafeTensors content = {.entries = entries, .count = 2};
    int failed = safetensors_write(path, &content, err);
    free(x);
    free(target);
    return failed;
}

int main(int argc, char **argv) {
    Error err = {0};
    size_t count = argc == 4 ? strtoul(argv[2], NULL, 10) : 0;
    if (count == 0) {
        fprintf(stderr, "%s\n", USAGE);
        return STATUS_USAGE;
    }
    DataSource *source = must_get(dataset_open(argv[1], 0, &err), &err);
    const Dataset *set = &source->train;
    if (!set->labels || count > set->count)
        must_do(error_set(&err, STATUS_USAGE,
                          "%s: asked for %zu sample%s with labels, it has %zu%s", argv[1], count,
                          format_s(count), set->count, set->labels ? "" : " without"),
                &err);
    must_do(write_data(set, count, argv[3], &err), &err);
    dataset_close(source);
    return STATUS_OK;
}
