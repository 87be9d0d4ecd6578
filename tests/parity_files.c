/* parity_files.c: what parity/check_torch.py needs besides the programs' own files.
 *
 *   parity_files data NAME COUNT FILE   the first COUNT training samples of --data NAME as the
 *                                       programs see them: x, and target
 *   parity_files tied [FROM] TO         a module with shared weights, loaded from FROM, saved to TO
 */
#include <string.h>

#include "common/base/memory.h"
#include "common/data/dataset.h"
#include "common/nn/layers.h"
#include "common/train/safetensors.h"

static void write_data(const char *name, size_t count, const char *path) {
    Error err = {0};
    DataSource *source = dataset_open(name, 0, &err);
    if (!source) error_exit(&err);
    const Dataset *set = &source->train;
    CHECK(count <= set->count && set->labels, "%s has %zu samples", name, set->count);
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
    if (safetensors_write(path, &content, &err) != 0) error_exit(&err);
    free(x);
    free(target);
    dataset_close(source);
}

// encoder (3 to 5) and decoder (3 to 5) with one weight, each with a bias of its own.
static void write_tied(const char *from, const char *to) {
    Error err = {0};
    Device *device = device_open("cpu:0", &err);
    if (!device) error_exit(&err);
    Module *model = layer_sequential("Tied");
    Module *encoder = module_add(model, "encoder", layer_linear(device, 3, 5));
    Module *decoder = module_add(model, "decoder", layer_linear(device, 3, 5));
    module_tie_parameter(decoder, "weight", encoder, "weight");
    module_initialize(model, 1);
    if (from && safetensors_load_module(from, model, &err) != 0) error_exit(&err);
    if (safetensors_save_module(to, model, NULL, 0, &err) != 0) error_exit(&err);
    module_close(model);
    device_close(device);
}

int main(int argc, char **argv) {
    if (argc == 5 && strcmp(argv[1], "data") == 0)
        write_data(argv[2], strtoul(argv[3], NULL, 10), argv[4]);
    else if ((argc == 3 || argc == 4) && strcmp(argv[1], "tied") == 0)
        write_tied(argc == 4 ? argv[2] : NULL, argv[argc - 1]);
    else
        CHECK(false, "usage: parity_files data NAME COUNT FILE | tied [FROM] TO");
    return 0;
}
