/* parity_files.c: files for parity/check_torch.py that no other program writes.
 *
 *   parity_files [FROM] TO    a module with shared weights, loaded from FROM, saved to TO
 */
#include "common/nn/layers.h"
#include "common/tensor_files/safetensors.h"

// encoder (3 to 5) and decoder (3 to 5) share a weight; each has its own bias.
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
    CHECK(argc == 2 || argc == 3, "usage: parity_files [FROM] TO");
    write_tied(argc == 3 ? argv[1] : NULL, argv[argc - 1]);
    return 0;
}
