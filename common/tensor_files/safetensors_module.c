/* safetensors_module.c: writes and loads a module's tensors, by PyTorch's names.
 *
 * Loading is atomic: every tensor is checked before the first is copied. Tensors are found by name,
 * in any order.
 */
#include <stdlib.h>
#include <string.h>

#include "common/base/memory.h"
#include "common/tensor_files/safetensors.h"

// Returns the data of a shard's whole tensor, which is collected under the first of its names.
static const void *find_whole(const SafeTensors *whole, const NamedTensors *tensors,
                              const Tensor *tensor) {
    size_t first = 0;
    while (tensors->items[first].tensor != tensor) first++;
    char name[sizeof SAFE_MODEL + MODULE_PATH];
    snprintf(name, sizeof name, "%s%s", SAFE_MODEL, tensors->items[first].name);
    const SafeEntry *entry = safetensors_find(whole, name);
    CHECK(entry, "%s: only a shard is here", tensors->items[first].name);
    return entry->data;
}

// Writes the tensors, or their defined gradients. Device memory is copied to the host before.
static int save(const char *path, const NamedTensors *tensors, bool grads, const SafeTensors *whole,
                Error *err) {
    SafeTensors content = {.entries = memory_zalloc(tensors->count * sizeof(SafeEntry)),
                           .meta = whole->meta,
                           .meta_count = whole->meta_count};
    void **copies = memory_zalloc(tensors->count * sizeof *copies);
    for (size_t i = 0; i < tensors->count; i++) {
        const Tensor *tensor = tensors->items[i].tensor, shape = tensor_whole(tensor);
        if (grads && !tensor->has_grad) continue;
        SafeEntry *entry = &content.entries[content.count++];
        *entry = (SafeEntry){.dtype = tensor->dtype,
                             .ndim = tensor->ndim,
                             .data = grads ? tensor->grad : tensor->data,
                             .bytes = tensor_bytes(&shape)};
        memcpy(entry->name, tensors->items[i].name, sizeof tensors->items[i].name);
        memcpy(entry->shape, shape.shape, sizeof shape.shape);
        if (tensor->shard) entry->data = find_whole(whole, tensors, tensor);
        if (tensor->shard || device_is_addressable(tensor->device)) continue;
        copies[i] = memory_zalloc(entry->bytes);
        device_copy(NULL, copies[i], tensor->device, entry->data, entry->bytes);
        entry->data = copies[i];
    }
    int status = safetensors_write(path, &content, err);
    for (size_t i = 0; i < tensors->count; i++) free(copies[i]);
    free(copies);
    free(content.entries);
    return status;
}

int safetensors_save_whole(const char *path, Module *module, bool grads, const SafeTensors *whole,
                           Error *err) {
    NamedTensors tensors =
        module_tensors(module, grads ? MODULE_PARAMETERS : MODULE_STATE | MODULE_ALL_NAMES);
    int status = save(path, &tensors, grads, whole, err);
    named_tensors_free(&tensors);
    return status;
}

int safetensors_save_module(const char *path, Module *module, const SafeMeta *meta,
                            size_t meta_count, Error *err) {
    const SafeTensors none = {.meta = (SafeMeta *)meta, .meta_count = meta_count};
    return safetensors_save_whole(path, module, false, &none, err);
}

int safetensors_save_grads(const char *path, Module *module, Error *err) {
    return safetensors_save_whole(path, module, true, &(SafeTensors){0}, err);
}

// ---- loading ----------------------------------------------------------------------------------

// Returns the first entry with one of the tensor's names, or NULL. Shared weights may lack some
// names: safetensors.torch.save_model writes one, a state_dict has all.
static const SafeEntry *find_tensor(const SafeTensors *content, const NamedTensors *names,
                                    const Tensor *tensor) {
    for (size_t i = 0; i < names->count; i++) {
        if (names->items[i].tensor != tensor) continue;
        const SafeEntry *entry = safetensors_find(content, names->items[i].name);
        if (entry) return entry;
    }
    return NULL;
}

// Returns an entry whose name ends with `name` ("module.fc1.weight" for "fc1.weight"), or NULL.
static const SafeEntry *find_prefixed(const SafeTensors *content, const char *name) {
    for (size_t i = 0; i < content->count; i++) {
        const char *in_file = content->entries[i].name;
        size_t length = strlen(in_file), wanted = strlen(name);
        if (length > wanted + 1 && in_file[length - wanted - 1] == '.' &&
            strcmp(in_file + length - wanted, name) == 0)
            return &content->entries[i];
    }
    return NULL;
}

static int fail_missing(const SafeTensors *content, const NamedTensor *named, Error *err) {
    char hint[400] = "";
    const SafeEntry *prefixed = find_prefixed(content, named->name);
    if (prefixed) {
        bool wrapped = strncmp(prefixed->name, "module.", strlen("module.")) == 0;
        snprintf(hint, sizeof hint, " (it has %s: %s)", prefixed->name,
                 wrapped ? "a wrapped model was saved: --strip-prefix module."
                         : "--strip-prefix leaves out what stands before the names");
    }
    const Tensor tensor = tensor_whole(named->tensor);
    return error_set(err, STATUS_USAGE,
                     "holds another model: there is no %s in the file, in this model it is %s%s",
                     named->name, tensor_describe(&tensor).text, hint);
}

static int check_name(const SafeTensors *content, const NamedTensors *names, size_t i, Error *err) {
    const NamedTensor *named = &names->items[i];
    const SafeEntry *entry = safetensors_find(content, named->name);
    const SafeEntry *first = find_tensor(content, names, named->tensor);
    if (!first) return fail_missing(content, named, err);
    if (!entry) return 0;
    const Tensor tensor = tensor_whole(named->tensor);
    Tensor stored = tensor_make(NULL, entry->dtype, entry->ndim, entry->shape, NULL);
    if (stored.dtype != tensor.dtype || !tensor_same_shape(&stored, &tensor))
        return error_set(err, STATUS_USAGE,
                         "holds another model: %s is %s %s in the file and %s %s in this model",
                         named->name, dtype_name(stored.dtype), tensor_describe(&stored).text,
                         dtype_name(tensor.dtype), tensor_describe(&tensor).text);
    if (memcmp(entry->data, first->data, entry->bytes) == 0) return 0;
    return error_set(err, STATUS_USAGE,
                     "%s and %s differ in the file: in this model they are one parameter",
                     first->name, entry->name);
}

static int check_all(const SafeTensors *content, const NamedTensors *names, Error *err) {
    for (size_t i = 0; i < names->count; i++)
        if (check_name(content, names, i, err) != 0) return -1;
    for (size_t i = 0; i < content->count; i++) {
        const SafeEntry *entry = &content->entries[i];
        size_t n = 0;
        while (n < names->count && strcmp(names->items[n].name, entry->name) != 0) n++;
        if (n < names->count) continue;
        Tensor stored = tensor_make(NULL, entry->dtype, entry->ndim, entry->shape, NULL);
        return error_set(err, STATUS_USAGE,
                         "holds another model: there is %s %s in the file, and none in this model",
                         entry->name, tensor_describe(&stored).text);
    }
    return 0;
}

int safetensors_check_module(const SafeTensors *content, const char *path, Module *module,
                             Error *err) {
    NamedTensors names = module_tensors(module, MODULE_STATE | MODULE_ALL_NAMES);
    int status = check_all(content, &names, err);
    named_tensors_free(&names);
    return status == 0 ? 0 : error_prefix(err, "%s", path);
}

void safetensors_apply_module(const SafeTensors *content, Module *module) {
    NamedTensors names = module_tensors(module, MODULE_STATE | MODULE_ALL_NAMES);
    for (size_t i = 0; i < names.count; i++) {
        const SafeEntry *entry = safetensors_find(content, names.items[i].name);
        if (!entry) continue; // it has another name
        Tensor *tensor = names.items[i].tensor;
        const size_t first = tensor_first(tensor) * dtype_bytes(tensor->dtype);
        tensor_from_host(tensor, (const char *)entry->data + first);
    }
    named_tensors_free(&names);
}

// Removes the prefix from each name that begins with it. Returns -1 with err filled if none does.
static int strip_prefix(SafeTensors *content, const char *path, const char *prefix, Error *err) {
    size_t length = strlen(prefix), stripped = 0;
    for (size_t i = 0; i < content->count; i++) {
        char *name = content->entries[i].name;
        if (strncmp(name, prefix, length) != 0) continue;
        memmove(name, name + length, strlen(name + length) + 1);
        stripped++;
    }
    if (stripped > 0) return 0;
    return error_set(err, STATUS_USAGE, "%s: no name begins with the prefix '%s'", path, prefix);
}

// Rejects a file in which two names are equal without the prefix. 0, or -1 with err filled.
static int check_distinct(const SafeTensors *content, const char *path, Error *err) {
    for (size_t i = 0; i < content->count; i++)
        if (safetensors_find(content, content->entries[i].name) != &content->entries[i])
            return error_set(err, STATUS_USAGE, "%s: without the prefix, %s is there twice", path,
                             content->entries[i].name);
    return 0;
}

int safetensors_load_stripped(const char *path, const char *prefix, Module *module, Error *err) {
    SafeTensors content;
    if (safetensors_read(path, &content, err) != 0) return -1;
    int status = prefix ? strip_prefix(&content, path, prefix, err) : 0;
    if (status == 0 && strcmp(module->type, "GPT") == 0)
        status = safetensors_convert_gpt2(&content, path, err);
    if (status == 0) status = safetensors_check_module(&content, path, module, err);
    if (status == 0 && prefix) status = check_distinct(&content, path, err);
    if (status == 0) safetensors_apply_module(&content, module);
    safetensors_free(&content);
    return status;
}

int safetensors_load_module(const char *path, Module *module, Error *err) {
    return safetensors_load_stripped(path, NULL, module, err);
}
