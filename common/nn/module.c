/* module.c: building, walking, replicating and freeing trees of modules. */
#include "common/nn/module.h"

#include <string.h>

#include "common/base/memory.h"

Module *module_create(const char *type, Tensor *(*forward)(Module *, Tape *, Tensor *)) {
    Module *module = memory_zalloc(sizeof *module);
    module->type = type;
    module->forward = forward;
    return module;
}

static void free_tensor(ModuleTensor *entry) {
    Tensor *tensor = &entry->tensor;
    if (entry->owns_data) device_free(tensor->device, tensor->data, tensor_bytes(tensor));
    if (entry->owns_grad) device_free(tensor->device, tensor->grad, tensor_bytes(tensor));
}

void module_close(Module *module) {
    if (!module) return;
    if (module->destroy) module->destroy(module);
    for (int i = 0; i < module->child_count; i++) module_close(module->children[i]);
    for (int i = 0; i < module->parameter_count; i++) free_tensor(&module->parameters[i]);
    for (int i = 0; i < module->buffer_count; i++) free_tensor(&module->buffers[i]);
    free(module->children);
    free(module);
}

static void set_name(char *field, const char *name) {
    CHECK(strlen(name) < MODULE_NAME, "the name \"%s\" is too long", name);
    snprintf(field, MODULE_NAME, "%s", name);
}

Module *module_add(Module *parent, const char *name, Module *child) {
    size_t count = (size_t)parent->child_count;
    parent->children = memory_grow(parent->children, count + 1, sizeof *parent->children);
    parent->children[parent->child_count++] = child;
    set_name(child->name, name);
    return child;
}

Module *module_child(const Module *parent, const char *name) {
    for (int i = 0; i < parent->child_count; i++)
        if (strcmp(parent->children[i]->name, name) == 0) return parent->children[i];
    CHECK(false, "a %s has no child \"%s\"", parent->type, name);
    return NULL;
}

static Tensor *fill_entry(ModuleTensor *entry, Device *device, const char *name, DType dtype,
                          int ndim, const size_t *shape) {
    set_name(entry->name, name);
    entry->tensor = tensor_make(device, dtype, ndim, shape, NULL);
    size_t bytes = tensor_bytes(&entry->tensor);
    entry->tensor.data = device_alloc(device, bytes);
    entry->owns_data = true;
    device->kernels->fill(entry->tensor.data, 0.0f, bytes / sizeof(float));
    return &entry->tensor;
}

Tensor *module_add_parameter(Module *module, Device *device, const char *name, int ndim,
                             const size_t *shape) {
    CHECK(module->parameter_count < 2, "too many parameters in a %s", module->type);
    ModuleTensor *entry = &module->parameters[module->parameter_count++];
    Tensor *tensor = fill_entry(entry, device, name, DTYPE_F32, ndim, shape);
    tensor->requires_grad = true;
    tensor->grad = device_alloc(device, tensor_bytes(tensor));
    entry->owns_grad = true;
    return tensor;
}

Tensor *module_add_buffer(Module *module, Device *device, const char *name, DType dtype, int ndim,
                          const size_t *shape) {
    CHECK(module->buffer_count < 3, "too many buffers in a %s", module->type);
    return fill_entry(&module->buffers[module->buffer_count++], device, name, dtype, ndim, shape);
}

// ---- walking ----------------------------------------------------------------------------------

static void append(NamedTensors *list, const char *prefix, ModuleTensor *entry) {
    list->items = memory_grow(list->items, list->count + 1, sizeof *list->items);
    NamedTensor *item = &list->items[list->count++];
    int length = snprintf(item->name, sizeof item->name, "%s%s", prefix, entry->name);
    CHECK(length < (int)sizeof item->name, "the name %s%s is too long", prefix, entry->name);
    item->tensor = &entry->tensor;
}

static void walk(Module *module, const char *prefix, int which, NamedTensors *list) {
    for (int i = 0; (which & MODULE_PARAMETERS) && i < module->parameter_count; i++)
        append(list, prefix, &module->parameters[i]);
    for (int i = 0; (which & MODULE_BUFFERS) && i < module->buffer_count; i++)
        append(list, prefix, &module->buffers[i]);
    for (int i = 0; i < module->child_count; i++) {
        Module *child = module->children[i];
        char path[MODULE_PATH];
        int length =
            snprintf(path, sizeof path, "%s%s%s", prefix, child->name, child->name[0] ? "." : "");
        CHECK(length < (int)sizeof path, "the path %s%s is too long", prefix, child->name);
        walk(child, path, which, list);
    }
}

NamedTensors module_tensors(Module *module, int which) {
    NamedTensors list = {0};
    walk(module, "", which, &list);
    return list;
}

void named_tensors_free(NamedTensors *tensors) {
    free(tensors->items);
    *tensors = (NamedTensors){0};
}

void module_zero_grad(Module *module) {
    for (int i = 0; i < module->parameter_count; i++) module->parameters[i].tensor.has_grad = false;
    for (int i = 0; i < module->child_count; i++) module_zero_grad(module->children[i]);
}

void module_release_grads(Module *module) {
    for (int i = 0; i < module->parameter_count; i++) {
        ModuleTensor *entry = &module->parameters[i];
        if (entry->owns_grad)
            device_free(entry->tensor.device, entry->tensor.grad, tensor_bytes(&entry->tensor));
        entry->owns_grad = false;
        entry->tensor.grad = NULL;
        entry->tensor.has_grad = false;
    }
    for (int i = 0; i < module->child_count; i++) module_release_grads(module->children[i]);
}

// ---- replicas ---------------------------------------------------------------------------------

static ModuleTensor empty_copy(const ModuleTensor *entry, Device *device) {
    ModuleTensor copy = *entry;
    copy.tensor =
        tensor_make(device, entry->tensor.dtype, entry->tensor.ndim, entry->tensor.shape, NULL);
    copy.tensor.requires_grad = entry->tensor.requires_grad;
    copy.owns_data = copy.owns_grad = false;
    return copy;
}

Module *module_replica(const Module *module, Device *device) {
    CHECK(!module->state, "a %s cannot be replicated: it has state of its own", module->type);
    Module *replica = memory_zalloc(sizeof *replica);
    *replica = *module;
    replica->destroy = NULL;
    for (int i = 0; i < module->parameter_count; i++)
        replica->parameters[i] = empty_copy(&module->parameters[i], device);
    for (int i = 0; i < module->buffer_count; i++)
        replica->buffers[i] = empty_copy(&module->buffers[i], device);
    replica->children = NULL;
    replica->child_count = 0;
    for (int i = 0; i < module->child_count; i++)
        module_add(replica, module->children[i]->name, module_replica(module->children[i], device));
    return replica;
}
