/* summary.c: see summary.h. */
#include "common/nn/summary.h"

#include "common/base/format.h"

static void print_tree(Module *module, const char *path, FILE *stream) {
    size_t elements = 0;
    char shapes[160] = "";
    for (int i = 0; i < module->parameter_count; i++) {
        const ModuleTensor *entry = &module->parameters[i];
        format_append(shapes, sizeof shapes, "%s%s %s", *shapes ? ", " : "", entry->name,
                      entry->tied ? "shared" : tensor_describe(&entry->tensor).text);
        elements += entry->tied ? 0 : tensor_count(&entry->tensor);
    }
    if (module->parameter_count > 0)
        fprintf(stream, "%-24s %-12s %-44s %12zu\n", path, module->type, shapes, elements);
    for (int i = 0; i < module->child_count; i++) {
        Module *child = module->children[i];
        char name[MODULE_PATH];
        snprintf(name, sizeof name, "%s%s%s", path, *path && *child->name ? "." : "", child->name);
        print_tree(child, name, stream);
    }
}

void summary_print(Module *model, FILE *stream) {
    size_t parameters = module_count(model, MODULE_PARAMETERS);
    fprintf(stream, "%-24s %-12s %-44s %12s\n", "name", "type", "parameters", "elements");
    print_tree(model, "", stream);
    fprintf(stream, "%zu parameters (%zu bytes), %zu elements in buffers\n", parameters,
            parameters * sizeof(float), module_count(model, MODULE_BUFFERS));
}
