/* module.c: trees of modules: construction, traversal, replicas. */
#include "common/nn/module.h"

#include <string.h>

#include "common/base/memory.h"
#include "common/base/object.h"
#include "common/nn/tape.h"

Module *module_create(const char *type, Tensor *(*forward)(Module *, Tape *, Tensor *)) {
    Module *module = object_open("module", sizeof *module);
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
    object_check_open(module, "module_close");
    CHECK(!module->owned, "module_close: %s \"%s\" is a child: close its parent or wrapper",
          module->type, module->name);
    if (module->destroy) module->destroy(module);
    for (int i = 0; i < module->child_count; i++) {
        module->children[i]->owned = false;
        module_close(module->children[i]);
    }
    for (int i = 0; i < module->parameter_count; i++) free_tensor(&module->parameters[i]);
    for (int i = 0; i < module->buffer_count; i++) free_tensor(&module->buffers[i]);
    free(module->children);
    object_close(module);
}

static void set_name(char *field, const char *name) {
    CHECK(strlen(name) < MODULE_NAME, "the name \"%s\" is too long", name);
    CHECK(!strchr(name, '.'), "the name \"%s\" has a dot", name);
    snprintf(field, MODULE_NAME, "%s", name);
}

Module *module_add(Module *parent, const char *name, Module *child) {
    CHECK(!child->owned && child != parent, "%s \"%s\" is the child of another module already",
          child->type, child->name);
    for (int i = 0; i < parent->child_count; i++)
        CHECK(strcmp(parent->children[i]->name, name) != 0, "a %s has a child \"%s\" already",
              parent->type, name);
    size_t count = (size_t)parent->child_count;
    parent->children = memory_grow(parent->children, count + 1, sizeof *parent->children);
    parent->children[parent->child_count++] = child;
    set_name(child->name, name);
    child->owned = true;
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
    device_kernels(device)->elementwise->fill(entry->tensor.data, 0.0f, bytes / sizeof(float));
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

Tensor *module_forward(Module *module, Tape *tape, Tensor *x) {
    CHECK(module->forward, "%s \"%s\" has no forward of its own: its parent runs its children",
          module->type, module->name);
    return x && tape_check_own(tape, module->type, &x, 1) ? module->forward(module, tape, x) : NULL;
}

// ---- shared weights ---------------------------------------------------------------------------

// Returns the entry that has the tensor: of a shared parameter, its owner's.
static ModuleTensor *owner_of(ModuleTensor *entry) {
    return entry->tied ? entry->tied : entry;
}

static ModuleTensor *find_parameter(Module *module, const char *name) {
    for (int i = 0; i < module->parameter_count; i++)
        if (strcmp(module->parameters[i].name, name) == 0) return &module->parameters[i];
    CHECK(false, "a %s has no parameter \"%s\"", module->type, name);
    return NULL;
}

void module_tie_parameter(Module *module, const char *name, Module *owner, const char *owner_name) {
    ModuleTensor *entry = find_parameter(module, name);
    ModuleTensor *target = owner_of(find_parameter(owner, owner_name));
    CHECK(!entry->tied && entry != target && entry->tensor.device == target->tensor.device &&
              tensor_same_shape(&entry->tensor, &target->tensor),
          "%s of a %s cannot share %s of a %s", name, module->type, owner_name, owner->type);
    free_tensor(entry);
    entry->owns_data = entry->owns_grad = false;
    entry->tied = target;
    target->ties++;
}

// ---- traversal ----------------------------------------------------------------------------------

static bool contains(const NamedTensors *list, const Tensor *tensor) {
    for (size_t i = 0; i < list->count; i++)
        if (list->items[i].tensor == tensor) return true;
    return false;
}

static void append(NamedTensors *list, const char *prefix, ModuleTensor *entry, int which) {
    Tensor *tensor = &owner_of(entry)->tensor;
    if (!(which & MODULE_ALL_NAMES) && contains(list, tensor)) return;
    list->items = memory_grow(list->items, list->count + 1, sizeof *list->items);
    NamedTensor *item = &list->items[list->count++];
    int length = snprintf(item->name, sizeof item->name, "%s%s", prefix, entry->name);
    CHECK(length < (int)sizeof item->name, "the name %s%s is too long", prefix, entry->name);
    item->tensor = tensor;
}

static void walk(Module *module, const char *prefix, int which, NamedTensors *list) {
    for (int i = 0; (which & MODULE_PARAMETERS) && i < module->parameter_count; i++)
        append(list, prefix, &module->parameters[i], which);
    for (int i = 0; (which & MODULE_BUFFERS) && i < module->buffer_count; i++)
        append(list, prefix, &module->buffers[i], which);
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

size_t module_count(Module *module, int which) {
    NamedTensors tensors = module_tensors(module, which);
    size_t count = 0;
    for (size_t i = 0; i < tensors.count; i++) {
        const Tensor whole = tensor_whole(tensors.items[i].tensor);
        count += tensor_count(&whole);
    }
    named_tensors_free(&tensors);
    return count;
}

bool module_has_type(const Module *module, const char *type) {
    if (strcmp(module->type, type) == 0) return true;
    for (int i = 0; i < module->child_count; i++)
        if (module_has_type(module->children[i], type)) return true;
    return false;
}

void module_zero_grad(Module *module) {
    for (int i = 0; i < module->parameter_count; i++) module_parameter(module, i)->has_grad = false;
    for (int i = 0; i < module->child_count; i++) module_zero_grad(module->children[i]);
}

void module_release_grads(Module *module, const NamedTensors *which) {
    for (int i = 0; i < module->parameter_count; i++) {
        ModuleTensor *entry = owner_of(&module->parameters[i]);
        if (!contains(which, &entry->tensor)) continue;
        if (entry->owns_grad)
            device_free(entry->tensor.device, entry->tensor.grad, tensor_bytes(&entry->tensor));
        entry->owns_grad = false;
        entry->tensor.grad = NULL;
        entry->tensor.has_grad = false;
    }
    for (int i = 0; i < module->child_count; i++) module_release_grads(module->children[i], which);
}

void module_own_grads(Module *module) {
    for (int i = 0; i < module->parameter_count; i++) {
        ModuleTensor *entry = owner_of(&module->parameters[i]);
        if (entry->tensor.grad) continue;
        entry->tensor.grad = device_alloc(entry->tensor.device, tensor_bytes(&entry->tensor));
        entry->tensor.has_grad = false;
        entry->owns_grad = true;
    }
    for (int i = 0; i < module->child_count; i++) module_own_grads(module->children[i]);
}

static void release_data(ModuleTensor *entry, const NamedTensors *which) {
    Tensor *tensor = &entry->tensor;
    if (!contains(which, tensor)) return;
    if (entry->owns_data) device_free(tensor->device, tensor->data, tensor_bytes(tensor));
    entry->owns_data = false;
    tensor->data = NULL;
}

void module_release_data(Module *module, const NamedTensors *which) {
    for (int i = 0; i < module->parameter_count; i++)
        release_data(owner_of(&module->parameters[i]), which);
    for (int i = 0; i < module->child_count; i++) module_release_data(module->children[i], which);
}

// Returns how many parameters of the tree this one is, and sets *ties to its owner's.
static int count_uses(Module *module, const Tensor *parameter, int *ties) {
    int uses = 0;
    for (int i = 0; i < module->parameter_count; i++) {
        const ModuleTensor *owner = owner_of(&module->parameters[i]);
        if (&owner->tensor != parameter) continue;
        uses++;
        *ties = owner->ties;
    }
    for (int i = 0; i < module->child_count; i++)
        uses += count_uses(module->children[i], parameter, ties);
    return uses;
}

bool module_holds_ties(Module *module, const Tensor *parameter) {
    int ties = 0, uses = count_uses(module, parameter, &ties);
    return uses == ties + 1;
}

// ---- replicas ---------------------------------------------------------------------------------

// Maps each parameter of the module to its copy in the replica, so that shared parameters have one
// copy (PyTorch's deepcopy memo).
typedef struct CopyMap {
    struct {
        const ModuleTensor *original;
        ModuleTensor *copy;
    } * items;
    size_t count;
} CopyMap;

static void copy_empty(ModuleTensor *copy, const ModuleTensor *entry, Device *device) {
    const Tensor *tensor = &entry->tensor;
    *copy = *entry;
    copy->tensor = tensor_make(device, tensor->dtype, tensor->ndim, tensor->shape, NULL);
    copy->tensor.requires_grad = tensor->requires_grad;
    copy->owns_data = copy->owns_grad = false;
}

static void copy_parameter(ModuleTensor *copy, const ModuleTensor *entry, Device *device,
                           CopyMap *map) {
    const ModuleTensor *original = entry->tied ? entry->tied : entry;
    copy_empty(copy, original, device);
    set_name(copy->name, entry->name);
    for (size_t i = 0; i < map->count && !copy->tied; i++)
        if (map->items[i].original == original) copy->tied = map->items[i].copy;
    if (copy->tied) return;
    map->items = memory_grow(map->items, map->count + 1, sizeof *map->items);
    map->items[map->count].original = original;
    map->items[map->count++].copy = copy;
}

static Module *copy_tree(const Module *module, Device *device, CopyMap *map) {
    CHECK(!module->state, "a %s has state and cannot be replicated", module->type);
    Module *replica = object_open("module", sizeof *replica);
    *replica = *module;
    replica->destroy = NULL;
    replica->owned = false;
    for (int i = 0; i < module->parameter_count; i++)
        copy_parameter(&replica->parameters[i], &module->parameters[i], device, map);
    for (int i = 0; i < module->buffer_count; i++)
        copy_empty(&replica->buffers[i], &module->buffers[i], device);
    replica->children = NULL;
    replica->child_count = 0;
    for (int i = 0; i < module->child_count; i++)
        module_add(replica, module->children[i]->name, copy_tree(module->children[i], device, map));
    return replica;
}

Module *module_replica(const Module *module, Device *device) {
    CopyMap map = {0};
    Module *replica = copy_tree(module, device, &map);
    free(map.items);
    return replica;
}
